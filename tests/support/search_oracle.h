/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_SEARCH_ORACLE_H
#define ADP_TESTS_SEARCH_ORACLE_H

#include "adp/search.h"

/*
 * The best step by trying everything: every degree, every number of stages of each GPU type in
 * every order, replicas on one type each, every split of the layers, every share of the
 * micro-batches. It shares with the search the cost of an item, of a collective and of memory, and
 * the pipeline's recurrence; which plans are legal and what a step is made of it says again in its
 * own words.
 *
 * For tiny fleets whose nodes of a type are all alike (one NVLink domain each, no racks), free of
 * pins.
 */
struct oracle_best {
	double step_s; /* INFINITY: no plan */
	uint32_t tp, cp, ep, etp, dp, pp, vpp, zero_stage, micro_batch_seqs;
	bool sequence_parallel, hybrid, by_replica; /* by_replica: each replica on one type */
	uint32_t n_layers[16];                      /* of each stage */
	uint64_t n_weighed;
};

int search_oracle(struct oracle_best *out, const struct adp_model *model,
                  const struct adp_cluster *cluster, const struct adp_engine *engine,
                  const struct adp_tables *tables, const struct adp_train *train,
                  struct adp_error *err);

#endif
