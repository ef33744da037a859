/* SPDX-License-Identifier: Apache-2.0 */
/* links: plan; covers: src/plan/plan_read.c src/plan/plan_names.c */
/* cuts: 64: a document cut short fails in the JSON or YAML reader, which have their own targets */
#include <stdlib.h>
#include <string.h>

#include "adp/plan.h"
#include "base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever is read keeps its own rules, can be printed, and is the same after writing and reading.
 */
static void check(const struct adp_plan *plan, FILE *to)
{
	static int (*const writers[])(char **, const struct adp_plan *,
	                              struct adp_error *) = {adp_plan_to_json, adp_plan_to_yaml};

	if (adp_plan_validate(plan, NULL) || adp_plan_print(to, plan, 80, NULL))
		abort();
	for (size_t i = 0; i < 2; i++) {
		struct adp_plan *again;
		char *text, *second;

		if (writers[i](&text, plan, NULL) ||
		    adp_plan_read(&again, text, strlen(text), "again", NULL) ||
		    writers[i](&second, again, NULL) || strcmp(text, second))
			abort();
		adp_plan_destroy(again);
		adp_free(second);
		adp_free(text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *nowhere;
	struct adp_error err = {0};
	struct adp_plan *plan;

	if (!nowhere && !(nowhere = fopen("/dev/null", "w")))
		abort();
	if (adp_plan_read(&plan, (const char *)data, size, "fuzz", &err) == ADP_OK)
		check(plan, nowhere);
	else if (plan || !err.code || !err.text[0])
		abort();
	adp_plan_destroy(plan);
	return 0;
}
