/* SPDX-License-Identifier: Apache-2.0 */
/* links: cluster; covers: src/cluster/hardware.c */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adp/hardware.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct adp_hardware *shipped;
	struct adp_hardware *hw;
	struct adp_error err = {0};

	if (!shipped && adp_hardware_load(&shipped, NULL, NULL, &err))
		abort();
	if (adp_hardware_load_text(&hw, NULL, (const char *)data, size, "fuzz", &err)) {
		if (hw || !err.code || !err.text[0])
			abort();
		return 0;
	}
	if (hw->n_types < shipped->n_types || strcmp(hw->version, shipped->version) == 0)
		abort();
	for (uint32_t i = 0; i < hw->n_types; i++) {
		const struct adp_gpu_type *type = &hw->types[i];

		if (!type->memory_bytes || !type->node_gpus || !(adp_gpu_type_peak(type) > 0) ||
		    !isfinite(type->memory_bytes_per_s) || !(type->pcie_bytes_per_s > 0) ||
		    adp_hardware_find(hw, type->name, 0, NULL, 0) != type)
			abort();
	}
	adp_hardware_destroy(hw);
	return 0;
}
