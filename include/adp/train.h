/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TRAIN_H
#define ADP_TRAIN_H

#include "adp/engine.h"

/* What is trained, beside the model. Zero means "not given" where it can be. */
struct adp_train {
	uint64_t global_batch_seqs;
	uint64_t seq_tokens;
	double tokens; /* horizon: --tokens, or dataset tokens * epochs */
	enum adp_precision precision;
	enum adp_optimizer optimizer;
	double deadline_s;            /* 0 = none: fastest; else the fewest GPUs that meet it */
	double mtbf_s;                /* of one GPU; 0 = lost work not counted */
	double checkpoint_interval_s; /* 0 = Young/Daly optimum when mtbf is given, else 30 min */
	double checkpoint_stall_s;    /* 0 = estimated from bytes and storage_bytes_per_s */
	double restart_s;             /* detect, re-form, reload */
	double storage_bytes_per_s;   /* per node, writes of a checkpoint */
	double expert_load_factor;    /* busiest expert rank / mean; 1 = balanced */
};

/* Where the hours go; each line is printed. total_s is the sum of the four parts. */
struct adp_train_time {
	double n_steps, step_s, compute_s;
	double checkpoint_interval_s, checkpoint_stall_s, n_checkpoints, checkpoints_s;
	double n_failures, lost_work_s, restarts_s;
	double total_s; /* compute + checkpoints + lost work + restarts */
};

/*
 * state_bytes: model and optimizer state of the whole job. n_nodes write in parallel.
 *
 * n_steps = ceil(tokens / (global batch * sequence)); a checkpoint stalls the job for
 * checkpoint_stall_s after each interval of compute and at the end. With mtbf_s (of one GPU) the
 * job fails every mtbf_s / n_gpus; a failure costs half an interval of work and restart_s. Failures
 * are counted over total_s itself. An interval that is not given is the first-order optimum, the
 * root of 2 * stall * MTBF of the job (Young, CACM 17(9), 1974; refined in Daly, FGCS 22(3), 2006);
 * none is shorter than a step.
 *
 * total_s is INFINITY where a failure undoes more than the job gains between two of them, or where
 * step_s is infinite: the caller says that the job never finishes. tokens == 0: all times are 0.
 * The global batch and the sequence are at least 1.
 */
void adp_train_time(struct adp_train_time *out, const struct adp_train *train, double step_s,
                    uint64_t n_gpus, uint64_t n_nodes, double state_bytes);

#endif
