/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the pipeline recurrence and tightness of its bound: name value goal pass|short. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "adp/pipeline.h"

enum { MAX_RANKS = 64, MAX_CHUNKS = 4, TRIES = 5 };

struct step {
	struct adp_pipe_stage stages[MAX_RANKS * MAX_CHUNKS];
	uint32_t n_ranks, n_chunks, n_micro;
};

static int64_t scratch[(8 + 4 * MAX_CHUNKS) * MAX_RANKS];
static double end_s[MAX_RANKS];
static volatile double sink; /* keeps what is timed */

static uint64_t random_state = 1;

static double random_frac(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) * 0x1p-53;
}

/* Two generations of GPUs, 20 % of spread in each, every chunk of a rank alike. */
static struct step mixed_fleet(uint32_t n_ranks, uint32_t n_chunks, uint32_t n_micro)
{
	struct step step = {.n_ranks = n_ranks, .n_chunks = n_chunks, .n_micro = n_micro};

	for (uint32_t s = 0; s < n_ranks; s++) {
		double fwd_s = (s < n_ranks / 2 ? 0.01 : 0.02) * (1 + 0.2 * random_frac()) / n_chunks;

		for (uint32_t c = 0; c < n_chunks; c++)
			step.stages[c * n_ranks + s] = (struct adp_pipe_stage){fwd_s, 2 * fwd_s, 0.0002,
			                                                       0.0002};
	}
	return step;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum what { EXACT, STEPWISE, BOUND };

static void once(enum what what, const struct step *x)
{
	if (what == EXACT)
		adp_pipeline_end(end_s, x->stages, x->n_ranks, x->n_chunks, x->n_micro, scratch, NULL);
	else if (what == STEPWISE)
		adp_pipeline_end_stepwise(end_s, x->stages, x->n_ranks, x->n_chunks, x->n_micro, scratch,
		                          NULL);
	else
		end_s[0] = adp_pipeline_bound(x->stages, x->n_ranks, x->n_chunks, x->n_micro);
	sink = end_s[0];
}

/* Seconds of one call: the best of several tries of at least 20 ms. */
static double timed_s(enum what what, const struct step *x)
{
	double best_s = INFINITY;

	for (int try = 0; try < TRIES; try++) {
		double start_s = now_s(), spent_s;
		uint32_t n = 0;

		do {
			for (int i = 0; i < 16; i++)
				once(what, x);
			n += 16;
			spent_s = now_s() - start_s;
		} while (spent_s < 0.02);
		best_s = fmin(best_s, spent_s / n);
	}
	return best_s;
}

static bool all_pass = true;

static void report(const char *name, const struct step *x, double value, double goal,
                   bool more_is_better)
{
	bool pass = more_is_better ? value >= goal : value <= goal;

	printf("%s_p%u_c%u_n%u %.4g %.4g %s\n", name, x->n_ranks, x->n_chunks, x->n_micro, value, goal,
	       pass ? "pass" : "short");
	all_pass = all_pass && pass;
}

static double tightness(const struct step *x)
{
	adp_pipeline_end(end_s, x->stages, x->n_ranks, x->n_chunks, x->n_micro, scratch, NULL);
	return adp_pipeline_bound(x->stages, x->n_ranks, x->n_chunks, x->n_micro) / end_s[0];
}

int main(void)
{
	const uint32_t sizes[][3] = {
		{4, 1, 64}, {8, 1, 128}, {16, 1, 64}, {64, 1, 4096}, {4, 2, 64}, {8, 4, 64}, {64, 4, 4096},
	};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct step x = mixed_fleet(sizes[i][0], sizes[i][1], sizes[i][2]);
		double n_operations = 2.0 * x.n_ranks * x.n_chunks * x.n_micro;

		report("pipeline_ns_per_operation", &x, 1e9 * timed_s(STEPWISE, &x) / n_operations, 3,
		       false);
		report("pipeline_us_per_step", &x, 1e6 * timed_s(EXACT, &x), 3e-3 * n_operations, false);
		report("pipeline_bound_us", &x, 1e6 * timed_s(BOUND, &x), 0.08 * x.n_ranks * x.n_chunks,
		       false);
		report("pipeline_bound_over_exact", &x, tightness(&x), 0.95, true);
	}
	return all_pass ? EXIT_SUCCESS : EXIT_FAILURE;
}
