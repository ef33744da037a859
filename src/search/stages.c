/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "search/branch.h"
#include "search/critical.h"

/* Pipelines whose stages stand on several types of GPU, all replicas alike. */

/* What the step may take beside the fixed part, and still be worth a look. */
static double limit_s(const struct branch *b)
{
	return cut_s(b->space, b->best) - b->space->engine->step_fixed_s;
}

static uint32_t most_batches(const struct branch *b, uint32_t dp)
{
	return (uint32_t)((b->n_batches + dp - 1) / dp);
}

/* Stages may hold the same number of layers only. */
static bool equal_layers(const struct space *space)
{
	return space->opts->equal_layers || !space->engine->uneven_layers;
}

/* Shortest send from a stage on type t to the next one, on type u. */
static double least_send(const struct branch *b, uint32_t dp, uint32_t t, uint32_t u)
{
	double s = b->sc->far_send_s[t][u];

	/* neighbours stand dp slots apart */
	return t == u && dp < b->sc->near_dp[t] ? fmin(s, b->sc->near_send_s[t]) : s;
}

/* All sends that a micro-batch waits for on its way through pp stages on types of a set. */
static double least_sends(const struct branch *b, uint32_t dp, double pp, uint32_t types)
{
	double least = INFINITY;

	if (pp == 1.0)
		return 0.0;
	for (uint32_t t = 0; t < b->n_types; t++)
		for (uint32_t u = 0; u < b->n_types; u++)
			if (types >> t & types >> u & 1u)
				least = fmin(least, least_send(b, dp, t, u));
	return least * (pp * b->unit->vpp + pp - 2.0);
}

/* The same when it is known where the types stand. */
static double chain_sends(const struct branch *b, uint32_t dp, uint32_t pp, const uint8_t *type)
{
	double sum = 0.0;

	for (uint32_t s = 0; s + 1 < pp; s++)
		sum += (b->unit->vpp + 1.0) * least_send(b, dp, type[s], type[s + 1]);
	return sum + (b->unit->vpp - 1.0) * least_send(b, dp, type[pp - 1], type[0]);
}

/* Do critical paths tell anything about this schedule? */
static bool has_critical(const struct branch *b, uint32_t pp, uint32_t n_micro)
{
	assert(pp > 0);
	return isfinite(limit_s(b)) && (b->unit->vpp == 1 || n_micro % pp == 0);
}

/* ---- time ----------------------------------------------------------------------------- */

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
	uint32_t types = 0;

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
	for (uint32_t t = 0; t < b->n_types; t++)
		types |= (uint32_t)(stages[t] > 0.0) << t;
	limit -= least_pass(b, stages, pp) + least_sends(b, b->dp, pp, types);
	return slope > 0.0 ? fmin(tau, limit / slope) : tau;
}

/* ---- room ----------------------------------------------------------------------------- */

/* Rank s of a pipeline if it stands on type t, without its room. */
static struct critical_rank rank_on(const struct branch *b, uint32_t t, uint32_t s, uint32_t pp)
{
	const struct work *w = &b->work;
	bool first = s == 0, last = s + 1 == pp;

	return (struct critical_rank){
		.fwd_s = w->layer_fwd_s[t],
		.bwd_s = w->layer_bwd_s[t],
		.first_fwd_s = first ? w->end_fwd_s[t][KIND_EMBEDDING] : 0.0,
		.last_fwd_s = last ? w->end_fwd_s[t][KIND_TAIL] : 0.0,
		.end_bwd_s = (first ? w->end_bwd_s[t][KIND_EMBEDDING] : 0.0) +
	                 (last ? w->end_bwd_s[t][KIND_TAIL] : 0.0),
		.least = b->unit->vpp > 1 || (!first && !last),
	};
}

/* Times of the ways of recomputing. */
static void rank_ways(struct critical_rank *rank, const struct branch *b, uint32_t t)
{
	rank->n_ways = b->rooms.n_ways;
	for (uint32_t w = 0; w < rank->n_ways; w++)
		rank->way_bwd_s[w] = rank->bwd_s + b->work.layer_recompute_s[t][b->rooms.way[w]];
}

/*
 * By memory, and by time as far as the micro-batches one after the other tell. With kinds of block
 * that differ, and where ZeRO's group hangs on the nodes, the leanest layer stands for all.
 */
static void memory_rooms(struct branch *b, uint32_t t)
{
	struct rooms *rooms = &b->rooms;
	const struct space *space = b->space;
	const struct adp_gpu_type *gpu = &space->cluster->types[space->types[t]];
	uint32_t n_micro = most_batches(b, rooms->dp), n_layers = space->model->n_layers;

	evaluator_size(b->ev, b->unit, rooms->dp, rooms->pp);
	for (uint32_t w = 0; w < rooms->n_ways; w++) {
		double layer_s = b->work.layer_s[t] + b->work.layer_recompute_s[t][rooms->way[w]], by_time;
		uint32_t most = n_layers;

		by_time = rooms->timed ? limit_s(b) / n_micro / layer_s * (1.0 + 1e-9) : INFINITY;
		if (by_time < most)
			most = by_time > 0.0 ? (uint32_t)by_time : 0;
		if (rooms->timed && equal_layers(space) && most > (n_layers + rooms->pp - 1) / rooms->pp)
			most = (n_layers + rooms->pp - 1) / rooms->pp;
		if (rooms->leanest)
			stage_rooms_mixed(rooms->way_n[w][t], b->ev, gpu, &b->room[t], most);
		else
			stage_rooms(rooms->way_n[w][t], b->ev, gpu, rooms->way[w], most);
	}
	for (uint32_t s = 0; s < rooms->pp; s++) {
		bool shut = true;

		for (uint32_t w = 0; w < rooms->n_ways; w++)
			shut = shut && rooms->way_n[w][t][s] == 0;
		rooms->shut_before[t][s + 1] = rooms->shut_before[t][s] + (shut && stage_shut(b->ev, s));
	}
}

/* The ways of recomputing that tell times and rooms apart. */
static void ways_of(struct branch *b)
{
	struct rooms *rooms = &b->rooms;

	rooms->leanest = b->space->model->n_blocks > 1 || b->unit->hybrid;
	rooms->n_ways = 0;
	for (int r = 0; r < ADP_N_RECOMPUTE; r++)
		if (b->unit->recompute >= 0 ? b->unit->recompute == r
		                            : b->space->engine->recompute_mask & (1u << r))
			rooms->way[rooms->n_ways++] = (uint8_t)r;
	if (rooms->leanest)
		rooms->n_ways = 1;
}

/* What the critical path of each stage leaves to layers of a type. */
static void critical_lines(struct branch *b, uint32_t t)
{
	struct rooms *rooms = &b->rooms;
	struct critical_rank ranks[ADP_SEARCH_MAX_PIPE];
	struct critical c;

	for (uint32_t s = 0; s < rooms->pp; s++) {
		ranks[s] = rank_on(b, t, s, rooms->pp);
		rank_ways(&ranks[s], b, t);
	}
	critical_init(&c, ranks, rooms->pp, b->unit->vpp, most_batches(b, rooms->dp),
	              b->space->model->n_layers, NULL, NULL);
	for (uint32_t s = 0; s < rooms->pp; s++) {
		double slope_s[ADP_N_RECOMPUTE];

		critical_line(&c, s, &rooms->base_s[t][s], slope_s);
		for (uint32_t w = 0; w < rooms->n_ways; w++)
			rooms->per_s[w][t][s] = slope_s[w] > 0.0 ? 1.0 / slope_s[w] : INFINITY;
	}
}

/* Layers that stage s on type t could hold if every micro-batch passes all stages own_s before the
 * limit or later. */
static uint32_t room_within(const struct rooms *rooms, uint32_t t, uint32_t s, double own_s)
{
	double left_s = own_s - rooms->base_s[t][s];
	uint32_t most = 0;

	for (uint32_t w = 0; w < rooms->n_ways; w++) {
		uint32_t n = rooms->way_n[w][t][s];

		if (rooms->critical) {
			double by_time = left_s > 0.0 ? left_s * rooms->per_s[w][t][s] * (1.0 + 1e-12) : 0.0;

			n = by_time < n ? (uint32_t)by_time : n;
		}
		most = n > most ? n : most;
	}
	return most;
}

/*
 * Least time that a micro-batch spends in all stages, with at most most[t] stages of type t that
 * hold room[t] layers together: where a layer takes least is filled first. The first vpp - 1 layers
 * of a stage may all lie before its last chunk, whose backward alone counts.
 */
static double filled_pass(const struct branch *b, const uint32_t *most, const double *room,
                          double sends_s)
{
	const struct rooms *rooms = &b->rooms;
	const struct work *w = &b->work;
	double v = b->unit->vpp, left = w->n_layers, first_left = rooms->pp * (v - 1.0);
	double sum = sends_s;
	double filled[ADP_SEARCH_MAX_TYPES] = {0};
	bool taken[2 * ADP_SEARCH_MAX_TYPES] = {false};

	for (uint32_t e = 0; e < N_END_KINDS; e++) {
		double least = INFINITY;

		for (uint32_t t = 0; t < b->n_types; t++)
			if (rooms->types >> t & 1u)
				least = fmin(least, w->end_fwd_s[t][e] + w->end_bwd_s[t][e]);
		sum += least;
	}
	while (left > 0.0) {
		uint32_t pick = 2 * ADP_SEARCH_MAX_TYPES;
		double pick_s = INFINITY, n;

		for (uint32_t i = v > 1.0 ? 0 : 1; i<2 * b->n_types; i += v> 1.0 ? 1 : 2) {
			double layer_s = w->layer_fwd_s[i / 2] + (i % 2 ? w->layer_bwd_s[i / 2] / v : 0.0);

			if (!taken[i] && rooms->types >> i / 2 & 1u && layer_s < pick_s) {
				pick = i;
				pick_s = layer_s;
			}
		}
		if (pick == 2 * ADP_SEARCH_MAX_TYPES)
			return INFINITY; /* no room */
		taken[pick] = true;
		n = fmin(pick % 2 ? (double)INFINITY : most[pick / 2] * (v - 1.0),
		         fmin(room[pick / 2] - filled[pick / 2], left));
		if (pick % 2 == 0) {
			n = fmin(n, first_left);
			first_left -= n;
		}
		filled[pick / 2] += n;
		sum += n * pick_s;
		left -= n;
	}
	return sum;
}

/*
 * The most layers that each stage of a pipeline could hold on each of the types; most: stages of
 * each type, or NULL when any number may be.
 */
static void rooms_of(struct branch *b, uint32_t dp, uint32_t pp, bool timed, uint32_t types,
                     const uint32_t *most)
{
	struct rooms *rooms = &b->rooms;
	uint32_t n_micro = most_batches(b, dp), n_layers = b->space->model->n_layers;
	double pass_s = 0.0, present[ADP_SEARCH_MAX_TYPES] = {0}, room[ADP_SEARCH_MAX_TYPES] = {0};
	double sends_s = least_sends(b, dp, pp, types);

	if (rooms->dp == dp && rooms->pp == pp && rooms->timed == timed && rooms->types == types)
		return;
	rooms->dp = dp;
	rooms->pp = pp;
	rooms->timed = timed;
	rooms->types = types;
	rooms->critical = timed && has_critical(b, pp, n_micro);
	ways_of(b);
	for (uint32_t t = 0; t < b->n_types; t++) {
		present[t] = types >> t & 1u;
		if (present[t] > 0.0)
			memory_rooms(b, t);
		if (present[t] > 0.0 && rooms->critical)
			critical_lines(b, t);
	}
	if (rooms->critical)
		pass_s = least_pass(b, present, pp) + sends_s;
	/* less room makes for a longer pass, which leaves less room */
	for (uint32_t i = 0; i < (most ? 3 : 1); i++) {
		for (uint32_t t = 0; t < b->n_types; t++) {
			if (!(types >> t & 1u))
				continue;
			rooms->most[t] = 0.0;
			for (uint32_t s = 0; s < pp; s++) {
				uint32_t n = room_within(rooms, t, s, limit_s(b) * (1.0 + 1e-9) - pass_s);

				if (timed && equal_layers(b->space)) {
					uint32_t given = n_layers / pp + (s < n_layers % pp);

					n = n >= given ? given : 0;
				}
				rooms->n[t][s] = (uint16_t)n;
				rooms->most[t] = fmax(rooms->most[t], n);
				rooms->before[t][s + 1] = rooms->before[t][s] + n;
			}
		}
		for (uint32_t t = 0; most && t < b->n_types; t++)
			room[t] = most[t] * rooms->most[t];
		if (most)
			pass_s = fmax(pass_s, filled_pass(b, most, room, sends_s));
	}
}

/* The most layers of any stage: exactly where rooms_of() was asked before. */
static double most_layers(const struct branch *b, uint32_t pp, uint32_t t)
{
	const struct rooms *rooms = &b->rooms;

	if (rooms->dp == b->dp && rooms->pp == pp && rooms->timed && rooms->types >> t & 1u)
		return rooms->most[t];
	return layer_room_layers(
		&b->room[t], (double)b->dp * b->sc->shape.cp,
		adp_pipeline_in_flight(pp - 1, pp, b->unit->vpp, most_batches(b, b->dp)));
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

bool stages_order_possible(struct branch *b, const struct composition *comp)
{
	uint32_t n_micro = most_batches(b, comp->dp), types = 0, room = 0;
	bool timed = comp->n_groups == 1 || equal_batches(b->space, b->unit);
	struct critical_rank ranks[ADP_SEARCH_MAX_PIPE];
	uint32_t most[ADP_SEARCH_MAX_PIPE];
	struct critical c;

	for (uint32_t g = 0; g < comp->n_groups; g++)
		for (uint32_t s = 0; s < comp->pp; s++)
			types |= 1u << comp->group[g].stage_type[s];
	/* those of the whole search over this pipeline hold as well */
	if (b->rooms.dp != comp->dp || b->rooms.pp != comp->pp || b->rooms.timed != timed ||
	    (b->rooms.types & types) != types)
		rooms_of(b, comp->dp, comp->pp, timed, types, NULL);
	for (uint32_t s = 0; s < comp->pp; s++) {
		most[s] = UINT32_MAX;
		for (uint32_t g = 0; g < comp->n_groups; g++) {
			uint32_t t = comp->group[g].stage_type[s], n = b->rooms.n[t][s];

			if (b->rooms.shut_before[t][s + 1] > b->rooms.shut_before[t][s])
				return false;
			most[s] = n < most[s] ? n : most[s];
		}
		room += most[s];
	}
	if (room < b->space->model->n_layers)
		return false;
	if (!timed || !has_critical(b, comp->pp, n_micro))
		return true;
	for (uint32_t g = 0; g < comp->n_groups; g++) {
		for (uint32_t s = 0; s < comp->pp; s++) {
			uint32_t t = comp->group[g].stage_type[s];

			ranks[s] = rank_on(b, t, s, comp->pp);
			rank_ways(&ranks[s], b, t);
			for (uint32_t w = 0; w < ranks[s].n_ways; w++)
				ranks[s].most[w] = b->rooms.way_n[w][t][s] < most[s] ? b->rooms.way_n[w][t][s]
				                                                     : most[s];
		}
		critical_init(&c, ranks, comp->pp, b->unit->vpp, n_micro, b->space->model->n_layers, NULL,
		              NULL);
		c.pass_s[PATH_IN] += chain_sends(b, comp->dp, comp->pp, comp->group[g].stage_type);
		if (!critical_possible(&c, limit_s(b), NULL))
			return false;
	}
	return true;
}

/* ---- the types along the pipeline ----------------------------------------------------- */

/* Stage after stage is given to a type; each type has one run of neighbours at most. */
struct chain {
	struct branch *b;
	struct composition comp;
	double n_micro;
	uint32_t types;                                                   /* bit t */
	uint32_t least[ADP_SEARCH_MAX_TYPES], most[ADP_SEARCH_MAX_TYPES]; /* stages of a type */
	/* the most layers that stages s and later can hold on types of a set; -1: none can */
	int32_t (*rest)[1u << ADP_SEARCH_MAX_TYPES];
};

/* Fills c->rest for the sets of c->types. */
static void chain_rest(struct chain *c)
{
	const struct rooms *rooms = &c->b->rooms;
	uint32_t pp = c->comp.pp;

	for (uint32_t set = 0; set <= c->types; set++) {
		if (set & ~c->types)
			continue;
		for (uint32_t s = 0; s <= pp; s++)
			c->rest[s][set] = s == pp ? 0 : -1;
		for (uint32_t t = 0; t < c->b->n_types; t++) {
			uint32_t without = set & ~(1u << t), window[ADP_SEARCH_MAX_PIPE + 1], from = pp + 1,
					 to = pp + 1;
			const uint32_t *before = rooms->before[t];

			if (without == set)
				continue;
			/* a run of t from s ends at the best x up to s + most: the largest of a sliding window,
			 * kept in falling order from window[from] */
			for (uint32_t s = pp + 1; s-- > 0;) {
				int32_t here = c->rest[s][without];

				/* no run of t holds a stage that has no room for itself */
				if (s < pp && rooms->shut_before[t][s + 1] > rooms->shut_before[t][s])
					from = to = pp + 1;

				if (here >= 0) {
					int32_t end_here = (int32_t)before[s] + here;

					while (from < to &&
					       (int32_t)before[window[from]] + c->rest[window[from]][without] <=
					           end_here)
						from++;
					window[--from] = s;
				}
				while (from < to && window[to - 1] > s + c->most[t])
					to--;
				if (from < to) {
					/* the newest is the smallest end, the oldest still in reach the largest room */
					uint32_t x = window[to - 1];
					int32_t n = (int32_t)(before[x] - before[s]) + c->rest[x][without];

					if (n > c->rest[s][set])
						c->rest[s][set] = n;
				}
			}
		}
	}
}

/* Do the critical paths leave room for all layers, now that it is known how many stages of each
 * type there are and where they stand? A quick look before stages_order_possible(). */
static bool chain_possible(const struct chain *c)
{
	struct branch *b = c->b;
	const struct rooms *rooms = &b->rooms;
	const uint8_t *types = c->comp.group[0].stage_type;
	double own_s, room[ADP_SEARCH_MAX_TYPES] = {0};
	uint32_t sum = 0;

	if (!rooms->critical)
		return true;
	for (uint32_t s = 0, n; s < c->comp.pp; s += n) {
		n = b->share[types[s]];
		room[types[s]] = rooms->before[types[s]][s + n] - rooms->before[types[s]][s];
	}
	own_s = limit_s(b) * (1.0 + 1e-9) -
	        filled_pass(b, b->share, room, chain_sends(b, c->comp.dp, c->comp.pp, types));
	for (uint32_t s = 0; s < c->comp.pp; s++)
		sum += room_within(rooms, types[s], s, own_s);
	return sum >= b->space->model->n_layers;
}

static int chain_leaf(struct chain *c)
{
	struct branch *b = c->b;
	double stages[ADP_SEARCH_MAX_TYPES] = {0}, bound_s;

	for (uint32_t t = 0; t < b->n_types; t++) {
		if (b->share[t] < c->least[t] || (b->space->type_required[t] && !b->share[t]))
			return ADP_OK;
		stages[t] = b->share[t];
	}
	if (!chain_possible(c)) {
		b->counts->bounded++;
		return ADP_OK;
	}
	bound_s = c->n_micro * work_bound(&b->work, stages, INFINITY) + b->space->engine->step_fixed_s;
	return branch_try(b, &c->comp, bound_s);
}

/* Stages s and later on the types of the set; the stages before hold at most room layers. */
static int chain_from(struct chain *c, uint32_t s, uint32_t set, uint32_t room)
{
	struct branch *b = c->b;
	uint32_t pp = c->comp.pp, n_layers = b->space->model->n_layers;

	if (s == pp)
		return chain_leaf(c);
	for (uint32_t t = 0; t < b->n_types; t++) {
		uint32_t without = set & ~(1u << t), most = c->most[t] < pp - s ? c->most[t] : pp - s;
		const uint32_t *before = b->rooms.before[t];

		if (without == set)
			continue;
		memset(c->comp.group[0].stage_type + s, (int)t, most);
		for (uint32_t p = most; p > 0 && p >= c->least[t] && !branch_spent(b); p--) {
			uint32_t here = room + before[s + p] - before[s];
			double stages[ADP_SEARCH_MAX_TYPES] = {0};
			int rc;

			b->counts->work += WORK_OF_LOOK;
			if (b->rooms.shut_before[t][s + p] > b->rooms.shut_before[t][s]) {
				b->counts->bounded++;
				continue;
			}
			if (c->rest[s + p][without] < 0) {
				b->counts->bounded++;
				continue;
			}
			if (here + (uint32_t)c->rest[s + p][without] < n_layers) {
				b->counts->bounded++;
				continue;
			}
			/* at most p stages of this type is too slow: so are fewer */
			b->share[t] = p;
			for (uint32_t i = 0; i < b->n_types; i++)
				stages[i] = i == t || !(set >> i & 1u) ? b->share[i] : fmin(c->most[i], pp - s);
			if (!stages_possible(b, stages, pp, c->n_micro)) {
				b->counts->bounded++;
				break;
			}
			rc = chain_from(c, s + p, without, here);
			if (rc != ADP_OK)
				return rc;
		}
		b->share[t] = 0;
	}
	return ADP_OK;
}

/* All chains of pp stages with least[t] to most[t] stages of each type. */
static int chain_search(struct branch *b, uint32_t pp, const uint32_t *least, const uint32_t *most)
{
	int32_t rest[ADP_SEARCH_MAX_PIPE + 1][1u << ADP_SEARCH_MAX_TYPES];
	struct chain c = {.b = b, .rest = rest};
	uint32_t share[ADP_SEARCH_MAX_TYPES];
	int rc;

	c.comp.dp = b->dp;
	c.comp.pp = pp;
	c.comp.n_groups = 1;
	c.comp.group[0].n_replicas = b->dp;
	c.n_micro = most_batches(b, b->dp);
	if (!branch_legal(b, &c.comp))
		return ADP_OK;
	for (uint32_t t = 0; t < b->n_types; t++) {
		c.least[t] = least[t];
		c.most[t] = most[t];
		if (most[t])
			c.types |= 1u << t;
	}
	b->rooms.dp = 0;
	rooms_of(b, b->dp, pp, true, c.types, c.most);
	chain_rest(&c);
	if (c.rest[0][c.types] < (int32_t)b->space->model->n_layers) {
		b->rooms.dp = 0;
		b->counts->bounded++;
		return ADP_OK;
	}
	memcpy(share, b->share, sizeof share);
	memset(b->share, 0, sizeof b->share);
	rc = chain_from(&c, 0, c.types, 0);
	memcpy(b->share, share, sizeof share);
	b->rooms.dp = 0; /* they hold for these numbers of stages */
	return rc;
}

int stages_try(struct branch *b)
{
	uint32_t pp = 0;

	for (uint32_t t = 0; t < b->n_types; t++)
		pp += b->share[t];
	return pp ? chain_search(b, pp, b->share, b->share) : ADP_OK;
}

int stages_search(struct branch *b)
{
	static const uint32_t none[ADP_SEARCH_MAX_TYPES];
	double n_micro = most_batches(b, b->dp), stages[ADP_SEARCH_MAX_TYPES] = {0}, all = 0.0;
	uint32_t most_pp, most[ADP_SEARCH_MAX_TYPES] = {0};
	int rc = ADP_OK;

	for (uint32_t t = 0; t < b->n_types; t++)
		all += stages[t] = most[t] = b->n[t] / b->dp;
	most_pp = (uint32_t)fmin(fmin(all, floor(b->cap_slots / b->dp)), b->max_pipe);
	for (uint32_t pp = most_pp; rc == ADP_OK && pp >= 1 && !branch_spent(b); pp--) {
		if (!pin_allows(&b->space->opts->pp, pp) ||
		    !pin_allows(&b->space->opts->gpus, (uint64_t)b->dp * pp * b->sc->slots->size))
			continue;
		if (!stages_possible(b, stages, pp, n_micro)) {
			b->counts->bounded++;
			continue;
		}
		rc = chain_search(b, pp, none, most);
	}
	return rc;
}
