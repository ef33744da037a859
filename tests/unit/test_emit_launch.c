/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/csv.h"
#include "emit/emit_internal.h"
#include "emit_fixture.h"

/* ---- placements ------------------------------------------------------------------------- */

static const uint32_t locals[] = {0, 1, 2, 3, 4, 5, 6, 7};

struct place {
	const char *node;
	uint32_t first_gpu, n_gpus;
};

/* A data-parallel plan of one GPU type over these places, in rank order; ends with a NULL node.
 * Tensor tp. */
static void place(struct adp_plan *plan, struct adp_plan_run *runs, const struct place *places,
                  uint32_t tp)
{
	static struct adp_plan_gpu gpu = {.type = "G", .alias = "G", .arch = "Hopper"};
	uint32_t rank = 0;

	*plan = (struct adp_plan){.gpus = &gpu,
	                          .n_gpu_types = 1,
	                          .runs = runs,
	                          .tp = tp,
	                          .pp = 1,
	                          .vpp = 1,
	                          .cp = 1,
	                          .ep = 1,
	                          .etp = 1};
	for (; places->node; places++) {
		runs[plan->n_runs++] = (struct adp_plan_run){.first_rank = rank,
		                                             .n_nodes = 1,
		                                             .gpus_per_node = places->n_gpus,
		                                             .nodes = &places->node,
		                                             .gpu_index = locals + places->first_gpu};
		rank += places->n_gpus;
	}
	plan->dp = rank / tp;
}

static void expect_agents(const struct place *places, uint32_t tp, const struct emit_agent *want,
                          uint32_t n_want)
{
	struct adp_plan plan;
	struct adp_plan_run runs[8];
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct emit_agent *agents;
	uint32_t n;

	place(&plan, runs, places, tp);
	if (emit_agents(&agents, &n, &plan, &arena, &err))
		fail_msg("%s", err.text);
	assert_int_equal(n, n_want);
	for (uint32_t i = 0; i < n; i++) {
		assert_string_equal(agents[i].node, want[i].node);
		assert_int_equal(agents[i].first_rank, want[i].first_rank);
		assert_int_equal(agents[i].n_procs, want[i].n_procs);
		assert_int_equal(agents[i].gpus_in_order, want[i].gpus_in_order);
	}
	adp_arena_fini(&arena);
}
#define AGENTS(places, tp, ...)                                                                    \
	expect_agents(places, tp, (const struct emit_agent[]){__VA_ARGS__},                            \
	              sizeof((const struct emit_agent[]){__VA_ARGS__}) / sizeof(struct emit_agent))

static void nodes_with_unequal_gpus_get_their_own_counts(void **state)
{
	/* case choice-10: 8 = 2 + 3 + 3 and 5 = 4 + 1 */
	static const struct place three[] = {{"a", 0, 2}, {"b", 0, 3}, {"c", 0, 3}, {NULL, 0, 0}};
	static const struct place two[] = {{"a", 0, 4}, {"b", 0, 1}, {NULL, 0, 0}};

	(void)state;
	AGENTS(three, 1, {"a", 0, 2, 0, NULL, true}, {"b", 2, 3, 0, NULL, true},
	       {"c", 5, 3, 0, NULL, true});
	AGENTS(two, 1, {"a", 0, 4, 0, NULL, true}, {"b", 4, 1, 0, NULL, true});
}

static void consecutive_ranks_of_a_node_are_one_agent(void **state)
{
	static const struct place places[] = {{"a", 0, 2}, {"a", 2, 2}, {"b", 0, 4}, {NULL, 0, 0}};

	(void)state;
	AGENTS(places, 2, {"a", 0, 4, 0, NULL, true}, {"b", 4, 4, 0, NULL, true});
}

static void separated_ranks_of_a_node_are_two_agents_with_their_gpus(void **state)
{
	static const struct place places[] = {
		{"a", 0, 2}, {"b", 0, 2}, {"a", 2, 2}, {"b", 2, 2}, {NULL, 0, 0}};

	(void)state;
	AGENTS(places, 2, {"a", 0, 2, 0, NULL, true}, {"b", 2, 2, 0, NULL, true},
	       {"a", 4, 2, 0, NULL, false}, {"b", 6, 2, 0, NULL, false});
}

static void a_group_larger_than_its_nodes_may_span_whole_ones(void **state)
{
	/* tensor 8 over two trays of 4 GPUs in one NVLink domain */
	static const struct place places[] = {{"tray-0", 0, 4}, {"tray-1", 0, 4}, {NULL, 0, 0}};

	(void)state;
	AGENTS(places, 8, {"tray-0", 0, 4, 0, NULL, true}, {"tray-1", 4, 4, 0, NULL, true});
}

static void expect_torn(const struct place *places, uint32_t tp, const char *part)
{
	struct adp_plan plan;
	struct adp_plan_run runs[8];
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct emit_agent *agents;
	uint32_t n;

	place(&plan, runs, places, tp);
	assert_int_equal(emit_agents(&agents, &n, &plan, &arena, &err), ADP_EINVAL);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	adp_arena_fini(&arena);
}

static void a_tensor_group_torn_over_nodes_is_refused(void **state)
{
	/* case rank-and-gang-03: order b0 a0 a1 a2 a3 b1 b2 b3 at tensor 4 */
	static const struct place places[] = {{"b", 0, 1}, {"a", 0, 4}, {"b", 1, 3}, {NULL, 0, 0}};
	static const struct place tail[] = {{"a", 0, 4}, {"b", 0, 3}, {"c", 0, 1}, {NULL, 0, 0}};

	(void)state;
	expect_torn(places, 4,
	            "group of ranks 0 to 3 is torn: only a part of it lies on node 'a' (ranks 1 to 4)");
	expect_torn(tail, 4,
	            "group of ranks 4 to 7 is torn: only a part of it lies on node 'b' (ranks 4 to 6)");
}

static void placements_that_miss_ranks_are_refused(void **state)
{
	static const struct place places[] = {{"a", 0, 4}, {NULL, 0, 0}};
	static const struct place unnamed[] = {{"", 0, 4}, {NULL, 0, 0}};
	struct adp_plan plan;
	struct adp_plan_run runs[8];
	struct adp_arena arena = {0};
	struct emit_agent *agents;
	uint32_t n;

	(void)state;
	expect_torn(unnamed, 1, "node 0 has no name");
	place(&plan, runs, places, 1);
	plan.dp = 5;
	assert_int_equal(emit_agents(&agents, &n, &plan, &arena, NULL), ADP_EINVAL);
	place(&plan, runs, places, 1);
	runs[0].first_rank = 1;
	assert_int_equal(emit_agents(&agents, &n, &plan, &arena, NULL), ADP_EINVAL);
	place(&plan, runs, places, 1);
	runs[0].gpu = 1;
	assert_int_equal(emit_agents(&agents, &n, &plan, &arena, NULL), ADP_EINVAL);
	place(&plan, runs, places, 1);
	runs[0].n_nodes = 0;
	assert_int_equal(emit_agents(&agents, &n, &plan, &arena, NULL), ADP_EINVAL);
	adp_arena_fini(&arena);
}

/* ---- quoting ----------------------------------------------------------------------------- */

static void expect_word(const char *text, const char *expected)
{
	struct adp_strbuf out = {0};

	emit_shell_word(&out, text);
	assert_string_equal(out.text, expected);
	adp_strbuf_fini(&out);
}

static void shell_words_hide_every_special_character(void **state)
{
	(void)state;
	expect_word("", "''");
	expect_word("node-1", "'node-1'");
	expect_word("it's", "'it'\\''s'");
	expect_word("$(reboot); `x` \\ \"", "'$(reboot); `x` \\ \"'");
	expect_word("a\nb", "'a\nb'");
	expect_word("'", "''\\'''");
}

static void expect_field(const char *text)
{
	struct adp_strbuf out = {0};
	struct adp_arena arena = {0};
	struct adp_csv csv;
	struct adp_error err = {0};

	adp_strbuf_add(&out, "first,second\n");
	emit_csv_field(&out, text);
	adp_strbuf_add(&out, ",end\n");
	if (adp_csv_read(&csv, &arena, out.text, out.len, "test", &err))
		fail_msg("%s", err.text);
	assert_int_equal(csv.n_rows, 1);
	assert_string_equal(adp_csv_cell(&csv, 0, 0), text);
	assert_string_equal(adp_csv_cell(&csv, 0, 1), "end");
	adp_arena_fini(&arena);
	adp_strbuf_fini(&out);
}

static void csv_fields_read_back_as_they_were(void **state)
{
	static const char *const texts[] = {"plain",    "",         "a,b", "say \"hi\"", "two\nlines",
	                                    "cr\r\nlf", " blanks ", "#x",  "-n",         "é"};

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		expect_field(texts[i]);
}

static void only_host_names_and_addresses_are_addresses(void **state)
{
	static const char *const good[] = {"node-1", "10.0.0.1", "gpu_7.rack-2.example", "[fe80::1]",
	                                   "[::ffff:10.0.0.1]"};
	static const char *const bad[] = {"",   "-rf", "a b", "a;b", "$(x)", "a\nb", "'a'",   "[::1",
	                                  "[]", "[a]", "::1", "a:1", "é",    ".a",   "[::1]x"};
	char longest[255];

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		if (!emit_is_address(good[i]))
			fail_msg("'%s' is one", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (emit_is_address(bad[i]))
			fail_msg("'%s' is none", bad[i]);
	memset(longest, 'a', sizeof longest);
	longest[254] = '\0';
	assert_false(emit_is_address(longest)); /* 254 characters, a name has 253 at most */
	assert_true(emit_is_address(longest + 1));
}

static void names_in_errors_are_made_printable_and_cut(void **state)
{
	char out[128], text[80];

	(void)state;
	assert_string_equal(emit_show(out, sizeof out, "a\nb\x7f"), "a\\x0ab\\x7f");
	memset(text, 'x', 63);
	memcpy(text + 63, "é!",
	       sizeof "é!"); /* two bytes, one within the 64 that are shown: cut before it */
	emit_show(out, sizeof out, text);
	assert_int_equal(strlen(out), 63 + 3);
	assert_string_equal(out + 63, "...");
}

/* ---- launch.sh and ranks.csv --------------------------------------------------------------- */

static void the_rank_map_tells_each_ranks_place(void **state)
{
	struct adp_plan *plan = emit_uneven();
	struct adp_emit_set set;
	const char *map;

	(void)state;
	emit_ok(&set, plan);
	map = emit_content(&set, "ranks.csv");
	assert_memory_equal(map, "rank,node,gpu,stage,replica,tp,cp,local_rank,type\n", 50);
	/* tensor 8 x data 8 = 64 ranks a stage: rank 77 = 64 + 8 + 5 is stage 1, replica 1, tensor 5 */
	assert_non_null(strstr(map, "\n77,h100-9,5,1,1,5,0,5,NVIDIA-H100-80GB-HBM3\n"));
	assert_non_null(strstr(map, "\n255,a100-15,7,3,7,7,0,7,NVIDIA-A100-SXM4-80GB\n"));
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void the_rank_map_counts_context_before_data(void **state)
{
	struct adp_plan *plan = emit_context();
	struct adp_emit_set set;

	(void)state;
	emit_ok(&set, plan);
	/* rank 77 = stage 1 (64) + replica 0 (0 x 16) + context 1 (8) + tensor 5; rank 93 is replica 1
	 */
	assert_non_null(strstr(emit_content(&set, "ranks.csv"), "\n77,h100-9,5,1,0,5,1,5,"));
	assert_non_null(strstr(emit_content(&set, "ranks.csv"), "\n93,h100-11,5,1,1,5,1,5,"));
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void each_node_starts_its_own_agents(void **state)
{
	struct adp_plan *plan = emit_uniform();
	struct adp_emit_set set;
	const char *script;

	(void)state;
	emit_ok(&set, plan);
	script = emit_content(&set, "launch.sh");
	/* Stage 0 has GPUs 0 and 1 of both nodes, stage 1 GPUs 2 and 3: agents 0 and 2 on the first
	 * node. */
	assert_non_null(strstr(script, "\t'big[1]') printf '%s\\n' '0 2 - 1' '2 2 2,3 1' ;;\n"));
	assert_non_null(strstr(script, "\t'small\\2') printf '%s\\n' '1 2 - 1' '3 2 2,3 1' ;;\n"));
	assert_non_null(
		strstr(script, "torchrun --nnodes=4 --node-rank=\"$1\" --nproc-per-node=\"$2\""));
	assert_non_null(strstr(script, "master_addr='head.example'\n"));
	assert_non_null(strstr(script, "master_port=${MASTER_PORT:-6000}\n"));
	assert_true(set.files[1].executable);
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void blackwell_needs_no_single_connection(void **state)
{
	struct adp_plan *plan = emit_uniform();
	struct adp_emit_set set;

	(void)state;
	plan->gpus[0].arch = "Blackwell";
	emit_ok(&set, plan);
	assert_non_null(strstr(emit_content(&set, "launch.sh"),
	                       "'0 2 - -' '2 2 2,3 -'")); /* the other type is older */
	assert_non_null(strstr(emit_content(&set, "launch.sh"), "'1 2 - 1' '3 2 2,3 1'"));
	adp_emit_fini(&set);
	plan->gpus[1].arch = "Blackwell Ultra";
	emit_ok(&set, plan);
	assert_null(strstr(emit_content(&set, "launch.sh"), "CUDA_DEVICE_MAX_CONNECTIONS"));
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void the_torch_plan_travels_with_the_script(void **state)
{
	struct adp_plan *plan = fixture_moe(), *back = NULL;
	struct adp_emit_set set;
	struct adp_error err = {0};
	const char *json;

	(void)state;
	assert_non_null(plan);
	emit_ok(&set, plan);
	assert_string_equal(set.files[0].name, "launch.sh");
	assert_non_null(strstr(set.files[0].content, "export ADP_PLAN=$here/plan.json"));
	assert_non_null(
		strstr(set.files[0].content, "sequences of 512 tokens, unequal over the replicas"));
	json = emit_content(&set, "plan.json");
	if (adp_plan_read(&back, json, strlen(json), "plan.json", &err))
		fail_msg("%s", err.text);
	assert_int_equal(back->pipes[0].n_micro, 6);
	assert_int_equal(back->pipes[1].n_micro, 2);
	adp_plan_destroy(back);
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
}

static void a_name_that_is_no_address_needs_another(void **state)
{
	struct adp_plan *plan = emit_uniform(); /* the first node is big[1] */
	struct adp_emit_set set = {0};
	struct adp_error err = {0};
	struct adp_emit_opts opts = {.master_addr = "-oops"};

	(void)state;
	assert_int_equal(adp_emit(&set, plan, NULL, NULL, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "the first node's name 'big[1]' is not a host name"));
	assert_non_null(strstr(err.text, "--master-addr"));
	assert_int_equal(adp_emit(&set, plan, NULL, &opts, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "--master-addr: '-oops'"));
	opts = (struct adp_emit_opts){.master_addr = "head", .master_port = 65536};
	assert_int_equal(adp_emit(&set, plan, NULL, &opts, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "65536 is not a port"));
	adp_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_with_unequal_gpus_get_their_own_counts),
		cmocka_unit_test(consecutive_ranks_of_a_node_are_one_agent),
		cmocka_unit_test(separated_ranks_of_a_node_are_two_agents_with_their_gpus),
		cmocka_unit_test(a_group_larger_than_its_nodes_may_span_whole_ones),
		cmocka_unit_test(a_tensor_group_torn_over_nodes_is_refused),
		cmocka_unit_test(placements_that_miss_ranks_are_refused),
		cmocka_unit_test(shell_words_hide_every_special_character),
		cmocka_unit_test(csv_fields_read_back_as_they_were),
		cmocka_unit_test(only_host_names_and_addresses_are_addresses),
		cmocka_unit_test(names_in_errors_are_made_printable_and_cut),
		cmocka_unit_test(the_rank_map_tells_each_ranks_place),
		cmocka_unit_test(the_rank_map_counts_context_before_data),
		cmocka_unit_test(each_node_starts_its_own_agents),
		cmocka_unit_test(blackwell_needs_no_single_connection),
		cmocka_unit_test(the_torch_plan_travels_with_the_script),
		cmocka_unit_test(a_name_that_is_no_address_needs_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
