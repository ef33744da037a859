/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "adp/model.h"

uint64_t adp_param_count(const struct adp_param *param)
{
	return param->n_copies * param->rows * param->cols;
}

uint64_t adp_item_params(const struct adp_item *item)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < item->n_params; i++)
		total += adp_param_count(&item->params[i]);
	return total;
}

uint64_t adp_model_params(const struct adp_model *model)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < model->n_items; i++)
		total += adp_item_params(&model->items[i]);
	return total;
}

/* Copies of a tensor that one token meets. */
static uint64_t active_copies(const struct adp_item *item, const struct adp_param *param)
{
	return param->shard == ADP_SHARD_EXPERT ? item->block->top_k : param->n_copies;
}

uint64_t adp_model_active_params(const struct adp_model *model)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < model->n_items; i++) {
		const struct adp_item *item = &model->items[i];
		for (uint32_t j = 0; j < item->n_params; j++)
			total += active_copies(item, &item->params[j]) * item->params[j].rows *
			         item->params[j].cols;
	}
	return total;
}

/* ---- work -------------------------------------------------------------------------- */

double adp_mean_keys(uint64_t seq_tokens, uint32_t window_tokens)
{
	double s = (double)seq_tokens, w = (double)window_tokens;

	if (seq_tokens == 0)
		return 0;
	if (window_tokens == 0 || window_tokens >= seq_tokens)
		return (s + 1) / 2;
	/* Token i sees min(i, w) keys: w (w + 1) / 2 over the first w tokens, then w each. */
	return (w * (w + 1) / 2 + (s - w) * w) / s;
}

double adp_item_flops(const struct adp_model *model, const struct adp_item *item,
                      uint64_t seq_tokens)
{
	const struct adp_block *block = item->block;
	double flops = 0;

	for (uint32_t i = 0; i < item->n_params; i++) {
		const struct adp_param *param = &item->params[i];
		/* The head's matrix is counted below, tied or not. */
		if (param->matmul && param->shard != ADP_SHARD_VOCAB)
			flops += 2.0 * (double)active_copies(item, param) * (double)param->rows *
			         (double)param->cols;
	}
	if (item->kind == ADP_ITEM_HEAD)
		flops += 2.0 * (double)model->vocab * (double)model->embedding_width;
	if (item->kind == ADP_ITEM_BLOCK)
		flops += 2.0 * block->n_heads * (double)(block->head_dim + block->v_head_dim) *
		         adp_mean_keys(seq_tokens, block->window_tokens);
	return flops;
}

double adp_model_flops(const struct adp_model *model, uint64_t seq_tokens)
{
	double total = 0;

	for (uint32_t i = 0; i < model->n_items; i++)
		total += adp_item_flops(model, &model->items[i], seq_tokens);
	return total;
}

/* Elements that the norms and projections around attention keep, per token. */
static double attention_elements(const struct adp_model *model, const struct adp_block *block)
{
	double h = (double)model->hidden;
	double q = (double)block->n_heads * block->head_dim,
		   k = (double)block->n_kv_heads * block->head_dim;
	double v = (double)block->n_kv_heads * block->v_head_dim,
		   out = (double)block->n_heads * block->v_head_dim;
	/* Inputs of the norms; inputs of the QKV and MLP matrices, one tensor where they share it. */
	double inputs = block->parallel_residual && block->n_norms == 1 ? h : 2 * h;

	return block->n_norms * h + inputs + q + k + v + out + (model->qk_norm ? q + k : 0);
}

static double mlp_elements(bool gated, double width)
{
	return (gated ? 3 : 2) *
	       width; /* up, (gate,) and their product or activation, the input of down */
}

double adp_item_activation_bytes(const struct adp_model *model, const struct adp_item *item)
{
	const struct adp_block *block = item->block;
	double h = (double)model->hidden, elements;

	switch (item->kind) {
	case ADP_ITEM_EMBEDDING:
		return 0;
	case ADP_ITEM_FINAL_NORM:
		return item->n_params ? 2 * h : 0;
	case ADP_ITEM_HEAD:
		return 2 * h;
	case ADP_ITEM_LOSS:
		return 4 * (double)model->vocab;
	case ADP_ITEM_BLOCK:
		break;
	}
	elements = attention_elements(model, block) +
	           mlp_elements(block->gated, (double)block->ffn_hidden);
	if (block->n_experts)
		/* Router's scores, then per visited expert its dispatched input, widths and output to be
		 * weighted. */
		elements += block->n_experts +
		            mlp_elements(block->gated, (double)block->shared_ffn_hidden) +
		            block->top_k *
		                (2 * h + mlp_elements(block->gated, (double)block->expert_ffn_hidden));
	return 2 * elements;
}

/* ---- degrees ----------------------------------------------------------------------- */

bool adp_degrees_has(const struct adp_degrees *degrees, uint32_t value)
{
	for (uint32_t i = 0; i < degrees->n; i++)
		if (degrees->value[i] == value)
			return true;
	return false;
}

static bool divides_widths(const struct adp_block *block, uint32_t tp)
{
	return block->n_heads % tp == 0 && block->ffn_hidden % tp == 0 &&
	       block->shared_ffn_hidden % tp == 0;
}

static bool tp_is_legal(const struct adp_model *model, uint32_t tp, bool replicated)
{
	for (uint32_t i = 0; i < model->n_blocks; i++) {
		const struct adp_block *block = &model->blocks[i];
		if (!divides_widths(block, tp))
			return false;
		if (block->n_kv_heads % tp != 0 && !(replicated && tp % block->n_kv_heads == 0))
			return false;
	}
	return true;
}

static bool ep_is_legal(const struct adp_model *model, uint32_t ep, bool unused)
{
	(void)unused;
	for (uint32_t i = 0; i < model->n_blocks; i++)
		if (model->blocks[i].n_experts && model->blocks[i].n_experts % ep != 0)
			return false;
	return true;
}

static bool pp_is_uniform(const struct adp_model *model, uint32_t pp, bool unused)
{
	(void)unused;
	return model->n_layers % pp == 0;
}

static int list_degrees(struct adp_degrees *out, const struct adp_model *model, uint32_t max,
                        bool (*legal)(const struct adp_model *, uint32_t, bool), bool flag,
                        struct adp_arena *arena, struct adp_error *err)
{
	uint32_t n = 0, *value;

	for (uint32_t d = 1; d <= max; d++)
		n += legal(model, d, flag);
	value = adp_arena_calloc(arena, n, sizeof *value);
	if (!value)
		return adp_nomem(err);
	out->value = value;
	out->n = n;
	for (uint32_t d = 1; d <= max; d++)
		if (legal(model, d, flag))
			*value++ = d;
	return ADP_OK;
}

int adp_model_divisors(struct adp_divisors *out, const struct adp_model *model,
                       struct adp_arena *arena, struct adp_error *err)
{
	uint32_t heads = model->blocks[0].n_heads, experts = 1;
	int rc;

	for (uint32_t i = 0; i < model->n_blocks; i++)
		if (model->blocks[i].n_experts)
			experts = model->blocks[i].n_experts;
	rc = list_degrees(&out->tp, model, heads, tp_is_legal, false, arena, err);
	if (rc == ADP_OK)
		rc = list_degrees(&out->tp_kv_replicated, model, heads, tp_is_legal, true, arena, err);
	if (rc == ADP_OK)
		rc = list_degrees(&out->ep, model, experts, ep_is_legal, false, arena, err);
	if (rc == ADP_OK)
		rc = list_degrees(&out->pp_uniform, model, model->n_layers, pp_is_uniform, false, arena,
		                  err);
	return rc;
}
