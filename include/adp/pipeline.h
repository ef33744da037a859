/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_PIPELINE_H
#define ADP_PIPELINE_H

#include <stdint.h>

#include "adp/error.h"

/*
 * One pipeline rank. For an interleaved schedule the rank has n_chunks model chunks and the times
 * of chunk c of rank s stand at index c * n_ranks + s (the order in which a micro-batch visits
 * them); plain 1F1B has n_chunks = 1. All times are finite and >= 0.
 */
struct adp_pipe_stage {
	double fwd_s, bwd_s; /* per micro-batch */
	double send_fwd_s;   /* after fwd: to the next stage */
	double send_bwd_s;   /* after bwd: to the previous stage */
};

/*
 * Exact end times of one step of 1F1B (Narayanan et al. 2021, PipeDream-Flush) or, with
 * n_chunks > 1, Megatron's interleaved schedule (same paper, section 2.2; n_micro % n_ranks == 0).
 *
 * Semantics, the same in the event simulation of the tests: a rank runs one operation at a time, in
 * its schedule's fixed order; an operation starts when the rank is free and its input has arrived;
 * an input arrives send_*_s after the producer ended; transfers of one rank do not block its
 * compute.
 *
 * end_s[n_ranks]: when the last backward of each rank ends; the step's pipeline part is end_s[0]
 * (the gradient goes back to rank 0 last), which is also the largest. scratch:
 * adp_pipeline_scratch() words of 8 bytes, any content; heap memory or an int64_t array.
 *
 * Never falls when a time or n_micro grows, not even by a rounding error. Times are counted in
 * steps of 2^-62 of the sum of all work, rounded up: within 1e-12 of real arithmetic in practice
 * and never below.
 *
 * Replicas with unequal micro-batch counts are independent until the gradient reduction: call once
 * per replica and take the maximum per rank.
 *
 * Returns ADP_EINVAL for a schedule that does not exist (n_ranks, n_chunks or n_micro == 0;
 * interleaved with n_micro % n_ranks != 0), for a time that is negative, NaN or infinite, and for a
 * sum of all times beyond 1e250 s. n_micro < n_ranks is legal here for 1F1B (engines refuse it
 * themselves).
 */
uint64_t adp_pipeline_scratch(uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro);
int adp_pipeline_end(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                     uint32_t n_chunks, uint32_t n_micro, void *scratch, struct adp_error *err);

/* The same result, bit for bit, without the jump over the periodic part: what the tests compare. */
int adp_pipeline_end_stepwise(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                              uint32_t n_chunks, uint32_t n_micro, void *scratch,
                              struct adp_error *err);

/*
 * Never above end_s[0] of adp_pipeline_end, to the last bit; O(n_ranks * n_chunks). 0 where that
 * one returns ADP_EINVAL. Proof: docs/internals/pipeline.md.
 */
double adp_pipeline_bound(const struct adp_pipe_stage *stages, uint32_t n_ranks, uint32_t n_chunks,
                          uint32_t n_micro);

/*
 * Most micro-batches (in units of whole-rank activations) alive at once on rank: min(n_micro,
 * n_ranks - rank) for 1F1B; for interleaved the schedule's warm-up count plus one, divided by
 * n_chunks (chunks of one size). A micro-batch is alive from the start of its forward to the end of
 * its backward.
 */
double adp_pipeline_in_flight(uint32_t rank, uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro);

/*
 * The same peak where chunks differ: the largest sum, over the alive micro-batches of all chunks,
 * of chunk_size[chunk] (bytes, say). O(n_ranks * n_chunks). 0 for a schedule that does not exist.
 */
double adp_pipeline_alive_peak(const double *chunk_size, uint32_t rank, uint32_t n_ranks,
                               uint32_t n_chunks, uint32_t n_micro);

#endif
