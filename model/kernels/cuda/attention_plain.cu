/* Paged attention where clusters do not take it (attention.cu): splits of 64 absolute positions, dealt to ATTENTION_PARTS blocks,
 * combined in fixed order.
 *
 * Shapes: q [T, H DH] f32; K, V pages [P, HKV, PAGE, DH] 16 bit or FP8 (attention_cells.cuh); out [T, H DH] 16 bit.
 * Mapping: block (b, chunk of queries | key/value head | part) walks splits part, part + PARTS, ... in ascending order with an
 *   online softmax a query. A query is one row and one of the H / HKV heads that share a key head; a warp owns one (few
 *   queries) or up to 4 (many; 2 of long heads). Keys and values of a split go through shared memory once for all queries of the
 *   block, of long heads (above 256) by the same place in turn. The combining kernel adds the parts of a row and head in ascending
 *   order, and its sink to their sum.
 * Bytes: every visible key and value once a chunk of 8, 16 or 32 queries.
 * Numerics: which part and which place in its order a key has depends on its absolute position alone; a split without a visible
 *   key changes no bit; keys past a row are skipped, never multiplied. */
#include "model/kernels/cuda/attention_cells.cuh"

enum { WARPS = BLOCK_THREADS / 32, SPLIT = ATTENTION_SPLIT, COMBINE_THREADS = 128 };

/* Elements between rows of keys in shared memory. With 16-byte loads, 16 bytes of padding part the banks of 8 lanes. */
__host__ __device__ constexpr int key_stride(int dh) {
    return dh % 8 == 0 ? dh + 8 : dh + 2;
}

/* One query's running softmax: PAIRS pairs of dims a lane, 2 lane + 64 i and the next. */
template <int PAIRS> struct running {
    float max, sum;
    float2 out[PAIRS];
};

/* Keys, values or both of positions [first, first + SPLIT) up to `last` into shared memory, moved in words of type W. NULL: not. */
template <typename W>
__device__ void load_words(const struct op_attention &op, int page, int head, int first, int last, void *keys,
                           void *values) {
    const int dh = op.head_dim, words = dh * 2 / (int)sizeof(W), stride = key_stride(dh) * 2 / (int)sizeof(W);
    const size_t base = (((size_t)page * op.kv_heads + head) * KV_PAGE + first % KV_PAGE) * words;
    const W *k = (const W *)op.kv.k + base, *v = (const W *)op.kv.v + base;
    const int visible = min(last - first + 1, (int)SPLIT) * words;
#pragma unroll 4
    for (int i = threadIdx.x; i < visible; i += WARPS * 32) {
        int at = i / words * stride + i % words;
        if (keys) ((W *)keys)[at] = k[i];
        if (values) ((W *)values)[at] = v[i];
    }
}
/* Likewise in FP8, eight numbers at a time, or two. */
template <typename T, int COUNT>
__device__ void load_codes(const struct op_attention &op, const struct coded &from, int first, int visible, T *to) {
    const int pieces = op.head_dim / COUNT, stride = key_stride(op.head_dim);
    const uint8_t *codes = from.codes + first * op.head_dim;
    for (int i = threadIdx.x; i < visible * pieces; i += WARPS * 32) {
        const int key = i / pieces;
        const float factor = fp8_factor(from.scales[first + key]);
        T *at = to + key * stride + i % pieces * COUNT;
        if (COUNT == 8)
            *(uint4 *)at = widen_eight<T>(((const uint2 *)codes)[i], factor);
        else
            *(uint32_t *)at = widen_two<T>(((const uint16_t *)codes)[i], factor);
    }
}
template <typename T>
__device__ void load_coded(const struct op_attention &op, const void *cache, int page, int head, int first, int last,
                           T *to) {
    const struct coded from = find_coded(op, cache, page, head);
    const int visible = min(last - first + 1, (int)SPLIT);
    if (op.head_dim % 8 == 0)
        load_codes<T, 8>(op, from, first % KV_PAGE, visible, to);
    else
        load_codes<T, 2>(op, from, first % KV_PAGE, visible, to);
}
template <typename T, bool IS_FP8>
__device__ void load_split(const struct op_attention &op, int page, int head, int first, int last, T *keys, T *values) {
    __syncthreads();
    if (IS_FP8) {
        if (keys) load_coded(op, op.kv.k, page, head, first, last, keys);
        if (values) load_coded(op, op.kv.v, page, head, first, last, values);
    } else if (op.head_dim % 8 == 0)
        load_words<uint4>(op, page, head, first, last, keys, values);
    else
        load_words<uint32_t>(op, page, head, first, last, keys, values);
    __syncthreads();
}

/* Scores of the keys in rows `low` and `high`, in ascending order of dimensions. */
template <typename T> __device__ float2 dots(const float *q, const T *low, const T *high, int dh) {
    typedef typename pair_of<T>::type pair;
    float2 sum = make_float2(0, 0);
    auto add = [&](int d, pair a, pair b) {
        float2 x = to_floats(a), y = to_floats(b);
        sum.x = fmaf(q[d + 1], x.y, fmaf(q[d], x.x, sum.x));
        sum.y = fmaf(q[d + 1], y.y, fmaf(q[d], y.x, sum.y));
    };
    if (dh % 8 == 0) {
#pragma unroll 4
        for (int d = 0; d < dh; d += 8) {
            uint4 a = *(const uint4 *)(low + d), b = *(const uint4 *)(high + d);
            const pair *x = (const pair *)&a, *y = (const pair *)&b;
#pragma unroll
            for (int i = 0; i < 4; i++) add(d + 2 * i, x[i], y[i]);
        }
    } else {
        for (int d = 0; d < dh; d += 2) add(d, *(const pair *)(low + d), *(const pair *)(high + d));
    }
    return sum;
}

/* The weights of keys l and l + 32 of a split for lane l; what was summed so far is scaled. False: the query sees none of them. */
template <typename T, int PAIRS>
__device__ bool weigh_split(const struct op_attention &op, const float *q, int position, int first, const T *keys,
                            struct running<PAIRS> *r, float (&p)[2]) {
    const int lane = threadIdx.x % 32, dh = op.head_dim, stride = key_stride(dh);
    float score[2];
    bool is_any = false;
    const float2 dot = dots(q, keys + lane * stride, keys + (lane + 32) * stride, dh);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int j = first + lane + 32 * i;
        bool visible = is_visible(j, position, op.window);
        is_any = is_any || visible;
        score[i] = op.scale * (i ? dot.y : dot.x);
        if (op.cap != 0) score[i] = soft_cap(score[i], op.cap);
        if (!visible) score[i] = -CUDART_INF_F;
    }
    if (!__any_sync(0xffffffffu, is_any)) return false;
    float largest = warp_max(fmaxf(score[0], score[1]));
    float max = fmaxf(r->max, largest), keep = r->max == -CUDART_INF_F ? 0.0f : expf(r->max - max);
    p[0] = expf(score[0] - max), p[1] = expf(score[1] - max);
    r->sum = fmaf(r->sum, keep, warp_sum(p[0] + p[1]));
    r->max = max;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) r->out[i].x *= keep, r->out[i].y *= keep;
    return true;
}

/* A split's values with the weights of its keys. A lane owns dims 2 l + 64 i of the output. */
template <typename T, int PAIRS>
__device__ void add_values(int dh, int position, int first, const T *values, const float (&p)[2],
                           struct running<PAIRS> *r) {
    typedef typename pair_of<T>::type pair;
    const int lane = threadIdx.x % 32, stride = key_stride(dh), keys_in_split = min(position - first + 1, (int)SPLIT);
#pragma unroll 8
    for (int j = 0; j < keys_in_split; j++) {
        float weight = __shfl_sync(0xffffffffu, j < 32 ? p[0] : p[1], j % 32);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int d = 2 * lane + 64 * i;
            if (d >= dh) break;
            float2 v = to_floats(*(const pair *)(values + j * stride + d));
            if (weight == 0) v = make_float2(0, 0); /* not visible: its value may be anything */
            r->out[i].x = fmaf(weight, v.x, r->out[i].x);
            r->out[i].y = fmaf(weight, v.y, r->out[i].y);
        }
    }
}

/* PAIRS of 4 for heads of up to 256 dims, whose keys and values lie side by side, and 8 for longer ones. */
template <typename T, int QUERIES_A_WARP, int PAIRS, bool IS_FP8>
__global__ void __launch_bounds__(WARPS * 32) attention_kernel(const struct op_attention op, int chunks) {
    constexpr int CHUNK = WARPS * QUERIES_A_WARP;
    constexpr bool TAKES_TURNS = PAIRS > 4;
    extern __shared__ __align__(16) unsigned char shared[];
    next_may_start();
    inputs_are_ready();
    const int dh = op.head_dim, group = op.heads / op.kv_heads, queries = op.rows.q_len * group;
    const int b = blockIdx.x / chunks, first_query = blockIdx.x % chunks * CHUNK, head = blockIdx.y, part = blockIdx.z;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    T *keys = (T *)shared, *values = TAKES_TURNS ? keys : keys + SPLIT * key_stride(dh);
    float *q = (float *)(values + SPLIT * key_stride(dh)); /* [CHUNK, DH] */
    const int count = min(queries - first_query, CHUNK);
    const int *positions = rows_sight(&op.rows) + (size_t)b * op.rows.q_len;
    const int first_position = positions[first_query / group], last = positions[(first_query + count - 1) / group];
    const int *pages = op.rows.page_table + (size_t)op.rows.row_slot[b] * op.rows.pages_per_slot;
    struct running<PAIRS> state[QUERIES_A_WARP];
    for (int i = 0; i < QUERIES_A_WARP; i++) state[i] = running<PAIRS>{-CUDART_INF_F, 0, {}};
    for (int i = threadIdx.x; i < count * dh; i += blockDim.x) {
        int query = first_query + i / dh, row = b * op.rows.q_len + query / group;
        q[i] = op.q[((size_t)row * op.heads + head * group + query % group) * dh + i % dh];
    }
    const int oldest = op.window > 0 ? max(max(first_position, 0) - op.window + 1, 0) : 0;
    for (int first = part * SPLIT; first <= last; first += ATTENTION_PARTS * SPLIT) {
        if (first + SPLIT <= oldest) continue;
        const int page = pages[first / KV_PAGE];
        float p[QUERIES_A_WARP][2];
        bool sees[QUERIES_A_WARP];
        load_split<T, IS_FP8>(op, page, head, first, last, keys, TAKES_TURNS ? nullptr : values);
#pragma unroll
        for (int i = 0; i < QUERIES_A_WARP; i++) {
            const int query = warp + i * WARPS;
            if (query >= count) break;
            const int position = positions[(first_query + query) / group];
            sees[i] = weigh_split<T>(op, q + query * dh, position, first, keys, &state[i], p[i]);
            if (!TAKES_TURNS && sees[i]) add_values<T>(dh, position, first, values, p[i], &state[i]);
        }
        if (!TAKES_TURNS) continue;
        load_split<T, IS_FP8>(op, page, head, first, last, nullptr, values);
#pragma unroll
        for (int i = 0; i < QUERIES_A_WARP; i++) {
            const int query = warp + i * WARPS;
            if (query >= count) break;
            if (sees[i]) add_values<T>(dh, positions[(first_query + query) / group], first, values, p[i], &state[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < QUERIES_A_WARP; i++) {
        int query = first_query + warp + i * WARPS;
        if (warp + i * WARPS >= count) break;
        int row = b * op.rows.q_len + query / group;
        float *out =
            op.partials + (((size_t)row * op.heads + head * group + query % group) * ATTENTION_PARTS + part) * (dh + 2);
        if (lane == 0) out[0] = state[i].max, out[1] = state[i].sum;
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            int d = 2 * lane + 64 * j;
            if (d < dh) out[2 + d] = state[i].out[j].x, out[3 + d] = state[i].out[j].y;
        }
    }
}

/* grid (T, H): parts in ascending order; one without a key, whose sum is 0, is left out. Not by its maximum: that is -inf where
 * all scores are NaN, and NaN must come out. */
template <typename T> __global__ void combine_kernel(const struct op_attention op, enum token_order order) {
    next_may_start();
    inputs_are_ready();
    const int dh = op.head_dim;
    const size_t row_head = (size_t)blockIdx.x * op.heads + blockIdx.y;
    const float *parts = op.partials + row_head * ATTENTION_PARTS * (dh + 2);
    float maxima[ATTENTION_PARTS], sums[ATTENTION_PARTS], max = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int p = 0; p < ATTENTION_PARTS; p++) maxima[p] = parts[p * (dh + 2)], sums[p] = parts[p * (dh + 2) + 1];
#pragma unroll
    for (int p = 0; p < ATTENTION_PARTS; p++) max = fmaxf(max, maxima[p]);
#pragma unroll
    for (int p = 0; p < ATTENTION_PARTS; p++) {
        maxima[p] = sums[p] != 0 ? expf(maxima[p] - max) : 0.0f; /* now the part's factor */
        sum = fmaf(sums[p], maxima[p], sum);
    }
    if (op.sinks.data && sum != 0) sum += expf(to_float(((const T *)op.sinks.data)[blockIdx.y]) - max);
    for (int d = threadIdx.x; d < dh; d += blockDim.x) {
        float out = 0;
#pragma unroll
        for (int p = 0; p < ATTENTION_PARTS; p++) {
            float value = parts[p * (dh + 2) + 2 + d];
            if (sums[p] != 0) out = fmaf(value, maxima[p], out);
        }
        const int at = place_start(order, place_in(order, (int)blockIdx.y * dh + d));
        ((T *)op.out.data)[token_start(order, op.heads * dh, blockIdx.x) + at] =
            from_float<T>(sum == 0 ? 0.0f : out / sum);
    }
}

template <typename T, int QUERIES_A_WARP, int PAIRS, bool IS_FP8>
static int launch_attention(struct stream *s, const struct op_attention *op) {
    constexpr int CHUNK = WARPS * QUERIES_A_WARP;
    auto kernel = attention_kernel<T, QUERIES_A_WARP, PAIRS, IS_FP8>;
    const int chunks = ceil_div(op->rows.q_len * (op->heads / op->kv_heads), CHUNK), tiles = PAIRS > 4 ? 1 : 2;
    const size_t shared =
        tiles * SPLIT * (size_t)key_stride(op->head_dim) * sizeof(T) + CHUNK * (size_t)op->head_dim * sizeof(float);
    dim3 grid(op->rows.batch * chunks, op->kv_heads, ATTENTION_PARTS);
    launch_dependent(s, kernel, grid, WARPS * 32, shared, 1, *op, chunks);
    return cuda_launched(s, "attention", sizeof *op);
}

/* Few queries are spread over more blocks; how they are spread changes no bit of a query. */
template <typename T, bool IS_FP8> static int launch(struct stream *s, const struct op_attention *op) {
    enum { FEW = 64, LONG = 256 };
    if (op->head_dim > LONG)
        TRY((launch_attention<T, 2, 8, IS_FP8>(s, op)));
    else if (op->rows.q_len * (op->heads / op->kv_heads) <= FEW)
        TRY((launch_attention<T, 1, 4, IS_FP8>(s, op)));
    else
        TRY((launch_attention<T, 4, 4, IS_FP8>(s, op)));
    launch_dependent(s, combine_kernel<T>, dim3(rows_count(&op->rows), op->heads), COMBINE_THREADS, 0, 1, *op,
                     cuda_order_for(s, &op->rows, &op->reader));
    return cuda_launched(s, "attention combine", sizeof *op + 4);
}

int cuda_attention_plain(struct stream *s, const struct op_attention *op) {
    return with_cells(op,
                      [&](auto type, auto is_fp8) { return launch<decltype(type), decltype(is_fp8)::value>(s, op); });
}
