/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_EMIT_H
#define ADP_EMIT_H

#include "adp/plan.h"

/* Files to launch a plan: relative name and content, in a fixed order. Owned by adp_emit_fini. */
struct adp_emit_file {
	char *name;
	char *content;
	bool executable;
};
struct adp_emit_set {
	struct adp_emit_file *files;
	uint32_t n_files;
};
void adp_emit_fini(struct adp_emit_set *set);

/*
 * engine "torch": launch script with the torchrun command and environment per node, plan.json for the
 * adapter, rank map. engine "megatron": argument file (one argument per line), layout string, rank order,
 * launch script. Every name and path from outside comes through as data under the target's own
 * parser, or is refused with ADP_EINVAL.
 */
int adp_emit(struct adp_emit_set *out, const struct adp_plan *plan, const char *engine, struct adp_error *err);

/* "Ettt|ttttt|tttttL" for --pipeline-model-parallel-layout; order vpp-major. Caller frees. */
int adp_emit_megatron_layout(char **out, const struct adp_plan *plan, struct adp_error *err);

#endif
