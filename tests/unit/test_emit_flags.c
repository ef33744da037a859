/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "emit/emit_internal.h"
#include "support/fault_sweep.h"

#define ARGS(...)                                                                                  \
	((const struct emit_arg[]){__VA_ARGS__}),                                                      \
		sizeof((const struct emit_arg[]){__VA_ARGS__}) / sizeof(struct emit_arg)

static void accept(const struct emit_arg *args, size_t n, const char *version)
{
	struct adp_error err = {0};

	if (emit_flags_check(args, (uint32_t)n, version, &err))
		fail_msg("%s", err.text);
}

static void refuse(const struct emit_arg *args, size_t n, const char *version, int code,
                   const char *part)
{
	struct adp_error err = {0};
	int rc = emit_flags_check(args, (uint32_t)n, version, &err);

	if (rc != code || !strstr(err.text, part))
		fail_msg("returned %d '%s', expected %d with '%s'", rc, err.text, code, part);
}

static void known_flags_with_fitting_values_pass(void **state)
{
	(void)state;
	accept(ARGS({"--bf16", NULL}, {"--num-layers", "80"}, {"--normalization", "RMSNorm"},
	            {"--window-size", "127,0"}, {"--hidden-dropout", "0.0"},
	            {"--pipeline-model-parallel-size", "2"},
	            {"--pipeline-model-parallel-layout", "Et*3|t*5L"}, {"--save", "/path with blanks"}),
	       "0.16.1");
	accept(ARGS({"--num-experts", "4"}, {"--moe-router-topk", "2"}, {"--moe-ffn-hidden-size", "8"},
	            {"--moe-layer-freq", "([0]*3+[1]*5)"}),
	       "0.16.1");
	accept(ARGS({"--bf16", NULL}), "0.16");
	accept(ARGS({"--bf16", NULL}), "1");
}

static void unknown_flags_are_our_own_fault(void **state)
{
	(void)state;
	refuse(ARGS({"--num-layer", "80"}), "0.16.1", ADP_EINTERNAL, "no flag --num-layer");
}

static void values_of_another_type_are_refused(void **state)
{
	static const struct emit_arg bad[] = {
		{"--num-layers", NULL},
		{"--num-layers", "0"},
		{"--num-layers", "-1"},
		{"--num-layers", "8x"},
		{"--num-layers", ""},
		{"--num-layers", "99999999999999999999"},
		{"--bf16", "true"},
		{"--normalization", "rms"},
		{"--normalization", "LayerNorm RMSNorm"},
		{"--hidden-dropout", "nan"},
		{"--hidden-dropout", "1e999"},
		{"--hidden-dropout", "0.0.1"},
		{"--window-size", "127"},
		{"--window-size", "127,"},
		{"--window-size", "127,0,1"},
		{"--moe-layer-freq", "[1]"},
		{"--moe-layer-freq", "(__import__('os'))"},
		{"--moe-layer-freq", "0"},
		{"--pipeline-model-parallel-layout", "t*3|L"},
		{"--pipeline-model-parallel-layout", "Et*3|x*5L"},
		{"--pipeline-model-parallel-layout", "Et"},
		{"--save", "two\nlines"},
		{"--save", ""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		refuse(&bad[i], 1, "0.16.1", ADP_EINTERNAL, "does not take");
}

static void a_flag_given_twice_is_refused(void **state)
{
	(void)state;
	refuse(ARGS({"--bf16", NULL}, {"--bf16", NULL}), "0.16.1", ADP_EINTERNAL, "--bf16 given twice");
}

static void exclusions_are_kept(void **state)
{
	(void)state;
	refuse(ARGS({"--bf16", NULL}, {"--fp16", NULL}), "0.16.1", ADP_EINTERNAL,
	       "--bf16 excludes --fp16");
	refuse(ARGS({"--pipeline-model-parallel-size", "2"},
	            {"--pipeline-model-parallel-layout", "Et*3|t*5L"},
	            {"--num-layers-per-virtual-pipeline-stage", "2"}),
	       "0.16.1", ADP_EINTERNAL, "excludes --num-layers-per-virtual-pipeline-stage");
	refuse(ARGS({"--pipeline-model-parallel-size", "1"},
	            {"--pipeline-model-parallel-layout", "Et*8L"}),
	       "0.16.1", ADP_EINTERNAL, "excludes --pipeline-model-parallel-size=1");
	accept(ARGS({"--tensor-model-parallel-size", "2"}, {"--sequence-parallel", NULL}), "0.16.1");
	refuse(ARGS({"--tensor-model-parallel-size", "1"}, {"--sequence-parallel", NULL}), "0.16.1",
	       ADP_EINTERNAL, "excludes --tensor-model-parallel-size=1");
}

static void requirements_are_kept(void **state)
{
	(void)state;
	refuse(ARGS({"--num-query-groups", "8"}), "0.16.1", ADP_EINTERNAL,
	       "--num-query-groups needs --group-query-attention");
	refuse(ARGS({"--overlap-grad-reduce", NULL}, {"--overlap-param-gather", NULL}), "0.16.1",
	       ADP_EINTERNAL, "needs --use-distributed-optimizer|--use-megatron-fsdp");
	refuse(ARGS({"--optimizer", "sgd"}, {"--use-distributed-optimizer", NULL}), "0.16.1",
	       ADP_EINTERNAL, "needs --optimizer=adam");
	accept(ARGS({"--optimizer", "adam"}, {"--use-distributed-optimizer", NULL}), "0.16.1");
	refuse(ARGS({"--dist-ckpt-optim-fully-reshardable", NULL}, {"--ckpt-format", "fsdp_dtensor"}),
	       "0.16.1", ADP_EINTERNAL, "needs --ckpt-format=torch_dist");
	refuse(ARGS({"--rotary-base", "10000"}, {"--position-embedding-type", "none"}), "0.16.1",
	       ADP_EINTERNAL, "needs --position-embedding-type=rope");
}

static void flags_newer_than_the_engine_are_refused(void **state)
{
	const struct emit_arg args[] = {{"--pipeline-model-parallel-size", "2"},
	                                {"--pipeline-model-parallel-layout", "Et|tL"}};

	(void)state;
	accept(args, 2, "0.13.0");
	refuse(args, 2, "0.12.3", ADP_EINVAL,
	       "Megatron-Core 0.12.3 has no --pipeline-model-parallel-layout, which this plan "
	       "needs (since 0.13.0)");
}

static void versions_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = {"",         "nightly", "0.16.1rc0", "0..1",
	                                  "0.16.1.2", "1000",    "0.16.",     "v0.16"};

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		refuse(ARGS({"--bf16", NULL}), bad[i], ADP_EINVAL, "expected one like 0.16.1");
	refuse(ARGS({"--bf16", NULL}), NULL, ADP_EINVAL, "expected one like 0.16.1");
}

static int check_once(void *context)
{
	return emit_flags_check(context, 1, "0.16.1", NULL);
}

static void running_out_of_memory_leaks_nothing(void **state)
{
	struct emit_arg arg = {"--bf16", NULL};

	(void)state;
	fault_sweep(check_once, &arg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_flags_with_fitting_values_pass),
		cmocka_unit_test(unknown_flags_are_our_own_fault),
		cmocka_unit_test(values_of_another_type_are_refused),
		cmocka_unit_test(a_flag_given_twice_is_refused),
		cmocka_unit_test(exclusions_are_kept),
		cmocka_unit_test(requirements_are_kept),
		cmocka_unit_test(flags_newer_than_the_engine_are_refused),
		cmocka_unit_test(versions_that_are_none_are_refused),
		cmocka_unit_test(running_out_of_memory_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
