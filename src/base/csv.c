/* SPDX-License-Identifier: Apache-2.0 */
#include "base/csv.h"

#include <string.h>

#include "base/number.h"
#include "base/utf8.h"

enum { MAX_CELLS = 1 << 20, MAX_COLS = 1024, MAX_FIELD = 64 << 10 };

/* Reads text once to count and once more to fill, so that nothing grows. */
struct reader {
	const char *text, *where;
	size_t len, at;
	uint32_t line;
	struct adp_arena *arena;
	struct adp_error *err;
	bool fill; /* cells are wanted, not only counted */
};

static int fail_at_line(struct reader *in, const char *problem)
{
	return adp_fail(in->err, ADP_EINVAL, "%s:%u: %s", in->where, in->line, problem);
}

static bool at_line_end(const struct reader *in)
{
	return in->at >= in->len || in->text[in->at] == '\n' ||
	       (in->text[in->at] == '\r' && in->at + 1 < in->len && in->text[in->at + 1] == '\n');
}

static void skip_line_end(struct reader *in)
{
	if (in->at < in->len && in->text[in->at] == '\r')
		in->at++;
	if (in->at < in->len)
		in->at++;
	in->line++;
}

/* The text between the quotes at in->at - 1 and the closing one, doubled quotes halved. */
static int read_quoted(struct reader *in, const char **out)
{
	size_t start = in->at, n = 0;
	uint32_t first_line = in->line;
	char *copy = NULL;

	for (;; in->at++, n++) {
		if (in->at >= in->len) {
			in->line = first_line;
			return fail_at_line(in, "a quoted field is not closed; add the missing '\"'");
		}
		if (in->text[in->at] == '\n')
			in->line++;
		if (in->text[in->at] != '"')
			continue;
		if (in->at + 1 >= in->len || in->text[in->at + 1] != '"')
			break;
		in->at++;
	}
	in->at++;
	if (n > MAX_FIELD)
		return adp_fail(in->err, ADP_ELIMIT, "%s:%u: a field is longer than %d bytes", in->where,
		                first_line, MAX_FIELD);
	if (!at_line_end(in) && in->text[in->at] != ',')
		return fail_at_line(
			in, "text follows a closing quote; double a '\"' that belongs to the field");
	if (!in->fill)
		return ADP_OK;
	copy = adp_arena_calloc(in->arena, n + 1, 1);
	if (!copy)
		return adp_nomem(in->err);
	for (size_t i = 0, from = start; i < n; i++, from++) {
		copy[i] = in->text[from];
		if (copy[i] == '"')
			from++;
	}
	*out = copy;
	return ADP_OK;
}

static int read_plain(struct reader *in, const char **out)
{
	size_t start = in->at;

	for (; !at_line_end(in) && in->text[in->at] != ','; in->at++) {
		if (in->text[in->at] == '"')
			return fail_at_line(
				in, "a '\"' inside a field that does not start with one; quote the whole field");
	}
	if (in->at - start > MAX_FIELD)
		return adp_fail(in->err, ADP_ELIMIT, "%s:%u: a field is longer than %d bytes", in->where,
		                in->line, MAX_FIELD);
	if (!in->fill)
		return ADP_OK;
	if (in->at == start) { /* empty cells are common: share one */
		*out = "";
		return ADP_OK;
	}
	*out = adp_arena_strndup(in->arena, in->text + start, in->at - start);
	return *out ? ADP_OK : adp_nomem(in->err);
}

/* One record; cells may be NULL while counting. More than max fields are counted, not stored. */
static int read_record(struct reader *in, const char **cells, uint32_t max, uint32_t *n)
{
	const char *cell = NULL;
	int rc;

	for (*n = 0;;) {
		if (*n == MAX_CELLS)
			return adp_fail(in->err, ADP_ELIMIT, "%s:%u: more than %d fields", in->where, in->line,
			                MAX_CELLS);
		if (in->at < in->len && in->text[in->at] == '"') {
			in->at++;
			rc = read_quoted(in, &cell);
		} else {
			rc = read_plain(in, &cell);
		}
		if (rc)
			return rc;
		if (in->fill && *n < max)
			cells[*n] = cell;
		++*n;
		if (at_line_end(in))
			break;
		in->at++; /* the comma */
	}
	skip_line_end(in);
	return ADP_OK;
}

static void skip_empty_lines(struct reader *in)
{
	while (in->at < in->len && at_line_end(in))
		skip_line_end(in);
}

static void skip_comments(struct reader *in)
{
	for (;;) {
		skip_empty_lines(in);
		if (in->at >= in->len || in->text[in->at] != '#')
			return;
		while (!at_line_end(in))
			in->at++;
	}
}

static int count_rows(struct reader in, uint32_t n_cols, uint32_t *n_rows)
{
	uint32_t n, line;
	int rc;

	for (*n_rows = 0;; ++*n_rows) {
		skip_empty_lines(&in);
		if (in.at >= in.len)
			return ADP_OK;
		line = in.line;
		rc = read_record(&in, NULL, 0, &n);
		if (rc)
			return rc;
		if (n != n_cols)
			return adp_fail(in.err, ADP_EINVAL,
			                "%s:%u: %u fields, but the header has %u; a field with a comma "
			                "must be quoted",
			                in.where, line, n, n_cols);
		if ((uint64_t)(*n_rows + 1) * n_cols > MAX_CELLS)
			return adp_fail(in.err, ADP_ELIMIT, "%s:%u: more than %d cells; split the table",
			                in.where, line, MAX_CELLS);
	}
}

static int read_header(struct reader *in, struct adp_csv *out)
{
	struct reader count = *in;
	int rc;

	count.fill = false;
	rc = read_record(&count, NULL, 0, &out->n_cols);
	if (rc)
		return rc;
	if (out->n_cols > MAX_COLS)
		return adp_fail(in->err, ADP_ELIMIT, "%s: more than %d columns", in->where, MAX_COLS);
	out->header = adp_arena_calloc(in->arena, out->n_cols, sizeof *out->header);
	if (!out->header)
		return adp_nomem(in->err);
	rc = read_record(in, out->header, out->n_cols, &out->n_cols);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < out->n_cols; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (strcmp(out->header[i], out->header[j]) == 0)
				return adp_fail(in->err, ADP_EINVAL,
				                "%s: column '%.80s' is there twice; rename one", in->where,
				                out->header[i]);
		}
	}
	return ADP_OK;
}

int adp_csv_read(struct adp_csv *out, struct adp_arena *arena, const char *text, size_t len,
                 const char *where, struct adp_error *err)
{
	struct reader in = {.text = text,
	                    .where = where,
	                    .len = len,
	                    .line = 1,
	                    .arena = arena,
	                    .err = err,
	                    .fill = true};
	struct adp_csv csv = {0};
	const char **cells;
	uint32_t *lines, n;
	int rc;

	in.at = adp_utf8_bom(text, len);
	if (adp_utf8_check(text, len) != len)
		return adp_fail(err, ADP_EINVAL, "%s: not UTF-8 text (byte %zu); save the table as UTF-8",
		                where, adp_utf8_check(text, len));
	skip_comments(&in);
	if (in.at >= len)
		return adp_fail(err, ADP_EINVAL, "%s: no header line; the first line must name the columns",
		                where);
	rc = read_header(&in, &csv);
	if (rc)
		return rc;
	in.fill = false;
	rc = count_rows(in, csv.n_cols, &csv.n_rows);
	if (rc)
		return rc;
	in.fill = true;
	cells = adp_arena_calloc(arena, (size_t)csv.n_rows * csv.n_cols, sizeof *cells);
	lines = adp_arena_calloc(arena, csv.n_rows, sizeof *lines);
	csv.where = adp_arena_strdup(arena, where);
	if (!cells || !lines || !csv.where)
		return adp_nomem(err);
	for (uint32_t row = 0; row < csv.n_rows; row++) {
		skip_empty_lines(&in);
		lines[row] = in.line;
		rc = read_record(&in, cells + (size_t)row * csv.n_cols, csv.n_cols, &n);
		if (rc)
			return rc;
	}
	csv.cells = cells;
	csv.line = lines;
	*out = csv;
	return ADP_OK;
}

int adp_csv_column(uint32_t *out, const struct adp_csv *csv, const char *name,
                   struct adp_error *err)
{
	for (uint32_t i = 0; i < csv->n_cols; i++) {
		if (strcmp(csv->header[i], name) == 0) {
			*out = i;
			return ADP_OK;
		}
	}
	return adp_fail(err, ADP_EINVAL, "%s: no column '%s'; add it to the header line", csv->where,
	                name);
}

const char *adp_csv_cell(const struct adp_csv *csv, uint32_t row, uint32_t col)
{
	return csv->cells[(size_t)row * csv->n_cols + col];
}

int adp_csv_number(double *out, const struct adp_csv *csv, uint32_t row, uint32_t col,
                   double missing, struct adp_error *err)
{
	const char *cell = adp_csv_cell(csv, row, col);

	if (!cell[0]) {
		*out = missing;
		return ADP_OK;
	}
	if (!adp_number_parse(out, cell, strlen(cell)))
		return adp_fail(err, ADP_EINVAL, "%s:%u: column '%s': '%.80s' is not a finite number",
		                csv->where, csv->line[row], csv->header[col], cell);
	return ADP_OK;
}
