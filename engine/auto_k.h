/* --k auto: K of the next round, such that speculation is never much slower than plain decoding.
 *
 * The choice is the K with the most expected tokens per millisecond: sum over the rows of 1 + the expected accepted tokens, by the
 * time of a round. Both are estimates. Times are measured on the dummy sequence at first (engine/auto_engine.c), where they lack the
 * sampler's work and the context's; rounds that are run correct them, for their own K and, until that has run, for those beside it.
 * Acceptance is counted by position, for each sequence and for all together, and older rounds count less.
 *
 * Nothing here may look at more than what is committed: of a round the tokens accepted and evaluated, never what was drafted behind
 * a rejection, whose random numbers the next round uses again (docs/CORRECTNESS.md).
 *
 * A K of 0 teaches nothing, so speculation is tried now and then; what a draft model must read then to catch up is part of the price.
 * While it speculates, rounds of another K, 0 too, now and then say what they take, if that K might turn out to be better. Both are paid
 * from a credit, which grows by 0.4 % of the time that rounds take and is charged with what a round is expected to lose, by all that is
 * known when it begins. So a trial comes the sooner the less it costs, and lasts the longer the nearer speculation is to paying. What it
 * took is settled by the plain rounds right after it, since they have its context and the machine as it was; not where a row joins then.
 *
 * The beginning is such a trial. The draft's cache is filled then, and an answer that begins plain would learn nothing, so the credit
 * begins with half the time of a plain round: at 256 tokens of one row another 0.2 %. What is expected at first is neither hope nor
 * fear: of drafted tokens every second one is kept. So wherever speculation may pay it is begun with a small K, which a few results
 * raise or end.
 *
 * Where an answer begins, a draft model has often read as much as the target: a trial costs least then.
 *
 * A change from plain rounds makes proposers catch up as well, and must bring that in within 64 rounds.
 *
 * Where the proposer says that it would find nothing (n-gram lookup, by the tokens that are committed), a row brings the same for every K.
 * Where it finds nothing for any row rounds are plain, nothing is tried, and nothing is learned either: what its drafts are worth is
 * counted where there are some. What is known is a round old while one is in flight.
 *
 * One K serves all rows of a round. A row could be walked by fewer, but would gain nothing by it: the times of a round depend on its K
 * and bucket, whose rows are drafted and scored together, and tokens that are drafted beyond what a row is likely to keep never make
 * it keep fewer. So a row that accepts little does not want a small K for itself; it only adds less to what a large one brings.
 * Host memory alone; only create allocates. */
#ifndef DUET_ENGINE_AUTO_K_H
#define DUET_ENGINE_AUTO_K_H

#include "round/state.h"

enum {
    AUTO_K_MAX_DEFAULT = 8,   /* k_max where it is not given */
    AUTO_TRIAL_ROUNDS = 3,    /* of a trial, at least, */
    AUTO_TRIAL_RESULTS = 16,  /* and at most as many more as give so many results of rows */
    AUTO_LEAST_INTERVAL = 16, /* plain rounds before it */
    AUTO_SETTLING_ROUNDS = 4, /* and after it, until that is settled */
    AUTO_MEASURE_EVERY = 64   /* speculative rounds of a bucket, then some of another K */
};

/* Of the rounds that came to position j (0-based) of a draft, how many accepted it; a row that was offered fewer tokens than the
 * round had counts as one that did not. */
struct auto_k_estimate {
    float reached[K_MAX], kept[K_MAX];
    int plain;    /* rounds without a draft since the last one with one */
    bool has_run; /* it was in a round */
};

/* The last trial: what it took, with the first plain round after it, which finds caches that others filled; and the plain rounds that came
 * then. `expected` in plain rounds. */
struct auto_k_bill {
    int bucket, plain;
    bool is_over;
    double ms, expected, plain_ms;
};

struct auto_k {
    int k_max, max_batch;
    float *start_ms; /* [max_batch + 1, k_max + 1] of a round, by bucket and K; what follows likewise */
    float *ratio;    /* of what rounds take to that */
    float *seen;     /* timed rounds that say so, of which older ones count less */
    int *since;      /* [max_batch + 1] rounds since those of another K than the choice were measured */
    bool is_fixed;   /* the times are given and stay: tests */
    struct auto_k_estimate all;
    int k;                 /* the choice, trials aside */
    int plain;             /* rounds since the last one with a draft */
    int trial, trials;     /* rounds that are left of a trial; how many there were */
    int trial_k;           /* its K; 0: the one that is nearest to paying */
    int measuring, left;   /* the K whose time is asked for, and for how many rounds yet */
    double credit, debt;   /* what may be lost; what a trial may owe; in plain rounds, as what follows */
    double loss, catch_up; /* of a round of the trial; before its first */
    struct auto_k_bill bill;
};

/* Everything zero but the sizes; every time is 1 ms until it is set. Allocates. */
int auto_k_create(struct auto_k *, int max_batch, int k_max);
void auto_k_destroy(struct auto_k *);

/* --- times ------------------------------------------------------------------------------------------------ */

double auto_k_ms(const struct auto_k *, int bucket, int k);
/* Is the next round, of k, to be timed? One in four of a K that is known, since a short round is 2 % longer with two events. */
bool auto_k_asks_time(const struct auto_k *, int bucket, int k);
/* From now on it takes ms [k_max + 1], by K, in every bucket. */
void auto_k_fix(struct auto_k *, const float *ms);
/* A round took so long. Other programs only ever make a round longer, and in proportion to what it takes, so that a round that took
 * longer counts less than one that took shorter: estimates are near what rounds take when nothing disturbs them, for all K alike. */
void auto_k_time(struct auto_k *, int bucket, int k, double ms);

/* --- acceptance ------------------------------------------------------------------------------------------- */

static inline bool auto_k_is_new(const struct auto_k_estimate *e) {
    return !e->has_run;
}
/* A live record of a round of k; `rounds`: after so many a record counts 1/e. */
void auto_k_learn(struct auto_k_estimate *, const struct round_record *, int k, int rounds);
/* A record of a round before which the proposer found nothing for this row: there is nothing to learn. */
void auto_k_pass(struct auto_k_estimate *);
/* Adds the tokens to expect of a row to tokens [k_max + 1], by K. NULL: of one for which the proposer finds nothing. */
void auto_k_expect(const struct auto_k *, const struct auto_k_estimate *row, double *tokens);

/* --- the choice ------------------------------------------------------------------------------------------- */

/* The K of the most tokens a millisecond; `now` unless 0 is better, or another by 1 %. */
int auto_k_best(const double *tokens, const double *ms, int k_max, int now);

/* The next round is plain, as those before it, and nothing need be worked out or measured: between plain rounds little is
 * new, unless a row joined them. */
bool auto_k_rests(const struct auto_k *);
/* A row joined: rounds are of its context from now on, which may be much shorter, and settle no trial before it. */
void auto_k_joined(struct auto_k *);
/* K of the next round in this bucket; catch_up_ms: what the proposer must do first where the last round was plain. */
int auto_k_choose(struct auto_k *, int bucket, const double *tokens, double catch_up_ms);
/* A round of k was enqueued. What it is expected to take, catching up before it too, if it is one of a trial; else 0. */
double auto_k_ran(struct auto_k *, int bucket, int k);
/* A round was collected of which that was said, and took ms with all that it had to wait for. Only while auto_k_is_billing. */
void auto_k_settle(struct auto_k *, int bucket, int k, double expected, double ms);
static inline bool auto_k_is_billing(const struct auto_k *a) {
    return (a->k == 0 && a->trial > 0) || a->bill.ms > 0;
}

#endif
