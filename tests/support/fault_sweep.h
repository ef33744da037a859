/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TESTS_FAULT_SWEEP_H
#define ADP_TESTS_FAULT_SWEEP_H

#include "adp/error.h"
#include "base/alloc.h"

/*
 * Include after cmocka.h. Runs `run` with its first allocation failing, then its second, and so on
 * until none is left to fail. Each run frees all it got, and returns ADP_OK or ADP_ENOMEM: the
 * latter when it gave up.
 */
static inline void fault_sweep(int (*run)(void *context), void *context)
{
	uint64_t live, n = 0;
	bool failed;
	int rc;

	assert_int_equal(run(context), ADP_OK); /* what is set up once is set up now */
	live = adp_alloc_live();
	do {
		adp_alloc_fail_after(n++);
		rc = run(context);
		failed = adp_alloc_failed();
		adp_alloc_fail_after(UINT64_MAX);
		if (rc != ADP_OK && !(failed && rc == ADP_ENOMEM))
			fail_msg("allocation %llu fails: returned %d", (unsigned long long)n, rc);
		if (adp_alloc_live() != live)
			fail_msg("allocation %llu fails: %lld blocks leak", (unsigned long long)n,
			         (long long)(adp_alloc_live() - live));
	} while (failed);
	if (n < 2)
		fail_msg("nothing allocates here");
}

#endif
