/* The program `duet chat` at a pseudo-terminal. */
#include <locale.h>
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "tests/support/faulty_host.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

enum { WAIT_MS = 60000 };

#define CHAT_ARGUMENTS(...) ARGUMENTS("chat", "--threads", "1", __VA_ARGS__)
#define GREEDY              "--temperature", "0", "-n", "16", "--stop", "\n"
#define STORY               "--temperature", "0", "-n", "120", "--quiet"

struct terminal {
    pid_t pid;
    int fd;
    struct buf seen; /* since the last `expect` */
};

/* duet chat in this process, so that faulty_host can time a Ctrl-C or a failure. */
static int run_chat(int argc, char **argv) {
    struct options o;
    setlocale(LC_CTYPE, "");
    ck_ok(options_parse(&o, argc, argv));
    terminal_init(&o);
    signals_init();
    int status = chat_main(&o);
    fflush(stdout);
    return status;
}

/* The program in a terminal of its own of so many columns, with its history in temp_dir(). */
static struct terminal open_terminal(unsigned short columns, const char *const *arguments) {
    const char *argv[32] = {program_path()}, *state = temp_dir();
    int argc = 1;
    struct terminal t = {0};
    struct winsize size = {.ws_row = 40, .ws_col = columns};
    while (arguments[argc - 1] && argc + 1 < 32) argv[argc] = arguments[argc - 1], argc++;
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    ck_assert_int_ge(t.pid, 0);
    if (t.pid > 0) return t;
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("XDG_STATE_HOME", state, 1);
    if (faulty_host.interrupt_at > 0 || faulty_host.waits > 0) _exit(run_chat(argc, (char **)argv));
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

#define WIDE_TERMINAL(columns, ...) open_terminal(columns, CHAT_ARGUMENTS(__VA_ARGS__))
#define TERMINAL(...)               WIDE_TERMINAL(120, __VA_ARGS__)

/* Reads what is there, waiting up to `ms`. false: the program has closed the terminal, or nothing came. */
static bool take(struct terminal *t, int ms) {
    char block[4096];
    struct pollfd p = {t->fd, POLLIN, 0};
    if (poll(&p, 1, ms) <= 0) return false;
    ssize_t n = read(t->fd, block, sizeof block);
    if (n <= 0) return false;
    buf_append(&t->seen, block, (size_t)n);
    return true;
}

/* Waits until `text` has come; drops everything up to its end. Returns what stood before it (static until the next). */
static const char *expect(struct terminal *t, const char *text) {
    static struct buf before;
    int64_t end_us = clock_us() + (int64_t)WAIT_MS * 1000;
    char *at;
    while (!(at = strstr(buf_text(&t->seen), text)))
        if (!take(t, WAIT_MS) || clock_us() > end_us) ck_abort_msg("no '%s' in: %s", text, buf_text(&t->seen));
    size_t n = (size_t)(at - t->seen.data), drop = n + strlen(text);
    buf_clear(&before);
    buf_append(&before, t->seen.data, n);
    memmove(t->seen.data, t->seen.data + drop, t->seen.len - drop + 1);
    t->seen.len -= drop;
    return buf_text(&before);
}

static void type(struct terminal *t, const char *keys) {
    size_t n = strlen(keys);
    ck_assert_int_eq(write(t->fd, keys, n), (ssize_t)n);
}

/* The status that the program ends with. */
static int wait_end(struct terminal *t) {
    int status;
    while (take(t, WAIT_MS)) {
    }
    ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    buf_free(&t->seen);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* libedit's prompt, drawn and waiting for keys. */
static void expect_prompt(struct terminal *t) {
    expect(t, "\033[?2004h");
    expect(t, ">\033[0m ");
}

START_TEST(the_banner_is_broken_between_words)
{
    struct terminal t = WIDE_TERMINAL(60, GREEDY);
    expect(&t, "draft embedded (0.9M),\r\nK 4, context 1024");
    expect_prompt(&t);
    type(&t, "/exit\r");
    ck_assert_int_eq(wait_end(&t), 0);
}
END_TEST

START_TEST(a_terminal_gets_banner_answer_and_figures)
{
    struct terminal t = TERMINAL(GREEDY);
    expect(&t, "duet");
    expect(&t, "K 4, context 1024");
    expect_prompt(&t);
    type(&t, "What is the sun?\r");
    expect(&t, " tokens, ");
    expect(&t, " tok/s, first after ");
    expect(&t, " accepted");
    expect_prompt(&t);
    type(&t, "/help\r");
    expect(&t, "/regen");
    expect_prompt(&t);
    type(&t, "/show\r");
    expect(&t, "\033[32m");
    expect_prompt(&t);
    type(&t, "/stats\r");
    expect(&t, "mean_acceptance_length");
    expect_prompt(&t);
    type(&t, "/exit\r");
    ck_assert_int_eq(wait_end(&t), 0);
}
END_TEST

/* At a high temperature hardly any answer ends by itself. */
#define ENDLESS "--temperature", "9", "--seed", "3", "--quiet"

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

/* Saves a chat of one turn as `name` in temp_dir(); returns what was shown meanwhile. */
static const char *save_chat(struct terminal *t, const char *name) {
    type(t, "/save ");
    type(t, temp_path(name));
    type(t, "\r");
    return expect(t, "1 turn saved");
}

static void read_answer(const char *name, struct buf *answer) {
    cJSON *object;
    ck_ok(json_parse_file(&object, temp_path(name)));
    ck_assert(json_string(json_get(cJSON_GetArrayItem(json_get(object, "messages"), 1), "content"), answer));
    cJSON_Delete(object);
}

START_TEST(ctrl_c_keeps_what_was_shown_and_the_chat_goes_on)
{
    struct terminal t = WIDE_TERMINAL(30000, ENDLESS); /* no line gets so long */
    expect_prompt(&t);
    type(&t, "Tell me a long story.\r");
    expect(&t, "\033[?2004l");
    while (t.seen.len < 40) ck_assert(take(&t, WAIT_MS));
    type(&t, "\003");
    struct buf shown = {0}, answer = {0}, kept = {0};
    for (const char *at = expect(&t, "\033[2m"); *at; at++)
        if (*at != '\r') buf_putc(&shown, *at);
    expect(&t, ", stopped");
    expect_prompt(&t);
    ck_assert_ptr_null(strstr(save_chat(&t, "stopped.json"), "Ctrl-C again"));
    expect_prompt(&t);
    type(&t, "/max-tokens 5\r");
    expect_prompt(&t);
    type(&t, "Go on.\r");
    expect(&t, "cut at max-tokens");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
    read_answer("stopped.json", &answer);
    tame(&answer, &kept);
    if (kept.data[kept.len - 1] != '\n') buf_putc(&kept, '\n');
    ck_assert_uint_gt(kept.len, 20);
    ck_assert_str_eq(buf_text(&shown), buf_text(&kept));
    buf_free(&shown);
    buf_free(&answer);
    buf_free(&kept);
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
    expect_prompt(&t);
    type(&t, "Tell me a story.\r");
    expect(&t, "\033[?2004l");
    expect_wrapped(expect(&t, "\033[2m"), buf_text(&p.out), COLUMNS);
    expect_prompt(&t);
    save_chat(&t, "wrapped.json");
    expect_prompt(&t);
    type(&t, "/show\r");
    expect(&t, "\033[?2004l");
    expect_wrapped(expect(&t, "\033[?2004h"), buf_text(&p.out), COLUMNS);
    ck_assert_int_eq(ioctl(t.fd, TIOCSWINSZ, &narrower), 0);
    type(&t, "/show\r");
    expect(&t, "\033[?2004l");
    expect_wrapped(expect(&t, "\033[?2004h"), buf_text(&p.out), NARROWER);
    type(&t, "/exit\r");
    ck_assert_int_eq(wait_end(&t), 0);
    read_answer("wrapped.json", &answer);
    buf_putc(&answer, '\n');
    ck_assert_str_eq(buf_text(&answer), buf_text(&p.out));
    program_free(&p);
    buf_free(&answer);
}
END_TEST

/* What is on a terminal of so many columns when the device fails. */
static void fail_in_an_answer(unsigned short columns, struct buf *shown) {
    struct terminal t = WIDE_TERMINAL(columns, STORY);
    expect_prompt(&t);
    type(&t, "Tell me a story.\r");
    expect(&t, "\033[?2004l");
    words_of(expect(&t, "\r\nduet: "), shown);
    expect(&t, "the device went away");
    expect_prompt(&t);
    type(&t, "/exit\r");
    ck_assert_int_eq(wait_end(&t), 0);
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
    expect_prompt(&t);
    type(&t, "a line that goes away");
    expect(&t, "away");
    type(&t, "\003");
    expect(&t, "Ctrl-C again");
    expect_prompt(&t);
    type(&t, "/k\r");
    expect(&t, "k 4");
    expect_prompt(&t);
    type(&t, "\003");
    expect(&t, "Ctrl-C again");
    expect_prompt(&t);
    type(&t, "\003");
    ck_assert_int_eq(wait_end(&t), 0);
}
END_TEST

START_TEST(several_lines_by_backslash_and_by_paste_are_one_turn)
{
    char path[256], save[300];
    snprintf(path, sizeof path, "%s", temp_path("lines.json"));
    snprintf(save, sizeof save, "/save %s\r", path);
    struct terminal t = TERMINAL("--quiet", GREEDY);
    expect_prompt(&t);
    type(&t, "one\\\r");
    expect(&t, ".\033[0m ");
    type(&t, "two \xc3\xa9\r");
    expect(&t, "tok/s");
    expect_prompt(&t);
    type(&t, "\033[200~three\rfour\033[201~ five\r");
    expect(&t, "tok/s");
    expect_prompt(&t);
    type(&t, save);
    expect(&t, "2 turns saved");
    expect_prompt(&t);
    type(&t, "/exit\r");
    ck_assert_int_eq(wait_end(&t), 0);

    struct buf raw = {0};
    text_of_file(path, &raw);
    ck_assert_msg(strstr(buf_text(&raw), "\"one\\ntwo \xc3\xa9\""), "%s", buf_text(&raw));
    ck_assert_msg(strstr(buf_text(&raw), "\"three\\nfour five\""), "%s", buf_text(&raw));
    buf_free(&raw);
}
END_TEST

START_TEST(history_is_kept_between_chats)
{
    struct terminal t = TERMINAL("--quiet");
    expect_prompt(&t);
    type(&t, "/top-k 77\r");
    expect(&t, "top-k 77");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
    t = TERMINAL("--quiet");
    expect_prompt(&t);
    type(&t, "\033[A\r");
    expect(&t, "/top-k 77");
    expect(&t, "top-k 77");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
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
        expect_prompt(&chats[i]);
    }
    for (int i = 0; i < CHATS; i++) {
        type(&chats[i], (const char *const[]){"/top-k 11\r", "/top-k 22\r", "/top-k 33\r"}[i]);
        expect(&chats[i], "top-k");
        expect_prompt(&chats[i]);
    }
    for (int i = 0; i < CHATS; i++) {
        buf_clear(&lines);
        for (int k = 0; k < LINES_EACH; k++) buf_printf(&lines, "/top-k %d\r", 1000 + 100 * i + k);
        type(&chats[i], buf_text(&lines));
    }
    for (int i = 0; i < CHATS; i++) {
        for (int k = 0; k < LINES_EACH; k++) expect_prompt(&chats[i]);
        type(&chats[i], "\004");
        ck_assert_int_eq(wait_end(&chats[i]), 0);
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
    expect_prompt(&t);
    type(&t, "/k\r");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
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
    while (t.seen.len < 40) ck_assert(take(&t, WAIT_MS));
    type(&t, "\003");
    ck_assert_int_eq(wait_end(&t), 130);
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
    ck_assert_int_eq(run_chat(sizeof arguments / sizeof *arguments, (char **)arguments), 130);
    ck_assert_int_eq(faulty_host.records, 1); /* neither a chunk nor a round came after it */
}
END_TEST

/* In the first chunk of a long prompt. */
START_TEST(ctrl_c_before_the_first_token_takes_the_question_back)
{
    faulty_host.interrupt_at = 1;
    setenv("DUET_ASSETS", asset_path(""), 1);
    struct terminal t = TERMINAL("--quiet", "--k=0", GREEDY);
    expect_prompt(&t);
    type(&t, long_question());
    type(&t, "\r");
    expect(&t, "the question is taken back");
    ck_assert_ptr_null(strstr(expect(&t, ">\033[0m "), "tok/s"));
    type(&t, "What is the moon?\r");
    expect(&t, "tok/s");
    expect_prompt(&t);
    save_chat(&t, "taken-back.json");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
    struct buf answer = {0};
    struct program p;
    read_answer("taken-back.json", &answer);
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
    expect_prompt(&t);
    type(&t, long_question());
    type(&t, "\r");
    expect(&t, "tok/s");
    expect_prompt(&t);
    type(&t, "/regen\r");
    expect(&t, "the one before stays");
    expect_prompt(&t);
    type(&t, "/show\r");
    ck_assert_ptr_null(strstr(expect(&t, ">\033[0m "), "no answer to show"));
    save_chat(&t, "kept.json");
    expect_prompt(&t);
    type(&t, "And the moon?\r");
    expect(&t, "tok/s");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
    struct buf answer = {0};
    struct program p;
    read_answer("kept.json", &answer);
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
    tcase_set_timeout(terminal, 120);
    tcase_add_test(terminal, the_banner_is_broken_between_words);
    tcase_add_test(terminal, a_terminal_gets_banner_answer_and_figures);
    tcase_add_test(terminal, ctrl_c_keeps_what_was_shown_and_the_chat_goes_on);
    tcase_add_test(terminal, no_word_of_an_answer_is_broken_at_the_margin);
    tcase_add_loop_test(terminal, an_error_in_an_answer_leaves_all_of_its_text_on_the_screen, 0, 2);
    tcase_add_test(terminal, ctrl_c_at_the_prompt_drops_the_line_and_twice_ends);
    tcase_add_test(terminal, several_lines_by_backslash_and_by_paste_are_one_turn);
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
