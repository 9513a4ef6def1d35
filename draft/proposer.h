/* Proposers: who drafts the tokens of a round. A table of functions for each (struct proposer_ops), a list of all (proposer.c).
 *
 * Before a round with K > 0 a proposer leaves, for the live rows of row_slot, in the state of the round
 *   offered [S]     how many tokens it has for a slot, 0..K; 0: the row's round is plain
 *   drafted [S, K]  these tokens
 *   p_draft [S, K, VD] of each the distribution that it was drawn from, exactly (one-hot for one that was not drawn)
 * and may choose by nothing but the tokens committed so far. Then whatever it proposes changes speed and not the text
 * (docs/CORRECTNESS.md).
 *
 * Order of calls: open; layout (over plans, then once over the pool); upload, create_graphs, warm_up; then for each sequence
 * begin before each answer (which says how much of the history before it stayed; 0: another sequence), ingest while it lags, and rounds: propose, accepted, collected. Work is enqueued on the
 * stream; no function waits for the device after start-up but begin and ingest, which may wait for the staging of an earlier
 * chunk, and none allocates. One thread at a time.
 *
 * A new proposer is a file with its table and a line in the list. One that reads what the target has computed finds the target's
 * model in the world; its state is its own, by slot. A head of the target (draft/model.h) is one. */
#ifndef DUET_DRAFT_PROPOSER_H
#define DUET_DRAFT_PROPOSER_H

#include "graphs/graph_set.h"
#include "graphs/marks.h"
#include "model/model.h"
#include "model/text/tokenizer.h"
#include "round/state.h"
#include "sampler/sampler.h"

/* What is around a proposer and outlives it. */
struct proposer_world {
    struct device *device;
    struct model *target;
    const struct checkpoint *target_checkpoint;
    const struct tokenizer *tokenizer; /* the target's; NULL: ids alone */
    int vocab;                         /* ids of the target's map */
    int slots;                         /* S, the dummy included */
    int k_max;
    /* known after the layout: */
    const struct round_state *round;
    const struct sampler *sampler;
    struct prefill_buffers *prefill;
    const int32_t *page_table; /* [S, pages_per_slot] device */
    int32_t pages_per_slot;
};

struct proposer_options {
    const char *word;                    /* of the table; NULL: the model of `checkpoint` */
    const struct checkpoint *checkpoint; /* NULL: not given */
    struct model_numbers numbers;        /* of it; its head is cut by `vocab` */
    const char *vocab;                   /* what its head is cut to (draft/vocab.h); NULL: nothing */
};

/* The history of a sequence when an answer begins: tokens [0, length), of which the first old_length were there before. */
struct proposer_turn {
    int slot;
    int room;              /* positions that the sequence may come to have */
    const int32_t *tokens; /* host memory, read before begin returns */
    int old_length, length;
};

/* A sequence that is to catch up: its tokens [0, length), host memory, read before ingest returns, of which the target's cache holds the
 * first `scored`. */
struct proposer_row {
    int slot;
    const int32_t *tokens;
    int length, scored;
};

/* A round for the first `batch` rows of row_slot, a bucket; those of sequences are the first `rows` ones, in `slots`. */
struct proposer_round {
    int batch, k;
    const int32_t *slots; /* [rows] host; NULL: all are the dummy, as after rounds of the same k */
    int rows;
    struct marks *marks; /* NULL, or gets one after each piece of proposing, and in between one after each draw */
};

/* What a proposer's own struct begins with. open fills it in. */
struct proposer {
    const struct proposer_ops *ops;
    const struct proposer_world *world;
    int vocab;                /* ids that it may propose, all of the target's map: `ids`, else [0, vocab) */
    struct ids ids;           /* ascending; none: it is not cut to some */
    int inputs;               /* ids [0, inputs) that it can read */
    int stride;               /* floats of a row of its logits; 0: it has none */
    bool stays;               /* draft_stays likewise */
    int block, mask;          /* draft_block and draft_mask likewise */
    int positions;            /* past them it offers nothing; INT32_MAX: no limit */
    int first, shift;         /* draft_first and draft_shift of the state of the round; 0: it has no model */
    struct model *model;      /* its own model, or NULL */
    struct graph_set *graphs; /* its own graphs, or NULL */
};

struct proposer_ops {
    const char *word;  /* that asks for it in place of a directory; NULL: a directory does */
    const char *title; /* in reports */
    bool has_model;    /* with weights, which may be quantised, and a head, which may be cut */
    /* The rest of *out is zero; close frees what failed half-way. Allocates. */
    int (*open)(struct proposer **out, const struct proposer_world *, const struct proposer_options *);
    void (*close)(struct proposer *);
    /* NULL, here and below: nothing to do. */
    int (*layout)(struct proposer *, const struct model_limits *, struct pool *);
    int (*upload)(struct proposer *, struct stream *, const struct progress *); /* synchronises */
    int (*create_graphs)(struct proposer *, const struct graph_set_options *);  /* and captures them; allocates */
    /* Each eager launch of `batch` rows once, for the dummy sequence. */
    int (*warm_up)(struct proposer *, struct stream *, int batch);

    /* Takes in what is new of a sequence's tokens, but for what takes as long as a pass of a model: that is for ingest. */
    int (*begin)(struct proposer *, struct stream *, const struct proposer_turn *);
    /* Before a round with K > 0: how many tokens of a sequence of `length` does it lack, or will it after a plain round in flight?
     * While it lacks some the sequence is in no round. */
    int (*lags)(const struct proposer *, int slot, int length, bool plain_in_flight);
    /* Takes in one chunk of what it lacks of these rows: of one that lacks some, or a few tokens of each. They have no round in
     * flight. What it takes of a row that comes alone depends on that row alone. */
    int (*ingest)(struct proposer *, struct stream *, const struct proposer_row *, int count);

    /* By its tokens [length], in host memory: would it offer something after them? NULL: always. */
    bool (*finds)(const struct proposer *, const int32_t *tokens, int length);

    /* Enqueues the proposals of a round. */
    int (*propose)(struct proposer *, struct stream *, const struct proposer_round *);
    /* After acceptance, plain rounds included: records and slots are those of the round. */
    int (*accepted)(struct proposer *, struct stream *, const struct proposer_round *);
    /* The host has read a round of k; the sequence of the slot has `length` tokens now, after any cut. */
    void (*collected)(struct proposer *, int slot, int length, int k);
    /* The documented launches of a round of k, those of `accepted` included: graphs and eager ones. */
    void (*launches)(const struct proposer *, int k, int *graphs, int *kernels);
};

/* The table that this word asks for, or NULL. */
const struct proposer_ops *proposer_of_word(const char *word);

/* The functions of its table; for NULL, an engine without a proposer, they do nothing. */
int proposer_open(struct proposer **out, const struct proposer_world *, const struct proposer_options *);
void proposer_close(struct proposer *);
int proposer_layout(struct proposer *, const struct model_limits *, struct pool *);
int proposer_upload(struct proposer *, struct stream *, const struct progress *);
int proposer_create_graphs(struct proposer *, const struct graph_set_options *);
int proposer_warm_up(struct proposer *, struct stream *, int batch);
int proposer_begin(struct proposer *, struct stream *, const struct proposer_turn *);
int proposer_lags(const struct proposer *, int slot, int length, bool plain_in_flight);
int proposer_ingest(struct proposer *, struct stream *, const struct proposer_row *, int count);
bool proposer_finds(const struct proposer *, const int32_t *tokens, int length);
int proposer_propose(struct proposer *, struct stream *, const struct proposer_round *);
int proposer_accepted(struct proposer *, struct stream *, const struct proposer_round *);
void proposer_collected(struct proposer *, int slot, int length, int k);
void proposer_launches(const struct proposer *, int k, int *graphs, int *kernels);

#endif
