/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_PLAN_INTERNAL_H
#define ADP_PLAN_INTERNAL_H

#include <jansson.h>

#include "adp/plan.h"
#include "base/strbuf.h"

#define ADP_PLAN_API_VERSION "adp.parallelism/v1alpha1"
#define ADP_PLAN_KIND "ParallelPlan"

/* Documents over these are refused with ADP_ELIMIT. */
enum {
	ADP_PLAN_MAX_RANKS = 1 << 20,
	ADP_PLAN_MAX_CELLS = 1 << 20, /* stages x (replica groups + virtual stages) */
	ADP_PLAN_MAX_NODE_GPUS = 1024,
};

/* One key of the document and the member of a struct it stands for. */
enum adp_field_kind {
	ADP_FIELD_STRING,
	ADP_FIELD_U32,
	ADP_FIELD_U64,
	ADP_FIELD_DOUBLE,
	ADP_FIELD_ENDLESS, /* a double that may be infinite: null in the document */
	ADP_FIELD_BOOL,
	ADP_FIELD_RECOMPUTE,
	ADP_FIELD_PRECISION,
	ADP_FIELD_OPTIMIZER,
};
struct adp_field {
	const char *key;
	size_t offset;
	enum adp_field_kind kind;
	bool optional; /* strings: NULL is not written */
};

/* Tables end with a NULL key. The writer and the reader share them, so they cannot disagree. */
extern const struct adp_field adp_plan_model_fields[], adp_plan_train_fields[],
	adp_plan_engine_fields[], adp_plan_degree_fields[], adp_plan_gpu_fields[],
	adp_plan_stage_fields[], adp_plan_pipe_fields[], adp_plan_cell_fields[],
	adp_plan_cell_time_fields[], adp_plan_pipe_time_fields[], adp_plan_step_fields[],
	adp_plan_memory_fields[], adp_plan_stage_memory_fields[], adp_plan_time_fields[],
	adp_plan_other_fields[], adp_plan_search_fields[], adp_plan_provenance_fields[];

/* In this header err is never NULL. Adds each field of the struct at base to object. */
int adp_plan_fields_write(json_t *object, const struct adp_field *fields, const void *base,
                          struct adp_error *err);

/*
 * Fills the struct at base; strings are copied to the arena. Every field must be there unless
 * optional, and no key beside them and `others` (NULL-terminated, or NULL).
 */
int adp_plan_fields_read(void *base, const struct adp_field *fields, const char *const *others,
                         const json_t *object, const char *path, struct adp_arena *arena,
                         struct adp_error *err);

/* Sets key; steals value; NULL value: out of memory. */
int adp_plan_set(json_t *object, const char *key, json_t *value, struct adp_error *err);
int adp_plan_append(json_t *array, json_t *value, struct adp_error *err);
/* NULL with err set when text is NULL, not UTF-8, or memory runs out. */
json_t *adp_plan_string(const char *text, const char *key, struct adp_error *err);

/*
 * Node names with consecutive numbers folded: a-0 .. a-15 is "a-[0-15]", g-08.x .. g-11.x is
 * "g-[08-11].x". A backslash stands before a '[' or '\' of a name. Order is kept.
 */
json_t *adp_plan_fold_names(const char *const *names, uint32_t n, struct adp_error *err);
int adp_plan_unfold_names(const char *const **out, uint32_t *n_out, const json_t *patterns,
                          uint32_t max, const char *path, struct adp_arena *arena,
                          struct adp_error *err);

/* Small numbers in order: 0 1 2 3 6 is "0-3,6". */
void adp_plan_fold_numbers(struct adp_strbuf *out, const uint32_t *numbers, uint32_t n);
int adp_plan_unfold_numbers(const uint32_t **out, uint32_t *n_out, const char *text,
                            const char *path, struct adp_arena *arena, struct adp_error *err);

/* "1f1b" or "interleaved-1f1b". Static. */
const char *adp_plan_schedule(const struct adp_plan *plan);

/* The document's metadata.name: the plan's own, or a DNS label made from the model's name. In the
 * arena. */
int adp_plan_name(const char **out, const struct adp_plan *plan, struct adp_arena *arena,
                  struct adp_error *err);

#endif
