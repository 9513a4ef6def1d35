/* The distribution and the draw of one row: filters against a brute-force reference, ties and extremes, the exact f32
 * definition, the race against its formula in double, seeds. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/vector.h"
#include "tests/support/sampler_support.h"
#include "tests/support/statistics.h"
#include "tests/support/support.h"

enum { V_MAX = 3000 };
static float logits[V_MAX], p[V_MAX];
static double reference[V_MAX];

/* About normal with deviation 3; `step` > 0 rounds to multiples of it, which makes ties. */
static void make_logits(int vocab, uint64_t key, float step) {
    for (int i = 0; i < vocab; i++) {
        double sum = 0;
        for (uint32_t w = 0; w < 12; w++) sum += philox_word(key, (uint64_t)i, 0, w) * 0x1p-32;
        logits[i] = 3 * (float)(sum - 6);
        if (step > 0) logits[i] = step * roundf(logits[i] / step);
    }
}

static void compare_with_reference(const struct sampling *s, int vocab) {
    require_ok(sampling_distribution(s, logits, vocab, p));
    reference_distribution(s, logits, vocab, reference);
    for (int i = 0; i < vocab; i++)
        require(fabs(p[i] - reference[i]) <= 4e-6 * reference[i] + 1e-12,
                "T %g top_k %d top_p %g min_p %g: p[%d] is %g, expected %g", (double)s->temperature, s->top_k,
                (double)s->top_p, (double)s->min_p, i, (double)p[i], reference[i]);
}

START_TEST(filters_equal_brute_force)
{
    static const int vocabs[] = {1, 2, 5, 64, 1000, 3000};
    static const float temperatures[] = {1e-3f, 0.3f, 1, 1.5f, 100}, top_ps[] = {1e-6f, 0.1f, 0.5f, 0.9f, 0.999f, 1},
                       min_ps[] = {0, 0.05f, 0.5f, 0.999f}, steps[] = {0, 0.5f};
    int vocab = vocabs[_i];
    const int top_ks[] = {0, 1, 2, 7, vocab - 1, vocab, vocab + 5};
    for (int st = 0; st < 2; st++)
        for (int t = 0; t < 5; t++)
            for (int k = 0; k < 7; k++)
                for (int tp = 0; tp < 6; tp++)
                    for (int m = 0; m < 4; m++) {
                        make_logits(vocab < 1000 ? vocab : 1, (uint64_t)(t * 7 + k), steps[st]);
                        if (vocab >= 1000 && k + tp + m == 0) make_logits(vocab, (uint64_t)t, steps[st]);
                        compare_with_reference(&(struct sampling){temperatures[t], top_ps[tp], min_ps[m], top_ks[k], 1},
                                               vocab);
                    }
}
END_TEST

START_TEST(ties_keep_the_lower_ids)
{
    for (int i = 0; i < 2000; i++) logits[i] = i % 2 ? 0.0f : -0.0f;
    ck_ok(sampling_distribution(&(struct sampling){1, 1, 0, 3, 1}, logits, 2000, p));
    for (int i = 0; i < 2000; i++) require(p[i] == (i < 3 ? 1.0f / 3 : 0), "p[%d] is %g", i, (double)p[i]);
    ck_ok(sampling_distribution(&(struct sampling){1, 0.5f, 0, 0, 1}, logits, 2000, p));
    for (int i = 0; i < 2000; i++) require(p[i] == (i < 1000 ? 1.0f / 1000 : 0), "p[%d] is %g", i, (double)p[i]);
    ck_ok(sampling_distribution(&(struct sampling){0, 1, 0, 0, 1}, logits, 2000, p));
    ck_assert(p[0] == 1 && p[1] == 0);
    ck_ok(sampling_distribution(&(struct sampling){1, 1, 0.999f, 0, 1}, logits, 2000, p));
    ck_assert(p[1999] == 1.0f / 2000);
}
END_TEST

/* Of logits so close that their probabilities are equal, the greater one is kept. */
START_TEST(top_k_orders_by_logit)
{
    for (int i = 0; i < 8; i++) logits[i] = 1;
    logits[5] = nextafterf(1, 2);
    ck_ok(sampling_distribution(&(struct sampling){100, 1, 0, 1, 1}, logits, 8, p));
    for (int i = 0; i < 8; i++) ck_assert(p[i] == (i == 5));
}
END_TEST

START_TEST(temperature_0_is_one_hot_at_the_first_argmax)
{
    make_logits(1000, 3, 0);
    logits[400] = logits[700] = logits[999] = 50;
    ck_ok(sampling_distribution(&(struct sampling){0, 0.5f, 0.5f, 2, 1}, logits, 1000, p));
    for (int i = 0; i < 1000; i++) require(p[i] == (i == 400), "p[%d] is %g", i, (double)p[i]);
}
END_TEST

START_TEST(extreme_logits_and_temperatures_stay_finite)
{
    static const float temperatures[] = {1e-44f, 1e-30f, 1e-3f, 1, 100, FLT_MAX};
    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < 100; i++) logits[i] = i == 7 ? FLT_MAX : i == 8 ? 3.3e38f : -FLT_MAX;
        ck_ok(sampling_distribution(&(struct sampling){temperatures[t], 0.9f, 0.01f, 50, 1}, logits, 100, p));
        double sum = 0;
        for (int i = 0; i < 100; i++) {
            ck_assert(p[i] >= 0 && p[i] <= 1);
            sum += p[i];
        }
        ck_assert(fabs(sum - 1) < 1e-6);
        if (temperatures[t] < 1e30f) ck_assert(p[7] == 1);
    }
}
END_TEST

START_TEST(non_finite_logits_are_an_error)
{
    static const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const int vocabs[] = {1, 2, 17, 1000};
    for (int v = 0; v < 4; v++)
        for (int n = 0; n < 4; n++)
            for (int where = 0; where < 3; where++)
                for (int t = 0; t < 2; t++) {
                    int vocab = vocabs[n];
                    make_logits(vocab, 1, 0);
                    logits[where == 0 ? 0 : where == 1 ? vocab / 2 : vocab - 1] = values[v];
                    ck_assert_int_eq(sampling_distribution(&(struct sampling){(float)t, 1, 0, 0, 1}, logits, vocab, p),
                                     ERR_NUMERIC);
                }
}
END_TEST

START_TEST(parameters_out_of_range_are_named)
{
    static const struct {
        struct sampling s;
        const char *message;
    } cases[] = {
        {{-1, 1, 0, 0, 1}, "temperature is -1, expected 0 or more"},
        {{NAN, 1, 0, 0, 1}, "temperature is nan, expected 0 or more"},
        {{INFINITY, 1, 0, 0, 1}, "temperature is inf, expected 0 or more"},
        {{1, 0, 0, 0, 1}, "top_p is 0, expected above 0 and at most 1 (off)"},
        {{1, 1.5f, 0, 0, 1}, "top_p is 1.5, expected above 0 and at most 1 (off)"},
        {{1, NAN, 0, 0, 1}, "top_p is nan, expected above 0 and at most 1 (off)"},
        {{1, 1, -0.5f, 0, 1}, "min_p is -0.5, expected 0 (off) or more and below 1"},
        {{1, 1, 1, 0, 1}, "min_p is 1, expected 0 (off) or more and below 1"},
        {{1, 1, 0, -3, 1}, "top_k is -3, expected 0 (off) or more"},
        {{1, 1, 0, 0, -1}, "repetition_penalty is -1, expected 0.01 to 100 (1: off)"},
        {{1, 1, 0, 0, INFINITY}, "repetition_penalty is inf, expected 0.01 to 100 (1: off)"},
        {{1, 1, 0, 0, NAN}, "repetition_penalty is nan, expected 0.01 to 100 (1: off)"},
        {{1, 1, 0, 0, 1e-39f}, "repetition_penalty is 1e-39, expected 0.01 to 100 (1: off)"},
        {{1, 1, 0, 0, 0.0099f}, "repetition_penalty is 0.0099, expected 0.01 to 100 (1: off)"},
        {{1, 1, 0, 0, 3e38f}, "repetition_penalty is 3e+38, expected 0.01 to 100 (1: off)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(sampling_check(&cases[i].s), ERR_USAGE);
        ck_assert_str_eq(err_message(), cases[i].message);
    }
    ck_ok(sampling_check(&(struct sampling){0, 1, 0, 0, 1}));
    ck_ok(sampling_check(&(struct sampling){100, 1e-6f, 0.999f, 1 << 30, 1}));
    ck_ok(sampling_check(&(struct sampling){1, 1, 0, 0, 0}));
    ck_ok(sampling_check(&(struct sampling){1, 1, 0, 0, 0.01f}));
    ck_ok(sampling_check(&(struct sampling){1, 1, 0, 0, 100}));
}
END_TEST

/* The arithmetic that sampler.h promises to the GPU, written a second time. */
START_TEST(bits_follow_the_documented_sums)
{
    const int vocab = 2999;
    const float temperature = 0.7f, min_p = 0.01f;
    float max = -INFINITY;
    int64_t units = 0;
    make_logits(vocab, 9, 0);
    for (int i = 0; i < vocab; i++) max = fmaxf(max, logits[i]);
    for (int i = 0; i < vocab; i++) {
        float e = fmath_exp((logits[i] - max) / temperature);
        if (e >= min_p) units += llrint(ldexp((double)e, 42)); /* to nearest, ties to even */
    }
    const float sum = (float)units * 0x1p-42f;
    ck_ok(sampling_distribution(&(struct sampling){temperature, 1, min_p, 0, 1}, logits, vocab, p));
    for (int i = 0; i < vocab; i++) {
        float e = fmath_exp((logits[i] - max) / temperature);
        require(p[i] == (e >= min_p ? e / sum : 0), "p[%d] is %a", i, (double)p[i]);
    }
}
END_TEST

START_TEST(masses_in_words_are_the_sums_in_f64)
{
    uint64_t units = 0;
    struct rule_masses sum = {0, 0, 0};
    for (uint32_t bits = 0; bits <= 0x3F800000u; bits += 499) { /* 0 to 1 */
        float x = fmath_from_bits(bits);
        struct rule_masses own = {0, 0, 0};
        rule_masses_add(&own, x);
        require(rule_masses_total(&own) == rule_mass(x), "mass of %a", (double)x);
        rule_masses_add(&sum, x), units += rule_mass(x);
        if (sum.count < MASSES_MOST) continue;
        require(rule_masses_total(&sum) == units, "sum up to %a", (double)x);
        units = 0, sum = (struct rule_masses){0, 0, 0};
    }
    for (int i = 0; i < MASSES_MOST; i++) rule_masses_add(&sum, 1), units += rule_mass(1);
    ck_assert_uint_eq(rule_masses_total(&sum), units);
}
END_TEST

/* What the loops make of p and a row of q, on this CPU and as any builds it. */
static void must_be_alike(const struct vector *v, const float *of, int vocab, struct short_row row,
                          const struct vector *w, struct short_row other) {
    static float left[V_MAX], own[V_MAX];
    ck_assert(v->mass_min(of, vocab, row) == w->mass_min(of, vocab, other));
    ck_assert(v->mass_excess(0.75f, of, vocab, row) == w->mass_excess(0.75f, of, vocab, other));
    v->residual(0.75f, of, vocab, row, left);
    w->residual(0.75f, of, vocab, other, own);
    ck_assert_mem_eq(own, left, sizeof *own * (size_t)vocab);
    ck_assert_int_eq(v->race(row.q, row.n, row.ids, 5, 6, 2), w->race(other.q, other.n, other.ids, 5, 6, 2));
}

START_TEST(every_cpu_gives_the_same_bits)
{
    static const struct sampling settings[] = {
        {0, 1, 0, 0, 1}, {0.7f, 1, 0, 0, 1}, {1.5f, 0.9f, 0, 0, 1}, {1, 0.8f, 0.02f, 40, 1}};
    static float best[V_MAX], own[V_MAX], q[V_MAX];
    for (int vocab = 1; vocab <= V_MAX; vocab += vocab < 40 ? 1 : 397)
        for (int s = 0; s < 4; s++) {
            make_logits(vocab, (uint64_t)vocab, 0);
            ck_assert(distribution_of(vector_at(0), &(struct sampling){1, 1, 0, 0, 1}, logits, vocab, q));
            ck_assert(distribution_of(vector_at(0), &settings[s], logits, vocab, best));
            for (int v = 1; vector_at(v); v++) {
                const struct vector *first = vector_at(0), *other = vector_at(v);
                ck_assert(distribution_of(other, &settings[s], logits, vocab, own));
                ck_assert_mem_eq(own, best, sizeof *p * (size_t)vocab);
                const struct short_row half = {q, NULL, vocab / 2};
                must_be_alike(first, best, vocab, half, other, half);
                ck_assert_int_eq(first->race(best, vocab, NULL, 5, 6, 2), other->race(best, vocab, NULL, 5, 6, 2));
            }
        }
}
END_TEST

/* Ids in runs and alone. */
START_TEST(listed_ids_count_as_a_whole_row_with_zeros_elsewhere)
{
    static float best[V_MAX], whole[V_MAX], q[V_MAX];
    static int32_t ids[V_MAX];
    for (int vocab = 2; vocab <= V_MAX; vocab += vocab < 40 ? 1 : 397) {
        int listed = 0;
        for (int id = 0; id < vocab; id++)
            if (id % 7 == 3 || id % 50 > 20 || id == vocab - 1) ids[listed++] = id;
        make_logits(vocab, (uint64_t)vocab, 0);
        ck_ok(sampling_distribution(&(struct sampling){0.7f, 1, 0, 0, 1}, logits, vocab, best));
        ck_ok(sampling_distribution(&(struct sampling){1, 0.95f, 0, 0, 1}, logits + 1, listed, q));
        memset(whole, 0, sizeof whole);
        for (int i = 0; i < listed; i++) whole[ids[i]] = q[i];
        for (int v = 0; vector_at(v); v++)
            must_be_alike(vector_at(v), best, vocab, (struct short_row){q, ids, listed}, vector_at(0),
                          (struct short_row){whole, NULL, vocab});
    }
}
END_TEST

/* --- the race --------------------------------------------------------------------------------------------- */

/* argmax p_i / E_i, once in the f32 of the definition and once in plain double. */
static int race_f32(int vocab, uint64_t key, uint64_t position, int purpose) {
    int winner = -1;
    float best = 0;
    for (int i = 0; i < vocab; i++) {
        float rate = p[i] / rule_race_time(philox_word(key, position, purpose, (uint32_t)i));
        if (rate > best) best = rate, winner = i;
    }
    return winner;
}

static int race_double(int vocab, uint64_t key, uint64_t position, int purpose) {
    int winner = -1;
    double best = 0;
    for (int i = 0; i < vocab; i++) {
        double x = philox_word(key, position, purpose, (uint32_t)i);
        double rate = p[i] / -log1p(-(x + 0.5) * 0x1p-32);
        if (rate > best) best = rate, winner = i;
    }
    return winner;
}

START_TEST(race_equals_its_formula)
{
    static const int vocabs[] = {1, 3, 255, 256, 257, 1500};
    int draws = 0, agree = 0;
    for (int v = 0; v < 6; v++) {
        make_logits(vocabs[v], 11, 0);
        ck_ok(sampling_distribution(&(struct sampling){1.5f, 1, v % 2 ? 0.01f : 0, 0, 1}, logits, vocabs[v], p));
        for (uint64_t n = 0; n < 300; n++) {
            int purpose = (int)(n % 4), drawn = sampling_draw(p, vocabs[v], 1000 + n, n, purpose);
            int exact = race_f32(vocabs[v], 1000 + n, n, purpose);
            require(drawn == exact, "%d drawn, expected %d", drawn, exact);
            agree += drawn == race_double(vocabs[v], 1000 + n, n, purpose);
            draws++;
        }
    }
    ck_assert_msg(agree >= draws - 1, "%d of %d", agree, draws);
}
END_TEST

/* Of p around what reaches a rate with the word, as it is and of the size that no word lets reach it. */
START_TEST(what_cannot_reach_a_rate_does_not)
{
    int64_t open = 0, reached = 0, tests = 0;
    for (uint64_t x = 0; x < 0x100000000u; x += x < 100000 ? 1 : 9973)
        for (int i = -20; i <= 20; i++) {
            float rate = i % 2 ? 0x1p-5f : 0x1.234567p-17f, time = rule_race_time((uint32_t)x);
            float word_p = rate * time * (1 + 0x1p-12f * (float)i);
            bool is_open = rule_may_reach(rate, word_p, (uint32_t)x), is_reached = word_p / time >= rate;
            require(is_open || !is_reached, "p %a reaches %a with %x", (double)word_p, (double)rate, (unsigned)x);
            open += is_open, reached += is_reached, tests++;
            float small_p = rate * RULE_NO_RATE;
            require(small_p / time < rate, "p %a reaches %a with %x", (double)small_p, (double)rate, (unsigned)x);
        }
    ck_assert(reached > tests / 3 && open < tests);
}
END_TEST

/* Fixed numbers, from a Philox and a formula outside this code base. */
START_TEST(race_known_answers)
{
    static const int expected[16] = {23, 0, 21, 25, 30, 10, 30, 35, 39, 8, 26, 34, 35, 16, 37, 26};
    for (int i = 0; i < 40; i++) p[i] = 0.025f;
    for (int n = 0; n < 16; n++) ck_assert_int_eq(sampling_draw(p, 40, 42, (uint64_t)n, n % 4), expected[n]);
}
END_TEST

START_TEST(draws_follow_p)
{
    enum { CELLS = 300 };
    double exact[CELLS];
    int64_t counts[CELLS] = {0};
    make_logits(CELLS, 4, 0);
    ck_ok(sampling_distribution(&(struct sampling){1, 0.98f, 0, 0, 1}, logits, CELLS, p));
    reference_distribution(&(struct sampling){1, 0.98f, 0, 0, 1}, logits, CELLS, exact);
    for (uint64_t n = 0; n < 40000; n++) counts[sampling_draw(p, CELLS, 8, n, PHILOX_PLAIN)]++;
    struct chi_square chi = {0};
    chi_square_add(&chi, counts, exact, CELLS);
    ck_assert_msg(chi_square_p(&chi) > 1e-6, "p = %g", chi_square_p(&chi));
}
END_TEST

/* Two draws that must have nothing in common: other purpose, position or key. */
START_TEST(streams_are_independent)
{
    int64_t counts[5][16] = {{0}};
    double uniform[16];
    for (int i = 0; i < 16; i++) uniform[i] = 1.0 / 16;
    for (int i = 0; i < 4; i++) p[i] = 0.25f;
    for (uint64_t n = 0; n < 20000; n++) {
        int draw = sampling_draw(p, 4, 5, 2 * n, PHILOX_DRAFT_DRAW);
        counts[0][4 * draw + sampling_draw(p, 4, 5, 2 * n, PHILOX_RESIDUAL)]++;
        counts[1][4 * draw + sampling_draw(p, 4, 5, 2 * n, PHILOX_PLAIN)]++;
        counts[2][4 * draw + sampling_draw(p, 4, 5, 2 * n + 1, PHILOX_DRAFT_DRAW)]++;
        counts[3][4 * draw + sampling_draw(p, 4, 6, 2 * n, PHILOX_DRAFT_DRAW)]++;
        counts[4][4 * draw + (int)(4 * rule_uniform(philox_word(5, 2 * n, PHILOX_ACCEPT, 0)))]++;
    }
    for (int c = 0; c < 5; c++) {
        struct chi_square chi = {0};
        chi_square_add(&chi, counts[c], uniform, 16);
        ck_assert_msg(chi_square_p(&chi) > 1e-6, "case %d: p = %g", c, chi_square_p(&chi));
    }
}
END_TEST

START_TEST(ids_of_probability_0_are_never_drawn)
{
    memset(p, 0, sizeof p);
    ck_assert_int_eq(sampling_draw(p, 600, 1, 1, PHILOX_PLAIN), -1);
    p[599] = 1e-30f;
    for (uint64_t n = 0; n < 2000; n++) require(sampling_draw(p, 600, n, n, PHILOX_PLAIN) == 599, "key %d", (int)n);
    p[3] = 0.5f, p[300] = 0.5f;
    for (uint64_t n = 0; n < 2000; n++) {
        int drawn = sampling_draw(p, 600, n, n, PHILOX_PLAIN);
        require(drawn == 3 || drawn == 300, "%d was drawn", drawn);
    }
}
END_TEST

/* The largest and smallest Philox words give usable times. */
START_TEST(race_times_are_finite_and_positive)
{
    ck_assert(rule_race_time(0) == 0x1p-33f);
    ck_assert(rule_race_time(0xFFFFFFFFu) > 16.5f && rule_race_time(0xFFFFFFFFu) < 16.7f);
    ck_assert(rule_race_time(0xFFFFFF00u) == rule_race_time(0xFFFFFFFFu));
    ck_assert(rule_uniform(0) == 0 && rule_uniform(0xFFFFFFFFu) == 0x1.fffffep-1f);
}
END_TEST

/* --- seeds ------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

START_TEST(seeds_of_records_are_distinct_and_below_2_53)
{
    enum { SEEDS = 40000 };
    static uint64_t seeds[SEEDS];
    for (uint64_t n = 0; n < SEEDS; n++) {
        seeds[n] = seed_for_record(n % 2 ? 7 : UINT64_MAX - 7, n / 2);
        require(seeds[n] < (uint64_t)1 << 53, "record %d", (int)n);
    }
    qsort(seeds, SEEDS, sizeof *seeds, by_value);
    for (int n = 1; n < SEEDS; n++) require(seeds[n] != seeds[n - 1], "a seed comes twice");
    ck_assert(seed_for_record(1, 2) != seed_for_record(2, 1));
    ck_assert(seed_for_record(0, 0) != seed_for_record((uint64_t)1 << 53, 0));
}
END_TEST

START_TEST(random_seeds_differ_and_are_below_2_53)
{
    uint64_t a = seed_random(), b = seed_random();
    ck_assert(a != b && a < (uint64_t)1 << 53 && b < (uint64_t)1 << 53);
}
END_TEST

Suite *check_distribution(void);
Suite *check_distribution(void) {
    Suite *suite = suite_create("distribution");
    TCase *c = tcase_create("distribution");
    tcase_add_loop_test(c, filters_equal_brute_force, 0, 6);
    tcase_add_test(c, ties_keep_the_lower_ids);
    tcase_add_test(c, top_k_orders_by_logit);
    tcase_add_test(c, temperature_0_is_one_hot_at_the_first_argmax);
    tcase_add_test(c, extreme_logits_and_temperatures_stay_finite);
    tcase_add_test(c, non_finite_logits_are_an_error);
    tcase_add_test(c, parameters_out_of_range_are_named);
    tcase_add_test(c, bits_follow_the_documented_sums);
    tcase_add_test(c, masses_in_words_are_the_sums_in_f64);
    tcase_add_test(c, every_cpu_gives_the_same_bits);
    tcase_add_test(c, listed_ids_count_as_a_whole_row_with_zeros_elsewhere);
    tcase_add_test(c, race_equals_its_formula);
    tcase_add_test(c, what_cannot_reach_a_rate_does_not);
    tcase_add_test(c, race_known_answers);
    tcase_add_test(c, draws_follow_p);
    tcase_add_test(c, streams_are_independent);
    tcase_add_test(c, ids_of_probability_0_are_never_drawn);
    tcase_add_test(c, race_times_are_finite_and_positive);
    tcase_add_test(c, seeds_of_records_are_distinct_and_below_2_53);
    tcase_add_test(c, random_seeds_differ_and_are_below_2_53);
    suite_add_tcase(suite, c);
    return suite;
}
