/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/units.h"
#include "base/alloc.h"
#include "search/explain.h"

/* Sentences that name the cause of a choice: each compares the plan with the one that is best without the cause. */

/* Differences below these are not worth a sentence. */
static const double worth_frac = 0.005, memory_worth_frac = 0.01;

/* What "memory is no limit" multiplies it by. */
static const double roomy = 4.0;

/* ---- ranks on nodes ------------------------------------------------------------------------------ */

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
			const struct named *found = bsearch(&key, names, cluster->n_nodes, sizeof *names, named_compare);

			if (!found || rank + plan->runs[r].gpus_per_node > world)
				return adp_fail(err, ADP_EINVAL, "explain: the plan was not made for this cluster");
			for (uint32_t g = 0; g < plan->runs[r].gpus_per_node; g++)
				w->seats[rank++] = (struct why_seat){found->node, plan->runs[r].gpu_index[g]};
		}
	return rank == world ? ADP_OK : adp_fail(err, ADP_EINVAL, "explain: the plan's runs lack ranks");
}

/* ---- small parts of sentences ----------------------------------------------------------------------- */

/* Takes the text; an empty one is no reason. */
static int add_reason(struct why *w, struct adp_strbuf *text, struct adp_error *err)
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

/* "the step would take 7.91 s (-6.0 %), with tensor parallel 4 -> 8" */
static void add_instead(struct adp_strbuf *out, const struct why *w, const struct adp_plan *other,
                        struct adp_strbuf *changes)
{
	char time[32], percent[32];
	double frac = other->step.step_s / w->plan->step.step_s - 1.0;

	adp_strbuf_addf(out, "the step would take %s (%s)", adp_format_duration(time, sizeof time, other->step.step_s),
	                why_percent(percent, frac));
	if (changes->len)
		adp_strbuf_addf(out, ", with %s", changes->text);
	if (changes->failed)
		out->failed = ADP_ENOMEM;
}

static void add_times(struct adp_strbuf *out, double ratio)
{
	adp_strbuf_addf(out, "%.*f times as long", ratio < 9.95 ? 1 : 0, ratio);
}

/* Nodes picked by a test, in words: "the rack r1", "all A100-80 nodes", "nodes a, b and 3 more". */
static void add_nodes(struct adp_strbuf *out, const struct why *w, const bool *picked)
{
	const struct adp_cluster *c = w->cluster;
	uint32_t n = 0, first = 0, in_rack = 0, of_type = 0, told = 0;
	bool one_rack = true, one_type = true;

	for (uint32_t i = 0; i < c->n_nodes; i++) {
		if (!picked[i])
			continue;
		if (n++ == 0)
			first = i;
		one_rack = one_rack && c->nodes[i].rack == c->nodes[first].rack && c->nodes[i].rack != ADP_NONE;
		one_type = one_type && c->nodes[i].type == c->nodes[first].type;
	}
	for (uint32_t i = 0; n && i < c->n_nodes; i++) {
		in_rack += c->nodes[i].rack == c->nodes[first].rack;
		of_type += c->nodes[i].type == c->nodes[first].type;
	}
	if (n > 1 && n == c->n_nodes) {
		adp_strbuf_add(out, "all nodes");
	} else if (n > 1 && one_rack && in_rack == n) {
		adp_strbuf_addf(out, "rack %s", c->domains[c->nodes[first].rack].name);
	} else if (n > 1 && one_type && of_type == n) {
		adp_strbuf_addf(out, "all %s nodes", why_label(w, c->nodes[first].type));
	} else {
		adp_strbuf_add(out, n == 1 ? "node " : "nodes ");
		for (uint32_t i = 0; i < c->n_nodes && told < 3; i++)
			if (picked[i])
				adp_strbuf_addf(out, "%s%s", told++ ? ", " : "", c->nodes[i].name);
		if (n > told)
			adp_strbuf_addf(out, " and %u more", n - told);
	}
}

/* ---- health ------------------------------------------------------------------------------------------ */

/* What became of the slow GPUs. */
struct slow {
	bool *node;
	uint32_t n_nodes, n_gpus, n_used;
	double least, most; /* speed */
	uint32_t rank;      /* of the first one in use */
};

static int slow_find(struct slow *out, struct why *w, struct adp_error *err)
{
	const struct adp_cluster *c = w->cluster;
	uint32_t world = adp_plan_world(w->plan);

	*out = (struct slow){.least = 1.0};
	out->node = adp_arena_calloc(&w->scratch, c->n_nodes, sizeof *out->node);
	if (!out->node)
		return adp_nomem(err);
	for (uint32_t i = 0; i < c->n_nodes; i++) {
		if (!w->types[c->nodes[i].type].allowed)
			continue;
		for (uint32_t g = 0; g < c->nodes[i].n_gpus; g++) {
			double speed = c->nodes[i].gpu_speed_frac[g];

			if (speed >= 1.0)
				continue;
			out->n_gpus++;
			out->n_nodes += !out->node[i];
			out->node[i] = true;
			out->least = fmin(out->least, speed);
			out->most = fmax(out->most, speed);
		}
	}
	for (uint32_t r = world; r-- > 0;)
		if (c->nodes[w->seats[r].node].gpu_speed_frac[w->seats[r].gpu] < 1.0 &&
		    w->seats[r].gpu < c->nodes[w->seats[r].node].n_gpus) {
			out->n_used++;
			out->rank = r;
		}
	return ADP_OK;
}

static uint32_t pipe_of_rank(const struct adp_plan *plan, uint32_t rank)
{
	uint32_t replica = rank / (plan->tp * plan->cp) % plan->dp;

	for (uint32_t i = 0; i < plan->n_pipes; i++) {
		if (replica < plan->pipes[i].n_replicas)
			return i;
		replica -= plan->pipes[i].n_replicas;
	}
	return 0;
}

/* How the plan lives with the first slow GPU that it uses. */
static void add_slow_use(struct adp_strbuf *out, const struct adp_plan *plan, const struct slow *slow)
{
	uint32_t pipe = pipe_of_rank(plan, slow->rank), stage = slow->rank / (plan->tp * plan->cp * plan->dp);
	uint32_t type = plan->pipes[pipe].cells[stage].gpu, micro = plan->pipes[pipe].n_micro, most_micro = 0;
	uint32_t layers = plan_stage_layers(&plan->stages[stage]), most_layers = 0;

	for (uint32_t i = 0; i < plan->n_pipes; i++)
		most_micro = plan->pipes[i].n_micro > most_micro ? plan->pipes[i].n_micro : most_micro;
	for (uint32_t s = 0; s < plan->pp; s++)
		if (plan->pipes[pipe].cells[s].gpu == type && plan_stage_layers(&plan->stages[s]) > most_layers)
			most_layers = plan_stage_layers(&plan->stages[s]);
	if (micro < most_micro)
		adp_strbuf_addf(out, "used, with %u micro-batch%s a replica where others take up to %u", micro,
		                micro == 1 ? "" : "es", most_micro);
	else if (layers < most_layers)
		adp_strbuf_addf(out, "used in stage %u, which holds %u layers where others hold up to %u", stage, layers,
		                most_layers);
	else
		adp_strbuf_add(out, plan->pp > 1 ? "used, and the others of its stage wait for it"
		                                 : "used, and the others wait for it");
}

static int reason_health(struct why *w, struct adp_error *err)
{
	struct adp_strbuf text = {0}, changes = {0};
	struct adp_cluster *healthy;
	struct question q;
	struct answer answer;
	struct slow slow;
	int rc = slow_find(&slow, w, err);

	if (rc != ADP_OK || slow.n_gpus == 0)
		return rc;
	rc = adp_cluster_variant(&healthy, w->cluster, NULL, NULL, ADP_CLUSTER_HEALTHY, err);
	if (rc != ADP_OK)
		return rc;
	why_question(&q, w);
	q.cluster = healthy;
	rc = why_ask(&answer, w, &q, err);
	adp_cluster_destroy(healthy);
	if (rc != ADP_OK)
		return rc;
	if (answer.plan) {
		plan_changes(&changes, w->plan, answer.plan);
		if (changes.len || fabs(answer.plan->step.step_s / w->plan->step.step_s - 1.0) > worth_frac) {
			adp_strbuf_addf(&text, "GPU health: %u GPU%s of ", slow.n_gpus, slow.n_gpus == 1 ? "" : "s");
			add_nodes(&text, w, slow.node);
			adp_strbuf_addf(&text, " run%s at %.2f", slow.n_gpus == 1 ? "s" : "", slow.least);
			if (slow.most > slow.least)
				adp_strbuf_addf(&text, " to %.2f", slow.most);
			adp_strbuf_add(&text, ": ");
			if (slow.n_used < slow.n_gpus)
				adp_strbuf_addf(&text, "%u left out", slow.n_gpus - slow.n_used);
			if (slow.n_used && slow.n_used < slow.n_gpus)
				adp_strbuf_addf(&text, ", %u ", slow.n_used);
			if (slow.n_used)
				add_slow_use(&text, w->plan, &slow);
			adp_strbuf_add(&text, "; healthy, ");
			add_instead(&text, w, answer.plan, &changes);
		}
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return add_reason(w, &text, err);
}

/* ---- load on links ------------------------------------------------------------------------------------- */

static const struct adp_link *node_link(const struct adp_node *node, bool nic)
{
	return nic ? &node->nic : &node->gpu_link;
}

/* Says which nodes' links are busy; picked is scratch. False when none is. */
static bool add_busy_nodes(struct adp_strbuf *out, const struct why *w, bool *picked, bool nic)
{
	const struct adp_cluster *c = w->cluster;
	double most = 0.0;
	bool same = true, any = false;

	for (uint32_t i = 0; i < c->n_nodes; i++) {
		double load = w->types[c->nodes[i].type].allowed ? node_link(&c->nodes[i], nic)->load_frac : 0.0;

		picked[i] = load > 0.0;
		same = same && (!picked[i] || !any || load == most);
		any = any || picked[i];
		most = fmax(most, load);
	}
	if (!any)
		return false;
	adp_strbuf_add(out, out->len ? ", " : "link load: ");
	if (nic)
		adp_strbuf_add(out, "NICs of ");
	else
		adp_strbuf_add(out, "links between the GPUs of ");
	add_nodes(out, w, picked);
	adp_strbuf_addf(out, " are %s%.0f %% busy", same ? "" : "up to ", 100.0 * most);
	return true;
}

static bool add_busy_uplinks(struct adp_strbuf *out, const struct why *w, enum adp_domain_kind kind, const char *what)
{
	const struct adp_cluster *c = w->cluster;
	const struct adp_domain *busiest = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_domains; i++)
		if (c->domains[i].kind == kind && c->domains[i].uplink.load_frac > 0.0) {
			n++;
			if (!busiest || c->domains[i].uplink.load_frac > busiest->uplink.load_frac)
				busiest = &c->domains[i];
		}
	if (!busiest)
		return false;
	adp_strbuf_addf(out, "%suplink%s of %s %s", out->len ? ", " : "link load: ", n > 1 ? "s" : "", what, busiest->name);
	if (n > 1)
		adp_strbuf_addf(out, " and %u more are up to", n - 1);
	adp_strbuf_addf(out, "%s %.0f %% busy", n > 1 ? "" : " is", 100.0 * busiest->uplink.load_frac);
	return true;
}

static int reason_load(struct why *w, struct adp_error *err)
{
	bool *picked = adp_arena_calloc(&w->scratch, w->cluster->n_nodes, sizeof *picked), busy;
	struct adp_strbuf text = {0}, changes = {0};
	struct adp_cluster *idle;
	struct question q;
	struct answer answer;
	int rc;

	if (!picked)
		return adp_nomem(err);
	busy = add_busy_nodes(&text, w, picked, true);
	busy = add_busy_nodes(&text, w, picked, false) || busy;
	busy = add_busy_uplinks(&text, w, ADP_DOMAIN_RACK, "rack") || busy;
	busy = add_busy_uplinks(&text, w, ADP_DOMAIN_SPINE, "spine") || busy;
	if (!busy)
		return ADP_OK;
	rc = adp_cluster_variant(&idle, w->cluster, NULL, NULL, ADP_CLUSTER_IDLE, err);
	if (rc == ADP_OK) {
		why_question(&q, w);
		q.cluster = idle;
		rc = why_ask(&answer, w, &q, err);
		adp_cluster_destroy(idle);
	}
	if (rc != ADP_OK) {
		adp_strbuf_fini(&text);
		return rc;
	}
	if (answer.plan)
		plan_changes(&changes, w->plan, answer.plan);
	if (answer.plan && (changes.len || fabs(answer.plan->step.step_s / w->plan->step.step_s - 1.0) > worth_frac)) {
		adp_strbuf_add(&text, "; idle, ");
		add_instead(&text, w, answer.plan, &changes);
	} else {
		adp_strbuf_fini(&text);
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return add_reason(w, &text, err);
}

/* ---- GPU types --------------------------------------------------------------------------------------------- */

/* The share of one type. */
struct type_share {
	uint32_t type, n_layers, n_stages, n_micro, least_micro, n_replicas;
	double layer_s; /* of one layer, one micro-batch */
	double micro_s; /* slowest stage of a replica, one micro-batch */
};

/* Times per layer are those of healthy GPUs, from stages without embedding and head where the type has such. */
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
		share->least_micro = pipe->n_micro < share->least_micro ? pipe->n_micro : share->least_micro;
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
		adp_strbuf_addf(out, "%s%s gets %u of %u layers on %u of %u stages", out->len ? "; " : "GPU types: ",
		                why_label(w, t), share.n_layers, plan->model.n_layers, share.n_stages, plan->pp);
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
		adp_strbuf_addf(out, "%sa replica on %s takes %u micro-batches, one on %s %u: a micro-batch takes it ",
		                out->len ? "; " : "GPU types: ", why_label(w, t), share.n_micro, why_label(w, fastest.type),
		                fastest.n_micro);
		add_times(out, share.micro_s / fastest.micro_s);
	}
}

static int reason_types(struct why *w, struct adp_error *err)
{
	struct adp_strbuf text = {0};
	char percent[32];

	if (w->cluster->n_types < 2)
		return ADP_OK;
	if (w->n_types_used > 1) {
		if (types_mix_in_pipes(w->plan))
			add_stage_shares(&text, w);
		else
			add_replica_shares(&text, w);
		if (w->equal_s > 0.0)
			adp_strbuf_addf(&text, "; an equal split: %s", why_percent(percent, w->equal_s / w->plan->step.step_s - 1.0));
	}
	for (uint32_t t = 0; t < w->cluster->n_types; t++) {
		const struct why_type *type = &w->types[t];

		if (type->n_used)
			continue;
		if (!type->allowed)
			adp_strbuf_addf(&text, "%s%s %s%s", text.len ? "; " : "GPU types: ", why_label(w, t),
			                strncmp(type->why, "left out ", 9) == 0 ? "" : "left out: ", type->why);
		else if (type->with_s > 0.0)
			adp_strbuf_addf(&text, "%s%s left out: with it the step would take %s", text.len ? "; " : "GPU types: ",
			                why_label(w, t), why_percent(percent, type->with_s / w->plan->step.step_s - 1.0));
	}
	return add_reason(w, &text, err);
}

/* ---- topology -------------------------------------------------------------------------------------------------- */

/* GPUs that NVLink, or the PCIe of a node, joins: the largest such group of a type. */
static uint32_t domain_gpus(const struct adp_cluster *c, uint32_t type, const struct adp_node **example)
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
		if (tp->value[i] > w->plan->tp && tp->value[i] <= w->engine->max_tensor && (*out == 0 || tp->value[i] < *out))
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
	char bandwidth[32], percent[32];
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
	adp_strbuf_addf(&text, "topology: %s joins %u GPU%s of %s (%s each)", why_link_words(node->gpu_link.kind), smallest,
	                smallest == 1 ? "" : "s", why_label(w, type),
	                adp_format_bandwidth(bandwidth, sizeof bandwidth,
	                                     node->gpu_link.bytes_per_s * (1.0 - node->gpu_link.load_frac) /
	                                         (node->gpu_link.kind == ADP_LINK_PCIE && node->gpus_per_root > 1
	                                              ? node->gpus_per_root
	                                              : 1.0)));
	if (plan->tp > 1)
		adp_strbuf_addf(&text, "; tensor parallel %u %s", plan->tp, inside ? "stays inside" : "crosses the network");
	if (answer.plan)
		adp_strbuf_addf(&text, "; tensor parallel %u would %s: %s", next,
		                next > smallest ? "cross the network" : "send more over it",
		                why_percent(percent, answer.plan->step.step_s / plan->step.step_s - 1.0));
	add_axis(&text, "context parallel", plan->cp, why_axis_link(w, plan->tp, plan->cp, false));
	add_axis(&text, "data parallel", plan->dp, why_axis_link(w, group, plan->dp, false));
	add_axis(&text, "pipeline", plan->pp, why_axis_link(w, group * plan->dp, plan->pp, true));
	adp_plan_destroy(answer.plan);
	return add_reason(w, &text, err);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Of a plan's stages the one whose memory is fullest. */
static uint32_t fullest_stage(const struct adp_plan *plan, double *share)
{
	uint32_t fullest = 0;

	*share = 0.0;
	for (uint32_t s = 0; s < plan->pp; s++) {
		double full = (double)plan->stages[s].memory.peak_bytes / (double)plan->stages[s].usable_bytes;

		if (full > *share) {
			*share = full;
			fullest = s;
		}
	}
	return fullest;
}

static void add_memory(struct adp_strbuf *out, const struct why *w, const struct adp_plan *plan, uint32_t stage)
{
	char have[32], usable[32];

	adp_strbuf_addf(out, "%s where %s has %s",
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
		add_instead(&text, w, answer.plan, &changes);
		adp_strbuf_addf(&text, "; its stage %u would need ", stage);
		add_memory(&text, w, answer.plan, stage);
		stage = fullest_stage(plan, &share);
		adp_strbuf_addf(&text, " (now at most %.0f %% full, stage %u)", 100.0 * share, stage);
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return add_reason(w, &text, err);
}

/* ---- how much there is to train ---------------------------------------------------------------------------------- */

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
	adp_strbuf_addf(&text,
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
	return add_reason(w, &text, err);
}

static int reason_horizon(struct why *w, struct adp_error *err)
{
	const struct adp_plan *plan = w->plan;
	struct adp_strbuf text = {0};
	char tokens[32], total[32], half[32], step_tokens[32];

	if (plan->train.deadline_s > 0.0 || !(plan->train.tokens > 0.0) || !isfinite(plan->time.total_s))
		return ADP_OK;
	adp_strbuf_addf(&text, "dataset: %s tokens are %.0f steps of %s, %s",
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
	return add_reason(w, &text, err);
}

int why_reasons(struct why *w, struct adp_error *err)
{
	static int (*const tell[])(struct why *, struct adp_error *) = {
		reason_deadline, reason_health, reason_load, reason_types, reason_topology, reason_memory, reason_horizon,
	};
	int rc = ADP_OK;

	for (size_t i = 0; rc == ADP_OK && i < sizeof tell / sizeof *tell; i++)
		rc = tell[i](w, err);
	return rc;
}
