/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model_fixture.h"

static const struct adp_item *item_of(const struct adp_model *model, enum adp_item_kind kind)
{
	for (uint32_t i = 0; i < model->n_items; i++)
		if (model->items[i].kind == kind)
			return &model->items[i];
	fail_msg("no such item");
	return NULL;
}

/* ---- flops ----------------------------------------------------------------------------- */

static void flops_of_a_block_are_two_per_weight_and_four_per_visible_key(void **state)
{
	struct adp_model *model = model_of("{" LLAMA UNTIED "}");

	(void)state;
	/* 2 * (192 + 384) + 2 * 4 heads * (2 + 2) * (9 + 1) / 2 keys = 1152 + 160 */
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_BLOCK), 9) == 1312);
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_EMBEDDING), 9) == 0);
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_FINAL_NORM), 9) == 0);
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_HEAD), 9) == 2 * 10 * 8);
	/* Two blocks and the head */
	assert_true(adp_model_flops(model, 9) == 2 * 1312 + 160);
	adp_model_destroy(model);
}

static void flops_are_the_same_tied_or_not(void **state)
{
	struct adp_model *tied = model_of(
		"{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"num_hidden_layers\":1,"
		"\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,"
		"\"intermediate_size\":3072,\"vocab_size\":151936,"
		"\"tie_word_embeddings\":true}");
	struct adp_model *untied = model_of(
		"{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"num_hidden_layers\":1,"
		"\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,"
		"\"intermediate_size\":3072,\"vocab_size\":151936,"
		"\"tie_word_embeddings\":false}");

	(void)state;
	assert_true(adp_model_flops(tied, 4096) == adp_model_flops(untied, 4096));
	/* The head alone: 2 * 151936 * 1024 */
	assert_true(adp_item_flops(tied, item_of(tied, ADP_ITEM_HEAD), 4096) == 311164928);
	assert_int_equal(adp_model_params(untied) - adp_model_params(tied), 155582464);
	adp_model_destroy(tied);
	adp_model_destroy(untied);
}

static void a_token_pays_for_its_top_k_experts_only(void **state)
{
	struct adp_model *model = model_of("{\"model_type\":\"mixtral\"," SMALL
	                                   ",\"num_local_experts\":4,\"num_experts_per_tok\":2}");

	(void)state;
	/* 2 * (attention 192 + router 32 + 2 * 384) + 2 * 4 * 4 * 1 key */
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_BLOCK), 1) == 1984 + 32);
	adp_model_destroy(model);
}

static void a_window_bounds_the_keys_that_a_token_sees(void **state)
{
	(void)state;
	assert_true(adp_mean_keys(9, 0) == 5);       /* (1 + ... + 9) / 9 */
	assert_true(adp_mean_keys(4, 2) == 7.0 / 4); /* 1, 2, 2, 2 */
	assert_true(adp_mean_keys(4, 4) == 2.5);
	assert_true(adp_mean_keys(4, 100) == 2.5);
	assert_true(adp_mean_keys(4, 1) == 1);
	assert_true(adp_mean_keys(0, 4) == 0);
}

static void the_narrow_head_of_opt_350m_is_counted_by_its_width(void **state)
{
	struct adp_model *model = model_of(
		"{\"model_type\":\"opt\",\"hidden_size\":8,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":2,\"ffn_dim\":32,\"vocab_size\":10,"
		"\"max_position_embeddings\":5,\"word_embed_proj_dim\":4}");

	(void)state;
	assert_int_equal(model->embedding_width, 4);
	/* Out of hidden: 2 * 8 * 4; logits: 2 * 10 * 4 */
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_HEAD), 5) == 64 + 80);
	assert_true(adp_item_flops(model, item_of(model, ADP_ITEM_EMBEDDING), 5) == 64);
	adp_model_destroy(model);
}

static void flops_of_llama_2_70b_are_near_six_per_parameter_and_token(void **state)
{
	struct adp_error err = {0};
	struct adp_model *model;
	double flops;

	(void)state;
	assert_int_equal(adp_model_load(&model, "llama-2-70b", &err), ADP_OK);
	flops = adp_model_flops(model, 4096);
	/*
	 * Forward: 2 * (68,976,648,192 - embedding 32000 * 8192 - norms 161 * 8192) = 137,426,370,560
	 * and attention 80 * 2 * 64 * 256 * 4097 / 2 = 5,370,019,840.
	 */
	assert_true(flops == 137426370560.0 + 5370019840.0);
	adp_model_destroy(model);
}

/* ---- activations ------------------------------------------------------------------------ */

static void a_plain_gpt_block_keeps_32_bytes_per_hidden_unit(void **state)
{
	struct adp_model *model = model_of(
		"{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_positions\":5,"
		"\"vocab_size\":10}");

	(void)state;
	/* Korthikanti et al. 2022: 34 h less the masks of two dropouts */
	assert_true(adp_item_activation_bytes(model, item_of(model, ADP_ITEM_BLOCK)) == 32 * 8);
	assert_true(adp_item_activation_bytes(model, item_of(model, ADP_ITEM_EMBEDDING)) == 0);
	assert_true(adp_item_activation_bytes(model, item_of(model, ADP_ITEM_FINAL_NORM)) == 16);
	assert_true(adp_item_activation_bytes(model, item_of(model, ADP_ITEM_HEAD)) == 16);
	assert_true(adp_item_activation_bytes(model, item_of(model, ADP_ITEM_LOSS)) == 40);
	adp_model_destroy(model);
}

static void gates_kv_heads_and_experts_change_what_a_block_keeps(void **state)
{
	struct adp_model *dense = model_of("{" LLAMA UNTIED "}");
	struct adp_model *moe = model_of("{\"model_type\":\"mixtral\"," SMALL
	                                 ",\"num_local_experts\":4,\"num_experts_per_tok\":2}");

	(void)state;
	/* Elements: norms 16, matrix inputs 16, q 8, k 4, v 4, attention's output 8, gate up product 48
	 */
	assert_true(adp_item_activation_bytes(dense, item_of(dense, ADP_ITEM_BLOCK)) == 2 * 104);
	/* 56 + scores 4 + 2 * (in 8 + out 8 + 48) */
	assert_true(adp_item_activation_bytes(moe, item_of(moe, ADP_ITEM_BLOCK)) == 2 * 188);
	adp_model_destroy(dense);
	adp_model_destroy(moe);
}

/* ---- degrees ----------------------------------------------------------------------------- */

static void assert_degrees(const struct adp_degrees *degrees, const char *expected)
{
	char text[512] = "";
	size_t len = 0;

	for (uint32_t i = 0; i < degrees->n; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "%s%u", i ? " " : "",
		                        degrees->value[i]);
	assert_string_equal(text, expected);
}

static void divisors_of(struct adp_divisors *out, struct adp_arena *arena, const char *json)
{
	struct adp_model *model = model_of(json);
	struct adp_error err = {0};

	assert_int_equal(adp_model_divisors(out, model, arena, &err), ADP_OK);
	adp_model_destroy(model);
}

static void twenty_eight_heads_with_four_kv_heads_allow_tp_1_2_4(void **state)
{
	struct adp_arena arena = {0};
	struct adp_divisors d;

	(void)state;
	/* Qwen2-7B; its MLP of 18944 = 2^9 * 37 has no factor 7 either. */
	divisors_of(&d, &arena,
	            "{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"num_hidden_layers\":28,"
	            "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
	            "\"vocab_size\":152064}");
	assert_degrees(&d.tp, "1 2 4");
	assert_degrees(&d.ep, "1");
	assert_degrees(&d.pp_uniform, "1 2 4 7 14 28");
	/* An MLP that 7 divides: the KV heads still allow 1, 2, 4, and 28 where they are replicated. */
	divisors_of(&d, &arena,
	            "{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"num_hidden_layers\":28,"
	            "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18816,"
	            "\"vocab_size\":152064}");
	assert_degrees(&d.tp, "1 2 4");
	assert_degrees(&d.tp_kv_replicated, "1 2 4 28");
	adp_arena_fini(&arena);
}

static void two_kv_heads_allow_more_tp_only_where_they_are_replicated(void **state)
{
	struct adp_arena arena = {0};
	struct adp_divisors d;

	(void)state;
	divisors_of(&d, &arena,
	            "{\"model_type\":\"llama\",\"hidden_size\":2048,\"num_hidden_layers\":40,"
	            "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"intermediate_size\":5632,"
	            "\"vocab_size\":248320}");
	assert_degrees(&d.tp, "1 2");
	assert_degrees(&d.tp_kv_replicated, "1 2 4 8 16");
	assert_true(adp_degrees_has(&d.tp_kv_replicated, 8));
	assert_false(adp_degrees_has(&d.tp, 4));
	adp_arena_fini(&arena);
}

static void three_divides_neither_256_experts_nor_64_heads(void **state)
{
	struct adp_arena arena = {0};
	struct adp_divisors d;

	(void)state;
	divisors_of(&d, &arena,
	            "{\"model_type\":\"mixtral\",\"hidden_size\":4096,\"num_hidden_layers\":6,"
	            "\"num_attention_heads\":64,\"num_key_value_heads\":64,\"intermediate_size\":1536,"
	            "\"vocab_size\":1000,\"num_local_experts\":256,\"num_experts_per_tok\":8}");
	assert_degrees(&d.tp, "1 2 4 8 16 32 64");
	assert_degrees(&d.ep, "1 2 4 8 16 32 64 128 256");
	assert_degrees(&d.pp_uniform, "1 2 3 6");
	adp_arena_fini(&arena);
}

static void tp_must_suit_every_kind_of_layer(void **state)
{
	struct adp_arena arena = {0};
	struct adp_divisors d;

	(void)state;
	/* A dense layer of width 12 and shared experts of 2 * 8: 12 allows 4, 16 allows 8, heads 8, KV
	 * heads 8 */
	divisors_of(&d, &arena,
	            "{\"model_type\":\"deepseek\",\"hidden_size\":64,\"num_hidden_layers\":2,"
	            "\"num_attention_heads\":8,\"intermediate_size\":12,\"vocab_size\":10,"
	            "\"n_routed_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":8,"
	            "\"n_shared_experts\":2,\"first_k_dense_replace\":1}");
	assert_degrees(&d.tp, "1 2 4");
	assert_degrees(&d.ep, "1 2 3 6");
	adp_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flops_of_a_block_are_two_per_weight_and_four_per_visible_key),
		cmocka_unit_test(flops_are_the_same_tied_or_not),
		cmocka_unit_test(a_token_pays_for_its_top_k_experts_only),
		cmocka_unit_test(a_window_bounds_the_keys_that_a_token_sees),
		cmocka_unit_test(the_narrow_head_of_opt_350m_is_counted_by_its_width),
		cmocka_unit_test(flops_of_llama_2_70b_are_near_six_per_parameter_and_token),
		cmocka_unit_test(a_plain_gpt_block_keeps_32_bytes_per_hidden_unit),
		cmocka_unit_test(gates_kv_heads_and_experts_change_what_a_block_keeps),
		cmocka_unit_test(twenty_eight_heads_with_four_kv_heads_allow_tp_1_2_4),
		cmocka_unit_test(two_kv_heads_allow_more_tp_only_where_they_are_replicated),
		cmocka_unit_test(three_divides_neither_256_experts_nor_64_heads),
		cmocka_unit_test(tp_must_suit_every_kind_of_layer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
