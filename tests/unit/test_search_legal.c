/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public cases on what is legal, asked of the whole planner: pins that no plan meets are refused
 * with the number that stands in the way and the nearest legal values. docs/cases.md has the list.
 */
#include "search_fixture.h"

/* A small decoder; a test changes what it is about. */
static const struct sizes plain = {.hidden = 2048,
                                   .n_layers = 16,
                                   .n_heads = 16,
                                   .n_kv_heads = 8,
                                   .head_dim = 128,
                                   .ffn = 6144,
                                   .vocab = 32000};

static void expect_tp(const struct sizes *sizes, const struct adp_engine *engine, uint32_t tp,
                      const char *refusal)
{
	struct job job;

	job_init(&job, sizes, "H100:8", engine, 64, 2048);
	job.opts.tp = just(tp);
	if (refusal) {
		assert_refused(&job, ADP_EINVAL, refusal);
	} else {
		struct adp_plan *plan = must_plan(&job);

		assert_int_equal(plan->tp, tp);
		adp_plan_destroy(plan);
	}
	job_fini(&job);
}

/* Case divisibility-01: 28 heads and 4 KV heads allow 1, 2 and 4; 28 % 8 = 4, and 4 % 7 and 7 % 4
 * are not 0. */
static void twenty_eight_heads_run_on_1_2_or_4(void **state)
{
	struct sizes sizes = plain;

	(void)state;
	sizes.hidden = 3584;
	sizes.n_heads = 28;
	sizes.n_kv_heads = 4;
	sizes.ffn = 18944;
	for (uint32_t tp = 1; tp <= 4; tp *= 2) {
		expect_tp(&sizes, torch, tp, NULL);
		expect_tp(&sizes, megatron, tp, NULL);
	}
	expect_tp(&sizes, torch, 8,
	          "--tp 8: must divide the 28 heads, the 4 KV heads, nearest legal: 4");
	expect_tp(&sizes, megatron, 8, "--tp 8: must divide the 28 heads, nearest legal: 4");
	expect_tp(&sizes, torch, 7, "--tp 7: must divide the 4 KV heads");
	expect_tp(&sizes, megatron, 7, "--tp 7: must divide the 4 KV heads");
}

/* Case divisibility-03: two KV heads at tensor 4 and 8 depend on the engine and its version. */
static void two_kv_heads_are_repeated_by_one_release_only(void **state)
{
	struct adp_error err = {0};
	struct adp_engine *older;
	struct sizes sizes = plain;

	(void)state;
	sizes.n_kv_heads = 2;
	sizes.ffn = 8192;
	if (adp_engine_load(&older, "megatron@0.15", NULL, &err))
		fail_msg("%s", err.text);
	expect_tp(&sizes, torch, 2, NULL);
	expect_tp(&sizes, older, 2, NULL);
	expect_tp(&sizes, megatron, 2, NULL);
	for (uint32_t tp = 4; tp <= 8; tp *= 2) {
		expect_tp(&sizes, torch, tp, "must divide the 2 KV heads, nearest legal: 2");
		expect_tp(&sizes, older, tp, "must divide the 2 KV heads, nearest legal: 2");
		expect_tp(&sizes, megatron, tp, NULL);
	}
	adp_engine_destroy(older);
}

/* Case divisibility-06: the vocabulary is padded to 128 * tensor, ceil(151669 / 512) * 512 = 297 *
 * 512 = 152064. */
static void the_vocabulary_is_padded_and_the_padding_counted(void **state)
{
	static const struct {
		unsigned vocab;
		uint32_t tp;
		uint64_t padded;
	} cases[] = {
		{151669, 4, 152064},
		{250682, 8, 250880}, /* ceil(250682 / 1024) = 245 */
		{65535, 2, 65536},
		{65536, 2, 65536},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct sizes sizes = plain;
		struct adp_plan *plan;
		struct job job;

		sizes.vocab = cases[i].vocab;
		job_init(&job, &sizes, "H100:8", megatron, 64, 2048);
		job.opts.tp = just(cases[i].tp);
		job.opts.pp = just(1);
		job.opts.zero_stage = 1;
		plan = must_plan(&job);
		assert_int_equal(plan->model.vocab, cases[i].vocab);
		assert_int_equal(plan->padded_vocab, cases[i].padded);
		/*
		 * 2 bytes of embedding and head, and of 16 blocks of 2048 * (2 * 2048 + 2 * 1024 + 3 *
		 * 6144), divided by TP; 33 norms of 2048 are whole
		 */
		assert_int_equal(
			plan->stages[0].memory.weights,
			2 * ((2 * cases[i].padded * 2048 + 16ull * 2048 * 24576) / cases[i].tp + 33 * 2048));
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Case divisibility-08: 96 heads and a vocabulary of 151552 would do at tensor 6, but 8 % 6 is 2.
 */
static void six_fails_on_the_kv_heads_and_not_on_the_vocabulary(void **state)
{
	struct sizes sizes = plain;

	(void)state;
	sizes.hidden = 12288;
	sizes.n_layers = 2;
	sizes.n_heads = 96;
	sizes.ffn = 24576;
	sizes.vocab = 151552;
	expect_tp(&sizes, torch, 6, "--tp 6: must divide the 8 KV heads, nearest legal: 4 and 8");
	expect_tp(&sizes, megatron, 6, "--tp 6: must divide the 8 KV heads");
	sizes.n_kv_heads = 96;
	expect_tp(&sizes, megatron, 6, NULL); /* 151552 % 6 is 4: padded */
}

/* Case divisibility-15: 256 % 3 = 1 and 64 % 3 = 1: both are named. */
static void every_pin_that_fails_is_named(void **state)
{
	struct sizes sizes = plain;
	struct job job;

	(void)state;
	sizes.n_heads = 64;
	sizes.n_experts = 256;
	sizes.top_k = 8;
	sizes.expert_ffn = 768;
	job_init(&job, &sizes, "H100:8", megatron, 64, 2048);
	job.opts.tp = just(3);
	job.opts.ep = just(3);
	assert_refused(&job, ADP_EINVAL, "--tp 3: must divide the 64 heads",
	               "nearest legal: 2 and 4; --ep 3",
	               "--ep 3: must divide the 256 routed experts, nearest legal: 2 and 4");
	job_fini(&job);
}

/* Layers that the stages of a plan hold, and that each virtual stage stands in its place. */
static void expect_layers(const struct adp_plan *plan, uint32_t n_layers)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < plan->pp; s++)
		n += layers_of(&plan->stages[s]);
	assert_int_equal(n, n_layers);
	for (uint32_t c = 0; c < plan->vpp; c++) {
		for (uint32_t s = 0; s + 1 < plan->pp; s++)
			assert_int_equal(plan->stages[s].first_layer[c] + plan->stages[s].n_layers[c],
			                 plan->stages[s + 1].first_layer[c]);
	}
}

/* Case divisibility-10: 80 layers on 16 ranks with 2 virtual stages are 2.5 a stage: 80 must run,
 * not 64. */
static void eighty_layers_on_16_by_2_stages_all_run(void **state)
{
	struct sizes sizes = plain;
	struct adp_plan *plan;
	struct job job;

	(void)state;
	sizes.n_layers = 80;
	job_init(&job, &sizes, "H100:16", megatron, 256, 2048);
	job.opts.pp = just(16);
	job.opts.vpp = just(2);
	job.opts.micro_batch = just(1);
	plan = must_plan(&job);
	assert_int_equal(plan->vpp, 2);
	expect_layers(plan, 80);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* Case divisibility-11: 40 layers on 16 stages and 46 on 4 do not divide; the layers are laid out
 * unevenly. */
static void layers_that_do_not_divide_get_an_uneven_layout(void **state)
{
	static const uint32_t cases[][2] = {{40, 16}, {46, 4}};
	const struct adp_engine *const engines[] = {torch, megatron};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct sizes sizes = plain;
		struct adp_plan *plan;
		struct job job;
		uint32_t least = UINT32_MAX, most = 0;

		sizes.n_layers = cases[i / 2][0];
		job_init(&job, &sizes, "H100:16", engines[i % 2], 256, 2048);
		job.opts.pp = just(cases[i / 2][1]);
		job.opts.vpp = job.opts.micro_batch = just(1);
		job.opts.equal_layers = true;
		plan = must_plan(&job);
		expect_layers(plan, sizes.n_layers);
		for (uint32_t s = 0; s < plan->pp; s++) {
			least = layers_of(&plan->stages[s]) < least ? layers_of(&plan->stages[s]) : least;
			most = layers_of(&plan->stages[s]) > most ? layers_of(&plan->stages[s]) : most;
		}
		assert_int_equal(most, least + 1); /* as equal as it gets */
		assert_true(plan->step.bubble_s > 0.0);
		adp_plan_destroy(plan);
		job.opts.equal_layers = false;
		plan = must_plan(&job);
		expect_layers(plan, sizes.n_layers);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* More stages than layers, embedding and head can fill, or than GPUs: refused with the most that
 * there can be. */
static void pipelines_and_replicas_are_bounded_by_layers_gpus_and_batch(void **state)
{
	struct job job;

	(void)state;
	job_init(&job, &plain, "H100:64", megatron, 64, 2048);
	job.opts.pp = just(19);
	assert_refused(&job, ADP_EINVAL, "--pp 19: 16 layers and 64 GPUs",
	               "nearest legal: 18"); /* 16 + 2 */
	job.opts.tp = just(8);
	job.opts.pp = just(16);
	assert_refused(&job, ADP_EINVAL, "in groups of 8",
	               "at most 8 stages, nearest legal: 8"); /* 64 / 8 */
	job.opts.tp = job.opts.pp = (struct adp_pin){0, 0};
	job.opts.dp = just(3); /* 64 % 3 = 1 */
	assert_refused(&job, ADP_EINVAL, "a divisor of the batch, nearest legal: 2 and 4");
	job.opts.pp = just(4);
	job.opts.dp = just(32);
	assert_refused(&job, ADP_EINVAL, "at most 16 replicas", "nearest legal: 16"); /* 64 / 4 */
	job.opts.pp = job.opts.dp = (struct adp_pin){0, 0};
	job.opts.gpus = (struct adp_pin){65, 128};
	assert_refused(&job, ADP_EINVAL, "--gpus-used 65..128: more than the fleet has",
	               "nearest legal: 64");
	job_fini(&job);
}

/*
 * Case divisibility-13: 16 GPUs, a batch of 64 and micro-batches of 4 or 8 go by data-parallel
 * ranks, not by GPUs: 16 / mp ranks, and mb * 16 / mp must divide 64. mp 1: 8 * 16 = 128 is too
 * much, 4 * 16 = 64 does.
 */
static void micro_batches_are_counted_by_data_parallel_ranks(void **state)
{
	static const struct {
		uint32_t mp, least, most, largest; /* largest micro-batch of the sizes that is legal */
	} cases[] = {{1, 4, 8, 4}, {2, 4, 8, 8}, {4, 4, 8, 8}, {2, 8, 8, 8}, {4, 8, 8, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct adp_error err;
		struct job job;
		uint32_t largest = 0;

		job_init(&job, &plain, "H100:16", megatron, 64, 2048);
		job.opts.tp = just(cases[i].mp);
		job.opts.pp = job.opts.cp = just(1);
		job.opts.dp = just(16 / cases[i].mp);
		for (uint32_t mb = cases[i].least; mb <= cases[i].most; mb += 4) {
			struct adp_plan *plan;

			job.opts.micro_batch = just(mb);
			if (ask(&plan, &job, &err) == ADP_OK) {
				assert_int_equal(plan->pipes[0].n_micro * mb * plan->dp, 64);
				largest = mb;
			}
			adp_plan_destroy(plan);
		}
		assert_int_equal(largest, cases[i].largest);
		job_fini(&job);
	}
}

/*
 * Left free, no size is overlooked that a pin would find. 24 sequences on 8 GPUs: 8 replicas of 3
 * at once need neither a pipeline nor 3 micro-batches; powers of two alone give 8 replicas only
 * single sequences.
 */
static void no_divisor_of_the_batch_is_overlooked(void **state)
{
	static const uint32_t divisors[] = {1, 2, 3, 4, 6, 8, 12, 24};
	struct sizes sizes = plain;
	struct adp_plan *plan;
	struct job job;
	double free_s;

	(void)state;
	sizes.n_layers = 46;
	job_init(&job, &sizes, "H100:8", megatron, 24, 1024);
	plan = must_plan(&job);
	free_s = plan->step.step_s;
	assert_int_equal(plan->micro_batch_seqs, 3);
	adp_plan_destroy(plan);
	for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
		struct adp_error err;

		job.opts.micro_batch = just(divisors[i]);
		if (ask(&plan, &job, &err) == ADP_OK)
			assert_true(plan->step.step_s >= free_s);
		adp_plan_destroy(plan);
	}
	job_fini(&job);
}

/* Case rank-and-gang-08: 13 GPUs are no legal count for 64 sequences; a smaller world runs and the
 * rest is told idle. */
static void of_13_gpus_a_legal_number_is_used(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &plain, "H100x1:13", megatron, 64, 2048);
	job.opts.pp = just(1);
	plan = must_plan(&job);
	assert_int_equal(adp_plan_world(plan),
	                 8); /* largest of 1, 2, 4 .. that divides 64 and is below 13 */
	assert_int_equal(plan->gpus[0].n_used, 8);
	assert_int_equal(plan->gpus[0].n_total, 13);
	adp_plan_destroy(plan);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(twenty_eight_heads_run_on_1_2_or_4),
		cmocka_unit_test(two_kv_heads_are_repeated_by_one_release_only),
		cmocka_unit_test(the_vocabulary_is_padded_and_the_padding_counted),
		cmocka_unit_test(six_fails_on_the_kv_heads_and_not_on_the_vocabulary),
		cmocka_unit_test(every_pin_that_fails_is_named),
		cmocka_unit_test(eighty_layers_on_16_by_2_stages_all_run),
		cmocka_unit_test(layers_that_do_not_divide_get_an_uneven_layout),
		cmocka_unit_test(pipelines_and_replicas_are_bounded_by_layers_gpus_and_batch),
		cmocka_unit_test(micro_batches_are_counted_by_data_parallel_ranks),
		cmocka_unit_test(no_divisor_of_the_batch_is_overlooked),
		cmocka_unit_test(of_13_gpus_a_legal_number_is_used),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
