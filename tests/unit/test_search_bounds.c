/* SPDX-License-Identifier: Apache-2.0 */
#include "search_random.h"

#include "search/internal.h"

/*
 * Bounds only prune. A search that is told of a step just above the best one dismisses all it can,
 * and must still come to the same plan; a bound that exceeds what it bounds shows here.
 */

static const struct random_limits wide = {3, 4, 8, 40, 12, 64};

static void check(uint64_t seed, const struct random_limits *limits, uint64_t *plans)
{
	struct random_instance x;
	struct adp_error err = {0};
	struct adp_search_opts opts;
	struct search_knobs knobs = {.memory_scale = 1.0};
	struct counts counts = {.open_bound_s = (double)INFINITY};
	struct adp_plan *best = NULL, *again = NULL;
	struct adp_model *model;
	struct adp_cluster *cluster;
	double best_s;
	int rc;

	random_instance_draw(&x, seed, limits);
	model = take_model(random_instance_config(&x));
	cluster = take_cluster(random_instance_cluster(&x));
	adp_search_opts_init(&opts);
	rc = search_fleet(&best, &counts, (double)INFINITY, model, cluster, engine_of(&x), tables,
	                  &x.train, &opts, &knobs, &err);
	if (rc == ADP_OK) {
		best_s = best->step.step_s;
		rc = search_fleet(&again, &counts, best_s * (1.0 + 1e-6), model, cluster, engine_of(&x),
		                  tables, &x.train, &opts, &knobs, &err);
		if (rc != ADP_OK || fabs(again->step.step_s / best_s - 1.0) > 1e-9) {
			print_problem(&x);
			fail_msg("best %.12g s, with that as the limit %.12g s", best_s,
			         again ? again->step.step_s : (double)INFINITY);
		}
		++*plans;
	}
	assert_true(rc == ADP_OK || rc == ADP_EINFEASIBLE);
	adp_plan_destroy(best);
	adp_plan_destroy(again);
	adp_model_destroy(model);
	adp_cluster_destroy(cluster);
}

static void a_limit_above_the_best_step_never_hides_it(void **state)
{
	uint64_t n = count_of(1500), plans = 0;

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++)
		check(seed, &random_small, &plans);
	if (n >= 100)
		assert_true(plans > n / 2);
}

static void nor_does_it_on_larger_fleets_and_deeper_models(void **state)
{
	uint64_t n = count_of(120), plans = 0;

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++)
		check(seed, &wide, &plans);
	if (n >= 100)
		assert_true(plans > n / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_limit_above_the_best_step_never_hides_it),
		cmocka_unit_test(nor_does_it_on_larger_fleets_and_deeper_models),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
