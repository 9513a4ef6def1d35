/* Long runs: nothing is captured, allocated, lost or waited for once the engine is up, and the same run gives the same bits. */
#include <stdio.h>
#include <unistd.h>

#include "engine/internal.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

enum { TEXTS = 10, K = 4, BATCH = 5 };

static struct engine_options options_of(int batch) {
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], K, batch);
    options.pipeline = 2;
    return options;
}

/* Greedy and sampled, with every filter now and then, each with a seed of its own. */
static void make_requests(const struct engine *e, struct request *requests, int tokens) {
    for (int i = 0; i < TEXTS; i++) {
        requests[i] = text_request(e, story_starts[i], tokens + (test_is_small() ? 1 : 5) * i);
        requests[i].generation.ignore_end = true;
        requests[i].generation.seed = 40 + (uint64_t)i;
        requests[i].generation.sampling =
            (struct sampling){i % 5 ? 0.9f : 0, i % 3 ? 0.95f : 1, i % 4 ? 0 : 0.05f, i % 2 * 50, 1};
    }
}

static uint64_t resident_bytes(void) {
    unsigned long long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%llu %llu", &size, &resident), 2);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What must not grow; pages are all free between runs. */
struct levels {
    struct engine_counts counts;
    uint64_t device_free, resident;
    int graphs, pages;
};

static struct levels read_levels(struct engine *e) {
    uint64_t total;
    struct levels m = {.counts = engine_counts(e),
                       .resident = resident_bytes(),
                       .graphs = graph_set_count(engine_graphs(e, 0)) + graph_set_count(engine_graphs(e, 1)),
                       .pages = probe_free_page_count(e)};
    ck_ok(device_memory(e->device, &m.device_free, &total));
    return m;
}

static void must_be_steady(const struct levels *a, const struct levels *b) {
    const struct engine_counts *x = &a->counts, *y = &b->counts;
    ck_assert_uint_eq(y->device_allocations, x->device_allocations);
    ck_assert_uint_eq(y->stream.captures, x->stream.captures);
    ck_assert_uint_eq(y->target.captures + y->draft.captures, x->target.captures + x->draft.captures);
    ck_assert_uint_eq(y->target.evictions + y->draft.evictions, 0);
    ck_assert_uint_eq(y->target.eager_fallbacks + y->draft.eager_fallbacks, 0);
    ck_assert_int_eq(b->graphs, a->graphs);
    ck_assert_int_eq(b->pages, a->pages);
    if (test_is_small()) return; /* sanitizers take and give back memory */
    if (!test_device_is_host())
        ck_assert_msg(b->device_free == a->device_free, "%lld bytes of device memory went",
                      (long long)(a->device_free - b->device_free));
    ck_assert_msg(b->resident < a->resident + (4 << 20), "%lld bytes of host memory went",
                  (long long)(b->resident - a->resident));
}

static void run_rounds(struct engine *e, const struct request *requests, uint64_t rounds) {
    struct answer answers[TEXTS];
    for (uint64_t end = engine_counts(e).rounds + rounds; engine_counts(e).rounds < end;) {
        run_requests(e, requests, TEXTS, answers);
        free_answers(answers, TEXTS);
    }
}

START_TEST(ten_thousand_rounds_capture_and_allocate_nothing)
{
    uint64_t rounds = test_is_small() ? 20 : test_device_is_host() ? 500 : 10000;
    struct engine_options options = options_of(BATCH);
    struct engine *e = must_open(&options);
    struct request requests[TEXTS];
    make_requests(e, requests, test_is_small() ? 3 : 100);
    run_rounds(e, requests, rounds / 10); /* buffers of the test and the library reach their size */
    struct levels before = read_levels(e);
    run_rounds(e, requests, rounds);
    struct levels after = read_levels(e);
    must_be_steady(&before, &after);
    const struct engine_counts *x = &before.counts, *y = &after.counts;
    uint64_t ran = y->rounds - x->rounds;
    ck_assert_uint_ge(ran, rounds);
    ck_assert_uint_eq(y->graph_launches - x->graph_launches, ran * (K + 1));
    free_requests(requests, TEXTS);
    engine_destroy(e);
}
END_TEST

/* Loop index: the mode of graphs. */
START_TEST(device_memory_is_the_same_before_and_after_a_run)
{
    struct engine_options options = options_of(BATCH);
    options.graphs = (enum graph_mode)_i;
    struct engine *e = must_open(&options);
    struct request requests[TEXTS];
    make_requests(e, requests, test_is_small() ? 1 : 10);
    struct levels before = read_levels(e);
    run_rounds(e, requests, 1);
    struct levels after = read_levels(e);
    must_be_steady(&before, &after);
    free_requests(requests, TEXTS);
    engine_destroy(e);
}
END_TEST

/* With two rounds in flight: the call that enqueues the first waits for nothing, later ones for one round each. */
START_TEST(a_round_waits_for_nothing_but_the_round_before_it)
{
    struct engine_options options = options_of(2);
    struct engine *e = must_open(&options);
    struct request requests[TEXTS];
    struct answer answers[TEXTS];
    make_requests(e, requests, test_is_small() ? 3 : 30);
    run_requests(e, requests, TEXTS, answers);
    struct sequence *s;
    int running;
    ck_ok(engine_open(e, 100, &s));
    struct request one = ids_request((int32_t[]){5}, 1, 40);
    one.generation.ignore_end = true;
    struct engine_counts before = engine_counts(e);
    ck_assert_int_eq(engine_sequence_stats(s)->rounds, 0);
    struct answer a = run_turn(e, s, &one);
    do ck_ok(engine_step(e, &running)); /* collects what is still in flight */
    while (running);
    while (e->collected < e->enqueued) ck_ok(engine_step(e, &running));
    struct engine_counts after = engine_counts(e);
    ck_assert_uint_eq(after.stream.synchronises - before.stream.synchronises, after.rounds - before.rounds);
    before = after;
    one.generation.on_tokens = NULL; /* never called: nothing is collected */
    ck_ok(engine_generate(e, s, one.prompt.data, 0, &one.generation));
    ck_ok(engine_step(e, &running));
    after = engine_counts(e);
    ck_assert_uint_eq(after.rounds - before.rounds, 1);
    ck_assert_uint_eq(after.stream.graph_launches - before.stream.graph_launches, K + 1);
    ck_assert_uint_eq(after.stream.synchronises, before.stream.synchronises);
    ids_free(&a.ids);
    free_requests(requests, TEXTS), free_requests(&one, 1), free_answers(answers, TEXTS);
    engine_destroy(e);
}
END_TEST

/* At least so many rounds; the last answers, and a checksum over all that lies in both caches afterwards. */
static uint64_t run_again(const struct engine_options *options, uint64_t rounds, struct answer *answers) {
    uint64_t sum;
    struct engine *e = must_open(options);
    struct request requests[TEXTS];
    make_requests(e, requests, test_is_small() ? 10 : test_device_is_host() ? 40 : 300);
    run_rounds(e, requests, rounds);
    run_requests(e, requests, TEXTS, answers);
    ck_ok(probe_free_pages_checksum(e, &sum));
    free_requests(requests, TEXTS);
    engine_destroy(e);
    return sum;
}

/* Races between kernels show as bits that change from run to run. Loop index: the batch is 1, 2, 5, 10. */
START_TEST(a_thousand_rounds_give_the_same_bits_twice_and_without_graphs)
{
    static const int batches[] = {1, 2, 5, 10};
    struct answer expected[TEXTS], got[TEXTS];
    if (test_is_small() && (batches[_i] != BATCH || !test_device_is_host())) return;
    struct engine_options options = options_of(batches[_i]);
    uint64_t rounds = test_is_small() ? 1 : test_device_is_host() ? 50 : 1000;
    uint64_t sum = run_again(&options, rounds, expected);
    for (int run = 0; run < 3; run++) {
        static const char *const names[] = {"again", "without graphs", "graphs in debug mode"};
        options.graphs = (enum graph_mode)run;
        uint64_t sum_again = run_again(&options, rounds, got);
        for (int i = 0; i < TEXTS; i++) must_equal(&got[i], &expected[i], names[run]);
        ck_assert_msg(sum_again == sum, "%s: the caches hold other bits", names[run]);
        free_answers(got, TEXTS);
    }
    free_answers(expected, TEXTS);
}
END_TEST

DEVICE_SUITE(check_steady);
Suite *check_steady(void) {
    Suite *suite = suite_create("steady");
    TCase *tc = tcase_create("steady");
    tcase_add_test(tc, ten_thousand_rounds_capture_and_allocate_nothing);
    tcase_add_loop_test(tc, device_memory_is_the_same_before_and_after_a_run, 0, 3);
    tcase_add_test(tc, a_round_waits_for_nothing_but_the_round_before_it);
    tcase_add_loop_test(tc, a_thousand_rounds_give_the_same_bits_twice_and_without_graphs, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}
