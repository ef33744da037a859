/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_EVALUATOR_H
#define ADP_SEARCH_EVALUATOR_H

#include "search/internal.h"

/* Columns of the grid (stage x replica) that run on the same classes. */
struct column_kind {
	uint32_t n_replicas, group, first_replica;
	double f_slowest; /* not less than any column's stage time; orders kinds */
};

struct memory_key {
	const struct shape_cost *sc;
	double in_flight;
	uint32_t shard, expert_shard;
	uint16_t count[ADP_SEARCH_MAX_BLOCKS];
	uint16_t rank, pp; /* interleaved only */
	uint8_t recompute, zero_stage, ends, flash, vpp, groups;
};

enum { MEMORY_CACHE = 8192 };

/* A way to cut the layers over the pipeline ranks. */
struct split {
	uint32_t n_layers[ADP_SEARCH_MAX_PIPE];
	uint8_t recompute[ADP_SEARCH_MAX_PIPE];
};

/* How the micro-batches of a step fall on the kinds; a kind may run two counts. */
struct share {
	uint32_t kind, n_replicas, n_micro, first_replica;
};

struct evaluator {
	const struct space *space;
	uint32_t n_blocks, n_layers;
	/* of the composition at hand */
	const struct unit *unit;
	const struct shape_cost *sc;
	const struct composition *comp;
	uint32_t dp, pp, vpp;
	uint64_t n_batches;
	bool equal;       /* the same count in each replica */
	uint32_t n_equal; /* that count */
	uint32_t shard, expert_shard;
	bool optimizer_sharded;
	uint8_t recompute_order[ADP_N_RECOMPUTE], n_recompute;
	uint32_t n_kinds;
	struct column_kind kinds[ADP_SEARCH_MAX_KINDS];
	uint32_t *cls;      /* [kind * pp + stage] */
	uint32_t *domain_n; /* [domain], zero between uses */
	double *fwd;        /* [(kind * pp + stage) * n_blocks + block] */
	double *bwd;        /* [((kind * pp + stage) * ADP_N_RECOMPUTE + r) * n_blocks + block] */
	double *end_fwd, *end_bwd;   /* [kind * pp + stage]: embedding on the first, tail on the last */
	double *send_fwd, *send_bwd; /* [kind * pp + stage] */
	uint32_t inside[ADP_SEARCH_MAX_PIPE]; /* replicas of a stage that share a domain */
	double in_flight[ADP_SEARCH_MAX_PIPE];
	double usable[ADP_SEARCH_MAX_PIPE];
	double optimizer_s_per_elem[ADP_SEARCH_MAX_PIPE];
	bool flash[ADP_SEARCH_MAX_PIPE];
	struct adp_path dp_path[ADP_SEARCH_MAX_PIPE], edp_path[ADP_SEARCH_MAX_PIPE];
	double tied_s; /* all-reduce between the two copies of a tied embedding */
	/* forward of any stage <= fwd_share * its time + end_excess_s */
	double fwd_share, end_excess_s;
	double min_rest_s; /* of the step, beside the pipeline: what every split pays */
	/* scratch */
	double *most_head; /* [stage * (n_layers + 1) + layers before] */
	uint32_t *run_first, *run_n;
	/* [stage * (n_layers + 1) + layers]: exchange and optimizer, where of == exchange_of */
	struct exchange {
		uint64_t of;
		double hideable_s, optimizer_s;
	} * exchange;
	uint64_t exchange_of;
	struct adp_pipe_stage *stages;
	double *pipe_scratch, *pipe_end;
	uint64_t pipe_scratch_n;
	struct share shares[2 * ADP_SEARCH_MAX_KINDS];
	uint32_t n_shares;
	struct memory_key *cache_key;
	struct stage_peak {
		double bytes, steady_bytes; /* the larger of start and steady state; the latter */
	} * cache_value;
	struct adp_memory *detail_memory;
	double *detail_usable, *detail_end;
	struct adp_plan_cell *detail_cells;
	uint32_t *detail_class;
};

/* What hangs on the sizes of a composition alone: enough for the memory of a stage, but for units
 * that shard inside a domain. */
void evaluator_size(struct evaluator *ev, const struct unit *unit, uint32_t dp, uint32_t pp);

/* Fills the composition's tables. *legal false: a rule of the engine forbids it. */
int evaluator_open(struct evaluator *ev, const struct unit *unit, const struct composition *comp,
                   bool *legal, struct adp_error *err);

/* Layers of chunk c of a rank that holds n: earlier chunks take the remainder. */
static inline uint32_t chunk_layers(uint32_t n, uint32_t n_chunks, uint32_t c)
{
	return n / n_chunks + (c < n % n_chunks);
}

/* Backward of a layer of the first kind of block. */
static inline double layer_bwd(const struct evaluator *ev, uint32_t kind, uint32_t s,
                               uint8_t recompute)
{
	return ev->bwd[((size_t)(kind * ev->pp + s) * ADP_N_RECOMPUTE + recompute) * ev->n_blocks];
}

/* First layer of each chunk, [c * pp + s]; first[n_chunks * pp] = all layers. */
void split_chunks(uint32_t *first, const struct split *split, uint32_t pp, uint32_t vpp);

/* Peak bytes of a rank of stage s with these counts per block kind. */
double stage_bytes(struct evaluator *ev, uint32_t s, const uint16_t *count, uint8_t recompute,
                   struct adp_memory *out);

/* Cheapest recomputation under which layers [a, b) (as one run) fit stage s; false when none does.
 */
bool stage_recompute(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t *recompute);

/* The most layers, up to most, that fit stage s when recomputed so; an upper limit where kinds of
 * blocks differ. */
uint32_t stage_room(struct evaluator *ev, uint32_t s, uint8_t recompute, uint32_t most);

/* The same for each stage at the evaluator's sizes if it ran on these GPUs. */
void stage_rooms(uint16_t *room, struct evaluator *ev, const struct adp_gpu_type *gpu,
                 uint8_t recompute, uint32_t most);

/*
 * The same where kinds of block differ, or ZeRO's group hangs on the nodes: the leanest layer
 * stands for each but the first, its memory as if ZeRO divided it as often as it can.
 */
void stage_rooms_mixed(uint16_t *room, struct evaluator *ev, const struct adp_gpu_type *gpu,
                       const struct layer_room *layer, uint32_t most);

/* Is stage s too large even without layers, as stage_rooms() left the GPUs? False when that cannot
 * be told. */
bool stage_shut(struct evaluator *ev, uint32_t s);

/*
 * Exact step time of a split; shares are left in ev. Stages that do not fit are the caller's
 * affair. INFINITY when the schedule cannot run it.
 */
double split_step(struct evaluator *ev, const struct split *split);

/* Fills the recomputation of each stage; false when a stage does not fit. */
bool split_fit(struct evaluator *ev, struct split *split);

/* Pipeline times of one kind under a split: ev->stages, chunk by chunk. */
void split_stages(struct evaluator *ev, const struct split *split, uint32_t kind);

/* Gradient exchange and optimizer after the last backward of stage s. */
struct stage_rest {
	double reduce_s, gather_s, optimizer_s, dense_elems, expert_elems;
};
void stage_rest(struct evaluator *ev, struct stage_rest *out, const struct split *split,
                uint32_t s);

/* What n layers on stage s add to the step after its last backward, of which last_bwd_s at most can
 * hide the exchange; 0 where kinds of blocks differ. */
double stage_exposed(struct evaluator *ev, uint32_t s, uint32_t n, double last_bwd_s);

#endif
