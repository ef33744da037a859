/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_SEARCH_EXPLAIN_H
#define ADP_SEARCH_EXPLAIN_H

#include "base/strbuf.h"
#include "search/internal.h"

/* Parts of adp_search_explain: each question is one more search with one thing changed. */

enum { WHY_MAX_REASONS = 8 };

/* What came back: a plan, or the reason why there is none. */
struct answer {
	struct adp_plan *plan;
	struct adp_error err;
};

/* What was found about a GPU type of the fleet. */
struct why_type {
	bool allowed;
	const char *why, *flag; /* when not allowed */
	uint32_t n_used, n_total;
	char with[48]; /* what using it (or all of it) costs, in words; "" = not asked or none */
};

/* A GPU of the cluster by rank. */
struct why_seat {
	uint32_t node, gpu;
};

struct why {
	struct adp_plan *plan;
	const struct adp_model *model;
	const struct adp_cluster *cluster;
	const struct adp_engine *engine;
	const struct adp_tables *tables;
	const struct adp_search_opts *asked; /* as the user gave them */
	struct adp_search_opts
		opts;               /* of the questions: under a deadline, no more GPUs than the plan has */
	struct adp_train train; /* without the deadline */
	struct adp_arena scratch;
	struct why_type *types; /* by cluster type */
	struct why_seat *seats; /* by rank */
	uint32_t n_used, n_types_used;
	uint32_t n_asked;
	/* answers that several sentences use; 0 = not asked, or no such plan */
	double half_total_s, roomy_s;
	char equal[48]; /* what an equal split costs, in words */
	uint32_t n_half;
	const char *full_type; /* whose memory keeps a faster plan out */
	struct adp_plan_other *others;
	uint32_t n_others, max_others;
	const char *reasons[WHY_MAX_REASONS];
	uint32_t n_reasons;
};

struct question {
	const struct adp_cluster *cluster;
	struct adp_train train;
	struct adp_search_opts opts;
	struct search_knobs knobs;
};

/* ---- explain.c ----------------------------------------------------------------------- */
void why_question(struct question *out, const struct why *w);
/* No plan at all is an answer; any other failure is returned. Destroy answer->plan. */
int why_ask(struct answer *out, struct why *w, const struct question *question,
            struct adp_error *err);
bool why_may_ask(const struct why *w);
const char *why_label(const struct why *w, uint32_t type); /* alias, or name */
/* The other plan's step against the plan's: "+31.2 %"; "about" where its search left more than that
 * open. */
const char *why_percent(char out[48], const struct why *w, const struct adp_plan *other);

/* ---- reasons.c ----------------------------------------------------------------------- */
int why_seats(struct why *w, struct adp_error *err);
int why_reasons(struct why *w, struct adp_error *err); /* reasons and binding */
/* Takes the text; an empty one is no reason. */
int why_add_reason(struct why *w, struct adp_strbuf *text, struct adp_error *err);
/* "the step would take 7.91 s (-6.0 %), with tensor parallel 4 -> 8" */
void why_add_instead(struct adp_strbuf *out, const struct why *w, const struct adp_plan *other,
                     struct adp_strbuf *changes);

/* ---- reasons_state.c ----------------------------------------------------------------- */
int why_health(struct why *w, struct adp_error *err);
int why_load(struct why *w, struct adp_error *err);

/* ---- changes.c ----------------------------------------------------------------------- */
/* "tensor parallel 4 -> 8, pipeline 2 -> 1": what is different, most telling first; "" when nothing
 * is. */
void plan_changes(struct adp_strbuf *out, const struct adp_plan *from, const struct adp_plan *to);
uint32_t plan_stage_layers(const struct adp_plan_stage *stage);
uint32_t plan_n_used(const struct adp_plan *plan);

/* ---- binding.c ----------------------------------------------------------------------- */
int why_binding(struct why *w, struct adp_error *err);
/* The slowest link that the groups of an axis meet over; stride in ranks, n members. */
enum adp_link_kind why_axis_link(const struct why *w, uint32_t stride, uint32_t n, bool neighbours);
const char *why_link_words(enum adp_link_kind kind);

#endif
