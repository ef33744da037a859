/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"

#include <string.h>

#define K(...) {{__VA_ARGS__}}
#define NEVER {NULL, false}
#define ALWAYS {NULL, true}
#define UNLESS(k) {k, true}
#define IF(k) {k, false}

/* ---- how a config writes its sizes ------------------------------------------------- */

#define COMMON_KEYS                                                                                \
	.hidden = K("hidden_size"), .layers = K("num_hidden_layers"),                                  \
	.heads = K("num_attention_heads"), .kv_heads = K("num_key_value_heads"),                       \
	.head_dim = K("head_dim"), .ffn = K("intermediate_size"), .vocab = K("vocab_size"),            \
	.positions = K("max_position_embeddings"), .theta = K("rope_theta")

static const struct keys keys_common = {COMMON_KEYS, .activation = K("hidden_act")};
static const struct keys keys_gemma = {COMMON_KEYS, .activation = K("hidden_activation", "hidden_act")};
static const struct keys keys_neox = {
	.hidden = K("hidden_size"), .layers = K("num_hidden_layers"), .heads = K("num_attention_heads"),
	.ffn = K("intermediate_size"), .vocab = K("vocab_size"), .positions = K("max_position_embeddings"),
	.activation = K("hidden_act"), .theta = K("rotary_emb_base", "rope_theta"),
};
static const struct keys keys_gpt2 = {
	.hidden = K("n_embd", "hidden_size"), .layers = K("n_layer", "num_hidden_layers"),
	.heads = K("n_head", "num_attention_heads"), .ffn = K("n_inner"), .vocab = K("vocab_size"),
	.positions = K("n_positions", "max_position_embeddings"), .activation = K("activation_function"),
};
static const struct keys keys_phi_msft = {
	.hidden = K("n_embd"), .layers = K("n_layer"), .heads = K("n_head"), .kv_heads = K("n_head_kv"),
	.ffn = K("n_inner"), .vocab = K("vocab_size"), .positions = K("n_positions"),
	.activation = K("activation_function"), .theta = K("rope_theta"),
};
static const struct keys keys_opt = {
	.hidden = K("hidden_size"), .layers = K("num_hidden_layers"), .heads = K("num_attention_heads"),
	.ffn = K("ffn_dim"), .vocab = K("vocab_size"), .positions = K("max_position_embeddings"),
	.activation = K("activation_function"),
};
static const struct keys keys_bloom = {
	.hidden = K("hidden_size", "n_embed"), .layers = K("n_layer", "num_hidden_layers"),
	.heads = K("n_head", "num_attention_heads"), .vocab = K("vocab_size"), .positions = K("seq_length"),
};
static const struct keys keys_falcon = {
	.hidden = K("hidden_size"), .layers = K("num_hidden_layers"), .heads = K("num_attention_heads"),
	.kv_heads = K("num_kv_heads"), .ffn = K("ffn_hidden_size"), .vocab = K("vocab_size"),
	.positions = K("max_position_embeddings"), .activation = K("activation"), .theta = K("rope_theta"),
};
static const struct keys keys_chatglm = {
	.hidden = K("hidden_size"), .layers = K("num_layers"), .heads = K("num_attention_heads"),
	.kv_heads = K("multi_query_group_num"), .head_dim = K("kv_channels"), .ffn = K("ffn_hidden_size"),
	.vocab = K("padded_vocab_size"), .positions = K("seq_length"),
};

/* ---- what a checkpoint calls its tensors -------------------------------------------- */

#define OUTER_NAMES                                                                                \
	.embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head"
#define ATTENTION_NAMES                                                                            \
	.q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
	.o = "self_attn.o_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define MLP_NAMES .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define PRE_NORM_NAMES .norms = {"input_layernorm", "post_attention_layernorm"}
#define EXPERT_NAMES                                                                               \
	.router = "mlp.gate", .expert_gate = "mlp.experts.*.gate_proj",                                \
	.expert_up = "mlp.experts.*.up_proj", .expert_down = "mlp.experts.*.down_proj"

static const struct names names_llama = {
	OUTER_NAMES, ATTENTION_NAMES, MLP_NAMES, PRE_NORM_NAMES, EXPERT_NAMES,
	.shared_gate = "mlp.shared_experts.gate_proj", .shared_up = "mlp.shared_experts.up_proj",
	.shared_down = "mlp.shared_experts.down_proj", .sinks = "self_attn.attention_sink_bias",
};
static const struct names names_qwen_moe = {
	OUTER_NAMES, ATTENTION_NAMES, MLP_NAMES, PRE_NORM_NAMES, EXPERT_NAMES,
	.shared_gate = "mlp.shared_expert.gate_proj", .shared_up = "mlp.shared_expert.up_proj",
	.shared_down = "mlp.shared_expert.down_proj", .shared_router = "mlp.shared_expert_gate",
};
static const struct names names_mixtral = {
	OUTER_NAMES, ATTENTION_NAMES, PRE_NORM_NAMES, .router = "block_sparse_moe.gate",
	.expert_gate = "block_sparse_moe.experts.*.w1", .expert_up = "block_sparse_moe.experts.*.w3",
	.expert_down = "block_sparse_moe.experts.*.w2",
};
static const struct names names_gpt_oss = {
	OUTER_NAMES, ATTENTION_NAMES, PRE_NORM_NAMES, .sinks = "self_attn.sinks", .router = "mlp.router",
	.expert_gate_up = "mlp.experts.gate_up_proj", .expert_down = "mlp.experts.down_proj",
};
static const struct names names_gemma2 = {
	OUTER_NAMES, ATTENTION_NAMES, MLP_NAMES,
	.norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
	          "post_feedforward_layernorm"},
};
static const struct names names_olmo2 = {
	OUTER_NAMES, ATTENTION_NAMES, MLP_NAMES,
	.norms = {"post_attention_layernorm", "post_feedforward_layernorm"},
};
static const struct names names_phi3 = {
	OUTER_NAMES, PRE_NORM_NAMES, .qkv = "self_attn.qkv_proj", .o = "self_attn.o_proj",
	.gate_up = "mlp.gate_up_proj", .down = "mlp.down_proj",
};
static const struct names names_baichuan = {
	OUTER_NAMES, PRE_NORM_NAMES, MLP_NAMES, .qkv = "self_attn.W_pack", .o = "self_attn.o_proj",
};
static const struct names names_internlm2 = {
	.embed = "model.tok_embeddings", .final_norm = "model.norm", .head = "output",
	.qkv = "attention.wqkv", .o = "attention.wo", .gate = "feed_forward.w1", .up = "feed_forward.w3",
	.down = "feed_forward.w2", .norms = {"attention_norm", "ffn_norm"},
};
static const struct names names_starcoder2 = {
	OUTER_NAMES, ATTENTION_NAMES, PRE_NORM_NAMES, .up = "mlp.c_fc", .down = "mlp.c_proj",
};
static const struct names names_phi = {
	.embed = "model.embed_tokens", .final_norm = "model.final_layernorm", .head = "lm_head",
	.q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.dense",
	.up = "mlp.fc1", .down = "mlp.fc2", .norms = {"input_layernorm"},
};
static const struct names names_phi_msft = {
	.embed = "transformer.embd.wte", .final_norm = "lm_head.ln", .head = "lm_head.linear",
	.qkv = "mixer.Wqkv", .o = "mixer.out_proj", .up = "mlp.fc1", .down = "mlp.fc2", .norms = {"ln"},
};
static const struct names names_gpt2 = {
	.embed = "transformer.wte", .positions = "transformer.wpe", .final_norm = "transformer.ln_f",
	.head = "lm_head", .qkv = "attn.c_attn", .o = "attn.c_proj", .up = "mlp.c_fc", .down = "mlp.c_proj",
	.norms = {"ln_1", "ln_2"},
};
static const struct names names_gptj = {
	.embed = "transformer.wte", .final_norm = "transformer.ln_f", .head = "lm_head", .q = "attn.q_proj",
	.k = "attn.k_proj", .v = "attn.v_proj", .o = "attn.out_proj", .up = "mlp.fc_in", .down = "mlp.fc_out",
	.norms = {"ln_1"},
};
static const struct names names_neox = {
	.embed = "gpt_neox.embed_in", .final_norm = "gpt_neox.final_layer_norm", .head = "embed_out",
	.qkv = "attention.query_key_value", .o = "attention.dense", .up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h", PRE_NORM_NAMES,
};
static const struct names names_opt = {
	.embed = "model.decoder.embed_tokens", .positions = "model.decoder.embed_positions",
	.project_in = "model.decoder.project_in", .project_out = "model.decoder.project_out",
	.final_norm = "model.decoder.final_layer_norm", .head = "lm_head", .q = "self_attn.q_proj",
	.k = "self_attn.k_proj", .v = "self_attn.v_proj", .o = "self_attn.out_proj", .up = "fc1", .down = "fc2",
	.norms = {"self_attn_layer_norm", "final_layer_norm"},
};
static const struct names names_bloom = {
	.embed = "transformer.word_embeddings", .embed_norm = "transformer.word_embeddings_layernorm",
	.final_norm = "transformer.ln_f", .head = "lm_head", .qkv = "self_attention.query_key_value",
	.o = "self_attention.dense", .up = "mlp.dense_h_to_4h", .down = "mlp.dense_4h_to_h", PRE_NORM_NAMES,
};
static const struct names names_falcon = {
	.embed = "transformer.word_embeddings", .final_norm = "transformer.ln_f", .head = "lm_head",
	.qkv = "self_attention.query_key_value", .o = "self_attention.dense", .up = "mlp.dense_h_to_4h",
	.down = "mlp.dense_4h_to_h", .norms = {"ln_attn", "ln_mlp"},
};
static const struct names names_chatglm = {
	.embed = "transformer.embedding.word_embeddings", .final_norm = "transformer.encoder.final_layernorm",
	.head = "transformer.output_layer", .qkv = "self_attention.query_key_value",
	.o = "self_attention.dense", .gate_up = "mlp.dense_h_to_4h", .down = "mlp.dense_4h_to_h",
	PRE_NORM_NAMES,
};

/* ---- experts ------------------------------------------------------------------------- */

static const struct moe moe_mixtral = {
	.n_experts = K("num_local_experts"), .top_k = K("num_experts_per_tok"), .expert_ffn = K("intermediate_size"),
	.layers = MOE_ALL,
};
static const struct moe moe_olmoe = {
	.n_experts = K("num_experts"), .top_k = K("num_experts_per_tok"), .expert_ffn = K("intermediate_size"),
	.layers = MOE_ALL,
};
static const struct moe moe_gpt_oss = {
	.n_experts = K("num_local_experts", "num_experts"), .top_k = K("num_experts_per_tok", "experts_per_token"),
	.expert_ffn = K("intermediate_size"), .layers = MOE_ALL, .biased = true,
};
static const struct moe moe_qwen2 = {
	.n_experts = K("num_experts"), .top_k = K("num_experts_per_tok"), .expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_SPARSE_STEP, .shared = SHARED_WIDTH,
};
static const struct moe moe_qwen3 = {
	.n_experts = K("num_experts"), .top_k = K("num_experts_per_tok"), .expert_ffn = K("moe_intermediate_size"),
	.layers = MOE_SPARSE_STEP,
};
static const struct moe moe_deepseek = {
	.n_experts = K("n_routed_experts"), .top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"), .layers = MOE_FIRST_DENSE, .shared = SHARED_COUNT, .optional = true,
};
static const struct moe moe_mimo = {
	.n_experts = K("n_routed_experts"), .top_k = K("num_experts_per_tok"),
	.expert_ffn = K("moe_intermediate_size"), .layers = MOE_LIST, .shared = SHARED_COUNT,
};

/* ---- the families --------------------------------------------------------------------- */

/*
 * "transformers X" = Hugging Face transformers 5.24.0, src/transformers/models/X (configuration_X.py for the
 * defaults, modeling_X.py for the tensors). Other sources: the modeling file beside the named checkpoint.
 */
#define LLAMA_LIKE                                                                                 \
	.keys = &keys_common, .names = &names_llama, .activation = "silu", .theta = 10000, .norm = NORM_RMS, \
	.norms = NORMS_PRE, .kv = KV_REQUIRED, .gated = true, .qkv_bias = NEVER, .out_bias = NEVER,      \
	.mlp_bias = NEVER, .tied = IF("tie_word_embeddings"), .qk_norm = NEVER, .head_bias = NEVER
#define GPT_LIKE                                                                                   \
	.norm = NORM_LAYER, .norms = NORMS_PRE, .kv = KV_ALL_HEADS, .gated = false, .qkv_bias = ALWAYS,  \
	.out_bias = ALWAYS, .mlp_bias = ALWAYS, .qk_norm = NEVER, .head_bias = NEVER
/* In a row, a later designator replaces the one of the macro before it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"

const struct family family_table[] = {
	{LLAMA_LIKE, .model_type = "llama", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .mlp_bias = IF("mlp_bias"), .source = "transformers llama"},
	{LLAMA_LIKE, .model_type = "mistral", .windows = WINDOW_ALL, .window_default = 4096,
	 .source = "transformers mistral"},
	{LLAMA_LIKE, .model_type = "mixtral", .names = &names_mixtral, .windows = WINDOW_ALL, .moe = &moe_mixtral,
	 .source = "transformers mixtral"},
	{LLAMA_LIKE, .model_type = "qwen2", .qkv_bias = ALWAYS, .windows = WINDOW_SWITCHED,
	 .source = "transformers qwen2"},
	{LLAMA_LIKE, .model_type = "qwen2_moe", .names = &names_qwen_moe, .qkv_bias = UNLESS("qkv_bias"),
	 .windows = WINDOW_SWITCHED, .moe = &moe_qwen2, .source = "transformers qwen2_moe"},
	{LLAMA_LIKE, .model_type = "qwen3", .head_dim_required = true, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .windows = WINDOW_SWITCHED,
	 .source = "transformers qwen3"},
	{LLAMA_LIKE, .model_type = "qwen3_moe", .head_dim_required = true, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .windows = WINDOW_SWITCHED, .moe = &moe_qwen3,
	 .source = "transformers qwen3_moe"},
	{LLAMA_LIKE, .model_type = "qwen3_vl_text", .head_dim_required = true, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .theta = 500000, .source = "transformers qwen3_vl"},
	{LLAMA_LIKE, .model_type = "qwen3_vl_moe_text", .head_dim_required = true,
	 .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .theta = 500000,
	 .moe = &moe_qwen3, .source = "transformers qwen3_vl_moe"},
	{LLAMA_LIKE, .model_type = "gemma", .keys = &keys_gemma, .head_dim_required = true,
	 .activation = "gelu_pytorch_tanh", .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"),
	 .tied = UNLESS("tie_word_embeddings"), .traits = {"scaled-embeddings", "zero-centred-norm"},
	 .source = "transformers gemma"},
	{LLAMA_LIKE, .model_type = "gemma2", .keys = &keys_gemma, .names = &names_gemma2, .norms = NORMS_SANDWICH,
	 .head_dim_required = true, .activation = "gelu_pytorch_tanh", .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .tied = UNLESS("tie_word_embeddings"), .windows = WINDOW_PATTERN,
	 .window_period = 2, .window_default = 4096, .traits = {"scaled-embeddings", "zero-centred-norm"},
	 .source = "transformers gemma2"},
	{LLAMA_LIKE, .model_type = "gemma3_text", .keys = &keys_gemma, .names = &names_gemma2,
	 .norms = NORMS_SANDWICH, .head_dim_required = true, .activation = "gelu_pytorch_tanh", .theta = 1000000,
	 .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"),
	 .tied = UNLESS("tie_word_embeddings"), .qk_norm = ALWAYS, .windows = WINDOW_PATTERN, .window_period = 6,
	 .window_default = 4096, .traits = {"scaled-embeddings", "zero-centred-norm"},
	 .source = "transformers gemma3"},
	{LLAMA_LIKE, .model_type = "phi3", .names = &names_phi3, .kv = KV_OR_HEADS, .windows = WINDOW_ALL,
	 .source = "transformers phi3"},
	{LLAMA_LIKE, .model_type = "olmo2", .names = &names_olmo2, .norms = NORMS_AFTER, .kv = KV_OR_HEADS,
	 .qkv_bias = IF("attention_bias"), .out_bias = IF("attention_bias"), .qk_norm = ALWAYS,
	 .qk_norm_kind = QK_NORM_FULL, .source = "transformers olmo2"},
	{LLAMA_LIKE, .model_type = "olmoe", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .qk_norm = ALWAYS, .qk_norm_kind = QK_NORM_FULL, .moe = &moe_olmoe,
	 .source = "transformers olmoe"},
	{LLAMA_LIKE, .model_type = "granite", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .mlp_bias = IF("mlp_bias"),
	 .traits = {"scaled-embeddings", "scaled-residual"}, .source = "transformers granite"},
	{LLAMA_LIKE, .model_type = "stablelm", .norm = NORM_LAYER, .norms = NORMS_STABLELM,
	 .partial_rotary = true,
	 .qkv_bias = IF("use_qkv_bias"), .source = "transformers stablelm"},
	{LLAMA_LIKE, .model_type = "starcoder2", .names = &names_starcoder2, .norm = NORM_LAYER, .gated = false,
	 .activation = "gelu_pytorch_tanh", .qkv_bias = UNLESS("use_bias"), .out_bias = UNLESS("use_bias"),
	 .mlp_bias = UNLESS("use_bias"), .tied = UNLESS("tie_word_embeddings"), .windows = WINDOW_ALL,
	 .source = "transformers starcoder2"},
	{LLAMA_LIKE, .model_type = "internlm2", .names = &names_internlm2, .kv = KV_OR_HEADS,
	 .qkv_bias = UNLESS("bias"), .out_bias = UNLESS("bias"), .source = "internlm2-7b modeling_internlm2.py"},
	{LLAMA_LIKE, .model_type = "baichuan", .names = &names_baichuan, .kv = KV_ALL_HEADS,
	 .source = "Baichuan2-7B modeling_baichuan.py"},
	{LLAMA_LIKE, .model_type = "minicpm", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .tied = ALWAYS, .traits = {"scaled-embeddings", "scaled-residual"},
	 .source = "MiniCPM-2B modeling_minicpm.py; shared embedding: arXiv 2404.06395"},
	{LLAMA_LIKE, .model_type = "deepseek", .kv = KV_OR_HEADS, .qkv_bias = IF("attention_bias"),
	 .out_bias = IF("attention_bias"), .moe = &moe_deepseek, .source = "deepseek-moe-16b modeling_deepseek.py"},
	{LLAMA_LIKE, .model_type = "glm4_moe", .qkv_bias = IF("attention_bias"), .qk_norm = IF("use_qk_norm"),
	 .partial_rotary = true, .moe = &moe_deepseek,
	 .source = "transformers glm4_moe"},
	{LLAMA_LIKE, .model_type = "glm4v_moe_text", .qkv_bias = IF("attention_bias"),
	 .qk_norm = IF("use_qk_norm"), .partial_rotary = true, .moe = &moe_deepseek,
	 .source = "transformers glm4v_moe"},
	{LLAMA_LIKE, .model_type = "gpt_oss", .names = &names_gpt_oss, .head_dim_required = true,
	 .theta = 150000, .qkv_bias = UNLESS("attention_bias"), .out_bias = UNLESS("attention_bias"),
	 .sinks = true, .windows = WINDOW_PATTERN, .window_period = 2, .window_default = 128,
	 .moe = &moe_gpt_oss, .traits = {"clamped-swiglu"}, .source = "transformers gpt_oss"},
	{LLAMA_LIKE, .model_type = "minimax_m2", .names = &names_mixtral, .head_dim_required = true,
	 .theta = 5000000, .qk_norm = UNLESS("use_qk_norm"), .qk_norm_kind = QK_NORM_FULL, .moe = &moe_mixtral,
	 .source = "transformers minimax_m2"},
	{LLAMA_LIKE, .model_type = "mimo_v2_flash", .head_dim_required = true, .theta = 5000000,
	 .qkv_bias = IF("attention_bias"), .windows = WINDOW_MIMO, .moe = &moe_mimo,
	 .source = "transformers mimo_v2_flash"},
	{GPT_LIKE, .model_type = "gpt2", .keys = &keys_gpt2, .names = &names_gpt2, .activation = "gelu_new",
	 .ffn_times_hidden = 4, .tied = UNLESS("tie_word_embeddings"), .learned_positions = true,
	 .source = "transformers gpt2"},
	{GPT_LIKE, .model_type = "gptj", .keys = &keys_gpt2, .names = &names_gptj, .activation = "gelu_new",
	 .theta = 10000, .norms = NORMS_SHARED, .ffn_times_hidden = 4, .qkv_bias = NEVER, .out_bias = NEVER,
	 .tied = IF("tie_word_embeddings"), .head_bias = ALWAYS, .partial_rotary = true,
	 .source = "transformers gptj"},
	{GPT_LIKE, .model_type = "gpt_neox", .keys = &keys_neox, .names = &names_neox, .activation = "gelu",
	 .theta = 10000, .norms = NORMS_NEOX, .qkv_bias = UNLESS("attention_bias"),
	 .out_bias = UNLESS("attention_bias"), .tied = IF("tie_word_embeddings"), .partial_rotary = true,
	 .source = "transformers gpt_neox"},
	{GPT_LIKE, .model_type = "opt", .keys = &keys_opt, .names = &names_opt, .activation = "relu",
	 .norms = NORMS_OPT, .qkv_bias = UNLESS("enable_bias"), .out_bias = UNLESS("enable_bias"),
	 .mlp_bias = UNLESS("enable_bias"), .tied = UNLESS("tie_word_embeddings"), .learned_positions = true,
	 .position_offset = 2, .source = "transformers opt"},
	{GPT_LIKE, .model_type = "bloom", .keys = &keys_bloom, .names = &names_bloom, .activation = "gelu",
	 .ffn_times_hidden = 4, .tied = UNLESS("tie_word_embeddings"), .embedding_norm = true, .alibi = true,
	 .source = "transformers bloom"},
	{GPT_LIKE, .model_type = "falcon", .keys = &keys_falcon, .names = &names_falcon, .activation = "gelu",
	 .theta = 10000, .norms = NORMS_FALCON, .kv = KV_FALCON, .ffn_times_hidden = 4, .qkv_bias = IF("bias"),
	 .out_bias = IF("bias"), .mlp_bias = IF("bias"), .tied = UNLESS("tie_word_embeddings"),
	 .source = "transformers falcon"},
	{GPT_LIKE, .model_type = "phi", .keys = &keys_common, .names = &names_phi, .activation = "gelu_new",
	 .theta = 10000, .norms = NORMS_SHARED, .kv = KV_OR_HEADS, .tied = IF("tie_word_embeddings"),
	 .head_bias = ALWAYS, .partial_rotary = true, .source = "transformers phi"},
	{GPT_LIKE, .model_type = "phi-msft", .keys = &keys_phi_msft, .names = &names_phi_msft,
	 .activation = "gelu_new", .theta = 10000, .norms = NORMS_SHARED, .kv = KV_OR_HEADS, .ffn_times_hidden = 4,
	 .tied = IF("tie_word_embeddings"), .head_bias = ALWAYS, .partial_rotary = true,
	 .source = "phi-2 modeling_phi.py (2023)"},
	{LLAMA_LIKE, .model_type = "chatglm", .keys = &keys_chatglm, .names = &names_chatglm,
	 .activation = "swiglu", .kv = KV_CHATGLM, .head_dim_required = true, .qkv_bias = IF("add_qkv_bias"),
	 .extra_bias_key = "add_bias_linear", .out_bias = IF("add_bias_linear"), .mlp_bias = IF("add_bias_linear"),
	 .partial_rotary = true, .source = "chatglm3-6b modeling_chatglm.py"},
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

/* ---- what is refused, and what is passed over ------------------------------------------ */

static const struct structural_key refused_types[] = {
	{"bert", "an encoder, not a decoder"}, {"roberta", "an encoder, not a decoder"},
	{"vit", "an image encoder, not a decoder"}, {"t5", "an encoder-decoder"}, {"bart", "an encoder-decoder"},
	{"whisper", "an encoder-decoder"}, {"mamba", "a state-space model without attention"},
	{"mamba2", "a state-space model without attention"}, {"rwkv5", "a recurrent model without attention"},
	{"rwkv", "a recurrent model without attention"}, {"recurrent_gemma", "a hybrid of recurrence and attention"},
	{"jamba", "a hybrid of state-space and attention layers"},
	{"nemotron_h", "a hybrid of state-space and attention layers"},
	{"qwen3_next", "a hybrid of linear and full attention"},
	{"deepseek_v2", "built on multi-head latent attention"}, {"deepseek_v3", "built on multi-head latent attention"},
	{"kimi_k2", "built on multi-head latent attention"}, {NULL, NULL},
};

const char *family_refusal(const char *model_type)
{
	for (unsigned i = 0; refused_types[i].name; i++)
		if (strcmp(refused_types[i].name, model_type) == 0)
			return refused_types[i].why;
	return NULL;
}

static const char latent[] = "multi-head latent attention is not read";
static const char recurrent[] = "recurrent (state-space or linear attention) layers are not read";
static const char bias[] = "this family has no such biases";
static const char experts[] = "this family has no experts of that kind";
static const char qk[] = "this family has no norm of queries and keys";
static const char mixed[] = "layers of several kinds are not read for this family";
static const char image[] = "the image or audio part is not counted";
static const char encoder[] = "encoders and encoder-decoders are not read";
static const char sharing[] = "tensors shared between layers or added per layer are not read";

const struct structural_key foreign_keys[] = {
	{"kv_lora_rank", latent}, {"o_lora_rank", latent}, {"q_lora_rank", latent}, {"index_topk", latent},
	{"hybrid_override_pattern", recurrent}, {"layers_block_type", recurrent}, {"block_types", recurrent},
	{"attn_layer_period", recurrent}, {"mamba_d_state", recurrent}, {"ssm_state_size", recurrent},
	{"state_size", recurrent}, {"linear_num_key_heads", recurrent}, {"linear_conv_kernel_dim", recurrent},
	{"attention_hidden_size", recurrent}, {"lru_width", recurrent},
	{"is_encoder_decoder", encoder}, {"encoder_layers", encoder}, {"decoder_layers", encoder},
	{"num_decoder_layers", encoder}, {"type_vocab_size", encoder}, {"add_cross_attention", encoder},
	{"image_size", image}, {"vision_config", image}, {"visual", image}, {"vision_tower", image},
	{"mm_vision_tower", image}, {"img_processor", image}, {"audio_config", image}, {"audio_processor", image},
	{"talker_config", image}, {"attn_output_gate", "a gate on the attention output is not read"},
	{"hidden_size_per_layer_input", sharing}, {"num_kv_shared_layers", sharing}, {"altup_num_inputs", sharing},
	{"laurel_rank", sharing}, {"hc_mult", sharing}, {"block_configs", mixed}, {"sparse_config", mixed},
	{NULL, NULL},
};

const struct structural_key structural_keys[] = {
	{"attention_bias", bias}, {"mlp_bias", bias}, {"qkv_bias", bias}, {"use_qkv_bias", bias},
	{"add_qkv_bias", bias}, {"add_bias_linear", bias}, {"bias", bias}, {"use_bias", bias}, {"lm_head_bias", bias},
	{"use_qk_norm", qk}, {"qk_norm", qk}, {"qk_layernorm", qk},
	{"num_experts", experts}, {"num_local_experts", experts}, {"n_routed_experts", experts},
	{"moe_num_experts", experts}, {"n_shared_experts", experts}, {"num_shared_experts", experts},
	{"shared_expert_intermediate_size", experts}, {"shared_intermediate_size", experts},
	{"moe_shared_expert_intermediate_size", experts}, {"share_expert_dim", experts}, {"moe_latent_size", experts},
	{"moe_intermediate_size", experts}, {"first_k_dense_replace", experts}, {"moe_layer_freq", experts},
	{"mlp_only_layers", experts}, {"attn_config", mixed}, {"ffn_config", mixed},
	{"hybrid_layer_pattern", mixed}, {"swa_num_key_value_heads", mixed}, {"layer_types", mixed},
	{"mlp_layer_types", mixed}, {"mup_denominator", "a later generation of the family is not read"},
	{"v_head_dim", "value heads of another width are not read for this family"},
	{"word_embed_proj_dim", "an embedding of another width is not read for this family"},
	{"embedding_size", "an embedding of another width is not read for this family"},
	{"alibi", "ALiBi is not known of this family"},
	{NULL, NULL},
};

/* Tokens, dropout, initialisation, generation, library bookkeeping, routing arithmetic, precision. */
static const char *const harmless[] = {
	"apply_query_key_layer_scaling", "apply_residual_connection_post_layernorm", "architectures",
	"attention_dropout", "attention_sink_size", "attention_softmax_in_fp32", "attention_value_scale",
	"attn_implementation", "attn_logit_softcapping", "attn_pdrop", "auto_map", "aux_loss_alpha",
	"bad_words_ids", "begin_suppress_tokens", "bias_dropout_fusion", "bos_token_id", "cache_implementation",
	"chunk_size_feed_forward", "classifier_dropout", "clip_qkv", "context_window_size",
	"decoder_start_token_id", "dim_model_base", "diversity_penalty", "do_sample", "dropout", "dtype",
	"early_stopping", "embd_pdrop", "embedding_dropout", "eos_token_id", "ep_size", "expert_dtype",
	"final_logit_softcapping", "finetuning_task", "flash_attn", "flash_rotary", "forced_bos_token_id",
	"forced_eos_token_id", "fp32_residual_connection", "fused_dense", "hidden_dropout", "id2label",
	"ignore_index", "image_token_id", "init_std", "initial_context_length", "initializer_range",
	"interpolate_factor", "is_decoder", "is_llama_config", "label2id",
	"layer_norm_eps", "layer_norm_epsilon", "layerdrop", "layernorm_epsilon", "length_penalty", "logits_scaling",
	"max_length", "max_window_layers", "min_length", "model_max_length", "n_ctx", "n_group",
	"no_repeat_ngram_size", "norm_eps", "norm_epsilon", "norm_topk_prob", "num_beam_groups", "num_beams",
	"num_return_sequences", "original_max_position_embeddings", "original_rope", "output_attentions",
	"output_hidden_states", "output_router_logits", "output_scores", "pad_token_id", "pre_seq_len", "prefix",
	"prefill_chunk_size", "prefix_projection", "pretraining_tp", "problem_type", "pruned_heads", "qk_norm_type",
	"query_pre_attn_scalar", "quantization_bit", "remove_invalid_values", "reorder_and_upcast_attn",
	"repetition_penalty", "rescale_every", "resid_pdrop", "residual_dropout", "return_dict",
	"return_dict_in_generate", "rms_norm_eps", "rmsnorm", "rope_interleaved", "rope_local_base_freq",
	"rope_ratio", "rotary", "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise",
	"scale_attn_by_inverse_layer_idx", "scale_attn_weights", "scale_depth", "scale_emb", "scoring_func",
	"sep_token_id", "seq_aux", "slow_but_exact", "suppress_tokens", "swa_rope_theta", "swiglu_limit",
	"task_specific_params", "temperature", "tensor_parallel_size", "tf_legacy_loss", "tie_encoder_decoder",
	"tokenizer_class", "top_k", "top_p", "topk_group", "topk_method", "torch_dtype", "torchscript",
	"transformers.js_config", "transformers_version", "typical_p", "unk_token_id", "use_bfloat16",
	"use_bidirectional_attention", "use_cache", "use_mamba_kernels", "use_routing_bias", "video_token_id",
	"vision_end_token_id", "vision_start_token_id", "z_loss",
};

bool key_is_harmless(const char *name)
{
	if (name[0] == '_')
		return true;
	for (unsigned i = 0; i < sizeof harmless / sizeof harmless[0]; i++)
		if (strcmp(harmless[i], name) == 0)
			return true;
	return strncmp(name, "summary_", 8) == 0; /* GPT-2's classification head, unused by a language model */
}
