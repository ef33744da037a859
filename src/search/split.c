/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "search/critical.h"
#include "search/evaluator.h"

/* Recurrence operations and steps of the descent that may go into one composition's splits beyond
 * the min-max partition, for each unit of effort. */
static const double split_budget_ops = 400e3, split_budget_nodes = 100e3;

/* ---- what one stage alone costs the step ---------------------------------------------- */

/* Forward and backward of layers [a, b) on stage s, per micro-batch, for each kind of replica. */
static void stage_times(double *t, const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b,
                        uint8_t recompute)
{
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		size_t at = (size_t)k * ev->pp + s;

		t[k] = ev->end_fwd[at] + ev->end_bwd[at];
		for (uint32_t i = 0; i < ev->n_blocks; i++) {
			const uint32_t *before = &ev->space->n_before[i * (ev->n_layers + 1)];

			t[k] += (before[b] - before[a]) *
			        (ev->fwd[at * ev->n_blocks + i] +
			         ev->bwd[(at * ADP_N_RECOMPUTE + recompute) * ev->n_blocks + i]);
		}
	}
}

/*
 * No step is shorter than the work of any one stage, t[k] for a micro-batch of kind k, after what
 * keeps it waiting, wait[k] (NULL: nothing). Unequal counts n_k <= (T - wait_k) / t_k must add up
 * to all micro-batches.
 */
static double work_end(const struct evaluator *ev, const double *t, const double *wait)
{
	double longest = 0.0, rate = 0.0, sum = (double)ev->n_batches;

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double w = wait ? wait[k] : 0.0;

		longest = fmax(longest, w + (ev->equal ? ev->n_equal : 1.0) * t[k]);
		rate += ev->kinds[k].n_replicas / t[k];
		sum += ev->kinds[k].n_replicas * w / t[k];
	}
	return ev->equal || !isfinite(rate) ? longest : fmax(longest, sum / rate);
}

static double stage_load(const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b,
                         uint8_t recompute, double *least_s)
{
	double t[ADP_SEARCH_MAX_KINDS] = {0};

	stage_times(t, ev, s, a, b, recompute);
	if (least_s) {
		*least_s = t[0];
		for (uint32_t k = 1; k < ev->n_kinds; k++)
			*least_s = fmin(*least_s, t[k]);
	}
	return work_end(ev, t, NULL);
}

static bool stage_ok(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, double limit,
                     uint8_t *recompute)
{
	uint8_t first = ev->recompute_order[0];

	/* the cheap test first */
	return stage_load(ev, s, a, b, first, NULL) <= limit &&
	       stage_recompute(ev, s, a, b, recompute) &&
	       (*recompute == first || stage_load(ev, s, a, b, *recompute, NULL) <= limit);
}

/* Fewest layers of a stage: the ends may hold none beside embedding or head. */
static uint32_t stage_least(const struct evaluator *ev, uint32_t s)
{
	return s > 0 && s + 1 < ev->pp;
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

enum { PATH_KINDS = 2 }; /* kinds of replica whose paths are followed */

struct descent {
	struct candidate *best;
	struct counts *counts;
	struct evaluator *ev;
	struct split split;
	bool table;  /* ev->most_head is filled */
	bool plain;  /* 1F1B with at least as many micro-batches as stages in every replica */
	bool simple; /* and one kind of replica */
	uint32_t cap[ADP_SEARCH_MAX_PIPE], cap_after[ADP_SEARCH_MAX_PIPE + 1];
	uint32_t way_room[ADP_SEARCH_MAX_PIPE]
					 [ADP_N_RECOMPUTE]; /* the cap of each way of recomputing */
	double ends_s[ADP_SEARCH_MAX_PIPE],
		layer_s[ADP_SEARCH_MAX_PIPE];               /* per micro-batch, at least */
	double pass_after[ADP_SEARCH_MAX_PIPE + 1];     /* ends of the stages from s on */
	double cheapest_after[ADP_SEARCH_MAX_PIPE + 1]; /* layer time of the stages from s on */
	double ops;                                     /* of the recurrence, for moves of a layer */
	int64_t leaves, nodes;
	uint32_t n_paths;                  /* kinds that are followed, the first ones */
	struct critical paths[PATH_KINDS]; /* this and what follows is filled for the descent alone */
	struct critical_rank ranks[PATH_KINDS][ADP_SEARCH_MAX_PIPE];
};

/* What the stages before add to each pass; the longest of their own parts, with the rest that
 * follows; what a later one cuts off; and the longest rest. */
struct path_heads {
	double pass_s[N_PATHS], own_s[N_PATHS], cut_s[N_PATHS], rest_s[N_PATHS];
	double longest_s; /* own part of PATH_BOTH */
};

/* What the stages before have settled, for each kind: the time of one micro-batch in them, and its
 * forward part. */
struct heads {
	double all_s[ADP_SEARCH_MAX_KINDS], fwd_s[ADP_SEARCH_MAX_KINDS];
	struct path_heads path[PATH_KINDS];
};

/* Room and shortest times of each stage, whatever layers it would get: the cheapest kind of block
 * counts. */
static void caps(struct descent *d)
{
	struct evaluator *ev = d->ev;
	double limit = cut_s(ev->space, d->best) - ev->min_rest_s;

	d->cap_after[ev->pp] = 0;
	d->pass_after[ev->pp] = 0.0;
	d->cheapest_after[ev->pp] = INFINITY;
	for (uint32_t s = ev->pp; s-- > 0;) {
		double cheapest = INFINITY, least_s, layer_s = INFINITY, ends;
		uint8_t r = ev->recompute_order[0];

		ends = stage_load(ev, s, 0, 0, r, &d->ends_s[s]);
		for (uint32_t l = 0; l < ev->n_layers; l++) {
			cheapest = fmin(cheapest, stage_load(ev, s, l, l + 1, r, &least_s) - ends);
			layer_s = fmin(layer_s, least_s - d->ends_s[s]);
			if (ev->n_blocks == 1)
				break;
		}
		d->layer_s[s] = layer_s;
		d->cap[s] = 0;
		for (uint32_t w = 0; w < ev->n_recompute; w++) {
			uint32_t cap = ev->n_layers;

			/* kinds of block differ in what they recompute: the cheapest without it counts */
			if (ev->n_blocks == 1)
				cheapest = stage_load(ev, s, 0, 1, ev->recompute_order[w], NULL) - ends;
			if (isfinite(limit) && ends + cheapest * ev->n_layers > limit)
				cap = limit > ends ? (uint32_t)((limit - ends) / cheapest * (1.0 + 1e-9)) : 0;
			cap = stage_room(ev, s, ev->recompute_order[w], cap);
			d->way_room[s][w] = cap;
			d->cap[s] = cap > d->cap[s] ? cap : d->cap[s];
		}
		d->cap_after[s] = d->cap_after[s + 1] + d->cap[s];
		d->pass_after[s] = d->pass_after[s + 1] + d->ends_s[s];
		d->cheapest_after[s] = fmin(d->cheapest_after[s + 1], layer_s);
	}
}

/* Backward of n layers on stage s in any kind of replica, ends included. */
static double longest_backward(const struct evaluator *ev, uint32_t s, uint32_t n,
                               uint8_t recompute)
{
	double longest = 0.0;

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		size_t at = (size_t)k * ev->pp + s;

		longest = fmax(longest, ev->end_bwd[at] +
		                            n * ev->bwd[(at * ADP_N_RECOMPUTE + recompute) * ev->n_blocks]);
	}
	return longest;
}

/* Forward time of n layers on a stage, at least. */
static double least_forward(const struct evaluator *ev, uint32_t kind, uint32_t s, uint32_t n)
{
	size_t at = (size_t)kind * ev->pp + s;

	return ev->n_blocks == 1 ? ev->end_fwd[at] + n * ev->fwd[at] : 0.0;
}

/*
 * Largest time of one micro-batch in the stages before s, with a layers placed, from which the rest
 * can still be placed within the limit, for n micro-batches on replicas of one kind:
 * ev->most_head[s][a]. The head is all that the stages before tell those after, and a smaller one
 * is never worse, so the table is exact for what descend() checks. False when nothing keeps the
 * limit.
 */
static bool head_table(struct descent *d, uint32_t kind, uint32_t n_micro, double limit)
{
	struct evaluator *ev = d->ev;
	uint32_t n_layers = ev->n_layers, width = n_layers + 1;
	double t[ADP_SEARCH_MAX_KINDS], ends_after = 0.0;
	double rest_s[ADP_SEARCH_MAX_LAYERS +
	              1]; /* layers from a on, all on the best of the stages after s */

	limit -= ev->min_rest_s +
	         stage_exposed(ev, 0, d->cap_after[1] < n_layers ? n_layers - d->cap_after[1] : 0,
	                       INFINITY);
	for (uint32_t a = 0; a <= n_layers; a++) {
		ev->most_head[ev->pp * width + a] = a == n_layers ? INFINITY : -INFINITY;
		rest_s[a] = a == n_layers ? 0.0 : INFINITY;
	}
	for (uint32_t s = ev->pp; s-- > 0;) {
		double time_s[ADP_SEARCH_MAX_LAYERS + 1], ends_s;
		uint32_t n_known = stage_least(
			ev, s); /* times below this are known, and the same wherever the layers start */

		for (uint32_t a = 0; a <= n_layers; a++) {
			double head = -INFINITY;

			for (uint32_t n = stage_least(ev, s); a + n <= n_layers; n++) {
				double after = 0.0, next, own;

				if (ev->n_blocks > 1 || n >= n_known) {
					uint8_t r;

					time_s[n] = INFINITY;
					if (stage_recompute(ev, s, a, a + n, &r)) {
						stage_times(t, ev, s, a, a + n, r);
						time_s[n] = t[kind];
					}
					n_known = n + 1;
				}
				if (n_micro * time_s[n] > limit)
					break; /* more layers take longer still */
				next = ev->most_head[(s + 1) * width + a + n] - time_s[n];
				if (!(next > head))
					continue;
				if (s + 1 < ev->pp)
					after = fmax(0.0, ends_after + rest_s[a + n] -
					                      (ev->pp - 1 - s) *
					                          (time_s[n] * ev->fwd_share + ev->end_excess_s));
				own = limit - n_micro * time_s[n] - after;
				head = fmax(head, own < next ? own : next);
			}
			ev->most_head[s * width + a] = head;
		}
		stage_times(t, ev, s, 0, 0, ev->recompute_order[0]);
		ends_s = t[kind];
		ends_after += ends_s;
		for (uint32_t a = 0; a < n_layers; a++) {
			stage_times(t, ev, s, a, n_layers, ev->recompute_order[0]);
			rest_s[a] = fmin(rest_s[a], t[kind] - ends_s);
		}
	}
	return ev->most_head[0] >= 0.0;
}

static double rest_of(void *evaluator, uint32_t s, uint32_t n, double last_bwd_s)
{
	return stage_exposed(evaluator, s, n, last_bwd_s);
}

/* The critical paths of one kind of replica; ranks: pp of them. */
static void critical_of(struct critical *c, struct critical_rank *ranks, const struct descent *d,
                        uint32_t kind)
{
	struct evaluator *ev = d->ev;
	uint32_t r = ev->recompute_order[0];

	for (uint32_t s = 0; s < ev->pp; s++) {
		size_t at = (size_t)kind * ev->pp + s;
		const double *fwd = &ev->fwd[at * ev->n_blocks];
		const double *bwd = &ev->bwd[(at * ADP_N_RECOMPUTE + r) * ev->n_blocks];

		ranks[s] = (struct critical_rank){.fwd_s = fwd[0],
		                                  .bwd_s = bwd[0],
		                                  .first_fwd_s = s == 0 ? ev->end_fwd[at] : 0.0,
		                                  .last_fwd_s = s > 0 ? ev->end_fwd[at] : 0.0,
		                                  .end_bwd_s = ev->end_bwd[at],
		                                  .send_fwd_s = ev->send_fwd[at],
		                                  .send_bwd_s = ev->send_bwd[at],
		                                  .least = ev->vpp > 1 ? 1 : stage_least(ev, s),
		                                  .n_ways = ev->n_recompute};
		for (uint32_t i = 1; i < ev->n_blocks; i++) {
			ranks[s].fwd_s = fmin(ranks[s].fwd_s, fwd[i]);
			ranks[s].bwd_s = fmin(ranks[s].bwd_s, bwd[i]);
		}
		for (uint32_t w = 0; w < ev->n_recompute; w++) {
			const double *way_bwd =
				&ev->bwd[(at * ADP_N_RECOMPUTE + ev->recompute_order[w]) * ev->n_blocks];

			ranks[s].most[w] = d->way_room[s][w];
			ranks[s].way_bwd_s[w] = way_bwd[0];
			for (uint32_t i = 1; i < ev->n_blocks; i++)
				ranks[s].way_bwd_s[w] = fmin(ranks[s].way_bwd_s[w], way_bwd[i]);
		}
	}
	critical_init(c, ranks, ev->pp, ev->vpp, ev->n_equal, ev->n_layers, rest_of, ev);
}

static bool has_critical(const struct evaluator *ev)
{
	return ev->equal && (ev->vpp == 1 || ev->n_equal % ev->pp == 0);
}

static void path_heads_init(struct path_heads *at)
{
	memset(at, 0, sizeof *at);
	for (uint32_t p = 0; p < N_PATHS; p++)
		at->own_s[p] = at->rest_s[p] = -INFINITY;
	at->longest_s = -INFINITY;
}

static void path_heads_add(struct path_heads *at, const struct critical *c, uint32_t s, uint32_t n,
                           double bwd_s)
{
	double rest_s = critical_rest(c, s, n, bwd_s);

	for (uint32_t i = 0; i < c->n_paths; i++) {
		enum critical_path p = (enum critical_path)i;
		double own_s = critical_own(c, p, s, n, bwd_s);

		if (p == PATH_BOTH) /* any rank's rest follows any rank's own part */
			own_s = at->longest_s = fmax(at->longest_s, own_s);
		at->rest_s[p] = fmax(at->rest_s[p], rest_s - at->cut_s[p]);
		at->cut_s[p] += critical_cut(c, p, s, n, bwd_s);
		at->own_s[p] = fmax(at->own_s[p], own_s + at->rest_s[p]);
		at->pass_s[p] += critical_pass(c, p, s, n, bwd_s);
	}
}

/* What stage 0 adds after its last backward, which is the pipeline's last. */
static double first_rest(const struct descent *d, const struct split *split, uint32_t kind)
{
	struct evaluator *ev = d->ev;
	size_t at = (size_t)kind * ev->pp;
	uint32_t n = split->n_layers[0];
	double bwd_s = ev->bwd[(at * ADP_N_RECOMPUTE + split->recompute[0]) * ev->n_blocks];

	return stage_exposed(ev, 0, n, ev->end_bwd[at] + n * bwd_s);
}

/* The longest path through a split, in any kind of replica that is followed; a step takes longer.
 */
static double paths_length(const struct descent *d, const struct split *split)
{
	struct evaluator *ev = d->ev;
	double longest = 0.0;

	for (uint32_t k = 0; k < d->n_paths; k++) {
		const struct critical *c = &d->paths[k];
		struct path_heads at;

		path_heads_init(&at);
		for (uint32_t s = 0; s < ev->pp; s++)
			path_heads_add(
				&at, c, s, split->n_layers[s],
				ev->bwd[((size_t)(k * ev->pp + s) * ADP_N_RECOMPUTE + split->recompute[s]) *
			            ev->n_blocks]);
		for (uint32_t p = 0; p < c->n_paths; p++)
			longest = fmax(longest, c->pass_s[p] + at.pass_s[p] + at.own_s[p]);
		split_stages(ev, split, k);
		longest = fmax(longest, adp_pipeline_bound(ev->stages, ev->pp, ev->vpp, ev->n_equal) +
		                            first_rest(d, split, k));
	}
	return longest + ev->min_rest_s;
}

/*
 * For the descent; false: no split keeps the limit. Kinds of block differ in length: there the
 * paths only tell what is possible.
 */
static bool paths_init(struct descent *d, struct heads *heads)
{
	struct evaluator *ev = d->ev;
	double limit = cut_s(ev->space, d->best) - ev->min_rest_s;
	uint32_t most[ADP_SEARCH_MAX_PIPE];

	d->n_paths = !has_critical(ev) || ev->n_blocks > 1 ? 0 : ev->n_kinds;
	if (d->n_paths > PATH_KINDS)
		d->n_paths = PATH_KINDS;
	for (uint32_t k = 0; k < d->n_paths; k++) {
		critical_of(&d->paths[k], d->ranks[k], d, k);
		path_heads_init(&heads->path[k]);
		if (!critical_possible(&d->paths[k], limit, most))
			return false;
		for (uint32_t s = 0; s < ev->pp; s++)
			d->cap[s] = most[s] < d->cap[s] ? most[s] : d->cap[s];
	}
	for (uint32_t k = 0; k < d->n_paths; k++)
		critical_caps(&d->paths[k], d->cap);
	for (uint32_t s = ev->pp; s-- > 0;)
		d->cap_after[s] = d->cap_after[s + 1] + d->cap[s];
	return true;
}

/* False: the critical paths of some kind of replica leave no split within the limit. */
static bool paths_possible(const struct descent *d, double limit)
{
	struct critical_rank ranks[ADP_SEARCH_MAX_PIPE];
	struct critical c;

	for (uint32_t k = 0; k < d->ev->n_kinds && has_critical(d->ev); k++) {
		critical_of(&c, ranks, d, k);
		if (!critical_possible(&c, limit - d->ev->min_rest_s, NULL))
			return false;
	}
	return true;
}

/* No split ends before, as far as lo_s .. hi_s tells it. */
static double paths_bound(const struct descent *d, double lo_s, double hi_s)
{
	struct critical_rank ranks[ADP_SEARCH_MAX_PIPE];
	struct critical c;
	double after_s = d->ev->min_rest_s;

	for (uint32_t k = 0; k < d->ev->n_kinds && has_critical(d->ev) && isfinite(hi_s); k++) {
		critical_of(&c, ranks, d, k);
		lo_s = after_s + critical_bound(&c, lo_s - after_s, hi_s - after_s);
	}
	return lo_s;
}

/* The most micro-batches that one kind of replica alone could end within the limit. */
static uint32_t kind_most(struct descent *d, uint32_t kind, double limit)
{
	const struct evaluator *ev = d->ev;
	double least_s = ev->n_layers * d->cheapest_after[0] / ev->pp; /* some stage takes this long */
	double most = fmin((double)ev->n_batches, limit / least_s);
	uint32_t lo = 0, hi = (uint32_t)most;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo + 1) / 2;

		if (mid >= ev->pp && !head_table(d, kind, mid, limit))
			hi = mid - 1;
		else
			lo = mid;
	}
	return lo;
}

/* Could any split keep the limit? Kinds of replica are asked one by one, each with a split of its
 * own. */
static bool limit_possible(struct descent *d, double limit)
{
	struct evaluator *ev = d->ev;
	uint64_t placed = 0;

	d->table = false;
	if (!paths_possible(d, limit))
		return false;
	if (!d->plain)
		return true;
	if (ev->equal) {
		for (uint32_t k = 0; k < ev->n_kinds; k++)
			if (!head_table(d, k, ev->n_equal, limit))
				return false;
		d->table = ev->n_kinds == 1;
		return true;
	}
	for (uint32_t k = 0; k < ev->n_kinds && placed < ev->n_batches; k++)
		placed += (uint64_t)ev->kinds[k].n_replicas * kind_most(d, k, limit);
	return placed >= ev->n_batches;
}

/*
 * Several kinds of replica: each by itself at its own best split gives a law T_k >= base_k + n_k
 * tau_k; the counts must add up. tau_k: least bottleneck with whole layers; base_k: the pass
 * through the other stages.
 */
static double kinds_bound(const struct descent *d)
{
	const struct evaluator *ev = d->ev;
	double t[ADP_SEARCH_MAX_KINDS] = {0}, base[ADP_SEARCH_MAX_KINDS] = {0};
	uint8_t r = ev->recompute_order[0];

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double lo = 0.0, hi = 0.0, least_layer = INFINITY, ends = 0.0;

		for (uint32_t s = 0; s < ev->pp; s++) {
			size_t at = (size_t)k * ev->pp + s;
			double layer_s = ev->fwd[at] + ev->bwd[at * ADP_N_RECOMPUTE + r];

			least_layer = fmin(least_layer, layer_s);
			ends += ev->end_fwd[at] + ev->end_bwd[at];
			hi = fmax(hi, ev->end_fwd[at] + ev->end_bwd[at] + layer_s * ev->n_layers);
		}
		for (uint32_t i = 0; i < 40 && hi - lo > 1e-6 * hi; i++) {
			double mid = 0.5 * (lo + hi), room = 0.0;

			for (uint32_t s = 0; s < ev->pp; s++) {
				size_t at = (size_t)k * ev->pp + s;
				double e = ev->end_fwd[at] + ev->end_bwd[at];

				room += mid < e
				            ? -INFINITY
				            : floor((mid - e) / (ev->fwd[at] + ev->bwd[at * ADP_N_RECOMPUTE + r]));
			}
			if (room >= ev->n_layers)
				hi = mid;
			else
				lo = mid;
		}
		t[k] = lo;
		base[k] = fmax(0.0, ends + least_layer * ev->n_layers - lo -
		                        (ev->pp - 1) * (lo * ev->fwd_share + ev->end_excess_s));
	}
	return work_end(ev, t, base) + ev->min_rest_s;
}

/* The smallest limit that is possible, from below. */
static double least_limit(struct descent *d, double lo, double hi)
{
	for (uint32_t i = 0; i < 8 && hi - lo > 1e-3 * hi; i++) {
		double mid = 0.5 * (lo + hi);

		if (limit_possible(d, mid))
			hi = mid;
		else
			lo = mid;
	}
	return lo;
}

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

/* The same with n layers on stage s, and left on those after it; false: a path is too long. */
static bool paths_go_on(struct heads *heads, const struct descent *d, uint32_t s, uint32_t n,
                        uint32_t left, uint8_t recompute, double limit)
{
	const struct evaluator *ev = d->ev;

	for (uint32_t k = 0; k < d->n_paths; k++) {
		const struct critical *c = &d->paths[k];
		double bwd_s =
			ev->bwd[((size_t)(k * ev->pp + s) * ADP_N_RECOMPUTE + recompute) * ev->n_blocks];
		struct path_heads *at = &heads->path[k];

		path_heads_add(at, c, s, n, bwd_s);
		for (uint32_t i = 0; i < c->n_paths; i++) {
			enum critical_path p = (enum critical_path)i;

			if (c->pass_s[p] + at->pass_s[p] + at->own_s[p] +
			        critical_pass_after(c, p, s + 1, left) >
			    limit)
				return false;
		}
	}
	return true;
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
	d->simple = d->plain && ev->n_kinds == 1;
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
