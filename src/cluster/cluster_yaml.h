/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_YAML_H
#define ADP_CLUSTER_YAML_H

#include <jansson.h>

#include "cluster/cluster_build.h"

#define ADP_CLUSTER_API_VERSION "adp.parallelism/v1alpha1"

/* Adds all of a document of kind Cluster (docs/cluster.md). Errors name the field. */
int adp_cluster_yaml(struct adp_build *b, const json_t *document, struct adp_error *err);

#endif
