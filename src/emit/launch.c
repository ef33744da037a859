/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

uint32_t emit_equal_micro(const struct adp_plan *plan)
{
	for (uint32_t i = 1; i < plan->n_pipes; i++)
		if (plan->pipes[i].n_micro != plan->pipes[0].n_micro)
			return 0;
	return plan->n_pipes ? plan->pipes[0].n_micro : 0;
}

bool emit_before_blackwell(const char *arch)
{
	static const char *const older[] = {"Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper"};

	for (size_t i = 0; i < sizeof older / sizeof older[0]; i++)
		if (strcasecmp(arch, older[i]) == 0)
			return true;
	return false;
}

/* ---- launch.sh ------------------------------------------------------------------------ */

static int by_node_then_rank(const void *a, const void *b)
{
	const struct emit_agent *x = *(const struct emit_agent *const *)a,
							*y = *(const struct emit_agent *const *)b;
	int order = strcmp(x->node, y->node);

	return order ? order : (x->first_rank > y->first_rank) - (x->first_rank < y->first_rank);
}

static void add_agent(struct adp_strbuf *out, const struct adp_plan *plan,
                      const struct emit_agent *agents, const struct emit_agent *agent,
                      const struct emit_launch *launch)
{
	adp_strbuf_addf(out, " '%u %u ", (unsigned)(agent - agents), agent->n_procs);
	if (agent->gpus_in_order)
		adp_strbuf_add(out, "-");
	for (uint32_t i = 0; !agent->gpus_in_order && i < agent->n_procs; i++)
		adp_strbuf_addf(out, "%s%u", i ? "," : "", agent->gpu_index[i]);
	if (launch->max_connections)
		adp_strbuf_add(out, emit_before_blackwell(plan->gpus[agent->gpu].arch) ? " 1" : " -");
	adp_strbuf_add(out, "'");
}

static void add_nodes(struct adp_strbuf *out, const struct adp_plan *plan,
                      const struct emit_agent *agents, const struct emit_agent *const *sorted,
                      uint32_t n_agents, const struct emit_launch *launch)
{
	adp_strbuf_addf(out,
	                "# Agents of a node, one a line: node rank, processes, local GPU numbers (- = "
	                "the first ones)%s.\n"
	                "agents_of() {\n"
	                "\tcase $1 in\n",
	                launch->max_connections ? ",\n# CUDA_DEVICE_MAX_CONNECTIONS (- = as it is)"
	                                        : "");
	for (uint32_t i = 0; i < n_agents;) {
		const char *node = sorted[i]->node;

		adp_strbuf_add(out, "\t");
		emit_shell_word(out, node);
		adp_strbuf_add(out, ") printf '%s\\n'");
		for (; i < n_agents && strcmp(sorted[i]->node, node) == 0; i++)
			add_agent(out, plan, agents, sorted[i], launch);
		adp_strbuf_add(out, " ;;\n");
	}
	adp_strbuf_add(out, "\tesac\n}\n\n");
}

static void add_summary(struct adp_strbuf *out, const struct adp_plan *plan, uint32_t n_agents)
{
	uint32_t n_micro = emit_equal_micro(plan);

	adp_strbuf_addf(out,
	                "# %u ranks under %u agents: tensor %u x context %u x data %u x pipeline %u "
	                "(tensor fastest).\n"
	                "# Global batch: %" PRIu64 " sequences of %" PRIu64 " tokens",
	                adp_plan_world(plan), n_agents, plan->tp, plan->cp, plan->dp, plan->pp,
	                plan->train.global_batch_seqs, plan->train.seq_tokens);
	if (n_micro)
		adp_strbuf_addf(out, " = %" PRIu64 " per micro-batch x %u replicas x %u micro-batches.\n",
		                plan->micro_batch_seqs, plan->dp, n_micro);
	else
		adp_strbuf_add(out, ", unequal over the replicas (plan.json).\n");
}

static void add_environment(struct adp_strbuf *out, const struct adp_plan *plan,
                            const struct emit_launch *launch)
{
	adp_strbuf_add(out, "# Agents with unequal process counts find their ranks through the store.\n"
	                    "export TORCH_ELASTIC_WORKER_IDENTICAL=0\n");
	if (plan->train.precision == ADP_PRECISION_TF32)
		adp_strbuf_add(out, "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1\n");
	if (plan->train.precision == ADP_PRECISION_FP32)
		adp_strbuf_add(out, "export NVIDIA_TF32_OVERRIDE=0\n");
	if (launch->forbid_max_connections)
		adp_strbuf_add(out, "unset CUDA_DEVICE_MAX_CONNECTIONS # Megatron-FSDP refuses 1\n");
	if (launch->plan_file)
		adp_strbuf_addf(out, "export ADP_PLAN=$here/%s # read by the Python module adp_torch\n",
		                launch->plan_file);
	adp_strbuf_add(out, "\n");
}

static const char script_head[] =
	"#!/usr/bin/env bash\n"
	"# SPDX-License-Identifier: Apache-2.0\n"
	"# Starts this node's ranks of a training plan. Run it on every node of the plan:\n"
	"#\n"
	"#   launch.sh SCRIPT [ARGUMENT...]\n"
	"#\n"
	"# ADP_NODE     this node's name in ranks.csv (else SLURMD_NODENAME, else uname -n)\n"
	"# MASTER_ADDR  where rank 0 listens, and MASTER_PORT\n"
	"#\n";

static const char script_run[] =
	"start() { # node rank, processes, GPUs%s\n"
	"%s"
	"\tif [[ $3 != - ]]; then export CUDA_VISIBLE_DEVICES=$3; fi\n"
	"\texec torchrun --nnodes=%u --node-rank=\"$1\" --nproc-per-node=\"$2\" \\\n"
	"\t\t--master-addr=\"$master_addr\" --master-port=\"$master_port\" \"${command[@]}\"\n"
	"}\n"
	"\n"
	"mapfile -t agents < <(agents_of \"$node\")\n"
	"if ((${#agents[@]} == 0)); then\n"
	"\tprintf 'launch.sh: the plan has no node %%q; set ADP_NODE to a name in %%q\\n' \"$node\" "
	"\"$here/ranks.csv\" >&2\n"
	"\texit 2\n"
	"fi\n"
	"if ((${#agents[@]} == 1)); then\n"
	"\tread -ra agent <<<\"${agents[0]}\"\n"
	"\tstart \"${agent[@]}\"\n"
	"fi\n"
	"\n"
	"# Several agents on this node: the first that fails ends the others. Each is asked for by "
	"its number:\n"
	"# bash's wait -n loses one that ends in the moment it is called.\n"
	"pids=()\n"
	"trap 'kill \"${pids[@]}\" 2>/dev/null || true' INT TERM\n"
	"for line in \"${agents[@]}\"; do\n"
	"\tread -ra agent <<<\"$line\"\n"
	"\tstart \"${agent[@]}\" &\n"
	"\tpids+=(\"$!\")\n"
	"done\n"
	"status=0\n"
	"while ((${#pids[@]} > 0 && status == 0)); do\n"
	"\tsleep 0.2 || true\n"
	"\tfor i in \"${!pids[@]}\"; do\n"
	"\t\tif ! kill -0 \"${pids[i]}\" 2>/dev/null; then\n"
	"\t\t\twait \"${pids[i]}\" || status=$?\n"
	"\t\t\tunset \"pids[i]\"\n"
	"\t\tfi\n"
	"\tdone\n"
	"done\n"
	"if ((${#pids[@]} > 0)); then\n"
	"\tkill \"${pids[@]}\" 2>/dev/null || true\n"
	"fi\n"
	"wait || true\n"
	"exit \"$status\"\n";

static void add_settings(struct adp_strbuf *out, const struct emit_launch *launch)
{
	adp_strbuf_add(out, "\nset -euo pipefail\n"
	                    "here=$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" && pwd)\n"
	                    "node=${ADP_NODE:-${SLURMD_NODENAME:-$(uname -n)}}\n"
	                    "master_addr=");
	emit_shell_word(out, launch->master_addr);
	adp_strbuf_addf(
		out, "\nmaster_addr=${MASTER_ADDR:-$master_addr}\nmaster_port=${MASTER_PORT:-%u}\n\n",
		launch->master_port);
	adp_strbuf_add(out, "if (($# == 0)) || [[ $1 == -* ]]; then\n"
	                    "\techo 'usage: launch.sh SCRIPT [ARGUMENT...]' >&2\n"
	                    "\texit 2\n"
	                    "fi\n");
	if (launch->args_file)
		adp_strbuf_addf(out,
		                "mapfile -t planned <\"$here/%s\"\n"
		                "command=(\"$1\" \"${planned[@]}\" \"${@:2}\")\n",
		                launch->args_file);
	else
		adp_strbuf_add(out, "command=(\"$@\")\n");
}

void emit_launch_script(struct adp_strbuf *out, const struct adp_plan *plan,
                        const struct emit_agent *agents, uint32_t n_agents,
                        const struct emit_launch *launch)
{
	struct adp_arena arena = {0};
	const struct emit_agent **sorted = adp_arena_calloc(&arena, n_agents, sizeof *sorted);

	if (!sorted) {
		out->failed = ADP_ENOMEM;
		return;
	}
	for (uint32_t i = 0; i < n_agents; i++)
		sorted[i] = &agents[i];
	qsort(sorted, n_agents, sizeof *sorted, by_node_then_rank);

	adp_strbuf_add(out, script_head);
	add_summary(out, plan, n_agents);
	add_settings(out, launch);
	add_environment(out, plan, launch);
	add_nodes(out, plan, agents, sorted, n_agents, launch);
	adp_strbuf_addf(out, script_run, launch->max_connections ? ", connections" : "",
	                launch->max_connections
	                    ? "\tif [[ $4 != - ]]; then export CUDA_DEVICE_MAX_CONNECTIONS=$4; fi\n"
	                    : "",
	                n_agents);
	adp_arena_fini(&arena);
}

/* ---- ranks.csv ------------------------------------------------------------------------ */

void emit_rank_map(struct adp_strbuf *out, const struct adp_plan *plan,
                   const struct emit_agent *agents, uint32_t n_agents)
{
	adp_strbuf_add(out, "rank,node,gpu,stage,replica,tp,cp,local_rank,type\n");
	for (uint32_t a = 0; a < n_agents; a++) {
		const struct emit_agent *agent = &agents[a];

		for (uint32_t i = 0; i < agent->n_procs; i++) {
			uint32_t rank = agent->first_rank + i, inner = plan->tp * plan->cp;

			adp_strbuf_addf(out, "%u,", rank);
			emit_csv_field(out, agent->node);
			adp_strbuf_addf(out, ",%u,%u,%u,%u,%u,%u,", agent->gpu_index[i],
			                rank / (inner * plan->dp), rank / inner % plan->dp, rank % plan->tp,
			                rank / plan->tp % plan->cp, i);
			emit_csv_field(out, plan->gpus[agent->gpu].type);
			adp_strbuf_add(out, "\n");
		}
	}
}
