/* Linear attention by the gated delta rule: a block has a value head of a graph row, and takes its positions in tiles.
 *   1. What was projected of a tile's positions and of the taps before them goes to shared memory, from the rows of the pass or from what
 *      is kept, and is convolved there; q and k get their length, a warp each.
 *   2. The state lies in registers: four threads have a column, each every fourth of its DK numbers. They go from position to position
 *      without meeting anyone, since columns do not see each other.
 *   3. A warp a row: the norm, the gate, and out in 16 bits.
 * Bytes: a state is read and, where it is settled further, written, 4 DK DV each. */
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

enum { TILE = 8, LANES = 4 /* of a column */ };

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

__device__ __forceinline__ float number_of(const struct weight &w, int i) {
    if (w.format == DTYPE_F32) return __ldg((const float *)w.data + i);
    return w.format == DTYPE_F16 ? to_float(((const half *)w.data)[i]) : to_float(((const bf16 *)w.data)[i]);
}

/* Of a block: which of its channels (q, then k [DK] of its key head, then v [DV]) lies where. */
struct head_place {
    int graph_row, index, key_head, of_key, channels;
    const float *kept;
    __device__ head_place(const struct op_delta &op, const struct recurrence_step &step)
        : graph_row(blockIdx.y), index(blockIdx.x) {
        const int share = op.value_heads / op.key_heads;
        key_head = index / share, of_key = index - key_head * share;
        channels = 2 * op.key_dim + op.value_dim;
        kept = op.state.kept + ((size_t)step.slot * op.value_heads + index) * op.state.kept_rows * (channels + 2);
    }
    __device__ __forceinline__ const float *row(const struct op_delta &op, const struct recurrence_step &step,
                                                int position) const {
        return op.inputs + ((size_t)graph_row * op.rows.q_len + step.row + position - step.first) * op.stride;
    }
    __device__ __forceinline__ size_t record(const struct op_delta &op, int position) const {
        return (size_t)(position % op.state.kept_rows) * (channels + 2);
    }
    /* Of a row of the pass; the two behind the channels are b and a. */
    __device__ __forceinline__ int offset(const struct op_delta &op, int channel) const {
        if (channel < op.key_dim) return op.q.first + key_head * op.q.apart + channel;
        channel -= op.key_dim;
        if (channel < op.key_dim) return op.k.first + key_head * op.k.apart + channel;
        channel -= op.key_dim;
        if (channel < op.value_dim) return op.v.first + key_head * op.v.apart + of_key * op.value_dim + channel;
        const struct heads_at &at = channel == op.value_dim ? op.b : op.a;
        return at.first + key_head * at.apart + of_key;
    }
    __device__ __forceinline__ float projected(const struct op_delta &op, const struct recurrence_step &step,
                                               int position, int channel) const {
        if (position < 0) return 0.0f;
        if (position < step.first) return kept[record(op, position) + channel];
        return row(op, step, position)[offset(op, channel)];
    }
    /* Its row of the convolution's weights. */
    __device__ __forceinline__ int conv_row(const struct op_delta &op, int channel) const {
        const int keys = op.key_heads * op.key_dim;
        if (channel < op.key_dim) return key_head * op.key_dim + channel;
        if (channel < 2 * op.key_dim) return keys + key_head * op.key_dim + channel - op.key_dim;
        return 2 * keys + index * op.value_dim + channel - 2 * op.key_dim;
    }
};

struct delta_memory {
    float *taps, *raw, *conv, *out, *beta, *decay;
    __device__ delta_memory(void *memory, const struct op_delta &op, int channels) {
        taps = (float *)memory;
        raw = taps + channels * op.conv.cols;
        conv = raw + (TILE + op.conv.cols - 1) * channels;
        out = conv + TILE * channels;
        beta = out + TILE * op.value_dim, decay = beta + TILE;
    }
};
static size_t delta_bytes(const struct op_delta *op) {
    const int channels = 2 * op->key_dim + op->value_dim;
    return sizeof(float) * (size_t)(channels * (2 * op->conv.cols - 1 + 2 * TILE) + TILE * op->value_dim + 2 * TILE);
}

/* silu of the convolution at the tile's positions, taps ascending; beta and the decay. */
__device__ __forceinline__ void read_tile(const struct op_delta &op, const struct recurrence_step &step,
                                          const head_place &place, const delta_memory &memory, int first, int count,
                                          float rate, float dt_bias) {
    const int channels = place.channels, taps = op.conv.cols;
    for (int i = threadIdx.x; i < (count + taps - 1) * channels; i += blockDim.x) {
        const int at = i / channels, channel = i - at * channels;
        memory.raw[i] = place.projected(op, step, first + at - taps + 1, channel);
    }
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const float b = place.projected(op, step, first + i, channels),
                    x = place.projected(op, step, first + i, channels + 1) + dt_bias;
        memory.beta[i] = times_sigmoid(1.0f, b);
        memory.decay[i] = expf(-rate * (fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * channels; i += blockDim.x) {
        const int channel = i % channels;
        float sum = 0;
        for (int t = 0; t < taps; t++) sum = fmaf(memory.taps[channel * taps + t], memory.raw[i + t * channels], sum);
        memory.conv[i] = times_sigmoid(sum, sum);
    }
    __syncthreads();
    const float of_q = rsqrtf((float)op.key_dim);
    for (int i = threadIdx.x / 32; i < 2 * count; i += blockDim.x / 32) {
        float *x = memory.conv + i / 2 * channels + i % 2 * op.key_dim, sum = 0;
        for (int d = threadIdx.x % 32; d < op.key_dim; d += 32) sum = fmaf(x[d], x[d], sum);
        const float scale = rsqrtf(warp_sum(sum) + 1e-6f) * (i % 2 ? 1.0f : of_q);
        for (int d = threadIdx.x % 32; d < op.key_dim; d += 32) x[d] *= scale;
    }
    __syncthreads();
}

/* The sum over the lanes of a column. */
__device__ __forceinline__ float column_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <typename T>
__device__ __forceinline__ void finish_tile(const struct op_delta &op, const struct recurrence_step &step,
                                            const head_place &place, const delta_memory &memory, int first, int count) {
    const float share = 1.0f / (float)op.value_dim;
    for (int i = threadIdx.x / 32; i < count; i += blockDim.x / 32) {
        const int position = first + i;
        if (position < step.first) continue;
        const float *x = memory.out + i * op.value_dim, *in = place.row(op, step, position),
                    *z = in + op.z.first + place.key_head * op.z.apart + place.of_key * op.value_dim;
        float sum = 0;
        for (int d = threadIdx.x % 32; d < op.value_dim; d += 32) sum = fmaf(x[d], x[d], sum);
        const float scale = inverse_rms(warp_sum(sum), share, op.norm.eps);
        const size_t row = (size_t)place.graph_row * op.rows.q_len + step.row + position - step.first;
        T *out = (T *)op.out.data + (row * op.value_heads + place.index) * op.value_dim;
        for (int d = threadIdx.x % 32; d < op.value_dim; d += 32) {
            const float factor = to_float(((const T *)op.norm.weight.data)[d]) + op.norm.offset;
            out[d] = from_float<T>(x[d] * scale * factor * times_sigmoid(z[d], z[d]));
        }
    }
}

/* Rows of the pass that have no position. */
template <typename T>
__device__ __forceinline__ void clear_rows(const struct op_delta &op, const struct recurrence_step &step,
                                           const head_place &place) {
    const int count = step.end - step.first;
    for (int i = threadIdx.x; i < op.rows.q_len * op.value_dim; i += blockDim.x) {
        const int at = i / op.value_dim;
        if (at >= step.row && at < step.row + count) continue;
        const size_t row = (size_t)place.graph_row * op.rows.q_len + at;
        ((T *)op.out.data)[(row * op.value_heads + place.index) * op.value_dim + i % op.value_dim] =
            from_float<T>(0.0f);
    }
}

/* EACH numbers of a column a thread. grid (HV, batch), LANES * DV threads */
template <typename T, int EACH>
__global__ void __launch_bounds__(LANES *RECURRENT_DIM_MAX) delta_kernel(const struct op_delta op) {
    extern __shared__ __align__(16) unsigned char shared[];
    next_may_start();
    inputs_are_ready();
    const struct recurrence_step step = op.steps[blockIdx.y];
    const head_place place(op, step);
    const delta_memory memory(shared, op, place.channels);
    const int column = threadIdx.x / LANES, lane = threadIdx.x % LANES, dk = op.key_dim;
    const float rate = expf(number_of(op.a_log, place.index)), dt_bias = number_of(op.dt_bias, place.index);
    float *state =
        op.state.states + ((size_t)step.slot * op.value_heads + place.index) * dk * op.value_dim + threadIdx.x;
    clear_rows<T>(op, step, place);
    if (step.end == 0) return;
    for (int i = threadIdx.x; i < place.channels * op.conv.cols; i += blockDim.x)
        memory.taps[i] = number_of(op.conv, place.conv_row(op, i / op.conv.cols) * op.conv.cols + i % op.conv.cols);
    float s[EACH];
#pragma unroll
    for (int m = 0; m < EACH; m++) s[m] = step.from > 0 && LANES * m < dk ? state[m * blockDim.x] : 0.0f;
    for (int first = step.from; first < step.end; first += TILE) {
        const int count = min((int)TILE, step.end - first);
        read_tile(op, step, place, memory, first, count, rate, dt_bias);
        for (int i = 0; i < count; i++) {
            const float *q = memory.conv + i * place.channels + lane, *k = q + dk;
            if (first + i == step.settle)
#pragma unroll
                for (int m = 0; m < EACH; m++)
                    if (LANES * m < dk) state[m * blockDim.x] = s[m];
            const float decay = memory.decay[i];
            float known = 0, sum = 0;
#pragma unroll
            for (int m = 0; m < EACH; m++) {
                if (LANES * m >= dk) break;
                s[m] *= decay;
                known = fmaf(k[LANES * m], s[m], known);
            }
            const float change =
                (memory.conv[i * place.channels + 2 * dk + column] - column_sum(known)) * memory.beta[i];
#pragma unroll
            for (int m = 0; m < EACH; m++) {
                if (LANES * m >= dk) break;
                s[m] = fmaf(k[LANES * m], change, s[m]);
                sum = fmaf(q[LANES * m], s[m], sum);
            }
            sum = column_sum(sum);
            if (lane == 0) memory.out[i * op.value_dim + column] = sum;
        }
        __syncthreads();
        finish_tile<T>(op, step, place, memory, first, count);
    }
    /* What later passes may need, in place of what was kept kept_rows positions before. */
    __syncthreads();
    const int numbers = place.channels + 2, oldest = max(step.first, step.end - op.state.kept_rows);
    for (int i = threadIdx.x; i < (step.end - oldest) * numbers; i += blockDim.x) {
        const int position = oldest + i / numbers, channel = i % numbers;
        ((float *)place.kept)[place.record(op, position) + channel] =
            place.row(op, step, position)[place.offset(op, channel)];
    }
}

int cuda_op_delta(struct stream *s, const struct op_delta *op) {
    enum { FEW = 8, MANY = RECURRENT_DIM_MAX / LANES };
    if (op->key_dim > RECURRENT_DIM_MAX || op->value_dim > RECURRENT_DIM_MAX || op->conv.cols > RECURRENT_TAPS_MAX ||
        op->key_dim % 8 != 0 || op->value_dim % 8 != 0 || op->value_heads % op->key_heads != 0)
        return err_set(ERR_INTERNAL, "delta: heads of %d and %d dimensions, %d taps, %d heads of %d", op->key_dim,
                       op->value_dim, op->conv.cols, op->value_heads, op->key_heads);
    return with_type("delta", {op->norm, op->out}, [&](auto type) {
        typedef decltype(type) T;
        auto kernel = op->key_dim <= FEW * LANES ? delta_kernel<T, FEW> : delta_kernel<T, MANY>;
        launch_dependent(s, kernel, dim3(op->value_heads, op->rows.batch), LANES * op->value_dim, delta_bytes(op), 1,
                         *op);
        return cuda_launched(s, "delta", sizeof *op);
    });
}
