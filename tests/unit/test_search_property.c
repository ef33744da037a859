/* SPDX-License-Identifier: Apache-2.0 */
#include "search_random.h"

/*
 * What holds on any input: more GPUs, memory or bandwidth never make the best step longer, a pin
 * never makes it shorter. "No plan" counts as a step without end. 10,000 random problems; ctest
 * takes the first ADP_PROPERTY_COUNT of them.
 *
 * ADP_PROPERTY_SEED=<seed> ADP_PROPERTY_COUNT=1 runs one of them again.
 */
enum { N_PROBLEMS = 10000 };

/* Two searches may add up the same terms in another order. */
static const double tolerance = 1e-9;

static uint64_t part, n_parts = 1;

enum change {
	MORE_NODES,
	MORE_GPUS,
	MORE_MEMORY,
	MORE_BANDWIDTH,
	BETTER_HEALTH,
	PINNED,
	N_CHANGES
};
static const char *const change_names[N_CHANGES] = {
	"a node more", "a GPU more", "more memory", "more bandwidth", "a healthier node", "a pin"};

static struct {
	uint64_t problems, plans, tried[N_CHANGES], moved[N_CHANGES], refused, wrong;
} tally;

struct answer {
	double step_s; /* INFINITY: no plan */
	bool refused;  /* a pin that no legal plan meets */
};

static void wrong(const struct random_instance *x, const char *what)
{
	if (tally.wrong++ < 3) {
		print_problem(x);
		print_message("%s\n", what);
	}
}

static void check_plan(const struct random_instance *x, const struct adp_plan *plan)
{
	struct adp_error err = {0};

	if (adp_plan_validate(plan, &err))
		wrong(x, err.text);
	if (!plan->search.exhausted || plan->search.gap_frac != 0.0)
		wrong(x, "the space was not searched to the end");
	for (uint32_t s = 0; s < plan->pp; s++)
		if (plan->stages[s].memory.peak_bytes > plan->stages[s].usable_bytes)
			wrong(x, "a stage does not fit its GPUs");
}

static struct answer solve(const struct random_instance *x, const struct adp_model *model,
                           const struct adp_search_opts *opts)
{
	struct adp_error err = {0};
	struct adp_cluster *cluster = take_cluster(random_instance_cluster(x));
	struct adp_plan *plan = NULL;
	struct answer answer = {.step_s = (double)INFINITY};
	int rc = adp_search(&plan, model, cluster, engine_of(x), tables, &x->train, opts, &err);

	if (rc == ADP_OK) {
		check_plan(x, plan);
		answer.step_s = plan->step.step_s;
		tally.plans++;
	} else if (rc == ADP_EINVAL) {
		answer.refused = true;
		tally.refused++;
	} else if (rc != ADP_EINFEASIBLE) {
		wrong(x, err.text);
	}
	adp_plan_destroy(plan);
	adp_cluster_destroy(cluster);
	return answer;
}

/* y is x with one thing changed, or x itself with a pin in opts. */
static void compare(enum change change, const struct random_instance *x,
                    const struct random_instance *y, const struct adp_model *model,
                    const struct adp_search_opts *opts, double before_s, const char *what)
{
	struct answer after = solve(y, model, opts);
	double lower = change == PINNED ? before_s : after.step_s;
	double higher = change == PINNED ? after.step_s : before_s;

	if (after.refused)
		return;
	tally.tried[change]++;
	tally.moved[change] += after.step_s != before_s;
	if (lower <= higher * (1.0 + tolerance))
		return;
	wrong(x, what);
	if (tally.wrong <= 3) {
		print_message("with %s the step takes %.12g s instead of %.12g s\n", change_names[change],
		              after.step_s, before_s);
		if (y != x)
			print_problem(y);
	}
}

static uint32_t scaled(uint32_t value, double factor)
{
	return (uint32_t)fmin(value * factor, 4e9);
}

static void add_node(struct random_instance *y, const struct random_instance *x,
                     struct random_rng *rng)
{
	struct random_instance other;

	*y = *x;
	y->nodes[y->n_nodes] = x->nodes[random_below(rng, x->n_nodes)];
	if (random_one_in(rng, 2)) {
		random_instance_draw(&other, ~x->seed, &random_small);
		y->nodes[y->n_nodes] = other.nodes[0];
		y->nodes[y->n_nodes].type = random_below(rng, x->n_types);
	}
	y->n_nodes++;
}

/* Another GPU in a node, whose links the others now share with it. */
static bool add_gpu(struct random_instance *y, const struct random_instance *x,
                    struct random_rng *rng)
{
	static const double speed[] = {1.0, 1.0, 0.92, 0.6};
	struct random_node *node;

	*y = *x;
	node = &y->nodes[random_below(rng, x->n_nodes)];
	if (node->n_gpus == RANDOM_MAX_GPUS)
		return false;
	node->speed[node->n_gpus++] = speed[random_below(rng, 4)];
	return true;
}

/* All links of one kind that the fleet has. */
static void widen_links(struct random_instance *y, const struct random_instance *x,
                        struct random_rng *rng)
{
	double factor = random_between(rng, 1.1, 4.0);
	uint32_t kind = random_below(rng, 3);
	bool nvlink = x->nodes[random_below(rng, x->n_nodes)].nvlink;

	*y = *x;
	for (uint32_t i = 0; i < y->n_nodes; i++) {
		if (kind == 0 && y->nodes[i].nvlink == nvlink)
			y->nodes[i].gpu_link_mb_per_s = scaled(y->nodes[i].gpu_link_mb_per_s, factor);
		if (kind > 0)
			y->nodes[i].nic_mb_per_s = scaled(y->nodes[i].nic_mb_per_s, factor);
	}
	for (uint32_t r = 0; kind == 2 && r < y->n_racks; r++)
		y->rack_mb_per_s[r] = scaled(y->rack_mb_per_s[r], factor);
}

static bool same_but_health(const struct random_node *a, const struct random_node *b)
{
	return a->n_gpus == b->n_gpus && a->nvlink == b->nvlink && a->rack == b->rack &&
	       a->gpu_link_mb_per_s == b->gpu_link_mb_per_s && a->gpu_load_pct == b->gpu_load_pct &&
	       a->n_nics == b->n_nics && a->nic_mb_per_s == b->nic_mb_per_s &&
	       a->nic_load_pct == b->nic_load_pct && a->gpus_per_root == b->gpus_per_root;
}

/*
 * A whole node that runs slow, among nodes of its type that differ in nothing else. (GPUs are
 * taken healthiest first; where nodes differ in more, that changes which ones a plan gets.)
 */
static bool heal_node(struct random_instance *y, const struct random_instance *x,
                      struct random_rng *rng)
{
	uint32_t at = random_below(rng, x->n_nodes);
	double speed = random_one_in(rng, 2) ? 1.0 : 0.92;

	*y = *x;
	for (uint32_t i = 0; i < x->n_nodes; i++) {
		if (x->nodes[i].type != x->nodes[at].type)
			continue;
		if (!same_but_health(&x->nodes[i], &x->nodes[at]))
			return false;
		for (uint32_t g = 1; g < x->nodes[i].n_gpus; g++)
			if (x->nodes[i].speed[g] != x->nodes[i].speed[0])
				return false;
	}
	if (x->nodes[at].speed[0] >= speed)
		return false;
	for (uint32_t g = 0; g < RANDOM_MAX_GPUS; g++)
		y->nodes[at].speed[g] = speed;
	return true;
}

static const char *pin(struct adp_search_opts *opts, const struct random_instance *x,
                       struct random_rng *rng, const char **excluded)
{
	uint32_t v = random_one_in(rng, 3) ? 1 + random_below(rng, 6) : 1u << random_below(rng, 4);
	struct adp_pin one = {v, v};

	switch (random_below(rng, 14)) {
	case 0:
		opts->tp = one;
		return "--tp";
	case 1:
		opts->pp = one;
		return "--pp";
	case 2:
		opts->dp = one;
		return "--dp";
	case 3:
		opts->cp = one;
		return "--cp";
	case 4:
		opts->ep = one;
		return "--ep";
	case 5:
		opts->vpp = one;
		return "--vpp";
	case 6:
		opts->micro_batch = one;
		return "--micro-batch";
	case 7:
		opts->zero_stage = (int)random_below(rng, 4);
		return "--zero";
	case 8:
		opts->recompute = (int)random_below(rng, ADP_N_RECOMPUTE);
		return "--recompute";
	case 9:
		opts->sequence_parallel = (int)random_below(rng, 2);
		return "--sequence-parallel";
	case 10:
		opts->equal_layers = true;
		return "equal layers";
	case 11:
		opts->equal_batches = true;
		return "equal batches";
	case 12:
		*excluded = x->types[random_below(rng, x->n_types)].name;
		opts->exclude = excluded;
		opts->n_exclude = 1;
		return "--exclude";
	default:
		opts->gpus.max = 1 + random_below(rng, random_instance_gpus(x));
		return "fewer GPUs";
	}
}

static void run_problem(uint64_t seed)
{
	struct random_instance x, y;
	struct random_rng rng = {~seed};
	struct adp_search_opts opts;
	struct adp_model *model;
	const char *excluded, *what;
	double step_s;
	uint32_t type;

	random_instance_draw(&x, seed, &random_small);
	model = take_model(random_instance_config(&x));
	adp_search_opts_init(&opts);
	step_s = solve(&x, model, &opts).step_s;
	tally.problems++;

	add_node(&y, &x, &rng);
	compare(MORE_NODES, &x, &y, model, &opts, step_s, "a node more");

	if (add_gpu(&y, &x, &rng))
		compare(MORE_GPUS, &x, &y, model, &opts, step_s, "a GPU more");

	y = x;
	type = random_below(&rng, x.n_types);
	y.types[type].memory_mib = scaled(x.types[type].memory_mib, random_between(&rng, 1.05, 2.5));
	compare(MORE_MEMORY, &x, &y, model, &opts, step_s, "more memory");

	widen_links(&y, &x, &rng);
	compare(MORE_BANDWIDTH, &x, &y, model, &opts, step_s, "more bandwidth");

	if (heal_node(&y, &x, &rng))
		compare(BETTER_HEALTH, &x, &y, model, &opts, step_s, "a healthier node");

	what = pin(&opts, &x, &rng, &excluded);
	compare(PINNED, &x, &x, model, &opts, step_s, what);
	adp_model_destroy(model);
}

static void more_never_hurts_and_a_pin_never_helps(void **state)
{
	uint64_t n = count_of(N_PROBLEMS), first = n * part / n_parts, end = n * (part + 1) / n_parts;

	(void)state;
	for (uint64_t i = first; i < end; i++)
		run_problem(first_seed() + i);
	print_message("%llu problems, %llu plans, %llu pins refused\n",
	              (unsigned long long)tally.problems, (unsigned long long)tally.plans,
	              (unsigned long long)tally.refused);
	for (int c = 0; c < N_CHANGES; c++)
		print_message("%s: tried %llu times, moved the answer %llu times\n", change_names[c],
		              (unsigned long long)tally.tried[c], (unsigned long long)tally.moved[c]);
	if (tally.wrong)
		fail_msg("%llu answers are wrong", (unsigned long long)tally.wrong);
	/* the problems are hard enough to tell a wrong answer from a right one */
	for (int c = 0; c < N_CHANGES; c++)
		if (tally.problems >= 100 && tally.moved[c] * 20 < tally.tried[c])
			fail_msg("%s moved hardly any answer", change_names[c]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_never_hurts_and_a_pin_never_helps),
	};

	if (argc == 3) {
		part = strtoull(argv[1], NULL, 10);
		n_parts = strtoull(argv[2], NULL, 10);
	}
	if (n_parts == 0 || part >= n_parts)
		return 2;
	return cmocka_run_group_tests(tests, load_planner, unload_planner);
}
