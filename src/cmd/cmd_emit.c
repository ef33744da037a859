/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "adp/emit.h"
#include "adp/units.h"
#include "base/alloc.h"
#include "base/file.h"
#include "cmd/cmd.h"

static const char command[] = "adp emit";

struct emit_cli {
	const char *plan, *engine, *folder;
	struct adp_emit_opts opts;
	struct adp_error err;
};

enum { KEY_MASTER_ADDR = 256, KEY_MASTER_PORT };

static const struct argp_option options[] = {
	{"engine", 'e', "ENGINE", 0, "torch or megatron (default: the engine the plan was made for)",
     0},
	{"directory", 'd', "DIR", 0,
     "write all files there, made if absent (default: print the main file)", 0},
	{"master-addr", KEY_MASTER_ADDR, "HOST", 0,
     "where rank 0 listens (default: the first node's name)", 0},
	{"master-port", KEY_MASTER_PORT, "PORT", 0, "port of rank 0 (default: 29500)", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct emit_cli *cli = state->input;
	uint64_t port;

	switch (key) {
	case 'e':
		cli->engine = arg;
		return 0;
	case 'd':
		cli->folder = arg;
		return 0;
	case KEY_MASTER_ADDR:
		cli->opts.master_addr = arg;
		return 0;
	case KEY_MASTER_PORT:
		if (adp_parse_u64(&port, arg, "--master-port", &cli->err))
			return EINVAL;
		if (port == 0 || port > 65535) {
			adp_fail(&cli->err, ADP_EINVAL, "--master-port: %s is not a port, expected 1 to 65535",
			         arg);
			return EINVAL;
		}
		cli->opts.master_port = (uint32_t)port;
		return 0;
	case ARGP_KEY_ARG:
		if (cli->plan) {
			adp_fail(&cli->err, ADP_EINVAL, "one PLAN at a time: '%s' is one too many", arg);
			return EINVAL;
		}
		cli->plan = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int read_plan(struct adp_plan **out, const char *path, struct adp_error *err)
{
	const size_t max = (size_t)256 << 20; /* what a document may have */
	char *text;
	size_t len;
	int rc = adp_file_read(&text, &len, path, max, err);

	if (rc)
		return rc;
	rc = adp_plan_read(out, text, len, strcmp(path, "-") == 0 ? "standard input" : path, err);
	adp_free(text);
	return rc;
}

static int write_file(const char *folder, const struct adp_emit_file *file, struct adp_error *err)
{
	size_t size = strlen(folder) + strlen(file->name) + 2;
	char *path = adp_malloc(size);
	int rc;

	if (!path)
		return adp_nomem(err);
	snprintf(path, size, "%s/%s", folder, file->name);
	rc = adp_file_write(path, file->content, strlen(file->content), file->executable, err);
	adp_free(path);
	return rc;
}

/* What is run comes last, so that it never stands beside files of another plan. */
static int write_files(const char *folder, const struct adp_emit_set *set, struct adp_error *err)
{
	if (mkdir(folder, 0777) != 0 && errno != EEXIST)
		return adp_fail(err, ADP_EIO, "%s: cannot make the folder: %s", folder, strerror(errno));
	for (int executable = 0; executable <= 1; executable++)
		for (uint32_t i = 0; i < set->n_files; i++)
			if (set->files[i].executable == (executable == 1)) {
				int rc = write_file(folder, &set->files[i], err);

				if (rc)
					return rc;
			}
	return ADP_OK;
}

static int run(const struct emit_cli *cli, struct adp_error *err)
{
	struct adp_plan *plan = NULL;
	struct adp_emit_set set = {0};
	int rc = read_plan(&plan, cli->plan, err);

	if (rc == ADP_OK)
		rc = adp_emit(&set, plan, cli->engine, &cli->opts, err);
	if (rc == ADP_OK) {
		if (cli->folder)
			rc = write_files(cli->folder, &set, err);
		else
			fputs(set.files[0].content, stdout);
	}
	adp_emit_fini(&set);
	adp_plan_destroy(plan);
	return rc;
}

int cmd_emit(int argc, char **argv)
{
	struct emit_cli cli = {0};
	const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "PLAN",
		.doc = "Writes the files that launch a plan.\v"
			   "PLAN is a plan document of adp plan (a path, or - for standard input). Megatron: "
			   "megatron.args, one "
			   "argument a line, passed on by launch.sh; torch: launch.sh and plan.json. Both: "
			   "ranks.csv.\n\n"
			   "Example:\n  adp emit --directory launch plan.yaml\n\n"
			   "Exit status: 0 written; 2 the plan, an option or a name is refused, and why; 4 "
			   "internal error, or the output could not be written.",
	};
	int status = cmd_check_options(command, options, argc, argv);

	if (status)
		return status;
	if (argp_parse(&argp, argc, argv, 0, NULL, &cli))
		return cmd_usage(command, "%s", cli.err.text);
	if (!cli.plan)
		return cmd_usage(command, "no plan given");
	if (run(&cli, &cli.err))
		return cmd_fail(command, &cli.err);
	return cmd_flush(command);
}
