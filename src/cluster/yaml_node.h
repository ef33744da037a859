/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_YAML_NODE_H
#define ADP_CLUSTER_YAML_NODE_H

#include <jansson.h>

#include "cluster/cluster_build.h"

/* Reading of one cluster file. */
struct adp_yaml {
	struct adp_build *build;
	bool listed[ADP_DOMAIN_COOLING +
	            1];          /* domains of that kind are listed: only those may be named */
	uint32_t *spine_of_rack; /* by domain index, n_listed entries; ADP_NONE = none */
	uint32_t n_listed;
};

/* A link as stated; what is not stated keeps the usual value of the type. */
struct adp_yaml_link {
	double bytes_per_s; /* 0 = not stated; of one NIC, for nics */
	double latency_s;   /* < 0 = not stated */
	double load_frac;   /* < 0 = not stated */
};

/* What a node group says of its nodes, and what an entry of `nodes` changes. Texts are borrowed
 * from the document. */
struct adp_yaml_spec {
	char path[64];
	const char *gpu;    /* NULL = not stated */
	uint32_t n_gpus;    /* 0 = as usual for the type */
	bool links, nvlink; /* links: one of nvlink and pcie is stated; which */
	struct adp_yaml_link gpu_link, nic;
	uint32_t gpus_per_root, n_nics; /* 0 = not stated */
	const char *rack, *spine, *nvlink_domain, *power, *cooling;
	uint32_t nodes_per_rack, first_rack, nodes_per_nvlink_domain; /* groups only; 0 = not stated */
	const json_t *health;
	char health_path[80];
};

void adp_yaml_spec_init(struct adp_yaml_spec *spec);
/* Reads what object states over *spec. group: object is an entry of nodeGroups, else of nodes. */
int adp_yaml_spec_read(struct adp_yaml_spec *spec, const json_t *object, bool group,
                       const char *path, struct adp_error *err);

/*
 * Adds a node. index: position in its group, for rack and NVLink domain names with a number.
 * group_name: NULL for a node of its own.
 */
int adp_yaml_add_node(struct adp_yaml *yaml, const struct adp_yaml_spec *spec, const char *name,
                      uint64_t index, const char *group_name, struct adp_error *err);

#endif
