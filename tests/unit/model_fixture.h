/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_MODEL_FIXTURE_H
#define ADP_TESTS_MODEL_FIXTURE_H

/* Include after cmocka.h. */
#include <string.h>

#include "adp/model.h"

/* hidden 8, 2 layers, 4 heads of 2, 2 KV heads, MLP 16, vocabulary 10: sizes to count by hand. */
#define SMALL                                                                                      \
	"\"hidden_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                         \
	"\"num_key_value_heads\":2,\"intermediate_size\":16,\"vocab_size\":10,"                        \
	"\"max_position_embeddings\":64"
#define LLAMA "\"model_type\":\"llama\"," SMALL
#define UNTIED ",\"tie_word_embeddings\":false"

static inline struct adp_model *model_of(const char *json)
{
	struct adp_error err = {0};
	struct adp_model *model;

	if (adp_model_read(&model, json, strlen(json), "test", &err) != ADP_OK)
		fail_msg("%s", err.text);
	return model;
}

static inline uint64_t params_of(const char *json)
{
	struct adp_model *model = model_of(json);
	uint64_t params = adp_model_params(model);

	adp_model_destroy(model);
	return params;
}

/* The config is refused as bad input, and the text has all of the words. */
static inline void assert_refused(const char *json, const char *a, const char *b, const char *c)
{
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_read(&model, json, strlen(json), "some.json", &err);

	if (rc != ADP_EINVAL)
		fail_msg("returned %d for %s", rc, json);
	assert_null(model);
	if (strncmp(err.text, "some.json:", 10) != 0 || !strstr(err.text, a) || !strstr(err.text, b) ||
	    !strstr(err.text, c))
		fail_msg("\"%s\" does not name \"%s\", \"%s\" and \"%s\"", err.text, a, b, c);
}

static inline bool has_note(const struct adp_model *model, const char *part)
{
	for (uint32_t i = 0; i < model->n_notes; i++)
		if (strstr(model->notes[i], part))
			return true;
	return false;
}

#endif
