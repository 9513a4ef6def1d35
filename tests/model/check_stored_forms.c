/* Small matrices written as each tool writes them, read back as the numbers that they stand for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/files/stored.h"
#include "model/format.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

enum { OUT = 16, IN = 64, GROUP = 32, GROUPS = IN / GROUP };

/* What is stored: numbers of four bits, zeros, and scales that bf16, f16 and f32 hold. */
static struct {
    int q[OUT][IN], z[OUT][GROUPS];
    float s[OUT][GROUPS];
} matrix;

static void fill_matrix(void) {
    struct damage random = {7};
    for (int o = 0; o < OUT; o++) {
        for (int i = 0; i < IN; i++) matrix.q[o][i] = (int)damage_below(&random, 16);
        for (int g = 0; g < GROUPS; g++) {
            matrix.z[o][g] = 1 + (int)damage_below(&random, 15);
            matrix.s[o][g] = ldexpf(1 + (float)damage_below(&random, 8) / 8, -(int)damage_below(&random, 4));
        }
    }
}

/* --- writing -------------------------------------------------------------------------------------------------- */

struct writer {
    struct buf header, data;
};

static void add(struct writer *w, const char *name, const char *dtype, const char *shape, const void *data, size_t n) {
    buf_printf(&w->header, "%s\"m.%s\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [%zu, %zu]}",
               w->header.len ? ", " : "{", name, dtype, shape, w->data.len, w->data.len + n);
    buf_append(&w->data, data, n);
}

static struct safetensors *open_written(struct writer *w) {
    struct buf file = {0};
    char path[256];
    struct safetensors *s;
    buf_puts(&w->header, "}");
    while (w->header.len % 8) buf_putc(&w->header, ' ');
    const uint64_t length = w->header.len;
    buf_append(&file, (const char *)&length, sizeof length);
    buf_append(&file, w->header.data, w->header.len);
    buf_append(&file, w->data.data, w->data.len);
    snprintf(path, sizeof path, "%s/m.safetensors", temp_dir());
    damage_write_file(path, file.data, file.len);
    ck_ok(safetensors_open(&s, path));
    buf_free(&file), buf_free(&w->header), buf_free(&w->data);
    return s;
}

static uint16_t f16_of(float x) { /* a normal number of few bits */
    return (uint16_t)(((fmath_bits(x) >> 23) - 112) << 10 | (fmath_bits(x) >> 13 & 0x3FF));
}

static const int awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

/* Zeros [GROUPS, OUT / 8] and scales [GROUPS, OUT], as GPTQ and AWQ have them. */
static void add_transposed(struct writer *w, bool is_awq, int less) {
    uint32_t zeros[GROUPS][OUT / 8] = {{0}};
    uint16_t scales[GROUPS][OUT];
    for (int g = 0; g < GROUPS; g++)
        for (int o = 0; o < OUT; o++) {
            scales[g][o] = f16_of(matrix.s[o][g]);
            for (int i = 0; i < 8; i++)
                if ((is_awq ? awq_order[i] : i) == o % 8) zeros[g][o / 8] |= (uint32_t)(matrix.z[o][g] - less) << 4 * i;
        }
    add(w, "qzeros", "I32", "[2, 2]", zeros, sizeof zeros);
    add(w, "scales", "F16", "[2, 16]", scales, sizeof scales);
}

static void write_gptq(struct writer *w, int less, bool is_shuffled) {
    uint32_t words[IN / 8][OUT] = {{0}};
    int32_t group_of[IN];
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) words[i / 8][o] |= (uint32_t)matrix.q[o][i] << i % 8 * 4;
    for (int i = 0; i < IN; i++) group_of[i] = is_shuffled ? i % GROUPS : i / GROUP;
    add(w, "qweight", "I32", "[8, 16]", words, sizeof words);
    add(w, "g_idx", "I32", "[64]", group_of, sizeof group_of);
    add_transposed(w, false, less);
}

static void write_awq(struct writer *w) {
    uint32_t words[IN][OUT / 8] = {{0}};
    for (int i = 0; i < IN; i++)
        for (int o = 0; o < OUT; o += 8)
            for (int n = 0; n < 8; n++) words[i][o / 8] |= (uint32_t)matrix.q[o + awq_order[n]][i] << 4 * n;
    add(w, "qweight", "I32", "[64, 2]", words, sizeof words);
    add_transposed(w, true, 0);
}

static void write_packed(struct writer *w) {
    uint32_t words[OUT][IN / 8] = {{0}}, zeros[OUT / 8][GROUPS] = {{0}};
    const int64_t shape[2] = {OUT, IN};
    float scales[OUT][GROUPS];
    for (int o = 0; o < OUT; o++) {
        for (int i = 0; i < IN; i++) words[o][i / 8] |= (uint32_t)matrix.q[o][i] << i % 8 * 4;
        for (int g = 0; g < GROUPS; g++) {
            zeros[o / 8][g] |= (uint32_t)matrix.z[o][g] << o % 8 * 4;
            scales[o][g] = matrix.s[o][g];
        }
    }
    add(w, "weight_shape", "I64", "[2]", shape, sizeof shape);
    add(w, "weight_packed", "I32", "[16, 8]", words, sizeof words);
    add(w, "weight_zero_point", "I32", "[2, 2]", zeros, sizeof zeros);
    add(w, "weight_scale", "F32", "[16, 2]", scales, sizeof scales);
}

/* Two a byte, of which the first lies in the half `first` (0: low). */
static void add_nibbles(struct writer *w, const char *name, const char *shape, int first) {
    uint8_t bytes[OUT][IN / 2] = {{0}};
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) bytes[o][i / 2] |= (uint8_t)(matrix.q[o][i] << (i + first) % 2 * 4);
    add(w, name, "U8", shape, bytes, sizeof bytes);
}

/* E4M3 1.5 everywhere; a global scale of 4. */
static void write_nvfp4(struct writer *w, bool is_modelopt) {
    const float global = 4;
    uint8_t scales[OUT][GROUPS];
    memset(scales, 0x3C, sizeof scales);
    add_nibbles(w, is_modelopt ? "weight" : "weight_packed", "[16, 32]", 0);
    add(w, "weight_scale", "F8_E4M3", "[16, 2]", scales, sizeof scales);
    if (is_modelopt)
        add(w, "weight_scale_2", "F32", "[]", &global, sizeof global);
    else
        add(w, "weight_global_scale", "F32", "[1]", &global, sizeof global);
}

/* Blocks of 32; scales of 8 bits, three of which share one. */
static void write_nf4(struct writer *w) {
    static const char state[] =
        "{\"quant_type\": \"nf4\", \"blocksize\": 32, \"shape\": [16, 64], \"nested_blocksize\": 3, "
        "\"nested_offset\": 0.25}";
    float values[16], nested_values[256], nested_scales[11];
    uint8_t scales[OUT * GROUPS];
    for (int i = 0; i < 16; i++) values[i] = (float)(i - 5);
    for (int i = 0; i < 256; i++) nested_values[i] = (float)(i + 1);
    for (int i = 0; i < 11; i++) nested_scales[i] = (float)(i + 2);
    for (int i = 0; i < OUT * GROUPS; i++) scales[i] = (uint8_t)(7 * i);
    add_nibbles(w, "weight", "[512, 1]", 1);
    add(w, "weight.absmax", "U8", "[32]", scales, sizeof scales);
    add(w, "weight.quant_map", "F32", "[16]", values, sizeof values);
    add(w, "weight.nested_absmax", "F32", "[11]", nested_scales, sizeof nested_scales);
    add(w, "weight.nested_quant_map", "F32", "[256]", nested_values, sizeof nested_values);
    add(w, "weight.quant_state.bitsandbytes__nf4", "U8", "[103]", state, sizeof state - 1);
}

/* --- reading -------------------------------------------------------------------------------------------------- */

static float as_int4(int o, int i) {
    return (float)(matrix.q[o][i] - matrix.z[o][i / GROUP]) * matrix.s[o][i / GROUP];
}
static float as_shuffled(int o, int i) {
    return (float)(matrix.q[o][i] - matrix.z[o][i % GROUPS]) * matrix.s[o][i % GROUPS];
}
static float as_fp4(int o, int i) {
    return format_fp4_values[matrix.q[o][i]] * 1.5f;
}
static float as_divided(int o, int i) {
    return as_fp4(o, i) / 4;
}
static float as_multiplied(int o, int i) {
    return as_fp4(o, i) * 4;
}
static float as_nf4(int o, int i) {
    const int block = (o * IN + i) / 32;
    return (float)(matrix.q[o][i] - 5) * ((float)((7 * block) % 256 + 1) * (float)(block / 3 + 2) + 0.25f);
}

static void must_read(struct writer *w, const struct quantisation *q, const char *what, float (*expected)(int, int)) {
    struct safetensors *files = open_written(w);
    struct stored s;
    struct weight weight = {.cols = IN};
    struct scales scales;
    ck_ok(stored_find(&s, files, q, "m.weight", OUT, IN, 0));
    for (int part = 0; part < 3; part++) { /* all rows; some; every other */
        const struct stored_rows rows = {0, part == 1 ? 5 : part, part == 2 ? 2 : 1,
                                         part == 0   ? OUT
                                         : part == 1 ? 9
                                                     : 7};
        void *memory = malloc(stored_packed_bytes(&s, rows.count) + 1);
        float out[IN];
        weight.rows = (int)rows.count;
        stored_place(&s, &rows, &weight, &scales, memory);
        ck_ok(stored_pack(&s, &rows, &weight, &scales, 2));
        for (int r = 0; r < weight.rows; r++) {
            const int o = (int)(rows.first + r * rows.step);
            format_of(weight.format)->dequantise(out, &weight, r, 0, IN);
            for (int i = 0; i < IN; i++)
                ck_assert_msg(out[i] == expected(o, i), "%s [%d, %d] is %g, expected %g", what, o, i, (double)out[i],
                              (double)expected(o, i));
        }
        free(memory);
    }
    for (int i = 0; i < safetensors_count(files); i++) {
        const struct tensor *t = safetensors_at(files, i);
        char owner[64];
        if (strcmp(t->name, "m.weight") == 0) continue;
        ck_assert_msg(stored_owner(t->name, owner, sizeof owner) && strcmp(owner, "m.weight") == 0 &&
                          stored_owns(&s, t),
                      "%s is nobody's", t->name);
    }
    safetensors_close(files);
}

START_TEST(a_matrix_is_what_its_tool_wrote)
{
    struct writer w = {0};
    struct quantisation q = {
        .method = QUANTISATION_GPTQ, .int4_group = GROUP, .fp4_group = GROUP, .zero_is_one_less = true};
    fill_matrix();
    write_gptq(&w, 1, false);
    must_read(&w, &q, "GPTQ", as_int4);
    write_gptq(&w, 1, true);
    must_read(&w, &q, "GPTQ with desc_act", as_shuffled);
    q.zero_is_one_less = false;
    write_gptq(&w, 0, false);
    must_read(&w, &q, "GPTQ v2", as_int4);
    q.method = QUANTISATION_AWQ;
    write_awq(&w);
    must_read(&w, &q, "AWQ", as_int4);
    q.method = QUANTISATION_COMPRESSED_TENSORS;
    write_packed(&w);
    must_read(&w, &q, "compressed-tensors int4", as_int4);
    write_nvfp4(&w, false);
    must_read(&w, &q, "compressed-tensors NVFP4", as_divided);
    q.method = QUANTISATION_MODELOPT;
    write_nvfp4(&w, true);
    must_read(&w, &q, "modelopt NVFP4", as_multiplied);
    q.method = QUANTISATION_BITSANDBYTES;
    write_nf4(&w);
    must_read(&w, &q, "NF4", as_nf4);
}
END_TEST

Suite *check_stored_forms(void) {
    Suite *suite = suite_create("stored_forms");
    TCase *tc = tcase_create("forms");
    tcase_add_test(tc, a_matrix_is_what_its_tool_wrote);
    suite_add_tcase(suite, tc);
    return suite;
}
