/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/doc.h"
#include "support/fault_sweep.h"

/* libyaml's own memory too can be made to run out: these take the place of its functions. */
void *yaml_malloc(size_t size);
void *yaml_realloc(void *p, size_t size);
void yaml_free(void *p);
unsigned char *yaml_strdup(const unsigned char *text);

void *yaml_malloc(size_t size)
{
	return adp_malloc(size ? size : 1);
}

void *yaml_realloc(void *p, size_t size)
{
	return adp_realloc(p, size ? size : 1);
}

void yaml_free(void *p)
{
	adp_free(p);
}

unsigned char *yaml_strdup(const unsigned char *text)
{
	return text ? (unsigned char *)adp_strdup((const char *)text) : NULL;
}

typedef int read_fn(json_t **out, const char *text, size_t len, const char *where,
                    struct adp_error *err);

static json_t *read(read_fn *reader, const char *text)
{
	struct adp_error err = {0};
	json_t *value = NULL;

	if (reader(&value, text, strlen(text), "t", &err))
		fail_msg("%s", err.text);
	return value;
}

/* Reads text and compares with the same in JSON. */
static void check_read(read_fn *reader, const char *text, const char *expected)
{
	json_t *value = read(reader, text), *other = read(adp_doc_json, expected);
	char *shown;

	if (!json_equal(value, other)) {
		assert_int_equal(adp_doc_to_json(&shown, value, NULL), ADP_OK);
		fail_msg("%s is read as %s", text, shown);
	}
	json_decref(value);
	json_decref(other);
}

struct refusal {
	const char *text, *error;
};

static void check_refused(read_fn *reader, const struct refusal *cases, size_t n, int code)
{
	struct adp_error err;
	json_t *value;

	for (size_t i = 0; i < n; i++) {
		err = (struct adp_error){0};
		if (reader(&value, cases[i].text, strlen(cases[i].text), "t", &err) != code)
			fail_msg("'%s': not refused as %d: %s", cases[i].text, code, err.text);
		if (!strstr(err.text, cases[i].error))
			fail_msg("'%s': '%s' lacks '%s'", cases[i].text, err.text, cases[i].error);
	}
}

static void json_values_keep_their_type(void **state)
{
	json_t *value = read(
		adp_doc_json,
		"[1, 1.0, 9223372036854775807, 9223372036854775808, \"\\u00e9\\ud83d\\ude00\", -0]");

	(void)state;
	assert_true(json_is_integer(json_array_get(value, 0)));
	assert_true(json_is_real(json_array_get(value, 1)));
	assert_int_equal(json_integer_value(json_array_get(value, 2)), INT64_MAX);
	assert_true(json_real_value(json_array_get(value, 3)) == 0x1p63);
	assert_string_equal(json_string_value(json_array_get(value, 4)), "\xc3\xa9\xf0\x9f\x98\x80");
	assert_true(json_is_integer(json_array_get(value, 5)));
	json_decref(value);
}

static void what_python_writes_for_infinity_is_a_string(void **state)
{
	(void)state;
	check_read(adp_doc_json, "[Infinity, -Infinity, NaN]",
	           "[\"Infinity\", \"-Infinity\", \"NaN\"]");
	check_read(adp_doc_yaml, "[.inf, -.inf, .nan]", "[[\".inf\", \"-.inf\", \".nan\"]]");
}

static void broken_json_is_refused_with_line_column_and_field(void **state)
{
	static const struct refusal cases[] = {
		{"", "t: is empty; expected JSON"},
		{" \n", "t: is empty; expected JSON"},
		{"{\"a\": {\"b\": [1, {\"c\": tru}]}}", "t:1:23: not a JSON value in a.b[1].c"},
		{"{\n \"a\": 1,\n \"a\": 2}", "t:3:5: a key is there twice; remove one: in a"},
		{"{\"\\u0061\": 1, \"a\": 2}", "twice"},
		{"[1 2]", "',' or ']' is expected"},
		{"{\"a\": 1 \"b\"}", "',' or '}' is expected"},
		{"{} x", "text follows"},
		{"[1,]", "not a JSON value"},
		{"{a: 1}", "a key in double quotes"},
		{"{\"a\" 1}", "':' is expected"},
		{"[01]", "needless 0"},
		{"[.5]", "starts with '.'"},
		{"[1.]", "without a digit after '.'"},
		{"[-]", "no value"},
		{"[1e999]", "beyond the range of a double"},
		{"[\"\\q\"]", "unknown escape"},
		{"[\"\\u12\"]", "four hexadecimal digits"},
		{"[\"\\ud800\"]", "surrogate"},
		{"[\"\\udc00\"]", "surrogate"},
		{"[\"\\ud800\\u0041\"]", "surrogate"},
		{"[\"\\u0000\"]", "NUL"},
		{"[\"a\nb\"]", "control character"},
		{"[\"\xc3\x28\"]", "byte 2 is not UTF-8"},
		{"[\"abc", "the text ends too early"},
		{"[\"abc\\", "the text ends too early"},
	};

	(void)state;
	check_refused(adp_doc_json, cases, sizeof cases / sizeof cases[0], ADP_EINVAL);
}

static void sixty_four_levels_are_read_and_no_more(void **state)
{
	char text[200];
	json_t *value;

	(void)state;
	memset(text, '[', 65);
	memset(text + 65, ']', 65);
	assert_int_equal(adp_doc_json(&value, text + 1, 128, "t", NULL), ADP_OK);
	json_decref(value);
	assert_int_equal(adp_doc_yaml(&value, text + 1, 128, "t", NULL), ADP_OK);
	json_decref(value);
	assert_int_equal(adp_doc_json(&value, text, 130, "t", NULL), ADP_ELIMIT);
	assert_int_equal(adp_doc_yaml(&value, text, 130, "t", NULL), ADP_ELIMIT);
}

static void yaml_follows_the_core_schema_of_1_2(void **state)
{
	(void)state;
	check_read(adp_doc_yaml, "[~, null, true, FALSE, yes, no, on, off, n]",
	           "[[null, null, true, false, \"yes\", \"no\", \"on\", \"off\", \"n\"]]");
	check_read(adp_doc_yaml, "[1, +1, -1, 012, 0x1F, 0o17, 1.5, .5, 1e3, +.5]",
	           "[[1, 1, -1, 12, 31, 15, 1.5, 0.5, 1000.0, 0.5]]");
	check_read(adp_doc_yaml, "[1_000, 12:30, 0b1, 1.2.3, \"1\", '~', 0x, -, +]",
	           "[[\"1_000\", \"12:30\", \"0b1\", \"1.2.3\", \"1\", \"~\", \"0x\", \"-\", \"+\"]]");
	check_read(adp_doc_yaml, "a:\nb: ''\n8: x\n", "[{\"a\": null, \"b\": \"\", \"8\": \"x\"}]");
	check_read(adp_doc_yaml, "9223372036854775808", "[9223372036854775808]");
}

static void every_document_of_a_stream_is_read_but_empty_ones(void **state)
{
	(void)state;
	check_read(adp_doc_yaml, "---\na: 1\n---\n---\n- 2\n", "[{\"a\": 1}, [2]]");
	check_read(adp_doc_yaml, "", "[]");
	check_read(adp_doc_any, " \n{\"a\": 1}", "[{\"a\": 1}]");
	check_read(adp_doc_any, "\xef\xbb\xbf[1]", "[[1]]");
	check_read(adp_doc_any,
	           "\xef\xbb\xbf"
	           "a: 1\nb: 2\n",
	           "[{\"a\": 1, \"b\": 2}]");
	check_read(adp_doc_any, "a: 1", "[{\"a\": 1}]");
	check_read(adp_doc_any, "", "[]");
}

static void yaml_that_is_not_plain_data_is_refused(void **state)
{
	static const struct refusal cases[] = {
		{"a: &x 1", "t:1:4: anchors"},
		{"a: &x [1]", "anchors"},
		{"a: *x", "aliases"},
		{"a: !!str 1", "tags"},
		{"a: !x {}", "tags"},
		{"a:\n  <<: 1", "merge keys (<<) are not read; write the members out in a"},
		{"a:\n  - b: 1\n    b: 2", "a key is there twice; remove one: in a[0].b"},
		{"? [a]\n: 1", "a key must be text"},
		{"?\n: 1", "an empty key"},
		{"a:\n  - b: 1\n   c: 2", "t:3:"},
		{"a: \"x", "t:1:"},
		{"a: \"x\\0\"", "NUL"},
		{"a: 1e999", "beyond the range"},
		{"a: \xff", "not UTF-8"},
		{"a: \x01", "t: byte"},
	};

	(void)state;
	check_refused(adp_doc_yaml, cases, sizeof cases / sizeof cases[0], ADP_EINVAL);
}

static void skipped_members_are_checked_but_not_kept(void **state)
{
	static const char *const skip[] = {"drop", NULL};
	static const char *const texts[] = {
		"{\"a\": [{\"drop\": {\"x\": [1, \"\\n\"]}, \"b\": 1}], \"drop\": 2}",
		"a:\n  - drop: {x: [1]}\n    b: 1\ndrop: 2\n"};
	json_t *value, *expected = read(adp_doc_json, "[{\"a\": [{\"b\": 1}]}]");

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(adp_doc_any_without(&value, texts[i], strlen(texts[i]), skip, "t", NULL),
		                 ADP_OK);
		assert_true(json_equal(value, expected));
		json_decref(value);
	}
	json_decref(expected);
	assert_int_equal(adp_doc_any_without(&value, "{\"drop\": [}", 11, skip, "t", NULL), ADP_EINVAL);
}

static void check_written(const char *json, const char *yaml, const char *indented)
{
	json_t *value = read(adp_doc_json, json);
	char *text;

	assert_int_equal(adp_doc_to_yaml(&text, value, NULL), ADP_OK);
	assert_string_equal(text, yaml);
	adp_free(text);
	assert_int_equal(adp_doc_to_json(&text, value, NULL), ADP_OK);
	assert_string_equal(text, indented);
	adp_free(text);
	json_decref(value);
}

static void documents_are_written_in_block_style(void **state)
{
	(void)state;
	check_written(
		"{\"b\": {\"x\": 1}, \"a\": [{\"k\": \"v\", \"l\": [1, 2.5]}, [[\"s\"]], {}, []], \"n\": "
		"null}",
		"b:\n  x: 1\na:\n  - k: v\n    l: [1, 2.5]\n  - - - s\n  - {}\n  - []\n\"n\": null\n",
		"{\n  \"b\": {\n    \"x\": 1\n  },\n  \"a\": [\n    {\n      \"k\": \"v\",\n      \"l\": "
		"[1, 2.5]\n    },\n"
		"    [\n      [\n        \"s\"\n      ]\n    ],\n    {},\n    []\n  ],\n  \"n\": "
		"null\n}\n");
	check_written("true", "true\n", "true\n");
}

static void strings_a_reader_might_mistake_are_quoted(void **state)
{
	static const char *const quoted[] = {
		"",     "no", "On",   "y",   "NULL",       "true", "1",  "1e3", "0x1",         "~",  "-a",
		"a: b", "a#", " a",   "a ",  "*a",         "&a",   "!a", "%a",  "@a",          "`a", "{a",
		"[a",   "'a", ".inf", "nan", "2024-01-01", "a\nb", "<<", "=",   "caf\xc3\xa9", NULL};
	static const char *const plain[] = {"a",  "H100-80GB", "adp.parallelism/v1alpha1",
	                                    "_x", "Note",      NULL};
	json_t *value;
	char *text;

	(void)state;
	for (size_t i = 0; quoted[i]; i++) {
		value = json_string(quoted[i]);
		assert_int_equal(adp_doc_to_yaml(&text, value, NULL), ADP_OK);
		if (text[0] != '"')
			fail_msg("'%s' is written as %s", quoted[i], text);
		adp_free(text);
		json_decref(value);
	}
	for (size_t i = 0; plain[i]; i++) {
		value = json_string(plain[i]);
		assert_int_equal(adp_doc_to_yaml(&text, value, NULL), ADP_OK);
		assert_memory_equal(text, plain[i], strlen(plain[i]));
		adp_free(text);
		json_decref(value);
	}
}

static void characters_that_do_not_print_are_escaped(void **state)
{
	(void)state;
	check_written(
		"\"\\\"\\\\\\n\\t\\u0001\x7f\xc2\x85\xe2\x80\xa8\xef\xbf\xbf\xf0\x9f\xbf\xbe\xf0\x9f\x98"
		"\x80\"",
		"\"\\\"\\\\\\n\\t\\u0001\\u007f\\u0085\\u2028\\uffff\\U0001fffe\xf0\x9f\x98\x80\"\n",
		"\"\\\"\\\\\\n\\t\\u0001\\u007f\\u0085\\u2028\\uffff\\ud83f\\udffe\xf0\x9f\x98\x80\"\n");
}

static void a_key_too_long_for_its_line_reads_back(void **state)
{
	char key[2001], text[2100], *yaml;
	json_t *value, *again;

	(void)state;
	memset(key, 'k', 2000);
	key[2000] = '\0';
	snprintf(text, sizeof text, "{\"%s\": {\"a\": [\"x\"]}}", key);
	value = read(adp_doc_json, text);
	assert_int_equal(adp_doc_to_yaml(&yaml, value, NULL), ADP_OK);
	again = read(adp_doc_yaml, yaml);
	assert_true(json_equal(value, json_array_get(again, 0)));
	adp_free(yaml);
	json_decref(value);
	json_decref(again);
}

static void a_value_too_deep_to_read_is_not_written(void **state)
{
	json_t *value = json_array();
	char *text;

	(void)state;
	for (int i = 0; i < 70; i++)
		value = json_pack("[o]", value);
	assert_non_null(value);
	assert_int_equal(adp_doc_to_yaml(&text, value, NULL), ADP_ELIMIT);
	assert_int_equal(adp_doc_to_json(&text, value, NULL), ADP_ELIMIT);
	json_decref(value);
}

static void a_large_list_is_read_in_linear_time(void **state)
{
	enum { N = 40000 };
	clock_t start, small, large;
	char *text = adp_malloc(N * 40);
	size_t len = 0;
	json_t *value;

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < N; i++) {
		static const char line[] = "- {name: node, labels: {a: b, c: d}}\n";

		memcpy(text + len, line, sizeof line - 1);
		len += sizeof line - 1;
	}
	start = clock();
	assert_int_equal(adp_doc_yaml(&value, text, len / N * (N / 8), "t", NULL), ADP_OK);
	small = clock() - start;
	json_decref(value);
	start = clock();
	assert_int_equal(adp_doc_yaml(&value, text, len, "t", NULL), ADP_OK);
	large = clock() - start;
	json_decref(value);
	adp_free(text);
	/* 8 times the text: 8 times the time if linear, 64 if quadratic. */
	assert_true((double)large < 30 * (double)small + 0.05 * CLOCKS_PER_SEC);
}

static json_t *object;

static int make_object(void **state)
{
	(void)state;
	object = read(adp_doc_json, "{\"n\": 8, \"r\": 8.0, \"big\": 1e19, \"x\": 0.5, \"b\": true, "
	                            "\"s\": \"text\", \"neg\": -1,"
	                            " \"a\": [1], \"o\": {}, \"null\": null, \"inf\": Infinity}");
	return 0;
}

static int drop_object(void **state)
{
	(void)state;
	json_decref(object);
	return 0;
}

static void members_are_found_by_type_and_range(void **state)
{
	uint64_t n;
	double x;
	bool found, b;
	const char *s;
	json_t *value;

	(void)state;
	assert_int_equal(adp_doc_u64(&n, &found, object, "n", 1, 8, "", NULL), ADP_OK);
	assert_true(found && n == 8);
	assert_int_equal(adp_doc_u64(&n, NULL, object, "r", 0, UINT64_MAX, "", NULL), ADP_OK);
	assert_int_equal(n, 8);
	assert_int_equal(adp_doc_double(&x, &found, object, "x", 0, 1, "", NULL), ADP_OK);
	assert_true(found && x == 0.5);
	assert_int_equal(adp_doc_double(&x, &found, object, "n", 0, DBL_MAX, "", NULL), ADP_OK);
	assert_true(x == 8);
	assert_int_equal(adp_doc_bool(&b, &found, object, "b", "", NULL), ADP_OK);
	assert_true(found && b);
	assert_int_equal(adp_doc_string(&s, &found, object, "s", "", NULL), ADP_OK);
	assert_string_equal(s, "text");
	assert_int_equal(adp_doc_array(&value, &found, object, "a", "", NULL), ADP_OK);
	assert_int_equal(json_array_size(value), 1);
	assert_int_equal(adp_doc_object(&value, &found, object, "o", "", NULL), ADP_OK);
	assert_true(json_is_object(value));
}

static void an_absent_or_null_member_is_told_by_found(void **state)
{
	struct adp_error err = {0};
	bool found = true;
	uint64_t n = 7;

	(void)state;
	assert_int_equal(adp_doc_u64(&n, &found, object, "none", 0, 8, "p", NULL), ADP_OK);
	assert_false(found);
	found = true;
	assert_int_equal(adp_doc_u64(&n, &found, object, "null", 0, 8, "p", NULL), ADP_OK);
	assert_false(found);
	assert_int_equal(n, 7);
	assert_int_equal(adp_doc_u64(&n, NULL, object, "none", 0, 8, "nodes[3]", &err), ADP_EINVAL);
	assert_string_equal(err.text, "nodes[3].none is missing; give a whole number from 0 to 8");
}

static void a_wrong_member_is_refused_with_what_was_found(void **state)
{
	struct adp_error err = {0};
	uint64_t n;
	double x;
	bool b, found;
	const char *s;
	json_t *value;

	(void)state;
	assert_int_equal(adp_doc_u64(&n, &found, object, "n", 9, UINT64_MAX, "p", &err), ADP_EINVAL);
	assert_string_equal(err.text, "p.n is 8; give a whole number of at least 9");
	assert_int_equal(adp_doc_u64(&n, &found, object, "neg", 0, 9, "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "neg is -1; give a whole number from 0 to 9");
	assert_int_equal(adp_doc_u64(&n, &found, object, "x", 0, 9, "", &err), ADP_EINVAL);
	assert_int_equal(adp_doc_u64(&n, &found, object, "big", 0, UINT64_MAX, "", &err), ADP_EINVAL);
	assert_int_equal(adp_doc_u64(&n, &found, object, "s", 0, 9, "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "s is \"text\"; give a whole number from 0 to 9");
	assert_int_equal(adp_doc_double(&x, &found, object, "inf", 0, DBL_MAX, "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "inf is \"Infinity\"; give a number of at least 0");
	assert_int_equal(adp_doc_double(&x, &found, object, "x", 0.6, 1, "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "x is 0.5; give a number from 0.6 to 1");
	assert_int_equal(adp_doc_double(&x, &found, object, "s", -DBL_MAX, DBL_MAX, "", &err),
	                 ADP_EINVAL);
	assert_string_equal(err.text, "s is \"text\"; give a finite number");
	assert_int_equal(adp_doc_bool(&b, &found, object, "n", "", &err), ADP_EINVAL);
	assert_int_equal(adp_doc_string(&s, &found, object, "a", "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "a is an array; give a string (in quotes)");
	assert_int_equal(adp_doc_array(&value, &found, object, "o", "", &err), ADP_EINVAL);
	assert_int_equal(adp_doc_object(&value, &found, object, "b", "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "b is true; give an object");
	assert_int_equal(adp_doc_bool(&b, &found, json_object_get(object, "a"), "n", "p.a", &err),
	                 ADP_EINVAL);
	assert_string_equal(err.text, "p.a: an object with 'n' is expected, not an array");
	assert_int_equal(adp_doc_bool(&b, &found, NULL, "n", "", &err), ADP_EINVAL);
}

static void an_unknown_key_names_the_nearest_one(void **state)
{
	static const char *const allowed[] = {"bandwidth", "latency", NULL};
	struct adp_error err = {0};
	json_t *value = read(adp_doc_json, "{\"bandwith\": 1}"),
		   *other = read(adp_doc_json, "{\"latency\": 1}");

	(void)state;
	assert_int_equal(adp_doc_only(value, allowed, "links", &err), ADP_EINVAL);
	assert_string_equal(
		err.text,
		"links.bandwith is not a known key; did you mean 'bandwidth'? allowed: bandwidth, latency");
	assert_int_equal(adp_doc_only(other, allowed, "links", &err), ADP_OK);
	assert_int_equal(adp_doc_only(object, allowed, "", &err), ADP_EINVAL);
	assert_string_equal(err.text, "n is not a known key; allowed: bandwidth, latency");
	assert_int_equal(adp_doc_only(json_object_get(object, "a"), allowed, "a", &err), ADP_EINVAL);
	json_decref(value);
	json_decref(other);
}

struct job {
	read_fn *reader;
	const char *text;
};

static int read_and_write(void *context)
{
	const struct job *job = context;
	json_t *value;
	char *text;
	int rc = job->reader(&value, job->text, strlen(job->text), "t", NULL);

	if (rc)
		return rc;
	rc = adp_doc_to_yaml(&text, value, NULL);
	if (!rc)
		adp_free(text);
	if (!rc)
		rc = adp_doc_to_json(&text, value, NULL);
	if (!rc)
		adp_free(text);
	json_decref(value);
	return rc;
}

static void documents_survive_any_failed_allocation(void **state)
{
	struct job json = {
		adp_doc_any,
		"{\"a\\n\": [1, 2.5, \"x\\ty\", {\"b\": {\"c\": null}}], \"d\": {}, \"e\": true,"
		" \"f\": 1, \"g\": 2, \"h\": 3, \"i\": 4, \"j\": 5, \"k\": 6}"};
	struct job yaml = {
		adp_doc_any,
		"a:\n  - 1\n  - 2.5\n  - \"x\\ty\"\n  - {b: {c: ~}}\nd: {}\n---\nlonger: text here\n"};

	(void)state;
	fault_sweep(read_and_write, &json);
	fault_sweep(read_and_write, &yaml);
}

static int refuse_key(void *context)
{
	static const char *const allowed[] = {"bandwidth", "latency", NULL};
	int rc = adp_doc_only(context, allowed, "links", NULL);

	return rc == ADP_EINVAL ? ADP_OK : rc;
}

static void refusals_survive_any_failed_allocation(void **state)
{
	(void)state;
	fault_sweep(refuse_key, object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_values_keep_their_type),
		cmocka_unit_test(what_python_writes_for_infinity_is_a_string),
		cmocka_unit_test(broken_json_is_refused_with_line_column_and_field),
		cmocka_unit_test(sixty_four_levels_are_read_and_no_more),
		cmocka_unit_test(yaml_follows_the_core_schema_of_1_2),
		cmocka_unit_test(every_document_of_a_stream_is_read_but_empty_ones),
		cmocka_unit_test(yaml_that_is_not_plain_data_is_refused),
		cmocka_unit_test(skipped_members_are_checked_but_not_kept),
		cmocka_unit_test(documents_are_written_in_block_style),
		cmocka_unit_test(strings_a_reader_might_mistake_are_quoted),
		cmocka_unit_test(characters_that_do_not_print_are_escaped),
		cmocka_unit_test(a_key_too_long_for_its_line_reads_back),
		cmocka_unit_test(a_value_too_deep_to_read_is_not_written),
		cmocka_unit_test(a_large_list_is_read_in_linear_time),
		cmocka_unit_test_setup_teardown(members_are_found_by_type_and_range, make_object,
	                                    drop_object),
		cmocka_unit_test_setup_teardown(an_absent_or_null_member_is_told_by_found, make_object,
	                                    drop_object),
		cmocka_unit_test_setup_teardown(a_wrong_member_is_refused_with_what_was_found, make_object,
	                                    drop_object),
		cmocka_unit_test_setup_teardown(an_unknown_key_names_the_nearest_one, make_object,
	                                    drop_object),
		cmocka_unit_test(documents_survive_any_failed_allocation),
		cmocka_unit_test_setup_teardown(refusals_survive_any_failed_allocation, make_object,
	                                    drop_object),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
