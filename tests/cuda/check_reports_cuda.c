/* What the figures of speed rest on, on a GPU: the reader of the bandwidth, events inside rounds, and that no kernel is loaded
 * after start-up. */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "engine/probe.h"
#include "tests/cuda/gpu_lab.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

/* Lengths in pairs of words around the edges of a block, a grid and its unrolled loop. */
START_TEST(the_sum_of_words_reads_every_word_once)
{
    static const size_t pairs[] = {1, 2, 511, 512, 513, 100003, 1 << 20, (1 << 20) + 7};
    enum { MOST = (1 << 20) + 7 };
    uint64_t *words = malloc(MOST * 2 * sizeof *words), expected = 0, got = 0;
    struct gpu gpu;
    gpu_open(&gpu);
    void *device = gpu_alloc(&gpu, MOST * 16), *sum = gpu_alloc(&gpu, sizeof expected);
    for (size_t i = 0; i < 2 * MOST; i++) words[i] = (i + 1) * 0x9E3779B97F4A7C15u;
    gpu_put(&gpu, device, words, MOST * 16);
    gpu_put(&gpu, sum, &expected, sizeof expected);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        ck_ok(stream_sum_words(gpu.lab.stream, device, pairs[i] * 16, sum));
        for (size_t w = 0; w < 2 * pairs[i]; w++) expected += words[w];
        gpu_get(&gpu, &got, sum, sizeof got);
        ck_assert_msg(got == expected, "%zu pairs", pairs[i]);
    }
    free(words);
    gpu_close(&gpu);
}
END_TEST

static struct engine *open_embedded(int k, int batch, enum graph_mode graphs, enum bucket_policy buckets) {
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], k, batch);
    options.graphs = graphs, options.buckets = buckets, options.timing = 1;
    return must_open(&options);
}

/* Requests of different lengths, so that every number of live rows comes up. */
static void run_many(struct engine *e, int count) {
    enum { MOST = 16 };
    struct request requests[MOST];
    struct answer answers[MOST];
    for (int i = 0; i < count; i++) {
        requests[i] = text_request(e, "Once upon a time there was", 20 + 9 * i);
        requests[i].generation.ignore_end = true;
        requests[i].generation.sampling.temperature = i % 2 ? 0.8f : 0;
        requests[i].generation.seed = (uint64_t)i;
    }
    run_requests(e, requests, count, answers);
    free_requests(requests, count), free_answers(answers, count);
}

START_TEST(parts_of_timed_rounds_are_positive_and_within_the_run)
{
    struct engine *e = open_embedded(4, 2, GRAPHS_ON, BUCKETS_POW2);
    struct engine_counts before = engine_counts(e);
    run_many(e, 8);
    struct engine_counts c = engine_counts(e);
    ck_assert(c.times.rounds + 2 >= c.rounds && c.times.rounds <= c.rounds);
    ck_assert(c.times.draft_ms > 0 && c.times.verify_ms > 0 && c.times.sampling_ms > 0);
    double device_ms = c.times.draft_ms + c.times.verify_ms + c.times.sampling_ms;
    ck_assert_double_lt(device_ms / (double)c.times.rounds, 100);
    ck_assert_uint_eq(before.device_allocations, c.device_allocations);
    engine_destroy(e);
}
END_TEST

/* Without graphs, since those of EXACT may allocate: every batch size runs, and none loads a kernel. */
START_TEST(exact_buckets_load_no_kernel_after_start_up)
{
    uint64_t before, after, total;
    struct engine *e = open_embedded(5, 11, GRAPHS_OFF, BUCKETS_EXACT);
    ck_ok(device_memory(e->device, &before, &total));
    run_many(e, 16);
    ck_ok(device_memory(e->device, &after, &total));
    ck_assert_msg(before == after, "%lld bytes of GPU memory went", (long long)(before - after));
    engine_destroy(e);
}
END_TEST

START_TEST(exact_buckets_answer_as_powers_of_two_do)
{
    struct answer answers[2];
    for (int i = 0; i < 2; i++) {
        struct engine *e = open_embedded(4, 5, GRAPHS_ON, i ? BUCKETS_EXACT : BUCKETS_POW2);
        run_many(e, 9);
        struct request r = text_request(e, "The little frog", 80);
        run_requests(e, &r, 1, &answers[i]);
        free_requests(&r, 1);
        engine_destroy(e);
    }
    must_equal(&answers[1], &answers[0], "exact buckets");
    free_answers(answers, 2);
}
END_TEST

Suite *check_reports_cuda(void);
Suite *check_reports_cuda(void) {
    Suite *suite = suite_create("reports_cuda");
    TCase *tc = tcase_create("reports_cuda");
    tcase_add_test(tc, the_sum_of_words_reads_every_word_once);
    tcase_add_test(tc, parts_of_timed_rounds_are_positive_and_within_the_run);
    tcase_add_test(tc, exact_buckets_load_no_kernel_after_start_up);
    tcase_add_test(tc, exact_buckets_answer_as_powers_of_two_do);
    suite_add_tcase(suite, tc);
    return suite;
}
