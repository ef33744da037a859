/* SPDX-License-Identifier: Apache-2.0 */
/* GPU type and count of a Kubernetes node, from labels that are known to lie in known ways. */
#include <stdio.h>
#include <string.h>

#include "cluster/k8s_node.h"
#include "cluster/name.h"

#define PRODUCT "nvidia.com/gpu.product"
#define COUNT "nvidia.com/gpu.count"
#define MEMORY "nvidia.com/gpu.memory"
#define MACHINE "nvidia.com/gpu.machine"

/* Above this a memory label is in bytes, not MiB: no GPU has 10 TB (k8s-device-plugin PR 1222). */
static const uint64_t MAX_LABEL_MIB = 10000000;

/* What the labels of one node say, oddities taken out. */
struct reading {
	const struct adp_k8s_node *node;
	struct adp_k8s *k8s;
	char product[ADP_LABEL_SIZE]; /* "" = none to believe */
	bool display;                 /* the label named a display card */
	bool shared;                  /* allocatable GPUs are shares of physical ones */
	bool slices;                  /* allocatable GPUs are MIG slices */
	bool machine;                 /* the type comes from what the machine is sold with */
	uint64_t memory_mib;
};

static int leave_out(struct reading *r, struct adp_error *err, const char *reason)
{
	return adp_build_warn(r->k8s->build, r->node->name, "left out: %s", reason) ? adp_nomem(err)
	                                                                            : ADP_OK;
}

static int warn(struct reading *r, struct adp_error *err, const char *text)
{
	return adp_build_warn(r->k8s->build, r->node->name, "%s", text) ? adp_nomem(err) : ADP_OK;
}

static bool contains_nocase(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (; *text; text++) {
		size_t i = 0;

		while (i < len && (text[i] | 32) == word[i])
			i++;
		if (i == len)
			return true;
	}
	return false;
}

static bool cut_suffix(char *text, const char *suffix)
{
	size_t len = strlen(text), n = strlen(suffix);

	if (len < n || strcmp(text + len - n, suffix) != 0)
		return false;
	text[len - n] = '\0';
	return true;
}

static uint64_t label_mib(const struct adp_k8s_node *node, const char *key)
{
	uint64_t memory;

	if (!adp_k8s_label_u64(&memory, node, key))
		return 0;
	return memory > MAX_LABEL_MIB ? memory >> 20 : memory;
}

static void read_labels(struct reading *r)
{
	char buf[ADP_LABEL_SIZE];
	const char *text = adp_k8s_label(r->node, PRODUCT, buf);
	uint64_t number;

	if (text)
		snprintf(r->product, sizeof r->product, "%s", text);
	r->shared = cut_suffix(r->product, "-SHARED");
	text = strstr(r->product, "-MIG-");
	r->slices = text || adp_k8s_label(r->node, "cloud.google.com/gke-gpu-partition-size", buf);
	text = adp_k8s_label(r->node, "nvidia.com/gpu.sharing-strategy", buf);
	if (text && (strcmp(text, "time-slicing") == 0 || strcmp(text, "mps") == 0))
		r->shared = true;
	if (adp_k8s_label(r->node, "cloud.google.com/gke-gpu-sharing-strategy", buf))
		r->shared = true;
	if (adp_k8s_label_u64(&number, r->node, "nvidia.com/gpu.replicas") && number > 1)
		r->shared = true;
	if (adp_k8s_resource(&number, r->node->allocatable, "nvidia.com/gpu.shared") && number)
		r->shared = true;
	r->memory_mib = label_mib(r->node, MEMORY);
	if (!r->memory_mib)
		r->memory_mib = label_mib(r->node, "karpenter.k8s.aws/instance-gpu-memory");
	if (!r->memory_mib)
		r->memory_mib = label_mib(r->node, "eks.amazonaws.com/instance-gpu-memory");
	r->display = contains_nocase(r->product, "display");
	if (r->display) { /* product, count and memory describe the display card */
		r->product[0] = '\0';
		r->memory_mib = 0;
	}
}

/* ---- type --------------------------------------------------------------------------- */

static bool memory_fits(const struct adp_gpu_type *type, uint64_t memory_mib)
{
	double label = (double)memory_mib * 0x1p20, table = (double)type->memory_bytes;

	return label > 0.88 * table && label < 1.12 * table;
}

/*
 * The type of a ';' list that fits the memory label; without one the type with the least memory,
 * because a plan that fits there fits all. *open: several were possible.
 */
static const struct adp_gpu_type *choose(const struct adp_hardware *hw, const char *gpus,
                                         uint64_t memory_mib, bool *open)
{
	const struct adp_gpu_type *least = NULL;
	char name[ADP_NAME_SIZE];
	uint32_t n = 0;

	for (const char *at = gpus; *at;) {
		const struct adp_gpu_type *type;
		size_t len = strcspn(at, ";");

		snprintf(name, sizeof name, "%.*s", (int)(len < ADP_NAME_MAX ? len : ADP_NAME_MAX), at);
		type = adp_hardware_find(hw, name, 0, NULL, 0);
		at += len + (at[len] == ';');
		if (!type || (memory_mib && !memory_fits(type, memory_mib)))
			continue;
		n++;
		if (!least || type->memory_bytes < least->memory_bytes)
			least = type;
	}
	*open = n > 1;
	return least;
}

/* Machines whose labels are known to change from scan to scan: the label may not decide the memory
 * size. */
static int type_of_machine(const struct adp_gpu_type **type, struct reading *r,
                           struct adp_error *err)
{
	const struct adp_hardware *hw = r->k8s->build->hw;
	char buf[ADP_LABEL_SIZE], text[320];
	const char *machine = adp_k8s_label(r->node, MACHINE, buf);
	bool open = false;

	for (uint32_t i = 0; machine && i < hw->n_accelerators && !*type; i++) {
		const struct adp_accelerator *row = &hw->accelerators[i];

		if (strcmp(row->label, MACHINE) == 0 && strcmp(row->value, machine) == 0)
			*type = choose(hw, row->gpus, 0, &open);
	}
	if (!*type)
		return ADP_OK;
	r->machine = true;
	if (!open)
		return ADP_OK;
	snprintf(text, sizeof text,
	         "labels of this machine change from scan to scan with its display card, so they don't "
	         "decide its memory; judged as the smallest it is sold with, %s; if it has more, "
	         "annotate the node "
	         "adp.parallelism/gpu-type",
	         (*type)->alias);
	return warn(r, err, text);
}

static int type_of_provider(const struct adp_gpu_type **type, struct reading *r,
                            struct adp_error *err)
{
	const struct adp_hardware *hw = r->k8s->build->hw;
	char buf[ADP_LABEL_SIZE], text[320], shown[80];
	const char *value;
	bool open = false;

	for (uint32_t i = 0; i < hw->n_accelerators && !*type; i++) {
		const struct adp_accelerator *row = &hw->accelerators[i];

		if (strcmp(row->label, MACHINE) == 0)
			continue;
		value = adp_k8s_label(r->node, row->label, buf);
		if (!value || strcmp(value, row->value) != 0)
			continue;
		*type = choose(hw, row->gpus, r->memory_mib, &open);
		if (*type) {
			snprintf(text, sizeof text, "no label " PRODUCT "; %s=%s is taken as %s%s", row->label,
			         adp_name_shown(shown, sizeof shown, value), (*type)->alias,
			         open ? ", the smallest it may mean; if it has more memory, annotate the node "
			                "adp.parallelism/gpu-type"
			              : "");
			return warn(r, err, text);
		}
	}
	value = adp_k8s_label(r->node, "node.kubernetes.io/instance-type", buf);
	if (!value)
		value = adp_k8s_label(r->node, "beta.kubernetes.io/instance-type", buf);
	for (uint32_t i = 0; value && i < hw->n_instances && !*type; i++) {
		if (strcmp(hw->instances[i].name, value) != 0)
			continue;
		*type = choose(hw, hw->instances[i].gpus, 0, &open);
		if (*type) {
			snprintf(text, sizeof text, "no label " PRODUCT "; instance type %s is taken as %s",
			         hw->instances[i].name, (*type)->alias);
			return warn(r, err, text);
		}
	}
	return ADP_OK;
}

/* The product label and the memory label must agree; where they don't, the smaller size counts. */
static int check_memory(const struct adp_gpu_type **type, struct reading *r, struct adp_error *err)
{
	const struct adp_hardware *hw = r->k8s->build->hw;
	const struct adp_gpu_type *other;
	char text[320];

	if (!r->memory_mib || memory_fits(*type, r->memory_mib))
		return ADP_OK;
	if (r->shared) { /* some sharing modes print the memory of a share */
		r->memory_mib = 0;
		return ADP_OK;
	}
	if ((double)r->memory_mib * 0x1p20 > (double)(*type)->memory_bytes) {
		snprintf(text, sizeof text,
		         MEMORY " states more memory than %s has; the smaller figure counts",
		         (*type)->alias);
		r->memory_mib = 0;
		return warn(r, err, text);
	}
	other = (*type)->mixes_with[0] ? adp_hardware_find(hw, (*type)->mixes_with, 0, NULL, 0) : NULL;
	if (other && memory_fits(other, r->memory_mib)) {
		snprintf(text, sizeof text,
		         PRODUCT " says %s but " MEMORY
		                 " fits %s: the node mixes both or a label is stale; "
		                 "judged as %s",
		         (*type)->alias, other->alias, other->alias);
		*type = other;
		return warn(r, err, text);
	}
	snprintf(text, sizeof text,
	         MEMORY
	         " (%llu MiB) fits no %s; state the type with annotation adp.parallelism/gpu-type",
	         (unsigned long long)r->memory_mib, (*type)->alias);
	*type = NULL;
	return leave_out(r, err, text);
}

const struct adp_instance *adp_k8s_instance(const struct adp_hardware *hw,
                                            const struct adp_k8s_node *node,
                                            const struct adp_gpu_type *type)
{
	static const char *const labels[] = {
		"node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type",
		"nvidia.com/gpu.machine"}; /* EC2 puts the instance type into the DMI */
	char buf[ADP_LABEL_SIZE];

	for (size_t k = 0; k < sizeof labels / sizeof *labels; k++) {
		const char *name = adp_k8s_label(node, labels[k], buf);

		for (uint32_t i = 0; name && i < hw->n_instances; i++) {
			if (strcmp(hw->instances[i].name, name) == 0 &&
			    strstr(hw->instances[i].gpus, type->name))
				return &hw->instances[i];
		}
	}
	return NULL;
}

/* One label speaks for all GPUs of a node, and it is the first GPU's (gpu-feature-discovery PR 13).
 */
static int check_mixed(const struct adp_gpu_type **type, struct reading *r, uint32_t n_gpus,
                       struct adp_error *err)
{
	const struct adp_gpu_type *other;
	char text[400];

	if (n_gpus < 2 || !(*type)->mixes_with[0])
		return ADP_OK;
	if (adp_k8s_instance(r->k8s->build->hw, r->node, *type)) /* a cloud's machines are all alike */
		return ADP_OK;
	other = adp_hardware_find(r->k8s->build->hw, (*type)->mixes_with, 0, NULL, 0);
	if (!other || other->memory_bytes >= (*type)->memory_bytes)
		return ADP_OK;
	snprintf(text, sizeof text,
	         PRODUCT
	         " speaks for the first GPU of a node only, and %s is found mixed with %s; "
	         "judged as %s; if all GPUs are %s, annotate the node adp.parallelism/gpu-type=%s",
	         (*type)->alias, other->alias, other->alias, (*type)->alias, (*type)->alias);
	*type = other;
	r->memory_mib = 0;
	return warn(r, err, text);
}

static int refuse_unknown(struct reading *r, struct adp_error *err, const char *near)
{
	char shown[80], text[400], buf[ADP_LABEL_SIZE];
	const char *provider = adp_k8s_label(r->node, "cloud.google.com/gke-accelerator", buf);

	if (r->product[0])
		snprintf(
			text, sizeof text,
			"GPU product '%s' is not in the table%s%s; " ADP_OVERRIDE_HINT " or annotate the node "
			"adp.parallelism/gpu-type",
			adp_name_shown(shown, sizeof shown, r->product), near[0] ? ", nearest " : "", near);
	else if (r->display)
		snprintf(text, sizeof text,
		         PRODUCT " names a display card and " MACHINE
		                 " tells no GPU type; annotate the node "
		                 "adp.parallelism/gpu-type");
	else
		snprintf(text, sizeof text,
		         "no label " PRODUCT " (GPU feature discovery writes it)%s%s%s; annotate the node "
		         "adp.parallelism/gpu-type, with a type of the table or of --gpu-data FILE",
		         provider ? ", and cloud.google.com/gke-accelerator="
		                  : " and no provider "
		                    "label of a known GPU",
		         provider ? adp_name_shown(shown, sizeof shown, provider) : "",
		         provider ? " is not in the table" : "");
	return leave_out(r, err, text);
}

static int find_type(const struct adp_gpu_type **type, struct reading *r, struct adp_error *err)
{
	const struct adp_hardware *hw = r->k8s->build->hw;
	char near[160] = "", buf[ADP_LABEL_SIZE];
	int rc;

	rc = type_of_machine(type, r, err);
	if (rc || *type)
		return rc;
	if (!r->product[0] && !r->display) {
		const char *amd = adp_k8s_label(r->node, "amd.com/gpu.product-name", buf);

		if (!amd)
			amd = adp_k8s_label(r->node, "beta.amd.com/gpu.product-name", buf);
		if (amd) {
			snprintf(r->product, sizeof r->product, "%s", amd);
			*type = adp_hardware_find(hw, amd, 0, near, sizeof near);
			if (*type)
				return ADP_OK;
		}
	}
	if (r->product[0]) {
		*type = adp_hardware_find(hw, r->product, r->memory_mib, near, sizeof near);
		if (*type)
			return check_memory(type, r, err);
	}
	rc = type_of_provider(type, r, err);
	if (!rc && !*type)
		rc = refuse_unknown(r, err, near);
	return rc;
}

static int stated_type(const struct adp_gpu_type **type, const struct reading *r,
                       struct adp_error *err)
{
	char buf[ADP_LABEL_SIZE], near[160], shown[80], name[80];
	const char *text = adp_k8s_setting(r->node, "gpu-type", buf);

	if (!text)
		return ADP_OK;
	*type = adp_hardware_find(r->k8s->build->hw, text, 0, near, sizeof near);
	if (*type)
		return ADP_OK;
	return adp_fail(
		err, ADP_EINVAL,
		"node %s: adp.parallelism/gpu-type '%s' names no single GPU type%s%s; " ADP_OVERRIDE_HINT,
		adp_name_shown(name, sizeof name, r->node->name), adp_name_shown(shown, sizeof shown, text),
		near[0] ? ", nearest " : "", near);
}

/* ---- count -------------------------------------------------------------------------- */

static bool gpu_resource(uint64_t *out, const json_t *list)
{
	static const char *const names[] = {"nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu",
	                                    "alpha.kubernetes.io/nvidia-gpu"};
	uint64_t n;
	bool found = false;

	*out = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!adp_k8s_resource(&n, list, names[i]))
			continue;
		if (n > *out)
			*out = n;
		found = true;
	}
	return found;
}

static bool labelled_count(uint64_t *out, const struct adp_k8s_node *node)
{
	return adp_k8s_label_u64(out, node, COUNT) ||
	       adp_k8s_label_u64(out, node, "cloud.google.com/gke-accelerator-count") ||
	       adp_k8s_label_u64(out, node, "karpenter.k8s.aws/instance-gpu-count") ||
	       adp_k8s_label_u64(out, node, "eks.amazonaws.com/instance-gpu-count");
}

/* Shared GPUs are advertised several times: only the label counts physical ones
 * (gpu-feature-discovery #76). */
static int count_shared(uint64_t *n, struct reading *r, bool has_label, uint64_t label,
                        struct adp_error *err)
{
	uint64_t advertised;

	*n = has_label ? label : 0;
	if (!has_label)
		return leave_out(r, err,
		                 "its GPUs are shared, and label " COUNT
		                 " that counts the physical ones is missing");
	if (gpu_resource(&advertised, r->node->allocatable) && advertised <= label)
		return ADP_OK;
	return warn(r, err,
	            "GPUs are time-sliced or shared: counted once each by " COUNT
	            "; other pods may slow them");
}

static int count_whole(uint64_t *n, struct reading *r, bool has_label, uint64_t label,
                       struct adp_error *err)
{
	uint64_t allocatable, capacity;
	bool has_allocatable = gpu_resource(&allocatable, r->node->allocatable);
	bool has_capacity = gpu_resource(&capacity, r->node->capacity);

	if (!has_allocatable && !has_capacity && !has_label)
		return leave_out(r, err, "neither status.allocatable nor label " COUNT " counts its GPUs");
	*n = has_allocatable ? allocatable : has_capacity ? capacity : label;
	if (!*n)
		return leave_out(r, err, "no whole GPU is allocatable");
	if (!has_allocatable)
		return warn(
			r, err,
			"status.allocatable counts no GPUs; the number is taken from capacity or label " COUNT);
	if ((has_label && label > allocatable) || (has_capacity && capacity > allocatable))
		return warn(
			r, err,
			"fewer whole GPUs are allocatable than the node has (cut into MIG slices, unhealthy or "
			"withdrawn); only these count");
	if (has_label && label < allocatable) {
		*n = label;
		return warn(r, err,
		            COUNT " states fewer GPUs than are allocatable; the smaller number counts");
	}
	return ADP_OK;
}

static int count_gpus(uint64_t *n, struct reading *r, struct adp_error *err)
{
	uint64_t label = 0;
	bool has_label = !r->display && !r->machine && labelled_count(&label, r->node) && label;
	char buf[ADP_LABEL_SIZE];

	*n = 0;
	if (r->shared && !r->machine)
		return count_shared(n, r, has_label, label, err);
	if (adp_k8s_label(r->node, PRODUCT, buf) && !has_label && !r->display && !r->machine &&
	    warn(r, err, "label " COUNT " is missing; allocatable GPUs count"))
		return adp_nomem(err);
	return count_whole(n, r, has_label, label, err);
}

/* ---- both --------------------------------------------------------------------------- */

bool adp_k8s_has_gpus(const struct adp_k8s_node *node, const struct adp_hardware *hw)
{
	static const char *const labels[] = {
		PRODUCT, "nvidia.com/gpu.present", "cloud.google.com/gke-accelerator",
		"amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"};
	char buf[ADP_LABEL_SIZE];
	const char *key, *value;
	json_t *member;
	uint64_t n;

	for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
		value = adp_k8s_label(node, labels[i], buf);
		if (value && strcmp(value, "false") != 0)
			return true;
	}
	for (uint32_t i = 0; i < hw->n_accelerators; i++) {
		if (adp_k8s_label(node, hw->accelerators[i].label, buf))
			return true;
	}
	if (adp_k8s_setting(node, "gpu-type", buf) || (gpu_resource(&n, node->capacity) && n) ||
	    (gpu_resource(&n, node->allocatable) && n))
		return true;
	json_object_foreach ((json_t *)node->capacity, key, member) {
		if (strncmp(key, "nvidia.com/mig-", 15) == 0)
			return true;
	}
	return false;
}

int adp_k8s_gpus(const struct adp_gpu_type **type, uint32_t *n_gpus, uint64_t *memory_mib,
                 struct adp_k8s *k8s, const struct adp_k8s_node *node, struct adp_error *err)
{
	struct reading r = {.node = node, .k8s = k8s};
	const struct adp_gpu_type *stated = NULL;
	char name[80];
	uint64_t n;
	int rc;

	*type = NULL;
	read_labels(&r);
	if (r.slices)
		return leave_out(&r, err, "all its GPUs are cut into MIG slices");
	rc = stated_type(&stated, &r, err);
	if (rc)
		return rc;
	if (stated)
		*type = stated;
	else
		rc = find_type(type, &r, err);
	if (rc || !*type)
		return rc;
	rc = count_gpus(&n, &r, err);
	if (rc)
		return rc;
	if (!n) {
		*type = NULL;
		return ADP_OK;
	}
	if (n > ADP_MAX_NODE_GPUS)
		return adp_fail(err, ADP_ELIMIT, "node %s: %llu GPUs; a node has at most %d",
		                adp_name_shown(name, sizeof name, node->name), (unsigned long long)n,
		                ADP_MAX_NODE_GPUS);
	*n_gpus = (uint32_t)n;
	if (stated) { /* the label may still tell the exact capacity of that type */
		*memory_mib = r.memory_mib && memory_fits(stated, r.memory_mib) ? r.memory_mib : 0;
		return ADP_OK;
	}
	rc = check_mixed(type, &r, *n_gpus, err);
	*memory_mib = r.machine ? 0 : r.memory_mib;
	return rc;
}
