/* sampler_accept on CUDA: the same bits as host.c from the same logits.
 *
 * Two launches, each row on a team of blocks (cuda_team.cuh): one makes every row of p_target that the rule can come to and
 *   its overlap with p_draft; the other walks each block of K+1 rows and draws its last token.
 * Bytes: per row of p_target 4 V of logits read, 4 V of p written, 4 V of p_draft read; per walk two rows for the race. */
#include "sampler/cuda_distribution.cuh"
#include "sampler/cuda_rows.cuh"

/* --- p_target --------------------------------------------------------------------------------------------- */

__device__ static float lesser(float a, float b) {
    return a < b ? a : b;
}

/* Writes p, and adds its overlap with q [n_q] (n_q <= n; 0: none) to *overlap, which is 0 before the team's first wait. */
__device__ static void fill_row(struct team &t, struct scratch &s, const struct sampling &how, const float *logits,
                                int n, float *p, const float *q, int n_q, u64 *overlap) {
    const struct part part = part_of(t, s, n, p);
    if (t.member == 0 && threadIdx.x == 0) *overlap = 0;
    const struct top top = find_top(t, s, part, logits);
    if (top.id < 0) return mark_bad(t, p);
    u64 mass = 0;
    if (how.temperature == 0) {
        store_one_hot(part, p, top.id);
        if (t.member == 0 && threadIdx.x == 0 && top.id < n_q) mass = rule_mass(lesser(1, q[top.id]));
    } else {
        const float sum = make_weights(t, s, how, part, n, top.logit);
#pragma unroll 4
        for (int i = threadIdx.x; i < part.count; i += THREADS) {
            const int id = part.first + i;
            const float value = part.x[i] / sum;
            p[id] = value;
            if (id < n_q) mass += rule_mass(lesser(value, q[id]));
        }
    }
    mass = reduce_block<plus>(s, mass);
    if (threadIdx.x == 0 && mass > 0) atomicAdd(overlap, mass);
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
        fill_row(t, s, slot.sampling, b.target_logits + (size_t)i * b.target_stride, b.vocab_target,
                 b.p_target + (size_t)i * b.vocab_target, n_q > 0 ? draft_row(b, at, j) : nullptr, n_q,
                 reinterpret_cast<u64 *>(b.overlap + i));
    }
}

/* --- the rule --------------------------------------------------------------------------------------------- */

/* What the walk needs to know of position j: p and q of the drafted id, 0 and 1 outside either map. */
struct step {
    float overlap, target, draft;
    int drafted;
    bool is_draft_bad, is_target_bad, is_accepted;
};

/* One row's round as the rule walks through it; the same in all threads of its team. */
struct walk {
    struct slot slot;
    struct round_record record; /* without its tokens, which go straight to `tokens` */
    int32_t *tokens;            /* NULL but in the one thread that writes */
    int row, at, n;             /* n: the length when the round began */
};

__device__ static const float *target_row(const struct sampler_accept &op, const struct walk &w, int j) {
    return op.b.p_target + ((size_t)w.row * (op.k + 1) + j) * op.b.vocab_target;
}

__device__ static struct step look_at(const struct sampler_accept &op, const struct walk &w, int j) {
    const struct sampler_buffers &b = op.b;
    const float *p = target_row(op, w, j);
    struct step step = {0, 0, 1, -1, false, isnan(p[0]) != 0, false};
    if (j == w.record.k) return step;
    const float *q = draft_row(b, w.at, j);
    const int d = step.drafted = b.drafted[w.at * b.k_max + j];
    const bool is_common = d >= 0 && d < b.vocab_target && d < b.vocab_draft;
    if (is_common) step.target = p[d], step.draft = q[d];
    step.overlap = rule_sum(b.overlap[(size_t)w.row * (op.k + 1) + j]);
    step.is_draft_bad = isnan(q[0]);
    const struct rule_stream from = rule_stream(b.rule, w.n, j, PHILOX_ACCEPT);
    const float u = rule_uniform(philox_word(w.slot.key, from.subsequence, from.purpose, 0));
    step.is_accepted =
        b.simulate_alpha > 0 ? is_common && u < b.simulate_alpha : rule_accepts(u, step.target, step.draft);
    return step;
}

__device__ static bool is_end(const struct sampler_buffers &b, const struct slot &slot, int token) {
    for (int i = 0; i < b.end_count; i++)
        if (b.end_ids[i] == token) return !slot.ignore_end;
    return false;
}

/* Commits a token; true if the sequence goes on. */
__device__ static bool emit(const struct sampler_buffers &b, struct walk &w, int token) {
    if (w.tokens) w.tokens[w.record.emitted] = token;
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

/* Drafted tokens that can be emitted: up to the first end id, and to the limit. */
__device__ static int count_usable(const struct sampler_buffers &b, const struct walk &w, const struct step *steps) {
    const int room = w.slot.limit - w.n;
    for (int j = 0; j < w.record.k; j++)
        if (j + 1 == room || is_end(b, w.slot, steps[j].drafted)) return j + 1;
    return w.record.k;
}

__device__ static void note_expected(const struct sampler_buffers &b, struct walk &w, const struct step *steps) {
    const int usable = count_usable(b, w, steps);
    float by_token = 1, by_block = 1;
    for (int j = 0; j < usable && !steps[j].is_target_bad; j++) {
        by_token = by_token * rule_carry(1, steps[j].target, steps[j].draft);
        by_block = rule_carry(by_block, steps[j].target, steps[j].draft);
        w.record.expected_token += by_token;
        w.record.expected_block += by_block;
    }
}

/* Where a walk ends: at a row whose token is still to be drawn, at a sequence's end, or at a row without a distribution. */
enum { WALK_ENDED = -1, WALK_BAD = -2 };

/* Commits what is accepted; the row to draw from, or how the walk ended. */
__device__ static int walk_block(const struct sampler_buffers &b, struct walk &w, const struct step *steps) {
    const int k = w.record.k;
    for (int j = 0; j < k; j++)
        if (steps[j].is_draft_bad) return WALK_BAD;
    note_expected(b, w, steps);
    for (int j = 0;; j++) {
        if (steps[j].is_target_bad) return WALK_BAD;
        if (j == k) return j;
        w.record.overlap_sum += steps[j].overlap;
        w.record.coupled_sum += steps[j].overlap / (2 - steps[j].overlap);
        w.record.evaluated++;
        if (!steps[j].is_accepted) {
            w.record.rejected = 1;
            return j;
        }
        w.record.accepted++;
        if (!emit(b, w, steps[j].drafted)) return WALK_ENDED;
    }
}

/* Draws the token of row j, from the residual after a rejection; -1 and no more than a wait for j < 0. */
__device__ static int draw_last(struct team &t, struct scratch &s, const struct sampler_accept &op,
                                const struct walk &w, int j) {
    const int n = op.b.vocab_target, n_q = w.record.rejected ? op.b.vocab_draft : 0;
    const struct rule_stream from =
        rule_stream(op.b.rule, w.n, max(j, 0), w.record.k > 0 ? PHILOX_RESIDUAL : PHILOX_PLAIN);
    const struct part part = part_of(t, s, n, nullptr);
    const int end = j >= 0 ? part.first + part.count : part.first;
    const float *p = target_row(op, w, max(j, 0)), *q = n_q > 0 ? draft_row(op.b, w.at, j) : nullptr;
    u64 best =
        race_ids(part.first, end, w.slot.key, from, [&](int i) { return i < n_q ? rule_excess(1, p[i], q[i]) : p[i]; });
    best = reduce_team<larger>(t, s, best);
    if (j < 0 || best >> 32 > 0 || n_q == 0) return winner_of(best);
    best = race_ids(part.first, end, w.slot.key, from, [&](int i) { return p[i]; });
    return winner_of(reduce_team<larger>(t, s, best));
}

__device__ static void clear_counts(struct round_record &r) {
    r.emitted = r.accepted = r.rejected = r.evaluated = 0;
    r.overlap_sum = r.coupled_sum = r.expected_token = r.expected_block = 0;
}

__device__ static struct walk begin_walk(const struct sampler_accept &op, const struct team &t, int row) {
    const struct sampler_buffers &b = op.b;
    struct walk w;
    w.row = row, w.at = b.row_slot[row], w.slot = b.slot[w.at], w.n = w.slot.length;
    w.tokens = t.member == 0 && threadIdx.x == 0 ? b.records[row].tokens : nullptr;
    w.record.slot = w.at, w.record.serial = w.slot.serial, w.record.status = w.slot.status, w.record.length = 0;
    w.record.live = w.slot.status == SLOT_LIVE, w.record.k = 0;
    clear_counts(w.record);
    for (int i = 0; w.tokens && i <= K_MAX; i++) w.tokens[i] = 0;
    return w;
}

/* The round of a live row. */
__device__ static void walk_row(struct team &t, struct scratch &s, const struct sampler_accept &op, struct walk &w,
                                struct step *steps) {
    const struct slot before = w.slot;
    w.record.k = rule_drafted(w.slot.length, op.k, op.b.draft_positions);
    if (threadIdx.x <= w.record.k) steps[threadIdx.x] = look_at(op, w, threadIdx.x); /* k < THREADS */
    __syncthreads();
    const int j = walk_block(op.b, w, steps);
    const int token = draw_last(t, s, op, w, j); /* waits: all blocks have read the slot */
    if (j >= 0) emit(op.b, w, token);
    if (j == WALK_BAD) {
        w.slot = before;
        w.slot.status = SLOT_ERROR;
        clear_counts(w.record);
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
    if (op->b.rule != ACCEPT_TOKEN)
        return err_set(ERR_USAGE, "the rule %s runs on the host device alone (--device host)",
                       accept_rule_name(op->b.rule));
    TRY(launch_rows<fill_target_kernel>(stream, "p_target", op, op->batch * (op->k + 1), op->b.vocab_target));
    return launch_rows<accept_kernel>(stream, "accept", op, op->batch, op->b.vocab_target);
}
