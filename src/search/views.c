/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/internal.h"

/*
 * Slots of a type are handed out best first, and what is best depends on the plan: a node that is
 * faster but has a slow network can come before the nodes a plan would do better on. So where nodes
 * of a type differ, small fleets are searched again with fewer nodes of each kind. A fleet's answer
 * is then never worse than that of a part of it.
 */

enum { VIEW_MAX_GPUS = 64, VIEW_MAX_KINDS = 16, VIEWS_MAX = 256 };

/* Nodes that may stand for one another. */
struct node_kind {
	const struct adp_node *node;
	uint32_t n, n_kept;
	bool free; /* fewer of them may be better */
};

struct views {
	const struct adp_cluster *cluster;
	struct node_kind kinds[VIEW_MAX_KINDS];
	uint32_t n_kinds;
	bool several_racks;
	uint32_t *kind_of; /* by node */
	struct adp_node *nodes;
};

static bool links_equal(const struct adp_link *a, const struct adp_link *b)
{
	return a->kind == b->kind && a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s &&
	       a->load_frac == b->load_frac;
}

static int speed_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static bool nodes_equal(const struct adp_node *a, const struct adp_node *b)
{
	double x[VIEW_MAX_GPUS], y[VIEW_MAX_GPUS];

	if (a->type != b->type || a->n_gpus != b->n_gpus || a->rack != b->rack ||
	    a->spine != b->spine || a->gpus_per_root != b->gpus_per_root ||
	    !links_equal(&a->gpu_link, &b->gpu_link) || !links_equal(&a->nic, &b->nic))
		return false;
	memcpy(x, a->gpu_speed_frac, a->n_gpus * sizeof *x);
	memcpy(y, b->gpu_speed_frac, b->n_gpus * sizeof *y);
	qsort(x, a->n_gpus, sizeof *x, speed_compare);
	qsort(y, b->n_gpus, sizeof *y, speed_compare);
	return memcmp(x, y, a->n_gpus * sizeof *x) == 0;
}

static bool even_speed(const struct adp_node *node)
{
	for (uint32_t g = 1; g < node->n_gpus; g++)
		if (node->gpu_speed_frac[g] != node->gpu_speed_frac[0])
			return false;
	return true;
}

static bool link_as_good(const struct adp_link *a, const struct adp_link *b)
{
	return a->kind == b->kind && a->latency_s <= b->latency_s &&
	       a->bytes_per_s * (1.0 - a->load_frac) >= b->bytes_per_s * (1.0 - b->load_frac);
}

/* Is a nowhere worse than b, and of the same shape? Such nodes come first with every plan. */
static bool node_as_good(const struct adp_node *a, const struct adp_node *b)
{
	return a->n_gpus == b->n_gpus && a->gpus_per_root == b->gpus_per_root && even_speed(a) &&
	       even_speed(b) && a->gpu_speed_frac[0] >= b->gpu_speed_frac[0] &&
	       link_as_good(&a->gpu_link, &b->gpu_link) && link_as_good(&a->nic, &b->nic);
}

static bool ordered(const struct adp_node *a, const struct adp_node *b)
{
	return a->type != b->type || node_as_good(a, b) || node_as_good(b, a);
}

/* False: too large or too varied a fleet, or nothing to vary. */
static bool find_kinds(struct views *v)
{
	const struct adp_cluster *c = v->cluster;
	uint64_t n_views = 1;

	for (uint32_t i = 0; i < c->n_nodes; i++) {
		const struct adp_node *node = &c->nodes[i];
		uint32_t k = 0;

		if (i && (node->rack != c->nodes[0].rack || node->spine != c->nodes[0].spine))
			v->several_racks = true;
		if (i && node->nvlink_domain == c->nodes[i - 1].nvlink_domain)
			return false;
		while (k < v->n_kinds && !nodes_equal(node, v->kinds[k].node))
			k++;
		if (k == VIEW_MAX_KINDS)
			return false;
		if (k == v->n_kinds)
			v->kinds[v->n_kinds++] = (struct node_kind){.node = node};
		v->kinds[k].n++;
		v->kind_of[i] = k;
	}
	for (uint32_t k = 0; k < v->n_kinds; k++) {
		struct node_kind *kind = &v->kinds[k];

		/* never better left out: nodes of a type that are all alike, or can be ordered from best to
		 * worst */
		kind->free = v->several_racks || (kind->n > 1 && !even_speed(kind->node));
		for (uint32_t j = 0; j < v->n_kinds; j++)
			kind->free = kind->free || (j != k && !ordered(kind->node, v->kinds[j].node));
		if (kind->free && (n_views *= kind->n + 1) > VIEWS_MAX)
			return false;
		kind->n_kept = kind->n;
	}
	return n_views > 1;
}

/* The next smaller choice in a fixed order; false after the last. */
static bool next_view(struct views *v)
{
	for (uint32_t k = 0; k < v->n_kinds; k++) {
		if (!v->kinds[k].free)
			continue;
		if (v->kinds[k].n_kept) {
			v->kinds[k].n_kept--;
			return true;
		}
		v->kinds[k].n_kept = v->kinds[k].n;
	}
	return false;
}

/* Among nodes that can be ordered none is left out; plans without a type are known already. */
static bool worth_a_look(const struct views *v)
{
	for (uint32_t k = 0; k < v->n_kinds && !v->several_racks; k++) {
		const struct node_kind *kind = &v->kinds[k];
		bool others = false, apart = !even_speed(kind->node);

		for (uint32_t j = 0; j < v->n_kinds; j++) {
			const struct node_kind *other = &v->kinds[j];

			if (other->node->type != kind->node->type || !other->n_kept)
				continue;
			others = true;
			apart = apart || (j != k && !ordered(kind->node, other->node));
		}
		if (!others || (kind->n_kept && kind->n_kept < kind->n && !apart))
			return false;
	}
	return true;
}

/* The first nodes of each kind that are kept. Its arrays are the views' and the whole cluster's. */
static void view_cluster(struct adp_cluster *out, struct views *v)
{
	uint32_t taken[VIEW_MAX_KINDS] = {0};

	*out = *v->cluster;
	out->n_nodes = 0;
	for (uint32_t i = 0; i < v->cluster->n_nodes; i++)
		if (taken[v->kind_of[i]] < v->kinds[v->kind_of[i]].n_kept) {
			taken[v->kind_of[i]]++;
			v->nodes[out->n_nodes++] = v->cluster->nodes[i];
		}
	out->nodes = v->nodes;
}

int search_views(struct adp_plan **best, struct counts *counts, const struct adp_model *model,
                 const struct adp_cluster *cluster, const struct adp_engine *engine,
                 const struct adp_tables *tables, const struct adp_train *train,
                 const struct adp_search_opts *opts, const struct search_knobs *knobs,
                 struct adp_error *err)
{
	struct views v = {.cluster = cluster};
	int rc = ADP_OK;

	if (adp_cluster_n_gpus(cluster) > VIEW_MAX_GPUS || cluster->n_nodes < 2)
		return ADP_OK;
	v.kind_of = adp_calloc(cluster->n_nodes, sizeof *v.kind_of);
	v.nodes = adp_calloc(cluster->n_nodes, sizeof *v.nodes);
	if (!v.kind_of || !v.nodes)
		rc = adp_nomem(err);
	else if (find_kinds(&v))
		while (rc == ADP_OK && next_view(&v)) {
			struct adp_cluster part;
			struct adp_plan *plan = NULL;
			struct adp_error nothing = {0};

			if (!worth_a_look(&v))
				continue;
			view_cluster(&part, &v);
			if (!part.n_nodes)
				continue;
			rc = search_fleet(&plan, counts, (*best)->step.step_s, model, &part, engine, tables,
			                  train, opts, knobs, &nothing);
			if (rc == ADP_EINFEASIBLE || rc == ADP_EINVAL) {
				rc = ADP_OK; /* nothing better */
			} else if (rc != ADP_OK) {
				if (err)
					*err = nothing;
			} else {
				adp_plan_destroy(*best);
				*best = plan;
			}
		}
	adp_free(v.kind_of);
	adp_free(v.nodes);
	return rc;
}
