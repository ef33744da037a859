/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_BASE_FILE_H
#define ADP_BASE_FILE_H

#include <stddef.h>

#include "adp/error.h"

/* Whole file ("-" = standard input), terminated; caller frees with adp_free. A file over max bytes
 * is refused. */
int adp_file_read(char **out, size_t *len, const char *path, size_t max, struct adp_error *err);
/* Temporary name in the same folder, fsync, rename: the old file or the new one, never half. */
int adp_file_write(const char *path, const char *content, size_t len, int executable,
                   struct adp_error *err);

/* A shipped table ("gpus.csv"): from dir when dir is not NULL and has it, else the one compiled in.
 * *owned: free with adp_free if not NULL. */
int adp_data_open(const char **text, size_t *len, char **owned, const char *name, const char *dir,
                  struct adp_error *err);
/* Digest over all compiled-in tables, the data version plans cite. Static. */
const char *adp_data_version(void);

#endif
