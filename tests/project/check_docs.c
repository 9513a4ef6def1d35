/* The documents speak of what is there: options that the program knows, files and suites that exist. */
#include "tests/support/support.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

static glob_t find_documents(void) {
    static const char *const patterns[] = {"*.md", "docs/*.md", "*/README.md", "model/kernels/*/README.md"};
    glob_t found = {0};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &found);
    ck_assert_uint_ge(found.gl_pathc, 4);
    return found;
}

static void read_all(FILE *f, struct buf *out) {
    char chunk[4096];
    ck_assert_ptr_nonnull(f);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) buf_append(out, chunk, n);
}

/* A check returns the number of faults of a text and prints them with `where`, unless that is NULL. */
typedef int (*check_fn)(const char *text, const char *where);

static int check_documents(check_fn check) {
    glob_t found = find_documents();
    int faults = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct buf text = {0};
        FILE *f = fopen(found.gl_pathv[i], "r");
        read_all(f, &text);
        fclose(f);
        faults += check(buf_text(&text), found.gl_pathv[i]);
        buf_free(&text);
    }
    globfree(&found);
    return faults;
}

static struct buf manual;

/* The manual page is made from the option table. */
static void read_manual(struct buf *out) {
    const char *program = getenv("DUET");
    char command[4096];
    snprintf(command, sizeof command, "%s --man", program ? program : "build/duet");
    FILE *f = popen(command, "r");
    read_all(f, out);
    ck_assert_int_eq(pclose(f), 0);
    ck_assert_uint_gt(out->len, 0);
    buf_puts(out, "\n--man"); /* a hidden option: it is the one used here */
    /* roff writes a hyphen of an option as \- */
    char *to = out->data;
    for (const char *from = buf_text(out); *from; from++)
        if (!(from[0] == '\\' && from[1] == '-')) *to++ = *from;
    *to = 0;
}

static size_t option_len(const char *text) {
    size_t n = 2;
    while (isalnum((unsigned char)text[n]) || text[n] == '-') n++;
    return n;
}

/* Does `text` hold the word [option, option+n), not as part of a longer one? */
static bool has_option(const char *text, const char *option, size_t n) {
    char word[64];
    ck_assert_uint_lt(n, sizeof word);
    memcpy(word, option, n), word[n] = 0;
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if (option_len(at) == n) return true;
    return false;
}

/* Is the line that holds `at` about a command of another program? */
static bool is_of_duet(const char *text, const char *at) {
    const char *line = at, *end = at + strcspn(at, "\n");
    while (line > text && line[-1] != '\n') line--;
    static const char *const others[] = {"git ", "make ", "tools/", "bench/"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *found = strstr(line, others[i]);
        if (found && found < end) return false;
    }
    return true;
}

/* Options that `manual` lacks. */
static int unknown_options(const char *text, const char *where) {
    int unknown = 0;
    for (const char *at = text; (at = strstr(at, "--")); at += option_len(at)) {
        size_t n = option_len(at);
        bool starts = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '-');
        if (n == 2 || !starts || !isalpha((unsigned char)at[2]) || !is_of_duet(text, at)) continue;
        if (has_option(buf_text(&manual), at, n)) continue;
        if (where) fprintf(stderr, "%s: duet has no option %.*s\n", where, (int)n, at);
        unknown++;
    }
    return unknown;
}

START_TEST(every_option_in_the_documents_exists)
{
    read_manual(&manual);
    ck_assert_int_eq(check_documents(unknown_options), 0);
    buf_free(&manual);
}
END_TEST

START_TEST(an_option_that_does_not_exist_is_found)
{
    buf_puts(&manual, ".B --k-max N\n.B --quiet");
    ck_assert_int_eq(unknown_options("Use `--quiet` and --k-max=3.", NULL), 0);
    ck_assert_int_eq(unknown_options("Use `--k 3`.", NULL), 1);
    ck_assert_int_eq(unknown_options("--loud\n--soft", NULL), 2);
    ck_assert_int_eq(unknown_options("a -- b, x--y, git log --oneline", NULL), 0);
    buf_free(&manual);
}
END_TEST

/* Words in back quotes that look like paths of the tree. */
static int missing_paths(const char *text, const char *where) {
    static const char *const roots[] = {"base/",   "graphs/", "model/", "sampler/",  "draft/", "target/",
                                        "verify/", "engine/", "cli/",   "tests/",    "tools/", "docs/",
                                        "assets/", ".ci/",    "lib/",   "examples/", "python/"};
    int missing = 0;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        for (const char *at = text; (at = strstr(at, roots[i])); at += strlen(roots[i])) {
            if (at == text || at[-1] != '`') continue;
            char path[256];
            size_t n = strcspn(at, "` *\n");
            bool whole = at[n] == '`' && n < sizeof path && !memchr(at, 'N', n);
            if (!whole) continue;
            memcpy(path, at, n), path[n] = 0;
            if (access(path, F_OK) == 0) continue;
            if (where) fprintf(stderr, "%s: there is no %s\n", where, path);
            missing++;
        }
    }
    return missing;
}

/* Is there a check_name.c or .cu in a folder of tests/? */
static bool is_suite(const char *name) {
    char pattern[128];
    glob_t found;
    snprintf(pattern, sizeof pattern, "tests/*/check_%s.c*", name);
    const bool is_there = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return is_there;
}

/* Words check_name that name no suite. */
static int missing_suites(const char *text, const char *where) {
    int missing = 0;
    for (const char *at = text; (at = strstr(at, "check_")); at += strlen("check_")) {
        char name[64];
        bool starts = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (!starts || sscanf(at, "check_%63[a-z_]", name) != 1) continue;
        if (is_suite(name)) continue;
        if (where) fprintf(stderr, "%s: there is no suite check_%s\n", where, name);
        missing++;
    }
    return missing;
}

START_TEST(every_file_and_suite_named_in_the_documents_exists)
{
    ck_assert_int_eq(check_documents(missing_paths), 0);
    ck_assert_int_eq(check_documents(missing_suites), 0);
}
END_TEST

START_TEST(a_file_or_suite_that_does_not_exist_is_found)
{
    ck_assert_int_eq(missing_paths("see `tests/support/support.h` and `engine/`", NULL), 0);
    ck_assert_int_eq(missing_paths("see `tests/nowhere.h`", NULL), 1);
    ck_assert_int_eq(missing_suites("`check_docs` or check_NAME", NULL), 0);
    ck_assert_int_eq(missing_suites("`check_nothing`", NULL), 1);
}
END_TEST

Suite *check_docs(void);
Suite *check_docs(void) {
    Suite *s = suite_create("docs");
    TCase *tc = tcase_create("documents");
    tcase_add_test(tc, every_option_in_the_documents_exists);
    tcase_add_test(tc, an_option_that_does_not_exist_is_found);
    tcase_add_test(tc, every_file_and_suite_named_in_the_documents_exists);
    tcase_add_test(tc, a_file_or_suite_that_does_not_exist_is_found);
    suite_add_tcase(s, tc);
    return s;
}
