/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMIT_FIXTURE_H
#define EMIT_FIXTURE_H

#include "adp/emit.h"
#include "plan_fixture.h"

/* Include after cmocka.h. Plans that Megatron runs, from those of plan_fixture.h; tests change
 * them. */

/* 80 layers as 27, 27 on H100 and 13, 13 on A100; tensor 8, data 8, pipeline 4, 128 micro-batches
 * of 1. */
static inline struct adp_plan *emit_uneven(void)
{
	struct adp_plan *plan = fixture_mixed();

	assert_non_null(plan);
	plan->stages[2].recompute = ADP_RECOMPUTE_NONE; /* one choice for all stages */
	return plan;
}

/* 8 layers of experts, 2 on each of 2 ranks' 2 virtual stages; tensor 2, data 2, expert 2, 4
 * micro-batches of 2. */
static inline struct adp_plan *emit_uniform(void)
{
	static const uint32_t first[2][2] = {{0, 4}, {2, 6}}, layers[] = {2, 2};
	struct adp_plan *plan = fixture_moe();

	assert_non_null(plan);
	plan->engine = "megatron";
	plan->engine_version = "0.16.1";
	plan->sequence_parallel = true; /* experts with tensor parallelism need it */
	for (uint32_t s = 0; s < 2; s++) {
		plan->stages[s].first_layer = first[s];
		plan->stages[s].n_layers = layers;
	}
	for (uint32_t p = 0; p < 2; p++)
		plan->pipes[p].n_micro = 4; /* 16 sequences = 2 replicas x 4 x 2 */
	return plan;
}

/* The uneven plan with 4 replicas of context 2 x tensor 8 in place of 8 of tensor 8. */
static inline struct adp_plan *emit_context(void)
{
	struct adp_plan *plan = emit_uneven();

	plan->dp = 4;
	plan->cp = 2;
	plan->pipes[0].n_replicas = 4;
	plan->pipes[0].n_micro = 256;
	return plan;
}

static inline const char *emit_content(const struct adp_emit_set *set, const char *name)
{
	for (uint32_t i = 0; i < set->n_files; i++)
		if (strcmp(set->files[i].name, name) == 0)
			return set->files[i].content;
	fail_msg("no file %s", name);
	return "";
}

static const struct adp_emit_opts emit_opts = {.master_addr = "head.example", .master_port = 6000};

static inline void emit_ok(struct adp_emit_set *set, const struct adp_plan *plan)
{
	struct adp_error err = {0};

	if (adp_emit(set, plan, NULL, &emit_opts, &err) != ADP_OK)
		fail_msg("%s", err.text);
}

/* Refused with this code and a text that has `part`. Destroys the plan. */
static inline void emit_refused(struct adp_plan *plan, int code, const char *part)
{
	struct adp_error err = {0};
	struct adp_emit_set set = {0};
	int rc = adp_emit(&set, plan, NULL, &emit_opts, &err);

	assert_int_equal(set.n_files, 0);
	if (rc != code || !strstr(err.text, part))
		fail_msg("returned %d '%s', expected %d with '%s'", rc, err.text, code, part);
	adp_plan_destroy(plan);
}

#endif
