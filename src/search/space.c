/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "search/internal.h"

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

struct list {
	uint32_t value[256];
	uint32_t n;
};

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

struct degrees {
	struct list tp, cp, ep, micro, vpp, zero, sp;
};

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

/* ---- what each shape costs ------------------------------------------------------------ */

/* A group of n ranks, stride apart in rank order, on GPUs of a class. */
static struct adp_path class_path(const struct slot_class *cls, const struct adp_gpu_type *gpu,
                                  uint32_t n, uint32_t stride, uint32_t region_gpus)
{
	struct adp_path path = {.n_levels = 0};
	uint32_t inner = 1;

	assert(stride > 0);
	for (uint32_t f = n; f > 1; f--)
		if (n % f == 0 && f * stride <= region_gpus && region_gpus % (f * stride) == 0) {
			inner = f;
			break;
		}
	path.level[0] = (struct adp_path_level){inner, cls->gpu_link, gpu};
	path.level[1] = (struct adp_path_level){n / inner, cls->far, gpu};
	path.n_levels = n / inner > 1 ? 2 : 1;
	return path;
}

static double padded_vocab(const struct space *space, uint32_t tp)
{
	double unit = (double)space->engine->vocab_multiple * tp;

	return ceil((double)space->model->vocab / unit) * unit;
}

/* Elements of one rank: expert parameters apart, the vocabulary padded. */
static void elements(double *dense, double *expert, const struct space *space,
                     const struct adp_param *params, uint32_t n, const struct adp_shape *shape)
{
	*dense = *expert = 0.0;
	for (uint32_t i = 0; i < n; i++) {
		double count = (double)adp_param_count(&params[i]);

		switch (params[i].shard) {
		case ADP_SHARD_REPLICATED:
			*dense += count;
			break;
		case ADP_SHARD_COLUMN:
		case ADP_SHARD_ROW:
			*dense += count / shape->tp;
			break;
		case ADP_SHARD_VOCAB:
			*dense += padded_vocab(space, shape->tp) / shape->tp * (double)params[i].cols;
			break;
		case ADP_SHARD_EXPERT:
			*expert += count / ((double)shape->ep * shape->etp);
			break;
		}
	}
}

/* As the evaluator chooses links: inside the domain, or the slower of the two ways out. */
static void shape_sends(struct shape_cost *out, const struct space *space)
{
	const struct slots *slots = out->slots;

	for (uint32_t t = 0; t < space->n_types; t++) {
		out->near_send_s[t] = INFINITY;
		out->near_dp[t] = slots->type[t].scattered ? UINT32_MAX : 0;
		for (uint32_t u = 0; u < space->n_types; u++)
			out->far_send_s[t][u] = INFINITY;
	}
	for (uint32_t i = 0; i < slots->n_classes; i++) {
		const struct slot_class *a = &slots->classes[i];
		const struct adp_gpu_type *gpu = &space->cluster->types[a->type];
		double far_s = send_time(space, &a->far, gpu, out->send_bytes);

		for (uint32_t t = 0; t < space->n_types; t++) {
			if (space->types[t] != a->type)
				continue;
			out->near_send_s[t] = fmin(out->near_send_s[t],
			                           send_time(space, &a->gpu_link, gpu, out->send_bytes));
			if (a->per_domain > out->near_dp[t])
				out->near_dp[t] = a->per_domain;
			for (uint32_t j = 0; j < slots->n_classes; j++) {
				const struct slot_class *b = &slots->classes[j];

				for (uint32_t u = 0; u < space->n_types; u++)
					if (space->types[u] == b->type && a->far.bytes_per_s <= b->far.bytes_per_s) {
						out->far_send_s[t][u] = fmin(out->far_send_s[t][u], far_s);
						out->far_send_s[u][t] = fmin(out->far_send_s[u][t], far_s);
					}
			}
		}
	}
}

static int shape_build(struct shape_cost *out, const struct space *space,
                       const struct adp_shape *shape, const struct slots *slots,
                       struct adp_error *err)
{
	const struct adp_model *model = space->model;
	struct adp_item_time *block, *end;
	double unused;

	memset(out, 0, sizeof *out);
	out->shape = *shape;
	out->slots = slots;
	block = adp_arena_calloc(space->arena, (size_t)slots->n_classes * model->n_blocks,
	                         sizeof *block);
	end = adp_arena_calloc(space->arena, (size_t)slots->n_classes * N_END_KINDS, sizeof *end);
	if (!block || !end)
		return adp_nomem(err);
	for (uint32_t c = 0; c < slots->n_classes; c++) {
		const struct slot_class *cls = &slots->classes[c];
		const struct adp_gpu_type *gpu = &space->cluster->types[cls->type];
		uint32_t inside = cls->n_spanned > 1 ? cls->domain_gpus : cls->per_domain * slots->size;
		struct adp_path tp = class_path(cls, gpu, shape->tp, 1, inside);
		struct adp_path cp = class_path(cls, gpu, shape->cp, shape->tp, inside);
		struct adp_path ep = class_path(cls, gpu, shape->ep, shape->etp, inside);

		for (uint32_t i = 0; i < model->n_items; i++) {
			const struct adp_item *item = &model->items[i];
			struct adp_item_time t, *to;
			int rc;

			if (item->kind == ADP_ITEM_BLOCK) {
				to = &block[c * model->n_blocks + (uint32_t)(item->block - model->blocks)];
				if (to->fwd_s > 0.0)
					continue;
			} else {
				to = &end[c * N_END_KINDS +
				          (item->kind == ADP_ITEM_EMBEDDING ? KIND_EMBEDDING : KIND_TAIL)];
			}
			rc = adp_item_time(&t, space->tables, space->engine, model, item, space->train, shape,
			                   gpu, cls->speed_frac, &tp, &cp, &ep, err);
			if (rc != ADP_OK)
				return rc;
			to->rel_error = fmax(to->rel_error, t.rel_error);
			to->fwd_s += t.fwd_s;
			to->bwd_s += t.bwd_s;
			for (uint32_t r = 0; r < ADP_N_RECOMPUTE; r++)
				to->recompute_s[r] += t.recompute_s[r];
			to->fwd_matmul_s += t.fwd_matmul_s;
			to->fwd_attention_s += t.fwd_attention_s;
			to->fwd_memory_s += t.fwd_memory_s;
			to->fwd_launch_s += t.fwd_launch_s;
			to->fwd_tp_s += t.fwd_tp_s;
			to->fwd_cp_s += t.fwd_cp_s;
			to->fwd_ep_s += t.fwd_ep_s;
		}
	}
	out->block = block;
	out->end = end;
	out->send_bytes = (double)shape->micro_batch_seqs * (double)space->train->seq_tokens /
	                  shape->cp * (double)model->hidden *
	                  (space->train->precision <= ADP_PRECISION_TF32 ? 4.0 : 2.0) /
	                  (shape->sequence_parallel ? shape->tp : 1.0);
	shape_sends(out, space);
	for (uint32_t i = 0; i < model->n_items; i++) {
		const struct adp_item *item = &model->items[i];

		if (item->kind == ADP_ITEM_BLOCK) {
			uint32_t k = (uint32_t)(item->block - model->blocks);

			elements(&out->block_elems[k], &out->block_expert_elems[k], space, item->params,
			         item->n_params, shape);
		} else {
			double dense;

			elements(&dense, &unused, space, item->params, item->n_params, shape);
			out->end_elems[item->kind == ADP_ITEM_EMBEDDING ? KIND_EMBEDDING : KIND_TAIL] += dense;
		}
	}
	return ADP_OK;
}

static const struct slots *slots_of(struct space *space, struct slots *all, uint32_t size,
                                    struct adp_error *err, int *rc)
{
	for (uint32_t i = 0; i < space->n_slots; i++)
		if (all[i].size == size)
			return &all[i];
	*rc = slots_build(&all[space->n_slots], space, size, err);
	return *rc == ADP_OK ? &all[space->n_slots++] : NULL;
}

enum shape_verdict {
	SHAPE_LEGAL,
	SHAPE_NEEDS_SP,
	SHAPE_UNEVEN_SEQUENCE,
	SHAPE_UNEVEN_EXPERTS,
	SHAPE_TOO_LARGE,
	N_SHAPE_VERDICTS
};

static enum shape_verdict shape_judge(const struct space *space, const struct adp_shape *shape,
                                      uint64_t expert_width, double n_gpus)
{
	assert(shape->tp > 0 && shape->cp > 0 && shape->etp > 0);
	if (shape->tp > 1 && expert_width && space->engine->moe_tp_needs_sp &&
	    !shape->sequence_parallel)
		return SHAPE_NEEDS_SP;
	/* each rank takes an equal share of the sequence */
	if (shape->tp > 1 && shape->sequence_parallel &&
	    space->train->seq_tokens % ((uint64_t)shape->tp * shape->cp))
		return SHAPE_UNEVEN_SEQUENCE;
	/* and of each expert's width */
	if (expert_width % shape->etp)
		return SHAPE_UNEVEN_EXPERTS;
	/* an expert group must fit what data parallelism can give */
	if ((double)shape->ep * shape->etp > n_gpus)
		return SHAPE_TOO_LARGE;
	return SHAPE_LEGAL;
}

static int shapes_build(struct space *space, const struct degrees *d, struct adp_error *err)
{
	uint64_t max = (uint64_t)d->tp.n * d->cp.n * d->ep.n * d->micro.n * 4;
	struct slots *all = adp_arena_calloc(space->arena, (size_t)d->tp.n * d->cp.n, sizeof *all);
	struct shape_cost *shapes = adp_arena_calloc(space->arena, (size_t)max, sizeof *shapes);
	double n_gpus = fmin((double)adp_cluster_n_gpus(space->cluster), space->max_slots_gpus);
	const struct adp_block *last = &space->model->blocks[space->model->n_blocks - 1];
	uint64_t expert_width = last->n_experts ? last->expert_ffn_hidden : 0;
	bool any[N_SHAPE_VERDICTS] = {false};
	int rc = ADP_OK;

	if (!all || !shapes)
		return adp_nomem(err);
	for (uint32_t a = 0; a < d->tp.n; a++)
		for (uint32_t b = 0; b < d->cp.n; b++) {
			uint32_t tp = d->tp.value[a], cp = d->cp.value[b], n_slots = 0;
			const struct slots *slots;

			if ((double)tp * cp > n_gpus) {
				space->n_refused++;
				continue;
			}
			slots = slots_of(space, all, tp * cp, err, &rc);
			if (!slots)
				return rc;
			for (uint32_t t = 0; t < space->n_types; t++)
				n_slots += slots->type[t].n;
			if (n_slots == 0) {
				space->n_refused++;
				continue;
			}
			for (uint32_t i = 0; i < d->ep.n * 2 * d->sp.n * d->micro.n; i++) {
				uint32_t of_ep = i / (2 * d->sp.n * d->micro.n), rest = i / d->micro.n;
				bool experts_whole = rest / d->sp.n % 2;
				struct adp_shape shape = {.tp = tp,
				                          .cp = cp,
				                          .ep = d->ep.value[of_ep],
				                          .etp = experts_whole ? 1 : tp,
				                          .sequence_parallel = d->sp.value[rest % d->sp.n],
				                          .micro_batch_seqs = d->micro.value[i % d->micro.n],
				                          .precision = space->train->precision};
				enum shape_verdict verdict;

				/* where TP is 1 these are the same shape twice */
				if (tp == 1 && (experts_whole || (shape.sequence_parallel && d->sp.n > 1)))
					continue;
				if (experts_whole && (!expert_width || !space->engine->expert_tensor_parallel))
					continue;
				verdict = shape_judge(space, &shape, expert_width, n_gpus);
				any[verdict] = true;
				if (verdict != SHAPE_LEGAL) {
					space->n_refused++;
					continue;
				}
				rc = shape_build(&shapes[space->n_shapes], space, &shape, slots, err);
				if (rc != ADP_OK)
					return rc;
				space->n_shapes++;
			}
		}
	space->slots = all;
	space->shapes = shapes;
	if (space->n_shapes == 0 && any[SHAPE_UNEVEN_EXPERTS])
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"no tensor parallel size allowed here divides the experts' width of %" PRIu64,
			expert_width);
	if (space->n_shapes == 0 && any[SHAPE_UNEVEN_SEQUENCE])
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"--seq %" PRIu64
			": sequence parallelism needs a tensor x context parallel size that divides it",
			space->train->seq_tokens);
	if (space->n_shapes == 0)
		return adp_fail(
			err, ADP_EINFEASIBLE,
			"no tensor x context parallel group fits the fleet: the smallest allowed needs %u GPUs of one type "
			"in one node or in whole nodes",
			d->tp.value[0] * d->cp.value[0]);
	return ADP_OK;
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
