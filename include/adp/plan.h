/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_PLAN_H
#define ADP_PLAN_H

#include <stddef.h>
#include <stdio.h>

#include "adp/cost.h"

/*
 * The plan document: what the planner decided, complete enough for everything downstream to act on
 * without the inputs. Written as apiVersion adp.parallelism/v1alpha1, kind ParallelPlan
 * (schema/plan.schema.json). Everything lives in the plan's arena.
 */

/* What an emitter needs of the model; the same facts as struct adp_model, flat. */
struct adp_plan_model {
	const char *name, *family, *digest;
	uint64_t params, active_params, hidden, vocab, max_seq_tokens;
	uint32_t n_layers, n_heads, n_kv_heads, head_dim;
	uint64_t ffn_hidden;                      /* dense width; 0 when every layer is MoE */
	uint32_t n_experts, top_k, n_dense_first; /* layers before the first MoE layer */
	uint64_t expert_ffn_hidden, shared_ffn_hidden;
	bool gated, tied_embeddings, learned_positions, qkv_bias, out_bias, mlp_bias, qk_norm;
	const char *norm, *activation;
	double rope_theta;
	uint32_t window_tokens;
	const char *const *traits; /* of struct adp_model: what an engine must be able to express */
	uint32_t n_traits;
};

/* A GPU type as used. */
struct adp_plan_gpu {
	const char *type, *alias, *arch;
	uint32_t n_used, n_total;
	uint64_t memory_bytes, usable_bytes;
};

/* One pipeline rank; the same split in every replica. */
struct adp_plan_stage {
	uint32_t n_chunks;                      /* virtual stages on this rank */
	const uint32_t *first_layer, *n_layers; /* per chunk; n_layers may be 0 */
	bool embedding, head; /* embedding on the first chunk; norm, head and loss on the last */
	enum adp_recompute recompute;
	struct adp_memory memory; /* of one GPU */
	uint64_t usable_bytes;    /* of the smallest GPU that holds this stage */
};

/* A stage in one kind of replica. */
struct adp_plan_cell {
	uint32_t gpu;                                /* index into plan->gpus */
	double speed_frac;                           /* slowest GPU in the cell, health */
	double fwd_s, bwd_s, send_fwd_s, send_bwd_s; /* per micro-batch, chunks together */
};

/*
 * Identical replicas, run-length: the pipes in order are the data-parallel indices 0 .. dp-1. Their
 * cells stand in stage order, and a cell's GPU type is that of its ranks.
 */
struct adp_plan_pipe {
	uint32_t n_replicas, n_micro;
	const struct adp_plan_cell *cells; /* pp */
	double end_s;                      /* last backward of the slowest stage */
};

/*
 * Consecutive ranks on consecutive nodes of the cluster, all with the same GPUs in use. Rank order
 * is tp fastest, then cp, dp (ep inside it), and pp slowest. Nodes are names[0..n_nodes).
 */
struct adp_plan_run {
	uint32_t first_rank, n_nodes, gpus_per_node;
	const char *const *nodes;
	const uint32_t *gpu_index; /* gpus_per_node local GPU numbers, the same on each node */
	uint32_t gpu;              /* index into plan->gpus */
};

/* One step's time, of the pipe and stage that decide it. Parts add up to step_s. */
struct adp_plan_step {
	double compute_s, tp_s, cp_s, ep_s, p2p_s, bubble_s, dp_s, optimizer_s, fixed_s;
	double step_s, low_s, high_s; /* band */
	double tokens_per_s,
		mfu_frac; /* model FLOPs, causal, no recomputation, over the peak of the GPUs used */
};

/* A plan that was not chosen, and why. */
struct adp_plan_other {
	const char *name; /* "newest GPUs only (128 H100)" */
	const char *text; /* "+31.2 % step time" or the reason it does not exist */
	double step_s;    /* 0 = none exists */
	double loss_frac; /* step_s / chosen - 1; 0 = none exists */
	const char *flag; /* what the user types to get it, or NULL */
};

struct adp_plan_search {
	uint64_t n_weighed; /* evaluated exactly */
	uint64_t n_bounded; /* dismissed by a bound or a rule */
	double bound_s;     /* no plan of the space has a step shorter than this */
	double gap_frac;    /* step_s / bound_s - 1; 0 when exhausted */
	bool exhausted;
};

struct adp_plan {
	struct adp_arena arena;
	const char *name;        /* of the document; NULL = made from the model's name */
	const char *adp_version; /* that made it; NULL = this one */
	struct adp_plan_model model;
	struct adp_train train;
	const char *engine, *engine_version, *data_version, *cluster_name, *cluster_digest;
	struct adp_plan_gpu *gpus; /* only types in the cluster; n_used may be 0 */
	uint32_t n_gpu_types;
	uint32_t dp, tp, pp, vpp, cp, ep, etp, zero_stage,
		shard_gpus; /* shard_gpus: ZeRO group, dp*cp unless hybrid */
	bool sequence_parallel, flash;
	uint64_t micro_batch_seqs, padded_vocab;
	struct adp_plan_stage *stages; /* pp */
	struct adp_plan_pipe *pipes;
	uint32_t n_pipes;
	struct adp_plan_run *runs; /* in rank order */
	uint32_t n_runs;
	struct adp_plan_step step;
	struct adp_train_time time;
	const char *binding;  /* one sentence: what limits the step */
	const char **reasons; /* sentences that name the cause of a choice */
	uint32_t n_reasons;
	struct adp_plan_other *others;
	uint32_t n_others;
	const char **warnings;
	uint32_t n_warnings;
	struct adp_plan_search search;
};

/* An empty plan to fill: everything it points to goes into its arena. NULL when memory runs out. */
struct adp_plan *adp_plan_create(void);
void adp_plan_destroy(struct adp_plan *plan);
uint32_t adp_plan_world(const struct adp_plan *plan); /* ranks; 0 when the product overflows */

/*
 * Is the plan one that its own rules allow? Every layer once and in order (virtual stage v of rank
 * s is position v * pp + s), batches add up to the global batch, ranks contiguous and each GPU used
 * once, degrees multiply to the world, cells and ranks agree on the GPU type, each stage inside its
 * GPUs' usable memory, parts of the step add up. The search's tests hold every plan to this.
 * ADP_EINVAL names the first breach; ADP_ENOMEM.
 */
int adp_plan_validate(const struct adp_plan *plan, struct adp_error *err);

/*
 * Documents (docs/plan.md). Same plan, same bytes, and adp_plan_read of them gives the same bytes
 * back. Caller frees the text with adp_free. ADP_EINVAL for text that is not UTF-8 or a number that
 * is not finite.
 */
int adp_plan_to_json(char **out, const struct adp_plan *plan, struct adp_error *err);
int adp_plan_to_yaml(char **out, const struct adp_plan *plan, struct adp_error *err);

/* One document, JSON or YAML. Refuses unknown keys, missing keys, and what adp_plan_validate
 * refuses. */
int adp_plan_read(struct adp_plan **out, const char *text, size_t len, const char *where,
                  struct adp_error *err);

/* One screen, ASCII whatever the names hold; width 80 .. 200 columns. ADP_EIO when `to` cannot be
 * written. */
int adp_plan_print(FILE *to, const struct adp_plan *plan, unsigned width, struct adp_error *err);

#endif
