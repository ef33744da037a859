/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "plan_fixture.h"
#include "support/fault_sweep.h"

typedef void break_plan(struct adp_plan *plan);

/* The plan is refused once broken, and the text has the word that names the breach. */
static void refuses(struct adp_plan *plan, break_plan *change, const char *word)
{
	struct adp_error err = {0};

	assert_non_null(plan);
	assert_int_equal(adp_plan_validate(plan, &err), ADP_OK);
	change(plan);
	assert_int_equal(adp_plan_validate(plan, &err), ADP_EINVAL);
	if (!strstr(err.text, word))
		fail_msg("\"%s\" does not mention \"%s\"", err.text, word);
	assert_int_equal(adp_plan_validate(plan, NULL), ADP_EINVAL);
	adp_plan_destroy(plan);
}

/* Arrays that the plan reads as const are the fixture's own copies. */
#define LAYERS(s) ((uint32_t *)(uintptr_t)plan->stages[s].n_layers)
#define FIRST(s) ((uint32_t *)(uintptr_t)plan->stages[s].first_layer)
#define CELLS(p) ((struct adp_plan_cell *)(uintptr_t)plan->pipes[p].cells)
#define GPUS(r) ((uint32_t *)(uintptr_t)plan->runs[r].gpu_index)
#define NODES(r) ((const char **)(uintptr_t)plan->runs[r].nodes)

#define BREAK(name, ...)                                                                           \
	static void name(struct adp_plan *plan)                                                        \
	{                                                                                              \
		__VA_ARGS__;                                                                               \
	}

BREAK(no_tensor, plan->tp = 0)
BREAK(no_batch, plan->train.global_batch_seqs = 0)
BREAK(world_overflows, plan->dp = plan->tp = 1u << 31)
BREAK(experts_do_not_fit_ranks, plan->etp = 3)
BREAK(experts_without_experts, plan->ep = 2)
BREAK(shards_do_not_divide, plan->shard_gpus = 3)
BREAK(zero_four, plan->zero_stage = 4)
BREAK(virtual_alone, plan->pp = 1)
BREAK(vocab_shrinks, plan->padded_vocab = 10)
BREAK(chunk_missing, plan->stages[1].n_chunks = 2)
BREAK(embedding_moves, plan->stages[0].embedding = false)
BREAK(second_embedding, plan->stages[1].embedding = true)
BREAK(head_moves, plan->stages[3].head = false)
BREAK(second_head, plan->stages[0].head = true)
BREAK(recompute_unknown, plan->stages[0].recompute = ADP_N_RECOMPUTE)
BREAK(layer_twice, FIRST(1)[0]--)
BREAK(layer_lost, LAYERS(3)[0]--)
BREAK(chunks_out_of_order, FIRST(0)[1]++)
BREAK(batch_short, plan->pipes[0].n_micro--)
BREAK(batch_long, plan->pipes[0].n_micro++)
BREAK(batch_has_remainder, plan->micro_batch_seqs = 2; plan->train.global_batch_seqs = 2049)
BREAK(no_micro_batches, plan->pipes[0].n_micro = 0)
BREAK(interleaving_needs_multiple, plan->pipes[0].n_micro--, plan->pipes[1].n_micro++)
BREAK(zero_two_unequal, plan->zero_stage = 2)
BREAK(replica_lost, plan->pipes[0].n_replicas = 4; plan->pipes[0].n_micro *= 2)
BREAK(pipe_ends_never, plan->pipes[0].end_s = NAN)
BREAK(cell_without_gpu, CELLS(0)[1].gpu = 9)
BREAK(cell_too_fast, CELLS(0)[1].speed_frac = 1.5)
BREAK(cell_stopped, CELLS(0)[1].speed_frac = 0)
BREAK(cell_time_negative, CELLS(0)[1].bwd_s = -1)
BREAK(memory_over, plan->stages[2].memory.activations += 15 * GIB;
      plan->stages[2].memory.steady_peak_bytes = plan->stages[2].memory.peak_bytes = 75 * GIB)
BREAK(memory_kind_lost, plan->stages[1].memory.weights = 0)
BREAK(peak_understated, plan->stages[2].memory.peak_bytes--)
BREAK(usable_of_larger_gpu, plan->stages[0].usable_bytes = 74 * GIB)
BREAK(rank_gap, plan->runs[1].first_rank++)
BREAK(run_empty, plan->runs[1].n_nodes = 0)
BREAK(ranks_short, plan->runs[1].n_nodes--)
BREAK(ranks_long, plan->runs[1].n_nodes = 1u << 30)
BREAK(run_without_gpu, plan->runs[0].gpu = 3)
BREAK(node_without_name, NODES(0)[3] = "")
BREAK(gpu_twice, GPUS(0)[1] = 0)
BREAK(gpu_twice_across_runs, GPUS(2)[0] = 1)
BREAK(node_twice, NODES(0)[3] = NODES(0)[4])
BREAK(node_with_two_types, NODES(1)[0] = NODES(0)[0]; GPUS(1)[0] = 6; GPUS(1)[1] = 7)
BREAK(used_miscounted, plan->gpus[0].n_used--)
BREAK(more_used_than_there, plan->gpus[0].n_total--)
BREAK(type_nameless, plan->gpus[2].type = "")
BREAK(type_twice, plan->gpus[2].type = plan->gpus[0].type)
BREAK(usable_over_capacity, plan->gpus[2].usable_bytes = 33 * GIB)
BREAK(cell_and_rank_differ, CELLS(0)[1].gpu = 1)
BREAK(step_parts_missing, plan->step.bubble_s = 0)
BREAK(step_part_negative, plan->step.bubble_s = -1)
BREAK(step_outside_band, plan->step.low_s = 13)
BREAK(step_takes_no_time, plan->step = (struct adp_plan_step){0})
BREAK(mfu_over_one, plan->step.mfu_frac = 1.01)
BREAK(rate_of_another_step, plan->step.tokens_per_s *= 1.01)
BREAK(replica_ends_late, plan->pipes[0].end_s = 12.6)
BREAK(work_lost_backwards, plan->time.lost_work_s = -1)
BREAK(steps_below_none, plan->time.n_steps = -1)
BREAK(time_part_missing, plan->time.checkpoints_s = 0)
BREAK(bound_above_step, plan->search.bound_s = 12.6)
BREAK(gap_of_another_bound, plan->search.gap_frac = 0.01)

static void valid_plans_pass(void **state)
{
	struct adp_plan *plans[] = {fixture_mixed(), fixture_moe()};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct adp_error err = {0};

		assert_non_null(plans[i]);
		if (adp_plan_validate(plans[i], &err))
			fail_msg("%s", err.text);
		adp_plan_destroy(plans[i]);
	}
}

static void world_is_the_product_of_the_degrees(void **state)
{
	struct adp_plan *plan = fixture_mixed();

	(void)state;
	assert_int_equal(adp_plan_world(plan), 256); /* 8 x 8 x 4 */
	plan->dp = plan->tp = plan->pp = 1u << 11;
	assert_int_equal(adp_plan_world(plan), 0); /* 2^33 */
	adp_plan_destroy(plan);
}

static void degrees_are_checked(void **state)
{
	(void)state;
	refuses(fixture_mixed(), no_tensor, "tensorParallel");
	refuses(fixture_mixed(), no_batch, "globalBatchSeqs");
	refuses(fixture_mixed(), world_overflows, "ranks");
	refuses(fixture_mixed(), experts_do_not_fit_ranks, "expert");
	refuses(fixture_mixed(), experts_without_experts, "experts");
	refuses(fixture_mixed(), shards_do_not_divide, "ZeRO");
	refuses(fixture_mixed(), zero_four, "ZeRO");
	refuses(fixture_moe(), virtual_alone, "without a pipeline");
	refuses(fixture_mixed(), vocab_shrinks, "vocabulary");
}

static void every_layer_stands_once_and_in_order(void **state)
{
	(void)state;
	refuses(fixture_mixed(), chunk_missing, "chunks");
	refuses(fixture_mixed(), embedding_moves, "embedding");
	refuses(fixture_mixed(), second_embedding, "embedding");
	refuses(fixture_mixed(), head_moves, "head");
	refuses(fixture_mixed(), second_head, "head");
	refuses(fixture_mixed(), recompute_unknown, "recomputation");
	refuses(fixture_mixed(), layer_twice, "27 comes next");
	refuses(fixture_mixed(), layer_lost, "79 layers");
	refuses(fixture_moe(), chunks_out_of_order, "chunk 1");
}

static void replicas_add_up_to_the_global_batch(void **state)
{
	(void)state;
	refuses(fixture_mixed(), batch_short, "undone");
	refuses(fixture_mixed(), batch_long, "more micro-batches");
	refuses(fixture_mixed(), batch_has_remainder, "1 of the global batch"); /* 2049 - 8 x 128 x 2 */
	refuses(fixture_mixed(), no_micro_batches, "0 micro-batches");
	refuses(fixture_moe(), interleaving_needs_multiple, "interleaved");
	refuses(fixture_moe(), zero_two_unequal, "same number");
	refuses(fixture_mixed(), replica_lost, "4 replicas");
	refuses(fixture_mixed(), pipe_ends_never, "ends");
	refuses(fixture_mixed(), cell_without_gpu, "not listed");
	refuses(fixture_mixed(), cell_too_fast, "speed");
	refuses(fixture_mixed(), cell_stopped, "speed");
	refuses(fixture_mixed(), cell_time_negative, "time");
}

static void each_stage_fits_its_smallest_gpu(void **state)
{
	(void)state;
	refuses(fixture_mixed(), memory_over, "stage 2 needs");
	refuses(fixture_mixed(), memory_kind_lost, "stage 1: the kinds of memory add up to");
	refuses(fixture_mixed(), peak_understated, "peak");
	refuses(fixture_moe(), usable_of_larger_gpu, "smallest GPU");
}

static void ranks_are_complete_and_each_gpu_is_used_once(void **state)
{
	(void)state;
	refuses(fixture_mixed(), rank_gap, "128 comes next");
	refuses(fixture_mixed(), run_empty, "empty");
	refuses(fixture_mixed(), ranks_short, "248 GPUs"); /* 256 - 8 */
	refuses(fixture_mixed(), ranks_long, "at least");
	refuses(fixture_mixed(), run_without_gpu, "not listed");
	refuses(fixture_mixed(), node_without_name, "without a name");
	refuses(fixture_mixed(), gpu_twice, "two ranks");
	refuses(fixture_moe(), gpu_twice_across_runs, "two ranks");
	refuses(fixture_mixed(), node_twice, "h100-4");
	refuses(fixture_moe(), node_with_two_types, "two GPU types");
}

static void gpu_types_are_counted(void **state)
{
	(void)state;
	refuses(fixture_mixed(), used_miscounted, "127");
	refuses(fixture_mixed(), more_used_than_there, "of 127");
	refuses(fixture_mixed(), type_nameless, "no name");
	refuses(fixture_mixed(), type_twice, "twice");
	refuses(fixture_mixed(), usable_over_capacity, "usable");
}

static void cells_agree_with_the_ranks_that_run_them(void **state)
{
	(void)state;
	/* stage 1 of the only group is ranks 64 .. 127, H100 */
	refuses(fixture_mixed(), cell_and_rank_differ, "rank 64");
}

static void parts_of_the_step_add_up(void **state)
{
	(void)state;
	refuses(fixture_mixed(), step_parts_missing, "add up");
	refuses(fixture_mixed(), step_part_negative, "part");
	refuses(fixture_mixed(), step_outside_band, "band");
	refuses(fixture_mixed(), step_takes_no_time, "takes 0 s");
	refuses(fixture_mixed(), mfu_over_one, "MFU");
}

static int validate_once(void *plan)
{
	return adp_plan_validate(plan, NULL);
}

/* 1024 x 8192 tokens in 12.5 s are 671089 a second; 12.5 / 12.2 is 1.0246 */
static void figures_that_follow_from_others_agree(void **state)
{
	(void)state;
	refuses(fixture_mixed(), rate_of_another_step, "tokens/s, but a step of 12.5 s");
	refuses(fixture_mixed(), replica_ends_late, "replica group 0 ends after 12.6 s");
	refuses(fixture_mixed(), work_lost_backwards, "is not a time: -1 s");
	refuses(fixture_mixed(), steps_below_none, "is not one: -1");
	refuses(fixture_mixed(), time_part_missing, "the time to train add up");
	refuses(fixture_mixed(), bound_above_step, "no step is shorter than 12.6 s");
	refuses(fixture_mixed(), gap_of_another_bound, "the gap is 0.01");
}

static void validation_survives_every_failed_allocation(void **state)
{
	struct adp_plan *plan = fixture_mixed();

	(void)state;
	fault_sweep(validate_once, plan);
	adp_plan_destroy(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_plans_pass),
		cmocka_unit_test(world_is_the_product_of_the_degrees),
		cmocka_unit_test(degrees_are_checked),
		cmocka_unit_test(every_layer_stands_once_and_in_order),
		cmocka_unit_test(replicas_add_up_to_the_global_batch),
		cmocka_unit_test(each_stage_fits_its_smallest_gpu),
		cmocka_unit_test(ranks_are_complete_and_each_gpu_is_used_once),
		cmocka_unit_test(gpu_types_are_counted),
		cmocka_unit_test(cells_agree_with_the_ranks_that_run_them),
		cmocka_unit_test(parts_of_the_step_add_up),
		cmocka_unit_test(figures_that_follow_from_others_agree),
		cmocka_unit_test(validation_survives_every_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
