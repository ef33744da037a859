/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_HARDWARE_H
#define ADP_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
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
	const char *name;  /* as GPU feature discovery prints it: NVIDIA-H100-80GB-HBM3 */
	const char *alias; /* short name people type: H100, A100-80 */
	const char *aka;   /* other spellings, ';' between them; "" = none */
	const char *vendor, *arch;
	uint32_t compute_capability; /* 90 = 9.0; 0 for other vendors */
	uint32_t year;
	uint64_t memory_bytes; /* as the driver reports it where known, else nominal */
	double memory_bytes_per_s;
	double peak_flops_per_s[ADP_N_PRECISIONS];
	double measured_bf16_flops_per_s; /* best measured matmul rate; 0 = unknown */
	double nvlink_bytes_per_s;        /* per GPU and direction; 0 = none */
	uint32_t nvlink_domain_gpus;      /* GPUs of one NVLink domain as usually built; 0 = none */
	double pcie_bytes_per_s;          /* per GPU and direction */
	double nic_bytes_per_s;           /* usual network share per GPU and direction, an assumption */
	uint32_t node_gpus;               /* GPUs of a usual node */
	uint32_t node_nics;               /* rails of a usual node */
	uint32_t gpus_per_root;           /* PCIe: GPUs that usually share a root port; 1 = none */
	const char *mixes_with; /* smaller-memory type seen in one node under this label; "" = none */
	double tdp_w, min_power_w;
	const char *source;
	const char *unverified; /* field names, comma separated; "all" */
};

/* One row of data/links.csv: "nvlink", "pcie3" .. "pcie6", "nic", "rack", "spine". */
struct adp_link_class {
	const char *name;
	double bytes_per_s; /* 0 = a property of the GPU type, or unlimited (rack, spine) */
	double latency_s;
};

/* One row of data/accelerators.csv: what a provider's node label says about the GPU type. */
struct adp_accelerator {
	const char *label, *value;
	const char *gpus; /* names in gpus.csv, ';' between them when the label leaves several open */
};

/* One row of data/instances.csv: GPUs and network of a cloud machine type. */
struct adp_instance {
	const char *name;
	const char *gpus;
	uint32_t n_gpus, n_nics;
	double nic_bytes_per_s; /* of the node */
};

/*
 * The shipped tables. Immutable, shared by all threads. Loaded from the copy compiled into
 * the library, or from a folder with the same file names.
 */
struct adp_hardware {
	struct adp_arena arena;
	const struct adp_gpu_type *types;
	uint32_t n_types;
	const struct adp_link_class *links;
	uint32_t n_links;
	const struct adp_accelerator *accelerators;
	uint32_t n_accelerators;
	const struct adp_instance *instances; /* sorted by name */
	uint32_t n_instances;
	const char *version; /* of the data, cited by every plan */
};

/*
 * dir NULL: the compiled-in tables; else a folder with files of the same names.
 * overrides: NULL or path of a CSV with `name` and any subset of the columns of gpus.csv: a row
 * that names a known type replaces the cells it fills; any other row adds a type (then memory_gib,
 * memory_bw_gbs, one of fp16_tflops and bf16_tflops, pcie_gen, node_gpus and nic_gbs are needed).
 */
int adp_hardware_load(struct adp_hardware **out, const char *dir, const char *overrides,
                      struct adp_error *err);
/* The same with the overrides as text; where names it in errors. */
int adp_hardware_load_text(struct adp_hardware **out, const char *dir, const char *overrides,
                           size_t len, const char *where, struct adp_error *err);
void adp_hardware_destroy(struct adp_hardware *hw);

/*
 * Finds a type by name, alias, or a spelling of either: case, '_' or ' ' for '-', without the
 * vendor's prefix. A name that fits several memory sizes ("V100") is ambiguous unless memory_mib (0
 * = not known) picks one. NULL when nothing or more than one matches; then near gets the closest
 * aliases, comma separated ("" = none near).
 */
const struct adp_gpu_type *adp_hardware_find(const struct adp_hardware *hw, const char *name,
                                             uint64_t memory_mib, char *near, size_t near_size);

/* NULL when there is no such class. */
const struct adp_link_class *adp_hardware_link(const struct adp_hardware *hw, const char *name);

/* Largest 16-bit peak of the type: what clusters are sorted by. */
double adp_gpu_type_peak(const struct adp_gpu_type *type);

#endif
