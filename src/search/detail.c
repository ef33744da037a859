/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "search/evaluator.h"

/* One micro-batch's time on a stage, by cause. */
struct causes {
	double total, tp, cp, ep, zero, rel_error;
};

static void add_item(struct causes *sum, const struct adp_item_time *t, double n, uint8_t recompute)
{
	double again = recompute == ADP_RECOMPUTE_FULL ? 3.0
	                                               : 2.0; /* passes over the same communication */
	double all = t->fwd_s + t->bwd_s + t->recompute_s[recompute];

	sum->tp += n * again * t->fwd_tp_s;
	sum->cp += n * again * t->fwd_cp_s;
	sum->ep += n * again * t->fwd_ep_s;
	sum->total += n * all;
	sum->rel_error += n * all * t->rel_error;
}

static void stage_causes(const struct evaluator *ev, struct causes *out,
                         const struct candidate *cand, uint32_t kind, uint32_t s)
{
	const struct shape_cost *sc = ev->sc;
	uint32_t cls = ev->cls[kind * ev->pp + s], first[ADP_SEARCH_MAX_CHUNKS + 1];
	struct split split;

	memset(out, 0, sizeof *out);
	memcpy(split.n_layers, cand->n_layers, sizeof split.n_layers);
	split_chunks(first, &split, ev->pp, ev->vpp);
	for (uint32_t c = 0; c < ev->vpp; c++) {
		uint32_t a = first[c * ev->pp + s], b = a + chunk_layers(cand->n_layers[s], ev->vpp, c);

		for (uint32_t k = 0; k < ev->n_blocks; k++) {
			const uint32_t *before = &ev->space->n_before[k * (ev->n_layers + 1)];

			add_item(out, &sc->block[cls * ev->n_blocks + k], before[b] - before[a],
			         cand->recompute[s]);
		}
	}
	if (s == 0)
		add_item(out, &sc->end[cls * N_END_KINDS + KIND_EMBEDDING], 1.0, 0);
	if (s + 1 == ev->pp)
		add_item(out, &sc->end[cls * N_END_KINDS + KIND_TAIL], 1.0, 0);
	out->rel_error = out->total > 0.0 ? out->rel_error / out->total : 0.0;
}

static int pipe_end(struct evaluator *ev, uint32_t n, struct adp_error *err)
{
	return adp_pipeline_end(ev->pipe_end, ev->stages, ev->pp, ev->vpp, n, ev->pipe_scratch, err);
}

/* Parts of the step on the replica and stage that end last. */
static int step_parts(struct adp_plan_step *step, struct evaluator *ev,
                      const struct candidate *cand, const struct split *split,
                      const struct share *share, uint32_t s, double end_s,
                      const struct stage_rest *rest, struct adp_error *err)
{
	const struct adp_engine *engine = ev->space->engine;
	const struct adp_train *train = ev->space->train;
	struct causes causes;
	uint32_t last =
		s; /* the exchange after it ends the step; the busiest stage tells where the time goes */
	double busy = 0.0, n = share->n_micro, no_sends_s, comm, last_bwd = 0.0, exchange, peak = 0.0,
		   error;
	int rc;

	split_stages(ev, split, share->kind);
	for (uint32_t c = 0; c < ev->vpp; c++) {
		last_bwd += ev->stages[c * ev->pp + last].bwd_s;
		for (uint32_t i = 0; i < ev->pp; i++)
			ev->stages[c * ev->pp + i].send_fwd_s = ev->stages[c * ev->pp + i].send_bwd_s = 0.0;
	}
	rc = pipe_end(ev, share->n_micro, err);
	if (rc != ADP_OK)
		return rc;
	no_sends_s = fmin(ev->pipe_end[last], end_s);
	/* of the stages that are done by then: a busier one that ends later has no part in it */
	for (uint32_t i = 0; i < ev->pp; i++) {
		double t = 0.0;

		for (uint32_t c = 0; c < ev->vpp; c++)
			t += ev->stages[c * ev->pp + i].fwd_s + ev->stages[c * ev->pp + i].bwd_s;
		if (t > busy && (i == last || n * t <= no_sends_s)) {
			busy = t;
			s = i;
		}
	}
	stage_causes(ev, &causes, cand, share->kind, s);
	exchange = rest->reduce_s + rest->gather_s;
	memset(step, 0, sizeof *step);
	/* a stage with little beside the ends has less communication backward than the passes of its
	 * blocks suggest */
	causes.tp = fmin(causes.tp, causes.total);
	causes.cp = fmin(causes.cp, causes.total - causes.tp);
	causes.ep = fmin(causes.ep, causes.total - causes.tp - causes.cp);
	step->tp_s = n * causes.tp;
	step->cp_s = n * causes.cp;
	step->ep_s = n * causes.ep;
	step->compute_s = n * (causes.total - causes.tp - causes.cp - causes.ep);
	step->p2p_s = end_s - no_sends_s;
	step->bubble_s = fmax(0.0, no_sends_s - n * busy);
	/* ZeRO's traffic inside the micro-batches is data-parallel traffic too */
	step->dp_s = fmax(0.0, n * (busy - causes.total)) + exchange -
	             fmin(exchange * engine->dp_overlap_frac, last_bwd) + ev->tied_s;
	step->optimizer_s = rest->optimizer_s;
	step->fixed_s = engine->step_fixed_s;
	step->step_s = step->compute_s + step->tp_s + step->cp_s + step->ep_s + step->p2p_s +
	               step->bubble_s + step->dp_s + step->optimizer_s + step->fixed_s;
	comm = step->tp_s + step->cp_s + step->ep_s + step->p2p_s + step->dp_s;
	error = (step->compute_s + step->bubble_s) * causes.rel_error +
	        (comm + step->optimizer_s + step->fixed_s) * engine->comm_rel_error;
	step->low_s = fmax(step->step_s - error, 0.0);
	step->high_s = step->step_s + error;
	step->tokens_per_s = (double)train->global_batch_seqs * (double)train->seq_tokens /
	                     step->step_s;
	for (uint32_t g = 0; g < cand->comp.n_groups; g++)
		for (uint32_t i = 0; i < ev->pp; i++)
			peak += (double)cand->comp.group[g].n_replicas * ev->sc->slots->size *
			        ev->space->cluster->types[ev->space->types[cand->comp.group[g].stage_type[i]]]
			            .peak_flops_per_s[train->precision];
	step->mfu_frac = 3.0 * adp_model_flops(ev->space->model, train->seq_tokens) *
	                 step->tokens_per_s / peak;
	return ADP_OK;
}

int candidate_detail(struct detail *out, struct evaluator *ev, const struct candidate *cand,
                     struct adp_error *err)
{
	const struct space *space = ev->space;
	struct split split;
	struct stage_rest rest[ADP_SEARCH_MAX_PIPE] = {0}, slowest_rest = {0};
	struct share slowest_share = {0};
	double worst = -1.0, slowest_end = 0.0, check;
	uint32_t slowest_stage = 0;
	bool legal;
	int rc = evaluator_open(ev, &cand->unit, &cand->comp, &legal, err);

	if (rc != ADP_OK)
		return rc;
	memcpy(split.n_layers, cand->n_layers, sizeof split.n_layers);
	if (!legal || !split_fit(ev, &split))
		return adp_fail(err, ADP_EINTERNAL, "search: the chosen plan does not stand a second look");
	check = split_step(ev, &split);
	if (!(fabs(check - cand->step_s) <= 1e-9 * check))
		return adp_fail(err, ADP_EINTERNAL, "search: the chosen plan took %.9g s, now %.9g s",
		                cand->step_s, check);
	for (uint32_t s = 0; s < ev->pp; s++)
		stage_rest(ev, &rest[s], &split, s);
	out->flash = true;
	for (uint32_t i = 0; i < ev->n_shares; i++) {
		const struct share *share = &ev->shares[i];

		split_stages(ev, &split, share->kind);
		rc = pipe_end(ev, share->n_micro, err);
		if (rc != ADP_OK)
			return rc;
		ev->detail_end[i] = 0.0;
		for (uint32_t s = 0; s < ev->pp; s++) {
			uint32_t cls = ev->cls[share->kind * ev->pp + s];
			struct adp_plan_cell *cell = &ev->detail_cells[i * ev->pp + s];
			double last_bwd = 0.0, exchange = rest[s].reduce_s + rest[s].gather_s, end;

			memset(cell, 0, sizeof *cell);
			cell->gpu = ev->sc->slots->classes[cls].type;
			cell->speed_frac = ev->sc->slots->classes[cls].speed_frac;
			cell->send_fwd_s = s + 1 < ev->pp || ev->vpp > 1
			                       ? ev->send_fwd[share->kind * ev->pp + s]
			                       : 0.0;
			cell->send_bwd_s = s > 0 || ev->vpp > 1 ? ev->send_bwd[share->kind * ev->pp + s] : 0.0;
			for (uint32_t c = 0; c < ev->vpp; c++) {
				cell->fwd_s += ev->stages[c * ev->pp + s].fwd_s;
				cell->bwd_s += ev->stages[c * ev->pp + s].bwd_s;
				last_bwd += ev->stages[c * ev->pp + s].bwd_s;
			}
			ev->detail_class[i * ev->pp + s] = cls;
			ev->detail_end[i] = fmax(ev->detail_end[i], ev->pipe_end[s]);
			out->flash = out->flash && ev->flash[s];
			end = ev->pipe_end[s] + exchange -
			      fmin(exchange * space->engine->dp_overlap_frac, last_bwd) + rest[s].optimizer_s;
			if (end > worst) {
				worst = end;
				slowest_share = *share;
				slowest_stage = s;
				slowest_end = ev->pipe_end[s];
				slowest_rest = rest[s];
			}
		}
	}
	rc = step_parts(&out->step, ev, cand, &split, &slowest_share, slowest_stage, slowest_end,
	                &slowest_rest, err);
	if (rc != ADP_OK)
		return rc;
	if (!(fabs(out->step.step_s - cand->step_s) <= 1e-6 * cand->step_s))
		return adp_fail(err, ADP_EINTERNAL,
		                "search: parts of the step add up to %.9g s, not %.9g s", out->step.step_s,
		                cand->step_s);
	for (uint32_t s = 0; s < ev->pp; s++) {
		uint16_t count[ADP_SEARCH_MAX_BLOCKS];
		uint32_t first[ADP_SEARCH_MAX_CHUNKS + 1];

		memset(count, 0, sizeof count);
		split_chunks(first, &split, ev->pp, ev->vpp);
		for (uint32_t c = 0; c < ev->vpp; c++)
			for (uint32_t k = 0; k < ev->n_blocks; k++) {
				const uint32_t *before = &space->n_before[k * (ev->n_layers + 1)];
				uint32_t a = first[c * ev->pp + s];

				count[k] = (uint16_t)(count[k] +
				                      before[a + chunk_layers(split.n_layers[s], ev->vpp, c)] -
				                      before[a]);
			}
		stage_bytes(ev, s, count, split.recompute[s], &ev->detail_memory[s]);
		ev->detail_usable[s] = ev->usable[s] / space->memory_scale;
	}
	out->memory = ev->detail_memory;
	out->usable_bytes = ev->detail_usable;
	out->cells = ev->detail_cells;
	out->end_s = ev->detail_end;
	out->slot_class = ev->detail_class;
	out->shard_gpus = ev->shard;
	out->state_bytes = (double)adp_model_params(space->model) *
	                       (space->train->precision <= ADP_PRECISION_TF32
	                            ? 4.0
	                            : space->engine->weight_bytes + space->engine->master_bytes) +
	                   (double)adp_model_params(space->model) *
	                       adp_optimizer_moment_bytes(space->train->optimizer);
	return ADP_OK;
}
