/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"

bool emit_megatron_fsdp(const struct adp_plan *plan)
{
	return plan->zero_stage >= 2;
}

/* ---- what Megatron has one value for -------------------------------------------------- */

static int check_batch(const struct adp_plan *plan, struct adp_error *err)
{
	uint32_t n_micro = emit_equal_micro(plan);
	uint64_t batch = plan->train.global_batch_seqs;

	if (n_micro == 0)
		return adp_fail(
			err, ADP_EINVAL,
			"replicaGroups: Megatron gives every replica the same number of micro-batches, but "
			"these have unequal ones; make the plan with adp plan --engine megatron");
	if (plan->micro_batch_seqs * plan->dp * n_micro != batch)
		return adp_fail(err, ADP_EINVAL,
		                "training.globalBatchSeqs: %" PRIu64 " is not micro-batch %" PRIu64
		                " x %u replicas "
		                "x %u micro-batches",
		                batch, plan->micro_batch_seqs, plan->dp, n_micro);
	if (plan->vpp > 1 && n_micro % plan->pp != 0)
		return adp_fail(
			err, ADP_EINVAL,
			"replicaGroups: %u micro-batches, but Megatron's interleaved schedule needs a multiple "
			"of the pipeline degree %u",
			n_micro, plan->pp);
	return ADP_OK;
}

static int check_divides(uint64_t whole, const char *what, uint64_t parts, const char *degree,
                         struct adp_error *err)
{
	if (parts != 0 && whole % parts == 0)
		return ADP_OK;
	return adp_fail(err, ADP_EINVAL, "%" PRIu64 " %s cannot be divided by %s %" PRIu64, whole, what,
	                degree, parts);
}

static int check_degrees(const struct adp_plan *plan, const struct adp_engine *engine,
                         struct adp_error *err)
{
	const struct adp_plan_model *m = &plan->model;
	uint32_t low = m->n_kv_heads < plan->tp ? m->n_kv_heads : plan->tp;
	uint32_t high = m->n_kv_heads < plan->tp ? plan->tp : m->n_kv_heads;
	int rc = check_divides(m->n_heads, "attention heads", plan->tp, "tensor-parallel degree", err);

	if (rc == ADP_OK &&
	    (low == 0 || high % low != 0 || (m->n_kv_heads < plan->tp && !engine->kv_replication)))
		rc = adp_fail(err, ADP_EINVAL,
		              "%u KV heads cannot be divided by tensor-parallel degree %u%s", m->n_kv_heads,
		              plan->tp, engine->kv_replication ? ", nor repeated to it" : "");
	if (rc == ADP_OK && m->ffn_hidden)
		rc = check_divides(m->ffn_hidden, "MLP columns", plan->tp, "tensor-parallel degree", err);
	if (rc == ADP_OK && plan->cp > 1)
		rc = check_divides(plan->train.seq_tokens, "tokens of a sequence", 2 * (uint64_t)plan->cp,
		                   "twice the context-parallel degree,", err);
	if (rc == ADP_OK && plan->cp > 1 && !plan->flash)
		rc = adp_fail(
			err, ADP_EINVAL,
			"parallelism: context parallelism needs a fused attention kernel, which these "
			"GPUs lack; plan with --cp 1");
	if (rc == ADP_OK && plan->sequence_parallel)
		rc = check_divides(plan->train.seq_tokens, "tokens of a sequence",
		                   (uint64_t)plan->tp * plan->cp, "tensor- times context-parallel degree",
		                   err);
	if (rc || m->n_experts == 0)
		return rc;
	rc = check_divides(m->n_experts, "experts", plan->ep, "expert-parallel degree", err);
	if (rc == ADP_OK)
		rc = check_divides(m->expert_ffn_hidden, "columns of an expert", plan->etp,
		                   "expert tensor-parallel degree", err);
	if (rc == ADP_OK)
		rc = check_divides((uint64_t)plan->tp * plan->cp * plan->dp, "ranks of a stage",
		                   (uint64_t)plan->ep * plan->etp,
		                   "expert times expert tensor-parallel degree", err);
	if (rc == ADP_OK && plan->tp > 1 && !plan->sequence_parallel)
		rc = adp_fail(err, ADP_EINVAL,
		              "Megatron trains experts with tensor parallelism only together with sequence "
		              "parallelism; plan with sequence parallelism on");
	return rc;
}

static int check_memory_levers(const struct adp_plan *plan, struct adp_error *err)
{
	bool sgd = plan->train.optimizer == ADP_OPTIMIZER_SGD ||
	           plan->train.optimizer == ADP_OPTIMIZER_SGD_MOMENTUM;

	for (uint32_t s = 1; s < plan->pp; s++)
		if (plan->stages[s].recompute != plan->stages[0].recompute)
			return adp_fail(
				err, ADP_EINVAL,
				"stages[%u].recompute: Megatron has one choice for all stages, but this plan "
				"has %s there and %s on stage 0",
				s, adp_recompute_name(plan->stages[s].recompute),
				adp_recompute_name(plan->stages[0].recompute));
	if (plan->zero_stage > 3)
		return adp_fail(err, ADP_EINVAL, "parallelism.zeroStage: %u, expected 0 to 3",
		                plan->zero_stage);
	if (emit_megatron_fsdp(plan) && plan->pp > 1)
		return adp_fail(
			err, ADP_EINVAL,
			"parallelism: Megatron-FSDP (ZeRO stage %u) is not run with a pipeline; plan with "
			"ZeRO stage 0 or 1, or with --pp 1",
			plan->zero_stage);
	if (sgd && plan->zero_stage > 0)
		return adp_fail(
			err, ADP_EINVAL,
			"training.optimizer: Megatron's distributed optimizer (ZeRO stage %u) runs Adam only",
			plan->zero_stage);
	return check_divides((uint64_t)plan->dp * plan->cp, "data- times context-parallel ranks",
	                     plan->shard_gpus, "the ZeRO group of", err);
}

/* ---- flags ------------------------------------------------------------------------------ */

static int add_parallel(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err)
{
	emit_arg_count(args, "--tensor-model-parallel-size", plan->tp);
	emit_arg_count(args, "--pipeline-model-parallel-size", plan->pp);
	emit_arg_count(args, "--context-parallel-size", plan->cp);
	if (plan->tp > 1 && plan->sequence_parallel)
		emit_arg_flag(args, "--sequence-parallel");
	if (plan->model.n_experts) {
		emit_arg_count(args, "--expert-model-parallel-size", plan->ep);
		emit_arg_count(args, "--expert-tensor-parallel-size", plan->etp);
	}
	if (plan->pp > 1) {
		char *layout;
		int rc = adp_emit_megatron_layout(&layout, plan, err);

		if (rc)
			return rc;
		emit_arg_text(args, "--pipeline-model-parallel-layout", layout);
		adp_free(layout);
	}
	return ADP_OK;
}

static void add_batch(struct emit_args *args, const struct adp_plan *plan)
{
	const struct adp_train *train = &plan->train;
	double steps = ceil(train->tokens /
	                    ((double)train->global_batch_seqs * (double)train->seq_tokens));

	emit_arg_count(args, "--seq-length", train->seq_tokens);
	emit_arg_count(args, "--micro-batch-size", plan->micro_batch_seqs);
	emit_arg_count(args, "--global-batch-size", train->global_batch_seqs);
	if (steps >= 1 && steps < 1e15)
		emit_arg_count(args, "--train-iters", (uint64_t)steps);
}

static int add_precision(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err)
{
	switch (plan->train.precision) {
	case ADP_PRECISION_FP32:
	case ADP_PRECISION_TF32: /* the launch script's environment tells these two apart */
		return ADP_OK;
	case ADP_PRECISION_FP16:
		emit_arg_flag(args, "--fp16");
		return ADP_OK;
	case ADP_PRECISION_FP8:
		emit_arg_text(args, "--fp8-format", "hybrid");
		emit_arg_text(args, "--fp8-recipe", "delayed");
		emit_arg_flag(args, "--bf16");
		return ADP_OK;
	case ADP_PRECISION_BF16:
		emit_arg_flag(args, "--bf16");
		return ADP_OK;
	case ADP_N_PRECISIONS:
		break;
	}
	return adp_fail(err, ADP_EINVAL, "training.precision: %d is not a precision",
	                (int)plan->train.precision);
}

static void add_memory(struct emit_args *args, const struct adp_plan *plan)
{
	uint64_t instances = (uint64_t)plan->dp * plan->cp / plan->shard_gpus;

	if (plan->stages[0].recompute == ADP_RECOMPUTE_SELECTIVE) {
		emit_arg_text(args, "--recompute-granularity", "selective");
		emit_arg_text(args, "--recompute-modules", "core_attn");
	} else if (plan->stages[0].recompute == ADP_RECOMPUTE_FULL) {
		emit_arg_text(args, "--recompute-granularity", "full");
		emit_arg_text(args, "--recompute-method", "uniform");
		emit_arg_text(args, "--recompute-num-layers", "1");
	}
	/* "auto" takes a fused kernel (flash or cuDNN) where there is one. */
	emit_arg_text(args, "--attention-backend", plan->flash ? "auto" : "unfused");
	emit_arg_flag(args, "--overlap-grad-reduce");
	if (plan->zero_stage > 0) {
		emit_arg_flag(args, "--use-distributed-optimizer");
		emit_arg_flag(args, "--overlap-param-gather");
		if (instances > 1)
			emit_arg_count(args, "--num-distributed-optimizer-instances", instances);
	}
	if (emit_megatron_fsdp(plan)) {
		emit_arg_flag(args, "--use-megatron-fsdp");
		emit_arg_text(args, "--data-parallel-sharding-strategy",
		              plan->zero_stage == 2 ? "optim_grads" : "optim_grads_params");
		emit_arg_flag(args, "--no-gradient-accumulation-fusion");
	}
	if (plan->zero_stage == 3)
		emit_arg_flag(args,
		              "--init-model-with-meta-device"); /* no GPU ever holds the whole model */
}

static void add_optimizer(struct emit_args *args, const struct adp_plan *plan)
{
	switch (plan->train.optimizer) {
	case ADP_OPTIMIZER_ADAMW:
		emit_arg_text(args, "--optimizer", "adam"); /* Megatron's decouples the weight decay */
		break;
	case ADP_OPTIMIZER_ADAM:
		emit_arg_text(args, "--optimizer", "adam"); /* equals AdamW when no weight decays */
		emit_arg_text(args, "--weight-decay", "0.0");
		break;
	case ADP_OPTIMIZER_SGD_MOMENTUM:
		emit_arg_text(args, "--optimizer", "sgd");
		break;
	case ADP_OPTIMIZER_SGD:
		emit_arg_text(args, "--optimizer", "sgd");
		emit_arg_text(args, "--sgd-momentum", "0.0");
		break;
	}
}

/* Whether another layout can resume is decided by the flags of the first launch. */
static void add_checkpoint(struct emit_args *args, const struct adp_plan *plan)
{
	double interval = plan->step.step_s > 0
	                      ? floor(plan->time.checkpoint_interval_s / plan->step.step_s)
	                      : 0;

	if (emit_megatron_fsdp(plan)) {
		emit_arg_text(args, "--ckpt-format", "fsdp_dtensor");
	} else {
		emit_arg_text(args, "--ckpt-format", "torch_dist");
		emit_arg_flag(args, "--dist-ckpt-optim-fully-reshardable");
	}
	if (interval >= 1 && interval < 1e15)
		emit_arg_count(args, "--save-interval", (uint64_t)interval);
}

int emit_megatron_run(struct emit_args *args, const struct adp_plan *plan,
                      const struct adp_engine *engine, struct adp_error *err)
{
	int rc = check_batch(plan, err);

	if (rc == ADP_OK)
		rc = check_degrees(plan, engine, err);
	if (rc == ADP_OK)
		rc = check_memory_levers(plan, err);
	if (rc == ADP_OK)
		rc = add_parallel(args, plan, err);
	if (rc)
		return rc;
	add_batch(args, plan);
	rc = add_precision(args, plan, err);
	add_memory(args, plan);
	add_optimizer(args, plan);
	add_checkpoint(args, plan);
	return rc;
}
