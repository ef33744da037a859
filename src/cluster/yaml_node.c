/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/yaml_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/doc.h"
#include "cluster/name.h"
#include "cluster/yaml_values.h"

void adp_yaml_spec_init(struct adp_yaml_spec *spec)
{
	*spec = (struct adp_yaml_spec){
		.gpu_link = {.latency_s = -1, .load_frac = -1},
		.nic = {.latency_s = -1, .load_frac = -1},
	};
}

/* ---- reading ------------------------------------------------------------------------ */

static int read_link(struct adp_yaml_link *out, const json_t *object, const char *const *keys,
                     const char *path, struct adp_error *err)
{
	int rc = adp_doc_only(object, keys, path, err);

	if (!rc)
		rc = adp_yaml_bandwidth(&out->bytes_per_s, NULL, object, "bandwidth", path, err);
	if (!rc)
		rc = adp_yaml_duration(&out->latency_s, object, "latency", path, err);
	return rc ? rc : adp_yaml_load(&out->load_frac, object, "load", path, err);
}

static int read_links(struct adp_yaml_spec *spec, const json_t *object, const char *path,
                      struct adp_error *err)
{
	static const char *const keys[] = {"nvlink", "pcie", "nics", NULL};
	static const char *const nvlink_keys[] = {"bandwidth", "latency", "load", NULL};
	static const char *const pcie_keys[] = {"bandwidth", "latency", "load", "gpusPerRootPort",
	                                        NULL};
	static const char *const nic_keys[] = {"count", "bandwidth", "latency", "load", NULL};
	json_t *links, *nvlink, *pcie, *nics;
	char outer[80], inner[96];
	bool found, has_nvlink, has_pcie;
	int rc;

	rc = adp_doc_object(&links, &found, object, "links", path, err);
	if (rc || !found)
		return rc;
	snprintf(outer, sizeof outer, "%s.links", path);
	rc = adp_doc_only(links, keys, outer, err);
	if (!rc)
		rc = adp_doc_object(&nvlink, &has_nvlink, links, "nvlink", outer, err);
	if (!rc)
		rc = adp_doc_object(&pcie, &has_pcie, links, "pcie", outer, err);
	if (!rc)
		rc = adp_doc_object(&nics, &found, links, "nics", outer, err);
	if (rc)
		return rc;
	if (has_nvlink && has_pcie)
		return adp_fail(err, ADP_EINVAL,
		                "%s: nvlink and pcie both say how the GPUs of a node are joined; give one",
		                outer);
	if (has_nvlink || has_pcie) {
		if (spec->links && spec->nvlink != has_nvlink) /* the other kind: nothing carries over */
			spec->gpu_link = (struct adp_yaml_link){.latency_s = -1, .load_frac = -1};
		spec->links = true;
		spec->nvlink = has_nvlink;
		snprintf(inner, sizeof inner, "%s.%s", outer, has_nvlink ? "nvlink" : "pcie");
		rc = read_link(&spec->gpu_link, has_nvlink ? nvlink : pcie,
		               has_nvlink ? nvlink_keys : pcie_keys, inner, err);
		if (!rc && has_pcie)
			rc = adp_yaml_u32(&spec->gpus_per_root, NULL, pcie, "gpusPerRootPort", 1,
			                  ADP_MAX_NODE_GPUS, inner, err);
	}
	if (rc || !found)
		return rc;
	snprintf(inner, sizeof inner, "%s.nics", outer);
	rc = read_link(&spec->nic, nics, nic_keys, inner, err);
	return rc ? rc : adp_yaml_u32(&spec->n_nics, NULL, nics, "count", 1, 1024, inner, err);
}

static int read_place(struct adp_yaml_spec *spec, const json_t *object, const char *path,
                      struct adp_error *err)
{
	int rc = adp_yaml_name(&spec->rack, object, "rack", path, err);

	if (!rc)
		rc = adp_yaml_name(&spec->spine, object, "spine", path, err);
	if (!rc)
		rc = adp_yaml_name(&spec->nvlink_domain, object, "nvlinkDomain", path, err);
	if (!rc)
		rc = adp_yaml_name(&spec->power, object, "powerDomain", path, err);
	return rc ? rc : adp_yaml_name(&spec->cooling, object, "coolingDomain", path, err);
}

static int read_grouping(struct adp_yaml_spec *spec, const json_t *object, const char *path,
                         struct adp_error *err)
{
	int rc = adp_yaml_u32(&spec->nodes_per_rack, NULL, object, "nodesPerRack", 1, ADP_MAX_NODES,
	                      path, err);

	if (!rc)
		rc = adp_yaml_u32(&spec->first_rack, NULL, object, "firstRack", 0, ADP_MAX_NODES, path,
		                  err);
	if (!rc)
		rc = adp_yaml_u32(&spec->nodes_per_nvlink_domain, NULL, object, "nodesPerNvlinkDomain", 1,
		                  ADP_MAX_NODES, path, err);
	if (!rc && spec->nodes_per_rack && !spec->rack)
		return adp_fail(
			err, ADP_EINVAL,
			"%s.rack is missing; give the racks' name with a place for the number, such as "
			"'rack-{}'",
			path);
	if (!rc && spec->rack && adp_yaml_is_pattern(spec->rack) != (spec->nodes_per_rack > 0))
		return adp_fail(err, ADP_EINVAL,
		                "%s.nodesPerRack: a rack name with '{}' and nodesPerRack go together",
		                path);
	if (!rc && spec->nvlink_domain &&
	    adp_yaml_is_pattern(spec->nvlink_domain) != (spec->nodes_per_nvlink_domain > 0))
		return adp_fail(
			err, ADP_EINVAL,
			"%s.nodesPerNvlinkDomain: a name nvlinkDomain with '{}' and this key go together",
			path);
	return rc;
}

static int refuse_pattern(const char *text, const char *path, const char *key,
                          struct adp_error *err)
{
	if (!text || !adp_yaml_is_pattern(text))
		return ADP_OK;
	return adp_fail(
		err, ADP_EINVAL,
		"%s.%s: '%.60s' has a place for a number, which only rack and nvlinkDomain of a "
		"group may have",
		path, key, text);
}

int adp_yaml_spec_read(struct adp_yaml_spec *spec, const json_t *object, bool group,
                       const char *path, struct adp_error *err)
{
	const char *rack = spec->rack, *domain = spec->nvlink_domain;
	const json_t *health = json_object_get(object, "health");
	bool found;
	int rc;

	snprintf(spec->path, sizeof spec->path, "%s", path);
	rc = adp_doc_string(&spec->gpu, &found, object, "gpu", path, err);
	if (!rc)
		rc = adp_yaml_u32(&spec->n_gpus, NULL, object, group ? "gpusPerNode" : "gpus", 1,
		                  ADP_MAX_NODE_GPUS, path, err);
	if (!rc)
		rc = read_links(spec, object, path, err);
	if (!rc)
		rc = read_place(spec, object, path, err);
	if (!rc && group)
		rc = read_grouping(spec, object, path, err);
	if (!rc && !group && spec->rack != rack)
		rc = refuse_pattern(spec->rack, path, "rack", err);
	if (!rc && !group && spec->nvlink_domain != domain)
		rc = refuse_pattern(spec->nvlink_domain, path, "nvlinkDomain", err);
	if (!rc)
		rc = refuse_pattern(spec->spine, path, "spine", err);
	if (!rc && health && !json_is_null(health)) {
		spec->health = health;
		snprintf(spec->health_path, sizeof spec->health_path, "%s.health", path);
	}
	return rc;
}

/* ---- building ----------------------------------------------------------------------- */

static void overlay(struct adp_link *link, const struct adp_yaml_link *stated)
{
	if (stated->bytes_per_s > 0)
		link->bytes_per_s = stated->bytes_per_s;
	if (stated->latency_s >= 0)
		link->latency_s = stated->latency_s;
	if (stated->load_frac >= 0)
		link->load_frac = stated->load_frac;
}

static int set_gpu_link(struct adp_node *node, const struct adp_build *b,
                        const struct adp_yaml_spec *spec, struct adp_error *err)
{
	const struct adp_gpu_type *type = &b->types[node->type];
	const struct adp_link_class *nvlink = adp_hardware_link(b->hw, "nvlink");

	if (spec->links && spec->nvlink) {
		if (type->nvlink_bytes_per_s <= 0 && spec->gpu_link.bytes_per_s <= 0)
			return adp_fail(err, ADP_EINVAL,
			                "%s.links.nvlink.bandwidth is missing; %s has no usual one", spec->path,
			                type->alias);
		node->gpu_link = (struct adp_link){.kind = ADP_LINK_NVLINK,
		                                   .bytes_per_s = type->nvlink_bytes_per_s,
		                                   .latency_s = nvlink ? nvlink->latency_s : 0};
		node->gpus_per_root = 1;
	} else if (spec->links) {
		struct adp_gpu_type plain = *type;

		plain.nvlink_domain_gpus = 0; /* the same node with its NVLink left out */
		adp_build_usual_links(node, &plain, b->hw, node->n_gpus);
	}
	overlay(&node->gpu_link, &spec->gpu_link);
	if (spec->gpus_per_root)
		node->gpus_per_root = spec->gpus_per_root < node->n_gpus ? spec->gpus_per_root
		                                                         : node->n_gpus;
	return ADP_OK;
}

static int set_nics(struct adp_node *node, struct adp_build *b, const struct adp_yaml_spec *spec,
                    struct adp_error *err)
{
	const struct adp_gpu_type *type = &b->types[node->type];
	struct adp_yaml_link all = spec->nic;

	if (spec->n_nics)
		node->n_nics = spec->n_nics;
	all.bytes_per_s *= node->n_nics;
	overlay(&node->nic, &all);
	if (all.bytes_per_s > 0)
		return ADP_OK;
	b->network_assumed = true;
	if (adp_build_warn(b, node->name,
	                   "network of %s nodes is assumed, %.4g GB/s per GPU; state links.nics",
	                   type->alias, type->nic_bytes_per_s / 1e9))
		return adp_nomem(err);
	return ADP_OK;
}

static int read_speed(double *speed, uint32_t n, const json_t *value, const char *path,
                      struct adp_error *err)
{
	char what[112], *end;
	const char *key;
	json_t *member;
	size_t i;
	int rc;

	if (json_is_array(value)) {
		if (json_array_size(value) != n)
			return adp_fail(
				err, ADP_EINVAL,
				"%s: %zu numbers for %u GPUs; give one for each, or {GPU: speed} for some", path,
				json_array_size(value), n);
		json_array_foreach (value, i, member) {
			snprintf(what, sizeof what, "%s[%zu]", path, i);
			rc = adp_yaml_speed(&speed[i], member, what, err);
			if (rc)
				return rc;
		}
		return ADP_OK;
	}
	if (!json_is_object(value)) {
		rc = adp_yaml_speed(&speed[0], value, path, err);
		for (uint32_t k = 1; k < n && !rc; k++)
			speed[k] = speed[0];
		return rc;
	}
	json_object_foreach ((json_t *)value, key, member) {
		unsigned long gpu = *key >= '0' && *key <= '9' ? strtoul(key, &end, 10) : n;

		if (gpu >= n || *end)
			return adp_fail(err, ADP_EINVAL,
			                "%s: '%.20s' is no GPU of the node; they are numbered 0 to %u", path,
			                key, n - 1);
		snprintf(what, sizeof what, "%s.%lu", path, gpu);
		rc = adp_yaml_speed(&speed[gpu], member, what, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

static int set_health(struct adp_node *node, struct adp_build *b, const struct adp_yaml_spec *spec,
                      struct adp_error *err)
{
	double *speed;

	if (!spec->health)
		return ADP_OK;
	speed = adp_arena_calloc(&b->cluster->arena, node->n_gpus, sizeof *speed);
	if (!speed)
		return adp_nomem(err);
	for (uint32_t i = 0; i < node->n_gpus; i++)
		speed[i] = 1;
	node->gpu_speed_frac = speed;
	return read_speed(speed, node->n_gpus, spec->health, spec->health_path, err);
}

/* ---- domains ------------------------------------------------------------------------ */

static int refuse_unlisted(struct adp_yaml *yaml, enum adp_domain_kind kind, const char *name,
                           const char *place, struct adp_error *err)
{
	static const char *const lists[] = {"", "racks", "spines", "powerDomains", "coolingDomains"};
	const struct adp_build *b = yaml->build;
	const char *nearest = "";
	size_t least = SIZE_MAX;
	char shown[80];

	for (uint32_t i = 0; i < yaml->n_listed; i++) {
		size_t distance;

		if (b->domains[i].domain.kind != kind)
			continue;
		distance = adp_name_distance(name, b->domains[i].domain.name);
		if (distance < least) {
			least = distance;
			nearest = b->domains[i].domain.name;
		}
	}
	return adp_fail(err, ADP_EINVAL, "%s: '%s' is not in %s%s%.60s%s", place,
	                adp_name_shown(shown, sizeof shown, name), lists[kind],
	                *nearest ? "; did you mean '" : "; add it there", nearest,
	                *nearest ? "'?" : "");
}

static int join(uint32_t *index, struct adp_yaml *yaml, enum adp_domain_kind kind, const char *name,
                const char *path, const char *key, struct adp_error *err)
{
	char place[112];
	uint32_t known;

	if (!name)
		return ADP_OK;
	snprintf(place, sizeof place, "%s.%s", path, key);
	if (yaml->listed[kind] && !adp_name_map_get(&known, &yaml->build->domain_of[kind], name))
		return refuse_unlisted(yaml, kind, name, place, err);
	return adp_build_domain(index, yaml->build, kind, name, err);
}

static int join_rack(struct adp_node *node, struct adp_yaml *yaml, const struct adp_yaml_spec *spec,
                     uint64_t index, struct adp_error *err)
{
	char name[ADP_NAME_SIZE], place[112];
	uint32_t above = ADP_NONE;
	int rc;

	if (spec->rack) {
		uint64_t number = spec->nodes_per_rack ? spec->first_rack + index / spec->nodes_per_rack
		                                       : 0;

		snprintf(place, sizeof place, "%s.rack", spec->path);
		rc = adp_yaml_expand(name, spec->rack, number, place, err);
		if (!rc)
			rc = join(&node->rack, yaml, ADP_DOMAIN_RACK, name, spec->path, "rack", err);
		if (rc)
			return rc;
		if (node->rack < yaml->n_listed)
			above = yaml->spine_of_rack[node->rack];
	}
	rc = join(&node->spine, yaml, ADP_DOMAIN_SPINE, spec->spine, spec->path, "spine", err);
	if (rc || above == ADP_NONE)
		return rc;
	if (node->spine != ADP_NONE && node->spine != above)
		return adp_fail(
			err, ADP_EINVAL,
			"%s.spine: rack '%.60s' stands on spine '%.60s'; leave spine out, or change the "
			"rack",
			spec->path, name, yaml->build->domains[above].domain.name);
	node->spine = above;
	return ADP_OK;
}

static int join_nvlink(struct adp_node *node, struct adp_yaml *yaml,
                       const struct adp_yaml_spec *spec, uint64_t index, const char *group_name,
                       struct adp_error *err)
{
	const struct adp_gpu_type *type = &yaml->build->types[node->type];
	uint32_t nodes = spec->nodes_per_nvlink_domain;
	char name[ADP_NAME_SIZE], pattern[ADP_NAME_SIZE], place[112];
	int rc;

	if (node->gpu_link.kind != ADP_LINK_NVLINK) {
		if (!spec->nvlink_domain && !nodes)
			return ADP_OK;
		return adp_fail(
			err, ADP_EINVAL,
			"%s.nvlinkDomain: the GPUs of node %s are joined by PCIe; state links.nvlink",
			spec->path, node->name);
	}
	if (type->nvlink_domain_gpus && node->n_gpus > type->nvlink_domain_gpus && !spec->links &&
	    adp_build_warn(yaml->build, node->name,
	                   "%s: NVLink is counted between all %u GPUs of a node, but usually joins "
	                   "%u",
	                   type->alias, node->n_gpus, type->nvlink_domain_gpus))
		return adp_nomem(err);
	if (group_name && !spec->nvlink_domain && !nodes &&
	    type->nvlink_domain_gpus >= 2 * node->n_gpus &&
	    type->nvlink_domain_gpus > type->node_gpus) {
		nodes = type->nvlink_domain_gpus / node->n_gpus;
		if (adp_build_warn(yaml->build, node->name,
		                   "%s: %u nodes in a row are taken to share an NVLink domain; state "
		                   "nodesPerNvlinkDomain",
		                   type->alias, nodes))
			return adp_nomem(err);
	}
	if (!spec->nvlink_domain && nodes < 2)
		return ADP_OK;
	snprintf(place, sizeof place, "%s.nvlinkDomain", spec->path);
	snprintf(pattern, sizeof pattern, "%.200s-nvlink-{}", group_name ? group_name : "");
	rc = adp_yaml_expand(name, spec->nvlink_domain ? spec->nvlink_domain : pattern,
	                     nodes ? index / nodes : 0, place, err);
	return rc ? rc
	          : join(&node->nvlink_domain, yaml, ADP_DOMAIN_NVLINK, name, spec->path,
	                 "nvlinkDomain", err);
}

int adp_yaml_add_node(struct adp_yaml *yaml, const struct adp_yaml_spec *spec, const char *name,
                      uint64_t index, const char *group_name, struct adp_error *err)
{
	struct adp_build *b = yaml->build;
	const struct adp_gpu_type *type;
	char near[160], shown[80];
	struct adp_node *node;
	uint32_t type_index;
	int rc;

	if (!spec->gpu)
		return adp_fail(err, ADP_EINVAL, "%s.gpu is missing; name the GPU type, such as H100",
		                spec->path);
	type = adp_hardware_find(b->hw, spec->gpu, 0, near, sizeof near);
	if (!type)
		return adp_fail(
			err, ADP_EINVAL,
			"%s.gpu: '%s' names no single GPU type%s%s; describe another GPU under gpuTypes",
			spec->path, adp_name_shown(shown, sizeof shown, spec->gpu), near[0] ? ", nearest " : "",
			near);
	rc = adp_build_type(&type_index, b, type, err);
	if (!rc)
		rc = adp_build_node(&node, b, name, type_index,
		                    spec->n_gpus ? spec->n_gpus : type->node_gpus, err);
	if (rc)
		return adp_wrap(err, rc, "%s", spec->path);
	rc = set_gpu_link(node, b, spec, err);
	if (!rc)
		rc = set_nics(node, b, spec, err);
	if (!rc)
		rc = set_health(node, b, spec, err);
	if (!rc)
		rc = join_nvlink(node, yaml, spec, index, group_name, err);
	if (!rc)
		rc = join_rack(node, yaml, spec, index, err);
	if (!rc)
		rc = join(&node->power, yaml, ADP_DOMAIN_POWER, spec->power, spec->path, "powerDomain",
		          err);
	return rc ? rc
	          : join(&node->cooling, yaml, ADP_DOMAIN_COOLING, spec->cooling, spec->path,
	                 "coolingDomain", err);
}
