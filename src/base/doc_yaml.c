/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <yaml.h>

#include "base/doc_internal.h"
#include "base/number.h"
#include "base/strbuf.h"
#include "base/utf8.h"

/* A mapping or sequence that is being read. */
struct level {
	json_t *value;
	struct adp_strbuf key; /* of the value that comes next, in a mapping */
	bool has_key;
};

struct reader {
	const char *where;
	const char *const *skip;
	struct adp_error *err;
	json_t *documents;
	unsigned depth;
	struct level levels[ADP_DOC_MAX_DEPTH];
};

static void add_path(struct adp_strbuf *out, const struct reader *in)
{
	for (unsigned i = 0; i < in->depth; i++) {
		const struct level *level = &in->levels[i];

		if (level->has_key)
			adp_strbuf_addf(out, "%s%.80s", out->len ? "." : "", level->key.text);
		else if (json_is_array(level->value))
			adp_strbuf_addf(out, "[%zu]", json_array_size(level->value));
	}
}

static int fail_at(const struct reader *in, const yaml_mark_t *mark, int code, const char *problem)
{
	struct adp_strbuf path = {0};

	add_path(&path, in);
	adp_fail(in->err, code, "%s:%zu:%zu: %s%s%s", in->where, mark->line + 1, mark->column + 1,
	         problem, path.len ? " in " : "", path.len ? path.text : "");
	adp_strbuf_fini(&path);
	return code;
}

static bool is_one_of(const char *const *words, const char *text, size_t len)
{
	for (; *words; words++) {
		if (strlen(*words) == len && memcmp(*words, text, len) == 0)
			return true;
	}
	return false;
}

static size_t digits_of_base(const char *text, size_t len, unsigned base)
{
	size_t n;

	for (n = 0; n < len; n++) {
		unsigned c = (unsigned char)text[n], digit = 99;

		if (c >= '0' && c <= '9')
			digit = c - '0';
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			digit = (c | 32) - 'a' + 10;
		if (digit >= base)
			break;
	}
	return n;
}

/* 0o17, 0xff. False: no such number, or it doesn't fit. */
static bool read_based(json_int_t *out, const char *text, size_t len)
{
	unsigned base = len > 2 && text[0] == '0' ? text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : 0 : 0;
	json_int_t value = 0;

	if (!base || digits_of_base(text + 2, len - 2, base) != len - 2)
		return false;
	for (size_t i = 2; i < len; i++) {
		int c = (unsigned char)text[i], digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;

		if (__builtin_mul_overflow(value, (json_int_t)base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	*out = value;
	return true;
}

/* The core schema of YAML 1.2, section 10.3.2. NULL: out of memory, or a number out of range
 * (*bad). */
static json_t *resolve_plain(const char *text, size_t len, bool *bad)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
	static const char *const trues[] = {"true", "True", "TRUE", NULL};
	static const char *const falses[] = {"false", "False", "FALSE", NULL};
	size_t sign = len && (text[0] == '-' || text[0] == '+');
	json_int_t integer;
	double real;

	*bad = false;
	if (is_one_of(nulls, text, len))
		return json_null();
	if (is_one_of(trues, text, len))
		return json_true();
	if (is_one_of(falses, text, len))
		return json_false();
	if (read_based(&integer, text, len))
		return json_integer(integer);
	if (len > sign && digits_of_base(text + sign, len - sign, 10) == len - sign)
		return adp_doc_integer(text, len, bad);
	if (len > sign && adp_number_span(text + sign, len - sign) == len - sign) {
		sign = text[0] == '+';
		*bad = !adp_number_parse(&real, text + sign, len - sign);
		return *bad ? NULL : json_real(real);
	}
	return json_stringn_nocheck(text, len);
}

/* Puts value, which it takes, where it belongs. */
static int place(struct reader *in, json_t *value, const yaml_mark_t *mark)
{
	struct level *level = in->depth ? &in->levels[in->depth - 1] : NULL;
	int bad;

	if (!level) {
		bad = json_is_null(value) ? 0 : json_array_append_new(in->documents, value);
	} else if (json_is_array(level->value)) {
		bad = json_array_append_new(level->value, value);
	} else {
		if (json_object_getn(level->value, level->key.text, level->key.len)) {
			json_decref(value);
			return fail_at(in, mark, ADP_EINVAL, "a key is there twice; remove one:");
		}
		if (adp_doc_is_skipped(in->skip, level->key.text, level->key.len)) {
			json_decref(value);
			bad = 0;
		} else {
			bad = json_object_setn_new_nocheck(level->value, level->key.text, level->key.len,
			                                   value);
		}
		level->has_key = false;
	}
	return bad ? adp_nomem(in->err) : ADP_OK;
}

static int on_scalar(struct reader *in, const yaml_event_t *event)
{
	const char *text = (const char *)event->data.scalar.value;
	size_t len = event->data.scalar.length;
	bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE, bad = false;
	struct level *level = in->depth ? &in->levels[in->depth - 1] : NULL;
	json_t *value;

	if (event->data.scalar.anchor || event->data.scalar.tag)
		return fail_at(in, &event->start_mark, ADP_EINVAL,
		               "anchors (&) and tags (!) are not read; write the value out");
	if (memchr(text, '\0', len))
		return fail_at(in, &event->start_mark, ADP_EINVAL, "a NUL character in a string");
	if (level && json_is_object(level->value) && !level->has_key) {
		if (plain && (len == 0 || (len == 2 && memcmp(text, "<<", 2) == 0)))
			return fail_at(in, &event->start_mark, ADP_EINVAL,
			               len ? "merge keys (<<) are not read; write the "
			                     "members out"
			                   : "an empty key");
		level->key.len = 0;
		adp_strbuf_addn(&level->key, text, len);
		if (level->key.failed)
			return adp_nomem(in->err);
		level->has_key = true;
		return ADP_OK;
	}
	value = plain ? resolve_plain(text, len, &bad) : json_stringn_nocheck(text, len);
	if (bad)
		return fail_at(in, &event->start_mark, ADP_EINVAL, "a number beyond the range of a double");
	if (!value)
		return adp_nomem(in->err);
	return place(in, value, &event->start_mark);
}

static int on_start(struct reader *in, const yaml_event_t *event)
{
	bool mapping = event->type == YAML_MAPPING_START_EVENT;
	const yaml_char_t *anchor = mapping ? event->data.mapping_start.anchor
	                                    : event->data.sequence_start.anchor;
	const yaml_char_t *tag = mapping ? event->data.mapping_start.tag
	                                 : event->data.sequence_start.tag;
	struct level *level = in->depth ? &in->levels[in->depth - 1] : NULL;
	json_t *value;

	if (anchor || tag)
		return fail_at(in, &event->start_mark, ADP_EINVAL,
		               "anchors (&) and tags (!) are not read; write the value out");
	if (level && json_is_object(level->value) && !level->has_key)
		return fail_at(in, &event->start_mark, ADP_EINVAL,
		               "a key must be text, not a mapping or a sequence");
	if (in->depth == ADP_DOC_MAX_DEPTH)
		return fail_at(in, &event->start_mark, ADP_ELIMIT, "more than 64 levels of nesting");
	value = mapping ? json_object() : json_array();
	if (!value)
		return adp_nomem(in->err);
	in->levels[in->depth].value = value;
	in->levels[in->depth].has_key = false;
	in->depth++;
	return ADP_OK;
}

static int on_end(struct reader *in, const yaml_event_t *event)
{
	json_t *value = in->levels[--in->depth].value;

	in->levels[in->depth].value = NULL;
	return place(in, value, &event->start_mark);
}

static int on_event(struct reader *in, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return on_scalar(in, event);
	case YAML_MAPPING_START_EVENT:
	case YAML_SEQUENCE_START_EVENT:
		return on_start(in, event);
	case YAML_MAPPING_END_EVENT:
	case YAML_SEQUENCE_END_EVENT:
		return on_end(in, event);
	case YAML_ALIAS_EVENT:
		return fail_at(in, &event->start_mark, ADP_EINVAL,
		               "aliases (*) are not read; write the value out");
	default:
		return ADP_OK;
	}
}

static int fail_parser(const struct reader *in, const yaml_parser_t *parser)
{
	const char *problem = parser->problem ? parser->problem : "not YAML";

	if (parser->error == YAML_MEMORY_ERROR)
		return adp_nomem(in->err);
	if (parser->error == YAML_READER_ERROR)
		return adp_fail(in->err, ADP_EINVAL, "%s: byte %zu: %s", in->where, parser->problem_offset,
		                problem);
	return fail_at(in, &parser->problem_mark, ADP_EINVAL, problem);
}

static int read_stream(struct reader *in, yaml_parser_t *parser)
{
	yaml_event_t event;
	bool done;
	int rc;

	do {
		if (!yaml_parser_parse(parser, &event))
			return fail_parser(in, parser);
		done = event.type == YAML_STREAM_END_EVENT;
		rc = on_event(in, &event);
		yaml_event_delete(&event);
	} while (!rc && !done);
	return rc;
}

int adp_doc_yaml_without(json_t **out, const char *text, size_t len, const char *const *skip,
                         const char *where, struct adp_error *err)
{
	struct reader in = {.where = where, .skip = skip, .err = err};
	const size_t bom = adp_utf8_bom(text, len);
	yaml_parser_t parser;
	int rc = adp_doc_check_text(text, len, where, err);

	if (rc)
		return rc;
	in.documents = json_array();
	if (!in.documents)
		return adp_nomem(err);
	if (!yaml_parser_initialize(&parser)) {
		json_decref(in.documents);
		return adp_nomem(err);
	}
	/* told the encoding, libyaml takes the mark at the start for a character of the text */
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text + bom, len - bom);
	rc = read_stream(&in, &parser);
	yaml_parser_delete(&parser);
	for (unsigned i = 0; i < ADP_DOC_MAX_DEPTH; i++) {
		json_decref(in.levels[i].value);
		adp_strbuf_fini(&in.levels[i].key);
	}
	if (rc) {
		json_decref(in.documents);
		return rc;
	}
	*out = in.documents;
	return ADP_OK;
}

int adp_doc_yaml(json_t **out, const char *text, size_t len, const char *where,
                 struct adp_error *err)
{
	return adp_doc_yaml_without(out, text, len, NULL, where, err);
}
