/* SPDX-License-Identifier: Apache-2.0 */
/* `kubectl get nodes -o json|yaml`: which nodes may be used, and what each is. */
#include <stdio.h>
#include <string.h>

#include "cluster/k8s_node.h"
#include "cluster/name.h"

#define SETTING "adp.parallelism/"

static const char *scalar_text(const json_t *value, char buf[ADP_LABEL_SIZE])
{
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_integer(value))
		snprintf(buf, ADP_LABEL_SIZE, "%lld", (long long)json_integer_value(value));
	else if (json_is_boolean(value))
		snprintf(buf, ADP_LABEL_SIZE, "%s", json_is_true(value) ? "true" : "false");
	else
		return NULL;
	return buf;
}

const char *adp_k8s_label(const struct adp_k8s_node *node, const char *key,
                          char buf[ADP_LABEL_SIZE])
{
	return scalar_text(json_object_get(node->labels, key), buf);
}

const char *adp_k8s_setting(const struct adp_k8s_node *node, const char *key,
                            char buf[ADP_LABEL_SIZE])
{
	char name[64];
	const char *text;

	snprintf(name, sizeof name, SETTING "%s", key);
	text = scalar_text(json_object_get(node->annotations, name), buf);
	if (!text)
		text = scalar_text(json_object_get(node->labels, name), buf);
	return text && *text ? text : NULL;
}

static bool read_digits(uint64_t *out, const char *text)
{
	uint64_t n = 0;
	size_t i;

	for (i = 0; text[i] >= '0' && text[i] <= '9' && i < 18; i++)
		n = 10 * n + (uint64_t)(text[i] - '0');
	if (!i || text[i])
		return false;
	*out = n;
	return true;
}

bool adp_k8s_label_u64(uint64_t *out, const struct adp_k8s_node *node, const char *key)
{
	char buf[ADP_LABEL_SIZE];
	const char *text = adp_k8s_label(node, key, buf);

	return text && read_digits(out, text);
}

bool adp_k8s_resource(uint64_t *out, const json_t *list, const char *name)
{
	char buf[ADP_LABEL_SIZE];
	const char *text = scalar_text(json_object_get(list, name), buf);

	return text && read_digits(out, text);
}

/* ---- usable? ------------------------------------------------------------------------ */

static bool string_is(const json_t *object, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value && strcmp(value, text) == 0;
}

static bool is_one_of(const char *text, const char *const *words)
{
	for (; *words; words++) {
		if (strcmp(text, *words) == 0)
			return true;
	}
	return false;
}

/* Conditions that are True on a broken node: NVSentinel's fatal ones and node-problem-detector's.
 */
static const char *const bad_conditions[] = {
	"GpuMemWatch",
	"GpuNvlinkWatch",
	"GpuThermalWatch",
	"GpuThermalMarginWatch",
	"GpuPowerWatch",
	"GpuPcieWatch",
	"GpuSmWatch",
	"GpuInforomWatch",
	"GpuDriverWatch",
	"SysLogsXIDError",
	"SysLogsSXIDError",
	"SysLogsGPUFallenOff",
	"SysLogsNICDriverError",
	"KernelDeadlock",
	"ReadonlyFilesystem",
	"XfsShutdown",
	"CperHardwareErrorFatal",
	"KubeletUnhealthy",
	"ContainerRuntimeUnhealthy",
	"NetworkUnavailable",
	NULL,
};

/* Taints that mark GPU nodes as such; launchers tolerate them. */
static const char *const gpu_taints[] = {"nvidia.com/gpu", "nvidia.com/gpu.present", "amd.com/gpu",
                                         NULL};

static bool has_prefix(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* A node on its way out, or broken: nothing should tolerate these. */
static bool is_bad_taint(const char *key)
{
	static const char *const words[] = {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
	                                    NULL};

	return has_prefix(key, "node.kubernetes.io/") ||
	       has_prefix(key, "node.cloudprovider.kubernetes.io/") ||
	       has_prefix(key, "nvidia.com/gpu-") || is_one_of(key, words);
}

static int warn_out(bool *usable, struct adp_k8s *k8s, const char *node, const char *what,
                    const char *detail, struct adp_error *err)
{
	char shown[80];

	*usable = false;
	if (adp_build_warn(k8s->build, node, "left out: %s%s", what,
	                   adp_name_shown(shown, sizeof shown, detail)))
		return adp_nomem(err);
	return ADP_OK;
}

static int check_conditions(bool *usable, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                            struct adp_error *err)
{
	json_t *conditions = json_object_get(node->status, "conditions"), *condition;
	bool known = false;
	size_t i;

	json_array_foreach (conditions, i, condition) {
		const char *type = json_string_value(json_object_get(condition, "type"));

		if (!type)
			continue;
		if (strcmp(type, "Ready") == 0) {
			known = true;
			if (!string_is(condition, "status", "True"))
				return warn_out(usable, k8s, node->name, "not ready", "", err);
		} else if (string_is(condition, "status", "True") && is_one_of(type, bad_conditions)) {
			return warn_out(usable, k8s, node->name, "condition ", type, err);
		}
	}
	if (!known && adp_build_warn(k8s->build, node->name, "no Ready condition; taken as ready"))
		return adp_nomem(err);
	return ADP_OK;
}

static int check_taints(bool *usable, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                        struct adp_error *err)
{
	json_t *taints = json_object_get(node->spec, "taints"), *taint;
	char shown[80];
	size_t i;

	json_array_foreach (taints, i, taint) {
		const char *key = json_string_value(json_object_get(taint, "key"));

		if (!key || string_is(taint, "effect", "PreferNoSchedule") || is_one_of(key, gpu_taints))
			continue;
		if (is_bad_taint(key))
			return warn_out(usable, k8s, node->name, "taint ", key, err);
		if (adp_build_warn(k8s->build, node->name, "the job's pods must tolerate taint %s",
		                   adp_name_shown(shown, sizeof shown, key)))
			return adp_nomem(err);
	}
	return ADP_OK;
}

static int check_usable(bool *usable, struct adp_k8s *k8s, const struct adp_k8s_node *node,
                        struct adp_error *err)
{
	int rc;

	*usable = true;
	if (json_is_true(json_object_get(node->spec, "unschedulable")))
		return warn_out(usable, k8s, node->name, "cordoned (unschedulable)", "", err);
	rc = check_conditions(usable, k8s, node, err);
	return rc || !*usable ? rc : check_taints(usable, k8s, node, err);
}

/* ---- nodes -------------------------------------------------------------------------- */

static void note_memory(struct adp_k8s_memory *memory, uint64_t memory_mib)
{
	uint64_t bytes = memory_mib << 20;

	if (!memory_mib)
		memory->unlabelled = true;
	else if (!memory->least_bytes || bytes < memory->least_bytes)
		memory->least_bytes = bytes;
}

static int repeat_node(struct adp_k8s *k8s, const struct adp_k8s_node *node, uint32_t index,
                       uint32_t type, uint32_t n_gpus, struct adp_error *err)
{
	const struct adp_node *before = &k8s->build->nodes[index];
	char shown[80];

	if (before->type != type || before->n_gpus != n_gpus)
		return adp_fail(
			err, ADP_EINVAL, "node %s is listed twice, as %u x %s and %u x %s; list it once",
			adp_name_shown(shown, sizeof shown, node->name), before->n_gpus,
			k8s->build->types[before->type].alias, n_gpus, k8s->build->types[type].alias);
	if (adp_build_warn(k8s->build, node->name, "listed twice, counted once"))
		return adp_nomem(err);
	return ADP_OK;
}

static int add_node(struct adp_k8s *k8s, const struct adp_k8s_node *node, struct adp_error *err)
{
	const struct adp_gpu_type *type;
	uint32_t n_gpus, type_index, index;
	struct adp_node *out;
	uint64_t memory_mib;
	bool usable;
	int rc;

	if (!adp_k8s_has_gpus(node, k8s->build->hw))
		return adp_build_warn(k8s->build, node->name, "left out: no GPU resource and no GPU label")
		           ? adp_nomem(err)
		           : 0;
	rc = check_usable(&usable, k8s, node, err);
	if (rc || !usable)
		return rc;
	rc = adp_k8s_gpus(&type, &n_gpus, &memory_mib, k8s, node, err);
	if (rc || !type)
		return rc;
	rc = adp_build_type(&type_index, k8s->build, type, err);
	if (rc)
		return rc;
	note_memory(&k8s->memory[type_index], memory_mib);
	if (adp_build_has_node(k8s->build, node->name, &index))
		return repeat_node(k8s, node, index, type_index, n_gpus, err);
	rc = adp_build_node(&out, k8s->build, node->name, type_index, n_gpus, err);
	return rc ? rc : adp_k8s_place(out, k8s, node, err);
}

static const json_t *member_object(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_object(value) ? value : NULL;
}

static int read_node(struct adp_k8s *k8s, const json_t *object, const char *place,
                     struct adp_error *err)
{
	const json_t *metadata = member_object(object, "metadata");
	struct adp_k8s_node node = {
		.name = json_string_value(json_object_get(metadata, "name")),
		.labels = member_object(metadata, "labels"),
		.annotations = member_object(metadata, "annotations"),
		.spec = member_object(object, "spec"),
		.status = member_object(object, "status"),
	};

	if (!node.name)
		return adp_fail(
			err, ADP_EINVAL,
			"%s: %smetadata.name is missing; give the output of 'kubectl get nodes -o json'",
			k8s->where, place);
	node.allocatable = member_object(node.status, "allocatable");
	node.capacity = member_object(node.status, "capacity");
	return add_node(k8s, &node, err);
}

static int read_items(struct adp_k8s *k8s, const json_t *items, struct adp_error *err)
{
	const json_t *item;
	char place[48];
	size_t i;

	json_array_foreach ((json_t *)items, i, item) {
		const char *kind = json_string_value(json_object_get(item, "kind"));
		char shown[80];
		int rc;

		snprintf(place, sizeof place, "items[%zu].", i);
		if (kind && strcmp(kind, "Node") != 0)
			rc = adp_build_warn(k8s->build, NULL, "objects of kind %s are ignored",
			                    adp_name_shown(shown, sizeof shown, kind))
			         ? adp_nomem(err)
			         : ADP_OK;
		else
			rc = read_node(k8s, item, place, err);
		if (rc)
			return rc;
	}
	return ADP_OK;
}

bool adp_k8s_is_node_document(const json_t *document)
{
	const char *kind = json_string_value(json_object_get(document, "kind"));

	if (json_is_array(document) || json_is_array(json_object_get(document, "items")))
		return true;
	return kind && (strcmp(kind, "Node") == 0 || strcmp(kind, "List") == 0 ||
	                strcmp(kind, "NodeList") == 0);
}

int adp_k8s_read(struct adp_k8s *k8s, const json_t *document, struct adp_error *err)
{
	const json_t *items = json_object_get(document, "items");

	if (json_is_array(document))
		return read_items(k8s, document, err);
	if (json_is_array(items))
		return read_items(k8s, items, err);
	if (string_is(document, "kind", "Node"))
		return read_node(k8s, document, "", err);
	return adp_fail(
		err, ADP_EINVAL,
		"%s: items of the list are missing; give the output of 'kubectl get nodes -o json'",
		k8s->where);
}

int adp_k8s_finish(struct adp_k8s *k8s, struct adp_error *err)
{
	struct adp_build *b = k8s->build;

	for (uint32_t i = 0; i < b->n_types; i++) {
		const struct adp_k8s_memory *memory = &k8s->memory[i];

		if (memory->least_bytes &&
		    (!memory->unlabelled || memory->least_bytes < b->types[i].memory_bytes))
			b->types[i].memory_bytes = memory->least_bytes;
	}
	if (k8s->many_zones &&
	    adp_build_warn(b, NULL,
	                   "nodes lie in more than one zone; links between zones are taken as "
	                   "fast as inside one"))
		return adp_nomem(err);
	if (k8s->racks &&
	    adp_build_warn(b, NULL,
	                   "labels tell racks and spines but not their uplinks: taken as never the "
	                   "bottleneck; state them in a cluster file"))
		return adp_nomem(err);
	if (b->n_nodes &&
	    adp_build_warn(b, NULL,
	                   "a node list doesn't tell which GPUs other pods hold: all allocatable ones "
	                   "count as free"))
		return adp_nomem(err);
	return ADP_OK;
}
