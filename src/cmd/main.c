/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
	char *title; /* argv[0] of the command */
} commands[] = {
	{"plan", cmd_plan, "find the best plan for a model on a fleet, and say why",
     (char[]){"adp plan"}},
	{"model", cmd_model, "read a model: layers, parameters, operations, legal degrees",
     (char[]){"adp model"}},
	{"emit", cmd_emit, "write the files that launch a plan", (char[]){"adp emit"}},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_help(void)
{
	printf("Usage: adp COMMAND [OPTION...]\n"
	       "Decides how a training job divides over a mixed GPU fleet.\n\n"
	       "Commands:\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].help);
	printf("\n  adp COMMAND --help    the options of a command\n"
	       "  adp --version         the version of adp\n\n"
	       "Example:\n"
	       "  adp plan --model llama-3-70b --gpus H100:128,A100-80:128 --global-batch 1024 "
	       "--tokens 15T\n\n"
	       "Exit status: 0 yes; 1 the answer is no (nothing fits); 2 bad usage or input;\n"
	       "4 internal error, or the output could not be written.\n");
}

static int unknown_command(const char *name)
{
	const char *words[N_COMMANDS + 1] = {0}, *near;

	for (size_t i = 0; i < N_COMMANDS; i++)
		words[i] = commands[i].name;
	near = cmd_nearest(name, words);
	if (near)
		return cmd_usage("adp", "there is no command '%s'; did you mean '%s'?", name, near);
	return cmd_usage("adp", "there is no command '%s'", name);
}

static int run(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	char help[] = "--help", *asking[] = {NULL, NULL, help, NULL};

	if (!*name) {
		fprintf(stderr, "Usage: adp COMMAND [OPTION...]\n");
		return cmd_usage("adp", "a command is missing");
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
		printf("%s\n", argp_program_version);
		return CMD_OK;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "-?") ||
	    !strcmp(name, "help")) {
		if (argc < 3) {
			print_help();
			return CMD_OK;
		}
		/* "adp help plan" is "adp plan --help" */
		name = argv[2];
		argc = 3;
		argv = asking;
	}
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(name, commands[i].name)) {
			argv[1] = commands[i].title;
			return commands[i].run(argc - 1, argv + 1);
		}
	return unknown_command(name);
}

/* Also behind argp, which ends the program itself after --help. */
static void flush_or_fail(void)
{
	if (cmd_flush("adp"))
		_exit(CMD_INTERNAL);
}

int main(int argc, char **argv)
{
	argp_program_version = "adp " ADP_VERSION;
	argp_err_exit_status = CMD_USAGE;
	/* A closed pipe is then an error of the write, which gets reported. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || atexit(flush_or_fail))
		return CMD_INTERNAL;
	return run(argc, argv);
}
