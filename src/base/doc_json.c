/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own reader into jansson's values: jansson's names neither the field nor, reliably, the lack of
 * memory (it comes out as a syntax error), allows 2048 levels and cannot leave members out.
 */
#include <string.h>

#include "base/doc_internal.h"
#include "base/number.h"
#include "base/strbuf.h"
#include "base/utf8.h"

/* Where a level is: a member (key with its length, as written) or an element. */
struct place {
	const char *key;
	size_t len, index;
};

struct reader {
	const char *text, *where;
	size_t len, at;
	const char *const *skip;
	unsigned depth, n_skipped; /* n_skipped > 0: inside a member that isn't kept */
	struct adp_strbuf scratch; /* an unescaped string */
	struct adp_error *err;
	struct place places[ADP_DOC_MAX_DEPTH];
};

static void add_path(struct adp_strbuf *out, const struct reader *in)
{
	for (unsigned i = 0; i < in->depth; i++) {
		const struct place *place = &in->places[i];

		if (place->key)
			adp_strbuf_addf(out, "%s%.*s", out->len ? "." : "",
			                (int)(place->len < 80 ? place->len : 80), place->key);
		else
			adp_strbuf_addf(out, "[%zu]", place->index);
	}
}

static int fail_here(const struct reader *in, int code, const char *problem)
{
	struct adp_strbuf path = {0};
	size_t line = 1, column = 1;

	for (size_t i = 0; i < in->at && i < in->len; i++) {
		column++;
		if (in->text[i] == '\n') {
			line++;
			column = 1;
		}
	}
	add_path(&path, in);
	adp_fail(in->err, code, "%s:%zu:%zu: %s%s%s", in->where, line, column, problem,
	         path.len ? " in " : "", path.len ? path.text : "");
	adp_strbuf_fini(&path);
	return code;
}

static int fail_syntax(const struct reader *in, const char *problem)
{
	return fail_here(in, ADP_EINVAL, in->at < in->len ? problem : "the text ends too early");
}

static void skip_blanks(struct reader *in)
{
	while (in->at < in->len && (in->text[in->at] == ' ' || in->text[in->at] == '\n' ||
	                            in->text[in->at] == '\r' || in->text[in->at] == '\t'))
		in->at++;
}

static bool starts_with(const struct reader *in, const char *word)
{
	size_t len = strlen(word);

	return in->len - in->at >= len && memcmp(in->text + in->at, word, len) == 0;
}

static int read_hex4(struct reader *in, unsigned *out)
{
	unsigned value = 0;

	for (int i = 0; i < 4; i++, in->at++) {
		char c = in->at < in->len ? in->text[in->at] : '\0';

		if (c >= '0' && c <= '9')
			value = value * 16 + (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value * 16 + (unsigned)(c - 'a') + 10;
		else if (c >= 'A' && c <= 'F')
			value = value * 16 + (unsigned)(c - 'A') + 10;
		else
			return fail_syntax(in, "\\u needs four hexadecimal digits");
	}
	*out = value;
	return ADP_OK;
}

static int read_unicode_escape(struct reader *in)
{
	unsigned code = 0, low = 0;
	char utf8[4];
	int rc = read_hex4(in, &code);

	if (rc)
		return rc;
	if (code >= 0xd800 && code < 0xdc00 && starts_with(in, "\\u")) {
		in->at += 2;
		rc = read_hex4(in, &low);
		if (rc)
			return rc;
		if (low < 0xdc00 || low > 0xdfff)
			return fail_syntax(in, "half of a surrogate pair");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	if (code == 0 || (code >= 0xd800 && code < 0xe000))
		return fail_syntax(in, code ? "half of a surrogate pair" : "a NUL character (\\u0000)");
	adp_strbuf_addn(&in->scratch, utf8, adp_utf8_encode(utf8, code));
	return ADP_OK;
}

static int read_escape(struct reader *in)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;
	char c;

	in->at++; /* the backslash */
	if (in->at >= in->len)
		return fail_syntax(in, "");
	c = in->text[in->at];
	found = strchr(from, c);
	in->at++;
	if (c == 'u')
		return read_unicode_escape(in);
	if (!found) {
		in->at--;
		return fail_syntax(in, "an unknown escape after '\\'");
	}
	adp_strbuf_addn(&in->scratch, to + (found - from), 1);
	return ADP_OK;
}

/* *out is in the text, or in scratch until the next string. in->at is at the opening quote. */
static int read_text(struct reader *in, const char **out, size_t *len)
{
	size_t start = ++in->at, run;
	bool escaped = false;
	int rc;

	for (run = start;; in->at++) {
		while (in->at < in->len && in->text[in->at] != '"' && in->text[in->at] != '\\' &&
		       (unsigned char)in->text[in->at] >= 0x20)
			in->at++;
		if (in->at >= in->len || in->text[in->at] == '"')
			break;
		if (in->text[in->at] != '\\')
			return fail_syntax(
				in, "a control character in a string; write it as an escape such as \\n");
		if (!escaped)
			in->scratch.len = 0;
		escaped = true;
		adp_strbuf_addn(&in->scratch, in->text + run, in->at - run);
		rc = read_escape(in);
		if (rc)
			return rc;
		run = in->at--;
	}
	if (in->at >= in->len)
		return fail_syntax(in, "");
	*out = in->text + start;
	*len = in->at - start;
	if (escaped) {
		adp_strbuf_addn(&in->scratch, in->text + run, in->at - run);
		*out = in->scratch.text;
		*len = in->scratch.len;
	}
	in->at++;
	return in->scratch.failed ? adp_nomem(in->err) : ADP_OK;
}

static int give(const struct reader *in, json_t **out, json_t *value)
{
	*out = value;
	return value ? ADP_OK : adp_nomem(in->err);
}

static int read_string(struct reader *in, json_t **out)
{
	const char *text = NULL;
	size_t len = 0;
	int rc = read_text(in, &text, &len);

	if (rc)
		return rc;
	return give(in, out, in->n_skipped ? json_null() : json_stringn_nocheck(text, len));
}

static int read_number(struct reader *in, json_t **out)
{
	const char *text = in->text + in->at;
	size_t sign = text[0] == '-', len, whole;
	bool bad = false;
	double real;

	len = sign + adp_number_span(text + sign, in->len - in->at - sign);
	for (whole = sign; whole < len && text[whole] >= '0' && text[whole] <= '9'; whole++)
		;
	if (whole == sign || (text[sign] == '0' && whole > sign + 1))
		return fail_syntax(in, len > sign ? "a number that starts with '.' or a needless 0"
		                                  : "no value");
	if (whole < len && text[whole] == '.' &&
	    (whole + 1 >= len || text[whole + 1] < '0' || text[whole + 1] > '9'))
		return fail_syntax(in, "a number without a digit after '.'");
	if (whole == len) {
		*out = adp_doc_integer(text, len, &bad);
	} else {
		bad = !adp_number_parse(&real, text, len);
		*out = bad ? NULL : json_real(real);
	}
	if (bad)
		return fail_syntax(in, "a number beyond the range of a double");
	in->at += len;
	return *out ? ADP_OK : adp_nomem(in->err);
}

static int read_word(struct reader *in, json_t **out)
{
	static const struct {
		const char *word;
		char kind; /* 's': Python's numbers that JSON lacks, as strings */
	} words[] = {{"true", 't'}, {"false", 'f'},    {"null", 'n'},
	             {"NaN", 's'},  {"Infinity", 's'}, {"-Infinity", 's'}};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		if (!starts_with(in, words[i].word))
			continue;
		in->at += strlen(words[i].word);
		if (words[i].kind == 's')
			return give(in, out, json_string_nocheck(words[i].word));
		*out = words[i].kind == 't'   ? json_true()
		       : words[i].kind == 'f' ? json_false()
		                              : json_null();
		return ADP_OK;
	}
	if (in->at < in->len &&
	    (in->text[in->at] == '-' || (in->text[in->at] >= '0' && in->text[in->at] <= '9') ||
	     in->text[in->at] == '.'))
		return read_number(in, out);
	return fail_syntax(in, "not a JSON value");
}

static int read_value(struct reader *in, json_t **out);

static int read_member(struct reader *in, json_t *object)
{
	struct place *place = &in->places[in->depth - 1];
	struct adp_strbuf kept = {0}; /* an escaped key: scratch is needed again for the value */
	json_t *value = NULL;
	const char *key;
	size_t len;
	bool skipped;
	int rc;

	if (in->at >= in->len || in->text[in->at] != '"')
		return fail_syntax(in, "a key in double quotes is expected");
	rc = read_text(in, &key, &len);
	if (rc)
		return rc;
	if (key == in->scratch.text) {
		adp_strbuf_addn(&kept, key, len);
		if (kept.failed)
			return adp_nomem(in->err);
		key = kept.text;
	}
	place->key = key;
	place->len = len;
	skipped = adp_doc_is_skipped(in->skip, key, len);
	skip_blanks(in);
	if (in->at >= in->len || in->text[in->at] != ':')
		rc = fail_syntax(in, "':' is expected after a key");
	else if (object && json_object_getn(object, key, len))
		rc = fail_here(in, ADP_EINVAL, "a key is there twice; remove one:");
	if (!rc) {
		in->at++;
		in->n_skipped += skipped;
		rc = read_value(in, &value);
		in->n_skipped -= skipped;
	}
	if (!rc && object && !skipped) {
		if (json_object_setn_new_nocheck(object, key, len, value))
			rc = adp_nomem(in->err);
	} else {
		json_decref(value);
	}
	place->key = NULL;
	adp_strbuf_fini(&kept);
	return rc;
}

static int read_element(struct reader *in, json_t *array)
{
	json_t *value = NULL;
	int rc = read_value(in, &value);

	if (!rc && array) {
		if (json_array_append_new(array, value))
			rc = adp_nomem(in->err);
	} else {
		json_decref(value);
	}
	in->places[in->depth - 1].index++;
	return rc;
}

/* Between the brackets; in->at is behind the opening one. into is NULL where nothing is kept. */
static int read_members(struct reader *in, json_t *into, bool is_object)
{
	char close = is_object ? '}' : ']';
	int rc;

	skip_blanks(in);
	if (in->at < in->len && in->text[in->at] == close) {
		in->at++;
		return ADP_OK;
	}
	for (;;) {
		skip_blanks(in);
		rc = is_object ? read_member(in, into) : read_element(in, into);
		if (rc)
			return rc;
		skip_blanks(in);
		if (in->at < in->len && in->text[in->at] == close) {
			in->at++;
			return ADP_OK;
		}
		if (in->at >= in->len || in->text[in->at] != ',')
			return fail_syntax(in, is_object ? "',' or '}' is expected" : "',' or ']' is expected");
		in->at++;
	}
}

static int read_container(struct reader *in, json_t **out)
{
	bool is_object = in->text[in->at] == '{';
	json_t *value = NULL;
	int rc;

	if (in->depth == ADP_DOC_MAX_DEPTH)
		return fail_here(in, ADP_ELIMIT, "more than 64 levels of nesting");
	if (!in->n_skipped) {
		value = is_object ? json_object() : json_array();
		if (!value)
			return adp_nomem(in->err);
	}
	in->places[in->depth++] = (struct place){0};
	in->at++;
	rc = read_members(in, value, is_object);
	in->depth--;
	if (rc) {
		json_decref(value);
		return rc;
	}
	*out = value ? value : json_null();
	return ADP_OK;
}

static int read_value(struct reader *in, json_t **out)
{
	char first;

	skip_blanks(in);
	first = in->at < in->len ? in->text[in->at] : '\0';
	if (first == '{' || first == '[')
		return read_container(in, out);
	if (first == '"')
		return read_string(in, out);
	return read_word(in, out);
}

int adp_doc_json_without(json_t **out, const char *text, size_t len, const char *const *skip,
                         const char *where, struct adp_error *err)
{
	struct reader in = {.text = text, .where = where, .len = len, .skip = skip, .err = err};
	json_t *value = NULL;
	int rc = adp_doc_check_text(text, len, where, err);

	if (rc)
		return rc;
	in.at = adp_utf8_bom(text, len);
	skip_blanks(&in);
	if (in.at == in.len)
		return adp_fail(err, ADP_EINVAL, "%s: is empty; expected JSON", where);
	rc = read_value(&in, &value);
	skip_blanks(&in);
	if (!rc && in.at < in.len)
		rc = fail_syntax(&in, "text follows the end of the document");
	adp_strbuf_fini(&in.scratch);
	if (rc) {
		json_decref(value);
		return rc;
	}
	*out = value;
	return ADP_OK;
}

int adp_doc_json(json_t **out, const char *text, size_t len, const char *where,
                 struct adp_error *err)
{
	return adp_doc_json_without(out, text, len, NULL, where, err);
}
