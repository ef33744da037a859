/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/cost.h"

#include <math.h>

/* Parameters of a rank, by what divides them. */
struct share {
	double dense;   /* divided by TP, or replicated over it */
	double experts; /* routed, divided by EP and the experts' own TP */
};

/* One kind of block on this rank: parameters, and bytes of one micro-batch. */
struct block_cost {
	const struct adp_block *block;
	struct share params;
	double kept;       /* for the backward pass, under the chosen recomputation */
	double recomputed; /* alive for one block while it is recomputed */
	double transient;  /* gradients and gathered inputs of one block in its backward pass */
};

/* What does not change from item to item. */
struct context {
	const struct adp_engine *engine;
	const struct adp_model *model;
	const struct adp_memory_opts *opts;
	double tokens;     /* of one micro-batch on this rank: sequence divided by CP, not by TP */
	double seq;        /* keys a query meets */
	double elem;       /* bytes of an activation element */
	double norm_bytes; /* kept per hidden element and norm */
	double tp, sp;     /* sp: what sequence parallelism divides by */
	double gathered;   /* what divides the kept inputs of column-split layers */
	double experts;    /* what divides a routed expert's parameters: EP * ETP */
	double etp;
	double expert_load;
	double vocab_multiple, vocab_rows; /* rows of the vocabulary on this rank, padding included */
};

static double at_least_one(double x)
{
	return x > 1.0 ? x : 1.0;
}

static double param_rank_count(const struct context *ctx, const struct adp_param *param,
                               bool *expert)
{
	const double rows = (double)param->rows, cols = (double)param->cols;

	*expert = param->shard == ADP_SHARD_EXPERT;
	switch (param->shard) {
	case ADP_SHARD_COLUMN:
	case ADP_SHARD_ROW:
		return rows * cols * param->n_copies / ctx->tp;
	case ADP_SHARD_VOCAB:
		/* Padded so that every rank holds the same number of whole rows. */
		return ceil(rows / (ctx->vocab_multiple * ctx->tp)) * ctx->vocab_multiple * cols *
		       param->n_copies;
	case ADP_SHARD_EXPERT:
		return rows * cols * param->n_copies / ctx->experts;
	case ADP_SHARD_REPLICATED:
		break;
	}
	return rows * cols * param->n_copies;
}

static struct share params_of(const struct context *ctx, const struct adp_param *params, uint32_t n)
{
	struct share sum = {0};

	for (uint32_t i = 0; i < n; i++) {
		bool expert;
		const double count = param_rank_count(ctx, &params[i], &expert);
		*(expert ? &sum.experts : &sum.dense) += count;
	}
	return sum;
}

/*
 * Korthikanti et al. 2022, section 4, with each tensor named, so that grouped queries, gated and
 * routed MLPs, a missing dropout and fused attention follow. With one dropout per branch, scores
 * kept, MHA and a 4h MLP the sum is the paper's sbh(10 + 24/t + 5as/(ht)), or sbh/t (34 + 5as/h)
 * with sequence parallelism.
 */
static void block_activations(struct block_cost *cost, const struct context *ctx)
{
	const struct adp_engine *engine = ctx->engine;
	const struct adp_block *block = cost->block;
	const double tokens = ctx->tokens, elem = ctx->elem, hidden = (double)ctx->model->hidden;
	const double mask = engine->dropout_mask_bytes;
	const double heads = block->n_heads / ctx->tp;
	const double q = heads * block->head_dim;
	const double kv = at_least_one(block->n_kv_heads / ctx->tp) * block->head_dim;
	const double norms = block->n_norms;
	/* A block with one norm feeds attention and MLP from the same tensor. */
	const double inputs = norms >= 2.0 ? 2.0 : 1.0;
	const double mlp_elems = block->gated ? engine->mlp_saved_elems_gated : engine->mlp_saved_elems;

	double kept = tokens * hidden * norms * ctx->norm_bytes / ctx->sp;
	kept += inputs * tokens * hidden * elem / ctx->gathered;
	kept += tokens * elem * (q * (1.0 + engine->attention_copies) + 2.0 * kv);
	if (ctx->model->qk_norm)
		kept += tokens * elem * (q + kv);
	kept += 2.0 * tokens * hidden * mask / ctx->sp; /* masks after attention and MLP */

	/* Fused attention keeps the row sums in fp32; else softmax output, and with dropout its mask
	 * and result. */
	const double core = ctx->opts->flash
	                        ? tokens * heads * 4.0
	                        : tokens * heads * ctx->seq * (elem + (mask > 0.0 ? mask + elem : 0.0));
	kept += core;

	const double dense_width = ((double)block->ffn_hidden + (double)block->shared_ffn_hidden) /
	                           ctx->tp;
	kept += tokens * elem * dense_width * mlp_elems;

	double rows = 0.0, expert_width = 0.0;
	if (block->n_experts > 0) {
		/* Under sequence parallelism a rank sends its own tokens and the experts' TP group gathers
		 * them. */
		rows = tokens / ctx->sp * (ctx->sp > 1.0 ? ctx->etp : 1.0) * block->top_k *
		       ctx->expert_load;
		expert_width = (double)block->expert_ffn_hidden / ctx->etp;
		kept += rows * elem *
		        (hidden * (1.0 + engine->moe_saved_copies) + expert_width * mlp_elems);
		kept += tokens / ctx->sp * block->n_experts *
		        8.0; /* router logits and probabilities, fp32 */
	}

	const double input = tokens * hidden * elem / ctx->sp;
	switch (ctx->opts->recompute) {
	case ADP_RECOMPUTE_FULL:
		cost->kept = fmin(input, kept);
		cost->recomputed = kept - cost->kept;
		break;
	case ADP_RECOMPUTE_SELECTIVE:
		cost->kept = kept - core;
		cost->recomputed = core;
		break;
	case ADP_RECOMPUTE_NONE:
	case ADP_N_RECOMPUTE:
		cost->kept = kept;
		cost->recomputed = 0.0;
		break;
	}

	/* Backward of the widest part: gradients of its inner tensors, the gathered input and its
	 * gradient. */
	const double whole = 2.0 * tokens * hidden * elem;
	/* Where KV heads are replicated, a rank first sees all queries of its KV head. */
	const double q_seen = block->n_kv_heads < ctx->tp
	                          ? heads * block->head_dim * ctx->tp / at_least_one(block->n_kv_heads)
	                          : q;
	double attention = whole + tokens * elem * (q_seen + 2.0 * kv);
	if (!ctx->opts->flash)
		attention += 2.0 * tokens * heads * ctx->seq * elem;
	const double inner = block->gated ? 3.0 : 2.0;
	double mlp = whole + tokens * elem * dense_width * inner;
	if (block->n_experts > 0)
		mlp += rows * elem * (2.0 * hidden + expert_width * inner);
	cost->transient = fmax(attention, mlp);
}

double adp_optimizer_moment_bytes(enum adp_optimizer optimizer)
{
	switch (optimizer) {
	case ADP_OPTIMIZER_ADAMW:
	case ADP_OPTIMIZER_ADAM:
		return 8.0;
	case ADP_OPTIMIZER_SGD_MOMENTUM:
		return 4.0;
	case ADP_OPTIMIZER_SGD:
		break;
	}
	return 0.0;
}

/* Bytes per parameter. */
struct rates {
	double weight, shard_weight, grad, optimizer;
};

static struct rates rates_of(const struct adp_engine *engine, const struct adp_train *train)
{
	const double moments = adp_optimizer_moment_bytes(train->optimizer);
	const double fp8 = engine->fp8_weight_bytes;

	switch (train->precision) {
	case ADP_PRECISION_FP32:
	case ADP_PRECISION_TF32:
		return (struct rates){4.0, 4.0, 4.0, moments};
	case ADP_PRECISION_FP16:
		return (struct rates){engine->weight_bytes, engine->zero3_weight_bytes,
		                      engine->fp16_grad_bytes, engine->fp16_master_bytes + moments};
	case ADP_PRECISION_FP8:
		return (struct rates){engine->weight_bytes + fp8, engine->zero3_weight_bytes,
		                      engine->grad_bytes, engine->master_bytes + moments};
	case ADP_PRECISION_BF16:
	case ADP_N_PRECISIONS:
		break;
	}
	return (struct rates){engine->weight_bytes, engine->zero3_weight_bytes, engine->grad_bytes,
	                      engine->master_bytes + moments};
}

struct states {
	double weights, gradients, optimizer, live, init_build, init_optimizer;
};

/* Rajbhandari et al. 2020, figure 1, for n parameters sharded over d ranks; live: those gathered at
 * once. */
static void add_states(struct states *sum, const struct rates *rates,
                       const struct adp_engine *engine, uint32_t zero, bool pipeline, double n,
                       double d, double live)
{
	if (d <= 1.0) {
		zero = 0;
		d = 1.0;
	}
	const bool whole_gradients = zero < 2 || (pipeline && engine->pipeline_defers_reduce);

	live = fmin(live, n);
	sum->weights += zero == 3 ? n * rates->shard_weight / d : n * rates->weight;
	sum->gradients += n * rates->grad / (whole_gradients ? 1.0 : d);
	sum->optimizer += n * rates->optimizer / (zero >= 1 ? d : 1.0);
	if (zero >= 2)
		sum->live += live * (rates->grad + (zero == 3 ? rates->weight : 0.0));
	if (zero < 3) /* ZeRO-3 builds without memory and fills shards */
		sum->init_build += n * engine->init_param_bytes;
	sum->init_optimizer += n * engine->init_optimizer_bytes / (zero >= 1 ? d : 1.0);
}

static uint64_t to_bytes(double x)
{
	const uint64_t limit = (uint64_t)1 << 60; /* nine of them still add up */

	return !(x > 0.0) ? 0 : x >= (double)limit ? limit : (uint64_t)ceil(x);
}

/* Sums over the items of a rank. */
struct sums {
	struct share params, largest, largest_block;
	double per_micro_batch; /* activations of every micro-batch in flight */
	double once;            /* of one micro-batch alone: final norm, head */
	double transient;       /* largest working set of one block */
	bool logits_here;
	/* The kinds of block met so far; a model has few, so layers look theirs up. */
	struct block_cost cached[4], spare;
	uint32_t n_cached;
	const struct block_cost *last;
};

static const struct block_cost *block_of(struct sums *sums, const struct context *ctx,
                                         const struct adp_item *item)
{
	if (sums->last && sums->last->block == item->block)
		return sums->last;
	for (uint32_t i = 0; i < sums->n_cached; i++) {
		if (sums->cached[i].block == item->block)
			return sums->last = &sums->cached[i];
	}

	const bool room = sums->n_cached < sizeof sums->cached / sizeof sums->cached[0];
	struct block_cost *cost = room ? &sums->cached[sums->n_cached++] : &sums->spare;
	cost->block = item->block;
	cost->params = params_of(ctx, item->params, item->n_params);
	block_activations(cost, ctx);
	sums->transient = fmax(sums->transient, cost->transient + cost->recomputed);
	sums->largest_block.dense = fmax(sums->largest_block.dense, cost->params.dense);
	sums->largest_block.experts = fmax(sums->largest_block.experts, cost->params.experts);
	return sums->last = cost;
}

static void add_item(struct sums *sums, const struct context *ctx, const struct adp_item *item)
{
	const double states = ctx->tokens * (double)ctx->model->hidden;
	struct share params;

	if (item->kind == ADP_ITEM_BLOCK) {
		const struct block_cost *cost = block_of(sums, ctx, item);
		params = cost->params;
		sums->per_micro_batch += cost->kept;
	} else {
		params = params_of(ctx, item->params, item->n_params);
	}
	switch (item->kind) {
	case ADP_ITEM_BLOCK:
		break;
	case ADP_ITEM_EMBEDDING:
		sums->per_micro_batch += states * ctx->engine->dropout_mask_bytes / ctx->sp;
		break;
	case ADP_ITEM_FINAL_NORM:
		sums->once += states * ctx->norm_bytes / ctx->sp;
		break;
	case ADP_ITEM_HEAD:
		if (ctx->model->tied_embeddings && ctx->opts->tied_head_here)
			params.dense += ctx->vocab_rows * (double)ctx->model->hidden;
		sums->once += states * ctx->elem / ctx->gathered;
		sums->logits_here = true;
		break;
	case ADP_ITEM_LOSS:
		sums->logits_here = true;
		break;
	}
	sums->params.dense += params.dense;
	sums->params.experts += params.experts;
	sums->largest.dense = fmax(sums->largest.dense, params.dense);
	sums->largest.experts = fmax(sums->largest.experts, params.experts);
}

/* Send and receive buffers of a pipeline; blocks of keys and values that context parallelism passes
 * round. */
static double transfer_buffers(const struct context *ctx, bool pipeline, double cp)
{
	double bytes = pipeline ? 2.0 * ctx->tokens * (double)ctx->model->hidden * ctx->elem / ctx->sp
	                        : 0.0;

	if (cp > 1.0 && ctx->model->n_blocks > 0) {
		const struct adp_block *block = &ctx->model->blocks[0];
		bytes += 4.0 * ctx->tokens * ctx->elem * at_least_one(block->n_kv_heads / ctx->tp) *
		         block->head_dim;
	}
	return bytes;
}

void adp_memory(struct adp_memory *out, const struct adp_engine *engine,
                const struct adp_model *model, const struct adp_train *train,
                const struct adp_shape *shape, const struct adp_rank_items *items,
                const struct adp_memory_opts *opts)
{
	const double tp = at_least_one(shape->tp), cp = at_least_one(shape->cp),
				 etp = at_least_one(shape->etp);
	const double sp = shape->sequence_parallel ? tp : 1.0;
	const bool wide = train->precision == ADP_PRECISION_FP32 ||
	                  train->precision == ADP_PRECISION_TF32;
	const double elem = wide ? 4.0 : 2.0;
	const double vocab_multiple = at_least_one(engine->vocab_multiple);
	const struct context ctx = {
		.engine = engine,
		.model = model,
		.opts = opts,
		.tokens = (double)shape->micro_batch_seqs * (double)train->seq_tokens / cp,
		.seq = (double)train->seq_tokens,
		.elem = elem,
		.norm_bytes = engine->norm_saved_bytes * (elem / 2.0),
		.tp = tp,
		.sp = sp,
		.gathered = engine->sp_keeps_gathered ? 1.0 : sp,
		.experts = at_least_one(shape->ep) * etp,
		.etp = etp,
		.expert_load = at_least_one(train->expert_load_factor),
		.vocab_multiple = vocab_multiple,
		.vocab_rows = ceil((double)model->vocab / (vocab_multiple * tp)) * vocab_multiple,
	};
	struct sums sums = {.n_cached = 0};
	uint32_t n_items = 0;

	for (uint32_t c = 0; c < items->n_chunks; c++) {
		for (uint32_t i = 0; i < items->n_items[c]; i++)
			add_item(&sums, &ctx, &model->items[items->first_item[c] + i]);
		n_items += items->n_items[c];
	}

	const bool pipeline = n_items < model->n_items;
	const struct rates rates = rates_of(engine, train);
	const double more_live = at_least_one(engine->zero3_live_blocks) - 1.0;
	struct states states = {0};
	add_states(&states, &rates, engine, opts->zero_stage, pipeline, sums.params.dense,
	           opts->shard_gpus, sums.largest.dense + more_live * sums.largest_block.dense);
	add_states(&states, &rates, engine, opts->zero_stage, pipeline, sums.params.experts,
	           opts->expert_shard_gpus,
	           sums.largest.experts + more_live * sums.largest_block.experts);

	const double logit_bytes = engine->logit_bytes + (wide ? 4.0 : 0.0);
	const double logits = sums.logits_here ? ctx.tokens * ctx.vocab_rows * logit_bytes : 0.0;
	const double activations = at_least_one(opts->in_flight) * sums.per_micro_batch + sums.once;
	/* The logits are gone before the first block's backward pass starts: it takes their room first.
	 */
	const double workspace = transfer_buffers(&ctx, pipeline, cp) +
	                         fmax(0.0, sums.transient - logits) +
	                         engine->fragmentation_frac * activations;

	out->weights = to_bytes(states.weights);
	out->gradients = to_bytes(states.gradients);
	out->optimizer = to_bytes(states.optimizer);
	out->activations = to_bytes(activations);
	out->live_window = to_bytes(states.live);
	out->buckets = to_bytes(engine->bucket_bytes);
	out->logits = to_bytes(logits);
	out->workspace = to_bytes(workspace);
	out->context = to_bytes(engine->context_bytes +
	                        engine->nccl_bytes_per_group * opts->n_comm_groups);
	out->steady_peak_bytes = out->weights + out->gradients + out->optimizer + out->activations +
	                         out->live_window + out->buckets + out->logits + out->workspace +
	                         out->context;

	/* Before the first step: the model as it is built, then its states and what making them needs.
	 */
	const double build = fmax(states.init_build, states.weights);
	const double create = states.weights + states.gradients + states.optimizer +
	                      states.init_optimizer;
	out->init_peak_bytes = to_bytes(fmax(build, create)) + out->buckets + out->context;
	out->peak_bytes = out->init_peak_bytes > out->steady_peak_bytes ? out->init_peak_bytes
	                                                                : out->steady_peak_bytes;
}

uint64_t adp_usable_bytes(const struct adp_engine *engine, const struct adp_gpu_type *gpu)
{
	const double usable = (double)gpu->memory_bytes * (1.0 - engine->reserve_frac);

	return usable > 0.0 ? (uint64_t)usable : 0;
}
