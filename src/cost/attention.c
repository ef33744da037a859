/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "cost/tables.h"

bool adp_flash_available(const struct adp_engine *engine, const struct adp_gpu_type *gpu,
                         enum adp_precision precision)
{
	if (precision == ADP_PRECISION_FP32 || precision == ADP_PRECISION_TF32)
		return false;
	/* Other vendors have no compute capability; their stacks bring a fused kernel of their own. */
	return gpu->compute_capability == 0 || gpu->compute_capability >= engine->min_cc_flash;
}

/* Scores of an fp8 run are 16 bit: BF16 where the GPU has it. */
static enum adp_precision score_precision(const struct adp_gpu_type *gpu,
                                          enum adp_precision precision)
{
	if (precision != ADP_PRECISION_FP8)
		return precision;
	return gpu->peak_flops_per_s[ADP_PRECISION_BF16] > 0 ? ADP_PRECISION_BF16 : ADP_PRECISION_FP16;
}

void cost_attention_unit(struct attention_unit *out, const struct adp_tables *tables,
                         const struct adp_gpu_type *gpu, enum adp_precision precision)
{
	enum adp_precision scores = score_precision(gpu, precision);

	*out = (struct attention_unit){.row = cost_gpu_curves(tables, gpu)->attention};
	cost_matmul_unit(&out->matmul, tables, gpu, scores);
	out->flash_flops_per_s = gpu->peak_flops_per_s[scores] * out->row->flash_frac;
	out->s_per_byte = 1 / (gpu->memory_bytes_per_s * tables->op.memory_bandwidth_frac);
	out->element_bytes = out->matmul.in_bytes;
}

/* Share of the rate at another head size, straight in the logarithms; time never falls as the head
 * grows. */
static double head_frac(const struct attention_row *row, double head_dim)
{
	double x = log2(head_dim / 128);

	if (x <= -1)
		return row->hd64_frac;
	if (x >= 1)
		return row->hd256_frac;
	return x < 0 ? exp2(-x * log2(row->hd64_frac)) : exp2(x * log2(row->hd256_frac));
}

static double flash_s(const struct attention_unit *unit, double n_heads, double n_kv_heads,
                      double head_dim, double batch, double q_tokens, double kv_tokens,
                      double pairs)
{
	double flops = 4 * batch * n_heads * head_dim * pairs;
	double rate = fmin(unit->flash_flops_per_s * head_frac(unit->row, head_dim),
	                   exp2(unit->matmul.log_peak));
	double compute = flops / rate;
	double bytes = unit->element_bytes * batch * head_dim *
	               (2 * n_heads * q_tokens + 2 * n_kv_heads * kv_tokens);

	return unit->row->start_s + fmax(compute, bytes * unit->s_per_byte);
}

double cost_attention_s(const struct adp_tables *tables, const struct attention_unit *unit,
                        bool flash, double n_heads, double n_kv_heads, double head_dim,
                        double batch, double q_tokens, double kv_tokens, double pairs,
                        double *bwd_s)
{
	const struct cost_operators *op = &tables->op;
	double matmul, softmax;

	*bwd_s = 0;
	if (!unit->matmul.usable)
		return *bwd_s = INFINITY;
	if (!(n_heads > 0 && n_kv_heads > 0 && head_dim > 0 && batch > 0 && q_tokens > 0 &&
	      kv_tokens > 0))
		return 0;
	if (flash) {
		double fwd = flash_s(unit, n_heads, n_kv_heads, head_dim, batch, q_tokens, kv_tokens,
		                     pairs);

		*bwd_s = fwd * unit->row->backward_mult;
		return fwd;
	}
	/* Without a fused kernel the masked half is computed too. All heads run in one batched call,
	 * seen as one tall matmul. */
	matmul = (cost_matmul_s(&unit->matmul, batch * n_heads * q_tokens, kv_tokens, head_dim) +
	          cost_matmul_s(&unit->matmul, batch * n_heads * q_tokens, head_dim, kv_tokens)) /
	         op->unfused_attention_matmul_frac;
	softmax = op->unfused_softmax_elements * unit->element_bytes * batch * n_heads * q_tokens *
	          kv_tokens * unit->s_per_byte;
	*bwd_s = matmul * op->unfused_backward_mult + softmax * op->memory_backward_mult;
	return matmul + softmax;
}

double adp_attention_s(const struct adp_tables *tables, const struct adp_gpu_type *gpu,
                       enum adp_precision precision, bool flash, double n_heads, double n_kv_heads,
                       double head_dim, double batch, double q_tokens, double kv_tokens,
                       bool causal, double *bwd_s)
{
	struct attention_unit unit;
	double unused;

	cost_attention_unit(&unit, tables, gpu, precision);
	return cost_attention_s(tables, &unit, flash, n_heads, n_kv_heads, head_dim, batch, q_tokens,
	                        kv_tokens, q_tokens * kv_tokens * (causal ? 0.5 : 1),
	                        bwd_s ? bwd_s : &unused);
}
