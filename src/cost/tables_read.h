/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_COST_TABLES_READ_H
#define ADP_COST_TABLES_READ_H

#include "base/csv.h"
#include "base/file.h"
#include "cost/tables.h"

/* One per file of data/, called in the order of adp_tables_load. Errors name file, line and column.
 */
int cost_read_matmul_curves(struct adp_tables *tables, const struct adp_csv *csv,
                            struct adp_error *err);
int cost_read_matmul(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err);
int cost_read_attention(struct adp_tables *tables, const struct adp_csv *csv,
                        struct adp_error *err);
int cost_read_collectives(struct adp_tables *tables, const struct adp_csv *csv,
                          struct adp_error *err);
int cost_read_links(struct adp_tables *tables, const struct adp_csv *csv, struct adp_error *err);
int cost_read_operators(struct adp_tables *tables, const struct adp_csv *csv,
                        struct adp_error *err);
int cost_read_gpu_curves(struct adp_tables *tables, const struct adp_csv *csv,
                         struct adp_error *err);

/* The files in reading order; NULL after the last. */
const char *cost_table_file(size_t which);

/* adp_tables_load with the text of some files given; for tests. */
struct cost_table_text {
	const char *name, *text;
	size_t len;
};
int cost_tables_build(struct adp_tables **out, const char *dir, const struct cost_table_text *given,
                      size_t n_given, struct adp_error *err);

uint32_t cost_hash(const char *prefix, const char *text);

#endif
