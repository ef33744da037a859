/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "emit_fixture.h"
#include "support/fault_sweep.h"

/* The value of a flag in megatron.args: "" for one without, NULL when absent. */
static const char *value_of(const char *args, const char *flag, char *out, size_t size)
{
	size_t len = strlen(flag);

	for (const char *p = args; *p; p += strcspn(p, "\n") + 1) {
		size_t n = strcspn(p, "\n");
		const char *next = p + n + 1;

		if (n != len || memcmp(p, flag, len) != 0)
			continue;
		n = strncmp(next, "--", 2) == 0 ? 0 : strcspn(next, "\n");
		assert_true(n < size);
		memcpy(out, next, n);
		out[n] = '\0';
		return out;
	}
	return NULL;
}

struct want {
	const char *flag, *value; /* NULL: must be absent */
};

/* Emits, checks and destroys the plan. */
static void expect_args(struct adp_plan *plan, const struct want *want)
{
	struct adp_emit_set set;
	char value[256];

	emit_ok(&set, plan);
	for (; want->flag; want++) {
		const char *got = value_of(emit_content(&set, "megatron.args"), want->flag, value,
		                           sizeof value);

		if (!want->value != !got || (got && strcmp(got, want->value) != 0))
			fail_msg("%s is '%s', expected '%s'", want->flag, got ? got : "(absent)",
			         want->value ? want->value : "(absent)");
	}
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}
#define EXPECT(plan, ...) expect_args(plan, (const struct want[]){__VA_ARGS__, {NULL, NULL}})

static void sizes_of_a_dense_model_come_through(void **state)
{
	(void)state;
	EXPECT(emit_uneven(), {"--num-layers", "80"}, {"--hidden-size", "8192"},
	       {"--num-attention-heads", "64"}, {"--group-query-attention", ""},
	       {"--num-query-groups", "8"}, {"--kv-channels", NULL}, {"--ffn-hidden-size", "28672"},
	       {"--swiglu", ""}, {"--normalization", "RMSNorm"}, {"--position-embedding-type", "rope"},
	       {"--rotary-base", "500000"}, {"--disable-bias-linear", ""}, {"--add-qkv-bias", NULL},
	       {"--untie-embeddings-and-output-weights", ""}, {"--num-experts", NULL},
	       {"--max-position-embeddings", "8192"}, {"--seq-length", "8192"},
	       {"--vocab-size", "128256"},
	       /* ceil(128256 / (128 x 8)) x 1024 = 126 x 1024 = 129024, the plan's padded size */
	       {"--make-vocab-size-divisible-by", "128"}, {"--qk-layernorm", NULL},
	       {"--window-size", NULL});
}

static void sizes_of_an_expert_model_come_through(void **state)
{
	(void)state;
	EXPECT(emit_uniform(), {"--num-experts", "4"}, {"--moe-router-topk", "2"},
	       {"--moe-ffn-hidden-size", "512"}, {"--ffn-hidden-size", "512"},
	       {"--moe-shared-expert-intermediate-size", "128"}, {"--moe-shared-expert-gate", ""},
	       {"--moe-layer-freq", NULL}, {"--expert-model-parallel-size", "2"},
	       {"--expert-tensor-parallel-size", "1"}, {"--qk-layernorm", ""}, {"--add-qkv-bias", ""},
	       {"--disable-bias-linear", ""}, {"--untie-embeddings-and-output-weights", NULL},
	       {"--window-size", "127,0"},   /* 128 tokens, the query among them */
	       {"--moe-grouped-gemm", NULL}, /* Volta has no grouped matmul */
	       /* ceil(1000 / (128 x 2)) x 256 = 1024, the plan's padded size */
	       {"--make-vocab-size-divisible-by", "128"});
}

static void dense_layers_before_the_experts_become_a_pattern(void **state)
{
	struct adp_plan *plan = emit_uniform();

	(void)state;
	plan->model.n_dense_first = 3;
	plan->model.ffn_hidden = 1024;
	EXPECT(plan, {"--moe-layer-freq", "([0]*3+[1]*5)"}, {"--ffn-hidden-size", "1024"});
}

static void an_unusual_padding_gets_its_own_divisor(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->padded_vocab = 128256; /* no padding: one step of 16032 x 8 is the whole table */
	EXPECT(plan, {"--make-vocab-size-divisible-by", "16032"});
	plan = emit_uneven();
	plan->padded_vocab = 128260; /* 8 does not divide it */
	emit_refused(plan, ADP_EINVAL, "128260 must be a multiple of the tensor-parallel degree 8");
}

static void a_head_size_of_its_own_is_told(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->model.head_dim = 96; /* 64 x 96 is not 8192 */
	EXPECT(plan, {"--kv-channels", "96"});
}

static void as_many_kv_heads_as_heads_need_no_groups(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->model.n_kv_heads = 64;
	EXPECT(plan, {"--group-query-attention", NULL}, {"--num-query-groups", NULL});
}

static void uneven_layers_become_a_layout(void **state)
{
	(void)state;
	EXPECT(emit_uneven(), {"--pipeline-model-parallel-layout", "Et*27|t*27|t*13|t*13L"},
	       {"--pipeline-model-parallel-size", "4"}, {"--tensor-model-parallel-size", "8"},
	       {"--sequence-parallel", ""}, {"--context-parallel-size", "1"});
}

static void virtual_stages_become_a_layout(void **state)
{
	(void)state;
	EXPECT(emit_uniform(), {"--pipeline-model-parallel-layout", "Ett|tt|tt|ttL"},
	       {"--num-layers-per-virtual-pipeline-stage", NULL});
}

static void one_stage_needs_no_layout(void **state)
{
	struct adp_plan *plan = emit_uniform();
	static const uint32_t first[] = {0}, layers[] = {8};
	static const char *const first_node[] = {"a"}, *const second_node[] = {"b"};

	(void)state;
	plan->pp = plan->vpp = 1;
	plan->dp = 4;
	plan->n_pipes = 2;
	plan->pipes[0].n_replicas = plan->pipes[1].n_replicas = 2;
	plan->pipes[0].n_micro = plan->pipes[1].n_micro = 2; /* 4 replicas x 2 x 2 = 16 */
	plan->stages[0] = (struct adp_plan_stage){.n_chunks = 1,
	                                          .first_layer = first,
	                                          .n_layers = layers,
	                                          .embedding = true,
	                                          .head = true,
	                                          .usable_bytes = 44 * GIB,
	                                          .memory = fixture_memory(40)};
	/* ranks 0-3 are replicas 0 and 1 on one type, 4-7 replicas 2 and 3 on the other */
	for (uint32_t r = 0; r < 4; r++) {
		plan->runs[r].gpu = r / 2;
		plan->runs[r].nodes = r < 2 ? first_node : second_node;
	}
	plan->runs[1].gpu_index = plan->runs[3].gpu_index;
	plan->runs[2].gpu_index = plan->runs[0].gpu_index;
	EXPECT(plan, {"--pipeline-model-parallel-layout", NULL},
	       {"--pipeline-model-parallel-size", "1"});
}

static void the_global_batch_is_the_one_asked_for(void **state)
{
	struct adp_plan *plan = emit_uneven();
	struct adp_emit_set set;

	(void)state;
	EXPECT(emit_uneven(), {"--global-batch-size", "1024"}, {"--micro-batch-size", "1"},
	       /* ceil(15e12 / (1024 x 8192)) = ceil(1788139.3) */
	       {"--train-iters", "1788140"});
	emit_ok(&set, plan);
	assert_non_null(strstr(emit_content(&set, "launch.sh"),
	                       "# Global batch: 1024 sequences of 8192 tokens = "
	                       "1 per micro-batch x 8 replicas x 128 micro-batches."));
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void without_a_horizon_the_steps_are_left_to_the_user(void **state)
{
	(void)state;
	EXPECT(emit_uniform(), {"--train-iters", NULL}, {"--save-interval", NULL});
}

static void a_first_launch_can_be_resharded_later(void **state)
{
	(void)state;
	EXPECT(emit_uneven(), {"--ckpt-format", "torch_dist"},
	       {"--dist-ckpt-optim-fully-reshardable", ""}, {"--use-distributed-optimizer", ""},
	       {"--overlap-grad-reduce", ""}, {"--overlap-param-gather", ""},
	       {"--num-distributed-optimizer-instances", NULL},
	       {"--save-interval", "144"}); /* 1800 s / 12.5 s */
}

static void a_smaller_shard_group_becomes_several_optimizer_instances(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->shard_gpus = 2; /* 8 replicas / 2 */
	EXPECT(plan, {"--num-distributed-optimizer-instances", "4"});
	plan = emit_uneven();
	plan->shard_gpus = 4;
	EXPECT(plan, {"--num-distributed-optimizer-instances", "2"});
}

/* ZeRO 2 and 3 need one stage: 32 replicas of 8 GPUs, 16 on each type; 1024 = 32 x 32 micro-batches
 * of 1. */
static struct adp_plan *fsdp_plan(uint32_t zero)
{
	struct adp_plan *plan = emit_uneven();
	static const uint32_t first[] = {0}, layers[] = {80};
	static const struct adp_plan_cell fast[] = {
		{.gpu = 0, .speed_frac = 1, .fwd_s = 1, .bwd_s = 2}};
	static const struct adp_plan_cell slow[] = {
		{.gpu = 1, .speed_frac = 1, .fwd_s = 1, .bwd_s = 2}};

	plan->pp = 1;
	plan->dp = 32;
	plan->shard_gpus = 32;
	plan->zero_stage = zero;
	plan->stages[0].first_layer = first;
	plan->stages[0].n_layers = layers;
	plan->stages[0].head = true;
	plan->n_pipes = 2;
	plan->pipes = adp_arena_calloc(&plan->arena, 2, sizeof *plan->pipes);
	assert_non_null(plan->pipes);
	plan->pipes[0] = (struct adp_plan_pipe){
		.n_replicas = 16, .n_micro = 32, .cells = fast, .end_s = 1};
	plan->pipes[1] = (struct adp_plan_pipe){
		.n_replicas = 16, .n_micro = 32, .cells = slow, .end_s = 1};
	return plan;
}

static void zero_three_runs_under_megatron_fsdp(void **state)
{
	struct adp_plan *plan = fsdp_plan(3);
	struct adp_emit_set set;

	(void)state;
	emit_ok(&set, plan);
	/* Megatron-FSDP asserts that the variable is not 1; without it tensor parallelism would want 1.
	 */
	assert_non_null(strstr(emit_content(&set, "launch.sh"), "\nunset CUDA_DEVICE_MAX_CONNECTIONS"));
	adp_emit_fini(&set);
	EXPECT(plan, {"--use-megatron-fsdp", ""},
	       {"--data-parallel-sharding-strategy", "optim_grads_params"},
	       {"--ckpt-format", "fsdp_dtensor"}, {"--dist-ckpt-optim-fully-reshardable", NULL},
	       {"--no-gradient-accumulation-fusion", ""}, {"--init-model-with-meta-device", ""});
	EXPECT(fsdp_plan(2), {"--data-parallel-sharding-strategy", "optim_grads"},
	       {"--init-model-with-meta-device", NULL});
}

static void precisions_become_flags(void **state)
{
	static const struct {
		enum adp_precision precision;
		const char *bf16, *fp16, *fp8, *environment;
	} cases[] = {
		{ADP_PRECISION_BF16, "", NULL, NULL, NULL},
		{ADP_PRECISION_FP16, NULL, "", NULL, NULL},
		{ADP_PRECISION_FP8, "", NULL, "hybrid", NULL},
		{ADP_PRECISION_FP32, NULL, NULL, NULL, "export NVIDIA_TF32_OVERRIDE=0\n"},
		{ADP_PRECISION_TF32, NULL, NULL, NULL, "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct adp_plan *plan = emit_uneven();
		struct adp_emit_set set;

		plan->train.precision = cases[i].precision;
		emit_ok(&set, plan);
		if (cases[i].environment)
			assert_non_null(strstr(emit_content(&set, "launch.sh"), cases[i].environment));
		else
			assert_null(strstr(emit_content(&set, "launch.sh"), "TF32"));
		adp_emit_fini(&set);
		EXPECT(plan, {"--bf16", cases[i].bf16}, {"--fp16", cases[i].fp16},
		       {"--fp8-format", cases[i].fp8});
	}
}

static void recomputation_becomes_flags(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	EXPECT(emit_uneven(), {"--recompute-granularity", NULL});
	EXPECT(emit_uniform(), {"--recompute-granularity", "selective"},
	       {"--recompute-modules", "core_attn"}, {"--recompute-method", NULL});
	for (uint32_t s = 0; s < 4; s++)
		plan->stages[s].recompute = ADP_RECOMPUTE_FULL;
	EXPECT(plan, {"--recompute-granularity", "full"}, {"--recompute-method", "uniform"},
	       {"--recompute-num-layers", "1"});
}

static void optimizers_become_flags(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	EXPECT(emit_uneven(), {"--optimizer", "adam"}, {"--weight-decay", NULL});
	EXPECT(emit_uniform(), {"--optimizer", "sgd"}, {"--sgd-momentum", "0.0"});
	plan->train.optimizer = ADP_OPTIMIZER_ADAM;
	EXPECT(plan, {"--optimizer", "adam"}, {"--weight-decay", "0.0"});
	plan = emit_uniform();
	plan->train.optimizer = ADP_OPTIMIZER_SGD_MOMENTUM;
	EXPECT(plan, {"--optimizer", "sgd"}, {"--sgd-momentum", NULL});
}

static void activations_and_biases_become_flags(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->model.gated = false; /* GPT-2: LayerNorm, GELU, biases everywhere, learned positions */
	plan->model.activation = "gelu_new";
	plan->model.norm = "layernorm";
	plan->model.qkv_bias = plan->model.out_bias = plan->model.mlp_bias = true;
	plan->model.learned_positions = true;
	plan->model.rope_theta = 0;
	EXPECT(plan, {"--swiglu", NULL}, {"--disable-bias-linear", NULL},
	       {"--normalization", "LayerNorm"}, {"--position-embedding-type", "learned_absolute"},
	       {"--rotary-base", NULL}, {"--no-bias-gelu-fusion", NULL});

	plan = emit_uneven();
	plan->model.gated = false; /* no bias: the fused bias and GELU kernel must go */
	plan->model.activation = "gelu";
	EXPECT(plan, {"--no-bias-gelu-fusion", ""}, {"--disable-bias-linear", ""});

	plan = emit_uneven();
	plan->model.gated = false;
	plan->model.activation = "relu2";
	EXPECT(plan, {"--squared-relu", ""});

	plan = emit_uneven();
	plan->model.rope_theta = 0;
	EXPECT(plan, {"--position-embedding-type", "none"});
}

static void windows_under_context_parallelism_gather_keys_and_values(void **state)
{
	struct adp_plan *plan = emit_context();

	(void)state;
	EXPECT(emit_context(), {"--context-parallel-size", "2"}, {"--cp-comm-type", NULL});
	plan->model.window_tokens = 4096; /* the ring refuses windows */
	EXPECT(plan, {"--window-size", "4095,0"}, {"--cp-comm-type", "all_gather"});
	plan = emit_context();
	plan->flash = false;
	emit_refused(plan, ADP_EINVAL, "context parallelism needs a fused attention kernel");
	plan = emit_context();
	plan->train.seq_tokens = 8194; /* not a multiple of 2 x 2 */
	plan->step.tokens_per_s = 8194.0 * (double)plan->train.global_batch_seqs / plan->step.step_s;
	emit_refused(
		plan, ADP_EINVAL,
		"8194 tokens of a sequence cannot be divided by twice the context-parallel degree, 4");
}

static void slow_attention_is_told_where_no_flash_kernel_runs(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	EXPECT(emit_uneven(), {"--attention-backend", "auto"});
	plan->flash = false;
	EXPECT(plan, {"--attention-backend", "unfused"});
}

/* ---- what Megatron has no flag for --------------------------------------------------------- */

static void model_features_without_a_flag_are_refused_by_name(void **state)
{
	static const char *const traits[] = {"alibi",         "attention-sinks",   "sandwich-norms",
	                                     "mixed-windows", "parallel-residual", "partial-rotary",
	                                     "some-new-trait"};

	(void)state;
	for (size_t i = 0; i < sizeof traits / sizeof traits[0]; i++) {
		struct adp_plan *plan = emit_uneven();

		plan->model.traits = &traits[i];
		plan->model.n_traits = 1;
		emit_refused(plan, ADP_EINVAL, traits[i]);
	}
}

#define REFUSED(plan, change, part)                                                                \
	do {                                                                                           \
		struct adp_plan *p = plan;                                                                 \
		struct adp_plan_model *m = &p->model;                                                      \
		(void)m;                                                                                   \
		change;                                                                                    \
		emit_refused(p, ADP_EINVAL, part);                                                         \
	} while (0)

static void model_shapes_without_a_flag_are_refused(void **state)
{
	(void)state;
	REFUSED(emit_uneven(), m->learned_positions = true,
	        "learned positions together with rotary positions");
	REFUSED(emit_uneven(),
	        (m->learned_positions = true, m->rope_theta = 0, m->max_seq_tokens = 4096),
	        "learned only 4096 positions");
	REFUSED(emit_uneven(), m->rope_theta = 10000.5, "rotary base");
	REFUSED(emit_uneven(), m->activation = "gelu", "the gated activation gelu");
	REFUSED(emit_uneven(), m->gated = false, "the ungated activation silu");
	REFUSED(emit_uneven(), m->out_bias = true,
	        "a bias on the attention output without one on the MLP");
	REFUSED(emit_uneven(), m->mlp_bias = true,
	        "a bias on the MLP without one on the attention output");
	REFUSED(emit_uneven(), m->mlp_bias = m->out_bias = true,
	        "everywhere but on query, key and value");
	REFUSED(emit_uneven(), m->norm = "batchnorm", "the norm batchnorm");
	REFUSED(emit_uniform(), (m->qkv_bias = m->mlp_bias = m->out_bias = true, p->etp = 2, p->ep = 1),
	        "biased experts");
	REFUSED(emit_uniform(), m->n_dense_first = 8, "none is left for the experts");
}

static void sizes_of_nothing_are_refused(void **state)
{
	(void)state;
	REFUSED(emit_uneven(), m->hidden = 0, "model.hidden: 0");
	REFUSED(emit_uneven(), m->head_dim = 0, "model.headDim: 0");
	REFUSED(emit_uneven(), m->ffn_hidden = 0, "model.ffnHidden: 0");
	REFUSED(emit_uniform(), m->expert_ffn_hidden = 0, "model.ffnHidden: 0");
	REFUSED(emit_uniform(), m->top_k = 0, "model.expertsPerToken: 0");
	REFUSED(emit_uniform(), m->top_k = 5, "model.expertsPerToken: 5 of 4 experts");
}

static void rotary_scaling_is_told_where_megatron_has_it(void **state)
{
	static const char *const llama[] = {"llama3-rope-scaling-32"}, *const other[] = {
																	   "rope-scaling"};
	static const char *const broken[] = {"llama3-rope-scaling-x"};
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->model.traits = llama;
	plan->model.n_traits = 1;
	EXPECT(plan, {"--use-rope-scaling", ""}, {"--rope-scaling-factor", "32"});
	EXPECT(emit_uneven(), {"--use-rope-scaling", NULL});
	REFUSED(emit_uneven(), (m->traits = other, m->n_traits = 1), "no flag for rope-scaling");
	plan = emit_uneven();
	plan->model.traits = broken;
	plan->model.n_traits = 1;
	emit_refused(plan, ADP_EINVAL, "llama3-rope-scaling-x");
}

static void levers_that_megatron_lacks_are_refused(void **state)
{
	(void)state;
	REFUSED(emit_uniform(), (p->vpp = 2, p->pipes[0].n_micro = 6, p->pipes[1].n_micro = 2),
	        "unequal");
	REFUSED(emit_uneven(), p->stages[2].recompute = ADP_RECOMPUTE_FULL,
	        "stages[2].recompute: Megatron has one choice for all stages");
	REFUSED(emit_uneven(), p->zero_stage = 2,
	        "Megatron-FSDP (ZeRO stage 2) is not run with a pipeline");
	REFUSED(emit_uneven(), p->train.optimizer = ADP_OPTIMIZER_SGD, "runs Adam only");
	REFUSED(emit_uniform(), p->sequence_parallel = false, "together with sequence parallelism");
}

static void degrees_that_do_not_divide_are_refused(void **state)
{
	(void)state;
	/* case divisibility-01: 28 heads; here tensor 8 */
	REFUSED(emit_uneven(), (m->n_heads = 28, m->n_kv_heads = 4),
	        "28 attention heads cannot be divided by tensor-parallel degree 8");
	/* case divisibility-08: 96 heads and 8 KV heads at tensor 6 fail on the KV heads */
	REFUSED(emit_uneven(), m->n_kv_heads = 6,
	        "6 KV heads cannot be divided by tensor-parallel degree 8");
	REFUSED(emit_uneven(), m->ffn_hidden = 28673, "28673 MLP columns cannot be divided");
	REFUSED(emit_uneven(), (p->train.seq_tokens = 8191, p->step.tokens_per_s *= 8191.0 / 8192.0),
	        "8191 tokens of a sequence cannot be divided");
	REFUSED(emit_uniform(), (m->n_experts = 6, p->ep = 4, p->etp = 1),
	        "does not divide the model's 6 experts");
}

static void few_kv_heads_are_repeated_only_by_releases_that_can(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->model.n_kv_heads = 2; /* tensor 8 = 4 x 2: case divisibility-03, accepted since 0.16 */
	EXPECT(plan, {"--num-query-groups", "2"});
	plan = emit_uneven();
	plan->model.n_kv_heads = 2;
	plan->engine_version = "0.15.0";
	emit_refused(plan, ADP_EINVAL, "2 KV heads cannot be divided by tensor-parallel degree 8");
}

static void a_plan_for_another_engine_is_refused(void **state)
{
	struct adp_plan *plan = emit_uneven();
	struct adp_emit_set set = {0};
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_emit(&set, plan, "torch", &emit_opts, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "adp plan --engine torch"));
	assert_int_equal(adp_emit(&set, plan, "jax", &emit_opts, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "engine 'jax' is not known"));
	plan->engine_version = "nightly";
	emit_refused(plan, ADP_EINVAL, "nightly");
}

static void a_plan_that_breaks_its_own_rules_is_refused(void **state)
{
	struct adp_plan *plan = emit_uneven();

	(void)state;
	plan->runs[1].first_rank = 127;
	emit_refused(plan, ADP_EINVAL, "plan: ");
}

static void the_same_plan_gives_the_same_bytes(void **state)
{
	struct adp_plan *plan = emit_uneven();
	struct adp_emit_set a, b;

	(void)state;
	emit_ok(&a, plan);
	emit_ok(&b, plan);
	assert_int_equal(a.n_files, b.n_files);
	for (uint32_t i = 0; i < a.n_files; i++) {
		assert_string_equal(a.files[i].name, b.files[i].name);
		assert_string_equal(a.files[i].content, b.files[i].content);
	}
	adp_emit_fini(&a);
	adp_emit_fini(&b);
	adp_plan_destroy(plan);
}

static int emit_once(void *context)
{
	struct adp_emit_set set = {0};
	int rc = adp_emit(&set, context, NULL, &emit_opts, NULL);

	adp_emit_fini(&set);
	return rc;
}

static void running_out_of_memory_leaks_nothing(void **state)
{
	struct adp_plan *plan = emit_uniform();

	(void)state;
	fault_sweep(emit_once, plan);
	adp_plan_destroy(plan);
	plan = fixture_moe(); /* for torch */
	assert_non_null(plan);
	fault_sweep(emit_once, plan);
	adp_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_of_a_dense_model_come_through),
		cmocka_unit_test(sizes_of_an_expert_model_come_through),
		cmocka_unit_test(dense_layers_before_the_experts_become_a_pattern),
		cmocka_unit_test(an_unusual_padding_gets_its_own_divisor),
		cmocka_unit_test(a_head_size_of_its_own_is_told),
		cmocka_unit_test(as_many_kv_heads_as_heads_need_no_groups),
		cmocka_unit_test(uneven_layers_become_a_layout),
		cmocka_unit_test(virtual_stages_become_a_layout),
		cmocka_unit_test(one_stage_needs_no_layout),
		cmocka_unit_test(the_global_batch_is_the_one_asked_for),
		cmocka_unit_test(without_a_horizon_the_steps_are_left_to_the_user),
		cmocka_unit_test(a_first_launch_can_be_resharded_later),
		cmocka_unit_test(a_smaller_shard_group_becomes_several_optimizer_instances),
		cmocka_unit_test(zero_three_runs_under_megatron_fsdp),
		cmocka_unit_test(precisions_become_flags),
		cmocka_unit_test(recomputation_becomes_flags),
		cmocka_unit_test(optimizers_become_flags),
		cmocka_unit_test(activations_and_biases_become_flags),
		cmocka_unit_test(windows_under_context_parallelism_gather_keys_and_values),
		cmocka_unit_test(slow_attention_is_told_where_no_flash_kernel_runs),
		cmocka_unit_test(model_features_without_a_flag_are_refused_by_name),
		cmocka_unit_test(model_shapes_without_a_flag_are_refused),
		cmocka_unit_test(sizes_of_nothing_are_refused),
		cmocka_unit_test(rotary_scaling_is_told_where_megatron_has_it),
		cmocka_unit_test(levers_that_megatron_lacks_are_refused),
		cmocka_unit_test(degrees_that_do_not_divide_are_refused),
		cmocka_unit_test(few_kv_heads_are_repeated_only_by_releases_that_can),
		cmocka_unit_test(a_plan_for_another_engine_is_refused),
		cmocka_unit_test(a_plan_that_breaks_its_own_rules_is_refused),
		cmocka_unit_test(the_same_plan_gives_the_same_bytes),
		cmocka_unit_test(running_out_of_memory_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
