/* Losslessness of the rule: emitted tokens against the exact target distribution, by chi-square, through the real
 * launches round after round; and wrong rules, which the same test must refuse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/chain_support.h"
#include "tests/support.h"

#ifdef __SANITIZE_ADDRESS__
enum { EMITTED = 8000, CONTROL_EMITTED = 60000 };
#else
enum { EMITTED = 60000, CONTROL_EMITTED = 60000 };
#endif

enum { V = CHAIN_VOCAB, START = CHAIN_START };

static const struct chain_run runs[] = {
    {.k = 1, .batch = 1, .temperature = 1.0f, .top_p = 1, .vocab_draft = V},
    {.k = 1, .batch = 4, .temperature = 0.3f, .top_p = 1, .vocab_draft = V},
    {.k = 2, .batch = 2, .temperature = 0.7f, .top_p = 1, .vocab_draft = V},
    {.k = 2, .batch = 8, .temperature = 1.5f, .top_p = 0.9f, .vocab_draft = V},
    {.k = 3, .batch = 1, .temperature = 1.5f, .top_p = 1, .vocab_draft = V},
    {.k = 3, .batch = 4, .temperature = 1.0f, .top_p = 1, .top_k = 4, .vocab_draft = V},
    {.k = 4, .batch = 8, .temperature = 0.7f, .top_p = 0.8f, .top_k = 6, .vocab_draft = V},
    {.k = 4, .batch = 2, .temperature = 0.3f, .top_p = 1, .vocab_draft = V},
    {.k = 5, .batch = 4, .temperature = 1.0f, .top_p = 1, .min_p = 0.1f, .vocab_draft = V},
    {.k = 5, .batch = 8, .temperature = 1.5f, .top_p = 1, .vocab_draft = V},
    {.k = 6, .batch = 1, .temperature = 0.7f, .top_p = 0.95f, .vocab_draft = V},
    {.k = 6, .batch = 2, .temperature = 1.0f, .top_p = 1, .vocab_draft = 7}, /* ids the draft does not know */
    {.k = 7, .batch = 4, .temperature = 1.5f, .top_p = 0.7f, .min_p = 0.05f, .top_k = 8, .vocab_draft = V},
    {.k = 7, .batch = 1, .temperature = 1.0f, .top_p = 1, .vocab_draft = V + 2}, /* ids only the draft knows */
    {.k = 8, .batch = 8, .temperature = 1.0f, .top_p = 1, .vocab_draft = V},
    {.k = 8, .batch = 2, .temperature = 0.3f, .top_p = 0.9f, .vocab_draft = V},
    {.k = -5, .batch = 4, .temperature = 1.0f, .top_p = 1, .vocab_draft = V}, /* K = 0..5 in turn */
};
enum { RUNS = sizeof runs / sizeof *runs };

START_TEST(emitted_tokens_follow_the_target_alone)
{
    const struct chain_run *run = &runs[_i];
    static struct chain chain;
    static struct tally t;
    make_chain(&chain, run->vocab_draft);
    drive_chain(run, &chain, &t, test_device_is_host() ? EMITTED : EMITTED / 4); /* copies around every launch */
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    ck_assert_msg(p_next > 1e-6, "k %d: p = %g of each token", run->k, p_next);
    ck_assert_msg(p_joint > 1e-6, "k %d: p = %g of two tokens", run->k, p_joint);
    /* The chance to accept is the overlap of p and q: the two figures estimate one number. */
    double n = (double)t.stats.evaluated, alpha = acceptance_alpha(&t.stats), overlap = acceptance_alpha_tv(&t.stats);
    ck_assert_msg(fabs(alpha - overlap) < 5 * sqrt(0.25 / n), "alpha %g, overlap %g", alpha, overlap);
    ck_assert(alpha > 0.3 && alpha < 0.95);
}
END_TEST

/* --- controls --------------------------------------------------------------------------------------------- */

/* Every slot's q becomes the one of its next position. */
static void shift_q(struct rig *rig) {
    size_t row = (size_t)rig->b.vocab_draft, rows = (size_t)rig->b.slots * (size_t)rig->b.k_max;
    memmove(rig->b.p_draft, rig->b.p_draft + row, sizeof(float) * row * (rows - 1));
}

/* Every slot's q becomes that of the slot before it: q by row where rows have moved. */
static void rotate_q(struct rig *rig) {
    size_t slot = (size_t)rig->b.vocab_draft * (size_t)rig->b.k_max;
    float first[V * 8];
    memcpy(first, rig->b.p_draft + slot, sizeof(float) * slot);
    memmove(rig->b.p_draft + slot, rig->b.p_draft + 2 * slot, sizeof(float) * slot * (size_t)(rig->b.slots - 2));
    memcpy(rig->b.p_draft + slot * (size_t)(rig->b.slots - 1), first, sizeof(float) * slot);
}

/* q is stored unsharpened: drawn at T, kept at T = 1. */
static void flatten_q(struct rig *rig) {
    for (int i = 0; i < rig->b.slots * rig->b.k_max; i++) {
        float *q = rig->b.p_draft + i * rig->b.vocab_draft, sum = 0;
        for (int id = 0; id < rig->b.vocab_draft; id++) sum += q[id] = powf(q[id], 0.7f);
        for (int id = 0; id < rig->b.vocab_draft && sum > 0; id++) q[id] /= sum;
    }
}

START_TEST(another_q_than_the_one_drawn_from_is_refused)
{
    void (*const tampers[])(struct rig *) = {shift_q, rotate_q, flatten_q};
    struct chain_run run = {
        .k = 4, .batch = 4, .temperature = 0.7f, .top_p = 1, .vocab_draft = V, .tamper = tampers[_i]};
    static struct chain chain;
    static struct tally t;
    make_chain(&chain, V);
    drive_chain(&run, &chain, &t, CONTROL_EMITTED);
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    ck_assert_msg(p_next < 1e-12, "p = %g", p_next);
}
END_TEST

/* A rule of the test's own, one row, by inversion. With `shared` the draft draw, the acceptance and the resample of a
 * position take one number, as an engine does that seeds a generator anew for each of them. */
static int invert(const double *p, double u) {
    double sum = 0;
    int last = 0;
    for (int i = 0; i < V; i++) {
        if (p[i] == 0) continue;
        last = i;
        if (u < (sum += p[i])) break;
    }
    return last;
}

static double uniform(uint64_t key, int position, int purpose, bool shared) {
    return philox_word(key, (uint64_t)position, shared ? 0 : purpose, 0) * 0x1p-32;
}

static int resample(const double *p, const double *q, double u) {
    double residual[V], sum = 0;
    for (int i = 0; i < V; i++) sum += residual[i] = fmax(p[i] - q[i], 0);
    for (int i = 0; i < V; i++) residual[i] /= sum;
    return invert(residual, u);
}

/* q of all classes, as tally.p is p. */
static double q_of[2][V][V];

static int own_round(const struct tally *t, uint64_t key, int n, int last, int k, bool shared, int32_t *out) {
    for (int j = 0; j <= k; j++) {
        int position = n + j;
        const double *p = t->p[(position - 1) & 1][last], *q = q_of[(position - 1) & 1][last];
        double u_residual = uniform(key, position, PHILOX_RESIDUAL, shared);
        if (j == k) {
            out[j] = invert(p, u_residual);
            return j + 1;
        }
        int d = invert(q, uniform(key, position, PHILOX_DRAFT_DRAW, shared));
        if (uniform(key, position, PHILOX_ACCEPT, shared) >= p[d] / q[d]) {
            out[j] = resample(p, q, u_residual);
            return j + 1;
        }
        last = out[j] = d;
    }
    return 0;
}

static double own_rule_p(bool shared) {
    static struct chain chain;
    static struct tally t;
    struct sampling sampling = {1, 1, 0, 0};
    make_chain(&chain, V);
    make_tally(&t, &chain, &sampling);
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            reference_distribution(&sampling, chain.draft[parity][from], V, q_of[parity][from]);
    for (uint64_t serial = 0; t.emitted < CONTROL_EMITTED; serial++) {
        int32_t tokens[32];
        int count = 0, pending = (int)(serial & 1), room = 2 + (int)(serial % 11);
        while (count < room)
            count += own_round(&t, seed_for_record(78, serial), START + count, count ? tokens[count - 1] : pending, 4,
                               shared, tokens + count);
        tally_request(&t, pending, tokens, room);
    }
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    return p_next;
}

START_TEST(one_shared_uniform_is_refused)
{
    double right = own_rule_p(false), wrong = own_rule_p(true);
    ck_assert_msg(right > 1e-6, "p = %g with a number for each purpose", right);
    ck_assert_msg(wrong < 1e-12, "p = %g with one number", wrong);
}
END_TEST

START_TEST(chi_square_tail_agrees_with_tables)
{
    ck_assert(fabs(chi_square_tail(3.841459, 1) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(18.307038, 10) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(149.449253, 100) - 0.001) < 1e-8);
    ck_assert(fabs(chi_square_tail(2 * log(1e15), 2) / 1e-15 - 1) < 1e-6);
    ck_assert(chi_square_tail(0, 5) == 1);
}
END_TEST

Suite *check_rejection(void);
Suite *check_rejection(void) {
    Suite *suite = suite_create("rejection");
    TCase *c = tcase_create("rejection");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, chi_square_tail_agrees_with_tables);
    tcase_add_loop_test(c, emitted_tokens_follow_the_target_alone, 0, RUNS);
    tcase_add_loop_test(c, another_q_than_the_one_drawn_from_is_refused, 0, 3);
    tcase_add_test(c, one_shared_uniform_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
