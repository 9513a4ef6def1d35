/* Linear attention. A value head of a graph row belongs to a block, or on GPUs that have them to a cluster of
 * blocks with a part of its columns each, and takes its positions in tiles.
 *   1. A thread has a channel of q, k or v: what was projected of a tile's positions and of the taps before them, from the rows of the pass or
 *      from what is kept, is convolved in registers and goes to shared memory. By the delta rule a warp finds the length of a q or k.
 *   2. The state lies in registers: eight threads have a column, each every eighth of its DK numbers. They go from position to position
 *      without meeting anyone, since columns do not see each other.
 *   3. Squares for the norm, a warp a row and group of columns, which the blocks of a cluster give each other; then a thread finishes a number:
 *      norm, gate, and out in 16 bits.
 * Bytes: a state is read and, where it is settled further, written, 4 DK DV each. */
#include "model/kernels/cuda/cluster.cuh"
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

enum { TILE = 8, LANES = 8 /* of a column */, EACH = RECURRENT_DIM_MAX / LANES, TAPS = RECURRENT_TAPS_MAX };
enum {
    Q_AT = 0,
    K_AT = RECURRENT_DIM_MAX,
    V_AT = 2 * RECURRENT_DIM_MAX /* in a row of a tile: zeros behind DK numbers */
};
enum { SPLIT = 4 /* blocks of a cluster */, THREADS = LANES * RECURRENT_DIM_MAX / SPLIT };

/* --- where states go on --------------------------------------------------------------------------------------- */

/* grid (batch), a warp */
__global__ void steps_kernel(const struct op_steps op) {
    next_may_start();
    inputs_are_ready();
    const int q_len = op.rows.q_len, slot = op.rows.row_slot[blockIdx.x];
    const int *positions = op.rows.positions + (size_t)blockIdx.x * q_len;
    int row = q_len, count = 0;
    for (int i = threadIdx.x; i < q_len; i += 32) {
        if (positions[i] < 0) continue;
        row = min(row, i), count++;
    }
    row = __reduce_min_sync(0xffffffffu, row), count = __reduce_add_sync(0xffffffffu, count);
    if (threadIdx.x == 0)
        op.steps[blockIdx.x] =
            recurrence_advance(&op.marks[slot], op.rows.standing, slot, row, count > 0 ? positions[row] : 0, count);
}

int cuda_op_steps(struct stream *s, const struct op_steps *op) {
    launch_dependent(s, steps_kernel, dim3(op->rows.batch), 32, 0, 1, *op);
    return cuda_launched(s, "steps", sizeof *op);
}

/* --- a head --------------------------------------------------------------------------------------------------- */

/* Columns whose squares are added first, by whatever blocks have them, and whose states lie side by side. */
__host__ __device__ static inline int column_groups(int value_dim) {
    return value_dim % (SPLIT * 8) == 0 ? SPLIT : 1;
}

/* What a block works on: channels of q and k [DK] of its key head, and of its columns of v, and where each lies. */
struct head_place {
    int graph_row, index, key_head, of_key, part, parts, groups, columns, channels;
    float *kept;
    __device__ head_place(const struct op_linear_attention &op, const struct recurrence_step &step, int parts)
        : graph_row(blockIdx.y), index(blockIdx.x / parts), part(blockIdx.x % parts), parts(parts),
          groups(column_groups(op.value_dim)) {
        key_head = recurrence_key_head(index, op.key_heads, op.value_heads, op.is_tiled);
        of_key = recurrence_of_key(index, op.key_heads, op.value_heads, op.is_tiled);
        columns = op.value_dim / parts, channels = 2 * op.key_dim + columns;
        kept = op.state.kept + ((size_t)step.slot * op.value_heads + index) * op.state.kept_rows * record_numbers(op);
    }
    __device__ static int record_numbers(const struct op_linear_attention &op) {
        return recurrence_record(op.key_dim, op.value_dim);
    }
    __device__ __forceinline__ size_t row_index(const struct op_linear_attention &op,
                                                const struct recurrence_step &step, int position) const {
        return (size_t)graph_row * op.rows.q_len + step.row + position - step.first;
    }
    __device__ __forceinline__ float *record(const struct op_linear_attention &op, int position) const {
        return kept + (size_t)(position % op.state.kept_rows) * record_numbers(op);
    }
    /* Of a channel: its number in a record, in a row of the pass, and its row of the convolution's weights. */
    __device__ __forceinline__ int in_record(const struct op_linear_attention &op, int channel) const {
        return channel < 2 * op.key_dim ? channel : channel + part * columns;
    }
    __device__ __forceinline__ int in_row(const struct op_linear_attention &op, int channel) const {
        if (channel < op.key_dim) return op.q.first + key_head * op.q.apart + channel;
        if (channel < 2 * op.key_dim) return op.k.first + key_head * op.k.apart + channel - op.key_dim;
        return of_head(op.v) + part * columns + channel - 2 * op.key_dim;
    }
    __device__ __forceinline__ int in_conv(const struct op_linear_attention &op, int channel) const {
        if (channel < op.key_dim) return op.conv_q + key_head * op.key_dim + channel;
        if (channel < 2 * op.key_dim) return op.conv_k + key_head * op.key_dim + channel - op.key_dim;
        return op.conv_v + index * op.value_dim + part * columns + channel - 2 * op.key_dim;
    }
    __device__ __forceinline__ int of_head(const struct heads_at &at) const {
        return at.first + key_head * at.apart + of_key * at.each;
    }
};

struct linear_attention_memory {
    float *conv, *out, *squares, *rate, *decay, *of_q, *of_k;
    int width;
    __device__ linear_attention_memory(void *memory, const head_place &place) {
        conv = (float *)memory, width = V_AT + place.columns;   /* [TILE, width] */
        out = conv + TILE * width;                              /* [TILE, columns] */
        squares = out + TILE * place.columns;                   /* [2, TILE, SPLIT]: of tiles in turn */
        rate = squares + 2 * TILE * SPLIT, decay = rate + TILE; /* [TILE] each: what change is multiplied with, and S */
        of_q = decay + TILE, of_k = of_q + TILE;                /* what q and k are multiplied with */
    }
};
static size_t linear_attention_bytes(const struct op_linear_attention *op, int parts) {
    const int columns = op->value_dim / parts;
    return sizeof(float) * (size_t)((V_AT + 2 * columns) * TILE + 2 * TILE * SPLIT + 4 * TILE);
}

/* A channel's taps, the model's last. */
__device__ __forceinline__ float4 taps_of(const struct weight &conv, int row) {
    if (conv.format == DTYPE_BF16 && conv.cols == TAPS) {
        const uint2 held = __ldg((const uint2 *)conv.data + row);
        const float2 a = to_floats(*(const __nv_bfloat162 *)&held.x), b = to_floats(*(const __nv_bfloat162 *)&held.y);
        return make_float4(a.x, a.y, b.x, b.y);
    }
    float taps[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        const int tap = t - (TAPS - conv.cols);
        taps[t] = tap >= 0 ? number_of(conv, row * conv.cols + tap) : 0.0f;
    }
    return make_float4(taps[0], taps[1], taps[2], taps[3]);
}

/* silu of the convolution of a channel at the tile's positions, taps ascending. */
__device__ __forceinline__ void convolve_channel(const struct op_linear_attention &op,
                                                 const struct recurrence_step &step, const head_place &place,
                                                 const linear_attention_memory &memory, int first, int count,
                                                 int channel) {
    const int missing = TAPS - op.conv.cols, kept_rows = op.state.kept_rows, numbers = place.record_numbers(op);
    const int behind = channel - 2 * op.key_dim;
    float *to = memory.conv + (behind >= 0             ? V_AT + behind
                               : channel >= op.key_dim ? K_AT + channel - op.key_dim
                                                       : Q_AT + channel);
    const int row = place.in_conv(op, channel);
    const float4 w = taps_of(op.conv, row);
    const float bias = op.conv_bias.data ? number_of(op.conv_bias, row) : 0.0f;
    const float *kept = place.kept + place.in_record(op, channel),
                *rows = op.inputs + place.row_index(op, step, first - TAPS + 1) * op.stride + place.in_row(op, channel);
    int at = max(first - TAPS + 1, 0) % kept_rows - max(TAPS - 1 - first, 0); /* of position first - TAPS + 1 */
    float x[TILE + TAPS - 1];
#pragma unroll
    for (int i = 0; i < TILE + TAPS - 1; i++, at = at + 1 == kept_rows ? 0 : at + 1) {
        const int position = first - TAPS + 1 + i;
        const float *from = position < step.first ? kept + at * numbers : rows + (int64_t)i * op.stride;
        x[i] = position >= 0 && i >= missing && i < count + TAPS - 1 ? *from : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        const float sum = fmaf(w.w, x[i + 3], fmaf(w.z, x[i + 2], fmaf(w.y, x[i + 1], fmaf(w.x, x[i], bias))));
        if (i < count) to[i * memory.width] = times_sigmoid(sum, sum);
    }
}

template <enum recurrence_rule RULE>
__device__ __forceinline__ void read_tile(const struct op_linear_attention &op, const struct recurrence_step &step,
                                          const head_place &place, const linear_attention_memory &memory, int first,
                                          int count, float rate, float dt_bias) {
    const int late = blockDim.x - 1 - threadIdx.x; /* whose channels are the fewest */
    if (late < count) {
        const int position = first + late;
        const float *record = place.record(op, position) + place.record_numbers(op) - 2;
        float b = 0, x = dt_bias;
        if (position < step.first) {
            b += record[0], x += record[1];
        } else {
            const float *in = op.inputs + place.row_index(op, step, position) * op.stride;
            b += in[place.of_head(op.b)], x += in[place.of_head(op.a)];
        }
        const float dt = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        memory.rate[late] = RULE == RULE_DELTA ? times_sigmoid(1.0f, b) : dt;
        memory.decay[late] = expf(-rate * dt);
    }
    for (int channel = threadIdx.x; channel < place.channels; channel += blockDim.x)
        convolve_channel(op, step, place, memory, first, count, channel);
    __syncthreads();
    if constexpr (RULE == RULE_DELTA) {
        for (int i = threadIdx.x / 32; i < 2 * count; i += blockDim.x / 32) {
            const float *x = memory.conv + i / 2 * memory.width + (i % 2 ? K_AT : Q_AT);
            float sum = 0;
            for (int d = threadIdx.x % 32; d < op.key_dim; d += 32) sum = fmaf(x[d], x[d], sum);
            const float scale = rsqrtf(warp_sum(sum) + 1e-6f);
            (i % 2 ? memory.of_k : memory.of_q)[i / 2] = i % 2 ? scale : scale * rsqrtf((float)op.key_dim);
        }
        __syncthreads();
    }
}

/* The sum over the lanes of a column, of four sums each. */
__device__ __forceinline__ float column_sum(const float (&x)[4]) {
    float sum = (x[0] + x[1]) + (x[2] + x[3]);
#pragma unroll
    for (int lanes = 1; lanes < LANES; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    return sum;
}

/* All blocks of the cluster wait for each other, or all threads of the only one. */
__device__ __forceinline__ void meet(int parts) {
#if __CUDA_ARCH__ >= 900
    if (parts > 1) {
        meet_in_cluster();
        return;
    }
#endif
    __syncthreads();
}

/* A block's sum of squares of a row, to all. */
__device__ __forceinline__ void tell_squares(float *at, int parts, float sum) {
    const int rank = threadIdx.x % 32;
    if (rank >= parts) return;
#if __CUDA_ARCH__ >= 900
    if (parts > 1) {
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(of_rank(at, rank)), "f"(sum) : "memory");
        return;
    }
#endif
    *at = sum;
}

/* What a thread finishes of a tile: one number of a row. */
struct mine {
    int row, dim; /* of the tile; of the head */
    float factor;
};

/* The rows of the pass in the tile, and their z. */
template <typename T>
__device__ __forceinline__ void finish_tile(const struct op_linear_attention &op, const struct recurrence_step &step,
                                            const head_place &place, const linear_attention_memory &memory, int first,
                                            int count, const struct mine &mine, float z, int turn) {
    const int before = max(step.first - first, 0), columns = op.value_dim / place.groups, rows = count - before,
              own = place.groups / place.parts;
    float *squares = memory.squares + turn * TILE * SPLIT;
    for (int i = threadIdx.x / 32; i < rows * own; i += blockDim.x / 32) {
        const int row = before + i / own, group = i % own;
        const float *x = memory.out + row * place.columns + group * columns;
        float sum = 0;
        for (int d = threadIdx.x % 32; d < columns; d += 32) sum = fmaf(x[d], x[d], sum);
        tell_squares(squares + row * SPLIT + place.part * own + group, place.parts, warp_sum(sum));
    }
    meet(place.parts);
    if (mine.row < before || mine.row >= count) return;
    float sum = 0;
    for (int j = 0; j < place.groups; j++) sum += squares[mine.row * SPLIT + j];
    const float scale = op.norm.kind == NORM_NONE ? 1.0f : inverse_rms(sum, 1.0f / (float)op.value_dim, op.norm.eps);
    const size_t row = place.row_index(op, step, first + mine.row);
    ((T *)op.out.data)[(row * op.value_heads + place.index) * op.value_dim + mine.dim] =
        from_float<T>(memory.out[threadIdx.x] * scale * mine.factor * times_sigmoid(z, z));
}

/* Rows of the pass that have no position. */
template <typename T>
__device__ __forceinline__ void clear_rows(const struct op_linear_attention &op, const struct recurrence_step &step,
                                           const head_place &place) {
    enum { EIGHT = 8 };
    const int count = step.end - step.first, each = place.columns / EIGHT;
    for (int i = threadIdx.x; i < op.rows.q_len * each; i += blockDim.x) {
        const int at = i / each;
        if (at >= step.row && at < step.row + count) continue;
        const size_t row = (size_t)place.graph_row * op.rows.q_len + at;
        T *out = (T *)op.out.data + (row * op.value_heads + place.index) * op.value_dim + place.part * place.columns;
        *(uint4 *)(out + i % each * EIGHT) = make_uint4(0, 0, 0, 0);
    }
}

/* What later passes may need, in place of what was kept kept_rows positions before: q, k, b and a by the first part. */
__device__ __forceinline__ void keep_rows(const struct op_linear_attention &op, const struct recurrence_step &step,
                                          const head_place &place) {
    const int from = place.part == 0 ? 0 : 2 * op.key_dim, numbers = place.channels - from,
              oldest = max(step.first, step.end - op.state.kept_rows);
    for (int i = threadIdx.x; i < (step.end - oldest) * numbers; i += blockDim.x) {
        const int position = oldest + i / numbers, channel = from + i % numbers;
        const float *in = op.inputs + place.row_index(op, step, position) * op.stride;
        place.record(op, position)[place.in_record(op, channel)] = in[place.in_row(op, channel)];
    }
    for (int i = threadIdx.x; place.part == 0 && i < step.end - oldest; i += blockDim.x) {
        const float *in = op.inputs + place.row_index(op, step, oldest + i) * op.stride;
        float *record = place.record(op, oldest + i) + place.record_numbers(op);
        record[-2] = in[place.of_head(op.b)], record[-1] = in[place.of_head(op.a)];
    }
}

/* grid (HV * PARTS, batch), LANES * DV / PARTS threads */
template <typename T, enum recurrence_rule RULE, int PARTS>
__global__ void __launch_bounds__(THREADS *SPLIT / PARTS, PARTS > 1 ? 2 : 1)
    linear_attention_kernel(const struct op_linear_attention op) {
    extern __shared__ __align__(16) unsigned char shared[];
    next_may_start();
    const int index = blockIdx.x / PARTS;
    const float a_log = number_of(op.a_log, index), dt_bias = number_of(op.dt_bias, index),
                skip = RULE != RULE_DELTA && op.skip.data ? number_of(op.skip, index) : 0.0f;
    inputs_are_ready();
    const struct recurrence_step step = op.steps[blockIdx.y];
    const head_place place(op, step, PARTS);
    const linear_attention_memory memory(shared, place);
    const int column = threadIdx.x / LANES, lane = threadIdx.x % LANES, dk = op.key_dim,
              together = op.value_dim / place.groups, apart = together * LANES;
    float *state = op.state.states + ((size_t)step.slot * op.value_heads + place.index) * dk * op.value_dim +
                   (size_t)(place.part * place.columns + column) / together * dk * together +
                   (column % together) * LANES + lane;
    clear_rows<T>(op, step, place);
    if (step.end == 0) return;
#if __CUDA_ARCH__ >= 900
    if (PARTS > 1) cluster_arrive();
#endif
    const float rate = op.is_rate ? -a_log : expf(a_log);
    for (int i = threadIdx.x; i < TILE * (RECURRENT_DIM_MAX - dk); i += blockDim.x) {
        float *end = memory.conv + i / (RECURRENT_DIM_MAX - dk) * memory.width + dk + i % (RECURRENT_DIM_MAX - dk);
        end[Q_AT] = end[K_AT] = 0;
    }
    static_assert(TILE == LANES, "a thread finishes one number");
    struct mine mine = {(int)threadIdx.x / place.columns, 0, 0};
    mine.dim = place.part * place.columns + threadIdx.x - mine.row * place.columns;
    mine.factor =
        op.norm.kind == NORM_NONE ? 1.0f : to_float(((const T *)op.norm.weight.data)[mine.dim]) + op.norm.offset;
    const float *z_of_mine = op.inputs + place.of_head(op.z) + mine.dim;
    float s[EACH];
#pragma unroll
    for (int m = 0; m < EACH; m++) s[m] = step.from > 0 && LANES * m < dk ? state[m * apart] : 0.0f;
#if __CUDA_ARCH__ >= 900
    if (PARTS > 1) cluster_wait(); /* all are there to be told of squares */
#endif
    for (int first = step.from, turn = 0; first < step.end; first += TILE, turn ^= 1) {
        const int count = min((int)TILE, step.end - first);
        const int position = first + mine.row;
        const bool finishes = position >= step.first && mine.row < count;
        const float z = finishes ? z_of_mine[place.row_index(op, step, position) * op.stride] : 0.0f;
        read_tile<RULE>(op, step, place, memory, first, count, rate, dt_bias);
        for (int i = 0; i < count; i++) {
            const float *row = memory.conv + i * memory.width, *q = row + Q_AT + lane, *k = row + K_AT + lane;
            if (first + i == step.settle)
#pragma unroll
                for (int m = 0; m < EACH; m++)
                    if (LANES * m < dk) state[m * apart] = s[m];
            const float decay = memory.decay[i], v = row[V_AT + column];
            float change = v * memory.rate[i], sum[4] = {};
            if (RULE == RULE_DELTA) {
                const float of_k = memory.of_k[i];
                float known[4] = {};
#pragma unroll
                for (int m = 0; m < EACH; m++) {
                    s[m] *= decay;
                    known[m % 4] = fmaf(k[LANES * m], s[m], known[m % 4]);
                }
                change = of_k * ((v - of_k * column_sum(known)) * memory.rate[i]);
            } else {
#pragma unroll
                for (int m = 0; m < EACH; m++) s[m] *= decay;
            }
#pragma unroll
            for (int m = 0; m < EACH; m++) {
                s[m] = fmaf(k[LANES * m], change, s[m]);
                sum[m % 4] = fmaf(q[LANES * m], s[m], sum[m % 4]);
            }
            const float all = column_sum(sum), out = RULE == RULE_DELTA ? memory.of_q[i] * all : fmaf(skip, v, all);
            if (lane == 0) memory.out[i * place.columns + column] = out;
        }
        __syncthreads();
        if (first + count > step.first) finish_tile<T>(op, step, place, memory, first, count, mine, z, turn);
    }
    /* All blocks have read what is kept: they met in the last tile, which has rows of the pass. */
    keep_rows(op, step, place);
}

template <typename T, enum recurrence_rule RULE>
static int launch_rule(struct stream *s, const struct op_linear_attention *op) {
    auto kernel = linear_attention_kernel<T, RULE, 1>;
    int parts = 1;
    if constexpr (RULE == RULE_DELTA) {
        /* Where heads alone give every multiprocessor work, parts would convolve their q and k again; where a position
         * does no more than decay its state, parts gain less than that at any number of heads. */
        const bool are_few = op->value_heads * op->rows.batch <= cuda_multiprocessors(s->device) / 2;
        if (cuda_takes_clusters(s->device) && are_few) parts = column_groups(op->value_dim);
        if (parts > 1) kernel = linear_attention_kernel<T, RULE, SPLIT>;
    }
    launch_dependent(s, kernel, dim3(op->value_heads * parts, op->rows.batch), LANES * op->value_dim / parts,
                     linear_attention_bytes(op, parts), parts, *op);
    return cuda_launched(s, "linear attention", sizeof *op);
}

int cuda_op_linear_attention(struct stream *s, const struct op_linear_attention *op) {
    if (op->key_dim > RECURRENT_DIM_MAX || op->value_dim > RECURRENT_DIM_MAX || op->conv.cols > RECURRENT_TAPS_MAX ||
        op->key_dim % 8 != 0 || op->value_dim % 8 != 0 || op->value_heads % op->key_heads != 0)
        return err_set(ERR_INTERNAL, "linear attention: heads of %d and %d dimensions, %d taps, %d heads of %d",
                       op->key_dim, op->value_dim, op->conv.cols, op->value_heads, op->key_heads);
    return with_type("linear attention", {op->norm, op->out}, [&](auto type) {
        typedef decltype(type) T;
        return op->rule == RULE_DELTA ? launch_rule<T, RULE_DELTA>(s, op) : launch_rule<T, RULE_DECAY>(s, op);
    });
}
