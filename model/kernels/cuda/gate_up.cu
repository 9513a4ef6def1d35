/* h = activation(Wg y, Wu y), y = norm(x): one product of the norm (product.cuh) whose groups of 16 rows are 8 of gate and 8 of
 * up, so that both halves of an output meet in the epilogue. h is 16 bit. Without up or `times`: gate_alone.cu. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/product_matrix.h"
#include "model/kernels/cuda/table.h"

template <typename T> struct gated_store {
    typedef T number;
    T *h;
    int width; /* of h */
    int times_stride;
    const float *times; /* NULL: the sums of up */
    enum activation activation;
    enum token_order order; /* of h */
    static constexpr int each = PRODUCT_HALF;
    static constexpr enum narrow_reads reads = READS_INPUTS;
    static constexpr bool makes_rows = true, finds_tokens = false, may_share = false;
    /* Eight numbers of a token that lie in this order already, from `first` on. */
    __device__ __forceinline__ T *eight(int token, int first) const {
        return h + token_start(order, width, token) + place_start(order, first);
    }
    template <int N>
    __device__ __forceinline__ void numbers_of(const float (&gate)[N], const float (&up)[N], T (&to)[N]) const {
        auto all = [&](enum activation its) {
#pragma unroll
            for (int i = 0; i < N; i++) to[i] = from_float<T>(activate(its, gate[i], up[i]));
        };
        if (activation == ACTIVATION_SILU)
            all(ACTIVATION_SILU);
        else if (activation == ACTIVATION_GELU)
            all(ACTIVATION_GELU);
        else
            all(activation);
    }
    struct place {
        int f, at;
    };
    typedef float held; /* what takes the place of up */
    __device__ __forceinline__ place at(int group, int i) const {
        const int f = group * PRODUCT_HALF + i;
        return {f, place_start(order, place_in(order, f))};
    }
    __device__ __forceinline__ bool has(const place &its) const {
        return its.f < width;
    }
    template <bool LATE> __device__ __forceinline__ held fetch(const place &its, int token) const {
        return times ? times[(int64_t)token * times_stride + its.f] : 0.0f;
    }
    __device__ __forceinline__ void finish(held up, const place &its, int token, const float (&sums)[2]) const {
        h[token_start(order, width, token) + its.at] =
            from_float<T>(activate(activation, sums[0], times ? up : sums[1]));
    }
};

int cuda_op_gate_up(struct stream *s, const struct op_gate_up *op) {
    if (prefill_takes(s, &op->rows, &op->gate)) return cuda_prefill_gate_up(s, op);
    const bool has_up = op->up.data;
    if (!has_up && !op->times) return cuda_gate_alone(s, op);
    if (has_up && op->times) return err_set(ERR_INTERNAL, "gate_up: expected `up` or `times`, not both");
    if (op->bias.data) return err_set(ERR_INTERNAL, "gate_up: a bias of two matrices");
    if (!are_read_alike({&op->gate, &op->up}))
        return err_set(ERR_INTERNAL, "gate_up: matrices that are not packed alike");
    return with_type("gate_up", {op->gate, op->up, op->norm, op->normed, op->h}, [&](auto type) {
        typedef decltype(type) T;
        const int groups = ceil_div(op->hidden, PRODUCT_HALF), tokens = rows_count(&op->rows), k = op->width;
        const norm_rows<T> norm_of = rows_to_norm<T>(op->x, op->norm);
        T *normed = (T *)op->normed.data;
        gated_store<T> store = {(T *)op->h.data, op->hidden,     op->times_stride,
                                op->times,       op->activation, cuda_order_for(s, &op->rows, &op->reader)};
        const paired_map map = {op->hidden, has_up};
        /* Those that add in order store rows by eights, made of sums alone (makes_rows). */
        const bool in_order = is_long(s->device, groups, k) && has_up && op->hidden % 8 == 0;
        if (op->gate.packed)
            return product_of_packed<T>(s, "gate_up", groups, tokens, k, &norm_of, normed, false, {&op->gate, &op->up},
                                        map, in_order, store);
        const plain_rows<T, paired_map> rows = {map, {(const T *)op->gate.data, (const T *)op->up.data}, k, in_order};
        return product_of_norm<T>(s, "gate_up", groups, tokens, k, norm_of, normed, rows, store);
    });
}
