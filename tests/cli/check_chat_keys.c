/* Keys and ends of the program `duet chat` at a pseudo-terminal: Ctrl-C twice, Tab, Ctrl-Z, what is kept at the end. */
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/support/chat_terminal.h"
#include "tests/support/support.h"

START_TEST(a_key_between_two_ctrl_c_keeps_the_chat)
{
    struct terminal t = TERMINAL("--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\003");
    terminal_expect(&t, "Ctrl-C again");
    terminal_expect_prompt(&t);
    terminal_type(&t, "typed");
    terminal_expect(&t, "typed");
    terminal_type(&t, "\003");
    terminal_expect(&t, "Ctrl-C again");
    terminal_expect_prompt(&t);
    terminal_type(&t, "x");
    terminal_expect(&t, "x");
    terminal_type(&t, "\177");
    terminal_expect(&t, ">\033[0m ");
    terminal_type(&t, "\003");
    terminal_expect(&t, "Ctrl-C again");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\003");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* Ends the chat in one of the ways that there are; returns the status that it shall have. */
static int leave(struct terminal *t, int way) {
    static const int signals[] = {SIGTERM, SIGHUP, SIGQUIT};
    if (way == 0) {
        terminal_type(t, "\003");
        terminal_expect(t, "Ctrl-C again");
        terminal_expect_prompt(t);
    }
    if (way < 3) terminal_type(t, (const char *const[]){"\003", "\004", "/exit\r"}[way]);
    if (way >= 3) ck_assert_int_eq(kill(t->pid, signals[way - 3]), 0);
    return way < 3 ? 0 : 128 + signals[way - 3];
}

START_TEST(a_chat_that_ends_is_kept_and_loads_again)
{
    struct terminal t = TERMINAL("--quiet", GREEDY);
    struct buf answer = {0};
    struct stat st;
    terminal_expect_prompt(&t);
    terminal_type(&t, "What is the sun?\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    int status = leave(&t, _i);
    terminal_expect(&t, "duet/last.json; /load goes on with it");
    ck_assert_int_eq(terminal_wait_end(&t), status);
    ck_assert_int_eq(stat(temp_path("duet/last.json"), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    terminal_read_saved("duet/last.json", &answer);
    struct program p;
    setenv("XDG_STATE_HOME", temp_dir(), 1);
    program_run(&p, "What is the sun?\nAnd the moon?\n", CHAT_ARGUMENTS(GREEDY));
    const char *second = strchr(buf_text(&p.out), '\n') + 1;
    ck_assert_int_eq(strncmp(buf_text(&p.out), buf_text(&answer), answer.len), 0);
    struct program loaded;
    program_run(&loaded, "/load\nAnd the moon?\n", CHAT_ARGUMENTS(GREEDY));
    ck_assert_str_eq(buf_text(&loaded.out), second);
    program_free(&p);
    program_free(&loaded);
    buf_free(&answer);
}
END_TEST

START_TEST(a_chat_that_cannot_be_kept_says_so_and_in_its_status)
{
    text_to_file(temp_path("duet"), "in the way");
    struct terminal t = TERMINAL("--quiet", GREEDY);
    terminal_expect_prompt(&t);
    terminal_type(&t, "What is the sun?\r");
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    terminal_expect(&t, "duet: the conversation is not kept: ");
    terminal_expect(&t, "duet/last.json");
    terminal_expect(&t, "Not a directory");
    ck_assert_int_eq(terminal_wait_end(&t), 1);
}
END_TEST

START_TEST(tab_completes_commands_settings_values_and_files)
{
    char keys[400];
    text_to_file(temp_path("only.txt"), "A cat.");
    struct terminal t = TERMINAL("--quiet", "-n", "4");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/sy\t");
    terminal_expect(&t, "stem ");
    terminal_type(&t, "default\r");
    terminal_expect(&t, "the template's system prompt");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/set acc\tbl\t\r");
    terminal_expect(&t, "\r\n");
    terminal_expect(&t, "accept block");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/top-\t");
    terminal_expect(&t, "\r\n/top-k  /top-p");
    terminal_type(&t, "k\t9\r");
    terminal_expect(&t, "top-k 9\033");
    terminal_expect_prompt(&t);
    snprintf(keys, sizeof keys, "/read %s\t\r", temp_path("on"));
    terminal_type(&t, keys);
    terminal_expect(&t, "only.txt: 6 characters, ");
    terminal_expect_prompt(&t);
    snprintf(keys, sizeof keys, "/save %s\t", temp_dir());
    terminal_type(&t, keys);
    terminal_expect(&t, strrchr(temp_dir(), '/') + 1);
    terminal_expect(&t, "/"); /* that Tab put in */
    terminal_type(&t, "\003");
    terminal_expect_prompt(&t);
    terminal_type(&t, "a\tb\r"); /* no command */
    terminal_expect(&t, "tok/s");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
    struct buf text = {0};
    text_of_file(temp_path("duet/last.json"), &text);
    ck_assert_msg(strstr(buf_text(&text), "\"A cat.\\na\\tb\""), "%s", buf_text(&text));
    buf_free(&text);
}
END_TEST

START_TEST(the_footer_says_seed_and_context_and_can_be_left_out)
{
    struct terminal t = TERMINAL("--seed", "123", "-n", "6", "--quiet");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/footer full\r");
    terminal_expect_prompt(&t);
    terminal_type(&t, "Hello\r");
    terminal_expect(&t, ", context ");
    terminal_expect(&t, "/1024 (");
    terminal_expect(&t, " left), seed 123");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/set footer off\r");
    terminal_expect_prompt(&t);
    terminal_type(&t, "/temp 0\r");
    terminal_expect_prompt(&t);
    terminal_type(&t, "Hello\r");
    ck_assert_ptr_null(strstr(terminal_expect(&t, ">\033[0m "), "tok/s"));
    terminal_type(&t, "/exit\r");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

/* --- Ctrl-Z ---------------------------------------------------------------------------------------------------------- */

/* What a shell does with a job: waits until it stops or ends, takes the terminal, and continues it. Returns whether the terminal
 * was as before each time, and the job ended with 0. */
static bool keep_job(pid_t job, const struct termios *before) {
    bool same = true;
    int status;
    struct termios now;
    do {
        if (waitpid(job, &status, WUNTRACED) != job) return false;
        tcsetpgrp(STDIN_FILENO, getpgrp());
        tcgetattr(STDIN_FILENO, &now);
        same = same && now.c_lflag == before->c_lflag && now.c_iflag == before->c_iflag;
        if (!WIFSTOPPED(status)) break;
        tcsetpgrp(STDIN_FILENO, job);
        kill(-job, SIGCONT);
    } while (true);
    return same && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void run_as_job(const char *const *arguments) {
    struct termios before;
    signal(SIGTTOU, SIG_IGN);
    tcgetattr(STDIN_FILENO, &before);
    pid_t job = fork();
    if (job != 0) {
        setpgid(job, job);
        _exit(job > 0 && keep_job(job, &before) ? 0 : 1);
    }
    setpgid(0, 0);
    tcsetpgrp(STDIN_FILENO, getpid());
    signal(SIGTTOU, SIG_DFL);
    execv(program_path(), (char *const *)arguments);
    _exit(127);
}

START_TEST(a_stopped_chat_gives_the_terminal_back_and_goes_on)
{
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    struct terminal t = {0};
    const char *state = temp_dir();
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    ck_assert_int_ge(t.pid, 0);
    if (t.pid == 0) {
        terminal_set_environment(state);
        run_as_job(ARGUMENTS("duet", "chat", "--threads", "1", ENDLESS));
    }
    terminal_expect_prompt(&t);
    terminal_type(&t, "\032");
    terminal_expect(&t, "\033[?2004l");
    terminal_expect_prompt(&t);
    terminal_type(&t, "Tell me a story.\r");
    terminal_expect(&t, "\033[?2004l");
    while (t.seen.len < 40) ck_assert(terminal_take(&t, WAIT_MS));
    terminal_type(&t, "\032");
    terminal_expect(&t, "\033[?2004l");
    while (t.seen.len < 40) ck_assert(terminal_take(&t, WAIT_MS));
    terminal_type(&t, "\003");
    terminal_expect(&t, ", stopped");
    terminal_expect_prompt(&t);
    terminal_type(&t, "\004");
    ck_assert_int_eq(terminal_wait_end(&t), 0);
}
END_TEST

Suite *check_chat_keys(void) {
    Suite *suite = suite_create("chat keys");
    TCase *keys = tcase_create("keys");
    tcase_set_timeout(keys, 120);
    tcase_add_test(keys, a_key_between_two_ctrl_c_keeps_the_chat);
    tcase_add_loop_test(keys, a_chat_that_ends_is_kept_and_loads_again, 0, 6);
    tcase_add_test(keys, a_chat_that_cannot_be_kept_says_so_and_in_its_status);
    tcase_add_test(keys, tab_completes_commands_settings_values_and_files);
    tcase_add_test(keys, the_footer_says_seed_and_context_and_can_be_left_out);
    tcase_add_test(keys, a_stopped_chat_gives_the_terminal_back_and_goes_on);
    suite_add_tcase(suite, keys);
    return suite;
}
