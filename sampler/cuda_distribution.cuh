/* The filtered, normalised distribution of a row and the race, on a team of blocks; distribution.c step by step, with the
 * same bits. For .cu files of sampler and verify alone; all threads of a team call these functions together.
 *
 * Bytes: logits are read once and p is written once; between, a block's part of the row stays in shared memory (in p itself
 *   where it does not fit), first as logits, then as weights, then as p.
 * Waits: one for the maximum, one for the sum; a filter adds five to seven.
 * Numerics: weights of logits are computed again where they are needed. Masses, counts and orders are integers. */
#ifndef DUET_SAMPLER_CUDA_DISTRIBUTION_CUH
#define DUET_SAMPLER_CUDA_DISTRIBUTION_CUH

#include <limits.h>
#include <math.h>
#include <math_constants.h>

#include "sampler/cuda_team.cuh"

/* A block's part of a row: ids [first, first + count), of which x[i] belongs to id first + i. `first` is a multiple of 4. */
struct part {
    int first, count;
    float *x;
};

static __device__ inline struct part part_of(const struct team &t, struct scratch &s, int n, float *p) {
    const int ids = ((n + t.blocks - 1) / t.blocks + 3) / 4 * 4, first = min(t.member * ids, n);
    return part{first, min(ids, n - first), ids <= CHUNK ? s.ids : p + first};
}

/* What is left of a row: the weights of ids that do not come after (order, id), greater order first, then the lower id.
 * `id` is right for the ids of this block alone. */
struct filter {
    float max_logit, temperature;
    uint32_t order;
    int id;
};

static __device__ inline float weight_of(const struct filter &f, float logit, int id) {
    const uint32_t order = rule_order(logit);
    const bool is_kept = order > f.order || (order == f.order && id <= f.id);
    return is_kept ? rule_weight(logit, f.max_logit, f.temperature) : 0;
}

/* --- cuts ------------------------------------------------------------------------------------------------- */

/* What a selection chooses from: ids with weight > floor, weighted by 1 or by mass. */
struct choice {
    float floor;
    bool by_mass;
};

/* The digit at which the histogram, added up from the last bin down, reaches s.target; -1 if it does not. s.target loses
 * what lies above, s.units is that bin. Thread t looks at four bins, thread 0 at the last ones. */
static __device__ inline void find_digit(struct scratch &s) {
    enum { EACH = TEAM_BINS / THREADS };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, high = TEAM_BINS - 1 - EACH * (int)threadIdx.x;
    const u64 target = s.target;
    u64 own = 0;
    for (int i = 0; i < EACH; i++) own += s.histogram[high - i];
    u64 up_to = own;
    for (int step = 1; step < 32; step *= 2) {
        u64 other = __shfl_up_sync(~0u, up_to, step);
        if (lane >= step) up_to += other;
    }
    if (lane == 31) s.warps[warp] = up_to;
    if (threadIdx.x == 0) s.digit = -1;
    __syncthreads();
    for (int w = 0; w < warp; w++) up_to += s.warps[w];
    u64 above = up_to - own;
    if (above < target && target <= up_to) {
        int digit = high;
        while (above + s.histogram[digit] < target) above += s.histogram[digit--];
        s.digit = digit;
        s.units = s.histogram[digit];
        s.target = target - above;
    }
    __syncthreads();
}

/* Adds the units of a warp's ids, those of one bin at once. A mass has 43 bits: 32 of either half fit 32 bits. */
static __device__ inline void add_units(struct scratch &s, bool is_chosen, uint32_t digit, u64 units) {
    enum { LOW_BITS = 22 };
    const uint32_t low = (uint32_t)units & ((1u << LOW_BITS) - 1), high = (uint32_t)(units >> LOW_BITS);
    for (unsigned left = __ballot_sync(~0u, is_chosen); left > 0;) {
        const int leader = __ffs(left) - 1;
        const uint32_t first = __shfl_sync(~0u, digit, leader);
        const bool is_same = is_chosen && digit == first;
        const u64 sum =
            __reduce_add_sync(~0u, is_same ? low : 0) + ((u64)__reduce_add_sync(~0u, is_same ? high : 0) << LOW_BITS);
        if (threadIdx.x % 32 == leader) atomicAdd(&s.histogram[digit], sum);
        left &= ~__ballot_sync(~0u, is_same);
    }
}

static __device__ inline void add_orders(struct scratch &s, const struct part &part, const struct filter &f,
                                         const struct choice &c, uint32_t prefix, uint32_t mask, int shift,
                                         uint32_t digit_mask) {
    for (int i = threadIdx.x; i < TEAM_BINS; i += THREADS) s.histogram[i] = 0;
    __syncthreads();
    for (int base = 0; base < part.count; base += THREADS) {
        const int i = base + threadIdx.x;
        const float logit = i < part.count ? part.x[i] : 0;
        const uint32_t order = rule_order(logit);
        const bool is_candidate = i < part.count && (order & mask) == prefix;
        const float weight = is_candidate ? weight_of(f, logit, part.first + i) : 0;
        add_units(s, weight > c.floor, order >> shift & digit_mask, c.by_mass ? rule_mass(weight) : 1);
    }
}

/* The `wanted`-th lowest id of this block's ids that are chosen and have this order; 1 <= wanted <= their number. */
static __device__ inline int find_tied_id(struct scratch &s, const struct part &part, const struct filter &f,
                                          const struct choice &c, uint32_t order, int wanted) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int base = 0, found = 0;; base += THREADS) {
        const int i = base + threadIdx.x, id = part.first + i;
        const bool is_tied = i < part.count && rule_order(part.x[i]) == order && weight_of(f, part.x[i], id) > c.floor;
        const unsigned tied = __ballot_sync(~0u, is_tied);
        if (lane == 0) s.warps[warp] = (u64)__popc(tied);
        const int here = __syncthreads_count(is_tied);
        int rank = found + __popc(tied & (~0u >> (31 - lane)));
        for (int w = 0; w < warp; w++) rank += (int)s.warps[w];
        if (is_tied && rank == wanted) s.digit = id;
        __syncthreads();
        found += here;
        if (found >= wanted) break;
    }
    const int id = s.digit;
    __syncthreads();
    return id;
}

/* Of this block's ids of this order, the last one that is among the first `wanted` of the team's. */
static __device__ inline int cut_tied(struct team &t, struct scratch &s, const struct part &part,
                                      const struct filter &f, const struct choice &c, uint32_t order, u64 wanted) {
    u64 own = 0;
    for (int i = threadIdx.x; i < part.count; i += THREADS)
        own += rule_order(part.x[i]) == order && weight_of(f, part.x[i], part.first + i) > c.floor;
    own = reduce_block<plus>(s, own);
    const u64 before = sum_before(t, own);
    if (before >= wanted) return -1;
    if (wanted - before >= own) return INT_MAX;
    return find_tied_id(s, part, f, c, order, (int)(wanted - before));
}

/* Narrows the filter to the shortest prefix, most probable first, of the chosen ids whose units add up to `target`; it
 * stays as it is if they do not. Equal logits have equal units. */
static __device__ inline void cut_prefix(struct team &t, struct scratch &s, const struct part &part, struct filter &f,
                                         const struct choice &c, u64 target) {
    uint32_t prefix = 0, mask = 0;
    if (threadIdx.x == 0) s.target = target;
    for (int d = 0; d < 3; d++) {
        const int shift = d == 0 ? 21 : d == 1 ? 10 : 0;
        const uint32_t digit_mask = d < 2 ? 2047 : 1023;
        add_orders(s, part, f, c, prefix, mask, shift, digit_mask);
        add_histograms(t, s);
        find_digit(s);
        if (s.digit < 0) return;
        prefix |= (uint32_t)s.digit << shift;
        mask |= digit_mask << shift;
    }
    const u64 unit = c.by_mass ? rule_mass(rule_weight(rule_logit(prefix), f.max_logit, f.temperature)) : 1;
    const u64 wanted = (s.target + unit - 1) / unit;
    const bool is_whole = wanted * unit >= s.units;
    const int id = is_whole ? INT_MAX : cut_tied(t, s, part, f, c, prefix, wanted);
    /* a whole group ends where the filter already cut it */
    if (prefix > f.order || id < f.id) f.id = id;
    f.order = prefix;
}

static __device__ inline void keep_top_p(struct team &t, struct scratch &s, const struct part &part, struct filter &f,
                                         int n, float top_p) {
    u64 mass = 0;
    for (int i = threadIdx.x; i < part.count; i += THREADS) mass += rule_mass(weight_of(f, part.x[i], part.first + i));
    const u64 total = reduce_team<plus>(t, s, mass), target = rule_nucleus(total, top_p);
    cut_prefix(t, s, part, f, choice{(float)((total - target) / (u64)n) * 0x1p-43f, true}, target);
}

/* --- distribution ----------------------------------------------------------------------------------------- */

/* Marks a row without a distribution. */
static __device__ inline void mark_bad(const struct team &t, float *p) {
    if (t.member == 0 && threadIdx.x == 0) p[0] = CUDART_NAN_F;
}

struct top {
    float logit;
    int id; /* -1: a logit is not finite */
};

/* Loads the part; the greatest logit and its lowest id. */
static __device__ inline struct top find_top(struct team &t, struct scratch &s, const struct part &part,
                                             const float *logits) {
    u64 best = 0; /* order above the inverted id; all ones for a value that is not finite */
#pragma unroll 4
    for (int i = threadIdx.x; i < part.count; i += THREADS) {
        const float logit = logits[part.first + i];
        const bool is_finite = (fmath_bits(logit) & 0x7FFFFFFFu) < 0x7F800000u;
        part.x[i] = logit;
        best = larger(best, is_finite ? (u64)rule_order(logit) << 32 | ~(uint32_t)(part.first + i) : ~0ull);
    }
    best = reduce_team<larger>(t, s, best);
    return best == ~0ull ? top{0, -1} : top{rule_logit((uint32_t)(best >> 32)), (int)~(uint32_t)best};
}

/* p is one-hot at `id`. */
static __device__ inline void store_one_hot(const struct part &part, float *p, int id) {
    for (int i = threadIdx.x; i < part.count; i += THREADS) p[part.first + i] = part.first + i == id ? 1 : 0;
}

/* x turns from logits to weights after the filters; their sum in the whole row. T > 0. */
static __device__ inline float make_weights(struct team &t, struct scratch &s, const struct sampling &how,
                                            const struct part &part, int n, float max_logit) {
    struct filter f = {max_logit, how.temperature, 0, INT_MAX};
    if (how.top_k > 0 && how.top_k < n) cut_prefix(t, s, part, f, choice{0, false}, (u64)how.top_k);
    if (how.top_p < 1) keep_top_p(t, s, part, f, n, how.top_p);
    u64 mass = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < part.count; i += THREADS) {
        const float weight = weight_of(f, part.x[i], part.first + i);
        part.x[i] = weight < how.min_p ? 0 : weight;
        mass += rule_mass(part.x[i]);
    }
    return rule_sum(reduce_team<plus>(t, s, mass));
}

/* --- race ------------------------------------------------------------------------------------------------- */

/* The race over value(id), id in [first, end): the rate above the inverted id, so that the greatest result of all threads
 * wins, on a tie the lowest id; 0 if all values are 0. `first` is a multiple of 4. */
template <typename Value>
static __device__ inline u64 race_ids(int first, int end, uint64_t key, struct rule_stream from, Value value) {
    u64 best = 0;
    for (int i = first + 4 * (int)threadIdx.x; i < end; i += 4 * THREADS) {
        float p[4];
        bool is_possible = false;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            p[j] = i + j < end ? value(i + j) : 0;
            is_possible = is_possible || p[j] > 0;
        }
        if (!is_possible) continue;
        const struct philox_block block = philox_block(key, from.subsequence, ((uint64_t)from.purpose << 18) + i / 4);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t rate = fmath_bits(p[j] / rule_race_time(block.w[j]));
            best = larger(best, (u64)rate << 32 | ~(uint32_t)(i + j));
        }
    }
    return best;
}

/* Likewise over value(i) of ids[i], ascending, i in [first, end): ids that follow each other share a block of numbers. */
template <typename Value>
static __device__ inline u64 race_listed(int first, int end, const int32_t *ids, uint64_t key, struct rule_stream from,
                                         Value value) {
    u64 best = 0;
    for (int i = first + 4 * (int)threadIdx.x; i < end; i += 4 * THREADS) {
        struct philox_block block;
        int of = -1;
        for (int j = i; j < i + 4 && j < end; j++) {
            const float p = value(j);
            if (!(p > 0)) continue;
            const int id = ids[j];
            if (id / 4 != of) block = philox_block(key, from.subsequence, ((uint64_t)from.purpose << 18) + id / 4);
            of = id / 4;
            const uint32_t word = id % 4 == 0   ? block.w[0]
                                  : id % 4 == 1 ? block.w[1]
                                  : id % 4 == 2 ? block.w[2]
                                                : block.w[3];
            best = larger(best, (u64)fmath_bits(p / rule_race_time(word)) << 32 | ~(uint32_t)id);
        }
    }
    return best;
}

/* The winner of a joined race; -1 if there is none. */
static __device__ inline int winner_of(u64 best) {
    return best >> 32 == 0 ? -1 : (int)~(uint32_t)best;
}

#endif
