/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_ENGINE_H
#define ADP_ENGINE_H

#include <stddef.h>

#include "adp/hardware.h"

enum adp_recompute {
	ADP_RECOMPUTE_NONE,
	ADP_RECOMPUTE_SELECTIVE, /* core attention only */
	ADP_RECOMPUTE_FULL,      /* keeps the block's input only */
	ADP_N_RECOMPUTE,
};
const char *adp_recompute_name(enum adp_recompute recompute);

enum adp_optimizer {
	ADP_OPTIMIZER_ADAMW,
	ADP_OPTIMIZER_ADAM,
	ADP_OPTIMIZER_SGD_MOMENTUM,
	ADP_OPTIMIZER_SGD
};
const char *adp_optimizer_name(enum adp_optimizer optimizer);
int adp_optimizer_parse(enum adp_optimizer *out, const char *text, struct adp_error *err);
double adp_optimizer_moment_bytes(enum adp_optimizer optimizer); /* per parameter, in fp32 */

/*
 * What one version of a training engine can run and how it runs it. Rows of data/engines.csv
 * (engine,version,key,value,source): every field from uneven_layers on is one key of the same name,
 * with yes/no, a number, or a list ("0|1|2|3", "none|full", "fp16|bf16") for the masks. The keys
 * `default` (yes: the version meant when none is given) and `inherits` (a version of the same
 * engine whose rows fill the gaps) are the table's own. docs/engines.md shows the table's content
 * with its sources.
 */
struct adp_engine {
	struct adp_arena arena;
	const char *name, *version; /* "megatron" "0.16.1"; "torch" "2.15" */
	/* levers */
	bool uneven_layers;        /* layers per stage differ */
	bool uneven_micro_batches; /* micro-batches per replica differ (never with ZeRO >= 2) */
	bool recompute_per_stage;  /* else one choice for all stages */
	bool virtual_pipeline, context_parallel, expert_parallel, sequence_parallel, hsdp;
	bool expert_tensor_parallel;
	uint32_t zero_mask; /* bit z set: ZeRO stage z without a pipeline */
	uint32_t zero_mask_with_pipeline;
	uint32_t recompute_mask;  /* bit per enum adp_recompute */
	uint32_t precision_mask;  /* bit per enum adp_precision */
	bool zero23_needs_untied; /* ZeRO 2 and 3 refuse tied embeddings */
	bool zero23_allows_fp16;
	bool zero_needs_adam; /* ZeRO 1 to 3 run with Adam and AdamW only */
	/* legality */
	bool kv_replication;              /* TP may exceed KV heads when it is their multiple */
	bool batch_divides_evenly;        /* global batch % (micro batch * dp) == 0 */
	bool vpp_needs_divisible_batches; /* interleaved: micro-batches % pp == 0 */
	bool fewer_batches_than_stages;   /* runs a pipeline with fewer micro-batches than stages */
	bool moe_tp_needs_sp;             /* MoE with TP > 1 only with sequence parallel */
	uint32_t vocab_multiple;          /* vocabulary padded to this times TP; 1 = none */
	uint32_t min_compute_capability;
	uint32_t min_cc_bf16, min_cc_fp8, min_cc_flash;
	bool nvidia_only;
	uint32_t max_pipeline, max_tensor;
	/* cost; an overlap is the share of the communication that compute hides */
	double tp_overlap_frac, dp_overlap_frac, fsdp_overlap_frac, p2p_overlap_frac, ep_overlap_frac;
	double launch_s_per_block;  /* host floor, forward; backward the same */
	double p2p_fixed_s;         /* per send */
	double step_fixed_s;        /* data loading floor, gradient norm, logging */
	double comm_rel_error;      /* half-width of the band on communication times, as a share */
	double memory_traffic_frac; /* multiplier on the ideal traffic of memory-bound operators */
	/* memory: bytes per parameter of the rank's share; moments come from the optimizer */
	double weight_bytes, grad_bytes, master_bytes; /* bf16, fp8; fp32 has 4, 4 and 0 */
	double fp16_grad_bytes, fp16_master_bytes;
	double fp8_weight_bytes;     /* 8-bit copies beside the weights, fp8 only */
	double zero3_weight_bytes;   /* 16-bit shard kept beside the master under ZeRO-3 */
	bool pipeline_defers_reduce; /* ZeRO 2 in a pipeline keeps whole gradients to its end */
	double zero3_live_blocks;    /* whole blocks at once: ZeRO 2 gradients, 3 weights too */
	double bucket_bytes;         /* gradient and parameter buckets, total per rank */
	double context_bytes;        /* CUDA context and library workspaces, per rank */
	double nccl_bytes_per_group;
	double init_param_bytes;     /* of the unsharded share while the model is built; ZeRO < 3 */
	double init_optimizer_bytes; /* of the optimizer's share while its state is created */
	double reserve_frac;         /* of the capacity, kept free for fragmentation */
	/* memory: activations kept for the backward pass */
	double norm_saved_bytes; /* per hidden element and norm in 16-bit; not its output */
	double attention_copies; /* of the attention output; 1: shared with the projection's input */
	double mlp_saved_elems, mlp_saved_elems_gated; /* tensors of the MLP's width */
	double moe_saved_copies;   /* of the dispatched tokens, beside the experts' input */
	bool sp_keeps_gathered;    /* sequence parallel: column-split layers keep their whole input */
	double logit_bytes;        /* per token and vocabulary entry of the rank, 16-bit */
	double dropout_mask_bytes; /* per element; 0: pre-training without dropout */
	double fragmentation_frac; /* of the activations: allocator blocks that cannot be reused */
};

/*
 * spec: "megatron", "torch" (their default versions), or "name@version"; a shortened version is
 * fine where one version alone starts with it ("megatron@0.15"). data_dir NULL: the compiled-in
 * table. *out belongs to the caller. ADP_EINVAL names the known engines, or the faulty line of the
 * table.
 */
int adp_engine_load(struct adp_engine **out, const char *spec, const char *data_dir,
                    struct adp_error *err);
/* The same from the text of such a table; where names it in errors. */
int adp_engine_read(struct adp_engine **out, const char *spec, const char *text, size_t len,
                    const char *where, struct adp_error *err);
void adp_engine_destroy(struct adp_engine *engine);
const char *const *adp_engine_known(
	void); /* shipped: "megatron@0.16.1", ... NULL-terminated, static */

#endif
