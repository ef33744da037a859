/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/tables_read.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

static int fail_cell(const struct adp_csv *csv, uint32_t row, uint32_t col, struct adp_error *err,
                     const char *problem)
{
	return adp_fail(err, ADP_EINVAL, "%s:%u: column '%s': '%s' %s", csv->where, csv->line[row],
	                csv->header[col], adp_csv_cell(csv, row, col), problem);
}

/* A number in [min, max]. */
static int number(double *out, const struct adp_csv *csv, uint32_t row, uint32_t col, double min,
                  double max, struct adp_error *err)
{
	int rc = adp_csv_number(out, csv, row, col, NAN, err);

	if (rc)
		return rc;
	if (!(*out >= min && *out <= max))
		return adp_fail(err, ADP_EINVAL, "%s:%u: column '%s': '%s' must be a number from %g to %g",
		                csv->where, csv->line[row], csv->header[col], adp_csv_cell(csv, row, col),
		                min, max);
	return ADP_OK;
}

/* The number columns of a row that are plain fields of a struct. */
struct field {
	const char *name;
	size_t offset;
	double min, max;
};

static int columns(uint32_t *col, const struct adp_csv *csv, const struct field *fields, size_t n,
                   struct adp_error *err)
{
	for (size_t i = 0; i < n; i++) {
		int rc = adp_csv_column(&col[i], csv, fields[i].name, err);

		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int numbers(void *out, const struct adp_csv *csv, uint32_t row, const uint32_t *col,
                   const struct field *fields, size_t n, struct adp_error *err)
{
	for (size_t i = 0; i < n; i++) {
		double value = 0;
		int rc = number(&value, csv, row, col[i], fields[i].min, fields[i].max, err);

		if (rc)
			return rc;
		memcpy((char *)out + fields[i].offset, &value, sizeof value);
	}
	return ADP_OK;
}

static int copy_name(const char **out, struct adp_tables *tables, const struct adp_csv *csv,
                     uint32_t row, uint32_t col, struct adp_error *err)
{
	const char *text = adp_csv_cell(csv, row, col);

	if (!text[0])
		return fail_cell(csv, row, col, err, "must not be empty");
	*out = adp_arena_strdup(&tables->arena, text);
	return *out ? ADP_OK : adp_nomem(err);
}

static int no_rows(const struct adp_csv *csv, struct adp_error *err)
{
	return adp_fail(err, ADP_EINVAL, "%s: has no rows; restore the shipped table", csv->where);
}

/* An axis whose nodes double: columns from first on, named prefix<node>. */
static int axis_from_header(struct cost_axis *out, const struct adp_csv *csv, const char *prefix,
                            uint32_t first, struct adp_error *err)
{
	double expected = 0;

	if (first + 2 > csv->n_cols || csv->n_cols - first > 2 * ADP_MATMUL_MAX_SIDE)
		return adp_fail(err, ADP_EINVAL, "%s: needs 2 to %d columns named %s<size>", csv->where,
		                2 * ADP_MATMUL_MAX_SIDE, prefix);
	for (uint32_t col = first; col < csv->n_cols; col++) {
		const char *name = csv->header[col];
		size_t n = strlen(prefix);
		double size = 0;
		int exponent = 0;

		if (strncmp(name, prefix, n) != 0 || !adp_number_parse(&size, name + n, strlen(name + n)) ||
		    !(size >= 1 && size < 1e15) || frexp(size, &exponent) != 0.5 ||
		    (col > first && size != expected))
			return adp_fail(err, ADP_EINVAL,
			                "%s: column '%s': expected %s<size> with a power of two, twice that of "
			                "the column before",
			                csv->where, name, prefix);
		if (col == first)
			out->first_log2 = exponent - 1;
		expected = 2 * size;
	}
	out->n = csv->n_cols - first;
	return ADP_OK;
}

int cost_read_matmul_curves(struct adp_tables *tables, const struct adp_csv *csv,
                            struct adp_error *err)
{
	static const struct field fields[] = {
		{"start_s", offsetof(struct matmul_curve, start_s), 0, 1e-3},
		{"ceiling_frac", offsetof(struct matmul_curve, ceiling_frac), 0.01, 1},
		{"memory_frac", offsetof(struct matmul_curve, memory_frac), 0.01, 1},
	};
	enum { N = sizeof fields / sizeof fields[0] };
	uint32_t name, col[N];
	struct matmul_curve *curves;
	int rc = adp_csv_column(&name, csv, "curve", err);

	if (!rc)
		rc = columns(col, csv, fields, N, err);
	if (rc)
		return rc;
	if (!csv->n_rows)
		return no_rows(csv, err);
	curves = adp_arena_calloc(&tables->arena, csv->n_rows, sizeof *curves);
	if (!curves)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv->n_rows; i++) {
		rc = copy_name(&curves[i].name, tables, csv, i, name, err);
		if (!rc)
			rc = numbers(&curves[i], csv, i, col, fields, N, err);
		if (rc)
			return rc;
		for (uint32_t j = 0; j < i; j++) {
			if (strcmp(curves[j].name, curves[i].name) == 0)
				return fail_cell(csv, i, name, err, "occurs twice; keep one row");
		}
	}
	tables->matmul = curves;
	tables->n_matmul = csv->n_rows;
	return ADP_OK;
}

static const struct matmul_curve *matmul_by_name(const struct adp_tables *tables, const char *name)
{
	for (uint32_t i = 0; i < tables->n_matmul; i++) {
		if (strcmp(tables->matmul[i].name, name) == 0)
			return &tables->matmul[i];
	}
	return NULL;
}

/* Larger never costs less: the upper envelope along each axis, so that times are monotone whatever
 * the table says. */
static void envelope(double *grid, uint32_t n_m, uint32_t n_n, uint32_t n_k)
{
	const uint32_t total = n_m * n_n * n_k, step[3] = {n_n * n_k, n_k, 1}, n[3] = {n_m, n_n, n_k};

	for (int axis = 0; axis < 3; axis++) {
		for (uint32_t i = 0; i < total; i++) {
			if (i / step[axis] % n[axis])
				grid[i] = fmax(grid[i], grid[i - step[axis]]);
		}
	}
}

struct matmul_columns {
	uint32_t curve, m, n, first_k;
};

/* The rows [first, end) of one curve: m blocks of n rows, both doubling. */
static int read_matmul_curve(struct matmul_curve *curve, struct adp_tables *tables,
                             const struct adp_csv *csv, const struct matmul_columns *at,
                             uint32_t first, uint32_t end, struct adp_error *err)
{
	uint32_t n_n = 1, n_k = csv->n_cols - at->first_k;
	double m0 = 0, n0 = 0, next = 0, *grid;
	int rc = number(&m0, csv, first, at->m, 1, 1e9, err), exponent = 0;

	if (!rc)
		rc = number(&n0, csv, first, at->n, 1, 1e9, err);
	while (!rc && first + n_n < end) {
		rc = number(&next, csv, first + n_n, at->m, 1, 1e9, err);
		if (rc || next != m0)
			break;
		n_n++;
	}
	if (rc)
		return rc;
	if (frexp(m0, &exponent) != 0.5)
		return fail_cell(csv, first, at->m, err, "must be a power of two");
	curve->m = (struct cost_axis){exponent - 1, (end - first) / n_n};
	if (frexp(n0, &exponent) != 0.5)
		return fail_cell(csv, first, at->n, err, "must be a power of two");
	curve->n = (struct cost_axis){exponent - 1, n_n};
	if (n_n < 2 || curve->m.n < 2 || n_n > ADP_MATMUL_MAX_SIDE ||
	    curve->m.n > ADP_MATMUL_MAX_SIDE || curve->m.n * n_n != end - first)
		return fail_cell(csv, end - 1, at->m, err,
		                 "ends a block of another length than the first; each m needs a row for "
		                 "each n, 2 to 24 of both");
	grid = adp_arena_calloc(&tables->arena, (size_t)(end - first) * n_k, sizeof *grid);
	if (!grid)
		return adp_nomem(err);
	for (uint32_t row = first; row < end; row++) {
		double m = ldexp(m0, (int)((row - first) / n_n)), n = ldexp(n0, (int)((row - first) % n_n)),
			   value = 0;

		rc = number(&value, csv, row, at->m, m, m, err);
		if (!rc)
			rc = number(&value, csv, row, at->n, n, n, err);
		for (uint32_t k = 0; k < n_k && !rc; k++) {
			rc = number(&value, csv, row, at->first_k + k, 1e-9, 1, err);
			if (!rc)
				grid[(row - first) * n_k + k] = log2(2 * m * n) + curve->k.first_log2 + k -
				                                log2(value);
		}
		if (rc)
			return rc;
	}
	envelope(grid, curve->m.n, n_n, n_k);
	curve->log_work = grid;
	return ADP_OK;
}

int cost_read_matmul(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err)
{
	struct matmul_columns at;
	struct cost_axis k;
	int rc = adp_csv_column(&at.curve, csv, "curve", err);

	if (!rc)
		rc = adp_csv_column(&at.m, csv, "m", err);
	if (!rc)
		rc = adp_csv_column(&at.n, csv, "n", err);
	if (rc)
		return rc;
	at.first_k = 3;
	if (at.curve > 2 || at.m > 2 || at.n > 2)
		return adp_fail(err, ADP_EINVAL, "%s: the first three columns must be curve, m and n",
		                csv->where);
	rc = axis_from_header(&k, csv, "k", at.first_k, err);
	if (rc)
		return rc;
	for (uint32_t first = 0, end; first < csv->n_rows; first = end) {
		const char *name = adp_csv_cell(csv, first, at.curve);
		struct matmul_curve *curve = (struct matmul_curve *)matmul_by_name(tables, name);

		if (!curve)
			return fail_cell(csv, first, at.curve, err,
			                 "is no curve of matmul_curves.csv; add it there");
		if (curve->log_work)
			return fail_cell(csv, first, at.curve, err,
			                 "begins a second block of the same curve; put its rows together");
		for (end = first + 1;
		     end < csv->n_rows && strcmp(adp_csv_cell(csv, end, at.curve), name) == 0; end++)
			;
		curve->k = k;
		rc = read_matmul_curve(curve, tables, csv, &at, first, end, err);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < tables->n_matmul; i++) {
		if (!tables->matmul[i].log_work)
			return adp_fail(err, ADP_EINVAL, "%s: no rows for curve '%s' of matmul_curves.csv",
			                csv->where, tables->matmul[i].name);
	}
	return ADP_OK;
}

int cost_read_attention(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err)
{
	/* A doubled head size doubles the operations: a larger gain than 2 would make it cheaper. */
	static const struct field fields[] = {
		{"flash_frac", offsetof(struct attention_row, flash_frac), 0.001, 1},
		{"hd64_frac", offsetof(struct attention_row, hd64_frac), 0.5, 1},
		{"hd256_frac", offsetof(struct attention_row, hd256_frac), 0.1, 2},
		{"backward_mult", offsetof(struct attention_row, backward_mult), 1, 10},
		{"start_s", offsetof(struct attention_row, start_s), 0, 1e-3},
		{"band_frac", offsetof(struct attention_row, band_frac), 0, 10},
	};
	enum { N = sizeof fields / sizeof fields[0] };
	uint32_t name, col[N];
	struct attention_row *rows;
	int rc = adp_csv_column(&name, csv, "row", err);

	if (!rc)
		rc = columns(col, csv, fields, N, err);
	if (rc)
		return rc;
	if (!csv->n_rows)
		return no_rows(csv, err);
	rows = adp_arena_calloc(&tables->arena, csv->n_rows, sizeof *rows);
	if (!rows)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv->n_rows; i++) {
		rc = copy_name(&rows[i].name, tables, csv, i, name, err);
		if (!rc)
			rc = numbers(&rows[i], csv, i, col, fields, N, err);
		if (rc)
			return rc;
	}
	tables->attention = rows;
	tables->n_attention = csv->n_rows;
	return ADP_OK;
}

static int read_op(uint32_t *op, const struct adp_csv *csv, uint32_t row, uint32_t col,
                   struct adp_error *err)
{
	static const char *const names[ADP_N_COLLECTIVE_OPS] = {"all_reduce", "all_gather",
	                                                        "reduce_scatter", "all_to_all"};
	const char *text = adp_csv_cell(csv, row, col);

	for (*op = 0; *op < ADP_N_COLLECTIVE_OPS; (*op)++) {
		if (strcmp(text, names[*op]) == 0)
			return ADP_OK;
	}
	return fail_cell(csv, row, col, err,
	                 "must be all_reduce, all_gather, reduce_scatter or all_to_all");
}

static struct collective_curve *collective_by_name(struct collective_curve *curves, uint32_t n,
                                                   const char *name)
{
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(curves[i].name, name) == 0)
			return &curves[i];
	}
	return NULL;
}

static int read_group(struct collective_group *out, struct adp_tables *tables,
                      const struct adp_csv *csv, uint32_t row, uint32_t first, uint32_t n,
                      struct adp_error *err)
{
	double *log_s = adp_arena_calloc(&tables->arena, n, sizeof *log_s);

	if (!log_s)
		return adp_nomem(err);
	for (uint32_t i = 0; i < n; i++) {
		double us = 0;
		int rc = number(&us, csv, row, first + i, 1e-3, 1e12, err);

		if (rc)
			return rc;
		log_s[i] = log2(us * 1e-6);
		if (i)
			log_s[i] = fmax(log_s[i], log_s[i - 1]);
	}
	out->start_s = exp2(log_s[0]);
	out->log_s = log_s;
	return ADP_OK;
}

int cost_read_collectives(struct adp_tables *tables, const struct adp_csv *csv,
                          struct adp_error *err)
{
	enum { FIRST = 4 };
	static const char *const names[FIRST] = {"curve", "link_bytes_per_s", "op", "n_gpus"};
	struct collective_curve *curves;
	struct cost_axis bytes;
	uint32_t n_curves = 0, col[FIRST];
	int rc = ADP_OK;

	for (int i = 0; i < FIRST && !rc; i++) {
		rc = adp_csv_column(&col[i], csv, names[i], err);
		if (!rc && col[i] >= FIRST)
			rc = adp_fail(err, ADP_EINVAL, "%s: column '%s' must be one of the first four",
			              csv->where, names[i]);
	}
	if (!rc)
		rc = axis_from_header(&bytes, csv, "b", FIRST, err);
	if (rc)
		return rc;
	curves = adp_arena_calloc(&tables->arena, csv->n_rows, sizeof *curves);
	if (!curves)
		return adp_nomem(err);
	for (uint32_t row = 0; row < csv->n_rows; row++) {
		struct collective_curve *curve = collective_by_name(curves, n_curves,
		                                                    adp_csv_cell(csv, row, col[0]));
		double n_gpus = 0, link = 0;
		uint32_t op = 0, at;

		rc = number(&link, csv, row, col[1], 1, 1e15, err);
		if (!rc && !curve) {
			curve = &curves[n_curves++];
			curve->bytes = bytes;
			curve->link_bytes_per_s = link;
			rc = copy_name(&curve->name, tables, csv, row, col[0], err);
		}
		if (!rc)
			rc = read_op(&op, csv, row, col[2], err);
		if (!rc)
			rc = number(&n_gpus, csv, row, col[3], 2, 65536, err);
		if (rc)
			return rc;
		at = curve->n_groups[op];
		if (at == ADP_COLLECTIVE_MAX_GROUPS)
			return fail_cell(csv, row, col[3], err,
			                 "is one group size too many; 8 at most for an operation");
		if (n_gpus != floor(n_gpus) || (at && n_gpus <= curve->group[op][at - 1].n_gpus))
			return fail_cell(csv, row, col[3], err,
			                 "must be a whole number above that of the operation's row before");
		curve->group[op][at].n_gpus = (uint32_t)n_gpus;
		rc = read_group(&curve->group[op][at], tables, csv, row, FIRST, bytes.n, err);
		if (rc)
			return rc;
		curve->n_groups[op]++;
	}
	for (uint32_t i = 0; i < n_curves; i++) {
		for (uint32_t op = 0; op < ADP_N_COLLECTIVE_OPS; op++) {
			if (!curves[i].n_groups[op])
				return adp_fail(err, ADP_EINVAL,
				                "%s: curve '%s' lacks one of the four operations; add its rows",
				                csv->where, curves[i].name);
		}
	}
	tables->collective = curves;
	tables->n_collective = n_curves;
	return ADP_OK;
}

int cost_read_links(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err)
{
	static const struct field fields[] = {
		{"start_s", offsetof(struct link_row, start_s), 0, 1},
		{"bandwidth_frac", offsetof(struct link_row, bandwidth_frac), 0.001, 1},
		{"latency_included_s", offsetof(struct link_row, latency_included_s), 0, 1},
		{"per_peer_s", offsetof(struct link_row, per_peer_s), 0, 1},
		{"band_frac", offsetof(struct link_row, band_frac), 0, 10},
	};
	static const char *const kinds[COST_N_LINKS] = {"nvlink", "pcie", "nic", "rack", "spine"};
	enum { N = sizeof fields / sizeof fields[0] };
	uint32_t link, p2p, col[N];
	int rc = adp_csv_column(&link, csv, "link", err);

	if (!rc)
		rc = adp_csv_column(&p2p, csv, "p2p", err);
	if (!rc)
		rc = columns(col, csv, fields, N, err);
	for (uint32_t i = 0; i < csv->n_rows && !rc; i++) {
		const char *text = adp_csv_cell(csv, i, link);
		uint32_t kind = 0;
		double direct = 0;
		struct link_row *row;

		while (kind < COST_N_LINKS && strcmp(text, kinds[kind]) != 0)
			kind++;
		if (kind == COST_N_LINKS)
			return fail_cell(csv, i, link, err, "must be nvlink, pcie, nic, rack or spine");
		rc = number(&direct, csv, i, p2p, 0, 1, err);
		if (rc)
			return rc;
		row = &tables->link[kind][direct > 0];
		if (row->present)
			return fail_cell(csv, i, link, err, "has two rows of the same p2p; keep one");
		row->present = true;
		rc = numbers(row, csv, i, col, fields, N, err);
	}
	for (uint32_t kind = 0; kind < COST_N_LINKS && !rc; kind++) {
		if (!tables->link[kind][1].present)
			return adp_fail(err, ADP_EINVAL, "%s: no row for %s with p2p 1; add it", csv->where,
			                kinds[kind]);
		if (!tables->link[kind][0].present)
			tables->link[kind][0] = tables->link[kind][1];
	}
	return rc;
}

int cost_read_operators(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err)
{
#define OP(name, min, max)                                                                         \
	{                                                                                              \
#name, offsetof(struct cost_operators, name), min, max                                     \
	}
	static const struct field keys[] = {
		OP(memory_bandwidth_frac, 0.01, 1),
		OP(memory_backward_mult, 0.1, 10),
		OP(norm_elements, 0, 1e3),
		OP(residual_elements, 0, 1e3),
		OP(rope_elements, 0, 1e3),
		OP(activation_elements, 0, 1e3),
		OP(gated_activation_elements, 0, 1e3),
		OP(unfused_attention_matmul_frac, 0.01, 10),
		OP(unfused_softmax_elements, 0, 1e3),
		OP(unfused_backward_mult, 0.1, 10),
		OP(loss_forward_bytes, 0, 1e3),
		OP(loss_backward_bytes, 0, 1e3),
		OP(loss_reduce_bytes, 0, 1e3),
		OP(embedding_backward_mult, 0, 1e3),
		OP(moe_permute_elements, 0, 1e3),
		OP(moe_router_bytes, 0, 1e3),
		OP(grouped_matmul_mult, 1, 100),
		OP(grouped_narrow_mult, 0, 3),
		OP(grouped_half_width, 1, 1e9),
		OP(cp_causal_imbalance_mult, 1, 10),
		OP(fp8_matmul_frac, 0.01, 1),
		OP(tf32_matmul_frac, 0.01, 1),
		OP(fp32_matmul_frac, 0.01, 1),
		OP(fp8_cast_bytes, 0, 1e3),
		OP(fp8_band_frac, 0, 10),
		OP(fp32_band_frac, 0, 10),
		OP(memory_band_frac, 0, 10),
		OP(grouped_band_frac, 0, 10),
		OP(launch_band_frac, 0, 10),
		OP(cross_node_sync_s, 0, 1),
		OP(cross_node_sync_bandwidth_frac, 0.01, 1),
	};
#undef OP
	enum { N = sizeof keys / sizeof keys[0] };
	bool seen[N] = {false};
	uint32_t key, value;
	int rc = adp_csv_column(&key, csv, "key", err);

	if (!rc)
		rc = adp_csv_column(&value, csv, "value", err);
	for (uint32_t i = 0; i < csv->n_rows && !rc; i++) {
		size_t at = 0;

		while (at < N && strcmp(keys[at].name, adp_csv_cell(csv, i, key)) != 0)
			at++;
		if (at == N)
			return fail_cell(csv, i, key, err, "is no known key; correct its spelling");
		if (seen[at])
			return fail_cell(csv, i, key, err, "occurs twice; keep one row");
		seen[at] = true;
		rc = numbers(&tables->op, csv, i, &value, &keys[at], 1, err);
	}
	for (size_t at = 0; at < N && !rc; at++) {
		if (!seen[at])
			return adp_fail(err, ADP_EINVAL, "%s: key '%s' is missing; add its row", csv->where,
			                keys[at].name);
	}
	return rc;
}

static int read_flag(bool *out, const struct adp_csv *csv, uint32_t row, uint32_t col,
                     struct adp_error *err)
{
	const char *text = adp_csv_cell(csv, row, col);

	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		return fail_cell(csv, row, col, err, "must be 0 or 1");
	*out = text[0] == '1';
	return ADP_OK;
}

enum gpu_column {
	MATCH,
	MATMUL,
	CEILING,
	MULTIPLIER,
	MEASURED,
	BAND,
	ATTENTION,
	COLLECTIVE,
	P2P,
	N_GPU_COLUMNS
};

static int read_gpu_row(struct gpu_curves *out, struct adp_tables *tables,
                        const struct adp_csv *csv, uint32_t row, const uint32_t *col,
                        struct adp_error *err)
{
	int rc = copy_name(&out->match, tables, csv, row, col[MATCH], err);

	if (rc)
		return rc;
	out->matmul = matmul_by_name(tables, adp_csv_cell(csv, row, col[MATMUL]));
	if (!out->matmul)
		return fail_cell(csv, row, col[MATMUL], err, "is no curve of matmul_curves.csv");
	for (uint32_t i = 0; i < tables->n_attention && !out->attention; i++) {
		if (strcmp(tables->attention[i].name, adp_csv_cell(csv, row, col[ATTENTION])) == 0)
			out->attention = &tables->attention[i];
	}
	if (!out->attention)
		return fail_cell(csv, row, col[ATTENTION], err, "is no row of attention.csv");
	for (uint32_t i = 0; i < tables->n_collective && !out->collective; i++) {
		if (strcmp(tables->collective[i].name, adp_csv_cell(csv, row, col[COLLECTIVE])) == 0)
			out->collective = &tables->collective[i];
	}
	if (!out->collective)
		return fail_cell(csv, row, col[COLLECTIVE], err, "is no curve of collectives.csv");
	if (adp_csv_cell(csv, row, col[CEILING])[0])
		rc = number(&out->ceiling_frac, csv, row, col[CEILING], 0.01, 1, err);
	if (!rc)
		rc = number(&out->multiplier, csv, row, col[MULTIPLIER], 0.01, 10, err);
	if (!rc)
		rc = number(&out->band_frac, csv, row, col[BAND], 0, 10, err);
	if (!rc)
		rc = read_flag(&out->measured, csv, row, col[MEASURED], err);
	if (!rc)
		rc = read_flag(&out->pcie_p2p, csv, row, col[P2P], err);
	return rc;
}

int cost_read_gpu_curves(struct adp_tables *tables, const struct adp_csv *csv,
                         struct adp_error *err)
{
	static const char *const names[N_GPU_COLUMNS] = {
		"match",     "matmul_curve", "ceiling_frac",     "multiplier", "measured",
		"band_frac", "attention",    "collective_curve", "pcie_p2p"};
	uint32_t col[N_GPU_COLUMNS];
	struct gpu_curves *rows;
	int rc = ADP_OK;

	for (int i = 0; i < N_GPU_COLUMNS && !rc; i++)
		rc = adp_csv_column(&col[i], csv, names[i], err);
	if (rc)
		return rc;
	for (tables->n_slots = 64; tables->n_slots / 4 < csv->n_rows; tables->n_slots *= 2)
		;
	rows = adp_arena_calloc(&tables->arena, csv->n_rows, sizeof *rows);
	tables->slot = adp_arena_calloc(&tables->arena, tables->n_slots, sizeof *tables->slot);
	if (!rows || !tables->slot)
		return adp_nomem(err);
	for (uint32_t i = 0; i < csv->n_rows; i++) {
		uint32_t at;

		rc = read_gpu_row(&rows[i], tables, csv, i, col, err);
		if (rc)
			return rc;
		for (at = cost_hash("", rows[i].match); tables->slot[at & (tables->n_slots - 1)]; at++) {
			if (strcmp(rows[tables->slot[at & (tables->n_slots - 1)] - 1].match, rows[i].match) ==
			    0)
				return fail_cell(csv, i, col[MATCH], err, "occurs twice; keep one row");
		}
		tables->slot[at & (tables->n_slots - 1)] = i + 1;
		if (strcmp(rows[i].match, "default") == 0)
			tables->fallback = &rows[i];
	}
	if (!tables->fallback)
		return adp_fail(err, ADP_EINVAL, "%s: no row whose match is 'default'; add it", csv->where);
	tables->gpu = rows;
	tables->n_gpu = csv->n_rows;
	return ADP_OK;
}
