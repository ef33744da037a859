/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests that put random problems to the search. */
#ifndef ADP_TESTS_SEARCH_RANDOM_H
#define ADP_TESTS_SEARCH_RANDOM_H

#include <math.h>

#include "planner_fixture.h"
#include "../support/random_instance.h"

static inline const struct adp_engine *engine_of(const struct random_instance *x)
{
	return strcmp(x->engine, "torch") == 0 ? torch : megatron;
}

static inline void print_problem(const struct random_instance *x)
{
	char *config = random_instance_config(x), *cluster = random_instance_cluster(x);

	print_message("seed %llu, engine %s, global batch %llu, sequence %llu, %s\n%s%s",
	              (unsigned long long)x->seed, x->engine,
	              (unsigned long long)x->train.global_batch_seqs,
	              (unsigned long long)x->train.seq_tokens, adp_precision_name(x->train.precision),
	              config ? config : "", cluster ? cluster : "");
	adp_free(config);
	adp_free(cluster);
}

/* text is freed. */
static inline struct adp_model *take_model(char *text)
{
	struct adp_error err = {0};
	struct adp_model *model = NULL;

	assert_non_null(text);
	if (adp_model_read(&model, text, strlen(text), "config.json", &err))
		fail_msg("%s: %s", err.text, text);
	adp_free(text);
	return model;
}

static inline struct adp_cluster *take_cluster(char *text)
{
	struct adp_error err = {0};
	struct adp_cluster *cluster = NULL;

	assert_non_null(text);
	if (adp_cluster_read(&cluster, text, strlen(text), "cluster.yaml", hw, &err))
		fail_msg("%s: %s", err.text, text);
	adp_free(text);
	return cluster;
}

/* How many problems: all; a part of them where a sanitizer takes its time; or what the environment
 * asks. */
static inline uint64_t count_of(uint64_t whole)
{
	const char *asked = getenv("ADP_PROPERTY_COUNT");

	if (asked)
		return strtoull(asked, NULL, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return whole > 200 ? whole / 50 : 4;
#else
	return whole;
#endif
}

static inline uint64_t first_seed(void)
{
	const char *asked = getenv("ADP_PROPERTY_SEED");

	return asked ? strtoull(asked, NULL, 10) : 1;
}

#endif
