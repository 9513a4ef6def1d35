/* Graph sets: which shapes are captured, that replay finds them, and that every mode computes the same. */
#include <stdio.h>
#include <string.h>

#include "graphs/breakable.h"
#include "graphs/graph_set.h"
#include "tests/support/faulty_host.h"
#include "tests/support/support.h"

enum { KIND_DRAFT_FIRST, KIND_DRAFT_STEP, KIND_VERIFY, KIND_DECODE, KINDS };
static const char *const kind_names[KINDS] = {"draft_first", "draft_step", "verify", "decode"};

/* A model of two ops over one pool: out[row] += tokens[row] * q_len + kind, then count[0] += batch. */
struct world {
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    int32_t *tokens, *out; /* [256] */
    int32_t *count;        /* [1] */
    int builds;            /* calls of build */
    struct graph_key built[512];
    bool break_between; /* an eager call between the ops */
    int fail_at;        /* build number that fails; 0: none */
};

struct rows_args {
    int32_t *out;
    const int32_t *tokens;
    int32_t batch, q_len, kind;
};

static int run_rows(const void *args) {
    const struct rows_args *a = args;
    for (int b = 0; b < a->batch; b++) a->out[b] += a->tokens[b] * a->q_len + a->kind;
    return 0;
}

struct count_args {
    int32_t *count;
    int32_t batch;
};

static int run_count(const void *args) {
    const struct count_args *a = args;
    *a->count += a->batch;
    return 0;
}

static int double_first(struct stream *stream, const void *args) {
    int32_t *out = *(int32_t *const *)args;
    struct rows_args a = {out, out, 1, 1, 0};
    return stream_run_host(stream, run_rows, &a, sizeof a);
}

static int build(void *user, struct stream *stream, struct graph_key key) {
    struct world *w = user;
    if (w->builds < 512) w->built[w->builds] = key;
    w->builds++;
    if (w->builds == w->fail_at) return err_set(ERR_LIMIT, "the build failed");
    struct rows_args rows = {w->out, w->tokens, key.batch, key.q_len, (int32_t)key.kind};
    TRY(stream_run_host(stream, run_rows, &rows, sizeof rows));
    if (w->break_between) TRY(graph_run_eager(stream, double_first, &w->out, sizeof w->out));
    struct count_args count = {w->count, key.batch};
    return stream_run_host(stream, run_count, &count, sizeof count);
}

static struct world world_open(void) {
    struct world w = {0};
    ck_ok(device_open(&w.device, "host", NULL));
    ck_ok(stream_create(w.device, &w.stream));
    ck_ok(pool_create(w.device, 1 << 16, &w.pool));
    void *p;
    ck_ok(pool_slice(w.pool, POOL_SCRATCH, "tokens", 256 * sizeof(int32_t), &p));
    w.tokens = p;
    ck_ok(pool_slice(w.pool, POOL_SCRATCH, "out", 256 * sizeof(int32_t), &p));
    w.out = p;
    ck_ok(pool_slice(w.pool, POOL_SCRATCH, "count", sizeof(int32_t), &p));
    w.count = p;
    pool_seal(w.pool);
    return w;
}

static void world_close(struct world *w, struct graph_set *set) {
    graph_set_destroy(set);
    pool_destroy(w->pool);
    stream_destroy(w->stream);
    device_close(w->device);
}

static struct graph_set_options options_of(struct world *w, enum bucket_policy policy, int max_batch) {
    return (struct graph_set_options){
        .name = "draft",
        .kind_names = kind_names,
        .kind_count = KINDS,
        .policy = policy,
        .max_batch = max_batch,
        .build = build,
        .user = w,
        .pool = w->pool,
        .stream = w->stream,
    };
}

static struct graph_set *set_open(const struct graph_set_options *o) {
    struct graph_set *set;
    ck_ok(graph_set_create(&set, o));
    return set;
}

static struct graph_key key_of(int kind, int batch, int q_len) {
    return (struct graph_key){kind, batch, q_len};
}

/* --- buckets ------------------------------------------------------------------------------------ */

START_TEST(buckets_are_those_documented)
{
    static const struct {
        enum bucket_policy policy;
        int max_batch, batch, bucket;
    } cases[] = {
        {BUCKETS_POW2, 1, 1, 1},      {BUCKETS_POW2, 8, 3, 4},      {BUCKETS_POW2, 8, 8, 8},
        {BUCKETS_POW2, 12, 9, 12},    {BUCKETS_POW2, 12, 8, 8},     {BUCKETS_POW2, 256, 129, 256},
        {BUCKETS_STEP8, 64, 3, 4},    {BUCKETS_STEP8, 64, 5, 8},    {BUCKETS_STEP8, 64, 9, 16},
        {BUCKETS_STEP8, 64, 17, 24},  {BUCKETS_STEP8, 20, 17, 20},  {BUCKETS_STEP8, 3, 3, 3},
        {BUCKETS_STEP16, 64, 5, 8},   {BUCKETS_STEP16, 64, 9, 16},  {BUCKETS_STEP16, 64, 17, 32},
        {BUCKETS_STEP16, 64, 33, 48}, {BUCKETS_STEP16, 40, 33, 40}, {BUCKETS_STEP16, 256, 241, 256},
        {BUCKETS_EXACT, 64, 37, 37},  {BUCKETS_EXACT, 1, 1, 1},
    };
    struct world w = world_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph_set_options o = options_of(&w, cases[i].policy, cases[i].max_batch);
        struct graph_set *set = set_open(&o);
        ck_assert_int_eq(graph_set_bucket(set, cases[i].batch), cases[i].bucket);
        ck_assert_int_eq(graph_set_bucket(set, 0), 0);
        ck_assert_int_eq(graph_set_bucket(set, cases[i].max_batch + 1), 0);
        graph_set_destroy(set);
    }
    world_close(&w, NULL);
}
END_TEST

/* Loop index: the policy. Every batch has a bucket that holds it, is its own bucket, and was captured: the corner at max_batch too. */
START_TEST(every_batch_replays_a_captured_graph)
{
    struct world w = world_open();
    for (int max = 1; max <= 64; max++) {
        struct graph_set_options o = options_of(&w, (enum bucket_policy)_i, max);
        struct graph_set *set = set_open(&o);
        ck_ok(graph_set_add(set, KIND_VERIFY, 5));
        ck_ok(graph_set_capture(set));
        int captured = graph_set_count(set), below = 0;
        for (int batch = 1; batch <= max; batch++) {
            int bucket = graph_set_bucket(set, batch);
            ck_assert_int_ge(bucket, batch);
            ck_assert_int_le(bucket, max);
            ck_assert_int_ge(bucket, below);
            ck_assert_int_eq(graph_set_bucket(set, bucket), bucket);
            below = bucket;
            *w.count = 0;
            ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, bucket, 5), w.stream));
            ck_assert_int_eq(*w.count, bucket);
        }
        ck_assert_int_eq(below, max);
        ck_assert_int_eq(graph_set_count(set), captured);
        ck_assert_uint_eq(graph_set_counts(set).replays, (uint64_t)max);
        ck_assert_uint_eq(graph_set_counts(set).eager_fallbacks, 0);
        graph_set_destroy(set);
    }
    world_close(&w, NULL);
}
END_TEST

START_TEST(exact_captures_each_batch_at_its_first_launch)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_EXACT, 64);
    o.exact_max = 64;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(graph_set_count(set), 0);
    for (int batch = 1; batch <= 64; batch++)
        for (int turn = 0; turn < 3; turn++) {
            *w.count = 0;
            ck_ok(graph_set_launch(set, key_of(KIND_DECODE, batch, 1), w.stream));
            ck_assert_int_eq(*w.count, batch); /* once: the first launch does the work too */
            ck_assert_int_eq(graph_set_count(set), batch);
        }
    struct graph_set_counts c = graph_set_counts(set);
    ck_assert_uint_eq(c.captures, 64);
    ck_assert_uint_eq(c.replays, 128);
    ck_assert_uint_eq(c.eager_fallbacks, 0);
    world_close(&w, set);
}
END_TEST

START_TEST(a_set_that_runs_eagerly_keeps_its_graphs)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 2);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    ck_ok(graph_set_capture(set));
    for (int turn = 0; turn < 2; turn++) {
        const int builds = w.builds;
        graph_set_run_eagerly(set, turn == 0);
        *w.count = 0;
        ck_ok(graph_set_launch(set, key_of(KIND_DECODE, 2, 1), w.stream));
        ck_assert_int_eq(*w.count, 2);
        ck_assert_int_eq(w.builds, builds + (turn == 0));
    }
    ck_assert_uint_eq(graph_set_counts(set).replays, 1);
    ck_assert_uint_eq(graph_set_counts(set).eager_fallbacks, 0);
    world_close(&w, set);
}
END_TEST

START_TEST(exact_evicts_the_least_recently_used)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_EXACT, 8);
    o.exact_max = 3;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    static const int order[] = {1, 2, 3, 1, 3, 4}; /* 4 drives out 2 */
    for (int i = 0; i < 6; i++) ck_ok(graph_set_launch(set, key_of(KIND_DECODE, order[i], 1), w.stream));
    ck_assert_int_eq(graph_set_count(set), 3);
    ck_assert_uint_eq(graph_set_counts(set).evictions, 1);
    static const int left[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) ck_assert_int_eq(graph_set_info(set, i).key.batch, left[i]);
    int builds = w.builds;
    for (int i = 0; i < 3; i++) ck_ok(graph_set_launch(set, key_of(KIND_DECODE, left[i], 1), w.stream));
    ck_assert_int_eq(w.builds, builds);
    ck_ok(graph_set_launch(set, key_of(KIND_DECODE, 2, 1), w.stream)); /* comes back, drives out 1 */
    ck_assert_int_gt(w.builds, builds);
    ck_assert_uint_eq(graph_set_counts(set).evictions, 2);
    ck_assert_int_eq(graph_set_info(set, 0).key.batch, 3);
    world_close(&w, set);
}
END_TEST

/* Where kernels load at their first launch. */
START_TEST(exact_warms_up_the_largest_batch_and_the_keys_that_are_named)
{
    faulty_host.is_async = true;
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_EXACT, 200);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    ck_ok(graph_set_add(set, KIND_VERIFY, 20));
    ck_ok(graph_set_warm_up(set, key_of(KIND_DECODE, 1, 1)));
    ck_ok(graph_set_warm_up(set, key_of(KIND_DECODE, 9, 1)));
    ck_ok(graph_set_warm_up(set, key_of(KIND_VERIFY, 3, 20)));
    ck_assert_int_eq(graph_set_warm_up(set, key_of(KIND_VERIFY, 3, 21)), ERR_INTERNAL); /* not declared */
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(w.builds, 3 + 2);
    ck_assert_int_eq(graph_set_count(set), 0);
    ck_assert_int_eq(graph_set_warm_up(set, key_of(KIND_DECODE, 2, 1)), ERR_INTERNAL); /* too late */
    world_close(&w, set);
}
END_TEST

/* --- capture ------------------------------------------------------------------------------------ */

struct reports {
    int count;
    int64_t done, total;
    char first[96], last[96];
};

static void keep_report(void *user, const char *what, int64_t done, int64_t total) {
    struct reports *r = user;
    if (r->count == 0) snprintf(r->first, sizeof r->first, "%s", what);
    snprintf(r->last, sizeof r->last, "%s", what);
    ck_assert_int_eq(done, r->count);
    r->count++;
    r->done = done;
    r->total = total;
}

START_TEST(capture_goes_from_the_largest_bucket_down)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 6);
    struct reports reports = {0};
    o.progress = (struct progress){keep_report, &reports};
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DRAFT_FIRST, 2));
    ck_ok(graph_set_add(set, KIND_DRAFT_STEP, 1));
    ck_ok(graph_set_add(set, KIND_DRAFT_STEP, 1)); /* once more changes nothing */
    ck_ok(graph_set_capture(set));
    static const int batches[] = {6, 6, 4, 4, 2, 2, 1, 1};
    ck_assert_int_eq(graph_set_count(set), 8);
    ck_assert_int_eq(w.builds, 8); /* host ops need no warm-up */
    for (int i = 0; i < 8; i++) {
        struct graph_info info = graph_set_info(set, i);
        ck_assert_int_eq(info.key.batch, batches[i]);
        ck_assert_int_eq(info.key.q_len, i % 2 ? 1 : 2);
        ck_assert_int_eq(info.key.kind, i % 2 ? KIND_DRAFT_STEP : KIND_DRAFT_FIRST);
        ck_assert_int_eq(info.nodes, 2);
        ck_assert_int_eq(info.segments, 1);
        ck_assert_uint_gt(info.bytes, 0);
        ck_assert(info.capture_ms >= 0);
        ck_assert_uint_eq(info.replays, 0);
    }
    ck_assert_ptr_eq(strstr(reports.first, "capturing draft (batch 6, q_len 2), "), reports.first);
    ck_assert_ptr_eq(strstr(reports.last, "capturing draft (batch 1, q_len 1), "), reports.last);
    ck_assert_ptr_nonnull(strstr(reports.last, " GiB free"));
    ck_assert_int_eq(reports.count, 9);
    ck_assert_int_eq(reports.done, reports.total);
    world_close(&w, set);
}
END_TEST

START_TEST(ten_thousand_launches_neither_capture_nor_allocate)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 8);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DRAFT_STEP, 1));
    ck_ok(graph_set_add(set, KIND_DRAFT_FIRST, 2));
    ck_ok(graph_set_capture(set));
    uint64_t allocations = device_allocations(w.device);
    struct stream_counts before = stream_counts(w.stream);
    int builds = w.builds, graphs = graph_set_count(set);
    for (int i = 0; i < 10000; i++) {
        int bucket = graph_set_bucket(set, 1 + i % 8);
        struct graph_key key = i % 3 ? key_of(KIND_DRAFT_STEP, bucket, 1) : key_of(KIND_DRAFT_FIRST, bucket, 2);
        ck_ok(graph_set_launch(set, key, w.stream));
    }
    struct stream_counts after = stream_counts(w.stream);
    ck_assert_uint_eq(device_allocations(w.device), allocations);
    ck_assert_uint_eq(after.captures, before.captures);
    ck_assert_uint_eq(after.synchronises, before.synchronises);
    ck_assert_uint_eq(after.kernel_launches, before.kernel_launches);
    ck_assert_uint_eq(after.graph_launches, before.graph_launches + 10000);
    ck_assert_int_eq(w.builds, builds);
    ck_assert_int_eq(graph_set_count(set), graphs);
    uint64_t replays = 0;
    for (int i = 0; i < graphs; i++) replays += graph_set_info(set, i).replays;
    ck_assert_uint_eq(replays, 10000);
    world_close(&w, set);
}
END_TEST

START_TEST(a_failed_build_names_its_graph_and_leaves_no_capture)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 4);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 3));
    w.fail_at = 2; /* the capture of batch 2 */
    ck_assert_int_eq(graph_set_capture(set), ERR_LIMIT);
    ck_assert_str_eq(err_message(), "draft graph verify (batch 2, q_len 3): the build failed");
    ck_assert(!stream_is_capturing(w.stream));
    ck_assert_int_eq(graph_set_count(set), 1);
    ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, 4, 3), w.stream));
    ck_ok(stream_sync(w.stream));
    world_close(&w, set);
}
END_TEST

/* --- replay ------------------------------------------------------------------------------------- */

/* The memory after the same launches. */
static void run_mode(enum graph_mode mode, bool with_break, int32_t out[257]) {
    struct world w = world_open();
    w.break_between = with_break;
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 6);
    o.mode = mode;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 4));
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(*w.count, 0); /* capture runs nothing */
    for (int i = 0; i < 20; i++) {
        for (int b = 0; b < 6; b++) w.tokens[b] = 7 * i + b;
        int bucket = graph_set_bucket(set, 1 + i % 6);
        ck_ok(graph_set_launch(set, i % 2 ? key_of(KIND_VERIFY, bucket, 4) : key_of(KIND_DECODE, bucket, 1), w.stream));
    }
    memcpy(out, w.out, 256 * sizeof *out);
    out[256] = *w.count;
    ck_assert_uint_eq(graph_set_counts(set).replays, mode == GRAPHS_OFF ? 0 : 20);
    ck_assert_uint_eq(graph_set_counts(set).eager_fallbacks, 0);
    world_close(&w, set);
}

START_TEST(on_off_and_debug_produce_the_same_memory)
{
    int32_t on[257], off[257], debug[257];
    run_mode(GRAPHS_ON, _i, on);
    run_mode(GRAPHS_OFF, _i, off);
    run_mode(GRAPHS_DEBUG, _i, debug);
    ck_assert_mem_eq(on, off, sizeof on);
    ck_assert_mem_eq(on, debug, sizeof on);
    ck_assert_int_ne(on[0], 0);
}
END_TEST

START_TEST(debug_replays_one_eager_call_a_graph)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 1);
    o.mode = GRAPHS_DEBUG;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 4));
    ck_ok(graph_set_capture(set));
    struct graph_info info = graph_set_info(set, 0);
    ck_assert_int_eq(info.segments, 1);
    ck_assert_int_eq(info.nodes, 0);
    struct stream_counts before = stream_counts(w.stream);
    ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, 1, 4), w.stream));
    struct stream_counts after = stream_counts(w.stream);
    ck_assert_uint_eq(after.kernel_launches, before.kernel_launches + 2);
    ck_assert_uint_eq(after.graph_launches, before.graph_launches);
    world_close(&w, set);
}
END_TEST

START_TEST(off_captures_nothing)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 4);
    o.mode = GRAPHS_OFF;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 4));
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(w.builds, 0);
    ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, 2, 4), w.stream));
    ck_assert_int_eq(w.builds, 1);
    ck_assert_int_eq(graph_set_count(set), 0);
    ck_assert_uint_eq(stream_counts(w.stream).captures, 0);
    world_close(&w, set);
}
END_TEST

START_TEST(a_break_inside_build_makes_three_segments)
{
    struct world w = world_open();
    w.break_between = true;
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 1);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_DECODE, 1));
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(graph_set_info(set, 0).segments, 3);
    ck_assert_int_eq(graph_set_info(set, 0).nodes, 2);
    world_close(&w, set);
}
END_TEST

START_TEST(a_key_without_a_graph_runs_eagerly_and_is_counted)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, _i ? BUCKETS_EXACT : BUCKETS_POW2, 4);
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 4));
    ck_ok(graph_set_capture(set));
    *w.count = 0;
    ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, 2, 3), w.stream));
    ck_ok(graph_set_launch(set, key_of(KIND_DECODE, 2, 4), w.stream));
    ck_assert_int_eq(*w.count, 4);
    ck_assert_uint_eq(graph_set_counts(set).eager_fallbacks, 2);
    ck_assert_uint_eq(graph_set_counts(set).replays, 0);
    world_close(&w, set);
}
END_TEST

/* Roles of equal batch and q_len are different graphs; a batch is given, never derived from tokens. */
START_TEST(kinds_and_shapes_have_separate_graphs)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_STEP8, 32);
    struct graph_set *set = set_open(&o);
    enum { Q_MAX = 33, BUCKETS = 7 };
    for (int kind = 0; kind < KINDS; kind++)
        for (int q_len = 1; q_len <= Q_MAX; q_len++) ck_ok(graph_set_add(set, kind, q_len));
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(graph_set_count(set), KINDS * Q_MAX * BUCKETS);
    for (int b = 0; b < 32; b++) w.tokens[b] = 100;
    for (int i = 0; i < graph_set_count(set); i++) {
        struct graph_key key = graph_set_info(set, i).key;
        memset(w.out, 0, 256 * sizeof *w.out);
        ck_ok(graph_set_launch(set, key, w.stream));
        for (int b = 0; b < 32; b++) ck_assert_int_eq(w.out[b], b < key.batch ? 100 * key.q_len + (int)key.kind : 0);
    }
    for (int i = 0; i < graph_set_count(set); i++) ck_assert_uint_eq(graph_set_info(set, i).replays, 1);
    world_close(&w, set);
}
END_TEST

START_TEST(a_moved_pool_is_noticed_at_replay)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 2);
    o.mode = _i ? GRAPHS_DEBUG : GRAPHS_ON;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 5));
    ck_ok(graph_set_capture(set));
    ck_ok(graph_set_launch(set, key_of(KIND_VERIFY, 2, 5), w.stream));
    ck_ok(pool_reset(w.pool, 1 << 16));
    ck_assert_int_eq(graph_set_launch(set, key_of(KIND_VERIFY, 2, 5), w.stream), ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err_message(), "draft graph verify (batch 2, q_len 5)"));
    ck_assert_uint_eq(graph_set_counts(set).replays, 1);
    world_close(&w, set);
}
END_TEST

/* --- errors ------------------------------------------------------------------------------------- */

START_TEST(a_batch_that_is_no_bucket_is_refused)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 8);
    o.mode = (enum graph_mode)_i;
    struct graph_set *set = set_open(&o);
    ck_ok(graph_set_add(set, KIND_VERIFY, 5));
    static const int batches[] = {-1, 0, 3, 9, 1000};
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(graph_set_launch(set, key_of(KIND_VERIFY, batches[i], 5), w.stream), ERR_INTERNAL);
    ck_assert_int_eq(graph_set_launch(set, key_of(KINDS, 1, 5), w.stream), ERR_INTERNAL);
    ck_assert_int_eq(w.builds, 0);
    world_close(&w, set);
}
END_TEST

START_TEST(bad_options_and_late_additions_are_refused)
{
    struct world w = world_open();
    struct graph_set *set = NULL;
    struct graph_set_options good = options_of(&w, BUCKETS_POW2, 8), o = good;
    static const int batches[] = {-1, 0, 257};
    for (int i = 0; i < 3; i++) {
        o.max_batch = batches[i];
        ck_assert_int_eq(graph_set_create(&set, &o), ERR_USAGE);
        ck_assert_ptr_null(set);
    }
    o = good, o.pool = NULL;
    ck_assert_int_eq(graph_set_create(&set, &o), ERR_INTERNAL);
    o = good, o.exact_max = -1;
    ck_assert_int_eq(graph_set_create(&set, &o), ERR_USAGE);
    graph_set_destroy(NULL);
    set = set_open(&good);
    ck_assert_int_eq(graph_set_add(set, KINDS, 1), ERR_INTERNAL);
    ck_assert_int_eq(graph_set_add(set, KIND_VERIFY, 0), ERR_INTERNAL);
    ck_ok(graph_set_capture(set));
    ck_assert_int_eq(graph_set_add(set, KIND_VERIFY, 1), ERR_INTERNAL);
    ck_assert_int_eq(graph_set_capture(set), ERR_INTERNAL);
    world_close(&w, set);
}
END_TEST

START_TEST(kinds_have_the_callers_names)
{
    struct world w = world_open();
    struct graph_set_options o = options_of(&w, BUCKETS_POW2, 8);
    struct graph_set *set = set_open(&o);
    for (int kind = 0; kind < KINDS; kind++) ck_assert_str_eq(graph_set_kind_name(set, kind), kind_names[kind]);
    world_close(&w, set);
    o.kind_names = NULL;
    ck_assert_int_eq(graph_set_create(&set, &o), ERR_INTERNAL);
}
END_TEST

Suite *check_graph_set(void) {
    Suite *suite = suite_create("graph_set");
    TCase *t = tcase_create("buckets");
    tcase_add_test(t, buckets_are_those_documented);
    tcase_add_loop_test(t, every_batch_replays_a_captured_graph, 0, BUCKETS_EXACT);
    tcase_add_test(t, exact_captures_each_batch_at_its_first_launch);
    tcase_add_test(t, a_set_that_runs_eagerly_keeps_its_graphs);
    tcase_add_test(t, exact_evicts_the_least_recently_used);
    tcase_add_test(t, exact_warms_up_the_largest_batch_and_the_keys_that_are_named);
    suite_add_tcase(suite, t);
    t = tcase_create("capture");
    tcase_add_test(t, capture_goes_from_the_largest_bucket_down);
    tcase_add_test(t, ten_thousand_launches_neither_capture_nor_allocate);
    tcase_add_test(t, a_failed_build_names_its_graph_and_leaves_no_capture);
    suite_add_tcase(suite, t);
    t = tcase_create("replay");
    tcase_add_loop_test(t, on_off_and_debug_produce_the_same_memory, 0, 2);
    tcase_add_test(t, debug_replays_one_eager_call_a_graph);
    tcase_add_test(t, off_captures_nothing);
    tcase_add_test(t, a_break_inside_build_makes_three_segments);
    tcase_add_loop_test(t, a_key_without_a_graph_runs_eagerly_and_is_counted, 0, 2);
    tcase_add_test(t, kinds_and_shapes_have_separate_graphs);
    tcase_add_loop_test(t, a_moved_pool_is_noticed_at_replay, 0, 2);
    suite_add_tcase(suite, t);
    t = tcase_create("errors");
    tcase_add_loop_test(t, a_batch_that_is_no_bucket_is_refused, 0, 3);
    tcase_add_test(t, bad_options_and_late_additions_are_refused);
    tcase_add_test(t, kinds_have_the_callers_names);
    suite_add_tcase(suite, t);
    return suite;
}
