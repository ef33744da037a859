/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_fixture.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"

/*
 * Published runs with measured memory, read from outside the project where they are there. The
 * constants under test are the engine table's own; what differs is stated with the source.
 */
static const char RUNS[] = ADP_SOURCE_DIR "/../shared/data/runs/runs_public.csv";

static struct fixture fixture;

struct runs {
	struct adp_arena arena;
	struct adp_csv csv;
};

static bool open_runs(struct runs *runs)
{
	struct adp_error err = {0};
	char *text;
	size_t len;

	if (adp_file_read(&text, &len, RUNS, (size_t)64 << 20, &err)) {
		print_message("skipped: no published runs beside the source (%s)\n", err.text);
		return false;
	}
	if (adp_csv_read(&runs->csv, &runs->arena, text, len, "runs_public.csv", &err))
		fail_msg("%s", err.text);
	adp_free(text);
	return true;
}

static const char *text_of(const struct runs *runs, uint32_t row, const char *column)
{
	uint32_t col;

	assert_int_equal(adp_csv_column(&col, &runs->csv, column, NULL), 0);
	return adp_csv_cell(&runs->csv, row, col);
}

static uint32_t number_of(const struct runs *runs, uint32_t row, const char *column)
{
	return (uint32_t)strtoul(text_of(runs, row, column), NULL, 10);
}

struct source {
	const char *key;
	bool head_is_layers; /* the pipeline split weighs the head as so many layers as it has matrix
	                        width */
	bool with_context;   /* measured from outside the process: CUDA context and NCCL are in it */
	bool pipeline_rows, other_rows;
};

/* The fullest rank. */
static double predict(const struct runs *runs, uint32_t row, const struct adp_engine *engine,
                      const struct source *source)
{
	const uint32_t layers = number_of(runs, row, "layers"), heads = number_of(runs, row, "heads");
	const uint32_t kv = number_of(runs, row, "kv_heads"), pp = number_of(runs, row, "pp");
	const uint64_t hidden = number_of(runs, row, "hidden");
	const uint32_t dp = number_of(runs, row, "dp"), mbs = number_of(runs, row, "micro_batch");
	const uint32_t m = number_of(runs, row, "global_batch") / (dp * mbs);
	const bool gated = number_of(runs, row, "gated") != 0;

	fixture_init(&fixture, &(struct fixture_spec){.layers = layers,
	                                              .heads = heads,
	                                              .kv_heads = kv ? kv : heads,
	                                              .head_dim = (uint32_t)(hidden / heads),
	                                              .hidden = hidden,
	                                              .ffn = number_of(runs, row, "ffn_hidden"),
	                                              .vocab = number_of(runs, row, "vocab"),
	                                              .gated = gated,
	                                              .biases = !gated,
	                                              .tied = !gated});
	struct fixture_run run = fixture_run();
	run.train.seq_tokens = number_of(runs, row, "seq_len");
	run.train.precision = strcmp(text_of(runs, row, "dtype"), "fp16") == 0 ? ADP_PRECISION_FP16
	                                                                       : ADP_PRECISION_BF16;
	run.shape.tp = number_of(runs, row, "tp");
	run.shape.micro_batch_seqs = mbs;
	run.shape.sequence_parallel = strcmp(text_of(runs, row, "sp"), "1") == 0;
	run.opts.zero_stage = number_of(runs, row, "zero_stage");
	run.opts.shard_gpus = dp;
	run.opts.recompute = strcmp(text_of(runs, row, "recompute"), "full") == 0 ? ADP_RECOMPUTE_FULL
	                                                                          : ADP_RECOMPUTE_NONE;
	run.opts.flash = strcmp(text_of(runs, row, "flash_attn"), "0") != 0;
	run.opts.n_comm_groups = (dp > 1 ? 1u : 0u) + (run.shape.tp > 1 ? 1u : 0u) + (pp > 1 ? 1u : 0u);
	run.opts.tied_head_here = pp > 1;

	double worst = 0.0;
	const double width = 4.0 * (double)hidden + 3.0 * number_of(runs, row, "ffn_hidden");
	const double head_layers = source->head_is_layers ? number_of(runs, row, "vocab") / width : 0.0;
	const double per_stage = (layers + head_layers) / pp;
	uint32_t first = 0;
	for (uint32_t i = 0; i < pp; i++) {
		const uint32_t last = i + 1 == pp ? layers
		                                  : (uint32_t)fmin(layers, ceil(per_stage * (i + 1)));
		run.first_item = i == 0 ? 0 : 1 + first;
		run.n_items = (i + 1 == pp ? layers + 4 : 1 + last) - run.first_item;
		run.opts.in_flight = pp - i < m ? pp - i : m;
		first = last;
		if (run.n_items == 0)
			continue;
		const struct adp_memory memory = fixture_memory(engine, &fixture, &run);
		const uint64_t unseen = source->with_context ? 0 : memory.context;
		worst = fmax(worst, (double)(memory.steady_peak_bytes - unseen));
	}
	return worst;
}

struct score {
	double sum_abs, sum_signed, lowest, highest, largest_bytes, sorted[4096];
	uint32_t n, low, very_low;
};

static void add_score(struct score *score, double relative)
{
	assert_true(score->n < sizeof score->sorted / sizeof score->sorted[0]);
	score->sum_abs += fabs(relative);
	score->sum_signed += relative;
	score->lowest = fmin(score->lowest, relative);
	score->highest = fmax(score->highest, relative);
	score->low += relative < -0.12;
	score->very_low += relative < -0.25;
	score->sorted[score->n++] = fabs(relative);
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print_score(struct score *score, const char *what)
{
	qsort(score->sorted, score->n, sizeof score->sorted[0], by_size);
	print_message(
		"%s: %u runs, mean error %.1f %%, median %.1f %%, p90 %.1f %%, signed %+.1f %%, more than "
		"12 %% low %.1f %%, "
		"more than 25 %% low %.1f %%\n",
		what, score->n, 100 * score->sum_abs / score->n, 100 * score->sorted[score->n / 2],
		100 * score->sorted[(uint32_t)(0.9 * score->n)], 100 * score->sum_signed / score->n,
		100.0 * score->low / score->n, 100.0 * score->very_low / score->n);
}

static void score_source(struct score *score, const struct runs *runs, const struct source *source,
                         const struct adp_engine *engine)
{
	memset(score, 0, sizeof *score);
	score->lowest = HUGE_VAL;
	score->highest = -HUGE_VAL;
	for (uint32_t row = 0; row < runs->csv.n_rows; row++) {
		if (strcmp(text_of(runs, row, "source_key"), source->key) != 0)
			continue;
		const double gib = strtod(text_of(runs, row, "mem_gib_per_gpu"), NULL);
		if (!(gib > 0.0) ||
		    !(number_of(runs, row, "pp") > 1 ? source->pipeline_rows : source->other_rows))
			continue;
		const double bytes = predict(runs, row, engine, source);
		score->largest_bytes = fmax(score->largest_bytes, bytes);
		add_score(score, bytes / (gib * 1024 * 1024 * 1024) - 1.0);
	}
	print_score(score, source->key);
}

static struct score score;

/*
 * nanotron: PyTorch kernels, memory as PyTorch's allocator counts it, and tensor parallelism that,
 * as Megatron's, gathers again in the backward pass.
 */
static void memory_of_nanotron_runs_is_within_15_percent_on_average(void **state)
{
	const struct source nanotron = {
		.key = "nanotron", .head_is_layers = true, .pipeline_rows = true, .other_rows = true};
	struct runs runs = {.csv = {0}};

	(void)state;
	if (!open_runs(&runs))
		skip();
	struct adp_engine *torch = fixture_engine("torch");
	struct adp_engine engine = *torch;
	engine.sp_keeps_gathered = false;
	score_source(&score, &runs, &nanotron, &engine);
	assert_int_equal(score.n, 1758);
	assert_true(score.sum_abs / score.n <= 0.15);
	assert_true(score.sum_signed / score.n >= -0.05);
	adp_engine_destroy(torch);
	adp_arena_fini(&runs.arena);
}

/*
 * nanotron on H100 of 80 GiB: 1529 runs failed, for memory or for another reason (a tenth of them
 * is small), 1758 ran. The answer "fits" at the table's reserve must separate them: what matters in
 * the end.
 */
static void failed_runs_are_refused_and_those_that_ran_are_not(void **state)
{
	const struct source nanotron = {
		.key = "nanotron", .head_is_layers = true, .with_context = true};
	const struct adp_gpu_type h100 = {.memory_bytes = (uint64_t)80 << 30};
	uint32_t failed = 0, caught = 0, ran = 0, refused = 0;
	struct runs runs = {.csv = {0}};

	(void)state;
	if (!open_runs(&runs))
		skip();
	struct adp_engine *torch = fixture_engine("torch");
	struct adp_engine engine = *torch;
	engine.sp_keeps_gathered = false;
	for (uint32_t row = 0; row < runs.csv.n_rows; row++) {
		if (strcmp(text_of(&runs, row, "source_key"), nanotron.key) != 0)
			continue;
		const bool oom = strcmp(text_of(&runs, row, "oom"), "1") == 0;
		const bool fits = predict(&runs, row, &engine, &nanotron) <=
		                  (double)adp_usable_bytes(&engine, &h100);
		*(oom ? &failed : &ran) += 1;
		if (!fits)
			*(oom ? &caught : &refused) += 1;
	}
	print_message("nanotron: of %u failed runs %.1f %% are refused, of %u that ran %.1f %%\n",
	              failed, 100.0 * caught / failed, ran, 100.0 * refused / ran);
	assert_int_equal(failed + ran, 3287);
	assert_true(caught >= 0.85 * failed);
	assert_true(refused <= 0.05 * ran);
	adp_engine_destroy(torch);
	adp_arena_fini(&runs.arena);
}

/* OneFlow on V100 as nvidia-smi shows it, full recomputation. No row is lower by more than the
 * reserve of 12 %. */
static void memory_of_dlperf_runs_without_a_pipeline_is_never_low(void **state)
{
	const struct source dlperf = {.key = "dlperf_v100", .with_context = true, .other_rows = true};
	struct runs runs = {.csv = {0}};

	(void)state;
	if (!open_runs(&runs))
		skip();
	struct adp_engine *engine = fixture_engine("megatron");
	score_source(&score, &runs, &dlperf, engine);
	assert_int_equal(score.n, 14);
	assert_true(score.lowest >= -0.12);
	assert_true(score.sum_abs / score.n <= 0.15);
	adp_engine_destroy(engine);
	adp_arena_fini(&runs.arena);
}

/*
 * Megatron with DeepSpeed in 2021, pipeline of 16, GPT-2 52B on V100-32GB: one configuration ran at
 * 26 to 32 GB as nvidia-smi shows it. It ran, so it must be said to fit; and not with more room
 * than the reserve.
 */
static void a_52b_pipeline_that_ran_on_32_gib_fits_with_little_room(void **state)
{
	const struct source bigscience = {
		.key = "bigscience_v100", .with_context = true, .pipeline_rows = true};
	const struct adp_gpu_type v100 = {.memory_bytes = (uint64_t)32 << 30};
	struct runs runs = {.csv = {0}};

	(void)state;
	if (!open_runs(&runs))
		skip();
	struct adp_engine *engine = fixture_engine("megatron");
	score_source(&score, &runs, &bigscience, engine);
	assert_int_equal(score.n, 5);
	assert_true(score.largest_bytes <= (double)adp_usable_bytes(engine, &v100));
	assert_true(score.highest >= -0.12); /* against the lowest figure */
	adp_engine_destroy(engine);
	adp_arena_fini(&runs.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_nanotron_runs_is_within_15_percent_on_average),
		cmocka_unit_test(failed_runs_are_refused_and_those_that_ran_are_not),
		cmocka_unit_test(memory_of_dlperf_runs_without_a_pipeline_is_never_low),
		cmocka_unit_test(a_52b_pipeline_that_ran_on_32_gib_fits_with_little_room),
	};

	return cmocka_run_group_tests_name("cost_memory_runs", tests, NULL, NULL);
}
