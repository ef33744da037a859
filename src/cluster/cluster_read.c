/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "adp/cluster.h"
#include "base/alloc.h"
#include "base/doc.h"
#include "base/file.h"
#include "cluster/cluster_yaml.h"
#include "cluster/k8s_node.h"
#include "cluster/name.h"

enum { MAX_BYTES = 1 << 30 }; /* 10,000 nodes as kubectl prints them are 280 MB */

/* The bulk of a Kubernetes node object, of no use here. */
static const char *const skipped[] = {
	"managedFields",
	"images",
	"nodeInfo",
	"volumesAttached",
	"volumesInUse",
	"addresses",
	"daemonEndpoints",
	"ownerReferences",
	"nfd.node.kubernetes.io/feature-labels",
	"nfd.node.kubernetes.io/extended-resources",
	"kubectl.kubernetes.io/last-applied-configuration",
	"lastHeartbeatTime",
	"lastTransitionTime",
	"message",
	NULL,
};

static int read_nodes(struct adp_build *b, const json_t *documents, const char *where,
                      struct adp_error *err)
{
	struct adp_k8s k8s = {.build = b, .where = where};
	const json_t *document;
	int rc = ADP_OK;
	size_t i;

	k8s.memory = adp_calloc((size_t)b->hw->n_types + 1, sizeof *k8s.memory);
	if (!k8s.memory)
		return adp_nomem(err);
	json_array_foreach ((json_t *)documents, i, document) {
		rc = adp_k8s_read(&k8s, document, err);
		if (rc)
			break;
	}
	if (!rc)
		rc = adp_k8s_finish(&k8s, err);
	adp_free(k8s.memory);
	return rc;
}

static int read_ours(struct adp_build *b, const json_t *documents, const char *where,
                     struct adp_error *err)
{
	int rc;

	if (json_array_size(documents) != 1)
		return adp_fail(err, ADP_EINVAL,
		                "%s: a file with a document of kind Cluster must hold that one alone",
		                where);
	rc = adp_cluster_yaml(b, json_array_get(documents, 0), err);
	return rc ? adp_wrap(err, rc, "%s", where) : ADP_OK;
}

static int refuse(const json_t *document, const char *where, struct adp_error *err)
{
	const char *kind = json_string_value(json_object_get(document, "kind"));
	char shown[80];

	if (!json_is_object(document))
		return adp_fail(
			err, ADP_EINVAL,
			"%s: neither a cluster file (kind: Cluster) nor a node list; give one of them", where);
	if (!kind)
		return adp_fail(
			err, ADP_EINVAL,
			"%s: kind is missing; give 'kind: Cluster' with apiVersion " ADP_CLUSTER_API_VERSION
			", or the output of 'kubectl get nodes -o json'",
			where);
	return adp_fail(err, ADP_EINVAL,
	                "%s: kind '%s' is not understood; give Cluster, Node, NodeList or List", where,
	                adp_name_shown(shown, sizeof shown, kind));
}

/* Ours or Kubernetes'; all documents must be of the same sort. */
static int read_documents(struct adp_build *b, const json_t *documents, const char *where,
                          struct adp_error *err)
{
	const json_t *document;
	size_t i;

	if (!json_array_size(documents))
		return adp_fail(err, ADP_EINVAL, "%s: is empty; give a cluster file or a node list", where);
	json_array_foreach ((json_t *)documents, i, document) {
		const char *kind = json_string_value(json_object_get(document, "kind"));

		if (kind && strcmp(kind, "Cluster") == 0)
			return read_ours(b, documents, where, err);
		if (!adp_k8s_is_node_document(document))
			return refuse(document, where, err);
	}
	return read_nodes(b, documents, where, err);
}

int adp_cluster_read(struct adp_cluster **out, const char *text, size_t len, const char *where,
                     const struct adp_hardware *hw, struct adp_error *err)
{
	struct adp_build b = {0};
	json_t *documents = NULL;
	int rc;

	*out = NULL;
	rc = adp_doc_any_without(&documents, text, len, skipped, where, err);
	if (rc)
		return rc;
	rc = adp_build_init(&b, hw, err);
	if (!rc)
		rc = read_documents(&b, documents, where, err);
	json_decref(documents);
	if (!rc) {
		rc = adp_build_finish(out, &b, err);
		if (rc)
			rc = adp_wrap(err, rc, "%s", where);
	}
	adp_build_fini(&b);
	return rc;
}

int adp_cluster_load(struct adp_cluster **out, const char *path, const struct adp_hardware *hw,
                     struct adp_error *err)
{
	const char *where = strcmp(path, "-") == 0 ? "standard input" : path;
	char *text;
	size_t len;
	int rc;

	*out = NULL;
	rc = adp_file_read(&text, &len, path, MAX_BYTES, err);
	if (rc)
		return rc;
	rc = adp_cluster_read(out, text, len, where, hw, err);
	adp_free(text);
	return rc;
}
