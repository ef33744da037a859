/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"

static const char table_name[] = "megatron_flags.csv";

struct table {
	struct adp_csv csv;
	uint32_t flag, type, choices, excludes, requires, since, until;
};

static int open_table(struct table *t, struct adp_arena *arena, char **owned, struct adp_error *err)
{
	const struct {
		const char *name;
		uint32_t *column;
	} columns[] = {
		{"flag", &t->flag},         {"type", &t->type},         {"choices", &t->choices},
		{"excludes", &t->excludes}, {"requires", &t->requires}, {"since", &t->since},
		{"until", &t->until},
	};
	const char *text;
	size_t len;
	int rc = adp_data_open(&text, &len, owned, table_name, NULL, err);

	if (rc == ADP_OK)
		rc = adp_csv_read(&t->csv, arena, text, len, table_name, err);
	for (size_t i = 0; rc == ADP_OK && i < sizeof columns / sizeof columns[0]; i++)
		rc = adp_csv_column(columns[i].column, &t->csv, columns[i].name, err);
	return rc;
}

/* "0.16.1" as 16001; absent parts are 0. */
static bool parse_version(uint64_t *out, const char *text)
{
	enum { PARTS = 3, LIMIT = 1000 };
	uint64_t version = 0;

	for (int part = 0; part < PARTS; part++) {
		uint64_t number = 0;

		if (*text) {
			const char *start = text;

			for (; *text >= '0' && *text <= '9' && number < LIMIT; text++)
				number = number * 10 + (uint64_t)(*text - '0');
			if (text == start || number >= LIMIT || (*text && *text != '.'))
				return false;
			if (*text == '.' && *++text == '\0')
				return false;
		} else if (part == 0) {
			return false;
		}
		version = version * LIMIT + number;
	}
	*out = version;
	return *text == '\0';
}

/* Is word one of the blank-separated words of list? */
static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");

		if (n == len && memcmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

/* Non-negative decimal number at *p; advances it. */
static bool take_integer(const char **p, uint64_t *value)
{
	size_t digits = strspn(*p, "0123456789");
	char *end;

	if (digits == 0 || digits > 18)
		return false;
	*value = strtoull(*p, &end, 10);
	*p = end;
	return true;
}

/* choices of a number: "1..", "0..1", "4"; empty = any. */
static bool in_range(const char *choices, uint64_t value)
{
	const char *p = choices;
	uint64_t low, high;

	if (*p == '\0')
		return true;
	if (!take_integer(&p, &low))
		return false;
	if (*p == '\0')
		return value == low;
	if (strncmp(p, "..", 2) != 0)
		return false;
	p += 2;
	if (*p == '\0')
		return value >= low;
	return take_integer(&p, &high) && *p == '\0' && value >= low && value <= high;
}

static bool is_integer(const char *choices, const char *value)
{
	uint64_t number;

	return take_integer(&value, &number) && *value == '\0' && in_range(choices, number);
}

bool emit_is_number(const char *value)
{
	char *end;
	double number;

	if (strspn(value, "0123456789.e-") != strlen(value) || *value < '0' || *value > '9')
		return false;
	errno = 0;
	number = strtod(value, &end);
	return *end == '\0' && errno == 0 && isfinite(number);
}

/* "4095,0" */
static bool is_pair(const char *value)
{
	uint64_t number;

	if (!take_integer(&value, &number) || *value++ != ',')
		return false;
	return take_integer(&value, &number) && *value == '\0';
}

/* A number, or a list expression of zeros and ones such as ([0]*3+[1]*58). */
static bool is_frequency(const char *value)
{
	return is_integer("1..", value) || (value[0] == '(' && value[strlen(value) - 1] == ')' &&
	                                    strspn(value, "0123456789[]()+*") == strlen(value));
}

static bool is_layout(const char *value)
{
	size_t len = strlen(value);

	return len >= 2 && value[0] == 'E' && value[len - 1] == 'L' &&
	       strspn(value, "EtL|*0123456789") == len;
}

static bool value_fits(const char *type, const char *choices, const char *value)
{
	if (strcmp(type, "flag") == 0)
		return value == NULL;
	if (!value || *value == '\0')
		return false;
	if (strcmp(type, "int") == 0)
		return is_integer(choices, value);
	if (strcmp(type, "float") == 0)
		return emit_is_number(value);
	if (strcmp(type, "choice") == 0)
		return has_word(choices, value);
	if (strcmp(type, "pair") == 0)
		return is_pair(value);
	if (strcmp(type, "frequency") == 0)
		return is_frequency(value);
	if (strcmp(type, "text") == 0)
		return strpbrk(value, "\r\n") == NULL;
	return strcmp(type, "layout") == 0 && is_layout(value);
}

/* condition is "--flag" or "--flag=value". */
static bool holds(const struct emit_arg *args, uint32_t n, const char *condition, size_t len)
{
	const char *equals = memchr(condition, '=', len);
	size_t flag_len = equals ? (size_t)(equals - condition) : len;

	for (uint32_t i = 0; i < n; i++) {
		if (strlen(args[i].flag) != flag_len || memcmp(args[i].flag, condition, flag_len) != 0)
			continue;
		if (!equals)
			return true;
		if (args[i].value && strlen(args[i].value) == len - flag_len - 1 &&
		    memcmp(args[i].value, equals + 1, len - flag_len - 1) == 0)
			return true;
	}
	return false;
}

/* "a|b": either. */
static bool any_holds(const struct emit_arg *args, uint32_t n, const char *alternatives, size_t len)
{
	for (const char *end = alternatives + len; alternatives < end;) {
		const char *bar = memchr(alternatives, '|', (size_t)(end - alternatives));
		const char *stop = bar ? bar : end;

		if (holds(args, n, alternatives, (size_t)(stop - alternatives)))
			return true;
		alternatives = stop + 1;
	}
	return false;
}

/* All words of list must hold (required) or none may. */
static int check_others(const struct emit_arg *args, uint32_t n, const char *flag, const char *list,
                        bool required, struct adp_error *err)
{
	for (const char *p = list; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		if (any_holds(args, n, p, len) != required)
			return adp_fail(err, ADP_EINTERNAL, "%s: %s %s %.*s", table_name, flag,
			                required ? "needs" : "excludes", (int)len, p);
		p += len;
	}
	return ADP_OK;
}

static int check_arg(const struct table *t, const struct emit_arg *args, uint32_t n, uint32_t index,
                     uint64_t version, const char *version_text, struct adp_error *err)
{
	const struct emit_arg *arg = &args[index];
	const char *value = arg->value ? arg->value : "(none)";
	uint64_t since = 0, until = UINT64_MAX;
	uint32_t row = 0;
	int rc;

	while (row < t->csv.n_rows && strcmp(adp_csv_cell(&t->csv, row, t->flag), arg->flag) != 0)
		row++;
	if (row == t->csv.n_rows)
		return adp_fail(err, ADP_EINTERNAL, "%s: no flag %s", table_name, arg->flag);
	if (!parse_version(&since, adp_csv_cell(&t->csv, row, t->since)) ||
	    (*adp_csv_cell(&t->csv, row, t->until) &&
	     !parse_version(&until, adp_csv_cell(&t->csv, row, t->until))))
		return adp_fail(err, ADP_EINTERNAL, "%s:%u: since and until must be versions", table_name,
		                t->csv.line[row]);
	if (version < since || version > until)
		return adp_fail(err, ADP_EINVAL,
		                "Megatron-Core %s has no %s, which this plan needs (since %s); plan for a "
		                "newer one",
		                version_text, arg->flag, adp_csv_cell(&t->csv, row, t->since));
	if (!value_fits(adp_csv_cell(&t->csv, row, t->type), adp_csv_cell(&t->csv, row, t->choices),
	                arg->value))
		return adp_fail(err, ADP_EINTERNAL, "%s:%u: %s does not take %s", table_name,
		                t->csv.line[row], arg->flag, value);
	for (uint32_t i = 0; i < index; i++)
		if (strcmp(args[i].flag, arg->flag) == 0)
			return adp_fail(err, ADP_EINTERNAL, "%s given twice", arg->flag);
	rc = check_others(args, n, arg->flag, adp_csv_cell(&t->csv, row, t->excludes), false, err);
	if (rc == ADP_OK)
		rc = check_others(args, n, arg->flag, adp_csv_cell(&t->csv, row, t->requires), true, err);
	return rc;
}

int emit_flags_check(const struct emit_arg *args, uint32_t n, const char *version,
                     struct adp_error *err)
{
	struct adp_arena arena = {0};
	struct table table = {0};
	char *owned = NULL;
	uint64_t number;
	int rc;

	if (!version || !parse_version(&number, version))
		return adp_fail(err, ADP_EINVAL, "engine version '%s': expected one like 0.16.1",
		                version ? version : "");
	rc = open_table(&table, &arena, &owned, err);
	for (uint32_t i = 0; rc == ADP_OK && i < n; i++)
		rc = check_arg(&table, args, n, i, number, version, err);
	adp_free(owned);
	adp_arena_fini(&arena);
	return rc;
}
