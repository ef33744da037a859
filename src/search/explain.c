/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "adp/units.h"
#include "search/explain.h"

/* Plans that were not chosen. The figures come from searches like the main one, with one thing
 * changed. */

/* All questions together cost no more than about this many searches, however many types there are.
 */
enum { ASKED_MAX = 12, KEPT_FOR_REASONS = 5 };

/* A question is answered this exactly, and on large fleets as well as so much work tells. */
static const double tolerance_frac = 0.01, work_max = 3000.0;

/* ---- asking -------------------------------------------------------------------------- */

void why_question(struct question *out, const struct why *w)
{
	*out = (struct question){
		.cluster = w->cluster,
		.train = w->train,
		.opts = w->opts,
		.knobs = {.memory_scale = 1.0, .tolerance_frac = tolerance_frac, .max_work = work_max}};
}

bool why_may_ask(const struct why *w)
{
	return w->n_asked < ASKED_MAX;
}

int why_ask(struct answer *out, struct why *w, const struct question *question,
            struct adp_error *err)
{
	int rc;

	*out = (struct answer){.plan = NULL};
	w->n_asked++;
	rc = search_with(&out->plan, w->model, question->cluster, w->engine, w->tables,
	                 &question->train, &question->opts, &question->knobs, &out->err);
	if (rc == ADP_OK)
		return ADP_OK;
	out->plan = NULL;
	if (rc == ADP_EINFEASIBLE || rc == ADP_EINVAL)
		return ADP_OK;
	if (err)
		*err = out->err;
	return rc;
}

const char *why_label(const struct why *w, uint32_t type)
{
	const struct adp_gpu_type *gpu = &w->cluster->types[type];

	return gpu->alias && *gpu->alias ? gpu->alias : gpu->name;
}

const char *why_percent(char out[48], const struct why *w, const struct adp_plan *other)
{
	double frac = other->step.step_s / w->plan->step.step_s - 1.0, gap = other->search.gap_frac;

	/* the plan found is one of those asked for: the best of them takes no longer */
	snprintf(out, 48, "%s%+.1f %%",
	         gap > 0.1 && frac > 0.0      ? "at most "
	         : gap > 2.0 * tolerance_frac ? "about "
	                                      : "",
	         100.0 * (fabs(frac) < 0.0005 ? 0.0 : frac));
	return out;
}

/* The question's excludes and those types that drop names. */
static int exclude_types(struct question *q, struct why *w, const bool *drop, struct adp_error *err)
{
	const char **names = adp_arena_calloc(
		&w->scratch, (size_t)q->opts.n_exclude + w->cluster->n_types, sizeof *names);
	uint32_t n = q->opts.n_exclude;

	if (!names)
		return adp_nomem(err);
	for (uint32_t i = 0; i < n; i++)
		names[i] = q->opts.exclude[i];
	for (uint32_t t = 0; t < w->cluster->n_types; t++)
		if (drop[t])
			names[n++] = w->cluster->types[t].name;
	q->opts.exclude = names;
	q->opts.n_exclude = n;
	return ADP_OK;
}

static bool *flags_of_types(struct why *w)
{
	return adp_arena_calloc(&w->scratch, w->cluster->n_types, sizeof(bool));
}

/* ---- telling ------------------------------------------------------------------------- */

/* A word a shell takes as it stands, whatever the name holds. */
static void add_word(struct adp_strbuf *out, const char *word)
{
	if (*word &&
	    word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+")] ==
	        '\0') {
		adp_strbuf_add(out, word);
		return;
	}
	adp_strbuf_add(out, "'");
	for (; *word; word++)
		adp_strbuf_addn(out, *word == '\'' ? "'\\''" : word, *word == '\'' ? 4 : 1);
	adp_strbuf_add(out, "'");
}

/* The reason in one clause: an error also says what to do next, which does not belong here. */
static int clause_length(const char *text)
{
	size_t n = strcspn(text, ";\n");

	return n > 160 ? 160 : (int)n;
}

/*
 * Takes the texts. none: said when there is no plan, or NULL for the answer's own words. before:
 * said before the figures, or NULL.
 */
static int tell(struct why *w, struct adp_strbuf *name, const struct answer *answer,
                const char *none, const char *before, struct adp_strbuf *flag,
                struct adp_error *err)
{
	struct adp_plan_other *other = &w->others[w->n_others];
	struct adp_arena *arena = &w->plan->arena;
	char time[32], percent[48];
	int rc = ADP_OK;

	memset(other, 0, sizeof *other);
	other->name = name->text ? adp_arena_strdup(arena, name->text) : NULL;
	if (answer && answer->plan) {
		other->step_s = answer->plan->step.step_s;
		other->loss_frac = other->step_s / w->plan->step.step_s - 1.0;
		other->text = adp_arena_printf(arena, "%s%s step time (%s)", before ? before : "",
		                               why_percent(percent, w, answer->plan),
		                               adp_format_duration(time, sizeof time, other->step_s));
	} else if (none) {
		other->text = adp_arena_strdup(arena, none);
	} else if (answer &&
	           strncmp(answer->err.text, SEARCH_FOUND_NOTHING, strlen(SEARCH_FOUND_NOTHING)) == 0) {
		other->text = adp_arena_strdup(arena, "none: nothing fits");
	} else if (answer) {
		other->text = adp_arena_printf(arena, "none: %.*s", clause_length(answer->err.text),
		                               answer->err.text);
	}
	if (flag && flag->len)
		other->flag = adp_arena_strdup(arena, flag->text);
	if (name->failed || !other->name || !other->text ||
	    (flag && (flag->failed || (flag->len && !other->flag))))
		rc = adp_nomem(err);
	else
		w->n_others++;
	adp_strbuf_fini(name);
	if (flag)
		adp_strbuf_fini(flag);
	return rc;
}

/* "64 H100 + 32 A100-80" */
static void add_used(struct adp_strbuf *out, const struct why *w, const struct adp_plan *plan)
{
	const char *separator = "";

	for (uint32_t t = 0; t < plan->n_gpu_types; t++)
		if (plan->gpus[t].n_used) {
			adp_strbuf_addf(out, "%s%u %s", separator, plan->gpus[t].n_used, why_label(w, t));
			separator = " + ";
		}
}

static void add_excludes(struct adp_strbuf *flag, const struct why *w, const bool *drop)
{
	for (uint32_t t = 0; t < w->cluster->n_types; t++)
		if (drop[t]) {
			adp_strbuf_add(flag, flag->len ? " --exclude " : "--exclude ");
			add_word(flag, why_label(w, t));
		}
}

/* ---- the questions ------------------------------------------------------------------- */

/* The type of the latest year that may be used; of these the fastest. */
static uint32_t newest_type(const struct why *w)
{
	uint32_t best = w->cluster->n_types;

	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		const struct adp_gpu_type *a = &w->cluster->types[t], *b;

		if (!w->types[t].allowed)
			continue;
		b = best < w->cluster->n_types ? &w->cluster->types[best] : NULL;
		if (!b || a->year > b->year ||
		    (a->year == b->year &&
		     a->peak_flops_per_s[w->train.precision] > b->peak_flops_per_s[w->train.precision]))
			best = t;
	}
	return best;
}

/* drop: the types that "newest only" leaves out, so that the same question is not asked twice. */
static int other_newest(struct why *w, bool *drop, struct adp_error *err)
{
	struct adp_strbuf name = {0}, flag = {0};
	struct question q;
	struct answer answer;
	uint32_t newest = newest_type(w);
	int rc;

	if (newest == w->cluster->n_types || (w->n_types_used == 1 && w->types[newest].n_used))
		return ADP_OK;
	for (uint32_t t = 0; t < w->cluster->n_types; t++)
		drop[t] = t != newest && w->types[t].allowed;
	why_question(&q, w);
	rc = exclude_types(&q, w, drop, err);
	if (rc == ADP_OK)
		rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_addf(&name, "newest GPUs only (%u %s)",
	                answer.plan ? answer.plan->gpus[newest].n_used : w->types[newest].n_total,
	                why_label(w, newest));
	add_excludes(&flag, w, drop);
	rc = tell(w, &name, &answer, NULL, NULL, &flag, err);
	adp_plan_destroy(answer.plan);
	return rc;
}

static bool is_equal_split(const struct adp_plan *plan)
{
	for (uint32_t s = 1; s < plan->pp; s++)
		if (plan_stage_layers(&plan->stages[s]) != plan_stage_layers(&plan->stages[0]))
			return false;
	for (uint32_t i = 1; i < plan->n_pipes; i++)
		if (plan->pipes[i].n_micro != plan->pipes[0].n_micro)
			return false;
	return true;
}

/*
 * What a split that ignores the GPUs' speed would take on the GPUs that the plan uses. If no equal
 * split takes them all, on as many as it can take of the same types.
 */
static int other_equal(struct why *w, struct adp_error *err)
{
	bool *require = flags_of_types(w), *drop = flags_of_types(w);
	struct adp_strbuf name = {0}, flag = {0};
	struct question q;
	struct answer answer;
	int rc;

	if (!require || !drop)
		return adp_nomem(err);
	if ((w->opts.equal_layers && w->opts.equal_batches) || is_equal_split(w->plan))
		return ADP_OK;
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		require[t] = w->types[t].n_used > 0;
		drop[t] = w->types[t].allowed && !require[t];
	}
	why_question(&q, w);
	q.opts.equal_layers = q.opts.equal_batches = true;
	q.opts.gpus = (struct adp_pin){w->n_used, w->n_used};
	q.knobs.require_type = require;
	rc = exclude_types(&q, w, drop, err);
	if (rc == ADP_OK)
		rc = why_ask(&answer, w, &q, err);
	if (rc == ADP_OK && !answer.plan) {
		q.opts.gpus = w->opts.gpus;
		rc = why_ask(&answer, w, &q, err);
	}
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_add(&name, "equal split");
	if (answer.plan && plan_n_used(answer.plan) != w->n_used) {
		adp_strbuf_add(&name, " (");
		add_used(&name, w, answer.plan);
		adp_strbuf_add(&name, ")");
	}
	adp_strbuf_add(&flag, "--equal-layers --equal-batches");
	if (answer.plan)
		why_percent(w->equal, w, answer.plan);
	rc = tell(w, &name, &answer, NULL, NULL, &flag, err);
	adp_plan_destroy(answer.plan);
	return rc;
}

static int other_fewer(struct why *w, struct adp_error *err)
{
	struct adp_strbuf name = {0}, flag = {0};
	struct question q;
	struct answer answer;
	uint32_t half = w->n_used / 2;
	int rc;

	if (half == 0 || w->opts.gpus.min > half)
		return ADP_OK;
	why_question(&q, w);
	q.opts.gpus = (struct adp_pin){w->opts.gpus.min ? w->opts.gpus.min : 1, half};
	rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_add(&name, "half the GPUs");
	if (answer.plan) {
		adp_strbuf_add(&name, " (");
		add_used(&name, w, answer.plan);
		adp_strbuf_add(&name, ")");
		w->half_total_s = answer.plan->time.total_s;
		w->n_half = plan_n_used(answer.plan);
	} else {
		adp_strbuf_addf(&name, " (%u)", half);
	}
	adp_strbuf_addf(&flag, "--gpus-used %u..%u", q.opts.gpus.min, half);
	rc = tell(w, &name, &answer, NULL, NULL, &flag, err);
	adp_plan_destroy(answer.plan);
	return rc;
}

/* Under a deadline: what all GPUs would do. */
static int other_all(struct why *w, struct adp_error *err)
{
	struct adp_strbuf name = {0}, flag = {0};
	struct question q;
	struct answer answer;
	int rc;

	if (!(w->plan->train.deadline_s > 0.0))
		return ADP_OK;
	why_question(&q, w);
	q.opts.gpus = w->asked->gpus;
	rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	if (answer.plan && plan_n_used(answer.plan) > w->n_used) {
		adp_strbuf_add(&name, "fastest (");
		add_used(&name, w, answer.plan);
		adp_strbuf_add(&name, ")");
		adp_strbuf_add(&flag, "without --deadline");
		rc = tell(w, &name, &answer, NULL, NULL, &flag, err);
	}
	adp_plan_destroy(answer.plan);
	return rc;
}

/* The question that the flag of a type that may not be used asks. False when there is none. */
static bool admit(struct question *q, struct why *w, uint32_t t, struct adp_error *err, int *rc)
{
	const struct why_type *type = &w->types[t];
	const struct adp_gpu_type *gpu = &w->cluster->types[t];
	static const char precision[] = "--precision ";
	const char **names;
	uint32_t n = 0;

	why_question(q, w);
	if (!type->flag)
		return false;
	if (strncmp(type->flag, precision, strlen(precision)) == 0)
		return adp_precision_parse(&q->train.precision, type->flag + strlen(precision), NULL) ==
		       ADP_OK;
	names = adp_arena_calloc(&w->scratch, q->opts.n_exclude, sizeof *names);
	if (!names) {
		*rc = adp_nomem(err);
		return false;
	}
	for (uint32_t i = 0; i < q->opts.n_exclude; i++)
		if (strcasecmp(q->opts.exclude[i], gpu->name) != 0 &&
		    (!gpu->alias || strcasecmp(q->opts.exclude[i], gpu->alias) != 0))
			names[n++] = q->opts.exclude[i];
	q->opts.exclude = names;
	q->opts.n_exclude = n;
	return true;
}

static int other_excluded(struct why *w, uint32_t t, struct adp_error *err)
{
	const struct why_type *type = &w->types[t];
	struct adp_strbuf name = {0}, flag = {0}, why = {0}, before = {0};
	struct answer answer = {.plan = NULL};
	struct question q;
	int rc = ADP_OK;

	if (w->n_asked + KEPT_FOR_REASONS < ASKED_MAX && admit(&q, w, t, err, &rc))
		rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_addf(&name, "%s (%u GPUs)", why_label(w, t), type->n_total);
	adp_strbuf_addf(&why, "left out: %s",
	                strncmp(type->why, "left out ", 9) == 0 ? type->why + 9 : type->why);
	adp_strbuf_addf(&before, "%s; with the flag ", why.text ? why.text : "");
	if (type->flag && strcmp(type->flag, "drop --exclude") == 0) {
		adp_strbuf_add(&flag, "without --exclude ");
		add_word(&flag, why_label(w, t));
	} else if (type->flag) {
		adp_strbuf_add(&flag, type->flag);
	}
	name.failed = name.failed ? name.failed : why.failed ? why.failed : before.failed;
	rc = tell(w, &name, &answer, why.text ? why.text : "", before.text, &flag, err);
	adp_strbuf_fini(&why);
	adp_strbuf_fini(&before);
	adp_plan_destroy(answer.plan);
	return rc;
}

/* A type that stays idle, or has idle GPUs. */
static int other_with(struct why *w, uint32_t t, struct adp_error *err)
{
	struct why_type *type = &w->types[t];
	bool *require = flags_of_types(w), some = type->n_used > 0;
	struct adp_strbuf name = {0};
	struct question q;
	struct answer answer;
	int rc;

	if (!require)
		return adp_nomem(err);
	why_question(&q, w);
	require[t] = true;
	q.knobs.require_type = require;
	if (some) {
		/* idle GPUs of a deadline or of a cap need no other explanation */
		if (q.opts.gpus.max)
			return ADP_OK;
		q.opts.gpus = (struct adp_pin){w->n_used + type->n_total - type->n_used, UINT32_MAX};
	}
	rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	if (answer.plan)
		why_percent(type->with, w, answer.plan);
	adp_strbuf_addf(&name, some ? "all %u %s" : "with some of the %u %s", type->n_total,
	                why_label(w, t));
	rc = tell(w, &name, &answer,
	          answer.plan || !some ? NULL : "none: no legal plan uses as many GPUs", NULL, NULL,
	          err);
	adp_plan_destroy(answer.plan);
	return rc;
}

static int other_without(struct why *w, uint32_t t, const bool *newest_drops, struct adp_error *err)
{
	bool *drop = flags_of_types(w), same = true;
	struct adp_strbuf name = {0}, flag = {0};
	struct question q;
	struct answer answer;
	int rc;

	if (!drop)
		return adp_nomem(err);
	drop[t] = true;
	for (uint32_t i = 0; i < w->cluster->n_types; i++)
		same = same && drop[i] == newest_drops[i];
	if (same)
		return ADP_OK;
	why_question(&q, w);
	rc = exclude_types(&q, w, drop, err);
	if (rc == ADP_OK)
		rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_addf(&name, "without %s", why_label(w, t));
	if (answer.plan) {
		adp_strbuf_add(&name, " (");
		add_used(&name, w, answer.plan);
		adp_strbuf_add(&name, ")");
	}
	add_excludes(&flag, w, drop);
	rc = tell(w, &name, &answer, NULL, NULL, &flag, err);
	adp_plan_destroy(answer.plan);
	return rc;
}

static int others(struct why *w, struct adp_error *err)
{
	bool *newest_drops = flags_of_types(w);
	int rc = newest_drops ? other_newest(w, newest_drops, err) : adp_nomem(err);

	if (rc == ADP_OK)
		rc = other_equal(w, err);
	if (rc == ADP_OK)
		rc = other_fewer(w, err);
	if (rc == ADP_OK)
		rc = other_all(w, err);
	for (uint32_t t = 0; rc == ADP_OK && t < w->cluster->n_types; t++) {
		const struct why_type *type = &w->types[t];

		if (!type->allowed)
			rc = other_excluded(w, t, err);
		else if (w->n_asked + KEPT_FOR_REASONS >= ASKED_MAX)
			continue;
		else if (type->n_used < type->n_total)
			rc = other_with(w, t, err);
		if (rc == ADP_OK && type->n_used && w->n_types_used > 1 &&
		    w->n_asked + KEPT_FOR_REASONS < ASKED_MAX)
			rc = other_without(w, t, newest_drops, err);
	}
	return rc;
}

/* ---- all of it ----------------------------------------------------------------------- */

static int why_init(struct why *w, struct adp_error *err)
{
	const struct adp_cluster *cluster = w->cluster;
	struct adp_plan *plan = w->plan;

	if (plan->n_gpu_types != cluster->n_types)
		return adp_fail(err, ADP_EINVAL, "explain: the plan was not made for this cluster");
	w->types = adp_arena_calloc(&w->scratch, cluster->n_types, sizeof *w->types);
	w->max_others = 4 + 2 * cluster->n_types;
	w->others = adp_arena_calloc(&plan->arena, w->max_others, sizeof *w->others);
	if (!w->types || !w->others)
		return adp_nomem(err);
	for (uint32_t t = 0; t < cluster->n_types; t++) {
		struct why_type *type = &w->types[t];

		type->allowed = space_type_allowed(w->engine, &w->train, w->asked, &cluster->types[t],
		                                   &type->why, &type->flag);
		type->n_used = plan->gpus[t].n_used;
		type->n_total = plan->gpus[t].n_total;
		w->n_used += type->n_used;
		w->n_types_used += type->n_used > 0;
	}
	if (plan->train.deadline_s > 0.0)
		w->opts.gpus = (struct adp_pin){w->opts.gpus.min ? w->opts.gpus.min : 1, w->n_used};
	return why_seats(w, err);
}

int adp_search_explain(struct adp_plan *plan, const struct adp_model *model,
                       const struct adp_cluster *cluster, const struct adp_engine *engine,
                       const struct adp_tables *tables, const struct adp_train *train,
                       const struct adp_search_opts *opts, struct adp_error *err)
{
	struct why w = {.plan = plan,
	                .model = model,
	                .cluster = cluster,
	                .engine = engine,
	                .tables = tables,
	                .asked = opts,
	                .opts = *opts,
	                .train = *train};
	int rc;

	w.train.deadline_s = 0.0;
	rc = why_init(&w, err);
	if (rc == ADP_OK)
		rc = others(&w, err);
	if (rc == ADP_OK)
		rc = why_reasons(&w, err);
	if (rc == ADP_OK)
		rc = why_binding(&w, err);
	if (rc == ADP_OK) {
		const char **reasons = adp_arena_calloc(&plan->arena, w.n_reasons, sizeof *reasons);

		if (reasons) {
			memcpy(reasons, w.reasons, w.n_reasons * sizeof *reasons);
			plan->reasons = reasons;
			plan->n_reasons = w.n_reasons;
			plan->others = w.others;
			plan->n_others = w.n_others;
		} else {
			rc = adp_nomem(err);
		}
	}
	adp_arena_fini(&w.scratch);
	return rc;
}
