/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "search/explain.h"

/* What limits the step: where the time of the pipe that ends last goes. */

/* ---- links of an axis ---------------------------------------------------------------- */

static enum adp_link_kind pair_link(const struct adp_node *a, const struct adp_node *b)
{
	if (a == b)
		return a->gpu_link.kind;
	if (a->nvlink_domain == b->nvlink_domain)
		return ADP_LINK_NVLINK;
	if (a->rack == b->rack)
		return ADP_LINK_NIC;
	return a->spine == b->spine ? ADP_LINK_RACK : ADP_LINK_SPINE;
}

enum adp_link_kind why_axis_link(const struct why *w, uint32_t stride, uint32_t n, bool neighbours)
{
	uint32_t world = adp_plan_world(w->plan);
	enum adp_link_kind worst = ADP_LINK_NVLINK;

	for (uint32_t r = 0; r < world; r++) {
		uint32_t place = r / stride % n, other = neighbours ? r - stride : r - stride * place;
		enum adp_link_kind kind;

		if (place == 0)
			continue;
		kind = pair_link(&w->cluster->nodes[w->seats[r].node],
		                 &w->cluster->nodes[w->seats[other].node]);
		worst = kind > worst ? kind : worst;
	}
	return worst;
}

const char *why_link_words(enum adp_link_kind kind)
{
	static const char *const words[] = {
		[ADP_LINK_NVLINK] = "NVLink",
		[ADP_LINK_PCIE] = "PCIe",
		[ADP_LINK_NIC] = "the NICs",
		[ADP_LINK_RACK] = "the racks' uplinks",
		[ADP_LINK_SPINE] = "the spines' uplinks",
	};

	return words[kind];
}

/* ---- the sentence -------------------------------------------------------------------- */

struct cause {
	double seconds; /* of the step */
	const char *text;
};

static const char *on_link(struct why *w, const char *what, enum adp_link_kind kind)
{
	return adp_arena_printf(&w->scratch, "%s over %s", what, why_link_words(kind));
}

/* The pipe that ends last, and its busiest stage. */
static const struct adp_plan_pipe *slowest_pipe(const struct adp_plan *plan, uint32_t *stage)
{
	const struct adp_plan_pipe *pipe = &plan->pipes[0];
	double busiest = -1.0;

	for (uint32_t i = 1; i < plan->n_pipes; i++)
		if (plan->pipes[i].end_s > pipe->end_s)
			pipe = &plan->pipes[i];
	*stage = 0;
	for (uint32_t s = 0; s < plan->pp; s++)
		if (pipe->cells[s].fwd_s + pipe->cells[s].bwd_s > busiest) {
			busiest = pipe->cells[s].fwd_s + pipe->cells[s].bwd_s;
			*stage = s;
		}
	return pipe;
}

static const char *compute_words(struct why *w, const struct adp_plan_pipe *pipe, uint32_t stage)
{
	const struct adp_plan_cell *cell = &pipe->cells[stage];
	char speed[32] = "", where[32] = "";

	if (cell->speed_frac < 0.975)
		snprintf(speed, sizeof speed, " at %.0f %% of its speed", 100.0 * cell->speed_frac);
	if (w->plan->pp > 1)
		snprintf(where, sizeof where, ", stage %u", stage);
	return adp_arena_printf(&w->scratch, "compute of %s%s%s", why_label(w, cell->gpu), speed,
	                        where);
}

static const char *bubble_words(struct why *w, const struct adp_plan_pipe *pipe)
{
	bool few = pipe->n_micro < 4 * w->plan->pp;

	return adp_arena_printf(&w->scratch, "%s: %u micro-batch%s of a replica for %u stages",
	                        few ? "too few micro-batches to fill the pipeline"
	                            : "the pipeline's bubble",
	                        pipe->n_micro, pipe->n_micro == 1 ? "" : "es", w->plan->pp);
}

/* Gradients meet over the data- and context-parallel ranks of a stage, those of a tied embedding
 * over its two ends. */
static const char *gradient_words(struct why *w)
{
	const struct adp_plan *plan = w->plan;
	uint32_t stage_ranks = plan->tp * plan->cp * plan->dp;

	if (plan->dp * plan->cp == 1 && plan->pp > 1)
		return on_link(w,
		               "the exchange of the tied embedding's gradient between first and last stage",
		               pair_link(&w->cluster->nodes[w->seats[0].node],
		                         &w->cluster->nodes[w->seats[stage_ranks * (plan->pp - 1)].node]));
	return on_link(w, "data-parallel traffic",
	               why_axis_link(w, plan->tp, plan->cp * plan->dp, false));
}

int why_binding(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	const struct adp_plan_step *step = &plan->step;
	uint32_t stage, group = plan->tp * plan->cp;
	const struct adp_plan_pipe *pipe = slowest_pipe(plan, &stage);
	const struct cause causes[] = {
		{step->compute_s, compute_words(w, pipe, stage)},
		{step->bubble_s, bubble_words(w, pipe)},
		{step->tp_s, on_link(w, "tensor-parallel traffic", why_axis_link(w, 1, plan->tp, false))},
		{step->cp_s,
	     on_link(w, "context-parallel traffic", why_axis_link(w, plan->tp, plan->cp, false))},
		{step->ep_s,
	     on_link(w, "expert-parallel traffic", why_axis_link(w, plan->etp, plan->ep, false))},
		{step->p2p_s,
	     on_link(w, "sends between stages", why_axis_link(w, group * plan->dp, plan->pp, true))},
		{step->dp_s, gradient_words(w)},
		{step->optimizer_s, "the optimizer's step"},
		{step->fixed_s, "the engine's fixed time per step"},
		{w->roomy_s > 0.0 ? step->step_s - w->roomy_s : 0.0,
	     w->full_type ? adp_arena_printf(&w->scratch, "memory of %s", w->full_type) : ""},
	};
	size_t n = sizeof causes / sizeof *causes, first = 0, second = n;
	char next[256] = "";

	for (size_t i = 0; i < n; i++)
		if (!causes[i].text)
			return adp_nomem(err);
	for (size_t i = 1; i < n; i++)
		if (causes[i].seconds > causes[first].seconds)
			first = i;
	for (size_t i = 0; i < n; i++)
		if (i != first && (second == n || causes[i].seconds > causes[second].seconds))
			second = i;
	if (causes[second].seconds >= 0.03 * step->step_s)
		snprintf(next, sizeof next, "; then %s (%.0f %%)", causes[second].text,
		         100.0 * causes[second].seconds / step->step_s);
	w->plan->binding = adp_arena_printf(&w->plan->arena, "%s (%.0f %% of the step)%s",
	                                    causes[first].text,
	                                    100.0 * causes[first].seconds / step->step_s, next);
	return w->plan->binding ? ADP_OK : adp_nomem(err);
}
