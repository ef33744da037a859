/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_NUMBER_H
#define ADP_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Decimal numbers to text and back, whatever the process's locale is.
 *
 * Length of the longest prefix of text that is an unsigned decimal number: digits with an optional
 * fraction and exponent ("12", "0.5", ".5", "1e9"). 0 = none.
 */
size_t adp_number_span(const char *text, size_t len);

/* The number that is the whole of text (len characters, '-' allowed). False: it is none, or
 * overflows. */
bool adp_number_parse(double *out, const char *text, size_t len);

/* Fewest of 15, 16 or 17 digits that read back as value; always with a '.', so that it stays a
 * real. */
enum { ADP_NUMBER_SIZE = 72 };
void adp_number_format(char out[ADP_NUMBER_SIZE], double value);

#endif
