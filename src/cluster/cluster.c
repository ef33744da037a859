/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/cluster.h"

#include <string.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "cluster/cluster_build.h"

const char *adp_link_name(enum adp_link_kind kind)
{
	static const char *const names[] = {
		[ADP_LINK_NVLINK] = "nvlink", [ADP_LINK_PCIE] = "pcie",   [ADP_LINK_NIC] = "nic",
		[ADP_LINK_RACK] = "rack",     [ADP_LINK_SPINE] = "spine",
	};

	return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "?";
}

void adp_cluster_destroy(struct adp_cluster *cluster)
{
	struct adp_arena arena;

	if (!cluster)
		return;
	arena = cluster->arena;
	adp_arena_fini(&arena);
	adp_free(cluster);
}

uint64_t adp_cluster_n_gpus(const struct adp_cluster *cluster)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < cluster->n_nodes; i++)
		n += cluster->nodes[i].n_gpus;
	return n;
}

/* ---- digest ------------------------------------------------------------------------- */

/* Hashes in blocks, each one starting with the digest of the block before it. */
struct digester {
	size_t len;
	unsigned char block[1 << 16];
};

static void close_block(struct digester *d)
{
	char digest[ADP_DIGEST_SIZE];

	adp_digest(digest, d->block, d->len);
	memcpy(d->block, digest, sizeof digest);
	d->len = sizeof digest;
}

static void feed(struct digester *d, const void *bytes, size_t len)
{
	const unsigned char *from = bytes;

	while (len) {
		size_t part = sizeof d->block - d->len < len ? sizeof d->block - d->len : len;

		memcpy(d->block + d->len, from, part);
		d->len += part;
		from += part;
		len -= part;
		if (d->len == sizeof d->block)
			close_block(d);
	}
}

static void feed_text(struct digester *d, const char *text)
{
	feed(d, text, strlen(text) + 1);
}

static void feed_u64(struct digester *d, uint64_t number)
{
	unsigned char bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(number >> (8 * i));
	feed(d, bytes, sizeof bytes);
}

static void feed_real(struct digester *d, double number)
{
	uint64_t bits;

	memcpy(&bits, &number, sizeof bits);
	feed_u64(d, bits);
}

static void feed_link(struct digester *d, const struct adp_link *link)
{
	feed_u64(d, link->kind);
	feed_real(d, link->bytes_per_s);
	feed_real(d, link->latency_s);
	feed_real(d, link->load_frac);
}

static void feed_type(struct digester *d, const struct adp_gpu_type *type)
{
	feed_text(d, type->name);
	feed_text(d, type->alias);
	feed_text(d, type->vendor);
	feed_text(d, type->arch);
	feed_u64(d, type->compute_capability);
	feed_u64(d, type->memory_bytes);
	feed_real(d, type->memory_bytes_per_s);
	for (int i = 0; i < ADP_N_PRECISIONS; i++)
		feed_real(d, type->peak_flops_per_s[i]);
	feed_real(d, type->measured_bf16_flops_per_s);
	feed_real(d, type->nvlink_bytes_per_s);
	feed_u64(d, type->nvlink_domain_gpus);
	feed_real(d, type->pcie_bytes_per_s);
	feed_real(d, type->nic_bytes_per_s);
	feed_u64(d, type->node_gpus);
	feed_real(d, type->tdp_w);
	feed_real(d, type->min_power_w);
}

static void feed_node(struct digester *d, const struct adp_node *node)
{
	const uint32_t numbers[] = {node->type,   node->n_gpus,        node->gpus_per_root,
	                            node->n_nics, node->nvlink_domain, node->rack,
	                            node->spine,  node->power,         node->cooling};

	feed_text(d, node->name);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		feed_u64(d, numbers[i]);
	feed_link(d, &node->gpu_link);
	feed_link(d, &node->nic);
	for (uint32_t i = 0; i < node->n_gpus; i++)
		feed_real(d, node->gpu_speed_frac[i]);
}

int adp_cluster_digest(struct adp_cluster *cluster, struct adp_error *err)
{
	struct digester *d = adp_calloc(1, sizeof *d);
	char digest[ADP_DIGEST_SIZE];

	if (!d)
		return adp_nomem(err);
	feed_u64(d, cluster->n_types);
	for (uint32_t i = 0; i < cluster->n_types; i++)
		feed_type(d, &cluster->types[i]);
	feed_u64(d, cluster->n_domains);
	for (uint32_t i = 0; i < cluster->n_domains; i++) {
		feed_text(d, cluster->domains[i].name);
		feed_u64(d, cluster->domains[i].kind);
		feed_link(d, &cluster->domains[i].uplink);
		feed_real(d, cluster->domains[i].limit_w);
	}
	feed_u64(d, cluster->n_nodes);
	for (uint32_t i = 0; i < cluster->n_nodes; i++)
		feed_node(d, &cluster->nodes[i]);
	adp_digest(digest, d->block, d->len);
	adp_free(d);
	cluster->digest = adp_arena_strdup(&cluster->arena, digest);
	return cluster->digest ? ADP_OK : adp_nomem(err);
}

/* ---- variants ------------------------------------------------------------------------ */

enum { N_NODE_DOMAINS = 5 };

static void node_domains(uint32_t *out[N_NODE_DOMAINS], struct adp_node *node)
{
	out[0] = &node->nvlink_domain;
	out[1] = &node->rack;
	out[2] = &node->spine;
	out[3] = &node->power;
	out[4] = &node->cooling;
}

/* Which nodes, types and domains of `from` stay, and their new numbers. */
struct selection {
	bool *node;
	uint32_t *type, *domain; /* ADP_NONE = dropped */
	uint32_t n_nodes, n_types, n_domains;
};

static void fini_selection(struct selection *s)
{
	adp_free(s->node);
	adp_free(s->type);
	adp_free(s->domain);
}

static uint32_t number_kept(uint32_t *index, uint32_t n)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (index[i] != ADP_NONE)
			index[i] = next++;
	}
	return next;
}

static int select_nodes(struct selection *s, const struct adp_cluster *from,
                        bool (*keep)(const struct adp_cluster *, const struct adp_node *, void *),
                        void *ctx, struct adp_error *err)
{
	s->node = adp_calloc(from->n_nodes + (size_t)1, sizeof *s->node);
	s->type = adp_malloc((from->n_types + (size_t)1) * sizeof *s->type);
	s->domain = adp_malloc((from->n_domains + (size_t)1) * sizeof *s->domain);
	if (!s->node || !s->type || !s->domain)
		return adp_nomem(err);
	memset(s->type, 0xff, from->n_types * sizeof *s->type);
	memset(s->domain, 0xff, from->n_domains * sizeof *s->domain);
	for (uint32_t i = 0; i < from->n_nodes; i++) {
		struct adp_node node = from->nodes[i];
		uint32_t *domains[N_NODE_DOMAINS];

		if (keep && !keep(from, &from->nodes[i], ctx))
			continue;
		s->node[i] = true;
		s->n_nodes++;
		s->type[node.type] = 0;
		node_domains(domains, &node);
		for (int k = 0; k < N_NODE_DOMAINS; k++) {
			if (*domains[k] != ADP_NONE)
				s->domain[*domains[k]] = 0;
		}
	}
	s->n_types = number_kept(s->type, from->n_types);
	s->n_domains = number_kept(s->domain, from->n_domains);
	return s->n_nodes ? ADP_OK : adp_fail(err, ADP_EINFEASIBLE, "no node of the cluster is left");
}

static const char *copy_text(struct adp_cluster *to, const char *text, bool *failed)
{
	char *copy = adp_arena_strdup(&to->arena, text);

	*failed |= !copy;
	return copy;
}

static int copy_types(struct adp_cluster *to, const struct adp_cluster *from,
                      const struct selection *s, struct adp_error *err)
{
	struct adp_gpu_type *types = adp_arena_calloc(&to->arena, s->n_types, sizeof *types);
	bool failed = false;

	if (!types)
		return adp_nomem(err);
	for (uint32_t i = 0; i < from->n_types; i++) {
		struct adp_gpu_type *type;

		if (s->type[i] == ADP_NONE)
			continue;
		type = &types[s->type[i]];
		*type = from->types[i];
		type->name = copy_text(to, type->name, &failed);
		type->alias = copy_text(to, type->alias, &failed);
		type->aka = copy_text(to, type->aka, &failed);
		type->vendor = copy_text(to, type->vendor, &failed);
		type->arch = copy_text(to, type->arch, &failed);
		type->mixes_with = copy_text(to, type->mixes_with, &failed);
		type->source = copy_text(to, type->source, &failed);
		type->unverified = copy_text(to, type->unverified, &failed);
	}
	to->types = types;
	to->n_types = s->n_types;
	return failed ? adp_nomem(err) : ADP_OK;
}

static int copy_domains(struct adp_cluster *to, const struct adp_cluster *from,
                        const struct selection *s, unsigned flags, struct adp_error *err)
{
	struct adp_domain *domains = adp_arena_calloc(&to->arena, s->n_domains, sizeof *domains);
	bool failed = false;

	if (!domains)
		return adp_nomem(err);
	for (uint32_t i = 0; i < from->n_domains; i++) {
		struct adp_domain *domain;

		if (s->domain[i] == ADP_NONE)
			continue;
		domain = &domains[s->domain[i]];
		*domain = from->domains[i];
		domain->name = copy_text(to, domain->name, &failed);
		if (flags & ADP_CLUSTER_IDLE)
			domain->uplink.load_frac = 0;
	}
	to->domains = domains;
	to->n_domains = s->n_domains;
	return failed ? adp_nomem(err) : ADP_OK;
}

static int copy_speeds(struct adp_node *node, struct adp_cluster *to, const double *ones,
                       unsigned flags, struct adp_error *err)
{
	const double *from = node->gpu_speed_frac;
	double *copy;

	node->gpu_speed_frac = ones;
	if ((flags & ADP_CLUSTER_HEALTHY) || memcmp(from, ones, node->n_gpus * sizeof *from) == 0)
		return ADP_OK;
	copy = adp_arena_calloc(&to->arena, node->n_gpus, sizeof *copy);
	if (!copy)
		return adp_nomem(err);
	memcpy(copy, from, node->n_gpus * sizeof *copy);
	node->gpu_speed_frac = copy;
	return ADP_OK;
}

static int copy_nodes(struct adp_cluster *to, const struct adp_cluster *from,
                      const struct selection *s, unsigned flags, struct adp_error *err)
{
	struct adp_node *nodes = adp_arena_calloc(&to->arena, s->n_nodes, sizeof *nodes), *node = nodes;
	double *ones = adp_arena_calloc(&to->arena, ADP_MAX_NODE_GPUS, sizeof *ones);
	bool failed = false;

	if (!nodes || !ones)
		return adp_nomem(err);
	for (int i = 0; i < ADP_MAX_NODE_GPUS; i++)
		ones[i] = 1;
	for (uint32_t i = 0; i < from->n_nodes; i++) {
		uint32_t *domains[N_NODE_DOMAINS];
		int rc;

		if (!s->node[i])
			continue;
		*node = from->nodes[i];
		node->name = copy_text(to, node->name, &failed);
		node->type = s->type[node->type];
		node_domains(domains, node);
		for (int k = 0; k < N_NODE_DOMAINS; k++) {
			if (*domains[k] != ADP_NONE)
				*domains[k] = s->domain[*domains[k]];
		}
		if (flags & ADP_CLUSTER_IDLE)
			node->gpu_link.load_frac = node->nic.load_frac = 0;
		rc = copy_speeds(node, to, ones, flags, err);
		if (rc)
			return rc;
		node++;
	}
	to->nodes = nodes;
	to->n_nodes = s->n_nodes;
	return failed ? adp_nomem(err) : ADP_OK;
}

static int copy_warnings(struct adp_cluster *to, const struct adp_cluster *from,
                         struct adp_error *err)
{
	const char **lines = adp_arena_calloc(&to->arena, from->n_warnings, sizeof *lines);
	bool failed = false;

	if (!lines)
		return adp_nomem(err);
	for (uint32_t i = 0; i < from->n_warnings; i++)
		lines[i] = copy_text(to, from->warnings[i], &failed);
	to->name = copy_text(to, from->name, &failed);
	to->warnings = lines;
	to->n_warnings = from->n_warnings;
	return failed ? adp_nomem(err) : ADP_OK;
}

int adp_cluster_variant(struct adp_cluster **out, const struct adp_cluster *from,
                        bool (*keep)(const struct adp_cluster *c, const struct adp_node *node,
                                     void *ctx),
                        void *ctx, unsigned flags, struct adp_error *err)
{
	struct selection selection = {0};
	struct adp_cluster *to = adp_calloc(1, sizeof *to);
	int rc;

	*out = NULL;
	rc = to ? select_nodes(&selection, from, keep, ctx, err) : adp_nomem(err);
	if (!rc)
		rc = copy_types(to, from, &selection, err);
	if (!rc)
		rc = copy_domains(to, from, &selection, flags, err);
	if (!rc)
		rc = copy_nodes(to, from, &selection, flags, err);
	if (!rc)
		rc = copy_warnings(to, from, err);
	fini_selection(&selection);
	if (!rc) {
		to->network_assumed = from->network_assumed;
		rc = adp_cluster_digest(to, err);
	}
	if (rc) {
		adp_cluster_destroy(to);
		return rc;
	}
	*out = to;
	return ADP_OK;
}
