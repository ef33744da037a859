/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "base/utf8.h"

static bool is_used(const struct config *config, const char *key)
{
	for (unsigned i = 0; i < config->n_used; i++)
		if (strcmp(config->used[i], key) == 0)
			return true;
	return false;
}

const json_t *config_value(struct config *config, const char *key)
{
	if (!is_used(config, key)) {
		assert(config->n_used < CONFIG_MAX_USED);
		config->used[config->n_used++] = key;
	}
	return json_object_get(config->object, key);
}

const char *config_pick(struct config *config, const struct key *key)
{
	const char *picked = NULL;

	for (unsigned i = 0; i < MAX_ALIASES && key->name[i]; i++) {
		const json_t *value = config_value(config, key->name[i]);
		if (!picked && value && !json_is_null(value))
			picked = key->name[i];
	}
	return picked;
}

const char *config_field(struct config *config, const char *key)
{
	const char *field = adp_arena_printf(config->arena, "%s%s%s", config->path,
	                                     config->path[0] ? "." : "", key);

	return field ? field : key; /* out of memory: the bare key still names the field */
}

int config_size(uint64_t *out, struct config *config, const struct key *key, uint64_t min,
                uint64_t max)
{
	const char *name = config_pick(config, key);

	if (!name)
		return adp_fail(
			config->err, ADP_EINVAL,
			"%s is missing; expected a whole number from %llu to %llu. A size is never guessed "
			"from another model of the family: add the key to the config",
			config_field(config, key->name[0]), (unsigned long long)min, (unsigned long long)max);
	for (unsigned i = 0; i < MAX_ALIASES && key->name[i]; i++) {
		const json_t *other = json_object_get(config->object, key->name[i]);
		if (other && !json_is_null(other) &&
		    !json_equal(other, json_object_get(config->object, name)))
			return adp_fail(config->err, ADP_EINVAL,
			                "%s and %s contradict each other; expected the same value or one key",
			                config_field(config, name), key->name[i]);
	}
	return adp_doc_u64(out, NULL, config->object, name, min, max, config->path, config->err);
}

int config_size_if(uint64_t *out, bool *found, struct config *config, const char *key, uint64_t min,
                   uint64_t max)
{
	uint64_t value = 0;
	int rc;

	config_value(config, key);
	rc = adp_doc_u64(&value, found, config->object, key, min, max, config->path, config->err);
	if (rc == ADP_OK && *found)
		*out = value;
	return rc;
}

int config_toggle(bool *out, struct config *config, const struct toggle *toggle)
{
	bool found = false;
	int rc;

	*out = toggle->value;
	if (!toggle->key)
		return ADP_OK;
	config_value(config, toggle->key);
	rc = adp_doc_bool(out, &found, config->object, toggle->key, config->path, config->err);
	if (rc != ADP_OK)
		return rc;
	if (!found) {
		*out = toggle->value;
		return config_note(config, "%s absent: %s, the family's default",
		                   config_field(config, toggle->key), toggle->value ? "true" : "false");
	}
	return ADP_OK;
}

void text_make_plain(char *text)
{
	size_t len = strlen(text), at = 0;

	while ((at = adp_utf8_check(text, len)) < len)
		text[at] = '?';
	for (size_t i = 0, n; i < len; i += n) {
		unsigned code;

		n = adp_utf8_decode(&code, text + i);
		if (code < ' ' || (code >= 0x7f && code < 0xa0))
			memset(text + i, '?', n);
	}
}

int config_note(struct config *config, const char *format, ...)
{
	struct notes *notes = config->notes;
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	text_make_plain(text); /* names from the config are in it, and it may have been cut */
	/* Repeated assumptions (one toggle for three biases) are said once. */
	for (uint32_t i = 0; i < notes->n; i++)
		if (strcmp(notes->text[i], text) == 0)
			return ADP_OK;
	if (notes->n == notes->cap) {
		uint32_t cap = notes->cap ? 2 * notes->cap : 16;
		const char **grown = adp_arena_calloc(config->arena, cap, sizeof *grown);
		if (!grown)
			return adp_nomem(config->err);
		if (notes->n)
			memcpy(grown, notes->text, notes->n * sizeof *grown);
		notes->text = grown;
		notes->cap = cap;
	}
	notes->text[notes->n] = adp_arena_strdup(config->arena, text);
	if (!notes->text[notes->n])
		return adp_nomem(config->err);
	notes->n++;
	return ADP_OK;
}

bool config_is_set(const json_t *value)
{
	if (!value)
		return false;
	switch (json_typeof(value)) {
	case JSON_NULL:
	case JSON_FALSE:
		return false;
	case JSON_TRUE:
		return true;
	case JSON_INTEGER:
		return json_integer_value(value) != 0;
	case JSON_REAL:
		return json_real_value(value) != 0;
	case JSON_STRING:
		return json_string_length(value) != 0;
	case JSON_ARRAY:
		return json_array_size(value) != 0;
	case JSON_OBJECT:
		return json_object_size(value) != 0;
	}
	return true;
}

static const struct structural_key *first_set(const struct config *config,
                                              const struct structural_key *key)
{
	for (; key->name; key++)
		if (!is_used(config, key->name) &&
		    config_is_set(json_object_get(config->object, key->name)))
			return key;
	return NULL;
}

const struct structural_key *config_foreign(const struct config *config)
{
	return first_set(config, foreign_keys);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, so that the order of keys in the file does not show. */
static int note_unknown(struct config *config)
{
	size_t n = 0, shown = 0, len = 0, max = json_object_size(config->object);
	const char **names = adp_arena_calloc(config->arena, max ? max : 1, sizeof *names);
	char list[400] = "";
	const char *name;
	json_t *value;

	if (!names)
		return adp_nomem(config->err);
	json_object_foreach ((json_t *)(uintptr_t)config->object, name, value)
		if (!is_used(config, name) && !key_is_harmless(name) && config_is_set(value))
			names[n++] = name;
	if (n == 0)
		return ADP_OK;
	qsort(names, n, sizeof *names, compare_names);
	for (; shown < n; shown++) {
		size_t need = strlen(names[shown]) + 2;
		if (len + need >= sizeof list)
			break;
		len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", shown ? ", " : "",
		                        names[shown]);
	}
	return config_note(config, "%s: left out of account (%zu unknown %s%s%s)", list, n,
	                   n == 1 ? "key" : "keys", config->path[0] ? " of " : "", config->path);
}

int config_finish(struct config *config)
{
	const struct structural_key *key = config_foreign(config);

	if (!key)
		key = first_set(config, structural_keys);
	if (key)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is set: %s, and it would change the parameters. Remove the key if the "
		                "model does not "
		                "have it",
		                config_field(config, key->name), key->why);
	return note_unknown(config);
}
