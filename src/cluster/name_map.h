/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_NAME_MAP_H
#define ADP_CLUSTER_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts to numbers. Zero-initialise; keys are borrowed and must outlive the map. */
struct adp_name_map {
	struct adp_name_slot *slots;
	size_t n, cap;
};
void adp_name_map_fini(struct adp_name_map *map);
bool adp_name_map_get(uint32_t *value, const struct adp_name_map *map, const char *key);
int adp_name_map_put(struct adp_name_map *map, const char *key,
                     uint32_t value); /* key is new. 0 or ADP_ENOMEM */

#endif
