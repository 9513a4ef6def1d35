#include "engine/auto_k.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* What trials and measurements may lose, in plain rounds: at the beginning, of each round's time, and most at once. */
static const double CREDIT_FIRST = 0.5, CREDIT = 0.004, CREDIT_MOST = 64;
/* What a trial for which nobody need catch up may owe; the next one waits for it. */
static const double DEBT_MOST = 1;
/* A choice that makes proposers catch up must bring that in within so many rounds. */
static const double CHANGE_ROUNDS = 64;

int auto_k_create(struct auto_k *a, int max_batch, int k_max) {
    const size_t buckets = (size_t)max_batch + 1, times = buckets * ((size_t)k_max + 1);
    *a = (struct auto_k){
        .k_max = k_max, .max_batch = max_batch, .k = k_max, .trial = AUTO_TRIAL_RESULTS, .credit = CREDIT_FIRST};
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
enum { KNOWN = 8, SEEN_MOST = 32, SEEN_FADES = 256, TIME_EVERY = 4 };

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

bool auto_k_asks_time(const struct auto_k *a, int bucket, int k) {
    const bool is_known = a->seen[index_of(a, bucket, k)] >= KNOWN;
    return !auto_k_rests(a) && (!is_known || a->since[bucket] % TIME_EVERY == 0);
}

void auto_k_fix(struct auto_k *a, const float *ms) {
    const size_t times = (size_t)a->k_max + 1;
    for (int b = 0; b <= a->max_batch; b++) memcpy(a->start_ms + (size_t)b * times, ms, times * sizeof *ms);
    for (size_t i = 0; i < times * ((size_t)a->max_batch + 1); i++) a->ratio[i] = 1, a->seen[i] = 0;
    a->is_fixed = true;
}

/* Between plain rounds nothing is asked, and what is known stays. */
static void fade(struct auto_k *a, int bucket) {
    float *seen = a->seen + index_of(a, bucket, 0);
    for (int k = 0; k <= a->k_max; k++) seen[k] *= 1 - 1.0f / SEEN_FADES;
}

/* What the machine does at the time concerns every K: half of what is new of a K that is known well. */
static void drift(struct auto_k *a, int bucket, int k, double error) {
    const size_t first = index_of(a, bucket, 0);
    for (int j = 0; j <= a->k_max; j++)
        if (j != k) a->ratio[first + (size_t)j] *= (float)(1 + error / 32);
}

/* The mean of the first rounds, and of what was believed unless they are shorter; then a sixteenth of what is new, held to a quarter. */
void auto_k_time(struct auto_k *a, int bucket, int k, double ms) {
    if (a->is_fixed || !(ms > 0)) return;
    const size_t i = index_of(a, bucket, k);
    const double old = ratio_of(a, bucket, k), seen = (double)a->seen[i];
    const bool is_known = seen >= KNOWN;
    const double most = is_known ? 0.25 : 0.5;
    double error = fmin(fmax(ms / auto_k_ms(a, bucket, k) - 1, -most), most);
    const double weight = fmax(1 / (seen + (error > 0 ? 2 : 1)), 1.0 / 16);
    if (error > 0) error /= 2;
    drift(a, bucket, k, is_known ? error : 0);
    a->ratio[i] = (float)(old * (1 + error * weight));
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
    e->has_run = true;
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

void auto_k_pass(struct auto_k_estimate *e) {
    e->has_run = true;
}

/* The chance to keep a position that is reached: what was counted, and `prior` as if it had been seen `weight` times. */
static double chance(const struct auto_k_estimate *e, int j, double prior, double weight) {
    return ((double)e->kept[j] + weight * prior) / ((double)e->reached[j] + weight);
}

/* Where nothing is known, a drafted token is kept as likely as not; a position is like the one before it, and a row like all, until
 * rounds of its own say otherwise. */
void auto_k_expect(const struct auto_k *a, const struct auto_k_estimate *row, double *tokens) {
    double of_all = 0.5, open = 1, expected = 1;
    tokens[0] += expected;
    for (int j = 0; j < a->k_max; j++) {
        of_all = chance(&a->all, j, of_all, j == 0 ? 1 : 8);
        open *= row ? chance(row, j, of_all, 4) : 0;
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
    const double more = best == 0 ? 1 : 1.01;
    return tokens[best] * ms[now] > more * tokens[now] * ms[best] ? best : now;
}

/* What a round of k in place of one of `best` is expected to lose, in plain rounds. */
static double loss_of(const double *tokens, const double *ms, int k, int best) {
    const double loss = ms[k] - tokens[k] / tokens[best] * ms[best];
    return loss > 0 ? loss / ms[0] : 0;
}

/* How much more than its time says a K may bring: the error of a mean of so many rounds, each a quarter off, at most a half. */
static double doubt(double seen) {
    return 0.25 / sqrt(fmax(0.25, seen));
}

/* Of the K that may be better than the choice, the one of which the fewest rounds told lately; the choice itself if there is none. */
static int least_known(const struct auto_k *a, int bucket, const double *tokens, const double *ms) {
    const float *seen = a->seen + index_of(a, bucket, 0);
    int least = a->k;
    float fewest = SEEN_MOST;
    for (int k = 0; k <= a->k_max; k++) {
        const double most = tokens[k] * (1 + doubt((double)seen[k]));
        if (k == a->k || seen[k] >= fewest || most * ms[a->k] < tokens[a->k] * ms[k]) continue;
        least = k, fewest = seen[k];
    }
    return least;
}

/* Its K is the one nearest to paying, every fourth time one of which little is known. It begins when the least of its rounds can be
 * paid for, and lasts while any can: what they lose is charged as they run, by what was learned. Where an answer begins, which is
 * when a trial costs least and most often finds something new, it may owe. */
static bool begin_trial(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up) {
    const int other = a->is_fixed || a->trials % 4 != 3 ? 0 : least_known(a, bucket, tokens, ms);
    const double loss = loss_of(tokens, ms, other > 0 ? other : fastest(tokens, ms, 1, a->k_max), 0);
    const double debt = catch_up > 0 ? 0 : DEBT_MOST;
    if (a->credit + debt < catch_up + AUTO_TRIAL_ROUNDS * loss) return false;
    a->debt = debt;
    a->credit -= catch_up;
    a->catch_up = catch_up;
    a->trial_k = other, a->trial = AUTO_TRIAL_RESULTS, a->trials++;
    return true;
}

/* Speculation does not pay, as far as is known: 0, or the K of a trial, where there is something to try. */
static int try_again(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up) {
    if (a->credit + a->debt <= 0 || a->k_max == 0) a->trial = 0;
    const bool is_due = a->plain >= AUTO_LEAST_INTERVAL && a->k_max > 0;
    if (tokens[a->k_max] <= tokens[0]) return 0;
    if (a->trial == 0 && !(is_due && begin_trial(a, bucket, tokens, ms, catch_up))) return 0;
    const double most = fmax(ceil(AUTO_TRIAL_RESULTS / tokens[0]), AUTO_TRIAL_ROUNDS);
    if (a->trial > most) a->trial = (int)most;
    const int k = a->trial_k > 0 ? a->trial_k : fastest(tokens, ms, 1, a->k_max);
    a->loss = loss_of(tokens, ms, k, 0);
    return k;
}

/* Some rounds at once, since after plain ones the proposer must catch up. */
static void measure_another(struct auto_k *a, int bucket, const double *tokens, const double *ms, double catch_up) {
    const int k = least_known(a, bucket, tokens, ms);
    if (a->is_fixed || a->left > 0 || a->since[bucket] < AUTO_MEASURE_EVERY || k == a->k) return;
    const double loss = AUTO_TRIAL_ROUNDS * loss_of(tokens, ms, k, a->k) + (k == 0 ? catch_up : 0);
    if (loss > a->credit) return;
    a->credit -= loss;
    a->measuring = k, a->left = AUTO_TRIAL_ROUNDS;
}

bool auto_k_rests(const struct auto_k *a) {
    return a->k == 0 && a->trial == 0 && a->plain % AUTO_LEAST_INTERVAL != 0 && !a->is_fixed;
}

void auto_k_joined(struct auto_k *a) {
    a->bill = (struct auto_k_bill){0};
}

int auto_k_choose(struct auto_k *a, int bucket, const double *tokens, double catch_up_ms) {
    double ms[K_MAX + 1], with_change[K_MAX + 1];
    for (int k = 0; k <= a->k_max; k++) {
        ms[k] = auto_k_ms(a, bucket, k);
        with_change[k] = ms[k] + (a->k == 0 && k > 0 ? catch_up_ms / CHANGE_ROUNDS : 0);
    }
    const double catch_up = catch_up_ms / ms[0];
    a->k = auto_k_best(tokens, with_change, a->k_max, a->k);
    if (a->k == 0) {
        a->left = 0;
        return try_again(a, bucket, tokens, ms, catch_up);
    }
    measure_another(a, bucket, tokens, ms, catch_up);
    return a->left > 0 ? a->measuring : a->k;
}

double auto_k_ran(struct auto_k *a, int bucket, int k) {
    const double rounds = auto_k_ms(a, bucket, k) / auto_k_ms(a, bucket, 0);
    a->credit = fmin(a->credit + CREDIT * rounds, CREDIT_MOST);
    if (!auto_k_rests(a)) fade(a, bucket);
    a->plain = k > 0 ? 0 : a->plain + 1;
    const bool is_trial = a->k == 0 && k > 0;
    const double expected = is_trial ? a->catch_up + rounds : 0;
    if (is_trial && a->trial > 0) a->trial--, a->credit -= a->loss;
    if (is_trial) a->catch_up = 0;
    if (a->left > 0 && k == a->measuring)
        a->left--, a->since[bucket] = 0;
    else
        a->since[bucket]++;
    return expected;
}

/* Charged is what the time came to beyond what was expected. What was accepted is not: a trial that found more is none any longer, and
 * those that are left found less. Other programs may have made either long. */
static void settle(struct auto_k *a) {
    struct auto_k_bill *b = &a->bill;
    const double more = b->ms * b->plain / b->plain_ms - b->expected;
    a->credit -= fmin(fmax(more, -b->expected / 2), b->expected / 2);
    *b = (struct auto_k_bill){0};
}

void auto_k_settle(struct auto_k *a, int bucket, int k, double expected, double ms) {
    struct auto_k_bill *b = &a->bill;
    if (b->ms <= 0) b->bucket = bucket;
    if (a->is_fixed || bucket != b->bucket || (k > 0 && expected <= 0)) {
        *b = (struct auto_k_bill){0};
    } else if (k > 0) {
        b->ms += ms, b->expected += expected;
    } else if (b->ms > 0 && !b->is_over) {
        b->ms += ms, b->expected += 1, b->is_over = true;
    } else if (b->ms > 0) {
        b->plain_ms += ms;
        if (++b->plain == AUTO_SETTLING_ROUNDS) settle(a);
    }
}
