/* --k auto: K of the next round, such that speculation is never much slower than plain decoding.
 *
 * The choice is the K with the most expected tokens per millisecond: sum over the rows of 1 + the expected accepted tokens, by the
 * time of a round. Both are estimates. Times are measured on the dummy sequence at first (engine/auto_engine.c), where they lack the
 * sampler's work and the context's; rounds that are run correct them: by a factor and a slope over K for each bucket, and K by K. Acceptance
 * is counted by position, for each sequence and for all together, and older rounds count less.
 *
 * Nothing here may look at more than what is committed: of a round the tokens accepted and evaluated, never what was drafted behind
 * a rejection, whose random numbers the next round uses again (docs/CORRECTNESS.md).
 *
 * A K of 0 teaches nothing, so speculation is tried again now and then: at growing intervals, and for no more than 1 % of the time.
 * While it speculates, a plain round now and then says what plain rounds cost. Host memory alone; only create allocates. */
#ifndef DUET_ENGINE_AUTO_K_H
#define DUET_ENGINE_AUTO_K_H

#include "round/state.h"

enum {
    AUTO_K_MAX_DEFAULT = 8, /* k_max where it is not given */
    AUTO_PROBE_K = 2,       /* of a trial, at most */
    AUTO_PROBE_ROUNDS = 3,  /* of a trial */
    AUTO_LEAST_INTERVAL =
        16, /* plain rounds before the first trial; twice as many before each further one that fails */
    AUTO_MOST_INTERVAL = 4096,
    AUTO_PLAIN_EVERY = 128 /* speculative rounds of a bucket, then a plain one */
};

/* Of the rounds that came to position j (0-based) of a draft, how many accepted it; a row that was offered fewer tokens than the
 * round had counts as one that did not. */
struct auto_k_estimate {
    float reached[K_MAX], kept[K_MAX];
    int plain; /* rounds without a draft since the last one with one */
};

struct auto_k {
    int k_max, max_batch;
    float *start_ms; /* [max_batch + 1, k_max + 1] of a round, by bucket and K */
    /* A round takes start_ms * (factor + slope K / k_max) * (1 + own). */
    float *factor, *slope; /* [max_batch + 1] */
    float *own;            /* [max_batch + 1, k_max + 1], which fades where it is not measured again */
    int *speculated;       /* [max_batch + 1] rounds since a plain one; -1: there was none */
    bool is_fixed;         /* the times are given and stay: tests */
    struct auto_k_estimate all;
    int k;               /* the choice, trials aside */
    int plain, interval; /* plain rounds since the last trial; as many make the next one due */
    int trial;           /* rounds that are left of it */
    double credit_ms;    /* that trials may lose */
};

/* Everything zero but the sizes; every time is 1 ms until it is set. Allocates. */
int auto_k_create(struct auto_k *, int max_batch, int k_max);
void auto_k_destroy(struct auto_k *);

/* --- times ------------------------------------------------------------------------------------------------ */

double auto_k_ms(const struct auto_k *, int bucket, int k);
/* From now on it takes ms [k_max + 1], by K, in every bucket. */
void auto_k_fix(struct auto_k *, const float *ms);
/* A round took so long. One that took far longer than expected, since the machine did something else, counts little. */
void auto_k_time(struct auto_k *, int bucket, int k, double ms);

/* --- acceptance ------------------------------------------------------------------------------------------- */

/* A live record of a round of k; `rounds`: after so many a record counts 1/e. */
void auto_k_learn(struct auto_k_estimate *, const struct round_record *, int k, int rounds);
/* Adds the tokens to expect of a row to tokens [k_max + 1], by K. */
void auto_k_expect(const struct auto_k *, const struct auto_k_estimate *row, double *tokens);

/* --- the choice ------------------------------------------------------------------------------------------- */

/* The K of the most tokens a millisecond; `now` unless another is better by 3 %, or it is 0. */
int auto_k_best(const double *tokens, const double *ms, int k_max, int now);

/* K of the next round in this bucket; catch_up_ms: what the proposer must do first where the last round was plain. */
int auto_k_choose(struct auto_k *, int bucket, const double *tokens, double catch_up_ms);
/* A round of k was enqueued. */
void auto_k_ran(struct auto_k *, int bucket, int k);

#endif
