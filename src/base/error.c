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

int(adp_wrap)(struct adp_error *err, int code, const char *format, ...)
{
	char old[sizeof err->text];
	va_list args;
	int n;

	if (!err)
		return code;
	err->code = code;
	memcpy(old, err->text, sizeof old);
	old[sizeof old - 1] = '\0';
	va_start(args, format);
	n = vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	if (n < 0)
		n = 0;
	if ((size_t)n < sizeof err->text)
		snprintf(err->text + n, sizeof err->text - (size_t)n, "%s%s", n && old[0] ? ": " : "", old);
	return code;
}

int(adp_nomem)(struct adp_error *err)
{
	return adp_fail(err, ADP_ENOMEM,
	                "out of memory; give the process more memory or a smaller input");
}
