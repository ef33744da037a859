/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "search/internal.h"

/* The candidate as a document: names, ranks and nodes. */

static void *array(struct adp_plan *plan, size_t n, size_t size)
{
	return adp_arena_calloc(&plan->arena, n, size);
}

static const char *text(struct adp_plan *plan, const char *s, bool *failed)
{
	char *copy = s ? adp_arena_strdup(&plan->arena, s) : NULL;

	*failed = *failed || (s && !copy);
	return copy;
}

static int build_model(struct adp_plan *plan, const struct adp_model *model, struct adp_error *err)
{
	struct adp_plan_model *to = &plan->model;
	const struct adp_block *last = &model->blocks[model->n_blocks - 1];
	const char **traits;
	bool failed = false, moe = false;

	for (uint32_t i = 0; i < model->n_items; i++)
		if (model->items[i].kind == ADP_ITEM_BLOCK && model->items[i].layer + 1 == model->n_layers)
			last = model->items[i].block;
	to->name = text(plan, model->name, &failed);
	to->family = text(plan, model->family, &failed);
	to->digest = text(plan, model->digest, &failed);
	to->params = adp_model_params(model);
	to->active_params = adp_model_active_params(model);
	to->hidden = model->hidden;
	to->vocab = model->vocab;
	to->max_seq_tokens = model->max_seq_tokens;
	to->n_layers = model->n_layers;
	to->n_heads = last->n_heads;
	to->n_kv_heads = last->n_kv_heads;
	to->head_dim = last->head_dim;
	to->gated = last->gated;
	to->n_experts = last->n_experts;
	to->top_k = last->top_k;
	to->expert_ffn_hidden = last->expert_ffn_hidden;
	to->shared_ffn_hidden = last->shared_ffn_hidden;
	to->window_tokens = last->window_tokens;
	for (uint32_t i = 0; i < model->n_items; i++) {
		if (model->items[i].kind != ADP_ITEM_BLOCK)
			continue;
		moe = moe || model->items[i].block->n_experts;
		to->n_dense_first += !moe && last->n_experts;
		if (model->items[i].block->ffn_hidden)
			to->ffn_hidden = model->items[i].block->ffn_hidden;
	}
	to->tied_embeddings = model->tied_embeddings;
	to->learned_positions = model->learned_positions;
	to->qkv_bias = model->qkv_bias;
	to->out_bias = model->out_bias;
	to->mlp_bias = model->mlp_bias;
	to->qk_norm = model->qk_norm;
	to->norm = text(plan, model->norm, &failed);
	to->activation = text(plan, model->activation, &failed);
	to->rope_theta = model->rope_theta;
	traits = array(plan, model->n_traits, sizeof *traits);
	if (!traits)
		return adp_nomem(err);
	for (uint32_t i = 0; i < model->n_traits; i++)
		traits[i] = text(plan, model->traits[i], &failed);
	to->traits = traits;
	to->n_traits = model->n_traits;
	return failed ? adp_nomem(err) : ADP_OK;
}

static int build_gpus(struct adp_plan *plan, const struct space *space,
                      const struct candidate *cand, struct adp_error *err)
{
	const struct adp_cluster *cluster = space->cluster;
	uint32_t size = space->shapes[cand->unit.shape].slots->size;
	bool failed = false;

	plan->gpus = array(plan, cluster->n_types, sizeof *plan->gpus);
	if (!plan->gpus)
		return adp_nomem(err);
	plan->n_gpu_types = cluster->n_types;
	for (uint32_t t = 0; t < cluster->n_types; t++) {
		struct adp_plan_gpu *gpu = &plan->gpus[t];

		gpu->type = text(plan, cluster->types[t].name, &failed);
		gpu->alias = text(plan, cluster->types[t].alias, &failed);
		gpu->arch = text(plan, cluster->types[t].arch, &failed);
		gpu->memory_bytes = cluster->types[t].memory_bytes;
		gpu->usable_bytes = adp_usable_bytes(space->engine, &cluster->types[t]);
	}
	for (uint32_t n = 0; n < cluster->n_nodes; n++)
		plan->gpus[cluster->nodes[n].type].n_total += cluster->nodes[n].n_gpus;
	for (uint32_t g = 0; g < cand->comp.n_groups; g++)
		for (uint32_t s = 0; s < cand->comp.pp; s++)
			plan->gpus[space->types[cand->comp.group[g].stage_type[s]]].n_used +=
				cand->comp.group[g].n_replicas * size;
	return failed ? adp_nomem(err) : ADP_OK;
}

static int build_stages(struct adp_plan *plan, const struct candidate *cand,
                        const struct detail *detail, struct adp_error *err)
{
	uint32_t pp = cand->comp.pp, vpp = cand->unit.vpp, at = 0;
	uint32_t *first = array(plan, (size_t)pp * vpp, sizeof *first),
			 *n = array(plan, (size_t)pp * vpp, sizeof *n);

	plan->stages = array(plan, pp, sizeof *plan->stages);
	if (!first || !n || !plan->stages)
		return adp_nomem(err);
	for (uint32_t c = 0; c < vpp; c++)
		for (uint32_t s = 0; s < pp; s++) {
			n[s * vpp + c] = cand->n_layers[s] / vpp + (c < cand->n_layers[s] % vpp);
			first[s * vpp + c] = at;
			at += n[s * vpp + c];
		}
	for (uint32_t s = 0; s < pp; s++) {
		struct adp_plan_stage *stage = &plan->stages[s];

		stage->n_chunks = vpp;
		stage->first_layer = &first[s * vpp];
		stage->n_layers = &n[s * vpp];
		stage->embedding = s == 0;
		stage->head = s + 1 == pp;
		stage->recompute = (enum adp_recompute)cand->recompute[s];
		stage->memory = detail->memory[s];
		stage->usable_bytes = (uint64_t)detail->usable_bytes[s];
	}
	return ADP_OK;
}

static int build_pipes(struct adp_plan *plan, const struct candidate *cand,
                       const struct detail *detail, struct adp_error *err)
{
	uint32_t pp = cand->comp.pp;
	struct adp_plan_cell *cells = array(plan, (size_t)cand->n_kinds * pp, sizeof *cells);

	plan->pipes = array(plan, cand->n_kinds, sizeof *plan->pipes);
	if (!cells || !plan->pipes)
		return adp_nomem(err);
	plan->n_pipes = cand->n_kinds;
	memcpy(cells, detail->cells, (size_t)cand->n_kinds * pp * sizeof *cells);
	for (uint32_t i = 0; i < cand->n_kinds; i++)
		plan->pipes[i] = (struct adp_plan_pipe){.n_replicas = cand->kind[i].n_replicas,
		                                        .n_micro = cand->kind[i].n_micro,
		                                        .cells = &cells[i * pp],
		                                        .end_s = detail->end_s[i]};
	return ADP_OK;
}

/* GPUs in rank order gathered into runs of neighbours on a node, then nodes with the same GPUs
 * together. */
struct run_builder {
	struct adp_plan *plan;
	const struct space *space;
	struct adp_plan_run *runs;
	uint32_t n_runs, max_runs;
	uint32_t node, n_gpus, first_rank, next_rank;
	uint32_t gpus[4096];
	bool failed;
};

static void run_flush(struct run_builder *b)
{
	const struct adp_node *node = &b->space->cluster->nodes[b->node];
	struct adp_plan_run *last = b->n_runs ? &b->runs[b->n_runs - 1] : NULL;

	if (!b->n_gpus)
		return;
	if (last && last->gpu == node->type && last->gpus_per_node == b->n_gpus &&
	    memcmp(last->gpu_index, b->gpus, b->n_gpus * sizeof *b->gpus) == 0) {
		((const char **)(uintptr_t)last->nodes)[last->n_nodes++] = text(b->plan, node->name,
		                                                                &b->failed);
	} else {
		struct adp_plan_run *run;
		uint32_t *index = array(b->plan, b->n_gpus, sizeof *index);
		/* room for every node that may follow; runs are few */
		const char **names = array(b->plan, b->space->cluster->n_nodes + 1u, sizeof *names);

		if (b->n_runs == b->max_runs) {
			uint32_t max = b->max_runs * 2 + 16;
			struct adp_plan_run *grown = adp_reallocarray(b->runs, max, sizeof *grown);

			if (!grown) {
				b->failed = true;
				return;
			}
			b->runs = grown;
			b->max_runs = max;
		}
		if (!index || !names) {
			b->failed = true;
			return;
		}
		assert(b->runs);
		run = &b->runs[b->n_runs++];
		memcpy(index, b->gpus, b->n_gpus * sizeof *index);
		names[0] = text(b->plan, node->name, &b->failed);
		*run = (struct adp_plan_run){.first_rank = b->first_rank,
		                             .n_nodes = 1,
		                             .gpus_per_node = b->n_gpus,
		                             .nodes = names,
		                             .gpu_index = index,
		                             .gpu = node->type};
	}
	b->n_gpus = 0;
}

static void run_add(struct run_builder *b, const struct slot_gpu *gpu)
{
	if (b->n_gpus && (b->node != gpu->node || b->n_gpus == sizeof b->gpus / sizeof *b->gpus))
		run_flush(b);
	if (!b->n_gpus) {
		b->node = gpu->node;
		b->first_rank = b->next_rank;
	}
	b->gpus[b->n_gpus++] = gpu->gpu;
	b->next_rank++;
}

static int build_runs(struct adp_plan *plan, const struct space *space,
                      const struct candidate *cand, struct adp_error *err)
{
	struct run_builder *b = adp_calloc(1, sizeof *b);
	const struct slots *slots = space->shapes[cand->unit.shape].slots;
	uint32_t used[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_TYPES] = {
		{0}}; /* group, type: stages placed */
	int rc = ADP_OK;

	if (!b)
		return adp_nomem(err);
	b->plan = plan;
	b->space = space;
	for (uint32_t s = 0; s < cand->comp.pp; s++)
		for (uint32_t g = 0; g < cand->comp.n_groups; g++) {
			const struct replica_group *group = &cand->comp.group[g];
			uint32_t t = group->stage_type[s];
			const struct slot *slot =
				&slots->type[t].slots[group->first_slot[t] + used[g][t]++ * group->n_replicas];

			for (uint32_t r = 0; r < group->n_replicas; r++)
				for (uint32_t i = 0; i < slots->size; i++)
					run_add(b, &slots->gpus[slot[r].first_gpu + i]);
		}
	run_flush(b);
	plan->runs = array(plan, b->n_runs, sizeof *plan->runs);
	if (b->failed || !plan->runs) {
		rc = adp_nomem(err);
	} else {
		memcpy(plan->runs, b->runs, b->n_runs * sizeof *plan->runs);
		plan->n_runs = b->n_runs;
	}
	adp_free(b->runs);
	adp_free(b);
	return rc;
}

static int build_warnings(struct adp_plan *plan, const struct space *space, struct adp_error *err)
{
	const struct adp_cluster *cluster = space->cluster;
	const struct adp_model *model = space->model;
	bool failed = false;

	plan->warnings = array(plan, (size_t)cluster->n_warnings + model->n_notes,
	                       sizeof *plan->warnings);
	if (!plan->warnings)
		return adp_nomem(err);
	for (uint32_t i = 0; i < model->n_notes; i++)
		plan->warnings[plan->n_warnings++] = text(plan, model->notes[i], &failed);
	for (uint32_t i = 0; i < cluster->n_warnings; i++)
		plan->warnings[plan->n_warnings++] = text(plan, cluster->warnings[i], &failed);
	return failed ? adp_nomem(err) : ADP_OK;
}

void plan_count(struct adp_plan *plan, const struct adp_cluster *cluster,
                const struct counts *counts)
{
	double step_s = plan->step.step_s;

	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		plan->gpus[t].n_total = 0;
	for (uint32_t n = 0; n < cluster->n_nodes; n++)
		plan->gpus[cluster->nodes[n].type].n_total += cluster->nodes[n].n_gpus;
	plan->search.n_weighed = counts->weighed;
	plan->search.n_bounded = counts->bounded;
	plan->search.exhausted = !(counts->open_bound_s < step_s);
	plan->search.bound_s = fmin(counts->open_bound_s, step_s);
	plan->search.gap_frac = step_s / plan->search.bound_s - 1.0;
}

int plan_build(struct adp_plan **out, const struct space *space, struct evaluator *ev,
               const struct candidate *cand, struct adp_error *err)
{
	const struct adp_shape *shape = &space->shapes[cand->unit.shape].shape;
	struct adp_plan *plan = adp_plan_create();
	struct detail detail;
	uint64_t n_nodes = 0, n_gpus = (uint64_t)cand->comp.dp * cand->comp.pp * shape->tp * shape->cp;
	double unit = (double)space->engine->vocab_multiple * shape->tp;
	bool failed = false;
	int rc = plan ? candidate_detail(&detail, ev, cand, err) : adp_nomem(err);

	if (rc == ADP_OK)
		rc = build_model(plan, space->model, err);
	if (rc == ADP_OK)
		rc = build_gpus(plan, space, cand, err);
	if (rc == ADP_OK)
		rc = build_stages(plan, cand, &detail, err);
	if (rc == ADP_OK)
		rc = build_pipes(plan, cand, &detail, err);
	if (rc == ADP_OK)
		rc = build_runs(plan, space, cand, err);
	if (rc == ADP_OK)
		rc = build_warnings(plan, space, err);
	if (rc != ADP_OK) {
		adp_plan_destroy(plan);
		return rc;
	}
	plan->train = *space->train;
	plan->engine = text(plan, space->engine->name, &failed);
	plan->engine_version = text(plan, space->engine->version, &failed);
	plan->data_version = text(plan, adp_tables_version(space->tables), &failed);
	plan->cluster_name = text(plan, space->cluster->name, &failed);
	plan->cluster_digest = text(plan, space->cluster->digest, &failed);
	plan->dp = cand->comp.dp;
	plan->tp = shape->tp;
	plan->pp = cand->comp.pp;
	plan->vpp = cand->unit.vpp;
	plan->cp = shape->cp;
	plan->ep = shape->ep;
	plan->etp = shape->etp;
	plan->zero_stage = cand->unit.zero_stage;
	plan->shard_gpus = detail.shard_gpus;
	plan->sequence_parallel = shape->sequence_parallel;
	plan->flash = detail.flash;
	plan->micro_batch_seqs = shape->micro_batch_seqs;
	plan->padded_vocab = (uint64_t)(ceil((double)space->model->vocab / unit) * unit);
	plan->step = detail.step;
	for (uint32_t i = 0; i < plan->n_runs; i++)
		n_nodes += plan->runs[i].n_nodes;
	adp_train_time(&plan->time, space->train, plan->step.step_s, n_gpus, n_nodes,
	               detail.state_bytes);
	if (failed) {
		adp_plan_destroy(plan);
		return adp_nomem(err);
	}
	*out = plan;
	return ADP_OK;
}
