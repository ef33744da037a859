/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "search/internal.h"

/* A GPU with its bucketed speed, while slots are formed. */
struct seat {
	struct slot_gpu at;
	double speed_frac;
	uint32_t order;
};

/* Health counts in steps of 5 %, so that near-equal GPUs share a class; the nearly dead are as slow
 * as they are. */
static double speed_bucket(double speed_frac)
{
	double bucket = round(speed_frac * 20.0) / 20.0;

	return bucket < 0.05 ? fmin(speed_frac, 0.05) : bucket;
}

/* One node's seats. */
struct bench {
	uint32_t index, first, n;
	double speed_frac; /* of the slowest seat taken */
};

struct building {
	struct slots *slots;
	struct adp_arena *arena;
	struct slot_class *classes;
	struct slot_gpu *gpus;
	uint32_t *class_n;
	unsigned char *domain_seen;     /* [domain], zero between uses */
	struct seat *spare;             /* as many as the fleet has GPUs */
	struct bench *benches, *chosen; /* as many as it has nodes */
	uint32_t n_gpus;
	bool many_racks, many_spines;
};

static int seat_compare(const void *a, const void *b)
{
	const struct seat *x = a, *y = b;

	if (x->speed_frac != y->speed_frac)
		return x->speed_frac > y->speed_frac ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static double usable(const struct adp_link *link)
{
	return link->bytes_per_s * (1.0 - link->load_frac);
}

/*
 * An uplink carries the ring of the stage on either side of the domain's border, each at most one
 * node's rate; so a node's GPUs see half of it.
 */
static void far_link(struct adp_link *far, const struct adp_cluster *cluster, uint32_t domain,
                     double n_gpus)
{
	const struct adp_link *uplink;

	if (domain == ADP_NONE)
		return;
	uplink = &cluster->domains[domain].uplink;
	far->latency_s += uplink->latency_s;
	if (uplink->bytes_per_s > 0.0 && usable(uplink) / (2.0 * n_gpus) < far->bytes_per_s) {
		far->bytes_per_s = usable(uplink) / (2.0 * n_gpus);
		far->kind = uplink->kind;
	}
}

/* Uplinks count only where the fleet has more than one domain of the kind. */
static bool spans(const struct adp_cluster *cluster,
                  uint32_t domain_of(const struct adp_node *node))
{
	for (uint32_t i = 1; i < cluster->n_nodes; i++)
		if (domain_of(&cluster->nodes[i]) != domain_of(&cluster->nodes[0]))
			return true;
	return false;
}

static uint32_t node_rack(const struct adp_node *node)
{
	return node->rack;
}

static uint32_t node_spine(const struct adp_node *node)
{
	return node->spine;
}

static void class_of_node(struct slot_class *cls, const struct building *b,
                          const struct adp_cluster *cluster, const struct adp_node *node)
{
	memset(cls, 0, sizeof *cls);
	cls->type = node->type;
	cls->gpu_link = node->gpu_link;
	cls->gpu_link.bytes_per_s = usable(&node->gpu_link);
	cls->gpu_link.load_frac = 0.0;
	if (node->gpu_link.kind == ADP_LINK_PCIE && node->gpus_per_root > 1)
		cls->gpu_link.bytes_per_s /= node->gpus_per_root;
	cls->nic = node->nic;
	/* shared by the node's GPUs, of which none takes more than its PCIe link carries */
	cls->nic.bytes_per_s = fmin(usable(&node->nic) / node->n_gpus,
	                            cluster->types[node->type].pcie_bytes_per_s);
	cls->nic.load_frac = 0.0;
	cls->far = cls->nic;
	if (b->many_racks)
		far_link(&cls->far, cluster, node->rack, node->n_gpus);
	if (b->many_spines)
		far_link(&cls->far, cluster, node->spine, node->n_gpus);
}

static bool link_equal(const struct adp_link *a, const struct adp_link *b)
{
	return a->kind == b->kind && a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s;
}

static bool class_equal(const struct slot_class *a, const struct slot_class *b)
{
	return a->type == b->type && a->speed_frac == b->speed_frac && a->per_domain == b->per_domain &&
	       a->domain_gpus == b->domain_gpus && a->n_spanned == b->n_spanned &&
	       link_equal(&a->gpu_link, &b->gpu_link) && link_equal(&a->nic, &b->nic) &&
	       link_equal(&a->far, &b->far);
}

/* Negative when a is the better class. */
static int class_rank(const struct slot_class *a, const struct slot_class *b)
{
	if (a->speed_frac != b->speed_frac)
		return a->speed_frac > b->speed_frac ? -1 : 1;
	if (a->n_spanned != b->n_spanned)
		return a->n_spanned < b->n_spanned ? -1 : 1;
	if (a->per_domain != b->per_domain)
		return a->per_domain > b->per_domain ? -1 : 1;
	if (a->gpu_link.bytes_per_s != b->gpu_link.bytes_per_s)
		return a->gpu_link.bytes_per_s > b->gpu_link.bytes_per_s ? -1 : 1;
	if (a->far.bytes_per_s != b->far.bytes_per_s)
		return a->far.bytes_per_s > b->far.bytes_per_s ? -1 : 1;
	if (a->nic.bytes_per_s != b->nic.bytes_per_s)
		return a->nic.bytes_per_s > b->nic.bytes_per_s ? -1 : 1;
	return 0;
}

static uint32_t class_index(struct building *b, const struct slot_class *cls)
{
	for (uint32_t i = 0; i < b->slots->n_classes; i++)
		if (class_equal(&b->classes[i], cls))
			return i;
	b->classes[b->slots->n_classes] = *cls;
	return b->slots->n_classes++;
}

struct ranked_slot {
	struct slot slot;
	const struct slot_class *classes;
	uint32_t order;
};

static int slot_compare(const void *a, const void *b)
{
	const struct ranked_slot *x = a, *y = b;
	int rank = class_rank(&x->classes[x->slot.cls], &y->classes[y->slot.cls]);

	if (rank)
		return rank;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* Cuts the seats of one domain (or of several that a slot spans) into slots. */
static void cut(struct building *b, struct ranked_slot *ranked, uint32_t *n_ranked,
                const struct seat *seats, uint32_t n_seats, const struct slot_class *proto)
{
	uint32_t size = b->slots->size;

	for (uint32_t at = 0; at + size <= n_seats; at += size) {
		struct slot_class cls = *proto;
		struct ranked_slot *slot = &ranked[*n_ranked];

		cls.speed_frac = seats[at].speed_frac;
		for (uint32_t i = 1; i < size; i++)
			cls.speed_frac = fmin(cls.speed_frac, seats[at + i].speed_frac);
		slot->slot.first_gpu = b->n_gpus;
		for (uint32_t i = 0; i < size; i++)
			b->gpus[b->n_gpus++] = seats[at + i].at;
		slot->slot.cls = class_index(b, &cls);
		slot->classes = b->classes;
		slot->order = *n_ranked;
		++*n_ranked;
	}
}

/* Worse of two nodes' links: a domain is as good as its worst node. */
static void class_worsen(struct slot_class *cls, const struct slot_class *other)
{
	if (other->gpu_link.bytes_per_s < cls->gpu_link.bytes_per_s)
		cls->gpu_link = other->gpu_link;
	if (other->nic.bytes_per_s < cls->nic.bytes_per_s)
		cls->nic = other->nic;
	if (other->far.bytes_per_s < cls->far.bytes_per_s)
		cls->far = other->far;
}

/* Does a domain come up again after another one? seen: a byte for each domain, zero. */
static bool slots_scattered(const struct slot *slots, uint32_t n, unsigned char *seen)
{
	bool again = false;

	for (uint32_t i = 0; i < n; i = slots[i].domain_end) {
		again = again || seen[slots[i].domain];
		seen[slots[i].domain] = 1;
	}
	for (uint32_t i = 0; i < n; i = slots[i].domain_end)
		seen[slots[i].domain] = 0;
	return again;
}

static int bench_compare(const void *a, const void *b)
{
	const struct bench *x = a, *y = b;

	if (x->speed_frac != y->speed_frac)
		return x->speed_frac > y->speed_frac ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

static int bench_order(const void *a, const void *b)
{
	const struct bench *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

/*
 * Brings the seats of slots to the front: inside one node while it has a slot's worth left, else
 * equal parts of several, for the engines' launchers start consecutive ranks of a node together.
 * Returns how many seats those are.
 */
static uint32_t arrange(struct building *b, struct seat *seats, uint32_t n_benches)
{
	uint32_t size = b->slots->size, n = 0;

	for (uint32_t part = size; part > 0; part--) {
		uint32_t n_chosen = 0, each = size / part;

		if (size % part)
			continue;
		for (uint32_t i = 0; i < n_benches; i++) {
			struct bench *bench = &b->benches[i];

			if (bench->n < part)
				continue;
			bench->speed_frac = seats[bench->first + part - 1].speed_frac;
			b->chosen[n_chosen++] = *bench;
		}
		qsort(b->chosen, n_chosen, sizeof *b->chosen, bench_compare);
		n_chosen -= n_chosen % each;
		for (uint32_t at = 0; at < n_chosen; at += each) {
			qsort(b->chosen + at, each, sizeof *b->chosen, bench_order);
			for (uint32_t i = at; i < at + each; i++) {
				uint32_t taken = each > 1 ? part : b->chosen[i].n - b->chosen[i].n % size;

				memcpy(b->spare + n, seats + b->chosen[i].first, taken * sizeof *seats);
				n += taken;
				b->benches[b->chosen[i].index].n = 0;
			}
		}
	}
	memcpy(seats, b->spare, n * sizeof *seats);
	return n;
}

/*
 * Seats of the domain that starts at node `at`, node by node, the healthiest of each first; returns
 * the node after it.
 */
static uint32_t gather_domain(struct seat *out, uint32_t *n, uint32_t *n_benches,
                              struct slot_class *cls, const struct building *b,
                              const struct adp_cluster *cluster, uint32_t at)
{
	uint32_t end = at;

	*n = *n_benches = 0;
	class_of_node(cls, b, cluster, &cluster->nodes[at]);
	for (; end < cluster->n_nodes && cluster->nodes[end].type == cluster->nodes[at].type &&
	       cluster->nodes[end].nvlink_domain == cluster->nodes[at].nvlink_domain;
	     end++) {
		const struct adp_node *node = &cluster->nodes[end];
		struct slot_class other;

		class_of_node(&other, b, cluster, node);
		class_worsen(cls, &other);
		for (uint32_t g = 0; g < node->n_gpus; g++, ++*n)
			out[*n] = (struct seat){{end, g}, speed_bucket(node->gpu_speed_frac[g]), *n};
		qsort(out + (*n - node->n_gpus), node->n_gpus, sizeof *out, seat_compare);
		b->benches[*n_benches] = (struct bench){*n_benches, *n - node->n_gpus, node->n_gpus, 0.0};
		++*n_benches;
	}
	cls->domain_gpus = *n;
	cls->n_spanned = 1;
	return end;
}

/* Slots of the domains with `gpus` GPUs; of all that hold a whole slot when gpus is the slot's
 * size. */
static void cut_domains(struct building *b, struct ranked_slot *ranked, uint32_t *n_ranked,
                        struct seat *seats, const struct adp_cluster *cluster, uint32_t type,
                        uint32_t gpus)
{
	uint32_t size = b->slots->size, n_pool = 0, end;
	struct slot_class pool_class;

	for (uint32_t at = 0; at < cluster->n_nodes; at = end) {
		struct slot_class cls;
		uint32_t n, n_benches;

		end = at + 1;
		if (cluster->nodes[at].type != type)
			continue;
		end = gather_domain(seats + n_pool, &n, &n_benches, &cls, b, cluster, at);
		if (gpus == size && n >= size) {
			n = arrange(b, seats, n_benches);
			cls.per_domain = n / size;
			cut(b, ranked, n_ranked, seats, n, &cls);
			continue;
		}
		if (gpus == size || n != gpus)
			continue;
		/* too small alone: whole domains of one size join, in order */
		if (n_pool == 0)
			pool_class = cls;
		else
			class_worsen(&pool_class, &cls);
		n_pool += n;
		if (n_pool == size) {
			pool_class.per_domain = 1;
			pool_class.n_spanned = size / n;
			cut(b, ranked, n_ranked, seats, n_pool, &pool_class);
			n_pool = 0;
		}
	}
}

static int type_build(struct building *b, const struct space *space, uint32_t type_at,
                      struct seat *seats, struct ranked_slot *ranked, struct adp_error *err)
{
	const struct adp_cluster *cluster = space->cluster;
	uint32_t n_ranked = 0;
	struct slot *out;

	for (uint32_t gpus = b->slots->size; gpus > 0; gpus--)
		if (b->slots->size % gpus == 0)
			cut_domains(b, ranked, &n_ranked, seats, cluster, space->types[type_at], gpus);
	qsort(ranked, n_ranked, sizeof *ranked, slot_compare);
	out = adp_arena_calloc(b->arena, n_ranked, sizeof *out);
	if (!out)
		return adp_nomem(err);
	for (uint32_t i = n_ranked; i-- > 0;) {
		out[i] = ranked[i].slot;
		out[i].domain = cluster->nodes[b->gpus[out[i].first_gpu].node].nvlink_domain;
		out[i].run_end = i + 1 < n_ranked && out[i + 1].cls == out[i].cls ? out[i + 1].run_end
		                                                                  : i + 1;
		out[i].domain_end = i + 1 < n_ranked && out[i + 1].domain == out[i].domain
		                        ? out[i + 1].domain_end
		                        : i + 1;
		b->class_n[out[i].cls]++;
	}
	b->slots->type[type_at] = (struct type_slots){out, n_ranked,
	                                              slots_scattered(out, n_ranked, b->domain_seen)};
	return ADP_OK;
}

int slots_build(struct slots *out, const struct space *space, uint32_t size, struct adp_error *err)
{
	struct building b = {.slots = out, .arena = space->arena};
	size_t n_gpus = (size_t)adp_cluster_n_gpus(space->cluster);
	struct seat *seats = adp_malloc((n_gpus + 1) * sizeof *seats);
	struct ranked_slot *ranked = adp_malloc((n_gpus / size + 1) * sizeof *ranked);
	size_t n_nodes = (size_t)space->cluster->n_nodes + 1;
	int rc = ADP_OK;

	memset(out, 0, sizeof *out);
	out->size = size;
	b.spare = adp_malloc((n_gpus + 1) * sizeof *b.spare);
	b.benches = adp_malloc(n_nodes * sizeof *b.benches);
	b.chosen = adp_malloc(n_nodes * sizeof *b.chosen);
	b.many_racks = spans(space->cluster, node_rack);
	b.many_spines = spans(space->cluster, node_spine);
	/* each slot could be a class of its own in the worst case */
	b.classes = adp_arena_calloc(space->arena, n_gpus / size + 1, sizeof *b.classes);
	b.class_n = adp_arena_calloc(space->arena, n_gpus / size + 1, sizeof *b.class_n);
	b.gpus = adp_arena_calloc(space->arena, n_gpus + 1, sizeof *b.gpus);
	b.domain_seen = adp_arena_calloc(space->arena, space->cluster->n_domains + 1u,
	                                 sizeof *b.domain_seen);
	if (!b.spare || !b.benches || !b.chosen || !b.domain_seen || !seats || !ranked || !b.classes ||
	    !b.class_n || !b.gpus)
		rc = adp_nomem(err);
	for (uint32_t t = 0; rc == ADP_OK && t < space->n_types; t++)
		rc = type_build(&b, space, t, seats, ranked, err);
	adp_free(seats);
	adp_free(ranked);
	adp_free(b.spare);
	adp_free(b.benches);
	adp_free(b.chosen);
	out->classes = b.classes;
	out->class_n = b.class_n;
	out->gpus = b.gpus;
	return rc;
}
