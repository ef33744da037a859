/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/evaluator.h"

int evaluator_create(struct evaluator **out, const struct space *space, struct adp_error *err)
{
	struct evaluator *ev = adp_calloc(1, sizeof *ev);
	size_t cells = (size_t)ADP_SEARCH_MAX_KINDS * ADP_SEARCH_MAX_PIPE;
	size_t n_blocks = space->model->n_blocks;

	if (!ev)
		return adp_nomem(err);
	ev->space = space;
	ev->n_blocks = space->model->n_blocks;
	ev->n_layers = space->model->n_layers;
	ev->cls = adp_calloc(cells, sizeof *ev->cls);
	ev->domain_n = adp_calloc(space->cluster->n_domains + 1u, sizeof *ev->domain_n);
	ev->fwd = adp_calloc(cells * n_blocks, sizeof *ev->fwd);
	ev->bwd = adp_calloc(cells * n_blocks * ADP_N_RECOMPUTE, sizeof *ev->bwd);
	ev->end_fwd = adp_calloc(cells, sizeof *ev->end_fwd);
	ev->end_bwd = adp_calloc(cells, sizeof *ev->end_bwd);
	ev->send_fwd = adp_calloc(cells, sizeof *ev->send_fwd);
	ev->send_bwd = adp_calloc(cells, sizeof *ev->send_bwd);
	ev->stages = adp_calloc(ADP_SEARCH_MAX_CHUNKS, sizeof *ev->stages);
	ev->run_first = adp_calloc(ev->n_layers + 2, sizeof *ev->run_first);
	ev->run_n = adp_calloc(ev->n_layers + 2, sizeof *ev->run_n);
	ev->exchange = adp_calloc((size_t)ADP_SEARCH_MAX_PIPE * (ev->n_layers + 1u),
	                          sizeof *ev->exchange);
	ev->most_head = adp_calloc((size_t)(ADP_SEARCH_MAX_PIPE + 1) * (ev->n_layers + 1u),
	                           sizeof *ev->most_head);
	ev->pipe_end = adp_calloc(ADP_SEARCH_MAX_PIPE, sizeof *ev->pipe_end);
	ev->cache_key = adp_calloc(MEMORY_CACHE, sizeof *ev->cache_key);
	ev->cache_value = adp_calloc(MEMORY_CACHE, sizeof *ev->cache_value);
	ev->detail_memory = adp_calloc(ADP_SEARCH_MAX_PIPE, sizeof *ev->detail_memory);
	ev->detail_usable = adp_calloc(ADP_SEARCH_MAX_PIPE, sizeof *ev->detail_usable);
	ev->detail_end = adp_calloc(2 * ADP_SEARCH_MAX_KINDS, sizeof *ev->detail_end);
	ev->detail_cells = adp_calloc(2 * cells, sizeof *ev->detail_cells);
	ev->detail_class = adp_calloc(2 * cells, sizeof *ev->detail_class);
	*out = ev;
	if (!ev->exchange || !ev->most_head || !ev->run_first || !ev->run_n || !ev->cls ||
	    !ev->domain_n || !ev->fwd || !ev->bwd || !ev->end_fwd || !ev->end_bwd || !ev->send_fwd ||
	    !ev->send_bwd || !ev->stages || !ev->pipe_end || !ev->cache_key || !ev->cache_value ||
	    !ev->detail_memory || !ev->detail_usable || !ev->detail_end || !ev->detail_cells ||
	    !ev->detail_class) {
		evaluator_destroy(ev);
		*out = NULL;
		return adp_nomem(err);
	}
	return ADP_OK;
}

void evaluator_destroy(struct evaluator *ev)
{
	if (!ev)
		return;
	adp_free(ev->exchange);
	adp_free(ev->most_head);
	adp_free(ev->run_first);
	adp_free(ev->run_n);
	adp_free(ev->cls);
	adp_free(ev->domain_n);
	adp_free(ev->fwd);
	adp_free(ev->bwd);
	adp_free(ev->end_fwd);
	adp_free(ev->end_bwd);
	adp_free(ev->send_fwd);
	adp_free(ev->send_bwd);
	adp_free(ev->stages);
	adp_free(ev->pipe_scratch);
	adp_free(ev->pipe_end);
	adp_free(ev->cache_key);
	adp_free(ev->cache_value);
	adp_free(ev->detail_memory);
	adp_free(ev->detail_usable);
	adp_free(ev->detail_end);
	adp_free(ev->detail_cells);
	adp_free(ev->detail_class);
	adp_free(ev);
}

/* ---- which classes meet in the grid -------------------------------------------------------- */

/* Position of replica r of a group's stage in its type's slots. */
struct grid {
	uint32_t type[ADP_SEARCH_MAX_PIPE], at[ADP_SEARCH_MAX_PIPE];
};

static void group_grid(struct grid *grid, const struct composition *comp,
                       const struct replica_group *group)
{
	uint32_t used[ADP_SEARCH_MAX_TYPES] = {0};

	for (uint32_t s = 0; s < comp->pp; s++) {
		uint32_t t = group->stage_type[s];

		grid->type[s] = t;
		grid->at[s] = group->first_slot[t] + used[t]++ * group->n_replicas;
	}
}

/*
 * Equal columns form a kind. Beyond the limit neighbours merge under the later column, which is
 * never the better one, since a type's slots stand best first.
 */
static void columns(struct evaluator *ev)
{
	const struct composition *comp = ev->comp;
	uint32_t n_total = 0, every = 1;

	for (uint32_t pass = 0; pass < 2; pass++) {
		uint32_t n_seen = 0;

		ev->n_kinds = 0;
		for (uint32_t g = 0; g < comp->n_groups; g++) {
			const struct replica_group *group = &comp->group[g];
			struct grid grid;
			bool fresh = true;

			group_grid(&grid, comp, group);
			for (uint32_t r = 0; r < group->n_replicas;) {
				uint32_t end = group->n_replicas;
				struct column_kind *kind;

				for (uint32_t s = 0; s < comp->pp; s++) {
					uint32_t run = ev->sc->slots->type[grid.type[s]].slots[grid.at[s] + r].run_end -
					               grid.at[s];

					end = run < end ? run : end;
				}
				n_seen++;
				if (pass == 0) {
					r = end;
					continue;
				}
				if (fresh || n_seen % every == 0) {
					kind = &ev->kinds[ev->n_kinds++];
					*kind = (struct column_kind){.group = g, .first_replica = r};
					fresh = false;
				}
				kind = &ev->kinds[ev->n_kinds - 1];
				kind->n_replicas += end - r;
				for (uint32_t s = 0; s < comp->pp; s++)
					ev->cls[(ev->n_kinds - 1) * comp->pp + s] =
						ev->sc->slots->type[grid.type[s]].slots[grid.at[s] + r].cls;
				r = end;
			}
		}
		n_total = n_seen;
		every = n_total / (ADP_SEARCH_MAX_KINDS - comp->n_groups) + 1;
	}
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Narrows a path's two levels to the worse of what is there and a class. */
static void path_worsen(struct adp_path *path, const struct slot_class *cls,
                        const struct adp_gpu_type *gpu)
{
	for (uint32_t i = 0; i < 2; i++) {
		const struct adp_link *link = i ? &cls->far : &cls->gpu_link;

		if (!path->level[i].gpu || link->bytes_per_s < path->level[i].link.bytes_per_s) {
			double latency_s = path->level[i].gpu ? path->level[i].link.latency_s : 0.0;

			path->level[i].link = *link;
			path->level[i].link.latency_s = fmax(latency_s, link->latency_s);
			path->level[i].gpu = gpu;
		}
	}
}

/* The most slots by which n of a type's, from the at-th on, can be grouped inside their domains. */
static uint32_t domain_share(struct evaluator *ev, uint32_t type, uint32_t at, uint32_t n)
{
	const struct type_slots *all = &ev->sc->slots->type[type];
	uint32_t end = at + n, share = 0;

	if (all->scattered)
		for (uint32_t i = at; i < end; i++)
			ev->domain_n[all->slots[i].domain]++;
	for (uint32_t i = at; i < end && share != 1;) {
		const struct slot *slot = &all->slots[i];
		uint32_t next = slot->domain_end < end ? slot->domain_end : end;

		share = gcd(share, all->scattered ? ev->domain_n[slot->domain] : next - i);
		i = next;
	}
	if (all->scattered)
		for (uint32_t i = at; i < end; i++)
			ev->domain_n[all->slots[i].domain] = 0;
	return share;
}

/* Replicas of each stage that share a domain. A group that is sharded inside the domain is of one
 * size everywhere. */
static void stages_inside(struct evaluator *ev)
{
	const struct composition *comp = ev->comp;
	uint32_t all = 0;

	memset(ev->inside, 0, sizeof ev->inside);
	for (uint32_t g = 0; g < comp->n_groups; g++) {
		struct grid grid;

		group_grid(&grid, comp, &comp->group[g]);
		for (uint32_t s = 0; s < comp->pp; s++) {
			if (ev->inside[s] == 1)
				continue;
			ev->inside[s] = gcd(ev->inside[s], domain_share(ev, grid.type[s], grid.at[s],
			                                                comp->group[g].n_replicas));
			all = gcd(all, ev->inside[s]);
		}
	}
	for (uint32_t s = 0; ev->unit->hybrid && s < comp->pp; s++)
		ev->inside[s] = all;
}

/* Do two stages stand on the same classes, and their replicas in as large groups? */
static bool stages_alike(const struct evaluator *ev, uint32_t a, uint32_t b)
{
	for (uint32_t k = 0; k < ev->n_kinds; k++)
		if (ev->cls[k * ev->pp + a] != ev->cls[k * ev->pp + b])
			return false;
	return ev->inside[a] == ev->inside[b];
}

/* The data-parallel groups of a stage: ranks that share a domain, then domains. */
static void stage_paths(struct evaluator *ev, uint32_t s)
{
	const struct composition *comp = ev->comp;
	const struct adp_shape *shape = &ev->sc->shape;
	struct adp_path *dp = &ev->dp_path[s], *edp = &ev->edp_path[s];
	uint32_t inside = ev->inside[s], spanned = 1, size = ev->sc->slots->size, n_edp, e_inside;

	memset(dp, 0, sizeof *dp);
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		const struct slot_class *cls = &ev->sc->slots->classes[ev->cls[k * comp->pp + s]];

		path_worsen(dp, cls, &ev->space->cluster->types[cls->type]);
		spanned = cls->n_spanned > spanned ? cls->n_spanned : spanned;
	}
	*edp = *dp;
	/* context ranks of a slot share its domain unless the slot itself spans several */
	dp->level[0].fan = spanned > 1 ? 1 : inside * shape->cp;
	assert(dp->level[0].fan > 0);
	dp->level[1].fan = comp->dp * shape->cp / dp->level[0].fan;
	dp->n_levels = dp->level[1].fan > 1 ? 2 : 1;
	n_edp = comp->dp * shape->cp * shape->tp / (shape->ep * shape->etp);
	e_inside = spanned > 1 ? 1 : inside * size / (shape->ep * shape->etp);
	e_inside = gcd(n_edp, e_inside ? e_inside : 1);
	edp->level[0].fan = e_inside;
	edp->level[1].fan = n_edp / e_inside;
	edp->n_levels = edp->level[1].fan > 1 ? 2 : 1;
}

/* ---- times ---------------------------------------------------------------------------- */

/* Do the replicas of a kind send to the next stage inside an NVLink domain? */
static bool send_is_near(const struct evaluator *ev, const struct grid *grid,
                         const struct column_kind *kind, uint32_t from, uint32_t to)
{
	const struct slot *slots = ev->sc->slots->type[grid->type[from]].slots;

	if (grid->type[from] != grid->type[to])
		return false;
	for (uint32_t r = kind->first_replica; r < kind->first_replica + kind->n_replicas; r++)
		if (slots[grid->at[from] + r].domain != slots[grid->at[to] + r].domain)
			return false;
	return true;
}

double send_time(const struct space *space, const struct adp_link *link,
                 const struct adp_gpu_type *gpu, double bytes)
{
	struct adp_path path = {.n_levels = 1, .level = {{.fan = 2, .link = *link, .gpu = gpu}}};

	return space->engine->p2p_fixed_s + (1.0 - space->engine->p2p_overlap_frac) *
	                                        adp_collective_s(space->tables, ADP_SEND, &path, bytes);
}

static double send_s(const struct evaluator *ev, const struct grid *grid,
                     const struct column_kind *kind, const uint32_t *cls, uint32_t from,
                     uint32_t to)
{
	const struct space *space = ev->space;
	const struct slot_class *a = &ev->sc->slots->classes[cls[from]],
							*b = &ev->sc->slots->classes[cls[to]];
	const struct slot_class *slower = a->far.bytes_per_s <= b->far.bytes_per_s ? a : b;
	bool near = send_is_near(ev, grid, kind, from, to);

	return send_time(space, near ? &a->gpu_link : &slower->far,
	                 &space->cluster->types[slower->type], ev->sc->send_bytes);
}

static double weight_bytes(const struct space *space)
{
	return space->train->precision <= ADP_PRECISION_TF32 ? 4.0 : space->engine->weight_bytes;
}

static double grad_bytes(const struct space *space)
{
	if (space->train->precision <= ADP_PRECISION_TF32)
		return 4.0;
	return space->train->precision == ADP_PRECISION_FP16 ? space->engine->fp16_grad_bytes
	                                                     : space->engine->grad_bytes;
}

/* The part of ZeRO's group that is sharded over (the domain only, when hybrid). */
static struct adp_path shard_path(const struct evaluator *ev, const struct adp_path *path)
{
	struct adp_path p = *path;

	if (ev->unit->hybrid) {
		p.level[1].fan = 1;
		p.n_levels = 1;
	}
	return p;
}

/* What ZeRO's exchange in each micro-batch adds to a block, beyond what its compute hides. */
static void zero_times(const struct evaluator *ev, uint32_t s, uint32_t block, double fwd_s,
                       double bwd_s, double *add_fwd_s, double *add_bwd_s)
{
	const struct space *space = ev->space;
	struct adp_path dense = shard_path(ev, &ev->dp_path[s]),
					expert = shard_path(ev, &ev->edp_path[s]);
	double hidden = space->engine->fsdp_overlap_frac;
	double d = ev->sc->block_elems[block], x = ev->sc->block_expert_elems[block];
	double gather = 0.0, scatter;

	*add_fwd_s = *add_bwd_s = 0.0;
	if (ev->unit->zero_stage < 2 || (ev->unit->zero_stage == 2 && ev->pp > 1))
		return;
	scatter = adp_collective_s(space->tables, ADP_REDUCE_SCATTER, &dense, d * grad_bytes(space)) +
	          (x > 0.0 ? adp_collective_s(space->tables, ADP_REDUCE_SCATTER, &expert,
	                                      x * grad_bytes(space))
	                   : 0.0);
	if (ev->unit->zero_stage == 3)
		gather = adp_collective_s(space->tables, ADP_ALL_GATHER, &dense, d * weight_bytes(space)) +
		         (x > 0.0 ? adp_collective_s(space->tables, ADP_ALL_GATHER, &expert,
		                                     x * weight_bytes(space))
		                  : 0.0);
	*add_fwd_s = fmax(0.0, gather - hidden * fwd_s);
	*add_bwd_s = fmax(0.0, gather + scatter - hidden * bwd_s);
}

static void kind_times(struct evaluator *ev, uint32_t k)
{
	const struct shape_cost *sc = ev->sc;
	const struct column_kind *kind = &ev->kinds[k];
	const uint32_t *cls = &ev->cls[k * ev->pp];
	struct grid grid;

	group_grid(&grid, ev->comp, &ev->comp->group[kind->group]);
	for (uint32_t s = 0; s < ev->pp; s++) {
		size_t at = (size_t)k * ev->pp + s;
		const struct adp_item_time *end = &sc->end[cls[s] * N_END_KINDS];

		for (uint32_t b = 0; b < ev->n_blocks; b++) {
			const struct adp_item_time *t = &sc->block[cls[s] * ev->n_blocks + b];
			double add_fwd, add_bwd;

			zero_times(ev, s, b, t->fwd_s, t->bwd_s, &add_fwd, &add_bwd);
			ev->fwd[at * ev->n_blocks + b] = t->fwd_s + add_fwd;
			for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
				ev->bwd[(at * ADP_N_RECOMPUTE + r) * ev->n_blocks + b] = t->bwd_s +
				                                                         t->recompute_s[r] +
				                                                         add_bwd;
		}
		ev->end_fwd[at] = (s == 0 ? end[KIND_EMBEDDING].fwd_s : 0.0) +
		                  (s + 1 == ev->pp ? end[KIND_TAIL].fwd_s : 0.0);
		ev->end_bwd[at] = (s == 0 ? end[KIND_EMBEDDING].bwd_s : 0.0) +
		                  (s + 1 == ev->pp ? end[KIND_TAIL].bwd_s : 0.0);
		ev->send_fwd[at] = ev->send_bwd[at] = 0.0;
		if (ev->pp > 1) {
			uint32_t next = (s + 1) % ev->pp, previous = (s + ev->pp - 1) % ev->pp;

			if (s + 1 < ev->pp || ev->vpp > 1)
				ev->send_fwd[at] = send_s(ev, &grid, kind, cls, s, next);
			if (s > 0 || ev->vpp > 1)
				ev->send_bwd[at] = send_s(ev, &grid, kind, cls, s, previous);
		}
	}
}

void evaluator_size(struct evaluator *ev, const struct unit *unit, uint32_t dp, uint32_t pp)
{
	const struct space *space = ev->space;
	const struct adp_shape *shape = &space->shapes[unit->shape].shape;

	ev->unit = unit;
	ev->sc = &space->shapes[unit->shape];
	ev->dp = dp;
	ev->pp = pp;
	ev->vpp = unit->vpp;
	ev->n_batches = unit_batches(space, unit);
	ev->n_equal = (uint32_t)((ev->n_batches + dp - 1) / dp);
	ev->n_recompute = 0;
	if (unit->recompute >= 0)
		ev->recompute_order[ev->n_recompute++] = (uint8_t)unit->recompute;
	for (uint8_t r = 0; unit->recompute < 0 && r < ADP_N_RECOMPUTE; r++)
		if (space->engine->recompute_mask & (1u << r))
			ev->recompute_order[ev->n_recompute++] = r;
	ev->shard = ev->expert_shard = 1;
	if (unit->zero_stage > 0) {
		ev->shard = dp * shape->cp;
		ev->expert_shard = dp * shape->cp * shape->tp / (shape->ep * shape->etp);
	}
	for (uint32_t s = 0; s < pp; s++)
		ev->in_flight[s] = adp_pipeline_in_flight(s, pp, ev->vpp, ev->n_equal);
}

int evaluator_open(struct evaluator *ev, const struct unit *unit, const struct composition *comp,
                   bool *legal, struct adp_error *err)
{
	const struct space *space = ev->space;
	const struct adp_engine *engine = space->engine;
	uint64_t scratch;
	double moments = adp_optimizer_moment_bytes(space->train->optimizer);

	*legal = false;
	evaluator_size(ev, unit, comp->dp, comp->pp);
	ev->comp = comp;
	ev->exchange_of++;
	ev->equal = equal_batches(space, unit);
	columns(ev);
	/* replicas that are all alike end with those that run the most, whoever runs one less */
	ev->equal = ev->equal || ev->n_kinds == 1;
	stages_inside(ev);
	for (uint32_t s = 0; s < ev->pp; s++) {
		if (s > 0 && stages_alike(ev, s - 1, s)) {
			ev->dp_path[s] = ev->dp_path[s - 1];
			ev->edp_path[s] = ev->edp_path[s - 1];
		} else {
			stage_paths(ev, s);
		}
	}
	for (uint32_t s = 0; unit->hybrid && s < ev->pp; s++)
		if (ev->dp_path[s].level[0].fan == 1 || ev->dp_path[s].level[1].fan == 1)
			return ADP_OK; /* the same as the plain form */
	if (unit->hybrid) {
		ev->shard = ev->dp_path[0].level[0].fan;
		ev->expert_shard = ev->edp_path[0].level[0].fan;
	}
	for (uint32_t s = 0; s < ev->pp; s++) {
		double slowest = INFINITY;

		ev->usable[s] = INFINITY;
		ev->flash[s] = true;
		for (uint32_t k = 0; k < ev->n_kinds; k++) {
			const struct adp_gpu_type *gpu =
				&space->cluster->types[ev->sc->slots->classes[ev->cls[k * ev->pp + s]].type];

			ev->usable[s] = fmin(ev->usable[s],
			                     space->memory_scale * (double)adp_usable_bytes(engine, gpu));
			ev->flash[s] = ev->flash[s] &&
			               adp_flash_available(engine, gpu, space->train->precision);
			slowest = fmin(slowest, gpu->memory_bytes_per_s);
		}
		/* gradient, master copy and moments are read, the last two and the weight written */
		ev->optimizer_s_per_elem[s] = (grad_bytes(space) + 2.0 * (engine->master_bytes + moments) +
		                               weight_bytes(space)) /
		                              slowest;
	}
	for (uint32_t k = 0; k < ev->n_kinds; k++)
		kind_times(ev, k);
	ev->fwd_share = ev->end_excess_s = 0.0;
	for (size_t at = 0; at < (size_t)ev->n_kinds * ev->pp; at++)
		for (uint32_t b = 0; b < ev->n_blocks && !(at > 0 && ev->cls[at] == ev->cls[at - 1]); b++) {
			double f = ev->fwd[at * ev->n_blocks + b];

			ev->fwd_share = fmax(ev->fwd_share,
			                     f / (f + ev->bwd[at * ADP_N_RECOMPUTE * ev->n_blocks + b]));
		}
	for (size_t at = 0; at < (size_t)ev->n_kinds * ev->pp; at++)
		ev->end_excess_s = fmax(ev->end_excess_s,
		                        ev->end_fwd[at] -
		                            ev->fwd_share * (ev->end_fwd[at] + ev->end_bwd[at]));
	ev->tied_s = 0.0;
	if (space->model->tied_embeddings && ev->pp > 1) {
		struct adp_path pair = {.n_levels = 1};

		pair.level[0] = ev->dp_path[0].level[1];
		if (ev->dp_path[ev->pp - 1].level[1].link.bytes_per_s < pair.level[0].link.bytes_per_s)
			pair.level[0] = ev->dp_path[ev->pp - 1].level[1];
		pair.level[0].fan = 2;
		ev->tied_s = adp_collective_s(space->tables, ADP_ALL_REDUCE, &pair,
		                              ev->sc->end_elems[KIND_EMBEDDING] * grad_bytes(space));
	}
	ev->min_rest_s = engine->step_fixed_s + ev->tied_s;
	scratch = adp_pipeline_scratch(ev->pp, ev->vpp, ev->n_equal + 1);
	if (scratch > ev->pipe_scratch_n) {
		double *grown = adp_reallocarray(ev->pipe_scratch, (size_t)scratch, sizeof *grown);

		if (!grown)
			return adp_nomem(err);
		ev->pipe_scratch = grown;
		ev->pipe_scratch_n = scratch;
	}
	*legal = true;
	return ADP_OK;
}

/* ---- the step ------------------------------------------------------------------------- */

void split_stages(struct evaluator *ev, const struct split *split, uint32_t kind)
{
	uint32_t first[ADP_SEARCH_MAX_CHUNKS + 1];

	split_chunks(first, split, ev->pp, ev->vpp);
	for (uint32_t c = 0; c < ev->vpp; c++)
		for (uint32_t s = 0; s < ev->pp; s++) {
			struct adp_pipe_stage *stage = &ev->stages[c * ev->pp + s];
			size_t at = (size_t)kind * ev->pp + s;
			uint32_t a = first[c * ev->pp + s],
					 b = a + chunk_layers(split->n_layers[s], ev->vpp, c);

			*stage = (struct adp_pipe_stage){.send_fwd_s = ev->send_fwd[at],
			                                 .send_bwd_s = ev->send_bwd[at]};
			if (c + 1 == ev->vpp && s + 1 == ev->pp)
				stage->send_fwd_s = 0.0;
			if (c == 0 && s == 0)
				stage->send_bwd_s = 0.0;
			for (uint32_t k = 0; k < ev->n_blocks; k++) {
				const uint32_t *before = &ev->space->n_before[k * (ev->n_layers + 1)];
				double n = before[b] - before[a];

				stage->fwd_s += n * ev->fwd[at * ev->n_blocks + k];
				stage->bwd_s +=
					n * ev->bwd[(at * ADP_N_RECOMPUTE + split->recompute[s]) * ev->n_blocks + k];
			}
			/* the embedding opens the first chunk, the tail closes the last one (pp 1 has one
			 * chunk) */
			if ((s == 0 && c == 0) || (s > 0 && s + 1 == ev->pp && c + 1 == ev->vpp)) {
				stage->fwd_s += ev->end_fwd[at];
				stage->bwd_s += ev->end_bwd[at];
			}
		}
}

/* Gradient exchange, parameter gathering and optimizer for the blocks' elements in out and the ends
 * of stage s. */
static void add_exchange(struct evaluator *ev, struct stage_rest *out, uint32_t s)
{
	const struct space *space = ev->space;
	struct adp_path dense = ev->dp_path[s], expert = ev->edp_path[s];
	double gb = grad_bytes(space), wb = weight_bytes(space), owned;

	if (s == 0)
		out->dense_elems += ev->sc->end_elems[KIND_EMBEDDING];
	if (s + 1 == ev->pp)
		out->dense_elems +=
			ev->sc->end_elems[KIND_TAIL] +
			(space->model->tied_embeddings && ev->pp > 1 ? ev->sc->end_elems[KIND_EMBEDDING] : 0.0);
	owned = out->dense_elems / ev->shard + out->expert_elems / ev->expert_shard;
	out->optimizer_s = owned * ev->optimizer_s_per_elem[s];
	if (ev->unit->zero_stage == 0) {
		out->reduce_s =
			adp_collective_s(space->tables, ADP_ALL_REDUCE, &dense, out->dense_elems * gb) +
			(out->expert_elems > 0.0
		         ? adp_collective_s(space->tables, ADP_ALL_REDUCE, &expert, out->expert_elems * gb)
		         : 0.0);
		return;
	}
	if (ev->unit->zero_stage == 1 || (ev->unit->zero_stage == 2 && ev->pp > 1))
		out->reduce_s =
			adp_collective_s(space->tables, ADP_REDUCE_SCATTER, &dense, out->dense_elems * gb) +
			(out->expert_elems > 0.0 ? adp_collective_s(space->tables, ADP_REDUCE_SCATTER, &expert,
		                                                out->expert_elems * gb)
		                             : 0.0);
	if (ev->unit->zero_stage <= 2)
		out->gather_s =
			adp_collective_s(space->tables, ADP_ALL_GATHER, &dense, out->dense_elems * wb) +
			(out->expert_elems > 0.0
		         ? adp_collective_s(space->tables, ADP_ALL_GATHER, &expert, out->expert_elems * wb)
		         : 0.0);
	if (ev->unit->hybrid) {
		/* shards are summed across the domains once a step */
		struct adp_path across = {.n_levels = 1}, e_across = {.n_levels = 1};

		across.level[0] = dense.level[1];
		e_across.level[0] = expert.level[1];
		out->reduce_s += adp_collective_s(space->tables, ADP_ALL_REDUCE, &across,
		                                  out->dense_elems / ev->shard * gb);
		if (out->expert_elems > 0.0)
			out->reduce_s += adp_collective_s(space->tables, ADP_ALL_REDUCE, &e_across,
			                                  out->expert_elems / ev->expert_shard * gb);
	}
}

void stage_rest(struct evaluator *ev, struct stage_rest *out, const struct split *split, uint32_t s)
{
	const struct space *space = ev->space;
	uint32_t first[ADP_SEARCH_MAX_CHUNKS + 1];

	memset(out, 0, sizeof *out);
	split_chunks(first, split, ev->pp, ev->vpp);
	for (uint32_t c = 0; c < ev->vpp; c++) {
		uint32_t a = first[c * ev->pp + s], b = a + chunk_layers(split->n_layers[s], ev->vpp, c);

		for (uint32_t k = 0; k < ev->n_blocks; k++) {
			const uint32_t *before = &space->n_before[k * (ev->n_layers + 1)];
			double n = before[b] - before[a];

			out->dense_elems += n * ev->sc->block_elems[k];
			out->expert_elems += n * ev->sc->block_expert_elems[k];
		}
	}
	add_exchange(ev, out, s);
}

double stage_exposed(struct evaluator *ev, uint32_t s, uint32_t n, double last_bwd_s)
{
	struct exchange *known = &ev->exchange[(size_t)s * (ev->n_layers + 1) + n];

	if (ev->n_blocks > 1)
		return 0.0;
	if (known->of != ev->exchange_of) {
		struct stage_rest rest = {.dense_elems = n * ev->sc->block_elems[0],
		                          .expert_elems = n * ev->sc->block_expert_elems[0]};

		add_exchange(ev, &rest, s);
		*known = (struct exchange){ev->exchange_of, rest.reduce_s + rest.gather_s,
		                           rest.optimizer_s};
	}
	return known->hideable_s -
	       fmin(known->hideable_s * ev->space->engine->dp_overlap_frac, last_bwd_s) +
	       known->optimizer_s;
}

/* End of the step for replicas of one kind with n micro-batches. */
static double kind_end(struct evaluator *ev, const struct split *split, const double *rest,
                       const double *hideable, uint32_t kind, uint32_t n)
{
	double end = 0.0;

	split_stages(ev, split, kind);
	if (ev->pp == 1 && ev->vpp == 1)
		ev->pipe_end[0] = n * (ev->stages[0].fwd_s + ev->stages[0].bwd_s);
	else if (adp_pipeline_end(ev->pipe_end, ev->stages, ev->pp, ev->vpp, n, ev->pipe_scratch,
	                          NULL) != ADP_OK)
		return INFINITY;
	for (uint32_t s = 0; s < ev->pp; s++) {
		double last_bwd = 0.0;

		for (uint32_t c = 0; c < ev->vpp; c++)
			last_bwd += ev->stages[c * ev->pp + s].bwd_s;
		/* the exchange hides behind the last backward only */
		end = fmax(end, ev->pipe_end[s] + rest[s] - fmin(hideable[s], last_bwd));
	}
	return end;
}

/* End of the step of each kind as an affine law of its count, exact once the pipeline is in its
 * steady state. */
struct pace {
	double base_s, slope_s;
	uint32_t n, fewer; /* count of the kind, and replicas of it that run one less */
};

static double pace_end(const struct pace *p, uint32_t n)
{
	return p->base_s + p->slope_s * n;
}

/* The kind to give a micro-batch to (ends soonest), or to take one from (ends last); n_kinds when
 * none can. */
static uint32_t pick_kind(const struct evaluator *ev, const struct pace *pace, uint32_t least,
                          bool give)
{
	uint32_t pick = ev->n_kinds;
	double best = 0.0;

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double e = pace_end(&pace[k], pace[k].n + give);

		if (!give && (pace[k].n == least || pace[k].fewer == ev->kinds[k].n_replicas))
			continue;
		if (pick == ev->n_kinds || (give ? e < best : e > best)) {
			pick = k;
			best = e;
		}
	}
	return pick;
}

/*
 * Micro-batches per replica that end soonest: the largest counts under a time limit, from the
 * affine laws; then given to the kind that ends soonest until all are placed, and what is over
 * taken from single replicas of the kinds that end last.
 */
static bool counts_settle(const struct evaluator *ev, struct pace *pace, uint32_t least)
{
	double rate = 0.0, offset = 0.0, limit;
	uint64_t total = 0;

	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		rate += ev->kinds[k].n_replicas / pace[k].slope_s;
		offset += ev->kinds[k].n_replicas * pace[k].base_s / pace[k].slope_s;
	}
	limit = ((double)ev->n_batches + offset) / rate;
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double n = floor((limit - pace[k].base_s) / pace[k].slope_s);

		pace[k].n = n < least ? least : (uint32_t)n;
		pace[k].fewer = 0;
		total += (uint64_t)pace[k].n * ev->kinds[k].n_replicas;
	}
	while (total < ev->n_batches) {
		uint32_t k = pick_kind(ev, pace, least, true);

		pace[k].n++;
		total += ev->kinds[k].n_replicas;
	}
	while (total > ev->n_batches) {
		uint32_t k = pick_kind(ev, pace, least, false);
		uint64_t take;

		if (k == ev->n_kinds)
			return false;
		take = ev->kinds[k].n_replicas - pace[k].fewer;
		take = take < total - ev->n_batches ? take : total - ev->n_batches;
		pace[k].fewer += (uint32_t)take;
		total -= take;
		/* a whole kind that gave one may give another */
		if (pace[k].fewer == ev->kinds[k].n_replicas) {
			pace[k].n--;
			pace[k].fewer = 0;
		}
	}
	return true;
}

static double uneven_shares(struct evaluator *ev, const struct split *split, const double *rest,
                            const double *hideable)
{
	struct pace pace[ADP_SEARCH_MAX_KINDS] = {0};
	uint32_t least = least_micro(ev->space, ev->pp);
	double worst = 0.0;

	if (ev->n_batches < (uint64_t)ev->comp->dp * least)
		return INFINITY;
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		double a = kind_end(ev, split, rest, hideable, k, least);

		pace[k].slope_s = fmax(kind_end(ev, split, rest, hideable, k, least + 1) - a, a * 1e-9);
		pace[k].base_s = a - least * pace[k].slope_s;
	}
	if (!counts_settle(ev, pace, least))
		return INFINITY;
	ev->n_shares = 0;
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		uint32_t more = ev->kinds[k].n_replicas - pace[k].fewer;

		if (more)
			ev->shares[ev->n_shares++] = (struct share){k, more, pace[k].n,
			                                            ev->kinds[k].first_replica};
		if (pace[k].fewer)
			ev->shares[ev->n_shares++] = (struct share){k, pace[k].fewer, pace[k].n - 1,
			                                            ev->kinds[k].first_replica + more};
		worst = fmax(worst,
		             kind_end(ev, split, rest, hideable, k, more ? pace[k].n : pace[k].n - 1));
	}
	return worst;
}

double split_step(struct evaluator *ev, const struct split *split)
{
	double rest[ADP_SEARCH_MAX_PIPE] = {0}, hideable[ADP_SEARCH_MAX_PIPE] = {0}, worst = 0.0;

	for (uint32_t s = 0; s < ev->pp; s++) {
		struct stage_rest r;

		stage_rest(ev, &r, split, s);
		rest[s] = r.reduce_s + r.gather_s + r.optimizer_s;
		hideable[s] = (r.reduce_s + r.gather_s) * ev->space->engine->dp_overlap_frac;
	}
	if (!ev->equal)
		return uneven_shares(ev, split, rest, hideable) + ev->min_rest_s;
	ev->n_shares = 0;
	for (uint32_t k = 0; k < ev->n_kinds; k++) {
		/* a remainder only where one kind stands alone: else the counts are equal by rule */
		uint32_t fewer = (uint32_t)((uint64_t)ev->n_equal * ev->comp->dp - ev->n_batches);
		uint32_t more = ev->kinds[k].n_replicas - fewer;

		ev->shares[ev->n_shares++] = (struct share){k, more, ev->n_equal,
		                                            ev->kinds[k].first_replica};
		if (fewer)
			ev->shares[ev->n_shares++] = (struct share){k, fewer, ev->n_equal - 1,
			                                            ev->kinds[k].first_replica + more};
		worst = fmax(worst, kind_end(ev, split, rest, hideable, k, ev->n_equal));
	}
	return worst + ev->min_rest_s;
}
