/* SPDX-License-Identifier: Apache-2.0 */
#include "adp/emit.h"

#include <string.h>

#include "base/alloc.h"
#include "emit/emit_internal.h"

enum { DEFAULT_PORT = 29500, MAX_FILES = 4 }; /* port: torchrun's own default */

void adp_emit_fini(struct adp_emit_set *set)
{
	for (uint32_t i = 0; i < set->n_files; i++) {
		adp_free(set->files[i].name);
		adp_free(set->files[i].content);
	}
	adp_free(set->files);
	*set = (struct adp_emit_set){0};
}

/* Takes the buffer's text. */
static int add_file(struct adp_emit_set *set, const char *name, struct adp_strbuf *content,
                    bool executable, struct adp_error *err)
{
	struct adp_emit_file *file = &set->files[set->n_files];

	file->name = adp_strdup(name);
	file->content = adp_strbuf_steal(content);
	file->executable = executable;
	set->n_files++;
	return file->name && file->content ? ADP_OK : adp_nomem(err);
}

static int choose_address(struct emit_launch *launch, const struct emit_agent *first,
                          const struct adp_emit_opts *opts, struct adp_error *err)
{
	bool given = opts && opts->master_addr;
	const char *address = given ? opts->master_addr : first->node;
	uint32_t port = opts && opts->master_port ? opts->master_port : DEFAULT_PORT;
	char shown[128];

	if (!emit_is_address(address))
		return adp_fail(err, ADP_EINVAL,
		                "%s '%s' is not a host name or address; give one with --master-addr",
		                given ? "--master-addr:" : "the first node's name",
		                emit_show(shown, sizeof shown, address));
	if (port > 65535)
		return adp_fail(err, ADP_EINVAL, "--master-port: %u is not a port, expected 1 to 65535",
		                port);
	launch->master_addr = address;
	launch->master_port = port;
	return ADP_OK;
}

static int add_launch_files(struct adp_emit_set *set, const struct adp_plan *plan,
                            const struct emit_agent *agents, uint32_t n_agents,
                            const struct emit_launch *launch, struct adp_error *err)
{
	struct adp_strbuf script = {0}, map = {0};
	int rc;

	emit_launch_script(&script, plan, agents, n_agents, launch);
	rc = add_file(set, "launch.sh", &script, true, err);
	if (rc == ADP_OK) {
		emit_rank_map(&map, plan, agents, n_agents);
		rc = add_file(set, "ranks.csv", &map, false, err);
	}
	adp_strbuf_fini(&script);
	adp_strbuf_fini(&map);
	return rc;
}

/* ---- engines -------------------------------------------------------------------------- */

static int emit_megatron(struct adp_emit_set *set, const struct adp_plan *plan,
                         const struct emit_agent *agents, uint32_t n_agents,
                         struct emit_launch *launch, struct adp_arena *arena, struct adp_error *err)
{
	static const char args_file[] = "megatron.args";
	struct emit_args args = {.arena = arena};
	struct adp_strbuf text = {0};
	struct adp_engine *engine = NULL;
	const char *spec = adp_arena_printf(arena, "megatron@%s", plan->engine_version);
	int rc = spec ? adp_engine_load(&engine, spec, NULL, err) : adp_nomem(err);

	if (rc == ADP_OK)
		rc = emit_megatron_model(&args, plan, err);
	if (rc == ADP_OK)
		rc = emit_megatron_run(&args, plan, engine, err);
	adp_engine_destroy(engine);
	if (rc == ADP_OK && args.failed)
		rc = adp_nomem(err);
	if (rc)
		return rc;
	rc = emit_flags_check(args.arg, args.n, plan->engine_version, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < args.n; i++) {
		adp_strbuf_addf(&text, "%s\n", args.arg[i].flag);
		if (args.arg[i].value)
			adp_strbuf_addf(&text, "%s\n", args.arg[i].value);
	}
	rc = add_file(set, args_file, &text, false, err);
	adp_strbuf_fini(&text);
	if (rc)
		return rc;

	launch->args_file = args_file;
	launch->forbid_max_connections = emit_megatron_fsdp(plan);
	if (!launch->forbid_max_connections && (plan->tp > 1 || plan->cp > 1))
		for (uint32_t i = 0; i < n_agents; i++)
			launch->max_connections |= emit_before_blackwell(plan->gpus[agents[i].gpu].arch);
	return add_launch_files(set, plan, agents, n_agents, launch, err);
}

static int emit_torch(struct adp_emit_set *set, const struct adp_plan *plan,
                      const struct emit_agent *agents, uint32_t n_agents,
                      struct emit_launch *launch, struct adp_arena *arena, struct adp_error *err)
{
	static const char plan_file[] = "plan.json";
	struct adp_strbuf text = {0};
	char *json;
	int rc;

	(void)arena;
	launch->plan_file = plan_file;
	rc = add_launch_files(set, plan, agents, n_agents, launch, err);
	if (rc == ADP_OK)
		rc = adp_plan_to_json(&json, plan, err);
	if (rc)
		return rc;
	adp_strbuf_add(&text, json);
	adp_free(json);
	rc = add_file(set, plan_file, &text, false, err);
	adp_strbuf_fini(&text);
	return rc;
}

static const struct {
	const char *name;
	int (*emit)(struct adp_emit_set *set, const struct adp_plan *plan,
	            const struct emit_agent *agents, uint32_t n_agents, struct emit_launch *launch,
	            struct adp_arena *arena, struct adp_error *err);
} engines[] = {
	{"megatron", emit_megatron},
	{"torch", emit_torch},
};

int adp_emit(struct adp_emit_set *out, const struct adp_plan *plan, const char *engine,
             const struct adp_emit_opts *opts, struct adp_error *err)
{
	enum { N_ENGINES = sizeof engines / sizeof engines[0] };
	struct adp_arena arena = {0};
	struct adp_emit_set set = {0};
	struct emit_launch launch = {0};
	struct emit_agent *agents = NULL;
	uint32_t n_agents = 0;
	unsigned k = 0;
	char shown[128];
	int rc;

	if (!engine)
		engine = plan->engine;
	while (k < N_ENGINES && strcmp(engines[k].name, engine) != 0)
		k++;
	if (k == N_ENGINES)
		return adp_fail(err, ADP_EINVAL, "engine '%s' is not known; expected megatron or torch",
		                emit_show(shown, sizeof shown, engine));
	if (strcmp(engine, plan->engine) != 0)
		return adp_fail(
			err, ADP_EINVAL,
			"the plan was made for engine %s, whose levers %s does not have; make one with "
			"adp plan --engine %s",
			emit_show(shown, sizeof shown, plan->engine), engine, engine);
	rc = adp_plan_validate(plan, err);
	if (rc)
		return adp_wrap(err, rc, "plan");

	set.files = adp_calloc(MAX_FILES, sizeof *set.files);
	rc = set.files ? emit_agents(&agents, &n_agents, plan, &arena, err) : adp_nomem(err);
	if (rc == ADP_OK)
		rc = choose_address(&launch, &agents[0], opts, err);
	if (rc == ADP_OK)
		rc = engines[k].emit(&set, plan, agents, n_agents, &launch, &arena, err);
	adp_arena_fini(&arena);
	if (rc) {
		adp_emit_fini(&set);
		return rc;
	}
	*out = set;
	return ADP_OK;
}
