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
