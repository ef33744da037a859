/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "model_fixture.h"

static void an_unknown_family_is_refused_with_the_known_ones(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"acme\"," SMALL "}", "model_type", "acme", "mixtral");
	assert_refused("{" SMALL "}", "model_type", "family", "");
	assert_refused("{\"model_type\":7," SMALL "}", "model_type", "7", "");
	assert_refused("{\"model_type\":\"bert\"," SMALL "}", "model_type", "bert", "encoder");
}

static void latent_attention_is_refused_and_an_absent_q_lora_rank_not_filled_in(void **state)
{
	(void)state;
	/* DeepSeek-V2-Lite states no q_lora_rank; the class's default of 1536 belongs to its big
	 * sibling. */
	assert_refused("{\"model_type\":\"deepseek_v2\"," SMALL ",\"kv_lora_rank\":4}", "kv_lora_rank",
	               "latent", "deepseek_v2");
	/* Also where the family is known. */
	assert_refused("{" LLAMA ",\"kv_lora_rank\":4}", "kv_lora_rank", "latent", "");
}

static void hybrids_are_refused_by_the_key_that_lists_their_layers(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"nemotron_h\"," SMALL ",\"hybrid_override_pattern\":\"M*\"}",
	               "hybrid_override_pattern", "state-space", "");
	assert_refused("{\"model_type\":\"jamba\"," SMALL ",\"attn_layer_period\":8}",
	               "attn_layer_period", "recurrent", "");
	assert_refused("{\"model_type\":\"qwen2\"," SMALL
	               ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
	               "layer_types[1]", "linear_attention", "full_attention");
}

static void encoders_and_other_tasks_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"t5\"," SMALL ",\"is_encoder_decoder\":true}",
	               "is_encoder_decoder", "", "");
	assert_refused("{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"]}",
	               "architectures[0]", "LlamaForSequenceClassification", "ForCausalLM");
}

static void a_missing_size_is_refused_and_never_guessed(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"num_attention_heads\":4,"
	               "\"intermediate_size\":16,\"vocab_size\":10}",
	               "hidden_size", "missing", "add the key");
	assert_refused("{\"model_type\":\"mistral\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	               "\"num_attention_heads\":4,\"intermediate_size\":16,\"vocab_size\":10}",
	               "num_key_value_heads", "missing", "");
	assert_refused("{\"model_type\":\"qwen3\"," SMALL "}", "head_dim", "missing", "");
	assert_refused("{\"model_type\":\"mixtral\"," SMALL "}", "num_local_experts", "missing", "");
	assert_refused("{\"model_type\":\"llama\",\"hidden_size\":null,\"num_hidden_layers\":2,"
	               "\"num_attention_heads\":4,\"intermediate_size\":16,\"vocab_size\":10}",
	               "hidden_size", "missing", "");
}

static void sizes_out_of_range_or_of_another_type_are_refused_with_their_value(void **state)
{
	static const char *const values[][2] = {
		{"0", "0"},          {"-8", "-8"},     {"\"8\"", "8"},   {"8.5", "8.5"},
		{"1e300", "hidden"}, {"[8]", "array"}, {"true", "true"}, {"33554432", "33554432"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		char json[512];
		snprintf(json, sizeof json,
		         "{\"model_type\":\"llama\",\"hidden_size\":%s,\"num_hidden_layers\":2,"
		         "\"num_attention_heads\":4,\"intermediate_size\":16,\"vocab_size\":10}",
		         values[i][0]);
		assert_refused(json, "hidden_size", values[i][1], "give a whole number");
	}
}

static void heads_that_do_not_divide_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"llama\",\"hidden_size\":10,\"num_hidden_layers\":2,"
	               "\"num_attention_heads\":4,\"intermediate_size\":16,\"vocab_size\":10}",
	               "hidden_size", "10", "head_dim");
	assert_refused("{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	               "\"num_attention_heads\":4,\"num_key_value_heads\":3,\"intermediate_size\":16,"
	               "\"vocab_size\":10}",
	               "num_key_value_heads", "3", "divisor of the 4");
	assert_refused("{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,"
	               "\"num_attention_heads\":4,\"num_key_value_heads\":8,\"intermediate_size\":16,"
	               "\"vocab_size\":10}",
	               "num_key_value_heads", "8", "4 query heads");
}

static void more_experts_per_token_than_experts_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"mixtral\"," SMALL ",\"num_local_experts\":4,"
	               "\"num_experts_per_tok\":5}",
	               "num_experts_per_tok", "5", "num_local_experts");
}

static void sizes_that_multiply_past_any_model_are_refused(void **state)
{
	(void)state;
	/* 65536 experts * 3 * 2^24 * 2^24 > 2^63 */
	assert_refused(
		"{\"model_type\":\"mixtral\",\"hidden_size\":16777216,\"num_hidden_layers\":9000,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":16777216,"
		"\"vocab_size\":10,\"num_local_experts\":65536,\"num_experts_per_tok\":1}",
		"2^63", "", "");
	/* Each layer fits, all of them do not: 10000 * 3 * 2^48 * 8 > 2^63 */
	assert_refused(
		"{\"model_type\":\"mixtral\",\"hidden_size\":16777216,\"num_hidden_layers\":10000,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":16777216,"
		"\"vocab_size\":10,\"num_local_experts\":8,\"num_experts_per_tok\":1}",
		"2^63", "", "");
}

static void keys_of_tensors_that_the_family_has_not_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"mixtral\"," SMALL ",\"num_local_experts\":4,"
	               "\"num_experts_per_tok\":2,\"n_shared_experts\":1}",
	               "n_shared_experts", "Remove the key", "");
	assert_refused("{" LLAMA ",\"num_local_experts\":4}", "num_local_experts", "experts", "");
	assert_refused("{\"model_type\":\"mistral\"," SMALL ",\"attention_bias\":true}",
	               "attention_bias", "biases", "");
	assert_refused("{" LLAMA ",\"use_qk_norm\":true}", "use_qk_norm", "norm", "");
	/* Switched off they are no obstacle: a dense config may carry its siblings' keys. */
	assert_int_equal(params_of("{" LLAMA UNTIED ",\"num_local_experts\":0,\"use_qk_norm\":false,"
	                           "\"n_shared_experts\":null,\"mlp_only_layers\":[]}"),
	                 1352);
}

static void contradictory_keys_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"gpt_oss\"," SMALL ",\"head_dim\":2,\"num_local_experts\":4,"
	               "\"num_experts_per_tok\":2,\"experts_per_token\":1}",
	               "num_experts_per_tok", "experts_per_token", "contradict");
	assert_refused("{\"tie_word_embeddings\":true,\"text_config\":{" LLAMA UNTIED "}}",
	               "tie_word_embeddings", "text_config", "same value");
	assert_refused("{\"text_config\":{" LLAMA "},\"llm_config\":{" LLAMA "}}", "text_config",
	               "llm_config", "one text part");
	assert_refused("{\"model_type\":\"baichuan\"," SMALL "}", "num_key_value_heads", "2",
	               "exactly the 4");
}

static void lists_with_the_wrong_number_of_layers_are_refused(void **state)
{
	(void)state;
	assert_refused("{\"model_type\":\"gemma2\"," SMALL ",\"head_dim\":2,"
	               "\"layer_types\":[\"full_attention\"]}",
	               "layer_types", "1 entries", "2 layers");
	assert_refused("{\"model_type\":\"qwen3_moe\"," SMALL ",\"head_dim\":2,\"num_experts\":4,"
	               "\"num_experts_per_tok\":2,\"moe_intermediate_size\":6,\"mlp_only_layers\":[2]}",
	               "mlp_only_layers[0]", "0 to 1", "");
}

static void a_window_that_no_key_gives_is_refused(void **state)
{
	(void)state;
	assert_refused("{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
	               "layer_types[1]", "sliding_window", "");
	assert_refused("{\"model_type\":\"qwen2\"," SMALL ",\"use_sliding_window\":true}",
	               "sliding_window", "missing", "");
}

static void an_image_part_is_refused_with_the_figures_of_the_text_part(void **state)
{
	(void)state;
	/* The text part is small qwen3 of heads of 4: 1752 parameters, see test_model_families.c. */
	assert_refused(
		"{\"model_type\":\"qwen3_vl\",\"tie_word_embeddings\":false,"
		"\"vision_config\":{\"depth\":24},\"text_config\":{\"model_type\":\"qwen3_vl_text\"," SMALL
		",\"head_dim\":4}}",
		"vision_config", "2 layers", "1752 parameters");
	/* Experts are looked for in the text part. */
	assert_refused("{\"model_type\":\"qwen3_vl_moe\",\"vision_config\":{\"depth\":24},"
	               "\"text_config\":{\"model_type\":\"qwen3_vl_moe_text\"," SMALL
	               ",\"head_dim\":4,\"num_experts\":4,\"num_experts_per_tok\":2,"
	               "\"moe_intermediate_size\":6}}",
	               "vision_config", "4 experts", "");
}

static void a_text_part_without_its_sizes_is_refused_by_its_path(void **state)
{
	(void)state;
	/* LLaVA's text_config relies on the defaults of another class. */
	assert_refused("{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\","
	               "\"vocab_size\":10}}",
	               "text_config.num_hidden_layers", "missing", "");
	assert_refused("{\"text_config\":[]}", "text_config", "object", "");
}

static void text_that_is_not_a_config_is_refused(void **state)
{
	(void)state;
	assert_refused("", "", "", "");
	assert_refused("[1,2]", "object", "model_type", "");
	assert_refused("{\"model_type\":\"llama\"", "", "", "");
	assert_refused("{\"model_type\":\"llama\",\"model_type\":\"llama\"}", "model_type", "", "");
}

/* ---- what is read all the same ---------------------------------------------------------- */

static void a_nested_text_config_is_read_as_the_model(void **state)
{
	struct adp_model *model = model_of(
		"{\"model_type\":\"wrapper\",\"architectures\":[\"XForConditionalGeneration\"],"
		"\"thinker_config\":{\"text_config\":{\"model_type\":\"qwen3_moe\"," SMALL
		",\"head_dim\":4,\"num_experts\":4,\"num_experts_per_tok\":2,"
		"\"moe_intermediate_size\":6}},\"tie_word_embeddings\":false}");

	(void)state;
	assert_int_equal(model->n_layers, 2);
	assert_int_equal(adp_model_params(model), 2200); /* see test_model_families.c */
	assert_int_equal(model->blocks[0].n_experts, 4);
	assert_true(has_note(model, "read from thinker_config.text_config"));
	adp_model_destroy(model);
}

static void every_assumed_key_is_told(void **state)
{
	struct adp_model *model = model_of(
		"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":4,\"intermediate_size\":16,"
		"\"vocab_size\":10}");

	(void)state;
	assert_true(has_note(model, "num_key_value_heads absent: 4"));
	assert_true(has_note(model, "head_dim absent: hidden size / heads = 2"));
	assert_true(has_note(model, "tie_word_embeddings absent: false"));
	assert_true(has_note(model, "attention_bias absent: false"));
	assert_true(has_note(model, "mlp_bias absent: false"));
	assert_true(has_note(model, "rope_theta absent: 10000"));
	assert_true(has_note(model, "hidden_act absent: silu"));
	assert_true(has_note(model, "max_position_embeddings absent"));
	adp_model_destroy(model);
}

static void unknown_keys_are_told_in_one_order(void **state)
{
	struct adp_model *model = model_of("{" LLAMA ",\"zeta\":1,\"alpha\":\"x\",\"beta\":false,"
	                                   "\"rms_norm_eps\":1e-5,\"num_nextn_predict_layers\":1,"
	                                   "\"quantization_config\":{\"quant_method\":\"fp8\"}}");

	(void)state;
	assert_true(has_note(model, "alpha, zeta: left out of account (2 unknown keys)"));
	assert_true(has_note(model, "num_nextn_predict_layers: multi-token prediction"));
	assert_true(has_note(model, "quantization_config: left out"));
	adp_model_destroy(model);
}

static void a_models_digest_depends_on_its_meaning_alone(void **state)
{
	struct adp_model *plain = model_of("{" LLAMA UNTIED ",\"head_dim\":2}");
	struct adp_model *shuffled = model_of("{\"vocab_size\":10,\"tie_word_embeddings\":false,\n"
	                                      "\"intermediate_size\":16,\"num_key_value_heads\":2,"
	                                      "\"hidden_size\":8,\"max_position_embeddings\":64,"
	                                      "\"num_attention_heads\":4,\"num_hidden_layers\":2,"
	                                      "\"rms_norm_eps\":1e-5,\"model_type\":\"llama\"}");
	struct adp_model *tied = model_of("{" LLAMA ",\"tie_word_embeddings\":true}");

	(void)state;
	assert_string_equal(plain->digest, shuffled->digest);
	assert_string_not_equal(plain->digest, tied->digest);
	adp_model_destroy(plain);
	adp_model_destroy(shuffled);
	adp_model_destroy(tied);
}

static void control_characters_of_a_config_do_not_reach_the_notes(void **state)
{
	struct adp_model *model = model_of("{" LLAMA ",\"a\\u001b[2Jb\":1}");

	(void)state;
	assert_true(has_note(model, "a?[2Jb: left out"));
	adp_model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unknown_family_is_refused_with_the_known_ones),
		cmocka_unit_test(latent_attention_is_refused_and_an_absent_q_lora_rank_not_filled_in),
		cmocka_unit_test(hybrids_are_refused_by_the_key_that_lists_their_layers),
		cmocka_unit_test(encoders_and_other_tasks_are_refused),
		cmocka_unit_test(a_missing_size_is_refused_and_never_guessed),
		cmocka_unit_test(sizes_out_of_range_or_of_another_type_are_refused_with_their_value),
		cmocka_unit_test(heads_that_do_not_divide_are_refused),
		cmocka_unit_test(more_experts_per_token_than_experts_are_refused),
		cmocka_unit_test(sizes_that_multiply_past_any_model_are_refused),
		cmocka_unit_test(keys_of_tensors_that_the_family_has_not_are_refused),
		cmocka_unit_test(contradictory_keys_are_refused),
		cmocka_unit_test(lists_with_the_wrong_number_of_layers_are_refused),
		cmocka_unit_test(a_window_that_no_key_gives_is_refused),
		cmocka_unit_test(an_image_part_is_refused_with_the_figures_of_the_text_part),
		cmocka_unit_test(a_text_part_without_its_sizes_is_refused_by_its_path),
		cmocka_unit_test(text_that_is_not_a_config_is_refused),
		cmocka_unit_test(a_nested_text_config_is_read_as_the_model),
		cmocka_unit_test(every_assumed_key_is_told),
		cmocka_unit_test(unknown_keys_are_told_in_one_order),
		cmocka_unit_test(a_models_digest_depends_on_its_meaning_alone),
		cmocka_unit_test(control_characters_of_a_config_do_not_reach_the_notes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
