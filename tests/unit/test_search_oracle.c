/* SPDX-License-Identifier: Apache-2.0 */
#include "search_random.h"

#include "../support/search_oracle.h"
#include "search/internal.h"

/*
 * The search against an exhaustive one that was written from the documentation. Same best step on
 * every small problem: nothing legal is overlooked, nothing illegal is found.
 */

/* The step of what adp_search answers, which looks at parts of nodes too; INFINITY: no plan. */
static double answer_s(const struct random_instance *x, const struct adp_model *model,
                       const struct adp_cluster *cluster, const struct adp_search_opts *opts)
{
	struct adp_error err = {0};
	struct adp_plan *plan = NULL;
	double step_s = (double)INFINITY;

	if (adp_search(&plan, model, cluster, engine_of(x), tables, &x->train, opts, &err) == ADP_OK) {
		if (adp_plan_validate(plan, &err))
			fail_msg("%s", err.text);
		step_s = plan->step.step_s;
	}
	adp_plan_destroy(plan);
	return step_s;
}

/* The oracle's terms of use: one kind of node for each type, GPUs of a node alike, one flat
 * network. */
static void make_alike(struct random_instance *x)
{
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		uint32_t like = 0;

		while (x->nodes[like].type != x->nodes[i].type)
			like++;
		x->nodes[i] = x->nodes[like];
		for (uint32_t g = 1; g < RANDOM_MAX_GPUS; g++)
			x->nodes[i].speed[g] = x->nodes[i].speed[0];
	}
	x->n_racks = 0;
}

static const struct random_limits torch_limits = {2, 4, 4, 12, 7, 24},
								  megatron_limits = {2, 4, 4, 8, 6, 12};

/*
 * The answer is the best over all parts of the fleet. The oracle takes those in which the nodes of
 * a type have as many GPUs each; others can only make the answer better.
 */
static void check_parts(const struct random_instance *x, const struct adp_model *model,
                        const struct adp_search_opts *opts, double whole_s)
{
	struct adp_cluster *cluster = take_cluster(random_instance_cluster(x));
	double step_s = answer_s(x, model, cluster, opts), best_s = whole_s;
	uint32_t n[RANDOM_MAX_TYPES] = {1, 1, 1}, full[RANDOM_MAX_TYPES] = {1, 1, 1};

	adp_cluster_destroy(cluster);
	if (random_instance_gpus(x) > 16)
		return; /* larger fleets are not searched in part */
	for (uint32_t i = 0; i < x->n_nodes; i++)
		full[x->nodes[i].type] = x->nodes[i].n_gpus;
	for (bool more = true; more;) {
		struct random_instance part = *x;
		struct adp_error err = {0};
		struct oracle_best best;

		for (uint32_t i = 0; i < x->n_nodes; i++) {
			part.nodes[i].n_gpus = n[x->nodes[i].type];
			if (part.nodes[i].gpus_per_root > part.nodes[i].n_gpus)
				part.nodes[i].gpus_per_root = part.nodes[i].n_gpus;
		}
		cluster = take_cluster(random_instance_cluster(&part));
		if (search_oracle(&best, model, cluster, engine_of(x), tables, &x->train, &err))
			fail_msg("%s", err.text);
		adp_cluster_destroy(cluster);
		best_s = fmin(best_s, best.step_s);
		more = false;
		for (uint32_t t = 0; t < RANDOM_MAX_TYPES && !more; t++) {
			more = n[t] < full[t];
			n[t] = more ? n[t] + 1 : 1;
		}
	}
	if (step_s > best_s * (1.0 + 1e-9) ||
	    (x->n_nodes == x->n_types && best_s > step_s * (1.0 + 1e-9))) {
		print_problem(x);
		fail_msg("search %.12g s, oracle over the parts %.12g s", step_s, best_s);
	}
}

static void check(uint64_t seed, const char *engine, const struct random_limits *limits,
                  uint64_t *plans)
{
	struct random_instance x;
	struct search_knobs whole_nodes = {.memory_scale = 1.0};
	struct adp_search_opts opts;
	struct adp_error err = {0};
	struct adp_model *model;
	struct adp_cluster *cluster;
	struct adp_plan *plan = NULL;
	struct oracle_best best;
	double step_s = (double)INFINITY;
	int rc;

	random_instance_draw(&x, seed, limits);
	x.engine = engine;
	make_alike(&x);
	model = take_model(random_instance_config(&x));
	cluster = take_cluster(random_instance_cluster(&x));
	adp_search_opts_init(&opts);
	rc = search_with(&plan, model, cluster, engine_of(&x), tables, &x.train, &opts, &whole_nodes,
	                 &err);
	if (rc == ADP_OK) {
		step_s = plan->step.step_s;
		++*plans;
	} else if (rc != ADP_EINFEASIBLE) {
		fail_msg("%s", err.text);
	}
	if (search_oracle(&best, model, cluster, engine_of(&x), tables, &x.train, &err))
		fail_msg("%s", err.text);
	if (!(step_s <= best.step_s * (1.0 + 1e-9) && best.step_s <= step_s * (1.0 + 1e-9))) {
		print_problem(&x);
		if (plan)
			print_message(
				"search: tp %u cp %u ep %u etp %u sp %d dp %u pp %u vpp %u zero %u shard %u "
				"micro-batch %u pipes %u\n",
				plan->tp, plan->cp, plan->ep, plan->etp, plan->sequence_parallel, plan->dp,
				plan->pp, plan->vpp, plan->zero_stage, plan->shard_gpus,
				(unsigned)plan->micro_batch_seqs, plan->n_pipes);
		print_message("oracle: tp %u cp %u ep %u etp %u sp %d dp %u pp %u vpp %u zero %u hybrid %d "
		              "micro-batch %u by replica %d layers %u %u %u %u\n",
		              best.tp, best.cp, best.ep, best.etp, best.sequence_parallel, best.dp, best.pp,
		              best.vpp, best.zero_stage, best.hybrid, best.micro_batch_seqs,
		              best.by_replica, best.n_layers[0], best.n_layers[1], best.n_layers[2],
		              best.n_layers[3]);
		fail_msg("search %.12g s, oracle %.12g s", step_s, best.step_s);
	}
	check_parts(&x, model, &opts, best.step_s);
	adp_plan_destroy(plan);
	adp_cluster_destroy(cluster);
	adp_model_destroy(model);
}

static void the_search_finds_what_the_oracle_finds_for_torch(void **state)
{
	uint64_t n = count_of(1000), plans = 0;

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++)
		check(seed, "torch", &torch_limits, &plans);
	/* fits, though it takes more to start than to run */
	check(300718, "torch", &torch_limits, &plans);
	if (n >= 100)
		assert_true(plans > n / 3);
}

static void the_search_finds_what_the_oracle_finds_for_megatron(void **state)
{
	uint64_t n = count_of(400), plans = 0;

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++)
		check(seed, "megatron", &megatron_limits, &plans);
	if (n >= 100)
		assert_true(plans > n / 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_search_finds_what_the_oracle_finds_for_torch),
		cmocka_unit_test(the_search_finds_what_the_oracle_finds_for_megatron),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
