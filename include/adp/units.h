/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_UNITS_H
#define ADP_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "adp/error.h"

/*
 * Text to SI and back. All parsers take the whole text, reject trailing characters, NaN, infinity,
 * negative values and overflow, and name `what` in the error.
 */
int adp_parse_bytes(uint64_t *out, const char *text, const char *what,
                    struct adp_error *err); /* 80GiB, 80GB, 512MiB, 1024 */
int adp_parse_bandwidth(double *out, const char *text, const char *what,
                        struct adp_error *err); /* 400Gb/s, 50GB/s -> bytes/s */
int adp_parse_duration(double *out, const char *text, const char *what,
                       struct adp_error *err); /* 30d, 12h, 5m, 10s, 20us */
int adp_parse_count(double *out, const char *text, const char *what,
                    struct adp_error *err); /* 15T, 2.5B, 300M, 1e12: tokens */
int adp_parse_u64(uint64_t *out, const char *text, const char *what, struct adp_error *err);
int adp_parse_frac(double *out, const char *text, const char *what,
                   struct adp_error *err); /* 0.2 or 20% */

/* Bounded, always terminated; return out. */
char *adp_format_bytes(char *out, size_t size, double bytes);      /* "74.5 GiB" */
char *adp_format_duration(char *out, size_t size, double seconds); /* "8.42 s", "13.2 d" */
char *adp_format_count(char *out, size_t size, double n);          /* "70.6B", "1.25M" */
char *adp_format_bandwidth(char *out, size_t size, double bytes_per_s);

#endif
