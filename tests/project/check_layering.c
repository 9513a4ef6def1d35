/* Arrows point one way: {cli, lib} -> engine -> {draft, verify} -> {sampler, target} -> {model, round} -> graphs -> base, and only cli/
 * talks to the outside. Read from the sources themselves. */
#include "tests/support/support.h"

#include <ctype.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name;
    int rank;
} modules[] = {
    {"base", 0},  {"graphs", 1}, {"model", 2},  {"round", 2}, {"sampler", 3}, {"target", 3},
    {"draft", 4}, {"verify", 4}, {"engine", 5}, {"lib", 6},   {"cli", 6},
};
enum { MODULES = sizeof modules / sizeof *modules };

static int module_of(const char *path) {
    size_t n = strcspn(path, "/");
    for (int i = 0; i < MODULES; i++)
        if (strlen(modules[i].name) == n && memcmp(modules[i].name, path, n) == 0) return i;
    return -1;
}

/* The faults of one line of a file of module `from`: a sentence, or NULL. */
static const char *include_fault(int from, const char *line) {
    char name[256];
    if (sscanf(line, " # include \"%255[^\"]\"", name) != 1) return NULL;
    int to = module_of(name);
    if (to < 0) return "includes by a path that begins with no module";
    if (to == from || modules[to].rank < modules[from].rank) return NULL;
    return "includes upwards or sideways";
}

/* Calls that belong to cli/ alone. */
static const char *call_fault(int from, const char *line) {
    static const char *const calls[] = {"printf", "vprintf", "puts", "putchar", "perror", "exit", "_exit", "getenv"};
    static const char *const streams[] = {"stdout", "stderr", "stdin"};
    if (strcmp(modules[from].name, "cli") == 0) return NULL;
    for (const char *word = line; *word;) {
        size_t n = 0;
        while (isalnum((unsigned char)word[n]) || word[n] == '_') n++;
        for (size_t i = 0; n && i < sizeof calls / sizeof *calls; i++)
            if (strlen(calls[i]) == n && memcmp(word, calls[i], n) == 0 && word[n] == '(')
                return "prints, exits or reads the environment";
        for (size_t i = 0; n && i < sizeof streams / sizeof *streams; i++)
            if (strlen(streams[i]) == n && memcmp(word, streams[i], n) == 0) return "uses a standard stream";
        word += n ? n : 1;
    }
    return NULL;
}

typedef const char *(*fault_fn)(int from, const char *line);
static fault_fn current_fault;
static const char *current_root;
static int files_seen, faults_seen;

static int read_source(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)ftw;
    const char *dot = strrchr(path, '.');
    if (flag != FTW_F || !dot || !strchr("ch", dot[1])) return 0;
    int from = module_of(path + strlen(current_root) + 1);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    files_seen++;
    char line[1024];
    for (int number = 1; fgets(line, sizeof line, f); number++) {
        const char *fault = current_fault(from, line);
        if (!fault) continue;
        faults_seen++;
        if (strcmp(current_root, ".") == 0) fprintf(stderr, "%s:%d: %s: %s", path + 2, number, fault, line);
    }
    fclose(f);
    return 0;
}

/* Number of faults in all modules below `root`. */
static int count_faults(const char *root, fault_fn fault) {
    current_fault = fault, current_root = root, files_seen = faults_seen = 0;
    for (int i = 0; i < MODULES; i++) {
        char dir[256];
        snprintf(dir, sizeof dir, "%s/%s", root, modules[i].name);
        nftw(dir, read_source, 8, FTW_PHYS);
    }
    ck_assert_int_gt(files_seen, 0);
    return faults_seen;
}

START_TEST(includes_go_downwards)
{ ck_assert_int_eq(count_faults(".", include_fault), 0); }
END_TEST

START_TEST(libraries_never_print_exit_or_read_the_environment)
{ ck_assert_int_eq(count_faults(".", call_fault), 0); }
END_TEST

/* Controls: the checks above see what they are there to see. */
static int faults_of(const char *module, const char *text, fault_fn fault) {
    char path[256];
    const char *root = temp_dir();
    snprintf(path, sizeof path, "%s/%s", root, module);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/x.c", root, module);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    return count_faults(root, fault);
}

START_TEST(an_upward_sideways_or_relative_include_is_a_fault)
{
    ck_assert_int_eq(faults_of("model", "#include \"graphs/pool.h\"\n#include <stdio.h>\n", include_fault), 0);
    ck_assert_int_eq(faults_of("model", "#include \"model/kernels/host/x.h\"\n", include_fault), 0);
    ck_assert_int_eq(faults_of("model", "#include \"engine/engine.h\"\n", include_fault), 1);
    ck_assert_int_eq(faults_of("model", "\n#  include \"sampler/sampler.h\"\n", include_fault), 1);
    ck_assert_int_eq(faults_of("model", "#include \"pool.h\"\n", include_fault), 1);
}
END_TEST

START_TEST(a_print_in_a_library_is_a_fault)
{
    ck_assert_int_eq(faults_of("base", "buf_printf(b, \"%d\", 1);\nsnprintf(s, 3, \"x\");\n", call_fault), 0);
    ck_assert_int_eq(faults_of("base", "if (x) printf(\"x\");\n", call_fault), 1);
    ck_assert_int_eq(faults_of("base", "fprintf(stderr, \"x\");\nexit(1);\n", call_fault), 2);
}
END_TEST

Suite *check_layering(void);
Suite *check_layering(void) {
    Suite *s = suite_create("layering");
    TCase *tc = tcase_create("sources");
    tcase_add_test(tc, includes_go_downwards);
    tcase_add_test(tc, libraries_never_print_exit_or_read_the_environment);
    tcase_add_test(tc, an_upward_sideways_or_relative_include_is_a_fault);
    tcase_add_test(tc, a_print_in_a_library_is_a_fault);
    suite_add_tcase(s, tc);
    return s;
}
