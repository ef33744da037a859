/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/doc.h"

enum { PATH_SIZE = 256 }; /* of a nested place; outer places take half of it */

/* The array under key, with at least min elements, all objects. */
static int read_array(json_t **out, const json_t *object, const char *key, const char *path,
                      size_t min, size_t max, struct adp_error *err)
{
	int rc = adp_doc_array(out, NULL, object, key, path, err);
	size_t n, i;
	json_t *element;

	if (rc)
		return rc;
	n = json_array_size(*out);
	if (n < min || n > max) {
		if (min == max)
			return adp_fail(err, ADP_EINVAL, "%s.%s: %zu entries, expected %zu", path, key, n, min);
		return adp_fail(err, n > max ? ADP_ELIMIT : ADP_EINVAL,
		                "%s.%s: %zu entries, expected %zu to %zu", path, key, n, min, max);
	}
	json_array_foreach (*out, i, element)
		if (!json_is_object(element))
			return adp_fail(err, ADP_EINVAL, "%s.%s[%zu]: expected a mapping", path, key, i);
	return ADP_OK;
}

/* A member object that is one table of fields. */
static int read_part(void *base, const struct adp_field *fields, const json_t *parent,
                     const char *key, const char *path, struct adp_arena *arena,
                     struct adp_error *err)
{
	char at[PATH_SIZE];
	json_t *object;
	const int rc = adp_doc_object(&object, NULL, parent, key, path, err);

	if (rc)
		return rc;
	snprintf(at, sizeof at, "%s%s%s", path, *path ? "." : "", key);
	return adp_plan_fields_read(base, fields, NULL, object, at, arena, err);
}

static int read_text(const char **out, const json_t *object, const char *key, const char *path,
                     struct adp_arena *arena, struct adp_error *err)
{
	const char *text;
	const int rc = adp_doc_string(&text, NULL, object, key, path, err);

	if (rc)
		return rc;
	*out = adp_arena_strdup(arena, text);
	return *out ? ADP_OK : adp_nomem(err);
}

static int read_strings(const char ***out, uint32_t *n_out, const json_t *parent, const char *key,
                        const char *path, struct adp_arena *arena, struct adp_error *err)
{
	json_t *array, *value;
	const char **texts;
	size_t i;
	const int rc = adp_doc_array(&array, NULL, parent, key, path, err);

	if (rc)
		return rc;
	texts = adp_arena_calloc(arena, json_array_size(array), sizeof *texts);
	if (!texts)
		return adp_nomem(err);
	json_array_foreach (array, i, value) {
		if (!json_is_string(value))
			return adp_fail(err, ADP_EINVAL, "%s.%s[%zu]: expected a string", path, key, i);
		texts[i] = adp_arena_strdup(arena, json_string_value(value));
		if (!texts[i])
			return adp_nomem(err);
	}
	*out = texts;
	*n_out = (uint32_t)json_array_size(array);
	return ADP_OK;
}

static int read_model(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	static const char *const others[] = {"traits", NULL};
	const char **traits;
	json_t *object;
	int rc = adp_doc_object(&object, NULL, spec, "model", "spec", err);

	if (!rc)
		rc = adp_plan_fields_read(&plan->model, adp_plan_model_fields, others, object, "spec.model",
		                          &plan->arena, err);
	if (!rc)
		rc = read_strings(&traits, &plan->model.n_traits, object, "traits", "spec.model",
		                  &plan->arena, err);
	if (!rc)
		plan->model.traits = traits;
	return rc;
}

static int read_gpus(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	json_t *array, *object;
	size_t i;
	int rc = read_array(&array, spec, "gpus", "spec", 1, 4096, err);

	if (rc)
		return rc;
	plan->n_gpu_types = (uint32_t)json_array_size(array);
	plan->gpus = adp_arena_calloc(&plan->arena, plan->n_gpu_types, sizeof *plan->gpus);
	if (!plan->gpus)
		return adp_nomem(err);
	json_array_foreach (array, i, object) {
		char at[PATH_SIZE];

		snprintf(at, sizeof at, "spec.gpus[%zu]", i);
		rc = adp_plan_fields_read(&plan->gpus[i], adp_plan_gpu_fields, NULL, object, at,
		                          &plan->arena, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

/* The index of the GPU type that object names. */
static int read_gpu(uint32_t *out, const struct adp_plan *plan, const json_t *object,
                    const char *path, struct adp_error *err)
{
	const char *type;
	const int rc = adp_doc_string(&type, NULL, object, "gpu", path, err);

	if (rc)
		return rc;
	for (uint32_t g = 0; g < plan->n_gpu_types; g++)
		if (!strcmp(type, plan->gpus[g].type)) {
			*out = g;
			return ADP_OK;
		}
	return adp_fail(err, ADP_EINVAL,
	                "%s.gpu: \"%.64s\" is not a type listed under spec.gpus (the first is %.64s)",
	                path, type, plan->gpus[0].type);
}

static int read_chunks(struct adp_plan_stage *stage, const json_t *object, const char *path,
                       struct adp_plan *plan, struct adp_error *err)
{
	static const char *const keys[] = {"firstLayer", "layers", NULL};
	uint32_t *first, *count;
	json_t *array, *chunk;
	size_t i;
	int rc = read_array(&array, object, "chunks", path, plan->vpp, plan->vpp, err);

	if (rc)
		return rc;
	first = adp_arena_calloc(&plan->arena, plan->vpp, sizeof *first);
	count = adp_arena_calloc(&plan->arena, plan->vpp, sizeof *count);
	if (!first || !count)
		return adp_nomem(err);
	json_array_foreach (array, i, chunk) {
		char at[PATH_SIZE];
		uint64_t value;

		snprintf(at, sizeof at, "%s.chunks[%zu]", path, i);
		rc = adp_doc_only(chunk, keys, at, err);
		if (!rc)
			rc = adp_doc_u64(&value, NULL, chunk, "firstLayer", 0, UINT32_MAX, at, err);
		if (rc)
			return rc;
		first[i] = (uint32_t)value;
		rc = adp_doc_u64(&value, NULL, chunk, "layers", 0, UINT32_MAX, at, err);
		if (rc)
			return rc;
		count[i] = (uint32_t)value;
	}
	stage->n_chunks = plan->vpp;
	stage->first_layer = first;
	stage->n_layers = count;
	return ADP_OK;
}

static int read_stages(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	static const char *const others[] = {"chunks", NULL};
	json_t *array, *object;
	size_t i;
	int rc = read_array(&array, spec, "stages", "spec", plan->pp, plan->pp, err);

	if (rc)
		return rc;
	plan->stages = adp_arena_calloc(&plan->arena, plan->pp, sizeof *plan->stages);
	if (!plan->stages)
		return adp_nomem(err);
	json_array_foreach (array, i, object) {
		char at[PATH_SIZE / 2];

		snprintf(at, sizeof at, "spec.stages[%zu]", i);
		rc = adp_plan_fields_read(&plan->stages[i], adp_plan_stage_fields, others, object, at,
		                          &plan->arena, err);
		if (!rc)
			rc = read_chunks(&plan->stages[i], object, at, plan, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int read_cell(struct adp_plan *plan, struct adp_plan_cell *cell, const json_t *object,
                     const char *path, struct adp_error *err)
{
	static const char *const others[] = {"gpu", NULL};
	const int rc = adp_plan_fields_read(cell, adp_plan_cell_fields, others, object, path,
	                                    &plan->arena, err);

	return rc ? rc : read_gpu(&cell->gpu, plan, object, path, err);
}

static int read_cell_time(struct adp_plan *plan, struct adp_plan_cell *cell, const json_t *object,
                          const char *path, struct adp_error *err)
{
	return adp_plan_fields_read(cell, adp_plan_cell_time_fields, NULL, object, path, &plan->arena,
	                            err);
}

/* One part of each replica group: what it does (spec), or when (prediction). */
static int read_pipes(struct adp_plan *plan, const json_t *array, const char *path,
                      const struct adp_field *fields,
                      int (*read)(struct adp_plan *, struct adp_plan_cell *, const json_t *,
                                  const char *, struct adp_error *),
                      struct adp_error *err)
{
	static const char *const others[] = {"stages", NULL};
	json_t *object, *cells, *cell;
	size_t p, s;

	json_array_foreach (array, p, object) {
		struct adp_plan_pipe *pipe = &plan->pipes[p];
		char at[PATH_SIZE / 2];
		int rc;

		snprintf(at, sizeof at, "%s.replicaGroups[%zu]", path, p);
		rc = adp_plan_fields_read(pipe, fields, others, object, at, &plan->arena, err);
		if (!rc)
			rc = read_array(&cells, object, "stages", at, plan->pp, plan->pp, err);
		if (rc)
			return rc;
		if (!pipe->cells)
			pipe->cells = adp_arena_calloc(&plan->arena, plan->pp, sizeof *pipe->cells);
		if (!pipe->cells)
			return adp_nomem(err);
		json_array_foreach (cells, s, cell) {
			char inner[PATH_SIZE];

			snprintf(inner, sizeof inner, "%s.stages[%zu]", at, s);
			/* the cells are ours, still being filled */
			rc = read(plan, (struct adp_plan_cell *)&pipe->cells[s], cell, inner, err);
			if (rc)
				return rc;
		}
	}
	return ADP_OK;
}

static int read_run(struct adp_plan *plan, struct adp_plan_run *run, const json_t *object,
                    const char *path, uint64_t *left, struct adp_error *err)
{
	static const char *const keys[] = {"firstRank", "nodes", "gpuIndices", "gpu", NULL};
	char at[PATH_SIZE];
	const char *numbers;
	json_t *nodes;
	uint64_t first;
	int rc = adp_doc_only(object, keys, path, err);

	if (!rc)
		rc = adp_doc_u64(&first, NULL, object, "firstRank", 0, UINT32_MAX, path, err);
	if (!rc)
		rc = adp_doc_string(&numbers, NULL, object, "gpuIndices", path, err);
	if (!rc)
		rc = adp_doc_array(&nodes, NULL, object, "nodes", path, err);
	if (!rc)
		rc = read_gpu(&run->gpu, plan, object, path, err);
	if (rc)
		return rc;
	run->first_rank = (uint32_t)first;
	snprintf(at, sizeof at, "%s.gpuIndices", path);
	rc = adp_plan_unfold_numbers(&run->gpu_index, &run->gpus_per_node, numbers, at, &plan->arena,
	                             err);
	if (rc)
		return rc;
	snprintf(at, sizeof at, "%s.nodes", path);
	rc = adp_plan_unfold_names(&run->nodes, &run->n_nodes, nodes,
	                           (uint32_t)(*left / run->gpus_per_node), at, &plan->arena, err);
	if (!rc)
		*left -= (uint64_t)run->n_nodes * run->gpus_per_node;
	return rc;
}

static int read_runs(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	uint64_t left = adp_plan_world(plan);
	json_t *array, *object;
	size_t i;
	int rc = read_array(&array, spec, "ranks", "spec", 1, left, err);

	if (rc)
		return rc;
	plan->n_runs = (uint32_t)json_array_size(array);
	plan->runs = adp_arena_calloc(&plan->arena, plan->n_runs, sizeof *plan->runs);
	if (!plan->runs)
		return adp_nomem(err);
	json_array_foreach (array, i, object) {
		char at[PATH_SIZE / 2];

		snprintf(at, sizeof at, "spec.ranks[%zu]", i);
		rc = read_run(plan, &plan->runs[i], object, at, &left, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

/* Bounds what the rest of the document can make us allocate. */
static int read_sizes(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	const char *schedule;
	uint64_t world;
	int rc = read_part(plan, adp_plan_degree_fields, spec, "parallelism", "spec", &plan->arena,
	                   err);

	if (!rc)
		rc = adp_doc_u64(&world, NULL, spec, "worldSize", 1, UINT32_MAX, "spec", err);
	if (!rc)
		rc = adp_doc_string(&schedule, NULL, spec, "schedule", "spec", err);
	if (rc)
		return rc;
	if (world != adp_plan_world(plan))
		return adp_fail(err, ADP_EINVAL,
		                "spec.worldSize: %" PRIu64
		                ", but data x tensor x context x pipeline parallel is %" PRIu32,
		                world, adp_plan_world(plan));
	if (world > ADP_PLAN_MAX_RANKS)
		return adp_fail(err, ADP_ELIMIT, "spec.worldSize: %" PRIu64 " ranks, at most %d are read",
		                world, ADP_PLAN_MAX_RANKS);
	if (!plan->vpp || plan->vpp > ADP_PLAN_MAX_CELLS / plan->pp)
		return adp_fail(err, ADP_EINVAL,
		                "spec.parallelism.virtualPipelineParallel: %" PRIu32 " with %" PRIu32
		                " stages",
		                plan->vpp, plan->pp);
	if (strcmp(schedule, adp_plan_schedule(plan)))
		return adp_fail(err, ADP_EINVAL,
		                "spec.schedule: \"%.64s\", but virtualPipelineParallel %" PRIu32
		                " means %s",
		                schedule, plan->vpp, adp_plan_schedule(plan));
	return ADP_OK;
}

static int read_spec(struct adp_plan *plan, const json_t *spec, struct adp_error *err)
{
	static const char *const keys[] = {"model",         "training",  "engine", "parallelism",
	                                   "schedule",      "worldSize", "gpus",   "stages",
	                                   "replicaGroups", "ranks",     NULL};
	json_t *array;
	int rc = adp_doc_only(spec, keys, "spec", err);

	if (!rc)
		rc = read_model(plan, spec, err);
	if (!rc)
		rc = read_part(&plan->train, adp_plan_train_fields, spec, "training", "spec", &plan->arena,
		               err);
	if (!rc)
		rc = read_part(plan, adp_plan_engine_fields, spec, "engine", "spec", &plan->arena, err);
	if (!rc)
		rc = read_sizes(plan, spec, err);
	if (!rc)
		rc = read_gpus(plan, spec, err);
	if (!rc)
		rc = read_stages(plan, spec, err);
	if (!rc)
		rc = read_array(&array, spec, "replicaGroups", "spec", 1, ADP_PLAN_MAX_CELLS / plan->pp,
		                err);
	if (rc)
		return rc;
	plan->n_pipes = (uint32_t)json_array_size(array);
	plan->pipes = adp_arena_calloc(&plan->arena, plan->n_pipes, sizeof *plan->pipes);
	if (!plan->pipes)
		return adp_nomem(err);
	rc = read_pipes(plan, array, "spec", adp_plan_pipe_fields, read_cell, err);
	return rc ? rc : read_runs(plan, spec, err);
}

static int read_prediction(struct adp_plan *plan, const json_t *prediction, struct adp_error *err)
{
	static const char *const keys[] = {"step", "training", "stages", "replicaGroups", NULL};
	static const char *const others[] = {"memory", NULL};
	json_t *stages, *pipes, *object;
	size_t i;
	int rc = adp_doc_only(prediction, keys, "prediction", err);

	if (!rc)
		rc = read_part(&plan->step, adp_plan_step_fields, prediction, "step", "prediction",
		               &plan->arena, err);
	if (!rc)
		rc = read_part(&plan->time, adp_plan_time_fields, prediction, "training", "prediction",
		               &plan->arena, err);
	if (!rc)
		rc = read_array(&stages, prediction, "stages", "prediction", plan->pp, plan->pp, err);
	if (!rc)
		rc = read_array(&pipes, prediction, "replicaGroups", "prediction", plan->n_pipes,
		                plan->n_pipes, err);
	if (rc)
		return rc;
	json_array_foreach (stages, i, object) {
		char at[PATH_SIZE / 2];

		snprintf(at, sizeof at, "prediction.stages[%zu]", i);
		rc = adp_plan_fields_read(&plan->stages[i], adp_plan_stage_memory_fields, others, object,
		                          at, &plan->arena, err);
		if (!rc)
			rc = read_part(&plan->stages[i].memory, adp_plan_memory_fields, object, "memory", at,
			               &plan->arena, err);
		if (rc)
			return rc;
	}
	return read_pipes(plan, pipes, "prediction", adp_plan_pipe_time_fields, read_cell_time, err);
}

static int read_why(struct adp_plan *plan, const json_t *why, struct adp_error *err)
{
	static const char *const keys[] = {"binding", "reasons", "alternatives", "warnings", NULL};
	json_t *others, *object;
	size_t i;
	int rc = adp_doc_only(why, keys, "why", err);

	if (!rc)
		rc = read_text(&plan->binding, why, "binding", "why", &plan->arena, err);
	if (!rc)
		rc = read_strings(&plan->reasons, &plan->n_reasons, why, "reasons", "why", &plan->arena,
		                  err);
	if (!rc)
		rc = read_strings(&plan->warnings, &plan->n_warnings, why, "warnings", "why", &plan->arena,
		                  err);
	if (!rc)
		rc = read_array(&others, why, "alternatives", "why", 0, 4096, err);
	if (rc)
		return rc;
	plan->n_others = (uint32_t)json_array_size(others);
	plan->others = adp_arena_calloc(&plan->arena, plan->n_others, sizeof *plan->others);
	if (!plan->others)
		return adp_nomem(err);
	json_array_foreach (others, i, object) {
		char at[PATH_SIZE];

		snprintf(at, sizeof at, "why.alternatives[%zu]", i);
		rc = adp_plan_fields_read(&plan->others[i], adp_plan_other_fields, NULL, object, at,
		                          &plan->arena, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int read_provenance(struct adp_plan *plan, const json_t *object, struct adp_error *err)
{
	static const char *const others[] = {"adpVersion", NULL};
	const int rc = adp_plan_fields_read(plan, adp_plan_provenance_fields, others, object,
	                                    "provenance", &plan->arena, err);

	return rc ? rc
	          : read_text(&plan->adp_version, object, "adpVersion", "provenance", &plan->arena,
	                      err);
}

static int read_header(struct adp_plan *plan, const json_t *root, struct adp_error *err)
{
	static const char *const keys[] = {"name", NULL};
	const char *version, *kind;
	json_t *metadata;
	int rc = adp_doc_string(&kind, NULL, root, "kind", "", err);

	if (!rc)
		rc = adp_doc_string(&version, NULL, root, "apiVersion", "", err);
	if (rc)
		return rc;
	if (strcmp(kind, ADP_PLAN_KIND))
		return adp_fail(err, ADP_EINVAL, "kind: \"%.64s\", expected %s", kind, ADP_PLAN_KIND);
	if (strcmp(version, ADP_PLAN_API_VERSION))
		return adp_fail(err, ADP_EINVAL,
		                "apiVersion: \"%.64s\", this version of adp reads %s; make the plan again",
		                version, ADP_PLAN_API_VERSION);
	rc = adp_doc_object(&metadata, NULL, root, "metadata", "", err);
	if (!rc)
		rc = adp_doc_only(metadata, keys, "metadata", err);
	return rc ? rc : read_text(&plan->name, metadata, "name", "metadata", &plan->arena, err);
}

static int read_document(struct adp_plan *plan, const json_t *root, struct adp_error *err)
{
	static const char *const keys[] = {"apiVersion", "kind",       "metadata", "spec", "prediction",
	                                   "why",        "provenance", "search",   NULL};
	static const struct {
		const char *key;
		int (*read)(struct adp_plan *, const json_t *, struct adp_error *);
	} parts[] = {
		{"spec", read_spec},
		{"prediction", read_prediction},
		{"why", read_why},
		{"provenance", read_provenance},
	};
	int rc = read_header(plan, root, err);

	if (!rc)
		rc = adp_doc_only(root, keys, "", err);
	for (size_t i = 0; !rc && i < sizeof parts / sizeof *parts; i++) {
		json_t *object;

		rc = adp_doc_object(&object, NULL, root, parts[i].key, "", err);
		if (!rc)
			rc = parts[i].read(plan, object, err);
	}
	if (!rc)
		rc = read_part(&plan->search, adp_plan_search_fields, root, "search", "", &plan->arena,
		               err);
	return rc ? rc : adp_plan_validate(plan, err);
}

int adp_plan_read(struct adp_plan **out, const char *text, size_t len, const char *where,
                  struct adp_error *err)
{
	struct adp_error local = {0}; /* the parts pass their codes through it, err may be NULL */
	json_t *documents;
	struct adp_plan *plan;
	int rc = adp_doc_any(&documents, text, len, where, &local);

	*out = NULL;
	if (rc)
		return adp_fail(err, rc, "%s", local.text);
	plan = adp_plan_create();
	if (!plan)
		rc = adp_nomem(&local);
	else if (json_array_size(documents) == 0)
		rc = adp_fail(&local, ADP_EINVAL, "is empty; give what adp plan -o json or -o yaml prints");
	else if (json_array_size(documents) != 1)
		rc = adp_fail(&local, ADP_EINVAL, "%zu documents, expected one plan",
		              json_array_size(documents));
	else if (!json_is_object(json_array_get(documents, 0)))
		rc = adp_fail(&local, ADP_EINVAL, "the document is no mapping; expected a %s",
		              ADP_PLAN_KIND);
	else
		rc = read_document(plan, json_array_get(documents, 0), &local);
	json_decref(documents);
	if (rc) {
		adp_plan_destroy(plan);
		return adp_fail(err, rc, "%s: %s", where, local.text);
	}
	*out = plan;
	return ADP_OK;
}
