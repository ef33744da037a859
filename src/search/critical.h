/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_CRITICAL_H
#define ADP_SEARCH_CRITICAL_H

#include "search/internal.h"

/*
 * What a path through the schedule tells about a step before the layers are placed. A rank m starts
 * its first backward when the first micro-batch has passed all forwards and the backwards behind m;
 * by then m has done its warm-up forwards. The rest of its own work follows, then the backwards of
 * the last micro-batch before m. With x_i layers on rank i, F_i their forward, B_i the backward of
 * a chunk and t_m the time of a micro-batch:
 *
 *   T >= pass + n t_m - warm_m - B_m        for each m, with pass = sum of F_i + B_i + sends
 *
 * The right side but for the pass hangs on x_m alone, and grows with it. So a limit on T and a
 * least pass give the most layers of each rank, these a new least pass, and so on: the first pass
 * that stays is below that of every split within the limit. If there is none, no split keeps the
 * limit. Chunks of a rank differ by a layer at most; where that matters the cheaper side counts.
 * Holds for replicas that are all alike, in 1F1B with any number of micro-batches and interleaved
 * with a multiple of pp.
 */

/* Least times of a rank and the room for layers on it. */
struct critical_rank {
	double fwd_s, bwd_s;            /* of a layer */
	double first_fwd_s, last_fwd_s; /* of the embedding; of the tail */
	double end_bwd_s;               /* of both */
	uint32_t least;                 /* layers */
	/* room in layers and what a layer's backward takes, by way of recomputing: more room takes
	 * longer */
	uint32_t n_ways, most[ADP_N_RECOMPUTE];
	double way_bwd_s[ADP_N_RECOMPUTE];
};

struct critical {
	const struct critical_rank *ranks; /* borrowed */
	uint32_t pp, n_layers, n_first;
	double pass_s; /* without layers */
	/* own part by layers */
	double slope_s[ADP_SEARCH_MAX_PIPE][ADP_N_RECOMPUTE], base_s[ADP_SEARCH_MAX_PIPE];
	/* what a layer adds to the pass, least first: the first vpp - 1 of a rank no backward */
	struct {
		double layer_s;
		uint16_t from, to; /* ranks */
		bool first;
	} filling[2 * ADP_SEARCH_MAX_PIPE];
	uint32_t n_fillings;
};

void critical_init(struct critical *c, const struct critical_rank *ranks, uint32_t pp, uint32_t vpp,
                   uint32_t n_micro, uint32_t n_layers, double sends_s);

/* Could a split end within the limit? */
bool critical_possible(const struct critical *c, double limit_s);

/* The smallest limit between lo_s and hi_s that is possible, from below. */
double critical_bound(const struct critical *c, double lo_s, double hi_s);

#endif
