/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_fixture.h"

/* Random models, runs and stages: in which direction memory may move when one thing changes. */

static struct adp_engine *megatron, *torch;

static int load_engines(void **state)
{
	(void)state;
	megatron = fixture_engine("megatron");
	torch = fixture_engine("torch");
	return 0;
}

static int free_engines(void **state)
{
	(void)state;
	adp_engine_destroy(megatron);
	adp_engine_destroy(torch);
	return 0;
}

static struct fixture fixture; /* large: one is enough, each test fills it anew */

static uint64_t random_state;

static uint32_t pick(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static struct fixture_run random_case(void)
{
	const uint32_t kv = 1u << pick(4), head_dim = 32u << pick(3);
	const uint32_t heads = kv << pick(4);
	const bool moe = pick(2);
	const struct fixture_spec spec = {.layers = 5 + pick(60),
	                                  .heads = heads,
	                                  .kv_heads = kv,
	                                  .head_dim = head_dim,
	                                  .hidden = 256u << pick(6),
	                                  .ffn = 256 * (1 + pick(100)),
	                                  .vocab = 1000 + pick(150000),
	                                  .gated = pick(2),
	                                  .tied = pick(2),
	                                  .biases = pick(2),
	                                  .experts = moe ? 1u << (1 + pick(7)) : 0,
	                                  .top_k = 1 + pick(2),
	                                  .dense_layers = pick(4),
	                                  .expert_ffn = 64 * (1 + pick(64)),
	                                  .shared_ffn = 256 * pick(8)};
	struct fixture_run run = fixture_run();

	fixture_init(&fixture, &spec);
	run.train.seq_tokens = 256u << pick(7);
	run.train.precision = (enum adp_precision)pick(ADP_N_PRECISIONS);
	run.shape.tp = 1u << pick(4);
	run.shape.cp = 1u << pick(3);
	run.shape.ep = moe ? 1u << pick(3) : 1;
	run.shape.sequence_parallel = pick(2);
	run.shape.micro_batch_seqs = 1 + pick(8);
	run.opts.zero_stage = pick(4);
	run.opts.shard_gpus = 1u << pick(8);
	run.opts.expert_shard_gpus = 1u << pick(6);
	run.opts.in_flight = 1 + pick(16);
	run.opts.recompute = (enum adp_recompute)pick(ADP_N_RECOMPUTE);
	run.opts.flash = pick(2);
	run.opts.tied_head_here = pick(2);
	/* A run of items that begins anywhere and holds five blocks at least: deeper than the live
	 * window. */
	run.first_item = pick(spec.layers - 4);
	run.n_items = 6 + pick(fixture.model.n_items - run.first_item - 6);
	return run;
}

static void assert_not_more(const struct adp_engine *engine, const struct fixture_run *less,
                            const struct fixture_run *more, const char *what)
{
	const struct adp_memory a = fixture_memory(engine, &fixture, less),
							b = fixture_memory(engine, &fixture, more);

	/* A few bytes of rounding up, one per kind. */
	if (a.peak_bytes > b.peak_bytes + 16)
		fail_msg("%s: %llu is more than %llu", what, (unsigned long long)a.peak_bytes,
		         (unsigned long long)b.peak_bytes);
}

static void more_work_never_needs_less_memory(void **state)
{
	(void)state;
	random_state = 20261130;
	for (int i = 0; i < 3000; i++) {
		const struct adp_engine *engine = i % 2 ? megatron : torch;
		const struct fixture_run base = random_case();
		struct fixture_run other = base;

		if (base.first_item + base.n_items < fixture.model.n_items) {
			other.n_items++;
			if (other.n_items <
			    fixture.model.n_items) /* the whole model is no pipeline any more: fewer buffers */
				assert_not_more(engine, &base, &other, "one item more");
		}
		other = base;
		other.shape.micro_batch_seqs += 1 + pick(4);
		assert_not_more(engine, &base, &other, "larger micro-batch");
		other = base;
		other.opts.in_flight += 0.5 + pick(4);
		assert_not_more(engine, &base, &other, "more micro-batches in flight");
		other = base;
		other.train.seq_tokens *= 2;
		assert_not_more(engine, &base, &other, "longer sequence");
		other = base;
		other.train.expert_load_factor = 1.0 + pick(4);
		assert_not_more(engine, &base, &other, "less balanced experts");
	}
}

static void sharding_and_recomputation_never_need_more_memory(void **state)
{
	(void)state;
	random_state = 42;
	for (int i = 0; i < 3000; i++) {
		const struct adp_engine *engine = i % 2 ? megatron : torch;
		const struct fixture_run base = random_case();
		struct fixture_run other = base;

		other.shape.tp *= 2;
		assert_not_more(engine, &other, &base, "twice the tensor parallelism");
		other = base;
		other.shape.ep *= 2;
		assert_not_more(engine, &other, &base, "twice the expert parallelism");
		other = base;
		other.opts.shard_gpus *= 2;
		other.opts.expert_shard_gpus *= 2;
		if (base.opts.shard_gpus > 1 && base.opts.expert_shard_gpus > 1)
			assert_not_more(engine, &other, &base, "twice the GPUs to shard over");
		other = base;
		other.opts.recompute = ADP_RECOMPUTE_FULL;
		assert_not_more(engine, &other, &base, "full recomputation");
		other = base;
		if (base.opts.recompute == ADP_RECOMPUTE_NONE) {
			other.opts.recompute = ADP_RECOMPUTE_SELECTIVE;
			assert_not_more(engine, &other, &base, "selective recomputation");
		}
	}
}

/* Blocks of one kind, eight at least, four shards: two live blocks are less than what sharding
 * saves. */
static void a_higher_zero_stage_never_needs_more_memory_on_a_deep_stage(void **state)
{
	(void)state;
	random_state = 7;
	for (int i = 0; i < 1000; i++) {
		const struct adp_engine *engine = i % 2 ? megatron : torch;
		struct fixture_run low = random_case();
		low.first_item = 1 + 3; /* past the dense blocks of a routed model */
		low.n_items = 8;
		if (low.first_item + low.n_items > fixture.model.n_layers)
			continue;
		low.opts.shard_gpus = 4u << pick(6);
		low.opts.expert_shard_gpus = 4u << pick(3);
		low.opts.zero_stage = 0;
		for (uint32_t zero = 1; zero <= 3; zero++) {
			if (!(engine->zero_mask & 1u << zero))
				continue;
			struct fixture_run high = low;
			high.opts.zero_stage = zero;
			assert_not_more(engine, &high, &low, "higher ZeRO stage");
			low = high;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_work_never_needs_less_memory),
		cmocka_unit_test(sharding_and_recomputation_never_need_more_memory),
		cmocka_unit_test(a_higher_zero_stage_never_needs_more_memory_on_a_deep_stage),
	};

	return cmocka_run_group_tests_name("cost_memory_monotone", tests, load_engines, free_engines);
}
