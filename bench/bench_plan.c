/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What adp plan finds and what that takes, from two fleets: name value goal pass|short. Arguments:
 * flagship, fleet, or both (default). docs/bench.md says what each line means.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "adp/search.h"

enum { MAX_TRIES = 3, MAX_TYPES = 8, N_THREADS = 2 };

static const double enough_s = 3.0; /* of tries: the search is not what takes little then */

static struct adp_hardware *hardware;
static struct adp_tables *tables;
static struct adp_engine *engines[2];
static const char *const engine_names[2] = {"megatron", "torch"};

struct job {
	char name[96]; /* of its lines, what they measure left out */
	struct adp_model *model;
	struct adp_cluster *cluster;
	const struct adp_engine *engine;
	struct adp_train train;
	struct adp_search_opts opts;
};

static void stop(const char *what, const char *why)
{
	fprintf(stderr, "bench_plan: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Of all threads, as far as they ran: what other programs take does not count. */
static double cpu_s(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The process's most so far. */
static double peak_mib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_maxrss / 1024.0;
}

static void report(const char *name, const char *what, double value, double goal,
                   bool more_is_better)
{
	const bool pass = more_is_better ? value >= goal : value <= goal;

	printf("plan_%s_%s %.4g %.4g %s\n", name, what, value, goal, pass ? "pass" : "short");
	fflush(stdout);
}

/* What a command line with these words asks, the model and fleet left out. */
static struct job job_of(const char *part, const char *model, int engine,
                         enum adp_precision precision)
{
	struct job job = {
		.engine = engines[engine],
		.train =
			{
				.seq_tokens = 8192,
				.precision = precision,
				.optimizer = ADP_OPTIMIZER_ADAMW,
				.expert_load_factor = 1.0,
				.restart_s = 300.0,
				.storage_bytes_per_s = 2e9,
			},
	};

	snprintf(job.name, sizeof job.name, "%s_%s_%s%s%s", part, engine_names[engine],
	         adp_precision_name(precision), model ? "_" : "", model ? model : "");
	adp_search_opts_init(&job.opts);
	job.opts.n_threads = N_THREADS;
	return job;
}

static void load(struct job *job, const char *model, const char *gpus)
{
	struct adp_error err = {0};

	if (adp_model_load(&job->model, model, &err) ||
	    adp_cluster_from_gpus(&job->cluster, gpus, hardware, &err))
		stop(job->name, err.text);
}

static void unload(struct job *job)
{
	adp_cluster_destroy(job->cluster);
	adp_model_destroy(job->model);
}

static struct adp_plan *search(const struct job *job)
{
	struct adp_error err = {0};
	struct adp_plan *plan;

	if (adp_search(&plan, job->model, job->cluster, job->engine, tables, &job->train, &job->opts,
	               &err))
		stop(job->name, err.text);
	return plan;
}

static double step_s_of(const struct job *job)
{
	struct adp_plan *plan = search(job);
	const double step_s = plan->step.step_s;

	adp_plan_destroy(plan);
	return step_s;
}

/* Times search and why-questions together, the best of some tries; the caller frees the plan. */
static struct adp_plan *time_plan(const struct job *job, double goal_s)
{
	const double start_s = now_s();
	struct adp_plan *plan = NULL;
	double best_s = INFINITY, best_cpu_s = INFINITY;
	int n_tries = 0;

	do {
		struct adp_error err = {0};
		const double try_s = now_s(), try_cpu_s = cpu_s();

		adp_plan_destroy(plan);
		plan = search(job);
		if (adp_search_explain(plan, job->model, job->cluster, job->engine, tables, &job->train,
		                       &job->opts, &err))
			stop(job->name, err.text);
		best_s = fmin(best_s, now_s() - try_s);
		best_cpu_s = fmin(best_cpu_s, cpu_s() - try_cpu_s);
	} while (++n_tries < MAX_TRIES && now_s() - start_s < enough_s);
	report(job->name, "s", best_s, goal_s, false);
	report(job->name, "cpu_s", best_cpu_s, N_THREADS * goal_s, false);
	/* an exhausted space leaves none */
	report(job->name, "gap_percent", 100.0 * plan->search.gap_frac,
	       plan->search.exhausted ? 0.0 : 5.0, false);
	return plan;
}

/* How many times as long the step takes without these types. */
static double speed_over(const struct job *job, double step_s, const char *const *exclude,
                         uint32_t n_exclude)
{
	struct job without = *job;

	without.opts.exclude = exclude;
	without.opts.n_exclude = n_exclude;
	return step_s_of(&without) / step_s;
}

/* Equal layers and equal batches on as many GPUs, of the same types. */
static double speed_over_equal(const struct job *job, const struct adp_plan *plan)
{
	const char *idle[MAX_TYPES];
	struct job equal = *job;
	uint32_t n_idle = 0;

	for (uint32_t t = 0; t < plan->n_gpu_types && n_idle < MAX_TYPES; t++)
		if (!plan->gpus[t].n_used)
			idle[n_idle++] = plan->gpus[t].alias;
	equal.opts.equal_layers = equal.opts.equal_batches = true;
	equal.opts.gpus.min = equal.opts.gpus.max = adp_plan_world(plan);
	return speed_over(&equal, plan->step.step_s, idle, n_idle);
}

static void bench_flagship(int engine, enum adp_precision precision)
{
	static const char *const not_newest[] = {"A100-80", "V100-32"}, *const v100[] = {"V100-32"};
	struct job job = job_of("flagship", NULL, engine, precision);
	struct adp_plan *plan;

	load(&job, "llama-3.1-70b", "H100:128,A100-80:128,V100-32:64");
	job.train.global_batch_seqs = 1024;
	job.train.tokens = 1e12;
	plan = time_plan(&job, 1.0);
	if (precision == ADP_PRECISION_BF16) {
		report(job.name, "over_newest_only", speed_over(&job, plan->step.step_s, not_newest, 2),
		       1.2, true);
		report(job.name, "over_equal", speed_over_equal(&job, plan), 1.6, true);
	} else {
		report(job.name, "over_no_v100", speed_over(&job, plan->step.step_s, v100, 1), 1.0, true);
	}
	adp_plan_destroy(plan);
	unload(&job);
}

static void bench_fleet(int engine, enum adp_precision precision, const char *model)
{
	struct job job = job_of("fleet", model, engine, precision);

	load(&job, model, "H100:4096,A100-80:4096,V100-32:4096,H200:4096");
	job.train.global_batch_seqs = 4096;
	job.train.tokens = 15e12;
	adp_plan_destroy(time_plan(&job, 10.0));
	unload(&job);
}

int main(int argc, char **argv)
{
	static const enum adp_precision precisions[] = {ADP_PRECISION_BF16, ADP_PRECISION_FP16};
	static const char *const models[] = {"llama-3.1-70b", "llama-3.1-405b"};
	const char *part = argc > 1 ? argv[1] : NULL;
	struct adp_error err = {0};

	if (argc > 2 || (part && strcmp(part, "flagship") && strcmp(part, "fleet")))
		stop("arguments", "expected nothing, flagship or fleet");
	if (adp_hardware_load(&hardware, NULL, NULL, &err) || adp_tables_load(&tables, NULL, &err) ||
	    adp_engine_load(&engines[0], engine_names[0], NULL, &err) ||
	    adp_engine_load(&engines[1], engine_names[1], NULL, &err))
		stop("tables", err.text);

	if (!part || !strcmp(part, "flagship")) {
		for (int e = 0; e < 2; e++)
			for (int p = 0; p < 2; p++)
				bench_flagship(e, precisions[p]);
		report("flagship", "peak_mib", peak_mib(), 256.0, false);
	}
	if (!part || !strcmp(part, "fleet")) {
		for (int e = 0; e < 2; e++)
			for (int m = 0; m < 2; m++)
				for (int p = 0; p < 2; p++)
					bench_fleet(e, precisions[p], models[m]);
		report("fleet", "peak_mib", peak_mib(), 256.0, false);
	}

	adp_engine_destroy(engines[1]);
	adp_engine_destroy(engines[0]);
	adp_tables_destroy(tables);
	adp_hardware_destroy(hardware);
	return EXIT_SUCCESS;
}
