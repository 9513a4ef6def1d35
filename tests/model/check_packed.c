/* Packed weights: what a device streams is what the format says, and the layout is the one that its header describes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/format_blocks.h"
#include "model/packed.h"
#include "tests/support/quantised_support.h"
#include "tests/support/support.h"

static const int shapes[][2] = {{3, 64}, {5, 256}, {2, 576}, {17, 1160}, {4, 4096}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool is_made_for(const struct quantised_form *f, int cols) {
    const int group = f->group && f->group < cols ? f->group : cols;
    if (cols % PACKED_BLOCK != 0) return false;
    if (f->format == DTYPE_FP8) return group == cols || group % 128 == 0;
    return block_reader(f->format) || group == cols || group == 16 || group == 32 || group == 64 || group % 128 == 0;
}

static struct weight pack(struct lab *lab, struct packed *p, const struct weight *w, int threads) {
    const size_t bytes = packed_bytes(p, w->rows, w->cols);
    void *memory = lab_alloc(lab, bytes);
    packed_fill(p, w, NULL, w->rows, memory, threads);
    return (struct weight){.data = memory, .format = DTYPE_PACKED, .rows = w->rows, .cols = w->cols, .packed = p};
}

/* Every stored scale has 11 bits at most, or there is one a row. */
static bool has_exact_scales(const struct quantised_form *f, const struct packed *p) {
    if (f->has_zeros || (p->has_minima && block_reader(f->format))) return false;
    return p->group == 0 || f->scale == DTYPE_F16 || f->scale == DTYPE_BF16 || f->scale == DTYPE_E8M0 ||
           f->format == DTYPE_Q8_0 || f->format == DTYPE_Q4_0 || f->format == DTYPE_Q5_0;
}

static void compare(const struct quantised_form *f, const struct weight *packed, const struct weight *wide, int shape) {
    float *got = malloc((size_t)packed->cols * sizeof *got);
    for (int r = 0; r < packed->rows; r++) {
        const float *expected = (const float *)wide->data + (size_t)r * (size_t)wide->cols;
        float largest = 0;
        for (int c = 0; c < wide->cols; c++) largest = fmaxf(largest, fabsf(expected[c]));
        packed_read(got, packed, r, 0, packed->cols);
        for (int c = 0; c < wide->cols; c++) {
            const bool is_exact = has_exact_scales(f, packed->packed) && fabsf(expected[c]) > largest * 0x1p-9f;
            const double bound = is_exact ? 0 : (double)largest * 0x1p-10;
            ck_assert_msg(fabs((double)got[c] - (double)expected[c]) <= bound, "shape %d: [%d, %d] is %a, not %a",
                          shape, r, c, (double)got[c], (double)expected[c]);
        }
    }
    free(got);
}

/* Loop index: the form. */
START_TEST(a_packed_weight_stands_for_the_numbers_of_its_format)
{
    const struct quantised_form *f = &quantised_forms[_i];
    for (int i = 0; i < SHAPES; i++) {
        const int each = dtype_block(f->format).numbers, cols = (shapes[i][1] + each - 1) / each * each;
        struct lab lab;
        struct scales scales = {0};
        struct packed p;
        lab_open(&lab, 2);
        const struct weight w = quantised_weight(&lab, f, &scales, shapes[i][0], cols),
                            wide = dequantised_weight(&lab, &w);
        ck_assert_int_eq(packed_plan(&p, &w, f->has_zeros), is_made_for(f, cols));
        if (is_made_for(f, cols)) {
            const struct weight packed = pack(&lab, &p, &w, 2);
            compare(f, &packed, &wide, i);
        }
        lab_close(&lab);
    }
}
END_TEST

START_TEST(columns_out_of_order_are_packed_if_an_order_makes_whole_groups_of_them)
{
    enum { COLS = 256, GROUP = 64 };
    struct lab lab;
    struct packed p, same, other;
    int32_t group_of[COLS];
    lab_open(&lab, 1);
    const float one = 1;
    const struct scales s = {
        .data = &one, .type = DTYPE_F32, .rows = INT32_MAX, .group = GROUP, .factor = 1, .group_of = group_of};
    const struct weight w = {
        .data = lab_alloc(&lab, COLS / 2), .format = DTYPE_INT4, .rows = 1, .cols = COLS, .scales = &s};
    for (int c = 0; c < COLS; c++) group_of[c] = c % (COLS / GROUP);
    ck_assert(packed_plan(&p, &w, false) && packed_plan(&same, &w, false) && packed_is_alike(&p, &same));
    group_of[0] = 1;
    ck_assert(!packed_plan(&other, &w, false));
    group_of[1] = 0;
    ck_assert(packed_plan(&other, &w, false) && !packed_is_alike(&p, &other));
    lab_close(&lab);
}
END_TEST

/* Loop index: FP8, int4 or FP4. Lane `part` of a piece reads 16 bytes: of each block of 32 columns four, and the four that lie 16
 * behind. Of all numbers one is not 0; which bits of its word it has is what the kernels' masks take for granted. */
START_TEST(a_lane_finds_its_columns_in_16_bytes)
{
    enum { COLS = 512 };
    static const struct layout_case {
        enum dtype format;
        int zeros, group;    /* two stored numbers of 0; columns that share a scale once packed */
        uint32_t stored;     /* one that is not */
        uint32_t zero_word;  /* packed */
        uint32_t changed[4]; /* bits of the halves of a word, for pair 0, 1, 2 and 3 */
    } cases[] = {
        {DTYPE_FP8, 0, 0, 0xB8 /* -1 */, 0, {0x3808, 0x8380}},
        {DTYPE_INT4, 0x88, 128, 0xF, 0x88888888u, {0x7, 0x70, 0x700, 0x7000}},
        {DTYPE_FP4, 0, 32, 0xF /* -6 */, 0, {0x81C0, 0x1038, 0x0207, 0x6C00}},
    };
    const struct layout_case *f = &cases[_i];
    struct lab lab;
    struct packed p;
    lab_open(&lab, 1);
    const bool is_4 = f->format != DTYPE_FP8;
    const float one = 1;
    struct scales s = {.data = &one, .type = DTYPE_F32, .rows = INT32_MAX, .group = COLS, .stride = 0, .factor = 1};
    uint8_t *data = lab_alloc(&lab, COLS);
    const struct weight w = {.data = data, .format = f->format, .rows = 1, .cols = COLS, .scales = &s};
    ck_assert(packed_plan(&p, &w, false) && p.group == f->group);
    for (int c = 0; c < COLS; c++) {
        memset(data, f->zeros, COLS);
        if (is_4)
            data[c / 2] = (uint8_t)((data[c / 2] & (c % 2 ? 0x0F : 0xF0)) | f->stored << c % 2 * 4);
        else
            data[c] = (uint8_t)f->stored;
        const struct weight packed = pack(&lab, &p, &w, 1);
        const int piece = is_4 ? 128 : 64, block = c % piece / 32, in_block = c % 32;
        const int part = in_block % 16 / 4, at = in_block / 16 * 4 + in_block % 4;
        const uint8_t *lane = (const uint8_t *)packed.data + c / piece * 64 + part * 16;
        uint32_t word;
        memcpy(&word, lane + (is_4 ? block * 4 : block * 8 + at / 4 * 4), sizeof word);
        ck_assert_uint_eq(word, f->zero_word ^ f->changed[is_4 ? at / 2 : at % 4 / 2] << at % 2 * 16);
        lab_free_last(&lab);
    }
    lab_close(&lab);
}
END_TEST

Suite *check_packed(void);
Suite *check_packed(void) {
    Suite *suite = suite_create("packed");
    TCase *tc = tcase_create("packed");
    tcase_add_loop_test(tc, a_packed_weight_stands_for_the_numbers_of_its_format, 0, QUANTISED_FORMS);
    tcase_add_test(tc, columns_out_of_order_are_packed_if_an_order_makes_whole_groups_of_them);
    tcase_add_loop_test(tc, a_lane_finds_its_columns_in_16_bytes, 0, 3);
    suite_add_tcase(suite, tc);
    return suite;
}
