/* Keys and values in FP8 on a GPU: what qkv writes, against the host's numbers, and what attention makes of it, against a cache of 16
 * bits that holds the same numbers. */
#include <math.h>
#include <string.h>

#include "model/format.h"
#include "model/fp8.h"
#include "tests/cuda/op_bench.h"
#include "tests/support/support.h"

static const int passes[][2] = {{1, 1}, {2, 5}, {17, 1}, {10, 9}, {1, 256}};
static const int chunks[] = {1, 15, 65, 257, 512}; /* rows of prefill */
enum { PASSES = sizeof passes / sizeof *passes, CHUNKS = sizeof chunks / sizeof *chunks };

/* A cache in FP8 on the GPU, and its bytes here. */
struct coded {
    struct kv_layer kv;
    size_t bytes;          /* of keys, and of values */
    uint8_t *bits, *other; /* [2 * bytes] */
};

static void open_coded(struct bench *b, struct coded *c) {
    const struct mini_shape *s = &b->host.shape;
    c->bytes = kv_part_start(DTYPE_FP8, b->host.pages, s->kv_heads, 0, s->head_dim);
    c->kv = (struct kv_layer){gpu_alloc(&b->gpu, c->bytes), gpu_alloc(&b->gpu, c->bytes), DTYPE_FP8};
    c->bits = lab_alloc(&b->lab, 2 * c->bytes), c->other = lab_alloc(&b->lab, 2 * c->bytes);
}

static void put_coded(struct bench *b, const struct coded *c, const uint8_t *bits) {
    gpu_put(&b->gpu, c->kv.k, bits, c->bytes), gpu_put(&b->gpu, c->kv.v, bits + c->bytes, c->bytes);
}
static void get_coded(struct bench *b, const struct coded *c, uint8_t *bits) {
    gpu_get(&b->gpu, bits, c->kv.k, c->bytes), gpu_get(&b->gpu, bits + c->bytes, c->kv.v, c->bytes);
}

/* --- attention ------------------------------------------------------------------------------------------------- */

static uint16_t in_16_bits(float x, enum dtype type) {
    return type == DTYPE_F16 ? format_to_f16(x) : (uint16_t)(fmath_bits(x) >> 16);
}

/* Any numbers but NaN, with scales that leave them exact in 16 bits, in both caches. */
static void fill_caches(struct bench *b, struct coded *c) {
    const size_t dim = (size_t)b->host.shape.head_dim, part = KV_PAGE * (dim + 1), parts = 2 * c->bytes / part;
    for (size_t p = 0; p < parts; p++) {
        uint8_t *codes = c->bits + p * part, *scales = codes + KV_PAGE * dim;
        for (int j = 0; j < KV_PAGE; j++) scales[j] = (uint8_t)lab_pick(&b->lab, 116, 120);
        for (size_t i = 0; i < KV_PAGE * dim; i++) {
            codes[i] = (uint8_t)(lab_pick(&b->lab, 0, 0x7F) | lab_pick(&b->lab, 0, 2) << 7);
            b->got[p * KV_PAGE * dim + i] =
                in_16_bits(format_from_fp8(codes[i]) * format_from_e8m0(scales[i / dim]), b->host.shape.type);
        }
    }
    put_coded(b, c, c->bits);
    gpu_put(&b->gpu, b->twin.kv.k, b->got, b->host.kv_floats * sizeof *b->got);
    gpu_put(&b->gpu, b->twin.kv.v, b->got + b->host.kv_floats, b->host.kv_floats * sizeof *b->got);
}

static void attend(struct bench *b, struct kv_layer kv, uint16_t *out) {
    struct op_attention op = mini_attention(&b->twin, bench_gpu_rows(b));
    op.kv = kv;
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &op));
    gpu_get(&b->gpu, out, op.out.data, (size_t)b->count * (size_t)(op.heads * op.head_dim) * sizeof *out);
}

static void compare_attention(struct bench *b, const struct coded *c) {
    static uint16_t got[ROWS_MAX * COLS_MAX], expected[ROWS_MAX * COLS_MAX];
    const struct mini_shape *s = &b->host.shape;
    const int cols = s->heads * s->head_dim;
    bench_share_floats(b, b->host.q, b->twin.q, b->count, cols);
    attend(b, b->twin.kv, expected);
    attend(b, c->kv, got);
    const struct weight numbers = {.data = expected, .format = s->type, .rows = 1, .cols = b->count * cols};
    for (int i = 0; i < b->count * cols; i++)
        require(got[i] == expected[i] && isfinite(lab_weight_at(&numbers, 0, i)),
                "%s, heads of %d, pass %d x %d: row %d (position %d), %d: %04x, not %04x",
                s->name ? s->name : "a shape", s->head_dim, b->batch, b->q_len, i / cols, b->host.positions[i / cols],
                i % cols, got[i], expected[i]);
}

/* Loop index: the shape, first all in bf16, then in f16. */
START_TEST(attention_has_the_bits_of_one_over_the_numbers_in_16_bits)
{
    static struct bench b;
    struct coded c;
    lab_open(&b.lab, 0);
    b.prefill = false;
    bench_open(&b, bench_shape(_i), false);
    open_coded(&b, &c);
    fill_caches(&b, &c);
    for (int p = 0; p < PASSES; p++) {
        if (passes[p][0] >= b.host.shape.slots || (test_is_small() && passes[p][0] != 2)) continue;
        bench_set_pass(&b, passes[p][0], passes[p][1]);
        compare_attention(&b, &c);
    }
    b.prefill = true;
    for (int i = 0; i < CHUNKS; i++) {
        if (test_is_small() && chunks[i] != 65) continue;
        bench_set_pass(&b, 1, chunks[i]);
        compare_attention(&b, &c);
    }
    bench_close(&b);
}
END_TEST

/* Rows that see many splits of keys, of which one or two rows have two on their way at once (attention_cluster.cu), at
 * positions by chance. Loop index: type, heads, window. */
START_TEST(attention_far_on_has_the_bits_of_one_over_the_numbers_in_16_bits)
{
    static const int few[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 6}, {1, 1}, {1, 1}};
    static struct bench b;
    struct coded c;
    lab_open(&b.lab, 0);
    b.prefill = false;
    bench_open(&b,
               (struct mini_shape){.type = _i % 2 ? DTYPE_F16 : DTYPE_BF16,
                                   .width = 64,
                                   .hidden = 96,
                                   .heads = 4,
                                   .kv_heads = 1,
                                   .head_dim = _i / 2 % 2 ? 64 : 128,
                                   .vocab = 67,
                                   .window = _i < 4 ? 0 : 3000,
                                   .slots = 3,
                                   .pages_per_slot = 132},
               false);
    open_coded(&b, &c);
    fill_caches(&b, &c);
    for (size_t p = 0; p < sizeof few / sizeof *few; p++) {
        bench_set_pass(&b, few[p][0], few[p][1]);
        compare_attention(&b, &c);
    }
    bench_close(&b);
}
END_TEST

/* --- qkv ------------------------------------------------------------------------------------------------------- */

/* A vector's numbers are as near to the host's as its scale allows; the scale is no larger than it must be. Then its bytes are those of
 * memory that nobody wrote. */
static void check_vector(struct bench *b, uint8_t *bits, size_t cell, const float *expected, int row) {
    const size_t dim = (size_t)b->host.shape.head_dim, part = cell / dim / KV_PAGE, offset = cell / dim % KV_PAGE;
    uint8_t *from = bits + part * KV_PAGE * (dim + 1), *codes = from + offset * dim,
            *scale = from + KV_PAGE * dim + offset;
    int largest = 0;
    for (size_t i = 0; i < dim; i++) {
        const double x = (double)expected[cell + i], step = (double)format_from_e8m0(*scale) * 0x1p-9,
                     got = (double)(format_from_fp8(codes[i]) * format_from_e8m0(*scale)),
                     rounding = fmax(step / 2, fabs(got) / 15);
        const double near = got < x ? fmin(x, got + rounding) : fmax(x, got - rounding);
        bench_must_be_close(b, near, x, row, (int)i);
        if ((codes[i] & 0x7F) > largest) largest = codes[i] & 0x7F;
    }
    ck_assert_msg(largest >= 0x76 && largest <= 0x7E, "row %d: the largest code is %02x", row, largest);
    memset(codes, 0xFF, dim), *scale = 0xFF;
}

static void check_qkv(struct bench *b, struct coded *c) {
    const struct mini *m = &b->host;
    struct op_qkv gpu = mini_qkv(&b->twin, bench_gpu_rows(b));
    gpu.kv = c->kv;
    memset(c->bits, 0xFF, 2 * c->bytes);
    put_coded(b, c, c->bits);
    bench_share_floats(b, m->x, b->twin.x, b->count, m->shape.width);
    bench_expect_qkv(b);
    ck_ok(ops_cuda()->qkv(b->gpu.lab.stream, &gpu));
    bench_compare(b, "queries", gpu.q, DTYPE_F32, m->q, b->count, m->shape.heads * m->shape.head_dim, true);
    get_coded(b, c, c->bits);
    b->what = "keys and values in FP8";
    for (int r = 0; r < b->count && !m->shape.lacks_k; r++)
        for (int h = 0; m->positions[r] >= 0 && h < m->shape.kv_heads; h++) {
            const size_t cell = mini_cell(m, m->row_slot[r / b->q_len], m->positions[r], h);
            check_vector(b, c->bits, cell, m->kv.k, r);
            check_vector(b, c->bits + c->bytes, cell, m->kv.v, r);
        }
    const size_t page = c->bytes / (size_t)m->pages; /* page 0 is anybody's */
    for (size_t i = page; i < 2 * c->bytes; i++)
        require(c->bits[i] == 0xFF || (i >= c->bytes && i < c->bytes + page), "byte %zu was written", i);
}

/* Loop index: the shape. */
START_TEST(qkv_writes_numbers_near_the_host_s_and_nothing_else)
{
    static struct bench b;
    struct coded c;
    lab_open(&b.lab, 0);
    b.prefill = _i % 2;
    bench_open(&b, bench_shape(_i / 2), false);
    open_coded(&b, &c);
    for (int p = 0; p < (b.prefill ? CHUNKS : PASSES); p++) {
        const int batch = b.prefill ? 1 : passes[p][0], q_len = b.prefill ? chunks[p] : passes[p][1];
        if (batch >= b.host.shape.slots || (test_is_small() && batch * q_len != 10 && q_len != 65)) continue;
        bench_set_pass(&b, batch, q_len);
        check_qkv(&b, &c);
    }
    bench_close(&b);
}
END_TEST

/* Loop index: the shape. */
START_TEST(a_vector_s_bits_do_not_depend_on_the_rows_beside_it)
{
    static struct bench b;
    struct coded c;
    lab_open(&b.lab, 0);
    b.prefill = false;
    bench_open(&b, bench_shape(_i), false);
    open_coded(&b, &c);
    bench_set_pass(&b, 5, 2);
    const struct mini_shape *s = &b.host.shape;
    bench_share_floats(&b, b.host.x, b.twin.x, b.count, s->width);
    memset(c.other, 0xFF, 2 * c.bytes);
    put_coded(&b, &c, c.other);
    struct op_qkv op = mini_qkv(&b.twin, bench_gpu_rows(&b));
    op.kv = c.kv;
    ck_ok(ops_cuda()->qkv(b.gpu.lab.stream, &op));
    get_coded(&b, &c, c.bits);
    put_coded(&b, &c, c.other);
    for (int t = 0; t < b.count; t++) {
        struct op_qkv one = op;
        one.rows.batch = one.rows.q_len = 1;
        one.rows.positions += t, one.rows.tokens += t, one.rows.row_slot += t / b.q_len;
        one.x += t * s->width;
        ck_ok(ops_cuda()->qkv(b.gpu.lab.stream, &one));
    }
    get_coded(&b, &c, c.other);
    const size_t page = c.bytes / (size_t)b.host.pages;
    ck_assert_mem_eq(c.bits + page, c.other + page, c.bytes - page);
    ck_assert_mem_eq(c.bits + c.bytes + page, c.other + c.bytes + page, c.bytes - page);
    bench_close(&b);
}
END_TEST

Suite *check_kv_numbers_cuda(void);
Suite *check_kv_numbers_cuda(void) {
    Suite *suite = suite_create("kv_numbers_cuda");
    TCase *tc = tcase_create("kv_numbers_cuda");
    tcase_add_loop_test(tc, attention_has_the_bits_of_one_over_the_numbers_in_16_bits, 0, 2 * bench_shape_count());
    tcase_add_loop_test(tc, attention_far_on_has_the_bits_of_one_over_the_numbers_in_16_bits, 0, 8);
    tcase_add_loop_test(tc, qkv_writes_numbers_near_the_host_s_and_nothing_else, 0, 4 * bench_shape_count());
    tcase_add_loop_test(tc, a_vector_s_bits_do_not_depend_on_the_rows_beside_it, 0, 2 * bench_shape_count());
    suite_add_tcase(suite, tc);
    return suite;
}
