/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_RANDOM_INSTANCE_H
#define ADP_TESTS_RANDOM_INSTANCE_H

#include "adp/cluster.h"
#include "adp/model.h"
#include "adp/train.h"

/*
 * Small planning problems from a seed: a model's config, a cluster file, what to train and with
 * which engine. A problem is kept as figures, so that a test can change one of them and write the
 * documents anew. Same seed, same problem on every machine.
 */

enum {
	RANDOM_MAX_TYPES = 3,
	RANDOM_MAX_NODES = 16, /* a few more than are ever drawn, for tests that add some */
	RANDOM_MAX_GPUS = 16,
	RANDOM_MAX_RACKS = 2
};

struct random_rng {
	uint64_t state;
};
uint64_t random_next(struct random_rng *rng);
uint32_t random_below(struct random_rng *rng, uint32_t n); /* 0 .. n - 1 */
double random_between(struct random_rng *rng, double low, double high);
bool random_one_in(struct random_rng *rng, uint32_t n);

struct random_model {
	uint32_t n_layers, n_heads, n_kv_heads, head_dim, hidden, ffn, vocab;
	uint32_t n_experts, top_k, expert_ffn, n_dense_first; /* n_experts 0: dense */
	bool tied;
};

struct random_type {
	const char *name; /* of the GPU table */
	uint32_t memory_mib;
};

struct random_node {
	uint32_t type, n_gpus, rack;
	double speed[RANDOM_MAX_GPUS];
	bool nvlink;
	uint32_t gpus_per_root;              /* PCIe */
	uint32_t gpu_link_mb_per_s;          /* MB/s of one GPU */
	uint32_t n_nics, nic_mb_per_s;       /* MB/s of one rail */
	uint32_t gpu_load_pct, nic_load_pct; /* in use by others */
};

struct random_instance {
	uint64_t seed;
	struct random_model model;
	uint32_t n_types, n_nodes, n_racks; /* n_racks 0: one flat network */
	struct random_type types[RANDOM_MAX_TYPES];
	struct random_node nodes[RANDOM_MAX_NODES];
	uint32_t rack_mb_per_s[RANDOM_MAX_RACKS]; /* uplink */
	struct adp_train train;
	const char *engine; /* "torch" or "megatron" */
};

/* What to draw: the oracle takes tiny ones. */
struct random_limits {
	uint32_t max_types, max_nodes_of_type, max_gpus_of_node, max_gpus, max_layers, max_batch;
};
extern const struct random_limits random_small, random_tiny;

void random_instance_draw(struct random_instance *out, uint64_t seed,
                          const struct random_limits *limits);

/* Documents; the caller frees them with adp_free. NULL when memory runs out. */
char *random_instance_config(const struct random_instance *instance);
char *random_instance_cluster(const struct random_instance *instance);

/* The same documents with the keys of objects and the nodes in another order. */
char *random_instance_config_shuffled(const struct random_instance *instance,
                                      struct random_rng *rng);
char *random_instance_cluster_shuffled(const struct random_instance *instance,
                                       struct random_rng *rng);

/*
 * The fleet as `kubectl get nodes -o json` shows it, rng NULL or shuffled: types, counts, health
 * and networks alone; memory and links inside a node are those of the GPU table.
 */
char *random_instance_node_list(const struct random_instance *instance, struct random_rng *rng);

uint32_t random_instance_gpus(const struct random_instance *instance);

#endif
