/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <string.h>

/* value must live as long as the arena. */
static void add(struct emit_args *args, const char *flag, const char *value)
{
	enum { FIRST_CAP = 64 };

	if (args->failed)
		return;
	if (args->n == args->cap) {
		uint32_t cap = args->cap ? args->cap * 2 : FIRST_CAP;
		struct emit_arg *bigger = adp_arena_calloc(args->arena, cap, sizeof *bigger);

		if (!bigger) {
			args->failed = ADP_ENOMEM;
			return;
		}
		if (args->n)
			memcpy(bigger, args->arg, args->n * sizeof *bigger);
		args->arg = bigger;
		args->cap = cap;
	}
	args->arg[args->n++] = (struct emit_arg){.flag = flag, .value = value};
}

void emit_arg_flag(struct emit_args *args, const char *flag)
{
	add(args, flag, NULL);
}

void emit_arg_text(struct emit_args *args, const char *flag, const char *value)
{
	const char *copy = args->failed ? NULL : adp_arena_strdup(args->arena, value);

	if (!copy)
		args->failed = ADP_ENOMEM;
	add(args, flag, copy);
}

void emit_arg_count(struct emit_args *args, const char *flag, uint64_t value)
{
	const char *text = args->failed ? NULL : adp_arena_printf(args->arena, "%" PRIu64, value);

	if (!text)
		args->failed = ADP_ENOMEM;
	add(args, flag, text);
}
