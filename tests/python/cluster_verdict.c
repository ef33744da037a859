/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_verdict FILE...: one line per file, "ok" or the error. */
#include <stdio.h>

#include "adp/cluster.h"

int main(int argc, char **argv)
{
	struct adp_error err = {0};
	struct adp_hardware *hw;

	if (adp_hardware_load(&hw, NULL, NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	for (int i = 1; i < argc; i++) {
		struct adp_cluster *cluster;
		int rc = adp_cluster_load(&cluster, argv[i], hw, &err);

		for (char *c = err.text; *c; c++)
			*c = *c == '\n' ? ' ' : *c;
		printf("%s\n", rc ? err.text : "ok");
		adp_cluster_destroy(cluster);
	}
	adp_hardware_destroy(hw);
	return 0;
}
