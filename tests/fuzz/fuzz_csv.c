/* SPDX-License-Identifier: Apache-2.0 */
/* links: base; covers: src/base/csv.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_up(const struct adp_csv *csv)
{
	uint32_t column;
	double number;

	for (uint32_t i = 0; i < csv->n_cols && i < 64; i++) {
		if (adp_csv_column(&column, csv, csv->header[i], NULL) || column != i)
			abort();
	}
	if (adp_csv_column(&column, csv, "no such column\n", NULL) == ADP_OK &&
	    !strchr(csv->header[column], '\n'))
		abort();
	for (uint32_t row = 0; row < csv->n_rows; row++) {
		if (csv->line[row] == 0 || (row && csv->line[row] <= csv->line[row - 1]))
			abort();
		for (uint32_t col = 0; col < csv->n_cols; col++) {
			if (adp_csv_number(&number, csv, row, col, 7, NULL) == ADP_OK && !isfinite(number))
				abort();
			if (!adp_csv_cell(csv, row, col)[0] && number != 7)
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct adp_csv csv;

	if (adp_csv_read(&csv, &arena, (const char *)data, size, "fuzz", &err) == ADP_OK)
		look_up(&csv);
	else if (!err.code || !err.text[0])
		abort();
	adp_arena_fini(&arena);
	return 0;
}
