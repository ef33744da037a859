/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_sim.h"

#include <stdbool.h>
#include <stdlib.h>

struct operation {
	bool backward;
	uint32_t chunk, micro;
};

/* One rank of one replica. */
struct actor {
	struct operation *program;
	uint64_t length, at; /* operations; the next one */
	bool busy;
	double alive;
	bool *arrived; /* [2][n_chunks][n_micro]: the input of that operation is here */
};

enum kind { DONE, ARRIVES };

struct event {
	double s;
	uint64_t order; /* first come, first served at equal times */
	enum kind kind;
	uint32_t replica, rank;
	struct operation operation;
};

struct queue {
	struct event *heap;
	uint64_t n, capacity, n_ever;
	bool failed;
};

struct play {
	struct pipe_sim *sim;
	struct actor *actors; /* [n_replicas][n_ranks] */
	struct queue queue;
};

static bool sooner(const struct event *a, const struct event *b)
{
	return a->s < b->s || (a->s == b->s && a->order < b->order);
}

static void queue_push(struct queue *queue, struct event event)
{
	uint64_t i = queue->n;

	if (queue->n == queue->capacity) {
		uint64_t capacity = queue->capacity ? 2 * queue->capacity : 64;
		struct event *heap = realloc(queue->heap, capacity * sizeof *heap);

		if (!heap) {
			queue->failed = true;
			return;
		}
		queue->heap = heap;
		queue->capacity = capacity;
	}
	event.order = queue->n_ever++;
	queue->n++;
	while (i > 0 && sooner(&event, &queue->heap[(i - 1) / 2])) {
		queue->heap[i] = queue->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	queue->heap[i] = event;
}

static struct event queue_pop(struct queue *queue)
{
	struct event first = queue->heap[0], last = queue->heap[--queue->n];
	uint64_t i = 0;

	for (;;) {
		uint64_t child = 2 * i + 1;

		if (child >= queue->n)
			break;
		if (child + 1 < queue->n && sooner(&queue->heap[child + 1], &queue->heap[child]))
			child++;
		if (!sooner(&queue->heap[child], &last))
			break;
		queue->heap[i] = queue->heap[child];
		i = child;
	}
	queue->heap[i] = last;
	return first;
}

static struct actor *actor_of(const struct play *play, uint32_t replica, uint32_t rank)
{
	return &play->actors[(uint64_t)replica * play->sim->n_ranks + rank];
}

/*
 * The order of a rank, written out as the schedule is described: warm-up forwards, then one forward
 * and one backward in turn, then the backwards that are left.
 */
static int write_program(struct actor *actor, uint32_t rank, uint32_t n_ranks, uint32_t n_chunks,
                         uint32_t n_micro)
{
	uint64_t n_each = (uint64_t)n_micro * n_chunks, warm_up, n_fwd = 0, n_bwd = 0;
	struct operation *table; /* forward order of (micro-batch, chunk) */

	if (n_each == 0)
		return -1;
	table = calloc(n_each, sizeof *table);
	actor->program = calloc(2 * n_each, sizeof *actor->program);
	actor->arrived = calloc(2 * n_each, sizeof *actor->arrived);
	if (!table || !actor->program || !actor->arrived) {
		free(table);
		return -2;
	}
	if (n_chunks == 1) {
		for (uint32_t m = 0; m < n_micro; m++)
			table[m].micro = m;
		warm_up = n_ranks - rank - 1;
	} else {
		uint64_t i = 0;

		for (uint32_t group = 0; group < n_micro; group += n_ranks) {
			for (uint32_t c = 0; c < n_chunks; c++) {
				for (uint32_t m = group; m < group + n_ranks; m++)
					table[i++] = (struct operation){.chunk = c, .micro = m};
			}
		}
		warm_up = (uint64_t)(n_ranks - rank - 1) * 2 + (uint64_t)(n_chunks - 1) * n_ranks;
	}
	if (warm_up > n_each)
		warm_up = n_each;
	while (actor->length < 2 * n_each) {
		bool backward = n_fwd == n_each || (n_fwd > warm_up && n_fwd - warm_up > n_bwd);
		struct operation *next = &actor->program[actor->length++];

		*next = table[backward ? n_bwd++ : n_fwd++];
		if (backward) {
			next->backward = true;
			next->chunk = n_chunks - 1 - next->chunk;
		}
	}
	free(table);
	return 0;
}

static bool *input_flag(const struct play *play, uint32_t replica, uint32_t rank,
                        struct operation operation)
{
	uint64_t n_micro = play->sim->n_micro[replica];

	return &actor_of(play, replica, rank)
	            ->arrived[((uint64_t)operation.backward * play->sim->n_chunks + operation.chunk) *
	                          n_micro +
	                      operation.micro];
}

/* The first chunk's data and, at the end of the model, the loss need no message. */
static bool has_input(const struct play *play, uint32_t replica, uint32_t rank,
                      struct operation operation)
{
	const struct pipe_sim *sim = play->sim;

	if (!operation.backward && rank == 0 && operation.chunk == 0)
		return true;
	if (operation.backward && rank == sim->n_ranks - 1 && operation.chunk == sim->n_chunks - 1)
		return true;
	return *input_flag(play, replica, rank, operation);
}

static void start_next(struct play *play, uint32_t replica, uint32_t rank, double now_s)
{
	struct pipe_sim *sim = play->sim;
	struct actor *actor = actor_of(play, replica, rank);
	struct operation operation;
	const struct adp_pipe_stage *stage;

	if (actor->busy || actor->at == actor->length)
		return;
	operation = actor->program[actor->at];
	if (!has_input(play, replica, rank, operation))
		return;
	stage = &sim->stages[(uint64_t)operation.chunk * sim->n_ranks + rank];
	actor->busy = true;
	sim->n_operations++;
	if (!operation.backward) {
		double *peak = sim->alive_peak ? &sim->alive_peak[(uint64_t)replica * sim->n_ranks + rank]
		                               : NULL;

		actor->alive += sim->chunk_size ? sim->chunk_size[operation.chunk] : 1;
		if (peak && actor->alive > *peak)
			*peak = actor->alive;
	}
	queue_push(&play->queue, (struct event){
								 .s = now_s + (operation.backward ? stage->bwd_s : stage->fwd_s),
								 .kind = DONE,
								 .replica = replica,
								 .rank = rank,
								 .operation = operation,
							 });
}

static void send_on(struct play *play, const struct event *done)
{
	const struct pipe_sim *sim = play->sim;
	struct event message = *done;
	const struct adp_pipe_stage *stage =
		&sim->stages[(uint64_t)done->operation.chunk * sim->n_ranks + done->rank];

	message.kind = ARRIVES;
	if (done->operation.backward) {
		message.s += stage->send_bwd_s;
		if (done->rank > 0) {
			message.rank--;
		} else if (done->operation.chunk > 0) {
			message.rank = sim->n_ranks - 1;
			message.operation.chunk--;
		} else {
			return;
		}
	} else {
		message.s += stage->send_fwd_s;
		if (done->rank + 1 < sim->n_ranks) {
			message.rank++;
		} else if (done->operation.chunk + 1 < sim->n_chunks) {
			message.rank = 0;
			message.operation.chunk++;
		} else {
			return;
		}
	}
	queue_push(&play->queue, message);
}

static void finish(struct play *play, const struct event *done)
{
	struct pipe_sim *sim = play->sim;
	struct actor *actor = actor_of(play, done->replica, done->rank);

	actor->busy = false;
	actor->at++;
	if (done->operation.backward)
		actor->alive -= sim->chunk_size ? sim->chunk_size[done->operation.chunk] : 1;
	if (actor->at == actor->length)
		sim->end_s[(uint64_t)done->replica * sim->n_ranks + done->rank] = done->s;
	send_on(play, done);
	start_next(play, done->replica, done->rank, done->s);
}

static int play_all(struct play *play)
{
	struct pipe_sim *sim = play->sim;

	for (uint32_t r = 0; r < sim->n_replicas; r++) {
		for (uint32_t s = 0; s < sim->n_ranks; s++)
			start_next(play, r, s, 0);
	}
	while (play->queue.n > 0 && !play->queue.failed) {
		struct event event = queue_pop(&play->queue);

		if (event.kind == DONE) {
			finish(play, &event);
		} else {
			*input_flag(play, event.replica, event.rank, event.operation) = true;
			start_next(play, event.replica, event.rank, event.s);
		}
	}
	if (play->queue.failed)
		return -2;
	for (uint64_t i = 0; i < (uint64_t)sim->n_replicas * sim->n_ranks; i++) {
		if (play->actors[i].at != play->actors[i].length)
			return -1;
	}
	return 0;
}

/* A stage's reduction starts when its slowest replica has all gradients. */
static void reduce(const struct pipe_sim *sim)
{
	for (uint32_t s = 0; s < sim->n_ranks; s++) {
		double start_s = 0;

		for (uint32_t r = 0; r < sim->n_replicas; r++) {
			double end_s = sim->end_s[(uint64_t)r * sim->n_ranks + s];

			start_s = end_s > start_s ? end_s : start_s;
		}
		sim->reduced_s[s] = start_s + (sim->reduce_s ? sim->reduce_s[s] : 0);
	}
}

int pipe_sim_run(struct pipe_sim *sim)
{
	uint64_t n_actors = (uint64_t)sim->n_replicas * sim->n_ranks;
	struct play play = {.sim = sim, .actors = calloc(n_actors, sizeof *play.actors)};
	int rc = play.actors ? 0 : -2;

	sim->n_operations = 0;
	for (uint32_t r = 0; rc == 0 && r < sim->n_replicas; r++) {
		for (uint32_t s = 0; rc == 0 && s < sim->n_ranks; s++) {
			if (sim->alive_peak)
				sim->alive_peak[(uint64_t)r * sim->n_ranks + s] = 0;
			rc = write_program(actor_of(&play, r, s), s, sim->n_ranks, sim->n_chunks,
			                   sim->n_micro[r]);
		}
	}
	if (rc == 0)
		rc = play_all(&play);
	if (rc == 0 && sim->reduced_s)
		reduce(sim);
	for (uint64_t i = 0; play.actors && i < n_actors; i++) {
		free(play.actors[i].program);
		free(play.actors[i].arrived);
	}
	free(play.actors);
	free(play.queue.heap);
	return rc;
}
