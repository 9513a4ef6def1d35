#include "engine/auto_k.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int auto_k_create(struct auto_k *a, int max_batch, int k_max) {
    const size_t buckets = (size_t)max_batch + 1, times = buckets * ((size_t)k_max + 1);
    *a = (struct auto_k){.k_max = k_max, .max_batch = max_batch, .k = k_max, .interval = AUTO_LEAST_INTERVAL};
    a->start_ms = calloc(times, sizeof *a->start_ms);
    a->factor = calloc(buckets, sizeof *a->factor);
    a->slope = calloc(buckets, sizeof *a->slope);
    a->own = calloc(times, sizeof *a->own);
    a->speculated = calloc(buckets, sizeof *a->speculated);
    if (!a->start_ms || !a->factor || !a->slope || !a->own || !a->speculated)
        return err_set(ERR_MEMORY, "out of memory for the times of rounds");
    for (size_t i = 0; i < times; i++) a->start_ms[i] = 1;
    for (size_t b = 0; b < buckets; b++) a->factor[b] = 1, a->speculated[b] = -1;
    return 0;
}

void auto_k_destroy(struct auto_k *a) {
    free(a->start_ms);
    free(a->factor);
    free(a->slope);
    free(a->own);
    free(a->speculated);
    memset(a, 0, sizeof *a);
}

/* --- times ------------------------------------------------------------------------------------------------ */

static size_t index_of(const struct auto_k *a, int bucket, int k) {
    return (size_t)bucket * ((size_t)a->k_max + 1) + (size_t)k;
}

static double part_of_k(const struct auto_k *a, int k) {
    return a->k_max > 0 ? (double)k / a->k_max : 0;
}

double auto_k_ms(const struct auto_k *a, int bucket, int k) {
    const size_t i = index_of(a, bucket, k);
    const double c = (double)a->factor[bucket] + (double)a->slope[bucket] * part_of_k(a, k);
    return (double)a->start_ms[i] * (c > 0.05 ? c : 0.05) * (1 + (double)a->own[i]);
}

void auto_k_fix(struct auto_k *a, const float *ms) {
    const size_t times = (size_t)a->k_max + 1;
    for (int b = 0; b <= a->max_batch; b++) {
        memcpy(a->start_ms + (size_t)b * times, ms, times * sizeof *ms);
        a->factor[b] = 1, a->slope[b] = 0;
    }
    memset(a->own, 0, times * ((size_t)a->max_batch + 1) * sizeof *a->own);
    a->is_fixed = true;
}

/* Least mean squares, of an error that is held to a quarter of what was expected. What the machine does at the time concerns every K,
 * so most of an error is common; what is left is of this K, and fades in some hundred rounds of others, so that a K that once was
 * slow is tried again. */
void auto_k_time(struct auto_k *a, int bucket, int k, double ms) {
    if (a->is_fixed || !(ms > 0)) return;
    const size_t first = index_of(a, bucket, 0), i = index_of(a, bucket, k);
    double error = ms / auto_k_ms(a, bucket, k) - 1;
    if (fabs(error) > 0.25) error = copysign(0.25, error);
    const double common = error / 6 * (double)a->factor[bucket];
    a->factor[bucket] += (float)common;
    a->slope[bucket] += (float)(common / 8 * part_of_k(a, k));
    for (int j = 0; j <= a->k_max; j++) a->own[first + (size_t)j] *= 1 - 1.0f / 1024;
    a->own[i] += (float)(error / 16) * (1 + a->own[i]);
}

/* --- acceptance ------------------------------------------------------------------------------------------- */

static void scale(struct auto_k_estimate *e, float by) {
    for (int j = 0; j < K_MAX; j++) e->reached[j] *= by, e->kept[j] *= by;
}

/* What was known before a pause is worth few rounds: two of a row. */
static void end_pause(struct auto_k_estimate *e, float worth) {
    if (e->plain >= AUTO_LEAST_INTERVAL && e->reached[0] > worth) scale(e, worth / e->reached[0]);
    e->plain = 0;
}

void auto_k_learn(struct auto_k_estimate *e, const struct round_record *r, int k, int rounds) {
    if (k == 0) {
        e->plain++;
        return;
    }
    end_pause(e, (float)rounds / 16);
    scale(e, 1 - 1.0f / (float)rounds);
    for (int j = 0; j < r->accepted && j < k; j++) e->reached[j]++, e->kept[j]++;
    const bool was_short = r->accepted == r->k && r->k < k && r->status == SLOT_LIVE;
    if (r->accepted < k && (r->evaluated > r->accepted || was_short)) e->reached[r->accepted]++;
}

/* The chance to keep a position that is reached: what was counted, and `prior` as if it had been seen `weight` times. */
static double chance(const struct auto_k_estimate *e, int j, double prior, double weight) {
    return ((double)e->kept[j] + weight * prior) / ((double)e->reached[j] + weight);
}

/* Of a position that was never reached nothing is known but the one before it. */
void auto_k_expect(const struct auto_k *a, const struct auto_k_estimate *row, double *tokens) {
    double of_all = 0.7, open = 1, expected = 1;
    tokens[0] += expected;
    for (int j = 0; j < a->k_max; j++) {
        of_all = chance(&a->all, j, of_all, 1);
        open *= chance(row, j, of_all, 2);
        expected += open;
        tokens[j + 1] += expected;
    }
}

/* --- the choice ------------------------------------------------------------------------------------------- */

int auto_k_best(const double *tokens, const double *ms, int k_max, int now) {
    int best = 0;
    for (int k = 1; k <= k_max; k++)
        if (tokens[k] * ms[best] > tokens[best] * ms[k]) best = k;
    return best == 0 || tokens[best] * ms[now] > 1.03 * tokens[now] * ms[best] ? best : now;
}

static int probe_k(const struct auto_k *a) {
    return a->k_max < AUTO_PROBE_K ? a->k_max : AUTO_PROBE_K;
}

/* What a trial loses if nothing is accepted. */
static double trial_ms(const struct auto_k *a, const double *ms, double catch_up_ms) {
    const double more = ms[probe_k(a)] - ms[0];
    return AUTO_PROBE_ROUNDS * (more > 0 ? more : 0) + catch_up_ms;
}

static int try_again(struct auto_k *a, const double *ms, double catch_up_ms) {
    if (a->trial > 0) return probe_k(a);
    const double loss = trial_ms(a, ms, catch_up_ms);
    if (a->plain < a->interval || loss > a->credit_ms) return 0;
    a->credit_ms -= loss;
    a->plain = 0;
    a->interval = a->interval < AUTO_MOST_INTERVAL / 2 ? 2 * a->interval : AUTO_MOST_INTERVAL;
    a->trial = AUTO_PROBE_ROUNDS;
    return probe_k(a);
}

/* Is a plain round due, to learn what it takes? Not where it would cost much, nor say much: speculation is far better. */
static bool wants_plain(const struct auto_k *a, int bucket, int k, const double *tokens, const double *ms) {
    if (a->is_fixed || a->speculated[bucket] < 0) return !a->is_fixed;
    return a->speculated[bucket] >= AUTO_PLAIN_EVERY && tokens[k] * ms[0] < 1.5 * tokens[0] * ms[k];
}

int auto_k_choose(struct auto_k *a, int bucket, const double *tokens, double catch_up_ms) {
    double ms[K_MAX + 1];
    for (int k = 0; k <= a->k_max; k++) ms[k] = auto_k_ms(a, bucket, k);
    a->k = auto_k_best(tokens, ms, a->k_max, a->k);
    if (a->k == 0) return try_again(a, ms, catch_up_ms);
    a->interval = AUTO_LEAST_INTERVAL, a->plain = a->trial = 0;
    return wants_plain(a, bucket, a->k, tokens, ms) ? 0 : a->k;
}

void auto_k_ran(struct auto_k *a, int bucket, int k) {
    const double credit = a->credit_ms + 0.01 * auto_k_ms(a, bucket, k), most = 32 * auto_k_ms(a, bucket, 0);
    a->credit_ms = credit < most ? credit : most;
    if (k == 0)
        a->plain++, a->speculated[bucket] = 0;
    else if (a->speculated[bucket] >= 0)
        a->speculated[bucket]++;
    if (k > 0 && a->trial > 0) a->trial--;
}
