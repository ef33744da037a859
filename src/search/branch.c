/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/critical.h"
#include "search/evaluator.h"

enum { OPEN_MAX = 16384 };

/* Up to this many slots every number of replicas is tried where the batches need not divide. */
static const uint32_t small_fleet_slots = 64;
/* Up to this many GPUs and shares of the replicas between the types all shares are tried. */
static const uint64_t small_fleet_gpus = 64, small_fleet_shares = 128;

/* Layers that each stage could hold, by type, for one size of the pipelines. */
struct rooms {
	uint32_t dp, pp, known; /* known: bit t */
	bool timed;             /* no more than the step's time allows either */
	uint16_t n[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE];
	double most[ADP_SEARCH_MAX_TYPES]; /* of any stage */
};

/* The search inside one unit: data-parallel size, and how many stages or replicas each type gives.
 */
struct branch {
	const struct space *space;
	const struct unit *unit;
	const struct shape_cost *sc;
	struct evaluator *ev;
	struct candidate *best;
	struct counts *counts;
	struct open_list *open;
	struct work work;
	uint32_t n_types, n[ADP_SEARCH_MAX_TYPES], n_all; /* slots of each type */
	uint64_t n_batches;
	double cap_slots;
	struct layer_room room[ADP_SEARCH_MAX_TYPES];
	struct rooms rooms;
	uint32_t max_pipe;
	struct adp_error *err;
	/* of the data-parallel size at hand */
	uint32_t dp, share[ADP_SEARCH_MAX_TYPES]; /* stages (or replicas) of each type */
};

/* Has this job weighed its share? Then what is left of the unit is left to the gap. */
static bool spent(struct branch *b)
{
	if (!b->space->max_weighed || b->counts->weighed < b->space->max_weighed)
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

/* Rules of engine and pins that hold for a whole composition; stage_replicas: replicas of each
 * group. */
static bool composition_legal(const struct branch *b, const struct composition *comp)
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

/* What the step may take beside the fixed part, and still be worth a look. */
static double limit_s(const struct branch *b)
{
	return cut_s(b->space, b->best) - b->space->engine->step_fixed_s;
}

/* Least time that a micro-batch spends in all stages: forward, and backward of one chunk of each.
 */
static double least_pass(const struct branch *b, const double *stages, double pp)
{
	double v = b->unit->vpp, layer_s = INFINITY, bwd_s = INFINITY, ends_s = 0.0, pass = 0.0;

	if (b->unit->vpp == 1) {
		for (uint32_t k = 0; k < b->work.n_kinds; k++) {
			double least = INFINITY;

			for (uint32_t t = 0; t < b->n_types; t++)
				if (stages[t] > 0.0 && b->work.time_s[t][k] < least)
					least = b->work.time_s[t][k];
			pass += b->work.amount[k] * least;
		}
		return pass;
	}
	for (uint32_t t = 0; t < b->n_types; t++)
		if (stages[t] > 0.0) {
			layer_s = fmin(layer_s, b->work.layer_fwd_s[t]);
			bwd_s = fmin(bwd_s, b->work.layer_bwd_s[t]);
		}
	for (uint32_t e = 0; e < N_END_KINDS; e++) {
		double least = INFINITY;

		for (uint32_t t = 0; t < b->n_types; t++)
			if (stages[t] > 0.0)
				least = fmin(least, b->work.end_fwd_s[t][e] + b->work.end_bwd_s[t][e]);
		ends_s += least;
	}
	/* a chunk may hold up to a layer less than its share */
	return b->work.n_layers * layer_s + ends_s +
	       fmax(0.0, b->work.n_layers - pp * (v - 1.0)) / v * bwd_s;
}

/*
 * The longest time of a stage, per micro-batch, that a step within the limit allows on at most
 * stages[t] stages of each type: the micro-batches one after the other, or the critical path of the
 * slowest stage m (critical.h), whose warm-up is at most that of the first stage.
 */
static double longest_stage(const struct branch *b, const double *stages, double pp, double n_micro)
{
	double v = b->unit->vpp, limit = limit_s(b) * (1.0 + 1e-9), tau = limit / n_micro;
	double warm = fmin(pp, n_micro), first = 0.0, slope;

	if (pp == 1.0 || !isfinite(limit) || (v > 1.0 && n_micro < pp))
		return tau;
	if (v > 1.0) {
		/* in forwards of the whole stage; uneven chunks of at least v layers add up to (pp - 1) (v
		 * - 1) / v */
		warm = ((v + 1.0) * pp - 1.0) / v + (pp - 1.0) * (v - 1.0) / (v * v);
		warm = fmin(warm, n_micro);
		for (uint32_t t = 0; t < b->n_types; t++)
			if (stages[t] > 0.0)
				first = fmax(first,
				             b->work.time_s[t][b->work.n_kinds - N_END_KINDS + KIND_EMBEDDING]);
		slope = n_micro - 1.0 / v - warm * b->work.fwd_share;
		limit += warm * 2.0 * b->work.end_excess_s + pp * first;
	} else {
		slope = n_micro - 1.0 - (warm - 1.0) * b->work.fwd_share;
		limit += (warm - 1.0) * 2.0 * b->work.end_excess_s;
	}
	return slope > 0.0 ? fmin(tau, (limit - least_pass(b, stages, pp)) / slope) : tau;
}

/*
 * The most layers that each stage of a pipeline could hold on GPUs of a type. With kinds of block
 * that differ, and where ZeRO's group hangs on the nodes, state and activations of the leanest
 * layer alone count.
 */
static const uint16_t *rooms_of(struct branch *b, uint32_t dp, uint32_t pp, bool timed, uint32_t t)
{
	struct rooms *rooms = &b->rooms;
	const struct space *space = b->space;
	uint32_t n_micro = (uint32_t)((b->n_batches + dp - 1) / dp), most = space->model->n_layers;
	double shard = (double)dp * b->sc->shape.cp, by_time = INFINITY;

	if (rooms->dp != dp || rooms->pp != pp || rooms->timed != timed) {
		rooms->dp = dp;
		rooms->pp = pp;
		rooms->timed = timed;
		rooms->known = 0;
	}
	if (rooms->known & (1u << t))
		return rooms->n[t];
	rooms->known |= 1u << t;
	if (timed)
		by_time = limit_s(b) / n_micro / b->work.layer_s[t] * (1.0 + 1e-9);
	if (by_time < most)
		most = by_time > 0.0 ? (uint32_t)by_time : 0;
	if (space->model->n_blocks == 1 && !b->unit->hybrid) {
		evaluator_size(b->ev, b->unit, dp, pp);
		stage_rooms(rooms->n[t], b->ev, &space->cluster->types[space->types[t]], most);
	} else {
		for (uint32_t s = 0; s < pp; s++) {
			double in_flight = adp_pipeline_in_flight(s, pp, b->unit->vpp, n_micro);

			rooms->n[t][s] = (uint16_t)fmin(most, layer_room_layers(&b->room[t], shard, in_flight));
		}
	}
	rooms->most[t] = 0.0;
	for (uint32_t s = 0; s < pp; s++)
		rooms->most[t] = fmax(rooms->most[t], rooms->n[t][s]);
	return rooms->n[t];
}

/* The most layers of any stage: exactly where rooms_of() was asked before. */
static double most_layers(const struct branch *b, uint32_t pp, uint32_t t)
{
	const struct rooms *rooms = &b->rooms;
	uint32_t n_micro = (uint32_t)((b->n_batches + b->dp - 1) / b->dp);

	if (rooms->dp == b->dp && rooms->pp == pp && rooms->timed && rooms->known & (1u << t))
		return rooms->most[t];
	return layer_room_layers(&b->room[t], (double)b->dp * b->sc->shape.cp,
	                         adp_pipeline_in_flight(pp - 1, pp, b->unit->vpp, n_micro));
}

/* Could pp stages, at most stages[t] of them of type t, beat the best plan? */
static bool stages_possible(struct branch *b, const double *stages, uint32_t pp, double n_micro)
{
	double tau = longest_stage(b, stages, pp, n_micro), most[ADP_SEARCH_MAX_TYPES];

	for (uint32_t t = 0; t < b->n_types; t++)
		most[t] = b->work.n_layers;
	if (!work_fits(&b->work, stages, most, pp, tau))
		return false;
	/* prices tell kinds of block apart */
	if (b->space->model->n_blocks > 1 && work_bound(&b->work, stages, pp) > tau)
		return false;
	for (uint32_t t = 0; t < b->n_types; t++)
		if (stages[t] > 0.0)
			most[t] = most_layers(b, pp, t);
	return work_fits(&b->work, stages, most, pp, tau);
}

/* Does the order of the types leave room for all layers within the limit? */
static bool order_possible(struct branch *b, const struct composition *comp)
{
	uint32_t n_micro = (uint32_t)((b->n_batches + comp->dp - 1) / comp->dp), room = 0;
	bool timed = comp->n_groups == 1 || equal_batches(b->space, b->unit);
	struct critical_rank ranks[ADP_SEARCH_MAX_PIPE];
	struct critical c;

	for (uint32_t s = 0; s < comp->pp; s++) {
		uint32_t most = UINT32_MAX;

		for (uint32_t g = 0; g < comp->n_groups; g++) {
			uint32_t n = rooms_of(b, comp->dp, comp->pp, timed, comp->group[g].stage_type[s])[s];

			most = n < most ? n : most;
		}
		ranks[s].most = most;
		ranks[s].least = s > 0 && s + 1 < comp->pp;
		room += most;
	}
	if (room < b->space->model->n_layers)
		return false;
	if (!timed || !isfinite(limit_s(b)) || (b->unit->vpp > 1 && n_micro % comp->pp))
		return true;
	for (uint32_t g = 0; g < comp->n_groups; g++) {
		for (uint32_t s = 0; s < comp->pp; s++) {
			uint32_t t = comp->group[g].stage_type[s];
			bool last = s + 1 == comp->pp;

			ranks[s].fwd_s = b->work.layer_fwd_s[t];
			ranks[s].bwd_s = b->work.layer_bwd_s[t];
			ranks[s].first_fwd_s = s == 0 ? b->work.end_fwd_s[t][KIND_EMBEDDING] : 0.0;
			ranks[s].last_fwd_s = last ? b->work.end_fwd_s[t][KIND_TAIL] : 0.0;
			ranks[s].end_bwd_s = (s == 0 ? b->work.end_bwd_s[t][KIND_EMBEDDING] : 0.0) +
			                     (last ? b->work.end_bwd_s[t][KIND_TAIL] : 0.0);
		}
		/* a transfer takes its fixed time at least */
		critical_init(&c, ranks, comp->pp, b->unit->vpp, n_micro, b->space->model->n_layers,
		              b->space->engine->p2p_fixed_s *
		                  ((double)comp->pp * b->unit->vpp + comp->pp - 2.0));
		if (!critical_possible(&c, limit_s(b)))
			return false;
	}
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

static int try_composition(struct branch *b, const struct composition *comp, double bound_s)
{
	bool open;
	int rc;

	if (bound_s >= cut_s(b->space, b->best) || !order_possible(b, comp)) {
		b->counts->bounded++;
		return ADP_OK;
	}
	rc = composition_try(b->best, b->counts, b->ev, b->unit, comp, &bound_s, &open, b->err);
	return rc == ADP_OK && open ? keep_open(b, comp, bound_s) : rc;
}

/* Every order of the types along the pipeline: order[0..n) is permuted in place. */
static int try_orders(struct branch *b, struct composition *comp, uint32_t *order, uint32_t n,
                      uint32_t at, double bound_s)
{
	if (at == n) {
		uint32_t s = 0;

		for (uint32_t i = 0; i < n; i++)
			for (uint32_t j = 0; j < b->share[order[i]]; j++)
				comp->group[0].stage_type[s++] = (uint8_t)order[i];
		return try_composition(b, comp, bound_s);
	}
	for (uint32_t i = at; i < n; i++) {
		uint32_t keep = order[at];
		int rc;

		order[at] = order[i];
		order[i] = keep;
		rc = try_orders(b, comp, order, n, at + 1, bound_s);
		order[i] = order[at];
		order[at] = keep;
		if (rc != ADP_OK)
			return rc;
	}
	return ADP_OK;
}

/* Equal layers: the slowest type in use sets the pace of the whole pipeline. picked: by type. */
static double equal_layers_bound(const struct branch *b, const bool *picked, uint32_t pp,
                                 double n_micro)
{
	double slowest = 0.0;

	if (!b->space->opts->equal_layers && b->space->engine->uneven_layers)
		return 0.0;
	for (uint32_t t = 0; t < b->n_types; t++)
		if (picked[t] && b->work.present[t])
			slowest = fmax(slowest, b->work.layer_s[t]);
	return n_micro * floor(b->work.n_layers / pp) * slowest + b->space->engine->step_fixed_s;
}

/* Each stage on one type, all replicas alike. */
static int try_stages(struct branch *b)
{
	struct composition comp;
	uint32_t order[ADP_SEARCH_MAX_TYPES], n = 0;
	double stages[ADP_SEARCH_MAX_TYPES], bound_s;
	double n_micro = ceil((double)b->n_batches / b->dp);

	memset(&comp, 0, sizeof comp);
	comp.dp = b->dp;
	comp.n_groups = 1;
	comp.group[0].n_replicas = b->dp;
	for (uint32_t t = 0; t < b->n_types; t++) {
		stages[t] = b->share[t];
		comp.pp += b->share[t];
		if (b->share[t])
			order[n++] = t;
	}
	if (comp.pp == 0 || !all_required(b) || !composition_legal(b, &comp))
		return ADP_OK;
	bound_s = n_micro * work_bound(&b->work, stages, INFINITY) + b->space->engine->step_fixed_s;
	if (bound_s >= cut_s(b->space, b->best) || !stages_possible(b, stages, comp.pp, n_micro)) {
		b->counts->bounded++;
		return ADP_OK;
	}
	return try_orders(b, &comp, order, n, 0, bound_s);
}

/* Most stages of a type at the data-parallel size at hand. */
static double type_stages(const struct branch *b, uint32_t t)
{
	return b->n[t] / b->dp;
}

/*
 * Number of stages of type t, most first, with left stages still to place. What is left may at best
 * be filled with the fastest types, so once that is too slow, fewer stages of this type are too.
 */
static int branch_stages(struct branch *b, uint32_t t, uint32_t pp, uint32_t left)
{
	double n_micro = ceil((double)b->n_batches / b->dp), stages[ADP_SEARCH_MAX_TYPES] = {0},
		   after = 0.0;
	uint32_t most = (uint32_t)fmin(type_stages(b, t), left), least = 0;

	for (uint32_t i = t + 1; i < b->n_types; i++)
		after += type_stages(b, i);
	if (after < left)
		least = left - (uint32_t)after;
	for (uint32_t p = most + 1; p-- > least && !spent(b);) {
		bool picked[ADP_SEARCH_MAX_TYPES] = {false};
		int rc;

		b->share[t] = p;
		for (uint32_t i = 0; i < b->n_types; i++)
			stages[i] = i < t ? b->share[i] : i == t ? p : fmin(type_stages(b, i), left);
		/* at most p stages of this type is too slow: so are fewer */
		if (!stages_possible(b, stages, pp, n_micro)) {
			b->counts->bounded++;
			break;
		}
		for (uint32_t i = 0; i < b->n_types; i++)
			picked[i] = (i <= t && b->share[i]) || b->space->type_required[i];
		if (equal_layers_bound(b, picked, pp, n_micro) >= cut_s(b->space, b->best)) {
			b->counts->bounded++;
			continue;
		}
		rc = t + 1 == b->n_types ? try_stages(b) : branch_stages(b, t + 1, pp, left - p);
		if (rc != ADP_OK)
			return rc;
	}
	b->share[t] = 0;
	return ADP_OK;
}

/* All stages alike in every replica, for each depth of the pipeline. */
static int search_stages(struct branch *b)
{
	double n_micro = ceil((double)b->n_batches / b->dp), stages[ADP_SEARCH_MAX_TYPES], all = 0.0;
	uint32_t most;
	int rc = ADP_OK;

	for (uint32_t t = 0; t < b->n_types; t++)
		all += stages[t] = type_stages(b, t);
	most = (uint32_t)fmin(fmin(all, floor(b->cap_slots / b->dp)), b->max_pipe);
	for (uint32_t pp = most; rc == ADP_OK && pp >= 1; pp--) {
		if (!pin_allows(&b->space->opts->pp, pp) ||
		    !pin_allows(&b->space->opts->gpus, (uint64_t)b->dp * pp * b->sc->slots->size))
			continue;
		if (equal_layers_bound(b, b->space->type_required, pp, n_micro) >=
		        cut_s(b->space, b->best) ||
		    !stages_possible(b, stages, pp, n_micro)) {
			b->counts->bounded++;
			continue;
		}
		rc = branch_stages(b, 0, pp, pp);
	}
	return rc;
}

/* Each replica on one type: data parallelism across the types. */
static int try_replicas(struct branch *b, uint32_t pp)
{
	struct composition comp;
	const struct adp_engine *engine = b->space->engine;
	bool equal = equal_batches(b->space, b->unit);
	double slots[ADP_SEARCH_MAX_TYPES] = {0}, bound_s;

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
	if (comp.n_groups < 2 || !all_required(b) || !composition_legal(b, &comp))
		return ADP_OK;
	bound_s = (double)b->n_batches * work_bound(&b->work, slots, INFINITY);
	for (uint32_t t = 0; equal && t < b->n_types; t++) {
		double one[ADP_SEARCH_MAX_TYPES] = {0};

		/* every replica runs the same count, so each type's own pace bounds the step */
		if (!b->share[t])
			continue;
		one[t] = pp;
		bound_s = fmax(bound_s,
		               (double)b->n_batches / comp.dp * work_bound(&b->work, one, INFINITY));
	}
	return try_composition(b, &comp, bound_s + engine->step_fixed_s);
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
	for (uint32_t r = most + 1; r-- > 0 && !spent(b);) {
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
			double one[ADP_SEARCH_MAX_TYPES] = {0};

			if (!(set & (1u << t)))
				continue;
			one[t] = pp;
			pace = fmax(pace, work_bound(&b->work, one, INFINITY));
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
	*b = (struct branch){.space = space,
	                     .unit = unit,
	                     .sc = &space->shapes[unit->shape],
	                     .ev = ev,
	                     .best = best,
	                     .counts = counts,
	                     .open = open,
	                     .n_types = space->n_types,
	                     .err = err};
	work_build(&b->work, space, unit);
	b->n_batches = unit_batches(space, unit);
	for (uint32_t t = 0; t < b->n_types; t++) {
		b->n[t] = unit_slots(space, unit, t);
		b->n_all += b->n[t];
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
		uint32_t pp = 0;

		b.dp = choices[i].dp;
		for (uint32_t t = 0; t < b.n_types; t++) {
			b.share[t] = b.n[t] / b.dp;
			pp += b.share[t];
		}
		if (pp > b.max_pipe || (double)pp * b.dp > b.cap_slots)
			continue;
		n_tried++;
		rc = try_stages(&b);
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
	for (uint32_t i = 0; rc == ADP_OK && i < n_dp && !spent(&b); i++) {
		if (choices[i].bound_s >= cut_s(space, best)) {
			counts->bounded += n_dp - i;
			break;
		}
		b.dp = choices[i].dp;
		rc = search_stages(&b);
	}
	adp_free(choices);
	for (uint32_t pp = 1; rc == ADP_OK && b.n_types > 1 && pp <= b.max_pipe && !spent(&b); pp++) {
		if (!pin_allows(&space->opts->pp, pp) || (unit->vpp > 1 && pp == 1))
			continue;
		rc = search_replicas(&b, pp);
	}
	return rc;
}
