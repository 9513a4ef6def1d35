/* Keys and values in FP8 (model/fp8.h, model/kv_pages.h): what is written, what attention reads, and what a vector depends on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/format.h"
#include "model/fp8.h"
#include "model/kernels/host/isa.h"
#include "tests/support/engine_support.h"
#include "tests/support/ops_reference.h"
#include "tests/support/support.h"

/* --- numbers ------------------------------------------------------------------------------------------------- */

/* By its definition: 2^-9 steps up to 2^-6, then eight to each power of two. */
static double e4m3(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code & 0x80 ? -magnitude : magnitude;
}

/* No other code is nearer, and of two as near it is the even one. */
static void must_be_nearest(uint8_t code, double x) {
    const double off = fabs(e4m3(code) - x);
    ck_assert_msg((code & 0x7F) != 0x7F && !!(code & 0x80) == !!signbit(x), "%g became %02x", x, code);
    for (int side = -1; side <= 1; side += 2) {
        const int other = (code & 0x7F) + side;
        if (other < 0 || other > 0x7E) continue;
        const double its = fabs(e4m3((code & 0x80) | other) - x);
        ck_assert_msg(off < its || (off == its && code % 2 == 0), "%g became %02x, %02x is as near", x, code, other);
    }
}

START_TEST(every_number_becomes_the_nearest_of_e4m3)
{
    for (int code = 0; code < 0x7E; code++) {
        const float here = (float)e4m3(code), next = (float)e4m3(code + 1), middle = (here + next) / 2;
        const float xs[] = {here, nextafterf(here, 500), nextafterf(middle, 0), middle, nextafterf(middle, 500)};
        for (int i = 0; i < 5; i++) {
            must_be_nearest(fp8_nearest(xs[i]), (double)xs[i]);
            must_be_nearest(fp8_nearest(-xs[i]), -(double)xs[i]);
        }
    }
    for (int code = 0; code < 256; code++)
        if ((code & 0x7F) != 0x7F) ck_assert(e4m3(code) == (double)format_from_fp8((uint8_t)code));
}
END_TEST

/* The least power of two that takes the largest to 448 or less, between those that an f32 and its products allow. */
START_TEST(a_scale_is_the_least_power_of_two_that_fits)
{
    for (int exponent = -149; exponent < 128; exponent++)
        for (int i = 0; i < 5; i++) {
            static const float factors[] = {1, 1.5f, 1.75f, 1.7500001f, 1.9999999f};
            const float x = ldexpf(factors[i], exponent);
            const uint8_t scale = fp8_scale(fmath_bits(x));
            if (x > 0x1.cp127f) {
                ck_assert_int_eq(scale, FP8_SCALE_NAN);
                continue;
            }
            ck_assert_int_ge(scale, FP8_SCALE_LEAST);
            ck_assert((double)x <= ldexp(448, scale - 127));
            ck_assert(scale == FP8_SCALE_LEAST || (double)x > ldexp(448, scale - 128));
            ck_assert(fp8_factor(scale) == (float)ldexp(256, scale - 127));
        }
    ck_assert_int_eq(fp8_scale(0), FP8_SCALE_LEAST);
    ck_assert_int_eq(fp8_scale(fmath_bits(INFINITY)), FP8_SCALE_NAN);
    ck_assert_int_eq(fp8_scale(fmath_bits(NAN) & 0x7FFFFFFF), FP8_SCALE_NAN);
    ck_assert_int_eq(fp8_scale(0x7FFFFFFF), FP8_SCALE_NAN);
    ck_assert(isnan(fp8_factor(FP8_SCALE_NAN)));
}
END_TEST

/* --- the cache ------------------------------------------------------------------------------------------------ */

/* The made-up layer with two caches: m.kv in f32, and one of as many pages in FP8, every byte 0xFF. */
struct caches {
    struct mini m;
    struct kv_layer fp8;
    size_t bytes;
};

static void open_caches(struct lab *lab, struct caches *c, struct mini_shape shape) {
    mini_make(lab, &c->m, shape);
    const struct mini_shape *s = &c->m.shape;
    c->bytes = kv_part_start(DTYPE_FP8, c->m.pages, s->kv_heads, 0, s->head_dim);
    c->fp8 = (struct kv_layer){lab_alloc(lab, c->bytes), lab_alloc(lab, c->bytes), DTYPE_FP8};
}

/* A vector that has been written; mini_cell counts its f32 numbers. */
struct vector {
    uint8_t *codes, *scale;
};
static struct vector vector_at(const struct mini *m, const void *cache, size_t cell) {
    const size_t dim = (size_t)m->shape.head_dim, part = cell / dim / KV_PAGE, offset = cell / dim % KV_PAGE;
    uint8_t *from = (uint8_t *)(uintptr_t)cache + part * KV_PAGE * (dim + 1);
    return (struct vector){from + offset * dim, from + KV_PAGE * dim + offset};
}

/* The numbers of a row's vector, from the FP8 cache to the f32 one. */
static void widen_vector(const struct mini *m, const void *codes, void *floats, size_t cell) {
    const struct vector v = vector_at(m, codes, cell);
    for (int i = 0; i < m->shape.head_dim; i++)
        ((float *)floats)[cell + (size_t)i] = format_from_fp8(v.codes[i]) * format_from_e8m0(*v.scale);
}

static void widen_positions(struct caches *c, int slot, int first, int end) {
    for (int p = first; p < end; p++)
        for (int h = 0; h < c->m.shape.kv_heads; h++) {
            widen_vector(&c->m, c->fp8.k, c->m.kv.k, mini_cell(&c->m, slot, p, h));
            widen_vector(&c->m, c->fp8.v, c->m.kv.v, mini_cell(&c->m, slot, p, h));
        }
}

static void run_qkv(struct lab *lab, const struct caches *c, struct kv_layer kv, int q_len, float *x) {
    struct op_qkv op = mini_qkv(&c->m, mini_rows(&c->m, 1, q_len));
    op.x = x, op.kv = kv;
    ck_ok(ops_host()->qkv(lab->stream, &op));
}

static void set_rows(struct mini *m, int slot, int first, int q_len) {
    m->row_slot[0] = slot;
    for (int t = 0; t < q_len; t++) m->positions[t] = first + t;
}

static void check_vector(const struct mini *m, const void *cache, const float *x, size_t cell) {
    const struct vector v = vector_at(m, cache, cell);
    uint32_t largest = 0;
    for (int i = 0; i < m->shape.head_dim; i++)
        largest = (uint32_t)fmax(largest, fmath_bits(x[cell + (size_t)i]) & 0x7FFFFFFF);
    ck_assert_int_eq(*v.scale, fp8_scale(largest));
    for (int i = 0; i < m->shape.head_dim; i++)
        must_be_nearest(v.codes[i], ldexp((double)x[cell + (size_t)i], 127 - *v.scale));
    memset(v.codes, 0xFF, (size_t)m->shape.head_dim), *v.scale = 0xFF;
}

static void check_untouched(const uint8_t *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) require(memory[i] == 0xFF, "byte %zu was written", i);
}

/* Loop index: the shape. */
START_TEST(qkv_writes_the_nearest_numbers_to_its_own_vectors_alone)
{
    struct lab lab;
    struct caches c;
    lab_open(&lab, 1 + _i % 3);
    struct mini_shape shape = reference_shape(&lab, _i);
    shape.lacks_k = false;
    open_caches(&lab, &c, shape);
    const int q_len = lab_pick(&lab, 1, 9), first = lab_pick(&lab, KV_PAGE - 5, KV_PAGE + 5);
    float *x = lab_random_floats(&lab, (size_t)(q_len * shape.width));
    set_rows(&c.m, 1, first, q_len);
    run_qkv(&lab, &c, c.m.kv, q_len, x);
    run_qkv(&lab, &c, c.fp8, q_len, x);
    for (int p = first; p < first + q_len; p++)
        for (int h = 0; h < shape.kv_heads; h++) {
            check_vector(&c.m, c.fp8.k, c.m.kv.k, mini_cell(&c.m, 1, p, h));
            check_vector(&c.m, c.fp8.v, c.m.kv.v, mini_cell(&c.m, 1, p, h));
        }
    check_untouched(c.fp8.k, c.bytes), check_untouched(c.fp8.v, c.bytes);
    lab_close(&lab);
}
END_TEST

static void attend(struct lab *lab, const struct caches *c, struct kv_layer kv, int q_len, float *out) {
    struct op_attention op = mini_attention(&c->m, mini_rows(&c->m, 1, q_len));
    op.kv = kv, op.out.data = out;
    ck_ok(ops_host()->attention(lab->stream, &op));
}

/* Rows [first, first + q_len), where nothing but what they see has been written. */
static void compare_attention(struct lab *lab, struct caches *c, int first, int q_len) {
    const struct mini_shape *s = &c->m.shape;
    const size_t n = (size_t)(q_len * s->heads * s->head_dim);
    float *got = lab_alloc(lab, n * sizeof *got), *expected = lab_alloc(lab, n * sizeof *expected);
    for (size_t i = 0; i < n; i++) c->m.q[i] = lab_random(lab) * 2;
    set_rows(&c->m, 1, first, q_len);
    attend(lab, c, c->m.kv, q_len, expected);
    attend(lab, c, c->fp8, q_len, got);
    for (size_t i = 0; i < n; i++)
        require(memcmp(&got[i], &expected[i], sizeof *got) == 0, "%s, heads of %d, row %d of %d, %zu: %g, not %g",
                host_isa()->name, s->head_dim, first, q_len, i, (double)got[i], (double)expected[i]);
}

static const int dims[] = {8, 10, 16, 30, 64, 80, 128, 512};
enum { DIMS = sizeof dims / sizeof *dims, LAST = KV_PAGE + 70, ROWS = 8 };

/* Loop index: the size of a head. For every instruction set. */
START_TEST(attention_over_fp8_has_the_bits_of_one_over_its_numbers_in_f32)
{
    struct lab lab;
    struct caches c;
    for (int isa = 0; host_isa_at(isa); isa++) {
        if (!host_isa_at(isa)->is_supported()) continue;
        host_isa_force(host_isa_at(isa));
        lab_open(&lab, 1 + _i % 3);
        open_caches(&lab, &c,
                    (struct mini_shape){.width = 24,
                                        .hidden = 1,
                                        .vocab = 1,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = dims[_i],
                                        .window = _i % 2 ? 100 : 0,
                                        .slots = 2,
                                        .pages_per_slot = 2,
                                        .max_rows = ROWS});
        for (int p = 0; p < LAST; p += ROWS) {
            const int q_len = LAST - p < ROWS ? LAST - p : ROWS;
            set_rows(&c.m, 1, p, q_len);
            run_qkv(&lab, &c, c.fp8, q_len, lab_random_floats(&lab, (size_t)(q_len * c.m.shape.width)));
            widen_positions(&c, 1, p, p + q_len);
            compare_attention(&lab, &c, p + q_len - 1, 1);
            compare_attention(&lab, &c, p, q_len);
        }
        lab_close(&lab);
    }
    host_isa_force(NULL);
}
END_TEST

/* Positions [0, 20), two or three of which are written with other numbers first, alone or in passes of any size. */
static void write_in_turns(struct lab *lab, const struct caches *c, int step, float *x, float *rejected) {
    for (int p = 0; p < 20; p += step) {
        const int q_len = 20 - p < step ? 20 - p : step;
        struct mini m = c->m;
        set_rows(&m, 1, p, step > 1 ? q_len + 3 : q_len);
        if (step > 1) run_qkv(lab, c, c->fp8, q_len + 3, rejected);
        set_rows(&m, 1, p, q_len);
        run_qkv(lab, c, c->fp8, q_len, x + p * m.shape.width);
    }
}

START_TEST(a_vector_depends_on_nothing_but_itself)
{
    struct lab lab;
    struct caches c;
    lab_open(&lab, 2);
    struct mini_shape shape = reference_shape(&lab, 1);
    shape.lacks_k = false, shape.max_rows = 32;
    open_caches(&lab, &c, shape);
    float *x = lab_random_floats(&lab, (size_t)(20 * shape.width)),
          *rejected = lab_random_floats(&lab, (size_t)(20 * shape.width));
    for (int i = 0; i < 20 * shape.width; i++) rejected[i] *= 50;
    uint8_t *expected = lab_alloc(&lab, 2 * c.bytes);
    write_in_turns(&lab, &c, 1, x, rejected);
    memcpy(expected, c.fp8.k, c.bytes), memcpy(expected + c.bytes, c.fp8.v, c.bytes);
    for (int step = 2; step <= 10; step += 3) {
        write_in_turns(&lab, &c, step, x, rejected);
        for (int p = 0; p < 20; p++)
            for (int h = 0; h < shape.kv_heads; h++)
                for (int side = 0; side < 2; side++) {
                    const size_t cell = mini_cell(&c.m, 1, p, h);
                    const struct vector a = vector_at(&c.m, side ? c.fp8.v : c.fp8.k, cell),
                                        b = vector_at(&c.m, expected + (side ? c.bytes : 0), cell);
                    ck_assert_mem_eq(a.codes, b.codes, (size_t)shape.head_dim);
                    ck_assert_int_eq(*a.scale, *b.scale);
                }
    }
    lab_close(&lab);
}
END_TEST

START_TEST(zeros_stay_zeros_and_what_is_not_finite_makes_its_vector_nan)
{
    static const struct {
        float x;
        bool is_nan;
    } cases[] = {{0, false},       {-0.0f, false},    {0x1p-149f, false}, {0x1.cp127f, false},
                 {INFINITY, true}, {-INFINITY, true}, {NAN, true},        {0x1.dp127f, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float vector[] = {cases[i].x, 1e-30f, 0, -0x1p-149f};
        uint32_t largest = 0;
        for (int j = 0; j < 4; j++) {
            const uint32_t magnitude = fmath_bits(vector[j]) & 0x7FFFFFFF;
            largest = magnitude > largest ? magnitude : largest;
        }
        const uint8_t scale = fp8_scale(largest);
        for (int j = 0; j < 4; j++) {
            const uint8_t code = fp8_code(vector[j], scale);
            const float read = format_from_fp8(code) * format_from_e8m0(scale);
            ck_assert_int_ne(code & 0x7F, 0x7F);
            ck_assert_msg(isnan(read) == cases[i].is_nan, "%g in a vector with %g", (double)vector[j],
                          (double)cases[i].x);
            if (!cases[i].is_nan && vector[j] == 0) ck_assert(read == 0 && signbit(read) == signbit(vector[j]));
        }
    }
}
END_TEST

/* --- the plan --------------------------------------------------------------------------------------------------- */

static uint64_t slice_bytes(const struct memory_plan *plan, const char *name) {
    for (int i = 0; i < plan->count; i++)
        if (strcmp(plan->slices[i].name, name) == 0) return plan->slices[i].bytes;
    ck_abort_msg("there is no slice '%s'", name);
}

/* Loop index: the host, a GPU of 24 GiB that is not there. A scale a vector, and a byte in place of four or two. */
START_TEST(a_plan_has_the_pages_of_the_numbers_that_are_kept)
{
    static const char *const names[][2] = {
        {"target keys", "target FP8 keys"}, {"target values", "target FP8 values"}, {"draft keys", "draft FP8 keys"}};
    const struct pair pair = quick_pair();
    struct memory_plan plans[2];
    for (int kv = KV_AUTO; kv <= KV_FP8; kv++) {
        struct engine_options o = pair_options(&pair, 4, 2);
        o.kv = (enum kv_numbers)kv, o.context = 200, o.gpu_bytes = _i ? (uint64_t)24 << 30 : 0, o.device = "host";
        ck_ok(engine_plan(&plans[kv], &o));
    }
    ck_assert_int_eq(plans[0].pages, plans[1].pages);
    for (int i = 0; i < 3; i++) {
        const uint64_t before = slice_bytes(&plans[0], names[i][0]), after = slice_bytes(&plans[1], names[i][1]);
        const uint64_t numbers = before / (_i ? 2 : 4);
        ck_assert_msg(after > numbers && after <= numbers + numbers / HEAD_DIM_MIN, "%s: %llu bytes, then %llu",
                      names[i][0], (unsigned long long)before, (unsigned long long)after);
    }
    memory_plan_free(&plans[0]), memory_plan_free(&plans[1]);
}
END_TEST

Suite *check_kv_numbers(void);
Suite *check_kv_numbers(void) {
    Suite *suite = suite_create("kv_numbers");
    TCase *tc = tcase_create("kv_numbers");
    tcase_add_test(tc, every_number_becomes_the_nearest_of_e4m3);
    tcase_add_test(tc, a_scale_is_the_least_power_of_two_that_fits);
    tcase_add_test(tc, zeros_stay_zeros_and_what_is_not_finite_makes_its_vector_nan);
    tcase_add_loop_test(tc, qkv_writes_the_nearest_numbers_to_its_own_vectors_alone, 0, 24);
    tcase_add_loop_test(tc, attention_over_fp8_has_the_bits_of_one_over_its_numbers_in_f32, 0, DIMS);
    tcase_add_test(tc, a_vector_depends_on_nothing_but_itself);
    tcase_add_loop_test(tc, a_plan_has_the_pages_of_the_numbers_that_are_kept, 0, 2);
    suite_add_tcase(suite, tc);
    return suite;
}
