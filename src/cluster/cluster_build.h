/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_CLUSTER_BUILD_H
#define ADP_CLUSTER_CLUSTER_BUILD_H

#include "adp/cluster.h"
#include "cluster/name_map.h"

/* Limits of every source of nodes. */
enum {
	ADP_MAX_NODES = 200000,
	ADP_MAX_GPUS = 1000000,
	ADP_MAX_NODE_GPUS = 1024,
	ADP_MAX_DOMAINS = 1000000
};

/* A GPU slower than a thousandth of its kind does not work. */
#define ADP_LEAST_SPEED 0.001

/* What the user does about a GPU type that the table lacks or has wrong. */
#define ADP_OVERRIDE_HINT "add it with --gpu-data FILE (a CSV with columns of data/gpus.csv)"

struct adp_build_domain {
	struct adp_domain domain;
	bool lone; /* NVLink domain of a single node, made by adp_build_finish */
	bool used;
};

struct adp_build_warning;

/*
 * Collects nodes in any order and makes a cluster in canonical order. Types and domains are
 * numbered as they come; adp_build_finish renumbers. gpu_speed_frac NULL = all healthy;
 * nvlink_domain ADP_NONE = its own.
 */
struct adp_build {
	struct adp_cluster *cluster; /* owns the arena; all texts go there */
	const struct adp_hardware *hw;
	struct adp_gpu_type *types;
	struct adp_node *nodes;
	struct adp_build_domain *domains;
	struct adp_build_warning *warnings;
	uint32_t n_types, n_nodes, n_domains, n_warnings;
	size_t cap_types, cap_nodes, cap_domains, cap_warnings;
	uint64_t n_gpus;
	struct adp_name_map type_of, node_of, warning_of, domain_of[ADP_DOMAIN_COOLING + 1];
	bool network_assumed;
};

int adp_build_init(struct adp_build *b, const struct adp_hardware *hw, struct adp_error *err);
void adp_build_fini(struct adp_build *b); /* also after adp_build_finish */

/* Copies the type on its first use. */
int adp_build_type(uint32_t *index, struct adp_build *b, const struct adp_gpu_type *type,
                   struct adp_error *err);
/* Finds or adds. */
int adp_build_domain(uint32_t *index, struct adp_build *b, enum adp_domain_kind kind,
                     const char *name, struct adp_error *err);

/* A node that is alike by default: links of its type, flat network. The name must be new. */
int adp_build_node(struct adp_node **out, struct adp_build *b, const char *name, uint32_t type,
                   uint32_t n_gpus, struct adp_error *err);
bool adp_build_has_node(const struct adp_build *b, const char *name, uint32_t *index);
void adp_build_usual_links(struct adp_node *node, const struct adp_gpu_type *type,
                           const struct adp_hardware *hw, uint32_t n_gpus);
/*
 * Notes an assumption, once however many nodes share it. node NULL: about the whole cluster.
 * Returns 0 or ADP_ENOMEM.
 */
int adp_build_warn(struct adp_build *b, const char *node, const char *format, ...) ADP_PRINTF(3, 4);

/* Takes the cluster out of b. ADP_EINVAL when no node is left: err then lists the warnings. */
int adp_build_finish(struct adp_cluster **out, struct adp_build *b, struct adp_error *err);

/* Sets cluster->digest from its types, domains and nodes. */
int adp_cluster_digest(struct adp_cluster *cluster, struct adp_error *err);

#endif
