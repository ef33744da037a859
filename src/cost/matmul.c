/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "cost/tables.h"

static bool is_sixteen_bit(enum adp_precision precision)
{
	return precision == ADP_PRECISION_FP16 || precision == ADP_PRECISION_BF16;
}

/* Scale of a GPU on the axis of its curve: how far its large matmuls come against the curve's own
 * GPU. */
static double ceiling_ratio(const struct gpu_curves *row, const struct adp_gpu_type *gpu)
{
	double peak = gpu->peak_flops_per_s[ADP_PRECISION_BF16];
	double ceiling = row->ceiling_frac;

	if (row->measured)
		return 1;
	if (gpu->measured_bf16_flops_per_s > 0 && peak > 0)
		ceiling = fmin(1, gpu->measured_bf16_flops_per_s / peak);
	return ceiling > 0 ? ceiling / row->matmul->ceiling_frac : 1;
}

void cost_matmul_unit(struct matmul_unit *out, const struct adp_tables *tables,
                      const struct adp_gpu_type *gpu, enum adp_precision precision)
{
	const struct gpu_curves *row = cost_gpu_curves(tables, gpu);
	const struct cost_operators *op = &tables->op;
	double peak = gpu->peak_flops_per_s[precision],
		   rate = peak * ceiling_ratio(row, gpu) * row->multiplier;

	*out = (struct matmul_unit){
		.curve = row->matmul,
		.usable = peak > 0 && gpu->memory_bytes_per_s > 0,
		.band_frac = row->band_frac,
		.in_bytes = is_sixteen_bit(precision)        ? 2
	                : precision == ADP_PRECISION_FP8 ? 1
	                                                 : 4,
		.out_bytes = is_sixteen_bit(precision) || precision == ADP_PRECISION_FP8 ? 2 : 4,
	};
	if (!out->usable)
		return;
	if (precision == ADP_PRECISION_FP8) {
		rate *= op->fp8_matmul_frac;
		out->band_frac += op->fp8_band_frac;
	} else if (precision == ADP_PRECISION_TF32) {
		rate *= op->tf32_matmul_frac;
		out->band_frac += op->fp32_band_frac;
	} else if (precision == ADP_PRECISION_FP32) {
		/* What limits a shape on tensor cores (start-up, staging, idle units) lasts as long as
		 * there: it is no share of the far longer FP32 time. */
		double tensor = fmax(gpu->peak_flops_per_s[ADP_PRECISION_BF16],
		                     gpu->peak_flops_per_s[ADP_PRECISION_FP16]);

		out->flat_s_per_flop = 1 / (peak * op->fp32_matmul_frac);
		out->band_frac += op->fp32_band_frac;
		rate = fmax(tensor * ceiling_ratio(row, gpu) * row->multiplier, peak);
	}
	out->log_rate = log2(rate);
	out->log_peak = log2(peak);
	out->s_per_byte = 1 / (gpu->memory_bytes_per_s * row->matmul->memory_frac);
}

/* A side on its axis: below the first node it costs as much as the first, above the last it grows
 * with the work. */
struct place {
	uint32_t low;
	double frac, over;
};

static struct place place(const struct cost_axis *axis, double log_side)
{
	double x = log_side - axis->first_log2, last = axis->n - 1;
	struct place p = {0, 0, 0};

	if (x <= 0)
		return p;
	if (x >= last)
		return (struct place){axis->n - 2, 1, x - last};
	p.low = (uint32_t)x;
	p.frac = x - p.low;
	return p;
}

static double lerp(double a, double b, double frac)
{
	return a + frac * (b - a);
}

/* log2 of flop / efficiency: multilinear in the logarithms, so monotone because the grid is. */
static double log_work(const struct matmul_curve *curve, double log_m, double log_n, double log_k)
{
	struct place m = place(&curve->m, log_m), n = place(&curve->n, log_n),
				 k = place(&curve->k, log_k);
	uint32_t row = curve->k.n, plane = row * curve->n.n;
	const double *g = curve->log_work + m.low * plane + n.low * row + k.low;
	double a = lerp(lerp(g[0], g[1], k.frac), lerp(g[row], g[row + 1], k.frac), n.frac);

	g += plane;
	return lerp(a, lerp(lerp(g[0], g[1], k.frac), lerp(g[row], g[row + 1], k.frac), n.frac),
	            m.frac) +
	       m.over + n.over + k.over;
}

/*
 * Start + (compute^3 + memory^3)^(1/3): a smooth maximum. Compute and memory are both monotone in
 * each side, in the peak and in the bandwidth, so the sum is.
 */
static double matmul_s(const struct matmul_unit *unit, double m, double n, double k, double log_m,
                       double log_n, double log_k)
{
	double at_curve = log_work(unit->curve, log_m, log_n, log_k) - unit->log_rate;
	double at_peak = 1 + log_m + log_n + log_k - unit->log_peak;
	double compute = exp2(fmax(at_curve, at_peak));
	double memory = (unit->in_bytes * (m * k + k * n) + unit->out_bytes * m * n) * unit->s_per_byte;

	double flat = 2 * m * n * k * unit->flat_s_per_flop;

	return unit->curve->start_s +
	       cbrt(compute * compute * compute + flat * flat * flat + memory * memory * memory);
}

double cost_matmul_s(const struct matmul_unit *unit, double m, double n, double k)
{
	if (!unit->usable)
		return INFINITY;
	if (!(m > 0 && n > 0 && k > 0))
		return 0;
	return matmul_s(unit, m, n, k, log2(m), log2(n), log2(k));
}

double cost_linear_s(const struct matmul_unit *unit, double m, double n, double k, double *bwd_s)
{
	double log_m, log_n, log_k;

	if (!unit->usable)
		return *bwd_s = INFINITY;
	if (!(m > 0 && n > 0 && k > 0))
		return *bwd_s = 0;
	log_m = log2(m);
	log_n = log2(n);
	log_k = log2(k);
	*bwd_s = matmul_s(unit, m, k, n, log_m, log_k, log_n) +
	         matmul_s(unit, n, k, m, log_n, log_k, log_m);
	return matmul_s(unit, m, n, k, log_m, log_n, log_k);
}

double adp_matmul_s(const struct adp_tables *tables, const struct adp_gpu_type *gpu,
                    enum adp_precision precision, double m, double n, double k, double *rel_error)
{
	struct matmul_unit unit;

	cost_matmul_unit(&unit, tables, gpu, precision);
	if (rel_error)
		*rel_error = unit.band_frac;
	return cost_matmul_s(&unit, m, n, k);
}

bool adp_matmul_is_measured(const struct adp_tables *tables, const struct adp_gpu_type *gpu)
{
	return cost_gpu_curves(tables, gpu)->measured;
}
