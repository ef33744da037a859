/* SPDX-License-Identifier: Apache-2.0 */
/* Our own description of a cluster: docs/cluster.md. */
#include "cluster/cluster_yaml.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/doc.h"
#include "cluster/name.h"
#include "cluster/yaml_node.h"
#include "cluster/yaml_types.h"
#include "cluster/yaml_values.h"

/* Entries of `nodes` by name, and whether a group has taken them. */
struct changes {
	struct adp_name_map index_of;
	const json_t *list;
	bool *used;
};

/* ---- racks, spines, power, cooling --------------------------------------------------- */

static int read_uplink(struct adp_link *link, const json_t *object, const char *path,
                       struct adp_error *err)
{
	static const char *const keys[] = {"bandwidth", "latency", "load", NULL};
	json_t *uplink;
	char inner[64];
	bool found;
	int rc = adp_doc_object(&uplink, &found, object, "uplink", path, err);

	if (rc || !found)
		return rc;
	snprintf(inner, sizeof inner, "%s.uplink", path);
	rc = adp_doc_only(uplink, keys, inner, err);
	if (!rc)
		rc = adp_yaml_bandwidth(&link->bytes_per_s, NULL, uplink, "bandwidth", inner, err);
	if (!rc)
		rc = adp_yaml_duration(&link->latency_s, uplink, "latency", inner, err);
	if (!rc)
		rc = adp_yaml_load(&link->load_frac, uplink, "load", inner, err);
	if (!rc && link->load_frac > 0 && link->bytes_per_s <= 0)
		return adp_fail(err, ADP_EINVAL,
		                "%s.bandwidth is missing; a load needs the bandwidth it takes a part of",
		                inner);
	return rc;
}

/* New in the file: a name listed twice would leave open which entry counts. */
static int add_listed(uint32_t *index, struct adp_yaml *yaml, enum adp_domain_kind kind,
                      const char *name, const char *path, struct adp_error *err)
{
	uint32_t known;
	char shown[80];

	if (adp_name_map_get(&known, &yaml->build->domain_of[kind], name))
		return adp_fail(err, ADP_EINVAL, "%s.name: '%s' is listed twice", path,
		                adp_name_shown(shown, sizeof shown, name));
	return adp_build_domain(index, yaml->build, kind, name, err);
}

static int read_switch(struct adp_yaml *yaml, enum adp_domain_kind kind, uint32_t *spine_of,
                       const json_t *object, const char *path, struct adp_error *err)
{
	static const char *const rack_keys[] = {"name", "count", "firstIndex", "spine", "uplink", NULL};
	static const char *const spine_keys[] = {"name", "count", "firstIndex", "uplink", NULL};
	const char *pattern = NULL, *spine = NULL;
	uint32_t count = 1, first = 0, index;
	char name[ADP_NAME_SIZE], place[80];
	int rc;

	rc = adp_doc_only(object, kind == ADP_DOMAIN_RACK ? rack_keys : spine_keys, path, err);
	if (!rc)
		rc = adp_doc_string(&pattern, NULL, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_name(&pattern, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_u32(&count, NULL, object, "count", 1, ADP_MAX_NODES, path, err);
	if (!rc)
		rc = adp_yaml_u32(&first, NULL, object, "firstIndex", 0, ADP_MAX_NODES, path, err);
	if (!rc && kind == ADP_DOMAIN_RACK)
		rc = adp_yaml_name(&spine, object, "spine", path, err);
	if (rc)
		return rc;
	snprintf(place, sizeof place, "%s.name", path);
	if (count > 1 && !adp_yaml_is_pattern(pattern))
		return adp_fail(err, ADP_EINVAL,
		                "%s: with a count the name needs a place for the number, such as 'rack-{}'",
		                place);
	*spine_of = ADP_NONE;
	if (spine && !adp_name_map_get(spine_of, &yaml->build->domain_of[ADP_DOMAIN_SPINE], spine)) {
		if (yaml->listed[ADP_DOMAIN_SPINE])
			return adp_fail(err, ADP_EINVAL, "%s.spine: '%.60s' is not in spines", path, spine);
		rc = adp_build_domain(spine_of, yaml->build, ADP_DOMAIN_SPINE, spine, err);
	}
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = adp_yaml_expand(name, pattern, (uint64_t)first + i, place, err);
		if (!rc)
			rc = add_listed(&index, yaml, kind, name, path, err);
		if (!rc)
			rc = read_uplink(&yaml->build->domains[index].domain.uplink, object, path, err);
	}
	return rc;
}

/* Remembers the spine of the racks an entry made: those from first_new on. */
static int note_spines(struct adp_yaml *yaml, uint32_t first_new, uint32_t spine,
                       struct adp_error *err)
{
	uint32_t n = yaml->build->n_domains;
	uint32_t *grown = adp_reallocarray(yaml->spine_of_rack, n ? n : 1, sizeof *grown);

	if (!grown)
		return adp_nomem(err);
	yaml->spine_of_rack = grown;
	for (uint32_t i = yaml->n_listed; i < n; i++)
		grown[i] = i < first_new ? ADP_NONE : spine;
	yaml->n_listed = n;
	return ADP_OK;
}

static int read_switches(struct adp_yaml *yaml, enum adp_domain_kind kind, const char *key,
                         const json_t *document, struct adp_error *err)
{
	json_t *list, *item;
	char path[48];
	size_t i;
	int rc;

	rc = adp_doc_array(&list, &yaml->listed[kind], document, key, "", err);
	if (rc || !yaml->listed[kind])
		return rc;
	json_array_foreach (list, i, item) {
		uint32_t before = yaml->build->n_domains, spine;

		snprintf(path, sizeof path, "%s[%zu]", key, i);
		rc = read_switch(yaml, kind, &spine, item, path, err);
		if (!rc)
			rc = note_spines(yaml, before, kind == ADP_DOMAIN_RACK ? spine : ADP_NONE, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int read_budgets(struct adp_yaml *yaml, enum adp_domain_kind kind, const char *key,
                        const json_t *document, struct adp_error *err)
{
	static const char *const keys[] = {"name", "limit", NULL};
	json_t *list, *item;
	char path[48];
	size_t i;
	int rc;

	rc = adp_doc_array(&list, &yaml->listed[kind], document, key, "", err);
	if (rc || !yaml->listed[kind])
		return rc;
	json_array_foreach (list, i, item) {
		const char *name = NULL;
		uint32_t index;

		snprintf(path, sizeof path, "%s[%zu]", key, i);
		rc = adp_doc_only(item, keys, path, err);
		if (!rc)
			rc = adp_doc_string(&name, NULL, item, "name", path, err);
		if (!rc)
			rc = adp_yaml_name(&name, item, "name", path, err);
		if (!rc)
			rc = add_listed(&index, yaml, kind, name, path, err);
		if (!rc)
			rc = adp_yaml_watts(&yaml->build->domains[index].domain.limit_w, NULL, item, "limit",
			                    path, err);
		if (rc)
			return rc;
	}
	return note_spines(yaml, yaml->build->n_domains, ADP_NONE, err);
}

static int read_domains(struct adp_yaml *yaml, const json_t *document, struct adp_error *err)
{
	int rc = read_switches(yaml, ADP_DOMAIN_SPINE, "spines", document, err);

	if (!rc)
		rc = read_switches(yaml, ADP_DOMAIN_RACK, "racks", document, err);
	if (!rc)
		rc = read_budgets(yaml, ADP_DOMAIN_POWER, "powerDomains", document, err);
	return rc ? rc : read_budgets(yaml, ADP_DOMAIN_COOLING, "coolingDomains", document, err);
}

/* ---- nodes -------------------------------------------------------------------------- */

static int index_changes(struct changes *changes, const json_t *document, struct adp_error *err)
{
	static const char *const keys[] = {
		"name",         "gpu",         "gpus",          "links",  "rack", "spine",
		"nvlinkDomain", "powerDomain", "coolingDomain", "health", NULL};
	json_t *list, *item;
	char path[48];
	bool found;
	size_t i;
	int rc;

	rc = adp_doc_array(&list, &found, document, "nodes", "", err);
	if (rc || !found)
		return rc;
	if (json_array_size(list) > ADP_MAX_NODES)
		return adp_fail(err, ADP_ELIMIT, "nodes: more than %d", ADP_MAX_NODES);
	changes->list = list;
	changes->used = adp_calloc(json_array_size(list) + 1, sizeof *changes->used);
	if (!changes->used)
		return adp_nomem(err);
	json_array_foreach (list, i, item) {
		const char *name;
		uint32_t known;

		snprintf(path, sizeof path, "nodes[%zu]", i);
		rc = adp_doc_only(item, keys, path, err);
		if (!rc)
			rc = adp_doc_string(&name, NULL, item, "name", path, err);
		if (rc)
			return rc;
		if (adp_name_map_get(&known, &changes->index_of, name))
			return adp_fail(err, ADP_EINVAL,
			                "%s.name: '%.60s' is listed twice; put both entries together", path,
			                name);
		if (adp_name_map_put(&changes->index_of, name, (uint32_t)i))
			return adp_nomem(err);
	}
	return ADP_OK;
}

static int add_group_node(struct adp_yaml *yaml, const struct adp_yaml_spec *group,
                          struct changes *changes, const char *name, uint64_t index,
                          const char *group_name, struct adp_error *err)
{
	struct adp_yaml_spec spec;
	char path[48];
	uint32_t change;
	int rc;

	if (!changes->used || !adp_name_map_get(&change, &changes->index_of, name))
		return adp_yaml_add_node(yaml, group, name, index, group_name, err);
	spec = *group;
	changes->used[change] = true;
	snprintf(path, sizeof path, "nodes[%u]", change);
	rc = adp_yaml_spec_read(&spec, json_array_get(changes->list, change), false, path, err);
	return rc ? rc : adp_yaml_add_node(yaml, &spec, name, index, group_name, err);
}

static int read_names(struct adp_yaml *yaml, const struct adp_yaml_spec *spec,
                      struct changes *changes, const json_t *names, const char *group_name,
                      struct adp_error *err)
{
	const json_t *name;
	int rc = ADP_OK;
	size_t i;

	json_array_foreach ((json_t *)names, i, name) {
		if (!json_is_string(name))
			return adp_fail(err, ADP_EINVAL, "%s.nodeNames[%zu]: give a node name as text",
			                spec->path, i);
		rc = add_group_node(yaml, spec, changes, json_string_value(name), i, group_name, err);
		if (rc)
			break;
	}
	return rc;
}

static int read_group(struct adp_yaml *yaml, struct changes *changes, const json_t *object,
                      const char *path, struct adp_error *err)
{
	static const char *const keys[] = {
		"name",         "count",
		"nodeName",     "firstIndex",
		"nodeNames",    "gpu",
		"gpusPerNode",  "links",
		"rack",         "nodesPerRack",
		"firstRack",    "spine",
		"nvlinkDomain", "nodesPerNvlinkDomain",
		"powerDomain",  "coolingDomain",
		"health",       NULL,
	};
	const char *name = NULL, *pattern = NULL;
	char usual[ADP_NAME_SIZE], node[ADP_NAME_SIZE], place[80];
	uint32_t count = 1, first = 0;
	struct adp_yaml_spec spec;
	bool has_count, has_names;
	json_t *names;
	int rc;

	adp_yaml_spec_init(&spec);
	rc = adp_doc_only(object, keys, path, err);
	if (!rc)
		rc = adp_doc_string(&name, NULL, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_name(&name, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_u32(&count, &has_count, object, "count", 1, ADP_MAX_NODES, path, err);
	if (!rc)
		rc = adp_yaml_u32(&first, NULL, object, "firstIndex", 0, UINT32_MAX / 2, path, err);
	if (!rc)
		rc = adp_yaml_name(&pattern, object, "nodeName", path, err);
	if (!rc)
		rc = adp_doc_array(&names, &has_names, object, "nodeNames", path, err);
	if (!rc)
		rc = adp_yaml_spec_read(&spec, object, true, path, err);
	if (rc)
		return rc;
	if (has_names && (has_count || pattern))
		return adp_fail(err, ADP_EINVAL,
		                "%s.nodeNames: lists all nodes; leave count and nodeName out", path);
	if (has_names)
		return read_names(yaml, &spec, changes, names, name, err);
	snprintf(usual, sizeof usual, "%.240s-{}", name);
	if (!pattern)
		pattern = usual;
	snprintf(place, sizeof place, "%s.nodeName", path);
	if (count > 1 && !adp_yaml_is_pattern(pattern))
		return adp_fail(err, ADP_EINVAL,
		                "%s: with a count it needs a place for the number, such as 'gpu-{}'",
		                place);
	for (uint32_t i = 0; i < count && !rc; i++) {
		rc = adp_yaml_expand(node, pattern, (uint64_t)first + i, place, err);
		if (!rc)
			rc = add_group_node(yaml, &spec, changes, node, i, name, err);
	}
	return rc;
}

/* Entries of `nodes` that no group has taken are nodes of their own. */
static int read_others(struct adp_yaml *yaml, struct changes *changes, struct adp_error *err)
{
	json_t *item;
	char path[48];
	size_t i;

	json_array_foreach (changes->list, i, item) {
		const char *name = json_string_value(json_object_get(item, "name"));
		struct adp_yaml_spec spec;
		int rc;

		if (changes->used[i])
			continue;
		snprintf(path, sizeof path, "nodes[%zu]", i);
		adp_yaml_spec_init(&spec);
		rc = adp_yaml_spec_read(&spec, item, false, path, err);
		if (!rc && !spec.gpu)
			rc = adp_fail(
				err, ADP_EINVAL,
				"%s: no group has a node '%.60s'; correct the name, or give gpu to add a node",
				path, name);
		if (!rc)
			rc = adp_yaml_add_node(yaml, &spec, name, 0, NULL, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int read_groups(struct adp_yaml *yaml, struct changes *changes, const json_t *document,
                       struct adp_error *err)
{
	json_t *list, *item;
	char path[48];
	bool found;
	size_t i;
	int rc;

	rc = adp_doc_array(&list, &found, document, "nodeGroups", "", err);
	if (rc)
		return rc;
	if (!found && !changes->list)
		return adp_fail(err, ADP_EINVAL,
		                "nodeGroups is missing; give at least one group, or nodes");
	if (!found)
		return ADP_OK;
	json_array_foreach (list, i, item) {
		snprintf(path, sizeof path, "nodeGroups[%zu]", i);
		rc = read_group(yaml, changes, item, path, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

/* ---- document ----------------------------------------------------------------------- */

static int read_head(struct adp_build *b, const json_t *document, struct adp_error *err)
{
	static const char *const keys[] = {
		"apiVersion",   "kind",           "metadata",   "gpuTypes", "spines", "racks",
		"powerDomains", "coolingDomains", "nodeGroups", "nodes",    NULL};
	static const char *const metadata_keys[] = {"name", NULL};
	const char *version, *name = NULL;
	json_t *metadata;
	bool found = false;
	int rc;

	rc = adp_doc_string(&version, NULL, document, "apiVersion", "", err);
	if (!rc && strcmp(version, ADP_CLUSTER_API_VERSION) != 0)
		rc = adp_fail(err, ADP_EINVAL,
		              "apiVersion is '%.60s'; this version reads " ADP_CLUSTER_API_VERSION,
		              version);
	if (!rc)
		rc = adp_doc_only(document, keys, "", err);
	if (!rc)
		rc = adp_doc_object(&metadata, &found, document, "metadata", "", err);
	if (rc || !found)
		return rc;
	rc = adp_doc_only(metadata, metadata_keys, "metadata", err);
	if (!rc)
		rc = adp_yaml_name(&name, metadata, "name", "metadata", err);
	if (rc || !name)
		return rc;
	b->cluster->name = adp_arena_strdup(&b->cluster->arena, name);
	return b->cluster->name ? ADP_OK : adp_nomem(err);
}

int adp_cluster_yaml(struct adp_build *b, const json_t *document, struct adp_error *err)
{
	struct adp_yaml yaml = {.build = b};
	struct changes changes = {.list = NULL};
	int rc;

	rc = read_head(b, document, err);
	if (!rc)
		rc = adp_yaml_types(&b->hw, &b->cluster->arena, b->hw, document, err);
	if (!rc)
		rc = read_domains(&yaml, document, err);
	if (!rc)
		rc = index_changes(&changes, document, err);
	if (!rc)
		rc = read_groups(&yaml, &changes, document, err);
	if (!rc)
		rc = read_others(&yaml, &changes, err);
	adp_free(yaml.spine_of_rack);
	adp_free(changes.used);
	adp_name_map_fini(&changes.index_of);
	return rc;
}
