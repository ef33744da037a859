/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by tests that ask the whole planner: a job is what a command line of adp plan says. */
#ifndef ADP_TESTS_SEARCH_FIXTURE_H
#define ADP_TESTS_SEARCH_FIXTURE_H

#include "planner_fixture.h"

/* The sizes of a decoder with SwiGLU and RMSNorm; n_experts 0: dense. */
struct sizes {
	unsigned hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab;
	unsigned n_experts, top_k, expert_ffn;
	bool tied;
};

struct job {
	struct adp_model *model;
	struct adp_cluster *cluster;
	const struct adp_engine *engine;
	struct adp_train train;
	struct adp_search_opts opts;
};

/* fleet: a list such as "H100:8", or a cluster file or node list. */
static void job_init(struct job *job, const struct sizes *sizes, const char *fleet,
                     const struct adp_engine *engine, uint64_t global_batch_seqs,
                     uint64_t seq_tokens)
{
	struct adp_error err = {0};
	char config[1024];

	snprintf(config, sizeof config,
	         "{\"model_type\": \"%s\", \"hidden_size\": %u, \"num_hidden_layers\": %u, "
	         "\"num_attention_heads\": %u, \"num_key_value_heads\": %u, \"head_dim\": %u, "
	         "\"intermediate_size\": %u, \"vocab_size\": %u, \"max_position_embeddings\": 131072, "
	         "\"tie_word_embeddings\": %s, \"num_experts\": %u, \"num_experts_per_tok\": %u, "
	         "\"moe_intermediate_size\": %u, \"mlp_only_layers\": [], \"decoder_sparse_step\": 1}",
	         sizes->n_experts ? "qwen3_moe" : "llama", sizes->hidden, sizes->n_layers,
	         sizes->n_heads, sizes->n_kv_heads, sizes->head_dim, sizes->ffn, sizes->vocab,
	         sizes->tied ? "true" : "false", sizes->n_experts, sizes->top_k, sizes->expert_ffn);
	if (!sizes->n_experts) /* keys of experts are unknown to a dense family */
		memcpy(strstr(config, ", \"num_experts\""), "}", 2);
	memset(job, 0, sizeof *job);
	if (adp_model_read(&job->model, config, strlen(config), "model", &err))
		fail_msg("%s", err.text);
	if (strchr(fleet, '\n')
	        ? adp_cluster_read(&job->cluster, fleet, strlen(fleet), "fleet", hw, &err)
	        : adp_cluster_from_gpus(&job->cluster, fleet, hw, &err))
		fail_msg("%s", err.text);
	job->engine = engine;
	job->train = (struct adp_train){.global_batch_seqs = global_batch_seqs,
	                                .seq_tokens = seq_tokens,
	                                .tokens = 1e9,
	                                .precision = ADP_PRECISION_BF16,
	                                .optimizer = ADP_OPTIMIZER_ADAMW,
	                                .restart_s = 300.0,
	                                .storage_bytes_per_s = 2e9,
	                                .expert_load_factor = 1.0};
	adp_search_opts_init(&job->opts);
}

static void job_fini(struct job *job)
{
	adp_model_destroy(job->model);
	adp_cluster_destroy(job->cluster);
}

__attribute__((unused)) static struct adp_pin just(uint32_t value)
{
	return (struct adp_pin){value, value};
}

static int ask(struct adp_plan **plan, const struct job *job, struct adp_error *err)
{
	memset(err, 0, sizeof *err);
	*plan = NULL;
	return adp_search(plan, job->model, job->cluster, job->engine, tables, &job->train, &job->opts,
	                  err);
}

/* The best plan, valid and inside the memory of each GPU it runs on. */
static struct adp_plan *must_plan(const struct job *job)
{
	struct adp_error err;
	struct adp_plan *plan;

	if (ask(&plan, job, &err))
		fail_msg("%s", err.text);
	if (adp_plan_validate(plan, &err))
		fail_msg("not valid: %s", err.text);
	return plan;
}

__attribute__((unused)) static double must_step_s(const struct job *job)
{
	struct adp_plan *plan = must_plan(job);
	double step_s = plan->step.step_s;

	adp_plan_destroy(plan);
	return step_s;
}

__attribute__((unused)) static void must_explain(struct adp_plan *plan, const struct job *job)
{
	struct adp_error err = {0};

	if (adp_search_explain(plan, job->model, job->cluster, job->engine, tables, &job->train,
	                       &job->opts, &err))
		fail_msg("%s", err.text);
}

__attribute__((unused)) static bool reasons_say(const struct adp_plan *plan, const char *text)
{
	for (uint32_t i = 0; i < plan->n_reasons; i++) {
		if (strstr(plan->reasons[i], text))
			return true;
	}
	return false;
}

__attribute__((unused)) static uint32_t layers_of(const struct adp_plan_stage *stage)
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < stage->n_chunks; c++)
		n += stage->n_layers[c];
	return n;
}

/* Name of the node that holds a rank. */
__attribute__((unused)) static const char *node_of_rank(const struct adp_plan *plan, uint32_t rank)
{
	for (uint32_t i = 0; i < plan->n_runs; i++) {
		const struct adp_plan_run *run = &plan->runs[i];
		uint32_t at = rank - run->first_rank;

		if (rank >= run->first_rank && at < run->n_nodes * run->gpus_per_node)
			return run->nodes[at / run->gpus_per_node];
	}
	fail_msg("rank %u is nowhere", rank);
	return NULL;
}

#define assert_says(err, wanted)                                                                   \
	do {                                                                                           \
		if (!strstr((err).text, wanted))                                                           \
			fail_msg("'%s' does not say '%s'", (err).text, wanted);                                \
	} while (0)

/* The planner's answer is no, with this code and these words. */
#define assert_refused(job, code, ...)                                                             \
	do {                                                                                           \
		const char *const refused_words[] = {__VA_ARGS__};                                         \
		struct adp_error refused_err;                                                              \
		struct adp_plan *refused_plan;                                                             \
                                                                                                   \
		assert_int_equal(ask(&refused_plan, job, &refused_err), code);                             \
		for (size_t word_i = 0; word_i < sizeof refused_words / sizeof *refused_words; word_i++)   \
			assert_says(refused_err, refused_words[word_i]);                                       \
	} while (0)

#endif
