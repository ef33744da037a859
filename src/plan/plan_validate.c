/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define REFUSE(...) adp_fail(err, ADP_EINVAL, "plan: " __VA_ARGS__)

static bool is_time(double value)
{
	return isfinite(value) && value >= 0;
}

static int check_degrees(const struct adp_plan *plan, struct adp_error *err)
{
	const struct {
		const char *name;
		uint64_t value;
	} least_one[] = {
		{"dataParallel", plan->dp},
		{"tensorParallel", plan->tp},
		{"pipelineParallel", plan->pp},
		{"virtualPipelineParallel", plan->vpp},
		{"contextParallel", plan->cp},
		{"expertParallel", plan->ep},
		{"expertTensorParallel", plan->etp},
		{"shardGpus", plan->shard_gpus},
		{"microBatchSeqs", plan->micro_batch_seqs},
		{"globalBatchSeqs", plan->train.global_batch_seqs},
		{"seqTokens", plan->train.seq_tokens},
	};
	const uint64_t replica_gpus = (uint64_t)plan->tp * plan->cp; /* of one stage */

	for (size_t i = 0; i < sizeof least_one / sizeof *least_one; i++)
		if (!least_one[i].value)
			return REFUSE("%s is 0, must be at least 1", least_one[i].name);
	if (!adp_plan_world(plan))
		return REFUSE("the degrees multiply to more than %" PRIu32 " ranks", UINT32_MAX);
	if (replica_gpus * plan->dp % ((uint64_t)plan->etp * plan->ep))
		return REFUSE("expert tensor parallel %" PRIu32 " x expert parallel %" PRIu32
		              " does not divide the %" PRIu64 " ranks of a stage",
		              plan->etp, plan->ep, replica_gpus * plan->dp);
	if (plan->ep > 1 && (!plan->model.n_experts || plan->model.n_experts % plan->ep))
		return REFUSE("expert parallel %" PRIu32 " does not divide the model's %" PRIu32 " experts",
		              plan->ep, plan->model.n_experts);
	if ((uint64_t)plan->dp * plan->cp % plan->shard_gpus)
		return REFUSE("a ZeRO group of %" PRIu32
		              " does not divide data x context parallel = %" PRIu64,
		              plan->shard_gpus, (uint64_t)plan->dp * plan->cp);
	if (plan->zero_stage > 3)
		return REFUSE("ZeRO stage %" PRIu32 " does not exist (0 .. 3)", plan->zero_stage);
	if (plan->vpp > 1 && plan->pp == 1)
		return REFUSE("virtual pipeline %" PRIu32 " without a pipeline", plan->vpp);
	if (plan->padded_vocab < plan->model.vocab)
		return REFUSE("the padded vocabulary %" PRIu64 " is smaller than the vocabulary %" PRIu64,
		              plan->padded_vocab, plan->model.vocab);
	return ADP_OK;
}

/* Virtual stage v of rank s is position v * pp + s of the model. */
static int check_layers(const struct adp_plan *plan, struct adp_error *err)
{
	uint64_t next = 0;

	for (uint32_t s = 0; s < plan->pp; s++) {
		const struct adp_plan_stage *stage = &plan->stages[s];

		if (stage->n_chunks != plan->vpp)
			return REFUSE("stage %" PRIu32 " has %" PRIu32 " chunks, virtual pipeline is %" PRIu32,
			              s, stage->n_chunks, plan->vpp);
		if (stage->embedding != (s == 0))
			return REFUSE("the embedding belongs on stage 0 alone; stage %" PRIu32 " says %s", s,
			              stage->embedding ? "it has it" : "it has none");
		if (stage->head != (s == plan->pp - 1))
			return REFUSE("the head belongs on the last stage, %" PRIu32 ", alone; stage %" PRIu32
			              " says %s",
			              plan->pp - 1, s, stage->head ? "it has it" : "it has none");
		if ((unsigned)stage->recompute >= ADP_N_RECOMPUTE)
			return REFUSE("stage %" PRIu32 " has an unknown recomputation", s);
	}
	for (uint32_t v = 0; v < plan->vpp; v++)
		for (uint32_t s = 0; s < plan->pp; s++) {
			const struct adp_plan_stage *stage = &plan->stages[s];

			if (stage->first_layer[v] != next)
				return REFUSE("stage %" PRIu32 " chunk %" PRIu32 " starts at layer %" PRIu32
				              ", but %" PRIu64 " comes next",
				              s, v, stage->first_layer[v], next);
			next += stage->n_layers[v];
		}
	if (next != plan->model.n_layers)
		return REFUSE("the stages hold %" PRIu64 " layers, the model has %" PRIu32, next,
		              plan->model.n_layers);
	return ADP_OK;
}

static double memory_sum(const struct adp_memory *m)
{
	return (double)m->weights + (double)m->gradients + (double)m->optimizer +
	       (double)m->activations + (double)m->live_window + (double)m->buckets +
	       (double)m->logits + (double)m->workspace + (double)m->context;
}

static int check_memory(const struct adp_plan *plan, struct adp_error *err)
{
	for (uint32_t s = 0; s < plan->pp; s++) {
		const struct adp_plan_stage *stage = &plan->stages[s];
		const struct adp_memory *m = &stage->memory;
		uint64_t smallest = UINT64_MAX;

		for (uint32_t p = 0; p < plan->n_pipes; p++) {
			const uint64_t usable = plan->gpus[plan->pipes[p].cells[s].gpu].usable_bytes;

			if (usable < smallest)
				smallest = usable;
		}
		if (stage->usable_bytes != smallest)
			return REFUSE("stage %" PRIu32 " says %" PRIu64
			              " usable bytes, its smallest GPU has %" PRIu64,
			              s, stage->usable_bytes, smallest);
		if (m->peak_bytes !=
		    (m->init_peak_bytes > m->steady_peak_bytes ? m->init_peak_bytes : m->steady_peak_bytes))
			return REFUSE("stage %" PRIu32 ": the memory peak %" PRIu64
			              " is not the larger of the peaks at initialisation and in steady state",
			              s, m->peak_bytes);
		if (fabs(memory_sum(m) - (double)m->steady_peak_bytes) > 1e-6 * memory_sum(m))
			return REFUSE("stage %" PRIu32
			              ": the kinds of memory add up to %.0f bytes, the steady peak "
			              "is %" PRIu64,
			              s, memory_sum(m), m->steady_peak_bytes);
		if (m->peak_bytes > stage->usable_bytes)
			return REFUSE("stage %" PRIu32 " needs %" PRIu64 " bytes of a GPU, %" PRIu64
			              " are usable",
			              s, m->peak_bytes, stage->usable_bytes);
	}
	return ADP_OK;
}

static int check_cell(const struct adp_plan *plan, uint32_t p, uint32_t s, struct adp_error *err)
{
	const struct adp_plan_cell *cell = &plan->pipes[p].cells[s];

	if (cell->gpu >= plan->n_gpu_types)
		return REFUSE("replica group %" PRIu32 " stage %" PRIu32
		              " names a GPU type that is not listed",
		              p, s);
	if (!(cell->speed_frac > 0 && cell->speed_frac <= 1))
		return REFUSE("replica group %" PRIu32 " stage %" PRIu32
		              " has relative speed %g (0 < speed <= 1)",
		              p, s, cell->speed_frac);
	if (!is_time(cell->fwd_s) || !is_time(cell->bwd_s) || !is_time(cell->send_fwd_s) ||
	    !is_time(cell->send_bwd_s))
		return REFUSE("replica group %" PRIu32 " stage %" PRIu32 " has a time that is not one", p,
		              s);
	return ADP_OK;
}

static int check_pipes(const struct adp_plan *plan, struct adp_error *err)
{
	uint64_t replicas = 0;
	uint64_t left = plan->train.global_batch_seqs /
	                plan->micro_batch_seqs; /* micro-batches to hand out */

	for (uint32_t p = 0; p < plan->n_pipes; p++) {
		const struct adp_plan_pipe *pipe = &plan->pipes[p];

		if (!pipe->n_replicas || !pipe->n_micro)
			return REFUSE("replica group %" PRIu32 " has %" PRIu32 " replicas of %" PRIu32
			              " micro-batches",
			              p, pipe->n_replicas, pipe->n_micro);
		if (plan->vpp > 1 && pipe->n_micro % plan->pp)
			return REFUSE("replica group %" PRIu32 " runs %" PRIu32
			              " micro-batches; an interleaved schedule needs a multiple of %" PRIu32
			              " stages",
			              p, pipe->n_micro, plan->pp);
		if (plan->zero_stage >= 2 && pipe->n_micro != plan->pipes[0].n_micro)
			return REFUSE(
				"ZeRO stage %" PRIu32
				" gathers in step: each replica must run the same number of micro-batches",
				plan->zero_stage);
		if (!is_time(pipe->end_s))
			return REFUSE("replica group %" PRIu32 " ends at a time that is not one", p);
		for (uint32_t s = 0; s < plan->pp; s++) {
			const int rc = check_cell(plan, p, s, err);

			if (rc)
				return rc;
		}
		replicas += pipe->n_replicas;
		if ((uint64_t)pipe->n_replicas * pipe->n_micro > left)
			return REFUSE("the replicas run more micro-batches of %" PRIu64
			              " than the global batch %" PRIu64 " has",
			              plan->micro_batch_seqs, plan->train.global_batch_seqs);
		left -= (uint64_t)pipe->n_replicas * pipe->n_micro;
	}
	if (left || plan->train.global_batch_seqs % plan->micro_batch_seqs)
		return REFUSE(
			"the replicas leave %" PRIu64 " of the global batch's %" PRIu64 " sequences undone",
			left * plan->micro_batch_seqs + plan->train.global_batch_seqs % plan->micro_batch_seqs,
			plan->train.global_batch_seqs);
	if (replicas != plan->dp)
		return REFUSE("the replica groups hold %" PRIu64 " replicas, data parallel is %" PRIu32,
		              replicas, plan->dp);
	return ADP_OK;
}

static int check_gpus(const struct adp_plan *plan, struct adp_error *err)
{
	for (uint32_t g = 0; g < plan->n_gpu_types; g++) {
		const struct adp_plan_gpu *gpu = &plan->gpus[g];
		uint64_t used = 0;

		if (!gpu->type || !*gpu->type)
			return REFUSE("GPU type %" PRIu32 " has no name", g);
		for (uint32_t other = 0; other < g; other++)
			if (!strcmp(gpu->type, plan->gpus[other].type))
				return REFUSE("GPU type %s is listed twice", gpu->type);
		if (gpu->usable_bytes > gpu->memory_bytes)
			return REFUSE("%s: %" PRIu64 " bytes usable of %" PRIu64, gpu->type, gpu->usable_bytes,
			              gpu->memory_bytes);
		for (uint32_t r = 0; r < plan->n_runs; r++)
			if (plan->runs[r].gpu == g)
				used += (uint64_t)plan->runs[r].n_nodes * plan->runs[r].gpus_per_node;
		if (used != gpu->n_used)
			return REFUSE("%s: %" PRIu32 " GPUs used, but the ranks take %" PRIu64, gpu->type,
			              gpu->n_used, used);
		if (gpu->n_used > gpu->n_total)
			return REFUSE("%s: %" PRIu32 " GPUs used of %" PRIu32, gpu->type, gpu->n_used,
			              gpu->n_total);
	}
	return ADP_OK;
}

struct place {
	const char *node;
	uint32_t index, gpu;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	const int names = strcmp(x->node, y->node);

	if (names)
		return names;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int check_places(const struct adp_plan *plan, struct adp_error *err)
{
	const uint32_t world = adp_plan_world(plan);
	struct place *places = adp_reallocarray(NULL, world, sizeof *places);
	size_t n = 0;
	int rc = ADP_OK;

	if (!places)
		return adp_nomem(err);
	for (uint32_t r = 0; r < plan->n_runs; r++)
		for (uint32_t i = 0; i < plan->runs[r].n_nodes; i++)
			for (uint32_t k = 0; k < plan->runs[r].gpus_per_node; k++)
				places[n++] = (struct place){plan->runs[r].nodes[i], plan->runs[r].gpu_index[k],
				                             plan->runs[r].gpu};
	qsort(places, n, sizeof *places, compare_places);
	for (size_t i = 1; i < n && !rc; i++) {
		if (strcmp(places[i].node, places[i - 1].node))
			continue;
		if (places[i].index == places[i - 1].index)
			rc = REFUSE("GPU %" PRIu32 " of node %s is used by two ranks", places[i].index,
			            places[i].node);
		else if (places[i].gpu != places[i - 1].gpu)
			rc = REFUSE("node %s is listed with two GPU types", places[i].node);
	}
	adp_free(places);
	return rc;
}

static int check_runs(const struct adp_plan *plan, struct adp_error *err)
{
	const uint32_t world = adp_plan_world(plan);
	uint64_t next = 0;

	for (uint32_t r = 0; r < plan->n_runs; r++) {
		const struct adp_plan_run *run = &plan->runs[r];

		if (run->first_rank != next)
			return REFUSE("ranks: run %" PRIu32 " starts at rank %" PRIu32 ", but %" PRIu64
			              " comes next",
			              r, run->first_rank, next);
		if (!run->n_nodes || !run->gpus_per_node)
			return REFUSE("ranks: run %" PRIu32 " is empty", r);
		if (run->gpu >= plan->n_gpu_types)
			return REFUSE("ranks: run %" PRIu32 " names a GPU type that is not listed", r);
		next += (uint64_t)run->n_nodes * run->gpus_per_node;
		if (next > world)
			break;
	}
	if (next != world)
		return REFUSE("the ranks hold %s%" PRIu64 " GPUs, the degrees multiply to %" PRIu32,
		              next > world ? "at least " : "", next, world);
	for (uint32_t r = 0; r < plan->n_runs; r++)
		for (uint32_t i = 0; i < plan->runs[r].n_nodes; i++)
			if (!plan->runs[r].nodes[i] || !*plan->runs[r].nodes[i])
				return REFUSE("ranks: run %" PRIu32 " has a node without a name", r);
	return check_places(plan, err);
}

/* Rank order is tp, cp, dp, pp: stage s of the replicas of one pipe is one interval of ranks. */
static int check_types(const struct adp_plan *plan, struct adp_error *err)
{
	const uint64_t replica_gpus = (uint64_t)plan->tp * plan->cp;
	uint64_t start = 0, run_end = 0;
	uint32_t run = 0;

	for (uint32_t s = 0; s < plan->pp; s++)
		for (uint32_t p = 0; p < plan->n_pipes; p++) {
			const uint64_t end = start + plan->pipes[p].n_replicas * replica_gpus;
			const uint32_t gpu = plan->pipes[p].cells[s].gpu;

			for (uint64_t rank = start; rank < end; rank = run_end < end ? run_end : end) {
				while (run_end <= rank) {
					run_end += (uint64_t)plan->runs[run].n_nodes * plan->runs[run].gpus_per_node;
					run++;
				}
				if (plan->runs[run - 1].gpu != gpu)
					return REFUSE("rank %" PRIu64 " is a %s, but stage %" PRIu32
					              " of replica group %" PRIu32 " is said to run on %s",
					              rank, plan->gpus[plan->runs[run - 1].gpu].type, s, p,
					              plan->gpus[gpu].type);
			}
			start = end;
		}
	return ADP_OK;
}

static int check_step(const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_step *step = &plan->step;
	const double tokens = (double)plan->train.global_batch_seqs * (double)plan->train.seq_tokens;
	const double parts[] = {step->compute_s, step->tp_s,        step->cp_s,
	                        step->ep_s,      step->p2p_s,       step->bubble_s,
	                        step->dp_s,      step->optimizer_s, step->fixed_s};
	double sum = 0;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (!is_time(parts[i]))
			return REFUSE("a part of the step is not a time: %g s", parts[i]);
		sum += parts[i];
	}
	if (!is_time(step->step_s) || step->step_s <= 0)
		return REFUSE("the step takes %g s", step->step_s);
	if (fabs(sum - step->step_s) > 1e-6 * step->step_s)
		return REFUSE("the parts of the step add up to %.9g s, the step takes %.9g s", sum,
		              step->step_s);
	if (!(step->low_s >= 0 && step->low_s <= step->step_s && step->step_s <= step->high_s &&
	      isfinite(step->high_s)))
		return REFUSE("the step %g s lies outside its band %g .. %g s", step->step_s, step->low_s,
		              step->high_s);
	if (!is_time(step->tokens_per_s) || !(step->mfu_frac >= 0 && step->mfu_frac <= 1))
		return REFUSE("%g tokens/s at an MFU of %g is no prediction", step->tokens_per_s,
		              step->mfu_frac);
	if (fabs(step->tokens_per_s * step->step_s - tokens) > 1e-6 * tokens)
		return REFUSE("%.9g tokens/s, but a step of %.9g s takes %.9g tokens", step->tokens_per_s,
		              step->step_s, tokens);
	for (uint32_t p = 0; p < plan->n_pipes; p++)
		if (plan->pipes[p].end_s > step->step_s * (1 + 1e-6))
			return REFUSE("replica group %" PRIu32 " ends after %.9g s, the step after %.9g s", p,
			              plan->pipes[p].end_s, step->step_s);
	return ADP_OK;
}

/* Infinite: a job that never ends. */
static int check_time(const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_train_time *t = &plan->time;
	const double parts[] = {t->compute_s, t->checkpoints_s, t->lost_work_s, t->restarts_s};
	const double others[] = {
		t->n_steps,    t->step_s, t->checkpoint_interval_s, t->checkpoint_stall_s, t->n_checkpoints,
		t->n_failures, t->total_s};
	double sum = 0;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (!(parts[i] >= 0))
			return REFUSE("a part of the time to train is not a time: %g s", parts[i]);
		sum += parts[i];
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (!(others[i] >= 0))
			return REFUSE("a figure of the time to train is not one: %g", others[i]);
	if (isfinite(t->total_s) && fabs(sum - t->total_s) > 1e-6 * t->total_s)
		return REFUSE("the parts of the time to train add up to %.9g s, the whole is %.9g s", sum,
		              t->total_s);
	return ADP_OK;
}

static int check_search(const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_search *s = &plan->search;
	const double step_s = plan->step.step_s;

	if (!is_time(s->bound_s) || s->bound_s > step_s * (1 + 1e-6))
		return REFUSE("no step is shorter than %.9g s, but this one takes %.9g s", s->bound_s,
		              step_s);
	if (s->bound_s > 0 && fabs(step_s / s->bound_s - 1 - s->gap_frac) > 1e-6 * step_s / s->bound_s)
		return REFUSE("the gap is %.9g, but %.9g s are %.9g more than the bound of %.9g s",
		              s->gap_frac, step_s, step_s / s->bound_s - 1, s->bound_s);
	return ADP_OK;
}

int adp_plan_validate(const struct adp_plan *plan, struct adp_error *err)
{
	/* Each check may rely on those before it. */
	static int (*const checks[])(const struct adp_plan *, struct adp_error *) = {
		check_degrees, check_layers, check_pipes, check_memory, check_runs,
		check_gpus,    check_types,  check_step,  check_time,   check_search,
	};

	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
		const int rc = checks[i](plan, err);

		if (rc)
			return rc;
	}
	return ADP_OK;
}
