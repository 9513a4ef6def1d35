/* Prompts through captured graphs: the same bits as without, chunk by chunk and turn by turn. */
#include <string.h>

#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

/* Both engines ingest turns of these lengths, around the sizes that are captured. */
static const int turns[] = {1, 9, 63, 64, 65, 20, 200, 256, 1, 300, 2, 127};

static void ingest_turn(struct engine *e, struct sequence *s, int turn) {
    struct request r = filler_request(turn, turns[turn], 1);
    for (size_t i = 0; i < r.prompt.len; i++) r.prompt.data[i] %= engine_info(e).vocab;
    struct answer a = run_turn(e, s, &r);
    ids_free(&a.ids);
    free_requests(&r, 1);
}

/* Loop index: of the pairs, then the embedded one with n-gram lookup. */
START_TEST(chunks_that_replay_graphs_give_the_bits_of_those_that_do_not)
{
    struct pair pairs[PAIRS_MAX], pair;
    int count = test_pairs(pairs);
    if (_i > count) return;
    pair = _i < count ? pairs[_i] : ngram_pair(&pairs[0]);
    struct engine_options options = pair_options(&pair, 3, 2);
    options.prefill_graphs = PREFILL_GRAPHS_OFF;
    struct engine *eager = must_open(&options);
    options.prefill_graphs = PREFILL_GRAPHS_ON;
    struct engine *replaying = must_open(&options);
    struct sequence *a, *b;
    const int context = engine_info(eager).context;
    ck_ok(engine_open(eager, context, &a));
    ck_ok(engine_open(replaying, context, &b));
    for (int turn = 0, n = 0; turn < (int)(sizeof turns / sizeof *turns) && n + turns[turn] + 8 < context; turn++) {
        ingest_turn(eager, a, turn);
        ingest_turn(replaying, b, turn);
        engine_tokens(a, &n);
        must_equal_kv((struct kv_owner){replaying, b}, (struct kv_owner){eager, a}, PROBE_TARGET, n - 1, pair.name);
        if (engine_graphs(eager, 0))
            must_equal_kv((struct kv_owner){replaying, b}, (struct kv_owner){eager, a}, PROBE_DRAFT, n - 2, pair.name);
    }
    engine_destroy(eager);
    engine_destroy(replaying);
}
END_TEST

START_TEST(a_chunk_is_padded_to_the_next_of_a_few_sizes)
{
    static const int sizes[][2] = {{1, 8},   {8, 8},   {9, 16},   {16, 16},   {17, 32},   {32, 32},
                                   {33, 64}, {64, 64}, {65, 128}, {128, 128}, {449, 512}, {512, 512}};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        ck_assert_int_eq(prefill_padded(sizes[i][0]), sizes[i][1]);
}
END_TEST

/* Attention is left out of the recordings, and in the last layer of a chunk there is none: recorded and eager segments alternate. */
START_TEST(a_chunk_of_any_size_is_one_replay_that_attention_cuts_into_segments)
{
    struct pair pair = quick_pair();
    struct engine_options options = pair_options(&pair, 0, 1);
    options.prefill_graphs = PREFILL_GRAPHS_ON;
    struct engine *e = must_open(&options);
    const struct graph_set *set = engine_graphs(e, 1);
    int sizes = 0, largest = 0, needed = 0;
    for (int i = 0; i < graph_set_count(set); i++) {
        struct graph_info info = graph_set_info(set, i);
        if (strcmp(graph_set_kind_name(set, info.key.kind), "prefill") != 0) continue;
        ck_assert_int_eq(info.segments, 2 * probe_config(e, PROBE_TARGET)->layers - 1);
        ck_assert_int_eq(info.key.q_len, prefill_padded(info.key.q_len));
        if (info.key.q_len > largest) largest = info.key.q_len;
        sizes++;
    }
    for (int rows = 0; rows < largest; needed++) rows = prefill_padded(rows + 1);
    ck_assert_int_eq(sizes, needed);
    static const int lengths[] = {2, 9, 10, 34, 70};
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        struct sequence *s;
        ck_ok(engine_open(e, 300, &s));
        uint64_t before = graph_set_counts(set).replays;
        struct request r = filler_request(1, lengths[i], 1);
        ck_ok(engine_generate(e, s, r.prompt.data, lengths[i], &r.generation));
        ck_ok(probe_ingest(e));
        ck_assert_uint_eq(graph_set_counts(set).replays, before + 1);
        ck_assert_uint_eq(graph_set_counts(set).eager_fallbacks, 0);
        free_requests(&r, 1);
        engine_close(e, s);
    }
    engine_destroy(e);
}
END_TEST

DEVICE_SUITE(check_prefill);
Suite *check_prefill(void) {
    Suite *suite = suite_create("prefill");
    TCase *tc = tcase_create("prefill");
    tcase_add_loop_test(tc, chunks_that_replay_graphs_give_the_bits_of_those_that_do_not, 0, PAIRS_MAX + 1);
    tcase_add_test(tc, a_chunk_is_padded_to_the_next_of_a_few_sizes);
    tcase_add_test(tc, a_chunk_of_any_size_is_one_replay_that_attention_cuts_into_segments);
    suite_add_tcase(suite, tc);
    return suite;
}
