/* Paged attention where clusters do not take it (attention.cuh): splits of 64 absolute positions, dealt to ATTENTION_PARTS
 * blocks, combined in fixed order.
 *
 * Shapes: q [T, H DH] f32; K, V pages [P, HKV, PAGE, DH] 16 bit; out [T, H DH] 16 bit.
 * Mapping: block (b, chunk of queries | key/value head | part) walks splits part, part + PARTS, ... in ascending order with an
 *   online softmax a query. A query is one row and one of the H / HKV heads that share a key head; a warp owns one (few
 *   queries) or up to 4 (many). Keys and values of a split go through shared memory once for all queries of the block. The
 *   combining kernel adds the parts of a row and head in ascending order.
 * Bytes: every visible key and value once a chunk of 8 or 32 queries.
 * Numerics: which part and which place in its order a key has depends on its absolute position alone; a split without a visible
 *   key changes no bit; keys past a row are skipped, never multiplied. */
#include <math_constants.h>

#include "model/kernels/cuda/attention.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/table.h"

enum { WARPS = 8, SPLIT = ATTENTION_SPLIT, PAIRS = 4, COMBINE_THREADS = 128 };

/* Elements between rows of keys in shared memory. With 16-byte loads, 16 bytes of padding part the banks of 8 lanes. */
__host__ __device__ constexpr int key_stride(int dh) {
    return dh % 8 == 0 ? dh + 8 : dh + 2;
}

template <typename T> struct pair_of;
template <> struct pair_of<bf16> { typedef __nv_bfloat162 type; };
template <> struct pair_of<half> { typedef __half2 type; };
__device__ __forceinline__ float2 floats(__nv_bfloat162 x) {
    return __bfloat1622float2(x);
}
__device__ __forceinline__ float2 floats(__half2 x) {
    return __half22float2(x);
}

/* One query's running softmax. */
struct running {
    float max, sum;
    float2 out[PAIRS]; /* dims 2 lane + 64 i */
};

/* Keys and values of positions [first, first + SPLIT) up to `last` into shared memory, moved in words of type W. */
template <typename W>
__device__ void load_split(const struct op_attention &op, int page, int head, int first, int last, void *keys,
                           void *values) {
    const int dh = op.head_dim, words = dh * 2 / (int)sizeof(W), stride = key_stride(dh) * 2 / (int)sizeof(W);
    const size_t base = (((size_t)page * op.kv_heads + head) * KV_PAGE + first % KV_PAGE) * words;
    const W *k = (const W *)op.kv.k + base, *v = (const W *)op.kv.v + base;
    const int visible = min(last - first + 1, (int)SPLIT) * words;
#pragma unroll 4
    for (int i = threadIdx.x; i < visible; i += WARPS * 32) {
        int at = i / words * stride + i % words;
        ((W *)keys)[at] = k[i];
        ((W *)values)[at] = v[i];
    }
}

/* Scores of the keys in rows `low` and `high`, in ascending order of dimensions. */
template <typename T> __device__ float2 dots(const float *q, const T *low, const T *high, int dh) {
    typedef typename pair_of<T>::type pair;
    float2 sum = make_float2(0, 0);
    auto add = [&](int d, pair a, pair b) {
        float2 x = floats(a), y = floats(b);
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

/* One split's keys into one query's softmax. Lane l scores keys l and l + 32, and owns dims 2 l + 64 i of the output. */
template <typename T>
__device__ void attend_split(const struct op_attention &op, const float *q, int position, int first, const T *keys,
                             const T *values, struct running *r) {
    typedef typename pair_of<T>::type pair;
    const int lane = threadIdx.x % 32, dh = op.head_dim, stride = key_stride(dh);
    float score[2];
    bool is_any = false;
    const float2 dot = dots(q, keys + lane * stride, keys + (lane + 32) * stride, dh);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int j = first + lane + 32 * i;
        bool visible = is_visible(j, position, op.window);
        is_any = is_any || visible;
        score[i] = visible ? op.scale * (i ? dot.y : dot.x) : -CUDART_INF_F;
    }
    if (!__any_sync(0xffffffffu, is_any)) return;
    float largest = warp_max(fmaxf(score[0], score[1]));
    float max = fmaxf(r->max, largest), keep = r->max == -CUDART_INF_F ? 0.0f : expf(r->max - max);
    float p[2] = {expf(score[0] - max), expf(score[1] - max)};
    r->sum = fmaf(r->sum, keep, warp_sum(p[0] + p[1]));
    r->max = max;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) r->out[i].x *= keep, r->out[i].y *= keep;
    const int keys_in_split = min(position - first + 1, (int)SPLIT);
#pragma unroll 8
    for (int j = 0; j < keys_in_split; j++) {
        float weight = __shfl_sync(0xffffffffu, j < 32 ? p[0] : p[1], j % 32);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            int d = 2 * lane + 64 * i;
            if (d >= dh) break;
            float2 v = floats(*(const pair *)(values + j * stride + d));
            if (weight == 0) v = make_float2(0, 0); /* not visible: its value may be anything */
            r->out[i].x = fmaf(weight, v.x, r->out[i].x);
            r->out[i].y = fmaf(weight, v.y, r->out[i].y);
        }
    }
}

template <typename T, int QUERIES_A_WARP>
__global__ void __launch_bounds__(WARPS * 32) attention_kernel(const struct op_attention op, int chunks) {
    constexpr int CHUNK = WARPS * QUERIES_A_WARP;
    extern __shared__ __align__(16) unsigned char shared[];
    next_may_start();
    inputs_are_ready();
    const int dh = op.head_dim, group = op.heads / op.kv_heads, queries = op.rows.q_len * group;
    const int b = blockIdx.x / chunks, first_query = blockIdx.x % chunks * CHUNK, head = blockIdx.y, part = blockIdx.z;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    T *keys = (T *)shared, *values = keys + SPLIT * key_stride(dh);
    float *q = (float *)(values + SPLIT * key_stride(dh)); /* [CHUNK, DH] */
    const int count = min(queries - first_query, CHUNK);
    const int *positions = op.rows.positions + (size_t)b * op.rows.q_len;
    const int first_position = positions[first_query / group], last = positions[(first_query + count - 1) / group];
    const int *pages = op.rows.page_table + (size_t)op.rows.row_slot[b] * op.rows.pages_per_slot;
    struct running state[QUERIES_A_WARP];
    for (int i = 0; i < QUERIES_A_WARP; i++) state[i] = running{-CUDART_INF_F, 0, {}};
    for (int i = threadIdx.x; i < count * dh; i += blockDim.x) {
        int query = first_query + i / dh, row = b * op.rows.q_len + query / group;
        q[i] = op.q[((size_t)row * op.heads + head * group + query % group) * dh + i % dh];
    }
    const int oldest = op.window > 0 ? max(max(first_position, 0) - op.window + 1, 0) : 0;
    for (int first = part * SPLIT; first <= last; first += ATTENTION_PARTS * SPLIT) {
        if (first + SPLIT <= oldest) continue;
        const int page = pages[first / KV_PAGE];
        __syncthreads();
        if (dh % 8 == 0)
            load_split<uint4>(op, page, head, first, last, keys, values);
        else
            load_split<uint32_t>(op, page, head, first, last, keys, values);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < QUERIES_A_WARP; i++) {
            int query = warp + i * WARPS;
            if (query < count)
                attend_split<T>(op, q + query * dh, positions[(first_query + query) / group], first, keys, values,
                                &state[i]);
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
template <typename T> __global__ void combine_kernel(const struct op_attention op) {
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
    for (int d = threadIdx.x; d < dh; d += blockDim.x) {
        float out = 0;
#pragma unroll
        for (int p = 0; p < ATTENTION_PARTS; p++) {
            float value = parts[p * (dh + 2) + 2 + d];
            if (sums[p] != 0) out = fmaf(value, maxima[p], out);
        }
        ((T *)op.out)[row_head * dh + d] = from_float<T>(sum == 0 ? 0.0f : out / sum);
    }
}

template <typename T, int QUERIES_A_WARP>
static int launch_attention(struct stream *s, const struct op_attention *op, int queries) {
    constexpr int CHUNK = WARPS * QUERIES_A_WARP;
    int chunks = (queries + CHUNK - 1) / CHUNK;
    size_t shared =
        2 * SPLIT * (size_t)key_stride(op->head_dim) * sizeof(T) + CHUNK * (size_t)op->head_dim * sizeof(float);
    if (shared > 48 << 10)
        CUDA_TRY(cudaFuncSetAttribute(attention_kernel<T, QUERIES_A_WARP>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)shared));
    dim3 grid(op->rows.batch * chunks, op->kv_heads, ATTENTION_PARTS);
    launch_dependent(s, attention_kernel<T, QUERIES_A_WARP>, grid, WARPS * 32, shared, 1, *op, chunks);
    return cuda_launched(s, "attention", sizeof *op);
}

/* Few queries are spread over more blocks; how they are spread changes no bit of a query. */
template <typename T> static int launch(struct stream *s, const struct op_attention *op) {
    enum { FEW = 64 };
    int queries = op->rows.q_len * (op->heads / op->kv_heads);
    if (queries <= FEW)
        TRY((launch_attention<T, 1>(s, op, queries)));
    else
        TRY((launch_attention<T, 4>(s, op, queries)));
    launch_dependent(s, combine_kernel<T>, dim3(rows_count(&op->rows), op->heads), COMBINE_THREADS, 0, 1, *op);
    return cuda_launched(s, "attention combine", sizeof *op);
}

int cuda_op_attention(struct stream *s, const struct op_attention *op) {
    if (op->rows.prefill) return cuda_prefill_attention(s, op);
    if (attention_takes_clusters(s->device, op->head_dim)) return cuda_attention_cluster(s, op);
    return with_type(op->kv.type, [&](auto type) { return launch<decltype(type)>(s, op); });
}

bool cuda_attention_needs_partials(const struct device *d, int head_dim) {
    return !attention_takes_clusters(d, head_dim);
}
