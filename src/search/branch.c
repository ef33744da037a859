/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/branch.h"

enum { OPEN_MAX = 16384 };

/* Up to this many slots every number of replicas is tried where the batches need not divide. */
static const uint32_t small_fleet_slots = 64;
/* Up to this many GPUs and shares of the replicas between the types all shares are tried. */
static const uint64_t small_fleet_gpus = 64, small_fleet_shares = 128;

bool branch_spent(struct branch *b)
{
	if (!(b->space->max_work > 0.0) || b->counts->work < b->space->max_work ||
	    !isfinite(b->best->step_s))
		return false;
	b->counts->open_bound_s = fmin(b->counts->open_bound_s, b->unit->bound_s);
	return true;
}

static bool all_required(const struct branch *b)
{
	for (uint32_t t = 0; t < b->n_types; t++)
		if (b->space->type_required[t] && !b->share[t])
			return false;
	return true;
}

bool branch_legal(const struct branch *b, const struct composition *comp)
{
	const struct space *space = b->space;
	const struct adp_engine *engine = space->engine;
	const struct adp_shape *shape = &b->sc->shape;
	uint64_t gpus = (uint64_t)comp->dp * comp->pp * b->sc->slots->size;
	bool equal = equal_batches(space, b->unit);
	uint32_t mask = comp->pp > 1 ? engine->zero_mask_with_pipeline : engine->zero_mask;

	if (!pin_allows(&space->opts->dp, comp->dp) || !pin_allows(&space->opts->pp, comp->pp) ||
	    !pin_allows(&space->opts->gpus, gpus))
		return false;
	if (!(mask & (1u << b->unit->zero_stage)))
		return false;
	/* sharding over one rank is no sharding: the plain form stands for it; experts may have a
	 * larger group */
	if (comp->dp * shape->cp == 1 && shape->tp <= shape->ep * shape->etp &&
	    b->unit->zero_stage > 0 && mask & 1u && space->opts->zero_stage < 0)
		return false;
	if (comp->pp > engine->max_pipeline || comp->pp > space->model->n_layers + 2)
		return false;
	if (b->unit->vpp > 1 &&
	    (comp->pp == 1 || (uint64_t)comp->pp * b->unit->vpp > space->model->n_layers ||
	     (uint64_t)comp->pp * b->unit->vpp > ADP_SEARCH_MAX_CHUNKS))
		return false;
	if ((equal || engine->batch_divides_evenly) && b->n_batches % comp->dp)
		return false;
	if (b->n_batches <
	    (uint64_t)comp->dp * (comp->pp > 1 && !engine->fewer_batches_than_stages ? comp->pp : 1))
		return false;
	if (b->unit->vpp > 1 && engine->vpp_needs_divisible_batches &&
	    (b->n_batches / comp->dp) % comp->pp)
		return false;
	for (uint32_t g = 0; g < comp->n_groups; g++)
		if ((uint64_t)comp->group[g].n_replicas * b->sc->slots->size %
		    ((uint64_t)shape->ep * shape->etp))
			return false;
	return true;
}

/* A list that is full keeps the bound, so that the gap stays true. */
static int keep_open(struct branch *b, const struct composition *comp, double bound_s)
{
	struct open_list *list = b->open;

	if (list->n == list->max && list->max < OPEN_MAX) {
		uint32_t max = list->max ? list->max * 2 : 16;
		struct open_composition *grown = adp_reallocarray(list->items, max, sizeof *grown);

		if (!grown)
			return adp_nomem(b->err);
		list->items = grown;
		list->max = max;
	}
	if (list->n == list->max)
		b->counts->open_bound_s = fmin(b->counts->open_bound_s, bound_s);
	else
		list->items[list->n++] = (struct open_composition){bound_s, b->unit, *comp};
	return ADP_OK;
}

int branch_try(struct branch *b, const struct composition *comp, double bound_s)
{
	bool open;
	int rc;

	b->counts->work += WORK_OF_LOOK;
	if (bound_s >= cut_s(b->space, b->best) || !stages_order_possible(b, comp)) {
		b->counts->bounded++;
		return ADP_OK;
	}
	rc = composition_try(b->best, b->counts, b->ev, b->unit, comp, &bound_s, &open, b->err);
	return rc == ADP_OK && open ? keep_open(b, comp, bound_s) : rc;
}

/* Each replica on one type: data parallelism across the types. */
static int try_replicas(struct branch *b, uint32_t pp)
{
	struct composition comp;
	const struct adp_engine *engine = b->space->engine;
	bool equal = equal_batches(b->space, b->unit);
	double slots[ADP_SEARCH_MAX_TYPES] = {0}, bound_s, least;

	memset(&comp, 0, sizeof comp);
	comp.pp = pp;
	for (uint32_t t = 0; t < b->n_types; t++) {
		struct replica_group *group = &comp.group[comp.n_groups];

		if (!b->share[t])
			continue;
		comp.dp += b->share[t];
		comp.n_groups++;
		group->n_replicas = b->share[t];
		memset(group->stage_type, (int)t, pp);
		slots[t] = (double)b->share[t] * pp;
	}
	if (comp.n_groups < 2 || !all_required(b) || !branch_legal(b, &comp))
		return ADP_OK;
	bound_s = (double)b->n_batches * work_bound(&b->work, slots, INFINITY);
	/* every replica runs the same count, or at least what the engine needs, so each type's own pace
	 * bounds the step */
	least = equal ? (double)b->n_batches / comp.dp : least_micro(b->space, pp);
	for (uint32_t t = 0; t < b->n_types; t++)
		if (b->share[t])
			bound_s = fmax(bound_s, least * b->alone_s[t] / pp);
	return branch_try(b, &comp, bound_s + engine->step_fixed_s);
}

/* Every number of replicas of each type, most first. */
static int branch_replicas(struct branch *b, uint32_t pp, uint32_t t, uint32_t used)
{
	double slots[ADP_SEARCH_MAX_TYPES] = {0}, cap = floor(b->cap_slots / pp);
	uint32_t most;

	if (t == b->n_types)
		return try_replicas(b, pp);
	most = b->n[t] / pp;
	if (most > cap - used)
		most = (uint32_t)(cap - used);
	for (uint32_t r = most + 1; r-- > 0 && !branch_spent(b);) {
		int rc;

		b->share[t] = r;
		for (uint32_t i = 0; i < b->n_types; i++)
			slots[i] = i <= t ? (double)b->share[i] * pp : (double)(b->n[i] / pp * pp);
		if ((double)b->n_batches * work_bound(&b->work, slots, b->cap_slots) +
		        b->space->engine->step_fixed_s >=
		    cut_s(b->space, b->best)) {
			b->counts->bounded++;
			break;
		}
		rc = branch_replicas(b, pp, t + 1, used + r);
		if (rc != ADP_OK)
			return rc;
	}
	b->share[t] = 0;
	return ADP_OK;
}

/* At most dp replicas of pp stages over the types of the set, the faster types' first. False when a
 * type gets none. */
static bool fill_replicas(struct branch *b, uint32_t pp, uint32_t set, double dp)
{
	double left = fmin(dp, floor(b->cap_slots / pp));

	for (uint32_t t = 0; t < b->n_types; t++) {
		b->share[t] = 0;
		if (!(set & (1u << t)))
			continue;
		b->share[t] = (uint32_t)fmin(left, b->n[t] / pp);
		left -= b->share[t];
		if (!b->share[t])
			return false;
	}
	return true;
}

/* Is the fleet small enough to try every number of replicas of each type? */
static bool tries_all_replicas(const struct branch *b, uint32_t pp)
{
	uint64_t n = 1;

	if (!equal_batches(b->space, b->unit) && b->n_all <= small_fleet_slots)
		return true;
	for (uint32_t t = 0; t < b->n_types && n <= small_fleet_shares; t++)
		n *= b->n[t] / pp + 1;
	return n <= small_fleet_shares && (uint64_t)b->n_all * b->sc->slots->size <= small_fleet_gpus;
}

/*
 * Data parallelism across types. On a small fleet every number of replicas of each: fewer of the
 * faster type can meet in one node where more would not. Else, with equal counts the slowest type
 * present sets the pace, so for each size and set of types the faster ones are used up first; with
 * unequal counts every replica helps: all of them.
 */
static int search_replicas(struct branch *b, uint32_t pp)
{
	int rc = ADP_OK;

	if (tries_all_replicas(b, pp)) {
		memset(b->share, 0, sizeof b->share);
		return branch_replicas(b, pp, 0, 0);
	}
	for (uint32_t set = 1; set < 1u << b->n_types; set++) {
		double pace = 0.0, most = 0.0;

		if ((set & (set - 1)) == 0)
			continue; /* one type alone: all stages alike, tried before */
		for (uint32_t t = 0; t < b->n_types; t++) {
			if (!(set & (1u << t)))
				continue;
			pace = fmax(pace, b->alone_s[t] / pp);
			most += b->n[t] / pp;
		}
		if (!equal_batches(b->space, b->unit)) {
			if (fill_replicas(b, pp, set, most))
				rc = try_replicas(b, pp);
			if (rc != ADP_OK)
				return rc;
			continue;
		}
		most = fmin(fmin(most, floor(b->cap_slots / pp)), (double)b->n_batches);
		for (uint32_t dp = (uint32_t)most; dp > 1; dp--) {
			if ((double)b->n_batches / dp * pace >= cut_s(b->space, b->best))
				break;
			if (b->n_batches % dp == 0 && fill_replicas(b, pp, set, dp))
				rc = try_replicas(b, pp);
			if (rc != ADP_OK)
				return rc;
		}
	}
	return rc;
}

struct dp_choice {
	uint32_t dp;
	double bound_s;
};

static int dp_compare(const void *a, const void *b)
{
	const struct dp_choice *x = a, *y = b;

	if (x->bound_s != y->bound_s)
		return x->bound_s < y->bound_s ? -1 : 1;
	return x->dp < y->dp ? 1 : -1;
}

static bool dp_worth_trying(const struct branch *b, uint32_t dp)
{
	bool divides = b->n_batches % dp == 0;

	if (divides || b->n_all <= small_fleet_slots || b->space->opts->dp.min)
		return true;
	/* beyond: the largest size for each number of stages of a type, and the divisors above */
	for (uint32_t t = 0; t < b->n_types; t++)
		if (b->n[t] >= dp && b->n[t] / (b->n[t] / dp) == dp)
			return true;
	return false;
}

static int branch_init(struct branch *b, const struct space *space, const struct unit *unit,
                       struct evaluator *ev, struct candidate *best, struct counts *counts,
                       struct open_list *open, struct adp_error *err)
{
	double one[ADP_SEARCH_MAX_TYPES] = {0};

	/* member by member: the rooms are large, and filled in for each size anew */
	b->space = space;
	b->unit = unit;
	b->sc = &space->shapes[unit->shape];
	b->ev = ev;
	b->best = best;
	b->counts = counts;
	b->open = open;
	b->n_types = space->n_types;
	b->n_all = 0;
	b->rooms.dp = b->rooms.pp = b->rooms.types = 0;
	b->err = err;
	b->dp = 0;
	memset(b->share, 0, sizeof b->share);
	work_build(&b->work, space, unit);
	b->n_batches = unit_batches(space, unit);
	for (uint32_t t = 0; t < b->n_types; t++) {
		b->rooms.before[t][0] = b->rooms.shut_before[t][0] = 0;
		b->n[t] = unit_slots(space, unit, t);
		b->n_all += b->n[t];
		one[t] = 1.0;
		b->alone_s[t] = work_bound(&b->work, one, INFINITY);
		one[t] = 0.0;
		layer_room_build(&b->room[t], space, unit, &space->cluster->types[space->types[t]]);
	}
	b->cap_slots = fmin(floor(space->max_slots_gpus / b->sc->slots->size), b->n_all);
	b->max_pipe = ADP_SEARCH_MAX_PIPE;
	if (b->max_pipe > space->engine->max_pipeline)
		b->max_pipe = space->engine->max_pipeline;
	if (b->max_pipe > space->model->n_layers + 2)
		b->max_pipe = space->model->n_layers + 2;
	if (space->opts->pp.max && b->max_pipe > space->opts->pp.max)
		b->max_pipe = space->opts->pp.max;
	return ADP_OK;
}

/* Data-parallel sizes of the unit, best bound first. Caller frees. */
static int dp_choices(struct dp_choice **out, uint32_t *n, const struct branch *b)
{
	uint32_t limit = b->n_all < b->n_batches ? b->n_all : (uint32_t)b->n_batches;
	struct dp_choice *choices = adp_calloc((size_t)limit + 1, sizeof *choices);

	*n = 0;
	if (!choices)
		return adp_nomem(b->err);
	for (uint32_t dp = 1; dp <= limit; dp++) {
		double stages[ADP_SEARCH_MAX_TYPES] = {0};

		if (((equal_batches(b->space, b->unit) || b->space->engine->batch_divides_evenly) &&
		     b->n_batches % dp) ||
		    !dp_worth_trying(b, dp) || !pin_allows(&b->space->opts->dp, dp))
			continue;
		for (uint32_t t = 0; t < b->n_types; t++)
			stages[t] = b->n[t] / dp;
		choices[*n].dp = dp;
		choices[(*n)++].bound_s = ceil((double)b->n_batches / dp) *
		                              work_bound(&b->work, stages,
		                                         fmin(b->max_pipe, floor(b->cap_slots / dp))) +
		                          b->space->engine->step_fixed_s;
	}
	qsort(choices, *n, sizeof *choices, dp_compare);
	*out = choices;
	return ADP_OK;
}

int unit_scout(struct candidate *best, struct counts *counts, struct evaluator *ev,
               const struct space *space, const struct unit *unit, struct adp_error *err)
{
	struct open_list open = {0};
	struct branch b;
	struct dp_choice *choices;
	uint32_t n_dp, n_tried = 0;
	int rc = branch_init(&b, space, unit, ev, best, counts, &open, err);

	if (rc == ADP_OK)
		rc = dp_choices(&choices, &n_dp, &b);
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0;
	     rc == ADP_OK && i < n_dp && n_tried < 4 && choices[i].bound_s < cut_s(space, best); i++) {
		uint32_t left = (uint32_t)fmin(b.max_pipe, floor(b.cap_slots / choices[i].dp));

		/* the faster types first */
		b.dp = choices[i].dp;
		for (uint32_t t = 0; t < b.n_types; t++) {
			b.share[t] = b.n[t] / b.dp < left ? b.n[t] / b.dp : left;
			left -= b.share[t];
		}
		n_tried++;
		rc = stages_try(&b);
	}
	adp_free(choices);
	adp_free(open.items);
	return rc;
}

int unit_search(struct candidate *best, struct counts *counts, struct open_list *open,
                struct evaluator *ev, const struct space *space, const struct unit *unit,
                struct adp_error *err)
{
	struct branch b;
	struct dp_choice *choices;
	uint32_t n_dp;
	int rc = branch_init(&b, space, unit, ev, best, counts, open, err);

	if (rc == ADP_OK)
		rc = dp_choices(&choices, &n_dp, &b);
	if (rc != ADP_OK)
		return rc;
	for (uint32_t i = 0; rc == ADP_OK && i < n_dp && !branch_spent(&b); i++) {
		if (choices[i].bound_s >= cut_s(space, best)) {
			counts->bounded += n_dp - i;
			break;
		}
		b.dp = choices[i].dp;
		rc = stages_search(&b);
	}
	adp_free(choices);
	for (uint32_t pp = 1; rc == ADP_OK && b.n_types > 1 && pp <= b.max_pipe && !branch_spent(&b);
	     pp++) {
		if (!pin_allows(&space->opts->pp, pp) || (unit->vpp > 1 && pp == 1))
			continue;
		rc = search_replicas(&b, pp);
	}
	return rc;
}
