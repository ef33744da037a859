/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_CRITICAL_H
#define ADP_SEARCH_CRITICAL_H

#include "search/internal.h"

/*
 * What paths through the schedule tell about a step before the layers are placed. Each path takes
 * some micro-batches along all ranks (its pass) and the rest of the work of one rank m (its own):
 *
 *   T >= pass(x_0 .. x_pp-1) + own_m(x_m)      for each m, with x_i layers on rank i
 *
 * pass grows with every x_i, own_m with x_m. So a limit on T and a least pass give the most layers
 * of each rank, these a new least pass, and so on: the first pass that stays is below that of every
 * split within the limit. If there is none, no split keeps the limit.
 *
 * The paths, with n micro-batches, F and B a rank's forward and backward of one, of chunk c where
 * it says so; docs/internals/search.md has the proofs:
 *   IN    the first micro-batch through all forwards and back to m by the backwards of the last
 *         chunk, by when m has done its warm-up; its other work; the last backwards before m
 *   BOTH  as IN, and read backwards in time at the other end: all chunks of the last micro-batch
 *   OWN   the first chunk up to m; all of m's work, but for what it does while it waits for the
 *         last chunk behind it; the first chunk's backward from m on
 * Each ends with a backward of the first chunk on every rank down to rank 0. Any rank m' on that
 * way (m' <= m, or all for BOTH) exchanges its gradients once it has done its own, so the path may
 * end there instead, without what follows (its cut):
 *
 *   T >= pass + own_m(x_m) - cut(x_0 .. x_m'-1) + rest_m'(x_m')
 *
 * Replicas are all alike; 1F1B with any number of micro-batches (IN alone), or interleaved with a
 * multiple of pp.
 */
enum critical_path { PATH_IN, PATH_BOTH, PATH_OWN, N_PATHS };

/* Least times of a rank and the room for layers on it. */
struct critical_rank {
	double fwd_s, bwd_s;            /* of a layer */
	double first_fwd_s, last_fwd_s; /* of the embedding; of the tail */
	double end_bwd_s;               /* of both */
	double send_fwd_s, send_bwd_s;  /* to the next rank, and to the one before; around the ring */
	uint32_t least;                 /* layers */
	/* room in layers and what a layer's backward takes, by way of recomputing: more room takes
	 * longer */
	uint32_t n_ways, most[ADP_N_RECOMPUTE];
	double way_bwd_s[ADP_N_RECOMPUTE];
};

/* What n layers of m add after their last backward, which takes last_bwd_s and can hide some of it.
 * Grows with n; never by more than last_bwd_s does when that falls. */
typedef double critical_rest_fn(void *ctx, uint32_t m, uint32_t n, double last_bwd_s);

struct critical {
	const struct critical_rank *ranks; /* borrowed */
	uint32_t pp, vpp, n_micro, n_layers;
	uint32_t n_paths;       /* the first so many tell something here */
	double pass_s[N_PATHS]; /* without layers */
	double send_up_s[ADP_SEARCH_MAX_PIPE + 1],
		send_down_s[ADP_SEARCH_MAX_PIPE + 1]; /* from rank 0 to m and back, one chunk */
	uint32_t warm[ADP_SEARCH_MAX_PIPE];       /* forwards of chunks before the first backward */
	/* what a layer adds to each pass, least first, on ranks from .. to - 1 */
	struct critical_fill {
		double layer_s;
		uint16_t from, to;
		bool first; /* the first n_first layers of a rank, else those after */
	} fill[N_PATHS][2 * ADP_SEARCH_MAX_PIPE];
	uint32_t n_fills[N_PATHS], n_first[N_PATHS];
	/* what the least layers of ranks m and later add, and how many they are */
	double least_after_s[N_PATHS][ADP_SEARCH_MAX_PIPE + 1];
	uint32_t least_after[ADP_SEARCH_MAX_PIPE + 1];
	/* room beside them on the ranks before m, as critical_caps() has it: of the first layers, and
	 * of all */
	uint32_t first_before[N_PATHS][ADP_SEARCH_MAX_PIPE + 1], room_before[ADP_SEARCH_MAX_PIPE + 1];
	critical_rest_fn *rest;
	void *rest_ctx;
};

/* rest NULL: nothing is known of what follows a rank's last backward. */
void critical_init(struct critical *c, const struct critical_rank *ranks, uint32_t pp, uint32_t vpp,
                   uint32_t n_micro, uint32_t n_layers, critical_rest_fn *rest, void *rest_ctx);

/* Could a split end within the limit? most, or NULL: if so, the most layers of each rank in any
 * such split. */
bool critical_possible(const struct critical *c, double limit_s, uint32_t *most);

/* The smallest limit between lo_s and hi_s that is possible, from below. */
double critical_bound(const struct critical *c, double lo_s, double hi_s);

/* PATH_IN's own part as a line that is never above it: base_s + slope_s * layers, by way. */
void critical_line(const struct critical *c, uint32_t m, double *base_s,
                   double slope_s[ADP_N_RECOMPUTE]);

/*
 * The parts for a split that is known in part: what n layers of rank m add to a pass; the rest of a
 * pass with so many layers on ranks m and later, at least, which hold no more than critical_caps()
 * said; m's own part with n layers; what m adds to the cut of later ranks; and what follows m's
 * last backward.
 */
double critical_pass(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                     double bwd_s);
void critical_caps(struct critical *c, const uint32_t *most);
double critical_pass_after(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n);
double critical_own(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                    double bwd_s);
double critical_cut(const struct critical *c, enum critical_path p, uint32_t m, uint32_t n,
                    double bwd_s);
double critical_rest(const struct critical *c, uint32_t m, uint32_t n, double bwd_s);

#endif
