/* What docs/RELIABILITY.md promises of files, signals and hostile names, from outside the program. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static struct program p;

static void run(const char *input, const char *const *arguments) {
    program_free(&p);
    program_run(&p, input, arguments);
}

/* Runs `command` by the shell in temp_dir(), with the program as $DUET; its exit status. */
static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
    char command[2048], whole[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(whole, sizeof whole, "DUET='%s'; cd '%s' && %s", program_path(), temp_dir(), command);
    int status = system(whole);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_file(const char *name, const char *text) {
    struct buf held = {0};
    text_of_file(temp_path(name), &held);
    ck_assert_str_eq(buf_text(&held), text);
    buf_free(&held);
}

static void expect_in_file(const char *name, const char *part) {
    struct buf held = {0};
    text_of_file(temp_path(name), &held);
    ck_assert_msg(strstr(buf_text(&held), part) != NULL, "'%s' is not in %s: %s", part, name, buf_text(&held));
    buf_free(&held);
}

/* Every line of the file is a record; their number. */
static int count_records(const char *name) {
    struct buf held = {0};
    text_of_file(temp_path(name), &held);
    int lines = count_lines(&held);
    ck_assert(held.len == 0 || held.data[held.len - 1] == '\n');
    for (int i = 0; i < lines; i++) cJSON_Delete(json_line(&held, i));
    buf_free(&held);
    return lines;
}

static void wait_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* --- standard files ------------------------------------------------------------------------------------------- */

START_TEST(a_closed_standard_file_is_never_replaced_by_a_file_of_the_user)
{
    text_to_file(temp_path("old"), "the results of yesterday\n");
    text_to_file(temp_path("in"), "{\"prompt\": \"a\"}\n");
    ck_assert_int_eq(shell("$DUET batch -i in -o old --temperature -1 2>&-"), 2);
    ck_assert_int_eq(shell("$DUET batch -i in -o old --draft nowhere --target nowhere 2>&-"), 1);
    ck_assert_int_eq(shell("$DUET batch -i in -o new --alpha-report=old --target nowhere 2>&-"), 1);
    ck_assert_int_eq(shell("$DUET batch -i missing -o old 2>&- >&- <&-"), 1);
    expect_file("old", "the results of yesterday\n");
    ck_assert_int_eq(shell("$DUET batch -i in -o old --force -n 1 2>&- >&- <&-"), 0);
    ck_assert_int_eq(count_records("old"), 1);
}
END_TEST

START_TEST(a_closed_standard_file_is_an_error_where_it_is_needed)
{
    ck_assert_int_eq(shell("$DUET --version >&- 2>err"), 1);
    expect_in_file("err", "duet: standard output: ");
    ck_assert_int_eq(shell("$DUET batch -o out <&- 2>err"), 1);
    expect_in_file("err", "duet: standard input: ");
}
END_TEST

START_TEST(a_nul_byte_ends_no_command_early)
{
    ck_assert_int_eq(shell("printf '/temp 1\\000x\\n' | $DUET chat >out 2>err"), 1);
    expect_file("err", "duet: a command holds no U+0000\n");
}
END_TEST

/* --- what -o and --alpha-report may not be -------------------------------------------------------------------- */

/* A copy of the embedded draft as a model of its own. */
static const char *copy_model(void) {
    static char path[256];
    char command[8192];
    snprintf(path, sizeof path, "%s", temp_path("model"));
    snprintf(command, sizeof command, "cp -r '%s' '%s'", asset_path("draft"), path);
    ck_assert_int_eq(system(command), 0);
    return path;
}

START_TEST(no_file_of_a_model_is_overwritten)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json"};
    copy_model();
    text_to_file(temp_path("in"), "{\"prompt\": \"a\"}\n");
    ck_assert_int_eq(shell("cp -r model kept; ln model/config.json other; ln -s model/tokenizer.json link"), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_int_eq(shell("$DUET batch --target model -i in -o model/%s 2>err", files[i]), 2);
        expect_in_file("err", "is a file of the model");
        ck_assert_int_eq(
            shell("$DUET batch --k 2 --target model --draft model -i in --alpha-report=model/%s 2>err", files[i]), 2);
    }
    ck_assert_int_eq(shell("$DUET batch --target model -i in -o other 2>err"), 2);
    ck_assert_int_eq(shell("$DUET batch --target model -i in -o link 2>err"), 2);
    ck_assert_int_eq(shell("echo '{\"text\": \"a\"}' | $DUET tokenize model -o link 2>err"), 2);
    ck_assert_int_eq(shell("printf 'Hello\\n/save link\\n' | $DUET chat --target model -n 2 >out 2>err"), 1);
    ck_assert_int_eq(shell("diff -r model kept"), 0);
    ck_assert_int_eq(shell("$DUET batch --target model -i in -o model/answers.jsonl -n 1 --k 0"), 0);
    ck_assert_int_eq(shell("$DUET batch --target model -i in -o model/answers.jsonl --force -n 1 --k 0"), 0);
}
END_TEST

/* --- files that are no files ---------------------------------------------------------------------------------- */

static void make_fifo(const char *path) {
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

static void make_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(s, (struct sockaddr *)&address, sizeof address), 0);
    close(s);
}

static void make_device(const char *path) {
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
}

static void make_folder(const char *path) {
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void make_dangling(const char *path) {
    ck_assert_int_eq(symlink("../../blobs/0123", path), 0);
}

/* Loop index: which file of the model. */
START_TEST(what_is_no_regular_file_is_refused_at_once)
{
    static const char *const files[] = {"config.json",    "generation_config.json", "model.safetensors",
                                        "tokenizer.json", "tokenizer_config.json",  "chat_template.jinja"};
    static void (*const make[])(const char *) = {make_fifo, make_socket, make_device, make_folder, make_dangling};
    const char *model = copy_model();
    char file[512];
    snprintf(file, sizeof file, "%s/%s", model, files[_i]);
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        remove(file);
        make[i](file);
        run("Hello\n", ARGUMENTS("chat", "--target", model, "-n", "1", "-q"));
        program_expect_error(&p, 1, file);
        ck_assert_uint_eq(p.out.len, 0);
        run("", ARGUMENTS("inspect", model));
        if (_i < 4) program_expect_error(&p, 1, file);
    }
}
END_TEST

/* Several threads meet its end at once. */
START_TEST(a_weights_file_that_shrinks_ends_with_a_sentence)
{
    char weights[512], out[256];
    const char *model = copy_model();
    snprintf(weights, sizeof weights, "%s/model.safetensors", model);
    snprintf(out, sizeof out, "%s", temp_path("out"));
    text_to_file(temp_path("in"), "{\"prompt\": \"a\", \"max_tokens\": 1}\n{\"prompt\": \"b\", \"max_tokens\": 900}\n"
                                  "{\"prompt\": \"c\", \"max_tokens\": 1}\n");
    program_free(&p);
    program_start(&p, NULL,
                  ARGUMENTS("batch", "--target", model, "-i", temp_path("in"), "-o", out, "--ignore-eos", "--batch",
                            "2", "--threads", "4"));
    struct stat st = {0};
    while (st.st_size == 0) {
        wait_ms(5);
        stat(out, &st);
    }
    ck_assert_int_eq(truncate(weights, 4096), 0);
    program_wait(&p);
    if (p.status == 0) {
        skip("the run was over before its file shrank");
        return;
    }
    program_expect_error(&p, 1, "model.safetensors: the file was cut short");
    ck_assert_int_ge(count_records("out"), 1);
}
END_TEST

/* --- ends ------------------------------------------------------------------------------------------------------ */

static void write_long_input(int lines) {
    struct buf input = {0};
    for (int i = 0; i < lines; i++) buf_printf(&input, "{\"prompt\": \"The %d\", \"max_tokens\": %d}\n", i, 4 + i % 60);
    text_to_file(temp_path("in"), buf_text(&input));
    buf_free(&input);
}

/* Loop index: which signal. */
static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
START_TEST(every_ending_signal_writes_what_is_finished_and_shows_in_the_status)
{
    write_long_input(2000);
    program_free(&p);
    program_start(&p, NULL,
                  ARGUMENTS("batch", "-i", temp_path("in"), "-o", temp_path("out"), "--ignore-eos", "--batch", "4"));
    struct stat st = {0};
    while (st.st_size == 0) {
        wait_ms(5);
        stat(temp_path("out"), &st);
    }
    ck_assert_int_eq(kill(p.pid, ending_signals[_i]), 0);
    program_wait(&p);
    char sentence[96];
    snprintf(sentence, sizeof sentence, "duet: interrupted: %d of 2000 records are missing\n",
             2000 - count_records("out"));
    ck_assert_int_eq(p.status, 128 + ending_signals[_i]);
    ck_assert_str_eq(buf_text(&p.err), sentence);
}
END_TEST

START_TEST(signals_that_the_caller_ignored_stay_ignored)
{
    write_long_input(60);
    ck_assert_int_eq(shell("trap '' HUP INT; $DUET batch -i in -o out 2>err & sleep 0.3; kill -HUP $!; kill -INT $!; "
                           "wait $!"),
                     0);
    ck_assert_int_eq(count_records("out"), 60);
}
END_TEST

START_TEST(a_pipe_without_a_reader_ends_the_program_quietly)
{
    write_long_input(50);
    ck_assert_int_eq(
        shell("{ $DUET chat -p 'Tell me a story' --ignore-eos -n 900; echo $? >status; } 2>err | head -c 5 "
              ">out"),
        0);
    expect_file("err", "");
    expect_file("status", "141\n");
    ck_assert_int_eq(shell("{ $DUET batch -i in -n 300; echo $? >status; } 2>err | head -n 1 >out"), 0);
    expect_file("err", "");
    expect_file("status", "141\n");
    ck_assert_int_eq(count_records("out"), 1);
    ck_assert_int_eq(shell("{ sleep 0.2; $DUET --man; echo $? >status; } 2>err | true"), 0);
    expect_file("err", "");
    expect_file("status", "141\n");
}
END_TEST

START_TEST(a_file_that_may_grow_no_further_ends_at_a_whole_line)
{
    write_long_input(60);
    ck_assert_int_eq(shell("ulimit -f 8; $DUET batch -i in -o out --seed 1 --ignore-eos 2>err"), 1);
    expect_in_file("err", "out: cannot write: ");
    int whole = count_records("out");
    ck_assert_int_gt(whole, 3);
    ck_assert_int_lt(whole, 60);
    ck_assert_int_eq(shell("ulimit -f 8; $DUET batch -i in --seed 1 --ignore-eos >out2 2>err"), 1);
    ck_assert_int_eq(count_records("out2"), whole);
    ck_assert_int_eq(shell("ulimit -f 8; echo '{}' >out3; $DUET batch -i in --ignore-eos >>out3 2>err"), 1);
    ck_assert_int_gt(count_records("out3"), 3);
}
END_TEST

/* Until the prompt is drawn: from then on the terminal takes keys one by one, and none is lost. */
static void read_prompt(int master) {
    struct buf seen = {0};
    char block[512];
    const char *at = NULL;
    while (!at || !strchr(at, '>')) {
        ssize_t n = read(master, block, sizeof block);
        ck_assert_int_gt(n, 0);
        buf_append(&seen, block, (size_t)n);
        at = strstr(buf_text(&seen), "\033[?2004h");
    }
    buf_free(&seen);
}

/* The program in a terminal of its own. */
START_TEST(a_terminal_is_given_back_as_it_was)
{
    struct termios before, after;
    int master, slave;
    char name[128];
    ck_assert_int_eq(openpty(&master, &slave, name, NULL, NULL), 0);
    tcgetattr(slave, &before);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        close(master);
        for (int fd = 0; fd < 3; fd++) dup2(slave, fd);
        setenv("XDG_STATE_HOME", temp_dir(), 1);
        execl(program_path(), "duet", "chat", "-q", NULL);
        _exit(127);
    }
    read_prompt(master);
    ck_assert_int_eq(kill(pid, ending_signals[_i]), 0);
    int status;
    if (ending_signals[_i] == SIGINT) { /* Ctrl-C alone does not end it; Ctrl-D does */
        read_prompt(master);
        ck_assert_int_eq(write(master, "\4", 1), 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), ending_signals[_i] == SIGINT ? 0 : 128 + ending_signals[_i]);
    tcgetattr(slave, &after);
    ck_assert_int_eq((int)after.c_lflag, (int)before.c_lflag);
    ck_assert_int_eq((int)after.c_iflag, (int)before.c_iflag);
    close(slave);
    close(master);
}
END_TEST

/* --- names and fields ------------------------------------------------------------------------------------------ */

START_TEST(path_names_are_escaped_wherever_they_are_printed)
{
    copy_model();
    ck_assert_int_eq(shell("mv model \"$(printf 'a\\033[31m\\nb')\""), 0);
    ck_assert_int_eq(shell("$DUET inspect \"$(printf 'a\\033[31m\\nb')\" >out 2>&1"), 0);
    expect_in_file("out", "a\\x1b[31m\\x0ab\n");
    ck_assert_int_eq(shell("! grep -q \"$(printf '\\033')\" out"), 0);
    ck_assert_int_eq(shell("$DUET inspect \"$(printf 'nothing\\033[2J')\" >out 2>&1"), 1);
    expect_file("out", "duet: nothing\\x1b[2J: no such directory\n");
    ck_assert_int_eq(shell("$DUET batch -i \"$(printf 'no\\033[2J')\" >out 2>&1"), 1);
    ck_assert_int_eq(shell("! grep -q \"$(printf '\\033')\" out"), 0);
}
END_TEST

static void expect_field_error(const char *field, const char *part) {
    char line[256];
    snprintf(line, sizeof line, "{\"prompt\": \"a\", %s}\n", field);
    run(line, ARGUMENTS("batch", "-n", "1"));
    program_expect_error(&p, 1, "1 of 1 lines failed");
    cJSON *r = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(r, "finish_reason"), "error");
    ck_assert_msg(strstr(get_string(r, "error"), part) != NULL, "%s: %s", field, get_string(r, "error"));
    cJSON_Delete(r);
}

START_TEST(a_field_that_would_be_ignored_but_was_meant_is_an_error_by_name)
{
    expect_field_error("\"max_token\": 3", "line 1: 'max_token' is no field of a line: is 'max_tokens' meant?");
    expect_field_error("\"temp\": 0", "is 'temperature' meant?");
    expect_field_error("\"temprature\": 0", "is 'temperature' meant?");
    expect_field_error("\"Top-K\": 1", "is 'top_k' meant?");
    expect_field_error("\"stops\": []", "is 'stop' meant?");
    expect_field_error("\"max_new_tokens\": 3", "is 'max_tokens' meant?");
    expect_field_error("\"k\": 2", "'k' is no field of a line, but an option of the run (--k)");
    expect_field_error("\"grammar\": \"root ::= x\"", "'grammar' is not supported");
    expect_field_error("\"json_schema\": {}", "'json_schema' is not supported");
    expect_field_error("\"guided_json\": {}", "'guided_json' is not supported");
    expect_field_error("\"lora\": \"x\"", "'lora' is not supported");
    expect_field_error("\"n\": 2", "'n' is not supported");
    expect_field_error("\"logit_bias\": {}", "'logit_bias' is not supported");
    expect_field_error("\"tools\": [], \"response_format\": 1", "'tools' is not supported");
}
END_TEST

START_TEST(other_fields_are_named_once_at_the_end_and_refused_by_strict)
{
    static const char lines[] = "{\"prompt\": \"a\", \"category\": 1, \"tools\": null}\n"
                                "{\"prompt\": \"b\", \"category\": 2, \"idx\": 3, \"prompt_id\": \"x\"}\n";
    run(lines, ARGUMENTS("batch", "-n", "1"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_str_eq(buf_text(&p.err),
                     "duet: fields that mean nothing here were ignored: 'category', 'idx', 'prompt_id' "
                     "(--strict refuses them)\n");
    run(lines, ARGUMENTS("batch", "-n", "1", "-q"));
    program_expect_status(&p, 0);
    run(lines, ARGUMENTS("batch", "-n", "1", "--strict"));
    program_expect_error(&p, 1, "2 of 2 lines failed");
    cJSON *r = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(r, "error"), "line 1: 'category' is no field of a line (--strict)");
    cJSON_Delete(r);
}
END_TEST

START_TEST(max_completion_tokens_means_max_tokens)
{
    run("{\"prompt\": \"a\", \"max_completion_tokens\": 3, \"ignore_eos\": true}\n", ARGUMENTS("batch"));
    program_expect_status(&p, 0);
    cJSON *r = json_line(&p.out, 0);
    ck_assert_double_eq(get_number(r, "completion_tokens"), 3);
    cJSON_Delete(r);
}
END_TEST

Suite *check_reliability(void);
Suite *check_reliability(void) {
    Suite *suite = suite_create("reliability");
    TCase *files = tcase_create("files");
    tcase_add_test(files, a_closed_standard_file_is_never_replaced_by_a_file_of_the_user);
    tcase_add_test(files, a_closed_standard_file_is_an_error_where_it_is_needed);
    tcase_add_test(files, a_nul_byte_ends_no_command_early);
    tcase_add_test(files, no_file_of_a_model_is_overwritten);
    tcase_add_loop_test(files, what_is_no_regular_file_is_refused_at_once, 0, 6);
    tcase_add_loop_test(files, a_weights_file_that_shrinks_ends_with_a_sentence, 0, 5);
    tcase_add_test(files, a_file_that_may_grow_no_further_ends_at_a_whole_line);
    suite_add_tcase(suite, files);
    TCase *ends = tcase_create("ends");
    tcase_add_loop_test(ends, every_ending_signal_writes_what_is_finished_and_shows_in_the_status, 0, 4);
    tcase_add_test(ends, signals_that_the_caller_ignored_stay_ignored);
    tcase_add_test(ends, a_pipe_without_a_reader_ends_the_program_quietly);
    tcase_add_loop_test(ends, a_terminal_is_given_back_as_it_was, 0, 4);
    suite_add_tcase(suite, ends);
    TCase *names = tcase_create("names");
    tcase_add_test(names, path_names_are_escaped_wherever_they_are_printed);
    tcase_add_test(names, a_field_that_would_be_ignored_but_was_meant_is_an_error_by_name);
    tcase_add_test(names, other_fields_are_named_once_at_the_end_and_refused_by_strict);
    tcase_add_test(names, max_completion_tokens_means_max_tokens);
    suite_add_tcase(suite, names);
    return suite;
}
