/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files, without libFuzzer: replay [-t N] FOLDER... Each file is run whole
 * and cut short everywhere in its first N bytes (2048) and at 64 places behind them, from a block
 * of exactly its size, so that a read past the end is seen by ASan and valgrind.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_inputs, n_files;

static void run_one(const char *bytes, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);

	if (!exact)
		abort();
	memcpy(exact, bytes, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
	n_inputs++;
}

static char *read_file(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	char *bytes = NULL;
	long len;

	if (!file)
		return NULL;
	if (fseek(file, 0, SEEK_END) == 0 && (len = ftell(file)) >= 0 &&
	    fseek(file, 0, SEEK_SET) == 0) {
		*size = (size_t)len;
		bytes = malloc(*size + 1);
		if (bytes && fread(bytes, 1, *size, file) != *size) {
			free(bytes);
			bytes = NULL;
		}
	}
	fclose(file);
	return bytes;
}

static int run_file(const char *path, size_t n_cuts)
{
	size_t size, step;
	char *bytes = read_file(path, &size);

	if (!bytes) {
		fprintf(stderr, "%s: cannot read\n", path);
		return 1;
	}
	n_files++;
	run_one(bytes, size);
	step = size > n_cuts ? (size - n_cuts) / 64 + 1 : 1;
	for (size_t cut = 0; cut < size; cut += cut < n_cuts ? 1 : step)
		run_one(bytes, cut);
	free(bytes);
	return 0;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int run_folder(const char *folder, size_t n_cuts)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, is_visible, alphasort), failed = n <= 0;
	char path[4096];

	if (n <= 0)
		fprintf(stderr, "%s: no files to run\n", folder);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
		failed |= run_file(path, n_cuts);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return failed;
}

int main(int argc, char **argv)
{
	size_t n_cuts = 2048;
	int first = 1, failed = 0;

	if (argc > 2 && strcmp(argv[1], "-t") == 0) {
		n_cuts = strtoul(argv[2], NULL, 10);
		first = 3;
	}
	if (first >= argc) {
		fprintf(stderr, "usage: %s [-t N] FOLDER...\n", argv[0]);
		return 2;
	}
	for (int i = first; i < argc; i++)
		failed |= run_folder(argv[i], n_cuts);
	printf("%lu inputs from %lu files\n", n_inputs, n_files);
	return failed;
}
