/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_UTF8_H
#define ADP_BASE_UTF8_H

#include <stddef.h>

/* Offset of the first byte that isn't valid UTF-8, or is a NUL; len when all is well. */
size_t adp_utf8_check(const char *text, size_t len);

/* Bytes of the character that starts at text[0], which must be valid; its code point in *code. */
size_t adp_utf8_decode(unsigned *code, const char *text);

/* Writes code (no surrogate, at most 10FFFF) to out; returns the bytes written. */
size_t adp_utf8_encode(char out[4], unsigned code);

/* 3 when text starts with a byte order mark, else 0. */
size_t adp_utf8_bom(const char *text, size_t len);

#endif
