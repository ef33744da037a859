/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_ENGINE_H
#define ADP_ENGINE_H

#include "adp/hardware.h"

enum adp_recompute {
	ADP_RECOMPUTE_NONE,
	ADP_RECOMPUTE_SELECTIVE, /* core attention only */
	ADP_RECOMPUTE_FULL,      /* keeps the block's input only */
	ADP_N_RECOMPUTE,
};
const char *adp_recompute_name(enum adp_recompute recompute);

enum adp_optimizer { ADP_OPTIMIZER_ADAMW, ADP_OPTIMIZER_ADAM, ADP_OPTIMIZER_SGD_MOMENTUM, ADP_OPTIMIZER_SGD };
const char *adp_optimizer_name(enum adp_optimizer optimizer);
int adp_optimizer_parse(enum adp_optimizer *out, const char *text, struct adp_error *err);

/*
 * What one version of a training engine can run and how it runs it. Rows of data/engines.csv
 * (engine,version,key,value,source); every field below is one key of the same name.
 */
struct adp_engine {
	struct adp_arena arena;
	const char *name, *version; /* "megatron" "0.16.1"; "torch" "2.15" */
	/* levers */
	bool uneven_layers;         /* layers per stage differ */
	bool uneven_micro_batches;  /* micro-batches per replica differ (never with ZeRO >= 2) */
	bool recompute_per_stage;   /* else one choice for all stages */
	bool virtual_pipeline, context_parallel, expert_parallel, sequence_parallel, hsdp;
	bool expert_tensor_parallel;
	uint32_t zero_mask;               /* bit z set: ZeRO stage z without a pipeline */
	uint32_t zero_mask_with_pipeline;
	uint32_t recompute_mask;          /* bit per enum adp_recompute */
	uint32_t precision_mask;          /* bit per enum adp_precision */
	bool zero23_needs_untied;         /* Megatron torch-fsdp2 refuses tied embeddings */
	bool zero23_allows_fp16;
	/* legality */
	bool kv_replication;              /* TP may exceed KV heads when it is their multiple */
	bool batch_divides_evenly;        /* global batch % (micro batch * dp) == 0 */
	bool vpp_needs_divisible_batches; /* interleaved: micro-batches % pp == 0 */
	uint32_t vocab_multiple;          /* vocabulary padded to this times TP; 1 = none */
	uint32_t min_compute_capability;
	uint32_t min_cc_bf16, min_cc_fp8, min_cc_flash;
	bool nvidia_only;
	uint32_t max_pipeline, max_tensor;
	/* cost */
	double tp_overlap_frac, dp_overlap_frac, fsdp_overlap_frac, p2p_overlap_frac, ep_overlap_frac;
	double launch_s_per_block;      /* host floor, forward; backward the same */
	double p2p_fixed_s;             /* per send */
	double step_fixed_s;            /* data loading floor, gradient norm, logging */
	double memory_traffic_frac;     /* multiplier on the ideal traffic of memory-bound operators */
	/* memory, bytes per parameter of the rank's share */
	double weight_bytes, grad_bytes, master_bytes; /* 16-bit training; fp32 has weight 4, master 0 */
	double fp16_grad_bytes, fp16_master_bytes;
	double logit_bytes;             /* per token and vocabulary entry of the rank */
	double bucket_bytes;            /* gradient and parameter buckets, total per rank */
	double context_bytes;           /* CUDA context and NCCL, per rank, without buffers per group */
	double nccl_bytes_per_group;
	double reserve_frac;            /* of the capacity, kept free for fragmentation */
	double zero3_live_blocks;       /* full blocks alive at once under ZeRO-3/FSDP */
	double dropout_mask_bytes;      /* per element of hidden, 0 in dropout-free pre-training */
	double init_param_bytes;        /* bytes per parameter held while the model is built */
};

/* spec: "megatron", "torch", or "name@version". Fails naming the known ones. */
int adp_engine_load(struct adp_engine **out, const char *spec, const char *data_dir, struct adp_error *err);
void adp_engine_destroy(struct adp_engine *engine);
const char *const *adp_engine_known(void); /* "megatron@0.16.1", ... NULL-terminated, static */

#endif
