/* The product of matrices, one behind the other, into f32: bias, scale, cap and the residual add are its epilogue. x is 16 bit. */
#include "model/kernels/cuda/product_matrix.h"

#include "model/kernels/cuda/product.cuh"

enum { MATRICES = sizeof(matrix_product::of) / sizeof(product_matrix) };
typedef matrix_map<MATRICES> map_of_all;

template <typename T> struct matrix_sums {
    map_of_all map;
    float *out[MATRICES];
    const T *bias[MATRICES]; /* may be NULL */
    int stride[MATRICES];
    bool adds; /* not with a cap */
    float scale, cap;
    static constexpr int each = PRODUCT_ROWS;
    static constexpr enum narrow_reads reads = READS_INPUTS;
    typedef float held; /* what lies there */
    __device__ __forceinline__ float *at(const row_place &place, int token) const {
        return of_matrix(out, place.matrix) + (size_t)token * of_matrix(stride, place.matrix) + place.row;
    }
    template <bool LATE> __device__ __forceinline__ held fetch(int group, int first_token, int tokens, int i) const {
        const row_place place = map.at(group, i % PRODUCT_ROWS);
        const int t = i / PRODUCT_ROWS;
        return adds && place.matrix >= 0 && t < tokens ? *at(place, first_token + t) : 0.0f;
    }
    template <typename Sum>
    __device__ __forceinline__ void finish(held value, int group, int first_token, int tokens, int i, Sum sum) const {
        const int row = i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
        const row_place place = map.at(group, row);
        if (place.matrix < 0 || t >= tokens) return;
        const T *its = of_matrix(bias, place.matrix);
        const float x = sum(row, t) + (its ? to_float(its[place.row]) : 0.0f);
        *at(place, first_token + t) = cap != 0 ? soft_cap(x * scale, cap) : fmaf(x, scale, value);
    }
};

/* Rows of all `matrices`, of one kind, as groups of 16. */
static int product_of_matrices(struct stream *s, const struct matrix_product *p, int matrices) {
    static const struct weight none = {};
    const struct weight *w[MATRICES], *bias[MATRICES];
    for (int i = 0; i < MATRICES; i++)
        w[i] = i < matrices ? p->of[i].w : &none, bias[i] = i < matrices ? p->of[i].bias : &none;
    const struct norm norm = p->norm ? *p->norm : (struct norm){};
    return with_type(p->name, {*w[0], *w[1], *w[2], *bias[0], *bias[1], *bias[2], norm, p->x}, [&](auto type) {
        typedef decltype(type) T;
        map_of_all map = {};
        matrix_sums<T> sums = {};
        sums.adds = p->adds, sums.scale = p->scale, sums.cap = p->cap;
        plain_rows<T, map_of_all> rows = {};
        int all = 0;
        for (int i = 0; i < matrices; i++) {
            all += map.rows[i] = w[i]->rows;
            rows.weights[i] = (const T *)w[i]->data, sums.bias[i] = (const T *)bias[i]->data;
            sums.out[i] = p->of[i].out, sums.stride[i] = p->of[i].stride ? p->of[i].stride : w[i]->rows;
        }
        const int groups = ceil_div(all, PRODUCT_ROWS), k = w[0]->cols;
        /* Not of several, whose rows another kernel may rotate. */
        const bool is_packed = w[0]->packed,
                   in_order = matrices == 1 && (is_packed || p->rows) && is_long(s->device, groups, k);
        T *x = (T *)p->x.data;
        norm_rows<T> norm_of = {};
        if (p->rows) norm_of = rows_to_norm<T>(p->rows, norm, p->step, p->first);
        sums.map = map;
        if (is_packed)
            return product_of_packed<T>(s, p->name, groups, p->tokens, p->columns, k, p->rows ? &norm_of : nullptr, x,
                                        {w[0], w[1], w[2]}, map, in_order, sums);
        rows.map = map, rows.k = k, rows.in_order = in_order;
        if (!p->rows) return product<T>(s, p->name, groups, p->columns, k, x, rows, sums);
        return product_of_norm<T>(s, p->name, groups, p->tokens, p->columns, k, norm_of, x, rows, sums);
    });
}

int cuda_matrix_product(struct stream *s, const struct matrix_product *p) {
    int matrices = 1;
    bool is_one_kind = true;
    for (; matrices < MATRICES && p->of[matrices].w && p->of[matrices].w->data; matrices++)
        is_one_kind = is_one_kind && are_read_alike({p->of[0].w, p->of[matrices].w});
    if (is_one_kind) return product_of_matrices(s, p, matrices);
    /* Each makes the norm again, as a product may leave what it reads in another order. */
    for (int i = 0; i < matrices; i++) {
        struct matrix_product one = *p;
        one.of[0] = p->of[i];
        TRY(product_of_matrices(s, &one, 1));
    }
    return 0;
}
