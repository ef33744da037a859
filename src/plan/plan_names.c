/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_DIGITS = 18, MAX_NAME = 4096 };

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t digits_at(const char *text)
{
	size_t n = 0;

	while (is_digit(text[n]))
		n++;
	return n;
}

static uint64_t number_at(const char *text, size_t n)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n; i++)
		value = value * 10 + (uint64_t)(text[i] - '0');
	return value;
}

/*
 * Where the number stands in which b is one more than a, all else being equal; false when there is
 * none. padded: a zero-padded number, whose width stays.
 */
static bool follows(const char *a, const char *b, bool padded, size_t *start)
{
	size_t at = 0, in_a, in_b;

	while (a[at] && a[at] == b[at])
		at++;
	while (at && is_digit(a[at - 1]))
		at--;
	in_a = digits_at(a + at);
	in_b = digits_at(b + at);
	if (!in_a || !in_b || in_a > MAX_DIGITS || in_b > MAX_DIGITS)
		return false;
	if (in_a != in_b && (padded || a[at] == '0' || b[at] == '0'))
		return false; /* 9 .. 10 has no padding, 09 .. 10 has */
	*start = at;
	return number_at(b + at, in_b) == number_at(a + at, in_a) + 1 &&
	       !strcmp(a + at + in_a, b + at + in_b);
}

static void add_literal(struct adp_strbuf *out, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '[' || text[i] == '\\')
			adp_strbuf_add(out, "\\");
		adp_strbuf_addn(out, text + i, 1);
	}
}

/* Names first .. last count up at start. */
static json_t *pattern(const char *first, const char *last, size_t start, struct adp_error *err)
{
	const size_t in_first = digits_at(first + start), in_last = digits_at(last + start);
	struct adp_strbuf text = {0};
	json_t *value = NULL;

	add_literal(&text, first, start);
	adp_strbuf_add(&text, "[");
	adp_strbuf_addn(&text, first + start, in_first);
	adp_strbuf_add(&text, "-");
	adp_strbuf_addn(&text, last + start, in_last);
	adp_strbuf_add(&text, "]");
	add_literal(&text, first + start + in_first, strlen(first + start + in_first));
	if (text.failed)
		adp_nomem(err);
	else
		value = adp_plan_string(text.text, "a node name", err);
	adp_strbuf_fini(&text);
	return value;
}

static json_t *plain(const char *name, struct adp_error *err)
{
	struct adp_strbuf text = {0};
	json_t *value = NULL;

	add_literal(&text, name, strlen(name));
	if (text.failed)
		adp_nomem(err);
	else
		value = adp_plan_string(text.text ? text.text : "", "a node name", err);
	adp_strbuf_fini(&text);
	return value;
}

json_t *adp_plan_fold_names(const char *const *names, uint32_t n, struct adp_error *err)
{
	json_t *array = json_array();

	if (!array)
		adp_nomem(err);
	for (uint32_t i = 0; array && i < n;) {
		size_t start = 0, other;
		uint32_t last = i;
		bool padded = false;
		json_t *value;

		while (last + 1 < n && follows(names[last], names[last + 1], padded, &other) &&
		       (last == i || other == start)) {
			start = other;
			padded = names[i][start] == '0' && digits_at(names[i] + start) > 1;
			last++;
		}
		value = last > i ? pattern(names[i], names[last], start, err) : plain(names[i], err);
		if (!value || json_array_append_new(array, value)) {
			if (value)
				adp_nomem(err);
			json_decref(array);
			return NULL;
		}
		i = last + 1;
	}
	return array;
}

/* A pattern taken apart. */
struct folded {
	char *before, *after;
	uint64_t low, high;
	int width; /* of a zero-padded number, else 0 */
	bool ranged;
};

static int parse_range(struct folded *out, const char **at, const char *text, const char *path,
                       struct adp_error *err)
{
	const char *low = *at + 1;
	const size_t n_low = digits_at(low);
	const char *high = low + n_low + 1;
	size_t n_high = 0;

	if (n_low && low[n_low] == '-')
		n_high = digits_at(high);
	if (!n_high || high[n_high] != ']' || n_low > MAX_DIGITS || n_high > MAX_DIGITS)
		return adp_fail(
			err, ADP_EINVAL,
			"%s: \"%.200s\" has no range such as [0-15]; a name with a '[' is written \\[", path,
			text);
	out->low = number_at(low, n_low);
	out->high = number_at(high, n_high);
	if (out->high < out->low)
		return adp_fail(err, ADP_EINVAL, "%s: the range of \"%.200s\" runs backwards", path, text);
	out->width = low[0] == '0' && n_low > 1 ? (int)n_low : 0;
	if (out->width && n_high != n_low)
		return adp_fail(err, ADP_EINVAL, "%s: the numbers of \"%.200s\" differ in width", path,
		                text);
	out->ranged = true;
	*at = high + n_high + 1;
	return ADP_OK;
}

static int parse_pattern(struct folded *out, const char *text, const char *path,
                         struct adp_arena *arena, struct adp_error *err)
{
	const size_t len = strlen(text);
	char *to;

	if (!len || len > MAX_NAME)
		return adp_fail(err, ADP_EINVAL, "%s: a node name has 1 to %d bytes, this one %zu", path,
		                MAX_NAME, len);
	*out = (struct folded){.before = adp_arena_strdup(arena, ""),
	                       .after = adp_arena_strdup(arena, text)};
	to = adp_arena_strdup(arena, text);
	if (!out->before || !out->after || !to)
		return adp_nomem(err);
	out->before = to;
	for (const char *at = text; *at;) {
		if (*at == '[') {
			int rc;

			if (out->ranged)
				return adp_fail(err, ADP_EINVAL, "%s: \"%.200s\" has two ranges", path, text);
			rc = parse_range(out, &at, text, path, err);
			if (rc)
				return rc;
			*to = '\0';
			to = out->after;
			continue;
		}
		if (*at == '\\' && *++at != '[' && *at != '\\')
			return adp_fail(err, ADP_EINVAL,
			                "%s: in \"%.200s\" a backslash stands before neither '[' nor '\\'",
			                path, text);
		*to++ = *at++;
	}
	*to = '\0';
	if (!out->ranged)
		*out->after = '\0';
	return ADP_OK;
}

int adp_plan_unfold_names(const char *const **out, uint32_t *n_out, const json_t *patterns,
                          uint32_t max, const char *path, struct adp_arena *arena,
                          struct adp_error *err)
{
	const size_t n_patterns = json_array_size(patterns);
	const char **names;
	struct folded *folded;
	uint64_t n = 0, k = 0;

	if (!n_patterns || n_patterns > max)
		return adp_fail(err, ADP_EINVAL, "%s: %zu node names, expected 1 to %" PRIu32, path,
		                n_patterns, max);
	folded = adp_arena_calloc(arena, n_patterns, sizeof *folded);
	if (!folded)
		return adp_nomem(err);
	for (size_t i = 0; i < n_patterns; i++) {
		const char *text = json_string_value(json_array_get(patterns, i));
		int rc;

		if (!text)
			return adp_fail(err, ADP_EINVAL, "%s[%zu]: expected a node name or pattern, a string",
			                path, i);
		rc = parse_pattern(&folded[i], text, path, arena, err);
		if (rc)
			return rc;
		n += folded[i].high - folded[i].low; /* low, high < 10^18 */
		n++;
		if (n > max)
			return adp_fail(err, ADP_ELIMIT, "%s: more than %" PRIu32 " nodes", path, max);
	}
	names = adp_arena_calloc(arena, (size_t)n, sizeof *names);
	if (!names)
		return adp_nomem(err);
	for (size_t i = 0; i < n_patterns; i++)
		for (uint64_t value = folded[i].low; value <= folded[i].high; value++) {
			if (!folded[i].ranged)
				names[k] = folded[i].before;
			else
				names[k] = adp_arena_printf(arena, "%s%0*" PRIu64 "%s", folded[i].before,
				                            folded[i].width, value, folded[i].after);
			if (!names[k++])
				return adp_nomem(err);
		}
	*out = names;
	*n_out = (uint32_t)n;
	return ADP_OK;
}

void adp_plan_fold_numbers(struct adp_strbuf *out, const uint32_t *numbers, uint32_t n)
{
	for (uint32_t i = 0; i < n;) {
		uint32_t last = i;

		while (last + 1 < n && numbers[last + 1] == numbers[last] + 1)
			last++;
		adp_strbuf_addf(out, "%s%" PRIu32, i ? "," : "", numbers[i]);
		if (last > i)
			adp_strbuf_addf(out, "-%" PRIu32, numbers[last]);
		i = last + 1;
	}
}

int adp_plan_unfold_numbers(const uint32_t **out, uint32_t *n_out, const char *text,
                            const char *path, struct adp_arena *arena, struct adp_error *err)
{
	uint32_t numbers[ADP_PLAN_MAX_NODE_GPUS], *copy;
	uint32_t n = 0;
	const char *at = text;

	for (;;) {
		size_t len = digits_at(at);
		uint64_t low, high;

		if (!len || len > 9)
			break;
		low = high = number_at(at, len);
		at += len;
		if (*at == '-') {
			len = digits_at(++at);
			if (!len || len > 9)
				break;
			high = number_at(at, len);
			at += len;
		}
		if (high < low || high - low >= (uint64_t)ADP_PLAN_MAX_NODE_GPUS - n ||
		    high >= ADP_PLAN_MAX_NODE_GPUS)
			break;
		for (uint64_t value = low; value <= high; value++)
			numbers[n++] = (uint32_t)value;
		if (!*at) {
			copy = adp_arena_calloc(arena, n, sizeof *copy);
			if (!copy)
				return adp_nomem(err);
			memcpy(copy, numbers, n * sizeof *copy);
			*out = copy;
			*n_out = n;
			return ADP_OK;
		}
		if (*at++ != ',')
			break;
	}
	return adp_fail(err, ADP_EINVAL,
	                "%s: \"%.64s\" is no list of GPU numbers below %d, such as 0-7 or 0-3,6", path,
	                text, ADP_PLAN_MAX_NODE_GPUS);
}
