/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cost_fixture.h"

static struct adp_tables *tables;

static int load(void **state)
{
	struct adp_error err = {0};

	(void)state;
	return adp_tables_load(&tables, NULL, &err);
}

static int unload(void **state)
{
	(void)state;
	adp_tables_destroy(tables);
	return 0;
}

static void a_fused_kernel_follows_the_counted_operations(void **state)
{
	struct adp_gpu_type gpu = a100();
	double bwd = 0, fwd = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 32, 8, 128, 2,
	                                      8192, 8192, true, &bwd);
	/* 4 x 2 x 32 x 128 x 8192^2 / 2 = 1.0995e12 operations at 0.355 x 312e12 = 9.927 ms, start 5 us
	 */
	double expected = 5e-6 + 4.0 * 2 * 32 * 128 * 8192 * 8192 / 2 / (0.355 * 312e12);

	(void)state;
	assert_near(expected * 1e3, 9.932, 1e-3);
	assert_near(fwd, expected, 1e-12);
	assert_near(bwd, 2.5 * expected, 1e-12);
}

static void without_the_mask_there_is_twice_the_work(void **state)
{
	struct adp_gpu_type gpu = h100();
	double half = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 32, 32, 128, 1, 8192,
	                              8192, true, NULL);
	double full = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 32, 32, 128, 1, 8192,
	                              8192, false, NULL);

	(void)state;
	assert_near((full - 5e-6) / (half - 5e-6), 2, 1e-9);
}

static void stored_scores_cost_more_than_a_fused_kernel(void **state)
{
	struct adp_gpu_type gpu = a100();
	double fused = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 32, 32, 128, 1, 2048,
	                               2048, true, NULL);
	double bwd = 0, plain = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, false, 32, 32, 128, 1,
	                                        2048, 2048, true, &bwd);
	/* Softmax alone: 5.3 x 2 bytes x 32 x 2048^2 / (2.039e12 x 0.8) = 0.872 ms */
	double softmax = 5.3 * 2 * 32 * 2048 * 2048 / (2.039e12 * 0.8);

	(void)state;
	assert_near(softmax * 1e3, 0.872, 1e-3);
	assert_true(plain > softmax);
	assert_true(plain > 2 * fused);
	assert_true(bwd > 1.6 * plain && bwd < 2 * plain);
}

static void small_heads_run_at_a_lower_rate(void **state)
{
	struct adp_gpu_type gpu = a100();
	double wide = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 16, 16, 128, 1, 8192,
	                              8192, true, NULL) -
	              5e-6;
	double narrow = adp_attention_s(tables, &gpu, ADP_PRECISION_BF16, true, 32, 32, 64, 1, 8192,
	                                8192, true, NULL) -
	                5e-6;

	(void)state;
	assert_near(wide / narrow, 0.87, 1e-9);
}

static void fused_kernels_need_sixteen_bit_and_a_capable_gpu(void **state)
{
	struct adp_engine engine = {.min_cc_flash = 80};
	struct adp_gpu_type old = v100(), recent = a100(),
						other = gpu_of("AMD-Instinct-MI300X", "CDNA3", 0, 1307e12, 1307e12, 5.3e12,
	                                   448e9);

	(void)state;
	assert_false(adp_flash_available(&engine, &old, ADP_PRECISION_FP16));
	assert_true(adp_flash_available(&engine, &recent, ADP_PRECISION_BF16));
	assert_true(adp_flash_available(&engine, &recent, ADP_PRECISION_FP8));
	assert_false(adp_flash_available(&engine, &recent, ADP_PRECISION_FP32));
	assert_true(adp_flash_available(&engine, &other, ADP_PRECISION_BF16));
}

static double random_attention_s(const struct adp_gpu_type *gpu, enum adp_precision precision,
                                 bool flash, const double x[6], bool causal)
{
	double bwd = 0, fwd = adp_attention_s(tables, gpu, precision, flash, x[0], x[1], x[2], x[3],
	                                      x[4], x[5], causal, &bwd);

	assert_true(bwd >= fwd);
	return fwd;
}

/* 20,000 random cases: more of anything never costs less, a faster GPU never more. */
static void attention_is_monotone(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct adp_gpu_type gpu = i % 2 ? a100() : h100(), faster;
		enum adp_precision precision = (enum adp_precision)(int)(4 * next_random(&seed));
		bool flash = i % 3, causal = i % 5;
		double x[6] = {1 + floor(64 * next_random(&seed)),  1 + floor(16 * next_random(&seed)),
		               1 + floor(512 * next_random(&seed)), 1 + floor(8 * next_random(&seed)),
		               exp2(17 * next_random(&seed)),       exp2(17 * next_random(&seed))};
		double grow = 1 + (i % 7 ? 2 : 1e-3) * next_random(&seed),
			   s = random_attention_s(&gpu, precision, flash, x, causal);

		for (int d = 0; d < 6; d++) {
			double old = x[d];

			x[d] *= grow;
			assert_true(random_attention_s(&gpu, precision, flash, x, causal) >= s * (1 - 1e-12));
			x[d] = old;
		}
		faster = gpu;
		for (int p = 0; p < ADP_N_PRECISIONS; p++)
			faster.peak_flops_per_s[p] *= grow;
		assert_true(random_attention_s(&faster, precision, flash, x, causal) <= s * (1 + 1e-12));
		faster = gpu;
		faster.memory_bytes_per_s *= grow;
		assert_true(random_attention_s(&faster, precision, flash, x, causal) <= s * (1 + 1e-12));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fused_kernel_follows_the_counted_operations),
		cmocka_unit_test(without_the_mask_there_is_twice_the_work),
		cmocka_unit_test(stored_scores_cost_more_than_a_fused_kernel),
		cmocka_unit_test(small_heads_run_at_a_lower_rate),
		cmocka_unit_test(fused_kernels_need_sixteen_bit_and_a_capable_gpu),
		cmocka_unit_test(attention_is_monotone),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
