/* What follows from the figures of a sweep: predictions, when it is over, what to use. Pure. */
#include <math.h>

#include "cli/tune.h"

/* Only what stays clearly under the best is given up: acceptance is a little better at some K than alpha says. A setting within
 * CONTENDER of the best may still turn out to be the best when both have run more often; within twice the spread of K = 0 too. */
static const double PREDICTION_SLACK = 1.15, CONTENDER = 0.85;

double tune_rate(const struct tune_setting *s) {
    return s->seconds > 0 ? (double)s->tokens / s->seconds : 0;
}

double tune_spread(const struct tune_setting *s) {
    double low = INFINITY, high = 0;
    for (int i = 0; i < s->runs; i++) {
        low = fmin(low, s->rate[i]);
        high = fmax(high, s->rate[i]);
    }
    return s->runs > 1 && high > 0 ? (high - low) / (high + low) : NAN;
}

double tune_speed_up(const struct tune_results *r, const struct tune_setting *s) {
    double plain = tune_rate(&r->settings[0]);
    return plain > 0 ? tune_rate(s) / plain : NAN;
}

double tune_predict(const struct tune_results *r, double alpha, int k) {
    return acceptance_predicted_length(alpha, k) * r->round_ms[0] / r->round_ms[k];
}

double tune_alpha(const struct tune_results *r, enum accept_rule rule) {
    struct acceptance all = {0};
    for (int i = 1; i < r->count; i++)
        if (r->settings[i].rule == rule) acceptance_merge(&all, &r->settings[i].stats);
    return acceptance_alpha(&all);
}

/* Of those that ran so often, K = 0 among them where `plain`; NULL: none. */
static const struct tune_setting *fastest(const struct tune_results *r, bool plain, int runs) {
    const struct tune_setting *best = NULL;
    for (int i = plain ? 0 : 1; i < r->count; i++) {
        const struct tune_setting *s = &r->settings[i];
        if (s->runs >= runs && (!best || tune_rate(s) > tune_rate(best))) best = s;
    }
    return best;
}

double tune_predict_own(const struct tune_results *r, const struct tune_setting *s) {
    return s->k == 0 ? 1 : tune_predict(r, acceptance_alpha(&s->stats), s->k);
}

/* What was measured and what is predicted differ by what the host does between launches, and a slow first run of K = 0 makes all
 * else look fast: predictions are held against the lesser of the two. */
bool tune_is_over(const struct tune_results *r, int k) {
    const struct tune_setting *best = fastest(r, true, 1);
    double alpha = NAN;
    for (int i = 1; i < r->count; i++) alpha = fmax(alpha, acceptance_alpha(&r->settings[i].stats));
    if (isnan(alpha)) return false;
    double level = fmin(tune_speed_up(r, best), tune_predict_own(r, best));
    for (; k <= r->k_max; k++)
        if (!(tune_predict(r, alpha, k) * PREDICTION_SLACK < level)) return false;
    return true;
}

bool tune_is_contender(const struct tune_results *r, const struct tune_setting *s) {
    double spread = tune_spread(&r->settings[0]), share = isnan(spread) ? CONTENDER : fmin(CONTENDER, 1 - 2 * spread);
    return s->k == 0 || tune_rate(s) >= share * tune_rate(fastest(r, true, 1));
}

/* --- the choice ----------------------------------------------------------------------------------------------- */

/* The other settings within the noise of the best, and the fastest of them. */
static void find_rivals(struct tune_choice *c, const struct tune_results *r) {
    const double best = tune_rate(c->best);
    for (int i = 1; i < r->count; i++) {
        const struct tune_setting *s = &r->settings[i];
        if (s == c->best || s->runs == 0 || !(fabs(tune_rate(s) - best) <= c->noise * best)) continue;
        c->rivals++;
        if (!c->rival || tune_rate(s) > tune_rate(c->rival)) c->rival = s;
    }
}

/* Of those that ran again if there are some: one that ran once and was not among the best then may look better than these by what
 * their later runs say, and nothing says how far its only one is to be trusted. */
static const struct tune_setting *fastest_trusted(const struct tune_results *r) {
    const struct tune_setting *again = fastest(r, false, 2);
    return again ? again : fastest(r, false, 1);
}

struct tune_choice tune_choose(const struct tune_results *r) {
    struct tune_choice c = {.verdict = TUNE_PLAIN, .best = fastest_trusted(r), .speed_up = NAN, .noise = NAN};
    if (!c.best) return c;
    double plain = tune_spread(&r->settings[0]), own = tune_spread(c.best);
    c.speed_up = tune_speed_up(r, c.best);
    c.noise = isnan(plain) || isnan(own) ? NAN : fmax(plain, own);
    if (c.speed_up > 1) c.verdict = c.speed_up - 1 <= c.noise ? TUNE_UNCLEAR : TUNE_PAYS;
    if (c.noise > 0) find_rivals(&c, r);
    return c;
}

/* "--k 3 --accept block"; the rule stays out where all are one. */
static void put_flags(struct buf *out, const struct tune_results *r, const struct tune_setting *s) {
    buf_printf(out, "--k %d", s->k);
    if (s->k > 0 && !r->is_greedy) buf_printf(out, " --accept %s", accept_rule_name(s->rule));
}

static void put_gain(struct buf *out, const struct tune_results *r, const struct tune_choice *c) {
    put_flags(out, r, c->best);
    buf_printf(out, ": %.2f times plain decoding", c->speed_up);
    if (c->noise >= 0.005) buf_printf(out, ", give or take %.0f %%", 100 * c->noise);
    if (!c->rival) return;
    buf_puts(out, "; ");
    put_flags(out, r, c->rival);
    if (c->rivals > 1) buf_printf(out, " and %d more", c->rivals - 1);
    buf_puts(out, c->rivals > 1 ? " lie within that" : " lies within that");
}

void tune_put_sentence(struct buf *out, const struct tune_results *r) {
    struct tune_choice c = tune_choose(r);
    if (!c.best) {
        buf_puts(out, "nothing but plain decoding was measured");
    } else if (c.verdict == TUNE_PAYS) {
        put_gain(out, r, &c);
    } else if (c.verdict == TUNE_UNCLEAR) {
        buf_puts(out, "speculation gains too little here to tell: --k 0; ");
        put_flags(out, r, c.best);
        buf_printf(out, " runs at %.2f times its speed, give or take %.0f %%", c.speed_up, 100 * c.noise);
    } else {
        buf_puts(out, "speculation does not pay here: --k 0; the best, ");
        put_flags(out, r, c.best);
        buf_printf(out, ", runs at %.2f times its speed", c.speed_up);
    }
}
