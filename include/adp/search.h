/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_H
#define ADP_SEARCH_H

#include "adp/plan.h"

/* A closed range; {0, 0} = free. */
struct adp_pin {
	uint32_t min, max;
};

struct adp_search_opts {
	struct adp_pin dp, tp, pp, vpp, cp, ep, micro_batch, gpus; /* gpus: how many may be used */
	int zero_stage;                                            /* -1 = free */
	int recompute;                                             /* enum adp_recompute, -1 = free */
	int sequence_parallel;                                     /* 0, 1, -1 = free */
	bool equal_layers;  /* the same number of layers on each stage: the "equal split" question */
	bool equal_batches; /* the same number of micro-batches in each replica */
	const char *const *exclude; /* GPU type names or aliases */
	uint32_t n_exclude;
	uint32_t n_threads; /* >= 1; the answer does not depend on it */
};
void adp_search_opts_init(struct adp_search_opts *opts); /* everything free, one thread */

/*
 * Finds the fastest plan that the engine can run; with train->deadline_s the fewest GPUs that meet
 * it.
 *
 * On success *out belongs to the caller (adp_plan_destroy); its why-part is empty, see
 * adp_search_explain. All inputs are borrowed and may be freed after. Deterministic: same inputs,
 * same plan, on any number of threads.
 *
 * Returns 0, ADP_EINFEASIBLE (err names the binding limit and the smallest change that lifts it),
 * ADP_EINVAL (a pin that no legal plan meets: err gives the nearest legal value), ADP_ENOMEM.
 */
int adp_search(struct adp_plan **out, const struct adp_model *model,
               const struct adp_cluster *cluster, const struct adp_engine *engine,
               const struct adp_tables *tables, const struct adp_train *train,
               const struct adp_search_opts *opts, struct adp_error *err);

/*
 * Fills plan->others, reasons and binding by searching again with one thing changed each: newest
 * type only, equal split, fewer GPUs, each type left out or in, healthy GPUs, idle links. cluster
 * is the whole one.
 */
int adp_search_explain(struct adp_plan *plan, const struct adp_model *model,
                       const struct adp_cluster *cluster, const struct adp_engine *engine,
                       const struct adp_tables *tables, const struct adp_train *train,
                       const struct adp_search_opts *opts, struct adp_error *err);

#endif
