/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "search/explain.h"

uint32_t plan_stage_layers(const struct adp_plan_stage *stage)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < stage->n_chunks; c++)
		n += stage->n_layers[c];
	return n;
}

uint32_t plan_n_used(const struct adp_plan *plan)
{
	uint32_t n = 0;

	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		n += plan->gpus[t].n_used;
	return n;
}

static void add(struct adp_strbuf *out, const char *what, uint64_t from, uint64_t to)
{
	if (from != to)
		adp_strbuf_addf(out, "%s%s %llu -> %llu", out->len ? ", " : "", what,
		                (unsigned long long)from, (unsigned long long)to);
}

/* Stages by how they recompute. */
static void recomputing(uint32_t n[ADP_N_RECOMPUTE], const struct adp_plan *plan)
{
	memset(n, 0, ADP_N_RECOMPUTE * sizeof *n);
	for (uint32_t s = 0; s < plan->pp; s++)
		n[plan->stages[s].recompute]++;
}

static enum adp_recompute strongest(const uint32_t n[ADP_N_RECOMPUTE])
{
	return n[ADP_RECOMPUTE_FULL]        ? ADP_RECOMPUTE_FULL
	       : n[ADP_RECOMPUTE_SELECTIVE] ? ADP_RECOMPUTE_SELECTIVE
	                                    : ADP_RECOMPUTE_NONE;
}

static void add_recompute(struct adp_strbuf *out, const struct adp_plan *from,
                          const struct adp_plan *to)
{
	uint32_t a[ADP_N_RECOMPUTE], b[ADP_N_RECOMPUTE];
	enum adp_recompute was, is;

	recomputing(a, from);
	recomputing(b, to);
	was = strongest(a);
	is = strongest(b);
	if (was != is)
		adp_strbuf_addf(out, "%srecomputation %s -> %s", out->len ? ", " : "",
		                adp_recompute_name(was), adp_recompute_name(is));
	else if (was != ADP_RECOMPUTE_NONE && from->pp == to->pp)
		add(out, "stages that recompute", a[was], b[is]);
}

static bool same_layers(const struct adp_plan *a, const struct adp_plan *b)
{
	for (uint32_t s = 0; s < a->pp; s++)
		if (plan_stage_layers(&a->stages[s]) != plan_stage_layers(&b->stages[s]))
			return false;
	return true;
}

static void micro_range(uint32_t *least, uint32_t *most, const struct adp_plan *plan)
{
	*least = UINT32_MAX;
	*most = 0;
	for (uint32_t i = 0; i < plan->n_pipes; i++) {
		*least = plan->pipes[i].n_micro < *least ? plan->pipes[i].n_micro : *least;
		*most = plan->pipes[i].n_micro > *most ? plan->pipes[i].n_micro : *most;
	}
}

void plan_changes(struct adp_strbuf *out, const struct adp_plan *from, const struct adp_plan *to)
{
	uint32_t least[2], most[2];

	for (uint32_t t = 0; t < from->n_gpu_types && t < to->n_gpu_types; t++) {
		const struct adp_plan_gpu *gpu = &from->gpus[t];

		if (strcmp(gpu->type, to->gpus[t].type) == 0 && gpu->n_used != to->gpus[t].n_used)
			adp_strbuf_addf(out, "%s%s %u -> %u GPUs", out->len ? ", " : "",
			                gpu->alias && *gpu->alias ? gpu->alias : gpu->type, gpu->n_used,
			                to->gpus[t].n_used);
	}
	add(out, "tensor parallel", from->tp, to->tp);
	add(out, "pipeline", from->pp, to->pp);
	add(out, "data parallel", from->dp, to->dp);
	add(out, "context parallel", from->cp, to->cp);
	add(out, "expert parallel", from->ep, to->ep);
	add(out, "virtual pipeline", from->vpp, to->vpp);
	add_recompute(out, from, to);
	add(out, "ZeRO", from->zero_stage, to->zero_stage);
	add(out, "micro-batch", from->micro_batch_seqs, to->micro_batch_seqs);
	if (out->len)
		return;
	/* the same degrees: the shares may still differ */
	if (!same_layers(from, to))
		adp_strbuf_add(out, "other layers per stage");
	micro_range(&least[0], &most[0], from);
	micro_range(&least[1], &most[1], to);
	if (least[0] != least[1] || most[0] != most[1])
		adp_strbuf_addf(out, "%smicro-batches %u..%u -> %u..%u a replica", out->len ? ", " : "",
		                least[0], most[0], least[1], most[1]);
}
