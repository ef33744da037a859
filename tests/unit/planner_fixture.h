/* SPDX-License-Identifier: Apache-2.0 */
/* Group fixture of the tests that ask the whole planner: the tables built in and both engines. */
#ifndef ADP_TESTS_PLANNER_FIXTURE_H
#define ADP_TESTS_PLANNER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adp/search.h"
#include "base/alloc.h"

static struct adp_hardware *hw;
static struct adp_tables *tables;
static struct adp_engine *torch, *megatron;

static int load_planner(void **state)
{
	struct adp_error err = {0};

	(void)state;
	if (adp_hardware_load(&hw, NULL, NULL, &err) || adp_tables_load(&tables, NULL, &err) ||
	    adp_engine_load(&torch, "torch", NULL, &err) ||
	    adp_engine_load(&megatron, "megatron", NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return -1;
	}
	return 0;
}

static int unload_planner(void **state)
{
	(void)state;
	adp_engine_destroy(megatron);
	adp_engine_destroy(torch);
	adp_tables_destroy(tables);
	adp_hardware_destroy(hw);
	return 0;
}

#endif
