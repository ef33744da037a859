/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t n_calls;
static _Atomic uint64_t fail_at = UINT64_MAX;
static atomic_bool has_failed;
static _Atomic uint64_t n_live;

/* Whether this allocation is the one a test wants to fail. */
static bool must_fail(void)
{
	uint64_t call = atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);

	if (call != atomic_load_explicit(&fail_at, memory_order_relaxed))
		return false;
	atomic_store_explicit(&has_failed, true, memory_order_relaxed);
	return true;
}

static void *count_live(void *p)
{
	if (p)
		atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
	return p;
}

void *adp_malloc(size_t size)
{
	return must_fail() ? NULL : count_live(malloc(size));
}

void *adp_calloc(size_t n, size_t size)
{
	return must_fail() ? NULL : count_live(calloc(n, size));
}

void *adp_realloc(void *p, size_t size)
{
	if (!p)
		return adp_malloc(size);
	return must_fail() ? NULL : realloc(p, size ? size : 1); /* of 0 would free p */
}

void adp_free(void *p)
{
	if (p)
		atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
	free(p);
}

char *adp_strdup(const char *text)
{
	size_t size = strlen(text) + 1;
	char *copy = adp_malloc(size);

	if (copy)
		memcpy(copy, text, size);
	return copy;
}

void *adp_reallocarray(void *p, size_t n, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(n, size, &total))
		return NULL;
	return adp_realloc(p, total);
}

void adp_alloc_fail_after(uint64_t after)
{
	uint64_t now = atomic_load(&n_calls);

	atomic_store(&has_failed, false);
	atomic_store(&fail_at, after > UINT64_MAX - now ? UINT64_MAX : now + after);
}

uint64_t adp_alloc_count(void)
{
	return atomic_load(&n_calls);
}

uint64_t adp_alloc_live(void)
{
	return atomic_load(&n_live);
}

bool adp_alloc_failed(void)
{
	return atomic_load(&has_failed);
}
