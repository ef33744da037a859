/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/family.h"
#include "model_fixture.h"

/*
 * One small model per row of the family table. Embedding and head: 10 * 8 = 80 each. Attention of
 * SMALL: q 64 + k 32 + v 32 + o 64 = 192; gated MLP: 3 * 16 * 8 = 384; an RMS norm: 8, a
 * LayerNorm: 16.
 */
#define GPT "\"n_embd\":8,\"n_layer\":2,\"n_head\":2,\"n_positions\":5,\"vocab_size\":10"
#define MOE ",\"num_experts_per_tok\":2,\"moe_intermediate_size\":6"

static const struct {
	const char *family, *keys;
	uint64_t total, active;
} small[] = {
	/* 2 * (192 + 384 + 16) + 8 + 160 */
	{"llama", SMALL UNTIED, 1352, 1352},
	{"mistral", SMALL UNTIED, 1352, 1352},
	{"phi3", SMALL UNTIED, 1352, 1352},
	{"granite", SMALL UNTIED, 1352, 1352},
	{"internlm2", SMALL ",\"bias\":false" UNTIED, 1352, 1352},
	/* The matrix of embedding and head is shared: 1352 - 80 */
	{"minicpm", SMALL, 1272, 1272},
	{"gemma", SMALL ",\"head_dim\":2", 1272, 1272},
	/* Multi-head attention, 4 * 64: 2 * (256 + 384 + 16) + 168 */
	{"baichuan",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":16,"
     "\"vocab_size\":10" UNTIED,
     1480, 1480},
	/* Biases of q, k and v: 1352 + 2 * (8 + 4 + 4) */
	{"qwen2", SMALL UNTIED, 1384, 1384},
	/* Heads of 4: 2 * (128 + 64 + 64 + 128 + qk norms 2 * 4 + 384 + 16) + 168 */
	{"qwen3", SMALL ",\"head_dim\":4" UNTIED, 1752, 1752},
	{"qwen3_vl_text", SMALL ",\"head_dim\":4" UNTIED, 1752, 1752},
	/* 4 experts of 6: attention 384 + 8 + norms 16 + router 4 * 8 + 4 * 3 * 6 * 8; twice; + 168 */
	{"qwen3_moe", SMALL ",\"head_dim\":4,\"num_experts\":4" MOE UNTIED, 2200, 1624},
	{"qwen3_vl_moe_text", SMALL ",\"head_dim\":4,\"num_experts\":4" MOE UNTIED, 2200, 1624},
	/* Attention 192 + biases 16 + norms 16; router 32 + experts 576 + shared 3 * 12 * 8 + its gate
       8 */
	{"qwen2_moe", SMALL ",\"num_experts\":4,\"shared_expert_intermediate_size\":12" MOE UNTIED,
     2424, 1848},
	/* Router 4 * 8 and 4 experts of the MLP's size: 2 * (208 + 32 + 4 * 384) + 168; active 2 of 4
     */
	{"mixtral", SMALL ",\"num_local_experts\":4,\"num_experts_per_tok\":2" UNTIED, 3720, 2184},
	/* The same with norms of all q and all k heads: + 2 * (8 + 4) */
	{"olmoe", SMALL ",\"num_experts\":4,\"num_experts_per_tok\":2" UNTIED, 3744, 2208},
	{"minimax_m2", SMALL ",\"head_dim\":2,\"num_local_experts\":4,\"num_experts_per_tok\":2" UNTIED,
     3744, 2208},
	/* Layer 0 dense: 592; layer 1: 208 + router 32 + 4 * 144 + 2 shared experts 288 = 1104; + 168
     */
	{"deepseek",
     SMALL ",\"n_routed_experts\":4,\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"moe_layer_"
           "freq\":1" MOE UNTIED,
     1864, 1576},
	/* As before with biases of q, k, v (16) and norms of heads (2 * 2) in both layers */
	{"glm4_moe",
     SMALL
     ",\"head_dim\":2,\"n_routed_experts\":4,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"
     "\"attention_bias\":true,\"use_qk_norm\":true" MOE UNTIED,
     1904, 1616},
	{"glm4v_moe_text",
     SMALL
     ",\"head_dim\":2,\"n_routed_experts\":4,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"
     "\"attention_bias\":true,\"use_qk_norm\":true" MOE UNTIED,
     1904, 1616},
	/* Four norms, tied: 2 * (192 + 384 + 32) + 8 + 80 */
	{"gemma2", SMALL ",\"head_dim\":2", 1304, 1304},
	/* And norms of heads, 2 * 2 per layer */
	{"gemma3_text", SMALL ",\"head_dim\":2", 1312, 1312},
	/* Norms of all q heads (8) and all k heads (4): 2 * (192 + 12 + 384 + 16) + 168 */
	{"olmo2", SMALL UNTIED, 1376, 1376},
	/* LayerNorm has a bias: 2 * (192 + 384 + 32) + 16 + 160 */
	{"stablelm", SMALL UNTIED, 1392, 1392},
	/* Two matrices 2 * 16 * 8 with biases 24, attention biases 24: 2 * (192 + 24 + 256 + 24 + 32) +
       16 + 80 */
	{"starcoder2", SMALL, 1152, 1152},
	/* Attention 192 + biases 24 + sinks 4 + norms 16, router 32 + 4, experts 4 * (96 + 12 + 48 +
       8); + 168 */
	{"gpt_oss",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":"
     "2,"
     "\"head_dim\":2,\"intermediate_size\":6,\"vocab_size\":10,\"max_position_embeddings\":1024,"
     "\"num_local_experts\":4,\"num_experts_per_tok\":2" UNTIED,
     2024, 1368},
	/*
     * Layer 0, full attention, dense: q 96 + k 24 + v 16 + o 64 + 384 + 16 = 600. Layer 1, window,
     * 2 KV heads, experts: q 96 + k 48 + v 32 + o 64 + sinks 4 + 16 + router 32 + 576 = 868. + 168
     */
	{"mimo_v2_flash",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":"
     "1,"
     "\"head_dim\":3,\"v_head_dim\":2,\"swa_num_key_value_heads\":2,\"hybrid_layer_pattern\":[0,1],"
     "\"moe_layer_freq\":[0,1],\"sliding_window\":8,\"n_routed_experts\":4,\"intermediate_size\":"
     "16,"
     "\"vocab_size\":10,\"max_position_embeddings\":64,\"n_shared_experts\":null" MOE UNTIED,
     1636, 1348},
	/* Block: norms 32, c_attn 24 * 8 + 24, c_proj 72, MLP 288 + 264 = 872. 80 + 5 * 8 + 2 * 872 +
       16 */
	{"gpt2", GPT, 1880, 1880},
	/* One norm 16, q k v o 256 without biases, MLP 552: 2 * 824 + 80 + 16 + head 80 + 10 */
	{"gptj", GPT, 1834, 1834},
	/* 2 * 872 + 80 + 16 + 80 */
	{"gpt_neox",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"intermediate_size\":32,"
     "\"vocab_size\":10" UNTIED,
     1920, 1920},
	/* OPT-350M's way: embedding 10 * 4, in and out 8 * 4 each, 5 + 2 positions * 8, no final norm
     */
	{"opt",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"ffn_dim\":32,\"vocab_"
     "size\":"
     "10,\"max_position_embeddings\":5,\"word_embed_proj_dim\":4,\"do_layer_norm_before\":false",
     1904, 1904},
	/* 80 + norm of the embedding 16 + 2 * 872 + 16 */
	{"bloom", "\"hidden_size\":8,\"n_layer\":2,\"n_head\":2,\"vocab_size\":10", 1856, 1856},
	/* 2 KV heads: qkv 16 * 8, o 64, MLP 2 * 32 * 8, two norms 32; twice; + 80 + 16 */
	{"falcon",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_kv_heads\":2,"
     "\"vocab_size\":10,\"new_decoder_architecture\":true,\"multi_query\":true",
     1568, 1568},
	/* One norm 16, four matrices with biases 4 * 72, MLP 552: 2 * 856 + 80 + 16 + head 90 */
	{"phi",
     "\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"intermediate_size\":32,"
     "\"vocab_size\":10" UNTIED,
     1898, 1898},
	{"phi-msft", GPT ",\"n_inner\":null,\"n_head_kv\":null" UNTIED, 1898, 1898},
	/* qkv 16 * 8 + 16, o 64, fused gate and up 256, down 128, norms 16: 2 * 608 + 168 */
	{"chatglm",
     "\"hidden_size\":8,\"num_layers\":2,\"num_attention_heads\":4,\"kv_channels\":2,"
     "\"multi_query_attention\":true,\"multi_query_group_num\":2,\"ffn_hidden_size\":16,"
     "\"padded_vocab_size\":10,\"add_qkv_bias\":true" UNTIED,
     1384, 1384},
};

static void every_family_counts_a_small_model_to_the_parameter(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
		char json[1024];
		struct adp_model *model;
		snprintf(json, sizeof json, "{\"model_type\":\"%s\",%s}", small[i].family, small[i].keys);
		model = model_of(json);
		if (adp_model_params(model) != small[i].total ||
		    adp_model_active_params(model) != small[i].active)
			fail_msg("%s: %llu and %llu active, expected %llu and %llu", small[i].family,
			         (unsigned long long)adp_model_params(model),
			         (unsigned long long)adp_model_active_params(model),
			         (unsigned long long)small[i].total, (unsigned long long)small[i].active);
		assert_string_equal(model->family, small[i].family);
		adp_model_destroy(model);
	}
}

static void every_row_of_the_table_has_a_small_model_and_stands_in_the_docs(void **state)
{
	struct adp_error err = {0};
	char *page;
	size_t len;

	(void)state;
	assert_int_equal(adp_file_read(&page, &len, ADP_SOURCE_DIR "/docs/models.md", 1 << 20, &err),
	                 ADP_OK);
	for (unsigned i = 0; i < family_count; i++) {
		bool found = false;
		char cell[64];
		for (size_t j = 0; j < sizeof small / sizeof small[0]; j++)
			found = found || strcmp(small[j].family, family_table[i].model_type) == 0;
		if (!found)
			fail_msg("%s is not tested", family_table[i].model_type);
		assert_non_null(family_table[i].source);
		snprintf(cell, sizeof cell, "| `%s` |", family_table[i].model_type);
		if (!strstr(page, cell))
			fail_msg("docs/models.md lacks %s", cell);
	}
	adp_free(page);
}

/* ---- variants ------------------------------------------------------------------------ */

static void a_tied_head_counts_once(void **state)
{
	(void)state;
	assert_int_equal(params_of("{" LLAMA ",\"tie_word_embeddings\":true}"), 1352 - 80);
}

static void a_stated_head_dim_wins_over_hidden_by_heads(void **state)
{
	(void)state;
	/* Heads of 3: q 96 + k 48 + v 48 + o 96 = 288: 2 * (288 + 384 + 16) + 168 */
	assert_int_equal(params_of("{" LLAMA UNTIED ",\"head_dim\":3}"), 1544);
}

static void one_kv_head_is_multi_query_attention(void **state)
{
	(void)state;
	/* q 64 + k 16 + v 16 + o 64 = 160: 2 * (160 + 384 + 16) + 168 */
	assert_int_equal(
		params_of("{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	              "\"num_attention_heads\":4,\"num_key_value_heads\":1,"
	              "\"intermediate_size\":16,\"vocab_size\":10" UNTIED "}"),
		1288);
}

static void biases_of_attention_and_mlp_are_switched_by_their_keys(void **state)
{
	(void)state;
	/* q 8, k 4, v 4, o 8; gate 16, up 16, down 8 */
	assert_int_equal(params_of("{" LLAMA UNTIED ",\"attention_bias\":true}"), 1352 + 2 * 24);
	assert_int_equal(params_of("{" LLAMA UNTIED ",\"mlp_bias\":true}"), 1352 + 2 * 40);
}

static void the_old_falcon_has_one_kv_head_whatever_num_kv_heads_says(void **state)
{
	(void)state;
	/* qkv (8 + 2 + 2) * 8, o 64, MLP 512, one norm 16; twice; + 80 + 16 */
	assert_int_equal(
		params_of("{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	              "\"num_attention_heads\":4,\"num_kv_heads\":4,\"vocab_size\":10,"
	              "\"new_decoder_architecture\":false,\"multi_query\":true}"),
		1472);
	/* Sequential blocks have two norms: + 2 * 16 */
	assert_int_equal(
		params_of("{\"model_type\":\"falcon\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	              "\"num_attention_heads\":4,\"vocab_size\":10,\"parallel_attn\":false}"),
		1504);
}

static void a_parallel_stablelm_block_has_one_norm_less(void **state)
{
	struct adp_model *model = model_of("{\"model_type\":\"stablelm\"," SMALL UNTIED
	                                   ",\"use_parallel_residual\":true}");

	(void)state;
	assert_int_equal(adp_model_params(model), 1392 - 2 * 16);
	assert_true(model->blocks[0].parallel_residual);
	assert_true(adp_model_has_trait(model, "parallel-residual"));
	adp_model_destroy(model);
}

static void dense_layers_among_experts_are_where_the_config_puts_them(void **state)
{
	/* mlp_only_layers takes layer 0 out; step 2 keeps every second layer, counted from 1. */
	static const char *const keys[] = {"\"mlp_only_layers\":[0],\"decoder_sparse_step\":1",
	                                   "\"mlp_only_layers\":[],\"decoder_sparse_step\":2"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		char json[1024];
		struct adp_model *model;
		snprintf(json, sizeof json,
		         "{\"model_type\":\"qwen2_moe\"," SMALL
		         ",\"num_experts\":4,\"shared_expert_intermediate_size\":12" MOE UNTIED ",%s}",
		         keys[i]);
		model = model_of(json);
		/* Layer 0: 224 + 384 = 608; layer 1: 224 + 32 + 576 + 288 + 8 = 1128; + 168 */
		assert_int_equal(adp_model_params(model), 1904);
		assert_int_equal(model->n_blocks, 2);
		assert_string_equal(model->items[1].block->name, "dense");
		assert_string_equal(model->items[2].block->name, "moe");
		adp_model_destroy(model);
	}
}

static void experts_of_none_make_a_dense_model(void **state)
{
	struct adp_model *model = model_of("{\"model_type\":\"deepseek\"," SMALL UNTIED "}");

	(void)state;
	assert_int_equal(adp_model_params(model), 1352);
	assert_true(has_note(model, "n_routed_experts absent"));
	adp_model_destroy(model);
}

/* ---- windows --------------------------------------------------------------------------- */

static void gemma2_alternates_windows_over_the_same_tensors(void **state)
{
	struct adp_model *model = model_of("{\"model_type\":\"gemma2\"," SMALL
	                                   ",\"head_dim\":2,\"sliding_window\":16}");

	(void)state;
	assert_int_equal(model->n_blocks, 2);
	assert_int_equal(model->items[1].block->window_tokens, 16);
	assert_int_equal(model->items[2].block->window_tokens, 0);
	assert_string_equal(model->items[1].block->name, "dense-window");
	assert_ptr_equal(model->items[1].params, model->items[2].params);
	assert_int_equal(model->blocks[0].n_norms, 4);
	assert_true(adp_model_has_trait(model, "mixed-windows"));
	adp_model_destroy(model);
}

static void layer_types_decide_before_the_familys_pattern(void **state)
{
	struct adp_model *model = model_of(
		"{\"model_type\":\"gemma3_text\"," SMALL ",\"head_dim\":2,\"sliding_window\":16,"
		"\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");

	(void)state;
	assert_int_equal(model->items[1].block->window_tokens, 0);
	assert_int_equal(model->items[2].block->window_tokens, 16);
	adp_model_destroy(model);
}

static void a_null_window_is_full_attention_and_an_absent_one_the_familys(void **state)
{
	struct adp_model *null = model_of(
		"{\"model_type\":\"mistral\",\"hidden_size\":8,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":2,"
		"\"intermediate_size\":16,\"vocab_size\":10,"
		"\"max_position_embeddings\":32768,\"sliding_window\":null}");
	struct adp_model *absent = model_of(
		"{\"model_type\":\"mistral\",\"hidden_size\":8,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":2,"
		"\"intermediate_size\":16,\"vocab_size\":10,"
		"\"max_position_embeddings\":32768}");

	(void)state;
	assert_int_equal(null->blocks[0].window_tokens, 0);
	assert_int_equal(absent->blocks[0].window_tokens, 4096);
	assert_true(has_note(absent, "sliding_window absent: 4096"));
	adp_model_destroy(null);
	adp_model_destroy(absent);
}

static void a_window_as_long_as_the_sequence_is_full_attention(void **state)
{
	struct adp_model *model = model_of("{\"model_type\":\"phi3\"," SMALL UNTIED
	                                   ",\"sliding_window\":64}");

	(void)state;
	assert_int_equal(model->blocks[0].window_tokens, 0);
	assert_true(has_note(model, "sliding_window 64"));
	adp_model_destroy(model);
}

static void qwen2_windows_begin_at_max_window_layers_when_switched_on(void **state)
{
	struct adp_model *on = model_of("{\"model_type\":\"qwen2\"," SMALL UNTIED
	                                ",\"use_sliding_window\":true,"
	                                "\"sliding_window\":16,\"max_window_layers\":1}");
	struct adp_model *off = model_of("{\"model_type\":\"qwen2\"," SMALL UNTIED
	                                 ",\"use_sliding_window\":false,"
	                                 "\"sliding_window\":16,\"max_window_layers\":1}");

	(void)state;
	assert_int_equal(on->items[1].block->window_tokens, 0);
	assert_int_equal(on->items[2].block->window_tokens, 16);
	assert_int_equal(off->items[2].block->window_tokens, 0);
	adp_model_destroy(on);
	adp_model_destroy(off);
}

static void positions_may_be_learned_rotary_or_alibi(void **state)
{
	struct adp_model *gpt2 = model_of("{\"model_type\":\"gpt2\"," GPT "}");
	struct adp_model *bloom = model_of("{\"model_type\":\"bloom\",\"hidden_size\":8,\"n_layer\":2,"
	                                   "\"n_head\":2,\"vocab_size\":10}");
	struct adp_model *llama = model_of(
		"{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5,"
		"\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
		"\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}");

	(void)state;
	assert_true(gpt2->learned_positions);
	assert_true(gpt2->rope_theta == 0);
	assert_true(adp_model_has_trait(bloom, "alibi"));
	assert_true(bloom->rope_theta == 0);
	assert_int_equal(bloom->max_seq_tokens, 0);
	assert_true(llama->rope_theta == 5e5);
	assert_true(adp_model_has_trait(llama, "llama3-rope-scaling-8"));
	adp_model_destroy(gpt2);
	adp_model_destroy(bloom);
	adp_model_destroy(llama);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_family_counts_a_small_model_to_the_parameter),
		cmocka_unit_test(every_row_of_the_table_has_a_small_model_and_stands_in_the_docs),
		cmocka_unit_test(a_tied_head_counts_once),
		cmocka_unit_test(a_stated_head_dim_wins_over_hidden_by_heads),
		cmocka_unit_test(one_kv_head_is_multi_query_attention),
		cmocka_unit_test(biases_of_attention_and_mlp_are_switched_by_their_keys),
		cmocka_unit_test(the_old_falcon_has_one_kv_head_whatever_num_kv_heads_says),
		cmocka_unit_test(a_parallel_stablelm_block_has_one_norm_less),
		cmocka_unit_test(dense_layers_among_experts_are_where_the_config_puts_them),
		cmocka_unit_test(experts_of_none_make_a_dense_model),
		cmocka_unit_test(gemma2_alternates_windows_over_the_same_tensors),
		cmocka_unit_test(layer_types_decide_before_the_familys_pattern),
		cmocka_unit_test(a_null_window_is_full_attention_and_an_absent_one_the_familys),
		cmocka_unit_test(a_window_as_long_as_the_sequence_is_full_attention),
		cmocka_unit_test(qwen2_windows_begin_at_max_window_layers_when_switched_on),
		cmocka_unit_test(positions_may_be_learned_rotary_or_alibi),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
