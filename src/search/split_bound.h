/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_SPLIT_BOUND_H
#define ADP_SEARCH_SPLIT_BOUND_H

#include "search/critical.h"
#include "search/evaluator.h"

/* Between split.c, which places the layers of a composition, and split_bound.c, which says what no
 * split can beat. */

enum { PATH_KINDS = 2 }; /* kinds of replica whose paths are followed */

struct descent {
	struct candidate *best;
	struct counts *counts;
	struct evaluator *ev;
	struct split split;
	bool table; /* ev->most_head is filled */
	bool plain; /* 1F1B with at least as many micro-batches as stages in every replica */
	uint32_t cap[ADP_SEARCH_MAX_PIPE], cap_after[ADP_SEARCH_MAX_PIPE + 1];
	uint32_t way_room[ADP_SEARCH_MAX_PIPE]
					 [ADP_N_RECOMPUTE]; /* the cap of each way of recomputing */
	double ends_s[ADP_SEARCH_MAX_PIPE],
		layer_s[ADP_SEARCH_MAX_PIPE];               /* per micro-batch, at least */
	double pass_after[ADP_SEARCH_MAX_PIPE + 1];     /* ends of the stages from s on */
	double cheapest_after[ADP_SEARCH_MAX_PIPE + 1]; /* layer time of the stages from s on */
	double ops;                                     /* of the recurrence, for moves of a layer */
	int64_t leaves, nodes;
	uint32_t n_paths;                  /* kinds that are followed, the first ones */
	struct critical paths[PATH_KINDS]; /* this and what follows is filled for the descent alone */
	struct critical_rank ranks[PATH_KINDS][ADP_SEARCH_MAX_PIPE];
};

/* What the stages before add to each pass; the longest of their own parts, with the rest that
 * follows; what a later one cuts off; and the longest rest. */
struct path_heads {
	double pass_s[N_PATHS], own_s[N_PATHS], cut_s[N_PATHS], rest_s[N_PATHS];
	double longest_s; /* own part of PATH_BOTH */
};

/* What the stages before have settled, for each kind: the time of one micro-batch in them, and its
 * forward part. */
struct heads {
	double all_s[ADP_SEARCH_MAX_KINDS], fwd_s[ADP_SEARCH_MAX_KINDS];
	struct path_heads path[PATH_KINDS];
};

/* ---- one stage ---- */

/* Forward and backward of layers [a, b) on stage s, per micro-batch, for each kind of replica. */
void stage_times(double *t, const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b,
                 uint8_t recompute);

/* What no step undercuts: the work of a stage, t[k] for a micro-batch of kind k, after wait[k];
 * NULL: no wait. */
double work_end(const struct evaluator *ev, const double *t, const double *wait);

/* That of layers [a, b) on stage s; least_s, or NULL: the least time of a micro-batch. */
double stage_load(const struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t recompute,
                  double *least_s);

/* The same, and the exchange after it. */
double stage_step(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t recompute);

/* Forward of n layers on stage s, at least; backward in any kind of replica, ends included. */
double least_forward(const struct evaluator *ev, uint32_t kind, uint32_t s, uint32_t n);
double longest_backward(const struct evaluator *ev, uint32_t s, uint32_t n, uint8_t recompute);

/* Fewest layers of a stage: the ends may hold none beside embedding or head. */
uint32_t stage_least(const struct evaluator *ev, uint32_t s);

/* ---- all stages ---- */

/* Fills the room and the shortest times of each stage: first of all. */
void caps(struct descent *d);

/* Could any split keep the limit? paths_possible() asks the critical paths alone. */
bool limit_possible(struct descent *d, double limit);
bool paths_possible(const struct descent *d, double limit);

/* Limits from below: the least that is possible; the least for critical paths; and with several
 * kinds of replica, each at its own best split. */
double least_limit(struct descent *d, double lo, double hi);
double paths_bound(const struct descent *d, double lo_s, double hi_s);
double kinds_bound(const struct descent *d);

/* ---- critical paths ---- */

/* For the descent; false: no split keeps the best plan's limit. */
bool paths_init(struct descent *d, struct heads *heads);

/* Adds n layers on stage s to the heads, with left layers after it; false: a path is too long. */
bool paths_go_on(struct heads *heads, const struct descent *d, uint32_t s, uint32_t n,
                 uint32_t left, uint8_t recompute, double limit);

/* The longest path through a split; a step takes longer. */
double paths_length(const struct descent *d, const struct split *split);

/* What stage 0 adds after its last backward, which is the pipeline's last. */
double first_rest(const struct descent *d, const struct split *split, uint32_t kind);

#endif
