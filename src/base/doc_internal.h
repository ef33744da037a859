/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_DOC_INTERNAL_H
#define ADP_BASE_DOC_INTERNAL_H

#include "base/doc.h"

/* What the readers and writers of doc.h share. */
enum { ADP_DOC_MAX_DEPTH = 64, ADP_DOC_MAX_BYTES = 1 << 30 };

/* Size and UTF-8. */
int adp_doc_check_text(const char *text, size_t len, const char *where, struct adp_error *err);

/* An integer where it fits int64 (else a real) from [-+]digits. NULL: out of memory, or not finite
 * (*bad). */
json_t *adp_doc_integer(const char *text, size_t len, bool *bad);

/* Whether key is in the NULL-terminated list; list may be NULL. */
bool adp_doc_is_skipped(const char *const *list, const char *key, size_t len);

/* skip as in adp_doc_any_without, may be NULL. */
int adp_doc_json_without(json_t **out, const char *text, size_t len, const char *const *skip,
                         const char *where, struct adp_error *err);
int adp_doc_yaml_without(json_t **out, const char *text, size_t len, const char *const *skip,
                         const char *where, struct adp_error *err);

#endif
