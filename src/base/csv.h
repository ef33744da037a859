/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_CSV_H
#define ADP_BASE_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adp/arena.h"

/*
 * RFC 4180 tables: a header line, quoted fields, LF or CRLF; lines that start with '#' before the
 * header are skipped. Limits: 2^20 cells, 1024 columns, 64 KiB a field. Empty lines are skipped;
 * UTF-8 only. Cells live in the arena.
 */
struct adp_csv {
	const char *where;
	const char **header;
	const char **cells;   /* n_rows * n_cols */
	const uint32_t *line; /* source line of each row */
	uint32_t n_cols, n_rows;
};
int adp_csv_read(struct adp_csv *out, struct adp_arena *arena, const char *text, size_t len,
                 const char *where, struct adp_error *err);
int adp_csv_column(uint32_t *out, const struct adp_csv *csv, const char *name,
                   struct adp_error *err);
const char *adp_csv_cell(const struct adp_csv *csv, uint32_t row, uint32_t col); /* "" when empty */
/* Finite number; an empty cell gives missing. Errors name file, line and column. */
int adp_csv_number(double *out, const struct adp_csv *csv, uint32_t row, uint32_t col,
                   double missing, struct adp_error *err);

#endif
