/* Into memory: what of a quantised matrix does not lie in the file as kernels read it, row by row on several threads. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/parallel.h"
#include "model/files/stored.h"
#include "model/format.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* --- where everything lies --------------------------------------------------------------------------------------- */

static bool is_transposed(const struct stored *s) {
    return s->form == STORED_GPTQ || s->form == STORED_AWQ;
}

/* Do its numbers lie in memory? */
static bool is_repacked(const struct stored *s) {
    return is_transposed(s) || s->form == STORED_MADE;
}

bool stored_is_in_place(const struct stored *s) {
    return !is_repacked(s);
}

static size_t scale_bytes(const struct stored *s) {
    return (size_t)dtype_span_bytes(s->scale_type, 1);
}

/* What is repacked: numbers, then scales, then zeros. */
struct parts {
    size_t numbers, scales, zeros;
};
static struct parts packed_parts(const struct stored *s, int64_t rows) {
    const size_t cells = (size_t)(rows * s->groups);
    struct parts p = {0};
    if (is_repacked(s)) p.numbers = aligned((size_t)dtype_span_bytes(s->format, rows * s->cols));
    if (is_repacked(s) || s->nested_scales || s->zeros || s->group_of) p.scales = aligned(cells * scale_bytes(s));
    if (s->zeros) p.zeros = aligned(cells);
    return p;
}

size_t stored_packed_bytes(const struct stored *s, int64_t rows) {
    struct parts p = packed_parts(s, rows);
    return p.numbers + p.scales + p.zeros;
}

size_t stored_bytes(const struct stored *s, int64_t rows) {
    const int64_t cells = s->groups ? (rows + s->scale_rows - 1) / s->scale_rows * s->groups : 1;
    return (size_t)dtype_span_bytes(s->format, rows * s->cols) + (size_t)cells * scale_bytes(s) +
           (s->zeros ? (size_t)cells : 0);
}

void stored_place(const struct stored *s, const struct stored_rows *r, struct weight *w, struct scales *scales,
                  void *memory) {
    const struct parts p = packed_parts(s, r->count);
    const int64_t first = r->index * s->rows + r->first, stride = r->step * s->cols;
    char *at = memory;
    *scales = (struct scales){.type = s->scale_type,
                              .rows = s->scale_rows,
                              .group = s->group,
                              .stride = s->groups,
                              .factor = s->scale_factor};
    w->format = s->format, w->scales = scales;
    w->data = at, w->stride = 0;
    scales->data = memory ? at + p.numbers : NULL;
    if (!p.numbers) {
        w->data = (const char *)s->numbers->data + dtype_span_bytes(s->format, first * s->cols);
        w->stride = stride == s->cols ? 0 : stride;
    }
    if (!p.scales && s->scale_rows > 1) {
        scales->data = s->scales->data, scales->first = (int32_t)r->first;
    } else if (!p.scales) {
        scales->data = (const char *)s->scales->data + (size_t)(first * s->groups) * scale_bytes(s);
        scales->stride = r->step * s->groups;
    }
    if (p.zeros && memory) scales->zeros = (const uint8_t *)(at + p.numbers + p.scales);
    if (s->group_of) scales->group_of = s->group_of->data;
    if (s->values) scales->values = s->values->data;
}

/* --- repacking --------------------------------------------------------------------------------------------------- */

struct packing {
    const struct stored *s;
    const struct stored_rows *rows;
    const struct weight *w;
    const struct scales *scales;
    atomic_bool *is_bad, *has_nan; /* a scale is not finite; a number is NaN */
};

/* AWQ: where in a word output o % 8 lies. */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t nibble(uint32_t word, int place) {
    return word >> 4 * place & 15;
}

/* Words [first, end) of row `o` of the file's matrix: a word of GPTQ's holds eight inputs of it already. */
static void pack_numbers(const struct stored *s, int64_t o, int64_t first, int64_t end, uint32_t *to) {
    const uint32_t *from = s->numbers->data;
    const int64_t out = s->rows;
    if (s->form == STORED_GPTQ) {
        for (int64_t k = first; k < end; k++) to[k] = from[k * out + o];
        return;
    }
    from += o / 8;
    for (int64_t k = first; k < end; k++) {
        uint32_t word = 0;
        for (int i = 0; i < 8; i++) word |= nibble(from[(8 * k + i) * (out / 8)], awq_place[o % 8]) << 4 * i;
        to[k] = word;
    }
}

/* Rows [first, end) of those that are wanted. A line of the file has words of many rows: they are read while it is in the caches. */
static void transpose_numbers(const struct packing *p, int first, int end) {
    enum { ROWS = 128, WORDS = 32 };
    const int64_t words = p->s->cols / 8;
    for (int tile = first; tile < end; tile += ROWS)
        for (int64_t k = 0; k < words; k += WORDS)
            for (int r = tile; r < end && r < tile + ROWS; r++)
                pack_numbers(p->s, p->rows->first + r * p->rows->step, k, k + WORDS < words ? k + WORDS : words,
                             (uint32_t *)(uintptr_t)weight_row(p->w, r));
}

/* Transposed, or in place beside what is not. */
static void pack_scales(const struct stored *s, int64_t o, void *to) {
    const size_t bytes = scale_bytes(s);
    for (int64_t g = 0; g < s->groups; g++) {
        const int64_t at = is_transposed(s) ? g * s->rows + o : o * s->groups + g;
        if (s->scale_type == s->file_scale_type)
            memcpy((char *)to + (size_t)g * bytes, (const char *)s->scales->data + (size_t)at * bytes, bytes);
        else
            ((float *)to)[g] = format_widen(s->scales->data, s->file_scale_type, at);
    }
}

/* Scales that are quantised themselves: 8 bits, in groups over the whole matrix. */
static void unpack_nested(const struct stored *s, int64_t o, float *to) {
    const uint8_t *from = s->scales->data;
    const float *values = s->nested_values->data, *scales = s->nested_scales->data;
    for (int64_t g = 0; g < s->groups; g++) {
        const int64_t i = o * s->groups + g;
        to[g] = values[from[i]] * scales[i / s->nested_group] + s->nested_offset;
    }
}

static void pack_zeros(const struct stored *s, int64_t o, uint8_t *to) {
    const uint32_t *from = s->zeros->data;
    for (int64_t g = 0; g < s->groups; g++) {
        if (s->form == STORED_PACKED)
            to[g] = (uint8_t)nibble(from[o / 8 * s->groups + g], (int)(o % 8));
        else if (s->form == STORED_AWQ)
            to[g] = (uint8_t)nibble(from[g * (s->rows / 8) + o / 8], awq_place[o % 8]);
        else
            to[g] = (uint8_t)(nibble(from[g * (s->rows / 8) + o / 8], (int)(o % 8)) + (s->zero_is_one_less ? 1 : 0));
    }
}

static void check_scales(const struct packing *p, int row) {
    const struct scales *s = p->scales;
    const int64_t groups = p->s->groups ? p->s->groups : 1;
    if (row > 0 && (s->first + row) % s->rows != 0) return; /* the row above has the same */
    for (int64_t g = 0; g < groups; g++)
        if (!isfinite(scales_at(s, row, (int)g))) *p->is_bad = true;
}

/* Kernels rely on it: E4M3's NaN would read as 480. */
static bool row_has_nan(const struct weight *w, int row) {
    const uint8_t *data = weight_row(w, row);
    unsigned found = 0;
    for (int i = 0; i < w->cols; i++) found |= (data[i] & 0x7F) == 0x7F;
    return found;
}

static void pack_part(const void *context, int part, int parts) {
    const struct packing *p = context;
    const struct stored *s = p->s;
    const struct parts has = packed_parts(s, p->rows->count);
    struct range mine = parallel_range((int)p->rows->count, part, parts);
    if (has.numbers) transpose_numbers(p, mine.first, mine.end);
    for (int r = mine.first; r < mine.end; r++) {
        const int64_t o = p->rows->first + r * p->rows->step;
        /* these lie in memory that stored_place was given, and are const for those who read them */
        char *scales = (char *)(uintptr_t)p->scales->data + (size_t)(r * s->groups) * scale_bytes(s);
        if (s->nested_scales)
            unpack_nested(s, o, (float *)(void *)scales);
        else if (has.scales)
            pack_scales(s, o, scales);
        if (has.zeros) pack_zeros(s, o, (uint8_t *)(uintptr_t)p->scales->zeros + r * s->groups);
        check_scales(p, r);
        if (s->format == DTYPE_FP8 && row_has_nan(p->w, r)) *p->has_nan = true;
    }
}

static bool all_are_8(const uint8_t *zeros, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (zeros[i] != 8) return false;
    return true;
}

int stored_pack(const struct stored *s, const struct stored_rows *rows, struct weight *w, struct scales *scales,
                int threads) {
    atomic_bool is_bad = false, has_nan = false;
    struct packing p = {s, rows, w, scales, &is_bad, &has_nan};
    for (int i = 0; s->values && i < 16; i++)
        if (!isfinite(scales->values[i])) is_bad = true;
    parallel_run(threads, rows->count * s->cols / 4, pack_part, &p);
    if (has_nan) return err_set(ERR_FORMAT, "%s: tensor '%s' holds NaN", s->numbers->file, s->numbers->name);
    if (is_bad)
        return err_set(ERR_FORMAT, "%s: tensor '%s' holds a scale that is not finite", s->scales->file,
                       s->scales->name);
    if (scales->zeros && all_are_8(scales->zeros, rows->count * s->groups)) scales->zeros = NULL;
    return 0;
}
