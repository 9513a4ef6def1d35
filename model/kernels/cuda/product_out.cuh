/* What becomes of the sums of a product: an `Out` makes numbers of them, `each` a group of rows and token, PRODUCT_ROWS, or
 * PRODUCT_HALF where two rows make one. For number i < each of a group a thread calls
 *   place at(group, i)                   where it goes, whatever the token; reads nothing that a kernel of the pass writes
 *   bool has(place)                      false past the last row: then it calls no more
 *   held fetch<LATE>(place, token)       what it takes besides the sums: of memory, as `reads` says. LATE: behind inputs_are_ready()
 *   finish(held, place, token, sums)     sums[PRODUCT_ROWS / each] of row i, and of row i + PRODUCT_HALF
 * Branches in `finish` are in the way of the next number: a thread has several at once.
 *
 * finds_tokens: what is fetched follows from a token's own reads, READS_FIXED, which a block may make once for all of its numbers:
 *   of_token find<LATE>(token)
 *   held fetch_of(place, of_token)       reads nothing that a kernel of the pass writes
 *
 * may_share: blocks may share groups of a narrow product: by(map) is the same of another map, and rows are a plain_rows of matrix_map<1>
 *
 * makes_rows: of two rows it makes a `number` of 16 bits, and those of a token lie side by side. For products that add in order it also has
 *   numbers_of(sums, sums, numbers)      several at once, each number group * PRODUCT_HALF + i of some token, whatever the token
 *   eight(token, first), width, order    where those from `first` on lie, how many a token has, both multiples of 8, and in which order
 *                                        (product_order.cuh) */
#ifndef DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH
#define DUET_MODEL_KERNELS_CUDA_PRODUCT_OUT_CUH

#include "model/kernels/cuda/product_mma.cuh"

/* What no kernel of the pass writes; what kernels before it write. */
enum narrow_reads { READS_FIXED, READS_INPUTS };

/* The sums of number i; sum(row). */
template <typename Out> struct number_sums {
    float of[PRODUCT_ROWS / Out::each];
    template <typename Sum> __device__ __forceinline__ void take(int i, Sum sum) {
#pragma unroll
        for (int j = 0; j < PRODUCT_ROWS / Out::each; j++) of[j] = sum(i + j * PRODUCT_HALF);
    }
};

/* Which of the numbers of GROUPS groups a thread has, of the first BLOCK_THREADS of a block, and where it goes. */
template <int GROUPS, typename Out> struct own_number {
    static constexpr int across = GROUPS * Out::each, step = BLOCK_THREADS / across;
    static_assert(BLOCK_THREADS % across == 0, "a thread's numbers lie in the same place of all tokens");
    int group, i;
    typename Out::place place;
    bool is_there;
    /* `groups`: how many there are. */
    __device__ __forceinline__ own_number(const Out &out, int first_group, int groups = GROUPS)
        : group(threadIdx.x % across / Out::each), i(threadIdx.x % Out::each), place(out.at(first_group + group, i)),
          is_there(group < groups && out.has(place)) {}
};

/* What has been found of the tokens of a store: nothing; that of all of them. What is fetched then. */
struct found_nothing {};
template <typename Out> struct found_tokens { const typename Out::of_token *of; };
template <typename Out>
__device__ __forceinline__ typename Out::held fetch_number(const Out &out, const typename Out::place &place,
                                                           int first_token, int token, found_nothing) {
    return out.template fetch<true>(place, first_token + token);
}
template <typename Out>
__device__ __forceinline__ typename Out::held fetch_number(const Out &out, const typename Out::place &place, int,
                                                           int token, found_tokens<Out> found) {
    return out.fetch_of(place, found.of[token]);
}

/* The numbers of GROUPS groups, each a thread's own of every `step`-th token: FLIGHT of them are fetched before any is finished, and TOGETHER
 * are finished without a branch between them. sum(row, token): rows are those of all groups, tokens, and those found, those after the first. */
template <int FLIGHT, int TOGETHER, int GROUPS, typename Out, typename Sum, typename Found = found_nothing>
__device__ __forceinline__ void store_numbers(const Out &out, const own_number<GROUPS, Out> &own, int first_token,
                                              int tokens, Sum sum, Found found = {}) {
    constexpr int STEP = own_number<GROUPS, Out>::step;
    static_assert(FLIGHT % TOGETHER == 0, "as many each time");
    if (!own.is_there) return;
#pragma unroll 1
    for (int first = threadIdx.x / own.across; first < tokens; first += FLIGHT * STEP) {
        typename Out::held held[FLIGHT];
        /* Past the last token the first once more, which has the same bits. */
        auto token_of = [&](int j) { return first + j * STEP < tokens ? first + j * STEP : first; };
#pragma unroll
        for (int j = 0; j < FLIGHT; j++) {
            if (j % TOGETHER == 0 && first + j * STEP >= tokens) break;
            held[j] = fetch_number(out, own.place, first_token, token_of(j), found);
        }
#pragma unroll
        for (int now = 0; now < FLIGHT; now += TOGETHER) {
            if (first + now * STEP >= tokens) break;
            number_sums<Out> sums[TOGETHER];
#pragma unroll
            for (int j = 0; j < TOGETHER; j++)
                sums[j].take(own.group * PRODUCT_ROWS + own.i, [&](int r) { return sum(r, token_of(now + j)); });
#pragma unroll
            for (int j = 0; j < TOGETHER; j++)
                out.finish(held[now + j], own.place, first_token + token_of(now + j), sums[j].of);
        }
    }
}
template <int GROUPS, int FLIGHT, int TOGETHER, typename Out, typename Sum>
__device__ __forceinline__ void store_groups(const Out &out, int first_group, int first_token, int tokens, Sum sum) {
    store_numbers<FLIGHT, TOGETHER>(out, own_number<GROUPS, Out>(out, first_group), first_token, tokens, sum);
}

#endif
