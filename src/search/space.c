/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "search/space.h"

/* Beyond this many GPUs the search stops at a proven distance from the best. */
static const uint64_t large_fleet_gpus = 1024;
static const double large_fleet_tolerance = 0.03;

/* ---- which GPUs -------------------------------------------------------------------------- */

static bool names_type(const char *name, const struct adp_gpu_type *type)
{
	return strcasecmp(name, type->name) == 0 || (type->alias && strcasecmp(name, type->alias) == 0);
}

static bool is_nvidia(const struct adp_gpu_type *type)
{
	return strcmp(type->vendor, "NVIDIA") == 0;
}

/* The compute capabilities of an engine are NVIDIA's; other vendors have none. */
static bool has_capability(const struct adp_gpu_type *type, uint32_t least)
{
	return !is_nvidia(type) || type->compute_capability >= least;
}

/* NULL, or why the type cannot compute in the precision. */
static const char *no_precision(const struct adp_engine *engine, const struct adp_gpu_type *type,
                                enum adp_precision precision)
{
	if (precision == ADP_PRECISION_BF16 && !has_capability(type, engine->min_cc_bf16))
		return "it has no BF16 tensor cores";
	if (precision == ADP_PRECISION_FP8 && !has_capability(type, engine->min_cc_fp8))
		return "it has no FP8 tensor cores";
	if (type->peak_flops_per_s[precision] <= 0.0)
		return "it has no matrix path in this precision";
	return NULL;
}

/* The option for the best precision that the engine trains in on this type; NULL for none. */
static const char *other_precision(const struct adp_engine *engine, const struct adp_gpu_type *type)
{
	static const struct {
		enum adp_precision precision;
		const char *flag;
	} choices[] = {
		{ADP_PRECISION_BF16, "--precision bf16"},
		{ADP_PRECISION_FP16, "--precision fp16"},
		{ADP_PRECISION_TF32, "--precision tf32"},
		{ADP_PRECISION_FP32, "--precision fp32"},
	};

	for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
		if (engine->precision_mask & (1u << choices[i].precision) &&
		    !no_precision(engine, type, choices[i].precision))
			return choices[i].flag;
	return NULL;
}

bool space_type_allowed(const struct adp_engine *engine, const struct adp_train *train,
                        const struct adp_search_opts *opts, const struct adp_gpu_type *type,
                        const char **why, const char **flag)
{
	*flag = NULL;
	for (uint32_t i = 0; i < opts->n_exclude; i++)
		if (names_type(opts->exclude[i], type)) {
			*why = "left out by --exclude";
			*flag = "drop --exclude";
			return false;
		}
	if (engine->nvidia_only && !is_nvidia(type)) {
		*why = "this engine build runs on NVIDIA GPUs only";
		return false;
	}
	if (!has_capability(type, engine->min_compute_capability)) {
		*why = "its compute capability is below what the engine supports";
		return false;
	}
	*why = no_precision(engine, type, train->precision);
	if (*why)
		*flag = other_precision(engine, type);
	return !*why;
}

static double vendor_flops(const struct space *space, const char *vendor)
{
	double sum = 0.0;

	for (uint32_t t = 0; t < space->n_types; t++) {
		const struct adp_gpu_type *type = &space->cluster->types[space->types[t]];

		for (uint32_t i = 0; i < space->cluster->n_nodes && strcmp(type->vendor, vendor) == 0; i++)
			if (space->cluster->nodes[i].type == space->types[t])
				sum += space->cluster->nodes[i].n_gpus *
				       type->peak_flops_per_s[space->train->precision];
	}
	return sum;
}

/* No collective library spans vendors: the one with most to give keeps its types, or the one of a
 * required type. */
static void choose_vendor(struct space *space)
{
	const struct adp_gpu_type *types = space->cluster->types;
	const char *vendor = types[space->types[0]].vendor;
	uint32_t n = 0;

	for (uint32_t t = 1; t < space->n_types; t++)
		if (vendor_flops(space, types[space->types[t]].vendor) > vendor_flops(space, vendor))
			vendor = types[space->types[t]].vendor;
	for (uint32_t t = 0; t < space->n_types; t++)
		if (space->type_required[t])
			vendor = types[space->types[t]].vendor;
	for (uint32_t t = 0; t < space->n_types; t++)
		if (strcmp(types[space->types[t]].vendor, vendor) == 0) {
			space->type_required[n] = space->type_required[t];
			space->types[n++] = space->types[t];
		}
	space->n_types = n;
}

/* "T4: it has no BF16 tensor cores; try --precision fp16", each type. */
static int refuse_types(const struct space *space, struct adp_error *err)
{
	const struct adp_cluster *cluster = space->cluster;
	char text[1024] = "";
	size_t len = 0;

	if (!cluster->n_types)
		return adp_fail(err, ADP_EINFEASIBLE, "the fleet is empty");
	for (uint32_t t = 0; t < cluster->n_types && len < sizeof text; t++) {
		const char *why, *flag;
		int n;

		if (space_type_allowed(space->engine, space->train, space->opts, &cluster->types[t], &why,
		                       &flag))
			continue;
		n = snprintf(text + len, sizeof text - len, "%s%s: %s%s%s", len ? ", " : "",
		             cluster->types[t].name, why,
		             !flag          ? ""
		             : *flag == '-' ? "; try "
		                            : "; ",
		             flag ? flag : "");
		len += n > 0 ? (size_t)n : 0;
	}
	return adp_fail(err, ADP_EINFEASIBLE, "no GPU of the fleet can run this job: %s", text);
}

static int choose_types(struct space *space, const struct search_knobs *knobs,
                        struct adp_error *err)
{
	const struct adp_cluster *cluster = space->cluster;

	for (uint32_t t = 0; t < cluster->n_types; t++) {
		const char *why, *flag;

		if (!space_type_allowed(space->engine, space->train, space->opts, &cluster->types[t], &why,
		                        &flag))
			continue;
		if (space->n_types == ADP_SEARCH_MAX_TYPES)
			return adp_fail(
				err, ADP_ELIMIT,
				"the fleet has more than %d GPU types this job could use; leave some out with --exclude",
				ADP_SEARCH_MAX_TYPES);
		space->type_required[space->n_types] = knobs->require_type && knobs->require_type[t];
		space->types[space->n_types++] = t;
	}
	if (space->n_types == 0)
		return refuse_types(space, err);
	choose_vendor(space);
	return ADP_OK;
}

/* ---- which degrees -------------------------------------------------------------------- */

static bool pinned(const struct adp_pin *pin)
{
	return pin->min || pin->max;
}

static void list_add(struct list *list, uint32_t value)
{
	if (list->n < sizeof list->value / sizeof *list->value)
		list->value[list->n++] = value;
}

/* Pins that no legal plan meets, "; " between them: the user learns of all at once. */
struct refusals {
	char text[1600];
	size_t len;
};

static void refuse(struct refusals *r, const char *format, ...) ADP_PRINTF(2, 3);
static void refuse(struct refusals *r, const char *format, ...)
{
	size_t room = sizeof r->text - r->len;
	va_list args;
	int n;

	if (r->len && room > 2) {
		memcpy(r->text + r->len, "; ", 3);
		r->len += 2;
		room -= 2;
	}
	va_start(args, format);
	n = vsnprintf(r->text + r->len, room, format, args);
	va_end(args);
	if (n > 0)
		r->len += (size_t)n < room ? (size_t)n : room - 1;
}

/* The legal values on either side of a pin; 0 = none. */
struct nearest {
	uint32_t below, above;
};

static void refuse_pin(struct refusals *r, const struct adp_pin *pin, struct nearest nearest,
                       const char *flag, const char *rule)
{
	char value[32], legal[32];

	if (pin->min == pin->max)
		snprintf(value, sizeof value, "%u", pin->min);
	else
		snprintf(value, sizeof value, "%u..%u", pin->min, pin->max);
	if (nearest.below && nearest.above)
		snprintf(legal, sizeof legal, "%u and %u", nearest.below, nearest.above);
	else
		snprintf(legal, sizeof legal, "%u", nearest.below ? nearest.below : nearest.above);
	refuse(r, "%s %s: %s, nearest legal: %s", flag, value, rule, legal);
}

/* Keeps what the pin allows; a pin that nothing meets is refused with the nearest legal values. */
static void list_pin(struct list *list, const struct adp_pin *pin, const char *flag,
                     const char *rule, struct refusals *r)
{
	struct list kept = {.n = 0};
	struct nearest nearest = {0, 0};

	for (uint32_t i = 0; i < list->n; i++) {
		uint32_t v = list->value[i];

		if (pin_allows(pin, v))
			list_add(&kept, v);
		else if (v < pin->min)
			nearest.below = nearest.below > v ? nearest.below : v;
		else
			nearest.above = nearest.above && nearest.above < v ? nearest.above : v;
	}
	if (kept.n == 0)
		refuse_pin(r, pin, nearest, flag, rule);
	else
		*list = kept;
}

/* The same for a degree that may have any value up to max that divides `of`; 0 = any. */
static void range_pin(const struct adp_pin *pin, uint64_t max, uint64_t of, const char *flag,
                      const char *rule, struct refusals *r)
{
	struct nearest nearest = {0, 0};

	if (!pinned(pin))
		return;
	for (uint32_t v = 1; v <= max && !nearest.above; v++) {
		if (of && of % v)
			continue;
		if (pin_allows(pin, v))
			return;
		if (v < pin->min)
			nearest.below = v;
		else
			nearest.above = v;
	}
	refuse_pin(r, pin, nearest, flag, rule);
}

/* Adds "the 8 KV heads" to a list, once. */
static void add_width(char *text, size_t size, const char *what, uint64_t width, const char *more)
{
	char item[96];
	size_t len = strlen(text);

	snprintf(item, sizeof item, "the %" PRIu64 " %s%s", width, what, more);
	if (!strstr(text, item))
		snprintf(text + len, size - len, "%s%s", len ? ", " : "", item);
}

/* What a tensor degree must divide, or of one value: what it doesn't. */
static void tensor_rule(char *text, size_t size, const struct space *space,
                        const struct adp_pin *pin)
{
	uint32_t tp = pin->min == pin->max ? pin->min : 0;
	bool repeats = space->engine->kv_replication;
	char widths[512] = "";

	for (uint32_t b = 0; b < space->model->n_blocks; b++) {
		const struct adp_block *block = &space->model->blocks[b];
		uint32_t kv = block->n_kv_heads;

		if (!tp || block->n_heads % tp)
			add_width(widths, sizeof widths, "heads", block->n_heads, "");
		if (!tp || (kv % tp && !(repeats && tp % kv == 0)))
			add_width(widths, sizeof widths, "KV heads", kv,
			          repeats ? " (or be a multiple of them)" : "");
		if (block->ffn_hidden && (!tp || block->ffn_hidden % tp))
			add_width(widths, sizeof widths, "columns of the MLP", block->ffn_hidden, "");
		if (block->shared_ffn_hidden && (!tp || block->shared_ffn_hidden % tp))
			add_width(widths, sizeof widths, "columns of the shared experts",
			          block->shared_ffn_hidden, "");
	}
	if (!widths[0])
		snprintf(text, size, "at most %u here", space->engine->max_tensor);
	else
		snprintf(text, size, "must divide %s", widths);
}

static void gpu_pins(const struct space *space, const struct degrees *d, struct refusals *r)
{
	const struct adp_cluster *cluster = space->cluster;
	const struct adp_search_opts *opts = space->opts;
	const struct adp_engine *engine = space->engine;
	bool divides = engine->batch_divides_evenly || opts->equal_batches;
	uint32_t size = d->tp.value[0] * d->cp.value[0], least_pp = opts->pp.min ? opts->pp.min : 1;
	uint64_t n_gpus = 0, groups, max, seqs = space->train->global_batch_seqs;
	char rule[256];

	for (uint32_t i = 0; i < cluster->n_nodes; i++)
		for (uint32_t t = 0; t < space->n_types; t++)
			n_gpus += cluster->nodes[i].type == space->types[t] ? cluster->nodes[i].n_gpus : 0;
	range_pin(&opts->gpus, n_gpus, 0, "--gpus-used", "more than the fleet has for this job", r);
	if ((double)n_gpus > space->max_slots_gpus)
		n_gpus = (uint64_t)space->max_slots_gpus;
	groups = n_gpus / size ? n_gpus / size : 1;

	max = space->model->n_layers + 2u; /* embedding and head may stand alone */
	max = max < engine->max_pipeline ? max : engine->max_pipeline;
	max = max < ADP_SEARCH_MAX_PIPE ? max : ADP_SEARCH_MAX_PIPE;
	max = max < groups ? max : groups;
	snprintf(rule, sizeof rule,
	         "%u layers and %" PRIu64
	         " GPUs in groups of %u (tensor x context) give at most %" PRIu64 " stages",
	         space->model->n_layers, n_gpus, size, max);
	range_pin(&opts->pp, max, 0, "--pp", rule, r);

	if (least_pp > groups)
		return;
	max = groups / least_pp < seqs ? groups / least_pp : seqs;
	snprintf(rule, sizeof rule,
	         "%" PRIu64
	         " GPUs in groups of %u (tensor x context x pipeline) and a global batch of %" PRIu64
	         " give at most %" PRIu64 " replicas%s",
	         n_gpus, size * least_pp, seqs, max, divides ? ", a divisor of the batch" : "");
	range_pin(&opts->dp, max, divides ? seqs : 0, "--dp", rule, r);
}

static void zero_pin(struct degrees *d, const struct space *space, struct refusals *r)
{
	int want = space->opts->zero_stage;
	char have[64] = "";

	if (want < 0)
		return;
	for (uint32_t i = 0; i < d->zero.n; i++) {
		if (d->zero.value[i] == (uint32_t)want) {
			d->zero = (struct list){.value = {(uint32_t)want}, .n = 1};
			return;
		}
		snprintf(have + strlen(have), sizeof have - strlen(have), "%s%u", i ? ", " : "",
		         d->zero.value[i]);
	}
	refuse(r, "--zero %d: %s %s with this model, precision and optimizer runs ZeRO stage %s", want,
	       space->engine->name, space->engine->version, have);
}

/* Up to this many layers every number of virtual stages is tried; beyond, up to 8 (powers of two on
 * a large fleet). */
static const uint32_t small_model_layers = 16;

static bool is_adam(enum adp_optimizer optimizer)
{
	return optimizer == ADP_OPTIMIZER_ADAM || optimizer == ADP_OPTIMIZER_ADAMW;
}

/* Can GPUs of the type take part in context parallelism? */
static bool context_type(const struct space *space, uint32_t type)
{
	return adp_flash_available(space->engine, &space->cluster->types[type],
	                           space->train->precision);
}

static bool context_types(const struct space *space)
{
	for (uint32_t t = 0; t < space->n_types; t++)
		if (context_type(space, space->types[t]))
			return true;
	return false;
}

/* Does any tensor x context parallel size of the lists divide the sequence? */
static bool sequence_splits(const struct degrees *d, uint64_t seq_tokens)
{
	for (uint32_t a = 0; a < d->tp.n; a++)
		for (uint32_t b = 0; b < d->cp.n; b++)
			if (seq_tokens % ((uint64_t)d->tp.value[a] * d->cp.value[b]) == 0)
				return true;
	return false;
}

static int degrees_build(struct degrees *d, const struct space *space, struct adp_error *err)
{
	const struct adp_engine *engine = space->engine;
	const struct adp_train *train = space->train;
	const struct adp_search_opts *opts = space->opts;
	struct refusals refusals = {.len = 0};
	struct adp_divisors divisors;
	const struct adp_degrees *tps;
	uint32_t zero_mask = engine->zero_mask | engine->zero_mask_with_pipeline;
	char rule[640];
	int rc = adp_model_divisors(&divisors, space->model, space->arena, err);

	if (rc != ADP_OK)
		return rc;
	memset(d, 0, sizeof *d);
	tps = engine->kv_replication ? &divisors.tp_kv_replicated : &divisors.tp;
	for (uint32_t i = 0; i < tps->n; i++)
		if (tps->value[i] <= engine->max_tensor)
			list_add(&d->tp, tps->value[i]);
	tensor_rule(rule, sizeof rule, space, &opts->tp);
	list_pin(&d->tp, &opts->tp, "--tp", rule, &refusals);

	list_add(&d->cp, 1);
	for (uint32_t cp = 2; engine->context_parallel && context_types(space) && cp <= 64 &&
	                      train->seq_tokens % (2 * cp) == 0;
	     cp *= 2)
		list_add(&d->cp, cp);
	list_pin(&d->cp, &opts->cp, "--cp",
	         !engine->context_parallel ? "this engine has no context parallelism"
	         : context_types(space)
	             ? "must be a power of two, and twice it must divide the sequence"
	             : "no GPU of the fleet has a fused attention kernel in this precision",
	         &refusals);

	list_add(&d->ep, 1);
	for (uint32_t i = 0; engine->expert_parallel && i < divisors.ep.n; i++)
		if (divisors.ep.value[i] > 1)
			list_add(&d->ep, divisors.ep.value[i]);
	snprintf(rule, sizeof rule, "must divide the %u routed experts",
	         divisors.ep.n ? divisors.ep.value[divisors.ep.n - 1] : 1);
	list_pin(&d->ep, &opts->ep, "--ep",
	         !engine->expert_parallel ? "this engine has no expert parallelism"
	         : divisors.ep.n > 1      ? rule
	                                  : "the model has no routed experts",
	         &refusals);

	for (uint32_t m = 1; m <= 1024 && m <= train->global_batch_seqs; m++)
		if (train->global_batch_seqs % m == 0)
			list_add(&d->micro, m);
	snprintf(rule, sizeof rule, "must divide the global batch of %" PRIu64,
	         train->global_batch_seqs);
	list_pin(&d->micro, &opts->micro_batch, "--micro-batch", rule, &refusals);

	for (uint32_t v = 1; v <= (engine->virtual_pipeline ? space->model->n_layers : 1) && v <= 64;
	     v++)
		if (space->model->n_layers <= small_model_layers ||
		    (v <= 8 &&
		     (adp_cluster_n_gpus(space->cluster) <= large_fleet_gpus || (v & (v - 1)) == 0)))
			list_add(&d->vpp, v);
	list_pin(&d->vpp, &opts->vpp, "--vpp",
	         engine->virtual_pipeline
	             ? "at most 8 virtual stages a rank are tried, and no more than layers"
	             : "this engine has no interleaved schedule",
	         &refusals);

	for (uint32_t z = 0; z < 4; z++)
		if (zero_mask & (1u << z) &&
		    (z == 0 || !engine->zero_needs_adam || is_adam(train->optimizer)) &&
		    (z < 2 || ((!engine->zero23_needs_untied || !space->model->tied_embeddings) &&
		               (engine->zero23_allows_fp16 || train->precision != ADP_PRECISION_FP16))))
			list_add(&d->zero, z);
	zero_pin(d, space, &refusals);

	list_add(&d->sp, 0);
	if (engine->sequence_parallel)
		list_add(&d->sp, 1);
	if (opts->sequence_parallel > 0 && !engine->sequence_parallel)
		refuse(&refusals, "--sequence-parallel on: %s %s has none", engine->name, engine->version);
	if (opts->sequence_parallel >= 0)
		d->sp = (struct list){.value = {(uint32_t)opts->sequence_parallel}, .n = 1};
	if (opts->sequence_parallel > 0 && !sequence_splits(d, train->seq_tokens))
		refuse(
			&refusals,
			"--sequence-parallel on: tensor x context parallel must divide the sequence of %" PRIu64,
			train->seq_tokens);

	gpu_pins(space, d, &refusals);
	return refusals.len ? adp_fail(err, ADP_EINVAL, "%s", refusals.text) : ADP_OK;
}

/* ---- units ---------------------------------------------------------------------------- */

static int unit_compare(const void *a, const void *b)
{
	const struct unit *x = a, *y = b;

	if (x->bound_s != y->bound_s)
		return x->bound_s < y->bound_s ? -1 : 1;
	if (x->shape != y->shape)
		return x->shape < y->shape ? -1 : 1;
	if (x->zero_stage != y->zero_stage)
		return x->zero_stage < y->zero_stage ? -1 : 1;
	if (x->vpp != y->vpp)
		return x->vpp < y->vpp ? -1 : 1;
	if (x->recompute != y->recompute)
		return x->recompute < y->recompute ? -1 : 1;
	return (int)x->hybrid - (int)y->hybrid;
}

static int units_build(struct space *space, const struct degrees *d, struct adp_error *err)
{
	const struct adp_engine *engine = space->engine;
	size_t max = (size_t)space->n_shapes * d->zero.n * d->vpp.n * ADP_N_RECOMPUTE * 2;
	struct unit *units = adp_arena_calloc(space->arena, max, sizeof *units);
	int want = space->opts->recompute;

	if (!units)
		return adp_nomem(err);
	if (want >= 0 && !(engine->recompute_mask & (1u << want)))
		return adp_fail(err, ADP_EINVAL, "--recompute %s: %s %s does not offer it",
		                adp_recompute_name((enum adp_recompute)want), engine->name,
		                engine->version);
	for (uint32_t s = 0; s < space->n_shapes; s++)
		for (uint32_t z = 0; z < d->zero.n; z++)
			for (uint32_t v = 0; v < d->vpp.n; v++)
				for (int r = -1; r < ADP_N_RECOMPUTE; r++)
					for (int h = 0; h < 2; h++) {
						struct unit u = {.shape = s,
						                 .recompute = r,
						                 .zero_stage = d->zero.value[z],
						                 .vpp = d->vpp.value[v],
						                 .hybrid = h};

						if (h && (!engine->hsdp || u.zero_stage < 2))
							continue;
						if (want >= 0 ? r != want
						    : engine->recompute_per_stage
						        ? r != -1
						        : r < 0 || !(engine->recompute_mask & (1u << r)))
							continue;
						u.bound_s = unit_bound(space, &u);
						units[space->n_units++] = u;
					}
	qsort(units, space->n_units, sizeof *units, unit_compare);
	space->units = units;
	return ADP_OK;
}

int space_build(struct space *out, const struct adp_model *model, const struct adp_cluster *cluster,
                const struct adp_engine *engine, const struct adp_tables *tables,
                const struct adp_train *train, const struct adp_search_opts *opts,
                struct adp_arena *arena, const struct search_knobs *knobs, struct adp_error *err)
{
	struct degrees degrees;
	uint32_t *before;
	int rc;

	*out = (struct space){.model = model,
	                      .cluster = cluster,
	                      .engine = engine,
	                      .tables = tables,
	                      .train = train,
	                      .opts = opts,
	                      .arena = arena,
	                      .memory_scale = knobs->memory_scale,
	                      .max_slots_gpus = opts->gpus.max ? (double)opts->gpus.max
	                                                       : (double)INFINITY};
	if (train->global_batch_seqs == 0 || train->seq_tokens == 0)
		return adp_fail(err, ADP_EINVAL, "global batch and sequence length must be at least 1");
	if (model->n_blocks > ADP_SEARCH_MAX_BLOCKS)
		return adp_fail(err, ADP_ELIMIT, "%s has %u kinds of blocks; at most %d are supported",
		                model->name, model->n_blocks, ADP_SEARCH_MAX_BLOCKS);
	if (model->n_layers > ADP_SEARCH_MAX_LAYERS)
		return adp_fail(err, ADP_ELIMIT, "%s has %u layers; at most %d are supported", model->name,
		                model->n_layers, ADP_SEARCH_MAX_LAYERS);
	if (!(engine->precision_mask & (1u << train->precision)))
		return adp_fail(err, ADP_EINVAL, "--precision %s: %s %s does not train in it",
		                adp_precision_name(train->precision), engine->name, engine->version);
	rc = choose_types(out, knobs, err);
	if (rc == ADP_OK)
		rc = degrees_build(&degrees, out, err);
	if (rc != ADP_OK)
		return rc;
	before = adp_arena_calloc(arena, (size_t)model->n_blocks * (model->n_layers + 1),
	                          sizeof *before);
	if (!before)
		return adp_nomem(err);
	for (uint32_t i = 0; i < model->n_items; i++) {
		const struct adp_item *item = &model->items[i];

		if (item->kind != ADP_ITEM_BLOCK)
			continue;
		for (uint32_t k = 0; k < model->n_blocks; k++)
			before[k * (model->n_layers + 1) + item->layer + 1] =
				before[k * (model->n_layers + 1) + item->layer] +
				(item->block == &model->blocks[k]);
	}
	out->n_before = before;
	out->tolerance_frac = fmax(knobs->tolerance_frac, adp_cluster_n_gpus(cluster) > large_fleet_gpus
	                                                      ? large_fleet_tolerance
	                                                      : 0.0);
	rc = shapes_build(out, &degrees, err);
	return rc == ADP_OK ? units_build(out, &degrees, err) : rc;
}
