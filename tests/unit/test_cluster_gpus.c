/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters from the text of --gpus. */
#include "cluster_fixture.h"

#include "support/fault_sweep.h"

static void usual_nodes_of_each_type_are_made(void **state)
{
	struct adp_cluster *c = must_list("H100:128,A100-80:128");

	(void)state;
	assert_int_equal(c->n_types, 2);
	assert_int_equal(c->n_nodes, 32); /* 128 / 8 + 128 / 8 */
	assert_int_equal(adp_cluster_n_gpus(c), 256);
	assert_string_equal(alias_of(c, 0), "H100"); /* the larger peak comes first */
	assert_string_equal(alias_of(c, 31), "A100-80");
	assert_string_equal(c->nodes[0].name, "h100-0");
	assert_string_equal(c->nodes[15].name,
	                    "h100-15"); /* numbers, not letters, decide: 2 before 10 */
	assert_int_equal(c->nodes[0].gpu_link.kind, ADP_LINK_NVLINK);
	assert_near(c->nodes[0].gpu_link.bytes_per_s, 450e9);
	assert_near(c->nodes[0].nic.bytes_per_s, 400e9); /* 8 x 50 GB/s */
	assert_int_equal(c->nodes[0].n_nics, 8);
	assert_near(c->nodes[31].nic.bytes_per_s, 200e9); /* 8 x 25 GB/s */
	assert_int_equal(c->nodes[0].rack, ADP_NONE);
	assert_int_equal(c->nodes[0].spine, ADP_NONE);
	assert_true(c->network_assumed);
	assert_warns(c, "H100: assumed 8 GPUs a node");
	for (uint32_t i = 0; i < c->n_nodes; i++) {
		assert_string_equal(domain_of(c, c->nodes[i].nvlink_domain),
		                    c->nodes[i].name); /* each its own */
		for (uint32_t g = 0; g < c->nodes[i].n_gpus; g++)
			assert_true(c->nodes[i].gpu_speed_frac[g] == 1);
	}
	adp_cluster_destroy(c);
}

static void a_remainder_makes_one_smaller_node(void **state)
{
	struct adp_cluster *c = must_list("H100:20");

	(void)state;
	assert_int_equal(c->n_nodes, 3);
	assert_int_equal(c->nodes[2].n_gpus, 4); /* 20 = 8 + 8 + 4 */
	assert_int_equal(c->nodes[2].n_nics, 4);
	assert_near(c->nodes[2].nic.bytes_per_s, 200e9); /* 4 x 50 GB/s */
	adp_cluster_destroy(c);
}

static void gpus_per_node_can_be_stated(void **state)
{
	struct adp_cluster *c = must_list("H100x4:16");

	(void)state;
	assert_int_equal(c->n_nodes, 4);
	assert_int_equal(c->nodes[0].n_gpus, 4);
	assert_string_equal(c->nodes[0].name, "h100x4-0");
	adp_cluster_destroy(c);
	c = must_list("RTX4090:4"); /* an x inside a name is not a size */
	assert_string_equal(alias_of(c, 0), "RTX4090");
	adp_cluster_destroy(c);
	c = must_list("RTX4090x2:4");
	assert_int_equal(c->n_nodes, 2);
	adp_cluster_destroy(c);
	c = must_list("MI300X:8");
	assert_string_equal(alias_of(c, 0), "MI300X");
	adp_cluster_destroy(c);
}

/* Case choice-10: 2+3+3, 8+4 and 4+1 GPUs on the nodes of a job. */
static void uneven_nodes_are_expressible(void **state)
{
	struct adp_cluster *c = must_list("H100x2:2,H100x3:6");

	(void)state;
	assert_int_equal(c->n_nodes, 3);
	assert_int_equal(c->nodes[0].n_gpus, 2);
	assert_int_equal(c->nodes[1].n_gpus, 3);
	assert_int_equal(c->nodes[2].n_gpus, 3);
	adp_cluster_destroy(c);
	c = must_list("H100:12");
	assert_int_equal(c->n_nodes, 2);
	assert_int_equal(c->nodes[1].n_gpus, 4);
	adp_cluster_destroy(c);
	c = must_list("H100x4:5");
	assert_int_equal(c->n_nodes, 2);
	assert_int_equal(c->nodes[1].n_gpus, 1);
	adp_cluster_destroy(c);
}

static void rack_size_nvlink_domains_join_nodes(void **state)
{
	struct adp_cluster *c = must_list("GB200:100");

	(void)state;
	assert_int_equal(c->n_nodes, 25); /* 100 / 4 */
	/* 72 / 4 = 18 nodes share a domain */
	assert_int_equal(c->nodes[0].nvlink_domain, c->nodes[17].nvlink_domain);
	assert_int_not_equal(c->nodes[17].nvlink_domain, c->nodes[18].nvlink_domain);
	assert_int_equal(c->n_domains, 2);
	adp_cluster_destroy(c);
}

/* An H100's NVLink joins the 8 GPUs of its usual node: nodes of 4, or of one, are not wired
 * together by it. */
static void small_nodes_do_not_share_the_nvlink_of_a_usual_node(void **state)
{
	struct adp_cluster *c = must_list("H100x4:16");

	(void)state;
	assert_int_equal(c->n_domains, 4);
	assert_int_not_equal(c->nodes[0].nvlink_domain, c->nodes[1].nvlink_domain);
	adp_cluster_destroy(c);
	c = must_list("A100-80x1:6");
	assert_int_equal(c->n_domains, 6);
	adp_cluster_destroy(c);
	c = must_list("GB200x2:72"); /* 72 / 2 = 36 nodes of a rack do */
	assert_int_equal(c->n_domains, 1);
	adp_cluster_destroy(c);
}

static void cards_without_nvlink_are_joined_by_pcie(void **state)
{
	struct adp_cluster *c = must_list("L40S:8");

	(void)state;
	assert_int_equal(c->nodes[0].gpu_link.kind, ADP_LINK_PCIE);
	assert_near(c->nodes[0].gpu_link.bytes_per_s, 32e9); /* PCIe 4.0 x16 */
	assert_int_equal(c->nodes[0].gpus_per_root, 2);
	assert_true(c->nodes[0].gpu_link.latency_s > 0);
	adp_cluster_destroy(c);
}

static void order_spelling_and_repetition_do_not_matter(void **state)
{
	struct adp_cluster *a = must_list("H100:16,V100-32:8"),
					   *b = must_list("v100_32:8, NVIDIA-H100-80GB-HBM3:8,H100x8:8");

	(void)state;
	assert_string_equal(a->digest, b->digest);
	assert_int_equal(a->n_nodes, b->n_nodes);
	for (uint32_t i = 0; i < a->n_nodes; i++)
		assert_string_equal(a->nodes[i].name, b->nodes[i].name);
	adp_cluster_destroy(a);
	adp_cluster_destroy(b);
}

static void the_digest_tells_different_fleets_apart(void **state)
{
	static const char *const lists[] = {"H100:16", "H100:24", "H100x4:16", "H200:16",
	                                    "H100:16,T4:4"};
	struct adp_cluster *c[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		c[i] = must_list(lists[i]);
	for (int i = 0; i < 5; i++) {
		for (int k = i + 1; k < 5; k++)
			assert_string_not_equal(c[i]->digest, c[k]->digest);
	}
	for (int i = 0; i < 5; i++)
		adp_cluster_destroy(c[i]);
}

static void more_gpus_keep_all_nodes_there_were(void **state)
{
	(void)state;
	for (unsigned n = 1; n < 80; n++) {
		char few[32], more[32];
		struct adp_cluster *a, *b;

		snprintf(few, sizeof few, "H100:%u,L40S:8", n);
		snprintf(more, sizeof more, "H100:%u,L40S:8,T4:1", n + 8);
		a = must_list(few);
		b = must_list(more);
		for (uint32_t i = 0; i < a->n_nodes; i++) {
			const struct adp_node *node = node_named(b, a->nodes[i].name);

			assert_non_null(node);
			assert_true(node->n_gpus >= a->nodes[i].n_gpus);
		}
		adp_cluster_destroy(a);
		adp_cluster_destroy(b);
	}
}

static void bad_lists_are_refused_with_the_next_step(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"H10:8", "did you mean one of A10, H20, H100"},
		{"V100:8", "V100-16, V100-32"},
		{"A100:8", "A100-40, A100-80"},
		{"quantum:8", "no such GPU type; use names such as H100"},
		{"H100:8,H10:8", "entry 2 ('H10:8')"},
		{"", "expected TYPE:COUNT"},
		{"H100", "expected TYPE:COUNT"},
		{":8", "expected TYPE:COUNT"},
		{"H100:8,", "entry 2 (''): expected TYPE:COUNT"},
		{"H100:", "must be a whole number from 1 to 1000000"},
		{"H100:0", "must be a whole number from 1 to 1000000"},
		{"H100:-8", "must be a whole number"},
		{"H100:8.5", "must be a whole number"},
		{"H100:1e3", "must be a whole number"},
		{"H100:1000000000", "must be a whole number from 1 to 1000000"},
		{"H100:99999999999999999999999999", "must be a whole number from 1 to 1000000"},
		{"H100x0:8", "GPUs per node must be 1 to 1024"},
		{"H100x9999:8", "GPUs per node must be 1 to 1024"},
		{"H100:nan", "must be a whole number"},
		{"H100:8\n", "must be a whole number"},
		{"\x1b[31mH100:8", "('?[31mH100:8')"}, /* no terminal codes in our messages */
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct adp_cluster *c;
		struct adp_error err = {0};

		assert_int_equal(adp_cluster_from_gpus(&c, cases[i].text, hw, &err), ADP_EINVAL);
		assert_null(c);
		assert_says(err, cases[i].expected);
	}
}

static void limits_are_stated(void **state)
{
	struct adp_cluster *c;
	struct adp_error err = {0};
	char *text = malloc(70000);

	(void)state;
	assert_int_equal(adp_cluster_from_gpus(&c, "H100:1000000,A100-80:8", hw, &err), ADP_ELIMIT);
	assert_says(err, "more than 1000000 GPUs");
	assert_int_equal(adp_cluster_from_gpus(&c, "GH200:300000", hw, &err),
	                 ADP_ELIMIT); /* one GPU a node */
	assert_says(err, "more than 200000 nodes");
	memset(text, 'x', 69999);
	text[69999] = '\0';
	assert_int_equal(adp_cluster_from_gpus(&c, text, hw, &err), ADP_ELIMIT);
	text[0] = '\0';
	for (int i = 1; i <= 1023; i++)
		snprintf(text + strlen(text), 32, "H100x%d:1,", i);
	snprintf(text + strlen(text), 32, "L4x1:1,L4x2:1");
	assert_int_equal(adp_cluster_from_gpus(&c, text, hw, &err),
	                 ADP_EINVAL); /* 1025 kinds of node */
	assert_says(err, "entry 1025 ('L4x2:1'): too many entries");
	free(text);
	c = must_list("H100:1000000");
	assert_int_equal(c->n_nodes, 125000);
	adp_cluster_destroy(c);
}

static int build_all_kinds(void *context)
{
	struct adp_cluster *c;
	int rc = adp_cluster_from_gpus(&c, "H100:20,GB200:100,L40S:8,T4x2:2", hw, NULL);

	(void)context;
	adp_cluster_destroy(c);
	return rc;
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	fault_sweep(build_all_kinds, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(usual_nodes_of_each_type_are_made),
		cmocka_unit_test(a_remainder_makes_one_smaller_node),
		cmocka_unit_test(gpus_per_node_can_be_stated),
		cmocka_unit_test(uneven_nodes_are_expressible),
		cmocka_unit_test(rack_size_nvlink_domains_join_nodes),
		cmocka_unit_test(small_nodes_do_not_share_the_nvlink_of_a_usual_node),
		cmocka_unit_test(cards_without_nvlink_are_joined_by_pcie),
		cmocka_unit_test(order_spelling_and_repetition_do_not_matter),
		cmocka_unit_test(the_digest_tells_different_fleets_apart),
		cmocka_unit_test(more_gpus_keep_all_nodes_there_were),
		cmocka_unit_test(bad_lists_are_refused_with_the_next_step),
		cmocka_unit_test(limits_are_stated),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load_hardware, unload_hardware);
}
