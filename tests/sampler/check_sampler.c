/* The four launches of a round: inputs, state, records; which row, slot and neighbours never matter. */
#include <math.h>
#include <string.h>

#include "tests/support/counting_rig.h"
#include "tests/support/support.h"

/* --- layout and submission -------------------------------------------------------------------------------- */

START_TEST(layout_refuses_sizes_that_make_no_sense)
{
    static const struct round_state good = {.slots = 3,
                                            .max_batch = 2,
                                            .k_max = 4,
                                            .vocab_target = V,
                                            .vocab_draft = V,
                                            .target_stride = V,
                                            .draft_stride = V};
    struct pool *plan;
    ck_ok(pool_create_plan(&plan));
    struct round_state b = good;
    b.k_max = K_MAX + 1;
    ck_assert_int_eq(round_layout(&b, plan), ERR_LIMIT);
    ck_assert_str_eq(err_message(), "k is 64, expected 0 to 63");
    b = good, b.vocab_target = (1 << 20) + 1, b.target_stride = b.vocab_target;
    ck_assert_int_eq(round_layout(&b, plan), ERR_LIMIT);
    b = good, b.target_stride = V - 1;
    ck_assert_int_eq(round_layout(&b, plan), ERR_INTERNAL);
    b = good, b.vocab_draft = 0;
    ck_assert_int_eq(round_layout(&b, plan), ERR_INTERNAL);
    b = good, b.slots = 1;
    ck_assert_int_eq(round_layout(&b, plan), ERR_INTERNAL);
    b = good;
    ck_ok(round_layout(&b, plan));
    pool_destroy(plan);
}
END_TEST

/* What the blocks of a GPU tell each other. */
START_TEST(scratch_of_a_gpu_is_not_planned_on_the_host)
{
    open_default(2, 4);
    ck_assert(!rig.sampler.exchange && !rig.verify.overlap && !rig.verify.verdicts);
    ck_assert_uint_eq(pool_used(rig.pool), rig.state_bytes);
    rig_close(&rig);
}
END_TEST

/* A proposer that draws from no logits has neither these nor inputs of graphs, but what it leaves for the round. */
START_TEST(layout_without_draft_logits_has_drafted_tokens_alone)
{
    struct round_state b = {
        .slots = 3, .max_batch = 2, .k_max = 4, .vocab_target = V, .vocab_draft = V, .target_stride = V};
    struct pool *pool;
    struct device *device;
    ck_ok(device_open(&device, "host", &(struct device_options){0}));
    ck_ok(pool_create(device, 1 << 20, &pool));
    ck_ok(round_layout(&b, pool));
    ck_assert(!b.draft_logits && !b.draft_tokens && !b.draft_positions_in);
    ck_assert(b.drafted && b.offered && b.p_draft);
    pool_destroy(pool);
    device_close(device);
}
END_TEST

START_TEST(layout_without_a_draft_has_no_draft_buffers)
{
    open_with((struct round_state){.slots = 2, .max_batch = 1, .vocab_target = V}, NULL, 1);
    ck_assert(!rig.b.draft_logits && !rig.b.p_draft && !rig.b.draft_tokens && !rig.b.drafted && !rig.b.offered);
    ck_assert(rig.b.target_logits && rig.b.p_target && rig.b.records);
    rig_start(&rig, 1, 5, 3, 10, greedy, 1);
    rig.b.row_slot[0] = 1;
    rig_score(&rig, 1, 0, counting_target, &models);
    rig_accept(&rig, 1, 0);
    ck_assert_int_eq(rig.b.records[0].tokens[0], 4);
    rig_close(&rig);
}
END_TEST

START_TEST(shapes_past_the_buffers_are_refused)
{
    open_default(2, 3);
    ck_assert_int_eq(verify_accept(rig.stream, &(struct verify_accept){rig.b, rig.sampler, rig.verify, 3, 1}),
                     ERR_INTERNAL);
    ck_assert_int_eq(verify_accept(rig.stream, &(struct verify_accept){rig.b, rig.sampler, rig.verify, 1, 4}),
                     ERR_INTERNAL);
    ck_assert_int_eq(sampler_draw(rig.stream, &(struct sampler_draw){rig.b, rig.sampler, 1, 3}), ERR_INTERNAL);
    ck_assert_int_eq(round_load_block(rig.stream, &(struct round_load){rig.b, 0, 1}), ERR_INTERNAL);
    ck_assert_int_eq(round_load_pending(rig.stream, &(struct round_load){rig.b, 3, 1}), ERR_INTERNAL);
    rig_close(&rig);
}
END_TEST

START_TEST(a_round_counts_its_launches_and_allocates_nothing)
{
    open_default(2, 5);
    rig_start(&rig, 1, 5, 3, 100, plain, 1);
    rig.b.row_slot[0] = 1;
    for (int k = 0; k <= 5; k++) {
        struct stream_counts before = stream_counts(rig.stream);
        uint64_t allocations = device_allocations(rig.device);
        round_of(2, k);
        int loads = 2; /* inside graphs in the engine */
        ck_assert_int_eq((int)(stream_counts(rig.stream).kernel_launches - before.kernel_launches) - loads,
                         k + verify_launches(rig.device, &rig.b, k));
        ck_assert(device_allocations(rig.device) == allocations);
    }
    rig_close(&rig);
}
END_TEST

START_TEST(a_recorded_load_reads_the_state_at_replay)
{
    open_default(1, 2);
    struct recording *recording;
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 5, 3, 100, greedy, 1);
    ck_ok(stream_begin_capture(rig.stream));
    ck_ok(round_load_pending(rig.stream, &(struct round_load){rig.b, 1, 2}));
    ck_ok(round_load_block(rig.stream, &(struct round_load){rig.b, 1, 2}));
    ck_ok(stream_end_capture(rig.stream, &recording));
    rig_start(&rig, 1, 8, 6, 100, greedy, 1);
    ck_ok(recording_launch(recording, rig.stream));
    ck_assert(rig.b.draft_tokens[1] == 6 && rig.b.draft_positions_in[1] == 7);
    ck_assert(rig.b.target_tokens[0] == 6 && rig.b.target_positions[2] == 9);
    recording_destroy(recording);
    rig_close(&rig);
}
END_TEST

/* --- inputs ----------------------------------------------------------------------------------------------- */

static void expect_pending(int row, int token0, int position0, int token1, int position1) {
    const int32_t *t = rig.b.draft_tokens + 2 * row, *p = rig.b.draft_positions_in + 2 * row;
    ck_assert_msg(t[0] == token0 && p[0] == position0 && t[1] == token1 && p[1] == position1,
                  "row %d: %d at %d, %d at %d", row, t[0], p[0], t[1], p[1]);
}

START_TEST(load_pending_feeds_the_last_two_tokens)
{
    open_with(
        (struct round_state){
            .slots = 7, .max_batch = 7, .k_max = 2, .vocab_target = V, .vocab_draft = 30, .draft_positions = 20},
        NULL, 1);
    rig_start(&rig, 1, 9, 4, 10, greedy, 1);
    rig.b.slot[1].last[0] = 12;
    rig_start(&rig, 2, 1, 4, 10, greedy, 1);
    rig_start(&rig, 3, 9, 35, 10, greedy, 1); /* past the draft's map */
    rig.b.slot[3].last[0] = 30;
    rig_start(&rig, 4, 20, 4, 10, greedy, 1);
    rig_start(&rig, 5, 21, 4, 10, greedy, 1); /* t[n-1] past the draft's limit */
    rig_start(&rig, 6, 9, 4, 10, greedy, 1);
    rig.b.slot[6].status = SLOT_END;
    for (int row = 0; row < 7; row++) rig.b.row_slot[row] = (row + 1) % 7;
    ck_ok(round_load_pending(rig.stream, &(struct round_load){rig.b, 7, 2}));
    expect_pending(0, 12, 7, 4, 8);
    expect_pending(1, 0, -1, 4, 0);
    expect_pending(2, 0, 7, 0, 8);
    expect_pending(3, 0, 18, 4, 19);
    expect_pending(4, 0, 19, 0, -1);
    expect_pending(5, 0, -1, 0, -1);
    expect_pending(6, 0, -1, 0, -1);
    rig_close(&rig);
}
END_TEST

START_TEST(a_cut_draft_reads_all_ids_and_proposes_its_own)
{
    static const int32_t ids[] = {3, 9, 28};
    static const float logits[] = {1, 5, 2};
    open_with((struct round_state){.slots = 2,
                                   .max_batch = 1,
                                   .k_max = 1,
                                   .vocab_target = V,
                                   .vocab_draft = 3,
                                   .vocab_input = 30,
                                   .draft_is_cut = true,
                                   .draft_positions = 20},
              NULL, 1);
    rig_cut_draft(&rig, ids);
    rig_start(&rig, 1, 9, 29, 10, greedy, 1);
    rig.b.slot[1].last[0] = 30; /* past the draft's map */
    rig.b.row_slot[0] = 1;
    ck_ok(round_load_pending(rig.stream, &(struct round_load){rig.b, 1, 1}));
    expect_pending(0, 0, 7, 29, 8);
    memcpy(rig.b.draft_logits, logits, sizeof logits);
    rig_draw(&rig, 1, 0);
    ck_assert(rig.b.drafted[1] == 9 && rig.b.draft_tokens[0] == 9);
    for (int id = 0; id < V; id++)
        ck_assert(round_q(&rig.b, round_p_draft(&rig.b, 1, 0), id) == (id == 9 ? 1.0f : 0.0f));
    rig_close(&rig);
}
END_TEST

START_TEST(load_block_feeds_pending_and_drafted)
{
    open_default(3, 3);
    rig_start(&rig, 2, 9, 4, 10, greedy, 1);
    rig.b.row_slot[0] = 0, rig.b.row_slot[1] = 2;
    int32_t *d = rig.b.drafted + 2 * 3;
    d[0] = 7, d[1] = -1, d[2] = V;
    ck_ok(round_load_block(rig.stream, &(struct round_load){rig.b, 2, 3}));
    static const int32_t tokens[] = {0, 0, 0, 0, 4, 7, 0, 0}, positions[] = {-1, -1, -1, -1, 8, 9, 10, 11};
    ck_assert_mem_eq(rig.b.target_tokens, tokens, sizeof tokens);
    ck_assert_mem_eq(rig.b.target_positions, positions, sizeof positions);
    ck_ok(round_load_block(rig.stream, &(struct round_load){rig.b, 2, 0})); /* packed by the round's own k */
    ck_assert(rig.b.target_tokens[1] == 4 && rig.b.target_positions[1] == 8);
    rig_close(&rig);
}
END_TEST

/* --- draws ------------------------------------------------------------------------------------------------ */

START_TEST(a_drafted_token_is_drawn_from_the_stored_q)
{
    static const struct sampling settings[] = {
        {0, 1, 0, 0, 1}, {0.7f, 1, 0, 0, 1}, {1, 0.8f, 0, 5, 1}, {1.5f, 1, 0.1f, 0, 1}};
    open_default(4, 6);
    models.sharp = false;
    for (int slot = 1; slot <= 4; slot++) {
        rig_start(&rig, slot, 10 * slot, slot, 100, settings[slot - 1], 50 + (uint64_t)slot);
        rig.b.row_slot[4 - slot] = slot;
    }
    rig_draft(&rig, 4, 6, counting_draft, &models);
    for (int slot = 1; slot <= 4; slot++)
        for (int i = 0, last = slot; i < 6; i++) {
            float logits[V], expected[V];
            const float *q = rig.b.p_draft + (slot * 6 + i) * V;
            counting_draft(&models, last, 10 * slot - 1 + i, logits);
            ck_ok(sampling_distribution(&settings[slot - 1], logits, V, expected));
            ck_assert_mem_eq(q, expected, sizeof expected);
            last = rig.b.drafted[slot * 6 + i];
            ck_assert_int_eq(last,
                             sampling_draw(q, V, 50 + (uint64_t)slot, (uint64_t)(10 * slot + i), PHILOX_DRAFT_DRAW));
        }
    rig_close(&rig);
}
END_TEST

START_TEST(k_0_is_a_plain_draw_of_the_target)
{
    open_default(1, 4);
    models.sharp = false;
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 1, 3, 30, (struct sampling){1, 0.9f, 0, 0, 1}, 9);
    for (int n = 1, last = 3; n < 31; n++) {
        float logits[V], p[V];
        counting_target(&models, last, n - 1, logits);
        ck_ok(sampling_distribution(&rig.b.slot[1].sampling, logits, V, p));
        rig_score(&rig, 1, 0, counting_target, &models);
        rig_accept(&rig, 1, 0);
        last = rig.b.records[0].tokens[0];
        ck_assert_int_eq(last, sampling_draw(p, V, 9, (uint64_t)n, PHILOX_PLAIN));
        ck_assert(rig.b.records[0].k == 0 && rig.b.records[0].emitted == 1 && rig.b.records[0].evaluated == 0);
    }
    ck_assert_int_eq(rig.b.slot[1].status, SLOT_LENGTH);
    rig_close(&rig);
}
END_TEST

/* The whole text of one request, in some slot and row, beside some neighbours. */
static void generate(int max_batch, int slot, int row, uint64_t key, int32_t *text, int count) {
    open_default(max_batch, 4);
    models.sharp = false;
    for (int s = 1; s <= max_batch; s++) rig_start(&rig, s, 3 + s, s, 2 * s, plain, 900 + (uint64_t)s);
    rig_start(&rig, slot, 5, 17, count, plain, key);
    for (int r = 0; r < max_batch; r++) rig.b.row_slot[r] = 1 + (r - row + slot - 1 + max_batch) % max_batch;
    for (int done = 0; done < count;) {
        const struct round_record *record = &round_of(max_batch, 4)[row];
        ck_assert_int_eq(record->slot, slot);
        memcpy(text + done, record->tokens, sizeof *text * (size_t)record->emitted);
        done += record->emitted;
    }
    rig_close(&rig);
}

START_TEST(text_depends_on_the_seed_alone)
{
    enum { LENGTH = 60 };
    int32_t text[LENGTH], other[LENGTH];
    generate(1, 1, 0, 123, text, LENGTH);
    generate(1, 1, 0, 124, other, LENGTH);
    ck_assert(memcmp(text, other, sizeof text) != 0);
    static const int places[][3] = {{2, 1, 1}, {2, 2, 0}, {8, 5, 2}, {8, 8, 7}, {8, 1, 4}};
    for (int i = 0; i < 5; i++) {
        generate(places[i][0], places[i][1], places[i][2], 123, other, LENGTH);
        ck_assert_mem_eq(text, other, sizeof text);
    }
}
END_TEST

/* Two rounds over a vocabulary that is worth several threads. */
static void two_rounds(int threads, struct round_record *records) {
    enum { WIDE = 9000 };
    open_with(
        (struct round_state){
            .slots = 5, .max_batch = 4, .k_max = 3, .vocab_target = WIDE, .vocab_draft = WIDE, .draft_positions = 1000},
        NULL, threads);
    models.sharp = false;
    for (int slot = 1; slot <= 4; slot++) {
        rig_start(&rig, slot, 5, slot, 100, plain, (uint64_t)slot);
        rig.b.row_slot[slot - 1] = slot;
    }
    for (int round = 0; round < 2; round++) memcpy(records + 4 * round, round_of(4, 3), 4 * sizeof *records);
    rig_close(&rig);
}

START_TEST(threads_change_nothing)
{
    struct round_record one[8], three[8];
    two_rounds(1, one);
    two_rounds(3, three);
    for (int i = 0; i < 8; i++) {
        ck_assert(one[i].emitted == three[i].emitted && one[i].overlap_sum == three[i].overlap_sum);
        ck_assert_mem_eq(one[i].tokens, three[i].tokens, sizeof *one[i].tokens * (size_t)one[i].emitted);
    }
}
END_TEST

/* --- the rule --------------------------------------------------------------------------------------------- */

START_TEST(greedy_accepts_equal_argmaxes_and_adds_a_bonus)
{
    open_default(1, 4);
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 5, 3, 100, greedy, 1);
    const struct round_record *r = round_of(1, 4);
    static const int32_t all[] = {4, 5, 6, 7, 8};
    ck_assert(r->live == 1 && r->status == SLOT_LIVE && r->k == 4 && r->slot == 1 && r->serial == 1001);
    ck_assert(r->emitted == 5 && r->accepted == 4 && r->rejected == 0 && r->evaluated == 4 && r->length == 10);
    ck_assert(r->overlap_sum == 4);
    ck_assert_mem_eq(r->tokens, all, sizeof all);
    ck_assert(rig.b.slot[1].length == 10 && rig.b.slot[1].last[0] == 7 && rig.b.slot[1].last[1] == 8);

    models.disagree = 10; /* d_3 is 12 where the target wants 11 */
    r = round_of(1, 4);
    static const int32_t some[] = {9, 10, 11};
    ck_assert(r->emitted == 3 && r->accepted == 2 && r->rejected == 1 && r->evaluated == 3 && r->length == 13);
    ck_assert(r->overlap_sum == 2);
    ck_assert_mem_eq(r->tokens, some, sizeof some);
    rig_close(&rig);
}
END_TEST

START_TEST(ids_that_no_draft_can_draw_are_never_accepted)
{
    static const int bad[] = {-1, -1000000, 30, V, 1 << 30};
    for (int i = 0; i < 5; i++) {
        open_with(
            (struct round_state){
                .slots = 2, .max_batch = 1, .k_max = 2, .vocab_target = V, .vocab_draft = 30, .draft_positions = 1000},
            NULL, 1);
        rig.b.row_slot[0] = 1;
        rig_start(&rig, 1, 5, 3, 100, plain, 4);
        rig_draft(&rig, 1, 2, counting_draft, &models);
        rig.b.drafted[2] = bad[i];
        rig_score(&rig, 1, 2, counting_target, &models);
        rig_accept(&rig, 1, 2);
        const struct round_record *r = rig.b.records;
        ck_assert(r->emitted == 1 && r->accepted == 0 && r->rejected == 1);
        ck_assert(r->tokens[0] >= 0 && r->tokens[0] < V);
        rig_close(&rig);
    }
}
END_TEST

/* q equals p and the token cannot be accepted: the residual is empty, so p itself is drawn from. */
START_TEST(an_empty_residual_draws_from_p)
{
    open_default(1, 1);
    models.sharp = false;
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 5, 3, 100, plain, 4);
    rig_draft(&rig, 1, 1, counting_target, &models);
    rig.b.drafted[1] = -1;
    rig_score(&rig, 1, 1, counting_target, &models);
    rig_accept(&rig, 1, 1);
    int expected = sampling_draw(rig.b.p_draft + V, V, 4, 5, PHILOX_RESIDUAL);
    ck_assert(rig.b.records[0].emitted == 1 && rig.b.records[0].tokens[0] == expected);
    rig_close(&rig);
}
END_TEST

START_TEST(tokens_past_the_drafts_map_come_from_the_residual)
{
    open_with(
        (struct round_state){
            .slots = 2, .max_batch = 1, .k_max = 3, .vocab_target = V, .vocab_draft = 30, .draft_positions = 1000},
        NULL, 1);
    rig.b.row_slot[0] = 1;
    rig_start(&rig, 1, 5, 30, 100, greedy, 4);
    const struct round_record *r = round_of(1, 3); /* the target wants 31, which the draft does not know */
    ck_assert(r->emitted == 1 && r->rejected == 1 && r->tokens[0] == 31 && r->overlap_sum == 0);
    ck_assert_int_eq(rig.b.draft_tokens[0], rig.b.drafted[3 + 2]);
    rig_close(&rig);
}
END_TEST

/* Padding ids past the map neither win nor count as non-finite, at any K. */
START_TEST(padding_ids_are_masked)
{
    for (int k = 0; k <= 2; k++) {
        open_with((struct round_state){.slots = 2,
                                       .max_batch = 1,
                                       .k_max = 2,
                                       .vocab_target = V,
                                       .vocab_draft = V,
                                       .target_stride = V + 24,
                                       .draft_stride = V + 8,
                                       .draft_positions = 1000},
                  NULL, 1);
        rig.b.row_slot[0] = 1;
        rig_start(&rig, 1, 5, 3, 100, greedy, 4);
        for (int j = 0; j <= k; j++)
            for (int i = V; i < V + 24; i++) rig.b.target_logits[j * (V + 24) + i] = i % 2 ? 1e30f : NAN;
        for (int i = V; i < V + 8; i++) rig.b.draft_logits[i] = i % 2 ? 1e30f : NAN;
        const struct round_record *r = round_of(1, k);
        ck_assert(r->status == SLOT_LIVE && r->emitted == k + 1 && r->tokens[0] == 4);
        rig_close(&rig);
    }
}
END_TEST

Suite *check_sampler(void);
Suite *check_sampler(void) {
    Suite *suite = suite_create("sampler");
    TCase *c = tcase_create("sampler");
    tcase_add_test(c, layout_refuses_sizes_that_make_no_sense);
    tcase_add_test(c, scratch_of_a_gpu_is_not_planned_on_the_host);
    tcase_add_test(c, layout_without_draft_logits_has_drafted_tokens_alone);
    tcase_add_test(c, layout_without_a_draft_has_no_draft_buffers);
    tcase_add_test(c, shapes_past_the_buffers_are_refused);
    tcase_add_test(c, a_round_counts_its_launches_and_allocates_nothing);
    tcase_add_test(c, a_recorded_load_reads_the_state_at_replay);
    tcase_add_test(c, load_pending_feeds_the_last_two_tokens);
    tcase_add_test(c, a_cut_draft_reads_all_ids_and_proposes_its_own);
    tcase_add_test(c, load_block_feeds_pending_and_drafted);
    tcase_add_test(c, a_drafted_token_is_drawn_from_the_stored_q);
    tcase_add_test(c, k_0_is_a_plain_draw_of_the_target);
    tcase_add_test(c, text_depends_on_the_seed_alone);
    tcase_add_test(c, threads_change_nothing);
    tcase_add_test(c, greedy_accepts_equal_argmaxes_and_adds_a_bonus);
    tcase_add_test(c, ids_that_no_draft_can_draw_are_never_accepted);
    tcase_add_test(c, an_empty_residual_draws_from_p);
    tcase_add_test(c, tokens_past_the_drafts_map_come_from_the_residual);
    tcase_add_test(c, padding_ids_are_masked);
    suite_add_tcase(suite, c);
    return suite;
}
