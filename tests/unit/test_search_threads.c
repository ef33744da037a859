/* SPDX-License-Identifier: Apache-2.0 */
#include "search_random.h"

/* Same input, same bytes: whatever the run, the number of threads, or the order in which the input
 * says things. */

/* The document of the best plan with its reasons, or the refusal. Frees the inputs; free with
 * adp_free. */
static char *answer(struct adp_model *model, struct adp_cluster *cluster,
                    const struct random_instance *x, uint32_t n_threads)
{
	struct adp_search_opts opts;
	struct adp_plan *plan = NULL;
	struct adp_error err = {0};
	char *text = NULL;
	int rc;

	adp_search_opts_init(&opts);
	opts.n_threads = n_threads;
	rc = adp_search(&plan, model, cluster, engine_of(x), tables, &x->train, &opts, &err);
	if (rc == ADP_OK)
		rc = adp_search_explain(plan, model, cluster, engine_of(x), tables, &x->train, &opts, &err);
	if (rc == ADP_OK)
		rc = adp_plan_to_json(&text, plan, &err);
	if (rc == ADP_EINFEASIBLE)
		text = adp_strdup(err.text);
	else if (rc != ADP_OK)
		fail_msg("%s", err.text);
	adp_plan_destroy(plan);
	adp_cluster_destroy(cluster);
	adp_model_destroy(model);
	assert_non_null(text);
	return text;
}

static char *plain_answer(const struct random_instance *x, uint32_t n_threads)
{
	return answer(take_model(random_instance_config(x)), take_cluster(random_instance_cluster(x)),
	              x, n_threads);
}

/* Frees both. */
static void assert_same(const struct random_instance *x, char *expected, char *text)
{
	if (strcmp(expected, text) != 0) {
		print_problem(x);
		fail_msg("not the same bytes:\n%s\n%s", expected, text);
	}
	adp_free(expected);
	adp_free(text);
}

static bool is_plan(const char *text)
{
	return strstr(text, "ParallelPlan") != NULL;
}

static void a_hundred_runs_write_the_same_bytes(void **state)
{
	struct random_instance x;
	uint64_t seed = first_seed();
	char *first;

	(void)state;
	do { /* the first problem of a mixed fleet that has a plan */
		random_instance_draw(&x, seed++, &random_small);
		first = plain_answer(&x, 1);
		if (x.n_types < 2 || !is_plan(first)) {
			adp_free(first);
			first = NULL;
		}
	} while (!first);
	for (uint64_t i = 1; i < count_of(100); i++)
		assert_same(&x, adp_strdup(first), plain_answer(&x, 1 + i % 2));
	adp_free(first);
}

static void more_threads_write_the_same_bytes(void **state)
{
	uint64_t plans = 0, n = count_of(100);

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++) {
		struct random_instance x;
		char *one;

		random_instance_draw(&x, seed, &random_small);
		one = plain_answer(&x, 1);
		plans += is_plan(one);
		assert_same(&x, adp_strdup(one), plain_answer(&x, 3));
		assert_same(&x, one, plain_answer(&x, 2));
	}
	if (n >= 50)
		assert_true(plans > n / 3);
}

static void the_order_of_nodes_and_keys_does_not_matter(void **state)
{
	uint64_t n = count_of(100);

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++) {
		struct random_rng rng = {seed};
		struct random_instance x;

		random_instance_draw(&x, seed, &random_small);
		assert_same(&x, plain_answer(&x, 1),
		            answer(take_model(random_instance_config_shuffled(&x, &rng)),
		                   take_cluster(random_instance_cluster_shuffled(&x, &rng)), &x, 1));
	}
}

static void the_order_of_a_node_list_and_its_labels_does_not_matter(void **state)
{
	uint64_t n = count_of(100);

	(void)state;
	for (uint64_t seed = first_seed(); seed < first_seed() + n; seed++) {
		struct random_rng rng = {seed};
		struct random_instance x;

		random_instance_draw(&x, seed, &random_small);
		assert_same(&x,
		            answer(take_model(random_instance_config(&x)),
		                   take_cluster(random_instance_node_list(&x, NULL)), &x, 1),
		            answer(take_model(random_instance_config_shuffled(&x, &rng)),
		                   take_cluster(random_instance_node_list(&x, &rng)), &x, 2));
	}
}

/* The shuffles really change the text, or the tests above could not fail. */
static void shuffled_documents_differ_in_their_bytes(void **state)
{
	struct random_rng rng = {1};
	struct random_instance x;
	uint32_t differ = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		char *plain, *shuffled;

		random_instance_draw(&x, seed, &random_small);
		plain = random_instance_cluster(&x);
		shuffled = random_instance_cluster_shuffled(&x, &rng);
		assert_non_null(plain);
		assert_non_null(shuffled);
		assert_int_equal(strlen(plain), strlen(shuffled));
		differ += strcmp(plain, shuffled) != 0;
		adp_free(plain);
		adp_free(shuffled);
	}
	assert_int_equal(differ, 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hundred_runs_write_the_same_bytes),
		cmocka_unit_test(more_threads_write_the_same_bytes),
		cmocka_unit_test(the_order_of_nodes_and_keys_does_not_matter),
		cmocka_unit_test(the_order_of_a_node_list_and_its_labels_does_not_matter),
		cmocka_unit_test(shuffled_documents_differ_in_their_bytes),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
