#include "model/gather.h"

#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/parallel.h"
#include "model/format.h"

const char *binding_element(const struct binding *b, size_t i) {
    const size_t place = i / (size_t)b->cols, col = i % (size_t)b->cols, row = b->ids ? (size_t)b->ids[place] : place;
    const size_t all = (size_t)b->all, step = (size_t)b->step;
    size_t at;
    if (b->is_transposed)
        at = col * all + row * step;
    else if (b->rows == 1 && b->stack > 0)
        at = col * step;
    else
        at = row * step * (size_t)b->cols + col;
    return (const char *)b->file + dtype_span_bytes(b->file_format, (int64_t)at);
}

/* How many of the elements [i, end) lie one behind the other. */
static size_t run_length(const struct binding *b, size_t i, size_t end) {
    const bool is_vector = b->rows == 1 && b->stack > 0;
    if (b->is_transposed || (is_vector && b->step != 1)) return 1;
    const size_t cols = (size_t)b->cols, row_end = i - i % cols + cols;
    return ((b->step == 1 && !b->ids) || row_end > end ? end : row_end) - i;
}

/* Few bytes are not worth a call of the system. */
static int read_run(void *to, const char *from, size_t bytes) {
    enum { READ_MIN = 1 << 12 };
    if (bytes >= READ_MIN) return mapping_read(to, from, bytes);
    memcpy(to, from, bytes);
    return 0;
}

/* How numbers of the file become 16 bits of a device. */
struct rounding {
    enum dtype from, to;
    float held;
};

/* The largest number in place of those that are larger: a head may be less right, but gives numbers. */
static uint16_t to_f16(float x) {
    const float most = 65504;
    return format_to_f16(x > most ? most : x < -most ? -most : x);
}

static void round_run(uint16_t *to, const void *from, const struct rounding *r, size_t n) {
    const float *wide = from;
    const uint16_t *half = from;
    if (r->to == DTYPE_F16) /* few: of a head whose model is f16 throughout */
        for (size_t i = 0; i < n; i++) to[i] = to_f16(format_widen(from, r->from, (int64_t)i) - r->held);
    else if (r->from == DTYPE_F32)
        for (size_t i = 0; i < n; i++) to[i] = format_to_bf16(wide[i] - r->held);
    else
        for (size_t i = 0; i < n; i++) to[i] = format_to_bf16(fmath_from_f16(half[i]));
}

/* By way of a buffer that stays in the first-level cache. */
static int convert_run(uint16_t *to, const char *from, const struct rounding *r, size_t n) {
    enum { PIECE = 4096 };
    float piece[PIECE];
    const size_t bytes = (size_t)dtype_bytes(r->from);
    for (size_t i = 0, count; i < n; i += count) {
        count = n - i < PIECE ? n - i : PIECE;
        TRY(read_run(piece, from + i * bytes, count * bytes));
        round_run(to + i, piece, r, count);
    }
    return 0;
}

struct gathering {
    const struct binding *b;
    enum dtype type;
    size_t first, n;
    char *to;
    struct gather_ahead ahead;
    atomic_bool *failed;
};

static int gather_range(const struct gathering *g, size_t first, size_t end) {
    const struct rounding rounding = {g->b->file_format, g->type, g->b->held};
    for (size_t i = first, count; i < end; i += count) {
        char *to = g->to + dtype_span_bytes(g->type, (int64_t)(i - g->first));
        const char *from = binding_element(g->b, i);
        count = run_length(g->b, i, end);
        if (g->type == g->b->file_format)
            TRY(read_run(to, from, (size_t)dtype_span_bytes(g->type, (int64_t)count)));
        else
            TRY(convert_run((uint16_t *)(void *)to, from, &rounding, count));
    }
    return 0;
}

static void gather_part(const void *context, int part, int parts) {
    const struct gathering *g = context;
    /* Blocks of a quantised type are not divided: rows are whole blocks. */
    const size_t each = dtype_is_quantised(g->type) ? (size_t)g->b->cols : 1, units = g->n / each;
    const size_t first = g->first + units * (size_t)part / (size_t)parts * each,
                 end = g->first + units * ((size_t)part + 1) / (size_t)parts * each;
    if (part == 0 && g->ahead.bytes > 0) mapping_read_ahead(g->ahead.from, g->ahead.bytes);
    if (gather_range(g, first, end) != 0) atomic_store(g->failed, true);
}

int gather_elements(const struct binding *b, enum dtype type, size_t first, size_t n, void *to, int threads,
                    const struct gather_ahead *ahead) {
    atomic_bool failed = false;
    const struct gathering g = {b, type, first, n, to, *ahead, &failed};
    parallel_run(threads, (int64_t)n, gather_part, &g);
    /* The sentence belongs to the thread that failed: this one comes to the same end, or gets what the other could not have. */
    return atomic_load(&failed) ? gather_range(&g, first, first + n) : 0;
}
