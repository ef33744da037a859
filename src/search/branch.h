/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_BRANCH_H
#define ADP_SEARCH_BRANCH_H

#include "search/evaluator.h"

/*
 * The search inside one unit: the data-parallel size, and how many stages or replicas each type of
 * GPU gives. branch.c takes the sizes and the replicas on one type each, stages.c the pipelines
 * that cross types.
 */

/* Layers that each stage could hold, by type, for one size of the pipelines. */
struct rooms {
	uint32_t dp, pp, types; /* types: bit t */
	bool timed;             /* no more than the step's time allows either */
	uint16_t n[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE];
	uint32_t before[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE + 1]; /* of all stages before one */
	double most[ADP_SEARCH_MAX_TYPES];                              /* of any stage */
	/* stages before one that have no room even for themselves */
	uint32_t shut_before[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE + 1];
	/* by way of recomputing, the least time first: layers by memory, and where critical paths count
	 * layers by time = (limit - pass - base_s) * per_s, as critical.h has it */
	uint32_t n_ways;
	uint8_t way[ADP_N_RECOMPUTE];
	bool leanest; /* way_n: of the leanest layer in the leanest way */
	bool critical;
	uint16_t way_n[ADP_N_RECOMPUTE][ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE];
	double base_s[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE];
	double per_s[ADP_N_RECOMPUTE][ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_PIPE];
};

struct branch {
	const struct space *space;
	const struct unit *unit;
	const struct shape_cost *sc;
	struct evaluator *ev;
	struct candidate *best;
	struct counts *counts;
	struct open_list *open;
	struct work work;
	uint32_t n_types, n[ADP_SEARCH_MAX_TYPES], n_all; /* slots of each type */
	double alone_s[ADP_SEARCH_MAX_TYPES]; /* all work of a micro-batch on one slot of a type */
	uint64_t n_batches;
	double cap_slots;
	struct layer_room room[ADP_SEARCH_MAX_TYPES];
	struct rooms rooms;
	uint32_t max_pipe;
	struct adp_error *err;
	/* of the data-parallel size at hand */
	uint32_t dp, share[ADP_SEARCH_MAX_TYPES]; /* stages (or replicas) of each type */
};

/* Has this job done its share of work, and is there a plan? Then what is left of the unit is left
 * to the gap. */
bool branch_spent(struct branch *b);

/* Rules of engine and pins that hold for a whole composition. */
bool branch_legal(const struct branch *b, const struct composition *comp);

/* Looks at a composition that no plan of beats bound_s. */
int branch_try(struct branch *b, const struct composition *comp, double bound_s);

/* ---- stages.c ---- */

/* Does the order of the types leave room for all layers within the limit? */
bool stages_order_possible(struct branch *b, const struct composition *comp);

/* All stages alike in every replica, for each depth of the pipeline and each order of the types
 * along it. */
int stages_search(struct branch *b);

/* The same with share[t] stages of each type. */
int stages_try(struct branch *b);

#endif
