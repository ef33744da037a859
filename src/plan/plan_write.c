/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include "base/doc.h"

/* A new empty object or array under key; NULL with err set. */
static json_t *child(json_t *parent, const char *key, json_t *value, struct adp_error *err)
{
	return adp_plan_set(parent, key, value, err) ? NULL : value;
}

static json_t *element(json_t *array, struct adp_error *err)
{
	json_t *value = json_object();

	return adp_plan_append(array, value, err) ? NULL : value;
}

static int set_string(json_t *object, const char *key, const char *text, struct adp_error *err)
{
	json_t *value = adp_plan_string(text, key, err);

	if (!value)
		return err->code;
	return adp_plan_set(object, key, value, err);
}

/* A member object that is one table of fields. */
static int write_part(json_t *parent, const char *key, const struct adp_field *fields,
                      const void *base, struct adp_error *err)
{
	json_t *object = child(parent, key, json_object(), err);

	return object ? adp_plan_fields_write(object, fields, base, err) : err->code;
}

static int write_strings(json_t *parent, const char *key, const char *const *texts, uint32_t n,
                         struct adp_error *err)
{
	json_t *array = child(parent, key, json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t i = 0; !rc && i < n; i++) {
		json_t *value = adp_plan_string(texts[i], key, err);

		rc = value ? adp_plan_append(array, value, err) : err->code;
	}
	return rc;
}

static int write_model(json_t *spec, const struct adp_plan_model *model, struct adp_error *err)
{
	json_t *object = child(spec, "model", json_object(), err);
	const int rc = object ? adp_plan_fields_write(object, adp_plan_model_fields, model, err)
	                      : err->code;

	return rc ? rc : write_strings(object, "traits", model->traits, model->n_traits, err);
}

static int write_gpus(json_t *spec, const struct adp_plan *plan, struct adp_error *err)
{
	json_t *array = child(spec, "gpus", json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t g = 0; !rc && g < plan->n_gpu_types; g++) {
		json_t *object = element(array, err);

		rc = object ? adp_plan_fields_write(object, adp_plan_gpu_fields, &plan->gpus[g], err)
		            : err->code;
	}
	return rc;
}

static int write_chunks(json_t *object, const struct adp_plan_stage *stage, struct adp_error *err)
{
	json_t *array = child(object, "chunks", json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t v = 0; !rc && v < stage->n_chunks; v++) {
		json_t *chunk = element(array, err);

		rc = chunk ? adp_plan_set(chunk, "firstLayer", json_integer(stage->first_layer[v]), err)
		           : err->code;
		if (!rc)
			rc = adp_plan_set(chunk, "layers", json_integer(stage->n_layers[v]), err);
	}
	return rc;
}

static int write_stages(json_t *spec, const struct adp_plan *plan, struct adp_error *err)
{
	json_t *array = child(spec, "stages", json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t s = 0; !rc && s < plan->pp; s++) {
		json_t *object = element(array, err);

		rc = object ? write_chunks(object, &plan->stages[s], err) : err->code;
		if (!rc)
			rc = adp_plan_fields_write(object, adp_plan_stage_fields, &plan->stages[s], err);
	}
	return rc;
}

static int write_cell(json_t *array, const struct adp_plan *plan, const struct adp_plan_cell *cell,
                      struct adp_error *err)
{
	json_t *object = element(array, err);
	int rc = object ? set_string(object, "gpu", plan->gpus[cell->gpu].type, err) : err->code;

	return rc ? rc : adp_plan_fields_write(object, adp_plan_cell_fields, cell, err);
}

static int write_cell_times(json_t *array, const struct adp_plan *plan,
                            const struct adp_plan_cell *cell, struct adp_error *err)
{
	json_t *object = element(array, err);

	(void)plan;
	return object ? adp_plan_fields_write(object, adp_plan_cell_time_fields, cell, err) : err->code;
}

static int write_pipes(json_t *parent, const struct adp_plan *plan, const struct adp_field *fields,
                       int (*write)(json_t *, const struct adp_plan *, const struct adp_plan_cell *,
                                    struct adp_error *),
                       struct adp_error *err)
{
	json_t *array = child(parent, "replicaGroups", json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t p = 0; !rc && p < plan->n_pipes; p++) {
		json_t *object = element(array, err), *cells = NULL;

		rc = object ? adp_plan_fields_write(object, fields, &plan->pipes[p], err) : err->code;
		if (!rc) {
			cells = child(object, "stages", json_array(), err);
			rc = cells ? ADP_OK : err->code;
		}
		for (uint32_t s = 0; !rc && s < plan->pp; s++)
			rc = write(cells, plan, &plan->pipes[p].cells[s], err);
	}
	return rc;
}

static int write_run(json_t *object, const struct adp_plan *plan, const struct adp_plan_run *run,
                     struct adp_error *err)
{
	struct adp_strbuf numbers = {0};
	json_t *nodes;
	int rc;

	rc = adp_plan_set(object, "firstRank", json_integer(run->first_rank), err);
	if (rc)
		return rc;
	nodes = adp_plan_fold_names(run->nodes, run->n_nodes, err);
	if (!nodes)
		return err->code;
	rc = adp_plan_set(object, "nodes", nodes, err);
	if (rc)
		return rc;
	adp_plan_fold_numbers(&numbers, run->gpu_index, run->gpus_per_node);
	rc = numbers.failed || !numbers.text ? adp_nomem(err)
	                                     : set_string(object, "gpuIndices", numbers.text, err);
	adp_strbuf_fini(&numbers);
	return rc ? rc : set_string(object, "gpu", plan->gpus[run->gpu].type, err);
}

static int write_runs(json_t *spec, const struct adp_plan *plan, struct adp_error *err)
{
	json_t *array = child(spec, "ranks", json_array(), err);
	int rc = array ? ADP_OK : err->code;

	for (uint32_t r = 0; !rc && r < plan->n_runs; r++) {
		json_t *object = element(array, err);

		rc = object ? write_run(object, plan, &plan->runs[r], err) : err->code;
	}
	return rc;
}

static int write_spec(json_t *spec, const struct adp_plan *plan, struct adp_error *err)
{
	int rc = write_model(spec, &plan->model, err);

	if (!rc)
		rc = write_part(spec, "training", adp_plan_train_fields, &plan->train, err);
	if (!rc)
		rc = write_part(spec, "engine", adp_plan_engine_fields, plan, err);
	if (!rc)
		rc = write_part(spec, "parallelism", adp_plan_degree_fields, plan, err);
	if (!rc)
		rc = set_string(spec, "schedule", adp_plan_schedule(plan), err);
	if (!rc)
		rc = adp_plan_set(spec, "worldSize", json_integer(adp_plan_world(plan)), err);
	if (!rc)
		rc = write_gpus(spec, plan, err);
	if (!rc)
		rc = write_stages(spec, plan, err);
	if (!rc)
		rc = write_pipes(spec, plan, adp_plan_pipe_fields, write_cell, err);
	return rc ? rc : write_runs(spec, plan, err);
}

static int write_prediction(json_t *prediction, const struct adp_plan *plan, struct adp_error *err)
{
	int rc = write_part(prediction, "step", adp_plan_step_fields, &plan->step, err);
	json_t *stages = NULL;

	if (!rc)
		rc = write_part(prediction, "training", adp_plan_time_fields, &plan->time, err);
	if (!rc) {
		stages = child(prediction, "stages", json_array(), err);
		rc = stages ? ADP_OK : err->code;
	}
	for (uint32_t s = 0; !rc && s < plan->pp; s++) {
		json_t *object = element(stages, err);

		rc = object ? adp_plan_fields_write(object, adp_plan_stage_memory_fields, &plan->stages[s],
		                                    err)
		            : err->code;
		if (!rc)
			rc = write_part(object, "memory", adp_plan_memory_fields, &plan->stages[s].memory, err);
	}
	return rc ? rc
	          : write_pipes(prediction, plan, adp_plan_pipe_time_fields, write_cell_times, err);
}

static int write_why(json_t *why, const struct adp_plan *plan, struct adp_error *err)
{
	int rc = set_string(why, "binding", plan->binding ? plan->binding : "", err);
	json_t *others = NULL;

	if (!rc)
		rc = write_strings(why, "reasons", plan->reasons, plan->n_reasons, err);
	if (!rc) {
		others = child(why, "alternatives", json_array(), err);
		rc = others ? ADP_OK : err->code;
	}
	for (uint32_t i = 0; !rc && i < plan->n_others; i++) {
		json_t *object = element(others, err);

		rc = object ? adp_plan_fields_write(object, adp_plan_other_fields, &plan->others[i], err)
		            : err->code;
	}
	return rc ? rc : write_strings(why, "warnings", plan->warnings, plan->n_warnings, err);
}

static int write_provenance(json_t *object, const struct adp_plan *plan, struct adp_error *err)
{
	const int rc = set_string(object, "adpVersion",
	                          plan->adp_version ? plan->adp_version : ADP_VERSION, err);

	return rc ? rc : adp_plan_fields_write(object, adp_plan_provenance_fields, plan, err);
}

static int write_document(json_t *root, const struct adp_plan *plan, struct adp_error *err)
{
	static const struct {
		const char *key;
		int (*write)(json_t *, const struct adp_plan *, struct adp_error *);
	} parts[] = {
		{"spec", write_spec},
		{"prediction", write_prediction},
		{"why", write_why},
		{"provenance", write_provenance},
	};
	struct adp_arena arena = {0};
	json_t *metadata;
	const char *name;
	int rc;

	rc = set_string(root, "apiVersion", ADP_PLAN_API_VERSION, err);
	if (!rc)
		rc = set_string(root, "kind", ADP_PLAN_KIND, err);
	if (rc)
		return rc;
	metadata = child(root, "metadata", json_object(), err);
	if (!metadata)
		return err->code;
	rc = adp_plan_name(&name, plan, &arena, err);
	if (!rc)
		rc = set_string(metadata, "name", name, err);
	adp_arena_fini(&arena);
	for (size_t i = 0; !rc && i < sizeof parts / sizeof *parts; i++) {
		json_t *object = child(root, parts[i].key, json_object(), err);

		rc = object ? parts[i].write(object, plan, err) : err->code;
	}
	return rc ? rc : write_part(root, "search", adp_plan_search_fields, &plan->search, err);
}

static int write_text(char **out, const struct adp_plan *plan,
                      int (*print)(char **, const json_t *, struct adp_error *),
                      struct adp_error *err)
{
	struct adp_error local = {0}; /* the parts pass their codes through it, err may be NULL */
	json_t *root = json_object();
	int rc = root ? write_document(root, plan, &local) : adp_nomem(&local);

	*out = NULL;
	if (!rc)
		rc = print(out, root, &local);
	json_decref(root);
	return rc ? adp_fail(err, rc, "%s", local.text) : ADP_OK;
}

int adp_plan_to_json(char **out, const struct adp_plan *plan, struct adp_error *err)
{
	return write_text(out, plan, adp_doc_to_json, err);
}

int adp_plan_to_yaml(char **out, const struct adp_plan *plan, struct adp_error *err)
{
	return write_text(out, plan, adp_doc_to_yaml, err);
}
