/* Attention of a block of queries: rows of one graph row, heads of one key/value head. The block goes through the
 * keys split by split, so that a split comes from memory once for all of them. Included by kernels.h alone.
 *
 * A score is a sum of products as in isa.h, times `scale`. Within a split: m = max, p_j = exp(s_j - m), l = the
 * 64 places of the split added as four vectors (0 + 1) + (2 + 3) and then lane by lane as ever, o = the sum over
 * even positions plus the sum over odd ones, each ascending by fma. Keys are absolute positions throughout. A split in
 * FP8 is read into f32 first, what its queries see, so that the bits are those of a cache that holds these numbers. */
#include "base/parallel.h"
#include "model/config.h"
#include "model/fp8.h"

enum { KEYS_SIDE_BY_SIDE = 4 };

/* Where a split of one key/value head lies: key j of the split is k + j * head_dim. */
struct split {
    const float *k, *v;
    int first, end; /* visible keys, relative to the split */
};

/* Scores of keys k, k + head_dim, ... */
VEC void scores_of(const int keys, const float *q, const float *k, int head_dim, float scale, float *out) {
    vec acc[KEYS_SIDE_BY_SIDE];
    float sums[KEYS_SIDE_BY_SIDE];
    UNROLL for (int j = 0; j < KEYS_SIDE_BY_SIDE; j++) acc[j] = vec_zero();
    int i = 0;
    for (; i + LANES <= head_dim; i += LANES) {
        vec part = vec_load(q + i);
        UNROLL for (int j = 0; j < keys; j++) acc[j] = vec_fma(part, vec_load(k + j * head_dim + i), acc[j]);
    }
    if (i < head_dim) {
        vec part = vec_load_part(q + i, head_dim - i);
        UNROLL for (int j = 0; j < keys; j++) acc[j] =
            vec_fma(part, vec_load_part(k + j * head_dim + i, head_dim - i), acc[j]);
    }
    vec_sum4(sums, acc[0], acc[1], acc[2], acc[3]);
    for (int j = 0; j < keys; j++) out[j] = sums[j] * scale;
}

/* Turns scores into p_j in place and returns m; *l = the sum of p. Invisible places are -INFINITY and become 0. */
static float split_softmax(float *scores, float *l) {
    vec s[ATTENTION_SPLIT / LANES];
    UNROLL for (int i = 0; i < ATTENTION_SPLIT / LANES; i++) s[i] = vec_load(scores + i * LANES);
    float lanes[LANES];
    vec_store(lanes, vec_max(vec_max(s[0], s[1]), vec_max(s[2], s[3])));
    float m = lanes[0];
    for (int i = 1; i < LANES; i++) m = lanes[i] > m ? lanes[i] : m;
    UNROLL for (int i = 0; i < ATTENTION_SPLIT / LANES; i++) {
        s[i] = vec_exp(vec_sub(s[i], vec_set(m)));
        vec_store(scores + i * LANES, s[i]);
    }
    *l = vec_sum(vec_add(vec_add(s[0], s[1]), vec_add(s[2], s[3])));
    return m;
}

/* acc += p * value, for `vecs` vectors; `lanes` of the last one count. */
VEC void add_value(const int vecs, vec *acc, float p, const float *value, int lanes) {
    UNROLL for (int n = 0; n < vecs; n++) acc[n] = vec_fma(vec_set(p), load_part(value + n * LANES, lanes), acc[n]);
}

/* out[i, ...) = out * keep + (sum_j p_j v_j) * add, for `vecs` vectors of the head. */
VEC void values_of(const int vecs, const struct split *split, const float *p, int head_dim, int i, int lanes,
                   float keep, float add, float *out) {
    vec even[VALUE_VECS], odd[VALUE_VECS];
    UNROLL for (int n = 0; n < vecs; n++) even[n] = odd[n] = vec_zero();
    const float *v = split->v + i;
    int j = split->first;
    if (j & 1) {
        add_value(vecs, odd, p[j], v + j * head_dim, lanes);
        j++;
    }
    for (; j + 1 < split->end; j += 2) {
        add_value(vecs, even, p[j], v + j * head_dim, lanes);
        add_value(vecs, odd, p[j + 1], v + (j + 1) * head_dim, lanes);
    }
    if (j < split->end) add_value(vecs, even, p[j], v + j * head_dim, lanes);
    UNROLL for (int n = 0; n < vecs; n++) {
        vec sum = vec_mul(vec_add(even[n], odd[n]), vec_set(add));
        float *place = out + i + n * LANES;
        if (keep != 0.0f) sum = vec_fma(load_part(place, lanes), vec_set(keep), sum);
        store_part(place, sum, lanes);
    }
}

/* What a query has seen so far: the largest score, the sum of the weights relative to it; the output likewise. */
struct seen {
    float m, l;
};

/* Joins one split to what one query has seen. */
static void attend_split(const struct op_attention *op, const struct split *split, const float *q, struct seen *seen,
                         float *out) {
    const int head_dim = op->head_dim;
    const float scale = op->scale;
    float scores[ATTENTION_SPLIT], split_l;
    for (int j = 0; j < ATTENTION_SPLIT; j++) scores[j] = -INFINITY;
    int j = split->first;
    for (; j + KEYS_SIDE_BY_SIDE <= split->end; j += KEYS_SIDE_BY_SIDE)
        scores_of(KEYS_SIDE_BY_SIDE, q, split->k + j * head_dim, head_dim, scale, scores + j);
    for (; j < split->end; j++) scores_of(1, q, split->k + j * head_dim, head_dim, scale, scores + j);

    if (op->cap != 0) soft_cap(scores + split->first, op->cap, split->end - split->first);
    float split_m = split_softmax(scores, &split_l);
    float joint = seen->m > split_m ? seen->m : split_m;
    float keep = seen->m == -INFINITY ? 0.0f : fmath_exp(seen->m - joint), add = fmath_exp(split_m - joint);
    seen->l = fmaf(seen->l, keep, split_l * add);
    seen->m = joint;
    int i = 0;
    for (; i + VALUE_VECS * LANES <= head_dim; i += VALUE_VECS * LANES)
        values_of(VALUE_VECS, split, scores, head_dim, i, LANES, keep, add, out);
    for (; i < head_dim; i += LANES) values_of(1, split, scores, head_dim, i, head_dim - i, keep, add, out);
}

static void divide(float *out, float by, int count) {
    for (int i = 0; i < count; i += LANES)
        store_part(out + i, vec_div(load_part(out + i, count - i), vec_set(by)), count - i);
}

/* The first key that a row at `position` sees. */
static int first_key(const struct op_attention *op, int position) {
    return op->window > 0 && position >= op->window ? position - op->window + 1 : 0;
}

/* All queries of the block with the split at absolute position `key`. */
static void attend_queries(const struct op_attention *op, struct queries block, int key, struct split *split,
                           struct seen *seen) {
    for (int r = 0; r < block.rows; r++) {
        const int position = rows_sight(&op->rows)[block.row + r], start = first_key(op, position);
        if (position < key || start >= key + ATTENTION_SPLIT) continue;
        split->first = start > key ? start - key : 0;
        split->end = position - key < ATTENTION_SPLIT ? position - key + 1 : ATTENTION_SPLIT;
        for (int h = 0; h < block.heads; h++) {
            const size_t query =
                ((size_t)(block.row + r) * (size_t)op->heads + (size_t)(block.head + h)) * (size_t)op->head_dim;
            attend_split(op, split, op->q + query, &seen[r * block.heads + h], (float *)op->out.data + query);
        }
    }
}

/* Vectors [first, end) of a split in FP8, whose first vector of the part is `offset`. */
static void read_codes(float *out, const unsigned char *part, int offset, int dim, int first, int end) {
    for (int j = first; j < end; j++) {
        const unsigned char *codes = part + (size_t)(offset + j) * (size_t)dim;
        const vec factor = vec_set(fp8_factor(part[(size_t)KV_PAGE * (size_t)dim + (size_t)(offset + j)]));
        float *to = out + j * dim;
        int i = 0;
        for (; i + LANES <= dim; i += LANES) vec_store(to + i, vec_mul(vec_fp8(codes + i), factor));
        if (i == dim) continue;
        unsigned char padded[LANES] = {0};
        memcpy(padded, codes + i, (size_t)(dim - i));
        vec_store_part(to + i, vec_mul(vec_fp8(padded), factor), dim - i);
    }
}

/* Apart, so that only FP8 takes the stack that it needs. */
__attribute__((noinline)) static void attend_codes(const struct op_attention *op, struct queries block, int key,
                                                   size_t part, struct range sees, struct seen *seen) {
    float keys[ATTENTION_SPLIT * HEAD_DIM_MAX], values[ATTENTION_SPLIT * HEAD_DIM_MAX];
    struct split split = {.k = keys, .v = values};
    read_codes(keys, (const unsigned char *)op->kv.k + part, key % KV_PAGE, op->head_dim, sees.first, sees.end);
    read_codes(values, (const unsigned char *)op->kv.v + part, key % KV_PAGE, op->head_dim, sees.first, sees.end);
    attend_queries(op, block, key, &split, seen);
}

/* Keys [start, last] are seen by queries of the block. */
static void attend_block(const struct op_attention *op, struct queries block, int key, int start, int last,
                         struct seen *seen) {
    const int kv_head = block.head / (op->heads / op->kv_heads), b = block.row / op->rows.q_len;
    const int32_t *pages = op->rows.page_table + (size_t)op->rows.row_slot[b] * (size_t)op->rows.pages_per_slot;
    const size_t part = kv_part_start(op->kv.type, pages[key / KV_PAGE], op->kv_heads, kv_head, op->head_dim);
    if (op->kv.type == DTYPE_FP8) {
        const struct range sees = {start > key ? start - key : 0,
                                   last - key < ATTENTION_SPLIT ? last - key + 1 : ATTENTION_SPLIT};
        attend_codes(op, block, key, part, sees, seen);
        return;
    }
    const size_t at = part / sizeof(float) + (size_t)(key % KV_PAGE) * (size_t)op->head_dim;
    struct split split = {.k = (const float *)op->kv.k + at, .v = (const float *)op->kv.v + at};
    attend_queries(op, block, key, &split, seen);
}

/* A sink takes part in the softmax's sum alone. */
static float sum_with_sink(const struct op_attention *op, struct seen seen, int head) {
    if (!op->sinks.data) return seen.l;
    float sink;
    widen(&sink, (const char *)op->sinks.data + head * dtype_bytes(op->sinks.format), op->sinks.format, 1);
    return seen.l + fmath_exp(sink - seen.m);
}

static void attention(const struct op_attention *op, struct queries block) {
    struct seen seen[QUERY_ROWS_MAX * QUERY_HEADS_MAX];
    int start = INT32_MAX, last = -1;
    for (int i = 0; i < block.rows * block.heads; i++) seen[i] = (struct seen){-INFINITY, 0};
    for (int r = 0; r < block.rows; r++) {
        const int position = rows_sight(&op->rows)[block.row + r];
        if (position < 0) continue;
        start = first_key(op, position) < start ? first_key(op, position) : start;
        last = position > last ? position : last;
    }
    for (int key = start - start % ATTENTION_SPLIT; key <= last; key += ATTENTION_SPLIT)
        attend_block(op, block, key, start, last, seen);
    for (int r = 0; r < block.rows; r++)
        for (int h = 0; h < block.heads; h++) {
            float *out =
                (float *)op->out.data +
                ((size_t)(block.row + r) * (size_t)op->heads + (size_t)(block.head + h)) * (size_t)op->head_dim;
            if (rows_sight(&op->rows)[block.row + r] < 0)
                memset(out, 0, (size_t)op->head_dim * sizeof *out);
            else
                divide(out, sum_with_sink(op, seen[r * block.heads + h], block.head + h), op->head_dim);
        }
}
