/* SPDX-License-Identifier: Apache-2.0 */
/* Where a Kubernetes node stands: network, NVLink domain, rack, spine; and its health, as
 * annotated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adp/units.h"
#include "cluster/k8s_node.h"
#include "cluster/name.h"

/* "8x400Gb/s": rails of the node and the bandwidth of each. */
static int stated_nics(struct adp_node *out, const struct adp_k8s_node *node, const char *text,
                       struct adp_error *err)
{
	char what[ADP_NAME_SIZE + 48], *end;
	unsigned long n;
	double bandwidth;
	int rc;

	snprintf(what, sizeof what, "node %s: adp.parallelism/nics", node->name);
	n = text[0] >= '1' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
	if (!n || n > 1024 || *end != 'x')
		return adp_fail(err, ADP_EINVAL,
		                "%s: write COUNTxBANDWIDTH, such as 8x400Gb/s, with 1 to 1024 rails", what);
	rc = adp_parse_bandwidth(&bandwidth, end + 1, what, err);
	if (rc)
		return rc;
	if (bandwidth <= 0)
		return adp_fail(err, ADP_EINVAL, "%s: the bandwidth must be above 0", what);
	out->n_nics = (uint32_t)n;
	out->nic.bytes_per_s = bandwidth * (double)n;
	return ADP_OK;
}

static int place_network(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                         struct adp_error *err)
{
	const struct adp_gpu_type *type = &k8s->build->types[out->type];
	const struct adp_instance *instance = adp_k8s_instance(k8s->build->hw, node, type);
	char buf[ADP_LABEL_SIZE];
	const char *text = adp_k8s_setting(node, "nics", buf);

	if (text)
		return stated_nics(out, node, text, err);
	if (instance) {
		out->nic.bytes_per_s = instance->nic_bytes_per_s * out->n_gpus / instance->n_gpus;
		out->n_nics = (uint32_t)ceil((double)instance->n_nics * out->n_gpus / instance->n_gpus);
		return ADP_OK;
	}
	k8s->build->network_assumed = true;
	if (adp_build_warn(k8s->build, node->name,
	                   "network of %s nodes is assumed, %.4g GB/s per GPU; annotate "
	                   "adp.parallelism/nics, such as 8x400Gb/s",
	                   type->alias, type->nic_bytes_per_s / 1e9))
		return adp_nomem(err);
	return ADP_OK;
}

/* ---- domains ------------------------------------------------------------------------ */

static int join(uint32_t *index, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                enum adp_domain_kind kind, const char *name, struct adp_error *err)
{
	char shown[80], where[80];

	if (adp_name_is_plain(name))
		return adp_build_domain(index, k8s->build, kind, name, err);
	return adp_fail(err, ADP_EINVAL,
	                "node %s: domain name '%s' has control characters or more than %d bytes",
	                adp_name_shown(where, sizeof where, node->name),
	                adp_name_shown(shown, sizeof shown, name), ADP_NAME_MAX);
}

/* A clique id whose cluster UUID is all zero: the driver knows of no fabric. */
static bool is_clique(const char *text)
{
	const char *dot = strrchr(text, '.');

	return dot && strspn(text, "0-") < (size_t)(dot - text);
}

static int place_nvlink(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                        struct adp_error *err)
{
	/* these name a reservation or a rack where NVLink stays inside the node, so only rack-size
	 * NVLink reads them */
	static const char *const others[] = {"network.topology.nvidia.com/accelerator",
	                                     "topology.k8s.aws/ultraserver-id"};
	const struct adp_gpu_type *type = &k8s->build->types[out->type];
	bool beyond_node = type->nvlink_domain_gpus > type->node_gpus;
	char buf[ADP_LABEL_SIZE], sub[ADP_LABEL_SIZE], name[ADP_NAME_SIZE];
	const char *text;

	if (!type->nvlink_domain_gpus)
		return ADP_OK;
	text = adp_k8s_label(node, "nvidia.com/gpu.clique", buf);
	if (text && is_clique(text))
		return join(&out->nvlink_domain, k8s, node, ADP_DOMAIN_NVLINK, text, err);
	if (!beyond_node)
		return ADP_OK;
	text = adp_k8s_label(node, "accelerator.topograph.run/domain", buf);
	if (text && *text) {
		const char *part = adp_k8s_label(node, "accelerator.topograph.run/sub-domain", sub);

		snprintf(name, sizeof name, "%.120s%s%.120s", text, part && *part ? "/" : "",
		         part ? part : "");
		return join(&out->nvlink_domain, k8s, node, ADP_DOMAIN_NVLINK, name, err);
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		text = adp_k8s_label(node, others[i], buf);
		if (text && *text)
			return join(&out->nvlink_domain, k8s, node, ADP_DOMAIN_NVLINK, text, err);
	}
	if (adp_build_warn(k8s->build, node->name,
	                   "%s: no label nvidia.com/gpu.clique tells which nodes share an NVLink "
	                   "domain; NVLink is counted inside each node only",
	                   type->alias))
		return adp_nomem(err);
	return ADP_OK;
}

/* Labels that name a node's leaf switch or rack, and the switch above. The first family found
 * counts. */
struct fabric_labels {
	const char *rack, *spine;
};
static const struct fabric_labels fabrics[] = {
	{"fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"}, /* topograph 1.0 */
	{"network.topology.nvidia.com/leaf",
     "network.topology.nvidia.com/spine"}, /* topograph before */
	{"topology.k8s.aws/network-node-layer-4",
     "topology.k8s.aws/network-node-layer-3"}, /* the highest is next to */
	{"topology.k8s.aws/network-node-layer-3",
     "topology.k8s.aws/network-node-layer-2"}, /* the node */
	{"topology.k8s.aws/network-node-layer-2", "topology.k8s.aws/network-node-layer-1"},
	{"cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"},
	{"oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"},
	{"cloud.provider.com/topology-rack",
     "cloud.provider.com/topology-block"}, /* Kueue's and KAI's examples */
	{"topology.kubernetes.io/rack", "topology.kubernetes.io/block"},
};

static int place_fabric(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                        struct adp_error *err)
{
	char rack[ADP_LABEL_SIZE], spine[ADP_LABEL_SIZE];
	const char *in_rack = adp_k8s_setting(node, "rack", rack),
			   *on_spine = adp_k8s_setting(node, "spine", spine);
	int rc = ADP_OK;

	for (size_t i = 0; i < sizeof fabrics / sizeof *fabrics && !in_rack; i++) {
		in_rack = adp_k8s_label(node, fabrics[i].rack, rack);
		if (in_rack && !*in_rack)
			in_rack = NULL;
		if (in_rack && !on_spine)
			on_spine = adp_k8s_label(node, fabrics[i].spine, spine);
	}
	if (in_rack)
		rc = join(&out->rack, k8s, node, ADP_DOMAIN_RACK, in_rack, err);
	if (!rc && on_spine && *on_spine)
		rc = join(&out->spine, k8s, node, ADP_DOMAIN_SPINE, on_spine, err);
	k8s->racks |= in_rack != NULL;
	return rc;
}

static int note_zone(struct adp_k8s *k8s, const struct adp_k8s_node *node, struct adp_error *err)
{
	char buf[ADP_LABEL_SIZE];
	const char *zone = adp_k8s_label(node, "topology.kubernetes.io/zone", buf);

	if (!zone)
		zone = adp_k8s_label(node, "failure-domain.beta.kubernetes.io/zone", buf);
	if (!zone)
		return ADP_OK;
	if (k8s->zone) {
		k8s->many_zones |= strcmp(k8s->zone, zone) != 0;
		return ADP_OK;
	}
	k8s->zone = adp_arena_strdup(&k8s->build->cluster->arena, zone);
	return k8s->zone ? ADP_OK : adp_nomem(err);
}

/* ---- health ------------------------------------------------------------------------- */

/* One number for all GPUs, or one for each. */
static int place_speed(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                       struct adp_error *err)
{
	char buf[ADP_LABEL_SIZE], part[32], what[ADP_NAME_SIZE + 48];
	const char *text = adp_k8s_setting(node, "gpu-speed", buf);
	double *speed;
	uint32_t n = 0;

	if (!text)
		return ADP_OK;
	snprintf(what, sizeof what, "node %s: adp.parallelism/gpu-speed", node->name);
	speed = adp_arena_calloc(&k8s->build->cluster->arena, out->n_gpus, sizeof *speed);
	if (!speed)
		return adp_nomem(err);
	for (;;) {
		size_t len = strcspn(text, ",");
		double frac;
		int rc;

		snprintf(part, sizeof part, "%.*s", len < sizeof part ? (int)len : (int)sizeof part - 1,
		         text);
		rc = adp_parse_frac(&frac, part, what, err);
		if (rc)
			return rc;
		if (!(frac >= ADP_LEAST_SPEED && frac <= 1))
			return adp_fail(err, ADP_EINVAL,
			                "%s: %s is not from 0.001 to 1; to leave a GPU out, take it from "
			                "the node's allocatable ones",
			                what, part);
		if (n < out->n_gpus)
			speed[n] = frac;
		n++;
		if (!text[len])
			break;
		text += len + 1;
	}
	if (n == 1) {
		for (; n < out->n_gpus; n++)
			speed[n] = speed[0];
	}
	if (n != out->n_gpus)
		return adp_fail(err, ADP_EINVAL, "%s: %u numbers for %u GPUs; give one, or one for each",
		                what, n, out->n_gpus);
	out->gpu_speed_frac = speed;
	return ADP_OK;
}

int adp_k8s_place(struct adp_node *out, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                  struct adp_error *err)
{
	char buf[ADP_LABEL_SIZE];
	const char *text;
	int rc;

	rc = place_network(out, k8s, node, err);
	if (!rc)
		rc = place_nvlink(out, k8s, node, err);
	if (!rc)
		rc = place_fabric(out, k8s, node, err);
	if (!rc)
		rc = note_zone(k8s, node, err);
	text = adp_k8s_setting(node, "power-domain", buf);
	if (!rc && text)
		rc = join(&out->power, k8s, node, ADP_DOMAIN_POWER, text, err);
	text = adp_k8s_setting(node, "cooling-domain", buf);
	if (!rc && text)
		rc = join(&out->cooling, k8s, node, ADP_DOMAIN_COOLING, text, err);
	return rc ? rc : place_speed(out, k8s, node, err);
}
