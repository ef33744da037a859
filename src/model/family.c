/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

#include <string.h>

#define K(...)                                                                                     \
	{                                                                                              \
		{                                                                                          \
			__VA_ARGS__                                                                            \
		}                                                                                          \
	}
#define NEVER                                                                                      \
	{                                                                                              \
		NULL, false                                                                                \
	}
#define ALWAYS                                                                                     \
	{                                                                                              \
		NULL, true                                                                                 \
	}
#define UNLESS(k)                                                                                  \
	{                                                                                              \
		k, true                                                                                    \
	}
#define IF(k)                                                                                      \
	{                                                                                              \
		k, false                                                                                   \
	}

/* ---- how a config writes its sizes ------------------------------------------------- */

#define COMMON_KEYS                                                                                \
	.hidden = K("hidden_size"), .layers = K("num_hidden_layers"),                                  \
	.heads = K("num_attention_heads"), .kv_heads = K("num_key_value_heads"),                       \
	.head_dim = K("head_dim"), .ffn = K("intermediate_size"), .vocab = K("vocab_size"),            \
	.positions = K("max_position_embeddings"), .theta = K("rope_theta")

static const struct keys keys_common = {COMMON_KEYS, .activation = K("hidden_act")};
static const struct keys keys_gemma = {COMMON_KEYS,
                                       .activation = K("hidden_activation", "hidden_act")};
static const struct keys keys_neox = {
	.hidden = K("hidden_size"),
	.layers = K("num_hidden_layers"),
	.heads = K("num_attention_heads"),
	.ffn = K("intermediate_size"),
	.vocab = K("vocab_size"),
	.positions = K("max_position_embeddings"),
	.activation = K("hidden_act"),
	.theta = K("rotary_emb_base", "rope_theta"),
};
static const struct keys keys_gpt2 = {
	.hidden = K("n_embd", "hidden_size"),
	.layers = K("n_layer", "num_hidden_layers"),
	.heads = K("n_head", "num_attention_heads"),
	.ffn = K("n_inner"),
	.vocab = K("vocab_size"),
	.positions = K("n_positions", "max_position_embeddings"),
	.activation = K("activation_function"),
};
static const struct keys keys_phi_msft = {
	.hidden = K("n_embd"),
	.layers = K("n_layer"),
	.heads = K("n_head"),
	.kv_heads = K("n_head_kv"),
	.ffn = K("n_inner"),
	.vocab = K("vocab_size"),
	.positions = K("n_positions"),
	.activation = K("activation_function"),
	.theta = K("rope_theta"),
};
static const struct keys keys_opt = {
	.hidden = K("hidden_size"),
	.layers = K("num_hidden_layers"),
	.heads = K("num_attention_heads"),
	.ffn = K("ffn_dim"),
	.vocab = K("vocab_size"),
	.positions = K("max_position_embeddings"),
	.activation = K("activation_function"),
};
static const struct keys keys_bloom = {
	.hidden = K("hidden_size", "n_embed"),
	.layers = K("n_layer", "num_hidden_layers"),
	.heads = K("n_head", "num_attention_heads"),
	.vocab = K("vocab_size"),
	.positions = K("seq_length"),
};
static const struct keys keys_falcon = {
	.hidden = K("hidden_size"),
	.layers = K("num_hidden_layers"),
	.heads = K("num_attention_heads"),
	.kv_heads = K("num_kv_heads"),
	.ffn = K("ffn_hidden_size"),
	.vocab = K("vocab_size"),
	.positions = K("max_position_embeddings"),
	.activation = K("activation"),
	.theta = K("rope_theta"),
};
static const struct keys keys_chatglm = {
	.hidden = K("hidden_size"),
	.layers = K("num_layers"),
	.heads = K("num_attention_heads"),
	.kv_heads = K("multi_query_group_num"),
	.head_dim = K("kv_channels"),
	.ffn = K("ffn_hidden_size"),
	.vocab = K("padded_vocab_size"),
	.positions = K("seq_length"),
};

/* ---- what a checkpoint calls its tensors -------------------------------------------- */

#define OUTER_NAMES .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head"
#define ATTENTION_NAMES                                                                            \
	.q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
	.o = "self_attn.o_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define MLP_NAMES .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define PRE_NORM_NAMES .norms = {"input_layernorm", "post_attention_layernorm"}
#define EXPERT_NAMES                                                                               \
	.router = "mlp.gate", .expert_gate = "mlp.experts.*.gate_proj",                                \
	.expert_up = "mlp.experts.*.up_proj", .expert_down = "mlp.experts.*.down_proj"

static const struct names names_llama = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	MLP_NAMES,
	PRE_NORM_NAMES,
	EXPERT_NAMES,
	.shared_gate = "mlp.shared_experts.gate_proj",
	.shared_up = "mlp.shared_experts.up_proj",
	.shared_down = "mlp.shared_experts.down_proj",
	.sinks = "self_attn.attention_sink_bias",
};
static const struct names names_qwen_moe = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	MLP_NAMES,
	PRE_NORM_NAMES,
	EXPERT_NAMES,
	.shared_gate = "mlp.shared_expert.gate_proj",
	.shared_up = "mlp.shared_expert.up_proj",
	.shared_down = "mlp.shared_expert.down_proj",
	.shared_router = "mlp.shared_expert_gate",
};
static const struct names names_mixtral = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	PRE_NORM_NAMES,
	.router = "block_sparse_moe.gate",
	.expert_gate = "block_sparse_moe.experts.*.w1",
	.expert_up = "block_sparse_moe.experts.*.w3",
	.expert_down = "block_sparse_moe.experts.*.w2",
};
static const struct names names_gpt_oss = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	PRE_NORM_NAMES,
	.sinks = "self_attn.sinks",
	.router = "mlp.router",
	.expert_gate_up = "mlp.experts.gate_up_proj",
	.expert_down = "mlp.experts.down_proj",
};
static const struct names names_gemma2 = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	MLP_NAMES,
	.norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"},
};
static const struct names names_olmo2 = {
	OUTER_NAMES,
	ATTENTION_NAMES,
	MLP_NAMES,
	.norms = {"post_attention_layernorm", "post_feedforward_layernorm"},
};
static const struct names names_phi3 = {
	OUTER_NAMES,
	PRE_NORM_NAMES,
	.qkv = "self_attn.qkv_proj",
	.o = "self_attn.o_proj",
	.gate_up = "mlp.gate_up_proj",
	.down = "mlp.down_proj",
};
static const struct names names_baichuan = {
	OUTER_NAMES, PRE_NORM_NAMES, MLP_NAMES, .qkv = "self_attn.W_pack", .o = "self_attn.o_proj",
};
static const struct names names_internlm2 = {
	.embed = "model.tok_embeddings",
	.final_norm = "model.norm",
	.head = "output",
	.qkv = "attention.wqkv",
	.o = "attention.wo",
	.gate = "feed_forward.w1",
	.up = "feed_forward.w3",
	.down = "feed_forward.w2",
	.norms = {"attention_norm", "ffn_norm"},
};
static const struct names names_starcoder2 = {
	OUTER_NAMES, ATTENTION_NAMES, PRE_NORM_NAMES, .up = "mlp.c_fc", .down = "mlp.c_proj",
};
static const struct names names_phi = {
	.embed = "model.embed_tokens",
	.final_norm = "model.final_layernorm",
	.head = "lm_head",
	.q = "self_attn.q_proj",
	.k = "self_attn.k_proj",
	.v = "self_attn.v_proj",
	.o = "self_attn.dense",
	.up = "mlp.fc1",
	.down = "mlp.fc2",
	.norms = {"input_layernorm"},
};
static const struct names names_phi_msft = {
	.embed = "transformer.embd.wte",
	.final_norm = "lm_head.ln",
	.head = "lm_head.linear",
	.qkv = "mixer.Wqkv",
	.o = "mixer.out_proj",
	.up = "mlp.fc1",
	.down = "mlp.fc2",
	.norms = {"ln"},
};
static const struct names names_gpt2 = {
	.embed = "transformer.wte",
	.positions = "transformer.wpe",
	.final_norm = "transformer.ln_f",
	.head = "lm_head",
	.qkv = "attn.c_attn",
	.o = "attn.c_proj",
	.up = "mlp.c_fc",
	.down = "mlp.c_proj",
	.norms = {"ln_1", "ln_2"},
};
static const struct names names_gptj = {
	.embed = "transformer.wte",
	.final_norm = "transformer.ln_f",
	.head = "lm_head",
	.q = "attn.q_proj",
	.k = "attn.k_proj",
	.v = "attn.v_proj",
	.o = "attn.out_proj",
	.up = "mlp.fc_in",
	.down = "mlp.fc_out",
	.norms = {"ln_1"},
};
static const struct names names_neox = {
	.embed = "gpt_neox.embed_in",
	.final_norm = "gpt_neox.final_layer_norm",
	.head = "embed_out",
	.qkv = "attention.query_key_value",
	.o = "attention.dense",
	.up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h",
	PRE_NORM_NAMES,
};
static const struct names names_opt = {
	.embed = "model.decoder.embed_tokens",
	.positions = "model.decoder.embed_positions",
	.project_in = "model.decoder.project_in",
	.project_out = "model.decoder.project_out",
	.final_norm = "model.decoder.final_layer_norm",
	.head = "lm_head",
	.q = "self_attn.q_proj",
	.k = "self_attn.k_proj",
	.v = "self_attn.v_proj",
	.o = "self_attn.out_proj",
	.up = "fc1",
	.down = "fc2",
	.norms = {"self_attn_layer_norm", "final_layer_norm"},
};
static const struct names names_bloom = {
	.embed = "transformer.word_embeddings",
	.embed_norm = "transformer.word_embeddings_layernorm",
	.final_norm = "transformer.ln_f",
	.head = "lm_head",
	.qkv = "self_attention.query_key_value",
	.o = "self_attention.dense",
	.up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h",
	PRE_NORM_NAMES,
};
static const struct names names_falcon = {
	.embed = "transformer.word_embeddings",
	.final_norm = "transformer.ln_f",
	.head = "lm_head",
	.qkv = "self_attention.query_key_value",
	.o = "self_attention.dense",
	.up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h",
	.norms = {"ln_attn", "ln_mlp"},
};
static const struct names names_chatglm = {
	.embed = "transformer.embedding.word_embeddings",
	.final_norm = "transformer.encoder.final_layernorm",
	.head = "transformer.output_layer",
	.qkv = "self_attention.query_key_value",
	.o = "self_attention.dense",
	.gate_up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h",
	PRE_NORM_NAMES,
};

/* ---- experts ------------------------------------------------------------------------- */

static const struct moe moe_mixtral = {
	.n_experts = K("num_local_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("intermediate_size"),
	.layers = MOE_ALL,
};
static const struct moe moe_olmoe = {
	.n_experts = K("num_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("intermediate_size"),
	.layers = MOE_ALL,
};
static const struct moe moe_gpt_oss = {
	.n_experts = K("num_local_experts", "num_experts"),
	.top_k = K("num_experts_per_tok", "experts_per_token"),
	.expert_ffn = K("intermediate_size"),
	.layers = MOE_ALL,
	.biased = true,
};
static const struct moe moe_qwen2 = {
	.n_experts = K("num_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_SPARSE_STEP,
	.shared = SHARED_WIDTH,
};
static const struct moe moe_qwen3 = {
	.n_experts = K("num_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_SPARSE_STEP,
};
static const struct moe moe_deepseek = {
	.n_experts = K("n_routed_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_FIRST_DENSE,
	.shared = SHARED_COUNT,
	.optional = true,
};
static const struct moe moe_mimo = {
	.n_experts = K("n_routed_experts"),
	.top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_LIST,
	.shared = SHARED_COUNT,
};

/* ---- the families --------------------------------------------------------------------- */

/*
 * "transformers X" = Hugging Face transformers 5.24.0, src/transformers/models/X
 * (configuration_X.py for the defaults, modeling_X.py for the tensors). Other sources: the modeling
 * file beside the named checkpoint.
 */
#define LLAMA_LIKE                                                                                 \
	.keys = &keys_common, .names = &names_llama, .activation = "silu", .theta = 10000,             \
	.norm = NORM_RMS, .norms = NORMS_PRE, .kv = KV_REQUIRED, .gated = true, .qkv_bias = NEVER,     \
	.out_bias = NEVER, .mlp_bias = NEVER, .tied = IF("tie_word_embeddings"), .qk_norm = NEVER,     \
	.head_bias = NEVER
#define GPT_LIKE                                                                                   \
	.norm = NORM_LAYER, .norms = NORMS_PRE, .kv = KV_ALL_HEADS, .gated = false,                    \
	.qkv_bias = ALWAYS, .out_bias = ALWAYS, .mlp_bias = ALWAYS, .qk_norm = NEVER,                  \
	.head_bias = NEVER
/* In a row, a later designator replaces the one of the macro before it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"

const struct family family_table[] = {
	{LLAMA_LIKE, .model_type = "llama", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .mlp_bias = IF("mlp_bias"), .source = "transformers llama"},
	{LLAMA_LIKE, .model_type = "mistral", .windows = WINDOW_ALL, .window_default = 4096,
     .source = "transformers mistral"},
	{LLAMA_LIKE, .model_type = "mixtral", .names = &names_mixtral, .windows = WINDOW_ALL,
     .moe = &moe_mixtral, .source = "transformers mixtral"},
	{LLAMA_LIKE, .model_type = "qwen2", .qkv_bias = ALWAYS, .windows = WINDOW_SWITCHED,
     .source = "transformers qwen2"},
	{LLAMA_LIKE, .model_type = "qwen2_moe", .names = &names_qwen_moe,
     .qkv_bias = UNLESS("qkv_bias"), .windows = WINDOW_SWITCHED, .moe = &moe_qwen2,
     .source = "transformers qwen2_moe"},
	{LLAMA_LIKE, .model_type = "qwen3", .head_dim_required = true, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .windows = WINDOW_SWITCHED,
     .source = "transformers qwen3"},
	{LLAMA_LIKE, .model_type = "qwen3_moe", .head_dim_required = true,
     .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"), .qk_norm = ALWAYS,
     .windows = WINDOW_SWITCHED, .moe = &moe_qwen3, .source = "transformers qwen3_moe"},
	{LLAMA_LIKE, .model_type = "qwen3_vl_text", .head_dim_required = true,
     .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"), .qk_norm = ALWAYS,
     .theta = 500000, .source = "transformers qwen3_vl"},
	{LLAMA_LIKE, .model_type = "qwen3_vl_moe_text", .head_dim_required = true,
     .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"), .qk_norm = ALWAYS,
     .theta = 500000, .moe = &moe_qwen3, .source = "transformers qwen3_vl_moe"},
	{LLAMA_LIKE, .model_type = "gemma", .keys = &keys_gemma, .head_dim_required = true,
     .activation = "gelu_pytorch_tanh", .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .tied = UNLESS("tie_word_embeddings"),
     .traits = {"scaled-embeddings", "zero-centred-norm"}, .source = "transformers gemma"},
	{LLAMA_LIKE, .model_type = "gemma2", .keys = &keys_gemma, .names = &names_gemma2,
     .norms = NORMS_SANDWICH, .head_dim_required = true, .activation = "gelu_pytorch_tanh",
     .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"),
     .tied = UNLESS("tie_word_embeddings"), .windows = WINDOW_PATTERN, .window_period = 2,
     .window_default = 4096, .traits = {"scaled-embeddings", "zero-centred-norm"},
     .source = "transformers gemma2"},
	{LLAMA_LIKE, .model_type = "gemma3_text", .keys = &keys_gemma, .names = &names_gemma2,
     .norms = NORMS_SANDWICH, .head_dim_required = true, .activation = "gelu_pytorch_tanh",
     .theta = 1000000, .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"),
     .tied = UNLESS("tie_word_embeddings"), .qk_norm = ALWAYS, .windows = WINDOW_PATTERN,
     .window_period = 6, .window_default = 4096,
     .traits = {"scaled-embeddings", "zero-centred-norm"}, .source = "transformers gemma3"},
	{LLAMA_LIKE, .model_type = "phi3", .names = &names_phi3, .kv = KV_OR_HEADS,
     .windows = WINDOW_ALL, .source = "transformers phi3"},
	{LLAMA_LIKE, .model_type = "olmo2", .names = &names_olmo2, .norms = NORMS_AFTER,
     .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"),
     .qk_norm = ALWAYS, .qk_norm_kind = QK_NORM_FULL, .source = "transformers olmo2"},
	{LLAMA_LIKE, .model_type = "olmoe", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .qk_norm_kind = QK_NORM_FULL,
     .moe = &moe_olmoe, .source = "transformers olmoe"},
	{LLAMA_LIKE, .model_type = "granite", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .mlp_bias = IF("mlp_bias"),
     .traits = {"scaled-embeddings", "scaled-residual"}, .source = "transformers granite"},
	{LLAMA_LIKE, .model_type = "stablelm", .norm = NORM_LAYER, .norms = NORMS_STABLELM,
     .partial_rotary = true, .qkv_bias = IF("use_qkv_bias"), .source = "transformers stablelm"},
	{LLAMA_LIKE, .model_type = "starcoder2", .names = &names_starcoder2, .norm = NORM_LAYER,
     .gated = false, .activation = "gelu_pytorch_tanh", .qkv_bias = UNLESS("use_bias"),
     .out_bias = UNLESS("use_bias"), .mlp_bias = UNLESS("use_bias"),
     .tied = UNLESS("tie_word_embeddings"), .windows = WINDOW_ALL,
     .source = "transformers starcoder2"},
	{LLAMA_LIKE, .model_type = "internlm2", .names = &names_internlm2, .kv = KV_OR_HEADS,
     .qkv_bias = UNLESS("bias"), .out_bias = UNLESS("bias"),
     .source = "internlm2-7b modeling_internlm2.py"},
	{LLAMA_LIKE, .model_type = "baichuan", .names = &names_baichuan, .kv = KV_ALL_HEADS,
     .source = "Baichuan2-7B modeling_baichuan.py"},
	{LLAMA_LIKE, .model_type = "minicpm", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .tied = ALWAYS,
     .traits = {"scaled-embeddings", "scaled-residual"},
     .source = "MiniCPM-2B modeling_minicpm.py; shared embedding: arXiv 2404.06395"},
	{LLAMA_LIKE, .model_type = "deepseek", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
     .out_bias = IF("attention_bias"), .moe = &moe_deepseek,
     .source = "deepseek-moe-16b modeling_deepseek.py"},
	{LLAMA_LIKE, .model_type = "glm4_moe", .qkv_bias = IF("attention_bias"),
     .qk_norm = IF("use_qk_norm"), .partial_rotary = true, .moe = &moe_deepseek,
     .source = "transformers glm4_moe"},
	{LLAMA_LIKE, .model_type = "glm4v_moe_text", .qkv_bias = IF("attention_bias"),
     .qk_norm = IF("use_qk_norm"), .partial_rotary = true, .moe = &moe_deepseek,
     .source = "transformers glm4v_moe"},
	{LLAMA_LIKE, .model_type = "gpt_oss", .names = &names_gpt_oss, .head_dim_required = true,
     .theta = 150000, .qkv_bias = UNLESS("attention_bias"), .out_bias = UNLESS("attention_bias"),
     .sinks = true, .windows = WINDOW_PATTERN, .window_period = 2, .window_default = 128,
     .moe = &moe_gpt_oss, .traits = {"clamped-swiglu"}, .source = "transformers gpt_oss"},
	{LLAMA_LIKE, .model_type = "minimax_m2", .names = &names_mixtral, .head_dim_required = true,
     .theta = 5000000, .qk_norm = UNLESS("use_qk_norm"), .qk_norm_kind = QK_NORM_FULL,
     .moe = &moe_mixtral, .source = "transformers minimax_m2"},
	{LLAMA_LIKE, .model_type = "mimo_v2_flash", .head_dim_required = true, .theta = 5000000,
     .qkv_bias = IF("attention_bias"), .windows = WINDOW_MIMO, .moe = &moe_mimo,
     .source = "transformers mimo_v2_flash"},
	{GPT_LIKE, .model_type = "gpt2", .keys = &keys_gpt2, .names = &names_gpt2,
     .activation = "gelu_new", .ffn_times_hidden = 4, .tied = UNLESS("tie_word_embeddings"),
     .learned_positions = true, .source = "transformers gpt2"},
	{GPT_LIKE, .model_type = "gptj", .keys = &keys_gpt2, .names = &names_gptj,
     .activation = "gelu_new", .theta = 10000, .norms = NORMS_SHARED, .ffn_times_hidden = 4,
     .qkv_bias = NEVER, .out_bias = NEVER, .tied = IF("tie_word_embeddings"), .head_bias = ALWAYS,
     .partial_rotary = true, .source = "transformers gptj"},
	{GPT_LIKE, .model_type = "gpt_neox", .keys = &keys_neox, .names = &names_neox,
     .activation = "gelu", .theta = 10000, .norms = NORMS_NEOX,
     .qkv_bias = UNLESS("attention_bias"), .out_bias = UNLESS("attention_bias"),
     .tied = IF("tie_word_embeddings"), .partial_rotary = true, .source = "transformers gpt_neox"},
	{GPT_LIKE, .model_type = "opt", .keys = &keys_opt, .names = &names_opt, .activation = "relu",
     .norms = NORMS_OPT, .qkv_bias = UNLESS("enable_bias"), .out_bias = UNLESS("enable_bias"),
     .mlp_bias = UNLESS("enable_bias"), .tied = UNLESS("tie_word_embeddings"),
     .learned_positions = true, .position_offset = 2, .source = "transformers opt"},
	{GPT_LIKE, .model_type = "bloom", .keys = &keys_bloom, .names = &names_bloom,
     .activation = "gelu", .ffn_times_hidden = 4, .tied = UNLESS("tie_word_embeddings"),
     .embedding_norm = true, .alibi = true, .source = "transformers bloom"},
	{GPT_LIKE, .model_type = "falcon", .keys = &keys_falcon, .names = &names_falcon,
     .activation = "gelu", .theta = 10000, .norms = NORMS_FALCON, .kv = KV_FALCON,
     .ffn_times_hidden = 4, .qkv_bias = IF("bias"), .out_bias = IF("bias"), .mlp_bias = IF("bias"),
     .tied = UNLESS("tie_word_embeddings"), .source = "transformers falcon"},
	{GPT_LIKE, .model_type = "phi", .keys = &keys_common, .names = &names_phi,
     .activation = "gelu_new", .theta = 10000, .norms = NORMS_SHARED, .kv = KV_OR_HEADS,
     .tied = IF("tie_word_embeddings"), .head_bias = ALWAYS, .partial_rotary = true,
     .source = "transformers phi"},
	{GPT_LIKE, .model_type = "phi-msft", .keys = &keys_phi_msft, .names = &names_phi_msft,
     .activation = "gelu_new", .theta = 10000, .norms = NORMS_SHARED, .kv = KV_OR_HEADS,
     .ffn_times_hidden = 4, .tied = IF("tie_word_embeddings"), .head_bias = ALWAYS,
     .partial_rotary = true, .source = "phi-2 modeling_phi.py (2023)"},
	{LLAMA_LIKE, .model_type = "chatglm", .keys = &keys_chatglm, .names = &names_chatglm,
     .activation = "swiglu", .kv = KV_CHATGLM, .head_dim_required = true,
     .qkv_bias = IF("add_qkv_bias"), .extra_bias_key = "add_bias_linear",
     .out_bias = IF("add_bias_linear"), .mlp_bias = IF("add_bias_linear"), .partial_rotary = true,
     .source = "chatglm3-6b modeling_chatglm.py"},
};
#pragma GCC diagnostic pop

const unsigned family_count = sizeof family_table / sizeof family_table[0];

const struct family *family_find(const char *model_type)
{
	for (unsigned i = 0; i < family_count; i++)
		if (strcmp(family_table[i].model_type, model_type) == 0)
			return &family_table[i];
	return NULL;
}
