/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <inttypes.h>
#include <string.h>

#include "base/doc.h"

enum { MAX_EXPERTS = 1 << 16 };

/* ---- layers of several kinds ------------------------------------------------------------ */

/* A list with one entry per layer; NULL when absent or null. */
static int read_layer_list(const json_t **out, const struct facts *f, struct config *config,
                           const char *key)
{
	json_t *list = NULL;
	bool found;
	int rc;

	*out = NULL;
	config_value(config, key);
	rc = adp_doc_array(&list, &found, config->object, key, config->path, config->err);
	if (rc != ADP_OK || !found)
		return rc;
	if (json_array_size(list) != f->n_layers)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s has %zu entries; expected one for each of the %" PRIu32 " layers",
		                config_field(config, key), json_array_size(list), f->n_layers);
	*out = list;
	return ADP_OK;
}

/* A list of 0 and 1, one per layer. */
static int read_flags(bool *flags, const struct facts *f, struct config *config, const char *key)
{
	const json_t *list;
	int rc = read_layer_list(&list, f, config, key);

	if (rc != ADP_OK)
		return rc;
	if (!list)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is missing; expected a list of 0 and 1, one for each of the %" PRIu32
		                " layers",
		                config_field(config, key), f->n_layers);
	for (uint32_t i = 0; i < f->n_layers; i++) {
		const json_t *value = json_array_get(list, i);
		if (!json_is_integer(value) ||
		    (json_integer_value(value) != 0 && json_integer_value(value) != 1))
			return adp_fail(config->err, ADP_EINVAL, "%s[%" PRIu32 "] is neither 0 nor 1",
			                config_field(config, key), i);
		flags[i] = json_integer_value(value) == 1;
	}
	return ADP_OK;
}

/* Layers that layer_types calls sliding; *given false when the key is absent. */
static int read_layer_types(bool *sliding, bool *given, const struct facts *f,
                            struct config *config)
{
	const json_t *list;
	int rc = read_layer_list(&list, f, config, "layer_types");

	*given = list != NULL;
	if (rc != ADP_OK || !list)
		return rc;
	for (uint32_t i = 0; i < f->n_layers; i++) {
		const char *type = json_string_value(json_array_get(list, i));
		sliding[i] = type && strcmp(type, "sliding_attention") == 0;
		if (!type || (!sliding[i] && strcmp(type, "full_attention") != 0))
			return adp_fail(config->err, ADP_EINVAL,
			                "%s[%" PRIu32
			                "] is %.40s; only full_attention and sliding_attention layers are read",
			                config_field(config, "layer_types"), i, type ? type : "not a text");
	}
	return ADP_OK;
}

/* *out 0: no window. Absent takes the class's default, null does not. */
static int read_window(uint64_t *out, struct facts *f, struct config *config, bool required)
{
	const json_t *value = config_value(config, "sliding_window");
	bool found;

	*out = 0;
	if (!value && !required && f->family->window_default) {
		*out = f->family->window_default;
		return config_note(config, "%s absent: %" PRIu64 ", the family's default",
		                   config_field(config, "sliding_window"), *out);
	}
	if (required)
		return config_size(out, config, &(struct key){{"sliding_window"}}, 1, UINT32_MAX);
	return config_size_if(out, &found, config, "sliding_window", 1, UINT32_MAX);
}

/* Layers of a switched or patterned family without layer_types. */
static int default_pattern(bool *sliding, struct facts *f, struct config *config)
{
	uint64_t from = 0, period = f->family->window_period;
	bool found = false;
	int rc = ADP_OK;

	if (f->family->windows == WINDOW_SWITCHED) {
		if (f->family->moe)
			return adp_fail(config->err, ADP_EINVAL,
			                "%s is true but %s, which says where, is missing; add it",
			                config_field(config, "use_sliding_window"), "layer_types");
		rc = config_size(&from, config, &(struct key){{"max_window_layers"}}, 0, UINT32_MAX);
	} else if (f->family->windows == WINDOW_PATTERN) {
		rc = config_size_if(&period, &found, config, "sliding_window_pattern", 1, MAX_LAYERS);
		if (rc == ADP_OK && !found)
			rc = config_note(config,
			                 "%s absent: one layer in %" PRIu64
			                 " attends in full, the others in a window",
			                 config_field(config, "layer_types"), period);
	}
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0; i < f->n_layers; i++)
		sliding[i] = f->family->windows == WINDOW_PATTERN ? (i + 1) % period != 0 : i >= from;
	return ADP_OK;
}

int facts_read_windows(struct facts *f, struct config *config)
{
	enum window_rule rule = f->family->windows;
	uint64_t window = 0;
	bool given = false, on = rule != WINDOW_NONE;
	bool *sliding = adp_arena_calloc(config->arena, f->n_layers, sizeof *sliding);
	int rc = ADP_OK;

	if (!sliding)
		return adp_nomem(config->err);
	config_value(config, "sliding_window_size"); /* a copy of sliding_window in some exports */
	if (rule == WINDOW_SWITCHED)
		rc = config_toggle(&on, config, &(struct toggle){"use_sliding_window", false});
	if (rc == ADP_OK && on)
		rc = read_window(&window, f, config, rule == WINDOW_SWITCHED || rule == WINDOW_MIMO);
	else
		config_value(config, "sliding_window"); /* switched off, or the class does not look at it */
	if (rc == ADP_OK && rule == WINDOW_MIMO)
		rc = read_flags(sliding, f, config, "hybrid_layer_pattern");
	else if (rc == ADP_OK)
		rc = read_layer_types(sliding, &given, f, config);
	if (rc == ADP_OK && !given && rule != WINDOW_MIMO && window)
		rc = default_pattern(sliding, f, config);
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0; i < f->n_layers; i++) {
		if (sliding[i] && !window)
			return adp_fail(config->err, ADP_EINVAL,
			                "%s[%" PRIu32 "] is sliding_attention but %s gives no window; "
			                "expected a number of tokens",
			                config_field(config, "layer_types"), i,
			                config_field(config, "sliding_window"));
		f->layers[i].window_kind = rule == WINDOW_MIMO && sliding[i];
		f->layers[i].window_tokens = sliding[i] ? (uint32_t)window : 0;
	}
	if (window && f->positions && window >= f->positions) {
		for (uint32_t i = 0; i < f->n_layers; i++)
			f->layers[i].window_tokens = 0;
		rc = config_note(
			config, "%s %" PRIu64 " is not shorter than the longest sequence: as full attention",
			config_field(config, "sliding_window"), window);
	}
	return rc;
}

/* ---- experts ----------------------------------------------------------------------------- */

static int read_first_dense(struct facts *f, struct config *config)
{
	uint64_t first = 0, step = 1;
	bool found;
	int rc = config_size_if(&first, &found, config, "first_k_dense_replace", 0, MAX_LAYERS);

	if (rc == ADP_OK && !found)
		rc = config_note(config, "%s absent: 0, no dense layers first",
		                 config_field(config, "first_k_dense_replace"));
	if (rc == ADP_OK)
		rc = config_size_if(&step, &found, config, "moe_layer_freq", 1, MAX_LAYERS);
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0; i < f->n_layers; i++)
		f->layers[i].moe = i >= first && i % step == 0;
	return ADP_OK;
}

static int read_sparse_step(struct facts *f, struct config *config)
{
	uint64_t step = 1;
	json_t *list = NULL, *value;
	bool found;
	size_t n;
	int rc = config_size_if(&step, &found, config, "decoder_sparse_step", 1, MAX_LAYERS);

	if (rc == ADP_OK && !found)
		rc = config_note(config, "%s absent: 1, experts in every layer",
		                 config_field(config, "decoder_sparse_step"));
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0; i < f->n_layers; i++)
		f->layers[i].moe = (i + 1) % step == 0;
	config_value(config, "mlp_only_layers");
	rc = adp_doc_array(&list, &found, config->object, "mlp_only_layers", config->path, config->err);
	if (rc != ADP_OK || !found)
		return rc;
	json_array_foreach (list, n, value) {
		json_int_t layer = json_is_integer(value) ? json_integer_value(value) : -1;
		if (layer < 0 || layer >= (json_int_t)f->n_layers)
			return adp_fail(config->err, ADP_EINVAL,
			                "%s[%zu] is not a layer; expected whole numbers from 0 to %" PRIu32,
			                config_field(config, "mlp_only_layers"), n, f->n_layers - 1);
		f->layers[layer].moe = false;
	}
	return ADP_OK;
}

static int read_moe_layers(struct facts *f, struct config *config, bool *flags)
{
	int rc = ADP_OK;

	switch (f->family->moe->layers) {
	case MOE_ALL:
		for (uint32_t i = 0; i < f->n_layers; i++)
			f->layers[i].moe = true;
		break;
	case MOE_FIRST_DENSE:
		rc = read_first_dense(f, config);
		break;
	case MOE_SPARSE_STEP:
		rc = read_sparse_step(f, config);
		break;
	case MOE_LIST:
		rc = read_flags(flags, f, config, "moe_layer_freq");
		for (uint32_t i = 0; rc == ADP_OK && i < f->n_layers; i++)
			f->layers[i].moe = flags[i];
		break;
	}
	return rc;
}

static int read_shared_experts(struct facts *f, struct config *config)
{
	uint64_t n = 0;
	bool found;
	int rc = ADP_OK;

	if (f->family->moe->shared == SHARED_WIDTH)
		return config_size(&f->shared_ffn, config,
		                   &(struct key){{"shared_expert_intermediate_size"}}, 0, CONFIG_MAX_SIZE);
	if (f->family->moe->shared == SHARED_COUNT) {
		const json_t *value = config_value(config, "n_shared_experts");
		rc = config_size_if(&n, &found, config, "n_shared_experts", 0, MAX_EXPERTS);
		f->shared_ffn = n * f->expert_ffn;
		if (rc == ADP_OK && !value)
			rc = config_note(config, "%s absent: 0", config_field(config, "n_shared_experts"));
	}
	return rc;
}

static int read_moe(struct facts *f, struct config *config)
{
	const struct moe *moe = f->family->moe;
	uint64_t n_experts = 0, top_k = 0;
	bool any = false;
	int rc = ADP_OK;

	if (config_pick(config, &moe->n_experts) || !moe->optional)
		rc = config_size(&n_experts, config, &moe->n_experts, 0, MAX_EXPERTS);
	else
		rc = config_note(config, "%s absent: a dense model",
		                 config_field(config, moe->n_experts.name[0]));
	if (rc != ADP_OK)
		return rc;
	if (n_experts) {
		bool *flags = adp_arena_calloc(config->arena, f->n_layers, sizeof *flags);
		if (!flags)
			return adp_nomem(config->err);
		rc = read_moe_layers(f, config, flags);
		for (uint32_t i = 0; i < f->n_layers; i++)
			any = any || f->layers[i].moe;
	}
	if (rc != ADP_OK || !any)
		return rc;
	rc = config_size(&top_k, config, &moe->top_k, 1, n_experts);
	if (rc != ADP_OK)
		return adp_wrap(config->err, rc,
		                "a token cannot visit more experts than the %" PRIu64 " of %s", n_experts,
		                config_pick(config, &moe->n_experts));
	rc = config_size(&f->expert_ffn, config, &moe->expert_ffn, 1, CONFIG_MAX_SIZE);
	if (rc == ADP_OK)
		rc = read_shared_experts(f, config);
	f->n_experts = (uint32_t)n_experts;
	f->top_k = (uint32_t)top_k;
	return rc;
}

/* The row's own keys, also when there are no experts or no dense layers to read them for. */
static void mark_moe_keys(struct config *config, const struct moe *moe)
{
	config_pick(config, &moe->n_experts);
	config_pick(config, &moe->top_k);
	config_pick(config, &moe->expert_ffn);
	if (moe->shared == SHARED_COUNT)
		config_value(config, "n_shared_experts");
	if (moe->shared == SHARED_WIDTH)
		config_value(config, "shared_expert_intermediate_size");
	if (moe->layers == MOE_FIRST_DENSE) {
		config_value(config, "first_k_dense_replace");
		config_value(config, "moe_layer_freq");
	} else if (moe->layers == MOE_SPARSE_STEP) {
		config_value(config, "decoder_sparse_step");
		config_value(config, "mlp_only_layers");
	}
}

static int read_ffn(struct facts *f, struct config *config)
{
	const struct family *family = f->family;
	const char *name = config_pick(config, &family->keys->ffn);
	bool any_dense = false;

	for (uint32_t i = 0; i < f->n_layers; i++)
		any_dense = any_dense || !f->layers[i].moe;
	if (!any_dense)
		return ADP_OK;
	if (!name && family->ffn_times_hidden) {
		f->ffn = family->ffn_times_hidden * f->hidden;
		return family->keys->ffn.name[0]
		           ? config_note(config, "%s absent: %" PRIu32 " * hidden size = %" PRIu64,
		                         config_field(config, family->keys->ffn.name[0]),
		                         family->ffn_times_hidden, f->ffn)
		           : ADP_OK;
	}
	return config_size(&f->ffn, config, &family->keys->ffn, 1, CONFIG_MAX_SIZE);
}

int facts_read_mlp(struct facts *f, struct config *config)
{
	int rc = ADP_OK;

	if (f->family->moe) {
		mark_moe_keys(config, f->family->moe);
		rc = read_moe(f, config);
	}
	return rc == ADP_OK ? read_ffn(f, config) : rc;
}
