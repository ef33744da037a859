/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "search/internal.h"

uint64_t unit_batches(const struct space *space, const struct unit *unit)
{
	return space->train->global_batch_seqs / space->shapes[unit->shape].shape.micro_batch_seqs;
}

uint32_t unit_slots(const struct space *space, const struct unit *unit, uint32_t t)
{
	const struct shape_cost *sc = &space->shapes[unit->shape];
	const struct adp_gpu_type *gpu = &space->cluster->types[space->types[t]];

	return sc->shape.cp > 1 && !adp_flash_available(space->engine, gpu, space->train->precision)
	           ? 0
	           : sc->slots->type[t].n;
}

/* Forward and backward of a kind on a class, with the cheapest recomputation the unit allows. */
static double kind_time(const struct adp_item_time *t, int recompute, bool block)
{
	return t->fwd_s + t->bwd_s +
	       (block && recompute > 0 && recompute < ADP_N_RECOMPUTE ? t->recompute_s[recompute]
	                                                              : 0.0);
}

/* Prices by one type's times over the first n_kinds kinds. */
static void price_build(struct work *out, uint32_t ref, uint32_t n_kinds, uint32_t n_types)
{
	uint32_t p = out->n_prices++, n = 0;

	for (uint32_t k = 0; k < n_kinds; k++)
		out->price[p].cost += out->amount[k] * out->time_s[ref][k];
	for (uint32_t t = 0; t < n_types; t++) {
		double rate = 0.0;
		uint32_t at;

		if (!out->present[t])
			continue;
		for (uint32_t k = 0; k < n_kinds; k++)
			if (out->amount[k] > 0.0 && out->time_s[t][k] > 0.0)
				rate = fmax(rate, out->time_s[ref][k] / out->time_s[t][k]);
		for (at = n++; at > 0 && out->price[p].rate[at - 1] < rate; at--) {
			out->price[p].rate[at] = out->price[p].rate[at - 1];
			out->price[p].type[at] = out->price[p].type[at - 1];
		}
		out->price[p].rate[at] = rate;
		out->price[p].type[at] = (uint8_t)t;
	}
	out->price[p].n = n;
}

/* Forward and backward apart. */
static void work_passes(struct work *out, const struct space *space, const struct unit *unit)
{
	const struct shape_cost *sc = &space->shapes[unit->shape];
	uint32_t n_blocks = space->model->n_blocks;

	for (uint32_t t = 0; t < space->n_types; t++) {
		out->layer_fwd_s[t] = out->layer_bwd_s[t] = INFINITY;
		for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
			out->layer_recompute_s[t][r] = unit->recompute < 0 ? INFINITY : 0.0;
		for (uint32_t e = 0; e < N_END_KINDS; e++)
			out->end_fwd_s[t][e] = out->end_bwd_s[t][e] = INFINITY;
		for (uint32_t c = 0; c < sc->slots->n_classes; c++) {
			if (space->types[t] != sc->slots->classes[c].type)
				continue;
			for (uint32_t k = 0; k < n_blocks; k++) {
				const struct adp_item_time *time = &sc->block[c * n_blocks + k];

				if (out->amount[k] <= 0.0)
					continue;
				out->layer_fwd_s[t] = fmin(out->layer_fwd_s[t], time->fwd_s);
				out->layer_bwd_s[t] = fmin(out->layer_bwd_s[t],
				                           kind_time(time, unit->recompute, true) - time->fwd_s);
				for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
					out->layer_recompute_s[t][r] = fmin(out->layer_recompute_s[t][r],
					                                    time->recompute_s[r]);
			}
			for (uint32_t e = 0; e < N_END_KINDS; e++) {
				const struct adp_item_time *time = &sc->end[c * N_END_KINDS + e];

				out->end_fwd_s[t][e] = fmin(out->end_fwd_s[t][e], time->fwd_s);
				out->end_bwd_s[t][e] = fmin(out->end_bwd_s[t][e], time->bwd_s);
			}
		}
	}
}

void work_build(struct work *out, const struct space *space, const struct unit *unit)
{
	const struct shape_cost *sc = &space->shapes[unit->shape];
	uint32_t n_blocks = space->model->n_blocks;

	memset(out, 0, sizeof *out);
	out->n_kinds = n_blocks + N_END_KINDS;
	for (uint32_t k = 0; k < n_blocks; k++)
		out->amount[k] = space->n_before[k * (space->model->n_layers + 1) + space->model->n_layers];
	for (uint32_t k = n_blocks; k < out->n_kinds; k++)
		out->amount[k] = 1.0;
	for (uint32_t c = 0; c < sc->slots->n_classes; c++) {
		for (uint32_t t = 0; t < space->n_types; t++) {
			if (space->types[t] != sc->slots->classes[c].type)
				continue;
			for (uint32_t k = 0; k < out->n_kinds; k++) {
				const struct adp_item_time *time = k < n_blocks
				                                       ? &sc->block[c * n_blocks + k]
				                                       : &sc->end[c * N_END_KINDS + k - n_blocks];
				double s = kind_time(time, unit->recompute, k < n_blocks);

				if (!out->present[t] || s < out->time_s[t][k])
					out->time_s[t][k] = s;
				if (s > 0.0 && k < n_blocks)
					out->fwd_share = fmax(out->fwd_share, time->fwd_s / s);
			}
			out->present[t] = true;
		}
	}
	for (uint32_t c = 0; c < sc->slots->n_classes; c++)
		for (uint32_t e = 0; e < N_END_KINDS; e++) {
			const struct adp_item_time *time = &sc->end[c * N_END_KINDS + e];

			out->end_excess_s = fmax(out->end_excess_s,
			                         time->fwd_s - out->fwd_share * (time->fwd_s + time->bwd_s));
		}
	for (uint32_t k = 0; k < n_blocks; k++)
		out->n_layers += out->amount[k];
	for (uint32_t t = 0; t < space->n_types; t++) {
		out->layer_s[t] = INFINITY;
		for (uint32_t k = 0; k < n_blocks && out->present[t]; k++)
			if (out->amount[k] > 0.0)
				out->layer_s[t] = fmin(out->layer_s[t], out->time_s[t][k]);
	}
	work_passes(out, space, unit);
	for (uint32_t ref = 0; ref < space->n_types; ref++)
		for (uint32_t ends = 0; ends < 2 && out->present[ref]; ends++)
			price_build(out, ref, out->n_kinds - (ends ? 0 : N_END_KINDS), space->n_types);
}

double work_bound(const struct work *work, const double n[ADP_SEARCH_MAX_TYPES], double cap)
{
	double best = 0.0;

	for (uint32_t p = 0; p < work->n_prices; p++) {
		double left = cap, sum = 0.0;

		for (uint32_t i = 0; i < work->price[p].n && left > 0.0; i++) {
			double take = n[work->price[p].type[i]];

			take = take < left ? take : left;
			sum += take * work->price[p].rate[i];
			left -= take;
		}
		if (sum > 0.0 && work->price[p].cost > best * sum)
			best = work->price[p].cost / sum;
	}
	return best > 0.0 ? best : INFINITY;
}

bool work_fits(const struct work *work, const double n[ADP_SEARCH_MAX_TYPES],
               const double most[ADP_SEARCH_MAX_TYPES], double pp, double tau_s)
{
	uint32_t n_blocks = work->n_kinds - N_END_KINDS;
	uint32_t n_ends = pp > 1.0 ? N_END_KINDS : 1; /* one stage alone holds both ends */
	double whole[ADP_SEARCH_MAX_TYPES], left = pp, room = 0.0;
	double least_lost[N_END_KINDS] = {INFINITY, 0.0};
	bool taken[ADP_SEARCH_MAX_TYPES] = {false};

	if (n_ends > 1)
		least_lost[KIND_TAIL] = INFINITY;
	for (uint32_t t = 0; t < ADP_SEARCH_MAX_TYPES; t++) {
		double per_s, share;

		taken[t] = !(n[t] > 0.0);
		if (taken[t])
			continue;
		per_s = 1.0 / work->layer_s[t];
		share = floor(tau_s * per_s * (1.0 + 1e-12));
		whole[t] = share < most[t] ? share : most[t];
		for (uint32_t e = 0; e < n_ends; e++) {
			double extra = work->time_s[t][n_blocks + e], with;

			if (n_ends == 1)
				extra += work->time_s[t][n_blocks + KIND_TAIL];
			if (tau_s < extra * (1.0 - 1e-12))
				continue;
			with = floor((tau_s - extra) * per_s * (1.0 + 1e-12));
			with = with < most[t] ? with : most[t];
			least_lost[e] = fmin(least_lost[e], whole[t] - with);
		}
	}
	while (left > 0.0) {
		uint32_t pick = ADP_SEARCH_MAX_TYPES;

		for (uint32_t t = 0; t < ADP_SEARCH_MAX_TYPES; t++)
			if (!taken[t] && (pick == ADP_SEARCH_MAX_TYPES || whole[t] > whole[pick]))
				pick = t;
		if (pick == ADP_SEARCH_MAX_TYPES)
			break;
		taken[pick] = true;
		room += (n[pick] < left ? n[pick] : left) * whole[pick];
		left -= n[pick];
	}
	return room - least_lost[KIND_EMBEDDING] - least_lost[KIND_TAIL] >= work->n_layers;
}

double unit_bound(const struct space *space, const struct unit *unit)
{
	const struct slots *slots = space->shapes[unit->shape].slots;
	double n[ADP_SEARCH_MAX_TYPES] = {0};
	struct work work;

	work_build(&work, space, unit);
	for (uint32_t t = 0; t < space->n_types; t++)
		n[t] = unit_slots(space, unit, t);
	return (double)unit_batches(space, unit) *
	           work_bound(&work, n, floor(space->max_slots_gpus / slots->size)) +
	       space->engine->step_fixed_s;
}

/*
 * Least memory of one layer of any kind on a middle stage, by what grows with the micro-batches in
 * flight and what ZeRO divides.
 */
static void one_layer(struct layer_room *room, const struct space *space, const struct unit *unit,
                      uint32_t item, enum adp_recompute recompute, bool flash)
{
	const struct shape_cost *sc = &space->shapes[unit->shape];
	uint32_t one = 1;
	struct adp_rank_items items = {1, &item, &one};
	/* experts are sharded over tp times as many ranks at most */
	struct adp_memory_opts opts = {.zero_stage = unit->zero_stage,
	                               .shard_gpus = 1.0,
	                               .expert_shard_gpus = sc->shape.tp,
	                               .in_flight = 1.0,
	                               .recompute = recompute,
	                               .flash = flash};
	struct adp_memory a, b;

	adp_memory(&a, space->engine, space->model, space->train, &sc->shape, &items, &opts);
	opts.in_flight = 2.0;
	adp_memory(&b, space->engine, space->model, space->train, &sc->shape, &items, &opts);
	/* under ZeRO 2 and 3 weights and gradients are whole for a block at a time, which does not add
	 * up over layers */
	room->fixed_bytes = fmin(room->fixed_bytes,
	                         unit->zero_stage >= 2 ? 0.0
	                         : unit->zero_stage == 1
	                             ? (double)a.weights + (double)a.gradients
	                             : (double)a.weights + (double)a.gradients + (double)a.optimizer);
	room->sharded_bytes = fmin(room->sharded_bytes, unit->zero_stage ? (double)a.optimizer : 0.0);
	room->flight_bytes = fmin(room->flight_bytes, (double)b.activations - (double)a.activations);
}

void layer_room_build(struct layer_room *out, const struct space *space, const struct unit *unit,
                      const struct adp_gpu_type *gpu)
{
	const struct adp_engine *engine = space->engine;
	bool flash = adp_flash_available(engine, gpu, space->train->precision);

	out->usable_bytes = space->memory_scale * (double)adp_usable_bytes(engine, gpu) -
	                    engine->context_bytes;
	out->fixed_bytes = out->sharded_bytes = out->flight_bytes = INFINITY;
	for (uint32_t k = 0; k < space->model->n_blocks; k++) {
		uint32_t item = 0;

		while (item < space->model->n_items &&
		       space->model->items[item].block != &space->model->blocks[k])
			item++;
		if (item == space->model->n_items)
			continue;
		if (unit->recompute >= 0)
			one_layer(out, space, unit, item, (enum adp_recompute)unit->recompute, flash);
		for (uint32_t r = 0; unit->recompute < 0 && r < ADP_N_RECOMPUTE; r++)
			if (engine->recompute_mask & (1u << r))
				one_layer(out, space, unit, item, (enum adp_recompute)r, flash);
	}
}

double layer_room_more(const struct layer_room *room, double shard, double in_flight,
                       double left_bytes)
{
	double each = room->fixed_bytes + room->sharded_bytes / shard + room->flight_bytes * in_flight;

	return left_bytes <= 0.0 ? 0.0
	       : each > 0.0      ? floor(left_bytes / each * (1.0 + 1e-9))
	                         : INFINITY;
}

double layer_room_layers(const struct layer_room *room, double shard, double in_flight)
{
	return layer_room_more(room, shard, in_flight, room->usable_bytes);
}
