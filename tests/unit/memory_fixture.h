/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "adp/cost.h"

enum { FIXTURE_MAX_ITEMS = 256, FIXTURE_MAX_PARAMS = 24 };

/* A decoder put together by hand: no reader of files takes part in these tests. */
struct fixture {
	struct adp_model model;
	struct adp_block blocks[2];
	struct adp_param params[2][FIXTURE_MAX_PARAMS];
	struct adp_param embedding[2], final_norm[2], head[1];
	struct adp_item items[FIXTURE_MAX_ITEMS];
};

/* Zero where a part is absent. */
struct fixture_spec {
	uint32_t layers, heads, kv_heads, head_dim;
	uint64_t hidden, ffn, vocab, positions;
	bool gated, tied, biases;
	uint32_t experts, top_k, dense_layers; /* the first dense_layers of a routed model are dense */
	uint64_t expert_ffn, shared_ffn;
};

static inline void fixture_param(struct adp_param *params, uint32_t *n, const char *name,
                                 enum adp_shard shard, uint32_t copies, uint64_t rows,
                                 uint64_t cols)
{
	params[(*n)++] = (struct adp_param){.name = name,
	                                    .shard = shard,
	                                    .matmul = cols > 1,
	                                    .n_copies = copies,
	                                    .rows = rows,
	                                    .cols = cols};
}

static inline void fixture_block(struct fixture *f, int index, const struct fixture_spec *s,
                                 bool moe)
{
	struct adp_param *p = f->params[index];
	uint32_t n = 0;
	const uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim,
				   h = s->hidden;

	fixture_param(p, &n, "input_norm", ADP_SHARD_REPLICATED, 1, h, 1);
	fixture_param(p, &n, "q", ADP_SHARD_COLUMN, 1, q, h);
	fixture_param(p, &n, "k", ADP_SHARD_COLUMN, 1, kv, h);
	fixture_param(p, &n, "v", ADP_SHARD_COLUMN, 1, kv, h);
	fixture_param(p, &n, "o", ADP_SHARD_ROW, 1, h, q);
	fixture_param(p, &n, "post_norm", ADP_SHARD_REPLICATED, 1, h, 1);
	if (s->biases) {
		fixture_param(p, &n, "input_norm_bias", ADP_SHARD_REPLICATED, 1, h, 1);
		fixture_param(p, &n, "post_norm_bias", ADP_SHARD_REPLICATED, 1, h, 1);
		fixture_param(p, &n, "qkv_bias", ADP_SHARD_COLUMN, 1, q + 2 * kv, 1);
		fixture_param(p, &n, "o_bias", ADP_SHARD_REPLICATED, 1, h, 1);
		fixture_param(p, &n, "up_bias", ADP_SHARD_COLUMN, 1, s->ffn, 1);
		fixture_param(p, &n, "down_bias", ADP_SHARD_REPLICATED, 1, h, 1);
	}
	if (moe) {
		fixture_param(p, &n, "router", ADP_SHARD_REPLICATED, 1, s->experts, h);
		fixture_param(p, &n, "expert_in", ADP_SHARD_EXPERT, s->experts,
		              s->expert_ffn * (s->gated ? 2 : 1), h);
		fixture_param(p, &n, "expert_out", ADP_SHARD_EXPERT, s->experts, h, s->expert_ffn);
		if (s->shared_ffn) {
			fixture_param(p, &n, "shared_in", ADP_SHARD_COLUMN, 1,
			              s->shared_ffn * (s->gated ? 2 : 1), h);
			fixture_param(p, &n, "shared_out", ADP_SHARD_ROW, 1, h, s->shared_ffn);
		}
	} else {
		fixture_param(p, &n, "up", ADP_SHARD_COLUMN, 1, s->ffn * (s->gated ? 2 : 1), h);
		fixture_param(p, &n, "down", ADP_SHARD_ROW, 1, h, s->ffn);
	}
	assert_true(n <= FIXTURE_MAX_PARAMS);
	f->blocks[index] = (struct adp_block){.name = moe ? "moe" : "dense",
	                                      .params = p,
	                                      .n_params = n,
	                                      .n_heads = s->heads,
	                                      .n_kv_heads = s->kv_heads,
	                                      .head_dim = s->head_dim,
	                                      .n_norms = 2,
	                                      .gated = s->gated,
	                                      .ffn_hidden = moe ? 0 : s->ffn,
	                                      .n_experts = moe ? s->experts : 0,
	                                      .top_k = moe ? s->top_k : 0,
	                                      .expert_ffn_hidden = moe ? s->expert_ffn : 0,
	                                      .shared_ffn_hidden = moe ? s->shared_ffn : 0};
}

static inline void fixture_init(struct fixture *f, const struct fixture_spec *s)
{
	uint32_t n = 0, e = 0, fn = 0, hd = 0;

	memset(f, 0, sizeof *f);
	assert_true(s->layers + 4 <= FIXTURE_MAX_ITEMS);
	fixture_block(f, 0, s, s->experts > 0);
	fixture_block(f, 1, s, false);
	fixture_param(f->embedding, &e, "embedding", ADP_SHARD_VOCAB, 1, s->vocab, s->hidden);
	if (s->positions)
		fixture_param(f->embedding, &e, "positions", ADP_SHARD_REPLICATED, 1, s->positions,
		              s->hidden);
	fixture_param(f->final_norm, &fn, "norm", ADP_SHARD_REPLICATED, 1, s->hidden, 1);
	if (s->biases)
		fixture_param(f->final_norm, &fn, "norm_bias", ADP_SHARD_REPLICATED, 1, s->hidden, 1);
	if (!s->tied)
		fixture_param(f->head, &hd, "head", ADP_SHARD_VOCAB, 1, s->vocab, s->hidden);

	f->items[n++] = (struct adp_item){
		.kind = ADP_ITEM_EMBEDDING, .params = f->embedding, .n_params = e};
	for (uint32_t i = 0; i < s->layers; i++) {
		const struct adp_block *block = &f->blocks[s->experts > 0 && i < s->dense_layers ? 1 : 0];
		f->items[n++] = (struct adp_item){.kind = ADP_ITEM_BLOCK,
		                                  .layer = i,
		                                  .block = block,
		                                  .params = block->params,
		                                  .n_params = block->n_params};
	}
	f->items[n++] = (struct adp_item){
		.kind = ADP_ITEM_FINAL_NORM, .params = f->final_norm, .n_params = fn};
	f->items[n++] = (struct adp_item){.kind = ADP_ITEM_HEAD, .params = f->head, .n_params = hd};
	f->items[n++] = (struct adp_item){.kind = ADP_ITEM_LOSS};
	f->model = (struct adp_model){.name = "fixture",
	                              .hidden = s->hidden,
	                              .vocab = s->vocab,
	                              .n_layers = s->layers,
	                              .tied_embeddings = s->tied,
	                              .blocks = f->blocks,
	                              .n_blocks = 2,
	                              .items = f->items,
	                              .n_items = n};
}

static inline double fixture_params(const struct fixture *f)
{
	double sum = 0.0;

	for (uint32_t i = 0; i < f->model.n_items; i++) {
		for (uint32_t k = 0; k < f->items[i].n_params; k++) {
			const struct adp_param *p = &f->items[i].params[k];
			sum += (double)p->n_copies * (double)p->rows * (double)p->cols;
		}
	}
	return sum;
}

/* All arguments of adp_memory but the engine; fixture_case gives one GPU, one sequence of 1024
 * tokens, bf16, AdamW, flash. */
struct fixture_run {
	struct adp_train train;
	struct adp_shape shape;
	struct adp_memory_opts opts;
	uint32_t first_item, n_items; /* n_items 0: the whole model */
};

static inline struct fixture_run fixture_run(void)
{
	return (struct fixture_run){
		.train = {.seq_tokens = 1024,
	              .precision = ADP_PRECISION_BF16,
	              .optimizer = ADP_OPTIMIZER_ADAMW},
		.shape = {.tp = 1,
	              .cp = 1,
	              .ep = 1,
	              .etp = 1,
	              .micro_batch_seqs = 1,
	              .precision = ADP_PRECISION_BF16},
		.opts = {.shard_gpus = 1, .expert_shard_gpus = 1, .in_flight = 1, .flash = true}};
}

static inline struct adp_memory fixture_memory(const struct adp_engine *engine,
                                               const struct fixture *f,
                                               const struct fixture_run *run)
{
	const uint32_t first = run->first_item, n = run->n_items ? run->n_items : f->model.n_items;
	const struct adp_rank_items items = {.n_chunks = 1, .first_item = &first, .n_items = &n};
	struct adp_memory memory;

	adp_memory(&memory, engine, &f->model, &run->train, &run->shape, &items, &run->opts);
	return memory;
}

static inline struct adp_engine *fixture_engine(const char *spec)
{
	struct adp_engine *engine = NULL;
	struct adp_error err = {0};

	if (adp_engine_load(&engine, spec, NULL, &err))
		fail_msg("%s", err.text);
	return engine;
}

#endif
