/* duet batch from outside: records, their order, errors of lines, seeds, stops, turns, Ctrl-C. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static struct program p;

static void run(const char *input, const char *const *arguments) {
    program_free(&p);
    program_run(&p, input, arguments);
}

static void expect_status(int status) {
    program_expect_status(&p, status);
}

static void expect_error(int status, const char *part) {
    program_expect_error(&p, status, part);
}

static int list_size(const cJSON *record, const char *name) {
    const cJSON *list = json_get(record, name);
    ck_assert_msg(cJSON_IsArray(list), "no list '%s'", name);
    return cJSON_GetArraySize(list);
}

/* The lists of ids of two records are equal. */
static bool same_ids(const cJSON *a, const cJSON *b) {
    return cJSON_Compare(json_get(a, "ids"), json_get(b, "ids"), true);
}

/* --- records ------------------------------------------------------------------------------------------------ */

START_TEST(record_has_every_field_and_its_figures_agree)
{
    run("{\"prompt\": \"Once upon a time\", \"seed\": 7}\n", ARGUMENTS("batch", "--max-tokens", "24", "--k", "3"));
    expect_status(0);
    ck_assert_int_eq(count_lines(&p.out), 1);
    cJSON *r = json_line(&p.out, 0);
    int ids = list_size(r, "ids");
    double rounds = get_number(r, "rounds"), drafted = get_number(r, "drafted"), accepted = get_number(r, "accepted");
    ck_assert_double_eq(get_number(r, "index"), 1);
    ck_assert_double_eq(get_number(r, "seed"), 7);
    ck_assert_double_eq(get_number(r, "completion_tokens"), ids);
    ck_assert_double_ge(get_number(r, "prompt_tokens"), 2);
    ck_assert_double_eq(drafted, 3 * rounds);
    ck_assert_double_eq_tol(get_number(r, "draft_acceptance_rate"), accepted / drafted, 1e-9);
    ck_assert_double_eq_tol(get_number(r, "mean_acceptance_length"), 1 + accepted / rounds, 1e-9);
    const char *reason = get_string(r, "finish_reason");
    ck_assert(strcmp(reason, "stop") == 0 || (strcmp(reason, "length") == 0 && ids == 24));
    ck_assert_ptr_nonnull(json_get(r, "text"));
    ck_assert(!cJSON_HasObjectItem(r, "id") && !cJSON_HasObjectItem(r, "error"));
    cJSON_Delete(r);
}
END_TEST

START_TEST(plain_decoding_has_null_rates_and_the_same_greedy_text)
{
    const char *line = "{\"prompt\": \"Once upon a time\"}\n";
    run(line, ARGUMENTS("batch", "-n", "40", "--temperature", "0", "--k", "0"));
    expect_status(0);
    cJSON *plain = json_line(&p.out, 0);
    ck_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(plain, "draft_acceptance_rate")));
    ck_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(plain, "mean_acceptance_length")));
    ck_assert_double_eq(get_number(plain, "drafted"), 0);
    run(line, ARGUMENTS("batch", "-n", "40", "--temperature", "0", "--k", "5"));
    expect_status(0);
    cJSON *speculative = json_line(&p.out, 0);
    ck_assert(same_ids(plain, speculative));
    ck_assert_str_eq(get_string(plain, "text"), get_string(speculative, "text"));
    ck_assert(!cJSON_HasObjectItem(speculative, "k"));
    cJSON_Delete(speculative);
    run(line, ARGUMENTS("batch", "-n", "40", "--temperature", "0", "--k", "auto"));
    expect_status(0);
    speculative = json_line(&p.out, 0);
    ck_assert(same_ids(plain, speculative));
    ck_assert_str_eq(get_string(speculative, "k"), "auto");
    cJSON_Delete(plain);
    cJSON_Delete(speculative);
}
END_TEST

START_TEST(without_speculation_no_draft_is_needed)
{
    run("{\"prompt\": \"a\"}\n",
        ARGUMENTS("batch", "-n", "2", "--target", asset_path("target"), "--draft", "/nowhere/at/all", "--k", "0"));
    expect_status(0);
    run("{\"prompt\": \"a\"}\n", ARGUMENTS("batch", "-n", "2", "--target", asset_path("target")));
    expect_status(0);
    cJSON *r = json_line(&p.out, 0);
    ck_assert_double_eq(get_number(r, "drafted"), 0);
    cJSON_Delete(r);
}
END_TEST

START_TEST(ids_are_echoed_from_the_first_name_that_is_there)
{
    run("{\"prompt\": \"a\", \"id\": \"x\", \"question_id\": 1}\n"
        "{\"prompt\": \"a\", \"task_id\": \"t/1\", \"question_id\": 81}\n"
        "{\"prompt\": \"a\", \"task_id\": \"t/1\"}\n",
        ARGUMENTS("batch", "-n", "1"));
    expect_status(0);
    cJSON *a = json_line(&p.out, 0), *b = json_line(&p.out, 1), *c = json_line(&p.out, 2);
    ck_assert_str_eq(get_string(a, "id"), "x");
    ck_assert_double_eq(get_number(b, "id"), 81);
    ck_assert_str_eq(get_string(c, "id"), "t/1");
    cJSON_Delete(a);
    cJSON_Delete(b);
    cJSON_Delete(c);
}
END_TEST

START_TEST(records_come_in_input_order_whatever_ends_first)
{
    struct buf input = {0};
    for (int i = 0; i < 12; i++)
        buf_printf(&input, "{\"prompt\": \"The %d\", \"max_tokens\": %d, \"ignore_eos\": true}\n%s", i,
                   i % 3 == 0 ? 40 : 1 + i, i == 4 ? "\r\n  \n" : "");
    run(buf_text(&input), ARGUMENTS("batch", "--batch", "4"));
    expect_status(0);
    ck_assert_int_eq(count_lines(&p.out), 12);
    for (int i = 0; i < 12; i++) {
        cJSON *r = json_line(&p.out, i);
        ck_assert_double_eq(get_number(r, "index"), i + 1 + (i > 4 ? 2 : 0));
        ck_assert_int_eq(list_size(r, "ids"), i % 3 == 0 ? 40 : 1 + i);
        ck_assert_str_eq(get_string(r, "finish_reason"), "length");
        cJSON_Delete(r);
    }
    buf_free(&input);
}
END_TEST

START_TEST(a_file_without_lines_gives_none)
{
    run("\n \r\n", ARGUMENTS("batch"));
    expect_status(0);
    ck_assert_uint_eq(p.out.len, 0);
}
END_TEST

START_TEST(prompt_ids_need_no_tokenizer)
{
    const char *dir = shared_path("fixtures/checkpoints/llama-gqa-tied");
    if (!dir) {
        skip("no shared test data");
        return;
    }
    run("{\"prompt_ids\": [1, 2, 3]}\n{\"prompt\": \"a\"}\n{\"prompt_ids\": [3], \"stop\": \"x\"}\n",
        ARGUMENTS("batch", "--target", dir, "-n", "4", "--ignore-eos"));
    expect_error(1, "2 of 3 lines failed");
    cJSON *r = json_line(&p.out, 0), *text = json_line(&p.out, 1);
    ck_assert_int_eq(list_size(r, "ids"), 4);
    ck_assert_double_eq(get_number(r, "prompt_tokens"), 3);
    ck_assert(!cJSON_HasObjectItem(r, "text"));
    ck_assert_ptr_nonnull(strstr(get_string(text, "error"), "tokenizer.json"));
    cJSON_Delete(r);
    cJSON_Delete(text);
}
END_TEST

START_TEST(an_answer_may_fill_the_context_to_its_last_position)
{
    run("{\"prompt_ids\": [5, 6, 7], \"max_tokens\": 1000}\n",
        ARGUMENTS("batch", "--ctx", "32", "--ignore-eos", "--k", "5"));
    expect_status(0);
    cJSON *r = json_line(&p.out, 0);
    ck_assert_int_eq(list_size(r, "ids"), 29);
    ck_assert_str_eq(get_string(r, "finish_reason"), "length");
    cJSON_Delete(r);
}
END_TEST

/* --- seeds -------------------------------------------------------------------------------------------------- */

START_TEST(a_run_without_seed_can_be_repeated_from_its_records)
{
    const char *line = "{\"prompt\": \"Once upon\"}\n{\"prompt\": \"Once upon\"}\n";
    run(line, ARGUMENTS("batch", "-n", "24", "--temperature", "1", "--ignore-eos"));
    expect_status(0);
    cJSON *first = json_line(&p.out, 0), *second = json_line(&p.out, 1);
    ck_assert(get_number(first, "seed") != get_number(second, "seed"));
    ck_assert(!same_ids(first, second));
    struct buf again = {0};
    buf_printf(&again, "{\"prompt\": \"Once upon\", \"seed\": %.0f}\n", get_number(second, "seed"));
    run(buf_text(&again), ARGUMENTS("batch", "-n", "24", "--temperature", "1", "--ignore-eos", "--batch", "1"));
    expect_status(0);
    cJSON *repeated = json_line(&p.out, 0);
    ck_assert(same_ids(second, repeated));
    buf_free(&again);
    cJSON_Delete(first);
    cJSON_Delete(second);
    cJSON_Delete(repeated);
}
END_TEST

START_TEST(seed_of_the_run_gives_each_line_its_own_key)
{
    const char *line = "{\"prompt\": \"Once upon\"}\n{\"prompt\": \"Once upon\"}\n";
    const char *const *arguments = ARGUMENTS("batch", "-n", "24", "--seed", "11", "--temperature", "1");
    run(line, arguments);
    expect_status(0);
    struct buf first = {0};
    buf_append(&first, buf_text(&p.out), p.out.len);
    run(line, arguments);
    ck_assert_str_eq(buf_text(&first), buf_text(&p.out));
    cJSON *a = json_line(&p.out, 0), *b = json_line(&p.out, 1);
    ck_assert(!same_ids(a, b));
    cJSON_Delete(a);
    cJSON_Delete(b);
    buf_free(&first);
}
END_TEST

START_TEST(seeds_past_two_to_the_53_are_strings)
{
    run("{\"prompt\": \"a\", \"seed\": \"18446744073709551615\"}\n{\"prompt\": \"a\", \"seed\": \"12\"}\n",
        ARGUMENTS("batch", "-n", "1"));
    expect_status(0);
    cJSON *large = json_line(&p.out, 0), *small = json_line(&p.out, 1);
    ck_assert_str_eq(get_string(large, "seed"), "18446744073709551615");
    ck_assert_double_eq(get_number(small, "seed"), 12);
    cJSON_Delete(large);
    cJSON_Delete(small);
}
END_TEST

/* --- ends --------------------------------------------------------------------------------------------------- */

START_TEST(a_stop_string_cuts_the_text_before_it)
{
    const char *line = "{\"prompt\": \"Once upon a time\", \"temperature\": 0}\n";
    run(line, ARGUMENTS("batch", "-n", "40"));
    expect_status(0);
    cJSON *whole = json_line(&p.out, 0);
    const char *text = get_string(whole, "text");
    ck_assert_uint_gt(strlen(text), 24);
    char stop[8] = {0};
    memcpy(stop, text + 16, 5);
    ck_assert_ptr_nonnull(strstr(text, stop));
    run(line, ARGUMENTS("batch", "-n", "40", "--stop", "never in there", "--stop", stop));
    expect_status(0);
    cJSON *cut = json_line(&p.out, 0);
    ck_assert_uint_eq(strlen(get_string(cut, "text")), (size_t)(strstr(text, stop) - text));
    ck_assert_str_eq(get_string(cut, "finish_reason"), "stop");
    ck_assert_int_lt(list_size(cut, "ids"), list_size(whole, "ids"));
    cJSON_Delete(whole);
    cJSON_Delete(cut);
}
END_TEST

/* Among answers of one token by chance there are first bytes of characters: U+FFFD, when nothing follows. */
START_TEST(a_stop_string_that_the_end_of_an_answer_brings_is_its_reason)
{
    struct buf lines = {0};
    int cut = 0;
    for (int seed = 1; seed <= 200; seed++)
        buf_printf(&lines, "{\"prompt\": \"Once\", \"seed\": %d, \"stop\": \"\xef\xbf\xbd\"}\n", seed);
    run(buf_text(&lines), ARGUMENTS("batch", "-n", "1", "--temperature", "1000", "--k", "0"));
    expect_status(0);
    for (int i = 0; i < 200; i++) {
        cJSON *r = json_line(&p.out, i);
        const char *text = get_string(r, "text");
        ck_assert_ptr_null(strstr(text, "\xef\xbf\xbd"));
        if (!*text) ck_assert_str_eq(get_string(r, "finish_reason"), "stop");
        cut += !*text;
        cJSON_Delete(r);
    }
    ck_assert_int_ge(cut, 4);
    buf_free(&lines);
}
END_TEST

/* Stops the greedy answer at `stop`; the statistics hold what was kept. Returns the tokens cut. */
static double cut_at(const char *line, const char *stop) {
    char report_option[300];
    snprintf(report_option, sizeof report_option, "--alpha-report=%s", temp_path("report.json"));
    run(line, ARGUMENTS("batch", "-n", "40", "--k", "7", "--stop", stop, report_option));
    ck_assert_int_eq(p.status, 0);
    struct buf text = {0};
    text_of_file(temp_path("report.json"), &text);
    cJSON *r = json_line(&p.out, 0), *report = json_line(&text, 0);
    double cut = get_number(report, "cut");
    ck_assert_str_eq(get_string(r, "finish_reason"), "stop");
    ck_assert_double_eq(get_number(report, "emitted"), list_size(r, "ids"));
    cJSON_Delete(r);
    cJSON_Delete(report);
    buf_free(&text);
    return cut;
}

START_TEST(tokens_past_a_stop_string_are_in_no_statistics)
{
    const char *line = "{\"prompt\": \"Once upon a time\", \"temperature\": 0}\n";
    run(line, ARGUMENTS("batch", "-n", "40"));
    cJSON *whole = json_line(&p.out, 0);
    const char *text = get_string(whole, "text");
    double cut = 0;
    for (int at = 8; at < 32; at += 4) {
        char stop[5] = {0};
        memcpy(stop, text + at, 4);
        cut += cut_at(line, stop);
    }
    ck_assert_double_gt(cut, 0);
    cJSON_Delete(whole);
}
END_TEST

START_TEST(a_chat_answer_ends_without_its_end_id)
{
    run("{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"temperature\": 0}\n",
        ARGUMENTS("batch", "-n", "400"));
    expect_status(0);
    cJSON *r = json_line(&p.out, 0);
    const cJSON *id;
    ck_assert_str_eq(get_string(r, "finish_reason"), "stop");
    cJSON_ArrayForEach(id, json_get(r, "ids")) ck_assert_int_ne(id->valueint, 2);
    ck_assert_ptr_null(strstr(get_string(r, "text"), "<|im_end|>"));
    cJSON_Delete(r);
}
END_TEST

/* --- turns -------------------------------------------------------------------------------------------------- */

START_TEST(turns_are_answered_in_order_and_summed)
{
    run("{\"question_id\": 1, \"turns\": [\"Hello!\", \"Tell me more.\"], \"max_tokens\": 20}\n", ARGUMENTS("batch"));
    expect_status(0);
    cJSON *r = json_line(&p.out, 0);
    ck_assert_int_eq(list_size(r, "turns"), 2);
    const cJSON *first = cJSON_GetArrayItem(json_get(r, "turns"), 0);
    const cJSON *last = cJSON_GetArrayItem(json_get(r, "turns"), 1);
    ck_assert(same_ids(r, last));
    ck_assert_str_eq(get_string(r, "text"), get_string(last, "text"));
    static const char *const sums[] = {"prompt_tokens", "completion_tokens", "rounds", "drafted", "accepted"};
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq(get_number(r, sums[i]), get_number(first, sums[i]) + get_number(last, sums[i]));
    ck_assert_double_gt(get_number(last, "prompt_tokens"),
                        get_number(first, "prompt_tokens") + get_number(first, "completion_tokens"));
    cJSON_Delete(r);
}
END_TEST

START_TEST(an_error_in_a_later_turn_keeps_the_earlier_answers)
{
    struct buf input = {0};
    buf_puts(&input, "{\"turns\": [\"Hello!\", \"");
    for (int i = 0; i < 200; i++) buf_puts(&input, "very ");
    buf_puts(&input, "long\"], \"max_tokens\": 8}\n");
    run(buf_text(&input), ARGUMENTS("batch", "--ctx", "128"));
    expect_error(1, "1 of 1 lines failed");
    cJSON *r = json_line(&p.out, 0);
    const char *error = get_string(r, "error");
    ck_assert_msg(strstr(error, "line 1: turn 2: ") && strstr(error, "context") && strstr(error, "128"), "%s", error);
    ck_assert_str_eq(get_string(r, "finish_reason"), "error");
    ck_assert_int_eq(list_size(r, "turns"), 1);
    cJSON_Delete(r);
    buf_free(&input);
}
END_TEST

/* --- files, reports, Ctrl-C --------------------------------------------------------------------------------- */

START_TEST(output_is_written_in_place_and_never_over_the_input)
{
    char in[256], out[256];
    snprintf(in, sizeof in, "%s", temp_path("in"));
    snprintf(out, sizeof out, "%s", temp_path("out"));
    text_to_file(in, "{\"prompt\": \"a\"}\n");
    text_to_file(out, "something longer that must go away, all of it, however long it is: ................"
                      "................................................................................"
                      "................................................................................"
                      "................................................................................\n");
    ck_assert_int_eq(link(out, temp_path("other-name")), 0);
    run(NULL, ARGUMENTS("batch", "-i", in, "-o", out, "-n", "1", "--force"));
    expect_status(0);
    ck_assert_uint_eq(p.out.len, 0);
    struct buf text = {0};
    text_of_file(temp_path("other-name"), &text);
    ck_assert_int_eq(count_lines(&text), 1);
    cJSON_Delete(json_line(&text, 0));
    buf_free(&text);
    run(NULL, ARGUMENTS("batch", "-i", in, "-o", in));
    expect_error(2, in);
    run(NULL, ARGUMENTS("batch", "-i", in, "-o", "/dev/full"));
    expect_error(1, "/dev/full: cannot write");
    run(NULL, ARGUMENTS("batch", "-i", "/nowhere/in"));
    expect_error(1, "/nowhere/in");
}
END_TEST

START_TEST(alpha_report_sums_the_run)
{
    char path[300];
    snprintf(path, sizeof path, "--alpha-report=%s", temp_path("report.json"));
    run("{\"prompt\": \"a\", \"max_tokens\": 30}\n{\"prompt\": \"The\", \"max_tokens\": 20}\n",
        ARGUMENTS("batch", path, "--k", "3", "--seed", "1"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "mean_acceptance_length"));
    cJSON *a = json_line(&p.out, 0), *b = json_line(&p.out, 1);
    struct buf text = {0};
    text_of_file(temp_path("report.json"), &text);
    cJSON *report = json_line(&text, 0);
    static const char *const sums[] = {"rounds", "drafted", "accepted"};
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(get_number(report, sums[i]), get_number(a, sums[i]) + get_number(b, sums[i]));
    ck_assert_double_eq(get_number(report, "k"), 3);
    ck_assert_int_eq(list_size(report, "acceptance_histogram"), 4);
    ck_assert_int_eq(list_size(report, "per_position_acceptance_rate"), 3);
    static const char *const figures[] = {
        "rejected", "emitted", "alpha", "alpha_tv", "draft_acceptance_rate", "mean_acceptance_length"};
    for (int i = 0; i < 6; i++) get_number(report, figures[i]);
    cJSON_Delete(a);
    cJSON_Delete(b);
    cJSON_Delete(report);
    run("{\"prompt\": \"a\"}\n", ARGUMENTS("batch", path, "--k", "0", "-n", "3"));
    ck_assert_int_eq(p.status, 0);
    buf_clear(&text);
    text_of_file(temp_path("report.json"), &text);
    report = json_line(&text, 0);
    for (int i = 2; i < 6; i++) ck_assert(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(report, figures[i])));
    cJSON_Delete(report);
    run("{\"prompt\": \"a\"}\n", ARGUMENTS("batch", "--alpha-report=/nowhere/report.json"));
    expect_error(1, "/nowhere/report.json");
    buf_free(&text);
}
END_TEST

START_TEST(alpha_report_spares_the_input_and_the_output)
{
    char in[512], report[600], out[512];
    struct buf text = {0};
    snprintf(in, sizeof in, "%s", temp_path("kept.jsonl"));
    snprintf(out, sizeof out, "%s", temp_path("both.jsonl"));
    text_to_file(in, "{\"prompt\": \"a\"}\n");
    snprintf(report, sizeof report, "--alpha-report=%s", in);
    run("", ARGUMENTS("batch", "-i", in, report));
    expect_error(2, "is the input file too");
    text_of_file(in, &text);
    ck_assert_str_eq(buf_text(&text), "{\"prompt\": \"a\"}\n");
    snprintf(report, sizeof report, "--alpha-report=%s", out);
    run("", ARGUMENTS("batch", "-i", in, "-o", out, report));
    expect_error(2, "is the output file too");
    buf_free(&text);
}
END_TEST

/* Waits until the program has written a record; at most ten seconds. */
static void wait_for_a_record(void) {
    for (int i = 0; i < 1000; i++) {
        struct buf text = {0};
        text_of_file(temp_path("stdout"), &text);
        int lines = count_lines(&text);
        buf_free(&text);
        if (lines > 0) return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    ck_abort_msg("no record in ten seconds");
}

START_TEST(ctrl_c_writes_what_is_finished_in_order_and_exits_130)
{
    struct buf input = {0};
    for (int i = 0; i < 2000; i++) buf_printf(&input, "{\"prompt\": \"The %d\", \"max_tokens\": %d}\n", i, 4 + i % 60);
    program_free(&p);
    program_start(&p, buf_text(&input), ARGUMENTS("batch", "--ignore-eos", "--batch", "4"));
    wait_for_a_record();
    ck_assert_int_eq(kill(p.pid, SIGINT), 0);
    program_wait(&p);
    int written = count_lines(&p.out);
    struct buf sentence = {0};
    buf_printf(&sentence, "duet: interrupted: %d of 2000 records are missing\n", 2000 - written);
    ck_assert_int_eq(p.status, 130);
    ck_assert_int_lt(written, 2000);
    ck_assert_str_eq(buf_text(&p.err), buf_text(&sentence));
    double last = 0;
    for (int i = 0; i < written; i++) {
        cJSON *r = json_line(&p.out, i);
        ck_assert_double_gt(get_number(r, "index"), last);
        last = get_number(r, "index");
        cJSON_Delete(r);
    }
    buf_free(&input);
    buf_free(&sentence);
}
END_TEST

START_TEST(ctrl_c_before_the_run_exits_130_too)
{
    char path[256];
    snprintf(path, sizeof path, "%s", temp_path("fifo"));
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    program_free(&p);
    program_start(&p, NULL, ARGUMENTS("batch", "-i", path));
    int writer = open(path, O_WRONLY); /* the program is reading now */
    ck_assert_int_ge(writer, 0);
    ck_assert_int_eq(kill(p.pid, SIGINT), 0);
    program_wait(&p);
    close(writer);
    ck_assert_int_eq(p.status, 130);
    ck_assert_str_eq(buf_text(&p.err), "duet: interrupted\n");
}
END_TEST

Suite *check_batch(void) {
    Suite *suite = suite_create("batch");
    TCase *records = tcase_create("records");
    tcase_add_test(records, record_has_every_field_and_its_figures_agree);
    tcase_add_test(records, plain_decoding_has_null_rates_and_the_same_greedy_text);
    tcase_add_test(records, without_speculation_no_draft_is_needed);
    tcase_add_test(records, ids_are_echoed_from_the_first_name_that_is_there);
    tcase_add_test(records, records_come_in_input_order_whatever_ends_first);
    tcase_add_test(records, a_file_without_lines_gives_none);
    tcase_add_test(records, prompt_ids_need_no_tokenizer);
    tcase_add_test(records, an_answer_may_fill_the_context_to_its_last_position);
    suite_add_tcase(suite, records);
    TCase *seeds = tcase_create("seeds");
    tcase_add_test(seeds, a_run_without_seed_can_be_repeated_from_its_records);
    tcase_add_test(seeds, seed_of_the_run_gives_each_line_its_own_key);
    tcase_add_test(seeds, seeds_past_two_to_the_53_are_strings);
    suite_add_tcase(suite, seeds);
    TCase *ends = tcase_create("ends and turns");
    tcase_add_test(ends, a_stop_string_cuts_the_text_before_it);
    tcase_add_test(ends, a_stop_string_that_the_end_of_an_answer_brings_is_its_reason);
    tcase_add_test(ends, tokens_past_a_stop_string_are_in_no_statistics);
    tcase_add_test(ends, a_chat_answer_ends_without_its_end_id);
    tcase_add_test(ends, turns_are_answered_in_order_and_summed);
    tcase_add_test(ends, an_error_in_a_later_turn_keeps_the_earlier_answers);
    suite_add_tcase(suite, ends);
    TCase *files = tcase_create("files, report, Ctrl-C");
    tcase_add_test(files, output_is_written_in_place_and_never_over_the_input);
    tcase_add_test(files, alpha_report_sums_the_run);
    tcase_add_test(files, alpha_report_spares_the_input_and_the_output);
    tcase_add_test(files, ctrl_c_before_the_run_exits_130_too);
    tcase_add_test(files, ctrl_c_writes_what_is_finished_in_order_and_exits_130);
    suite_add_tcase(suite, files);
    return suite;
}
