/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "cost/tables.h"

/* Time of a collective at one level, split so that phases of several levels can be put together. */
struct phase {
	double start_s; /* start-up and latency */
	double wire_s;  /* bytes on the link */
};

static double total(struct phase p)
{
	return p.start_s + p.wire_s;
}

/* Latency steps of a ring; an all-reduce may take a tree instead. */
static double steps(enum adp_collective op, double n)
{
	switch (op) {
	case ADP_ALL_REDUCE:
		return fmin(2 * (n - 1), 2 * ceil(log2(n)));
	case ADP_ALL_TO_ALL:
		return ceil(log2(n));
	case ADP_SEND:
		return 1;
	default:
		return n - 1;
	}
}

/* Bytes that cross one rank's link, of the full tensor. */
static double wire_frac(enum adp_collective op, double n)
{
	if (op == ADP_SEND)
		return 1;
	return (op == ADP_ALL_REDUCE ? 2 : 1) * (n - 1) / n;
}

static double measured_s(const struct collective_curve *curve, const struct collective_group *group,
                         double bytes)
{
	double x = log2(bytes) - curve->bytes.first_log2, last = curve->bytes.n - 1;
	uint32_t low;

	if (x <= 0)
		return group->start_s;
	if (x >= last)
		return exp2(group->log_s[curve->bytes.n - 1] + x - last);
	low = (uint32_t)x;
	return exp2(group->log_s[low] + (x - low) * (group->log_s[low + 1] - group->log_s[low]));
}

static struct phase split(const struct collective_curve *curve,
                          const struct collective_group *group, double bytes)
{
	return (struct phase){group->start_s,
	                      fmax(0, measured_s(curve, group, bytes) - group->start_s)};
}

/* Between measured sizes straight in log2 of the group; above: the same bus bandwidth, start-up by
 * log2 of the group. */
static struct phase curve_phase(const struct collective_curve *curve, uint32_t op, double n,
                                double bytes)
{
	const struct collective_group *group = curve->group[op];
	uint32_t last = curve->n_groups[op] - 1, i = 0;
	struct phase a, b;
	double frac;

	while (i < last && group[i].n_gpus < n)
		i++;
	b = split(curve, &group[i], bytes);
	if (n == group[i].n_gpus)
		return b;
	if (n > group[i].n_gpus) {
		double have = group[i].n_gpus;

		return (struct phase){b.start_s * log2(n) / log2(have),
		                      b.wire_s * wire_frac((enum adp_collective)op, n) /
		                          wire_frac((enum adp_collective)op, have)};
	}
	if (i == 0)
		return b;
	a = split(curve, &group[i - 1], bytes);
	frac = log2(n / group[i - 1].n_gpus) / log2((double)group[i].n_gpus / group[i - 1].n_gpus);
	return (struct phase){a.start_s + frac * (b.start_s - a.start_s),
	                      a.wire_s + frac * (b.wire_s - a.wire_s)};
}

static const struct link_row *link_row(const struct adp_tables *tables,
                                       const struct adp_path_level *level,
                                       const struct gpu_curves **curves)
{
	enum adp_link_kind kind = level->link.kind;

	*curves = level->gpu && kind <= ADP_LINK_PCIE ? cost_gpu_curves(tables, level->gpu)
	                                              : tables->fallback;
	return &tables->link[kind][kind == ADP_LINK_PCIE ? (*curves)->pcie_p2p : 1];
}

static struct phase level_phase(const struct adp_tables *tables, enum adp_collective op,
                                const struct adp_path_level *level, double n, double bytes)
{
	const struct gpu_curves *curves;
	const struct link_row *row = link_row(tables, level, &curves);
	double rate = level->link.bytes_per_s;
	double latency = steps(op, n) * fmax(0, level->link.latency_s - row->latency_included_s);
	struct phase p;

	if (level->link.kind == ADP_LINK_NVLINK && rate > 0) {
		/* A pair's all-to-all sends half to the other: a message is one of twice its size. */
		p = op == ADP_SEND ? curve_phase(curves->collective, ADP_ALL_TO_ALL, 2, 2 * bytes)
		                   : curve_phase(curves->collective, op, n, bytes);
		p.wire_s *= curves->collective->link_bytes_per_s / rate;
		p.start_s += latency;
		return p;
	}
	p.start_s = row->start_s + latency;
	if (level->link.kind == ADP_LINK_PCIE)
		p.start_s = row->start_s * log2(n) + latency;
	if (op == ADP_ALL_TO_ALL)
		p.start_s += row->per_peer_s * (n - 1);
	if (rate > 0)
		p.wire_s = bytes * wire_frac(op, n) / (rate * row->bandwidth_frac);
	else /* 0 = never the bottleneck, for the uplinks of racks and spines only */
		p.wire_s = level->link.kind >= ADP_LINK_RACK ? 0 : INFINITY;
	return p;
}

/* Levels in use, innermost first. */
static uint32_t used_levels(const struct adp_path_level *used[ADP_MAX_LEVELS],
                            const struct adp_path *path)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < path->n_levels && i < ADP_MAX_LEVELS; i++) {
		if (path->level[i].fan > 1)
			used[n++] = &path->level[i];
	}
	return n;
}

/* Inside first, then outward with what is left, back again for an all-reduce. */
static double hierarchical_s(const struct adp_tables *tables, enum adp_collective op,
                             const struct adp_path_level *const *level, uint32_t n, double bytes)
{
	double s = 0;

	for (uint32_t i = 0; i < n; bytes /= level[i]->fan, i++) {
		if (op == ADP_ALL_REDUCE && i + 1 < n) {
			s += total(level_phase(tables, ADP_REDUCE_SCATTER, level[i], level[i]->fan, bytes));
			s += total(level_phase(tables, ADP_ALL_GATHER, level[i], level[i]->fan, bytes));
		} else {
			s += total(level_phase(tables, op, level[i], level[i]->fan, bytes));
		}
	}
	return s;
}

/*
 * One ring through all ranks. Everything crosses every level; where inner groups meet, their ranks'
 * shares of the outer link carry the ring together. The slowest level sets the pace, start-ups add
 * up.
 */
static double flat_ring_s(const struct adp_tables *tables, enum adp_collective op,
                          const struct adp_path_level *const *level, uint32_t n, double bytes)
{
	double s = 0, wire = 0, n_ranks = 1, inner = 1;

	for (uint32_t i = 0; i < n; i++)
		n_ranks *= level[i]->fan;
	for (uint32_t i = 0; i < n; i++) {
		struct phase p = level_phase(tables, op, level[i], level[i]->fan, bytes);
		double to_all = wire_frac(op, n_ranks) / wire_frac(op, level[i]->fan);

		s += p.start_s * n_ranks /
		     (inner * level[i]->fan); /* once in each group that the ring passes */
		wire = fmax(wire, p.wire_s * to_all / inner);
		inner *= level[i]->fan;
	}
	return s + wire;
}

/* Each level carries what goes to the peers first met there, all levels at once. */
static double all_to_all_s(const struct adp_tables *tables,
                           const struct adp_path_level *const *level, uint32_t n, double bytes)
{
	double s = 0, wire = 0, n_ranks = 1, inner = 1;

	for (uint32_t i = 0; i < n; i++)
		n_ranks *= level[i]->fan;
	for (uint32_t i = 0; i < n; i++) {
		double fan = level[i]->fan;
		/* bytes * (fan - 1) * inner / n_ranks leave the rank here: as many as in an all-to-all of
		 * fan ranks and */
		struct phase p = level_phase(tables, ADP_ALL_TO_ALL, level[i], fan,
		                             bytes * fan * inner / n_ranks);

		s += p.start_s;
		wire = fmax(wire, p.wire_s);
		inner *= fan;
	}
	return s + wire;
}

double adp_collective_s(const struct adp_tables *tables, enum adp_collective op,
                        const struct adp_path *path, double bytes)
{
	const struct adp_path_level *level[ADP_MAX_LEVELS];
	uint32_t n = used_levels(level, path);

	if (n == 0 || !(bytes > 0))
		return 0;
	if (op == ADP_ALL_TO_ALL)
		return all_to_all_s(tables, level, n, bytes);
	if (op == ADP_SEND) {
		double s = 0, wire = 0;

		for (uint32_t i = 0; i < n; i++) {
			struct phase p = level_phase(tables, op, level[i], 2, bytes);

			s = fmax(s, p.start_s);
			wire = fmax(wire, p.wire_s);
		}
		return s + wire;
	}
	if (n == 1)
		return total(level_phase(tables, op, level[0], level[0]->fan, bytes));
	return fmin(hierarchical_s(tables, op, level, n, bytes),
	            flat_ring_s(tables, op, level, n, bytes));
}

double cost_path_band(const struct adp_tables *tables, const struct adp_path *path)
{
	const struct adp_path_level *level[ADP_MAX_LEVELS];
	uint32_t n = used_levels(level, path);
	const struct gpu_curves *curves;
	double band = 0;

	for (uint32_t i = 0; i < n; i++)
		band = fmax(band, link_row(tables, level[i], &curves)->band_frac);
	return band;
}
