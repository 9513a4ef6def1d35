/* The scheduler: who is answered when, what a prompt costs those that are being answered, and stops in every phase. Slots and pages
 * come back, and no text depends on any of it. */
#include <stdio.h>
#include <string.h>

#include "engine/probe.h"
#include "model/model.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

enum { PROMPT = 900, ANSWER = 24 };

/* An answer that is being listened to. */
struct heard {
    struct sequence *sequence;
    struct ids ids;
    int blocks;
    int begun; /* in which step; 0: not yet */
    bool done;
};
static int step;

static void hear(void *user, struct token_block *block) {
    struct heard *h = user;
    if (h->blocks++ == 0) h->begun = step;
    ids_append(&h->ids, block->tokens, (size_t)block->count);
    h->done = block->finish != FINISH_NONE;
}

static void ask(struct engine *e, struct heard *h, int id, int prompt, int max_tokens) {
    struct request r = filler_request(id, prompt, max_tokens);
    if (!h->sequence) ck_ok(engine_open(e, prompt + max_tokens + 64, &h->sequence));
    r.generation.ignore_end = true;
    r.generation.on_tokens = hear, r.generation.user = h;
    ck_ok(engine_generate(e, h->sequence, r.prompt.data, (int)r.prompt.len, &r.generation));
    free_requests(&r, 1);
}

static void let_go(struct engine *e, struct heard *h) {
    engine_close(e, h->sequence);
    ids_free(&h->ids);
    *h = (struct heard){0};
}

static void step_until(struct engine *e, const bool *done) {
    int running;
    while (!*done) ck_ok(engine_step(e, &running));
}

/* What the same request gives in an engine with nobody else. */
static void must_be_as_alone(struct engine *alone, const struct heard *h, int id, int prompt, int max_tokens,
                             const char *what) {
    struct heard a = {0};
    ask(alone, &a, id, prompt, max_tokens);
    step_until(alone, &a.done);
    ck_assert_msg(a.ids.len == h->ids.len && memcmp(a.ids.data, h->ids.data, a.ids.len * sizeof *a.ids.data) == 0,
                  "%s: the text of request %d is another than alone", what, id);
    let_go(alone, &a);
}

static struct engine *open_engine(int k, int batch) {
    struct pair pair = {"embedded", asset_path("target"), asset_path("draft")};
    struct engine_options options = pair_options(&pair, k, batch);
    options.context = 1000;
    return must_open(&options);
}

START_TEST(answers_begin_in_the_order_in_which_they_were_asked_for)
{
    enum { COUNT = 7, BATCH = 2 };
    struct engine *e = open_engine(3, BATCH);
    struct heard h[COUNT] = {0};
    int running = 1, finished = 0;
    step = 0;
    for (int i = 0; i < COUNT; i++)
        ask(e, &h[i], i, i % 2 ? 5 : 300, 6 + 5 * (i % 3)); /* short ones behind long ones */
    ck_assert_int_eq(engine_load(e).queued, COUNT);
    while (finished < COUNT) {
        step++;
        ck_ok(engine_step(e, &running));
        struct engine_load load = engine_load(e);
        ck_assert_int_le(load.ingesting + load.decoding, BATCH);
        for (int i = 0; i < COUNT; i++) {
            if (!h[i].done || !h[i].sequence) continue;
            engine_close(e, h[i].sequence);
            h[i].sequence = NULL;
            finished++;
        }
    }
    for (int i = 0; i + 1 < COUNT; i++) ck_assert_int_le(h[i].begun, h[i + 1].begun);
    for (int i = 0; i < COUNT; i++) ids_free(&h[i].ids);
    engine_destroy(e);
}
END_TEST

/* Those that are answered get a round in every step, and the same text; the prompt is ingested on the way. */
START_TEST(a_long_prompt_stops_nobody_and_changes_no_text)
{
    enum { COUNT = 3 };
    struct engine *e = open_engine(3, COUNT + 1), *alone = open_engine(3, 1);
    struct heard h[COUNT] = {0}, late = {0};
    int running, steps = 0;
    const int tokens = test_is_small() ? 100 : 200;
    for (int i = 0; i < COUNT; i++) ask(e, &h[i], i, 10 + i, tokens);
    while (engine_load(e).decoding < COUNT) ck_ok(engine_step(e, &running));
    ask(e, &late, 9, PROMPT, ANSWER);
    for (; engine_load(e).decoding < COUNT + 1; steps++) {
        int before[COUNT], done, all;
        for (int i = 0; i < COUNT; i++) before[i] = h[i].blocks;
        ck_ok(engine_step(e, &running));
        for (int i = 0; i < COUNT; i++) ck_assert_msg(h[i].blocks > before[i] || steps == 0, "answer %d waited", i);
        if (engine_load(e).ingesting == 0) continue;
        done = engine_ingested(late.sequence, &all);
        ck_assert_int_eq(all, PROMPT - 1);
        if (test_device_is_host()) ck_assert_int_eq(done, (steps + 1) * KV_PAGE);
    }
    ck_assert_int_ge(steps, 2); /* or it was one chunk */
    step_until(e, &late.done);
    for (int i = 0; i < COUNT; i++) step_until(e, &h[i].done);
    for (int i = 0; i < COUNT; i++) must_be_as_alone(alone, &h[i], i, 10 + i, tokens, "beside a prompt");
    must_be_as_alone(alone, &late, 9, PROMPT, ANSWER, "the prompt");
    for (int i = 0; i < COUNT; i++) let_go(e, &h[i]);
    let_go(e, &late);
    engine_destroy(alone);
    engine_destroy(e);
}
END_TEST

/* A change of K makes the draft lag in the middle of answers, while a prompt is ingested. */
START_TEST(k_may_change_while_a_prompt_is_ingested)
{
    struct engine *e = open_engine(4, 3), *alone = open_engine(4, 1);
    struct heard h[2] = {0}, late = {0};
    int running;
    for (int i = 0; i < 2; i++) ask(e, &h[i], i, 12, 90);
    for (int i = 0; i < 4; i++) ck_ok(engine_step(e, &running));
    ck_ok(engine_set_k(e, 0));
    for (int i = 0; i < 6; i++) ck_ok(engine_step(e, &running));
    ask(e, &late, 9, PROMPT, ANSWER);
    for (int i = 0; i < 2; i++) ck_ok(engine_step(e, &running));
    ck_ok(engine_set_k(e, 4));
    step_until(e, &late.done);
    for (int i = 0; i < 2; i++) step_until(e, &h[i].done);
    for (int i = 0; i < 2; i++) must_be_as_alone(alone, &h[i], i, 12, 90, "k changed");
    must_be_as_alone(alone, &late, 9, PROMPT, ANSWER, "k changed");
    for (int i = 0; i < 2; i++) let_go(e, &h[i]);
    let_go(e, &late);
    engine_destroy(alone);
    engine_destroy(e);
}
END_TEST

/* Loop index: steps before the stop; from none (it waits for a slot) over chunks to rounds in flight. Odd: it is closed. */
/* After plain rounds; the next round has all of them again. */
START_TEST(rows_whose_draft_lags_catch_up_at_once)
{
    enum { COUNT = 8 };
    struct engine *e = open_engine(2, COUNT);
    struct heard h[COUNT] = {0};
    int running;
    for (int i = 0; i < COUNT; i++) ask(e, &h[i], i, 10 + i, 60);
    ck_ok(engine_set_k(e, 0));
    while (engine_load(e).decoding < COUNT) ck_ok(engine_step(e, &running));
    for (int round = 1; round < 4; round++) {
        ck_ok(engine_set_k(e, 2)); /* all have drafted once */
        do ck_ok(engine_step(e, &running));
        while (engine_load(e).decoding < COUNT);
        ck_ok(engine_set_k(e, 0));
        for (int i = 0; i < round; i++) ck_ok(engine_step(e, &running));
        ck_ok(engine_set_k(e, 2));
        do ck_ok(engine_step(e, &running)); /* an asynchronous device reads its rounds first */
        while (engine_load(e).decoding == 0);
        ck_assert_int_eq(engine_load(e).decoding, COUNT);
    }
    for (int i = 0; i < COUNT; i++) let_go(e, &h[i]);
    engine_destroy(e);
}
END_TEST

START_TEST(an_answer_may_end_in_any_phase)
{
    const int prompt = test_is_small() ? 300 : 700;
    struct engine *e = open_engine(3, 2), *alone = open_engine(3, 1);
    const int free_pages = probe_free_page_count(e);
    struct heard h = {0}, other = {0}, next = {0};
    int running, n;
    ask(e, &other, 1, 20, 60);
    for (int i = 0; i < 3; i++) ck_ok(engine_step(e, &running));
    ask(e, &h, 2, prompt, ANSWER);
    for (int i = 0; i < _i; i++) ck_ok(engine_step(e, &running));
    const bool has_begun = h.blocks > 0;
    engine_stop(e, h.sequence);
    ck_assert(!engine_is_running(h.sequence));
    engine_tokens(h.sequence, &n);
    if (engine_load(e).ingesting == 0 && _i == 0) ck_assert_int_eq(n, 0);
    if (has_begun) ck_assert_int_eq(n, prompt + (int)h.ids.len);
    const int blocks = h.blocks;
    if (_i % 2) {
        let_go(e, &h);
        ask(e, &next, 2, prompt, ANSWER);
    } else {
        ck_ok(engine_truncate(e, h.sequence, 0));
        next.sequence = h.sequence;
        ask(e, &next, 2, prompt, ANSWER);
    }
    step_until(e, &next.done);
    step_until(e, &other.done);
    if (_i % 2 == 0) ck_assert_int_eq(h.blocks, blocks); /* it heard no more */
    must_be_as_alone(alone, &next, 2, prompt, ANSWER, "asked again");
    must_be_as_alone(alone, &other, 1, 20, 60, "beside a stop");
    if (_i % 2 == 0) ids_free(&h.ids);
    let_go(e, &next);
    let_go(e, &other);
    ck_assert_int_eq(probe_free_page_count(e), free_pages);
    engine_destroy(alone);
    engine_destroy(e);
}
END_TEST

START_TEST(one_that_waits_in_line_may_leave_it)
{
    struct engine *e = open_engine(2, 1);
    struct heard h[4] = {0};
    int running;
    for (int i = 0; i < 4; i++) ask(e, &h[i], i, 5, 8);
    ck_ok(engine_step(e, &running));
    engine_stop(e, h[2].sequence);
    let_go(e, &h[1]);
    step_until(e, &h[0].done);
    let_go(e, &h[0]);
    step_until(e, &h[3].done);
    ck_assert_int_eq(h[2].blocks, 0);
    ck_assert_int_gt(h[3].blocks, 0);
    let_go(e, &h[2]);
    let_go(e, &h[3]);
    engine_destroy(e);
}
END_TEST

START_TEST(slots_that_idle_sequences_hold_are_busy)
{
    struct engine *e = open_engine(2, 1);
    struct heard h[2] = {0};
    int running;
    ask(e, &h[0], 0, 5, 8);
    step_until(e, &h[0].done);
    do ck_ok(engine_step(e, &running));
    while (running > 0);
    ask(e, &h[1], 1, 5, 8);
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) rc = engine_step(e, &running); /* a round may be in flight */
    ck_assert_int_eq(rc, ERR_BUSY);
    let_go(e, &h[0]);
    step_until(e, &h[1].done);
    let_go(e, &h[1]);
    engine_destroy(e);
}
END_TEST

DEVICE_SUITE(check_scheduler);
Suite *check_scheduler(void) {
    Suite *suite = suite_create("scheduler");
    TCase *tc = tcase_create("scheduler");
    tcase_add_test(tc, answers_begin_in_the_order_in_which_they_were_asked_for);
    tcase_add_test(tc, a_long_prompt_stops_nobody_and_changes_no_text);
    tcase_add_test(tc, k_may_change_while_a_prompt_is_ingested);
    tcase_add_test(tc, rows_whose_draft_lags_catch_up_at_once);
    tcase_add_loop_test(tc, an_answer_may_end_in_any_phase, 0, test_is_small() ? 5 : 8);
    tcase_add_test(tc, one_that_waits_in_line_may_leave_it);
    tcase_add_test(tc, slots_that_idle_sequences_hold_are_busy);
    suite_add_tcase(suite, tc);
    return suite;
}
