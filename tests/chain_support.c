#include "tests/chain_support.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/support.h"

enum { V = CHAIN_VOCAB, REQUEST_TOK_TIMES_2 = 15 /* rooms of 3 to 12: 7.5 on average */ };

/* --- models --------------------------------------------------------------------------------------------------- */

static const float never = -1e4f; /* a probability of exactly 0 at any temperature of the tests */

static float noise(uint64_t key, int a, int b) { /* about normal */
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += philox_word(key, (uint64_t)a, 0, (uint32_t)(16 * b + i)) * 0x1p-32;
    return (float)(sum - 6);
}

static float draft_logit(enum chain_draft kind, float target, int cell, int to) {
    switch (kind) {
    case CHAIN_BAD:
        return 1.5f * noise(3, cell, to);
    case CHAIN_DISJOINT:
        return to % 2 == 0 ? never : target + noise(2, cell, to);
    case CHAIN_SAME:
        return target;
    case CHAIN_ONE_HOT:
        return to == cell % 5 ? 0 : never;
    case CHAIN_UNIFORM:
        return 0;
    default:
        return target + 0.9f * noise(2, cell, to);
    }
}

void chain_make(struct chain *c, enum chain_draft kind) {
    c->vocab_draft = kind == CHAIN_FEWER ? V - 3 : kind == CHAIN_MORE ? V + 2 : V;
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            for (int to = 0; to < V + 2; to++) {
                int cell = (parity * V + from) * V + to;
                float target = 1.2f * noise(1, cell, to);
                c->draft[parity][from][to] = draft_logit(kind, target, cell, to);
                if (kind == CHAIN_DISJOINT && to % 2 == 1) target = never;
                if (to < V) c->target[parity][from][to] = target;
            }
}

const char *chain_draft_name(enum chain_draft kind) {
    static const char *const names[CHAIN_DRAFTS] = {"good",    "bad",     "disjoint",  "identical",
                                                    "one-hot", "uniform", "fewer ids", "more ids"};
    return names[kind];
}

void chain_distributions(const struct chain *c, bool of_draft, const struct sampling *s, chain_table p) {
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++)
            reference_distribution(s, of_draft ? c->draft[parity][from] : c->target[parity][from], V, p[parity][from]);
}

static void draft_logits(void *user, int token, int position, float *logits) {
    const struct chain *c = user;
    memcpy(logits, c->draft[position & 1][token % V], sizeof *logits * (size_t)c->vocab_draft);
}

static void target_logits(void *user, int token, int position, float *logits) {
    const struct chain *c = user;
    memcpy(logits, c->target[position & 1][token], sizeof c->target[0][0]);
}

/* --- counting --------------------------------------------------------------------------------------------------- */

struct chain_request chain_request_at(uint64_t serial) {
    return (struct chain_request){.pending = (int)(serial & 1), .room = 3 + (int)(serial % 10)};
}

void chain_tally_init(struct chain_tally *t, const struct chain *c, const struct sampling *s) {
    memset(t, 0, sizeof *t);
    chain_distributions(c, false, s, t->p);
}

void chain_count(struct chain_tally *t, struct chain_request *r, const int32_t *tokens, int count) {
    require(r->count + count <= r->room, "%d tokens where %d were due", r->count + count, r->room);
    for (int i = 0; i < count; i++) {
        int at = r->count++, parity = (CHAIN_START - 1 + at) & 1, to = r->tokens[at] = tokens[i];
        int last = at > 0 ? r->tokens[at - 1] : r->pending;
        require(to >= 0 && to < V, "token %d", to);
        t->next[t->by_depth ? i : 0][parity][last][to]++;
        if (at > 0) t->after_two[parity][at > 1 ? r->tokens[at - 2] : r->pending][last][to]++;
    }
    t->emitted += count;
    if (r->count < r->room) return;
    int pair = r->tokens[0] * V + r->tokens[1];
    t->pairs[r->pending][pair]++;
    t->triples[r->pending][pair * V + r->tokens[2]]++;
}

/* Of pairs or triples: the product of the single chances. */
static double joint_chance(const struct chain_tally *t, const int64_t *counts, int pending, int tokens,
                           struct chi_square *chi) {
    double p[V * V * V];
    int cells = tokens == 2 ? V * V : V * V * V;
    for (int cell = 0; cell < cells; cell++) {
        int ids[3] = {cell / V, cell % V, 0}, last = pending;
        if (tokens == 3) ids[0] = cell / (V * V), ids[1] = cell / V % V, ids[2] = cell % V;
        p[cell] = 1;
        for (int i = 0; i < tokens; last = ids[i++]) p[cell] *= t->p[(CHAIN_START - 1 + i) & 1][last][ids[i]];
    }
    chi_square_add(chi, counts, p, cells);
    return chi_square_p(chi);
}

struct chain_chances chain_chances(const struct chain_tally *t) {
    struct chain_chances c = {0};
    struct chi_square next = {0}, after_two = {0}, pairs = {0}, triples = {0};
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++) {
            const double *p = t->p[parity][from];
            int64_t sum[V] = {0};
            for (int depth = 0; depth <= CHAIN_K_MAX; depth++) {
                chi_square_add(&next, t->next[depth][parity][from], p, V);
                for (int i = 0; i < V; i++) sum[i] += t->next[depth][parity][from][i];
            }
            distance_add(&c.distance, sum, p, V);
            for (int before = 0; before < V; before++)
                chi_square_add(&after_two, t->after_two[parity][before][from], p, V);
        }
    for (int pending = 0; pending < 2; pending++) {
        c.pairs = joint_chance(t, t->pairs[pending], pending, 2, &pairs);
        c.triples = joint_chance(t, t->triples[pending], pending, 3, &triples);
    }
    c.next = chi_square_p(&next), c.after_two = chi_square_p(&after_two);
    double least = c.next < c.after_two ? c.next : c.after_two;
    least = c.pairs < least ? c.pairs : least;
    c.least = c.triples < least ? c.triples : least;
    return c;
}

/* --- running ---------------------------------------------------------------------------------------------------- */

struct drive {
    const struct chain_run *run;
    struct chain_tally *tally;
    struct rig rig;
    struct chain_request requests[CHAIN_BATCH_MAX + 1]; /* by slot */
    uint64_t serial, end;
    int live;
};

static void start_request(struct drive *d, int slot) {
    if (d->serial == d->end) {
        d->rig.b.slot[slot].status = SLOT_IDLE;
        return;
    }
    struct chain_request *r = &d->requests[slot];
    *r = chain_request_at(d->serial);
    rig_start(&d->rig, slot, CHAIN_START, r->pending, r->room, d->run->sampling, seed_for_record(77, d->serial));
    d->serial++;
    d->live++;
}

/* Live slots in an order that moves by one each round; the rest is padding, at least one row. */
static int place_rows(struct drive *d, int round) {
    int rows = 0, batch = d->run->batch;
    for (int i = 0; i < batch; i++) {
        int slot = 1 + (i + round) % batch;
        if (d->rig.b.slot[slot].status == SLOT_LIVE) d->rig.b.row_slot[rows++] = slot;
    }
    for (int row = rows; row <= batch; row++) d->rig.b.row_slot[row] = 0;
    return rows;
}

static void collect(struct drive *d, int row) {
    const struct round_record *record = &d->rig.b.records[row];
    int slot = d->rig.b.row_slot[row], status = d->rig.b.slot[slot].status;
    struct chain_request *r = &d->requests[slot];
    require(record->live && record->slot == slot && record->emitted >= 1, "row %d emitted nothing", row);
    chain_count(d->tally, r, record->tokens, record->emitted);
    acceptance_add(&d->tally->stats, record);
    if (status == SLOT_LIVE) return;
    require(status == SLOT_LENGTH && r->count == r->room, "slot %d: status %d after %d tokens", slot, status, r->count);
    d->live--;
    start_request(d, slot);
}

static void run_round(struct drive *d, struct chain *chain, int round) {
    const struct chain_run *run = d->run;
    int k = run->k < 0 ? round % (1 - run->k) : run->k;
    int rows = place_rows(d, round), batch = run->batch + 1;
    if (run->before_draft) run->before_draft(&d->rig);
    rig_draft(&d->rig, batch, k, draft_logits, chain);
    if (run->after_draft) run->after_draft(&d->rig);
    rig_score(&d->rig, batch, k, target_logits, chain);
    rig_accept(&d->rig, batch, k);
    for (int row = 0; row < rows; row++) collect(d, row);
    for (int row = rows; row < batch; row++)
        require(!d->rig.b.records[row].live && d->rig.b.records[row].emitted == 0, "padding row %d emitted", row);
}

void chain_drive(const struct chain_run *run, struct chain_tally *t) {
    static struct chain chain;
    chain_make(&chain, run->draft);
    chain_tally_init(t, &chain, &run->sampling);
    t->by_depth = run->rule != ACCEPT_BLOCK;
    struct drive d = {.run = run, .tally = t, .end = (uint64_t)(run->tokens * 2 / REQUEST_TOK_TIMES_2) + 10};
    struct sampler_buffers sizes = {.slots = run->batch + 1,
                                    .max_batch = run->batch + 1,
                                    .k_max = run->k != 0 ? abs(run->k) : 1,
                                    .vocab_target = V,
                                    .vocab_draft = chain.vocab_draft,
                                    .draft_positions = run->draft_positions ? run->draft_positions : 1 << 20,
                                    .rule = run->rule};
    rig_open(&d.rig, &sizes, NULL, 1);
    d.rig.b.slot[0].last[0] = 1 << 30, d.rig.b.slot[0].last[1] = -7; /* junk: padding rows are inert */
    for (int slot = 1; slot <= run->batch; slot++) start_request(&d, slot);
    for (int round = 0; d.live > 0; round++) run_round(&d, &chain, round);
    rig_close(&d.rig);
}
