/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "support/fault_sweep.h"

static char folder[] = "/tmp/adp-test-XXXXXX";

static const char *in_folder(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	struct dirent *entry;
	DIR *dir = opendir(folder);

	(void)state;
	while (dir && (entry = readdir(dir)))
		unlink(in_folder(entry->d_name));
	if (dir)
		closedir(dir);
	return rmdir(folder); /* fails if a test left a folder behind */
}

static void check_content(const char *path, const char *expected)
{
	struct adp_error err = {0};
	char *text;
	size_t len;

	if (adp_file_read(&text, &len, path, 1 << 20, &err))
		fail_msg("%s", err.text);
	assert_int_equal(len, strlen(expected));
	assert_string_equal(text, expected);
	adp_free(text);
}

static unsigned count_files(void)
{
	struct dirent *entry;
	DIR *dir = opendir(folder);
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n++;
	closedir(dir);
	return n - 2; /* . and .. */
}

static void a_file_is_written_whole_and_read_back(void **state)
{
	struct stat st;
	mode_t mask = umask(022);

	(void)state;
	assert_int_equal(adp_file_write(in_folder("a"), "one\n", 4, 0, NULL), ADP_OK);
	check_content(in_folder("a"), "one\n");
	assert_int_equal(stat(in_folder("a"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644);
	assert_int_equal(adp_file_write(in_folder("a"), "two", 3, 1, NULL), ADP_OK);
	check_content(in_folder("a"), "two");
	assert_int_equal(stat(in_folder("a"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	assert_int_equal(adp_file_write(in_folder("a"), "", 0, 0, NULL), ADP_OK);
	check_content(in_folder("a"), "");
	umask(mask);
	assert_int_equal(count_files(), 1); /* no temporary file is left */
	unlink(in_folder("a"));
}

static void writing_through_a_link_keeps_the_link(void **state)
{
	struct stat st;
	char target[PATH_MAX];

	(void)state;
	assert_int_equal(adp_file_write(in_folder("real"), "old", 3, 0, NULL), ADP_OK);
	strncpy(target, in_folder("real"), sizeof target - 1);
	target[sizeof target - 1] = '\0';
	assert_int_equal(symlink(target, in_folder("link")), 0);
	assert_int_equal(adp_file_write(in_folder("link"), "new", 3, 0, NULL), ADP_OK);
	check_content(target, "new");
	assert_int_equal(lstat(in_folder("link"), &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	unlink(in_folder("link"));
	unlink(target);
}

static void a_device_is_written_in_place(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(adp_file_write("/dev/null", "x", 1, 0, NULL), ADP_OK);
	assert_int_equal(stat("/dev/null", &st), 0);
	assert_true(S_ISCHR(st.st_mode));
	if (access("/dev/full", W_OK) == 0)
		assert_int_equal(adp_file_write("/dev/full", "x", 1, 0, NULL), ADP_EIO);
}

static void what_cannot_be_written_is_refused_by_name(void **state)
{
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_file_write(in_folder("no/such"), "x", 1, 0, &err), ADP_EIO);
	assert_non_null(strstr(err.text, "no/such"));
	assert_int_equal(adp_file_write(folder, "x", 1, 0, &err), ADP_EIO);
	assert_non_null(strstr(err.text, "folder"));
	assert_int_equal(adp_file_write("", "x", 1, 0, &err), ADP_EINVAL);
}

static void what_cannot_be_read_is_refused_by_name(void **state)
{
	struct adp_error err = {0};
	char *text;
	size_t len;

	(void)state;
	assert_int_equal(adp_file_read(&text, &len, in_folder("missing"), 10, &err), ADP_EIO);
	assert_non_null(strstr(err.text, "missing"));
	assert_int_equal(adp_file_read(&text, &len, folder, 10, &err), ADP_EIO);
}

static void a_file_over_the_limit_is_refused(void **state)
{
	char *text;
	size_t len;

	(void)state;
	assert_int_equal(adp_file_write(in_folder("big"), "0123456789", 10, 0, NULL), ADP_OK);
	assert_int_equal(adp_file_read(&text, &len, in_folder("big"), 9, NULL), ADP_ELIMIT);
	assert_int_equal(adp_file_read(&text, &len, in_folder("big"), 10, NULL), ADP_OK);
	adp_free(text);
	unlink(in_folder("big"));
}

static void a_stream_of_unknown_length_is_read_whole(void **state)
{
	enum { SIZE = 300000 };
	char command[PATH_MAX + 64], *text;
	FILE *pipe_in;
	size_t len;
	int keep = dup(STDIN_FILENO);

	(void)state;
	snprintf(command, sizeof command, "head -c %d /dev/zero | tr '\\0' x", SIZE);
	pipe_in = popen(command, "r");
	assert_non_null(pipe_in);
	assert_true(dup2(fileno(pipe_in), STDIN_FILENO) >= 0);
	assert_int_equal(adp_file_read(&text, &len, "-", 1 << 20, NULL), ADP_OK);
	assert_int_equal(len, SIZE);
	assert_int_equal(text[SIZE - 1], 'x');
	assert_int_equal(text[SIZE], '\0');
	adp_free(text);
	pclose(pipe_in);
	if (keep >= 0) {
		dup2(keep, STDIN_FILENO);
		close(keep);
	}
}

static void a_folder_of_tables_comes_before_those_compiled_in(void **state)
{
	struct adp_error err = {0};
	const char *text;
	char *owned;
	size_t len;

	(void)state;
	assert_int_equal(adp_data_open(&text, &len, &owned, "gpus.csv", NULL, &err), ADP_OK);
	assert_null(owned);
	assert_int_equal(strlen(text), len);
	assert_int_equal(adp_data_open(&text, &len, &owned, "gpus.csv", folder, &err), ADP_OK);
	assert_null(owned); /* the folder has none */
	assert_int_equal(adp_file_write(in_folder("gpus.csv"), "name\n", 5, 0, NULL), ADP_OK);
	assert_int_equal(adp_data_open(&text, &len, &owned, "gpus.csv", folder, &err), ADP_OK);
	assert_string_equal(text, "name\n");
	assert_ptr_equal(text, owned);
	adp_free(owned);
	unlink(in_folder("gpus.csv"));
}

static void an_unknown_table_or_folder_is_refused(void **state)
{
	const char *text;
	char *owned;
	size_t len;

	(void)state;
	assert_int_equal(adp_data_open(&text, &len, &owned, "none.csv", NULL, NULL), ADP_EINVAL);
	assert_int_equal(adp_data_open(&text, &len, &owned, "none.csv", folder, NULL), ADP_EINVAL);
	assert_int_equal(adp_data_open(&text, &len, &owned, "../gpus.csv", folder, NULL), ADP_EINVAL);
	assert_int_equal(adp_data_open(&text, &len, &owned, "/etc/passwd", NULL, NULL), ADP_EINVAL);
	assert_int_equal(adp_data_open(&text, &len, &owned, "gpus.csv", "/no/such/folder", NULL),
	                 ADP_EIO);
}

static void the_data_version_is_sixteen_hex_digits(void **state)
{
	const char *version = adp_data_version();

	(void)state;
	assert_int_equal(strspn(version, "0123456789abcdef"), 16);
	assert_int_equal(strlen(version), 16);
	assert_ptr_equal(version, adp_data_version());
}

static int write_and_read(void *context)
{
	const char *text;
	char *content, *owned;
	size_t len;
	int rc = adp_file_write(in_folder("swept.csv"), "x", 1, 0, NULL);

	(void)context;
	if (rc)
		return rc;
	rc = adp_file_read(&content, &len, in_folder("swept.csv"), 10, NULL);
	if (rc)
		return rc;
	adp_free(content);
	rc = adp_data_open(&text, &len, &owned, "swept.csv", folder, NULL);
	if (!rc)
		adp_free(owned);
	return rc;
}

static void files_survive_any_failed_allocation(void **state)
{
	(void)state;
	fault_sweep(write_and_read, NULL);
	assert_int_equal(count_files(), 1);
	unlink(in_folder("swept.csv"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_written_whole_and_read_back),
		cmocka_unit_test(writing_through_a_link_keeps_the_link),
		cmocka_unit_test(a_device_is_written_in_place),
		cmocka_unit_test(what_cannot_be_written_is_refused_by_name),
		cmocka_unit_test(what_cannot_be_read_is_refused_by_name),
		cmocka_unit_test(a_file_over_the_limit_is_refused),
		cmocka_unit_test(a_stream_of_unknown_length_is_read_whole),
		cmocka_unit_test(a_folder_of_tables_comes_before_those_compiled_in),
		cmocka_unit_test(an_unknown_table_or_folder_is_refused),
		cmocka_unit_test(the_data_version_is_sixteen_hex_digits),
		cmocka_unit_test(files_survive_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
