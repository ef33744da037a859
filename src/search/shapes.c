/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "search/space.h"

/* What each legal combination of tensor, context, expert and sequence parallelism and micro-batch
 * costs on each class of slots. */

/* A group of n ranks, stride apart in rank order, on GPUs of a class. */
static struct adp_path class_path(const struct slot_class *cls, const struct adp_gpu_type *gpu,
                                  uint32_t n, uint32_t stride, uint32_t region_gpus)
{
	struct adp_path path = {.n_levels = 0};
	uint32_t inner = 1;

	assert(stride > 0);
	for (uint32_t f = n; f > 1; f--)
		if (n % f == 0 && f * stride <= region_gpus && region_gpus % (f * stride) == 0) {
			inner = f;
			break;
		}
	path.level[0] = (struct adp_path_level){inner, cls->gpu_link, gpu};
	path.level[1] = (struct adp_path_level){n / inner, cls->far, gpu};
	path.n_levels = n / inner > 1 ? 2 : 1;
	return path;
}

static double padded_vocab(const struct space *space, uint32_t tp)
{
	double unit = (double)space->engine->vocab_multiple * tp;

	return ceil((double)space->model->vocab / unit) * unit;
}

/* Elements of one rank: expert parameters apart, the vocabulary padded. */
static void elements(double *dense, double *expert, const struct space *space,
                     const struct adp_param *params, uint32_t n, const struct adp_shape *shape)
{
	*dense = *expert = 0.0;
	for (uint32_t i = 0; i < n; i++) {
		double count = (double)adp_param_count(&params[i]);

		switch (params[i].shard) {
		case ADP_SHARD_REPLICATED:
			*dense += count;
			break;
		case ADP_SHARD_COLUMN:
		case ADP_SHARD_ROW:
			*dense += count / shape->tp;
			break;
		case ADP_SHARD_VOCAB:
			*dense += padded_vocab(space, shape->tp) / shape->tp * (double)params[i].cols;
			break;
		case ADP_SHARD_EXPERT:
			*expert += count / ((double)shape->ep * shape->etp);
			break;
		}
	}
}

/* As the evaluator chooses links: inside the domain, or the slower of the two ways out. */
static void shape_sends(struct shape_cost *out, const struct space *space)
{
	const struct slots *slots = out->slots;

	for (uint32_t t = 0; t < space->n_types; t++) {
		out->near_send_s[t] = INFINITY;
		out->near_dp[t] = slots->type[t].scattered ? UINT32_MAX : 0;
		for (uint32_t u = 0; u < space->n_types; u++)
			out->far_send_s[t][u] = INFINITY;
	}
	for (uint32_t i = 0; i < slots->n_classes; i++) {
		const struct slot_class *a = &slots->classes[i];
		const struct adp_gpu_type *gpu = &space->cluster->types[a->type];
		double far_s = send_time(space, &a->far, gpu, out->send_bytes);

		for (uint32_t t = 0; t < space->n_types; t++) {
			if (space->types[t] != a->type)
				continue;
			out->near_send_s[t] = fmin(out->near_send_s[t],
			                           send_time(space, &a->gpu_link, gpu, out->send_bytes));
			if (a->per_domain > out->near_dp[t])
				out->near_dp[t] = a->per_domain;
			for (uint32_t j = 0; j < slots->n_classes; j++) {
				const struct slot_class *b = &slots->classes[j];

				for (uint32_t u = 0; u < space->n_types; u++)
					if (space->types[u] == b->type && a->far.bytes_per_s <= b->far.bytes_per_s) {
						out->far_send_s[t][u] = fmin(out->far_send_s[t][u], far_s);
						out->far_send_s[u][t] = fmin(out->far_send_s[u][t], far_s);
					}
			}
		}
	}
}

static int shape_build(struct shape_cost *out, const struct space *space,
                       const struct adp_shape *shape, const struct slots *slots,
                       struct adp_error *err)
{
	const struct adp_model *model = space->model;
	struct adp_item_time *block, *end;
	double unused;

	memset(out, 0, sizeof *out);
	out->shape = *shape;
	out->slots = slots;
	block = adp_arena_calloc(space->arena, (size_t)slots->n_classes * model->n_blocks,
	                         sizeof *block);
	end = adp_arena_calloc(space->arena, (size_t)slots->n_classes * N_END_KINDS, sizeof *end);
	if (!block || !end)
		return adp_nomem(err);
	for (uint32_t c = 0; c < slots->n_classes; c++) {
		const struct slot_class *cls = &slots->classes[c];
		const struct adp_gpu_type *gpu = &space->cluster->types[cls->type];
		uint32_t inside = cls->n_spanned > 1 ? cls->domain_gpus : cls->per_domain * slots->size;
		struct adp_path tp = class_path(cls, gpu, shape->tp, 1, inside);
		struct adp_path cp = class_path(cls, gpu, shape->cp, shape->tp, inside);
		struct adp_path ep = class_path(cls, gpu, shape->ep, shape->etp, inside);

		for (uint32_t i = 0; i < model->n_items; i++) {
			const struct adp_item *item = &model->items[i];
			struct adp_item_time t, *to;
			int rc;

			if (item->kind == ADP_ITEM_BLOCK) {
				to = &block[c * model->n_blocks + (uint32_t)(item->block - model->blocks)];
				if (to->fwd_s > 0.0)
					continue;
			} else {
				to = &end[c * N_END_KINDS +
				          (item->kind == ADP_ITEM_EMBEDDING ? KIND_EMBEDDING : KIND_TAIL)];
			}
			rc = adp_item_time(&t, space->tables, space->engine, model, item, space->train, shape,
			                   gpu, cls->speed_frac, &tp, &cp, &ep, err);
			if (rc != ADP_OK)
				return rc;
			to->rel_error = fmax(to->rel_error, t.rel_error);
			to->fwd_s += t.fwd_s;
			to->bwd_s += t.bwd_s;
			for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
				to->recompute_s[r] += t.recompute_s[r];
			to->fwd_matmul_s += t.fwd_matmul_s;
			to->fwd_attention_s += t.fwd_attention_s;
			to->fwd_memory_s += t.fwd_memory_s;
			to->fwd_launch_s += t.fwd_launch_s;
			to->fwd_tp_s += t.fwd_tp_s;
			to->fwd_cp_s += t.fwd_cp_s;
			to->fwd_ep_s += t.fwd_ep_s;
		}
	}
	out->block = block;
	out->end = end;
	out->send_bytes = (double)shape->micro_batch_seqs * (double)space->train->seq_tokens /
	                  shape->cp * (double)model->hidden *
	                  (space->train->precision <= ADP_PRECISION_TF32 ? 4.0 : 2.0) /
	                  (shape->sequence_parallel ? shape->tp : 1.0);
	shape_sends(out, space);
	for (uint32_t i = 0; i < model->n_items; i++) {
		const struct adp_item *item = &model->items[i];

		if (item->kind == ADP_ITEM_BLOCK) {
			uint32_t k = (uint32_t)(item->block - model->blocks);

			elements(&out->block_elems[k], &out->block_expert_elems[k], space, item->params,
			         item->n_params, shape);
		} else {
			double dense;

			elements(&dense, &unused, space, item->params, item->n_params, shape);
			out->end_elems[item->kind == ADP_ITEM_EMBEDDING ? KIND_EMBEDDING : KIND_TAIL] += dense;
		}
	}
	return ADP_OK;
}

static const struct slots *slots_of(struct space *space, struct slots *all, uint32_t size,
                                    struct adp_error *err, int *rc)
{
	for (uint32_t i = 0; i < space->n_slots; i++)
		if (all[i].size == size)
			return &all[i];
	*rc = slots_build(&all[space->n_slots], space, size, err);
	return *rc == ADP_OK ? &all[space->n_slots++] : NULL;
}

enum shape_verdict {
	SHAPE_LEGAL,
	SHAPE_NEEDS_SP,
	SHAPE_UNEVEN_SEQUENCE,
	SHAPE_UNEVEN_EXPERTS,
	SHAPE_TOO_LARGE,
	N_SHAPE_VERDICTS
};

static enum shape_verdict shape_judge(const struct space *space, const struct adp_shape *shape,
                                      uint64_t expert_width, double n_gpus)
{
	assert(shape->tp > 0 && shape->cp > 0 && shape->etp > 0);
	if (shape->tp > 1 && expert_width && space->engine->moe_tp_needs_sp &&
	    !shape->sequence_parallel)
		return SHAPE_NEEDS_SP;
	/* each rank takes an equal share of the sequence */
	if (shape->tp > 1 && shape->sequence_parallel &&
	    space->train->seq_tokens % ((uint64_t)shape->tp * shape->cp))
		return SHAPE_UNEVEN_SEQUENCE;
	/* and of each expert's width */
	if (expert_width % shape->etp)
		return SHAPE_UNEVEN_EXPERTS;
	/* an expert group must fit what data parallelism can give */
	if ((double)shape->ep * shape->etp > n_gpus)
		return SHAPE_TOO_LARGE;
	return SHAPE_LEGAL;
}

int shapes_build(struct space *space, const struct degrees *d, struct adp_error *err)
{
	uint64_t max = (uint64_t)d->tp.n * d->cp.n * d->ep.n * d->micro.n * 4;
	struct slots *all = adp_arena_calloc(space->arena, (size_t)d->tp.n * d->cp.n, sizeof *all);
	struct shape_cost *shapes = adp_arena_calloc(space->arena, (size_t)max, sizeof *shapes);
	double n_gpus = fmin((double)adp_cluster_n_gpus(space->cluster), space->max_slots_gpus);
	const struct adp_block *last = &space->model->blocks[space->model->n_blocks - 1];
	uint64_t expert_width = last->n_experts ? last->expert_ffn_hidden : 0;
	bool any[N_SHAPE_VERDICTS] = {false};
	int rc = ADP_OK;

	if (!all || !shapes)
		return adp_nomem(err);
	for (uint32_t a = 0; a < d->tp.n; a++)
		for (uint32_t b = 0; b < d->cp.n; b++) {
			uint32_t tp = d->tp.value[a], cp = d->cp.value[b], n_slots = 0;
			const struct slots *slots;

			if ((double)tp * cp > n_gpus) {
				space->n_refused++;
				continue;
			}
			slots = slots_of(space, all, tp * cp, err, &rc);
			if (!slots)
				return rc;
			for (uint32_t t = 0; t < space->n_types; t++)
				n_slots += slots->type[t].n;
			if (n_slots == 0) {
				space->n_refused++;
				continue;
			}
			for (uint32_t i = 0; i < d->ep.n * 2 * d->sp.n * d->micro.n; i++) {
				uint32_t of_ep = i / (2 * d->sp.n * d->micro.n), rest = i / d->micro.n;
				bool experts_whole = rest / d->sp.n % 2;
				struct adp_shape shape = {.tp = tp,
				                          .cp = cp,
				                          .ep = d->ep.value[of_ep],
				                          .etp = experts_whole ? 1 : tp,
				                          .sequence_parallel = d->sp.value[rest % d->sp.n],
				                          .micro_batch_seqs = d->micro.value[i % d->micro.n],
				                          .precision = space->train->precision};
				enum shape_verdict verdict;

				/* where TP is 1 these are the same shape twice */
				if (tp == 1 && (experts_whole || (shape.sequence_parallel && d->sp.n > 1)))
					continue;
				if (experts_whole && (!expert_width || !space->engine->expert_tensor_parallel))
					continue;
				verdict = shape_judge(space, &shape, expert_width, n_gpus);
				any[verdict] = true;
				if (verdict != SHAPE_LEGAL) {
					space->n_refused++;
					continue;
				}
				rc = shape_build(&shapes[space->n_shapes], space, &shape, slots, err);
				if (rc != ADP_OK)
					return rc;
				space->n_shapes++;
			}
		}
	space->slots = all;
	space->shapes = shapes;
	if (space->n_shapes == 0 && any[SHAPE_UNEVEN_EXPERTS])
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"no tensor parallel size allowed here divides the experts' width of %" PRIu64,
			expert_width);
	if (space->n_shapes == 0 && any[SHAPE_UNEVEN_SEQUENCE])
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"--seq %" PRIu64
			": sequence parallelism needs a tensor x context parallel size that divides it",
			space->train->seq_tokens);
	if (space->n_shapes == 0)
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"no tensor x context parallel group fits the fleet: the smallest allowed needs %u GPUs of one type "
			"in one node or in whole nodes",
			d->tp.value[0] * d->cp.value[0]);
	return ADP_OK;
}
