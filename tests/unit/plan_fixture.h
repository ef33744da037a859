/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_FIXTURE_H
#define PLAN_FIXTURE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "adp/plan.h"

/* Hand-built plans that keep every rule, for tests of the document and of what reads it. */

#define GIB (1024ull * 1024 * 1024)

/* A copy in the plan's arena, for a test to change. */
static inline void *fixture_keep(struct adp_plan *plan, const void *data, size_t size)
{
	void *copy = adp_arena_calloc(&plan->arena, 1, size);

	return copy ? memcpy(copy, data, size) : NULL;
}

static inline struct adp_memory fixture_memory(uint64_t peak_gib)
{
	return (struct adp_memory){
		.weights = 8 * GIB,
		.gradients = 16 * GIB,
		.optimizer = 4 * GIB,
		.activations = (peak_gib - 31) * GIB,
		.buckets = 1 * GIB,
		.logits = GIB / 2,
		.workspace = GIB / 2,
		.context = 1 * GIB,
		.init_peak_bytes = 20 * GIB,
		.steady_peak_bytes = peak_gib * GIB,
		.peak_bytes = peak_gib * GIB,
	};
}

/*
 * A dense model of 80 layers on 16 H100 nodes and 16 A100 nodes, 8 GPUs each: tensor 8, 4 stages of
 * 8 replicas, 2 stages on each type. 1024 sequences = 8 replicas x 128 micro-batches of 1. V100
 * left out.
 */
static inline struct adp_plan *fixture_mixed(void)
{
	struct adp_plan *plan = adp_plan_create();
	static const uint32_t first[] = {0, 27, 54, 67}, layers[] = {27, 27, 13, 13};
	static const uint64_t peak_gib[] = {70, 58, 60, 51};
	static const struct adp_plan_cell cells[] = {
		{.gpu = 0,
	     .speed_frac = 1,
	     .fwd_s = 0.030,
	     .bwd_s = 0.060,
	     .send_fwd_s = 0.001,
	     .send_bwd_s = 0.001},
		{.gpu = 0,
	     .speed_frac = 1,
	     .fwd_s = 0.030,
	     .bwd_s = 0.060,
	     .send_fwd_s = 0.002,
	     .send_bwd_s = 0.001},
		{.gpu = 1,
	     .speed_frac = 1,
	     .fwd_s = 0.029,
	     .bwd_s = 0.058,
	     .send_fwd_s = 0.001,
	     .send_bwd_s = 0.002},
		{.gpu = 1, .speed_frac = 0.95, .fwd_s = 0.031, .bwd_s = 0.062, .send_bwd_s = 0.001},
	};
	static const uint32_t eight[] = {0, 1, 2, 3, 4, 5, 6, 7};
	static const char *const reasons[] = {
		"A100-80 takes 13 layers a stage against 27 on H100: it is 2.1 times slower on these "
		"layers.",
		"The slow link is the network between the H100 and A100 nodes: only pipeline sends cross "
		"it.",
	};
	static const char *const warnings[] = {
		"sequence length 8192 assumed: the model's maximum (--seq)"};
	const char **nodes[2]; /* of each type */

	if (!plan)
		return NULL;
	plan->model = (struct adp_plan_model){
		.name = "llama3-70b",
		.family = "llama",
		.digest = "0123456789abcdef0123456789abcdef",
		.params = 70553706496,
		.active_params = 70553706496,
		.hidden = 8192,
		.vocab = 128256,
		.max_seq_tokens = 8192,
		.n_layers = 80,
		.n_heads = 64,
		.n_kv_heads = 8,
		.head_dim = 128,
		.ffn_hidden = 28672,
		.n_dense_first = 80,
		.gated = true,
		.norm = "rmsnorm",
		.activation = "silu",
		.rope_theta = 500000,
	};
	plan->train = (struct adp_train){
		.global_batch_seqs = 1024,
		.seq_tokens = 8192,
		.tokens = 15e12,
		.precision = ADP_PRECISION_BF16,
		.optimizer = ADP_OPTIMIZER_ADAMW,
		.mtbf_s = 1.8e8,
		.restart_s = 300,
		.storage_bytes_per_s = 2e9,
		.expert_load_factor = 1,
	};
	plan->engine = "megatron";
	plan->engine_version = "0.16.1";
	plan->data_version = "fedcba9876543210fedcba9876543210";
	plan->adp_version = "0.1.0";
	plan->cluster_name = "H100:128,A100-80:128,V100-32:64";
	plan->cluster_digest = "00112233445566778899aabbccddeeff";
	plan->dp = 8;
	plan->tp = 8;
	plan->pp = 4;
	plan->vpp = plan->cp = plan->ep = 1;
	plan->etp = 8;
	plan->zero_stage = 1;
	plan->shard_gpus = 8;
	plan->sequence_parallel = plan->flash = true;
	plan->micro_batch_seqs = 1;
	plan->padded_vocab = 129024;

	plan->n_gpu_types = 3;
	plan->gpus = adp_arena_calloc(&plan->arena, 3, sizeof *plan->gpus);
	plan->stages = adp_arena_calloc(&plan->arena, 4, sizeof *plan->stages);
	plan->pipes = adp_arena_calloc(&plan->arena, 1, sizeof *plan->pipes);
	plan->runs = adp_arena_calloc(&plan->arena, 2, sizeof *plan->runs);
	plan->reasons = adp_arena_calloc(&plan->arena, 2, sizeof *plan->reasons);
	plan->warnings = adp_arena_calloc(&plan->arena, 1, sizeof *plan->warnings);
	plan->others = adp_arena_calloc(&plan->arena, 3, sizeof *plan->others);
	nodes[0] = adp_arena_calloc(&plan->arena, 16, sizeof **nodes);
	nodes[1] = adp_arena_calloc(&plan->arena, 16, sizeof **nodes);
	if (!plan->gpus || !plan->stages || !plan->pipes || !plan->runs || !plan->reasons ||
	    !plan->warnings || !plan->others || !nodes[0] || !nodes[1]) {
		adp_plan_destroy(plan);
		return NULL;
	}
	plan->gpus[0] = (struct adp_plan_gpu){
		"NVIDIA-H100-80GB-HBM3", "H100", "hopper", 128, 128, 80 * GIB, 74 * GIB};
	plan->gpus[1] = (struct adp_plan_gpu){
		"NVIDIA-A100-SXM4-80GB", "A100-80", "ampere", 128, 128, 80 * GIB, 74 * GIB};
	plan->gpus[2] = (struct adp_plan_gpu){
		"Tesla-V100-SXM2-32GB", "V100-32", "volta", 0, 64, 32 * GIB, 29 * GIB};
	for (uint32_t s = 0; s < 4; s++)
		plan->stages[s] = (struct adp_plan_stage){
			.n_chunks = 1,
			.first_layer = fixture_keep(plan, &first[s], sizeof first[s]),
			.n_layers = fixture_keep(plan, &layers[s], sizeof layers[s]),
			.embedding = s == 0,
			.head = s == 3,
			.recompute = s == 2 ? ADP_RECOMPUTE_FULL : ADP_RECOMPUTE_NONE,
			.memory = fixture_memory(peak_gib[s]),
			.usable_bytes = 74 * GIB,
		};
	plan->n_pipes = 1;
	plan->pipes[0] = (struct adp_plan_pipe){.n_replicas = 8,
	                                        .n_micro = 128,
	                                        .cells = fixture_keep(plan, cells, sizeof cells),
	                                        .end_s = 12.1};
	plan->n_runs = 2;
	for (uint32_t r = 0; r < 2; r++) {
		for (uint32_t i = 0; i < 16; i++) {
			nodes[r][i] = adp_arena_printf(&plan->arena, r ? "a100-%02u" : "h100-%u", i);
			if (!nodes[r][i]) {
				adp_plan_destroy(plan);
				return NULL;
			}
		}
		plan->runs[r] = (struct adp_plan_run){
			.first_rank = 128 * r,
			.n_nodes = 16,
			.gpus_per_node = 8,
			.nodes = nodes[r],
			.gpu_index = fixture_keep(plan, eight, sizeof eight),
			.gpu = r,
		};
	}
	/* 10 + 1 + 0.25 + 0.75 + 0.2 + 0.1 + 0.2 = 12.5 */
	plan->step = (struct adp_plan_step){
		.compute_s = 10,
		.tp_s = 1,
		.p2p_s = 0.25,
		.bubble_s = 0.75,
		.dp_s = 0.2,
		.optimizer_s = 0.1,
		.fixed_s = 0.2,
		.step_s = 12.5,
		.low_s = 11.5,
		.high_s = 13.5,
		.tokens_per_s = 671088.64,
		.mfu_frac = 0.41,
	};
	/* 15e12 tokens / (1024 x 8192) = 1788139.34 -> 1788140 steps x 12.5 s = 22351750 s */
	plan->time = (struct adp_train_time){
		.n_steps = 1788140,
		.step_s = 12.5,
		.compute_s = 22351750,
		.checkpoint_interval_s = 1800,
		.checkpoint_stall_s = 2.5,
		.n_checkpoints = 12417,
		.checkpoints_s = 31042.5,
		.n_failures = 32,
		.lost_work_s = 28800,
		.restarts_s = 9600,
		.total_s = 22421192.5,
	};
	plan->binding = "stage 3 on A100-80: its matrix products set the pace of every micro-batch";
	plan->n_reasons = 2;
	plan->reasons[0] = reasons[0];
	plan->reasons[1] = reasons[1];
	plan->n_others = 3;
	plan->others[0] = (struct adp_plan_other){"newest GPUs only (128 H100)", "+28.4 % step time",
	                                          16.05, 0.284, "--exclude A100-80"};
	plan->others[1] = (struct adp_plan_other){"equal layers per stage", "+61.0 % step time", 20.125,
	                                          0.61, "--equal-layers"};
	plan->others[2] = (struct adp_plan_other){
		"V100-32", "no bf16 units (compute capability 7.0, bf16 needs 8.0)", 0, 0,
		"--precision fp16"};
	plan->n_warnings = 1;
	plan->warnings[0] = warnings[0];
	plan->search = (struct adp_plan_search){
		.n_weighed = 1834, .n_bounded = 45210, .bound_s = 12.2, .gap_frac = 12.5 / 12.2 - 1};
	return plan;
}

/*
 * A mixture of experts, 8 layers on 2 stages of 2 virtual stages, two kinds of replicas on half
 * nodes: replica 0 on one type with 6 micro-batches of 2, replica 1 on another with 2. 16 = (6 + 2)
 * x 2 sequences. Ranks: stage 0 replica 0, stage 0 replica 1, stage 1 replica 0, stage 1 replica 1;
 * tensor 2.
 */
static inline struct adp_plan *fixture_moe(void)
{
	struct adp_plan *plan = adp_plan_create();
	/* position v * 2 + s: layers 0-1, 2-4, 5-6, 7 */
	static const uint32_t first[2][2] = {{0, 5}, {2, 7}}, layers[2][2] = {{2, 2}, {3, 1}};
	static const struct adp_plan_cell fast[] = {
		{.gpu = 0,
	     .speed_frac = 1,
	     .fwd_s = 0.1,
	     .bwd_s = 0.2,
	     .send_fwd_s = 0.01,
	     .send_bwd_s = 0.01},
		{.gpu = 0,
	     .speed_frac = 1,
	     .fwd_s = 0.1,
	     .bwd_s = 0.2,
	     .send_fwd_s = 0.01,
	     .send_bwd_s = 0.01},
	};
	static const struct adp_plan_cell slow[] = {
		{.gpu = 1,
	     .speed_frac = 0.5,
	     .fwd_s = 0.3,
	     .bwd_s = 0.6,
	     .send_fwd_s = 0.01,
	     .send_bwd_s = 0.01},
		{.gpu = 1,
	     .speed_frac = 0.5,
	     .fwd_s = 0.3,
	     .bwd_s = 0.6,
	     .send_fwd_s = 0.01,
	     .send_bwd_s = 0.01},
	};
	static const char *const traits[] = {"shared-expert-gate"};
	static const uint32_t low[] = {0, 1}, high[] = {2, 3};
	static const char *const node[] = {"big[1]", "small\\2"};

	if (!plan)
		return NULL;
	plan->name = "moe-test";
	plan->model = (struct adp_plan_model){
		.name = "tiny-moe",
		.family = "mixtral",
		.digest = "d1",
		.params = 9000000,
		.active_params = 3000000,
		.hidden = 256,
		.vocab = 1000,
		.max_seq_tokens = 512,
		.n_layers = 8,
		.n_heads = 4,
		.n_kv_heads = 2,
		.head_dim = 64,
		.n_experts = 4,
		.top_k = 2,
		.expert_ffn_hidden = 512,
		.shared_ffn_hidden = 128,
		.gated = true,
		.tied_embeddings = true,
		.qkv_bias = true,
		.qk_norm = true,
		.norm = "rmsnorm",
		.activation = "silu",
		.rope_theta = 1e4,
		.window_tokens = 128,
		.traits = traits,
		.n_traits = 1,
	};
	plan->train = (struct adp_train){
		.global_batch_seqs = 16,
		.seq_tokens = 512,
		.precision = ADP_PRECISION_FP16,
		.optimizer = ADP_OPTIMIZER_SGD,
		.expert_load_factor = 1.25,
	};
	plan->engine = "torch";
	plan->engine_version = "2.15";
	plan->data_version = "d2";
	plan->adp_version = "0.1.0";
	plan->cluster_name = "lab";
	plan->cluster_digest = "d3";
	plan->dp = 2;
	plan->tp = 2;
	plan->pp = 2;
	plan->vpp = 2;
	plan->cp = 1;
	plan->ep = 2;
	plan->etp = 1;
	plan->shard_gpus = 1;
	plan->micro_batch_seqs = 2;
	plan->padded_vocab = 1024;
	plan->n_gpu_types = 2;
	plan->gpus = adp_arena_calloc(&plan->arena, 2, sizeof *plan->gpus);
	plan->stages = adp_arena_calloc(&plan->arena, 2, sizeof *plan->stages);
	plan->pipes = adp_arena_calloc(&plan->arena, 2, sizeof *plan->pipes);
	plan->runs = adp_arena_calloc(&plan->arena, 4, sizeof *plan->runs);
	if (!plan->gpus || !plan->stages || !plan->pipes || !plan->runs) {
		adp_plan_destroy(plan);
		return NULL;
	}
	plan->gpus[0] = (struct adp_plan_gpu){"Big-GPU", "BIG", "hopper", 4, 4, 80 * GIB, 74 * GIB};
	plan->gpus[1] = (struct adp_plan_gpu){"Small-GPU", "SMALL", "volta", 4, 8, 48 * GIB, 44 * GIB};
	for (uint32_t s = 0; s < 2; s++)
		plan->stages[s] = (struct adp_plan_stage){
			.n_chunks = 2,
			.first_layer = fixture_keep(plan, first[s], sizeof first[s]),
			.n_layers = fixture_keep(plan, layers[s], sizeof layers[s]),
			.embedding = s == 0,
			.head = s == 1,
			.recompute = ADP_RECOMPUTE_SELECTIVE,
			.memory = fixture_memory(40 + s),
			.usable_bytes = 44 * GIB,
		};
	plan->n_pipes = 2;
	plan->pipes[0] = (struct adp_plan_pipe){.n_replicas = 1,
	                                        .n_micro = 6,
	                                        .cells = fixture_keep(plan, fast, sizeof fast),
	                                        .end_s = 2.5};
	plan->pipes[1] = (struct adp_plan_pipe){.n_replicas = 1,
	                                        .n_micro = 2,
	                                        .cells = fixture_keep(plan, slow, sizeof slow),
	                                        .end_s = 2.8};
	plan->n_runs = 4;
	for (uint32_t r = 0; r < 4; r++)
		plan->runs[r] = (struct adp_plan_run){
			.first_rank = 2 * r,
			.n_nodes = 1,
			.gpus_per_node = 2,
			.nodes = fixture_keep(plan, &node[r % 2], sizeof *node),
			.gpu_index = fixture_keep(plan, r < 2 ? low : high, sizeof low),
			.gpu = r % 2,
		};
	/* 2 + 0.25 + 0.25 + 0.5 = 3 */
	plan->step = (struct adp_plan_step){
		.compute_s = 2,
		.ep_s = 0.25,
		.cp_s = 0.25,
		.bubble_s = 0.5,
		.step_s = 3,
		.low_s = 2,
		.high_s = 4,
		.tokens_per_s = 8192.0 / 3,
		.mfu_frac = 0.1,
	};
	plan->time = (struct adp_train_time){.step_s = 3};
	plan->binding = "the slow replica";
	plan->search = (struct adp_plan_search){.n_weighed = 1, .bound_s = 3, .exhausted = true};
	return plan;
}

#endif
