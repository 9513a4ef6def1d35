#include <string.h>

#include "model/kv_pages.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

static struct kv_pages *create(int pages) {
    struct kv_pages *p;
    ck_ok(kv_pages_create(&p, pages));
    return p;
}

START_TEST(page_zero_is_never_handed_out)
{
    struct kv_pages *p = create(5);
    int32_t out[4];
    ck_assert_int_eq(kv_pages_free_count(p), 4);
    ck_ok(kv_pages_take(p, 4, out));
    for (int i = 0; i < 4; i++) ck_assert_int_eq(out[i], i + 1);
    ck_assert_int_eq(kv_pages_free_count(p), 0);
    kv_pages_destroy(p);
}
END_TEST

START_TEST(take_is_all_or_none)
{
    struct kv_pages *p = create(5);
    int32_t out[5] = {-7, -7, -7, -7, -7};
    ck_assert_int_eq(kv_pages_take(p, 5, out), ERR_BUSY);
    for (int i = 0; i < 5; i++) ck_assert_int_eq(out[i], -7);
    ck_assert_int_eq(kv_pages_free_count(p), 4);
    ck_ok(kv_pages_take(p, 0, NULL));
    ck_assert_int_eq(kv_pages_take(p, -1, out), ERR_INTERNAL);
    ck_ok(kv_pages_take(p, 4, out));
    ck_assert_int_eq(kv_pages_take(p, 1, out), ERR_BUSY);
    check_sentence();
    kv_pages_destroy(p);
}
END_TEST

START_TEST(pages_come_ascending_from_the_lowest_free)
{
    struct kv_pages *p = create(10);
    int32_t all[9], out[4];
    ck_ok(kv_pages_take(p, 9, all));
    kv_pages_give(p, 4, (int32_t[]){8, 2, 5, 3});
    ck_ok(kv_pages_take(p, 3, out));
    ck_assert_mem_eq(out, ((int32_t[]){2, 3, 5}), sizeof(int32_t[3]));
    kv_pages_give(p, 1, (int32_t[]){3});
    ck_ok(kv_pages_take(p, 2, out));
    ck_assert_mem_eq(out, ((int32_t[]){3, 8}), sizeof(int32_t[2]));
    kv_pages_destroy(p);
}
END_TEST

START_TEST(giving_what_is_not_taken_changes_nothing_and_says_so)
{
    static const int32_t wrong[] = {0, -1, 4, INT32_MAX, INT32_MIN, 2};
    struct kv_pages *p = create(4);
    int32_t out[3];
    ck_ok(kv_pages_take(p, 2, out));
    kv_pages_give(p, 1, &out[1]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err_set(ERR_IO, "before");
        kv_pages_give(p, 1, &wrong[i]);
        ck_assert_str_ne(err_message(), "before");
        ck_assert_int_eq(kv_pages_free_count(p), 2);
    }
    err_set(ERR_IO, "before");
    kv_pages_give(p, 1, &out[0]);
    ck_assert_str_eq(err_message(), "before");
    ck_ok(kv_pages_take(p, 3, out));
    ck_assert_mem_eq(out, ((int32_t[]){1, 2, 3}), sizeof(int32_t[3]));
    kv_pages_destroy(p);
}
END_TEST

START_TEST(a_shared_page_is_free_when_its_last_owner_gives_it)
{
    struct kv_pages *p = create(4);
    int32_t out[3], again[1];
    ck_ok(kv_pages_take(p, 2, out));
    ck_ok(kv_pages_share(p, 1, out));
    kv_pages_give(p, 2, out);
    ck_assert_int_eq(kv_pages_free_count(p), 2);
    ck_assert_int_eq(kv_pages_share(p, 2, out), ERR_INTERNAL); /* the second is free; the first gets no owner */
    ck_ok(kv_pages_take(p, 1, again));
    ck_assert_int_eq(again[0], 2);
    kv_pages_give(p, 1, out);
    ck_assert_int_eq(kv_pages_free_count(p), 2);
    ck_ok(kv_pages_take(p, 1, again));
    ck_assert_int_eq(again[0], 1);
    kv_pages_destroy(p);
}
END_TEST

START_TEST(no_page_is_lost_or_owned_twice_in_a_long_run)
{
    enum { PAGES = 70, SLOTS = 8, MOST = 20 };
    struct kv_pages *p = create(PAGES);
    struct damage random = {1};
    int32_t pages[SLOTS][MOST];
    int held[SLOTS] = {0}, used = 0;
    for (int step = 0; step < 20000; step++) {
        uint32_t slot = damage_below(&random, SLOTS);
        if (held[slot]) {
            kv_pages_give(p, held[slot], pages[slot]);
            used -= held[slot];
            held[slot] = 0;
        } else {
            int want = 1 + (int)damage_below(&random, MOST);
            int rc = kv_pages_take(p, want, pages[slot]);
            ck_assert_int_eq(rc, want > PAGES - 1 - used ? ERR_BUSY : 0);
            if (rc == 0) used += held[slot] = want;
        }
        bool owned[PAGES] = {true};
        for (int s = 0; s < SLOTS; s++) {
            for (int i = 0; i < held[s]; i++) {
                if (i > 0 && pages[s][i] <= pages[s][i - 1]) ck_abort_msg("page %d is out of order", pages[s][i]);
                if (owned[pages[s][i]]) ck_abort_msg("page %d has two owners", pages[s][i]);
                owned[pages[s][i]] = true;
            }
        }
        ck_assert_int_eq(kv_pages_free_count(p), PAGES - 1 - used);
    }
    kv_pages_destroy(p);
}
END_TEST

START_TEST(an_arena_needs_its_dummy_page)
{
    struct kv_pages *p;
    ck_assert_int_eq(kv_pages_create(&p, 0), ERR_USAGE);
    ck_assert_ptr_null(p);
    kv_pages_destroy(NULL);
    p = create(1);
    ck_assert_int_eq(kv_pages_free_count(p), 0);
    kv_pages_destroy(p);
}
END_TEST

START_TEST(pages_for_rounds_up)
{
    ck_assert_int_eq(kv_pages_for(0, 256), 0);
    ck_assert_int_eq(kv_pages_for(1, 256), 1);
    ck_assert_int_eq(kv_pages_for(256, 256), 1);
    ck_assert_int_eq(kv_pages_for(257, 256), 2);
    ck_assert_int_eq(kv_pages_for(INT32_MAX, 256), 1 << 23);
}
END_TEST

Suite *check_kv_pages(void) {
    Suite *suite = suite_create("kv_pages");
    TCase *pages = tcase_create("pages");
    tcase_add_test(pages, page_zero_is_never_handed_out);
    tcase_add_test(pages, take_is_all_or_none);
    tcase_add_test(pages, pages_come_ascending_from_the_lowest_free);
    tcase_add_test(pages, giving_what_is_not_taken_changes_nothing_and_says_so);
    tcase_add_test(pages, a_shared_page_is_free_when_its_last_owner_gives_it);
    tcase_add_test(pages, no_page_is_lost_or_owned_twice_in_a_long_run);
    tcase_add_test(pages, an_arena_needs_its_dummy_page);
    tcase_add_test(pages, pages_for_rounds_up);
    suite_add_tcase(suite, pages);
    return suite;
}
