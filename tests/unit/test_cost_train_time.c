/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "adp/train.h"

/* In double: cmocka's own comparison rounds to float. */
static void near_at(double got, double want, double relative, const char *file, int line)
{
	double allowed = relative * fmax(fabs(got), fabs(want));

	if (!(fabs(got - want) <= allowed)) {
		print_error("%s:%d: %.17g is not %.17g\n", file, line, got, want);
		fail();
	}
}
#define assert_near(got, want, relative) near_at(got, want, relative, __FILE__, __LINE__)

/* 1000 steps of 8 sequences of 100 tokens; every checkpoint stalls 10 s. */
static const struct adp_train base = {
	.global_batch_seqs = 8,
	.seq_tokens = 100,
	.tokens = 800000,
	.checkpoint_stall_s = 10,
	.checkpoint_interval_s = 500,
};

static bool endless(double s)
{
	return s == INFINITY;
}

static struct adp_train_time timed(struct adp_train train, double step_s, uint64_t n_gpus)
{
	struct adp_train_time time;

	adp_train_time(&time, &train, step_s, n_gpus, 2, 4e12);
	return time;
}

static void steps_cover_the_last_partial_batch(void **state)
{
	struct adp_train train = base;

	(void)state;
	assert_near(timed(train, 1, 1).n_steps, 1000, 0); /* 800,000 / 800 */
	train.tokens = 800001;
	assert_near(timed(train, 1, 1).n_steps, 1001, 0);
	train.tokens = 1;
	assert_near(timed(train, 1, 1).n_steps, 1, 0);
}

static void without_failures_the_total_is_compute_and_checkpoints(void **state)
{
	struct adp_train_time time = timed(base, 2, 64);

	(void)state;
	/* 1000 steps of 2 s = 2000 s; one checkpoint of 10 s per 500 s: 4 * 10 = 40 s. */
	assert_near(time.compute_s, 2000, 0);
	assert_near(time.n_checkpoints, 4, 0);
	assert_near(time.checkpoints_s, 40, 0);
	assert_near(time.total_s, 2040, 0);
	assert_near(time.n_failures, 0, 0);
	assert_near(time.lost_work_s, 0, 0);
	assert_near(time.restarts_s, 0, 0);
}

static void the_last_checkpoint_saves_the_result(void **state)
{
	(void)state;
	/* 1001 s of compute: after 500 s, after 1000 s and at the end. */
	assert_near(timed(base, 1.001, 1).n_checkpoints, 3, 0);
}

static void failures_are_counted_over_the_whole_time(void **state)
{
	struct adp_train train = base;
	struct adp_train_time time;

	(void)state;
	train.mtbf_s = 100000; /* 100 GPUs: one failure per 1000 s */
	train.restart_s = 50;
	time = timed(train, 2, 100);
	/* 2040 s planned; a failure costs 500 / 2 + 50 = 300 s: 2040 / (1 - 0.3) = 2914.285714... s,
	 * 2.9142857 failures, 728.57 s of work twice, 145.71 s of restarts. */
	assert_near(time.total_s, 2040 / 0.7, 1e-12);
	assert_near(time.n_failures, 2.04 / 0.7, 1e-12);
	assert_near(time.lost_work_s, 2.04 / 0.7 * 250, 1e-12);
	assert_near(time.restarts_s, 2.04 / 0.7 * 50, 1e-12);
	assert_near(time.total_s,
	            time.compute_s + time.checkpoints_s + time.lost_work_s + time.restarts_s, 1e-12);
	assert_near(time.n_failures, time.total_s / 1000, 1e-12);
}

static void the_interval_follows_young_when_only_the_failure_rate_is_known(void **state)
{
	struct adp_train train = base;
	struct adp_train_time time;

	(void)state;
	train.checkpoint_interval_s = 0;
	train.mtbf_s = 200000; /* 40 GPUs: job MTBF 5000 s */
	time = timed(train, 2, 40);
	/* sqrt(2 * 10 * 5000) = 316.227766 s; 2000 / 316.2 = 6.3: 7 checkpoints. */
	assert_near(time.checkpoint_interval_s, sqrt(100000), 1e-12);
	assert_near(time.n_checkpoints, 7, 0);
	/* A given interval wins over the optimum. */
	train.checkpoint_interval_s = 700;
	assert_near(timed(train, 2, 40).checkpoint_interval_s, 700, 0);
}

static void half_an_hour_is_the_interval_when_nothing_is_known(void **state)
{
	struct adp_train train = base;

	(void)state;
	train.checkpoint_interval_s = 0;
	assert_near(timed(train, 2, 40).checkpoint_interval_s, 1800, 0);
}

static void a_checkpoint_comes_at_most_once_per_step(void **state)
{
	struct adp_train train = base;
	struct adp_train_time time;

	(void)state;
	train.checkpoint_interval_s = 3;
	time = timed(train, 20, 1);
	assert_near(time.checkpoint_interval_s, 20, 0);
	assert_near(time.n_checkpoints, 1000, 0);
	/* Checkpoints that cost nothing: after each step, not without end. */
	train.checkpoint_interval_s = 0;
	train.checkpoint_stall_s = 0;
	train.mtbf_s = 1e9;
	time = timed(train, 20, 1);
	assert_near(time.checkpoint_interval_s, 20, 0);
	assert_near(time.n_checkpoints, 1000, 0);
	assert_near(time.checkpoints_s, 0, 0);
}

static void the_stall_is_what_the_nodes_need_to_write_their_share(void **state)
{
	struct adp_train train = base;

	(void)state;
	train.checkpoint_stall_s = 0;
	train.storage_bytes_per_s = 2e9;
	/* 4 TB from 2 nodes at 2 GB/s each: 1000 s. */
	assert_near(timed(train, 1, 16).checkpoint_stall_s, 1000, 0);
	train.checkpoint_stall_s = 7;
	assert_near(timed(train, 1, 16).checkpoint_stall_s, 7, 0);
	/* Neither a stall nor a storage speed: not counted. */
	train.checkpoint_stall_s = 0;
	train.storage_bytes_per_s = 0;
	assert_near(timed(train, 1, 16).total_s, 1000, 0);
}

static void a_job_that_fails_faster_than_it_saves_never_ends(void **state)
{
	struct adp_train train = base;

	(void)state;
	train.mtbf_s = 250 * 1000;
	/* 1000 GPUs: a failure every 250 s, each undoing 500 / 2 = 250 s. */
	assert_true(endless(timed(train, 2, 1000).total_s));
	assert_true(endless(timed(train, 2, 1000).n_failures));
	assert_true(endless(timed(train, 2, 1000).lost_work_s));
	assert_near(timed(train, 2, 1000).restarts_s, 0, 0);
	assert_false(endless(timed(train, 2, 999).total_s));
	train.restart_s = 1;
	assert_true(endless(timed(train, 2, 999).total_s));
	assert_true(endless(timed(train, 2, 999).restarts_s));
	/* Nor does the best interval help when a save takes twice the time between failures. */
	train = base;
	train.checkpoint_interval_s = 0;
	train.mtbf_s = 5000;
	assert_true(
		endless(timed(train, 2, 1000).total_s)); /* MTBF 5 s, stall 10 s: sqrt(100) / 2 = 5 s */
	assert_false(endless(timed(train, 2, 990).total_s));
}

static void a_step_that_never_ends_makes_the_job_endless_not_nan(void **state)
{
	struct adp_train_time time = timed(base, INFINITY, 8);

	(void)state;
	assert_true(endless(time.total_s));
	assert_near(time.n_checkpoints, 0, 0);
	assert_near(time.lost_work_s, 0, 0);
}

static void no_tokens_take_no_time(void **state)
{
	struct adp_train train = base;
	struct adp_train_time time;

	(void)state;
	train.tokens = 0;
	train.mtbf_s = 1; /* however often it would fail */
	time = timed(train, 2, 1000000);
	assert_near(time.n_steps, 0, 0);
	assert_near(time.total_s, 0, 0);
	assert_near(time.checkpoints_s, 0, 0);
	assert_near(time.n_failures, 0, 0);
}

static void a_worse_world_never_shortens_the_job(void **state)
{
	struct adp_train train = base;
	double before_s = 0, mtbf_s = 1e7;

	(void)state;
	train.restart_s = 30;
	while (mtbf_s > 1e4) {
		double total_s;

		train.mtbf_s = mtbf_s;
		total_s = timed(train, 2, 64).total_s;
		assert_true(total_s >= before_s);
		before_s = total_s;
		mtbf_s /= 1.5;
	}
	assert_true(endless(before_s)); /* the last ones: 10^4 s / 64 < 280 s */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_cover_the_last_partial_batch),
		cmocka_unit_test(without_failures_the_total_is_compute_and_checkpoints),
		cmocka_unit_test(the_last_checkpoint_saves_the_result),
		cmocka_unit_test(failures_are_counted_over_the_whole_time),
		cmocka_unit_test(the_interval_follows_young_when_only_the_failure_rate_is_known),
		cmocka_unit_test(half_an_hour_is_the_interval_when_nothing_is_known),
		cmocka_unit_test(a_checkpoint_comes_at_most_once_per_step),
		cmocka_unit_test(the_stall_is_what_the_nodes_need_to_write_their_share),
		cmocka_unit_test(a_job_that_fails_faster_than_it_saves_never_ends),
		cmocka_unit_test(a_step_that_never_ends_makes_the_job_endless_not_nan),
		cmocka_unit_test(no_tokens_take_no_time),
		cmocka_unit_test(a_worse_world_never_shortens_the_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
