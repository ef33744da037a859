/* SPDX-License-Identifier: Apache-2.0 */
/* The text of --gpus: "H100:128,A100-80:128,H100x4:16". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adp/cluster.h"
#include "base/alloc.h"
#include "cluster/cluster_build.h"
#include "cluster/name.h"

enum { MAX_TEXT = 64 << 10, MAX_ENTRIES = 1024 };

/* Nodes of one type and size, all entries of the text that mean them together. */
struct group {
	const struct adp_gpu_type *type;
	uint32_t per_node;
	uint64_t n_gpus;
};

struct entry {
	const char *text;
	size_t len;
	unsigned number; /* from 1 */
};

static int refuse(const struct entry *entry, struct adp_error *err, const char *problem,
                  const char *next)
{
	char text[ADP_NAME_SIZE], shown[80];

	snprintf(text, sizeof text, "%.*s",
	         (int)(entry->len < ADP_NAME_MAX ? entry->len : ADP_NAME_MAX), entry->text);
	return adp_fail(err, ADP_EINVAL, "GPU list, entry %u ('%s'): %s%s", entry->number,
	                adp_name_shown(shown, sizeof shown, text), problem, next);
}

/* Digits only, without sign, within 1 .. max; 0 = not a count. */
static uint64_t read_count(const char *text, size_t len, uint64_t max)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		n = 10 * n + (uint64_t)(text[i] - '0');
		if (n > max)
			return 0;
	}
	return n;
}

static const struct adp_gpu_type *find(const struct adp_hardware *hw, const char *text, size_t len,
                                       char *near, size_t near_size)
{
	char name[ADP_NAME_SIZE];

	if (len > ADP_NAME_MAX)
		return NULL;
	memcpy(name, text, len);
	name[len] = '\0';
	return adp_hardware_find(hw, name, 0, near, near_size);
}

/* "H100" or "H100x4". The whole text is tried first: RTX4090 is a name, not 4090 of something. */
static int read_shape(struct group *group, const struct adp_hardware *hw, const struct entry *entry,
                      size_t len, struct adp_error *err)
{
	char near[160] = "", problem[320];
	size_t x = len;

	group->type = find(hw, entry->text, len, near, sizeof near);
	if (group->type) {
		group->per_node = group->type->node_gpus;
		return ADP_OK;
	}
	while (x && entry->text[x - 1] >= '0' && entry->text[x - 1] <= '9')
		x--;
	if (x > 1 && x < len && entry->text[x - 1] == 'x') {
		group->type = find(hw, entry->text, x - 1, near, sizeof near);
		group->per_node = (uint32_t)read_count(entry->text + x, len - x, ADP_MAX_NODE_GPUS);
		if (group->type && !group->per_node) {
			snprintf(problem, sizeof problem, "GPUs per node must be 1 to %d", ADP_MAX_NODE_GPUS);
			return refuse(entry, err, problem, "");
		}
		if (group->type)
			return ADP_OK;
	}
	if (near[0])
		snprintf(problem, sizeof problem,
		         "names no single GPU type; did you mean one of %s? For another GPU, ", near);
	else
		snprintf(problem, sizeof problem,
		         "no such GPU type; use names such as H100, A100-80, V100-32, or ");
	return refuse(entry, err, problem, ADP_OVERRIDE_HINT);
}

static int read_entry(struct group *group, const struct adp_hardware *hw, const struct entry *entry,
                      struct adp_error *err)
{
	char problem[160];
	size_t colon = entry->len;
	int rc;

	while (colon && entry->text[colon - 1] != ':')
		colon--;
	if (colon < 2)
		return refuse(entry, err, "expected TYPE:COUNT or TYPExGPUS_PER_NODE:COUNT",
		              ", such as H100:128 or H100x4:16");
	rc = read_shape(group, hw, entry, colon - 1, err);
	if (rc)
		return rc;
	group->n_gpus = read_count(entry->text + colon, entry->len - colon, ADP_MAX_GPUS);
	if (group->n_gpus)
		return ADP_OK;
	snprintf(problem, sizeof problem, "the count of GPUs must be a whole number from 1 to %d",
	         ADP_MAX_GPUS);
	return refuse(entry, err, problem, "");
}

static int compare_groups(const void *a, const void *b)
{
	const struct group *left = a, *right = b;
	int order = adp_name_compare(left->type->name, right->type->name);

	if (!order)
		order = left->per_node == right->per_node ? 0 : left->per_node < right->per_node ? -1 : 1;
	return order;
}

static int add_group(struct group *groups, size_t *n, const struct group *group,
                     const struct entry *entry, struct adp_error *err)
{
	for (size_t i = 0; i < *n; i++) {
		if (groups[i].type == group->type && groups[i].per_node == group->per_node) {
			groups[i].n_gpus += group->n_gpus;
			return ADP_OK;
		}
	}
	if (*n == MAX_ENTRIES)
		return refuse(entry, err, "too many entries", "; describe the nodes in a cluster file");
	groups[(*n)++] = *group;
	return ADP_OK;
}

static int read_list(struct group *groups, size_t *n, const char *text,
                     const struct adp_hardware *hw, struct adp_error *err)
{
	struct entry entry = {.number = 0};

	for (const char *at = text;;) {
		size_t len = strcspn(at, ",");
		struct group group = {0};
		int rc;

		entry.text = at;
		entry.len = len;
		entry.number++;
		while (entry.len && *entry.text == ' ') {
			entry.text++;
			entry.len--;
		}
		while (entry.len && entry.text[entry.len - 1] == ' ')
			entry.len--;
		rc = read_entry(&group, hw, &entry, err);
		if (!rc)
			rc = add_group(groups, n, &group, &entry, err);
		if (rc)
			return rc;
		if (!at[len])
			return ADP_OK;
		at += len + 1;
	}
}

/* "a100-80" for A100-80; nodes of another size than usual carry it: "h100x4". */
static void group_name(char *out, size_t size, const struct group *group)
{
	size_t n = 0;

	for (const char *c = group->type->alias; *c && n + 1 < size; c++) {
		bool upper = *c >= 'A' && *c <= 'Z',
			 plain = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '.';

		out[n++] = upper ? (char)(*c - 'A' + 'a') : plain ? *c : '-';
	}
	out[n] = '\0';
	if (group->per_node != group->type->node_gpus)
		snprintf(out + n, size - n, "x%u", group->per_node);
}

static int warn_assumed(struct adp_build *b, const struct group *group, struct adp_error *err)
{
	const struct adp_gpu_type *type = group->type;
	bool nvlink = type->nvlink_domain_gpus && type->nvlink_bytes_per_s > 0;

	if (nvlink && group->per_node > type->nvlink_domain_gpus &&
	    adp_build_warn(b, NULL,
	                   "%s: NVLink is counted between all %u GPUs of a node, but usually joins %u",
	                   type->alias, group->per_node, type->nvlink_domain_gpus))
		return adp_nomem(err);
	if (adp_build_warn(
			b, NULL,
			"%s: assumed %u GPUs a node, %s %.4g GB/s per GPU, network %.4g GB/s per GPU without "
			"bottleneck beyond the NICs; state the real ones with --cluster",
			type->alias, group->per_node, nvlink ? "NVLink" : "PCIe",
			(nvlink ? type->nvlink_bytes_per_s : type->pcie_bytes_per_s) / 1e9,
			type->nic_bytes_per_s / 1e9))
		return adp_nomem(err);
	return ADP_OK;
}

static int build_group(struct adp_build *b, const struct group *group, struct adp_error *err)
{
	const struct adp_gpu_type *type = group->type;
	/* only a domain larger than the usual node reaches out of one, however small the nodes are */
	uint32_t nodes_per_domain = type->nvlink_domain_gpus > type->node_gpus
	                                ? type->nvlink_domain_gpus / group->per_node
	                                : 1;
	uint32_t index, domain;
	char prefix[ADP_NAME_SIZE - 32], name[ADP_NAME_SIZE];
	struct adp_node *node;
	uint64_t left = group->n_gpus;
	int rc;

	group_name(prefix, sizeof prefix, group);
	rc = adp_build_type(&index, b, type, err);
	if (!rc)
		rc = warn_assumed(b, group, err);
	for (uint32_t i = 0; left && !rc; i++) {
		uint32_t n = left < group->per_node ? (uint32_t)left : group->per_node;

		snprintf(name, sizeof name, "%s-%u", prefix, i);
		rc = adp_build_node(&node, b, name, index, n, err);
		left -= n;
		if (rc || nodes_per_domain < 2)
			continue;
		snprintf(name, sizeof name, "%s-nvlink-%u", prefix, i / nodes_per_domain);
		rc = adp_build_domain(&domain, b, ADP_DOMAIN_NVLINK, name, err);
		if (!rc)
			node->nvlink_domain = domain;
	}
	return rc;
}

int adp_cluster_from_gpus(struct adp_cluster **out, const char *text, const struct adp_hardware *hw,
                          struct adp_error *err)
{
	struct group *groups;
	struct adp_build b;
	size_t n = 0;
	int rc;

	*out = NULL;
	if (strlen(text) > MAX_TEXT)
		return adp_fail(err, ADP_ELIMIT,
		                "GPU list: longer than %d bytes; describe the nodes in a cluster file",
		                MAX_TEXT);
	groups = adp_calloc(MAX_ENTRIES, sizeof *groups);
	if (!groups)
		return adp_nomem(err);
	rc = adp_build_init(&b, hw, err);
	if (!rc)
		rc = read_list(groups, &n, text, hw, err);
	if (!rc)
		qsort(groups, n, sizeof *groups, compare_groups);
	for (size_t i = 0; i < n && !rc; i++)
		rc = build_group(&b, &groups[i], err);
	b.network_assumed = true;
	if (!rc)
		rc = adp_build_finish(out, &b, err);
	adp_build_fini(&b);
	adp_free(groups);
	return rc;
}
