/* The memory pool: what is cut, what is planned, what is refused. */
#include "graphs/pool.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

static struct device *host_open(void) {
    struct device *d;
    ck_ok(device_open(&d, "host", NULL));
    return d;
}

START_TEST(slices_are_aligned_zeroed_and_apart)
{
    struct device *d = host_open();
    struct pool *p;
    ck_ok(pool_create(d, 64 * 1024, &p));
    static const size_t sizes[] = {1, 255, 256, 257, 1000, 4096};
    unsigned char *slices[6];
    char name[24];
    for (int i = 0; i < 6; i++) {
        void *slice;
        snprintf(name, sizeof name, "slice %d", i);
        ck_ok(pool_slice(p, POOL_SCRATCH, name, sizes[i], &slice));
        slices[i] = slice;
        ck_assert_uint_eq((uintptr_t)slice % POOL_ALIGN, 0);
        for (size_t b = 0; b < sizes[i]; b++) ck_assert_int_eq(slices[i][b], 0);
        memset(slice, i + 1, sizes[i]);
    }
    for (int i = 0; i < 6; i++)
        for (size_t b = 0; b < sizes[i]; b++) ck_assert_int_eq(slices[i][b], i + 1);
    ck_assert_uint_eq(pool_used(p), 256 + 256 + 256 + 512 + 1024 + 4096);
    ck_assert_uint_eq(pool_size(p), 64 * 1024);
    pool_destroy(p);
    device_close(d);
}
END_TEST

/* A module's description of its memory, run on both kinds of pool. */
static int describe(struct pool *p, void *out[3]) {
    TRY(pool_slice(p, POOL_SCRATCH, "weights", 100001, &out[0]));
    TRY(pool_slice(p, POOL_SCRATCH, "no bias", 0, &out[1]));
    return pool_slice(p, POOL_SCRATCH, "kv pages", 4096, &out[2]);
}

START_TEST(a_plan_is_what_the_real_pool_uses)
{
    struct device *d = host_open();
    struct pool *plan, *real;
    void *out[3];
    ck_ok(pool_create_plan(&plan));
    ck_ok(describe(plan, out));
    for (int i = 0; i < 3; i++) ck_assert_ptr_null(out[i]);
    ck_assert(pool_is_plan(plan));
    ck_assert_uint_eq(pool_generation(plan), 0);
    ck_ok(pool_create(d, pool_size(plan), &real)); /* of exactly that size */
    ck_ok(describe(real, out));
    ck_assert(!pool_is_plan(real));
    ck_assert_ptr_nonnull(out[0]);
    ck_assert_ptr_null(out[1]);
    ck_assert_uint_eq(pool_used(real), pool_used(plan));
    ck_assert_uint_eq(pool_used(real), pool_size(real));
    ck_assert_int_eq(pool_slice_count(real), 2);
    ck_assert_int_eq(pool_slice_count(plan), 2);
    for (int i = 0; i < 2; i++) {
        struct pool_slice_info a = pool_slice_at(plan, i), b = pool_slice_at(real, i);
        ck_assert_str_eq(a.name, b.name);
        ck_assert_uint_eq(a.bytes, b.bytes);
        ck_assert_uint_eq(a.offset, b.offset);
    }
    ck_assert_uint_eq(pool_slice_at(real, 0).bytes, 100001);
    ck_assert_ptr_eq(out[2], (char *)out[0] + pool_slice_at(real, 1).offset);
    pool_destroy(plan);
    pool_destroy(real);
    device_close(d);
}
END_TEST

START_TEST(a_pool_is_used_to_its_last_byte_and_not_beyond)
{
    struct device *d = host_open();
    struct pool *p;
    void *slice;
    ck_ok(pool_create(d, 1024, &p));
    ck_ok(pool_slice(p, POOL_SCRATCH, "first", 512, &slice));
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "second", 513, &slice), ERR_LIMIT);
    ck_assert_str_eq(err_message(), "pool slice 'second' needs 513 bytes, 512 of 1024 are left");
    ck_assert_ptr_null(slice);
    ck_assert_int_eq(pool_slice_count(p), 1);
    ck_ok(pool_slice(p, POOL_SCRATCH, "second", 512, &slice));
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "third", 1, &slice), ERR_LIMIT);
    ck_ok(pool_slice(p, POOL_SCRATCH, "none", 0, &slice));
    pool_destroy(p);
    ck_ok(pool_create(d, 300, &p)); /* the rounding must fit too */
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "all", 300, &slice), ERR_LIMIT);
    pool_destroy(p);
    device_close(d);
}
END_TEST

START_TEST(sizes_near_the_end_of_the_address_space_do_not_wrap)
{
    struct device *d = host_open();
    struct pool *plan, *p;
    void *slice;
    ck_ok(pool_create_plan(&plan));
    ck_ok(pool_slice(plan, POOL_SCRATCH, "a", SIZE_MAX - 1023, &slice));
    ck_assert_int_eq(pool_slice(plan, POOL_SCRATCH, "b", 2048, &slice), ERR_LIMIT);
    ck_assert_int_eq(pool_slice(plan, POOL_SCRATCH, "c", SIZE_MAX, &slice), ERR_LIMIT);
    ck_assert_int_eq(pool_slice(plan, POOL_SCRATCH, "d", 1023, &slice), ERR_LIMIT);
    ck_ok(pool_slice(plan, POOL_SCRATCH, "e", 768, &slice));
    ck_ok(pool_create(d, 4096, &p));
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "a", SIZE_MAX, &slice), ERR_LIMIT);
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "a", SIZE_MAX - 255, &slice), ERR_LIMIT);
    ck_assert_uint_eq(pool_used(p), 0);
    pool_destroy(p);
    pool_destroy(plan);
    device_close(d);
}
END_TEST

START_TEST(names_are_unique_and_fit)
{
    struct device *d = host_open();
    struct pool *p;
    void *slice;
    char name[POOL_NAME_MAX + 1];
    memset(name, 'n', POOL_NAME_MAX);
    name[POOL_NAME_MAX] = '\0';
    ck_ok(pool_create(d, 4096, &p));
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, name, 8, &slice), ERR_INTERNAL);
    name[POOL_NAME_MAX - 1] = '\0';
    ck_ok(pool_slice(p, POOL_SCRATCH, name, 8, &slice));
    ck_assert_str_eq(pool_slice_at(p, 0).name, name);
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, name, 8, &slice), ERR_INTERNAL);
    ck_assert_ptr_null(slice);
    ck_assert_int_eq(pool_slice_count(p), 1);
    pool_destroy(p);
    device_close(d);
}
END_TEST

START_TEST(many_slices_are_kept_in_order)
{
    struct pool *plan;
    void *slice;
    char name[24];
    ck_ok(pool_create_plan(&plan));
    for (int i = 0; i < 700; i++) {
        snprintf(name, sizeof name, "layer %d", i);
        ck_ok(pool_slice(plan, POOL_SCRATCH, name, 256, &slice));
    }
    ck_assert_int_eq(pool_slice_count(plan), 700);
    for (int i = 0; i < 700; i++) ck_assert_uint_eq(pool_slice_at(plan, i).offset, 256u * (size_t)i);
    pool_destroy(plan);
}
END_TEST

START_TEST(nothing_is_cut_after_the_seal)
{
    struct device *d = host_open();
    struct pool *p;
    void *slice;
    ck_ok(pool_create(d, 4096, &p));
    ck_assert(!pool_is_sealed(p));
    pool_seal(p);
    ck_assert(pool_is_sealed(p));
    ck_assert_int_eq(pool_slice(p, POOL_SCRATCH, "late", 8, &slice), ERR_INTERNAL);
    ck_assert_str_eq(err_message(), "pool slice 'late' was asked for after the seal");
    pool_destroy(p);
    device_close(d);
}
END_TEST

START_TEST(a_pool_owns_what_was_cut)
{
    struct device *d = host_open();
    struct pool *p, *plan;
    void *slice;
    ck_ok(pool_create(d, 4096, &p));
    ck_ok(pool_slice(p, POOL_SCRATCH, "a", 1000, &slice));
    const char *start = slice;
    ck_assert(pool_owns(p, start, 1024));
    ck_assert(pool_owns(p, start + 1023, 1));
    ck_assert(!pool_owns(p, start, 1025));
    ck_assert(!pool_owns(p, start + 1024, 1)); /* in the arena, not cut */
    ck_assert(!pool_owns(p, start + 2048, 1));
    ck_assert(!pool_owns(p, start + 8, SIZE_MAX));
    ck_assert(!pool_owns(p, &slice, 1));
    ck_assert(!pool_owns(p, NULL, 0));
    ck_ok(pool_create_plan(&plan));
    ck_ok(pool_slice(plan, POOL_SCRATCH, "a", 1000, &slice));
    ck_assert(!pool_owns(plan, start, 1));
    pool_destroy(plan);
    pool_destroy(p);
    device_close(d);
}
END_TEST

START_TEST(every_pool_has_its_own_generation)
{
    struct device *d = host_open();
    struct pool *a, *b;
    ck_ok(pool_create(d, 4096, &a));
    ck_ok(pool_create(d, 4096, &b));
    uint64_t first = pool_generation(a);
    ck_assert_uint_ne(first, 0);
    ck_assert_uint_ne(first, pool_generation(b));
    pool_destroy(a);
    ck_ok(pool_create(d, 4096, &a)); /* perhaps at the same address */
    ck_assert_uint_ne(pool_generation(a), first);
    ck_assert_uint_ne(pool_generation(a), pool_generation(b));
    pool_destroy(a);
    pool_destroy(b);
    device_close(d);
}
END_TEST

START_TEST(a_reset_pool_starts_over)
{
    struct device *d = host_open();
    struct pool *p, *plan;
    void *slice;
    ck_ok(pool_create(d, 4096, &p));
    ck_ok(pool_slice(p, POOL_SCRATCH, "a", 4096, &slice));
    memset(slice, 1, 4096);
    pool_seal(p);
    uint64_t generation = pool_generation(p);
    ck_assert_int_eq(pool_reset(p, (size_t)1 << 60), ERR_MEMORY); /* and nothing has changed */
    ck_assert_uint_eq(pool_generation(p), generation);
    ck_assert(pool_owns(p, slice, 4096));
    ck_ok(pool_reset(p, 8192));
    ck_assert_uint_ne(pool_generation(p), generation);
    ck_assert_uint_eq(pool_used(p), 0);
    ck_assert_uint_eq(pool_size(p), 8192);
    ck_assert(!pool_is_sealed(p));
    ck_ok(pool_slice(p, POOL_SCRATCH, "a", 8192, &slice));
    for (int i = 0; i < 8192; i++) ck_assert_int_eq(((const char *)slice)[i], 0);
    pool_destroy(p);
    ck_ok(pool_create_plan(&plan));
    ck_assert_int_eq(pool_reset(plan, 8192), ERR_INTERNAL);
    pool_destroy(plan);
    device_close(d);
}
END_TEST

START_TEST(a_pool_is_one_allocation)
{
    struct device *d = host_open();
    uint64_t before = device_allocations(d);
    struct pool *p;
    void *slice;
    ck_ok(pool_create(d, 1 << 16, &p));
    ck_ok(pool_slice(p, POOL_SCRATCH, "a", 4096, &slice));
    ck_ok(pool_slice(p, POOL_SCRATCH, "b", 4096, &slice));
    ck_assert_uint_eq(device_allocations(d), before + 1);
    pool_destroy(p);
    ck_assert_int_eq(pool_create(d, (size_t)1 << 60, &p), ERR_MEMORY);
    ck_assert_ptr_nonnull(strstr(err_message(), "1152921504606846976 bytes"));
    ck_assert_ptr_null(p);
    pool_destroy(NULL);
    device_close(d);
}
END_TEST

Suite *check_pool(void) {
    Suite *suite = suite_create("pool");
    TCase *t = tcase_create("pool");
    tcase_add_test(t, slices_are_aligned_zeroed_and_apart);
    tcase_add_test(t, a_plan_is_what_the_real_pool_uses);
    tcase_add_test(t, a_pool_is_used_to_its_last_byte_and_not_beyond);
    tcase_add_test(t, sizes_near_the_end_of_the_address_space_do_not_wrap);
    tcase_add_test(t, names_are_unique_and_fit);
    tcase_add_test(t, many_slices_are_kept_in_order);
    tcase_add_test(t, nothing_is_cut_after_the_seal);
    tcase_add_test(t, a_pool_owns_what_was_cut);
    tcase_add_test(t, every_pool_has_its_own_generation);
    tcase_add_test(t, a_reset_pool_starts_over);
    tcase_add_test(t, a_pool_is_one_allocation);
    suite_add_tcase(suite, t);
    return suite;
}
