/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/name_map.h"

#include <string.h>

#include "adp/error.h"
#include "base/alloc.h"

struct adp_name_slot {
	const char *key; /* NULL = free */
	uint64_t hash;
	uint32_t value;
};

static uint64_t hash_text(const char *key) /* FNV-1a */
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *key; key++)
		hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
	return hash ^ hash >> 29;
}

static struct adp_name_slot *find_slot(struct adp_name_slot *slots, size_t cap, const char *key,
                                       uint64_t hash)
{
	size_t i = (size_t)hash & (cap - 1);

	while (slots[i].key && (slots[i].hash != hash || strcmp(slots[i].key, key) != 0))
		i = (i + 1) & (cap - 1);
	return &slots[i];
}

void adp_name_map_fini(struct adp_name_map *map)
{
	adp_free(map->slots);
	*map = (struct adp_name_map){0};
}

bool adp_name_map_get(uint32_t *value, const struct adp_name_map *map, const char *key)
{
	const struct adp_name_slot *slot;

	if (!map->cap)
		return false;
	slot = find_slot(map->slots, map->cap, key, hash_text(key));
	if (!slot->key)
		return false;
	*value = slot->value;
	return true;
}

static int grow(struct adp_name_map *map)
{
	size_t cap = map->cap ? 2 * map->cap : 64;
	struct adp_name_slot *slots = adp_calloc(cap, sizeof *slots);

	if (!slots)
		return ADP_ENOMEM;
	for (size_t i = 0; i < map->cap; i++) {
		if (map->slots[i].key)
			*find_slot(slots, cap, map->slots[i].key, map->slots[i].hash) = map->slots[i];
	}
	adp_free(map->slots);
	map->slots = slots;
	map->cap = cap;
	return ADP_OK;
}

int adp_name_map_put(struct adp_name_map *map, const char *key, uint32_t value)
{
	uint64_t hash = hash_text(key);

	if (2 * (map->n + 1) > map->cap && grow(map))
		return ADP_ENOMEM;
	*find_slot(map->slots, map->cap, key, hash) = (struct adp_name_slot){key, hash, value};
	map->n++;
	return ADP_OK;
}
