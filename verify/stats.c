#include "verify/stats.h"

#include <math.h>

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

static void add_figure(cJSON *object, const char *name, double figure) {
    cJSON_AddItemToObject(object, name, isnan(figure) ? cJSON_CreateNull() : cJSON_CreateNumber(figure));
}

cJSON *acceptance_json(const struct acceptance *a, int k, enum accept_rule rule) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "accept", accept_rule_name(rule));
    cJSON_AddNumberToObject(object, "k", k);
    cJSON_AddNumberToObject(object, "rounds", (double)a->rounds);
    cJSON_AddNumberToObject(object, "plain_rounds", (double)a->plain_rounds);
    cJSON_AddNumberToObject(object, "drafted", (double)a->drafted);
    cJSON_AddNumberToObject(object, "accepted", (double)a->accepted);
    cJSON_AddNumberToObject(object, "rejected", (double)a->rejected);
    cJSON_AddNumberToObject(object, "emitted", (double)a->emitted);
    cJSON_AddNumberToObject(object, "cut", (double)a->cut);
    add_figure(object, "alpha", acceptance_alpha(a));
    add_figure(object, "alpha_tv", acceptance_alpha_tv(a));
    add_figure(object, "alpha_coupled", acceptance_alpha_coupled(a));
    add_figure(object, "expected_token", acceptance_expected(a, ACCEPT_TOKEN));
    add_figure(object, "expected_block", acceptance_expected(a, ACCEPT_BLOCK));
    add_figure(object, "draft_acceptance_rate", acceptance_draft_rate(a));
    add_figure(object, "mean_acceptance_length", acceptance_mean_length(a));
    cJSON *histogram = cJSON_AddArrayToObject(object, "acceptance_histogram");
    for (int i = 0; i <= k; i++) cJSON_AddItemToArray(histogram, cJSON_CreateNumber((double)a->histogram[i]));
    cJSON *rates = cJSON_AddArrayToObject(object, "per_position_acceptance_rate");
    for (int j = 0; j < k; j++) {
        double rate = acceptance_position_rate(a, j);
        cJSON_AddItemToArray(rates, isnan(rate) ? cJSON_CreateNull() : cJSON_CreateNumber(rate));
    }
    return object;
}
