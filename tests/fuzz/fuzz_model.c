/* SPDX-License-Identifier: Apache-2.0 */
/* links: model; covers: src/model/read*.c src/model/config.c src/model/model.c */
#include <math.h>
#include <stdlib.h>

#include "adp/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds of every model that was read. */
static void check(const struct adp_model *model)
{
	struct adp_arena arena = {0};
	struct adp_divisors divisors;
	uint64_t params = adp_model_params(model), active = adp_model_active_params(model);
	double flops = adp_model_flops(model, 4096);

	if (params == 0 || params > INT64_MAX || active > params ||
	    model->n_items != model->n_layers + 4)
		abort();
	if (!isfinite(flops) || flops <= 0)
		abort();
	for (uint32_t i = 0; i < model->n_items; i++)
		if (adp_item_activation_bytes(model, &model->items[i]) < 0)
			abort();
	if (adp_model_divisors(&divisors, model, &arena, NULL) == ADP_OK &&
	    (!adp_degrees_has(&divisors.tp, 1) ||
	     !adp_degrees_has(&divisors.pp_uniform, model->n_layers)))
		abort();
	adp_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct adp_error err = {0};
	struct adp_model *model;
	int rc = adp_model_read(&model, (const char *)data, size, "fuzz.json", &err);

	if (rc == ADP_OK)
		check(model);
	else if (model || rc != err.code || !err.text[0])
		abort();
	adp_model_destroy(model);
	return 0;
}
