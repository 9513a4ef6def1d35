/* The repetition penalty and log probabilities: what they do to rows, and that speculation changes neither; on any device. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "sampler/penalty.h"
#include "tests/support/engine_support.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"

/* --- rows ------------------------------------------------------------------------------------------------------- */

enum { V = 77, V_DRAFT = 70, K = 4, ROWS = 3 };
static const int32_t drafted[K] = {12, 40, 12, 76}; /* one comes twice, one is in `seen`, one the draft's map lacks */

static bool is_seen_first(int id) {
    return id % 5 == 0 || id == 76;
}

static float logit_at(int row, int id) {
    return (float)(philox_word(9, (uint64_t)row, 0, (uint32_t)id) % 2001) / 100 - 10;
}

/* Rows 0 and 1 are live, the first of them penalised; row 2 is padding. */
static void open_rows(struct rig *rig, bool is_cut) {
    int32_t ids[V];
    struct round_state sizes = {.slots = 4,
                                .max_batch = ROWS,
                                .k_max = K,
                                .vocab_target = V,
                                .vocab_draft = is_cut ? 0 : V_DRAFT,
                                .draft_is_cut = is_cut,
                                .draft_positions = 1000};
    for (int id = 0; is_cut && id < V_DRAFT; id++) /* without 40 */
        if (id % 3 != 1) ids[sizes.vocab_draft++] = id;
    struct sampling plain = {.temperature = 1, .top_p = 1}, penalised = plain;
    penalised.repetition_penalty = 1.5f;
    rig_open(rig, &sizes, NULL, 1);
    if (is_cut) rig_cut_draft(rig, ids);
    rig_start(rig, 3, 5, 0, 100, penalised, 1);
    rig_start(rig, 1, 5, 0, 100, plain, 2);
    rig->b.row_slot[0] = 3, rig->b.row_slot[1] = 1, rig->b.row_slot[2] = 0;
    rig->b.penalises = rig->there.penalises = true;
    for (int slot = 0; slot < 4; slot++) {
        for (int id = 0; id < V; id++)
            if (is_seen_first(id)) rig->b.seen[slot * rig->b.seen_words + id / 32] |= 1u << id % 32;
        memcpy(rig->b.drafted + slot * K, drafted, sizeof drafted);
        rig->b.offered[slot] = 3;
    }
    for (int i = 0; i < ROWS * (K + 1); i++)
        for (int id = 0; id < V; id++) rig->b.target_logits[i * V + id] = logit_at(i, id);
    for (int i = 0; i < ROWS; i++)
        for (int at = 0; at < sizes.vocab_draft; at++)
            rig->b.draft_logits[i * sizes.vocab_draft + at] = logit_at(i, round_draft_id(&rig->b, at));
}

/* Of ids [0, vocab), or of `ids`. */
static void expect_row(const float *logits, int row, int vocab, const int32_t *ids, int drafted_before,
                       bool is_penalised) {
    for (int at = 0; at < vocab; at++) {
        const int id = ids ? ids[at] : at;
        bool has = is_seen_first(id);
        for (int j = 0; j < drafted_before; j++) has |= drafted[j] == id;
        float l = logit_at(row, id), expected = !has || !is_penalised ? l : l > 0 ? l / 1.5f : l * 1.5f;
        require(logits[at] == expected, "row %d, id %d: %g for %g, expected %g", row, id, (double)logits[at], (double)l,
                (double)expected);
    }
}

/* Rows past the 3 tokens that a row was offered are looked at by nobody, so they stay. */
START_TEST(each_row_is_penalised_once_by_what_stands_before_it)
{
    struct rig rig;
    open_rows(&rig, false);
    rig_send(&rig);
    ck_ok(sampler_penalise(rig.stream, &(struct penalise){rig.there, .batch = ROWS, .k = K}));
    rig_fetch(&rig);
    for (int i = 0; i < ROWS * (K + 1); i++) expect_row(rig.b.target_logits + i * V, i, V, NULL, i % (K + 1), i < K);
    rig_close(&rig);
}
END_TEST

/* Loop index: the draft's step; then again for a draft that is cut to some ids. */
START_TEST(each_step_of_the_draft_is_penalised_by_the_steps_before_it)
{
    struct rig rig;
    open_rows(&rig, _i >= K);
    rig_send(&rig);
    ck_ok(
        sampler_penalise(rig.stream, &(struct penalise){rig.there, .batch = ROWS, .index = _i % K, .of_draft = true}));
    rig_fetch(&rig);
    const int n = rig.b.vocab_draft;
    for (int i = 0; i < ROWS; i++) expect_row(rig.b.draft_logits + i * n, i, n, rig.b.draft_ids, _i % K, i == 0);
    rig_close(&rig);
}
END_TEST

/* Loop index: the least penalty, or the greatest. */
START_TEST(a_finite_logit_stays_finite_and_others_stay_what_they_are)
{
    static const float logits[] = {FLT_MAX, -FLT_MAX, 1e37f, -1e37f, 1e-45f, -1e-45f, 0, INFINITY, -INFINITY, NAN};
    enum { LOGITS = sizeof logits / sizeof *logits };
    struct rig rig;
    open_rows(&rig, false);
    rig.b.slot[3].sampling.repetition_penalty = _i == 0 ? PENALTY_MIN : PENALTY_MAX;
    for (int id = 0; id < V; id++) rig.b.target_logits[id] = logits[id / 5 % LOGITS];
    rig_send(&rig);
    ck_ok(sampler_penalise(rig.stream, &(struct penalise){rig.there, .batch = ROWS, .k = K}));
    rig_fetch(&rig);
    for (int id = 0; id < V; id++) {
        const float was = logits[id / 5 % LOGITS], is = rig.b.target_logits[id];
        require(!isfinite(was) || isfinite(is), "id %d: %g for %g", id, (double)is, (double)was);
        require(isfinite(was) || is == was || (isnan(was) && isnan(is)), "id %d: %g for %g", id, (double)is,
                (double)was);
        require(!(is * was < 0), "id %d: %g for %g", id, (double)is, (double)was);
    }
    rig_close(&rig);
}
END_TEST

START_TEST(emitted_tokens_join_those_that_were_seen)
{
    struct rig rig;
    open_rows(&rig, false);
    rig.b.records[0] = (struct round_record){.slot = 3, .live = 1, .emitted = 2, .tokens = {33, 33, 34}};
    rig.b.records[1] = (struct round_record){.slot = 1, .live = 1, .emitted = 3, .tokens = {1, 32, 64}};
    rig_send(&rig);
    ck_ok(sampler_mark_seen(rig.stream, &(struct mark_seen){rig.there, ROWS}));
    rig_fetch(&rig);
    for (int slot = 0; slot < 4; slot++)
        for (int id = 0; id < V; id++) {
            bool joined = (slot == 3 && id == 33) || (slot == 1 && (id == 1 || id == 32 || id == 64));
            bool has = rig.b.seen[slot * rig.b.seen_words + id / 32] >> id % 32 & 1;
            ck_assert_msg(has == (joined || is_seen_first(id)), "slot %d, id %d", slot, id);
        }
    rig_close(&rig);
}
END_TEST

START_TEST(log_probabilities_are_those_of_the_softmax)
{
    struct rig rig;
    open_rows(&rig, false);
    rig.b.records[0] = (struct round_record){.slot = 3, .live = 1, .emitted = 3, .tokens = {33, 2, 34}};
    rig.b.records[1] = (struct round_record){.slot = 1, .live = 1, .emitted = 1, .tokens = {76}};
    rig_send(&rig);
    struct verify_accept op = {rig.there, rig.sampler, rig.verify, ROWS, K};
    ck_ok(verify_logprobs(rig.stream, &op));
    rig_fetch(&rig);
    for (int row = 0; row < 2; row++)
        for (int j = 0; j < rig.b.records[row].emitted; j++) {
            const float *logits = rig.b.target_logits + (row * (K + 1) + j) * V;
            double sum = 0;
            for (int id = 0; id < V; id++) sum += exp((double)logits[id]);
            double expected = (double)logits[rig.b.records[row].tokens[j]] - log(sum);
            ck_assert_double_eq_tol((double)rig.b.records[row].logprobs[j], expected, 1e-5);
        }
    rig_close(&rig);
}
END_TEST

/* --- texts ------------------------------------------------------------------------------------------------------- */

enum { TEXTS = 5, TOKENS = 40 };

/* Two of them have no penalty. is_short: a prompt is its first token. */
static void answer_all(const struct engine_options *options, float temperature, bool is_short, struct answer *answers) {
    static const float penalties[TEXTS] = {1.3f, 1, 1.1f, 0.8f, 0};
    struct engine *e = must_open(options);
    struct request requests[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        requests[i] = text_request(e, story_starts[i], TOKENS - 5 * i);
        if (is_short) requests[i].prompt.len = 1;
        struct generation *g = &requests[i].generation;
        g->sampling.repetition_penalty = penalties[i];
        g->sampling.temperature = temperature, g->seed = 7 + (uint64_t)i, g->ignore_end = true;
    }
    run_requests(e, requests, TEXTS, answers);
    free_requests(requests, TEXTS);
    engine_destroy(e);
}

static struct engine_options options_for(int pair, int k, int batch) {
    static struct pair pairs[PAIRS_MAX];
    static struct pair lookup;
    test_pairs(pairs);
    lookup = ngram_pair(&pairs[0]);
    return pair_options(pair == 0 ? &pairs[0] : &lookup, k, batch);
}

/* Loop index: draft model or n-gram, greedy or sampled by the coupled rule. */
START_TEST(penalised_text_is_that_of_plain_decoding_for_every_k_and_batch)
{
    const float temperature = _i / 2 ? 0.9f : 0;
    struct answer expected[TEXTS], got[TEXTS];
    struct engine_options plain = options_for(_i % 2, 0, 1);
    plain.accept = ACCEPT_COUPLED;
    answer_all(&plain, temperature, false, expected);
    for (int k = 1; k <= 7; k += 3) {
        struct engine_options options = options_for(_i % 2, k, 1 + k % 4);
        options.accept = ACCEPT_COUPLED, options.pipeline = 1 + k % 2;
        if (options.draft && k == 4) options.draft_vocab = "700";
        answer_all(&options, temperature, false, got);
        for (int i = 0; i < TEXTS; i++) must_equal(&got[i], &expected[i], "penalised");
        free_answers(got, TEXTS);
    }
    free_answers(expected, TEXTS);
}
END_TEST

/* Loop index: K. */
START_TEST(under_a_great_penalty_no_token_comes_twice_in_any_turn)
{
    struct engine_options options = options_for(0, _i, 1);
    struct engine *e = must_open(&options);
    struct sequence *s;
    ck_ok(engine_open(e, 300, &s));
    for (int turn = 0; turn < 2; turn++) {
        struct request r = text_request(e, turn ? " Then" : story_starts[0], 30);
        r.generation.sampling.repetition_penalty = 100, r.generation.ignore_end = true;
        struct answer a = run_turn(e, s, &r);
        int n;
        const int32_t *ids = engine_tokens(s, &n);
        for (int i = n - (int)a.ids.len; i < n; i++)
            for (int j = 0; j < i; j++) ck_assert_msg(ids[i] != ids[j], "token %d at %d and %d", ids[i], j, i);
        free_requests(&r, 1);
        free_answers(&a, 1);
    }
    engine_destroy(e);
}
END_TEST

/* Of prompts of one token, so that both caches hold what decoding wrote alone: on a GPU a draft computes a prompt's last position by
 * the kernels of decoding, and the target has prefill's bits there. */
START_TEST(a_draft_equal_to_its_target_is_always_right_under_a_penalty_too)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    pairs[0].draft = pairs[0].target;
    struct engine_options options = pair_options(&pairs[0], 4, 2);
    struct answer answers[TEXTS];
    answer_all(&options, 0.9f, true, answers);
    for (int i = 0; i < TEXTS; i++) ck_assert_int_eq(answers[i].stats.rejected, 0);
    free_answers(answers, TEXTS);
}
END_TEST

struct heard {
    float logprobs[64];
    int count;
};

static void hear(void *user, struct token_block *block) {
    struct heard *h = user;
    ck_assert(block->count == 0 || block->logprobs != NULL);
    for (int i = 0; i < block->count && h->count < 64; i++) h->logprobs[h->count++] = block->logprobs[i];
}

static struct heard hear_answer(int k) {
    struct engine_options options = options_for(0, k, 1);
    struct engine *e = must_open(&options);
    struct request r = text_request(e, story_starts[1], 30);
    struct sequence *s;
    struct heard h = {.count = 0};
    int running = 1;
    r.generation.logprobs = true, r.generation.on_tokens = hear, r.generation.user = &h;
    ck_ok(engine_open(e, 300, &s));
    ck_ok(engine_generate(e, s, r.prompt.data, (int)r.prompt.len, &r.generation));
    while (running > 0) ck_ok(engine_step(e, &running));
    free_requests(&r, 1);
    engine_destroy(e);
    return h;
}

START_TEST(log_probabilities_are_the_same_for_every_k)
{
    struct heard plain = hear_answer(0);
    ck_assert_int_gt(plain.count, 10);
    for (int i = 0; i < plain.count; i++) ck_assert(plain.logprobs[i] <= 0 && plain.logprobs[i] > -20);
    for (int k = 1; k <= 5; k += 2) {
        struct heard h = hear_answer(k);
        ck_assert_int_eq(h.count, plain.count);
        ck_assert_mem_eq(h.logprobs, plain.logprobs, sizeof *h.logprobs * (size_t)h.count);
    }
}
END_TEST

DEVICE_SUITE(check_penalty);
Suite *check_penalty(void) {
    Suite *suite = suite_create("penalty");
    TCase *rows = tcase_create("rows");
    tcase_add_test(rows, each_row_is_penalised_once_by_what_stands_before_it);
    tcase_add_loop_test(rows, each_step_of_the_draft_is_penalised_by_the_steps_before_it, 0, 2 * K);
    tcase_add_loop_test(rows, a_finite_logit_stays_finite_and_others_stay_what_they_are, 0, 2);
    tcase_add_test(rows, emitted_tokens_join_those_that_were_seen);
    tcase_add_test(rows, log_probabilities_are_those_of_the_softmax);
    suite_add_tcase(suite, rows);
    TCase *texts = tcase_create("texts");
    tcase_add_loop_test(texts, penalised_text_is_that_of_plain_decoding_for_every_k_and_batch, 0, 4);
    tcase_add_loop_test(texts, under_a_great_penalty_no_token_comes_twice_in_any_turn, 0, 4);
    tcase_add_test(texts, a_draft_equal_to_its_target_is_always_right_under_a_penalty_too);
    tcase_add_test(texts, log_probabilities_are_the_same_for_every_k);
    suite_add_tcase(suite, texts);
    return suite;
}
