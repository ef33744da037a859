/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "search/explain.h"

/* Reasons that lie in the fleet's present state: slow GPUs and busy links. */

/* Differences below this are not worth a sentence. */
static const double worth_frac = 0.005;

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
		one_rack = one_rack && c->nodes[i].rack == c->nodes[first].rack &&
		           c->nodes[i].rack != ADP_NONE;
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

/* ---- health -------------------------------------------------------------------------- */

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
static void add_slow_use(struct adp_strbuf *out, const struct adp_plan *plan,
                         const struct slow *slow)
{
	uint32_t pipe = pipe_of_rank(plan, slow->rank),
			 stage = slow->rank / (plan->tp * plan->cp * plan->dp);
	uint32_t type = plan->pipes[pipe].cells[stage].gpu, micro = plan->pipes[pipe].n_micro,
			 most_micro = 0;
	uint32_t layers = plan_stage_layers(&plan->stages[stage]), most_layers = 0;

	for (uint32_t i = 0; i < plan->n_pipes; i++)
		most_micro = plan->pipes[i].n_micro > most_micro ? plan->pipes[i].n_micro : most_micro;
	for (uint32_t s = 0; s < plan->pp; s++)
		if (plan->pipes[pipe].cells[s].gpu == type &&
		    plan_stage_layers(&plan->stages[s]) > most_layers)
			most_layers = plan_stage_layers(&plan->stages[s]);
	if (micro < most_micro)
		adp_strbuf_addf(out, "used, with %u micro-batch%s a replica where others take up to %u",
		                micro, micro == 1 ? "" : "es", most_micro);
	else if (layers < most_layers)
		adp_strbuf_addf(out, "used in stage %u, which holds %u layers where others hold up to %u",
		                stage, layers, most_layers);
	else
		adp_strbuf_add(out, plan->pp > 1 ? "used, and the others of its stage wait for it"
		                                 : "used, and the others wait for it");
}

int why_health(struct why *w, struct adp_error *err)
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
		if (changes.len ||
		    fabs(answer.plan->step.step_s / w->plan->step.step_s - 1.0) > worth_frac) {
			adp_strbuf_addf(&text, "GPU health: %u GPU%s of ", slow.n_gpus,
			                slow.n_gpus == 1 ? "" : "s");
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
			why_add_instead(&text, w, answer.plan, &changes);
		}
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return why_add_reason(w, &text, err);
}

/* ---- load on links ------------------------------------------------------------------- */

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
		double load = w->types[c->nodes[i].type].allowed ? node_link(&c->nodes[i], nic)->load_frac
		                                                 : 0.0;

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

static bool add_busy_uplinks(struct adp_strbuf *out, const struct why *w, enum adp_domain_kind kind,
                             const char *what)
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
	adp_strbuf_addf(out, "%suplink%s of %s %s", out->len ? ", " : "link load: ", n > 1 ? "s" : "",
	                what, busiest->name);
	if (n > 1)
		adp_strbuf_addf(out, " and %u more are up to", n - 1);
	adp_strbuf_addf(out, "%s %.0f %% busy", n > 1 ? "" : " is", 100.0 * busiest->uplink.load_frac);
	return true;
}

int why_load(struct why *w, struct adp_error *err)
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
	if (answer.plan &&
	    (changes.len || fabs(answer.plan->step.step_s / w->plan->step.step_s - 1.0) > worth_frac)) {
		adp_strbuf_add(&text, "; idle, ");
		why_add_instead(&text, w, answer.plan, &changes);
	} else {
		adp_strbuf_fini(&text);
	}
	adp_strbuf_fini(&changes);
	adp_plan_destroy(answer.plan);
	return why_add_reason(w, &text, err);
}
