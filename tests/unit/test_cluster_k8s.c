/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters from `kubectl get nodes -o json|yaml`. The oddities and their sources:
 * docs/internals/cluster.md. */
#include "cluster_fixture.h"

#include "support/fault_sweep.h"

/* A ready node with GPU feature discovery's labels; extra goes among the labels, status after the
 * count. */
#define NODE(name, product, memory, count, extra, allocatable)                                     \
	"---\napiVersion: v1\nkind: Node\nmetadata:\n  name: " name                                    \
	"\n  labels:\n    nvidia.com/gpu.product: " product "\n    nvidia.com/gpu.memory: \"" memory   \
	"\"\n    nvidia.com/gpu.count: \"" count "\"\n" extra                                          \
	"status:\n  allocatable: {nvidia.com/gpu: \"" allocatable "\"}\n"                              \
	"  conditions: [{type: Ready, status: \"True\"}]\n"

#define H100_NODE(name, extra) NODE(name, "NVIDIA-H100-80GB-HBM3", "81559", "8", extra, "8")

static void a_plain_node_reads_without_a_doubt_but_the_network(void **state)
{
	struct adp_cluster *c = must_read(H100_NODE("gpu-a", ""));

	(void)state;
	assert_int_equal(c->n_nodes, 1);
	assert_string_equal(alias_of(c, 0), "H100");
	assert_int_equal(c->nodes[0].n_gpus, 8);
	assert_int_equal(c->types[0].memory_bytes, 81559ull << 20);
	assert_int_equal(c->n_warnings, 2);
	assert_warns(c, "network of H100 nodes is assumed, 50 GB/s per GPU");
	assert_warns(c, "which GPUs other pods hold");
	assert_true(c->network_assumed);
	adp_cluster_destroy(c);
}

/* Case telemetry-06: 42505273344 bytes / 2^20 = 40536 MiB. */
static void a_memory_label_in_bytes_is_understood(void **state)
{
	struct adp_cluster *c = must_read(
		NODE("a", "NVIDIA-A100-SXM4-40GB", "42505273344", "1", "", "1"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "A100-40");
	assert_int_equal(c->types[0].memory_bytes, 40536ull << 20);
	adp_cluster_destroy(c);
}

static void the_least_memory_label_of_a_type_counts(void **state)
{
	struct adp_cluster *c = must_read(NODE("a", "Tesla-T4", "15360", "1", "", "1")
	                                      NODE("b", "Tesla-T4", "15109", "1", "", "1"));

	(void)state;
	assert_int_equal(c->n_types, 1);
	assert_int_equal(c->types[0].memory_bytes, 15109ull << 20);
	adp_cluster_destroy(c);
}

/* Case telemetry-08: the count label stays 8 when two GPUs are cut into MIG slices. */
static void only_allocatable_gpus_count_under_mig(void **state)
{
	struct adp_cluster *c = must_read(NODE("a", "NVIDIA-H100-80GB-HBM3", "81559", "8",
	                                       "    nvidia.com/mig.strategy: mixed\n", "6"));

	(void)state;
	assert_int_equal(c->nodes[0].n_gpus, 6);
	assert_warns(c, "fewer whole GPUs are allocatable than the node has");
	assert_near(c->nodes[0].nic.bytes_per_s, 300e9); /* 6 x 50 GB/s: each GPU has its rail */
	adp_cluster_destroy(c);
}

/* Case telemetry-05, label side: a gap between what a node has and what it offers is reported. */
static void a_gap_between_capacity_and_allocatable_is_reported(void **state)
{
	struct adp_cluster *c = must_read(
		"kind: Node\nmetadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-H200}}\n"
		"status:\n  capacity: {nvidia.com/gpu: 8}\n  allocatable: {nvidia.com/gpu: 5}\n");

	(void)state;
	assert_int_equal(c->nodes[0].n_gpus, 5);
	assert_warns(c, "fewer whole GPUs are allocatable than the node has");
	assert_warns(c, "label nvidia.com/gpu.count is missing");
	adp_cluster_destroy(c);
}

/* Case telemetry-10: one physical GPU advertised 50 times. */
static void time_sliced_gpus_count_once(void **state)
{
	struct adp_cluster *c = must_read(NODE("a", "NVIDIA-A10G-SHARED", "23028", "1",
	                                       "    nvidia.com/gpu.replicas: \"50\"\n", "50"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "A10G");
	assert_int_equal(c->nodes[0].n_gpus, 1);
	assert_warns(c, "time-sliced or shared");
	adp_cluster_destroy(c);
	/* renamed resource: no -SHARED in the product */
	c = must_read("kind: Node\nmetadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-A10G, "
	              "nvidia.com/gpu.count: \"4\", "
	              "nvidia.com/gpu.memory: 2000}}\nstatus: {allocatable: {nvidia.com/gpu: \"0\", "
	              "nvidia.com/gpu.shared: \"40\"}}\n");
	assert_int_equal(c->nodes[0].n_gpus, 4);
	assert_int_equal(c->types[0].memory_bytes,
	                 23028ull << 20); /* the label states a share: the table counts */
	adp_cluster_destroy(c);
}

static void shared_gpus_without_a_count_label_are_left_out(void **state)
{
	struct adp_cluster *c;
	struct adp_error err = {0};
	const char *text =
		"kind: Node\nmetadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-A10G-SHARED}}\n"
		"status: {allocatable: {nvidia.com/gpu: \"50\"}}\n";

	(void)state;
	assert_int_equal(adp_cluster_read(&c, text, strlen(text), "nodes", hw, &err), ADP_EINVAL);
	assert_says(err, "label nvidia.com/gpu.count that counts the physical ones is missing");
}

#define STATION(product, memory, count, replicas)                                                  \
	NODE("station", product, memory, count,                                                        \
	     "    nvidia.com/gpu.machine: DGX-Station-A100\n"                                          \
	     "    nvidia.com/gpu.replicas: \"" replicas "\"\n",                                        \
	     "4")

/* Case heterogeneous-01: the label flips between the display card and the GPUs; the answer must
 * not. */
static void a_display_card_does_not_change_the_answer(void **state)
{
	struct adp_cluster *a = must_read(STATION("NVIDIA-DGX-Display", "3902", "1", "1"));
	struct adp_cluster *b = must_read(STATION("NVIDIA-A100-SXM4-80GB", "81920", "4", "4"));
	struct adp_cluster *both = must_read(STATION("NVIDIA-DGX-Display", "3902", "1", "1")
	                                         STATION("NVIDIA-A100-SXM4-80GB", "81920", "4", "4"));

	(void)state;
	assert_int_equal(a->nodes[0].n_gpus, 4);
	assert_string_equal(alias_of(a, 0), "A100-40"); /* also sold with 40 GB: what fits there fits */
	assert_string_equal(a->digest, b->digest);
	assert_string_equal(a->digest, both->digest);
	assert_warns(a, "change from scan to scan");
	assert_warns(both, "listed twice, counted once");
	adp_cluster_destroy(a);
	adp_cluster_destroy(b);
	adp_cluster_destroy(both);
}

static void an_annotation_states_the_type_of_a_doubtful_node(void **state)
{
	struct adp_cluster *c = must_read(
		NODE("station", "NVIDIA-DGX-Display", "3902", "1",
	         "    nvidia.com/gpu.machine: "
	         "DGX-Station-A100\n  annotations: {adp.parallelism/gpu-type: A100-80}\n",
	         "4"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "A100-80");
	adp_cluster_destroy(c);
}

static void a_display_card_in_an_unknown_machine_is_left_out(void **state)
{
	struct adp_cluster *c = must_read(
		NODE("x", "NVIDIA-DGX-Display", "3902", "1", "    nvidia.com/gpu.machine: Other\n", "4")
			H100_NODE("y", ""));

	(void)state;
	assert_int_equal(c->n_nodes, 1);
	assert_warns(c, "names a display card and nvidia.com/gpu.machine tells no GPU type");
	adp_cluster_destroy(c);
}

/* One label speaks for all GPUs of a node: the first GPU's. */
static void v100_sizes_may_be_mixed_so_the_smaller_counts(void **state)
{
	struct adp_cluster *c = must_read(NODE("m", "Tesla-V100-SXM2-32GB", "32510", "8", "", "8"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "V100-16");
	assert_int_equal(c->types[0].memory_bytes, 16160ull << 20);
	assert_warns(c, "annotate the node adp.parallelism/gpu-type=V100-32");
	adp_cluster_destroy(c);
	c = must_read(NODE("m", "Tesla-V100-SXM2-32GB", "32510", "8",
	                   "  annotations: {adp.parallelism/gpu-type: V100-32}\n", "8"));
	assert_string_equal(alias_of(c, 0), "V100-32");
	assert_int_equal(c->types[0].memory_bytes, 32510ull << 20);
	adp_cluster_destroy(c);
	c = must_read(NODE("m", "Tesla-V100-SXM2-32GB", "32510", "1", "",
	                   "1")); /* a single GPU is the first one */
	assert_string_equal(alias_of(c, 0), "V100-32");
	adp_cluster_destroy(c);
}

static void a_cloud_machine_type_settles_which_v100_it_is(void **state)
{
	struct adp_cluster *c = must_read(NODE("m", "Tesla-V100-SXM2-32GB", "32510", "8",
	                                       "    node.kubernetes.io/instance-type: p3dn.24xlarge\n",
	                                       "8"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "V100-32");
	assert_near(c->nodes[0].nic.bytes_per_s, 12.5e9); /* 100 Gb/s */
	adp_cluster_destroy(c);
}

static void labels_that_disagree_on_memory_give_the_smaller(void **state)
{
	struct adp_cluster *c = must_read(NODE("m", "Tesla-V100-SXM2-32GB", "16160", "1", "", "1"));

	(void)state;
	assert_string_equal(alias_of(c, 0), "V100-16");
	assert_warns(c, "mixes both or a label is stale");
	adp_cluster_destroy(c);
	c = must_read(NODE("m", "Tesla-V100-SXM2-16GB", "32510", "1", "", "1"));
	assert_string_equal(alias_of(c, 0), "V100-16");
	assert_int_equal(c->types[0].memory_bytes, 16160ull << 20);
	assert_warns(c, "states more memory than V100-16 has");
	adp_cluster_destroy(c);
	c = must_read(NODE("m", "NVIDIA-H100-80GB-HBM3", "40000", "8", "", "8") H100_NODE("n", ""));
	assert_int_equal(c->n_nodes, 1); /* no H100 has that: who knows what it is */
	assert_warns(c, "left out: nvidia.com/gpu.memory (40000 MiB) fits no H100");
	adp_cluster_destroy(c);
}

/* Case heterogeneous-10. */
static void h100_and_h200_are_told_apart(void **state)
{
	struct adp_cluster *c = must_read(NODE("a", "NVIDIA-H200", "143771", "8", "", "8") NODE(
		"b", "NVIDIA-H200", "143771", "8", "", "8") H100_NODE("c", ""));

	(void)state;
	assert_int_equal(c->n_types, 2);
	assert_int_equal(c->n_nodes, 3);
	adp_cluster_destroy(c);
}

#define GB200(name, clique)                                                                        \
	NODE(name, "NVIDIA-GB200", "189471", "4", "    nvidia.com/gpu.clique: " clique "\n", "4")

/* Case rank-and-gang-05: four nodes in two NVLink cliques are two domains of 8 GPUs. */
static void cliques_are_nvlink_domains(void **state)
{
	struct adp_cluster *c = must_read(GB200("n1", "aaaa-1.7") GB200("n2", "bbbb-2.7")
	                                      GB200("n3", "aaaa-1.7") GB200("n4", "bbbb-2.7"));

	(void)state;
	assert_int_equal(c->n_domains, 2);
	assert_int_equal(node_named(c, "n1")->nvlink_domain, node_named(c, "n3")->nvlink_domain);
	assert_int_equal(node_named(c, "n2")->nvlink_domain, node_named(c, "n4")->nvlink_domain);
	assert_string_equal(c->nodes[0].name, "n1"); /* a domain's nodes stand together */
	assert_string_equal(c->nodes[1].name, "n3");
	adp_cluster_destroy(c);
}

static void without_a_clique_nvlink_ends_at_the_node(void **state)
{
	struct adp_cluster *c = must_read(GB200("n1", "\"\"")
	                                      GB200("n2", "00000000-0000-0000-0000-000000000000.0"));

	(void)state;
	assert_int_not_equal(c->nodes[0].nvlink_domain, c->nodes[1].nvlink_domain);
	assert_warns(c, "no label nvidia.com/gpu.clique tells which nodes share an NVLink domain");
	adp_cluster_destroy(c);
}

static void topograph_and_aws_name_nvlink_domains_of_rack_size_only(void **state)
{
	struct adp_cluster *c = must_read(NODE(
		"n1", "NVIDIA-GB200", "189471", "4",
		"    accelerator.topograph.run/domain: d1\n    accelerator.topograph.run/sub-domain: p1\n",
		"4") NODE("n2", "NVIDIA-GB200", "189471", "4",
	              "    network.topology.nvidia.com/accelerator: d2\n",
	              "4") NODE("n3", "NVIDIA-GB200", "189471", "4",
	                        "    topology.k8s.aws/ultraserver-id: u3\n",
	                        "4") H100_NODE("h1",
	                                       "    network.topology.nvidia.com/accelerator: d2\n")
	                                      H100_NODE(
											  "h2",
											  "    network.topology.nvidia.com/accelerator: d2\n"));

	(void)state;
	assert_string_equal(domain_of(c, node_named(c, "n1")->nvlink_domain), "d1/p1");
	assert_string_equal(domain_of(c, node_named(c, "n2")->nvlink_domain), "d2");
	assert_string_equal(domain_of(c, node_named(c, "n3")->nvlink_domain), "u3");
	assert_string_equal(domain_of(c, node_named(c, "h1")->nvlink_domain), "h1");
	adp_cluster_destroy(c);
}

static void racks_and_spines_come_from_the_labels_of_each_provider(void **state)
{
	static const struct {
		const char *labels, *rack, *spine;
	} cases[] = {
		{"fabric.topograph.run/tier-0: leaf1, fabric.topograph.run/tier-1: spine1, "
	     "fabric.topograph.run/tier-2: core",
	     "leaf1", "spine1"},
		{"network.topology.nvidia.com/leaf: l2, network.topology.nvidia.com/spine: s2, "
	     "network.topology.nvidia.com/core: c",
	     "l2", "s2"},
		{"topology.k8s.aws/network-node-layer-1: top, topology.k8s.aws/network-node-layer-2: mid, "
	     "topology.k8s.aws/network-node-layer-3: low",
	     "low", "mid"},
		{"topology.k8s.aws/network-node-layer-1: top, topology.k8s.aws/network-node-layer-2: mid, "
	     "topology.k8s.aws/network-node-layer-3: low, topology.k8s.aws/network-node-layer-4: "
	     "lowest",
	     "lowest", "low"},
		{"cloud.google.com/gce-topology-block: b, cloud.google.com/gce-topology-subblock: sb, "
	     "cloud.google.com/gce-topology-host: h",
	     "sb", "b"},
		{"oci.oraclecloud.com/host.rack_id: r, oci.oraclecloud.com/host.network_block_id: nb", "r",
	     "nb"},
		{"cloud.provider.com/topology-rack: r9, cloud.provider.com/topology-block: b9", "r9", "b9"},
		{"topology.kubernetes.io/rack: 12", "12", "(none)"},
		{"topology.kubernetes.io/zone: z1", "(none)", "(none)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[1024];
		struct adp_cluster *c;

		snprintf(
			text, sizeof text,
			"kind: Node\nmetadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-H200, %s}}\n"
			"status: {allocatable: {nvidia.com/gpu: 8}}\n",
			cases[i].labels);
		c = must_read(text);
		assert_string_equal(domain_of(c, c->nodes[0].rack), cases[i].rack);
		assert_string_equal(domain_of(c, c->nodes[0].spine), cases[i].spine);
		if (strcmp(cases[i].rack, "(none)"))
			assert_warns(c, "not their uplinks");
		adp_cluster_destroy(c);
	}
}

static void provider_labels_stand_in_for_feature_discovery(void **state)
{
	static const struct {
		const char *labels, *alias, *warning;
	} cases[] = {
		{"cloud.google.com/gke-accelerator: nvidia-h100-mega-80gb", "H100",
	     "cloud.google.com/gke-accelerator=nvidia-h100-mega-80gb is taken as H100"},
		{"k8s.amazonaws.com/accelerator: nvidia-tesla-v100", "V100-16", "the smallest it may mean"},
		{"karpenter.k8s.aws/instance-gpu-name: a100, karpenter.k8s.aws/instance-gpu-memory: "
	     "\"81920\"",
	     "A100-80", "is taken as A100-80"},
		{"karpenter.k8s.aws/instance-gpu-name: a100, karpenter.k8s.aws/instance-gpu-memory: "
	     "\"40960\"",
	     "A100-40", "is taken as A100-40"},
		{"eks.amazonaws.com/instance-gpu-name: l40s", "L40S", "is taken as L40S"},
		{"node.kubernetes.io/instance-type: p5.48xlarge", "H100",
	     "instance type p5.48xlarge is taken as H100"},
		{"beta.kubernetes.io/instance-type: p4d.24xlarge", "A100-40",
	     "instance type p4d.24xlarge is taken as A100-40"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[512];
		struct adp_cluster *c;

		snprintf(
			text, sizeof text,
			"kind: Node\nmetadata: {name: a, labels: {%s}}\nstatus: {allocatable: {nvidia.com/gpu: "
			"\"8\"}}\n",
			cases[i].labels);
		c = must_read(text);
		assert_string_equal(alias_of(c, 0), cases[i].alias);
		assert_warns(c, cases[i].warning);
		adp_cluster_destroy(c);
	}
}

static void the_instance_type_tells_the_network(void **state)
{
	struct adp_cluster *c = must_read(NODE("a", "NVIDIA-A100-SXM4-40GB", "40536", "8",
	                                       "    node.kubernetes.io/instance-type: p4d.24xlarge\n",
	                                       "8"));

	(void)state;
	assert_near(c->nodes[0].nic.bytes_per_s,
	            50e9); /* 400 Gb/s per node, a quarter of the usual A100 node */
	assert_int_equal(c->nodes[0].n_nics, 4);
	assert_false(c->network_assumed);
	adp_cluster_destroy(c);
}

static void amd_nodes_are_read(void **state)
{
	struct adp_cluster *c = must_read("kind: Node\nmetadata: {name: a, labels: "
	                                  "{amd.com/gpu.product-name: AMD_Instinct_MI300X_OAM}}\n"
	                                  "status: {allocatable: {amd.com/gpu: \"8\"}}\n");

	(void)state;
	assert_string_equal(alias_of(c, 0), "MI300X");
	assert_string_equal(c->types[0].vendor, "AMD");
	assert_int_equal(c->nodes[0].n_gpus, 8);
	adp_cluster_destroy(c);
}

/* Each is left out beside a good node, and the warning says why. */
static void unusable_nodes_are_left_out_with_the_reason(void **state)
{
	static const struct {
		const char *node, *warning;
	} cases[] = {
		{NODE("bad", "NVIDIA-X999", "81559", "8", "", "8"),
	     "GPU product 'NVIDIA-X999' is not in the table"},
		{NODE("bad", "NVIDIA-H1000", "81559", "8", "", "8"), "nearest H100"},
		{NODE("bad", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "4864", "56",
	          "    nvidia.com/mig.strategy: single\n", "56"),
	     "cut into MIG slices"},
		{NODE("bad", "NVIDIA-H100-80GB-HBM3", "81559", "8", "", "0"),
	     "no whole GPU is allocatable"},
		{H100_NODE("bad", "spec: {unschedulable: true}\n"), "cordoned (unschedulable)"},
		{H100_NODE("bad",
	               "spec: {taints: [{key: nvidia.com/gpu-xid-error, effect: NoSchedule}]}\n"),
	     "taint nvidia.com/gpu-xid-error"},
		{H100_NODE("bad",
	               "spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}\n"),
	     "taint node.kubernetes.io/unreachable"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {nvidia.com/gpu.product: "
	     "NVIDIA-H200}}\nstatus: {allocatable: {nvidia.com/gpu: 8}, conditions: [{type: Ready, "
	     "status: Unknown}]}\n",
	     "not ready"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {nvidia.com/gpu.product: "
	     "NVIDIA-H200}}\nstatus: {allocatable: {nvidia.com/gpu: 8}, conditions: [{type: Ready, "
	     "status: \"True\"}, {type: GpuMemWatch, status: \"True\"}]}\n",
	     "condition GpuMemWatch"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {nvidia.com/gpu.present: "
	     "\"true\"}}\nstatus: {allocatable: {nvidia.com/gpu: 8}}\n",
	     "no label nvidia.com/gpu.product (GPU feature discovery writes it)"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {nvidia.com/gpu.product: NVIDIA-H200}}\n",
	     "neither status.allocatable nor label nvidia.com/gpu.count"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {cloud.google.com/gke-accelerator: "
	     "nvidia-tesla-k80}}\nstatus: {allocatable: {alpha.kubernetes.io/nvidia-gpu: \"0\"}}\n",
	     "cloud.google.com/gke-accelerator=nvidia-tesla-k80 is not in the table"},
		{"---\nkind: Node\nmetadata: {name: bad, labels: {cloud.google.com/gke-accelerator: "
	     "nvidia-tesla-t4, cloud.google.com/gke-gpu-partition-size: 1g.5gb}}\nstatus: "
	     "{allocatable: {nvidia.com/gpu: 7}}\n",
	     "cut into MIG slices"},
		{"---\nkind: Node\nmetadata: {name: bad}\nstatus: {capacity: {cpu: \"8\"}}\n",
	     "no GPU resource and no GPU label"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[2048], reason[256];
		struct adp_cluster *c;

		snprintf(text, sizeof text, "%s%s", H100_NODE("good", ""), cases[i].node);
		c = must_read(text);
		assert_int_equal(c->n_nodes, 1);
		assert_string_equal(c->nodes[0].name, "good");
		assert_warns(c, cases[i].warning);
		snprintf(reason, sizeof reason, "left out: ");
		assert_warns(c, reason);
		adp_cluster_destroy(c);
	}
}

static void taints_that_a_job_can_tolerate_are_reported(void **state)
{
	struct adp_cluster *c = must_read(H100_NODE(
		"a", "spec: {taints: [{key: nvidia.com/gpu, effect: NoSchedule}, {key: dedicated, "
			 "value: x, effect: NoSchedule}, {key: soft, effect: PreferNoSchedule}]}\n"));

	(void)state;
	assert_int_equal(c->n_nodes, 1);
	assert_warns(c, "must tolerate taint dedicated");
	assert_false(warns(c, "taint nvidia.com/gpu"));
	assert_false(warns(c, "taint soft"));
	adp_cluster_destroy(c);
}

static void annotations_state_health_network_and_place(void **state)
{
	struct adp_cluster *c = must_read(
		NODE("a", "NVIDIA-H100-80GB-HBM3", "81559", "2",
	         "  annotations:\n    adp.parallelism/gpu-speed: 1,0.8\n    adp.parallelism/nics: "
	         "2x400Gb/s\n    adp.parallelism/rack: r1\n"
	         "    adp.parallelism/spine: s1\n    adp.parallelism/power-domain: row1\n    "
	         "adp.parallelism/cooling-domain: loop1\n",
	         "2") NODE("b", "NVIDIA-H100-80GB-HBM3", "81559", "2",
	                   "  annotations: {adp.parallelism/gpu-speed: 90%}\n", "2"));
	const struct adp_node *a = node_named(c, "a"), *b = node_named(c, "b");

	(void)state;
	assert_near(a->gpu_speed_frac[0], 1);
	assert_near(a->gpu_speed_frac[1], 0.8);
	assert_near(b->gpu_speed_frac[1], 0.9);
	assert_near(a->nic.bytes_per_s, 100e9); /* 2 x 400 Gb/s */
	assert_int_equal(a->n_nics, 2);
	assert_string_equal(domain_of(c, a->rack), "r1");
	assert_string_equal(domain_of(c, a->spine), "s1");
	assert_string_equal(domain_of(c, a->power), "row1");
	assert_string_equal(domain_of(c, a->cooling), "loop1");
	adp_cluster_destroy(c);
}

static void bad_node_lists_are_refused_with_the_place(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"", "is empty"},
		{"hello", "neither a cluster file"},
		{"a: 1", "kind is missing"},
		{"kind: Pod", "kind 'Pod' is not understood"},
		{"kind: List", "items of the list are missing"},
		{"kind: List\nitems: [{kind: Node, metadata: {labels: {}}}]",
	     "items[0].metadata.name is missing"},
		{"kind: List\nitems: []", "no node with a usable GPU is left"},
		{"{\"kind\":\"List\",\"items\":[", "test:1:"},
		{H100_NODE("a", "  annotations: {adp.parallelism/gpu-speed: \"0\"}\n"),
	     "0 is not from 0.001 to 1"},
		{H100_NODE("a", "  annotations: {adp.parallelism/gpu-speed: nan}\n"),
	     "adp.parallelism/gpu-speed"},
		{H100_NODE("a", "  annotations: {adp.parallelism/gpu-speed: \"1,1\"}\n"),
	     "2 numbers for 8 GPUs"},
		{H100_NODE("a", "  annotations: {adp.parallelism/gpu-type: V100}\n"),
	     "'V100' names no single GPU type, nearest V100-16"},
		{H100_NODE("a", "  annotations: {adp.parallelism/nics: 400Gb/s}\n"),
	     "write COUNTxBANDWIDTH"},
		{H100_NODE("a", "  annotations: {adp.parallelism/nics: 8x400}\n"),
	     "a bandwidth with its unit"},
		{H100_NODE("a", "  annotations: {adp.parallelism/nics: 8x0Gb/s}\n"), "must be above 0"},
		{H100_NODE("a", "  annotations: {adp.parallelism/rack: \"a\\nb\"}\n"),
	     "control characters"},
		{H100_NODE("a", "") NODE("a", "NVIDIA-H200", "143771", "8", "", "8"),
	     "listed twice, as 8 x H100 and 8 x H200"},
		{H100_NODE("\"a b\"", ""), "is not a host name"},
		{H100_NODE("\"$(reboot)\"", ""), "is not a host name"},
		{NODE("a", "NVIDIA-H200", "143771", "99999", "", "99999"), "a node has at most 1024"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct adp_cluster *c;
		struct adp_error err = {0};

		assert_int_not_equal(
			adp_cluster_read(&c, cases[i].text, strlen(cases[i].text), "test", hw, &err), ADP_OK);
		assert_null(c);
		assert_says(err, cases[i].expected);
	}
}

static void other_objects_of_a_list_are_ignored(void **state)
{
	struct adp_cluster *c = must_read(
		"{\"kind\":\"List\",\"items\":[{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\"}},"
		"{\"kind\":\"Node\",\"metadata\":{\"name\":\"a\",\"labels\":{\"nvidia.com/"
		"gpu.product\":\"NVIDIA-H200\"}},"
		"\"status\":{\"allocatable\":{\"nvidia.com/gpu\":\"8\"}}}]}");

	(void)state;
	assert_int_equal(c->n_nodes, 1);
	assert_warns(c, "objects of kind Pod are ignored");
	adp_cluster_destroy(c);
}

static void nodes_in_several_zones_are_reported(void **state)
{
	struct adp_cluster *c = must_read(
		H100_NODE("a", "    topology.kubernetes.io/zone: z1\n")
			H100_NODE("b", "    failure-domain.beta.kubernetes.io/zone: z2\n"));

	(void)state;
	assert_warns(c, "more than one zone");
	adp_cluster_destroy(c);
}

static void long_lists_of_warnings_are_cut(void **state)
{
	enum { N = 100 };
	char *text = malloc(N * 512), shown[64];
	struct adp_cluster *c;

	(void)state;
	snprintf(text, 512, "%s", H100_NODE("good", ""));
	for (int i = 0; i < N; i++)
		snprintf(
			text + strlen(text), 512,
			"---\nkind: Node\nmetadata: {name: n%d, labels: {nvidia.com/gpu.product: Unknown-%d}}\n"
			"status: {allocatable: {nvidia.com/gpu: 1}, conditions: [{type: Ready, status: "
			"\"True\"}]}\n",
			i, i);
	c = must_read(text);
	assert_int_equal(c->n_nodes, 1);
	assert_int_equal(c->n_warnings, 65); /* 64 and the line that counts the rest */
	snprintf(shown, sizeof shown, "%d more warnings are left out", N + 2 - 64);
	assert_string_equal(c->warnings[64], shown); /* 100 products, network, free GPUs */
	adp_cluster_destroy(c);
	free(text);
}

/* ---- order and size ------------------------------------------------------------------- */

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)*seed * n >> 32);
}

/* One node as JSON with its labels in a random order. */
static int print_node(char *out, size_t size, uint32_t i, uint32_t *seed)
{
	static const char *const products[] = {"NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "Tesla-T4",
	                                       "NVIDIA-GB200"};
	static const char *const memories[] = {"81559", "143771", "15360", "189471"};
	char labels[5][96], text[640] = "";
	uint32_t order[5] = {0, 1, 2, 3, 4};

	snprintf(labels[0], sizeof labels[0], "\"nvidia.com/gpu.product\":\"%s\"", products[i % 4]);
	snprintf(labels[1], sizeof labels[1], "\"nvidia.com/gpu.memory\":\"%s\"", memories[i % 4]);
	snprintf(labels[2], sizeof labels[2], "\"nvidia.com/gpu.count\":\"4\"");
	snprintf(labels[3], sizeof labels[3], "\"network.topology.nvidia.com/leaf\":\"leaf-%u\"",
	         i / 8);
	snprintf(labels[4], sizeof labels[4], "\"nvidia.com/gpu.clique\":\"c%u.1\"", i / 16);
	for (uint32_t k = 5; k > 1; k--) {
		uint32_t other = random_below(seed, k), kept = order[k - 1];

		order[k - 1] = order[other];
		order[other] = kept;
	}
	for (uint32_t k = 0; k < 5; k++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", k ? "," : "",
		         labels[order[k]]);
	if (random_below(seed, 2))
		return snprintf(out, size,
		                "{\"kind\":\"Node\",\"status\":{\"allocatable\":{\"nvidia.com/"
		                "gpu\":\"4\"}},\"metadata\":"
		                "{\"labels\":{%s},\"name\":\"node-%u\"}}",
		                text, i);
	return snprintf(
		out, size,
		"{\"metadata\":{\"name\":\"node-%u\",\"labels\":{%s}},\"kind\":\"Node\",\"status\":"
		"{\"allocatable\":{\"nvidia.com/gpu\":\"4\"}}}",
		i, text);
}

static char *print_list(const uint32_t *order, uint32_t n, uint32_t *seed)
{
	size_t size = 64 + (size_t)n * 700, at;
	char *text = malloc(size);

	at = (size_t)snprintf(text, size, "{\"kind\":\"List\",\"items\":[");
	for (uint32_t i = 0; i < n; i++) {
		if (i)
			text[at++] = ',';
		at += (size_t)print_node(text + at, size - at, order[i], seed);
	}
	snprintf(text + at, size - at, "]}");
	return text;
}

static void shuffled_nodes_labels_and_keys_give_the_same_cluster(void **state)
{
	enum { N = 60 };
	uint32_t order[N], seed = 1;
	char digest[64] = "";

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		order[i] = i;
	for (int round = 0; round < 30; round++) {
		struct adp_cluster *c;
		char *text = print_list(order, N, &seed);

		c = must_read(text);
		assert_int_equal(c->n_nodes, N);
		if (round)
			assert_string_equal(c->digest, digest);
		snprintf(digest, sizeof digest, "%s", c->digest);
		for (uint32_t i = 1; i < N; i++) { /* sorted as the header says */
			const struct adp_node *a = &c->nodes[i - 1], *b = &c->nodes[i];

			assert_true(a->type < b->type || (a->type == b->type && a->rack <= b->rack));
		}
		adp_cluster_destroy(c);
		free(text);
		for (uint32_t k = N; k > 1; k--) {
			uint32_t other = random_below(&seed, k), kept = order[k - 1];

			order[k - 1] = order[other];
			order[other] = kept;
		}
	}
}

static void a_further_node_removes_none(void **state)
{
	enum { N = 40 };
	uint32_t order[N], seed = 7;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		order[i] = (i * 7) % N;
	for (uint32_t n = 1; n < N; n++) {
		char *few = print_list(order, n, &seed), *more = print_list(order, n + 1, &seed);
		struct adp_cluster *a = must_read(few), *b = must_read(more);

		assert_int_equal(b->n_nodes, a->n_nodes + 1);
		for (uint32_t i = 0; i < a->n_nodes; i++)
			assert_non_null(node_named(b, a->nodes[i].name));
		adp_cluster_destroy(a);
		adp_cluster_destroy(b);
		free(few);
		free(more);
	}
}

static void ten_thousand_nodes_are_read(void **state)
{
	enum { N = 10000 };
	uint32_t *order = malloc(N * sizeof *order), seed = 3;
	struct adp_cluster *c;
	char *text;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		order[i] = N - 1 - i;
	text = print_list(order, N, &seed);
	c = must_read(text);
	assert_int_equal(c->n_nodes, N);
	assert_int_equal(adp_cluster_n_gpus(c), 4 * N);
	assert_true(c->n_warnings < 10); /* said once, not once per node */
	assert_warns(c, "2500 nodes (node-0, node-4, node-8, ...)");
	adp_cluster_destroy(c);
	free(text);
	free(order);
}

/* ---- reference files and faults -------------------------------------------------------- */

static void reference_node_dumps_read_as_their_cases_say(void **state)
{
	static const struct {
		const char *file, *alias;
		uint32_t n_gpus;
		uint64_t memory_mib;
	} cases[] = {
		{"issue_gpu_memory_in_bytes", "A100-40", 1, 40536},
		{"issue_h100_gpu_count_unchanged_under_mig", "H100", 6, 81559},
		{"timesliced_shared_replicas", "A10G", 1, 23028},
		{"issue_h100_8x_xe9680", "H100", 8, 81559},
		{"issue_dgx_station_display_label_A", "A100-40", 4, 40536},
		{"issue_dgx_station_display_label_B", "A100-40", 4, 40536},
		{"issue_mixed_v100_16_32", "V100-16", 8, 16160},
		{"issue_t4_aws_g4dn", "T4", 1, 15109},
		{"node_t4x2_gce", "T4", 2, 15360},
	};
	char name[128], *text;
	struct adp_error err = {0};
	struct adp_cluster *c;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(name, sizeof name, "k8s_node/%s.yaml", cases[i].file);
		text = shared_file(name);
		if (!text)
			continue;
		c = must_read(text);
		assert_int_equal(c->n_nodes, 1);
		assert_string_equal(alias_of(c, 0), cases[i].alias);
		assert_int_equal(c->nodes[0].n_gpus, cases[i].n_gpus);
		assert_int_equal(c->types[0].memory_bytes, cases[i].memory_mib << 20);
		adp_cluster_destroy(c);
		adp_free(text);
	}
	text = shared_file("k8s_node/issue_gb200_4nodes_2cliques.yaml");
	if (text) {
		c = must_read(text);
		assert_int_equal(c->n_domains, 2); /* 2 domains of 8 GPUs */
		assert_int_equal(c->nodes[0].nvlink_domain, c->nodes[1].nvlink_domain);
		assert_int_equal(c->nodes[2].nvlink_domain, c->nodes[3].nvlink_domain);
		assert_int_equal(adp_cluster_n_gpus(c), 16);
		adp_cluster_destroy(c);
		adp_free(text);
	}
	text = shared_file("k8s_node/gke_k80_2017.yaml");
	if (text) {
		assert_int_equal(adp_cluster_read(&c, text, strlen(text), "k80", hw, &err), ADP_EINVAL);
		assert_says(err, "nvidia-tesla-k80 is not in the table");
		adp_free(text);
	}
}

static int read_all_kinds(void *context)
{
	static const char text[] = H100_NODE(
		"a", "    topology.kubernetes.io/rack: r1\n    topology.kubernetes.io/zone: z\n"
			 "  annotations: {adp.parallelism/gpu-speed: 90%, adp.parallelism/power-domain: p}\n")
		GB200("n1", "aaaa-1.7") NODE("v", "Tesla-V100-SXM2-32GB", "32510", "8", "", "8")
			NODE("x", "NVIDIA-X999", "81559", "8", "", "8");
	struct adp_cluster *c;
	int rc = adp_cluster_read(&c, text, sizeof text - 1, "nodes", hw, NULL);

	(void)context;
	adp_cluster_destroy(c);
	return rc;
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	fault_sweep(read_all_kinds, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_node_reads_without_a_doubt_but_the_network),
		cmocka_unit_test(a_memory_label_in_bytes_is_understood),
		cmocka_unit_test(the_least_memory_label_of_a_type_counts),
		cmocka_unit_test(only_allocatable_gpus_count_under_mig),
		cmocka_unit_test(a_gap_between_capacity_and_allocatable_is_reported),
		cmocka_unit_test(time_sliced_gpus_count_once),
		cmocka_unit_test(shared_gpus_without_a_count_label_are_left_out),
		cmocka_unit_test(a_display_card_does_not_change_the_answer),
		cmocka_unit_test(an_annotation_states_the_type_of_a_doubtful_node),
		cmocka_unit_test(a_display_card_in_an_unknown_machine_is_left_out),
		cmocka_unit_test(v100_sizes_may_be_mixed_so_the_smaller_counts),
		cmocka_unit_test(a_cloud_machine_type_settles_which_v100_it_is),
		cmocka_unit_test(labels_that_disagree_on_memory_give_the_smaller),
		cmocka_unit_test(h100_and_h200_are_told_apart),
		cmocka_unit_test(cliques_are_nvlink_domains),
		cmocka_unit_test(without_a_clique_nvlink_ends_at_the_node),
		cmocka_unit_test(topograph_and_aws_name_nvlink_domains_of_rack_size_only),
		cmocka_unit_test(racks_and_spines_come_from_the_labels_of_each_provider),
		cmocka_unit_test(provider_labels_stand_in_for_feature_discovery),
		cmocka_unit_test(the_instance_type_tells_the_network),
		cmocka_unit_test(amd_nodes_are_read),
		cmocka_unit_test(unusable_nodes_are_left_out_with_the_reason),
		cmocka_unit_test(taints_that_a_job_can_tolerate_are_reported),
		cmocka_unit_test(annotations_state_health_network_and_place),
		cmocka_unit_test(bad_node_lists_are_refused_with_the_place),
		cmocka_unit_test(other_objects_of_a_list_are_ignored),
		cmocka_unit_test(nodes_in_several_zones_are_reported),
		cmocka_unit_test(long_lists_of_warnings_are_cut),
		cmocka_unit_test(shuffled_nodes_labels_and_keys_give_the_same_cluster),
		cmocka_unit_test(a_further_node_removes_none),
		cmocka_unit_test(ten_thousand_nodes_are_read),
		cmocka_unit_test(reference_node_dumps_read_as_their_cases_say),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load_hardware, unload_hardware);
}
