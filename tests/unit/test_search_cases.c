/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public cases on memory and on choice, asked of the whole planner. docs/cases.md says where each
 * case comes from and which test holds it.
 */
#include "search_fixture.h"

#include <ctype.h>
#include <math.h>

#include "base/file.h"

static const double gib = 1073741824.0;

static double most_memory_bytes(const struct adp_plan *plan)
{
	double most = 0.0;

	for (uint32_t s = 0; s < plan->pp; s++)
		most = fmax(most, (double)plan->stages[s].memory.peak_bytes);
	return most;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* 48 * (4 * 2048^2 + 3 * 2048 * 5120) + 2 * 32128 * 2048 + norms = 2.45e9 parameters */
static const struct sizes three_billion = {.hidden = 2048,
                                           .n_layers = 48,
                                           .n_heads = 32,
                                           .n_kv_heads = 32,
                                           .head_dim = 64,
                                           .ffn = 5120,
                                           .vocab = 32128};

/*
 * Case memory-estimate-03, with a decoder of T5-XL's sizes. Four V100-16 share 16 bytes a
 * parameter: 9.8 GB of 13.9 GiB each. A sequence of 2048 keeps about 34 * 2048 * 2048 bytes a
 * layer, times 48: 6.8 GB, too much; the blocks' inputs alone are 2 * 2048 * 2048 * 48 = 0.4 GB.
 */
static void recomputation_is_switched_on_where_activations_do_not_fit(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &three_billion, "V100-16x4:4", torch, 16, 2048);
	job.opts.zero_stage = 3;
	job.opts.dp = just(4);
	assert_refused(&job, ADP_EINFEASIBLE, "no BF16 tensor cores", "--precision fp16");

	job.train.precision = ADP_PRECISION_FP16;
	plan = must_plan(&job);
	assert_int_equal(plan->stages[0].recompute, ADP_RECOMPUTE_FULL);
	assert_int_equal(plan->train.precision, ADP_PRECISION_FP16);
	must_explain(plan, &job);
	assert_true(reasons_say(plan, "recomputation full -> none")); /* what memory costs is said */
	adp_plan_destroy(plan);

	job.opts.recompute = ADP_RECOMPUTE_NONE;
	assert_refused(&job, ADP_EINFEASIBLE, "does not fit in memory",
	               "--recompute full instead of none");
	job_fini(&job);
}

/*
 * Case memory-estimate-10. Mixtral 8x7B: 32 layers of 8 experts of 3 * 4096 * 14336 parameters
 * = 45.1e9 routed ones, divided by their own tensor degree and EP, by nothing else; the other 1.6e9
 * by TP, but for norms and router.
 */
static void routed_experts_are_divided_by_their_own_degrees_in_a_plan(void **state)
{
	static const struct sizes mixtral = {.hidden = 4096,
	                                     .n_layers = 32,
	                                     .n_heads = 32,
	                                     .n_kv_heads = 8,
	                                     .head_dim = 128,
	                                     .ffn = 14336,
	                                     .vocab = 32000,
	                                     .n_experts = 8,
	                                     .top_k = 2,
	                                     .expert_ffn = 14336};
	const double routed = 32.0 * 8.0 * 3.0 * 4096.0 * 14336.0;

	(void)state;
	for (uint32_t ep = 1; ep <= 4; ep *= 2) {
		struct adp_plan *plan;
		struct job job;
		double rest, got;

		job_init(&job, &mixtral, "H200:32", megatron, 64, 4096);
		job.opts.tp = just(4);
		job.opts.pp = just(1);
		job.opts.ep = just(ep);
		job.opts.zero_stage = 1; /* weights stay whole: 2 bytes each */
		plan = must_plan(&job);
		assert_int_equal(plan->ep, ep);
		assert_true(plan->etp == 1 || plan->etp == 4);
		rest = (double)plan->model.params - routed;
		got = (double)plan->stages[0].memory.weights / 2.0;
		/* replicated: 32 routers of 8 * 4096, 65 norms of 4096, 64 of 128 of a head: 0.1 % of the
		 * rest */
		assert_true(got >= routed / (plan->etp * ep) + rest / 4.0);
		assert_true(got <= routed / (plan->etp * ep) + rest / 4.0 * 1.01);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/*
 * Case memory-estimate-15. The micro-batch of 2 takes 36 of the 39.6 GiB of an A100-40: it would
 * run, and fall over later. The engine's margin is 12 %: it is no choice, and a plan that leaves it
 * is offered.
 */
static void a_plan_with_less_than_the_margin_is_not_chosen(void **state)
{
	struct adp_plan *plan;
	struct job job;
	double capacity, needed, usable;
	char *at;

	(void)state;
	job_init(&job, &three_billion, "A100-40x4:4", torch, 16, 2048);
	plan = must_plan(&job);
	capacity = (double)plan->gpus[0].memory_bytes;
	assert_true(capacity - most_memory_bytes(plan) >= 0.12 * capacity);
	adp_plan_destroy(plan);

	job.opts.dp = just(4);
	job.opts.zero_stage = 2;
	job.opts.recompute = ADP_RECOMPUTE_NONE;
	job.opts.micro_batch = just(2);
	{
		struct adp_error err;

		assert_int_equal(ask(&plan, &job, &err), ADP_EINFEASIBLE);
		at = strstr(err.text, "(");
		assert_non_null(at);
		assert_int_equal(sscanf(at, "(%lf GiB usable each, %lf GiB needed)", &usable, &needed), 2);
		assert_true(needed > usable);
		assert_true(needed * gib < capacity); /* it is the margin that refuses it */
		assert_says(err, "--micro-batch 1 instead of 2");
	}
	job.opts.micro_batch = just(1);
	plan = must_plan(&job);
	assert_true(capacity - most_memory_bytes(plan) >= 0.12 * capacity);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* Case memory-estimate-16: each change that is offered is enough by itself, with all else as the
 * user wants it. */
static void each_change_offered_fits_with_all_other_values_kept(void **state)
{
	struct adp_plan *plan;
	struct job job, changed;

	(void)state;
	job_init(&job, &three_billion, "A100-40x4:4", torch, 16, 2048);
	job.opts.dp = just(4);
	job.opts.zero_stage = 2;
	job.opts.recompute = ADP_RECOMPUTE_NONE;
	job.opts.micro_batch = just(2);
	assert_refused(&job, ADP_EINFEASIBLE,
	               "--recompute full instead of none; --zero 3 instead of 2; "
	               "--micro-batch 1 instead of 2");
	changed = job;
	changed.opts.recompute = ADP_RECOMPUTE_FULL;
	adp_plan_destroy(must_plan(&changed));
	changed = job;
	changed.opts.zero_stage = 3;
	plan = must_plan(&changed);
	assert_int_equal(plan->micro_batch_seqs, 2);
	assert_int_equal(plan->dp, 4);
	assert_int_equal(plan->stages[0].recompute, ADP_RECOMPUTE_NONE);
	adp_plan_destroy(plan);
	changed = job;
	changed.opts.micro_batch = just(1);
	adp_plan_destroy(must_plan(&changed));
	job_fini(&job);
}

/*
 * Case memory-estimate-18: an expert model on 3 stages at tensor 8. Each stage has its own memory,
 * with the embedding on the first and norm, head and loss on the last, and the screen tells how far
 * they are apart.
 */
static void memory_is_counted_by_stage_and_its_spread_shown(void **state)
{
	static const struct sizes experts = {.hidden = 4096,
	                                     .n_layers = 36,
	                                     .n_heads = 32,
	                                     .n_kv_heads = 8,
	                                     .head_dim = 128,
	                                     .ffn = 12288,
	                                     .vocab = 128000,
	                                     .n_experts = 64,
	                                     .top_k = 8,
	                                     .expert_ffn = 1536};
	struct adp_error err = {0};
	struct adp_plan *plan;
	struct job job;
	double least = INFINITY, most = 0.0, shown;
	char *text = NULL, *at;
	size_t len;
	FILE *to;

	(void)state;
	job_init(&job, &experts, "H100:24", megatron, 64, 4096);
	job.opts.tp = just(8);
	job.opts.pp = just(3);
	plan = must_plan(&job);
	assert_true(plan->stages[0].embedding && !plan->stages[0].head);
	assert_true(plan->stages[2].head && !plan->stages[2].embedding);
	assert_true(plan->stages[2].memory.logits > 0);
	assert_int_equal(plan->stages[0].memory.logits, 0);
	for (uint32_t s = 0; s < 3; s++) {
		least = fmin(least, (double)plan->stages[s].memory.peak_bytes);
		most = fmax(most, (double)plan->stages[s].memory.peak_bytes);
		assert_true(plan->stages[s].memory.peak_bytes <= plan->stages[s].usable_bytes);
	}
	assert_true(most > least);

	to = open_memstream(&text, &len);
	assert_non_null(to);
	assert_int_equal(adp_plan_print(to, plan, 100, &err), ADP_OK);
	fclose(to);
	at = strstr(text, "fullest to emptiest stage ");
	if (!at)
		at = strstr(text, "fullest to emptiest");
	assert_non_null(at);
	at += strcspn(at, "0123456789");
	shown = strtod(at, NULL);
	assert_true(fabs(shown - most / least) < 0.006); /* three digits */
	free(text);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* ---- choice -----------------------------------------------------------------------------------
 */

/*
 * Case choice-01: Llama-2-70B on four A6000. 18 bytes * 69.0e9 over 0.88 * 48 GiB are 27.4 GPUs: at
 * least 28, and the number named is the first in whole nodes that does.
 */
static void seventy_billion_on_four_a6000_names_the_gpus_that_would_do(void **state)
{
	static const struct sizes llama2_70b = {.hidden = 8192,
	                                        .n_layers = 80,
	                                        .n_heads = 64,
	                                        .n_kv_heads = 8,
	                                        .head_dim = 128,
	                                        .ffn = 28672,
	                                        .vocab = 32000};
	static const char before[] = "What would fit: ";
	struct adp_error err;
	struct adp_plan *plan;
	struct job job;
	char fleet[64], *at;
	unsigned n = 0;

	(void)state;
	job_init(&job, &llama2_70b, "A6000x4:4", megatron, 64, 2048);
	assert_int_equal(adp_model_params(job.model), 68976648192);
	assert_int_equal(ask(&plan, &job, &err), ADP_EINFEASIBLE);
	assert_says(err, "does not fit in memory");
	assert_says(err, "4 A6000 (42.2 GiB usable each, "); /* 0.88 * 48 */
	at = strstr(err.text, before);
	assert_non_null(at);
	assert_int_equal(sscanf(at + strlen(before), "%u A6000 instead of 4 A6000", &n), 1);
	assert_in_range(n, 28, 56);
	job_fini(&job);

	snprintf(fleet, sizeof fleet, "A6000x4:%u", n);
	job_init(&job, &llama2_70b, fleet, megatron, 64, 2048);
	adp_plan_destroy(must_plan(&job));
	job_fini(&job);
	snprintf(fleet, sizeof fleet, "A6000x4:%u", n - 4);
	job_init(&job, &llama2_70b, fleet, megatron, 64, 2048);
	assert_refused(&job, ADP_EINFEASIBLE, "does not fit in memory");
	job_fini(&job);
}

/*
 * Case choice-03: 48 layers of 4096, 9.9e9 parameters, in one NVLink node. Eight stages lose 7 of m
 * + 7 slots to the bubble: little at 256 micro-batches, 7 of 15 at 8. Tensor parallelism pays the
 * same share of traffic in both.
 */
static void a_pipeline_inside_the_node_wins_with_many_micro_batches_and_loses_with_few(void **state)
{
	static const struct sizes ten_billion = {.hidden = 4096,
	                                         .n_layers = 48,
	                                         .n_heads = 32,
	                                         .n_kv_heads = 32,
	                                         .head_dim = 128,
	                                         .ffn = 10944,
	                                         .vocab = 50304};
	const struct adp_engine *const engines[] = {torch, megatron};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct job tensor, pipeline;
		struct adp_plan *plan;

		job_init(&tensor, &ten_billion, "A100-80:8", engines[i], 512, 2048);
		tensor.opts.tp = just(8);
		tensor.opts.pp = just(1);
		tensor.opts.cp = just(1);
		pipeline = tensor;
		pipeline.opts.tp = just(1);
		pipeline.opts.pp = just(8);
		assert_true(must_step_s(&pipeline) < must_step_s(&tensor));

		/* left to choose one stage of eight, or eight stages, or between: not by a rule */
		tensor.opts.dp = just(1);
		tensor.opts.tp = tensor.opts.pp = (struct adp_pin){1, 8};
		plan = must_plan(&tensor);
		assert_true(plan->pp > 1);
		adp_plan_destroy(plan);

		if (engines[i] == torch) { /* no virtual stages that would shrink the bubble */
			tensor.opts.tp = just(8);
			tensor.opts.pp = just(1);
			tensor.train.global_batch_seqs = pipeline.train.global_batch_seqs = 8;
			assert_true(must_step_s(&pipeline) > must_step_s(&tensor));
		}
		job_fini(&tensor);
	}
}

/* Case choice-05: 1.5e9 parameters (one GPU must hold them) in plain data parallelism over PCIe
 * without peer-to-peer. */
static void two_cards_without_peer_to_peer_are_slower_than_one(void **state)
{
	static const struct sizes small = {.hidden = 2048,
	                                   .n_layers = 28,
	                                   .n_heads = 16,
	                                   .n_kv_heads = 8,
	                                   .head_dim = 128,
	                                   .ffn = 6144,
	                                   .vocab = 32000,
	                                   .tied = true};
	double step_s[5] = {0};
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &small, "RTX4090x4:4", torch, 4, 512);
	job.train.optimizer = ADP_OPTIMIZER_SGD; /* 10 bytes a parameter: 14.7 of 21.1 GiB */
	job.opts.tp = job.opts.pp = just(1);
	job.opts.zero_stage = 0;
	for (uint32_t n = 1; n <= 4; n *= 2) {
		job.opts.dp = just(n);
		step_s[n] = must_step_s(&job);
	}
	assert_true(step_s[2] > step_s[1]);
	assert_true(step_s[4] > step_s[1]);

	/* free to choose the count, it stays on one */
	job.opts.dp = (struct adp_pin){1, 4};
	plan = must_plan(&job);
	assert_int_equal(plan->dp, 1);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* Case choice-06: tensor 8 and 4 replicas on 4 nodes of 8, at a micro-batch of 2: 4 * 2 * n = the
 * 64 asked for. */
static void the_global_batch_is_the_one_asked_for_and_shown(void **state)
{
	static const struct sizes llama_8b = {.hidden = 4096,
	                                      .n_layers = 32,
	                                      .n_heads = 32,
	                                      .n_kv_heads = 8,
	                                      .head_dim = 128,
	                                      .ffn = 14336,
	                                      .vocab = 128256};
	const struct adp_engine *const engines[] = {torch, megatron};
	struct adp_error err = {0};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct adp_plan *plan;
		struct job job;
		uint64_t seqs = 0;
		char *text = NULL;
		size_t len;
		FILE *to;

		job_init(&job, &llama_8b, "H100:32", engines[i], 64, 4096);
		job.opts.tp = just(8);
		job.opts.dp = just(4);
		job.opts.micro_batch = just(2);
		plan = must_plan(&job);
		assert_int_equal(plan->tp, 8);
		assert_int_equal(plan->dp, 4);
		assert_int_equal(adp_plan_world(plan), 32);
		for (uint32_t p = 0; p < plan->n_pipes; p++)
			seqs += (uint64_t)plan->pipes[p].n_replicas * plan->pipes[p].n_micro *
			        plan->micro_batch_seqs;
		assert_int_equal(seqs, 64);
		to = open_memstream(&text, &len);
		assert_non_null(to);
		assert_int_equal(adp_plan_print(to, plan, 100, &err), ADP_OK);
		fclose(to);
		assert_non_null(strstr(text, "global batch 64 x 4096 tokens"));
		free(text);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Case choice-08: 384 experts in the fleet of 64. Degrees of experts grow with the fleet; what does
 * not fit says so. */
static void expert_parallelism_reaches_the_whole_fleet(void **state)
{
	struct sizes sizes = {.hidden = 7168,
	                      .n_layers = 12,
	                      .n_heads = 64,
	                      .n_kv_heads = 8,
	                      .head_dim = 128,
	                      .ffn = 18432,
	                      .vocab = 163840,
	                      .n_experts = 384,
	                      .top_k = 8,
	                      .expert_ffn = 2048};
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &sizes, "H200:64", megatron, 512, 4096);
	for (uint32_t ep = 32; ep <= 64; ep *= 2) {
		job.opts.ep = just(ep);
		plan = must_plan(&job);
		assert_int_equal(plan->ep, ep);
		adp_plan_destroy(plan);
	}
	job.opts.ep = (struct adp_pin){32, 64};
	job.opts.cp = just(1);
	plan = must_plan(&job);
	assert_true(plan->ep >= 32);
	adp_plan_destroy(plan);
	job_fini(&job);

	/* 61 layers: 61 * 384 * 3 * 7168 * 2048 = 1.03e12 parameters, 18 bytes each: 18.6e12 of 64 *
	 * 0.88 * 141 GiB = 8.5e12 */
	sizes.n_layers = 61;
	job_init(&job, &sizes, "H200:64", megatron, 512, 4096);
	job.opts.ep = just(32);
	job.opts.cp = job.opts.tp = just(1);
	assert_refused(&job, ADP_EINFEASIBLE, "does not fit in memory", "64 H200");
	job_fini(&job);
}

/* ---- the list ---------------------------------------------------------------------------------
 */

/* A file of the tree as text; free with adp_free. NULL where there is none. */
static char *text_of(const char *format, const char *name, int len)
{
	struct adp_error err = {0};
	char path[512], in_tree[256], *text;
	size_t size;

	snprintf(in_tree, sizeof in_tree, format, len, name);
	snprintf(path, sizeof path, "%s/%s", ADP_SOURCE_DIR, in_tree);
	return adp_file_read(&text, &size, path, 1 << 24, &err) == ADP_OK ? text : NULL;
}

/* Each `test_...` of docs/cases.md is a file, and the words in back quotes after it are its tests.
 */
static void the_list_of_cases_names_tests_that_exist(void **state)
{
	char *list = text_of("docs/%.*s", "cases.md", 8), *source = NULL, *at, *end;
	unsigned n_tests = 0;

	(void)state;
	assert_non_null(list);
	at = strstr(list, "\n## "); /* the text before it names no test of a case */
	assert_non_null(at);
	for (; (at = strchr(at, '`')) && (end = strchr(at + 1, '`')); at = end + 1) {
		int len = (int)(end - at - 1);
		char name[128], *definition;

		at++;
		if (end[1] == ':') {
			adp_free(source);
			source = strncmp(at, "python/", 7) == 0 ? text_of("tests/%.*s.py", at, len)
			                                        : text_of("tests/unit/%.*s.c", at, len);
			if (!source)
				fail_msg("no test file %.*s", len, at);
			continue;
		}
		if (!memchr(at, '_', (size_t)len) || !source || isupper((unsigned char)*at))
			continue;
		snprintf(name, sizeof name, " %.*s(", len, at);
		definition = strstr(source, name);
		if (strcmp(name, " q_lora_rank(") != 0 && !definition) /* a key of a config */
			fail_msg("no test%s..) in the file named before it", name);
		n_tests++;
	}
	assert_true(n_tests > 40);
	adp_free(source);
	adp_free(list);
}

/* Every case of the reference collection stands in the list, where the collection is at hand. */
static void every_case_of_the_collection_is_in_the_list(void **state)
{
	char *list = text_of("docs/%.*s", "cases.md", 8);
	char *cases = text_of("../shared/data/cases/%.*s", "cases.jsonl", 11), *at;
	unsigned n = 0;

	(void)state;
	assert_non_null(list);
	if (!cases) {
		print_message("skipped: the collection of cases is not here\n");
		adp_free(list);
		return;
	}
	for (at = cases; (at = strstr(at, "\"id\": \"")); n++) {
		char id[64];

		at += 7;
		snprintf(id, sizeof id, "| %.*s:", (int)strcspn(at, "\""), at);
		if (!strstr(list, id))
			fail_msg("docs/cases.md lacks %s", id);
	}
	assert_int_equal(n, 54);
	adp_free(cases);
	adp_free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(recomputation_is_switched_on_where_activations_do_not_fit),
		cmocka_unit_test(routed_experts_are_divided_by_their_own_degrees_in_a_plan),
		cmocka_unit_test(a_plan_with_less_than_the_margin_is_not_chosen),
		cmocka_unit_test(each_change_offered_fits_with_all_other_values_kept),
		cmocka_unit_test(memory_is_counted_by_stage_and_its_spread_shown),
		cmocka_unit_test(seventy_billion_on_four_a6000_names_the_gpus_that_would_do),
		cmocka_unit_test(
			a_pipeline_inside_the_node_wins_with_many_micro_batches_and_loses_with_few),
		cmocka_unit_test(two_cards_without_peer_to_peer_are_slower_than_one),
		cmocka_unit_test(the_global_batch_is_the_one_asked_for_and_shown),
		cmocka_unit_test(expert_parallelism_reaches_the_whole_fleet),
		cmocka_unit_test(the_list_of_cases_names_tests_that_exist),
		cmocka_unit_test(every_case_of_the_collection_is_in_the_list),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
