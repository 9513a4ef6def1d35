#include "tests/support/quantised_support.h"

#include <string.h>

#include "base/philox.h"
#include "model/format.h"
#include "model/format_blocks.h"

const struct quantised_form quantised_forms[] = {
    {DTYPE_FP8, DTYPE_BF16, 128, 128, false, false},
    {DTYPE_FP8, DTYPE_F32, 0, 1, false, false},
    {DTYPE_FP8, DTYPE_F32, 0, 0, false, false},
    {DTYPE_FP8, DTYPE_F16, 24, 5, false, false},
    {DTYPE_INT4, DTYPE_F16, 128, 1, false, false},
    {DTYPE_INT4, DTYPE_BF16, 32, 1, true, false},
    {DTYPE_INT4, DTYPE_F16, 32, 1, true, true},
    {DTYPE_INT4, DTYPE_F16, 128, 1, false, true},
    {DTYPE_INT4, DTYPE_F16, 0, 1, true, false},
    {DTYPE_INT4, DTYPE_F16, 40, 1, false, false},
    {DTYPE_FP4, DTYPE_FP8, 16, 1, false, false},
    {DTYPE_FP4, DTYPE_E8M0, 32, 1, false, false},
    {DTYPE_NF4, DTYPE_F32, 64, 1, false, false},
    /* Blocks with their scales. */
    {.format = DTYPE_Q8_0},
    {.format = DTYPE_Q4_0},
    {.format = DTYPE_Q4_1},
    {.format = DTYPE_Q5_0},
    {.format = DTYPE_Q5_1},
    {.format = DTYPE_IQ4_NL},
    {.format = DTYPE_MXFP4},
    {.format = DTYPE_Q2_K},
    {.format = DTYPE_Q3_K},
    {.format = DTYPE_Q4_K},
    {.format = DTYPE_Q5_K},
    {.format = DTYPE_Q6_K},
    {.format = DTYPE_IQ4_XS},
};
_Static_assert(sizeof quantised_forms / sizeof *quantised_forms == QUANTISED_FORMS, "their number");

/* Of bitsandbytes (Dettmers et al. 2023), to four places. */
static const float nf4_values[16] = {-1,      -0.6962f, -0.5251f, -0.3949f, -0.2844f, -0.1848f, -0.0911f, 0,
                                     0.0796f, 0.1609f,  0.2461f,  0.3379f,  0.4407f,  0.5626f,  0.7230f,  1};

static void *random_bytes(struct lab *lab, size_t n) {
    unsigned char *bytes = lab_alloc(lab, n);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(lab_pick(lab, 0, 256) & ~(i % 7 ? 0 : 8));
    return bytes;
}

/* Scales of about 1, of which none is NaN. */
static void *random_scales(struct lab *lab, enum dtype type, size_t n) {
    const size_t bytes = (size_t)dtype_span_bytes(type, 1);
    char *scales = lab_alloc(lab, n * bytes);
    for (size_t i = 0; i < n; i++) {
        const float value = 1 + lab_random(lab) / 2;
        const uint32_t bits = fmath_bits(value);
        const uint16_t half = (uint16_t)(type == DTYPE_F16 ? 0x3800 + lab_pick(lab, 0, 0x3FF) : (int)(bits >> 16));
        const uint8_t byte = (uint8_t)(type == DTYPE_FP8 ? lab_pick(lab, 0x30, 0x40) : lab_pick(lab, 125, 130));
        memcpy(scales + i * bytes, bytes == 4 ? (const void *)&bits : bytes == 2 ? (const void *)&half : &byte, bytes);
    }
    return scales;
}

/* Random bytes, among which no scale may be infinite: their f16s get a smaller exponent. */
static struct weight blocks(struct lab *lab, enum dtype type, int rows, int cols) {
    const struct dtype_block block = dtype_block(type);
    const int64_t bytes = dtype_span_bytes(type, (int64_t)rows * cols);
    uint8_t *data = random_bytes(lab, (size_t)bytes);
    for (int64_t at = 0; at < bytes; at += block.bytes) {
        while (blocks_find_bad(type, data + at, 1) == 0)
            for (int i = 0; i < block.bytes; i++) data[at + i] &= 0xBF;
        if (type == DTYPE_MXFP4) data[at] = (uint8_t)(120 + data[at] % 16);
    }
    return (struct weight){.data = data, .format = type, .rows = rows, .cols = cols};
}

/* The same for all weights of a width, since products take several at once. */
static void shuffle_groups(int32_t *group_of, int group, int cols) {
    for (int c = 0; c < cols; c++) {
        const int other = (int)(philox_word((uint64_t)cols, (uint64_t)c, 0, 0) % (uint32_t)(c + 1));
        group_of[c] = group_of[other], group_of[other] = c / group;
    }
}

struct weight quantised_weight(struct lab *lab, const struct quantised_form *f, struct scales *s, int rows, int cols) {
    if (block_reader(f->format)) return blocks(lab, f->format, rows, cols);
    const int group = f->group && f->group < cols ? f->group : cols, groups = (cols + group - 1) / group;
    const int cell_rows = f->scale_rows ? f->scale_rows : INT32_MAX, first = f->scale_rows > 1 ? 3 : 0;
    const size_t cells = (size_t)((first + rows - 1) / cell_rows + 1) * (size_t)groups;
    const size_t bytes = (size_t)dtype_span_bytes(f->format, (int64_t)rows * cols);
    uint8_t *data = random_bytes(lab, bytes), *zeros = random_bytes(lab, cells);
    int32_t *group_of = lab_alloc(lab, (size_t)cols * sizeof *group_of);
    for (size_t i = 0; i < bytes && f->format == DTYPE_FP8; i++)
        if ((data[i] & 0x7F) == 0x7F) data[i] ^= 1;
    for (size_t i = 0; i < cells; i++) zeros[i] = zeros[i] % 17;
    shuffle_groups(group_of, group, cols);
    *s = (struct scales){.data = random_scales(lab, f->scale, cells),
                         .type = f->scale,
                         .rows = cell_rows,
                         .first = first,
                         .group = group,
                         .stride = groups,
                         .factor = f->scale == DTYPE_FP8 ? 0.37f : 1,
                         .zeros = f->has_zeros ? zeros : NULL,
                         .group_of = f->is_out_of_order ? group_of : NULL,
                         .values = nf4_values};
    return (struct weight){.data = data, .format = f->format, .rows = rows, .cols = cols, .scales = s};
}

struct weight dequantised_weight(struct lab *lab, const struct weight *w) {
    float *data = lab_alloc(lab, (size_t)w->rows * (size_t)w->cols * sizeof *data);
    for (int r = 0; r < w->rows; r++)
        format_of(w->format)->dequantise(data + (size_t)r * (size_t)w->cols, w, r, 0, w->cols);
    return (struct weight){.data = data, .format = DTYPE_F32, .rows = w->rows, .cols = w->cols};
}
