/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "adp/hardware.h"
#include "cluster/name.h"

static const char *const precision_names[ADP_N_PRECISIONS] = {
	[ADP_PRECISION_FP32] = "fp32", [ADP_PRECISION_TF32] = "tf32", [ADP_PRECISION_FP16] = "fp16",
	[ADP_PRECISION_BF16] = "bf16", [ADP_PRECISION_FP8] = "fp8",
};

const char *adp_precision_name(enum adp_precision precision)
{
	return (unsigned)precision < ADP_N_PRECISIONS ? precision_names[precision] : "?";
}

int adp_precision_parse(enum adp_precision *out, const char *text, struct adp_error *err)
{
	static const struct {
		const char *text;
		enum adp_precision precision;
	} others[] = {
		{"float32", ADP_PRECISION_FP32},
		{"float16", ADP_PRECISION_FP16},
		{"half", ADP_PRECISION_FP16},
		{"bfloat16", ADP_PRECISION_BF16},
	};
	char key[16], shown[48];

	adp_name_gpu(key, sizeof key, text, strlen(text));
	for (unsigned i = 0; i < ADP_N_PRECISIONS; i++) {
		if (strcmp(key, precision_names[i]) == 0) {
			*out = (enum adp_precision)i;
			return ADP_OK;
		}
	}
	for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
		if (strcmp(key, others[i].text) == 0) {
			*out = others[i].precision;
			return ADP_OK;
		}
	}
	return adp_fail(err, ADP_EINVAL,
	                "precision '%s' is not known; use fp32, tf32, fp16, bf16 or fp8",
	                adp_name_shown(shown, sizeof shown, text));
}

double adp_gpu_type_peak(const struct adp_gpu_type *type)
{
	double fp16 = type->peak_flops_per_s[ADP_PRECISION_FP16];
	double bf16 = type->peak_flops_per_s[ADP_PRECISION_BF16];

	return fp16 > bf16 ? fp16 : bf16;
}

const struct adp_link_class *adp_hardware_link(const struct adp_hardware *hw, const char *name)
{
	for (uint32_t i = 0; i < hw->n_links; i++) {
		if (strcmp(hw->links[i].name, name) == 0)
			return &hw->links[i];
	}
	return NULL;
}

/* How a type answers to a name. */
enum match { MATCH_NONE, MATCH_PREFIX, MATCH_EXACT };

static enum match match_one(const char *key, const char *spelling, size_t len)
{
	char other[ADP_NAME_SIZE];
	size_t n = strlen(key);

	adp_name_gpu(other, sizeof other, spelling, len);
	if (strncmp(other, key, n) != 0)
		return MATCH_NONE;
	if (!other[n])
		return MATCH_EXACT;
	return other[n] == '-' ? MATCH_PREFIX : MATCH_NONE;
}

static enum match match_type(const char *key, const struct adp_gpu_type *type)
{
	enum match best = match_one(key, type->name, strlen(type->name)), next;

	next = match_one(key, type->alias, strlen(type->alias));
	if (next > best)
		best = next;
	for (const char *at = type->aka; *at && best != MATCH_EXACT;) {
		size_t len = strcspn(at, ";");

		next = match_one(key, at, len);
		if (next == MATCH_EXACT) /* other spellings don't widen what a prefix may mean */
			best = next;
		at += len + (at[len] == ';');
	}
	return best;
}

/* Memory labels lie a little under the nominal size; sizes of one product are 1.5 times apart and
 * more. */
static bool memory_fits(const struct adp_gpu_type *type, uint64_t memory_mib)
{
	double label = (double)memory_mib * 0x1p20, table = (double)type->memory_bytes;

	return label > 0.88 * table && label < 1.12 * table;
}

struct candidate {
	const struct adp_gpu_type *type;
	size_t distance;
};

static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *left = a, *right = b;

	if (left->distance != right->distance)
		return left->distance < right->distance ? -1 : 1;
	return adp_name_compare(left->type->alias, right->type->alias);
}

/* The most fitting few, kept sorted. */
enum { MAX_NEAR = 5 };
struct shortlist {
	struct candidate list[MAX_NEAR + 1];
	size_t n;
};

static void consider(struct shortlist *list, const struct adp_gpu_type *type, size_t distance)
{
	list->list[list->n++] = (struct candidate){type, distance};
	qsort(list->list, list->n, sizeof *list->list, compare_candidates);
	if (list->n > MAX_NEAR)
		list->n = MAX_NEAR;
}

static void print_shortlist(char *near, size_t size, const struct shortlist *list)
{
	size_t at = 0;

	if (!near || !size)
		return;
	near[0] = '\0';
	for (size_t i = 0; i < list->n; i++) {
		const char *alias = list->list[i].type->alias;
		size_t len = strlen(alias), gap = i ? 2 : 0;

		if (at + gap + len + 1 > size)
			return;
		memcpy(near + at, ", ", gap);
		memcpy(near + at + gap, alias, len + 1);
		at += gap + len;
	}
}

static void list_near(struct shortlist *list, const struct adp_hardware *hw, const char *key)
{
	char alias[ADP_NAME_SIZE];
	size_t limit = strlen(key) / 3 + 1;

	for (uint32_t i = 0; i < hw->n_types; i++) {
		size_t distance;

		adp_name_gpu(alias, sizeof alias, hw->types[i].alias, strlen(hw->types[i].alias));
		distance = adp_name_distance(key, alias);
		if (distance <= limit)
			consider(list, &hw->types[i], distance);
	}
}

const struct adp_gpu_type *adp_hardware_find(const struct adp_hardware *hw, const char *name,
                                             uint64_t memory_mib, char *near, size_t near_size)
{
	const struct adp_gpu_type *exact = NULL, *prefix = NULL, *sized = NULL;
	uint32_t n_exact = 0, n_prefix = 0, n_sized = 0;
	struct shortlist list = {.n = 0};
	char key[ADP_NAME_SIZE], alias[ADP_NAME_SIZE];

	if (near && near_size)
		near[0] = '\0';
	for (uint32_t i = 0; i < hw->n_types; i++) { /* as labels and most users write it */
		if (strcmp(hw->types[i].name, name) == 0 || strcmp(hw->types[i].alias, name) == 0)
			return &hw->types[i];
	}
	adp_name_gpu(key, sizeof key, name, strlen(name));
	if (!key[0])
		return NULL;
	for (uint32_t i = 0; i < hw->n_types; i++) {
		const struct adp_gpu_type *type = &hw->types[i];
		enum match match = match_type(key, type);

		if (match == MATCH_NONE)
			continue;
		if (match == MATCH_EXACT) {
			exact = type;
			n_exact++;
		} else {
			prefix = type;
			n_prefix++;
			if (memory_mib && memory_fits(type, memory_mib)) {
				sized = type;
				n_sized++;
			}
		}
		adp_name_gpu(alias, sizeof alias, type->alias, strlen(type->alias));
		consider(&list, type, adp_name_distance(key, alias));
	}
	if (n_exact == 1)
		return exact;
	if (!n_exact && n_prefix == 1)
		return prefix;
	if (!n_exact && n_sized == 1)
		return sized;
	if (!list.n)
		list_near(&list, hw, key);
	print_shortlist(near, near_size, &list);
	return NULL;
}
