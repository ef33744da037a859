/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/tables.h"

#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "cost/tables_read.h"

static const char *const files[] = {
	"matmul_curves.csv",    "matmul.csv",    "attention.csv",  "collectives.csv",
	"collective_links.csv", "operators.csv", "gpu_curves.csv",
};
enum { N_FILES = sizeof files / sizeof files[0] };

typedef int (*reader_fn)(struct adp_tables *tables, const struct adp_csv *csv,
                         struct adp_error *err);
static const reader_fn readers[N_FILES] = {
	cost_read_matmul_curves, cost_read_matmul,    cost_read_attention,  cost_read_collectives,
	cost_read_links,         cost_read_operators, cost_read_gpu_curves,
};

const char *cost_table_file(size_t which)
{
	return which < N_FILES ? files[which] : NULL;
}

static const struct cost_table_text *given_text(const struct cost_table_text *given, size_t n_given,
                                                const char *name)
{
	for (size_t i = 0; i < n_given; i++) {
		if (strcmp(given[i].name, name) == 0)
			return &given[i];
	}
	return NULL;
}

int cost_tables_build(struct adp_tables **out, const char *dir, const struct cost_table_text *given,
                      size_t n_given, struct adp_error *err)
{
	struct adp_tables *tables = adp_calloc(1, sizeof *tables);
	char digests[N_FILES * (ADP_DIGEST_SIZE - 1) + 1] = "", digest[ADP_DIGEST_SIZE];
	int rc = ADP_OK;

	*out = NULL;
	if (!tables)
		return adp_nomem(err);
	for (size_t i = 0; i < N_FILES && !rc; i++) {
		struct adp_arena scratch = {0};
		struct adp_csv csv;
		const struct cost_table_text *mine = given_text(given, n_given, files[i]);
		const char *text = mine ? mine->text : NULL;
		char *owned = NULL;
		size_t len = mine ? mine->len : 0;

		if (!mine)
			rc = adp_data_open(&text, &len, &owned, files[i], dir, err);
		if (!rc) {
			adp_digest(digests + i * (ADP_DIGEST_SIZE - 1), text, len);
			rc = adp_csv_read(&csv, &scratch, text, len, files[i], err);
		}
		if (!rc)
			rc = readers[i](tables, &csv, err);
		adp_arena_fini(&scratch);
		adp_free(owned);
	}
	if (!rc) {
		adp_digest(digest, digests, strlen(digests));
		tables->version = adp_arena_strndup(&tables->arena, digest, 16);
		if (!tables->version)
			rc = adp_nomem(err);
	}
	if (rc) {
		adp_tables_destroy(tables);
		return rc;
	}
	*out = tables;
	return ADP_OK;
}

int adp_tables_load(struct adp_tables **out, const char *dir, struct adp_error *err)
{
	return cost_tables_build(out, dir, NULL, 0, err);
}

void adp_tables_destroy(struct adp_tables *tables)
{
	if (!tables)
		return;
	adp_arena_fini(&tables->arena);
	adp_free(tables);
}

const char *adp_tables_version(const struct adp_tables *tables)
{
	return tables->version;
}

/* FNV-1a; the architecture's key is hashed as if "arch:" stood before it. */
uint32_t cost_hash(const char *prefix, const char *text)
{
	uint32_t h = 2166136261u;

	for (; *prefix; prefix++)
		h = (h ^ (unsigned char)*prefix) * 16777619u;
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 16777619u;
	return h;
}

static const struct gpu_curves *find(const struct adp_tables *tables, const char *prefix,
                                     const char *text)
{
	size_t n = strlen(prefix);

	for (uint32_t at = cost_hash(prefix, text);; at++) {
		uint32_t entry = tables->slot[at & (tables->n_slots - 1)];

		if (!entry)
			return NULL;
		if (strncmp(tables->gpu[entry - 1].match, prefix, n) == 0 &&
		    strcmp(tables->gpu[entry - 1].match + n, text) == 0)
			return &tables->gpu[entry - 1];
	}
}

const struct gpu_curves *cost_gpu_curves(const struct adp_tables *tables,
                                         const struct adp_gpu_type *gpu)
{
	const struct gpu_curves *row = gpu->name ? find(tables, "", gpu->name) : NULL;

	if (!row && gpu->arch)
		row = find(tables, "arch:", gpu->arch);
	return row ? row : tables->fallback;
}
