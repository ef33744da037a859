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
	const char *name; /* "dense", "moe"; "dense-window", "moe-window" where layers differ in it */
	const struct adp_param *params;
	uint32_t n_params;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t v_head_dim;        /* width of a value head; equals head_dim but in a few families */
	uint32_t window_tokens;     /* sliding-window attention; 0 = full causal attention */
	bool parallel_residual;     /* attention and MLP read the same input */
	uint32_t n_norms;           /* norm operators run per block, QK norms excluded */
	bool gated;                 /* three matrices (SwiGLU, GeGLU) against two */
	uint64_t ffn_hidden;        /* dense MLP width; 0 in a pure MoE block */
	uint32_t n_experts, top_k;  /* routed experts; 0 in a dense block */
	uint64_t expert_ffn_hidden; /* width of one routed expert */
	uint64_t shared_ffn_hidden; /* total width of the shared experts; 0 = none */
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
	uint32_t layer;                 /* of a block: 0 .. n_layers - 1 */
	const struct adp_block *block;  /* of a block, else NULL */
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
	uint64_t hidden, vocab;
	uint64_t max_seq_tokens;  /* 0 = the config states no limit */
	uint64_t embedding_width; /* columns of the embedding and of the head's matrix; hidden but in
	                             OPT-350M */
	uint32_t n_layers;
	bool tied_embeddings;
	bool learned_positions; /* a table of positions stands in the embedding item */
	const char *norm;       /* "rmsnorm" or "layernorm" */
	const char *activation; /* hidden_act as written */
	bool qkv_bias, out_bias, mlp_bias, qk_norm;
	double rope_theta; /* 0 without rotary positions */
	const struct adp_block *blocks;
	uint32_t n_blocks;
	const struct adp_item *items;
	uint32_t n_items;
	/*
	 * What sets the model apart from the plain decoder (pre-norm, sequential residual, rotary
	 * positions of the whole head, one kind of attention), sorted: "attention-sinks",
	 * "sandwich-norms", ... An engine that cannot express one must refuse the model. docs/models.md
	 * lists them.
	 */
	const char *const *traits;
	uint32_t n_traits;
	const char *const
		*notes; /* keys that were absent and the value assumed, keys left out of account */
	uint32_t n_notes;
};

/*
 * Reads a Hugging Face config.json. where names the source in errors. Fails with ADP_EINVAL
 * naming the field that stopped it (unknown family, missing or contradictory key, size out
 * of range). Runs no code named by the config.
 */
int adp_model_read(struct adp_model **out, const char *json, size_t len, const char *where,
                   struct adp_error *err);

/*
 * spec: "-" (standard input), a name from the built-in catalogue (upper or lower case), else the
 * path of a config.json or of a folder that holds one. A path with '/' is never taken for a name.
 */
int adp_model_load(struct adp_model **out, const char *spec, struct adp_error *err);
void adp_model_destroy(struct adp_model *model);

/* Catalogue: NULL-terminated list of names, static. */
const char *const *adp_model_catalogue(void);

bool adp_model_has_trait(const struct adp_model *model, const char *trait);

/*
 * Exact counts. A tied head counts once (in the embedding). No overflow: a config whose
 * total reaches 2^63 was refused by the reader.
 */
uint64_t adp_param_count(const struct adp_param *param);
uint64_t adp_item_params(const struct adp_item *item);
uint64_t adp_model_params(const struct adp_model *model);
uint64_t adp_model_active_params(const struct adp_model *model); /* top_k of the routed experts */

/*
 * Model FLOPs of one token's forward pass through an item, at a sequence length: 2 per multiply-add
 * of the matrix multiplications. Attention is causal: a token sees (s + 1) / 2 keys on average,
 * fewer with a window. A look-up costs 0 and the head is always counted, tied or not. Backward is
 * twice this.
 */
double adp_mean_keys(uint64_t seq_tokens, uint32_t window_tokens);
double adp_item_flops(const struct adp_model *model, const struct adp_item *item,
                      uint64_t seq_tokens);
double adp_model_flops(const struct adp_model *model, uint64_t seq_tokens);

/*
 * Bytes of activations one token keeps for the backward pass without recomputation at 2 bytes
 * per element, TP 1, with a flash kernel (no scores kept), no dropout: for a plain GPT block the 34
 * s b h of Korthikanti et al. 2022, table 2, less its two masks of 1 byte = 32 h. Head: its input;
 * loss: fp32 probabilities, 4 * vocab. cost/memory.c has the split by TP, kernel and recomputation.
 */
double adp_item_activation_bytes(const struct adp_model *model, const struct adp_item *item);

/*
 * Degrees that divide a dimension, ascending, in the arena of the caller.
 * tp: divides heads, KV heads and the widths of dense and shared MLPs of every block (routed
 * experts have their own tensor degree; the vocabulary is padded, so it limits nothing);
 * tp_kv_replicated: the same, but a multiple of the KV heads is fine too, for engines that
 * replicate them; ep: divides the routed experts ({1} in a dense model); pp_uniform: divides the
 * layers.
 */
struct adp_degrees {
	const uint32_t *value;
	uint32_t n;
};
struct adp_divisors {
	struct adp_degrees tp, tp_kv_replicated, ep, pp_uniform;
};
bool adp_degrees_has(const struct adp_degrees *degrees, uint32_t value);
int adp_model_divisors(struct adp_divisors *out, const struct adp_model *model,
                       struct adp_arena *arena, struct adp_error *err);

#endif
