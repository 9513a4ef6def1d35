/* Breakable graphs: segments, eager calls between them, forks across breaks; on any device. */
#include "graphs/breakable.h"

#include <pthread.h>
#include <string.h>

#include "tests/support/digit_ops.h"
#include "tests/support/support.h"

struct world {
    struct device *device;
    struct stream *stream, *side, *side2;
    int32_t *cells; /* [CELLS] arena memory */
    int32_t *seen;  /* [CELLS] pinned: what `cells` was at the last look */
};

enum { CELLS = 64, CELL_BYTES = CELLS * sizeof(int32_t) };

static struct world world_open(void) {
    struct world w = {0};
    void *arena, *pinned;
    ck_ok(device_open(&w.device, test_device(), NULL));
    ck_ok(stream_create(w.device, &w.stream));
    ck_ok(stream_create(w.device, &w.side));
    ck_ok(stream_create(w.device, &w.side2));
    ck_ok(device_alloc_arena(w.device, CELL_BYTES, &arena));
    ck_ok(device_alloc_pinned(w.device, CELL_BYTES, &pinned));
    w.cells = arena, w.seen = pinned;
    return w;
}

static void world_close(struct world *w) {
    device_free_arena(w->device, w->cells, CELL_BYTES);
    device_free_pinned(w->device, w->seen);
    stream_destroy(w->stream);
    stream_destroy(w->side);
    stream_destroy(w->side2);
    device_close(w->device);
}

/* All cells, once what was submitted is done. */
static const int32_t *look(struct world *w) {
    ck_ok(stream_sync(w->side));
    ck_ok(stream_sync(w->side2));
    ck_ok(stream_copy(w->stream, w->seen, w->cells, CELL_BYTES));
    ck_ok(stream_sync(w->stream));
    return w->seen;
}

static void set_first(struct world *w, int32_t value) {
    ck_ok(stream_sync(w->stream));
    *w->seen = value;
    ck_ok(stream_copy(w->stream, w->cells, w->seen, sizeof value));
}

static int submit(struct stream *s, int32_t *out, const int32_t *in, int32_t digit) {
    return digit_run(s, &(struct digit_op){out, in, digit});
}

static int eager_step(struct stream *s, const void *args) {
    ck_assert(!stream_is_capturing(s));
    return digit_run(s, args);
}

static int eager_failure(struct stream *s, const void *args) {
    (void)s, (void)args;
    return err_set(ERR_NUMERIC, "the eager call failed");
}

static int break_step(struct breakable *g, int32_t *out, const int32_t *in, int32_t digit) {
    struct digit_op args = {out, in, digit};
    int rc = graph_break(g, eager_step, &args, sizeof args);
    memset(&args, 0xff, sizeof args); /* nothing but the copy may be used later */
    return rc;
}

START_TEST(breaks_read_earlier_segments_and_feed_later_ones)
{
    struct world w = world_open();
    struct breakable *g;
    int32_t *c = w.cells;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, &c[1], &c[0], 1));
    ck_ok(break_step(g, &c[2], &c[1], 2));
    ck_ok(submit(w.stream, &c[3], &c[2], 3));
    ck_ok(submit(w.stream, &c[3], &c[3], 4));
    ck_ok(break_step(g, &c[4], &c[3], 5));
    ck_ok(submit(w.stream, &c[5], &c[4], 6));
    ck_ok(breakable_end(g));
    for (int i = 0; i < 6; i++) ck_assert_int_eq(look(&w)[i], 0); /* nothing has run */
    ck_assert_int_eq(breakable_segments(g), 5);
    ck_assert_int_eq(breakable_nodes(g), 4);
    ck_assert_uint_gt(breakable_bytes(g), 0);
    for (int start = 1; start <= 3; start++) {
        set_first(&w, start);
        ck_ok(breakable_launch(g, w.stream));
        ck_assert_int_eq(look(&w)[5], start * 1000000 + 123456);
    }
    struct stream_counts counts = stream_counts(w.stream);
    ck_assert_uint_eq(counts.graph_launches, 9);
    ck_assert_uint_eq(counts.kernel_launches, 6);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

START_TEST(a_graph_without_breaks_is_one_segment)
{
    struct world w = world_open();
    struct breakable *g;
    ck_ok(breakable_begin(&g, w.stream));
    ck_assert(stream_is_capturing(w.stream));
    ck_ok(submit(w.stream, &w.cells[0], &w.cells[0], 1));
    ck_ok(breakable_end(g));
    ck_assert(!stream_is_capturing(w.stream));
    ck_assert_int_eq(breakable_segments(g), 1);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[0], 1);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

START_TEST(segments_without_work_are_dropped)
{
    struct world w = world_open();
    struct breakable *g;
    int32_t *c = w.cells;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(break_step(g, c, c, 1));
    ck_ok(break_step(g, c, c, 2));
    ck_ok(submit(w.stream, c, c, 3));
    ck_ok(break_step(g, c, c, 4));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(breakable_segments(g), 4);
    ck_assert_int_eq(breakable_nodes(g), 1);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[0], 1234);
    breakable_destroy(g);
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(breakable_segments(g), 0);
    ck_ok(breakable_launch(g, w.stream));
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

START_TEST(forked_work_is_part_of_the_graph)
{
    struct world w = world_open();
    struct breakable *g;
    int32_t *c = w.cells;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, &c[0], &c[0], 1));
    ck_ok(graph_fork(g, w.side));
    ck_assert(stream_is_capturing(w.side));
    ck_ok(submit(w.side, &c[1], &c[0], 2));
    ck_ok(submit(w.stream, &c[2], &c[0], 3));
    ck_ok(graph_join(g, w.side));
    ck_assert(!stream_is_capturing(w.side));
    ck_ok(submit(w.stream, &c[3], &c[1], 4));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(look(&w)[1], 0);
    ck_assert_int_eq(breakable_nodes(g), 4);
    ck_assert_uint_eq(stream_counts(w.side).kernel_launches, 0);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[2], 13);
    ck_assert_int_eq(look(&w)[3], 124);
    ck_ok(stream_sync(w.stream));
    ck_ok(submit(w.side, &c[5], &c[0], 7)); /* runs on its own again */
    ck_assert_int_eq(look(&w)[5], 17);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

START_TEST(forks_go_across_breaks)
{
    struct world w = world_open();
    struct breakable *g;
    int32_t *c = w.cells;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, &c[0], &c[0], 1));
    ck_ok(graph_fork(g, w.side));
    ck_ok(graph_fork(g, w.side2));
    ck_ok(submit(w.side, &c[1], &c[0], 2));
    ck_ok(submit(w.side2, &c[2], &c[0], 3));
    ck_ok(break_step(g, &c[3], &c[1], 4));
    ck_assert(stream_is_capturing(w.side) && stream_is_capturing(w.side2));
    ck_ok(submit(w.side, &c[4], &c[3], 5));
    ck_ok(graph_join(g, w.side)); /* the first fork joins first */
    ck_ok(submit(w.side2, &c[5], &c[3], 6));
    ck_ok(break_step(g, &c[6], &c[5], 7));
    ck_assert(!stream_is_capturing(w.side));
    ck_assert(stream_is_capturing(w.side2));
    ck_ok(submit(w.side2, &c[7], &c[6], 8)); /* joined by the end */
    ck_ok(breakable_end(g));
    ck_assert(!stream_is_capturing(w.side2));
    for (int i = 0; i < 8; i++) ck_assert_int_eq(look(&w)[i], 0);
    ck_assert_int_eq(breakable_segments(g), 5);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[2], 13);
    ck_assert_int_eq(look(&w)[4], 1245);
    ck_assert_int_eq(look(&w)[7], 124678);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

START_TEST(wrong_forks_and_joins_are_refused)
{
    struct world w = world_open(), other = world_open();
    struct breakable *g;
    ck_ok(breakable_begin(&g, w.stream));
    ck_assert_int_eq(graph_join(g, w.side), ERR_INTERNAL);
    ck_assert_int_eq(graph_fork(g, w.stream), ERR_INTERNAL);
    ck_assert_int_eq(graph_fork(g, other.side), ERR_INTERNAL);
    ck_ok(graph_fork(g, w.side));
    ck_assert_int_eq(graph_fork(g, w.side), ERR_INTERNAL);
    ck_assert_int_eq(graph_join(g, w.stream), ERR_INTERNAL);
    ck_assert_int_eq(graph_join(g, w.side2), ERR_INTERNAL);
    struct recording *r;
    ck_assert_int_eq(stream_end_capture(w.side, &r), ERR_INTERNAL);
    ck_assert_int_eq(stream_begin_capture(w.side), ERR_INTERNAL);
    ck_ok(graph_join(g, w.side));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(graph_fork(g, w.side), ERR_INTERNAL);
    ck_assert_int_eq(graph_break(g, eager_step, NULL, 0), ERR_INTERNAL);
    ck_assert_int_eq(breakable_end(g), ERR_INTERNAL);
    breakable_destroy(g);
    world_close(&w);
    world_close(&other);
}
END_TEST

static int submit_anywhere(struct stream *s, int32_t *cell) {
    struct digit_op args = {cell, cell, 5};
    return graph_run_eager(s, eager_step, &args, sizeof args);
}

START_TEST(an_eager_call_runs_now_or_breaks_the_graph)
{
    struct world w = world_open();
    struct breakable *g;
    struct recording *r;
    ck_ok(submit_anywhere(w.stream, w.cells));
    ck_assert_int_eq(look(&w)[0], 5);
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(graph_fork(g, w.side));
    ck_ok(submit_anywhere(w.stream, w.cells));
    ck_ok(submit_anywhere(w.side, w.cells));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(look(&w)[0], 5);
    ck_assert_int_eq(breakable_segments(g), 2);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[0], 555);
    breakable_destroy(g);
    ck_ok(stream_begin_capture(w.stream)); /* after a breakable capture, a plain one has no breaks */
    ck_assert_int_eq(submit_anywhere(w.stream, w.cells), ERR_INTERNAL);
    ck_ok(stream_end_capture(w.stream, &r));
    recording_destroy(r);
    world_close(&w);
}
END_TEST

START_TEST(a_failing_segment_ends_the_replay)
{
    struct world w = world_open();
    struct breakable *g;
    int32_t *c = w.cells;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, &c[0], &c[0], 1));
    ck_ok(graph_break(g, eager_failure, NULL, 0));
    ck_ok(submit(w.stream, &c[0], &c[0], 2));
    ck_ok(breakable_end(g));
    ck_assert_int_eq(breakable_launch(g, w.stream), ERR_NUMERIC);
    ck_assert_str_eq(err_message(), "the eager call failed");
    ck_assert_int_eq(look(&w)[0], 1);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

/* Loop: abort, or destroy of the half-built graph. */
START_TEST(an_aborted_graph_frees_all_streams)
{
    struct world w = world_open();
    struct breakable *g;
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, w.cells, w.cells, 1));
    ck_ok(break_step(g, w.cells, w.cells, 2));
    ck_ok(graph_fork(g, w.side));
    ck_ok(submit(w.side, w.cells, w.cells, 3));
    ck_assert_int_eq(breakable_launch(g, w.stream), ERR_INTERNAL);
    if (_i)
        breakable_abort(g);
    else
        breakable_destroy(g);
    ck_assert(!stream_is_capturing(w.stream));
    ck_assert(!stream_is_capturing(w.side));
    ck_ok(stream_sync(w.stream));
    ck_ok(submit(w.side, w.cells, w.cells, 4));
    ck_assert_int_eq(look(&w)[0], 4);
    breakable_abort(NULL);
    breakable_destroy(NULL);
    world_close(&w);
}
END_TEST

START_TEST(captures_do_not_nest)
{
    struct world w = world_open();
    struct breakable *g, *inner, *done;
    ck_ok(breakable_begin(&done, w.stream));
    ck_ok(break_step(done, w.cells, w.cells, 1));
    ck_ok(breakable_end(done));
    ck_ok(breakable_begin(&g, w.stream));
    ck_assert_int_eq(breakable_begin(&inner, w.stream), ERR_INTERNAL);
    ck_assert_ptr_null(inner);
    ck_assert_int_eq(breakable_begin(&inner, w.side), ERR_INTERNAL);
    ck_assert_int_eq(breakable_launch(done, w.stream), ERR_INTERNAL);
    ck_assert_int_eq(breakable_launch(done, w.side), ERR_INTERNAL);
    ck_ok(breakable_end(g));
    ck_assert_int_eq(breakable_segments(g), 0);
    breakable_destroy(g);
    breakable_destroy(done);
    world_close(&w);
}
END_TEST

START_TEST(there_may_be_many_breaks)
{
    struct world w = world_open();
    struct breakable *g;
    ck_ok(breakable_begin(&g, w.stream));
    for (int i = 0; i < 100; i++) {
        ck_ok(submit(w.stream, &w.cells[1], &w.cells[0], i % 10));
        ck_ok(break_step(g, &w.cells[2], &w.cells[1], 0));
        ck_ok(stream_copy(w.stream, &w.cells[3], &w.cells[2], sizeof *w.cells));
    }
    ck_ok(breakable_end(g));
    ck_assert_int_eq(breakable_segments(g), 201);
    ck_assert_int_eq(breakable_nodes(g), 200);
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[3], 90);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

/* A device of its own, and its memory. */
static void *open_another(void *rc) {
    struct world w = {0};
    void *arena = NULL;
    *(int *)rc = device_open(&w.device, test_device(), NULL);
    if (*(int *)rc == 0) *(int *)rc = device_alloc_arena(w.device, CELL_BYTES, &arena);
    if (arena) device_free_arena(w.device, arena, CELL_BYTES);
    device_close(w.device);
    return NULL;
}

START_TEST(another_thread_may_open_a_device_while_one_captures)
{
    struct world w = world_open();
    struct breakable *g;
    pthread_t other;
    int rc = -1;
    set_first(&w, 1);
    ck_ok(breakable_begin(&g, w.stream));
    ck_ok(submit(w.stream, &w.cells[1], &w.cells[0], 2));
    ck_assert_int_eq(pthread_create(&other, NULL, open_another, &rc), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    ck_assert_int_eq(rc, 0);
    ck_ok(submit(w.stream, &w.cells[2], &w.cells[1], 3));
    ck_ok(breakable_end(g));
    ck_ok(breakable_launch(g, w.stream));
    ck_assert_int_eq(look(&w)[2], 123);
    breakable_destroy(g);
    world_close(&w);
}
END_TEST

DEVICE_SUITE(check_breakable);
Suite *check_breakable(void) {
    Suite *suite = suite_create("breakable");
    TCase *t = tcase_create("breakable");
    tcase_add_test(t, breaks_read_earlier_segments_and_feed_later_ones);
    tcase_add_test(t, a_graph_without_breaks_is_one_segment);
    tcase_add_test(t, segments_without_work_are_dropped);
    tcase_add_test(t, forked_work_is_part_of_the_graph);
    tcase_add_test(t, forks_go_across_breaks);
    tcase_add_test(t, wrong_forks_and_joins_are_refused);
    tcase_add_test(t, an_eager_call_runs_now_or_breaks_the_graph);
    tcase_add_test(t, a_failing_segment_ends_the_replay);
    tcase_add_loop_test(t, an_aborted_graph_frees_all_streams, 0, 2);
    tcase_add_test(t, captures_do_not_nest);
    tcase_add_test(t, there_may_be_many_breaks);
    tcase_add_test(t, another_thread_may_open_a_device_while_one_captures);
    suite_add_tcase(suite, t);
    return suite;
}
