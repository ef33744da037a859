/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_COST_PIPELINE_FIXED_H
#define ADP_COST_PIPELINE_FIXED_H

#include <stdint.h>

#include "adp/pipeline.h"

/*
 * Times as whole ticks. A tick is a power of two, at least 2^-62 of the sum of all work, so every
 * path through the schedule fits in 63 bits and all sums are exact. Durations round up: a larger
 * time gives a coarser or equal tick and thereby never a smaller result.
 */
struct pipe_scale {
	double ticks_per_s, s_per_tick;
};

/* Also checks the schedule and every time. */
int pipe_scale_init(struct pipe_scale *scale, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                    uint32_t n_chunks, uint32_t n_micro, struct adp_error *err);

static inline int64_t pipe_ticks(const struct pipe_scale *scale, double s)
{
	double exact = s * scale->ticks_per_s;
	int64_t ticks = (int64_t)exact;

	return (double)ticks < exact ? ticks + 1 : ticks;
}

static inline int64_t pipe_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int64_t pipe_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Forwards of the warm-up; one more precedes the first backward, where there are that many. */
static inline uint64_t pipe_warm_up(uint32_t rank, uint32_t n_ranks, uint32_t n_chunks)
{
	uint64_t below = n_ranks - 1 - rank;

	return n_chunks == 1 ? below : 2 * below + (uint64_t)(n_chunks - 1) * n_ranks;
}

/*
 * The circuit with the largest mean in the steady state of 1F1B: a round over n_ranks neighbouring
 * ranks, which carries that many micro-batches. The shorter one where two have the same mean.
 */
struct pipe_round {
	uint32_t first_rank, n_ranks;
	int64_t ticks; /* of one round */
};
void pipe_slowest_round(struct pipe_round *round, const struct pipe_scale *scale,
                        const struct adp_pipe_stage *stages, uint32_t n_ranks);

#endif
