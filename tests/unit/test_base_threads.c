/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/doc.h"
#include "base/file.h"

enum { N_THREADS = 4, N_ROUNDS = 100 };

/* Everything in base that is set up once or counted, from several threads. */
static void *work(void *context)
{
	static const char text[] = "{\"a\": [1.5, 2, \"x\"]}";
	const char **version = context;
	json_t *value;
	char *out;

	for (int i = 0; i < N_ROUNDS; i++) {
		if (adp_doc_any(&value, text, sizeof text - 1, "text", NULL))
			return NULL;
		if (adp_doc_to_yaml(&out, value, NULL))
			return NULL;
		json_decref(value);
		if (strcmp(out, "- a:\n    - 1.5\n    - 2\n    - x\n") != 0)
			return NULL;
		adp_free(out);
	}
	*version = adp_data_version();
	return NULL;
}

static void base_may_be_used_from_several_threads(void **state)
{
	const char *versions[N_THREADS] = {NULL};
	pthread_t threads[N_THREADS];
	uint64_t live = adp_alloc_live();

	(void)state;
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, &versions[i]), 0);
	for (int i = 0; i < N_THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < N_THREADS; i++) {
		assert_non_null(versions[i]); /* the thread came to its end */
		assert_ptr_equal(versions[i], versions[0]);
	}
	assert_int_equal(adp_alloc_live(), live);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(base_may_be_used_from_several_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
