/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <inttypes.h>
#include <string.h>

#include "base/doc.h"

enum { MAX_HEADS = 1 << 16 };

/* ---- attention ------------------------------------------------------------------------ */

static int read_kv_heads(struct facts *f, struct config *config)
{
	const struct key *key = &f->family->keys->kv_heads;
	const char *name = config_pick(config, key);
	bool grouped = f->family->kv == KV_REQUIRED || f->family->kv == KV_OR_HEADS;
	uint64_t value = f->n_heads;
	int rc = ADP_OK;

	if (f->family->kv == KV_FALCON) {
		bool regrouped, multi_query;
		rc = config_toggle(&regrouped, config, &(struct toggle){"new_decoder_architecture", false});
		if (rc == ADP_OK)
			rc = config_toggle(&multi_query, config, &(struct toggle){"multi_query", true});
		if (rc != ADP_OK)
			return rc;
		grouped = regrouped;
		if (!regrouped) {
			name = NULL; /* the class ignores num_kv_heads then */
			value = multi_query ? 1 : f->n_heads;
		}
	} else if (f->family->kv == KV_CHATGLM) {
		rc = config_toggle(&grouped, config, &(struct toggle){"multi_query_attention", false});
		if (rc != ADP_OK)
			return rc;
		if (!grouped)
			name = NULL;
	}
	if (name)
		rc = adp_doc_u64(&value, NULL, config->object, name, 1, MAX_HEADS, config->path,
		                 config->err);
	else if (f->family->kv == KV_REQUIRED)
		rc = config_size(&value, config, key, 1, MAX_HEADS);
	else if (grouped)
		rc = config_note(config, "%s absent: %" PRIu32 ", as many as query heads",
		                 config_field(config, key->name[0]), f->n_heads);
	if (rc != ADP_OK)
		return rc;
	if (value > f->n_heads || f->n_heads % value != 0 ||
	    (f->family->kv == KV_ALL_HEADS && value != f->n_heads))
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is %" PRIu64 "; expected %s the %" PRIu32 " query heads (%s)",
		                config_field(config, name ? name : key->name[0]), value,
		                f->family->kv == KV_ALL_HEADS ? "exactly" : "a divisor of", f->n_heads,
		                config_field(config, config_pick(config, &f->family->keys->heads)));
	f->n_kv_heads = (uint32_t)value;
	return ADP_OK;
}

static int read_head_dim(struct facts *f, struct config *config)
{
	const struct keys *keys = f->family->keys;
	const char *name = config_pick(config, &keys->head_dim);
	uint64_t value = 0;
	int rc;

	if (name || f->family->head_dim_required) {
		rc = config_size(&value, config, &keys->head_dim, 1, MAX_HEADS);
		if (rc != ADP_OK)
			return rc;
	} else {
		if (f->hidden % f->n_heads != 0)
			return adp_fail(config->err, ADP_EINVAL,
			                "%s is %" PRIu64 ", which %s %" PRIu32
			                " does not divide, and no head_dim says how "
			                "wide a head is; expected a multiple of the heads, or the key head_dim",
			                config_field(config, config_pick(config, &keys->hidden)), f->hidden,
			                config_pick(config, &keys->heads), f->n_heads);
		value = f->hidden / f->n_heads;
		if (keys->head_dim.name[0]) {
			rc = config_note(config, "%s absent: hidden size / heads = %" PRIu64,
			                 config_field(config, keys->head_dim.name[0]), value);
			if (rc != ADP_OK)
				return rc;
		}
	}
	f->head_dim = (uint32_t)value;
	f->v_head_dim = f->head_dim;
	return ADP_OK;
}

/* A value that the block cannot express must equal the one it repeats. */
static int require_same(struct config *config, const char *key, uint64_t expected)
{
	uint64_t value = expected;
	bool found;
	int rc = config_size_if(&value, &found, config, key, 1, CONFIG_MAX_SIZE);

	if (rc != ADP_OK || value == expected)
		return rc;
	return adp_fail(config->err, ADP_EINVAL,
	                "%s is %" PRIu64 "; only %" PRIu64 ", as in the other layers, is read",
	                config_field(config, key), value, expected);
}

static int read_mimo(struct facts *f, struct config *config)
{
	uint64_t value = f->head_dim;
	bool found;
	int rc = config_size_if(&value, &found, config, "v_head_dim", 1, MAX_HEADS);

	if (rc != ADP_OK)
		return rc;
	f->v_head_dim = (uint32_t)value;
	rc = config_size(&value, config, &(struct key){{"swa_num_key_value_heads"}}, 1, f->n_heads);
	if (rc != ADP_OK)
		return rc;
	if (f->n_heads % value != 0)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is %" PRIu64 "; expected a divisor of the %" PRIu32 " query heads",
		                config_field(config, "swa_num_key_value_heads"), value, f->n_heads);
	f->window_kv_heads = (uint32_t)value;
	rc = require_same(config, "swa_num_attention_heads", f->n_heads);
	if (rc == ADP_OK)
		rc = require_same(config, "swa_head_dim", f->head_dim);
	if (rc == ADP_OK)
		rc = require_same(config, "swa_v_head_dim", f->v_head_dim);
	if (rc == ADP_OK)
		rc = config_toggle(&f->sinks, config,
		                   &(struct toggle){"add_full_attention_sink_bias", false});
	if (rc == ADP_OK)
		rc = config_toggle(&f->window_sinks, config,
		                   &(struct toggle){"add_swa_attention_sink_bias", true});
	return rc;
}

/* ---- norms, biases, positions --------------------------------------------------------- */

static int read_falcon_norms(struct facts *f, struct config *config)
{
	static const char *const one_by_one[] = {"input_layernorm", "post_attention_layernorm"};
	uint64_t n_norms = 2;
	bool regrouped, found;
	int rc = config_toggle(&f->parallel, config, &(struct toggle){"parallel_attn", true});

	if (rc == ADP_OK)
		rc = config_toggle(&regrouped, config, &(struct toggle){"new_decoder_architecture", false});
	if (rc == ADP_OK)
		rc = config_toggle(&f->alibi, config, &(struct toggle){"alibi", false});
	if (rc == ADP_OK)
		rc = config_size_if(&n_norms, &found, config, "num_ln_in_parallel_attn", 1, 2);
	if (rc != ADP_OK)
		return rc;
	if (f->parallel && !regrouped && !found)
		n_norms = 1;
	f->n_norms = f->parallel ? (uint32_t)n_norms : 2;
	if (!f->parallel || f->n_norms == 1)
		f->norm_names = one_by_one;
	return ADP_OK;
}

static int read_opt_norms(struct facts *f, struct config *config)
{
	bool before, no_final, affine, found;
	int rc = config_toggle(&before, config, &(struct toggle){"do_layer_norm_before", true});

	if (rc == ADP_OK)
		rc = config_toggle(&no_final, config, &(struct toggle){"_remove_final_layer_norm", false});
	if (rc == ADP_OK)
		rc = config_toggle(&affine, config,
		                   &(struct toggle){"layer_norm_elementwise_affine", true});
	if (rc == ADP_OK)
		rc = config_size_if(&f->embedding_width, &found, config, "word_embed_proj_dim", 1,
		                    CONFIG_MAX_SIZE);
	if (rc != ADP_OK)
		return rc;
	if (!affine)
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is false: norms without parameters are not read; expected true",
		                config_field(config, "layer_norm_elementwise_affine"));
	f->norms_after = !before;
	f->final_norm = before && !no_final;
	return ADP_OK;
}

static int read_norms(struct facts *f, struct config *config)
{
	int rc = ADP_OK;

	f->n_norms = 2;
	f->norm_names = f->family->names->norms;
	f->final_norm = true;
	switch (f->family->norms) {
	case NORMS_PRE:
		break;
	case NORMS_SHARED:
		f->parallel = true;
		f->n_norms = 1;
		break;
	case NORMS_SANDWICH:
		f->n_norms = 4;
		break;
	case NORMS_AFTER:
		f->norms_after = true;
		break;
	case NORMS_STABLELM:
		rc = config_toggle(&f->parallel, config, &(struct toggle){"use_parallel_residual", false});
		f->n_norms = f->parallel ? 1 : 2;
		break;
	case NORMS_NEOX:
		rc = config_toggle(&f->parallel, config, &(struct toggle){"use_parallel_residual", true});
		break;
	case NORMS_FALCON:
		rc = read_falcon_norms(f, config);
		break;
	case NORMS_OPT:
		rc = read_opt_norms(f, config);
		break;
	}
	return rc;
}

static int read_toggles(struct facts *f, struct config *config)
{
	const struct family *family = f->family;
	bool extra = false;
	int rc = config_toggle(&f->qkv_bias, config, &family->qkv_bias);

	if (rc == ADP_OK && family->extra_bias_key)
		rc = config_toggle(&extra, config, &(struct toggle){family->extra_bias_key, false});
	if (rc == ADP_OK)
		rc = config_toggle(&f->out_bias, config, &family->out_bias);
	if (rc == ADP_OK)
		rc = config_toggle(&f->mlp_bias, config, &family->mlp_bias);
	if (rc == ADP_OK)
		rc = config_toggle(&f->head_bias, config, &family->head_bias);
	if (rc == ADP_OK)
		rc = config_toggle(&f->qk_norm, config, &family->qk_norm);
	f->qkv_bias = f->qkv_bias || extra;
	return rc;
}

/* Llama 3.1's kind, which engines know by its factor alone when the other constants are the usual
 * ones. */
static int read_llama3_rope(struct facts *f, struct config *config, const json_t *object,
                            const char *path)
{
	double factor = 0, low = 0, high = 0, original = 0;
	bool found;
	int rc = adp_doc_double(&factor, &found, object, "factor", 1, 1e6, path, config->err);

	if (rc == ADP_OK)
		rc = adp_doc_double(&low, &found, object, "low_freq_factor", 0, 1e6, path, config->err);
	if (rc == ADP_OK)
		rc = adp_doc_double(&high, &found, object, "high_freq_factor", 0, 1e6, path, config->err);
	if (rc == ADP_OK)
		rc = adp_doc_double(&original, &found, object, "original_max_position_embeddings", 0, 1e9,
		                    path, config->err);
	if (rc != ADP_OK)
		return rc;
	if (factor >= 1 && low == 1.0 && high == 4.0 && original == 8192.0)
		f->llama3_factor = factor;
	else
		f->scaled_rope = true;
	return ADP_OK;
}

/* "rope_scaling", or "rope_parameters" since transformers 5, there with the base and the rotated
 * share. */
static int read_rope_object(struct facts *f, struct config *config, const char *key,
                            bool *found_theta)
{
	json_t *object = NULL, *full;
	const char *type = "default", *path = config_field(config, key);
	double share = 1;
	bool found;
	int rc;

	config_value(config, key);
	rc = adp_doc_object(&object, &found, config->object, key, config->path, config->err);
	if (rc != ADP_OK || !found)
		return rc;
	full = json_object_get(object, "full_attention"); /* one entry per kind of layer */
	if (json_is_object(full))
		object = full;
	if (!*found_theta)
		rc = adp_doc_double(&f->theta, found_theta, object, "rope_theta", 1, 1e15, path,
		                    config->err);
	if (rc == ADP_OK)
		rc = adp_doc_string(&type, &found, object,
		                    json_object_get(object, "rope_type") ? "rope_type" : "type", path,
		                    config->err);
	if (rc == ADP_OK)
		rc = adp_doc_double(&share, &found, object, "partial_rotary_factor", 0, 1, path,
		                    config->err);
	if (rc == ADP_OK && found)
		f->partial_rotary = share < 1;
	if (rc == ADP_OK && type && strcmp(type, "llama3") == 0)
		return read_llama3_rope(f, config, object, path);
	if (rc == ADP_OK && type && strcmp(type, "default") != 0 && strcmp(type, "gptj") != 0)
		f->scaled_rope = true;
	return rc;
}

static int read_rotary_share(struct facts *f, struct config *config)
{
	static const char *const share_keys[] = {"partial_rotary_factor", "rotary_pct"};
	uint64_t dim = 0;
	bool found;
	int rc;

	f->partial_rotary = f->family->partial_rotary;
	for (size_t i = 0; i < 2; i++) {
		double share = 1;
		config_value(config, share_keys[i]);
		rc = adp_doc_double(&share, &found, config->object, share_keys[i], 0, 1, config->path,
		                    config->err);
		if (rc != ADP_OK)
			return rc;
		if (found)
			f->partial_rotary = share < 1;
	}
	rc = config_size_if(&dim, &found, config, "rotary_dim", 1, f->head_dim);
	if (rc == ADP_OK && found)
		f->partial_rotary = dim < f->head_dim;
	return rc;
}

static int read_positions(struct facts *f, struct config *config)
{
	const struct keys *keys = f->family->keys;
	const char *name = config_pick(config, &keys->positions);
	bool found = false;
	int rc = ADP_OK;

	if (name || f->family->learned_positions)
		rc = config_size(&f->positions, config, &keys->positions, 1, UINT32_MAX);
	else
		rc = config_note(config, "%s absent: no limit of the sequence length is stated",
		                 config_field(config, keys->positions.name[0]));
	if (rc != ADP_OK || f->family->theta <= 0)
		return rc;
	name = config_pick(config, &keys->theta);
	if (name)
		rc = adp_doc_double(&f->theta, &found, config->object, name, 1, 1e15, config->path,
		                    config->err);
	if (rc == ADP_OK)
		rc = read_rotary_share(f, config);
	if (rc == ADP_OK)
		rc = read_rope_object(f, config, "rope_scaling", &found);
	if (rc == ADP_OK)
		rc = read_rope_object(f, config, "rope_parameters", &found);
	if (rc != ADP_OK || f->alibi) {
		f->theta = 0;
		return rc;
	}
	if (!found) {
		f->theta = f->family->theta;
		if (keys->theta.name[0])
			rc = config_note(config, "%s absent: %g, the family's default",
			                 config_field(config, keys->theta.name[0]), f->theta);
	}
	return rc;
}

static int read_activation(struct facts *f, struct config *config)
{
	const char *name = config_pick(config, &f->family->keys->activation), *text = NULL;
	int rc;

	f->activation = f->family->activation;
	if (!name)
		return f->family->keys->activation.name[0]
		           ? config_note(config, "%s absent: %s, the family's default",
		                         config_field(config, f->family->keys->activation.name[0]),
		                         f->activation)
		           : ADP_OK;
	rc = adp_doc_string(&text, NULL, config->object, name, config->path, config->err);
	if (rc != ADP_OK)
		return rc;
	if (strlen(text) > 64 ||
	    strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
	        strlen(text))
		return adp_fail(config->err, ADP_EINVAL,
		                "%s is not the name of an activation function, such as %s",
		                config_field(config, name), f->family->activation);
	f->activation = adp_arena_strdup(config->arena, text);
	return f->activation ? ADP_OK : adp_nomem(config->err);
}

/* ---- what is told but not counted ---------------------------------------------------------- */

static int read_remarks(struct facts *f, struct config *config)
{
	static const char *const mtp_keys[] = {
		"num_nextn_predict_layers",
		"num_mtp_modules",
		"mtp_num_hidden_layers",
		"num_mtp_layers",
	};
	static const char *const softcap_keys[] = {"attn_logit_softcapping", "final_logit_softcapping"};
	int rc = ADP_OK;

	config_value(config, "use_mtp");
	config_value(config, "mtp_transformer_layers");
	for (size_t i = 0; rc == ADP_OK && i < sizeof mtp_keys / sizeof mtp_keys[0]; i++)
		if (config_is_set(config_value(config, mtp_keys[i])))
			rc = config_note(config, "%s: multi-token prediction layers are not counted",
			                 config_field(config, mtp_keys[i]));
	if (rc == ADP_OK && config_is_set(config_value(config, "quantization_config")))
		rc = config_note(config, "%s: left out; counts are of the unquantised weights",
		                 config_field(config, "quantization_config"));
	for (size_t i = 0; i < 2; i++)
		f->softcap = f->softcap || config_is_set(config_value(config, softcap_keys[i]));
	config_value(config, "max_window_layers");
	return rc;
}

static int read_sizes(struct facts *f, struct config *config)
{
	const struct keys *keys = f->family->keys;
	uint64_t layers = 0, heads = 0;
	int rc = config_size(&layers, config, &keys->layers, 1, MAX_LAYERS);

	if (rc == ADP_OK)
		rc = config_size(&f->hidden, config, &keys->hidden, 1, CONFIG_MAX_SIZE);
	if (rc == ADP_OK)
		rc = config_size(&heads, config, &keys->heads, 1, MAX_HEADS);
	if (rc == ADP_OK)
		rc = config_size(&f->vocab, config, &keys->vocab, 1, CONFIG_MAX_SIZE);
	f->n_layers = (uint32_t)layers;
	f->n_heads = (uint32_t)heads;
	f->embedding_width = f->hidden;
	return rc;
}

int facts_read(struct facts *out, struct config *config, const struct family *family)
{
	static int (*const steps[])(struct facts *, struct config *) = {
		read_head_dim,  read_kv_heads,   read_norms,         read_toggles,
		read_positions, read_activation, facts_read_windows,
	};
	int rc;

	*out = (struct facts){.family = family, .alibi = family->alibi, .sinks = family->sinks};
	rc = read_sizes(out, config);
	if (rc != ADP_OK)
		return rc;
	out->layers = adp_arena_calloc(config->arena, out->n_layers, sizeof *out->layers);
	if (!out->layers)
		return adp_nomem(config->err);
	for (size_t i = 0; rc == ADP_OK && i < sizeof steps / sizeof steps[0]; i++)
		rc = steps[i](out, config);
	out->window_kv_heads = out->n_kv_heads;
	out->window_sinks = out->sinks;
	if (rc == ADP_OK && family->windows == WINDOW_MIMO)
		rc = read_mimo(out, config);
	if (rc == ADP_OK)
		rc = facts_read_mlp(out, config);
	if (rc == ADP_OK)
		rc = read_remarks(out, config);
	return rc;
}
