/* Attention of one sequence's chunk over its pages, on tensor cores (FlashAttention-2, Dao 2023).
 *
 * Shapes: q [T, H DH] f32, rounded to 16 bit; K, V pages [P, HKV, PAGE, DH] 16 bit or FP8 (attention_cells.cuh); out [T, H DH] 16 bit.
 * Mapping: a query is one row and one of the H / HKV heads that share a key head. Block (64 queries | key/value head), the last
 *   queries first, as they see most; each of its 4 warps owns 16. Of heads above 256 dims two warps share 16 queries: both score,
 *   each multiplies half of the values' dims. Tiles of 64 keys (32 and 16 of long heads), cut at absolute positions, go through
 *   shared memory; keys of the next tile arrive while values are multiplied, and the other way round. Head sizes between the
 *   built ones are filled up with zeros.
 * Bytes: every visible key and value once for 64 queries. FLOPs: 4 DH a query and visible key.
 * Numerics: a query is a row of every mma, so its result depends on its position, its keys and their values alone. Keys that a
 *   row does not see are selected away; keys and values past the chunk's last row are not even read. Weights are rounded to 16
 *   bits before they are multiplied with values. */
#include "model/kernels/cuda/attention_cells.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product_mma.cuh"
#include "model/kernels/cuda/tiles.cuh"

enum { QUERIES = 64, WARPS = QUERIES / 16 };

/* Shared memory of a head size: [QUERIES | KEYS | KEYS][STRIDE]; the stride keeps ldmatrix off bank conflicts. A warp's share of
 * the output is DIMS. */
template <int DH> struct plan {
    static constexpr int KEYS = DH > 256 ? 16 : DH > 128 ? 32 : 64, STRIDE = DH + 8, ROWS = QUERIES + 2 * KEYS;
    static constexpr int SHARES = DH > 256 ? 2 : 1, DIMS = DH / SHARES, THREADS = 32 * WARPS * SHARES;
};

/* The first dim of this warp's share. */
template <int DH> __device__ __forceinline__ int first_dim() {
    return plan<DH>::SHARES == 1 ? 0 : (int)threadIdx.x / (32 * WARPS) * plan<DH>::DIMS;
}

/* All that this thread copied is there; after the barrier, all that any thread did. */
__device__ __forceinline__ void wait_for_copies() {
    copies_wait_all();
    __syncthreads();
}

/* Keys or values of positions first, first + 1, ... up to `last` into shared memory; zeros past it. A tile lies in one page. */
template <typename T, int DH>
__device__ __forceinline__ void load_tile(T *to, const struct op_attention &op, const void *cache, int head, int first,
                                          int last) {
    constexpr int KEYS = plan<DH>::KEYS, STRIDE = plan<DH>::STRIDE, THREADS = plan<DH>::THREADS;
    const int dh = op.head_dim, visible = last - first + 1;
    const int page = op.rows.page_table[(size_t)op.rows.row_slot[0] * op.rows.pages_per_slot + first / KV_PAGE];
    const T *from = (const T *)cache + (((size_t)page * op.kv_heads + head) * KV_PAGE + first % KV_PAGE) * dh;
    if (dh % 8 == 0) {
#pragma unroll
        for (int i = threadIdx.x; i < KEYS * DH / 8; i += THREADS) {
            int key = i / (DH / 8), d = i % (DH / 8) * 8;
            if (d < dh) copy_async(to + key * STRIDE + d, from + key * dh + d, key < visible);
        }
    } else {
        for (int i = threadIdx.x; i < KEYS * DH / 2; i += THREADS) {
            int key = i / (DH / 2), d = i % (DH / 2) * 2;
            if (d < dh)
                *(uint32_t *)(to + key * STRIDE + d) = key < visible ? *(const uint32_t *)(from + key * dh + d) : 0;
        }
    }
}

/* A tile that this thread copies to shared memory is on its way: there, or, of FP8, in registers, 8 numbers of a key each. */
template <typename T, int DH, bool IS_FP8> struct arriving {
    __device__ void load(T *to, const struct op_attention &op, const void *cache, int head, int first, int last) {
        load_tile<T, DH>(to, op, cache, head, first, last);
    }
    __device__ void put(T *) {}
};
template <typename T, int DH> struct arriving<T, DH, true> {
    static constexpr int KEYS = plan<DH>::KEYS, STRIDE = plan<DH>::STRIDE, THREADS = plan<DH>::THREADS;
    static constexpr int LOADS = KEYS * DH / 8 / THREADS;
    uint2 codes[LOADS];
    uint8_t scale[LOADS];
    /* Zeros of a key that is not there and of dims past the head. */
    __device__ void load(T *, const struct op_attention &op, const void *cache, int head, int first, int last) {
        const int dh = op.head_dim, visible = last - first + 1;
        const int page = op.rows.page_table[(size_t)op.rows.row_slot[0] * op.rows.pages_per_slot + first / KV_PAGE];
        const struct coded from = find_coded(op, cache, page, head);
#pragma unroll
        for (int n = 0; n < LOADS; n++) {
            const int i = n * THREADS + threadIdx.x, key = i / (DH / 8), d = i % (DH / 8) * 8;
            const uint8_t *at = from.codes + (first % KV_PAGE + key) * dh + d;
            codes[n] = make_uint2(0, 0), scale[n] = SCALE_ONE;
            if (key >= visible || d >= dh) continue;
            scale[n] = from.scales[first % KV_PAGE + key];
            if (dh % 8 == 0) {
                codes[n] = *(const uint2 *)at;
                continue;
            }
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (d + 2 * j < dh)
                    (j < 2 ? codes[n].x : codes[n].y) |= (uint32_t)((const uint16_t *)at)[j] << j % 2 * 16;
        }
    }
    __device__ void put(T *to) {
#pragma unroll
        for (int n = 0; n < LOADS; n++) {
            const int i = n * THREADS + threadIdx.x, key = i / (DH / 8), d = i % (DH / 8) * 8;
            *(uint4 *)(to + key * STRIDE + d) = widen_eight<T>(codes[n], fp8_factor(scale[n]));
        }
    }
};

/* The block's queries in 16 bit; zeros past them, and past DH in all of shared memory. */
template <typename T, int DH>
__device__ __forceinline__ void load_queries(T *q, const struct op_attention &op, int head, int first_query,
                                             int count) {
    constexpr int STRIDE = plan<DH>::STRIDE, THREADS = plan<DH>::THREADS;
    const int dh = op.head_dim, group = op.heads / op.kv_heads;
    if (dh < DH) {
        for (int i = threadIdx.x; i < plan<DH>::ROWS * STRIDE / 2; i += THREADS) ((uint32_t *)q)[i] = 0;
        __syncthreads();
    }
    for (int i = threadIdx.x; i < QUERIES * DH / 2; i += THREADS) {
        int r = i / (DH / 2), d = i % (DH / 2) * 2, query = first_query + r;
        if (d >= dh) continue;
        float2 v = make_float2(0, 0);
        if (r < count)
            v = *(const float2 *)(op.q + ((size_t)(query / group) * op.heads + head * group + query % group) * dh + d);
        *(uint32_t *)(q + r * STRIDE + d) = pack(v.x, v.y, T());
    }
}

/* A warp's 16 queries against a tile: lane l holds, of rows l / 4 and l / 4 + 8, keys 8 n + 2 (l % 4) and the next. */
template <typename T, int DH>
__device__ __forceinline__ void score(float (&s)[plan<DH>::KEYS / 8][4], const T *q, const T *keys) {
    constexpr int KEYS = plan<DH>::KEYS, STRIDE = plan<DH>::STRIDE;
    const int lane = threadIdx.x % 32;
    const T *a_row = q + lane % 16 * STRIDE + lane / 16 * 8,
            *b_row = keys + (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < DH; d += 16) {
        uint32_t a[4], b[4];
        load_matrices(a, a_row + d);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            load_matrices(b, b_row + n * 8 * STRIDE + d);
            mma(s[n], a, b[0], b[1], T());
            mma(s[n + 1], a, b[2], b[3], T());
        }
    }
}

/* Scores as they are compared: with a cap, or with a factor that would turn their order round, they are finished here, else the
 * softmax applies the factor. */
__device__ __forceinline__ bool is_finished_early(struct scoring scoring) {
    return scoring.cap != 0 || !(scoring.factor > 0);
}
template <int TILES> __device__ __forceinline__ void finish_scores(float (&s)[TILES][4], struct scoring scoring) {
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) {
        float &x = s[i / 4][i % 4];
        x *= scoring.factor;
        if (scoring.cap != 0) x = cap_score(x, scoring.cap);
    }
}

/* Of a lane's two rows. */
template <int DH> struct running {
    int position[2];
    float max[2], sum[2];             /* the sum of this lane's keys */
    float out[plan<DH>::DIMS / 8][4]; /* as the scores: dims 8 n + 2 (l % 4) and the next of the warp's share */
};

/* Scores of a tile at `first` into weights; what has been summed is scaled to the new maximum. `factor` is scale log2(e). */
template <int DH>
__device__ __forceinline__ void update_softmax(float (&s)[plan<DH>::KEYS / 8][4], struct running<DH> &r, int first,
                                               int window, bool is_edge, float factor) {
    constexpr int TILES = plan<DH>::KEYS / 8;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        const int position = r.position[row];
        float max = r.max[row];
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            float &x = s[i / 2][2 * row + i % 2];
            int key = first + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
            if (is_edge && !is_visible(key, position, window)) x = -CUDART_INF_F;
            max = fmaxf(max, x);
        }
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
        const float shift = max == -CUDART_INF_F ? 0.0f : max * factor; /* no key yet: NaN alone may come out */
        const float keep = exp2f(fmaf(r.max[row], factor, -shift));
        float sum = r.sum[row] * keep;
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            float &x = s[i / 2][2 * row + i % 2];
            x = exp2f(fmaf(x, factor, -shift));
            sum += x;
        }
        r.max[row] = max, r.sum[row] = sum;
#pragma unroll
        for (int n = 0; n < plan<DH>::DIMS / 8; n++) r.out[n][2 * row] *= keep, r.out[n][2 * row + 1] *= keep;
    }
}

/* Adds the weighted values of a tile. */
template <typename T, int DH>
__device__ __forceinline__ void add_values(struct running<DH> &r, const float (&s)[plan<DH>::KEYS / 8][4],
                                           const T *values) {
    constexpr int KEYS = plan<DH>::KEYS, STRIDE = plan<DH>::STRIDE;
    const int lane = threadIdx.x % 32;
    const T *b_row = values + lane % 16 * STRIDE + lane / 16 * 8 + first_dim<DH>();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        const uint32_t a[4] = {pack(s[2 * k][0], s[2 * k][1], T()), pack(s[2 * k][2], s[2 * k][3], T()),
                               pack(s[2 * k + 1][0], s[2 * k + 1][1], T()),
                               pack(s[2 * k + 1][2], s[2 * k + 1][3], T())};
#pragma unroll
        for (int n = 0; n < plan<DH>::DIMS / 8; n += 2) {
            uint32_t b[4];
            load_transposed(b, b_row + k * 16 * STRIDE + n * 8);
            mma(r.out[n], a, b[0], b[1], T());
            mma(r.out[n + 1], a, b[2], b[3], T());
        }
    }
}

/* A row without a key, whose sum is 0, gives zeros. `factor` brings maxima to scores times log2(e). */
template <typename T, int DH>
__device__ __forceinline__ void store(const struct running<DH> &r, const struct op_attention &op, int head,
                                      int first_query, int count, float factor, enum token_order order) {
    const int lane = threadIdx.x % 32, dh = op.head_dim, group = op.heads / op.kv_heads;
#pragma unroll
    for (int row = 0; row < 2; row++) {
        float sum = r.sum[row] + __shfl_xor_sync(0xffffffffu, r.sum[row], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const int index = lane / 4 + 8 * row, query = first_query + index;
        if (index >= count) continue;
        sum = add_sink<T>(op, head * group + query % group, sum, r.max[row] * factor);
        const float share = 1.0f / sum;
        T *out = (T *)op.out.data + token_start(order, op.heads * dh, query / group);
        const int start = (head * group + query % group) * dh;
#pragma unroll
        for (int n = 0; n < plan<DH>::DIMS / 8; n++) {
            int d = first_dim<DH>() + 8 * n + lane % 4 * 2;
            const float x = r.out[n][2 * row] * share, y = r.out[n][2 * row + 1] * share;
            if (d < dh)
                *(uint32_t *)(out + place_start(order, place_in(order, start + d))) = sum == 0 ? 0 : pack(x, y, T());
        }
    }
}

/* The largest position of rows [first, last]; those without one come last. By every warp. */
__device__ __forceinline__ int last_position(const int *positions, int first, int last) {
    int largest = -1;
    for (int row = first + threadIdx.x % 32; row <= last; row += 32) largest = max(largest, positions[row]);
    return __reduce_max_sync(0xffffffffu, largest);
}

/* grid (queries / QUERIES, HKV) */
template <typename T, int DH, bool IS_FP8>
__global__ void __launch_bounds__(plan<DH>::THREADS)
    prefill_attention_kernel(const struct op_attention op, struct scoring scoring, enum token_order order) {
    constexpr int KEYS = plan<DH>::KEYS, STRIDE = plan<DH>::STRIDE;
    extern __shared__ __align__(16) unsigned char shared[];
    T *q = (T *)shared, *keys = q + QUERIES * STRIDE, *values = keys + KEYS * STRIDE;
    const int group = op.heads / op.kv_heads, head = blockIdx.y, mine = threadIdx.x / 32 % WARPS * 16;
    const int first_query = (gridDim.x - 1 - blockIdx.x) * QUERIES;
    const int count = min(op.rows.q_len * group - first_query, (int)QUERIES);
    const int *positions = op.rows.positions;
    const int first_row = first_query / group, last_row = (first_query + count - 1) / group;
    const int nearest = positions[first_row], last = last_position(positions, first_row, last_row);
    const bool has_padding = positions[last_row] < 0;
    const int oldest = op.window > 0 ? max(nearest - op.window + 1, 0) : 0;
    const float factor = is_finished_early(scoring) ? 1.0f : scoring.factor;
    struct running<DH> r = {
        {-1, -1}, { -CUDART_INF_F, -CUDART_INF_F }
    };
    for (int row = 0; row < 2; row++) {
        int index = mine + threadIdx.x % 32 / 4 + 8 * row;
        if (index < count) r.position[row] = positions[(first_query + index) / group];
    }
    load_queries<T, DH>(q, op, head, first_query, count);
    int first = oldest / KEYS * KEYS;
    struct arriving<T, DH, IS_FP8> tile;
    if (first <= last) tile.load(keys, op, op.kv.k, head, first, last);
    for (; first <= last; first += KEYS) {
        float s[KEYS / 8][4];
        const bool is_edge = has_padding || first + KEYS - 1 > nearest || (op.window > 0 && first <= last - op.window);
        tile.put(keys);
        wait_for_copies(); /* keys are there, values are used up */
        tile.load(values, op, op.kv.v, head, first, last);
        score<T, DH>(s, q + mine * STRIDE, keys);
        if (is_finished_early(scoring)) finish_scores(s, scoring);
        update_softmax<DH>(s, r, first, op.window, is_edge, factor);
        tile.put(values);
        wait_for_copies(); /* values are there, keys are used up */
        if (first + KEYS <= last) tile.load(keys, op, op.kv.k, head, first + KEYS, last);
        add_values<T, DH>(r, s, values);
    }
    store<T, DH>(r, op, head, first_query + mine, count - mine, factor, order);
}

template <typename T, int DH, bool IS_FP8> static int launch(struct stream *s, const struct op_attention *op) {
    const int queries = op->rows.q_len * (op->heads / op->kv_heads);
    const size_t shared = (size_t)plan<DH>::ROWS * plan<DH>::STRIDE * sizeof(T);
    auto kernel = prefill_attention_kernel<T, DH, IS_FP8>;
    TRY(cuda_allow_shared(s->device, (const void *)kernel));
    kernel<<<dim3(ceil_div(queries, QUERIES), op->kv_heads), plan<DH>::THREADS, shared, cuda_native(s)>>>(
        *op, scoring_of(op), cuda_order_for(s, &op->rows, &op->reader));
    return cuda_launched(s, "prefill attention", sizeof *op);
}

int cuda_prefill_attention(struct stream *s, const struct op_attention *op) {
    return with_cells(op, [&](auto type, auto is_fp8) {
        typedef decltype(type) T;
        constexpr bool IS_FP8 = decltype(is_fp8)::value;
        if (op->head_dim <= 32) return launch<T, 32, IS_FP8>(s, op);
        if (op->head_dim <= 64) return launch<T, 64, IS_FP8>(s, op);
        if (op->head_dim <= 128) return launch<T, 128, IS_FP8>(s, op);
        if (op->head_dim <= 256) return launch<T, 256, IS_FP8>(s, op);
        return launch<T, 512, IS_FP8>(s, op);
    });
}
