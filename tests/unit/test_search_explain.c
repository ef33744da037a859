/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a plan is as it is. First five runs with one input changed each: the plan changes, and the
 * reason names the cause. Then each line of what was not chosen, compared with the search its flag
 * asks for.
 */
#include "search_fixture.h"

#include <math.h>

#include "adp/units.h"

/* Llama-3-8B */
static const struct sizes eight_billion = {.hidden = 4096,
                                           .n_layers = 32,
                                           .n_heads = 32,
                                           .n_kv_heads = 8,
                                           .head_dim = 128,
                                           .ffn = 14336,
                                           .vocab = 128256};

#define HEAD                                                                                       \
	"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: hall}\nnodeGroups:\n"
#define H100_NICS "nics: {count: 8, bandwidth: 400Gb/s"
#define A100_NICS "nics: {count: 8, bandwidth: 200Gb/s"

/* Two nodes of 8 H100 and two of 8 A100-80, NVLink inside each. The five runs change one thing of
 * it. */
static const char base_fleet[] = HEAD "- {name: h, count: 2, gpu: H100, links: {" H100_NICS "}}}\n"
									  "- {name: a, count: 2, gpu: A100-80, links: {" A100_NICS
									  "}}}\n";

static struct adp_plan *explained(const struct job *job)
{
	struct adp_plan *plan = must_plan(job);

	must_explain(plan, job);
	return plan;
}

/* 128 sequences of 8192 tokens a step, 100e9 tokens. */
static void base_job(struct job *job, const char *fleet)
{
	job_init(job, &eight_billion, fleet, torch, 128, 8192);
	job->train.tokens = 100e9;
}

static const char *reason_with(const struct adp_plan *plan, const char *start)
{
	for (uint32_t i = 0; i < plan->n_reasons; i++)
		if (strncmp(plan->reasons[i], start, strlen(start)) == 0)
			return plan->reasons[i];
	return NULL;
}

static void assert_reason(const struct adp_plan *plan, const char *start, const char *part)
{
	const char *reason = reason_with(plan, start);

	if (!reason)
		fail_msg("no reason starts with '%s'; there are %u", start, plan->n_reasons);
	else if (!strstr(reason, part))
		fail_msg("'%s' does not say '%s'", reason, part);
}

/* ---- five runs ----------------------------------------------------------------------- */

static bool same_layers(const struct adp_plan *a, const struct adp_plan *b)
{
	if (a->pp != b->pp)
		return false;
	for (uint32_t s = 0; s < a->pp; s++)
		if (layers_of(&a->stages[s]) != layers_of(&b->stages[s]))
			return false;
	return true;
}

/*
 * The same GPUs on PCIe, 24 and 12 GB/s each where NVLink gives 450 and 300: tensor parallelism no
 * longer pays, and the reason says what it would cost over which link.
 */
static void topology_changes_the_plan_and_the_reason_names_the_link(void **state)
{
	struct job nvlink, pcie;
	struct adp_plan *a, *b;

	(void)state;
	base_job(&nvlink, base_fleet);
	base_job(
		&pcie, HEAD
		"- {name: h, count: 2, gpu: H100, links: {pcie: {bandwidth: 48GB/s, gpusPerRootPort: 2}, " H100_NICS
		"}}}\n- {name: a, count: 2, gpu: A100-80, links: {pcie: {bandwidth: 24GB/s, "
		"gpusPerRootPort: 2}, " A100_NICS "}}}\n");
	a = explained(&nvlink);
	b = explained(&pcie);
	assert_true(a->tp > 1);
	assert_int_equal(b->tp, 1);
	assert_reason(a, "topology: ",
	              "NVLink joins 8 GPUs of H100 (450 GB/s each); tensor parallel 2 stays inside");
	assert_reason(
		b, "topology: ",
		"PCIe joins 8 GPUs of H100 (24.0 GB/s each); tensor parallel 2 would send more over it: +");
	adp_plan_destroy(a);
	adp_plan_destroy(b);
	job_fini(&nvlink);
	job_fini(&pcie);
}

/*
 * A week for 20e9 tokens is 20e9 / 604800 s = 33.1k tokens/s, for 60e9 99.2k: three times the data
 * takes more GPUs, of the same fleet of 32.
 */
static void dataset_changes_the_plan_and_the_reason_names_the_tokens(void **state)
{
	struct job small, large;
	struct adp_plan *a, *b;

	(void)state;
	base_job(&small, base_fleet);
	base_job(&large, base_fleet);
	small.train.deadline_s = large.train.deadline_s = 7.0 * 86400.0;
	small.train.tokens = 20e9;
	large.train.tokens = 60e9;
	a = explained(&small);
	b = explained(&large);
	assert_true(adp_plan_world(a) < adp_plan_world(b));
	assert_true(adp_plan_world(b) < 32);
	assert_true(a->time.total_s <= small.train.deadline_s);
	assert_reason(a, "dataset and deadline: ", "20.0B tokens in 7.00 d need 33.1k tokens/s");
	assert_reason(b, "dataset and deadline: ", "60.0B tokens in 7.00 d need 99.2k tokens/s");
	assert_reason(b, "dataset and deadline: ", "of 32 GPUs give");
	assert_reason(b, "dataset and deadline: ", "or fewer take at least");
	adp_plan_destroy(a);
	adp_plan_destroy(b);
	job_fini(&small);
	job_fini(&large);
}

static void gpu_types_change_the_plan_and_the_reason_names_them(void **state)
{
	struct job mixed, slower;
	struct adp_plan *a, *b;
	char share[64];
	uint32_t layers = 0;

	(void)state;
	base_job(&mixed, base_fleet);
	base_job(&slower, HEAD "- {name: h, count: 2, gpu: H100, links: {" H100_NICS "}}}\n"
	                       "- {name: a, count: 2, gpu: V100-32, links: {" A100_NICS "}}}\n");
	a = explained(&mixed);
	b = explained(&slower);
	assert_int_equal(a->n_gpu_types, 2);
	assert_int_equal(a->gpus[1].n_used, 16);
	assert_int_equal(b->gpus[1].n_used, 0);
	for (uint32_t s = 0; s < a->pp; s++)
		if (a->pipes[0].cells[s].gpu == 1)
			layers += layers_of(&a->stages[s]);
	snprintf(share, sizeof share, "A100-80 gets %u of 32 layers", layers);
	assert_true(layers < 16); /* half of the GPUs, less than half of the layers */
	assert_reason(a, "GPU types: ", share);
	assert_reason(a, "GPU types: ", "times as long as H100; an equal split: +");
	assert_reason(b, "GPU types: ", "V100-32 left out: it has no BF16 tensor cores");
	adp_plan_destroy(a);
	adp_plan_destroy(b);
	job_fini(&mixed);
	job_fini(&slower);
}

static void link_load_changes_the_plan_and_the_reason_names_the_links(void **state)
{
	struct job idle, busy;
	struct adp_plan *a, *b;

	(void)state;
	base_job(&idle, base_fleet);
	base_job(&busy,
	         HEAD "- {name: h, count: 2, gpu: H100, links: {" H100_NICS ", load: 90%}}}\n"
	              "- {name: a, count: 2, gpu: A100-80, links: {" A100_NICS ", load: 95%}}}\n");
	a = explained(&idle);
	b = explained(&busy);
	assert_true(!same_layers(a, b) || a->tp != b->tp || a->dp != b->dp);
	assert_true(b->step.step_s > 1.005 * a->step.step_s);
	assert_null(reason_with(a, "link load: "));
	assert_reason(
		b, "link load: ", "NICs of all nodes are up to 95 % busy; idle, the step would take ");
	adp_plan_destroy(a);
	adp_plan_destroy(b);
	job_fini(&idle);
	job_fini(&busy);
}

static void gpu_health_changes_the_plan_and_the_reason_names_the_node(void **state)
{
	struct job healthy, slow;
	struct adp_plan *a, *b;
	char fleet[1024], time[32], wanted[64];

	(void)state;
	snprintf(fleet, sizeof fleet, "%snodes:\n- {name: a-1, health: 0.5}\n", base_fleet);
	base_job(&healthy, base_fleet);
	base_job(&slow, fleet);
	a = explained(&healthy);
	b = explained(&slow);
	assert_false(same_layers(a, b));
	assert_null(reason_with(a, "GPU health: "));
	assert_reason(b, "GPU health: ", "8 GPUs of node a-1 run at 0.50: ");
	/* healthy, it would be the base run */
	snprintf(wanted, sizeof wanted, "; healthy, the step would take %s (-",
	         adp_format_duration(time, sizeof time, a->step.step_s));
	assert_reason(b, "GPU health: ", wanted);
	adp_plan_destroy(a);
	adp_plan_destroy(b);
	job_fini(&healthy);
	job_fini(&slow);
}

/* ---- other features of a fleet ------------------------------------------------------- */

/* A GPU at a tenth of its speed is worth less than the wait for it: 32 layers over 7 or over 6 good
 * ones. */
static void a_gpu_not_worth_its_wait_is_told_as_left_out(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion,
	         HEAD "- {name: h, count: 1, gpu: H100, gpusPerNode: 8, links: {" H100_NICS
	              "}}, health: {3: 0.1}}\n",
	         torch, 128, 4096);
	plan = explained(&job);
	assert_true(plan->gpus[0].n_used < 8);
	assert_reason(plan, "GPU health: ", "1 GPU of node h-0 runs at 0.10: 1 left out; healthy, ");
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void a_busy_uplink_is_named(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(
		&job, &eight_billion,
		"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: hall}\nracks:\n"
		"- {name: r0, uplink: {bandwidth: 1600Gb/s, load: 97%}}\n- {name: r1, uplink: {bandwidth: 1600Gb/s}}\nnodeGroups:\n"
		"- {name: a, count: 2, gpu: H100, rack: r0, links: {" H100_NICS "}}}\n"
		"- {name: b, count: 2, gpu: H100, rack: r1, links: {" H100_NICS "}}}\n",
		torch, 64, 4096);
	plan = explained(&job);
	assert_reason(plan, "link load: ", "uplink of rack r0 is 97 % busy");
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* 100e9 / (128 * 8192) = 95367.4 steps, rounded up. */
static void without_a_deadline_the_horizon_is_told(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	base_job(&job, base_fleet);
	plan = explained(&job);
	assert_reason(plan, "dataset: ", "100B tokens are 95368 steps of 1.05M");
	assert_reason(plan, "dataset: ", "of the 32 GPUs would take");
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void memory_that_keeps_a_faster_plan_out_is_told(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "A100-40:8", torch, 64, 8192);
	plan = explained(&job);
	assert_reason(plan, "memory: ", "if it were no limit the step would take ");
	assert_reason(plan, "memory: ", " where A100-40 has 34.8 GiB");
	adp_plan_destroy(plan);

	/* 4 layers of 12 * 512^2 = 3.1M parameters: memory is no matter */
	job_fini(&job);
	job_init(&job, &(struct sizes){512, 4, 8, 8, 64, 1024, 1024, .tied = false}, "H100:8", torch,
	         64, 512);
	plan = explained(&job);
	assert_null(reason_with(plan, "memory: "));
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void the_largest_part_of_the_step_is_what_limits_it(void **state)
{
	struct adp_plan *plan;
	struct job job;
	char share[64];

	(void)state;
	base_job(&job, base_fleet);
	plan = explained(&job);
	snprintf(share, sizeof share, "(%.0f %% of the step)",
	         100.0 * plan->step.compute_s / plan->step.step_s);
	assert_true(plan->step.compute_s > 0.5 * plan->step.step_s);
	assert_int_equal(strncmp(plan->binding, "compute of ", 11), 0);
	assert_non_null(strstr(plan->binding, share));
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* ---- plans that were not chosen ------------------------------------------------------ */

static const struct adp_plan_other *other_with(const struct adp_plan *plan, const char *start)
{
	for (uint32_t i = 0; i < plan->n_others; i++)
		if (strncmp(plan->others[i].name, start, strlen(start)) == 0)
			return &plan->others[i];
	fail_msg("no line starts with '%s'; there are %u", start, plan->n_others);
	return NULL;
}

/* The line's figures are those of the search that the flag asks for, which may stop 1 % short. */
static void assert_line(const struct adp_plan_other *other, const struct adp_plan *plan,
                        double step_s)
{
	char percent[32];

	if (!(other->step_s >= step_s * (1.0 - 1e-9) && other->step_s <= step_s * 1.01))
		fail_msg("'%s': %g s, the search of its flag finds %g s", other->name, other->step_s,
		         step_s);
	assert_true(fabs(other->loss_frac - (other->step_s / plan->step.step_s - 1.0)) < 1e-12);
	snprintf(percent, sizeof percent, "%+.1f %% step time", 100.0 * other->loss_frac);
	if (!strstr(other->text, percent))
		fail_msg("'%s' does not say '%s'", other->text, percent);
}

static void lines_of_what_was_not_chosen_hold_what_their_flags_give(void **state)
{
	const char *const no_a100[] = {"NVIDIA-A100-SXM4-80GB"}, *const no_h100[] = {"H100"};
	const struct adp_plan_other *other;
	struct job job, asked;
	struct adp_plan *plan;

	(void)state;
	base_job(&job, base_fleet);
	plan = explained(&job);

	other = other_with(plan, "newest GPUs only (16 H100)");
	assert_string_equal(other->flag, "--exclude A100-80");
	asked = job;
	asked.opts.exclude = no_a100;
	asked.opts.n_exclude = 1;
	assert_line(other, plan, must_step_s(&asked));

	other = other_with(plan, "without H100 (16 A100-80)");
	assert_string_equal(other->flag, "--exclude H100");
	asked = job;
	asked.opts.exclude = no_h100;
	asked.opts.n_exclude = 1;
	assert_line(other, plan, must_step_s(&asked));

	other = other_with(plan, "equal split");
	assert_string_equal(other->flag, "--equal-layers --equal-batches");
	asked = job;
	asked.opts.equal_layers = asked.opts.equal_batches = true;
	asked.opts.gpus = just(32);
	assert_line(other, plan, must_step_s(&asked));

	other = other_with(plan, "half the GPUs (16 H100)");
	assert_string_equal(other->flag, "--gpus-used 1..16");
	asked = job;
	asked.opts.gpus = (struct adp_pin){1, 16};
	assert_line(other, plan, must_step_s(&asked));

	assert_int_equal(plan->n_others, 4);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void types_left_out_say_why_and_what_lets_them_in(void **state)
{
	const char *const no_a100[] = {"A100-80"};
	const struct adp_plan_other *other;
	struct adp_plan *plan;
	struct job job, asked;

	(void)state;
	job_init(&job, &eight_billion, "H100:8,A100-80:8,V100-32:8", torch, 64, 4096);
	job.opts.exclude = no_a100;
	job.opts.n_exclude = 1;
	plan = explained(&job);
	other = other_with(plan, "A100-80 (8 GPUs)");
	assert_int_equal(strncmp(other->text, "left out: by --exclude; with the flag -", 39), 0);
	asked = job;
	asked.opts.n_exclude = 0;
	assert_line(other, plan, must_step_s(&asked));
	assert_string_equal(other->flag, "without --exclude A100-80");
	other = other_with(plan, "V100-32 (8 GPUs)");
	assert_int_equal(
		strncmp(other->text, "left out: it has no BF16 tensor cores; with the flag ", 53), 0);
	assert_string_equal(other->flag, "--precision fp16");
	asked = job;
	asked.train.precision = ADP_PRECISION_FP16;
	assert_line(other, plan, must_step_s(&asked));
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* Two T4 beside eight H100 are worth less than the pipeline stage they would need. */
static void an_idle_type_is_told_with_the_loss_of_using_it(void **state)
{
	const struct adp_plan_other *other;
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(&job, &eight_billion, "H100:8,T4x2:2", torch, 64, 4096);
	job.train.precision = ADP_PRECISION_FP16;
	plan = explained(&job);
	assert_int_equal(plan->gpus[1].n_used, 0);
	other = other_with(plan, "with some of the 2 T4");
	assert_null(other->flag);
	assert_true(other->step_s == 0.0 ? strncmp(other->text, "none: ", 6) == 0
	                                 : other->loss_frac > 0.0);
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void under_a_deadline_the_fastest_plan_is_a_line(void **state)
{
	const struct adp_plan_other *other;
	struct adp_plan *plan;
	struct job job;

	(void)state;
	base_job(&job, base_fleet);
	job.train.tokens = 20e9;
	job.train.deadline_s = 7.0 * 86400.0;
	plan = explained(&job);
	other = other_with(plan, "fastest (16 H100 + 16 A100-80)");
	assert_string_equal(other->flag, "without --deadline");
	assert_true(other->loss_frac < -0.5);
	/* no question under a deadline may take more GPUs than the plan, but for this one */
	for (uint32_t i = 0; i < plan->n_others; i++)
		assert_true(&plan->others[i] == other || plan->others[i].step_s == 0.0 ||
		            plan->others[i].loss_frac >= 0.0);
	adp_plan_destroy(plan);
	job_fini(&job);
}

/* The name is the user's own, and a flag is to be typed into a shell. */
static void a_flag_quotes_what_a_shell_would_read(void **state)
{
	struct adp_plan *plan;
	struct job job;

	(void)state;
	job_init(
		&job, &eight_billion,
		"apiVersion: adp.parallelism/v1alpha1\nkind: Cluster\nmetadata: {name: hall}\n"
		"gpuTypes:\n- {name: \"old'; $(x)\", alias: \"old'; $(x)\", base: A100-80}\nnodeGroups:\n"
		"- {name: h, count: 1, gpu: H100, links: {" H100_NICS "}}}\n"
		"- {name: a, count: 1, gpu: \"old'; $(x)\", links: {" A100_NICS "}}}\n",
		torch, 64, 4096);
	plan = explained(&job);
	assert_string_equal(other_with(plan, "newest GPUs only")->flag, "--exclude 'old'\\''; $(x)'");
	adp_plan_destroy(plan);
	job_fini(&job);
}

static void a_plan_of_another_cluster_is_refused(void **state)
{
	struct job job, other;
	struct adp_error err = {0};
	struct adp_plan *plan;

	(void)state;
	base_job(&job, base_fleet);
	base_job(&other, "H100:16");
	plan = must_plan(&job);
	assert_int_equal(adp_search_explain(plan, other.model, other.cluster, other.engine, tables,
	                                    &other.train, &other.opts, &err),
	                 ADP_EINVAL);
	assert_says(err, "not made for this cluster");
	adp_plan_destroy(plan);
	job_fini(&job);
	job_fini(&other);
}

/* ---- same bytes; failing memory ------------------------------------------------------ */

static void the_same_bytes_come_from_one_and_two_threads(void **state)
{
	struct adp_error err = {0};
	struct job job;
	char *texts[2];
	char fleet[1024];

	(void)state;
	snprintf(fleet, sizeof fleet, "%snodes:\n- {name: a-1, health: 0.5}\n", base_fleet);
	base_job(&job, fleet);
	for (uint32_t i = 0; i < 2; i++) {
		struct adp_plan *plan;

		job.opts.n_threads = i + 1;
		plan = explained(&job);
		assert_int_equal(adp_plan_to_json(&texts[i], plan, &err), ADP_OK);
		adp_plan_destroy(plan);
	}
	assert_string_equal(texts[0], texts[1]);
	adp_free(texts[0]);
	adp_free(texts[1]);
	job_fini(&job);
}

/* Every question allocates alike, so a spread of the failures stands for all of them. */
static void each_failing_allocation_is_told_and_leaks_nothing(void **state)
{
	struct job job;
	uint64_t live;
	bool failed = true;

	(void)state;
	job_init(&job, &(struct sizes){512, 4, 8, 8, 64, 1024, 1024, .tied = false},
	         HEAD "- {name: h, count: 1, gpu: H100, gpusPerNode: 2, links: {" H100_NICS
	              ", load: 20%}}, health: {1: 0.6}}\n"
	              "- {name: a, count: 1, gpu: A100-80, gpusPerNode: 2, links: {" A100_NICS "}}}\n",
	         torch, 8, 512);
	live = adp_alloc_live();
	for (uint64_t n = 0; failed; n += 1 + n / 40) {
		struct adp_error err = {0};
		struct adp_plan *plan = must_plan(&job);
		int rc;

		adp_alloc_fail_after(n);
		rc = adp_search_explain(plan, job.model, job.cluster, job.engine, tables, &job.train,
		                        &job.opts, &err);
		failed = adp_alloc_failed();
		adp_alloc_fail_after(UINT64_MAX);
		if (rc != ADP_OK && !(failed && rc == ADP_ENOMEM))
			fail_msg("allocation %llu fails: returned %d, %s", (unsigned long long)n, rc, err.text);
		adp_plan_destroy(plan);
		if (adp_alloc_live() != live)
			fail_msg("allocation %llu fails: %lld blocks leak", (unsigned long long)n,
			         (long long)(adp_alloc_live() - live));
	}
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(topology_changes_the_plan_and_the_reason_names_the_link),
		cmocka_unit_test(dataset_changes_the_plan_and_the_reason_names_the_tokens),
		cmocka_unit_test(gpu_types_change_the_plan_and_the_reason_names_them),
		cmocka_unit_test(link_load_changes_the_plan_and_the_reason_names_the_links),
		cmocka_unit_test(gpu_health_changes_the_plan_and_the_reason_names_the_node),
		cmocka_unit_test(a_gpu_not_worth_its_wait_is_told_as_left_out),
		cmocka_unit_test(a_busy_uplink_is_named),
		cmocka_unit_test(without_a_deadline_the_horizon_is_told),
		cmocka_unit_test(memory_that_keeps_a_faster_plan_out_is_told),
		cmocka_unit_test(the_largest_part_of_the_step_is_what_limits_it),
		cmocka_unit_test(lines_of_what_was_not_chosen_hold_what_their_flags_give),
		cmocka_unit_test(types_left_out_say_why_and_what_lets_them_in),
		cmocka_unit_test(an_idle_type_is_told_with_the_loss_of_using_it),
		cmocka_unit_test(under_a_deadline_the_fastest_plan_is_a_line),
		cmocka_unit_test(a_flag_quotes_what_a_shell_would_read),
		cmocka_unit_test(a_plan_of_another_cluster_is_refused),
		cmocka_unit_test(the_same_bytes_come_from_one_and_two_threads),
		cmocka_unit_test(each_failing_allocation_is_told_and_leaks_nothing),
	};

	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
