/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void open_c_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* built into the C library: cannot fail */
}

static size_t digits(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && text[n] >= '0' && text[n] <= '9')
		n++;
	return n;
}

size_t adp_number_span(const char *text, size_t len)
{
	size_t whole = digits(text, len), at = whole, fraction = 0, exponent, sign;

	if (at < len && text[at] == '.') {
		fraction = digits(text + at + 1, len - at - 1);
		if (whole || fraction)
			at += 1 + fraction;
	}
	if (!whole && !fraction)
		return 0;
	if (at < len && (text[at] == 'e' || text[at] == 'E')) {
		sign = at + 1 < len && (text[at + 1] == '+' || text[at + 1] == '-');
		exponent = digits(text + at + 1 + sign, len - at - 1 - sign);
		if (exponent)
			at += 1 + sign + exponent;
	}
	return at;
}

bool adp_number_parse(double *out, const char *text, size_t len)
{
	char copy[512], *end;
	size_t sign = len && text[0] == '-';
	double value;

	if (len == sign || adp_number_span(text + sign, len - sign) != len - sign)
		return false;
	/* Longer text is no number that anyone wrote. */
	if (len >= sizeof copy)
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	pthread_once(&c_locale_once, open_c_locale);
	value = strtod_l(copy, &end, c_locale);
	if (*end || !isfinite(value))
		return false;
	*out = value;
	return true;
}

void adp_number_format(char out[ADP_NUMBER_SIZE], double value)
{
	char shortest[32]; /* 17 digits, sign, point, exponent */
	locale_t old;
	double back;
	int whole;

	pthread_once(&c_locale_once, open_c_locale);
	old = uselocale(c_locale);
	for (int n_digits = 15; n_digits <= 17; n_digits++) {
		snprintf(shortest, sizeof shortest, "%.*g", n_digits, value);
		back = strtod(shortest, NULL);
		if (back == value)
			break;
	}
	uselocale(old);
	/* "1e+21" is a string to YAML 1.1: write 1.0e+21. */
	whole = (int)strcspn(shortest, "e");
	if (memchr(shortest, '.', (size_t)whole) || !isfinite(value))
		whole = 0;
	snprintf(out, ADP_NUMBER_SIZE, "%.*s%s%s", whole, shortest, whole ? ".0" : "",
	         shortest + whole);
}
