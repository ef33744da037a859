/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "search/split_bound.h"

/* What no split of a composition can beat, before all of its layers are placed. */

/* ---- what one stage alone costs the step ---------------------------------------------- */

/* Forward and backward of layers [a, b) on stage s, per micro-batch, for each kind of replica. */
void stage_times(double *t, const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b,
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
 * to all micro-batches, and each be as many as the engine needs.
 */
double work_end(const struct evaluator *ev, const double *t, const double *wait)
{
	double longest = 0.0, rate = 0.0, sum = (double)ev->n_batches;
	double least = ev->equal ? ev->n_equal : least_micro(ev->space, ev->pp);

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double w = wait ? wait[k] : 0.0;

		longest = fmax(longest, w + least * t[k]);
		rate += ev->kinds[k].n_replicas / t[k];
		sum += ev->kinds[k].n_replicas * w / t[k];
	}
	return ev->equal || !isfinite(rate) ? longest : fmax(longest, sum / rate);
}

double stage_load(const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t recompute,
                  double *least_s)
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

/* Backward of n layers on stage s in any kind of replica, ends included. */
double longest_backward(const struct evaluator *ev, uint32_t s, uint32_t n, uint8_t recompute)
{
	double longest = 0.0;

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		size_t at = (size_t)k * ev->pp + s;

		longest = fmax(longest, ev->end_bwd[at] + n * layer_bwd(ev, k, s, recompute));
	}
	return longest;
}

/* No step is shorter than a stage's work and the exchange after it. */
double stage_step(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t recompute)
{
	return stage_load(ev, s, a, b, recompute, NULL) +
	       stage_exposed(ev, s, b - a, longest_backward(ev, s, b - a, recompute));
}

/* Fewest layers of a stage: the ends may hold none beside embedding or head. */
uint32_t stage_least(const struct evaluator *ev, uint32_t s)
{
	return s > 0 && s + 1 < ev->pp;
}

/* ---- room, heads and paths ----------------------------------------------------------------- */

/* Room and shortest times of each stage, whatever layers it would get: the cheapest kind of block
 * counts. */
void caps(struct descent *d)
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

/* Forward time of n layers on a stage, at least. */
double least_forward(const struct evaluator *ev, uint32_t kind, uint32_t s, uint32_t n)
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
	double t[ADP_SEARCH_MAX_KINDS] = {0}, ends_after = 0.0;
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
double first_rest(const struct descent *d, const struct split *split, uint32_t kind)
{
	struct evaluator *ev = d->ev;
	size_t at = (size_t)kind * ev->pp;
	uint32_t n = split->n_layers[0];

	return stage_exposed(ev, 0, n,
	                     ev->end_bwd[at] + n * layer_bwd(ev, kind, 0, split->recompute[0]));
}

/* The longest path through a split, in any kind of replica that is followed; a step takes longer.
 */
double paths_length(const struct descent *d, const struct split *split)
{
	struct evaluator *ev = d->ev;
	double longest = 0.0;

	for (uint32_t k = 0; k < d->n_paths; k++) {
		const struct critical *c = &d->paths[k];
		struct path_heads at;

		path_heads_init(&at);
		for (uint32_t s = 0; s < ev->pp; s++)
			path_heads_add(&at, c, s, split->n_layers[s], layer_bwd(ev, k, s, split->recompute[s]));
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
bool paths_init(struct descent *d, struct heads *heads)
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
bool paths_possible(const struct descent *d, double limit)
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
double paths_bound(const struct descent *d, double lo_s, double hi_s)
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
bool limit_possible(struct descent *d, double limit)
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
double kinds_bound(const struct descent *d)
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
double least_limit(struct descent *d, double lo, double hi)
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

/* The same with n layers on stage s, and left on those after it; false: a path is too long. */
bool paths_go_on(struct heads *heads, const struct descent *d, uint32_t s, uint32_t n,
                 uint32_t left, uint8_t recompute, double limit)
{
	const struct evaluator *ev = d->ev;

	for (uint32_t k = 0; k < d->n_paths; k++) {
		const struct critical *c = &d->paths[k];
		double bwd_s = layer_bwd(ev, k, s, recompute);
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
