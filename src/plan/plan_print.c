/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "adp/units.h"
#include "base/alloc.h"

/* What a screen has room for; the document holds the rest. */
enum {
	MAX_STAGE_ROWS = 10,
	MAX_PIPE_ROWS = 4,
	MAX_OTHERS = 8,
	MAX_REASONS = 6,
	MAX_WARNINGS = 4,
	MAX_LINES = 45, /* notes are cut to it, all but the first */
};
enum { GLUE = '\x1f' }; /* a space that no line breaks at */
enum { LABEL = 15, MAX_BAR = 20, NUMBER = 32, MAX_GPU_COLUMN = 28 };

struct screen {
	struct adp_strbuf out, line;
	unsigned width, n_lines;
};

/* Names come from files: what could steer a terminal, or is not ASCII, becomes one '?' a character.
 */
static void make_ascii(char *text)
{
	char *to = text;

	for (const char *at = text; *at; at++) {
		const unsigned char c = (unsigned char)*at;

		if (c >= 0x80 && c < 0xc0)
			continue; /* inside a UTF-8 character */
		*to++ = (c < 0x20 && c != GLUE) || c >= 0x7f ? '?' : *at;
	}
	*to = '\0';
}

static void line_add(struct screen *to, const char *format, ...) ADP_PRINTF(2, 3);
static void line_add(struct screen *to, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	if (vsnprintf(text, sizeof text, format, args) >= 0)
		adp_strbuf_add(&to->line, text);
	va_end(args);
}

/* Characters of text that fit width: up to a space, or all of them when there is none. */
static size_t fitting(const char *text, size_t width)
{
	const size_t len = strlen(text);
	size_t n = width;

	if (len <= width)
		return len;
	while (n && text[n] != ' ')
		n--;
	return n ? n : width;
}

/* The line so far, wrapped behind the label, or behind indent spaces more on later lines. */
static void line_end(struct screen *to, const char *label, unsigned indent)
{
	char *text = adp_strbuf_steal(&to->line);
	const char *at = text;
	unsigned column = LABEL;

	if (!text) {
		to->out.failed = ADP_ENOMEM;
		return;
	}
	make_ascii(text);
	adp_strbuf_addf(&to->out, "%-*s", LABEL, label);
	for (;;) {
		size_t n = fitting(at, to->width - column);
		size_t kept = n;

		while (kept && at[kept - 1] == ' ')
			kept--;
		for (size_t i = 0; i < kept; i++)
			adp_strbuf_addn(&to->out, at[i] == GLUE ? " " : at + i, 1);
		adp_strbuf_add(&to->out, "\n");
		to->n_lines++;
		while (at[n] == ' ')
			n++;
		at += n;
		if (!*at)
			break;
		column = LABEL + indent;
		adp_strbuf_addf(&to->out, "%*s", (int)column, "");
	}
	adp_free(text);
}

static void blank(struct screen *to)
{
	adp_strbuf_add(&to->out, "\n");
	to->n_lines++;
}

/* A number stays beside its unit. */
static const char *glued(char *text)
{
	for (char *at = text; *at; at++)
		if (*at == ' ')
			*at = GLUE;
	return text;
}

static const char *duration(char text[NUMBER], double seconds)
{
	return glued(adp_format_duration(text, NUMBER, seconds));
}

static const char *count(char text[NUMBER], double n)
{
	return glued(adp_format_count(text, NUMBER, n));
}

static const char *bytes(char text[NUMBER], uint64_t n)
{
	return glued(adp_format_bytes(text, NUMBER, (double)n));
}

static const char *text_or(const char *text, const char *otherwise)
{
	return text && *text ? text : otherwise;
}

static const char *gpu_name(const struct adp_plan *plan, uint32_t g)
{
	return text_or(plan->gpus[g].alias, plan->gpus[g].type);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void print_head(struct screen *to, const struct adp_plan *plan)
{
	uint64_t used = 0, total = 0;
	const char *separator = "";
	char number[NUMBER];

	line_add(to, "%s, %s parameters", text_or(plan->model.name, "unnamed"),
	         count(number, (double)plan->model.params));
	if (plan->model.active_params != plan->model.params)
		line_add(to, " (%s active)", count(number, (double)plan->model.active_params));
	line_end(to, "Model", 0);

	for (uint32_t g = 0; g < plan->n_gpu_types; g++) {
		used += plan->gpus[g].n_used;
		total += plan->gpus[g].n_total;
		if (plan->gpus[g].n_used) {
			line_add(to, "%s%" PRIu32 " %s", separator, plan->gpus[g].n_used, gpu_name(plan, g));
			separator = " + ";
		}
	}
	separator = "; not used: ";
	for (uint32_t g = 0; used < total && g < plan->n_gpu_types; g++)
		if (plan->gpus[g].n_used < plan->gpus[g].n_total) {
			line_add(to, "%s%" PRIu32 " %s", separator,
			         plan->gpus[g].n_total - plan->gpus[g].n_used, gpu_name(plan, g));
			separator = " + ";
		}
	line_end(to, "GPUs", 0);

	line_add(to, "%s %s, %s, %s, global batch %" PRIu64 " x %" PRIu64 " tokens",
	         text_or(plan->engine, "?"), text_or(plan->engine_version, ""),
	         adp_precision_name(plan->train.precision), adp_optimizer_name(plan->train.optimizer),
	         plan->train.global_batch_seqs, plan->train.seq_tokens);
	line_end(to, "Run", 0);
	blank(to);
}

static void print_step(struct screen *to, const struct adp_plan *plan)
{
	const struct adp_plan_step *step = &plan->step;
	const struct {
		const char *name;
		double seconds;
	} parts[] = {
		{"compute", step->compute_s},
		{"tensor\x1fparallel", step->tp_s},
		{"context\x1fparallel", step->cp_s},
		{"expert\x1fparallel", step->ep_s},
		{"pipeline\x1fsends", step->p2p_s},
		{"bubble", step->bubble_s},
		{"data\x1fparallel", step->dp_s},
		{"optimizer", step->optimizer_s},
		{"fixed", step->fixed_s},
	};
	const double band = fmax(step->high_s - step->step_s, step->step_s - step->low_s);
	const char *separator = "";
	char a[NUMBER], b[NUMBER];

	line_add(to, "%s +- %.0f %%    %s tokens/s    MFU %.1f %%", duration(a, step->step_s),
	         100 * band / step->step_s, count(b, step->tokens_per_s), 100 * step->mfu_frac);
	line_end(to, "Step", 0);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (parts[i].seconds >= 0.0005 * step->step_s) {
			line_add(to, "%s%s\x1f%.1f\x1f%%", separator, parts[i].name,
			         100 * parts[i].seconds / step->step_s);
			separator = ", ";
		}
	line_end(to, "  goes to", 0);
	if (plan->binding && *plan->binding) {
		line_add(to, "%s", plan->binding);
		line_end(to, "  limited by", 0);
	}
}

static void print_time(struct screen *to, const struct adp_plan *plan)
{
	const struct adp_train_time *time = &plan->time;
	char a[NUMBER], b[NUMBER], c[NUMBER];

	if (!(plan->train.tokens > 0)) {
		line_add(to, "not known without the number of tokens (--tokens)");
		line_end(to, "Time to train", 0);
		blank(to);
		return;
	}
	if (!isfinite(time->total_s)) {
		line_add(
			to, "never ends: failures undo more than the job gains between two of them; fewer GPUs "
				"fail less often (--gpus-used)");
		line_end(to, "Time to train", 0);
		blank(to);
		return;
	}
	line_add(to, "%s for %s tokens", duration(a, time->total_s), count(b, plan->train.tokens));
	if (plan->train.deadline_s > 0)
		line_add(to, ", deadline %s", duration(a, plan->train.deadline_s));
	line_end(to, "Time to train", 0);
	line_add(to, "%-9s %.0f x %s", duration(a, time->compute_s), time->n_steps,
	         duration(b, time->step_s));
	line_end(to, "  steps", 10);
	line_add(to, "%-9s %.0f stall%s of %s, one every %s", duration(a, time->checkpoints_s),
	         time->n_checkpoints, time->n_checkpoints == 1 ? "" : "s",
	         duration(b, time->checkpoint_stall_s), duration(c, time->checkpoint_interval_s));
	line_end(to, "  checkpoints", 10);
	if (plan->train.mtbf_s > 0) {
		line_add(to, "%-9s %s failures expected, one per %s of a GPU",
		         duration(a, time->lost_work_s), count(b, time->n_failures),
		         duration(c, plan->train.mtbf_s));
		line_end(to, "  lost work", 10);
		line_add(to, "%-9s %s each", duration(a, time->restarts_s),
		         duration(b, plan->train.restart_s));
		line_end(to, "  restarts", 10);
	} else {
		line_add(to, "not counted: say how often a GPU fails (--mtbf)");
		line_end(to, "  lost work", 10);
	}
	blank(to);
}

static void print_degrees(struct screen *to, const struct adp_plan *plan)
{
	line_add(to, "data %" PRIu32 " x tensor %" PRIu32 " x pipeline %" PRIu32, plan->dp, plan->tp,
	         plan->pp);
	if (plan->cp > 1)
		line_add(to, " x context %" PRIu32, plan->cp);
	line_add(to, " = %" PRIu32 " ranks; ", adp_plan_world(plan));
	if (plan->vpp > 1)
		line_add(to, "virtual pipeline %" PRIu32 "; ", plan->vpp);
	if (plan->model.n_experts)
		line_add(to, "expert %" PRIu32 " (own tensor %" PRIu32 "); ", plan->ep, plan->etp);
	line_add(to, "ZeRO %" PRIu32, plan->zero_stage);
	if (plan->zero_stage)
		line_add(to, " over %" PRIu32 " GPUs", plan->shard_gpus);
	line_add(to, "; sequence parallel %s; flash attention %s",
	         plan->sequence_parallel ? "on" : "off", plan->flash ? "on" : "off");
	line_end(to, "Degrees", 0);
}

/* Whether stages a and b run on the same GPU types in every replica. */
static bool same_gpus(const struct adp_plan *plan, uint32_t a, uint32_t b)
{
	for (uint32_t p = 0; p < plan->n_pipes; p++)
		if (plan->pipes[p].cells[a].gpu != plan->pipes[p].cells[b].gpu)
			return false;
	return true;
}

static uint64_t stage_layers(const struct adp_plan_stage *stage)
{
	uint64_t n = 0;

	for (uint32_t v = 0; v < stage->n_chunks; v++)
		n += stage->n_layers[v];
	return n;
}

/* tolerance: of the memory, as a share of what is usable. */
static bool same_row(const struct adp_plan *plan, uint32_t a, uint32_t b, double tolerance)
{
	const struct adp_plan_stage *x = &plan->stages[a], *y = &plan->stages[b];
	const double difference = fabs((double)x->memory.peak_bytes - (double)y->memory.peak_bytes);

	if (x->recompute != y->recompute || x->usable_bytes != y->usable_bytes ||
	    difference > tolerance * (double)x->usable_bytes || !same_gpus(plan, a, b))
		return false;
	for (uint32_t v = 0; v < plan->vpp; v++)
		if (x->n_layers[v] != y->n_layers[v])
			return false;
	return true;
}

static uint32_t row_end(const struct adp_plan *plan, uint32_t first, double tolerance)
{
	uint32_t end = first + 1;

	while (end < plan->pp && same_row(plan, first, end, tolerance))
		end++;
	return end;
}

static uint32_t count_rows(const struct adp_plan *plan, double tolerance)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < plan->pp; s = row_end(plan, s, tolerance))
		n++;
	return n;
}

/* "H100", "H100,A100-80" where replicas differ, "H100@90%" where the slowest is that slow. */
static void stage_gpus(struct adp_strbuf *out, const struct adp_plan *plan, uint32_t s)
{
	for (uint32_t p = 0; p < plan->n_pipes; p++) {
		const struct adp_plan_cell *cell = &plan->pipes[p].cells[s];
		double slowest = cell->speed_frac;
		bool seen = false;

		for (uint32_t q = 0; q < plan->n_pipes; q++) {
			if (plan->pipes[q].cells[s].gpu != cell->gpu)
				continue;
			seen = seen || q < p;
			slowest = fmin(slowest, plan->pipes[q].cells[s].speed_frac);
		}
		if (seen)
			continue;
		adp_strbuf_addf(out, "%s%s", out->len ? "," : "", gpu_name(plan, cell->gpu));
		if (slowest < 0.995)
			adp_strbuf_addf(out, "@%.0f%%", 100 * slowest);
	}
}

static void stage_bar(char bar[MAX_BAR + 1], const struct adp_plan_stage *stage, int width)
{
	const double share = (double)stage->memory.peak_bytes / (double)stage->usable_bytes;
	const int full = stage->usable_bytes ? (int)(share * width + 0.5) : 0;

	for (int i = 0; i < width; i++)
		bar[i] = i < full ? '#' : '-';
	bar[width] = '\0';
}

/* Cuts the unit off text when `last` ends in the same one. */
static void share_unit(char *text, const char *last)
{
	char *unit = strrchr(text, GLUE);
	const char *other = strrchr(last, GLUE);

	if (unit && other && !strcmp(unit, other))
		*unit = '\0';
}

static void print_row(struct screen *to, const struct adp_plan *plan, uint32_t first, uint32_t end,
                      int gpu_column)
{
	const struct adp_plan_stage *fullest = &plan->stages[first], *emptiest = fullest;
	char stages[NUMBER], layers[2 * NUMBER], least[NUMBER], most[NUMBER], usable[NUMBER],
		bar[MAX_BAR + 1];
	struct adp_strbuf gpus = {0};
	int n;

	for (uint32_t s = first; s < end; s++) {
		if (plan->stages[s].memory.peak_bytes > fullest->memory.peak_bytes)
			fullest = &plan->stages[s];
		if (plan->stages[s].memory.peak_bytes < emptiest->memory.peak_bytes)
			emptiest = &plan->stages[s];
	}
	n = snprintf(stages, sizeof stages, "%" PRIu32, first);
	if (end - first > 1)
		snprintf(stages + n, sizeof stages - (size_t)n, "-%" PRIu32, end - 1);
	snprintf(layers, sizeof layers, "%" PRIu64 "%s", stage_layers(fullest),
	         end - first > 1 ? " each" : "");
	bytes(usable, fullest->usable_bytes);
	bytes(most, fullest->memory.peak_bytes);
	bytes(least, emptiest->memory.peak_bytes);
	share_unit(least, most);
	share_unit(most, usable);
	stage_bar(bar, fullest, to->width < 100 ? MAX_BAR / 2 : MAX_BAR);
	stage_gpus(&gpus, plan, first);
	line_add(to, "%-6s %-7s %-*s %-9s [%s] ", stages, layers, gpu_column, text_or(gpus.text, "?"),
	         adp_recompute_name(fullest->recompute), bar);
	if (strcmp(least, most) && emptiest != fullest)
		line_add(to, "%s..", least);
	line_add(to, "%s/%s", most, usable);
	if (gpus.failed)
		to->out.failed = ADP_ENOMEM;
	adp_strbuf_fini(&gpus);
	line_end(to, "", 8);
}

static void print_stages(struct screen *to, const struct adp_plan *plan)
{
	/* Neighbours with the same work and GPU are one row, with unequal memory only where rows are
	 * short. */
	const double tolerance = count_rows(plan, 0.01) <= MAX_STAGE_ROWS ? 0.01 : 1;
	int gpu_column = 4;
	uint32_t rows = 0, s;

	for (s = 0; s < plan->pp; s = row_end(plan, s, tolerance)) {
		struct adp_strbuf gpus = {0};

		stage_gpus(&gpus, plan, s);
		if ((int)gpus.len > gpu_column)
			gpu_column = gpus.len < MAX_GPU_COLUMN ? (int)gpus.len : MAX_GPU_COLUMN;
		if (gpus.failed)
			to->out.failed = ADP_ENOMEM;
		adp_strbuf_fini(&gpus);
	}
	line_add(to, "%-6s %-7s %-*s %-9s %s", "stage", "layers", gpu_column, "GPU", "recompute",
	         "peak memory of a GPU");
	line_end(to, "Stages", 0);
	for (s = 0; s < plan->pp && rows < MAX_STAGE_ROWS; rows++) {
		const uint32_t end = row_end(plan, s, tolerance);

		print_row(to, plan, s, end, gpu_column);
		s = end;
	}
	if (s < plan->pp) {
		line_add(to, "and %" PRIu32 " more stages (-o yaml shows all)", plan->pp - s);
		line_end(to, "", 0);
	}
}

/* The fullest stage, by kind. */
static void print_memory(struct screen *to, const struct adp_plan *plan)
{
	const struct adp_plan_stage *stage = plan->stages;
	uint64_t least = stage->memory.peak_bytes, most = least;
	const struct adp_memory *m;
	const char *separator = "";
	char number[NUMBER];

	for (uint32_t s = 1; s < plan->pp; s++) {
		const struct adp_plan_stage *other = &plan->stages[s];

		least = other->memory.peak_bytes < least ? other->memory.peak_bytes : least;
		most = other->memory.peak_bytes > most ? other->memory.peak_bytes : most;
		/* peak / usable, compared without division */
		if ((double)other->memory.peak_bytes * (double)stage->usable_bytes >
		    (double)stage->memory.peak_bytes * (double)other->usable_bytes)
			stage = other;
	}
	m = &stage->memory;
	const struct {
		const char *name;
		uint64_t n;
	} kinds[] = {
		{"weights", m->weights},         {"gradients", m->gradients},
		{"optimizer", m->optimizer},     {"activations", m->activations},
		{"live window", m->live_window}, {"buckets", m->buckets},
		{"logits", m->logits},           {"workspace", m->workspace},
		{"CUDA and NCCL", m->context},
	};
	line_add(to, "stage %td: ", stage - plan->stages);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].n) {
			line_add(to, "%s%s\x1f%s", separator, kinds[i].name, bytes(number, kinds[i].n));
			separator = ", ";
		}
	line_add(to, "; initialisation peaks at %s", bytes(number, m->init_peak_bytes));
	if (plan->pp > 1 && least)
		line_add(to, "; fullest to emptiest stage %.2f", (double)most / (double)least);
	line_end(to, "  fullest", 0);
}

static void print_pipes(struct screen *to, const struct adp_plan *plan)
{
	for (uint32_t p = 0; p < plan->n_pipes; p++) {
		const struct adp_plan_pipe *pipe = &plan->pipes[p];
		char number[NUMBER];

		if (p == MAX_PIPE_ROWS) {
			line_add(to, "and %" PRIu32 " more groups (-o yaml shows all)", plan->n_pipes - p);
			line_end(to, "", 0);
			break;
		}
		line_add(to, "%" PRIu32 " with %" PRIu32 " micro-batch%s of %" PRIu64 "\x1fsequence%s:",
		         pipe->n_replicas, pipe->n_micro, pipe->n_micro == 1 ? "" : "es",
		         plan->micro_batch_seqs, plural(plan->micro_batch_seqs));
		for (uint32_t s = 0; s < plan->pp;) {
			uint32_t end = s + 1;

			while (end < plan->pp && pipe->cells[end].gpu == pipe->cells[s].gpu)
				end++;
			line_add(to, " %" PRIu32 "\x1fstage%s\x1f%s%s", end - s, plural(end - s),
			         gpu_name(plan, pipe->cells[s].gpu), end < plan->pp ? " +" : "");
			s = end;
		}
		if (plan->n_pipes > 1)
			line_add(to, "; done after %s", duration(number, pipe->end_s));
		line_end(to, p ? "" : "Replicas", 2);
	}
}

/* A list cut to its first max entries, and to one when the screen has max_lines already. */
static void print_list(struct screen *to, const char *label, const char *const *texts, uint32_t n,
                       uint32_t max, uint32_t max_lines)
{
	for (uint32_t i = 0; i < n; i++) {
		if (i == max || (i && to->n_lines + 1 >= max_lines)) {
			line_add(to, "and %" PRIu32 " more (-o yaml shows all)", n - i);
			line_end(to, "", 0);
			break;
		}
		line_add(to, "%s", text_or(texts[i], ""));
		line_end(to, i ? "" : label, 2);
	}
}

static void print_others(struct screen *to, const struct adp_plan *plan)
{
	int name_width = 0, text_width = 0;

	for (uint32_t i = 0; i < plan->n_others && i < MAX_OTHERS; i++) {
		const size_t name = strlen(text_or(plan->others[i].name, "")),
					 text = strlen(text_or(plan->others[i].text, ""));

		if ((int)name > name_width && name <= 36)
			name_width = (int)name;
		if ((int)text > text_width && text <= 24)
			text_width = (int)text;
	}
	for (uint32_t i = 0; i < plan->n_others; i++) {
		const struct adp_plan_other *other = &plan->others[i];

		if (i == MAX_OTHERS) {
			line_add(to, "and %" PRIu32 " more (-o yaml shows all)", plan->n_others - i);
			line_end(to, "", 0);
			break;
		}
		line_add(to, "%-*s  %-*s", name_width, text_or(other->name, ""), text_width,
		         text_or(other->text, ""));
		if (other->flag)
			line_add(to, "  [%s]", other->flag);
		line_end(to, i ? "" : "Why not", 2);
	}
}

static void print_search(struct screen *to, const struct adp_plan *plan)
{
	char a[NUMBER], b[NUMBER];

	line_add(to, "%s plan%s weighed, %s dismissed by bounds and rules; ",
	         count(a, (double)plan->search.n_weighed), plural(plan->search.n_weighed),
	         count(b, (double)plan->search.n_bounded));
	if (plan->search.exhausted)
		line_add(to, "none is left: this is the best of the space");
	else
		line_add(to, "at most %.1f\x1f%% from the best of the space", 100 * plan->search.gap_frac);
	line_end(to, "Search", 0);
}

int adp_plan_print(FILE *to, const struct adp_plan *plan, unsigned width, struct adp_error *err)
{
	struct screen screen = {.width = width < 80 ? 80 : width > 200 ? 200 : width};
	int rc = ADP_OK;

	print_head(&screen, plan);
	print_step(&screen, plan);
	print_time(&screen, plan);
	print_degrees(&screen, plan);
	print_pipes(&screen, plan);
	print_stages(&screen, plan);
	print_memory(&screen, plan);
	blank(&screen);
	print_list(&screen, "Because", plan->reasons, plan->n_reasons, MAX_REASONS, UINT32_MAX);
	print_others(&screen, plan);
	print_search(&screen, plan);
	print_list(&screen, "Note", plan->warnings, plan->n_warnings, MAX_WARNINGS, MAX_LINES);

	if (screen.out.failed)
		rc = adp_nomem(err);
	else if (fwrite(screen.out.text, 1, screen.out.len, to) != screen.out.len)
		rc = adp_fail(err, ADP_EIO, "the plan cannot be written: %s", strerror(errno));
	adp_strbuf_fini(&screen.line);
	adp_strbuf_fini(&screen.out);
	return rc;
}
