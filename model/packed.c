#include "model/packed.h"

#include <math.h>
#include <string.h>

#include "base/fmath.h"
#include "base/parallel.h"
#include "model/format.h"
#include "model/format_blocks.h"

enum {
    RUN = 256 /* columns: whole blocks of every format, whole pieces of every code */,
    LEAST_GROUP = 16,
    MOST_GROUP = 128,
    ORDERED_GROUPS_MAX = 4096
};

/* --- plan --------------------------------------------------------------------------------------------------- */

static enum packed_code code_of(enum dtype type) {
    switch (type) {
    case DTYPE_FP8:
        return PACKED_FP8;
    case DTYPE_FP4:
    case DTYPE_MXFP4:
        return PACKED_FP4;
    case DTYPE_NF4:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS:
        return PACKED_TABLE;
    case DTYPE_Q8_0:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
    case DTYPE_Q6_K:
        return PACKED_INT8;
    default:
        return PACKED_INT4;
    }
}

static const float *values_of(const struct weight *w) {
    return w->format == DTYPE_NF4 ? w->scales->values : block_iq4_values;
}

static bool has_minima(enum dtype type) {
    return type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q2_K || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
}

/* Where the next column of each group goes. */
struct group_places {
    int32_t next[ORDERED_GROUPS_MAX];
};
static void begin_groups(struct group_places *at, const struct weight *w) {
    for (int g = 0; g * w->scales->group < w->cols; g++) at->next[g] = g * w->scales->group;
}

/* FNV-1a of the groups of columns; 0: some have more columns than others, or there are too many. */
static uint64_t order_of(const struct weight *w) {
    const struct scales *s = w->scales;
    struct group_places at;
    uint64_t hash = 0xCBF29CE484222325u;
    if (w->format != DTYPE_INT4 || (w->cols - 1) / s->group >= ORDERED_GROUPS_MAX) return 0;
    begin_groups(&at, w);
    for (int c = 0; c < w->cols; c++) {
        const int g = s->group_of[c], end = (g + 1) * s->group;
        if (end - s->group >= w->cols || at.next[g]++ >= (end < w->cols ? end : w->cols)) return 0;
        hash = (hash ^ (uint64_t)g) * 0x100000001B3u;
    }
    return hash | 1;
}

static void fill_order(int32_t *order, const struct weight *w) {
    struct group_places at;
    begin_groups(&at, w);
    for (int c = 0; c < w->cols; c++) order[at.next[w->scales->group_of[c]]++] = c;
}

bool packed_plan(struct packed *p, const struct weight *w, bool has_zeros) {
    const struct scales *s = w->scales;
    if (!dtype_is_quantised(w->format) || w->cols % PACKED_BLOCK != 0) return false;
    *p = (struct packed){.code = code_of(w->format), .has_minima = has_zeros || has_minima(w->format)};
    if (p->code == PACKED_TABLE) memcpy(p->values, values_of(w), sizeof p->values);
    if (s && s->group_of && (p->order = order_of(w)) == 0) return false;
    p->group = s ? s->group : block_part(w->format);
    if (p->group < LEAST_GROUP || (p->group < w->cols && p->group % MOST_GROUP && MOST_GROUP % p->group)) return false;
    const bool is_fine = p->group == LEAST_GROUP, is_coarse = p->group >= w->cols || p->group % MOST_GROUP == 0;
    switch (p->code) {
    case PACKED_FP8:
        p->group = p->group >= w->cols ? 0 : MOST_GROUP;
        return is_coarse;
    case PACKED_INT4:
        p->has_minima = p->has_minima || is_fine || is_coarse;
        p->group = is_fine ? LEAST_GROUP : is_coarse ? MOST_GROUP : PACKED_BLOCK;
        return true;
    default:
        p->group = is_fine ? LEAST_GROUP : PACKED_BLOCK;
        return !is_fine || p->code != PACKED_TABLE;
    }
}

static size_t round_up(size_t bytes) { /* so that what follows begins where codes may */
    return (bytes + PACKED_PIECE_BYTES - 1) / PACKED_PIECE_BYTES * PACKED_PIECE_BYTES;
}

static size_t factor_bytes(int64_t rows) {
    return round_up((size_t)rows * sizeof(float));
}

static size_t scale_bytes(const struct packed *p, int64_t rows, int cols) {
    const size_t numbers = (size_t)rows * (size_t)packed_row_scales(p, cols) * (p->has_minima ? 2 : 1);
    return round_up(numbers * sizeof(uint16_t));
}

size_t packed_bytes(const struct packed *p, int64_t rows, int cols) {
    return (size_t)rows * (size_t)packed_row_bytes(p, cols) + scale_bytes(p, rows, cols) + factor_bytes(rows) +
           (p->order ? round_up((size_t)cols * sizeof(int32_t)) : 0);
}

struct packed_parts packed_parts(const struct packed *p, void *memory, int64_t rows, int cols) {
    char *scales = (char *)memory + (size_t)rows * (size_t)packed_row_bytes(p, cols),
         *factors = scales + scale_bytes(p, rows, cols);
    return (struct packed_parts){memory, (void *)scales, (void *)factors,
                                 p->order ? (void *)(factors + factor_bytes(rows)) : NULL};
}

/* Where a row's byte has the number of a column, and by how much it is shifted, but for where FP4 and FP8 put its bits. */
struct place {
    int byte, shift;
};
static struct place place_of(enum packed_code code, int col) {
    const int in_block = col % PACKED_BLOCK, part = in_block % 16 / 4, at = in_block / 16 * 4 + in_block % 4;
    const int piece = packed_piece_columns(code), block = col % piece / PACKED_BLOCK;
    const int first = col / piece * PACKED_PIECE_BYTES + part * 16;
    if (packed_is_4(code)) {
        const int nibble = at / 2 + at % 2 * 4;
        return (struct place){first + block * 4 + nibble / 2, nibble % 2 * 4};
    }
    return (struct place){first + block * 8 + at / 4 * 4 + at % 2 * 2 + at % 4 / 2, 0};
}

/* A word of FP4 whose pair t has the nibbles t and t + 4, and as it is packed. */
static uint32_t fp4_of_nibbles(uint32_t w) {
    return (w & 0x00070007u) << 6 | (w & 0x00080008u) << 12 | (w & 0x00700070u) >> 1 | (w & 0x00800080u) << 5 |
           (w & 0x07000700u) >> 8 | (w & 0x08000800u) >> 2 | (w & 0x30003000u) >> 2 | (w & 0xC000C000u) >> 1;
}
static uint32_t nibbles_of_fp4(uint32_t w) {
    return (w >> 6 & 0x00070007u) | (w >> 12 & 0x00080008u) | (w << 1 & 0x00700070u) | (w >> 5 & 0x00800080u) |
           (w << 8 & 0x07000700u) | (w << 2 & 0x08000800u) | (w << 2 & 0x30003000u) | (w << 1 & 0xC000C000u);
}

/* The same of E4M3, whose first pair is in the even bytes. */
static uint32_t fp8_of_bytes(uint32_t w) {
    return (w & 0x800F800Fu) | (w >> 4 & 0x07F007F0u) | (w << 4 & 0x08000800u) | (w << 8 & 0x70007000u);
}
static uint32_t bytes_of_fp8(uint32_t w) {
    return (w & 0x800F800Fu) | (w << 4 & 0x7F007F00u) | (w >> 4 & 0x00800080u) | (w >> 8 & 0x00700070u);
}

static uint32_t packed_word(enum packed_code code, uint32_t plain) {
    return code == PACKED_FP4 ? fp4_of_nibbles(plain) : code == PACKED_FP8 ? fp8_of_bytes(plain) : plain;
}
static uint32_t plain_word(enum packed_code code, uint32_t packed) {
    return code == PACKED_FP4 ? nibbles_of_fp4(packed) : code == PACKED_FP8 ? bytes_of_fp8(packed) : packed;
}

/* --- packing ------------------------------------------------------------------------------------------------ */

enum { MIDDLE = 8 }; /* of four bits without a sign */

/* The stored number of a block that becomes the code of 0. */
static int zero_of(enum dtype type) {
    return type == DTYPE_Q4_1 || type == DTYPE_Q4_K ? MIDDLE : block_zero(type);
}

/* Of number q' - one that PACKED_INT4 and PACKED_INT8 store less their zero - or of a listed value: scale * q' - minimum. */
static void source_scales(const struct weight *w, int row, int col, float *scale, float *minimum) {
    const struct scales *s = w->scales;
    if (s) {
        const int group = col / s->group;
        *scale = scales_at(s, row, group);
        const int zero = s->zeros ? s->zeros[(int64_t)((s->first + row) / s->rows) * s->stride + group] : MIDDLE;
        *minimum = w->format == DTYPE_INT4 ? *scale * (float)(zero - MIDDLE) : 0;
        return;
    }
    const struct dtype_block block = dtype_block(w->format);
    const uint8_t *at = (const uint8_t *)weight_row(w, row) + (int64_t)(col / block.numbers) * block.bytes;
    block_scales(w->format, at, col % block.numbers / block_part(w->format), scale, minimum);
    *minimum -= (float)(zero_of(w->format) - block_zero(w->format)) * *scale;
}

/* What the 16 codes stand for. */
static const float *values_of_code(const struct packed *p) {
    return p->code == PACKED_FP4 ? format_fp4_values : p->values;
}

static int code_of_zero(const struct packed *p) {
    int code = 0;
    if (p->code == PACKED_INT4 || p->code == PACKED_INT8) return p->code == PACKED_INT4 ? 8 : 128;
    for (int i = 1; p->code == PACKED_TABLE && i < 16; i++)
        if (fabsf(p->values[i]) < fabsf(p->values[code])) code = i;
    return code;
}

struct packing {
    const struct packed *p;
    const struct weight *w;
    const int32_t *ids;
    int rows;
    struct packed_parts to;
};

/* Those of columns [first, first + count), which begin a block; of these columns in `order`, if there is one. */
static void codes_of(const struct packed *p, const struct weight *w, const int32_t *order, int r, int first, int count,
                     uint8_t *codes) {
    const struct dtype_block block = dtype_block(w->format);
    const uint8_t *row = weight_row(w, r), *at = row + dtype_span_bytes(w->format, first);
    const bool is_listed = p->code == PACKED_FP4 || p->code == PACKED_TABLE;
    const int flip = w->format == DTYPE_NF4, more = is_listed ? 0 : code_of_zero(p) - zero_of(w->format);
    switch (w->format) {
    case DTYPE_FP8:
        memcpy(codes, at, (size_t)count);
        return;
    case DTYPE_INT4:
    case DTYPE_FP4:
    case DTYPE_NF4:
        for (int i = 0; i < count; i++) {
            const int c = order ? order[first + i] : first + i;
            codes[i] = row[c / 2] >> (c ^ flip) % 2 * 4 & 15;
        }
        return;
    default:
        for (int i = 0; i < count; i += block.numbers, at += block.bytes) block_reader(w->format)(codes + i, at);
        for (int i = 0; more != 0 && i < count; i++) codes[i] = (uint8_t)(codes[i] + more);
    }
}

/* What each part has of a block of 32 columns. */
static void pack_block(enum packed_code code, const uint8_t *codes, uint8_t *piece, int block) {
    const bool is_4 = packed_is_4(code);
    for (int part = 0; part < 4; part++) {
        const uint8_t *a = codes + 4 * part, *b = a + 16;
        const int second = is_4 ? 4 : 8; /* the bits from one pair to the next */
        uint32_t words[2] = {a[0] | (uint32_t)a[1] << 16 | (uint32_t)a[2] << second | (uint32_t)a[3] << (16 + second),
                             b[0] | (uint32_t)b[1] << 16 | (uint32_t)b[2] << second | (uint32_t)b[3] << (16 + second)};
        if (is_4) words[0] |= words[1] << 8;
        for (int i = 0; i < 2; i++) words[i] = packed_word(code, words[i]);
        memcpy(piece + part * 16 + block * (is_4 ? 4 : 8), words, is_4 ? 4 : 8);
    }
}

static void pack_codes(const struct packing *k, int r, uint8_t *row) {
    const enum packed_code code = k->p->code;
    const int piece = packed_piece_columns(code), cols = k->w->cols;
    uint8_t codes[RUN];
    for (int c = 0; c < cols; c += RUN) {
        const int n = cols - c < RUN ? cols - c : RUN;
        codes_of(k->p, k->w, k->to.order, r, c, n, codes);
        memset(codes + n, code_of_zero(k->p), (size_t)(RUN - n));
        for (int first = 0; first < n; first += piece, row += PACKED_PIECE_BYTES)
            for (int i = 0; i < piece / PACKED_BLOCK; i++) pack_block(code, codes + first + i * PACKED_BLOCK, row, i);
    }
}

/* The power of two below the largest scale or minimum of a row. */
static float factor_of(const struct packed *p, const struct weight *w, int r) {
    float largest = 0, scale, minimum;
    for (int c = 0; c < w->cols; c += p->group) {
        source_scales(w, r, c, &scale, &minimum);
        largest = fmaxf(largest, fmaxf(fabsf(scale), fabsf(minimum)));
    }
    int exponent;
    (void)frexpf(largest, &exponent);
    return largest > 0 ? ldexpf(1, exponent > -100 ? exponent - 1 : -100) : 1;
}

static void pack_scales(const struct packed *p, const struct weight *w, int r, uint16_t *row, float *factor) {
    const int count = packed_row_scales(p, w->cols), each = p->has_minima ? 2 : 1;
    float scale, minimum;
    if (!p->group) {
        source_scales(w, r, 0, factor, &minimum);
        return;
    }
    *factor = factor_of(p, w, r);
    for (int g = 0; g < count; g++) {
        scale = minimum = 0;
        if (g * p->group < w->cols) source_scales(w, r, g * p->group, &scale, &minimum);
        row[g * each] = format_to_f16(scale / *factor);
        if (each == 2) row[g * each + 1] = format_to_f16(minimum / *factor);
    }
}

static void pack_part(const void *context, int part, int parts) {
    const struct packing *k = context;
    const struct range mine = parallel_range(k->rows, part, parts);
    const int64_t codes = packed_row_bytes(k->p, k->w->cols),
                  scales = packed_row_scales(k->p, k->w->cols) * (k->p->has_minima ? 2 : 1);
    for (int r = mine.first; r < mine.end; r++) {
        const int row = k->ids ? k->ids[r] : r;
        pack_codes(k, row, k->to.codes + r * codes);
        pack_scales(k->p, k->w, row, k->to.scales + r * scales, k->to.factors + r);
    }
}

void packed_fill(const struct packed *p, const struct weight *w, const int32_t *ids, int rows, void *memory,
                 int threads) {
    struct packing k = {.p = p, .w = w, .ids = ids, .rows = rows, .to = packed_parts(p, memory, rows, w->cols)};
    if (p->order) fill_order(k.to.order, w);
    parallel_run(threads, (int64_t)rows * w->cols * 8, pack_part, &k);
}

/* --- reading ------------------------------------------------------------------------------------------------ */

static float value_of(const struct packed *p, int code) {
    switch (p->code) {
    case PACKED_INT4:
        return (float)(code - 8);
    case PACKED_FP4:
    case PACKED_TABLE:
        return values_of_code(p)[code];
    case PACKED_INT8:
        return (float)(code - 128);
    case PACKED_FP8:
        break;
    }
    return format_from_fp8((uint8_t)code);
}

/* `c` as packed. */
static float number_at(const struct packed *p, const struct packed_parts *all, const struct weight *w, int row, int c) {
    const int each = p->has_minima ? 2 : 1;
    const uint16_t *of =
        p->group ? all->scales + ((int64_t)row * packed_row_scales(p, w->cols) + c / p->group) * each : NULL;
    const struct place at = place_of(p->code, c);
    uint32_t word;
    memcpy(&word, all->codes + row * packed_row_bytes(p, w->cols) + at.byte / 4 * 4, sizeof word);
    word = plain_word(p->code, word);
    const int code = (int)(word >> (at.byte % 4 * 8 + at.shift) & (packed_is_4(p->code) ? 15 : 255));
    const float scale = of ? fmath_from_f16(of[0]) : 1, minimum = of && each == 2 ? fmath_from_f16(of[1]) : 0;
    return (scale * value_of(p, code) - minimum) * all->factors[row];
}

void packed_read(float *out, const struct weight *w, int row, int first, int count) {
    const struct packed *p = w->packed;
    const struct packed_parts all = packed_parts(p, (void *)(uintptr_t)w->data, w->rows, w->cols);
    for (int c = first; !p->order && c < first + count; c++) out[c - first] = number_at(p, &all, w, row, c);
    for (int c = 0; p->order && c < w->cols; c++)
        if (all.order[c] >= first && all.order[c] < first + count)
            out[all.order[c] - first] = number_at(p, &all, w, row, c);
}
