/* h[t, j, :] = activation(Wg_e y, Wu_e y) with biases, e = ids[t, j], y = norm(x[t, :]), for the experts that are chosen.
 *   1. One launch: a block a row normalises it into 16 bit, and one more sorts entries by expert and cuts tiles.
 *   2. The product (experts.cuh) whose groups of 16 rows are 8 of gate and 8 of up. h is 16 bit.
 * A single row is normalised by the product, and its choices need no sorting. */
#include "model/kernels/cuda/experts.cuh"
#include "model/kernels/cuda/table.h"

enum { WARPS = BLOCK_THREADS / 32 };

struct listing {
    struct expert_lists lists;
    const int32_t *ids; /* [entries]; < 0: of no expert, and in no list */
    int experts, columns;
};

/* What the warps counted, [WARPS][experts], becomes where each of them puts its entries of each expert. By one warp: a lane has as
 * many experts as the others, one behind the other. */
static __device__ void place_entries(const struct listing &l, int *counts) {
    const int lane = threadIdx.x, each = ceil_div(l.experts, 32), first = min(lane * each, l.experts),
              end = min(first + each, l.experts);
    int entries = 0, tiles = 0;
    for (int e = first; e < end; e++) {
        int count = 0;
        for (int warp = 0; warp < WARPS; warp++) count += counts[warp * l.experts + e];
        entries += count, tiles += ceil_div(count, l.columns);
    }
    int entry = entries, tile = tiles; /* of all lanes up to this one, then of those before it */
    for (int step = 1; step < 32; step <<= 1) {
        const int entries_before = __shfl_up_sync(0xffffffffu, entry, step),
                  tiles_before = __shfl_up_sync(0xffffffffu, tile, step);
        if (lane >= step) entry += entries_before, tile += tiles_before;
    }
    if (lane == 31) l.lists.at[0] = tile;
    entry -= entries, tile -= tiles;
    for (int e = first; e < end; e++) {
        const int start = entry;
        for (int warp = 0; warp < WARPS; warp++) {
            const int count = counts[warp * l.experts + e];
            counts[warp * l.experts + e] = entry;
            entry += count;
        }
        for (int at = start; at < entry; at += l.columns)
            l.lists.tiles()[tile++] = pack_tile({e, at, min(entry - at, l.columns)});
    }
}

/* By all threads of a block; a warp has a run of entries, and keeps their order. */
static __device__ void list_entries(const struct listing &l, int *counts) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, entries = l.lists.entries;
    const int run = ceil_div(entries, 32 * WARPS) * 32, first = warp * run, end = min(first + run, entries);
    int *mine = counts + warp * l.experts;
    for (int i = threadIdx.x; i < WARPS * l.experts; i += BLOCK_THREADS) counts[i] = 0;
    __syncthreads();
    for (int i = first + lane; i < end; i += 32)
        if (l.ids[i] >= 0) atomicAdd(&mine[l.ids[i]], 1);
    __syncthreads();
    if (warp == 0) place_entries(l, counts);
    __syncthreads();
    for (int at = first; at < end; at += 32) {
        const int i = at + lane, expert = i < end ? l.ids[i] : -1;
        const unsigned same = __match_any_sync(0xffffffffu, expert), before = same & ((1u << lane) - 1);
        const int place = expert < 0 ? 0 : mine[expert];
        __syncwarp();
        if (expert >= 0) l.lists.sorted()[place + __popc(before)] = i;
        if (expert >= 0 && before == 0) mine[expert] = place + __popc(same);
        __syncwarp();
    }
}

/* grid (1 + T): the first block lists. */
template <typename T>
__global__ void __launch_bounds__(BLOCK_THREADS)
    norm_and_list_kernel(norm_rows<T> rows, T *y, int width, const struct listing listing) {
    extern __shared__ __align__(16) unsigned char shared[];
    norm_memory<T> memory(shared, width);
    next_may_start();
    if (blockIdx.x > 0) memory.fetch(rows, width);
    inputs_are_ready();
    if (blockIdx.x == 0)
        list_entries(listing, (int *)shared);
    else
        norm_row(rows, blockIdx.x - 1, width, memory, y + (size_t)(blockIdx.x - 1) * width);
}

template <typename T> struct expert_gates {
    T *h;
    const int32_t *sorted;
    const T *gate_bias, *up_bias; /* may be NULL */
    int64_t gate_apart, up_apart;
    int hidden;
    enum activation activation;
    bool has_up; /* else ones: the other half of the sums is for nobody */
    __device__ __forceinline__ expert_gates of(int expert) const {
        expert_gates its = *this;
        its.gate_bias = of_expert(gate_bias, gate_apart, expert);
        its.up_bias = of_expert(up_bias, up_apart, expert);
        return its;
    }
    static constexpr int each = PRODUCT_HALF;
    struct place {
        int f;
        float gate_bias, up_bias;
    };
    struct held {};
    __device__ __forceinline__ place at(int group, int i) const {
        const int f = group * PRODUCT_HALF + i;
        return {f, gate_bias && f < hidden ? to_float(gate_bias[f]) : 0.0f,
                up_bias && f < hidden ? to_float(up_bias[f]) : 0.0f};
    }
    __device__ __forceinline__ bool has(const place &at) const { return at.f < hidden; }
    template <bool LATE> __device__ __forceinline__ held fetch(const place &, int) const { return {}; }
    __device__ __forceinline__ void finish_entry(const place &at, int entry, const float (&sums)[2]) const {
        const float up = has_up ? sums[1] + at.up_bias : 1.0f;
        h[(size_t)entry * hidden + at.f] = from_float<T>(activate(activation, sums[0] + at.gate_bias, up));
    }
    __device__ __forceinline__ void finish(held, const place &at, int token, const float (&sums)[2]) const {
        finish_entry(at, sorted[token], sums);
    }
};

template <typename T>
static int norm_and_list(struct stream *s, const struct op_experts_up *op, const struct listing &listing) {
    const size_t of_lists = (size_t)WARPS * op->experts * sizeof(int),
                 shared = norm_bytes(op->width) > of_lists ? norm_bytes(op->width) : of_lists;
    auto kernel = norm_and_list_kernel<T>;
    launch_sharing(s, kernel, dim3(1 + rows_count(&op->rows)), BLOCK_THREADS, shared, 1, SHARED_PERCENT,
                   rows_to_norm<T>(op->x, op->norm), (T *)op->normed.data, op->width, listing);
    return cuda_launched(s, "experts' lists", sizeof listing + sizeof(norm_rows<T>) + 12);
}

template <typename T> static int experts_up(struct stream *s, const struct op_experts_up *op) {
    const int entries = rows_count(&op->rows) * op->chosen, n = op->experts,
              columns = tile_columns(s, &op->rows, n, op->chosen, are_packed(op->gate)),
              groups = ceil_div(op->hidden, PRODUCT_HALF), tiles = tiles_at_most(entries, n, columns);
    const bool is_single = is_single_row(&op->rows, op->width, op->hidden);
    const struct listing listing = {{op->lists, entries}, op->ids, n, columns};
    const expert_gates<T> out = {(T *)op->h.data,
                                 op->lists + 1 + entries,
                                 first_expert<T>(op->gate_bias),
                                 first_expert<T>(op->up_bias),
                                 op->gate_bias.apart,
                                 op->up_bias.apart,
                                 op->hidden,
                                 op->activation,
                                 op->up.each != nullptr};
    const entry_rows<T> in = {(const T *)op->normed.data, listing.lists, op->chosen, op->width};
    const row_entries<T> row = row_entries_of<T>(*op, nullptr, op->width, rows_to_norm<T>(op->x, op->norm));
    const struct experts &up = op->up.each ? op->up : op->gate; /* whose rows are asked for twice */
    const paired_map map = {op->hidden, true};
    if (!is_single) {
        if (is_route_left(&op->rows, &op->route)) TRY(cuda_route(s, &op->rows, &op->route));
        TRY(norm_and_list<T>(s, op, listing));
    }
    if (are_packed(op->gate) && is_single)
        return with_packed_experts<T>("experts_up", op->gate, &up, map, [&](auto rows) {
            return row_experts_product(s, "experts_up", groups, row, rows, out);
        });
    if (are_packed(op->gate))
        return packed_experts_product<T>(s, "experts_up", groups, tiles, columns, op->width, in, op->gate, &up, map,
                                         out);
    const plain_expert_rows<T, paired_map> rows = {
        {map, {first_expert<T>(op->gate), first_expert<T>(up)}, op->width, false}, {op->gate.apart, up.apart}};
    if (is_single) return row_experts_product(s, "experts_up", groups, row, rows, out);
    return experts_product<T>(s, "experts_up", groups, tiles, columns, op->width, in, rows, out);
}

int cuda_op_experts_up(struct stream *s, const struct op_experts_up *op) {
    const int n = op->experts;
    TRY(check_experts("experts_up", rows_count(&op->rows) * op->chosen, n, op->chosen));
    return with_type("experts_up",
                     {{op->gate, n},
                      {op->up, n},
                      {op->gate_bias, n},
                      {op->up_bias, n},
                      op->route.expert_scale,
                      op->norm,
                      op->normed,
                      op->h},
                     [&](auto type) { return experts_up<decltype(type)>(s, op); });
}
