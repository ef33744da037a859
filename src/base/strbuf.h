/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_STRBUF_H
#define ADP_BASE_STRBUF_H

#include <stddef.h>

#include "adp/error.h"

/* A growing string. Zero-initialise. After a failed append the buffer stays usable and `failed` is
 * set: append freely, test once at the end. */
struct adp_strbuf {
	char *text; /* terminated once anything was appended; NULL before */
	size_t len, cap;
	int failed; /* 0 or ADP_ENOMEM */
};
void adp_strbuf_fini(struct adp_strbuf *buf);
void adp_strbuf_add(struct adp_strbuf *buf, const char *text);
void adp_strbuf_addn(struct adp_strbuf *buf, const char *text, size_t len);
void adp_strbuf_addf(struct adp_strbuf *buf, const char *format, ...) ADP_PRINTF(2, 3);
char *adp_strbuf_steal(
	struct adp_strbuf *buf); /* caller frees with adp_free; NULL if failed; "" when empty */

#endif
