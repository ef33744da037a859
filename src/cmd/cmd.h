/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CMD_H
#define ADP_CMD_H

#include <argp.h>
#include <stdbool.h>

#include "adp/error.h"

/* One function per sub-command; argv[0] is "adp plan" and so on. Returns the exit status. */
int cmd_plan(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_emit(int argc, char **argv);

enum cmd_exit {
	CMD_OK = 0,
	CMD_NO = 1,       /* the answer is no: infeasible, differs */
	CMD_USAGE = 2,    /* bad usage or input */
	CMD_CLUSTER = 3,  /* cluster unreachable or forbidden */
	CMD_INTERNAL = 4, /* our fault, no memory, or the output could not be written */
};
int cmd_exit_code(int code); /* of an enum adp_err */

/* Prints "adp plan: text" on standard error and returns the exit status for the error. */
int cmd_fail(const char *command, const struct adp_error *err);
void cmd_warn(const char *command, const char *format, ...) ADP_PRINTF(2, 3);
/* Prints "adp plan: text", and where to find help; returns CMD_USAGE. */
int cmd_usage(const char *command, const char *format, ...) ADP_PRINTF(2, 3);

enum cmd_output { CMD_OUTPUT_TABLE, CMD_OUTPUT_JSON, CMD_OUTPUT_YAML };
int cmd_output_parse(enum cmd_output *out, const char *text, struct adp_error *err);

/*
 * To call before argp_parse: refuses long options that `options` lacks, naming the nearest ("did
 * you mean"). 0 or CMD_USAGE, message printed. argp itself then takes what is left.
 */
int cmd_check_options(const char *command, const struct argp_option *options, int argc,
                      char **argv);

/* The word of the NULL-terminated list nearest to text; NULL when none is near. */
const char *cmd_nearest(const char *text, const char *const *words);

/* Flushes standard output; a full disk or closed pipe is reported. 0 or CMD_INTERNAL. */
int cmd_flush(const char *command);

#endif
