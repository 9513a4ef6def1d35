/* sampler_accept on CUDA: the same bits as host.c from the same logits.
 *
 * Two launches, each row on a team of blocks (cuda_team.cuh): one makes every row of p_target that the rule can come to,
 *   its overlap with p_draft and, for ACCEPT_COUPLED, its winner; the other walks each block of K+1 rows and draws its last
 *   token. Between them ACCEPT_BLOCK adds up what the carries leave of p_target.
 * Bytes: per row of p_target 4 V of logits read, 4 V of p written, 4 V of p_draft read; per walk two rows for the race; for
 *   ACCEPT_BLOCK K - 1 rows of both once more. */
#include "sampler/cuda_accept.cuh"
#include "sampler/cuda_distribution.cuh"

/* --- p_target --------------------------------------------------------------------------------------------- */

__device__ static float lesser(float a, float b) {
    return a < b ? a : b;
}

/* One row of p_target and what is asked of it. */
struct target_row {
    const float *logits, *q; /* q [n_q] of p_draft at this position */
    float *p;                /* [n] */
    int n, n_q;              /* n_q <= n; 0: no q */
    u64 *overlap, *verdict;
    bool is_raced; /* for its winner, by the numbers of `from` */
    struct rule_stream from;
};

/* Writes p, adds its overlap with q to *overlap and joins its race in *verdict; both are 0 before the team's first wait. */
__device__ static void fill_row(struct team &t, struct scratch &s, const struct slot &slot,
                                const struct target_row &row) {
    const struct part part = part_of(t, s, row.n, row.p);
    if (t.member == 0 && threadIdx.x == 0) *row.overlap = *row.verdict = 0;
    const struct top top = find_top(t, s, part, row.logits);
    if (top.id < 0) return mark_bad(t, row.p);
    u64 mass = 0, best = 0;
    if (slot.sampling.temperature == 0) {
        store_one_hot(part, row.p, top.id);
        if (t.member == 0 && threadIdx.x == 0) {
            if (top.id < row.n_q) mass = rule_mass(lesser(1, row.q[top.id]));
            best = 1ull << 32 | ~(uint32_t)top.id;
        }
    } else {
        const float sum = make_weights(t, s, slot.sampling, part, row.n, top.logit);
#pragma unroll 4
        for (int i = threadIdx.x; i < part.count; i += THREADS) {
            const int id = part.first + i;
            const float value = part.x[i] / sum;
            row.p[id] = part.x[i] = value;
            if (id < row.n_q) mass += rule_mass(lesser(value, row.q[id]));
        }
        __syncthreads(); /* the race takes ids four by four */
        if (row.is_raced)
            best = race_ids(part.first, part.first + part.count, slot.key, row.from,
                            [&](int id) { return part.x[id - part.first]; });
    }
    mass = reduce_block<plus>(s, mass);
    if (threadIdx.x == 0 && mass > 0) atomicAdd(row.overlap, mass);
    if (!row.is_raced) return;
    best = reduce_block<larger>(s, best);
    if (threadIdx.x == 0 && best > 0) atomicMax(row.verdict, best);
}

__global__ void __launch_bounds__(THREADS, 2)
    fill_target_kernel(const struct sampler_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    const struct sampler_buffers &b = op.b;
    struct team t = team_join(b.exchange, shape);
    for (int i = t.index; i < op.batch * (op.k + 1); i += t.count) {
        const int row = i / (op.k + 1), j = i % (op.k + 1), at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        const int drafted = rule_drafted(slot.length, op.k, b.draft_positions);
        if (slot.status != SLOT_LIVE || j > drafted) continue;
        const int n_q = j < drafted ? min(b.vocab_draft, b.vocab_target) : 0;
        const struct target_row target = {.logits = b.target_logits + (size_t)i * b.target_stride,
                                          .q = n_q > 0 ? draft_row(&b, at, j) : nullptr,
                                          .p = b.p_target + (size_t)i * b.vocab_target,
                                          .n = b.vocab_target,
                                          .n_q = n_q,
                                          .overlap = reinterpret_cast<u64 *>(b.overlap + i),
                                          .verdict = reinterpret_cast<u64 *>(b.verdicts + i),
                                          .is_raced = is_coupled(&b),
                                          .from = rule_stream(b.rule, slot.length, j, PHILOX_PLAIN)};
        fill_row(t, s, slot, target);
    }
}

/* --- drafted tokens --------------------------------------------------------------------------------------- */

__device__ static const float *target_row_of(const struct sampler_accept &op, int row, int j) {
    return op.b.p_target + ((size_t)row * (op.k + 1) + j) * op.b.vocab_target;
}

/* p_target and p_draft of a drafted token; an id outside either map has 0 and 1. */
struct token_pair {
    float target, draft;
    int id;
    bool is_common; /* of both maps; no other is ever accepted */
};

__device__ static struct token_pair pair_of(const struct sampler_accept &op, int row, int at, int j) {
    const struct sampler_buffers &b = op.b;
    const int d = b.drafted[at * b.k_max + j];
    if (d < 0 || d >= b.vocab_target || d >= b.vocab_draft) return token_pair{0, 1, d, false};
    return token_pair{target_row_of(op, row, j)[d], draft_row(&b, at, j)[d], d, true};
}

/* S of every row's positions 1..k-1: what is left of p_target there by what the tokens before it carry. */
__global__ void __launch_bounds__(THREADS, 2) excess_kernel(const struct sampler_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    struct token_pair *pairs = reinterpret_cast<struct token_pair *>(s.histogram); /* no filter runs here */
    const struct sampler_buffers &b = op.b;
    struct team t = team_join(b.exchange, shape);
    for (int i = t.index; i < op.batch * (op.k - 1); i += t.count) {
        const int row = i / (op.k - 1), j = 1 + i % (op.k - 1), at = b.row_slot[row];
        const struct slot &slot = b.slot[at];
        if (slot.status != SLOT_LIVE || j >= rule_drafted(slot.length, op.k, b.draft_positions)) continue;
        if (threadIdx.x < j) pairs[threadIdx.x] = pair_of(op, row, at, threadIdx.x);
        __syncthreads();
        float carry = 1;
        for (int d = 0; d < j; d++) carry = rule_carry(carry, pairs[d].target, pairs[d].draft);
        const struct part part = part_of(t, s, b.vocab_target, nullptr);
        const float *p = target_row_of(op, row, j), *q = draft_row(&b, at, j);
        u64 mass = 0;
#pragma unroll 4
        for (int id = part.first + threadIdx.x; id < part.first + part.count; id += THREADS)
            mass += rule_mass(rule_excess(carry, p[id], id < b.vocab_draft ? q[id] : 0));
        mass = reduce_block<plus>(s, mass);
        if (threadIdx.x == 0 && mass > 0)
            atomicAdd(reinterpret_cast<u64 *>(b.verdicts + (size_t)row * (op.k + 1) + j), mass);
    }
}

/* --- the rule --------------------------------------------------------------------------------------------- */

/* What the walk needs to know of position j. */
struct step {
    u64 verdict;
    struct token_pair pair;
    float overlap, uniform;
    bool is_draft_bad, is_target_bad;
};

/* One row's round as the rule walks through it; the same in all threads of its team. */
struct walk {
    struct slot slot;
    struct round_record record; /* without its tokens, which go straight to `tokens` */
    int32_t *tokens;            /* NULL but in the one thread that writes */
    int row, at, n;             /* n: the length at the start */
    float carry;                /* of the residual */
};

/* Thread j looks at position j, j <= k. */
__device__ static void look_ahead(const struct sampler_accept &op, const struct walk &w, struct step *steps) {
    const struct sampler_buffers &b = op.b;
    const int j = threadIdx.x;
    if (j <= w.record.k) {
        const size_t i = (size_t)w.row * (op.k + 1) + j;
        struct step step = {b.verdicts[i], {0, 1, -1, false}, 0, 0, false, isnan(target_row_of(op, w.row, j)[0]) != 0};
        if (j < w.record.k) {
            const struct rule_stream from = rule_stream(b.rule, w.n, j, PHILOX_ACCEPT);
            step.pair = pair_of(op, w.row, w.at, j);
            step.overlap = rule_sum(b.overlap[i]);
            step.uniform = rule_uniform(philox_word(w.slot.key, from.subsequence, from.purpose, 0));
            step.is_draft_bad = isnan(draft_row(&b, w.at, j)[0]);
        }
        steps[j] = step;
    }
    __syncthreads();
}

/* Commits and records a token; true if the sequence goes on. */
__device__ static bool emit(const struct sampler_buffers &b, struct walk &w, int token) {
    if (w.tokens) w.tokens[w.record.emitted] = token;
    w.record.emitted++;
    return commit_token(&b, &w.slot, token);
}

/* Where a walk ends: at a row whose token is still to be drawn, at a sequence's end, or at a row without a distribution. */
enum { WALK_ENDED = -1, WALK_BAD = -2 };

/* Drafted tokens that can be emitted: up to the first end id, and to the limit. */
__device__ static int count_usable(const struct sampler_buffers &b, const struct walk &w, const struct step *steps) {
    const int room = w.slot.limit - w.n;
    for (int j = 0; j < w.record.k; j++)
        if (j + 1 == room || is_end(&b, &w.slot, steps[j].pair.id)) return j + 1;
    return w.record.k;
}

__device__ static void note_expected(struct walk &w, const struct step *steps, int usable) {
    float by_token = 1, by_block = 1;
    for (int j = 0; j < usable && !steps[j].is_target_bad; j++) {
        const struct token_pair pair = steps[j].pair;
        by_token = by_token * rule_carry(1, pair.target, pair.draft);
        by_block = rule_carry(by_block, pair.target, pair.draft);
        w.record.expected_token += by_token;
        w.record.expected_block += by_block;
    }
}

__device__ static void note_evaluated(struct walk &w, const struct step &step) {
    w.record.evaluated++;
    w.record.overlap_sum += step.overlap;
    w.record.coupled_sum += step.overlap / (2 - step.overlap);
}

__device__ static bool is_accepted(const struct sampler_buffers &b, const struct step &step) {
    if (is_coupled(&b)) return winner_of(step.verdict) == step.pair.id;
    if (b.simulate_alpha > 0) return step.pair.is_common && step.uniform < b.simulate_alpha;
    return rule_accepts(step.uniform, step.pair.target, step.pair.draft);
}

/* Commits what is accepted; the row to draw from, or how the walk ended. */
__device__ static int walk_tokens(const struct sampler_buffers &b, struct walk &w, const struct step *steps) {
    const int k = w.record.k;
    for (int j = 0;; j++) {
        if (steps[j].is_target_bad) return WALK_BAD;
        if (j == k) return j;
        note_evaluated(w, steps[j]);
        if (!is_accepted(b, steps[j])) {
            w.record.rejected = 1;
            return j;
        }
        w.record.accepted++;
        if (!emit(b, w, steps[j].pair.id)) return WALK_ENDED;
    }
}

/* How many of the usable drafted tokens block verification keeps; w.carry is what they carry. */
__device__ static int count_kept(struct walk &w, const struct step *steps, int usable) {
    int kept = 0;
    float carry = 1;
    for (int j = 0; j < usable; j++) {
        float threshold = carry = rule_carry(carry, steps[j].pair.target, steps[j].pair.draft);
        if (j + 1 < usable) threshold = rule_threshold(rule_sum(steps[j + 1].verdict), carry);
        if (steps[j].uniform < threshold) kept = j + 1, w.carry = carry;
    }
    return kept;
}

__device__ static int walk_block(const struct sampler_buffers &b, struct walk &w, const struct step *steps,
                                 int usable) {
    for (int j = 0; j < usable; j++)
        if (steps[j].is_target_bad) return WALK_BAD;
    const int kept = count_kept(w, steps, usable);
    for (int j = 0; j < kept; j++) {
        note_evaluated(w, steps[j]);
        w.record.accepted++;
        if (!emit(b, w, steps[j].pair.id)) return WALK_ENDED;
    }
    if (kept == w.record.k) {
        w.carry = 1;
        return steps[kept].is_target_bad ? WALK_BAD : kept;
    }
    note_evaluated(w, steps[kept]);
    w.record.rejected = 1;
    return kept;
}

__device__ static int walk_round(const struct sampler_buffers &b, struct walk &w, const struct step *steps) {
    const int usable = count_usable(b, w, steps);
    for (int j = 0; j < w.record.k; j++)
        if (steps[j].is_draft_bad) return WALK_BAD;
    note_expected(w, steps, usable);
    return is_by_block(&b) ? walk_block(b, w, steps, usable) : walk_tokens(b, w, steps);
}

/* Draws the token of row j, from the residual after a rejection; -1 and no more than a wait for j < 0. */
__device__ static int draw_last(struct team &t, struct scratch &s, const struct sampler_accept &op,
                                const struct walk &w, int j) {
    const int n = op.b.vocab_target, n_q = w.record.rejected ? op.b.vocab_draft : 0;
    const struct rule_stream from =
        rule_stream(op.b.rule, w.n, max(j, 0), w.record.k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN);
    const struct part part = part_of(t, s, n, nullptr);
    const int end = j >= 0 ? part.first + part.count : part.first;
    const float *p = target_row_of(op, w.row, max(j, 0)), *q = j >= 0 && n_q > 0 ? draft_row(&op.b, w.at, j) : nullptr;
    u64 best = race_ids(part.first, end, w.slot.key, from,
                        [&](int i) { return rule_excess(w.carry, p[i], i < n_q ? q[i] : 0); });
    best = reduce_team<larger>(t, s, best);
    if (j < 0 || best >> 32 > 0 || n_q == 0) return winner_of(best);
    best = race_ids(part.first, end, w.slot.key, from, [&](int i) { return p[i]; });
    return winner_of(reduce_team<larger>(t, s, best));
}

__device__ static struct walk begin_walk(const struct sampler_accept &op, const struct team &t, int row) {
    const struct sampler_buffers &b = op.b;
    struct walk w;
    w.row = row, w.at = b.row_slot[row], w.slot = b.slot[w.at], w.n = w.slot.length, w.carry = 1;
    w.tokens = t.member == 0 && threadIdx.x == 0 ? b.records[row].tokens : nullptr;
    w.record.slot = w.at, w.record.serial = w.slot.serial, w.record.status = w.slot.status, w.record.length = 0;
    w.record.live = w.slot.status == SLOT_LIVE, w.record.k = 0;
    clear_counts(&w.record);
    for (int i = 0; w.tokens && i <= K_MAX; i++) w.tokens[i] = 0;
    return w;
}

/* The round of a live row. */
__device__ static void walk_row(struct team &t, struct scratch &s, const struct sampler_accept &op, struct walk &w,
                                struct step *steps) {
    const struct slot before = w.slot;
    w.record.k = rule_drafted(w.slot.length, op.k, op.b.draft_positions);
    look_ahead(op, w, steps);
    const int j = walk_round(op.b, w, steps);
    const bool is_drawn = is_coupled(&op.b) && j >= 0;
    const int winner = is_drawn ? winner_of(steps[j].verdict) : -1;
    const int last = draw_last(t, s, op, w, is_drawn ? -1 : j); /* waits: all blocks have read the slot */
    const int token = is_drawn ? winner : last;
    if (j >= 0) emit(op.b, w, token);
    if (j == WALK_BAD) {
        w.slot = before;
        w.slot.status = SLOT_ERROR;
        clear_counts(&w.record);
    }
    w.record.status = w.slot.status;
    w.record.length = w.slot.length;
    if (w.tokens) op.b.slot[w.at] = w.slot;
}

/* Everything of a record but its tokens. */
__device__ static void store_record(struct round_record *to, const struct round_record &from) {
    to->slot = from.slot, to->serial = from.serial, to->live = from.live, to->status = from.status, to->k = from.k;
    to->emitted = from.emitted, to->accepted = from.accepted, to->rejected = from.rejected,
    to->evaluated = from.evaluated;
    to->length = from.length, to->overlap_sum = from.overlap_sum, to->coupled_sum = from.coupled_sum;
    to->expected_token = from.expected_token, to->expected_block = from.expected_block;
}

__global__ void __launch_bounds__(THREADS, 2) accept_kernel(const struct sampler_accept op, const struct shape shape) {
    __shared__ struct scratch s;
    struct step *steps = reinterpret_cast<struct step *>(s.histogram); /* no filter runs here */
    struct team t = team_join(op.b.exchange, shape);
    for (int row = t.index; row < op.batch; row += t.count) {
        struct walk w = begin_walk(op, t, row);
        if (w.record.live) walk_row(t, s, op, w, steps);
        if (w.tokens) store_record(&op.b.records[row], w.record);
    }
}

/* --- launches --------------------------------------------------------------------------------------------- */

int cuda_accept(struct stream *stream, const struct sampler_accept *op) {
    TRY(sampler_check_shape("accept", &op->b, op->batch, op->k));
    TRY(launch_rows<fill_target_kernel>(stream, "p_target", op, op->batch * (op->k + 1), op->b.vocab_target));
    if (is_by_block(&op->b) && op->k > 1)
        TRY(launch_rows<excess_kernel>(stream, "excess", op, op->batch * (op->k - 1), op->b.vocab_target));
    return launch_rows<accept_kernel>(stream, "accept", op, op->batch, op->b.vocab_target);
}
