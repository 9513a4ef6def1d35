/* Products of a weight's rows with token rows. Included by kernels.h alone.
 *
 * A tile is R weight rows by C tokens, R * C accumulators in registers. A block is up to BLOCK_ROWS weight
 * rows: all tokens pass over it while it is in the L2 cache, so that a pass reads each weight from memory
 * once. */

enum { BLOCK_ROWS = 64, BLOCK_BYTES = 256 << 10 };
enum { TILE_ROWS_MAX = TILE_ROWS_FEW > TILE_ROWS ? TILE_ROWS_FEW : TILE_ROWS };

/* Sums of rows w[0..R) with tokens x[0..C): sum[c * R + r]. Unused places of the last group of four are
 * written too. */
VEC void tile(const int R, const int C, const enum dtype type, const unsigned char *const *w, const float *const *x,
              int cols, float *sum) {
    const int accs = R * C;
    vec acc[TILE_ROWS_MAX * TILE_TOKENS + 3], weights[TILE_ROWS_MAX];
    UNROLL for (int i = 0; i < accs + 3; i++) acc[i] = vec_zero();
    int k = 0;
    for (; k + LANES <= cols; k += LANES) {
        UNROLL for (int r = 0; r < R; r++) weights[r] = vec_widen(w[r] + (size_t)k * dtype_bytes(type), type);
        UNROLL for (int c = 0; c < C; c++) {
            vec v = vec_load(x[c] + k);
            UNROLL for (int r = 0; r < R; r++) acc[c * R + r] = vec_fma(weights[r], v, acc[c * R + r]);
        }
    }
    if (k < cols) {
        UNROLL for (int r = 0; r < R; r++) weights[r] =
            widen_part(w[r] + (size_t)k * dtype_bytes(type), type, cols - k);
        UNROLL for (int c = 0; c < C; c++) {
            vec v = vec_load_part(x[c] + k, cols - k);
            UNROLL for (int r = 0; r < R; r++) acc[c * R + r] = vec_fma(weights[r], v, acc[c * R + r]);
        }
    }
    UNROLL for (int i = 0; i < accs; i += 4) vec_sum4(sum + i, acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
}

/* The sums of rows [first, first + count) of w with C tokens: sums[c][row - first]. A tile that passes the
 * end repeats the last row and drops its sums. */
VEC void strip(const int R, const int C, const enum dtype type, const struct weight *w, int first, int count,
               const float *const *x, float sums[][BLOCK_ROWS]) {
    const unsigned char *rows[TILE_ROWS_MAX], *data = w->data;
    const size_t row_bytes = (size_t)w->cols * (size_t)dtype_bytes(type);
    for (int o = 0; o < count; o += R) {
        float sum[TILE_ROWS_MAX * TILE_TOKENS + 3];
        for (int r = 0; r < R; r++) rows[r] = data + (size_t)(first + (o + r < count ? o + r : count - 1)) * row_bytes;
        tile(R, C, type, rows, x, w->cols, sum);
        for (int c = 0; c < C; c++)
            for (int r = 0; r < R && o + r < count; r++) sums[c][o + r] = sum[c * R + r];
    }
}

#define STRIP(C)                                                                                                   \
    case C:                                                                                                        \
        if (C <= TILE_TOKENS) strip(C <= TILE_FEW ? TILE_ROWS_FEW : TILE_ROWS, C, type, w, first, count, x, sums); \
        break;
VEC void strip_of(const enum dtype type, const struct weight *w, int first, int count, const float *const *x,
                  int tokens, float sums[][BLOCK_ROWS]) {
    switch (tokens) { STRIP(1) STRIP(2) STRIP(3) STRIP(4) STRIP(5) STRIP(6) }
}
#undef STRIP

static void strip_any(const struct weight *w, int first, int count, const float *const *x, int tokens,
                      float sums[][BLOCK_ROWS]) {
    switch (w->type) {
    case DTYPE_F32:
        strip_of(DTYPE_F32, w, first, count, x, tokens, sums);
        break;
    case DTYPE_BF16:
        strip_of(DTYPE_BF16, w, first, count, x, tokens, sums);
        break;
    case DTYPE_F16:
        strip_of(DTYPE_F16, w, first, count, x, tokens, sums);
        break;
    }
}

/* silu(g) * u = g / (1 + exp(-g)) * u */
static void silu_times(float *out, const float *gate, const float *up, int count) {
    for (int i = 0; i < count; i += LANES) {
        vec g = load_part(gate + i, count - i), u = load_part(up + i, count - i);
        vec denominator = vec_add(vec_set(1.0f), vec_exp(vec_sub(vec_zero(), g)));
        store_part(out + i, vec_mul(vec_div(g, denominator), u), count - i);
    }
}

static void finish(const struct product *p, float *out, const float *sums, const float *up_sums, int first, int count) {
    switch (p->end) {
    case PRODUCT_STORE:
        if (p->bias.data) {
            const unsigned char *bias = p->bias.data;
            widen(out, bias + (size_t)first * (size_t)dtype_bytes(p->bias.type), p->bias.type, count);
            for (int i = 0; i < count; i++) out[i] += sums[i];
        } else {
            memcpy(out, sums, (size_t)count * sizeof *out);
        }
        break;
    case PRODUCT_ADD:
        for (int i = 0; i < count; i++) out[i] += sums[i];
        break;
    case PRODUCT_SILU:
        silu_times(out, sums, up_sums, count);
        break;
    }
}

/* Rows of a block: what stays in the L2 cache while several tiles of tokens pass. */
static int block_rows(const struct product *p) {
    if (p->tokens <= TILE_TOKENS) return BLOCK_ROWS;
    int64_t row_bytes = (int64_t)p->w.cols * dtype_bytes(p->w.type) * (p->end == PRODUCT_SILU ? 2 : 1);
    int64_t rows = BLOCK_BYTES / row_bytes / TILE_ROWS_MAX * TILE_ROWS_MAX;
    return rows > BLOCK_ROWS ? BLOCK_ROWS : rows < TILE_ROWS_MAX ? TILE_ROWS_MAX : (int)rows;
}

static void product(const struct product *p, int first, int end) {
    const int step = block_rows(p), tiles = (p->tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    float sums[TILE_TOKENS][BLOCK_ROWS], up_sums[TILE_TOKENS][BLOCK_ROWS];
    for (int o = first; o < end; o += step) {
        const int count = end - o < step ? end - o : step;
        for (int i = 0, t = 0, next; i < tiles; i++, t = next) {
            next = (int)((int64_t)p->tokens * (i + 1) / tiles); /* tiles of nearly equal size */
            const float *x[TILE_TOKENS];
            for (int c = t; c < next; c++) x[c - t] = p->x + (size_t)c * (size_t)p->w.cols;
            strip_any(&p->w, o, count, x, next - t, sums);
            if (p->end == PRODUCT_SILU) strip_any(&p->up, o, count, x, next - t, up_sums);
            for (int c = t; c < next; c++)
                finish(p, p->out + c * p->out_stride + o, sums[c - t], up_sums[c - t], o, count);
        }
    }
}
