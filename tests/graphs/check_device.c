/* The device layer on the host: order, capture, counts, events, and what is refused. */
#include "graphs/device.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

struct world {
    struct device *device;
    struct stream *stream;
    int32_t *cells; /* [64] arena memory */
};

enum { ARENA_BYTES = 4096 };

static struct world world_open(void) {
    struct world w = {0};
    void *arena;
    ck_ok(device_open(&w.device, "host", NULL));
    ck_ok(stream_create(w.device, &w.stream));
    ck_ok(device_alloc_arena(w.device, ARENA_BYTES, &arena));
    w.cells = arena;
    return w;
}

static void world_close(struct world *w) {
    device_free_arena(w->device, w->cells, ARENA_BYTES);
    stream_destroy(w->stream);
    device_close(w->device);
}

/* cell = cell * 10 + scalar + *addend */
struct step_args {
    int32_t *cell;
    const int32_t *addend; /* may be NULL */
    int32_t scalar;
};

static int run_step(const void *args) {
    const struct step_args *a = args;
    *a->cell = *a->cell * 10 + a->scalar + (a->addend ? *a->addend : 0);
    return 0;
}

static int submit_step(struct stream *s, int32_t *cell, const int32_t *addend, int32_t scalar) {
    struct step_args args = {cell, addend, scalar};
    int rc = stream_run_host(s, run_step, &args, sizeof args);
    memset(&args, 0xff, sizeof args); /* nothing but the copy may be used later */
    return rc;
}

static int run_failure(const void *args) {
    (void)args;
    return err_set(ERR_NUMERIC, "the op failed");
}

/* --- device ------------------------------------------------------------------------------------- */

START_TEST(devices_open_by_name)
{
    struct device *d;
    ck_ok(device_open(&d, "host", NULL));
    ck_assert_int_eq(device_kind(d), DEVICE_HOST);
    ck_assert(!device_is_async(d));
    ck_assert_int_ge(device_threads(d), 1);
    ck_assert_int_eq(strncmp(device_name(d), "host, ", 6), 0);
    device_close(d);
    ck_ok(device_open(&d, "auto", NULL));
    device_close(d);
    ck_assert_int_eq(device_open(&d, "tpu", NULL), ERR_USAGE);
    ck_assert_str_eq(err_message(), "device 'tpu': expected auto, host or cuda");
    ck_assert_ptr_null(d);
    device_close(NULL);
}
END_TEST

START_TEST(threads_are_those_asked_for)
{
    struct device *d;
    ck_ok(device_open(&d, "host", &(struct device_options){.threads = 3}));
    ck_assert_int_eq(device_threads(d), 3);
    ck_assert_int_eq(strncmp(device_name(d), "host, 3 threads", 15), 0);
    device_close(d);
    ck_ok(device_open(&d, "host", &(struct device_options){.threads = 1}));
    ck_assert_ptr_null(strstr(device_name(d), "threads"));
    device_close(d);
    ck_assert_int_eq(device_open(&d, "host", &(struct device_options){.threads = -1}), ERR_USAGE);
    ck_assert_ptr_null(d);
}
END_TEST

START_TEST(memory_is_some_of_all)
{
    struct world w = world_open();
    uint64_t free_bytes, total_bytes;
    ck_ok(device_memory(w.device, &free_bytes, &total_bytes));
    ck_assert_uint_gt(free_bytes, 0);
    ck_assert_uint_le(free_bytes, total_bytes);
    world_close(&w);
}
END_TEST

START_TEST(arenas_are_aligned_zeroed_and_lazy)
{
    struct world w = world_open();
    uint64_t free_bytes, total_bytes;
    ck_ok(device_memory(w.device, &free_bytes, &total_bytes));
    size_t bytes = (size_t)(total_bytes / 2);
    void *arena;
    ck_ok(device_alloc_arena(w.device, bytes, &arena)); /* untouched pages cost nothing */
    ck_assert_uint_eq((uintptr_t)arena % 256, 0);
    unsigned char *ends[] = {arena, (unsigned char *)arena + bytes - 1};
    ck_assert_int_eq(*ends[0], 0);
    ck_assert_int_eq(*ends[1], 0);
    *ends[0] = *ends[1] = 1;
    device_free_arena(w.device, arena, bytes);
    world_close(&w);
}
END_TEST

START_TEST(too_large_an_arena_says_how_much_was_asked_for)
{
    struct world w = world_open();
    void *arena = &w;
    ck_assert_int_eq(device_alloc_arena(w.device, (size_t)1 << 60, &arena), ERR_MEMORY);
    ck_assert_ptr_nonnull(strstr(err_message(), "1152921504606846976 bytes"));
    ck_assert_ptr_null(arena);
    world_close(&w);
}
END_TEST

START_TEST(allocations_are_counted)
{
    struct world w = world_open();
    uint64_t before = device_allocations(w.device);
    void *arena, *pinned, *none;
    ck_ok(device_alloc_arena(w.device, 100, &arena));
    ck_ok(device_alloc_pinned(w.device, 100, &pinned));
    memset(pinned, 1, 100);
    ck_assert_uint_eq(device_allocations(w.device), before + 2);
    ck_ok(device_alloc_pinned(w.device, 0, &none));
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(device_allocations(w.device), before + 2);
    device_free_arena(w.device, arena, 100);
    device_free_pinned(w.device, pinned);
    device_free_pinned(w.device, NULL);
    device_free_arena(w.device, NULL, 0);
    world_close(&w);
}
END_TEST

/* --- streams ------------------------------------------------------------------------------------ */

START_TEST(submissions_run_in_order)
{
    struct world w = world_open();
    ck_ok(stream_fill(w.stream, w.cells, 0, 64));
    for (int i = 1; i <= 5; i++) ck_ok(submit_step(w.stream, &w.cells[0], NULL, i));
    ck_ok(stream_copy(w.stream, &w.cells[1], &w.cells[0], sizeof *w.cells));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 6));
    ck_ok(stream_sync(w.stream));
    ck_assert_int_eq(w.cells[0], 123456);
    ck_assert_int_eq(w.cells[1], 12345);
    world_close(&w);
}
END_TEST

/* Lengths around the block of the host's loop. */
START_TEST(the_sum_of_words_adds_every_word_once)
{
    static const size_t counts[] = {0, 2, 6, 65534, 65536, 65538, 300000};
    enum { MOST = 300000 };
    struct world w = world_open();
    uint64_t *words = malloc(MOST * sizeof *words), *sum = (uint64_t *)w.cells, expected = 0;
    for (size_t i = 0; i < MOST; i++) words[i] = (i + 1) * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ck_ok(stream_sum_words(w.stream, words, counts[i] * sizeof *words, sum));
        for (size_t j = 0; j < counts[i]; j++) expected += words[j];
        ck_assert_msg(*sum == expected, "%zu words", counts[i]);
    }
    ck_assert_int_eq(stream_sum_words(w.stream, words, 8, sum), ERR_INTERNAL);
    free(words);
    world_close(&w);
}
END_TEST

START_TEST(a_failing_op_fails_at_once_when_it_runs)
{
    struct world w = world_open();
    ck_assert_int_eq(stream_run_host(w.stream, run_failure, NULL, 0), ERR_NUMERIC);
    ck_assert_str_eq(err_message(), "the op failed");
    world_close(&w);
}
END_TEST

START_TEST(a_captured_failure_fails_at_replay_and_stops_it)
{
    struct world w = world_open();
    struct recording *r;
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 1));
    ck_ok(stream_run_host(w.stream, run_failure, NULL, 0));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 2));
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_launch(r, w.stream), ERR_NUMERIC);
    ck_assert_int_eq(w.cells[0], 1);
    recording_destroy(r);
    world_close(&w);
}
END_TEST

struct large_args {
    int32_t *out;
    unsigned char rest[STREAM_ARGS_MAX - sizeof(int32_t *)];
};

static int run_large(const void *args) {
    const struct large_args *a = args;
    int32_t sum = 0;
    for (size_t i = 0; i < sizeof a->rest; i++) sum += a->rest[i];
    *a->out = sum;
    return (uintptr_t)args % 16 != 0;
}

START_TEST(arguments_are_copied_whole_and_aligned)
{
    struct world w = world_open();
    struct recording *r;
    struct large_args args = {.out = &w.cells[3]};
    memset(args.rest, 2, sizeof args.rest);
    ck_ok(stream_begin_capture(w.stream));
    char odd = 1;
    ck_ok(stream_fill(w.stream, w.cells, 0, 1)); /* arguments of another size before */
    ck_ok(stream_run_host(w.stream, run_large, &args, sizeof args));
    memset(&args, 0, sizeof args);
    ck_assert_int_eq(stream_run_host(w.stream, run_large, &odd, STREAM_ARGS_MAX + 1), ERR_INTERNAL);
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_nodes(r), 2);
    ck_ok(recording_launch(r, w.stream));
    ck_assert_int_eq(w.cells[3], 2 * (int32_t)sizeof args.rest);
    recording_destroy(r);
    world_close(&w);
}
END_TEST

START_TEST(counts_are_taken_at_submission)
{
    struct world w = world_open();
    struct recording *r;
    struct event *e;
    ck_ok(event_create(w.device, &e));
    ck_ok(stream_begin_capture(w.stream));
    for (int i = 0; i < 4; i++) ck_ok(submit_step(w.stream, &w.cells[i], NULL, 1));
    ck_ok(stream_copy(w.stream, &w.cells[4], &w.cells[0], 4));
    ck_ok(stream_end_capture(w.stream, &r));
    for (int i = 0; i < 3; i++) ck_ok(recording_launch(r, w.stream));
    for (int i = 0; i < 5; i++) ck_ok(submit_step(w.stream, &w.cells[2], NULL, 1));
    ck_ok(stream_fill(w.stream, &w.cells[2], 0, 4));
    ck_ok(stream_copy(w.stream, &w.cells[2], &w.cells[0], 4));
    ck_ok(stream_copy(w.stream, NULL, NULL, 0)); /* nothing to do, nothing to count */
    ck_ok(event_record(e, w.stream));
    ck_ok(event_wait(e));
    ck_ok(stream_sync(w.stream));
    struct stream_counts c = stream_counts(w.stream);
    ck_assert_uint_eq(c.graph_launches, 3);
    ck_assert_uint_eq(c.kernel_launches, 5);
    ck_assert_uint_eq(c.copies, 2);
    ck_assert_uint_eq(c.synchronises, 2);
    ck_assert_uint_eq(c.captures, 1);
    struct stream *later;
    ck_ok(stream_create(w.device, &later));
    ck_assert_uint_eq(stream_counts(later).synchronises, 0);
    stream_destroy(later);
    recording_destroy(r);
    event_destroy(e);
    world_close(&w);
}
END_TEST

/* --- capture ------------------------------------------------------------------------------------ */

START_TEST(nothing_runs_while_capturing)
{
    struct world w = world_open();
    struct recording *r;
    w.cells[0] = 7;
    ck_ok(stream_begin_capture(w.stream));
    ck_assert(stream_is_capturing(w.stream));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 1));
    ck_ok(stream_fill(w.stream, &w.cells[1], 1, 4));
    ck_ok(stream_copy(w.stream, &w.cells[2], &w.cells[0], 4));
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert(!stream_is_capturing(w.stream));
    ck_assert_int_eq(w.cells[0], 7);
    ck_assert_int_eq(w.cells[1], 0);
    ck_assert_int_eq(w.cells[2], 0);
    ck_assert_uint_eq(stream_counts(w.stream).kernel_launches + stream_counts(w.stream).copies, 0);
    ck_assert_int_eq(recording_nodes(r), 3);
    ck_assert_uint_gt(recording_bytes(r), 3 * sizeof(void *));
    ck_ok(recording_launch(r, w.stream));
    ck_assert_int_eq(w.cells[0], 71);
    ck_assert_int_eq(w.cells[1], 0x01010101);
    ck_assert_int_eq(w.cells[2], 71);
    recording_destroy(r);
    world_close(&w);
}
END_TEST

/* The control of host values frozen at capture: what is passed by value stays, what lies in device memory does
 * not. */
START_TEST(a_capture_freezes_scalars_and_keeps_addresses)
{
    struct world w = world_open();
    struct recording *r;
    int32_t position = 1; /* on the host */
    w.cells[1] = 1;       /* on the device */
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, position));
    ck_ok(submit_step(w.stream, &w.cells[2], &w.cells[1], 0));
    ck_ok(stream_end_capture(w.stream, &r));
    for (; position <= 3; position++, w.cells[1]++) ck_ok(recording_launch(r, w.stream));
    ck_assert_int_eq(w.cells[0], 111);
    ck_assert_int_eq(w.cells[2], 123);
    recording_destroy(r);
    world_close(&w);
}
END_TEST

START_TEST(a_recording_grows_to_many_nodes)
{
    struct world w = world_open();
    struct recording *r;
    ck_ok(stream_begin_capture(w.stream));
    for (int i = 0; i < 5000; i++) ck_ok(stream_fill(w.stream, (char *)w.cells + i % 256, (unsigned char)(i / 256), 1));
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_nodes(r), 5000);
    ck_ok(recording_launch(r, w.stream));
    for (int i = 0; i < 256; i++)
        ck_assert_int_eq(((const unsigned char *)w.cells)[i], i < 5000 % 256 ? 5000 / 256 : 5000 / 256 - 1);
    recording_destroy(r);
    world_close(&w);
}
END_TEST

START_TEST(an_empty_recording_replays_nothing)
{
    struct world w = world_open();
    struct recording *r;
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_nodes(r), 0);
    ck_ok(recording_launch(r, w.stream));
    recording_destroy(r);
    recording_destroy(NULL);
    world_close(&w);
}
END_TEST

START_TEST(an_aborted_capture_leaves_the_stream_running)
{
    struct world w = world_open();
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 5));
    stream_abort_capture(w.stream);
    ck_assert(!stream_is_capturing(w.stream));
    ck_assert_int_eq(w.cells[0], 0);
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 6));
    ck_assert_int_eq(w.cells[0], 6);
    ck_ok(stream_sync(w.stream));
    ck_assert_uint_eq(stream_counts(w.stream).captures, 0);
    stream_abort_capture(w.stream); /* nothing to drop */
    world_close(&w);
}
END_TEST

START_TEST(another_stream_still_runs_beside_a_capture)
{
    struct world w = world_open();
    struct stream *other;
    struct recording *r;
    ck_ok(stream_create(w.device, &other));
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(submit_step(other, &w.cells[0], NULL, 5));
    ck_assert_int_eq(w.cells[0], 5);
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_nodes(r), 0);
    recording_destroy(r);
    stream_destroy(other);
    world_close(&w);
}
END_TEST

static void ck_refused(int rc, const char *word) {
    ck_assert_int_eq(rc, ERR_INTERNAL);
    ck_assert_msg(strstr(err_message(), word) != NULL, "'%s' lacks '%s'", err_message(), word);
}

START_TEST(what_a_capture_must_not_hold_is_refused)
{
    struct world w = world_open();
    struct recording *before, *r, *none;
    struct event *e, *no_event;
    struct stream *other, *made;
    void *memory;
    float ms;
    ck_ok(event_create(w.device, &e));
    ck_ok(event_record(e, w.stream));
    ck_ok(stream_create(w.device, &other));
    ck_ok(stream_begin_capture(w.stream));
    ck_ok(stream_end_capture(w.stream, &before));
    uint64_t allocations = device_allocations(w.device);
    ck_ok(stream_begin_capture(w.stream));
    ck_refused(stream_sync(w.stream), "stream_sync");
    ck_refused(stream_sync(other), "stream_sync");
    ck_refused(event_wait(e), "event_wait");
    ck_refused(event_record(e, w.stream), "event_record");
    ck_refused(stream_wait_event(w.stream, e), "stream_wait_event");
    ck_refused(event_elapsed_ms(e, e, &ms), "event_elapsed_ms");
    ck_refused(device_alloc_arena(w.device, 64, &memory), "arena");
    ck_refused(device_alloc_pinned(w.device, 64, &memory), "pinned");
    ck_refused(stream_create(w.device, &made), "stream");
    ck_refused(event_create(w.device, &no_event), "event");
    ck_refused(stream_set_workspace(w.stream, NULL, 0), "workspace");
    ck_refused(recording_launch(before, w.stream), "recording");
    ck_refused(recording_launch(before, other), "recording");
    ck_refused(stream_begin_capture(w.stream), "capture");
    ck_refused(stream_begin_capture(other), "capture");
    ck_ok(stream_end_capture(w.stream, &r));
    ck_assert_int_eq(recording_nodes(r), 0);
    ck_assert_uint_eq(device_allocations(w.device), allocations);
    ck_assert_uint_eq(stream_counts(w.stream).synchronises, 0);
    ck_refused(stream_end_capture(w.stream, &none), "capture");
    ck_ok(stream_sync(w.stream));
    recording_destroy(before);
    recording_destroy(r);
    event_destroy(e);
    stream_destroy(other);
    world_close(&w);
}
END_TEST

START_TEST(a_stream_may_be_destroyed_in_a_capture)
{
    struct world w = world_open();
    struct stream *other;
    ck_ok(stream_create(w.device, &other));
    ck_ok(stream_begin_capture(other));
    ck_ok(submit_step(other, &w.cells[0], NULL, 1));
    stream_destroy(other);
    stream_destroy(NULL);
    ck_ok(stream_sync(w.stream)); /* the device captures no more */
    world_close(&w);
}
END_TEST

START_TEST(devices_do_not_mix)
{
    struct world a = world_open(), b = world_open();
    struct recording *r;
    struct event *e;
    ck_ok(event_create(b.device, &e));
    ck_ok(stream_begin_capture(a.stream));
    ck_ok(stream_sync(b.stream)); /* a capture concerns its own device */
    ck_ok(stream_end_capture(a.stream, &r));
    ck_refused(recording_launch(r, b.stream), "another device");
    ck_refused(event_record(e, a.stream), "another device");
    ck_refused(stream_wait_event(a.stream, e), "another device");
    recording_destroy(r);
    event_destroy(e);
    world_close(&a);
    world_close(&b);
}
END_TEST

/* --- events ------------------------------------------------------------------------------------- */

START_TEST(events_order_and_time_the_work)
{
    struct world w = world_open();
    struct event *start, *end;
    float ms = -1;
    ck_ok(event_create(w.device, &start));
    ck_ok(event_create(w.device, &end));
    ck_assert(event_is_done(start)); /* never recorded */
    ck_ok(event_wait(start));
    ck_assert_int_eq(event_elapsed_ms(start, end, &ms), ERR_INTERNAL);
    ck_ok(event_record(start, w.stream));
    ck_ok(submit_step(w.stream, &w.cells[0], NULL, 1));
    ck_ok(event_record(end, w.stream));
    ck_ok(stream_wait_event(w.stream, end));
    ck_ok(event_wait(end));
    ck_assert(event_is_done(end));
    ck_ok(event_elapsed_ms(start, end, &ms));
    ck_assert(ms >= 0);
    event_destroy(start);
    event_destroy(end);
    event_destroy(NULL);
    world_close(&w);
}
END_TEST

Suite *check_device(void) {
    Suite *suite = suite_create("device");
    TCase *t = tcase_create("device");
    tcase_add_test(t, devices_open_by_name);
    tcase_add_test(t, threads_are_those_asked_for);
    tcase_add_test(t, memory_is_some_of_all);
    tcase_add_test(t, arenas_are_aligned_zeroed_and_lazy);
    tcase_add_test(t, too_large_an_arena_says_how_much_was_asked_for);
    tcase_add_test(t, allocations_are_counted);
    suite_add_tcase(suite, t);
    t = tcase_create("streams");
    tcase_add_test(t, submissions_run_in_order);
    tcase_add_test(t, the_sum_of_words_adds_every_word_once);
    tcase_add_test(t, a_failing_op_fails_at_once_when_it_runs);
    tcase_add_test(t, a_captured_failure_fails_at_replay_and_stops_it);
    tcase_add_test(t, arguments_are_copied_whole_and_aligned);
    tcase_add_test(t, counts_are_taken_at_submission);
    tcase_add_test(t, events_order_and_time_the_work);
    suite_add_tcase(suite, t);
    t = tcase_create("capture");
    tcase_add_test(t, nothing_runs_while_capturing);
    tcase_add_test(t, a_capture_freezes_scalars_and_keeps_addresses);
    tcase_add_test(t, a_recording_grows_to_many_nodes);
    tcase_add_test(t, an_empty_recording_replays_nothing);
    tcase_add_test(t, an_aborted_capture_leaves_the_stream_running);
    tcase_add_test(t, another_stream_still_runs_beside_a_capture);
    tcase_add_test(t, what_a_capture_must_not_hold_is_refused);
    tcase_add_test(t, a_stream_may_be_destroyed_in_a_capture);
    tcase_add_test(t, devices_do_not_mix);
    suite_add_tcase(suite, t);
    return suite;
}
