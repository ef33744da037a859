/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End times of a pipeline step, by waves: operations are grouped so that each group needs results
 * of the group before it only. docs/internals/pipeline.md derives the groups and the jump.
 */
#include "adp/pipeline.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "cost/pipeline_fixed.h"

/* No producer: stands for minus infinity, far enough from overflow. */
#define NO_INPUT (INT64_MIN / 2)

int pipe_scale_init(struct pipe_scale *scale, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                    uint32_t n_chunks, uint32_t n_micro, struct adp_error *err)
{
	uint64_t n_stages = (uint64_t)n_ranks * n_chunks;
	double sum_s = 0;
	int exponent;

	if (n_ranks == 0 || n_chunks == 0 || n_micro == 0)
		return adp_fail(err, ADP_EINVAL,
		                "pipeline: %u ranks, %u chunks, %u micro-batches: each must be at least 1",
		                n_ranks, n_chunks, n_micro);
	if (n_chunks > 1 && n_micro % n_ranks != 0)
		return adp_fail(err, ADP_EINVAL,
		                "pipeline: the interleaved schedule runs micro-batches in groups of the "
		                "pipeline size, but %u is no multiple of %u; use a multiple or one chunk "
		                "per rank",
		                n_micro, n_ranks);
	for (uint64_t i = 0; i < n_stages; i++) {
		const struct adp_pipe_stage *stage = &stages[i];

		/* False for NaN too. */
		if (!(stage->fwd_s >= 0 && stage->bwd_s >= 0 && stage->send_fwd_s >= 0 &&
		      stage->send_bwd_s >= 0 && stage->send_fwd_s + stage->send_bwd_s <= DBL_MAX))
			return adp_fail(err, ADP_EINVAL,
			                "pipeline: a time of rank %u, chunk %u is negative, infinite or not a "
			                "number",
			                (unsigned)(i % n_ranks), (unsigned)(i / n_ranks));
		sum_s += stage->fwd_s + stage->bwd_s;
		if (i > 0) /* neither the first nor the last stage sends beyond the pipeline */
			sum_s += stages[i - 1].send_fwd_s + stage->send_bwd_s;
	}
	sum_s *= n_micro;
	if (!(sum_s <= 1e250))
		return adp_fail(err, ADP_EINVAL,
		                "pipeline: the times of a step add up to %g s; give finite times", sum_s);
	/* Below 1e-250 s the tick stays put; sum_s < 2^exponent and 2^exponent is 2^62 ticks. */
	frexp(fmax(sum_s, 1e-250), &exponent);
	scale->ticks_per_s = ldexp(1.0, 62 - exponent);
	scale->s_per_tick = ldexp(1.0, exponent - 62);
	return ADP_OK;
}

void pipe_slowest_round(struct pipe_round *round, const struct pipe_scale *scale,
                        const struct adp_pipe_stage *stages, uint32_t n_ranks)
{
	/* Dinkelbach: guess the mean, find the ranks furthest above it, guess again. */
	*round = (struct pipe_round){.first_rank = 0, .n_ranks = 1, .ticks = -1};
	for (uint32_t s = 0; s < n_ranks; s++) {
		int64_t work = pipe_ticks(scale, stages[s].fwd_s) + pipe_ticks(scale, stages[s].bwd_s);

		if (work > round->ticks)
			*round = (struct pipe_round){.first_rank = s, .n_ranks = 1, .ticks = work};
	}
	for (;;) {
		struct pipe_round best = *round;
		/* Of the ranks up to here: their ticks; what is beyond the guess, times its n_ranks.
		 */
		int64_t ticks = 0, above = 0, best_above = 0;
		uint32_t first = 0;

		for (uint32_t s = 0; s < n_ranks; s++) {
			int64_t work = pipe_ticks(scale, stages[s].fwd_s) + pipe_ticks(scale, stages[s].bwd_s);
			int64_t link = 0;

			if (s > 0)
				link = pipe_ticks(scale, stages[s - 1].send_fwd_s) +
				       pipe_ticks(scale, stages[s].send_bwd_s);
			if (s == 0 || above + link * round->n_ranks <= 0) {
				above = 0;
				ticks = 0;
				first = s;
			} else {
				above += link * round->n_ranks;
				ticks += link;
			}
			above += work * round->n_ranks - round->ticks;
			ticks += work;
			if (above > best_above) {
				best_above = above;
				best = (struct pipe_round){first, s - first + 1, ticks};
			}
		}
		if (best_above == 0)
			return;
		*round = best;
	}
}

/* Whether all of now[] lie the same number of ticks behind before[]; that number. */
static bool moved_as_one(int64_t *by, const int64_t *now, const int64_t *before, uint32_t n)
{
	*by = now[0] - before[0];
	for (uint32_t i = 1; i < n; i++) {
		if (now[i] - before[i] != *by)
			return false;
	}
	return true;
}

static void shift(int64_t *ticks, uint32_t n, int64_t by)
{
	for (uint32_t i = 0; i < n; i++)
		ticks[i] += by;
}

/* ---- 1F1B ------------------------------------------------------------------------- */

/* Ranks s and s + 1 at work at once: s backward, s + 1 forward. */
struct pair {
	int64_t bwd, bwd_from_above; /* of s: duration; the same plus the transfer from s + 1 */
	int64_t fwd, fwd_from_below; /* of s + 1: duration; the same plus the transfer from s */
};

/*
 * free_at[s]: end of the last operation of rank s. In half-wave u rank s runs forward (u - s) / 2
 * where u - s is even, else backward (u + s + 1) / 2 - n_ranks; numbers outside 0..n_micro-1 do
 * nothing.
 */
struct flow {
	uint32_t n_ranks, n_micro;
	int64_t first_fwd, last_bwd; /* durations that no pair holds: of rank 0, of the last rank */
	struct pair *pairs;          /* n_ranks - 1 */
	int64_t *free_at, *before;   /* n_ranks each */
};

static inline void run_pair(int64_t *free_at, const struct pair *pair)
{
	int64_t low = free_at[0], high = free_at[1];

	free_at[0] = pipe_max(low + pair->bwd, high + pair->bwd_from_above);
	free_at[1] = pipe_max(high + pair->fwd, low + pair->fwd_from_below);
}

/* Any half-wave. Pairs do not touch each other, so their order is free. */
static void half_wave_at_edge(struct flow *flow, int64_t u)
{
	int64_t last = (int64_t)flow->n_ranks - 1, n = flow->n_micro;
	int64_t fwd_low = u - 2 * n + 2, fwd_high = u; /* ranks with a forward in range */
	int64_t bwd_low = 2 * last + 1 - u, bwd_high = 2 * (n + last) - 1 - u; /* with a backward */
	/* Lower ranks of the pairs at work. */
	int64_t low = pipe_max(pipe_min(fwd_low - 1, bwd_low), 0);
	int64_t high = bwd_low > last ? fwd_high - 1 : pipe_max(fwd_high - 1, bwd_high);

	if (u % 2 == 0 && fwd_low <= 0)
		flow->free_at[0] += flow->first_fwd;
	if ((u - low) % 2 == 0) /* the lower rank of a pair runs backwards */
		low++;
	high = pipe_min(high, last - 1);
	for (int64_t s = low; s <= high; s += 2) {
		int64_t *free_at = &flow->free_at[s];
		const struct pair *pair = &flow->pairs[s];
		bool fwd = s + 1 >= fwd_low && s + 1 <= fwd_high;

		if (s < bwd_low || s > bwd_high) {
			if (fwd)
				free_at[1] = pipe_max(free_at[1] + pair->fwd, free_at[0] + pair->fwd_from_below);
		} else if (fwd) {
			run_pair(free_at, pair);
		} else {
			free_at[0] = pipe_max(free_at[0] + pair->bwd, free_at[1] + pair->bwd_from_above);
		}
	}
	if ((u - last) % 2 != 0 && bwd_low <= last && last <= bwd_high)
		flow->free_at[last] += flow->last_bwd;
}

/* One forward and one backward of every rank. */
static void full_waves(struct flow *flow, uint64_t count)
{
	int64_t *free_at = flow->free_at;
	const struct pair *pairs = flow->pairs;
	uint32_t last = flow->n_ranks - 1;

	for (uint64_t i = 0; i < count; i++) {
		free_at[0] += flow->first_fwd;
		for (uint32_t s = 1; s < last; s += 2)
			run_pair(&free_at[s], &pairs[s]);
		if (last % 2 == 1)
			free_at[last] += flow->last_bwd;
		for (uint32_t s = 0; s < last; s += 2)
			run_pair(&free_at[s], &pairs[s]);
		if (last % 2 == 0)
			free_at[last] += flow->last_bwd;
	}
}

/*
 * A wave is a max-plus linear map, the same each time. Once all ranks have moved by one amount over
 * some number of waves, they do so for ever, and the rest is a multiplication.
 */
static void steady_waves(struct flow *flow, uint64_t count, uint32_t period)
{
	enum { PAUSE = 4 }; /* waves between two looks, so that looking stays cheap */
	size_t size = flow->n_ranks * sizeof *flow->free_at;
	int64_t by;

	while (count > period + PAUSE) {
		memcpy(flow->before, flow->free_at, size);
		full_waves(flow, period);
		count -= period;
		if (moved_as_one(&by, flow->free_at, flow->before, flow->n_ranks)) {
			shift(flow->free_at, flow->n_ranks, by * (int64_t)(count / period));
			count %= period;
		} else {
			full_waves(flow, PAUSE);
			count -= PAUSE;
		}
	}
	full_waves(flow, count);
}

static void run_1f1b(int64_t *work, const struct pipe_scale *scale,
                     const struct adp_pipe_stage *stages, uint32_t n_ranks, uint32_t n_micro,
                     bool jump)
{
	uint32_t last = n_ranks - 1;
	struct flow flow = {
		.n_ranks = n_ranks,
		.n_micro = n_micro,
		.first_fwd = pipe_ticks(scale, stages[0].fwd_s),
		.last_bwd = pipe_ticks(scale, stages[last].bwd_s),
		.free_at = work,
		.before = work + n_ranks,
		.pairs = (struct pair *)(void *)(work + 2 * (uint64_t)n_ranks),
	};
	int64_t u = 0, n_half = 2 * ((int64_t)n_micro + last);
	int64_t steady = 2 * (int64_t)last; /* first half-wave in which no rank is idle by schedule */

	memset(flow.free_at, 0, n_ranks * sizeof *flow.free_at);
	for (uint32_t s = 0; s < last; s++) {
		int64_t bwd = pipe_ticks(scale, stages[s].bwd_s);
		int64_t fwd = pipe_ticks(scale, stages[s + 1].fwd_s);

		flow.pairs[s] = (struct pair){
			.bwd = bwd,
			.bwd_from_above = bwd + pipe_ticks(scale, stages[s + 1].send_bwd_s),
			.fwd = fwd,
			.fwd_from_below = fwd + pipe_ticks(scale, stages[s].send_fwd_s),
		};
	}
	if (n_micro > last) {
		uint64_t count = n_micro - last;

		while (u < steady)
			half_wave_at_edge(&flow, u++);
		if (jump) {
			struct pipe_round round = {.n_ranks = 1};

			if (count > 2 * (uint64_t)n_ranks)
				pipe_slowest_round(&round, scale, stages, n_ranks);
			steady_waves(&flow, count, round.n_ranks);
		} else {
			full_waves(&flow, count);
		}
		u += 2 * (int64_t)count;
	}
	while (u < n_half)
		half_wave_at_edge(&flow, u++);
}

/* ---- interleaved ------------------------------------------------------------------- */

/* What a rank does next: durations alone and with the transfer from the rank that feeds it. */
struct chunk {
	int64_t fwd, fwd_from_below, bwd, bwd_from_above;
};

/* Which rank takes up which chunk in the coming wave. */
struct turn {
	uint32_t fwd_rank, fwd_chunk, bwd_rank, bwd_chunk; /* next to start */
	uint32_t groups_to_first_bwd; /* chunk starts that lie before any backward */
};

/*
 * In wave v rank s runs forward v - s, then backward v + s - lead, each numbered along the rank's
 * own order of (micro-batch, chunk); inputs come from the ring neighbours' results of wave v - 1.
 */
struct ring {
	uint32_t n_ranks, n_chunks;
	struct turn turn;
	int64_t n_ops, lead;
	struct chunk *chunks;      /* [n_chunks][n_ranks] */
	struct chunk *now;         /* [n_ranks]: the forward and the backward chunk at work, merged */
	int64_t *fwd_at, *free_at; /* [n_ranks]: end of the last forward, of the last operation */
	int64_t *before;           /* [2 * n_ranks] */
};

/*
 * In each wave one rank starts a new forward chunk and one a new backward chunk: the former goes up
 * by a rank per wave, the latter down.
 */
static void ring_turn(struct ring *ring)
{
	struct turn *turn = &ring->turn;
	struct chunk *to = &ring->now[turn->fwd_rank];
	const struct chunk *from =
		&ring->chunks[(uint64_t)turn->fwd_chunk * ring->n_ranks + turn->fwd_rank];

	to->fwd = from->fwd;
	to->fwd_from_below = from->fwd_from_below;
	if (++turn->fwd_rank == ring->n_ranks) {
		turn->fwd_rank = 0;
		turn->fwd_chunk = turn->fwd_chunk + 1 == ring->n_chunks ? 0 : turn->fwd_chunk + 1;
	}
	if (turn->groups_to_first_bwd == 0) {
		from = &ring->chunks[(uint64_t)turn->bwd_chunk * ring->n_ranks + turn->bwd_rank];
		to = &ring->now[turn->bwd_rank];
		to->bwd = from->bwd;
		to->bwd_from_above = from->bwd_from_above;
	}
	if (turn->bwd_rank-- == 0) {
		turn->bwd_rank = ring->n_ranks - 1;
		if (turn->groups_to_first_bwd > 0)
			turn->groups_to_first_bwd--;
		else
			turn->bwd_chunk = turn->bwd_chunk == 0 ? ring->n_chunks - 1 : turn->bwd_chunk - 1;
	}
}

/*
 * Ranks high-1 .. low of one wave, downwards so that fwd_at[s - 1] is still last wave's; *above is
 * last wave's free_at of the rank just above and leaves as that of rank low.
 */
static inline void ring_part(struct ring *ring, int64_t low, int64_t high, bool fwd, bool bwd,
                             int64_t *above, int64_t wrapped_fwd)
{
	for (int64_t s = high - 1; s >= low; s--) {
		const struct chunk *now = &ring->now[s];
		int64_t old = ring->free_at[s], at = old;

		if (fwd) {
			int64_t below = s > 0 ? ring->fwd_at[s - 1] : wrapped_fwd;

			at = pipe_max(at + now->fwd, below + now->fwd_from_below);
			ring->fwd_at[s] = at;
		}
		if (bwd)
			at = pipe_max(at + now->bwd, *above + now->bwd_from_above);
		ring->free_at[s] = at;
		*above = old;
	}
}

static void ring_wave(struct ring *ring)
{
	int64_t n = ring->n_ranks, above = ring->free_at[0], wrapped = ring->fwd_at[n - 1];

	ring_turn(ring);
	ring_part(ring, 1, n, true, true, &above, wrapped);
	ring_part(ring, 0, 1, true, true, &above, wrapped);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
	return x < low ? low : x > high ? high : x;
}

/* A wave in which some ranks have no forward or no backward. */
static void ring_wave_at_edge(struct ring *ring, int64_t v)
{
	int64_t n = ring->n_ranks, above = ring->free_at[0], wrapped = ring->fwd_at[n - 1];
	int64_t fwd_low = clamp(v - ring->n_ops + 1, 0, n), fwd_end = clamp(v + 1, fwd_low, n);
	int64_t bwd_low = clamp(ring->lead - v, 0, n);
	int64_t bwd_end = clamp(ring->lead - v + ring->n_ops, bwd_low, n);
	int64_t high = n;

	ring_turn(ring);
	while (high > 0) {
		bool fwd = high > fwd_low && high <= fwd_end, bwd = high > bwd_low && high <= bwd_end;
		int64_t cuts[4] = {fwd_low, fwd_end, bwd_low, bwd_end}, low = 0;

		for (int i = 0; i < 4; i++) {
			if (cuts[i] < high)
				low = pipe_max(low, cuts[i]);
		}
		ring_part(ring, low, high, fwd, bwd, &above, wrapped);
		high = low;
	}
}

/* Waves v .. end-1, all ranks at work; the map repeats every n_ranks * n_chunks waves. */
static void ring_steady(struct ring *ring, int64_t v, int64_t end, bool jump)
{
	int64_t period = (int64_t)ring->n_ranks * ring->n_chunks, by;
	uint32_t n_state = 2 * ring->n_ranks; /* fwd_at and free_at are neighbours */

	while (jump && end - v >= 2 * period) {
		memcpy(ring->before, ring->fwd_at, n_state * sizeof *ring->before);
		for (int64_t i = 0; i < period; i++)
			ring_wave(ring);
		v += period;
		if (moved_as_one(&by, ring->fwd_at, ring->before, n_state)) {
			int64_t periods = (end - v) / period;

			shift(ring->fwd_at, n_state, by * periods);
			v += periods * period;
			break;
		}
	}
	for (; v < end; v++)
		ring_wave(ring);
}

static void run_interleaved(int64_t *work, const struct pipe_scale *scale,
                            const struct adp_pipe_stage *stages, uint32_t n_ranks,
                            uint32_t n_chunks, uint32_t n_micro, bool jump)
{
	uint64_t n_stages = (uint64_t)n_ranks * n_chunks;
	struct ring ring = {
		.n_ranks = n_ranks,
		.n_chunks = n_chunks,
		.n_ops = (int64_t)n_micro * n_chunks,
		.lead = (int64_t)pipe_warm_up(0, n_ranks, n_chunks),
		.fwd_at = work,
		.free_at = work + n_ranks,
		.before = work + 2 * (uint64_t)n_ranks,
		.now = (struct chunk *)(void *)(work + 4 * (uint64_t)n_ranks),
	};
	int64_t v = 0, n_waves = ring.n_ops + ring.lead;

	ring.chunks = ring.now + n_ranks;
	ring.turn = (struct turn){
		.bwd_rank = (uint32_t)(ring.lead % n_ranks),
		.bwd_chunk = n_chunks - 1,
		.groups_to_first_bwd = (uint32_t)(ring.lead / n_ranks),
	};
	memset(work, 0, 2 * (uint64_t)n_ranks * sizeof *work);
	memset(ring.now, 0, n_ranks * sizeof *ring.now);
	for (uint64_t i = 0; i < n_stages; i++) {
		int64_t fwd = pipe_ticks(scale, stages[i].fwd_s), bwd = pipe_ticks(scale, stages[i].bwd_s);

		ring.chunks[i] = (struct chunk){
			.fwd = fwd,
			.fwd_from_below = i == 0 ? NO_INPUT : fwd + pipe_ticks(scale, stages[i - 1].send_fwd_s),
			.bwd = bwd,
			.bwd_from_above = i + 1 == n_stages ? NO_INPUT
		                                        : bwd + pipe_ticks(scale, stages[i + 1].send_bwd_s),
		};
	}
	while (v < n_waves && v < ring.lead)
		ring_wave_at_edge(&ring, v++);
	if (v < ring.n_ops) {
		ring_steady(&ring, v, ring.n_ops, jump);
		v = ring.n_ops;
	}
	while (v < n_waves)
		ring_wave_at_edge(&ring, v++);
}

/* ---- public ------------------------------------------------------------------------ */

uint64_t adp_pipeline_scratch(uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro)
{
	(void)n_micro; /* the state is one wave deep, however many micro-batches pass */
	return n_chunks > 1 ? (8 + 4 * (uint64_t)n_chunks) * n_ranks : 6 * (uint64_t)n_ranks;
}

static int run(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
               uint32_t n_chunks, uint32_t n_micro, void *scratch, bool jump, struct adp_error *err)
{
	struct pipe_scale scale = {0};
	int64_t *work = scratch;
	const int64_t *free_at = work;
	int rc = pipe_scale_init(&scale, stages, n_ranks, n_chunks, n_micro, err);

	if (rc != ADP_OK)
		return rc;
	if (n_chunks > 1) {
		run_interleaved(work, &scale, stages, n_ranks, n_chunks, n_micro, jump);
		free_at = work + n_ranks;
	} else {
		run_1f1b(work, &scale, stages, n_ranks, n_micro, jump);
	}
	for (uint32_t s = 0; s < n_ranks; s++)
		end_s[s] = (double)free_at[s] * scale.s_per_tick;
	return ADP_OK;
}

int adp_pipeline_end(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                     uint32_t n_chunks, uint32_t n_micro, void *scratch, struct adp_error *err)
{
	return run(end_s, stages, n_ranks, n_chunks, n_micro, scratch, true, err);
}

int adp_pipeline_end_stepwise(double *end_s, const struct adp_pipe_stage *stages, uint32_t n_ranks,
                              uint32_t n_chunks, uint32_t n_micro, void *scratch,
                              struct adp_error *err)
{
	return run(end_s, stages, n_ranks, n_chunks, n_micro, scratch, false, err);
}

double adp_pipeline_in_flight(uint32_t rank, uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro)
{
	double n_ops = (double)n_micro * n_chunks, peak;

	if (rank >= n_ranks || n_chunks == 0)
		return 0;
	peak = (double)pipe_warm_up(rank, n_ranks, n_chunks) + 1;
	return fmin(peak, n_ops) / n_chunks;
}

double adp_pipeline_alive_peak(const double *chunk_size, uint32_t rank, uint32_t n_ranks,
                               uint32_t n_chunks, uint32_t n_micro)
{
	double alive = 0, peak = 0;
	uint64_t n_ops, warm_up, period;

	if (rank >= n_ranks || n_chunks == 0 || (n_chunks > 1 && n_micro % n_ranks != 0))
		return 0;
	n_ops = (uint64_t)n_micro * n_chunks;
	warm_up = pipe_warm_up(rank, n_ranks, n_chunks);
	period = (uint64_t)n_ranks * n_chunks; /* of the order of chunks */
	for (uint64_t v = 0; v < n_ops && v < warm_up + period; v++) {
		alive += chunk_size[v / n_ranks % n_chunks];
		peak = fmax(peak, alive);
		if (v >= warm_up)
			alive -= chunk_size[n_chunks - 1 - (v - warm_up) / n_ranks % n_chunks];
	}
	return peak;
}
