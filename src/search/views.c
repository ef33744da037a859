/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/internal.h"

/*
 * Slots of a type are handed out best first, and what is best depends on the plan: a node that is
 * faster but has a slow network can come before the nodes a plan would do better on. And the GPUs
 * of a node share its links and stand in one another's way: four of five make two pairs, and take
 * a fourth of its network each. So small fleets are searched again without some of their nodes, and
 * the smallest without some of the GPUs of a node too. Their answer is then never worse than that
 * of a part of the fleet.
 */

enum {
	WHOLE_NODES_MAX_GPUS = 64,
	WHOLE_NODES_MAX_VIEWS = 256,
	PARTS_MAX_GPUS = 16,
	PARTS_MAX_VIEWS = 4096,
	VIEW_MAX_KINDS = 16
};

/* Nodes that may stand for one another. */
struct node_kind {
	const struct adp_node *node;
	uint32_t n, n_kept;
	bool without; /* may be better with fewer of them */
};

struct views {
	const struct adp_cluster *cluster;
	bool parts; /* of nodes too */
	struct node_kind kinds[VIEW_MAX_KINDS];
	uint32_t n_kinds;
	bool several_racks;
	uint32_t *kind_of; /* by node */
	uint32_t *like;    /* by node: the one before of its kind, or ADP_NONE */
	uint32_t *n_used;  /* by node: GPUs in the view, its first; never more than of the one before */
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
	double x[WHOLE_NODES_MAX_GPUS], y[WHOLE_NODES_MAX_GPUS];

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

/* The fewest GPUs that a view has of a node. */
static uint32_t least(const struct views *v, uint32_t k)
{
	return v->kinds[k].without ? 0 : v->parts ? 1 : v->kinds[k].node->n_gpus;
}

/* The GPUs of node i in the view after this one; ADP_NONE: it has the fewest. */
static uint32_t fewer(const struct views *v, uint32_t i)
{
	uint32_t n = v->n_used[i], low = least(v, v->kind_of[i]);

	return n <= low ? ADP_NONE : v->parts ? n - 1 : low;
}

/* How many views there are, the whole fleet one of them; max + 1 stands for more than max. */
static uint64_t count_views(const struct views *v, uint64_t max)
{
	uint64_t n = 1;

	for (uint32_t k = 0; k < v->n_kinds; k++) {
		uint64_t low = least(v, k), high = v->kinds[k].node->n_gpus, steps, choices = 1;

		/* so many numbers from low to high, in order: a binomial coefficient */
		steps = v->parts ? high - low : low < high;
		for (uint64_t i = 1; i <= v->kinds[k].n && choices <= max; i++)
			choices = choices * (steps + i) / i;
		if (choices > max || (n *= choices) > max)
			return max + 1;
	}
	return n;
}

static bool few_views(const struct views *v, uint64_t max)
{
	uint64_t n = count_views(v, max);

	return n > 1 && n <= max;
}

/* False: too large or too varied a fleet, or nothing to vary. */
static bool find_kinds(struct views *v, bool node_parts)
{
	const struct adp_cluster *c = v->cluster;

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
		v->like[i] = ADP_NONE;
		for (uint32_t j = 0; j < i; j++)
			if (v->kind_of[j] == k)
				v->like[i] = j;
		v->n_used[i] = node->n_gpus;
	}
	for (uint32_t k = 0; k < v->n_kinds; k++) {
		struct node_kind *kind = &v->kinds[k];

		/* never better left out: nodes of a type that are all alike, or can be ordered from best to
		 * worst */
		kind->without = v->several_racks || (kind->n > 1 && !even_speed(kind->node));
		for (uint32_t j = 0; j < v->n_kinds; j++)
			kind->without = kind->without || (j != k && !ordered(kind->node, v->kinds[j].node));
	}
	v->parts = node_parts && adp_cluster_n_gpus(c) <= PARTS_MAX_GPUS;
	if (v->parts && few_views(v, PARTS_MAX_VIEWS))
		return true;
	v->parts = false;
	return few_views(v, WHOLE_NODES_MAX_VIEWS);
}

/* The next view in a fixed order; false after the last. */
static bool next_view(struct views *v)
{
	uint32_t i = v->cluster->n_nodes;

	while (i > 0 && fewer(v, i - 1) == ADP_NONE)
		i--;
	if (i == 0)
		return false;
	v->n_used[i - 1] = fewer(v, i - 1);
	for (; i < v->cluster->n_nodes; i++)
		v->n_used[i] = v->like[i] == ADP_NONE ? v->cluster->nodes[i].n_gpus : v->n_used[v->like[i]];
	return true;
}

/* Among nodes that can be ordered none is left out; plans without a type are known already. */
static bool worth_a_look(struct views *v)
{
	for (uint32_t k = 0; k < v->n_kinds; k++)
		v->kinds[k].n_kept = 0;
	for (uint32_t i = 0; i < v->cluster->n_nodes; i++)
		v->kinds[v->kind_of[i]].n_kept += v->n_used[i] > 0;
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

/* Its arrays are the views' and the whole cluster's. */
static void view_cluster(struct adp_cluster *out, struct views *v)
{
	*out = *v->cluster;
	out->n_nodes = 0;
	for (uint32_t i = 0; i < v->cluster->n_nodes; i++) {
		struct adp_node *node = &v->nodes[out->n_nodes];

		if (!v->n_used[i])
			continue;
		*node = v->cluster->nodes[i];
		node->n_gpus = v->n_used[i];
		if (node->gpus_per_root > node->n_gpus)
			node->gpus_per_root = node->n_gpus;
		out->n_nodes++;
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

	if (adp_cluster_n_gpus(cluster) > WHOLE_NODES_MAX_GPUS)
		return ADP_OK;
	v.kind_of = adp_calloc(cluster->n_nodes, sizeof *v.kind_of);
	v.like = adp_calloc(cluster->n_nodes, sizeof *v.like);
	v.n_used = adp_calloc(cluster->n_nodes, sizeof *v.n_used);
	v.nodes = adp_calloc(cluster->n_nodes, sizeof *v.nodes);
	if (!v.kind_of || !v.like || !v.n_used || !v.nodes)
		rc = adp_nomem(err);
	else if (find_kinds(&v, knobs->node_parts))
		while (rc == ADP_OK && next_view(&v)) {
			struct adp_cluster part;
			struct adp_plan *plan = NULL;
			struct adp_error nothing = {0};

			if (!worth_a_look(&v))
				continue;
			view_cluster(&part, &v);
			if (!part.n_nodes)
				continue;
			rc = search_fleet(&plan, counts, *best ? (*best)->step.step_s : (double)INFINITY, model,
			                  &part, engine, tables, train, opts, knobs, &nothing);
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
	adp_free(v.like);
	adp_free(v.n_used);
	adp_free(v.nodes);
	return rc;
}
