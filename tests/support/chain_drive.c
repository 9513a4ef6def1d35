/* Rounds of the made-up models. The device deals requests, drafts, scores and accepts without the host; the records of a lap of
 * rounds, which is one graph, come back together, and a mirror of what was dealt says whose they must be. On a GPU, which one of
 * these rounds leaves mostly idle, several drives run side by side, each with some of the requests. */
#include <stdlib.h>

#include "draft/ngram.h"
#include "engine/auto_k.h"
#include "tests/support/chain_support.h"
#include "tests/support/support.h"

enum {
    V = CHAIN_VOCAB,
    REQUEST_TOK_TIMES_2 = 15, /* rooms of 3 to 12: 7.5 on average */
    LAP = 28, /* rounds that are read at a time, while the device runs the next ones; K 0 to 6 in turn fit */
    DRIVES_MAX = 16
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
    struct history history; /* of CHAIN_NGRAM */
    int32_t *next, *round;
    struct round_record *ring, *read; /* [2 laps, LAP rounds, batch + 1] on the device, and in pinned memory */
    struct recording *graphs[2];      /* of either lap */
    struct event *laps[2];
    struct seat seats[CHAIN_BATCH_MAX + 1];                /* by slot */
    struct auto_k choice;                                  /* of chooses_k */
    struct auto_k_estimate estimates[CHAIN_BATCH_MAX + 1]; /* by slot */
    int32_t *drafted;                                      /* [batch + 1, k] pinned, of CHAIN_PEEK */
    int k;                                                 /* of the next round */
    int first, dealt, end, live; /* serial of the first request; how many were dealt, there are, are in seats */
};

/* --- rounds on the device ----------------------------------------------------------------------------------------- */

static bool is_ngram(const struct drive *d) {
    return d->run->draft == CHAIN_NGRAM;
}

static void gather_draft(struct drive *d, int step) {
    const struct round_state *b = &d->rig.there;
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
    const struct round_state *b = &d->rig.there;
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

static void deal(struct drive *d) {
    require_ok(d->ops->deal(d->rig.stream, &(struct chain_deal){.slots = d->rig.there.slot,
                                                                .row_slot = d->rig.there.row_slot,
                                                                .deck = d->deck,
                                                                .next = d->next,
                                                                .round = d->round,
                                                                .end = d->end,
                                                                .batch = d->run->batch,
                                                                .history = d->history.tokens,
                                                                .capacity = d->history.capacity,
                                                                .prefix = d->chain->prefix[0]}));
}

static size_t record_at(const struct drive *d, int round) {
    return (size_t)(round % (2 * LAP)) * (size_t)(d->run->batch + 1);
}

static void propose(struct drive *d, const struct round_state *b, int batch, int k) {
    struct stream *stream = d->rig.stream;
    if (is_ngram(d)) {
        if (k > 0) require_ok(ngram_search(stream, &(struct ngram_search){*b, d->history, batch, k}));
        return;
    }
    require_ok(round_load_pending(stream, &(struct round_load){*b, batch, k}));
    for (int i = 0; i < k; i++) {
        gather_draft(d, i);
        require_ok(sampler_draw(stream, &(struct sampler_draw){*b, d->rig.sampler, batch, i}));
    }
}

static void submit_round(struct drive *d, int round) {
    struct stream *stream = d->rig.stream;
    struct round_state b = d->rig.there;
    int batch = d->run->batch + 1, k = d->run->k < 0 ? round % (1 - d->run->k) : d->k;
    b.records = d->ring + record_at(d, round);
    deal(d);
    spoil(d, false);
    propose(d, &b, batch, k);
    spoil(d, true);
    require_ok(round_load_block(stream, &(struct round_load){b, batch, k}));
    gather_target(d, k);
    require_ok(verify_accept(stream, &(struct verify_accept){b, d->rig.sampler, d->rig.verify, batch, k}));
    if (is_ngram(d)) require_ok(history_append(stream, &(struct history_rows){b, d->history, batch, 0}));
}

static void submit_rounds(struct drive *d, int lap) {
    for (int round = lap * LAP; round < (lap + 1) * LAP; round++) submit_round(d, round);
}

static void submit_lap(struct drive *d, int lap) {
    struct stream *stream = d->rig.stream;
    size_t at = record_at(d, lap * LAP), bytes = sizeof *d->ring * LAP * (size_t)(d->run->batch + 1);
    require_ok(recording_launch(d->graphs[lap % 2], stream));
    require_ok(stream_copy(stream, d->read + at, d->ring + at, bytes));
    require_ok(event_record(d->laps[lap % 2], stream));
}

/* --- what came back ------------------------------------------------------------------------------------------------ */

static void seat_next(struct drive *d, int slot) {
    struct seat *seat = &d->seats[slot];
    seat->is_live = d->dealt < d->end;
    if (!seat->is_live) return;
    seat->serial = d->first + d->dealt++;
    seat->request = chain_request_at((uint64_t)seat->serial);
    d->estimates[slot] = (struct auto_k_estimate){0};
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
    const struct round_record *records = d->read + record_at(d, round);
    int rows = 0, batch = d->run->batch;
    for (int i = 0; i < batch; i++) {
        int slot = chain_slot_at(i, round, batch);
        if (d->seats[slot].is_live) collect(d, slot, &records[rows++]);
    }
    for (int row = rows; row <= batch; row++)
        require(!records[row].live && records[row].emitted == 0, "padding row %d emitted", row);
}

static void read_lap(struct drive *d, int lap) {
    require_ok(event_wait(d->laps[lap % 2]));
    for (int round = lap * LAP; round < (lap + 1) * LAP; round++) read_round(d, round);
}

/* --- K by acceptance ---------------------------------------------------------------------------------------------- */

/* So short a memory makes K follow the last few rounds. */
enum { ROW_ROUNDS = 4, ALL_ROUNDS = 8 };

static void learn(struct drive *d, int round) {
    const struct round_record *records = d->read + record_at(d, round);
    for (int row = 0; row < d->run->batch && records[row].live; row++) {
        auto_k_learn(&d->estimates[records[row].slot], &records[row], d->k, ROW_ROUNDS);
        auto_k_learn(&d->choice.all, &records[row], d->k, ALL_ROUNDS);
    }
}

static void choose(struct drive *d) {
    double tokens[K_MAX + 1] = {0};
    for (int slot = 1; slot <= d->run->batch; slot++)
        if (d->seats[slot].is_live) auto_k_expect(&d->choice, &d->estimates[slot], tokens);
    d->k = auto_k_choose(&d->choice, 1, tokens, 0);
    auto_k_ran(&d->choice, 1, d->k);
}

/* The wrong choice: whether the token behind a rejected one, whose number the next round draws with again, is odd. Of one row. */
static void choose_by_peeking(struct drive *d, int round) {
    const struct round_record *r = d->read + record_at(d, round);
    const bool is_odd = r->accepted + 1 < d->k && d->drafted[r->slot * d->run->k + r->accepted + 1] % 2 != 0;
    d->k = is_odd ? 0 : d->run->k;
}

/* Round by round, since the next one depends on what this one gave. */
static void run_choosing(struct drive *d) {
    struct stream *stream = d->rig.stream;
    const size_t rows = (size_t)d->run->batch + 1, drafted = sizeof *d->drafted * rows * (size_t)d->run->k;
    for (int round = 0; d->live > 0; round++) {
        submit_round(d, round);
        const size_t at = record_at(d, round);
        require_ok(stream_copy(stream, d->read + at, d->ring + at, sizeof *d->ring * rows));
        if (d->drafted) require_ok(stream_copy(stream, d->drafted, d->rig.there.drafted, drafted));
        require_ok(stream_sync(stream));
        d->tally->rounds_by_k[d->k]++;
        learn(d, round);
        read_round(d, round);
        if (d->drafted)
            choose_by_peeking(d, round);
        else
            choose(d);
    }
}

static void open_choice(struct drive *d) {
    float ms[K_MAX + 1];
    struct device *device = stream_device(d->rig.stream);
    for (int k = 0; k <= d->run->k; k++) ms[k] = (float)(1 + d->run->ms_per_token * k);
    ck_ok(auto_k_create(&d->choice, 1, d->run->k));
    auto_k_fix(&d->choice, ms);
    if (d->run->fault == CHAIN_PEEK)
        ck_ok(device_alloc_pinned(device, sizeof *d->drafted * ((size_t)d->run->batch + 1) * (size_t)d->run->k,
                                  (void **)&d->drafted));
}

/* --- K by itself -------------------------------------------------------------------------------------------------- */

/* A lap of each, then what the lap before gave. */
static void run_drives(struct drive *drives, int count) {
    int running = count;
    for (int lap = 0; running > 0; lap++) {
        for (int i = 0; i < count; i++)
            if (drives[i].live > 0) submit_lap(&drives[i], lap);
        for (int i = 0; i < count && lap > 0; i++) {
            if (drives[i].live == 0) continue;
            read_lap(&drives[i], lap - 1);
            running -= drives[i].live == 0;
        }
    }
    for (int i = 0; i < count; i++) require_ok(stream_sync(drives[i].rig.stream));
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

static size_t ring_bytes(const struct chain_run *run) {
    return sizeof(struct round_record) * 2 * LAP * (size_t)(run->batch + 1);
}

static void layout(struct drive *d, struct pool *pool) {
    ck_ok(pool_slice(pool, POOL_SCRATCH, "chain", sizeof *d->chain, (void **)&d->chain));
    ck_ok(pool_slice(pool, POOL_SCRATCH, "deck", sizeof *d->deck * (size_t)d->end, (void **)&d->deck));
    ck_ok(pool_slice(pool, POOL_SCRATCH, "next", sizeof *d->next, (void **)&d->next));
    ck_ok(pool_slice(pool, POOL_SCRATCH, "round", sizeof *d->round, (void **)&d->round));
    ck_ok(pool_slice(pool, POOL_SCRATCH, "records", ring_bytes(d->run), (void **)&d->ring));
    if (!is_ngram(d)) return;
    d->history.capacity = CHAIN_PREFIX + CHAIN_ROOM_MAX + CHAIN_K_MAX + 1;
    size_t tokens = (size_t)d->history.capacity * (size_t)(d->run->batch + 1);
    ck_ok(pool_slice(pool, POOL_SCRATCH, "history", sizeof *d->history.tokens * tokens, (void **)&d->history.tokens));
}

static struct slot slot_of(const struct chain_run *run, int serial) {
    struct chain_request r = chain_request_at((uint64_t)serial);
    int length = run->draft == CHAIN_NGRAM ? CHAIN_PREFIX : CHAIN_START;
    return (struct slot){.length = length,
                         .last = {0, r.pending},
                         .limit = length + r.room,
                         .status = SLOT_LIVE,
                         .serial = serial,
                         .sampling = run->sampling,
                         .key = seed_for_record(77, (uint64_t)serial)};
}

/* The first requests sit in their slots; junk in the dummy's, because padding rows are inert. */
static void upload(struct drive *d, const struct chain *chain) {
    struct stream *stream = d->rig.stream;
    struct slot *deck = calloc((size_t)d->end, sizeof *deck), dummy = {.length = 1, .last = {1 << 30, -7}};
    for (int i = 0; i < d->end; i++) deck[i] = slot_of(d->run, d->first + i);
    int32_t next = d->run->batch, round = 0;
    ck_ok(stream_copy(stream, d->chain, chain, sizeof *chain));
    ck_ok(stream_copy(stream, d->deck, deck, sizeof *deck * (size_t)d->end));
    ck_ok(stream_copy(stream, d->next, &next, sizeof next));
    ck_ok(stream_copy(stream, d->round, &round, sizeof round));
    ck_ok(stream_copy(stream, d->rig.there.slot, &dummy, sizeof dummy));
    ck_ok(stream_copy(stream, d->rig.there.slot + 1, deck, sizeof *deck * (size_t)d->run->batch));
    for (int slot = 1; is_ngram(d) && slot <= d->run->batch; slot++)
        ck_ok(stream_copy(stream, d->history.tokens + slot * d->history.capacity, chain->prefix[deck[slot - 1].last[1]],
                          sizeof chain->prefix[0]));
    ck_ok(stream_sync(stream));
    free(deck);
}

static void record_graphs(struct drive *d) {
    for (int lap = 0; lap < 2; lap++) {
        ck_ok(stream_begin_capture(d->rig.stream));
        submit_rounds(d, lap);
        ck_ok(stream_end_capture(d->rig.stream, &d->graphs[lap]));
    }
}

static void open_drive(struct drive *d, const struct chain *chain) {
    const struct chain_run *run = d->run;
    struct round_state sizes = {.slots = run->batch + 1,
                                .max_batch = run->batch + 1,
                                .k_max = run->k != 0 ? abs(run->k) : 1,
                                .vocab_target = V,
                                .vocab_draft = chain->vocab_draft,
                                .vocab_input = chain->vocab_input,
                                .draft_is_cut = run->draft == CHAIN_CUT,
                                .draft_positions = run->draft_positions ? run->draft_positions : 1 << 20,
                                .rule = run->rule};
    rig_open(&d->rig, &sizes, NULL, 1);
    if (sizes.draft_is_cut) rig_cut_draft(&d->rig, chain->ids);
    struct device *device = stream_device(d->rig.stream);
    struct pool *plan;
    d->ops = chain_ops_for(device);
    require(run->batch <= CHAIN_BATCH_MAX && run->batch <= d->end, "%d rows for %d requests", run->batch, d->end);
    ck_ok(pool_create_plan(&plan));
    layout(d, plan);
    ck_ok(pool_create(device, pool_used(plan), &d->pool));
    pool_destroy(plan);
    layout(d, d->pool);
    ck_ok(device_alloc_pinned(device, ring_bytes(run), (void **)&d->read));
    for (int lap = 0; lap < 2; lap++) ck_ok(event_create(device, &d->laps[lap]));
    upload(d, chain);
    d->k = run->k;
    if (run->chooses_k)
        open_choice(d);
    else
        record_graphs(d);
    for (int slot = 1; slot <= run->batch; slot++) seat_next(d, slot);
}

static void close_drive(struct drive *d) {
    for (int lap = 0; lap < 2; lap++) {
        event_destroy(d->laps[lap]);
        recording_destroy(d->graphs[lap]);
    }
    device_free_pinned(stream_device(d->rig.stream), d->read);
    if (d->drafted) device_free_pinned(stream_device(d->rig.stream), d->drafted);
    auto_k_destroy(&d->choice);
    pool_destroy(d->pool);
    rig_close(&d->rig);
}

static int drives_of(const struct chain_run *run) {
    int most = CHAIN_BATCH_MAX / run->batch;
    return test_device_is_host() || run->chooses_k ? 1 : most < DRIVES_MAX ? most : DRIVES_MAX;
}

void chain_drive(const struct chain_run *run, struct chain_tally *t) {
    static struct chain chain;
    static struct drive drives[DRIVES_MAX];
    chain_make(&chain, run->draft);
    chain_tally_init(t, &chain, &run->sampling);
    t->by_depth = run->rule != ACCEPT_BLOCK;
    const int count = drives_of(run), requests = (int)(run->tokens * 2 / REQUEST_TOK_TIMES_2 / count) + 10;
    for (int i = 0; i < count; i++) {
        drives[i] = (struct drive){.run = run, .tally = t, .first = i * requests, .end = requests};
        open_drive(&drives[i], &chain);
    }
    if (run->chooses_k)
        run_choosing(&drives[0]);
    else
        run_drives(drives, count);
    for (int i = 0; i < count; i++) close_drive(&drives[i]);
}
