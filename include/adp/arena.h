/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_ARENA_H
#define ADP_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "adp/error.h"

/*
 * Memory that is freed all at once. Lives in the caller's memory; zero is a valid empty
 * arena. Not thread-safe: one arena per thread.
 */
struct adp_arena {
	struct adp_arena_chunk *head;
};

void adp_arena_fini(struct adp_arena *arena); /* frees all; the arena is empty and usable again */

/* n * size zeroed bytes, aligned for any type; NULL when memory runs out or n * size overflows.
 * n == 0 gives a valid pointer that must not be read. */
void *adp_arena_calloc(struct adp_arena *arena, size_t n, size_t size);
char *adp_arena_strdup(struct adp_arena *arena, const char *text);
char *adp_arena_strndup(struct adp_arena *arena, const char *text, size_t len);
char *adp_arena_printf(struct adp_arena *arena, const char *format, ...) ADP_PRINTF(2, 3);

#endif
