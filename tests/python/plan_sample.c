/* SPDX-License-Identifier: Apache-2.0 */
/* plan_sample mixed|moe json|yaml: prints the document of a hand-built plan, for judges outside C.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "unit/plan_fixture.h"

int main(int argc, char **argv)
{
	struct adp_plan *plan;
	struct adp_error err = {0};
	char *text = NULL;
	int rc;

	if (argc != 3)
		return 2;
	plan = strcmp(argv[1], "moe") ? fixture_mixed() : fixture_moe();
	if (!plan)
		return 4;
	rc = strcmp(argv[2], "yaml") ? adp_plan_to_json(&text, plan, &err)
	                             : adp_plan_to_yaml(&text, plan, &err);
	if (rc)
		fprintf(stderr, "%s\n", err.text);
	else
		fputs(text, stdout);
	adp_free(text);
	adp_plan_destroy(plan);
	return rc ? 4 : 0;
}
