/* SPDX-License-Identifier: Apache-2.0 */
#include "emit/emit_internal.h"

/* "t*5"; short runs are spelled out as the engine's own examples do. */
static void add_layers(struct adp_strbuf *out, uint32_t n)
{
	enum { SPELLED = 3 };

	if (n > SPELLED) {
		adp_strbuf_addf(out, "t*%u", n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		adp_strbuf_add(out, "t");
}

static int check_chunk(const struct adp_plan *plan, uint32_t stage, uint32_t chunk,
                       uint32_t *next_layer, struct adp_error *err)
{
	const struct adp_plan_stage *s = &plan->stages[stage];

	if (s->n_chunks != plan->vpp)
		return adp_fail(err, ADP_EINVAL,
		                "stages[%u]: %u virtual stages, but the virtual pipeline degree is %u",
		                stage, s->n_chunks, plan->vpp);
	if (s->embedding != (stage == 0) || s->head != (stage + 1 == plan->pp))
		return adp_fail(
			err, ADP_EINVAL,
			"stages[%u]: Megatron has the embedding on the first stage and norm, head and "
			"loss on the last",
			stage);
	if (s->n_layers[chunk] > 0 && s->first_layer[chunk] != *next_layer)
		return adp_fail(
			err, ADP_EINVAL,
			"stages[%u]: virtual stage %u starts at layer %u, expected layer %u; the "
			"layers must follow each other over all ranks' first virtual stages, then the second",
			stage, chunk, s->first_layer[chunk], *next_layer);
	if (s->n_layers[chunk] > plan->model.n_layers - *next_layer)
		return adp_fail(err, ADP_EINVAL,
		                "stages[%u]: virtual stage %u ends beyond the model's %u layers", stage,
		                chunk, plan->model.n_layers);
	*next_layer += s->n_layers[chunk];
	return ADP_OK;
}

int adp_emit_megatron_layout(char **out, const struct adp_plan *plan, struct adp_error *err)
{
	struct adp_strbuf text = {0};
	uint32_t layer = 0;

	for (uint32_t chunk = 0; chunk < plan->vpp; chunk++) {
		for (uint32_t stage = 0; stage < plan->pp; stage++) {
			int rc = check_chunk(plan, stage, chunk, &layer, err);

			if (rc) {
				adp_strbuf_fini(&text);
				return rc;
			}
			if (chunk + stage > 0)
				adp_strbuf_add(&text, "|");
			if (chunk == 0 && stage == 0)
				adp_strbuf_add(&text, "E");
			add_layers(&text, plan->stages[stage].n_layers[chunk]);
			if (chunk + 1 == plan->vpp && stage + 1 == plan->pp)
				adp_strbuf_add(&text, "L");
		}
	}
	if (layer != plan->model.n_layers) {
		adp_strbuf_fini(&text);
		return adp_fail(err, ADP_EINVAL, "stages: %u layers in all, but the model has %u", layer,
		                plan->model.n_layers);
	}
	*out = adp_strbuf_steal(&text);
	return *out ? ADP_OK : adp_nomem(err);
}
