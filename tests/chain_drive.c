/* Rounds of the made-up models. The device deals requests, drafts, scores and accepts without the host; the records of some
 * rounds at a time come back, and a mirror of what was dealt says whose they must be. */
#include <stdlib.h>

#include "tests/chain_support.h"
#include "tests/support.h"

enum {
    V = CHAIN_VOCAB,
    REQUEST_TOK_TIMES_2 = 15, /* rooms of 3 to 12: 7.5 on average */
    LAP = 32                  /* rounds that are read at a time, while the device runs the next ones */
};

struct seat { /* who sits in a slot, by the records that were read */
    struct chain_request request;
    int serial;
    bool is_live;
};

struct drive {
    const struct chain_run *run;
    struct chain_tally *tally;
    struct rig rig;
    const struct chain_ops *ops;
    struct pool *pool; /* what the device needs beside the sampler's buffers */
    struct chain *chain;
    struct slot *deck;
    int32_t *next;
    struct round_record *ring; /* [2 laps, LAP rounds, batch + 1], pinned */
    struct event *laps[2];
    struct seat seats[CHAIN_BATCH_MAX + 1]; /* by slot */
    int serial, end, live;                  /* requests that were dealt, all of them, those in seats */
};

/* --- rounds on the device ----------------------------------------------------------------------------------------- */

static void gather_draft(struct drive *d, int step) {
    const struct sampler_buffers *b = &d->rig.there;
    int first = step == 0; /* two inputs a row, of which the second is the last token */
    require_ok(d->ops->gather(d->rig.stream, &(struct chain_gather){.table = &d->chain->draft[0][0][0],
                                                                    .ids = CHAIN_DRAFT_VOCAB,
                                                                    .width = CHAIN_DRAFT_VOCAB,
                                                                    .tokens = b->draft_tokens + first,
                                                                    .positions = b->draft_positions_in + first,
                                                                    .step = 1 + first,
                                                                    .count = d->run->batch + 1,
                                                                    .logits = b->draft_logits,
                                                                    .stride = b->draft_stride,
                                                                    .vocab = b->vocab_draft}));
}

static void gather_target(struct drive *d, int k) {
    const struct sampler_buffers *b = &d->rig.there;
    require_ok(d->ops->gather(d->rig.stream, &(struct chain_gather){.table = &d->chain->target[0][0][0],
                                                                    .ids = V,
                                                                    .width = V,
                                                                    .tokens = b->target_tokens,
                                                                    .positions = b->target_positions,
                                                                    .step = 1,
                                                                    .count = (d->run->batch + 1) * (k + 1),
                                                                    .logits = b->target_logits,
                                                                    .stride = b->target_stride,
                                                                    .vocab = V}));
}

static void spoil(struct drive *d, bool is_drafted) {
    if (d->run->fault == CHAIN_NO_FAULT) return;
    require_ok(d->ops->spoil(d->rig.stream, &(struct chain_spoil){d->rig.there, d->run->fault, is_drafted}));
}

static void deal(struct drive *d, int round) {
    require_ok(d->ops->deal(d->rig.stream, &(struct chain_deal){.slots = d->rig.there.slot,
                                                                .row_slot = d->rig.there.row_slot,
                                                                .deck = d->deck,
                                                                .next = d->next,
                                                                .end = d->end,
                                                                .batch = d->run->batch,
                                                                .round = round}));
}

static struct round_record *records_of(const struct drive *d, int round) {
    return d->ring + (size_t)(round % (2 * LAP)) * (size_t)(d->run->batch + 1);
}

static void submit_round(struct drive *d, int round) {
    const struct sampler_ops *sampler = d->rig.ops;
    struct stream *stream = d->rig.stream;
    struct sampler_buffers b = d->rig.there;
    int batch = d->run->batch + 1, k = d->run->k < 0 ? round % (1 - d->run->k) : d->run->k;
    deal(d, round);
    spoil(d, false);
    require_ok(sampler->load_pending(stream, &(struct sampler_load){b, batch, k}));
    for (int i = 0; i < k; i++) {
        gather_draft(d, i);
        require_ok(sampler->draw(stream, &(struct sampler_draw){b, batch, i}));
    }
    spoil(d, true);
    require_ok(sampler->load_block(stream, &(struct sampler_load){b, batch, k}));
    gather_target(d, k);
    require_ok(sampler->accept(stream, &(struct sampler_accept){b, batch, k}));
    require_ok(stream_copy(stream, records_of(d, round), b.records, sizeof *b.records * (size_t)batch));
}

/* --- what came back ------------------------------------------------------------------------------------------------ */

static void seat_next(struct drive *d, int slot) {
    struct seat *seat = &d->seats[slot];
    seat->is_live = d->serial < d->end;
    if (!seat->is_live) return;
    seat->serial = d->serial++;
    seat->request = chain_request_at((uint64_t)seat->serial);
    d->live++;
}

static void collect(struct drive *d, int slot, const struct round_record *record) {
    struct seat *seat = &d->seats[slot];
    struct chain_request *r = &seat->request;
    require(record->live && record->slot == slot && record->serial == seat->serial && record->emitted >= 1,
            "slot %d: request %d of slot %d emitted %d tokens, request %d was due", slot, record->serial, record->slot,
            record->emitted, seat->serial);
    chain_count(d->tally, r, record->tokens, record->emitted);
    acceptance_add(&d->tally->stats, record);
    require(record->status == (r->count < r->room ? SLOT_LIVE : SLOT_LENGTH),
            "slot %d: status %d after %d of %d tokens", slot, record->status, r->count, r->room);
    if (record->status == SLOT_LIVE) return;
    d->live--;
    seat_next(d, slot);
}

static void read_round(struct drive *d, int round) {
    const struct round_record *records = records_of(d, round);
    int rows = 0, batch = d->run->batch;
    for (int i = 0; i < batch; i++) {
        int slot = chain_slot_at(i, round, batch);
        if (d->seats[slot].is_live) collect(d, slot, &records[rows++]);
    }
    for (int row = rows; row <= batch; row++)
        require(!records[row].live && records[row].emitted == 0, "padding row %d emitted", row);
}

static void run_rounds(struct drive *d) {
    for (int lap = 0; d->live > 0; lap++) {
        for (int round = lap * LAP; round < (lap + 1) * LAP; round++) submit_round(d, round);
        require_ok(event_record(d->laps[lap % 2], d->rig.stream));
        if (lap == 0) continue;
        require_ok(event_wait(d->laps[(lap - 1) % 2]));
        for (int round = (lap - 1) * LAP; round < lap * LAP; round++) read_round(d, round);
    }
    require_ok(stream_sync(d->rig.stream));
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static void layout(struct drive *d, struct pool *pool) {
    ck_ok(pool_slice(pool, "chain", sizeof *d->chain, (void **)&d->chain));
    ck_ok(pool_slice(pool, "deck", sizeof *d->deck * (size_t)d->end, (void **)&d->deck));
    ck_ok(pool_slice(pool, "next", sizeof *d->next, (void **)&d->next));
}

static struct slot slot_of(const struct chain_run *run, int serial) {
    struct chain_request r = chain_request_at((uint64_t)serial);
    return (struct slot){.length = CHAIN_START,
                         .last = {0, r.pending},
                         .limit = CHAIN_START + r.room,
                         .status = SLOT_LIVE,
                         .serial = serial,
                         .sampling = run->sampling,
                         .key = seed_for_record(77, (uint64_t)serial)};
}

/* The first requests sit in their slots; junk in the dummy's, because padding rows are inert. */
static void upload(struct drive *d, const struct chain *chain) {
    struct stream *stream = d->rig.stream;
    struct slot *deck = calloc((size_t)d->end, sizeof *deck), dummy = {.length = 1, .last = {1 << 30, -7}};
    for (int i = 0; i < d->end; i++) deck[i] = slot_of(d->run, i);
    int32_t next = d->run->batch;
    ck_ok(stream_copy(stream, d->chain, chain, sizeof *chain));
    ck_ok(stream_copy(stream, d->deck, deck, sizeof *deck * (size_t)d->end));
    ck_ok(stream_copy(stream, d->next, &next, sizeof next));
    ck_ok(stream_copy(stream, d->rig.there.slot, &dummy, sizeof dummy));
    ck_ok(stream_copy(stream, d->rig.there.slot + 1, deck, sizeof *deck * (size_t)d->run->batch));
    ck_ok(stream_sync(stream));
    free(deck);
}

static void open_drive(struct drive *d, const struct chain *chain) {
    const struct chain_run *run = d->run;
    struct sampler_buffers sizes = {.slots = run->batch + 1,
                                    .max_batch = run->batch + 1,
                                    .k_max = run->k != 0 ? abs(run->k) : 1,
                                    .vocab_target = V,
                                    .vocab_draft = chain->vocab_draft,
                                    .draft_positions = run->draft_positions ? run->draft_positions : 1 << 20,
                                    .rule = run->rule};
    rig_open(&d->rig, &sizes, NULL, 1);
    struct device *device = stream_device(d->rig.stream);
    struct pool *plan;
    d->ops = chain_ops_for(device);
    d->end = (int)(run->tokens * 2 / REQUEST_TOK_TIMES_2) + 10;
    require(run->batch <= CHAIN_BATCH_MAX && run->batch <= d->end, "%d rows for %d requests", run->batch, d->end);
    ck_ok(pool_create_plan(&plan));
    layout(d, plan);
    ck_ok(pool_create(device, pool_used(plan), &d->pool));
    pool_destroy(plan);
    layout(d, d->pool);
    ck_ok(device_alloc_pinned(device, sizeof *d->ring * 2 * LAP * (size_t)(run->batch + 1), (void **)&d->ring));
    for (int lap = 0; lap < 2; lap++) ck_ok(event_create(device, &d->laps[lap]));
    upload(d, chain);
}

static void close_drive(struct drive *d) {
    for (int lap = 0; lap < 2; lap++) event_destroy(d->laps[lap]);
    device_free_pinned(stream_device(d->rig.stream), d->ring);
    pool_destroy(d->pool);
    rig_close(&d->rig);
}

void chain_drive(const struct chain_run *run, struct chain_tally *t) {
    static struct chain chain;
    chain_make(&chain, run->draft);
    chain_tally_init(t, &chain, &run->sampling);
    t->by_depth = run->rule != ACCEPT_BLOCK;
    struct drive d = {.run = run, .tally = t};
    open_drive(&d, &chain);
    for (int slot = 1; slot <= run->batch; slot++) seat_next(&d, slot);
    run_rounds(&d);
    close_drive(&d);
}
