/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "adp/model.h"
#include "adp/units.h"
#include "base/alloc.h"
#include "base/doc.h"
#include "cmd/cmd.h"

#define COMMAND "adp model"

enum { DEFAULT_SEQ = 4096, MAX_SEQ = 1 << 30, MAX_RANGES_TEXT = 21, NAME_COLUMN = 40 };

struct request {
	const char *spec;
	uint64_t seq_tokens; /* 0: not given */
	enum cmd_output output;
	bool list;
	struct adp_error err;
};

/* A line of the report: an item, or all layers of one kind. */
struct line {
	const char *name, *kind;
	const struct adp_item *item; /* one of them */
	const struct adp_block *block;
	uint64_t n;
};
enum { MAX_LINES = 16 };

static const struct argp_option options[] = {
	{"seq", 's', "N", 0,
     "tokens of a sequence, for the operations; default: the model's maximum, at most 4096", 0},
	{"output", 'o', "FORM", 0, "table (default), json or yaml", 0},
	{"list", 'l', NULL, 0, "the names of the built-in catalogue", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct request *to = state->input;
	int rc = ADP_OK;

	switch (key) {
	case 's':
		rc = adp_parse_u64(&to->seq_tokens, arg, "--seq", &to->err);
		if (rc == ADP_OK && (to->seq_tokens == 0 || to->seq_tokens > MAX_SEQ))
			rc = adp_fail(&to->err, ADP_EINVAL, "--seq %s: expected 1 to %d tokens", arg, MAX_SEQ);
		return rc ? EINVAL : 0;
	case 'o':
		return cmd_output_parse(&to->output, arg, &to->err) ? EINVAL : 0;
	case 'l':
		to->list = true;
		return 0;
	case ARGP_KEY_ARG:
		if (to->spec) {
			adp_fail(&to->err, ADP_EINVAL, "\"%.64s\": one model at a time", arg);
			return EINVAL;
		}
		to->spec = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the report's lines ------------------------------------------------------------------- */

static const char *item_name(enum adp_item_kind kind)
{
	static const char *const names[] = {"embedding", "layers", "final norm", "head", "loss"};

	return names[kind];
}

/* Layers of a kind stand together, at the place of the first. */
static unsigned make_lines(struct line *lines, const struct adp_model *model)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < model->n_items && n < MAX_LINES; i++) {
		const struct adp_item *item = &model->items[i];
		unsigned j = 0;

		while (j < n && !(item->block && lines[j].block == item->block))
			j++;
		if (j == n)
			lines[n++] = (struct line){item_name(item->kind), item->block ? item->block->name : "",
			                           item, item->block, 0};
		lines[j].n++;
	}
	return n;
}

/* The next run of consecutive layers of the block from *from on; false when there is none. */
static bool next_run(uint32_t *first, uint32_t *last, const struct adp_model *model,
                     const struct adp_block *block, uint32_t *from)
{
	const struct adp_item *layers = model->items + 1; /* the embedding stands first */

	while (*from < model->n_layers && layers[*from].block != block)
		(*from)++;
	if (*from == model->n_layers)
		return false;
	*first = *from;
	while (*from < model->n_layers && layers[*from].block == block)
		(*from)++;
	*last = *from - 1;
	return true;
}

/* "0-79", "0-2,5", "0,2,...,40" */
static void format_ranges(char *out, size_t size, const struct adp_model *model,
                          const struct adp_block *block)
{
	uint32_t first, last, from = 0, final = 0;
	bool cut = false;
	size_t len = 0;

	out[0] = '\0';
	while (next_run(&first, &last, model, block, &from)) {
		char run[32];
		int n = first == last ? snprintf(run, sizeof run, "%" PRIu32, first)
		                      : snprintf(run, sizeof run, "%" PRIu32 "-%" PRIu32, first, last);
		final = last;
		cut = cut || len + (size_t)n + sizeof ",..,9999" > size;
		if (!cut)
			len += (size_t)snprintf(out + len, size - len, "%s%s", len ? "," : "", run);
	}
	if (cut)
		snprintf(out + len, size - len, ",..,%" PRIu32, final);
}

/* ---- table ---------------------------------------------------------------------------------- */

/* 70553706496 -> "70,553,706,496" */
static const char *grouped(char out[32], uint64_t value)
{
	char digits[24];
	size_t n = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, value), len = 0;

	for (size_t i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			out[len++] = ',';
		out[len++] = digits[i];
	}
	out[len] = '\0';
	return out;
}

static void print_degrees(const char *name, const struct adp_degrees *degrees)
{
	printf("  %-28s", name);
	for (uint32_t i = 0; i < degrees->n; i++)
		printf(" %" PRIu32, degrees->value[i]);
	putchar('\n');
}

static void print_shape(const struct adp_model *m)
{
	char number[32];

	printf("  parameters  %s", grouped(number, adp_model_params(m)));
	if (adp_model_active_params(m) != adp_model_params(m))
		printf(", active per token %s", grouped(number, adp_model_active_params(m)));
	printf("\n  shape       %" PRIu32 " layers, hidden %" PRIu64 ", vocabulary %" PRIu64
	       ", embedding %s\n",
	       m->n_layers, m->hidden, m->vocab,
	       m->tied_embeddings ? "and head share one matrix" : "and head apart");
	for (uint32_t i = 0; i < m->n_blocks; i++) {
		const struct adp_block *b = &m->blocks[i];
		printf("  %-11s %" PRIu32 " heads of %" PRIu32 ", %" PRIu32 " KV heads", b->name,
		       b->n_heads, b->head_dim, b->n_kv_heads);
		if (b->v_head_dim != b->head_dim)
			printf(" with values of %" PRIu32, b->v_head_dim);
		if (b->window_tokens)
			printf(", window %" PRIu32, b->window_tokens);
		if (b->ffn_hidden)
			printf(", MLP %" PRIu64, b->ffn_hidden);
		if (b->n_experts)
			printf(", %" PRIu32 " of %" PRIu32 " experts of %" PRIu64, b->top_k, b->n_experts,
			       b->expert_ffn_hidden);
		if (b->shared_ffn_hidden)
			printf(" + shared %" PRIu64, b->shared_ffn_hidden);
		putchar('\n');
	}
	printf("  kind        %s, %s%s, %s", m->norm, m->activation, m->blocks[0].gated ? " gated" : "",
	       m->rope_theta > 0      ? "rotary"
	       : m->learned_positions ? "learned positions"
	                              : "no positions");
	if (m->rope_theta > 0)
		printf(" base %.0f", m->rope_theta);
	if (m->max_seq_tokens)
		printf(", up to %" PRIu64 " tokens", m->max_seq_tokens);
	if (m->n_traits) {
		printf("\n  apart by    ");
		for (uint32_t i = 0; i < m->n_traits; i++)
			printf("%s%s", i ? ", " : "", m->traits[i]);
	}
	printf("\n\n");
}

static void print_lines(const struct adp_model *model, uint64_t seq_tokens)
{
	struct line lines[MAX_LINES];
	unsigned n = make_lines(lines, model);
	char one[32], all[32], flops[32], activations[32];

	printf("  %-*s %15s %17s %10s %11s\n", NAME_COLUMN, "item", "parameters each", "parameters",
	       "FLOP/token", "act B/token");
	for (unsigned i = 0; i < n; i++) {
		const struct line *line = &lines[i];
		uint64_t each = adp_item_params(line->item);
		char name[MAX_RANGES_TEXT + 32], ranges[MAX_RANGES_TEXT];

		snprintf(name, sizeof name, "%s", line->name);
		if (line->block) {
			format_ranges(ranges, sizeof ranges, model, line->block);
			snprintf(name, sizeof name, "%s %s", line->n == 1 ? "layer" : "layers", ranges);
		}
		if (line->n > 1)
			snprintf(name + strlen(name), sizeof name - strlen(name), " x %s", line->kind);
		else if (line->block)
			snprintf(name + strlen(name), sizeof name - strlen(name), " %s", line->kind);
		printf("  %-*s %15s %17s %10s %11s\n", NAME_COLUMN, name, grouped(one, each),
		       grouped(all, each * line->n),
		       adp_format_count(flops, sizeof flops, adp_item_flops(model, line->item, seq_tokens)),
		       grouped(activations, (uint64_t)adp_item_activation_bytes(model, line->item)));
	}
	printf("  %-*s %15s %17s %10s\n\n", NAME_COLUMN, "all", "",
	       grouped(all, adp_model_params(model)),
	       adp_format_count(flops, sizeof flops, adp_model_flops(model, seq_tokens)));
}

static void print_table(const struct adp_model *model, const struct adp_divisors *divisors,
                        uint64_t seq_tokens)
{
	printf("%s (%s, digest %s)\n", model->name, model->family, model->digest);
	print_shape(model);
	printf("  FLOP of one token's forward pass in a sequence of %" PRIu64
	       ", two per multiply-add; backward is twice\n"
	       "  that. Activation bytes of one token at 16 bits, no recomputation, fused attention, "
	       "one rank.\n",
	       seq_tokens);
	print_lines(model, seq_tokens);
	print_degrees("tensor parallel", &divisors->tp);
	if (divisors->tp_kv_replicated.n != divisors->tp.n)
		print_degrees("  with KV heads replicated", &divisors->tp_kv_replicated);
	if (divisors->ep.n > 1)
		print_degrees("expert parallel", &divisors->ep);
	print_degrees("equal pipeline stages", &divisors->pp_uniform);
	for (uint32_t i = 0; i < model->n_notes; i++)
		printf("%s  %s %s\n", i ? "" : "\n", i ? "     " : "note:", model->notes[i]);
}

/* ---- document ---------------------------------------------------------------------------------
 */

static json_t *degrees_json(const struct adp_degrees *degrees)
{
	json_t *list = json_array();

	for (uint32_t i = 0; list && i < degrees->n; i++)
		if (json_array_append_new(list, json_integer(degrees->value[i])) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *strings_json(const char *const *text, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; list && i < n; i++)
		if (json_array_append_new(list, json_string(text[i])) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* Runs of layers as [first, last]. */
static json_t *runs_json(const struct adp_model *model, const struct adp_block *block)
{
	json_t *list = json_array();
	uint32_t first, last, from = 0;

	while (list && next_run(&first, &last, model, block, &from))
		if (json_array_append_new(list, json_pack("[II]", (json_int_t)first, (json_int_t)last)) !=
		    0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *block_json(const struct adp_block *b)
{
	return json_pack("{sssIsIsIsIsIsbsIsIsIsIsI}", "kind", b->name, "heads", (json_int_t)b->n_heads,
	                 "kvHeads", (json_int_t)b->n_kv_heads, "headDim", (json_int_t)b->head_dim,
	                 "valueHeadDim", (json_int_t)b->v_head_dim, "windowTokens",
	                 (json_int_t)b->window_tokens, "gated", (int)b->gated, "ffnHidden",
	                 (json_int_t)b->ffn_hidden, "experts", (json_int_t)b->n_experts, "topK",
	                 (json_int_t)b->top_k, "expertFfnHidden", (json_int_t)b->expert_ffn_hidden,
	                 "sharedFfnHidden", (json_int_t)b->shared_ffn_hidden);
}

static json_t *items_json(const struct adp_model *model, uint64_t seq_tokens)
{
	struct line lines[MAX_LINES];
	unsigned n = make_lines(lines, model);
	json_t *list = json_array();

	for (unsigned i = 0; list && i < n; i++) {
		const struct line *line = &lines[i];
		json_t *item = json_pack(
			"{sssIsIsfsf}", "item", line->block ? "layer" : line->name, "count",
			(json_int_t)line->n, "parameters", (json_int_t)adp_item_params(line->item),
			"flopsPerToken", adp_item_flops(model, line->item, seq_tokens),
			"activationBytesPerToken", adp_item_activation_bytes(model, line->item));
		int bad = !item;

		if (!bad && line->block)
			bad = json_object_set_new(item, "layers", runs_json(model, line->block)) ||
			      json_object_set_new(item, "block", block_json(line->block));
		if (bad || json_array_append_new(list, item) != 0) {
			if (bad)
				json_decref(item);
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *report_json(const struct adp_model *m, const struct adp_divisors *d,
                           uint64_t seq_tokens)
{
	json_t *shape = json_pack(
		"{sssssIsIsIsIsIsbsbsssssf}", "family", m->family, "digest", m->digest, "layers",
		(json_int_t)m->n_layers, "hidden", (json_int_t)m->hidden, "vocab", (json_int_t)m->vocab,
		"embeddingWidth", (json_int_t)m->embedding_width, "maxSeqTokens",
		(json_int_t)m->max_seq_tokens, "tiedEmbeddings", (int)m->tied_embeddings,
		"learnedPositions", (int)m->learned_positions, "norm", m->norm, "activation", m->activation,
		"ropeTheta", m->rope_theta);
	json_t *status = json_pack("{sIsIsIsfso}", "parameters", (json_int_t)adp_model_params(m),
	                           "activeParameters", (json_int_t)adp_model_active_params(m),
	                           "seqTokens", (json_int_t)seq_tokens, "flopsPerToken",
	                           adp_model_flops(m, seq_tokens), "items", items_json(m, seq_tokens));
	json_t *degrees = json_pack("{sososo}", "tensor", degrees_json(&d->tp), "expert",
	                            degrees_json(&d->ep), "equalPipeline",
	                            degrees_json(&d->pp_uniform));
	json_t *replicated = degrees_json(&d->tp_kv_replicated);

	if (json_object_set_new(degrees, "tensorKvReplicated", replicated) != 0)
		degrees = (json_decref(degrees), NULL);
	if (json_object_set_new(shape, "traits", strings_json(m->traits, m->n_traits)) != 0)
		shape = (json_decref(shape), NULL);
	if (json_object_set_new(status, "degrees", degrees) != 0 ||
	    json_object_set_new(status, "notes", strings_json(m->notes, m->n_notes)) != 0)
		status = (json_decref(status), NULL);
	return json_pack("{sssss{ss}soso}", "apiVersion", "adp.parallelism/v1alpha1", "kind",
	                 "ModelReport", "metadata", "name", m->name, "spec", shape, "status", status);
}

static int print_document(const struct adp_model *model, const struct adp_divisors *divisors,
                          uint64_t seq_tokens, enum cmd_output output, struct adp_error *err)
{
	json_t *report = report_json(model, divisors, seq_tokens);
	char *text = NULL;
	int rc;

	if (!report)
		return adp_fail(err, ADP_ENOMEM,
		                "the report could not be made: no memory, or a name that is not UTF-8");
	rc = output == CMD_OUTPUT_JSON ? adp_doc_to_json(&text, report, err)
	                               : adp_doc_to_yaml(&text, report, err);
	json_decref(report);
	if (rc == ADP_OK)
		fputs(text, stdout);
	adp_free(text);
	return rc;
}

/* ---- command ------------------------------------------------------------------------------------
 */

static int report(struct request *to)
{
	struct adp_arena arena = {0};
	struct adp_divisors divisors;
	struct adp_model *model;
	uint64_t seq = to->seq_tokens;
	int rc = adp_model_load(&model, to->spec, &to->err);

	if (rc != ADP_OK)
		return rc;
	if (!seq)
		seq = model->max_seq_tokens && model->max_seq_tokens < DEFAULT_SEQ ? model->max_seq_tokens
		                                                                   : DEFAULT_SEQ;
	rc = adp_model_divisors(&divisors, model, &arena, &to->err);
	if (rc == ADP_OK && to->output == CMD_OUTPUT_TABLE)
		print_table(model, &divisors, seq);
	else if (rc == ADP_OK)
		rc = print_document(model, &divisors, seq, to->output, &to->err);
	adp_arena_fini(&arena);
	adp_model_destroy(model);
	return rc;
}

int cmd_model(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "SPEC",
		.doc = "Reads a model and tells its layers, parameters, operations and legal degrees.\v"
			   "SPEC is a Hugging Face config.json, a folder with one, - for standard input, or a "
			   "name of the "
			   "catalogue.\n\n"
			   "Example:\n  adp model llama-3.1-70b --seq 8192\n\n"
			   "Exit status: 0 the model was read; 2 it was not, and why; 4 internal error.",
	};
	struct request request = {0};
	int rc = cmd_check_options(COMMAND, options, argc, argv);

	if (rc)
		return rc;
	rc = argp_parse(&argp, argc, argv, 0, NULL, &request);
	if (rc)
		return cmd_usage(COMMAND, "%s", request.err.text);
	if (request.list == (request.spec != NULL))
		return cmd_usage(COMMAND, "give a model: a config.json, or a name that --list shows%s",
		                 request.list ? "; --list stands alone" : "");
	if (request.list) {
		for (const char *const *name = adp_model_catalogue(); *name; name++)
			printf("%s\n", *name);
		return cmd_flush(COMMAND);
	}
	rc = report(&request);
	return rc ? cmd_fail(COMMAND, &request.err) : cmd_flush(COMMAND);
}
