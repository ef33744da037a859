/* SPDX-License-Identifier: Apache-2.0 */
/* links: base; covers: src/base/units.c src/base/number.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/units.h"
#include "base/number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int parse_fn(double *out, const char *text, const char *what, struct adp_error *err);
typedef char *format_fn(char *out, size_t size, double value);

/* Accepted means finite and not negative; what is shown for it fits and is terminated, in any size.
 */
static void try_unit(const char *text, parse_fn *parse, format_fn *format)
{
	struct adp_error err = {0};
	char shown[64], cut[4];
	double value;

	if (parse(&value, text, "value", &err)) {
		if (!err.text[0])
			abort();
		return;
	}
	if (!isfinite(value) || value < 0)
		abort();
	if (strlen(format(shown, sizeof shown, value)) == 0 ||
	    strlen(format(cut, sizeof cut, -value)) >= sizeof cut)
		abort();
}

static int parse_bytes(double *out, const char *text, const char *what, struct adp_error *err)
{
	uint64_t bytes;
	int rc = adp_parse_bytes(&bytes, text, what, err);

	if (!rc)
		*out = (double)bytes;
	return rc;
}

static int parse_u64(double *out, const char *text, const char *what, struct adp_error *err)
{
	uint64_t n;
	int rc = adp_parse_u64(&n, text, what, err);

	if (!rc)
		*out = (double)n;
	return rc;
}

static void try_number(const char *text, size_t len)
{
	char shown[ADP_NUMBER_SIZE];
	double value, back;

	if (!adp_number_parse(&value, text, len))
		return;
	adp_number_format(shown, value);
	if (!adp_number_parse(&back, shown, strlen(shown)) || memcmp(&back, &value, sizeof back) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	try_unit(text, parse_bytes, adp_format_bytes);
	try_unit(text, parse_u64, adp_format_count);
	try_unit(text, adp_parse_bandwidth, adp_format_bandwidth);
	try_unit(text, adp_parse_duration, adp_format_duration);
	try_unit(text, adp_parse_count, adp_format_count);
	try_unit(text, adp_parse_frac, adp_format_count);
	try_number(text, size);
	free(text);
	return 0;
}
