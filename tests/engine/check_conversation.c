/* Conversations over the embedded pair: histories, cuts, K, undo. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/engine_support.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/talk.h"

/* --- the history ------------------------------------------------------------------------------------------------- */

/* Loop index: K. */
START_TEST(every_k_gives_the_same_conversation)
{
    struct talk plain = talk_open(0, 0, true), t = talk_open(_i, 0, true);
    for (int i = 0; i < 3; i++) {
        talk_say(&plain, talk_questions[i]);
        talk_say(&t, talk_questions[i]);
    }
    struct ids expected = talk_history(&plain), got = talk_history(&t);
    must_equal_ids(&got, &expected, "history");
    ids_free(&expected);
    ids_free(&got);
    talk_close(&plain);
    talk_close(&t);
}
END_TEST

START_TEST(the_history_is_the_rendered_conversation)
{
    struct talk t = talk_open(4, 0, true);
    ck_ok(conversation_set_system(t.conversation, "You are kind.", 13));
    for (int i = 0; i < 3; i++) {
        struct ids expected = talk_rendered(&t, talk_questions[i]), got = talk_asked(&t, talk_questions[i]);
        must_equal_ids(&got, &expected, talk_questions[i]);
        ids_free(&expected);
        ids_free(&got);
        talk_say_cut(&t, talk_questions[i], i == 1 ? 5 : -1,
                     ANSWER); /* the second answer is cut, and gets its end of turn */
    }
    talk_close(&t);
}
END_TEST

START_TEST(a_loaded_conversation_goes_on_like_the_rendered_one)
{
    struct talk t = talk_open(4, 0, true);
    const struct chat_message messages[] = {{"system", "You are kind.", 13},
                                            {"user", talk_questions[0], strlen(talk_questions[0])},
                                            {"assistant", "There was a cat.", 16},
                                            {"user", talk_questions[1], strlen(talk_questions[1])},
                                            {"assistant", "It is a star.", 13}};
    talk_say(&t, "This goes away.");
    ck_ok(conversation_load(t.conversation, messages, 5));
    ck_assert_int_eq(conversation_turns(t.conversation), 2);
    struct ids expected = talk_rendered(&t, talk_questions[2]), got = talk_asked(&t, talk_questions[2]);
    must_equal_ids(&got, &expected, "loaded");
    talk_say(&t, talk_questions[2]);
    ids_free(&expected);
    ids_free(&got);
    talk_close(&t);
}
END_TEST

START_TEST(messages_out_of_order_are_refused_and_nothing_changes)
{
    struct talk t = talk_open(0, 0, true);
    const struct chat_message bad[][2] = {{{"assistant", "a", 1}, {"user", "b", 1}},
                                          {{"system", "a", 1}, {"user", "b", 1}},
                                          {{"user", "a", 1}, {"user", "b", 1}},
                                          {{"user", "a", 1}, {"tool", "b", 1}}};
    talk_say(&t, talk_questions[0]);
    struct ids before = talk_history(&t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(conversation_load(t.conversation, bad[i], 2), ERR_FORMAT);
        struct ids after = talk_history(&t);
        must_equal_ids(&after, &before, "refused load");
        ids_free(&after);
    }
    ids_free(&before);
    talk_close(&t);
}
END_TEST

START_TEST(without_a_template_text_is_continued_as_it_stands)
{
    struct talk t = talk_open(4, 0, false);
    struct ids expected = {0};
    const struct tokenizer *tokenizer = engine_tokenizer(t.engine);
    talk_say_cut(&t, "Once upon a time", 7, ANSWER);
    struct ids first = talk_history(&t);
    talk_say_cut(&t, " and then", 5, ANSWER);
    struct ids second = talk_history(&t);
    ck_ok(tokenizer_encode(tokenizer, "Once upon a time", 16, &(struct encode_options){.special = true}, &expected));
    ck_assert_uint_eq(first.len, expected.len + 7);
    ck_assert_int_eq(memcmp(first.data, expected.data, expected.len * sizeof *expected.data), 0);
    ck_ok(tokenizer_encode(tokenizer, " and then", 9, NULL, &first));
    ck_assert_uint_eq(second.len, first.len + 5);
    ck_assert_int_eq(memcmp(second.data, first.data, first.len * sizeof *first.data), 0);
    ck_assert_int_eq(conversation_set_system(t.conversation, "x", 1), ERR_USAGE);
    ids_free(&expected);
    ids_free(&first);
    ids_free(&second);
    talk_close(&t);
}
END_TEST

START_TEST(special_tokens_of_the_tokenizer_come_only_at_the_start)
{
    if (!shared_path("models/stories260K")) {
        skip("no test data");
        return;
    }
    struct engine_options options = {
        .target = test_checkpoint(shared_path("models/stories260K")), .device = "host", .threads = 1, .context = 128};
    struct talk t = {0};
    ck_ok(engine_create(&t.engine, &options));
    ck_ok(conversation_create(&t.conversation, &(struct conversation_options){.engine = t.engine}));
    for (int turn = 0; turn < 2; turn++) {
        struct talk_listener l = {.cut_at = 4};
        struct generation g = talk_greedy(&l, ANSWER);
        ck_ok(conversation_ask(t.conversation, "Once there", 10, &g, NULL));
        talk_run(t.engine, conversation_sequence(t.conversation));
        talk_store(&t, &l);
        ids_free(&l.ids);
    }
    int32_t bos = tokenizer_find(engine_tokenizer(t.engine), "<s>", 3);
    struct ids history = talk_history(&t);
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
    struct talk t = talk_open(5, 0, true);
    struct ids asked = talk_asked(&t, talk_questions[0]);
    talk_say_cut(&t, talk_questions[0], _i, ANSWER);
    struct ids history = talk_history(&t);
    ck_assert_uint_eq(history.len, asked.len + (size_t)_i);
    talk_say(&t, talk_questions[1]);
    talk_say_cut(&t, talk_questions[2], _i + 1, ANSWER);
    ids_free(&history);
    ids_free(&asked);
    talk_close(&t);
}
END_TEST

/* The embedded target with one more end id. */
static const char *target_with_end_id(int32_t id) {
    const char *files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    char path[4096], real[4096], text[64];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", temp_dir(), files[i]);
        ck_assert_ptr_nonnull(realpath(asset_path(strcat(strcpy(text, "target/"), files[i])), real));
        ck_assert_int_eq(symlink(real, path), 0);
    }
    snprintf(text, sizeof text, "{\"eos_token_id\": [%d]}", id);
    text_to_file(temp_path("generation_config.json"), text);
    return temp_dir();
}

/* Loop index: where in the answer the end id stands. */
START_TEST(an_end_id_that_is_not_the_end_of_turn_leaves_the_history)
{
    struct talk t = talk_open(0, 0, true);
    struct ids asked = talk_asked(&t, talk_questions[0]);
    talk_say(&t, talk_questions[0]);
    struct ids whole = talk_history(&t);
    int32_t end = whole.data[asked.len + (size_t)_i];
    int first = 0;
    while (whole.data[asked.len + (size_t)first] != end) first++;
    talk_close(&t);

    t = talk_open_target(target_with_end_id(end), 5, 0, true);
    talk_say(&t, talk_questions[0]);
    struct ids history = talk_history(&t), expected = talk_rendered(&t, talk_questions[1]);
    ck_assert_uint_eq(history.len, asked.len + (size_t)first);
    struct ids next = talk_asked(&t, talk_questions[1]);
    must_equal_ids(&next, &expected, "after another end id");
    ids_free(&asked);
    ids_free(&whole);
    ids_free(&history);
    ids_free(&expected);
    ids_free(&next);
    talk_close(&t);
}
END_TEST

/* Finetunes have it in tokenizer_config.json, and in config.json the end of the model from which they come. */
START_TEST(the_tokenizer_s_own_end_ends_answers_too)
{
    static const struct {
        const char *tokenizer_config;
        int count, ids[2];
    } cases[] = {{"{\"eos_token\": \"<|im_end|>\"}", 2, {1, 2}},
                 {"{\"eos_token\": {\"content\": \"<|im_end|>\", \"lstrip\": false}}", 2, {1, 2}},
                 {"{\"eos_token\": null}", 1, {1}},
                 {"{\"eos_token\": \"<|im_end|>\",}", 1, {1}},
                 {"{\"eos_token\": \"<|nowhere|>\"}", 1, {1}}};
    const char *dir = copy_model_with(asset_path("target"), "finetune", "eos_token_id", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct engine_options options = {.target = test_checkpoint(dir), .device = test_device(), .context = 64};
        struct engine *e;
        text_to_file(temp_path("finetune/tokenizer_config.json"), cases[i].tokenizer_config);
        ck_ok(engine_create(&e, &options));
        ck_assert_int_eq(engine_config(e)->end_count, cases[i].count);
        for (int j = 0; j < cases[i].count; j++) ck_assert_int_eq(engine_config(e)->end_ids[j], cases[i].ids[j]);
        engine_destroy(e);
    }
}
END_TEST

START_TEST(stopping_between_steps_keeps_what_was_seen)
{
    struct talk t = talk_open(4, 0, true);
    for (int steps = 1; steps < 6; steps++) {
        struct talk_listener l = {.cut_at = -1};
        struct generation g = talk_greedy(&l, 40);
        int running;
        ck_ok(conversation_ask(t.conversation, talk_questions[0], strlen(talk_questions[0]), &g, NULL));
        struct ids before = talk_history(&t);
        while (engine_load(t.engine).decoding == 0) ck_ok(engine_step(t.engine, &running));
        for (int i = 1; i < steps; i++) ck_ok(engine_step(t.engine, &running));
        engine_stop(t.engine, conversation_sequence(t.conversation));
        talk_store(&t, &l);
        struct ids after = talk_history(&t);
        ids_append(&before, l.ids.data, l.ids.len);
        must_equal_ids(&after, &before, "stopped");
        ids_free(&before);
        ids_free(&after);
        ids_free(&l.ids);
        talk_say(&t, talk_questions[1]);
    }
    talk_close(&t);
}
END_TEST

START_TEST(k_may_change_between_turns)
{
    struct talk t = talk_open(4, 0, true);
    const int k[] = {4, 0, 2, 0, 0, 8, 1};
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        ck_ok(engine_set_k(t.engine, k[i]));
        talk_say_cut(&t, talk_questions[i % 3], i % 2 ? 9 : -1, ANSWER);
    }
    talk_close(&t);
}
END_TEST

START_TEST(undo_leaves_a_chat_that_never_had_the_turn)
{
    struct talk never = talk_open(4, 0, true), t = talk_open(4, 0, true);
    talk_say(&never, talk_questions[0]);
    talk_say(&never, talk_questions[2]);
    talk_say(&t, talk_questions[0]);
    talk_say(&t, "Something else, which is much longer than the rest of it.");
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_turns(t.conversation), 1);
    talk_say(&t, talk_questions[2]);
    struct ids expected = talk_history(&never), got = talk_history(&t);
    must_equal_ids(&got, &expected, "after undo");
    ck_ok(conversation_undo(t.conversation));
    ck_ok(conversation_undo(t.conversation));
    ck_assert_int_eq(conversation_undo(t.conversation), ERR_USAGE);
    talk_say(&t, talk_questions[1]);
    ids_free(&expected);
    ids_free(&got);
    talk_close(&never);
    talk_close(&t);
}
END_TEST

START_TEST(reset_and_system_start_over)
{
    struct talk t = talk_open(4, 0, true);
    talk_say(&t, talk_questions[0]);
    struct ids first = talk_history(&t);
    talk_say(&t, talk_questions[1]);
    conversation_reset(t.conversation);
    ck_assert_int_eq(conversation_turns(t.conversation), 0);
    talk_say(&t, talk_questions[0]);
    struct ids again = talk_history(&t);
    must_equal_ids(&again, &first, "after reset");
    ck_ok(conversation_set_system(t.conversation, "You are a pirate.", 17));
    ck_assert_int_eq(conversation_turns(t.conversation), 0);
    struct ids expected = talk_rendered(&t, talk_questions[0]), got = talk_asked(&t, talk_questions[0]);
    must_equal_ids(&got, &expected, "with a system prompt");
    talk_say(&t, talk_questions[0]);
    ids_free(&first);
    ids_free(&again);
    ids_free(&expected);
    ids_free(&got);
    talk_close(&t);
}
END_TEST

Suite *check_conversation(void) {
    Suite *suite = suite_create("conversation");
    TCase *history = tcase_create("history");
    tcase_add_loop_test(history, every_k_gives_the_same_conversation, 1, 4);
    tcase_add_test(history, the_history_is_the_rendered_conversation);
    tcase_add_test(history, a_loaded_conversation_goes_on_like_the_rendered_one);
    tcase_add_test(history, messages_out_of_order_are_refused_and_nothing_changes);
    tcase_add_test(history, without_a_template_text_is_continued_as_it_stands);
    tcase_add_test(history, special_tokens_of_the_tokenizer_come_only_at_the_start);
    suite_add_tcase(suite, history);

    TCase *cuts = tcase_create("cuts");
    tcase_add_loop_test(cuts, an_answer_cut_anywhere_in_a_block_leaves_a_good_chat, 0, 8);
    tcase_add_loop_test(cuts, an_end_id_that_is_not_the_end_of_turn_leaves_the_history, 0, 7);
    tcase_add_test(cuts, the_tokenizer_s_own_end_ends_answers_too);
    tcase_add_test(cuts, stopping_between_steps_keeps_what_was_seen);
    tcase_add_test(cuts, k_may_change_between_turns);
    tcase_add_test(cuts, undo_leaves_a_chat_that_never_had_the_turn);
    tcase_add_test(cuts, reset_and_system_start_over);
    suite_add_tcase(suite, cuts);

    return suite;
}
