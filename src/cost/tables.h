/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_COST_TABLES_H
#define ADP_COST_TABLES_H

#include "adp/cost.h"

enum { ADP_MATMUL_MAX_SIDE = 24, ADP_COLLECTIVE_MAX_GROUPS = 8, ADP_N_COLLECTIVE_OPS = 4 };

/* Sides are powers of two: side i of an axis is 2^(first + i). */
struct cost_axis {
	double first_log2;
	uint32_t n;
};

/* log2 of flop / efficiency at each node; monotone along each axis. */
struct matmul_curve {
	const char *name;
	double start_s, ceiling_frac, memory_frac;
	struct cost_axis m, n, k;
	const double *log_work; /* [m][n][k] */
};

struct attention_row {
	const char *name;
	double flash_frac, hd64_frac, hd256_frac, backward_mult, start_s, band_frac;
};

/* log2 of seconds by log2 of bytes, for each group size measured. */
struct collective_group {
	uint32_t n_gpus;
	double start_s;
	const double *log_s;
};
struct collective_curve {
	const char *name;
	double link_bytes_per_s; /* NVLink of the GPU measured */
	struct cost_axis bytes;
	uint32_t n_groups[ADP_N_COLLECTIVE_OPS];
	struct collective_group group[ADP_N_COLLECTIVE_OPS]
								 [ADP_COLLECTIVE_MAX_GROUPS]; /* by n_gpus, ascending */
};

struct link_row {
	bool present;
	double start_s, bandwidth_frac, latency_included_s, per_peer_s, band_frac;
};
enum { COST_N_LINKS = ADP_LINK_SPINE + 1 };

/* What stands for a GPU type. */
struct gpu_curves {
	const char *match; /* name, "arch:NAME" or "default" */
	const struct matmul_curve *matmul;
	const struct attention_row *attention;
	const struct collective_curve *collective;
	double ceiling_frac; /* 0 = as the curve's GPU */
	double multiplier, band_frac;
	bool measured, pcie_p2p;
};

struct cost_operators {
	double memory_bandwidth_frac, memory_backward_mult, norm_elements, residual_elements,
		rope_elements, activation_elements, gated_activation_elements,
		unfused_attention_matmul_frac, unfused_softmax_elements, unfused_backward_mult,
		loss_forward_bytes, loss_backward_bytes, loss_reduce_bytes, embedding_backward_mult,
		moe_permute_elements, moe_router_bytes, grouped_matmul_mult, grouped_narrow_mult,
		grouped_half_width, cp_causal_imbalance_mult, fp8_matmul_frac, tf32_matmul_frac,
		fp32_matmul_frac, fp8_cast_bytes, fp8_band_frac, fp32_band_frac, memory_band_frac,
		grouped_band_frac, launch_band_frac, cross_node_sync_s, cross_node_sync_bandwidth_frac;
};

struct adp_tables {
	struct adp_arena arena;
	const char *version;
	const struct matmul_curve *matmul;
	uint32_t n_matmul;
	const struct attention_row *attention;
	uint32_t n_attention;
	const struct collective_curve *collective;
	uint32_t n_collective;
	struct link_row link[COST_N_LINKS][2]; /* [kind][p2p] */
	struct cost_operators op;
	const struct gpu_curves *gpu;
	uint32_t n_gpu;
	const struct gpu_curves *fallback;
	uint32_t *slot;   /* open hash over match: index + 1, 0 = empty */
	uint32_t n_slots; /* a power of two */
};

/* Never NULL: the row of the name, of the architecture, or the default. Hashes twice at most. */
const struct gpu_curves *cost_gpu_curves(const struct adp_tables *tables,
                                         const struct adp_gpu_type *gpu);

/* A GPU at one precision, ready for many matmuls. */
struct matmul_unit {
	const struct matmul_curve *curve;
	double log_rate;        /* log2 of peak x multiplier: the rate at efficiency 1 */
	double log_peak;        /* log2 of the peak, which no shape beats */
	double flat_s_per_flop; /* of units so slow that the shape hardly matters (FP32); 0 = none */
	double s_per_byte;      /* operands */
	double in_bytes, out_bytes; /* per element */
	double band_frac;
	bool usable; /* false: the GPU has no such path */
};
void cost_matmul_unit(struct matmul_unit *out, const struct adp_tables *tables,
                      const struct adp_gpu_type *gpu, enum adp_precision precision);
double cost_matmul_s(const struct matmul_unit *unit, double m, double n, double k);
/* Forward [m,k] x [k,n]; *bwd_s: its two gradients, each with its own shape. */
double cost_linear_s(const struct matmul_unit *unit, double m, double n, double k, double *bwd_s);

/* What attention needs; precision of the scores: 16 bit under fp8. */
struct attention_unit {
	struct matmul_unit matmul;
	const struct attention_row *row;
	double flash_flops_per_s; /* at head size 128 */
	double s_per_byte;        /* scores, element-wise */
	double element_bytes;
};
void cost_attention_unit(struct attention_unit *out, const struct adp_tables *tables,
                         const struct adp_gpu_type *gpu, enum adp_precision precision);
/* pairs: query-key pairs that count, per head and sequence of the batch (q * kv, or the causal
 * part). */
double cost_attention_s(const struct adp_tables *tables, const struct attention_unit *unit,
                        bool flash, double n_heads, double n_kv_heads, double head_dim,
                        double batch, double q_tokens, double kv_tokens, double pairs,
                        double *bwd_s);

/* Error band of a path's links: its widest. */
double cost_path_band(const struct adp_tables *tables, const struct adp_path *path);

#endif
