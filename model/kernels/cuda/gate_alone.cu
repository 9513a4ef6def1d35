/* h = activation(W y + bias), y = norm(x): the product of one matrix into f32 gated [T, F] (product_matrix.cu), then a kernel that makes 16
 * bits of it, in the order of who reads them. Bytes of that: T F (4 + 2). A store of its own for the product's kernels would save that one, and
 * all kernels would take a sixth more time to compile. */
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

/* Two numbers a thread, of row blockIdx.y; of an odd width the last is alone. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    activate_kernel(const float *gated, T *h, int width, enum activation activation, enum token_order order) {
    const int f = (blockIdx.x * BLOCK_THREADS + threadIdx.x) * 2;
    next_may_start();
    inputs_are_ready();
    if (f >= width) return;
    const float *from = gated + (size_t)blockIdx.y * width + f;
    T *to = h + token_start(order, width, blockIdx.y) + place_start(order, place_in(order, f));
    const T first = from_float<T>(activate(activation, from[0], 1.0f));
    if (width % 2 == 0) {
        const T both[2] = {first, from_float<T>(activate(activation, from[1], 1.0f))};
        *(uint32_t *)to = *(const uint32_t *)both;
        return;
    }
    to[0] = first;
    if (f + 1 < width) to[1] = from_float<T>(activate(activation, from[1], 1.0f));
}

int cuda_gate_alone(struct stream *s, const struct op_gate_up *op) {
    const int tokens = rows_count(&op->rows);
    struct matrix_product product = {};
    product.name = "gate_up";
    product.of[0] = {&op->gate, &op->bias, op->gated, 0};
    product.x = op->normed;
    product.rows = op->x, product.norm = &op->norm, product.step = 1;
    product.tokens = tokens;
    product.scale = 1;
    TRY(cuda_matrix_product(s, &product));
    return with_type("gate_up", {op->h}, [&](auto type) {
        typedef decltype(type) T;
        launch_sharing(s, activate_kernel<T>, dim3(ceil_div(op->hidden, 2 * BLOCK_THREADS), tokens), BLOCK_THREADS, 0,
                       1, SHARED_PERCENT, (const float *)op->gated, (T *)op->h.data, op->hidden, op->activation,
                       cuda_order_for(s, &op->rows, &op->reader));
        return cuda_launched(s, "gate_up", 28);
    });
}
