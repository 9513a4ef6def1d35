/* The product of matrices into f32: bias, scale, cap and the residual add are its epilogue. x is 16 bit. */
#include "model/kernels/cuda/prefill.cuh"
#include "model/kernels/cuda/product_matrix.cuh"

/* Does the kernel of many tokens take them, of a packed matrix? */
template <typename Kind> static bool takes_many(const struct stream *s, const struct weight *w, int tokens) {
    const int groups = ceil_div(w->rows, PRODUCT_ROWS), k = w->cols;
    const packed_rows<bf16, Kind, matrix_map<MATRICES>> rows = {{{w->rows}}, {}, {}, is_long(s->device, groups, k)};
    packed_bulk_memory memory;
    return is_packed_bulk(s, groups, tokens, k, rows, &memory);
}

enum token_order cuda_order_for(const struct stream *s, const struct rows *rows, const struct weight *reader) {
    /* Attention of a chunk has the rows that are there, a product its padded ones. */
    const int tokens = rows->prefill ? prefill_padded(rows_count(rows)) : rows_count(rows);
    const int groups = ceil_div(reader->rows, PRODUCT_ROWS), k = reader->cols;
    if (!reader->data || prefill_takes(s, rows, reader)) return ORDER_OWN;
    if (!reader->packed) {
        const plain_rows<bf16, matrix_map<1>> matrix = {{{reader->rows}}, {}, k, false};
        return is_bulk(s, groups, tokens, k, matrix, TOKENS_MADE) ? ORDER_TRANSPOSED : ORDER_OWN;
    }
    return (enum token_order)with_kind(reader->packed, [&](auto kind) {
        typedef decltype(kind) Kind;
        return (int)packed_token_order<Kind>(reader, tokens, takes_many<Kind>(s, reader, tokens));
    });
}

int cuda_matrix_product(struct stream *s, const struct matrix_product *p) {
    int matrices = 1;
    bool is_one_kind = true;
    for (; matrices < MATRICES && p->of[matrices].w && p->of[matrices].w->data; matrices++)
        is_one_kind = is_one_kind && are_read_alike({p->of[0].w, p->of[matrices].w});
    if (is_one_kind && matrices > 1) return cuda_product_of_several(s, p, matrices);
    /* Each makes the norm again, as a product may leave what it reads in another order. */
    for (int i = 0; i < matrices; i++) {
        struct matrix_product one = *p;
        const struct weight *w = p->of[i].w;
        one.of[0] = p->of[i];
        const bool is_many = w->packed && with_kind(w->packed, [&](auto kind) {
                                 return (int)takes_many<decltype(kind)>(s, w, p->tokens);
                             });
        TRY(is_many ? cuda_product_of_several(s, &one, 1) : product_of_matrices<1>(s, &one, 1));
    }
    return 0;
}
