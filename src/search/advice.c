/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adp/units.h"
#include "base/strbuf.h"
#include "search/internal.h"

/*
 * When nothing fits: what stands in the way and the smallest changes that help, cheapest for the
 * user first. Each question is a search that stops at the first plan, with everything but one value
 * kept.
 */

enum { ADVICE_MAX = 3, SEQ_LEAST = 256, GROWTH_MAX = 64, BATCH_GROWTH_MAX = 16, GPUS_MAX = 131072 };

/* A search that went through everything says only that nothing fits. */
#define NOT_MEMORY ", whatever the memory: degrees, batch and GPUs leave no legal combination"

/* "If memory were no limit". */
static const double no_limit = 1e6;

/* The memory that would be enough is told this exactly. */
static const double memory_step = 1.03;

struct advice {
	const struct adp_model *model;
	const struct adp_cluster *cluster;
	const struct adp_engine *engine;
	const struct adp_tables *tables;
	const struct adp_train *train;
	const struct adp_search_opts *opts;
	struct adp_arena scratch;
	struct adp_strbuf text; /* changes that help, "; " between them */
	uint32_t n;
	struct adp_error *err;
};

/* What to ask: the user's values but for the one that changes. */
struct trial {
	const struct adp_cluster *cluster;
	struct adp_train train;
	struct adp_search_opts opts;
	double memory_scale;
};

static bool pinned(const struct adp_pin *pin)
{
	return pin->min || pin->max;
}

static void trial_init(struct trial *out, const struct advice *a)
{
	*out = (struct trial){a->cluster, *a->train, *a->opts, 1.0};
	out->train.deadline_s = 0.0;
}

/*
 * What fits at all also fits with the leanest of the values that the user left open: full
 * recomputation, micro-batches of one sequence, no virtual pipeline. Those need the least memory
 * and no rule prefers others.
 */
static void make_lean(struct trial *trial, const struct advice *a)
{
	if (trial->opts.recompute < 0 && a->opts->recompute < 0 &&
	    a->engine->recompute_mask & (1u << ADP_RECOMPUTE_FULL))
		trial->opts.recompute = ADP_RECOMPUTE_FULL;
	if (!pinned(&trial->opts.micro_batch) && !pinned(&a->opts->micro_batch))
		trial->opts.micro_batch = (struct adp_pin){1, 1};
	if (!pinned(&trial->opts.vpp) && !pinned(&a->opts->vpp))
		trial->opts.vpp = (struct adp_pin){1, 1};
}

/* *plan: some plan that fits, or NULL. Other failures than "no" are returned. */
static int attempt(struct adp_plan **plan, struct advice *a, const struct trial *trial,
                   struct adp_error *why)
{
	struct search_knobs knobs = {.memory_scale = trial->memory_scale, .any_plan = true};
	struct trial lean = *trial;
	struct adp_error err = {0};
	int rc;

	make_lean(&lean, a);
	rc = search_with(plan, a->model, lean.cluster, a->engine, a->tables, &lean.train, &lean.opts,
	                 &knobs, &err);
	if (rc == ADP_OK)
		return ADP_OK;
	*plan = NULL;
	if (why)
		*why = err;
	if (rc == ADP_EINFEASIBLE || rc == ADP_EINVAL)
		return ADP_OK;
	if (a->err)
		*a->err = err;
	return rc;
}

static int fits(bool *out, struct advice *a, const struct trial *trial)
{
	struct adp_plan *plan;
	int rc = attempt(&plan, a, trial, NULL);

	*out = rc == ADP_OK && plan;
	if (rc == ADP_OK)
		adp_plan_destroy(plan);
	return rc;
}

static const char *label(const struct adp_gpu_type *gpu)
{
	return gpu->alias && *gpu->alias ? gpu->alias : gpu->name;
}

static void add_advice(struct advice *a, const char *format, ...) ADP_PRINTF(2, 3);
static void add_advice(struct advice *a, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	if (vsnprintf(text, sizeof text, format, args) < 0)
		text[0] = '\0';
	va_end(args);
	adp_strbuf_addf(&a->text, "%s%s", a->n++ ? "; " : "", text);
}

/* ---- pins ---------------------------------------------------------------------------- */

struct pin_of {
	const char *flag;
	size_t at; /* in the options */
};

static const struct pin_of pins[] = {
	{"--micro-batch", offsetof(struct adp_search_opts, micro_batch)},
	{"--vpp", offsetof(struct adp_search_opts, vpp)},
	{"--cp", offsetof(struct adp_search_opts, cp)},
	{"--ep", offsetof(struct adp_search_opts, ep)},
	{"--tp", offsetof(struct adp_search_opts, tp)},
	{"--pp", offsetof(struct adp_search_opts, pp)},
	{"--dp", offsetof(struct adp_search_opts, dp)},
	{"--gpus-used", offsetof(struct adp_search_opts, gpus)},
};

static struct adp_pin *pin_at(struct adp_search_opts *opts, const struct pin_of *pin)
{
	return (struct adp_pin *)(void *)((char *)opts + pin->at);
}

static uint64_t pin_value(const struct adp_plan *plan, const struct pin_of *pin)
{
	switch (pin->at) {
	case offsetof(struct adp_search_opts, micro_batch):
		return plan->micro_batch_seqs;
	case offsetof(struct adp_search_opts, vpp):
		return plan->vpp;
	case offsetof(struct adp_search_opts, cp):
		return plan->cp;
	case offsetof(struct adp_search_opts, ep):
		return plan->ep;
	case offsetof(struct adp_search_opts, tp):
		return plan->tp;
	case offsetof(struct adp_search_opts, pp):
		return plan->pp;
	case offsetof(struct adp_search_opts, dp):
		return plan->dp;
	default:
		return adp_plan_world(plan);
	}
}

static void pin_text(char out[32], const struct adp_pin *pin)
{
	if (pin->min == pin->max)
		snprintf(out, 32, "%" PRIu32, pin->min);
	else
		snprintf(out, 32, "%" PRIu32 "..%" PRIu32, pin->min, pin->max);
}

/*
 * The value nearest to the pin that fits, on the side where *value was seen to: a wider range
 * admits what a narrower one does, so bisection finds it.
 */
static int nearest_value(uint64_t *value, struct advice *a, const struct pin_of *pin)
{
	struct trial trial;
	struct adp_pin was, *now = pin_at(&trial.opts, pin);
	int rc = ADP_OK;

	trial_init(&trial, a);
	was = *now;
	while (rc == ADP_OK && (*value > was.max ? *value > was.max + 1ull : *value + 1 < was.min)) {
		uint64_t middle = was.max + (*value - was.max) / 2;
		struct adp_plan *plan;

		if (*value < was.min)
			middle = *value + (was.min - *value) / 2;
		*now = (struct adp_pin){middle < was.min ? (uint32_t)middle : was.min,
		                        middle > was.max ? (uint32_t)middle : was.max};
		rc = attempt(&plan, a, &trial, NULL);
		if (rc != ADP_OK)
			break;
		if (plan)
			*value = pin_value(plan, pin);
		else if (middle > was.max)
			was.max = (uint32_t)middle;
		else
			was.min = (uint32_t)middle;
		adp_plan_destroy(plan);
	}
	return rc;
}

static int advise_pin(struct advice *a, const struct pin_of *pin)
{
	struct trial trial;
	struct adp_plan *plan;
	struct adp_pin was;
	uint64_t value;
	char text[32];
	int rc;

	trial_init(&trial, a);
	was = *pin_at(&trial.opts, pin);
	if (!pinned(&was))
		return ADP_OK;
	*pin_at(&trial.opts, pin) = (struct adp_pin){0, 0};
	rc = attempt(&plan, a, &trial, NULL);
	if (rc != ADP_OK || !plan)
		return rc;
	value = pin_value(plan, pin);
	adp_plan_destroy(plan);
	rc = nearest_value(&value, a, pin);
	if (rc != ADP_OK)
		return rc;
	pin_text(text, &was);
	add_advice(a, "%s %" PRIu64 " instead of %s", pin->flag, value, text);
	return ADP_OK;
}

/* Settings that are not ranges. */
static int advise_recompute(struct advice *a)
{
	enum adp_recompute most = ADP_RECOMPUTE_NONE;
	struct trial trial;
	struct adp_plan *plan;
	int rc;

	trial_init(&trial, a);
	if (trial.opts.recompute < 0)
		return ADP_OK;
	trial.opts.recompute = -1;
	rc = attempt(&plan, a, &trial, NULL);
	if (rc != ADP_OK || !plan)
		return rc;
	for (uint32_t s = 0; s < plan->pp; s++)
		most = plan->stages[s].recompute > most ? plan->stages[s].recompute : most;
	add_advice(a, "--recompute %s instead of %s", adp_recompute_name(most),
	           adp_recompute_name((enum adp_recompute)a->opts->recompute));
	adp_plan_destroy(plan);
	return ADP_OK;
}

static int advise_zero(struct advice *a)
{
	struct trial trial;
	struct adp_plan *plan;
	int rc;

	trial_init(&trial, a);
	if (trial.opts.zero_stage < 0)
		return ADP_OK;
	trial.opts.zero_stage = -1;
	rc = attempt(&plan, a, &trial, NULL);
	if (rc != ADP_OK || !plan)
		return rc;
	add_advice(a, "--zero %" PRIu32 " instead of %d", plan->zero_stage, a->opts->zero_stage);
	adp_plan_destroy(plan);
	return ADP_OK;
}

static int advise_switches(struct advice *a)
{
	struct trial trial;
	bool yes;
	int rc = ADP_OK;

	trial_init(&trial, a);
	if (trial.opts.sequence_parallel >= 0) {
		trial.opts.sequence_parallel = -1;
		rc = fits(&yes, a, &trial);
		if (rc == ADP_OK && yes)
			add_advice(a, "--sequence-parallel %s", a->opts->sequence_parallel ? "off" : "on");
	}
	trial_init(&trial, a);
	if (rc == ADP_OK && trial.opts.equal_layers) {
		trial.opts.equal_layers = false;
		rc = fits(&yes, a, &trial);
		if (rc == ADP_OK && yes)
			add_advice(a, "no --equal-layers");
	}
	trial_init(&trial, a);
	if (rc == ADP_OK && trial.opts.equal_batches) {
		trial.opts.equal_batches = false;
		rc = fits(&yes, a, &trial);
		if (rc == ADP_OK && yes)
			add_advice(a, "no --equal-batches");
	}
	return rc;
}

static int advise_exclude(struct advice *a, uint32_t skip)
{
	const char **left = adp_arena_calloc(&a->scratch, a->opts->n_exclude, sizeof *left);
	const char *name = a->opts->exclude[skip];
	struct trial trial;
	uint32_t n = 0;
	bool yes;
	int rc;

	if (!left)
		return adp_nomem(a->err);
	trial_init(&trial, a);
	for (uint32_t i = 0; i < a->opts->n_exclude; i++)
		if (i != skip)
			left[n++] = a->opts->exclude[i];
	for (uint32_t t = 0; t < a->cluster->n_types; t++)
		if (strcmp(name, a->cluster->types[t].name) == 0)
			name = label(&a->cluster->types[t]);
	trial.opts.exclude = left;
	trial.opts.n_exclude = n;
	rc = fits(&yes, a, &trial);
	if (rc == ADP_OK && yes)
		add_advice(a, "no --exclude %s", name);
	return rc;
}

static bool enough(const struct advice *a)
{
	return a->n >= ADVICE_MAX;
}

static int advise_pins(struct advice *a)
{
	int rc = advise_recompute(a);

	if (rc == ADP_OK && !enough(a))
		rc = advise_zero(a);
	if (rc == ADP_OK && !enough(a))
		rc = advise_switches(a);
	for (size_t i = 0; rc == ADP_OK && !enough(a) && i < sizeof pins / sizeof *pins; i++)
		rc = advise_pin(a, &pins[i]);
	for (uint32_t i = 0; rc == ADP_OK && !enough(a) && i < a->opts->n_exclude; i++)
		rc = advise_exclude(a, i);
	return rc;
}

/* No single pin helps: all of them together, before anything that costs more. */
static int advise_all_pins(struct advice *a)
{
	const struct adp_search_opts *o = a->opts;
	bool any = o->recompute >= 0 || o->zero_stage >= 0 || o->sequence_parallel >= 0 ||
	           o->equal_layers || o->equal_batches || o->n_exclude;
	struct trial trial;
	bool yes;
	int rc;

	trial_init(&trial, a);
	for (size_t i = 0; i < sizeof pins / sizeof *pins; i++)
		any = any || pinned(pin_at(&trial.opts, &pins[i]));
	if (!any)
		return ADP_OK;
	adp_search_opts_init(&trial.opts);
	trial.opts.n_threads = a->opts->n_threads;
	rc = fits(&yes, a, &trial);
	if (rc == ADP_OK && yes)
		add_advice(a, "these options together leave nothing: without them a plan fits");
	return rc;
}

/* ---- training ------------------------------------------------------------------------ */

static int advise_sequence(struct advice *a)
{
	struct trial trial;
	bool yes = false;
	int rc = ADP_OK;

	trial_init(&trial, a);
	while (rc == ADP_OK && !yes && trial.train.seq_tokens % 2 == 0 &&
	       trial.train.seq_tokens / 2 >= SEQ_LEAST) {
		trial.train.seq_tokens /= 2;
		rc = fits(&yes, a, &trial);
	}
	if (rc == ADP_OK && yes)
		add_advice(a, "--seq %" PRIu64 " instead of %" PRIu64, trial.train.seq_tokens,
		           a->train->seq_tokens);
	return rc;
}

static int advise_batch(struct advice *a)
{
	struct trial trial;
	bool yes = false;
	int rc = ADP_OK;

	trial_init(&trial, a);
	for (uint64_t times = 2; rc == ADP_OK && !yes && times <= BATCH_GROWTH_MAX; times *= 2) {
		trial.train.global_batch_seqs = a->train->global_batch_seqs * times;
		rc = fits(&yes, a, &trial);
	}
	if (rc == ADP_OK && yes)
		add_advice(a, "--global-batch %" PRIu64 " instead of %" PRIu64,
		           trial.train.global_batch_seqs, a->train->global_batch_seqs);
	return rc;
}

/* ---- more GPUs ----------------------------------------------------------------------- */

/* Copies of a fleet's nodes: of each type times / per as many as it has, rounded up. Lives in the
 * arena. */
static int grow(struct adp_cluster *out, const struct adp_cluster *from, uint64_t times,
                uint64_t per, struct adp_arena *arena, struct adp_error *err)
{
	uint64_t copies = (times + per - 1) / per + 1, max = from->n_nodes * copies;
	struct adp_domain *domains = adp_arena_calloc(arena, from->n_domains * copies, sizeof *domains);
	struct adp_node *nodes = adp_arena_calloc(arena, max, sizeof *nodes);

	*out = *from;
	if (!domains || !nodes)
		return adp_nomem(err);
	for (uint64_t k = 0; k < copies; k++)
		memcpy(&domains[k * from->n_domains], from->domains, from->n_domains * sizeof *domains);
	out->nodes = nodes;
	out->n_nodes = 0;
	out->domains = domains;
	out->n_domains = (uint32_t)(from->n_domains * copies);
	for (uint32_t first = 0; first < from->n_nodes;) {
		uint32_t type = from->nodes[first].type, last = first;
		uint64_t wanted;

		while (last < from->n_nodes && from->nodes[last].type == type)
			last++;
		wanted = ((last - first) * times + per - 1) / per;
		/* nodes of one NVLink domain stay neighbours, and each copy of the domain is one of its own
		 */
		for (uint32_t at = first; at < last;) {
			uint32_t end = at;

			while (end < last && from->nodes[end].nvlink_domain == from->nodes[at].nvlink_domain)
				end++;
			for (uint64_t k = 0; k < copies; k++)
				for (uint32_t i = at; i < end; i++) {
					/* copy k of node i is the (k * nodes + i)-th of the type */
					if (k * (last - first) + (i - first) >= wanted)
						continue;
					nodes[out->n_nodes] = from->nodes[i];
					nodes[out->n_nodes].nvlink_domain += (uint32_t)k * from->n_domains;
					out->n_nodes++;
				}
			at = end;
		}
		first = last;
	}
	return ADP_OK;
}

static int fits_grown(bool *out, struct advice *a, struct trial *trial, struct adp_cluster *grown,
                      uint64_t times)
{
	struct adp_arena arena = {0};
	int rc = grow(grown, a->cluster, times, a->cluster->n_nodes, &arena, a->err);

	if (rc == ADP_OK) {
		trial->cluster = grown;
		rc = fits(out, a, trial);
	}
	adp_arena_fini(&arena);
	return rc;
}

static void add_fleet(struct adp_strbuf *out, const struct advice *a, uint64_t times)
{
	const struct adp_cluster *c = a->cluster;
	const char *separator = "";

	for (uint32_t t = 0; t < c->n_types; t++) {
		uint64_t n_nodes = 0, wanted, n_gpus = 0, seen = 0;
		const char *why, *flag;

		if (!space_type_allowed(a->engine, a->train, a->opts, &c->types[t], &why, &flag))
			continue;
		for (uint32_t i = 0; i < c->n_nodes; i++)
			n_nodes += c->nodes[i].type == t;
		if (!n_nodes)
			continue;
		wanted = (n_nodes * times + c->n_nodes - 1) / c->n_nodes;
		for (uint32_t i = 0; i < c->n_nodes; i++) {
			if (c->nodes[i].type != t)
				continue;
			n_gpus += c->nodes[i].n_gpus * (wanted / n_nodes + (seen < wanted % n_nodes));
			seen++;
		}
		adp_strbuf_addf(out, "%s%" PRIu64 " %s", separator, n_gpus, label(&c->types[t]));
		separator = " + ";
	}
}

/* times: nodes of the grown fleet, all types together, before rounding up by type. */
static int advise_gpus(struct advice *a)
{
	uint64_t n = a->cluster->n_nodes, low = n, high = n, n_gpus = adp_cluster_n_gpus(a->cluster);
	struct adp_cluster grown;
	struct adp_strbuf text = {0};
	struct trial trial;
	bool yes = false;
	int rc = ADP_OK;

	trial_init(&trial, a);
	if (pinned(&trial.opts.gpus))
		return ADP_OK; /* more GPUs than may be used help nobody */
	while (rc == ADP_OK && !yes && high * 2 <= n * GROWTH_MAX &&
	       n_gpus * (high * 2 / n) <= GPUS_MAX) {
		low = high;
		high *= 2;
		rc = fits_grown(&yes, a, &trial, &grown, high);
	}
	if (rc != ADP_OK || !yes)
		return rc;
	while (rc == ADP_OK && high - low > 1) {
		uint64_t middle = low + (high - low) / 2;

		rc = fits_grown(&yes, a, &trial, &grown, middle);
		if (yes)
			high = middle;
		else
			low = middle;
	}
	if (rc == ADP_OK) {
		add_fleet(&text, a, high);
		adp_strbuf_add(&text, " instead of ");
		add_fleet(&text, a, n);
		if (text.failed)
			rc = adp_nomem(a->err);
		else
			add_advice(a, "%s", text.text);
	}
	adp_strbuf_fini(&text);
	return rc;
}

/* ---- memory -------------------------------------------------------------------------- */

/* How much of its GPUs' memory a plan takes. */
static double fullness(const struct adp_plan *plan)
{
	double most = 0.0;

	for (uint32_t s = 0; s < plan->pp; s++)
		most = fmax(most, (double)plan->stages[s].memory.peak_bytes /
		                      (double)plan->stages[s].usable_bytes);
	return most;
}

/*
 * The smallest factor on all GPUs' memory that lets a plan in, between a factor that does not and
 * one that a plan was seen to need.
 */
static int memory_needed(double *out, struct advice *a, double seen)
{
	struct trial trial;
	double low = 1.0, high = seen;
	int rc = ADP_OK;

	trial_init(&trial, a);
	while (rc == ADP_OK && high / low > memory_step) {
		struct adp_plan *plan;

		trial.memory_scale = sqrt(low * high);
		rc = attempt(&plan, a, &trial, NULL);
		if (rc == ADP_OK && plan)
			high = fmin(trial.memory_scale, fullness(plan));
		else
			low = trial.memory_scale;
		if (rc == ADP_OK)
			adp_plan_destroy(plan);
	}
	*out = high;
	return rc;
}

/* "4 A6000 (42.2 GiB usable each, 357 GiB needed)" */
static void add_memory(struct adp_strbuf *out, const struct advice *a, double times)
{
	const struct adp_cluster *c = a->cluster;
	const char *separator = "";
	char usable[32], need[32];

	for (uint32_t t = 0; t < c->n_types; t++) {
		double bytes = (double)adp_usable_bytes(a->engine, &c->types[t]);
		const char *why, *flag;
		uint64_t n = 0;

		if (!space_type_allowed(a->engine, a->train, a->opts, &c->types[t], &why, &flag))
			continue;
		for (uint32_t i = 0; i < c->n_nodes; i++)
			n += c->nodes[i].type == t ? c->nodes[i].n_gpus : 0;
		adp_strbuf_addf(out, "%s%" PRIu64 " %s (%s usable each", separator, n, label(&c->types[t]),
		                adp_format_bytes(usable, sizeof usable, bytes));
		if (isfinite(times))
			adp_strbuf_addf(out, ", %s needed", adp_format_bytes(need, sizeof need, bytes * times));
		adp_strbuf_add(out, ")");
		separator = " + ";
	}
}

/* ---- the answer ---------------------------------------------------------------------- */

static int advise(struct advice *a)
{
	int rc = advise_pins(a);

	if (rc == ADP_OK && a->n == 0)
		rc = advise_all_pins(a);
	if (rc == ADP_OK && !enough(a))
		rc = advise_sequence(a);
	if (rc == ADP_OK && !enough(a))
		rc = advise_batch(a);
	if (rc == ADP_OK && !enough(a))
		rc = advise_gpus(a);
	return rc;
}

int search_advice(const struct adp_model *model, const struct adp_cluster *cluster,
                  const struct adp_engine *engine, const struct adp_tables *tables,
                  const struct adp_train *train, const struct adp_search_opts *opts,
                  struct adp_error *err)
{
	struct advice a = {.model = model,
	                   .cluster = cluster,
	                   .engine = engine,
	                   .tables = tables,
	                   .train = train,
	                   .opts = opts,
	                   .err = err};
	struct adp_strbuf memory = {0};
	struct adp_error why = {0};
	struct adp_plan *plan;
	struct trial trial;
	double times = INFINITY;
	bool by_memory, searched;
	int rc;

	trial_init(&trial, &a);
	trial.memory_scale = no_limit;
	rc = attempt(&plan, &a, &trial, &why);
	if (rc != ADP_OK)
		return rc;
	by_memory = plan != NULL;
	searched = strncmp(why.text, SEARCH_FOUND_NOTHING, strlen(SEARCH_FOUND_NOTHING)) == 0;
	if (by_memory)
		rc = memory_needed(&times, &a, fullness(plan));
	adp_plan_destroy(plan);
	if (rc == ADP_OK)
		rc = advise(&a);
	if (rc == ADP_OK) {
		add_memory(&memory, &a, times);
		if (memory.failed || a.text.failed)
			rc = adp_nomem(err);
		else if (by_memory)
			rc = adp_fail(err, ADP_EINFEASIBLE,
			              "does not fit in memory: %s in %s with %s and sequences of %" PRIu64
			              " tokens on %s. %s%s",
			              model->name, adp_precision_name(train->precision),
			              adp_optimizer_name(train->optimizer), train->seq_tokens,
			              memory.text ? memory.text : "no GPU",
			              a.n ? "What would fit: "
			                  : "More GPUs of these types do not help; take GPUs with more memory",
			              a.n ? a.text.text : "");
		else
			rc = adp_fail(err, ADP_EINFEASIBLE, "%s%s%s%s", why.text, searched ? NOT_MEMORY : "",
			              a.n ? ". What would do: " : "", a.n ? a.text.text : "");
	}
	adp_strbuf_fini(&memory);
	adp_strbuf_fini(&a.text);
	adp_arena_fini(&a.scratch);
	return rc;
}
