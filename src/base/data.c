/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/data_embedded.h"
#include "base/file.h"
#include "base/strbuf.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAX_TABLE_BYTES = 64 << 20 };

static char version[17];
static pthread_once_t version_once = PTHREAD_ONCE_INIT;

static void compute_version(void)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (const struct adp_data_file *file = adp_data_files; file->name; file++) {
		uint64_t size = file->size;

		XXH3_64bits_update(&state, file->name, strlen(file->name) + 1);
		XXH3_64bits_update(&state, &size, sizeof size);
		XXH3_64bits_update(&state, file->bytes, file->size);
	}
	snprintf(version, sizeof version, "%016llx", (unsigned long long)XXH3_64bits_digest(&state));
}

const char *adp_data_version(void)
{
	pthread_once(&version_once, compute_version);
	return version;
}

/* Sets *found when dir has the table. A folder that isn't there is an error, a missing table isn't.
 */
static int open_in_folder(const char **text, size_t *len, char **owned, bool *found,
                          const char *name, const char *dir, struct adp_error *err)
{
	struct adp_strbuf path = {0};
	struct stat st;
	int rc;

	*found = false;
	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return adp_fail(err, ADP_EIO, "%s: not a folder of data tables; give an existing folder",
		                dir);
	adp_strbuf_addf(&path, "%s/%s", dir, name);
	if (path.failed) {
		adp_strbuf_fini(&path);
		return adp_nomem(err);
	}
	if (stat(path.text, &st) && errno == ENOENT) {
		adp_strbuf_fini(&path);
		return ADP_OK;
	}
	rc = adp_file_read(owned, len, path.text, MAX_TABLE_BYTES, err);
	adp_strbuf_fini(&path);
	if (rc)
		return rc;
	*text = *owned;
	*found = true;
	return ADP_OK;
}

int adp_data_open(const char **text, size_t *len, char **owned, const char *name, const char *dir,
                  struct adp_error *err)
{
	bool found = false;
	int rc;

	*owned = NULL;
	if (!name[0] || name[0] == '/' || strstr(name, ".."))
		return adp_fail(err, ADP_EINVAL, "'%s' is not the name of a data table", name);
	if (dir) {
		rc = open_in_folder(text, len, owned, &found, name, dir, err);
		if (rc || found)
			return rc;
	}
	for (const struct adp_data_file *file = adp_data_files; file->name; file++) {
		if (strcmp(file->name, name) == 0) {
			*text = (const char *)file->bytes;
			*len = file->size;
			return ADP_OK;
		}
	}
	return adp_fail(err, ADP_EINVAL, "no data table named '%s' is compiled in%s%s%s", name,
	                dir ? " or found in " : "", dir ? dir : "", dir ? "" : "; check the name");
}
