/* The program `duet chat` at a pseudo-terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "tests/support/chat_terminal.h"
#include "tests/support/engine_support.h"
#include "tests/support/faulty_host.h"
#include "tests/support/support.h"

#define STORY "--temperature", "0", "-n", "120", "--quiet"

START_TEST(the_banner_is_broken_between_words)
{
    struct terminal t = WIDE_TERMINAL(60, GREEDY);
    terminal_expect(&t, "draft embedded (0.9M),\r\nK auto, context 1024");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

START_TEST(an_error_is_broken_between_words_for_a_terminal)
{
    struct terminal t = WIDE_TERMINAL(60, "--temprature", "1");
    terminal_expect(&t, "duet: --temprature: no such option; did you mean\r\n--temperature?\r\n");
    ck_assert_int_eq(terminal_wait_end(&t), 2);
}
END_TEST

START_TEST(a_swapped_pair_and_options_that_mean_nothing_are_remarked)
{
    char target[4096], draft[4096];
    ck_assert_ptr_nonnull(realpath(asset_path("draft"), target));
    ck_assert_ptr_nonnull(realpath(asset_path("target"), draft));
    struct terminal t = WIDE_TERMINAL(1000, "--target", target, "--draft", draft, "--think", "off", "--date",
                                      "2025-06-28", "--reasoning-effort", "low", "-p", "Hello", "-n", "1");
    terminal_expect(&t, " is larger than the target ");
    terminal_expect(&t, ": are they swapped?");
    terminal_expect(&t, "--think: the chat template (chatml) has no thinking");
    terminal_expect(&t, "--reasoning-effort: the chat template (chatml) states none");
    terminal_expect(&t, "--date: the chat template (chatml) states no day's date");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* A model whose bracket is the token that ends a thought: "Dear [Your Name</think>,". */
START_TEST(a_thought_that_the_prompt_begins_is_dim_as_far_as_its_end)
{
    const char *dir = copy_model_with(asset_path("target"), "thinks", "vocab_size", 4096);
    char command[8192];
    snprintf(command, sizeof command, "sed -i 's#\"]\": 63#\"</think>\": 63#' %s/tokenizer.json", dir);
    ck_assert_int_eq(system(command), 0);
    struct terminal t = WIDE_TERMINAL(120, "--target", dir, "--template", "qwq", "--think", "off", "--temperature", "0",
                                      "-n", "16", "-p", "What are three fun facts?");
    terminal_expect(&t, "--think off: the chat template (qwq) always thinks");
    terminal_expect(&t, "\033[2mD\033[0m");
    terminal_expect(&t, "\033[2m</think>\033[0m,");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

START_TEST(a_terminal_gets_banner_answer_and_figures)
{
    struct terminal t = TERMINAL(GREEDY);
    terminal_expect(&t, "duet");
    terminal_expect(&t, "K auto, context 1024");
    terminal_expect_prompt(&t);
    terminal_type(&t, "What is the sun?\r");
    terminal_expect(&t, " tokens, ");
    terminal_expect(&t, " tok/s, first after ");
    terminal_expect(&t, " accepted, ");
    terminal_expect(&t, " times plain, context ");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/help\r");
    terminal_expect(&t, "/regen");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/show\r");
    terminal_expect(&t, "\033[32m");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/stats\r");
    terminal_expect(&t, "mean_acceptance_length");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* A draft that takes longer than its target loses, however much of it is accepted. */
START_TEST(answers_that_are_slower_than_plain_decoding_are_remarked_once)
{
    char small[4096], large[4096];
    ck_assert_ptr_nonnull(realpath(asset_path("draft"), small));
    ck_assert_ptr_nonnull(realpath(asset_path("target"), large));
    struct terminal t = TERMINAL("--target", small, "--draft", large, "--k", "8", "--seed", "1", "-n", "100", "--quiet",
                                 "--ignore-eos");
    for (int i = 0; i < 3; i++) {
        terminal_expect_prompt(&t);
        terminal_type(&t, "Tell me a story.\r");
        terminal_expect(&t, " times plain, context ");
    }
    terminal_expect(&t, "K = 8 makes these answers slower than plain decoding: /k auto chooses K");
    terminal_expect_prompt(&t);
    terminal_type(&t, "Go on.\r");
    terminal_expect(&t, " times plain, context ");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/k auto\r");
    ck_assert_ptr_null(strstr(terminal_expect(&t, "/k auto"), "slower than plain"));
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* Control characters as the terminal gets them, NUL and those of two bytes too. */
static void tame(const struct buf *text, struct buf *out) {
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i], next = (unsigned char)text->data[i + 1];
        if (c == 0xc2 && next < 0xa0)
            buf_printf(out, "^%c", (next & 0x7f) ^ 0x40), i++;
        else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            buf_printf(out, "^%c", c ^ 0x40);
        else
            buf_putc(out, (char)c);
    }
}

/* Neither the key nor what is typed meanwhile shows in the answer; that waits for the prompt. */
START_TEST(ctrl_c_keeps_what_was_shown_and_the_chat_goes_on)
{
    struct terminal t = WIDE_TERMINAL(30000, ENDLESS); /* no line gets so long */
    terminal_expect_prompt(&t);
    terminal_type(&t, "Tell me a long story.\r");
    terminal_expect(&t, "\033[?2004l");
    while (t.seen.len < 40) ck_assert(terminal_take(&t, WAIT_MS));
    terminal_type(&t, "/top-k 5");
    while (t.seen.len < 80) ck_assert(terminal_take(&t, WAIT_MS));
    terminal_type(&t, "5\003");
    struct buf shown = {0}, answer = {0}, kept = {0};
    for (const char *at = terminal_expect(&t, "\033[2m"); *at; at++)
        if (*at != '\r') buf_putc(&shown, *at);
    terminal_expect(&t, ", stopped");
    terminal_expect_prompt(&t);
    terminal_expect(&t, "/top-k 55");
    terminal_type(&t, "\r");
    terminal_expect(&t, "top-k 55");
    terminal_expect_prompt(&t);
    ck_assert_ptr_null(strstr(terminal_save(&t, "stopped.json"), "Ctrl-C again"));
    terminal_expect_prompt(&t);
    terminal_type(&t, "/max-tokens 5\r");
    terminal_expect_prompt(&t);
    terminal_type(&t, "Go on.\r");
    terminal_expect(&t, "cut at max-tokens");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    terminal_read_saved("stopped.json", &answer);
    tame(&answer, &kept);
    if (kept.data[kept.len - 1] != '\n') buf_putc(&kept, '\n');
    ck_assert_uint_gt(kept.len, 20);
    ck_assert_str_eq(buf_text(&shown), buf_text(&kept));
    buf_free(&shown);
    buf_free(&answer);
    buf_free(&kept);
}
END_TEST

/* The first byte of a character alone is U+FFFD, which is known when nothing follows. */
START_TEST(an_answer_that_ends_with_a_stop_string_was_not_cut)
{
    static const char *const seeds[] = {"22", "115", "125", "148"};
    for (int i = 0; i < 4; i++) {
        struct terminal t = TERMINAL("-n", "1", "--temperature", "1000", "--k", "0", "--seed", seeds[i], "--stop",
                                     "\xef\xbf\xbd", "--quiet");
        terminal_expect_prompt(&t);
        terminal_type(&t, "Hi\r");
        terminal_expect(&t, "1 token, ");
        ck_assert_ptr_null(strstr(terminal_expect(&t, "\r\n"), "cut at"));
        terminal_expect_prompt(&t);
        terminal_type(&t, "/exit\r");
        ck_assert_int_eq(terminal_wait_end(&t), 0);
    }
}
END_TEST

/* --- lines broken between words ------------------------------------------------------------------------------------ */

/* Without escape sequences, every run of blanks and line ends as one space. */
static void words_of(const char *text, struct buf *out) {
    buf_clear(out);
    for (const char *c = text; *c; c++) {
        if (*c == '\033')
            c += strcspn(c, "m");
        else if (!strchr(" \t\r\n", *c))
            buf_putc(out, *c);
        else if (out->len > 0 && out->data[out->len - 1] != ' ')
            buf_putc(out, ' ');
    }
}

/* Columns of the longest line, of ASCII and escape sequences. */
static size_t longest_line(const char *text) {
    size_t longest = 0, column = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '\033')
            c += strcspn(c, "m");
        else
            column = *c == '\n' ? 0 : column + (*c != '\r');
        if (column > longest) longest = column;
    }
    return longest;
}

static void expect_wrapped(const char *screen, const char *answer, size_t columns) {
    struct buf shown = {0}, said = {0};
    words_of(screen, &shown);
    words_of(answer, &said);
    ck_assert_uint_gt(strlen(answer), 2 * columns);
    ck_assert_str_eq(buf_text(&shown) + strspn(buf_text(&shown), " "), buf_text(&said));
    ck_assert_uint_le(longest_line(screen), columns);
    ck_assert_uint_gt(longest_line(screen), columns / 2);
    buf_free(&shown);
    buf_free(&said);
}

/* Streamed; by /show, in colours; and by /show once the terminal is narrower. Elsewhere lines are the answer's own. */
START_TEST(no_word_of_an_answer_is_broken_at_the_margin)
{
    enum { COLUMNS = 50, NARROWER = 30 };
    struct terminal t = WIDE_TERMINAL(COLUMNS, STORY);
    struct winsize narrower = {.ws_row = 40, .ws_col = NARROWER};
    struct buf answer = {0};
    struct program p;
    program_run(&p, NULL, CHAT_ARGUMENTS(STORY, "-p", "Tell me a story."));
    terminal_expect_prompt(&t);
    terminal_type(&t, "Tell me a story.\r");
    terminal_expect(&t, "\033[?2004l");
    expect_wrapped(terminal_expect(&t, "\033[2m"), buf_text(&p.out), COLUMNS);
    terminal_expect_prompt(&t);
    terminal_save(&t, "wrapped.json");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/show\r");
    terminal_expect(&t, "\033[?2004l");
    expect_wrapped(terminal_expect(&t, "\033[?2004h"), buf_text(&p.out), COLUMNS);
    ck_assert_int_eq(ioctl(t.fd, TIOCSWINSZ, &narrower), 0);
    terminal_type(&t, "/show\r");
    terminal_expect(&t, "\033[?2004l");
    expect_wrapped(terminal_expect(&t, "\033[?2004h"), buf_text(&p.out), NARROWER);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    terminal_read_saved("wrapped.json", &answer);
    buf_putc(&answer, '\n');
    ck_assert_str_eq(buf_text(&answer), buf_text(&p.out));
    program_free(&p);
    buf_free(&answer);
}
END_TEST

/* What is on a terminal of so many columns when the device fails. */
static void fail_in_an_answer(unsigned short columns, struct buf *shown) {
    struct terminal t = WIDE_TERMINAL(columns, STORY, "--k", "3"); /* the same work each time */
    terminal_expect_prompt(&t);
    terminal_type(&t, "Tell me a story.\r");
    terminal_expect(&t, "\033[?2004l");
    words_of(terminal_expect(&t, "\r\nduet: "), shown);
    terminal_expect(&t, "the device went away");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}

START_TEST(an_error_in_an_answer_leaves_all_of_its_text_on_the_screen)
{
    struct buf streamed = {0}, wrapped = {0};
    faulty_host.waits = 16 + _i;
    setenv("DUET_ASSETS", asset_path(""), 1);
    fail_in_an_answer(0, &streamed);
    fail_in_an_answer(30000, &wrapped);
    ck_assert_uint_gt(streamed.len, 20);
    ck_assert_str_eq(buf_text(&streamed), buf_text(&wrapped));
    buf_free(&streamed);
    buf_free(&wrapped);
}
END_TEST

START_TEST(ctrl_c_at_the_prompt_drops_the_line_and_twice_ends)
{
    struct terminal t = TERMINAL("--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "a line that goes away");
    terminal_expect(&t, "away");
    terminal_type(&t, "\003");
    terminal_expect(&t, "Ctrl-C again");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/k\r");
    terminal_expect(&t, "k auto");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\003");
    terminal_expect(&t, "Ctrl-C again");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\003");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

START_TEST(several_lines_by_backslash_paste_or_quotes_are_one_turn)
{
    char path[256], save[300];
    snprintf(path, sizeof path, "%s", temp_path("lines.json"));
    snprintf(save, sizeof save, "/save %s\r", path);
    struct terminal t = TERMINAL("--quiet", GREEDY);
    terminal_expect_prompt(&t);
    terminal_type(&t, "one\\\r");
    terminal_expect(&t, ".\033[0m ");
    terminal_type(&t, "two \xc3\xa9\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\033[200~three\rfour\033[201~ five\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\033[200~\"\"\"six\"\"\"\rseven\033[201~\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\"\"\"\r");
    terminal_expect(&t, ".\033[0m ");
    terminal_type(&t, "eight\r");
    terminal_expect(&t, ".\033[0m ");
    terminal_type(&t, "nine\"\"\"\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, save);
    terminal_expect(&t, "4 turns saved");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);

    struct buf raw = {0};
    text_of_file(path, &raw);
    ck_assert_msg(strstr(buf_text(&raw), "\"one\\ntwo \xc3\xa9\""), "%s", buf_text(&raw));
    ck_assert_msg(strstr(buf_text(&raw), "\"three\\nfour five\""), "%s", buf_text(&raw));
    ck_assert_msg(strstr(buf_text(&raw), "\"\\\"\\\"\\\"six\\\"\\\"\\\"\\nseven\""), "%s", buf_text(&raw));
    ck_assert_msg(strstr(buf_text(&raw), "\"eight\\nnine\""), "%s", buf_text(&raw));
    buf_free(&raw);
}
END_TEST

START_TEST(history_is_kept_between_chats)
{
    struct terminal t = TERMINAL("--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/top-k 77\r");
    terminal_expect(&t, "top-k 77");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    t = TERMINAL("--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\033[A\r");
    terminal_expect(&t, "/top-k 77");
    terminal_expect(&t, "top-k 77");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* One after the other at first; then all at once, for the lock. */
START_TEST(chats_side_by_side_lose_no_line_of_the_history)
{
    enum { CHATS = 3, LINES_EACH = 12 };
    struct terminal chats[CHATS];
    struct buf lines = {0}, file = {0};
    for (int i = 0; i < CHATS; i++) {
        chats[i] = TERMINAL("--quiet");
        terminal_expect_prompt(&chats[i]);
    }
    for (int i = 0; i < CHATS; i++) {
        terminal_type(&chats[i], (const char *const[]){"/top-k 11\r", "/top-k 22\r", "/top-k 33\r"}[i]);
        terminal_expect(&chats[i], "top-k");
        terminal_expect_prompt(&chats[i]);
    }
    for (int i = 0; i < CHATS; i++) {
        buf_clear(&lines);
        for (int k = 0; k < LINES_EACH; k++) buf_printf(&lines, "/top-k %d\r", 1000 + 100 * i + k);
        terminal_type(&chats[i], buf_text(&lines));
    }
    for (int i = 0; i < CHATS; i++) {
        for (int k = 0; k < LINES_EACH; k++) terminal_expect_prompt(&chats[i]);
        terminal_type(&chats[i], "\004");
        ck_assert_int_eq(terminal_wait_end(&chats[i]), 0);
    }
    text_of_file(temp_path("duet/history"), &file);
    ck_assert_int_eq(count_lines(&file), 1 + CHATS * (1 + LINES_EACH)); /* the first one is libedit's mark */
    const char *a = strstr(buf_text(&file), "11\n"), *b = strstr(buf_text(&file), "22\n"),
               *c = strstr(buf_text(&file), "33\n");
    ck_assert_msg(a && b && c && a < b && b < c, "%s", buf_text(&file));
    buf_free(&lines);
    buf_free(&file);
}
END_TEST

START_TEST(the_history_file_keeps_the_newest_thousand_lines_and_is_private)
{
    struct buf old = {0}, file = {0};
    struct stat st;
    buf_puts(&old, "_HiStOrY_V2_\n");
    for (int i = 0; i < 1500; i++) buf_printf(&old, "line\\040%d\n", i);
    ck_assert_int_eq(mkdir(temp_path("duet"), 0700), 0);
    text_to_file(temp_path("duet/history"), buf_text(&old));
    struct terminal t = TERMINAL("--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/k\r");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    text_of_file(temp_path("duet/history"), &file);
    ck_assert_int_eq(count_lines(&file), 1001);
    ck_assert_ptr_nonnull(strstr(buf_text(&file), "\nline\\040501\n"));
    ck_assert_str_eq(buf_text(&file) + file.len - 16, "line\\0401499\n/k\n");
    ck_assert_int_eq(stat(temp_path("duet/history"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    buf_free(&old);
    buf_free(&file);
}
END_TEST

START_TEST(ctrl_c_ends_a_single_answer_with_130)
{
    struct terminal t = TERMINAL(ENDLESS, "-p", "Tell me a story.");
    while (t.seen.len < 40) ck_assert(terminal_take(&t, WAIT_MS));
    terminal_type(&t, "\003");
    ck_assert_int_eq(terminal_wait_end(&t), 130);
}
END_TEST

/* --- Ctrl-C before the first token ---------------------------------------------------------------------------------- */

/* More tokens than two chunks of the host hold. */
static const char *long_question(void) {
    static struct buf text;
    buf_clear(&text);
    for (int i = 0; i < 60; i++) buf_puts(&text, "Tell me of the cat, the dog and the moon. ");
    return buf_text(&text);
}

START_TEST(ctrl_c_in_a_prompt_ends_a_single_answer_at_the_next_chunk)
{
    const char *arguments[] = {"duet", "chat", "--threads", "1", "--k", "0", "-p", long_question()};
    setenv("DUET_ASSETS", asset_path(""), 1);
    faulty_host.interrupt_at = 1;
    ck_assert_int_eq(chat_here(sizeof arguments / sizeof *arguments, (char **)arguments), 130);
    ck_assert_int_eq(faulty_host.records, 1); /* neither a chunk nor a round came after it */
}
END_TEST

/* In the first chunk of a long prompt. */
START_TEST(ctrl_c_before_the_first_token_takes_the_question_back)
{
    faulty_host.interrupt_at = 1;
    setenv("DUET_ASSETS", asset_path(""), 1);
    struct terminal t = TERMINAL("--quiet", "--k=0", GREEDY);
    terminal_expect_prompt(&t);
    terminal_type(&t, long_question());
    terminal_type(&t, "\r");
    terminal_expect(&t, "the question is taken back");
    ck_assert_ptr_null(strstr(terminal_expect(&t, ">\033[0m "), "tok/s"));
    terminal_type(&t, "What is the moon?\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_save(&t, "taken-back.json");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    struct buf answer = {0};
    struct program p;
    terminal_read_saved("taken-back.json", &answer);
    program_run(&p, NULL, CHAT_ARGUMENTS("--k=0", GREEDY, "-p", "What is the moon?"));
    ck_assert_int_eq(strncmp(buf_text(&p.out), buf_text(&answer), answer.len), 0);
    ck_assert_uint_gt(answer.len, 0);
    program_free(&p);
    buf_free(&answer);
}
END_TEST

/* An answer of one token is four chunks, a slot and a round; Ctrl-C comes in the first chunk of the question asked again. */
START_TEST(ctrl_c_before_the_first_token_of_regen_keeps_the_answer)
{
    faulty_host.interrupt_at = 7;
    setenv("DUET_ASSETS", asset_path(""), 1);
    struct terminal t = TERMINAL("--quiet", "--k=0", "--temperature", "0", "-n", "1");
    terminal_expect_prompt(&t);
    terminal_type(&t, long_question());
    terminal_type(&t, "\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/regen\r");
    terminal_expect(&t, "the one before stays");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/show\r");
    ck_assert_ptr_null(strstr(terminal_expect(&t, ">\033[0m "), "no answer to show"));
    terminal_save(&t, "kept.json");
    terminal_expect_prompt(&t);
    terminal_type(&t, "And the moon?\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    struct buf answer = {0};
    struct program p;
    terminal_read_saved("kept.json", &answer);
    program_run(&p, NULL, CHAT_ARGUMENTS("--k=0", "--temperature", "0", "-n", "1", "-p", long_question()));
    ck_assert_int_eq(strncmp(buf_text(&p.out), buf_text(&answer), answer.len), 0);
    ck_assert_uint_gt(answer.len, 0);
    program_free(&p);
    buf_free(&answer);
}
END_TEST

Suite *check_chat_terminal(void) {
    Suite *suite = suite_create("chat terminal");
    TCase *terminal = tcase_create("terminal");
    tcase_add_test(terminal, the_banner_is_broken_between_words);
    tcase_add_test(terminal, an_error_is_broken_between_words_for_a_terminal);
    tcase_add_test(terminal, a_swapped_pair_and_options_that_mean_nothing_are_remarked);
    tcase_add_test(terminal, a_thought_that_the_prompt_begins_is_dim_as_far_as_its_end);
    tcase_add_test(terminal, a_terminal_gets_banner_answer_and_figures);
    tcase_add_test(terminal, answers_that_are_slower_than_plain_decoding_are_remarked_once);
    tcase_add_test(terminal, ctrl_c_keeps_what_was_shown_and_the_chat_goes_on);
    tcase_add_test(terminal, an_answer_that_ends_with_a_stop_string_was_not_cut);
    tcase_add_test(terminal, no_word_of_an_answer_is_broken_at_the_margin);
    tcase_add_loop_test(terminal, an_error_in_an_answer_leaves_all_of_its_text_on_the_screen, 0, 2);
    tcase_add_test(terminal, ctrl_c_at_the_prompt_drops_the_line_and_twice_ends);
    tcase_add_test(terminal, several_lines_by_backslash_paste_or_quotes_are_one_turn);
    tcase_add_test(terminal, history_is_kept_between_chats);
    tcase_add_test(terminal, chats_side_by_side_lose_no_line_of_the_history);
    tcase_add_test(terminal, the_history_file_keeps_the_newest_thousand_lines_and_is_private);
    tcase_add_test(terminal, ctrl_c_ends_a_single_answer_with_130);
    tcase_add_test(terminal, ctrl_c_in_a_prompt_ends_a_single_answer_at_the_next_chunk);
    tcase_add_test(terminal, ctrl_c_before_the_first_token_takes_the_question_back);
    tcase_add_test(terminal, ctrl_c_before_the_first_token_of_regen_keeps_the_answer);
    suite_add_tcase(suite, terminal);
    return suite;
}
