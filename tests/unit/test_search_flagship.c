/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner is for: one model on three generations of GPUs, for both engines, and on 16,384
 * GPUs of four types. How long that takes is measured by bench/bench_plan.c.
 */
#include "search_fixture.h"

/* Llama-3.1-70B */
static const struct sizes seventy_billion = {.hidden = 8192,
                                             .n_layers = 80,
                                             .n_heads = 64,
                                             .n_kv_heads = 8,
                                             .head_dim = 128,
                                             .ffn = 28672,
                                             .vocab = 128256};

static const char *const no_v100[] = {"V100-32"};
static const char *const not_newest[] = {"A100-80", "V100-32"};

static void flagship(struct job *job, const struct adp_engine *engine)
{
	job_init(job, &seventy_billion, "H100:128,A100-80:128,V100-32:64", engine, 1024, 8192);
	job->train.tokens = 1e12;
}

static double step_without(const struct job *job, const char *const *types, uint32_t n)
{
	struct job without = *job;

	without.opts.exclude = types;
	without.opts.n_exclude = n;
	return must_step_s(&without);
}

/* Of the fleet H100, A100-80, V100-32 or H200; 0 = not in the plan. */
static uint32_t n_used(const struct adp_plan *plan, const char *alias)
{
	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		if (!strcmp(plan->gpus[t].alias, alias))
			return plan->gpus[t].n_used;
	return 0;
}

static void assert_times_as_fast(double step_s, double other_s, double least)
{
	if (!(other_s >= least * step_s))
		fail_msg("%g s over %g s: %.4f, less than %g", other_s, step_s, other_s / step_s, least);
}

static void assert_fits_and_gap_is_small(const struct adp_plan *plan)
{
	for (uint32_t s = 0; s < plan->pp; s++) {
		const struct adp_plan_stage *stage = &plan->stages[s];

		assert_true(stage->usable_bytes > 0);
		if (stage->memory.peak_bytes > stage->usable_bytes)
			fail_msg("stage %u: %llu of %llu bytes", s,
			         (unsigned long long)stage->memory.peak_bytes,
			         (unsigned long long)stage->usable_bytes);
	}
	assert_true(plan->search.n_weighed > 0);
	assert_true(plan->search.bound_s > 0.0);
	/* nothing is left that could be better, or it could be better by 5 % */
	if (plan->search.exhausted)
		assert_true(plan->search.gap_frac == 0.0);
	else if (!(plan->search.gap_frac >= 0.0 && plan->search.gap_frac <= 0.05))
		fail_msg("a gap of %.2f %%", 100.0 * plan->search.gap_frac);
}

/*
 * By matmul peaks the fleet has 128 * (989 + 312) = 1.32 times the FLOP/s of its H100 alone, and an
 * equal split, in which H100 wait for A100, takes up to (989 + 312) / (2 * 312) = 2.08 times as
 * long; 1.2 and 1.6 leave for bubbles, links and memory what they may cost.
 */
static void a_plan_in_bf16(const struct adp_engine *engine)
{
	struct job job, equal;
	struct adp_plan *plan;

	flagship(&job, engine);
	plan = must_plan(&job);
	assert_fits_and_gap_is_small(plan);
	assert_true(n_used(plan, "A100-80") > 0);
	assert_times_as_fast(plan->step.step_s, step_without(&job, not_newest, 2), 1.2);

	equal = job;
	equal.opts.equal_layers = equal.opts.equal_batches = true;
	equal.opts.gpus = just(adp_plan_world(plan));
	assert_times_as_fast(plan->step.step_s, step_without(&equal, no_v100, 1), 1.6);

	assert_int_equal(n_used(plan, "V100-32"), 0);
	must_explain(plan, &job);
	assert_true(reasons_say(plan, "V100-32 left out: it has no BF16 tensor cores"));
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* V100s have FP16 tensor cores: they may help, and are left where they do not. */
static void a_plan_in_fp16(const struct adp_engine *engine)
{
	struct adp_plan *plan;
	struct job job;

	flagship(&job, engine);
	job.train.precision = ADP_PRECISION_FP16;
	plan = must_plan(&job);
	assert_fits_and_gap_is_small(plan);
	assert_times_as_fast(plan->step.step_s, step_without(&job, no_v100, 1), 1.0);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void megatron_in_bf16_beats_newest_only_and_an_equal_split_without_v100(void **state)
{
	(void)state;
	a_plan_in_bf16(megatron);
}

static void torch_in_bf16_beats_newest_only_and_an_equal_split_without_v100(void **state)
{
	(void)state;
	a_plan_in_bf16(torch);
}

static void megatron_in_fp16_is_no_slower_with_v100s_at_hand(void **state)
{
	(void)state;
	a_plan_in_fp16(megatron);
}

static void torch_in_fp16_is_no_slower_with_v100s_at_hand(void **state)
{
	(void)state;
	a_plan_in_fp16(torch);
}

/* 4 * 4096 = 16,384 GPUs: the plan is valid and within 5 % of the best, whatever it leaves out. */
static void sixteen_thousand_gpus_of_four_types(const struct adp_engine *engine)
{
	struct adp_plan *plan;
	struct job job;

	job_init(&job, &seventy_billion, "H100:4096,A100-80:4096,V100-32:4096,H200:4096", engine, 4096,
	         8192);
	job.train.tokens = 15e12;
	job.opts.n_threads = 2;
	plan = must_plan(&job);
	assert_fits_and_gap_is_small(plan);
	assert_int_equal(plan->n_gpu_types, 4);
	assert_true(adp_plan_world(plan) <= 16384);
	assert_int_equal(n_used(plan, "V100-32"), 0);
	/* H100 and H200 multiply alike, and nothing else here does so as fast */
	assert_true(n_used(plan, "H100") > 0 && n_used(plan, "H200") > 0);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void megatron_on_16384_gpus_of_four_types_comes_within_5_percent(void **state)
{
	(void)state;
	sixteen_thousand_gpus_of_four_types(megatron);
}

static void torch_on_16384_gpus_of_four_types_comes_within_5_percent(void **state)
{
	(void)state;
	sixteen_thousand_gpus_of_four_types(torch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(megatron_in_bf16_beats_newest_only_and_an_equal_split_without_v100),
		cmocka_unit_test(torch_in_bf16_beats_newest_only_and_an_equal_split_without_v100),
		cmocka_unit_test(megatron_in_fp16_is_no_slower_with_v100s_at_hand),
		cmocka_unit_test(torch_in_fp16_is_no_slower_with_v100s_at_hand),
		cmocka_unit_test(megatron_on_16384_gpus_of_four_types_comes_within_5_percent),
		cmocka_unit_test(torch_on_16384_gpus_of_four_types_comes_within_5_percent),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
