/* The ops of experts on a GPU: against the host's, and of rows that choose alike, differently, or nobody. A row's numbers are its
 * own, and experts that nobody chose are not read. */
#include <math.h>
#include <string.h>

#include "tests/cuda/op_bench.h"
#include "tests/support/quantised_support.h"
#include "tests/support/support.h"

/* --- against the host ------------------------------------------------------------------------------------- */

/* The same logits on both, in every other pass of few values, with ties; no choices yet on the GPU. */
static void share_logits(struct bench *b) {
    const struct mini_shape *s = &b->host.shape;
    const size_t entries = (size_t)b->count * (size_t)s->chosen;
    bench_share_floats(b, b->host.router_logits, b->twin.router_logits, b->count, s->experts);
    for (int i = 0; b->count % 2 && i < b->count * s->experts; i++)
        b->host.router_logits[i] = (float)lab_pick(&b->lab, -1, 2);
    gpu_put(&b->gpu, b->twin.router_logits, b->host.router_logits,
            (size_t)b->count * (size_t)s->experts * sizeof(float));
    ck_ok(stream_fill(b->gpu.lab.stream, b->twin.expert_ids, 0xEE, entries * sizeof(int32_t)));
    ck_ok(stream_fill(b->gpu.lab.stream, b->twin.expert_weights, 0xFF, entries * sizeof(float)));
}

/* Of the same logits the same experts, exactly. */
static void compare_choices(struct bench *b, const struct op_route *gpu_route) {
    const struct mini_shape *s = &b->host.shape;
    static int32_t ids[ROWS_MAX * 64];
    const size_t entries = (size_t)b->count * (size_t)s->chosen;
    const struct op_route host = mini_route(&b->host, bench_host_rows(b)), gpu = *gpu_route;
    gpu_get(&b->gpu, ids, gpu.ids, entries * sizeof *ids);
    for (size_t i = 0; i < entries; i++)
        require(ids[i] == host.ids[i], "%s, pass %d x %d: choice %zu is %d, expected %d", s->name ? s->name : "a shape",
                b->batch, b->q_len, i, ids[i], host.ids[i]);
    b->is_exact = true;
    bench_compare(b, "expert weights", gpu.weights, DTYPE_F32, host.weights, b->count, s->chosen, false);
    b->is_exact = false;
    /* sums of the products that follow stay of order 1 */
    for (size_t i = 0; i < entries; i++) host.weights[i] = lab_random(&b->lab) / (float)s->chosen;
    gpu_put(&b->gpu, gpu.weights, host.weights, entries * sizeof(float));
}

/* Loop index: how many there are, up to 4 of a lane and up to 32. Of few values, with zeros of both signs and -inf; every third row
 * chooses nobody. */
static const int many[] = {33, 127, 128, 129, 256, 1000, 1024};

START_TEST(choices_among_many_are_those_of_the_host)
{
    enum { ROWS = 9, MOST = 32, SIZE = ROWS * 1024 };
    static const float values[] = {-2, -1, -0.0f, 0, 1, -INFINITY};
    static struct lab lab;
    static struct gpu gpu;
    const int experts = many[_i];
    lab_open(&lab, 0);
    gpu_open(&gpu);
    float *logits = lab_alloc(&lab, SIZE * sizeof *logits), *weights = lab_alloc(&lab, ROWS * MOST * sizeof *weights),
          *got_weights = lab_alloc(&lab, ROWS * MOST * sizeof *weights);
    int32_t *positions = lab_alloc(&lab, ROWS * sizeof *positions), *ids = lab_alloc(&lab, ROWS * MOST * sizeof *ids),
            *got = lab_alloc(&lab, ROWS * MOST * sizeof *ids);
    for (int t = 0; t < ROWS; t++) positions[t] = t % 3 == 2 ? -1 : t;
    const struct weight bias = {lab_alloc(&lab, 1024 * sizeof(float)), DTYPE_F32, .rows = 1, .cols = experts};
    for (int e = 0; e < experts; e++) ((float *)bias.data)[e] = 7 + 4 * lab_random(&lab);
    /* Behind the first six without one, with sigmoids, with a bias, with both. */
    for (int turn = 0; turn < 12; turn++) {
        struct op_route host = {.rows = {.batch = ROWS, .q_len = 1, .positions = positions},
                                .logits = logits,
                                .experts = experts,
                                .chosen = turn % 3 == 0   ? 1
                                          : turn % 3 == 1 ? 8
                                                          : MOST,
                                .scores = turn >= 8  ? SCORES_SIGMOID
                                          : turn % 2 ? SCORES_OF_ALL
                                                     : SCORES_OF_CHOSEN,
                                .bias = turn % 2 && turn > 6 ? bias : (struct weight){0},
                                .renormalise = turn % 6 < 3,
                                .scale = turn == 4 ? 2.5f : 1,
                                .ids = ids,
                                .weights = weights};
        for (int i = 0; i < ROWS * experts; i++)
            logits[i] = turn % 2 ? lab_random(&lab) * 3 : values[lab_pick(&lab, 0, sizeof values / sizeof *values)];
        const size_t entries = (size_t)(ROWS * host.chosen);
        struct op_route its = host;
        int32_t *there = gpu_alloc(&gpu, ROWS * sizeof *positions);
        float *logits_there = gpu_alloc(&gpu, (size_t)(ROWS * experts) * sizeof *logits);
        its.ids = gpu_alloc(&gpu, entries * sizeof *ids), its.weights = gpu_alloc(&gpu, entries * sizeof *weights);
        its.rows.positions = there, its.logits = logits_there;
        if (its.bias.data) {
            its.bias.data = gpu_alloc(&gpu, (size_t)experts * sizeof(float));
            gpu_put(&gpu, (void *)its.bias.data, bias.data, (size_t)experts * sizeof(float));
        }
        gpu_put(&gpu, there, positions, ROWS * sizeof *positions);
        gpu_put(&gpu, logits_there, logits, (size_t)(ROWS * experts) * sizeof *logits);
        ck_ok(ops_host()->route(lab.stream, &host));
        ck_ok(ops_cuda()->route(gpu.lab.stream, &its));
        gpu_get(&gpu, got, its.ids, entries * sizeof *got);
        gpu_get(&gpu, got_weights, its.weights, entries * sizeof *got_weights);
        for (size_t i = 0; i < entries; i++) {
            require(got[i] == ids[i], "of %d experts choice %zu is %d, expected %d", experts, i, got[i], ids[i]);
            require(fabsf(got_weights[i] - weights[i]) <= 1e-5f * weights[i] + 1e-12f,
                    "of %d experts the weight of choice %zu is %g, expected %g", experts, i, (double)got_weights[i],
                    (double)weights[i]);
        }
    }
    gpu_close(&gpu);
    lab_close(&lab);
}
END_TEST

/* Told of the choice, the ops of experts may make it. */
static void check_experts(struct bench *b, bool is_told) {
    const struct mini_shape *s = &b->host.shape;
    const struct op_route route = mini_route(&b->host, bench_host_rows(b));
    struct op_route gpu_route = mini_route(&b->twin, bench_gpu_rows(b));
    struct op_experts_up up = mini_experts_up(&b->host, bench_host_rows(b)),
                         gpu_up = mini_experts_up(&b->twin, bench_gpu_rows(b));
    struct op_experts_down down = mini_experts_down(&b->host, bench_host_rows(b)),
                           gpu_down = mini_experts_down(&b->twin, bench_gpu_rows(b));
    gpu_route.is_told = is_told;
    if (is_told) gpu_up.route = gpu_down.route = gpu_route;
    share_logits(b);
    ck_ok(ops_host()->route(b->lab.stream, &route));
    ck_ok(ops_cuda()->route(b->gpu.lab.stream, &gpu_route));
    if (!is_told) compare_choices(b, &gpu_route);
    bench_share_floats(b, b->host.x, b->twin.x, b->count, s->width);
    ck_ok(ops_host()->experts_up(b->lab.stream, &up));
    ck_ok(ops_cuda()->experts_up(b->gpu.lab.stream, &gpu_up));
    if (is_told) compare_choices(b, &gpu_route);
    b->is_gate = true;
    bench_compare(b, "experts_up", gpu_up.h.data, s->type, up.h.data, b->count, s->chosen * s->hidden, true);
    b->is_gate = false;
    bench_share_halves(b, down.h.data, gpu_down.h.data, b->count, s->chosen * s->hidden);
    bench_share_floats(b, down.x, gpu_down.x, b->count, s->width);
    ck_ok(ops_host()->experts_down(b->lab.stream, &down));
    ck_ok(ops_cuda()->experts_down(b->gpu.lab.stream, &gpu_down));
    bench_compare(b, "experts_down", gpu_down.x, DTYPE_F32, down.x, b->count, s->width, false);
}

static const int passes[][2] = {{1, 1}, {2, 5}, {8, 2}, {17, 1}, {10, 9}, {16, 8}, {1, 129}, {17, 16}, {1, 512}};
enum { PASSES = sizeof passes / sizeof *passes, RANDOM_SHAPES = 28, FIRST_RANDOM = 12 };

/* Of every kernel: few rows, more of them, tiles after tiles, and a chunk of prefill. */
static void check_passes(struct bench *b) {
    for (int p = 0; p < PASSES; p++) {
        if (passes[p][0] >= b->host.shape.slots || (test_is_small() && p > 0 && p % 3 != 1)) continue;
        b->prefill = false;
        bench_set_pass(b, passes[p][0], passes[p][1]);
        check_experts(b, false);
        if (b->count == 1) check_experts(b, true); /* else it makes no difference */
        b->prefill = passes[p][0] == 1;
        if (b->prefill) check_experts(b, true);
    }
}

/* Loop index: the shape, first all in bf16, then in f16. */
START_TEST(experts_agree_with_the_host)
{
    static struct bench b;
    const struct mini_shape shape = bench_shape(_i);
    if (shape.experts == 0) return;
    lab_open(&b.lab, 0);
    bench_open(&b, shape, false);
    check_passes(&b);
    bench_close(&b);
}
END_TEST

/* Loop index: the form, in either 16-bit type by turns where kernels take both; experts whose columns are out of order are never packed
 * (model/quantise.c). */
START_TEST(packed_experts_agree_with_the_host)
{
    static struct bench b;
    const struct mini_shape shape = {.name = "packed experts",
                                     .type = gpu_type_of_packed(_i, _i % 2 ? DTYPE_F16 : DTYPE_BF16),
                                     .packed = 1 + _i,
                                     .width = 256,
                                     .hidden = 512,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .head_dim = 32,
                                     .vocab = 40,
                                     .experts = 6,
                                     .chosen = 2,
                                     .has_expert_bias = true,
                                     .slots = 18};
    if (quantised_forms[_i].is_out_of_order) return;
    lab_open(&b.lab, 0);
    bench_open(&b, shape, false);
    check_passes(&b);
    bench_close(&b);
}
END_TEST

/* Loop index: the shape. */
START_TEST(experts_agree_with_the_host_for_random_shapes)
{
    static struct bench b;
    if (test_is_small()) return;
    lab_open(&b.lab, 0);
    b.lab.draws = (uint64_t)(_i + FIRST_RANDOM) << 32;
    bench_open(&b, bench_random_shape(&b.lab, _i + FIRST_RANDOM), false);
    check_passes(&b);
    bench_close(&b);
}
END_TEST

/* --- experts of a row and those of others ------------------------------------------------------------------------ */

enum pattern { BY_CHANCE, ALL_ALIKE, ALL_DIFFERENT, SOME_NOBODY, PATTERNS };

static void choose(struct bench *b, int count, enum pattern pattern) {
    const int chosen = b->host.shape.chosen, experts = b->host.shape.experts;
    for (int t = 0; t < count; t++) {
        const int first = pattern == ALL_ALIKE       ? 1
                          : pattern == ALL_DIFFERENT ? t * chosen
                                                     : lab_pick(&b->lab, 0, experts);
        for (int j = 0; j < chosen; j++) {
            const bool chooses = pattern != SOME_NOBODY || t % 3 != 0;
            b->host.expert_ids[t * chosen + j] = chooses ? (first + j) % experts : -1;
            b->host.expert_weights[t * chosen + j] = chooses ? lab_random(&b->lab) : 0;
        }
    }
    const size_t entries = (size_t)count * (size_t)chosen;
    gpu_put(&b->gpu, b->twin.expert_ids, b->host.expert_ids, entries * sizeof(int32_t));
    gpu_put(&b->gpu, b->twin.expert_weights, b->host.expert_weights, entries * sizeof(float));
}

/* Rows [first, first + count): h [count, chosen, hidden] and the experts' sum [count, width]. */
static void run_experts(struct bench *b, int first, int count, uint16_t *h, float *sum) {
    const struct mini_shape *s = &b->host.shape;
    struct rows rows = mini_rows(&b->twin, 1, count);
    struct op_experts_up up = mini_experts_up(&b->twin, rows);
    struct op_experts_down down = mini_experts_down(&b->twin, rows);
    up.x += (size_t)first * (size_t)s->width;
    up.ids += first * s->chosen, down.ids += first * s->chosen, down.weights += first * s->chosen;
    down.x = b->twin.output, down.stores = true;
    ck_ok(ops_cuda()->experts_up(b->gpu.lab.stream, &up));
    ck_ok(ops_cuda()->experts_down(b->gpu.lab.stream, &down));
    gpu_get(&b->gpu, h, up.h.data, (size_t)count * (size_t)(s->chosen * s->hidden) * sizeof *h);
    gpu_get(&b->gpu, sum, down.x, (size_t)count * (size_t)s->width * sizeof *sum);
}

/* The weights of experts that no row chose become NaN, or what they were. */
static void set_unchosen(struct bench *b, int count, bool poisons) {
    const struct mini_shape *s = &b->host.shape;
    struct mini_experts *host[MINI_EXPERTS_MAX], *gpu[MINI_EXPERTS_MAX];
    const int lists = mini_experts(&b->host, host);
    mini_experts(&b->twin, gpu);
    for (int e = 0; e < s->experts; e++) {
        bool is_chosen = false;
        for (int i = 0; i < count * s->chosen; i++) is_chosen = is_chosen || b->host.expert_ids[i] == e;
        for (int i = 0; i < lists && !is_chosen; i++) {
            const struct weight *w = &host[i]->each[e];
            const size_t bytes = (size_t)w->rows * (size_t)w->cols * 2;
            void *place = (void *)(uintptr_t)gpu[i]->each[e].data;
            if (poisons)
                ck_ok(stream_fill(b->gpu.lab.stream, place, 0xFF, bytes));
            else
                gpu_put(&b->gpu, place, w->data, bytes);
        }
    }
}

enum { ENTRY_NUMBERS_MAX = 12 * 5888 /* of a row: of all its experts */ };

static void check_rows_alone(struct bench *b, int count, const uint16_t *h, const float *sum) {
    static uint16_t h_alone[ENTRY_NUMBERS_MAX];
    static float sum_alone[COLS_MAX];
    const struct mini_shape *s = &b->host.shape;
    const size_t h_row = (size_t)(s->chosen * s->hidden), width = (size_t)s->width;
    for (int t = 0; t < count; t += 1 + t / 3) {
        const bool chooses = b->host.expert_ids[t * s->chosen] >= 0;
        run_experts(b, t, 1, h_alone, sum_alone);
        require(!chooses || memcmp(h_alone, h + (size_t)t * h_row, h_row * sizeof *h) == 0,
                "%s: h of row %d of %d is another alone", s->name, t, count);
        require(memcmp(sum_alone, sum + (size_t)t * width, width * sizeof *sum) == 0,
                "%s: the sum of row %d of %d is another alone", s->name, t, count);
    }
}

/* Loop index: the shape, first all in bf16, then in f16. */
START_TEST(experts_of_a_row_are_its_own_and_nobody_else_is_read)
{
    static struct bench b;
    static uint16_t h[ROWS_MAX * 1024], again[ROWS_MAX * 1024];
    static float sum[ROWS_MAX * 1024], sum_again[ROWS_MAX * 1024];
    static const int counts[] = {1, 5, 8, 9, 40, 128, 129, 400};
    const struct mini_shape shape = bench_shape(_i);
    if (shape.experts == 0) return;
    lab_open(&b.lab, 0);
    bench_open(&b, shape, false);
    const struct mini_shape *s = &b.host.shape;
    bench_share_floats(&b, b.host.x, b.twin.x, ROWS_MAX, s->width);
    for (int i = 0; i < 8 * PATTERNS; i += test_is_small() ? 7 : 1) {
        const int count = counts[i % 8];
        choose(&b, count, (enum pattern)(i / 8));
        run_experts(&b, 0, count, h, sum);
        check_rows_alone(&b, count, h, sum);
        gpu_put(&b.gpu, b.twin.expert_h, h, (size_t)count * (size_t)(s->chosen * s->hidden) * sizeof *h);
        set_unchosen(&b, count, true);
        run_experts(&b, 0, count, again, sum_again);
        ck_assert_mem_eq(again, h, (size_t)count * (size_t)(s->chosen * s->hidden) * sizeof *h);
        ck_assert_mem_eq(sum_again, sum, (size_t)(count * s->width) * sizeof *sum);
        set_unchosen(&b, count, false);
    }
    bench_close(&b);
}
END_TEST

/* Of packed weights, by what k is cut into: shares of a block's warps, alike and not, and more than their tokens find room for at once. */
static const struct {
    int width, hidden, experts, chosen, forms;
} cuts[] = {{256, 768, 9, 8, QUANTISED_FORMS}, {512, 2816, 5, 4, QUANTISED_FORMS}, {256, 5888, 13, 12, 1}};

/* Loop index: the form, and the cut. */
START_TEST(packed_experts_of_a_row_are_its_own)
{
    enum { ROWS = 9 };
    static struct bench b;
    static uint16_t h[ROWS * ENTRY_NUMBERS_MAX];
    static float sum[ROWS * 1024];
    const int form = _i % QUANTISED_FORMS, cut = _i / QUANTISED_FORMS;
    const struct mini_shape shape = {.name = "packed experts",
                                     .type = gpu_type_of_packed(form, form % 2 ? DTYPE_F16 : DTYPE_BF16),
                                     .packed = 1 + form,
                                     .width = cuts[cut].width,
                                     .hidden = cuts[cut].hidden,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .head_dim = 32,
                                     .vocab = 40,
                                     .experts = cuts[cut].experts,
                                     .chosen = cuts[cut].chosen,
                                     .slots = 18};
    if (form >= cuts[cut].forms || quantised_forms[form].is_out_of_order || test_is_small()) return;
    lab_open(&b.lab, 0);
    bench_open(&b, shape, false);
    bench_share_floats(&b, b.host.x, b.twin.x, ROWS_MAX, shape.width);
    choose(&b, ROWS, SOME_NOBODY);
    run_experts(&b, 0, ROWS, h, sum);
    check_rows_alone(&b, ROWS, h, sum);
    bench_close(&b);
}
END_TEST

START_TEST(experts_that_lie_irregularly_are_refused)
{
    static struct bench b;
    lab_open(&b.lab, 1);
    bench_open(&b, bench_shape(bench_shape_count() - 1), false);
    bench_set_pass(&b, 1, 1);
    struct op_experts_up up = mini_experts_up(&b.twin, bench_gpu_rows(&b));
    up.gate.apart += 8;
    ck_assert_int_eq(ops_cuda()->experts_up(b.gpu.lab.stream, &up), ERR_INTERNAL);
    bench_close(&b);
}
END_TEST

Suite *check_experts_cuda(void);
Suite *check_experts_cuda(void) {
    Suite *suite = suite_create("experts_cuda");
    TCase *tc = tcase_create("experts_cuda");
    tcase_add_loop_test(tc, choices_among_many_are_those_of_the_host, 0, sizeof many / sizeof *many);
    tcase_add_loop_test(tc, packed_experts_agree_with_the_host, 0, QUANTISED_FORMS);
    tcase_add_loop_test(tc, experts_agree_with_the_host, 0, 2 * bench_shape_count());
    tcase_add_loop_test(tc, experts_agree_with_the_host_for_random_shapes, 0, RANDOM_SHAPES);
    tcase_add_loop_test(tc, experts_of_a_row_are_its_own_and_nobody_else_is_read, 0, 2 * bench_shape_count());
    tcase_add_loop_test(tc, packed_experts_of_a_row_are_its_own, 0,
                        QUANTISED_FORMS * (int)(sizeof cuts / sizeof *cuts));
    tcase_add_test(tc, experts_that_lie_irregularly_are_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
