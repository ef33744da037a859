/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_TEST_COST_FIXTURE_H
#define ADP_TEST_COST_FIXTURE_H

#include <math.h>

#include "adp/cost.h"

/* cmocka's own comparison of reals is in single precision. */
#define assert_near(value, expected, tolerance)                                                    \
	do {                                                                                           \
		double near_value = (value), near_expected = (expected);                                   \
		if (!(fabs(near_value - near_expected) <= (tolerance)))                                    \
			fail_msg("%s is %.12g, expected %.12g", #value, near_value, near_expected);            \
	} while (0)

/* GPU types by hand: datasheet peaks, so that these tests stand on their own. */
static inline struct adp_gpu_type gpu_of(const char *name, const char *arch, uint32_t cc,
                                         double bf16, double fp16, double memory, double nvlink)
{
	struct adp_gpu_type gpu = {
		.name = name,
		.alias = name,
		.vendor = "NVIDIA",
		.arch = arch,
		.compute_capability = cc,
		.memory_bytes = 80ull << 30,
		.memory_bytes_per_s = memory,
		.nvlink_bytes_per_s = nvlink,
		.nvlink_domain_gpus = 8,
		.pcie_bytes_per_s = 32e9,
		.node_gpus = 8,
	};

	gpu.peak_flops_per_s[ADP_PRECISION_BF16] = bf16;
	gpu.peak_flops_per_s[ADP_PRECISION_FP16] = fp16;
	gpu.peak_flops_per_s[ADP_PRECISION_TF32] = bf16 / 2;
	gpu.peak_flops_per_s[ADP_PRECISION_FP8] = cc >= 89 ? 2 * bf16 : 0;
	return gpu;
}

static inline struct adp_gpu_type a100(void)
{
	struct adp_gpu_type gpu = gpu_of("NVIDIA-A100-SXM4-80GB", "Ampere", 80, 312e12, 312e12,
	                                 2.039e12, 300e9);

	gpu.peak_flops_per_s[ADP_PRECISION_FP32] = 19.5e12;
	gpu.measured_bf16_flops_per_s = 271.2e12;
	return gpu;
}

static inline struct adp_gpu_type h100(void)
{
	struct adp_gpu_type gpu = gpu_of("NVIDIA-H100-80GB-HBM3", "Hopper", 90, 989e12, 989e12, 3.35e12,
	                                 450e9);

	gpu.peak_flops_per_s[ADP_PRECISION_FP32] = 67e12;
	gpu.measured_bf16_flops_per_s = 794.5e12;
	return gpu;
}

static inline struct adp_gpu_type v100(void)
{
	struct adp_gpu_type gpu = gpu_of("Tesla-V100-SXM2-32GB", "Volta", 70, 0, 125e12, 0.9e12, 150e9);

	gpu.peak_flops_per_s[ADP_PRECISION_TF32] = 0;
	gpu.peak_flops_per_s[ADP_PRECISION_FP32] = 15.7e12;
	return gpu;
}

static inline struct adp_path path_of(const struct adp_gpu_type *gpu, uint32_t n,
                                      enum adp_link_kind kind, double bytes_per_s)
{
	return (struct adp_path){
		1, {{n, {kind, bytes_per_s, kind == ADP_LINK_NIC ? 5e-6 : 1.7e-6, 0}, gpu}}};
}

/* Same sequence on every machine: xorshift, then a double in [0, 1). */
static inline double next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (double)(*state >> 11) / 9007199254740992.0;
}

#endif
