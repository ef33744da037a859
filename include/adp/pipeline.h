/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_PIPELINE_H
#define ADP_PIPELINE_H

#include <stdint.h>

#include "adp/error.h"

/*
 * One pipeline rank. For an interleaved schedule the rank has n_chunks model chunks and the times of
 * chunk c of rank s stand at index c * n_ranks + s (the order in which a micro-batch visits them); plain
 * 1F1B has n_chunks = 1.
 */
struct adp_pipe_stage {
	double fwd_s, bwd_s;           /* per micro-batch */
	double send_fwd_s, send_bwd_s; /* after fwd: to the next stage; after bwd: to the previous one */
};

/*
 * Exact end times of one step of 1F1B (Narayanan et al. 2021, PipeDream-Flush) or, with
 * n_chunks > 1, Megatron's interleaved schedule (same paper, section 2.2; n_micro % n_ranks == 0).
 *
 * Semantics, the same in the event simulation of the tests: a rank runs one operation at a time, in
 * its schedule's fixed order; an operation starts when the rank is free and its input has arrived; an
 * input arrives send_*_s after the producer ended; transfers of one rank do not block its compute.
 *
 * end_s[n_ranks]: when the last backward of each rank ends. work: n_chunks * n_ranks * n_micro * 2
 * doubles are not needed: caller gives scratch of adp_pipeline_scratch() doubles.
 * Returns ADP_EINVAL for a schedule that does not exist (n_micro == 0; interleaved with
 * n_micro % n_ranks != 0). n_micro < n_ranks is legal here (engines refuse it themselves).
 */
uint64_t adp_pipeline_scratch(uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro);
int adp_pipeline_end(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                     uint32_t n_chunks, uint32_t n_micro, double *scratch, struct adp_error *err);

/* Never above max(end_s) of adp_pipeline_end; O(n_ranks * n_chunks). */
double adp_pipeline_bound(const struct adp_pipe_stage *stages, uint32_t n_ranks, uint32_t n_chunks,
                          uint32_t n_micro);

/*
 * Most micro-batches (in units of whole-rank activations) alive at once on rank: min(n_micro, n_ranks - rank)
 * for 1F1B; for interleaved the schedule's warm-up count plus one, divided by n_chunks.
 */
double adp_pipeline_in_flight(uint32_t rank, uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro);

#endif
