/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/doc_internal.h"
#include "base/number.h"
#include "base/strbuf.h"
#include "base/utf8.h"

/* A key may take 1024 characters at most on its line; an escape takes up to six per byte. */
enum { MAX_NUMBERS_IN_A_LINE = 16, MAX_SIMPLE_KEY = 150 };

struct writer {
	struct adp_strbuf out;
	struct adp_error *err;
	bool yaml;
};

static void newline(struct writer *to, unsigned indent)
{
	adp_strbuf_add(&to->out, "\n");
	for (unsigned i = 0; i < indent; i++)
		adp_strbuf_add(&to->out, "  ");
}

/* What a reader of YAML 1.1 or 1.2 might take for something else than a string. */
static bool is_reserved(const char *text)
{
	static const char *const words[] = {"y",     "n",    "yes", "no",  "on",       "off", "true",
	                                    "false", "null", "nan", "inf", "infinity", NULL};

	for (size_t i = 0; words[i]; i++) {
		if (strcasecmp(words[i], text) == 0)
			return true;
	}
	return false;
}

/* A letter, then letters, digits and _ . / -: nothing in either YAML gives it a meaning. */
static bool is_plain(const char *text, size_t len)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
	static const char others[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789./-";

	return len > 0 && len <= 128 && strspn(text, letters) > 0 && strspn(text, others) == len &&
	       !is_reserved(text);
}

/* Not printable in YAML (section 5.1), or read as a line break there. */
static bool needs_escape(unsigned code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
	       code == 0xfeff || (code & 0xfffe) == 0xfffe;
}

static void write_escape(struct writer *to, unsigned code)
{
	if (code == '\n')
		adp_strbuf_add(&to->out, "\\n");
	else if (code == '\t')
		adp_strbuf_add(&to->out, "\\t");
	else if (code < 0x10000)
		adp_strbuf_addf(&to->out, "\\u%04x", code);
	else /* JSON and YAML both read a pair in JSON; YAML alone needs the long form */
		adp_strbuf_addf(&to->out, to->yaml ? "\\U%08x" : "\\u%04x\\u%04x",
		                to->yaml ? code : 0xd800 + ((code - 0x10000) >> 10),
		                0xdc00 + (code & 0x3ff));
}

static void write_quoted(struct writer *to, const char *text, size_t len)
{
	unsigned code;
	size_t n;

	adp_strbuf_add(&to->out, "\"");
	for (size_t i = 0; i < len; i += n) {
		n = adp_utf8_decode(&code, text + i);
		if (code == '"' || code == '\\')
			adp_strbuf_addf(&to->out, "\\%c", (char)code);
		else if (needs_escape(code))
			write_escape(to, code);
		else
			adp_strbuf_addn(&to->out, text + i, n);
	}
	adp_strbuf_add(&to->out, "\"");
}

static void write_string(struct writer *to, const char *text, size_t len)
{
	if (to->yaml && is_plain(text, len))
		adp_strbuf_addn(&to->out, text, len);
	else
		write_quoted(to, text, len);
}

static void write_scalar(struct writer *to, const json_t *value)
{
	char number[ADP_NUMBER_SIZE];

	switch (json_typeof(value)) {
	case JSON_STRING:
		write_string(to, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		adp_strbuf_addf(&to->out, "%lld", (long long)json_integer_value(value));
		break;
	case JSON_REAL:
		adp_number_format(number, json_real_value(value));
		adp_strbuf_add(&to->out, number);
		break;
	case JSON_TRUE:
		adp_strbuf_add(&to->out, "true");
		break;
	case JSON_FALSE:
		adp_strbuf_add(&to->out, "false");
		break;
	default:
		adp_strbuf_add(&to->out, "null");
	}
}

static size_t n_members(const json_t *value)
{
	return json_is_object(value) ? json_object_size(value) : json_array_size(value);
}

static bool is_row_of_numbers(const json_t *array)
{
	const json_t *item;
	size_t i;

	if (!json_is_array(array) || json_array_size(array) > MAX_NUMBERS_IN_A_LINE)
		return false;
	json_array_foreach (array, i, item) {
		if (!json_is_number(item))
			return false;
	}
	return true;
}

static void write_row(struct writer *to, const json_t *array)
{
	const json_t *item;
	size_t i;

	adp_strbuf_add(&to->out, "[");
	json_array_foreach (array, i, item) {
		adp_strbuf_add(&to->out, i ? ", " : "");
		write_scalar(to, item);
	}
	adp_strbuf_add(&to->out, "]");
}

/* Scalars, rows and empty containers; false when value needs lines of its own. */
static bool write_inline(struct writer *to, const json_t *value)
{
	if (is_row_of_numbers(value))
		write_row(to, value);
	else if (!json_is_object(value) && !json_is_array(value))
		write_scalar(to, value);
	else if (n_members(value) == 0)
		adp_strbuf_add(&to->out, "{}");
	else
		return false;
	return true;
}

static int check_depth(const struct writer *to, unsigned depth)
{
	if (depth < ADP_DOC_MAX_DEPTH)
		return ADP_OK;
	return adp_fail(to->err, ADP_ELIMIT,
	                "a document to be written has more than 64 levels of nesting");
}

static int write_json(struct writer *to, const json_t *value, unsigned depth)
{
	const json_t *item;
	const char *key;
	void *iter;
	size_t i;
	int rc;

	if (write_inline(to, value))
		return ADP_OK;
	rc = check_depth(to, depth);
	adp_strbuf_add(&to->out, json_is_object(value) ? "{" : "[");
	json_array_foreach (value, i, item) {
		adp_strbuf_add(&to->out, i ? "," : "");
		newline(to, depth + 1);
		rc = rc ? rc : write_json(to, item, depth + 1);
	}
	for (iter = json_object_iter((json_t *)(uintptr_t)value), i = 0; iter && !rc; i++) {
		key = json_object_iter_key(iter);
		adp_strbuf_add(&to->out, i ? "," : "");
		newline(to, depth + 1);
		write_quoted(to, key, json_object_iter_key_len(iter));
		adp_strbuf_add(&to->out, ": ");
		rc = write_json(to, json_object_iter_value(iter), depth + 1);
		iter = json_object_iter_next((json_t *)(uintptr_t)value, iter);
	}
	newline(to, depth);
	adp_strbuf_add(&to->out, json_is_object(value) ? "}" : "]");
	return rc;
}

static void write_yaml_key(struct writer *to, const char *key, size_t len, unsigned indent)
{
	if (len > MAX_SIMPLE_KEY)
		adp_strbuf_add(&to->out, "? ");
	write_string(to, key, len);
	if (len > MAX_SIMPLE_KEY)
		newline(to, indent);
	adp_strbuf_add(&to->out, ":");
}

/* Lines of a container that isn't empty. The cursor is where the first line begins. */
static int write_yaml(struct writer *to, const json_t *value, unsigned indent, unsigned depth)
{
	const json_t *item;
	void *iter;
	size_t i;
	int rc = check_depth(to, depth);

	json_array_foreach (value, i, item) {
		if (rc)
			break;
		if (i)
			newline(to, indent);
		adp_strbuf_add(&to->out, "- ");
		if (!write_inline(to, item))
			rc = write_yaml(to, item, indent + 1, depth + 1); /* "- " is as wide as one step */
	}
	for (iter = json_object_iter((json_t *)(uintptr_t)value), i = 0; iter && !rc; i++) {
		item = json_object_iter_value(iter);
		if (i)
			newline(to, indent);
		write_yaml_key(to, json_object_iter_key(iter), json_object_iter_key_len(iter), indent);
		if (!json_is_object(item) && !json_is_array(item)) {
			adp_strbuf_add(&to->out, " ");
			write_scalar(to, item);
		} else if (is_row_of_numbers(item) || n_members(item) == 0) {
			adp_strbuf_add(&to->out, " ");
			(void)write_inline(to, item);
		} else {
			newline(to, indent + 1);
			rc = write_yaml(to, item, indent + 1, depth + 1);
		}
		iter = json_object_iter_next((json_t *)(uintptr_t)value, iter);
	}
	return rc;
}

static int finish(struct writer *to, char **out, int rc)
{
	char *text;

	adp_strbuf_add(&to->out, "\n");
	if (rc) {
		adp_strbuf_fini(&to->out);
		return rc;
	}
	text = adp_strbuf_steal(&to->out);
	if (!text)
		return adp_nomem(to->err);
	*out = text;
	return ADP_OK;
}

int adp_doc_to_json(char **out, const json_t *value, struct adp_error *err)
{
	struct writer to = {.err = err};

	return finish(&to, out, write_json(&to, value, 0));
}

int adp_doc_to_yaml(char **out, const json_t *value, struct adp_error *err)
{
	struct writer to = {.err = err, .yaml = true};

	return finish(&to, out, write_inline(&to, value) ? ADP_OK : write_yaml(&to, value, 0, 0));
}
