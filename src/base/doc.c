/* SPDX-License-Identifier: Apache-2.0 */
#include "base/doc.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/doc_internal.h"
#include "base/number.h"
#include "base/strbuf.h"
#include "base/utf8.h"

/* Before main, so before any thread and any value: jansson's memory counts as ours. */
__attribute__((constructor)) static void use_our_heap(void)
{
	json_set_alloc_funcs(adp_malloc, adp_free);
}

int adp_doc_check_text(const char *text, size_t len, const char *where, struct adp_error *err)
{
	size_t good;

	if (len > ADP_DOC_MAX_BYTES)
		return adp_fail(err, ADP_ELIMIT,
		                "%s: larger than 1 GiB; split it, or leave out what isn't needed", where);
	good = adp_utf8_check(text, len);
	if (good < len)
		return adp_fail(err, ADP_EINVAL, "%s: byte %zu is not UTF-8 text; save the file as UTF-8",
		                where, good);
	return ADP_OK;
}

json_t *adp_doc_integer(const char *text, size_t len, bool *bad)
{
	size_t sign = text[0] == '-' || text[0] == '+';
	json_int_t value = 0;
	double real;

	*bad = false;
	for (size_t i = sign; i < len; i++) {
		json_int_t digit = text[0] == '-' ? '0' - text[i] : text[i] - '0';

		if (__builtin_mul_overflow(value, (json_int_t)10, &value) ||
		    __builtin_add_overflow(value, digit, &value)) {
			sign = text[0] == '+';
			*bad = !adp_number_parse(&real, text + sign, len - sign);
			return *bad ? NULL : json_real(real);
		}
	}
	return json_integer(value);
}

bool adp_doc_is_skipped(const char *const *list, const char *key, size_t len)
{
	for (; list && *list; list++) {
		if (strlen(*list) == len && memcmp(*list, key, len) == 0)
			return true;
	}
	return false;
}

int adp_doc_any_without(json_t **out, const char *text, size_t len, const char *const *skip,
                        const char *where, struct adp_error *err)
{
	size_t at = adp_utf8_bom(text, len);
	json_t *value, *documents;
	int rc;

	while (at < len &&
	       (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t'))
		at++;
	if (at >= len || (text[at] != '{' && text[at] != '['))
		return adp_doc_yaml_without(out, text, len, skip, where, err);
	rc = adp_doc_json_without(&value, text, len, skip, where, err);
	if (rc)
		return rc;
	documents = json_array();
	if (!documents) {
		json_decref(value);
		return adp_nomem(err);
	}
	if (json_array_append_new(documents, value)) {
		json_decref(documents);
		return adp_nomem(err);
	}
	*out = documents;
	return ADP_OK;
}

int adp_doc_any(json_t **out, const char *text, size_t len, const char *where,
                struct adp_error *err)
{
	return adp_doc_any_without(out, text, len, NULL, where, err);
}

/* A value as a user would recognise it. */
enum { SHOWN_SIZE = 72 };
static const char *show(char out[SHOWN_SIZE], const json_t *value)
{
	char number[ADP_NUMBER_SIZE];

	switch (json_typeof(value)) {
	case JSON_STRING:
		snprintf(out, SHOWN_SIZE, "\"%.60s\"", json_string_value(value));
		break;
	case JSON_INTEGER:
		snprintf(out, SHOWN_SIZE, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL:
		adp_number_format(number, json_real_value(value));
		snprintf(out, SHOWN_SIZE, "%s", number);
		break;
	case JSON_OBJECT:
		snprintf(out, SHOWN_SIZE, "an object");
		break;
	case JSON_ARRAY:
		snprintf(out, SHOWN_SIZE, "an array");
		break;
	default:
		snprintf(out, SHOWN_SIZE, "%s",
		         json_is_true(value)    ? "true"
		         : json_is_false(value) ? "false"
		                                : "null");
	}
	return out;
}

/*
 * The member, or NULL with *rc = ADP_OK (absent, found given) or an error. expected completes "give
 * ...".
 */
static json_t *member(int *rc, bool *found, const json_t *object, const char *key, const char *path,
                      const char *expected, struct adp_error *err)
{
	char shown[SHOWN_SIZE];
	json_t *value;

	*rc = ADP_OK;
	if (found)
		*found = false;
	if (!json_is_object(object)) {
		*rc = adp_fail(err, ADP_EINVAL, "%s: an object with '%s' is expected, not %s",
		               path[0] ? path : "document", key, object ? show(shown, object) : "nothing");
		return NULL;
	}
	value = json_object_get(object, key);
	if (value && !json_is_null(value)) {
		if (found)
			*found = true;
		return value;
	}
	if (!found)
		*rc = adp_fail(err, ADP_EINVAL, "%s%s%s is missing; give %s", path, path[0] ? "." : "", key,
		               expected);
	return NULL;
}

static int refuse(const json_t *value, const char *key, const char *path, const char *expected,
                  struct adp_error *err)
{
	char shown[SHOWN_SIZE];

	return adp_fail(err, ADP_EINVAL, "%s%s%s is %s; give %s", path, path[0] ? "." : "", key,
	                show(shown, value), expected);
}

/* A whole number that a double holds exactly counts as one: 1e6, 8.0. */
static bool as_u64(uint64_t *out, const json_t *value)
{
	double real;

	if (json_is_integer(value)) {
		if (json_integer_value(value) < 0)
			return false;
		*out = (uint64_t)json_integer_value(value);
		return true;
	}
	if (!json_is_real(value))
		return false;
	real = json_real_value(value);
	if (!(real >= 0 && real <= 0x1p53) || real != floor(real))
		return false;
	*out = (uint64_t)real;
	return true;
}

int adp_doc_u64(uint64_t *out, bool *found, const json_t *object, const char *key, uint64_t min,
                uint64_t max, const char *path, struct adp_error *err)
{
	char expected[96];
	const json_t *value;
	uint64_t number;
	int rc;

	if (max == UINT64_MAX)
		snprintf(expected, sizeof expected, "a whole number of at least %" PRIu64, min);
	else
		snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64, min,
		         max);
	value = member(&rc, found, object, key, path, expected, err);
	if (!value)
		return rc;
	if (!as_u64(&number, value) || number < min || number > max)
		return refuse(value, key, path, expected, err);
	*out = number;
	return ADP_OK;
}

int adp_doc_double(double *out, bool *found, const json_t *object, const char *key, double min,
                   double max, const char *path, struct adp_error *err)
{
	char expected[96];
	const json_t *value;
	double number;
	int rc;

	if (max >= 1e300 && min <= -1e300)
		snprintf(expected, sizeof expected, "a finite number");
	else if (max >= 1e300)
		snprintf(expected, sizeof expected, "a number of at least %.6g", min);
	else
		snprintf(expected, sizeof expected, "a number from %.6g to %.6g", min, max);
	value = member(&rc, found, object, key, path, expected, err);
	if (!value)
		return rc;
	number = json_number_value(value);
	if (!json_is_number(value) || !(number >= min && number <= max) || !isfinite(number))
		return refuse(value, key, path, expected, err);
	*out = number;
	return ADP_OK;
}

int adp_doc_bool(bool *out, bool *found, const json_t *object, const char *key, const char *path,
                 struct adp_error *err)
{
	int rc;
	const json_t *value = member(&rc, found, object, key, path, "true or false", err);

	if (!value)
		return rc;
	if (!json_is_boolean(value))
		return refuse(value, key, path, "true or false", err);
	*out = json_is_true(value);
	return ADP_OK;
}

int adp_doc_string(const char **out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err)
{
	int rc;
	const json_t *value = member(&rc, found, object, key, path, "a string", err);

	if (!value)
		return rc;
	if (!json_is_string(value))
		return refuse(value, key, path, "a string (in quotes)", err);
	*out = json_string_value(value);
	return ADP_OK;
}

int adp_doc_array(json_t **out, bool *found, const json_t *object, const char *key,
                  const char *path, struct adp_error *err)
{
	int rc;
	json_t *value = member(&rc, found, object, key, path, "an array", err);

	if (!value)
		return rc;
	if (!json_is_array(value))
		return refuse(value, key, path, "an array", err);
	*out = value;
	return ADP_OK;
}

int adp_doc_object(json_t **out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err)
{
	int rc;
	json_t *value = member(&rc, found, object, key, path, "an object", err);

	if (!value)
		return rc;
	if (!json_is_object(value))
		return refuse(value, key, path, "an object", err);
	*out = value;
	return ADP_OK;
}

/* Edits (insert, delete, replace) from a to b; both are cut to 63 characters, enough to find a near
 * name. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[64], above_left, above;
	unsigned n_a = (unsigned)strnlen(a, 63), n_b = (unsigned)strnlen(b, 63), best;

	for (unsigned j = 0; j <= n_b; j++)
		row[j] = j;
	for (unsigned i = 1; i <= n_a; i++) {
		above_left = row[0];
		row[0] = i;
		for (unsigned j = 1; j <= n_b; j++) {
			above = row[j];
			best = above_left + (a[i - 1] != b[j - 1]);
			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
			above_left = above;
		}
	}
	return row[n_b];
}

static int refuse_key(const char *key, const char *const *allowed, const char *path,
                      struct adp_error *err)
{
	struct adp_strbuf list = {0};
	const char *nearest = NULL;
	unsigned least = (unsigned)strnlen(key, 63) / 2 + 1, edits; /* further off is no misspelling */

	for (; *allowed; allowed++) {
		edits = distance(key, *allowed);
		if (edits < least) {
			least = edits;
			nearest = *allowed;
		}
		adp_strbuf_addf(&list, "%s%s", list.len ? ", " : "", *allowed);
	}
	adp_fail(err, ADP_EINVAL, "%s%s%.80s is not a known key; %s%s%sallowed: %s", path,
	         path[0] ? "." : "", key, nearest ? "did you mean '" : "", nearest ? nearest : "",
	         nearest ? "'? " : "", list.failed || !list.len ? "(none)" : list.text);
	adp_strbuf_fini(&list);
	return ADP_EINVAL;
}

int adp_doc_only(const json_t *object, const char *const *allowed, const char *path,
                 struct adp_error *err)
{
	char shown[SHOWN_SIZE];
	const char *key;
	const json_t *value;

	if (!json_is_object(object))
		return adp_fail(err, ADP_EINVAL, "%s: an object is expected, not %s",
		                path[0] ? path : "document", object ? show(shown, object) : "nothing");
	json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
		if (!adp_doc_is_skipped(allowed, key, strlen(key)))
			return refuse_key(key, allowed, path, err);
	}
	return ADP_OK;
}
