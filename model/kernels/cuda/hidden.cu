/* Hidden rows that are kept by position, and read again beside an embedding: a block a row, or half of one. Bytes: T D (4 + 2) to keep,
 * T D (4 + 2 + 4) to join. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/table.h"

/* That of a position of row t's sequence, which has a page. */
template <typename T>
__device__ static T *hidden_row(const struct hidden_rows &hidden, const struct rows &rows, int t, int position,
                                int width) {
    const int page = page_of<true>(rows, t, position);
    return (T *)hidden.data + ((size_t)page * KV_PAGE + position % KV_PAGE) * width;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS) keep_kernel(const struct op_keep op, const norm_rows<T> rows) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, op.width);
    next_may_start();
    memory.fetch(rows, op.width);
    inputs_are_ready();
    const int t = blockIdx.x, position = op.rows.positions[t];
    copies_wait_all(); /* also where the row is not kept */
    if (position < 0 || (op.last_only && (t + 1) % op.rows.q_len != 0)) return;
    hold_row(rows.x + (size_t)t * op.width, op.width, memory.held);
    copies_wait_all();
    norm_held_row(rows, op.width, memory, hidden_row<T>(op.hidden, op.rows, t, position + op.ahead, op.width));
}

int cuda_op_keep(struct stream *s, const struct op_keep *op) {
    const struct buffer hidden = {op->hidden.data, op->hidden.type};
    return with_type("keep", {op->norm, hidden}, [&](auto type) {
        typedef decltype(type) T;
        launch_dependent(s, keep_kernel<T>, dim3(rows_count(&op->rows)), BLOCK_THREADS, norm_bytes(op->width), 1, *op,
                         rows_to_norm<T>(op->x, op->norm));
        return cuda_launched(s, "keep", sizeof *op + sizeof(norm_rows<T>));
    });
}

template <typename O> __device__ static O number_as(float x) {
    if constexpr (sizeof(O) == sizeof(float))
        return x;
    else
        return from_float<O>(x);
}

/* Block (t, 0) has row t's embedding, block (t, 1) its hidden row. O: of what is joined. */
template <typename T, typename O>
__global__ void __launch_bounds__(BLOCK_THREADS)
    join_kernel(const struct op_join op, const norm_rows<T> embedded, const norm_rows<T> hidden) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, op.width);
    const bool is_hidden = blockIdx.y == 1;
    const norm_rows<T> rows = is_hidden ? hidden : embedded;
    next_may_start();
    memory.fetch(rows, op.width);
    inputs_are_ready();
    const int t = blockIdx.x, position = op.rows.positions[t];
    O *out = (O *)op.out.data + ((size_t)t * 2 + is_hidden) * op.width;
    float *residual = is_hidden && op.residual ? op.residual + (size_t)t * op.width : nullptr;
    if (position >= 0 && is_hidden) {
        const int at = position + (op.rows.standing == ROWS_DRAFTED ? op.ahead : 0);
        const T *from = hidden_row<T>(op.hidden, op.rows, t, at, op.width);
        for (int i = threadIdx.x; i < op.width; i += BLOCK_THREADS) memory.held[i] = to_float(from[i]);
    } else if (position >= 0) {
        hold_row(rows.x + (size_t)t * op.width, op.width, memory.held);
    }
    copies_wait_all();
    __syncthreads();
    const float scale = position < 0 ? 0.0f : scale_of_held(rows, op.width, memory.held);
    for (int i = threadIdx.x; i < op.width; i += BLOCK_THREADS) {
        const float x = position < 0 ? 0.0f : memory.held[i],
                    y = position < 0 ? 0.0f : x * scale * (to_float(memory.weight[i]) + rows.offset);
        out[i] = number_as<O>(y);
        if (residual) residual[i] = op.norms_residual ? y : x;
    }
}

int cuda_op_join(struct stream *s, const struct op_join *op) {
    const struct buffer hidden = {op->hidden.data, op->hidden.type};
    return with_type("join", {op->norm, op->hidden_norm, hidden}, [&](auto type) {
        typedef decltype(type) T;
        const auto kernel = op->out.type == DTYPE_F32 ? join_kernel<T, float> : join_kernel<T, T>;
        launch_dependent(s, kernel, dim3(rows_count(&op->rows), 2), BLOCK_THREADS, norm_bytes(op->width), 1, *op,
                         rows_to_norm<T>(op->x, op->norm), rows_to_norm<T>(nullptr, op->hidden_norm));
        return cuda_launched(s, "join", sizeof *op + 2 * sizeof(norm_rows<T>));
    });
}

template <typename T> __global__ void __launch_bounds__(BLOCK_THREADS) tap_kernel(const struct op_tap op) {
    next_may_start();
    inputs_are_ready();
    const float *x = op.x + (size_t)blockIdx.x * op.width;
    T *out = (T *)op.out.data + (size_t)blockIdx.x * op.stride + op.first;
    for (int i = threadIdx.x; i < op.width; i += BLOCK_THREADS) out[i] = from_float<T>(x[i]);
}

int cuda_op_tap(struct stream *s, const struct op_tap *op) {
    return with_type("tap", {op->out}, [&](auto type) {
        launch_dependent(s, tap_kernel<decltype(type)>, dim3(rows_count(&op->rows)), BLOCK_THREADS, 0, 1, *op);
        return cuda_launched(s, "tap", sizeof *op);
    });
}
