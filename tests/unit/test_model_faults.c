/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_fixture.h"
#include "support/fault_sweep.h"

static int read_and_divide(void *context)
{
	const char *json = context;
	struct adp_arena arena = {0};
	struct adp_divisors divisors;
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_read(&model, json, strlen(json), "test", &err);

	if (rc == ADP_OK)
		rc = adp_model_divisors(&divisors, model, &arena, &err);
	adp_arena_fini(&arena);
	adp_model_destroy(model);
	return rc;
}

static int load_by_name(void *context)
{
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_load(&model, context, &err);

	adp_model_destroy(model);
	return rc;
}

/* A refusal allocates too; it counts as success here when it is the expected one. */
static int refuse(void *context)
{
	const char *json = context;
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_read(&model, json, strlen(json), "test", &err);

	assert_null(model);
	return rc == ADP_EINVAL ? ADP_OK : rc;
}

static int refuse_name(void *context)
{
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_load(&model, context, &err);

	assert_null(model);
	return rc == ADP_EINVAL ? ADP_OK : rc;
}

static void reading_survives_the_failure_of_each_allocation(void **state)
{
	static const char *const configs[] = {
		"{" LLAMA ",\"zeta\":1,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
		"\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}}",
		"{\"wrapped\":1,\"text_config\":{\"model_type\":\"qwen2_moe\"," SMALL
		",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":6,"
		"\"shared_expert_intermediate_size\":12,\"mlp_only_layers\":[0]}}",
		"{\"model_type\":\"gemma2\"," SMALL ",\"head_dim\":2,\"sliding_window\":16}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
		fault_sweep(read_and_divide, (void *)(uintptr_t)configs[i]);
}

static void refusing_survives_the_failure_of_each_allocation(void **state)
{
	static const char *const configs[] = {
		"{\"model_type\":\"acme\"," SMALL "}",
		"{" LLAMA ",\"num_experts\":4}",
		"{\"vision_config\":{\"depth\":2},\"text_config\":{" LLAMA "}}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
		fault_sweep(refuse, (void *)(uintptr_t)configs[i]);
}

static void loading_survives_the_failure_of_each_allocation(void **state)
{
	(void)state;
	fault_sweep(load_by_name, (void *)(uintptr_t) "mixtral-8x7b");
	fault_sweep(refuse_name, (void *)(uintptr_t) "no-such-model");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reading_survives_the_failure_of_each_allocation),
		cmocka_unit_test(refusing_survives_the_failure_of_each_allocation),
		cmocka_unit_test(loading_survives_the_failure_of_each_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
