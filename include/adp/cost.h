/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_COST_H
#define ADP_COST_H

#include "adp/cluster.h"
#include "adp/model.h"
#include "adp/train.h"

/*
 * Measured efficiencies: data/matmul.csv, matmul_curves.csv, attention.csv, collectives.csv,
 * collective_links.csv, operators.csv and gpu_curves.csv, which says what stands for which GPU.
 * Immutable, shared by all threads. dir NULL: the tables compiled in; else a folder, where a file
 * that is missing comes from those. Errors name file, line and column.
 */
struct adp_tables;
int adp_tables_load(struct adp_tables **out, const char *dir, struct adp_error *err);
void adp_tables_destroy(struct adp_tables *tables);
const char *adp_tables_version(const struct adp_tables *tables);

/* ---- matrix multiplication -------------------------------------------------------- */

/*
 * Seconds of one [m,k] x [k,n] multiplication. Never optimistic beyond the peak; never grows with
 * the GPU's peak or memory bandwidth, never falls with m, n, k. rel_error: half-width of the band
 * as a share (may be NULL); larger for a GPU without measurements, scaled from its measured or
 * stated ceiling. INFINITY where the GPU has no such precision.
 */
double adp_matmul_s(const struct adp_tables *tables, const struct adp_gpu_type *gpu,
                    enum adp_precision precision, double m, double n, double k, double *rel_error);
bool adp_matmul_is_measured(const struct adp_tables *tables, const struct adp_gpu_type *gpu);

/* Forward attention core (QK^T, softmax, PV) of one micro-batch on one rank. flash: fused kernel.
 */
double adp_attention_s(const struct adp_tables *tables, const struct adp_gpu_type *gpu,
                       enum adp_precision precision, bool flash, double n_heads, double n_kv_heads,
                       double head_dim, double batch, double q_tokens, double kv_tokens,
                       bool causal, double *bwd_s);

/*
 * Whether the engine runs a fused kernel on this type at this precision. adp_item_time and the
 * memory model must agree: both use this.
 */
bool adp_flash_available(const struct adp_engine *engine, const struct adp_gpu_type *gpu,
                         enum adp_precision precision);

/* ---- collectives ------------------------------------------------------------------ */

enum adp_collective {
	ADP_ALL_REDUCE,
	ADP_ALL_GATHER,
	ADP_REDUCE_SCATTER,
	ADP_ALL_TO_ALL,
	ADP_SEND,
};

/* One level of a communication group, innermost first. */
struct adp_path_level {
	uint32_t fan; /* members that meet at this level; 1 = level unused */
	struct adp_link
		link; /* bytes_per_s already the share of ONE rank (concurrent groups and load taken off) */
	const struct adp_gpu_type *gpu; /* slowest member; chooses the measured curve */
};
enum { ADP_MAX_LEVELS = 4 };
struct adp_path {
	uint32_t n_levels;
	struct adp_path_level level[ADP_MAX_LEVELS];
};

/*
 * Seconds of a collective over a group of prod(fan) ranks. bytes is the full tensor: what
 * every rank holds after an all-gather or all-reduce, and before a reduce-scatter; for an
 * all-to-all what one rank sends in total; for a send the message. Hierarchical where
 * more than one level is used: reduce-scatter inside, then outward with 1/fan of the bytes, then
 * all-gather back; the flat ring over the slowest level if that is faster. 0 for a group of one.
 * Monotone: never grows with bandwidth, never falls with bytes or latency.
 */
double adp_collective_s(const struct adp_tables *tables, enum adp_collective op,
                        const struct adp_path *path, double bytes);

/* ---- one item on one GPU type ----------------------------------------------------- */

/* Degrees and sizes that fix the work of one micro-batch. */
struct adp_shape {
	uint32_t tp, cp, ep, etp;
	bool sequence_parallel;
	uint64_t micro_batch_seqs;
	enum adp_precision precision;
};

/* Seconds of one item for one micro-batch on one rank, split by cause. */
struct adp_item_time {
	double fwd_s, bwd_s;                 /* totals, communication that is not hidden included */
	double recompute_s[ADP_N_RECOMPUTE]; /* added to bwd_s by each choice; [NONE] = 0 */
	double fwd_matmul_s, fwd_attention_s, fwd_memory_s, fwd_launch_s, fwd_tp_s, fwd_cp_s,
		fwd_ep_s; /* exposed parts */
	double rel_error;
};

/*
 * gpu_speed_frac divides compute, never links. tp, cp, ep paths: groups of size tp, cp, ep.
 * Item kinds other than BLOCK: embedding (look-up, its TP all-reduce or reduce-scatter), final
 * norm, head (matmul), loss (softmax over the vocabulary share).
 */
int adp_item_time(struct adp_item_time *out, const struct adp_tables *tables,
                  const struct adp_engine *engine, const struct adp_model *model,
                  const struct adp_item *item, const struct adp_train *train,
                  const struct adp_shape *shape, const struct adp_gpu_type *gpu,
                  double gpu_speed_frac, const struct adp_path *tp_path,
                  const struct adp_path *cp_path, const struct adp_path *ep_path,
                  struct adp_error *err);

/* ---- memory ------------------------------------------------------------------------- */

/*
 * Bytes on one GPU, by kind. The kinds add up to steady_peak_bytes. live_window: whole parameters
 * and gradients of the blocks in work under ZeRO 2 and 3. workspace: what the backward pass of one
 * block needs at once beyond the room the logits have left free, and the allocator's waste.
 */
struct adp_memory {
	uint64_t weights, gradients, optimizer, activations, live_window, buckets, logits, workspace,
		context;
	uint64_t init_peak_bytes, steady_peak_bytes, peak_bytes; /* peak = larger of the two */
};

/* The share of one pipeline rank: one or more runs of items (several with virtual stages). */
struct adp_rank_items {
	uint32_t n_chunks;
	const uint32_t *first_item, *n_items; /* n_chunks each */
};

/*
 * zero_stage 0..3; shard_gpus: group over which ZeRO shards (dp * cp unless hybrid);
 * expert_shard_gpus: the same for routed experts; in_flight: micro-batches whose activations are
 * alive at the peak, in units of the rank's whole share: min(m, p - i) for stage i of p in 1F1B, p
 * + (p - 1) / v for the first rank of v virtual stages.
 */
struct adp_memory_opts {
	uint32_t zero_stage;
	double shard_gpus, expert_shard_gpus;
	double in_flight;
	enum adp_recompute recompute;
	bool flash;
	bool tied_head_here; /* this rank holds the second copy of a tied embedding */
	uint32_t n_comm_groups;
};

/*
 * Memory of one rank of a stage, about a microsecond a call. items inside the model, degrees >= 1.
 * Sources: Korthikanti et al. 2022, arXiv 2205.05198 (activations), Rajbhandari et al. 2020 (ZeRO),
 * the rest in docs/internals/memory.md. Never falls with more layers, larger micro-batches or
 * in_flight; never grows with tp, shard_gpus or stronger recomputation, nor with zero_stage on a
 * stage deeper than the live window.
 */
void adp_memory(struct adp_memory *out, const struct adp_engine *engine,
                const struct adp_model *model, const struct adp_train *train,
                const struct adp_shape *shape, const struct adp_rank_items *items,
                const struct adp_memory_opts *opts);

/* What may be used of a GPU: capacity less the engine's reserve. */
uint64_t adp_usable_bytes(const struct adp_engine *engine, const struct adp_gpu_type *gpu);

#endif
