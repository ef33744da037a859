/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_EMIT_H
#define ADP_EMIT_H

#include "adp/plan.h"

/* Files to launch a plan: relative name and content, in a fixed order, the main one first. Owned by
 * adp_emit_fini. */
struct adp_emit_file {
	char *name;
	char *content; /* terminated text */
	bool executable;
};
struct adp_emit_set {
	struct adp_emit_file *files;
	uint32_t n_files;
};
void adp_emit_fini(struct adp_emit_set *set);

struct adp_emit_opts {
	const char *master_addr; /* where rank 0 listens; NULL = the name of its node */
	uint32_t master_port;    /* 0 = 29500 */
};

/*
 * engine "torch": launch.sh with the torchrun command and environment per node, plan.json for the
 * adapter, ranks.csv. engine "megatron": megatron.args (one argument per line), launch.sh,
 * ranks.csv. NULL = the plan's own engine. opts may be NULL.
 *
 * Every name from outside comes through as data under the target's own parser, or is refused. Fails
 * with ADP_EINVAL naming the feature, degree or name that the engine cannot take: a plan made for
 * another engine, a model trait without a flag, unequal micro-batches where the engine has one
 * count. ADP_EINTERNAL: a flag that data/megatron_flags.csv does not allow was about to be written.
 */
int adp_emit(struct adp_emit_set *out, const struct adp_plan *plan, const char *engine,
             const struct adp_emit_opts *opts, struct adp_error *err);

/*
 * "Ettt|t*5|t*4L" for --pipeline-model-parallel-layout; order vpp-major: all ranks' first virtual
 * stage, then all ranks' second. Caller frees with adp_free.
 */
int adp_emit_megatron_layout(char **out, const struct adp_plan *plan, struct adp_error *err);

#endif
