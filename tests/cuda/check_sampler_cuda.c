/* Host and GPU give the same bits: distributions, draws, inputs, slots and records, from the same logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"

/* Made-up logits: about normal or in steps (many equal ones), both with scale; now and then one that is not finite. */
struct source {
    uint64_t seed, draws;
    float scale, step;
    int bad_every; /* 0: never */
};

static uint32_t word(struct source *s) {
    uint64_t at = s->draws++;
    return philox_word(s->seed, at >> 16, 0, (uint32_t)(at & 0xFFFF));
}

static void fill_logits(struct source *s, float *logits, int n) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < 3; j++) sum += (float)(word(s) >> 8) * 0x1p-23f - 1.0f;
        logits[i] = sum * s->scale;
        if (s->step > 0) logits[i] = roundf(logits[i] / s->step) * s->step;
    }
    if (s->bad_every > 0 && word(s) % (uint32_t)s->bad_every == 0)
        logits[word(s) % (uint32_t)n] = (const float[]){NAN, -INFINITY, INFINITY}[word(s) % 3];
}

struct twins {
    struct rig host, gpu;
};

static void open_twins(struct twins *t, const struct round_state *sizes, const int32_t *end_ids) {
    rig_open_on(&t->host, "host", sizes, end_ids, 2);
    rig_open_on(&t->gpu, "cuda", sizes, end_ids, 1);
}

/* To ids in runs of 1 to 13 with gaps between them: half of them, as far as they reach, then the last ones. */
static void cut_twins(struct twins *t) {
    const struct round_state *b = &t->host.b;
    int32_t *ids = malloc(sizeof *ids * (size_t)b->vocab_draft);
    int count = 0;
    for (int id = 0; id < b->vocab_target && count < b->vocab_draft; id++) {
        const bool must_take = b->vocab_target - id <= b->vocab_draft - count;
        if (must_take || id % 26 < 1 + id / 26 % 13) ids[count++] = id;
    }
    rig_cut_draft(&t->host, ids), rig_cut_draft(&t->gpu, ids);
    free(ids);
}

static void close_twins(struct twins *t) {
    rig_close(&t->host);
    rig_close(&t->gpu);
}

static void must_be_equal(const void *a, const void *b, size_t bytes, const char *what, int round) {
    if (memcmp(a, b, bytes) == 0) return;
    const uint32_t *x = a, *y = b;
    size_t i = 0;
    while (x[i] == y[i]) i++;
    ck_abort_msg("round %d: %s: word %zu of %zu is %08x on the host, %08x on the GPU", round, what, i, bytes / 4, x[i],
                 y[i]);
}

/* Rows hold NaN of any bits where there is no distribution. */
static void must_equal_p(const float *a, const float *b, size_t n, const char *what, int round) {
    if (isnan(a[0]) && isnan(b[0])) return;
    must_be_equal(a, b, n * sizeof *a, what, round);
}

static void must_equal_slots(const struct twins *t, int round) {
    for (int i = 0; i < t->host.b.slots; i++) {
        const struct slot *a = &t->host.b.slot[i], *b = &t->gpu.b.slot[i];
        must_be_equal(a, b, offsetof(struct slot, sampling), "slots", round);
        ck_assert_uint_eq(a->key, b->key);
    }
}

static void must_equal_inputs(const struct twins *t, int batch, int k, int round) {
    size_t n = (size_t)batch * (size_t)(k + 1) * sizeof(int32_t);
    must_be_equal(t->host.b.target_tokens, t->gpu.b.target_tokens, n, "target tokens", round);
    must_be_equal(t->host.b.target_positions, t->gpu.b.target_positions, n, "target positions", round);
}

static void must_equal_offered(const struct twins *t, int round) {
    const struct round_state *b = &t->host.b;
    must_be_equal(b->offered, t->gpu.b.offered, (size_t)b->slots * sizeof *b->offered, "offered", round);
}

static void draft_twins(struct twins *t, struct source *s, int batch, int k, int round) {
    const struct round_state *b = &t->host.b;
    rig_load_pending(&t->host, batch, k), rig_load_pending(&t->gpu, batch, k);
    for (int i = 0; i < k; i++) {
        size_t inputs = (size_t)batch * (i == 0 ? 2 : 1) * sizeof(int32_t);
        must_be_equal(b->draft_tokens, t->gpu.b.draft_tokens, inputs, "draft tokens", round);
        must_be_equal(b->draft_positions_in, t->gpu.b.draft_positions_in, inputs, "draft positions", round);
        size_t n = (size_t)batch * (size_t)b->draft_stride;
        fill_logits(s, b->draft_logits, (int)n);
        memcpy(t->gpu.b.draft_logits, b->draft_logits, n * sizeof(float));
        rig_draw(&t->host, batch, i), rig_draw(&t->gpu, batch, i);
        for (int slot = 1; slot < b->slots; slot++) {
            size_t at = ((size_t)slot * (size_t)b->k_max + (size_t)i) * (size_t)b->vocab_draft;
            must_equal_p(b->p_draft + at, t->gpu.b.p_draft + at, (size_t)b->vocab_draft, "p_draft", round);
        }
        must_be_equal(b->drafted, t->gpu.b.drafted, (size_t)b->slots * (size_t)b->k_max * sizeof(int32_t), "drafted",
                      round);
        must_equal_offered(t, round);
    }
}

/* Target logits like the draft's, else nothing is ever accepted: those of the last step in the first row, or in every row
 * what p_draft came from, less noise. */
static void copy_last_step(const struct round_state *b, int row, int k) {
    for (int i = 0; i < b->vocab_draft && round_draft_id(b, i) < b->vocab_target; i++)
        b->target_logits[(size_t)row * (size_t)(k + 1) * (size_t)b->target_stride + (size_t)round_draft_id(b, i)] =
            b->draft_logits[(size_t)row * (size_t)b->draft_stride + (size_t)i];
}

static void follow_draft(const struct round_state *b, int row, int k) {
    const float t = b->slot[b->row_slot[row]].sampling.temperature;
    for (int j = 0; j < k; j++) {
        size_t at = (size_t)b->row_slot[row] * (size_t)b->k_max + (size_t)j;
        const float *q = b->p_draft + at * (size_t)b->vocab_draft;
        float *logits = b->target_logits + ((size_t)row * (size_t)(k + 1) + (size_t)j) * (size_t)b->target_stride;
        for (int i = 0; !isnan(q[0]) && i < b->vocab_draft && round_draft_id(b, i) < b->vocab_target; i++) {
            float *logit = &logits[round_draft_id(b, i)];
            *logit = (0.1f * *logit + (q[i] > 0 ? 20 + logf(q[i]) : -40.0f)) * (t > 0 ? t : 1);
        }
    }
}

static void verify_twins(struct twins *t, struct source *s, int batch, int k, int round) {
    const struct round_state *b = &t->host.b;
    rig_load_block(&t->host, batch, k), rig_load_block(&t->gpu, batch, k);
    must_equal_inputs(t, batch, k, round);
    size_t n = (size_t)batch * (size_t)(k + 1) * (size_t)b->target_stride;
    fill_logits(s, b->target_logits, (int)n);
    for (int row = 0; k > 0 && row < batch; row++) {
        if (round % 3 == 0)
            copy_last_step(b, row, k);
        else
            follow_draft(b, row, k);
    }
    memcpy(t->gpu.b.target_logits, b->target_logits, n * sizeof(float));
    rig_accept(&t->host, batch, k), rig_accept(&t->gpu, batch, k);
    must_equal_slots(t, round);
    must_be_equal(b->records, t->gpu.b.records, (size_t)batch * sizeof *b->records, "records", round);
    for (int row = 0; row < batch;
         row++) { /* rows that the rule could come to; the host's residual takes the last row */
        size_t at = (size_t)row * (size_t)(k + 1) * (size_t)b->vocab_target;
        int kept = b->records[row].rejected ? k : b->records[row].k + 1;
        for (int j = 0; b->records[row].live && j < kept; j++, at += (size_t)b->vocab_target)
            must_equal_p(b->p_target + at, t->gpu.b.p_target + at, (size_t)b->vocab_target, "p_target", round);
    }
}

static float pick(struct source *s, const float *values, int n) {
    return values[word(s) % (uint32_t)n];
}

static struct sampling random_sampling(struct source *s, int vocab) {
    static const float temperatures[] = {0, 0.05f, 0.3f, 0.7f, 1, 1.5f, 1e-6f, 1e-30f},
                       top_ps[] = {1, 1, 0.95f, 0.5f, 0.05f}, min_ps[] = {0, 0, 0.02f, 0.3f};
    const int top_ks[] = {0, 0, 1, 2, 5, 40, vocab / 2, vocab - 1, vocab};
    int k = top_ks[word(s) % 9];
    return (struct sampling){pick(s, temperatures, 8), pick(s, top_ps, 5), pick(s, min_ps, 4), k > 0 ? k : 0, 1};
}

static void start_all(struct twins *t, struct source *s) {
    const struct round_state *b = &t->host.b;
    for (int slot = 1; slot < b->slots; slot++) {
        if (b->slot[slot].status == SLOT_LIVE) continue;
        int n = 1 + (int)(word(s) % 40), pending = (int)(word(s) % (uint32_t)b->vocab_target),
            room = 1 + (int)(word(s) % 12);
        struct sampling sampling = random_sampling(s, b->vocab_target);
        uint64_t key = (uint64_t)word(s) << 32 | word(s);
        rig_start(&t->host, slot, n, pending, room, sampling, key);
        rig_start(&t->gpu, slot, n, pending, room, sampling, key);
    }
}

static const struct {
    int vocab_target, vocab_draft, padding, batch, k, rounds, bad_every;
    float scale, step;
} cases[] = {
    {8, 8, 0, 4, 3, 200, 0, 3, 0},
    {8, 5, 3, 5, 4, 200, 7, 2, 0.5f},
    {37, 40, 1, 3, 8, 100, 0, 4, 1},
    {512, 512, 0, 8, 5, 60, 9, 3, 0},
    {1023, 1023, 2, 4, 4, 60, 0, 3, 0.25f},
    {1025, 1024, 0, 4, 4, 60, 0, 5, 0},
    {4099, 4099, 5, 8, 4, 40, 0, 3, 0.03125f},
    {49152, 49152, 0, 3, 4, 20, 9, 4, 0},
    {128256, 128256, 0, 2, 3, 12, 0, 4, 0.0625f},
    {151936, 151669, 131, 2, 2, 18, 0, 4, 0},
    {262144, 262144, 0, 1, 2, 18, 0, 5, 1},
    {262143, 262144, 1, 3, 2, 6, 0, 6, 0},
    {8065, 8064, 0, 64, 3, 8, 4, 4, 0.125f}, /* more rows than teams at once */
    {32003, 32003, 0, 64, 2, 6, 3, 4, 0},
    {49153, 49153, 0, 1, 5, 24, 9, 4, 0},
    {600001, 600001, 0, 1, 2, 12, 0, 8, 0}, /* more ids than shared memory holds */
    {8, 3, 0, 4, 3, 200, 0, 2, 0},          /* less than half of the ids: a draft that is cut to them */
    {4099, 1000, 3, 8, 4, 40, 7, 3, 0.25f},
    {128256, 32768, 0, 2, 3, 12, 0, 4, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Loop index: the rule and the case. K changes from round to round; the last row is padding; rows move. */
START_TEST(rounds_give_the_host_s_bits)
{
    const int c = _i % CASES;
    struct source s = {
        .seed = 99 + (uint64_t)c, .scale = cases[c].scale, .step = cases[c].step, .bad_every = cases[c].bad_every};
    const int32_t end_ids[] = {3, 7};
    struct round_state sizes = {.slots = cases[c].batch + 2,
                                .max_batch = cases[c].batch + 1,
                                .k_max = cases[c].k,
                                .vocab_target = cases[c].vocab_target,
                                .vocab_draft = cases[c].vocab_draft,
                                .target_stride = cases[c].vocab_target + cases[c].padding,
                                .draft_stride = cases[c].vocab_draft + cases[c].padding,
                                .draft_positions = 40,
                                .draft_is_cut = 2 * cases[c].vocab_draft < cases[c].vocab_target,
                                .rule = (enum accept_rule)(_i / CASES),
                                .end_count = 2};
    struct twins t;
    int64_t accepted = 0, rejected = 0, errors = 0;
    const int rounds = test_is_small() ? 2 : cases[c].rounds;
    if (test_is_small() && _i >= CASES && cases[c].vocab_target > 2000)
        return; /* the rules share the passes over ids */
    open_twins(&t, &sizes, end_ids);
    if (sizes.draft_is_cut) cut_twins(&t);
    for (int round = 0; round < rounds; round++) {
        int batch = cases[c].batch, k = (round + (test_is_small() ? cases[c].k : 0)) % (cases[c].k + 1);
        start_all(&t, &s);
        for (int row = 0; row <= batch; row++)
            t.host.b.row_slot[row] = t.gpu.b.row_slot[row] = row < batch ? 1 + (row + round) % batch : 0;
        draft_twins(&t, &s, batch + 1, k, round);
        verify_twins(&t, &s, batch + 1, k, round);
        for (int row = 0; row < batch; row++) {
            const struct round_record *r = &t.host.b.records[row];
            accepted += r->accepted, rejected += r->rejected, errors += r->status == SLOT_ERROR;
        }
    }
    close_twins(&t);
    if (test_is_small()) return;
    ck_assert_int_gt(accepted, 0);
    ck_assert_int_gt(rejected, 0);
    if (cases[c].bad_every > 0) ck_assert_int_gt(errors, 0);
}
END_TEST

static const struct { int vocab, draws; } ties[] = {{1, 20}, {3000, 300}, {20011, 100}, {150001, 20}};

/* Loop index: the vocabulary, on one block or many. Every filter alone and all of them, over logits with ties at every edge,
 * of which all are equal now and then. */
START_TEST(filters_cut_ties_like_the_host)
{
    const int vocab = ties[_i].vocab;
    struct round_state sizes = {.slots = 2,
                                .max_batch = 1,
                                .k_max = 1,
                                .vocab_target = vocab,
                                .vocab_draft = vocab,
                                .draft_positions = 1 << 20};
    struct twins t;
    open_twins(&t, &sizes, NULL);
    const int draws = test_is_small() ? 4 : ties[_i].draws;
    for (int i = 0; i < draws; i++) {
        struct source s = {.seed = 5000 + (uint64_t)i,
                           .scale = 2,
                           .step = i % 7 == 6   ? 100.0f
                                   : i % 3 == 0 ? 4.0f
                                                : 0.5f};
        struct sampling sampling = {.temperature = 0.3f + 0.01f * (float)(i % 100), .top_p = 1};
        if (i % 4 != 1) sampling.top_k = 1 + (int)(word(&s) % (uint32_t)vocab);
        if (i % 4 != 0) sampling.top_p = (float)(1 + word(&s) % 999) * 0.001f;
        if (i % 4 == 3) sampling.min_p = 0.1f;
        rig_start(&t.host, 1, 5, 1, 9, sampling, (uint64_t)i), rig_start(&t.gpu, 1, 5, 1, 9, sampling, (uint64_t)i);
        t.host.b.row_slot[0] = t.gpu.b.row_slot[0] = 1;
        draft_twins(&t, &s, 1, 1, i);
    }
    close_twins(&t);
}
END_TEST

Suite *check_sampler_cuda(void);
Suite *check_sampler_cuda(void) {
    Suite *suite = suite_create("sampler_cuda");
    TCase *tc = tcase_create("sampler_cuda");
    tcase_add_loop_test(tc, rounds_give_the_host_s_bits, 0, 3 * CASES);
    tcase_add_loop_test(tc, filters_cut_ties_like_the_host, 0, sizeof ties / sizeof *ties);
    suite_add_tcase(suite, tc);
    return suite;
}
