/* Quantised weights as f32, in the bits that model/format.c defines. Included by kernels.h alone.
 *
 * A row is read in pieces, whose scales become f32 first, and a piece in steps of 32 columns, two vectors, by what its kind does with
 * a step; what has no kind here is read by its function of model/format.c. */

enum { STEP = 32, STEPS_MAX = 32, PIECE = STEP * STEPS_MAX, GROUPS_MAX = 1024 };
/* How far behind the tile to come the memory is asked, its unit, and what is asked for in the L1 cache as well: rows of 16 bits that are no
 * longer, whose weights are likely in a cache already, and tiles of quantised rows, whose instructions are what limits, that leave room. */
enum { AHEAD_BYTES = 4 << 10, LINE = 64, SHORT_ROW = 512, NEAR_TILE = 16 << 10 };
/* In the L2 cache, as the L1 cache can wait for few lines at once, which keep it from others; `near`: in both. */
VEC void fetch_ahead(const unsigned char *at, bool near) {
    if (near)
        __builtin_prefetch(at, 0, 3);
    else
        __builtin_prefetch(at, 0, 2);
}

/* Types of blocks, each a kind. */
#define BLOCK_KINDS(EACH) \
    EACH(Q8_0)            \
    EACH(Q4_0)            \
    EACH(Q4_1)            \
    EACH(Q5_0)            \
    EACH(Q5_1)            \
    EACH(IQ4_NL)          \
    EACH(MXFP4)           \
    EACH(Q2_K)            \
    EACH(Q3_K)            \
    EACH(Q4_K)            \
    EACH(Q5_K)            \
    EACH(Q6_K)            \
    EACH(IQ4_XS)

/* Each kind that has steps. */
#define KINDS(EACH)  \
    EACH(FP8)        \
    EACH(INT4)       \
    EACH(INT4_ZEROS) \
    EACH(FP4)        \
    EACH(FP4_HALVES) \
    EACH(NF4)        \
    BLOCK_KINDS(EACH)

#define KIND_OF_BLOCKS(TYPE) KIND_##TYPE = KIND_BLOCKS + DTYPE_##TYPE,
enum kind {
    KIND_OTHER,
    KIND_GATHERED, /* INT4 whose columns lie in any order of groups */
    KIND_FP8,
    KIND_INT4, /* all zeros are 8 */
    KIND_INT4_ZEROS,
    KIND_FP4,
    KIND_FP4_HALVES, /* a scale of its own for each half of a step */
    KIND_NF4,
    KIND_BLOCKS, /* and the type of the blocks */
    BLOCK_KINDS(KIND_OF_BLOCKS)
};
#undef KIND_OF_BLOCKS

VEC int groups_of_row(const struct weight *w) {
    return (w->cols + w->scales->group - 1) / w->scales->group;
}

static enum kind kind_of(const struct weight *w) {
    const struct scales *s = w->scales;
    if (dtype_block(w->format).numbers >= STEP) return (enum kind)(KIND_BLOCKS + w->format);
    if (s && s->group_of && w->format == DTYPE_INT4 && groups_of_row(w) <= GROUPS_MAX) return KIND_GATHERED;
    if (!s || s->group_of) return KIND_OTHER;
    if (w->format == DTYPE_FP4 && s->group == STEP / 2) return KIND_FP4_HALVES;
    if (s->group % STEP != 0 && s->group < w->cols) return KIND_OTHER;
    switch (w->format) {
    case DTYPE_FP8:
        return KIND_FP8;
    case DTYPE_INT4:
        return s->zeros ? KIND_INT4_ZEROS : KIND_INT4;
    case DTYPE_FP4:
        return KIND_FP4;
    case DTYPE_NF4:
        return KIND_NF4;
    default:
        return KIND_OTHER;
    }
}

VEC bool is_blocks(const enum kind kind) {
    return (int)kind >= (int)KIND_BLOCKS;
}
VEC enum dtype type_of_blocks(const enum kind kind) {
    return (enum dtype)((int)kind - (int)KIND_BLOCKS);
}
/* Columns of a piece. */
VEC int kind_piece(const enum kind kind) {
    return is_blocks(kind) ? dtype_block(type_of_blocks(kind)).numbers : PIECE;
}
/* Bytes of `count` columns. */
VEC int64_t kind_bytes(const enum kind kind, int64_t count) {
    if (is_blocks(kind)) return dtype_span_bytes(type_of_blocks(kind), count);
    return kind == KIND_FP8 ? count : count / 2;
}
/* Where what a step reads begins, in the row: its numbers, or the block. */
VEC int64_t step_at(const enum kind kind, int piece, int step) {
    return kind_bytes(kind, is_blocks(kind) ? piece : piece + step * STEP);
}

/* What four bits stand for before the scale, or the zero and the scale: NF4's are any f32. */
struct values {
    vec any;
    vec_list list;
};
VEC struct values listed_values(const enum kind kind, const struct weight *w) {
    struct values out;
    if (is_blocks(kind))
        out.list = vec_list_of(block_values(type_of_blocks(kind)));
    else if (kind == KIND_INT4 || kind == KIND_INT4_ZEROS)
        out.list = vec_list_of(kind == KIND_INT4 ? from_8_below : from_0);
    else
        out.list = vec_list_of(format_fp4_values);
    out.any = kind == KIND_NF4 ? vec_load(w->scales->values) : vec_zero();
    return out;
}

/* One piece of a row: the scales and zeros of its groups (KIND_FP4_HALVES: of each half of a step; blocks: of their parts). */
struct piece {
    float scale[2 * STEPS_MAX], zero[STEPS_MAX];
};

/* The columns of a piece, which all rows share. */
struct columns {
    int first, count, groups;
};
VEC struct columns columns_of(const enum kind kind, const struct weight *w, int first, int count) {
    struct columns c = {.first = first, .count = count};
    if (kind == KIND_FP4_HALVES)
        c.groups = (count + STEP / 2 - 1) / (STEP / 2);
    else if (!is_blocks(kind))
        c.groups = (first + count - 1) / w->scales->group - first / w->scales->group + 1;
    return c;
}

/* The group of a step, counted from that of the piece's first column; `left` of its columns are not passed yet. */
struct place {
    int group, left;
};
VEC struct place place_first(const enum kind kind, const struct weight *w, int first) {
    struct place at = {0, 0};
    if (!is_blocks(kind)) at.left = w->scales->group - first % w->scales->group;
    return at;
}
VEC void place_next(const enum kind kind, struct place *at, const struct weight *w) {
    if (is_blocks(kind) || kind == KIND_FP4_HALVES) return;
    at->left -= STEP;
    if (at->left <= 0) at->group++, at->left += w->scales->group;
}

VEC float scalar_scale(const unsigned char *data, enum dtype type) {
    uint16_t half;
    if (type == DTYPE_E8M0) return format_from_e8m0(*data);
    memcpy(&half, data, sizeof half);
    return type == DTYPE_F16 ? float_of_half(half) : fmath_from_bits((uint32_t)half << 16);
}

/* Sixteen bits each, or f32. The last whole vector may overlap the one before it. */
VEC void read_wide_scales(float *out, const unsigned char *data, const enum dtype type, int count) {
    const int bytes = dtype_bytes(type);
    for (int i = 0; i + LANES <= count; i += LANES) vec_store(out + i, vec_widen(data + i * bytes, type));
    if (count >= LANES) {
        vec_store(out + count - LANES, vec_widen(data + (count - LANES) * bytes, type));
        return;
    }
    for (int i = 0; i < count && type == DTYPE_F32; i++) memcpy(&out[i], data + i * bytes, sizeof *out);
    for (int i = 0; i < count && type != DTYPE_F32; i++) out[i] = scalar_scale(data + i * bytes, type);
}

/* Scales that lie side by side, times their factor. `out` has room for whole vectors. Of a piece at once, so one copy for all kinds will do. */
__attribute__((noinline)) static void read_scales(float *out, const struct scales *s, int64_t at, int count) {
    const unsigned char *data = (const unsigned char *)s->data + dtype_span_bytes(s->type, at);
    unsigned char padded[LANES] = {0};
    int i = 0;
    switch (s->type) {
    case DTYPE_F32:
        read_wide_scales(out, data, DTYPE_F32, count);
        break;
    case DTYPE_FP8:
        for (; i + LANES <= count; i += LANES) vec_store(out + i, vec_mul(vec_fp8(data + i), vec_set(256)));
        for (int j = 0; i + j < count; j++) padded[j] = data[i + j];
        if (i < count) vec_store(out + i, vec_mul(vec_fp8(padded), vec_set(256)));
        break;
    case DTYPE_E8M0:
        for (; i < count; i++) out[i] = scalar_scale(data + i, DTYPE_E8M0);
        break;
    case DTYPE_F16:
        read_wide_scales(out, data, DTYPE_F16, count);
        break;
    default:
        read_wide_scales(out, data, DTYPE_BF16, count);
        break;
    }
    for (i = 0; i < count && s->factor != 1; i++) out[i] *= s->factor;
}

VEC int64_t cells_of_row(const struct scales *s, int row) {
    row += s->first;
    return (s->rows == 1 ? row : row / s->rows) * s->stride;
}

/* `data`: where the row begins. */
VEC void open_piece(const enum kind kind, struct piece *p, const struct columns *c, const struct weight *w,
                    const unsigned char *data, int row) {
    if (is_blocks(kind)) {
        open_block(type_of_blocks(kind), data + kind_bytes(kind, c->first), p->scale);
        return;
    }
    const struct scales *s = w->scales;
    const int64_t at = cells_of_row(s, row) + c->first / s->group;
    read_scales(p->scale, s, at, c->groups);
    for (int g = 0; kind == KIND_FP8 && g < c->groups; g++) p->scale[g] *= 256; /* for vec_fp8 */
    for (int g = 0; kind == KIND_INT4_ZEROS && g < c->groups; g++) p->zero[g] = s->zeros[at + g];
}

/* The weights of a step of group `g`, from `from` on (step_at). */
VEC void read_step(const enum kind kind, const struct piece *p, int step, int g, const unsigned char *from,
                   struct values values, vec out[2]) {
    if (is_blocks(kind)) {
        read_part(type_of_blocks(kind), from, p->scale, step, values.list, out);
        return;
    }
    const int half = kind == KIND_FP4_HALVES;
    const vec times[2] = {vec_set(p->scale[half ? 2 * step : g]), vec_set(p->scale[half ? 2 * step + 1 : g])};
    if (kind == KIND_FP8) {
        out[0] = vec_mul(vec_fp8(from), times[0]), out[1] = vec_mul(vec_fp8(from + LANES), times[0]);
        return;
    }
    if (kind == KIND_NF4) {
        const vec products = vec_mul(values.any, times[0]);
        out[0] = vec_pick(products, ivec_pairs(from, 1)), out[1] = vec_pick(products, ivec_pairs(from + LANES / 2, 1));
        return;
    }
    const enum map map = kind == KIND_INT4_ZEROS ? MAP_CENTRED : MAP_TIMES;
    vec_listed(map, values.list, nibbles_pairs(from), times, vec_set(map == MAP_CENTRED ? p->zero[g] : 0), out);
}

/* The last step of a row, of which `count` columns are there: the others are 0 and their bytes are not read. Rare, so one copy for all
 * kinds will do. */
__attribute__((noinline)) static void read_last_step(enum kind kind, const struct piece *p, int step, int g, int count,
                                                     const unsigned char *from, struct values values, vec out[2]) {
    unsigned char padded[STEP] = {0};
    float wide[STEP];
    if (is_blocks(kind)) __builtin_unreachable(); /* which are whole */
    memcpy(padded, from, (size_t)(kind == KIND_FP8 ? count : (count + 1) / 2));
    read_step(kind, p, step, g, padded, values, out);
    vec_store(wide, out[0]), vec_store(wide + LANES, out[1]);
    for (int i = count; i < STEP; i++) wide[i] = 0;
    out[0] = vec_load(wide), out[1] = vec_load(wide + LANES);
}

VEC void unpack_kind(const enum kind kind, float *out, const struct weight *w, int row, int first, int count) {
    const struct values values = listed_values(kind, w);
    const unsigned char *data = weight_row(w, row);
    const int span = kind_piece(kind);
    struct piece p;
    vec two[2];
    for (int k = first; k < first + count; k += span) {
        const int n = is_blocks(kind) || first + count - k > span ? span : first + count - k, left = n % STEP;
        const struct columns columns = columns_of(kind, w, k, n);
        struct place at = place_first(kind, w, k);
        open_piece(kind, &p, &columns, w, data, row);
        for (int i = 0; i < n / STEP; i++, out += STEP, place_next(kind, &at, w)) {
            const unsigned char *from = data + step_at(kind, k, i);
            fetch_ahead(from + AHEAD_BYTES + (is_blocks(kind) ? i * LINE / 2 : 0), false);
            read_step(kind, &p, i, at.group, from, values, two);
            vec_store(out, two[0]), vec_store(out + LANES, two[1]);
        }
        if (left == 0) continue;
        read_last_step(kind, &p, n / STEP, at.group, left, data + step_at(kind, k, n / STEP), values, two);
        store_part(out, two[0], left);
        if (left > LANES) store_part(out + LANES, two[1], left - LANES);
    }
}

/* A row's scales become a table, in which each column looks its own up. */
static void unpack_gathered(float *out, const struct weight *w, int row, int first, int count) {
    const struct scales *s = w->scales;
    const int64_t cell = cells_of_row(s, row);
    const unsigned char *from = (const unsigned char *)weight_row(w, row) + first / 2;
    const int32_t *group = s->group_of + first;
    float scale[GROUPS_MAX], zero[GROUPS_MAX];
    unsigned char last[LANES / 2] = {0};
    int32_t last_group[LANES] = {0};
    read_scales(scale, s, cell, groups_of_row(w));
    for (int g = 0; s->zeros && g < groups_of_row(w); g++) zero[g] = s->zeros[cell + g];
    for (int k = 0; k < count; k += LANES, from += LANES / 2, group += LANES) {
        const int left = count - k;
        if (left < LANES) {
            from = memcpy(last, from, (size_t)(left + 1) / 2);
            group = memcpy(last_group, group, (size_t)left * sizeof *group);
        }
        const vec q = vec_of(ivec_and(ivec_pairs(from, 0), 15));
        const vec from_zero = vec_sub(q, s->zeros ? vec_gather(zero, group) : vec_set(8));
        store_part(out + k, vec_mul(from_zero, vec_gather(scale, group)), left);
    }
}

/* Numbers [first, first + count) of a row; `first` begins a block. */
static void unpack(float *out, const struct weight *w, int row, int first, int count) {
    const unsigned char *from = (const unsigned char *)weight_row(w, row) + dtype_span_bytes(w->format, first);
    if (!dtype_is_quantised(w->format)) {
        widen(out, from, w->format, count);
        return;
    }
#define UNPACK(KIND)                                         \
    case KIND_##KIND:                                        \
        unpack_kind(KIND_##KIND, out, w, row, first, count); \
        return;
    switch (first % STEP == 0 ? kind_of(w) : KIND_OTHER) {
        KINDS(UNPACK)
    case KIND_GATHERED:
        unpack_gathered(out, w, row, first, count);
        return;
    default:
        format_of(w->format)->dequantise(out, w, row, first, count);
    }
#undef UNPACK
}
