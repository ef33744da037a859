/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_HARDWARE_H
#define ADP_HARDWARE_H

#include <stdbool.h>
#include <stdint.h>

#include "adp/arena.h"
#include "adp/error.h"

enum adp_precision {
	ADP_PRECISION_FP32,
	ADP_PRECISION_TF32,
	ADP_PRECISION_FP16,
	ADP_PRECISION_BF16,
	ADP_PRECISION_FP8,
	ADP_N_PRECISIONS,
};
const char *adp_precision_name(enum adp_precision precision); /* "bf16" */
int adp_precision_parse(enum adp_precision *out, const char *text, struct adp_error *err);

/* One row of data/gpus.csv. Peaks are dense, in FLOP/s; 0 = the GPU has no such path. */
struct adp_gpu_type {
	const char *name;   /* as GPU feature discovery prints it: NVIDIA-H100-80GB-HBM3 */
	const char *alias;  /* short name people type: H100, A100-80 */
	const char *vendor, *arch;
	uint32_t compute_capability; /* 90 = 9.0; 0 for other vendors */
	uint32_t year;
	uint64_t memory_bytes;
	double memory_bytes_per_s;
	double peak_flops_per_s[ADP_N_PRECISIONS];
	double measured_bf16_flops_per_s; /* best measured matmul rate; 0 = unknown */
	double nvlink_bytes_per_s;        /* per GPU and direction; 0 = none */
	uint32_t nvlink_domain_gpus;      /* GPUs of one NVLink domain as usually built; 0 = none */
	double pcie_bytes_per_s;          /* per GPU and direction */
	double nic_bytes_per_s;           /* usual network share per GPU and direction, an assumption */
	uint32_t node_gpus;               /* GPUs of a usual node */
	double tdp_w, min_power_w;
	const char *source;
	const char *unverified; /* field names, comma separated; "all" */
};

/*
 * The shipped tables. Immutable, shared by all threads. Loaded from the copy compiled into
 * the library, or from a folder with the same file names.
 */
struct adp_hardware {
	struct adp_arena arena;
	const struct adp_gpu_type *types;
	uint32_t n_types;
	const char *version; /* of the data, cited by every plan */
};

/* dir NULL: the compiled-in tables. overrides: NULL or path of a CSV whose rows replace or add types. */
int adp_hardware_load(struct adp_hardware **out, const char *dir, const char *overrides,
                      struct adp_error *err);
void adp_hardware_destroy(struct adp_hardware *hw);

/*
 * Finds a type by name, alias, or a spelling of either (case, '_' for '-', "-SHARED" and MIG
 * suffixes are refused by the cluster reader before). memory_mib breaks ties between memory sizes
 * (0 = not known). NULL when nothing or more than one matches; then *near gets the closest names.
 */
const struct adp_gpu_type *adp_hardware_find(const struct adp_hardware *hw, const char *name,
                                             uint64_t memory_mib, char *near, size_t near_size);

#endif
