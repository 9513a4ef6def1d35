/* What becomes of the sums of a product: an `Out` makes numbers of them, `each` a group of rows and token, PRODUCT_ROWS, or
 * PRODUCT_HALF where two rows make one. For number i of a group's each * tokens, those of a token side by side, a thread calls
 *   held fetch<LATE>(group, first_token, tokens, i)            what it takes besides the sums: of memory, as `reads` says
 *   finish(held, group, first_token, tokens, i, sum)           with float sum(int row, int token) for tokens after the first
 * which do nothing past the last row and token. LATE: behind inputs_are_ready(). */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH

#include "model/kernels/cuda/product_mma.cuh"

/* Nothing; what no kernel of the pass writes; what kernels before it write. */
enum narrow_reads { READS_NOTHING, READS_FIXED, READS_INPUTS };

/* The numbers of GROUPS groups, by the first BLOCK_THREADS threads of a block, each a number of every STEP-th token: FLIGHT of them are
 * fetched before any is finished. The rows of `sum` are those of all groups. */
template <int GROUPS, int FLIGHT, typename Out, typename Sum>
__device__ __forceinline__ void store_groups(const Out &out, int first_group, int first_token, int tokens, Sum sum) {
    constexpr int EACH = Out::each, ACROSS = GROUPS * EACH, STEP = BLOCK_THREADS / ACROSS;
    static_assert(BLOCK_THREADS % ACROSS == 0, "a thread's numbers lie in the same place of all tokens");
    const int group = threadIdx.x % ACROSS / EACH, place = threadIdx.x % EACH;
#pragma unroll 1
    for (int first = threadIdx.x / ACROSS; first < tokens; first += FLIGHT * STEP) {
        typename Out::held held[FLIGHT];
#pragma unroll
        for (int j = 0; j < FLIGHT; j++)
            held[j] =
                out.template fetch<true>(first_group + group, first_token, tokens, (first + j * STEP) * EACH + place);
#pragma unroll
        for (int j = 0; j < FLIGHT; j++)
            out.finish(held[j], first_group + group, first_token, tokens, (first + j * STEP) * EACH + place,
                       [&](int r, int token) { return sum(group * PRODUCT_ROWS + r, token); });
    }
}

#endif
