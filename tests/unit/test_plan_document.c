/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/doc.h"
#include "plan/plan_internal.h"
#include "plan_fixture.h"
#include "support/fault_sweep.h"

typedef struct adp_plan *make_plan(void);
typedef int write_plan(char **out, const struct adp_plan *plan, struct adp_error *err);

static make_plan *const makers[] = {fixture_mixed, fixture_moe};
static write_plan *const writers[] = {adp_plan_to_json, adp_plan_to_yaml};

static char *written(make_plan *make, write_plan *write)
{
	struct adp_plan *plan = make();
	struct adp_error err = {0};
	char *text;

	assert_non_null(plan);
	if (write(&text, plan, &err))
		fail_msg("%s", err.text);
	adp_plan_destroy(plan);
	return text;
}

/* The document of a fixture with one place changed: the first `from` becomes `to`. */
static void read_refuses(make_plan *make, const char *from, const char *to, int code,
                         const char *word)
{
	char *text = written(make, adp_plan_to_json);
	const char *found = strstr(text, from);
	size_t at = found ? (size_t)(found - text) : 0;
	struct adp_strbuf changed = {0};
	struct adp_error err = {0};
	struct adp_plan *plan;

	if (!found)
		fail_msg("the document has no %s", from);
	adp_strbuf_addn(&changed, text, at);
	adp_strbuf_add(&changed, to);
	adp_strbuf_add(&changed, text + at + strlen(from));
	assert_int_equal(adp_plan_read(&plan, changed.text, changed.len, "p.json", &err), code);
	assert_null(plan);
	if (!strstr(err.text, word) || strncmp(err.text, "p.json: ", 8))
		fail_msg("\"%s\" does not mention p.json and \"%s\"", err.text, word);
	adp_strbuf_fini(&changed);
	adp_free(text);
}

static void a_document_read_and_written_again_has_the_same_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		char *text = written(makers[i / 2], writers[i % 2]), *again, *other;
		struct adp_error err = {0};
		struct adp_plan *plan;

		if (adp_plan_read(&plan, text, strlen(text), "plan", &err))
			fail_msg("%s", err.text);
		assert_int_equal(writers[i % 2](&again, plan, &err), ADP_OK);
		assert_string_equal(again, text);
		adp_free(again);
		/* and the other form of it, so nothing was carried by one form alone */
		assert_int_equal(writers[1 - i % 2](&again, plan, &err), ADP_OK);
		other = written(makers[i / 2], writers[1 - i % 2]);
		assert_string_equal(again, other);
		adp_plan_destroy(plan);
		adp_free(other);
		adp_free(again);
		adp_free(text);
	}
}

static void every_member_survives_the_document(void **state)
{
	char *text = written(fixture_moe, adp_plan_to_json);
	struct adp_plan *plan, *want = fixture_moe();
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_plan_read(&plan, text, strlen(text), "plan", &err), ADP_OK);
	assert_string_equal(plan->name, "moe-test");
	assert_string_equal(plan->model.family, "mixtral");
	assert_int_equal(plan->model.n_experts, 4);
	assert_int_equal(plan->model.window_tokens, 128);
	assert_true(plan->model.tied_embeddings && !plan->model.mlp_bias);
	assert_int_equal(plan->model.n_traits, 1);
	assert_string_equal(plan->model.traits[0], "shared-expert-gate");
	assert_int_equal(plan->train.precision, ADP_PRECISION_FP16);
	assert_int_equal(plan->train.optimizer, ADP_OPTIMIZER_SGD);
	assert_true(plan->train.expert_load_factor == 1.25);
	assert_int_equal(plan->vpp, 2);
	assert_int_equal(plan->stages[1].first_layer[0], 2);
	assert_int_equal(plan->stages[1].n_layers[1], 1);
	assert_int_equal(plan->stages[1].recompute, ADP_RECOMPUTE_SELECTIVE);
	assert_memory_equal(&plan->stages[1].memory, &want->stages[1].memory,
	                    sizeof want->stages[1].memory);
	assert_memory_equal(&plan->step, &want->step, sizeof want->step);
	assert_memory_equal(plan->pipes[1].cells, want->pipes[1].cells,
	                    2 * sizeof(struct adp_plan_cell));
	assert_int_equal(plan->runs[3].gpu_index[1], 3);
	assert_string_equal(plan->runs[0].nodes[0], "big[1]");
	assert_string_equal(plan->runs[1].nodes[0], "small\\2");
	assert_true(plan->search.exhausted);
	adp_plan_destroy(want);
	adp_plan_destroy(plan);
	adp_free(text);
}

static void ranks_are_run_length_and_node_names_folded(void **state)
{
	char *text = written(fixture_mixed, adp_plan_to_json);

	(void)state;
	assert_non_null(strstr(text, "\"h100-[0-15]\""));
	assert_non_null(strstr(text, "\"a100-[00-15]\""));
	assert_non_null(strstr(text, "\"0-7\""));
	assert_null(strstr(text, "h100-7"));
	adp_free(text);
}

static void a_job_that_never_ends_has_null_times(void **state)
{
	struct adp_plan *plan = fixture_mixed(), *back;
	struct adp_error err = {0};
	char *text;

	(void)state;
	plan->time.total_s = plan->time.lost_work_s = INFINITY;
	assert_int_equal(adp_plan_to_json(&text, plan, &err), ADP_OK);
	assert_non_null(strstr(text, "\"totalSeconds\": null"));
	assert_int_equal(adp_plan_read(&back, text, strlen(text), "p", &err), ADP_OK);
	assert_true(isinf(back->time.total_s) && isinf(back->time.lost_work_s) &&
	            isfinite(back->time.restarts_s));
	adp_free(text);
	adp_plan_destroy(back);
	adp_plan_destroy(plan);
	read_refuses(fixture_mixed, ",\n      \"totalSeconds\": 22421192.5", "", ADP_EINVAL,
	             "totalSeconds");
}

static void the_name_is_a_dns_label_made_from_the_models(void **state)
{
	const struct {
		const char *model, *name;
	} cases[] = {
		{"Llama-3.1_70B", "llama-3-1-70b"},
		{"/a/b config.json", "a-b-config-json"},
		{"--", "plan"},
		{"", "plan"},
		{"\xc3\xa9t\xc3\xa9", "t"},
	};
	struct adp_plan *plan = fixture_mixed();
	const char *name;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		plan->model.name = cases[i].model;
		assert_int_equal(adp_plan_name(&name, plan, &plan->arena, NULL), ADP_OK);
		assert_string_equal(name, cases[i].name);
	}
	adp_plan_destroy(plan);
}

static void unknown_and_missing_keys_are_refused_with_their_place(void **state)
{
	(void)state;
	read_refuses(fixture_mixed, "\"tensorParallel\"", "\"tensorParalel\"", ADP_EINVAL,
	             "tensorParallel");
	read_refuses(fixture_mixed, "\"tensorParallel\": 8,", "", ADP_EINVAL,
	             "spec.parallelism.tensorParallel");
	read_refuses(fixture_mixed, "\"metadata\"", "\"metdata\"", ADP_EINVAL, "metadata");
	read_refuses(fixture_mixed, "\"firstLayer\"", "\"first\"", ADP_EINVAL,
	             "spec.stages[0].chunks[0]");
	read_refuses(fixture_mixed, "\"gpuIndices\"", "\"gpuIndex\"", ADP_EINVAL, "gpuIndices");
	read_refuses(fixture_mixed, "\"weightsBytes\"", "\"weights\"", ADP_EINVAL,
	             "prediction.stages[0].memory");
	read_refuses(fixture_mixed, "\"reasons\"", "\"reason\"", ADP_EINVAL, "why");
	read_refuses(fixture_mixed, "\"adpVersion\"", "\"version\"", ADP_EINVAL, "provenance");
	read_refuses(fixture_mixed, "\"exhausted\"", "\"x\": 1, \"exhausted\"", ADP_EINVAL, "search");
	read_refuses(fixture_mixed, "\"schedule\": \"1f1b\",", "", ADP_EINVAL, "spec.schedule");
}

static void other_documents_are_refused(void **state)
{
	const char *const texts[] = {
		"[]", "3", "", "{}", "a: 1\n---\nb: 2\n", "kind: Pod\napiVersion: v1\n", "{\"kind\": 1}"};
	struct adp_plan *plan;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		assert_int_equal(adp_plan_read(&plan, texts[i], strlen(texts[i]), "p", NULL), ADP_EINVAL);
		assert_null(plan);
	}
	read_refuses(fixture_mixed, "v1alpha1", "v9", ADP_EINVAL, "make the plan again");
	read_refuses(fixture_mixed, "ParallelPlan", "ParalelPlan", ADP_EINVAL, "ParallelPlan");
}

static void contradictions_are_refused(void **state)
{
	(void)state;
	read_refuses(fixture_mixed, "\"worldSize\": 256", "\"worldSize\": 255", ADP_EINVAL,
	             "worldSize");
	read_refuses(fixture_mixed, "\"schedule\": \"1f1b\"", "\"schedule\": \"interleaved-1f1b\"",
	             ADP_EINVAL, "schedule");
	read_refuses(fixture_mixed, "\"virtualPipelineParallel\": 1", "\"virtualPipelineParallel\": 0",
	             ADP_EINVAL, "virtualPipelineParallel");
	read_refuses(fixture_mixed, "\"virtualPipelineParallel\": 1",
	             "\"virtualPipelineParallel\": 4000000000", ADP_EINVAL, "virtualPipelineParallel");
	read_refuses(fixture_mixed, "\"globalBatchSeqs\": 1024", "\"globalBatchSeqs\": 1023",
	             ADP_EINVAL, "global batch");
	read_refuses(fixture_mixed, "\"recompute\": \"full\"", "\"recompute\": \"some\"", ADP_EINVAL,
	             "spec.stages[2].recompute");
	read_refuses(fixture_mixed, "\"precision\": \"bf16\"", "\"precision\": \"bf61\"", ADP_EINVAL,
	             "spec.training.precision");
	read_refuses(fixture_mixed, "\"gpu\": \"NVIDIA-H100-80GB-HBM3\"", "\"gpu\": \"H200\"",
	             ADP_EINVAL, "H200");
}

static void sizes_are_bounded_before_memory_is_taken(void **state)
{
	(void)state;
	/* 8 x 4 x 4096 x 16 = 2^21 ranks, over the 2^20 that are read */
	read_refuses(fixture_mixed, "\"worldSize\": 256", "\"worldSize\": 2097152", ADP_EINVAL,
	             "worldSize");
	read_refuses(fixture_mixed, "h100-[0-15]", "h100-[0-999999999999]", ADP_ELIMIT,
	             "more than 32 nodes");
	read_refuses(fixture_mixed, "\"0-7\"", "\"0-4000000\"", ADP_EINVAL, "gpuIndices");
	read_refuses(fixture_mixed, "\"0-7\"", "\"\"", ADP_EINVAL, "gpuIndices");
}

static void names_fold_and_unfold_to_the_same(void **state)
{
	static const char *const names[] = {
		"a-8",
		"a-9",
		"a-10",
		"a-12",
		"b08.x",
		"b09.x",
		"b10.x",
		"b99.x",
		"b100.x",
		"c",
		"d[0]",
		"d[1]",
		"e\\1",
		"e\\2",
		"1",
		"2",
		"3",
		"f18446744073709551614",
		"f18446744073709551615",
		"g0",
		"g00",
		"g01",
		"h1y1",
		"h1y2",
		"h2y2",
	};
	static const char *const folded[] = {
		"a-[8-10]",
		"a-12",
		"b[08-10].x",
		"b[99-100].x",
		"c",
		"d\\[[0-1]]",
		"e\\\\[1-2]",
		"[1-3]",
		"f18446744073709551614",
		"f18446744073709551615",
		"g0",
		"g[00-01]",
		"h1y[1-2]",
		"h2y2",
	};
	const uint32_t n = sizeof names / sizeof *names;
	struct adp_error err = {0};
	struct adp_arena arena = {0};
	json_t *array = adp_plan_fold_names(names, n, &err);
	const char *const *back;
	uint32_t n_back;

	(void)state;
	assert_non_null(array);
	for (size_t i = 0; i < sizeof folded / sizeof *folded; i++) {
		assert_non_null(json_string_value(json_array_get(array, i)));
		assert_string_equal(json_string_value(json_array_get(array, i)), folded[i]);
	}
	assert_int_equal(json_array_size(array), sizeof folded / sizeof *folded);
	assert_int_equal(adp_plan_unfold_names(&back, &n_back, array, n, "nodes", &arena, &err),
	                 ADP_OK);
	assert_int_equal(n_back, n);
	for (uint32_t i = 0; i < n; i++)
		assert_string_equal(back[i], names[i]);
	adp_arena_fini(&arena);
	json_decref(array);
}

static void a_padded_range_ends_where_the_width_would_grow(void **state)
{
	const char *names[92];
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	json_t *array;

	(void)state;
	for (unsigned i = 0; i < 92; i++) { /* n09 .. n100 */
		names[i] = adp_arena_printf(&arena, "n%02u", i + 9);
		assert_non_null(names[i]);
	}
	array = adp_plan_fold_names(names, 92, &err);
	assert_int_equal(json_array_size(array), 2);
	assert_string_equal(json_string_value(json_array_get(array, 0)), "n[09-99]");
	assert_string_equal(json_string_value(json_array_get(array, 1)), "n100");
	json_decref(array);
	adp_arena_fini(&arena);
}

static void bad_patterns_are_refused(void **state)
{
	static const char *const bad[] = {
		"",       "a[",      "a[]",         "a[1]", "a[1-", "a[1-2",
		"a[2-1]", "a[01-2]", "a[1-2][3-4]", "a\\",  "a\\n", "a[1-1234567890123456789]",
		"a[x-y]",
	};
	struct adp_error err = {0};
	struct adp_arena arena = {0};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		json_t *array = json_pack("[s]", bad[i]);
		const char *const *names;
		uint32_t n;

		assert_int_equal(adp_plan_unfold_names(&names, &n, array, 100, "nodes", &arena, &err),
		                 ADP_EINVAL);
		json_decref(array);
	}
	adp_arena_fini(&arena);
}

static void number_lists_fold_and_unfold_to_the_same(void **state)
{
	static const uint32_t numbers[] = {0, 1, 2, 6, 5, 7, 8};
	static const char *const bad[] = {"",   "a",   "1,",   ",1",     "3-1",        "1-",
	                                  "-1", "1 2", "1024", "0-1024", "1234567890", "0-1023,0"};
	struct adp_strbuf text = {0};
	struct adp_error err = {0};
	struct adp_arena arena = {0};
	const uint32_t *back;
	uint32_t n;

	(void)state;
	adp_plan_fold_numbers(&text, numbers, 7);
	assert_string_equal(text.text, "0-2,6,5,7-8");
	assert_int_equal(adp_plan_unfold_numbers(&back, &n, text.text, "g", &arena, &err), ADP_OK);
	assert_int_equal(n, 7);
	assert_memory_equal(back, numbers, sizeof numbers);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(adp_plan_unfold_numbers(&back, &n, bad[i], "g", &arena, &err), ADP_EINVAL);
	adp_strbuf_fini(&text);
	adp_arena_fini(&arena);
}

static void what_no_document_can_hold_is_refused(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	struct adp_error err = {0};
	char *text;

	(void)state;
	plan->model.name = "caf\xe9";
	assert_int_equal(adp_plan_to_json(&text, plan, &err), ADP_EINVAL);
	assert_null(text);
	assert_non_null(strstr(err.text, "UTF-8"));
	plan->model.name = NULL;
	assert_int_equal(adp_plan_to_json(&text, plan, &err), ADP_EINVAL);
	plan->model.name = "m";
	plan->train.tokens = INFINITY;
	assert_int_equal(adp_plan_to_yaml(&text, plan, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "finite"));
	plan->train.tokens = 1;
	plan->model.params = UINT64_MAX;
	assert_int_equal(adp_plan_to_yaml(&text, plan, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "too large"));
	adp_plan_destroy(plan);
}

struct sweep {
	write_plan *write;
	const struct adp_plan *plan;
	const char *text;
};

static int write_once(void *context)
{
	const struct sweep *sweep = context;
	char *text;
	const int rc = sweep->write(&text, sweep->plan, NULL);

	if (rc)
		assert_null(text);
	adp_free(text);
	return rc;
}

static int read_once(void *context)
{
	const struct sweep *sweep = context;
	struct adp_plan *plan;
	const int rc = adp_plan_read(&plan, sweep->text, strlen(sweep->text), "p", NULL);

	if (rc)
		assert_null(plan);
	adp_plan_destroy(plan);
	return rc;
}

static void documents_survive_every_failed_allocation(void **state)
{
	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct adp_plan *plan = makers[i / 2]();
		char *text = written(makers[i / 2], writers[i % 2]);
		struct sweep sweep = {writers[i % 2], plan, text};

		fault_sweep(write_once, &sweep);
		fault_sweep(read_once, &sweep);
		adp_free(text);
		adp_plan_destroy(plan);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_read_and_written_again_has_the_same_bytes),
		cmocka_unit_test(every_member_survives_the_document),
		cmocka_unit_test(ranks_are_run_length_and_node_names_folded),
		cmocka_unit_test(a_job_that_never_ends_has_null_times),
		cmocka_unit_test(the_name_is_a_dns_label_made_from_the_models),
		cmocka_unit_test(unknown_and_missing_keys_are_refused_with_their_place),
		cmocka_unit_test(other_documents_are_refused),
		cmocka_unit_test(contradictions_are_refused),
		cmocka_unit_test(sizes_are_bounded_before_memory_is_taken),
		cmocka_unit_test(names_fold_and_unfold_to_the_same),
		cmocka_unit_test(a_padded_range_ends_where_the_width_would_grow),
		cmocka_unit_test(bad_patterns_are_refused),
		cmocka_unit_test(number_lists_fold_and_unfold_to_the_same),
		cmocka_unit_test(what_no_document_can_hold_is_refused),
		cmocka_unit_test(documents_survive_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
