/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "adp/arena.h"
#include "base/alloc.h"
#include "base/digest.h"
#include "base/strbuf.h"
#include "support/fault_sweep.h"

static void an_error_keeps_its_code_and_text(void **state)
{
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_fail(&err, ADP_EINVAL, "%s: %d", "x", 3), ADP_EINVAL);
	assert_int_equal(err.code, ADP_EINVAL);
	assert_string_equal(err.text, "x: 3");
	assert_int_equal(adp_fail(NULL, ADP_EIO, "nobody listens"), ADP_EIO);
	assert_int_equal(adp_wrap(NULL, ADP_EIO, "nobody listens"), ADP_EIO);
}

static void wrapping_puts_the_context_in_front(void **state)
{
	struct adp_error err = {0};

	(void)state;
	adp_fail(&err, ADP_EINVAL, "tp is 0");
	assert_int_equal(adp_wrap(&err, ADP_EINVAL, "%s", "plan.yaml"), ADP_EINVAL);
	assert_string_equal(err.text, "plan.yaml: tp is 0");
	err.text[0] = '\0';
	adp_wrap(&err, ADP_EIO, "alone");
	assert_string_equal(err.text, "alone");
}

static void a_long_error_is_cut_and_terminated(void **state)
{
	struct adp_error err = {0};
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	adp_fail(&err, ADP_EINVAL, "%s", text);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	adp_wrap(&err, ADP_EINVAL, "context");
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	assert_memory_equal(err.text, "context: xxx", 12);
	adp_wrap(&err, ADP_EINVAL, "%s", text);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void arena_memory_is_zeroed_and_aligned(void **state)
{
	struct adp_arena arena = {0};

	(void)state;
	for (size_t i = 0; i < 500; i++) {
		unsigned char *p = adp_arena_calloc(&arena, i, 7);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
		for (size_t j = 0; j < 7 * i; j++)
			assert_int_equal(p[j], 0);
		memset(p, 0xff, 7 * i);
	}
	adp_arena_fini(&arena);
	assert_non_null(adp_arena_calloc(&arena, 1, 1)); /* usable again */
	adp_arena_fini(&arena);
}

static void a_large_block_leaves_the_small_chunk_in_use(void **state)
{
	struct adp_arena arena = {0};
	uint64_t before;

	(void)state;
	assert_non_null(adp_arena_calloc(&arena, 1, 16));
	assert_non_null(adp_arena_calloc(&arena, 1, 3 << 20)); /* over the largest chunk, 1 MiB */
	before = adp_alloc_count();
	assert_non_null(adp_arena_calloc(&arena, 1, 16));
	assert_int_equal(adp_alloc_count(), before);
	adp_arena_fini(&arena);
}

static void an_overflowing_size_gives_no_memory(void **state)
{
	struct adp_arena arena = {0};

	(void)state;
	assert_null(adp_arena_calloc(&arena, SIZE_MAX / 2, 3));
	assert_null(adp_arena_calloc(&arena, SIZE_MAX, 1));
	assert_null(adp_arena_calloc(&arena, SIZE_MAX - 20, 1));
	assert_null(adp_arena_strndup(&arena, "", SIZE_MAX));
	assert_null(adp_reallocarray(NULL, SIZE_MAX / 2, 3));
	adp_arena_fini(&arena);
}

static void arena_text_is_copied_and_printed(void **state)
{
	struct adp_arena arena = {0};

	(void)state;
	assert_string_equal(adp_arena_strdup(&arena, "abc"), "abc");
	assert_string_equal(adp_arena_strndup(&arena, "abc", 2), "ab");
	assert_string_equal(adp_arena_strndup(&arena, NULL, 0), "");
	assert_string_equal(adp_arena_printf(&arena, "%d-%s", 7, "x"), "7-x");
	adp_arena_fini(&arena);
}

static void a_string_grows_and_is_handed_over(void **state)
{
	struct adp_strbuf buf = {0};
	char *text;

	(void)state;
	text = adp_strbuf_steal(&buf);
	assert_string_equal(text, "");
	adp_free(text);
	for (int i = 0; i < 1000; i++)
		adp_strbuf_addf(&buf, "%d,", i % 10);
	adp_strbuf_add(&buf, "end");
	adp_strbuf_addn(&buf, "more", 1);
	assert_int_equal(buf.len, 2004);
	text = adp_strbuf_steal(&buf);
	assert_string_equal(text + 1998, "9,endm");
	assert_null(buf.text);
	adp_free(text);
}

static void a_string_that_cannot_grow_fails_once_and_for_all(void **state)
{
	struct adp_strbuf buf = {0};

	(void)state;
	adp_strbuf_addn(&buf, "x", SIZE_MAX / 2);
	assert_int_equal(buf.failed, ADP_ENOMEM);
	adp_strbuf_add(&buf, "x");
	adp_strbuf_addf(&buf, "%s", "x");
	assert_int_equal(buf.len, 0);
	assert_null(adp_strbuf_steal(&buf));
}

static void the_planned_allocation_fails_once(void **state)
{
	void *first, *second, *third;

	(void)state;
	adp_alloc_fail_after(1);
	first = adp_malloc(1);
	assert_false(adp_alloc_failed());
	second = adp_calloc(1, 1);
	assert_true(adp_alloc_failed());
	third = adp_strdup("x");
	adp_alloc_fail_after(UINT64_MAX);
	assert_non_null(first);
	assert_null(second);
	assert_string_equal(third, "x");
	adp_free(first);
	adp_free(third);
}

static int use_everything(void *context)
{
	struct adp_arena arena = {0};
	struct adp_strbuf buf = {0};
	int rc = ADP_OK;
	char *text;

	(void)context;
	for (int i = 0; i < 20 && !rc; i++) {
		if (!adp_arena_calloc(&arena, 3, 1000) || !adp_arena_printf(&arena, "%d", i))
			rc = adp_nomem(NULL);
		adp_strbuf_addf(&buf, "%0100d", i);
	}
	text = adp_strbuf_steal(&buf);
	if (!text)
		rc = adp_nomem(NULL);
	adp_free(text);
	adp_arena_fini(&arena);
	return rc;
}

static void arena_and_string_survive_any_failed_allocation(void **state)
{
	(void)state;
	fault_sweep(use_everything, NULL);
}

static void the_digest_is_xxh3_128(void **state)
{
	char hex[ADP_DIGEST_SIZE];

	(void)state;
	adp_digest(hex, "", 0);
	assert_string_equal(hex, "99aa06d3014798d86001c324468d497f"); /* xxhsum -H2 of nothing */
	adp_digest(hex, "adp", 3);
	assert_string_not_equal(hex, "99aa06d3014798d86001c324468d497f");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_error_keeps_its_code_and_text),
		cmocka_unit_test(wrapping_puts_the_context_in_front),
		cmocka_unit_test(a_long_error_is_cut_and_terminated),
		cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
		cmocka_unit_test(a_large_block_leaves_the_small_chunk_in_use),
		cmocka_unit_test(an_overflowing_size_gives_no_memory),
		cmocka_unit_test(arena_text_is_copied_and_printed),
		cmocka_unit_test(a_string_grows_and_is_handed_over),
		cmocka_unit_test(a_string_that_cannot_grow_fails_once_and_for_all),
		cmocka_unit_test(the_planned_allocation_fails_once),
		cmocka_unit_test(arena_and_string_survive_any_failed_allocation),
		cmocka_unit_test(the_digest_is_xxh3_128),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
