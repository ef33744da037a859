/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_DOC_H
#define ADP_BASE_DOC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "adp/error.h"

/*
 * JSON and YAML documents as jansson values. Input limits: 1 GiB, 64 levels deep, duplicate keys
 * refused, text in UTF-8 without NUL. A whole number beyond int64 becomes a real. NaN, Infinity and
 * YAML's .nan, .inf become strings, so that a field nobody reads doesn't block a file (Python
 * writes them) and a number field refuses them. YAML: the core schema of YAML 1.2 (true/false,
 * null/~, ints, floats; no, on, yes stay strings), no anchors, aliases, tags or merge keys; keys
 * are text. A quoted scalar is a string.
 *
 * On success *out is the caller's (json_decref). ADP_EINVAL names where, line, column and field.
 */
int adp_doc_json(json_t **out, const char *text, size_t len, const char *where,
                 struct adp_error *err);

/* All documents of a YAML stream as one array; empty documents are left out. JSON is YAML, but
 * adp_doc_any is faster on it. */
int adp_doc_yaml(json_t **out, const char *text, size_t len, const char *where,
                 struct adp_error *err);

/* First non-blank character '{' or '[': JSON (an array of one document); else YAML. */
int adp_doc_any(json_t **out, const char *text, size_t len, const char *where,
                struct adp_error *err);

/*
 * As adp_doc_any, without the members named in skip (NULL-terminated) wherever they stand: they are
 * checked, not kept. A large node list without "managedFields" and "images" takes a fraction of the
 * memory.
 */
int adp_doc_any_without(json_t **out, const char *text, size_t len, const char *const *skip,
                        const char *where, struct adp_error *err);

/* Block-style YAML, up to 16 numbers in a row on one line; strings double-quoted unless plain-safe
 * in YAML 1.1 and 1.2; keys in the object's order. */
int adp_doc_to_yaml(char **out, const json_t *value, struct adp_error *err);
/* Indented JSON, keys in the object's order, doubles with 17 significant digits at most (shortest
 * that reads back). */
/* Both: deeper than 64 levels is ADP_ELIMIT; *out ends with a newline; the caller frees it with
 * adp_free. */
int adp_doc_to_json(char **out, const json_t *value, struct adp_error *err);

/*
 * Typed look-ups. path is the dotted place of object, for errors ("nodes[3]"). A missing or null
 * key gives ADP_OK with *found false (found NULL: missing is an error). Wrong type or range:
 * ADP_EINVAL naming path, key, the value found and what was expected. path may be "". A real
 * without a fraction is a whole number too.
 */
int adp_doc_u64(uint64_t *out, bool *found, const json_t *object, const char *key, uint64_t min,
                uint64_t max, const char *path, struct adp_error *err);
int adp_doc_double(double *out, bool *found, const json_t *object, const char *key, double min,
                   double max, const char *path, struct adp_error *err);
int adp_doc_bool(bool *out, bool *found, const json_t *object, const char *key, const char *path,
                 struct adp_error *err);
int adp_doc_string(const char **out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err);
int adp_doc_array(json_t **out, bool *found, const json_t *object, const char *key,
                  const char *path, struct adp_error *err);
int adp_doc_object(json_t **out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err);
/* Refuses keys of object that are not in the NULL-terminated list, naming the nearest allowed key.
 */
int adp_doc_only(const json_t *object, const char *const *allowed, const char *path,
                 struct adp_error *err);

#endif
