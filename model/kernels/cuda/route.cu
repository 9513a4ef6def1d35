/* The experts of the largest logits of a row and their weights (route.cuh): a warp a row. */
#include "model/kernels/cuda/route.cuh"
#include "model/kernels/cuda/table.h"

enum { WARPS = 4 };

/* grid (T / WARPS) */
template <typename T, int EACH, bool IS_SCORED>
__global__ void __launch_bounds__(WARPS * 32) route_kernel(const struct op_route op, int count) {
    next_may_start();
    inputs_are_ready();
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row < count) put_choice<T, EACH, IS_SCORED>(op, row, choose<EACH, IS_SCORED>(op, row));
}

int cuda_route(struct stream *s, const struct rows *rows, const struct op_route *route) {
    return with_type("route", {route->expert_scale}, [&](auto type) {
        typedef decltype(type) T;
        const int count = rows_count(rows);
        struct op_route op = *route;
        op.rows = *rows;
        const bool are_few = op.experts <= FEW_EXPERTS * 32;
        auto kernel = is_scored(&op) ? (are_few ? route_kernel<T, FEW_EXPERTS, true> : route_kernel<T, 32, true>)
                                     : (are_few ? route_kernel<T, FEW_EXPERTS, false> : route_kernel<T, 32, false>);
        launch_dependent(s, kernel, dim3(ceil_div(count, WARPS)), WARPS * 32, 0, 1, op, count);
        return cuda_launched(s, "route", sizeof op + 4);
    });
}

int cuda_op_route(struct stream *s, const struct op_route *op) {
    if (op->chosen < 1 || op->chosen > op->experts || op->chosen > CHOSEN_MAX || op->experts > EXPERTS_MAX)
        return err_set(ERR_INTERNAL, "route: %d of %d experts, expected up to %d of %d", op->chosen, op->experts,
                       CHOSEN_MAX, EXPERTS_MAX);
    return is_route_left(&op->rows, op) ? 0 : cuda_route(s, &op->rows, op);
}
