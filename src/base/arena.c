/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

struct adp_arena_chunk {
	struct adp_arena_chunk *next;
	size_t used, cap;
	alignas(max_align_t) unsigned char bytes[];
};

void adp_arena_fini(struct adp_arena *arena)
{
	struct adp_arena_chunk *next;

	for (struct adp_arena_chunk *chunk = arena->head; chunk; chunk = next) {
		next = chunk->next;
		adp_free(chunk);
	}
	arena->head = NULL;
}

static struct adp_arena_chunk *new_chunk(size_t cap)
{
	struct adp_arena_chunk *chunk;

	if (cap > SIZE_MAX - sizeof *chunk)
		return NULL;
	chunk = adp_malloc(sizeof *chunk + cap);
	if (chunk)
		*chunk = (struct adp_arena_chunk){.cap = cap};
	return chunk;
}

static void *take(struct adp_arena *arena, size_t size)
{
	struct adp_arena_chunk *head = arena->head, *chunk;
	const size_t align = alignof(max_align_t);
	size_t cap;
	void *p;

	if (size > SIZE_MAX - align)
		return NULL;
	size = size ? (size + align - 1) / align * align : align;
	if (head && head->cap - head->used >= size) {
		p = head->bytes + head->used;
		head->used += size;
		return p;
	}
	cap = head ? head->cap * 2 : FIRST_CHUNK;
	if (cap > LARGEST_CHUNK)
		cap = LARGEST_CHUNK;
	chunk = new_chunk(size > cap ? size : cap);
	if (!chunk)
		return NULL;
	chunk->used = size;
	if (head && size > cap) { /* a large block of its own: go on filling the head */
		chunk->next = head->next;
		head->next = chunk;
	} else {
		chunk->next = head;
		arena->head = chunk;
	}
	return chunk->bytes;
}

void *adp_arena_calloc(struct adp_arena *arena, size_t n, size_t size)
{
	size_t total;
	void *p;

	if (__builtin_mul_overflow(n, size, &total))
		return NULL;
	p = take(arena, total);
	if (p)
		memset(p, 0, total);
	return p;
}

char *adp_arena_strndup(struct adp_arena *arena, const char *text, size_t len)
{
	char *copy = len < SIZE_MAX ? take(arena, len + 1) : NULL;

	if (!copy)
		return NULL;
	if (len)
		memcpy(copy, text, len);
	copy[len] = '\0';
	return copy;
}

char *adp_arena_strdup(struct adp_arena *arena, const char *text)
{
	return adp_arena_strndup(arena, text, strlen(text));
}

char *adp_arena_printf(struct adp_arena *arena, const char *format, ...)
{
	va_list args, again;
	char *text = NULL;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (n >= 0)
		text = take(arena, (size_t)n + 1);
	if (text)
		vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	return text;
}
