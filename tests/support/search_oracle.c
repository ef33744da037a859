/* SPDX-License-Identifier: Apache-2.0 */
#include "search_oracle.h"

#include <math.h>
#include <string.h>

#include "search_oracle_step.h"

/* ---- the fleet ----------------------------------------------------------------------- */

static bool runs_on(const struct oracle *o, const struct adp_gpu_type *gpu)
{
	uint32_t cc = gpu->compute_capability;

	if (o->engine->nvidia_only && strcmp(gpu->vendor, "NVIDIA") != 0)
		return false;
	if (cc < o->engine->min_compute_capability)
		return false;
	if (o->train->precision == ADP_PRECISION_BF16 && cc < o->engine->min_cc_bf16)
		return false;
	return gpu->peak_flops_per_s[o->train->precision] > 0.0;
}

static void find_pools(struct oracle *o)
{
	for (uint32_t t = 0; t < o->cluster->n_types; t++) {
		struct pool *pool = &o->pool[o->n_pools];

		if (!runs_on(o, &o->cluster->types[t]))
			continue;
		memset(pool, 0, sizeof *pool);
		for (uint32_t i = 0; i < o->cluster->n_nodes; i++) {
			const struct adp_node *node = &o->cluster->nodes[i];

			if (node->type != t)
				continue;
			pool->n_nodes++;
			pool->node_gpus = node->n_gpus;
			pool->gpu = &o->cluster->types[t];
			pool->speed_frac = fmax(0.05, round(node->gpu_speed_frac[0] * 20.0) / 20.0);
			pool->near = node->gpu_link;
			pool->near.bytes_per_s *= 1.0 - node->gpu_link.load_frac;
			if (node->gpu_link.kind == ADP_LINK_PCIE)
				pool->near.bytes_per_s /= node->gpus_per_root;
			pool->far = node->nic;
			pool->far.bytes_per_s *= 1.0 - node->nic.load_frac;
			pool->far.bytes_per_s = fmin(pool->far.bytes_per_s / node->n_gpus,
			                             pool->gpu->pcie_bytes_per_s);
			pool->near.load_frac = pool->far.load_frac = 0.0;
		}
		if (pool->n_nodes)
			o->n_pools++;
	}
}

/* Groups of `size` ranks: inside a node, or over whole nodes. */
static void form_groups(struct oracle *o)
{
	for (uint32_t p = 0; p < o->n_pools; p++) {
		struct pool *pool = &o->pool[p];

		pool->per_node = pool->node_gpus / o->size;
		if (pool->per_node)
			pool->n = pool->n_nodes * pool->per_node;
		else
			pool->n = o->size % pool->node_gpus ? 0 : pool->n_nodes / (o->size / pool->node_gpus);
	}
}

/* ---- everything ---------------------------------------------------------------------- */

/* The ends may stand alone on a stage; any other holds a layer, and so does each rank of an
 * interleaved schedule. */
static void try_splits(struct oracle *o, uint32_t s, uint32_t left)
{
	uint32_t least = o->vpp > 1 || (s > 0 && s + 1 < o->pp) ? 1 : 0;

	if (s + 1 == o->pp) {
		if (left < least)
			return;
		o->split[s] = left;
		oracle_weigh(o);
		return;
	}
	for (uint32_t n = least; n <= left; n++) {
		o->split[s] = n;
		try_splits(o, s + 1, left - n);
	}
}

static bool may_shard(const struct oracle *o)
{
	uint32_t mask = o->pp > 1 ? o->engine->zero_mask_with_pipeline : o->engine->zero_mask;

	if (!(mask & (1u << o->zero_stage)))
		return false;
	if (o->zero_stage >= 2 &&
	    ((o->engine->zero23_needs_untied && o->model->tied_embeddings) ||
	     (!o->engine->zero23_allows_fp16 && o->train->precision == ADP_PRECISION_FP16)))
		return false;
	/* one rank has nothing to share with: that is stage 0, where there is one */
	if (o->zero_stage > 0 && (mask & 1u) && o->dp * o->shape.cp == 1 &&
	    o->shape.tp <= o->shape.ep * o->shape.etp)
		return false;
	return !o->hybrid || (o->engine->hsdp && o->zero_stage >= 2);
}

/* All that is still open once GPUs are placed: sharding, schedule, recomputation, layers. */
static void try_placed(struct oracle *o)
{
	const struct adp_engine *e = o->engine;

	for (uint32_t k = 0; k < o->n_teams; k++) {
		if (o->replicas[k] * o->size % (o->shape.ep * o->shape.etp))
			return;
		for (uint32_t s = 0; s < o->pp && o->shape.cp > 1; s++)
			if (!adp_flash_available(e, o->pool[o->type[k][s]].gpu, o->train->precision))
				return;
	}
	for (uint32_t z = 0; z < 8; z++) {
		o->zero_stage = z / 2;
		o->hybrid = z % 2;
		o->equal = !e->uneven_micro_batches || o->zero_stage >= 2;
		if (!may_shard(o) || ((o->equal || e->batch_divides_evenly) && o->n_batches % o->dp) ||
		    !oracle_form_exchanges(o))
			continue;
		if (o->n_batches <
		    (uint64_t)o->dp * (o->pp > 1 && !e->fewer_batches_than_stages ? o->pp : 1))
			continue;
		for (o->vpp = 1;
		     o->vpp == 1 || (e->virtual_pipeline && o->pp > 1 && o->pp * o->vpp <= o->n_layers);
		     o->vpp++) {
			if (o->vpp > 1 && e->vpp_needs_divisible_batches && o->n_batches / o->dp % o->pp)
				continue;
			for (o->recompute = -1; o->recompute < ADP_N_RECOMPUTE; o->recompute++)
				if (e->recompute_per_stage
				        ? o->recompute < 0
				        : o->recompute >= 0 && e->recompute_mask & (1u << o->recompute))
					try_splits(o, 0, o->n_layers);
		}
	}
}

/* Replicas all alike, n[t] stages on each type, in the order given or the other. */
static void try_stages(struct oracle *o, const uint32_t *n)
{
	for (uint32_t turn = 0; turn < (n[0] && n[1] ? 2 : 1); turn++) {
		uint32_t s = 0;

		for (uint32_t i = 0; i < MAX_TYPES; i++) {
			uint32_t t = turn ? 1 - i : i;

			for (uint32_t j = 0; j < n[t]; j++, s++) {
				o->type[0][s] = t;
				o->first[0][s] = j * o->dp;
			}
		}
		o->pp = s;
		o->n_teams = 1;
		o->replicas[0] = o->dp;
		o->by_replica = false;
		try_placed(o);
	}
}

/* r[t] replicas of pp stages on each type, both used. */
static void try_replicas(struct oracle *o, const uint32_t *r, uint32_t pp)
{
	o->pp = pp;
	o->dp = r[0] + r[1];
	o->n_teams = 2;
	o->by_replica = true;
	for (uint32_t t = 0; t < 2; t++) {
		o->replicas[t] = r[t];
		for (uint32_t s = 0; s < pp; s++) {
			o->type[t][s] = t;
			o->first[t][s] = s * r[t];
		}
	}
	try_placed(o);
}

static void try_shape(struct oracle *o)
{
	uint32_t have[MAX_TYPES] = {0}, n[MAX_TYPES], most_pp = o->n_layers + 2;

	for (uint32_t t = 0; t < o->n_pools; t++)
		have[t] = o->pool[t].n;
	o->n_batches = o->train->global_batch_seqs / o->shape.micro_batch_seqs;
	for (uint32_t dp = 1; dp <= have[0] || dp <= have[1]; dp++)
		for (n[0] = 0; n[0] * dp <= have[0]; n[0]++)
			for (n[1] = 0; n[1] * dp <= have[1]; n[1]++)
				if (n[0] + n[1] > 0 && n[0] + n[1] <= most_pp && n[0] + n[1] <= MAX_STAGES) {
					o->dp = dp;
					try_stages(o, n);
				}
	for (uint32_t pp = 1; pp <= most_pp && pp <= MAX_STAGES; pp++)
		for (n[0] = 1; n[0] * pp <= have[0]; n[0]++)
			for (n[1] = 1; n[1] * pp <= have[1]; n[1]++)
				try_replicas(o, n, pp);
}

static bool may_split(const struct oracle *o, uint32_t tp)
{
	for (uint32_t b = 0; b < o->model->n_blocks; b++) {
		const struct adp_block *block = &o->model->blocks[b];
		bool kv = block->n_kv_heads % tp == 0 ||
		          (o->engine->kv_replication && tp % block->n_kv_heads == 0);

		if (block->n_heads % tp || !kv || block->ffn_hidden % tp || block->shared_ffn_hidden % tp)
			return false;
	}
	return tp <= o->engine->max_tensor;
}

static bool legal_shape(const struct oracle *o)
{
	const struct adp_shape *s = &o->shape;
	const struct adp_block *last = &o->model->blocks[o->model->n_blocks - 1];

	if (o->train->global_batch_seqs % s->micro_batch_seqs || !may_split(o, s->tp))
		return false;
	if (s->cp > 1 && (!o->engine->context_parallel || o->train->seq_tokens % (2 * s->cp)))
		return false;
	if (s->ep > 1 && (!o->moe || !o->engine->expert_parallel || last->n_experts % s->ep))
		return false;
	if (s->etp != s->tp && (s->etp != 1 || !o->moe || !o->engine->expert_tensor_parallel))
		return false;
	if (o->moe && last->expert_ffn_hidden % s->etp)
		return false;
	if (s->sequence_parallel &&
	    (s->tp == 1 || !o->engine->sequence_parallel || o->train->seq_tokens % (s->tp * s->cp)))
		return false;
	return s->tp == 1 || !o->moe || !o->engine->moe_tp_needs_sp || s->sequence_parallel;
}

static int try_everything(struct oracle *o, uint32_t n_gpus)
{
	struct adp_shape *s = &o->shape;

	s->precision = o->train->precision;
	for (s->tp = 1; s->tp <= n_gpus; s->tp++)
		for (s->cp = 1; s->tp * s->cp <= n_gpus; s->cp *= 2)
			for (s->ep = 1; s->ep <= n_gpus; s->ep++)
				for (uint32_t etp = 0; etp < (s->tp > 1 ? 2 : 1); etp++)
					for (uint32_t sp = 0; sp < 2; sp++)
						for (s->micro_batch_seqs = 1;
						     s->micro_batch_seqs <= o->train->global_batch_seqs;
						     s->micro_batch_seqs++) {
							int rc;

							s->etp = etp ? 1 : s->tp;
							s->sequence_parallel = sp;
							if (!legal_shape(o))
								continue;
							o->size = s->tp * s->cp;
							form_groups(o);
							rc = oracle_cost_shape(o);
							if (rc)
								return rc;
							try_shape(o);
						}
	return ADP_OK;
}

int search_oracle(struct oracle_best *out, const struct adp_model *model,
                  const struct adp_cluster *cluster, const struct adp_engine *engine,
                  const struct adp_tables *tables, const struct adp_train *train,
                  struct adp_error *err)
{
	struct oracle o = {.model = model,
	                   .cluster = cluster,
	                   .engine = engine,
	                   .tables = tables,
	                   .train = train,
	                   .err = err,
	                   .best = out,
	                   .n_layers = model->n_layers};
	bool whole = train->precision <= ADP_PRECISION_TF32;

	*out = (struct oracle_best){.step_s = (double)INFINITY};
	if (cluster->n_types > MAX_TYPES || model->n_layers > MAX_LAYERS ||
	    adp_cluster_n_gpus(cluster) > MAX_REPLICAS)
		return adp_fail(err, ADP_ELIMIT, "more than the oracle can try");
	o.weight_bytes = whole ? 4.0 : engine->weight_bytes;
	o.grad_bytes = whole                                    ? 4.0
	               : train->precision == ADP_PRECISION_FP16 ? engine->fp16_grad_bytes
	                                                        : engine->grad_bytes;
	o.element_bytes = whole ? 4.0 : 2.0;
	/* the optimizer reads gradient, master copy and moments, and writes the last two and the weight
	 */
	o.state_traffic_bytes = o.grad_bytes + o.weight_bytes +
	                        2.0 * (engine->master_bytes +
	                               adp_optimizer_moment_bytes(train->optimizer));
	for (uint32_t b = 0; b < model->n_blocks; b++)
		o.moe = o.moe || model->blocks[b].n_experts;
	find_pools(&o);
	return try_everything(&o, (uint32_t)adp_cluster_n_gpus(cluster));
}
