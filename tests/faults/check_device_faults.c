/* A device of which one call fails, whichever it is: an engine's whole life, a chat that goes on, a batch. Calls are those of
 * graphs/backend.h; on a GPU the same suite runs over the CUDA device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/conversation.h"
#include "tests/support/batch_here.h"
#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/failing_device.h"
#include "tests/support/faulty_host.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

/* --- which calls fail -------------------------------------------------------------------------------------------- */

/* Of each kind of call so many fail, spread from the first to the last; with $DUET_TORTURE every one. Without test data there is but the
 * embedded pair, which takes many times as long. */
static int most_calls(void) {
    struct pair pairs[PAIRS_MAX];
    if (getenv("DUET_TORTURE")) return 1 << 30;
    return !test_device_is_host() ? 3 : test_is_small() ? 4 : test_pairs(pairs) > 1 ? 24 : 8;
}

/* One run of what is tested with the fault that failing_device is set to. */
typedef void (*attempt_fn)(void *user);

static void watch(enum device_call call, int at, bool for_good) {
    failing_device = (struct failing_device){.watches = true, .call = call, .at = at, .for_good = for_good};
}

/* Runs `attempt` for the faults of the call `at` of `calls`, once and for good. */
static int try_both(enum device_call call, int at, attempt_fn attempt, void *user) {
    for (int for_good = 0; for_good < 2; for_good++) {
        watch(call, at, for_good);
        attempt(user);
        /* On a GPU how often one waits is a matter of time. */
        require(failing_device.failed > 0 || !test_device_is_host(), "%s %d did not come", device_call_names[call], at);
        require(failing_device.live == 0, "%s %d%s: %d things of the device were left", device_call_names[call], at,
                for_good ? " for good" : "", failing_device.live);
    }
    return 2;
}

/* `calls`: of a run without fault. Returns the number of faults. */
static int try_faults(const int calls[DEVICE_CALLS], attempt_fn attempt, void *user) {
    int faults = 0, most = most_calls();
    for (int call = 0; call < DEVICE_CALLS; call++) {
        int count = calls[call] < most ? calls[call] : most;
        for (int i = 0; i < count; i++) {
            int at = count == 1 ? 1 : 1 + (int)((int64_t)i * (calls[call] - 1) / (count - 1));
            faults += try_both((enum device_call)call, at, attempt, user);
        }
    }
    failing_device = (struct failing_device){0};
    return faults;
}

static void expect_device_error(int rc) {
    require(rc == ERR_DEVICE || rc == ERR_MEMORY, "%s %d: error %d: %s", device_call_names[failing_device.call],
            failing_device.at, rc, err_message());
    require(strstr(err_message(), DEVICE_GONE) != NULL, "%s %d: %s", device_call_names[failing_device.call],
            failing_device.at, err_message());
    check_sentence();
}

/* --- the life of an engine ----------------------------------------------------------------------------------------- */

enum { SEQUENCES = 2, TOKENS = 12 };

struct life {
    struct engine_options options;
    struct ids prompt[SEQUENCES];
    struct ids expected[SEQUENCES], got[SEQUENCES];
    struct sequence *open[SEQUENCES];
};

static void take(void *user, struct token_block *block) {
    ids_append(user, block->tokens, (size_t)block->count);
}

static int answer(struct life *l, struct engine *e, int i, const struct ids *prompt) {
    struct generation g = {.max_tokens = TOKENS,
                           .sampling = {.temperature = 0, .top_p = 1},
                           .seed = 1,
                           .ignore_end = true,
                           .on_tokens = take,
                           .user = &l->got[i]};
    return engine_generate(e, l->open[i], prompt->data, (int)prompt->len, &g);
}

static int run_to_the_end(struct engine *e) {
    int running = 1;
    while (running > 0) TRY(engine_step(e, &running));
    return 0;
}

/* Both answer side by side; then a turn without the draft, and one with it again, which has to catch up. */
static int talk(struct life *l, struct engine *e) {
    for (int i = 0; i < SEQUENCES; i++) {
        TRY(engine_open(e, 100, &l->open[i]));
        TRY(answer(l, e, i, &l->prompt[i]));
    }
    TRY(run_to_the_end(e));
    TRY(engine_set_k(e, 0));
    TRY(answer(l, e, 0, &l->prompt[1]));
    TRY(run_to_the_end(e));
    TRY(engine_set_k(e, l->options.k));
    TRY(answer(l, e, 0, &l->prompt[0]));
    return run_to_the_end(e);
}

static int live(struct life *l) {
    struct engine *e;
    for (int i = 0; i < SEQUENCES; i++) l->got[i].len = 0;
    TRY(engine_create(&e, &l->options));
    int rc = talk(l, e);
    engine_destroy(e); /* closes the sequences */
    return rc;
}

/* The first `n` ids. */
static bool same_ids(const struct ids *a, const struct ids *b, size_t n) {
    return a->len >= n && b->len >= n && (n == 0 || memcmp(a->data, b->data, n * sizeof *a->data) == 0);
}

static bool begins_as_expected(const struct life *l, bool whole) {
    for (int i = 0; i < SEQUENCES; i++)
        if (!same_ids(&l->got[i], &l->expected[i], whole ? l->expected[i].len : l->got[i].len)) return false;
    return true;
}

static void live_with_fault(void *user) {
    struct life *l = user;
    int rc = live(l);
    require(begins_as_expected(l, rc == 0), "%s %d: other tokens", device_call_names[failing_device.call],
            failing_device.at);
    if (rc != 0) expect_device_error(rc);
    if (failing_device.at % 8 != 1) return;
    int at = failing_device.at;
    failing_device.at = 0;
    require_ok(live(l));
    require(begins_as_expected(l, true), "%s %d: the next engine gives other tokens",
            device_call_names[failing_device.call], at);
}

static void prepare_life(struct life *l) {
    l->options.context = 128;
    l->options.timing = 1;
    l->options.pipeline = 2;
    l->options.threads = 1;
    for (int i = 0; i < SEQUENCES; i++)
        for (int t = 0; t < 3 + i; t++) ids_push(&l->prompt[i], 5 + 7 * t + i);
    watch(CALL_OPEN, 0, false);
    ck_ok(live(l));
    ck_assert_int_eq(failing_device.live, 0);
    for (int i = 0; i < SEQUENCES; i++) ids_append(&l->expected[i], l->got[i].data, l->got[i].len);
    ck_assert_uint_eq(l->expected[0].len, 3 * TOKENS);
}

static void free_life(struct life *l) {
    for (int i = 0; i < SEQUENCES; i++) ids_free(&l->prompt[i]), ids_free(&l->expected[i]), ids_free(&l->got[i]);
}

/* Loop index: graphs at the start; at their first use; every op eagerly between captures, after a warm-up. */
START_TEST(an_engine_of_which_any_call_fails_says_so_leaves_nothing_and_the_next_one_works)
{
    struct pair pair = quick_pair();
    struct life l = {.options = pair_options(&pair, 3, SEQUENCES)};
    faulty_host.is_async = _i == 2;
    if (_i == 1) l.options.buckets = BUCKETS_EXACT;
    if (_i == 2) l.options.graphs = GRAPHS_DEBUG;
    prepare_life(&l);
    int calls[DEVICE_CALLS];
    memcpy(calls, failing_device.calls, sizeof calls);
    if (_i < 2) ck_assert_int_gt(calls[CALL_LAUNCH], 10);
    ck_assert_int_gt(calls[CALL_EVENT_WAIT], 3);
    ck_assert_int_gt(try_faults(calls, live_with_fault, &l), 40);
    faulty_host.is_async = false;
    free_life(&l);
}
END_TEST

/* --- a chat that goes on ------------------------------------------------------------------------------------------- */

struct chat {
    struct engine_options options;
    struct engine *engine;
    struct conversation *conversation;
    struct ids got, expected;
    int before[DEVICE_CALLS]; /* until the chat is open */
    int recovered;
};

static const char *const questions[2] = {"Once upon a time", " and then"};

static void open_chat(struct chat *c) {
    ck_ok(engine_create(&c->engine, &c->options));
    struct conversation_options options = {.engine = c->engine};
    ck_ok(conversation_create(&c->conversation, &options));
    memcpy(c->before, failing_device.calls, sizeof c->before);
}

static void close_chat(struct chat *c) {
    conversation_free(c->conversation);
    engine_destroy(c->engine);
}

/* As `duet chat` asks: where the answer fails, the question is taken back. */
static int ask(struct chat *c, const char *question) {
    struct generation g = {.max_tokens = TOKENS,
                           .sampling = {.temperature = 0, .top_p = 1},
                           .seed = 1,
                           .ignore_end = true,
                           .on_tokens = take,
                           .user = &c->got};
    size_t len = c->got.len;
    TRY(conversation_ask(c->conversation, question, strlen(question), &g, NULL));
    struct sequence *s = conversation_sequence(c->conversation);
    int rc = 0, running;
    while (rc == 0 && engine_is_running(s)) rc = engine_step(c->engine, &running);
    if (rc == 0) rc = conversation_answered(c->conversation, "", 0, true);
    if (rc == 0) return 0;
    engine_stop(c->engine, s);
    ck_ok(conversation_undo(c->conversation));
    c->got.len = len;
    return rc;
}

/* Two questions, each asked again once if it fails. Returns the error of the second time. */
static int ask_twice_at_most(struct chat *c) {
    for (int q = 0; q < 2; q++) {
        int rc = ask(c, questions[q]);
        if (rc == 0) continue;
        expect_device_error(rc);
        TRY(ask(c, questions[q]));
        c->recovered++;
    }
    return 0;
}

static void chat_with_fault(void *user) {
    struct chat *c = user;
    int at = failing_device.at;
    c->got.len = 0;
    failing_device.at = 0;
    open_chat(c);
    failing_device.at = at > 0 ? c->before[failing_device.call] + at : 0;
    int rc = ask_twice_at_most(c);
    if (rc != 0) expect_device_error(rc);
    if (c->expected.len > 0)
        require(rc == 0 ? same_ids(&c->got, &c->expected, c->expected.len)
                        : same_ids(&c->got, &c->expected, c->got.len),
                "%s %d: asked again, the model answers otherwise", device_call_names[failing_device.call], at);
    close_chat(c);
}

START_TEST(a_chat_whose_device_failed_once_answers_rightly_when_asked_again)
{
    struct pair pair = quick_pair();
    struct chat c = {.options = pair_options(&pair, 3, 1)};
    c.options.context = 128;
    c.options.threads = 1;
    c.options.pipeline = 2;
    watch(CALL_OPEN, 0, false);
    chat_with_fault(&c);
    ids_append(&c.expected, c.got.data, c.got.len);
    ck_assert_uint_eq(c.expected.len, 2 * TOKENS);
    int calls[DEVICE_CALLS];
    for (int i = 0; i < DEVICE_CALLS; i++) calls[i] = failing_device.calls[i] - c.before[i];
    int faults = try_faults(calls, chat_with_fault, &c);
    ck_assert_int_gt(faults, 10);
    ck_assert_int_gt(c.recovered, faults / 4);
    ids_free(&c.got), ids_free(&c.expected);
}
END_TEST

/* --- a batch --------------------------------------------------------------------------------------------------------- */

static const char batch_lines[] =
    "{\"prompt\": \"A dog\", \"ignore_eos\": true}\n"
    "{\"turns\": [\"Hello.\", \"And you?\"], \"max_tokens\": 3}\n"
    "{\"prompt\": 5}\n"
    "{\"prompt\": \"The sun\", \"max_tokens\": 2}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is rain?\"}], \"max_tokens\": 4}\n";

struct batch_run {
    char out[256], err[256];
    struct buf whole; /* without a fault */
};

/* The record of a line of a run without fault. */
static bool is_in(const struct buf *whole, const char *line, size_t n) {
    for (const char *at = buf_text(whole), *end; (end = strchr(at, '\n')); at = end + 1)
        if ((size_t)(end - at) == n && memcmp(at, line, n) == 0) return true;
    return false;
}

static void check_batch_records(const struct batch_run *b, const struct buf *out) {
    int lines = 0;
    for (const char *at = buf_text(out), *end; *at; at = end + 1, lines++) {
        end = strchr(at, '\n');
        require(end != NULL, "half a record: %s", at);
        require(is_in(&b->whole, at, (size_t)(end - at)), "another record: %.*s", (int)(end - at), at);
    }
    require(lines == records_made, "%s %d: %d records were made, %d written", device_call_names[failing_device.call],
            failing_device.at, records_made, lines);
}

static void batch_with_fault(void *user) {
    struct batch_run *b = user;
    struct buf out = {0}, err = {0};
    records_made = 0;
    remove(b->out);
    int status = batch_here(batch_lines, b->out, b->err);
    text_of_file(b->out, &out), text_of_file(b->err, &err);
    ck_assert_int_eq(status, 1); /* a line is wrong, whatever the device does */
    require(count_lines(&err) == 1 && strncmp(buf_text(&err), "duet: ", 6) == 0, "%s", buf_text(&err));
    bool said = strstr(buf_text(&err), DEVICE_GONE) != NULL;
    require(said || strstr(buf_text(&err), "1 of 5 lines failed"), "%s", buf_text(&err));
    require(said || count_lines(&out) == 5, "nothing is said, and %d records are there", count_lines(&out));
    check_batch_records(b, &out);
    buf_free(&out), buf_free(&err);
}

START_TEST(a_batch_of_which_any_call_fails_says_so_and_writes_every_record_that_was_made)
{
    struct batch_run b = {0};
    snprintf(b.out, sizeof b.out, "%s", temp_path("out.jsonl"));
    snprintf(b.err, sizeof b.err, "%s", temp_path("err"));
    watch(CALL_OPEN, 0, false);
    ck_assert_int_eq(batch_here(batch_lines, b.out, b.err), 1);
    text_of_file(b.out, &b.whole);
    ck_assert_int_eq(count_lines(&b.whole), 5);
    int calls[DEVICE_CALLS];
    memcpy(calls, failing_device.calls, sizeof calls);
    ck_assert_int_gt(try_faults(calls, batch_with_fault, &b), 40);
    buf_free(&b.whole);
}
END_TEST

DEVICE_SUITE(check_device_faults);
Suite *check_device_faults(void) {
    Suite *suite = suite_create("device_faults");
    TCase *faults = tcase_create("faults");
    tcase_add_loop_test(faults, an_engine_of_which_any_call_fails_says_so_leaves_nothing_and_the_next_one_works, 0, 3);
    tcase_add_test(faults, a_chat_whose_device_failed_once_answers_rightly_when_asked_again);
    tcase_add_test(faults, a_batch_of_which_any_call_fails_says_so_and_writes_every_record_that_was_made);
    suite_add_tcase(suite, faults);
    return suite;
}
