/* SPDX-License-Identifier: Apache-2.0 */
#include <adp/units.h>
#include <stdio.h>

int main(void)
{
	struct adp_error err = {0};
	uint64_t bytes;

	if (adp_parse_bytes(&bytes, "80GiB", "memory", &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	return bytes == UINT64_C(80) << 30 ? 0 : 1;
}
