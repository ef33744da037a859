/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/error.h"

#include <stdio.h>
#include <string.h>

int(adp_fail)(struct adp_error *err, int code, const char *format, ...)
{
	va_list args;

	if (!err)
		return code;
	err->code = code;
	va_start(args, format);
	if (vsnprintf(err->text, sizeof err->text, format, args) < 0)
		err->text[0] = '\0';
	va_end(args);
	return code;
}

/* Adds what there is room for; returns the new length. */
static size_t add_cut(char *text, size_t len, size_t size, const char *more)
{
	size_t room = size - 1 - len, n = strnlen(more, room);

	memcpy(text + len, more, n);
	text[len + n] = '\0';
	return len + n;
}

int(adp_wrap)(struct adp_error *err, int code, const char *format, ...)
{
	char old[sizeof err->text];
	va_list args;
	size_t len;

	if (!err)
		return code;
	err->code = code;
	memcpy(old, err->text, sizeof old);
	old[sizeof old - 1] = '\0';
	va_start(args, format);
	if (vsnprintf(err->text, sizeof err->text, format, args) < 0)
		err->text[0] = '\0';
	va_end(args);
	len = strlen(err->text);
	if (len && old[0])
		len = add_cut(err->text, len, sizeof err->text, ": ");
	add_cut(err->text, len, sizeof err->text, old);
	return code;
}

int(adp_nomem)(struct adp_error *err)
{
	return adp_fail(err, ADP_ENOMEM,
	                "out of memory; give the process more memory or a smaller input");
}
