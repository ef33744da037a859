/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lower bound of a pipeline step: the heaviest of a family of paths through the schedule's graph,
 * in the same ticks as the exact time, so that it never exceeds it. Each path and why it exists:
 * docs/internals/pipeline.md. Names below: a path enters at the end of some rank's first backward,
 * circles there, and leaves from the start of that rank's last forward. Read backwards in time, the
 * way out is a way in with forward and backward exchanged.
 */
#include "adp/pipeline.h"

#include <stddef.h>

#include "cost/pipeline_fixed.h"

struct ticks {
	int64_t fwd, bwd, send_fwd, send_bwd;
};

/* Nothing is sent beyond the first and the last of the n stages. */
static struct ticks stage_ticks(const struct pipe_scale *scale, const struct adp_pipe_stage *stages,
                                uint64_t i, uint64_t n)
{
	const struct adp_pipe_stage *stage = &stages[i];

	return (struct ticks){
		.fwd = pipe_ticks(scale, stage->fwd_s),
		.bwd = pipe_ticks(scale, stage->bwd_s),
		.send_fwd = i + 1 < n ? pipe_ticks(scale, stage->send_fwd_s) : 0,
		.send_bwd = i > 0 ? pipe_ticks(scale, stage->send_bwd_s) : 0,
	};
}

static int64_t bound_1f1b(const struct pipe_scale *scale, const struct adp_pipe_stage *stages,
                          uint32_t n_ranks, uint32_t n_micro)
{
	int64_t n = n_micro, bound = 0;
	int64_t way_up = 0, way_down = 0;         /* between rank 0 and this rank, one micro-batch */
	int64_t slowest_fwd = 0, slowest_bwd = 0; /* of ranks 0 .. this */
	int64_t circle = INT64_MIN;               /* best circling below or here, less both ways */
	int64_t entered = INT64_MIN, left = INT64_MIN; /* the same with one end added */
	struct pipe_round round = {.n_ranks = 1};
	struct ticks below = {0};

	if (n_micro > n_ranks)
		pipe_slowest_round(&round, scale, stages, n_ranks);
	for (uint32_t s = 0; s < n_ranks; s++) {
		struct ticks t = stage_ticks(scale, stages, s, n_ranks);
		int64_t work = t.fwd + t.bwd, turn, enter, leave, steps;

		if (s > 0) {
			way_up += below.fwd + below.send_fwd;
			way_down += below.bwd + t.send_bwd;
		}
		slowest_fwd = pipe_max(slowest_fwd, t.fwd);
		slowest_bwd = pipe_max(slowest_bwd, t.bwd);
		/* To the end of the first backward and on to rank 0, which the circle takes off again. */
		turn = pipe_min((int64_t)pipe_warm_up(s, n_ranks, 1), n - 1);
		enter = way_up + turn * slowest_fwd + work + way_down;
		leave = way_up + turn * slowest_bwd + work + way_down;
		steps = n - 1 - n_ranks + s;
		if (steps >= 0) { /* and so for every rank above */
			int64_t most = steps * work;

			if (round.n_ranks > 1 && s == round.first_rank)
				most = pipe_max(most,
				                steps / round.n_ranks * round.ticks + steps % round.n_ranks * work);
			circle = pipe_max(circle, most - way_up - way_down);
			entered = pipe_max(entered, circle + enter);
			left = pipe_max(left, circle + leave);
			bound = pipe_max(bound, pipe_max(entered + leave, left + enter));
		}
		/* Few micro-batches: all in, or all out, behind the slowest rank of the way. */
		bound = pipe_max(bound, enter + (n - 1) * slowest_bwd);
		bound = pipe_max(bound, leave + (n - 1) * slowest_fwd);
		bound = pipe_max(bound, way_up + n * work + way_down);
		below = t;
	}
	return bound;
}

/* Sums over the chunks of one rank. */
struct rank_work {
	struct ticks first, last, sum;
};

static struct rank_work rank_work(const struct pipe_scale *scale,
                                  const struct adp_pipe_stage *stages, uint32_t s, uint32_t n_ranks,
                                  uint64_t n_chunks)
{
	struct rank_work work = {.sum = {0}};

	for (uint64_t c = 0; c < n_chunks; c++) {
		work.last = stage_ticks(scale, stages, c * n_ranks + s, n_chunks * n_ranks);
		if (c == 0)
			work.first = work.last;
		work.sum.fwd += work.last.fwd;
		work.sum.bwd += work.last.bwd;
		work.sum.send_fwd += work.last.send_fwd;
		work.sum.send_bwd += work.last.send_bwd;
	}
	return work;
}

/* The first warm_up + 1 forwards of a rank (or, read backwards, its last backwards). */
static int64_t head(int64_t first, int64_t last, int64_t sum, int64_t beyond, int64_t n_ranks)
{
	/* A group of every chunk but the last, then what is left of that one, then of the next group.
	 */
	return n_ranks * (sum - last) + pipe_min(beyond, n_ranks) * last +
	       pipe_max(beyond - n_ranks, 0) * first;
}

static int64_t bound_interleaved(const struct pipe_scale *scale,
                                 const struct adp_pipe_stage *stages, uint32_t n_ranks,
                                 uint32_t n_chunks, uint32_t n_micro)
{
	int64_t n = n_micro, p = n_ranks, bound = 0;
	int64_t enter = 0, leave = 0;         /* to the end of the first backward; its mirror image */
	int64_t first_up = 0, first_down = 0; /* rank 0 to here within the first chunk */
	int64_t last_up = 0, last_down = 0;   /* and within the last */
	int64_t all_fwd = 0, all_bwd = 0;     /* one micro-batch through all chunks */
	struct rank_work below = {.sum = {0}}, above; /* the neighbour seen before */

	for (uint32_t s = 0; s < n_ranks; s++) {
		struct rank_work work = rank_work(scale, stages, s, n_ranks, n_chunks);

		all_fwd += work.sum.fwd + work.sum.send_fwd;
		all_bwd += work.sum.bwd + work.sum.send_bwd;
		if (s > 0) {
			first_up += below.first.fwd + below.first.send_fwd;
			first_down += below.first.bwd + work.first.send_bwd;
			last_up += below.last.fwd + below.last.send_fwd;
			last_down += below.last.bwd + work.last.send_bwd;
		}
		/* The last chunk's first forward waits for a whole group of each earlier chunk. */
		enter = pipe_max(enter, first_up + p * (work.sum.fwd - work.last.fwd) - last_up);
		leave = pipe_max(leave, first_down + p * (work.sum.bwd - work.last.bwd) - last_down);
		below = work;
	}
	enter = pipe_max(enter + last_up + below.last.fwd, all_fwd) + below.last.bwd;
	leave = pipe_max(leave + last_down + below.last.bwd, all_bwd) + below.last.fwd;
	above = below;
	for (uint32_t s = n_ranks; s-- > 0;) {
		struct rank_work work = s + 1 == n_ranks ? above
		                                         : rank_work(scale, stages, s, n_ranks, n_chunks);
		int64_t fwd = n * work.sum.fwd, bwd = n * work.sum.bwd;
		int64_t beyond = pipe_min(2 * (p - 1 - s) + 1, n > p ? 2 * p : p);
		int64_t head_fwd = head(work.first.fwd, work.last.fwd, work.sum.fwd, beyond, p);
		int64_t head_bwd = head(work.first.bwd, work.last.bwd, work.sum.bwd, beyond, p);

		if (s + 1 < n_ranks) {
			first_up -= work.first.fwd + work.first.send_fwd;
			first_down -= work.first.bwd + above.first.send_bwd;
			enter += above.last.send_bwd + work.last.bwd;
			leave += work.last.send_fwd + work.last.fwd;
			above = work;
		}
		enter = pipe_max(enter, first_up + head_fwd + work.last.bwd);
		leave = pipe_max(leave, first_down + head_bwd + work.last.fwd);
		bound = pipe_max(bound, first_up + fwd + bwd + first_down);
		bound = pipe_max(bound, enter + (fwd - head_fwd) + (bwd - work.last.bwd) + first_down);
		bound = pipe_max(bound, first_up + (fwd - work.last.fwd) + (bwd - head_bwd) + leave);
		if (n > p || beyond < p) {
			/* From the first backward to the last forward. */
			int64_t between = (fwd - head_fwd - work.last.fwd) + (bwd - head_bwd - work.last.bwd);

			bound = pipe_max(bound, enter + between + leave);
		}
	}
	return bound;
}

double adp_pipeline_bound(const struct adp_pipe_stage *stages, uint32_t n_ranks, uint32_t n_chunks,
                          uint32_t n_micro)
{
	struct pipe_scale scale = {0};
	int64_t ticks;

	if (pipe_scale_init(&scale, stages, n_ranks, n_chunks, n_micro, NULL) != ADP_OK)
		return 0;
	ticks = n_chunks > 1 ? bound_interleaved(&scale, stages, n_ranks, n_chunks, n_micro)
	                     : bound_1f1b(&scale, stages, n_ranks, n_micro);
	return (double)ticks * scale.s_per_tick;
}
