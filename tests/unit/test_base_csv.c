/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/csv.h"
#include "support/fault_sweep.h"

static int read_text(struct adp_csv *out, struct adp_arena *arena, const char *text,
                     struct adp_error *err)
{
	return adp_csv_read(out, arena, text, strlen(text), "t.csv", err);
}

static void quoted_fields_keep_commas_quotes_and_lines(void **state)
{
	struct adp_arena arena = {0};
	struct adp_csv csv;

	(void)state;
	assert_int_equal(
		read_text(&csv, &arena, "# source\n\na,b\r\n\"x,\"\"y\"\"\",1\r\n\n\"p\nq\",\n", NULL),
		ADP_OK);
	assert_int_equal(csv.n_cols, 2);
	assert_int_equal(csv.n_rows, 2);
	assert_string_equal(adp_csv_cell(&csv, 0, 0), "x,\"y\"");
	assert_string_equal(adp_csv_cell(&csv, 0, 1), "1");
	assert_string_equal(adp_csv_cell(&csv, 1, 0), "p\nq");
	assert_string_equal(adp_csv_cell(&csv, 1, 1), "");
	assert_int_equal(csv.line[0], 4);
	assert_int_equal(csv.line[1], 6);
	adp_arena_fini(&arena);
}

static void numbers_are_finite_or_missing(void **state)
{
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct adp_csv csv;
	double value;

	(void)state;
	assert_int_equal(read_text(&csv, &arena, "gpu,tflops\nH100,989.5\nX,\nY,nan\nZ,1e999\n", NULL),
	                 ADP_OK);
	assert_int_equal(adp_csv_number(&value, &csv, 0, 1, -1, NULL), ADP_OK);
	assert_true(value == 989.5);
	assert_int_equal(adp_csv_number(&value, &csv, 1, 1, -1, NULL), ADP_OK);
	assert_true(value == -1);
	assert_int_equal(adp_csv_number(&value, &csv, 2, 1, -1, &err), ADP_EINVAL);
	assert_string_equal(err.text, "t.csv:4: column 'tflops': 'nan' is not a finite number");
	assert_int_equal(adp_csv_number(&value, &csv, 3, 1, -1, NULL), ADP_EINVAL);
	adp_arena_fini(&arena);
}

static void a_column_is_found_by_name(void **state)
{
	struct adp_arena arena = {0};
	struct adp_error err = {0};
	struct adp_csv csv;
	uint32_t column;

	(void)state;
	assert_int_equal(read_text(&csv, &arena, "a,b", NULL), ADP_OK);
	assert_int_equal(csv.n_rows, 0);
	assert_int_equal(adp_csv_column(&column, &csv, "b", NULL), ADP_OK);
	assert_int_equal(column, 1);
	assert_int_equal(adp_csv_column(&column, &csv, "c", &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "'c'"));
	adp_arena_fini(&arena);
}

static void a_broken_table_is_refused_with_its_line(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"", "no header"},
		{"# only\n", "no header"},
		{"a,b\n1,2\n1,2,3\n", "t.csv:3: 3 fields, but the header has 2"},
		{"a,b\n1\n", "t.csv:2: 1 fields"},
		{"a,b\n1,\"2\n\n", "t.csv:2: a quoted field is not closed"},
		{"a,b\n\"1\"x,2\n", "t.csv:2: text follows a closing quote"},
		{"a,b\n1x\"y\",2\n", "t.csv:2: a '\"' inside a field"},
		{"a,b,a\n", "column 'a' is there twice"},
		{"a\n\xff\n", "not UTF-8"},
	};
	struct adp_arena arena = {0};
	struct adp_error err;
	struct adp_csv csv;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		err = (struct adp_error){0};
		assert_int_equal(read_text(&csv, &arena, cases[i].text, &err), ADP_EINVAL);
		if (!strstr(err.text, cases[i].error))
			fail_msg("'%s' lacks '%s'", err.text, cases[i].error);
	}
	assert_int_equal(adp_csv_read(&csv, &arena, "a\n\0\n", 4, "t.csv", NULL), ADP_EINVAL);
	adp_arena_fini(&arena);
}

static void a_table_of_too_many_cells_is_refused(void **state)
{
	enum { ROWS = (1 << 20) + 1 };
	struct adp_arena arena = {0};
	struct adp_csv csv;
	char *text = adp_malloc(2 + 2 * (size_t)ROWS);

	(void)state;
	assert_non_null(text);
	for (size_t i = 0; i <= ROWS; i++)
		memcpy(text + 2 * i, "a\n", 2);
	assert_int_equal(adp_csv_read(&csv, &arena, text, 2 * (size_t)ROWS, "t.csv", NULL), ADP_OK);
	assert_int_equal(csv.n_rows, 1 << 20);
	assert_int_equal(adp_csv_read(&csv, &arena, text, 2 + 2 * (size_t)ROWS, "t.csv", NULL),
	                 ADP_ELIMIT);
	adp_free(text);
	adp_arena_fini(&arena);
}

static int read_table(void *context)
{
	struct adp_arena arena = {0};
	struct adp_csv csv;
	char text[20000] = "a,b\n";
	size_t len = 4;
	int rc;

	(void)context;
	for (; len + 20 < sizeof text; len += 12)
		memcpy(text + len, "\"x\"\"y\",word\n", 12);
	rc = adp_csv_read(&csv, &arena, text, len, "t.csv", NULL);
	adp_arena_fini(&arena);
	return rc;
}

static void reading_survives_any_failed_allocation(void **state)
{
	(void)state;
	fault_sweep(read_table, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quoted_fields_keep_commas_quotes_and_lines),
		cmocka_unit_test(numbers_are_finite_or_missing),
		cmocka_unit_test(a_column_is_found_by_name),
		cmocka_unit_test(a_broken_table_is_refused_with_its_line),
		cmocka_unit_test(a_table_of_too_many_cells_is_refused),
		cmocka_unit_test(reading_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
