/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_ERROR_H
#define ADP_ERROR_H

#include <stdarg.h>

/* Every function that can fail returns ADP_OK or one of these. */
enum adp_err {
	ADP_OK = 0,
	ADP_EINVAL = -1, /* bad input: the text names what, where and the next step */
	ADP_ENOMEM = -2,
	ADP_EINFEASIBLE = -3, /* input is fine, the answer is no */
	ADP_EIO = -4,         /* a file could not be read or written */
	ADP_ELIMIT = -5,      /* a stated limit of the program is exceeded */
	ADP_EINTERNAL = -6,   /* our own fault */
};

/* Caller's memory; zero-initialise it. The text is always terminated and is cut, never overrun. */
struct adp_error {
	int code;
	char text[2048];
};

#define ADP_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Sets code and text (err may be NULL). Returns code, so: return adp_fail(err, ADP_EINVAL, "...").
 */
int adp_fail(struct adp_error *err, int code, const char *format, ...) ADP_PRINTF(3, 4);

/* Puts "context: " before the text that is there. Returns code, for the same use. */
int adp_wrap(struct adp_error *err, int code, const char *format, ...) ADP_PRINTF(3, 4);

/* Shorthand for the out-of-memory case. Returns ADP_ENOMEM. */
int adp_nomem(struct adp_error *err);

/*
 * The same calls, with the result in sight: a compiler or analyzer that doesn't see the functions'
 * bodies must know that a failure isn't ADP_OK. code is evaluated twice.
 */
static inline int adp_error_code(int code)
{
	return code;
}
#define adp_fail(err, code, ...) (adp_fail(err, code, __VA_ARGS__), adp_error_code(code))
#define adp_wrap(err, code, ...) (adp_wrap(err, code, __VA_ARGS__), adp_error_code(code))
#define adp_nomem(err) (adp_nomem(err), adp_error_code(ADP_ENOMEM))

#endif
