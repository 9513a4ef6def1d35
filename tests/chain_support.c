#include "tests/chain_support.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/support.h"

enum { V = CHAIN_VOCAB, START = CHAIN_START, JOINT = CHAIN_JOINT };

static float noise(uint64_t key, int a, int b) { /* about normal */
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += philox_word(key, (uint64_t)a, 0, (uint32_t)(16 * b + i)) * 0x1p-32;
    return (float)(sum - 6);
}

void make_chain(struct chain *c, int vocab_draft) {
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

void make_tally(struct tally *t, const struct chain *c, const struct sampling *s) {
    memset(t, 0, sizeof *t);
    for (int parity = 0; parity < 2; parity++)
        for (int from = 0; from < V; from++) reference_distribution(s, c->target[parity][from], V, t->p[parity][from]);
}

void tally_request(struct tally *t, int pending, const int32_t *tokens, int count) {
    int last = pending;
    for (int i = 0; i < count; i++) {
        t->counts[(START - 1 + i) & 1][last][tokens[i]]++;
        last = tokens[i];
    }
    t->emitted += count;
    if (count >= 2) t->joint[pending][tokens[0] * V + tokens[1]]++;
}

void tally_p(const struct tally *t, double *p_next, double *p_joint) {
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
    acceptance_add(&t->stats, record);
}

void drive_chain(const struct chain_run *run, struct chain *chain, struct tally *t, int64_t emitted) {
    struct sampling sampling = {run->temperature, run->top_p, run->min_p, run->top_k};
    int k_max = abs(run->k), batch = run->batch;
    struct sampler_buffers sizes = {.slots = batch + 1,
                                    .max_batch = batch + 1,
                                    .k_max = k_max,
                                    .vocab_target = V,
                                    .vocab_draft = run->vocab_draft,
                                    .draft_positions = run->draft_positions ? run->draft_positions : 1 << 20,
                                    .rule = run->rule};
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
