/* What product_matrix.cu and product_matrices.cu share: a kernel for one matrix need not look for the matrix of a row. */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_MATRIX_CUH

#include "model/kernels/cuda/product.cuh"
#include "model/kernels/cuda/product_matrix.h"

enum { MATRICES = sizeof(matrix_product::of) / sizeof(product_matrix) };

template <typename T, int N, typename Map = matrix_map<N>> struct matrix_sums {
    Map map;
    float *out[N];
    const T *bias[N]; /* may be NULL */
    int stride[N];
    bool adds; /* not with a cap */
    float scale, cap;
    static constexpr int each = PRODUCT_ROWS;
    static constexpr enum narrow_reads reads = READS_INPUTS;
    static constexpr bool makes_rows = false, finds_tokens = false, may_share = N == 1 && Map::step != 0;
    template <typename Other> matrix_sums<T, N, Other> by(const Other &other) const {
        matrix_sums<T, N, Other> its = {other, {}, {}, {}, adds, scale, cap};
        for (int i = 0; i < N; i++) its.out[i] = out[i], its.bias[i] = bias[i], its.stride[i] = stride[i];
        return its;
    }
    struct place {
        float *out; /* of token 0; NULL: there is no such row */
        int stride;
        float bias;
    };
    typedef float held; /* what lies there */
    __device__ __forceinline__ place at(int group, int i) const {
        const row_place its = map.at(group, i);
        if (its.matrix < 0) return {};
        const T *added = of_matrix(bias, its.matrix);
        return {of_matrix(out, its.matrix) + its.row, of_matrix(stride, its.matrix),
                added ? to_float(added[its.row]) : 0.0f};
    }
    __device__ __forceinline__ bool has(const place &at) const { return at.out; }
    template <bool LATE> __device__ __forceinline__ held fetch(const place &at, int token) const {
        return adds ? at.out[(int64_t)token * at.stride] : 0.0f;
    }
    __device__ __forceinline__ void finish(held value, const place &at, int token, const float (&sums)[1]) const {
        const float x = fmaf(sums[0] + at.bias, scale, value);
        at.out[(int64_t)token * at.stride] = cap != 0 ? soft_cap(x, cap) : x;
    }
};

/* Rows of `matrices`, N or fewer, of one kind, as groups of 16. */
template <int N> static int product_of_matrices(struct stream *s, const struct matrix_product *p, int matrices) {
    static const struct weight none = {};
    const struct weight *w[MATRICES] = {&none, &none, &none}, *bias[MATRICES] = {&none, &none, &none};
    for (int i = 0; i < matrices; i++) w[i] = p->of[i].w, bias[i] = p->of[i].bias;
    const struct norm norm = p->norm ? *p->norm : (struct norm){};
    return with_type(p->name, {*w[0], *w[1], *w[2], *bias[0], *bias[1], *bias[2], norm, p->x}, [&](auto type) {
        typedef decltype(type) T;
        matrix_map<N> map = {};
        matrix_sums<T, N> sums = {};
        sums.adds = p->adds, sums.scale = p->scale, sums.cap = p->cap;
        plain_rows<T, matrix_map<N>> rows = {};
        int all = 0;
        for (int i = 0; i < matrices; i++) {
            all += map.rows[i] = w[i]->rows;
            rows.weights[i] = (const T *)w[i]->data, sums.bias[i] = (const T *)bias[i]->data;
            sums.out[i] = p->of[i].out, sums.stride[i] = p->of[i].stride ? p->of[i].stride : w[i]->rows;
        }
        const int groups = ceil_div(all, PRODUCT_ROWS), k = w[0]->cols;
        const bool is_packed = w[0]->packed,
                   in_order = matrices == 1 && (is_packed || p->rows) && is_long(s->device, groups, k);
        T *x = (T *)p->x.data;
        norm_rows<T> norm_of = {};
        if (p->rows) norm_of = rows_to_norm<T>(p->rows, norm, p->step, p->first);
        sums.map = map;
        if (is_packed)
            return product_of_packed<T>(s, p->name, groups, p->tokens, k, p->rows ? &norm_of : nullptr, x,
                                        p->x_is_for_it, {w[0], w[1], w[2]}, map, in_order, sums);
        rows.map = map, rows.k = k, rows.in_order = in_order;
        if (!p->rows)
            return product<T>(s, p->name, groups, p->tokens, k, x, p->x_is_for_it ? TOKENS_MADE : TOKENS_PLAIN, rows,
                              sums);
        return product_of_norm<T>(s, p->name, groups, p->tokens, k, norm_of, x, rows, sums);
    });
}

#endif
