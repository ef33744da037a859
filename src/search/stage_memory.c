/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "search/evaluator.h"

/* What a stage's GPUs must hold, and the recomputation that makes it fit. */

static uint64_t key_hash(const struct memory_key *key)
{
	const unsigned char *bytes = (const unsigned char *)key;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof *key; i += 8) {
		uint64_t word = 0;

		memcpy(&word, bytes + i, sizeof *key - i < 8 ? sizeof *key - i : 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return h;
}

/* Chunks of one rank differ by a layer, so the average of chunks in flight is not the peak. */
static double interleaved_flight(const struct evaluator *ev, uint32_t s, const uint16_t *count)
{
	double size[ADP_SEARCH_MAX_CHUNKS];
	uint32_t n = 0, n_micro = ev->n_equal;

	for (uint32_t b = 0; b < ev->n_blocks; b++)
		n += count[b];
	if (n == 0)
		return ev->in_flight[s];
	for (uint32_t c = 0; c < ev->vpp; c++)
		size[c] = chunk_layers(n, ev->vpp, c);
	return adp_pipeline_alive_peak(size, s, ev->pp, ev->vpp, n_micro) / n;
}

static struct stage_peak stage_peak(struct evaluator *ev, uint32_t s, const uint16_t *count,
                                    uint8_t recompute, struct adp_memory *out)
{
	const struct adp_model *model = ev->space->model;
	struct memory_key key;
	struct adp_memory memory;
	struct adp_memory_opts opts;
	uint32_t *first = ev->run_first, *n = ev->run_n;
	struct adp_rank_items items = {.first_item = first, .n_items = n};
	uint32_t tail = 1 + ev->n_layers;
	uint64_t at;

	memset(&key, 0, sizeof key);
	key.sc = ev->sc;
	key.in_flight = ev->in_flight[s];
	if (ev->vpp > 1) {
		key.rank = (uint16_t)s;
		key.pp = (uint16_t)ev->pp;
	}
	key.shard = ev->shard;
	key.expert_shard = ev->expert_shard;
	memcpy(key.count, count, ev->n_blocks * sizeof *count);
	key.recompute = recompute;
	key.zero_stage = (uint8_t)ev->unit->zero_stage;
	key.ends = (uint8_t)((s == 0) | (s + 1 == ev->pp) << 1);
	key.flash = ev->flash[s];
	key.vpp = (uint8_t)ev->vpp;
	key.groups = (uint8_t)((ev->sc->shape.tp > 1) + (ev->sc->shape.cp > 1) +
	                       (ev->sc->shape.ep > 1) + (ev->dp > 1) + 2 * (ev->pp > 1));
	at = key_hash(&key) % MEMORY_CACHE;
	/* keys are zeroed. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
	if (!out && memcmp(&ev->cache_key[at], &key, sizeof key) == 0)
		return ev->cache_value[at];

	/* runs of items with these counts; which layers they are does not matter to the memory */
	if (s == 0) {
		first[items.n_chunks] = 0;
		n[items.n_chunks++] = 1;
	}
	for (uint32_t b = 0; b < ev->n_blocks; b++) {
		uint32_t left = count[b], from = 0;

		/* layers of one kind need not be neighbours: take runs until the count is met */
		while (left && from < ev->n_layers) {
			const uint32_t *before = &ev->space->n_before[b * (ev->n_layers + 1)];
			uint32_t l = from, len = 0;

			while (l < ev->n_layers && before[l + 1] == before[l])
				l++;
			while (l + len < ev->n_layers && len < left && before[l + len + 1] > before[l + len])
				len++;
			if (!len)
				break;
			first[items.n_chunks] = 1 + l;
			n[items.n_chunks++] = len;
			left -= len;
			from = l + len;
		}
	}
	if (s + 1 == ev->pp) {
		first[items.n_chunks] = tail;
		n[items.n_chunks++] = model->n_items - tail;
	}
	opts = (struct adp_memory_opts){
		.zero_stage = ev->unit->zero_stage,
		.shard_gpus = ev->shard,
		.expert_shard_gpus = ev->expert_shard,
		.in_flight = ev->vpp > 1 ? interleaved_flight(ev, s, count) : ev->in_flight[s],
		.recompute = (enum adp_recompute)recompute,
		.flash = ev->flash[s],
		.tied_head_here = model->tied_embeddings && ev->pp > 1 && s + 1 == ev->pp,
		.n_comm_groups = key.groups};
	adp_memory(&memory, ev->space->engine, model, ev->space->train, &ev->sc->shape, &items, &opts);
	if (out)
		*out = memory;
	ev->cache_key[at] = key;
	ev->cache_value[at] = (struct stage_peak){(double)memory.peak_bytes,
	                                          (double)memory.steady_peak_bytes};
	return ev->cache_value[at];
}

double stage_bytes(struct evaluator *ev, uint32_t s, const uint16_t *count, uint8_t recompute,
                   struct adp_memory *out)
{
	return stage_peak(ev, s, count, recompute, out).bytes;
}

static void range_counts(const struct evaluator *ev, uint32_t a, uint32_t b, uint16_t *count)
{
	for (uint32_t k = 0; k < ev->n_blocks; k++) {
		const uint32_t *before = &ev->space->n_before[k * (ev->n_layers + 1)];

		count[k] = (uint16_t)(before[b] - before[a]);
	}
}

static bool counts_recompute(struct evaluator *ev, uint32_t s, const uint16_t *count,
                             uint8_t *recompute)
{
	for (uint32_t i = 0; i < ev->n_recompute; i++)
		if (stage_bytes(ev, s, count, ev->recompute_order[i], NULL) <= ev->usable[s]) {
			*recompute = ev->recompute_order[i];
			return true;
		}
	return false;
}

bool stage_recompute(struct evaluator *ev, uint32_t s, uint32_t a, uint32_t b, uint8_t *recompute)
{
	uint16_t count[ADP_SEARCH_MAX_BLOCKS];

	range_counts(ev, a, b, count);
	return counts_recompute(ev, s, count, recompute);
}

static bool fits(struct evaluator *ev, uint32_t s, uint32_t n, uint8_t recompute)
{
	uint16_t count[ADP_SEARCH_MAX_BLOCKS];

	range_counts(ev, 0, n, count);
	return stage_bytes(ev, s, count, recompute, NULL) <= ev->usable[s];
}

uint32_t stage_room(struct evaluator *ev, uint32_t s, uint8_t recompute, uint32_t most)
{
	uint32_t lo = 0, hi = most;

	/* with several kinds of block it hangs on which layers */
	if (ev->n_blocks > 1 || fits(ev, s, most, recompute))
		return most;
	while (lo + 1 < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (fits(ev, s, mid, recompute))
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

/* What the evaluator's stages have on these GPUs, at its sizes. */
static void all_on(struct evaluator *ev, const struct adp_gpu_type *gpu)
{
	const struct space *space = ev->space;

	for (uint32_t s = 0; s < ev->pp; s++) {
		ev->usable[s] = space->memory_scale * (double)adp_usable_bytes(space->engine, gpu);
		ev->flash[s] = adp_flash_available(space->engine, gpu, space->train->precision);
	}
}

void stage_rooms(uint16_t *room, struct evaluator *ev, const struct adp_gpu_type *gpu,
                 uint8_t recompute, uint32_t most)
{
	uint32_t last = 0;

	all_on(ev, gpu);
	for (uint32_t s = 0; s < ev->pp; s++) {
		/* neighbours differ little: a micro-batch less in flight makes room for a layer now and
		 * then */
		if (s == 0 || s + 1 == ev->pp || !fits(ev, s, last, recompute)) {
			last = stage_room(ev, s, recompute, most);
		} else {
			while (last < most && fits(ev, s, last + 1, recompute))
				last++;
		}
		room[s] = (uint16_t)last;
	}
}

/* Stage s with one layer, the leanest that there is, once it runs: what it takes to start doesn't
 * add up with the activations of more layers. */
static double least_first_layer(struct evaluator *ev, uint32_t s)
{
	double least = INFINITY;

	for (uint32_t k = 0; k < ev->n_blocks; k++)
		for (uint32_t i = 0; i < ev->n_recompute; i++) {
			uint16_t count[ADP_SEARCH_MAX_BLOCKS] = {0};

			count[k] = 1;
			least = fmin(least,
			             stage_peak(ev, s, count, ev->recompute_order[i], NULL).steady_bytes);
		}
	return least;
}

void stage_rooms_mixed(uint16_t *room, struct evaluator *ev, const struct adp_gpu_type *gpu,
                       const struct layer_room *layer, uint32_t most)
{
	uint8_t way;

	all_on(ev, gpu);
	if (ev->pp == 1) { /* all layers or none; a part of them would count as a pipeline's stage */
		room[0] = (uint16_t)(stage_recompute(ev, 0, 0, ev->n_layers, &way) ? most : 0);
		return;
	}
	for (uint32_t s = 0; s < ev->pp; s++) {
		/* in an interleaved schedule one layer alone may be in flight more often than many are */
		double first = ev->vpp == 1 ? least_first_layer(ev, s) : 0.0;
		double left = ev->usable[s] - first;
		double n = layer_room_layers(layer, ev->shard, ev->in_flight[s]);

		if (ev->vpp == 1)
			n = left < 0.0 ? 0.0 : 1.0 + layer_room_more(layer, ev->shard, ev->in_flight[s], left);
		room[s] = (uint16_t)fmin(most, n);
	}
}

bool stage_shut(struct evaluator *ev, uint32_t s)
{
	if (ev->vpp > 1)
		return false;
	for (uint32_t i = 0; i < ev->n_recompute; i++)
		if (fits(ev, s, 0, ev->recompute_order[i]))
			return false;
	return true;
}

void split_chunks(uint32_t *first, const struct split *split, uint32_t pp, uint32_t vpp)
{
	uint32_t at = 0;

	for (uint32_t c = 0; c < vpp; c++)
		for (uint32_t s = 0; s < pp; s++) {
			first[c * pp + s] = at;
			at += chunk_layers(split->n_layers[s], vpp, c);
		}
	first[vpp * pp] = at;
}

bool split_fit(struct evaluator *ev, struct split *split)
{
	uint32_t first[ADP_SEARCH_MAX_CHUNKS + 1] = {0};

	split_chunks(first, split, ev->pp, ev->vpp);
	for (uint32_t s = 0; s < ev->pp; s++) {
		uint16_t count[ADP_SEARCH_MAX_BLOCKS] = {0}, part[ADP_SEARCH_MAX_BLOCKS] = {0};

		for (uint32_t c = 0; c < ev->vpp; c++) {
			uint32_t at = first[c * ev->pp + s];

			range_counts(ev, at, at + chunk_layers(split->n_layers[s], ev->vpp, c), part);
			for (uint32_t b = 0; b < ev->n_blocks; b++)
				count[b] = (uint16_t)(count[b] + part[b]);
		}
		if (!counts_recompute(ev, s, count, &split->recompute[s]))
			return false;
	}
	return true;
}
