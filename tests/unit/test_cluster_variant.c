/* SPDX-License-Identifier: Apache-2.0 */
/* "What if" copies of a cluster. */
#include "cluster_fixture.h"

#include "support/fault_sweep.h"

#define HEAD "apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\n"

static const char mixed[] = HEAD
	"racks: [{name: r1, uplink: {bandwidth: 100GB/s, load: 0.5}}, {name: r2}]\n"
	"nodeGroups:\n"
	"- {name: new, gpu: H100, count: 3, rack: r1, links: {nvlink: {load: 0.1}, nics: {load: 0.2}}, "
	"health: 0.9}\n"
	"- {name: old, gpu: V100-32, count: 2, rack: r2}\n";

static bool keep_type(const struct adp_cluster *c, const struct adp_node *node, void *ctx)
{
	return strcmp(c->types[node->type].alias, ctx) == 0;
}

static bool keep_not_named(const struct adp_cluster *c, const struct adp_node *node, void *ctx)
{
	(void)c;
	return strcmp(node->name, ctx) != 0;
}

static bool keep_none(const struct adp_cluster *c, const struct adp_node *node, void *ctx)
{
	(void)c;
	(void)node;
	(void)ctx;
	return false;
}

static struct adp_cluster *must_vary(const struct adp_cluster *from,
                                     bool (*keep)(const struct adp_cluster *,
                                                  const struct adp_node *, void *),
                                     void *ctx, unsigned flags)
{
	struct adp_cluster *c;
	struct adp_error err = {0};

	if (adp_cluster_variant(&c, from, keep, ctx, flags, &err))
		fail_msg("%s", err.text);
	return c;
}

static void a_plain_copy_is_the_same(void **state)
{
	struct adp_cluster *c = must_read(mixed), *copy = must_vary(c, NULL, NULL, 0);

	(void)state;
	assert_string_equal(copy->digest, c->digest);
	assert_string_equal(copy->name, c->name);
	assert_int_equal(copy->n_warnings, c->n_warnings);
	assert_int_equal(copy->network_assumed, c->network_assumed);
	adp_cluster_destroy(c); /* the copy borrows nothing */
	assert_string_equal(copy->nodes[0].name, "new-0");
	assert_near(copy->nodes[0].gpu_speed_frac[7], 0.9);
	adp_cluster_destroy(copy);
}

static void a_subset_equals_a_cluster_that_never_had_the_rest(void **state)
{
	char alias[] = "V100-32";
	struct adp_cluster *c = must_read(mixed), *old = must_vary(c, keep_type, alias, 0);
	struct adp_cluster *alone = must_read(
		HEAD "nodeGroups: [{name: old, gpu: V100-32, count: 2, rack: r2}]\n");

	(void)state;
	assert_int_equal(old->n_nodes, 2);
	assert_int_equal(old->n_types, 1);
	assert_string_equal(domain_of(old, old->nodes[0].rack), "r2");
	assert_string_equal(old->digest, alone->digest);
	adp_cluster_destroy(c);
	adp_cluster_destroy(old);
	adp_cluster_destroy(alone);
}

static void healthy_and_idle_change_speeds_and_loads_alone(void **state)
{
	struct adp_cluster *c = must_read(mixed);
	struct adp_cluster *healthy = must_vary(c, NULL, NULL, ADP_CLUSTER_HEALTHY);
	struct adp_cluster *idle = must_vary(c, NULL, NULL, ADP_CLUSTER_IDLE);

	(void)state;
	assert_near(healthy->nodes[0].gpu_speed_frac[0], 1);
	assert_near(healthy->nodes[0].nic.load_frac, 0.2);
	assert_near(idle->nodes[0].gpu_speed_frac[0], 0.9);
	assert_near(idle->nodes[0].nic.load_frac, 0);
	assert_near(idle->nodes[0].gpu_link.load_frac, 0);
	assert_near(idle->domains[idle->nodes[0].rack].uplink.load_frac, 0);
	assert_near(idle->domains[idle->nodes[0].rack].uplink.bytes_per_s, 100e9);
	assert_string_not_equal(healthy->digest, c->digest);
	assert_string_not_equal(idle->digest, c->digest);
	adp_cluster_destroy(c);
	adp_cluster_destroy(healthy);
	adp_cluster_destroy(idle);
}

static void without_any_node_the_answer_is_no(void **state)
{
	struct adp_cluster *c = must_read(mixed), *none;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_cluster_variant(&none, c, keep_none, NULL, 0, &err), ADP_EINFEASIBLE);
	assert_null(none);
	adp_cluster_destroy(c);
}

/* Dropping any one node leaves all others as they were. */
static void each_node_can_be_dropped(void **state)
{
	struct adp_cluster *c = must_list("H100:24,GB200:80,L40S:16");

	(void)state;
	for (uint32_t i = 0; i < c->n_nodes; i++) {
		char name[64];
		struct adp_cluster *less;

		snprintf(name, sizeof name, "%s", c->nodes[i].name);
		less = must_vary(c, keep_not_named, name, 0);
		assert_int_equal(less->n_nodes, c->n_nodes - 1);
		assert_null(node_named(less, name));
		for (uint32_t k = 0, to = 0; k < c->n_nodes; k++) {
			const struct adp_node *a = &c->nodes[k], *b = &less->nodes[to];

			if (k == i)
				continue;
			assert_string_equal(a->name, b->name);
			assert_string_equal(c->types[a->type].name, less->types[b->type].name);
			assert_string_equal(domain_of(c, a->nvlink_domain), domain_of(less, b->nvlink_domain));
			to++;
		}
		adp_cluster_destroy(less);
	}
	adp_cluster_destroy(c);
}

static int vary(void *context)
{
	struct adp_cluster *c = context, *copy;
	int rc = adp_cluster_variant(&copy, c, NULL, NULL, 0, NULL);

	adp_cluster_destroy(copy);
	return rc;
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	struct adp_cluster *c = must_read(mixed);

	(void)state;
	fault_sweep(vary, c);
	adp_cluster_destroy(c);
}

static void link_kinds_have_names(void **state)
{
	(void)state;
	assert_string_equal(adp_link_name(ADP_LINK_NVLINK), "nvlink");
	assert_string_equal(adp_link_name(ADP_LINK_SPINE), "spine");
	assert_string_equal(adp_link_name((enum adp_link_kind)99), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_copy_is_the_same),
		cmocka_unit_test(a_subset_equals_a_cluster_that_never_had_the_rest),
		cmocka_unit_test(healthy_and_idle_change_speeds_and_loads_alone),
		cmocka_unit_test(without_any_node_the_answer_is_no),
		cmocka_unit_test(each_node_can_be_dropped),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
		cmocka_unit_test(link_kinds_have_names),
	};

	return cmocka_run_group_tests(tests, load_hardware, unload_hardware);
}
