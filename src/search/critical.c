/* SPDX-License-Identifier: Apache-2.0 */
#include "search/critical.h"

#include <assert.h>
#include <math.h>

/* Forwards of chunks that a rank runs before its first backward (Narayanan et al. 2021, schedules
 * of Megatron-LM). */
static uint32_t warm_up(uint32_t pp, uint32_t vpp, uint32_t n_micro, uint32_t rank)
{
	uint64_t all = (uint64_t)n_micro * vpp;
	uint32_t n = vpp == 1 ? pp - rank : 2 * (pp - rank - 1) + (vpp - 1) * pp + 1;

	return n < all ? n : (uint32_t)all;
}

/* How many of the first n forwards of a rank are of chunk c: pp of each chunk in turn. */
static uint32_t chunk_runs(uint32_t pp, uint32_t vpp, uint32_t n, uint32_t c)
{
	uint32_t round = pp * vpp, rest, before = c * pp;

	if (vpp == 1)
		return n;
	assert(round > 0);
	rest = n % round;
	rest = rest > before ? rest - before : 0;
	return n / round * pp + (rest < pp ? rest : pp);
}

/* The largest excess of the first n forwards over an equal share of uneven chunks, in layers. */
static double most_excess(uint32_t pp, uint32_t vpp, uint32_t n)
{
	double sum = 0.0, most = 0.0;

	for (uint32_t c = 0; c < vpp; c++) {
		sum += chunk_runs(pp, vpp, n, c) - (double)n / vpp;
		most = sum > most ? sum : most;
	}
	return most;
}

static void add_filling(struct critical *c, uint32_t from, uint32_t to, bool first, double layer_s)
{
	uint32_t at = c->n_fillings++;

	for (; at > 0 && c->filling[at - 1].layer_s > layer_s; at--)
		c->filling[at] = c->filling[at - 1];
	c->filling[at].layer_s = layer_s;
	c->filling[at].from = (uint16_t)from;
	c->filling[at].to = (uint16_t)to;
	c->filling[at].first = first;
}

void critical_init(struct critical *c, const struct critical_rank *ranks, uint32_t pp, uint32_t vpp,
                   uint32_t n_micro, uint32_t n_layers, double sends_s)
{
	double n = n_micro, v = vpp;

	c->ranks = ranks;
	c->pp = pp;
	c->n_layers = n_layers;
	c->n_fillings = 0;
	c->n_first = vpp - 1;
	c->pass_s = sends_s;
	for (uint32_t m = 0; m < pp; m++) {
		const struct critical_rank *r = &ranks[m];
		uint32_t warm = warm_up(pp, vpp, n_micro, m);
		double excess_s = vpp > 1 ? r->fwd_s * most_excess(pp, vpp, warm) : 0.0;

		for (uint32_t w = 0; w < r->n_ways; w++) {
			double slope_s = n * (r->fwd_s + r->way_bwd_s[w]) -
			                 (r->fwd_s * warm + r->way_bwd_s[w]) / v;

			c->slope_s[m][w] = slope_s > 0.0 ? slope_s : 0.0;
		}
		c->base_s[m] = -excess_s;
		if (m == 0 || m + 1 == pp) {
			double ends_s = r->first_fwd_s + r->last_fwd_s + r->end_bwd_s;

			c->pass_s += ends_s;
			c->base_s[m] += n * ends_s - chunk_runs(pp, vpp, warm, 0) * r->first_fwd_s -
			                chunk_runs(pp, vpp, warm, vpp - 1) * r->last_fwd_s - r->end_bwd_s;
		}
	}
	/* neighbours that are alike fill up alike */
	for (uint32_t from = 0, to; from < pp; from = to) {
		const struct critical_rank *r = &ranks[from];

		for (to = from + 1; to < pp && ranks[to].fwd_s == r->fwd_s && ranks[to].bwd_s == r->bwd_s;)
			to++;
		if (vpp > 1)
			add_filling(c, from, to, true, r->fwd_s);
		add_filling(c, from, to, false, r->fwd_s + r->bwd_s / v);
	}
}

/* Least pass of one micro-batch when rank m takes at most most[m] layers; infinity when there is no
 * room. */
static double least_pass(const struct critical *c, const uint32_t *most)
{
	uint32_t left = c->n_layers;
	double sum = c->pass_s;

	for (uint32_t i = 0; left && i < c->n_fillings; i++) {
		uint32_t room = 0;

		for (uint32_t m = c->filling[i].from; m < c->filling[i].to; m++) {
			if (c->filling[i].first)
				room += most[m] < c->n_first ? most[m] : c->n_first;
			else
				room += most[m] > c->n_first ? most[m] - c->n_first : 0;
		}
		room = room < left ? room : left;
		sum += room * c->filling[i].layer_s;
		left -= room;
	}
	return left ? (double)INFINITY : sum;
}

/* The most layers of rank m, in any way of recomputing, that take no longer than left_s. */
static uint32_t room_within(const struct critical *c, uint32_t m, double left_s)
{
	const struct critical_rank *r = &c->ranks[m];
	uint32_t most = 0;

	for (uint32_t w = 0; w < r->n_ways; w++) {
		uint32_t n = r->most[w];

		if (left_s < n * c->slope_s[m][w])
			n = (uint32_t)(left_s / c->slope_s[m][w]);
		most = n > most ? n : most;
	}
	return most;
}

bool critical_possible(const struct critical *c, double limit_s)
{
	uint32_t most[ADP_SEARCH_MAX_PIPE];
	double pass_s;

	for (uint32_t m = 0; m < c->pp; m++) {
		most[m] = room_within(c, m, INFINITY);
		if (most[m] < c->ranks[m].least)
			return false;
	}
	pass_s = least_pass(c, most);
	limit_s *= 1.0 + 1e-9;
	/* a longer pass leaves less time for each rank, hence less room, hence a longer pass */
	for (uint32_t i = 0; i < 8; i++) {
		double own_s = limit_s - pass_s, next_s;
		bool less = false;

		if (!(own_s >= 0.0))
			return false;
		for (uint32_t m = 0; m < c->pp; m++) {
			double left_s = own_s - c->base_s[m];
			uint32_t n;

			if (left_s < 0.0)
				return false;
			n = room_within(c, m, left_s);
			if (n < c->ranks[m].least)
				return false;
			less = less || n < most[m];
			most[m] = n;
		}
		if (!less)
			return true;
		next_s = least_pass(c, most);
		if (next_s <= pass_s)
			return true;
		pass_s = next_s;
	}
	return true;
}

double critical_bound(const struct critical *c, double lo_s, double hi_s)
{
	for (uint32_t i = 0; i < 12 && hi_s - lo_s > 1e-4 * hi_s; i++) {
		double mid = 0.5 * (lo_s + hi_s);

		if (critical_possible(c, mid))
			hi_s = mid;
		else
			lo_s = mid;
	}
	return lo_s;
}
