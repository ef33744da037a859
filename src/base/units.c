/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

struct unit {
	const char *name;
	double factor;
};

static const struct unit byte_units[] = {
	{"", 1},         {"B", 1},        {"k", 1e3},      {"K", 1e3},      {"kB", 1e3},
	{"KB", 1e3},     {"Ki", 0x1p10},  {"KiB", 0x1p10}, {"M", 1e6},      {"MB", 1e6},
	{"Mi", 0x1p20},  {"MiB", 0x1p20}, {"G", 1e9},      {"GB", 1e9},     {"Gi", 0x1p30},
	{"GiB", 0x1p30}, {"T", 1e12},     {"TB", 1e12},    {"Ti", 0x1p40},  {"TiB", 0x1p40},
	{"P", 1e15},     {"PB", 1e15},    {"Pi", 0x1p50},  {"PiB", 0x1p50}, {NULL, 0},
};

static const struct unit bandwidth_units[] = {
	{"B/s", 1},        {"Bps", 1},        {"b/s", 0.125},    {"bps", 0.125},    {"bit/s", 0.125},
	{"kB/s", 1e3},     {"KB/s", 1e3},     {"KiB/s", 0x1p10}, {"kb/s", 125},     {"Kb/s", 125},
	{"Kbps", 125},     {"kbit/s", 125},   {"MB/s", 1e6},     {"MBps", 1e6},     {"MiB/s", 0x1p20},
	{"Mb/s", 125e3},   {"Mbps", 125e3},   {"Mbit/s", 125e3}, {"GB/s", 1e9},     {"GBps", 1e9},
	{"GiB/s", 0x1p30}, {"Gb/s", 125e6},   {"Gbps", 125e6},   {"Gbit/s", 125e6}, {"TB/s", 1e12},
	{"TBps", 1e12},    {"TiB/s", 0x1p40}, {"Tb/s", 125e9},   {"Tbps", 125e9},   {"Tbit/s", 125e9},
	{NULL, 0},
};

static const struct unit duration_units[] = {
	{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6}, {"ms", 1e-3},  {"s", 1},  {"m", 60},
	{"min", 60},  {"h", 3600},  {"d", 86400},        {"w", 604800}, {NULL, 0},
};

static const struct unit count_units[] = {
	{"", 1},    {"k", 1e3}, {"K", 1e3},  {"m", 1e6},  {"M", 1e6},  {"b", 1e9},
	{"B", 1e9}, {"G", 1e9}, {"t", 1e12}, {"T", 1e12}, {"P", 1e15}, {NULL, 0},
};

/* Longest text shown back to the user. */
#define SHOWN "%.80s"

static int refuse(struct adp_error *err, const char *what, const char *text, const char *expected)
{
	return adp_fail(err, ADP_EINVAL, "%s: '" SHOWN "' is not %s", what, text, expected);
}

static const struct unit *find_unit(const struct unit *units, const char *name, size_t len)
{
	for (; units->name; units++) {
		if (strlen(units->name) == len && memcmp(units->name, name, len) == 0)
			return units;
	}
	return NULL;
}

/* Characters up to the next digit, '.' or blank: a unit's name. */
static size_t unit_span(const char *text)
{
	return strcspn(text, "0123456789. \t\n");
}

/* A number, blanks, a unit; *rest is what follows. */
static const struct unit *read_quantity(double *number, const char **rest, const char *text,
                                        const struct unit *units)
{
	size_t n = adp_number_span(text, strlen(text)), len;
	const struct unit *unit;

	if (!n || !adp_number_parse(number, text, n))
		return NULL;
	text += n;
	text += strspn(text, " ");
	len = unit_span(text);
	unit = find_unit(units, text, len);
	*rest = text + len;
	return unit;
}

int adp_parse_u64(uint64_t *out, const char *text, const char *what, struct adp_error *err)
{
	uint64_t value = 0;

	if (!text[0] || text[strspn(text, "0123456789")])
		return refuse(err, what, text, "a whole number such as 8");
	for (const char *p = text; *p; p++) {
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return adp_fail(err, ADP_EINVAL,
			                "%s: '" SHOWN "' is too large; at most 18446744073709551615", what,
			                text);
	}
	*out = value;
	return ADP_OK;
}

int adp_parse_bytes(uint64_t *out, const char *text, const char *what, struct adp_error *err)
{
	const char *expected = "a size in bytes such as 80GiB, 80GB, 512MiB or 1024";
	const struct unit *unit;
	const char *rest;
	double number, bytes;

	if (text[0] && !text[strspn(text, "0123456789")])
		return adp_parse_u64(out, text, what, err);
	unit = read_quantity(&number, &rest, text, byte_units);
	if (!unit || *rest)
		return refuse(err, what, text, expected);
	bytes = number * unit->factor;
	if (!(bytes < 0x1p64))
		return adp_fail(err, ADP_EINVAL,
		                "%s: '" SHOWN "' is too large; at most 16 EiB less one byte", what, text);
	if ((unit->factor == 1 && bytes != floor(bytes)) || (bytes > 0 && bytes < 0.5))
		return refuse(err, what, text, expected);
	*out = bytes < 0x1p53 ? (uint64_t)(bytes + 0.5) : (uint64_t)bytes;
	return ADP_OK;
}

int adp_parse_bandwidth(double *out, const char *text, const char *what, struct adp_error *err)
{
	const struct unit *unit;
	const char *rest;
	double number;

	unit = read_quantity(&number, &rest, text, bandwidth_units);
	if (!unit || *rest || !isfinite(number * unit->factor))
		return refuse(err, what, text,
		              "a bandwidth with its unit, such as 400Gb/s (bits) or 50GB/s (bytes)");
	*out = number * unit->factor;
	return ADP_OK;
}

int adp_parse_duration(double *out, const char *text, const char *what, struct adp_error *err)
{
	const char *expected = "a time with its unit, such as 30d, 12h, 1h30m, 10s or 20us";
	const struct unit *unit;
	const char *rest = text;
	double number, seconds = 0, last_factor = INFINITY;

	do { /* "1d12h": units from large to small */
		unit = read_quantity(&number, &rest, rest, duration_units);
		if (!unit || unit->factor >= last_factor)
			return refuse(err, what, text, expected);
		last_factor = unit->factor;
		seconds += number * unit->factor;
	} while (*rest);
	if (!isfinite(seconds))
		return refuse(err, what, text, expected);
	*out = seconds;
	return ADP_OK;
}

int adp_parse_count(double *out, const char *text, const char *what, struct adp_error *err)
{
	const char *expected = "a count such as 15T, 2.5B, 300M, 1e12 or 4096";
	const struct unit *unit;
	const char *rest;
	double number, count;

	unit = read_quantity(&number, &rest, text, count_units);
	if (!unit || *rest)
		return refuse(err, what, text, expected);
	count = number * unit->factor;
	if (!isfinite(count))
		return refuse(err, what, text, expected);
	*out = count;
	return ADP_OK;
}

int adp_parse_frac(double *out, const char *text, const char *what, struct adp_error *err)
{
	size_t n = adp_number_span(text, strlen(text));
	double number;

	if (!n || !adp_number_parse(&number, text, n))
		return refuse(err, what, text, "a share between 0 and 1, such as 0.2 or 20%");
	if (strcmp(text + n, "%") == 0)
		number /= 100;
	else if (text[n])
		return refuse(err, what, text, "a share between 0 and 1, such as 0.2 or 20%");
	if (number > 1)
		return adp_fail(err, ADP_EINVAL,
		                "%s: '" SHOWN "' is more than 1; write 0.2 or 20%% for a fifth", what,
		                text);
	*out = number;
	return ADP_OK;
}

/* Decimals that give three significant digits. */
static int decimals(double value)
{
	return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

/* The first unit in which value (as shown) is below step; the last one takes the rest. */
static char *format_scaled(char *out, size_t size, double value, double step,
                           const char *const *units, int n_units, const char *gap)
{
	const char *sign = value < 0 ? "-" : "";
	int i = 0;

	if (!isfinite(value)) {
		snprintf(out, size, "%s", isnan(value) ? "unknown" : value < 0 ? "-infinite" : "infinite");
		return out;
	}
	value = fabs(value);
	for (; i < n_units - 1 && value >= step - 0.5; i++)
		value /= step;
	snprintf(out, size, "%s%.*f%s%s", sign, i || value != floor(value) ? decimals(value) : 0, value,
	         units[i][0] ? gap : "", units[i]);
	return out;
}

char *adp_format_bytes(char *out, size_t size, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

	return format_scaled(out, size, bytes, 1024, units, 7, " ");
}

char *adp_format_count(char *out, size_t size, double n)
{
	static const char *const units[] = {"", "k", "M", "B", "T", "P"};

	return format_scaled(out, size, n, 1000, units, 6, "");
}

char *adp_format_bandwidth(char *out, size_t size, double bytes_per_s)
{
	static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};

	return format_scaled(out, size, bytes_per_s, 1000, units, 6, " ");
}

char *adp_format_duration(char *out, size_t size, double seconds)
{
	static const struct {
		const char *name;
		double factor, below; /* used up to `below` seconds */
	} steps[] = {
		{"ns", 1e-9, 0.9995e-6}, {"us", 1e-6, 0.9995e-3}, {"ms", 1e-3, 0.9995},   {"s", 1, 120},
		{"min", 60, 7200},       {"h", 3600, 172800},     {"d", 86400, INFINITY},
	};
	const char *sign = seconds < 0 ? "-" : "";
	double value = fabs(seconds);
	int i = value == 0 ? 3 : 0; /* zero in seconds */

	if (!isfinite(seconds)) {
		snprintf(out, size, "%s",
		         isnan(seconds) ? "unknown"
		         : seconds < 0  ? "-infinite"
		                        : "infinite");
		return out;
	}
	while (value >= steps[i].below)
		i++;
	value /= steps[i].factor;
	snprintf(out, size, "%s%.*f %s", sign, value == 0 ? 0 : decimals(value), value, steps[i].name);
	return out;
}
