/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cost_fixture.h"
#include "cost_models.h"

static struct adp_tables *tables;

static int load(void **state)
{
	struct adp_error err = {0};

	(void)state;
	return adp_tables_load(&tables, NULL, &err);
}

static int unload(void **state)
{
	(void)state;
	adp_tables_destroy(tables);
	return 0;
}

/* One case, changed piece by piece. */
struct question {
	struct hand_model h;
	struct adp_engine engine;
	struct adp_train train;
	struct adp_shape shape;
	struct adp_gpu_type gpu;
	struct adp_path tp, cp, ep;
	enum adp_item_kind kind;
	double speed_frac;
};

static void ask_70b_on_h100(struct question *q, uint32_t tp)
{
	*q = (struct question){
		.engine = hand_engine(),
		.train = {.global_batch_seqs = 1024,
	              .seq_tokens = 4096,
	              .precision = ADP_PRECISION_BF16,
	              .expert_load_factor = 1},
		.shape = {.tp = tp,
	              .cp = 1,
	              .ep = 1,
	              .etp = 1,
	              .sequence_parallel = tp > 1,
	              .micro_batch_seqs = 1,
	              .precision = ADP_PRECISION_BF16},
		.gpu = h100(),
		.kind = ADP_ITEM_BLOCK,
		.speed_frac = 1,
	};
	llama2_70b(&q->h);
}

static void link_up(struct question *q)
{
	q->h.model.blocks = &q->h.block;
	finish_model(&q->h);
	if (!q->tp.n_levels)
		q->tp = path_of(&q->gpu, q->shape.tp, ADP_LINK_NVLINK, q->gpu.nvlink_bytes_per_s);
	if (!q->cp.n_levels)
		q->cp = path_of(&q->gpu, q->shape.cp, ADP_LINK_NVLINK, q->gpu.nvlink_bytes_per_s);
	if (!q->ep.n_levels)
		q->ep = path_of(&q->gpu, q->shape.ep, ADP_LINK_NVLINK, q->gpu.nvlink_bytes_per_s);
	q->tp.level[0].gpu = q->cp.level[0].gpu = q->ep.level[0].gpu = &q->gpu;
}

static struct adp_item_time answer(struct question *q)
{
	struct adp_item_time t = {0};
	struct adp_error err = {0};

	link_up(q);
	if (adp_item_time(&t, tables, &q->engine, &q->h.model, &q->h.item[q->kind], &q->train,
	                  &q->shape, &q->gpu, q->speed_frac, &q->tp, &q->cp, &q->ep, &err))
		fail_msg("%s", err.text);
	return t;
}

static void a_block_of_llama_70b_on_eight_h100_takes_what_its_operations_need(void **state)
{
	struct question q;
	struct adp_item_time t;
	double flops, share;

	(void)state;
	ask_70b_on_h100(&q, 8);
	t = answer(&q);
	/* Matrices: 8192 x (8192 + 2 x 1024) + 8192^2 + 3 x 8192 x 28672 = 855.6e6 parameters; of 4096
	 * tokens 2 x 4096 x 855.6e6 = 7.009e12; attention 4 x 8192 x 4096^2 / 2 = 0.275e12; a rank of 8
	 * does 0.910e12. */
	flops = (2.0 * 4096 * 855638016 + 4.0 * 8192 * 4096 * 4096 / 2) / 8;
	assert_near(flops / 1e12, 0.910, 0.001);
	share = flops / t.fwd_s / 989e12;
	print_message("forward %.3f ms (matmul %.3f attention %.3f memory %.3f tp %.3f launch %.3f), "
	              "backward %.3f ms, band %.2f, %.0f %% of peak\n",
	              1e3 * t.fwd_s, 1e3 * t.fwd_matmul_s, 1e3 * t.fwd_attention_s,
	              1e3 * t.fwd_memory_s, 1e3 * t.fwd_tp_s, 1e3 * t.fwd_launch_s, 1e3 * t.bwd_s,
	              t.rel_error, 100 * share);
	/* Public H100 runs of this size reach 35 to 50 % of the peak over a step. */
	assert_true(share > 0.33 && share < 0.52);
	/* Twice the matmuls, 2.5 times the attention, the same traffic. */
	assert_true(t.bwd_s > 1.5 * t.fwd_s && t.bwd_s < 2 * t.fwd_s);
	assert_true(t.rel_error > 0.05 && t.rel_error < 0.25);
}

static void the_parts_add_up_to_the_total(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 4);
	q.shape.cp = 2;
	t = answer(&q);
	assert_near(t.fwd_matmul_s + t.fwd_attention_s + t.fwd_memory_s + t.fwd_launch_s + t.fwd_tp_s +
	                t.fwd_cp_s + t.fwd_ep_s,
	            t.fwd_s, 1e-15);
}

static void matmuls_are_those_of_the_split_widths(void **state)
{
	struct question q;
	struct adp_item_time t;
	double by_hand;

	(void)state;
	ask_70b_on_h100(&q, 8);
	t = answer(&q);
	/* TP 8: 8 heads and 1 head of keys: (8 + 2) x 128 = 1280 columns; MLP 28672 / 8 = 3584, gate
	 * and up together 7168 */
	by_hand = adp_matmul_s(tables, &q.gpu, ADP_PRECISION_BF16, 4096, 1280, 8192, NULL) +
	          adp_matmul_s(tables, &q.gpu, ADP_PRECISION_BF16, 4096, 8192, 1024, NULL) +
	          adp_matmul_s(tables, &q.gpu, ADP_PRECISION_BF16, 4096, 7168, 8192, NULL) +
	          adp_matmul_s(tables, &q.gpu, ADP_PRECISION_BF16, 4096, 8192, 3584, NULL);
	assert_near(t.fwd_matmul_s, by_hand, 1e-12);
}

static void sequence_parallel_trades_all_reduce_for_gather_and_scatter(void **state)
{
	struct question q;
	double bytes = 4096.0 * 8192 * 2;

	(void)state;
	ask_70b_on_h100(&q, 8);
	link_up(&q);
	assert_near(answer(&q).fwd_tp_s,
	            2 * (adp_collective_s(tables, ADP_ALL_GATHER, &q.tp, bytes) +
	                 adp_collective_s(tables, ADP_REDUCE_SCATTER, &q.tp, bytes)),
	            1e-12);
	q.shape.sequence_parallel = false;
	assert_near(answer(&q).fwd_tp_s, 2 * adp_collective_s(tables, ADP_ALL_REDUCE, &q.tp, bytes),
	            1e-12);
}

static void sequence_parallel_divides_the_norms(void **state)
{
	struct question q;
	double with, without;

	(void)state;
	ask_70b_on_h100(&q, 8);
	with = answer(&q).fwd_memory_s;
	q.shape.sequence_parallel = false;
	without = answer(&q).fwd_memory_s;
	/* (2 x 2 norms + 2 x 3 additions) x 8192 elements x 4096 tokens x 2 bytes x 1.6 / (3.35e12 x
	 * 0.8), of which 7/8 go */
	assert_near(without - with, 10 * 8192.0 * 4096 * 2 * 1.6 / (3.35e12 * 0.8) * 7 / 8, 1e-12);
}

static void overlap_hides_its_share_of_tensor_traffic(void **state)
{
	struct question q;
	double open, half;

	(void)state;
	ask_70b_on_h100(&q, 8);
	open = answer(&q).fwd_tp_s;
	q.engine.tp_overlap_frac = 0.5;
	half = answer(&q).fwd_tp_s;
	assert_near(half, open / 2, 1e-12);
}

static void traffic_cannot_hide_behind_less_work_than_it_takes(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 8);
	q.engine.tp_overlap_frac = 1;
	q.tp = path_of(&q.gpu, 8, ADP_LINK_NVLINK, 4e9); /* far slower than the matmuls */
	t = answer(&q);
	q.engine.tp_overlap_frac = 0;
	assert_near(t.fwd_tp_s, answer(&q).fwd_tp_s - t.fwd_matmul_s, 1e-12);
}

static void full_recomputation_repeats_the_forward_pass(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 8);
	t = answer(&q);
	assert_near(t.recompute_s[ADP_RECOMPUTE_NONE], 0, 0);
	assert_near(t.recompute_s[ADP_RECOMPUTE_SELECTIVE], t.fwd_attention_s, 0);
	assert_near(t.recompute_s[ADP_RECOMPUTE_FULL], t.fwd_s, 0);
}

static void a_tiny_block_waits_for_the_host(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 1);
	llama2_7b(&q.h);
	q.train.seq_tokens = 64;
	t = answer(&q);
	assert_near(t.fwd_s, 0.3e-3, 1e-12);
	assert_true(t.fwd_launch_s > 0);
}

static void a_slow_gpu_computes_longer_but_talks_as_fast(void **state)
{
	struct question q;
	struct adp_item_time healthy, slow;

	(void)state;
	ask_70b_on_h100(&q, 8);
	healthy = answer(&q);
	q.speed_frac = 0.8;
	slow = answer(&q);
	assert_near(slow.fwd_matmul_s, healthy.fwd_matmul_s / 0.8, 1e-12);
	assert_near(slow.fwd_tp_s, healthy.fwd_tp_s, 1e-15);
}

static void context_parallel_divides_attention_evenly(void **state)
{
	struct question q;
	struct adp_item_time one, four;

	(void)state;
	ask_70b_on_h100(&q, 8);
	q.train.seq_tokens = 131072;
	one = answer(&q);
	q.shape.cp = 4;
	four = answer(&q);
	assert_near(four.fwd_attention_s - 5e-6, (one.fwd_attention_s - 5e-6) / 4,
	            1e-12);               /* 5 us: start of the kernel */
	assert_near(four.fwd_cp_s, 0, 0); /* hidden behind the long attention */
}

static void the_ring_shows_where_attention_is_short(void **state)
{
	struct question q;

	(void)state;
	ask_70b_on_h100(&q, 1);
	q.shape.cp = 4;
	q.cp = path_of(&q.gpu, 4, ADP_LINK_NIC, 1e9);
	assert_true(answer(&q).fwd_cp_s > 0);
}

static void a_window_makes_long_attention_linear(void **state)
{
	struct question q;
	double full, window;

	(void)state;
	ask_70b_on_h100(&q, 8);
	q.train.seq_tokens = 32768;
	full = answer(&q).fwd_attention_s - 5e-6;
	q.h.block.window_tokens = 4096;
	window = answer(&q).fwd_attention_s - 5e-6;
	/* (4096 x 32768 - 4096^2 / 2) / (32768^2 / 2) = 0.234375 */
	assert_near(window / full, 0.234375, 1e-9);
}

static void old_gpus_pay_for_stored_scores(void **state)
{
	struct question q;
	double flash, plain;

	(void)state;
	ask_70b_on_h100(&q, 8);
	flash = answer(&q).fwd_attention_s;
	q.engine.min_cc_flash = 100;
	plain = answer(&q).fwd_attention_s;
	assert_true(plain > 2 * flash);
}

static void experts_do_the_work_of_the_chosen_ones(void **state)
{
	struct question q;
	struct adp_item_time moe;
	double attention, dense;

	(void)state;
	ask_70b_on_h100(&q, 1);
	mixtral(&q.h);
	q.shape.micro_batch_seqs = 4;
	moe = answer(&q);
	q.h.block.n_experts = 0;
	attention = answer(&q).fwd_matmul_s;
	q.h.block.ffn_hidden = 2 * 14336; /* two experts' worth for each token */
	dense = answer(&q).fwd_matmul_s - attention;
	/* 16384 tokens x 2 / 8 = 4096 a group: as efficient as one matmul but for grouping,
	 * 1.2 + 2.3 / (1 + (14336 / 5000)^2) = 1.45; the router adds a little */
	assert_near((moe.fwd_matmul_s - attention) / dense, 1.45, 0.1);
}

static void expert_parallel_balances_weights_against_traffic(void **state)
{
	struct question q;
	struct adp_item_time one, eight;
	double bytes;

	(void)state;
	ask_70b_on_h100(&q, 1);
	mixtral(&q.h);
	one = answer(&q);
	assert_near(one.fwd_ep_s, 0, 0);
	q.shape.ep = 8;
	eight = answer(&q);
	/* 4096 tokens x 2 copies x 4096 x 2 bytes, out and back */
	bytes = 4096.0 * 2 * 4096 * 2;
	assert_near(eight.fwd_ep_s, 2 * adp_collective_s(tables, ADP_ALL_TO_ALL, &q.ep, bytes), 1e-12);
	/* Of 512 tokens each of 8 experts gets 128 and all weights are read; with 8 ranks one expert
	 * gets 1024. */
	q.train.seq_tokens = 512;
	eight = answer(&q);
	q.shape.ep = 1;
	one = answer(&q);
	assert_true(eight.fwd_matmul_s < 0.7 * one.fwd_matmul_s);
}

static void a_busy_expert_rank_holds_up_the_others(void **state)
{
	struct question q;
	struct adp_item_time even, uneven;

	(void)state;
	ask_70b_on_h100(&q, 1);
	mixtral(&q.h);
	q.shape.ep = 8;
	even = answer(&q);
	q.train.expert_load_factor = 1.5;
	uneven = answer(&q);
	assert_true(uneven.fwd_matmul_s > 1.25 * even.fwd_matmul_s);
	assert_true(uneven.fwd_ep_s > even.fwd_ep_s);
}

static void tensor_parallel_over_nodes_waits_for_the_slowest(void **state)
{
	struct question q;
	double inside, outside;

	(void)state;
	ask_70b_on_h100(&q, 16);
	q.h.block.n_kv_heads = 16;
	q.tp = path_of(&q.gpu, 16, ADP_LINK_NVLINK, 450e9);
	inside = answer(&q).fwd_tp_s;
	q.tp = path_of(&q.gpu, 8, ADP_LINK_NVLINK, 450e9);
	q.tp.n_levels = 2;
	q.tp.level[1] = path_of(&q.gpu, 2, ADP_LINK_NIC, 50e9).level[0];
	q.tp.level[1].gpu = NULL;
	outside = answer(&q).fwd_tp_s;
	/* four collectives x 0.42 ms x log2(2 nodes), beside the slower link */
	assert_true(outside > inside + 4 * 0.42e-3);
}

static void the_head_is_one_matmul_over_the_vocabulary_share(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 8);
	q.kind = ADP_ITEM_HEAD;
	t = answer(&q);
	/* 32000 padded to a multiple of 128 x 8 = 32768; 4096 a rank */
	assert_near(t.fwd_matmul_s,
	            adp_matmul_s(tables, &q.gpu, ADP_PRECISION_BF16, 4096, 4096, 8192, NULL), 1e-12);
	assert_near(t.recompute_s[ADP_RECOMPUTE_FULL], 0, 0);
}

static void the_loss_reads_the_logits_in_full_precision(void **state)
{
	struct question q;
	struct adp_item_time t;

	(void)state;
	ask_70b_on_h100(&q, 1);
	q.kind = ADP_ITEM_LOSS;
	t = answer(&q);
	/* 4096 x 32000 entries x 18 bytes / (3.35e12 x 0.8) = 0.880 ms; 32000 is a multiple of 128 */
	assert_near(t.fwd_s * 1e3, 4096.0 * 32000 * 18 / (3.35e12 * 0.8) * 1e3, 1e-9);
	assert_near(t.fwd_s * 1e3, 0.880, 0.001);
}

static void embedding_and_final_norm_are_small(void **state)
{
	struct question q;
	double block, embedding, norm;

	(void)state;
	ask_70b_on_h100(&q, 8);
	block = answer(&q).fwd_s;
	q.kind = ADP_ITEM_EMBEDDING;
	embedding = answer(&q).fwd_s;
	q.kind = ADP_ITEM_FINAL_NORM;
	norm = answer(&q).fwd_s;
	assert_true(embedding > 0 && embedding < block / 2);
	assert_true(norm > 0 && norm < block / 20);
}

static void eight_bit_training_is_faster_but_less_certain(void **state)
{
	struct question q;
	struct adp_item_time bf16, fp8;

	(void)state;
	ask_70b_on_h100(&q, 8);
	bf16 = answer(&q);
	q.shape.precision = ADP_PRECISION_FP8;
	fp8 = answer(&q);
	assert_true(fp8.fwd_matmul_s < bf16.fwd_matmul_s / 1.3);
	assert_true(fp8.fwd_memory_s > bf16.fwd_memory_s); /* casts */
	assert_near(fp8.fwd_attention_s, bf16.fwd_attention_s, 1e-15);
	assert_true(fp8.rel_error > bf16.rel_error);
}

static void a_gpu_without_the_precision_is_refused_by_name(void **state)
{
	struct question q;
	struct adp_item_time t;
	struct adp_error err = {0};

	(void)state;
	ask_70b_on_h100(&q, 1);
	q.gpu = v100();
	link_up(&q);
	assert_int_equal(adp_item_time(&t, tables, &q.engine, &q.h.model, &q.h.item[1], &q.train,
	                               &q.shape, &q.gpu, 1, &q.tp, &q.cp, &q.ep, &err),
	                 ADP_EINVAL);
	assert_non_null(strstr(err.text, "Tesla-V100-SXM2-32GB"));
	assert_non_null(strstr(err.text, "bf16"));
	q.shape.precision = ADP_PRECISION_FP16;
	q.shape.tp = 0;
	assert_int_equal(adp_item_time(&t, tables, &q.engine, &q.h.model, &q.h.item[1], &q.train,
	                               &q.shape, &q.gpu, 1, &q.tp, &q.cp, &q.ep, &err),
	                 ADP_EINVAL);
}

static void random_question(struct question *q, uint64_t *seed)
{
	static const uint32_t degrees[] = {1, 2, 4, 8};

	ask_70b_on_h100(q, degrees[(int)(4 * next_random(seed))]);
	if (next_random(seed) < 0.4)
		mixtral(&q->h);
	if (next_random(seed) < 0.2)
		q->h.block.shared_ffn_hidden = 2048;
	q->kind = next_random(seed) < 0.7 ? ADP_ITEM_BLOCK
	                                  : (enum adp_item_kind)(int)(5 * next_random(seed));
	q->gpu = next_random(seed) < 0.5 ? h100() : a100();
	if (next_random(seed) < 0.3)
		q->gpu.name = "unknown";
	q->shape.sequence_parallel = q->shape.tp > 1 && next_random(seed) < 0.7;
	q->shape.cp = degrees[(int)(3 * next_random(seed))];
	q->shape.ep = degrees[(int)(4 * next_random(seed))];
	q->shape.etp = next_random(seed) < 0.3 ? q->shape.tp : 1;
	q->shape.micro_batch_seqs = 1 + (uint64_t)(4 * next_random(seed));
	q->shape.precision = next_random(seed) < 0.7 ? ADP_PRECISION_BF16 : ADP_PRECISION_TF32;
	q->train.seq_tokens = (uint64_t)exp2(8 + 9 * next_random(seed));
	q->engine.min_cc_flash = next_random(seed) < 0.3 ? 100 : 80;
	q->engine.tp_overlap_frac = next_random(seed);
	q->engine.ep_overlap_frac = next_random(seed);
	link_up(q);
	if (next_random(seed) < 0.4) {
		q->tp.level[0].link.kind = ADP_LINK_NIC;
		q->cp.level[0].link.kind = ADP_LINK_NIC;
		q->ep.level[0].link.kind = ADP_LINK_NIC;
		q->tp.level[0].link.bytes_per_s = q->cp.level[0].link.bytes_per_s =
			q->ep.level[0].link.bytes_per_s = 25e9;
	}
}

static bool no_less(const struct adp_item_time *a, const struct adp_item_time *b)
{
	return a->fwd_s >= b->fwd_s * (1 - 1e-12) && a->bwd_s >= b->bwd_s * (1 - 1e-12) &&
	       a->recompute_s[ADP_RECOMPUTE_SELECTIVE] >=
	           b->recompute_s[ADP_RECOMPUTE_SELECTIVE] * (1 - 1e-12) &&
	       a->recompute_s[ADP_RECOMPUTE_FULL] >= b->recompute_s[ADP_RECOMPUTE_FULL] * (1 - 1e-12);
}

/* 10,000 random items: better hardware never costs more, more work never less. */
static void better_hardware_never_costs_more_and_more_work_never_less(void **state)
{
	uint64_t seed = 2026;

	(void)state;
	for (int i = 0; i < 10000; i++) {
		struct question q, changed;
		struct adp_item_time t, u;
		double grow;

		random_question(&q, &seed);
		grow = 1 + (i % 3 ? 2 : 1e-3) * next_random(&seed);
		t = answer(&q);
		assert_true(isfinite(t.fwd_s) && isfinite(t.bwd_s) && t.fwd_s > 0 && t.rel_error >= 0 &&
		            t.rel_error < 2);
		changed = q;
		for (int p = 0; p < ADP_N_PRECISIONS; p++)
			changed.gpu.peak_flops_per_s[p] *= grow;
		u = answer(&changed);
		assert_true(no_less(&t, &u));
		changed = q;
		changed.gpu.memory_bytes_per_s *= grow;
		u = answer(&changed);
		assert_true(no_less(&t, &u));
		changed = q;
		changed.tp.level[0].link.bytes_per_s *= grow;
		changed.cp.level[0].link.bytes_per_s *= grow;
		changed.ep.level[0].link.bytes_per_s *= grow;
		u = answer(&changed);
		assert_true(no_less(&t, &u));
		changed = q;
		changed.tp.level[0].link.latency_s *= grow;
		changed.cp.level[0].link.latency_s *= grow;
		changed.ep.level[0].link.latency_s *= grow;
		u = answer(&changed);
		assert_true(no_less(&u, &t));
		changed = q;
		changed.speed_frac = 1 / grow;
		u = answer(&changed);
		assert_true(no_less(&u, &t));
		changed = q;
		changed.shape.micro_batch_seqs++;
		u = answer(&changed);
		assert_true(no_less(&u, &t));
		changed = q;
		changed.train.expert_load_factor = grow;
		u = answer(&changed);
		assert_true(no_less(&u, &t));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_of_llama_70b_on_eight_h100_takes_what_its_operations_need),
		cmocka_unit_test(the_parts_add_up_to_the_total),
		cmocka_unit_test(matmuls_are_those_of_the_split_widths),
		cmocka_unit_test(sequence_parallel_trades_all_reduce_for_gather_and_scatter),
		cmocka_unit_test(sequence_parallel_divides_the_norms),
		cmocka_unit_test(overlap_hides_its_share_of_tensor_traffic),
		cmocka_unit_test(traffic_cannot_hide_behind_less_work_than_it_takes),
		cmocka_unit_test(full_recomputation_repeats_the_forward_pass),
		cmocka_unit_test(a_tiny_block_waits_for_the_host),
		cmocka_unit_test(a_slow_gpu_computes_longer_but_talks_as_fast),
		cmocka_unit_test(context_parallel_divides_attention_evenly),
		cmocka_unit_test(the_ring_shows_where_attention_is_short),
		cmocka_unit_test(a_window_makes_long_attention_linear),
		cmocka_unit_test(old_gpus_pay_for_stored_scores),
		cmocka_unit_test(experts_do_the_work_of_the_chosen_ones),
		cmocka_unit_test(expert_parallel_balances_weights_against_traffic),
		cmocka_unit_test(a_busy_expert_rank_holds_up_the_others),
		cmocka_unit_test(tensor_parallel_over_nodes_waits_for_the_slowest),
		cmocka_unit_test(the_head_is_one_matmul_over_the_vocabulary_share),
		cmocka_unit_test(the_loss_reads_the_logits_in_full_precision),
		cmocka_unit_test(embedding_and_final_norm_are_small),
		cmocka_unit_test(eight_bit_training_is_faster_but_less_certain),
		cmocka_unit_test(a_gpu_without_the_precision_is_refused_by_name),
		cmocka_unit_test(better_hardware_never_costs_more_and_more_work_never_less),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
