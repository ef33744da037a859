/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Traits of struct adp_model that Megatron's GPT model can be told. All others are refused. */
static const struct {
	const char *trait, *flag;
} known_traits[] = {
	{"shared-expert-gate", "--moe-shared-expert-gate"},
	{"zero-centred-norm", "--apply-layernorm-1p"},
};
static const char llama3_rope[] = "llama3-rope-scaling-"; /* and the factor */

static int refuse(const struct adp_plan *plan, const char *feature, struct adp_error *err)
{
	char name[128];

	return adp_fail(err, ADP_EINVAL,
	                "model '%s': Megatron-Core %s has no flag for %s; plan with --engine torch",
	                emit_show(name, sizeof name, plan->model.name), plan->engine_version, feature);
}

static int add_trait(struct emit_args *args, const struct adp_plan *plan, const char *trait,
                     struct adp_error *err)
{
	char shown[128];

	for (size_t k = 0; k < sizeof known_traits / sizeof known_traits[0]; k++)
		if (strcmp(known_traits[k].trait, trait) == 0) {
			emit_arg_flag(args, known_traits[k].flag);
			return ADP_OK;
		}
	if (strncmp(trait, llama3_rope, strlen(llama3_rope)) == 0 &&
	    emit_is_number(trait + strlen(llama3_rope))) {
		emit_arg_flag(args, "--use-rope-scaling");
		emit_arg_text(args, "--rope-scaling-factor", trait + strlen(llama3_rope));
		return ADP_OK;
	}
	return refuse(plan, emit_show(shown, sizeof shown, trait), err);
}

static void add_attention(struct emit_args *args, const struct adp_plan *plan)
{
	const struct adp_plan_model *m = &plan->model;

	emit_arg_count(args, "--num-attention-heads", m->n_heads);
	if (m->n_kv_heads != m->n_heads) {
		emit_arg_flag(args, "--group-query-attention");
		emit_arg_count(args, "--num-query-groups", m->n_kv_heads);
	}
	if ((uint64_t)m->head_dim * m->n_heads != m->hidden)
		emit_arg_count(args, "--kv-channels", m->head_dim);
	if (m->qk_norm)
		emit_arg_flag(args, "--qk-layernorm");
	if (m->window_tokens) {
		char window[32];

		/* Transformer Engine counts the tokens to the left of the query; ours includes the query.
		 */
		snprintf(window, sizeof window, "%u,0", m->window_tokens - 1);
		emit_arg_text(args, "--window-size", window);
		/* Transformer Engine's ring (p2p, Megatron's default) knows no windows. */
		if (plan->cp > 1)
			emit_arg_text(args, "--cp-comm-type", "all_gather");
	}
}

static int add_positions(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_model *m = &plan->model;
	uint64_t seq = plan->train.seq_tokens, max = m->max_seq_tokens;
	const double exact = 9007199254740992.0; /* 2^53 */

	if (m->learned_positions && m->rope_theta > 0)
		return refuse(plan, "learned positions together with rotary positions", err);
	if (m->learned_positions && seq > max)
		return adp_fail(err, ADP_EINVAL,
		                "training.seqTokens: %" PRIu64
		                " tokens, but the model has learned only %" PRIu64
		                " positions; plan with --seq %" PRIu64 " or lower",
		                seq, max, max);
	if (m->rope_theta != floor(m->rope_theta) || m->rope_theta < 0 || m->rope_theta > exact)
		return refuse(plan, "a rotary base that is not a whole number", err);
	emit_arg_text(args, "--position-embedding-type",
	              m->learned_positions ? "learned_absolute"
	              : m->rope_theta > 0  ? "rope"
	                                   : "none");
	if (m->rope_theta > 0)
		emit_arg_count(args, "--rotary-base", (uint64_t)m->rope_theta);
	emit_arg_count(args, "--max-position-embeddings", max > seq ? max : seq);
	return ADP_OK;
}

/* hidden_act of the config to flags. Plain GELU is Megatron's default; its tanh form counts as the
 * same. */
static int add_activation(struct emit_args *args, const struct adp_plan *plan,
                          struct adp_error *err)
{
	const char *act = plan->model.activation;
	bool gelu = strcmp(act, "gelu") == 0 || strncmp(act, "gelu_", strlen("gelu_")) == 0;
	char shown[64], feature[128];

	if (plan->model.gated && (strcmp(act, "silu") == 0 || strcmp(act, "swish") == 0)) {
		emit_arg_flag(args, "--swiglu");
	} else if (!plan->model.gated && (strcmp(act, "relu2") == 0)) {
		emit_arg_flag(args, "--squared-relu");
	} else if (plan->model.gated && strcmp(act, "quick_gelu") == 0) {
		emit_arg_flag(args, "--quick-geglu");
	} else if (plan->model.gated || !gelu) {
		snprintf(feature, sizeof feature, "the %s activation %s",
		         plan->model.gated ? "gated" : "ungated", emit_show(shown, sizeof shown, act));
		return refuse(plan, feature, err);
	}
	return ADP_OK;
}

static int add_biases(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_model *m = &plan->model;

	if (m->out_bias != m->mlp_bias)
		return refuse(plan,
		              m->out_bias ? "a bias on the attention output without one on the MLP"
		                          : "a bias on the MLP without one on the attention output",
		              err);
	if (m->mlp_bias && !m->qkv_bias)
		return refuse(plan, "biases everywhere but on query, key and value", err);
	if (m->mlp_bias && m->n_experts && plan->etp != 1)
		return refuse(plan, "biased experts split by expert tensor parallelism", err);
	if (!m->mlp_bias) {
		emit_arg_flag(args, "--disable-bias-linear");
		if (m->qkv_bias)
			emit_arg_flag(args, "--add-qkv-bias");
		if (!m->gated && strncmp(m->activation, "gelu", strlen("gelu")) == 0)
			emit_arg_flag(args, "--no-bias-gelu-fusion");
	}
	return ADP_OK;
}

/* Grouped matmuls need compute capability 8.0. */
static bool has_grouped_gemm(const struct adp_plan *plan)
{
	static const char *const older[] = {"Pascal", "Volta", "Turing"};

	for (uint32_t i = 0; i < plan->n_gpu_types; i++)
		for (size_t k = 0; plan->gpus[i].n_used && k < sizeof older / sizeof older[0]; k++)
			if (strcasecmp(plan->gpus[i].arch, older[k]) == 0)
				return false;
	return true;
}

static void add_experts(struct emit_args *args, const struct adp_plan *plan)
{
	const struct adp_plan_model *m = &plan->model;

	emit_arg_count(args, "--num-experts", m->n_experts);
	emit_arg_count(args, "--moe-router-topk", m->top_k);
	emit_arg_count(args, "--moe-ffn-hidden-size", m->expert_ffn_hidden);
	if (m->shared_ffn_hidden)
		emit_arg_count(args, "--moe-shared-expert-intermediate-size", m->shared_ffn_hidden);
	if (m->n_dense_first) {
		char pattern[64];

		snprintf(pattern, sizeof pattern, "([0]*%u+[1]*%u)", m->n_dense_first,
		         m->n_layers - m->n_dense_first);
		emit_arg_text(args, "--moe-layer-freq", pattern);
	}
	if (has_grouped_gemm(plan))
		emit_arg_flag(args, "--moe-grouped-gemm");
	emit_arg_text(args, "--moe-token-dispatcher-type", "alltoall");
}

/* Megatron pads the vocabulary to the next multiple of (divisor * tp). */
static int add_vocabulary(struct emit_args *args, const struct adp_plan *plan,
                          struct adp_error *err)
{
	const uint64_t usual = 128;
	uint64_t vocab = plan->model.vocab, padded = plan->padded_vocab, step = usual * plan->tp;
	uint64_t divisor = usual;

	if (padded < vocab || padded % plan->tp != 0)
		return adp_fail(err, ADP_EINVAL,
		                "parallelism.paddedVocab: %" PRIu64
		                " must be a multiple of the tensor-parallel "
		                "degree %u and at least the vocabulary %" PRIu64,
		                padded, plan->tp, vocab);
	if (vocab / step * step + (vocab % step ? step : 0) != padded)
		divisor = padded / plan->tp; /* one step is then the whole table */
	emit_arg_count(args, "--vocab-size", vocab);
	emit_arg_count(args, "--make-vocab-size-divisible-by", divisor);
	return ADP_OK;
}

static int check_sizes(const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_model *m = &plan->model;
	const struct {
		const char *name;
		uint64_t value;
	} sizes[] = {
		{"layers", m->n_layers},
		{"hidden", m->hidden},
		{"heads", m->n_heads},
		{"kvHeads", m->n_kv_heads},
		{"headDim", m->head_dim},
		{"vocab", m->vocab},
		{"ffnHidden", m->ffn_hidden + m->expert_ffn_hidden},
		{"expertsPerToken", m->n_experts ? m->top_k : 1},
		{"expertFfnHidden", m->n_experts ? m->expert_ffn_hidden : 1},
	};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		if (sizes[i].value == 0)
			return adp_fail(err, ADP_EINVAL, "model.%s: 0, must be at least 1", sizes[i].name);
	if (m->n_experts && m->top_k > m->n_experts)
		return adp_fail(err, ADP_EINVAL, "model.expertsPerToken: %u of %u experts", m->top_k,
		                m->n_experts);
	if (m->n_experts && m->n_dense_first >= m->n_layers)
		return adp_fail(err, ADP_EINVAL,
		                "model.denseLayersFirst: %u of %u layers, none is left for the experts",
		                m->n_dense_first, m->n_layers);
	return ADP_OK;
}

int emit_megatron_model(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err)
{
	const struct adp_plan_model *m = &plan->model;
	bool rms = strcmp(m->norm, "rmsnorm") == 0;
	int rc = check_sizes(plan, err);

	for (uint32_t i = 0; rc == ADP_OK && i < m->n_traits; i++)
		rc = add_trait(args, plan, m->traits[i], err);
	if (rc)
		return rc;
	if (!rms && strcmp(m->norm, "layernorm") != 0) {
		char feature[128], shown[64];

		snprintf(feature, sizeof feature, "the norm %s", emit_show(shown, sizeof shown, m->norm));
		return refuse(plan, feature, err);
	}
	emit_arg_count(args, "--num-layers", m->n_layers);
	emit_arg_count(args, "--hidden-size", m->hidden);
	emit_arg_count(args, "--ffn-hidden-size", m->ffn_hidden ? m->ffn_hidden : m->expert_ffn_hidden);
	add_attention(args, plan);
	rc = add_positions(args, plan, err);
	emit_arg_text(args, "--normalization", rms ? "RMSNorm" : "LayerNorm");
	if (rc == ADP_OK)
		rc = add_activation(args, plan, err);
	if (rc == ADP_OK)
		rc = add_biases(args, plan, err);
	if (!m->tied_embeddings)
		emit_arg_flag(args, "--untie-embeddings-and-output-weights");
	if (m->n_experts)
		add_experts(args, plan);
	if (rc == ADP_OK)
		rc = add_vocabulary(args, plan, err);
	emit_arg_text(args, "--attention-dropout", "0.0");
	emit_arg_text(args, "--hidden-dropout", "0.0");
	return rc;
}
