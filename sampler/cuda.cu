/* The sampler's launches on CUDA: the same bits as host.c from the same logits.
 *
 * Mapping: a row of logits belongs to a block of SAMPLER_LANES threads; thread j is lane j of the documented sums. A draw is
 *   one launch; accept is two: all rows of p_target, then the rule, one block a graph row.
 * Bytes: a draw reads 4 V of logits once from HBM; its passes (maximum, weights, sum, division, race; a filter adds 4 each)
 *   work on what L2 keeps.
 * Numerics: integers (maxima, histograms, fixed-point masses, winners of the race) have no order; the only sums of floats
 *   are lane sums, folded as rules.h says. Built without contraction (--fmad=false), fused operations are spelled out. */
#include <math.h>
#include <math_constants.h>

#include "graphs/cuda.cuh"
extern "C" {
#include "sampler/internal.h"
}

enum { LANES = SAMPLER_LANES, WARPS = LANES / 32, BINS = 2048, ID_BITS = 20, ID_DIGIT_BITS = ID_BITS / 2 };

typedef unsigned long long u64;

/* What the threads of a block share. */
struct scratch {
    union {
        float lanes[LANES];
        u64 histogram[BINS];
    };
    u64 warps[WARPS];
    u64 target, units;
    int digit;
};

/* --- over a block ----------------------------------------------------------------------------------------- */

__device__ static u64 larger(u64 a, u64 b) {
    return a > b ? a : b;
}
__device__ static u64 plus(u64 a, u64 b) {
    return a + b;
}

/* All threads get the result. */
template <u64 (*JOIN)(u64, u64)> __device__ static u64 reduce(struct scratch &s, u64 x) {
    for (int step = 16; step > 0; step /= 2) x = JOIN(x, __shfl_xor_sync(~0u, x, step));
    if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = s.warps[threadIdx.x % 32];
    for (int step = 16; step > 0; step /= 2) x = JOIN(x, __shfl_xor_sync(~0u, x, step));
    __syncthreads();
    return x;
}

/* s[j] += s[j + w] for w = LANES/2 ... 1. */
__device__ static float fold_lanes(struct scratch &s, float x) {
    s.lanes[threadIdx.x] = x;
    __syncthreads();
    for (int w = LANES / 2; w >= 32; w /= 2) {
        if (threadIdx.x < w) s.lanes[threadIdx.x] += s.lanes[threadIdx.x + w];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        x = s.lanes[threadIdx.x];
        for (int w = 16; w > 0; w /= 2) x += __shfl_down_sync(~0u, x, w);
        if (threadIdx.x == 0) s.lanes[0] = x;
    }
    __syncthreads();
    x = s.lanes[0];
    __syncthreads();
    return x;
}

/* --- cuts ------------------------------------------------------------------------------------------------- */

/* The digit at which the histogram, added up from the last bin down, reaches s.target (0 if it does not); s.target
 * loses what lies above, s.units is that bin. Thread t looks at bins 2 (LANES - 1 - t) and the one above. */
__device__ static void find_digit(struct scratch &s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, low = BINS - 2 - 2 * (int)threadIdx.x;
    const u64 target = s.target, high_units = s.histogram[low + 1], pair = high_units + s.histogram[low];
    u64 up_to = pair;
    for (int step = 1; step < 32; step *= 2) {
        u64 other = __shfl_up_sync(~0u, up_to, step);
        if (lane >= step) up_to += other;
    }
    if (lane == 31) s.warps[warp] = up_to;
    if (threadIdx.x == 0) s.digit = 0, s.units = s.histogram[0];
    __syncthreads();
    for (int w = 0; w < warp; w++) up_to += s.warps[w];
    const u64 above = up_to - pair;
    if (above < target && target <= up_to) {
        bool is_high = above + high_units >= target;
        s.digit = low + is_high;
        s.units = is_high ? high_units : pair - high_units;
        s.target = target - above - (is_high ? 0 : high_units);
    }
    __syncthreads();
}

__device__ static void clear_histogram(struct scratch &s) {
    for (int i = threadIdx.x; i < BINS; i += LANES) s.histogram[i] = 0;
    __syncthreads();
}

/* One more id in a bin; all threads of a warp call, and those that count the same bin add at once. */
__device__ static void count_id(struct scratch &s, bool is_counted, uint32_t digit) {
    unsigned same = __match_any_sync(~0u, is_counted ? digit : (uint32_t)BINS);
    if (is_counted && __ffs(same) - 1 == threadIdx.x % 32) atomicAdd(&s.histogram[digit], (u64)__popc(same));
}

/* What a selection chooses from: ids with weight > floor, weighted by 1 or by fixed-point mass. */
struct choice {
    const float *weight, *logits;
    int n;
    float floor;
    bool by_mass;
    float max_logit, temperature;
};

struct cut {
    uint32_t order;
    int id;
};

__device__ static void add_orders(struct scratch &s, const struct choice &c, uint32_t prefix, uint32_t mask, int shift,
                                  uint32_t digit_mask) {
    clear_histogram(s);
    for (int first = 0; first < c.n; first += LANES) {
        const int i = first + threadIdx.x;
        const float weight = i < c.n ? c.weight[i] : 0;
        const uint32_t order = i < c.n ? rule_order(c.logits[i]) : 0, digit = order >> shift & digit_mask;
        const bool is_chosen = i < c.n && weight > c.floor && (order & mask) == prefix;
        if (!c.by_mass)
            count_id(s, is_chosen, digit);
        else if (is_chosen)
            atomicAdd(&s.histogram[digit], (u64)rule_mass(weight));
    }
    __syncthreads();
    find_digit(s);
}

/* The `wanted`-th lowest id of those whose logits have this order: a selection over inverted ids. */
__device__ static int find_tied_id(struct scratch &s, const struct choice &c, uint32_t order, u64 wanted) {
    const uint32_t digit_mask = (1u << ID_DIGIT_BITS) - 1;
    uint32_t prefix = 0, mask = 0;
    if (threadIdx.x == 0) s.target = wanted;
    for (int shift = ID_DIGIT_BITS; shift >= 0; shift -= ID_DIGIT_BITS) {
        clear_histogram(s);
        for (int first = 0; first < c.n; first += LANES) {
            const int i = first + threadIdx.x;
            const uint32_t inverted = (1u << ID_BITS) - 1 - (uint32_t)i;
            const bool is_tied = i < c.n && c.weight[i] > c.floor && rule_order(c.logits[i]) == order;
            count_id(s, is_tied && (inverted & mask) == prefix, inverted >> shift & digit_mask);
        }
        __syncthreads();
        find_digit(s);
        prefix |= (uint32_t)s.digit << shift;
        mask |= digit_mask << shift;
        __syncthreads();
    }
    return (int)((1u << ID_BITS) - 1 - prefix);
}

/* The shortest prefix, most probable first, whose units add up to `target` (distribution.c). Equal logits have equal units. */
__device__ static struct cut find_cut(struct scratch &s, const struct choice &c, u64 target) {
    uint32_t prefix = 0, mask = 0;
    if (threadIdx.x == 0) s.target = target;
    for (int d = 0; d < 3; d++) {
        const int shift = d == 0 ? 21 : d == 1 ? 10 : 0;
        const uint32_t digit_mask = d < 2 ? 2047 : 1023;
        add_orders(s, c, prefix, mask, shift, digit_mask);
        prefix |= (uint32_t)s.digit << shift;
        mask |= digit_mask << shift;
        __syncthreads();
    }
    u64 unit = c.by_mass ? rule_mass(rule_weight(rule_logit(prefix), c.max_logit, c.temperature)) : 1;
    u64 wanted = unit > 0 ? (s.target + unit - 1) / unit : 0;
    bool is_whole = wanted * unit >= s.units;
    __syncthreads();
    return cut{prefix, is_whole ? c.n - 1 : find_tied_id(s, c, prefix, wanted)};
}

__device__ static void zero_after(const struct choice &c, float *weight, struct cut cut) {
    for (int i = threadIdx.x; i < c.n; i += LANES) {
        uint32_t own = rule_order(c.logits[i]);
        if (own < cut.order || (own == cut.order && i > cut.id)) weight[i] = 0;
    }
}

__device__ static void keep_top_k(struct scratch &s, const struct choice &c, float *weight, int k) {
    u64 count = 0;
    for (int i = threadIdx.x; i < c.n; i += LANES) count += weight[i] > 0;
    if (reduce<plus>(s, count) > (u64)k) zero_after(c, weight, find_cut(s, c, (u64)k));
}

__device__ static void keep_top_p(struct scratch &s, struct choice c, float *weight, float top_p) {
    u64 mass = 0;
    for (int i = threadIdx.x; i < c.n; i += LANES) mass += rule_mass(weight[i]);
    const u64 total = reduce<plus>(s, mass), target = rule_nucleus(total, top_p);
    c.by_mass = true;
    c.floor = (float)((total - target) / (u64)c.n) * 0x1p-43f;
    zero_after(c, weight, find_cut(s, c, target));
}

/* --- distribution and draw -------------------------------------------------------------------------------- */

/* Marks a row without a distribution. */
__device__ static void mark_bad(float *p) {
    if (threadIdx.x == 0) p[0] = CUDART_NAN_F;
}

__device__ static void make_one_hot(struct scratch &s, const float *logits, int n, float max_logit, float *p) {
    u64 best = 0;
    for (int i = threadIdx.x; i < n; i += LANES) {
        if (logits[i] == max_logit) best = larger(best, ~(u64)i);
        p[i] = 0;
    }
    int id = (int)~reduce<larger>(s, best);
    if (threadIdx.x == 0) p[id] = 1;
}

/* distribution.c, step by step; each thread writes and reads its own lane of p until the end. */
__device__ static bool make_distribution(struct scratch &s, const struct sampling &how, const float *logits, int n,
                                         float *p) {
    u64 both = 0; /* order of the maximum, above a flag for a value that is not finite */
    bool is_finite = true;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += LANES) {
        both = larger(both, rule_order(logits[i]));
        is_finite = is_finite && (fmath_bits(logits[i]) & 0x7FFFFFFFu) < 0x7F800000u;
    }
    if (!__syncthreads_and(is_finite)) return false;
    const float max_logit = rule_logit((uint32_t)reduce<larger>(s, both));
    if (how.temperature == 0) {
        make_one_hot(s, logits, n, max_logit, p);
        __syncthreads();
        return true;
    }
    struct choice c = {p, logits, n, 0, false, max_logit, how.temperature};
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += LANES) p[i] = rule_weight(logits[i], max_logit, how.temperature);
    if (how.top_k > 0 && how.top_k < n) keep_top_k(s, c, p, how.top_k);
    if (how.top_p < 1) keep_top_p(s, c, p, how.top_p);
    if (how.min_p > 0)
        for (int i = threadIdx.x; i < n; i += LANES)
            if (p[i] < how.min_p) p[i] = 0;
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += LANES) sum += p[i];
    sum = fold_lanes(s, sum);
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += LANES) p[i] /= sum;
    __syncthreads();
    return true;
}

/* The race over value(id), id < n; -1 if all are 0. */
template <typename Value>
__device__ static int race(struct scratch &s, int n, uint64_t key, int position, int purpose, Value value) {
    u64 best = 0; /* rate above the inverted id: the lowest id wins a tie */
    for (int i = 4 * threadIdx.x; i < n; i += 4 * LANES) {
        float p[4];
        bool is_possible = false;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            p[j] = i + j < n ? value(i + j) : 0;
            is_possible = is_possible || p[j] > 0;
        }
        if (!is_possible) continue;
        const struct philox_block block = philox_block(key, (uint64_t)position, ((uint64_t)purpose << 18) + i / 4);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint32_t rate = fmath_bits(p[j] / rule_race_time(block.w[j]));
            best = larger(best, (u64)rate << 32 | ~(uint32_t)(i + j));
        }
    }
    best = reduce<larger>(s, best);
    return best >> 32 == 0 ? -1 : (int)~(uint32_t)best;
}

__device__ static int id_or_zero(int id, int vocab) {
    return id >= 0 && id < vocab ? id : 0;
}

__device__ static float *draft_row(const struct sampler_buffers &b, int slot, int index) {
    return b.p_draft + ((size_t)slot * b.k_max + index) * b.vocab_draft;
}

__global__ void __launch_bounds__(LANES, 1) draw_kernel(const struct sampler_draw op) {
    __shared__ struct scratch s;
    const struct sampler_buffers &b = op.b;
    const int row = blockIdx.x, at = b.row_slot[row], position = b.slot[at].length + op.index;
    const struct slot &slot = b.slot[at];
    const bool is_live = slot.status == SLOT_LIVE;
    int drawn = -1;
    if (is_live) {
        float *p = draft_row(b, at, op.index);
        if (make_distribution(s, slot.sampling, b.draft_logits + (size_t)row * b.draft_stride, b.vocab_draft, p))
            drawn = race(s, b.vocab_draft, slot.key, position, PHILOX_DRAFT_DRAW, [&](int i) { return p[i]; });
        else
            mark_bad(p);
    }
    if (threadIdx.x != 0) return;
    const bool is_inert = !is_live || position >= b.draft_positions;
    if (is_live) b.drafted[at * b.k_max + op.index] = drawn;
    b.draft_tokens[row] = is_inert ? 0 : id_or_zero(drawn, b.vocab_draft);
    b.draft_positions_in[row] = is_inert ? -1 : position;
}

/* --- inputs ----------------------------------------------------------------------------------------------- */

__global__ void load_pending_kernel(const struct sampler_load op) {
    const struct sampler_buffers &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, i = at % 2;
    if (at >= 2 * op.batch) return;
    const struct slot &slot = b.slot[b.row_slot[at / 2]];
    const int position = slot.length - 2 + i;
    const bool is_inert = slot.status != SLOT_LIVE || position < 0 || position >= b.draft_positions;
    b.draft_tokens[at] = is_inert ? 0 : id_or_zero(slot.last[i], b.vocab_draft);
    b.draft_positions_in[at] = is_inert ? -1 : position;
}

__global__ void load_block_kernel(const struct sampler_load op) {
    const struct sampler_buffers &b = op.b;
    const int at = blockIdx.x * blockDim.x + threadIdx.x, j = at % (op.k + 1);
    if (at >= op.batch * (op.k + 1)) return;
    const int s = b.row_slot[at / (op.k + 1)];
    const struct slot &slot = b.slot[s];
    const bool is_live = slot.status == SLOT_LIVE;
    const int id = j == 0 ? slot.last[1] : b.drafted[s * b.k_max + j - 1];
    b.target_tokens[at] = is_live ? id_or_zero(id, b.vocab_target) : 0;
    b.target_positions[at] = is_live ? slot.length - 1 + j : -1;
}

/* --- accept ----------------------------------------------------------------------------------------------- */

/* Block i: row i of p_target, if the rule can come to it. */
__global__ void __launch_bounds__(LANES, 1) fill_target_kernel(const struct sampler_accept op) {
    __shared__ struct scratch s;
    const struct sampler_buffers &b = op.b;
    const int row = blockIdx.x / (op.k + 1), j = blockIdx.x % (op.k + 1);
    const struct slot &slot = b.slot[b.row_slot[row]];
    if (slot.status != SLOT_LIVE || j > rule_drafted(slot.length, op.k, b.draft_positions)) return;
    float *p = b.p_target + (size_t)blockIdx.x * b.vocab_target;
    const float *logits = b.target_logits + (size_t)blockIdx.x * b.target_stride;
    if (!make_distribution(s, slot.sampling, logits, b.vocab_target, p)) mark_bad(p);
}

/* One row's round as the rule walks through it. Every thread holds the same values; thread 0 alone writes them. */
struct walk {
    struct slot slot;
    struct round_record record; /* without its tokens, which go straight to `tokens` */
    int32_t *tokens;
    const float *p_target; /* [k + 1, vocab_target] */
    int at;
};

__device__ static bool is_end(const struct sampler_buffers &b, const struct slot &slot, int token) {
    for (int i = 0; i < b.end_count; i++)
        if (b.end_ids[i] == token) return !slot.ignore_end;
    return false;
}

/* Commits a token; true if the sequence goes on. */
__device__ static bool emit(const struct sampler_buffers &b, struct walk &w, int token) {
    if (threadIdx.x == 0) w.tokens[w.record.emitted] = token;
    w.record.emitted++;
    w.slot.last[0] = w.slot.last[1];
    w.slot.last[1] = token;
    w.slot.length++;
    if (is_end(b, w.slot, token))
        w.slot.status = SLOT_END;
    else if (w.slot.length >= w.slot.limit)
        w.slot.status = SLOT_LENGTH;
    return w.slot.status == SLOT_LIVE;
}

__device__ static float overlap(struct scratch &s, const float *p, const float *q, int n) {
    float sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += LANES) sum += p[i] < q[i] ? p[i] : q[i];
    return fold_lanes(s, sum);
}

__device__ static bool is_accepted(const struct sampler_buffers &b, const struct walk &w, int d, const float *p,
                                   const float *q, int position) {
    if (d < 0 || d >= b.vocab_target || d >= b.vocab_draft) return false;
    float u = rule_uniform(philox_word(w.slot.key, (uint64_t)position, PHILOX_ACCEPT, 0));
    return b.simulate_alpha > 0 ? u < b.simulate_alpha : rule_accepts(u, p[d], q[d]);
}

__device__ static int draw_residual(struct scratch &s, const struct sampler_buffers &b, const struct walk &w,
                                    const float *p, const float *q, int position) {
    const int n_q = b.vocab_draft;
    int token = race(s, b.vocab_target, w.slot.key, position, PHILOX_RESIDUAL, [&](int i) {
        return i >= n_q ? p[i] : p[i] > q[i] ? p[i] - q[i] : 0.0f;
    });
    if (token >= 0) return token;
    return race(s, b.vocab_target, w.slot.key, position, PHILOX_RESIDUAL, [&](int i) { return p[i]; });
}

/* p and q of drafted token j; an id outside either map has 0 and 1. */
struct token_pair {
    float target, draft;
};
__device__ static struct token_pair pair_of(const struct sampler_buffers &b, const struct walk &w, int j) {
    const int d = b.drafted[w.at * b.k_max + j];
    if (d < 0 || d >= b.vocab_target || d >= b.vocab_draft) return token_pair{0, 1};
    return token_pair{w.p_target[(size_t)j * b.vocab_target + d], draft_row(b, w.at, j)[d]};
}

/* Drafted tokens that can be emitted: up to the first end id, and to the limit. */
__device__ static int count_usable(const struct sampler_buffers &b, const struct walk &w) {
    const int room = w.slot.limit - w.slot.length;
    for (int j = 0; j < w.record.k; j++)
        if (j + 1 == room || is_end(b, w.slot, b.drafted[w.at * b.k_max + j])) return j + 1;
    return w.record.k;
}

__device__ static void note_expected(const struct sampler_buffers &b, struct walk &w) {
    const int usable = count_usable(b, w);
    float by_token = 1, by_block = 1;
    for (int j = 0; j < usable && !isnan(w.p_target[(size_t)j * b.vocab_target]); j++) {
        const struct token_pair pair = pair_of(b, w, j);
        by_token = by_token * rule_carry(1, pair.target, pair.draft);
        by_block = rule_carry(by_block, pair.target, pair.draft);
        w.record.expected_token += by_token;
        w.record.expected_block += by_block;
    }
}

/* Walks the block; false if it meets a row without a distribution. */
__device__ static bool walk_block(struct scratch &s, const struct sampler_buffers &b, struct walk &w) {
    const int k = w.record.k, n = w.slot.length, both = min(b.vocab_draft, b.vocab_target);
    for (int j = 0; j < k; j++)
        if (isnan(draft_row(b, w.at, j)[0])) return false;
    note_expected(b, w);
    for (int j = 0;; j++) {
        const float *p = w.p_target + (size_t)j * b.vocab_target;
        const int position = n + j;
        if (isnan(p[0])) return false;
        if (j == k) {
            const int purpose = k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN;
            emit(b, w, race(s, b.vocab_target, w.slot.key, position, purpose, [&](int i) { return p[i]; }));
            return true;
        }
        const float *q = draft_row(b, w.at, j);
        const int d = b.drafted[w.at * b.k_max + j];
        const float shared = overlap(s, p, q, both);
        w.record.overlap_sum += shared;
        w.record.coupled_sum += shared / (2 - shared);
        w.record.evaluated++;
        if (!is_accepted(b, w, d, p, q, position)) {
            w.record.rejected = 1;
            emit(b, w, draw_residual(s, b, w, p, q, position));
            return true;
        }
        w.record.accepted++;
        if (!emit(b, w, d)) return true;
    }
}

/* Everything of a record but its tokens. */
__device__ static void store_record(struct round_record *to, const struct round_record &from) {
    to->slot = from.slot, to->serial = from.serial, to->live = from.live, to->status = from.status, to->k = from.k;
    to->emitted = from.emitted, to->accepted = from.accepted, to->rejected = from.rejected,
    to->evaluated = from.evaluated;
    to->length = from.length, to->overlap_sum = from.overlap_sum, to->coupled_sum = from.coupled_sum;
    to->expected_token = from.expected_token, to->expected_block = from.expected_block;
}

__global__ void __launch_bounds__(LANES, 1) accept_kernel(const struct sampler_accept op) {
    __shared__ struct scratch s;
    const struct sampler_buffers &b = op.b;
    const int row = blockIdx.x, at = b.row_slot[row];
    struct slot *slot = &b.slot[at];
    struct round_record *record = &b.records[row];
    struct walk w;
    w.slot = *slot, w.at = at, w.tokens = record->tokens;
    w.p_target = b.p_target + (size_t)row * (op.k + 1) * b.vocab_target;
    w.record.slot = at, w.record.serial = w.slot.serial, w.record.status = w.slot.status, w.record.length = 0;
    w.record.live = w.slot.status == SLOT_LIVE, w.record.k = 0;
    w.record.overlap_sum = w.record.coupled_sum = w.record.expected_token = w.record.expected_block = 0;
    w.record.emitted = w.record.accepted = w.record.rejected = w.record.evaluated = 0;
    for (int i = threadIdx.x; i <= K_MAX; i += LANES) record->tokens[i] = 0;
    __syncthreads(); /* every thread has read the slot */
    if (w.record.live) {
        w.record.k = rule_drafted(w.slot.length, op.k, b.draft_positions);
        if (!walk_block(s, b, w)) {
            w.slot = *slot;
            w.slot.status = SLOT_ERROR;
            w.record.emitted = w.record.accepted = w.record.rejected = w.record.evaluated = 0;
            w.record.overlap_sum = w.record.coupled_sum = w.record.expected_token = w.record.expected_block = 0;
        }
        w.record.status = w.slot.status;
        w.record.length = w.slot.length;
        __syncthreads();
        if (threadIdx.x == 0) *slot = w.slot;
    }
    if (threadIdx.x == 0) store_record(record, w.record);
}

/* --- the table -------------------------------------------------------------------------------------------- */

enum { LOAD_THREADS = 128 };

static int load_pending(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_pending", &op->b, op->batch, 0));
    int blocks = (2 * op->batch + LOAD_THREADS - 1) / LOAD_THREADS;
    load_pending_kernel<<<blocks, LOAD_THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_pending", sizeof *op);
}

static int draw(struct stream *stream, const struct sampler_draw *op) {
    TRY(sampler_check_shape("draw", &op->b, op->batch, op->index + 1));
    draw_kernel<<<op->batch, LANES, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "draw", sizeof *op);
}

static int load_block(struct stream *stream, const struct sampler_load *op) {
    TRY(sampler_check_shape("load_block", &op->b, op->batch, op->k));
    int blocks = (op->batch * (op->k + 1) + LOAD_THREADS - 1) / LOAD_THREADS;
    load_block_kernel<<<blocks, LOAD_THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "load_block", sizeof *op);
}

static int accept(struct stream *stream, const struct sampler_accept *op) {
    TRY(sampler_check_shape("accept", &op->b, op->batch, op->k));
    if (op->b.rule != ACCEPT_TOKEN)
        return err_set(ERR_USAGE, "the rule %s runs on the host device alone (--device host)",
                       accept_rule_name(op->b.rule));
    fill_target_kernel<<<op->batch *(op->k + 1), LANES, 0, cuda_native(stream)>>>(*op);
    TRY(cuda_launched(stream, "p_target", sizeof *op));
    accept_kernel<<<op->batch, LANES, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "accept", sizeof *op);
}

extern "C" const struct sampler_ops *sampler_cuda(void) {
    static const struct sampler_ops ops = {load_pending, draw, load_block, accept};
    return &ops;
}
