/* SPDX-License-Identifier: Apache-2.0 */
/* links: cost; covers: src/cost/tables.c src/cost/tables_read.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/tables_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever an accepted table says, times are real and grow with the work. */
static void use(const struct adp_tables *tables)
{
	struct adp_gpu_type gpu = {
		.name = "NVIDIA-H100-80GB-HBM3", .arch = "Hopper", .memory_bytes_per_s = 3e12};
	struct adp_path path = {1, {{8, {ADP_LINK_NVLINK, 450e9, 2e-6, 0}, &gpu}}};
	double before = 0, one, two;

	if (strlen(adp_tables_version(tables)) != 16)
		abort();
	gpu.peak_flops_per_s[ADP_PRECISION_BF16] = 989e12;
	for (double side = 1; side < 1e6; side *= 3) {
		double s = adp_matmul_s(tables, &gpu, ADP_PRECISION_BF16, side, side, side, NULL);

		if (!isfinite(s) || s < before * (1 - 1e-9))
			abort();
		before = s;
	}
	for (int kind = ADP_LINK_NVLINK; kind <= ADP_LINK_SPINE; kind++) {
		path.level[0].link.kind = (enum adp_link_kind)kind;
		one = adp_collective_s(tables, ADP_ALL_REDUCE, &path, 1e6);
		two = adp_collective_s(tables, ADP_ALL_REDUCE, &path, 2e6);
		if (!isfinite(two) || !(two >= one * (1 - 1e-9)))
			abort();
	}
}

#define NODES(curve)                                                                               \
	curve ",16,64,0.1,0.2\n" curve ",16,128,0.2,0.3\n" curve ",32,64,0.2,0.3\n" curve              \
		  ",32,128,0.3,0.4\n"
#define OPS(curve)                                                                                 \
	curve ",3e11,all_reduce,2,5,9\n" curve ",3e11,all_gather,2,5,9\n" curve                        \
		  ",3e11,reduce_scatter,2,5,9\n" curve ",3e11,all_to_all,2,5,9\n"

/* Small stand-ins for the large tables, for speed. */
static const char matmul[] = "curve,m,n,k64,k128\n" NODES("A100") NODES("H100") NODES("H200")
	NODES("B200") NODES("GB200") NODES("L40S");
static const char collectives[] = "curve,link_bytes_per_s,op,n_gpus,b1024,b2048\n" OPS("A100")
	OPS("H100") OPS("H200") OPS("B200") OPS("GB200") OPS("V100");

/* The first line names the table, the rest is its text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = memchr(data, '\n', size);
	struct adp_tables *tables = NULL;
	struct adp_error err = {0};
	size_t length;

	if (!end)
		return 0;
	length = (size_t)(end - data);
	for (size_t i = 0; cost_table_file(i); i++) {
		const char *name = cost_table_file(i);
		const struct cost_table_text given[] = {
			{name, (const char *)end + 1, size - length - 1},
			{"matmul.csv", matmul, sizeof matmul - 1},
			{"collectives.csv", collectives, sizeof collectives - 1},
		};

		if (strlen(name) != length || memcmp(name, data, length) != 0)
			continue;
		if (cost_tables_build(&tables, NULL, given, 3, &err) == ADP_OK)
			use(tables);
		else if (!err.text[0])
			abort();
		adp_tables_destroy(tables);
	}
	return 0;
}
