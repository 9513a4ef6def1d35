/* Prefill on a GPU: rows of other positions are not seen, its bits come again, it agrees with the kernels of decoding, and
 * nothing is allocated for any length. The ops' values are check_ops_cuda's. */
#include <stdio.h>
#include <string.h>

#include "engine/internal.h"
#include "tests/cuda/gpu_lab.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"

/* --- attention ---------------------------------------------------------------------------------------------- */

enum { PAGES_PER_SLOT = 4, ROWS_MAX = 512 };

static const struct mini_shape shapes[] = {
    {.type = DTYPE_BF16, .heads = 8, .kv_heads = 2, .head_dim = 128},
    {.type = DTYPE_F16, .heads = 4, .kv_heads = 1, .head_dim = 64, .window = 100},
    {.type = DTYPE_BF16, .heads = 3, .kv_heads = 3, .head_dim = 24, .window = 16},
    {.type = DTYPE_BF16, .heads = 4, .kv_heads = 2, .head_dim = 10},
    {.type = DTYPE_F16, .heads = 2, .kv_heads = 1, .head_dim = 256},
    {.type = DTYPE_BF16, .heads = 2, .kv_heads = 1, .head_dim = 512, .attention_scale = 0.0625f},
    {.type = DTYPE_F16, .heads = 2, .kv_heads = 2, .head_dim = 300, .window = 100, .attention_cap = 2},
    {.type = DTYPE_BF16, .heads = 8, .kv_heads = 2, .head_dim = 64, .window = 128, .has_sinks = true},
    {.type = DTYPE_BF16, .heads = 4, .kv_heads = 2, .head_dim = 32, .attention_scale = -1, .attention_cap = 3},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct bench {
    struct lab lab;
    struct gpu gpu;
    struct mini host, twin;
    struct weight raw;
    float *q;
};

static void open_bench(struct bench *b, struct mini_shape shape) {
    shape.width = 64, shape.hidden = 64, shape.vocab = 64;
    shape.slots = 2, shape.pages_per_slot = PAGES_PER_SLOT, shape.max_rows = ROWS_MAX;
    lab_open(&b->lab, 1);
    gpu_open(&b->gpu);
    mini_make(&b->lab, &b->host, shape);
    b->raw = mini_random_caches(&b->lab, &b->host);
    gpu_twin(&b->gpu, &b->host, &b->raw, &b->twin);
    b->q = lab_random_floats(&b->lab, (size_t)PAGES_PER_SLOT * KV_PAGE * (size_t)(shape.heads * shape.head_dim));
}

static void close_bench(struct bench *b) {
    gpu_close(&b->gpu);
    lab_close(&b->lab);
}

static size_t row_size(const struct bench *b) {
    return (size_t)(b->host.shape.heads * b->host.shape.head_dim);
}

/* Attention of positions first..first+rows-1 of slot 1; out [rows, H DH] of 16 bits. */
static void attend(struct bench *b, int first, int rows, uint16_t *out) {
    for (int i = 0; i < rows; i++) b->host.positions[i] = first + i, b->host.tokens[i] = 0;
    b->host.row_slot[0] = 1;
    gpu_put_rows(&b->gpu, &b->host, &b->twin, 1, rows);
    gpu_put(&b->gpu, b->twin.q, b->q + (size_t)first * row_size(b), (size_t)rows * row_size(b) * sizeof *b->q);
    struct rows pass = mini_rows(&b->twin, 1, rows);
    pass.prefill = true;
    struct op_attention op = mini_attention(&b->twin, pass);
    ck_ok(ops_cuda()->attention(b->gpu.lab.stream, &op));
    gpu_get(&b->gpu, out, op.out.data, (size_t)rows * row_size(b) * sizeof *out);
}

static const int cuts[][2] = {{0, 1}, {0, 64}, {1, 2}, {63, 3}, {255, 2}, {256, 256}, {240, 33}, {300, 77}, {511, 1}};
enum { CUTS = sizeof cuts / sizeof *cuts };

/* Loop index: the shape. */
START_TEST(attention_of_a_row_has_the_same_bits_in_any_chunk)
{
    static struct bench b;
    static uint16_t all[512 * 1024], some[512 * 1024];
    open_bench(&b, shapes[_i]);
    attend(&b, 0, 512, all);
    for (int i = 0; i < CUTS; i += test_is_small() ? 4 : 1) {
        size_t at = (size_t)cuts[i][0] * row_size(&b), n = (size_t)cuts[i][1] * row_size(&b);
        attend(&b, cuts[i][0], cuts[i][1], some);
        for (size_t j = 0; j < n; j++)
            require(some[j] == all[at + j], "rows %d + %d: row %zu, column %zu is 0x%04x, in a large chunk 0x%04x",
                    cuts[i][0], cuts[i][1], j / row_size(&b), j % row_size(&b), some[j], all[at + j]);
    }
    close_bench(&b);
}
END_TEST

/* Pages that another sequence left full of NaN: cells past the chunk's last row, and all of other slots. */
START_TEST(nan_past_the_last_row_is_never_seen)
{
    static struct bench b;
    static uint16_t clean[512 * 1024], dirty[512 * 1024];
    open_bench(&b, shapes[_i]);
    size_t half = b.host.kv_floats, bytes = (size_t)b.host.shape.head_dim * sizeof(uint16_t);
    uint16_t *nan = lab_alloc(&b.lab, 2 * half * sizeof *nan);
    const uint16_t *raw = b.raw.data;
    for (int i = 0; i < CUTS; i += test_is_small() ? 4 : 1) {
        int first = cuts[i][0], rows = cuts[i][1];
        size_t n = (size_t)rows * row_size(&b);
        gpu_restore_caches(&b.gpu, &b.twin, &b.raw);
        attend(&b, first, rows, clean);
        memset(nan, 0xFF, 2 * half * sizeof *nan);
        for (int j = 0; j < first + rows; j++)
            for (int h = 0; h < b.host.shape.kv_heads; h++) {
                size_t cell = mini_cell(&b.host, 1, j, h);
                memcpy(nan + cell, raw + cell, bytes);
                memcpy(nan + half + cell, raw + half + cell, bytes);
            }
        struct weight poisoned = b.raw;
        poisoned.data = nan;
        gpu_restore_caches(&b.gpu, &b.twin, &poisoned);
        attend(&b, first, rows, dirty);
        ck_assert_msg(memcmp(dirty, clean, n * sizeof *dirty) == 0, "rows %d + %d see NaN past them", first, rows);
    }
    close_bench(&b);
}
END_TEST

/* --- engines ------------------------------------------------------------------------------------------------ */

static struct request filler(int id, int n, int max_tokens) {
    int32_t ids[1024];
    for (int i = 0; i < n; i++) ids[i] = (id + 7 * i + i * i % 31) % 100 + 3; /* of every pair's vocabulary */
    struct request r = ids_request(ids, (size_t)n, max_tokens);
    r.generation.ignore_end = true;
    return r;
}

/* Turns of these lengths, each answered by 9 tokens. */
static void talk(struct engine *e, struct sequence *s, const int *lengths, int turns) {
    for (int t = 0; t < turns; t++) {
        struct request r = filler(t, lengths[t], 9);
        struct answer a = run_turn(e, s, &r);
        ids_free(&a.ids);
        free_requests(&r, 1);
    }
}

START_TEST(prefill_twice_gives_the_same_bits)
{
    static const int turns[] = {530, 1, 70, 300};
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct engine_options options = pair_options(&pairs[0], 3, 3);
    struct engine *e = must_open(&options);
    struct sequence *first, *other, *second;
    int n, m;
    ck_ok(engine_open(e, 1000, &first));
    talk(e, first, turns, 4);
    ck_ok(engine_open(e, 1000, &other)); /* scratch and workspace hold other numbers, pages lie elsewhere */
    talk(e, other, (int[]){650, 2}, 2);
    ck_ok(engine_open(e, 1000, &second));
    talk(e, second, turns, 4);
    const int32_t *a = engine_tokens(first, &n), *b = engine_tokens(second, &m);
    ck_assert_int_eq(n, m);
    ck_assert_int_eq(memcmp(a, b, (size_t)n * sizeof *a), 0);
    must_equal_kv((struct kv_owner){e, second}, (struct kv_owner){e, first}, PROBE_TARGET, n - 1, "the second time");
    must_equal_kv((struct kv_owner){e, second}, (struct kv_owner){e, first}, PROBE_DRAFT, n - 2, "the second time");
    engine_destroy(e);
}
END_TEST

/* Loop index: the checkpoint, the embedded pair's target first. Lengths end inside, at and past chunks. */
START_TEST(prefill_agrees_with_the_kernels_of_decoding)
{
    static const char *const names[] = {"fixtures/checkpoints/llama-mha-untied",
                                        "fixtures/checkpoints/mistral-swa",
                                        "fixtures/checkpoints/llama-mqa-headdim32",
                                        "fixtures/checkpoints/qwen2-bias",
                                        "fixtures/checkpoints/qwen3-qknorm",
                                        "models/stories260K",
                                        "fixtures/families/gemma2",
                                        "fixtures/families/gemma3-text",
                                        "fixtures/families/olmo2",
                                        "fixtures/families/granite",
                                        "fixtures/families/glm4",
                                        "fixtures/families/phi3",
                                        "fixtures/formats/ct-fp8-channel",
                                        "fixtures/formats/fp8-block",
                                        "fixtures/formats/awq-g128",
                                        "fixtures/formats/gptq-desc-act",
                                        "fixtures/formats/ct-int4-g32-asym",
                                        "fixtures/formats/ct-mxfp4",
                                        "fixtures/formats/nvfp4"};
    static const int lengths[] = {2, 65, 129, 257, 470, 12, 30, 900};
    char dir[4096];
    const char *found = _i == 0 ? asset_path("target") : shared_path(names[_i - 1]);
    if (!found) {
        skip("no test data");
        return;
    }
    snprintf(dir, sizeof dir, "%s", found);
    struct engine_options options = {.target = test_checkpoint(dir), .device = "cuda", .max_batch = 3};
    struct engine *e = must_open(&options);
    for (int i = 0; i < (_i == 0 ? 8 : 7); i++) {
        struct request r = filler(i, lengths[i], 1);
        struct sequence *s[2];
        for (int j = 0; j < 2; j++) {
            ck_ok(engine_open(e, lengths[i] + 1, &s[j]));
            probe_set_row_invariant_prefill(e, j == 1);
            struct answer a = run_turn(e, s[j], &r);
            ids_free(&a.ids);
        }
        must_be_close_kv((struct kv_owner){e, s[0]}, (struct kv_owner){e, s[1]}, PROBE_TARGET, lengths[i] - 1, 0.05,
                         found);
        engine_close(e, s[0]);
        engine_close(e, s[1]);
        free_requests(&r, 1);
    }
    engine_destroy(e);
}
END_TEST

START_TEST(no_length_of_a_prompt_allocates)
{
    static const int lengths[] = {1,   2,   3,   9,   17,  63,  64,  65,  66,  100,
                                  130, 200, 257, 300, 400, 450, 512, 513, 514, 770};
    enum { LENGTHS = sizeof lengths / sizeof *lengths };
    struct pair pairs[PAIRS_MAX];
    uint64_t before, after, total;
    int count = test_pairs(pairs);
    for (int i = 0; i < count && i < 2; i++) { /* the second has a width of no multiple of 8 */
        struct engine_options options = pair_options(&pairs[i], 4, 1);
        struct engine *e = must_open(&options);
        uint64_t allocations = engine_counts(e).device_allocations;
        ck_ok(device_memory(e->device, &before, &total));
        for (int l = 0; l < LENGTHS && lengths[l] + 10 < engine_info(e).context; l++) {
            struct request r = filler(l, lengths[l], 3);
            struct answer a;
            run_requests(e, &r, 1, &a);
            free_requests(&r, 1);
            free_answers(&a, 1);
        }
        ck_ok(device_memory(e->device, &after, &total));
        ck_assert_msg(before == after, "%lld bytes of GPU memory went", (long long)(before - after));
        ck_assert_uint_eq(engine_counts(e).device_allocations, allocations);
        engine_destroy(e);
    }
}
END_TEST

/* Decoding rewrites some prefilled positions of the draft by other kernels, and no more than rounding may come of it. */
START_TEST(a_draft_equal_to_the_target_is_accepted_but_for_rounding)
{
    struct pair pairs[PAIRS_MAX];
    test_pairs(pairs);
    struct pair self = self_pair(&pairs[0]);
    struct engine_options options = pair_options(&self, 4, 1);
    struct engine *e = must_open(&options);
    struct sequence *s;
    ck_ok(engine_open(e, 1000, &s));
    talk(e, s, (int[]){90, 300, 7, 200, 40, 1, 1, 60}, 8);
    ck_assert_int_gt(engine_stats(e)->rounds, 8);
    ck_assert(acceptance_alpha(engine_stats(e)) > 0.9);
    engine_destroy(e);
}
END_TEST

Suite *check_prefill_cuda(void);
Suite *check_prefill_cuda(void) {
    Suite *suite = suite_create("prefill_cuda");
    TCase *tc = tcase_create("prefill_cuda");
    tcase_add_loop_test(tc, attention_of_a_row_has_the_same_bits_in_any_chunk, 0, SHAPES);
    tcase_add_loop_test(tc, nan_past_the_last_row_is_never_seen, 0, SHAPES);
    suite_add_tcase(suite, tc);
    if (test_is_small()) return suite;
    tc = tcase_create("prefill_cuda_engines");
    tcase_add_test(tc, prefill_twice_gives_the_same_bits);
    tcase_add_loop_test(tc, prefill_agrees_with_the_kernels_of_decoding, 0, 20);
    tcase_add_test(tc, no_length_of_a_prompt_allocates);
    tcase_add_test(tc, a_draft_equal_to_the_target_is_accepted_but_for_rounding);
    suite_add_tcase(suite, tc);
    return suite;
}
