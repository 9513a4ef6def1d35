#include "engine/auto_k.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* What trials and measurements may lose: a share of the time, and at once no more than so many plain rounds take. */
static const double CREDIT = 0.005, CREDIT_ROUNDS = 64;

int auto_k_create(struct auto_k *a, int max_batch, int k_max) {
    const size_t buckets = (size_t)max_batch + 1, times = buckets * ((size_t)k_max + 1);
    *a = (struct auto_k){.k_max = k_max, .max_batch = max_batch, .k = k_max, .interval = AUTO_LEAST_INTERVAL};
    a->start_ms = calloc(times, sizeof *a->start_ms);
    a->ratio = calloc(times, sizeof *a->ratio);
    a->seen = calloc(times, sizeof *a->seen);
    a->since = calloc(buckets, sizeof *a->since);
    if (!a->start_ms || !a->ratio || !a->seen || !a->since)
        return err_set(ERR_MEMORY, "out of memory for the times of rounds");
    for (size_t i = 0; i < times; i++) a->start_ms[i] = a->ratio[i] = 1;
    return 0;
}

void auto_k_destroy(struct auto_k *a) {
    free(a->start_ms);
    free(a->ratio);
    free(a->seen);
    free(a->since);
    memset(a, 0, sizeof *a);
}

/* --- times ------------------------------------------------------------------------------------------------ */

/* Rounds of a K until it is known well; what is remembered of them; how fast it fades while others run. */
enum { KNOWN = 8, SEEN_MOST = 32, SEEN_FADES = 1024 };

static size_t index_of(const struct auto_k *a, int bucket, int k) {
    return (size_t)bucket * ((size_t)a->k_max + 1) + (size_t)k;
}

/* By the nearest K on both sides that have run, along a line; by the one that has; 1 if none has. */
static double ratio_beside(const struct auto_k *a, int bucket, int k) {
    const size_t first = index_of(a, bucket, 0);
    const float *ratio = a->ratio + first, *seen = a->seen + first;
    int low = k - 1, high = k + 1;
    while (low >= 0 && seen[low] < 0.5f) low--;
    while (high <= a->k_max && seen[high] < 0.5f) high++;
    if (low < 0) return high <= a->k_max ? (double)ratio[high] : 1;
    if (high > a->k_max) return (double)ratio[low];
    return (double)ratio[low] + (double)(ratio[high] - ratio[low]) * (k - low) / (high - low);
}

static double ratio_of(const struct auto_k *a, int bucket, int k) {
    const size_t i = index_of(a, bucket, k);
    const double own = fmin((double)a->seen[i], 1);
    return own * (double)a->ratio[i] + (1 - own) * ratio_beside(a, bucket, k);
}

double auto_k_ms(const struct auto_k *a, int bucket, int k) {
    return (double)a->start_ms[index_of(a, bucket, k)] * ratio_of(a, bucket, k);
}

void auto_k_fix(struct auto_k *a, const float *ms) {
    const size_t times = (size_t)a->k_max + 1;
    for (int b = 0; b <= a->max_batch; b++) memcpy(a->start_ms + (size_t)b * times, ms, times * sizeof *ms);
    for (size_t i = 0; i < times * ((size_t)a->max_batch + 1); i++) a->ratio[i] = 1, a->seen[i] = 0;
    a->is_fixed = true;
}

/* What the machine does at the time concerns every K: half of what is new of a K that is known well. */
static void drift(struct auto_k *a, int bucket, int k, double error) {
    const size_t first = index_of(a, bucket, 0);
    for (int j = 0; j <= a->k_max; j++) {
        a->seen[first + (size_t)j] *= 1 - 1.0f / SEEN_FADES;
        if (j != k) a->ratio[first + (size_t)j] *= (float)(1 + error / 32);
    }
}

/* The mean of the first rounds, then a sixteenth of what is new, held to a quarter. */
void auto_k_time(struct auto_k *a, int bucket, int k, double ms) {
    if (a->is_fixed || !(ms > 0)) return;
    const size_t i = index_of(a, bucket, k);
    const double old = ratio_of(a, bucket, k), seen = (double)a->seen[i];
    const bool is_known = seen >= KNOWN;
    const double most = is_known ? 0.25 : 0.5;
    double error = fmin(fmax(ms / auto_k_ms(a, bucket, k) - 1, -most), most);
    if (is_known && error > 0) error /= 2;
    drift(a, bucket, k, is_known ? error : 0);
    a->ratio[i] = (float)(old * (1 + error * fmax(1 / (1 + seen), 1.0 / 16)));
    a->seen[i] = fminf(a->seen[i] + 1, SEEN_MOST);
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

/* The first of the most tokens a millisecond, from `least` on. */
static int fastest(const double *tokens, const double *ms, int least, int k_max) {
    int best = least;
    for (int k = least + 1; k <= k_max; k++)
        if (tokens[k] * ms[best] > tokens[best] * ms[k]) best = k;
    return best;
}

int auto_k_best(const double *tokens, const double *ms, int k_max, int now) {
    const int best = fastest(tokens, ms, 0, k_max);
    const double more = best == 0 ? 1.01 : 1.03;
    return tokens[best] * ms[now] > more * tokens[now] * ms[best] ? best : now;
}

/* What a round of k in place of one of `best` is expected to lose. */
static double loss_ms(const double *tokens, const double *ms, int k, int best) {
    const double loss = ms[k] - tokens[k] / tokens[best] * ms[best];
    return loss > 0 ? loss : 0;
}

/* Takes a loss from what may be lost, if there is so much, or it must be. */
static bool spend(struct auto_k *a, double ms, bool must) {
    if (ms > a->credit_ms && !must) return false;
    a->credit_ms -= ms;
    return true;
}

/* Of the K that may be better than the choice if it takes half of what is believed, the one of which the fewest rounds told lately;
 * the choice itself if enough did of all. */
static int least_known(const struct auto_k *a, int bucket, const double *tokens, const double *ms) {
    const float *seen = a->seen + index_of(a, bucket, 0);
    int least = a->k;
    float fewest = KNOWN;
    for (int k = 0; k <= a->k_max; k++) {
        if (k == a->k || seen[k] >= fewest || 2 * tokens[k] * ms[a->k] < tokens[a->k] * ms[k]) continue;
        least = k, fewest = seen[k];
    }
    return least;
}

/* Speculation does not pay, as far as is known: 0, or the K that is nearest to paying; every fourth time one of which little is known,
 * which makes no interval longer. */
static int try_again(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up_ms) {
    if (a->trial > 0) return a->measuring;
    if (a->plain < a->interval || a->k_max == 0) return 0;
    const int other = a->is_fixed || a->trials % 4 != 3 ? 0 : least_known(a, bucket, tokens, ms);
    const int k = other > 0 ? other : fastest(tokens, ms, 1, a->k_max);
    if (!spend(a, AUTO_TRIAL_ROUNDS * loss_ms(tokens, ms, k, 0) + catch_up_ms, false)) return 0;
    if (other == 0 && a->interval < AUTO_MOST_INTERVAL) a->interval *= 2;
    a->plain = 0;
    a->measuring = k, a->trial = AUTO_TRIAL_ROUNDS, a->trials++;
    return k;
}

/* Some rounds at once, since after plain ones the proposer must catch up. What plain rounds take must be known at first. */
static void measure_another(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up_ms) {
    const bool must = a->seen[index_of(a, bucket, 0)] < 0.5f;
    const int k = must ? 0 : least_known(a, bucket, tokens, ms);
    if (a->is_fixed || a->left > 0 || a->since[bucket] < (must ? 16 : AUTO_MEASURE_EVERY) || k == a->k) return;
    const double loss = AUTO_TRIAL_ROUNDS * loss_ms(tokens, ms, k, a->k) + (k == 0 ? catch_up_ms : 0);
    if (spend(a, loss, must)) a->measuring = k, a->left = AUTO_TRIAL_ROUNDS;
}

static int speculate(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up_ms) {
    if (++a->lasted >= a->interval) a->interval = AUTO_LEAST_INTERVAL;
    a->plain = a->trial = 0;
    measure_another(a, bucket, tokens, ms, catch_up_ms);
    return a->left > 0 ? a->measuring : a->k;
}

bool auto_k_rests(const struct auto_k *a) {
    return a->k == 0 && a->trial == 0 && a->plain % 8 != 0 && !a->is_fixed;
}

int auto_k_choose(struct auto_k *a, int bucket, const double *tokens, double catch_up_ms) {
    double ms[K_MAX + 1];
    for (int k = 0; k <= a->k_max; k++) ms[k] = auto_k_ms(a, bucket, k);
    a->k = auto_k_best(tokens, ms, a->k_max, a->k);
    if (a->k > 0) return speculate(a, bucket, tokens, ms, catch_up_ms);
    a->lasted = a->left = 0;
    return try_again(a, bucket, tokens, ms, catch_up_ms);
}

void auto_k_ran(struct auto_k *a, int bucket, int k) {
    const double credit = a->credit_ms + CREDIT * auto_k_ms(a, bucket, k),
                 most = CREDIT_ROUNDS * auto_k_ms(a, bucket, 0);
    a->credit_ms = credit < most ? credit : most;
    if (k == 0) a->plain++;
    if (k > 0 && a->trial > 0) a->trial--;
    if (a->left > 0 && k == a->measuring)
        a->left--, a->since[bucket] = 0;
    else
        a->since[bucket]++;
}
