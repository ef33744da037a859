/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public cases on mixed and uneven fleets and on where ranks go, asked of the whole planner.
 * docs/cases.md has the list.
 */
#include "search_fixture.h"

#include <math.h>

/* 12 blocks of 768 with heads of 64: 0.11e9 parameters. */
static const struct sizes tiny = {.hidden = 768,
                                  .n_layers = 12,
                                  .n_heads = 12,
                                  .n_kv_heads = 12,
                                  .head_dim = 64,
                                  .ffn = 2048,
                                  .vocab = 32000,
                                  .tied = true};

/* Llama-2-7B. */
static const struct sizes seven_billion = {.hidden = 4096,
                                           .n_layers = 32,
                                           .n_heads = 32,
                                           .n_kv_heads = 32,
                                           .head_dim = 128,
                                           .ffn = 11008,
                                           .vocab = 32000};

/* ---- mixed
 * --------------------------------------------------------------------------------------- */

#define NODE(name, product, memory, count, labels)                                                 \
	"---\napiVersion: v1\nkind: Node\nmetadata:\n  name: " name                                    \
	"\n  labels:\n    nvidia.com/gpu.product: " product "\n    nvidia.com/gpu.memory: \"" memory   \
	"\"\n    nvidia.com/gpu.count: \"" count "\"\n" labels                                         \
	"status:\n  allocatable: {nvidia.com/gpu: \"" count "\"}\n"                                    \
	"  conditions: [{type: Ready, status: \"True\"}]\n"
#define STATION(product, memory)                                                                   \
	NODE("station", product, memory, "4", "    nvidia.com/gpu.machine: DGX-Station-A100\n")

static char *plan_text(const char *fleet)
{
	struct adp_error err = {0};
	struct adp_plan *plan;
	struct job job;
	char *text;

	job_init(&job, &tiny, fleet, torch, 64, 1024);
	plan = must_plan(&job);
	if (adp_plan_to_json(&text, plan, &err))
		fail_msg("%s", err.text);
	adp_plan_destroy(plan);
	job_fini(&job);
	return text;
}

/* The spec: what is launched. Notes of what was doubtful may differ. */
static char *spec_of(char *text)
{
	char *spec = strstr(text, "\"spec\""), *end = strstr(text, "\"prediction\"");

	assert_non_null(spec);
	assert_non_null(end);
	*end = '\0';
	return spec;
}

/* Case heterogeneous-01: the label flips between the display card and the GPUs from scan to scan.
 */
static void both_label_samples_give_the_same_plan(void **state)
{
	char *a = plan_text(STATION("NVIDIA-DGX-Display", "3902"));
	char *b = plan_text(STATION("NVIDIA-A100-SXM4-40GB", "40536"));

	(void)state;
	assert_string_equal(spec_of(a), spec_of(b));
	adp_free(a);
	adp_free(b);
}

/*
 * Case heterogeneous-03: ZeRO 3 over four V100 of 16 GB and four of 32 GB gives each the same
 * share, so the small ones decide: 0.88 * 16160 MiB = 13.9 GiB. 16 bytes of each of 5.3e9
 * parameters are 10.6 GB a GPU and do not fit beside whole blocks, although all 192 GB together are
 * more than enough.
 */
static void the_smallest_card_decides_under_equal_shards(void **state)
{
	struct sizes sizes = {.hidden = 4096,
	                      .n_layers = 20,
	                      .n_heads = 32,
	                      .n_kv_heads = 32,
	                      .head_dim = 128,
	                      .ffn = 11008,
	                      .vocab = 32000};
	struct adp_plan *plan;
	struct job job, only;
	double shard;

	(void)state;
	job_init(&job, &sizes, "V100-16x4:4,V100-32x4:4", torch, 64, 1024);
	job.train.precision = ADP_PRECISION_FP16;
	job.opts.zero_stage = 3;
	job.opts.dp = just(8);
	plan = must_plan(&job);
	assert_int_equal(plan->shard_gpus, 8);
	assert_int_equal(plan->gpus[0].n_used, 4);
	assert_int_equal(plan->gpus[1].n_used, 4);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(plan->stages[0].memory.peak_bytes <= plan->gpus[i].usable_bytes);
	assert_int_equal(plan->stages[0].usable_bytes, (uint64_t)(0.88 * 16160.0 * 1048576.0));
	/* fp32 weights and two moments: 12 bytes of a parameter, an eighth of it, on each */
	shard = 12.0 * (double)plan->model.params / 8.0;
	assert_true(fabs((double)plan->stages[0].memory.optimizer / shard - 1.0) < 0.01);
	adp_plan_destroy(plan);
	job_fini(&job);

	sizes.n_layers = 25;
	job_init(&job, &sizes, "V100-16x4:4,V100-32x4:4", torch, 64, 1024);
	job.train.precision = ADP_PRECISION_FP16;
	job.opts.zero_stage = 3;
	job.opts.dp = just(8);
	assert_refused(&job, ADP_EINFEASIBLE, "does not fit in memory", "13.9 GiB usable each");
	job_init(&only, &sizes, "V100-32x4:8", torch, 64, 1024);
	only.train = job.train;
	only.opts = job.opts;
	adp_plan_destroy(must_plan(&only)); /* eight of the large ones would do */
	job_fini(&only);
	job_fini(&job);
}

/*
 * Case heterogeneous-05: alone 135.7 s and 380.4 s, in lockstep 225.4 s. Speed 1 : 0.36 here. Equal
 * batches make the pair slower than the fast one alone (1/2 of the work at 0.36 is 1.39 of its
 * time); 74 : 26 is 0.735 of it.
 */
static void a_slow_partner_gets_its_share_or_none(void **state)
{
	static const char pair[] = "apiVersion: adp.parallelism/v1alpha1\n"
							   "kind: Cluster\n"
							   "metadata: {name: pair}\n"
							   "nodes:\n"
							   "- {name: new, gpu: RTX3090, gpus: 1}\n"
							   "- {name: old, gpu: RTX3090, gpus: 1, health: [0.36]}\n";
	struct adp_plan *plan;
	struct job job, other;
	double alone_s, equal_s;

	(void)state;
	job_init(&job, &tiny, pair, torch, 256, 1024);
	job.opts.tp = job.opts.pp = just(1);
	other = job;
	other.opts.gpus = just(1);
	alone_s = must_step_s(&other);
	other = job;
	other.opts.dp = just(2);
	other.opts.equal_batches = true;
	equal_s = must_step_s(&other);
	assert_true(equal_s > alone_s);

	plan = must_plan(&job);
	assert_true(plan->step.step_s <= alone_s);
	assert_int_equal(plan->dp, 2);
	assert_int_equal(plan->n_pipes, 2);
	/* 16 of 256: the shares come in micro-batches of 16, 12 to 4 of them */
	assert_in_range(
		plan->pipes[1].n_micro * 100 / (plan->pipes[0].n_micro + plan->pipes[1].n_micro), 20, 30);
	assert_true(plan->step.step_s < 0.85 * alone_s); /* the case expects 100 of 135.7 s */
	adp_plan_destroy(plan);

	/* one count for all replicas in this engine: never worse than the fast one alone */
	job.engine = megatron;
	other = job;
	other.opts.gpus = just(1);
	alone_s = must_step_s(&other);
	plan = must_plan(&job);
	assert_true(plan->step.step_s <= alone_s);
	assert_int_equal(adp_plan_world(plan), 1);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static double stage_s(const struct adp_plan *plan, uint32_t s)
{
	return plan->pipes[0].cells[s].fwd_s + plan->pipes[0].cells[s].bwd_s;
}

/*
 * Case heterogeneous-08: 32 layers over one H100 and four A6000. The slowest stage is one of A6000
 * with the most layers; it can get shorter only if the H100 takes so many that every A6000 has
 * fewer, and that does not fit.
 */
static void the_slowest_stage_is_the_shortest_that_memory_allows(void **state)
{
	const struct adp_engine *const engines[] = {torch, megatron};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct adp_rank_items items = {.n_chunks = 1};
		struct sizes sizes = seven_billion;
		struct adp_memory memory;
		struct adp_plan *plan;
		struct job job;
		uint32_t n = 0, fast = 0, most = 0, first_item, n_items;
		double slowest_s = 0.0;

		sizes.vocab = 40000;
		job_init(&job, &sizes, "H100x1:1,A6000x4:4", engines[i], 64, 2048);
		job.opts.pp = just(5);
		job.opts.micro_batch = job.opts.vpp = just(1);
		plan = must_plan(&job);
		assert_int_equal(plan->dp, 1);
		for (uint32_t s = 0; s < 5; s++) {
			uint32_t layers = layers_of(&plan->stages[s]);

			n += layers;
			slowest_s = fmax(slowest_s, stage_s(plan, s));
			assert_true(plan->stages[s].memory.peak_bytes <= plan->stages[s].usable_bytes);
			if (strcmp(plan->gpus[plan->pipes[0].cells[s].gpu].alias, "H100") == 0)
				fast = layers;
			else
				most = layers > most ? layers : most;
		}
		assert_int_equal(n, 32);
		assert_true(fast > 0);
		for (uint32_t s = 0; s < 5; s++) {
			if (stage_s(plan, s) >= slowest_s)
				assert_int_equal(layers_of(&plan->stages[s]), most);
		}

		/* what the H100 would hold, as last stage with the leanest settings: norm, head and loss
		 * too */
		n_items = 32 - 4 * (most - 1) + 3;
		first_item = job.model->n_items - n_items;
		items.first_item = &first_item;
		items.n_items = &n_items;
		adp_memory(&memory, job.engine, job.model, &job.train,
		           &(struct adp_shape){.tp = 1,
		                               .cp = 1,
		                               .ep = 1,
		                               .etp = 1,
		                               .micro_batch_seqs = 1,
		                               .precision = job.train.precision},
		           &items,
		           &(struct adp_memory_opts){.shard_gpus = 1,
		                                     .expert_shard_gpus = 1,
		                                     .in_flight = 1,
		                                     .recompute = ADP_RECOMPUTE_FULL,
		                                     .flash = true,
		                                     .n_comm_groups = 1});
		assert_int_equal(job.model->items[first_item].kind, ADP_ITEM_BLOCK);
		assert_true(memory.peak_bytes > adp_usable_bytes(job.engine, &job.cluster->types[0]));
		assert_string_equal(job.cluster->types[0].alias, "H100");
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Case heterogeneous-10: two nodes of H200 and one of H100, all just "NVIDIA". */
static void h100_and_h200_are_two_types_in_a_plan(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &seven_billion,
	         NODE("a", "NVIDIA-H200", "143771", "8", "")
	             NODE("b", "NVIDIA-H100-80GB-HBM3", "81559", "8", "")
	                 NODE("c", "NVIDIA-H200", "143771", "8", ""),
	         megatron, 96, 2048);
	plan = must_plan(&job);
	assert_int_equal(plan->n_gpu_types, 2);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(plan->gpus[i].n_total, strcmp(plan->gpus[i].alias, "H200") == 0 ? 16 : 8);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* ---- places
 * ----------------------------------------------------------------------------------------- */

/* Every tensor x context group lies in one node. */
static void expect_whole_groups(const struct adp_plan *plan)
{
	uint32_t size = plan->tp * plan->cp;

	for (uint32_t r = 0; r < adp_plan_world(plan); r++)
		assert_string_equal(node_of_rank(plan, r), node_of_rank(plan, r - r % size));
}

static void uneven_fleet(char *out, size_t size, const uint32_t *gpus, size_t n)
{
	snprintf(
		out, size,
		"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: uneven}\nnodes:\n");
	for (size_t i = 0; i < n; i++)
		snprintf(out + strlen(out), size - strlen(out), "- {name: n%zu, gpu: A100-80, gpus: %u}\n",
		         i, gpus[i]);
}

/*
 * Case choice-10: 2 + 3 + 3, 8 + 4 and 4 + 1 GPUs. A valid plan has each rank once and no GPU
 * twice, so each node starts the count of its own ranks; test_emit_launch and test_torchrun hold
 * the launch itself.
 */
static void uneven_nodes_are_used_with_a_count_of_their_own(void **state)
{
	static const uint32_t fleets[][3] = {{2, 3, 3}, {8, 4, 0}, {4, 1, 0}};
	const struct adp_engine *const engines[] = {torch, megatron};

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		const uint32_t *gpus = fleets[i / 2];
		size_t n = gpus[2] ? 3 : 2;
		uint32_t placed = 0, total = gpus[0] + gpus[1] + gpus[2];
		struct adp_plan *plan;
		struct job job;
		char fleet[512];

		uneven_fleet(fleet, sizeof fleet, gpus, n);
		job_init(&job, &seven_billion, fleet, engines[i % 2], 240, 2048);
		job.opts.cp = just(1);
		plan = must_plan(&job);
		for (uint32_t r = 0; r < plan->n_runs; r++)
			placed += plan->runs[r].n_nodes * plan->runs[r].gpus_per_node;
		assert_int_equal(placed, adp_plan_world(plan));
		assert_int_equal(plan->gpus[0].n_used, placed);
		assert_int_equal(plan->gpus[0].n_total, total);
		assert_true(placed == total); /* 240 divides by 8, 12 and 5: nothing need stand idle */
		expect_whole_groups(plan);
		adp_plan_destroy(plan);

		/* tensor 2 leaves out the odd GPU of a node, and the plan tells how many */
		job.opts.tp = just(2);
		plan = must_plan(&job);
		assert_int_equal(adp_plan_world(plan), 2 * (gpus[0] / 2 + gpus[1] / 2 + gpus[2] / 2));
		assert_int_equal(plan->gpus[0].n_used, adp_plan_world(plan));
		expect_whole_groups(plan);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Case rank-and-gang-01: 10 ranks in 3 racks of 4, whose hosts are named crosswise. */
static void rank_order_follows_the_racks(void **state)
{
	char fleet[2048] =
		"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: racks}\n"
		"racks:\n- {name: rack-0}\n- {name: rack-1}\n- {name: rack-2}\nnodes:\n";

	(void)state;
	for (uint32_t i = 0; i < 12; i++)
		snprintf(fleet + strlen(fleet), sizeof fleet - strlen(fleet),
		         "- {name: host-%02u, gpu: A100-80, gpus: 1, rack: rack-%u}\n", i, i * 5 % 12 / 4);
	for (uint32_t as_stages = 0; as_stages < 2; as_stages++) {
		struct adp_plan *plan;
		struct job job;
		uint32_t rack[10], crossings = 0;

		job_init(&job, &tiny, fleet, torch, 120, 1024);
		job.opts.dp = just(as_stages ? 1 : 10);
		job.opts.pp = just(as_stages ? 10 : 1);
		job.opts.tp = just(1);
		plan = must_plan(&job);
		assert_int_equal(adp_plan_world(plan), 10);
		for (uint32_t r = 0; r < 10; r++) {
			unsigned host;

			assert_int_equal(sscanf(node_of_rank(plan, r), "host-%u", &host), 1);
			rack[r] = host * 5 % 12 / 4;
		}
		for (uint32_t r = 0; r < 10; r++)
			crossings += rack[r] != rack[(r + 1) % 10];
		assert_int_equal(crossings, 3); /* [0-3] [4-7] [8, 9] and back */
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Case rank-and-gang-03: the nodes come in the order b, a, and one has a GPU more than the groups
 * of four need. */
static void tensor_groups_are_never_torn_over_machines(void **state)
{
	static const char fleet[] =
		"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: ab}\nnodes:\n"
		"- {name: b, gpu: A100-80, gpus: 5}\n- {name: a, gpu: A100-80, gpus: 4}\n";
	const struct adp_engine *const engines[] = {torch, megatron};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct adp_plan *plan;
		struct job job;

		job_init(&job, &seven_billion, fleet, engines[i], 64, 2048);
		job.opts.tp = just(4);
		job.opts.cp = just(1);
		plan = must_plan(&job);
		assert_int_equal(adp_plan_world(plan), 8);
		expect_whole_groups(plan);
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

#define GB200(name, clique)                                                                        \
	NODE(name, "NVIDIA-GB200", "189471", "4", "    nvidia.com/gpu.clique: " clique "\n")

/* Case rank-and-gang-05: four nodes of four GPUs in two cliques, named crosswise: tensor and expert
 * groups of 8 stay in one. */
static void groups_stay_inside_an_nvlink_clique(void **state)
{
	static const char fleet[] = GB200("n1", "aaaa-1.7") GB200("n2", "bbbb-2.7")
		GB200("n3", "aaaa-1.7") GB200("n4", "bbbb-2.7");
	struct sizes sizes = seven_billion;

	(void)state;
	sizes.n_experts = 8;
	sizes.top_k = 2;
	sizes.expert_ffn = 4096;
	for (uint32_t by_experts = 0; by_experts < 2; by_experts++) {
		struct adp_plan *plan;
		struct job job;

		job_init(&job, by_experts ? &sizes : &seven_billion, fleet, megatron, 64, 2048);
		job.opts.tp = just(by_experts ? 1 : 8);
		job.opts.ep = just(by_experts ? 8 : 1);
		job.opts.cp = just(1);
		plan = must_plan(&job);
		assert_int_equal(adp_plan_world(plan), 16);
		for (uint32_t r = 0; r < 16; r++) {
			char here = node_of_rank(plan, r)[1], first = node_of_rank(plan, r - r % 8)[1];

			assert_int_equal((here - '1') % 2, (first - '1') % 2); /* n1 and n3, or n2 and n4 */
		}
		adp_plan_destroy(plan);
		job_fini(&job);
	}
}

/* Without data parallelism the only gradients that travel are those of a tied embedding's two
 * copies. */
static void the_exchange_of_a_tied_embedding_is_called_by_its_name(void **state)
{
	struct sizes sizes = tiny;
	struct adp_plan *plan;
	struct job job;

	(void)state;
	sizes.vocab = 256000; /* 197e6 of 282e6 parameters */
	job_init(&job, &sizes, "RTX4090x2:2", torch, 2, 256);
	job.opts.pp = just(2);
	plan = must_plan(&job);
	must_explain(plan, &job);
	assert_non_null(strstr(
		plan->binding,
		"the exchange of the tied embedding's gradient between first and last stage over PCIe"));
	adp_plan_destroy(plan);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_label_samples_give_the_same_plan),
		cmocka_unit_test(the_smallest_card_decides_under_equal_shards),
		cmocka_unit_test(a_slow_partner_gets_its_share_or_none),
		cmocka_unit_test(the_slowest_stage_is_the_shortest_that_memory_allows),
		cmocka_unit_test(h100_and_h200_are_two_types_in_a_plan),
		cmocka_unit_test(uneven_nodes_are_used_with_a_count_of_their_own),
		cmocka_unit_test(rank_order_follows_the_racks),
		cmocka_unit_test(tensor_groups_are_never_torn_over_machines),
		cmocka_unit_test(groups_stay_inside_an_nvlink_clique),
		cmocka_unit_test(the_exchange_of_a_tied_embedding_is_called_by_its_name),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
