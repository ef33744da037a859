/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "adp/pipeline.h"

#include "../support/pipeline_sim.h"

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

enum { MAX_RANKS = 64, MAX_CHUNKS = 8, MAX_REPLICAS = 6 };

/* One random or hand-made schedule. */
struct instance {
	struct adp_pipe_stage stages[MAX_RANKS * MAX_CHUNKS];
	uint32_t n_ranks, n_chunks, n_micro;
};

static int64_t scratch[(8 + 4 * MAX_CHUNKS) * MAX_RANKS];

static void end_of(double *end_s, const struct instance *x)
{
	assert_true(adp_pipeline_scratch(x->n_ranks, x->n_chunks, x->n_micro) <=
	            sizeof scratch / sizeof *scratch);
	assert_int_equal(
		adp_pipeline_end(end_s, x->stages, x->n_ranks, x->n_chunks, x->n_micro, scratch, NULL),
		ADP_OK);
}

static double step_of(const struct instance *x)
{
	double end_s[MAX_RANKS];

	end_of(end_s, x);
	return end_s[0];
}

static double bound_of(const struct instance *x)
{
	return adp_pipeline_bound(x->stages, x->n_ranks, x->n_chunks, x->n_micro);
}

static struct instance equal_stages(uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro,
                                    double fwd_s, double bwd_s, double send_s)
{
	struct instance x = {.n_ranks = n_ranks, .n_chunks = n_chunks, .n_micro = n_micro};

	for (uint32_t i = 0; i < n_ranks * n_chunks; i++)
		x.stages[i] = (struct adp_pipe_stage){fwd_s, bwd_s, send_s, send_s};
	return x;
}

/* ---- random instances ------------------------------------------------------------- */

static uint64_t random_state;

static uint64_t random_u64(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static double random_frac(void)
{
	return (double)(random_u64() >> 11) * 0x1p-53;
}

static uint32_t random_in(uint32_t low, uint32_t high)
{
	return low + (uint32_t)(random_u64() % (high - low + 1));
}

enum kind { EQUAL, MIXED_FLEET, WILD, SLOW_LINKS, SMALL_INTEGERS, FAST_LINKS, N_KINDS };

static struct adp_pipe_stage random_stage(enum kind kind, double scale_s)
{
	double fwd_s = scale_s * (0.5 + random_frac()), ratio = 1 + 2 * random_frac();
	double send_s = 0.1 * scale_s * random_frac();

	switch (kind) {
	case EQUAL:
		return (struct adp_pipe_stage){scale_s, 2 * scale_s, 0.3 * scale_s, 0.3 * scale_s};
	case WILD:
		fwd_s = scale_s * exp(3 * random_frac());
		ratio = exp(4 * random_frac() - 2);
		break;
	case SLOW_LINKS:
		send_s = 5 * scale_s * random_frac();
		break;
	case SMALL_INTEGERS: /* ties and zeros everywhere */
		return (struct adp_pipe_stage){random_in(0, 3), random_in(0, 3), random_in(0, 2),
		                               random_in(0, 2)};
	case FAST_LINKS:
		send_s = 0;
		break;
	default:
		break;
	}
	return (struct adp_pipe_stage){fwd_s, ratio * fwd_s, send_s, 2 * random_frac() * send_s};
}

static struct instance random_instance(void)
{
	struct instance x = {.n_ranks = random_in(1, 12),
	                     .n_chunks = random_in(0, 1) ? 1 : random_in(2, 4)};
	enum kind kind = (enum kind)random_in(0, N_KINDS - 1);
	double scale_s = exp(10 * random_frac() - 5);

	x.n_micro = x.n_chunks > 1 ? x.n_ranks * random_in(1, 6) : random_in(1, 48);
	for (uint32_t i = 0; i < x.n_ranks * x.n_chunks; i++)
		x.stages[i] = random_stage(kind, scale_s);
	return x;
}

/* Bigger than the simulation would like, for what needs none. */
static struct instance random_large_instance(void)
{
	struct instance x = random_instance();

	x.n_micro = x.n_chunks > 1 ? x.n_ranks * random_in(1, 60) : random_in(1, 1000);
	return x;
}

/* ---- exact times ------------------------------------------------------------------- */

static void equal_stages_end_after_the_textbook_time(void **state)
{
	struct instance x = equal_stages(4, 1, 8, 1, 2, 0);
	double end_s[4];

	(void)state;
	/* (n + p - 1) * (f + b) = 11 * 3; rank s is done s backwards earlier. */
	end_of(end_s, &x);
	assert_near(end_s[0], 33, 1e-12);
	assert_near(end_s[1], 31, 1e-12);
	assert_near(end_s[3], 27, 1e-12);
}

static void one_rank_works_without_a_bubble(void **state)
{
	struct instance x = equal_stages(1, 1, 5, 1, 2, 7);

	(void)state;
	assert_near(step_of(&x), 15, 1e-12); /* 5 * 3; there is nobody to send to */
}

static void one_micro_batch_pays_every_stage_and_transfer(void **state)
{
	struct instance x = {.n_ranks = 3,
	                     .n_chunks = 1,
	                     .n_micro = 1,
	                     .stages = {{1, 2, 0.5, 9}, {3, 4, 0.25, 0.125}, {5, 6, 9, 0.0625}}};

	(void)state;
	/* 1 + 0.5 + 3 + 0.25 + 5 + 6 + 0.0625 + 4 + 0.125 + 2; the sends of 9 lead nowhere. */
	assert_near(step_of(&x), 21.9375, 1e-12);
	assert_near(bound_of(&x), step_of(&x), 0);
}

static void a_slow_stage_sets_the_pace(void **state)
{
	struct instance x = equal_stages(2, 1, 10, 1, 1, 0);

	(void)state;
	x.stages[1] = (struct adp_pipe_stage){2, 4, 0, 0};
	/* forward of rank 0, ten times 6 on rank 1, backward of rank 0. */
	assert_near(step_of(&x), 62, 1e-12);
}

static void slow_links_bind_although_they_block_nobody(void **state)
{
	struct instance x = equal_stages(2, 1, 21, 1, 1, 3);

	(void)state;
	/* Two micro-batches are in flight on rank 0, so each pair takes one round: 1+3+1+1+3+1 = 10 s.
	 * 10 rounds of 2 and one more micro-batch: F B on rank 0, twice 3, F B on rank 1. */
	assert_near(step_of(&x), 110, 1e-12);
	assert_near(bound_of(&x), 110, 1e-12);
}

static void interleaving_divides_the_bubble_by_the_chunks(void **state)
{
	/* Two chunks of half the work: bubble (p - 1) * (f + b) / chunks. */
	struct instance plain = equal_stages(4, 1, 8, 2, 4, 0), halves = equal_stages(4, 2, 8, 1, 2, 0);

	(void)state;
	assert_near(step_of(&plain), 8 * 6 + 3 * 6, 1e-12);
	assert_near(step_of(&halves), 8 * 6 + 3 * 3, 1e-12);
}

static void fewer_micro_batches_than_ranks_is_legal_for_1f1b(void **state)
{
	struct instance x = equal_stages(5, 1, 2, 1, 2, 0);

	(void)state;
	/* Rank 4 runs F0 B0 F1 B1 from 4 s to 10 s, then B1 climbs four ranks of 2 s: 10 + 8. */
	assert_near(step_of(&x), 18, 1e-12);
}

static void ten_thousand_random_instances_equal_the_event_simulation(void **state)
{
	double worst = 0;

	(void)state;
	random_state = 20250101;
	for (int i = 0; i < 10000; i++) {
		struct instance x = random_instance();
		double end_s[MAX_RANKS], sim_s[MAX_RANKS], alive[MAX_RANKS];
		struct pipe_sim sim = {
			.stages = x.stages,
			.n_ranks = x.n_ranks,
			.n_chunks = x.n_chunks,
			.n_replicas = 1,
			.n_micro = &x.n_micro,
			.end_s = sim_s,
			.alive_peak = alive,
		};

		assert_int_equal(pipe_sim_run(&sim), 0);
		assert_int_equal(sim.n_operations, 2ull * x.n_ranks * x.n_chunks * x.n_micro);
		end_of(end_s, &x);
		for (uint32_t s = 0; s < x.n_ranks; s++) {
			double in_flight = adp_pipeline_in_flight(s, x.n_ranks, x.n_chunks, x.n_micro);

			worst = fmax(worst, fabs(end_s[s] - sim_s[s]) / fmax(sim_s[s], 1e-300));
			assert_near(in_flight * x.n_chunks, alive[s], 1e-9);
			assert_true(end_s[s] <= end_s[0]);
		}
		assert_true(worst <= 1e-12); /* the promise is 1e-9 */
		assert_true(bound_of(&x) <= end_s[0]);
		assert_true(bound_of(&x) <= sim_s[0] * (1 + 1e-12));
	}
	print_message("largest relative difference to the simulation: %.1e\n", worst);
}

static void large_instances_equal_the_event_simulation(void **state)
{
	(void)state;
	random_state = 7;
	for (int i = 0; i < 4; i++) {
		struct instance x = {.n_ranks = i % 2 ? 64 : 33, .n_chunks = i < 2 ? 1 : 3};
		double end_s[MAX_RANKS], sim_s[MAX_RANKS];
		struct pipe_sim sim = {
			.stages = x.stages,
			.n_ranks = x.n_ranks,
			.n_chunks = x.n_chunks,
			.n_replicas = 1,
			.n_micro = &x.n_micro,
			.end_s = sim_s,
		};

		x.n_micro = i < 2 ? 1024 : 6 * x.n_ranks;
		for (uint32_t k = 0; k < x.n_ranks * x.n_chunks; k++)
			x.stages[k] = random_stage(MIXED_FLEET, 0.01);
		assert_int_equal(pipe_sim_run(&sim), 0);
		end_of(end_s, &x);
		for (uint32_t s = 0; s < x.n_ranks; s++)
			assert_near(end_s[s], sim_s[s], 1e-12);
	}
}

static void the_jump_over_the_periodic_part_changes_no_bit(void **state)
{
	(void)state;
	random_state = 20250102;
	for (int i = 0; i < 10000; i++) {
		struct instance x = random_large_instance();
		double jump_s[MAX_RANKS], plain_s[MAX_RANKS];

		end_of(jump_s, &x);
		assert_int_equal(adp_pipeline_end_stepwise(plain_s, x.stages, x.n_ranks, x.n_chunks,
		                                           x.n_micro, scratch, NULL),
		                 ADP_OK);
		assert_memory_equal(jump_s, plain_s, x.n_ranks * sizeof *jump_s);
	}
}

static void a_billion_micro_batches_cost_no_more_than_a_hundred(void **state)
{
	const uint32_t n_micro = 1u << 30;
	clock_t start = clock();

	(void)state;
	for (uint32_t n_chunks = 1; n_chunks <= 2; n_chunks++) {
		struct instance x = equal_stages(4, n_chunks, n_micro, 1, 2, 0);

		/* As above: every chunk of every micro-batch 3 s, and a bubble of three ranks by 3 s. */
		assert_near(step_of(&x), 3.0 * n_chunks * n_micro + 9, 0);
		assert_near(bound_of(&x), step_of(&x), 0);
	}
	/* Step by step it would be 2^30 * (8 + 16) operations. */
	assert_true(clock() - start < 2 * CLOCKS_PER_SEC);
}

static void transfers_that_lead_nowhere_do_not_count(void **state)
{
	struct instance x = equal_stages(4, 1, 8, 1, 2, 0);

	(void)state;
	x.stages[3].send_fwd_s = 1e200; /* from the last rank on, and from the first one back */
	x.stages[0].send_bwd_s = 1e200;
	assert_near(step_of(&x), 33, 1e-12);
	assert_near(bound_of(&x), 33, 1e-12);
}

static void no_time_that_grows_makes_the_step_shorter(void **state)
{
	(void)state;
	random_state = 20250103;
	for (int i = 0; i < 10000; i++) {
		struct instance x = random_large_instance();
		double before_s[MAX_RANKS], after_s[MAX_RANKS];
		struct adp_pipe_stage *stage = &x.stages[random_in(0, x.n_ranks * x.n_chunks - 1)];
		double *times[] = {&stage->fwd_s, &stage->bwd_s, &stage->send_fwd_s, &stage->send_bwd_s};
		double *grows = times[random_in(0, 3)];

		end_of(before_s, &x);
		/* From the last bit to a multiple: the unit of time may change on the way. */
		*grows *= 1 + exp(40 * random_frac() - 36);
		end_of(after_s, &x);
		for (uint32_t s = 0; s < x.n_ranks; s++)
			assert_true(after_s[s] >= before_s[s]);
		x.n_micro += x.n_chunks > 1 ? x.n_ranks : 1;
		end_of(before_s, &x);
		for (uint32_t s = 0; s < x.n_ranks; s++)
			assert_true(before_s[s] >= after_s[s]);
	}
}

/* ---- bound --------------------------------------------------------------------------- */

static void the_bound_is_exact_for_equal_stages(void **state)
{
	(void)state;
	for (uint32_t n_ranks = 1; n_ranks <= 16; n_ranks++) {
		for (uint32_t n_micro = 1; n_micro <= 40; n_micro += 3) {
			struct instance x = equal_stages(n_ranks, 1, n_micro, 1, 2, 0);

			assert_near(bound_of(&x), step_of(&x), 0);
		}
		for (uint32_t n_chunks = 2; n_chunks <= 4; n_chunks++) {
			struct instance x = equal_stages(n_ranks, n_chunks, 4 * n_ranks, 1, 2, 0);

			assert_near(bound_of(&x), step_of(&x), 0);
		}
	}
}

static void the_bound_is_close_on_mixed_fleets(void **state)
{
	double sum[2] = {0}, least[2] = {1, 1};
	int n[2] = {0};

	(void)state;
	random_state = 20250104;
	for (int i = 0; i < 4000; i++) {
		struct instance x = random_large_instance();
		int kind = x.n_chunks > 1;
		double share;

		for (uint32_t k = 0; k < x.n_ranks * x.n_chunks; k++)
			x.stages[k] = random_stage(MIXED_FLEET, 0.01);
		share = bound_of(&x) / step_of(&x);
		sum[kind] += share;
		least[kind] = fmin(least[kind], share);
		n[kind]++;
	}
	print_message("bound / exact: 1F1B mean %.5f least %.4f, interleaved mean %.5f least %.4f\n",
	              sum[0] / n[0], least[0], sum[1] / n[1], least[1]);
	assert_true(sum[0] / n[0] > 0.999 && least[0] > 0.95);
	assert_true(sum[1] / n[1] > 0.93 && least[1] > 0.7);
}

/* ---- activations alive ---------------------------------------------------------------- */

static void the_first_rank_holds_one_micro_batch_per_rank(void **state)
{
	(void)state;
	assert_near(adp_pipeline_in_flight(0, 4, 1, 16), 4, 0);
	assert_near(adp_pipeline_in_flight(3, 4, 1, 16), 1, 0);
	assert_near(adp_pipeline_in_flight(0, 4, 1, 3), 3, 0);
	/* (2 * 3 + 1 * 4 + 1) / 2 chunks; 4 * (1 + (p-1) / (p*v)) of Korthikanti et al. = 4 * 1.375. */
	assert_near(adp_pipeline_in_flight(0, 4, 2, 16), 5.5, 0);
	assert_near(adp_pipeline_in_flight(3, 4, 2, 16), 2.5, 0);
	assert_near(adp_pipeline_in_flight(0, 4, 2, 4), 4, 0);  /* no more than there are */
	assert_near(adp_pipeline_in_flight(4, 4, 1, 16), 0, 0); /* no such rank */
}

static void chunks_of_unequal_size_peak_where_the_simulation_says(void **state)
{
	(void)state;
	random_state = 20250105;
	for (int i = 0; i < 2000; i++) {
		struct instance x = random_instance();
		double end_s[MAX_RANKS], alive[MAX_RANKS], size[MAX_CHUNKS];
		struct pipe_sim sim = {
			.stages = x.stages,
			.n_ranks = x.n_ranks,
			.n_chunks = x.n_chunks,
			.n_replicas = 1,
			.n_micro = &x.n_micro,
			.end_s = end_s,
			.alive_peak = alive,
			.chunk_size = size,
		};

		for (uint32_t c = 0; c < x.n_chunks; c++)
			size[c] = random_in(0, 9);
		assert_int_equal(pipe_sim_run(&sim), 0);
		for (uint32_t s = 0; s < x.n_ranks; s++)
			assert_near(adp_pipeline_alive_peak(size, s, x.n_ranks, x.n_chunks, x.n_micro),
			            alive[s], 1e-9);
	}
}

/* ---- replicas --------------------------------------------------------------------------- */

static void replicas_with_unequal_counts_meet_at_the_reduction(void **state)
{
	(void)state;
	random_state = 20250106;
	for (int i = 0; i < 500; i++) {
		struct instance x = random_instance();
		uint32_t n_micro[MAX_REPLICAS], n_replicas = random_in(1, MAX_REPLICAS);
		double sim_s[MAX_REPLICAS * MAX_RANKS], reduced_s[MAX_RANKS], reduce_s[MAX_RANKS];
		double ready_s[MAX_RANKS] = {0};
		struct pipe_sim sim = {
			.stages = x.stages,
			.n_ranks = x.n_ranks,
			.n_chunks = x.n_chunks,
			.n_replicas = n_replicas,
			.n_micro = n_micro,
			.end_s = sim_s,
			.reduce_s = reduce_s,
			.reduced_s = reduced_s,
		};

		for (uint32_t r = 0; r < n_replicas; r++) {
			double end_s[MAX_RANKS];

			n_micro[r] = random_in(1, 8) * (x.n_chunks > 1 ? x.n_ranks : 1);
			x.n_micro = n_micro[r];
			end_of(end_s, &x);
			for (uint32_t s = 0; s < x.n_ranks; s++)
				ready_s[s] = fmax(ready_s[s], end_s[s]);
		}
		for (uint32_t s = 0; s < x.n_ranks; s++)
			reduce_s[s] = random_frac();
		assert_int_equal(pipe_sim_run(&sim), 0);
		for (uint32_t s = 0; s < x.n_ranks; s++)
			assert_near(reduced_s[s], ready_s[s] + reduce_s[s], 1e-12);
	}
}

/* ---- refusals ---------------------------------------------------------------------------- */

static int code_of(const struct instance *x, struct adp_error *err)
{
	double end_s[MAX_RANKS];

	*err = (struct adp_error){0};
	return adp_pipeline_end(end_s, x->stages, x->n_ranks, x->n_chunks, x->n_micro, scratch, err);
}

static void a_schedule_that_does_not_exist_is_refused_with_the_reason(void **state)
{
	struct instance x = equal_stages(4, 2, 6, 1, 2, 0);
	struct adp_error err;

	(void)state;
	assert_int_equal(code_of(&x, &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "6 is no multiple of 4"));
	assert_near(bound_of(&x), 0, 0);
	assert_near(adp_pipeline_alive_peak((double[]){1, 1}, 0, 4, 2, 6), 0, 0);
	x = equal_stages(4, 1, 0, 1, 2, 0);
	assert_int_equal(code_of(&x, &err), ADP_EINVAL);
	x = equal_stages(0, 1, 4, 1, 2, 0);
	assert_int_equal(code_of(&x, &err), ADP_EINVAL);
	x = equal_stages(4, 0, 4, 1, 2, 0);
	assert_int_equal(code_of(&x, &err), ADP_EINVAL);
}

static void a_time_that_is_no_time_is_refused(void **state)
{
	const double bad[] = {-1e-9, NAN, INFINITY, 1e300};
	struct adp_error err;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct instance x = equal_stages(3, 1, 4, 1, 2, 0);

		x.stages[2].bwd_s = bad[i];
		assert_int_equal(code_of(&x, &err), ADP_EINVAL);
		assert_true(strlen(err.text) > 10);
		assert_near(bound_of(&x), 0, 0);
	}
}

static void times_of_any_size_keep_their_precision(void **state)
{
	const double scales[] = {1e-240, 1e-12, 1, 1e9, 1e240};

	(void)state;
	for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
		struct instance x = equal_stages(4, 1, 8, scales[i], 2 * scales[i], 0);

		assert_near(step_of(&x) / scales[i], 33, 1e-12); /* as above: 11 * 3 */
	}
	struct instance zero = equal_stages(4, 2, 8, 0, 0, 0);
	assert_near(step_of(&zero), 0, 0);
	assert_near(bound_of(&zero), 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_stages_end_after_the_textbook_time),
		cmocka_unit_test(one_rank_works_without_a_bubble),
		cmocka_unit_test(one_micro_batch_pays_every_stage_and_transfer),
		cmocka_unit_test(a_slow_stage_sets_the_pace),
		cmocka_unit_test(slow_links_bind_although_they_block_nobody),
		cmocka_unit_test(interleaving_divides_the_bubble_by_the_chunks),
		cmocka_unit_test(fewer_micro_batches_than_ranks_is_legal_for_1f1b),
		cmocka_unit_test(ten_thousand_random_instances_equal_the_event_simulation),
		cmocka_unit_test(large_instances_equal_the_event_simulation),
		cmocka_unit_test(the_jump_over_the_periodic_part_changes_no_bit),
		cmocka_unit_test(a_billion_micro_batches_cost_no_more_than_a_hundred),
		cmocka_unit_test(transfers_that_lead_nowhere_do_not_count),
		cmocka_unit_test(no_time_that_grows_makes_the_step_shorter),
		cmocka_unit_test(the_bound_is_exact_for_equal_stages),
		cmocka_unit_test(the_bound_is_close_on_mixed_fleets),
		cmocka_unit_test(the_first_rank_holds_one_micro_batch_per_rank),
		cmocka_unit_test(chunks_of_unequal_size_peak_where_the_simulation_says),
		cmocka_unit_test(replicas_with_unequal_counts_meet_at_the_reduction),
		cmocka_unit_test(a_schedule_that_does_not_exist_is_refused_with_the_reason),
		cmocka_unit_test(a_time_that_is_no_time_is_refused),
		cmocka_unit_test(times_of_any_size_keep_their_precision),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
