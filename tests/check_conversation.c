/* Conversations over the embedded pair. Whatever happened before, an answer must be the one that an engine without a draft
 * gives to the same ids in a fresh sequence: `say` checks that for every answer of this file. */
#include "engine/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support.h"

enum { ANSWER = 20 };

struct talk {
    struct engine *engine, *plain; /* plain: K = 0, the reference */
    struct chat_template *chat_template;
    struct conversation *conversation;
};

static struct engine *open_engine(int k, int context) {
    struct engine_options options = {.target = asset_path("target"),
                                     .draft = k > 0 ? asset_path("draft") : NULL,
                                     .device = "host",
                                     .threads = 1, /* short passes; other suites may run beside this one */
                                     .k = k,
                                     .k_max = k > 0 ? 8 : 0,
                                     .context = context};
    struct engine *e;
    ck_ok(engine_create(&e, &options));
    return e;
}

static struct talk open_talk(int k, int context, bool with_template) {
    struct talk t = {.engine = open_engine(k, context), .plain = open_engine(0, context)};
    if (with_template) ck_ok(chat_template_load(&t.chat_template, asset_path("target")));
    struct conversation_options options = {.engine = t.engine, .chat_template = t.chat_template};
    ck_ok(conversation_create(&t.conversation, &options));
    return t;
}

static void close_talk(struct talk *t) {
    conversation_free(t->conversation);
    chat_template_free(t->chat_template);
    engine_destroy(t->engine);
    engine_destroy(t->plain);
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

struct listener {
    struct ids ids;
    int cut_at; /* keep so many tokens; -1: all */
    bool ended, done;
};

static void listen(void *user, struct token_block *block) {
    struct listener *l = user;
    ck_assert(!l->done);
    if (l->cut_at >= 0 && (int)l->ids.len + block->count >= l->cut_at) {
        block->keep = l->cut_at - (int)l->ids.len;
        block->stop = true;
    }
    ids_append(&l->ids, block->tokens, (size_t)block->keep);
    l->ended = block->ended && block->keep == block->count && !block->stop;
    l->done = block->stop || block->finish != FINISH_NONE;
}

static struct generation greedy(struct listener *l, int max_tokens) {
    return (struct generation){
        .max_tokens = max_tokens, .sampling = {.top_p = 1}, .seed = 1, .on_tokens = listen, .user = l};
}

static void run_to_end(struct engine *e, struct sequence *s) {
    int running;
    while (engine_is_running(s)) ck_ok(engine_step(e, &running));
}

/* What the plain engine answers to these ids. */
static void expect_plain_answer(struct engine *plain, const struct ids *history, const struct ids *answer) {
    struct listener l = {.cut_at = -1};
    struct generation g = greedy(&l, answer->len > 0 ? (int)answer->len : 1);
    struct sequence *s;
    ck_ok(engine_open(plain, engine_info(plain).context, &s));
    ck_ok(engine_generate(plain, s, history->data, (int)history->len, &g));
    run_to_end(plain, s);
    if (answer->len > 0) ck_assert_uint_eq(l.ids.len, answer->len);
    for (size_t i = 0; i < answer->len; i++)
        ck_assert_msg(l.ids.data[i] == answer->data[i], "token %zu is %d, plain decoding gives %d", i, answer->data[i],
                      l.ids.data[i]);
    engine_close(plain, s);
    ids_free(&l.ids);
}

static struct ids history_of(const struct talk *t) {
    int n;
    struct ids ids = {0};
    const int32_t *tokens = engine_tokens(conversation_sequence(t->conversation), &n);
    ids_append(&ids, tokens, (size_t)n);
    return ids;
}

static void store_answer(struct talk *t, const struct listener *l) {
    struct buf text = {0};
    ck_ok(tokenizer_decode(engine_tokenizer(t->engine), l->ids.data, l->ids.len, true, &text));
    ck_ok(conversation_answered(t->conversation, buf_text(&text), text.len, !l->ended));
    buf_free(&text);
}

/* Asks, keeps `cut_at` tokens (-1: all), checks against the plain engine. Returns the number of dropped turns. */
static int say_cut(struct talk *t, const char *text, int cut_at, int max_tokens) {
    struct listener l = {.cut_at = cut_at};
    struct generation g = greedy(&l, max_tokens);
    int dropped;
    ck_ok(conversation_ask(t->conversation, text, strlen(text), &g, &dropped));
    struct ids before = history_of(t);
    run_to_end(t->engine, conversation_sequence(t->conversation));
    expect_plain_answer(t->plain, &before, &l.ids);
    store_answer(t, &l);
    ids_free(&before);
    ids_free(&l.ids);
    return dropped;
}

static int say(struct talk *t, const char *text) {
    return say_cut(t, text, -1, ANSWER);
}

static void must_equal(const struct ids *a, const struct ids *b, const char *what) {
    ck_assert_msg(a->len == b->len, "%s: %zu ids, expected %zu", what, a->len, b->len);
    for (size_t i = 0; i < a->len; i++)
        ck_assert_msg(a->data[i] == b->data[i], "%s: id %zu is %d, expected %d", what, i, a->data[i], b->data[i]);
}

/* --- the history ------------------------------------------------------------------------------------------------- */

static const char *const questions[] = {"Tell me a story about a cat.", "What is the sun?", "And the moon?"};

/* Loop index: K. */
START_TEST(every_k_gives_the_same_conversation)
{
    struct talk plain = open_talk(0, 0, true), t = open_talk(_i, 0, true);
    for (int i = 0; i < 3; i++) {
        say(&plain, questions[i]);
        say(&t, questions[i]);
    }
    struct ids expected = history_of(&plain), got = history_of(&t);
    must_equal(&got, &expected, "history");
    ids_free(&expected);
    ids_free(&got);
    close_talk(&plain);
    close_talk(&t);
}
END_TEST

/* The conversation so far and one more question, through the template as a whole. */
static struct ids rendered(const struct talk *t, const char *question) {
    struct chat_message messages[16];
    size_t n;
    int count = 0;
    const char *system = conversation_system(t->conversation, &n);
    if (system) messages[count++] = (struct chat_message){"system", system, n};
    for (int i = 0; i < conversation_turns(t->conversation); i++) {
        const struct buf *q, *a;
        conversation_turn(t->conversation, i, &q, &a);
        messages[count++] = (struct chat_message){"user", buf_text(q), q->len};
        messages[count++] = (struct chat_message){"assistant", buf_text(a), a->len};
    }
    messages[count++] = (struct chat_message){"user", question, strlen(question)};
    struct buf text = {0};
    struct ids ids = {0};
    ck_ok(chat_template_render(t->chat_template, messages, count, false, &text));
    ck_ok(tokenizer_encode(engine_tokenizer(t->engine), buf_text(&text), text.len, false, &ids));
    buf_free(&text);
    return ids;
}

/* Asks and stops before the first token; the history is what was asked. */
static struct ids ids_asked(struct talk *t, const char *question) {
    struct listener l = {.cut_at = -1};
    struct generation g = greedy(&l, ANSWER);
    ck_ok(conversation_ask(t->conversation, question, strlen(question), &g, NULL));
    struct ids ids = history_of(t);
    engine_stop(t->engine, conversation_sequence(t->conversation));
    ck_ok(conversation_undo(t->conversation));
    return ids;
}

START_TEST(the_history_is_the_rendered_conversation)
{
    struct talk t = open_talk(4, 0, true);
    ck_ok(conversation_set_system(t.conversation, "You are kind.", 13));
    for (int i = 0; i < 3; i++) {
        struct ids expected = rendered(&t, questions[i]), got = ids_asked(&t, questions[i]);
        must_equal(&got, &expected, questions[i]);
        ids_free(&expected);
        ids_free(&got);
        say_cut(&t, questions[i], i == 1 ? 5 : -1, ANSWER); /* the second answer is cut, and gets its end of turn */
    }
    close_talk(&t);
}
END_TEST

START_TEST(a_loaded_conversation_goes_on_like_the_rendered_one)
{
    struct talk t = open_talk(4, 0, true);
    const struct chat_message messages[] = {{"system", "You are kind.", 13},
                                            {"user", questions[0], strlen(questions[0])},
                                            {"assistant", "There was a cat.", 16},
                                            {"user", questions[1], strlen(questions[1])},
                                            {"assistant", "It is a star.", 13}};
    say(&t, "This goes away.");
    ck_ok(conversation_load(t.conversation, messages, 5));
    ck_assert_int_eq(conversation_turns(t.conversation), 2);
    struct ids expected = rendered(&t, questions[2]), got = ids_asked(&t, questions[2]);
    must_equal(&got, &expected, "loaded");
    say(&t, questions[2]);
    ids_free(&expected);
    ids_free(&got);
    close_talk(&t);
}
END_TEST

START_TEST(messages_out_of_order_are_refused_and_nothing_changes)
{
    struct talk t = open_talk(0, 0, true);
    const struct chat_message bad[][2] = {{{"assistant", "a", 1}, {"user", "b", 1}},
                                          {{"system", "a", 1}, {"user", "b", 1}},
                                          {{"user", "a", 1}, {"user", "b", 1}},
                                          {{"user", "a", 1}, {"tool", "b", 1}}};
    say(&t, questions[0]);
    struct ids before = history_of(&t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(conversation_load(t.conversation, bad[i], 2), ERR_FORMAT);
        struct ids after = history_of(&t);
        must_equal(&after, &before, "refused load");
        ids_free(&after);
    }
    ids_free(&before);
    close_talk(&t);
}
END_TEST

START_TEST(without_a_template_text_is_continued_as_it_stands)
{
    struct talk t = open_talk(4, 0, false);
    struct ids expected = {0};
    const struct tokenizer *tokenizer = engine_tokenizer(t.engine);
    say_cut(&t, "Once upon a time", 7, ANSWER);
    struct ids first = history_of(&t);
    say_cut(&t, " and then", 5, ANSWER);
    struct ids second = history_of(&t);
    ck_ok(tokenizer_encode(tokenizer, "Once upon a time", 16, true, &expected));
    ck_assert_uint_eq(first.len, expected.len + 7);
    ck_assert_int_eq(memcmp(first.data, expected.data, expected.len * sizeof *expected.data), 0);
    ck_ok(tokenizer_encode(tokenizer, " and then", 9, false, &first));
    ck_assert_uint_eq(second.len, first.len + 5);
    ck_assert_int_eq(memcmp(second.data, first.data, first.len * sizeof *first.data), 0);
    ck_assert_int_eq(conversation_set_system(t.conversation, "x", 1), ERR_USAGE);
    ids_free(&expected);
    ids_free(&first);
    ids_free(&second);
    close_talk(&t);
}
END_TEST

START_TEST(special_tokens_of_the_tokenizer_come_only_at_the_start)
{
    if (!shared_path("models/stories260K")) {
        skip("no test data");
        return;
    }
    struct engine_options options = {
        .target = shared_path("models/stories260K"), .device = "host", .threads = 1, .context = 128};
    struct talk t = {0};
    ck_ok(engine_create(&t.engine, &options));
    ck_ok(conversation_create(&t.conversation, &(struct conversation_options){.engine = t.engine}));
    for (int turn = 0; turn < 2; turn++) {
        struct listener l = {.cut_at = 4};
        struct generation g = greedy(&l, ANSWER);
        ck_ok(conversation_ask(t.conversation, "Once there", 10, &g, NULL));
        run_to_end(t.engine, conversation_sequence(t.conversation));
        store_answer(&t, &l);
        ids_free(&l.ids);
    }
    int32_t bos = tokenizer_find(engine_tokenizer(t.engine), "<s>", 3);
    struct ids history = history_of(&t);
    ck_assert_int_eq(history.data[0], bos);
    for (size_t i = 1; i < history.len; i++) ck_assert_int_ne(history.data[i], bos);
    ids_free(&history);
    conversation_free(t.conversation);
    engine_destroy(t.engine);
}
END_TEST

/* --- cuts, K, undo ----------------------------------------------------------------------------------------------- */

/* Loop index: tokens that are kept. */
START_TEST(an_answer_cut_anywhere_in_a_block_leaves_a_good_chat)
{
    struct talk t = open_talk(5, 0, true);
    struct ids asked = ids_asked(&t, questions[0]);
    say_cut(&t, questions[0], _i, ANSWER);
    struct ids history = history_of(&t);
    ck_assert_uint_eq(history.len, asked.len + (size_t)_i);
    say(&t, questions[1]);
    say_cut(&t, questions[2], _i + 1, ANSWER);
    ids_free(&history);
    ids_free(&asked);
    close_talk(&t);
}
END_TEST

START_TEST(stopping_between_steps_keeps_what_was_seen)
{
    struct talk t = open_talk(4, 0, true);
    for (int steps = 0; steps < 5; steps++) {
        struct listener l = {.cut_at = -1};
        struct generation g = greedy(&l, 40);
        int running;
        ck_ok(conversation_ask(t.conversation, questions[0], strlen(questions[0]), &g, NULL));
        struct ids before = history_of(&t);
        for (int i = 0; i < steps; i++) ck_ok(engine_step(t.engine, &running));
        engine_stop(t.engine, conversation_sequence(t.conversation));
        store_answer(&t, &l);
        struct ids after = history_of(&t);
        ids_append(&before, l.ids.data, l.ids.len);
        must_equal(&after, &before, "stopped");
        ids_free(&before);
        ids_free(&after);
        ids_free(&l.ids);
        say(&t, questions[1]);
    }
    close_talk(&t);
}
END_TEST

START_TEST(k_may_change_between_turns)
{
    struct talk t = open_talk(4, 0, true);
    const int k[] = {4, 0, 2, 0, 0, 8, 1};
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        ck_ok(engine_set_k(t.engine, k[i]));
        say_cut(&t, questions[i % 3], i % 2 ? 9 : -1, ANSWER);
    }
    close_talk(&t);
}
END_TEST

START_TEST(undo_leaves_a_chat_that_never_had_the_turn)
{
    struct talk never = open_talk(4, 0, true), t = open_talk(4, 0, true);
    say(&never, questions[0]);
    say(&never, questions[2]);
    say(&t, questions[0]);
    say(&t, "Something else, which is much longer than the rest of it.");
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_turns(t.conversation), 1);
    say(&t, questions[2]);
    struct ids expected = history_of(&never), got = history_of(&t);
    must_equal(&got, &expected, "after undo");
    ck_ok(conversation_undo(t.conversation));
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_undo(t.conversation), ERR_USAGE);
    say(&t, questions[1]);
    ids_free(&expected);
    ids_free(&got);
    close_talk(&never);
    close_talk(&t);
}
END_TEST

START_TEST(reset_and_system_start_over)
{
    struct talk t = open_talk(4, 0, true);
    say(&t, questions[0]);
    struct ids first = history_of(&t);
    say(&t, questions[1]);
    conversation_reset(t.conversation);
    ck_assert_int_eq(conversation_turns(t.conversation), 0);
    say(&t, questions[0]);
    struct ids again = history_of(&t);
    must_equal(&again, &first, "after reset");
    ck_ok(conversation_set_system(t.conversation, "You are a pirate.", 17));
    ck_assert_int_eq(conversation_turns(t.conversation), 0);
    struct ids expected = rendered(&t, questions[0]), got = ids_asked(&t, questions[0]);
    must_equal(&got, &expected, "with a system prompt");
    say(&t, questions[0]);
    ids_free(&first);
    ids_free(&again);
    ids_free(&expected);
    ids_free(&got);
    close_talk(&t);
}
END_TEST

/* --- the full context -------------------------------------------------------------------------------------------- */

enum { SMALL = 160 };

START_TEST(a_full_context_drops_the_oldest_turns_and_keeps_the_system_prompt)
{
    struct talk t = open_talk(4, SMALL, true);
    int dropped = 0, turns = 12;
    ck_ok(conversation_set_system(t.conversation, "You are kind.", 13));
    for (int i = 0; i < turns; i++) {
        dropped += say(&t, questions[i % 3]);
        struct ids history = history_of(&t), expected = rendered(&t, "Next.");
        ck_assert_uint_le(history.len, SMALL);
        ck_assert_uint_gt(expected.len, history.len);
        expected.len = history.len;
        must_equal(&history, &expected, "kept turns");
        ids_free(&history);
        ids_free(&expected);
    }
    ck_assert_int_gt(dropped, 2);
    ck_assert_int_eq(conversation_turns(t.conversation), turns - dropped);
    struct ids history = history_of(&t), head = {0};
    const char *start = "<|im_start|>system\nYou are kind.<|im_end|>\n<|im_start|>user\n";
    ck_ok(tokenizer_encode(engine_tokenizer(t.engine), start, strlen(start), false, &head));
    ck_assert_int_eq(memcmp(history.data, head.data, head.len * sizeof *head.data), 0);
    ids_free(&history);
    ids_free(&head);
    close_talk(&t);
}
END_TEST

static void many_words(struct buf *text, int words) {
    buf_clear(text);
    for (int i = 0; i < words; i++) buf_puts(text, i ? " cat" : "cat");
}

START_TEST(undo_brings_dropped_turns_back)
{
    struct talk t = open_talk(4, SMALL, true);
    struct buf text = {0};
    say(&t, questions[1]);
    say_cut(&t, questions[2], 9, ANSWER);
    struct ids before = history_of(&t);
    many_words(&text, SMALL / 2);
    ck_assert_int_gt(say(&t, buf_text(&text)), 0);
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_turns(t.conversation), 2);
    ck_assert_int_eq(say_cut(&t, "Go on.", 3, 4), 0);
    struct ids after = history_of(&t);
    ck_assert_uint_gt(after.len, before.len);
    after.len = before.len;
    must_equal(&after, &before, "after undo");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    close_talk(&t);
}
END_TEST

START_TEST(a_message_that_cannot_fit_is_refused_and_nothing_changes)
{
    struct talk t = open_talk(4, SMALL, true);
    struct buf text = {0};
    struct listener l = {.cut_at = -1};
    struct generation g = greedy(&l, ANSWER);
    int dropped;
    for (int i = 0; i < 4; i++) say(&t, questions[i % 3]);
    struct ids before = history_of(&t);
    int turns = conversation_turns(t.conversation);
    many_words(&text, SMALL);
    ck_assert_int_eq(conversation_ask(t.conversation, buf_text(&text), text.len, &g, &dropped), ERR_LIMIT);
    ck_assert_msg(strstr(err_message(), "context") && strstr(err_message(), "160"), "%s", err_message());
    ck_assert_int_eq(dropped, 0);
    struct ids after = history_of(&t);
    must_equal(&after, &before, "refused message");
    ck_assert_int_eq(conversation_turns(t.conversation), turns);
    say(&t, "Go on.");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    close_talk(&t);
}
END_TEST

START_TEST(the_longest_message_that_fits_gets_one_token)
{
    struct talk t = open_talk(4, SMALL, true);
    struct buf text = {0};
    struct listener l = {.cut_at = -1};
    struct generation g = greedy(&l, ANSWER);
    int words = SMALL, dropped;
    say(&t, questions[0]);
    do {
        many_words(&text, --words);
    } while (conversation_ask(t.conversation, buf_text(&text), text.len, &g, &dropped) != 0);
    ck_assert_int_eq(dropped, 1);
    struct ids asked = history_of(&t);
    run_to_end(t.engine, conversation_sequence(t.conversation));
    expect_plain_answer(t.plain, &asked, &l.ids);
    ck_assert_uint_ge(asked.len + 2, SMALL);
    ck_assert(l.ended || asked.len + l.ids.len == SMALL);
    store_answer(&t, &l);
    say(&t, questions[1]);
    ids_free(&asked);
    ids_free(&l.ids);
    buf_free(&text);
    close_talk(&t);
}
END_TEST

START_TEST(a_turn_that_may_not_drop_is_refused)
{
    struct talk t = open_talk(4, SMALL, true);
    struct listener l = {.cut_at = -1};
    struct generation g = greedy(&l, ANSWER);
    struct buf text = {0};
    many_words(&text, SMALL / 2);
    say(&t, questions[0]);
    say(&t, buf_text(&text));
    struct ids before = history_of(&t);
    ck_assert_int_eq(conversation_ask(t.conversation, buf_text(&text), text.len, &g, NULL), ERR_LIMIT);
    struct ids after = history_of(&t);
    must_equal(&after, &before, "refused turn");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    close_talk(&t);
}
END_TEST

Suite *check_conversation(void) {
    Suite *suite = suite_create("conversation");
    TCase *history = tcase_create("history");
    tcase_set_timeout(history, 60);
    tcase_add_loop_test(history, every_k_gives_the_same_conversation, 1, 4);
    tcase_add_test(history, the_history_is_the_rendered_conversation);
    tcase_add_test(history, a_loaded_conversation_goes_on_like_the_rendered_one);
    tcase_add_test(history, messages_out_of_order_are_refused_and_nothing_changes);
    tcase_add_test(history, without_a_template_text_is_continued_as_it_stands);
    tcase_add_test(history, special_tokens_of_the_tokenizer_come_only_at_the_start);
    suite_add_tcase(suite, history);

    TCase *cuts = tcase_create("cuts");
    tcase_set_timeout(cuts, 60);
    tcase_add_loop_test(cuts, an_answer_cut_anywhere_in_a_block_leaves_a_good_chat, 0, 8);
    tcase_add_test(cuts, stopping_between_steps_keeps_what_was_seen);
    tcase_add_test(cuts, k_may_change_between_turns);
    tcase_add_test(cuts, undo_leaves_a_chat_that_never_had_the_turn);
    tcase_add_test(cuts, reset_and_system_start_over);
    suite_add_tcase(suite, cuts);

    TCase *context = tcase_create("context");
    tcase_set_timeout(context, 60);
    tcase_add_test(context, a_full_context_drops_the_oldest_turns_and_keeps_the_system_prompt);
    tcase_add_test(context, undo_brings_dropped_turns_back);
    tcase_add_test(context, a_message_that_cannot_fit_is_refused_and_nothing_changes);
    tcase_add_test(context, the_longest_message_that_fits_gets_one_token);
    tcase_add_test(context, a_turn_that_may_not_drop_is_refused);
    suite_add_tcase(suite, context);
    return suite;
}
