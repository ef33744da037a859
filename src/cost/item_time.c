/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "cost/tables.h"

/* Everything one call needs, resolved once. */
struct work {
	const struct adp_tables *tables;
	const struct adp_engine *engine;
	const struct adp_model *model;
	const struct adp_shape *shape;
	const struct adp_path *tp_path, *cp_path, *ep_path;
	struct matmul_unit matmul;
	struct attention_unit attention;
	bool flash;
	double tp, cp, ep, etp;
	double tokens;        /* of the micro-batch on this rank: its context-parallel part */
	double norm_tokens;   /* those whose norms and residuals it computes: sequence parallel divides
	                         them */
	double element_bytes; /* of activations */
	double load;          /* busiest expert rank / mean */
	double s_per_byte;    /* element-wise traffic, engine's multiplier included */
	double plain_s_per_byte; /* without it */
};

/* Sums of one pass. Compute is at full speed; communication as if nothing hid it. */
struct pass {
	double matmul, experts /* part of matmul */, attention, memory, tp, cp, ep;
	double cp_start; /* the part of cp that no compute hides */
};

static double ceil_div(double a, double b)
{
	return ceil(a / b);
}

static void add_linear(struct pass *fwd, struct pass *bwd, const struct work *w, double m, double n,
                       double k)
{
	double backward = 0;

	fwd->matmul += cost_linear_s(&w->matmul, m, n, k, &backward);
	bwd->matmul += backward;
	if (w->shape->precision == ADP_PRECISION_FP8) {
		double cast = w->tables->op.fp8_cast_bytes * w->plain_s_per_byte;

		fwd->memory += cast * (m * k + k * n);
		bwd->memory += cast * m * n;
	}
}

/* bytes of element-wise traffic of the forward pass */
static void add_memory(struct pass *fwd, struct pass *bwd, const struct work *w, double bytes)
{
	double s = bytes * w->s_per_byte;

	fwd->memory += s;
	bwd->memory += s * w->tables->op.memory_backward_mult;
}

/*
 * A collective on a block's critical path. Over nodes it also waits for the slowest rank and
 * reaches less of the link than a bucketed exchange does; an all-to-all has no ring that breaks at
 * the node's edge.
 */
static double blocking_s(const struct work *w, enum adp_collective op, const struct adp_path *path,
                         double bytes)
{
	const struct cost_operators *ops = &w->tables->op;
	struct adp_path slowed;
	double nodes = 1;

	for (uint32_t i = 0; i < path->n_levels && i < ADP_MAX_LEVELS; i++) {
		if (path->level[i].link.kind >= ADP_LINK_NIC && path->level[i].fan > 1)
			nodes *= path->level[i].fan;
	}
	if (nodes <= 1)
		return adp_collective_s(w->tables, op, path, bytes);
	slowed = *path;
	for (uint32_t i = 0; i < slowed.n_levels && i < ADP_MAX_LEVELS; i++) {
		if (slowed.level[i].link.kind >= ADP_LINK_NIC && op != ADP_ALL_TO_ALL)
			slowed.level[i].link.bytes_per_s *= ops->cross_node_sync_bandwidth_frac;
	}
	return adp_collective_s(w->tables, op, &slowed, bytes) +
	       ops->cross_node_sync_s * log2(nodes) * (op == ADP_ALL_REDUCE ? 2 : 1);
}

/*
 * Entering and leaving a tensor-parallel region: all-gather and reduce-scatter of the sequence
 * parts, or one all-reduce. The backward pass does the mirror image. (The second gather of the
 * input for the weight gradient is taken as hidden behind the data gradient, as engines do it.)
 */
static void add_tp_region(struct pass *fwd, struct pass *bwd, const struct work *w,
                          const struct adp_path *path, double bytes)
{
	double s;

	if (w->shape->sequence_parallel)
		s = blocking_s(w, ADP_ALL_GATHER, path, bytes) +
		    blocking_s(w, ADP_REDUCE_SCATTER, path, bytes);
	else
		s = blocking_s(w, ADP_ALL_REDUCE, path, bytes);
	fwd->tp += s;
	bwd->tp += s;
}

static void add_attention(struct pass *fwd, struct pass *bwd, const struct work *w,
                          const struct adp_block *block)
{
	double heads = ceil_div(block->n_heads, w->tp), kv_heads = ceil_div(block->n_kv_heads, w->tp);
	double head_dim = block->head_dim, v_dim = block->v_head_dim ? block->v_head_dim : head_dim;
	double hidden = (double)w->model->hidden;
	double batch = (double)w->shape->micro_batch_seqs;
	double q = w->tokens / batch, kv = q * w->cp, window = block->window_tokens;
	double pairs = kv * kv / 2, backward = 0, s;

	/* Causal: half the square, or the band of the window: kv * window less the triangle its start
	 * lacks. */
	if (window > 0 && window < kv)
		pairs = window * kv - window * window / 2;
	pairs = pairs / w->cp * (w->cp > 1 ? w->tables->op.cp_causal_imbalance_mult : 1);
	add_linear(fwd, bwd, w, w->tokens, heads * head_dim + kv_heads * (head_dim + v_dim), hidden);
	add_linear(fwd, bwd, w, w->tokens, hidden, heads * v_dim);
	s = cost_attention_s(w->tables, &w->attention, w->flash, heads, kv_heads,
	                     (head_dim + v_dim) / 2, batch, q, kv, pairs, &backward);
	fwd->attention += s;
	bwd->attention += backward;
	if (w->cp > 1) {
		/* Ring: keys and values pass every rank; the backward pass sends their gradients along too.
		 */
		double send = blocking_s(w, ADP_SEND, w->cp_path,
		                         w->tokens * kv_heads * (head_dim + v_dim) * w->element_bytes);

		double start = blocking_s(w, ADP_SEND, w->cp_path, 0);

		fwd->cp += send * (w->cp - 1);
		bwd->cp += 2 * send * (w->cp - 1);
		/* each step starts when the one before has arrived */
		fwd->cp_start += start * (w->cp - 1);
		bwd->cp_start += 2 * start * (w->cp - 1);
	}
	add_memory(fwd, bwd, w,
	           w->tables->op.rope_elements *
	               ((w->model->rope_theta > 0 ? 1 : 0) + (w->model->qk_norm ? 1 : 0)) *
	               (heads + kv_heads) * head_dim * w->tokens * w->element_bytes);
}

static double activation_elements(const struct work *w, const struct adp_block *block)
{
	return block->gated ? w->tables->op.gated_activation_elements
	                    : w->tables->op.activation_elements;
}

static void add_mlp(struct pass *fwd, struct pass *bwd, const struct work *w,
                    const struct adp_block *block, double width)
{
	double share = ceil_div(width, w->tp), hidden = (double)w->model->hidden;

	add_linear(fwd, bwd, w, w->tokens, share * (block->gated ? 2 : 1), hidden);
	add_linear(fwd, bwd, w, w->tokens, hidden, share);
	add_memory(fwd, bwd, w, activation_elements(w, block) * share * w->tokens * w->element_bytes);
	if (w->tp > 1)
		add_tp_region(fwd, bwd, w, w->tp_path, w->tokens * hidden * w->element_bytes);
}

/* The innermost n ranks of a path. */
static struct adp_path inner_path(const struct adp_path *path, double n)
{
	struct adp_path part = *path;

	for (uint32_t i = 0; i < part.n_levels && i < ADP_MAX_LEVELS; i++) {
		double fan = fmin(part.level[i].fan, fmax(1, n));

		part.level[i].fan = (uint32_t)fan;
		n /= fan;
	}
	return part;
}

/*
 * Routed experts. TP ranks hold different tokens, so one rank sends tokens / TP * top_k copies; an
 * expert of ETP ranks gathers the copies of all of them and each computes its part of the width.
 * One grouped matmul over the rank's experts is a matmul with the tokens of one expert and the
 * width of all.
 */
static void add_experts(struct pass *fwd, struct pass *bwd, const struct work *w,
                        const struct adp_block *block)
{
	const struct cost_operators *op = &w->tables->op;
	double hidden = (double)w->model->hidden, own = w->tokens / w->tp;
	double local = fmax(1, block->n_experts / w->ep), copies = own * block->top_k;
	double rows = copies * w->etp * w->load, width = (double)block->expert_ffn_hidden / w->etp;
	/* Falls with the width, but never as fast as the work grows. */
	double narrow = width / op->grouped_half_width;
	double grouped = op->grouped_matmul_mult + op->grouped_narrow_mult / (1 + narrow * narrow);
	double router_bwd = 0, expert_fwd, expert_bwd, bwd1 = 0, bwd2 = 0;

	fwd->matmul += cost_linear_s(&w->matmul, own, block->n_experts, hidden, &router_bwd);
	bwd->matmul += router_bwd;
	expert_fwd = cost_linear_s(&w->matmul, rows / local, width * (block->gated ? 2 : 1) * local,
	                           hidden, &bwd1) +
	             cost_linear_s(&w->matmul, rows / local, hidden * local, width, &bwd2);
	expert_bwd = bwd1 + bwd2;
	fwd->experts += expert_fwd * grouped;
	bwd->experts += expert_bwd * grouped;
	fwd->matmul += expert_fwd * grouped;
	bwd->matmul += expert_bwd * grouped;
	add_memory(fwd, bwd, w,
	           op->moe_router_bytes * block->n_experts * own +
	               w->element_bytes * (op->moe_permute_elements * hidden * copies * w->load +
	                                   activation_elements(w, block) * width * rows));
	if (w->ep > 1) {
		double s = 2 * blocking_s(w, ADP_ALL_TO_ALL, w->ep_path,
		                          copies * hidden * w->element_bytes * w->load);

		fwd->ep += s;
		bwd->ep += s;
	}
	if (w->etp > 1) {
		struct adp_path path = inner_path(w->tp_path, w->etp);
		double bytes = rows * hidden * w->element_bytes;
		double s = blocking_s(w, ADP_ALL_GATHER, &path, bytes) +
		           blocking_s(w, ADP_REDUCE_SCATTER, &path, bytes);

		fwd->tp += s;
		bwd->tp += s;
	} else if (w->tp > 1 && !w->shape->sequence_parallel) {
		/* Every TP rank needs every token back. */
		double s = blocking_s(w, ADP_ALL_GATHER, w->tp_path, w->tokens * hidden * w->element_bytes);

		fwd->tp += s;
		bwd->tp += s;
	}
}

static void block_work(struct pass *fwd, struct pass *bwd, const struct work *w,
                       const struct adp_block *block)
{
	const struct cost_operators *op = &w->tables->op;
	double hidden = (double)w->model->hidden;

	add_attention(fwd, bwd, w, block);
	if (w->tp > 1)
		add_tp_region(fwd, bwd, w, w->tp_path, w->tokens * hidden * w->element_bytes);
	if (block->ffn_hidden)
		add_mlp(fwd, bwd, w, block, (double)block->ffn_hidden);
	if (block->n_experts)
		add_experts(fwd, bwd, w, block);
	if (block->shared_ffn_hidden)
		add_mlp(fwd, bwd, w, block, (double)block->shared_ffn_hidden);
	add_memory(fwd, bwd, w,
	           (op->norm_elements * block->n_norms + 2 * op->residual_elements) * hidden *
	               w->norm_tokens * w->element_bytes);
}

/* Columns of the vocabulary's matrices; another projection follows in the rare model where it isn't
 * the hidden size. */
static double vocab_width(const struct work *w)
{
	return (double)(w->model->embedding_width ? w->model->embedding_width : w->model->hidden);
}

static double padded_vocab(const struct work *w)
{
	double multiple = fmax(1, w->engine->vocab_multiple) * w->tp;

	return ceil((double)w->model->vocab / multiple) * multiple;
}

static void embedding_work(struct pass *fwd, struct pass *bwd, const struct work *w)
{
	double bytes = w->tokens * (double)w->model->hidden * w->element_bytes;
	double copy = 2 * bytes / (double)w->model->hidden * vocab_width(w) *
	              (w->model->learned_positions ? 2 : 1) * w->s_per_byte;

	fwd->memory += copy;
	bwd->memory += copy * w->tables->op.embedding_backward_mult;
	if (w->tp <= 1)
		return;
	/* Each rank looks up its part of the vocabulary; the gradient arrives whole unless the sequence
	 * is divided. */
	fwd->tp += blocking_s(w, w->shape->sequence_parallel ? ADP_REDUCE_SCATTER : ADP_ALL_REDUCE,
	                      w->tp_path, bytes);
	if (w->shape->sequence_parallel)
		bwd->tp += blocking_s(w, ADP_ALL_GATHER, w->tp_path, bytes);
}

static void head_work(struct pass *fwd, struct pass *bwd, const struct work *w)
{
	double hidden = (double)w->model->hidden, bytes = w->tokens * hidden * w->element_bytes;

	add_linear(fwd, bwd, w, w->tokens, padded_vocab(w) / w->tp, vocab_width(w));
	if (w->tp <= 1)
		return;
	if (w->shape->sequence_parallel)
		fwd->tp += blocking_s(w, ADP_ALL_GATHER, w->tp_path, bytes);
	bwd->tp += blocking_s(w, w->shape->sequence_parallel ? ADP_REDUCE_SCATTER : ADP_ALL_REDUCE,
	                      w->tp_path, bytes);
}

static void loss_work(struct pass *fwd, struct pass *bwd, const struct work *w)
{
	const struct cost_operators *op = &w->tables->op;
	double entries = w->tokens * padded_vocab(w) / w->tp;

	fwd->memory += entries * op->loss_forward_bytes * w->plain_s_per_byte;
	bwd->memory += entries * op->loss_backward_bytes * w->plain_s_per_byte;
	if (w->tp > 1) /* maximum, sum and target logit: three small messages */
		fwd->tp += 3 *
		           blocking_s(w, ADP_ALL_REDUCE, w->tp_path, w->tokens * op->loss_reduce_bytes / 3);
}

/* Exposed parts of one pass and its length. */
struct exposed {
	double matmul, experts, attention, memory, tp, cp, ep, launch, total;
};

/*
 * What hides: TP traffic behind the matmuls, by the engine's share and never more than the matmuls
 * last; the ring behind the attention of the parts that arrive. Each sum equals a maximum of sums,
 * so it stays monotone. The engine's share of EP is taken off whole: part of it is traffic that is
 * never sent (a token goes once to a node).
 */
static struct exposed expose(const struct work *w, const struct pass *p, double speed_frac,
                             double launch_s)
{
	struct exposed e = {.matmul = p->matmul / speed_frac,
	                    .experts = p->experts / speed_frac,
	                    .attention = p->attention / speed_frac,
	                    .memory = p->memory / speed_frac};

	e.tp = p->tp - fmin(p->tp * w->engine->tp_overlap_frac, e.matmul);
	e.ep = p->ep * (1 - w->engine->ep_overlap_frac);
	e.cp = fmax(p->cp_start, p->cp - e.attention * (w->cp - 1) / w->cp);
	e.total = e.matmul + e.attention + e.memory + e.tp + e.cp + e.ep;
	e.launch = fmax(0, launch_s - e.total);
	e.total += e.launch;
	return e;
}

static double band(const struct work *w, const struct exposed *e)
{
	const struct cost_operators *op = &w->tables->op;
	double sum = e->matmul * w->matmul.band_frac + e->experts * op->grouped_band_frac +
	             e->memory * op->memory_band_frac + e->launch * op->launch_band_frac;

	if (e->attention > 0)
		sum += e->attention * (w->flash ? w->attention.row->band_frac
		                                : fmax(w->matmul.band_frac, op->memory_band_frac));
	if (e->tp > 0)
		sum += e->tp * cost_path_band(w->tables, w->tp_path);
	if (e->cp > 0)
		sum += e->cp * cost_path_band(w->tables, w->cp_path);
	if (e->ep > 0)
		sum += e->ep * cost_path_band(w->tables, w->ep_path);
	return sum;
}

static int check(const struct adp_shape *shape, const struct adp_gpu_type *gpu, double speed_frac,
                 const struct adp_item *item, struct adp_error *err)
{
	if (!shape->tp || !shape->cp || !shape->ep || !shape->etp || !shape->micro_batch_seqs)
		return adp_fail(err, ADP_EINVAL,
		                "item time: every degree and the micro-batch must be at least 1");
	if (!(speed_frac > 0 && speed_frac <= 1))
		return adp_fail(err, ADP_EINVAL, "item time: GPU speed %g must be above 0 and at most 1",
		                speed_frac);
	if (!(gpu->peak_flops_per_s[shape->precision] > 0))
		return adp_fail(err, ADP_EINVAL,
		                "%s has no %s units; choose another precision or leave the type out",
		                gpu->name, adp_precision_name(shape->precision));
	if (!(gpu->memory_bytes_per_s > 0))
		return adp_fail(err, ADP_EINVAL,
		                "%s: memory bandwidth is missing; state it in the GPU table", gpu->name);
	if (item->kind == ADP_ITEM_BLOCK && !item->block)
		return adp_fail(err, ADP_EINTERNAL, "item time: block item without a block");
	return ADP_OK;
}

int adp_item_time(struct adp_item_time *out, const struct adp_tables *tables,
                  const struct adp_engine *engine, const struct adp_model *model,
                  const struct adp_item *item, const struct adp_train *train,
                  const struct adp_shape *shape, const struct adp_gpu_type *gpu,
                  double gpu_speed_frac, const struct adp_path *tp_path,
                  const struct adp_path *cp_path, const struct adp_path *ep_path,
                  struct adp_error *err)
{
	struct work w = {.tables = tables, .engine = engine, .model = model, .shape = shape};
	struct pass fwd = {0}, bwd = {0};
	struct exposed f, b;
	double launch = 0, total;
	int rc = check(shape, gpu, gpu_speed_frac, item, err);

	if (rc)
		return rc;
	w.tp_path = tp_path;
	w.cp_path = cp_path;
	w.ep_path = ep_path;
	cost_matmul_unit(&w.matmul, tables, gpu, shape->precision);
	w.flash = adp_flash_available(engine, gpu, shape->precision);
	w.tp = shape->tp;
	w.cp = shape->cp;
	w.ep = shape->ep;
	w.etp = shape->etp;
	w.tokens = (double)shape->micro_batch_seqs * (double)train->seq_tokens / w.cp;
	w.norm_tokens = shape->sequence_parallel ? w.tokens / w.tp : w.tokens;
	w.element_bytes =
		shape->precision == ADP_PRECISION_FP32 || shape->precision == ADP_PRECISION_TF32 ? 4 : 2;
	w.load = fmax(1, train->expert_load_factor);
	w.plain_s_per_byte = 1 / (gpu->memory_bytes_per_s * tables->op.memory_bandwidth_frac);
	w.s_per_byte = w.plain_s_per_byte * engine->memory_traffic_frac;

	switch (item->kind) {
	case ADP_ITEM_EMBEDDING:
		embedding_work(&fwd, &bwd, &w);
		break;
	case ADP_ITEM_BLOCK:
		cost_attention_unit(&w.attention, tables, gpu, shape->precision);
		block_work(&fwd, &bwd, &w, item->block);
		launch = engine->launch_s_per_block;
		break;
	case ADP_ITEM_FINAL_NORM:
		add_memory(&fwd, &bwd, &w,
		           tables->op.norm_elements * (double)model->hidden * w.norm_tokens *
		               w.element_bytes);
		break;
	case ADP_ITEM_HEAD:
		head_work(&fwd, &bwd, &w);
		break;
	case ADP_ITEM_LOSS:
		loss_work(&fwd, &bwd, &w);
		break;
	}
	f = expose(&w, &fwd, gpu_speed_frac, launch);
	b = expose(&w, &bwd, gpu_speed_frac, launch);
	*out = (struct adp_item_time){
		.fwd_s = f.total,
		.bwd_s = b.total,
		.fwd_matmul_s = f.matmul,
		.fwd_attention_s = f.attention,
		.fwd_memory_s = f.memory,
		.fwd_launch_s = f.launch,
		.fwd_tp_s = f.tp,
		.fwd_cp_s = f.cp,
		.fwd_ep_s = f.ep,
	};
	if (item->kind == ADP_ITEM_BLOCK) {
		out->recompute_s[ADP_RECOMPUTE_SELECTIVE] = f.attention;
		out->recompute_s[ADP_RECOMPUTE_FULL] = f.total;
	}
	total = f.total + b.total;
	out->rel_error = total > 0 ? (band(&w, &f) + band(&w, &b)) / total : 0;
	return ADP_OK;
}
