#include "verify/stats.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

void acceptance_add(struct acceptance *a, const struct round_record *r) {
    if (!r->live) return;
    a->emitted += r->emitted;
    if (r->k == 0) {
        a->plain_rounds++;
        return;
    }
    a->rounds++;
    if (r->k > a->k) a->k = r->k;
    a->drafted += r->k;
    a->accepted += r->accepted;
    a->rejected += r->rejected;
    a->evaluated += r->evaluated;
    a->overlap_sum += (double)r->overlap_sum;
    a->coupled_sum += (double)r->coupled_sum;
    a->expected_token += (double)r->expected_token;
    a->expected_block += (double)r->expected_block;
    a->histogram[r->accepted]++;
    for (int j = 0; j < r->evaluated; j++) a->offered[j]++;
    for (int j = 0; j < r->accepted; j++) a->hits[j]++;
}

void acceptance_cut(struct acceptance *a, int tokens) {
    a->emitted -= tokens;
    a->cut += tokens;
}

void acceptance_merge(struct acceptance *a, const struct acceptance *other) {
    a->rounds += other->rounds;
    if (other->k > a->k) a->k = other->k;
    a->plain_rounds += other->plain_rounds;
    a->drafted += other->drafted;
    a->accepted += other->accepted;
    a->rejected += other->rejected;
    a->emitted += other->emitted;
    a->cut += other->cut;
    a->overlap_sum += other->overlap_sum;
    a->coupled_sum += other->coupled_sum;
    a->expected_token += other->expected_token;
    a->expected_block += other->expected_block;
    a->evaluated += other->evaluated;
    for (int i = 0; i <= K_MAX; i++) a->histogram[i] += other->histogram[i];
    for (int j = 0; j < K_MAX; j++) {
        a->offered[j] += other->offered[j];
        a->hits[j] += other->hits[j];
    }
}

static double ratio(double part, int64_t whole) {
    return whole > 0 ? part / (double)whole : NAN;
}

double acceptance_alpha(const struct acceptance *a) {
    return ratio((double)a->accepted, a->accepted + a->rejected);
}

double acceptance_alpha_tv(const struct acceptance *a) {
    return ratio(a->overlap_sum, a->evaluated);
}

double acceptance_alpha_coupled(const struct acceptance *a) {
    return ratio(a->coupled_sum, a->evaluated);
}

double acceptance_expected(const struct acceptance *a, enum accept_rule rule) {
    if (rule == ACCEPT_COUPLED) return NAN;
    return ratio(rule == ACCEPT_BLOCK ? a->expected_block : a->expected_token, a->rounds);
}

double acceptance_draft_rate(const struct acceptance *a) {
    return ratio((double)a->accepted, a->drafted);
}

double acceptance_mean_length(const struct acceptance *a) {
    return 1 + ratio((double)a->accepted, a->rounds);
}

double acceptance_position_rate(const struct acceptance *a, int j) {
    return ratio((double)a->hits[j], a->rounds);
}

double acceptance_predicted_length(double alpha, int k) {
    double length = 0, power = 1;
    for (int j = 0; j <= k; j++, power *= alpha) length += power;
    return length;
}

static void put_figure(struct buf *out, const char *name, double figure) {
    json_put_name(out, name);
    json_put_number(out, figure);
}

void acceptance_put(struct buf *out, const struct acceptance *a, int k, enum accept_rule rule) {
    const char *name = accept_rule_name(rule);
    json_put_name(out, "accept");
    json_put_string(out, name, strlen(name));
    put_figure(out, "k", k);
    put_figure(out, "rounds", (double)a->rounds);
    put_figure(out, "plain_rounds", (double)a->plain_rounds);
    put_figure(out, "drafted", (double)a->drafted);
    put_figure(out, "accepted", (double)a->accepted);
    put_figure(out, "rejected", (double)a->rejected);
    put_figure(out, "emitted", (double)a->emitted);
    put_figure(out, "cut", (double)a->cut);
    put_figure(out, "alpha", acceptance_alpha(a));
    put_figure(out, "alpha_tv", acceptance_alpha_tv(a));
    put_figure(out, "alpha_coupled", acceptance_alpha_coupled(a));
    put_figure(out, "expected_token", acceptance_expected(a, ACCEPT_TOKEN));
    put_figure(out, "expected_block", acceptance_expected(a, ACCEPT_BLOCK));
    put_figure(out, "draft_acceptance_rate", acceptance_draft_rate(a));
    put_figure(out, "mean_acceptance_length", acceptance_mean_length(a));
    json_put_name(out, "acceptance_histogram");
    buf_putc(out, '[');
    for (int i = 0; i <= k; i++) {
        json_put_element(out);
        json_put_number(out, (double)a->histogram[i]);
    }
    buf_putc(out, ']');
    json_put_name(out, "per_position_acceptance_rate");
    buf_putc(out, '[');
    for (int j = 0; j < k; j++) {
        json_put_element(out);
        json_put_number(out, acceptance_position_rate(a, j));
    }
    buf_putc(out, ']');
}
