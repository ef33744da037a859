/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	MAX_BLOCK_PARAMS = 32,
	MAX_KINDS = 8
}; /* kinds: experts or not, window or not, whose KV heads */

/* Collects tensors of one block or item; a sum that reaches 2^63 is remembered, not wrapped. */
struct tensors {
	struct adp_arena *arena;
	struct adp_param param[MAX_BLOCK_PARAMS];
	uint32_t n;
	uint64_t total;
	bool overflow, nomem;
};

static void add(struct tensors *t, const char *name, const char *suffix, enum adp_shard shard,
                uint32_t n_copies, uint64_t rows, uint64_t cols, bool matmul)
{
	struct adp_param *param = &t->param[t->n];
	uint64_t count = 0;

	assert(t->n < MAX_BLOCK_PARAMS);
	*param = (struct adp_param){
		.shard = shard, .matmul = matmul, .n_copies = n_copies, .rows = rows, .cols = cols};
	param->name = adp_arena_printf(t->arena, "%s%s", name, suffix);
	t->nomem = t->nomem || !param->name;
	if (__builtin_mul_overflow(rows, cols, &count) ||
	    __builtin_mul_overflow(count, n_copies, &count) ||
	    __builtin_add_overflow(t->total, count, &t->total) || t->total > INT64_MAX)
		t->overflow = true;
	t->n++;
}

static void add_matrix(struct tensors *t, const char *name, enum adp_shard shard, uint64_t rows,
                       uint64_t cols, bool bias)
{
	add(t, name, ".weight", shard, 1, rows, cols, true);
	/* The bias of a row-split matrix is added once, after the sum over ranks. */
	if (bias)
		add(t, name, ".bias", shard == ADP_SHARD_ROW ? ADP_SHARD_REPLICATED : shard, 1, rows, 1,
		    false);
}

static void add_vector(struct tensors *t, const char *name, enum adp_shard shard, uint64_t n)
{
	add(t, name, ".weight", shard, 1, n, 1, false);
}

static void add_norm(struct tensors *t, const char *name, uint64_t n, enum norm_kind kind)
{
	add_vector(t, name, ADP_SHARD_REPLICATED, n);
	if (kind == NORM_LAYER)
		add(t, name, ".bias", ADP_SHARD_REPLICATED, 1, n, 1, false);
}

static void add_attention(struct tensors *t, const struct facts *f, bool window_kind)
{
	const struct names *names = f->family->names;
	uint64_t kv_heads = window_kind ? f->window_kv_heads : f->n_kv_heads;
	uint64_t q = (uint64_t)f->n_heads * f->head_dim, k = kv_heads * f->head_dim,
			 v = kv_heads * f->v_head_dim;

	if (names->qkv) {
		add_matrix(t, names->qkv, ADP_SHARD_COLUMN, q + k + v, f->hidden, f->qkv_bias);
	} else {
		add_matrix(t, names->q, ADP_SHARD_COLUMN, q, f->hidden, f->qkv_bias);
		add_matrix(t, names->k, ADP_SHARD_COLUMN, k, f->hidden, f->qkv_bias);
		add_matrix(t, names->v, ADP_SHARD_COLUMN, v, f->hidden, f->qkv_bias);
	}
	if (f->qk_norm) {
		bool full = f->family->qk_norm_kind == QK_NORM_FULL;
		add_vector(t, names->q_norm, ADP_SHARD_REPLICATED, full ? q : f->head_dim);
		add_vector(t, names->k_norm, ADP_SHARD_REPLICATED, full ? k : f->head_dim);
	}
	if (window_kind ? f->window_sinks : f->sinks)
		add(t, names->sinks, "", ADP_SHARD_COLUMN, 1, f->n_heads, 1, false);
	add_matrix(t, names->o, ADP_SHARD_ROW, f->hidden, (uint64_t)f->n_heads * f->v_head_dim,
	           f->out_bias);
}

static void add_mlp(struct tensors *t, const struct facts *f)
{
	const struct names *names = f->family->names;

	if (names->gate_up) {
		add_matrix(t, names->gate_up, ADP_SHARD_COLUMN, 2 * f->ffn, f->hidden, f->mlp_bias);
	} else {
		if (f->family->gated)
			add_matrix(t, names->gate, ADP_SHARD_COLUMN, f->ffn, f->hidden, f->mlp_bias);
		add_matrix(t, names->up, ADP_SHARD_COLUMN, f->ffn, f->hidden, f->mlp_bias);
	}
	add_matrix(t, names->down, ADP_SHARD_ROW, f->hidden, f->ffn, f->mlp_bias);
}

static void add_expert_matrix(struct tensors *t, const struct facts *f, const char *name,
                              uint64_t rows, uint64_t cols)
{
	bool biased = f->family->moe->biased;

	add(t, name, biased ? "" : ".weight", ADP_SHARD_EXPERT, f->n_experts, rows, cols, true);
	if (biased)
		add(t, name, "_bias", ADP_SHARD_EXPERT, f->n_experts, rows, 1, false);
}

static void add_experts(struct tensors *t, const struct facts *f)
{
	const struct names *names = f->family->names;

	add_matrix(t, names->router, ADP_SHARD_REPLICATED, f->n_experts, f->hidden,
	           f->family->moe->biased);
	if (names->expert_gate_up) {
		add_expert_matrix(t, f, names->expert_gate_up, 2 * f->expert_ffn, f->hidden);
	} else {
		add_expert_matrix(t, f, names->expert_gate, f->expert_ffn, f->hidden);
		add_expert_matrix(t, f, names->expert_up, f->expert_ffn, f->hidden);
	}
	add_expert_matrix(t, f, names->expert_down, f->hidden, f->expert_ffn);
	if (!f->shared_ffn)
		return;
	add_matrix(t, names->shared_gate, ADP_SHARD_COLUMN, f->shared_ffn, f->hidden, false);
	add_matrix(t, names->shared_up, ADP_SHARD_COLUMN, f->shared_ffn, f->hidden, false);
	add_matrix(t, names->shared_down, ADP_SHARD_ROW, f->hidden, f->shared_ffn, false);
	if (names->shared_router)
		add_matrix(t, names->shared_router, ADP_SHARD_REPLICATED, 1, f->hidden, false);
}

/* Copies the collected tensors into the arena. */
static int take(const struct adp_param **params, uint32_t *n, struct tensors *t,
                struct adp_error *err)
{
	struct adp_param *copy = adp_arena_calloc(t->arena, t->n, sizeof *copy);

	if (!copy || t->nomem)
		return adp_nomem(err);
	memcpy(copy, t->param, t->n * sizeof *copy);
	*params = copy;
	*n = t->n;
	t->n = 0;
	return ADP_OK;
}

static int build_block(struct adp_block *block, struct tensors *t, const struct facts *f,
                       const struct layer_facts *layer, struct adp_error *err)
{
	static const char *const kinds[2][2] = {{"dense", "dense-window"}, {"moe", "moe-window"}};

	*block = (struct adp_block){
		.name = kinds[layer->moe][layer->window_tokens != 0],
		.n_heads = f->n_heads,
		.n_kv_heads = layer->window_kind ? f->window_kv_heads : f->n_kv_heads,
		.head_dim = f->head_dim,
		.v_head_dim = f->v_head_dim,
		.window_tokens = layer->window_tokens,
		.parallel_residual = f->parallel,
		.n_norms = f->n_norms,
		.gated = f->family->gated,
	};
	for (uint32_t i = 0; i < f->n_norms; i++)
		add_norm(t, f->norm_names[i], f->hidden, f->family->norm);
	add_attention(t, f, layer->window_kind);
	if (layer->moe) {
		block->n_experts = f->n_experts;
		block->top_k = f->top_k;
		block->expert_ffn_hidden = f->expert_ffn;
		block->shared_ffn_hidden = f->shared_ffn;
		add_experts(t, f);
	} else {
		block->ffn_hidden = f->ffn;
		add_mlp(t, f);
	}
	return take(&block->params, &block->n_params, t, err);
}

static bool same_tensors(const struct layer_facts *a, const struct layer_facts *b)
{
	return a->moe == b->moe && a->window_kind == b->window_kind;
}

/* The index of the block for layers of this kind, built when it is the first. */
static int find_block(uint32_t *index, struct adp_block *blocks, struct layer_facts *kinds,
                      uint32_t *n, struct tensors *t, const struct facts *f,
                      const struct layer_facts *layer, struct adp_error *err)
{
	uint32_t twin = 0;
	int rc;

	for (*index = 0; *index < *n; (*index)++)
		if (same_tensors(&kinds[*index], layer) &&
		    kinds[*index].window_tokens == layer->window_tokens)
			return ADP_OK;
	assert(*n < MAX_KINDS);
	kinds[*n] = *layer;
	rc = build_block(&blocks[*n], t, f, layer, err);
	if (rc != ADP_OK)
		return rc;
	while (!same_tensors(&kinds[twin], layer))
		twin++;
	blocks[*n].params =
		blocks[twin].params; /* kinds that differ in the window alone share their tensors */
	(*n)++;
	return ADP_OK;
}

/* Blocks in the order of first use, and one item per layer. */
static int build_layers(struct adp_model *model, struct adp_item *items, struct tensors *t,
                        const struct facts *f, struct adp_error *err)
{
	struct layer_facts kinds[MAX_KINDS] = {0};
	struct adp_block *blocks = adp_arena_calloc(&model->arena, MAX_KINDS, sizeof *blocks);
	uint64_t outside = t->total, totals[MAX_KINDS] = {0};

	if (!blocks)
		return adp_nomem(err);
	for (uint32_t i = 0; i < f->n_layers; i++) {
		uint32_t index = 0, before = model->n_blocks;
		int rc;
		t->total = 0;
		rc = find_block(&index, blocks, kinds, &model->n_blocks, t, f, &f->layers[i], err);
		if (rc != ADP_OK)
			return rc;
		if (model->n_blocks > before)
			totals[index] = t->total;
		if (__builtin_add_overflow(outside, totals[index], &outside) || outside > INT64_MAX)
			t->overflow = true;
		items[i] = (struct adp_item){ADP_ITEM_BLOCK, i, &blocks[index], blocks[index].params,
		                             blocks[index].n_params};
	}
	t->total = outside;
	model->blocks = blocks;
	return ADP_OK;
}

static int build_embedding(struct adp_item *item, struct tensors *t, const struct facts *f,
                           struct adp_error *err)
{
	const struct names *names = f->family->names;

	add(t, names->embed, ".weight", ADP_SHARD_VOCAB, 1, f->vocab, f->embedding_width, false);
	if (f->family->learned_positions)
		add(t, names->positions, ".weight", ADP_SHARD_REPLICATED, 1,
		    f->positions + f->family->position_offset, f->hidden, false);
	if (f->embedding_width != f->hidden)
		add_matrix(t, names->project_in, ADP_SHARD_REPLICATED, f->hidden, f->embedding_width,
		           false);
	if (f->family->embedding_norm)
		add_norm(t, names->embed_norm, f->hidden, f->family->norm);
	item->kind = ADP_ITEM_EMBEDDING;
	return take(&item->params, &item->n_params, t, err);
}

static int build_head(struct adp_item *item, struct tensors *t, const struct facts *f,
                      struct adp_error *err)
{
	const struct names *names = f->family->names;

	if (f->embedding_width != f->hidden)
		add_matrix(t, names->project_out, ADP_SHARD_REPLICATED, f->embedding_width, f->hidden,
		           false);
	if (!f->tied)
		add(t, names->head, ".weight", ADP_SHARD_VOCAB, 1, f->vocab, f->embedding_width, true);
	if (f->head_bias)
		add(t, names->head, ".bias", ADP_SHARD_VOCAB, 1, f->vocab, 1, false);
	item->kind = ADP_ITEM_HEAD;
	return take(&item->params, &item->n_params, t, err);
}

static int build_items(struct adp_model *model, const struct facts *f, struct adp_error *err)
{
	struct tensors t = {.arena = &model->arena};
	struct adp_item *items = adp_arena_calloc(&model->arena, (size_t)f->n_layers + 4,
	                                          sizeof *items),
					*next;
	int rc;

	if (!items)
		return adp_nomem(err);
	rc = build_embedding(&items[0], &t, f, err);
	if (rc == ADP_OK)
		rc = build_layers(model, &items[1], &t, f, err);
	if (rc != ADP_OK)
		return rc;
	next = &items[1 + f->n_layers];
	if (f->final_norm)
		add_norm(&t, f->family->names->final_norm, f->hidden, f->family->norm);
	next->kind = ADP_ITEM_FINAL_NORM;
	rc = take(&next->params, &next->n_params, &t, err);
	if (rc == ADP_OK)
		rc = build_head(++next, &t, f, err);
	if (rc != ADP_OK)
		return rc;
	(++next)->kind = ADP_ITEM_LOSS;
	if (t.overflow)
		return adp_fail(
			err, ADP_EINVAL,
			"the sizes multiply to 2^63 parameters or more; expected those of one model: check "
			"hidden size, widths, layers and experts");
	model->items = items;
	model->n_items = f->n_layers + 4;
	return ADP_OK;
}

static int compare_traits(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int build_traits(struct adp_model *model, const struct facts *f, struct adp_error *err)
{
	bool windows = false, mixed = false, experts = false;
	const struct moe *moe = f->family->moe;
	const char **traits = adp_arena_calloc(&model->arena, 32, sizeof *traits);
	uint32_t n = 0;

	if (!traits)
		return adp_nomem(err);
	for (uint32_t i = 0; i < f->n_layers; i++) {
		windows = windows || f->layers[i].window_tokens;
		mixed = mixed || f->layers[i].window_tokens != f->layers[0].window_tokens;
		experts = experts || f->layers[i].moe;
	}
	const struct {
		bool has;
		const char *name;
	} known[] = {
		{f->alibi, "alibi"},
		{f->sinks || (f->window_sinks && windows), "attention-sinks"},
		{f->family->embedding_norm, "embedding-norm"},
		{f->embedding_width != f->hidden, "embedding-projection"},
		{experts && moe->biased, "expert-bias"},
		{f->qk_norm && f->family->qk_norm_kind == QK_NORM_FULL, "full-width-qk-norm"},
		{f->head_bias, "head-bias"},
		{f->softcap, "logit-softcap"},
		{mixed, "mixed-windows"},
		{f->parallel, "parallel-residual"},
		{f->partial_rotary && f->theta > 0, "partial-rotary"},
		{f->norms_after, "post-norms"},
		{f->scaled_rope, "rope-scaling"},
		{f->n_norms == 4, "sandwich-norms"},
		{experts && f->shared_ffn && f->family->names->shared_router && moe->shared == SHARED_WIDTH,
	     "shared-expert-gate"},
		{f->v_head_dim != f->head_dim, "unequal-value-heads"},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (known[i].has)
			traits[n++] = known[i].name;
	if (f->llama3_factor > 0 && f->theta > 0) {
		traits[n] = adp_arena_printf(&model->arena, "llama3-rope-scaling-%g", f->llama3_factor);
		if (!traits[n++])
			return adp_nomem(err);
	}
	for (size_t i = 0; i < 3 && f->family->traits[i]; i++)
		traits[n++] = f->family->traits[i];
	qsort(traits, n, sizeof *traits, compare_traits);
	model->traits = traits;
	model->n_traits = n;
	return ADP_OK;
}

int model_build(struct adp_model *model, const struct facts *f, struct adp_error *err)
{
	int rc;

	model->family = f->family->model_type;
	model->hidden = f->hidden;
	model->vocab = f->vocab;
	model->max_seq_tokens = f->positions;
	model->embedding_width = f->embedding_width;
	model->n_layers = f->n_layers;
	model->tied_embeddings = f->tied;
	model->learned_positions = f->family->learned_positions;
	model->norm = f->family->norm == NORM_RMS ? "rmsnorm" : "layernorm";
	model->activation = f->activation;
	model->qkv_bias = f->qkv_bias;
	model->out_bias = f->out_bias;
	model->mlp_bias = f->mlp_bias;
	model->qk_norm = f->qk_norm;
	model->rope_theta = f->theta;
	rc = build_items(model, f, err);
	if (rc == ADP_OK)
		rc = build_traits(model, f, err);
	return rc;
}
