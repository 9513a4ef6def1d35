/* What becomes of the sums of a product: an `Out` makes numbers of them, `each` a group of rows and token, PRODUCT_ROWS, or
 * PRODUCT_HALF where two rows make one. For number i < each of a group a thread calls
 *   place at(group, i)                   where it goes, whatever the token; reads nothing that a kernel of the pass writes
 *   held fetch<LATE>(place, token)       what it takes besides the sums: of memory, as `reads` says
 *   finish(held, place, token, sum)      with float sum(int row)
 * of which the last two do nothing past the last row. LATE: behind inputs_are_ready(). */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH

#include "model/kernels/cuda/product_mma.cuh"

/* Nothing; what no kernel of the pass writes; what kernels before it write. */
enum narrow_reads { READS_NOTHING, READS_FIXED, READS_INPUTS };

/* The numbers of GROUPS groups, by the first BLOCK_THREADS threads of a block, each a number of every STEP-th token: FLIGHT of them are
 * fetched before any is finished. sum(row, token): rows are those of all groups, tokens those after the first. */
template <int GROUPS, int FLIGHT, typename Out, typename Sum>
__device__ __forceinline__ void store_groups(const Out &out, int first_group, int first_token, int tokens, Sum sum) {
    constexpr int EACH = Out::each, ACROSS = GROUPS * EACH, STEP = BLOCK_THREADS / ACROSS;
    static_assert(BLOCK_THREADS % ACROSS == 0, "a thread's numbers lie in the same place of all tokens");
    const int group = threadIdx.x % ACROSS / EACH;
    const typename Out::place place = out.at(first_group + group, threadIdx.x % EACH);
#pragma unroll 1
    for (int first = threadIdx.x / ACROSS; first < tokens; first += FLIGHT * STEP) {
        typename Out::held held[FLIGHT] = {};
#pragma unroll
        for (int j = 0; j < FLIGHT; j++)
            if (first + j * STEP < tokens) held[j] = out.template fetch<true>(place, first_token + first + j * STEP);
#pragma unroll
        for (int j = 0; j < FLIGHT; j++)
            if (first + j * STEP < tokens)
                out.finish(held[j], place, first_token + first + j * STEP,
                           [&](int r) { return sum(group * PRODUCT_ROWS + r, first + j * STEP); });
    }
}

#endif
