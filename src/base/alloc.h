/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_ALLOC_H
#define ADP_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * All heap use of libadp goes through these (jansson's too), so that tests can make the n-th
 * allocation fail. Same contracts as the C functions, but a block from here goes to adp_free;
 * adp_reallocarray checks the product.
 */
void *adp_malloc(size_t size);
void *adp_calloc(size_t n, size_t size);
void *adp_realloc(void *p, size_t size);
void adp_free(void *p);
char *adp_strdup(const char *text);
void *adp_reallocarray(void *p, size_t n, size_t size);

/* Tests only: fail the allocation after `after` successes, once; UINT64_MAX = never. Counts all. */
void adp_alloc_fail_after(uint64_t after);
uint64_t adp_alloc_count(void);
uint64_t adp_alloc_live(void); /* blocks not freed yet */
bool adp_alloc_failed(void);   /* whether the planned failure has happened */

#endif
