/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "adp/emit.h"
#include "base/alloc.h"
#include "support/fault_sweep.h"

/* A plan of pp stages with vpp virtual stages; layers[chunk * pp + stage]. Only what the layout
 * reads. */
struct shape {
	struct adp_plan plan;
	struct adp_plan_stage stages[8];
	uint32_t first[8][4], n[8][4];
};

static void shape_init(struct shape *s, uint32_t pp, uint32_t vpp, const uint32_t *layers)
{
	uint32_t layer = 0;

	*s = (struct shape){0};
	for (uint32_t c = 0; c < vpp; c++)
		for (uint32_t i = 0; i < pp; i++) {
			s->first[i][c] = layer;
			s->n[i][c] = layers[c * pp + i];
			layer += layers[c * pp + i];
		}
	for (uint32_t i = 0; i < pp; i++)
		s->stages[i] = (struct adp_plan_stage){.n_chunks = vpp,
		                                       .first_layer = s->first[i],
		                                       .n_layers = s->n[i],
		                                       .embedding = i == 0,
		                                       .head = i + 1 == pp};
	s->plan.stages = s->stages;
	s->plan.pp = pp;
	s->plan.vpp = vpp;
	s->plan.model.n_layers = layer;
}

static void expect_layout(struct shape *s, const char *expected)
{
	struct adp_error err = {0};
	char *text;

	assert_int_equal(adp_emit_megatron_layout(&text, &s->plan, &err), ADP_OK);
	assert_string_equal(text, expected);
	adp_free(text);
}

static void expect_refusal(struct shape *s, const char *part)
{
	struct adp_error err = {0};
	char *text = NULL;

	assert_int_equal(adp_emit_megatron_layout(&text, &s->plan, &err), ADP_EINVAL);
	assert_null(text);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
}

static void uniform_stages_repeat_the_same_layers(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 4, 1, (const uint32_t[]){20, 20, 20, 20}); /* 80 layers */
	expect_layout(&s, "Et*20|t*20|t*20|t*20L");
}

static void uneven_stages_keep_their_own_counts(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 4, 1, (const uint32_t[]){3, 27, 13, 2}); /* up to three are spelled out */
	expect_layout(&s, "Ettt|t*27|t*13|ttL");
}

static void virtual_stages_come_rank_by_rank_within_each_round(void **state)
{
	struct shape s;

	(void)state;
	/* round 0: ranks hold 1, 2; round 1: 3, 4. Rank 0 has layers 0 and 3-5, rank 1 has 1-2 and 6-9.
	 */
	shape_init(&s, 2, 2, (const uint32_t[]){1, 2, 3, 4});
	expect_layout(&s, "Et|tt|ttt|t*4L");
}

static void a_stage_without_layers_holds_embedding_or_loss_alone(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 3, 1, (const uint32_t[]){0, 5, 0});
	expect_layout(&s, "E|t*5|L");
}

static void one_stage_holds_everything(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 1, 1, (const uint32_t[]){32});
	expect_layout(&s, "Et*32L");
}

static void lost_layers_are_refused(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 2, 1, (const uint32_t[]){4, 4});
	s.plan.model.n_layers = 9;
	expect_refusal(&s, "8 layers in all, but the model has 9");
	s.plan.model.n_layers = 7;
	expect_refusal(&s, "ends beyond the model's 7 layers");
}

static void layers_out_of_order_are_refused(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 2, 1, (const uint32_t[]){4, 4});
	s.first[1][0] = 3;
	expect_refusal(&s, "expected layer 4");
}

static void a_wrong_number_of_virtual_stages_is_refused(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 2, 2, (const uint32_t[]){1, 1, 1, 1});
	s.stages[1].n_chunks = 1;
	expect_refusal(&s, "stages[1]: 1 virtual stages, but the virtual pipeline degree is 2");
}

static void an_embedding_on_another_stage_is_refused(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 2, 1, (const uint32_t[]){4, 4});
	s.stages[1].embedding = true;
	expect_refusal(&s, "embedding on the first stage");
}

static int emit_once(void *context)
{
	char *text;
	int rc = adp_emit_megatron_layout(&text, context, NULL);

	if (rc == ADP_OK)
		adp_free(text);
	return rc;
}

static void running_out_of_memory_leaks_nothing(void **state)
{
	struct shape s;

	(void)state;
	shape_init(&s, 4, 2, (const uint32_t[]){20, 20, 20, 20, 9, 9, 9, 9});
	fault_sweep(emit_once, &s.plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uniform_stages_repeat_the_same_layers),
		cmocka_unit_test(uneven_stages_keep_their_own_counts),
		cmocka_unit_test(virtual_stages_come_rank_by_rank_within_each_round),
		cmocka_unit_test(a_stage_without_layers_holds_embedding_or_loss_alone),
		cmocka_unit_test(one_stage_holds_everything),
		cmocka_unit_test(lost_layers_are_refused),
		cmocka_unit_test(layers_out_of_order_are_refused),
		cmocka_unit_test(a_wrong_number_of_virtual_stages_is_refused),
		cmocka_unit_test(an_embedding_on_another_stage_is_refused),
		cmocka_unit_test(running_out_of_memory_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
