/* What the program prints fits the terminal, and what it prints for programs is JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/table.h"
#include "cli/wrap.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static const int widths[] = {80, 60};
enum { WIDTHS = sizeof widths / sizeof *widths };

static void expect_width(const struct buf *text, int width) {
    char line[4096];
    for (const char *at = buf_text(text); *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        ck_assert_msg(wrap_text_columns(line) <= width, "%d columns of %d: %s", wrap_text_columns(line), width, line);
    }
}

static bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\0';
}

/* Is [word, word + n) a word of the text? */
static bool has_word(const char *text, const char *word, size_t n) {
    for (const char *at = text; (at = memmem(at, strlen(at), word, n)); at++)
        if ((at == text || is_blank(at[-1])) && is_blank(at[n])) return true;
    return false;
}

/* All that is said in a narrow terminal, but for what was left out, is said in a wide one in the same words: none was broken. */
static void expect_words(const struct buf *narrow, const struct buf *wide) {
    for (const char *at = buf_text(narrow); *at; at += strspn(at, " \n")) {
        if (strncmp(at, "Left out, for want", 18) == 0) at = strstr(at, ".\n") + 1;
        size_t n = strcspn(at, " \n");
        if (n > 0) ck_assert_msg(has_word(buf_text(wide), at, n), "'%.*s' was not said in a wide terminal", (int)n, at);
        at += n;
    }
}

/* --- text ------------------------------------------------------------------------------------------------------- */

#define SHAPES "--shape", "llama-3.1-8b,llama-3.2-1b"

static const char *const outputs[][9] = {
    {"--help"},
    {"chat", "--help"},
    {"batch", "--help"},
    {"inspect", "--help"},
    {"tokenize", "--help"},
    {"bench", "--help"},
    {"models", "--help"},
    {"tune", "--help"},
    {"models"},
    {"chat", "-q"}, /* /help comes from standard input */
    {"inspect", "--gpu-memory", "24GiB", "--memory", SHAPES},
    {"inspect", "--gpu-memory", "1TiB", "--memory", SHAPES, "--ctx", "100000"},
    {"inspect", "--tensors"},
};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* Loop index: output and width. */
START_TEST(every_line_fits_the_terminal_and_no_word_is_broken)
{
    const char *const *arguments = outputs[_i % OUTPUTS];
    int width = widths[_i / OUTPUTS];
    if (test_is_small() && (_i % OUTPUTS + _i / OUTPUTS) % 2) return; /* each at every other width */
    setenv("DUET_ASSETS", asset_path(""), 1);
    setenv("HF_HUB_CACHE", "/nowhere/of/a/name/that/is/long", 1);
    struct program narrow = program_run_at(width, "/help\n", arguments),
                   wide = program_run_at(1000, "/help\n", arguments);
    ck_assert_int_eq(narrow.status, 0);
    ck_assert_uint_gt(narrow.out.len, 0);
    expect_width(&narrow.out, width);
    expect_words(&narrow.out, &wide.out);
    program_free(&narrow), program_free(&wide);
}
END_TEST

/* What differs from run to run. Loop index: the width. */
START_TEST(every_line_of_a_measurement_fits_the_terminal)
{
    const int width = widths[_i];
    struct program p = program_run_at(width, NULL, ARGUMENTS("inspect", "--graphs", "--k", "2", "--batch", "2"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "capture ms"));
    expect_width(&p.out, width);
    program_free(&p);
    p = program_run_at(width, "{\"prompt\": \"A\"}\n", ARGUMENTS("batch", "-n", "20", "--alpha-report"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "mean_acceptance_length"));
    expect_width(&p.err, width);
    program_free(&p);
    p = program_run_at(
        width, NULL,
        ARGUMENTS("bench", "--k", "2", "--k-max", "2", "-n", "4", "--ctx", "128", "--simulate-alpha", "0.5"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "mean_acceptance_length (simulated)  "));
    ck_assert((strstr(buf_text(&p.out), "% of limit\n") != NULL) == (width == 80));
    expect_width(&p.out, width);
    program_free(&p);
}
END_TEST

/* Prints the table to a file. */
static void print_at(int width, struct buf *out) {
    struct table t = table_create("lrr", "21");
    static const char *const cells[] = {"name", "count", "bytes", "a.long.name.of.a.tensor", "123456", "1234567890",
                                        "b",    "7",     "89"};
    for (int i = 0; i < 9; i++) table_add(&t, "%s", cells[i]);
    ck_assert_ptr_nonnull(freopen(temp_path("table"), "w", stdout));
    table_print(&t, width);
    fflush(stdout);
    text_of_file(temp_path("table"), out);
}

START_TEST(a_table_loses_its_least_important_columns_first_and_then_gives_a_name_its_own_line)
{
    static const struct {
        int width;
        const char *text;
    } cases[] = {
        {43, "name                      count       bytes\n"
             "a.long.name.of.a.tensor  123456  1234567890\n"
             "b                             7          89\n"},
        {42, "name                      count\na.long.name.of.a.tensor  123456\nb                             7\n"
             "Left out, for want of room: bytes.\n"},
        {23, "name\na.long.name.of.a.tensor\nb\nLeft out, for want of\nroom: bytes, count.\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf text = {0};
        print_at(cases[i].width, &text);
        ck_assert_str_eq(buf_text(&text), cases[i].text);
        buf_free(&text);
    }
}
END_TEST

START_TEST(a_first_cell_without_room_stands_on_its_own_line)
{
    struct table t = table_create("lr", "");
    static const char *const cells[] = {"n", "count", "a.long.name", "123", "b", "4"};
    struct buf text = {0};
    for (int i = 0; i < 6; i++) table_add(&t, "%s", cells[i]);
    ck_assert_ptr_nonnull(freopen(temp_path("table"), "w", stdout));
    table_print(&t, 12);
    fflush(stdout);
    text_of_file(temp_path("table"), &text);
    ck_assert_str_eq(buf_text(&text), "n      count\na.long.name\n         123\nb          4\n");
    buf_free(&text);
}
END_TEST

/* --- quiet ------------------------------------------------------------------------------------------------------ */

START_TEST(a_quiet_run_with_a_report_file_prints_nothing)
{
    char option[300];
    snprintf(option, sizeof option, "--alpha-report=%s", temp_path("report"));
    struct program p = program_run_at(80, "{\"prompt\": \"A\"}\n", ARGUMENTS("batch", "-n", "4", "-q", option));
    program_expect_status(&p, 0);
    program_free(&p);
    struct buf report = {0};
    text_of_file(temp_path("report"), &report);
    ck_assert_int_eq(count_lines(&report), 1);
    buf_free(&report);
    p = program_run_at(80, "{\"prompt\": \"A\"}\n", ARGUMENTS("batch", "-n", "4", "-q", "--alpha-report"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "alpha")); /* there is nowhere else */
    program_free(&p);
}
END_TEST

/* --- JSON ------------------------------------------------------------------------------------------------------- */

/* One object on stdout. */
static cJSON *run_json(int status, const char *const *arguments) {
    struct program p = program_run_at(80, NULL, arguments);
    ck_assert_msg(p.status == status, "status %d: %s", p.status, buf_text(&p.err));
    ck_assert_int_eq(count_lines(&p.out), 1);
    cJSON *object = json_line(&p.out, 0);
    program_free(&p);
    return object;
}

START_TEST(inspect_json_has_what_the_text_says_of_both_models)
{
    cJSON *object = run_json(0, ARGUMENTS("inspect", "--json"));
    const cJSON *target = json_get(object, "target"), *tensors = json_get(target, "tensors");
    ck_assert_str_eq(get_string(target, "architecture"), "LlamaForCausalLM");
    ck_assert_double_eq(get_number(target, "parameters"), 10993600);
    ck_assert_double_eq(get_number(target, "bytes"), 2 * 10993600);
    ck_assert_str_eq(get_string(target, "chat_template"), "chatml");
    ck_assert_int_gt(cJSON_GetArraySize(tensors), 5);
    ck_assert_int_eq(cJSON_GetArraySize(json_get(tensors->child, "shape")), 2);
    ck_assert_double_lt(get_number(json_get(object, "draft"), "parameters"), 10993600);
    cJSON_Delete(object);
    object = run_json(0, ARGUMENTS("inspect", "--json", "--graphs", "--k", "2", "--batch", "1"));
    ck_assert_str_eq(get_string(json_get(object, "graphs")->child, "set"), "draft");
    ck_assert_double_ge(get_number(json_get(object, "graphs")->child, "capture_ms"), 0);
    cJSON_Delete(object);
}
END_TEST

START_TEST(a_plan_for_a_gpu_that_is_not_there_says_what_bounds_the_context)
{
    cJSON *object = run_json(0, ARGUMENTS("inspect", "--memory", "--json", "--gpu-memory", "24GiB", SHAPES));
    const cJSON *memory = json_get(object, "memory");
    const double allowed = get_number(memory, "allowed_bytes"), pool = get_number(memory, "pool_bytes");
    ck_assert_str_eq(get_string(memory, "context_bound"), "memory");
    ck_assert(cJSON_IsTrue(json_get(memory, "fits")));
    ck_assert_double_eq(get_number(memory, "free_bytes"), 24 * 0x1p30);
    ck_assert(pool <= allowed && allowed < 24 * 0x1p30);
    ck_assert_str_eq(get_string(json_get(memory, "slices")->child, "name"), "target weights");
    ck_assert_double_eq(get_number(memory, "mapped_bytes"), 0); /* a GPU has its own copy */
    cJSON_Delete(object);
    object = run_json(1, ARGUMENTS("inspect", "--memory", "--json", "--gpu-memory", "16GiB", SHAPES));
    memory = json_get(object, "memory");
    ck_assert(cJSON_IsFalse(json_get(memory, "fits")));
    ck_assert_ptr_nonnull(strstr(get_string(memory, "refusal"), "may be taken"));
    cJSON_Delete(object);
    static const struct {
        const char *arguments[10], *part;
    } bounds[] = {
        {{"--gpu-memory", "24g", SHAPES}, "bounded by memory: twice as much would need"},
        {{"--gpu-memory", "0.5TiB", SHAPES}, "the default, of 131072"},
        {{"--gpu-memory", "512GiB", SHAPES, "--ctx", "512"}, "by --ctx; the models have positions for 131072"},
        {{"--device", "cuda", "--gpu-memory", "24GiB"}, "all that the target has positions for"}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        const char *arguments[16] = {"inspect", "--memory"};
        for (int j = 0; bounds[i].arguments[j]; j++) arguments[j + 2] = bounds[i].arguments[j];
        struct program p = program_run_at(200, NULL, arguments);
        program_expect_status(&p, 0);
        ck_assert_msg(strstr(buf_text(&p.out), bounds[i].part) != NULL, "%s", buf_text(&p.out));
        program_free(&p);
    }
}
END_TEST

START_TEST(bench_json_has_every_measure_with_its_unit)
{
    cJSON *object = run_json(0, ARGUMENTS("bench", "--json", "--k", "1", "--k-max", "1", "-n", "4", "--ctx", "128"));
    const cJSON *measures = json_get(object, "measures"), *first = measures->child;
    ck_assert_double_eq(get_number(object, "k"), 1);
    ck_assert_str_eq(get_string(first, "measure"), "read bandwidth");
    ck_assert_str_eq(get_string(first, "unit"), "GB/s");
    ck_assert_double_gt(get_number(first, "value"), 0);
    ck_assert_ptr_null(json_get(first, "limit_ms"));
    ck_assert_double_gt(get_number(first->next, "percent_of_limit"), 0);
    ck_assert_int_gt(cJSON_GetArraySize(measures), 15);
    cJSON_Delete(object);
}
END_TEST

Suite *check_layout(void);
Suite *check_layout(void) {
    Suite *suite = suite_create("layout");
    TCase *text = tcase_create("text");
    tcase_set_timeout(text, 120);
    tcase_add_loop_test(text, every_line_fits_the_terminal_and_no_word_is_broken, 0, OUTPUTS * WIDTHS);
    tcase_add_loop_test(text, every_line_of_a_measurement_fits_the_terminal, 0, WIDTHS);
    tcase_add_test(text, a_table_loses_its_least_important_columns_first_and_then_gives_a_name_its_own_line);
    tcase_add_test(text, a_first_cell_without_room_stands_on_its_own_line);
    tcase_add_test(text, a_quiet_run_with_a_report_file_prints_nothing);
    suite_add_tcase(suite, text);
    TCase *json = tcase_create("JSON");
    tcase_set_timeout(json, 120);
    tcase_add_test(json, inspect_json_has_what_the_text_says_of_both_models);
    tcase_add_test(json, a_plan_for_a_gpu_that_is_not_there_says_what_bounds_the_context);
    tcase_add_test(json, bench_json_has_every_measure_with_its_unit);
    suite_add_tcase(suite, json);
    return suite;
}
