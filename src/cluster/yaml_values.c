/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/yaml_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adp/units.h"
#include "base/doc.h"
#include "base/number.h"
#include "cluster/cluster_build.h"
#include "cluster/name.h"

enum { WHAT_SIZE = 320 };

static const char *place(char out[WHAT_SIZE], const char *path, const char *key)
{
	snprintf(out, WHAT_SIZE, "%s%s%s", path, *path ? "." : "", key);
	return out;
}

/* The member, NULL when it is missing or null. */
static const json_t *member(bool *found, const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_null(value))
		value = NULL;
	if (found)
		*found = value != NULL;
	return value;
}

int adp_yaml_bandwidth(double *out, bool *found, const json_t *object, const char *key,
                       const char *path, struct adp_error *err)
{
	const json_t *value = member(found, object, key);
	char what[WHAT_SIZE];
	double number;
	int rc;

	if (!value)
		return ADP_OK;
	place(what, path, key);
	if (!json_is_string(value))
		return adp_fail(
			err, ADP_EINVAL,
			"%s: give a bandwidth with its unit, such as 400Gb/s (bits) or 50GB/s (bytes)", what);
	rc = adp_parse_bandwidth(&number, json_string_value(value), what, err);
	if (rc)
		return rc;
	if (!(number >= 1 && number <= 1e18))
		return adp_fail(
			err, ADP_EINVAL,
			"%s: '%.60s' is not between 1 B/s and 1 EB/s; leave the key out where nothing "
			"is known",
			what, json_string_value(value));
	*out = number;
	return ADP_OK;
}

int adp_yaml_duration(double *out, const json_t *object, const char *key, const char *path,
                      struct adp_error *err)
{
	const json_t *value = member(NULL, object, key);
	char what[WHAT_SIZE];
	double number;
	int rc;

	if (!value)
		return ADP_OK;
	place(what, path, key);
	if (!json_is_string(value))
		return adp_fail(err, ADP_EINVAL, "%s: give a time with its unit, such as 5us", what);
	rc = adp_parse_duration(&number, json_string_value(value), what, err);
	if (rc)
		return rc;
	if (!(number >= 0 && number <= 3600))
		return adp_fail(err, ADP_EINVAL, "%s: '%.60s' is more than an hour", what,
		                json_string_value(value));
	*out = number;
	return ADP_OK;
}

/* A share as a number or text. */
static int read_share(double *out, const json_t *value, const char *what, struct adp_error *err)
{
	if (json_is_number(value)) {
		*out = json_number_value(value);
		return ADP_OK;
	}
	if (json_is_string(value))
		return adp_parse_frac(out, json_string_value(value), what, err);
	return adp_fail(err, ADP_EINVAL, "%s: give a share such as 0.2 or 20%%", what);
}

int adp_yaml_load(double *out, const json_t *object, const char *key, const char *path,
                  struct adp_error *err)
{
	const json_t *value = member(NULL, object, key);
	char what[WHAT_SIZE];
	double number;
	int rc;

	if (!value)
		return ADP_OK;
	rc = read_share(&number, value, place(what, path, key), err);
	if (rc)
		return rc;
	if (!(number >= 0 && number < 1))
		return adp_fail(
			err, ADP_EINVAL,
			"%s: %.17g is not a load from 0 to below 1; a link that carries nothing for "
			"this job can't be used",
			what, number);
	*out = number;
	return ADP_OK;
}

int adp_yaml_speed(double *out, const json_t *value, const char *what, struct adp_error *err)
{
	double number;
	int rc = read_share(&number, value, what, err);

	if (rc)
		return rc;
	if (!(number >= ADP_LEAST_SPEED && number <= 1))
		return adp_fail(err, ADP_EINVAL,
		                "%s: %.17g is not a relative speed from 0.001 to 1; to leave a GPU out, "
		                "lower the node's number of GPUs",
		                what, number);
	*out = number;
	return ADP_OK;
}

static bool watts_of_text(double *out, const char *text)
{
	static const struct {
		const char *unit;
		double watts;
	} units[] = {{"W", 1}, {"kW", 1e3}, {"KW", 1e3}, {"MW", 1e6}};
	size_t n = adp_number_span(text, strlen(text));

	if (!n || !adp_number_parse(out, text, n))
		return false;
	for (text += n; *text == ' ';)
		text++;
	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		if (strcmp(text, units[i].unit) == 0) {
			*out *= units[i].watts;
			return true;
		}
	}
	return false;
}

int adp_yaml_watts(double *out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err)
{
	const json_t *value = member(found, object, key);
	char what[WHAT_SIZE];
	double number = 0;
	bool good;

	if (!value)
		return ADP_OK;
	place(what, path, key);
	if (json_is_number(value)) {
		number = json_number_value(value);
		good = true;
	} else {
		good = json_is_string(value) && watts_of_text(&number, json_string_value(value));
	}
	if (!good || !(number > 0 && number <= 1e12))
		return adp_fail(err, ADP_EINVAL, "%s: give a power above 0, such as 700W, 400kW or 2MW",
		                what);
	*out = number;
	return ADP_OK;
}

int adp_yaml_bytes(uint64_t *out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err)
{
	const json_t *value = member(found, object, key);
	char what[WHAT_SIZE];

	if (!value)
		return ADP_OK;
	place(what, path, key);
	if (!json_is_string(value))
		return adp_fail(err, ADP_EINVAL, "%s: give a size with its unit, such as 80GiB", what);
	return adp_parse_bytes(out, json_string_value(value), what, err);
}

int adp_yaml_name(const char **out, const json_t *object, const char *key, const char *path,
                  struct adp_error *err)
{
	char what[WHAT_SIZE];
	const char *text;
	bool found;
	int rc = adp_doc_string(&text, &found, object, key, path, err);

	if (rc || !found)
		return rc;
	if (!adp_name_is_plain(text))
		return adp_fail(err, ADP_EINVAL, "%s: a name must be printable and 1 to %d bytes long",
		                place(what, path, key), ADP_NAME_MAX);
	*out = text;
	return ADP_OK;
}

int adp_yaml_u32(uint32_t *out, bool *found, const json_t *object, const char *key, uint32_t min,
                 uint32_t max, const char *path, struct adp_error *err)
{
	bool given;
	uint64_t number;
	int rc = adp_doc_u64(&number, &given, object, key, min, max, path, err);

	if (!rc && given)
		*out = (uint32_t)number;
	if (found)
		*found = given;
	return rc;
}

bool adp_yaml_is_pattern(const char *text)
{
	return strchr(text, '{') != NULL;
}

int adp_yaml_expand(char out[254], const char *pattern, uint64_t index, const char *what,
                    struct adp_error *err)
{
	const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
	int width = 0, n;

	if (!open) {
		n = snprintf(out, ADP_NAME_SIZE, "%s", pattern);
	} else {
		if (close && close == open + 3 && open[1] == '0' && open[2] >= '1' && open[2] <= '9')
			width = open[2] - '0';
		else if (!close || close != open + 1)
			close = NULL;
		if (!close || strchr(close, '{'))
			return adp_fail(
				err, ADP_EINVAL,
				"%s: '%.60s' must have one '{}' for the number, or '{03}' for three digits", what,
				pattern);
		n = snprintf(out, ADP_NAME_SIZE, "%.*s%0*" PRIu64 "%s", (int)(open - pattern), pattern,
		             width, index, close + 1);
	}
	if (n < 0 || n > ADP_NAME_MAX)
		return adp_fail(err, ADP_EINVAL, "%s: '%.60s' gives names of more than %d bytes", what,
		                pattern, ADP_NAME_MAX);
	return ADP_OK;
}
