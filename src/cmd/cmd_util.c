/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster/name.h"

int cmd_exit_code(int code)
{
	switch (code) {
	case ADP_OK:
		return CMD_OK;
	case ADP_EINFEASIBLE:
		return CMD_NO;
	case ADP_EINVAL:
	case ADP_EIO:
	case ADP_ELIMIT:
		return CMD_USAGE;
	default:
		return CMD_INTERNAL;
	}
}

int cmd_fail(const char *command, const struct adp_error *err)
{
	fprintf(stderr, "%s: ", command);
	for (const char *at = err->text; *at; at++) /* what input put there must not steer a terminal */
		fputc((unsigned char)*at >= 0x20 && *at != 0x7f ? *at : *at == '\n' ? '\n' : '?', stderr);
	fputc('\n', stderr);
	return cmd_exit_code(err->code);
}

void cmd_warn(const char *command, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: warning: ", command);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int cmd_usage(const char *command, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", command);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nTry '%s --help'.\n", command);
	return CMD_USAGE;
}

int cmd_output_parse(enum cmd_output *out, const char *text, struct adp_error *err)
{
	static const char *const words[] = {"table", "json", "yaml", NULL};

	for (size_t i = 0; words[i]; i++)
		if (!strcmp(text, words[i])) {
			*out = (enum cmd_output)i;
			return ADP_OK;
		}
	return adp_fail(err, ADP_EINVAL, "-o %s: the output is table, json or yaml", text);
}

const char *cmd_nearest(const char *text, const char *const *words)
{
	const char *best = NULL;
	size_t least = strlen(text) / 3 + 1; /* more edits than that are another word */

	for (; *words; words++) {
		const size_t edits = adp_name_distance(text, *words);

		if (edits <= least && (!best || edits < least)) {
			best = *words;
			least = edits;
		}
	}
	return best;
}

/* Options that argp adds by itself. */
static const char *const argps_own[] = {"help", "usage", "version"};
enum { N_OWN = sizeof argps_own / sizeof *argps_own, MAX_OPTIONS = 128 };

/* The option that a word (without its dashes, up to '=') names or begins; NULL for none. */
static const struct argp_option *find_long(const struct argp_option *options, const char *word,
                                           size_t len)
{
	const struct argp_option *begun = NULL;

	for (; options->name || options->doc; options++) {
		if (!options->name || strncmp(options->name, word, len))
			continue;
		if (!options->name[len])
			return options;
		begun = options;
	}
	return begun;
}

static int refuse_long(const char *command, const struct argp_option *options, const char *word,
                       size_t len)
{
	const char *names[MAX_OPTIONS + 1] = {0}, *near;
	char text[64];
	size_t n = 0;

	for (size_t i = 0; i < N_OWN; i++)
		names[n++] = argps_own[i];
	for (; (options->name || options->doc) && n < MAX_OPTIONS; options++)
		if (options->name)
			names[n++] = options->name;
	snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text - 1), word);
	near = cmd_nearest(text, names);
	if (near)
		return cmd_usage(command, "there is no option --%s; did you mean --%s?", text, near);
	return cmd_usage(command, "there is no option --%s", text);
}

static bool takes_next(const struct argp_option *options, const char *arg)
{
	if (arg[1] == '\0' || arg[2] != '\0')
		return false;
	for (; options->name || options->doc; options++)
		if (options->key == arg[1])
			return options->arg && !(options->flags & OPTION_ARG_OPTIONAL);
	return false;
}

int cmd_check_options(const char *command, const struct argp_option *options, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i] + 2;
		const size_t len = strcspn(word, "=");
		const struct argp_option *option;
		bool own = false;

		if (!strcmp(argv[i], "--"))
			break;
		if (strncmp(argv[i], "--", 2)) {
			i += argv[i][0] == '-' && takes_next(options, argv[i]);
			continue;
		}
		option = find_long(options, word, len);
		for (size_t k = 0; k < N_OWN && !own; k++)
			own = !strncmp(argps_own[k], word, len);
		if (!option && !own)
			return refuse_long(command, options, word, len);
		if (option && option->arg && !(option->flags & OPTION_ARG_OPTIONAL) && !word[len])
			i++; /* its value, whatever that looks like */
	}
	return CMD_OK;
}

int cmd_flush(const char *command)
{
	static bool told;

	if (!ferror(stdout))
		errno = 0; /* else it tells about the write that failed just now */
	if (!fflush(stdout) && !ferror(stdout))
		return CMD_OK;
	if (!told)
		fprintf(stderr, "%s: the output could not be written%s%s\n", command, errno ? ": " : "",
		        errno ? strerror(errno) : "");
	told = true;
	return CMD_INTERNAL;
}
