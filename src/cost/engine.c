/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/engine.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/number.h"
#include "base/strbuf.h"

static const char TABLE[] = "engines.csv";
enum { MAX_INHERIT = 8 };

static const char *const recompute_names[] = {"none", "selective", "full"};
static const char *const optimizer_names[] = {"adamw", "adam", "sgd-momentum", "sgd"};
enum { N_OPTIMIZERS = sizeof optimizer_names / sizeof optimizer_names[0] };

const char *adp_recompute_name(enum adp_recompute recompute)
{
	return (unsigned)recompute < ADP_N_RECOMPUTE ? recompute_names[recompute] : "unknown";
}

const char *adp_optimizer_name(enum adp_optimizer optimizer)
{
	return (unsigned)optimizer < N_OPTIMIZERS ? optimizer_names[optimizer] : "unknown";
}

int adp_optimizer_parse(enum adp_optimizer *out, const char *text, struct adp_error *err)
{
	for (unsigned i = 0; i < N_OPTIMIZERS; i++) {
		if (strcasecmp(text, optimizer_names[i]) == 0) {
			*out = (enum adp_optimizer)i;
			return ADP_OK;
		}
	}
	return adp_fail(
		err, ADP_EINVAL,
		"optimizer \"%.60s\" is not known; give adamw, adam, sgd-momentum or sgd with --optimizer",
		text);
}

enum key_type {
	KEY_BOOL,
	KEY_COUNT,     /* uint32_t */
	KEY_REAL,      /* double, >= 0 */
	KEY_FRAC,      /* double, 0 .. 1 */
	KEY_ZERO,      /* mask of digits */
	KEY_RECOMPUTE, /* mask of names */
	KEY_PRECISION,
};

struct key {
	const char *name;
	enum key_type type;
	size_t offset;
	double min, max; /* of COUNT and REAL */
};

#define KEY(field, type, min, max)                                                                 \
	{                                                                                              \
#field, type, offsetof(struct adp_engine, field), min, max                                 \
	}
static const struct key keys[] = {
	KEY(uneven_layers, KEY_BOOL, 0, 0),
	KEY(uneven_micro_batches, KEY_BOOL, 0, 0),
	KEY(recompute_per_stage, KEY_BOOL, 0, 0),
	KEY(virtual_pipeline, KEY_BOOL, 0, 0),
	KEY(context_parallel, KEY_BOOL, 0, 0),
	KEY(expert_parallel, KEY_BOOL, 0, 0),
	KEY(sequence_parallel, KEY_BOOL, 0, 0),
	KEY(hsdp, KEY_BOOL, 0, 0),
	KEY(expert_tensor_parallel, KEY_BOOL, 0, 0),
	KEY(zero_mask, KEY_ZERO, 0, 0),
	KEY(zero_mask_with_pipeline, KEY_ZERO, 0, 0),
	KEY(recompute_mask, KEY_RECOMPUTE, 0, 0),
	KEY(precision_mask, KEY_PRECISION, 0, 0),
	KEY(zero23_needs_untied, KEY_BOOL, 0, 0),
	KEY(zero23_allows_fp16, KEY_BOOL, 0, 0),
	KEY(zero_needs_adam, KEY_BOOL, 0, 0),
	KEY(kv_replication, KEY_BOOL, 0, 0),
	KEY(batch_divides_evenly, KEY_BOOL, 0, 0),
	KEY(vpp_needs_divisible_batches, KEY_BOOL, 0, 0),
	KEY(fewer_batches_than_stages, KEY_BOOL, 0, 0),
	KEY(moe_tp_needs_sp, KEY_BOOL, 0, 0),
	KEY(vocab_multiple, KEY_COUNT, 1, 65536),
	KEY(min_compute_capability, KEY_COUNT, 0, 1000),
	KEY(min_cc_bf16, KEY_COUNT, 0, 1000),
	KEY(min_cc_fp8, KEY_COUNT, 0, 1000),
	KEY(min_cc_flash, KEY_COUNT, 0, 1000),
	KEY(nvidia_only, KEY_BOOL, 0, 0),
	KEY(max_pipeline, KEY_COUNT, 1, 65536),
	KEY(max_tensor, KEY_COUNT, 1, 65536),
	KEY(tp_overlap_frac, KEY_FRAC, 0, 1),
	KEY(dp_overlap_frac, KEY_FRAC, 0, 1),
	KEY(fsdp_overlap_frac, KEY_FRAC, 0, 1),
	KEY(p2p_overlap_frac, KEY_FRAC, 0, 1),
	KEY(ep_overlap_frac, KEY_FRAC, 0, 1),
	KEY(launch_s_per_block, KEY_REAL, 0, 1),
	KEY(p2p_fixed_s, KEY_REAL, 0, 1),
	KEY(step_fixed_s, KEY_REAL, 0, 3600),
	KEY(comm_rel_error, KEY_FRAC, 0, 1),
	KEY(memory_traffic_frac, KEY_REAL, 0, 100),
	KEY(weight_bytes, KEY_REAL, 0, 64),
	KEY(grad_bytes, KEY_REAL, 0, 64),
	KEY(master_bytes, KEY_REAL, 0, 64),
	KEY(fp16_grad_bytes, KEY_REAL, 0, 64),
	KEY(fp16_master_bytes, KEY_REAL, 0, 64),
	KEY(fp8_weight_bytes, KEY_REAL, 0, 64),
	KEY(zero3_weight_bytes, KEY_REAL, 0, 64),
	KEY(pipeline_defers_reduce, KEY_BOOL, 0, 0),
	KEY(zero3_live_blocks, KEY_REAL, 1, 1000),
	KEY(bucket_bytes, KEY_REAL, 0, 1e12),
	KEY(context_bytes, KEY_REAL, 0, 1e12),
	KEY(nccl_bytes_per_group, KEY_REAL, 0, 1e12),
	KEY(init_param_bytes, KEY_REAL, 0, 64),
	KEY(init_optimizer_bytes, KEY_REAL, 0, 64),
	KEY(reserve_frac, KEY_REAL, 0, 0.9),
	KEY(norm_saved_bytes, KEY_REAL, 0, 64),
	KEY(attention_copies, KEY_REAL, 0, 64),
	KEY(mlp_saved_elems, KEY_REAL, 0, 64),
	KEY(mlp_saved_elems_gated, KEY_REAL, 0, 64),
	KEY(moe_saved_copies, KEY_REAL, 0, 64),
	KEY(sp_keeps_gathered, KEY_BOOL, 0, 0),
	KEY(logit_bytes, KEY_REAL, 0, 256),
	KEY(dropout_mask_bytes, KEY_REAL, 0, 8),
	KEY(fragmentation_frac, KEY_REAL, 0, 10),
};
#undef KEY
enum { N_KEYS = sizeof keys / sizeof keys[0] };

const char *const *adp_engine_known(void)
{
	static const char *const known[] = {"megatron@0.16.1", "megatron@0.15.0", "torch@2.15", NULL};

	return known;
}

/* The table while it is read. */
struct table {
	struct adp_arena arena;
	struct adp_csv csv;
	uint32_t engine, version, key, value, source; /* columns */
};

static const char *cell(const struct table *table, uint32_t row, uint32_t col)
{
	return adp_csv_cell(&table->csv, row, col);
}

static int fail_row(const struct table *table, uint32_t row, struct adp_error *err,
                    const char *problem)
{
	return adp_fail(err, ADP_EINVAL,
	                "%s:%u: engine %.40s@%.40s, key \"%.60s\", value \"%.80s\": %s",
	                table->csv.where, table->csv.line[row], cell(table, row, table->engine),
	                cell(table, row, table->version), cell(table, row, table->key),
	                cell(table, row, table->value), problem);
}

static bool is_version_row(const struct table *table, uint32_t row, const char *name,
                           const char *version)
{
	return strcmp(cell(table, row, table->engine), name) == 0 &&
	       strcmp(cell(table, row, table->version), version) == 0;
}

static int parse_bool(bool *out, const char *text)
{
	if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
		return ADP_EINVAL;
	*out = text[0] == 'y';
	return ADP_OK;
}

/* One word of a mask to its bit; -1: unknown. */
static int mask_bit(enum key_type type, const char *word, size_t len)
{
	if (type == KEY_ZERO)
		return len == 1 && word[0] >= '0' && word[0] <= '3' ? word[0] - '0' : -1;
	if (type == KEY_RECOMPUTE) {
		for (int i = 0; i < ADP_N_RECOMPUTE; i++) {
			if (strlen(recompute_names[i]) == len && memcmp(recompute_names[i], word, len) == 0)
				return i;
		}
		return -1;
	}
	for (int i = 0; i < ADP_N_PRECISIONS; i++) {
		const char *name = adp_precision_name((enum adp_precision)i);
		if (strlen(name) == len && memcmp(name, word, len) == 0)
			return i;
	}
	return -1;
}

static int parse_mask(uint32_t *out, enum key_type type, const char *text)
{
	uint32_t mask = 0;

	for (;;) {
		const size_t len = strcspn(text, "|");
		const int bit = mask_bit(type, text, len);
		if (bit < 0 || mask & (uint32_t)1 << bit)
			return ADP_EINVAL;
		mask |= (uint32_t)1 << bit;
		if (text[len] == '\0')
			break;
		text += len + 1;
	}
	*out = mask;
	return ADP_OK;
}

/* Sets the field. Returns what the value should have been, NULL when it was fine. */
static const char *set_field(struct adp_engine *engine, const struct key *key, const char *text)
{
	void *field = (char *)engine + key->offset;
	double number;

	switch (key->type) {
	case KEY_BOOL:
		return parse_bool(field, text) ? "must be yes or no" : NULL;
	case KEY_ZERO:
		return parse_mask(field, key->type, text) ? "must list ZeRO stages once each: 0|1|2|3"
		                                          : NULL;
	case KEY_RECOMPUTE:
		return parse_mask(field, key->type, text)
		           ? "must list choices once each: none|selective|full"
		           : NULL;
	case KEY_PRECISION:
		return parse_mask(field, key->type, text)
		           ? "must list precisions once each: fp32|tf32|fp16|bf16|fp8"
		           : NULL;
	case KEY_COUNT:
	case KEY_REAL:
	case KEY_FRAC:
		if (!adp_number_parse(&number, text, strlen(text)))
			return "must be a number";
		if (!(number >= key->min && number <= key->max))
			return "is outside the range of this key";
		if (key->type != KEY_COUNT)
			*(double *)field = number;
		else if (number != (double)(uint32_t)number)
			return "must be a whole number";
		else
			*(uint32_t *)field = (uint32_t)number;
		return NULL;
	}
	return "has no type";
}

static int key_index(const char *name)
{
	for (int i = 0; i < N_KEYS; i++) {
		if (strcmp(keys[i].name, name) == 0)
			return i;
	}
	return -1;
}

/*
 * Reads one version's own rows. Keys already set (by a version that inherits from this one) are
 * checked but kept. *parent: the version to go on with, NULL when the chain ends.
 */
static int read_version(struct adp_engine *engine, bool set[N_KEYS], const char **parent,
                        const struct table *table, const char *version, struct adp_error *err)
{
	bool here[N_KEYS] = {false}, default_here = false;
	struct adp_engine ignored;

	*parent = NULL;
	for (uint32_t row = 0; row < table->csv.n_rows; row++) {
		if (!is_version_row(table, row, engine->name, version))
			continue;
		const char *name = cell(table, row, table->key), *value = cell(table, row, table->value);
		if (cell(table, row, table->source)[0] == '\0')
			return fail_row(table, row, err,
			                "has no source; say in the source column where it comes from");
		if (strcmp(name, "default") == 0) {
			bool is_default;
			if (default_here)
				return fail_row(table, row, err, "is given twice; keep one row");
			default_here = true;
			if (parse_bool(&is_default, value))
				return fail_row(table, row, err, "must be yes or no");
			continue;
		}
		if (strcmp(name, "inherits") == 0) {
			if (*parent)
				return fail_row(table, row, err, "is given twice; keep one row");
			if (strcmp(value, version) == 0 || value[0] == '\0')
				return fail_row(table, row, err, "must name another version of this engine");
			*parent = value;
			continue;
		}
		const int i = key_index(name);
		if (i < 0)
			return fail_row(table, row, err, "is not a key of an engine; see include/adp/engine.h");
		if (here[i])
			return fail_row(table, row, err, "is given twice; keep one row");
		here[i] = true;
		const char *problem = set_field(set[i] ? &ignored : engine, &keys[i], value);
		if (problem)
			return fail_row(table, row, err, problem);
		set[i] = true;
	}
	return ADP_OK;
}

static bool has_version(const struct table *table, const char *name, const char *version)
{
	for (uint32_t row = 0; row < table->csv.n_rows; row++) {
		if (is_version_row(table, row, name, version))
			return true;
	}
	return false;
}

static int read_engine(struct adp_engine *engine, const struct table *table, struct adp_error *err)
{
	bool set[N_KEYS] = {false};
	const char *version = engine->version;

	for (int depth = 0; version; depth++) {
		const char *parent;
		if (depth == MAX_INHERIT)
			return adp_fail(
				err, ADP_EINVAL,
				"%s: engine %.40s@%.40s: more than %d versions inherit from each other in a chain; "
				"look for a circle in the rows with key \"inherits\"",
				table->csv.where, engine->name, engine->version, MAX_INHERIT);
		if (!has_version(table, engine->name, version))
			return adp_fail(
				err, ADP_EINVAL,
				"%s: engine %.40s@%.40s inherits from version \"%.40s\", which has no rows",
				table->csv.where, engine->name, engine->version, version);
		const int rc = read_version(engine, set, &parent, table, version, err);
		if (rc)
			return rc;
		version = parent;
	}
	for (int i = 0; i < N_KEYS; i++) {
		if (!set[i])
			return adp_fail(err, ADP_EINVAL,
			                "%s: engine %.40s@%.40s has no row for key \"%s\"; add one, or let it "
			                "inherit from a "
			                "version that has it",
			                table->csv.where, engine->name, engine->version, keys[i].name);
	}
	return ADP_OK;
}

/* Whether row is the first of its engine and version. */
static bool is_first_row(const struct table *table, uint32_t row)
{
	for (uint32_t i = 0; i < row; i++) {
		if (is_version_row(table, i, cell(table, row, table->engine),
		                   cell(table, row, table->version)))
			return false;
	}
	return true;
}

static int fail_unknown(const struct table *table, const char *spec, const char *problem,
                        struct adp_error *err)
{
	struct adp_strbuf known = {0};

	for (uint32_t row = 0; row < table->csv.n_rows; row++) {
		if (is_first_row(table, row))
			adp_strbuf_addf(&known, "%s%.40s@%.40s", known.len ? ", " : "",
			                cell(table, row, table->engine), cell(table, row, table->version));
	}
	if (known.failed) {
		adp_strbuf_fini(&known);
		return adp_nomem(err);
	}
	adp_fail(err, ADP_EINVAL, "engine \"%.80s\": %s; known: %s. Give one of them with --engine",
	         spec, problem, known.text ? known.text : "none");
	adp_strbuf_fini(&known);
	return ADP_EINVAL;
}

/* A shortened version ends where a dot follows: 0.16 is short for 0.16.1, not for 0.160. */
static bool version_matches(const char *version, const char *wanted)
{
	const size_t len = strlen(wanted);

	return strncmp(version, wanted, len) == 0 && (version[len] == '\0' || version[len] == '.');
}

/* Finds the version that spec means; *row_out is its first row. */
static int find_version(uint32_t *row_out, const struct table *table, const char *spec,
                        struct adp_error *err)
{
	const size_t name_len = strcspn(spec, "@");
	const char *wanted = spec[name_len] == '@' ? spec + name_len + 1 : NULL;
	bool engine_known = false;
	uint32_t found = 0;

	for (uint32_t row = 0; row < table->csv.n_rows; row++) {
		const char *name = cell(table, row, table->engine),
				   *version = cell(table, row, table->version);
		if (strlen(name) != name_len || memcmp(name, spec, name_len) != 0)
			continue;
		engine_known = true;
		if (wanted) {
			if (wanted[0] == '\0' || !version_matches(version, wanted) || !is_first_row(table, row))
				continue;
			if (strcmp(version, wanted) ==
			    0) { /* exact: longer versions with this start don't compete */
				*row_out = row;
				return ADP_OK;
			}
		} else if (strcmp(cell(table, row, table->key), "default") != 0 ||
		           strcmp(cell(table, row, table->value), "yes") != 0) {
			continue;
		}
		*row_out = row;
		found++;
	}
	if (!engine_known)
		return fail_unknown(table, spec, "no such engine", err);
	if (found == 0)
		return fail_unknown(table, spec,
		                    wanted ? "no such version" : "no version is marked as default", err);
	if (found > 1)
		return fail_unknown(
			table, spec,
			wanted ? "several versions start like this" : "several versions are default", err);
	return ADP_OK;
}

static int open_table(struct table *table, const char *text, size_t len, const char *where,
                      struct adp_error *err)
{
	int rc = adp_csv_read(&table->csv, &table->arena, text, len, where, err);

	if (!rc)
		rc = adp_csv_column(&table->engine, &table->csv, "engine", err);
	if (!rc)
		rc = adp_csv_column(&table->version, &table->csv, "version", err);
	if (!rc)
		rc = adp_csv_column(&table->key, &table->csv, "key", err);
	if (!rc)
		rc = adp_csv_column(&table->value, &table->csv, "value", err);
	if (!rc)
		rc = adp_csv_column(&table->source, &table->csv, "source", err);
	return rc;
}

int adp_engine_read(struct adp_engine **out, const char *spec, const char *text, size_t len,
                    const char *where, struct adp_error *err)
{
	struct table table = {.engine = 0};
	struct adp_engine *engine = NULL;
	uint32_t row = 0;

	*out = NULL;
	int rc = open_table(&table, text, len, where, err);
	if (!rc)
		rc = find_version(&row, &table, spec, err);
	if (rc)
		goto end;

	engine = adp_calloc(1, sizeof *engine);
	if (!engine) {
		rc = adp_nomem(err);
		goto end;
	}
	engine->name = adp_arena_strdup(&engine->arena, cell(&table, row, table.engine));
	engine->version = adp_arena_strdup(&engine->arena, cell(&table, row, table.version));
	rc = engine->name && engine->version ? read_engine(engine, &table, err) : adp_nomem(err);
	if (rc)
		adp_engine_destroy(engine);
	else
		*out = engine;
end:
	adp_arena_fini(&table.arena);
	return rc;
}

int adp_engine_load(struct adp_engine **out, const char *spec, const char *data_dir,
                    struct adp_error *err)
{
	const char *text;
	char *owned;
	size_t len;

	*out = NULL;
	int rc = adp_data_open(&text, &len, &owned, TABLE, data_dir, err);
	if (rc)
		return rc;
	rc = adp_engine_read(out, spec, text, len, TABLE, err);
	adp_free(owned);
	return rc;
}

void adp_engine_destroy(struct adp_engine *engine)
{
	if (!engine)
		return;
	adp_arena_fini(&engine->arena);
	adp_free(engine);
}
