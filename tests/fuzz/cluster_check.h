/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of any cluster that was read. */
#ifndef ADP_TESTS_CLUSTER_CHECK_H
#define ADP_TESTS_CLUSTER_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/cluster.h"

static void check_that(bool truth)
{
	if (!truth)
		abort();
}

static void check_link(const struct adp_link *link, bool needed)
{
	check_that(isfinite(link->bytes_per_s) && isfinite(link->latency_s));
	check_that(needed ? link->bytes_per_s > 0 : link->bytes_per_s >= 0);
	check_that(link->latency_s >= 0 && link->load_frac >= 0 && link->load_frac < 1);
}

static void check_index(const struct adp_cluster *c, uint32_t index, enum adp_domain_kind kind,
                        bool needed)
{
	if (index == ADP_NONE && !needed)
		return;
	check_that(index < c->n_domains && c->domains[index].kind == kind);
}

static void check_cluster(const struct adp_cluster *c)
{
	check_that(c->n_nodes && c->n_types && c->digest && c->name);
	for (uint32_t i = 0; i < c->n_types; i++) {
		check_that(c->types[i].memory_bytes && c->types[i].node_gpus &&
		           adp_gpu_type_peak(&c->types[i]) > 0);
		check_that(!i || adp_gpu_type_peak(&c->types[i - 1]) >= adp_gpu_type_peak(&c->types[i]));
	}
	for (uint32_t i = 0; i < c->n_nodes; i++) {
		const struct adp_node *node = &c->nodes[i];

		check_that(node->type < c->n_types && node->n_gpus && node->n_nics && node->gpus_per_root);
		check_that(!i || c->nodes[i - 1].type <= node->type);
		check_link(&node->gpu_link, true);
		check_link(&node->nic, true);
		check_index(c, node->nvlink_domain, ADP_DOMAIN_NVLINK, true);
		check_index(c, node->rack, ADP_DOMAIN_RACK, false);
		check_index(c, node->spine, ADP_DOMAIN_SPINE, false);
		check_index(c, node->power, ADP_DOMAIN_POWER, false);
		check_index(c, node->cooling, ADP_DOMAIN_COOLING, false);
		for (uint32_t g = 0; g < node->n_gpus; g++)
			check_that(node->gpu_speed_frac[g] > 0 && node->gpu_speed_frac[g] <= 1);
	}
	for (uint32_t i = 0; i < c->n_domains; i++)
		check_link(&c->domains[i].uplink, false);
	for (uint32_t i = 0; i < c->n_warnings; i++)
		check_that(!strpbrk(c->warnings[i], "\n\r\t\x1b"));
}

#endif
