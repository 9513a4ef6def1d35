/* A short convolution between two gates. A thread has a channel at the positions of a tile; that of a sequence's first tile also keeps what
 * later passes may need, behind what it has read of it itself: the others read nothing that is kept. */
#include "model/kernels/cuda/common.cuh"
#include "model/kernels/cuda/table.h"

enum { THREADS = 128, TILE = 8, TAPS = RECURRENT_TAPS_MAX };

/* B x of a position of the pass. */
__device__ __forceinline__ float product_at(const struct op_short_conv &op, const struct recurrence_step &step,
                                            size_t first_row, int position, int channel) {
    const float *in = op.inputs + (first_row + position - step.first) * 3 * op.width + channel;
    return in[0] * in[2 * op.width];
}

/* Rows of a tile of the graph row, not of the sequence, that have no position. */
template <typename T>
__device__ __forceinline__ void clear_rows(const struct op_short_conv &op, const struct recurrence_step &step,
                                           int channel) {
    const int first = blockIdx.y * TILE, end = min(first + TILE, op.rows.q_len), count = step.end - step.first;
    T *out = (T *)op.out.data + (size_t)blockIdx.z * op.rows.q_len * op.width + channel;
    for (int i = first; i < end; i++)
        if (i < step.row || i >= step.row + count) out[(size_t)i * op.width] = from_float<T>(0.0f);
}

/* grid (channels, tiles, batch) */
template <typename T> __global__ void __launch_bounds__(THREADS) short_conv_kernel(const struct op_short_conv op) {
    next_may_start();
    const int channel = blockIdx.x * THREADS + threadIdx.x, missing = TAPS - op.conv.cols;
    if (channel >= op.width) return;
    float tap[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++)
        tap[t] = t >= missing ? number_of(op.conv, channel * op.conv.cols + t - missing) : 0.0f;
    inputs_are_ready();
    const struct recurrence_step step = op.steps[blockIdx.z];
    clear_rows<T>(op, step, channel);
    const int first = step.first + blockIdx.y * TILE, count = min((int)TILE, step.end - first);
    if (count <= 0) return;
    const size_t row = (size_t)blockIdx.z * op.rows.q_len + step.row; /* of the sequence's first position */
    float *kept = op.state.kept + (size_t)step.slot * op.state.kept_rows * op.width + channel, x[TILE + TAPS - 1];
#pragma unroll
    for (int i = 0; i < TILE + TAPS - 1; i++) {
        const int position = first - TAPS + 1 + i;
        x[i] = 0;
        if (position < 0 || i < missing || i >= count + TAPS - 1) continue;
        x[i] = position < step.first ? kept[(size_t)(position % op.state.kept_rows) * op.width]
                                     : product_at(op, step, row, position, channel);
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        if (i >= count) break;
        float sum = 0;
#pragma unroll
        for (int t = 0; t < TAPS; t++) sum = fmaf(tap[t], x[i + t], sum);
        const size_t at = row + first - step.first + i;
        const float c = op.inputs[at * 3 * op.width + op.width + channel];
        ((T *)op.out.data)[at * op.width + channel] = from_float<T>(c * sum);
    }
    if (blockIdx.y > 0) return;
    for (int p = max(step.first, step.end - op.state.kept_rows); p < step.end; p++)
        kept[(size_t)(p % op.state.kept_rows) * op.width] = product_at(op, step, row, p, channel);
}

int cuda_op_short_conv(struct stream *s, const struct op_short_conv *op) {
    if (op->conv.cols > TAPS) return err_set(ERR_INTERNAL, "short convolution: %d taps", op->conv.cols);
    const dim3 grid((op->width + THREADS - 1) / THREADS, (op->rows.q_len + TILE - 1) / TILE, op->rows.batch);
    return with_type("short convolution", {op->out}, [&](auto type) {
        launch_dependent(s, short_conv_kernel<decltype(type)>, grid, THREADS, 0, 1, *op);
        return cuda_launched(s, "short convolution", sizeof *op);
    });
}
