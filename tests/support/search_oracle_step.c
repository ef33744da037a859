/* SPDX-License-Identifier: Apache-2.0 */
#include "search_oracle_step.h"

#include <math.h>
#include <string.h>

static uint32_t node_of(const struct pool *pool, uint32_t group, uint32_t size)
{
	return pool->per_node ? group / pool->per_node : group * (size / pool->node_gpus);
}

/* ---- costs of a shape ---------------------------------------------------------------- */

/* n ranks, `stride` apart, of which as many meet in a node as fit it evenly. */
static struct adp_path group_path(const struct oracle *o, const struct pool *pool, uint32_t n,
                                  uint32_t stride)
{
	uint32_t room = pool->per_node ? pool->per_node * o->size : pool->node_gpus, inside = 1;

	for (uint32_t f = 1; f <= n; f++)
		if (n % f == 0 && room % (f * stride) == 0)
			inside = f;
	return (struct adp_path){
		.n_levels = n > inside ? 2 : 1,
		.level = {{inside, pool->near, pool->gpu}, {n / inside, pool->far, pool->gpu}}};
}

static double padded_vocab(const struct oracle *o)
{
	double unit = (double)o->engine->vocab_multiple * o->shape.tp;

	return ceil((double)o->model->vocab / unit) * unit;
}

static void count_elements(const struct oracle *o, const struct adp_item *item, double *dense,
                           double *expert)
{
	for (uint32_t i = 0; i < item->n_params; i++) {
		const struct adp_param *p = &item->params[i];
		double n = (double)p->rows * (double)p->cols * p->n_copies;

		if (p->shard == ADP_SHARD_EXPERT)
			*expert += n / (o->shape.ep * o->shape.etp);
		else if (p->shard == ADP_SHARD_VOCAB)
			*dense += padded_vocab(o) / o->shape.tp * (double)p->cols;
		else
			*dense += p->shard == ADP_SHARD_REPLICATED ? n : n / o->shape.tp;
	}
}

int oracle_cost_shape(struct oracle *o)
{
	double none = 0.0;

	o->embedding_elems = o->tail_elems = 0.0;
	for (uint32_t l = 0; l < o->n_layers; l++)
		o->layer_elems[l] = o->layer_expert_elems[l] = 0.0;
	for (uint32_t i = 0; i < o->model->n_items; i++) {
		const struct adp_item *item = &o->model->items[i];

		if (item->kind == ADP_ITEM_BLOCK)
			count_elements(o, item, &o->layer_elems[item->layer],
			               &o->layer_expert_elems[item->layer]);
		else
			count_elements(o, item,
			               item->kind == ADP_ITEM_EMBEDDING ? &o->embedding_elems : &o->tail_elems,
			               &none);
	}
	memset(o->embedding, 0, sizeof o->embedding);
	memset(o->tail, 0, sizeof o->tail);
	for (uint32_t p = 0; p < o->n_pools; p++) {
		const struct pool *pool = &o->pool[p];
		struct adp_path tp = group_path(o, pool, o->shape.tp, 1),
						cp = group_path(o, pool, o->shape.cp, o->shape.tp),
						ep = group_path(o, pool, o->shape.ep, o->shape.etp);

		if (!pool->n)
			continue;
		for (uint32_t i = 0; i < o->model->n_items; i++) {
			const struct adp_item *item = &o->model->items[i];
			struct adp_item_time t;
			struct work *to = &o->tail[p];
			int rc = adp_item_time(&t, o->tables, o->engine, o->model, item, o->train, &o->shape,
			                       pool->gpu, pool->speed_frac, &tp, &cp, &ep, o->err);

			if (rc)
				return rc;
			if (item->kind == ADP_ITEM_BLOCK) {
				to = &o->layer[p][item->layer];
				memset(to, 0, sizeof *to);
			} else if (item->kind == ADP_ITEM_EMBEDDING) {
				to = &o->embedding[p];
			}
			to->fwd_s += t.fwd_s;
			to->bwd_s += t.bwd_s;
			for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
				to->recompute_s[r] += t.recompute_s[r];
		}
	}
	return ADP_OK;
}

/* ---- groups that exchange gradients --------------------------------------------------- */

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	return b ? common_divisor(b, a % b) : a;
}

/* Largest group of a stage's replicas of which each lies inside a node. */
static uint32_t meet_in_node(const struct oracle *o, uint32_t stage)
{
	uint32_t together = 0;

	for (uint32_t k = 0; k < o->n_teams; k++) {
		const struct pool *pool = &o->pool[o->type[k][stage]];
		uint32_t in_node[MAX_REPLICAS] = {0};

		if (!pool->per_node)
			return 0; /* a replica alone is more than a node */
		for (uint32_t r = 0; r < o->replicas[k]; r++)
			in_node[node_of(pool, o->first[k][stage] + r, o->size)]++;
		for (uint32_t i = 0; i < pool->n_nodes; i++)
			together = common_divisor(together, in_node[i]);
	}
	return together;
}

static void slower(struct adp_path_level *level, const struct adp_link *link,
                   const struct adp_gpu_type *gpu)
{
	double latency_s = level->gpu ? fmax(level->link.latency_s, link->latency_s) : link->latency_s;

	if (!level->gpu || link->bytes_per_s < level->link.bytes_per_s) {
		level->link = *link;
		level->gpu = gpu;
		level->link.latency_s = latency_s;
	}
}

bool oracle_form_exchanges(struct oracle *o)
{
	uint32_t cp = o->shape.cp, experts = o->shape.ep * o->shape.etp, meets[MAX_STAGES], all = 0;

	for (uint32_t s = 0; s < o->pp; s++)
		all = common_divisor(all, meets[s] = meet_in_node(o, s));
	for (uint32_t s = 0; s < o->pp; s++) {
		uint32_t together = o->hybrid && meets[s] ? all : meets[s];
		uint32_t n_expert = o->dp * o->size / experts, near = together ? together * cp : 1;
		uint32_t near_expert = together * o->size / experts;
		struct adp_path_level level[2] = {{0}, {0}};

		for (uint32_t k = 0; k < o->n_teams; k++) {
			const struct pool *pool = &o->pool[o->type[k][s]];

			slower(&level[0], &pool->near, pool->gpu);
			slower(&level[1], &pool->far, pool->gpu);
		}
		near_expert = common_divisor(n_expert, near_expert ? near_expert : 1);
		o->dense[s] = o->expert[s] = (struct adp_path){.n_levels = 2,
		                                               .level = {level[0], level[1]}};
		o->dense[s].level[0].fan = near;
		o->dense[s].level[1].fan = o->dp * cp / near;
		o->expert[s].level[0].fan = near_expert;
		o->expert[s].level[1].fan = n_expert / near_expert;
		if (o->hybrid && (near == 1 || o->dense[s].level[1].fan == 1))
			return false;
	}
	o->shard = o->zero_stage == 0 ? 1 : o->hybrid ? o->dense[0].level[0].fan : o->dp * cp;
	o->expert_shard = o->zero_stage == 0 ? 1
	                  : o->hybrid        ? o->expert[0].level[0].fan
	                                     : o->dp * o->size / experts;
	o->tied_s = 0.0;
	if (o->model->tied_embeddings && o->pp > 1) {
		const struct adp_path_level *a = &o->dense[0].level[1], *b = &o->dense[o->pp - 1].level[1];
		struct adp_path pair = {.n_levels = 1,
		                        .level = {b->link.bytes_per_s < a->link.bytes_per_s ? *b : *a}};

		pair.level[0].fan = 2;
		o->tied_s = adp_collective_s(o->tables, ADP_ALL_REDUCE, &pair,
		                             o->embedding_elems * o->grad_bytes);
	}
	return true;
}

static double exchange_s(const struct oracle *o, uint32_t s, enum adp_collective op, double dense,
                         double expert, bool in_shard)
{
	struct adp_path d = o->dense[s], e = o->expert[s];

	if (in_shard && o->hybrid)
		d.n_levels = e.n_levels = 1;
	return adp_collective_s(o->tables, op, &d, dense) + adp_collective_s(o->tables, op, &e, expert);
}

/* Summing shards of the domains across them. */
static double across_s(const struct oracle *o, uint32_t s, double dense, double expert)
{
	struct adp_path d = {.n_levels = 1, .level = {o->dense[s].level[1]}};
	struct adp_path e = {.n_levels = 1, .level = {o->expert[s].level[1]}};

	return adp_collective_s(o->tables, ADP_ALL_REDUCE, &d, dense) +
	       adp_collective_s(o->tables, ADP_ALL_REDUCE, &e, expert);
}

/* ---- one plan ------------------------------------------------------------------------ */

static double send_s(const struct oracle *o, uint32_t team, uint32_t from, uint32_t to)
{
	const struct pool *a = &o->pool[o->type[team][from]], *b = &o->pool[o->type[team][to]];
	const struct pool *narrow = b->far.bytes_per_s < a->far.bytes_per_s ? b : a;
	struct adp_path path = {.n_levels = 1, .level = {{2, narrow->far, narrow->gpu}}};
	bool same_node = a == b;
	double bytes = (double)o->shape.micro_batch_seqs * (double)o->train->seq_tokens / o->shape.cp *
	               (double)o->model->hidden * o->element_bytes;

	for (uint32_t r = 0; r < o->replicas[team] && same_node; r++)
		same_node = node_of(a, o->first[team][from] + r, o->size) ==
		            node_of(b, o->first[team][to] + r, o->size);
	if (same_node)
		path.level[0].link = a->near;
	if (o->shape.sequence_parallel)
		bytes /= o->shape.tp;
	return o->engine->p2p_fixed_s + (1.0 - o->engine->p2p_overlap_frac) *
	                                    adp_collective_s(o->tables, ADP_SEND, &path, bytes);
}

/* Layers of a rank's chunk: the first chunks take what does not divide. */
static uint32_t chunk_size(const struct oracle *o, uint32_t s, uint32_t c)
{
	return o->split[s] / o->vpp + (c < o->split[s] % o->vpp ? 1 : 0);
}

static uint32_t chunk_first(const struct oracle *o, uint32_t s, uint32_t c)
{
	uint32_t at = 0;

	for (uint32_t j = 0; j <= c; j++)
		for (uint32_t i = 0; i < o->pp && !(j == c && i == s); i++)
			at += chunk_size(o, i, j);
	return at;
}

static bool fits(const struct oracle *o, uint32_t s, enum adp_recompute recompute)
{
	uint32_t first[MAX_CHUNKS], n[MAX_CHUNKS],
		most = (uint32_t)((o->n_batches + o->dp - 1) / o->dp);
	struct adp_rank_items items = {0, first, n};
	struct adp_memory_opts opts = {
		.zero_stage = o->zero_stage,
		.shard_gpus = o->shard,
		.expert_shard_gpus = o->expert_shard,
		.recompute = recompute,
		.flash = true,
		.tied_head_here = o->model->tied_embeddings && o->pp > 1 && s + 1 == o->pp,
		.n_comm_groups = (uint32_t)((o->shape.tp > 1) + (o->shape.cp > 1) + (o->shape.ep > 1) +
	                                (o->dp > 1) + 2 * (o->pp > 1))};
	struct adp_memory memory;
	double size[MAX_CHUNKS];

	if (s == 0) {
		first[items.n_chunks] = 0;
		n[items.n_chunks++] = 1;
	}
	for (uint32_t c = 0; c < o->vpp; c++) {
		size[c] = chunk_size(o, s, c);
		if (size[c] > 0.0) {
			first[items.n_chunks] = 1 + chunk_first(o, s, c);
			n[items.n_chunks++] = chunk_size(o, s, c);
		}
	}
	if (s + 1 == o->pp) {
		first[items.n_chunks] = 1 + o->n_layers;
		n[items.n_chunks++] = o->model->n_items - 1 - o->n_layers;
	}
	opts.in_flight = adp_pipeline_in_flight(s, o->pp, o->vpp, most);
	if (o->vpp > 1 && o->split[s])
		opts.in_flight = adp_pipeline_alive_peak(size, s, o->pp, o->vpp, most) / o->split[s];
	for (uint32_t k = 0; k < o->n_teams; k++)
		opts.flash = opts.flash && adp_flash_available(o->engine, o->pool[o->type[k][s]].gpu,
		                                               o->train->precision);
	adp_memory(&memory, o->engine, o->model, o->train, &o->shape, &items, &opts);
	for (uint32_t k = 0; k < o->n_teams; k++)
		if (memory.peak_bytes > adp_usable_bytes(o->engine, o->pool[o->type[k][s]].gpu))
			return false;
	return true;
}

/* One layer on a stage with what its sharding adds to a micro-batch beyond what compute hides. */
static struct work layer_work(const struct oracle *o, uint32_t team, uint32_t s, uint32_t l)
{
	struct work w = o->layer[o->type[team][s]][l];
	double fwd_s = w.fwd_s, bwd_s = w.bwd_s, hidden = o->engine->fsdp_overlap_frac, gather = 0.0,
		   scatter;
	double dense = o->layer_elems[l], expert = o->layer_expert_elems[l];

	if (o->zero_stage < 2 || (o->zero_stage == 2 && o->pp > 1))
		return w;
	scatter = exchange_s(o, s, ADP_REDUCE_SCATTER, dense * o->grad_bytes, expert * o->grad_bytes,
	                     true);
	if (o->zero_stage == 3)
		gather = exchange_s(o, s, ADP_ALL_GATHER, dense * o->weight_bytes, expert * o->weight_bytes,
		                    true);
	w.fwd_s += fmax(0.0, gather - hidden * fwd_s);
	w.bwd_s += fmax(0.0, gather + scatter - hidden * bwd_s);
	return w;
}

/* Times of the chunks of a team's replicas. */
static void chunk_times(const struct oracle *o, struct adp_pipe_stage *out, uint32_t team,
                        const uint8_t *recompute)
{
	for (uint32_t c = 0; c < o->vpp; c++)
		for (uint32_t s = 0; s < o->pp; s++) {
			struct adp_pipe_stage *stage = &out[c * o->pp + s];
			uint32_t first = chunk_first(o, s, c);
			bool opens = s == 0 && c == 0, closes = s + 1 == o->pp && c + 1 == o->vpp;

			memset(stage, 0, sizeof *stage);
			for (uint32_t l = first; l < first + chunk_size(o, s, c); l++) {
				struct work w = layer_work(o, team, s, l);

				stage->fwd_s += w.fwd_s;
				stage->bwd_s += w.bwd_s + w.recompute_s[recompute[s]];
			}
			if (opens) {
				stage->fwd_s += o->embedding[o->type[team][s]].fwd_s;
				stage->bwd_s += o->embedding[o->type[team][s]].bwd_s;
			}
			if (closes) {
				stage->fwd_s += o->tail[o->type[team][s]].fwd_s;
				stage->bwd_s += o->tail[o->type[team][s]].bwd_s;
			}
			if (o->pp > 1 && !closes)
				stage->send_fwd_s = send_s(o, team, s, (s + 1) % o->pp);
			if (o->pp > 1 && !opens)
				stage->send_bwd_s = send_s(o, team, s, (s + o->pp - 1) % o->pp);
		}
}

/* What follows the last backward of a stage: exchange, part of it hidden behind that backward, and
 * optimizer. */
static double after_s(const struct oracle *o, uint32_t s, double last_bwd_s)
{
	double dense = 0.0, expert = 0.0, exchange = 0.0, slowest = INFINITY, owned;

	for (uint32_t c = 0; c < o->vpp; c++)
		for (uint32_t l = chunk_first(o, s, c), i = 0; i < chunk_size(o, s, c); i++) {
			dense += o->layer_elems[l + i];
			expert += o->layer_expert_elems[l + i];
		}
	if (s == 0)
		dense += o->embedding_elems;
	if (s + 1 == o->pp)
		dense += o->tail_elems +
		         (o->model->tied_embeddings && o->pp > 1 ? o->embedding_elems : 0.0);
	owned = dense / o->shard + expert / o->expert_shard;
	if (o->zero_stage == 0)
		exchange = exchange_s(o, s, ADP_ALL_REDUCE, dense * o->grad_bytes, expert * o->grad_bytes,
		                      false);
	/* stage 2 and 3 scatter in each micro-batch, but 2 in a pipeline at the end */
	if (o->zero_stage == 1 || (o->zero_stage == 2 && o->pp > 1))
		exchange += exchange_s(o, s, ADP_REDUCE_SCATTER, dense * o->grad_bytes,
		                       expert * o->grad_bytes, false);
	if (o->zero_stage == 1 || o->zero_stage == 2)
		exchange += exchange_s(o, s, ADP_ALL_GATHER, dense * o->weight_bytes,
		                       expert * o->weight_bytes, false);
	if (o->hybrid)
		exchange += across_s(o, s, dense / o->shard * o->grad_bytes,
		                     expert / o->expert_shard * o->grad_bytes);
	for (uint32_t k = 0; k < o->n_teams; k++)
		slowest = fmin(slowest, o->pool[o->type[k][s]].gpu->memory_bytes_per_s);
	return exchange - fmin(exchange * o->engine->dp_overlap_frac, last_bwd_s) +
	       owned * o->state_traffic_bytes / slowest;
}

static double end_of(struct oracle *o, const struct adp_pipe_stage *chunk, const double *after,
                     uint32_t n_micro)
{
	double end[MAX_STAGES], last = 0.0;

	if (adp_pipeline_scratch(o->pp, o->vpp, n_micro) > SCRATCH ||
	    adp_pipeline_end(end, chunk, o->pp, o->vpp, n_micro, o->scratch, NULL))
		return INFINITY;
	for (uint32_t s = 0; s < o->pp; s++)
		last = fmax(last, end[s] + after[s]);
	return last;
}

/* Hands out micro-batches one by one to the replica that would end soonest with one more. */
static double share_out(struct oracle *o, struct adp_pipe_stage chunk[][MAX_CHUNKS],
                        double after[][MAX_STAGES])
{
	uint32_t least = o->pp > 1 && !o->engine->fewer_batches_than_stages ? o->pp : 1,
			 n[MAX_REPLICAS], team[MAX_REPLICAS];
	double next[MAX_REPLICAS], last = 0.0;
	uint32_t n_replicas = 0;
	uint64_t left = o->n_batches;

	for (uint32_t k = 0; k < o->n_teams; k++)
		for (uint32_t r = 0; r < o->replicas[k]; r++)
			team[n_replicas++] = k;
	if (left < (uint64_t)n_replicas * least)
		return INFINITY;
	for (uint32_t r = 0; r < n_replicas; r++) {
		n[r] = least;
		left -= least;
		last = fmax(last, end_of(o, chunk[team[r]], after[team[r]], least));
		next[r] = end_of(o, chunk[team[r]], after[team[r]], least + 1);
	}
	while (left--) {
		uint32_t pick = 0;

		for (uint32_t r = 1; r < n_replicas; r++)
			if (next[r] < next[pick])
				pick = r;
		last = fmax(last, next[pick]);
		n[pick]++;
		next[pick] = end_of(o, chunk[team[pick]], after[team[pick]], n[pick] + 1);
	}
	return last;
}

void oracle_weigh(struct oracle *o)
{
	struct adp_pipe_stage chunk[MAX_TYPES][MAX_CHUNKS];
	double after[MAX_TYPES][MAX_STAGES], step_s, equal_n = (double)o->n_batches / o->dp,
												 busiest = 0.0;
	uint8_t recompute[MAX_STAGES];

	for (uint32_t s = 0; s < o->pp; s++) {
		bool found = false;

		for (uint8_t r = 0; r < ADP_N_RECOMPUTE && !found; r++) {
			if (!(o->engine->recompute_mask & (1u << r)) ||
			    (o->recompute >= 0 && o->recompute != r))
				continue;
			recompute[s] = r;
			found = fits(o, s, (enum adp_recompute)r);
		}
		if (!found)
			return;
	}
	for (uint32_t k = 0; k < o->n_teams; k++) {
		chunk_times(o, chunk[k], k, recompute);
		for (uint32_t s = 0; s < o->pp; s++) {
			double fwd_s = 0.0, bwd_s = 0.0;

			for (uint32_t c = 0; c < o->vpp; c++) {
				fwd_s += chunk[k][c * o->pp + s].fwd_s;
				bwd_s += chunk[k][c * o->pp + s].bwd_s;
			}
			after[k][s] = after_s(o, s, bwd_s);
			busiest = fmax(busiest, fwd_s + bwd_s);
		}
	}
	/* no step is shorter than the work of one stage */
	if (o->equal && equal_n * busiest > o->best->step_s)
		return;
	o->best->n_weighed++;
	if (o->equal) {
		step_s = 0.0;
		for (uint32_t k = 0; k < o->n_teams; k++)
			step_s = fmax(step_s, end_of(o, chunk[k], after[k], (uint32_t)equal_n));
	} else {
		step_s = share_out(o, chunk, after);
	}
	step_s += o->engine->step_fixed_s + o->tied_s;
	if (step_s < o->best->step_s) {
		uint64_t n_weighed = o->best->n_weighed;

		*o->best = (struct oracle_best){step_s,
		                                o->shape.tp,
		                                o->shape.cp,
		                                o->shape.ep,
		                                o->shape.etp,
		                                o->dp,
		                                o->pp,
		                                o->vpp,
		                                o->zero_stage,
		                                (uint32_t)o->shape.micro_batch_seqs,
		                                o->shape.sequence_parallel,
		                                o->hybrid,
		                                o->by_replica,
		                                {0},
		                                n_weighed};
		memcpy(o->best->n_layers, o->split, sizeof o->split);
	}
}
