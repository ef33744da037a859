/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_EMIT_INTERNAL_H
#define ADP_EMIT_INTERNAL_H

#include "adp/emit.h"
#include "base/strbuf.h"

/* One torchrun agent: consecutive ranks on one node. A node may have several. */
struct emit_agent {
	const char *node; /* borrowed from the plan */
	uint32_t first_rank, n_procs;
	uint32_t gpu;              /* index into plan->gpus */
	const uint32_t *gpu_index; /* n_procs local GPU numbers */
	bool gpus_in_order;        /* 0, 1, 2, ...: no CUDA_VISIBLE_DEVICES needed */
};

/*
 * The agents of a plan in rank order; consecutive ranks of one node are one agent. Refuses a
 * tensor-parallel group that is torn over nodes although each could hold it.
 */
int emit_agents(struct emit_agent **out, uint32_t *n_out, const struct adp_plan *plan,
                struct adp_arena *arena, struct adp_error *err);

/* text as one word of a POSIX shell. */
void emit_shell_word(struct adp_strbuf *out, const char *text);
/* text as one field of RFC 4180, quoted where it must be. */
void emit_csv_field(struct adp_strbuf *out, const char *text);
/* Printable, quoted and cut form of a name for error texts. Returns out. */
char *emit_show(char *out, size_t size, const char *text);
/* Host name, IPv4 address or bracketed IPv6 address, as torchrun takes it. */
bool emit_is_address(const char *text);

struct emit_launch {
	const char *args_file; /* arguments for the script, one a line; NULL = none */
	const char *plan_file; /* exported as ADP_PLAN; NULL = none */
	const char *master_addr;
	uint32_t master_port;
	bool max_connections;        /* pre-Blackwell GPUs need CUDA_DEVICE_MAX_CONNECTIONS=1 */
	bool forbid_max_connections; /* it must not be 1 */
};
void emit_launch_script(struct adp_strbuf *out, const struct adp_plan *plan,
                        const struct emit_agent *agents, uint32_t n_agents,
                        const struct emit_launch *launch);
void emit_rank_map(struct adp_strbuf *out, const struct adp_plan *plan,
                   const struct emit_agent *agents, uint32_t n_agents);

/* Micro-batches of a replica when all have the same; 0 when they differ. */
uint32_t emit_equal_micro(const struct adp_plan *plan);
bool emit_before_blackwell(const char *arch);

/* ---- Megatron ---------------------------------------------------------------------- */

struct emit_arg {
	const char *flag;
	const char *value; /* NULL: the flag takes none */
};
struct emit_args {
	struct adp_arena *arena;
	struct emit_arg *arg;
	uint32_t n, cap;
	int failed; /* 0 or ADP_ENOMEM; sticky */
};
void emit_arg_flag(struct emit_args *args, const char *flag);
void emit_arg_text(struct emit_args *args, const char *flag, const char *value);
void emit_arg_count(struct emit_args *args, const char *flag, uint64_t value);

bool emit_is_number(const char *text); /* finite, not negative, no sign or blanks */

/*
 * Are all arguments in data/megatron_flags.csv at this version of Megatron-Core, with a value of
 * the row's type and choices, none twice, nothing excluded and nothing required missing?
 * ADP_EINTERNAL names the first breach; ADP_EINVAL for a version that is not of the form 0.16.1.
 */
int emit_flags_check(const struct emit_arg *args, uint32_t n, const char *version,
                     struct adp_error *err);

/* Flags of the model's architecture; refuses what Megatron's GPT model cannot be told. */
int emit_megatron_model(struct emit_args *args, const struct adp_plan *plan, struct adp_error *err);
/* Flags of the parallel layout, batch, precision, memory, optimizer and checkpoint. */
int emit_megatron_run(struct emit_args *args, const struct adp_plan *plan,
                      const struct adp_engine *engine, struct adp_error *err);
bool emit_megatron_fsdp(const struct adp_plan *plan); /* ZeRO 2 and 3 */

#endif
