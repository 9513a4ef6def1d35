/* The program from outside: command line, exit statuses, help, models. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/last_program.h"
#include "tests/support/support.h"

/* --- command line ----------------------------------------------------------------------------------------- */

START_TEST(no_command_prints_usage_and_exits_2)
{
    last_run(NULL, ARGUMENTS(NULL));
    last_expect_error(2, "usage: duet chat|batch|inspect|tokenize|bench|models|tune");
}
END_TEST

START_TEST(version_is_one_line_with_devices_and_compiler)
{
    last_run(NULL, ARGUMENTS("--version"));
    last_expect_ok();
    ck_assert_int_eq(count_lines(&last.out), 1);
    last_expect_out("duet 0.");
    last_expect_out("host");
    ck_assert(strstr(buf_text(&last.out), "gcc ") || strstr(buf_text(&last.out), "clang "));
}
END_TEST

START_TEST(help_of_each_command_shows_its_options_with_defaults)
{
    static const char *const commands[] = {"chat", "batch", "inspect", "tokenize", "bench", "models", "tune"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        last_run(NULL, ARGUMENTS(commands[i], "--help"));
        last_expect_ok();
        last_expect_out(commands[i]);
        last_expect_out("--quiet");
    }
    last_run(NULL, ARGUMENTS("batch", "-h"));
    last_expect_out("--temperature X");
    last_expect_out("(default: 0.7)");
    last_expect_out("auto in chat without --seed, else 4)");
    last_expect_out("--alpha-report[=FILE.json]");
    last_run(NULL, ARGUMENTS("tokenize", "--help"));
    ck_assert_ptr_null(strstr(buf_text(&last.out), "--temperature"));
}
END_TEST

START_TEST(bad_command_lines_are_usage_errors_that_name_what_is_wrong)
{
    static const struct {
        const char *arguments[5], *part;
    } cases[] = {
        {{"batch", "--temprature", "1"}, "--temprature: no such option; did you mean --temperature?"},
        {{"batch", "--k", "64"}, "--k: '64' is not auto or a whole number in [0, 63]"},
        {{"batch", "-k", "1.5"}, "'1.5'"},
        {{"batch", "--temperature=-0.5"}, "--temperature: '-0.5' is not a number in [0, inf)"},
        {{"batch", "--temperature", "nan"}, "'nan'"},
        {{"batch", "--top-p", "0"}, "(0, 1]"},
        {{"batch", "--min-p=1"}, "[0, 1)"},
        {{"batch", "--min-p", "0.99999999999"}, "[0, 1)"},
        {{"batch", "--repetition-penalty", "1e-39"}, "--repetition-penalty: '1e-39' is not a number in [0.01, 100]"},
        {{"batch", "--repetition-penalty", "0.01", "--k", "64"}, "--k: '64'"},
        {{"batch", "--max-tokens", "0"}, "--max-tokens: '0'"},
        {{"batch", "--seed", "-1"}, "--seed: '-1'"},
        {{"batch", "--seed", "18446744073709551616"}, "--seed"},
        {{"batch", "--batch", "257"}, "[1, 256]"},
        {{"batch", "--k"}, "--k: a value is missing"},
        {{"batch", "--quiet=yes"}, "--quiet: takes no value"},
        {{"batch", "--device", "tpu"}, "'tpu' is not one of auto|host|cuda"},
        {{"chat", "--stop", "\xbf"}, "--stop: '\\xbf' is not valid UTF-8"},
        {{"chat", "--system", "\xbf"}, "--system: '\\xbf' is not valid UTF-8"},
        {{"chat", "-p", "\xbf"}, "-p: '\\xbf' is not valid UTF-8"},
        {{"batch", "--graphs", "maybe"}, "on|off|debug"},
        {{"batch", "--draft", "x"}, "--draft: needs --target"},
        {{"batch", "--k", "5", "--k-max", "3"}, "--k-max: 3 is below --k 5"},
        {{"batch", "extra"}, "'extra'"},
        {{"tokenize"}, "which directory"},
        {{"tokenize", "a", "b"}, "'b'"},
        {{"tokenize", "a", "--temperature", "1"}, "not of duet tokenize"},
        {{"inspect", "a", "--memory"}, "'a'"},
        {{"paint"}, "'paint': no such command"},
        {{"-k", "3"}, "-k"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, cases[i].arguments);
        last_expect_error(2, cases[i].part);
    }
}
END_TEST

START_TEST(the_reason_stands_behind_what_is_quoted_however_long_it_is)
{
    char value[3000], option[3000], letters[3000], command[3001];
    memset(value, '1', sizeof value), memset(option, 'x', sizeof option);
    for (size_t i = 0; i + 2 < sizeof letters; i += 2) memcpy(letters + i, "\xc3\xa9", 2);
    value[sizeof value - 1] = option[sizeof option - 1] = letters[sizeof letters - 2] = '\0';
    memcpy(option, "--", 2);
    snprintf(command, sizeof command, "a%s", option);
    const struct {
        const char *arguments[3], *part;
    } cases[] = {
        {{"batch", "--temperature", value}, "1...' is not a number in [0, inf)"},
        {{"batch", "--device", letters}, "\xc3\xa9...' is not one of auto|host|cuda"},
        {{"batch", option}, "x...: no such option; see duet batch --help"},
        {{command}, "x...': no such command; see duet --help"},
        {{"models", letters}, "\xc3\xa9...': duet models takes no argument"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, ARGUMENTS(cases[i].arguments[0], cases[i].arguments[1], cases[i].arguments[2]));
        last_expect_error(2, cases[i].part);
    }
}
END_TEST

START_TEST(an_empty_value_is_refused_with_the_name_of_its_option)
{
    static const struct {
        const char *arguments[6], *part;
    } cases[] = {
        {{"batch", "--target", ""}, "--target: the value is empty (MODEL)"},
        {{"batch", "--target", "x", "-d", ""}, "-d: the value is empty (MODEL)"},
        {{"batch", "--template="}, "--template: the value is empty (NAME|FILE.jinja)"},
        {{"batch", "--draft-vocab", ""}, "--draft-vocab: the value is empty (N|FILE)"},
        {{"batch", "-i", ""}, "-i: the value is empty (FILE)"},
        {{"batch", "--output="}, "--output: the value is empty (FILE)"},
        {{"batch", "--stop", ""}, "--stop: the value is empty (TEXT)"},
        {{"chat", "--alpha-report="}, "--alpha-report: the value is empty (FILE.json)"},
        {{"chat", "--config", ""}, "--config: the value is empty (FILE)"},
        {{"bench", "alpha", "--plot", ""}, "--plot: the value is empty (FILE.svg)"},
        {{"inspect", "--memory", "--shape", ""}, "--shape: the value is empty (TARGET[,DRAFT])"},
        {{"inspect", "--shape", "llama-3.1-8b", "--write", ""}, "--write: the value is empty (DIR)"},
        {{"inspect", ""}, "duet inspect: DIR is empty"},
        {{"tokenize", ""}, "duet tokenize: DIR is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, cases[i].arguments);
        last_expect_error(2, cases[i].part);
    }
    last_run(NULL, ARGUMENTS("chat", "-p", "", "--system", "", "-n", "2"));
    last_expect_ok();
}
END_TEST

START_TEST(a_command_that_is_nearly_one_is_named)
{
    static const struct {
        const char *given, *part;
    } cases[] = {
        {"chatt", "duet: 'chatt': no such command; did you mean duet chat?\n"},
        {"Batch", "'Batch': no such command; did you mean duet batch?"},
        {"inpsect", "did you mean duet inspect?"},
        {"model", "did you mean duet models?"},
        {"benchmark", "did you mean duet bench?"},
        {"tokenizer", "did you mean duet tokenize?"},
        {"run", "did you mean duet chat?"},
        {"help", "'help': no such command; see duet --help"},
        {"serve", "'serve': no such command; see duet --help"},
        {"", "'': no such command; see duet --help"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, ARGUMENTS(cases[i].given));
        last_expect_error(2, cases[i].part);
    }
}
END_TEST

START_TEST(an_argument_too_many_is_answered_with_the_option_that_takes_it)
{
    static const struct {
        const char *arguments[5], *part;
    } cases[] = {
        {{"chat", "What is rain?"}, "'What is rain?': duet chat takes no argument; hint: -p TEXT answers one question"},
        {{"batch", "in.jsonl"}, "'in.jsonl': duet batch takes no argument; hint: -i FILE is what it reads"},
        {{"chat", "--alpha-report", "r.json"}, "'r.json': duet chat takes no argument; hint: --alpha-report=r.json"},
        {{"models", "x"}, "duet: 'x': duet models takes no argument\n"},
        {{"inspect", "a", "-t", "b"}, "'a': --target names a model too, and one is enough"},
        {{"inspect", "--tensors", "--memory"},
         "--tensors: lists files, which --memory, --graphs and --write do not show"},
        {{"inspect", "a", "b"}, "'b': one directory is enough"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, cases[i].arguments);
        last_expect_error(2, cases[i].part);
    }
}
END_TEST

START_TEST(csv_and_json_together_are_refused)
{
    static const struct {
        const char *arguments[4];
    } cases[] = {
        {{"bench", "--csv", "--json"}}, {{"bench", "alpha", "--json", "--csv"}}, {{"tune", "--json", "--csv"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *a = cases[i].arguments;
        last_run(NULL, ARGUMENTS(a[0], a[1], a[2], a[3]));
        last_expect_error(2, "duet: --csv and --json: give one of them\n");
        ck_assert_uint_eq(last.out.len, 0);
    }
}
END_TEST

START_TEST(an_option_of_another_program_is_answered_with_ours)
{
    static const struct {
        const char *arguments[5], *part;
    } cases[] = {
        {{"chat", "-m", "x"}, "-m: no such option; did you mean --target?"},
        {{"chat", "-md", "x"}, "-md: no such option; did you mean --draft?"},
        {{"chat", "-ngl", "99"}, "-ngl: no such option; did you mean --device cuda?"},
        {{"chat", "-qm", "x"}, "-qm: no such option; did you mean --target?"},
        {{"chat", "--temp", "1"}, "--temp: no such option; did you mean --temperature?"},
        {{"chat", "--temp=1"}, "--temp: no such option; did you mean --temperature?"},
        {{"batch", "--top_k", "1"}, "--top_k: no such option; did you mean --top-k?"},
        {{"batch", "--draft-max", "8"}, "did you mean --k?"},
        {{"batch", "--num_speculative_tokens", "8"}, "did you mean --k?"},
        {{"batch", "--speculative-model", "x"}, "did you mean --draft?"},
        {{"batch", "--ctx-size", "8"}, "did you mean --ctx?"},
        {{"batch", "--n-predict", "8"}, "did you mean --max-tokens?"},
        {{"batch", "--max", "8"}, "did you mean --max-tokens?"},
        {{"batch", "--n", "8"}, "--n: no such option; did you mean -n?"},
        {{"batch", "-v"}, "-v: no such option; did you mean --version?"},
        {{"chat", "-o", "x"}, "-o: an option of duet batch, not of duet chat"},
        {{"chat", "-x"}, "-x: no such option; see duet chat --help"},
        {{"tokenize", "d", "--temp", "1"}, "--temperature is an option of duet chat, not of duet tokenize"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        last_run(NULL, cases[i].arguments);
        last_expect_error(2, cases[i].part);
    }
    last_run(NULL, ARGUMENTS("chat", "-t", "8"));
    last_expect_error(1, "8: no such directory; hint: -t is --target, threads are --threads");
}
END_TEST

START_TEST(options_may_stand_before_the_command_and_around_its_argument)
{
    const char *dir = asset_path("target");
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("--quiet", "tokenize", "--special", dir, "--input=-"));
    last_expect_ok();
    ck_assert_int_eq(count_lines(&last.out), 1);
    last_run(NULL, ARGUMENTS("-k", "64", "batch"));
    last_expect_error(2, "[0, 63]");
}
END_TEST

START_TEST(help_into_a_full_device_fails)
{
    struct buf command = {0};
    buf_printf(&command, "'%s' --help > /dev/full 2> /dev/null", program_path());
    int status = system(buf_text(&command));
    buf_free(&command);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 1);
}
END_TEST

/* The letters of an option's name that begin at `text` (after "--"). */
static size_t name_length(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyz-");
}

START_TEST(manual_is_roff_and_every_option_of_the_readme_is_in_it)
{
    last_run(NULL, ARGUMENTS("--man"));
    last_expect_ok();
    ck_assert_ptr_eq(strstr(buf_text(&last.out), ".TH DUET 1"), buf_text(&last.out));
    last_expect_out(".SH OPTIONS");
    if (access("README.md", R_OK) != 0) return;
    struct buf readme = {0}, wanted = {0};
    text_of_file("README.md", &readme);
    const char *at = buf_text(&readme);
    while ((at = strstr(at, "--"))) {
        size_t n = name_length(at + 2);
        bool is_option = n > 1 && at[2] != '-' && (at == readme.data || strchr(" `\n([", at[-1]));
        buf_clear(&wanted);
        buf_puts(&wanted, "\\-\\-");
        for (size_t i = 0; i < n; i++) buf_printf(&wanted, at[2 + i] == '-' ? "\\-" : "%c", at[2 + i]);
        if (is_option) last_expect_out(buf_text(&wanted));
        at += 2 + n;
    }
    buf_free(&readme);
    buf_free(&wanted);
}
END_TEST

/* --- models ------------------------------------------------------------------------------------------------ */

START_TEST(missing_checkpoint_is_named)
{
    last_run("{\"prompt\": \"a\"}\n", ARGUMENTS("batch", "--target", "/nowhere/at/all"));
    last_expect_error(1, "/nowhere/at/all");
    last_run(NULL, ARGUMENTS("inspect", temp_dir()));
    last_expect_error(1, "config.json");
    last_run(NULL, ARGUMENTS("batch", "--template", "nothing-like-it"));
    last_expect_error(2, "nothing-like-it");
    setenv("HF_HOME", temp_dir(), 1);
    last_run(NULL, ARGUMENTS("inspect", "nobody/nothing"));
    last_expect_error(1, "models--nobody--nothing");
}
END_TEST

START_TEST(a_path_that_a_sentence_has_no_room_for_leaves_room_for_the_reason)
{
    struct buf path = {0};
    for (int i = 0; i < 200; i++) buf_puts(&path, "/nowhere");
    last_run(NULL, ARGUMENTS("batch", "-i", buf_text(&path)));
    last_expect_error(1, "/nowhere: No such file or directory\n");
    last_run(NULL, ARGUMENTS("inspect", buf_text(&path)));
    last_expect_error(1, "/nowhere: no such directory\n");
    last_run(NULL, ARGUMENTS("inspect", "--shape", "llama-3.2-1b", "--write", buf_text(&path)));
    last_expect_error(1, "/nowhere: cannot create: No such file or directory\n");
    buf_free(&path);
}
END_TEST

static void make_dir(const char *path) {
    ck_assert_msg(mkdir(path, 0700) == 0, "%s", path);
}

START_TEST(org_and_name_are_found_in_the_local_cache)
{
    char target[4096];
    ck_assert_ptr_nonnull(realpath(asset_path("target"), target));
    make_dir(temp_path("hub"));
    make_dir(temp_path("hub/models--tiny--target"));
    make_dir(temp_path("hub/models--tiny--target/refs"));
    make_dir(temp_path("hub/models--tiny--target/snapshots"));
    text_to_file(temp_path("hub/models--tiny--target/refs/main"), "0123abc\n");
    setenv("HF_HOME", temp_dir(), 1);
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", "tiny/target"));
    last_expect_error(1, "snapshots/0123abc");
    ck_assert_int_eq(symlink(target, temp_path("hub/models--tiny--target/snapshots/0123abc")), 0);
    last_run("{\"text\": \"a\"}\n", ARGUMENTS("tokenize", "tiny/target"));
    last_expect_ok();
}
END_TEST

START_TEST(runs_from_anywhere_and_through_a_symlink)
{
    struct buf command = {0};
    ck_assert_int_eq(symlink(program_path(), temp_path("linked")), 0);
    buf_printf(&command, "cd / && '%s' inspect > /dev/null", temp_path("linked"));
    int status = system(buf_text(&command));
    buf_free(&command);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(an_installed_tree_may_be_moved)
{
    char prefix[4096];
    struct buf command = {0};
    ck_assert_ptr_nonnull(realpath(temp_dir(), prefix));
    buf_printf(&command,
               "mkdir -p '%s/bin' '%s/share/duet' && cp '%s' '%s/bin/duet' && cp -r '%s' '%s' '%s/share/duet' && "
               "unset DUET_ASSETS && cd / && '%s/bin/duet' inspect",
               prefix, prefix, program_path(), prefix, asset_path("target"), asset_path("draft"), prefix, prefix);
    FILE *out = popen(buf_text(&command), "r");
    char line[4096], *path;
    ck_assert_ptr_nonnull(fgets(line, sizeof line, out));
    ck_assert_ptr_nonnull(path = strchr(line, '/'));
    path[strcspn(path, "\n")] = 0;
    while (fgetc(out) != EOF) continue;
    ck_assert_int_eq(pclose(out), 0);
    buf_clear(&command);
    buf_printf(&command, "%s/share/duet/target", prefix);
    ck_assert_str_eq(path, buf_text(&command));
    buf_free(&command);
}
END_TEST

START_TEST(duet_assets_comes_first_and_must_hold_the_pair)
{
    setenv("DUET_ASSETS", temp_dir(), 1);
    last_run(NULL, ARGUMENTS("inspect"));
    last_expect_error(1, "lacks target or draft");
    make_dir(temp_path("target"));
    make_dir(temp_path("draft"));
    last_run(NULL, ARGUMENTS("inspect"));
    last_expect_error(1, temp_dir());
}
END_TEST

START_TEST(help_names_every_shape_that_there_is)
{
    last_run(NULL, ARGUMENTS("inspect", "--memory", "--shape", "nosuch"));
    last_expect_error(2, "expected FILE.json or one of ");
    char names[1024], *rest = names;
    snprintf(names, sizeof names, "%s", strstr(buf_text(&last.err), "one of ") + strlen("one of "));
    last_run(NULL, ARGUMENTS("inspect", "--help"));
    for (const char *name; (name = strtok_r(rest, ", \n", &rest)) != NULL;) last_expect_out(name);
}
END_TEST

Suite *check_cli(void) {
    Suite *suite = suite_create("cli");
    TCase *line = tcase_create("command line");
    tcase_add_test(line, no_command_prints_usage_and_exits_2);
    tcase_add_test(line, version_is_one_line_with_devices_and_compiler);
    tcase_add_test(line, help_of_each_command_shows_its_options_with_defaults);
    tcase_add_test(line, help_names_every_shape_that_there_is);
    tcase_add_test(line, bad_command_lines_are_usage_errors_that_name_what_is_wrong);
    tcase_add_test(line, the_reason_stands_behind_what_is_quoted_however_long_it_is);
    tcase_add_test(line, an_empty_value_is_refused_with_the_name_of_its_option);
    tcase_add_test(line, a_command_that_is_nearly_one_is_named);
    tcase_add_test(line, an_argument_too_many_is_answered_with_the_option_that_takes_it);
    tcase_add_test(line, csv_and_json_together_are_refused);
    tcase_add_test(line, an_option_of_another_program_is_answered_with_ours);
    tcase_add_test(line, options_may_stand_before_the_command_and_around_its_argument);
    tcase_add_test(line, help_into_a_full_device_fails);
    tcase_add_test(line, manual_is_roff_and_every_option_of_the_readme_is_in_it);
    suite_add_tcase(suite, line);
    TCase *models = tcase_create("models");
    tcase_add_test(models, missing_checkpoint_is_named);
    tcase_add_test(models, a_path_that_a_sentence_has_no_room_for_leaves_room_for_the_reason);
    tcase_add_test(models, org_and_name_are_found_in_the_local_cache);
    tcase_add_test(models, runs_from_anywhere_and_through_a_symlink);
    tcase_add_test(models, an_installed_tree_may_be_moved);
    tcase_add_test(models, duet_assets_comes_first_and_must_hold_the_pair);
    suite_add_tcase(suite, models);
    return suite;
}
