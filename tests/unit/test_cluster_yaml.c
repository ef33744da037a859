/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters from our own YAML: docs/cluster.md. */
#include "cluster_fixture.h"

#include "support/fault_sweep.h"

#define HEAD "apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\n"

static const char everything[] = HEAD
	"metadata: {name: lab}\n"
	"gpuTypes:\n"
	"- {name: H100, tflops: {bf16: 900}, tdp: 650W}\n"
	"- {name: NVIDIA-X900, alias: X900, base: B200, memory: 512GiB, computeCapability: \"12.0\"}\n"
	"spines:\n"
	"- {name: north, uplink: {bandwidth: 6400Gb/s, latency: 3us, load: 0.25}}\n"
	"racks:\n"
	"- {name: 'rack-{}', count: 2, spine: north, uplink: {bandwidth: 1600Gb/s, load: 10%}}\n"
	"- {name: lone}\n"
	"powerDomains:\n"
	"- {name: row, limit: 400kW}\n"
	"coolingDomains:\n"
	"- {name: loop, limit: 350000}\n"
	"nodeGroups:\n"
	"- name: h100\n"
	"  count: 4\n"
	"  nodeName: 'gpu{02}'\n"
	"  firstIndex: 7\n"
	"  gpu: H100\n"
	"  gpusPerNode: 4\n"
	"  links:\n"
	"    nvlink: {bandwidth: 400GB/s, latency: 2us, load: 5%}\n"
	"    nics: {count: 4, bandwidth: 200Gb/s, latency: 6us, load: 0.5}\n"
	"  rack: 'rack-{}'\n"
	"  nodesPerRack: 2\n"
	"  powerDomain: row\n"
	"  coolingDomain: loop\n"
	"- name: cards\n"
	"  nodeNames: [alpha, beta]\n"
	"  gpu: L40S\n"
	"  links: {pcie: {gpusPerRootPort: 4}, nics: {bandwidth: 100Gb/s, count: 1}}\n"
	"  health: 0.9\n"
	"nodes:\n"
	"- {name: gpu08, health: {2: 0.5}, links: {nics: {load: 0}}}\n"
	"- {name: beta, gpus: 3, health: [1, 80%, 0.7], rack: lone}\n"
	"- {name: extra, gpu: X900, gpus: 2, spine: north}\n";

static void everything_a_file_states_arrives(void **state)
{
	struct adp_cluster *c = must_read(everything);
	const struct adp_node *a = node_named(c, "gpu07"), *b = node_named(c, "gpu08"),
						  *d = node_named(c, "gpu10");
	const struct adp_node *alpha = node_named(c, "alpha"), *beta = node_named(c, "beta"),
						  *extra = node_named(c, "extra");

	(void)state;
	assert_string_equal(c->name, "lab");
	assert_int_equal(c->n_nodes, 7); /* 4 + 2 + 1 */
	assert_int_equal(c->n_types, 3);
	assert_int_equal(adp_cluster_n_gpus(c), 4 * 4 + 8 + 3 + 2);

	assert_int_equal(a->n_gpus, 4);
	assert_int_equal(a->gpu_link.kind, ADP_LINK_NVLINK);
	assert_near(a->gpu_link.bytes_per_s, 400e9);
	assert_near(a->gpu_link.latency_s, 2e-6);
	assert_near(a->gpu_link.load_frac, 0.05);
	assert_near(a->nic.bytes_per_s, 100e9); /* 4 x 200 Gb/s / 8 */
	assert_int_equal(a->n_nics, 4);
	assert_near(a->nic.latency_s, 6e-6);
	assert_near(a->nic.load_frac, 0.5);
	assert_string_equal(domain_of(c, a->rack), "rack-0");
	assert_string_equal(domain_of(c, d->rack), "rack-1"); /* nodes 2 and 3 of the group */
	assert_string_equal(domain_of(c, a->spine), "north"); /* by way of the rack */
	assert_near(c->domains[a->rack].uplink.bytes_per_s, 200e9);
	assert_near(c->domains[a->rack].uplink.load_frac, 0.1);
	assert_true(c->domains[a->rack].uplink.latency_s > 0); /* the usual one */
	assert_near(c->domains[a->spine].uplink.bytes_per_s, 800e9);
	assert_near(c->domains[a->spine].uplink.latency_s, 3e-6);
	assert_near(c->domains[a->spine].uplink.load_frac, 0.25);
	assert_near(c->domains[a->power].limit_w, 400e3);
	assert_near(c->domains[a->cooling].limit_w, 350e3);
	assert_near(a->gpu_speed_frac[2], 1);

	assert_near(b->gpu_speed_frac[2], 0.5); /* the change, and all else from the group */
	assert_near(b->gpu_speed_frac[1], 1);
	assert_near(b->nic.load_frac, 0);
	assert_near(b->nic.bytes_per_s, 100e9);
	assert_string_equal(domain_of(c, b->rack), "rack-0");

	assert_int_equal(alpha->n_gpus, 8);
	assert_int_equal(alpha->gpu_link.kind, ADP_LINK_PCIE);
	assert_int_equal(alpha->gpus_per_root, 4);
	assert_near(alpha->nic.bytes_per_s, 12.5e9);
	assert_near(alpha->gpu_speed_frac[7], 0.9);
	assert_int_equal(alpha->rack, ADP_NONE);
	assert_int_equal(beta->n_gpus, 3);
	assert_near(beta->gpu_speed_frac[0], 1);
	assert_near(beta->gpu_speed_frac[1], 0.8);
	assert_near(beta->gpu_speed_frac[2], 0.7);
	assert_string_equal(domain_of(c, beta->rack), "lone");
	assert_int_equal(beta->spine, ADP_NONE);
	assert_near(beta->nic.bytes_per_s, 12.5e9); /* of the node, however many GPUs count */

	assert_string_equal(c->types[extra->type].name, "NVIDIA-X900");
	assert_int_equal(c->types[extra->type].memory_bytes, 512ull << 30);
	assert_int_equal(c->types[extra->type].compute_capability, 120);
	assert_near(adp_gpu_type_peak(&c->types[extra->type]), 2250e12); /* from its base */
	assert_string_equal(domain_of(c, extra->spine), "north");
	assert_near(c->types[a->type].peak_flops_per_s[ADP_PRECISION_BF16], 900e12);
	assert_near(c->types[a->type].tdp_w, 650);
	assert_near(adp_hardware_find(hw, "H100", 0, NULL, 0)->tdp_w, 700); /* the table is untouched */
	assert_true(c->network_assumed);                                    /* extra states no NICs */
	assert_warns(c, "network of X900 nodes is assumed");
	adp_cluster_destroy(c);
}

static void a_short_file_is_enough(void **state)
{
	struct adp_cluster *c = must_read(HEAD "nodeGroups: [{name: a, gpu: H100, count: 2}]\n"),
					   *list = must_list("H100:16");

	(void)state;
	assert_int_equal(c->n_nodes, 2);
	assert_string_equal(c->nodes[1].name, "a-1");
	assert_int_equal(c->nodes[0].n_gpus, list->nodes[0].n_gpus);
	assert_near(c->nodes[0].nic.bytes_per_s, list->nodes[0].nic.bytes_per_s);
	adp_cluster_destroy(c);
	adp_cluster_destroy(list);
}

static void a_file_that_states_its_network_assumes_nothing(void **state)
{
	struct adp_cluster *c = must_read(
		HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {count: 8, bandwidth: 400Gb/s}}}]\n");

	(void)state;
	assert_false(c->network_assumed);
	assert_int_equal(c->n_warnings, 0);
	adp_cluster_destroy(c);
}

/* Case choice-10. */
static void uneven_nodes_are_expressible(void **state)
{
	static const uint32_t cases[3][3] = {{2, 3, 3}, {8, 4, 0}, {4, 1, 0}};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct adp_cluster *c;
		char text[512] = HEAD "nodes:\n";

		for (int k = 0; k < 3 && cases[i][k]; k++)
			snprintf(text + strlen(text), sizeof text - strlen(text),
			         "- {name: n%d, gpu: H100, gpus: %u}\n", k, cases[i][k]);
		c = must_read(text);
		for (uint32_t k = 0; k < c->n_nodes; k++)
			assert_int_equal(c->nodes[k].n_gpus, cases[i][k]);
		assert_int_equal(c->n_nodes, i ? 2 : 3);
		adp_cluster_destroy(c);
	}
}

static void nvlink_domains_join_nodes_by_count_or_name(void **state)
{
	struct adp_cluster *c = must_read(
		HEAD "nodeGroups:\n- {name: a, gpu: GB200, count: 36}\n"
			 "- {name: b, gpu: GB200, count: 4, nodesPerNvlinkDomain: 2}\n"
			 "- {name: d, gpu: GB200, count: 2, nvlinkDomain: shared}\n"
			 "- {name: e, gpu: GB200, count: 4, nvlinkDomain: 'e{}', nodesPerNvlinkDomain: 2}\n"
			 "nodes: [{name: f, gpu: GB200, nvlinkDomain: shared}, {name: g, gpu: GB200}]\n");

	(void)state;
	assert_int_equal(node_named(c, "a-0")->nvlink_domain,
	                 node_named(c, "a-17")->nvlink_domain); /* 72 GPUs / 4 = 18 */
	assert_int_not_equal(node_named(c, "a-17")->nvlink_domain,
	                     node_named(c, "a-18")->nvlink_domain);
	assert_warns(c, "18 nodes in a row are taken to share an NVLink domain");
	assert_int_equal(node_named(c, "b-0")->nvlink_domain, node_named(c, "b-1")->nvlink_domain);
	assert_int_not_equal(node_named(c, "b-1")->nvlink_domain, node_named(c, "b-2")->nvlink_domain);
	assert_int_equal(node_named(c, "d-0")->nvlink_domain, node_named(c, "f")->nvlink_domain);
	assert_string_equal(domain_of(c, node_named(c, "e-3")->nvlink_domain), "e1");
	assert_string_equal(domain_of(c, node_named(c, "g")->nvlink_domain), "g");
	adp_cluster_destroy(c);
}

static void bridged_cards_and_missing_nvlink_can_be_stated(void **state)
{
	struct adp_cluster *c = must_read(
		HEAD "nodes:\n- {name: pair, gpu: A100-PCIE-80, gpus: 2, links: {nvlink: {}}}\n"
			 "- {name: plain, gpu: A100-PCIE-80, gpus: 2}\n"
			 "- {name: broken, gpu: H100, links: {pcie: {bandwidth: 50GB/s}}}\n");

	(void)state;
	assert_int_equal(node_named(c, "pair")->gpu_link.kind, ADP_LINK_NVLINK);
	assert_near(node_named(c, "pair")->gpu_link.bytes_per_s, 300e9); /* the bridge of that card */
	assert_int_equal(node_named(c, "plain")->gpu_link.kind, ADP_LINK_PCIE);
	assert_near(node_named(c, "plain")->gpu_link.bytes_per_s, 32e9);
	assert_int_equal(node_named(c, "broken")->gpu_link.kind, ADP_LINK_PCIE);
	assert_near(node_named(c, "broken")->gpu_link.bytes_per_s, 50e9);
	adp_cluster_destroy(c);
}

static void order_of_lists_and_keys_does_not_matter(void **state)
{
	static const char *const texts[] = {
		HEAD
		"racks: [{name: r1, uplink: {bandwidth: 1GB/s}}, {name: r2}]\n"
		"nodeGroups: [{name: a, gpu: H100, count: 3, rack: r1}, {name: b, gpu: T4, rack: r2}]\n"
		"nodes: [{name: a-1, health: 0.5}, {name: z, gpu: L4}]\n",
		HEAD
		"nodes: [{gpu: L4, name: z}, {health: 50%, name: a-1}]\n"
		"nodeGroups: [{rack: r2, gpu: t4, name: b}, {count: 3, rack: r1, gpu: h100, name: a}]\n"
		"racks: [{name: r2}, {uplink: {bandwidth: 8Gb/s}, name: r1}]\n",
		"{\"kind\": \"Cluster\", \"nodes\": [{\"name\": \"a-1\", \"health\": "
		"[0.5,0.5,0.5,0.5,0.5,0.5,0.5,0.5]}, {\"name\": \"z\", \"gpu\": \"L4\"}],"
		"\"racks\": [{\"name\": \"r1\", \"uplink\": {\"bandwidth\": \"1GB/s\"}}, {\"name\": "
		"\"r2\"}],"
		"\"apiVersion\": \"adp.parallelism/v1alpha1\", \"nodeGroups\": [{\"name\": \"b\", \"gpu\": "
		"\"Tesla-T4\", \"rack\": \"r2\"},"
		"{\"name\": \"a\", \"gpu\": \"H100\", \"count\": 3, \"rack\": \"r1\"}]}",
	};
	struct adp_cluster *first = must_read(texts[0]);

	(void)state;
	for (int i = 1; i < 3; i++) {
		struct adp_cluster *c = must_read(texts[i]);

		assert_string_equal(c->digest, first->digest);
		assert_int_equal(c->n_warnings, first->n_warnings);
		for (uint32_t k = 0; k < c->n_warnings; k++)
			assert_string_equal(c->warnings[k], first->warnings[k]);
		adp_cluster_destroy(c);
	}
	adp_cluster_destroy(first);
}

static void the_digest_sees_every_property(void **state)
{
	static const char *const texts[] = {
		HEAD "nodeGroups: [{name: a, gpu: H100}]\n",
		HEAD "nodeGroups: [{name: b, gpu: H100}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, health: 0.9}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, health: {7: 0.9}}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, links: {nvlink: {load: 0.1}}}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {load: 0.1}}}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {count: 4}}}]\n",
		HEAD "nodeGroups: [{name: a, gpu: H100, rack: r}]\n",
		HEAD "racks: [{name: r, uplink: {bandwidth: 1GB/s}}]\nnodeGroups: [{name: a, gpu: H100, "
			 "rack: r}]\n",
		HEAD "powerDomains: [{name: p, limit: 1kW}]\nnodeGroups: [{name: a, gpu: H100, "
			 "powerDomain: p}]\n",
		HEAD "powerDomains: [{name: p, limit: 2kW}]\nnodeGroups: [{name: a, gpu: H100, "
			 "powerDomain: p}]\n",
		HEAD "gpuTypes: [{name: H100, memory: 70GiB}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	};
	enum { N = sizeof texts / sizeof *texts };
	struct adp_cluster *c[N];

	(void)state;
	for (int i = 0; i < N; i++)
		c[i] = must_read(texts[i]);
	for (int i = 0; i < N; i++) {
		for (int k = i + 1; k < N; k++) {
			if (strcmp(c[i]->digest, c[k]->digest) == 0)
				fail_msg("no difference between\n%sand\n%s", texts[i], texts[k]);
		}
	}
	for (int i = 0; i < N; i++)
		adp_cluster_destroy(c[i]);
}

static void bad_files_are_refused_with_the_field(void **state)
{
	static const struct {
		const char *text, *expected;
	} cases[] = {
		{"kind: Cluster\n", "apiVersion"},
		{"apiVersion: v2\nkind: Cluster\n", "apiVersion is 'v2'"},
		{HEAD, "nodeGroups is missing"},
		{HEAD "nodeGroups: []\n", "no node with a usable GPU is left"},
		{HEAD "nodeGroup: []\n", "nodeGroups"},
		{HEAD "nodeGroups: {}\n", "nodeGroups"},
		{HEAD "nodeGroups: [7]\n", "nodeGroups[0]"},
		{HEAD "nodeGroups: [{gpu: H100}]\n", "nodeGroups[0].name"},
		{HEAD "nodeGroups: [{name: a}]\n", "nodeGroups[0].gpu is missing"},
		{HEAD "nodeGroups: [{name: a, gpu: H10}]\n", "nearest A10, H20, H100"},
		{HEAD "nodeGroups: [{name: a, gpu: V100}]\n", "V100-16, V100-32"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 0}]\n", "nodeGroups[0].count is 0"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 1000000000}]\n",
	     "nodeGroups[0].count is 1000000000"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: .nan}]\n", "nodeGroups[0].count"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 2.5}]\n", "nodeGroups[0].count"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, gpusPerNode: 0}]\n",
	     "nodeGroups[0].gpusPerNode is 0"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, gpusPerNod: 4}]\n", "gpusPerNode"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 2, nodeName: x}]\n",
	     "nodeGroups[0].nodeName: with a count"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 2, nodeName: 'x{'}]\n",
	     "must have one '{}'"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 2, nodeName: 'x{}{}'}]\n",
	     "must have one '{}'"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, count: 2, nodeName: 'x{9999}'}]\n",
	     "must have one '{}'"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodeNames: [x], count: 2}]\n",
	     "leave count and nodeName out"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodeNames: [7]}]\n", "nodeNames[0]"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodeNames: [x, x]}]\n", "node x is given twice"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodeNames: ['$(x)']}]\n", "is not a host name"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodeName: \"x;y\"}]\n", "is not a host name"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: 0}]\n",
	     "nodeGroups[0].health: 0 is not a relative speed"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: 0.0009}]\n", "from 0.001 to 1"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: 1.5}]\n", "nodeGroups[0].health"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: -1}]\n", "nodeGroups[0].health"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: .nan}]\n", "nodeGroups[0].health"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: .inf}]\n", "nodeGroups[0].health"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: [1, 1]}]\n", "2 numbers for 8 GPUs"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: [1,1,1,1,1,1,1,0]}]\n",
	     "nodeGroups[0].health[7]"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: {8: 0.5}}]\n",
	     "'8' is no GPU of the node; they are numbered 0 to 7"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: {x: 0.5}}]\n",
	     "'x' is no GPU of the node"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: {1: 2}}]\n", "nodeGroups[0].health.1"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, health: true}]\n", "give a share such as"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {load: 1}}}]\n",
	     "nodeGroups[0].links.nics.load: 1 is not a load"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {load: [1]}}}]\n",
	     "nodeGroups[0].links.nics.load"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {bandwidth: 400}}}]\n",
	     "give a bandwidth with its unit"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {bandwidth: 400Gb}}}]\n",
	     "nodeGroups[0].links.nics.bandwidth"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {bandwidth: 0Gb/s}}}]\n",
	     "nodeGroups[0].links.nics.bandwidth"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {bandwidth: -1Gb/s}}}]\n",
	     "nodeGroups[0].links.nics.bandwidth"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {latency: 5}}}]\n",
	     "give a time with its unit"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nics: {latency: 2d}}}]\n",
	     "more than an hour"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, links: {nvlink: {}, pcie: {}}}]\n", "give one"},
		{HEAD "nodeGroups: [{name: a, gpu: T4, links: {nvlink: {}}}]\n",
	     "nodeGroups[0].links.nvlink.bandwidth is missing"},
		{HEAD "nodeGroups: [{name: a, gpu: T4, nvlinkDomain: x}]\n", "are joined by PCIe"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, rack: 'r{}'}]\n", "go together"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, rack: r, nodesPerRack: 2}]\n", "go together"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nodesPerRack: 2}]\n",
	     "nodeGroups[0].rack is missing"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, nvlinkDomain: 'x{}'}]\n", "go together"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, spine: 'x{}'}]\n", "has a place for a number"},
		{HEAD "nodeGroups: [{name: a, gpu: H100, rack: \"a\\nb\"}]\n", "must be printable"},
		{HEAD "racks: [{name: r1}]\nnodeGroups: [{name: a, gpu: H100, rack: r2}]\n",
	     "did you mean 'r1'"},
		{HEAD "powerDomains: []\nnodeGroups: [{name: a, gpu: H100, powerDomain: x}]\n",
	     "'x' is not in powerDomains; add it there"},
		{HEAD "racks: [{name: r1}, {name: r1}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "racks[1].name: 'r1' is listed twice"},
		{HEAD "racks: [{name: r, count: 2}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "racks[0].name: with a count"},
		{HEAD
	     "spines: [{name: s}]\nracks: [{name: r, spine: t}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "racks[0].spine: 't' is not in spines"},
		{HEAD "racks: [{name: r, uplink: {load: 0.5}}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "racks[0].uplink.bandwidth is missing"},
		{HEAD
	     "racks: [{name: r, spine: s}]\nnodeGroups: [{name: a, gpu: H100, rack: r, spine: t}]\n",
	     "stands on spine 's'"},
		{HEAD "powerDomains: [{name: p, limit: 0}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "powerDomains[0].limit: give a power above 0"},
		{HEAD "powerDomains: [{name: p, limit: 5 horses}]\nnodeGroups: [{name: a, gpu: H100}]\n",
	     "powerDomains[0].limit"},
		{HEAD "nodes: [{name: a}]\n", "no group has a node 'a'"},
		{HEAD "nodes: [{name: a, gpu: H100}, {name: a, gpu: H100}]\n",
	     "nodes[1].name: 'a' is listed twice"},
		{HEAD "nodes: [{name: a, gpu: H100, rack: 'r{}'}]\n", "nodes[0].rack"},
		{HEAD "nodes: [{name: a, gpu: H100, nvlinkDomain: 'r{}'}]\n", "nodes[0].nvlinkDomain"},
		{HEAD "nodes: [{name: a, gpu: H100, color: red}]\n", "nodes[0]"},
		{HEAD "gpuTypes: [{name: X1}]\nnodes: [{name: a, gpu: X1}]\n",
	     "gpuTypes[0]: GPU type 'X1' is new and has no memory"},
		{HEAD "gpuTypes: [{name: X1, base: V100}]\nnodes: [{name: a, gpu: X1}]\n",
	     "gpuTypes[0].base: 'V100' names no single GPU type"},
		{HEAD "gpuTypes: [{name: H100, base: A100-80}]\nnodes: [{name: a, gpu: H100}]\n",
	     "leave base out"},
		{HEAD "gpuTypes: [{name: H100, alias: X}]\nnodes: [{name: a, gpu: H100}]\n",
	     "leave alias out"},
		{HEAD "gpuTypes: [{name: X1, base: H100, alias: H200}]\nnodes: [{name: a, gpu: X1}]\n",
	     "more than one GPU type answers"},
		{HEAD "gpuTypes: [{name: H100, tflops: {bf16: .nan}}]\nnodes: [{name: a, gpu: H100}]\n",
	     "gpuTypes[0].tflops.bf16"},
		{HEAD
	     "gpuTypes: [{name: H100, tflops: {bf16: 900}, measuredBf16Tflops: 901}]\nnodes: [{name: a, gpu: H100}]\n",
	     "gpuTypes[0].measuredBf16Tflops is 901, more than the peak of 900"},
		{HEAD "gpuTypes: [{name: H100, tflops: {int4: 1}}]\nnodes: [{name: a, gpu: H100}]\n",
	     "gpuTypes[0].tflops"},
		{HEAD "gpuTypes: [{name: H100, memory: 80}]\nnodes: [{name: a, gpu: H100}]\n",
	     "give a size with its unit"},
		{HEAD "gpuTypes: [{name: H100, memory: 1kB}]\nnodes: [{name: a, gpu: H100}]\n",
	     "gpuTypes[0].memory"},
		{HEAD "gpuTypes: [{name: H100, computeCapability: nine}]\nnodes: [{name: a, gpu: H100}]\n",
	     "give it as \"9.0\""},
		{HEAD "gpuTypes: [{name: T4, nvlink: 50GB/s}]\nnodes: [{name: a, gpu: T4}]\n",
	     "gpuTypes[0].nvlinkDomainGpus is missing"},
		{HEAD "metadata: {nam: x}\nnodes: [{name: a, gpu: T4}]\n", "metadata"},
		{HEAD "nodes: [{name: a, gpu: T4}]\n---\n" HEAD, "must hold that one alone"},
		{HEAD "nodes: [{name: a, name: b}]\n", "test:3"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct adp_cluster *c;
		struct adp_error err = {0};

		if (adp_cluster_read(&c, cases[i].text, strlen(cases[i].text), "test", hw, &err) == ADP_OK)
			fail_msg("accepted: %s", cases[i].text);
		assert_null(c);
		assert_says(err, cases[i].expected);
		assert_says(err, "test"); /* where */
	}
}

static void sizes_beyond_the_limits_are_refused(void **state)
{
	static const char *const texts[] = {
		HEAD
		"nodeGroups: [{name: a, gpu: T4, count: 200000}, {name: b, gpu: T4}]\n",  /* 200001 nodes */
		HEAD "nodeGroups: [{name: a, gpu: T4, count: 200000, gpusPerNode: 8}]\n", /* 1600000 GPUs */
	};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct adp_cluster *c;
		struct adp_error err = {0};

		assert_int_equal(adp_cluster_read(&c, texts[i], strlen(texts[i]), "test", hw, &err),
		                 ADP_ELIMIT);
		assert_says(err, "nodeGroups");
		assert_says(err, "plan for a part of the cluster");
	}
}

static void a_file_is_loaded_by_its_path(void **state)
{
	struct adp_cluster *c;
	struct adp_error err = {0};

	(void)state;
	assert_int_equal(adp_cluster_load(&c, "/nonexistent.yaml", hw, &err), ADP_EIO);
	assert_null(c);
	if (adp_cluster_load(&c, ADP_SOURCE_DIR "/tests/fuzz/corpus/cluster/everything.yaml", hw, &err))
		fail_msg("%s", err.text);
	assert_string_equal(c->name, "lab");
	adp_cluster_destroy(c);
}

/* The worked example of docs/cluster.md is the text between the fences. */
static void the_documented_example_is_true(void **state)
{
	struct adp_error err = {0};
	struct adp_cluster *c;
	char *text, *start, *end;
	size_t len;

	(void)state;
	assert_int_equal(adp_file_read(&text, &len, ADP_SOURCE_DIR "/docs/cluster.md", 1 << 20, &err),
	                 ADP_OK);
	start = strstr(text, "```yaml\n");
	assert_non_null(start);
	start += strlen("```yaml\n");
	end = strstr(start, "```\n");
	assert_non_null(end);
	if (adp_cluster_read(&c, start, (size_t)(end - start), "docs/cluster.md", hw, &err))
		fail_msg("%s", err.text);
	assert_int_equal(c->n_nodes, 41); /* 16 + 16 + 8 + 1 as the text says */
	assert_int_equal(adp_cluster_n_gpus(c), 327);
	adp_cluster_destroy(c);
	adp_free(text);
}

static int read_everything(void *context)
{
	struct adp_cluster *c;
	int rc = adp_cluster_read(&c, everything, strlen(everything), "test", hw, NULL);

	(void)context;
	adp_cluster_destroy(c);
	return rc;
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	fault_sweep(read_everything, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_a_file_states_arrives),
		cmocka_unit_test(a_short_file_is_enough),
		cmocka_unit_test(a_file_that_states_its_network_assumes_nothing),
		cmocka_unit_test(uneven_nodes_are_expressible),
		cmocka_unit_test(nvlink_domains_join_nodes_by_count_or_name),
		cmocka_unit_test(bridged_cards_and_missing_nvlink_can_be_stated),
		cmocka_unit_test(order_of_lists_and_keys_does_not_matter),
		cmocka_unit_test(the_digest_sees_every_property),
		cmocka_unit_test(bad_files_are_refused_with_the_field),
		cmocka_unit_test(sizes_beyond_the_limits_are_refused),
		cmocka_unit_test(a_file_is_loaded_by_its_path),
		cmocka_unit_test(the_documented_example_is_true),
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load_hardware, unload_hardware);
}
