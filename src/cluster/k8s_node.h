/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_K8S_NODE_H
#define ADP_CLUSTER_K8S_NODE_H

#include <jansson.h>

#include "cluster/cluster_build.h"

/* Memory of one GPU type as the labels of its nodes state it: the least counts. */
struct adp_k8s_memory {
	uint64_t least_bytes; /* 0 = no label seen */
	bool unlabelled;      /* a node of the type has no usable label */
};

/* One reading of node objects. */
struct adp_k8s {
	struct adp_build *build;
	struct adp_k8s_memory *memory; /* by index of build->types; hw->n_types entries */
	const char *where, *zone;
	bool many_zones, racks;
};

/* A Node object, borrowed. Members may be NULL. */
struct adp_k8s_node {
	const char *name;
	const json_t *labels, *annotations, *spec, *status, *allocatable, *capacity;
};

enum { ADP_LABEL_SIZE = 256 };

/* A label, else NULL. Numbers and booleans that lost their quotes are printed into buf. */
const char *adp_k8s_label(const struct adp_k8s_node *node, const char *key,
                          char buf[ADP_LABEL_SIZE]);
/* Annotation or label adp.parallelism/<key>; "" counts as none. */
const char *adp_k8s_setting(const struct adp_k8s_node *node, const char *key,
                            char buf[ADP_LABEL_SIZE]);
/* Whole number of a label; false: none, or not a number. */
bool adp_k8s_label_u64(uint64_t *out, const struct adp_k8s_node *node, const char *key);
/* Whole number of a resource in list (allocatable or capacity). */
bool adp_k8s_resource(uint64_t *out, const json_t *list, const char *name);

/* Whether anything about the node speaks of a GPU. */
bool adp_k8s_has_gpus(const struct adp_k8s_node *node, const struct adp_hardware *hw);

/*
 * GPU type and number of whole GPUs. *type NULL: the node is left out, and a warning says why.
 * memory_mib: of the label, where it may be believed, else 0.
 */
int adp_k8s_gpus(const struct adp_gpu_type **type, uint32_t *n_gpus, uint64_t *memory_mib,
                 struct adp_k8s *k8s, const struct adp_k8s_node *node, struct adp_error *err);

/* The known cloud machine type of the node, if it has GPUs of that type; else NULL. */
const struct adp_instance *adp_k8s_instance(const struct adp_hardware *hw,
                                            const struct adp_k8s_node *node,
                                            const struct adp_gpu_type *type);

/* Network, NVLink domain, rack, spine, power, cooling and health of a node just built. */
int adp_k8s_place(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                  struct adp_error *err);

/* Adds the nodes of one document: a Node, a List, or an array of either. */
int adp_k8s_read(struct adp_k8s *k8s, const json_t *document, struct adp_error *err);
bool adp_k8s_is_node_document(const json_t *document);
int adp_k8s_finish(struct adp_k8s *k8s, struct adp_error *err);

#endif
