/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_PIPELINE_SIM_H
#define ADP_TESTS_PIPELINE_SIM_H

#include <stdint.h>

#include "adp/pipeline.h"

/*
 * Plays one training step event by event: every rank walks through its own list of operations,
 * messages arrive from a priority queue ordered by time. Shares nothing with the library but the
 * stage structure.
 */
struct pipe_sim {
	/* in */
	const struct adp_pipe_stage *stages; /* [n_chunks][n_ranks] */
	uint32_t n_ranks, n_chunks, n_replicas;
	const uint32_t *n_micro;  /* [n_replicas] */
	const double *chunk_size; /* [n_chunks], or NULL: 1 each; for alive_peak */
	const double
		*reduce_s; /* [n_ranks]: gradient reduction of a stage over the replicas, or NULL */
	/* out, caller's memory */
	double *end_s;      /* [n_replicas][n_ranks]: end of the last backward */
	double *alive_peak; /* [n_replicas][n_ranks]: sum of chunk_size of alive micro-batches; may be
	                       NULL */
	double *reduced_s;  /* [n_ranks]: when every replica holds the reduced gradient; may be NULL */
	uint64_t n_operations;
};

/* Returns 0, or -1 if the schedule deadlocks, -2 without memory. */
int pipe_sim_run(struct pipe_sim *sim);

#endif
