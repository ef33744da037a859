/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TEST_COST_MODELS_H
#define ADP_TEST_COST_MODELS_H

#include "adp/cost.h"

/* Models by hand: just what times depend on. */
struct hand_model {
	struct adp_model model;
	struct adp_block block;
	struct adp_item item[5]; /* one of each kind */
};

static inline void finish_model(struct hand_model *h)
{
	h->model.blocks = &h->block;
	h->model.n_blocks = 1;
	for (int i = 0; i < 5; i++)
		h->item[i] = (struct adp_item){.kind = (enum adp_item_kind)i,
		                               .block = i == ADP_ITEM_BLOCK ? &h->block : NULL};
}

/* Llama-2-70B: hidden 8192, 64 heads of 128, 8 of keys, MLP 28672, vocabulary 32000. */
static inline void llama2_70b(struct hand_model *h)
{
	*h = (struct hand_model){
		.model = {.name = "llama2-70b",
	              .hidden = 8192,
	              .vocab = 32000,
	              .embedding_width = 8192,
	              .n_layers = 80,
	              .rope_theta = 1e4},
		.block = {.name = "dense",
	              .n_heads = 64,
	              .n_kv_heads = 8,
	              .head_dim = 128,
	              .v_head_dim = 128,
	              .n_norms = 2,
	              .gated = true,
	              .ffn_hidden = 28672},
	};
	finish_model(h);
}

/* Llama-2-7B: hidden 4096, 32 heads of 128, MLP 11008, vocabulary 32000. */
static inline void llama2_7b(struct hand_model *h)
{
	*h = (struct hand_model){
		.model = {.name = "llama2-7b",
	              .hidden = 4096,
	              .vocab = 32000,
	              .embedding_width = 4096,
	              .n_layers = 32,
	              .rope_theta = 1e4},
		.block = {.name = "dense",
	              .n_heads = 32,
	              .n_kv_heads = 32,
	              .head_dim = 128,
	              .v_head_dim = 128,
	              .n_norms = 2,
	              .gated = true,
	              .ffn_hidden = 11008},
	};
	finish_model(h);
}

/* Mixtral-8x7B: hidden 4096, 32 heads of 128, 8 of keys, 8 experts of 14336, two chosen. */
static inline void mixtral(struct hand_model *h)
{
	*h = (struct hand_model){
		.model = {.name = "mixtral",
	              .hidden = 4096,
	              .vocab = 32000,
	              .embedding_width = 4096,
	              .n_layers = 32,
	              .rope_theta = 1e6},
		.block = {.name = "moe",
	              .n_heads = 32,
	              .n_kv_heads = 8,
	              .head_dim = 128,
	              .v_head_dim = 128,
	              .n_norms = 2,
	              .gated = true,
	              .n_experts = 8,
	              .top_k = 2,
	              .expert_ffn_hidden = 14336},
	};
	finish_model(h);
}

static inline struct adp_engine hand_engine(void)
{
	return (struct adp_engine){
		.name = "hand",
		.version = "1",
		.vocab_multiple = 128,
		.min_cc_flash = 80,
		.launch_s_per_block = 0.3e-3,
		.memory_traffic_frac = 1.6,
	};
}

#endif
