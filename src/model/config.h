/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_MODEL_CONFIG_H
#define ADP_MODEL_CONFIG_H

#include <jansson.h>

#include "adp/model.h"
#include "model/family.h"

/* What one layer is; everything else is the same in all layers. */
struct layer_facts {
	uint32_t window_tokens;
	bool moe;
	bool window_kind; /* MiMo: has the KV heads and sinks of its window layers */
};

/* A config's meaning, before it becomes tensors. */
struct facts {
	const struct family *family;
	uint64_t hidden, embedding_width, vocab, positions, ffn;
	uint32_t n_layers, n_heads, n_kv_heads, head_dim, v_head_dim, window_kv_heads, n_norms;
	bool tied, qkv_bias, out_bias, mlp_bias, head_bias, qk_norm, parallel, norms_after, final_norm,
		alibi;
	bool sinks, window_sinks, scaled_rope, partial_rotary, softcap;
	const char *const *norm_names; /* n_norms */
	const char *activation;
	double theta;
	double llama3_factor; /* Llama 3.1's stretch of the rotary base with its usual constants; 0 =
	                         none */
	uint32_t n_experts, top_k;
	uint64_t expert_ffn, shared_ffn;
	struct layer_facts *layers; /* n_layers */
};

struct notes {
	const char **text;
	uint32_t n, cap;
};

/*
 * Reads one JSON object key by key and remembers which keys were used, so that the rest can be
 * judged at the end. Strings it returns live as long as the document.
 */
enum { CONFIG_MAX_USED = 160 };
struct config {
	const json_t *object;
	const char *path; /* "" or "text_config" */
	const char
		*used[CONFIG_MAX_USED]; /* names from the tables of family.c and literals of read.c */
	unsigned n_used;
	struct adp_arena *arena; /* of the model */
	struct notes *notes;     /* one list for all parts of the document */
	struct adp_error *err;
};

/* Marks key as used and returns its value; NULL when absent. JSON null is a value. */
const json_t *config_value(struct config *config, const char *key);

/* The first name of key that is present and not null; NULL when none is. Marks all its names as
 * used. */
const char *config_pick(struct config *config, const struct key *key);

enum { CONFIG_MAX_SIZE = 1 << 24 }; /* a width, a vocabulary, a number of positions or heads */

/* Required value; the error names the path, the key and the range. */
int config_size(uint64_t *out, struct config *config, const struct key *key, uint64_t min,
                uint64_t max);
/* *found false when absent or null; *out is left alone then. */
int config_size_if(uint64_t *out, bool *found, struct config *config, const char *key, uint64_t min,
                   uint64_t max);
int config_toggle(bool *out, struct config *config, const struct toggle *toggle);

/* "text_config.key" or "key", in the arena; NULL when memory runs out. */
const char *config_field(struct config *config, const char *key);
int config_note(struct config *config, const char *format, ...) ADP_PRINTF(2, 3);

/* Replaces control characters and bytes that are not UTF-8 by '?': the text goes to terminals and
 * documents. */
void text_make_plain(char *text);

/* Is the value more than null, false, 0, "" or an empty list or object? */
bool config_is_set(const json_t *value);

/*
 * After all is read: a structural key that nobody used and that is set stops the reader; other
 * unused keys are listed in a note.
 */
int config_finish(struct config *config);
/* The first key of foreign_keys that is set and that nobody used; NULL when none is. */
const struct structural_key *config_foreign(const struct config *config);

/* Parts of facts_read: what differs between layers. Sizes and heads must be there. */
enum { MAX_LAYERS = 10000 };
int facts_read_windows(struct facts *f, struct config *config);
int facts_read_mlp(struct facts *f, struct config *config);

/* Object of a known family in, facts out. */
int facts_read(struct facts *out, struct config *config, const struct family *family);

/* Facts in, blocks and items out; model->arena owns them. */
int model_build(struct adp_model *model, const struct facts *facts, struct adp_error *err);

#endif
