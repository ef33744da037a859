/* SPDX-License-Identifier: Apache-2.0 */
#include "search_random.h"

#include "../support/search_oracle.h"

/*
 * The search against an exhaustive one that was written from the documentation. Same best step on
 * every small problem: nothing legal is overlooked, nothing illegal is found.
 */

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

static void check(uint64_t seed, const char *engine, const struct random_limits *limits,
                  uint64_t *plans)
{

	struct random_instance x;
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
	rc = adp_search(&plan, model, cluster, engine_of(&x), tables, &x.train, &opts, &err);
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
