/* SPDX-License-Identifier: Apache-2.0 */
#include "search/critical.h"

#include <assert.h>
#include <math.h>

static uint32_t at_most(uint32_t n, uint32_t most)
{
	return n < most ? n : most;
}

/* Forwards of chunks that a rank runs before its first backward (Narayanan et al. 2021, schedules
 * of Megatron-LM). */
static uint32_t warm_up(uint32_t pp, uint32_t vpp, uint32_t n_micro, uint32_t rank)
{
	uint64_t all = (uint64_t)n_micro * vpp;
	uint32_t n = vpp == 1 ? pp - rank : 2 * (pp - rank - 1) + (vpp - 1) * pp + 1;

	return n < all ? n : (uint32_t)all;
}

/* How many of the first n forwards of a rank are of the chunks before c: pp of each chunk in turn.
 */
static uint32_t runs_before(const struct critical *c, uint32_t n, uint32_t chunk)
{
	uint32_t round = c->pp * c->vpp;

	if (c->vpp == 1)
		return chunk ? n : 0;
	assert(round > 0);
	return n / round * c->pp * chunk + at_most(n % round, c->pp * chunk);
}

static uint32_t runs_of(const struct critical *c, uint32_t n, uint32_t chunk)
{
	return runs_before(c, n, chunk + 1) - runs_before(c, n, chunk);
}

/* Forwards of the last chunk that m runs before its first backward, and those of the first chunk
 * of the next group. */
static uint32_t beyond(const struct critical *c, uint32_t m)
{
	return at_most(2 * (c->pp - 1 - m) + 1, c->n_micro > c->pp ? 2 * c->pp : c->pp);
}

/* ---- a pass ----------------------------------------------------------------------------- */

/* What a layer adds to a pass, at least: the first n_first of a rank, and those after. */
struct per_layer {
	uint32_t n_first;
	double first_s, more_s;
};

static struct per_layer per_layer(const struct critical *c, enum critical_path p, double fwd_s,
                                  double bwd_s)
{
	uint32_t v = c->vpp;

	switch (p) {
	case PATH_IN: /* all forwards, one backward of the smallest chunk */
		return (struct per_layer){v - 1, fwd_s, fwd_s + bwd_s / v};
	case PATH_BOTH:
		return (struct per_layer){0, fwd_s + bwd_s, fwd_s + bwd_s};
	default: /* the smallest chunk */
		return (struct per_layer){v - 1, 0.0, (fwd_s + bwd_s) / v};
	}
}

double critical_pass(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                     double bwd_s)
{
	double fwd_s = c->ranks[m].fwd_s;
	uint32_t least = n / c->vpp;

	switch (p) {
	case PATH_IN:
		return n * fwd_s + least * bwd_s;
	case PATH_BOTH:
		return n * (fwd_s + bwd_s);
	default:
		return least * (fwd_s + bwd_s);
	}
}

double critical_cut(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                    double bwd_s)
{
	uint32_t first = n / c->vpp + (p == PATH_BOTH && n % c->vpp);

	/* and the embedding, and the send from the next rank */
	return first * bwd_s + (m == 0 ? c->ranks[0].end_bwd_s : 0.0) +
	       (m + 1 < c->pp ? c->ranks[m + 1].send_bwd_s : 0.0);
}

/* Room for first layers beside the least of a rank. */
static uint32_t first_room(const struct critical *c, enum critical_path p, uint32_t m,
                           uint32_t most)
{
	uint32_t n = c->n_first[p];

	return at_most(most, n) - at_most(c->ranks[m].least, n);
}

void critical_caps(struct critical *c, const uint32_t *most)
{
	c->room_before[0] = 0;
	for (uint32_t m = 0; m < c->pp; m++)
		c->room_before[m + 1] = c->room_before[m] + most[m] - c->ranks[m].least;
	for (uint32_t i = 0; i < c->n_paths; i++) {
		enum critical_path p = (enum critical_path)i;

		c->first_before[p][0] = 0;
		for (uint32_t m = 0; m < c->pp; m++)
			c->first_before[p][m + 1] = c->first_before[p][m] + first_room(c, p, m, most[m]);
	}
}

double critical_pass_after(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n)
{
	double s = c->least_after_s[p][m];

	if (n < c->least_after[m])
		return INFINITY;
	n -= c->least_after[m];
	for (uint32_t i = 0; n && i < c->n_fills[p]; i++) {
		const struct critical_fill *fill = &c->fill[p][i];
		uint32_t from = fill->from > m ? fill->from : m, room, first;

		if (from >= fill->to)
			continue;
		first = c->first_before[p][fill->to] - c->first_before[p][from];
		room = fill->first ? first : c->room_before[fill->to] - c->room_before[from] - first;
		room = at_most(room, n);
		s += room * fill->layer_s;
		n -= room;
	}
	return n ? (double)INFINITY : s;
}

/* Least pass when rank m takes at most most[m] layers, no fewer than its least; infinity when there
 * is no room. */
static double least_pass(const struct critical *c, enum critical_path p, const uint32_t *most)
{
	uint32_t left = c->n_layers - c->least_after[0];
	double sum = c->pass_s[p] + c->least_after_s[p][0];

	if (c->n_layers < c->least_after[0])
		return INFINITY;
	for (uint32_t i = 0; left && i < c->n_fills[p]; i++) {
		const struct critical_fill *fill = &c->fill[p][i];
		uint32_t room = 0;

		for (uint32_t m = fill->from; m < fill->to; m++) {
			uint32_t first = first_room(c, p, m, most[m]);

			room += fill->first ? first : most[m] - c->ranks[m].least - first;
		}
		room = at_most(room, left);
		sum += room * fill->layer_s;
		left -= room;
	}
	return left ? (double)INFINITY : sum;
}

static void add_fill(struct critical *c, enum critical_path p, struct critical_fill fill)
{
	uint32_t at = c->n_fills[p]++;

	for (; at > 0 && c->fill[p][at - 1].layer_s > fill.layer_s; at--)
		c->fill[p][at] = c->fill[p][at - 1];
	c->fill[p][at] = fill;
}

static void fills_init(struct critical *c, enum critical_path p)
{
	c->n_fills[p] = 0;
	c->n_first[p] = per_layer(c, p, 0.0, 0.0).n_first;
	/* neighbours that are alike fill up alike */
	for (uint32_t from = 0, to; from < c->pp; from = to) {
		const struct critical_rank *r = &c->ranks[from];
		struct per_layer each = per_layer(c, p, r->fwd_s, r->bwd_s);

		for (to = from + 1;
		     to < c->pp && c->ranks[to].fwd_s == r->fwd_s && c->ranks[to].bwd_s == r->bwd_s;)
			to++;
		if (each.n_first)
			add_fill(c, p,
			         (struct critical_fill){each.first_s, (uint16_t)from, (uint16_t)to, true});
		add_fill(c, p, (struct critical_fill){each.more_s, (uint16_t)from, (uint16_t)to, false});
	}
	c->least_after_s[p][c->pp] = 0.0;
	for (uint32_t m = c->pp; m-- > 0;) {
		const struct critical_rank *r = &c->ranks[m];
		struct per_layer each = per_layer(c, p, r->fwd_s, r->bwd_s);
		uint32_t first = at_most(r->least, each.n_first);

		c->least_after_s[p][m] = c->least_after_s[p][m + 1] + first * each.first_s +
		                         (r->least - first) * each.more_s;
	}
}

void critical_init(struct critical *c, const struct critical_rank *ranks, uint32_t pp, uint32_t vpp,
                   uint32_t n_micro, uint32_t n_layers, critical_rest_fn *rest, void *rest_ctx)
{
	const struct critical_rank *first = &ranks[0], *last = &ranks[pp - 1];
	double up, down, all_up, all_down, tail_s = pp > 1 ? last->end_bwd_s : 0.0;

	c->ranks = ranks;
	c->pp = pp;
	c->vpp = vpp;
	c->n_micro = n_micro;
	c->n_layers = n_layers;
	c->rest = rest;
	c->rest_ctx = rest_ctx;
	c->n_paths = vpp > 1 ? N_PATHS : 1;
	c->least_after[pp] = 0;
	for (uint32_t m = pp; m-- > 0;)
		c->least_after[m] = c->least_after[m + 1] + ranks[m].least;
	c->send_up_s[0] = c->send_down_s[0] = 0.0;
	for (uint32_t m = 0; m < pp; m++) {
		c->warm[m] = warm_up(pp, vpp, n_micro, m);
		c->send_up_s[m + 1] = c->send_up_s[m] + (m + 1 < pp ? ranks[m].send_fwd_s : 0.0);
		c->send_down_s[m + 1] = c->send_down_s[m] + (m > 0 ? ranks[m].send_bwd_s : 0.0);
	}
	up = c->send_up_s[pp];
	down = c->send_down_s[pp];
	all_up = vpp * up + (vpp - 1) * last->send_fwd_s;
	all_down = vpp * down + (vpp - 1) * first->send_bwd_s;
	c->pass_s[PATH_IN] = first->first_fwd_s + last->last_fwd_s + first->end_bwd_s + tail_s +
	                     all_up + down;
	c->pass_s[PATH_BOTH] = c->pass_s[PATH_IN] + all_down - down;
	c->pass_s[PATH_OWN] = c->pass_s[PATH_IN] - all_up + up;
	for (uint32_t p = 0; p < c->n_paths; p++)
		fills_init(c, (enum critical_path)p);
}

/* ---- the rest of a rank's work ------------------------------------------------------------ */

/* All of m's work but its warm-up; what the pass has of m beside that is taken off by the caller.
 */
static double after_warm_up(const struct critical *c, uint32_t m, uint32_t n, double bwd_s)
{
	const struct critical_rank *r = &c->ranks[m];
	uint32_t warm = c->warm[m], v = c->vpp;
	double work = n * (r->fwd_s + bwd_s) + r->first_fwd_s + r->last_fwd_s + r->end_bwd_s;

	return c->n_micro * work - (n / v * (double)warm + runs_before(c, warm, n % v)) * r->fwd_s -
	       runs_of(c, warm, 0) * r->first_fwd_s - runs_of(c, warm, v - 1) * r->last_fwd_s;
}

/* From m's first backward to its last forward, and on to the last rank and back at both ends. */
static double between(const struct critical *c, uint32_t m, uint32_t n, double bwd_s)
{
	const struct critical_rank *r = &c->ranks[m], *last = &c->ranks[c->pp - 1];
	uint32_t pp = c->pp, in_last = at_most(beyond(c, m), pp), again = beyond(c, m) - in_last;
	uint32_t least = n / c->vpp, most = least + (n % c->vpp > 0);
	double head = (double)pp * (n - least) + in_last * least + again * most, own;

	if (c->n_micro <= pp && in_last == pp)
		return -INFINITY; /* its last forward comes first */
	own = (c->n_micro * (double)n - head) * (r->fwd_s + bwd_s);
	if (m == 0)
		own += (c->n_micro - (double)pp - again) * (r->first_fwd_s + r->end_bwd_s);
	if (m + 1 == pp)
		return own + (c->n_micro - (double)in_last) * (r->last_fwd_s + r->end_bwd_s);
	return own + last->last_fwd_s + last->end_bwd_s + c->send_up_s[pp] - c->send_up_s[m] +
	       c->send_down_s[pp] - c->send_down_s[m + 1];
}

/* All of m's work, less what fills its wait for the last chunk behind it. */
static double own_work(const struct critical *c, uint32_t m, uint32_t n, double bwd_s)
{
	const struct critical_rank *r = &c->ranks[m];
	uint32_t in_last = at_most(beyond(c, m), c->pp), again = beyond(c, m) - in_last;
	uint32_t least = n / c->vpp, most = least + (n % c->vpp > 0);
	double work = n * (r->fwd_s + bwd_s) + r->first_fwd_s + r->last_fwd_s + r->end_bwd_s;

	return c->n_micro * work - ((in_last - 1.0) * least + (double)again * most) * r->fwd_s -
	       again * r->first_fwd_s - (in_last - 1.0) * r->last_fwd_s;
}

double critical_own(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                    double bwd_s)
{
	const struct critical_rank *r = &c->ranks[m];
	uint32_t least = n / c->vpp;

	switch (p) {
	case PATH_IN:
		return after_warm_up(c, m, n, bwd_s) - least * bwd_s - r->end_bwd_s;
	case PATH_BOTH:
		return between(c, m, n, bwd_s);
	default:
		return own_work(c, m, n, bwd_s) - least * (r->fwd_s + bwd_s) - r->first_fwd_s -
		       r->last_fwd_s - r->end_bwd_s;
	}
}

void critical_line(const struct critical *c, uint32_t m, double *base_s,
                   double slope_s[ADP_N_RECOMPUTE])
{
	const struct critical_rank *r = &c->ranks[m];
	uint32_t warm = c->warm[m], v = c->vpp;
	double excess = 0.0, n = c->n_micro;

	/* the largest excess of the warm-up over an equal share of uneven chunks, in layers */
	for (uint32_t k = 1; k < v; k++)
		excess = fmax(excess, runs_before(c, warm, k) - (double)warm * k / v);
	*base_s = critical_own(c, PATH_IN, m, 0, 0.0) - excess * r->fwd_s;
	for (uint32_t w = 0; w < r->n_ways; w++)
		slope_s[w] = fmax(0.0, n * (r->fwd_s + r->way_bwd_s[w]) -
		                           (r->fwd_s * warm + r->way_bwd_s[w]) / v);
}

double critical_rest(const struct critical *c, uint32_t m, uint32_t n, double bwd_s)
{
	return c->rest ? c->rest(c->rest_ctx, m, n, n * bwd_s + c->ranks[m].end_bwd_s) : 0.0;
}

/* ---- room --------------------------------------------------------------------------------- */

/* What a limit leaves of each path, and what the layers that the ranks have at least take of it. */
struct leave {
	double left_s[N_PATHS];
	double own_s[N_PATHS][ADP_SEARCH_MAX_PIPE]; /* of m, or of a rank whose way down passes m */
	double cut_s[N_PATHS][ADP_SEARCH_MAX_PIPE]; /* of m, at most */
	double rest_s[N_PATHS]
				 [ADP_SEARCH_MAX_PIPE]; /* of a rank on the way down from m, less its cut */
};

/* Do n layers on m leave each pass its time, but for what follows m itself? Where they do, so do
 * fewer. */
static bool in_time(const struct critical *c, uint32_t m, uint32_t n, double bwd_s,
                    const struct leave *leave)
{
	for (uint32_t p = 0; p < c->n_paths; p++)
		if (critical_own(c, (enum critical_path)p, m, n, bwd_s) + leave->rest_s[p][m] >
		    leave->left_s[p])
			return false;
	return true;
}

/* Does what follows m end in time, after its own work or that of another rank? */
static bool rest_in_time(const struct critical *c, uint32_t m, uint32_t n, double bwd_s,
                         const struct leave *leave)
{
	double rest_s = critical_rest(c, m, n, bwd_s);

	for (uint32_t i = 0; i < c->n_paths; i++) {
		enum critical_path p = (enum critical_path)i;
		double own_s = fmax(leave->own_s[p][m], critical_own(c, p, m, n, bwd_s));

		if (own_s + rest_s - leave->cut_s[p][m] > leave->left_s[p])
			return false;
	}
	return true;
}

/* The most layers of rank m, up to most, in any way of recomputing, that leave each pass its time;
 * -1: not even none do. */
static int64_t room_within(const struct critical *c, uint32_t m, uint32_t most,
                           const struct leave *leave)
{
	const struct critical_rank *r = &c->ranks[m];
	int64_t room = -1;

	for (uint32_t w = 0; w < r->n_ways; w++) {
		int64_t lo = room, hi = at_most(r->most[w], most);

		if (hi > lo && in_time(c, m, (uint32_t)hi, r->way_bwd_s[w], leave))
			lo = hi;
		while (lo < hi) {
			int64_t mid = lo + (hi - lo + 1) / 2;

			if (in_time(c, m, (uint32_t)mid, r->way_bwd_s[w], leave))
				lo = mid;
			else
				hi = mid - 1;
		}
		/* what hides of the rest grows with the layers, so fewer need not do better */
		while (lo > room && !rest_in_time(c, m, (uint32_t)lo, r->way_bwd_s[w], leave))
			lo--;
		room = lo > room ? lo : room;
	}
	return room;
}

/* All layers have a place, so each rank holds what the others have no room for. */
static void leave_init(struct leave *leave, const struct critical *c, const uint32_t *most,
                       double limit_s)
{
	uint32_t low[ADP_SEARCH_MAX_PIPE];
	uint64_t all = 0;

	assert(c->n_paths > 0);
	for (uint32_t m = 0; m < c->pp; m++)
		all += most[m];
	for (uint32_t m = 0; m < c->pp; m++) {
		uint64_t others = all - most[m];

		low[m] = c->ranks[m].least;
		if (others < c->n_layers && c->n_layers - others > low[m])
			low[m] = (uint32_t)(c->n_layers - others);
	}
	for (uint32_t i = 0; i < c->n_paths; i++) {
		enum critical_path p = (enum critical_path)i;
		double own_s = -INFINITY, cut_s = 0.0, rest_s = -INFINITY;

		leave->left_s[p] = limit_s - least_pass(c, p, most);
		for (uint32_t m = 0; m < c->pp; m++) {
			const struct critical_rank *r = &c->ranks[m];
			double bwd_s = r->bwd_s;

			for (uint32_t w = 0; w < r->n_ways; w++)
				bwd_s = fmax(bwd_s, r->way_bwd_s[w]);
			leave->cut_s[p][m] = cut_s;
			/* more layers can hide more of the exchange */
			if (c->rest)
				rest_s = fmax(rest_s, c->rest(c->rest_ctx, m, low[m], INFINITY) - cut_s);
			leave->rest_s[p][m] = rest_s;
			cut_s += critical_cut(c, p, m, most[m], bwd_s);
		}
		for (uint32_t m = c->pp; m-- > 0;) {
			own_s = fmax(own_s, critical_own(c, p, m, low[m], c->ranks[m].bwd_s));
			leave->own_s[p][m] = own_s;
		}
		for (uint32_t m = 0; p == PATH_BOTH && m < c->pp; m++) {
			leave->own_s[p][m] = own_s;
			leave->rest_s[p][m] = rest_s;
		}
	}
}

bool critical_possible(const struct critical *c, double limit_s, uint32_t *most)
{
	uint32_t own_most[ADP_SEARCH_MAX_PIPE];
	bool less = true;

	most = most ? most : own_most;
	for (uint32_t m = 0; m < c->pp; m++) {
		most[m] = 0;
		for (uint32_t w = 0; w < c->ranks[m].n_ways; w++)
			most[m] = c->ranks[m].most[w] > most[m] ? c->ranks[m].most[w] : most[m];
		if (most[m] < c->ranks[m].least)
			return false;
	}
	limit_s *= 1.0 + 1e-9;
	/* a longer pass leaves less time for each rank, hence less room, hence a longer pass */
	for (uint32_t i = 0; i < 8 && less; i++) {
		struct leave leave;

		less = false;
		leave_init(&leave, c, most, limit_s);
		if (leave.left_s[PATH_IN] == -INFINITY)
			return false; /* no room */
		for (uint32_t m = 0; m < c->pp; m++) {
			int64_t n = room_within(c, m, most[m], &leave);

			if (n < c->ranks[m].least)
				return false;
			less = less || n < most[m];
			most[m] = (uint32_t)n;
		}
	}
	return true;
}

double critical_bound(const struct critical *c, double lo_s, double hi_s)
{
	for (uint32_t i = 0; i < 12 && hi_s - lo_s > 1e-4 * hi_s; i++) {
		double mid = 0.5 * (lo_s + hi_s);

		if (critical_possible(c, mid, NULL))
			hi_s = mid;
		else
			lo_s = mid;
	}
	return lo_s;
}
