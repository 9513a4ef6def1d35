/* The rules of acceptance beside the default one: what they promise about texts, ends, errors and statistics. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/engine_support.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"

enum { RULES = 3 };

static const struct sampling plain = {1, 1, 0, 0, 1}, greedy = {0, 1, 0, 0, 1};

/* --- texts ------------------------------------------------------------------------------------------------------ */

enum { WIDE = 40, LENGTH = 60 };

/* A sequence among others that differ: its place, the round's K (below 0: 0..-k in turn), what the draft is like. */
struct setting {
    enum accept_rule rule;
    int k, max_batch, slot, row, vocab_draft, draft_positions;
    bool is_other_draft;
};

/* A draft of little use. */
static void other_draft(void *user, int token, int position, float *logits) {
    struct counting *m = user;
    counting_draft(m, token + 7, position + 1, logits);
}

static void generate(const struct setting *s, struct sampling sampling, int32_t *text) {
    int k_max = abs(s->k), vocab_draft = s->vocab_draft ? s->vocab_draft : WIDE;
    struct round_state sizes = {.slots = s->max_batch + 1,
                                .max_batch = s->max_batch,
                                .k_max = k_max,
                                .vocab_target = WIDE,
                                .vocab_draft = k_max > 0 ? vocab_draft : 0,
                                .draft_positions = s->draft_positions ? s->draft_positions : 1000,
                                .rule = s->rule};
    struct counting models = {WIDE, vocab_draft, -1, false};
    struct rig rig;
    rig_open(&rig, &sizes, NULL, 1);
    for (int slot = 1; slot <= s->max_batch; slot++)
        rig_start(&rig, slot, 3 + slot, slot, 200, plain, 900 + (uint64_t)slot);
    rig_start(&rig, s->slot, 5, 17, LENGTH, sampling, 123);
    for (int r = 0; r < s->max_batch; r++)
        rig.b.row_slot[r] = 1 + (r - s->row + s->slot - 1 + s->max_batch) % s->max_batch;
    for (int done = 0, round = 0; done < LENGTH; round++) {
        int k = s->k < 0 ? round % (k_max + 1) : s->k;
        if (k > 0) rig_draft(&rig, s->max_batch, k, s->is_other_draft ? other_draft : counting_draft, &models);
        rig_score(&rig, s->max_batch, k, counting_target, &models);
        rig_accept(&rig, s->max_batch, k);
        const struct round_record *record = &rig.b.records[s->row];
        require(record->slot == s->slot && record->emitted > 0, "slot %d", record->slot);
        memcpy(text + done, record->tokens, sizeof *text * (size_t)record->emitted);
        done += record->emitted;
    }
    rig_close(&rig);
}

static void must_give(const int32_t *expected, struct setting s, struct sampling sampling) {
    int32_t text[LENGTH + K_MAX + 1];
    generate(&s, sampling, text);
    ck_assert_msg(memcmp(text, expected, sizeof *expected * LENGTH) == 0, "another text at K %d, batch %d", s.k,
                  s.max_batch);
}

START_TEST(coupled_text_is_that_of_plain_draws_for_every_k_and_draft)
{
    int32_t expected[LENGTH + K_MAX + 1];
    static const struct sampling cold = {0.4f, 0.9f, 0.02f, 12, 1};
    for (int i = 0; i < 2; i++) {
        struct sampling sampling = i == 0 ? plain : cold;
        generate(&(struct setting){ACCEPT_TOKEN, 0, 1, 1, 0, 0, 0, false}, sampling, expected);
        for (int k = 0; k <= 8; k++) {
            must_give(expected, (struct setting){ACCEPT_COUPLED, k, 1, 1, 0, 0, 0, false}, sampling);
            must_give(expected, (struct setting){ACCEPT_COUPLED, k, 4, 3, 1, 0, 0, true}, sampling);
        }
        must_give(expected, (struct setting){ACCEPT_COUPLED, -5, 2, 1, 1, 0, 0, false}, sampling);
        must_give(expected, (struct setting){ACCEPT_COUPLED, 4, 1, 1, 0, 25, 0, false}, sampling);
        must_give(expected, (struct setting){ACCEPT_COUPLED, 4, 1, 1, 0, WIDE + 9, 0, false}, sampling);
        must_give(expected, (struct setting){ACCEPT_COUPLED, 3, 2, 2, 0, 0, 30, false}, sampling); /* a limit midway */
    }
}
END_TEST

START_TEST(block_text_depends_on_the_seed_and_not_on_the_place)
{
    int32_t expected[LENGTH + K_MAX + 1], token[LENGTH + K_MAX + 1];
    generate(&(struct setting){ACCEPT_BLOCK, 4, 1, 1, 0, 0, 0, false}, plain, expected);
    static const int places[][3] = {{2, 1, 1}, {2, 2, 0}, {8, 5, 2}, {8, 8, 7}};
    for (int i = 0; i < 4; i++)
        must_give(expected, (struct setting){ACCEPT_BLOCK, 4, places[i][0], places[i][1], places[i][2], 0, 0, false},
                  plain);
    generate(&(struct setting){ACCEPT_TOKEN, 4, 1, 1, 0, 0, 0, false}, plain, token);
    ck_assert(memcmp(token, expected, sizeof *token * LENGTH) != 0);
    /* Without a draft there is one way to draw. */
    generate(&(struct setting){ACCEPT_TOKEN, 0, 1, 1, 0, 0, 0, false}, plain, token);
    must_give(token, (struct setting){ACCEPT_BLOCK, 0, 1, 1, 0, 0, 0, false}, plain);
    must_give(token, (struct setting){ACCEPT_BLOCK, 4, 1, 1, 0, 0, 1, false}, plain);
}
END_TEST

START_TEST(greedy_text_is_the_same_under_every_rule)
{
    int32_t expected[LENGTH + K_MAX + 1];
    generate(&(struct setting){ACCEPT_TOKEN, 0, 1, 1, 0, 0, 0, false}, greedy, expected);
    for (int rule = 0; rule < RULES; rule++)
        for (int k = 0; k <= 8; k++) {
            must_give(expected, (struct setting){(enum accept_rule)rule, k, 1, 1, 0, 0, 0, false}, greedy);
            must_give(expected, (struct setting){(enum accept_rule)rule, k, 3, 2, 2, 30, 0, true}, greedy);
        }
}
END_TEST

/* A draft equal to the target: nothing is left of p - q, S_i / (S_i + 1 - c_i) is 0 / 0, and everything is kept. */
START_TEST(a_draft_equal_to_the_target_is_kept_whole_under_every_rule)
{
    for (int rule = 0; rule < RULES; rule++) {
        struct round_state sizes = {.slots = 2,
                                    .max_batch = 1,
                                    .k_max = 8,
                                    .vocab_target = WIDE,
                                    .vocab_draft = WIDE,
                                    .draft_positions = 2000,
                                    .rule = (enum accept_rule)rule};
        struct counting models = {WIDE, WIDE, -1, false};
        struct rig rig;
        rig_open(&rig, &sizes, NULL, 1);
        rig.b.row_slot[0] = 1;
        rig_start(&rig, 1, 5, 3, 1000, plain, 8);
        for (int round = 0; round < 100; round++) {
            rig_draft(&rig, 1, 8, counting_target, &models);
            rig_score(&rig, 1, 8, counting_target, &models);
            rig_accept(&rig, 1, 8);
            const struct round_record *r = rig.b.records;
            ck_assert(r->accepted == 8 && r->emitted == 9 && r->rejected == 0);
            ck_assert(r->expected_token == 8 && r->expected_block == 8);
        }
        rig_close(&rig);
    }
}
END_TEST

/* --- ends and errors ---------------------------------------------------------------------------------------------- */

enum { K = 4 };

static void open_counting(struct rig *rig, struct counting *models, enum accept_rule rule, const int32_t *end_id,
                          int disagree) {
    struct round_state sizes = {.slots = 2,
                                .max_batch = 1,
                                .k_max = K,
                                .vocab_target = WIDE,
                                .vocab_draft = WIDE,
                                .draft_positions = 1000,
                                .end_count = end_id != NULL,
                                .rule = rule};
    *models = (struct counting){WIDE, WIDE, disagree, true};
    rig_open(rig, &sizes, end_id, 1);
    rig->b.row_slot[0] = 1;
}

/* Greedy models that count from 10, agreeing up to `disagree`: the round's record under a rule. */
static struct round_record counted(enum accept_rule rule, int32_t end_id, int disagree, int room) {
    struct rig rig;
    struct counting models;
    open_counting(&rig, &models, rule, &end_id, disagree);
    rig_start(&rig, 1, 5, 10, room, greedy, 1);
    rig_draft(&rig, 1, K, counting_draft, &models);
    rig_score(&rig, 1, K, counting_target, &models);
    rig_accept(&rig, 1, K);
    struct round_record r = rig.b.records[0];
    ck_assert(rig.b.slot[1].status == r.status && rig.b.slot[1].length == r.length);
    rig_close(&rig);
    return r;
}

START_TEST(greedy_rounds_end_alike_under_every_rule)
{
    for (int32_t end_id = 10; end_id <= 10 + K + 2; end_id++)
        for (int disagree = 9; disagree <= 10 + K; disagree++)
            for (int room = 1; room <= K + 2; room++) {
                struct round_record expected = counted(ACCEPT_TOKEN, end_id, disagree, room);
                for (int rule = 1; rule < RULES; rule++) {
                    struct round_record r = counted((enum accept_rule)rule, end_id, disagree, room);
                    require(memcmp(&r, &expected, sizeof r) == 0, "%s, end %d, disagreement after %d, room %d",
                            accept_rule_name((enum accept_rule)rule), end_id, disagree, room);
                }
            }
}
END_TEST

/* One bad value in a target row (draft row: target_row < 0) of a round of which `kept` tokens can be kept. */
static struct round_record with_bad_row(enum accept_rule rule, int kept, int32_t end_id, int target_row,
                                        int draft_row) {
    struct rig rig;
    struct counting models;
    open_counting(&rig, &models, rule, &end_id, 10 + kept);
    rig_start(&rig, 1, 5, 10, 100, greedy, 1);
    rig_load_pending(&rig, 1, K);
    for (int i = 0; i < K; i++) {
        counting_draft(&models, rig.b.draft_tokens[i == 0], 0, rig.b.draft_logits);
        if (i == draft_row) rig.b.draft_logits[33] = NAN;
        rig_draw(&rig, 1, i);
    }
    rig_score(&rig, 1, K, counting_target, &models);
    if (target_row >= 0) rig.b.target_logits[target_row * WIDE + 33] = INFINITY;
    rig_accept(&rig, 1, K);
    struct round_record r = rig.b.records[0];
    if (r.status == SLOT_ERROR) {
        ck_assert(r.live == 1 && r.emitted == 0 && r.accepted == 0 && r.evaluated == 0 && r.length == 5);
        ck_assert(r.overlap_sum == 0 && r.coupled_sum == 0 && r.expected_token == 0 && r.expected_block == 0);
    }
    rig_close(&rig);
    return r;
}

START_TEST(rows_that_decide_a_block_must_be_finite)
{
    for (int row = 0; row <= K;
         row++) { /* nothing is kept: the rows of p_1..p_K decide that, p_{K+1} is not asked for */
        ck_assert_int_eq(with_bad_row(ACCEPT_BLOCK, 0, 39, row, -1).status, row < K ? SLOT_ERROR : SLOT_LIVE);
        ck_assert_int_eq(with_bad_row(ACCEPT_BLOCK, K, 39, row, -1).status, SLOT_ERROR); /* all are kept: p_{K+1} too */
        ck_assert_int_eq(with_bad_row(ACCEPT_COUPLED, 1, 39, row, -1).status, row <= 1 ? SLOT_ERROR : SLOT_LIVE);
    }
    for (int rule = 0; rule < RULES; rule++)
        for (int row = 0; row < K; row++)
            ck_assert_int_eq(with_bad_row((enum accept_rule)rule, 0, 39, -1, row).status, SLOT_ERROR);
    for (int row = 2; row <= K; row++) { /* d_2 is an end id: what was drafted after it decides nothing */
        struct round_record r = with_bad_row(ACCEPT_BLOCK, K, 12, row, -1);
        ck_assert(r.status == SLOT_END && r.emitted == 2 && r.accepted == 2 && r.rejected == 0);
    }
    ck_assert_int_eq(with_bad_row(ACCEPT_BLOCK, K, 12, 1, -1).status, SLOT_ERROR);
}
END_TEST

START_TEST(no_rule_accepts_an_id_that_no_draft_can_draw)
{
    static const int bad[] = {-1, -1000000, WIDE, 1 << 30};
    for (int rule = 0; rule < RULES; rule++)
        for (int i = 0; i < 4; i++) {
            struct rig rig;
            struct counting models;
            open_counting(&rig, &models, (enum accept_rule)rule, NULL, -1);
            models.sharp = false;
            rig_start(&rig, 1, 5, 3, 100, plain, 4);
            rig_draft(&rig, 1, K, counting_draft, &models);
            rig.b.drafted[K] = bad[i];
            rig_score(&rig, 1, K, counting_target, &models);
            rig_accept(&rig, 1, K);
            const struct round_record *r = rig.b.records;
            ck_assert(r->emitted == 1 && r->accepted == 0 && r->rejected == 1 && r->expected_block == 0);
            ck_assert(r->tokens[0] >= 0 && r->tokens[0] < WIDE);
            rig_close(&rig);
        }
}
END_TEST

/* --- the engine ----------------------------------------------------------------------------------------------------- */

static const char *const prompts[] = {"Once upon a time", "Tom had a red ball.", "The little frog", "One day"};
enum { PROMPTS = sizeof prompts / sizeof *prompts, TOKENS = SANITIZED ? 15 : 40 };

static void answer_prompts(const struct engine_options *options, float temperature, struct answer *answers) {
    struct engine *e = must_open(options);
    struct request requests[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) {
        requests[i] = text_request(e, prompts[i], TOKENS + 3 * i);
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = 50 + (uint64_t)i;
    }
    run_requests(e, requests, PROMPTS, answers);
    free_requests(requests, PROMPTS);
    engine_destroy(e);
}

static void must_equal_all(struct answer *got, const struct answer *expected, const char *what) {
    for (int i = 0; i < PROMPTS; i++) must_equal(&got[i], &expected[i], what);
    free_answers(got, PROMPTS);
}

START_TEST(coupled_answers_depend_on_the_seed_alone)
{
    struct pair pairs[PAIRS_MAX];
    struct answer expected[PROMPTS], got[PROMPTS];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 0, 1);
    answer_prompts(&options, 0.9f, expected);
    for (int k = 0; k <= 8; k++) {
        options = pair_options(&pairs[0], k, 1 + k % 3);
        options.accept = ACCEPT_COUPLED;
        answer_prompts(&options, 0.9f, got);
        must_equal_all(got, expected, "the draft of the pair");
    }
    options = pair_options(&pairs[0], 3, 2);
    options.accept = ACCEPT_COUPLED, options.draft = options.target;
    answer_prompts(&options, 0.9f, got);
    for (int i = 0; i < PROMPTS; i++)
        ck_assert(test_device_is_host() ? acceptance_alpha(&got[i].stats) == 1 : acceptance_alpha(&got[i].stats) > 0.9);
    must_equal_all(got, expected, "the target as its own draft");
    free_answers(expected, PROMPTS);
}
END_TEST

START_TEST(greedy_answers_are_those_of_plain_decoding)
{
    struct pair pairs[PAIRS_MAX];
    struct answer expected[PROMPTS], got[PROMPTS];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 0, 1);
    answer_prompts(&options, 0, expected);
    for (int k = 1; k <= 5; k += 2)
        for (int rule = 1; rule < RULES; rule++) {
            options = pair_options(&pairs[0], k, 3);
            options.accept = (enum accept_rule)rule;
            answer_prompts(&options, 0, got);
            must_equal_all(got, expected, accept_rule_name(options.accept));
        }
    free_answers(expected, PROMPTS);
}
END_TEST

/* Sums of the statistics over sampled answers with ends and limits. */
START_TEST(figures_of_every_rule_add_up)
{
    struct pair pairs[PAIRS_MAX];
    struct answer answers[PROMPTS];
    test_pairs(pairs);
    for (int rule = 0; rule < RULES; rule++) {
        struct engine_options options = pair_options(&pairs[0], 4, 2);
        options.accept = (enum accept_rule)rule;
        answer_prompts(&options, 1, answers);
        for (int i = 0; i < PROMPTS; i++) {
            const struct acceptance *a = &answers[i].stats;
            int64_t sum = 0, accepted = 0;
            for (int j = 0; j <= 4; j++) sum += a->histogram[j], accepted += j * a->histogram[j];
            ck_assert(sum == a->rounds && accepted == a->accepted && a->drafted == 4 * a->rounds);
            ck_assert(a->evaluated == a->accepted + a->rejected && a->offered[0] <= a->rounds);
            int64_t last_missing = a->accepted + a->rounds + a->plain_rounds - a->emitted;
            ck_assert(last_missing == 0 || last_missing == 1); /* an accepted end id, or the limit */
            ck_assert(a->expected_block >= a->expected_token && a->expected_token > 0);
        }
        free_answers(answers, PROMPTS);
    }
}
END_TEST

DEVICE_SUITE(check_accept_texts);
Suite *check_accept_texts(void) {
    Suite *suite = suite_create("accept_texts");
    TCase *c = tcase_create("accept_texts");
    tcase_add_test(c, coupled_text_is_that_of_plain_draws_for_every_k_and_draft);
    tcase_add_test(c, block_text_depends_on_the_seed_and_not_on_the_place);
    tcase_add_test(c, greedy_text_is_the_same_under_every_rule);
    tcase_add_test(c, a_draft_equal_to_the_target_is_kept_whole_under_every_rule);
    tcase_add_test(c, greedy_rounds_end_alike_under_every_rule);
    tcase_add_test(c, rows_that_decide_a_block_must_be_finite);
    tcase_add_test(c, no_rule_accepts_an_id_that_no_draft_can_draw);
    tcase_add_test(c, coupled_answers_depend_on_the_seed_alone);
    tcase_add_test(c, greedy_answers_are_those_of_plain_decoding);
    tcase_add_test(c, figures_of_every_rule_add_up);
    suite_add_tcase(suite, c);
    return suite;
}
