/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "cluster/name.h"

enum { WARNING_NAMES = 3, MAX_WARNINGS = 64 };

struct adp_build_warning {
	const char *text;
	uint32_t n_nodes;
	const char *names[WARNING_NAMES + 1]; /* the first in name order */
};

int adp_build_init(struct adp_build *b, const struct adp_hardware *hw, struct adp_error *err)
{
	*b = (struct adp_build){.hw = hw};
	b->cluster = adp_calloc(1, sizeof *b->cluster);
	if (!b->cluster)
		return adp_nomem(err);
	b->cluster->name = "";
	return ADP_OK;
}

void adp_build_fini(struct adp_build *b)
{
	adp_cluster_destroy(b->cluster);
	adp_free(b->types);
	adp_free(b->nodes);
	adp_free(b->domains);
	adp_free(b->warnings);
	adp_name_map_fini(&b->type_of);
	adp_name_map_fini(&b->node_of);
	adp_name_map_fini(&b->warning_of);
	for (int kind = 0; kind <= ADP_DOMAIN_COOLING; kind++)
		adp_name_map_fini(&b->domain_of[kind]);
	*b = (struct adp_build){0};
}

/* Room for one more element in *array. */
static int reserve(void *array, size_t *cap, uint32_t n, size_t size, struct adp_error *err)
{
	void *old, *bigger;
	size_t want = *cap ? *cap + *cap / 2 : 16;

	if (n < *cap)
		return ADP_OK;
	memcpy(&old, array, sizeof old);
	bigger = adp_reallocarray(old, want, size);
	if (!bigger)
		return adp_nomem(err);
	memcpy(array, &bigger, sizeof bigger);
	*cap = want;
	return ADP_OK;
}

int adp_build_type(uint32_t *index, struct adp_build *b, const struct adp_gpu_type *type,
                   struct adp_error *err)
{
	struct adp_gpu_type copy = *type;
	const char **texts[] = {&copy.name, &copy.alias,      &copy.aka,    &copy.vendor,
	                        &copy.arch, &copy.mixes_with, &copy.source, &copy.unverified};
	int rc;

	if (adp_name_map_get(index, &b->type_of, type->name))
		return ADP_OK;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		*texts[i] = adp_arena_strdup(&b->cluster->arena, *texts[i]);
		if (!*texts[i])
			return adp_nomem(err);
	}
	rc = reserve(&b->types, &b->cap_types, b->n_types, sizeof *b->types, err);
	if (rc)
		return rc;
	if (adp_name_map_put(&b->type_of, copy.name, b->n_types))
		return adp_nomem(err);
	*index = b->n_types++;
	b->types[*index] = copy;
	return ADP_OK;
}

int adp_build_domain(uint32_t *index, struct adp_build *b, enum adp_domain_kind kind,
                     const char *name, struct adp_error *err)
{
	struct adp_build_domain added = {.domain.kind = kind};
	const struct adp_link_class *link;
	int rc;

	if (adp_name_map_get(index, &b->domain_of[kind], name))
		return ADP_OK;
	if (b->n_domains >= ADP_MAX_DOMAINS)
		return adp_fail(err, ADP_ELIMIT,
		                "more than %d NVLink, rack, spine, power and cooling domains",
		                ADP_MAX_DOMAINS);
	if (kind == ADP_DOMAIN_RACK || kind == ADP_DOMAIN_SPINE) {
		added.domain.uplink.kind = kind == ADP_DOMAIN_RACK ? ADP_LINK_RACK : ADP_LINK_SPINE;
		link = adp_hardware_link(b->hw, adp_link_name(added.domain.uplink.kind));
		added.domain.uplink.latency_s = link ? link->latency_s : 0;
	}
	added.domain.name = adp_arena_strdup(&b->cluster->arena, name);
	if (!added.domain.name)
		return adp_nomem(err);
	rc = reserve(&b->domains, &b->cap_domains, b->n_domains, sizeof *b->domains, err);
	if (rc)
		return rc;
	if (adp_name_map_put(&b->domain_of[kind], added.domain.name, b->n_domains))
		return adp_nomem(err);
	*index = b->n_domains++;
	b->domains[*index] = added;
	return ADP_OK;
}

void adp_build_usual_links(struct adp_node *node, const struct adp_gpu_type *type,
                           const struct adp_hardware *hw, uint32_t n_gpus)
{
	const struct adp_link_class *nvlink = adp_hardware_link(hw, "nvlink"),
								*nic = adp_hardware_link(hw, "nic");
	double rails = ceil((double)type->node_nics * n_gpus / type->node_gpus);

	node->gpu_link = (struct adp_link){.kind = ADP_LINK_PCIE,
	                                   .bytes_per_s = type->pcie_bytes_per_s};
	node->gpus_per_root = type->gpus_per_root < n_gpus ? type->gpus_per_root : n_gpus;
	for (uint32_t i = 0; i < hw->n_links; i++) { /* the class whose bandwidth the type has */
		if (strncmp(hw->links[i].name, "pcie", 4) == 0 &&
		    hw->links[i].bytes_per_s <= type->pcie_bytes_per_s)
			node->gpu_link.latency_s = hw->links[i].latency_s;
	}
	if (type->nvlink_domain_gpus && type->nvlink_bytes_per_s > 0) {
		node->gpu_link = (struct adp_link){.kind = ADP_LINK_NVLINK,
		                                   .bytes_per_s = type->nvlink_bytes_per_s,
		                                   .latency_s = nvlink ? nvlink->latency_s : 0};
		node->gpus_per_root = 1;
	}
	node->nic = (struct adp_link){.kind = ADP_LINK_NIC,
	                              .bytes_per_s = type->nic_bytes_per_s * n_gpus,
	                              .latency_s = nic ? nic->latency_s : 0};
	node->n_nics = rails < 1 ? 1 : (uint32_t)rails;
}

static int count_gpus(struct adp_build *b, const char *name, uint32_t n_gpus, struct adp_error *err)
{
	if (!n_gpus || n_gpus > ADP_MAX_NODE_GPUS)
		return adp_fail(err, ADP_EINVAL, "node %s: %u GPUs; a node has 1 to %d", name, n_gpus,
		                ADP_MAX_NODE_GPUS);
	if (b->n_gpus + n_gpus > ADP_MAX_GPUS)
		return adp_fail(err, ADP_ELIMIT, "more than %d GPUs; plan for a part of the cluster",
		                ADP_MAX_GPUS);
	b->n_gpus += n_gpus;
	return ADP_OK;
}

int adp_build_node(struct adp_node **out, struct adp_build *b, const char *name, uint32_t type,
                   uint32_t n_gpus, struct adp_error *err)
{
	struct adp_node node = {.type = type,
	                        .n_gpus = n_gpus,
	                        .nvlink_domain = ADP_NONE,
	                        .rack = ADP_NONE,
	                        .spine = ADP_NONE,
	                        .power = ADP_NONE,
	                        .cooling = ADP_NONE};
	char shown[80];
	int rc;

	adp_name_shown(shown, sizeof shown, name);
	if (!adp_name_is_host(name))
		return adp_fail(err, ADP_EINVAL,
		                "node name '%s' is not a host name: letters, digits, '.', '-' and '_', at "
		                "most %d",
		                shown, ADP_NAME_MAX);
	if (adp_build_has_node(b, name, NULL))
		return adp_fail(err, ADP_EINVAL, "node %s is given twice; name each node once", shown);
	if (b->n_nodes >= ADP_MAX_NODES)
		return adp_fail(err, ADP_ELIMIT, "more than %d nodes; plan for a part of the cluster",
		                ADP_MAX_NODES);
	rc = count_gpus(b, shown, n_gpus, err);
	if (!rc)
		rc = reserve(&b->nodes, &b->cap_nodes, b->n_nodes, sizeof *b->nodes, err);
	if (rc)
		return rc;
	node.name = adp_arena_strdup(&b->cluster->arena, name);
	if (!node.name || adp_name_map_put(&b->node_of, node.name, b->n_nodes))
		return adp_nomem(err);
	adp_build_usual_links(&node, &b->types[type], b->hw, n_gpus);
	b->nodes[b->n_nodes] = node;
	*out = &b->nodes[b->n_nodes++];
	return ADP_OK;
}

bool adp_build_has_node(const struct adp_build *b, const char *name, uint32_t *index)
{
	uint32_t found;

	if (!adp_name_map_get(&found, &b->node_of, name))
		return false;
	if (index)
		*index = found;
	return true;
}

/* ---- warnings ---------------------------------------------------------------------- */

static void keep_first_names(struct adp_build_warning *warning, const char *name)
{
	uint32_t n = warning->n_nodes < WARNING_NAMES ? warning->n_nodes : WARNING_NAMES;
	uint32_t at = n;

	while (at && adp_name_compare(name, warning->names[at - 1]) < 0) {
		warning->names[at] = warning->names[at - 1];
		at--;
	}
	if (at < WARNING_NAMES)
		warning->names[at] = name;
	warning->n_nodes++;
}

int adp_build_warn(struct adp_build *b, const char *node, const char *format, ...)
{
	char text[512], shown[80];
	uint32_t index;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (!adp_name_map_get(&index, &b->warning_of, text)) {
		const char *copy = adp_arena_strdup(&b->cluster->arena, text);

		if (!copy ||
		    reserve(&b->warnings, &b->cap_warnings, b->n_warnings, sizeof *b->warnings, NULL) ||
		    adp_name_map_put(&b->warning_of, copy, b->n_warnings))
			return ADP_ENOMEM;
		index = b->n_warnings++;
		b->warnings[index] = (struct adp_build_warning){.text = copy};
	}
	if (node) {
		const char *copy = adp_arena_strdup(&b->cluster->arena,
		                                    adp_name_shown(shown, sizeof shown, node));

		if (!copy)
			return ADP_ENOMEM;
		keep_first_names(&b->warnings[index], copy);
	}
	return ADP_OK;
}

static int compare_warnings(const void *a, const void *b)
{
	return strcmp(((const struct adp_build_warning *)a)->text,
	              ((const struct adp_build_warning *)b)->text);
}

static const char *warning_line(struct adp_arena *arena, const struct adp_build_warning *w)
{
	uint32_t n = w->n_nodes;

	if (!n)
		return w->text;
	if (n == 1)
		return adp_arena_printf(arena, "%s: node %s", w->text, w->names[0]);
	if (n == 2)
		return adp_arena_printf(arena, "%s: 2 nodes (%s, %s)", w->text, w->names[0], w->names[1]);
	return adp_arena_printf(arena, "%s: %u nodes (%s, %s, %s%s)", w->text, n, w->names[0],
	                        w->names[1], w->names[2], n > WARNING_NAMES ? ", ..." : "");
}

static int finish_warnings(struct adp_build *b, struct adp_error *err)
{
	struct adp_cluster *c = b->cluster;
	uint32_t n = b->n_warnings < MAX_WARNINGS ? b->n_warnings : MAX_WARNINGS;
	const char **lines = adp_arena_calloc(&c->arena, (size_t)n + 1, sizeof *lines);

	if (!lines)
		return adp_nomem(err);
	if (b->n_warnings)
		qsort(b->warnings, b->n_warnings, sizeof *b->warnings, compare_warnings);
	for (uint32_t i = 0; i < n; i++) {
		lines[i] = warning_line(&c->arena, &b->warnings[i]);
		if (!lines[i])
			return adp_nomem(err);
	}
	if (b->n_warnings > n) {
		lines[n] = adp_arena_printf(&c->arena, "%u more warnings are left out", b->n_warnings - n);
		if (!lines[n++])
			return adp_nomem(err);
	}
	c->warnings = lines;
	c->n_warnings = n;
	return ADP_OK;
}

/* ---- canonical order ---------------------------------------------------------------- */

/* Old index to new, for types and domains; and back. */
struct order {
	uint32_t *new_of, *old_of;
};

static void fini_order(struct order *order)
{
	adp_free(order->new_of);
	adp_free(order->old_of);
}

static int sort_order(struct order *order, uint32_t n,
                      int (*compare)(const void *, const void *, void *), struct adp_build *b,
                      struct adp_error *err)
{
	order->new_of = adp_calloc(n ? n : 1, sizeof *order->new_of);
	order->old_of = adp_calloc(n ? n : 1, sizeof *order->old_of);
	if (!order->new_of || !order->old_of)
		return adp_nomem(err);
	for (uint32_t i = 0; i < n; i++)
		order->old_of[i] = i;
	if (n)
		qsort_r(order->old_of, n, sizeof *order->old_of, compare, b);
	for (uint32_t i = 0; i < n; i++)
		order->new_of[order->old_of[i]] = i;
	return ADP_OK;
}

static int compare_types(const void *a, const void *b, void *ctx)
{
	const struct adp_build *build = ctx;
	const struct adp_gpu_type *left = &build->types[*(const uint32_t *)a],
							  *right = &build->types[*(const uint32_t *)b];
	double peak_left = adp_gpu_type_peak(left), peak_right = adp_gpu_type_peak(right);

	if (peak_left != peak_right)
		return peak_left > peak_right ? -1 : 1;
	return adp_name_compare(left->name, right->name);
}

static int compare_domains(const void *a, const void *b, void *ctx)
{
	const struct adp_build *build = ctx;
	const struct adp_build_domain *left = &build->domains[*(const uint32_t *)a];
	const struct adp_build_domain *right = &build->domains[*(const uint32_t *)b];
	int order;

	if (left->used != right->used) /* unused ones go to the end and are cut */
		return left->used ? -1 : 1;
	if (left->domain.kind != right->domain.kind)
		return left->domain.kind < right->domain.kind ? -1 : 1;
	order = adp_name_compare(left->domain.name, right->domain.name);
	return order ? order : (int)left->lone - (int)right->lone;
}

static int compare_u32(uint32_t a, uint32_t b)
{
	return a == b ? 0 : a < b ? -1 : 1;
}

static int compare_nodes(const void *a, const void *b)
{
	const struct adp_node *left = a, *right = b;
	int order = compare_u32(left->type, right->type);

	if (!order)
		order = compare_u32(left->spine, right->spine);
	if (!order)
		order = compare_u32(left->rack, right->rack);
	if (!order)
		order = compare_u32(left->nvlink_domain, right->nvlink_domain);
	return order ? order : adp_name_compare(left->name, right->name);
}

static int add_lone_domains(struct adp_build *b, struct adp_error *err)
{
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		struct adp_build_domain lone = {
			.domain = {.name = b->nodes[i].name, .kind = ADP_DOMAIN_NVLINK}, .lone = true};
		int rc;

		if (b->nodes[i].nvlink_domain != ADP_NONE)
			continue;
		rc = reserve(&b->domains, &b->cap_domains, b->n_domains, sizeof *b->domains, err);
		if (rc)
			return rc;
		b->nodes[i].nvlink_domain = b->n_domains;
		b->domains[b->n_domains++] = lone;
	}
	return ADP_OK;
}

static void mark_used(struct adp_build *b)
{
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		const struct adp_node *node = &b->nodes[i];
		const uint32_t indices[] = {node->nvlink_domain, node->rack, node->spine, node->power,
		                            node->cooling};

		for (size_t k = 0; k < 5; k++) {
			if (indices[k] != ADP_NONE)
				b->domains[indices[k]].used = true;
		}
	}
}

static void renumber_nodes(struct adp_build *b, const struct order *types,
                           const struct order *domains)
{
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		struct adp_node *node = &b->nodes[i];
		uint32_t *indices[] = {&node->nvlink_domain, &node->rack, &node->spine, &node->power,
		                       &node->cooling};

		node->type = types->new_of[node->type];
		for (size_t k = 0; k < 5; k++) {
			if (*indices[k] != ADP_NONE)
				*indices[k] = domains->new_of[*indices[k]];
		}
	}
	qsort(b->nodes, b->n_nodes, sizeof *b->nodes, compare_nodes);
}

/* Healthy nodes share one array of ones. */
static int share_speeds(struct adp_build *b, struct adp_error *err)
{
	uint32_t widest = 0;
	double *ones;

	for (uint32_t i = 0; i < b->n_nodes; i++) {
		if (b->nodes[i].n_gpus > widest)
			widest = b->nodes[i].n_gpus;
	}
	ones = adp_arena_calloc(&b->cluster->arena, widest, sizeof *ones);
	if (!ones)
		return adp_nomem(err);
	for (uint32_t i = 0; i < widest; i++)
		ones[i] = 1;
	for (uint32_t i = 0; i < b->n_nodes; i++) {
		if (!b->nodes[i].gpu_speed_frac)
			b->nodes[i].gpu_speed_frac = ones;
	}
	return ADP_OK;
}

static int copy_out(struct adp_build *b, const struct order *types, const struct order *domains,
                    struct adp_error *err)
{
	struct adp_cluster *c = b->cluster;
	struct adp_gpu_type *type = adp_arena_calloc(&c->arena, b->n_types, sizeof *type);
	struct adp_node *nodes = adp_arena_calloc(&c->arena, b->n_nodes, sizeof *nodes);
	struct adp_domain *domain;
	uint32_t n_used = 0;

	while (n_used < b->n_domains && b->domains[domains->old_of[n_used]].used)
		n_used++;
	domain = adp_arena_calloc(&c->arena, n_used, sizeof *domain);
	if (!type || !nodes || !domain)
		return adp_nomem(err);
	for (uint32_t i = 0; i < b->n_types; i++)
		type[i] = b->types[types->old_of[i]];
	for (uint32_t i = 0; i < n_used; i++)
		domain[i] = b->domains[domains->old_of[i]].domain;
	memcpy(nodes, b->nodes, b->n_nodes * sizeof *nodes);
	c->types = type;
	c->n_types = b->n_types;
	c->domains = domain;
	c->n_domains = n_used;
	c->nodes = nodes;
	c->n_nodes = b->n_nodes;
	return ADP_OK;
}

static int fail_empty(const struct adp_cluster *c, struct adp_error *err)
{
	struct adp_strbuf text = {0};
	int rc;

	for (uint32_t i = 0; i < c->n_warnings && i < 8; i++)
		adp_strbuf_addf(&text, "\n  %s", c->warnings[i]);
	if (text.failed)
		rc = adp_nomem(err);
	else
		rc = adp_fail(err, ADP_EINVAL, "no node with a usable GPU is left%s%s",
		              c->n_warnings ? ":"
		                            : "; list nodes "
		                              "with GPUs",
		              text.text ? text.text : "");
	adp_strbuf_fini(&text);
	return rc;
}

int adp_build_finish(struct adp_cluster **out, struct adp_build *b, struct adp_error *err)
{
	struct order types = {0}, domains = {0};
	int rc;

	rc = finish_warnings(b, err);
	if (!rc && !b->n_nodes)
		rc = fail_empty(b->cluster, err);
	if (!rc)
		rc = add_lone_domains(b, err);
	if (!rc) {
		mark_used(b);
		rc = sort_order(&types, b->n_types, compare_types, b, err);
	}
	if (!rc)
		rc = sort_order(&domains, b->n_domains, compare_domains, b, err);
	if (!rc) {
		renumber_nodes(b, &types, &domains);
		rc = share_speeds(b, err);
	}
	if (!rc)
		rc = copy_out(b, &types, &domains, err);
	fini_order(&types);
	fini_order(&domains);
	b->cluster->network_assumed = b->network_assumed;
	if (!rc)
		rc = adp_cluster_digest(b->cluster, err);
	if (rc)
		return rc;
	*out = b->cluster;
	b->cluster = NULL;
	return ADP_OK;
}
