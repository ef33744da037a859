/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "base/doc.h"
#include "base/strbuf.h"
#include "model/config.h"

/* ---- finding the decoder in the document ------------------------------------------- */

static int list_families(const char **out, struct adp_arena *arena, struct adp_error *err)
{
	struct adp_strbuf buf = {0};
	int rc = ADP_OK;

	for (unsigned i = 0; i < family_count; i++)
		adp_strbuf_addf(&buf, "%s%s", i ? ", " : "", family_table[i].model_type);
	*out = buf.failed ? NULL : adp_arena_strdup(arena, buf.text);
	if (!*out)
		rc = adp_nomem(err);
	adp_strbuf_fini(&buf);
	return rc;
}

/* The document and, inside it, the objects that lead to the text decoder, which is the last. */
enum { MAX_LEVELS = 4 };
struct levels {
	struct config config[MAX_LEVELS];
	unsigned n;
};

static int enter_text_parts(struct levels *levels)
{
	static const char *const parts[] = {"thinker_config", "text_config", "llm_config",
	                                    "language_config"};

	for (;;) {
		struct config *outer = &levels->config[levels->n - 1];
		const char *name = NULL;
		for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
			const json_t *part = config_value(outer, parts[i]);
			if (!part || json_is_null(part))
				continue;
			if (name)
				return adp_fail(outer->err, ADP_EINVAL,
				                "%s and %s are both set; expected one text part",
				                config_field(outer, name), parts[i]);
			name = parts[i];
		}
		if (!name)
			return ADP_OK;
		if (!json_is_object(json_object_get(outer->object, name)))
			return adp_fail(outer->err, ADP_EINVAL,
			                "%s is not an object; expected the config of the text part",
			                config_field(outer, name));
		if (levels->n == MAX_LEVELS)
			return adp_fail(outer->err, ADP_ELIMIT, "%s is nested more than %d deep",
			                config_field(outer, name), MAX_LEVELS);
		config_value(outer, "model_type"); /* of the wrapper: the text part says its own */
		levels->config[levels->n++] = (struct config){
			.object = json_object_get(outer->object, name),
			.path = config_field(outer, name),
			.arena = outer->arena,
			.notes = outer->notes,
			.err = outer->err,
		};
	}
}

static int find_family(const struct family **out, struct config *config)
{
	const char *type = NULL, *known, *why;
	const struct structural_key *key;
	int rc;

	config_value(config, "model_type");
	rc = adp_doc_string(&type, NULL, config->object, "model_type", config->path, config->err);
	if (rc != ADP_OK)
		return adp_wrap(config->err, rc, "the family of the model is not told");
	*out = family_find(type);
	if (*out)
		return ADP_OK;
	key = config_foreign(config);
	if (key)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is set: %s, nor is the family %.60s (%s); give a "
		                "model of a family that docs/models.md lists",
		                config_field(config, key->name), key->why, type,
		                config_field(config, "model_type"));
	why = family_refusal(type);
	rc = list_families(&known, config->arena, config->err);
	if (rc != ADP_OK)
		return rc;
	return adp_fail(config->err, ADP_EINVAL,
	                "%s is \"%.60s\", %s; expected a decoder of one of the families %s",
	                config_field(config, "model_type"), type, why ? why : "which is not known here",
	                known);
}

/* Heads for other tasks than the next token have other parameters. */
static int check_architecture(struct config *config)
{
	static const char *const others[] = {"Classification", "QuestionAnswering", "Reward",
	                                     "MaskedLM"};
	json_t *list = NULL;
	bool found;
	int rc;

	config_value(config, "architectures");
	rc = adp_doc_array(&list, &found, config->object, "architectures", config->path, config->err);
	if (rc != ADP_OK || !found)
		return rc;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *name = json_string_value(json_array_get(list, i));
		for (size_t j = 0; name && j < sizeof others / sizeof others[0]; j++)
			if (strstr(name, others[j]))
				return adp_fail(config->err, ADP_EINVAL,
				                "%s[%zu] is %.80s; expected a model of the next token, such as "
				                "LlamaForCausalLM",
				                config_field(config, "architectures"), i, name);
	}
	return ADP_OK;
}

/* Wrappers keep tie_word_embeddings outside or inside; where several are, they must agree. */
static int read_tied(struct facts *f, struct levels *levels)
{
	const char *key = f->family->tied.key;
	const struct config *said = NULL;
	struct config *text = &levels->config[levels->n - 1];

	if (!key) { /* the family always shares the matrix */
		bool tied = f->family->tied.value;
		f->tied = tied;
		for (unsigned i = 0; i < levels->n; i++)
			if (json_is_false(config_value(&levels->config[i], "tie_word_embeddings")) && tied)
				return config_note(text,
				                   "%s is false, but %s models share the matrix of embedding and "
				                   "head: counted once",
				                   config_field(&levels->config[i], "tie_word_embeddings"),
				                   f->family->model_type);
		return ADP_OK;
	}
	for (unsigned i = levels->n; i-- > 0;) {
		struct config *config = &levels->config[i];
		bool tied = false, found;
		int rc;
		config_value(config, key);
		rc = adp_doc_bool(&tied, &found, config->object, key, config->path, config->err);
		if (rc != ADP_OK)
			return rc;
		if (found && said && tied != f->tied)
			return adp_fail(config->err, ADP_EINVAL,
			                "%s is %s but in %s it is %s; expected the same value, or one key",
			                config_field(config, key), tied ? "true" : "false", said->path,
			                f->tied ? "true" : "false");
		if (found) {
			f->tied = tied;
			said = config;
		}
	}
	return said ? ADP_OK : config_toggle(&f->tied, text, &f->family->tied);
}

/* What stands beside the text part, such as an image encoder, is refused with the figures of the
 * text part. */
static int finish_wrapper(struct config *outer, const struct config *text,
                          const struct adp_model *model)
{
	const struct structural_key *key = config_foreign(outer);
	uint32_t n_experts = 0;

	if (!key)
		return config_finish(outer);
	for (uint32_t i = 0; i < model->n_blocks; i++)
		if (model->blocks[i].n_experts)
			n_experts = model->blocks[i].n_experts;
	return adp_fail(outer->err, ADP_EINVAL,
	                "%s is set: %s. The text part in %s has %" PRIu32 " layers, %" PRIu32
	                " experts and %" PRIu64 " parameters; to plan it alone, give that object as "
	                "the config, with tie_word_embeddings %s",
	                config_field(outer, key->name), key->why, text->path, model->n_layers,
	                n_experts, adp_model_params(model), model->tied_embeddings ? "true" : "false");
}

/* ---- the model's own facts ----------------------------------------------------------- */

static void add_param_text(struct adp_strbuf *buf, const struct adp_param *params, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		adp_strbuf_addf(buf, " %s:%d:%d:%" PRIu32 "x%" PRIu64 "x%" PRIu64, params[i].name,
		                (int)params[i].shard, params[i].matmul, params[i].n_copies, params[i].rows,
		                params[i].cols);
	adp_strbuf_add(buf, "\n");
}

/* Over what was understood, in a fixed order: independent of the order of keys and of defaults
 * written out. */
static int set_digest(struct adp_model *model, struct adp_error *err)
{
	struct adp_strbuf buf = {0};
	char digest[ADP_DIGEST_SIZE];
	int rc = ADP_OK;

	adp_strbuf_addf(
		&buf, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " %d %s %s %a\n",
		model->family, model->hidden, model->vocab, model->max_seq_tokens, model->embedding_width,
		model->n_layers, model->tied_embeddings, model->norm, model->activation, model->rope_theta);
	for (uint32_t i = 0; i < model->n_traits; i++)
		adp_strbuf_addf(&buf, "%s ", model->traits[i]);
	for (uint32_t i = 0; i < model->n_blocks; i++) {
		const struct adp_block *b = &model->blocks[i];
		adp_strbuf_addf(
			&buf, "\n%s %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n",
			b->name, b->n_heads, b->n_kv_heads, b->head_dim, b->v_head_dim, b->window_tokens,
			b->top_k);
		add_param_text(&buf, b->params, b->n_params);
	}
	for (uint32_t i = 0; i < model->n_items; i++) {
		const struct adp_item *item = &model->items[i];
		if (item->kind == ADP_ITEM_BLOCK)
			adp_strbuf_addf(&buf, "%td ", item->block - model->blocks);
		else
			add_param_text(&buf, item->params, item->n_params);
	}
	if (!buf.failed) {
		adp_digest(digest, buf.text, buf.len);
		model->digest = adp_arena_strdup(&model->arena, digest);
	}
	if (!model->digest)
		rc = adp_nomem(err);
	adp_strbuf_fini(&buf);
	return rc;
}

/* "x/Llama.config.json" -> "Llama"; ".../Llama/config.json" -> "Llama"; without a name, the family.
 */
static int set_name(struct adp_model *model, const char *where, struct adp_error *err)
{
	const char *end = where + strlen(where), *start;
	static const char *const endings[] = {".json", ".config"};
	char *name;

	if (strcmp(where, "config.json") == 0 || strcmp(where, "-") == 0 ||
	    strcmp(where, "standard input") == 0)
		end = where;
	else if (end - where > 12 && strcmp(end - 12, "/config.json") == 0)
		end -= 12;
	for (start = end; start > where && start[-1] != '/'; start--)
		;
	for (size_t i = 0; i < 2; i++) {
		size_t len = strlen(endings[i]);
		if ((size_t)(end - start) > len && strncmp(end - len, endings[i], len) == 0)
			end -= len;
	}
	if (end == start || strncmp(start, "<", 1) == 0 ||
	    strncmp(start, "..", (size_t)(end - start)) == 0)
		name = adp_arena_strdup(&model->arena, model->family);
	else
		name = adp_arena_strndup(&model->arena, start, (size_t)(end - start));
	if (!name)
		return adp_nomem(err);
	text_make_plain(name);
	model->name = name;
	return ADP_OK;
}

/* ---- reading ---------------------------------------------------------------------------- */

static int read_document(struct adp_model *model, const json_t *document, struct adp_error *err)
{
	struct notes notes = {0};
	struct levels levels = {.n = 1};
	const struct family *family;
	struct facts facts;
	struct config *text;
	int rc;

	if (!json_is_object(document))
		return adp_fail(
			err, ADP_EINVAL,
			"the document is not an object; expected the keys of a config.json, model_type first");
	levels.config[0] = (struct config){
		.object = document,
		.path = "",
		.arena = &model->arena,
		.notes = &notes,
		.err = err,
	};
	rc = enter_text_parts(&levels);
	text = &levels.config[levels.n - 1];
	for (unsigned i = 0; rc == ADP_OK && i < levels.n; i++)
		rc = check_architecture(&levels.config[i]);
	if (rc == ADP_OK && levels.n > 1)
		rc = config_note(text, "read from %s", text->path);
	if (rc == ADP_OK)
		rc = find_family(&family, text);
	if (rc == ADP_OK)
		rc = facts_read(&facts, text, family);
	if (rc == ADP_OK)
		rc = read_tied(&facts, &levels);
	if (rc == ADP_OK)
		rc = config_finish(text);
	if (rc == ADP_OK)
		rc = model_build(model, &facts, err);
	for (unsigned i = 0; rc == ADP_OK && i + 1 < levels.n; i++)
		rc = finish_wrapper(&levels.config[i], text, model);
	model->notes = notes.text;
	model->n_notes = notes.n;
	return rc;
}

int adp_model_read(struct adp_model **out, const char *json, size_t len, const char *where,
                   struct adp_error *err)
{
	struct adp_model *model;
	json_t *document = NULL;
	int rc;

	*out = NULL;
	rc = adp_doc_json(&document, json, len, where, err);
	if (rc != ADP_OK)
		return rc;
	model = adp_calloc(1, sizeof *model);
	if (!model) {
		json_decref(document);
		return adp_nomem(err);
	}
	rc = read_document(model, document, err);
	json_decref(document);
	if (rc == ADP_OK)
		rc = set_digest(model, err);
	if (rc == ADP_OK)
		rc = set_name(model, where, err);
	if (rc != ADP_OK) {
		adp_model_destroy(model);
		return rc == ADP_ENOMEM ? rc : adp_wrap(err, rc, "%s", where);
	}
	*out = model;
	return ADP_OK;
}

void adp_model_destroy(struct adp_model *model)
{
	if (!model)
		return;
	adp_arena_fini(&model->arena);
	adp_free(model);
}

bool adp_model_has_trait(const struct adp_model *model, const char *trait)
{
	for (uint32_t i = 0; i < model->n_traits; i++)
		if (strcmp(model->traits[i], trait) == 0)
			return true;
	return false;
}
