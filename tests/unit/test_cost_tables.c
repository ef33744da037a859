/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cost_fixture.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cost/tables_read.h"

static void the_shipped_tables_load(void **state)
{
	struct adp_tables *tables = NULL, *again = NULL;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_tables_load(&tables, NULL, &err), ADP_OK);
	assert_int_equal(adp_tables_load(&again, NULL, &err), ADP_OK);
	assert_int_equal(strlen(adp_tables_version(tables)), 16);
	assert_string_equal(adp_tables_version(tables), adp_tables_version(again));
	adp_tables_destroy(tables);
	adp_tables_destroy(again);
	adp_tables_destroy(NULL);
}

static void a_name_goes_before_its_architecture_and_that_before_the_default(void **state)
{
	struct adp_tables *tables = NULL;
	struct adp_error err = {0};
	struct adp_gpu_type named = h100(),
						kin = gpu_of("NVIDIA-H800", "Hopper", 90, 989e12, 989e12, 3e12, 200e9);
	struct adp_gpu_type stranger = gpu_of("X", "Y", 0, 1e12, 1e12, 1e12, 0), bare = {0};

	(void)state;
	assert_int_equal(adp_tables_load(&tables, NULL, &err), ADP_OK);
	assert_string_equal(cost_gpu_curves(tables, &named)->match, "NVIDIA-H100-80GB-HBM3");
	assert_string_equal(cost_gpu_curves(tables, &kin)->match, "arch:Hopper");
	assert_string_equal(cost_gpu_curves(tables, &stranger)->match, "default");
	assert_string_equal(cost_gpu_curves(tables, &bare)->match, "default");
	/* a name that looks like a key of another kind finds nothing by it */
	stranger.name = "arch:Hopper";
	stranger.arch = NULL;
	assert_string_equal(cost_gpu_curves(tables, &stranger)->match, "arch:Hopper");
	adp_tables_destroy(tables);
}

static void a_folder_replaces_the_tables_it_has(void **state)
{
	struct adp_tables *ours = NULL, *theirs = NULL;
	struct adp_error err = {0};
	char dir[] = "/tmp/adp-test-XXXXXX", path[64];
	const char *text = NULL;
	char *owned = NULL, *changed;
	size_t len = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/operators.csv", dir);
	assert_int_equal(adp_data_open(&text, &len, &owned, "operators.csv", NULL, &err), ADP_OK);
	changed = adp_strdup(text);
	assert_non_null(changed);
	memcpy(strstr(changed, "norm_elements,2"), "norm_elements,9", 15);
	assert_int_equal(adp_file_write(path, changed, len, 0, &err), ADP_OK);
	assert_int_equal(adp_tables_load(&ours, NULL, &err), ADP_OK);
	assert_int_equal(adp_tables_load(&theirs, dir, &err), ADP_OK);
	assert_near(theirs->op.norm_elements, 9, 0);
	assert_near(ours->op.norm_elements, 2, 0);
	assert_string_not_equal(adp_tables_version(ours), adp_tables_version(theirs));
	adp_tables_destroy(ours);
	adp_tables_destroy(theirs);
	adp_free(changed);
	unlink(path);
	rmdir(dir);
}

/* A shipped file with `old` replaced by `new` must be refused, naming what is expected in the
 * message. */
struct damage {
	const char *file, *old, *new, *message;
};
static const struct damage damages[] = {
	{"matmul.csv", "A100,16,64,", "A100,16,64,x", "matmul.csv:4: column 'k64'"},
	{"matmul.csv", "A100,16,64,", "A100,16,64,-", "matmul.csv:4: column 'k64'"},
	{"matmul.csv", "A100,16,64,0", "A100,16,64,7", "must be a number from 1e-09 to 1"},
	{"matmul.csv", "A100,16,64,", "A100,17,64,",
     "matmul.csv:4: column 'm': '17' must be a power of two"},
	{"matmul.csv", "A100,16,128,", "A100,16,129,", "matmul.csv:5: column 'n'"},
	{"matmul.csv", "A100,16,64,", "A101,16,64,",
     "matmul.csv:4: column 'curve': 'A101' is no curve"},
	{"matmul.csv", "A100,32,64,", "H100,32,64,", "column 'm'"},
	{"matmul.csv", "k64,k128", "k64,k129", "column 'k129'"},
	{"matmul.csv", "k64,k128", "k65,k128", "column 'k65'"},
	{"matmul.csv", "curve,m,n,", "curve,n,q,", "m"},
	{"matmul_curves.csv", "A100,2.74e-06", "A102,2.74e-06",
     "'A100' is no curve of matmul_curves.csv"},
	{"matmul_curves.csv", "A100,2.74e-06", "H100,2.74e-06", "occurs twice"},
	{"matmul_curves.csv", "A100,2.74e-06", ",2.74e-06", "column 'curve': '' must not be empty"},
	{"matmul_curves.csv", ",0.869,", ",1.869,", "column 'ceiling_frac'"},
	{"matmul_curves.csv", "memory_frac,", "memory_part,", "memory_frac"},
	{"attention.csv", "Ampere,0.355", "Ampere,0", "attention.csv:7: column 'flash_frac'"},
	{"attention.csv", "Ampere,0.355", "Amper,0.355", "'Ampere' is no row of attention.csv"},
	{"collectives.csv", "A100,3e+11,all_reduce,2,", "A100,3e+11,all_reduced,2,",
     "column 'op': 'all_reduced'"},
	{"collectives.csv", "A100,3e+11,all_reduce,4,", "A100,3e+11,all_reduce,2,", "column 'n_gpus'"},
	{"collectives.csv", "A100,3e+11,all_reduce,2,", "A100,3e+11,all_reduce,1.5,",
     "column 'n_gpus'"},
	{"collectives.csv", "A100,3e+11,all_reduce,2,", "A100,3e+11,all_reduce,2,nan,",
     "collectives.csv:"},
	{"collectives.csv", "A100,3e+11,all_reduce,2,", "A100,0,all_reduce,2,",
     "column 'link_bytes_per_s'"},
	{"collectives.csv", "b1024,b2048", "b1024,b4096", "column 'b4096'"},
	{"collectives.csv", "A100,3e+11,all_reduce,2,", "Q,3e+11,all_reduce,2,",
     "lacks one of the four operations"},
	{"collectives.csv", "curve,link", "kurve,link", "curve"},
	{"collective_links.csv", "nic,1,", "nik,1,", "column 'link': 'nik'"},
	{"collective_links.csv", "nic,1,", "nic,2,", "column 'p2p'"},
	{"collective_links.csv", "rack,1,", "nic,1,", "two rows"},
	{"collective_links.csv", "rack,1,", "rack,0,", "no row for rack with p2p 1"},
	{"collective_links.csv", "rack,1,2e-05", "rack,1,-1", "column 'start_s'"},
	{"operators.csv", "norm_elements,2", "norm_element,2", "'norm_element' is no known key"},
	{"operators.csv", "norm_elements,2", "rope_elements,2", "occurs twice"},
	{"operators.csv", "norm_elements,2", "norm_elements,inf", "column 'value'"},
	{"operators.csv", "norm_elements,2,one read and one write per hidden element and norm\n", "",
     "'norm_elements' is missing"},
	{"operators.csv", "key,value", "key,number", "value"},
	{"gpu_curves.csv", "NVIDIA-H200,H200", "NVIDIA-H200,H300", "column 'matmul_curve': 'H300'"},
	{"gpu_curves.csv", "NVIDIA-H200,H200,,1,1,0.10,Hopper", "NVIDIA-H200,H200,,1,1,0.10,Hopfen",
     "column 'attention': 'Hopfen'"},
	{"gpu_curves.csv", "NVIDIA-H200,H200,,1,1,0.10,Hopper,H200",
     "NVIDIA-H200,H200,,1,1,0.10,Hopper,H400", "column 'collective_curve': 'H400'"},
	{"gpu_curves.csv", "NVIDIA-H200,H200,,1,1,", "NVIDIA-H200,H200,,1,yes,",
     "column 'measured': 'yes' must be 0 or 1"},
	{"gpu_curves.csv", "NVIDIA-H200,H200,,1,1,", "NVIDIA-H200,H200,2,1,1,",
     "column 'ceiling_frac'"},
	{"gpu_curves.csv", "NVIDIA-H200,H200", "NVIDIA-B200,H200", "occurs twice"},
	{"gpu_curves.csv", "\ndefault,", "\nfault,", "no row whose match is 'default'"},
	{"gpu_curves.csv", "match,", "matches,", "match"},
};

static void a_damaged_table_is_refused_with_file_line_and_column(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
		const struct damage *d = &damages[i];
		struct adp_tables *tables = NULL;
		struct adp_error err = {0};
		const char *text = NULL, *at;
		char *owned = NULL, *bad;
		size_t len = 0, before;
		int rc;

		assert_int_equal(adp_data_open(&text, &len, &owned, d->file, NULL, &err), ADP_OK);
		at = strstr(text, d->old);
		if (!at)
			fail_msg("%s no longer has '%s'", d->file, d->old);
		bad = adp_malloc(len + strlen(d->new) + 1);
		assert_non_null(bad);
		before = (size_t)(at - text);
		memcpy(bad, text, before);
		snprintf(bad + before, len + strlen(d->new) + 1 - before, "%s%s", d->new,
		         at + strlen(d->old));
		rc = cost_tables_build(&tables, NULL, &(struct cost_table_text){d->file, bad, strlen(bad)},
		                       1, &err);
		if (rc != ADP_EINVAL || !strstr(err.text, d->message))
			fail_msg("%s '%s': code %d, text '%s', expected '%s'", d->file, d->new, rc, err.text,
			         d->message);
		assert_null(tables);
		adp_free(bad);
		adp_free(owned);
	}
}

static void a_table_without_rows_is_refused(void **state)
{
	(void)state;
	for (size_t i = 0; cost_table_file(i); i++) {
		struct adp_tables *tables = NULL;
		struct adp_error err = {0};
		const char *text = NULL, *end;
		char *owned = NULL;
		size_t len = 0;

		assert_int_equal(adp_data_open(&text, &len, &owned, cost_table_file(i), NULL, &err),
		                 ADP_OK);
		for (end = text; *end == '#'; end = strchr(end, '\n') + 1)
			;
		end = strchr(end, '\n') + 1; /* comments and header only */
		assert_int_equal(cost_tables_build(&tables, NULL,
		                                   &(struct cost_table_text){cost_table_file(i), text,
		                                                             (size_t)(end - text)},
		                                   1, &err),
		                 ADP_EINVAL);
		assert_non_null(strstr(err.text, ".csv"));
	}
}

/* Whatever allocation fails, the answer is out of memory and nothing leaks (the sanitizer build
 * sees it). */
static void each_failed_allocation_is_reported(void **state)
{
	struct adp_tables *tables = NULL;
	uint64_t n = 0;
	int rc = ADP_ENOMEM;

	(void)state;
	for (; rc; n++) {
		struct adp_error err = {0};

		adp_alloc_fail_after(n);
		rc = adp_tables_load(&tables, NULL, &err);
		adp_alloc_fail_after(UINT64_MAX);
		if (rc) {
			assert_int_equal(rc, ADP_ENOMEM);
			assert_null(tables);
		}
	}
	assert_true(n > 10);
	adp_tables_destroy(tables);
}

/* Every type of gpus.csv has a curve of its own or of its architecture, and reaches a believable
 * share of its peak. */
static void every_shipped_gpu_type_has_a_believable_rate(void **state)
{
	struct adp_tables *tables = NULL;
	struct adp_hardware *hw = NULL;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_tables_load(&tables, NULL, &err), ADP_OK);
	assert_int_equal(adp_hardware_load(&hw, NULL, NULL, &err), ADP_OK);
	for (uint32_t i = 0; i < hw->n_types; i++) {
		const struct adp_gpu_type *gpu = &hw->types[i];
		double bf16 = gpu->peak_flops_per_s[ADP_PRECISION_BF16], band = 0;
		enum adp_precision precision = bf16 > 0 ? ADP_PRECISION_BF16 : ADP_PRECISION_FP16;
		double peak = gpu->peak_flops_per_s[precision];
		double s = adp_matmul_s(tables, gpu, precision, 8192, 8192, 8192, &band);
		double share = 2.0 * 8192 * 8192 * 8192 / s / peak;

		if (!(share > 0.4 && share < 0.9))
			fail_msg("%s reaches %.2f of its peak", gpu->name, share);
		assert_true(band >= 0.1 && band <= 0.5);
		assert_string_not_equal(cost_gpu_curves(tables, gpu)->match, "default");
	}
	for (uint32_t row = 0; row < tables->n_gpu; row++) {
		const char *match = tables->gpu[row].match;
		bool found = strncmp(match, "arch:", 5) == 0 || strcmp(match, "default") == 0;

		for (uint32_t i = 0; i < hw->n_types; i++)
			found = found || strcmp(match, hw->types[i].name) == 0;
		if (!found)
			fail_msg("gpu_curves.csv names %s, which gpus.csv does not have", match);
	}
	adp_hardware_destroy(hw);
	adp_tables_destroy(tables);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_shipped_tables_load),
		cmocka_unit_test(every_shipped_gpu_type_has_a_believable_rate),
		cmocka_unit_test(a_name_goes_before_its_architecture_and_that_before_the_default),
		cmocka_unit_test(a_folder_replaces_the_tables_it_has),
		cmocka_unit_test(a_damaged_table_is_refused_with_file_line_and_column),
		cmocka_unit_test(a_table_without_rows_is_refused),
		cmocka_unit_test(each_failed_allocation_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
