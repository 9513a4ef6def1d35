/* Wrong rules, which the test of the distribution must refuse. */
#include <math.h>

#include "base/philox.h"
#include "tests/fidelity/fidelity.h"
#include "tests/support/chain_support.h"
#include "tests/support/support.h"

enum { V = CHAIN_VOCAB, K = 4, BATCH = 4 };

static int64_t control_tokens(const struct fidelity *f) {
    return f->small ? 60000 : 1000000;
}

/* Rules of the test's own are cheap. */
static int64_t own_tokens(const struct fidelity *f) {
    return f->small ? 300000 : 2000000;
}

/* --- the product's launches with its state spoilt ------------------------------------------------------------------ */

static double spoilt_p(const struct fidelity *f, enum chain_fault fault) {
    static struct chain_tally t;
    struct chain_run run = {.k = K,
                            .batch = BATCH,
                            .sampling = {0.7f, 1, 0, fault == CHAIN_UNFILTERED ? CHAIN_TOP_K : 0, 1},
                            .draft = fault == CHAIN_OTHER_HOT ? CHAIN_NGRAM : CHAIN_GOOD,
                            .tokens = control_tokens(f),
                            .fault = fault};
    chain_drive(&run, &t);
    return chain_chances(&t).next;
}

/* --- rules of the test's own ---------------------------------------------------------------------------------------- */

/* p and q of all classes, and where the numbers come from: the position of the token that they decide, or the round. */
struct own {
    chain_table p, q;
    bool shared, by_round;
};

static double uniform(const struct own *own, uint64_t key, int n, int index, int purpose) {
    int position = own->by_round ? n : n + index;
    if (own->by_round) purpose += 4 * index;
    return philox_word(key, (uint64_t)position, own->shared ? 0 : purpose, 0) * 0x1p-32;
}

/* The first id at which the running sum of `weight` passes u times its total. */
static int invert(const double *weight, double u) {
    double sum = 0, total = 0;
    int last = 0;
    for (int i = 0; i < V; i++) total += weight[i];
    for (int i = 0; i < V; i++) {
        if (weight[i] == 0) continue;
        last = i;
        if (u * total < (sum += weight[i])) break;
    }
    return last;
}

/* max(carry p - q, 0); returns the sum. */
static double excess(const double *p, const double *q, double carry, double *out) {
    double sum = 0;
    for (int i = 0; i < V; i++) sum += out[i] = fmax(carry * p[i] - q[i], 0);
    return sum;
}

static const double *class_of(chain_table table, int position, int last) {
    return table[(position - 1) & 1][last];
}

/* One round after token `last` at n - 1; returns how many tokens it gives. */
typedef int (*own_rule)(struct own *own, uint64_t key, int n, int last, int32_t *out);

/* Token by token. */
static int round_by_token(struct own *own, uint64_t key, int n, int last, int32_t *out) {
    for (int j = 0;; j++) {
        const double *p = class_of(own->p, n + j, last), *q = class_of(own->q, n + j, last);
        double u_residual = uniform(own, key, n, j, PHILOX_RESIDUAL), residual[V];
        if (j == K) {
            out[j] = invert(p, u_residual);
            return j + 1;
        }
        int d = invert(q, uniform(own, key, n, j, PHILOX_DRAFT_DRAW));
        if (uniform(own, key, n, j, PHILOX_ACCEPT) >= p[d] / q[d]) {
            excess(p, q, 1, residual);
            out[j] = invert(residual, u_residual);
            return j + 1;
        }
        last = out[j] = d;
    }
}

/* Block verification (Sun et al. 2024, arXiv 2403.10444), in double. */
static int round_by_block(struct own *own, uint64_t key, int n, int last, int32_t *out) {
    double carry[K + 1] = {1}, residual[V];
    int32_t path[K + 1] = {last};
    for (int j = 0; j < K; j++) {
        const double *p = class_of(own->p, n + j, path[j]), *q = class_of(own->q, n + j, path[j]);
        int d = invert(q, uniform(own, key, n, j, PHILOX_DRAFT_DRAW));
        path[j + 1] = d;
        carry[j + 1] = fmin(carry[j] * p[d] / q[d], 1);
    }
    int kept = 0;
    for (int i = 1; i <= K; i++) {
        double sum =
            i < K ? excess(class_of(own->p, n + i, path[i]), class_of(own->q, n + i, path[i]), carry[i], residual) : 0;
        double threshold = i == K ? carry[K] : sum / (sum + 1 - carry[i]);
        if (uniform(own, key, n, i - 1, PHILOX_ACCEPT) < threshold) kept = i;
    }
    for (int i = 0; i < kept; i++) out[i] = path[i + 1];
    const double *p = class_of(own->p, n + kept, path[kept]), *q = class_of(own->q, n + kept, path[kept]);
    if (kept < K) excess(p, q, carry[kept], residual);
    out[kept] = invert(kept < K ? residual : p, uniform(own, key, n, kept, PHILOX_RESIDUAL));
    return kept + 1;
}

/* The least chance of what the rule emits. */
static double own_p(const struct fidelity *f, own_rule rule, bool shared, bool by_round) {
    static struct chain chain;
    static struct chain_tally t;
    static struct own own;
    struct sampling sampling = {1, 1, 0, 0, 1};
    chain_make(&chain, CHAIN_GOOD);
    chain_tally_init(&t, &chain, &sampling);
    chain_distributions(&chain, false, &sampling, own.p);
    chain_distributions(&chain, true, &sampling, own.q);
    own.shared = shared, own.by_round = by_round;
    for (uint64_t serial = 0; t.emitted < own_tokens(f); serial++) {
        struct chain_request r = chain_request_at(serial);
        while (r.count < r.room) {
            int32_t out[K + 1];
            int last = r.count > 0 ? r.tokens[r.count - 1] : r.pending;
            int count = rule(&own, seed_for_record(78, serial), CHAIN_START + r.count, last, out);
            chain_count(&t, &r, out, count < r.room - r.count ? count : r.room - r.count);
        }
    }
    return chain_chances(&t).least;
}

/* --- rows ----------------------------------------------------------------------------------------------------------- */

static void refused(struct fidelity *f, int64_t tokens, const char *claim, double p) {
    fidelity_add(f, p < 1e-12, claim, text("%s tokens", count_text(tokens)), text("p = %.1e", p), "p < 1e-12");
}

static void right(struct fidelity *f, const char *claim, double p) {
    fidelity_add(f, p > 1e-6, claim, text("%s tokens", count_text(own_tokens(f))), text("p = %.1e", p), "p > 1e-06");
}

void fidelity_controls(struct fidelity *f) {
    int64_t n = control_tokens(f), own = own_tokens(f);
    refused(f, n, "control: q of the next position is refused", spoilt_p(f, CHAIN_NEXT_POSITION));
    refused(f, n, "control: q of another slot is refused", spoilt_p(f, CHAIN_NEXT_SLOT));
    refused(f, n, "control: q of another temperature is refused", spoilt_p(f, CHAIN_FLAT));
    refused(f, n, "control: an unfiltered draw beside filtered p and q is refused", spoilt_p(f, CHAIN_UNFILTERED));
    refused(f, n, "control: a 1 for an id that n-gram lookup did not propose is refused", spoilt_p(f, CHAIN_OTHER_HOT));
    right(f, "the test's own rule, a number for each purpose", own_p(f, round_by_token, false, false));
    refused(f, own, "control: one number for draw, acceptance and residual is refused",
            own_p(f, round_by_token, true, false));
    right(f, "the test's own block rule, numbers of each round", own_p(f, round_by_block, false, true));
    refused(f, own, "control: a block rule with numbers of the position is refused",
            own_p(f, round_by_block, false, false));
}
