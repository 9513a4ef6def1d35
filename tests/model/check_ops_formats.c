/* Quantised weights: what their numbers stand for, and products of them, which must have the bits of products of the dequantised
 * weights in f32: then all that holds of those (rows, threads, instruction sets) holds here. */
#include <math.h>
#include <string.h>

#include "model/format.h"
#include "model/kernels/host/isa.h"
#include "tests/support/quantised_support.h"
#include "tests/support/support.h"

/* --- numbers ------------------------------------------------------------------------------------------------ */

/* A float of `exponent` bits and `mantissa` bits below a sign, without infinities. */
static double small_float(unsigned code, int exponent, int mantissa, int bias) {
    const unsigned e = code >> mantissa & ((1u << exponent) - 1), m = code & ((1u << mantissa) - 1);
    const double magnitude =
        e ? ldexp((double)(m | 1u << mantissa), (int)e - bias - mantissa) : ldexp((double)m, 1 - bias - mantissa);
    return code >> (exponent + mantissa) & 1 ? -magnitude : magnitude;
}

START_TEST(small_floats_are_what_their_bits_say)
{
    for (unsigned code = 0; code < 256; code++) {
        const float got = format_from_fp8((uint8_t)code);
        if ((code & 0x7F) == 0x7F)
            ck_assert(isnan(got));
        else
            ck_assert_msg((double)got == small_float(code, 4, 3, 7), "E4M3 %02x is %g", code, (double)got);
        if (code < 16) ck_assert((double)format_fp4_values[code] == small_float(code, 2, 1, 1));
        if (code < 255) ck_assert((double)format_from_e8m0((uint8_t)code) == ldexp(1, (int)code - 127));
    }
    ck_assert(isnan(format_from_e8m0(255)));
    ck_assert(signbit(format_from_fp8(0x80)) && signbit(format_fp4_values[8]));
}
END_TEST

/* Two rows of 4 columns, by hand. */
START_TEST(scales_zeros_and_groups_are_those_of_row_and_column)
{
    static const uint8_t nibbles[4] = {0x21, 0x43, 0xF8, 0x0F}, zeros[4] = {1, 2, 8, 16};
    static const float scales[4] = {1, 10, 100, 1000}, values[16] = {[1] = 5, [2] = 7, [15] = -3};
    static const int32_t group_of[4] = {1, 0, 1, 0};
    struct scales s = {.data = scales, .type = DTYPE_F32, .rows = 1, .group = 2, .stride = 2, .factor = 2};
    struct weight w = {.data = nibbles, .format = DTYPE_INT4, .rows = 2, .cols = 4, .scales = &s};
    float out[4];
    format_of(DTYPE_INT4)->dequantise(out, &w, 0, 0, 4);
    ck_assert(out[0] == -14 && out[1] == -12 && out[2] == -100 && out[3] == -80);
    s.zeros = zeros;
    format_of(DTYPE_INT4)->dequantise(out, &w, 0, 0, 4);
    ck_assert(out[0] == 0 && out[1] == 2 && out[2] == 20 && out[3] == 40);
    format_of(DTYPE_INT4)->dequantise(out, &w, 1, 2, 2);
    ck_assert(out[0] == -2000 && out[1] == -32000);
    s.group_of = group_of;
    format_of(DTYPE_INT4)->dequantise(out, &w, 0, 0, 4);
    ck_assert(out[0] == -20 && out[1] == 2 && out[2] == 20 && out[3] == 6);
    s = (struct scales){.data = scales, .type = DTYPE_F32, .rows = 2, .first = 1, .group = 4, .stride = 1, .factor = 1};
    s.values = values, w.format = DTYPE_NF4;
    format_of(DTYPE_NF4)->dequantise(out, &w, 0, 0, 2);
    ck_assert(out[0] == 7 && out[1] == 5); /* the first in the high half; row 0 is the second of its cell */
    format_of(DTYPE_NF4)->dequantise(out, &w, 1, 0, 2);
    ck_assert(out[0] == -30 && out[1] == 0);
    w.format = DTYPE_FP4;
    format_of(DTYPE_FP4)->dequantise(out, &w, 0, 0, 4);
    ck_assert(out[0] == 0.5f && out[1] == 1 && out[2] == 1.5f && out[3] == 2);
}
END_TEST

/* --- products ----------------------------------------------------------------------------------------------- */

static void must_have_bits(const float *got, const float *expected, size_t n, const char *what, int form, int tokens) {
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(memcmp(&got[i], &expected[i], sizeof *got) == 0,
                      "%s, %s, form %d, %d tokens: [%zu] is %a, not %a", what, host_isa()->name, form, tokens, i,
                      (double)got[i], (double)expected[i]);
}

static void check_products(struct lab *lab, int form, int rows, int cols, int tokens) {
    const int each = dtype_block(quantised_forms[form].format).numbers;
    cols = (cols + each - 1) / each * each;
    struct scales scales, up_scales;
    const struct weight w = quantised_weight(lab, &quantised_forms[form], &scales, rows, cols),
                        wide = dequantised_weight(lab, &w);
    const struct weight up = quantised_weight(lab, &quantised_forms[form], &up_scales, rows, cols),
                        wide_up = dequantised_weight(lab, &up);
    const size_t n = (size_t)tokens * (size_t)rows;
    float *x = lab_random_floats(lab, (size_t)tokens * (size_t)cols), *got = lab_alloc(lab, n * sizeof *got);
    float *expected = lab_alloc(lab, n * sizeof *expected), *normed = lab_alloc(lab, (size_t)tokens * (size_t)cols * 4);
    struct op_project project = {
        .rows = {.batch = 1, .q_len = tokens}, .h = {x, DTYPE_F32}, .scale = 1, .stores = true};
    struct op_gate_up gate = {.rows = {.batch = 1, .q_len = tokens}, .x = x, .width = cols, .hidden = rows};
    gate.normed = (struct buffer){normed, DTYPE_F32};
    project.w = wide, project.x = expected;
    ck_ok(ops_host()->project(lab->stream, &project));
    project.w = w, project.x = got;
    ck_ok(ops_host()->project(lab->stream, &project));
    must_have_bits(got, expected, n, "project", form, tokens);
    gate.gate = wide, gate.up = wide_up, gate.h = (struct buffer){expected, DTYPE_F32};
    ck_ok(ops_host()->gate_up(lab->stream, &gate));
    gate.gate = w, gate.up = up, gate.h = (struct buffer){got, DTYPE_F32};
    ck_ok(ops_host()->gate_up(lab->stream, &gate));
    must_have_bits(got, expected, n, "gate and up", form, tokens);
}

/* Loop index: the form. Shapes with ends of rows in and between steps, and more columns than a piece has. */
START_TEST(a_product_has_the_bits_of_the_dequantised_weight)
{
    static const int shapes[][3] = {{19, 64, 1},   {19, 64, 7},   {9, 1160, 2}, {9, 1160, 5}, {5, 48, 3},
                                    {8, 34, 4},    {9, 1056, 2},  {9, 1056, 3}, {9, 1056, 4}, {21, 1056, 5},
                                    {130, 576, 6}, {70, 576, 11}, {70, 96, 33}};
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
            struct lab lab;
            lab_open(&lab, 2);
            check_products(&lab, _i, shapes[j][0], shapes[j][1], shapes[j][2]);
            lab_close(&lab);
        }
    }
}
END_TEST

START_TEST(embeddings_and_strided_rows_are_read_from_quantised_weights)
{
    enum { COLS = 256 };
    for (int i = 0; host_isa_at(i); i++) {
        if (!host_isa_at(i)->is_supported()) continue;
        host_isa_force(host_isa_at(i));
        struct lab lab;
        lab_open(&lab, 1);
        struct scales scales = {.rows = 1};
        const int cols = dtype_block(quantised_forms[_i].format).numbers > 32 ? COLS : 96;
        struct weight w = quantised_weight(&lab, &quantised_forms[_i], &scales, 6, cols),
                      wide = dequantised_weight(&lab, &w);
        int32_t ids[6] = {5, 0, 3, 3, 9, 1};
        float got[6 * COLS], expected[6 * COLS];
        struct op_embed op = {
            .rows = {.batch = 1, .q_len = 6, .tokens = ids}, .table = wide, .scale = 1, .out = expected};
        ck_ok(ops_host()->embed(lab.stream, &op));
        op.table = w, op.out = got;
        ck_ok(ops_host()->embed(lab.stream, &op));
        must_have_bits(got, expected, 6 * (size_t)cols, "embed", _i, 6);
        if (scales.rows == 1) { /* every other row, as gpt-oss has gate and up */
            float row[COLS];
            scales.stride *= 2, w.stride = 2 * cols;
            host_isa()->unpack(row, &w, 2, 0, cols);
            ck_assert_mem_eq(row, (const float *)wide.data + 4 * cols, sizeof *row * (size_t)cols);
        }
        lab_close(&lab);
    }
}
END_TEST

Suite *check_ops_formats(void) {
    Suite *suite = suite_create("ops_formats");
    TCase *tc = tcase_create("formats");
    tcase_add_test(tc, small_floats_are_what_their_bits_say);
    tcase_add_test(tc, scales_zeros_and_groups_are_those_of_row_and_column);
    tcase_add_loop_test(tc, a_product_has_the_bits_of_the_dequantised_weight, 0, QUANTISED_FORMS);
    tcase_add_loop_test(tc, embeddings_and_strided_rows_are_read_from_quantised_weights, 0, QUANTISED_FORMS);
    suite_add_tcase(suite, tc);
    return suite;
}
