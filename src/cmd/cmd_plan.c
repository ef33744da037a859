/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "adp/emit.h"
#include "adp/search.h"
#include "adp/units.h"
#include "base/alloc.h"

#define COMMAND "adp plan"

enum { MAX_EXCLUDES = 64, MAX_THREADS = 64, MAX_DEFAULT_SEQ = 4096, MAX_ASSUMED = 8 };

/* More would only be a slip of the keyboard. */
static const double max_tokens = 1e18;

struct request {
	const char *model, *gpus, *cluster, *engine, *data_dir, *gpu_data;
	double dataset_tokens, epochs;
	struct adp_train train;
	struct adp_search_opts search;
	const char *exclude[MAX_EXCLUDES];
	enum cmd_output output;
	bool no_why;
	struct adp_error err; /* of the option that was wrong */
};

/* Everything that a plan is made from. */
struct inputs {
	struct adp_model *model;
	struct adp_hardware *hardware;
	struct adp_cluster *cluster;
	struct adp_engine *engine;
	struct adp_tables *tables;
	const char *assumed[MAX_ASSUMED]; /* what was not given, for the plan's notes */
	uint32_t n_assumed;
	char seq_note[128], context_note[160], exclude_note[160], emit_note[512];
};

enum key {
	KEY_MODEL = 'm',
	KEY_GPUS = 'g',
	KEY_CLUSTER = 'c',
	KEY_BATCH = 'b',
	KEY_SEQ = 's',
	KEY_OUTPUT = 'o',
	KEY_TOKENS = 256,
	KEY_DATASET,
	KEY_EPOCHS,
	KEY_PRECISION,
	KEY_OPTIMIZER,
	KEY_ENGINE,
	KEY_DEADLINE,
	KEY_MTBF,
	KEY_CHECKPOINT_INTERVAL,
	KEY_CHECKPOINT_STALL,
	KEY_STORAGE,
	KEY_RESTART,
	KEY_EXPERT_LOAD,
	KEY_TP,
	KEY_PP,
	KEY_DP,
	KEY_VPP,
	KEY_CP,
	KEY_EP,
	KEY_MICRO_BATCH,
	KEY_GPUS_USED,
	KEY_ZERO,
	KEY_RECOMPUTE,
	KEY_SEQUENCE_PARALLEL,
	KEY_EQUAL_LAYERS,
	KEY_EQUAL_BATCHES,
	KEY_EXCLUDE,
	KEY_THREADS,
	KEY_DATA,
	KEY_GPU_DATA,
	KEY_NO_WHY,
};

static const struct argp_option options[] = {
	{.doc = "What to train:", .group = 1},
	{"model", KEY_MODEL, "SPEC", 0,
     "a Hugging Face config.json, - for standard input, or a name that 'adp model --list' shows",
     1},
	{"global-batch", KEY_BATCH, "N", 0, "sequences of one optimizer step", 1},
	{"seq", KEY_SEQ, "N", 0, "tokens of a sequence; default: the model's maximum, at most 4096", 1},
	{"tokens", KEY_TOKENS, "T", 0, "tokens to train on, such as 15T: gives the time to train", 1},
	{"dataset-tokens", KEY_DATASET, "T", 0, "tokens of the data set, in place of --tokens", 1},
	{"epochs", KEY_EPOCHS, "N", 0, "passes over the data set; default 1", 1},
	{"precision", KEY_PRECISION, "P", 0, "bf16 (default), fp16, fp8, tf32, fp32", 1},
	{"optimizer", KEY_OPTIMIZER, "O", 0, "adamw (default), adam, sgd-momentum, sgd", 1},
	{"expert-load", KEY_EXPERT_LOAD, "X", 0,
     "tokens of the busiest expert rank over the mean; default 1 = balanced", 1},

	{.doc = "What to train on:", .group = 2},
	{"gpus", KEY_GPUS, "LIST", 0,
     "such as H100:128,A100-80:64, in usual nodes, or H100x4:16 in nodes of 4", 2},
	{"cluster", KEY_CLUSTER, "FILE", 0,
     "cluster file, or what 'kubectl get nodes -o json' prints; - for standard input", 2},
	{"engine", KEY_ENGINE, "NAME[@VERSION]", 0, "megatron (default) or torch", 2},
	{"exclude", KEY_EXCLUDE, "TYPE", 0, "GPU type to leave out; may be repeated", 2},
	{"gpus-used", KEY_GPUS_USED, "N[..M]", 0, "how many GPUs may be used", 2},

	{.doc = "What must hold (N, or a range such as 1..8; free when not given):", .group = 3},
	{"dp", KEY_DP, "N[..M]", 0, "data parallel", 3},
	{"tp", KEY_TP, "N[..M]", 0, "tensor parallel", 3},
	{"pp", KEY_PP, "N[..M]", 0, "pipeline parallel", 3},
	{"vpp", KEY_VPP, "N[..M]", 0, "virtual pipeline stages of a rank", 3},
	{"cp", KEY_CP, "N[..M]", 0, "context parallel", 3},
	{"ep", KEY_EP, "N[..M]", 0, "expert parallel", 3},
	{"micro-batch", KEY_MICRO_BATCH, "N[..M]", 0, "sequences of a micro-batch", 3},
	{"zero", KEY_ZERO, "0..3", 0, "ZeRO (FSDP) stage", 3},
	{"recompute", KEY_RECOMPUTE, "HOW", 0, "none, selective or full, on every stage", 3},
	{"sequence-parallel", KEY_SEQUENCE_PARALLEL, "on|off", 0,
     "sequence parallel beside tensor parallel", 3},
	{"equal-layers", KEY_EQUAL_LAYERS, NULL, 0, "the same number of layers on each stage", 3},
	{"equal-batches", KEY_EQUAL_BATCHES, NULL, 0,
     "the same number of micro-batches in each replica", 3},

	{.doc = "Time to train:", .group = 4},
	{"deadline", KEY_DEADLINE, "TIME", 0,
     "use the fewest GPUs that train all tokens in this time, such as 30d", 4},
	{"mtbf", KEY_MTBF, "TIME", 0,
     "mean time between failures of one GPU, such as 50000h; without it lost work isn't counted",
     4},
	{"checkpoint-interval", KEY_CHECKPOINT_INTERVAL, "TIME", 0,
     "default: the best for --mtbf, else 30m", 4},
	{"checkpoint-stall", KEY_CHECKPOINT_STALL, "TIME", 0,
     "training stands still for a checkpoint; default: its bytes over the storage bandwidth", 4},
	{"storage-bandwidth", KEY_STORAGE, "RATE", 0, "of one node, writing; default 2GB/s", 4},
	{"restart-time", KEY_RESTART, "TIME", 0, "from a failure to the first new step; default 5m", 4},

	{.doc = "How to answer:", .group = 5},
	{"output", KEY_OUTPUT, "FORM", 0, "table (default), json or yaml: the plan document", 5},
	{"no-why", KEY_NO_WHY, NULL, 0, "leave out the plans not chosen and the reasons: faster", 5},
	{"threads", KEY_THREADS, "N", 0, "default: one per CPU; the answer is the same", 5},
	{"data", KEY_DATA, "DIR", 0, "tables in place of those built in", 5},
	{"gpu-data", KEY_GPU_DATA, "FILE", 0, "CSV of GPU types that replace or add to gpus.csv", 5},
	{0},
};

static int parse_u32(uint32_t *out, const char *text, uint64_t min, uint64_t max, const char *what,
                     struct adp_error *err)
{
	uint64_t value;
	const int rc = adp_parse_u64(&value, text, what, err);

	if (rc)
		return rc;
	if (value < min || value > max)
		return adp_fail(err, ADP_EINVAL, "%s %s: expected %" PRIu64 " to %" PRIu64, what, text, min,
		                max);
	*out = (uint32_t)value;
	return ADP_OK;
}

static int parse_pin(struct adp_pin *out, const char *text, const char *what, struct adp_error *err)
{
	const char *dots = strstr(text, "..");
	const size_t len = dots ? (size_t)(dots - text) : strlen(text);
	char first[24];

	if (len < sizeof first) {
		snprintf(first, sizeof first, "%.*s", (int)len, text);
		if (!parse_u32(&out->min, first, 1, UINT32_MAX, what, NULL)) {
			out->max = out->min;
			if (!dots || !parse_u32(&out->max, dots + 2, 1, UINT32_MAX, what, NULL))
				return out->max >= out->min
				           ? ADP_OK
				           : adp_fail(err, ADP_EINVAL, "%s %s: the range runs backwards", what,
				                      text);
		}
	}
	return adp_fail(err, ADP_EINVAL,
	                "%s %s: expected N or N..M from 1 to %" PRIu32 ", such as 4 or 1..8", what,
	                text, UINT32_MAX);
}

static int check_tokens(double tokens, const char *what, const char *text, struct adp_error *err)
{
	if (tokens >= 1 && tokens <= max_tokens)
		return ADP_OK;
	return adp_fail(err, ADP_EINVAL, "%s %s: %g tokens are not between 1 and %g", what, text,
	                tokens, max_tokens);
}

/* A count that may be written 15T. */
static int parse_tokens(double *out, const char *text, const char *what, struct adp_error *err)
{
	const int rc = adp_parse_count(out, text, what, err);

	return rc ? rc : check_tokens(*out, what, text, err);
}

static int parse_epochs(double *out, const char *text, struct adp_error *err)
{
	const int rc = adp_parse_count(out, text, "--epochs", err);

	if (!rc && *out <= 0)
		return adp_fail(err, ADP_EINVAL, "--epochs %s: expected more than 0, such as 1 or 0.5",
		                text);
	return rc;
}

static int parse_time(double *out, const char *text, const char *what, struct adp_error *err)
{
	const int rc = adp_parse_duration(out, text, what, err);

	if (!rc && *out <= 0)
		return adp_fail(err, ADP_EINVAL, "%s %s: expected more than no time", what, text);
	return rc;
}

static int parse_batch(uint64_t *out, const char *text, const char *what, struct adp_error *err)
{
	uint32_t value;
	const int rc = parse_u32(&value, text, 1, UINT32_MAX, what, err);

	if (!rc)
		*out = value;
	return rc;
}

static int parse_recompute(int *out, const char *text, struct adp_error *err)
{
	for (int i = 0; i < ADP_N_RECOMPUTE; i++)
		if (!strcmp(text, adp_recompute_name((enum adp_recompute)i))) {
			*out = i;
			return ADP_OK;
		}
	return adp_fail(err, ADP_EINVAL, "--recompute %s: expected none, selective or full", text);
}

static int parse_switch(int *out, const char *text, struct adp_error *err)
{
	*out = !strcmp(text, "on");
	if (*out || !strcmp(text, "off"))
		return ADP_OK;
	return adp_fail(err, ADP_EINVAL, "--sequence-parallel %s: expected on or off", text);
}

static int parse_load(double *out, const char *text, struct adp_error *err)
{
	const int rc = adp_parse_count(out, text, "--expert-load", err);

	if (!rc && (*out < 1 || *out > 1000))
		return adp_fail(err, ADP_EINVAL,
		                "--expert-load %s: the busiest rank has 1 to 1000 times the mean", text);
	return rc;
}

static int add_exclude(struct request *request, const char *type)
{
	if (request->search.n_exclude == MAX_EXCLUDES)
		return adp_fail(&request->err, ADP_ELIMIT, "--exclude: at most %d types", MAX_EXCLUDES);
	request->exclude[request->search.n_exclude++] = type;
	return ADP_OK;
}

static int parse_training(int key, const char *arg, struct request *to)
{
	struct adp_train *train = &to->train;
	struct adp_error *err = &to->err;

	switch (key) {
	case KEY_BATCH:
		return parse_batch(&train->global_batch_seqs, arg, "--global-batch", err);
	case KEY_SEQ:
		return parse_batch(&train->seq_tokens, arg, "--seq", err);
	case KEY_TOKENS:
		return parse_tokens(&train->tokens, arg, "--tokens", err);
	case KEY_DATASET:
		return parse_tokens(&to->dataset_tokens, arg, "--dataset-tokens", err);
	case KEY_EPOCHS:
		return parse_epochs(&to->epochs, arg, err);
	case KEY_PRECISION:
		return adp_precision_parse(&train->precision, arg, err);
	case KEY_OPTIMIZER:
		return adp_optimizer_parse(&train->optimizer, arg, err);
	case KEY_EXPERT_LOAD:
		return parse_load(&train->expert_load_factor, arg, err);
	case KEY_DEADLINE:
		return parse_time(&train->deadline_s, arg, "--deadline", err);
	case KEY_MTBF:
		return parse_time(&train->mtbf_s, arg, "--mtbf", err);
	case KEY_CHECKPOINT_INTERVAL:
		return parse_time(&train->checkpoint_interval_s, arg, "--checkpoint-interval", err);
	case KEY_CHECKPOINT_STALL:
		return parse_time(&train->checkpoint_stall_s, arg, "--checkpoint-stall", err);
	case KEY_STORAGE:
		return adp_parse_bandwidth(&train->storage_bytes_per_s, arg, "--storage-bandwidth", err);
	case KEY_RESTART:
		return adp_parse_duration(&train->restart_s, arg, "--restart-time", err);
	default:
		return 1;
	}
}

static int parse_pins(int key, const char *arg, struct request *to)
{
	struct adp_search_opts *search = &to->search;
	struct adp_error *err = &to->err;
	uint32_t zero;
	int rc;

	switch (key) {
	case KEY_DP:
		return parse_pin(&search->dp, arg, "--dp", err);
	case KEY_TP:
		return parse_pin(&search->tp, arg, "--tp", err);
	case KEY_PP:
		return parse_pin(&search->pp, arg, "--pp", err);
	case KEY_VPP:
		return parse_pin(&search->vpp, arg, "--vpp", err);
	case KEY_CP:
		return parse_pin(&search->cp, arg, "--cp", err);
	case KEY_EP:
		return parse_pin(&search->ep, arg, "--ep", err);
	case KEY_MICRO_BATCH:
		return parse_pin(&search->micro_batch, arg, "--micro-batch", err);
	case KEY_GPUS_USED:
		return parse_pin(&search->gpus, arg, "--gpus-used", err);
	case KEY_ZERO:
		rc = parse_u32(&zero, arg, 0, 3, "--zero", err);
		if (!rc)
			search->zero_stage = (int)zero;
		return rc;
	case KEY_RECOMPUTE:
		return parse_recompute(&search->recompute, arg, err);
	case KEY_SEQUENCE_PARALLEL:
		return parse_switch(&search->sequence_parallel, arg, err);
	case KEY_EQUAL_LAYERS:
		search->equal_layers = true;
		return ADP_OK;
	case KEY_EQUAL_BATCHES:
		search->equal_batches = true;
		return ADP_OK;
	case KEY_EXCLUDE:
		return add_exclude(to, arg);
	case KEY_THREADS:
		return parse_u32(&search->n_threads, arg, 1, MAX_THREADS, "--threads", err);
	default:
		return 1;
	}
}

static int parse_words(int key, const char *arg, struct request *to)
{
	switch (key) {
	case KEY_MODEL:
		to->model = arg;
		return ADP_OK;
	case KEY_GPUS:
		to->gpus = arg;
		return ADP_OK;
	case KEY_CLUSTER:
		to->cluster = arg;
		return ADP_OK;
	case KEY_ENGINE:
		to->engine = arg;
		return ADP_OK;
	case KEY_DATA:
		to->data_dir = arg;
		return ADP_OK;
	case KEY_GPU_DATA:
		to->gpu_data = arg;
		return ADP_OK;
	case KEY_NO_WHY:
		to->no_why = true;
		return ADP_OK;
	case KEY_OUTPUT:
		return cmd_output_parse(&to->output, arg, &to->err);
	default:
		return 1;
	}
}

/* A wrong value is kept in request->err, so that it is told in our words. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static int (*const parsers[])(int, const char *,
	                              struct request *) = {parse_words, parse_training, parse_pins};
	struct request *request = state->input;

	if (key == ARGP_KEY_ARG) {
		adp_fail(&request->err, ADP_EINVAL,
		         "\"%s\" belongs to no option; a value follows its option", arg);
		return EINVAL;
	}
	for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++) {
		const int rc = parsers[i](key, arg, request);

		if (rc <= 0)
			return rc ? EINVAL : 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* Sense across options. */
static int check_request(struct request *to)
{
	struct adp_error *err = &to->err;

	if (!to->model)
		return adp_fail(err, ADP_EINVAL,
		                "--model is missing: a config.json, or a name such as llama-3-70b");
	if (!to->gpus == !to->cluster)
		return adp_fail(err, ADP_EINVAL, "give the fleet with %s",
		                to->gpus ? "--gpus or --cluster, not both"
		                         : "--gpus H100:64 or --cluster FILE");
	if (!to->train.global_batch_seqs)
		return adp_fail(err, ADP_EINVAL,
		                "--global-batch is missing: how many sequences an optimizer step takes");
	if (to->cluster && !strcmp(to->cluster, "-") && !strcmp(to->model, "-"))
		return adp_fail(err, ADP_EINVAL,
		                "standard input can be the model or the cluster, not both");
	if (to->train.tokens > 0 && to->dataset_tokens > 0)
		return adp_fail(err, ADP_EINVAL,
		                "give --tokens, or --dataset-tokens with --epochs, not both");
	if (to->epochs > 0 && !(to->dataset_tokens > 0))
		return adp_fail(err, ADP_EINVAL, "--epochs needs --dataset-tokens");
	if (to->dataset_tokens > 0) {
		to->train.tokens = to->dataset_tokens * (to->epochs > 0 ? to->epochs : 1);
		if (check_tokens(to->train.tokens, "--dataset-tokens", "with --epochs", err))
			return ADP_EINVAL;
	}
	if (to->train.deadline_s > 0 && !(to->train.tokens > 0))
		return adp_fail(err, ADP_EINVAL, "--deadline needs to know how many tokens: give --tokens");
	if (to->train.storage_bytes_per_s <= 0)
		return adp_fail(err, ADP_EINVAL, "--storage-bandwidth must be more than 0");
	return ADP_OK;
}

static bool has_type(const struct adp_cluster *cluster, const struct adp_gpu_type *type)
{
	for (uint32_t t = 0; t < cluster->n_types; t++)
		if (!strcmp(cluster->types[t].name, type->name))
			return true;
	return false;
}

/* " (the fleet has H100, A100-80)", cut where there are many. */
static const char *list_types(char *out, size_t size, const struct adp_cluster *cluster)
{
	size_t len = 0;

	out[0] = '\0';
	for (uint32_t t = 0; t < cluster->n_types && len < size; t++) {
		const struct adp_gpu_type *type = &cluster->types[t];
		const int n = snprintf(out + len, size - len, "%s%s", t ? ", " : "",
		                       type->alias && *type->alias ? type->alias : type->name);

		len += n > 0 ? (size_t)n : 0;
	}
	return out;
}

static int check_excludes(struct request *to, struct inputs *in)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < to->search.n_exclude; i++) {
		char near[256] = "", have[256];
		const struct adp_gpu_type *type = adp_hardware_find(in->hardware, to->exclude[i], 0, near,
		                                                    sizeof near);
		bool again = false;

		if (!type)
			return adp_fail(&to->err, ADP_EINVAL,
			                "--exclude '%.64s': no such GPU type%s%s%s the fleet has %s",
			                to->exclude[i], *near ? "; did you mean " : "", near, *near ? "?" : ";",
			                list_types(have, sizeof have, in->cluster));
		if (!has_type(in->cluster, type) && !*in->exclude_note) {
			snprintf(in->exclude_note, sizeof in->exclude_note,
			         "--exclude %.64s changes nothing: the fleet has none", to->exclude[i]);
			in->assumed[in->n_assumed++] = in->exclude_note;
		}
		for (uint32_t k = 0; k < n; k++)
			again = again || !strcmp(to->exclude[k], type->name);
		if (!again)
			to->exclude[n++] = type->name;
	}
	to->search.n_exclude = n;
	to->search.exclude = to->exclude;
	return ADP_OK;
}

static void check_sequence(struct request *to, struct inputs *in)
{
	const uint64_t longest = in->model->max_seq_tokens;

	if (!to->train.seq_tokens) {
		to->train.seq_tokens = longest && longest < MAX_DEFAULT_SEQ ? longest : MAX_DEFAULT_SEQ;
		snprintf(in->seq_note, sizeof in->seq_note,
		         "sequences of %" PRIu64 " tokens were assumed; --seq says otherwise",
		         to->train.seq_tokens);
		in->assumed[in->n_assumed++] = in->seq_note;
	} else if (longest && to->train.seq_tokens > longest) {
		snprintf(in->context_note, sizeof in->context_note,
		         "sequences of %" PRIu64 " tokens are longer than the %" PRIu64
		         " the model's config allows",
		         to->train.seq_tokens, longest);
		in->assumed[in->n_assumed++] = in->context_note;
	}
}

static int load_inputs(struct inputs *in, struct request *to)
{
	struct adp_error *err = &to->err;
	int rc = adp_hardware_load(&in->hardware, to->data_dir, to->gpu_data, err);

	if (!rc)
		rc = adp_engine_load(&in->engine, to->engine, to->data_dir, err);
	if (!rc)
		rc = adp_model_load(&in->model, to->model, err);
	if (!rc && to->gpus)
		rc = adp_cluster_from_gpus(&in->cluster, to->gpus, in->hardware, err);
	else if (!rc)
		rc = adp_cluster_load(&in->cluster, to->cluster, in->hardware, err);
	if (!rc)
		rc = adp_tables_load(&in->tables, to->data_dir, err);
	if (!rc)
		rc = check_excludes(to, in);
	if (rc)
		return rc;
	check_sequence(to, in);
	if (in->model->learned_positions && to->train.seq_tokens > in->model->max_seq_tokens)
		return adp_fail(err, ADP_EINVAL,
		                "--seq: the model has learned positions for %" PRIu64
		                " tokens, not for %" PRIu64,
		                in->model->max_seq_tokens, to->train.seq_tokens);
	return ADP_OK;
}

static void free_inputs(struct inputs *in)
{
	adp_tables_destroy(in->tables);
	adp_engine_destroy(in->engine);
	adp_cluster_destroy(in->cluster);
	adp_hardware_destroy(in->hardware);
	adp_model_destroy(in->model);
}

static bool is_listed(const char *const *texts, uint32_t n, const char *text)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(texts[i], text))
			return true;
	return false;
}

/* A plan that the engine's files cannot express is still an answer, but the user must know. */
static int try_emit(struct inputs *in, const struct adp_plan *plan, struct adp_error *err)
{
	struct adp_emit_set set = {0};
	struct adp_error why = {0};
	const int rc = adp_emit(&set, plan, NULL, NULL, &why);

	adp_emit_fini(&set);
	if (rc == ADP_ENOMEM)
		return adp_nomem(err);
	if (rc)
		snprintf(in->emit_note, sizeof in->emit_note, "adp emit refuses this plan: %.400s",
		         why.text);
	return ADP_OK;
}

/*
 * What stops the launch first, then the plan's own warnings, what was assumed, and what the readers
 * noticed; each once.
 */
static int add_warnings(struct adp_plan *plan, const struct inputs *in, struct adp_error *err)
{
	const char *const refusal = in->emit_note;
	const struct {
		const char *const *texts;
		uint32_t n;
	} sources[] = {
		{&refusal, *refusal != '\0'},           {plan->warnings, plan->n_warnings},
		{in->assumed, in->n_assumed},           {in->cluster->warnings, in->cluster->n_warnings},
		{in->model->notes, in->model->n_notes},
	};
	const char **all;
	uint32_t n = 0;

	for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
		n += sources[i].n;
	all = adp_arena_calloc(&plan->arena, n, sizeof *all);
	if (!all)
		return adp_nomem(err);
	n = 0;
	for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
		for (uint32_t k = 0; k < sources[i].n; k++) {
			if (is_listed(all, n, sources[i].texts[k]))
				continue;
			all[n] = adp_arena_strdup(&plan->arena, sources[i].texts[k]);
			if (!all[n++])
				return adp_nomem(err);
		}
	plan->warnings = all;
	plan->n_warnings = n;
	return ADP_OK;
}

static unsigned screen_width(void)
{
	struct winsize size;

	if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		return size.ws_col < 120 ? size.ws_col : 120;
	return 100;
}

/* Returns the exit status. */
static int print_plan(const struct adp_plan *plan, enum cmd_output output)
{
	struct adp_error err = {0};
	char *text;
	int rc;

	if (output == CMD_OUTPUT_TABLE) {
		rc = adp_plan_print(stdout, plan, screen_width(), &err);
		return rc && rc != ADP_EIO ? cmd_fail(COMMAND, &err) : cmd_flush(COMMAND);
	}
	rc = output == CMD_OUTPUT_JSON ? adp_plan_to_json(&text, plan, &err)
	                               : adp_plan_to_yaml(&text, plan, &err);
	if (rc)
		return cmd_fail(COMMAND, &err);
	fputs(text, stdout); /* cmd_flush sees what goes wrong */
	rc = cmd_flush(COMMAND);
	adp_free(text);
	return rc;
}

static int make_plan(struct adp_plan **out, struct request *to, struct inputs *in)
{
	struct adp_error *err = &to->err;
	int rc = adp_search(out, in->model, in->cluster, in->engine, in->tables, &to->train,
	                    &to->search, err);

	if (rc)
		return rc;
	if (!to->no_why)
		rc = adp_search_explain(*out, in->model, in->cluster, in->engine, in->tables, &to->train,
		                        &to->search, err);
	if (!rc)
		rc = try_emit(in, *out, err);
	return rc ? rc : add_warnings(*out, in, err);
}

static uint32_t n_cpus(void)
{
	const long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (uint32_t)n;
}

int cmd_plan(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.doc = "Finds the best plan for a model on a fleet, and says why.\v"
			   "Example:\n  adp plan --model llama-3-70b --gpus H100:128,A100-80:128 "
			   "--global-batch 1024 --tokens 15T\n\n"
			   "Exit status: 0 a plan was found; 1 there is none, and why; 2 bad usage or input; 4 "
			   "internal error.",
	};
	struct request request = {
		.engine = "megatron",
		.train =
			{
				.precision = ADP_PRECISION_BF16,
				.optimizer = ADP_OPTIMIZER_ADAMW,
				.expert_load_factor = 1,
				.restart_s = 300,
				.storage_bytes_per_s = 2e9,
			},
	};
	struct inputs in = {0};
	struct adp_plan *plan = NULL;
	int rc;

	adp_search_opts_init(&request.search);
	request.search.n_threads = n_cpus();
	rc = cmd_check_options(COMMAND, options, argc, argv);
	if (rc)
		return rc;
	rc = argp_parse(&argp, argc, argv, 0, NULL, &request);
	if (!rc)
		rc = check_request(&request);
	if (rc)
		return cmd_usage(COMMAND, "%s", request.err.text);
	rc = load_inputs(&in, &request);
	if (!rc)
		rc = make_plan(&plan, &request, &in);
	rc = rc ? cmd_fail(COMMAND, &request.err) : print_plan(plan, request.output);
	adp_plan_destroy(plan);
	free_inputs(&in);
	return rc;
}
