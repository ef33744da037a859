/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cost_fixture.h"

#include "cost/tables_read.h"

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

/* Measured BF16 microseconds, ai-dynamo/aiconfigurator@095f58a, <system>_gemm_vllm. */
struct point {
	double m, n, k, us;
};
struct measured {
	const char *name, *arch;
	double peak, memory;
	struct point points[8];
};
static const struct measured measurements[] = {
	{"NVIDIA-A100-SXM4-80GB",
     "Ampere",
     312e12,
     2.039e12,
     {{4096, 4096, 4096, 539.5},
      {8192, 8192, 8192, 3743},
      {2048, 10240, 8192, 1185},
      {1024, 1024, 1024, 17.89},
      {256, 4096, 4096, 54.43},
      {4096, 1536, 7168, 357.2},
      {8192, 16384, 5120, 4744},
      {512, 7168, 2048, 108.5}}},
	{"NVIDIA-H100-80GB-HBM3",
     "Hopper",
     989e12,
     3.35e12,
     {{4096, 4096, 4096, 156},
      {8192, 8192, 8192, 1374},
      {2048, 10240, 8192, 1400},
      {1024, 1024, 1024, 6.008},
      {256, 4096, 4096, 19.2},
      {4096, 1536, 7168, 111},
      {8192, 16384, 5120, 1844},
      {512, 7168, 2048, 22.35}}},
	{"NVIDIA-H200",
     "Hopper",
     989e12,
     4.8e12,
     {{4096, 4096, 4096, 168.7},
      {8192, 8192, 8192, 1557},
      {2048, 10240, 8192, 452.4},
      {1024, 1024, 1024, 5.703},
      {256, 4096, 4096, 17.44},
      {4096, 1536, 7168, 109.8},
      {8192, 16384, 5120, 1871},
      {512, 7168, 2048, 23.92}}},
	{"NVIDIA-B200",
     "Blackwell",
     2250e12,
     8.0e12,
     {{4096, 4096, 4096, 91.63},
      {8192, 8192, 8192, 707.7},
      {2048, 10240, 8192, 225.4},
      {1024, 1024, 1024, 4.539},
      {256, 4096, 4096, 10.33},
      {4096, 1536, 7168, 64.6},
      {8192, 16384, 5120, 1015},
      {512, 7168, 2048, 14.43}}},
	{"NVIDIA-GB200",
     "Blackwell",
     2500e12,
     8.0e12,
     {{4096, 4096, 4096, 80.6},
      {8192, 8192, 8192, 592.5},
      {2048, 10240, 8192, 204.6},
      {1024, 1024, 1024, 5.229},
      {256, 4096, 4096, 11.88},
      {4096, 1536, 7168, 58.91},
      {8192, 16384, 5120, 907.3},
      {512, 7168, 2048, 12.93}}},
	{"NVIDIA-L40S",
     "Ada",
     362e12,
     0.864e12,
     {{4096, 4096, 4096, 545.1},
      {8192, 8192, 8192, 4046},
      {2048, 10240, 8192, 1222},
      {1024, 1024, 1024, 13.48},
      {256, 4096, 4096, 59.43},
      {4096, 1536, 7168, 419.1},
      {8192, 16384, 5120, 5807},
      {512, 7168, 2048, 63.46}}},
};
enum { N_MEASURED = sizeof measurements / sizeof measurements[0] };

/* Seven of eight within twice the band, five within it: the band is a p90, and single measurements
 * are off (H100, 2048 x 10240 x 8192: 1400 us; the slower-clocked H200 takes 452). */
static void times_agree_with_measured_points_of_six_gpus(void **state)
{
	(void)state;
	for (int g = 0; g < N_MEASURED; g++) {
		const struct measured *x = &measurements[g];
		struct adp_gpu_type gpu = gpu_of(x->name, x->arch, 80, x->peak, x->peak, x->memory, 0);
		int inside = 0, near = 0;

		assert_true(adp_matmul_is_measured(tables, &gpu));
		for (int i = 0; i < 8; i++) {
			const struct point *p = &x->points[i];
			double band = 0,
				   s = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, p->m, p->n, p->k, &band);
			double off = fabs(s * 1e6 / p->us - 1);

			inside += off <= band;
			near += off <= 2 * band;
			print_message(
				"%-22s %5.0f x %5.0f x %5.0f: measured %7.1f us, table %7.1f (%+.1f %%)\n", x->name,
				p->m, p->n, p->k, p->us, s * 1e6, 100 * (s * 1e6 / p->us - 1));
		}
		assert_true(inside >= 5);
		assert_true(near >= 7);
	}
}

/* A table of one efficiency everywhere, so that the formula can be followed by hand. */
static struct adp_tables *flat_tables(void)
{
	static const char text[] =
		"curve,m,n,k64,k128\n"
		"A100,16,64,0.5,0.5\nA100,16,128,0.5,0.5\nA100,32,64,0.5,0.5\nA100,32,128,0.5,0.5\n"
		"H100,16,64,0.5,0.5\nH100,16,128,0.5,0.5\nH100,32,64,0.5,0.5\nH100,32,128,0.5,0.5\n"
		"H200,16,64,0.5,0.5\nH200,16,128,0.5,0.5\nH200,32,64,0.5,0.5\nH200,32,128,0.5,0.5\n"
		"B200,16,64,0.5,0.5\nB200,16,128,0.5,0.5\nB200,32,64,0.5,0.5\nB200,32,128,0.5,0.5\n"
		"GB200,16,64,0.5,0.5\nGB200,16,128,0.5,0.5\nGB200,32,64,0.5,0.5\nGB200,32,128,0.5,0.5\n"
		"L40S,16,64,0.5,0.5\nL40S,16,128,0.5,0.5\nL40S,32,64,0.5,0.5\nL40S,32,128,0.5,0.5\n";
	const struct cost_table_text given = {"matmul.csv", text, sizeof text - 1};
	struct adp_tables *flat = NULL;
	struct adp_error err = {0};

	if (cost_tables_build(&flat, NULL, &given, 1, &err))
		fail_msg("%s", err.text);
	return flat;
}

static void a_flat_table_gives_the_closed_formula(void **state)
{
	struct adp_tables *flat = flat_tables();
	struct adp_gpu_type gpu = h100();
	/* 2 * 1024^3 / (989e12 * 0.5) = 4.34275 us; 3 * 2 * 1024^2 / (3.35e12 * 0.9) = 2.08674 us;
	 * 2.48 + (4.34275^3 + 2.08674^3)^(1/3) = 2.48 + 4.49774 us */
	double compute = 2147483648.0 / (989e12 * 0.5), memory = 6291456.0 / (3.35e12 * 0.9);
	double expected = 2.48e-6 + cbrt(pow(compute, 3) + pow(memory, 3));

	(void)state;
	assert_near(expected * 1e6, 6.97774, 1e-4);
	assert_near(adp_matmul_s(flat, &gpu, ADP_PRECISION_BF16, 1024, 1024, 1024, NULL) * 1e6,
	            expected * 1e6, 1e-9);
	adp_tables_destroy(flat);
}

static void a_measured_rate_sets_the_scale_of_a_gpu_without_a_curve(void **state)
{
	struct adp_tables *flat = flat_tables();
	struct adp_gpu_type gpu = gpu_of("NVIDIA-H100-PCIe", "Hopper", 90, 756e12, 756e12, 1e20, 0);
	double s, s_measured, work = 2 * pow(16384, 3);

	(void)state;
	/* Default ceiling 0.78 against 0.803 of the H100: efficiency 0.5 * 0.78 / 0.803 = 0.48568. */
	s = adp_matmul_s(flat, &gpu, ADP_PRECISION_BF16, 16384, 16384, 16384, NULL);
	assert_near((s - 2.48e-6) * 756e12 * 0.5 * 0.78 / 0.803 / work, 1, 1e-9);
	/* 600 of 756 TFLOPS = 0.79365 measured: 0.5 * 0.79365 / 0.803. */
	gpu.measured_bf16_flops_per_s = 600e12;
	s_measured = adp_matmul_s(flat, &gpu, ADP_PRECISION_BF16, 16384, 16384, 16384, NULL);
	assert_near((s_measured - 2.48e-6) * 600e12 * 0.5 / 0.803 / work, 1, 1e-9);
	assert_true(s_measured < s);
	adp_tables_destroy(flat);
}

static void beyond_the_table_time_grows_with_the_work(void **state)
{
	struct adp_gpu_type gpu = h100();
	double one = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, 1 << 20, 8192, 8192, NULL);
	double two = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, 1 << 21, 8192, 8192, NULL);

	(void)state;
	assert_near(two / one, 2, 1e-3);
}

static void no_shape_beats_the_peak(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		struct adp_gpu_type gpu = i % 2 ? h100() : a100();
		double m = exp2(20 * next_random(&seed)), n = exp2(17 * next_random(&seed)),
			   k = exp2(17 * next_random(&seed));
		double s;

		gpu.measured_bf16_flops_per_s = gpu.peak_flops_per_s[ADP_PRECISION_BF16];
		gpu.name = i % 3 ? gpu.name : "unknown";
		s = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, m, n, k, NULL);
		assert_true(2 * m * n * k / s <= gpu.peak_flops_per_s[ADP_PRECISION_BF16]);
	}
}

static void a_missing_precision_takes_for_ever(void **state)
{
	struct adp_gpu_type gpu = v100();

	(void)state;
	assert_true(isinf(adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, 1024, 1024, 1024, NULL)));
	assert_true(isfinite(adp_matmul_s(tables, &gpu, ADP_PRECISION_FP16, 1024, 1024, 1024, NULL)));
}

static void fp8_gains_about_half_on_large_shapes(void **state)
{
	struct adp_gpu_type gpu = h100();
	double ratio = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, 16384, 8192, 8192, NULL) /
	               adp_matmul_s(tables, &gpu, ADP_PRECISION_FP8, 16384, 8192, 8192, NULL);

	(void)state;
	assert_in_range((int)(ratio * 100), 150, 160); /* twice the peak x 0.78 = 1.56 */
}

static void a_v100_reaches_half_of_its_peak(void **state)
{
	struct adp_gpu_type gpu = v100();
	double band = 0, s = adp_matmul_s(tables, &gpu, ADP_PRECISION_FP16, 8192, 8192, 8192, &band);
	double share = 2 * pow(8192, 3) / s / 125e12;

	(void)state;
	/* 0.65 x 0.78 = 0.51, the fit on V100 training runs; the A100's 0.87 at this shape x 0.62 =
	 * 0.54. */
	assert_true(share > 0.48 && share < 0.58);
	assert_true(band > 0.25);
	assert_false(adp_matmul_is_measured(tables, &gpu));
}

static void an_unknown_type_gets_a_wide_band(void **state)
{
	struct adp_gpu_type gpu = gpu_of("Some-New-GPU", "Rubin", 110, 5000e12, 5000e12, 20e12, 1800e9);
	struct adp_gpu_type known = h100();
	double wide = 0, narrow = 0;

	(void)state;
	adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, 8192, 8192, 8192, &wide);
	adp_matmul_s(tables, &known, ADP_PRECISION_BF16, 8192, 8192, 8192, &narrow);
	assert_true(wide >= 3 * narrow);
}

static const char *const types[][2] = {
	{"NVIDIA-A100-SXM4-80GB", "Ampere"},
	{"NVIDIA-H100-80GB-HBM3", "Hopper"},
	{"NVIDIA-H200", "Hopper"},
	{"NVIDIA-B200", "Blackwell"},
	{"NVIDIA-GB200", "Blackwell"},
	{"NVIDIA-L40S", "Ada"},
	{"Tesla-T4", "Turing"},
	{"AMD-Instinct-MI300X", "CDNA3"},
	{"x", "y"},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Each of 30,000 random points is compared with a larger side, a faster GPU and a faster memory. */
static void larger_shapes_never_cost_less_and_faster_gpus_never_more(void **state)
{
	uint64_t seed = 42;

	(void)state;
	for (int i = 0; i < 30000; i++) {
		const char *const *type = types[i % N_TYPES];
		double peak = exp2(45 + 6 * next_random(&seed)), memory = exp2(38 + 5 * next_random(&seed));
		struct adp_gpu_type gpu = gpu_of(type[0], type[1], 90, peak, peak, memory, 0), faster;
		enum adp_precision precision = (enum adp_precision)(1 + (int)(4 * next_random(&seed)));
		double side[3], grow = 1 + next_random(&seed) * (i % 3 ? 3 : 1e-3), s;

		if (i % 2)
			gpu.measured_bf16_flops_per_s = peak * next_random(&seed);
		for (int d = 0; d < 3; d++)
			side[d] = floor(exp2(20 * next_random(&seed))) + 1;
		s = adp_matmul_s(tables, &gpu, precision, side[0], side[1], side[2], NULL);
		assert_true(s > 0 && isfinite(s));
		for (int d = 0; d < 3; d++) {
			double old = side[d];

			side[d] *= grow;
			assert_true(adp_matmul_s(tables, &gpu, precision, side[0], side[1], side[2], NULL) >=
			            s * (1 - 1e-12));
			side[d] = old;
		}
		faster = gpu;
		for (int p = 0; p < ADP_N_PRECISIONS; p++)
			faster.peak_flops_per_s[p] *= grow;
		assert_true(adp_matmul_s(tables, &faster, precision, side[0], side[1], side[2], NULL) <=
		            s * (1 + 1e-12));
		faster = gpu;
		faster.memory_bytes_per_s *= grow;
		assert_true(adp_matmul_s(tables, &faster, precision, side[0], side[1], side[2], NULL) <=
		            s * (1 + 1e-12));
		faster = gpu;
		faster.measured_bf16_flops_per_s *= grow;
		assert_true(adp_matmul_s(tables, &faster, precision, side[0], side[1], side[2], NULL) <=
		            s * (1 + 1e-12));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(times_agree_with_measured_points_of_six_gpus),
		cmocka_unit_test(a_flat_table_gives_the_closed_formula),
		cmocka_unit_test(a_measured_rate_sets_the_scale_of_a_gpu_without_a_curve),
		cmocka_unit_test(beyond_the_table_time_grows_with_the_work),
		cmocka_unit_test(no_shape_beats_the_peak),
		cmocka_unit_test(a_missing_precision_takes_for_ever),
		cmocka_unit_test(fp8_gains_about_half_on_large_shapes),
		cmocka_unit_test(a_v100_reaches_half_of_its_peak),
		cmocka_unit_test(an_unknown_type_gets_a_wide_band),
		cmocka_unit_test(larger_shapes_never_cost_less_and_faster_gpus_never_more),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
