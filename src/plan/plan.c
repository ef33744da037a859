/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include "base/alloc.h"

struct adp_plan *adp_plan_create(void)
{
	return adp_calloc(1, sizeof(struct adp_plan));
}

void adp_plan_destroy(struct adp_plan *plan)
{
	if (!plan)
		return;
	adp_arena_fini(&plan->arena);
	adp_free(plan);
}

uint32_t adp_plan_world(const struct adp_plan *plan)
{
	uint64_t world = plan->dp;
	const uint32_t other[] = {plan->tp, plan->cp, plan->pp};

	for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
		world *= other[i];
		if (world > UINT32_MAX)
			return 0;
	}
	return (uint32_t)world;
}

const char *adp_plan_schedule(const struct adp_plan *plan)
{
	return plan->vpp > 1 ? "interleaved-1f1b" : "1f1b";
}

int adp_plan_name(const char **out, const struct adp_plan *plan, struct adp_arena *arena,
                  struct adp_error *err)
{
	enum { MAX_LABEL = 63 };
	char *label;
	size_t n = 0;

	if (plan->name) {
		*out = plan->name;
		return ADP_OK;
	}
	label = adp_arena_calloc(arena, MAX_LABEL + 1, 1);
	if (!label)
		return adp_nomem(err);
	for (const char *at = plan->model.name ? plan->model.name : ""; *at && n < MAX_LABEL; at++) {
		const char c = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at;

		if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
			label[n++] = c;
		else if (n && label[n - 1] != '-')
			label[n++] = '-';
	}
	while (n && label[n - 1] == '-')
		label[--n] = '\0';
	*out = n ? label : "plan";
	return ADP_OK;
}
