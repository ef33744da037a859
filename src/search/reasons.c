/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/units.h"
#include "search/explain.h"

/* Sentences that name the cause of a choice: each compares the plan with the one that is best
 * without the cause. */

/* A faster plan that memory keeps out is worth a sentence from here on. */
static const double memory_worth_frac = 0.01;

/* What "memory is no limit" multiplies it by. */
static const double roomy = 4.0;

/* ---- ranks on nodes ------------------------------------------------------------------ */

struct named {
	const char *name;
	uint32_t node;
};

static int named_compare(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

int why_seats(struct why *w, struct adp_error *err)
{
	const struct adp_cluster *cluster = w->cluster;
	const struct adp_plan *plan = w->plan;
	uint32_t world = adp_plan_world(plan), rank = 0;
	struct named *names = adp_arena_calloc(&w->scratch, cluster->n_nodes, sizeof *names);

	w->seats = adp_arena_calloc(&w->scratch, world, sizeof *w->seats);
	if (!names || !w->seats)
		return adp_nomem(err);
	for (uint32_t i = 0; i < cluster->n_nodes; i++)
		names[i] = (struct named){cluster->nodes[i].name, i};
	qsort(names, cluster->n_nodes, sizeof *names, named_compare);
	for (uint32_t r = 0; r < plan->n_runs; r++)
		for (uint32_t i = 0; i < plan->runs[r].n_nodes; i++) {
			struct named key = {plan->runs[r].nodes[i], 0};
			const struct named *found = bsearch(&key, names, cluster->n_nodes, sizeof *names,
			                                    named_compare);

			if (!found || rank + plan->runs[r].gpus_per_node > world)
				return adp_fail(err, ADP_EINVAL, "explain: the plan was not made for this cluster");
			for (uint32_t g = 0; g < plan->runs[r].gpus_per_node; g++)
				w->seats[rank++] = (struct why_seat){found->node, plan->runs[r].gpu_index[g]};
		}
	return rank == world ? ADP_OK
	                     : adp_fail(err, ADP_EINVAL, "explain: the plan's runs lack ranks");
}

/* ---- small parts of sentences -------------------------------------------------------- */

int why_add_reason(struct why *w, struct adp_strbuf *text, struct adp_error *err)
{
	char *copy = NULL;
	bool failed = text->failed;

	if (!failed && text->len) {
		copy = adp_arena_strdup(&w->plan->arena, text->text);
		failed = !copy;
		if (copy)
			w->reasons[w->n_reasons++] = copy;
	}
	adp_strbuf_fini(text);
	return failed ? adp_nomem(err) : ADP_OK;
}

void why_add_instead(struct adp_strbuf *out, const struct why *w, const struct adp_plan *other,
                     struct adp_strbuf *changes)
{
	char time[32], percent[48];

	adp_strbuf_addf(out, "the step would take %s (%s)",
	                adp_format_duration(time, sizeof time, other->step.step_s),
	                why_percent(percent, w, other));
	if (changes->len)
		adp_strbuf_addf(out, ", with %s", changes->text);
	if (changes->failed)
		out->failed = ADP_ENOMEM;
}

static void add_times(struct adp_strbuf *out, double ratio)
{
	adp_strbuf_addf(out, "%.*f times as long", ratio < 9.95 ? 1 : 0, ratio);
}

/* ---- GPU types ----------------------------------------------------------------------- */

/* The share of one type. */
struct type_share {
	uint32_t type, n_layers, n_stages, n_micro, least_micro, n_replicas;
	double layer_s; /* of one layer, one micro-batch */
	double micro_s; /* slowest stage of a replica, one micro-batch */
};

/* Times per layer are those of healthy GPUs, from stages without embedding and head where the type
 * has such. */
static void stage_share(struct type_share *share, const struct adp_plan *plan, uint32_t type)
{
	const struct adp_plan_cell *cells = plan->pipes[0].cells;
	double layer_s[2] = {INFINITY, INFINITY};

	*share = (struct type_share){.type = type};
	for (uint32_t s = 0; s < plan->pp; s++) {
		bool end = plan->stages[s].embedding || plan->stages[s].head;
		uint32_t n = plan_stage_layers(&plan->stages[s]);

		if (cells[s].gpu != type)
			continue;
		share->n_stages++;
		share->n_layers += n;
		if (n)
			layer_s[end] = fmin(layer_s[end], (cells[s].fwd_s + cells[s].bwd_s) / n);
	}
	share->layer_s = isfinite(layer_s[0]) ? layer_s[0] : isfinite(layer_s[1]) ? layer_s[1] : 0.0;
}

static void replica_share(struct type_share *share, const struct adp_plan *plan, uint32_t type)
{
	*share = (struct type_share){.type = type, .least_micro = UINT32_MAX};
	for (uint32_t i = 0; i < plan->n_pipes; i++) {
		const struct adp_plan_pipe *pipe = &plan->pipes[i];

		if (pipe->cells[0].gpu != type)
			continue;
		share->n_replicas += pipe->n_replicas;
		share->n_micro = pipe->n_micro > share->n_micro ? pipe->n_micro : share->n_micro;
		share->least_micro = pipe->n_micro < share->least_micro ? pipe->n_micro
		                                                        : share->least_micro;
		for (uint32_t s = 0; s < plan->pp; s++)
			share->micro_s = fmax(share->micro_s, pipe->cells[s].fwd_s + pipe->cells[s].bwd_s);
	}
}

static bool types_mix_in_pipes(const struct adp_plan *plan)
{
	for (uint32_t i = 0; i < plan->n_pipes; i++)
		for (uint32_t s = 1; s < plan->pp; s++)
			if (plan->pipes[i].cells[s].gpu != plan->pipes[i].cells[0].gpu)
				return true;
	return false;
}

static void add_stage_shares(struct adp_strbuf *out, const struct why *w)
{
	const struct adp_plan *plan = w->plan;
	struct type_share fastest = {.layer_s = INFINITY}, share;

	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		stage_share(&share, plan, t);
		if (share.layer_s > 0.0 && share.layer_s < fastest.layer_s)
			fastest = share;
	}
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		stage_share(&share, plan, t);
		if (share.n_stages == 0 || t == fastest.type)
			continue;
		adp_strbuf_addf(out, "%s%s gets %u of %u layers on %u of %u stages",
		                out->len ? "; " : "GPU types: ", why_label(w, t), share.n_layers,
		                plan->model.n_layers, share.n_stages, plan->pp);
		if (share.layer_s > 0.0 && isfinite(fastest.layer_s)) {
			adp_strbuf_add(out, ": a layer takes it ");
			add_times(out, share.layer_s / fastest.layer_s);
			adp_strbuf_addf(out, " as %s", why_label(w, fastest.type));
		}
	}
}

static void add_replica_shares(struct adp_strbuf *out, const struct why *w)
{
	const struct adp_plan *plan = w->plan;
	struct type_share fastest = {.micro_s = INFINITY}, share;

	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		replica_share(&share, plan, t);
		if (share.n_replicas && share.micro_s < fastest.micro_s)
			fastest = share;
	}
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		replica_share(&share, plan, t);
		if (share.n_replicas == 0 || t == fastest.type)
			continue;
		adp_strbuf_addf(
			out, "%sa replica on %s takes %u micro-batches, one on %s %u: a micro-batch takes it ",
			out->len ? "; " : "GPU types: ", why_label(w, t), share.n_micro,
			why_label(w, fastest.type), fastest.n_micro);
		add_times(out, share.micro_s / fastest.micro_s);
	}
}

static int reason_types(struct why *w, struct adp_error *err)
{
	struct adp_strbuf text = {0};

	if (w->cluster->n_types < 2)
		return ADP_OK;
	if (w->n_types_used > 1) {
		if (types_mix_in_pipes(w->plan))
			add_stage_shares(&text, w);
		else
			add_replica_shares(&text, w);
		if (*w->equal)
			adp_strbuf_addf(&text, "; an equal split: %s", w->equal);
	}
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		const struct why_type *type = &w->types[t];

		if (type->n_used)
			continue;
		if (!type->allowed)
			adp_strbuf_addf(&text, "%s%s %s%s", text.len ? "; " : "GPU types: ", why_label(w, t),
			                strncmp(type->why, "left out ", 9) == 0 ? "" : "left out: ", type->why);
		else if (*type->with)
			adp_strbuf_addf(&text, "%s%s left out: with it the step would take %s",
			                text.len ? "; " : "GPU types: ", why_label(w, t), type->with);
	}
	return why_add_reason(w, &text, err);
}

/* ---- topology ------------------------------------------------------------------------ */

/* GPUs that NVLink, or the PCIe of a node, joins: the largest such group of a type. */
static uint32_t domain_gpus(const struct adp_cluster *c, uint32_t type,
                            const struct adp_node **example)
{
	uint32_t most = 0;

	for (uint32_t at = 0; at < c->n_nodes;) {
		uint32_t end = at, n = 0;

		for (; end < c->n_nodes && c->nodes[end].type == c->nodes[at].type &&
		       c->nodes[end].nvlink_domain == c->nodes[at].nvlink_domain;
		     end++)
			n += c->nodes[end].n_gpus;
		if (c->nodes[at].type == type && n > most) {
			most = n;
			*example = &c->nodes[at];
		}
		at = end;
	}
	return most;
}

/* The next tensor-parallel degree that model and engine allow; 0 = none. */
static int next_tensor(uint32_t *out, struct why *w, struct adp_error *err)
{
	struct adp_divisors divisors;
	const struct adp_degrees *tp;
	int rc = adp_model_divisors(&divisors, w->model, &w->scratch, err);

	*out = 0;
	if (rc != ADP_OK)
		return rc;
	tp = w->engine->kv_replication ? &divisors.tp_kv_replicated : &divisors.tp;
	for (uint32_t i = 0; i < tp->n; i++)
		if (tp->value[i] > w->plan->tp && tp->value[i] <= w->engine->max_tensor &&
		    (*out == 0 || tp->value[i] < *out))
			*out = tp->value[i];
	return ADP_OK;
}

static void add_axis(struct adp_strbuf *out, const char *axis, uint32_t n, enum adp_link_kind kind)
{
	if (n > 1)
		adp_strbuf_addf(out, "; %s %u runs over %s", axis, n, why_link_words(kind));
}

static int reason_topology(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	const struct adp_node *node = NULL;
	struct adp_strbuf text = {0};
	struct answer answer = {.plan = NULL};
	uint32_t smallest = UINT32_MAX, next, type = 0, group = plan->tp * plan->cp;
	bool inside;
	char bandwidth[32], percent[48];
	int rc;

	if (adp_cluster_n_gpus(w->cluster) < 2)
		return ADP_OK;
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		const struct adp_node *example = NULL;
		uint32_t n = w->types[t].n_used ? domain_gpus(w->cluster, t, &example) : 0;

		if (n && n < smallest) {
			smallest = n;
			node = example;
			type = t;
		}
	}
	rc = next_tensor(&next, w, err);
	if (rc == ADP_OK && next && !w->opts.tp.min && !w->opts.tp.max && why_may_ask(w)) {
		struct question q;

		why_question(&q, w);
		q.opts.tp = (struct adp_pin){next, next};
		rc = why_ask(&answer, w, &q, err);
	}
	if (rc != ADP_OK || !node)
		return rc;
	inside = why_axis_link(w, 1, plan->tp, false) <= ADP_LINK_PCIE;
	adp_strbuf_addf(
		&text, "topology: %s joins %u GPU%s of %s (%s each)", why_link_words(node->gpu_link.kind),
		smallest, smallest == 1 ? "" : "s", why_label(w, type),
		adp_format_bandwidth(bandwidth, sizeof bandwidth,
	                         node->gpu_link.bytes_per_s * (1.0 - node->gpu_link.load_frac) /
	                             (node->gpu_link.kind == ADP_LINK_PCIE && node->gpus_per_root > 1
	                                  ? node->gpus_per_root
	                                  : 1.0)));
	if (plan->tp > 1)
		adp_strbuf_addf(&text, "; tensor parallel %u %s", plan->tp,
		                inside ? "stays inside" : "crosses the network");
	if (answer.plan)
		adp_strbuf_addf(&text, "; tensor parallel %u would %s: %s", next,
		                next > smallest ? "cross the network" : "send more over it",
		                why_percent(percent, w, answer.plan));
	add_axis(&text, "context parallel", plan->cp, why_axis_link(w, plan->tp, plan->cp, false));
	add_axis(&text, "data parallel", plan->dp, why_axis_link(w, group, plan->dp, false));
	add_axis(&text, "pipeline", plan->pp, why_axis_link(w, group * plan->dp, plan->pp, true));
	adp_plan_destroy(answer.plan);
	return why_add_reason(w, &text, err);
}

/* ---- memory -------------------------------------------------------------------------- */

/* Of a plan's stages the one whose memory is fullest. */
static uint32_t fullest_stage(const struct adp_plan *plan, double *share)
{
	uint32_t fullest = 0;

	*share = 0.0;
	for (uint32_t s = 0; s < plan->pp; s++) {
		double full = (double)plan->stages[s].memory.peak_bytes /
		              (double)plan->stages[s].usable_bytes;

		if (full > *share) {
			*share = full;
			fullest = s;
		}
	}
	return fullest;
}

static void add_memory(struct adp_strbuf *out, const struct why *w, const struct adp_plan *plan,
                       uint32_t stage)
{
	char have[32], usable[32];

	adp_strbuf_addf(
		out, "%s where %s has %s",
		adp_format_bytes(have, sizeof have, (double)plan->stages[stage].memory.peak_bytes),
		why_label(w, plan->pipes[0].cells[stage].gpu),
		adp_format_bytes(usable, sizeof usable, (double)plan->stages[stage].usable_bytes));
}

static int reason_memory(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	struct adp_strbuf text = {0}, changes = {0};
	struct question q;
	struct answer answer;
	double share;
	int rc;

	if (!why_may_ask(w))
		return ADP_OK;
	why_question(&q, w);
	q.knobs.memory_scale = roomy;
	rc = why_ask(&answer, w, &q, err);
	if (rc != ADP_OK || !answer.plan)
		return rc;
	if (answer.plan->step.step_s < plan->step.step_s * (1.0 - memory_worth_frac)) {
		uint32_t stage = fullest_stage(answer.plan, &share);

		w->roomy_s = answer.plan->step.step_s;
		w->full_type = why_label(w, answer.plan->pipes[0].cells[stage].gpu);
		adp_strbuf_add(&text, "memory: if it were no limit ");
		plan_changes(&changes, plan, answer.plan);
		why_add_instead(&text, w, answer.plan, &changes);
		adp_strbuf_addf(&text, "; its stage %u would need ", stage);
		add_memory(&text, w, answer.plan, stage);
		stage = fullest_stage(plan, &share);
		adp_strbuf_addf(&text, " (now at most %.0f %% full, stage %u)", 100.0 * share, stage);
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return why_add_reason(w, &text, err);
}

/* ---- how much there is to train ------------------------------------------------------ */

static int reason_deadline(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	const struct adp_train *train = &plan->train;
	struct adp_strbuf text = {0};
	struct question q;
	struct answer answer = {.plan = NULL};
	char tokens[32], deadline[32], need[32], have[32], total[32];
	uint64_t n_fleet = 0;
	int rc = ADP_OK;

	if (!(train->deadline_s > 0.0) || !(train->tokens > 0.0))
		return ADP_OK;
	for (uint32_t t = 0; t < w->cluster->n_types; t++)
		n_fleet += w->types[t].allowed ? w->types[t].n_total : 0;
	if (w->n_used > 1 && why_may_ask(w)) {
		why_question(&q, w);
		q.opts.gpus.max = w->n_used - 1;
		rc = why_ask(&answer, w, &q, err);
	}
	if (rc != ADP_OK)
		return rc;
	adp_strbuf_addf(
		&text,
		"dataset and deadline: %s tokens in %s need %s tokens/s; %u of %llu GPUs give %s and end after %s",
		adp_format_count(tokens, sizeof tokens, train->tokens),
		adp_format_duration(deadline, sizeof deadline, train->deadline_s),
		adp_format_count(need, sizeof need, train->tokens / train->deadline_s), w->n_used,
		(unsigned long long)n_fleet, adp_format_count(have, sizeof have, plan->step.tokens_per_s),
		adp_format_duration(total, sizeof total, plan->time.total_s));
	if (answer.plan && answer.plan->time.total_s > train->deadline_s)
		adp_strbuf_addf(&text, "; %u or fewer take at least %s, %.1f %% too long", w->n_used - 1,
		                adp_format_duration(total, sizeof total, answer.plan->time.total_s),
		                100.0 * (answer.plan->time.total_s / train->deadline_s - 1.0));
	adp_plan_destroy(answer.plan);
	return why_add_reason(w, &text, err);
}

static int reason_horizon(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	struct adp_strbuf text = {0};
	char tokens[32], total[32], half[32], step_tokens[32];

	if (plan->train.deadline_s > 0.0 || !(plan->train.tokens > 0.0) ||
	    !isfinite(plan->time.total_s))
		return ADP_OK;
	adp_strbuf_addf(
		&text, "dataset: %s tokens are %.0f steps of %s, %s",
		adp_format_count(tokens, sizeof tokens, plan->train.tokens), plan->time.n_steps,
		adp_format_count(step_tokens, sizeof step_tokens,
	                     (double)plan->train.global_batch_seqs * (double)plan->train.seq_tokens),
		adp_format_duration(total, sizeof total, plan->time.total_s));
	if (w->half_total_s > 0.0 && isfinite(w->half_total_s)) {
		double ratio = w->half_total_s / plan->time.total_s;

		adp_strbuf_addf(&text, "; %u of the %u GPUs would take %s, ", w->n_half, w->n_used,
		                adp_format_duration(half, sizeof half, w->half_total_s));
		add_times(&text, ratio);
	}
	return why_add_reason(w, &text, err);
}

int why_reasons(struct why *w, struct adp_error *err)
{
	static int (*const tell[])(struct why *, struct adp_error *) = {
		reason_deadline, why_health,    why_load,       reason_types,
		reason_topology, reason_memory, reason_horizon,
	};
	int rc = ADP_OK;

	for (size_t i = 0; rc == ADP_OK && i < sizeof tell / sizeof *tell; i++)
		rc = tell[i](w, err);
	return rc;
}
