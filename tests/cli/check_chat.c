/* The program `duet chat` through pipes. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

START_TEST(what_is_piped_in_follows_the_prompt_on_the_next_line)
{
    struct program given = CHAT("", "-p", "Hello\nyou", "--temperature", "0", "-n", "12");
    struct program both = CHAT("you\n", "-p", "Hello", "--temperature", "0", "-n", "12");
    must_succeed(&both);
    ck_assert_str_eq(buf_text(&given.out), buf_text(&both.out));
    program_free(&given);
    program_free(&both);
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

/* The number behind `name` in what /stats or the like printed. */
static void find_number(const struct buf *out, const char *name, char number[32]) {
    const char *at = strstr(buf_text(out), name);
    ck_assert_msg(at != NULL, "no %s in: %s", name, buf_text(out));
    ck_assert_int_eq(sscanf(at + strlen(name), " %31[0-9]", number), 1);
}

/* In another run by --seed, and in the same chat by /seed. */
START_TEST(the_seed_in_stats_repeats_the_answer)
{
    char seed[32], script[256];
    struct program first =
        CHAT("What is the sun?\n/regen\n/stats\n", "-n", "24", "--temperature", "1", "--stop", "\n", "--k", "4");
    must_succeed(&first);
    find_number(&first.out, "\n  seed ", seed);
    const char *answer = strchr(buf_text(&first.out), '\n') + 1;
    int length = (int)strcspn(answer, "\n") + 1;
    struct program again = CHAT("What is the sun?\n", "-n", "24", "--temperature", "1", "--stop", "\n", "--seed", seed);
    ck_assert_int_eq(again.out.len, length);
    ck_assert_int_eq(strncmp(buf_text(&again.out), answer, (size_t)length), 0);
    snprintf(script, sizeof script, "/seed 77\nWhat is the sun?\n/regen\n/undo\n/seed %s\nWhat is the sun?\n", seed);
    struct program same = CHAT(script, "-n", "24", "--temperature", "1", "--stop", "\n", "--k", "4");
    ck_assert_str_eq(buf_text(&same.out) + same.out.len - length, buf_text(&again.out));
    program_free(&first);
    program_free(&again);
    program_free(&same);
}
END_TEST

START_TEST(set_lists_settings_and_sets_them_as_their_own_commands_do)
{
    struct program named = CHAT("/temp 0.25\n/top-k 7\n/accept block\n/k 2\n/max-tokens 0\n/set\n", "-n", "5");
    struct program set =
        CHAT("/set temperature 0.25\n/set top_k=7\n/set accept block\n/set k 2\n/set max-tokens 0\n/set\n", "-n", "5");
    must_succeed(&named);
    must_succeed(&set);
    ck_assert_str_eq(buf_text(&named.out), buf_text(&set.out));
    const char *const lines[] = {"  temp        0.25\n", "  top-k       7\n", "  accept      block\n",
                                 "  k           2 (up to 8)\n", "  max-tokens  what the context allows\n"};
    for (int i = 0; i < 5; i++) ck_assert_msg(strstr(buf_text(&set.out), lines[i]), "%s", buf_text(&set.out));
    program_free(&named);
    program_free(&set);
}
END_TEST

/* `coupled`: the text depends on the seed alone, whatever K is. */
START_TEST(accept_changes_the_rule_of_the_answers_to_come)
{
    struct program two =
        CHAT("/accept coupled\n/k 2\nTell me a story.\n", "--seed", "4", "-n", "30", "--temperature", "1");
    struct program seven =
        CHAT("/accept coupled\n/k 7\nTell me a story.\n", "--seed", "4", "-n", "30", "--temperature", "1");
    struct program token = CHAT("/k 7\nTell me a story.\n", "--seed", "4", "-n", "30", "--temperature", "1");
    must_succeed(&two);
    ck_assert_str_eq(buf_text(&two.out), buf_text(&seven.out));
    ck_assert_str_ne(buf_text(&token.out), buf_text(&seven.out));
    program_free(&two);
    program_free(&seven);
    program_free(&token);
}
END_TEST

/* A seed that is given repeats its answer, so K is fixed then. */
START_TEST(k_is_auto_unless_it_or_a_seed_is_given)
{
    struct program alone = CHAT("/set k\n/k 2\n/k auto\n/set\n", "--temperature", "1");
    struct program seeded = CHAT("/set\n", "--seed", "4");
    must_succeed(&alone);
    must_succeed(&seeded);
    ck_assert_msg(strstr(buf_text(&alone.out), "  k           auto (0 to 8)\n"), "%s", buf_text(&alone.out));
    ck_assert_msg(strstr(buf_text(&seeded.out), "  k           4 (up to 8)\n"), "%s", buf_text(&seeded.out));
    program_free(&alone);
    program_free(&seeded);
}
END_TEST

START_TEST(a_k_that_was_not_planned_for_is_refused_with_the_option_that_helps)
{
    struct program r = CHAT("/k 20\n", "--k-max", "6");
    ck_assert_int_eq(r.status, 1);
    ck_assert_str_eq(buf_text(&r.err), "duet: /k: memory was planned for 6 at most; start with --k-max 20 for more\n");
    program_free(&r);
}
END_TEST

START_TEST(a_k_without_a_draft_is_refused_with_what_loads_one)
{
    struct program target = CHAT("/k 4\n", "--target", asset_path("draft")), pair = CHAT("/set k auto\n", "--k", "0");
    ck_assert_int_eq(target.status, 1);
    ck_assert_int_eq(pair.status, 1);
    ck_assert_str_eq(buf_text(&target.err), "duet: /k: no draft is loaded; start with --draft MODEL, ngram or mtp\n");
    ck_assert_str_eq(buf_text(&pair.err), "duet: /k: no draft is loaded; start with --k above 0\n");
    program_free(&target);
    program_free(&pair);
}
END_TEST

START_TEST(a_setting_that_is_asked_for_is_said_in_a_pipe_too)
{
    struct program r = CHAT("/temp 0.25\n/temp\n/set k\n/max-tokens -1\n", "--k", "2");
    ck_assert_str_eq(buf_text(&r.out), "temperature 0.25\nk 2 (up to 8)\n");
    ck_assert_str_eq(buf_text(&r.err), "duet: /max-tokens: '-1' is not a whole number in [0, 2147483647]\n");
    program_free(&r);
}
END_TEST

START_TEST(a_command_that_is_long_or_no_text_is_refused_with_its_reason)
{
    char script[4000], word[1500];
    memset(word, 'x', sizeof word), word[sizeof word - 1] = '\0';
    snprintf(script, sizeof script, "/%s\n/set %s 1\n/system \xff\n", word, word);
    struct program r = CHAT(script, "-q");
    ck_assert_int_eq(r.status, 1);
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "x...: no such command; /help lists them\n"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "x...'; /set lists them\n"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.err), "duet: /system: the text is not valid UTF-8\n"));
    program_free(&r);
}
END_TEST

START_TEST(help_in_a_pipe_says_nothing_of_keys)
{
    struct program r = CHAT("/help\n", "-q");
    must_succeed(&r);
    ck_assert_ptr_null(strchr(buf_text(&r.out), '\\'));
    ck_assert_ptr_null(strstr(buf_text(&r.out), "Tab"));
    ck_assert_ptr_nonnull(strstr(buf_text(&r.out), "\"\"\" begins and ends a question of several lines."));
    program_free(&r);
}
END_TEST

START_TEST(show_marks_accepted_tokens_by_brackets_where_there_are_no_colours)
{
    struct program plain = CHAT("What is the sun?\n", GREEDY);
    struct program shown = CHAT("/show on\nWhat is the sun?\n/show\n", GREEDY);
    must_succeed(&shown);
    struct buf text = {0};
    int open = 0, marks = 0;
    for (const char *c = buf_text(&shown.out); *c; c++) {
        if (*c != '[' && *c != ']') {
            buf_putc(&text, *c);
            continue;
        }
        ck_assert_int_eq(open, *c == ']');
        open = *c == '[';
        marks++;
    }
    ck_assert_int_gt(marks, 3);
    ck_assert_ptr_null(strstr(buf_text(&shown.out), "][")); /* what is behind a bracket is not accepted */
    ck_assert_int_eq(open, 0);
    ck_assert_int_eq(strncmp(buf_text(&text), buf_text(&plain.out), plain.out.len), 0);
    ck_assert_str_eq(buf_text(&text) + plain.out.len, buf_text(&plain.out));
    buf_free(&text);
    program_free(&plain);
    program_free(&shown);
}
END_TEST

/* --- input of several lines, and records of several lines ---------------------------------------------------------- */

START_TEST(lines_between_quotes_are_one_turn)
{
    struct program given = CHAT("", "-p", "/one\ntwo\\\nthree", GREEDY);
    struct program quoted = CHAT("\"\"\"\n/one\ntwo\\\nthree\n\"\"\"\n", GREEDY);
    struct program tight = CHAT("\"\"\"/one\ntwo\\\nthree\"\"\"\n", GREEDY);
    struct program open = CHAT("\"\"\"/one\ntwo\\\nthree\n", GREEDY);
    must_succeed(&quoted);
    ck_assert_str_eq(buf_text(&given.out), buf_text(&quoted.out));
    ck_assert_str_eq(buf_text(&given.out), buf_text(&tight.out));
    ck_assert_str_eq(buf_text(&given.out), buf_text(&open.out));
    program_free(&given);
    program_free(&quoted);
    program_free(&tight);
    program_free(&open);
}
END_TEST

START_TEST(with_null_each_turn_and_command_gives_one_record)
{
    struct program lines = CHAT("What is the sun?\nAnd the moon?\n", GREEDY);
    struct program records = CHAT("What is the sun?\n/temp 0\n\n/nonsense\n/system\nAnd the moon?\n", GREEDY, "-0");
    struct buf text = {0};
    ck_assert_int_eq(records.status, 1);
    const char *at = buf_text(&records.out), *end = at + records.out.len;
    const char *const between[] = {NULL, "", "", "(the template's default)\n", NULL};
    for (int i = 0; i < 5; i++, at += strlen(at) + 1) {
        ck_assert(at < end);
        if (between[i])
            ck_assert_str_eq(at, between[i]);
        else
            buf_printf(&text, "%s\n", at);
    }
    ck_assert_ptr_eq(at, end);
    ck_assert_str_eq(buf_text(&text), buf_text(&lines.out));
    buf_free(&text);
    program_free(&lines);
    program_free(&records);
}
END_TEST

/* --- continuations --------------------------------------------------------------------------------------------------- */

/* With a tokenizer whose decoder leaves out a blank where a text begins. */
START_TEST(a_continuation_keeps_the_blank_that_it_begins_with)
{
    const char *model = shared_path("models/stories260K"), *path = temp_path("story.json");
    char script[600];
    if (!model) {
        skip("no model with such a tokenizer");
        return;
    }
    snprintf(script, sizeof script, "Once upon\n/save %s\n/load %s\nand\n", path, path);
    struct program once = CHAT("", "-t", model, "--k", "0", GREEDY, "-p", "Once upon");
    struct program talk = CHAT("Once upon\n/show\nand\n", "-t", model, "--k", "0", GREEDY);
    struct program loaded = CHAT(script, "-t", model, "--k", "0", GREEDY);
    struct program batch;
    program_run(&batch, "{\"prompt\": \"Once upon\"}\n{\"turns\": [\"Once upon\"]}\n{\"prompt\": \"\"}\n",
                ARGUMENTS("batch", "-t", model, "--k", "0", GREEDY));
    must_succeed(&once);
    size_t n = once.out.len;
    ck_assert_int_eq(strncmp(buf_text(&once.out), " a time", 7), 0);
    ck_assert_int_eq(strncmp(buf_text(&talk.out), buf_text(&once.out), n), 0);
    ck_assert_int_eq(strncmp(buf_text(&talk.out) + n, buf_text(&once.out), n), 0);
    ck_assert_str_eq(buf_text(&loaded.out) + n, buf_text(&talk.out) + 2 * n);
    for (int i = 0; i < 3; i++) {
        cJSON *record = json_line(&batch.out, i);
        const char *text = get_string(record, "text");
        ck_assert_int_eq(i < 2 ? strncmp(text, buf_text(&once.out), n - 1) : strncmp(text, "Once upon", 9), 0);
        cJSON_Delete(record);
    }
    program_free(&once);
    program_free(&talk);
    program_free(&loaded);
    program_free(&batch);
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
START_TEST(words_that_end_the_chat_stand_in_help)
{
    const char *command = (const char *[]){"/exit", "/quit", "/bye"}[_i];
    char script[64];
    snprintf(script, sizeof script, "/?\n%s\nWhat is the sun?\n", command);
    struct program ended = CHAT(script, GREEDY), help = CHAT("/help\n", GREEDY);
    must_succeed(&ended);
    ck_assert_str_eq(buf_text(&ended.out), buf_text(&help.out));
    ck_assert_ptr_nonnull(strstr(buf_text(&help.out), command));
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

START_TEST(a_command_that_takes_nothing_refuses_what_stands_behind_it)
{
    static const char *const commands[] = {"/undo 2", "/regen now", "/reset all", "/stats x", "/exit now"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char script[128], part[64];
        snprintf(script, sizeof script, "What is the sun?\n%s\n/save %s\n", commands[i], temp_path("kept"));
        snprintf(part, sizeof part, "%.*s: takes nothing behind it", (int)strcspn(commands[i], " "), commands[i]);
        struct program r = CHAT(script, GREEDY);
        struct buf held = {0};
        program_expect_error(&r, 1, part);
        text_of_file(temp_path("kept"), &held);
        cJSON *saved = json_line(&held, 0);
        ck_assert_int_eq(cJSON_GetArraySize(json_get(saved, "messages")), 2); /* nothing was done */
        cJSON_Delete(saved);
        ck_assert_int_eq(unlink(temp_path("kept")), 0);
        buf_free(&held);
        program_free(&r);
    }
}
END_TEST

Suite *check_chat(void) {
    Suite *suite = suite_create("chat");
    TCase *pipes = tcase_create("pipes");
    tcase_add_test(pipes, a_prompt_is_answered_the_same_at_every_k);
    tcase_add_test(pipes, a_prompt_is_read_from_standard_input);
    tcase_add_test(pipes, what_is_piped_in_follows_the_prompt_on_the_next_line);
    tcase_add_test(pipes, each_line_of_a_pipe_is_one_turn);
    tcase_add_test(pipes, undo_leaves_the_chat_as_it_was);
    tcase_add_test(pipes, commands_change_k_and_sampling);
    tcase_add_test(pipes, a_seed_repeats_a_chat_and_regen_takes_other_numbers);
    tcase_add_test(pipes, the_seed_in_stats_repeats_the_answer);
    tcase_add_test(pipes, set_lists_settings_and_sets_them_as_their_own_commands_do);
    tcase_add_test(pipes, accept_changes_the_rule_of_the_answers_to_come);
    tcase_add_test(pipes, k_is_auto_unless_it_or_a_seed_is_given);
    tcase_add_test(pipes, a_k_that_was_not_planned_for_is_refused_with_the_option_that_helps);
    tcase_add_test(pipes, a_k_without_a_draft_is_refused_with_what_loads_one);
    tcase_add_test(pipes, a_setting_that_is_asked_for_is_said_in_a_pipe_too);
    tcase_add_test(pipes, a_command_that_is_long_or_no_text_is_refused_with_its_reason);
    tcase_add_test(pipes, help_in_a_pipe_says_nothing_of_keys);
    tcase_add_test(pipes, show_marks_accepted_tokens_by_brackets_where_there_are_no_colours);
    tcase_add_test(pipes, lines_between_quotes_are_one_turn);
    tcase_add_test(pipes, with_null_each_turn_and_command_gives_one_record);
    tcase_add_test(pipes, a_continuation_keeps_the_blank_that_it_begins_with);
    tcase_add_test(pipes, a_bad_command_is_one_line_and_the_rest_runs);
    tcase_add_loop_test(pipes, words_that_end_the_chat_stand_in_help, 0, 3);
    tcase_add_test(pipes, a_message_that_cannot_fit_is_refused_and_the_chat_goes_on);
    tcase_add_test(pipes, a_command_that_takes_nothing_refuses_what_stands_behind_it);
    suite_add_tcase(suite, pipes);
    return suite;
}
