/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "adp/hardware.h"
#include "support/fault_sweep.h"

static struct adp_hardware *hw;

static int load(void **state)
{
	struct adp_error err = {0};

	(void)state;
	if (adp_hardware_load(&hw, NULL, NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		return -1;
	}
	return 0;
}

static int unload(void **state)
{
	(void)state;
	adp_hardware_destroy(hw);
	return 0;
}

static const char *found(const char *name, uint64_t memory_mib)
{
	const struct adp_gpu_type *type = adp_hardware_find(hw, name, memory_mib, NULL, 0);

	return type ? type->name : "(none)";
}

static void every_name_alias_and_spelling_finds_its_own_type(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < hw->n_types; i++) {
		assert_string_equal(found(hw->types[i].name, 0), hw->types[i].name);
		assert_string_equal(found(hw->types[i].alias, 0), hw->types[i].name);
		for (const char *at = hw->types[i].aka; *at;) {
			char spelling[128];
			size_t len = strcspn(at, ";");

			snprintf(spelling, sizeof spelling, "%.*s", (int)len, at);
			assert_string_equal(found(spelling, 0), hw->types[i].name);
			at += len + (at[len] == ';');
		}
	}
}

static void every_row_has_a_source_and_sane_figures(void **state)
{
	(void)state;
	assert_int_equal(hw->n_types, 50);
	for (uint32_t i = 0; i < hw->n_types; i++) {
		const struct adp_gpu_type *type = &hw->types[i];

		assert_true(strlen(type->source) > 0);
		assert_true(strlen(type->unverified) >
		            0); /* node shape and network share are assumptions at least */
		assert_true(type->memory_bytes >= 8000000000u && type->memory_bytes < 400000000000u);
		assert_true(type->measured_bf16_flops_per_s <= adp_gpu_type_peak(type));
		assert_true(type->min_power_w <= type->tdp_w);
		assert_true(type->nvlink_domain_gpus == 0 || type->nvlink_bytes_per_s > 0);
	}
}

static void h100_row_reads_in_si_units(void **state)
{
	const struct adp_gpu_type *h100 = adp_hardware_find(hw, "H100", 0, NULL, 0);

	(void)state;
	assert_non_null(h100);
	assert_string_equal(h100->name, "NVIDIA-H100-80GB-HBM3");
	assert_int_equal(h100->memory_bytes, 81559ull << 20); /* as the driver prints it, not 80 GiB */
	assert_true(h100->memory_bytes_per_s == 3350e9);
	assert_true(h100->peak_flops_per_s[ADP_PRECISION_BF16] == 989e12);
	assert_true(h100->peak_flops_per_s[ADP_PRECISION_FP8] == 1979e12);
	assert_true(h100->measured_bf16_flops_per_s == 794.5e12);
	assert_true(h100->nvlink_bytes_per_s == 450e9);
	assert_true(h100->pcie_bytes_per_s == 64e9); /* generation 5 */
	assert_true(h100->nic_bytes_per_s == 50e9);  /* 400 Gb/s */
	assert_int_equal(h100->compute_capability, 90);
	assert_int_equal(h100->node_gpus, 8);
}

static void v100_has_no_bf16_path(void **state)
{
	const struct adp_gpu_type *v100 = adp_hardware_find(hw, "V100-32", 0, NULL, 0);

	(void)state;
	assert_true(v100->peak_flops_per_s[ADP_PRECISION_BF16] == 0);
	assert_true(v100->peak_flops_per_s[ADP_PRECISION_FP16] == 125e12);
	assert_true(v100->nic_bytes_per_s == 6.25e9); /* 400 Gb/s per node of 8: 50 GB/s / 8 */
}

static void a_name_with_two_memory_sizes_is_ambiguous_and_lists_them(void **state)
{
	char near[200];

	(void)state;
	assert_null(adp_hardware_find(hw, "V100", 0, near, sizeof near));
	assert_non_null(strstr(near, "V100-16"));
	assert_non_null(strstr(near, "V100-32"));
	assert_null(adp_hardware_find(hw, "A100", 0, near, sizeof near));
	assert_non_null(strstr(near, "A100-40"));
	assert_non_null(strstr(near, "A100-80"));
}

static void memory_decides_between_sizes_of_one_name(void **state)
{
	(void)state;
	assert_string_equal(found("V100-SXM2", 16160), "Tesla-V100-SXM2-16GB");
	assert_string_equal(found("V100-SXM2", 32510), "Tesla-V100-SXM2-32GB");
	assert_string_equal(found("V100-SXM2", 24000), "(none)"); /* fits neither within 12 % */
}

static void spellings_of_one_name_are_alike(void **state)
{
	(void)state;
	assert_string_equal(found("nvidia_h100_80gb_hbm3", 0), "NVIDIA-H100-80GB-HBM3");
	assert_string_equal(found("NVIDIA H100 80GB HBM3", 0), "NVIDIA-H100-80GB-HBM3");
	assert_string_equal(found("h100", 0), "NVIDIA-H100-80GB-HBM3");
	assert_string_equal(found("A100-SXM4-40GB", 0),
	                    "NVIDIA-A100-SXM4-40GB"); /* drivers before 470 */
	assert_string_equal(found("rtx-4090", 0), "NVIDIA-GeForce-RTX-4090");
}

static void unknown_names_get_the_nearest_aliases(void **state)
{
	char near[200];

	(void)state;
	assert_null(adp_hardware_find(hw, "H10", 0, near, sizeof near));
	assert_non_null(strstr(near, "H100"));
	assert_null(adp_hardware_find(hw, "quantum-computer", 0, near, sizeof near));
	assert_string_equal(near, "");
	assert_null(adp_hardware_find(hw, "", 0, near, sizeof near));
	assert_null(
		adp_hardware_find(hw, "H10", 0, near, 3)); /* no room: cut at a name, never overrun */
	assert_true(strlen(near) < 3);
}

static void provider_tables_name_only_known_types(void **state)
{
	(void)state;
	assert_true(hw->n_accelerators > 30);
	for (uint32_t i = 0; i < hw->n_accelerators + hw->n_instances; i++) {
		const char *gpus = i < hw->n_accelerators ? hw->accelerators[i].gpus
		                                          : hw->instances[i - hw->n_accelerators].gpus;

		for (const char *at = gpus; *at;) {
			char name[128];
			size_t len = strcspn(at, ";");

			snprintf(name, sizeof name, "%.*s", (int)len, at);
			assert_string_equal(found(name, 0), name);
			at += len + (at[len] == ';');
		}
	}
}

static struct adp_hardware *with(const char *csv, struct adp_error *err)
{
	struct adp_hardware *changed = NULL;

	adp_hardware_load_text(&changed, NULL, csv, strlen(csv), "mine.csv", err);
	return changed;
}

static void an_override_changes_only_the_cells_it_fills(void **state)
{
	struct adp_error err = {0};
	struct adp_hardware *mine = with("name,bf16_tflops,tdp_w\nH100,800,\n", &err);
	const struct adp_gpu_type *h100;

	(void)state;
	assert_non_null(mine);
	h100 = adp_hardware_find(mine, "H100", 0, NULL, 0);
	assert_string_equal(h100->name, "NVIDIA-H100-80GB-HBM3");
	assert_true(h100->peak_flops_per_s[ADP_PRECISION_BF16] == 800e12);
	assert_true(h100->tdp_w == 700);
	assert_string_not_equal(mine->version, hw->version);
	assert_int_equal(mine->n_types, hw->n_types);
	adp_hardware_destroy(mine);
}

static void an_override_adds_a_type(void **state)
{
	struct adp_error err = {0};
	struct adp_hardware *mine = with(
		"name,alias,memory_gib,memory_bw_gbs,fp16_tflops,pcie_gen,node_gpus,nic_gbs\n"
		"NVIDIA-X900,X900,512,20000,9000,6,16,200\n",
		&err);
	const struct adp_gpu_type *type;

	(void)state;
	assert_non_null(mine);
	type = adp_hardware_find(mine, "X900", 0, NULL, 0);
	assert_non_null(type);
	assert_int_equal(type->memory_bytes, 512ull << 30);
	assert_int_equal(type->node_nics, 16); /* one per GPU unless stated */
	assert_true(type->pcie_bytes_per_s == 128e9);
	adp_hardware_destroy(mine);
}

static void bad_overrides_are_refused_with_their_place(void **state)
{
	static const struct {
		const char *csv, *expected;
	} cases[] = {
		{"name,bf16_tflop\nH100,1\n", "did you mean 'bf16_tflops'"},
		{"name,bf16_tflops\nH100,nan\n", "mine.csv"},
		{"name,bf16_tflops\nH100,-1\n", "mine.csv:2: bf16_tflops is -1"},
		{"name,bf16_tflops\nX1,5\n", "has no memory_gib"},
		{"name,bf16_tflops\n,5\n", "names no GPU type"},
		{"name,node_gpus\nH100,2.5\n", "whole number"},
		{"name,node_gpus\nH100,0\n", "node_gpus is 0"},
		{"name,pcie_gen\nH100,9\n", "pcie_gen '9'"},
		{"name,memory_gib\nH100,0\n", "memory_gib is 0"},
		{"name,memory_mib\nH100,1e300\n", "memory_mib"},
		{"name,alias\nH100,V100-32\n", "two GPU types answer to 'v100-32'"},
		{"bf16_tflops\n5\n", "names no GPU type"},
		{"", "mine.csv"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct adp_error err = {0};

		assert_null(with(cases[i].csv, &err));
		assert_int_equal(err.code, ADP_EINVAL);
		if (!strstr(err.text, cases[i].expected))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].expected);
	}
}

static void a_missing_overrides_file_is_an_error(void **state)
{
	struct adp_hardware *none;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_hardware_load(&none, NULL, "/nonexistent/x.csv", &err), ADP_EIO);
	assert_null(none);
}

static void a_folder_of_tables_replaces_the_compiled_ones(void **state)
{
	struct adp_hardware *other;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_hardware_load(&other, ADP_SOURCE_DIR "/data", NULL, &err), ADP_OK);
	assert_int_equal(other->n_types, hw->n_types);
	assert_true(strlen(other->version) > strlen(hw->version));
	adp_hardware_destroy(other);
}

static void precisions_have_names_and_spellings(void **state)
{
	enum adp_precision p;
	struct adp_error err = {0};

	(void)state;
	for (int i = 0; i < ADP_N_PRECISIONS; i++) {
		assert_int_equal(adp_precision_parse(&p, adp_precision_name((enum adp_precision)i), &err),
		                 ADP_OK);
		assert_int_equal(p, i);
	}
	assert_int_equal(adp_precision_parse(&p, "BF16", &err), ADP_OK);
	assert_int_equal(p, ADP_PRECISION_BF16);
	assert_int_equal(adp_precision_parse(&p, "bfloat16", &err), ADP_OK);
	assert_int_equal(adp_precision_parse(&p, "int4", &err), ADP_EINVAL);
	assert_non_null(strstr(err.text, "use fp32"));
}

static int load_with_overrides(void *context)
{
	static const char csv[] =
		"name,alias,memory_gib,memory_bw_gbs,fp16_tflops,pcie_gen,node_gpus,nic_gbs\n"
		"X,X9,512,20000,9000,6,16,200\n";
	struct adp_hardware *mine;
	int rc = adp_hardware_load_text(&mine, context, csv, sizeof csv - 1, "mine.csv", NULL);

	adp_hardware_destroy(mine);
	return rc;
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	char folder[] = ADP_SOURCE_DIR "/data";

	(void)state;
	fault_sweep(load_with_overrides, folder);
	fault_sweep(load_with_overrides, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_name_alias_and_spelling_finds_its_own_type),
		cmocka_unit_test(every_row_has_a_source_and_sane_figures),
		cmocka_unit_test(h100_row_reads_in_si_units),
		cmocka_unit_test(v100_has_no_bf16_path),
		cmocka_unit_test(a_name_with_two_memory_sizes_is_ambiguous_and_lists_them),
		cmocka_unit_test(memory_decides_between_sizes_of_one_name),
		cmocka_unit_test(spellings_of_one_name_are_alike),
		cmocka_unit_test(unknown_names_get_the_nearest_aliases),
		cmocka_unit_test(provider_tables_name_only_known_types),
		cmocka_unit_test(an_override_changes_only_the_cells_it_fills),
		cmocka_unit_test(an_override_adds_a_type),
		cmocka_unit_test(bad_overrides_are_refused_with_their_place),
		cmocka_unit_test(a_missing_overrides_file_is_an_error),
		cmocka_unit_test(a_folder_of_tables_replaces_the_compiled_ones),
		cmocka_unit_test(precisions_have_names_and_spellings),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
