/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "adp/engine.h"
#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/strbuf.h"

static struct adp_engine *load(const char *spec)
{
	struct adp_engine *engine = NULL;
	struct adp_error err = {0};

	if (adp_engine_load(&engine, spec, NULL, &err))
		fail_msg("%s", err.text);
	return engine;
}

static void assert_refused(const char *spec, const char *table, const char *expected)
{
	struct adp_engine *engine = (struct adp_engine *)1;
	struct adp_error err = {0};

	assert_int_equal(adp_engine_read(&engine, spec, table, strlen(table), "t.csv", &err),
	                 ADP_EINVAL);
	assert_null(engine);
	if (!strstr(err.text, expected))
		fail_msg("\"%s\" is not in: %s", expected, err.text);
}

/* The shipped table with one piece of text replaced (or, from NULL, with a line added). Caller
 * frees. */
static char *edited(const char *from, const char *to)
{
	struct adp_strbuf buf = {0};
	const char *text;
	char *owned;
	size_t len;

	assert_int_equal(adp_data_open(&text, &len, &owned, "engines.csv", NULL, NULL), 0);
	const char *at = from ? strstr(text, from) : text + len;
	assert_non_null(at);
	adp_strbuf_addn(&buf, text, (size_t)(at - text));
	adp_strbuf_add(&buf, to);
	adp_strbuf_add(&buf, at + (from ? strlen(from) : 0));
	adp_free(owned);
	return adp_strbuf_steal(&buf);
}

static void assert_edit_refused(const char *spec, const char *from, const char *to,
                                const char *expected)
{
	char *table = edited(from, to);

	assert_refused(spec, table, expected);
	adp_free(table);
}

static void every_known_engine_loads(void **state)
{
	unsigned n = 0;

	(void)state;
	for (const char *const *spec = adp_engine_known(); *spec; spec++, n++) {
		char full[64];
		struct adp_engine *engine = load(*spec);
		snprintf(full, sizeof full, "%s@%s", engine->name, engine->version);
		assert_string_equal(full, *spec);
		assert_true(engine->zero_mask & 1 && engine->recompute_mask & 1);
		adp_engine_destroy(engine);
	}
	assert_int_equal(n, 3);
}

/* The list is compiled in, the table is data: they must name the same versions. */
static void known_engines_are_those_of_the_table(void **state)
{
	struct adp_engine *engine;
	struct adp_error err = {0};
	char list[512] = "known: ";

	(void)state;
	for (const char *const *spec = adp_engine_known(); *spec; spec++) {
		strncat(list, *spec, sizeof list - strlen(list) - 1);
		strncat(list, spec[1] ? ", " : ". ", sizeof list - strlen(list) - 1);
	}
	assert_int_equal(adp_engine_load(&engine, "nosuch", NULL, &err), ADP_EINVAL);
	assert_null(engine);
	assert_non_null(strstr(err.text, list));
}

static void a_name_alone_means_its_default_version(void **state)
{
	struct adp_engine *megatron = load("megatron"), *torch = load("torch");

	(void)state;
	assert_string_equal(megatron->version, "0.16.1");
	assert_string_equal(torch->version, "2.15");
	adp_engine_destroy(megatron);
	adp_engine_destroy(torch);
}

/* The levers of mixed fleets: layers per stage for both, micro-batches per replica and
 * recomputation per stage for torch. */
static void levers_differ_by_engine(void **state)
{
	struct adp_engine *megatron = load("megatron"), *torch = load("torch");

	(void)state;
	assert_true(megatron->uneven_layers && torch->uneven_layers);
	assert_true(!megatron->uneven_micro_batches && torch->uneven_micro_batches);
	assert_true(!megatron->recompute_per_stage && torch->recompute_per_stage);
	assert_true(megatron->virtual_pipeline && !torch->virtual_pipeline);
	assert_true(megatron->expert_parallel && !torch->expert_parallel);
	assert_int_equal(megatron->zero_mask, 0xf);
	assert_int_equal(megatron->zero_mask_with_pipeline, 0x3); /* ZeRO 2 and 3 exclude a pipeline */
	assert_int_equal(torch->zero_mask, 0xd);                  /* DDP, FSDP2 in its two forms */
	assert_int_equal(megatron->recompute_mask, 0x7);
	assert_int_equal(torch->recompute_mask, 0x5);
	assert_true(megatron->precision_mask & 1u << ADP_PRECISION_FP8);
	assert_false(torch->precision_mask & 1u << ADP_PRECISION_FP8);
	adp_engine_destroy(megatron);
	adp_engine_destroy(torch);
}

/* torchtitan issue 2574 and kin: 2 KV heads and TP 4 run on megatron-core 0.16 alone. */
static void kv_replication_differs_by_version(void **state)
{
	struct adp_engine *old = load("megatron@0.15"), *new = load("megatron@0.16"),
					  *torch = load("torch@2.15");

	(void)state;
	assert_string_equal(old->version, "0.15.0");
	assert_true(new->kv_replication);
	assert_false(old->kv_replication);
	assert_false(torch->kv_replication);
	/* What a version does not state it inherits. */
	assert_int_equal(old->vocab_multiple, new->vocab_multiple);
	assert_true(old->weight_bytes == 2.0 && old->grad_bytes == 4.0 && old->master_bytes == 4.0);
	adp_engine_destroy(old);
	adp_engine_destroy(new);
	adp_engine_destroy(torch);
}

static void unknown_engines_and_versions_are_refused_by_name(void **state)
{
	static const struct {
		const char *spec, *expected;
	} rows[] = {
		{"deepspeed", "engine \"deepspeed\": no such engine; known: megatron@0.16.1"},
		{"megatron@0.17", "no such version"},
		{"megatron@0.1", "no such version"}, /* not short for 0.15 or 0.16 */
		{"megatron@0", "several versions start like this"},
		{"megatron@", "no such version"},
		{"", "no such engine"},
		{"@", "no such engine"},
		{"megatron@0.16.1@x", "no such version"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct adp_engine *engine;
		struct adp_error err = {0};
		assert_int_equal(adp_engine_load(&engine, rows[i].spec, NULL, &err), ADP_EINVAL);
		if (!strstr(err.text, rows[i].expected))
			fail_msg("%s: %s", rows[i].spec, err.text);
	}
}

static void a_missing_key_is_named(void **state)
{
	(void)state;
	assert_edit_refused("torch", "torch,2.15,reserve_frac,", "torch,2.14,reserve_frac,",
	                    "engine torch@2.15 has no row for key \"reserve_frac\"");
}

static void faulty_rows_are_refused_with_line_and_reason(void **state)
{
	static const struct {
		const char *row, *expected;
	} rows[] = {
		{"torch,2.15,reserve_frac,0.1,twice\n",
	     "key \"reserve_frac\", value \"0.1\": is given twice"},
		{"torch,2.15,default,yes,twice\n", "key \"default\", value \"yes\": is given twice"},
		{"torch,2.15,colour,blue,x\n", "key \"colour\", value \"blue\": is not a key"},
		{"torch,2.15,colour,blue,\n", "has no source"},
		{"torch,2.15,inherits,2.15,x\n", "must name another version"},
		{"torch,2.15,inherits,,x\n", "must name another version"},
		{"torch,2.15,inherits,9.9,x\n", "inherits from version \"9.9\", which has no rows"},
		{"torch,2.15,inherits,2.14,x\ntorch,2.15,inherits,2.13,x\n", "is given twice"},
		{"torch,2.15,inherits,2.14,x\ntorch,2.14,inherits,2.15,x\n", "look for a circle"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_edit_refused("torch@2.15", NULL, rows[i].row, rows[i].expected);
}

static void faulty_values_are_refused(void **state)
{
	static const struct {
		const char *key, *value, *expected;
	} rows[] = {
		{"hsdp", "true", "must be yes or no"},
		{"hsdp", "", "must be yes or no"},
		{"zero_mask", "0|4", "must list ZeRO stages"},
		{"zero_mask", "0|0", "must list ZeRO stages"},
		{"zero_mask", "0|", "must list ZeRO stages"},
		{"zero_mask", "", "must list ZeRO stages"},
		{"recompute_mask", "none|half", "must list choices"},
		{"precision_mask", "bf16|int8", "must list precisions"},
		{"max_tensor", "1.5", "must be a whole number"},
		{"max_tensor", "0", "outside the range"},
		{"max_tensor", "eight", "must be a number"},
		{"reserve_frac", "0.95", "outside the range"},
		{"reserve_frac", "-0.1", "outside the range"},
		{"reserve_frac", "nan", "must be a number"},
		{"dp_overlap_frac", "1.01", "outside the range"},
		{"weight_bytes", "1e999", "must be a number"},
		{"default", "maybe", "no version is marked as default"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		/* A version of its own that inherits the rest. */
		char table[512];
		snprintf(table, sizeof table, "engine,version,key,value,source\nx,1,%s,%s,s\n%s",
		         rows[i].key, rows[i].value,
		         strcmp(rows[i].key, "default") ? "x,1,default,yes,s\n" : "");
		assert_refused("x", table, rows[i].expected);
		if (strcmp(rows[i].key, "default") == 0)
			assert_refused("x@1", table, "must be yes or no");
	}
}

static void two_defaults_of_one_engine_are_refused(void **state)
{
	(void)state;
	assert_edit_refused("torch", NULL, "torch,2.14,default,yes,x\n",
	                    "several versions are default");
}

static void a_table_without_its_columns_is_refused(void **state)
{
	static const char *const headers[] = {"version,key,value,source", "engine,key,value,source",
	                                      "engine,version,value,source",
	                                      "engine,version,key,source", "engine,version,key,value"};

	(void)state;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
		struct adp_engine *engine;
		struct adp_error err = {0};
		assert_int_equal(
			adp_engine_read(&engine, "x", headers[i], strlen(headers[i]), "t.csv", &err),
			ADP_EINVAL);
		assert_non_null(strstr(err.text, "t.csv"));
	}
}

static void a_value_overridden_by_the_child_is_still_checked_in_the_parent(void **state)
{
	(void)state;
	assert_edit_refused(
		"megatron@0.15.0", "megatron,0.16.1,kv_replication,yes",
		"megatron,0.16.1,kv_replication,perhaps",
		"engine megatron@0.16.1, key \"kv_replication\", value \"perhaps\": must be yes or no");
}

static void optimizers_and_recomputation_have_names_that_read_back(void **state)
{
	enum adp_optimizer optimizer;
	struct adp_error err = {0};

	(void)state;
	for (int i = ADP_OPTIMIZER_ADAMW; i <= ADP_OPTIMIZER_SGD; i++) {
		assert_int_equal(
			adp_optimizer_parse(&optimizer, adp_optimizer_name((enum adp_optimizer)i), &err), 0);
		assert_int_equal(optimizer, i);
	}
	assert_int_equal(adp_optimizer_parse(&optimizer, "AdamW", &err), 0);
	assert_int_equal(optimizer, ADP_OPTIMIZER_ADAMW);
	assert_int_equal(adp_optimizer_parse(&optimizer, "lion", &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "\"lion\""));
	assert_string_equal(adp_recompute_name(ADP_RECOMPUTE_SELECTIVE), "selective");
	assert_string_equal(adp_recompute_name(ADP_N_RECOMPUTE), "unknown");
	assert_string_equal(adp_optimizer_name((enum adp_optimizer)99), "unknown");
}

/* Each allocation of a load fails once: an error or success, nothing lost (ASan watches). */
static void every_failed_allocation_is_survived(void **state)
{
	static const char *const specs[] = {"megatron@0.15", "nosuch"};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		bool failed = true;
		for (uint64_t n = 0; failed; n++) {
			struct adp_engine *engine;
			struct adp_error err = {0};
			adp_alloc_fail_after(n);
			const int rc = adp_engine_load(&engine, specs[i], NULL, &err);
			failed = adp_alloc_failed();
			adp_alloc_fail_after(UINT64_MAX);
			assert_true(failed ? rc == ADP_ENOMEM : rc == (i ? ADP_EINVAL : ADP_OK));
			assert_true(rc ? engine == NULL : engine != NULL);
			adp_engine_destroy(engine);
		}
	}
}

/* docs/engines.md repeats the table; a row that changes there and not here would mislead. */
static void the_document_shows_every_row_of_the_table(void **state)
{
	struct adp_arena arena = {0};
	struct adp_csv csv;
	const char *table;
	char *owned, *doc;
	size_t len, doc_len;

	(void)state;
	assert_int_equal(adp_data_open(&table, &len, &owned, "engines.csv", NULL, NULL), 0);
	assert_int_equal(adp_csv_read(&csv, &arena, table, len, "engines.csv", NULL), 0);
	assert_int_equal(
		adp_file_read(&doc, &doc_len, ADP_SOURCE_DIR "/docs/engines.md", 1 << 20, NULL), 0);
	assert_true(csv.n_rows > 100);
	for (uint32_t row = 0; row < csv.n_rows; row++) {
		char heading[128];
		struct adp_strbuf line = {0};
		snprintf(heading, sizeof heading, "\n### %s %s\n", adp_csv_cell(&csv, row, 0),
		         adp_csv_cell(&csv, row, 1));
		const char *section = strstr(doc, heading);
		assert_non_null(section);
		adp_strbuf_addf(&line, "\n| `%s` | ", adp_csv_cell(&csv, row, 2));
		for (uint32_t col = 3; col <= 4; col++) {
			for (const char *c = adp_csv_cell(&csv, row, col); *c; c++)
				adp_strbuf_addf(&line, *c == '|' ? "\\%c" : "%c", *c);
			adp_strbuf_add(&line, " |");
			adp_strbuf_add(&line, col == 3 ? " " : "\n");
		}
		assert_int_equal(line.failed, 0);
		if (!strstr(section, line.text))
			fail_msg("docs/engines.md lacks: %s", line.text);
		adp_strbuf_fini(&line);
	}
	adp_free(doc);
	adp_free(owned);
	adp_arena_fini(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_known_engine_loads),
		cmocka_unit_test(known_engines_are_those_of_the_table),
		cmocka_unit_test(a_name_alone_means_its_default_version),
		cmocka_unit_test(levers_differ_by_engine),
		cmocka_unit_test(kv_replication_differs_by_version),
		cmocka_unit_test(unknown_engines_and_versions_are_refused_by_name),
		cmocka_unit_test(a_missing_key_is_named),
		cmocka_unit_test(faulty_rows_are_refused_with_line_and_reason),
		cmocka_unit_test(faulty_values_are_refused),
		cmocka_unit_test(two_defaults_of_one_engine_are_refused),
		cmocka_unit_test(a_table_without_its_columns_is_refused),
		cmocka_unit_test(a_value_overridden_by_the_child_is_still_checked_in_the_parent),
		cmocka_unit_test(the_document_shows_every_row_of_the_table),
		cmocka_unit_test(optimizers_and_recomputation_have_names_that_read_back),
		cmocka_unit_test(every_failed_allocation_is_survived),
	};

	return cmocka_run_group_tests_name("cost_engine", tests, NULL, NULL);
}
