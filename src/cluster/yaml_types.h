/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_YAML_TYPES_H
#define ADP_CLUSTER_YAML_TYPES_H

#include <jansson.h>

#include "cluster/cluster_build.h"

/*
 * Reads gpuTypes of a cluster file. *out: hw itself when there are none; else a copy in the arena
 * whose types carry the changes. It borrows from hw, is not to be destroyed, and lives as long as
 * the arena.
 */
int adp_yaml_types(const struct adp_hardware **out, struct adp_arena *arena,
                   const struct adp_hardware *hw, const json_t *document, struct adp_error *err);

#endif
