/* The program `duet chat` from outside: through pipes, and at a pseudo-terminal. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "tests/support.h"

enum { ARGS_MAX = 24, WAIT_MS = 60000 };

static const char *program(void) {
    const char *path = getenv("DUET");
    return path ? path : "build/duet";
}

/* The child's part: the program with "chat" and `args` (NULL-terminated); `state` is where it keeps its history. */
static void exec_chat(const char *const *args, const char *state) {
    const char *argv[ARGS_MAX] = {program(), "chat"};
    for (int i = 0; args[i] && i + 3 < ARGS_MAX; i++) argv[i + 2] = args[i];
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("XDG_STATE_HOME", state, 1);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* --- through pipes ------------------------------------------------------------------------------------------------ */

struct run {
    struct buf out, err;
    int status;
};

static void read_file(const char *path, struct buf *out) {
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    char block[4096];
    size_t n;
    while ((n = fread(block, 1, sizeof block, file)) > 0) buf_append(out, block, n);
    fclose(file);
}

static const char *path_in(const char *dir, const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void redirect(const char *path, int flags, int fd) {
    int file = open(path, flags, 0600);
    if (file < 0 || dup2(file, fd) < 0) _exit(126);
}

static struct run chat(const char *input, const char *const *args) {
    char dir[128], in[256];
    snprintf(dir, sizeof dir, "%s", temp_dir());
    snprintf(in, sizeof in, "%s/in", dir);
    FILE *file = fopen(in, "w");
    fputs(input, file);
    fclose(file);
    pid_t pid = fork();
    if (pid == 0) {
        redirect(in, O_RDONLY, 0);
        redirect(path_in(dir, "out"), O_WRONLY | O_CREAT | O_TRUNC, 1);
        redirect(path_in(dir, "err"), O_WRONLY | O_CREAT | O_TRUNC, 2);
        exec_chat(args, dir);
    }
    struct run r = {0};
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    r.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    read_file(path_in(dir, "out"), &r.out);
    read_file(path_in(dir, "err"), &r.err);
    return r;
}

static void run_free(struct run *r) {
    buf_free(&r->out);
    buf_free(&r->err);
}

#define CHAT(input, ...) chat(input, (const char *[]){__VA_ARGS__, NULL})

static void must_succeed(const struct run *r) {
    ck_assert_msg(r->status == 0, "status %d: %s", r->status, buf_text(&r->err));
    ck_assert_str_eq(buf_text(&r->err), "");
}

START_TEST(a_prompt_is_answered_the_same_at_every_k)
{
    struct run plain = CHAT("", "-p", "Tell me about the sea.", "--k", "0", "--temperature", "0", "-n", "30");
    struct run drafted = CHAT("", "-p", "Tell me about the sea.", "--k", "5", "--temperature", "0", "-n", "30");
    must_succeed(&plain);
    must_succeed(&drafted);
    ck_assert_uint_gt(plain.out.len, 20);
    ck_assert_str_eq(buf_text(&plain.out), buf_text(&drafted.out));
    ck_assert_int_eq(plain.out.data[plain.out.len - 1], '\n');
    ck_assert_ptr_null(strchr(buf_text(&plain.out), '\033'));
    run_free(&plain);
    run_free(&drafted);
}
END_TEST

START_TEST(a_prompt_is_read_from_standard_input)
{
    struct run given = CHAT("", "-p", "Hello\nyou", "--temperature", "0", "-n", "12");
    struct run read = CHAT("Hello\nyou\n", "-p", "-", "--temperature", "0", "-n", "12");
    must_succeed(&given);
    must_succeed(&read);
    ck_assert_str_eq(buf_text(&given.out), buf_text(&read.out));
    run_free(&given);
    run_free(&read);
}
END_TEST

/* Without a newline inside an answer, every turn is one line of output. */
static int count_lines(const struct buf *text) {
    int lines = 0;
    for (size_t i = 0; i < text->len; i++) lines += text->data[i] == '\n';
    return lines;
}

#define GREEDY "--temperature", "0", "-n", "16", "--stop", "\n"

START_TEST(each_line_of_a_pipe_is_one_turn)
{
    struct run one = CHAT("What is the sun?\n", GREEDY);
    struct run three = CHAT("What is the sun?\n\nAnd the moon?\r\nThank you", GREEDY);
    must_succeed(&one);
    must_succeed(&three);
    ck_assert_int_eq(count_lines(&one.out), 1);
    ck_assert_int_eq(count_lines(&three.out), 3);
    ck_assert_int_eq(strncmp(buf_text(&three.out), buf_text(&one.out), one.out.len), 0);
    run_free(&one);
    run_free(&three);
}
END_TEST

START_TEST(undo_leaves_the_chat_as_it_was)
{
    struct run never = CHAT("What is the sun?\nAnd the moon?\n", GREEDY);
    struct run undone = CHAT("What is the sun?\nWho are you?\n/undo\nAnd the moon?\n", GREEDY);
    must_succeed(&never);
    must_succeed(&undone);
    const char *never_last = strchr(buf_text(&never.out), '\n') + 1;
    const char *undone_last = strchr(strchr(buf_text(&undone.out), '\n') + 1, '\n') + 1;
    ck_assert_str_eq(never_last, undone_last);
    run_free(&never);
    run_free(&undone);
}
END_TEST

START_TEST(commands_change_k_and_sampling)
{
    struct run expected = CHAT("What is the sun?\nAnd the moon?\n", GREEDY);
    struct run got = CHAT("/temp 0\n/k 0\nWhat is the sun?\n/k 7\n/top-k 50\n/top-p 0.9\n/min-p 0.1\nAnd the moon?\n",
                          "-n", "16", "--stop", "\n");
    must_succeed(&expected);
    must_succeed(&got);
    ck_assert_str_eq(buf_text(&got.out), buf_text(&expected.out));
    run_free(&expected);
    run_free(&got);
}
END_TEST

START_TEST(a_seed_repeats_a_chat_and_regen_takes_other_numbers)
{
    const char *script = "Tell me a story.\n/regen\nGo on.\n";
    struct run a = CHAT(script, "--seed", "5", "-n", "24", "--temperature", "1", "--stop", "\n");
    struct run b = CHAT(script, "--seed", "5", "-n", "24", "--temperature", "1", "--stop", "\n");
    struct run c = CHAT(script, "--seed", "6", "-n", "24", "--temperature", "1", "--stop", "\n");
    must_succeed(&a);
    ck_assert_str_eq(buf_text(&a.out), buf_text(&b.out));
    ck_assert_str_ne(buf_text(&a.out), buf_text(&c.out));
    size_t first = strcspn(buf_text(&a.out), "\n") + 1;
    ck_assert_int_ne(strncmp(a.out.data, a.out.data + first, first), 0);
    run_free(&a);
    run_free(&b);
    run_free(&c);
}
END_TEST

START_TEST(a_bad_command_is_one_line_and_the_rest_runs)
{
    struct run r = CHAT("/nonsense\n/k 64\n/k x\nWhat is the sun?\n/undo\n/undo\n", GREEDY);
    ck_assert_int_eq(r.status, 1);
    ck_assert_int_eq(count_lines(&r.out), 1);
    ck_assert_int_eq(count_lines(&r.err), 4);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "duet: /nonsense: no such command"));
    run_free(&r);
}
END_TEST

START_TEST(a_message_that_cannot_fit_is_refused_and_the_chat_goes_on)
{
    struct buf input = {0};
    for (int i = 0; i < 200; i++) buf_puts(&input, "cat ");
    buf_puts(&input, "\nWhat is the sun?\n");
    struct run expected = CHAT("What is the sun?\n", GREEDY, "--ctx", "96");
    struct run r = CHAT(buf_text(&input), GREEDY, "--ctx", "96");
    ck_assert_int_eq(r.status, 1);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "context"));
    ck_assert_str_eq(buf_text(&r.out), buf_text(&expected.out));
    buf_free(&input);
    run_free(&expected);
    run_free(&r);
}
END_TEST

START_TEST(a_saved_chat_is_a_batch_line_and_loads_again)
{
    char script[512], path[256];
    snprintf(path, sizeof path, "%s", path_in(temp_dir(), "chat.json"));
    snprintf(script, sizeof script, "/system You are kind.\nWhat is the sun?\n/save %s\nAnd the moon?\n", path);
    struct run saved = CHAT(script, GREEDY);
    must_succeed(&saved);
    cJSON *object;
    ck_ok(json_parse_file(&object, path));
    const cJSON *messages = json_get(object, "messages");
    ck_assert_int_eq(cJSON_GetArraySize(messages), 3);
    struct buf role = {0}, text = {0}, raw = {0};
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 2), "content"), &text));
    ck_assert(json_string(json_get(cJSON_GetArrayItem(messages, 0), "role"), &role));
    ck_assert_str_eq(buf_text(&role), "system");
    ck_assert_int_eq(strncmp(buf_text(&saved.out), buf_text(&text), text.len), 0);
    read_file(path, &raw);
    ck_assert_int_eq(count_lines(&raw), 1);
    snprintf(script, sizeof script, "Something else\n/load %s\nAnd the moon?\n", path);
    struct run loaded = CHAT(script, GREEDY);
    must_succeed(&loaded);
    ck_assert_str_eq(strchr(buf_text(&loaded.out), '\n') + 1, strchr(buf_text(&saved.out), '\n') + 1);
    cJSON_Delete(object);
    buf_free(&role);
    buf_free(&text);
    buf_free(&raw);
    run_free(&saved);
    run_free(&loaded);
}
END_TEST

START_TEST(the_alpha_report_is_written_at_the_end)
{
    char option[300];
    const char *path = path_in(temp_dir(), "alpha.json");
    snprintf(option, sizeof option, "--alpha-report=%s", path);
    struct run r = CHAT("What is the sun?\nAnd the moon?\n", GREEDY, "--k", "3", option);
    ck_assert_int_eq(r.status, 0);
    cJSON *object;
    int64_t k, drafted, rounds;
    ck_ok(json_parse_file(&object, path));
    ck_assert(json_int(json_get(object, "k"), &k) && json_int(json_get(object, "drafted"), &drafted));
    ck_assert(json_int(json_get(object, "rounds"), &rounds));
    ck_assert_int_eq(k, 3);
    ck_assert_int_gt(rounds, 3);
    ck_assert_int_eq(drafted, 3 * rounds);
    cJSON_Delete(object);
    run_free(&r);
}
END_TEST

/* --- at a terminal ------------------------------------------------------------------------------------------------ */

struct terminal {
    pid_t pid;
    int fd;
    struct buf seen; /* since the last `expect` */
};

static struct terminal open_terminal(const char *const *args) {
    struct terminal t = {0};
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    const char *state = temp_dir();
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    ck_assert_int_ge(t.pid, 0);
    if (t.pid == 0) exec_chat(args, state);
    return t;
}

#define TERMINAL(...) open_terminal((const char *[]){__VA_ARGS__, NULL})

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

/* Drops every carriage return, and the first "^C" (the terminal's echo of the key, in mid-text). */
static void untangle(const char *screen, struct buf *out) {
    bool echoed = false;
    for (const char *c = screen; *c; c++) {
        if (!echoed && strncmp(c, "^C", 2) == 0) {
            echoed = true;
            c++;
        } else if (*c != '\r') {
            buf_putc(out, *c);
        }
    }
}

/* Control characters as the terminal gets them. */
static void tame(const char *text, struct buf *out) {
    for (const char *c = text; *c; c++) {
        if (((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f)
            buf_printf(out, "^%c", *c ^ 0x40);
        else
            buf_putc(out, *c);
    }
}

static void read_answer(const char *path, struct buf *answer) {
    cJSON *object;
    ck_ok(json_parse_file(&object, path));
    ck_assert(json_string(json_get(cJSON_GetArrayItem(json_get(object, "messages"), 1), "content"), answer));
    cJSON_Delete(object);
}

START_TEST(ctrl_c_keeps_what_was_shown_and_the_chat_goes_on)
{
    char path[256], save[300];
    snprintf(path, sizeof path, "%s", path_in(temp_dir(), "stopped.json"));
    snprintf(save, sizeof save, "/save %s\r", path);
    struct terminal t = TERMINAL(ENDLESS);
    expect_prompt(&t);
    type(&t, "Tell me a long story.\r");
    expect(&t, "\033[?2004l");
    while (t.seen.len < 40) ck_assert(take(&t, WAIT_MS));
    type(&t, "\003");
    struct buf shown = {0}, answer = {0}, kept = {0};
    untangle(expect(&t, "\033[2m"), &shown);
    expect(&t, ", stopped");
    expect_prompt(&t);
    type(&t, save);
    expect(&t, "1 turn saved");
    expect_prompt(&t);
    type(&t, "/max-tokens 5\r");
    expect_prompt(&t);
    type(&t, "Go on.\r");
    expect(&t, "cut at max-tokens");
    expect_prompt(&t);
    type(&t, "\004");
    ck_assert_int_eq(wait_end(&t), 0);
    read_answer(path, &answer);
    tame(buf_text(&answer), &kept);
    buf_putc(&kept, '\n');
    ck_assert_uint_gt(kept.len, 20);
    ck_assert_str_eq(buf_text(&shown), buf_text(&kept));
    buf_free(&shown);
    buf_free(&answer);
    buf_free(&kept);
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
    snprintf(path, sizeof path, "%s", path_in(temp_dir(), "lines.json"));
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
    read_file(path, &raw);
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

START_TEST(ctrl_c_ends_a_single_answer_with_130)
{
    struct terminal t =
        TERMINAL("--temperature", "0", "--ignore-eos", "--quiet", "-n", "900", "-p", "Tell me a story.");
    expect(&t, "there");
    type(&t, "\003");
    ck_assert_int_eq(wait_end(&t), 130);
}
END_TEST

Suite *check_chat(void) {
    Suite *suite = suite_create("chat");
    TCase *pipes = tcase_create("pipes");
    tcase_set_timeout(pipes, 120);
    tcase_add_test(pipes, a_prompt_is_answered_the_same_at_every_k);
    tcase_add_test(pipes, a_prompt_is_read_from_standard_input);
    tcase_add_test(pipes, each_line_of_a_pipe_is_one_turn);
    tcase_add_test(pipes, undo_leaves_the_chat_as_it_was);
    tcase_add_test(pipes, commands_change_k_and_sampling);
    tcase_add_test(pipes, a_seed_repeats_a_chat_and_regen_takes_other_numbers);
    tcase_add_test(pipes, a_bad_command_is_one_line_and_the_rest_runs);
    tcase_add_test(pipes, a_message_that_cannot_fit_is_refused_and_the_chat_goes_on);
    tcase_add_test(pipes, a_saved_chat_is_a_batch_line_and_loads_again);
    tcase_add_test(pipes, the_alpha_report_is_written_at_the_end);
    suite_add_tcase(suite, pipes);

    TCase *terminals = tcase_create("terminal");
    tcase_set_timeout(terminals, 120);
    tcase_add_test(terminals, a_terminal_gets_banner_answer_and_figures);
    tcase_add_test(terminals, ctrl_c_keeps_what_was_shown_and_the_chat_goes_on);
    tcase_add_test(terminals, ctrl_c_at_the_prompt_drops_the_line_and_twice_ends);
    tcase_add_test(terminals, several_lines_by_backslash_and_by_paste_are_one_turn);
    tcase_add_test(terminals, history_is_kept_between_chats);
    tcase_add_test(terminals, ctrl_c_ends_a_single_answer_with_130);
    suite_add_tcase(suite, terminals);
    return suite;
}
