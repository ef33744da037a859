/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_embedded.h"
#include "base/file.h"
#include "model_fixture.h"

#define MIXTRAL_8X7B 46702792704

/* Counted with transformers 5.24.0 for the models of these names. */
static const struct {
	const char *name;
	uint64_t total, active;
} known[] = {
	{"gemma-2-9b", 9241705984, 9241705984},
	{"gpt-oss-120b", 116829156672, 5711982912},
	{"llama-2-13b", 13015864320, 13015864320},
	{"llama-2-70b", 68976648192, 68976648192},
	{"llama-2-7b", 6738415616, 6738415616},
	/* Llama 3 and 3.1 differ in their positions alone. */
	{"llama-3-70b", 70553706496, 70553706496},
	/* 2 * 128256 * 4096 + 32 * (2 * 4096^2 + 2 * 1024 * 4096 + 3 * 14336 * 4096 + 2 * 4096) + 4096
     */
	{"llama-3-8b", 8030261248, 8030261248},
	{"llama-3.1-405b", 405853388800, 405853388800},
	{"llama-3.1-70b", 70553706496, 70553706496},
	{"llama-3.1-8b", 8030261248, 8030261248},
	/* 128256 * 2048 + 16 * (2 * 2048^2 + 2 * 512 * 2048 + 3 * 8192 * 2048 + 2 * 2048) + 2048 */
	{"llama-3.2-1b", 1235814400, 1235814400},
	{"llama-3.2-3b", 3212749824, 3212749824},
	{"mistral-7b", 7241732096, 7241732096},
	{"mixtral-8x22b", 140620634112, 39152031744},
	{"mixtral-8x7b", MIXTRAL_8X7B, 12879925248},
	{"qwen2-0.5b", 494032768, 494032768},
	{"qwen2-7b", 7615616512, 7615616512},
	{"qwen3-0.6b", 596049920, 596049920},
	{"qwen3-30b-a3b", 30532122624, 3353032704},
	{"qwen3-8b", 8190735360, 8190735360},
};

static void every_model_of_the_catalogue_has_its_published_size(void **state)
{
	const char *const *names = adp_model_catalogue();

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		struct adp_error err = {0};
		struct adp_model *model;
		assert_non_null(names[i]);
		assert_string_equal(names[i], known[i].name);
		if (adp_model_load(&model, names[i], &err) != ADP_OK)
			fail_msg("%s", err.text);
		assert_string_equal(model->name, names[i]);
		if (adp_model_params(model) != known[i].total ||
		    adp_model_active_params(model) != known[i].active)
			fail_msg("%s: %" PRIu64 ", %" PRIu64, names[i], adp_model_params(model),
			         adp_model_active_params(model));
		/* A catalogue leaves nothing to assume. */
		if (model->n_notes)
			fail_msg("%s: %s", names[i], model->notes[0]);
		adp_model_destroy(model);
	}
	assert_null(names[sizeof known / sizeof known[0]]);
}

static void every_file_of_the_catalogue_has_a_name(void **state)
{
	size_t n = 0;

	(void)state;
	for (const struct adp_data_file *file = adp_data_files; file->name; file++)
		n += strncmp(file->name, "models/", 7) == 0;
	assert_int_equal(n, sizeof known / sizeof known[0]);
}

static void mixtral_8x7b_is_counted_with_all_its_experts_and_its_head(void **state)
{
	struct adp_error err = {0};
	struct adp_model *model;

	(void)state;
	/*
	 * Layer: q, o 2 * 4096^2 + k, v 2 * 1024 * 4096 + router 8 * 4096 + 8 * 3 * 14336 * 4096 + 2 *
	 * 4096 = 1,451,270,144; times 32; + embedding and head 2 * 32000 * 4096 + 4096 =
	 * 46,702,792,704.
	 */
	assert_int_equal(adp_model_load(&model, "mixtral-8x7b", &err), ADP_OK);
	assert_int_equal(adp_item_params(&model->items[1]), 1451270144);
	assert_int_equal(adp_model_params(model),
	                 32u * (uint64_t)1451270144 + 2u * 32000 * 4096 + 4096);
	assert_int_equal(adp_model_params(model), MIXTRAL_8X7B);
	adp_model_destroy(model);
}

static void names_are_found_in_upper_and_lower_case(void **state)
{
	struct adp_error err = {0};
	struct adp_model *model;

	(void)state;
	assert_int_equal(adp_model_load(&model, "Llama-3-70B", &err), ADP_OK);
	assert_string_equal(model->name, "llama-3-70b");
	adp_model_destroy(model);
}

static void an_unknown_name_is_refused_with_the_catalogue(void **state)
{
	struct adp_error err = {0};
	struct adp_model *model;

	(void)state;
	assert_int_equal(adp_model_load(&model, "llama-9", &err), ADP_EINVAL);
	assert_null(model);
	assert_non_null(strstr(err.text, "llama-9"));
	assert_non_null(strstr(err.text, "llama-3.1-70b"));
	assert_int_equal(adp_model_load(&model, "no/such/config.json", &err), ADP_EIO);
	assert_non_null(strstr(err.text, "no/such/config.json"));
}

static void a_folder_is_read_by_its_config_json_and_gives_the_name(void **state)
{
	static const char text[] = "{" LLAMA UNTIED "}";
	char folder[] = "/tmp/adp-model-XXXXXX", path[128], inner[64];
	struct adp_error err = {0};
	struct adp_model *model;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(inner, sizeof inner, "%s/My Model", folder);
	snprintf(path, sizeof path, "%s/config.json", inner);
	assert_int_equal(mkdir(inner, 0700), 0);
	assert_int_equal(adp_file_write(path, text, strlen(text), 0, &err), ADP_OK);
	assert_int_equal(adp_model_load(&model, inner, &err), ADP_OK);
	assert_string_equal(model->name, "My Model");
	adp_model_destroy(model);
	assert_int_equal(adp_model_load(&model, path, &err), ADP_OK);
	assert_string_equal(model->name, "My Model");
	adp_model_destroy(model);
	unlink(path);
	rmdir(inner);
	rmdir(folder);
}

static void a_models_name_comes_from_its_file(void **state)
{
	static const char *const where[][2] = {
		{"a/b/Llama.config.json", "Llama"},
		{"Llama-3.1.json", "Llama-3.1"},
		{"config.json", "llama"},
		{"-", "llama"},
		{"standard input", "llama"},
		{"../config.json", "llama"},
		{"./config.json", "llama"},
		{"a\nb.json", "a?b"},
		{"a\xff\xc2\x9b"
	     "b.json",
	     "a???b"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof where / sizeof where[0]; i++) {
		struct adp_error err = {0};
		struct adp_model *model;
		assert_int_equal(
			adp_model_read(&model, "{" LLAMA "}", strlen("{" LLAMA "}"), where[i][0], &err),
			ADP_OK);
		assert_string_equal(model->name, where[i][1]);
		adp_model_destroy(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_of_the_catalogue_has_its_published_size),
		cmocka_unit_test(every_file_of_the_catalogue_has_a_name),
		cmocka_unit_test(mixtral_8x7b_is_counted_with_all_its_experts_and_its_head),
		cmocka_unit_test(names_are_found_in_upper_and_lower_case),
		cmocka_unit_test(an_unknown_name_is_refused_with_the_catalogue),
		cmocka_unit_test(a_folder_is_read_by_its_config_json_and_gives_the_name),
		cmocka_unit_test(a_models_name_comes_from_its_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
