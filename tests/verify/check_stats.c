/* Acceptance figures, worked by hand. */
#include <math.h>

#include "base/json.h"
#include "tests/support/support.h"
#include "verify/stats.h"

/* The sums of expectations are multiples of the overlap, so that they cannot be taken for each other. */
static struct round_record record(int k, int accepted, int rejected, int emitted, float overlap) {
    return (struct round_record){.live = 1,
                                 .k = k,
                                 .accepted = accepted,
                                 .rejected = rejected,
                                 .emitted = emitted,
                                 .evaluated = accepted + rejected,
                                 .overlap_sum = overlap,
                                 .coupled_sum = overlap / 2,
                                 .expected_token = 2 * overlap,
                                 .expected_block = 3 * overlap};
}

/* K = 3:  all accepted and a bonus (4 tokens); one accepted, one rejected (2); rejected at once (1); an end id as the
 * second accepted token (2, neither rejection nor bonus); a row past the draft's limit (1 plain token). */
static struct acceptance five_rounds(void) {
    struct acceptance a = {0};
    const struct round_record rounds[] = {record(3, 3, 0, 4, 2.5f), record(3, 1, 1, 2, 1.25f),
                                          record(3, 0, 1, 1, 0.25f), record(3, 2, 0, 2, 2.0f), record(0, 0, 0, 1, 0)};
    for (int i = 0; i < 5; i++) acceptance_add(&a, &rounds[i]);
    return a;
}

START_TEST(sums_of_five_rounds)
{
    struct acceptance a = five_rounds();
    ck_assert(a.rounds == 4 && a.plain_rounds == 1);
    ck_assert(a.drafted == 12 && a.accepted == 6 && a.rejected == 2 && a.evaluated == 8);
    ck_assert(a.emitted == 10 && a.cut == 0 && a.overlap_sum == 6);
    ck_assert(a.coupled_sum == 3 && a.expected_token == 12 && a.expected_block == 18);
    /* emitted = accepted + rounds, less the round that an end id cut short */
    ck_assert(a.emitted == a.accepted + a.rounds + a.plain_rounds - 1);
    static const int64_t histogram[] = {1, 1, 1, 1}, offered[] = {4, 3, 1}, hits[] = {3, 2, 1};
    ck_assert_mem_eq(a.histogram, histogram, sizeof histogram);
    ck_assert_mem_eq(a.offered, offered, sizeof offered);
    ck_assert_mem_eq(a.hits, hits, sizeof hits);
    ck_assert(a.histogram[4] == 0 && a.offered[3] == 0 && a.hits[3] == 0);
}
END_TEST

START_TEST(figures_of_five_rounds)
{
    struct acceptance a = five_rounds();
    ck_assert(acceptance_alpha(&a) == 0.75);                 /* 6 / (6 + 2) */
    ck_assert(acceptance_alpha_tv(&a) == 0.75);              /* 6 / 8 */
    ck_assert(acceptance_alpha_coupled(&a) == 0.375);        /* 3 / 8 */
    ck_assert(acceptance_expected(&a, ACCEPT_TOKEN) == 3);   /* 12 / 4 */
    ck_assert(acceptance_expected(&a, ACCEPT_BLOCK) == 4.5); /* 18 / 4 */
    ck_assert(isnan(acceptance_expected(&a, ACCEPT_COUPLED)));
    ck_assert(acceptance_draft_rate(&a) == 0.5);  /* 6 / 12 */
    ck_assert(acceptance_mean_length(&a) == 2.5); /* 1 + 6 / 4 */
    ck_assert(acceptance_position_rate(&a, 0) == 0.75);
    ck_assert(acceptance_position_rate(&a, 1) == 0.5);
    ck_assert(acceptance_position_rate(&a, 2) == 0.25);
}
END_TEST

START_TEST(rows_that_were_not_live_do_not_count)
{
    struct acceptance a = five_rounds(), before = a;
    struct round_record r = record(3, 2, 1, 3, 1);
    r.live = 0;
    acceptance_add(&a, &r);
    ck_assert_mem_eq(&a, &before, sizeof a);
}
END_TEST

START_TEST(a_failed_round_counts_as_one_without_tokens)
{
    struct acceptance a = {0};
    struct round_record r = record(3, 0, 0, 0, 0);
    r.status = SLOT_ERROR;
    acceptance_add(&a, &r);
    ck_assert(a.rounds == 1 && a.drafted == 3 && a.emitted == 0 && a.histogram[0] == 1 && a.offered[0] == 0);
    ck_assert(isnan(acceptance_alpha(&a)) && acceptance_mean_length(&a) == 1);
}
END_TEST

START_TEST(cut_tokens_leave_emitted_and_nothing_else)
{
    struct acceptance a = five_rounds(), before = a;
    acceptance_cut(&a, 3);
    ck_assert(a.emitted == 7 && a.cut == 3);
    ck_assert(a.accepted == before.accepted && a.rounds == before.rounds && a.drafted == before.drafted);
    ck_assert(acceptance_alpha(&a) == acceptance_alpha(&before));
}
END_TEST

START_TEST(merge_adds_every_sum)
{
    struct acceptance a = five_rounds(), b = five_rounds();
    struct round_record longest = record(K_MAX, K_MAX, 0, K_MAX + 1, K_MAX);
    acceptance_add(&b, &longest);
    acceptance_cut(&b, 2);
    acceptance_merge(&a, &b);
    ck_assert(a.rounds == 9 && a.plain_rounds == 2 && a.drafted == 24 + K_MAX && a.accepted == 12 + K_MAX);
    ck_assert(a.rejected == 4 && a.evaluated == 16 + K_MAX && a.overlap_sum == 12 + K_MAX);
    ck_assert(a.coupled_sum == 0.5 * a.overlap_sum && a.expected_token == 2 * a.overlap_sum);
    ck_assert(a.expected_block == 3 * a.overlap_sum);
    ck_assert(a.emitted == 20 + K_MAX + 1 - 2 && a.cut == 2);
    ck_assert(a.histogram[1] == 2 && a.histogram[K_MAX] == 1);
    ck_assert(a.offered[0] == 9 && a.offered[K_MAX - 1] == 1 && a.hits[1] == 5 && a.hits[K_MAX - 1] == 1);
    int64_t sum = 0;
    for (int i = 0; i <= K_MAX; i++) sum += a.histogram[i];
    ck_assert(sum == a.rounds);
}
END_TEST

START_TEST(predicted_length_of_a_constant_alpha)
{
    ck_assert(fabs(acceptance_predicted_length(0.8, 5) - (1 - pow(0.8, 6)) / 0.2) < 1e-12);
    ck_assert(acceptance_predicted_length(1, 5) == 6);
    ck_assert(acceptance_predicted_length(0, 5) == 1);
    ck_assert(acceptance_predicted_length(0.5, 0) == 1);
    /* At alpha 0.8 and K = 5 the draft acceptance rate is only 0.54. */
    ck_assert(fabs((acceptance_predicted_length(0.8, 5) - 1) / 5 - 0.54) < 0.005);
}
END_TEST

static void expect_json(const struct acceptance *a, int k, enum accept_rule rule, const char *expected) {
    struct buf written = {0};
    cJSON *object;
    buf_putc(&written, '{');
    acceptance_put(&written, a, k, rule);
    buf_putc(&written, '}');
    ck_ok(json_parse(&object, buf_text(&written), written.len));
    char *text = cJSON_PrintUnformatted(object);
    ck_assert_str_eq(text, expected);
    cJSON_free(text);
    cJSON_Delete(object);
    buf_free(&written);
}

START_TEST(report_has_the_documented_members)
{
    struct acceptance a = five_rounds();
    acceptance_cut(&a, 1);
    expect_json(&a, 3, ACCEPT_BLOCK,
                "{\"accept\":\"block\",\"k\":3,\"rounds\":4,\"plain_rounds\":1,\"drafted\":12,\"accepted\":6,"
                "\"rejected\":2,\"emitted\":9,"
                "\"cut\":1,\"alpha\":0.75,\"alpha_tv\":0.75,\"alpha_coupled\":0.375,\"expected_token\":3,\"expected_"
                "block\":4.5,\"draft_acceptance_rate\":0.5,"
                "\"mean_acceptance_length\":2.5,\"acceptance_histogram\":[1,1,1,1],"
                "\"per_position_acceptance_rate\":[0.75,0.5,0.25]}");
}
END_TEST

START_TEST(report_is_null_where_nothing_was_drafted)
{
    struct acceptance a = {0};
    struct round_record plain = record(0, 0, 0, 1, 0);
    acceptance_add(&a, &plain);
    expect_json(&a, 0, ACCEPT_TOKEN,
                "{\"accept\":\"token\",\"k\":0,\"rounds\":0,\"plain_rounds\":1,\"drafted\":0,\"accepted\":0,"
                "\"rejected\":0,\"emitted\":1,"
                "\"cut\":0,\"alpha\":null,\"alpha_tv\":null,\"alpha_coupled\":null,\"expected_token\":null,\"expected_"
                "block\":null,\"draft_acceptance_rate\":null,"
                "\"mean_acceptance_length\":null,\"acceptance_histogram\":[0],\"per_position_acceptance_rate\":[]}");
    expect_json(&(struct acceptance){0}, 1, ACCEPT_COUPLED,
                "{\"accept\":\"coupled\",\"k\":1,\"rounds\":0,\"plain_rounds\":0,\"drafted\":0,\"accepted\":0,"
                "\"rejected\":0,\"emitted\":0,"
                "\"cut\":0,\"alpha\":null,\"alpha_tv\":null,\"alpha_coupled\":null,\"expected_token\":null,\"expected_"
                "block\":null,\"draft_acceptance_rate\":null,"
                "\"mean_acceptance_length\":null,\"acceptance_histogram\":[0,0],"
                "\"per_position_acceptance_rate\":[null]}");
}
END_TEST

Suite *check_stats(void);
Suite *check_stats(void) {
    Suite *suite = suite_create("stats");
    TCase *c = tcase_create("stats");
    tcase_add_test(c, sums_of_five_rounds);
    tcase_add_test(c, figures_of_five_rounds);
    tcase_add_test(c, rows_that_were_not_live_do_not_count);
    tcase_add_test(c, a_failed_round_counts_as_one_without_tokens);
    tcase_add_test(c, cut_tokens_leave_emitted_and_nothing_else);
    tcase_add_test(c, merge_adds_every_sum);
    tcase_add_test(c, predicted_length_of_a_constant_alpha);
    tcase_add_test(c, report_has_the_documented_members);
    tcase_add_test(c, report_is_null_where_nothing_was_drafted);
    suite_add_tcase(suite, c);
    return suite;
}
