/* SPDX-License-Identifier: Apache-2.0 */
/* When nothing fits: what stands in the way, and changes that really help. */
#include "search_fixture.h"

#include <inttypes.h>
#include <math.h>

/* Llama-2-13B: 40 * (4 * 5120^2 + 3 * 5120 * 13824 + 2 * 5120) + 2 * 32000 * 5120 + 5120 = 13.0e9
 * parameters */
static const struct sizes thirteen_billion = {.hidden = 5120,
                                              .n_layers = 40,
                                              .n_heads = 40,
                                              .n_kv_heads = 40,
                                              .head_dim = 128,
                                              .ffn = 13824,
                                              .vocab = 32000};

/* Llama-3-8B */
static const struct sizes eight_billion = {.hidden = 4096,
                                           .n_layers = 32,
                                           .n_heads = 32,
                                           .n_kv_heads = 8,
                                           .head_dim = 128,
                                           .ffn = 14336,
                                           .vocab = 128256};

/* The number that stands before a word, the first time. */
static double number_before(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	if (!at)
		fail_msg("'%s' does not say '%s'", text, word);
	while (at > text && at[-1] != ' ' && at[-1] != '(')
		at--;
	return strtod(at, NULL);
}

static void refuse(struct adp_error *err, const struct job *job)
{
	struct adp_plan *plan;

	assert_int_equal(ask(&plan, job, err), ADP_EINFEASIBLE);
	assert_null(plan);
}

static bool plan_exists(const struct job *job)
{
	struct adp_error err;
	struct adp_plan *plan;
	int rc = ask(&plan, job, &err);

	if (rc != ADP_OK && rc != ADP_EINFEASIBLE)
		fail_msg("%s", err.text);
	adp_plan_destroy(plan);
	return rc == ADP_OK;
}

/*
 * Weights of 2 bytes, gradients of 4 and 12 of optimizer state are 18 a parameter: 13.0e9 * 18 =
 * 234 GB, over 4 GPUs 54.6 GiB each. Beside it stand activations, workspaces and CUDA's context: a
 * few GiB.
 */
static void what_does_not_fit_comes_first_with_the_memory_that_would_do(void **state)
{
	struct adp_error err;
	struct job job;
	double need;

	(void)state;
	job_init(&job, &thirteen_billion, "A100-40:4", megatron, 32, 4096);
	refuse(&err, &job);
	assert_int_equal(strncmp(err.text, "does not fit in memory: ", 24), 0);
	assert_says(err, "4 A100-40 (34.8 GiB usable each, ");
	need = number_before(err.text, " GiB needed");
	if (!(need > 54.6 && need < 75.0))
		fail_msg("'%s'", err.text);
	job_fini(&job);
}

/* 234 GB in 34.8 GiB each: at least 6.3 GPUs, so two nodes of 4 at best; the number told is the
 * first that fits. */
static void the_number_of_gpus_told_is_the_smallest_that_fits(void **state)
{
	struct adp_error err;
	struct job job, more;
	char fleet[64];
	uint32_t told;

	(void)state;
	job_init(&job, &thirteen_billion, "A100-40x4:4", megatron, 32, 4096);
	refuse(&err, &job);
	told = (uint32_t)number_before(err.text, " A100-40 instead of 4 A100-40");
	assert_true(told >= 8 && told <= 16 && told % 4 == 0);
	snprintf(fleet, sizeof fleet, "A100-40x4:%" PRIu32, told);
	job_init(&more, &thirteen_billion, fleet, megatron, 32, 4096);
	assert_true(plan_exists(&more));
	job_fini(&more);
	snprintf(fleet, sizeof fleet, "A100-40x4:%" PRIu32, told - 4);
	job_init(&more, &thirteen_billion, fleet, megatron, 32, 4096);
	assert_false(plan_exists(&more));
	job_fini(&more);
	job_fini(&job);
}

static void a_mixed_fleet_grows_by_all_its_types(void **state)
{
	struct adp_error err;
	struct job job;

	(void)state;
	job_init(&job, &thirteen_billion, "A100-40x2:2,L40Sx2:2", megatron, 32, 4096);
	refuse(&err, &job);
	assert_says(err, "2 L40S (39.6 GiB usable each, ");
	assert_says(err, " + 2 A100-40 (34.8 GiB usable each, ");
	assert_says(err, " instead of 2 L40S + 2 A100-40");
	assert_true(number_before(err.text, " A100-40 instead of") >= 4.0);
	job_fini(&job);
}

/* A pin that does it alone comes first, and all other values stay the user's. */
static void lifting_one_pin_is_the_cheapest_advice(void **state)
{
	struct adp_error err;
	struct job job, changed;

	(void)state;
	job_init(&job, &eight_billion, "A100-40:8", megatron, 8, 65536);
	job.opts.tp = just(8);
	job.opts.recompute = ADP_RECOMPUTE_NONE;
	refuse(&err, &job);
	assert_says(err, "What would fit: --recompute full instead of none");
	changed = job;
	changed.opts.recompute = ADP_RECOMPUTE_FULL;
	assert_true(plan_exists(&changed));
	job_fini(&job);
}

static void a_pinned_degree_is_told_with_the_value_that_fits(void **state)
{
	struct adp_error err;
	struct job job, changed;
	uint32_t dp;

	(void)state;
	/* a whole model in each GPU: 8.03e9 * (2 + 4) bytes are 44.9 GiB, whatever the optimizer's
	 * shards */
	job_init(&job, &eight_billion, "A100-40:8", megatron, 64, 4096);
	job.opts.dp = just(8);
	job.opts.zero_stage = 1;
	refuse(&err, &job);
	assert_int_equal(strncmp(err.text, "does not fit in memory: ", 24), 0);
	assert_says(err, "; --dp ");
	dp = (uint32_t)strtoul(strstr(err.text, "--dp ") + 5, NULL, 10);
	assert_true(dp >= 1 && dp < 8);
	changed = job;
	changed.opts.dp = just(dp);
	assert_true(plan_exists(&changed));
	job_fini(&job);
}

static void an_excluded_type_that_would_do_is_told(void **state)
{
	const char *const exclude[] = {"NVIDIA-A100-SXM4-80GB"};
	struct adp_error err;
	struct job job;

	(void)state;
	job_init(&job, &thirteen_billion, "A100-40:4,A100-80:8", megatron, 32, 4096);
	job.opts.exclude = exclude;
	job.opts.n_exclude = 1;
	refuse(&err, &job);
	assert_says(err, "What would fit: no --exclude A100-80; ");
	job_fini(&job);
}

static void a_shorter_sequence_that_fits_is_told(void **state)
{
	struct adp_error err;
	struct job job, changed;
	uint64_t seq;

	(void)state;
	job_init(&job, &eight_billion, "A100-40:8", megatron, 8, 131072);
	job.opts.tp = just(8);
	job.opts.recompute = ADP_RECOMPUTE_NONE;
	job.opts.cp = just(1);
	refuse(&err, &job);
	seq = (uint64_t)strtoull(strstr(err.text, "--seq ") + 6, NULL, 10);
	assert_says(err, " instead of 131072");
	changed = job;
	changed.train.seq_tokens = seq;
	assert_true(plan_exists(&changed));
	changed.train.seq_tokens = 2 * seq;
	assert_false(plan_exists(&changed));
	job_fini(&job);
}

/* 4 sequences, 8 replicas: no memory would help. */
static void a_limit_that_is_not_memory_is_not_called_so(void **state)
{
	struct adp_error err;
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:8", megatron, 4, 4096);
	job.opts.dp = just(8);
	assert_true(ask(&plan, &job, &err) != ADP_OK);
	assert_null(strstr(err.text, "memory: "));
	job_fini(&job);
}

static void a_fleet_that_cannot_run_the_job_says_what_would_admit_it(void **state)
{
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "V100-32:8", megatron, 32, 4096);
	assert_refused(&job, ADP_EINFEASIBLE, "no GPU of the fleet can run this job",
	               "no BF16 tensor cores", "--precision fp16");
	job_fini(&job);
}

static void the_same_advice_comes_from_one_and_two_threads(void **state)
{
	struct adp_error err[2];
	struct job job;

	(void)state;
	job_init(&job, &thirteen_billion, "A100-40x2:2,L40Sx2:2", megatron, 32, 4096);
	for (uint32_t i = 0; i < 2; i++) {
		job.opts.n_threads = i + 1;
		refuse(&err[i], &job);
	}
	assert_string_equal(err[0].text, err[1].text);
	job_fini(&job);
}

/* Every trial allocates alike, so a spread of the failures stands for all of them. */
static void each_failing_allocation_is_told_and_leaks_nothing(void **state)
{
	struct job job;
	uint64_t live;
	bool failed = true;

	(void)state;
	job_init(&job, &eight_billion, "T4:2", torch, 4, 4096);
	job.train.precision = ADP_PRECISION_FP16;
	job.opts.recompute = ADP_RECOMPUTE_NONE;
	live = adp_alloc_live();
	for (uint64_t n = 0; failed; n += 1 + n / 40) {
		struct adp_error err;
		struct adp_plan *plan;
		int rc;

		adp_alloc_fail_after(n);
		rc = ask(&plan, &job, &err);
		failed = adp_alloc_failed();
		adp_alloc_fail_after(UINT64_MAX);
		if (rc != (failed ? ADP_ENOMEM : ADP_EINFEASIBLE))
			fail_msg("allocation %" PRIu64 " fails: returned %d, %s", n, rc, err.text);
		if (adp_alloc_live() != live)
			fail_msg("allocation %" PRIu64 " leaks", n);
	}
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_does_not_fit_comes_first_with_the_memory_that_would_do),
		cmocka_unit_test(the_number_of_gpus_told_is_the_smallest_that_fits),
		cmocka_unit_test(a_mixed_fleet_grows_by_all_its_types),
		cmocka_unit_test(lifting_one_pin_is_the_cheapest_advice),
		cmocka_unit_test(a_pinned_degree_is_told_with_the_value_that_fits),
		cmocka_unit_test(an_excluded_type_that_would_do_is_told),
		cmocka_unit_test(a_shorter_sequence_that_fits_is_told),
		cmocka_unit_test(a_limit_that_is_not_memory_is_not_called_so),
		cmocka_unit_test(a_fleet_that_cannot_run_the_job_says_what_would_admit_it),
		cmocka_unit_test(the_same_advice_comes_from_one_and_two_threads),
		cmocka_unit_test(each_failing_allocation_is_told_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
