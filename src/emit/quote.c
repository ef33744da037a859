/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <stdio.h>
#include <string.h>

void emit_shell_word(struct adp_strbuf *out, const char *text)
{
	/* Inside single quotes a shell gives no character a meaning, a line break included. */
	adp_strbuf_add(out, "'");
	for (const char *p = text; *p;) {
		size_t plain = strcspn(p, "'");

		adp_strbuf_addn(out, p, plain);
		p += plain;
		if (*p == '\'') {
			adp_strbuf_add(out, "'\\''");
			p++;
		}
	}
	adp_strbuf_add(out, "'");
}

void emit_csv_field(struct adp_strbuf *out, const char *text)
{
	size_t len = strlen(text);
	bool quote = len == 0 || strpbrk(text, ",\"\r\n") || text[0] == ' ' || text[len - 1] == ' ' ||
	             text[0] == '#';

	if (!quote) {
		adp_strbuf_add(out, text);
		return;
	}
	adp_strbuf_add(out, "\"");
	for (const char *p = text; *p; p++) {
		if (*p == '"')
			adp_strbuf_add(out, "\"");
		adp_strbuf_addn(out, p, 1);
	}
	adp_strbuf_add(out, "\"");
}

char *emit_show(char *out, size_t size, const char *text)
{
	enum { SHOWN = 64 };
	size_t n = 0, len = strlen(text), end = len > SHOWN ? SHOWN : len;

	if (size == 0)
		return out;
	while (end < len && end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
		end--; /* never cut inside a character */
	for (size_t i = 0; i < end && n + 8 < size; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c < 0x20 || c == 0x7f)
			n += (size_t)snprintf(out + n, size - n, "\\x%02x", (unsigned)c);
		else
			out[n++] = text[i];
	}
	if (end < len && n + 4 < size) {
		memcpy(out + n, "...", 3);
		n += 3;
	}
	out[n] = '\0';
	return out;
}

bool emit_is_address(const char *text)
{
	enum { MAX_HOST_NAME = 253 }; /* RFC 1035 */
	static const char alnum[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	static const char host[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	size_t len = strlen(text);

	if (len == 0 || len > MAX_HOST_NAME)
		return false;
	if (text[0] == '[')
		return len >= 4 && strspn(text + 1, "0123456789abcdefABCDEF:.") == len - 2 &&
		       text[len - 1] == ']' && strchr(text, ':');
	return strspn(text, alnum) > 0 && strspn(text, host) == len;
}
