/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <string.h>

#include "adp/arena.h"

static int check_run(const struct adp_plan *plan, uint32_t index, uint32_t expected_rank,
                     uint32_t *next_rank, struct adp_error *err)
{
	const struct adp_plan_run *run = &plan->runs[index];
	uint64_t n = (uint64_t)run->n_nodes * run->gpus_per_node;

	if (run->first_rank != expected_rank || n == 0)
		return adp_fail(err, ADP_EINVAL,
		                "ranks[%u]: starts at rank %u with %u x %u GPUs, expected rank %u; "
		                "the plan is damaged, make it again with adp plan",
		                index, run->first_rank, run->n_nodes, run->gpus_per_node, expected_rank);
	if (n > UINT32_MAX - expected_rank)
		return adp_fail(err, ADP_ELIMIT, "ranks[%u]: more than %u ranks", index, UINT32_MAX);
	if (run->gpu >= plan->n_gpu_types)
		return adp_fail(err, ADP_EINVAL, "ranks[%u]: GPU type %u of %u", index, run->gpu,
		                plan->n_gpu_types);
	*next_rank = expected_rank + (uint32_t)n;
	return ADP_OK;
}

static bool in_order(const struct emit_agent *agent)
{
	for (uint32_t i = 0; i < agent->n_procs; i++)
		if (agent->gpu_index[i] != i)
			return false;
	return true;
}

static int append_gpus(struct emit_agent *agent, const struct adp_plan_run *run,
                       struct adp_arena *arena, struct adp_error *err)
{
	uint32_t n = agent->n_procs + run->gpus_per_node;
	uint32_t *both = adp_arena_calloc(arena, n, sizeof *both);

	if (!both)
		return adp_nomem(err);
	memcpy(both, agent->gpu_index, agent->n_procs * sizeof *both);
	memcpy(both + agent->n_procs, run->gpu_index, run->gpus_per_node * sizeof *both);
	agent->gpu_index = both;
	agent->n_procs = n;
	return ADP_OK;
}

/*
 * A group may span nodes only where no node could hold it: all its agents are then smaller than the
 * group (one NVLink domain over several nodes). Else its heaviest traffic would cross the network
 * for nothing.
 */
static int check_tensor_groups(const struct adp_plan *plan, const struct emit_agent *agents,
                               uint32_t n, struct adp_error *err)
{
	uint32_t tp = plan->tp;

	for (uint32_t i = 0; i < n; i++) {
		const struct emit_agent *a = &agents[i];
		uint32_t end = a->first_rank + a->n_procs;
		uint32_t torn = a->first_rank % tp ? a->first_rank / tp : end % tp ? end / tp : UINT32_MAX;
		char node[128];

		if (torn == UINT32_MAX || (tp % a->n_procs == 0 && a->first_rank % a->n_procs == 0))
			continue;
		return adp_fail(err, ADP_EINVAL,
		                "tensor-parallel group of ranks %u to %u is torn: only a part of it lies "
		                "on node '%s' (ranks %u to %u); plan again with --tp %u or lower, or "
		                "exclude the nodes with "
		                "an odd number of GPUs",
		                torn * tp, torn * tp + tp - 1, emit_show(node, sizeof node, a->node),
		                a->first_rank, end - 1, tp > 1 ? tp / 2 : 1);
	}
	return ADP_OK;
}

int emit_agents(struct emit_agent **out, uint32_t *n_out, const struct adp_plan *plan,
                struct adp_arena *arena, struct adp_error *err)
{
	uint64_t n_max = 0;
	uint32_t rank = 0, n = 0;
	struct emit_agent *agents;
	int rc;

	for (uint32_t r = 0; r < plan->n_runs; r++) {
		rc = check_run(plan, r, rank, &rank, err);
		if (rc)
			return rc;
		n_max += plan->runs[r].n_nodes;
	}
	if (rank != adp_plan_world(plan) || rank == 0)
		return adp_fail(err, ADP_EINVAL,
		                "ranks: %u ranks, but the degrees make %u; the plan is damaged, make it "
		                "again with adp plan",
		                rank, adp_plan_world(plan));
	agents = adp_arena_calloc(arena, n_max, sizeof *agents);
	if (!agents)
		return adp_nomem(err);

	rank = 0;
	for (uint32_t r = 0; r < plan->n_runs; r++) {
		const struct adp_plan_run *run = &plan->runs[r];

		for (uint32_t i = 0; i < run->n_nodes; i++) {
			struct emit_agent *last = n > 0 ? &agents[n - 1] : NULL;

			if (!run->nodes[i] || run->nodes[i][0] == '\0')
				return adp_fail(err, ADP_EINVAL, "ranks[%u]: node %u has no name", r, i);
			if (last && last->gpu == run->gpu && strcmp(last->node, run->nodes[i]) == 0) {
				rc = append_gpus(last, run, arena, err);
				if (rc)
					return rc;
			} else {
				agents[n++] = (struct emit_agent){
					.node = run->nodes[i],
					.first_rank = rank,
					.n_procs = run->gpus_per_node,
					.gpu = run->gpu,
					.gpu_index = run->gpu_index,
				};
			}
			rank += run->gpus_per_node;
		}
	}
	for (uint32_t i = 0; i < n; i++)
		agents[i].gpus_in_order = in_order(&agents[i]);
	rc = check_tensor_groups(plan, agents, n, err);
	if (rc)
		return rc;
	*out = agents;
	*n_out = n;
	return ADP_OK;
}
