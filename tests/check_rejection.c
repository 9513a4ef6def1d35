/* Losslessness of the rule: emitted tokens against the exact target distribution, by chi-square, through the real
 * launches round after round; and wrong rules, which the same test must refuse.
 *
 * The made-up models are Markov chains whose logits also depend on the parity of the position, so a token drawn from
 * a stale row, a wrong position or a wrong slot shows. The keys are fixed: a run always gives the same numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/sampler_support.h"
#include "tests/support.h"

#ifdef __SANITIZE_ADDRESS__
enum { EMITTED = 8000, CONTROL_EMITTED = 60000 };
#else
enum { EMITTED = 60000, CONTROL_EMITTED = 60000 };
#endif

enum { V = 10, START = 2, CLASSES = 2 * V, JOINT = V * V };

/* Both models: logits after (parity of the position, token). The draft may know fewer ids, or more. */
struct chain {
    int vocab_draft;
    float target[2][V][V], draft[2][V][V + 2];
};

static float noise(uint64_t key, int a, int b) { /* about normal */
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += philox_word(key, (uint64_t)a, 0, (uint32_t)(16 * b + i)) * 0x1p-32;
    return (float)(sum - 6);
}

static void make_chain(struct chain *c, int vocab_draft) {
    c->vocab_draft = vocab_draft;
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            for (int to = 0; to < V + 2; to++) {
                int cell = (parity * V + from) * V + to;
                float target = 1.2f * noise(1, cell, to);
                if (to < V) c->target[parity][from][to] = target;
                c->draft[parity][from][to] = target + 0.9f * noise(2, cell, to);
            }
}

static void draft_logits(void *user, int token, int position, float *logits) {
    const struct chain *c = user;
    memcpy(logits, c->draft[position & 1][token % V], sizeof *logits * (size_t)c->vocab_draft);
}

static void target_logits(void *user, int token, int position, float *logits) {
    const struct chain *c = user;
    memcpy(logits, c->target[position & 1][token], sizeof c->target[0][0]);
}

/* --- what is counted -------------------------------------------------------------------------------------- */

struct tally {
    double p[2][V][V];       /* exact p(next | parity of the last position, last token) */
    int64_t counts[2][V][V]; /* of emitted tokens */
    int64_t joint[2][JOINT]; /* the first two tokens of a request, by its pending token (0 or 1) */
    int64_t emitted, evaluated, accepted;
    double overlap_sum;
};

static void make_tally(struct tally *t, const struct chain *c, const struct sampling *s) {
    memset(t, 0, sizeof *t);
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++) reference_distribution(s, c->target[parity][from], V, t->p[parity][from]);
}

/* One request's emitted tokens after `pending` at position START - 1. */
static void tally_request(struct tally *t, int pending, const int32_t *tokens, int count) {
    int last = pending;
    for (int i = 0; i < count; i++) {
        t->counts[(START - 1 + i) & 1][last][tokens[i]]++;
        last = tokens[i];
    }
    t->emitted += count;
    if (count >= 2) t->joint[pending][tokens[0] * V + tokens[1]]++;
}

/* The chance of what was counted: of each token given the one before it, and of the first two together. */
static void tally_p(const struct tally *t, double *p_next, double *p_joint) {
    struct chi_square next = {0}, joint = {0};
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++) chi_square_add(&next, t->counts[parity][from], t->p[parity][from], V);
    for (int pending = 0; pending < 2; pending++) {
        double p[JOINT];
        for (int a = 0; a < V; a++)
            for (int b = 0; b < V; b++) p[a * V + b] = t->p[(START - 1) & 1][pending][a] * t->p[START & 1][a][b];
        chi_square_add(&joint, t->joint[pending], p, JOINT);
    }
    *p_next = chi_square_p(&next);
    *p_joint = chi_square_p(&joint);
}

/* --- the product, driven ---------------------------------------------------------------------------------- */

struct run {
    int k, batch; /* k < 0: rounds of 0, 1, ... -k in turn */
    float temperature;
    int top_k;
    float top_p, min_p;
    int vocab_draft;
    /* Spoils the buffers between the last draw and accept; NULL: no. */
    void (*tamper)(struct rig *);
};

struct request {
    int pending, room, count;
    int32_t tokens[16];
};

static void start_request(struct rig *rig, struct request *r, int slot, uint64_t serial, struct sampling sampling) {
    *r = (struct request){.pending = (int)(serial & 1), .room = 2 + (int)(serial % 11)};
    rig_start(rig, slot, START, r->pending, r->room, sampling, seed_for_record(77, serial));
}

/* Rows serve the slots in an order that moves by one each round; the last row is padding. */
static void place_rows(struct rig *rig, int batch, int round) {
    for (int row = 0; row < batch; row++) rig->b.row_slot[row] = 1 + (row + round) % batch;
    rig->b.row_slot[batch] = 0;
}

static void collect(const struct rig *rig, int row, struct request *requests, struct tally *t) {
    const struct round_record *record = &rig->b.records[row];
    struct request *r = &requests[record->slot];
    require(record->live && record->emitted >= 1, "row %d emitted nothing", row);
    memcpy(r->tokens + r->count, record->tokens, sizeof *r->tokens * (size_t)record->emitted);
    r->count += record->emitted;
    t->evaluated += record->evaluated;
    t->accepted += record->accepted;
    t->overlap_sum += (double)record->overlap_sum;
}

static void drive(const struct run *run, struct chain *chain, struct tally *t, int emitted) {
    struct sampling sampling = {run->temperature, run->top_p, run->min_p, run->top_k};
    int k_max = abs(run->k), batch = run->batch;
    struct sampler_buffers sizes = {.slots = batch + 1,
                                    .max_batch = batch + 1,
                                    .k_max = k_max,
                                    .vocab_target = V,
                                    .vocab_draft = run->vocab_draft,
                                    .draft_positions = 1 << 20};
    struct request requests[9];
    struct rig rig;
    rig_open(&rig, &sizes, NULL, 1);
    make_tally(t, chain, &sampling);
    uint64_t serial = 0;
    for (int slot = 1; slot <= batch; slot++) start_request(&rig, &requests[slot], slot, serial++, sampling);
    for (int round = 0; t->emitted < emitted; round++) {
        int k = run->k < 0 ? round % (k_max + 1) : run->k;
        place_rows(&rig, batch, round);
        rig_draft(&rig, batch + 1, k, draft_logits, chain);
        if (run->tamper) run->tamper(&rig);
        rig_score(&rig, batch + 1, k, target_logits, chain);
        rig_accept(&rig, batch + 1, k);
        for (int row = 0; row < batch; row++) {
            int slot = rig.b.row_slot[row];
            collect(&rig, row, requests, t);
            if (rig.b.slot[slot].status == SLOT_LIVE) continue;
            require(rig.b.slot[slot].status == SLOT_LENGTH && requests[slot].count == requests[slot].room,
                    "slot %d: status %d after %d tokens", slot, rig.b.slot[slot].status, requests[slot].count);
            tally_request(t, requests[slot].pending, requests[slot].tokens, requests[slot].count);
            start_request(&rig, &requests[slot], slot, serial++, sampling);
        }
    }
    rig_close(&rig);
}

static const struct run runs[] = {
    {.k = 1, .batch = 1, .temperature = 1.0f, .top_p = 1, .vocab_draft = V},
    {.k = 1, .batch = 4, .temperature = 0.3f, .top_p = 1, .vocab_draft = V},
    {.k = 2, .batch = 2, .temperature = 0.7f, .top_p = 1, .vocab_draft = V},
    {.k = 2, .batch = 8, .temperature = 1.5f, .top_p = 0.9f, .vocab_draft = V},
    {.k = 3, .batch = 1, .temperature = 1.5f, .top_p = 1, .vocab_draft = V},
    {.k = 3, .batch = 4, .temperature = 1.0f, .top_p = 1, .top_k = 4, .vocab_draft = V},
    {.k = 4, .batch = 8, .temperature = 0.7f, .top_p = 0.8f, .top_k = 6, .vocab_draft = V},
    {.k = 4, .batch = 2, .temperature = 0.3f, .top_p = 1, .vocab_draft = V},
    {.k = 5, .batch = 4, .temperature = 1.0f, .top_p = 1, .min_p = 0.1f, .vocab_draft = V},
    {.k = 5, .batch = 8, .temperature = 1.5f, .top_p = 1, .vocab_draft = V},
    {.k = 6, .batch = 1, .temperature = 0.7f, .top_p = 0.95f, .vocab_draft = V},
    {.k = 6, .batch = 2, .temperature = 1.0f, .top_p = 1, .vocab_draft = 7}, /* ids the draft does not know */
    {.k = 7, .batch = 4, .temperature = 1.5f, .top_p = 0.7f, .min_p = 0.05f, .top_k = 8, .vocab_draft = V},
    {.k = 7, .batch = 1, .temperature = 1.0f, .top_p = 1, .vocab_draft = V + 2}, /* ids only the draft knows */
    {.k = 8, .batch = 8, .temperature = 1.0f, .top_p = 1, .vocab_draft = V},
    {.k = 8, .batch = 2, .temperature = 0.3f, .top_p = 0.9f, .vocab_draft = V},
    {.k = -5, .batch = 4, .temperature = 1.0f, .top_p = 1, .vocab_draft = V}, /* K = 0..5 in turn */
};
enum { RUNS = sizeof runs / sizeof *runs };

START_TEST(emitted_tokens_follow_the_target_alone)
{
    const struct run *run = &runs[_i];
    static struct chain chain;
    static struct tally t;
    make_chain(&chain, run->vocab_draft);
    drive(run, &chain, &t, test_device_is_host() ? EMITTED : EMITTED / 4); /* copies around every launch */
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    ck_assert_msg(p_next > 1e-6, "k %d: p = %g of each token", run->k, p_next);
    ck_assert_msg(p_joint > 1e-6, "k %d: p = %g of two tokens", run->k, p_joint);
    /* The chance to accept is the overlap of p and q: the two figures estimate one number. */
    double n = (double)t.evaluated, alpha = (double)t.accepted / n, overlap = t.overlap_sum / n;
    ck_assert_msg(fabs(alpha - overlap) < 5 * sqrt(0.25 / n), "alpha %g, overlap %g", alpha, overlap);
    ck_assert(alpha > 0.3 && alpha < 0.95);
}
END_TEST

/* --- controls --------------------------------------------------------------------------------------------- */

/* Every slot's q becomes the one of its next position. */
static void shift_q(struct rig *rig) {
    size_t row = (size_t)rig->b.vocab_draft, rows = (size_t)rig->b.slots * (size_t)rig->b.k_max;
    memmove(rig->b.p_draft, rig->b.p_draft + row, sizeof(float) * row * (rows - 1));
}

/* Every slot's q becomes that of the slot before it: q by row where rows have moved. */
static void rotate_q(struct rig *rig) {
    size_t slot = (size_t)rig->b.vocab_draft * (size_t)rig->b.k_max;
    float first[V * 8];
    memcpy(first, rig->b.p_draft + slot, sizeof(float) * slot);
    memmove(rig->b.p_draft + slot, rig->b.p_draft + 2 * slot, sizeof(float) * slot * (size_t)(rig->b.slots - 2));
    memcpy(rig->b.p_draft + slot * (size_t)(rig->b.slots - 1), first, sizeof(float) * slot);
}

/* q is stored unsharpened: drawn at T, kept at T = 1. */
static void flatten_q(struct rig *rig) {
    for (int i = 0; i < rig->b.slots * rig->b.k_max; i++) {
        float *q = rig->b.p_draft + i * rig->b.vocab_draft, sum = 0;
        for (int id = 0; id < rig->b.vocab_draft; id++) sum += q[id] = powf(q[id], 0.7f);
        for (int id = 0; id < rig->b.vocab_draft && sum > 0; id++) q[id] /= sum;
    }
}

START_TEST(another_q_than_the_one_drawn_from_is_refused)
{
    void (*const tampers[])(struct rig *) = {shift_q, rotate_q, flatten_q};
    struct run run = {.k = 4, .batch = 4, .temperature = 0.7f, .top_p = 1, .vocab_draft = V, .tamper = tampers[_i]};
    static struct chain chain;
    static struct tally t;
    make_chain(&chain, V);
    drive(&run, &chain, &t, CONTROL_EMITTED);
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    ck_assert_msg(p_next < 1e-12, "p = %g", p_next);
}
END_TEST

/* A rule of the test's own, one row, by inversion. With `shared` the draft draw, the acceptance and the resample of a
 * position take one number, as an engine does that seeds a generator anew for each of them. */
static int invert(const double *p, double u) {
    double sum = 0;
    int last = 0;
    for (int i = 0; i < V; i++) {
        if (p[i] == 0) continue;
        last = i;
        if (u < (sum += p[i])) break;
    }
    return last;
}

static double uniform(uint64_t key, int position, int purpose, bool shared) {
    return philox_word(key, (uint64_t)position, shared ? 0 : purpose, 0) * 0x1p-32;
}

static int resample(const double *p, const double *q, double u) {
    double residual[V], sum = 0;
    for (int i = 0; i < V; i++) sum += residual[i] = fmax(p[i] - q[i], 0);
    for (int i = 0; i < V; i++) residual[i] /= sum;
    return invert(residual, u);
}

/* q of all classes, as tally.p is p. */
static double q_of[2][V][V];

static int own_round(const struct tally *t, uint64_t key, int n, int last, int k, bool shared, int32_t *out) {
    for (int j = 0; j <= k; j++) {
        int position = n + j;
        const double *p = t->p[(position - 1) & 1][last], *q = q_of[(position - 1) & 1][last];
        double u_residual = uniform(key, position, PHILOX_RESIDUAL, shared);
        if (j == k) {
            out[j] = invert(p, u_residual);
            return j + 1;
        }
        int d = invert(q, uniform(key, position, PHILOX_DRAFT_DRAW, shared));
        if (uniform(key, position, PHILOX_ACCEPT, shared) >= p[d] / q[d]) {
            out[j] = resample(p, q, u_residual);
            return j + 1;
        }
        last = out[j] = d;
    }
    return 0;
}

static double own_rule_p(bool shared) {
    static struct chain chain;
    static struct tally t;
    struct sampling sampling = {1, 1, 0, 0};
    make_chain(&chain, V);
    make_tally(&t, &chain, &sampling);
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            reference_distribution(&sampling, chain.draft[parity][from], V, q_of[parity][from]);
    for (uint64_t serial = 0; t.emitted < CONTROL_EMITTED; serial++) {
        int32_t tokens[32];
        int count = 0, pending = (int)(serial & 1), room = 2 + (int)(serial % 11);
        while (count < room)
            count += own_round(&t, seed_for_record(78, serial), START + count, count ? tokens[count - 1] : pending, 4,
                               shared, tokens + count);
        tally_request(&t, pending, tokens, room);
    }
    double p_next, p_joint;
    tally_p(&t, &p_next, &p_joint);
    return p_next;
}

START_TEST(one_shared_uniform_is_refused)
{
    double right = own_rule_p(false), wrong = own_rule_p(true);
    ck_assert_msg(right > 1e-6, "p = %g with a number for each purpose", right);
    ck_assert_msg(wrong < 1e-12, "p = %g with one number", wrong);
}
END_TEST

START_TEST(chi_square_tail_agrees_with_tables)
{
    ck_assert(fabs(chi_square_tail(3.841459, 1) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(18.307038, 10) - 0.05) < 1e-7);
    ck_assert(fabs(chi_square_tail(149.449253, 100) - 0.001) < 1e-8);
    ck_assert(fabs(chi_square_tail(2 * log(1e15), 2) / 1e-15 - 1) < 1e-6);
    ck_assert(chi_square_tail(0, 5) == 1);
}
END_TEST

Suite *check_rejection(void);
Suite *check_rejection(void) {
    Suite *suite = suite_create("rejection");
    TCase *c = tcase_create("rejection");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, chi_square_tail_agrees_with_tables);
    tcase_add_loop_test(c, emitted_tokens_follow_the_target_alone, 0, RUNS);
    tcase_add_loop_test(c, another_q_than_the_one_drawn_from_is_refused, 0, 3);
    tcase_add_test(c, one_shared_uniform_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
