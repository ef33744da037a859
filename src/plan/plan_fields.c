/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/doc.h"
#include "base/utf8.h"

#define FIELD(type, member, key_, kind_)                                                           \
	{                                                                                              \
		.key = (key_), .kind = ADP_FIELD_##kind_, .offset = offsetof(struct type, member)          \
	}
#define OPTIONAL(type, member, key_)                                                               \
	{                                                                                              \
		.key = (key_), .kind = ADP_FIELD_STRING, .offset = offsetof(struct type, member),          \
		.optional = true                                                                           \
	}
#define END                                                                                        \
	{                                                                                              \
		.key = NULL                                                                                \
	}

const struct adp_field adp_plan_model_fields[] = {
	FIELD(adp_plan_model, name, "name", STRING),
	FIELD(adp_plan_model, family, "family", STRING),
	FIELD(adp_plan_model, params, "parameters", U64),
	FIELD(adp_plan_model, active_params, "activeParameters", U64),
	FIELD(adp_plan_model, n_layers, "layers", U32),
	FIELD(adp_plan_model, hidden, "hidden", U64),
	FIELD(adp_plan_model, n_heads, "heads", U32),
	FIELD(adp_plan_model, n_kv_heads, "kvHeads", U32),
	FIELD(adp_plan_model, head_dim, "headDim", U32),
	FIELD(adp_plan_model, ffn_hidden, "ffnHidden", U64),
	FIELD(adp_plan_model, vocab, "vocab", U64),
	FIELD(adp_plan_model, max_seq_tokens, "maxSeqTokens", U64),
	FIELD(adp_plan_model, n_experts, "experts", U32),
	FIELD(adp_plan_model, top_k, "expertsPerToken", U32),
	FIELD(adp_plan_model, n_dense_first, "denseLayersFirst", U32),
	FIELD(adp_plan_model, expert_ffn_hidden, "expertFfnHidden", U64),
	FIELD(adp_plan_model, shared_ffn_hidden, "sharedExpertFfnHidden", U64),
	FIELD(adp_plan_model, gated, "gatedMlp", BOOL),
	FIELD(adp_plan_model, tied_embeddings, "tiedEmbeddings", BOOL),
	FIELD(adp_plan_model, learned_positions, "learnedPositions", BOOL),
	FIELD(adp_plan_model, qkv_bias, "qkvBias", BOOL),
	FIELD(adp_plan_model, out_bias, "attentionOutputBias", BOOL),
	FIELD(adp_plan_model, mlp_bias, "mlpBias", BOOL),
	FIELD(adp_plan_model, qk_norm, "qkNorm", BOOL),
	FIELD(adp_plan_model, norm, "norm", STRING),
	FIELD(adp_plan_model, activation, "activation", STRING),
	FIELD(adp_plan_model, rope_theta, "ropeTheta", DOUBLE),
	FIELD(adp_plan_model, window_tokens, "windowTokens", U32),
	END,
};

const struct adp_field adp_plan_train_fields[] = {
	FIELD(adp_train, global_batch_seqs, "globalBatchSeqs", U64),
	FIELD(adp_train, seq_tokens, "seqTokens", U64),
	FIELD(adp_train, tokens, "tokens", DOUBLE),
	FIELD(adp_train, precision, "precision", PRECISION),
	FIELD(adp_train, optimizer, "optimizer", OPTIMIZER),
	FIELD(adp_train, deadline_s, "deadlineSeconds", DOUBLE),
	FIELD(adp_train, mtbf_s, "gpuMtbfSeconds", DOUBLE),
	FIELD(adp_train, checkpoint_interval_s, "checkpointIntervalSeconds", DOUBLE),
	FIELD(adp_train, checkpoint_stall_s, "checkpointStallSeconds", DOUBLE),
	FIELD(adp_train, restart_s, "restartSeconds", DOUBLE),
	FIELD(adp_train, storage_bytes_per_s, "storageBytesPerSecond", DOUBLE),
	FIELD(adp_train, expert_load_factor, "expertLoadFactor", DOUBLE),
	END,
};

const struct adp_field adp_plan_engine_fields[] = {
	FIELD(adp_plan, engine, "name", STRING),
	FIELD(adp_plan, engine_version, "version", STRING),
	FIELD(adp_plan, flash, "flashAttention", BOOL),
	END,
};

const struct adp_field adp_plan_degree_fields[] = {
	FIELD(adp_plan, dp, "dataParallel", U32),
	FIELD(adp_plan, tp, "tensorParallel", U32),
	FIELD(adp_plan, pp, "pipelineParallel", U32),
	FIELD(adp_plan, vpp, "virtualPipelineParallel", U32),
	FIELD(adp_plan, cp, "contextParallel", U32),
	FIELD(adp_plan, ep, "expertParallel", U32),
	FIELD(adp_plan, etp, "expertTensorParallel", U32),
	FIELD(adp_plan, sequence_parallel, "sequenceParallel", BOOL),
	FIELD(adp_plan, zero_stage, "zeroStage", U32),
	FIELD(adp_plan, shard_gpus, "shardGpus", U32),
	FIELD(adp_plan, micro_batch_seqs, "microBatchSeqs", U64),
	FIELD(adp_plan, padded_vocab, "paddedVocab", U64),
	END,
};

const struct adp_field adp_plan_gpu_fields[] = {
	FIELD(adp_plan_gpu, type, "type", STRING),
	FIELD(adp_plan_gpu, alias, "alias", STRING),
	FIELD(adp_plan_gpu, arch, "arch", STRING),
	FIELD(adp_plan_gpu, n_used, "used", U32),
	FIELD(adp_plan_gpu, n_total, "total", U32),
	FIELD(adp_plan_gpu, memory_bytes, "memoryBytes", U64),
	FIELD(adp_plan_gpu, usable_bytes, "usableBytes", U64),
	END,
};

const struct adp_field adp_plan_stage_fields[] = {
	FIELD(adp_plan_stage, embedding, "embedding", BOOL),
	FIELD(adp_plan_stage, head, "head", BOOL),
	FIELD(adp_plan_stage, recompute, "recompute", RECOMPUTE),
	END,
};

const struct adp_field adp_plan_pipe_fields[] = {
	FIELD(adp_plan_pipe, n_replicas, "replicas", U32),
	FIELD(adp_plan_pipe, n_micro, "microBatches", U32),
	END,
};

const struct adp_field adp_plan_cell_fields[] = {
	FIELD(adp_plan_cell, speed_frac, "speedFraction", DOUBLE),
	END,
};

const struct adp_field adp_plan_cell_time_fields[] = {
	FIELD(adp_plan_cell, fwd_s, "forwardSeconds", DOUBLE),
	FIELD(adp_plan_cell, bwd_s, "backwardSeconds", DOUBLE),
	FIELD(adp_plan_cell, send_fwd_s, "sendForwardSeconds", DOUBLE),
	FIELD(adp_plan_cell, send_bwd_s, "sendBackwardSeconds", DOUBLE),
	END,
};

const struct adp_field adp_plan_pipe_time_fields[] = {
	FIELD(adp_plan_pipe, end_s, "endSeconds", DOUBLE),
	END,
};

const struct adp_field adp_plan_step_fields[] = {
	FIELD(adp_plan_step, step_s, "stepSeconds", DOUBLE),
	FIELD(adp_plan_step, low_s, "stepLowSeconds", DOUBLE),
	FIELD(adp_plan_step, high_s, "stepHighSeconds", DOUBLE),
	FIELD(adp_plan_step, compute_s, "computeSeconds", DOUBLE),
	FIELD(adp_plan_step, tp_s, "tensorParallelSeconds", DOUBLE),
	FIELD(adp_plan_step, cp_s, "contextParallelSeconds", DOUBLE),
	FIELD(adp_plan_step, ep_s, "expertParallelSeconds", DOUBLE),
	FIELD(adp_plan_step, p2p_s, "pipelineSendSeconds", DOUBLE),
	FIELD(adp_plan_step, bubble_s, "bubbleSeconds", DOUBLE),
	FIELD(adp_plan_step, dp_s, "dataParallelSeconds", DOUBLE),
	FIELD(adp_plan_step, optimizer_s, "optimizerSeconds", DOUBLE),
	FIELD(adp_plan_step, fixed_s, "fixedSeconds", DOUBLE),
	FIELD(adp_plan_step, tokens_per_s, "tokensPerSecond", DOUBLE),
	FIELD(adp_plan_step, mfu_frac, "mfuFraction", DOUBLE),
	END,
};

const struct adp_field adp_plan_memory_fields[] = {
	FIELD(adp_memory, weights, "weightsBytes", U64),
	FIELD(adp_memory, gradients, "gradientsBytes", U64),
	FIELD(adp_memory, optimizer, "optimizerBytes", U64),
	FIELD(adp_memory, activations, "activationsBytes", U64),
	FIELD(adp_memory, live_window, "liveWindowBytes", U64),
	FIELD(adp_memory, buckets, "bucketsBytes", U64),
	FIELD(adp_memory, logits, "logitsBytes", U64),
	FIELD(adp_memory, workspace, "workspaceBytes", U64),
	FIELD(adp_memory, context, "contextBytes", U64),
	FIELD(adp_memory, init_peak_bytes, "initPeakBytes", U64),
	FIELD(adp_memory, steady_peak_bytes, "steadyPeakBytes", U64),
	FIELD(adp_memory, peak_bytes, "peakBytes", U64),
	END,
};

const struct adp_field adp_plan_stage_memory_fields[] = {
	FIELD(adp_plan_stage, usable_bytes, "usableBytes", U64),
	END,
};

const struct adp_field adp_plan_time_fields[] = {
	FIELD(adp_train_time, n_steps, "steps", DOUBLE),
	FIELD(adp_train_time, step_s, "stepSeconds", DOUBLE),
	FIELD(adp_train_time, compute_s, "stepsSeconds", DOUBLE),
	FIELD(adp_train_time, checkpoint_interval_s, "checkpointIntervalSeconds", DOUBLE),
	FIELD(adp_train_time, checkpoint_stall_s, "checkpointStallSeconds", DOUBLE),
	FIELD(adp_train_time, n_checkpoints, "checkpoints", ENDLESS),
	FIELD(adp_train_time, checkpoints_s, "checkpointsSeconds", ENDLESS),
	FIELD(adp_train_time, n_failures, "failures", ENDLESS),
	FIELD(adp_train_time, lost_work_s, "lostWorkSeconds", ENDLESS),
	FIELD(adp_train_time, restarts_s, "restartsSeconds", ENDLESS),
	FIELD(adp_train_time, total_s, "totalSeconds", ENDLESS),
	END,
};

const struct adp_field adp_plan_other_fields[] = {
	FIELD(adp_plan_other, name, "name", STRING),
	FIELD(adp_plan_other, text, "text", STRING),
	FIELD(adp_plan_other, step_s, "stepSeconds", DOUBLE),
	FIELD(adp_plan_other, loss_frac, "lossFraction", DOUBLE),
	OPTIONAL(adp_plan_other, flag, "flag"),
	END,
};

const struct adp_field adp_plan_search_fields[] = {
	FIELD(adp_plan_search, n_weighed, "plansWeighed", U64),
	FIELD(adp_plan_search, n_bounded, "plansDismissed", U64),
	FIELD(adp_plan_search, bound_s, "boundSeconds", DOUBLE),
	FIELD(adp_plan_search, gap_frac, "gapFraction", DOUBLE),
	FIELD(adp_plan_search, exhausted, "exhausted", BOOL),
	END,
};

const struct adp_field adp_plan_provenance_fields[] = {
	FIELD(adp_plan, data_version, "dataVersion", STRING),
	FIELD(adp_plan, model.digest, "modelDigest", STRING),
	FIELD(adp_plan, cluster_name, "clusterName", STRING),
	FIELD(adp_plan, cluster_digest, "clusterDigest", STRING),
	END,
};

int adp_plan_set(json_t *object, const char *key, json_t *value, struct adp_error *err)
{
	if (!value || json_object_set_new(object, key, value))
		return adp_nomem(err);
	return ADP_OK;
}

int adp_plan_append(json_t *array, json_t *value, struct adp_error *err)
{
	if (!value || json_array_append_new(array, value))
		return adp_nomem(err);
	return ADP_OK;
}

json_t *adp_plan_string(const char *text, const char *key, struct adp_error *err)
{
	json_t *value;

	if (!text) {
		adp_fail(err, ADP_EINVAL, "plan: %s is missing", key);
		return NULL;
	}
	if (adp_utf8_check(text, strlen(text)) != strlen(text)) {
		adp_fail(err, ADP_EINVAL,
		         "plan: %s is not UTF-8 text, so no document can hold it; rename it", key);
		return NULL;
	}
	value = json_string(text);
	if (!value)
		adp_nomem(err);
	return value;
}

static json_t *integer(uint64_t value, const char *key, struct adp_error *err)
{
	json_t *number;

	if (value > INT64_MAX) {
		adp_fail(err, ADP_EINVAL, "plan: %s is too large for a document", key);
		return NULL;
	}
	number = json_integer((json_int_t)value);
	if (!number)
		adp_nomem(err);
	return number;
}

static json_t *real(double value, const char *key, struct adp_error *err)
{
	json_t *number;

	if (!isfinite(value)) {
		adp_fail(err, ADP_EINVAL, "plan: %s is not a finite number", key);
		return NULL;
	}
	number = json_real(value == 0 ? 0 : value); /* no "-0.0" */
	if (!number)
		adp_nomem(err);
	return number;
}

static json_t *field_value(const struct adp_field *field, const void *at, struct adp_error *err)
{
	switch (field->kind) {
	case ADP_FIELD_STRING:
		return adp_plan_string(*(const char *const *)at, field->key, err);
	case ADP_FIELD_U32:
		return integer(*(const uint32_t *)at, field->key, err);
	case ADP_FIELD_U64:
		return integer(*(const uint64_t *)at, field->key, err);
	case ADP_FIELD_DOUBLE:
		return real(*(const double *)at, field->key, err);
	case ADP_FIELD_ENDLESS:
		return *(const double *)at == INFINITY ? json_null()
		                                       : real(*(const double *)at, field->key, err);
	case ADP_FIELD_BOOL:
		return json_boolean(*(const bool *)at);
	case ADP_FIELD_RECOMPUTE:
		return adp_plan_string(adp_recompute_name(*(const enum adp_recompute *)at), field->key,
		                       err);
	case ADP_FIELD_PRECISION:
		return adp_plan_string(adp_precision_name(*(const enum adp_precision *)at), field->key,
		                       err);
	case ADP_FIELD_OPTIMIZER:
		return adp_plan_string(adp_optimizer_name(*(const enum adp_optimizer *)at), field->key,
		                       err);
	}
	adp_fail(err, ADP_EINTERNAL, "plan: %s has no kind", field->key);
	return NULL;
}

int adp_plan_fields_write(json_t *object, const struct adp_field *fields, const void *base,
                          struct adp_error *err)
{
	for (const struct adp_field *field = fields; field->key; field++) {
		const void *at = (const char *)base + field->offset;
		json_t *value;

		if (field->optional && !*(const char *const *)at)
			continue;
		value = field_value(field, at, err);
		if (!value)
			return err->code;
		if (json_object_set_new(object, field->key, value))
			return adp_nomem(err);
	}
	return ADP_OK;
}

static int parse_recompute(enum adp_recompute *out, const char *text, struct adp_error *err)
{
	for (unsigned i = 0; i < ADP_N_RECOMPUTE; i++)
		if (!strcmp(text, adp_recompute_name((enum adp_recompute)i))) {
			*out = (enum adp_recompute)i;
			return ADP_OK;
		}
	return adp_fail(err, ADP_EINVAL,
	                "\"%.64s\" is no recomputation; known are none, selective, full", text);
}

static int read_word(const struct adp_field *field, void *at, const char *text,
                     struct adp_arena *arena, struct adp_error *err)
{
	switch (field->kind) {
	case ADP_FIELD_RECOMPUTE:
		return parse_recompute(at, text, err);
	case ADP_FIELD_PRECISION:
		return adp_precision_parse(at, text, err);
	case ADP_FIELD_OPTIMIZER:
		return adp_optimizer_parse(at, text, err);
	default:
		break;
	}
	*(const char **)at = adp_arena_strdup(arena, text);
	return *(const char **)at ? ADP_OK : adp_nomem(err);
}

static int read_field(const struct adp_field *field, void *at, const json_t *object,
                      const char *path, struct adp_arena *arena, struct adp_error *err)
{
	const char *text;
	uint64_t number;
	bool found = true;
	int rc;

	switch (field->kind) {
	case ADP_FIELD_U32:
	case ADP_FIELD_U64:
		rc = adp_doc_u64(&number, NULL, object, field->key, 0,
		                 field->kind == ADP_FIELD_U32 ? UINT32_MAX : INT64_MAX, path, err);
		if (!rc && field->kind == ADP_FIELD_U32)
			*(uint32_t *)at = (uint32_t)number;
		else if (!rc)
			*(uint64_t *)at = number;
		return rc;
	case ADP_FIELD_ENDLESS:
		if (json_is_null(json_object_get(object, field->key))) {
			*(double *)at = INFINITY;
			return ADP_OK;
		}
		/* fall through */
	case ADP_FIELD_DOUBLE:
		return adp_doc_double(at, NULL, object, field->key, -DBL_MAX, DBL_MAX, path, err);
	case ADP_FIELD_BOOL:
		return adp_doc_bool(at, NULL, object, field->key, path, err);
	default:
		break;
	}
	rc = adp_doc_string(&text, field->optional ? &found : NULL, object, field->key, path, err);
	if (rc || !found)
		return rc;
	rc = read_word(field, at, text, arena, err);
	return rc ? adp_wrap(err, rc, "%s.%s", path, field->key) : ADP_OK;
}

int adp_plan_fields_read(void *base, const struct adp_field *fields, const char *const *others,
                         const json_t *object, const char *path, struct adp_arena *arena,
                         struct adp_error *err)
{
	const char *allowed[64];
	size_t n = 0;
	int rc;

	for (const struct adp_field *field = fields; field->key; field++)
		allowed[n++] = field->key;
	for (; others && *others; others++)
		allowed[n++] = *others;
	allowed[n] = NULL;
	rc = adp_doc_only(object, allowed, path, err);
	for (; !rc && fields->key; fields++)
		rc = read_field(fields, (char *)base + fields->offset, object, path, arena, err);
	return rc;
}
