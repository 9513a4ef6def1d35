/* Projections of one norm side by side, by the kernels of all products; and gates and norms of what ops made, a block a row or a
 * group of it. */
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

/* The matrices, as few as possible: what lies one behind the other in memory is one. */
struct product_list {
    struct weight w[PRODUCTS_MAX];
    int count;
};
static struct product_list list_products(const struct op_products *op) {
    struct product_list list = {};
    for (int i = 0; i < PRODUCTS_MAX && op->w[i].data; i++) {
        const struct weight &w = op->w[i];
        struct weight *last = list.count > 0 ? &list.w[list.count - 1] : nullptr;
        const bool is_plain = last && !w.packed && !last->packed && w.format == last->format &&
                              weight_stride(&w) == w.cols && weight_stride(last) == last->cols;
        if (is_plain && (const uint16_t *)last->data + (size_t)last->rows * last->cols == w.data)
            last->rows += w.rows;
        else
            list.w[list.count++] = w;
    }
    return list;
}

static int prefill_products(struct stream *s, const struct op_products *op, const struct product_list *list) {
    TRY(with_type("products", {op->norm, op->normed}, [&](auto type) {
        typedef decltype(type) T;
        return norm(s, rows_to_norm<T>(op->x, op->norm), (T *)op->normed.data, rows_count(&op->rows), op->width);
    }));
    struct prefill_product product = {};
    product.rows = &op->rows, product.x = op->normed, product.scale = 1;
    product.out = op->out, product.stride = op->stride;
    for (int i = 0; i < list->count; i++) {
        product.w = &list->w[i];
        TRY(prefill_product(s, &product));
        product.out += product.w->rows;
    }
    return 0;
}

int cuda_op_products(struct stream *s, const struct op_products *op) {
    enum { TOGETHER = 3 };
    static const struct weight none = {};
    const struct product_list list = list_products(op);
    if (prefill_takes(s, &op->rows, &op->w[0])) return prefill_products(s, op, &list);
    float *out = op->out;
    for (int first = 0; first < list.count; first += TOGETHER) {
        struct matrix_product product = {};
        product.name = "products";
        for (int i = 0; i < TOGETHER && first + i < list.count; i++) {
            product.of[i] = {&list.w[first + i], &none, out, op->stride};
            out += list.w[first + i].rows;
        }
        product.x = op->normed;
        product.rows = op->x, product.norm = &op->norm, product.step = 1;
        product.tokens = rows_count(&op->rows);
        product.scale = 1;
        TRY(cuda_matrix_product(s, &product));
    }
    return 0;
}

template <typename T> __global__ void __launch_bounds__(BLOCK_THREADS) gate_kernel(const struct op_gate op) {
    next_may_start();
    inputs_are_ready();
    const float *gate = op.gate + (size_t)blockIdx.x * op.stride;
    T *h = (T *)op.h.data + (size_t)blockIdx.x * op.width;
    for (int i = threadIdx.x; i < op.width; i += BLOCK_THREADS) {
        const int group = i / op.group;
        h[i] = from_float<T>(times_sigmoid(to_float(h[i]), gate[group * op.apart + i - group * op.group]));
    }
}

int cuda_op_gate(struct stream *s, const struct op_gate *op) {
    return with_type("gate", {op->h}, [&](auto type) {
        launch_dependent(s, gate_kernel<decltype(type)>, dim3(rows_count(&op->rows)), BLOCK_THREADS, 0, 1, *op);
        return cuda_launched(s, "gate", sizeof *op);
    });
}

template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS) group_norm_kernel(const struct op_group_norm op, norm_rows<T> of) {
    __shared__ float partial[BLOCK_THREADS / 32];
    next_may_start();
    inputs_are_ready();
    const int first = blockIdx.y * op.group;
    T *h = (T *)op.h.data + (size_t)blockIdx.x * op.width + first;
    float sum = 0;
    for (int i = threadIdx.x; i < op.group; i += BLOCK_THREADS) {
        const float x = to_float(h[i]);
        sum = fmaf(x, x, sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0;
    for (int i = 0; i < BLOCK_THREADS / 32; i++) total += partial[i];
    const float scale = inverse_rms(total, 1.0f / (float)op.group, of.eps);
    for (int i = threadIdx.x; i < op.group; i += BLOCK_THREADS)
        h[i] = from_float<T>(to_float(h[i]) * scale * (to_float(of.weight[first + i]) + of.offset));
}

/* A norm with a weight. */
int cuda_op_group_norm(struct stream *s, const struct op_group_norm *op) {
    return with_type("group_norm", {op->norm, op->h}, [&](auto type) {
        typedef decltype(type) T;
        launch_dependent(s, group_norm_kernel<T>, dim3(rows_count(&op->rows), op->width / op->group), BLOCK_THREADS, 0,
                         1, *op, rows_to_norm<T>(nullptr, op->norm));
        return cuda_launched(s, "group_norm", sizeof *op);
    });
}
