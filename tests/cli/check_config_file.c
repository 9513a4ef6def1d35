/* The configuration file: what it sets, what overrides it, and what is said of a bad line. */
#include "cli/config_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "engine/engine.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static struct options o;
static struct buf text;

/* A command line and the lines of a file. */
static int parse(const char *lines, const char *const *arguments) {
    char *argv[16] = {"duet"};
    int argc = 1;
    while (arguments[argc - 1]) argv[argc] = (char *)arguments[argc - 1], argc++;
    ck_ok(options_parse_arguments(&o, argc, argv));
    buf_free(&text);
    buf_puts(&text, lines);
    TRY(config_file_parse(&o, &text, "a/config"));
    return options_finish(&o);
}

START_TEST(a_line_sets_what_the_option_of_its_name_sets)
{
    ck_ok(
        parse("# a comment\n\n  temperature = 0 \nk=6\nmax-tokens\t=\t12\r\nseed = 18446744073709551615\nstop = a # b\n"
              "stop = ~ \xc3\xa4\nquiet\nalpha-report\naccept = block\nthink = off\nthreads = 1",
              ARGUMENTS("batch")));
    ck_assert_float_eq(o.sampling.temperature, 0);
    ck_assert_int_eq(o.k, 6);
    ck_assert_int_eq(o.max_tokens, 12);
    ck_assert(option_given(&o, "seed") && o.seed == UINT64_MAX);
    ck_assert_int_eq(o.stop_count, 2);
    ck_assert_str_eq(o.stop[0], "a # b");
    ck_assert_str_eq(o.stop[1], "~ \xc3\xa4");
    ck_assert(o.quiet && o.alpha_report && !o.alpha_report_file && !o.think);
    ck_assert_int_eq(o.accept, 2);
    ck_ok(parse("k = 1\nk = 2\nalpha-report = r.json", ARGUMENTS("batch")));
    ck_assert_int_eq(o.k, 2);
    ck_assert_str_eq(o.alpha_report_file, "r.json");
}
END_TEST

START_TEST(the_command_line_overrides_the_file)
{
    ck_ok(parse("k = 6\ntemperature = 1\nstop = x\nstop = y\n", ARGUMENTS("batch", "-k", "2", "--stop", "z")));
    ck_assert_int_eq(o.k, 2);
    ck_assert_float_eq(o.sampling.temperature, 1);
    ck_assert_int_eq(o.stop_count, 1);
    ck_assert_str_eq(o.stop[0], "z");
}
END_TEST

START_TEST(a_target_of_the_command_line_has_none_of_the_file_s_company)
{
    static const char lines[] = "target = A\ndraft = B\ntemplate = chatml\nk = 3\n";
    ck_ok(parse(lines, ARGUMENTS("chat")));
    ck_assert_str_eq(o.target, "A");
    ck_assert_str_eq(o.draft, "B");
    ck_ok(parse(lines, ARGUMENTS("chat", "--target", "C")));
    ck_assert_str_eq(o.target, "C");
    ck_assert(!o.draft && !o.chat_template && o.k == 3);
    ck_ok(parse(lines, ARGUMENTS("bench", "--shape", "llama-3.2-1b")));
    ck_assert(!o.target && !o.draft);
    ck_ok(parse(lines, ARGUMENTS("inspect", "C")));
    ck_assert(!o.target && !o.draft && !o.chat_template);
    ck_ok(parse(lines, ARGUMENTS("chat", "--draft", "ngram")));
    ck_assert_str_eq(o.target, "A");
    ck_assert_str_eq(o.draft, "ngram");
}
END_TEST

START_TEST(a_form_of_the_command_line_puts_the_file_s_aside)
{
    ck_ok(parse("csv\n", ARGUMENTS("bench", "--json")));
    ck_assert(o.json && !o.csv);
    ck_ok(parse("json\n", ARGUMENTS("tune", "--csv")));
    ck_assert(o.csv && !o.json);
    ck_ok(parse("json\n", ARGUMENTS("models")));
    ck_assert(o.json);
    ck_assert_int_eq(parse("csv\njson\n", ARGUMENTS("bench")), ERR_USAGE);
    ck_assert_str_eq(err_message(), "--csv and --json: give one of them");
}
END_TEST

START_TEST(options_of_other_commands_are_skipped_and_of_two_of_a_name_the_form_decides)
{
    ck_ok(parse("temperature = 0\nsystem = Be brief.\ncsv\ngraphs = debug\n", ARGUMENTS("tokenize", "DIR")));
    ck_assert(o.given == 0 && !o.system);
    ck_ok(parse("k = auto\n", ARGUMENTS("batch")));
    ck_assert_int_eq(o.k, K_AUTO);
    ck_ok(parse("k = auto\n", ARGUMENTS("bench"))); /* which takes numbers alone */
    ck_assert(o.k == 4 && o.given == 0);
    ck_ok(parse("graphs = debug\n", ARGUMENTS("batch")));
    ck_assert_int_eq(o.graphs, 2);
    ck_ok(parse("graphs = debug\n", ARGUMENTS("inspect")));
    ck_assert_int_eq(o.show_graphs, 0);
    ck_ok(parse("graphs\n", ARGUMENTS("inspect")));
    ck_assert_int_eq(o.show_graphs, 1);
}
END_TEST

START_TEST(a_bad_line_is_one_sentence_with_the_file_and_the_line)
{
    static const struct {
        const char *lines, *sentence;
    } cases[] = {
        {"k = 4\nk = 64\n", "a/config, line 2: k: '64' is not auto or a whole number in [0, 63]"},
        {"temprature = 1", "a/config, line 1: 'temprature': no option that a file can set"},
        {"\n\nhelp\n", "a/config, line 3: 'help': no option that a file can set"},
        {"config = x", "a/config, line 1: 'config': no option that a file can set"},
        {"k 4", "a/config, line 1: 'k 4': no option that a file can set"},
        {"k", "a/config, line 1: k: a value is missing (N|auto)"},
        {"k =", "a/config, line 1: nothing stands behind '='"},
        {"= 4", "a/config, line 1: '': no option that a file can set"},
        {"quiet = on", "a/config, line 1: quiet: takes no value"},
        {"csv\nsimulate-alpha = 2", "a/config, line 2: simulate-alpha: '2' is not a number in (0, 1]"},
        {"stop = \xff", "a/config, line 1: not text in UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(parse(cases[i].lines, ARGUMENTS("chat")), ERR_USAGE);
        ck_assert_str_eq(err_message(), cases[i].sentence);
    }
    ck_ok(parse("\xef\xbb\xbfk = 3\n", ARGUMENTS("chat"))); /* a byte order mark, as some editors leave it */
    ck_assert_int_eq(o.k, 3);
    ck_ok(parse("", ARGUMENTS("chat")));
    buf_append(&text, "k = 4\0\n", 7);
    ck_assert_int_eq(config_file_parse(&o, &text, "a/config"), ERR_USAGE);
    ck_assert_str_eq(err_message(), "a/config, line 1: not text in UTF-8");
}
END_TEST

/* --- the program -------------------------------------------------------------------------------------------- */

static void expect_tokens(const char *const *arguments, int tokens) {
    struct program p;
    program_run(&p, "{\"prompt\": \"Once\", \"ignore_eos\": true}\n", arguments);
    program_expect_status(&p, 0);
    cJSON *record = json_line(&p.out, 0);
    ck_assert_int_eq((int)get_number(record, "completion_tokens"), tokens);
    cJSON_Delete(record);
    program_free(&p);
}

START_TEST(the_program_reads_the_user_s_file_or_another_or_none)
{
    struct program p;
    char folder[300], home[300];
    snprintf(folder, sizeof folder, "%s/duet", temp_dir());
    snprintf(home, sizeof home, "%s/.config", temp_dir());
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    ck_assert_int_eq(symlink(".", home), 0);
    text_to_file(temp_path("duet/config"), "max-tokens = 5\nthreads = 1\nctx = 256\n");
    text_to_file(temp_path("other"), "max-tokens = 7\nthreads = 1\nctx = 256\nalpha-report = ~/report.json\n");
    setenv("XDG_CONFIG_HOME", temp_dir(), 1);
    expect_tokens(ARGUMENTS("batch"), 5);
    expect_tokens(ARGUMENTS("batch", "-n", "6"), 6);
    expect_tokens(ARGUMENTS("batch", "-n", "6", "--config", "none", "--ctx", "256"), 6);
    unsetenv("XDG_CONFIG_HOME");
    setenv("HOME", temp_dir(), 1);
    expect_tokens(ARGUMENTS("batch"), 5);
    program_run(&p, "", ARGUMENTS("batch", "--config", temp_path("other")));
    ck_assert_int_eq(p.status, 0);
    program_free(&p);
    text_of_file(temp_path("report.json"), &text); /* is there */
    program_run(&p, "", ARGUMENTS("batch", "--config", temp_path("nowhere")));
    program_expect_error(&p, 1, "/nowhere");
    program_free(&p);
    char long_path[PATH_MAX + 1];
    memset(long_path, 'x', PATH_MAX), long_path[PATH_MAX] = '\0';
    program_run(&p, "", ARGUMENTS("batch", "--config", long_path)); /* never skipped */
    ck_assert_int_eq(p.status, 1);
    program_free(&p);
    text_to_file(temp_path("duet/config"), "k = many\n");
    program_run(&p, "", ARGUMENTS("batch"));
    program_expect_error(&p, 2, "/.config/duet/config, line 1: k: 'many'");
    program_free(&p);
    program_run(&p, "", ARGUMENTS("batch", "--help")); /* does not depend on it */
    program_expect_status(&p, 0);
    program_free(&p);
}
END_TEST

Suite *check_config_file(void);
Suite *check_config_file(void) {
    Suite *s = suite_create("config_file");
    TCase *tc = tcase_create("lines");
    tcase_add_test(tc, a_line_sets_what_the_option_of_its_name_sets);
    tcase_add_test(tc, the_command_line_overrides_the_file);
    tcase_add_test(tc, a_target_of_the_command_line_has_none_of_the_file_s_company);
    tcase_add_test(tc, a_form_of_the_command_line_puts_the_file_s_aside);
    tcase_add_test(tc, options_of_other_commands_are_skipped_and_of_two_of_a_name_the_form_decides);
    tcase_add_test(tc, a_bad_line_is_one_sentence_with_the_file_and_the_line);
    tcase_add_test(tc, the_program_reads_the_user_s_file_or_another_or_none);
    suite_add_tcase(s, tc);
    return s;
}
