/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_MODEL_H
#define ADP_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adp/arena.h"
#include "adp/error.h"

/* How tensor (or expert) parallelism splits a parameter. */
enum adp_shard {
	ADP_SHARD_REPLICATED, /* whole on every rank: norms, router, biases of row-split layers */
	ADP_SHARD_COLUMN,     /* output rows divided by TP: q, k, v, gate, up */
	ADP_SHARD_ROW,        /* input columns divided by TP: attention output, down */
	ADP_SHARD_VOCAB,      /* vocabulary rows divided by TP, padded: embedding, head */
	ADP_SHARD_EXPERT,     /* routed experts: divided by EP, and by the experts' own TP */
};

/* One parameter tensor, or n_copies equal ones (experts). */
struct adp_param {
	const char *name; /* the checkpoint's own name without the layer prefix */
	enum adp_shard shard;
	bool matmul;       /* takes part in a matrix multiplication of the forward pass */
	uint32_t n_copies; /* routed experts, else 1 */
	uint64_t rows;     /* output features, or length of a vector */
	uint64_t cols;     /* input features, 1 for a vector */
};

/* The shape of one kind of transformer block. A model has few; many layers share one. */
struct adp_block {
	const char *name; /* "dense", "moe" */
	const struct adp_param *params;
	uint32_t n_params;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t window_tokens;       /* sliding-window attention; 0 = full causal attention */
	uint32_t n_norms;             /* norm operators run per block, QK norms excluded */
	bool gated;                   /* three matrices (SwiGLU, GeGLU) against two */
	uint64_t ffn_hidden;          /* dense MLP width; 0 in a pure MoE block */
	uint32_t n_experts, top_k;    /* routed experts; 0 in a dense block */
	uint64_t expert_ffn_hidden;   /* width of one routed expert */
	uint64_t shared_ffn_hidden;   /* total width of the shared experts; 0 = none */
};

enum adp_item_kind {
	ADP_ITEM_EMBEDDING,
	ADP_ITEM_BLOCK,
	ADP_ITEM_FINAL_NORM,
	ADP_ITEM_HEAD,
	ADP_ITEM_LOSS,
};

/* What a pipeline is cut into, in order. */
struct adp_item {
	enum adp_item_kind kind;
	uint32_t layer; /* of a block: 0 .. n_layers - 1 */
	const struct adp_block *block; /* of a block, else NULL */
	const struct adp_param *params; /* of this item; a tied head has none of its own */
	uint32_t n_params;
};

/*
 * A decoder as a list of items: embedding, n_layers blocks, final norm, head, loss.
 * Immutable after reading; owned by adp_model_destroy.
 */
struct adp_model {
	struct adp_arena arena;
	const char *name;   /* catalogue name, or the file's */
	const char *family; /* the config's model_type */
	const char *digest; /* of the meaning, not of the bytes: same for shuffled keys */
	uint64_t hidden, vocab, max_seq_tokens;
	uint32_t n_layers;
	bool tied_embeddings;
	bool learned_positions; /* position table of max_seq_tokens rows inside the embedding item */
	const char *norm;       /* "rmsnorm" or "layernorm" */
	const char *activation; /* hidden_act as written */
	bool qkv_bias, out_bias, mlp_bias, qk_norm;
	double rope_theta;      /* 0 without rotary positions */
	const struct adp_block *blocks;
	uint32_t n_blocks;
	const struct adp_item *items;
	uint32_t n_items;
	const char *const *notes; /* keys that were absent and the value assumed; vision part left out; ... */
	uint32_t n_notes;
};

/*
 * Reads a Hugging Face config.json. where names the source in errors. Fails with ADP_EINVAL
 * naming the field that stopped it (unknown family, missing or contradictory key, size out
 * of range). Runs no code named by the config.
 */
int adp_model_read(struct adp_model **out, const char *json, size_t len, const char *where,
                   struct adp_error *err);

/* spec: "-" (standard input), a path, or a name from the built-in catalogue. */
int adp_model_load(struct adp_model **out, const char *spec, struct adp_error *err);
void adp_model_destroy(struct adp_model *model);

/* Catalogue: NULL-terminated list of names, static. */
const char *const *adp_model_catalogue(void);

/* Exact counts. A tied head counts once (in the embedding). */
uint64_t adp_param_count(const struct adp_param *param);
uint64_t adp_item_params(const struct adp_item *item);
uint64_t adp_model_params(const struct adp_model *model);
uint64_t adp_model_active_params(const struct adp_model *model); /* top_k of the routed experts */

/*
 * Model FLOPs of one token's forward pass through an item, at a sequence length, with the
 * causal half of attention (window respected): 2 per multiply-add. A look-up costs 0 and the
 * head is always counted, tied or not. Backward is twice this.
 */
double adp_item_flops(const struct adp_model *model, const struct adp_item *item, uint64_t seq_tokens);
double adp_model_flops(const struct adp_model *model, uint64_t seq_tokens);

/*
 * Bytes of activations one token of a block keeps for its backward pass without
 * recomputation at 2 bytes per element, TP 1, with a flash kernel (no scores kept).
 * cost/memory.c has the split by TP, kernel and recomputation.
 */
double adp_item_activation_bytes(const struct adp_model *model, const struct adp_item *item);

/*
 * Degrees that divide a dimension, ascending, in the arena of the caller.
 * heads: TP without KV replication (divides heads, kv heads, ffn widths);
 * heads_kv_repl: TP where the engine replicates KV heads; experts: EP; layers: uniform PP.
 */
struct adp_degrees {
	const uint32_t *value;
	uint32_t n;
};
struct adp_divisors {
	struct adp_degrees tp, tp_kv_replicated, ep, pp_uniform;
};
int adp_model_divisors(struct adp_divisors *out, const struct adp_model *model,
                       struct adp_arena *arena, struct adp_error *err);

#endif
