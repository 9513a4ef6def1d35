/* Acceptance on CUDA: the same bits as host.c from the same logits.
 *
 * Two launches, each row on a team of blocks (cuda_team.cuh): one makes every row of p_target that the rule can come to,
 *   its overlap with p_draft and, for ACCEPT_COUPLED, its winner; the other walks each block of K+1 rows and draws its last
 *   token. Between them ACCEPT_BLOCK adds up what the carries leave of p_target.
 * Bytes: per row of p_target 4 V of logits read, 4 V of p written, 4 V of p_draft read; per walk two rows for the race; for
 *   ACCEPT_BLOCK K - 1 rows of both once more.
 * Built without contraction (--fmad=false), as the sampler is. */
#include "sampler/cuda_distribution.cuh"
extern "C" {
#include "verify/internal.h"
}

/* --- p_target --------------------------------------------------------------------------------------------- */

/* Groups of four of a row of p_draft, as round_q reads it, from id at(0), at(1), ... on; 0 from `end` on, and all 0 without a row.
 * WIDE: all rows are. */
template <bool WIDE, int N, typename At>
__device__ static inline void load_q(float (&x)[N][4], const struct round_state &b, const float *q, int end, At at) {
    const int q_end = !q ? 0 : b.draft_is_cut ? end : min(end, b.vocab_draft);
#pragma unroll
    for (int g = 0; g < N; g++)
        for (int j = 0; j < 4; j++) x[g][j] = 0;
    if (b.draft_is_cut) {
#pragma unroll
        for (int g = 0; g < N; g++)
            for (int j = 0; j < 4; j++) {
                const int index = at(g) + j < q_end ? b.draft_index[at(g) + j] : -1;
                if (index >= 0) x[g][j] = q[index];
            }
    } else {
#pragma unroll
        for (int g = 0; g < N; g++)
            if (!WIDE || at(g) < q_end) load_four<WIDE>(x[g], q, at(g), q_end);
    }
}

__device__ static inline bool is_q_wide(const struct round_state &b, const float *q) {
    return b.draft_is_cut || is_wide(q, b.vocab_draft);
}

/* One row of p_target and what is asked of it. */
struct target_row {
    const struct round_state *b;
    const float *logits, *q; /* q: of p_draft at this position, as round_q reads it; NULL: none */
    float *p;                /* [n] */
    int n;
    u64 *overlap, *verdict;
    bool is_raced; /* for its winner, by the numbers of `from` */
    struct rule_stream from;
};

/* Writes the part's p; its overlap with q and, if asked for, its race. */
template <bool FAST>
__device__ static u64 store_p(const struct target_row &row, const struct part &part, const struct scratch &s, float sum,
                              struct race &race) {
    constexpr int groups = FAST ? GROUPS : 1;
    struct divisor by = divisor_of(sum);
    const int end = part.first + part.count;
    u64 overlap = 0;
#pragma unroll 1
    for (int base = 4 * threadIdx.x; base < part.count; base += groups * STEP) {
        struct rule_masses both = {0, 0, 0};
        float q[groups][4];
        load_q<FAST>(q, *row.b, row.q, end,
                     [&](int g) { return part.first + group_in<FAST>(base + g * STEP, part.count); });
#pragma unroll
        for (int g = 0; g < groups; g++) {
            const int i = base + g * STEP;
            if (i < part.count) {
                float p[4];
                load_p<FAST>(p, part, s, i, by);
                store_four<FAST>(row.p, part.first + i, end, p);
#pragma unroll
                for (int j = 0; j < 4; j++) rule_masses_add(&both, fminf(p[j], q[g][j]));
            }
        }
        overlap += rule_masses_total(&both);
    }
    store_tiny(part, row.p, by);
    if (row.is_raced)
        race.best = race_ids(race, part.first, end, nullptr, [&](float(&x)[4], int i) {
            if (FAST)
                load_p<FAST>(x, part, s, i - part.first, by);
            else
                load_four<false>(x, row.p, i, end); /* where its weights may have been */
        });
    return overlap;
}

/* Writes p, adds its overlap with q to *overlap and joins its race in *verdict; both are 0 before the team's first wait. */
__device__ static void fill_row(struct team &t, struct scratch &s, const struct slot &slot,
                                const struct target_row &row) {
    struct part part = part_of_rows(t, s, row.n, row.logits, row.p, slot.sampling.temperature);
    part.is_fast = part.is_fast && (!row.q || is_q_wide(*row.b, row.q));
    const bool is_first = t.member == 0 && threadIdx.x == 0;
    if (is_first) *row.overlap = *row.verdict = 0;
    u64 mass = 0;
    struct race race = {slot.key, row.from, RACE_FLOOR, 0};
    if (slot.sampling.temperature == 0) {
        const struct top top = find_top<true>(t, s, part, row.logits);
        if (top.id < 0) return mark_bad(t, row.p);
        store_one_hot(part, row.p, top.id);
        if (is_first) {
            if (row.q) mass = rule_mass(fminf(1, round_q(row.b, row.q, top.id)));
            race.best = (u64)fmath_bits(1) << 32 | ~(uint32_t)top.id;
        }
    } else {
        const struct top top = find_top<false>(t, s, part, row.logits);
        if (top.id < 0) return mark_bad(t, row.p);
        const float sum = make_weights(t, s, slot.sampling, part, row.n, top.logit);
        mass = part.is_fast ? store_p<true>(row, part, s, sum, race) : store_p<false>(row, part, s, sum, race);
    }
    mass = reduce_block<plus>(s, mass);
    if (threadIdx.x == 0 && mass > 0) atomicAdd(row.overlap, mass);
    if (!row.is_raced) return;
    const u64 best = reduce_block<larger>(s, race.best);
    if (threadIdx.x == 0 && best > 0) atomicMax(row.verdict, best);
}

__global__ void __launch_bounds__(THREADS, BLOCKS)
    fill_target_kernel(const struct verify_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    const struct round_state &b = op.b;
    struct team t = team_join(op.sampler.exchange, shape);
    for (int i = t.index; i < op.batch * (op.k + 1); i += t.count) {
        const int row = i / (op.k + 1), j = i % (op.k + 1), at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        const int drafted = round_row_k(&b, at, op.k);
        if (slot.status != SLOT_LIVE || j > drafted) continue;
        const struct target_row target = {.b = &b,
                                          .logits = b.target_logits + (size_t)i * b.target_stride,
                                          .q = j < drafted ? round_p_draft(&b, at, j) : nullptr,
                                          .p = round_p_target(&b, row, op.k, j),
                                          .n = b.vocab_target,
                                          .overlap = reinterpret_cast<u64 *>(op.verify.overlap + i),
                                          .verdict = reinterpret_cast<u64 *>(op.verify.verdicts + i),
                                          .is_raced = is_coupled(&b),
                                          .from = rule_stream(b.rule, slot.length, j, PHILOX_PLAIN)};
        fill_row(t, s, slot, target);
    }
}

/* What a carry leaves of a row of p_target, four by four. */
struct rest {
    const struct round_state *b;
    const float *p, *q; /* q NULL: none */
    float carry;
    int end;
    bool is_wide;
};
__device__ static struct rest rest_of(const struct round_state *b, const float *p, const float *q, float carry,
                                      int end) {
    return rest{b, p, q, carry, end, is_wide(p, b->vocab_target) && (!q || is_q_wide(*b, q))};
}

template <bool WIDE> __device__ static inline void load_rest(float (&x)[4], const struct rest &r, int id) {
    float p[4], q[1][4];
    load_four<WIDE>(p, r.p, id, r.end);
    load_q<WIDE>(q, *r.b, r.q, r.end, [&](int) { return id; });
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = rule_excess(r.carry, p[j], q[0][j]);
}

__device__ static u64 race_rest(const struct rest &rest, const struct part &part, const struct race &race) {
    if (rest.is_wide)
        return race_ids(race, part.first, rest.end, nullptr, [&](float(&x)[4], int i) { load_rest<true>(x, rest, i); });
    return race_ids(race, part.first, rest.end, nullptr, [&](float(&x)[4], int i) { load_rest<false>(x, rest, i); });
}

template <bool WIDE> __device__ static u64 sum_rest(const struct rest &rest, const struct part &part) {
    u64 mass = 0;
#pragma unroll 2
    for (int id = part.first + 4 * threadIdx.x; id < rest.end; id += STEP) {
        struct rule_masses sum = {0, 0, 0};
        float x[4];
        load_rest<WIDE>(x, rest, id);
#pragma unroll
        for (int j = 0; j < 4; j++) rule_masses_add(&sum, x[j]);
        mass += rule_masses_total(&sum);
    }
    return mass;
}

/* --- what the tokens before a position leave of it ---------------------------------------------------------- */

/* S of every row's positions 1..k-1: what is left of p_target there by what the tokens before it carry. */
__global__ void __launch_bounds__(THREADS, BLOCKS)
    excess_kernel(const struct verify_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    struct token_pair *pairs = reinterpret_cast<struct token_pair *>(s.histogram); /* no filter runs here */
    const struct round_state &b = op.b;
    struct team t = team_join(op.sampler.exchange, shape);
    for (int i = t.index; i < op.batch * (op.k - 1); i += t.count) {
        const int row = i / (op.k - 1), j = 1 + i % (op.k - 1), at = b.row_slot[row], d = threadIdx.x;
        const struct slot &slot = b.slot[at];
        if (slot.status != SLOT_LIVE || j >= round_row_k(&b, at, op.k)) continue;
        if (d < j) pairs[d] = pair_at(&b, round_p_target(&b, row, op.k, d), at, d);
        __syncthreads();
        float carry = 1;
        for (int before = 0; before < j; before++) carry = rule_carry(carry, pairs[before].target, pairs[before].draft);
        const struct part part = part_of(t, s, b.vocab_target, nullptr);
        const struct rest rest =
            rest_of(&b, round_p_target(&b, row, op.k, j), round_p_draft(&b, at, j), carry, part.first + part.count);
        u64 mass = rest.is_wide ? sum_rest<true>(rest, part) : sum_rest<false>(rest, part);
        mass = reduce_block<plus>(s, mass);
        if (threadIdx.x == 0 && mass > 0)
            atomicAdd(reinterpret_cast<u64 *>(op.verify.verdicts + (size_t)row * (op.k + 1) + j), mass);
    }
}

/* --- the rule --------------------------------------------------------------------------------------------- */

/* What the walk may ask about position j. */
struct step {
    u64 verdict;
    struct token_pair pair;
    float overlap, uniform;
    bool is_draft_bad, is_target_bad;
};
struct view {
    const struct step *steps; /* [k + 1] shared */
};

#define WALK __device__ static

WALK struct token_pair look_pair(struct view *at, int j) {
    return at->steps[j].pair;
}
WALK float look_uniform(struct view *at, int j) {
    return at->steps[j].uniform;
}
WALK float look_overlap(struct view *at, int j) {
    return at->steps[j].overlap;
}
WALK float look_excess(struct view *at, int j, float) { /* excess_kernel had the same carry */
    return rule_sum(at->steps[j].verdict);
}
WALK int look_winner(struct view *at, int j) {
    return winner_of(at->steps[j].verdict);
}
WALK bool look_draft_is_bad(struct view *at, int j) {
    return at->steps[j].is_draft_bad;
}
WALK bool look_target_is_bad(struct view *at, int j) {
    return at->steps[j].is_target_bad;
}

#include "verify/walk.h"

/* Thread j looks at position j, j <= k. */
__device__ static void look_ahead(const struct verify_accept &op, const struct walk &w, int row, struct step *steps) {
    const struct round_state &b = op.b;
    const int j = threadIdx.x, at = w.record.slot;
    if (j <= w.record.k) {
        const size_t i = (size_t)row * (op.k + 1) + j;
        const float *p = round_p_target(&b, row, op.k, j);
        struct step step = {op.verify.verdicts[i], {0, 1, -1, false}, 0, 0, false, isnan(p[0]) != 0};
        if (j < w.record.k) {
            step.pair = pair_at(&b, p, at, j);
            step.overlap = rule_sum(op.verify.overlap[i]);
            step.uniform = uniform_at(&b, w.slot.key, w.slot.length, j);
            step.is_draft_bad = isnan(round_p_draft(&b, at, j)[0]);
        }
        steps[j] = step;
    }
    __syncthreads();
}

/* The race of what is left of position j's row, or of its p where nothing is; all of the team gets its best. `about`: a guess at
 * the sum of what is left, 0 for the race over all ids. */
__device__ static u64 race_row(struct team &t, struct scratch &s, const struct rest &whole, const struct part &part,
                               struct race race, float about) {
    race.floor = RACE_FLOOR * about;
    u64 best = reduce_team<larger>(t, s, race_rest(whole, part, race));
    if (is_settled(best, race.floor)) return best;
    race.floor = 0;
    return reduce_team<larger>(t, s, race_rest(whole, part, race));
}

/* Draws the token of position j, from the residual after a rejection; -1 and no more than a wait for j < 0. */
__device__ static int draw_last(struct team &t, struct scratch &s, const struct verify_accept &op, const struct walk &w,
                                int row, int j, const struct step *steps) {
    if (j < 0) return winner_of(reduce_team<larger>(t, s, 0));
    const struct part part = part_of(t, s, op.b.vocab_target, nullptr);
    const float *p = round_p_target(&op.b, row, op.k, j);
    const int end = part.first + part.count;
    const struct race race = {
        w.before.key, rule_stream(op.b.rule, w.before.length, j, w.record.k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN), 0,
        0};
    if (w.record.rejected) {
        const struct rest left = rest_of(&op.b, p, round_p_draft(&op.b, w.record.slot, j), w.carry, end);
        const u64 best = race_row(t, s, left, part, race, fmaxf(w.carry - steps[j].overlap, 0));
        if (best >> 32 > 0) return winner_of(best);
    }
    return winner_of(race_row(t, s, rest_of(&op.b, p, nullptr, 1, end), part, race, 1));
}

/* Runs races again whose winner is not known. */
__device__ static void settle_winners(struct team &t, struct scratch &s, const struct verify_accept &op,
                                      const struct walk &w, int row, struct step *steps) {
    const struct part part = part_of(t, s, op.b.vocab_target, nullptr);
    for (int j = 0; j <= w.record.k; j++) {
        if (steps[j].is_target_bad || is_settled(steps[j].verdict, RACE_FLOOR)) continue;
        const struct rest whole =
            rest_of(&op.b, round_p_target(&op.b, row, op.k, j), nullptr, 1, part.first + part.count);
        const u64 best = race_row(t, s, whole, part,
                                  {w.before.key, rule_stream(op.b.rule, w.before.length, j, PHILOX_PLAIN), 0, 0}, 0);
        if (threadIdx.x == 0) steps[j].verdict = best;
        __syncthreads();
    }
}

/* The round of a live row, the same in all threads of its team. */
__device__ static void walk_row(struct team &t, struct scratch &s, const struct verify_accept &op, struct walk &w,
                                int row, struct step *steps) {
    struct view view = {steps};
    look_ahead(op, w, row, steps);
    if (is_coupled(&op.b)) settle_winners(t, s, op, w, row, steps);
    const int j = walk_round(&op.b, &w, &view);
    const bool is_drawn = is_coupled(&op.b) && j >= 0;
    const int winner = is_drawn ? look_winner(&view, j) : -1;
    const int last = draw_last(t, s, op, w, row, is_drawn ? -1 : j, steps); /* waits: all blocks have read the slot */
    walk_end(&op.b, &w, j, is_drawn ? winner : last);
    if (w.tokens) op.b.slot[w.record.slot] = w.slot;
}

__global__ void __launch_bounds__(THREADS, BLOCKS)
    accept_kernel(const struct verify_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    struct step *steps = reinterpret_cast<struct step *>(s.histogram); /* no filter runs here */
    const struct round_state &b = op.b;
    struct team t = team_join(op.sampler.exchange, shape);
    for (int row = t.index; row < op.batch; row += t.count) {
        struct walk w;
        const bool is_writer = t.member == 0 && threadIdx.x == 0;
        walk_begin(&w, &b, b.row_slot[row], op.k, is_writer ? b.records[row].tokens : nullptr);
        if (w.record.live) walk_row(t, s, op, w, row, steps);
        if (is_writer) store_record(&b.records[row], &w.record);
    }
}

/* --- log probabilities ------------------------------------------------------------------------------------- */

/* All threads' values joined by `join`, in all threads; in an order that the launch alone decides. */
template <typename T, typename F> __device__ static T join_block(T *warps, T x, F join) {
    for (int step = 16; step > 0; step /= 2) x = join(x, __shfl_xor_sync(~0u, x, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[0];
    for (int i = 1; i < WARPS; i++) x = join(x, warps[i]);
    return x;
}

/* A block for each position of each row. Bytes: 8 V of logits read for an emitted token. */
__global__ void __launch_bounds__(THREADS) logprobs_kernel(const struct verify_accept op) {
    __shared__ double warps[WARPS];
    const int at = blockIdx.x, row = at / (op.k + 1), j = at % (op.k + 1), n = op.b.vocab_target;
    const int id = emitted_at(&op, row, j);
    if (id < 0) return;
    const float *logits = op.b.target_logits + (size_t)at * op.b.target_stride;
    float most = logits[0];
    for (int i = threadIdx.x; i < n; i += THREADS) most = fmaxf(most, logits[i]);
    most = (float)join_block(warps, (double)most, [](double a, double b) { return a > b ? a : b; });
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += (double)fmath_exp(logits[i] - most);
    sum = join_block(warps, sum, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) op.b.records[row].logprobs[j] = (float)((double)logits[id] - (double)most - log(sum));
}

/* --- launches --------------------------------------------------------------------------------------------- */

int verify_accept_cuda(struct stream *stream, const struct verify_accept *op) {
    TRY(launch_rows<fill_target_kernel>(stream, "p_target", op, op->batch * (op->k + 1), op->b.vocab_target, true));
    if (is_by_block(&op->b) && op->k > 1)
        TRY(launch_rows<excess_kernel>(stream, "excess", op, op->batch * (op->k - 1), op->b.vocab_target, false));
    return launch_rows<accept_kernel>(stream, "accept", op, op->batch, op->b.vocab_target, false);
}

int verify_logprobs_cuda(struct stream *stream, const struct verify_accept *op) {
    logprobs_kernel<<<op->batch *(op->k + 1), THREADS, 0, cuda_native(stream)>>>(*op);
    return cuda_launched(stream, "logprobs", sizeof *op);
}
