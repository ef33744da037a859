/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_DATA_EMBEDDED_H
#define ADP_BASE_DATA_EMBEDDED_H

#include <stddef.h>

/* The files of data/, compiled in by cmake/embed.cmake. The list ends with a NULL name. */
struct adp_data_file {
	const char *name;           /* "gpus.csv", "models/llama3-70b.json" */
	const unsigned char *bytes; /* terminated by a zero that size does not count */
	size_t size;
};
extern const struct adp_data_file adp_data_files[];

#endif
