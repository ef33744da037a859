/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/hardware.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/digest.h"
#include "base/file.h"
#include "cluster/name.h"

enum { MAX_TYPES = 4096, MAX_OVERRIDES_BYTES = 4 << 20 };

enum cell_kind {
	CELL_TEXT,
	CELL_U32,
	CELL_REAL,
	CELL_MIB,
	CELL_GIB,
	CELL_CAPABILITY,
	CELL_PCIE,
	CELL_IGNORED
};

/* How a column of gpus.csv fills a field of struct adp_gpu_type. */
struct column {
	const char *name;
	enum cell_kind kind;
	size_t offset;
	double scale, min, max; /* in the column's unit */
};

#define FIELD(f) offsetof(struct adp_gpu_type, f)
#define PEAK(p) (FIELD(peak_flops_per_s) + (p) * sizeof(double))

static const struct column columns[] = {
	{"name", CELL_TEXT, FIELD(name), 0, 0, 0},
	{"alias", CELL_TEXT, FIELD(alias), 0, 0, 0},
	{"aka", CELL_TEXT, FIELD(aka), 0, 0, 0},
	{"vendor", CELL_TEXT, FIELD(vendor), 0, 0, 0},
	{"arch", CELL_TEXT, FIELD(arch), 0, 0, 0},
	{"compute_capability", CELL_CAPABILITY, FIELD(compute_capability), 0, 1, 99.9},
	{"year", CELL_U32, FIELD(year), 0, 1990, 2100},
	{"memory_gib", CELL_GIB, FIELD(memory_bytes), 0x1p30, 0x1p-4, 0x1p20},
	{"memory_mib", CELL_MIB, FIELD(memory_bytes), 0x1p20, 64, 0x1p30},
	{"memory_bw_gbs", CELL_REAL, FIELD(memory_bytes_per_s), 1e9, 1e-3, 1e7},
	{"fp32_tflops", CELL_REAL, PEAK(ADP_PRECISION_FP32), 1e12, 0, 1e7},
	{"tf32_tflops", CELL_REAL, PEAK(ADP_PRECISION_TF32), 1e12, 0, 1e7},
	{"fp16_tflops", CELL_REAL, PEAK(ADP_PRECISION_FP16), 1e12, 0, 1e7},
	{"bf16_tflops", CELL_REAL, PEAK(ADP_PRECISION_BF16), 1e12, 0, 1e7},
	{"fp8_tflops", CELL_REAL, PEAK(ADP_PRECISION_FP8), 1e12, 0, 1e7},
	{"fp4_tflops", CELL_IGNORED, 0, 0, 0, 0},
	{"mamf_bf16_tflops", CELL_REAL, FIELD(measured_bf16_flops_per_s), 1e12, 0, 1e7},
	{"nvlink_gbs_per_dir", CELL_REAL, FIELD(nvlink_bytes_per_s), 1e9, 0, 1e6},
	{"nvlink_domain_gpus", CELL_U32, FIELD(nvlink_domain_gpus), 0, 0, 65536},
	{"pcie_gen", CELL_PCIE, FIELD(pcie_bytes_per_s), 0, 0, 0},
	{"gpus_per_root", CELL_U32, FIELD(gpus_per_root), 0, 1, 64},
	{"node_gpus", CELL_U32, FIELD(node_gpus), 0, 1, 1024},
	{"nics_per_node", CELL_U32, FIELD(node_nics), 0, 1, 1024},
	{"nic_gbs", CELL_REAL, FIELD(nic_bytes_per_s), 1e9, 1e-6, 1e6},
	{"tdp_w", CELL_REAL, FIELD(tdp_w), 1, 1, 1e5},
	{"min_power_w", CELL_REAL, FIELD(min_power_w), 1, 0, 1e5},
	{"mixes_with", CELL_TEXT, FIELD(mixes_with), 0, 0, 0},
	{"source", CELL_TEXT, FIELD(source), 0, 0, 0},
	{"unverified_fields", CELL_TEXT, FIELD(unverified), 0, 0, 0},
	{"notes", CELL_IGNORED, 0, 0, 0, 0},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* A parsed table: the text it came from, if it was read from a folder, is freed once the cells are
 * copied. */
static int open_table(struct adp_csv *csv, struct adp_arena *arena, const char *name,
                      const char *dir, struct adp_error *err)
{
	const char *text;
	char *owned = NULL;
	size_t len;
	int rc;

	rc = adp_data_open(&text, &len, &owned, name, dir, err);
	if (!rc)
		rc = adp_csv_read(csv, arena, text, len, name, err);
	adp_free(owned);
	return rc;
}

/* Number of a cell within bounds; 0 with *empty set when there is none. */
static int read_number(double *out, bool *empty, const struct adp_csv *csv, uint32_t row,
                       uint32_t col, double min, double max, struct adp_error *err)
{
	int rc = adp_csv_number(out, csv, row, col, -1, err);

	*empty = !*adp_csv_cell(csv, row, col);
	if (rc || *empty)
		return rc;
	if (*out < min || *out > max)
		return adp_fail(err, ADP_EINVAL, "%s:%u: %s is %.17g; it must lie between %.17g and %.17g",
		                csv->where, csv->line[row], csv->header[col], *out, min, max);
	return ADP_OK;
}

static int read_count(uint32_t *out, const struct adp_csv *csv, uint32_t row, uint32_t col,
                      double min, double max, struct adp_error *err)
{
	double number;
	bool empty;
	int rc = read_number(&number, &empty, csv, row, col, min, max, err);

	if (rc || empty)
		return rc;
	if (number != floor(number))
		return adp_fail(err, ADP_EINVAL, "%s:%u: %s is %.17g; it must be a whole number",
		                csv->where, csv->line[row], csv->header[col], number);
	*out = (uint32_t)number;
	return ADP_OK;
}

static const char *find_cell(const struct adp_csv *csv, uint32_t row, const char *column,
                             uint32_t *col)
{
	for (*col = 0; *col < csv->n_cols; ++*col) {
		if (strcmp(csv->header[*col], column) == 0)
			return adp_csv_cell(csv, row, *col);
	}
	return "";
}

static int read_pcie(double *out, const struct adp_hardware *hw, const struct adp_csv *csv,
                     uint32_t row, uint32_t col, struct adp_error *err)
{
	const struct adp_link_class *link;
	char name[16];

	snprintf(name, sizeof name, "pcie%.8s", adp_csv_cell(csv, row, col));
	link = adp_hardware_link(hw, name);
	if (!link)
		return adp_fail(err, ADP_EINVAL,
		                "%s:%u: pcie_gen '%.20s' has no row in links.csv; use 3, 4, 5 or 6",
		                csv->where, csv->line[row], adp_csv_cell(csv, row, col));
	*out = link->bytes_per_s;
	return ADP_OK;
}

/* Fills what the row states; empty cells leave the field alone. */
static int read_cell(struct adp_gpu_type *type, const struct column *column,
                     const struct adp_hardware *hw, const struct adp_csv *csv, uint32_t row,
                     uint32_t col, struct adp_error *err)
{
	void *field = (char *)type + column->offset;
	double number;
	uint32_t other;
	bool empty;
	int rc;

	if (!*adp_csv_cell(csv, row, col))
		return ADP_OK;
	switch (column->kind) {
	case CELL_TEXT:
		*(const char **)field = adp_csv_cell(csv, row, col);
		return ADP_OK;
	case CELL_U32:
		return read_count(field, csv, row, col, column->min, column->max, err);
	case CELL_REAL:
		rc = read_number(&number, &empty, csv, row, col, column->min, column->max, err);
		if (!rc)
			*(double *)field = number * column->scale;
		return rc;
	case CELL_GIB: /* the driver's figure, where stated, is the one a job can have */
		rc = read_number(&number, &empty, csv, row, col, column->min, column->max, err);
		if (!rc && !*find_cell(csv, row, "memory_mib", &other))
			*(uint64_t *)field = (uint64_t)(number * column->scale);
		return rc;
	case CELL_MIB:
		rc = read_number(&number, &empty, csv, row, col, column->min, column->max, err);
		if (!rc)
			*(uint64_t *)field = (uint64_t)(number * column->scale);
		return rc;
	case CELL_CAPABILITY:
		rc = read_number(&number, &empty, csv, row, col, column->min, column->max, err);
		if (!rc)
			*(uint32_t *)field = (uint32_t)lround(number * 10);
		return rc;
	case CELL_PCIE:
		return read_pcie(field, hw, csv, row, col, err);
	case CELL_IGNORED:
		break;
	}
	return ADP_OK;
}

static int check_header(const struct adp_csv *csv, struct adp_error *err)
{
	const char *best;

	for (uint32_t i = 0; i < csv->n_cols; i++) {
		size_t nearest = SIZE_MAX;
		bool known = false;

		best = columns[0].name;
		for (size_t k = 0; k < N_COLUMNS && !known; k++) {
			size_t distance = adp_name_distance(csv->header[i], columns[k].name);

			known = distance == 0;
			if (distance < nearest) {
				nearest = distance;
				best = columns[k].name;
			}
		}
		if (!known)
			return adp_fail(err, ADP_EINVAL,
			                "%s: column '%.60s' is not one of gpus.csv; did you mean '%s'?",
			                csv->where, csv->header[i], best);
	}
	return ADP_OK;
}

static int read_row(struct adp_gpu_type *type, const struct adp_hardware *hw,
                    const struct adp_csv *csv, uint32_t row, struct adp_error *err)
{
	for (uint32_t col = 0; col < csv->n_cols; col++) {
		for (size_t k = 0; k < N_COLUMNS; k++) {
			int rc = ADP_OK;

			if (strcmp(csv->header[col], columns[k].name) == 0)
				rc = read_cell(type, &columns[k], hw, csv, row, col, err);
			if (rc)
				return rc;
		}
	}
	return ADP_OK;
}

static int check_type(struct adp_gpu_type *type, const struct adp_csv *csv, uint32_t row,
                      struct adp_error *err)
{
	const char *missing = NULL;

	if (!type->memory_bytes)
		missing = "memory_gib";
	else if (type->memory_bytes_per_s <= 0)
		missing = "memory_bw_gbs";
	else if (adp_gpu_type_peak(type) <= 0)
		missing = "fp16_tflops or bf16_tflops";
	else if (type->pcie_bytes_per_s <= 0)
		missing = "pcie_gen";
	else if (!type->node_gpus)
		missing = "node_gpus";
	else if (type->nic_bytes_per_s <= 0)
		missing = "nic_gbs";
	if (missing)
		return adp_fail(err, ADP_EINVAL,
		                "%s:%u: GPU type '%.60s' has no %s; fill that column (a name that is in "
		                "the shipped table needs only what changes)",
		                csv->where, csv->line[row], type->name, missing);
	if (!adp_name_is_plain(type->name) || !adp_name_is_plain(type->alias))
		return adp_fail(err, ADP_EINVAL,
		                "%s:%u: name and alias must be printable and at most %d bytes", csv->where,
		                csv->line[row], ADP_NAME_MAX);
	if (!type->node_nics)
		type->node_nics = type->node_gpus;
	if (!type->gpus_per_root)
		type->gpus_per_root = 1;
	return ADP_OK;
}

static void init_type(struct adp_gpu_type *type, const char *name)
{
	*type = (struct adp_gpu_type){.name = name,
	                              .alias = name,
	                              .aka = "",
	                              .vendor = "NVIDIA",
	                              .arch = "",
	                              .mixes_with = "",
	                              .source = "",
	                              .unverified = ""};
}

static int compare_texts(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name or alias that two types answer to would make every look-up of it ambiguous. */
static int check_unique(const struct adp_hardware *hw, struct adp_error *err)
{
	size_t n = 0, size = 2 * (size_t)hw->n_types;
	char **keys = adp_calloc(size ? size : 1, sizeof *keys);
	int rc = keys ? ADP_OK : adp_nomem(err);

	for (uint32_t i = 0; i < hw->n_types && !rc; i++) {
		const char *names[] = {hw->types[i].name, hw->types[i].alias};
		char first[ADP_NAME_SIZE], key[ADP_NAME_SIZE];

		for (size_t k = 0; k < 2 && !rc; k++) {
			adp_name_gpu(key, sizeof key, names[k], strlen(names[k]));
			if (k && strcmp(first, key) == 0)
				continue;
			memcpy(first, key, sizeof first);
			keys[n] = adp_strdup(key);
			if (keys[n])
				n++;
			else
				rc = adp_nomem(err);
		}
	}
	if (!rc && n)
		qsort(keys, n, sizeof *keys, compare_texts);
	for (size_t i = 1; i < n && !rc; i++) {
		if (strcmp(keys[i - 1], keys[i]) == 0)
			rc = adp_fail(err, ADP_EINVAL,
			              "two GPU types answer to '%s'; give one of them another name and alias",
			              keys[i]);
	}
	for (size_t i = 0; i < n; i++)
		adp_free(keys[i]);
	adp_free(keys);
	return rc;
}

static int load_types(struct adp_hardware *hw, const char *dir, struct adp_error *err)
{
	struct adp_gpu_type *types;
	struct adp_csv csv;
	int rc;

	rc = open_table(&csv, &hw->arena, "gpus.csv", dir, err);
	if (!rc)
		rc = check_header(&csv, err);
	if (rc)
		return rc;
	if (csv.n_rows > MAX_TYPES)
		return adp_fail(err, ADP_ELIMIT, "gpus.csv: more than %d GPU types", MAX_TYPES);
	types = adp_arena_calloc(&hw->arena, csv.n_rows, sizeof *types);
	if (!types)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv.n_rows; i++) {
		init_type(&types[i], "");
		rc = read_row(&types[i], hw, &csv, i, err);
		if (!*types[i].alias)
			types[i].alias = types[i].name;
		if (!rc)
			rc = check_type(&types[i], &csv, i, err);
		if (rc)
			return rc;
	}
	hw->types = types;
	hw->n_types = csv.n_rows;
	return ADP_OK;
}

static struct adp_gpu_type *find_exact(struct adp_gpu_type *types, uint32_t n, const char *name)
{
	char key[ADP_NAME_SIZE], other[ADP_NAME_SIZE];

	adp_name_gpu(key, sizeof key, name, strlen(name));
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(key, adp_name_gpu(other, sizeof other, types[i].name, strlen(types[i].name))) ==
		        0 ||
		    strcmp(key,
		           adp_name_gpu(other, sizeof other, types[i].alias, strlen(types[i].alias))) == 0)
			return &types[i];
	}
	return NULL;
}

static int apply_override(struct adp_gpu_type *types, uint32_t *n, const struct adp_hardware *hw,
                          const struct adp_csv *csv, uint32_t row, struct adp_error *err)
{
	struct adp_gpu_type *type;
	const char *name;
	uint32_t col;
	int rc;

	name = find_cell(csv, row, "name", &col);
	if (!*name)
		return adp_fail(err, ADP_EINVAL, "%s:%u: the row names no GPU type; fill the column 'name'",
		                csv->where, csv->line[row]);
	type = find_exact(types, *n, name);
	if (type) {
		const char *known = type->name;

		rc = read_row(type, hw, csv, row, err);
		type->name = known; /* the row may have used the alias */
	} else {
		type = &types[(*n)++];
		init_type(type, name);
		rc = read_row(type, hw, csv, row, err);
	}
	return rc ? rc : check_type(type, csv, row, err);
}

static int apply_overrides(struct adp_hardware *hw, const char *text, size_t len, const char *where,
                           struct adp_error *err)
{
	struct adp_gpu_type *types;
	struct adp_csv csv;
	uint32_t n = hw->n_types;
	int rc;

	rc = adp_csv_read(&csv, &hw->arena, text, len, where, err);
	if (!rc)
		rc = check_header(&csv, err);
	if (rc)
		return rc;
	if (csv.n_rows > MAX_TYPES)
		return adp_fail(err, ADP_ELIMIT, "%s: more than %d rows", where, MAX_TYPES);
	types = adp_arena_calloc(&hw->arena, (size_t)n + csv.n_rows, sizeof *types);
	if (!types)
		return adp_nomem(err);
	memcpy(types, hw->types, n * sizeof *types);
	for (uint32_t i = 0; i < csv.n_rows && !rc; i++)
		rc = apply_override(types, &n, hw, &csv, i, err);
	if (rc)
		return rc;
	hw->types = types;
	hw->n_types = n;
	return ADP_OK;
}

static int load_links(struct adp_hardware *hw, const char *dir, struct adp_error *err)
{
	struct adp_link_class *links;
	uint32_t name, bandwidth, latency;
	struct adp_csv csv;
	int rc;

	rc = open_table(&csv, &hw->arena, "links.csv", dir, err);
	if (!rc)
		rc = adp_csv_column(&name, &csv, "name", err);
	if (!rc)
		rc = adp_csv_column(&bandwidth, &csv, "gbs_per_dir", err);
	if (!rc)
		rc = adp_csv_column(&latency, &csv, "latency_us", err);
	if (rc)
		return rc;
	links = adp_arena_calloc(&hw->arena, csv.n_rows, sizeof *links);
	if (!links)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv.n_rows; i++) {
		double number;
		bool empty;

		links[i].name = adp_csv_cell(&csv, i, name);
		rc = read_number(&number, &empty, &csv, i, bandwidth, 1e-3, 1e6, err);
		if (!rc && !empty)
			links[i].bytes_per_s = number * 1e9;
		if (!rc)
			rc = read_number(&number, &empty, &csv, i, latency, 0, 1e6, err);
		if (rc)
			return rc;
		links[i].latency_s = empty ? 0 : number * 1e-6;
	}
	hw->links = links;
	hw->n_links = csv.n_rows;
	for (size_t i = 0; i < 4; i++) {
		static const char *const needed[] = {"nvlink", "nic", "rack", "spine"};

		if (!adp_hardware_link(hw, needed[i]))
			return adp_fail(err, ADP_EINVAL, "links.csv: no row named '%s'", needed[i]);
	}
	return ADP_OK;
}

static int load_accelerators(struct adp_hardware *hw, const char *dir, struct adp_error *err)
{
	struct adp_accelerator *rows;
	uint32_t label, value, gpus;
	struct adp_csv csv;
	int rc;

	rc = open_table(&csv, &hw->arena, "accelerators.csv", dir, err);
	if (!rc)
		rc = adp_csv_column(&label, &csv, "label", err);
	if (!rc)
		rc = adp_csv_column(&value, &csv, "value", err);
	if (!rc)
		rc = adp_csv_column(&gpus, &csv, "gpus", err);
	if (rc)
		return rc;
	rows = adp_arena_calloc(&hw->arena, csv.n_rows, sizeof *rows);
	if (!rows)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv.n_rows; i++) {
		rows[i].label = adp_csv_cell(&csv, i, label);
		rows[i].value = adp_csv_cell(&csv, i, value);
		rows[i].gpus = adp_csv_cell(&csv, i, gpus);
	}
	hw->accelerators = rows;
	hw->n_accelerators = csv.n_rows;
	return ADP_OK;
}

static int compare_instances(const void *a, const void *b)
{
	return strcmp(((const struct adp_instance *)a)->name, ((const struct adp_instance *)b)->name);
}

static int load_instances(struct adp_hardware *hw, const char *dir, struct adp_error *err)
{
	static const char *const names[] = {"instance_type", "gpus", "n_gpus", "n_nics", "nic_gbits"};
	struct adp_instance *rows;
	uint32_t col[5];
	struct adp_csv csv;
	int rc;

	rc = open_table(&csv, &hw->arena, "instances.csv", dir, err);
	for (size_t i = 0; i < 5 && !rc; i++)
		rc = adp_csv_column(&col[i], &csv, names[i], err);
	if (rc)
		return rc;
	rows = adp_arena_calloc(&hw->arena, csv.n_rows, sizeof *rows);
	if (!rows)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv.n_rows; i++) {
		double number = 0;
		bool empty = false;

		rows[i].name = adp_csv_cell(&csv, i, col[0]);
		rows[i].gpus = adp_csv_cell(&csv, i, col[1]);
		rc = read_count(&rows[i].n_gpus, &csv, i, col[2], 1, 1024, err);
		if (!rc)
			rc = read_count(&rows[i].n_nics, &csv, i, col[3], 1, 1024, err);
		if (!rc)
			rc = read_number(&number, &empty, &csv, i, col[4], 1e-3, 1e6, err);
		if (!rc && (empty || !rows[i].n_gpus || !rows[i].n_nics))
			rc = adp_fail(err, ADP_EINVAL, "%s:%u: n_gpus, n_nics and nic_gbits are needed",
			              csv.where, csv.line[i]);
		if (rc)
			return rc;
		rows[i].nic_bytes_per_s = number * 1e9 / 8;
	}
	if (csv.n_rows)
		qsort(rows, csv.n_rows, sizeof *rows, compare_instances);
	hw->instances = rows;
	hw->n_instances = csv.n_rows;
	return ADP_OK;
}

/* The shipped tables' version; a folder or overrides make another one, by what the types say. */
static int set_version(struct adp_hardware *hw, const char *dir, const char *overrides, size_t len,
                       struct adp_error *err)
{
	static const char *const tables[] = {"gpus.csv", "links.csv", "accelerators.csv",
	                                     "instances.csv"};
	char digest[ADP_DIGEST_SIZE], text[5 * ADP_DIGEST_SIZE];
	size_t at = 0;

	hw->version = adp_data_version();
	if (!dir && !overrides)
		return ADP_OK;
	for (size_t i = 0; i < 4 && dir; i++) {
		const char *table;
		char *owned;
		size_t size;
		int rc = adp_data_open(&table, &size, &owned, tables[i], dir, err);

		if (rc)
			return rc;
		adp_digest(digest, table, size);
		adp_free(owned);
		at += (size_t)snprintf(text + at, sizeof text - at, "%s", digest);
	}
	if (overrides) {
		adp_digest(digest, overrides, len);
		at += (size_t)snprintf(text + at, sizeof text - at, "%s", digest);
	}
	adp_digest(digest, text, at);
	hw->version = adp_arena_printf(&hw->arena, "%s+%.16s", adp_data_version(), digest);
	return hw->version ? ADP_OK : adp_nomem(err);
}

int adp_hardware_load_text(struct adp_hardware **out, const char *dir, const char *overrides,
                           size_t len, const char *where, struct adp_error *err)
{
	struct adp_hardware *hw = adp_calloc(1, sizeof *hw);
	int rc;

	*out = NULL;
	if (!hw)
		return adp_nomem(err);
	rc = load_links(hw, dir, err);
	if (!rc)
		rc = load_types(hw, dir, err);
	if (!rc && overrides)
		rc = apply_overrides(hw, overrides, len, where, err);
	if (!rc)
		rc = check_unique(hw, err);
	if (!rc)
		rc = load_accelerators(hw, dir, err);
	if (!rc)
		rc = load_instances(hw, dir, err);
	if (!rc)
		rc = set_version(hw, dir, overrides, len, err);
	if (rc) {
		adp_hardware_destroy(hw);
		return rc;
	}
	*out = hw;
	return ADP_OK;
}

int adp_hardware_load(struct adp_hardware **out, const char *dir, const char *overrides,
                      struct adp_error *err)
{
	char *text = NULL;
	size_t len = 0;
	int rc;

	*out = NULL;
	if (overrides) {
		rc = adp_file_read(&text, &len, overrides, MAX_OVERRIDES_BYTES, err);
		if (rc)
			return rc;
	}
	rc = adp_hardware_load_text(out, dir, text, len, overrides, err);
	adp_free(text);
	return rc;
}

void adp_hardware_destroy(struct adp_hardware *hw)
{
	if (!hw)
		return;
	adp_arena_fini(&hw->arena);
	adp_free(hw);
}
