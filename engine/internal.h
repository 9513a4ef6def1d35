/* What the files of engine/ share. */
#ifndef DUET_ENGINE_INTERNAL_H
#define DUET_ENGINE_INTERNAL_H

#include "base/err.h"
#include "draft/proposer.h"
#include "engine/auto_k.h"
#include "engine/probe.h"
#include "model/kv_pages.h"
#include "sampler/penalty.h"
#include "target/target.h"
#include "verify/verify.h"

enum { ROUNDS_IN_FLIGHT_MAX = 2 };

/* What a stretch of the stream takes: between two events, or, on a device that works inside of the calls, of processor time: that of
 * this thread, and no less than an equal share of that of all threads, since others may do most of the work while this one is kept
 * from it. No events without a proposer. */
struct span {
    struct marks marks;
    int64_t thread_us, process_us; /* at the start */
    int64_t us;
};

/* One round in flight: what it was given and where its results come back. Pinned memory. */
struct round {
    struct round_record *records; /* [max_batch] pinned */
    int32_t *row_slot;            /* [max_batch] pinned staging */
    struct event *done;
    struct marks marks; /* no events without engine_options.timing */
    bool timed;
    struct span span; /* for K_AUTO; likewise what follows */
    bool spanned;
    bool is_next;    /* what the engine says when it is enqueued */
    double expected; /* by auto_k_ran */
    int rows;        /* live rows when it was enqueued */
    int k;
};

/* Where a sequence's answer is. QUEUED: it waits for a slot. INGESTING: the caches lack tokens, of the prompt or, after a change of
 * K, of the answer; it is in no new round. DECODING: it takes part in rounds. */
enum phase { PHASE_IDLE, PHASE_QUEUED, PHASE_INGESTING, PHASE_DECODING };

struct sequence {
    struct engine *engine;
    struct sequence *next_open;   /* of all that are open */
    struct sequence *next_queued; /* of those QUEUED, in the order in which they came */
    enum phase phase;
    int slot;       /* 1..max_batch, from its first answer until it is closed; 0: none */
    int32_t serial; /* of the current answer */
    int32_t *pages; /* [page_count] of which it has all while it has a slot */
    int page_count;
    int capacity;       /* tokens: min(context, reserve) */
    struct ids tokens;  /* history as the host knows it */
    int cached;         /* the target's cache is right for positions 0..cached-1 at least */
    int old_length;     /* of the history when the answer was asked for */
    bool has_begun;     /* its slot on the device is live: the answer has been in rounds, or will be in the next */
    int limit;          /* length at which the answer ends */
    enum finish finish; /* of the last round that was delivered */
    bool is_draft_bad;  /* with FINISH_ERROR: the logits were the draft's */
    int pending_rounds; /* rounds in flight that this answer takes part in */
    struct generation generation;
    struct acceptance stats;
    struct auto_k_estimate estimate;      /* of its acceptance, for K_AUTO */
    bool finds[ROUNDS_IN_FLIGHT_MAX + 1]; /* likewise: did its proposer find something when this round was enqueued? */
};

/* A slot's update on its way to the device; reused only after `sent`. */
struct slot_staging {
    struct slot *slot; /* pinned */
    int32_t *page_row; /* [pages_per_slot] pinned */
    uint32_t *seen;    /* [seen_words] pinned */
    struct event *sent;
};

struct engine {
    struct engine_options options;
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    struct model *target_model;
    struct tokenizer *tokenizer;
    struct target target;
    struct proposer *proposer; /* NULL: plain decoding */
    struct proposer_world world;
    struct round_state state;
    struct sampler sampler;
    struct verify verify;
    struct prefill_buffers prefill;
    int32_t *page_table; /* [S, pages_per_slot] device */

    int k, k_max, max_batch, context, pages_per_slot, pages, pipeline;
    enum context_bound bound;
    uint64_t larger_bytes; /* memory_plan */
    bool context_capped, does_not_fit;
    int vocab; /* of the target's map */

    struct kv_pages *kv_pages;
    struct sequence *open;        /* all, by next_open */
    struct sequence *queue;       /* by next_queued */
    struct sequence **slots;      /* [max_batch + 1]; NULL: free */
    struct slot_staging *staging; /* [max_batch + 1] */
    struct proposer_row *behind;  /* [max_batch] of the scheduler: those that catch up together */
    void *pinned;
    struct round rounds[ROUNDS_IN_FLIGHT_MAX + 1];
    uint64_t enqueued, collected; /* rounds */
    const int32_t *rows_sent;     /* [max_batch] the row map that the device has, of the last round; NULL: another */
    int32_t next_serial;
    struct acceptance stats;
    int64_t host_us, wait_us;
    uint64_t graph_launches, kernel_launches; /* of rounds */
    uint64_t rounds_by_k[K_MAX + 1];
    bool gives_logprobs; /* does a row of the next round ask for them? */
    int timing;          /* every timing-th round is timed; 0: none */
    struct round_times times;
    bool chooses_k;       /* K_AUTO: before each round */
    struct auto_k auto_k; /* of an engine with a proposer */
    int timed_k;          /* K of the last round that was read */
    struct span lap;      /* since the last round was collected */
    bool is_next;         /* since the last round was enqueued no prompt was ingested and no answer began */
    double catch_up_ms;   /* what a draft model takes for a short chunk of one row, */
    double together_ms;   /* and for a few tokens of each of max_batch; the device is asynchronous, or INFINITY */
    bool spans_trial;     /* the span of the round to come has begun */
    int found;            /* rows for which the proposer found something when K was chosen */
    bool has_measured;
    struct start_times start_times;
};

/* A part of opening has ended. */
void engine_mark_start(struct engine *, enum start_part);
/* Opens device, models, tokenizers. Leaves nothing behind on failure but what engine_destroy frees. */
int engine_open_models(struct engine *e);
/* Then: context and pages. ERR_MEMORY, with the least context that was tried, if the plan does not fit the device. */
int engine_decide_context(struct engine *e);
uint64_t engine_allowed_bytes(uint64_t free_bytes); /* of what is free, for the pool */
/* Cuts every slice from `pool` (a plan, or the real one). */
int engine_layout(struct engine *e, struct pool *pool);

/* Captures the graphs of target and proposer, of which there are none yet, as the options say. */
int engine_create_graphs(struct engine *e);

/* round.c: whether a sequence is in the next round, one more round, and its results. */
bool round_wants(const struct sequence *);
int round_enqueue(struct engine *);
int round_collect(struct engine *);
/* Is one with K = 0 among them, as far as this answer takes part in any? */
bool round_plain_in_flight(const struct sequence *);
/* Enqueues the work of a round, with a mark after each part of it; marks may be NULL. */
int round_run(struct engine *, struct proposer_round);

/* auto_engine.c: measures rounds of the dummy sequence, some tenths of a second, once; waits; is_behind: after a run, where a
 * host takes longer for better figures. Chooses K of the next round. */
int auto_measure(struct engine *, bool is_behind);
int auto_choose(struct engine *);
/* auto_engine.c: both ends of a span are enqueued; it is read once the second has passed. */
int span_begin(struct engine *, struct span *);
int span_end(struct engine *, struct span *);
int span_ms(const struct engine *, const struct span *, float *ms);
/* A round is about to be enqueued, and its span begins where it has one; it was; it was read; one of its live records was. */
int auto_enqueue(struct engine *, struct round *);
void auto_enqueued(struct engine *, struct round *);
int auto_collected(struct engine *, const struct round *);
void auto_learn(struct sequence *, const struct round *, const struct round_record *);

/* scheduler.c: an answer is asked for; it is over, wherever it is. */
void scheduler_enqueue(struct sequence *);
void scheduler_forget(struct sequence *);
/* Gives slots to those that wait and ingests as much as belongs into one step. */
int scheduler_ingest(struct engine *);

/* sequence.c: gives it a slot and its pages, if it has none; false: there are not enough now. */
bool sequence_place(struct sequence *);
/* Readies its slot for ingestion. */
int sequence_start(struct sequence *);
/* The device's slot takes over the answer, whose history is ingested: it is in rounds from the next one on. */
int sequence_begin(struct sequence *);

static inline bool sequence_is_penalised(const struct sequence *s) {
    float penalty = s->generation.sampling.repetition_penalty;
    return penalty != 0 && penalty != 1;
}

/* The proposer's own model, or NULL. */
static inline struct model *engine_draft(const struct engine *e) {
    return e->proposer ? e->proposer->model : NULL;
}

/* Enqueues the acceptance of a round, and what some of its rows ask for beside it. */
static inline int engine_accept(struct engine *e, int batch, int k) {
    struct verify_accept op = {e->state, e->sampler, e->verify, batch, k};
    TRY(verify_accept(e->stream, &op));
    if (e->state.penalises) TRY(sampler_mark_seen(e->stream, &(struct mark_seen){e->state, batch}));
    return e->gives_logprobs ? verify_logprobs(e->stream, &op) : 0;
}

#endif
