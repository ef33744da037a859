/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cost_fixture.h"

#include "cost/tables.h"

static struct adp_tables *tables;

static int load(void **state)
{
	struct adp_error err = {0};

	(void)state;
	return adp_tables_load(&tables, NULL, &err);
}

static int unload(void **state)
{
	(void)state;
	adp_tables_destroy(tables);
	return 0;
}

/* Measured microseconds between 8 GPUs of one node, ai-dynamo/aiconfigurator@095f58a NCCL (half);
 * V100: VIA-Research/vTrain@f8dda84. */
static void times_agree_with_measured_points(void **state)
{
	static const struct {
		int gpu; /* 0 A100, 1 H100, 2 V100 */
		enum adp_collective op;
		uint32_t n;
		double mib, us;
	} points[] = {
		{0, ADP_ALL_REDUCE, 8, 4, 77.3},        {0, ADP_ALL_REDUCE, 8, 64, 595.3},
		{0, ADP_ALL_GATHER, 8, 256, 1217},      {0, ADP_REDUCE_SCATTER, 4, 8, 66.87},
		{1, ADP_ALL_REDUCE, 8, 64, 324.5},      {1, ADP_ALL_GATHER, 8, 32, 125.5},
		{1, ADP_REDUCE_SCATTER, 2, 128, 311.5}, {1, ADP_ALL_TO_ALL, 8, 64, 221.3},
		{2, ADP_ALL_REDUCE, 8, 16, 273.8},      {2, ADP_ALL_REDUCE, 2, 256, 11915},
	};

	(void)state;
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		struct adp_gpu_type gpu = points[i].gpu == 0   ? a100()
		                          : points[i].gpu == 1 ? h100()
		                                               : v100();
		struct adp_path path = path_of(&gpu, points[i].n, ADP_LINK_NVLINK, gpu.nvlink_bytes_per_s);
		double us = 1e6 * adp_collective_s(tables, points[i].op, &path, points[i].mib * 1048576);

		print_message("point %zu: measured %.1f us, table %.1f us\n", i, points[i].us, us);
		assert_near(us / points[i].us, 1, 0.15);
	}
}

static void a_group_of_one_costs_nothing(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path path = path_of(&gpu, 1, ADP_LINK_NVLINK, 450e9), empty = {0};

	(void)state;
	assert_near(adp_collective_s(tables, ADP_ALL_REDUCE, &path, 1e9), 0, 0);
	assert_near(adp_collective_s(tables, ADP_SEND, &empty, 1e9), 0, 0);
}

static void half_the_nvlink_takes_the_start_up_and_twice_the_rest(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path whole = path_of(&gpu, 8, ADP_LINK_NVLINK, 450e9),
					half = path_of(&gpu, 8, ADP_LINK_NVLINK, 225e9);
	double start = adp_collective_s(tables, ADP_ALL_GATHER, &whole, 1);
	double a = adp_collective_s(tables, ADP_ALL_GATHER, &whole, 1e9),
		   b = adp_collective_s(tables, ADP_ALL_GATHER, &half, 1e9);

	(void)state;
	assert_near(start * 1e6, 10.4, 0.1); /* first column of the table */
	assert_near(b, start + 2 * (a - start), 1e-12);
}

static void a_ring_over_the_network_follows_the_formula(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path path = path_of(&gpu, 4, ADP_LINK_NIC, 50e9);
	/* 4 nodes: 20 us + 3 steps x 5 us + 3/4 x 1 GB / (50 GB/s x 0.75) = 35 us + 20 ms */
	double gather = 35e-6 + 0.75e9 / (50e9 * 0.75);
	/* all-reduce: tree of 2 x log2 4 steps: 20 us + 20 us, twice the bytes */
	double reduce = 40e-6 + 1.5e9 / (50e9 * 0.75);

	(void)state;
	assert_near(adp_collective_s(tables, ADP_ALL_GATHER, &path, 1e9), gather, 1e-12);
	assert_near(adp_collective_s(tables, ADP_ALL_REDUCE, &path, 1e9), reduce, 1e-12);
}

static void two_levels_reduce_inside_before_they_go_out(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path inner = path_of(&gpu, 8, ADP_LINK_NVLINK, 450e9),
					outer = path_of(&gpu, 4, ADP_LINK_NIC, 50e9), both = inner;
	double bytes = 1e9, hierarchical, one_rank_at_a_time;

	(void)state;
	both.n_levels = 2;
	both.level[1] = outer.level[0];
	hierarchical = adp_collective_s(tables, ADP_REDUCE_SCATTER, &inner, bytes) +
	               adp_collective_s(tables, ADP_ALL_REDUCE, &outer, bytes / 8) +
	               adp_collective_s(tables, ADP_ALL_GATHER, &inner, bytes);
	one_rank_at_a_time = adp_collective_s(tables, ADP_ALL_REDUCE, &outer, bytes);
	assert_true(adp_collective_s(tables, ADP_ALL_REDUCE, &both, bytes) <= hierarchical);
	assert_true(adp_collective_s(tables, ADP_ALL_REDUCE, &both, bytes) >= hierarchical / 2);
	assert_true(hierarchical < one_rank_at_a_time);
}

static void the_flat_ring_is_taken_where_it_is_faster(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path inner = path_of(&gpu, 8, ADP_LINK_NVLINK, 450e9),
					outer = path_of(&gpu, 2, ADP_LINK_NIC, 50e9), both = inner;
	double bytes = 4e9, s, hierarchical;

	(void)state;
	both.n_levels = 2;
	both.level[1] = outer.level[0];
	s = adp_collective_s(tables, ADP_ALL_GATHER, &both, bytes);
	hierarchical = adp_collective_s(tables, ADP_ALL_GATHER, &inner, bytes) +
	               adp_collective_s(tables, ADP_ALL_GATHER, &outer, bytes / 8);
	/* Ring of 16 over two nodes: 15/16 x 4 GB over 8 rails of 50 GB/s x 0.75 = 12.5 ms, and
	 * start-ups under 0.1 ms; one level after the other: 10.4 + 6.7 ms. */
	assert_true(s > 0.0125 && s < 0.0126);
	assert_true(hierarchical > 0.016 && hierarchical < 0.018);
}

static void an_all_to_all_over_nodes_sends_what_leaves_the_node(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path path = path_of(&gpu, 8, ADP_LINK_NVLINK, 450e9);
	double s;

	(void)state;
	path.n_levels = 2;
	path.level[1] = path_of(&gpu, 4, ADP_LINK_NIC, 50e9).level[0];
	s = adp_collective_s(tables, ADP_ALL_TO_ALL, &path, 1e9);
	/* 24 of 32 peers are outside: 0.75 GB / 37.5 GB/s = 20 ms, and start-ups */
	assert_true(s > 0.020 && s < 0.0202);
}

static void a_box_without_peer_to_peer_is_four_times_slower(void **state)
{
	struct adp_gpu_type direct = gpu_of("NVIDIA-A10", "Ampere", 86, 125e12, 125e12, 600e9, 0);
	struct adp_gpu_type game = gpu_of("NVIDIA-GeForce-RTX-4090", "Ada", 89, 165e12, 165e12, 1008e9,
	                                  0);
	struct adp_path with = path_of(&direct, 2, ADP_LINK_PCIE, 32e9),
					without = path_of(&game, 2, ADP_LINK_PCIE, 32e9);
	double fast = adp_collective_s(tables, ADP_ALL_REDUCE, &with, 3.4e9);
	double slow = adp_collective_s(tables, ADP_ALL_REDUCE, &without, 3.4e9);

	(void)state;
	assert_near(slow / fast, 4, 0.01); /* 0.6 : 0.15 of the link */
	/* Gradients of 1.7e9 parameters in 16 bit between two such cards: 3.4 GB / 4.8 GB/s = 0.71 s.
	 * One card does 15.4 samples/s (65 ms a sample), two did 4.5: the exchange alone is longer than
	 * the work it shares. */
	assert_true(slow > 1 / 15.4);
}

static void a_send_pays_the_slowest_link_once(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path path = path_of(&gpu, 2, ADP_LINK_NIC, 25e9);

	(void)state;
	/* 20 us + 5 us + 100 MB / (25 GB/s x 0.75) */
	assert_near(adp_collective_s(tables, ADP_SEND, &path, 1e8), 25e-6 + 1e8 / 18.75e9, 1e-12);
}

static void an_uplink_without_a_limit_costs_its_latency_only(void **state)
{
	struct adp_gpu_type gpu = h100();
	struct adp_path path = path_of(&gpu, 2, ADP_LINK_SPINE, 0);

	(void)state;
	assert_true(adp_collective_s(tables, ADP_ALL_REDUCE, &path, 1e9) < 1e-4);
	path.level[0].link.kind = ADP_LINK_NIC;
	assert_true(isinf(adp_collective_s(tables, ADP_ALL_REDUCE, &path, 1e9)));
}

static void larger_nvlink_domains_extend_the_largest_measured_group(void **state)
{
	struct adp_gpu_type gpu = gpu_of("NVIDIA-GB200", "Blackwell", 100, 2500e12, 2500e12, 8e12,
	                                 900e9);
	struct adp_path four = path_of(&gpu, 4, ADP_LINK_NVLINK, 900e9),
					rack = path_of(&gpu, 64, ADP_LINK_NVLINK, 900e9);
	double small = adp_collective_s(tables, ADP_ALL_GATHER, &four, 1e10),
		   large = adp_collective_s(tables, ADP_ALL_GATHER, &rack, 1e10);

	(void)state;
	assert_near(large / small, (63.0 / 64) / (3.0 / 4), 0.01);
	assert_true(adp_collective_s(tables, ADP_ALL_GATHER, &rack, 8) >
	            adp_collective_s(tables, ADP_ALL_GATHER, &four, 8));
}

/* 20,000 random paths: more bytes or latency never cost less, more bandwidth on any level never
 * more. */
static void more_bytes_or_latency_never_cost_less_more_bandwidth_never_more(void **state)
{
	static const uint32_t fans[] = {1, 2, 3, 4, 6, 8, 16, 72};
	struct adp_gpu_type gpus[] = {a100(), h100(), v100()};
	uint64_t seed = 99;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct adp_path path = {.n_levels = 1 + (uint32_t)(4 * next_random(&seed))}, other;
		enum adp_collective op = (enum adp_collective)(int)(5 * next_random(&seed));
		double bytes = exp2(36 * next_random(&seed)),
			   grow = 1 + (i % 3 ? 3 : 1e-3) * next_random(&seed), s;
		uint32_t at;

		for (uint32_t level = 0; level < path.n_levels; level++) {
			path.level[level] = (struct adp_path_level){
				fans[(int)(8 * next_random(&seed))],
				{(enum adp_link_kind)(level == 0 ? (int)(2 * next_random(&seed))
			                                     : 1 + (int)(4 * next_random(&seed))),
			     exp2(30 + 10 * next_random(&seed)), 1e-5 * next_random(&seed), 0},
				&gpus[(int)(3 * next_random(&seed))],
			};
		}
		s = adp_collective_s(tables, op, &path, bytes);
		assert_true(s >= 0 && isfinite(s));
		assert_true(adp_collective_s(tables, op, &path, bytes * grow) >= s * (1 - 1e-12));
		at = (uint32_t)(path.n_levels * next_random(&seed));
		other = path;
		other.level[at].link.bytes_per_s *= grow;
		assert_true(adp_collective_s(tables, op, &other, bytes) <= s * (1 + 1e-12));
		other = path;
		other.level[at].link.latency_s *= grow;
		assert_true(adp_collective_s(tables, op, &other, bytes) >= s * (1 - 1e-12));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_agree_with_measured_points),
		cmocka_unit_test(a_group_of_one_costs_nothing),
		cmocka_unit_test(half_the_nvlink_takes_the_start_up_and_twice_the_rest),
		cmocka_unit_test(a_ring_over_the_network_follows_the_formula),
		cmocka_unit_test(two_levels_reduce_inside_before_they_go_out),
		cmocka_unit_test(the_flat_ring_is_taken_where_it_is_faster),
		cmocka_unit_test(an_all_to_all_over_nodes_sends_what_leaves_the_node),
		cmocka_unit_test(a_box_without_peer_to_peer_is_four_times_slower),
		cmocka_unit_test(a_send_pays_the_slowest_link_once),
		cmocka_unit_test(an_uplink_without_a_limit_costs_its_latency_only),
		cmocka_unit_test(larger_nvlink_domains_extend_the_largest_measured_group),
		cmocka_unit_test(more_bytes_or_latency_never_cost_less_more_bandwidth_never_more),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
