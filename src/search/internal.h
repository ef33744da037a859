/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_INTERNAL_H
#define ADP_SEARCH_INTERNAL_H

#include "adp/pipeline.h"
#include "adp/search.h"

/* Parts of the search; docs/internals/search.md tells how they fit. */

enum {
	ADP_SEARCH_MAX_TYPES = 8,
	ADP_SEARCH_MAX_PIPE = 128,
	ADP_SEARCH_MAX_KINDS = 24,
	ADP_SEARCH_MAX_BLOCKS = 8,
	ADP_SEARCH_MAX_CHUNKS = 1024,
	ADP_SEARCH_MAX_LAYERS = 1024
};

/* ---- slots: the GPUs of one tensor x context parallel group ------------------------- */

/* Slots that may stand for one another: same GPU type, health bucket and links. */
struct slot_class {
	uint32_t type;     /* index into cluster->types */
	double speed_frac; /* slowest GPU of the slot, in 5 % buckets */
	uint32_t
		per_domain; /* slots of this size in one NVLink domain or node; 1 when one spans several */
	uint32_t domain_gpus;     /* GPUs of one domain that such slots use */
	uint32_t n_spanned;       /* domains one slot spans, 1 as a rule */
	struct adp_link gpu_link; /* usable share of one GPU inside the domain */
	struct adp_link nic;      /* usable share of one GPU out of its node, inside a rack */
	struct adp_link far;      /* the same across racks and spines */
};

struct slot_gpu {
	uint32_t node, gpu;
};

struct slot {
	uint32_t cls;
	uint32_t first_gpu;  /* into slots->gpus, slots->size of them */
	uint32_t domain;     /* NVLink domain of its first GPU */
	uint32_t run_end;    /* first later slot of another class */
	uint32_t domain_end; /* first later slot of another domain */
};

/* Slots of one type, best first: health, then slots per domain, then links, then the cluster's
 * order. */
struct type_slots {
	const struct slot *slots;
	uint32_t n;
	bool scattered; /* slots of one domain do not all stand together */
};

struct slots {
	uint32_t size; /* tp * cp */
	const struct slot_class *classes;
	uint32_t n_classes;
	const uint32_t *class_n; /* slots of each class */
	const struct slot_gpu *gpus;
	struct type_slots type[ADP_SEARCH_MAX_TYPES]; /* by index of space->types */
};

/* ---- the problem ---------------------------------------------------------------------- */

/* Block kinds first, then these. */
enum { KIND_EMBEDDING, KIND_TAIL, N_END_KINDS }; /* tail: final norm, head and loss together */

/* The parts of a unit that fix the item times. */
struct shape_cost {
	struct adp_shape shape;
	const struct slots *slots;
	const struct adp_item_time *block; /* [class * n_blocks + block] */
	const struct adp_item_time *end;   /* [class * N_END_KINDS + kind] */
	double send_bytes;                 /* between stages, one rank */
	/* shortest send between stages on two types, out of the domain; on one type inside it, which
	 * takes fewer replicas than near_dp */
	double far_send_s[ADP_SEARCH_MAX_TYPES][ADP_SEARCH_MAX_TYPES];
	double near_send_s[ADP_SEARCH_MAX_TYPES];
	uint32_t near_dp[ADP_SEARCH_MAX_TYPES];
	double block_elems[ADP_SEARCH_MAX_BLOCKS],
		block_expert_elems[ADP_SEARCH_MAX_BLOCKS]; /* on one rank */
	double end_elems[N_END_KINDS];
};

/* One combination of the degrees that are the same for all of the fleet. */
struct unit {
	uint32_t shape; /* index into space->shapes */
	int recompute;  /* enum adp_recompute for all stages, or -1: per stage */
	uint32_t zero_stage, vpp;
	bool hybrid;    /* ZeRO inside the NVLink domain only */
	double bound_s; /* no plan of this unit is faster */
};

struct space {
	const struct adp_model *model;
	const struct adp_cluster *cluster;
	const struct adp_engine *engine;
	const struct adp_tables *tables;
	const struct adp_train *train;
	const struct adp_search_opts *opts;
	struct adp_arena *arena;
	uint32_t types[ADP_SEARCH_MAX_TYPES]; /* cluster types the engine may use, fastest first */
	uint32_t n_types;
	bool type_required[ADP_SEARCH_MAX_TYPES];
	const struct slots *slots; /* by size */
	uint32_t n_slots;
	const struct shape_cost *shapes;
	uint32_t n_shapes;
	struct unit *units; /* by bound */
	uint32_t n_units;
	const uint32_t
		*n_before;         /* [block * (n_layers + 1) + l]: layers of a block kind before layer l */
	uint64_t n_refused;    /* combinations dismissed by a rule */
	double max_slots_gpus; /* GPUs that may be used; infinity when not pinned */
	double tolerance_frac; /* plans that could be better by less are not looked for */
	double max_work;       /* of the knobs */
	double memory_scale;   /* 1; the "what if memory were no limit" question raises it */
};

/* One group of replicas of the same composition: stage i runs on stage_type[i]. */
struct replica_group {
	uint32_t n_replicas;
	uint8_t stage_type[ADP_SEARCH_MAX_PIPE];   /* index into space->types */
	uint32_t first_slot[ADP_SEARCH_MAX_TYPES]; /* where this group's slots begin in each type */
};

struct composition {
	uint32_t dp, pp, n_groups;
	struct replica_group group[ADP_SEARCH_MAX_TYPES];
};

/* A complete plan of the search, before it becomes a document. */
struct candidate {
	double step_s;
	struct unit unit;
	struct composition comp;
	uint32_t n_gpus;
	uint32_t n_layers[ADP_SEARCH_MAX_PIPE]; /* per rank, chunks together */
	uint8_t recompute[ADP_SEARCH_MAX_PIPE];
	uint32_t n_kinds;
	struct {
		uint32_t n_replicas, n_micro, group, first_replica;
	} kind[2 * ADP_SEARCH_MAX_KINDS];
};

/* Is the range free, or the value in it? */
static inline bool pin_allows(const struct adp_pin *pin, uint64_t value)
{
	return (!pin->min && !pin->max) || (value >= pin->min && value <= pin->max);
}

/* The fewest micro-batches that a replica of pp stages may run. */
static inline uint32_t least_micro(const struct space *space, uint32_t pp)
{
	return pp > 1 && !space->engine->fewer_batches_than_stages ? pp : 1;
}

/* Must every replica run the same number of micro-batches? */
static inline bool equal_batches(const struct space *space, const struct unit *unit)
{
	return !space->engine->uneven_micro_batches || space->opts->equal_batches ||
	       unit->zero_stage >= 2;
}

/* Only what can be faster than this is worth a look: as fast will do, for the simpler plan of two.
 */
static inline double cut_s(const struct space *space, const struct candidate *best)
{
	return best->step_s * (space->tolerance_frac > 0.0 ? 1.0 - space->tolerance_frac : 1.0 + 1e-9);
}

/* ---- slots.c ------------------------------------------------------------------------ */
int slots_build(struct slots *out, const struct space *space, uint32_t size, struct adp_error *err);

/* The knobs only explain.c and advice.c turn. */
struct search_knobs {
	double tolerance_frac;    /* at least; large fleets get one anyway */
	double memory_scale;      /* 1; larger asks what a plan without memory limits would be */
	const bool *require_type; /* by cluster type: must be used; or NULL */
	double max_work; /* once there is a plan, counts.work goes about so far and no further, the gap
	                    tells the rest; 0 = no limit */
	bool node_parts; /* of a fleet of few GPUs, look at parts of its nodes too: takes long */
	bool any_plan;   /* the first plan that fits will do: "does anything fit?" */
};

/* ---- space.c -------------------------------------------------------------------------- */
int space_build(struct space *out, const struct adp_model *model, const struct adp_cluster *cluster,
                const struct adp_engine *engine, const struct adp_tables *tables,
                const struct adp_train *train, const struct adp_search_opts *opts,
                struct adp_arena *arena, const struct search_knobs *knobs, struct adp_error *err);
bool space_type_allowed(const struct adp_engine *engine, const struct adp_train *train,
                        const struct adp_search_opts *opts, const struct adp_gpu_type *type,
                        const char **why, const char **flag);

/* Seconds that a send between two stages adds to a path, on this link of this GPU. */
double send_time(const struct space *space, const struct adp_link *link,
                 const struct adp_gpu_type *gpu, double bytes);

/* ---- bound.c: what no plan can beat ---------------------------------------------------------- */

enum { SEARCH_MAX_WORK = ADP_SEARCH_MAX_BLOCKS + N_END_KINDS };

/* Shortest times per kind of item and type, whatever the class; and how much of each kind there is.
 */
struct work {
	uint32_t n_kinds;
	double amount[SEARCH_MAX_WORK];
	double time_s[ADP_SEARCH_MAX_TYPES][SEARCH_MAX_WORK];
	double fwd_share,
		end_excess_s; /* forward of any stage <= fwd_share * its time + 2 end_excess_s */
	bool present[ADP_SEARCH_MAX_TYPES];
	double n_layers, layer_s[ADP_SEARCH_MAX_TYPES]; /* shortest block */
	/* of a block forward and backward, of the ends, each the shortest */
	double layer_fwd_s[ADP_SEARCH_MAX_TYPES], layer_bwd_s[ADP_SEARCH_MAX_TYPES];
	/* what recomputing adds to a block where each stage has its own way, the shortest */
	double layer_recompute_s[ADP_SEARCH_MAX_TYPES][ADP_N_RECOMPUTE];
	double end_fwd_s[ADP_SEARCH_MAX_TYPES][N_END_KINDS],
		end_bwd_s[ADP_SEARCH_MAX_TYPES][N_END_KINDS];
	/* by price (a type's times, without the ends and with them): all the work, and the work a slot
	 * of each type does in a second, types in falling order of it */
	uint32_t n_prices;
	struct {
		double cost, rate[ADP_SEARCH_MAX_TYPES];
		uint8_t type[ADP_SEARCH_MAX_TYPES];
		uint32_t n;
	} price[2 * ADP_SEARCH_MAX_TYPES];
};
void work_build(struct work *out, const struct space *space, const struct unit *unit);

/*
 * Seconds per micro-batch that no split over at most cap slots, of them n[t] of type t, undercuts:
 * LP duality, with the times of one type after the other as prices. Infinity without slots.
 */
double work_bound(const struct work *work, const double n[ADP_SEARCH_MAX_TYPES], double cap);

/*
 * Do all layers find room on pp stages that take at most tau_s a micro-batch and hold whole layers,
 * at most most[t] of them? At most n[t] of the stages are of type t. The ends stand where they take
 * least.
 */
bool work_fits(const struct work *work, const double n[ADP_SEARCH_MAX_TYPES],
               const double most[ADP_SEARCH_MAX_TYPES], double pp, double tau_s);

/* Slots of a type (of space->types) that the unit can use: context parallelism needs the fused
 * attention kernel. */
uint32_t unit_slots(const struct space *space, const struct unit *unit, uint32_t t);
double unit_bound(const struct space *space, const struct unit *unit);

/* The most layers that memory could allow a stage: state and activations only, nothing else
 * counted. */
struct layer_room {
	double usable_bytes;
	double fixed_bytes, sharded_bytes,
		flight_bytes; /* a layer: always; over ZeRO's ranks; per micro-batch in flight */
};
void layer_room_build(struct layer_room *out, const struct space *space, const struct unit *unit,
                      const struct adp_gpu_type *gpu);
double layer_room_layers(const struct layer_room *room, double shard, double in_flight);
double layer_room_more(const struct layer_room *room, double shard, double in_flight,
                       double left_bytes); /* in so many bytes */
uint64_t unit_batches(const struct space *space,
                      const struct unit *unit); /* micro-batches of a step */

/* ---- evaluate.c: the exact step of a composition with a split -------------------------------- */

struct counts {
	uint64_t weighed, bounded;
	double work;         /* what it took, in plans weighed; the same on every machine */
	double open_bound_s; /* smallest bound of a composition that was not searched to the end */
};

/* What the steps of the search cost, beside the weighing of a plan; powers of 2, so that the order
 * of the sum does not matter. */
#define WORK_OF_COMPOSITION 0.5 /* opened and bounded */
#define WORK_OF_LOOK                                                                               \
	(1.0 / 256.0) /* at some stages of a type, or at a composition from outside                    \
	               */
#define WORK_OF_DESCENT (1.0 / 1024.0) /* a step of it */

struct evaluator; /* buffers of one thread */
int evaluator_create(struct evaluator **out, const struct space *space, struct adp_error *err);
void evaluator_destroy(struct evaluator *ev);

/*
 * First look at a composition: the min-max partition of the layers, weighed exactly. *bound_s is
 * raised to what no split of it can beat. *open: a better split than *best is still possible.
 */
int composition_try(struct candidate *best, struct counts *counts, struct evaluator *ev,
                    const struct unit *unit, const struct composition *comp, double *bound_s,
                    bool *open, struct adp_error *err);

/*
 * Settles an open composition: exchange moves, then all splits that the bounds leave, while the
 * budget lasts, effort (1 or more) times the usual one; if it does not, counts->open_bound_s keeps
 * the bound.
 */
int composition_finish(struct candidate *best, struct counts *counts, struct evaluator *ev,
                       const struct unit *unit, const struct composition *comp, double bound_s,
                       double effort, struct adp_error *err);

/* Compositions left open, each with its bound. */
struct open_composition {
	double bound_s;
	const struct unit *unit;
	struct composition comp;
};
struct open_list {
	struct open_composition *items;
	uint32_t n, max;
};

/* A finished candidate in numbers. All arrays are the evaluator's. */
struct detail {
	struct adp_plan_step step;
	const struct adp_memory *memory;   /* pp */
	const double *usable_bytes;        /* pp */
	const struct adp_plan_cell *cells; /* [kind * pp + stage], gpu = cluster type */
	const double *end_s;               /* kind */
	const uint32_t *slot_class;        /* [kind * pp + stage] */
	uint32_t shard_gpus;
	bool flash;
	double state_bytes; /* model and optimizer state of the job, for checkpoints */
};
int candidate_detail(struct detail *out, struct evaluator *ev, const struct candidate *cand,
                     struct adp_error *err);

/* Full order: step time, then GPUs, then the simpler plan. */
bool candidate_better(const struct candidate *a, const struct candidate *b);

/* ---- branch.c: degrees and shares of one unit ----------------------------------------- */

/* A cheap first plan: as many GPUs as may be used at the data-parallel sizes with the best bounds.
 */
int unit_scout(struct candidate *best, struct counts *counts, struct evaluator *ev,
               const struct space *space, const struct unit *unit, struct adp_error *err);
int unit_search(struct candidate *best, struct counts *counts, struct open_list *open,
                struct evaluator *ev, const struct space *space, const struct unit *unit,
                struct adp_error *err);

/* ---- plan_build.c -------------------------------------------------------------------------- */
int plan_build(struct adp_plan **out, const struct space *space, struct evaluator *ev,
               const struct candidate *cand, struct adp_error *err);
/* Fills in what the whole search and the whole fleet tell. */
void plan_count(struct adp_plan *plan, const struct adp_cluster *cluster,
                const struct counts *counts);

/* A search that went through the whole space and found nothing fails with a text that starts so. */
#define SEARCH_FOUND_NOTHING "no plan of "

/* ---- search.c ------------------------------------------------------------------------- */

/* One fleet, every plan with a step shorter than limit_s. ADP_EINFEASIBLE: none. Adds to counts. */
int search_fleet(struct adp_plan **out, struct counts *counts, double limit_s,
                 const struct adp_model *model, const struct adp_cluster *cluster,
                 const struct adp_engine *engine, const struct adp_tables *tables,
                 const struct adp_train *train, const struct adp_search_opts *opts,
                 const struct search_knobs *knobs, struct adp_error *err);
int search_with(struct adp_plan **out, const struct adp_model *model,
                const struct adp_cluster *cluster, const struct adp_engine *engine,
                const struct adp_tables *tables, const struct adp_train *train,
                const struct adp_search_opts *opts, const struct search_knobs *knobs,
                struct adp_error *err);

/* ---- views.c -------------------------------------------------------------------------- */

/* Puts a better plan that a part of the fleet allows in the place of *best, which is NULL when the
 * whole allows none. */
int search_views(struct adp_plan **best, struct counts *counts, const struct adp_model *model,
                 const struct adp_cluster *cluster, const struct adp_engine *engine,
                 const struct adp_tables *tables, const struct adp_train *train,
                 const struct adp_search_opts *opts, const struct search_knobs *knobs,
                 struct adp_error *err);

/* ---- advice.c ------------------------------------------------------------------------- */
/*
 * For the caller whose search found nothing: ADP_EINFEASIBLE with a text that names what is in the
 * way and the smallest changes that help, with numbers; or another failure.
 */
int search_advice(const struct adp_model *model, const struct adp_cluster *cluster,
                  const struct adp_engine *engine, const struct adp_tables *tables,
                  const struct adp_train *train, const struct adp_search_opts *opts,
                  struct adp_error *err);

#endif
