/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_H
#define ADP_CLUSTER_H

#include "adp/hardware.h"

enum adp_link_kind { ADP_LINK_NVLINK, ADP_LINK_PCIE, ADP_LINK_NIC, ADP_LINK_RACK, ADP_LINK_SPINE };
const char *adp_link_name(enum adp_link_kind kind);

/* Bandwidth is nominal; usable = bytes_per_s * (1 - load_frac). */
struct adp_link {
	enum adp_link_kind kind;
	double bytes_per_s; /* per direction; of one GPU (NVLINK, PCIE), of the node (NIC), of the
	                       domain's uplink (RACK, SPINE; 0 = never the bottleneck) */
	double latency_s;
	double load_frac; /* 0 .. < 1, present use by others */
};

#define ADP_NONE UINT32_MAX

enum adp_domain_kind {
	ADP_DOMAIN_NVLINK,
	ADP_DOMAIN_RACK,
	ADP_DOMAIN_SPINE,
	ADP_DOMAIN_POWER,
	ADP_DOMAIN_COOLING
};

struct adp_domain {
	const char *name;
	enum adp_domain_kind kind;
	struct adp_link uplink; /* rack, spine */
	double limit_w;         /* power, cooling; 0 = none stated */
};

struct adp_node {
	const char *name;
	uint32_t type;                /* index into cluster->types */
	uint32_t n_gpus;              /* whole GPUs this job may use */
	const double *gpu_speed_frac; /* n_gpus, 1.0 = healthy, in 0 < x <= 1 */
	struct adp_link gpu_link;     /* between GPUs of this node: NVLINK or PCIE */
	uint32_t gpus_per_root;       /* PCIE: GPUs that share a root port; 1 = none shared */
	struct adp_link nic;          /* all rails of the node together */
	uint32_t n_nics;              /* rails */
	uint32_t nvlink_domain;  /* index into domains; never ADP_NONE: a lone node is its own domain */
	uint32_t rack, spine;    /* index into domains, or ADP_NONE (one flat network) */
	uint32_t power, cooling; /* index into domains, or ADP_NONE */
};

/*
 * Nodes, sorted by (type's peak descending, type name, spine, rack, NVLink domain, name), whatever
 * the input's order. types are copies, so that overrides of one cluster stay its own.
 */
struct adp_cluster {
	struct adp_arena arena;
	const char *name;
	const char *digest; /* of the meaning: independent of the order of nodes, labels, keys */
	const struct adp_gpu_type *types;
	uint32_t n_types;
	const struct adp_node *nodes;
	uint32_t n_nodes;
	const struct adp_domain *domains;
	uint32_t n_domains;
	const char *const *warnings; /* what was assumed, ignored or corrected, one line each */
	uint32_t n_warnings;
	bool network_assumed; /* NIC figures come from the usual node of the type, not from input */
};

/* "H100:128,A100-80:128": usual nodes of each type; a remainder makes one smaller node. Also
 * "TYPExGPUS_PER_NODE:COUNT" such as "H100x4:16". */
int adp_cluster_from_gpus(struct adp_cluster **out, const char *text, const struct adp_hardware *hw,
                          struct adp_error *err);

/* Our YAML, or `kubectl get nodes -o json|yaml` (a List, one Node, or several YAML documents). */
int adp_cluster_read(struct adp_cluster **out, const char *text, size_t len, const char *where,
                     const struct adp_hardware *hw, struct adp_error *err);
int adp_cluster_load(struct adp_cluster **out, const char *path, const struct adp_hardware *hw,
                     struct adp_error *err); /* "-" = standard input */
void adp_cluster_destroy(struct adp_cluster *cluster);

/*
 * A changed copy, for "what if" questions: keep(node, ctx) false drops a node;
 * flags ADP_CLUSTER_HEALTHY sets every speed to 1, ADP_CLUSTER_IDLE every load to 0.
 */
enum { ADP_CLUSTER_HEALTHY = 1, ADP_CLUSTER_IDLE = 2 };
int adp_cluster_variant(struct adp_cluster **out, const struct adp_cluster *from,
                        bool (*keep)(const struct adp_cluster *c, const struct adp_node *node,
                                     void *ctx),
                        void *ctx, unsigned flags, struct adp_error *err);

uint64_t adp_cluster_n_gpus(const struct adp_cluster *cluster);

#endif
