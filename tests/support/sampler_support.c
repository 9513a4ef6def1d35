#include "tests/support/sampler_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

/* The state of the round first. */
static void layout(struct rig *rig, struct device *device, struct round_state *b, struct pool *pool) {
    ck_ok(round_layout(b, pool));
    rig->state_bytes = pool_used(pool);
    ck_ok(sampler_layout(&rig->sampler, device, b, pool));
    ck_ok(verify_layout(&rig->verify, device, b, pool));
}

static void create_pool(struct rig *rig, struct device *device, struct round_state *b, struct pool **pool) {
    struct pool *plan;
    ck_ok(pool_create_plan(&plan));
    layout(rig, device, b, plan);
    ck_ok(pool_create(device, pool_used(plan), pool));
    pool_destroy(plan);
    layout(rig, device, b, *pool);
}

void rig_open_on(struct rig *rig, const char *device, const struct round_state *sizes, const int32_t *end_ids,
                 int threads) {
    *rig = (struct rig){.b = *sizes};
    if (rig->b.target_stride == 0) rig->b.target_stride = rig->b.vocab_target;
    if (rig->b.draft_stride == 0) rig->b.draft_stride = rig->b.vocab_draft;
    if (rig->b.vocab_input == 0) rig->b.vocab_input = rig->b.draft_is_cut ? rig->b.vocab_target : rig->b.vocab_draft;
    struct device_options options = {.threads = threads};
    ck_ok(device_open(&rig->device, "host", &options));
    create_pool(rig, rig->device, &rig->b, &rig->pool);
    rig->there = rig->b;
    if (strcmp(device, "host") != 0) {
        ck_ok(device_open(&rig->other, device, &options));
        create_pool(rig, rig->other, &rig->there, &rig->other_pool);
    }
    ck_ok(stream_create(rig->other ? rig->other : rig->device, &rig->stream));
    for (int i = 0; i < rig->b.end_count; i++) rig->b.end_ids[i] = end_ids[i];
    rig->b.slot[0].length = 1;
}

void rig_open(struct rig *rig, const struct round_state *sizes, const int32_t *end_ids, int threads) {
    rig_open_on(rig, test_device(), sizes, end_ids, threads);
}

void rig_close(struct rig *rig) {
    pool_destroy(rig->other_pool);
    pool_destroy(rig->pool);
    stream_destroy(rig->stream);
    device_close(rig->other);
    device_close(rig->device);
}

void rig_start(struct rig *rig, int slot, int n, int pending, int room, struct sampling sampling, uint64_t key) {
    rig->b.slot[slot] = (struct slot){
        .length = n,
        .last = {n > 1 ? 0 : -1, pending},
        .limit = n + room,
        .status = SLOT_LIVE,
        .serial = 1000 + slot,
        .sampling = sampling,
        .key = key,
    };
}

/* Both states were cut alike, from the slots on. */
void rig_send(struct rig *rig) {
    if (rig->other) require_ok(stream_copy(rig->stream, rig->there.slot, rig->b.slot, rig->state_bytes));
}

void rig_fetch(struct rig *rig) {
    if (rig->other) require_ok(stream_copy(rig->stream, rig->b.slot, rig->there.slot, rig->state_bytes));
    require_ok(stream_sync(rig->stream));
}

void rig_cut_draft(struct rig *rig, const int32_t *ids) {
    rig_send(rig);
    ck_ok(round_set_draft_ids(&rig->there, rig->stream, ids));
    rig_fetch(rig);
}

void rig_load_pending(struct rig *rig, int batch, int k) {
    rig_send(rig);
    require_ok(round_load_pending(rig->stream, &(struct round_load){rig->there, batch, k}));
    rig_fetch(rig);
}

void rig_draw(struct rig *rig, int batch, int index) {
    rig_send(rig);
    require_ok(sampler_draw(rig->stream, &(struct sampler_draw){rig->there, rig->sampler, batch, index}));
    rig_fetch(rig);
}

void rig_load_block(struct rig *rig, int batch, int k) {
    rig_send(rig);
    require_ok(round_load_block(rig->stream, &(struct round_load){rig->there, batch, k}));
    rig_fetch(rig);
}

void rig_accept(struct rig *rig, int batch, int k) {
    rig_send(rig);
    require_ok(verify_accept(rig->stream, &(struct verify_accept){rig->there, rig->sampler, rig->verify, batch, k}));
    rig_fetch(rig);
}

void rig_draft(struct rig *rig, int batch, int k, logits_fn draft, void *user) {
    struct round_state *b = &rig->b;
    rig_load_pending(rig, batch, k);
    for (int i = 0; i < k; i++) {
        for (int row = 0; row < batch; row++) {
            int at = i == 0 ? 2 * row + 1 : row;
            draft(user, b->draft_tokens[at], b->draft_positions_in[at],
                  b->draft_logits + (size_t)row * (size_t)b->draft_stride);
        }
        rig_draw(rig, batch, i);
    }
}

void rig_score(struct rig *rig, int batch, int k, logits_fn target, void *user) {
    struct round_state *b = &rig->b;
    rig_load_block(rig, batch, k);
    for (int i = 0; i < batch * (k + 1); i++)
        target(user, b->target_tokens[i], b->target_positions[i],
               b->target_logits + (size_t)i * (size_t)b->target_stride);
}

/* --- made-up models --------------------------------------------------------------------------------------------- */

static float soft(int salt, int token, int position, int id) {
    return (float)(philox_word((uint64_t)salt, (uint64_t)(position * 1000 + token), 0, (uint32_t)id) >> 8) * 0x1p-22f;
}

static void fill(const struct counting *m, int salt, int vocab, int token, int position, int next, float *logits) {
    for (int i = 0; i < vocab; i++)
        logits[i] = m->sharp ? 0 : soft(7, token, position, i) + soft(salt, token, position, i);
    if (m->sharp) logits[next % vocab] = 9;
}

void counting_target(void *user, int token, int position, float *logits) {
    const struct counting *m = user;
    fill(m, 1, m->vocab_target, token, position, token + 1, logits);
}

void counting_draft(void *user, int token, int position, float *logits) {
    const struct counting *m = user;
    fill(m, 2, m->vocab_draft, token, position, token + 1 + (token == m->disagree), logits);
}

/* --- reference -------------------------------------------------------------------------------------------- */

struct ranked {
    float logit;
    int id;
};

static int by_logit(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id - y->id;
}

void reference_distribution(const struct sampling *s, const float *logits, int vocab, double *p) {
    struct ranked *ranked = malloc(sizeof *ranked * (size_t)vocab);
    for (int i = 0; i < vocab; i++) ranked[i] = (struct ranked){logits[i], i}, p[i] = 0;
    qsort(ranked, (size_t)vocab, sizeof *ranked, by_logit);
    double max = (double)ranked[0].logit, temperature = (double)s->temperature;
    int kept = temperature == 0 ? 1 : s->top_k > 0 && s->top_k < vocab ? s->top_k : vocab;
    double total = 0, sum = 0;
    for (int r = 0; r < kept; r++) {
        double weight = temperature == 0 ? 1 : exp(((double)ranked[r].logit - max) / temperature);
        p[ranked[r].id] = weight;
        total += weight;
    }
    double reached = 0;
    for (int r = 0; r < kept; r++) {
        double weight = p[ranked[r].id];
        if ((s->top_p < 1 && reached >= (double)s->top_p * total) || weight < (double)s->min_p)
            p[ranked[r].id] = 0;
        else
            sum += weight;
        reached += weight;
    }
    for (int i = 0; i < vocab; i++) p[i] /= sum;
    free(ranked);
}
