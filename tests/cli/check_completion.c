/* Completion in shells: every option of every command is offered, with its values, and the scripts are such that the shells
 * read them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static bool has(const char *program) {
    char command[64];
    snprintf(command, sizeof command, "command -v %s > /dev/null", program);
    return system(command) == 0;
}

/* Writes the script for a shell to a file of its name. */
static const char *script_of(const char *shell) {
    struct program p;
    program_run(&p, NULL, ARGUMENTS("--completion", shell));
    program_expect_status(&p, 0);
    text_to_file(temp_path(shell), buf_text(&p.out));
    program_free(&p);
    return temp_path(shell);
}

/* What a command of the shell prints; it succeeds. */
static void shell_output(struct buf *out, const char *command) {
    char block[4096];
    size_t n;
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    buf_clear(out);
    while ((n = fread(block, 1, sizeof block, f)) > 0) buf_append(out, block, n);
    ck_assert_msg(pclose(f) == 0, "%s: %s", command, buf_text(out));
}

/* Is `word` a line of `text`, or the beginning of one up to a tab or an equals sign? */
static bool is_offered(const struct buf *text, const char *word) {
    size_t n = strlen(word);
    for (const char *line = buf_text(text); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, n) == 0 && strchr("\n\t=", line[n])) return true;
    }
    return false;
}

/* What bash or fish offers for `begun` behind "duet", a command and `words`. */
static void ask(struct buf *out, const char *shell, const char *command, const char *words, const char *begun) {
    char line[1024];
    if (strcmp(shell, "bash") == 0)
        snprintf(line, sizeof line,
                 "bash -c '. %s; COMP_WORDS=(duet %s %s \"%s\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _duet; "
                 "printf \"%%s\\n\" \"${COMPREPLY[@]}\"' 2>&1",
                 temp_path("bash"), command, words, begun);
    else
        snprintf(line, sizeof line, "HOME=%s fish -c 'source %s; complete -C \"duet %s %s %s\"' 2>&1", temp_dir(),
                 temp_path("fish"), command, words, begun);
    shell_output(out, line);
}

static void check_options(const char *shell) {
    struct buf out = {0};
    script_of(shell);
    for (int c = COMMAND_NONE; c < COMMANDS; c++) {
        ask(&out, shell, command_table[c].name, "", "--");
        for (int i = 0; i < option_count; i++) {
            const struct option_row *row = &option_table[i];
            char word[64];
            snprintf(word, sizeof word, "--%s", row->name);
            bool wanted = false;
            for (int j = 0; j < option_count; j++)
                if (strcmp(option_table[j].name, row->name) == 0 && !option_table[j].hidden)
                    wanted |= option_table[j].commands >> c & 1;
            ck_assert_msg(is_offered(&out, word) == wanted, "%s, duet %s: %s is %s offered: %s", shell,
                          command_table[c].name, word, wanted ? "not" : "wrongly", buf_text(&out));
        }
    }
    ask(&out, shell, "batch", "--accept", "");
    ck_assert_msg(is_offered(&out, "coupled") && !is_offered(&out, "--accept"), "%s", buf_text(&out));
    ask(&out, shell, "bench", "--graphs", "");
    ck_assert_msg(is_offered(&out, "debug"), "%s", buf_text(&out));
    ask(&out, shell, "bench", "", "o");
    ck_assert_msg(is_offered(&out, "overhead") && !is_offered(&out, "alpha"), "%s", buf_text(&out));
    buf_free(&out);
}

START_TEST(bash_offers_every_option_of_every_command_and_the_values_of_one)
{
    struct buf out = {0};
    char command[512];
    if (!has("bash")) return skip("there is no bash");
    check_options("bash");
    snprintf(command, sizeof command, "bash -n %s 2>&1", temp_path("bash"));
    shell_output(&out, command);
    ck_assert_str_eq(buf_text(&out), "");
    buf_free(&out);
}
END_TEST

START_TEST(fish_offers_every_option_of_every_command_and_the_values_of_one)
{
    if (!has("fish")) return skip("there is no fish");
    check_options("fish");
}
END_TEST

/* zsh completes at a terminal alone: here is what it reads. */
START_TEST(zsh_reads_every_option_of_every_command)
{
    struct buf text = {0}, out = {0};
    const char *path = script_of("zsh");
    char command[512];
    text_of_file(path, &text);
    for (int c = COMMAND_NONE; c < COMMANDS; c++) {
        char label[64];
        snprintf(label, sizeof label, "\n    %s)\n", c ? command_table[c].name : "*");
        const char *begin = strstr(buf_text(&text), label);
        ck_assert_msg(begin != NULL, "no part for %s", label);
        const char *end = strstr(begin, ";;\n");
        for (int i = 0; i < option_count; i++) {
            char word[64];
            snprintf(word, sizeof word, "--%s", option_table[i].name);
            if (!(option_table[i].commands >> c & 1) || option_table[i].hidden) continue;
            const char *at = begin;
            while ((at = strstr(at, word)) && !strchr("[=}", at[strlen(word)])) at++;
            ck_assert_msg(at && at < end, "duet %s: no %s", command_table[c].name, word);
        }
    }
    buf_free(&text);
    if (!has("zsh")) return skip("there is no zsh");
    snprintf(command, sizeof command, "zsh -n %s 2>&1", path);
    shell_output(&out, command);
    ck_assert_str_eq(buf_text(&out), "");
    buf_free(&out);
}
END_TEST

Suite *check_completion(void);
Suite *check_completion(void) {
    Suite *s = suite_create("completion");
    TCase *tc = tcase_create("shells");
    tcase_add_test(tc, bash_offers_every_option_of_every_command_and_the_values_of_one);
    tcase_add_test(tc, fish_offers_every_option_of_every_command_and_the_values_of_one);
    tcase_add_test(tc, zsh_reads_every_option_of_every_command);
    suite_add_tcase(s, tc);
    return s;
}
