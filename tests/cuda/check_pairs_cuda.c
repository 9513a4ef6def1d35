/* Pairs of libduet on GPUs: several threads open, ask and close theirs at once, and a pair of any GPU goes from thread to thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/duet.h"
#include "tests/cuda/gpu_lab.h"
#include "tests/support/support.h"

#define ck_done(call) ck_assert_msg((call) == DUET_OK, "%s: %s", #call, duet_error())

/* What a thread is to do, and what came of it. */
struct errand {
    pthread_t thread;
    int gpu, times;
    int rc;
    char error[512], text[1024];
};

static int open_pair(struct duet **out, int gpu) {
    struct duet_options o;
    duet_options_init(&o, sizeof o);
    o.device = "cuda";
    o.gpu = gpu;
    o.context = 512;
    o.assets = getenv("DUET_ASSETS");
    return duet_open(out, &o);
}

static int ask(struct duet *d, char *text, size_t size) {
    struct duet_request r;
    struct duet_answer *a;
    duet_request_init(&r, sizeof r);
    r.prompt = "Once upon a time";
    r.max_tokens = 24;
    r.temperature = 0;
    TRY(duet_generate(d, &r, &a));
    snprintf(text, size, "%s", duet_answer_text(a, NULL));
    duet_answer_free(a);
    return 0;
}

static int open_ask_close(struct errand *e) {
    struct duet *d;
    TRY(open_pair(&d, e->gpu));
    int rc = ask(d, e->text, sizeof e->text);
    duet_close(d);
    return rc;
}

static void *run_errand(void *user) {
    struct errand *e = user;
    for (int i = 0; i < e->times && e->rc == 0; i++) e->rc = open_ask_close(e);
    snprintf(e->error, sizeof e->error, "%s", duet_error());
    return NULL;
}

static void start(struct errand *e, int gpu, int times) {
    *e = (struct errand){.gpu = gpu, .times = times};
    ck_assert_int_eq(pthread_create(&e->thread, NULL, run_errand, e), 0);
}

static void ck_answers(struct duet *d, const char *expected) {
    char text[1024];
    ck_done(ask(d, text, sizeof text));
    ck_assert_str_eq(text, expected);
}

START_TEST(threads_open_ask_and_close_pairs_at_once)
{
    enum { THREADS = 3, TIMES = 4 };
    struct errand errands[THREADS];
    for (int i = 0; i < THREADS; i++) start(&errands[i], i % gpu_count(), TIMES);
    for (int i = 0; i < THREADS; i++) ck_assert_int_eq(pthread_join(errands[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) ck_assert_msg(errands[i].rc == 0, "%s", errands[i].error);
    for (int i = 1; i < THREADS; i++) ck_assert_str_eq(errands[i].text, errands[0].text);
}
END_TEST

struct journey {
    struct duet *pair;
    int rc, selected_after;
    char error[512], text[1024];
};

static void *travel(void *user) {
    struct journey *j = user;
    j->rc = ask(j->pair, j->text, sizeof j->text);
    snprintf(j->error, sizeof j->error, "%s", duet_error());
    j->selected_after = gpu_selected();
    return NULL;
}

/* The last GPU, and every thread has the first selected. */
START_TEST(a_pair_of_any_gpu_is_asked_and_closed_by_any_thread)
{
    struct duet *first, *last;
    struct journey journey = {0};
    pthread_t thread;
    char text[1024];
    ck_done(open_pair(&first, 0));
    ck_done(open_pair(&last, gpu_count() - 1));
    ck_assert_int_eq(gpu_selected(), 0);
    ck_done(ask(first, text, sizeof text));
    journey.pair = last;
    ck_assert_int_eq(pthread_create(&thread, NULL, travel, &journey), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_msg(journey.rc == 0, "%s", journey.error);
    ck_assert_str_eq(journey.text, text);
    ck_assert_int_eq(journey.selected_after, 0);
    ck_answers(last, text);
    ck_answers(first, text);
    duet_close(first);
    ck_answers(last, text);
    duet_close(last);
    ck_assert_int_eq(gpu_selected(), 0);
}
END_TEST

Suite *check_pairs_cuda(void);
Suite *check_pairs_cuda(void) {
    Suite *suite = suite_create("pairs on GPUs");
    TCase *tc = tcase_create("pairs");
    tcase_add_test(tc, threads_open_ask_and_close_pairs_at_once);
    tcase_add_test(tc, a_pair_of_any_gpu_is_asked_and_closed_by_any_thread);
    suite_add_tcase(suite, tc);
    return suite;
}
