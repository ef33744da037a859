/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

void adp_strbuf_fini(struct adp_strbuf *buf)
{
	adp_free(buf->text);
	*buf = (struct adp_strbuf){0};
}

/* Makes room for len more characters and the terminator. */
static int reserve(struct adp_strbuf *buf, size_t len)
{
	size_t need, cap;
	char *text;

	if (buf->failed)
		return buf->failed;
	if (len > SIZE_MAX / 2 - 1 - buf->len)
		return buf->failed = ADP_ENOMEM;
	need = buf->len + len + 1;
	if (need <= buf->cap)
		return ADP_OK;
	cap = buf->cap ? buf->cap * 2 : 64;
	if (cap < need)
		cap = need;
	text = adp_realloc(buf->text, cap);
	if (!text)
		return buf->failed = ADP_ENOMEM;
	buf->text = text;
	buf->cap = cap;
	return ADP_OK;
}

void adp_strbuf_addn(struct adp_strbuf *buf, const char *text, size_t len)
{
	if (reserve(buf, len))
		return;
	if (len)
		memcpy(buf->text + buf->len, text, len);
	buf->len += len;
	buf->text[buf->len] = '\0';
}

void adp_strbuf_add(struct adp_strbuf *buf, const char *text)
{
	adp_strbuf_addn(buf, text, strlen(text));
}

void adp_strbuf_addf(struct adp_strbuf *buf, const char *format, ...)
{
	va_list args, again;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n < 0) {
		buf->failed = ADP_ENOMEM;
	} else if (!reserve(buf, (size_t)n)) {
		vsnprintf(buf->text + buf->len, (size_t)n + 1, format, again);
		buf->len += (size_t)n;
	}
	va_end(again);
}

char *adp_strbuf_steal(struct adp_strbuf *buf)
{
	char *text;

	adp_strbuf_addn(buf, "", 0); /* an empty buffer gives "" */
	if (buf->failed) {
		adp_strbuf_fini(buf);
		return NULL;
	}
	text = buf->text;
	*buf = (struct adp_strbuf){0};
	return text;
}
