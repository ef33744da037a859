/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/train.h"

#include <math.h>

/* Where neither an interval nor a failure rate is given; the header promises it. */
#define DEFAULT_INTERVAL_S 1800.0

static double n_steps(const struct adp_train *train)
{
	double step_tokens = (double)train->global_batch_seqs * (double)train->seq_tokens;

	if (train->tokens <= 0)
		return 0;
	return ceil(train->tokens / step_tokens); /* infinite for a step without tokens */
}

static double checkpoint_stall_s(const struct adp_train *train, uint64_t n_nodes,
                                 double state_bytes)
{
	if (train->checkpoint_stall_s > 0)
		return train->checkpoint_stall_s;
	if (train->storage_bytes_per_s <= 0 || n_nodes == 0)
		return 0;
	return state_bytes / ((double)n_nodes * train->storage_bytes_per_s);
}

/* job_mtbf_s: 0 = no failures. A job cannot save more often than once a step. */
static double checkpoint_interval_s(const struct adp_train *train, double job_mtbf_s,
                                    double stall_s, double step_s)
{
	double interval_s = DEFAULT_INTERVAL_S;

	if (train->checkpoint_interval_s > 0)
		interval_s = train->checkpoint_interval_s;
	else if (job_mtbf_s > 0)
		interval_s = sqrt(2 * stall_s * job_mtbf_s);
	return fmax(interval_s, step_s);
}

/*
 * total = compute + checkpoints + failures * (half an interval + restart), where failures is
 * total / MTBF: work done twice and restarts can fail too. Linear in total, so solved at once.
 */
static void add_failures(struct adp_train_time *out, double job_mtbf_s, double restart_s)
{
	double planned_s = out->compute_s + out->checkpoints_s;
	double lost_s = out->checkpoint_interval_s / 2; /* by one failure, on average */
	double per_failure_s = lost_s + restart_s;

	if (job_mtbf_s <= 0 || planned_s <= 0) {
		out->total_s = planned_s;
		return;
	}
	if (per_failure_s >= job_mtbf_s) { /* falls back faster than it moves */
		out->n_failures = INFINITY;
		out->lost_work_s = lost_s > 0 ? INFINITY : 0;
		out->restarts_s = restart_s > 0 ? INFINITY : 0;
		out->total_s = INFINITY;
		return;
	}
	out->total_s = planned_s / (1 - per_failure_s / job_mtbf_s);
	out->n_failures = out->total_s / job_mtbf_s;
	out->lost_work_s = out->n_failures * lost_s;
	out->restarts_s = out->n_failures * restart_s;
}

void adp_train_time(struct adp_train_time *out, const struct adp_train *train, double step_s,
                    uint64_t n_gpus, uint64_t n_nodes, double state_bytes)
{
	double job_mtbf_s = train->mtbf_s > 0 && n_gpus > 0 ? train->mtbf_s / (double)n_gpus : 0;

	*out = (struct adp_train_time){.n_steps = n_steps(train), .step_s = step_s};
	out->checkpoint_stall_s = checkpoint_stall_s(train, n_nodes, state_bytes);
	out->checkpoint_interval_s = checkpoint_interval_s(train, job_mtbf_s, out->checkpoint_stall_s,
	                                                   step_s);
	if (out->n_steps == 0)
		return;
	out->compute_s = out->n_steps * step_s;
	if (isinf(out->compute_s) || isinf(out->checkpoint_stall_s)) {
		out->total_s = INFINITY;
		return;
	}
	if (out->compute_s > 0) /* the last one saves the result */
		out->n_checkpoints = ceil(out->compute_s / out->checkpoint_interval_s);
	out->checkpoints_s = out->n_checkpoints * out->checkpoint_stall_s;
	add_failures(out, job_mtbf_s, train->restart_s);
}
