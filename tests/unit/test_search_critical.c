/* SPDX-License-Identifier: Apache-2.0 */
/* The critical paths never rule out a split that the exact recurrence runs in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "search/critical.h"

enum { MAX_RANKS = 12, MAX_VPP = 4, MAX_MICRO = 48 };

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 16) % n);
}

static double random_s(double most)
{
	return most * random_below(1000001) / 1e6;
}

struct instance {
	struct critical_rank ranks[MAX_RANKS];
	double rest_s[MAX_RANKS]; /* after the last backward, by layer */
	uint32_t pp, vpp, n_micro, n_layers, layers[MAX_RANKS];
};

static void instance_random(struct instance *x)
{
	uint32_t n_types = 1 + random_below(3);
	double fwd_s[3], bwd_s[3], send_s = random_below(2) ? random_s(0.3) : 0.0;

	memset(x, 0, sizeof *x);
	x->pp = 1 + random_below(MAX_RANKS);
	x->vpp = x->pp == 1 ? 1 : 1 + random_below(MAX_VPP);
	x->n_micro = x->vpp > 1 ? x->pp * (1 + random_below(4)) : 1 + random_below(MAX_MICRO);
	for (uint32_t t = 0; t < n_types; t++) {
		fwd_s[t] = 0.1 + random_s(2.0);
		bwd_s[t] = fwd_s[t] * (1.0 + random_s(2.0));
	}
	for (uint32_t m = 0; m < x->pp; m++) {
		uint32_t t = random_below(n_types);

		x->layers[m] = random_below(4) ? x->vpp + random_below(3 * x->vpp) : 1;
		if (x->vpp == 1 && (m == 0 || m + 1 == x->pp) && x->pp > 1 && !random_below(4))
			x->layers[m] = 0; /* an end with embedding or head alone */
		x->n_layers += x->layers[m];
		x->rest_s[m] = random_below(3) ? 0.0 : random_s(10.0);
		x->ranks[m] = (struct critical_rank){.fwd_s = fwd_s[t],
		                                     .bwd_s = bwd_s[t],
		                                     .first_fwd_s = m == 0 ? random_s(1.0) : 0.0,
		                                     .last_fwd_s = m + 1 == x->pp ? random_s(3.0) : 0.0,
		                                     .send_fwd_s = send_s * random_below(3),
		                                     .send_bwd_s = send_s * random_below(3),
		                                     .least = x->vpp > 1 || (m > 0 && m + 1 < x->pp),
		                                     .n_ways = 1,
		                                     .most = {x->layers[m] + random_below(8)},
		                                     .way_bwd_s = {bwd_s[t]}};
		x->ranks[m].end_bwd_s = 2.0 * (x->ranks[m].first_fwd_s + x->ranks[m].last_fwd_s);
	}
}

static uint32_t chunk(const struct instance *x, uint32_t m, uint32_t c)
{
	return x->layers[m] / x->vpp + (c < x->layers[m] % x->vpp);
}

/* A third of it hides behind the last backward, but no more than that takes. */
static double rest_of(void *instance, uint32_t m, uint32_t n_layers, double last_bwd_s)
{
	const struct instance *x = instance;
	double all_s = x->rest_s[m] * (n_layers + 1);

	return all_s - fmin(all_s / 3.0, last_bwd_s);
}

/* When the last rank ends, its rest included: earlier chunks of a rank take the layers that do not
 * divide. */
static double exact_end(struct instance *x)
{
	struct adp_pipe_stage stages[MAX_RANKS * MAX_VPP];
	int64_t scratch[(8 + 4 * MAX_VPP) * MAX_RANKS];
	double end_s[MAX_RANKS], last_s = 0.0;

	for (uint32_t c = 0; c < x->vpp; c++)
		for (uint32_t m = 0; m < x->pp; m++) {
			const struct critical_rank *r = &x->ranks[m];
			struct adp_pipe_stage *s = &stages[c * x->pp + m];

			*s = (struct adp_pipe_stage){.fwd_s = chunk(x, m, c) * r->fwd_s,
			                             .bwd_s = chunk(x, m, c) * r->bwd_s,
			                             .send_fwd_s = r->send_fwd_s,
			                             .send_bwd_s = r->send_bwd_s};
			if (m == 0 && c == 0) {
				s->fwd_s += r->first_fwd_s;
				s->bwd_s += r->end_bwd_s;
				s->send_bwd_s = 0.0;
			}
			if (m + 1 == x->pp && c + 1 == x->vpp) {
				s->fwd_s += r->last_fwd_s;
				s->bwd_s += m > 0 ? r->end_bwd_s : 0.0;
				s->send_fwd_s = 0.0;
			}
		}
	assert_true(adp_pipeline_scratch(x->pp, x->vpp, x->n_micro) <=
	            sizeof scratch / sizeof *scratch);
	assert_int_equal(adp_pipeline_end(end_s, stages, x->pp, x->vpp, x->n_micro, scratch, NULL),
	                 ADP_OK);
	for (uint32_t m = 0; m < x->pp; m++)
		last_s = fmax(last_s,
		              end_s[m] + rest_of(x, m, x->layers[m],
		                                 x->layers[m] * x->ranks[m].bwd_s + x->ranks[m].end_bwd_s));
	return last_s;
}

static void of_instance(struct critical *c, struct instance *x)
{
	critical_init(c, x->ranks, x->pp, x->vpp, x->n_micro, x->n_layers, rest_of, x);
}

static double after_of(const struct critical *c, const struct instance *x, enum critical_path p,
                       uint32_t m)
{
	double s = 0.0;

	for (; m < x->pp; m++)
		s += critical_pass(c, p, m, x->layers[m], x->ranks[m].bwd_s);
	return s;
}

/* The longest path through a split that is known. */
static double longest_path(struct critical *c, const struct instance *x)
{
	double longest = 0.0;

	critical_caps(c, x->layers);
	for (uint32_t i = 0; i < c->n_paths; i++) {
		enum critical_path p = (enum critical_path)i;
		double pass_s = c->pass_s[p], all_s = -INFINITY, own_s = -INFINITY, cut_s = 0.0;
		double rest_s = -INFINITY;
		uint32_t left = x->n_layers;

		for (uint32_t m = 0; m < x->pp; m++) {
			uint32_t n = x->layers[m];
			double bwd_s = x->ranks[m].bwd_s, own_of_m = critical_own(c, p, m, n, bwd_s);

			pass_s += critical_pass(c, p, m, n, bwd_s);
			own_s = p == PATH_BOTH ? fmax(own_s, own_of_m) : own_of_m;
			rest_s = fmax(rest_s, critical_rest(c, m, n, bwd_s) - cut_s);
			cut_s += critical_cut(c, p, m, n, bwd_s);
			all_s = fmax(all_s, own_s + rest_s);
			left -= n;
			/* what is not known yet is never put too high */
			assert_true(pass_s + critical_pass_after(c, p, m + 1, left) <=
			            pass_s + after_of(c, x, p, m + 1) + 1e-9);
		}
		longest = fmax(longest, pass_s + all_s);
	}
	return longest;
}

/* Any split is a witness: its own end must stay possible. */
static void no_split_ends_before_the_bound(void **state)
{
	struct instance x;
	struct critical c;
	double sum = 0.0, sum_known = 0.0;
	uint32_t n = 20000;

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t most[ADP_SEARCH_MAX_PIPE];
		double end_s;

		instance_random(&x);
		of_instance(&c, &x);
		end_s = exact_end(&x);
		if (!critical_possible(&c, end_s, most)) {
			print_error("instance %u: pp %u, vpp %u, %u micro-batches, end %.9g\n", i, x.pp, x.vpp,
			            x.n_micro, end_s);
			fail();
		}
		for (uint32_t m = 0; m < x.pp; m++)
			assert_true(x.layers[m] <= most[m]);
		sum += critical_bound(&c, 0.0, end_s) / end_s;
		if (longest_path(&c, &x) > end_s * (1.0 + 1e-9)) {
			print_error("instance %u: path of %.9g s, end %.9g s\n", i, longest_path(&c, &x),
			            end_s);
			fail();
		}
		sum_known += longest_path(&c, &x) / end_s;
	}
	print_message("%.4f of the end before the layers are placed, %.4f after\n", sum / n,
	              sum_known / n);
	/* random splits are far from the best, yet the bound must not be idle */
	assert_true(sum / n > 0.6 && sum_known / n > 0.9);
}

/*
 * Equal ranks, 2 layers each of 1 s forward and 2 s backward, no ends, no sends: 4 ranks, 8
 * micro-batches. The best split is the equal one: (8 + 4 - 1) x 6 s = 66 s. Rank 0 sees a pass of
 * 4 x 6 = 24 s, 8 x 6 = 48 s of its own less 4 warm-up forwards of 2 s and a backward of 4 s: 60 s.
 * Rank 3 does one forward only before its first backward: 24 + 48 - 2 - 4 = 66 s.
 */
static void equal_ranks_meet_the_bound(void **state)
{
	struct instance x = {.pp = 4, .vpp = 1, .n_micro = 8, .n_layers = 8, .layers = {2, 2, 2, 2}};
	struct critical c;

	(void)state;
	for (uint32_t m = 0; m < x.pp; m++)
		x.ranks[m] = (struct critical_rank){
			.fwd_s = 1.0, .bwd_s = 2.0, .n_ways = 1, .most = {8}, .way_bwd_s = {2.0}};
	of_instance(&c, &x);
	assert_true(fabs(exact_end(&x) - 66.0) < 1e-9);
	assert_true(critical_possible(&c, 66.0, NULL));
	assert_true(critical_bound(&c, 0.0, 66.0) > 60.0);
}

/* The same ranks, room for 2 layers on each but 1 on the second: 7 of 8 layers have a place. */
static void too_little_room_is_never_possible(void **state)
{
	struct instance x = {.pp = 4, .vpp = 1, .n_micro = 8, .n_layers = 8};
	struct critical c;

	(void)state;
	for (uint32_t m = 0; m < x.pp; m++)
		x.ranks[m] = (struct critical_rank){
			.fwd_s = 1.0, .bwd_s = 2.0, .n_ways = 1, .most = {m == 1 ? 1 : 2}, .way_bwd_s = {2.0}};
	of_instance(&c, &x);
	assert_false(critical_possible(&c, 1e9, NULL));
	x.ranks[1].most[0] = 2;
	assert_true(critical_possible(&c, 1e9, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_split_ends_before_the_bound),
		cmocka_unit_test(equal_ranks_meet_the_bound),
		cmocka_unit_test(too_little_room_is_never_possible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
