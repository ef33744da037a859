/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "plan_fixture.h"
#include "support/fault_sweep.h"

/* The screen as text; caller frees with free. */
static char *printed(const struct adp_plan *plan, unsigned width)
{
	struct adp_error err = {0};
	size_t size = 0;
	char *text = NULL;
	FILE *to = open_memstream(&text, &size);

	assert_non_null(plan);
	assert_non_null(to);
	assert_int_equal(adp_plan_print(to, plan, width, &err), ADP_OK);
	assert_int_equal(fclose(to), 0);
	return text;
}

/* ADP_GOLDEN_UPDATE=1 writes what is printed now; the diff is then reviewed like code. */
static void golden(const char *name, struct adp_plan *plan, unsigned width)
{
	char path[4096], *text = printed(plan, width), *want = NULL;
	struct adp_error err = {0};
	size_t len;

	snprintf(path, sizeof path, "%s/tests/golden/screen/%s", ADP_SOURCE_DIR, name);
	if (getenv("ADP_GOLDEN_UPDATE"))
		assert_int_equal(adp_file_write(path, text, strlen(text), 0, &err), ADP_OK);
	if (adp_file_read(&want, &len, path, 1 << 20, &err))
		fail_msg("%s", err.text);
	assert_string_equal(text, want);
	adp_free(want);
	free(text);
	adp_plan_destroy(plan);
}

static void no_line_is_wider_than_asked(const char *text, size_t width)
{
	for (const char *at = text; *at;) {
		const size_t n = strcspn(at, "\n");

		if (n > width)
			fail_msg("%zu columns: %.*s", n, (int)n, at);
		at += n + (at[n] == '\n');
	}
}

static size_t count_lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void a_mixed_plan_fills_one_screen(void **state)
{
	(void)state;
	golden("mixed_100.txt", fixture_mixed(), 100);
	golden("mixed_80.txt", fixture_mixed(), 80);
}

static void a_plan_with_unequal_replicas_shows_each_group(void **state)
{
	(void)state;
	golden("moe_100.txt", fixture_moe(), 100);
}

static void width_is_kept_and_bounded(void **state)
{
	struct adp_plan *plan = fixture_mixed();

	(void)state;
	for (unsigned width = 80; width <= 200; width += 7) {
		char *text = printed(plan, width);

		no_line_is_wider_than_asked(text, width);
		assert_true(count_lines(text) <= 45);
		free(text);
	}
	char *narrow = printed(plan, 0), *least = printed(plan, 80);

	assert_string_equal(narrow, least);
	free(narrow);
	free(least);
	adp_plan_destroy(plan);
}

/* fixture_mixed with pp stages in place of 4, all alike but for memory, which falls a GiB a stage.
 */
static struct adp_plan *deep(uint32_t pp, const uint32_t *gpu_of_stage)
{
	struct adp_plan *plan = fixture_mixed();
	struct adp_plan_stage *stages = adp_arena_calloc(&plan->arena, pp, sizeof *stages);
	struct adp_plan_cell *cells = adp_arena_calloc(&plan->arena, pp, sizeof *cells);
	uint32_t *numbers = adp_arena_calloc(&plan->arena, pp + 1, sizeof *numbers);

	assert_true(stages && cells && numbers);
	numbers[pp] = 5;
	for (uint32_t s = 0; s < pp; s++) {
		numbers[s] = 5 * s;
		stages[s] = plan->stages[0];
		stages[s].first_layer = &numbers[s];
		stages[s].n_layers = &numbers[pp];
		stages[s].memory = fixture_memory(70 - s);
		cells[s] = plan->pipes[0].cells[0];
		cells[s].gpu = gpu_of_stage ? gpu_of_stage[s] : 0;
	}
	plan->pp = pp;
	plan->stages = stages;
	plan->pipes[0].cells = cells;
	return plan;
}

static void sixteen_equal_stages_are_one_row(void **state)
{
	struct adp_plan *plan = deep(16, NULL);
	char *text = printed(plan, 100);

	(void)state;
	/* 70 .. 55 GiB: 16 different memories, over the ten rows there is room for */
	assert_non_null(
		strstr(text, "0-15   5 each  H100 none      [###################-] 55.0..70.0/74.0 GiB\n"));
	free(text);
	adp_plan_destroy(plan);
}

static void few_stages_keep_their_own_memory(void **state)
{
	struct adp_plan *plan = deep(3, NULL);
	char *text = printed(plan, 100);

	(void)state;
	assert_non_null(
		strstr(text, " 0      5       H100 none      [###################-] 70.0/74.0 GiB\n"));
	assert_non_null(
		strstr(text, " 2      5       H100 none      [##################--] 68.0/74.0 GiB\n"));
	free(text);
	adp_plan_destroy(plan);
}

static void more_rows_than_fit_are_counted(void **state)
{
	uint32_t gpus[24];
	struct adp_plan *plan;
	char *text;

	(void)state;
	for (uint32_t s = 0; s < 24; s++)
		gpus[s] = s % 2;
	plan = deep(24, gpus);
	text = printed(plan, 100);
	assert_non_null(strstr(text, "and 14 more stages")); /* 24 - 10 */
	free(text);
	adp_plan_destroy(plan);
}

static void names_cannot_steer_the_terminal(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	char *text;

	(void)state;
	plan->model.name = "evil\x1b[2J\nrow\x7f \xc3\xa9t\xc3\xa9";
	plan->gpus[0].alias = "\x9b"
						  "31m";
	text = printed(plan, 100);
	for (const char *at = text; *at; at++)
		assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
	assert_non_null(strstr(text, "evil?[2J?row? ?t?,"));
	free(text);
	adp_plan_destroy(plan);
}

static void a_long_word_is_cut_at_the_edge(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	char name[301], *text;

	(void)state;
	memset(name, 'n', 300);
	name[300] = '\0';
	plan->model.name = name;
	text = printed(plan, 80);
	no_line_is_wider_than_asked(text, 80);
	free(text);
	adp_plan_destroy(plan);
}

static void missing_texts_leave_no_gap(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	char *text;

	(void)state;
	plan->binding = NULL;
	plan->n_reasons = plan->n_others = plan->n_warnings = 0;
	plan->gpus[0].alias = NULL;
	plan->train.tokens = 0;
	plan->train.mtbf_s = 0;
	text = printed(plan, 100);
	assert_null(strstr(text, "limited by"));
	assert_null(strstr(text, "Why not"));
	assert_null(strstr(text, "(null)"));
	assert_non_null(strstr(text, "NVIDIA-H100-80GB-HBM3"));
	assert_non_null(strstr(text, "--tokens"));
	free(text);
	adp_plan_destroy(plan);
}

static void long_lists_are_cut_and_counted(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	const char *texts[9] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"};
	struct adp_plan_other others[11];
	char *text;

	(void)state;
	for (size_t i = 0; i < 11; i++)
		others[i] = plan->others[0];
	plan->reasons = texts;
	plan->n_reasons = 9;
	plan->others = others;
	plan->n_others = 11;
	text = printed(plan, 100);
	assert_non_null(
		strstr(text, "and 3 more (-o yaml shows all)\nWhy not")); /* 9 reasons, 6 shown */
	assert_non_null(
		strstr(text, "and 3 more (-o yaml shows all)\nSearch")); /* 11 alternatives, 8 shown */
	free(text);
	adp_plan_destroy(plan);
}

static void notes_give_way_on_a_full_screen(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	const char *notes[4] = {"n0", "n1", "n2", "n3"};
	const char *reasons[6];
	char *text;

	(void)state;
	plan->warnings = notes;
	plan->n_warnings = 4;
	text = printed(plan, 100);
	assert_non_null(strstr(text, "n3"));
	free(text);
	/* reasons of two lines, six times: the screen is full before the notes */
	for (size_t i = 0; i < 6; i++)
		reasons[i] =
			"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 "
			"0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 ";
	plan->reasons = reasons;
	plan->n_reasons = 6;
	text = printed(plan, 100);
	assert_non_null(strstr(text, "n0\n               and 3 more (-o yaml shows all)\n"));
	free(text);
	adp_plan_destroy(plan);
}

static void deadline_and_uncounted_failures_are_said(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	char *text;

	(void)state;
	plan->train.deadline_s = 300 * 86400.0;
	plan->train.mtbf_s = 0;
	text = printed(plan, 100);
	assert_non_null(strstr(text, "deadline 300 d"));
	assert_non_null(strstr(text, "--mtbf"));
	free(text);
	adp_plan_destroy(plan);
}

static void a_job_that_never_ends_is_said_to(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	char *text;

	(void)state;
	plan->time.total_s = HUGE_VAL;
	text = printed(plan, 100);
	assert_non_null(strstr(text, "Time to train  never ends"));
	free(text);
	adp_plan_destroy(plan);
}

static void a_stream_that_cannot_be_written_is_an_error(void **state)
{
	struct adp_plan *plan = fixture_mixed();
	FILE *closed = fopen("/dev/null", "r");
	struct adp_error err = {0};

	(void)state;
	assert_non_null(closed);
	assert_int_equal(adp_plan_print(closed, plan, 100, &err), ADP_EIO);
	fclose(closed);
	adp_plan_destroy(plan);
}

static FILE *nowhere;

static int print_once(void *plan)
{
	return adp_plan_print(nowhere, plan, 100, NULL);
}

static void printing_survives_every_failed_allocation(void **state)
{
	struct adp_plan *plans[] = {fixture_mixed(), fixture_moe()};

	(void)state;
	nowhere = fopen("/dev/null", "w");
	assert_non_null(nowhere);
	for (size_t i = 0; i < 2; i++) {
		fault_sweep(print_once, plans[i]);
		adp_plan_destroy(plans[i]);
	}
	fclose(nowhere);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mixed_plan_fills_one_screen),
		cmocka_unit_test(a_plan_with_unequal_replicas_shows_each_group),
		cmocka_unit_test(width_is_kept_and_bounded),
		cmocka_unit_test(sixteen_equal_stages_are_one_row),
		cmocka_unit_test(few_stages_keep_their_own_memory),
		cmocka_unit_test(more_rows_than_fit_are_counted),
		cmocka_unit_test(names_cannot_steer_the_terminal),
		cmocka_unit_test(a_long_word_is_cut_at_the_edge),
		cmocka_unit_test(missing_texts_leave_no_gap),
		cmocka_unit_test(long_lists_are_cut_and_counted),
		cmocka_unit_test(notes_give_way_on_a_full_screen),
		cmocka_unit_test(deadline_and_uncounted_failures_are_said),
		cmocka_unit_test(a_job_that_never_ends_is_said_to),
		cmocka_unit_test(a_stream_that_cannot_be_written_is_an_error),
		cmocka_unit_test(printing_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
