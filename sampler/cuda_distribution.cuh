/* The filtered, normalised distribution of a row and the race, on a team of blocks; distribution.c step by step, with the
 * same bits. For .cu files of sampler and verify alone; all threads of a team call these functions together.
 *
 * Mapping: thread t of a block takes four ids at once, those from 4 t of its part, and every 4 * THREADS ids further on; the
 *   passes of filters take them one by one.
 * Bytes: logits are read once and p is written once; between, a block's part of the row stays in shared memory (in p itself
 *   where it does not fit), first as logits, then as weights.
 * Waits: one for the maximum, one for the sum; a filter adds five to seven.
 * Numerics: weights of logits are computed again where they are needed. Masses, counts and orders are integers. Divisions by
 *   a row's temperature and sum go by their reciprocals (fmath_quotient). */
#ifndef DUET_SAMPLER_CUDA_DISTRIBUTION_CUH
#define DUET_SAMPLER_CUDA_DISTRIBUTION_CUH

#include <limits.h>
#include <math.h>
#include <math_constants.h>

#include "sampler/cuda_team.cuh"

/* GROUPS: of four ids that a thread loads before it works on the first. */
enum { GROUPS = 4, STEP = 4 * THREADS };

/* --- four ids --------------------------------------------------------------------------------------------- */

static __device__ inline bool is_wide(const void *row, int n) {
    return (uintptr_t)row % 16 == 0 && n % 4 == 0;
}

/* row[i] to row[i + 3], i a multiple of 4. WIDE: the row is, and i lies in it; else 0 from `end` on. */
template <bool WIDE> static __device__ inline void load_four(float (&x)[4], const float *row, int i, int end) {
    if constexpr (WIDE) {
        const float4 four = *reinterpret_cast<const float4 *>(row + i);
        x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = i + j < end ? row[i + j] : 0;
    }
}

template <bool WIDE> static __device__ inline void store_four(float *row, int i, int end, const float (&x)[4]) {
    if constexpr (WIDE) {
        *reinterpret_cast<float4 *>(row + i) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < end) row[i + j] = x[j];
    }
}

/* May logits be divided by their reciprocal (fmath_quotient)? Where the temperature is 0, they are not divided. */
static __device__ inline bool is_usual(float temperature) {
    return temperature == 0 || (temperature >= 0x1p-20f && temperature <= 0x1p20f);
}

/* A block's part of a row: ids [first, first + count), of which x[i] belongs to id first + i. `first` is a multiple of 4. */
struct part {
    int first, count;
    float *x;
    bool is_fast; /* x is shared memory, the rows are wide and the temperature is usual */
};

static __device__ inline struct part part_of(const struct team &t, struct scratch &s, int n, float *p) {
    const int ids = ((n + t.blocks - 1) / t.blocks + 3) / 4 * 4, first = min(t.member * ids, n);
    return part{first, min(ids, n - first), ids <= CHUNK ? s.ids : p + first, false};
}

/* Of rows of n logits and p that are drawn from at this temperature. */
static __device__ inline struct part part_of_rows(const struct team &t, struct scratch &s, int n, const float *logits,
                                                  float *p, float temperature) {
    struct part part = part_of(t, s, n, p);
    part.is_fast = part.x == s.ids && is_wide(logits, n) && is_wide(p, n) && is_usual(temperature);
    return part;
}

/* Four of x, 0 past the part's end. */
template <bool FAST>
static __device__ inline void load_part(float (&x)[4], const struct part &part, const struct scratch &s, int i) {
    load_four<FAST>(x, FAST ? s.ids : part.x, i, part.count);
}
template <bool FAST>
static __device__ inline void store_part(const struct part &part, struct scratch &s, int i, const float (&x)[4]) {
    store_four<FAST>(FAST ? s.ids : part.x, i, part.count, x);
}

/* --- weights ---------------------------------------------------------------------------------------------- */

/* What turns logits into weights. */
struct softmax {
    float max_logit, temperature, reciprocal; /* reciprocal: 1 / temperature */
    float least;                              /* of logit - max_logit: at it and below, weights are 0 */
};

static __device__ inline struct softmax softmax_of(float max_logit, float temperature) {
    return softmax{max_logit, temperature, 1 / temperature, -105 * temperature};
}

/* rule_weight; FAST: of a usual temperature. */
template <bool FAST> static __device__ inline float weight_of_logit(const struct softmax &e, float logit) {
    if constexpr (FAST)
        return fmath_exp_negative(fmath_quotient(fmaxf(logit - e.max_logit, e.least), e.temperature, e.reciprocal));
    else
        return rule_weight(logit, e.max_logit, e.temperature);
}

/* What is left of a row: the weights of ids that do not come after (order, id), greater order first, then the lower id.
 * `id` is right for the ids of this block alone. */
struct filter {
    struct softmax softmax;
    uint32_t order;
    int id;
};

static __device__ inline bool is_kept(const struct filter &f, float logit, int id) {
    const uint32_t order = rule_order(logit);
    return order > f.order || (order == f.order && id <= f.id);
}

static __device__ inline float weight_of(const struct filter &f, float logit, int id) {
    if (!is_kept(f, logit, id)) return 0;
    return is_usual(f.softmax.temperature) ? weight_of_logit<true>(f.softmax, logit)
                                           : weight_of_logit<false>(f.softmax, logit);
}

/* --- cuts ------------------------------------------------------------------------------------------------- */

/* What a selection chooses from: ids with weight > floor, weighted by 1 or by mass. */
struct choice {
    float floor;
    bool by_mass;
};

/* The digit at which the histogram, added up from the last bin down, reaches s.target; -1 if it does not. s.target loses
 * what lies above, s.units is that bin. Thread t looks at EACH bins, thread 0 at the last ones. */
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
    const u64 unit = c.by_mass ? rule_mass(weight_of_logit<false>(f.softmax, rule_logit(prefix))) : 1;
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

/* A group to load with others at once, for i in [0, end) its own: none waits for the question whether it is there. */
template <bool FAST> static __device__ inline int group_in(int i, int end) {
    return FAST ? min(i, end - 4) : i;
}

/* Loads the part; the greatest logit of the row and, for IS_FIRST, its lowest id, else 0. */
template <bool FAST, bool IS_FIRST>
static __device__ inline u64 load_logits(const struct part &part, struct scratch &s, const float *logits) {
    constexpr int groups = FAST ? GROUPS : 1;
    float most = -CUDART_INF_F, zero = 0; /* 0 x is NaN for what is not finite */
    int first = 0;                        /* of the part, where `most` is */
#pragma unroll 1
    for (int base = 4 * threadIdx.x; base < part.count; base += groups * STEP) {
        float x[groups][4];
#pragma unroll
        for (int g = 0; g < groups; g++)
            load_four<FAST>(x[g], logits + part.first, group_in<FAST>(base + g * STEP, part.count), part.count);
#pragma unroll
        for (int g = 0; g < groups; g++) {
            const int i = base + g * STEP;
            if (i < part.count) {
                if (!IS_FIRST) store_part<FAST>(part, s, i, x[g]);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if (!FAST && i + j >= part.count) continue;
                    if (IS_FIRST) first = x[g][j] > most ? i + j : first;
                    most = fmaxf(most, x[g][j]);
                    zero = fmaf(x[g][j], 0, zero);
                }
            }
        }
    }
    return zero == 0 ? (u64)rule_order(most) << 32 | (IS_FIRST ? ~(uint32_t)(part.first + first) : 0) : ~0ull;
}

/* The greatest logit of the row and, where that is asked for, its lowest id; else the part is loaded. */
template <bool IS_FIRST>
static __device__ inline struct top find_top(struct team &t, struct scratch &s, const struct part &part,
                                             const float *logits) {
    const u64 own =
        part.is_fast ? load_logits<true, IS_FIRST>(part, s, logits) : load_logits<false, IS_FIRST>(part, s, logits);
    const u64 best = reduce_team<larger>(t, s, own);
    return best == ~0ull ? top{0, -1} : top{rule_logit((uint32_t)(best >> 32)), IS_FIRST ? (int)~(uint32_t)best : 0};
}

/* p is one-hot at `id`. */
static __device__ inline void store_one_hot(const struct part &part, float *p, int id) {
    const bool is_aligned = (uintptr_t)p % 16 == 0;
    for (int i = 4 * threadIdx.x; i < part.count; i += STEP) {
        float x[4];
#pragma unroll
        for (int j = 0; j < 4; j++) x[j] = part.first + i + j == id ? 1 : 0;
        if (is_aligned && i + 4 <= part.count)
            store_four<true>(p + part.first, i, part.count, x);
        else
            store_four<false>(p + part.first, i, part.count, x);
    }
}

/* x turns from logits to weights after the filters; their mass. */
template <bool FAST>
static __device__ inline u64 store_weights(const struct part &part, struct scratch &s, const struct filter &f,
                                           float min_p) {
    constexpr int groups = FAST ? GROUPS : 1;
    const bool is_filtered = f.order > 0 || min_p > 0;
    u64 mass = 0;
#pragma unroll 1
    for (int base = 4 * threadIdx.x; base < part.count; base += groups * STEP) {
        struct rule_masses sum = {0, 0, 0};
#pragma unroll
        for (int g = 0; g < groups; g++) {
            const int i = base + g * STEP;
            if (i < part.count) {
                float x[4], weight[4];
                load_part<FAST>(x, part, s, i);
#pragma unroll
                for (int j = 0; j < 4; j++)
                    weight[j] = FAST || i + j < part.count ? weight_of_logit<FAST>(f.softmax, x[j]) : 0;
                if (is_filtered)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        if (weight[j] < min_p || !is_kept(f, x[j], part.first + i + j)) weight[j] = 0;
                store_part<FAST>(part, s, i, weight);
#pragma unroll
                for (int j = 0; j < 4; j++) rule_masses_add(&sum, weight[j]);
            }
        }
        mass += rule_masses_total(&sum);
    }
    return mass;
}

/* Their sum in the whole row. T > 0. */
static __device__ inline float make_weights(struct team &t, struct scratch &s, const struct sampling &how,
                                            const struct part &part, int n, float max_logit) {
    struct filter f = {softmax_of(max_logit, how.temperature), 0, INT_MAX};
    if (how.top_k > 0 && how.top_k < n) cut_prefix(t, s, part, f, choice{0, false}, (u64)how.top_k);
    if (how.top_p < 1) keep_top_p(t, s, part, f, n, how.top_p);
    const u64 mass =
        part.is_fast ? store_weights<true>(part, s, f, how.min_p) : store_weights<false>(part, s, f, how.min_p);
    return rule_sum(reduce_team<plus>(t, s, mass));
}

/* Turns weights into p. Those below `tiny` do not come out to the bit: `least` notes whether there are any. */
struct divisor {
    float sum, reciprocal, least;
};
static __device__ inline struct divisor divisor_of(float sum) {
    return divisor{sum, 1 / sum, 1};
}
static const float TINY = 0x1p-100f;

/* Four of the row's p. */
template <bool FAST>
static __device__ inline void load_p(float (&p)[4], const struct part &part, const struct scratch &s, int i,
                                     struct divisor &by) {
    float x[4];
    load_part<FAST>(x, part, s, i);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        p[j] = FAST ? fmath_quotient(x[j], by.sum, by.reciprocal) : x[j] / by.sum;
        if (FAST) by.least = fminf(by.least, x[j]);
    }
}

/* Puts the tiny ones right. They count in no mass, and in no race but those that read them again. */
static __device__ inline void store_tiny(const struct part &part, float *p, const struct divisor &by) {
    if (!(by.least < TINY)) return;
#pragma unroll 1
    for (int i = 4 * threadIdx.x; i < part.count; i += STEP)
        for (int j = i; j < i + 4 && j < part.count; j++)
            if (part.x[j] > 0 && part.x[j] < TINY) p[part.first + j] = part.x[j] / by.sum;
}

/* --- race ------------------------------------------------------------------------------------------------- */

/* A race over part of a row. `best`: the greatest rate so far above the inverted id, so that the greatest result of all
 * threads wins, on a tie the lowest id; 0 if all p are 0. An id whose rate cannot reach `floor` is not worked out, so a best
 * below the floor is none: the race must be run again from the floor 0. */
struct race {
    uint64_t key;
    struct rule_stream from;
    float floor;
    u64 best;
};

/* Of a whole row: that all of its rates are below has a chance of e^-32. */
#define RACE_FLOOR 0x1p-5f

static __device__ inline bool is_settled(u64 best, float floor) {
    return best >> 32 >= fmath_bits(floor);
}

static __device__ inline void race_id(struct race &r, float p, uint32_t word, int id) {
    r.best = larger(r.best, (u64)fmath_bits(p / rule_race_time(word)) << 32 | ~(uint32_t)id);
}

/* Ids id to id + 3; `id` is a multiple of 4. */
static __device__ inline void race_four(struct race &r, const float (&p)[4], int id) {
    if (!(fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3])) > r.floor * RULE_NO_RATE)) return;
    const struct philox_block block =
        philox_block(r.key, r.from.subsequence, ((uint64_t)r.from.purpose << 18) + id / 4);
    bool is_open = false;
#pragma unroll
    for (int j = 0; j < 4; j++) is_open = is_open || rule_may_reach(r.floor, p[j], block.w[j]);
    if (!is_open) return;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (rule_may_reach(r.floor, p[j], block.w[j])) race_id(r, p[j], block.w[j], id + j);
}

/* ids[i] to ids[i + 3], ascending: those that follow each other share a block of numbers. p is 0 past the last. */
static __device__ inline void race_listed(struct race &r, const float (&p)[4], const int32_t *ids, int i) {
    struct philox_block block;
    int of = -1;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!(p[j] > r.floor * RULE_NO_RATE)) continue;
        const int id = ids[i + j];
        if (id / 4 != of) block = philox_block(r.key, r.from.subsequence, ((uint64_t)r.from.purpose << 18) + id / 4);
        of = id / 4;
        const uint32_t word = id % 4 == 0   ? block.w[0]
                              : id % 4 == 1 ? block.w[1]
                              : id % 4 == 2 ? block.w[2]
                                            : block.w[3];
        if (rule_may_reach(r.floor, p[j], word)) race_id(r, p[j], word, id);
    }
}

/* The race over load(x, i), four values from id i on, in [first, end); `first` is a multiple of 4. NULL: ids as they are. */
template <typename Load>
static __device__ inline u64 race_ids(struct race r, int first, int end, const int32_t *ids, Load load) {
    const int start = first + 4 * (int)threadIdx.x;
    float p[4];
    if (ids) {
#pragma unroll 1
        for (int i = start; i < end; i += STEP) load(p, i), race_listed(r, p, ids, i);
    } else {
#pragma unroll 1
        for (int i = start; i < end; i += STEP) load(p, i), race_four(r, p, i);
    }
    return r.best;
}

/* The winner of a joined race; -1 if there is none. */
static __device__ inline int winner_of(u64 best) {
    return best >> 32 == 0 ? -1 : (int)~(uint32_t)best;
}

#endif
