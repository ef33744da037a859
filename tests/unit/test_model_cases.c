/* SPDX-License-Identifier: Apache-2.0 */
/* Public configs against counts made with transformers 5.24.0; skipped where the folder is absent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adp/model.h"
#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"

#define CASES ADP_SOURCE_DIR "/../shared/data/cases/"

/* Neither dense nor mixture-of-experts decoders with plain attention, or with parts that are not
 * counted. */
static const struct {
	const char *name, *field;
} refused[] = {
	{"Qwen__Qwen3-VL-2B-Instruct", "vision_config"},
	{"Qwen__Qwen3-VL-235B-A22B-Instruct", "vision_config"},
	{"zai-org__GLM-4.5V", "vision_config"},
	{"Qwen__Qwen3.5-27B", "text_config.linear_num_key_heads"},
	{"Qwen__Qwen3.5-35B-A3B", "text_config.linear_num_key_heads"},
	{"Qwen__Qwen3.5-122B-A10B", "text_config.linear_num_key_heads"},
	{"Qwen__Qwen3.5-397B-A17B", "text_config.linear_num_key_heads"},
	{"deepseek-ai__DeepSeek-V3", "kv_lora_rank"},
	{"deepseek-ai__DeepSeek-V4-Flash", "o_lora_rank"},
	{"deepseek-ai__DeepSeek-V4-Pro", "o_lora_rank"},
	{"moonshotai__Kimi-K2-Instruct", "kv_lora_rank"},
	{"moonshotai__Kimi-K2.5", "text_config.kv_lora_rank"},
	{"mlc__deepseek_v2_lite", "kv_lora_rank"},
	{"deepseek-v2__classdefault", "kv_lora_rank"},
	{"nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "hybrid_override_pattern"},
	{"nvidia__NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "hybrid_override_pattern"},
	{"stepfun-ai__Step-3.7-Flash", "model_type"},
	{"mlc__phi-3_5-vision", "img_processor"},
	{"mlc__rwkv5_3b", "attention_hidden_size"},
	{"mlc__llava", "text_config.num_hidden_layers"},
	{"google-bert__bert-base-multilingual-cased", "architectures"},
	{"google-bert__bert-base-uncased__classdefault", "architectures"},
	{"sentence-transformers__all-MiniLM-L6-v1", "type_vocab_size"},
	{"ai21labs__AI21-Jamba-1.5-Mini", "attn_layer_period"},
	{"mamba__classdefault", "state_size"},
	{"mamba2__classdefault", "state_size"},
	{"google__vit-base-patch16-224__classdefault", "architectures"},
	{"databricks__dbrx__classdefault", "model_type"},
	{"qwen3-next__classdefault", "linear_num_key_heads"},
	{"recurrent_gemma__classdefault", "block_types"},
	{"google__flan-t5-xl__hf-names", "is_encoder_decoder"},
	{"openai__whisper-tiny", "is_encoder_decoder"},
	{"facebook__bart-large-cnn", "is_encoder_decoder"},
};

struct row {
	const char *name, *type, *total, *active, *vision;
};

static const char *refusal_field(const char *name)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		if (strcmp(refused[i].name, name) == 0)
			return refused[i].field;
	return NULL;
}

/* One line of the table; returns whether it is right and stands in the page. */
static bool check(const struct row *row, const char *page)
{
	char path[512], line[512], *text = NULL;
	struct adp_error err = {0};
	struct adp_model *model = NULL;
	const char *field = refusal_field(row->name);
	uint64_t total = 0, active = 0;
	bool good;
	size_t len;
	int rc;

	snprintf(path, sizeof path, CASES "model_config/%s.config.json", row->name);
	assert_int_equal(adp_file_read(&text, &len, path, 1 << 20, &err), ADP_OK);
	rc = adp_model_read(&model, text, len, row->name, &err);
	if (field) {
		good = rc == ADP_EINVAL && strstr(err.text, field) != NULL && model == NULL;
		if (row->vision[0] &&
		    strstr(err.text, "The text part")) { /* and the text part is counted exactly */
			char figure[32];
			snprintf(figure, sizeof figure, "%llu parameters",
			         strtoull(row->total, NULL, 10) - strtoull(row->vision, NULL, 10));
			good = good && strstr(err.text, figure) != NULL;
		}
	} else {
		good = rc == ADP_OK;
		if (good) {
			total = adp_model_params(model);
			active = adp_model_active_params(model);
			good = total == strtoull(row->total, NULL, 10) &&
			       (!row->active[0] || active == strtoull(row->active, NULL, 10));
		}
	}
	if (field)
		snprintf(line, sizeof line, "| %s | %s | | | refused: `%s` |\n", row->name, row->type,
		         field);
	else
		snprintf(line, sizeof line, "| %s | %s | %" PRIu64 " | %" PRIu64 " | exact |\n", row->name,
		         row->type, total, active);
	printf("%s%s", good ? "" : "WRONG: ", line);
	if (!good || field)
		printf("    %.300s\n", err.text);
	if (!strstr(page, line)) {
		printf("    docs/models.md lacks this line\n");
		good = false;
	}
	adp_model_destroy(model);
	adp_free(text);
	return good;
}

static void every_dense_or_moe_decoder_is_exact_and_every_other_file_is_refused(void **state)
{
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct adp_csv csv;
	uint32_t name, type, total, active, vision, wrong = 0;
	char *text, *page;
	size_t len;

	(void)state;
	if (adp_file_read(&text, &len, CASES "params.csv", 1 << 20, &err) != ADP_OK) {
		print_message("skipped: %s\n", err.text);
		skip();
	}
	assert_int_equal(adp_csv_read(&csv, &arena, text, len, "params.csv", &err), ADP_OK);
	assert_int_equal(adp_csv_column(&name, &csv, "name", &err), ADP_OK);
	assert_int_equal(adp_csv_column(&type, &csv, "model_type", &err), ADP_OK);
	assert_int_equal(adp_csv_column(&total, &csv, "total_params", &err), ADP_OK);
	assert_int_equal(adp_csv_column(&active, &csv, "active_params", &err), ADP_OK);
	assert_int_equal(adp_csv_column(&vision, &csv, "vision_audio_params", &err), ADP_OK);
	assert_int_equal(adp_file_read(&page, &len, ADP_SOURCE_DIR "/docs/models.md", 1 << 20, &err),
	                 ADP_OK);
	assert_true(csv.n_rows > 70);
	printf("| model | family | total | active | verdict |\n|---|---|---:|---:|---|\n");
	for (uint32_t i = 0; i < csv.n_rows; i++) {
		struct row row = {
			.name = adp_csv_cell(&csv, i, name),
			.type = adp_csv_cell(&csv, i, type),
			.total = adp_csv_cell(&csv, i, total),
			.active = adp_csv_cell(&csv, i, active),
			.vision = adp_csv_cell(&csv, i, vision),
		};
		wrong += !check(&row, page);
	}
	adp_arena_fini(&arena);
	adp_free(text);
	adp_free(page);
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_dense_or_moe_decoder_is_exact_and_every_other_file_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
