/* Every op of the CUDA table against the host's: chosen shapes and those of families in both 16-bit types, and random ones. Those of
 * experts: check_experts_cuda.c. */
#include <math.h>
#include <string.h>

#include "tests/cuda/op_bench.h"
#include "tests/support/quantised_support.h"
#include "tests/support/support.h"

enum { RANDOM_SHAPES = 40, RANDOM_PASSES = 8 };

static const int passes[][2] = {{1, 1},  {1, 2},  {2, 5},  {5, 1},  {8, 2},   {3, 6},
                                {17, 1}, {10, 9}, {64, 1}, {64, 9}, {1, 100}, {1, 256}};
static const int chunks[] = {1, 2, 15, 63, 64, 65, 200, 256, 257, 449, 512}; /* rows of prefill */
enum { PASSES = sizeof passes / sizeof *passes, CHUNKS = sizeof chunks / sizeof *chunks };

/* --- op by op --------------------------------------------------------------------------------------------- */

static void check_embed(struct bench *b) {
    struct op_embed host = mini_embed(&b->host, bench_host_rows(b)), gpu = mini_embed(&b->twin, bench_gpu_rows(b));
    ck_ok(ops_host()->embed(b->lab.stream, &host));
    ck_ok(ops_cuda()->embed(b->gpu.lab.stream, &gpu));
    b->is_exact = host.table.format != DTYPE_F32; /* a packed one's scales are rounded */
    bench_compare(b, "embed", gpu.out, DTYPE_F32, host.out, b->count, b->host.shape.width, false);
    b->is_exact = false;
}

static void check_qkv(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    struct op_qkv gpu = mini_qkv(&b->twin, bench_gpu_rows(b));
    bench_restore_caches(b);
    bench_share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    bench_expect_qkv(b);
    ck_ok(ops_cuda()->qkv(b->gpu.lab.stream, &gpu));
    bench_compare(b, "queries", gpu.q, DTYPE_F32, b->host.q, b->count, s->heads * s->head_dim, true);
    bench_compare_caches(b);
}

static void check_attention(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    bench_restore_caches(b);
    struct op_attention host = mini_attention(&b->host, bench_host_rows(b)),
                        gpu = mini_attention(&b->twin, bench_gpu_rows(b));
    bench_share_floats(b, b->host.q, b->twin.q, b->count, s->heads * s->head_dim);
    host.scale = gpu.scale = 4 * host.scale; /* some keys matter more than others */
    ck_ok(ops_host()->attention(b->lab.stream, &host));
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &gpu));
    bench_compare(b, "attention", gpu.out.data, s->type, host.out.data, b->count, s->heads * s->head_dim, true);
}

static void check_project(struct bench *b, struct op_project host, struct op_project gpu) {
    bench_share_halves(b, host.h.data, gpu.h.data, b->count, host.w.cols);
    bench_share_floats(b, host.x, gpu.x, b->count, host.w.rows);
    ck_ok(ops_host()->project(b->lab.stream, &host));
    ck_ok(ops_cuda()->project(b->gpu.lab.stream, &gpu));
    bench_compare(b, "project", gpu.x, DTYPE_F32, host.x, b->count, host.w.rows, false);
}

static void run_add_norm(struct bench *b, struct op_add_norm host, struct op_add_norm gpu) {
    const int cols = host.width * host.parts;
    bench_share_floats(b, host.y, gpu.y, b->count, cols);
    if (host.x != host.y) bench_share_floats(b, host.x, gpu.x, b->count, cols);
    ck_ok(ops_host()->add_norm(b->lab.stream, &host));
    ck_ok(ops_cuda()->add_norm(b->gpu.lab.stream, &gpu));
    b->is_exact = true;
    bench_compare(b, "add_norm", gpu.x, DTYPE_F32, host.x, b->count, cols, false);
    b->is_exact = false;
}

/* Onto x, in place of x, in place of y, and of parts of a row. */
static void check_add_norms(struct bench *b) {
    const struct mini *m = &b->host, *t = &b->twin;
    struct op_add_norm host = mini_add_norm(m, bench_host_rows(b), &m->post_mlp_norm),
                       gpu = mini_add_norm(t, bench_gpu_rows(b), &t->post_mlp_norm);
    host.layer_scale = m->layer_scale, gpu.layer_scale = t->layer_scale;
    run_add_norm(b, host, gpu);
    host.stores = gpu.stores = true;
    run_add_norm(b, host, gpu);
    host.x = host.y, gpu.x = gpu.y;
    run_add_norm(b, host, gpu);
    if (m->shape.layer_inputs == 0) return;
    host = mini_add_norm(m, bench_host_rows(b), &m->input_norm),
    gpu = mini_add_norm(t, bench_gpu_rows(b), &t->input_norm);
    host.y = m->projected, host.x = m->inputs, gpu.y = t->projected, gpu.x = t->inputs;
    host.width = gpu.width = m->shape.layer_inputs, host.parts = gpu.parts = 2, host.last_scale = gpu.last_scale = 0.7f;
    run_add_norm(b, host, gpu);
}

static void check_gate_up(struct bench *b, struct op_gate_up host, struct op_gate_up gpu) {
    const struct mini_shape *s = &b->host.shape;
    bench_share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    if (host.times) bench_share_floats(b, b->host.inputs, b->twin.inputs, b->count, host.times_stride);
    ck_ok(ops_host()->gate_up(b->lab.stream, &host));
    ck_ok(ops_cuda()->gate_up(b->gpu.lab.stream, &gpu));
    b->is_gate = true;
    bench_compare(b, host.times ? "gate and times" : "gate_up", gpu.h.data, s->type, host.h.data, b->count, host.hidden,
                  false);
    b->is_gate = false;
}

static void check_logits(struct bench *b, struct op_logits host, struct op_logits gpu, bool last_only) {
    const struct mini_shape *s = &b->host.shape;
    host.last_only = gpu.last_only = last_only;
    bench_share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    ck_ok(ops_host()->logits(b->lab.stream, &host));
    ck_ok(ops_cuda()->logits(b->gpu.lab.stream, &gpu));
    bench_compare(b, "logits", gpu.logits, DTYPE_F32, host.logits, last_only ? b->batch : b->count, host.vocab, false);
}

static void check_layer(struct bench *b) {
    const struct mini *m = &b->host, *t = &b->twin;
    check_qkv(b);
    check_attention(b);
    check_project(b, mini_project(m, bench_host_rows(b)), mini_project(t, bench_gpu_rows(b)));
    check_project(b, mini_down(m, bench_host_rows(b)), mini_down(t, bench_gpu_rows(b)));
    check_gate_up(b, mini_gate_up(m, bench_host_rows(b)), mini_gate_up(t, bench_gpu_rows(b)));
    check_add_norms(b);
    if (m->shape.layer_inputs > 0)
        check_gate_up(b, mini_input_gate(m, bench_host_rows(b)), mini_input_gate(t, bench_gpu_rows(b)));
    if (m->shape.experts > 0)
        check_logits(b, mini_router(m, bench_host_rows(b)), mini_router(t, bench_gpu_rows(b)), false);
}

static void check_pass(struct bench *b, int batch, int q_len) {
    bench_set_pass(b, batch, q_len);
    check_embed(b);
    check_layer(b);
    check_logits(b, mini_logits(&b->host, bench_host_rows(b)), mini_logits(&b->twin, bench_gpu_rows(b)), false);
    check_logits(b, mini_logits(&b->host, bench_host_rows(b)), mini_logits(&b->twin, bench_gpu_rows(b)), true);
}

/* One for each kernel of products: few rows, more of them, tiles after tiles. */
static bool is_small_pass(int p) {
    return passes[p][0] * passes[p][1] == 10 || passes[p][0] == 17 || passes[p][1] == 9;
}

/* Loop index: the shape, first all in bf16, then in f16. */
START_TEST(ops_agree_with_the_host)
{
    static struct bench b;
    lab_open(&b.lab, 0);
    bench_open(&b, bench_shape(_i), false);
    for (int p = 0; p < PASSES; p++)
        if (passes[p][0] < b.host.shape.slots && (!test_is_small() || is_small_pass(p)))
            check_pass(&b, passes[p][0], passes[p][1]);
    bench_close(&b);
}
END_TEST

/* Loop index: the shape. */
START_TEST(ops_agree_with_the_host_for_random_shapes)
{
    static struct bench b;
    if (test_is_small()) return;
    lab_open(&b.lab, 0);
    b.lab.draws = (uint64_t)_i << 32;
    bench_open(&b, bench_random_shape(&b.lab, _i), _i % 4 == 1);
    for (int p = 0; p < RANDOM_PASSES; p++) {
        int batch = lab_pick(&b.lab, 1, b.host.shape.slots), most = p % 2 ? 9 : ROWS_MAX / batch;
        check_pass(&b, batch, lab_pick(&b.lab, 1, most + 1));
    }
    bench_close(&b);
}
END_TEST

/* A layer's ops of one sequence's chunks. Widths that are no multiple of 8 take the product of decoding. */
START_TEST(prefill_agrees_with_the_host)
{
    static struct bench b = {.prefill = true};
    lab_open(&b.lab, 0);
    bench_open(&b, bench_shape(_i), false);
    for (int i = 0; i < CHUNKS; i++) {
        if (test_is_small() && chunks[i] != 65) continue;
        bench_set_pass(&b, 1, chunks[i]);
        check_layer(&b);
    }
    bench_close(&b);
}
END_TEST

/* Outputs so long that a block goes on from group to group, the last of which is a part of one. Loop index: every third form. */
START_TEST(long_packed_outputs_agree_with_the_host)
{
    static struct bench b;
    const int form = 3 * _i;
    if (test_is_small()) return;
    struct mini_shape shape = bench_shape(0);
    shape.packed = 1 + form, shape.type = gpu_type_of_packed(form, DTYPE_BF16);
    shape.width = 2048, shape.hidden = 4352, shape.vocab = 16409;
    lab_open(&b.lab, 0);
    bench_open(&b, shape, false);
    check_pass(&b, 1, 1), check_pass(&b, 2, 5);
    bench_close(&b);
}
END_TEST

/* Loop index: the form, in either 16-bit type by turns where kernels take both; shapes whose heads the product finishes and others, and
 * one with most features. */
START_TEST(packed_weights_agree_with_the_host)
{
    static struct bench b;
    static const int which[] = {0, 3, 4};
    for (int i = 0; i < (test_is_small() ? 1 : 3); i++)
        for (int prefill = 0; prefill < 2; prefill++) {
            struct mini_shape shape = bench_shape(which[i] + (_i % 2 ? bench_shape_count() : 0));
            shape.packed = 1 + _i, shape.type = gpu_type_of_packed(_i, shape.type);
            b = (struct bench){.prefill = prefill};
            lab_open(&b.lab, 0);
            bench_open(&b, shape, false);
            for (int p = 0; p < PASSES && !prefill; p++)
                if (passes[p][0] < b.host.shape.slots && passes[p][1] <= 9 && (!test_is_small() || is_small_pass(p)))
                    check_pass(&b, passes[p][0], passes[p][1]);
            if (prefill) bench_set_pass(&b, 1, 65), check_layer(&b);
            /* More rows than the kernels of decoding take of any kind: these weights are unpacked. */
            if (prefill && !test_is_small()) bench_set_pass(&b, 1, 520), check_layer(&b);
            bench_close(&b);
        }
}
END_TEST

static uint16_t *attend(struct bench *b, uint16_t *out) {
    struct op_attention gpu = mini_attention(&b->twin, bench_gpu_rows(b));
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &gpu));
    gpu_get(&b->gpu, out, gpu.out.data, (size_t)b->count * (size_t)(gpu.heads * gpu.head_dim) * sizeof *out);
    return out;
}

/* One value of `position` in key/value head 0 becomes NaN: rows that see it have NaN there, and all else keeps its bits. */
static void check_nan_value(struct bench *b, int position, int dim) {
    static uint16_t clean[128 * 1024], got[128 * 1024];
    const struct mini_shape *s = &b->host.shape;
    const uint16_t nan = 0x7FFF;
    bench_restore_caches(b);
    attend(b, clean);
    gpu_put(&b->gpu, (uint16_t *)b->twin.kv.v + mini_cell(&b->host, 1, position, 0) + dim, &nan, sizeof nan);
    attend(b, got);
    for (int i = 0; i < b->count * s->heads * s->head_dim; i++) {
        int row = i / s->head_dim / s->heads, head = i / s->head_dim % s->heads, at = b->host.positions[row];
        bool sees = position <= at && (s->window == 0 || position > at - s->window);
        struct weight w = {.data = got + i, .format = s->type, .rows = 1, .cols = 1};
        if (sees && head < s->heads / s->kv_heads && i % s->head_dim == dim)
            ck_assert_msg(isnan(lab_weight_at(&w, 0, 0)), "position %d does not see the NaN at %d", at, position);
        else
            ck_assert_msg(got[i] == clean[i], "position %d, head %d: the NaN at %d changed bits", at, head, position);
    }
}

/* Loop index: the shape. NaN at both ends of what the rows of a pass see, where one row sees it and the next does not. */
START_TEST(nan_values_reach_the_rows_that_see_them)
{
    static struct bench b;
    static const int firsts[] = {0, 61, 255, 310}, lengths[] = {1, 6, 20};
    lab_open(&b.lab, 0);
    bench_open(&b, bench_shape(_i), false);
    const struct mini_shape *s = &b.host.shape;
    for (int i = 0; i < 12; i += test_is_small() ? 5 : 1) {
        int first = firsts[i % 4], q_len = lengths[i / 4];
        b.batch = 1, b.q_len = b.count = q_len;
        b.host.row_slot[0] = 1;
        for (int j = 0; j < q_len; j++) b.host.positions[j] = first + j, b.host.tokens[j] = 0;
        gpu_put_rows(&b.gpu, &b.host, &b.twin, 1, q_len);
        bench_share_floats(&b, b.host.q, b.twin.q, b.count, s->heads * s->head_dim);
        const int places[] = {first, first + q_len / 2, first + q_len, first - 9, first - s->window + 2};
        for (int j = 0; j < 5; j++)
            if (places[j] >= 0) check_nan_value(&b, places[j], lab_pick(&b.lab, 0, s->head_dim));
    }
    bench_close(&b);
}
END_TEST

/* --- what is refused --------------------------------------------------------------------------------------------- */

START_TEST(weights_that_the_kernels_cannot_read_are_refused)
{
    static struct bench b;
    lab_open(&b.lab, 1);
    bench_open(&b, bench_shape(bench_shape_count() - 1), false);
    const struct ops *ops = ops_cuda();
    struct stream *stream = b.gpu.lab.stream;
    bench_set_pass(&b, 1, 1);
    struct op_gate_up gate_up = mini_gate_up(&b.twin, bench_gpu_rows(&b));
    gate_up.gate.stride = 2 * gate_up.gate.cols;
    ck_assert_int_eq(ops->gate_up(stream, &gate_up), ERR_INTERNAL);
    struct op_project project = mini_project(&b.twin, bench_gpu_rows(&b));
    project.w.format = DTYPE_F32;
    ck_assert_int_eq(ops->project(stream, &project), ERR_INTERNAL);
    struct op_attention attention = mini_attention(&b.twin, bench_gpu_rows(&b));
    attention.head_dim = 514;
    ck_assert_int_eq(ops->attention(stream, &attention), ERR_UNSUPPORTED);
    bench_close(&b);
}
END_TEST

Suite *check_ops_cuda(void);
Suite *check_ops_cuda(void) {
    Suite *suite = suite_create("ops_cuda");
    TCase *tc = tcase_create("ops_cuda");
    tcase_add_loop_test(tc, ops_agree_with_the_host, 0, 2 * bench_shape_count());
    tcase_add_loop_test(tc, ops_agree_with_the_host_for_random_shapes, 0, RANDOM_SHAPES);
    tcase_add_loop_test(tc, prefill_agrees_with_the_host, 0, 2 * bench_shape_count());
    tcase_add_loop_test(tc, packed_weights_agree_with_the_host, 0, QUANTISED_FORMS);
    tcase_add_loop_test(tc, nan_values_reach_the_rows_that_see_them, 0, 2 * bench_shape_count());
    tcase_add_test(tc, weights_that_the_kernels_cannot_read_are_refused);
    suite_add_tcase(suite, tc);
    TCase *outputs = tcase_create("long outputs");
    tcase_add_loop_test(outputs, long_packed_outputs_agree_with_the_host, 0, (QUANTISED_FORMS + 2) / 3);
    suite_add_tcase(suite, outputs);
    return suite;
}
