/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "search/split_bound.h"

/* Recurrence operations and steps of the descent that may go into one composition's splits beyond
 * the min-max partition, for each unit of effort. */
static const double split_budget_ops = 400e3, split_budget_nodes = 100e3;

/* ---- min-max partition ------------------------------------------------------------------ */

static bool stage_ok(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, double limit,
                     uint8_t *recompute)
{
	uint8_t first = ev->recompute_order[0];

	/* the cheap test first */
	return stage_step(ev, s, a, b, first) <= limit && stage_recompute(ev, s, a, b, recompute) &&
	       (*recompute == first || stage_step(ev, s, a, b, *recompute) <= limit);
}

/* Most layers that stage s may take from layer a on, by the needs of the stages after it. */
static uint32_t stage_most(const struct evaluator *ev, uint32_t s, uint32_t a)
{
	uint32_t after = s + 1 < ev->pp ? ev->pp - s - 2 : 0, left = ev->n_layers - a;

	return left > after ? left - after : 0;
}

/*
 * The longest prefix for each stage in turn. All limits are monotone in the set of layers, so if
 * any contiguous split keeps every load within the limit, this one does. "All on the first stage,
 * none on the last" is fine: ends may be empty.
 */
static bool greedy(struct evaluator *ev, double limit, struct split *split)
{
	uint32_t a = 0;

	for (uint32_t s = 0; s < ev->pp; s++) {
		uint32_t lo = stage_least(ev, s), hi = stage_most(ev, s, a);
		uint8_t recompute;

		if (s + 1 == ev->pp)
			lo = hi = ev->n_layers - a;
		if (lo > hi || !stage_ok(ev, s, a, a + lo, limit, &split->recompute[s]))
			return false;
		while (lo < hi) {
			uint32_t mid = lo + (hi - lo + 1) / 2;

			if (stage_ok(ev, s, a, a + mid, limit, &recompute)) {
				lo = mid;
				split->recompute[s] = recompute;
			} else {
				hi = mid - 1;
			}
		}
		split->n_layers[s] = lo;
		a += lo;
	}
	return true;
}

/* ---- candidates ----------------------------------------------------------------------- */

bool candidate_better(const struct candidate *a, const struct candidate *b)
{
	double margin = 1e-12 * fmin(a->step_s, b->step_s);

	if (!isfinite(b->step_s) || !isfinite(a->step_s))
		return a->step_s < b->step_s;
	if (fabs(a->step_s - b->step_s) > margin)
		return a->step_s < b->step_s;
	if (a->n_gpus != b->n_gpus)
		return a->n_gpus < b->n_gpus;
	if (a->comp.pp != b->comp.pp)
		return a->comp.pp < b->comp.pp;
	/* shapes stand in rising order of tensor, then context, then expert parallelism */
	if (a->unit.shape != b->unit.shape)
		return a->unit.shape < b->unit.shape;
	if (a->unit.zero_stage != b->unit.zero_stage)
		return a->unit.zero_stage < b->unit.zero_stage;
	if (a->unit.vpp != b->unit.vpp)
		return a->unit.vpp < b->unit.vpp;
	if (a->unit.recompute != b->unit.recompute)
		return a->unit.recompute < b->unit.recompute;
	for (uint32_t s = 0; s < a->comp.pp; s++) {
		if (a->comp.group[0].stage_type[s] != b->comp.group[0].stage_type[s])
			return a->comp.group[0].stage_type[s] < b->comp.group[0].stage_type[s];
		if (a->n_layers[s] != b->n_layers[s])
			return a->n_layers[s] > b->n_layers[s];
	}
	return false;
}

static void weigh(struct candidate *best, struct counts *counts, struct evaluator *ev,
                  const struct split *split, double *step_s)
{
	struct candidate c;

	*step_s = split_step(ev, split);
	counts->weighed++;
	counts->work += 1.0;
	if (*step_s > best->step_s * (1.0 + 1e-12))
		return;
	memset(&c, 0, sizeof c);
	c.step_s = *step_s;
	c.unit = *ev->unit;
	c.comp = *ev->comp;
	c.n_gpus = ev->comp->dp * ev->comp->pp * ev->sc->slots->size;
	memcpy(c.n_layers, split->n_layers, sizeof c.n_layers);
	memcpy(c.recompute, split->recompute, sizeof c.recompute);
	c.n_kinds = ev->n_shares;
	for (uint32_t i = 0; i < ev->n_shares; i++) {
		c.kind[i].n_replicas = ev->shares[i].n_replicas;
		c.kind[i].n_micro = ev->shares[i].n_micro;
		c.kind[i].group = ev->kinds[ev->shares[i].kind].group;
		c.kind[i].first_replica = ev->shares[i].first_replica;
	}
	if (candidate_better(&c, best))
		*best = c;
}

/* ---- all splits within a budget ------------------------------------------------------- */

static void weigh_if_close(struct descent *d)
{
	struct evaluator *ev = d->ev;
	double step_s;

	if (ev->equal && ev->n_kinds == 1) {
		split_stages(ev, &d->split, 0);
		if (adp_pipeline_bound(ev->stages, ev->pp, ev->vpp, ev->n_equal) +
		        first_rest(d, &d->split, 0) + ev->min_rest_s >=
		    cut_s(ev->space, d->best)) {
			d->counts->bounded++;
			return;
		}
	}
	d->leaves--;
	weigh(d->best, d->counts, ev, &d->split, &step_s);
}

/* False when the budget ran out. first_rest_s: what follows the last backward of stage 0. */
static bool descend(struct descent *d, uint32_t s, uint32_t a, const struct heads *heads,
                    double first_rest_s)
{
	struct evaluator *ev = d->ev;
	uint32_t left = ev->n_layers - a, most, least;

	d->counts->work += WORK_OF_DESCENT;
	if (d->nodes-- <= 0 || d->leaves <= 0)
		return false;
	if (d->table && heads->all_s[0] > ev->most_head[s * (ev->n_layers + 1) + a] * (1.0 + 1e-12))
		return true;
	if (s == ev->pp) {
		weigh_if_close(d);
		return true;
	}
	most = stage_most(ev, s, a);
	least = ev->vpp > 1 ? 1 : stage_least(ev, s);
	if (s + 1 == ev->pp)
		least = most = left;
	if (most > d->cap[s])
		most = d->cap[s];
	if (left > d->cap_after[s + 1] && left - d->cap_after[s + 1] > least)
		least = left - d->cap_after[s + 1];
	for (uint32_t n = most + 1; n-- > least;) {
		double limit = cut_s(ev->space, d->best) * (1.0 - 1e-12) - ev->min_rest_s, rest_s;
		double t[ADP_SEARCH_MAX_KINDS] = {0}, wait[ADP_SEARCH_MAX_KINDS] = {0},
			   wait_fwd[ADP_SEARCH_MAX_KINDS] = {0};
		struct heads next = *heads;
		uint8_t r;

		if (!stage_recompute(ev, s, a, a + n, &r))
			continue;
		stage_times(t, ev, s, a, a + n, r);
		for (uint32_t k = 0; k < ev->n_kinds; k++) {
			double after = 0.0;

			/* the stages after s keep it waiting, less what it can do meanwhile: its warm-up
			 * forwards */
			if (d->plain && s + 1 < ev->pp)
				after = fmax(0.0, d->pass_after[s + 1] + (left - n) * d->cheapest_after[s + 1] -
				                      (ev->pp - 1 - s) * (t[k] * ev->fwd_share + ev->end_excess_s));
			wait[k] = heads->all_s[k] + after;
			wait_fwd[k] = heads->fwd_s[k] + after;
			if (d->plain) {
				next.all_s[k] += t[k];
				next.fwd_s[k] += least_forward(ev, k, s, n);
			}
		}
		rest_s = stage_exposed(ev, s, n, longest_backward(ev, s, n, r));
		if (s == 0)
			first_rest_s = rest_s;
		if (work_end(ev, t, wait) + first_rest_s > limit ||
		    work_end(ev, t, wait_fwd) + rest_s > limit)
			continue;
		if (!paths_go_on(&next, d, s, n, left - n, r, limit))
			continue;
		d->split.n_layers[s] = n;
		d->split.recompute[s] = r;
		if (!descend(d, s + 1, a + n, &next, first_rest_s))
			return false;
	}
	return true;
}

/* With several kinds of blocks, interleaved ranks hold runs of layers that no prefix describes. */
static bool descend_interleaved(struct descent *d, uint32_t s, uint32_t left)
{
	struct evaluator *ev = d->ev;

	d->counts->work += WORK_OF_DESCENT;
	if (d->nodes-- <= 0)
		return false;
	if (s + 1 == ev->pp) {
		double step_s;

		if (d->leaves-- <= 0)
			return false;
		d->split.n_layers[s] = left;
		if (split_fit(ev, &d->split))
			weigh(d->best, d->counts, ev, &d->split, &step_s);
		return true;
	}
	for (uint32_t n = 1; n + (ev->pp - s - 1) <= left; n++) {
		d->split.n_layers[s] = n;
		if (!descend_interleaved(d, s + 1, left - n))
			return false;
	}
	return true;
}

/* ---- one layer at a time -------------------------------------------------------------- */

static double cost_ops(const struct evaluator *ev)
{
	return 2.0 * ev->pp * ev->vpp * ev->n_kinds * (ev->equal ? 1.0 : 3.0) *
	       (ev->pp > 1 ? (double)ev->n_batches / ev->comp->dp : 1.0);
}

/* The split with a layer moved; false: it does not fit. */
static bool move_layer(struct evaluator *ev, struct split *next, const struct split *split,
                       uint32_t from, uint32_t to)
{
	uint32_t least = ev->vpp > 1 ? 1 : stage_least(ev, from);

	if (to == from || split->n_layers[from] <= least)
		return false;
	*next = *split;
	next->n_layers[from]--;
	next->n_layers[to]++;
	return split_fit(ev, next);
}

/* Moves while the longest path gets shorter, which is far cheaper than to weigh each. */
static void shorten(struct descent *d, struct split *split)
{
	struct evaluator *ev = d->ev;
	double longest = paths_length(d, split);
	uint32_t tries = 4000;

	for (bool moved = true; moved;) {
		moved = false;
		for (uint32_t from = 0; from < ev->pp; from++)
			for (uint32_t to = 0; to < ev->pp && tries; to++) {
				struct split next;
				double length;

				if (!move_layer(ev, &next, split, from, to))
					continue;
				tries--;
				d->counts->work += WORK_OF_DESCENT;
				length = paths_length(d, &next);
				if (length < longest * (1.0 - 1e-9)) {
					*split = next;
					longest = length;
					moved = true;
				}
			}
	}
}

static void exchange(struct descent *d, struct split *split, double step_s)
{
	struct evaluator *ev = d->ev;
	double ops_each = cost_ops(ev), ops = d->ops;
	bool moved = true;

	while (moved && ops > 0.0) {
		moved = false;
		for (uint32_t from = 0; from < ev->pp && !moved; from++)
			for (uint32_t to = 0; to < ev->pp && !moved && ops > 0.0; to++) {
				struct split next;
				double next_s;

				if (!move_layer(ev, &next, split, from, to) ||
				    paths_length(d, &next) >= step_s * (1.0 - 1e-9))
					continue;
				weigh(d->best, d->counts, ev, &next, &next_s);
				ops -= ops_each;
				if (next_s < step_s * (1.0 - 1e-9)) {
					*split = next;
					step_s = next_s;
					moved = true;
				}
			}
	}
}

/* Layers in proportion to the speed of each rank, then whatever fits. */
static bool proportional(struct evaluator *ev, struct split *split)
{
	double rate[ADP_SEARCH_MAX_PIPE], sum = 0.0;
	uint32_t given = 0;

	assert(ev->pp > 0);
	memset(split, 0, sizeof *split);
	for (uint32_t s = 0; s < ev->pp; s++) {
		rate[s] = 1.0 / (stage_load(ev, s, 0, ev->n_layers, ev->recompute_order[0], NULL));
		sum += rate[s];
	}
	for (uint32_t s = 0; s < ev->pp; s++) {
		double n = floor(rate[s] / sum * ev->n_layers);

		split->n_layers[s] = n < 1.0 ? 1 : (uint32_t)n;
		given += split->n_layers[s];
	}
	for (uint32_t s = 0; given < ev->n_layers; s = (s + 1) % ev->pp, given++)
		split->n_layers[s]++;
	while (given > ev->n_layers) {
		uint32_t most = 0;

		for (uint32_t s = 1; s < ev->pp; s++)
			if (split->n_layers[s] > split->n_layers[most])
				most = s;
		split->n_layers[most]--;
		given--;
	}
	return split_fit(ev, split);
}

static bool even(struct evaluator *ev, struct split *split)
{
	memset(split, 0, sizeof *split);
	for (uint32_t s = 0; s < ev->pp; s++) {
		split->n_layers[s] = ev->n_layers / ev->pp + (s < ev->n_layers % ev->pp);
		if (split->n_layers[s] < stage_least(ev, s))
			return false;
	}
	return split_fit(ev, split);
}

/* The split that is given rather than searched: the same number of layers on each stage, or all on
 * one. */
static bool given_split(struct candidate *best, struct counts *counts, struct evaluator *ev)
{
	const struct space *space = ev->space;
	struct split split;
	double step_s;

	if (!space->opts->equal_layers && space->engine->uneven_layers && ev->pp > 1)
		return false;
	if ((space->engine->uneven_layers || ev->n_layers % (ev->pp * ev->vpp) == 0) &&
	    even(ev, &split))
		weigh(best, counts, ev, &split, &step_s);
	else
		counts->bounded++;
	return true;
}

/* With several kinds of blocks, interleaved ranks hold runs of layers that no prefix describes. */
static bool scattered(const struct evaluator *ev)
{
	return ev->vpp > 1 && ev->n_blocks > 1;
}

static void descent_init(struct descent *d, struct candidate *best, struct counts *counts,
                         struct evaluator *ev, double effort)
{
	memset(d, 0, offsetof(struct descent, paths));
	d->best = best;
	d->counts = counts;
	d->ev = ev;
	d->plain = ev->vpp == 1 && ev->n_batches / ev->comp->dp >= ev->pp &&
	           (ev->equal || !ev->space->engine->fewer_batches_than_stages);
	d->ops = effort * split_budget_ops;
	d->leaves = (int64_t)fmax(64.0, effort * split_budget_ops / cost_ops(ev));
	d->nodes = (int64_t)(effort * split_budget_nodes);
}

/* Min-max partition by bisection; false: no split beats the best. *lo_s: no split has a smaller
 * load. */
static bool partition(struct evaluator *ev, struct split *split, double *lo_s, double hi)
{
	struct split trial;
	double lo = *lo_s;

	memset(split, 0, sizeof *split);
	if (!greedy(ev, hi, split))
		return false;
	trial = *split;
	/* a bound on the step counts more than the load of one stage: it need not bound that */
	if (greedy(ev, lo, &trial)) {
		hi = lo;
		lo = 0.0;
		*split = trial;
	}
	if (!isfinite(hi)) {
		for (hi = fmax(lo, 1e-6) * 1.02; !greedy(ev, hi, &trial); hi *= 1.3)
			;
		*split = trial;
	}
	for (uint32_t i = 0; i < 12 && hi - lo > 1e-4 * hi; i++) {
		double mid = 0.5 * (lo + hi);

		trial = *split;
		if (greedy(ev, mid, &trial)) {
			hi = mid;
			*split = trial;
		} else {
			lo = mid;
		}
	}
	*lo_s = lo;
	return true;
}

int composition_try(struct candidate *best, struct counts *counts, struct evaluator *ev,
                    const struct unit *unit, const struct composition *comp, double *bound_s,
                    bool *open, struct adp_error *err)
{
	struct descent d;
	struct split split;
	double step_s, lo;
	bool legal;
	int rc = evaluator_open(ev, unit, comp, &legal, err);

	*open = false;
	counts->work += WORK_OF_COMPOSITION;
	if (rc != ADP_OK)
		return rc;
	if (!legal) {
		counts->bounded++;
		return ADP_OK;
	}
	if (given_split(best, counts, ev))
		return ADP_OK;
	descent_init(&d, best, counts, ev, 1.0);
	if (scattered(ev)) {
		caps(&d);
		if (!paths_possible(&d, cut_s(ev->space, best))) {
			counts->bounded++;
			return ADP_OK;
		}
		if (proportional(ev, &split))
			weigh(best, counts, ev, &split, &step_s);
		*bound_s = paths_bound(&d, *bound_s, cut_s(ev->space, best));
		*open = *bound_s < cut_s(ev->space, best);
		return ADP_OK;
	}
	/* the cheap tests first */
	caps(&d);
	if (ev->n_kinds > 1 && d.plain && ev->n_blocks == 1)
		*bound_s = fmax(*bound_s, kinds_bound(&d));
	lo = fmax(*bound_s - ev->min_rest_s, 0.0);
	if (d.cap_after[0] < ev->n_layers || *bound_s >= cut_s(ev->space, best) ||
	    !limit_possible(&d, cut_s(ev->space, best)) ||
	    !partition(ev, &split, &lo, cut_s(ev->space, best) - ev->min_rest_s)) {
		counts->bounded++;
		return ADP_OK;
	}
	*bound_s = fmax(*bound_s, lo + ev->min_rest_s);
	weigh(best, counts, ev, &split, &step_s);
	*bound_s = paths_bound(&d, *bound_s, cut_s(ev->space, best));
	*open = *bound_s < cut_s(ev->space, best);
	return ADP_OK;
}

int composition_finish(struct candidate *best, struct counts *counts, struct evaluator *ev,
                       const struct unit *unit, const struct composition *comp, double bound_s,
                       double effort, struct adp_error *err)
{
	struct descent d;
	struct split split;
	struct heads none = {.all_s = {0.0}};
	double step_s, lo;
	bool legal, complete;
	int rc = evaluator_open(ev, unit, comp, &legal, err);

	counts->work += WORK_OF_COMPOSITION;
	if (rc != ADP_OK)
		return rc;
	descent_init(&d, best, counts, ev, effort);
	if (scattered(ev)) {
		if (proportional(ev, &split)) {
			weigh(best, counts, ev, &split, &step_s);
			exchange(&d, &split, step_s);
		}
		complete = descend_interleaved(&d, 0, ev->n_layers);
	} else {
		lo = fmax(bound_s - ev->min_rest_s, 0.0);
		if (!partition(ev, &split, &lo, cut_s(ev->space, best) - ev->min_rest_s)) {
			counts->bounded++;
			return ADP_OK;
		}
		weigh(best, counts, ev, &split, &step_s);
		caps(&d);
		if (!paths_init(&d, &none)) {
			counts->bounded++;
			return ADP_OK;
		}
		exchange(&d, &split, step_s);
		if (d.n_paths && ev->vpp > 1) {
			shorten(&d, &split);
			weigh(best, counts, ev, &split, &step_s);
			exchange(&d, &split, step_s);
		}
		complete = !limit_possible(&d, cut_s(ev->space, best)) || descend(&d, 0, 0, &none, 0.0);
		if (!complete)
			bound_s = least_limit(&d, bound_s, cut_s(ev->space, best));
	}
	if (!complete && bound_s < counts->open_bound_s)
		counts->open_bound_s = bound_s;
	return ADP_OK;
}
