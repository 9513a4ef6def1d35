/* The product of one matrix into f32: bias, scale, cap and the residual add are its epilogue. x is 16 bit. */
#include "model/kernels/cuda/product_matrix.h"

#include "model/kernels/cuda/product.cuh"

template <typename T> struct matrix_sums {
    float *out;
    const T *bias; /* may be NULL */
    int rows, stride;
    bool adds; /* not with a cap */
    float scale, cap;
    static constexpr int each = PRODUCT_ROWS;
    static constexpr enum narrow_reads reads = READS_INPUTS;
    typedef float held; /* what lies there */
    /* NULL: there is no such number. */
    __device__ __forceinline__ float *place(int group, int first_token, int tokens, int i) const {
        const int o = group * PRODUCT_ROWS + i % PRODUCT_ROWS, t = i / PRODUCT_ROWS;
        return o < rows && t < tokens ? out + (size_t)(first_token + t) * stride + o : nullptr;
    }
    template <bool LATE> __device__ __forceinline__ held fetch(int group, int first_token, int tokens, int i) const {
        const float *from = adds ? place(group, first_token, tokens, i) : nullptr;
        return from ? *from : 0.0f;
    }
    template <typename Sum>
    __device__ __forceinline__ void finish(held value, int group, int first_token, int tokens, int i, Sum sum) const {
        float *to = place(group, first_token, tokens, i);
        if (!to) return;
        const int row = i % PRODUCT_ROWS;
        const float x = sum(row, i / PRODUCT_ROWS) + (bias ? to_float(bias[group * PRODUCT_ROWS + row]) : 0.0f);
        *to = cap != 0 ? soft_cap(x * scale, cap) : fmaf(x, scale, value);
    }
};

int cuda_matrix_product(struct stream *s, const struct matrix_product *p) {
    const int groups = ceil_div(p->w->rows, PRODUCT_ROWS), k = p->w->cols;
    const struct norm none = {};
    return with_type(p->name, {*p->w, *p->bias, p->norm ? *p->norm : none, p->x}, [&](auto type) {
        typedef decltype(type) T;
        T *x = (T *)p->x.data;
        matrix_sums<T> sums = {
            p->out, (const T *)p->bias->data, p->w->rows, p->stride ? p->stride : p->w->rows, p->adds, p->scale,
            p->cap};
        if (p->w->packed) {
            norm_rows<T> norm_of = {};
            if (p->rows) norm_of = rows_to_norm<T>(p->rows, *p->norm, p->step, p->first);
            return product_of_packed<T>(s, p->name, groups, p->tokens, p->columns, k, p->rows ? &norm_of : nullptr, x,
                                        {p->w}, matrix_map{p->w->rows}, sums);
        }
        matrix_rows<T> rows = {(const T *)p->w->data, p->w->rows, k, p->rows && is_long(s->device, groups, k)};
        if (!p->rows) return product<T>(s, p->name, groups, p->columns, k, x, rows, sums);
        return product_of_norm<T>(s, p->name, groups, p->tokens, p->columns, k,
                                  rows_to_norm<T>(p->rows, *p->norm, p->step, p->first), x, rows, sums);
    });
}
