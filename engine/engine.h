/* The engine: it owns a target, perhaps a proposer of tokens, one memory pool, the graphs and the round.
 *
 * Use: engine_create; engine_open sequences, as many as one likes; engine_generate to append ids and ask for an answer; engine_step
 * until its callback has seen the end; again engine_generate for the next turn; engine_close. Up to max_batch sequences have a slot,
 * from their first answer until they are closed, and the others wait in line. Everything runs on the calling thread; callbacks run
 * inside engine_step.
 *
 * The text is distributed exactly as if the target alone had been sampled. At temperature 0 it is byte-equal to plain
 * decoding. After engine_create nothing is allocated on the device and nothing is captured (EXACT buckets excepted). */
#ifndef DUET_ENGINE_ENGINE_H
#define DUET_ENGINE_ENGINE_H

#include "base/progress.h"
#include "graphs/graph_set.h"
#include "model/config.h"
#include "model/files/checkpoint.h"
#include "model/model.h"
#include "round/state.h"
#include "verify/stats.h"

struct engine;
struct sequence;

/* In place of K: the engine chooses it before every round, for the most tokens a second (engine/auto_k.h). The choice rests on
 * measured times, so that only text that does not depend on K repeats: at temperature 0, and under ACCEPT_COUPLED. */
enum { K_AUTO = -1 };

/* AUTO: on CUDA, where it was measured to be faster; on the host padding costs more than it brings. */
enum prefill_graphs { PREFILL_GRAPHS_AUTO, PREFILL_GRAPHS_OFF, PREFILL_GRAPHS_ON };

struct engine_options {
    /* Both must outlive the engine. A checkpoint without files has random weights: benchmarks. */
    const struct checkpoint *target;
    const struct checkpoint *draft; /* of a draft model; NULL: none */
    /* Quantised at loading. The draft's are nobody's loss: the text is the target's. The target's make it another target. What the
     * files have quantised stays as it is: ERR_USAGE if that is all. */
    enum model_weights target_weights, draft_weights;
    /* What the draft's head is cut to, so that its steps cost less: ids in place of all of its vocabulary (draft/vocab.h: "N", a file
     * of ids, "N:TEXT"). The text stays the target's. NULL: all. */
    const char *draft_vocab;
    enum kv_numbers kv; /* of both models; the target's cache, too, makes it another target */
    /* "ngram": drafts come from the text itself; "mtp": from the target's own head; NULL: from the draft model, if there is one. */
    const char *proposer;
    const char *device; /* NULL: "auto" */
    int threads;        /* 0: all */
    int gpu;            /* which one, of a machine with several */
    uint64_t gpu_bytes; /* engine_plan: for a GPU with so much free memory, whether there is one or not; 0: `device` */
    int k;              /* drafted tokens a round, 0..K_MAX; or K_AUTO */
    int k_max;          /* buffers and graphs; 0: k, or 8 with K_AUTO */
    int max_batch;      /* 0: 1 */
    int context;        /* 0: min(the pair's limits, 8192, what fits) */
    enum graph_mode graphs;
    enum bucket_policy buckets;
    enum prefill_graphs prefill_graphs; /* do chunks of prompts replay graphs too? never where `graphs` is off */
    enum accept_rule accept;            /* how drafted tokens are accepted, for all sequences */
    int pipeline;                       /* rounds in flight, 1 or 2; 0: 2 where the device is asynchronous, else 1 */
    float simulate_alpha; /* benchmarks: accept with this probability whatever the models say; 0: the rule */
    int timing;           /* the device's time is measured in every timing-th round, the first included; 0: never */
    struct progress progress;
};

/* Loads both models, plans and allocates the pool, captures the graphs, seals. */
int engine_create(struct engine **out, const struct engine_options *);
void engine_destroy(struct engine *);
/* device_suspend and device_resume, for programs that select GPUs themselves or lead an engine to another thread. An engine is created
 * resumed; to be stepped, measured, given another k or destroyed it has to be. */
void engine_suspend(struct engine *);
int engine_resume(struct engine *);

/* What keeps a context from being larger: the option, positions of a model, the default of 8192, the device's memory. */
enum context_bound { CONTEXT_GIVEN, CONTEXT_BY_TARGET, CONTEXT_BY_DRAFT, CONTEXT_BY_DEFAULT, CONTEXT_BY_MEMORY };

/* The memory plan without loading weights or allocating: one slice a line (`inspect --memory`). A plan that does not fit the
 * device is a plan too. */
struct memory_plan {
    struct pool_slice_info *slices; /* [count], freed by memory_plan_free */
    int count;
    uint64_t total_bytes, mapped_bytes; /* mapped: weights read in place from the file */
    int context, pages;
    enum context_bound bound;           /* why the context is no larger */
    int positions;                      /* that the models have */
    uint64_t free_bytes, allowed_bytes; /* of the device; what the pool may take of it */
    uint64_t larger_bytes;              /* of the pool with twice the context; bounded by memory */
    char device[96];
    char refusal[512]; /* what engine_create would say: the plan does not fit; "": it fits */
};
int engine_plan(struct memory_plan *out, const struct engine_options *);
void memory_plan_free(struct memory_plan *);

struct engine_info {
    int context;                                 /* usable positions of a sequence */
    bool context_capped;                         /* the default is less than the target has positions for */
    int vocab;                                   /* ids of a prompt lie in [0, vocab) */
    int64_t target_parameters, draft_parameters; /* 0: no draft */
    int k, k_max, max_batch;                     /* k: with K_AUTO that of the last choice */
    int draft_vocab;                             /* ids that the draft's head is cut to; 0: it is whole */
    bool k_auto;
    enum accept_rule accept;
    const char *proposer; /* its title, "draft model", "n-gram", "DFlash head", ...; NULL: none */
    uint64_t pool_bytes;
    const char *device;
    const char *device_missing; /* device.h; "" */
    bool is_async;              /* the device works while the host goes on */
    /* Matrices that target_weights and draft_weights are about, and those among them that stay, since the files have quantised them. */
    int target_products, target_products_stored, draft_products, draft_products_stored;
    /* Types of weights that the device keeps in bf16, "f32 and f16"; NULL: none. */
    const char *target_rounded, *draft_rounded;
};
/* Numbers of the head in the target's files that could draft for it ("mtp"); 0: none. Opens and closes it. */
int64_t engine_own_head(struct engine *);
struct engine_info engine_info(const struct engine *);
const struct model_config *engine_config(const struct engine *);
const struct tokenizer *engine_tokenizer(const struct engine *); /* NULL: no tokenizer.json (ids in, ids out) */

/* K of the rounds to come, 0..k_max or K_AUTO, which may have to measure first. Sequences catch up by themselves. ERR_USAGE past
 * k_max or without a draft. */
int engine_set_k(struct engine *, int k);
/* The rule of the rounds to come. ERR_USAGE while an answer is running. Statistics go on as one sum. */
int engine_set_accept(struct engine *, enum accept_rule);

/* --- sequences ------------------------------------------------------------------------------------------ */

/* A sequence of up to min(context, reserve_tok) tokens. Its first answer takes a slot and pages for so many and k_max + 1 more
 * positions, and keeps them. Allocates host memory. */
int engine_open(struct engine *, int reserve_tok, struct sequence **out);
void engine_close(struct engine *, struct sequence *); /* also in mid-answer */

enum finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ERROR };

/* The tokens of one round, given to the callback in order. */
struct token_block {
    const int32_t *tokens;
    const float *logprobs; /* [count] natural, of the target's own distribution; NULL: not asked for */
    int count;             /* >= 0; an end id, if any, is the last one */
    int accepted;          /* the first `accepted` were proposed by the draft */
    bool ended;            /* the last token is an end id */
    enum finish finish;    /* FINISH_NONE: more to come */
    /* For the callback to set: keep only the first `keep` (0..count, default count) and, if keep < count or `stop`, end
     * the answer there. What is not kept is in no history and no statistics but `cut`. */
    int keep;
    bool stop;
};
typedef void (*token_fn)(void *user, struct token_block *);

struct generation {
    int max_tokens; /* >= 1 */
    struct sampling sampling;
    uint64_t seed; /* Philox key */
    bool ignore_end;
    bool logprobs; /* of each token */
    token_fn on_tokens;
    void *user;
};

/* Appends ids [n] to the history and asks for an answer, which steps will ingest and write. The history must hold at least one
 * token then. ERR_LIMIT (sentence with "context" and both lengths) if history + n + 1 token does not fit, ERR_FORMAT for an id
 * outside the vocabulary, ERR_USAGE while an answer is running: in all these cases nothing changes. */
int engine_generate(struct engine *, struct sequence *, const int32_t *ids, int n, const struct generation *);

/* Ends a running answer now, wherever it is; what the callback has seen stays. Before the answer's first round the ids that were
 * appended with it go too. */
void engine_stop(struct engine *, struct sequence *);
bool engine_is_running(const struct sequence *);
/* How its last answer ended by itself; FINISH_NONE: it has not, or the callback or engine_stop ended it. */
enum finish engine_finish(const struct sequence *);
/* ERR_NUMERIC with the model whose logits gave FINISH_ERROR. */
int engine_finish_error(const struct sequence *);

/* Cuts the history to its first n tokens (undo): a length, no work. ERR_USAGE while an answer is running. */
int engine_truncate(struct engine *, struct sequence *, int n);
const int32_t *engine_tokens(const struct sequence *, int *n);
/* Statistics of this sequence since engine_open or engine_reset_stats. */
const struct acceptance *engine_sequence_stats(const struct sequence *);
void engine_reset_sequence_stats(struct sequence *);

/* One step: gives free slots to answers that wait, in their order; ingests a chunk of a prompt, or a few short prompts; enqueues
 * the next round for the answers that are being written, and collects a finished one; callbacks run here. *running = answers that
 * wait or run. ERR_BUSY: all of them wait for slots that sequences without an answer hold. ERR_DEVICE ends the run; a numeric error
 * ends its sequence with FINISH_ERROR. */
int engine_step(struct engine *, int *running);

/* Answers by where they are; queued: for a slot. */
struct engine_load {
    int queued, ingesting, decoding;
};
struct engine_load engine_load(const struct engine *);
/* Positions of the running answer's history that the target has ingested; *all: that it must before the answer begins. */
int engine_ingested(const struct sequence *, int *all);

/* --- reports ---------------------------------------------------------------------------------------------- */

const struct acceptance *engine_stats(const struct engine *); /* all sequences since creation */

/* The device's time in the rounds that were timed: sums, from 2K + 3 events a round on its stream. A gap in which the device
 * waits for the host belongs to the part after it. */
struct round_times {
    uint64_t rounds;
    double draft_ms;    /* replays of the draft */
    double verify_ms;   /* the target's replay, at K = 0 too */
    double sampling_ms; /* draws and acceptance */
};

struct engine_counts {
    uint64_t rounds, collected;               /* those that were enqueued; and whose results are there */
    struct stream_counts stream;              /* since the start, prefill included */
    uint64_t graph_launches, kernel_launches; /* of rounds; kernels outside graphs */
    struct graph_set_counts draft, target;
    int64_t host_us; /* time spent in enqueueing rounds; the host device works in it */
    int64_t wait_us; /* time spent in waiting for rounds */
    struct round_times times;
    uint64_t rounds_by_k[K_MAX + 1];
    uint64_t device_allocations;
};
struct engine_counts engine_counts(const struct engine *);
/* Milliseconds of a round of `rows` rows by its K, as K_AUTO sees them: measured on the dummy sequence, corrected by rounds that ran
 * since. NAN before engine_measure, which K_AUTO calls at start-up, and past k_max. */
double engine_round_ms(const struct engine *, int rows, int k);
/* Measures them, once: some tenths of a second; waits. ERR_USAGE without a proposer. */
int engine_measure(struct engine *);
/* The documented launches of one round at K: graph launches and eager launches. */
void engine_launches(const struct engine *, int k, int *graph_launches, int *kernel_launches);
/* Both sets, for `inspect --graphs`; which: 0 draft, 1 target; NULL where there is none. */
const struct graph_set *engine_graphs(const struct engine *, int which);

#endif
