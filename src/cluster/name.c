/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/name.h"

#include <stdint.h>
#include <string.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static size_t digit_run(const char *text)
{
	size_t n = 0;

	while (is_digit(text[n]))
		n++;
	return n;
}

/* Compares the runs of digits at *a and *b by value and steps over them. */
static int compare_numbers(const char **a, const char **b)
{
	size_t len_a, len_b;
	int order;

	while (**a == '0' && is_digit((*a)[1]))
		++*a;
	while (**b == '0' && is_digit((*b)[1]))
		++*b;
	len_a = digit_run(*a);
	len_b = digit_run(*b);
	if (len_a != len_b)
		return len_a < len_b ? -1 : 1;
	order = memcmp(*a, *b, len_a);
	*a += len_a;
	*b += len_b;
	return order;
}

int adp_name_compare(const char *a, const char *b)
{
	const char *left = a, *right = b;

	while (*left && *right) {
		if (is_digit(*left) && is_digit(*right)) {
			int order = compare_numbers(&left, &right);

			if (order)
				return order;
			continue;
		}
		if (*left != *right)
			return (unsigned char)*left < (unsigned char)*right ? -1 : 1;
		left++;
		right++;
	}
	if (*left || *right)
		return *left ? 1 : -1;
	return strcmp(a, b); /* "a1" and "a01" are equal in value, not in text */
}

bool adp_name_is_host(const char *text)
{
	size_t len = strlen(text);

	if (!len || len > ADP_NAME_MAX || !is_alnum(text[0]))
		return false;
	for (; *text; text++) {
		if (!is_alnum(*text) && *text != '.' && *text != '-' && *text != '_')
			return false;
	}
	return true;
}

bool adp_name_is_plain(const char *text)
{
	size_t len = strlen(text);

	if (!len || len > ADP_NAME_MAX)
		return false;
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c < 0x20 || *c == 0x7f)
			return false;
		if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) /* C1 control characters in UTF-8 */
			return false;
	}
	return true;
}

char *adp_name_shown(char *out, size_t size, const char *text)
{
	size_t at = 0;

	for (; text[at] && at + 1 < size; at++)
		out[at] = (text[at] >= 0x20 && text[at] < 0x7f) ? text[at] : '?';
	if (text[at] && size > 4)
		memcpy(out + size - 4, "...", 3);
	out[at] = '\0';
	return out;
}

char *adp_name_gpu(char *out, size_t size, const char *text, size_t len)
{
	static const char *const prefixes[] = {"nvidia-", "tesla-", "geforce-", "amd-", "instinct-"};
	size_t n = 0, start = 0;

	while (len && text[len - 1] == ' ')
		len--;
	while (len && *text == ' ') {
		text++;
		len--;
	}
	for (; n < len && n + 1 < size; n++) {
		out[n] = lower(text[n]);
		if (out[n] == '_' || out[n] == ' ')
			out[n] = '-';
	}
	out[n] = '\0';
	for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes;) {
		size_t prefix = strlen(prefixes[i]);

		if (strncmp(out + start, prefixes[i], prefix) == 0) {
			start += prefix;
			i = 0;
		} else {
			i++;
		}
	}
	memmove(out, out + start, n - start + 1);
	return out;
}

size_t adp_name_distance(const char *a, const char *b)
{
	enum { MAX = 64 };
	size_t row[MAX], len_a = strlen(a), len_b = strlen(b);

	if (len_a >= MAX || len_b >= MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= len_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= len_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= len_b; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[len_b];
}
