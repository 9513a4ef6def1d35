/* duet tune: the recommendation follows from the figures, and every form of the output is whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/tune.h"
#include "cli/wrap.h"
#include "tests/support/faulty_host.h"
#include "tests/support/program.h"
#include "tests/support/support.h"
#include "tests/support/xml.h"

/* --- the choice ------------------------------------------------------------------------------------------------- */

/* Results of settings that run twice, at rate * (1 +- spread). */
struct figures {
    int k;
    enum accept_rule rule;
    double rate, spread;
};

static void add_setting(struct tune_results *r, struct figures f) {
    struct tune_setting *s = &r->settings[r->count++];
    *s =
        (struct tune_setting){.k = f.k, .rule = f.rule, .runs = 2, .seconds = 1000, .tokens = (int64_t)(f.rate * 1000)};
    s->rate[0] = f.rate * (1 - f.spread);
    s->rate[1] = f.rate * (1 + f.spread);
}

/* Accepted and rejected ones, for an alpha. */
static void set_alpha(struct tune_setting *s, int accepted, int rejected) {
    s->stats.rounds = rejected;
    s->stats.accepted = accepted;
    s->stats.rejected = rejected;
}

static const struct {
    struct figures figures[4];
    const char *sentence;
} choices[] = {
    {{{0, ACCEPT_TOKEN, 100, 0}, {1, ACCEPT_TOKEN, 120, 0}, {3, ACCEPT_BLOCK, 142, 0}},
     "--k 3 --accept block: 1.42 times plain decoding"},
    {{{0, ACCEPT_TOKEN, 100, 0.02}, {1, ACCEPT_TOKEN, 120, 0.5}, {3, ACCEPT_BLOCK, 142, 0.01}},
     "--k 3 --accept block: 1.42 times plain decoding, give or take 2 %"},
    {{{0, ACCEPT_TOKEN, 100, 0.02}, {1, ACCEPT_TOKEN, 140, 0}, {3, ACCEPT_BLOCK, 142, 0.01}},
     "--k 3 --accept block: 1.42 times plain decoding, give or take 2 %; --k 1 --accept token lies within that"},
    {{{0, ACCEPT_TOKEN, 100, 0.02}, {1, ACCEPT_TOKEN, 140, 0}, {2, ACCEPT_TOKEN, 141, 0}, {3, ACCEPT_BLOCK, 142, 0}},
     "--k 3 --accept block: 1.42 times plain decoding, give or take 2 %; --k 2 --accept token and 1 more lie within "
     "that"},
    {{{0, ACCEPT_TOKEN, 100, 0.06}, {1, ACCEPT_TOKEN, 104, 0}},
     "speculation gains too little here to tell: --k 0; --k 1 --accept token runs at 1.04 times its speed, give or "
     "take "
     "6 %"},
    {{{0, ACCEPT_TOKEN, 100, 0}, {1, ACCEPT_TOKEN, 83, 0}, {2, ACCEPT_COUPLED, 61, 0}},
     "speculation does not pay here: --k 0; the best, --k 1 --accept token, runs at 0.83 times its speed"},
    {{{0, ACCEPT_TOKEN, 100, 0}}, "nothing but plain decoding was measured"},
};
enum { CHOICES = sizeof choices / sizeof *choices };

/* Loop index: the case. */
START_TEST(the_sentence_names_the_fastest_setting_where_it_gains_more_than_the_noise)
{
    static struct tune_results r;
    struct buf sentence = {0};
    for (int i = 0; i < 4 && (i == 0 || choices[_i].figures[i].k > 0); i++) add_setting(&r, choices[_i].figures[i]);
    tune_put_sentence(&sentence, &r);
    ck_assert_str_eq(buf_text(&sentence), choices[_i].sentence);
    buf_free(&sentence);
}
END_TEST

START_TEST(what_ran_once_is_not_recommended_where_others_ran_again)
{
    static struct tune_results r;
    struct buf sentence = {0};
    add_setting(&r, (struct figures){0, ACCEPT_TOKEN, 100, 0.1});
    add_setting(&r, (struct figures){1, ACCEPT_TOKEN, 140, 0.02});
    add_setting(&r, (struct figures){2, ACCEPT_TOKEN, 150, 0});
    r.settings[2].runs = 1;
    tune_put_sentence(&sentence, &r);
    ck_assert_str_eq(buf_text(&sentence), "--k 1 --accept token: 1.40 times plain decoding, give or take 10 %; --k 2 "
                                          "--accept token lies within that");
    buf_clear(&sentence);
    add_setting(&r, (struct figures){3, ACCEPT_TOKEN, 170, 0}); /* luck, or the others were disturbed since */
    r.settings[3].runs = 1;
    ck_assert_int_eq(tune_choose(&r).rivals, 1);
    r.settings[1].runs = 1; /* Ctrl-C came before any ran again */
    tune_put_sentence(&sentence, &r);
    ck_assert_str_eq(buf_text(&sentence), "--k 3 --accept token: 1.70 times plain decoding");
    buf_free(&sentence);
}
END_TEST

START_TEST(at_temperature_0_the_sentence_names_no_rule)
{
    static struct tune_results r = {.is_greedy = true};
    struct buf sentence = {0};
    add_setting(&r, (struct figures){0, ACCEPT_TOKEN, 100, 0});
    add_setting(&r, (struct figures){2, ACCEPT_TOKEN, 150, 0});
    tune_put_sentence(&sentence, &r);
    ck_assert_str_eq(buf_text(&sentence), "--k 2: 1.50 times plain decoding");
    buf_free(&sentence);
}
END_TEST

START_TEST(a_prediction_is_the_expected_tokens_of_a_round_over_what_it_costs)
{
    static struct tune_results r = {.k_max = 2, .round_ms = {10, 12, 20}};
    ck_assert_double_eq_tol(tune_predict(&r, 0.5, 0), 1, 1e-12);
    ck_assert_double_eq_tol(tune_predict(&r, 0.5, 1), 1.5 * 10 / 12, 1e-12);
    ck_assert_double_eq_tol(tune_predict(&r, 0.5, 2), 1.75 * 10 / 20, 1e-12);
    ck_assert(isnan(tune_predict(&r, NAN, 1)));
}
END_TEST

START_TEST(a_sweep_is_over_where_no_larger_k_can_win_and_not_before)
{
    static struct tune_results r = {.k_max = 4, .round_ms = {10, 11, 40, 41, 42}};
    add_setting(&r, (struct figures){0, ACCEPT_TOKEN, 100, 0});
    ck_assert(!tune_is_over(&r, 1)); /* nothing is known of acceptance */
    add_setting(&r, (struct figures){1, ACCEPT_TOKEN, 136, 0});
    set_alpha(&r.settings[1], 50, 50);
    ck_assert(tune_is_over(&r, 2));
    r.round_ms[4] = 12; /* one that lies behind a K which cannot win is waited for */
    ck_assert(!tune_is_over(&r, 2));
    r.round_ms[4] = 42;
    add_setting(&r, (struct figures){1, ACCEPT_BLOCK, 120, 0});
    set_alpha(&r.settings[2], 999, 1); /* then K = 4 gives nearly five tokens */
    ck_assert(!tune_is_over(&r, 2));
}
END_TEST

START_TEST(what_is_run_again_is_plain_decoding_and_what_the_noise_may_hide)
{
    static struct tune_results r;
    add_setting(&r, (struct figures){0, ACCEPT_TOKEN, 10, 0});
    add_setting(&r, (struct figures){1, ACCEPT_TOKEN, 100, 0});
    add_setting(&r, (struct figures){2, ACCEPT_TOKEN, 86, 0});
    add_setting(&r, (struct figures){3, ACCEPT_TOKEN, 70, 0});
    for (int i = 0; i < 4; i++) ck_assert_int_eq(tune_is_contender(&r, &r.settings[i]), i < 3);
    r.settings[0].rate[0] = 7; /* a spread of 18 % */
    ck_assert(tune_is_contender(&r, &r.settings[3]));
}
END_TEST

/* --- the program ------------------------------------------------------------------------------------------------ */

static const char prompts[] =
    "{\"prompt\": \"Once upon a time\"}\n\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"What is rain?\"}], \"max_tokens\": 3}\n"
    "{\"turns\": [\"Hello.\", \"And you?\"], \"stop\": \"e\"}\n";

#define FEW "tune", "-i", "-", "-n", "6", "--k-max", "1", "--repeats", "1"

/* Loop index: 80 and 60 columns. */
START_TEST(the_table_fits_the_terminal_and_a_sentence_ends_it)
{
    const int width = _i ? 60 : 80;
    char line[512];
    struct program p = program_run_at(width, prompts, ARGUMENTS(FEW, "--batch", "2"));
    program_expect_status(&p, 0);
    const char *text = buf_text(&p.out), *last = text;
    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        ck_assert_msg(wrap_text_columns(line) <= width, "%d columns: %s", wrap_text_columns(line), line);
        if (at > text && at[-1] == '\n' && at[-2] == '\n') last = at;
    }
    ck_assert_ptr_nonnull(strstr(text, "speed-up  bar"));
    ck_assert_ptr_nonnull(strstr(text, "1  block "));
    ck_assert_msg(strncmp(last, "--k 1 --accept", 14) == 0 || strncmp(last, "speculation", 11) == 0, "%s", text);
    program_free(&p);
}
END_TEST

START_TEST(csv_has_a_heading_and_a_row_for_each_setting)
{
    struct program p = program_run_at(80, prompts, ARGUMENTS(FEW, "--csv"));
    program_expect_status(&p, 0);
    ck_assert_int_eq(count_lines(&p.out), 1 + 4);
    ck_assert_int_eq(strncmp(buf_text(&p.out),
                             "k,accept,tok_per_second,spread_percent,speed_up,predicted_speed_up,alpha,"
                             "mean_acceptance_length,runs\n0,,",
                             101),
                     0);
    ck_assert_int_eq(count_parts(buf_text(&p.out), ","), 5 * 8);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "\n1,coupled,"));
    program_free(&p);
}
END_TEST

static void expect_members(const cJSON *object, const char *names) {
    char name[64];
    for (; *names; names += strcspn(names, " "), names += *names == ' ') {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names, " "), names);
        ck_assert_msg(cJSON_GetObjectItemCaseSensitive(object, name) != NULL, "no member '%s'", name);
    }
}

START_TEST(json_has_the_documented_members_and_the_picture_is_xml)
{
    struct program p = program_run_at(80, prompts, ARGUMENTS(FEW, "--json", "--plot", temp_path("tune.svg")));
    struct buf svg = {0};
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    const cJSON *settings = json_get(object, "settings"), *plain = settings->child, *last = plain->next->next->next;
    expect_members(object,
                   "device proposer batch prompts max_tokens temperature k_max round_ms settings recommendation");
    expect_members(plain, "tok_per_second spread_percent speed_up predicted_speed_up runs k accept alpha");
    expect_members(json_get(object, "recommendation"), "verdict k speed_up noise_percent sentence");
    ck_assert_double_eq(get_number(object, "prompts"), 3);
    ck_assert_double_eq(get_number(object, "temperature"), 0.7); /* not 0.699999988, the float */
    ck_assert_int_eq(cJSON_GetArraySize(json_get(object, "round_ms")), 2);
    ck_assert_int_eq(cJSON_GetArraySize(settings), 4);
    ck_assert_double_eq(get_number(plain, "k"), 0);
    ck_assert_double_eq(get_number(plain, "speed_up"), 1);
    ck_assert_str_eq(get_string(last, "accept"), "block");
    ck_assert_int_eq(cJSON_GetArraySize(json_get(last, "per_position_acceptance_rate")), 1);
    text_of_file(temp_path("tune.svg"), &svg);
    expect_xml(buf_text(&svg));
    ck_assert_int_eq(count_parts(buf_text(&svg), "<circle"), 2 * 3); /* K = 0 belongs to each of three rules */
    cJSON_Delete(object);
    buf_free(&svg);
    program_free(&p);
}
END_TEST

START_TEST(at_temperature_0_one_rule_stands_for_all_and_texts_are_compared)
{
    struct program p = program_run_at(80, prompts, ARGUMENTS(FEW, "--temperature", "0", "--repeats", "2", "--csv"));
    program_expect_status(&p, 0); /* ERR_INTERNAL if a text were another */
    ck_assert_int_eq(count_lines(&p.out), 1 + 2);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.out), "\n1,any,"));
    program_free(&p);
    p = program_run_at(80, "{\"prompt\": \"A\", \"temperature\": 0.5}\n",
                       ARGUMENTS(FEW, "--temperature", "0", "--csv"));
    program_expect_status(&p, 0);
    ck_assert_int_eq(count_lines(&p.out), 1 + 4); /* a line that samples needs all rules */
    program_free(&p);
}
END_TEST

START_TEST(built_in_prompts_and_a_draft_that_is_no_model_are_tuned_too)
{
    struct program p = program_run_at(80, NULL,
                                      ARGUMENTS("tune", "-n", "2", "--k-max", "1", "--repeats", "1", "--draft", "ngram",
                                                "--temperature", "0", "--json"));
    program_expect_status(&p, 0);
    cJSON *object = json_line(&p.out, 0);
    ck_assert_str_eq(get_string(object, "proposer"), "n-gram");
    ck_assert_double_eq(get_number(object, "prompts"), 8);
    cJSON_Delete(object);
    program_free(&p);
}
END_TEST

START_TEST(what_cannot_be_tuned_is_refused_in_a_sentence)
{
    static const struct {
        const char *input, *arguments[8], *part;
        int status;
    } cases[] = {
        {NULL, {"-i", "/nowhere/prompts"}, "/nowhere/prompts: ", 1},
        {"\n", {"-i", "-"}, "standard input: no prompt", 1},
        {"{\"prompt\": \"A\"}\n{\"promt\": \"B\"}\n", {"-i", "-"}, "line 2: ", 1},
        {"{\"prompt\": \"A\", \"mood\": 1}\n", {"-i", "-", "--strict"}, "line 1: ", 1},
        {"{\"prompt\": \"A long one, of more ids\"}\n", {"-i", "-", "--ctx", "4"}, "context", 1},
        {NULL, {"--target", "x"}, "--target: alone there is nothing to tune", 2},
        {NULL, {"--plot", "-"}, "--plot: needs a file", 2},
        {NULL, {"--plot", "/nowhere/x.svg"}, "/nowhere/x.svg: ", 1},
        {NULL, {"--k-max", "0"}, "--k-max: '0' is not a whole number in [1, 63]", 2},
        {NULL, {"--k", "3"}, "--k", 2},
        {NULL, {"--repeats", "0"}, "--repeats: '0' is not a whole number in [1, 99]", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *arguments[12] = {"tune", "-n", "4"};
        for (int j = 0; cases[i].arguments[j]; j++) arguments[j + 3] = cases[i].arguments[j];
        struct program p = program_run_at(80, cases[i].input, arguments);
        program_expect_error(&p, cases[i].status, cases[i].part);
        program_free(&p);
    }
}
END_TEST

/* Loop index: tune, or a table of bench. */
START_TEST(the_picture_is_written_over_no_file_unless_forced)
{
    static const char *const commands[][4] = {{"tune"}, {"bench", "alpha"}};
    char path[256];
    const char *const *c = commands[_i], *given[] = {c[0], "--plot", path, c[1], NULL};
    struct buf text = {0};
    snprintf(path, sizeof path, "%s", temp_path("mine.svg"));
    text_to_file(path, "mine\n");
    struct program p = program_run_at(80, prompts, given);
    program_expect_error(&p, 2, "mine.svg: is not empty (--force writes over it)");
    text_of_file(path, &text);
    ck_assert_str_eq(buf_text(&text), "mine\n");
    program_free(&p);
    buf_free(&text);
}
END_TEST

START_TEST(the_picture_is_not_written_over_the_prompts)
{
    text_to_file(temp_path("both"), prompts);
    struct program p =
        program_run_at(80, NULL, ARGUMENTS("tune", "-i", temp_path("both"), "--plot", temp_path("both")));
    struct buf text = {0};
    program_expect_error(&p, 2, "both");
    text_of_file(temp_path("both"), &text);
    ck_assert_str_eq(buf_text(&text), prompts);
    buf_free(&text);
    program_free(&p);
}
END_TEST

/* Over the host device of the runners. Returns the exit status; what went to standard output is in `out`. */
static int tune_here(struct buf *out) {
    char *arguments[] = {"duet",     "tune", "-i",        (char *)temp_path("in.jsonl"),
                         "-n",       "3",    "--k-max",   "1",
                         "--batch",  "2",    "--repeats", "1",
                         "--device", "host", "--csv"};
    struct options o;
    text_to_file(arguments[3], "{\"prompt_ids\": [5, 6], \"ignore_eos\": true}\n");
    setenv("DUET_ASSETS", asset_path(""), 1);
    ck_ok(options_parse(&o, sizeof arguments / sizeof *arguments, arguments));
    ck_assert_ptr_nonnull(freopen(temp_path("out"), "w", stdout));
    ck_assert_ptr_nonnull(freopen(temp_path("err"), "w", stderr));
    signals_init();
    faulty_host.records = 0;
    int status = tune_main(&o);
    fflush(stdout), fflush(stderr);
    buf_clear(out);
    text_of_file(temp_path("out"), out);
    return status;
}

START_TEST(ctrl_c_ends_the_sweep_with_what_is_measured_so_far)
{
    struct buf out = {0}, err = {0};
    faulty_host = (struct faulty_host){0};
    ck_assert_int_eq(tune_here(&out), 0);
    ck_assert_int_eq(count_lines(&out), 1 + 4);
    faulty_host.interrupt_at = faulty_host.records - 1; /* in the last run */
    ck_assert_int_eq(tune_here(&out), 130);
    ck_assert_int_eq(count_lines(&out), 1 + 3);
    text_of_file(temp_path("err"), &err);
    ck_assert_str_eq(buf_text(&err), "duet: interrupted: this is of what was measured\n");
    buf_free(&out), buf_free(&err);
}
END_TEST

Suite *check_tune(void);
Suite *check_tune(void) {
    Suite *suite = suite_create("tune");
    TCase *pure = tcase_create("figures");
    tcase_add_loop_test(pure, the_sentence_names_the_fastest_setting_where_it_gains_more_than_the_noise, 0, CHOICES);
    tcase_add_test(pure, what_ran_once_is_not_recommended_where_others_ran_again);
    tcase_add_test(pure, at_temperature_0_the_sentence_names_no_rule);
    tcase_add_test(pure, a_prediction_is_the_expected_tokens_of_a_round_over_what_it_costs);
    tcase_add_test(pure, a_sweep_is_over_where_no_larger_k_can_win_and_not_before);
    tcase_add_test(pure, what_is_run_again_is_plain_decoding_and_what_the_noise_may_hide);
    suite_add_tcase(suite, pure);
    TCase *program = tcase_create("the program");
    tcase_set_timeout(program, 120);
    tcase_add_loop_test(program, the_table_fits_the_terminal_and_a_sentence_ends_it, 0, 2);
    tcase_add_test(program, csv_has_a_heading_and_a_row_for_each_setting);
    tcase_add_test(program, json_has_the_documented_members_and_the_picture_is_xml);
    tcase_add_test(program, at_temperature_0_one_rule_stands_for_all_and_texts_are_compared);
    tcase_add_test(program, built_in_prompts_and_a_draft_that_is_no_model_are_tuned_too);
    tcase_add_test(program, what_cannot_be_tuned_is_refused_in_a_sentence);
    tcase_add_loop_test(program, the_picture_is_written_over_no_file_unless_forced, 0, 2);
    tcase_add_test(program, the_picture_is_not_written_over_the_prompts);
    tcase_add_test(program, ctrl_c_ends_the_sweep_with_what_is_measured_so_far);
    suite_add_tcase(suite, program);
    return suite;
}
