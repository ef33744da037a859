/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the cluster tests: hardware tables, short ways to read, and look-ups. */
#ifndef ADP_TESTS_CLUSTER_FIXTURE_H
#define ADP_TESTS_CLUSTER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "adp/cluster.h"
#include "base/alloc.h"
#include "base/file.h"

static struct adp_hardware *hw;

static int load_hardware(void **state)
{
	struct adp_error err = {0};

	(void)state;
	if (adp_hardware_load(&hw, NULL, NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return -1;
	}
	return 0;
}

static int unload_hardware(void **state)
{
	(void)state;
	adp_hardware_destroy(hw);
	return 0;
}

__attribute__((unused)) static struct adp_cluster *must_read(const char *text)
{
	struct adp_cluster *cluster;
	struct adp_error err = {0};

	if (adp_cluster_read(&cluster, text, strlen(text), "test", hw, &err))
		fail_msg("%s", err.text);
	return cluster;
}

__attribute__((unused)) static struct adp_cluster *must_list(const char *text)
{
	struct adp_cluster *cluster;
	struct adp_error err = {0};

	if (adp_cluster_from_gpus(&cluster, text, hw, &err))
		fail_msg("%s", err.text);
	return cluster;
}

__attribute__((unused)) static const char *alias_of(const struct adp_cluster *c, uint32_t node)
{
	return c->types[c->nodes[node].type].alias;
}

__attribute__((unused)) static const char *domain_of(const struct adp_cluster *c, uint32_t index)
{
	return index == ADP_NONE ? "(none)" : c->domains[index].name;
}

__attribute__((unused)) static const struct adp_node *node_named(const struct adp_cluster *c,
                                                                 const char *name)
{
	for (uint32_t i = 0; i < c->n_nodes; i++) {
		if (strcmp(c->nodes[i].name, name) == 0)
			return &c->nodes[i];
	}
	return NULL;
}

__attribute__((unused)) static bool warns(const struct adp_cluster *c, const char *text)
{
	for (uint32_t i = 0; i < c->n_warnings; i++) {
		if (strstr(c->warnings[i], text))
			return true;
	}
	return false;
}

#define assert_warns(c, text)                                                                      \
	do {                                                                                           \
		if (!warns(c, text))                                                                       \
			fail_msg("no warning says '%s'; first: %s", text,                                      \
			         (c)->n_warnings ? (c)->warnings[0] : "(none)");                               \
	} while (0)

#define assert_says(err, wanted)                                                                   \
	do {                                                                                           \
		if (!strstr((err).text, wanted))                                                           \
			fail_msg("'%s' does not say '%s'", (err).text, wanted);                                \
	} while (0)

#define assert_near(value, expected)                                                               \
	do {                                                                                           \
		double near_value = (value), near_expected = (expected);                                   \
		double near_gap = near_value - near_expected,                                              \
			   near_size = near_expected < 0 ? -near_expected : near_expected;                     \
		if ((near_gap < 0 ? -near_gap : near_gap) > 1e-12 * near_size)                             \
			fail_msg("%.17g is not %.17g", near_value, near_expected);                             \
	} while (0)

/* A file of the shared reference data, read whole; NULL, with a note, where there is none. Free
 * with adp_free. */
__attribute__((unused)) static char *shared_file(const char *name)
{
	char path[512], *text;
	struct adp_error err = {0};
	size_t len;

	snprintf(path, sizeof path, "%s/../shared/data/cases/%s", ADP_SOURCE_DIR, name);
	if (adp_file_read(&text, &len, path, 1 << 24, &err)) {
		print_message("skipped: reference file %s is not here\n", name);
		return NULL;
	}
	return text;
}

#endif
