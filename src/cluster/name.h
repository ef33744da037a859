/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_NAME_H
#define ADP_CLUSTER_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* Longest name of a node, domain, group or GPU type. */
enum { ADP_NAME_MAX = 253, ADP_NAME_SIZE = ADP_NAME_MAX + 1 };

/* Orders "gpu-2" before "gpu-10": runs of digits compare as numbers. Total: 0 only for equal texts.
 */
int adp_name_compare(const char *a, const char *b);

/* Host name: letters, digits, '.', '-', '_'; 1 to ADP_NAME_MAX bytes. */
bool adp_name_is_host(const char *text);
/* Printable UTF-8 without control characters; 1 to ADP_NAME_MAX bytes. */
bool adp_name_is_plain(const char *text);

/* text for an error or warning: control characters and non-ASCII as '?', cut to the size. Returns
 * out. */
char *adp_name_shown(char *out, size_t size, const char *text);

/*
 * The form in which GPU names are compared: lower case, '-' for '_' and ' ', without "NVIDIA-",
 * "Tesla-", "GeForce-", "AMD-", "Instinct-" in front. len bytes of text are read; out holds size
 * bytes. Returns out.
 */
char *adp_name_gpu(char *out, size_t size, const char *text, size_t len);

/* Edits (insert, delete, replace) between a and b; texts longer than 63 bytes count as SIZE_MAX. */
size_t adp_name_distance(const char *a, const char *b);

#endif
