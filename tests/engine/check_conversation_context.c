/* Conversations that fill the context: what is dropped, what is refused. */
#include <string.h>

#include "tests/support/support.h"
#include "tests/support/talk.h"

enum { SMALL = 160 };

START_TEST(a_full_context_drops_the_oldest_turns_and_keeps_the_system_prompt)
{
    struct talk t = talk_open(4, SMALL, true);
    int dropped = 0, turns = 12;
    ck_ok(conversation_set_system(t.conversation, "You are kind.", 13));
    for (int i = 0; i < turns; i++) {
        dropped += talk_say(&t, talk_questions[i % 3]);
        struct ids history = talk_history(&t), expected = talk_rendered(&t, "Next.");
        ck_assert_uint_le(history.len, SMALL);
        ck_assert_uint_gt(expected.len, history.len);
        expected.len = history.len;
        must_equal_ids(&history, &expected, "kept turns");
        ids_free(&history);
        ids_free(&expected);
    }
    ck_assert_int_gt(dropped, 2);
    ck_assert_int_eq(conversation_turns(t.conversation), turns - dropped);
    struct ids history = talk_history(&t), head = {0};
    const char *start = "<|im_start|>system\nYou are kind.<|im_end|>\n<|im_start|>user\n";
    ck_ok(tokenizer_encode(engine_tokenizer(t.engine), start, strlen(start), NULL, &head));
    ck_assert_int_eq(memcmp(history.data, head.data, head.len * sizeof *head.data), 0);
    ids_free(&history);
    ids_free(&head);
    talk_close(&t);
}
END_TEST

static void many_words(struct buf *text, int words) {
    buf_clear(text);
    for (int i = 0; i < words; i++) buf_puts(text, i ? " cat" : "cat");
}

/* The chat is that of `before`, of two turns, and one more turn is answered behind it. */
static void must_go_on_from_two_turns(struct talk *t, const struct ids *before, const char *what) {
    ck_assert_int_eq(conversation_turns(t->conversation), 2);
    ck_assert_int_eq(talk_say_cut(t, "Go on.", 3, 4), 0);
    struct ids after = talk_history(t);
    ck_assert_uint_gt(after.len, before->len);
    after.len = before->len;
    must_equal_ids(&after, before, what);
    ids_free(&after);
}

START_TEST(undo_brings_dropped_turns_back)
{
    struct talk t = talk_open(4, SMALL, true);
    struct buf text = {0};
    talk_say(&t, talk_questions[1]);
    talk_say_cut(&t, talk_questions[2], 9, ANSWER);
    struct ids before = talk_history(&t);
    many_words(&text, SMALL / 2);
    ck_assert_int_gt(talk_say(&t, buf_text(&text)), 0);
    ck_ok(conversation_undo(t.conversation));
    must_go_on_from_two_turns(&t, &before, "after undo");
    ids_free(&before);
    buf_free(&text);
    talk_close(&t);
}
END_TEST

START_TEST(an_interrupted_question_leaves_a_chat_that_never_had_it)
{
    struct talk t = talk_open(4, SMALL, true);
    struct buf text = {0};
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    int dropped;
    talk_say(&t, talk_questions[1]);
    talk_say_cut(&t, talk_questions[2], 9, ANSWER);
    struct ids before = talk_history(&t);
    many_words(&text, SMALL / 2); /* does not fit behind the turns before it */
    ck_ok(conversation_ask(t.conversation, buf_text(&text), text.len, &g, &dropped));
    ck_assert_int_gt(dropped, 0);
    engine_stop(t.engine, conversation_sequence(t.conversation));
    ck_assert_int_eq(conversation_answered(t.conversation, "", 0, true), ERR_USAGE);
    ck_ok(conversation_undo(t.conversation));
    must_go_on_from_two_turns(&t, &before, "after an interrupt");
    ids_free(&before);
    buf_free(&text);
    talk_close(&t);
}
END_TEST

/* The turn that is put back had dropped the first one; questions that came to no answer are between. */
START_TEST(redo_puts_a_turn_back_after_questions_without_an_answer)
{
    struct talk t = talk_open(4, SMALL, true);
    struct buf text = {0}, too_long = {0};
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    talk_say(&t, talk_questions[1]);
    talk_say_cut(&t, talk_questions[2], 9, ANSWER);
    many_words(&text, SMALL / 2);
    many_words(&too_long, SMALL);
    ck_assert_int_gt(talk_say(&t, buf_text(&text)), 0);
    struct ids before = talk_history(&t);
    int turns = conversation_turns(t.conversation), dropped;
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_ask(t.conversation, buf_text(&too_long), too_long.len, &g, &dropped), ERR_LIMIT);
    ck_ok(conversation_ask(t.conversation, talk_questions[0], strlen(talk_questions[0]), &g, &dropped));
    ck_assert_int_eq(conversation_redo(t.conversation), ERR_USAGE);
    engine_stop(t.engine, conversation_sequence(t.conversation));
    ck_ok(conversation_undo(t.conversation));
    ck_ok(conversation_redo(t.conversation));
    ck_assert_int_eq(conversation_turns(t.conversation), turns);
    ck_assert_int_eq(conversation_redo(t.conversation), ERR_USAGE);
    ck_assert_int_eq(talk_say_cut(&t, "Go on.", 3, 4), 0);
    struct ids after = talk_history(&t);
    ck_assert_uint_gt(after.len, before.len);
    after.len = before.len;
    must_equal_ids(&after, &before, "after redo");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    buf_free(&too_long);
    talk_close(&t);
}
END_TEST

/* Loop index 0: an answer since; 1: all turns replaced since. */
START_TEST(redo_puts_nothing_back_where_other_turns_came)
{
    struct talk t = talk_open(4, 0, true);
    talk_say(&t, talk_questions[0]);
    ck_ok(conversation_undo(t.conversation));
    if (_i == 0)
        talk_say(&t, talk_questions[1]);
    else
        conversation_reset(t.conversation);
    ck_assert_int_eq(conversation_redo(t.conversation), ERR_USAGE);
    talk_close(&t);
}
END_TEST

START_TEST(a_message_that_cannot_fit_is_refused_and_nothing_changes)
{
    struct talk t = talk_open(4, SMALL, true);
    struct buf text = {0};
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    int dropped;
    for (int i = 0; i < 4; i++) talk_say(&t, talk_questions[i % 3]);
    struct ids before = talk_history(&t);
    int turns = conversation_turns(t.conversation);
    many_words(&text, SMALL);
    ck_assert_int_eq(conversation_ask(t.conversation, buf_text(&text), text.len, &g, &dropped), ERR_LIMIT);
    ck_assert_msg(strstr(err_message(), "context") && strstr(err_message(), "160"), "%s", err_message());
    ck_assert_int_eq(dropped, 0);
    struct ids after = talk_history(&t);
    must_equal_ids(&after, &before, "refused message");
    ck_assert_int_eq(conversation_turns(t.conversation), turns);
    talk_say(&t, "Go on.");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    talk_close(&t);
}
END_TEST

START_TEST(the_longest_message_that_fits_gets_one_token)
{
    struct talk t = talk_open(4, SMALL, true);
    struct buf text = {0};
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    int words = SMALL, dropped;
    talk_say(&t, talk_questions[0]);
    do {
        many_words(&text, --words);
    } while (conversation_ask(t.conversation, buf_text(&text), text.len, &g, &dropped) != 0);
    ck_assert_int_eq(dropped, 1);
    struct ids asked = talk_history(&t);
    talk_run(t.engine, conversation_sequence(t.conversation));
    talk_expect_plain(t.plain, &asked, &l.ids);
    ck_assert_uint_ge(asked.len + 2, SMALL);
    ck_assert(l.ended || asked.len + l.ids.len == SMALL);
    talk_store(&t, &l);
    talk_say(&t, talk_questions[1]);
    ids_free(&asked);
    ids_free(&l.ids);
    buf_free(&text);
    talk_close(&t);
}
END_TEST

START_TEST(a_turn_that_may_not_drop_is_refused)
{
    struct talk t = talk_open(4, SMALL, true);
    struct talk_listener l = {.cut_at = -1};
    struct generation g = talk_greedy(&l, ANSWER);
    struct buf text = {0};
    many_words(&text, SMALL / 2);
    talk_say(&t, talk_questions[0]);
    talk_say(&t, buf_text(&text));
    struct ids before = talk_history(&t);
    ck_assert_int_eq(conversation_ask(t.conversation, buf_text(&text), text.len, &g, NULL), ERR_LIMIT);
    struct ids after = talk_history(&t);
    must_equal_ids(&after, &before, "refused turn");
    ids_free(&before);
    ids_free(&after);
    buf_free(&text);
    talk_close(&t);
}
END_TEST

Suite *check_conversation_context(void) {
    Suite *suite = suite_create("conversation context");
    TCase *context = tcase_create("context");
    tcase_add_test(context, a_full_context_drops_the_oldest_turns_and_keeps_the_system_prompt);
    tcase_add_test(context, undo_brings_dropped_turns_back);
    tcase_add_test(context, redo_puts_a_turn_back_after_questions_without_an_answer);
    tcase_add_loop_test(context, redo_puts_nothing_back_where_other_turns_came, 0, 2);
    tcase_add_test(context, an_interrupted_question_leaves_a_chat_that_never_had_it);
    tcase_add_test(context, a_message_that_cannot_fit_is_refused_and_nothing_changes);
    tcase_add_test(context, the_longest_message_that_fits_gets_one_token);
    tcase_add_test(context, a_turn_that_may_not_drop_is_refused);
    suite_add_tcase(suite, context);
    return suite;
}
