/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cost_fixture.h"
#include "cost_models.h"

/* Layer times that others measured. The files are no part of the project: these tests pass without
 * them. */
#define PLANNERS ADP_SOURCE_DIR "/../shared/data/planners/"

static struct adp_tables *tables;

static int load(void **state)
{
	struct adp_error err = {0};

	(void)state;
	return adp_tables_load(&tables, NULL, &err);
}

static int unload(void **state)
{
	(void)state;
	adp_tables_destroy(tables);
	return 0;
}

static json_t *open_measured(const char *path)
{
	json_t *json = json_load_file(path, 0, NULL);

	if (!json)
		print_message("skipped: %s is not there\n", path);
	return json;
}

static struct adp_item_time predict(struct hand_model *h, struct adp_gpu_type *gpu,
                                    enum adp_precision precision, uint64_t seq,
                                    uint64_t micro_batch, uint32_t tp, uint32_t min_cc_flash)
{
	struct adp_engine engine = hand_engine();
	struct adp_train train = {.seq_tokens = seq, .precision = precision};
	struct adp_shape shape = {tp, 1, 1, 1, false, micro_batch, precision};
	struct adp_path path = path_of(gpu, tp, ADP_LINK_NVLINK, gpu->nvlink_bytes_per_s), none = {0};
	struct adp_item_time t = {0};
	struct adp_error err = {0};

	engine.min_cc_flash = min_cc_flash;
	if (adp_item_time(&t, tables, &engine, &h->model, &h->item[ADP_ITEM_BLOCK], &train, &shape, gpu,
	                  1, &path, &none, &none, &err))
		fail_msg("%s", err.text);
	return t;
}

/* PKU-DAIR/Hetu-Galvatron@cea12ff: forward ms of one Llama-2-7B layer and sequence of 2048, BF16.
 * The GPU isn't named; 36 GB budget and 160 GB/s all-reduce are those of an A100-40. */
static void llama_7b_layers_on_a100_agree_with_galvatron(void **state)
{
	json_t *json = open_measured(
		PLANNERS "galvatron/gpt_configs/computation_profiling_bf16_llama2-7b_all.json");
	struct adp_gpu_type gpu = a100();
	struct hand_model h;

	(void)state;
	if (!json)
		return;
	gpu.name = "NVIDIA-A100-SXM4-40GB";
	gpu.memory_bytes_per_s = 1.555e12;
	llama2_7b(&h);
	for (uint64_t batch = 1; batch <= 12; batch++) {
		char key[64];
		double measured, ms = 1e3 *
		                      predict(&h, &gpu, ADP_PRECISION_BF16, 2048, batch, 1, 80).fwd_s /
		                      (double)batch;

		snprintf(key, sizeof key, "layertype_0_bsz%d_seq2048", (int)batch);
		measured = json_real_value(json_object_get(json, key));
		print_message("micro-batch %2d: measured %.3f ms, predicted %.3f ms, ratio %.2f\n",
		              (int)batch, measured, ms, ms / measured);
		assert_true(ms / measured > 1 / 1.25 && ms / measured < 1.25);
	}
	json_decref(json);
}

/* eth-easl/sailor@cf2c8e3: [forward, backward, update] seconds of a layer in FP32, sequence 8192,
 * hidden 4096, 32 heads, gated MLP of 16384 (parameters 268,496,896 = 4 x 4096^2 + 3 x 4096 x 16384
 * + 2 x 32768 of norms and biases), scores stored. */
static void llama_8b_layers_agree_with_sailor(void **state)
{
	static const char *const names[] = {"A100-40", "V100-16"};

	(void)state;
	for (int g = 0; g < 2; g++) {
		struct adp_gpu_type gpu = g ? v100() : a100();
		struct hand_model h;
		const char *mbs_key, *tp_key;
		json_t *json, *by_tp, *layers;
		char path[512];

		snprintf(path, sizeof path,
		         PLANNERS "sailor/profiles_layer_times/LLAMA-3-8/%s/profile.json", names[g]);
		json = open_measured(path);
		if (!json)
			return;
		if (!g) {
			gpu.name = "NVIDIA-A100-SXM4-40GB";
			gpu.memory_bytes_per_s = 1.555e12;
		}
		llama2_7b(&h);
		h.block.ffn_hidden = 16384;
		json_object_foreach (json, mbs_key, by_tp) {
			json_object_foreach (by_tp, tp_key, layers) {
				json_t *times = json_object_get(layers, "5");
				double fwd = json_real_value(json_array_get(times, 0)),
					   bwd = json_real_value(json_array_get(times, 1));
				struct adp_item_time t = predict(&h, &gpu, ADP_PRECISION_FP32, 8192,
				                                 (uint64_t)(mbs_key[0] - '0'),
				                                 (uint32_t)(tp_key[0] - '0'), 80);

				print_message("%s micro-batch %s TP %s: forward %.1f / %.1f ms (%.2f), backward "
				              "%.1f / %.1f ms (%.2f)\n",
				              names[g], mbs_key, tp_key, 1e3 * t.fwd_s, 1e3 * fwd, t.fwd_s / fwd,
				              1e3 * t.bwd_s, 1e3 * bwd, t.bwd_s / bwd);
				assert_true(t.fwd_s / fwd > 1 / 1.4 && t.fwd_s / fwd < 1.4);
				assert_true(t.bwd_s / bwd > 1 / 1.4 && t.bwd_s / bwd < 1.4);
			}
		}
		json_decref(json);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(llama_7b_layers_on_a100_agree_with_galvatron),
		cmocka_unit_test(llama_8b_layers_agree_with_sailor),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
