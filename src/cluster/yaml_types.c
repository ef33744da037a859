/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/yaml_types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/doc.h"
#include "cluster/name.h"
#include "cluster/yaml_values.h"

enum { MAX_TYPES = 1024 };

static const char *const type_keys[] = {
	"name",        "base",
	"alias",       "vendor",
	"arch",        "computeCapability",
	"memory",      "memoryBandwidth",
	"tflops",      "measuredBf16Tflops",
	"nvlink",      "nvlinkDomainGpus",
	"pcie",        "gpusPerRootPort",
	"nicPerGpu",   "gpusPerNode",
	"nicsPerNode", "tdp",
	"minPower",    NULL,
};

static int read_text(const char **field, struct adp_arena *arena, const json_t *object,
                     const char *key, const char *path, struct adp_error *err)
{
	const char *text = NULL;
	int rc = adp_yaml_name(&text, object, key, path, err);

	if (rc || !text)
		return rc;
	*field = adp_arena_strdup(arena, text);
	return *field ? ADP_OK : adp_nomem(err);
}

static int read_tflops(struct adp_gpu_type *type, const json_t *object, const char *path,
                       struct adp_error *err)
{
	static const char *const keys[] = {"fp32", "tf32", "fp16", "bf16", "fp8", NULL};
	json_t *tflops;
	char inner[64];
	bool found;
	int rc = adp_doc_object(&tflops, &found, object, "tflops", path, err);

	if (rc || !found)
		return rc;
	snprintf(inner, sizeof inner, "%s.tflops", path);
	rc = adp_doc_only(tflops, keys, inner, err);
	for (int i = 0; i < ADP_N_PRECISIONS && !rc; i++) {
		double number;

		rc = adp_doc_double(&number, &found, tflops, adp_precision_name((enum adp_precision)i), 0,
		                    1e7, inner, err);
		if (!rc && found)
			type->peak_flops_per_s[i] = number * 1e12;
	}
	return rc;
}

/* "9.0", or the number 9.0. */
static int read_capability(uint32_t *out, const json_t *object, const char *path,
                           struct adp_error *err)
{
	const json_t *value = json_object_get(object, "computeCapability");
	const char *text = json_string_value(value);
	double number = json_number_value(value);

	if (!value || json_is_null(value))
		return ADP_OK;
	if (text && strlen(text) >= 3 && strlen(text) <= 4 && text[strlen(text) - 2] == '.') {
		number = 0;
		for (const char *c = text; *c && number >= 0; c++) {
			if (*c != '.')
				number = *c >= '0' && *c <= '9' ? 10 * number + (*c - '0') : -1;
		}
		number /= 10;
	}
	if (!(number >= 1 && number < 100))
		return adp_fail(err, ADP_EINVAL, "%s.computeCapability: give it as \"9.0\"", path);
	*out = (uint32_t)lround(number * 10);
	return ADP_OK;
}

static int read_links(struct adp_gpu_type *type, const json_t *object, const char *path,
                      struct adp_error *err)
{
	bool nvlink;
	int rc;

	rc = adp_yaml_bandwidth(&type->nvlink_bytes_per_s, &nvlink, object, "nvlink", path, err);
	if (!rc)
		rc = adp_yaml_u32(&type->nvlink_domain_gpus, NULL, object, "nvlinkDomainGpus", 0, 65536,
		                  path, err);
	if (!rc)
		rc = adp_yaml_bandwidth(&type->pcie_bytes_per_s, NULL, object, "pcie", path, err);
	if (!rc)
		rc = adp_yaml_u32(&type->gpus_per_root, NULL, object, "gpusPerRootPort", 1, 64, path, err);
	if (!rc)
		rc = adp_yaml_bandwidth(&type->nic_bytes_per_s, NULL, object, "nicPerGpu", path, err);
	if (!rc)
		rc = adp_yaml_u32(&type->node_gpus, NULL, object, "gpusPerNode", 1, ADP_MAX_NODE_GPUS, path,
		                  err);
	if (!rc)
		rc = adp_yaml_u32(&type->node_nics, NULL, object, "nicsPerNode", 1, 1024, path, err);
	if (!rc && nvlink && !type->nvlink_domain_gpus)
		return adp_fail(err, ADP_EINVAL,
		                "%s.nvlinkDomainGpus is missing; give the number of GPUs that nvlink joins",
		                path);
	return rc;
}

static int read_properties(struct adp_gpu_type *type, struct adp_arena *arena, const json_t *object,
                           const char *path, struct adp_error *err)
{
	double number;
	bool found;
	int rc;

	rc = read_text(&type->vendor, arena, object, "vendor", path, err);
	if (!rc)
		rc = read_text(&type->arch, arena, object, "arch", path, err);
	if (!rc)
		rc = read_capability(&type->compute_capability, object, path, err);
	if (!rc)
		rc = adp_yaml_bytes(&type->memory_bytes, &found, object, "memory", path, err);
	if (!rc && found && (type->memory_bytes < 1 << 26 || type->memory_bytes > 1ull << 50))
		return adp_fail(err, ADP_EINVAL, "%s.memory: not between 64 MiB and 1 PiB", path);
	if (!rc)
		rc = adp_yaml_bandwidth(&type->memory_bytes_per_s, NULL, object, "memoryBandwidth", path,
		                        err);
	if (!rc)
		rc = read_tflops(type, object, path, err);
	if (!rc)
		rc = adp_doc_double(&number, &found, object, "measuredBf16Tflops", 0, 1e7, path, err);
	if (!rc && found && number * 1e12 > type->peak_flops_per_s[ADP_PRECISION_BF16])
		return adp_fail(
			err, ADP_EINVAL,
			"%s.measuredBf16Tflops is %g, more than the peak of %g; correct it, or give "
			"the peak as tflops.bf16",
			path, number, type->peak_flops_per_s[ADP_PRECISION_BF16] / 1e12);
	if (!rc && found)
		type->measured_bf16_flops_per_s = number * 1e12;
	if (!rc)
		rc = read_links(type, object, path, err);
	if (!rc)
		rc = adp_yaml_watts(&type->tdp_w, NULL, object, "tdp", path, err);
	return rc ? rc : adp_yaml_watts(&type->min_power_w, NULL, object, "minPower", path, err);
}

static int check_complete(struct adp_gpu_type *type, const char *path, struct adp_error *err)
{
	const char *missing = NULL;

	if (!type->memory_bytes)
		missing = "memory";
	else if (type->memory_bytes_per_s <= 0)
		missing = "memoryBandwidth";
	else if (adp_gpu_type_peak(type) <= 0)
		missing = "tflops.bf16 or tflops.fp16";
	else if (type->pcie_bytes_per_s <= 0)
		missing = "pcie";
	else if (!type->node_gpus)
		missing = "gpusPerNode";
	else if (type->nic_bytes_per_s <= 0)
		missing = "nicPerGpu";
	if (missing)
		return adp_fail(
			err, ADP_EINVAL,
			"%s: GPU type '%s' is new and has no %s; give it, or 'base' with a known type to "
			"start from",
			path, type->name, missing);
	if (type->measured_bf16_flops_per_s > type->peak_flops_per_s[ADP_PRECISION_BF16])
		type->measured_bf16_flops_per_s =
			0; /* a lower peak was given: the old ceiling says nothing about it */
	if (!type->node_nics)
		type->node_nics = type->node_gpus;
	if (!type->gpus_per_root)
		type->gpus_per_root = 1;
	return ADP_OK;
}

static int refuse_unknown(const char *path, const char *key, const char *name, const char *near,
                          struct adp_error *err)
{
	char shown[80];

	return adp_fail(err, ADP_EINVAL, "%s.%s: '%s' names no single GPU type%s%s; use its full name",
	                path, key, adp_name_shown(shown, sizeof shown, name),
	                near[0] ? ", nearest " : "", near);
}

static struct adp_gpu_type *find_by_name(struct adp_hardware *hw, struct adp_gpu_type *types,
                                         const char *name)
{
	const struct adp_gpu_type *type = adp_hardware_find(hw, name, 0, NULL, 0);

	return type ? &types[type - hw->types] : NULL;
}

static int read_type(struct adp_hardware *hw, struct adp_gpu_type *types, struct adp_arena *arena,
                     const json_t *object, const char *path, struct adp_error *err)
{
	const char *name = NULL, *base = NULL, *alias = NULL;
	struct adp_gpu_type *type;
	const struct adp_gpu_type *from;
	char near[160];
	int rc;

	rc = adp_doc_only(object, type_keys, path, err);
	if (!rc)
		rc = adp_doc_string(&name, NULL, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_name(&name, object, "name", path, err);
	if (!rc)
		rc = adp_yaml_name(&base, object, "base", path, err);
	if (!rc)
		rc = adp_yaml_name(&alias, object, "alias", path, err);
	if (rc)
		return rc;
	type = find_by_name(hw, types, name);
	if (type && base)
		return adp_fail(err, ADP_EINVAL,
		                "%s.base: '%s' is a known GPU type and starts from itself; leave base out",
		                path, type->alias);
	if (!type) {
		type = &types[hw->n_types++];
		*type = (struct adp_gpu_type){.alias = "",
		                              .aka = "",
		                              .vendor = "NVIDIA",
		                              .arch = "",
		                              .mixes_with = "",
		                              .unverified = ""};
		if (base) {
			hw->n_types--; /* not to find the unfinished one */
			from = adp_hardware_find(hw, base, 0, near, sizeof near);
			hw->n_types++;
			if (!from)
				return refuse_unknown(path, "base", base, near, err);
			*type = *from;
			type->aka = type->mixes_with = "";
		}
		type->name = adp_arena_strdup(arena, name);
		type->alias = adp_arena_strdup(arena, alias ? alias : name);
		type->source = "cluster file";
		if (!type->name || !type->alias)
			return adp_nomem(err);
	} else if (alias) {
		return adp_fail(err, ADP_EINVAL, "%s.alias: the type is known as %s; leave alias out", path,
		                type->alias);
	}
	rc = read_properties(type, arena, object, path, err);
	return rc ? rc : check_complete(type, path, err);
}

static int check_names(const struct adp_hardware *hw, struct adp_error *err)
{
	for (uint32_t i = 0; i < hw->n_types; i++) {
		const char *names[] = {hw->types[i].name, hw->types[i].alias};

		for (int k = 0; k < 2; k++) {
			if (adp_hardware_find(hw, names[k], 0, NULL, 0) != &hw->types[i])
				return adp_fail(
					err, ADP_EINVAL,
					"gpuTypes: more than one GPU type answers to '%s'; choose another alias",
					names[k]);
		}
	}
	return ADP_OK;
}

int adp_yaml_types(const struct adp_hardware **out, struct adp_arena *arena,
                   const struct adp_hardware *hw, const json_t *document, struct adp_error *err)
{
	struct adp_gpu_type *types;
	struct adp_hardware *local;
	json_t *list, *item;
	char path[48];
	bool found;
	size_t i;
	int rc;

	*out = hw;
	rc = adp_doc_array(&list, &found, document, "gpuTypes", "", err);
	if (rc || !found)
		return rc;
	if (json_array_size(list) > MAX_TYPES)
		return adp_fail(err, ADP_ELIMIT, "gpuTypes: more than %d types", MAX_TYPES);
	local = adp_arena_calloc(arena, 1, sizeof *local);
	types = adp_arena_calloc(arena, hw->n_types + json_array_size(list), sizeof *types);
	if (!local || !types)
		return adp_nomem(err);
	*local = *hw;
	memcpy(types, hw->types, hw->n_types * sizeof *types);
	local->types = types;
	json_array_foreach (list, i, item) {
		snprintf(path, sizeof path, "gpuTypes[%zu]", i);
		rc = read_type(local, types, arena, item, path, err);
		if (rc)
			return rc;
	}
	*out = local;
	return check_names(local, err);
}
