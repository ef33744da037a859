/* SPDX-License-Identifier: Apache-2.0 */
/* links: cluster; covers: src/cluster/gpu_list.c src/cluster/hardware_find.c src/cluster/name.c */
#include "cluster_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct adp_hardware *hw;
	struct adp_cluster *cluster;
	struct adp_error err = {0};
	enum adp_precision precision;
	char *text = malloc(size + 1);

	if (!text || (!hw && adp_hardware_load(&hw, NULL, NULL, &err)))
		abort();
	if (size)
		memcpy(text, data, size);
	text[size] = '\0';
	if (adp_cluster_from_gpus(&cluster, text, hw, &err)) {
		check_that(!cluster && err.code && err.text[0]);
	} else {
		check_cluster(cluster);
		adp_cluster_destroy(cluster);
	}
	if (adp_precision_parse(&precision, text, &err) == ADP_OK)
		check_that(adp_precision_name(precision)[0] != '?');
	free(text);
	return 0;
}
