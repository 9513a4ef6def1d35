/* duet bench: what tables compute from what was measured, and that each command gives its table in every form. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "cli/bench_tables.h"
#include "cli/wrap.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"

/* --- what is computed ------------------------------------------------------------------------------------------- */

/* Plain 10 ms; 12 and 20 ms at K = 1 and 2: at alpha 0.5 they give 1.5 and 1.75 tokens. */
static struct alpha_bench by_hand(void) {
    return (struct alpha_bench){
        .costs = {{.batch = 1, .round_ms = {10, 12, 20}}, {.batch = 2, .round_ms = {10, 20, 31}}},
        .batches = 2,
        .ks = {1, 2},
        .k_count = 2};
}

START_TEST(speed_up_is_the_tokens_of_a_round_over_what_it_costs)
{
    const struct alpha_bench r = by_hand();
    ck_assert_double_eq_tol(bench_alpha_speed_up(&r, 0, 0.5, 0), 1, 1e-12);
    ck_assert_double_eq_tol(bench_alpha_speed_up(&r, 0, 0.5, 1), 1.5 * 10 / 12, 1e-12);
    ck_assert_double_eq_tol(bench_alpha_speed_up(&r, 0, 0.5, 2), 1.75 * 10 / 20, 1e-12);
    ck_assert_int_eq(bench_alpha_best(&r, 0, 0.5), 1);
    ck_assert_int_eq(bench_alpha_best(&r, 0, 0.1), 0);
    ck_assert_int_eq(bench_alpha_best(&r, 0, 0.95), 1);
}
END_TEST

START_TEST(speculation_pays_from_where_its_best_k_costs_what_it_gives)
{
    struct alpha_bench r = by_hand();
    int k;
    ck_assert_double_eq_tol(bench_alpha_break_even(&r, 0, &k), 0.2, 1e-9); /* 1 + alpha = 1.2 */
    ck_assert_int_eq(k, 1);
    ck_assert(isnan(bench_alpha_break_even(&r, 1, &k))); /* 2 tokens for 2 rounds, 3 for 3.1 */
    ck_assert_int_eq(k, 0);
    r.costs[1].round_ms[2] = 25; /* 1 + a + a^2 = 2.5: the larger K alone pays */
    ck_assert_double_eq_tol(bench_alpha_break_even(&r, 1, &k), (sqrt(7) - 1) / 2, 1e-9);
    ck_assert_int_eq(k, 2);
}
END_TEST

START_TEST(a_round_is_the_sum_of_its_launches)
{
    struct bench_steps s = {.decode_ms = 8,
                            .verify_ms = {[2] = 9, [3] = 10},
                            .draft_first_ms = 2,
                            .draft_step_ms = 1,
                            .draw_ms = 0.5,
                            .accept_plain_ms = 0.25,
                            .accept_ms = 0.75,
                            .accept_k = 2};
    ck_assert_double_eq_tol(bench_round_ms(&s, 0), 8 + 0.25, 1e-12);
    ck_assert_double_eq_tol(bench_round_ms(&s, 1), 2 + 0.5 + 9 + 0.5, 1e-12);
    ck_assert_double_eq_tol(bench_round_ms(&s, 2), 3 + 1 + 10 + 0.75, 1e-12);
    s.propose_ms = 0.125, s.draft_first_ms = s.draft_step_ms = s.draw_ms = 0; /* no draft model */
    ck_assert_double_eq_tol(bench_round_ms(&s, 2), 0.125 + 10 + 0.75, 1e-12);
}
END_TEST

/* Sizes 1, 2, 3 of which 3 runs half of the time, in buckets of powers of 2 up to 4: (1/4 + 2/4 + 3/2) live rows in
 * (1/4 + 2/4 + 4/2), and ms of 10, 11, 12, 14. */
START_TEST(padding_is_what_buckets_hold_beyond_the_rows_that_run)
{
    const struct batch_sizes s = {.batch = 3, .share = {0, 0.25, 0.25, 0.5}};
    static const int pow2[] = {0, 1, 2, 4}, exact[] = {0, 1, 2, 3};
    static const double ms[] = {0, 10, 11, 12, 14};
    ck_assert_double_eq_tol(bench_padding_rows(&s, pow2), 1 - 2.25 / 2.75, 1e-12);
    ck_assert_double_eq_tol(bench_padding_time(&s, pow2, ms), 1 - 11.25 / 12.25, 1e-12);
    ck_assert_double_eq(bench_padding_rows(&s, exact), 0);
    ck_assert_double_eq(bench_padding_time(&s, exact, ms), 0);
    ck_assert_int_eq(bench_sizes_at(&s, 0), 1);
    ck_assert_int_eq(bench_sizes_at(&s, 0.25), 2);
    ck_assert_int_eq(bench_sizes_at(&s, 0.5), 3);
    ck_assert_int_eq(bench_sizes_at(&s, 0.999), 3);
}
END_TEST

/* Peak, mean and least as in the paper; the sizes of a day are those of its moments, and of a batch of 1 there is one. */
START_TEST(a_day_has_the_load_that_its_source_gives)
{
    struct batch_sizes day, moment;
    double load = 0, sum = 0;
    for (int i = 0; i < 1000; i++) load += bench_day_load(i / 1000.0) / 1000;
    ck_assert_double_eq_tol(bench_day_load(0), 1, 1e-12);
    ck_assert_double_eq_tol(bench_day_load(0.5), 1 / 3.3, 1e-12);
    ck_assert_double_eq_tol(load, 1 / 1.7, 1e-6);
    bench_sizes_day(&day, 1);
    ck_assert_double_eq_tol(day.share[1], 1, 1e-12);
    bench_sizes_day(&day, 24);
    for (int b = 1; b <= 24; b++) sum += day.share[b];
    ck_assert_double_eq_tol(sum, 1, 1e-12);
    bench_sizes_hour(&moment, 24, 0); /* the peak: m + 2 sqrt(m) = 24 gives a mean of 16 */
    ck_assert_double_eq_tol(moment.share[16] / moment.share[15], 16.0 / 16, 1e-9);
    ck_assert_double_eq_tol(moment.share[8] / moment.share[7], 16.0 / 8, 1e-9);
    ck_assert_double_gt(day.share[5], moment.share[5]);
}
END_TEST

static void expect_split(struct round_measure m, const double *wanted) {
    double parts[ROUND_PARTS], sum = 0;
    bench_split_round(&m, parts);
    for (int i = 0; i < ROUND_PARTS; i++) {
        ck_assert_msg(fabs(parts[i] - wanted[i]) < 1e-12, "part %d: %g, expected %g", i, parts[i], wanted[i]);
        sum += parts[i];
    }
    ck_assert_double_eq_tol(sum, m.whole, 1e-12);
}

/* Weights, kernels, gaps, sampler, host, waiting. */
START_TEST(the_parts_of_a_round_add_up_to_it)
{
    expect_split((struct round_measure){.whole = 10, .limit = 5, .alone = 6, .replays = 7, .sampler = 1, .wait = 0.5},
                 (double[]){5, 1, 1, 1, 1.5, 0.5});
    expect_split((struct round_measure){.whole = 10, .limit = 5, .alone = 6, .replays = 7, .sampler = 1, .wait = 9},
                 (double[]){5, 1, 1, 1, 0, 2}); /* the host is ahead: it waits while the device works too */
    expect_split((struct round_measure){.whole = 10, .limit = 8, .alone = 6, .replays = 7, .sampler = 1},
                 (double[]){6, 0, 1, 1, 2, 0}); /* weights that stay in the caches */
    expect_split((struct round_measure){.whole = 10, .limit = 5, .alone = 8, .replays = 7, .sampler = 1},
                 (double[]){5, 2, 0, 1, 2, 0}); /* faster in rounds than alone */
    expect_split((struct round_measure){.whole = 10, .limit = 5, .alone = 6, .replays = 16, .sampler = 4, .wait = 1},
                 (double[]){5, 1, 2, 2, 0, 0}); /* events of slow rounds */
}
END_TEST

/* --- the program ------------------------------------------------------------------------------------------------ */

/* Commands of a few seconds, what their text says, their lists in JSON with the rows and members of each, and the curves. */
static const struct tried {
    const char *arguments[10], *part;
    struct {
        const char *name, *members;
        int rows;
    } lists[2];
    int panels;
} commands[] = {
    {{"--k", "2,0,1", "-n", "6"},
     "draft step ms",
     {{"ks", "k round_ms tok_per_second speed_up draft_step_ms verify_ms alpha mean_acceptance_length", 3}},
     2},
    {{"alpha", "--k", "1,2", "--batch", "2", "-n", "2"},
     "pays from alpha",
     {{"speed_ups", "alpha best_k best_speed_up k1 k2", 10},
      {"batches", "batch plain_round_ms pays_from_alpha at_k best_k_at_alpha_0_8 speed_up_at_alpha_0_8", 2}},
     2},
    {{"stack", "--k", "1,2", "-n", "6", "--device", "host"},
     "none on this device",
     {{"steps", "step k ms_per_token tok_per_second times_the_first remark", 7}},
     1},
    {{"buckets", "--k", "0,1", "--batch", "2"},
     "free memory less",
     {{"policies", "policy graphs counted_bytes free_memory_bytes capture_seconds", 4},
      {"padding",
       "sizes k policy padding_rows_percent padding_time_percent first_use_ms worst_first_use_ms captures evictions",
       16}},
     3},
    {{"overhead", "--k", "2", "-n", "60"},
     "waiting",
     {{"rounds", "k mode round_ms weights_ms kernels_ms gaps_ms sampler_ms host_ms waiting_ms enqueue_ms", 4}},
     2},
    {{"verify", "-k", "1", "--batch", "48"}, /* 7 batches: more than a panel holds */
     "of M - 1",
     {{"cells", "batch m rows ms limit_ms times_limit times_m_less_1 times_larger_neighbour beyond", 14}},
     2},
    {{"decode", "-n", "6", "--device", "host"},
     "% of limit",
     {{"decode",
       "steps us_per_step least_us_per_step most_us_per_step tok_per_second limit_us percent_of_limit logit_error "
       "same_argmax",
       1}},
     1},
};
enum { TRIED = sizeof commands / sizeof *commands };

/* Random weights of a tiny shape, so that launches are short. */
static const char *tiny_pair(void) {
    static char pair[600];
    const char *path = temp_path("tiny.json");
    text_to_file(
        path, "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 32, \"intermediate_size\": 64, "
              "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"vocab_size\": 64, "
              "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000}");
    snprintf(pair, sizeof pair, "%s,%s", path, path);
    return pair;
}

static struct program run_command(const struct tried *c, int width, const char *const *more) {
    const char *arguments[20] = {"bench", "--shape", tiny_pair()};
    int n = 3;
    for (int i = 0; c->arguments[i]; i++) arguments[n++] = c->arguments[i];
    for (int i = 0; more[i]; i++) arguments[n++] = more[i];
    struct program p = program_run_at(width, NULL, arguments);
    program_expect_status(&p, 0);
    return p;
}

static void expect_rows(const cJSON *object, const char *list, const char *members, int rows) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, list), *row;
    int wanted = 1;
    char name[64];
    ck_assert_msg(cJSON_GetArraySize(array) == rows, "%s has %d rows, not %d", list, cJSON_GetArraySize(array), rows);
    for (const char *at = members; *at; at++) wanted += *at == ' ';
    cJSON_ArrayForEach(row, array) {
        ck_assert_int_eq(cJSON_GetArraySize(row), wanted);
        for (const char *at = members; *at; at += strcspn(at, " "), at += *at == ' ') {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
            ck_assert_msg(cJSON_GetObjectItemCaseSensitive(row, name) != NULL, "no member '%s' of %s", name, list);
        }
    }
}

static void expect_width(const struct buf *text, int width) {
    char line[1024];
    for (const char *at = buf_text(text); *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        ck_assert_msg(wrap_text_columns(line) <= width, "%d columns: %s", wrap_text_columns(line), line);
    }
}

/* Loop index: the command. */
START_TEST(a_table_fits_the_terminal_and_is_drawn)
{
    const struct tried *c = &commands[_i];
    struct buf svg = {0};
    struct program p = run_command(c, 80, ARGUMENTS("--plot", temp_path("table.svg")));
    ck_assert_msg(strstr(buf_text(&p.out), c->part) != NULL, "%s", buf_text(&p.out));
    expect_width(&p.out, 80);
    program_free(&p);
    text_of_file(temp_path("table.svg"), &svg);
    expect_xml(buf_text(&svg));
    ck_assert_int_eq(count_parts(buf_text(&svg), "class=\"title\""), c->panels);
    buf_free(&svg);
}
END_TEST

/* Of a table that splits rounds. */
static void expect_sums(const cJSON *rows) {
    static const char *const parts[] = {"weights_ms", "kernels_ms", "gaps_ms", "sampler_ms", "host_ms", "waiting_ms"};
    const cJSON *row;
    cJSON_ArrayForEach(row, rows) {
        double sum = 0;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            ck_assert_double_ge(get_number(row, parts[i]), 0);
            sum += get_number(row, parts[i]);
        }
        ck_assert_double_gt(get_number(row, "sampler_ms"), 0); /* a microsecond each, in rounds enough to see one */
        ck_assert_double_eq_tol(sum, get_number(row, "round_ms"), 5e-4); /* four digits of each */
    }
}

/* Loop index: the command. */
START_TEST(json_has_the_rows_under_their_documented_names)
{
    const struct tried *c = &commands[_i];
    struct program p = run_command(c, 80, ARGUMENTS("--json"));
    const char *temperature = strstr(buf_text(&p.out), "\"temperature\": ");
    ck_assert(!temperature || strncmp(temperature, "\"temperature\": 0.7,", 19) == 0 ||
              strncmp(temperature, "\"temperature\": 0,", 17) == 0);
    cJSON *object = json_line(&p.out, 0);
    ck_assert_int_eq(count_lines(&p.out), 1);
    ck_assert_ptr_nonnull(get_string(object, "device"));
    for (int i = 0; i < 2 && c->lists[i].name; i++)
        expect_rows(object, c->lists[i].name, c->lists[i].members, c->lists[i].rows);
    expect_sums(json_get(object, "rounds"));
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

START_TEST(a_start_is_timed_part_by_part)
{
    struct program p = program_run_at(80, NULL, ARGUMENTS("bench", "start", "--json", "--device", "host"));
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    const cJSON *parts = json_get(object, "parts"), *row;
    double sum = 0;
    bool counts = false;
    expect_rows(object, "parts", "part seconds gb gb_per_second", 14);
    cJSON_ArrayForEach(row, parts) {
        const char *name = get_string(row, "part");
        counts = (counts || strcmp(name, "device") == 0) && strcmp(name, "ready") != 0;
        if (counts) sum += get_number(row, "seconds");
        if (strcmp(name, "loading") == 0) ck_assert_double_gt(get_number(row, "gb"), 0.02);
    }
    ck_assert_double_eq_tol(sum, get_number(object, "ready_seconds"), 1e-3); /* four digits of each */
    ck_assert_double_gt(get_number(object, "first_token_seconds"), get_number(object, "ready_seconds"));
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

/* Cells of a line of CSV, none of which holds a line's end. */
static int count_cells(const char *line) {
    int cells = 1;
    bool is_quoted = false;
    for (; *line && *line != '\n'; line++) {
        is_quoted ^= *line == '"';
        cells += *line == ',' && !is_quoted;
    }
    return cells;
}

/* The rows of a list, each of which begins with its name; NULL: all lines but the first. */
static int count_rows(const char *text, const char *list) {
    int rows = 0;
    for (const char *at = strchr(text, '\n') + 1; *at; at += strcspn(at, "\n") + 1)
        rows += !list || (strncmp(at, list, strlen(list)) == 0 && at[strlen(list)] == ',');
    return rows;
}

/* Loop index: the command, of those that take no second. */
START_TEST(csv_is_one_table_with_one_heading_and_all_rows)
{
    const struct tried *c = &commands[_i];
    const bool is_joined = c->lists[1].name;
    struct program p = run_command(c, 80, ARGUMENTS("--csv"));
    const char *text = buf_text(&p.out);
    char heading[512], name[64];
    int rows = 0;
    snprintf(heading, sizeof heading, ",%.*s,", (int)strcspn(text, "\n"), text);
    ck_assert_int_eq(strncmp(heading, ",table,", 7) == 0, is_joined);
    for (int i = 0; i < 2 && c->lists[i].name; i++) {
        for (const char *at = c->lists[i].members; *at; at += strcspn(at, " "), at += *at == ' ') {
            snprintf(name, sizeof name, ",%.*s,", (int)strcspn(at, " "), at);
            ck_assert_msg(strstr(heading, name) != NULL, "no '%s' in %s", name, heading);
        }
        ck_assert_int_eq(count_rows(text, is_joined ? c->lists[i].name : NULL), c->lists[i].rows);
        rows += c->lists[i].rows;
    }
    ck_assert_int_eq(count_lines(&p.out), 1 + rows);
    for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
        ck_assert_msg(count_cells(at) == count_cells(text), "%d cells: %s", count_cells(at), at);
    program_free(&p);
}
END_TEST

START_TEST(several_k_run_on_one_engine_and_are_held_against_plain_decoding)
{
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("bench", "--k", "2", "-n", "4", "--k-max", "2", "--ctx", "128", "--csv"));
    program_expect_status(&p, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "measure,value,unit")); /* one K: as ever */
    program_free(&p);
    p = program_run_at(80, NULL,
                       ARGUMENTS("bench", "--k", "3,1", "-n", "4", "--ctx", "128", "--csv", "--simulate-alpha", "0.5"));
    program_expect_status(&p, 0);
    const char *text = buf_text(&p.out), *plain = strstr(text, "\n0,"), *one = strstr(text, "\n1,"),
               *three = strstr(text, "\n3,");
    ck_assert_msg(plain && one && three && plain < one && one < three, "%s", text); /* K = 0 was not asked for */
    ck_assert_ptr_nonnull(strstr(plain, ",1.000,,"));
    ck_assert_int_eq(strncmp(text, "k,", 2), 0); /* and no remark that alpha is simulated */
    program_free(&p);
}
END_TEST

START_TEST(what_cannot_be_measured_is_refused_in_a_sentence)
{
    static const struct {
        const char *arguments[6], *part;
        int status;
    } cases[] = {
        {{"--k", "1,,2"}, "--k: '1,,2' is not a whole number, or several with commas between, in [0, 63]", 2},
        {{"--k", "1,x"}, "--k: '1,x' is not", 2},
        {{"--k", "0, 1"}, "--k: '0, 1' is not", 2},
        {{"--k", ""}, "--k: '' is not", 2},
        {{"--k", "2,64"}, "--k: '2,64' is not", 2},
        {{"--k", "2,0,2"}, "--k: '2,0,2' has 2 twice", 2},
        {{"--k", "1,5", "--k-max", "4"}, "--k-max: 4 is below --k 5", 2},
        {{"alpa"}, "'alpa': duet bench knows no such table; there are buckets, stack, overhead, alpha, peers", 2},
        {{"alpha", "stack"}, "'stack': duet bench alpha is one table already", 2},
        {{"alpha", "--k", "0"}, "--k: duet bench alpha is about K above 0", 2},
        {{"buckets", "--buckets", "pow2"}, "--buckets: duet bench buckets measures all of them", 2},
        {{"stack", "--graphs", "off"}, "--graphs: duet bench stack needs them on", 2},
        {{"verify", "--k", "1,2"}, "--k: duet bench verify takes one", 2},
        {{"verify", "--simulate-alpha", "0.5"}, "--simulate-alpha: duet bench verify accepts nothing", 2},
        {{"decode", "--k", "2"}, "--k: duet bench decode decodes plainly", 2},
        {{"decode", "--k-max", "2"}, "--k-max: duet bench decode decodes plainly", 2},
        {{"decode", "--batch", "2"}, "--batch: duet bench decode is of one sequence", 2},
        {{"decode", "--temperature", "1"}, "--temperature: duet bench decode is greedy", 2},
        {{"decode", "-i", "x"}, "--input: duet bench decode has a prompt of its own", 2},
        {{"decode", "--ctx", "64", "-n", "33"}, "-n: a context of 64 tokens has no room for 32 of a prompt and 33", 2},
        {{"--ctx", "64", "-n", "64"}, "-n: a context of 64 tokens has no room for", 2},
        {{"--k", "0,1", "-n", "2147483647"}, "-n: a context of ", 2},
        {{"alpha", "-n", "100000"}, "-n: a context of ", 2},
        {{"--plot", "x.svg"}, "--plot: draws a table", 2},
        {{"alpha", "--plot", "-"}, "--plot: needs a file", 2},
        {{"alpha", "--plot", "/nowhere/x.svg"}, "/nowhere/x.svg: ", 1},
        {{"alpha", "--shape", "smollm2-135m", "--ctx", "64"}, "nothing drafts here", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *arguments[8] = {"bench"};
        for (int j = 0; cases[i].arguments[j]; j++) arguments[j + 1] = cases[i].arguments[j];
        struct program p = program_run_at(80, NULL, arguments);
        program_expect_error(&p, cases[i].status, cases[i].part);
        program_free(&p);
    }
}
END_TEST

START_TEST(exact_buckets_are_listed_before_their_first_use)
{
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("inspect", "--graphs", "--buckets", "exact", "--k", "2", "--batch", "3"));
    program_expect_status(&p, 0);
    ck_assert_int_eq(count_parts(buf_text(&p.out), "on use"), 5); /* two of the draft, K + 1 = 1, 2, 3 of the target */
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "target: a first use captures"));
    program_free(&p);
    p = program_run_at(80, NULL,
                       ARGUMENTS("inspect", "--graphs", "--buckets", "exact", "--k", "2", "--batch", "3", "--json"));
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    const cJSON *first = json_get(object, "graphs")->child;
    ck_assert_int_eq(cJSON_GetArraySize(json_get(object, "graphs")), 5);
    ck_assert_double_eq(get_number(first, "batch"), 3);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(first, "capture_ms")));
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

/* --- peers ------------------------------------------------------------------------------------------------------- */

START_TEST(a_line_of_the_script_is_a_row_a_sentence_or_a_note)
{
    static struct peers_bench r;
    static const char *const bad[] = {"{}", "[1]", "{\"peer\": \"X\", \"k\": 1}",
                                      "{\"peer\": \"X\", \"k\": 64, \"round_ms\": 1, \"tokens_per_round\": 1}",
                                      "{\"peer\": \"X\", \"k\": 0, \"round_ms\": 0, \"tokens_per_round\": 1}"};
    const char *row = "{\"peer\": \"X\", \"k\": 2, \"round_ms\": 8, \"tokens_per_round\": 2}";
    ck_ok(bench_peers_read(&r, "{\"note\": \"compiling\"}", 4, 0));
    ck_assert_int_eq(r.count, 0);
    ck_ok(bench_peers_read(&r, row, 4, 0));
    ck_assert_str_eq(r.rows[0].name, "X");
    ck_assert_double_eq_tol(r.rows[0].rate, 4 * 2 / 8e-3, 1e-9);
    ck_ok(bench_peers_read(&r, row, 1, 0.5)); /* the alpha that is simulated: 1.75 tokens */
    ck_assert_double_eq_tol(r.rows[1].rate, 1.75 / 8e-3, 1e-9);
    ck_ok(bench_peers_read(&r, "{\"peer\": \"Y\", \"skipped\": \"there is no Y\"}", 1, 0));
    ck_assert_str_eq(buf_text(&r.missing), "Y: skipped, there is no Y.\n");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(bench_peers_read(&r, bad[i], 1, 0), ERR_FORMAT);
    ck_assert_int_eq(r.count, 2);
    buf_free(&r.missing);
}
END_TEST

/* A python3 that says what `lines` are and ends with `status`; NULL: there is none. */
static struct program run_peers(const char *lines, int status) {
    struct buf script = {0};
    ck_assert_int_eq(mkdir(temp_path("bin"), 0700), 0);
    buf_printf(&script, "#!/bin/sh\nprintf '%%s\\n' '%s'\nexit %d\n", lines ? lines : "", status);
    if (lines) {
        text_to_file(temp_path("bin/python3"), buf_text(&script));
        ck_assert_int_eq(chmod(temp_path("bin/python3"), 0755), 0);
    }
    buf_free(&script);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", temp_path("bin"), 1);
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("bench", "peers", "--k", "1", "-n", "4", "--json", "--device", "host"));
    setenv("PATH", before, 1);
    free(before);
    return p;
}

static const char *missing_of(const cJSON *object) {
    const cJSON *list = json_get(object, "missing");
    return list && list->child ? list->child->valuestring : "";
}

START_TEST(without_python3_a_sentence_says_so)
{
    struct program p = run_peers(NULL, 0);
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    expect_rows(object, "engines", "engine k round_ms tokens_per_round tok_per_second times_duet_plain", 2);
    ck_assert_str_eq(missing_of(object), "PyTorch and transformers: skipped, there is no python3.");
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

START_TEST(what_python3_measured_stands_beside_duet_even_where_it_ended_early)
{
    struct program p = run_peers("noise\n{\"peer\": \"X\", \"k\": 0, \"round_ms\": 4, \"tokens_per_round\": 1}", 3);
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    const cJSON *rows = json_get(object, "engines");
    ck_assert_int_eq(cJSON_GetArraySize(rows), 3);
    ck_assert_str_eq(get_string(cJSON_GetArrayItem(rows, 2), "engine"), "X");
    ck_assert_double_eq(get_number(cJSON_GetArrayItem(rows, 2), "tok_per_second"), 250);
    ck_assert_msg(strstr(missing_of(object), "peers.py ended before its time, with status 3") != NULL, "%s",
                  missing_of(object));
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

/* With a Python that sees no packages. */
START_TEST(the_script_itself_skips_what_is_not_installed)
{
    struct buf line = {0};
    char block[512];
    if (system("command -v python3 > /dev/null") != 0) return skip("there is no python3");
    buf_printf(&line, "python3 -I -S %s --self-check", asset_path("peers.py"));
    FILE *f = popen(buf_text(&line), "r");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 3; i++) { /* of three requests */
        ck_assert_ptr_nonnull(fgets(block, sizeof block, f));
        ck_assert_str_eq(block, "{\"peer\": \"PyTorch and transformers\", \"skipped\": \"torch is not installed for "
                                "python3\"}\n");
    }
    ck_assert_int_eq(pclose(f), 0);
    buf_free(&line);
}
END_TEST

Suite *check_bench(void);
Suite *check_bench(void) {
    Suite *suite = suite_create("bench");
    TCase *pure = tcase_create("figures");
    tcase_add_test(pure, speed_up_is_the_tokens_of_a_round_over_what_it_costs);
    tcase_add_test(pure, speculation_pays_from_where_its_best_k_costs_what_it_gives);
    tcase_add_test(pure, padding_is_what_buckets_hold_beyond_the_rows_that_run);
    tcase_add_test(pure, a_day_has_the_load_that_its_source_gives);
    tcase_add_test(pure, the_parts_of_a_round_add_up_to_it);
    tcase_add_test(pure, a_round_is_the_sum_of_its_launches);
    suite_add_tcase(suite, pure);
    TCase *program = tcase_create("the program");
    tcase_set_timeout(program, 120);
    tcase_add_loop_test(program, a_table_fits_the_terminal_and_is_drawn, 0, TRIED);
    tcase_add_loop_test(program, json_has_the_rows_under_their_documented_names, 0, TRIED);
    tcase_add_test(program, a_start_is_timed_part_by_part);
    tcase_add_loop_test(program, csv_is_one_table_with_one_heading_and_all_rows, 0, 3);
    tcase_add_test(program, several_k_run_on_one_engine_and_are_held_against_plain_decoding);
    tcase_add_test(program, what_cannot_be_measured_is_refused_in_a_sentence);
    tcase_add_test(program, exact_buckets_are_listed_before_their_first_use);
    suite_add_tcase(suite, program);
    TCase *peers = tcase_create("peers");
    tcase_set_timeout(peers, 60);
    tcase_add_test(peers, a_line_of_the_script_is_a_row_a_sentence_or_a_note);
    tcase_add_test(peers, without_python3_a_sentence_says_so);
    tcase_add_test(peers, what_python3_measured_stands_beside_duet_even_where_it_ended_early);
    tcase_add_test(peers, the_script_itself_skips_what_is_not_installed);
    suite_add_tcase(suite, peers);
    return suite;
}
