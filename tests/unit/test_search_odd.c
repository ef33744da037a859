/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that an engine would refuse at its start are never chosen, and what nobody would type by
 * hand is neither: found by asking odd questions.
 */
#include "search_fixture.h"

#include <math.h>

/* Llama-3-8B */
static const struct sizes eight_billion = {.hidden = 4096,
                                           .n_layers = 32,
                                           .n_heads = 32,
                                           .n_kv_heads = 8,
                                           .head_dim = 128,
                                           .ffn = 14336,
                                           .vocab = 128256};

/*
 * At 4096 tokens context parallelism hides behind NVLink and costs next to nothing, so 8 replicas
 * and 4 over pairs of GPUs take the same time to a permille: the plain one is the answer.
 */
static void a_tie_goes_to_the_plan_with_the_smaller_degrees(void **state)
{
	struct adp_plan *free_plan, *context;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:8", megatron, 64, 4096);
	free_plan = must_plan(&job);
	job.opts.cp = just(2);
	context = must_plan(&job);
	assert_int_equal(adp_plan_world(context), adp_plan_world(free_plan));
	assert_true(context->step.step_s >= free_plan->step.step_s * (1.0 - 1e-12));
	assert_true(context->step.step_s <= free_plan->step.step_s * 1.001);
	assert_int_equal(free_plan->cp, 1);
	assert_int_equal(free_plan->tp, 1);
	assert_int_equal(free_plan->dp, 8);
	adp_plan_destroy(context);
	adp_plan_destroy(free_plan);
	job_fini(&job);
}

/* 131071 is odd: 2, 4 or 8 tensor-parallel ranks cannot share it equally, so sequence parallelism
 * is out. */
static void sequence_parallelism_divides_the_sequence(void **state)
{
	static const uint64_t lengths[] = {131071, 2 * 4099, 4 * 2053};
	struct job job;

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct adp_plan *plan;

		job_init(&job, &eight_billion, "H100:16", megatron, 16, lengths[i]);
		plan = must_plan(&job);
		if (plan->sequence_parallel)
			assert_int_equal(lengths[i] % ((uint64_t)plan->tp * plan->cp), 0);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
	job_init(&job, &eight_billion, "H100:16", megatron, 16, 131071);
	job.opts.sequence_parallel = 1;
	job.opts.tp = just(4);
	assert_refused(&job, ADP_EINVAL,
	               "--sequence-parallel on: tensor x context parallel must divide", "131071");
	job_fini(&job);
}

/* V100 has no fused attention kernel in Megatron, nor has any GPU in fp32. */
static void context_parallelism_keeps_to_gpus_with_a_fused_kernel(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:8,V100-32:16", megatron, 64, 8192);
	job.train.precision = ADP_PRECISION_FP16;
	job.opts.cp = just(2);
	plan = must_plan(&job);
	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		assert_int_equal(plan->gpus[t].n_used > 0, strcmp(plan->gpus[t].alias, "H100") == 0);
	adp_plan_destroy(plan);
	job.opts.cp = (struct adp_pin){0, 0};
	plan = must_plan(&job);
	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		if (plan->gpus[t].n_used && strcmp(plan->gpus[t].alias, "V100-32") == 0)
			assert_int_equal(plan->cp, 1);
	adp_plan_destroy(plan);
	job_fini(&job);

	job_init(&job, &eight_billion, "V100-32:64", megatron, 64, 8192);
	job.train.precision = ADP_PRECISION_FP16;
	job.opts.cp = just(2);
	assert_refused(&job, ADP_EINVAL, "--cp 2: no GPU of the fleet has a fused attention kernel",
	               "nearest legal: 1");
	job_fini(&job);

	job_init(&job, &eight_billion, "H100:8", megatron, 64, 8192);
	job.train.precision = ADP_PRECISION_FP32;
	plan = must_plan(&job);
	assert_int_equal(plan->cp, 1);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* Megatron's distributed optimizer runs Adam alone. */
static void sgd_is_not_sharded_by_megatron(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:16", megatron, 64, 4096);
	job.train.optimizer = ADP_OPTIMIZER_SGD_MOMENTUM;
	plan = must_plan(&job);
	assert_int_equal(plan->zero_stage, 0);
	adp_plan_destroy(plan);
	job.opts.zero_stage = 1;
	assert_refused(&job, ADP_EINVAL, "--zero 1: megatron", "runs ZeRO stage 0");
	job_fini(&job);

	job_init(&job, &eight_billion, "H100:16", torch, 64, 4096);
	job.train.optimizer = ADP_OPTIMIZER_SGD;
	job.opts.zero_stage = 3;
	plan = must_plan(&job);
	assert_int_equal(plan->zero_stage, 3);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static uint32_t used(const struct adp_plan *plan, const char *alias)
{
	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		if (strcmp(plan->gpus[t].alias, alias) == 0)
			return plan->gpus[t].n_used;
	return 0;
}

/* torch runs on AMD GPUs too, which have no compute capability; collectives do not span vendors. */
static void one_job_runs_on_gpus_of_one_vendor(void **state)
{
	static const char *const fleets[] = {"MI300X:8", "H100:8,MI300X:8", "H100:32,MI300X:8",
	                                     "H100:8,MI300X:32"};

	(void)state;
	for (size_t i = 0; i < sizeof fleets / sizeof *fleets; i++) {
		struct adp_plan *plan;
		struct job job;

		job_init(&job, &eight_billion, fleets[i], torch, 64, 4096);
		plan = must_plan(&job);
		assert_true(!used(plan, "MI300X") != !used(plan, "H100"));
		if (i >= 2) /* 32 of 989 or 1307 TFLOPS outweigh 8 */
			assert_int_equal(used(plan, i == 2 ? "H100" : "MI300X"), 32);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* A T4 has neither FP8 nor BF16, a GPU described without FP16 has BF16. */
static void the_precision_named_is_one_that_the_gpus_have(void **state)
{
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "T4:8", megatron, 64, 4096);
	job.train.precision = ADP_PRECISION_FP8;
	assert_refused(&job, ADP_EINFEASIBLE,
	               "Tesla-T4: it has no FP8 tensor cores; try --precision fp16");
	job_fini(&job);
	job_init(&job, &eight_billion,
	         "apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\n"
	         "gpuTypes: [{name: H100, tflops: {fp16: 0}}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	         megatron, 64, 4096);
	job.train.precision = ADP_PRECISION_FP16;
	assert_refused(&job, ADP_EINFEASIBLE,
	               "it has no matrix path in this precision; try --precision bf16");
	job_fini(&job);
	job_init(&job, &eight_billion, "T4:8,MI300X:8", megatron, 64, 4096);
	assert_refused(&job, ADP_EINFEASIBLE,
	               "Tesla-T4: it has no BF16 tensor cores; try --precision fp16",
	               "MI300X: this engine build runs on NVIDIA GPUs only");
	job_fini(&job);
}

#define HEAD "apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nnodeGroups:\n"

/* Health comes in steps of 5 %, but 2 % and 1 % are not 5 %: half the speed is twice the time of
 * compute. */
static void a_nearly_dead_gpu_is_as_slow_as_it_is(void **state)
{
	struct job two, one;
	double two_s, one_s;

	(void)state;
	job_init(&two, &eight_billion, HEAD "- {name: a, gpu: H100, health: 0.02}\n", megatron, 64,
	         4096);
	job_init(&one, &eight_billion, HEAD "- {name: a, gpu: H100, health: 0.01}\n", megatron, 64,
	         4096);
	two_s = must_step_s(&two);
	one_s = must_step_s(&one);
	assert_true(one_s > 1.9 * two_s && one_s < 2.0 * two_s);
	job_fini(&two);
	job_fini(&one);
}

/* Slots of a rack-size NVLink domain: the GPUs that are left of a node when one is sick are not
 * joined with others'. */
static void a_sick_gpu_does_not_tear_tensor_parallel_groups_over_nodes(void **state)
{
	static const char fleet[] = HEAD
		"- {name: g, count: 4, gpu: GB200, nvlinkDomain: rack}\n"
		"nodes: [{name: g-1, health: {1: 0.8}}, {name: g-2, gpus: 3}]\n";

	(void)state;
	for (uint32_t tp = 2; tp <= 8; tp *= 2) {
		struct adp_plan *plan;
		struct job job;

		job_init(&job, &eight_billion, fleet, megatron, 64, 4096);
		job.opts.tp = just(tp);
		plan = must_plan(&job);
		for (uint32_t r = 0; r < plan->n_runs; r++) {
			uint32_t n = plan->runs[r].gpus_per_node;

			assert_true(n % tp == 0 || tp % n == 0);
		}
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/*
 * A GPU fails every 20 h, 512 of them every 140 s: less than the 300 s of a restart, so the fastest
 * step of all never ends. 10e9 tokens on a handful of GPUs take days, and failures hours.
 */
static void a_deadline_is_met_by_fewer_gpus_that_fail_less(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:512", megatron, 1024, 4096);
	job.train.tokens = 10e9;
	job.train.mtbf_s = 20 * 3600.0;
	plan = must_plan(&job);
	assert_false(plan->time.total_s < INFINITY);
	adp_plan_destroy(plan);
	job.train.deadline_s = 10 * 86400.0;
	plan = must_plan(&job);
	assert_true(plan->time.total_s <= job.train.deadline_s);
	assert_true(adp_plan_world(plan) < 16);
	adp_plan_destroy(plan);
	job.train.deadline_s = 2 * 3600.0;
	assert_refused(&job, ADP_EINFEASIBLE, "deadline: the fastest plan takes ", "2.00 h was asked");
	job.train.mtbf_s = 1.0;
	assert_refused(&job, ADP_EINFEASIBLE, "deadline: no plan ever ends: a GPU fails every 1.00 s",
	               "--restart-time");
	job_fini(&job);
}

/* What is named fits, and the value next to it on the pin's side does not. */
static void the_nearest_value_of_a_pin_is_named(void **state)
{
	struct adp_error err;
	struct adp_plan *plan;
	struct job job;
	const char *at;
	uint32_t n;

	(void)state;
	job_init(&job, &eight_billion, "H100:64", megatron, 64, 4096);
	job.opts.gpus = just(1);
	assert_int_equal(ask(&plan, &job, &err), ADP_EINFEASIBLE);
	at = strstr(err.text, "--gpus-used ");
	if (!at)
		fail_msg("%s", err.text);
	n = (uint32_t)strtoul(at + strlen("--gpus-used "), NULL, 10);
	assert_in_range(n, 2, 8); /* 128 GB of state on GPUs of 75 GB */
	job.opts.gpus = just(n);
	adp_plan_destroy(must_plan(&job));
	job.opts.gpus = (struct adp_pin){1, n - 1};
	assert_int_equal(ask(&plan, &job, &err), ADP_EINFEASIBLE);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tie_goes_to_the_plan_with_the_smaller_degrees),
		cmocka_unit_test(sequence_parallelism_divides_the_sequence),
		cmocka_unit_test(context_parallelism_keeps_to_gpus_with_a_fused_kernel),
		cmocka_unit_test(sgd_is_not_sharded_by_megatron),
		cmocka_unit_test(one_job_runs_on_gpus_of_one_vendor),
		cmocka_unit_test(the_precision_named_is_one_that_the_gpus_have),
		cmocka_unit_test(a_deadline_is_met_by_fewer_gpus_that_fail_less),
		cmocka_unit_test(the_nearest_value_of_a_pin_is_named),
		cmocka_unit_test(a_nearly_dead_gpu_is_as_slow_as_it_is),
		cmocka_unit_test(a_sick_gpu_does_not_tear_tensor_parallel_groups_over_nodes),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
