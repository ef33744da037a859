/* SPDX-License-Identifier: Apache-2.0 */
#include "random_instance.h"

#include <math.h>
#include <string.h>

#include "base/strbuf.h"

const struct random_limits random_small = {3, 4, 8, 8, 8, 16};
const struct random_limits random_tiny = {2, 2, 4, 8, 6, 16};

/* ---- numbers ---------------------------------------------------------------------------- */

/* splitmix64: any seed is a good one. */
uint64_t random_next(struct random_rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint32_t random_below(struct random_rng *rng, uint32_t n)
{
	return (uint32_t)(random_next(rng) % n);
}

double random_between(struct random_rng *rng, double low, double high)
{
	return low + (high - low) * ((double)(random_next(rng) >> 11) / 9007199254740992.0);
}

bool random_one_in(struct random_rng *rng, uint32_t n)
{
	return random_below(rng, n) == 0;
}

/* ---- drawing ------------------------------------------------------------------------------ */

static void draw_model(struct random_model *m, struct random_rng *rng, uint32_t max_layers)
{
	uint32_t kv_shift;

	m->n_layers = 2 + random_below(rng, max_layers - 1);
	m->n_heads = 1u << random_below(rng, 5);
	if (random_one_in(rng, 4))
		m->n_heads *= 3;
	kv_shift = random_below(rng, 3);
	m->n_kv_heads = m->n_heads;
	while (kv_shift-- && m->n_kv_heads % 2 == 0)
		m->n_kv_heads /= 2;
	m->head_dim = 64u << random_below(rng, 2);
	m->hidden = 256 * (1 + random_below(rng, 12));
	m->ffn = 256 * (1 + random_below(rng, 32));
	m->vocab = 1000 * (1 + random_below(rng, 60));
	m->tied = random_one_in(rng, 3);
	if (random_one_in(rng, 3)) {
		m->n_experts = 4u << random_below(rng, 2);
		m->top_k = 1 + random_below(rng, 2);
		m->expert_ffn = 256 * (1 + random_below(rng, 8));
		m->n_dense_first = random_one_in(rng, 3) ? 1 : 0;
	}
}

static double model_params(const struct random_model *m)
{
	double attention = 2.0 * m->hidden * m->head_dim * (m->n_heads + m->n_kv_heads);
	double ffn = 3.0 * m->hidden * (m->n_experts ? (double)m->expert_ffn * m->n_experts : m->ffn);

	return m->n_layers * (attention + ffn) + (m->tied ? 1.0 : 2.0) * m->vocab * m->hidden;
}

static void draw_node(struct random_node *node, struct random_rng *rng, uint32_t type,
                      uint32_t max_gpus)
{
	static const double sick[] = {0.5, 0.7, 0.83, 0.9, 0.95, 0.97};

	memset(node, 0, sizeof *node);
	node->type = type;
	node->n_gpus = random_one_in(rng, 3) ? 1 + random_below(rng, max_gpus)
	                                     : 1u << random_below(rng, 4);
	if (node->n_gpus > max_gpus)
		node->n_gpus = max_gpus;
	node->nvlink = !random_one_in(rng, 4);
	node->gpus_per_root = 1 + random_below(rng, 2);
	node->gpu_link_mb_per_s = 1000 * (node->nvlink ? 50 + random_below(rng, 8) * 50
	                                               : 8 + 8 * random_below(rng, 8));
	node->gpu_load_pct = random_one_in(rng, 6) ? 10 * (1 + random_below(rng, 5)) : 0;
	node->n_nics = 1 + random_below(rng, node->n_gpus);
	node->nic_mb_per_s = 1250u << random_below(rng, 6);
	node->nic_load_pct = random_one_in(rng, 5) ? 10 * (1 + random_below(rng, 8)) : 0;
	for (uint32_t g = 0; g < RANDOM_MAX_GPUS; g++)
		node->speed[g] = 1.0;
	if (random_one_in(rng, 4)) {
		double all = sick[random_below(rng, 6)];
		bool whole = random_one_in(rng, 2);
		uint32_t one = random_below(rng, node->n_gpus);

		for (uint32_t g = 0; g < RANDOM_MAX_GPUS; g++)
			if (whole || g == one)
				node->speed[g] = all;
	}
}

static void draw_nodes(struct random_instance *x, struct random_rng *rng,
                       const struct random_limits *limits)
{
	static const char *const names[] = {"H100", "A100-80", "A100-40", "H200",
	                                    "L40S", "V100-32", "RTX4090", "B200"};
	uint32_t first = random_below(rng, 8), left = limits->max_gpus;
	/* nodes of a type are alike as a rule */
	uint32_t mixed = random_below(rng, 4 * limits->max_types);

	x->n_types = 1 + random_below(rng, limits->max_types);
	for (uint32_t t = 0; t < x->n_types; t++) {
		uint32_t n_nodes = 1 + random_below(rng, limits->max_nodes_of_type);
		struct random_node like;

		x->types[t].name = names[(first + 3 * t) % 8];
		draw_node(&like, rng, t, limits->max_gpus_of_node);
		for (uint32_t n = 0; n < n_nodes && left; n++) {
			struct random_node *node = &x->nodes[x->n_nodes];

			*node = like;
			if (mixed == t && random_one_in(rng, 2))
				draw_node(node, rng, t, limits->max_gpus_of_node);
			if (node->n_gpus > left)
				node->n_gpus = left;
			if (node->n_nics > node->n_gpus)
				node->n_nics = node->n_gpus;
			node->rack = random_below(rng, RANDOM_MAX_RACKS);
			left -= node->n_gpus;
			x->n_nodes++;
		}
		if (!left)
			x->n_types = t + 1;
	}
	x->n_racks = mixed >= limits->max_types && random_one_in(rng, 8) ? RANDOM_MAX_RACKS : 0;
	for (uint32_t r = 0; r < RANDOM_MAX_RACKS; r++)
		x->rack_mb_per_s[r] = random_one_in(rng, 2) ? 0 : 5000u << random_below(rng, 6);
}

uint32_t random_instance_gpus(const struct random_instance *instance)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < instance->n_nodes; i++)
		n += instance->nodes[i].n_gpus;
	return n;
}

/*
 * From far too little to ample: the state of training, 18 bytes a parameter, spread over the fleet;
 * beside it what each GPU spends on itself, 0.9 GB of CUDA context and about as much for buckets
 * and communication.
 */
static void draw_memory(struct random_instance *x, struct random_rng *rng)
{
	double state_mib = 18.0 * model_params(&x->model) / 1048576.0 / random_instance_gpus(x);

	for (uint32_t t = 0; t < x->n_types; t++) {
		double factor = exp(random_between(rng, log(0.4), log(30.0)));

		x->types[t].memory_mib = (uint32_t)((1400.0 + factor * state_mib) / 0.88);
		if (x->types[t].memory_mib > 180000)
			x->types[t].memory_mib = 180000;
	}
}

void random_instance_draw(struct random_instance *out, uint64_t seed,
                          const struct random_limits *limits)
{
	struct random_rng rng = {seed};
	bool half;

	memset(out, 0, sizeof *out);
	out->seed = seed;
	draw_model(&out->model, &rng, limits->max_layers);
	draw_nodes(out, &rng, limits);
	draw_memory(out, &rng);
	/* with many more levers Megatron takes many times as long */
	out->engine = random_one_in(&rng, 4) ? "megatron" : "torch";
	half = random_one_in(&rng, 3);
	out->train = (struct adp_train){.global_batch_seqs = 4,
	                                .seq_tokens = 128u << random_below(&rng, 6),
	                                .tokens = 1e9,
	                                .precision = half ? ADP_PRECISION_FP16 : ADP_PRECISION_BF16,
	                                .optimizer = ADP_OPTIMIZER_ADAMW,
	                                .expert_load_factor = 1.0};
	out->train.global_batch_seqs = random_one_in(&rng, 3)
	                                   ? 4 + random_below(&rng, limits->max_batch - 3)
	                                   : 4u << random_below(&rng, 5);
	if (out->train.global_batch_seqs > limits->max_batch)
		out->train.global_batch_seqs = limits->max_batch;
}

/* ---- documents ------------------------------------------------------------------------------ */

/* Texts that are joined in the order of an index, shuffled or not. */
enum { MAX_PARTS = 24 };
struct parts {
	struct adp_strbuf text[MAX_PARTS];
	uint32_t n;
};

static struct adp_strbuf *part(struct parts *parts)
{
	return &parts->text[parts->n++];
}

static void join(struct adp_strbuf *to, struct parts *parts, const char *between,
                 struct random_rng *rng)
{
	uint32_t order[MAX_PARTS];

	for (uint32_t i = 0; i < parts->n; i++)
		order[i] = i;
	for (uint32_t i = parts->n; rng && i > 1; i--) {
		uint32_t j = random_below(rng, i), keep = order[i - 1];

		order[i - 1] = order[j];
		order[j] = keep;
	}
	for (uint32_t i = 0; i < parts->n; i++) {
		if (i)
			adp_strbuf_add(to, between);
		adp_strbuf_add(to, parts->text[order[i]].text ? parts->text[order[i]].text : "");
		if (parts->text[order[i]].failed)
			to->failed = parts->text[order[i]].failed;
	}
	for (uint32_t i = 0; i < parts->n; i++)
		adp_strbuf_fini(&parts->text[i]);
	parts->n = 0;
}

char *random_instance_config_shuffled(const struct random_instance *instance,
                                      struct random_rng *rng)
{
	const struct random_model *m = &instance->model;
	struct adp_strbuf out = {0};
	struct parts p = {.n = 0};

	adp_strbuf_addf(part(&p), "\"model_type\": \"%s\"", m->n_experts ? "qwen3_moe" : "llama");
	adp_strbuf_addf(part(&p), "\"hidden_size\": %u", m->hidden);
	adp_strbuf_addf(part(&p), "\"num_hidden_layers\": %u", m->n_layers);
	adp_strbuf_addf(part(&p), "\"num_attention_heads\": %u", m->n_heads);
	adp_strbuf_addf(part(&p), "\"num_key_value_heads\": %u", m->n_kv_heads);
	adp_strbuf_addf(part(&p), "\"head_dim\": %u", m->head_dim);
	adp_strbuf_addf(part(&p), "\"intermediate_size\": %u", m->ffn);
	adp_strbuf_addf(part(&p), "\"vocab_size\": %u", m->vocab);
	adp_strbuf_add(part(&p), "\"max_position_embeddings\": 65536");
	adp_strbuf_addf(part(&p), "\"tie_word_embeddings\": %s", m->tied ? "true" : "false");
	if (m->n_experts) {
		adp_strbuf_addf(part(&p), "\"num_experts\": %u", m->n_experts);
		adp_strbuf_addf(part(&p), "\"num_experts_per_tok\": %u", m->top_k);
		adp_strbuf_addf(part(&p), "\"moe_intermediate_size\": %u", m->expert_ffn);
		adp_strbuf_addf(part(&p), "\"mlp_only_layers\": [%s]", m->n_dense_first ? "0" : "");
		adp_strbuf_add(part(&p), "\"decoder_sparse_step\": 1");
	}
	adp_strbuf_add(&out, "{");
	join(&out, &p, ", ", rng);
	adp_strbuf_add(&out, "}\n");
	return adp_strbuf_steal(&out);
}

static void node_document(struct adp_strbuf *out, const struct random_instance *x, uint32_t at,
                          struct random_rng *rng)
{
	const struct random_node *node = &x->nodes[at];
	struct parts p = {.n = 0}, link = {.n = 0}, links = {.n = 0};
	struct adp_strbuf *to;

	adp_strbuf_addf(part(&p), "name: node-%02u", at);
	adp_strbuf_addf(part(&p), "gpu: %s", x->types[node->type].name);
	adp_strbuf_addf(part(&p), "gpus: %u", node->n_gpus);
	if (x->n_racks)
		adp_strbuf_addf(part(&p), "rack: rack-%u", node->rack);
	to = part(&p);
	adp_strbuf_add(to, "health: [");
	for (uint32_t g = 0; g < node->n_gpus; g++)
		adp_strbuf_addf(to, "%s%.4g", g ? ", " : "", node->speed[g]);
	adp_strbuf_add(to, "]");

	adp_strbuf_addf(part(&link), "bandwidth: %uMB/s", node->gpu_link_mb_per_s);
	adp_strbuf_addf(part(&link), "load: %u%%", node->gpu_load_pct);
	if (!node->nvlink)
		adp_strbuf_addf(part(&link), "gpusPerRootPort: %u", node->gpus_per_root);
	to = part(&links);
	adp_strbuf_addf(to, "%s: {", node->nvlink ? "nvlink" : "pcie");
	join(to, &link, ", ", rng);
	adp_strbuf_add(to, "}");
	adp_strbuf_addf(part(&link), "count: %u", node->n_nics);
	adp_strbuf_addf(part(&link), "bandwidth: %uMB/s", node->nic_mb_per_s);
	adp_strbuf_addf(part(&link), "load: %u%%", node->nic_load_pct);
	to = part(&links);
	adp_strbuf_add(to, "nics: {");
	join(to, &link, ", ", rng);
	adp_strbuf_add(to, "}");
	to = part(&p);
	adp_strbuf_add(to, "links: {");
	join(to, &links, ", ", rng);
	adp_strbuf_add(to, "}");

	adp_strbuf_add(out, "- {");
	join(out, &p, ", ", rng);
	adp_strbuf_add(out, "}");
}

char *random_instance_cluster_shuffled(const struct random_instance *instance,
                                       struct random_rng *rng)
{
	struct adp_strbuf out = {0}, *to;
	struct parts p = {.n = 0}, list = {.n = 0};

	adp_strbuf_add(part(&p), "apiVersion: adp.parallelism/v1alpha1\n");
	adp_strbuf_add(part(&p), "kind: Cluster\n");
	adp_strbuf_add(part(&p), "metadata: {name: random}\n");
	to = part(&p);
	adp_strbuf_add(to, "gpuTypes:\n");
	for (uint32_t t = 0; t < instance->n_types; t++)
		adp_strbuf_addf(part(&list), "- {name: %s, memory: %uMiB}", instance->types[t].name,
		                instance->types[t].memory_mib);
	join(to, &list, "\n", rng);
	adp_strbuf_add(to, "\n");
	if (instance->n_racks) {
		to = part(&p);
		adp_strbuf_add(to, "racks:\n");
		for (uint32_t r = 0; r < instance->n_racks; r++) {
			if (instance->rack_mb_per_s[r])
				adp_strbuf_addf(part(&list), "- {name: rack-%u, uplink: {bandwidth: %uMB/s}}", r,
				                instance->rack_mb_per_s[r]);
			else
				adp_strbuf_addf(part(&list), "- {name: rack-%u}", r);
		}
		join(to, &list, "\n", rng);
		adp_strbuf_add(to, "\n");
	}
	to = part(&p);
	adp_strbuf_add(to, "nodes:\n");
	for (uint32_t i = 0; i < instance->n_nodes; i++)
		node_document(part(&list), instance, i, rng);
	join(to, &list, "\n", rng);
	adp_strbuf_add(to, "\n");
	join(&out, &p, "", rng);
	return adp_strbuf_steal(&out);
}

static void node_of_list(struct adp_strbuf *out, const struct random_instance *x, uint32_t at,
                         struct random_rng *rng)
{
	const struct random_node *node = &x->nodes[at];
	struct parts p = {.n = 0}, meta = {.n = 0}, inner = {.n = 0};
	struct adp_strbuf *to;

	adp_strbuf_add(part(&p), "\"kind\": \"Node\"");
	adp_strbuf_add(part(&p), "\"apiVersion\": \"v1\"");
	adp_strbuf_addf(part(&meta), "\"name\": \"node-%02u\"", at);
	adp_strbuf_addf(part(&inner), "\"nvidia.com/gpu.count\": \"%u\"", node->n_gpus);
	adp_strbuf_add(part(&inner), "\"kubernetes.io/arch\": \"amd64\"");
	if (x->n_racks)
		adp_strbuf_addf(part(&inner), "\"topology.kubernetes.io/rack\": \"rack-%u\"", node->rack);
	to = part(&meta);
	adp_strbuf_add(to, "\"labels\": {");
	join(to, &inner, ", ", rng);
	adp_strbuf_add(to, "}");
	adp_strbuf_addf(part(&inner), "\"adp.parallelism/gpu-type\": \"%s\"",
	                x->types[node->type].name);
	adp_strbuf_addf(part(&inner), "\"adp.parallelism/nics\": \"%ux%uMB/s\"", node->n_nics,
	                node->nic_mb_per_s);
	to = part(&inner);
	adp_strbuf_add(to, "\"adp.parallelism/gpu-speed\": \"");
	for (uint32_t g = 0; g < node->n_gpus; g++)
		adp_strbuf_addf(to, "%s%.4g", g ? "," : "", node->speed[g]);
	adp_strbuf_add(to, "\"");
	to = part(&meta);
	adp_strbuf_add(to, "\"annotations\": {");
	join(to, &inner, ", ", rng);
	adp_strbuf_add(to, "}");
	to = part(&p);
	adp_strbuf_add(to, "\"metadata\": {");
	join(to, &meta, ", ", rng);
	adp_strbuf_add(to, "}");
	adp_strbuf_addf(part(&inner), "\"allocatable\": {\"nvidia.com/gpu\": \"%u\"}", node->n_gpus);
	adp_strbuf_add(part(&inner), "\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]");
	to = part(&p);
	adp_strbuf_add(to, "\"status\": {");
	join(to, &inner, ", ", rng);
	adp_strbuf_add(to, "}");
	adp_strbuf_add(out, "{");
	join(out, &p, ", ", rng);
	adp_strbuf_add(out, "}");
}

char *random_instance_node_list(const struct random_instance *instance, struct random_rng *rng)
{
	struct adp_strbuf out = {0}, *to;
	struct parts p = {.n = 0}, list = {.n = 0};

	adp_strbuf_add(part(&p), "\"apiVersion\": \"v1\"");
	adp_strbuf_add(part(&p), "\"kind\": \"List\"");
	to = part(&p);
	adp_strbuf_add(to, "\"items\": [\n");
	for (uint32_t i = 0; i < instance->n_nodes; i++)
		node_of_list(part(&list), instance, i, rng);
	join(to, &list, ",\n", rng);
	adp_strbuf_add(to, "]");
	adp_strbuf_add(&out, "{");
	join(&out, &p, ", ", rng);
	adp_strbuf_add(&out, "}\n");
	return adp_strbuf_steal(&out);
}

char *random_instance_config(const struct random_instance *instance)
{
	return random_instance_config_shuffled(instance, NULL);
}

char *random_instance_cluster(const struct random_instance *instance)
{
	return random_instance_cluster_shuffled(instance, NULL);
}
