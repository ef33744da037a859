/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "adp/units.h"
#include "base/number.h"

static uint64_t bytes(const char *text)
{
	struct adp_error err = {0};
	uint64_t value = 0;

	if (adp_parse_bytes(&value, text, "memory", &err))
		fail_msg("%s", err.text);
	return value;
}

typedef int parse_fn(double *out, const char *text, const char *what, struct adp_error *err);

static double read(parse_fn *parse, const char *text)
{
	struct adp_error err = {0};
	double value = 0;

	if (parse(&value, text, "value", &err))
		fail_msg("%s", err.text);
	return value;
}

static void sizes_are_decimal_or_binary_as_written(void **state)
{
	(void)state;
	assert_int_equal(bytes("80GiB"), UINT64_C(80) << 30);
	assert_int_equal(bytes("80GB"), UINT64_C(80000000000));
	assert_int_equal(bytes("512Mi"), UINT64_C(512) << 20);
	assert_int_equal(bytes("81559 MiB"), UINT64_C(81559) << 20);
	assert_int_equal(bytes("1.5Ki"), 1536);
	assert_int_equal(bytes("1e3"), 1000);
	assert_int_equal(bytes("0"), 0);
	assert_int_equal(bytes("18446744073709551615"), UINT64_MAX);
}

static int read_bytes(double *out, const char *text, const char *what, struct adp_error *err)
{
	uint64_t value;
	int rc = adp_parse_bytes(&value, text, what, err);

	*out = 0;
	return rc;
}

static void check_refused(parse_fn *parse, const char *const *texts)
{
	struct adp_error err;
	double value;

	for (; *texts; texts++) {
		err = (struct adp_error){0};
		if (parse(&value, *texts, "the-field", &err) != ADP_EINVAL)
			fail_msg("'%s' was accepted", *texts);
		assert_non_null(strstr(err.text, "the-field"));
		assert_non_null(strstr(err.text, *texts));
	}
}

static void bad_sizes_are_refused_by_name(void **state)
{
	static const char *const texts[] = {"",
	                                    " ",
	                                    "GB",
	                                    "-1",
	                                    "+1",
	                                    "1 2",
	                                    "80Gb",
	                                    "80GBs",
	                                    "80GB ",
	                                    "nan",
	                                    "inf",
	                                    "0x10",
	                                    "18446744073709551616",
	                                    "16777216TiB",
	                                    "0.1B",
	                                    "1.5",
	                                    "0.0001kB",
	                                    "1e999",
	                                    "1e20GB",
	                                    NULL};

	(void)state;
	check_refused(read_bytes, texts);
}

static void bandwidth_is_in_bytes_per_second(void **state)
{
	static const char *const texts[] = {"400",    "400G",      "400GB", "50 gb",
	                                    "-1GB/s", "1e308TB/s", "GB/s",  NULL};

	(void)state;
	assert_true(read(adp_parse_bandwidth, "400Gb/s") == 50e9);
	assert_true(read(adp_parse_bandwidth, "400 Gbps") == 50e9);
	assert_true(read(adp_parse_bandwidth, "50GB/s") == 50e9);
	assert_true(read(adp_parse_bandwidth, "3.35TB/s") == 3.35e12);
	assert_true(read(adp_parse_bandwidth, "1GiB/s") == 0x1p30);
	check_refused(adp_parse_bandwidth, texts);
}

static void durations_are_in_seconds_and_may_be_compound(void **state)
{
	static const char *const texts[] = {"5",    "5x",  "1m1h",   "1h1h", "1h 30m",
	                                    "1h30", "-5s", "1e308w", NULL};

	(void)state;
	assert_true(read(adp_parse_duration, "30d") == 30 * 86400.0);
	assert_true(read(adp_parse_duration, "12h") == 43200);
	assert_true(read(adp_parse_duration, "1h30m") == 5400);
	assert_true(fabs(read(adp_parse_duration, "20us") - 20e-6) < 1e-18);
	assert_true(fabs(read(adp_parse_duration, "20\xc2\xb5s") - 20e-6) < 1e-18);
	check_refused(adp_parse_duration, texts);
}

static void counts_take_the_trade_s_suffixes(void **state)
{
	static const char *const texts[] = {"15TB", "x", "-3", "1e300P", "1.2.3", "", NULL};

	(void)state;
	assert_true(read(adp_parse_count, "15T") == 15e12);
	assert_true(read(adp_parse_count, "2.5B") == 2.5e9);
	assert_true(read(adp_parse_count, "300M") == 300e6);
	assert_true(read(adp_parse_count, "1e12") == 1e12);
	assert_true(read(adp_parse_count, "4096") == 4096);
	check_refused(adp_parse_count, texts);
}

static void shares_are_numbers_up_to_one_or_percent(void **state)
{
	static const char *const texts[] = {"1.5", "150%", "20 %", "-0.1", "nan", "0.2x", "%", NULL};

	(void)state;
	assert_true(read(adp_parse_frac, "0.2") == 0.2);
	assert_true(read(adp_parse_frac, "20%") == 0.2);
	assert_true(read(adp_parse_frac, "1") == 1);
	check_refused(adp_parse_frac, texts);
}

static int read_u64(double *out, const char *text, const char *what, struct adp_error *err)
{
	uint64_t value;
	int rc = adp_parse_u64(&value, text, what, err);

	*out = 0;
	return rc;
}

static void whole_numbers_are_digits_only(void **state)
{
	static const char *const texts[] = {
		"", "1.0", "1e3", " 1", "-1", "+1", "18446744073709551616", "99999999999999999999", NULL};
	uint64_t value;

	(void)state;
	assert_int_equal(adp_parse_u64(&value, "18446744073709551615", "n", NULL), ADP_OK);
	assert_int_equal(value, UINT64_MAX);
	check_refused(read_u64, texts);
}

typedef char *format_fn(char *out, size_t size, double value);

static void check_shown(format_fn *format, double value, const char *expected)
{
	char text[32];

	assert_string_equal(format(text, sizeof text, value), expected);
}

static void three_digits_are_shown(void **state)
{
	(void)state;
	check_shown(adp_format_bytes, 0, "0 B");
	check_shown(adp_format_bytes, 512, "512 B");
	check_shown(adp_format_bytes, 80e9, "74.5 GiB");            /* 80e9 / 2^30 = 74.506 */
	check_shown(adp_format_bytes, 0x1p30 * 1023.9, "1.00 TiB"); /* not "1024 GiB" */
	check_shown(adp_format_bytes, 0x1p64 * 1000, "16000 EiB");
	check_shown(adp_format_count, 70.6e9, "70.6B");
	check_shown(adp_format_count, 1.25e6, "1.25M");
	check_shown(adp_format_count, 128, "128");
	check_shown(adp_format_count, 999.96e9, "1.00T");
	check_shown(adp_format_count, -2500, "-2.50k");
	check_shown(adp_format_bandwidth, 50e9, "50.0 GB/s");
	check_shown(adp_format_duration, 8.42, "8.42 s");
	check_shown(adp_format_duration, 13.2 * 86400, "13.2 d");
	check_shown(adp_format_duration, 0, "0 s");
	check_shown(adp_format_duration, 20e-6, "20.0 us");
	check_shown(adp_format_duration, 3e-9, "3.00 ns");
	check_shown(adp_format_duration, 119, "119 s");
	check_shown(adp_format_duration, 5400, "90.0 min");
	check_shown(adp_format_duration, -0.5, "-500 ms");
	check_shown(adp_format_duration, (double)INFINITY, "infinite");
	check_shown(adp_format_duration, (double)-INFINITY, "-infinite");
	check_shown(adp_format_bytes, (double)NAN, "unknown");
	check_shown(adp_format_count, (double)-INFINITY, "-infinite");
	check_shown(adp_format_duration, (double)NAN, "unknown");
}

static void shown_text_never_leaves_its_room(void **state)
{
	char text[4] = "....";

	(void)state;
	adp_format_bytes(text, 3, 80e9);
	assert_memory_equal(text, "74\0.", 4);
}

static void numbers_read_back_as_they_were(void **state)
{
	static const double values[] = {0.1,  1.0 / 3,       1e21, 5e-324, 1.7976931348623157e308,
	                                -0.0, 123456789.125, 100,  1e15};
	static const char *const texts[] = {"0.1",
	                                    "0.3333333333333333",
	                                    "1.0e+21",
	                                    "4.94065645841247e-324",
	                                    "1.7976931348623157e+308",
	                                    "-0.0",
	                                    "123456789.125",
	                                    "100.0",
	                                    "1.0e+15"};
	char text[ADP_NUMBER_SIZE];
	double back;

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		adp_number_format(text, values[i]);
		assert_string_equal(text, texts[i]);
		assert_true(adp_number_parse(&back, text, strlen(text)));
		assert_memory_equal(&back, &values[i], sizeof back);
	}
	assert_false(adp_number_parse(&back, "1e999", 5));
	assert_false(adp_number_parse(&back, "-", 1));
	assert_false(adp_number_parse(&back, "", 0));
	assert_false(adp_number_parse(&back, "1,5", 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_decimal_or_binary_as_written),
		cmocka_unit_test(bad_sizes_are_refused_by_name),
		cmocka_unit_test(bandwidth_is_in_bytes_per_second),
		cmocka_unit_test(durations_are_in_seconds_and_may_be_compound),
		cmocka_unit_test(counts_take_the_trade_s_suffixes),
		cmocka_unit_test(shares_are_numbers_up_to_one_or_percent),
		cmocka_unit_test(whole_numbers_are_digits_only),
		cmocka_unit_test(three_digits_are_shown),
		cmocka_unit_test(shown_text_never_leaves_its_room),
		cmocka_unit_test(numbers_read_back_as_they_were),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
