/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_MODEL_FAMILY_H
#define ADP_MODEL_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The table of model families: how each writes its config and which tensors its blocks hold. One
 * row per model_type; one reader (read.c) and one builder (tensors.c) serve all rows.
 */

enum { MAX_ALIASES = 3, MAX_BLOCK_NORMS = 4 };

/* Names a value may be written under; the first one present counts. All NULL: the family has no
 * such key. */
struct key {
	const char *name[MAX_ALIASES];
};

struct keys {
	struct key hidden, layers, heads, kv_heads, head_dim, ffn, vocab, positions, activation, theta;
};

/* A property that is fixed (key NULL) or that the config decides (value = the class's default). */
struct toggle {
	const char *key;
	bool value;
};

enum norm_kind {
	NORM_RMS,   /* weight */
	NORM_LAYER, /* weight and bias */
};

enum kv_rule {
	KV_REQUIRED,  /* the class's default is the size of one model: absent is refused */
	KV_OR_HEADS,  /* absent: as many as query heads */
	KV_ALL_HEADS, /* the family has multi-head attention only */
	KV_FALCON,    /* new_decoder_architecture: num_kv_heads; else multi_query: 1 */
	KV_CHATGLM,   /* multi_query_attention: multi_query_group_num */
};

enum norms_rule {
	NORMS_PRE,      /* before attention and before the MLP */
	NORMS_SHARED,   /* one, feeding attention and MLP in parallel */
	NORMS_SANDWICH, /* before and after both */
	NORMS_AFTER,    /* after both, on the branch */
	NORMS_STABLELM, /* PRE, or SHARED with use_parallel_residual */
	NORMS_NEOX,     /* two; use_parallel_residual only changes the wiring */
	NORMS_FALCON,   /* by parallel_attn, new_decoder_architecture and num_ln_in_parallel_attn */
	NORMS_OPT,      /* PRE; do_layer_norm_before false moves them and drops the final one */
};

enum qk_norm_kind {
	QK_NORM_HEAD, /* one vector of head_dim for all heads */
	QK_NORM_FULL, /* over all heads together */
};

enum window_rule {
	WINDOW_NONE,
	WINDOW_ALL,      /* sliding_window holds in every layer */
	WINDOW_SWITCHED, /* use_sliding_window, from max_window_layers on or by layer_types */
	WINDOW_PATTERN,  /* by layer_types, else all but every window_period-th layer */
	WINDOW_MIMO,     /* by hybrid_layer_pattern; window layers have their own KV heads and sinks */
};

enum moe_layers {
	MOE_ALL,
	MOE_FIRST_DENSE, /* first_k_dense_replace, then every moe_layer_freq-th */
	MOE_SPARSE_STEP, /* decoder_sparse_step and mlp_only_layers */
	MOE_LIST,        /* moe_layer_freq is a list of 0 and 1 */
};

enum shared_rule {
	SHARED_NONE,
	SHARED_COUNT, /* n_shared_experts experts of moe_intermediate_size */
	SHARED_WIDTH, /* shared_expert_intermediate_size, with a gate of its own */
};

struct moe {
	struct key n_experts, top_k, expert_ffn;
	enum moe_layers layers;
	enum shared_rule shared;
	bool optional; /* no experts: a dense model of the same family */
	bool biased;   /* router and experts have biases */
};

/* Tensor names of a checkpoint without the layer prefix; NULL: the family has none. qkv and gate_up
 * are fused. */
struct names {
	const char *embed, *positions, *embed_norm, *project_in, *project_out, *final_norm, *head;
	const char *q, *k, *v, *qkv, *o, *q_norm, *k_norm, *sinks;
	const char *gate, *up, *gate_up, *down;
	const char *norms[MAX_BLOCK_NORMS];
	const char *router, *expert_gate, *expert_up, *expert_gate_up, *expert_down;
	const char *shared_gate, *shared_up, *shared_down, *shared_router;
};

struct family {
	const char *model_type;
	const struct keys *keys;
	const struct names *names;
	const char *activation; /* when the config names none */
	double theta;           /* rotary base when the config names none; 0: no rotary positions */
	enum norm_kind norm;
	enum norms_rule norms;
	enum kv_rule kv;
	bool head_dim_required; /* the class's default is not hidden / heads */
	bool gated;
	uint32_t ffn_times_hidden; /* absent MLP width = this * hidden; 0: the width is required */
	struct toggle qkv_bias, out_bias, mlp_bias, tied, qk_norm, head_bias;
	enum qk_norm_kind qk_norm_kind;
	const char *extra_bias_key; /* ChatGLM: also switches the biases of q, k and v on */
	bool learned_positions;
	uint32_t position_offset; /* rows beyond the positions */
	bool embedding_norm;
	bool alibi;
	bool partial_rotary; /* the class's default when the config does not say */
	bool sinks;          /* one learned logit per head in every layer */
	enum window_rule windows;
	uint32_t window_period;  /* WINDOW_PATTERN */
	uint64_t window_default; /* sliding_window absent (not null): the class's default; 0 = none */
	const struct moe *moe;
	const char *traits[3]; /* beyond those that follow from the fields above */
	const char *source;    /* where the row was read from */
};

/* NULL when unknown. */
const struct family *family_find(const char *model_type);
extern const struct family family_table[];
extern const unsigned family_count;

/* Why a known kind of model is not read; NULL when the type is not known at all. */
const char *family_refusal(const char *model_type);

/*
 * Keys that change the count or the meaning of a model. Set to something (not null, false, 0 or
 * empty) in a config whose family does not use them, they stop the reader. Both lists end with a
 * NULL name.
 */
struct structural_key {
	const char *name;
	const char *why;
};
extern const struct structural_key
	foreign_keys[]; /* no family of the table has such a thing, or few do */
extern const struct structural_key
	structural_keys[]; /* ordinary, but this family's tensors don't follow it */

/* Keys that neither change a count nor a shape. Names that begin with '_' count as such. */
bool key_is_harmless(const char *name);

#endif
