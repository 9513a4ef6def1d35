/* q, k, v of norm(x) for a chunk of prefill.
 *   1. norm: x -> 16 bit.
 *   2. products -> f32 q [T, H DH]; k and v by one call -> kv_rows [T, 2 HKV DH].
 *   3. heads.cu: bias, norms of heads, rotation; q in place, k and v to the pages in 16 bit. */
#include "model/kernels/cuda/heads.cuh"
#include "model/kernels/cuda/norm.cuh"
#include "model/kernels/cuda/prefill.cuh"

int cuda_prefill_qkv(struct stream *s, const struct op_qkv *op) {
    const int kv = op->kv_heads * op->head_dim;
    TRY(with_type("qkv", {op->wq, op->wk, op->wv, op->norm, op->normed}, [&](auto type) {
        typedef decltype(type) T;
        return norm(s, rows_to_norm<T>(op->x, op->norm), (T *)op->normed.data, rows_count(&op->rows), op->width);
    }));
    struct prefill_product product = {};
    product.rows = &op->rows, product.x = op->normed, product.scale = 1;
    product.w = &op->wq, product.out = op->gated_q ? op->gated_q : op->q, product.stride = op->wq.rows;
    TRY(prefill_product(s, &product));
    product.w = &op->wk, product.second = op->wv.data ? &op->wv : nullptr;
    product.out = op->kv_rows, product.stride = 2 * kv, product.apart = kv;
    if (op->wk.data) TRY(prefill_product(s, &product));
    return cuda_finish_heads(s, op, true);
}
