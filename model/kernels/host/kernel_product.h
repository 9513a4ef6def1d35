/* Products of a weight's rows with token rows. Included by kernels.h alone.
 *
 * A tile is R weight rows by C tokens, R * C accumulators in registers, beside which there is room for a part of a
 * vector of each row and of one token. A block is up to BLOCK_ROWS weight rows: all tokens pass over it while it is in
 * the L2 cache, so that a pass reads each weight from memory once. Quantised weights become f32 in registers for tiles of
 * up to TILE_STEPS tokens, and first, in a cache, for larger ones: fewer loops to compile, of equal bits. */

enum { BLOCK_ROWS = 64, BLOCK_BYTES = 256 << 10 };
/* So many tokens read quantised rows step by step: where every tile can, those of two tiles, though both make f32 of the same rows. */
enum { STEPS_TOKENS = TILE_STEPS < TILE_TOKENS ? TILE_STEPS : 2 * TILE_STEPS };
enum { TILE_ROWS_MAX = TILE_ROWS_FEW > TILE_ROWS ? TILE_ROWS_FEW : TILE_ROWS };
_Static_assert(BLOCK_ROWS % TILE_ROWS == 0 && BLOCK_ROWS % TILE_ROWS_FEW == 0, "a block is whole tiles");

/* Adds columns [0, cols) of rows w[0..R) with tokens x[0..C) to acc[c * R + r]. What lies `ahead` (NULL: nothing) in memory is
 * fetched on the way: rows are too short for the processor to notice so many of them. */
VEC void tile_add(const int R, const int C, const enum dtype type, const unsigned char *const *w, const float *const *x,
                  int cols, const unsigned char *ahead, vec *acc) {
    const bool is_short = cols * dtype_bytes(type) <= SHORT_ROW;
    int k = 0;
    for (; k + LANES <= cols; k += LANES) {
        const int step_bytes = R * LANES * dtype_bytes(type);
        UNROLL for (int b = 0; ahead && b < step_bytes; b += LINE)
            fetch_ahead(ahead + R * k * dtype_bytes(type) + b, is_short);
        UNROLL for (int part = 0; part < VEC_PARTS; part++) {
            vec_part weights[TILE_ROWS_MAX];
            UNROLL for (int r = 0; r < R; r++) weights[r] =
                part_widen(w[r] + (size_t)k * dtype_bytes(type), type, part);
            UNROLL for (int c = 0; c < C; c++) {
                const vec_part v = part_load(x[c] + k, part);
                UNROLL for (int r = 0; r < R; r++) part_fma(&acc[c * R + r], part, weights[r], v);
            }
        }
    }
    if (k < cols) {
        vec weights[TILE_ROWS_MAX];
        UNROLL for (int r = 0; r < R; r++) weights[r] =
            widen_part(w[r] + (size_t)k * dtype_bytes(type), type, cols - k);
        UNROLL for (int c = 0; c < C; c++) {
            vec v = vec_load_part(x[c] + k, cols - k);
            UNROLL for (int r = 0; r < R; r++) acc[c * R + r] = vec_fma(weights[r], v, acc[c * R + r]);
        }
    }
}

/* sum[i] of acc[i], for accs of them, and for unused places of the last group of four. */
VEC void tile_sum(const int accs, const vec *acc, float *sum) {
    UNROLL for (int i = 0; i < accs; i += 4) vec_sum4(sum + i, acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
}

/* Sums of rows w[0..R) with tokens x[0..C): sum[c * R + r]. */
VEC void tile(const int R, const int C, const enum dtype type, const unsigned char *const *w, const float *const *x,
              int cols, const unsigned char *ahead, float *sum) {
    vec acc[TILE_ROWS_MAX * TILE_TOKENS + 3];
    UNROLL for (int i = 0; i < R * C + 3; i++) acc[i] = vec_zero();
    tile_add(R, C, type, w, x, cols, ahead, acc);
    tile_sum(R * C, acc, sum);
}

/* The same of rows of a quantised weight that are read step by step; their columns are whole steps. */
VEC void tile_steps(const int R, const int C, const enum kind kind, const struct weight *w,
                    const unsigned char *const *data, const int *rows, const float *const *x,
                    const unsigned char *ahead, float *sum) {
    const int span = kind_piece(kind), step_bytes = (int)kind_bytes(kind, span) * STEP / span;
    const struct values values = listed_values(kind, w);
    const bool is_near = R * kind_bytes(kind, w->cols) < NEAR_TILE;
    struct piece piece[TILE_ROWS_MAX];
    vec acc[TILE_ROWS_MAX * TILE_TOKENS + 3], two[2];
    UNROLL for (int i = 0; i < R * C + 3; i++) acc[i] = vec_zero();
    for (int k = 0; k < w->cols; k += span) {
        const int count = is_blocks(kind) || w->cols - k > span ? span : w->cols - k;
        const struct columns columns = columns_of(kind, w, k, count);
        struct place place = place_first(kind, w, k);
        for (int r = 0; r < R; r++) open_piece(kind, &piece[r], &columns, w, data[r], rows[r]);
        for (int i = 0; i < count / STEP; i++, place_next(kind, &place, w)) {
            const unsigned char *next = ahead + R * (kind_bytes(kind, k) + i * step_bytes);
            UNROLL for (int b = 0; b < R * step_bytes; b += LINE) fetch_ahead(next + b, is_near);
            UNROLL for (int r = 0; r < R; r++) {
                read_step(kind, &piece[r], i, place.group, data[r] + step_at(kind, k, i), values, two);
                UNROLL for (int c = 0; c < C; c++) {
                    const float *at = x[c] + k + i * STEP;
                    acc[c * R + r] = vec_fma(two[0], vec_load(at), acc[c * R + r]);
                    acc[c * R + r] = vec_fma(two[1], vec_load(at + LANES), acc[c * R + r]);
                }
            }
        }
    }
    tile_sum(R * C, acc, sum);
}

/* The same of any format: pieces of columns become f32 in the L1 cache. */
VEC void tile_unpacked(const int R, const int C, const struct weight *w, const int *rows, const float *const *x,
                       float *sum) {
    enum { COLS = PIECE };
    float wide[TILE_ROWS_MAX][COLS];
    const unsigned char *from[TILE_ROWS_MAX];
    const float *at[TILE_TOKENS];
    vec acc[TILE_ROWS_MAX * TILE_TOKENS + 3];
    UNROLL for (int i = 0; i < R * C + 3; i++) acc[i] = vec_zero();
    for (int k = 0; k < w->cols; k += COLS) {
        const int count = w->cols - k < COLS ? w->cols - k : COLS;
        for (int r = 0; r < R; r++) {
            unpack(wide[r], w, rows[r], k, count);
            from[r] = (const unsigned char *)wide[r];
        }
        for (int c = 0; c < C; c++) at[c] = x[c] + k;
        tile_add(R, C, DTYPE_F32, from, at, count, NULL, acc);
    }
    tile_sum(R * C, acc, sum);
}

/* The sums of rows [first, first + count) of w with C tokens: sums[c][row - first]. A tile that passes the
 * end repeats the last row, whose further sums are for nobody: sums have room for whole tiles. Quantised weights (`type` DTYPES) have a kind. */
VEC void strip(const int R, const int C, const enum dtype type, const enum kind kind, const struct weight *w, int first,
               int count, const float *const *x, float sums[][BLOCK_ROWS]) {
    const int64_t row_bytes = dtype_span_bytes(w->format, weight_stride(w));
    const unsigned char *data[TILE_ROWS_MAX];
    int rows[TILE_ROWS_MAX];
    for (int o = 0; o < count; o += R) {
        float sum[TILE_ROWS_MAX * TILE_TOKENS + 3];
        for (int r = 0; r < R; r++) {
            rows[r] = first + (o + r < count ? o + r : count - 1);
            data[r] = (const unsigned char *)w->data + rows[r] * row_bytes;
        }
        const unsigned char *ahead = data[0] + R * row_bytes + AHEAD_BYTES; /* of the tile to come */
        if (type != DTYPES)
            tile(R, C, type, data, x, w->cols, ahead, sum);
        else if (kind == KIND_OTHER)
            tile_unpacked(R, C, w, rows, x, sum);
        else
            tile_steps(R, C, kind, w, data, rows, x, ahead, sum);
        for (int c = 0; c < C; c++) memcpy(sums[c] + o, sum + c * R, (size_t)R * sizeof *sum);
    }
}

#define STRIP(C)                                                                                       \
    case C:                                                                                            \
        if (C <= (kind == KIND_OTHER ? TILE_TOKENS : TILE_STEPS))                                      \
            strip(C <= TILE_FEW ? TILE_ROWS_FEW : TILE_ROWS, C, type, kind, w, first, count, x, sums); \
        break;
VEC void strip_of(const enum dtype type, const enum kind kind, const struct weight *w, int first, int count,
                  const float *const *x, int tokens, float sums[][BLOCK_ROWS]) {
    switch (tokens) { STRIP(1) STRIP(2) STRIP(3) STRIP(4) STRIP(5) STRIP(6) }
}
#undef STRIP

/* How a quantised weight is read step by step; KIND_OTHER: it is not. */
static enum kind steps_of(const struct weight *w) {
    const enum kind kind = w->cols % STEP == 0 ? kind_of(w) : KIND_OTHER;
    return kind == KIND_GATHERED ? KIND_OTHER : kind;
}

/* A function a kind: gcc takes longer for one of all kinds, and makes slower code of it. */
#define STRIP_OF_KIND(KIND)                                                                                           \
    __attribute__((noinline)) static void strip_##KIND(const struct weight *w, int first, int count,                  \
                                                       const float *const *x, int tokens, float sums[][BLOCK_ROWS]) { \
        strip_of(DTYPES, KIND_##KIND, w, first, count, x, tokens, sums);                                              \
    }
KINDS(STRIP_OF_KIND)
#undef STRIP_OF_KIND

static void strip_quantised(const struct weight *w, int first, int count, const float *const *x, int tokens,
                            float sums[][BLOCK_ROWS]) {
#define STEPS(KIND)                                     \
    case KIND_##KIND:                                   \
        strip_##KIND(w, first, count, x, tokens, sums); \
        return;
    switch (tokens <= TILE_STEPS ? steps_of(w) : KIND_OTHER) {
        KINDS(STEPS)
    default:
        strip_of(DTYPES, KIND_OTHER, w, first, count, x, tokens, sums);
    }
#undef STEPS
}

static void strip_any(const struct weight *w, int first, int count, const float *const *x, int tokens,
                      float sums[][BLOCK_ROWS]) {
    switch (w->format) {
    case DTYPE_F32:
        strip_of(DTYPE_F32, KIND_OTHER, w, first, count, x, tokens, sums);
        break;
    case DTYPE_BF16:
        strip_of(DTYPE_BF16, KIND_OTHER, w, first, count, x, tokens, sums);
        break;
    case DTYPE_F16:
        strip_of(DTYPE_F16, KIND_OTHER, w, first, count, x, tokens, sums);
        break;
    default:
        strip_quantised(w, first, count, x, tokens, sums);
        break;
    }
}

/* g / (1 + exp(-z)) */
VEC vec times_sigmoid(vec g, vec z) {
    return vec_div(g, vec_add(vec_set(1.0f), vec_exp(vec_sub(vec_zero(), z))));
}

/* gelu(g) = g (1 + tanh(z / 2)) / 2 = g / (1 + exp(-z)), z = 2 sqrt(2 / pi) (g + 0.044715 g^3) */
VEC vec gelu(vec g) {
    vec cubic = vec_fma(vec_mul(vec_mul(g, g), g), vec_set(0.044715f), g);
    return times_sigmoid(g, vec_mul(cubic, vec_set(1.5957691216f)));
}

VEC vec activate(const enum activation activation, vec g, vec u) {
    switch (activation) {
    case ACTIVATION_GELU:
        return vec_mul(gelu(g), u);
    case ACTIVATION_CLAMPED:
        g = vec_min(vec_set(7.0f), g);
        u = vec_max(vec_set(-7.0f), vec_min(vec_set(7.0f), u));
        return vec_mul(vec_add(u, vec_set(1.0f)), times_sigmoid(g, vec_mul(vec_set(1.702f), g)));
    case ACTIVATION_RELU2:
        return vec_mul(vec_mul(vec_max(vec_set(0.0f), g), g), u);
    default:
        return vec_mul(times_sigmoid(g, g), u);
    }
}

/* ups NULL: ones. */
static void gate(enum activation activation, float *out, const float *gates, const float *ups, int count) {
    for (int i = 0; i < count; i += LANES) {
        const vec u = ups ? load_part(ups + i, count - i) : vec_set(1.0f);
        store_part(out + i, activate(activation, load_part(gates + i, count - i), u), count - i);
    }
}

/* sums += bias */
static void add_bias(float *sums, const struct weight *bias, int first, int count) {
    float wide[BLOCK_ROWS];
    if (!bias->data) return;
    const unsigned char *values = bias->data;
    widen(wide, values + (size_t)first * (size_t)dtype_bytes(bias->format), bias->format, count);
    for (int i = 0; i < count; i++) sums[i] = wide[i] + sums[i];
}

/* The sums of output rows [first, first + count) of token t. */
static void finish(const struct product *p, int t, float *sums, float *up_sums, int first, int count) {
    float *out = p->out + (p->out_row ? p->out_row[t] : t) * p->out_stride + first;
    const float *ups = p->up.data ? up_sums : p->times ? p->times + (size_t)t * (size_t)p->times_stride + first : NULL;
    add_bias(sums, &p->bias, first, count);
    switch (p->end) {
    case PRODUCT_STORE:
        for (int i = 0; i < count && p->scale != 1; i++) sums[i] *= p->scale;
        if (p->cap != 0) soft_cap(sums, p->cap, count);
        memcpy(out, sums, (size_t)count * sizeof *out);
        break;
    case PRODUCT_ADD:
        for (int i = 0; i < count && p->scale != 1; i++) sums[i] *= p->scale;
        for (int i = 0; i < count; i++) out[i] += sums[i];
        break;
    case PRODUCT_GATE:
        if (p->up.data) add_bias(up_sums, &p->up_bias, first, count);
        gate(p->activation, out, sums, ups, count);
        break;
    }
}

/* Do the rows of a block become f32 once, for several tiles? */
static bool is_made_once(const struct weight *w, int tokens) {
    if (!dtype_is_quantised(w->format) || tokens <= TILE_TOKENS) return false;
    return tokens > STEPS_TOKENS || steps_of(w) == KIND_OTHER;
}

/* Rows of a block: what stays in the L2 cache while several tiles of tokens pass. */
static int block_rows(const struct product *p) {
    if (p->tokens <= TILE_TOKENS) return BLOCK_ROWS;
    int64_t row_bytes =
        is_made_once(&p->w, p->tokens) ? 4 * (int64_t)p->w.cols : dtype_span_bytes(p->w.format, p->w.cols);
    if (p->up.data) row_bytes *= 2;
    int64_t rows = BLOCK_BYTES / row_bytes / TILE_ROWS_MAX * TILE_ROWS_MAX;
    return rows > BLOCK_ROWS ? BLOCK_ROWS : rows < TILE_ROWS_MAX ? TILE_ROWS_MAX : (int)rows;
}

/* Rows of a weight, those from `first` on in `wide` where they fit and several tiles of tokens read them. */
struct block {
    struct weight w;
    int first;
};
static struct block block_open(const struct product *p, const struct weight *w, int first, int count, float *wide) {
    const int share = BLOCK_BYTES / (int)sizeof(float) / (p->up.data ? 2 : 1);
    if (!is_made_once(w, p->tokens) || (int64_t)count * w->cols > share) return (struct block){*w, first};
    for (int r = 0; r < count; r++) unpack(wide + (size_t)r * (size_t)w->cols, w, first + r, 0, w->cols);
    return (struct block){{.data = wide, .format = DTYPE_F32, .rows = count, .cols = w->cols}, 0};
}

/* All tokens of output rows [first, first + count). */
static void product_block(const struct product *p, int first, int count, float *wide) {
    const int tiles = (p->tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    float sums[TILE_TOKENS][BLOCK_ROWS], up_sums[TILE_TOKENS][BLOCK_ROWS];
    struct block w = block_open(p, &p->w, first, count, wide), up = {.first = 0};
    if (p->up.data) up = block_open(p, &p->up, first, count, wide + BLOCK_BYTES / sizeof(float) / 2);
    for (int i = 0, t = 0, next; i < tiles; i++, t = next) {
        next = (int)((int64_t)p->tokens * (i + 1) / tiles); /* tiles of nearly equal size */
        const float *x[TILE_TOKENS];
        for (int c = t; c < next; c++) x[c - t] = p->x + (size_t)(p->x_row ? p->x_row[c] : c) * (size_t)p->w.cols;
        strip_any(&w.w, w.first, count, x, next - t, sums);
        if (p->up.data) strip_any(&up.w, up.first, count, x, next - t, up_sums);
        for (int c = t; c < next; c++) finish(p, c, sums[c - t], up_sums[c - t], first, count);
    }
}

static void product(const struct product *p, int first, int end) {
    const int step = block_rows(p);
    float wide[BLOCK_BYTES / sizeof(float)]; /* of quantised weights */
    for (int o = first; o < end; o += step) product_block(p, o, end - o < step ? end - o : step, wide);
}
