/* Where a sequence stops: end ids, its limit, the draft's limit, logits that are not finite. */
#include <math.h>
#include <string.h>

#include "tests/support/counting_rig.h"
#include "tests/support/support.h"

/* --- limits ----------------------------------------------------------------------------------------------- */

START_TEST(rows_past_the_drafts_limit_draw_plainly)
{
    int32_t plain_token = 0;
    for (int limit = 0; limit <= 9; limit++) { /* n = 5, k = 4: the last draft input is at 7 */
        open_with(
            (struct round_state){
                .slots = 2, .max_batch = 1, .k_max = 4, .vocab_target = V, .vocab_draft = V, .draft_positions = limit},
            NULL, 1);
        models.sharp = false;
        rig.b.row_slot[0] = 1;
        rig_start(&rig, 1, 5, 3, 100, plain, 4);
        const struct round_record *r = round_of(1, 4);
        ck_assert_int_eq(r->k, limit >= 8 ? 4 : 0);
        if (limit == 0) plain_token = r->tokens[0];
        if (limit < 8) ck_assert(r->emitted == 1 && r->evaluated == 0 && r->tokens[0] == plain_token);
        rig_close(&rig);
    }
    float logits[V], p[V];
    counting_target(&models, 3, 4, logits);
    ck_ok(sampling_distribution(&plain, logits, V, p));
    ck_assert_int_eq(plain_token, sampling_draw(p, V, 4, 5, PHILOX_PLAIN));
}
END_TEST

/* Greedy models that agree emit pending + 1, + 2, ...: the token at `offset` of the round is the end. */
static void end_at(int k, int offset, int room, bool ignore) {
    const int32_t end_ids[] = {38, 10 + 1 + offset};
    open_with((struct round_state){.slots = 2,
                                   .max_batch = 1,
                                   .k_max = k,
                                   .vocab_target = V,
                                   .vocab_draft = V,
                                   .draft_positions = 1000,
                                   .end_count = offset >= 0 ? 2 : 0},
              end_ids, 1);
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 5, 10, room, greedy, 1);
    rig.b.slot[1].ignore_end = ignore;
    const struct round_record r = round_of(1, k)[0];
    int ends = offset >= 0 && !ignore ? offset + 1 : k + 2, emitted = ends < room ? ends : room;
    if (emitted > k + 1) emitted = k + 1;
    ck_assert_int_eq(r.emitted, emitted);
    ck_assert_int_eq(r.accepted, emitted < k + 1 ? emitted : k);
    ck_assert(r.evaluated == r.accepted && r.rejected == 0 && r.length == 5 + emitted);
    ck_assert_int_eq(r.status, emitted == ends ? SLOT_END : emitted == room ? SLOT_LENGTH : SLOT_LIVE);
    ck_assert(rig.b.slot[1].status == r.status && rig.b.slot[1].length == r.length);
    ck_assert(rig.b.slot[1].last[1] == 10 + emitted && rig.b.slot[1].last[0] == (emitted > 1 ? 9 + emitted : 10));

    struct slot frozen = rig.b.slot[1];
    if (r.status != SLOT_LIVE) {
        const struct round_record *again = round_of(1, k);
        ck_assert(again->live == 0 && again->emitted == 0 && again->accepted == 0 && again->length == 0);
        ck_assert(again->status == r.status && again->slot == 1 && again->serial == 1001);
        ck_assert_mem_eq(&frozen, &rig.b.slot[1], sizeof frozen);
    }
    rig_close(&rig);
}

START_TEST(nothing_is_emitted_after_an_end_id)
{
    for (int k = 0; k <= 5; k++)
        for (int offset = 0; offset <= k; offset++) {
            end_at(k, offset, 100, false);
            end_at(k, offset, 100, true);
        }
}
END_TEST

START_TEST(exactly_the_limit_is_emitted)
{
    for (int k = 0; k <= 5; k++)
        for (int room = 1; room <= k + 2; room++) {
            end_at(k, -1, room, false);
            for (int offset = 0; offset <= k; offset++) end_at(k, offset, room, false);
        }
}
END_TEST

/* A replacement that is an end id, and one that falls on the limit. */
START_TEST(a_rejection_may_end_the_sequence)
{
    for (int c = 0; c < 2; c++) {
        const int32_t end_ids[] = {c == 0 ? 12 : 39};
        open_with((struct round_state){.slots = 2,
                                       .max_batch = 1,
                                       .k_max = 4,
                                       .vocab_target = V,
                                       .vocab_draft = V,
                                       .draft_positions = 1000,
                                       .end_count = 1},
                  end_ids, 1);
        models.disagree = 11;
        rig.b.row_slot[0] = 1;
        rig_start(&rig, 1, 5, 10, c == 0 ? 100 : 2, greedy, 1);
        const struct round_record *r = round_of(1, 4);
        ck_assert(r->emitted == 2 && r->accepted == 1 && r->rejected == 1 && r->tokens[1] == 12);
        ck_assert_int_eq(r->status, c == 0 ? SLOT_END : SLOT_LENGTH);
        rig_close(&rig);
    }
}
END_TEST

/* --- errors ----------------------------------------------------------------------------------------------- */

/* Three slots; a bad value enters one row of slot 2. Slots 1 and 3 must not notice. */
static struct round_record round_with(float bad, int draft_index, int target_index, int k) {
    open_default(4, 4);
    models.disagree = 11;
    for (int slot = 1; slot <= 3; slot++) rig_start(&rig, slot, 5, 10, 100, greedy, 1);
    for (int row = 0; row < 3; row++) rig.b.row_slot[row] = row + 1;
    ck_ok(round_load_pending(rig.stream, &(struct round_load){rig.b, 4, k}));
    for (int i = 0; i < k; i++) {
        for (int row = 0; row < 4; row++)
            counting_draft(&models, rig.b.draft_tokens[i == 0 ? 2 * row + 1 : row], 0, rig.b.draft_logits + row * V);
        if (i == draft_index) rig.b.draft_logits[1 * V + 33] = bad;
        ck_ok(sampler_draw(rig.stream, &(struct sampler_draw){rig.b, rig.sampler, 4, i}));
    }
    rig_score(&rig, 4, k, counting_target, &models);
    if (target_index >= 0) rig.b.target_logits[(1 * (k + 1) + target_index) * V + V - 1] = bad;
    rig_accept(&rig, 4, k);
    struct round_record r = rig.b.records[1];
    int emitted = k == 0 ? 1 : 2;
    ck_assert(rig.b.records[0].emitted == emitted && rig.b.records[2].emitted == emitted);
    ck_assert(rig.b.records[0].status == SLOT_LIVE && rig.b.records[2].status == SLOT_LIVE);
    ck_assert(rig.b.records[3].live == 0 && rig.b.records[3].slot == 0 && rig.b.slot[0].status == SLOT_IDLE);
    ck_assert(rig.b.slot[0].length == 1);
    if (r.status == SLOT_ERROR) {
        ck_assert(r.live == 1 && r.emitted == 0 && r.accepted == 0 && r.evaluated == 0 && r.overlap_sum == 0);
        ck_assert(r.length == 5 && rig.b.slot[2].length == 5 && rig.b.slot[2].last[1] == 10);
        ck_assert_int_eq(round_of(4, k)[1].live, 0);
    }
    rig_close(&rig);
    return r;
}

START_TEST(non_finite_logits_end_their_own_sequence_alone)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < 4; i++) {
            struct round_record r = round_with(values[v], i, -1, 4);
            ck_assert(r.status == SLOT_ERROR && r.is_draft_bad);
        }
        ck_assert(!round_with(values[v], -1, 0, 4).is_draft_bad);
        ck_assert_int_eq(round_with(values[v], -1, 0, 4).status, SLOT_ERROR);
        ck_assert_int_eq(round_with(values[v], -1, 1, 4).status, SLOT_ERROR); /* of the replacement */
        ck_assert_int_eq(round_with(values[v], -1, 0, 0).status, SLOT_ERROR);
        for (int j = 2; j <= 4; j++) { /* rows that nothing emitted depends on */
            struct round_record r = round_with(values[v], -1, j, 4);
            ck_assert(r.status == SLOT_LIVE && r.emitted == 2);
        }
    }
}
END_TEST

Suite *check_sampler_ends(void);
Suite *check_sampler_ends(void) {
    Suite *suite = suite_create("sampler_ends");
    TCase *c = tcase_create("sampler_ends");
    tcase_add_test(c, rows_past_the_drafts_limit_draw_plainly);
    tcase_add_test(c, nothing_is_emitted_after_an_end_id);
    tcase_add_test(c, exactly_the_limit_is_emitted);
    tcase_add_test(c, a_rejection_may_end_the_sequence);
    tcase_add_test(c, non_finite_logits_end_their_own_sequence_alone);
    suite_add_tcase(suite, c);
    return suite;
}
