/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "adp/units.h"
#include "base/alloc.h"
#include "search/internal.h"

/*
 * Units are taken in the order of their bound, a batch at a time. All units of a batch start from
 * the best plan of the batches before, so the answer and the counts are the same on any number of
 * threads.
 */
/* FINISH_MAX: open compositions settled before the rest is left to the gap. The fewer are open, the
 * more goes into each, up to EFFORT_MAX. */
enum { BATCH_FIRST = 4, BATCH_MAX = 8, THREADS_MAX = 8, FINISH_MAX = 256, EFFORT_MAX = 20 };

/* Work of a batch of units, in plans weighed, that takes longer than to start threads for it. */
static const double worth_threads = 1.0;

/* Fleets up to this size are searched to the end. */
static const uint64_t small_fleet_gpus = 64;

struct job {
	struct candidate best;
	struct counts counts;
	struct open_list open;
	struct adp_error err;
	int rc;
};

/* Units to branch over, or open compositions to settle. */
struct batch {
	const struct space *space;
	const struct unit *units;
	const struct open_composition *open;
	double effort; /* on each open composition */
	struct job *jobs;
	uint32_t n;
	atomic_uint next;
};

struct worker {
	struct batch *batch;
	struct evaluator *ev;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct batch *batch = w->batch;

	for (;;) {
		uint32_t i = atomic_fetch_add(&batch->next, 1);
		struct job *job;

		if (i >= batch->n)
			return NULL;
		job = &batch->jobs[i];
		if (batch->open)
			job->rc = composition_finish(&job->best, &job->counts, w->ev, batch->open[i].unit,
			                             &batch->open[i].comp, batch->open[i].bound_s,
			                             batch->effort, &job->err);
		else
			job->rc = unit_search(&job->best, &job->counts, &job->open, w->ev, batch->space,
			                      &batch->units[i], &job->err);
	}
}

static void run_batch(struct batch *batch, struct worker *workers, uint32_t n_threads)
{
	pthread_t threads[THREADS_MAX];
	uint32_t started = 0;

	atomic_store(&batch->next, 0);
	for (uint32_t i = 0; i < n_threads; i++)
		workers[i].batch = batch;
	for (uint32_t i = 1; i < n_threads && i < batch->n; i++)
		if (pthread_create(&threads[started], NULL, work, &workers[i]) == 0)
			started++;
	work(&workers[0]); /* does all of it if no thread could be had */
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* The state of a search between batches. */
struct progress {
	struct candidate best;
	struct counts counts;
	struct open_list open;
	struct job jobs[BATCH_MAX];
	struct worker workers[THREADS_MAX];
	uint32_t n_threads;
	double batch_work; /* of the batch before */
	bool any_plan;     /* of the knobs */
};

static bool settled(const struct progress *p)
{
	return p->any_plan && isfinite(p->best.step_s);
}

/* What stays unsearched, from this bound on, is left to the gap. */
static bool spent(struct progress *p, const struct space *space, double bound_s)
{
	if (!(space->max_work > 0.0) || p->counts.work < space->max_work || !isfinite(p->best.step_s))
		return false;
	p->counts.open_bound_s = fmin(p->counts.open_bound_s, bound_s);
	return true;
}

/* Appends what is still open after the batch; what the best plan now rules out is dropped. */
static int gather_open(struct progress *p, const struct space *space, struct open_list *from,
                       struct adp_error *err)
{
	for (uint32_t i = 0; i < from->n; i++) {
		if (from->items[i].bound_s >= cut_s(space, &p->best)) {
			p->counts.bounded++;
			continue;
		}
		if (p->open.n == p->open.max) {
			uint32_t max = p->open.max ? p->open.max * 2 : 64;
			struct open_composition *grown = adp_reallocarray(p->open.items, max, sizeof *grown);

			if (!grown)
				return adp_nomem(err);
			p->open.items = grown;
			p->open.max = max;
		}
		p->open.items[p->open.n++] = from->items[i];
	}
	return ADP_OK;
}

static int run_jobs(struct progress *p, struct batch *batch, struct adp_error *err)
{
	int rc = ADP_OK;

	batch->jobs = p->jobs;
	for (uint32_t i = 0; i < batch->n; i++) {
		memset(&p->jobs[i], 0, sizeof p->jobs[i]);
		p->jobs[i].best = p->best;
		p->jobs[i].counts.open_bound_s = INFINITY;
	}
	/* units are as light as those before, as a rule: on light ones threads are lost time */
	run_batch(batch, p->workers, batch->open || p->batch_work >= worth_threads ? p->n_threads : 1);
	p->batch_work = 0.0;
	for (uint32_t i = 0; i < batch->n; i++) {
		struct job *job = &p->jobs[i];

		if (rc == ADP_OK && job->rc != ADP_OK) {
			rc = job->rc;
			if (err)
				*err = job->err;
		}
		p->counts.weighed += job->counts.weighed;
		p->counts.work += job->counts.work;
		p->batch_work += job->counts.work;
		p->counts.bounded += job->counts.bounded;
		p->counts.open_bound_s = fmin(p->counts.open_bound_s, job->counts.open_bound_s);
		if (candidate_better(&job->best, &p->best))
			p->best = job->best;
	}
	for (uint32_t i = 0; i < batch->n; i++) {
		if (rc == ADP_OK)
			rc = gather_open(p, batch->space, &p->jobs[i].open, err);
		adp_free(p->jobs[i].open.items);
	}
	return rc;
}

static int open_compare(const void *a, const void *b)
{
	const struct open_composition *x = a, *y = b;

	if (x->bound_s != y->bound_s)
		return x->bound_s < y->bound_s ? -1 : 1;
	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return memcmp(&x->comp, &y->comp, sizeof x->comp);
}

/* A good plan early makes the bounds bite; the leanest memory settings find one soonest. */
static int scout(struct progress *p, const struct space *space, struct adp_error *err)
{
	uint32_t most_zero = 0;
	int rc = ADP_OK;

	for (uint32_t i = 0; i < space->n_units; i++)
		if (space->units[i].zero_stage > most_zero && space->units[i].zero_stage < 2)
			most_zero = space->units[i].zero_stage;
	for (uint32_t i = 0; rc == ADP_OK && i < space->n_units && !settled(p); i++) {
		const struct unit *u = &space->units[i];

		if (u->vpp == 1 && u->zero_stage >= most_zero && u->recompute != ADP_RECOMPUTE_SELECTIVE &&
		    u->bound_s < cut_s(space, &p->best))
			rc = unit_scout(&p->best, &p->counts, p->workers[0].ev, space, u, err);
	}
	return rc;
}

static int search_units(struct progress *p, const struct space *space, struct adp_error *err)
{
	uint32_t size = BATCH_FIRST;
	double effort = 1.0;
	int rc = scout(p, space, err);

	for (uint32_t at = 0; rc == ADP_OK && at < space->n_units && !settled(p);) {
		struct batch batch = {.space = space, .units = space->units + at};

		if (space->units[at].bound_s >= cut_s(space, &p->best)) {
			p->counts.bounded += space->n_units - at;
			break;
		}
		if (spent(p, space, space->units[at].bound_s))
			break;
		batch.n = space->n_units - at < size ? space->n_units - at : size;
		rc = run_jobs(p, &batch, err);
		at += batch.n;
		size = size < BATCH_MAX ? size * 2 : BATCH_MAX;
	}
	if (p->open.n && !(space->max_work > 0.0))
		effort = fmin(fmax(1.0, (double)FINISH_MAX / p->open.n), EFFORT_MAX);
	if (p->open.n)
		qsort(p->open.items, p->open.n, sizeof *p->open.items, open_compare);
	for (uint32_t at = 0; rc == ADP_OK && at < p->open.n && !settled(p);) {
		struct batch batch = {.space = space, .open = p->open.items + at, .effort = effort};

		if (p->open.items[at].bound_s >= cut_s(space, &p->best)) {
			p->counts.bounded += p->open.n - at;
			break;
		}
		if (spent(p, space, p->open.items[at].bound_s))
			break;
		if (at >= FINISH_MAX && adp_cluster_n_gpus(space->cluster) > small_fleet_gpus) {
			p->counts.open_bound_s = fmin(p->counts.open_bound_s, p->open.items[at].bound_s);
			break;
		}
		batch.n = p->open.n - at < BATCH_MAX ? p->open.n - at : BATCH_MAX;
		rc = run_jobs(p, &batch, err);
		at += batch.n;
	}
	/* what stood within the tolerance of the best was not looked at */
	if (space->tolerance_frac > 0.0)
		p->counts.open_bound_s = fmin(p->counts.open_bound_s, cut_s(space, &p->best));
	return rc;
}

int search_fleet(struct adp_plan **out, struct counts *counts, double limit_s,
                 const struct adp_model *model, const struct adp_cluster *cluster,
                 const struct adp_engine *engine, const struct adp_tables *tables,
                 const struct adp_train *train, const struct adp_search_opts *opts,
                 const struct search_knobs *knobs, struct adp_error *err)
{
	struct adp_arena arena = {0};
	struct space space;
	struct progress *p = adp_calloc(1, sizeof *p);
	int rc;

	if (!p)
		return adp_nomem(err);
	p->n_threads = opts->n_threads < 1             ? 1
	               : opts->n_threads > THREADS_MAX ? THREADS_MAX
	                                               : opts->n_threads;
	p->any_plan = knobs->any_plan;
	p->best.step_s = limit_s;
	p->counts.open_bound_s = INFINITY;
	rc = space_build(&space, model, cluster, engine, tables, train, opts, &arena, knobs, err);
	space.max_work = knobs->max_work;
	for (uint32_t i = 0; rc == ADP_OK && i < p->n_threads; i++)
		rc = evaluator_create(&p->workers[i].ev, &space, err);
	if (rc == ADP_OK)
		rc = search_units(p, &space, err);
	if (rc == ADP_OK) {
		counts->weighed += p->counts.weighed;
		counts->bounded += p->counts.bounded + space.n_refused;
		counts->open_bound_s = fmin(counts->open_bound_s, p->counts.open_bound_s);
		if (p->best.comp.dp)
			rc = plan_build(out, &space, p->workers[0].ev, &p->best, err);
		else
			rc = adp_fail(err, ADP_EINFEASIBLE, SEARCH_FOUND_NOTHING "%s %s fits this fleet",
			              engine->name, engine->version);
	}
	for (uint32_t i = 0; i < p->n_threads; i++)
		evaluator_destroy(p->workers[i].ev);
	adp_arena_fini(&arena);
	adp_free(p->open.items);
	adp_free(p);
	return rc;
}

int search_with(struct adp_plan **out, const struct adp_model *model,
                const struct adp_cluster *cluster, const struct adp_engine *engine,
                const struct adp_tables *tables, const struct adp_train *train,
                const struct adp_search_opts *opts, const struct search_knobs *knobs,
                struct adp_error *err)
{
	struct counts counts = {.open_bound_s = INFINITY};
	struct adp_plan *plan = NULL;
	int found = search_fleet(&plan, &counts, INFINITY, model, cluster, engine, tables, train, opts,
	                         knobs, err),
		rc = ADP_OK;

	if (found != ADP_OK && found != ADP_EINFEASIBLE)
		return found;
	if (!knobs->any_plan)
		rc = search_views(&plan, &counts, model, cluster, engine, tables, train, opts, knobs, err);
	if (rc != ADP_OK) {
		adp_plan_destroy(plan);
		return rc;
	}
	if (!plan)
		return found;
	plan_count(plan, cluster, &counts);
	*out = plan;
	return ADP_OK;
}

void adp_search_opts_init(struct adp_search_opts *opts)
{
	memset(opts, 0, sizeof *opts);
	opts->zero_stage = opts->recompute = opts->sequence_parallel = -1;
	opts->n_threads = 1;
}

/* What every search for a deadline is made from. */
struct deadline_job {
	const struct adp_model *model;
	const struct adp_cluster *cluster;
	const struct adp_engine *engine;
	const struct adp_tables *tables;
	const struct adp_train *train;
	const struct adp_search_opts *opts;
	const struct search_knobs *knobs;
};

/* The fastest plan of at most max GPUs, NULL when there is none. Other failures than "no" are
 * returned. */
static int fastest_of(struct adp_plan **out, const struct deadline_job *job, uint32_t max,
                      struct adp_error *err)
{
	struct adp_search_opts fewer = *job->opts;
	int rc;

	fewer.gpus.max = max;
	*out = NULL;
	rc = search_with(out, job->model, job->cluster, job->engine, job->tables, job->train, &fewer,
	                 job->knobs, err);
	return rc == ADP_EINFEASIBLE || rc == ADP_EINVAL ? ADP_OK : rc;
}

static bool in_time(const struct adp_plan *plan, const struct adp_train *train)
{
	return plan->time.total_s <= train->deadline_s;
}

static void keep(struct adp_plan **plan, struct adp_plan *instead)
{
	adp_plan_destroy(*plan);
	*plan = instead;
}

/*
 * Half the GPUs again and again, while that brings the end nearer: a step gets longer, but fewer
 * GPUs fail less often. *plan becomes the first in time, or the one that ends first.
 */
static int halve_gpus(struct adp_plan **plan, const struct deadline_job *job, struct adp_error *err)
{
	const uint32_t least = job->opts->gpus.min > 1 ? job->opts->gpus.min : 1;
	uint32_t n = adp_plan_world(*plan) / 2;
	int rc = ADP_OK;

	for (; rc == ADP_OK && n >= least && !in_time(*plan, job->train); n /= 2) {
		struct adp_plan *trial;

		rc = fastest_of(&trial, job, n, err);
		if (rc != ADP_OK || !trial)
			break;
		if (trial->time.total_s < (*plan)->time.total_s)
			keep(plan, trial);
		else
			adp_plan_destroy(trial);
	}
	return rc;
}

static int too_late(const struct adp_plan *plan, const struct adp_train *train,
                    struct adp_error *err)
{
	char have[32], want[32];

	if (!isfinite(plan->time.total_s))
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"deadline: no plan ever ends: a GPU fails every %s, and failures undo more than the job gains between "
			"two of them; shorten --restart-time or the checkpoints (--storage-bandwidth)",
			adp_format_duration(have, sizeof have, train->mtbf_s));
	return adp_fail(
		err, ADP_EINFEASIBLE,
		"deadline: the fastest plan takes %s on %u GPUs, %s was asked; give that much time, fewer tokens "
		"(--tokens) or more GPUs",
		adp_format_duration(have, sizeof have, plan->time.total_s), adp_plan_world(plan),
		adp_format_duration(want, sizeof want, train->deadline_s));
}

/*
 * The fewest GPUs whose fastest plan meets the deadline. A step never gets longer with more GPUs to
 * choose from, so bisection below a number that does finds it; on a large fleet to about 1 %.
 */
static int fewest_gpus(struct adp_plan **plan, const struct deadline_job *job,
                       struct adp_error *err)
{
	uint32_t lo = job->opts->gpus.min ? job->opts->gpus.min - 1 : 0, hi, stop;
	int rc = job->train->mtbf_s > 0.0 ? halve_gpus(plan, job, err) : ADP_OK;

	if (rc == ADP_OK && !in_time(*plan, job->train))
		rc = too_late(*plan, job->train, err);
	hi = adp_plan_world(*plan);
	stop = hi > 1024 ? hi / 128 : 1;
	while (rc == ADP_OK && hi - lo > stop) {
		uint32_t mid = lo + (hi - lo) / 2;
		struct adp_plan *trial;

		rc = fastest_of(&trial, job, mid, err);
		if (rc != ADP_OK)
			break;
		if (trial && in_time(trial, job->train)) {
			keep(plan, trial);
			hi = adp_plan_world(trial) < mid ? adp_plan_world(trial) : mid;
		} else {
			adp_plan_destroy(trial);
			lo = mid;
		}
	}
	if (rc != ADP_OK)
		keep(plan, NULL);
	return rc;
}

int adp_search(struct adp_plan **out, const struct adp_model *model,
               const struct adp_cluster *cluster, const struct adp_engine *engine,
               const struct adp_tables *tables, const struct adp_train *train,
               const struct adp_search_opts *opts, struct adp_error *err)
{
	struct search_knobs knobs = {.memory_scale = 1.0, .node_parts = true};
	int rc = search_with(out, model, cluster, engine, tables, train, opts, &knobs, err);

	if (rc == ADP_OK && train->deadline_s > 0.0 && train->tokens > 0.0)
		return fewest_gpus(
			out, &(struct deadline_job){model, cluster, engine, tables, train, opts, &knobs}, err);
	return rc == ADP_EINFEASIBLE ? search_advice(model, cluster, engine, tables, train, opts, err)
	                             : rc;
}
