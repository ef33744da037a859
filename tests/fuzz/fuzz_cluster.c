/* SPDX-License-Identifier: Apache-2.0 */
/* links: cluster; covers: src/cluster/[cky]*.c */
#include "cluster_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct adp_hardware *hw;
	struct adp_cluster *cluster, *copy;
	struct adp_error err = {0};

	if (!hw && adp_hardware_load(&hw, NULL, NULL, &err))
		abort();
	if (adp_cluster_read(&cluster, (const char *)data, size, "fuzz", hw, &err)) {
		check_that(!cluster && err.code && err.text[0]);
		return 0;
	}
	check_cluster(cluster);
	if (adp_cluster_variant(&copy, cluster, NULL, NULL, 0, &err))
		abort();
	check_that(strcmp(copy->digest, cluster->digest) == 0);
	adp_cluster_destroy(copy);
	adp_cluster_destroy(cluster);
	return 0;
}
