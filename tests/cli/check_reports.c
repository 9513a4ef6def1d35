/* What users see of speed and errors: times of a round, plans that do not fit, a device that fails. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "model/files/shape.h"
#include "tests/support/batch_here.h"
#include "tests/support/engine_support.h"
#include "tests/support/faulty_host.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

static struct engine_options embedded(int k, int batch) {
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options o = pair_options(&pairs[0], k, batch);
    o.device = "host";
    return o;
}

static void run_story(struct engine *e, int max_tokens) {
    struct request r = text_request(e, "Once upon a time", max_tokens);
    struct answer a;
    r.generation.ignore_end = true;
    run_requests(e, &r, 1, &a);
    free_requests(&r, 1), free_answers(&a, 1);
}

/* --- times of a round ---------------------------------------------------------------------------------------------- */

/* With events that take a millisecond each: the parts are the documented ones. Loop index: K. */
START_TEST(a_timed_round_has_2k_plus_3_marks_that_are_read_once)
{
    faulty_host = (struct faulty_host){.watch_events = true};
    struct engine_options o = embedded(_i, 1);
    o.pipeline = 2;
    o.timing = 1;
    struct engine *e = must_open(&o);
    run_story(e, 60);
    struct engine_counts c = engine_counts(e);
    uint64_t rounds = c.times.rounds;
    ck_assert_uint_gt(rounds, 10);
    ck_assert(rounds == c.rounds || rounds + 1 == c.rounds); /* the last one may still be in flight */
    ck_assert_int_eq(faulty_host.marks_read, (int)rounds * (2 * _i + 2));
    ck_assert_double_eq(c.times.draft_ms, (double)rounds * _i);
    ck_assert_double_eq(c.times.verify_ms, (double)rounds);
    ck_assert_double_eq(c.times.sampling_ms, (double)rounds * (_i + 1));
    engine_destroy(e);
}
END_TEST

START_TEST(every_nth_round_is_timed_and_the_first_is)
{
    struct engine_options o = embedded(2, 1);
    o.timing = 3;
    o.pipeline = 2;
    struct engine *e = must_open(&o);
    run_story(e, 40);
    struct engine_counts c = engine_counts(e);
    ck_assert(c.times.rounds == (c.rounds + 2) / 3 || c.times.rounds == (c.rounds + 1) / 3);
    ck_assert(c.times.draft_ms > 0 && c.times.verify_ms > 0 && c.times.sampling_ms > 0);
    ck_assert_double_le(c.times.draft_ms + c.times.verify_ms + c.times.sampling_ms, (double)c.host_us / 1000 + 1);
    engine_destroy(e);
}
END_TEST

START_TEST(timing_adds_neither_waits_nor_launches)
{
    struct engine_counts counts[2];
    for (int timing = 0; timing < 2; timing++) {
        struct engine_options o = embedded(3, 1);
        o.timing = timing;
        o.pipeline = 2;
        struct engine *e = must_open(&o);
        run_story(e, 60);
        counts[timing] = engine_counts(e);
        engine_destroy(e);
    }
    ck_assert_uint_eq(counts[0].times.rounds, 0);
    ck_assert_uint_gt(counts[1].times.rounds, 0);
    ck_assert_uint_eq(counts[0].rounds, counts[1].rounds);
    ck_assert_uint_eq(counts[0].stream.synchronises, counts[1].stream.synchronises);
    ck_assert_uint_eq(counts[0].stream.kernel_launches, counts[1].stream.kernel_launches);
    ck_assert_uint_eq(counts[0].stream.graph_launches, counts[1].stream.graph_launches);
    ck_assert_uint_eq(counts[0].device_allocations, counts[1].device_allocations);
}
END_TEST

START_TEST(launches_of_rounds_leave_prefill_out)
{
    struct engine_options o = embedded(3, 1);
    struct engine *e = must_open(&o);
    int graphs, kernels;
    run_story(e, 30);
    engine_launches(e, 3, &graphs, &kernels);
    struct engine_counts c = engine_counts(e);
    ck_assert_uint_eq(c.graph_launches, c.rounds * (uint64_t)graphs);
    ck_assert_uint_eq(c.kernel_launches, c.rounds * (uint64_t)kernels);
    ck_assert_uint_gt(c.stream.kernel_launches, c.kernel_launches);
    engine_destroy(e);
}
END_TEST

/* All rounds had K = 3, and each replayed the target's graph of it. */
static void expect_counts(const cJSON *report, double rounds) {
    const cJSON *by_k = cJSON_GetObjectItem(report, "rounds_by_k"), *graph;
    double replays = 0;
    ck_assert_int_eq(cJSON_GetArraySize(by_k), 4);
    ck_assert_double_eq(cJSON_GetArrayItem(by_k, 3)->valuedouble, rounds);
    cJSON_ArrayForEach(graph, cJSON_GetObjectItem(report, "graphs")) {
        if (strcmp(cJSON_GetObjectItem(graph, "set")->valuestring, "draft") == 0) continue;
        replays += get_number(graph, "replays");
        ck_assert(get_number(graph, "replays") ==
                  (get_number(graph, "q_len") == 4 && get_number(graph, "batch") == 1 ? rounds : 0));
    }
    ck_assert_double_eq(replays, rounds);
}

/* From 0 to k_max; beyond, nothing was measured. */
static void expect_forecast(const cJSON *report, int k_max) {
    const cJSON *speed_up = cJSON_GetObjectItem(report, "forecast_speed_up"),
                *ms = cJSON_GetObjectItem(report, "round_ms_by_k");
    ck_assert_int_eq(cJSON_GetArraySize(speed_up), 9);
    ck_assert_double_eq(cJSON_GetArrayItem(speed_up, 0)->valuedouble, 1);
    for (int k = 0; k <= k_max; k++) ck_assert_double_gt(cJSON_GetArrayItem(ms, k)->valuedouble, 0);
    for (int k = k_max + 1; k <= 8; k++) ck_assert(cJSON_IsNull(cJSON_GetArrayItem(speed_up, k)));
    ck_assert_double_le(get_number(report, "forecast_best_k"), k_max);
}

START_TEST(the_report_gives_times_and_launches_of_a_round)
{
    char option[300];
    struct program p;
    struct buf text = {0};
    snprintf(option, sizeof option, "--alpha-report=%s", temp_path("report.json"));
    program_run(&p, "{\"prompt\": \"Once upon a time\", \"ignore_eos\": true}\n",
                ARGUMENTS("batch", option, "--k", "3", "-n", "40", "--device", "host", "--seed", "1"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "a round of the engine, mean of "));
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "  device "));
    text_of_file(temp_path("report.json"), &text);
    cJSON *report = json_line(&text, 0);
    ck_assert_double_eq(get_number(report, "graph_launches_per_round"), 4);
    ck_assert_double_eq(get_number(report, "eager_launches_per_round"), 4);
    ck_assert_double_eq(get_number(report, "eager_fallbacks"), 0);
    double rounds = get_number(report, "engine_rounds"), timed = get_number(report, "timed_rounds");
    ck_assert(timed >= 1 && timed == floor((rounds + 3) / 4));
    double parts = get_number(report, "draft_ms_per_round") + get_number(report, "verify_ms_per_round") +
                   get_number(report, "sampling_ms_per_round");
    ck_assert_double_eq_tol(get_number(report, "device_ms_per_round"), parts, 1e-6);
    ck_assert(get_number(report, "host_us_per_round") > 0 && get_number(report, "wait_us_per_round") >= 0);
    expect_counts(report, rounds);
    expect_forecast(report, 3);
    cJSON_Delete(report), buf_free(&text), program_free(&p);
}
END_TEST

START_TEST(under_auto_the_report_says_which_k_the_rounds_had)
{
    char option[300];
    struct program p;
    struct buf text = {0};
    double sum = 0;
    const cJSON *rounds;
    snprintf(option, sizeof option, "--alpha-report=%s", temp_path("report.json"));
    program_run(&p, "{\"prompt\": \"Once upon a time\", \"ignore_eos\": true}\n",
                ARGUMENTS("batch", option, "--k", "auto", "-n", "40", "--device", "host", "--seed", "1"));
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(buf_text(&p.err), "rounds by the K that auto chose\n    0 "));
    text_of_file(temp_path("report.json"), &text);
    cJSON *report = json_line(&text, 0);
    cJSON_ArrayForEach(rounds, cJSON_GetObjectItem(report, "rounds_by_k")) sum += rounds->valuedouble;
    ck_assert_double_eq(sum, get_number(report, "engine_rounds"));
    cJSON_Delete(report), buf_free(&text), program_free(&p);
}
END_TEST

/* --- plans ------------------------------------------------------------------------------------------------------------ */

static const struct model_shape {
    const char *name;
    double gb; /* bf16 weights, the head of llama-3.2-1b of its own unless tied */
} known_shapes[] = {
    {"llama-3.1-8b", 16.06},
    {"llama-3.2-1b", 3.0},
    {"llama-3.2-1b-tied", 2.472},
    {"llama-3.1-70b", 141.1},
    {"qwen2.5-7b", 15.23},
    {"qwen2.5-0.5b", 0.988},
    {"qwen3-32b", 65.5},
    {"qwen3-0.6b", 1.19},
    {"qwen3.5-27b", 53.79},
    {"qwen3.5-4b", 8.41},
    {"qwen3.5-0.8b", 1.5},
    {"granite-4.0-h-small", 64.41},
    {"granite-4.0-h-1b", 2.92},
    {"nemotron-3-nano-30b-a3b", 63.15},
    {"nemotron-nano-9b-v2", 17.77},
    {"lfm2-8b-a1b", 16.68},
    {"lfm2-2.6b", 5.14},
    {"lfm2-350m", 0.709},
    {"smollm2-135m", 0.269},
    {"gemma-3-12b", 23.53},
    {"gemma-4-31b", 61.4},
    {"phi-4", 29.32},
    {"mixtral-8x7b", 93.41},
    {"qwen3-30b-a3b", 61.06},
    {"gpt-oss-20b", 41.83},
};
enum { KNOWN_SHAPES = sizeof known_shapes / sizeof *known_shapes };

static const struct {
    const char *name, *of;
    double gb;
} known_heads[] = {
    {"eagle3-llama-3.1-8b", "llama-3.1-8b", 0.85},
    {"dflash-llama-3.1-8b", "llama-3.1-8b", 2.349},
    {"gemma-4-31b-assistant", "gemma-4-31b", 0.939},
};
enum { KNOWN_HEADS = sizeof known_heads / sizeof *known_heads };

static uint64_t slice_bytes(const struct memory_plan *plan, const char *name) {
    for (int i = 0; i < plan->count; i++)
        if (strcmp(plan->slices[i].name, name) == 0) return plan->slices[i].bytes;
    return 0;
}

/* No memory is needed for a plan, and one that does not fit is still a plan. */
START_TEST(every_named_shape_has_the_weights_of_its_model)
{
    for (int i = 0; i < KNOWN_SHAPES; i++) {
        struct memory_plan plan;
        struct engine_options o = {.target = test_shape(known_shapes[i].name), .device = "host", .context = 512};
        ck_ok(engine_plan(&plan, &o));
        double gb = (double)slice_bytes(&plan, "target weights") * 1e-9;
        ck_assert_msg(gb > 0.99 * known_shapes[i].gb && gb < 1.01 * known_shapes[i].gb, "%s has %.3f GB of weights",
                      known_shapes[i].name, gb);
        ck_assert_str_eq(model_shape_at(i), known_shapes[i].name);
        ck_assert_int_eq(plan.context, 512);
        memory_plan_free(&plan);
    }
    for (int i = 0; i < KNOWN_HEADS; i++) { /* no targets */
        struct memory_plan plan;
        struct engine_options o = {.target = test_shape(known_heads[i].of), .device = "host", .context = 512, .k = 4};
        o.draft = test_shape(known_heads[i].name);
        ck_ok(engine_plan(&plan, &o));
        const double gb = (double)slice_bytes(&plan, "draft weights") * 1e-9;
        ck_assert_msg(gb > 0.99 * known_heads[i].gb && gb < 1.01 * known_heads[i].gb, "%s has %.3f GB of weights",
                      known_heads[i].name, gb);
        ck_assert_str_eq(model_shape_at(KNOWN_SHAPES + i), known_heads[i].name);
        memory_plan_free(&plan);
    }
    ck_assert_ptr_null(model_shape_at(KNOWN_SHAPES + KNOWN_HEADS));
}
END_TEST

static void expect_refusal(const struct engine_options *o, uint64_t free_bytes, const char *const *parts) {
    struct engine *e;
    faulty_host = (struct faulty_host){.free_bytes = free_bytes};
    ck_assert_int_eq(engine_create(&e, o), ERR_MEMORY);
    for (int i = 0; parts[i]; i++)
        ck_assert_msg(strstr(err_message(), parts[i]) != NULL, "'%s' is not in: %s", parts[i], err_message());
}

START_TEST(a_plan_that_does_not_fit_says_what_each_part_needs_and_what_shrinks_it)
{
    struct engine_options o = {.target = test_shape("llama-3.1-8b"),
                               .draft = test_shape("llama-3.2-1b"),
                               .device = "host",
                               .k = 5,
                               .max_batch = 8,
                               .context = 8192};
    expect_refusal(&o, (uint64_t)24 << 30,
                   (const char *const[]){"context of 8192 tokens at batch 8 and k-max 5 needs", "target weights 15.0",
                                         "draft weights 2.8", "KV pages 2", "logits and probabilities", "scratch",
                                         "21.6 of 24.0 free may be taken",
                                         "lower --ctx, --batch or --k-max, or take a smaller draft", NULL});
    expect_refusal(&o, (uint64_t)18 << 30, (const char *const[]){"take a smaller draft, or none (--k 0)", NULL});
    expect_refusal(&o, (uint64_t)10 << 30, (const char *const[]){": take a smaller target", NULL});
    o.target = o.draft = test_shape("qwen2.5-0.5b"), o.max_batch = 64, o.k = 32,
    o.context = 512; /* many logits, few keys */
    expect_refusal(&o, (uint64_t)6 << 30, (const char *const[]){"lower --k-max, --batch or --ctx", NULL});
    struct engine_options plain = {.target = test_shape("smollm2-135m"), .device = "host"};
    expect_refusal(&plain, 310 << 20,
                   (const char *const[]){"context of 256 tokens at batch 1 needs ", " MiB (target weights 257",
                                         ": take a smaller target", NULL});
}
END_TEST

START_TEST(the_context_shrinks_to_what_fits_unless_it_was_given)
{
    struct memory_plan plan;
    struct engine_options o = {.target = test_shape("smollm2-135m"), .device = "host"};
    faulty_host = (struct faulty_host){.free_bytes = (uint64_t)450 << 20};
    ck_ok(engine_plan(&plan, &o));
    ck_assert_int_eq(plan.context, 2048);
    ck_assert_str_eq(plan.refusal, "");
    memory_plan_free(&plan);
    o.context = 8192;
    ck_ok(engine_plan(&plan, &o));
    ck_assert_ptr_nonnull(strstr(plan.refusal, "context of 8192 tokens"));
    ck_assert_ptr_nonnull(strstr(plan.refusal, "lower --ctx, or take a smaller target"));
    memory_plan_free(&plan);
}
END_TEST

/* --- a device that fails, and Ctrl-C ------------------------------------------------------------------------------ */

enum { LINES = 6 };

START_TEST(a_device_failure_ends_the_batch_and_what_was_written_stays)
{
    char good[256], bad[256], err[256];
    snprintf(good, sizeof good, "%s", temp_path("good.jsonl"));
    snprintf(bad, sizeof bad, "%s", temp_path("bad.jsonl"));
    snprintf(err, sizeof err, "%s", temp_path("err"));
    struct buf lines = {0}, all = {0}, kept = {0}, said = {0};
    for (int i = 0; i < LINES; i++) buf_printf(&lines, "{\"prompt\": \"A %d\", \"ignore_eos\": true}\n", i);
    ck_assert_int_eq(batch_here(buf_text(&lines), good, err), 0);
    faulty_host.waits = 14;
    ck_assert_int_eq(batch_here(buf_text(&lines), bad, err), 1);
    text_of_file(good, &all), text_of_file(bad, &kept), text_of_file(err, &said);
    ck_assert_str_eq(buf_text(&said), "duet: the device went away\n");
    ck_assert_int_eq(count_lines(&all), LINES);
    ck_assert_int_ge(count_lines(&kept), 1);
    ck_assert_int_lt(count_lines(&kept), LINES);
    ck_assert_int_eq(kept.data[kept.len - 1], '\n');
    for (int i = 0; i < count_lines(&kept); i++) {
        cJSON *record = json_line(&kept, i), *whole = json_line(&all, (int)get_number(record, "index") - 1);
        ck_assert(cJSON_Compare(record, whole, true));
        cJSON_Delete(record), cJSON_Delete(whole);
    }
    buf_free(&lines), buf_free(&all), buf_free(&kept), buf_free(&said);
}
END_TEST

/* With them the prompt that the line ends with has several chunks. */
static void add_words(struct buf *line) {
    for (int i = 0; i < 400; i++) buf_puts(line, " the cat");
}

/* Neither a chunk nor a round comes after event `last`. */
static void expect_end(const struct buf *lines, int last, int status, const char *sentence, struct buf *written) {
    char out[256], err[256];
    snprintf(out, sizeof out, "%s", temp_path("out.jsonl"));
    snprintf(err, sizeof err, "%s", temp_path("err"));
    ck_assert_int_eq(batch_here(buf_text(lines), out, err), status);
    ck_assert_int_eq(faulty_host.records, last);
    struct buf said = {0};
    text_of_file(err, &said);
    text_of_file(out, written);
    ck_assert_str_eq(buf_text(&said), sentence);
    buf_free(&said);
}

START_TEST(ctrl_c_in_a_prompt_ends_the_batch_at_the_next_chunk)
{
    struct buf lines = {0}, written = {0};
    for (int i = 0; i < 3; i++) {
        buf_printf(&lines, "{\"prompt\": \"A %d", i);
        add_words(&lines);
        buf_puts(&lines, "\"}\n");
    }
    faulty_host.interrupt_at = 2;
    expect_end(&lines, 2, 130, "duet: interrupted: 3 of 3 records are missing\n", &written);
    ck_assert_uint_eq(written.len, 0);
    buf_free(&lines), buf_free(&written);
}
END_TEST

/* Both lines end their first answers in one round; then the first one's second turn is ingested. Loop index: by what it ends. */
START_TEST(a_later_turn_that_cannot_start_keeps_the_lines_that_are_done)
{
    struct buf lines = {0}, written = {0};
    buf_puts(&lines, "{\"turns\": [\"Hello.\", \"And");
    add_words(&lines);
    buf_puts(&lines, "\"], \"max_tokens\": 1}\n{\"prompt\": \"The sun\", \"max_tokens\": 1}\n");
    enum { PROMPT = 3, ROUND = 1 }; /* events: a chunk for each model, the slot; one round */
    const int last = 2 * PROMPT + ROUND + 1;
    *(_i ? &faulty_host.fail_at : &faulty_host.interrupt_at) = last;
    if (_i)
        expect_end(&lines, last, 1, "duet: the device went away\n", &written);
    else
        expect_end(&lines, last, 130, "duet: interrupted: 1 of 2 records are missing\n", &written);
    cJSON *record = json_line(&written, 0);
    ck_assert_int_eq(count_lines(&written), 1);
    ck_assert_double_eq(get_number(record, "index"), 2);
    cJSON_Delete(record);
    buf_free(&lines), buf_free(&written);
}
END_TEST

Suite *check_reports(void);
Suite *check_reports(void) {
    Suite *suite = suite_create("reports");
    TCase *times = tcase_create("times");
    tcase_add_loop_test(times, a_timed_round_has_2k_plus_3_marks_that_are_read_once, 0, 5);
    tcase_add_test(times, every_nth_round_is_timed_and_the_first_is);
    tcase_add_test(times, timing_adds_neither_waits_nor_launches);
    tcase_add_test(times, launches_of_rounds_leave_prefill_out);
    tcase_add_test(times, the_report_gives_times_and_launches_of_a_round);
    tcase_add_test(times, under_auto_the_report_says_which_k_the_rounds_had);
    suite_add_tcase(suite, times);
    TCase *plans = tcase_create("plans");
    tcase_add_test(plans, every_named_shape_has_the_weights_of_its_model);
    tcase_add_test(plans, a_plan_that_does_not_fit_says_what_each_part_needs_and_what_shrinks_it);
    tcase_add_test(plans, the_context_shrinks_to_what_fits_unless_it_was_given);
    suite_add_tcase(suite, plans);
    TCase *faults = tcase_create("faults");
    tcase_add_test(faults, a_device_failure_ends_the_batch_and_what_was_written_stays);
    tcase_add_test(faults, ctrl_c_in_a_prompt_ends_the_batch_at_the_next_chunk);
    tcase_add_loop_test(faults, a_later_turn_that_cannot_start_keeps_the_lines_that_are_done, 0, 2);
    suite_add_tcase(suite, faults);
    return suite;
}
