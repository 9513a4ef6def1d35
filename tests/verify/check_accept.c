/* The rules of acceptance beside the default one: worked cases. Their texts, ends and errors: check_accept_texts.c; the
 * distribution of what they emit: check_fidelity.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sampler_support.h"
#include "tests/support/statistics.h"
#include "tests/support/support.h"
#include "verify/rules.h"

/* Elsewhere than on the host there are copies around every launch. */
static int round_count(void) {
    return SANITIZED || !test_device_is_host() ? 2000 : 20000;
}

static const struct sampling plain = {1, 1, 0, 0, 1};

/* --- worked by hand ------------------------------------------------------------------------------------------- */

/* Token 6 is decided by a round that began at 5 or at 6; what the first of them used and dropped must not come again. */
START_TEST(numbers_of_block_verification_belong_to_their_round)
{
    for (int purpose = 0; purpose < PHILOX_PURPOSES; purpose++) {
        struct rule_stream first = rule_stream(ACCEPT_BLOCK, 5, 1, purpose);
        struct rule_stream again = rule_stream(ACCEPT_BLOCK, 6, 0, purpose);
        ck_assert(first.subsequence != again.subsequence || first.purpose != again.purpose);
        again = rule_stream(ACCEPT_BLOCK, 5, 0, purpose);
        ck_assert(first.subsequence != again.subsequence || first.purpose != again.purpose);
    }
}
END_TEST

START_TEST(acceptance_carry_excess_and_threshold_have_these_edges)
{
    ck_assert(!rule_accepts(0, 0, 0.5f) && !rule_accepts(0, 0, 0) && rule_accepts(0, 1e-20f, 0.5f));
    ck_assert(rule_accepts(0x1.fffffep-1f, 0.5f, 0.5f));
    ck_assert(rule_carry(1, 0.25f, 0.5f) == 0.5f && rule_carry(0.5f, 0.5f, 0.125f) == 1);
    ck_assert(rule_carry(1, 0, 0) == 0 && rule_carry(0, 0.5f, 0) == 0 && rule_carry(1, 0.5f, 0) == 1);
    ck_assert(rule_carry(0, 1, 0.5f) == 0 && rule_carry(0.5f, 0.5f, 0.5f) == 0.5f);
    ck_assert(rule_excess(0.5f, 0.75f, 0.25f) == 0.125f && rule_excess(0.5f, 0.5f, 0.25f) == 0);
    ck_assert(rule_threshold(0, 1) == 1 && rule_threshold(0, 0.5f) == 0 && rule_threshold(0.5f, 1) == 1);
    ck_assert(rule_threshold(0.25f, 0.75f) == 0.5f && rule_threshold(0, 0) == 0 && rule_threshold(1, 0) == 0.5f);
}
END_TEST

enum { ABC = 3 };

/* Distributions of two drafted tokens and the one after them. */
struct pair_of_models {
    double target[3][ABC], draft[2][ABC];
};

static void put_logits(const double *p, float *logits) {
    for (int i = 0; i < ABC; i++) logits[i] = p[i] > 0 ? (float)log(p[i]) : -200.0f;
}

static void open_abc(struct rig *rig, enum accept_rule rule) {
    struct round_state sizes = {.slots = 2,
                                .max_batch = 1,
                                .k_max = 2,
                                .vocab_target = ABC,
                                .vocab_draft = ABC,
                                .draft_positions = 1000,
                                .rule = rule};
    rig_open(rig, &sizes, NULL, 1);
    rig->b.row_slot[0] = 1;
}

static void draft_abc(struct rig *rig, const struct pair_of_models *m, uint64_t key) {
    rig_start(rig, 1, 5, 0, 100, plain, key);
    rig_load_pending(rig, 1, 2);
    for (int i = 0; i < 2; i++) {
        put_logits(m->draft[i], rig->b.draft_logits);
        rig_draw(rig, 1, i);
    }
}

static struct round_record score_abc(struct rig *rig, const struct pair_of_models *m, int k) {
    rig_load_block(rig, 1, k);
    for (int j = 0; j <= k; j++) put_logits(m->target[j], rig->b.target_logits + j * ABC);
    rig_accept(rig, 1, k);
    return rig->b.records[0];
}

static struct round_record round_abc(struct rig *rig, const struct pair_of_models *m, uint64_t key) {
    draft_abc(rig, m, key);
    return score_abc(rig, m, 2);
}

/* What is due for each drafted pair: sums of chances, and the chances of 0, 1 and 2 kept tokens. */
struct due {
    double expected_token, expected_block, kept[3];
};

static bool is_near(double got, double expected) {
    return fabs(got - expected) < 1e-5;
}

/* Many rounds of each drafted pair that occurs; the last [a][b] of `due` is that of (d_1, d_2) = (a, b). */
static void check_pairs(const struct pair_of_models *m, const struct due due[ABC][ABC], const char *replacement) {
    struct rig rig;
    int64_t counts[ABC][ABC][3] = {0};
    const int rounds = round_count();
    open_abc(&rig, ACCEPT_BLOCK);
    for (int i = 0; i < rounds; i++) {
        struct round_record r = round_abc(&rig, m, seed_for_record(5, (uint64_t)i));
        const int32_t *d = rig.b.drafted + 2;
        const struct due *expected = &due[d[0]][d[1]];
        require(is_near((double)r.expected_token, expected->expected_token) &&
                    is_near((double)r.expected_block, expected->expected_block),
                "pair %d %d: expected %g and %g", d[0], d[1], (double)r.expected_token, (double)r.expected_block);
        require(r.emitted == r.accepted + 1 && r.rejected == (r.accepted < 2) && r.evaluated == r.accepted + r.rejected,
                "accepted %d, rejected %d, emitted %d", r.accepted, r.rejected, r.emitted);
        if (r.rejected && replacement[r.accepted] >= 'A')
            require(r.tokens[r.accepted] == replacement[r.accepted] - 'A', "replacement %d after %d",
                    r.tokens[r.accepted], r.accepted);
        counts[d[0]][d[1]][r.accepted]++;
    }
    struct chi_square chi = {0};
    for (int a = 0; a < ABC; a++)
        for (int b = 0; b < ABC; b++) chi_square_add(&chi, counts[a][b], due[a][b].kept, 3);
    ck_assert_msg(chi_square_p(&chi) > 1e-6, "p = %g", chi_square_p(&chi));
    rig_close(&rig);
}

/* Section 2 of the paper: p = (1/3, 2/3) and q = (2/3, 1/3) everywhere. Token by token keeps 10/9 of two, the block 11/9.
 * c_1 is 1/2 after A and 1 after B; S_1 is 0 and 1/3, so h_1 is 0 and 1. */
START_TEST(block_keeps_11_ninths_of_the_papers_example)
{
    static const struct pair_of_models m = {{{1 / 3., 2 / 3.}, {1 / 3., 2 / 3.}, {1 / 3., 2 / 3.}},
                                            {{2 / 3., 1 / 3.}, {2 / 3., 1 / 3.}}};
    static const struct due due[ABC][ABC] = {{{0.75, 0.75, {0.75, 0, 0.25}}, {1, 1.5, {0, 0, 1}}},
                                             {{1.5, 1.5, {0, 0.5, 0.5}}, {2, 2, {0, 0, 1}}}};
    double token = 0, block = 0;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            double q = m.draft[0][a] * m.draft[1][b];
            token += q * due[a][b].expected_token, block += q * due[a][b].expected_block;
            ck_assert(is_near(due[a][b].kept[0] + due[a][b].kept[1] + due[a][b].kept[2], 1));
        }
    ck_assert(is_near(token, 10 / 9.) && is_near(block, 11 / 9.));
    check_pairs(&m, due, "BB"); /* max(c p - q, 0) holds B alone */
}
END_TEST

/* p_1 = (1/4, 3/4, 0), q_1 = (1/2, 1/2, 0), p_2 = (0.1, 0.5, 0.4), q_2 = (0.6, 0.1, 0.3).
 * After A: c_1 = 1/2, c_1 p_2 - q_2 = (-0.55, 0.15, -0.1), S_1 = 0.15, h_1 = 0.15 / 0.65 = 3/13; c_2 = 1/12, 1, 2/3.
 * After B: c_1 = 1, p_2 - q_2 = (-0.5, 0.4, 0.1), S_1 = 0.5, h_1 = 1; c_2 = 1/6, 1, 1. */
START_TEST(the_residual_of_a_block_is_scaled_by_its_carry)
{
    static const struct pair_of_models m = {{{0.25, 0.75, 0}, {0.1, 0.5, 0.4}, {1, 0, 0}},
                                            {{0.5, 0.5, 0}, {0.6, 0.1, 0.3}}};
    static const struct due due[ABC][ABC] = {
        {{0.5 + 0.5 / 6, 0.5 + 1 / 12., {10 / 13. * 11 / 12, 3 / 13. * 11 / 12, 1 / 12.}},
         {0.5 + 0.5, 0.5 + 1, {0, 0, 1}},
         {0.5 + 0.5, 0.5 + 2 / 3., {10 / 13. / 3, 3 / 13. / 3, 2 / 3.}}},
        {{1 + 1 / 6., 1 + 1 / 6., {0, 5 / 6., 1 / 6.}}, {2, 2, {0, 0, 1}}, {2, 2, {0, 0, 1}}},
    };
    check_pairs(&m, due, "B-"); /* at the first position p_1 - q_1 holds B alone */
    struct rig rig;
    int64_t after_b[ABC] = {0};
    const int rounds = round_count();
    open_abc(&rig, ACCEPT_BLOCK);
    for (int i = 0; i < rounds; i++) {
        struct round_record r = round_abc(&rig, &m, seed_for_record(6, (uint64_t)i));
        if (r.accepted != 1) continue;
        if (rig.b.drafted[2] == 0) require(r.tokens[1] == 1, "token %d from c p - q after A", r.tokens[1]);
        if (rig.b.drafted[2] == 1) after_b[r.tokens[1]]++;
    }
    struct chi_square chi = {0};
    chi_square_add(&chi, after_b, (const double[]){0, 0.8, 0.2}, ABC);
    ck_assert(after_b[1] > 0 && chi_square_p(&chi) > 1e-6);
    rig_close(&rig);
}
END_TEST

/* Coupled: p = q always agrees; disjoint ones never do; in between at least (1 - TV) / (1 + TV). */
START_TEST(coupled_draws_agree_as_often_as_they_must)
{
    static const struct pair_of_models m = {{{0.5, 0.3, 0.2}, {0.2, 0.2, 0.6}, {1, 0, 0}},
                                            {{0.5, 0.3, 0.2}, {0.6, 0.2, 0.2}}};
    struct rig rig;
    int64_t both = 0;
    const int rounds = round_count();
    double sum = 0;
    open_abc(&rig, ACCEPT_COUPLED);
    for (int i = 0; i < rounds; i++) {
        struct round_record r = round_abc(&rig, &m, seed_for_record(7, (uint64_t)i));
        require(r.accepted >= 1 && r.evaluated == 2, "accepted %d of two", r.accepted);
        require(is_near((double)r.overlap_sum, 1.6) && is_near((double)r.coupled_sum, 1 + 0.6 / 1.4), "sums %g and %g",
                (double)r.overlap_sum, (double)r.coupled_sum);
        both += r.accepted == 2;
        sum += (double)r.coupled_sum - 1;
    }
    /* P(both x) = 1 / sum_y max(p_y / p_x, q_y / q_x): 1/5 for the first and the last, 1/7 for the middle one */
    double share = (double)both / rounds, exact = 1 / 5. + 1 / 7. + 1 / 5.;
    ck_assert_msg(fabs(share - exact) < 5 * sqrt(exact / rounds), "share %g, exact %g", share, exact);
    ck_assert(exact > sum / rounds);
    rig_close(&rig);
}
END_TEST

/* The same drafted tokens, of which a row is offered only the first ones: a round of so many, under every rule. Loop index: rule. */
START_TEST(a_row_that_is_offered_fewer_has_a_round_of_fewer)
{
    static const struct pair_of_models m = {{{0.25, 0.75, 0}, {0.1, 0.5, 0.4}, {1, 0, 0}},
                                            {{0.5, 0.5, 0}, {0.6, 0.1, 0.3}}};
    struct rig rig;
    open_abc(&rig, (enum accept_rule)_i);
    for (uint64_t key = 0; key < 40; key++)
        for (int offered = 0; offered <= 2; offered++) {
            struct round_record r[2];
            for (int whole = 0; whole < 2; whole++) {
                draft_abc(&rig, &m, key);
                if (!whole) rig.b.offered[1] = offered;
                r[whole] = score_abc(&rig, &m, whole ? offered : 2);
            }
            ck_assert_int_eq(r[0].k, offered);
            ck_assert_mem_eq(&r[0], &r[1], sizeof r[0]);
        }
    rig_close(&rig);
}
END_TEST

START_TEST(an_unknown_rule_is_refused)
{
    struct round_state b = {.slots = 2, .max_batch = 1, .vocab_target = ABC, .target_stride = ABC};
    struct pool *plan;
    ck_ok(pool_create_plan(&plan));
    b.rule = (enum accept_rule)3;
    ck_assert_int_eq(round_layout(&b, plan), ERR_USAGE);
    ck_assert_str_eq(err_message(), "rule of acceptance 3, expected 0 to 2");
    pool_destroy(plan);
}
END_TEST

DEVICE_SUITE(check_accept);
Suite *check_accept(void) {
    Suite *suite = suite_create("accept");
    TCase *c = tcase_create("accept");
    tcase_add_test(c, numbers_of_block_verification_belong_to_their_round);
    tcase_add_test(c, acceptance_carry_excess_and_threshold_have_these_edges);
    tcase_add_test(c, block_keeps_11_ninths_of_the_papers_example);
    tcase_add_test(c, the_residual_of_a_block_is_scaled_by_its_carry);
    tcase_add_test(c, coupled_draws_agree_as_often_as_they_must);
    tcase_add_loop_test(c, a_row_that_is_offered_fewer_has_a_round_of_fewer, 0, 3);
    tcase_add_test(c, an_unknown_rule_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
