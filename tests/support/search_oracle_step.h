/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_SEARCH_ORACLE_STEP_H
#define ADP_TESTS_SEARCH_ORACLE_STEP_H

#include "adp/pipeline.h"
#include "search_oracle.h"

/* The oracle's two halves: search_oracle.c tries everything, search_oracle_step.c says what one
 * plan takes. */

enum {
	MAX_TYPES = 2,
	MAX_STAGES = 16,
	MAX_LAYERS = 8,
	MAX_CHUNKS = 32,
	MAX_REPLICAS = 32,
	SCRATCH = 1 << 14
};

/* The GPUs of one type, as groups of tp * cp ranks. */
struct pool {
	const struct adp_gpu_type *gpu;
	struct adp_link near, far; /* one GPU's share inside its node and out of it */
	double speed_frac;
	uint32_t n_nodes, node_gpus;
	uint32_t n, per_node; /* groups; per_node 0: one spans several nodes */
};

/* What a layer or an end costs on a type; the ends are the embedding, and all after the layers. */
struct work {
	double fwd_s, bwd_s, recompute_s[ADP_N_RECOMPUTE];
};

struct oracle {
	const struct adp_model *model;
	const struct adp_cluster *cluster;
	const struct adp_engine *engine;
	const struct adp_tables *tables;
	const struct adp_train *train;
	struct adp_error *err;
	struct pool pool[MAX_TYPES];
	uint32_t n_pools, n_layers;
	double weight_bytes, grad_bytes, element_bytes, state_traffic_bytes;
	bool moe;
	/* of the shape at hand */
	struct adp_shape shape;
	struct work layer[MAX_TYPES][MAX_LAYERS], embedding[MAX_TYPES], tail[MAX_TYPES];
	double layer_elems[MAX_LAYERS], layer_expert_elems[MAX_LAYERS], embedding_elems, tail_elems;
	uint64_t n_batches;
	/* of the plan at hand */
	uint32_t dp, pp, vpp, zero_stage, size;
	bool hybrid, by_replica, equal;
	uint32_t n_teams, replicas[MAX_TYPES]; /* teams of replicas that are alike */
	uint32_t type[MAX_TYPES][MAX_STAGES];  /* [team][stage] */
	uint32_t first[MAX_TYPES][MAX_STAGES]; /* group of the team's first replica, in its pool */
	int recompute;                         /* of all stages; -1: each its own */
	struct adp_path dense[MAX_STAGES], expert[MAX_STAGES];
	uint32_t shard, expert_shard;
	double tied_s;
	uint32_t split[MAX_STAGES];
	struct oracle_best *best;
	int64_t scratch[SCRATCH];
};

/* Items' times and elements of o->shape on each pool, whose groups are formed. */
int oracle_cost_shape(struct oracle *o);

/* Groups that exchange gradients in the placement at hand. False: hybrid sharding would be the same
 * as the plain form. */
bool oracle_form_exchanges(struct oracle *o);

/* Keeps the plan at hand if all its stages fit and its step is the shortest so far. */
void oracle_weigh(struct oracle *o);

#endif
