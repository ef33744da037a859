/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/strbuf.h"

static ssize_t read_some(int fd, char *at, size_t size)
{
	ssize_t n;

	do {
		n = read(fd, at, size);
	} while (n < 0 && errno == EINTR);
	return n;
}

static int read_all(char **out, size_t *len, int fd, const char *name, size_t max,
                    struct adp_error *err)
{
	struct stat st;
	size_t cap = 65536, used = 0, grown;
	char *text = NULL, *larger;
	ssize_t n;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    (uintmax_t)st.st_size <= max)
		cap = (size_t)st.st_size + 2; /* one more than needed, so that the end is seen at once */
	text = adp_malloc(cap);
	if (!text)
		return adp_nomem(err);
	for (;;) {
		n = read_some(fd, text + used, cap - 1 - used);
		if (n < 0) {
			adp_free(text);
			return adp_fail(err, ADP_EIO, "%s: cannot read: %s", name, strerror(errno));
		}
		if (n == 0)
			break;
		used += (size_t)n;
		if (used > max) {
			adp_free(text);
			return adp_fail(err, ADP_ELIMIT,
			                "%s: larger than the limit of %zu bytes; give a smaller file", name,
			                max);
		}
		if (used < cap - 1)
			continue;
		if (__builtin_mul_overflow(cap, (size_t)2, &grown) ||
		    !(larger = adp_realloc(text, grown))) {
			adp_free(text);
			return adp_nomem(err);
		}
		text = larger;
		cap = grown;
	}
	text[used] = '\0';
	*out = text;
	*len = used;
	return ADP_OK;
}

int adp_file_read(char **out, size_t *len, const char *path, size_t max, struct adp_error *err)
{
	int fd, rc;

	if (strcmp(path, "-") == 0)
		return read_all(out, len, STDIN_FILENO, "standard input", max, err);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return adp_fail(err, ADP_EIO, "%s: cannot open: %s; check the path and its permissions",
		                path, strerror(errno));
	rc = read_all(out, len, fd, path, max, err);
	close(fd);
	return rc;
}

static int write_all(int fd, const char *content, size_t len)
{
	ssize_t n;

	while (len) {
		n = write(fd, content, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		content += n;
		len -= (size_t)n;
	}
	return 0;
}

/* /dev/null, a pipe: there is no old content to keep, and no name to replace. */
static int write_in_place(const char *path, const char *content, size_t len, struct adp_error *err)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), rc = ADP_OK;

	if (fd < 0)
		return adp_fail(err, ADP_EIO, "%s: cannot open to write: %s", path, strerror(errno));
	if (write_all(fd, content, len))
		rc = adp_fail(err, ADP_EIO, "%s: cannot write: %s", path, strerror(errno));
	if (close(fd) && !rc)
		rc = adp_fail(err, ADP_EIO, "%s: cannot write: %s", path, strerror(errno));
	return rc;
}

/* A rename is on disk only once its folder is. Folders of some file systems refuse; that is no loss
 * of content. */
static void sync_folder(const char *path, size_t folder_len)
{
	char folder[PATH_MAX];
	int fd;

	if (folder_len >= sizeof folder)
		return;
	memcpy(folder, path, folder_len);
	folder[folder_len] = '\0';
	fd = open(folder_len ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	(void)fsync(fd);
	close(fd);
}

/* Opens a new file beside path; the kernel applies the umask. */
static int open_temporary(char **name, const char *path, size_t folder_len, int executable)
{
	struct adp_strbuf buf = {0};
	int fd = -1;

	for (unsigned i = 0; fd < 0 && i < 1000; i++) {
		adp_strbuf_fini(&buf);
		adp_strbuf_addn(&buf, path, folder_len);
		adp_strbuf_addf(&buf, ".adp-%ld-%u.tmp", (long)getpid(), i);
		if (buf.failed) {
			errno = ENOMEM;
			break;
		}
		fd = open(buf.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, executable ? 0777 : 0666);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0) {
		int keep = errno;

		adp_strbuf_fini(&buf);
		errno = keep;
		return -1;
	}
	*name = adp_strbuf_steal(&buf);
	return fd;
}

static int replace(const char *path, const char *content, size_t len, int executable,
                   struct adp_error *err)
{
	const char *slash = strrchr(path, '/');
	size_t folder_len = slash ? (size_t)(slash - path) + 1 : 0;
	char *name = NULL;
	int fd = open_temporary(&name, path, folder_len, executable), bad;

	if (fd < 0)
		return errno == ENOMEM ? adp_nomem(err)
		                       : adp_fail(err, ADP_EIO,
		                                  "%s: cannot create a file in its folder: %s; the "
		                                  "folder must exist and be writable",
		                                  path, strerror(errno));
	bad = write_all(fd, content, len) || fsync(fd);
	if (bad) {
		bad = errno;
		close(fd);
	} else if (close(fd) || rename(name, path)) {
		bad = errno;
	}
	if (bad) {
		unlink(name);
		adp_free(name);
		return adp_fail(err, ADP_EIO, "%s: cannot write: %s; the old file, if any, is untouched",
		                path, strerror(bad));
	}
	adp_free(name);
	sync_folder(path, folder_len);
	return ADP_OK;
}

int adp_file_write(const char *path, const char *content, size_t len, int executable,
                   struct adp_error *err)
{
	char real[PATH_MAX];
	struct stat st;

	if (!path[0])
		return adp_fail(err, ADP_EINVAL, "the name of the file to write is empty; give a path");
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return adp_fail(err, ADP_EIO, "%s: is a folder; give the path of a file", path);
		if (!S_ISREG(st.st_mode))
			return write_in_place(path, content, len, err);
		if (realpath(path, real)) /* write through a link, don't replace it */
			path = real;
	}
	return replace(path, content, len, executable, err);
}
