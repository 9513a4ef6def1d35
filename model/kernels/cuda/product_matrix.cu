/* The product of matrices into f32: bias, scale, cap and the residual add are its epilogue. x is 16 bit. */
#include "model/kernels/cuda/product_matrix.cuh"

int cuda_matrix_product(struct stream *s, const struct matrix_product *p) {
    int matrices = 1;
    bool is_one_kind = true;
    for (; matrices < MATRICES && p->of[matrices].w && p->of[matrices].w->data; matrices++)
        is_one_kind = is_one_kind && are_read_alike({p->of[0].w, p->of[matrices].w});
    if (is_one_kind && matrices > 1) return cuda_product_of_several(s, p, matrices);
    /* Each makes the norm again, as a product may leave what it reads in another order. */
    for (int i = 0; i < matrices; i++) {
        struct matrix_product one = *p;
        one.of[0] = p->of[i];
        TRY(product_of_matrices<1>(s, &one, 1));
    }
    return 0;
}
