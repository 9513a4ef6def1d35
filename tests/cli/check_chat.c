/* The program `duet chat` through pipes. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

/* Short passes on one thread: other suites may run beside this one. */
#define CHAT_ARGUMENTS(...) ARGUMENTS("chat", "--threads", "1", __VA_ARGS__)

static struct program chat(const char *input, const char *const *arguments) {
    struct program p;
    program_run(&p, input, arguments);
    return p;
}

#define CHAT(input, ...) chat(input, CHAT_ARGUMENTS(__VA_ARGS__))

static void must_succeed(const struct program *r) {
    ck_assert_msg(r->status == 0, "status %d: %s", r->status, buf_text(&r->err));
    ck_assert_str_eq(buf_text(&r->err), "");
}

START_TEST(a_prompt_is_answered_the_same_at_every_k)
{
    struct program plain = CHAT("", "-p", "Tell me about the sea.", "--k", "0", "--temperature", "0", "-n", "30");
    struct program drafted = CHAT("", "-p", "Tell me about the sea.", "--k", "5", "--temperature", "0", "-n", "30");
    must_succeed(&plain);
    must_succeed(&drafted);
    ck_assert_uint_gt(plain.out.len, 20);
    ck_assert_str_eq(buf_text(&plain.out), buf_text(&drafted.out));
    ck_assert_int_eq(plain.out.data[plain.out.len - 1], '\n');
    ck_assert_ptr_null(strchr(buf_text(&plain.out), '\033'));
    program_free(&plain);
    program_free(&drafted);
}
END_TEST

START_TEST(a_prompt_is_read_from_standard_input)
{
    struct program given = CHAT("", "-p", "Hello\nyou", "--temperature", "0", "-n", "12");
    struct program read = CHAT("Hello\nyou\n", "-p", "-", "--temperature", "0", "-n", "12");
    must_succeed(&given);
    must_succeed(&read);
    ck_assert_str_eq(buf_text(&given.out), buf_text(&read.out));
    program_free(&given);
    program_free(&read);
}
END_TEST

/* Without a newline inside an answer, every turn is one line of output. */
#define GREEDY "--temperature", "0", "-n", "16", "--stop", "\n"

START_TEST(each_line_of_a_pipe_is_one_turn)
{
    struct program one = CHAT("What is the sun?\n", GREEDY);
    struct program three = CHAT("What is the sun?\n\nAnd the moon?\r\nThank you", GREEDY);
    must_succeed(&one);
    must_succeed(&three);
    ck_assert_int_eq(count_lines(&one.out), 1);
    ck_assert_int_eq(count_lines(&three.out), 3);
    ck_assert_int_eq(strncmp(buf_text(&three.out), buf_text(&one.out), one.out.len), 0);
    program_free(&one);
    program_free(&three);
}
END_TEST

START_TEST(undo_leaves_the_chat_as_it_was)
{
    struct program never = CHAT("What is the sun?\nAnd the moon?\n", GREEDY);
    struct program undone = CHAT("What is the sun?\nWho are you?\n/undo\nAnd the moon?\n", GREEDY);
    must_succeed(&never);
    must_succeed(&undone);
    const char *never_last = strchr(buf_text(&never.out), '\n') + 1;
    const char *undone_last = strchr(strchr(buf_text(&undone.out), '\n') + 1, '\n') + 1;
    ck_assert_str_eq(never_last, undone_last);
    program_free(&never);
    program_free(&undone);
}
END_TEST

START_TEST(commands_change_k_and_sampling)
{
    struct program expected = CHAT("What is the sun?\nAnd the moon?\n", GREEDY);
    struct program got =
        CHAT("/temp 0\n/k 0\nWhat is the sun?\n/k 7\n/top-k 50\n/top-p 0.9\n/min-p 0.1\nAnd the moon?\n", "-n", "16",
             "--stop", "\n");
    must_succeed(&expected);
    must_succeed(&got);
    ck_assert_str_eq(buf_text(&got.out), buf_text(&expected.out));
    program_free(&expected);
    program_free(&got);
}
END_TEST

START_TEST(a_seed_repeats_a_chat_and_regen_takes_other_numbers)
{
    const char *script = "Tell me a story.\n/regen\nGo on.\n";
    struct program a = CHAT(script, "--seed", "5", "-n", "24", "--temperature", "1", "--stop", "\n");
    struct program b = CHAT(script, "--seed", "5", "-n", "24", "--temperature", "1", "--stop", "\n");
    struct program c = CHAT(script, "--seed", "6", "-n", "24", "--temperature", "1", "--stop", "\n");
    must_succeed(&a);
    ck_assert_str_eq(buf_text(&a.out), buf_text(&b.out));
    ck_assert_str_ne(buf_text(&a.out), buf_text(&c.out));
    size_t first = strcspn(buf_text(&a.out), "\n") + 1;
    ck_assert_int_ne(strncmp(a.out.data, a.out.data + first, first), 0);
    program_free(&a);
    program_free(&b);
    program_free(&c);
}
END_TEST

START_TEST(a_bad_command_is_one_line_and_the_rest_runs)
{
    struct program r = CHAT("/nonsense\n/k 64\n/k x\nWhat is the sun?\n/undo\n/undo\n", GREEDY);
    ck_assert_int_eq(r.status, 1);
    ck_assert_int_eq(count_lines(&r.out), 1);
    ck_assert_int_eq(count_lines(&r.err), 4);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "duet: /nonsense: no such command"));
    program_free(&r);
}
END_TEST

/* Loop index: the command. */
START_TEST(exit_and_quit_end_the_chat_and_stand_in_help)
{
    const char *command = (const char *[]){"/exit", "/quit"}[_i];
    char script[64], row[16];
    snprintf(script, sizeof script, "/help\n%s\nWhat is the sun?\n", command);
    snprintf(row, sizeof row, "\n  %s ", command);
    struct program ended = CHAT(script, GREEDY), help = CHAT("/help\n", GREEDY);
    must_succeed(&ended);
    ck_assert_str_eq(buf_text(&ended.out), buf_text(&help.out));
    ck_assert_ptr_nonnull(strstr(buf_text(&help.out), row));
    program_free(&ended);
    program_free(&help);
}
END_TEST

START_TEST(a_message_that_cannot_fit_is_refused_and_the_chat_goes_on)
{
    struct buf input = {0};
    for (int i = 0; i < 200; i++) buf_puts(&input, "cat ");
    buf_puts(&input, "\nWhat is the sun?\n");
    struct program expected = CHAT("What is the sun?\n", GREEDY, "--ctx", "96");
    struct program r = CHAT(buf_text(&input), GREEDY, "--ctx", "96");
    ck_assert_int_eq(r.status, 1);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "context"));
    ck_assert_str_eq(buf_text(&r.out), buf_text(&expected.out));
    buf_free(&input);
    program_free(&expected);
    program_free(&r);
}
END_TEST

START_TEST(a_saved_chat_is_a_batch_line_and_loads_again)
{
    char script[512], path[256];
    snprintf(path, sizeof path, "%s", temp_path("chat.json"));
    snprintf(script, sizeof script, "/system You are kind.\nWhat is the sun?\n/save %s\nAnd the moon?\n", path);
    struct program saved = CHAT(script, GREEDY);
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
    text_of_file(path, &raw);
    ck_assert_int_eq(count_lines(&raw), 1);
    snprintf(script, sizeof script, "Something else\n/load %s\nAnd the moon?\n", path);
    struct program loaded = CHAT(script, GREEDY);
    must_succeed(&loaded);
    ck_assert_str_eq(strchr(buf_text(&loaded.out), '\n') + 1, strchr(buf_text(&saved.out), '\n') + 1);
    cJSON_Delete(object);
    buf_free(&role);
    buf_free(&text);
    buf_free(&raw);
    program_free(&saved);
    program_free(&loaded);
}
END_TEST

START_TEST(the_alpha_report_is_written_at_the_end)
{
    char option[300], path[256];
    snprintf(path, sizeof path, "%s", temp_path("alpha.json"));
    snprintf(option, sizeof option, "--alpha-report=%s", path);
    struct program r = CHAT("What is the sun?\nAnd the moon?\n", GREEDY, "--k", "3", option);
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
    program_free(&r);
}
END_TEST

Suite *check_chat(void) {
    Suite *suite = suite_create("chat");
    TCase *pipes = tcase_create("pipes");
    tcase_add_test(pipes, a_prompt_is_answered_the_same_at_every_k);
    tcase_add_test(pipes, a_prompt_is_read_from_standard_input);
    tcase_add_test(pipes, each_line_of_a_pipe_is_one_turn);
    tcase_add_test(pipes, undo_leaves_the_chat_as_it_was);
    tcase_add_test(pipes, commands_change_k_and_sampling);
    tcase_add_test(pipes, a_seed_repeats_a_chat_and_regen_takes_other_numbers);
    tcase_add_test(pipes, a_bad_command_is_one_line_and_the_rest_runs);
    tcase_add_loop_test(pipes, exit_and_quit_end_the_chat_and_stand_in_help, 0, 2);
    tcase_add_test(pipes, a_message_that_cannot_fit_is_refused_and_the_chat_goes_on);
    tcase_add_test(pipes, a_saved_chat_is_a_batch_line_and_loads_again);
    tcase_add_test(pipes, the_alpha_report_is_written_at_the_end);
    suite_add_tcase(suite, pipes);
    return suite;
}
