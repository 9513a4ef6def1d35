/* The target's own head as a proposer: what it drafts is what transformers' layers, put together as its authors do, draft. Its rounds are
 * held to texts and to fresh caches in check_recurrent; heads with files of their own are in check_drafters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft/history.h"
#include "engine/probe.h"
#include "tests/support/damage.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/head_support.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { K = 3 };

/* Of the test data; and tiny ones, of which one has an embedding and a head of its own. */
static const char *const heads[] = {"qwen3-next", "qwen3.5", "qwen3.5-moe"}, *const tiny[] = {"qwen3-next", "qwen3_5",
                                                                                              "qwen3_5-moe", "glm4-moe",
                                                                                              "glm4-moe-norms"};
enum { HEADS = sizeof heads / sizeof *heads, TINY = sizeof tiny / sizeof *tiny };

START_TEST(heads_of_the_test_data_draft_as_the_reference)
{
    char relative[128], dir[4096];
    snprintf(relative, sizeof relative, "fixtures/families/%s", heads[_i]);
    const char *found = shared_path(relative);
    if (!found) {
        skip("no test data beside the checkout");
        return;
    }
    snprintf(dir, sizeof dir, "%s", found);
    snprintf(relative, sizeof relative, "fixtures/families/%s/reference_mtp.json", heads[_i]);
    cJSON *references = must_load_json(shared_path(relative));
    head_must_draft(dir, NULL, references, heads[_i]);
    cJSON_Delete(references);
}
END_TEST

START_TEST(heads_of_tiny_models_draft_as_the_reference)
{
    char dir[256];
    cJSON *all = tiny_model_load(tiny[_i]);
    tiny_model_write(all, "config", dir);
    head_must_draft(dir, NULL, json_get(all, "mtp_references"), tiny[_i]);
    cJSON_Delete(all);
}
END_TEST

START_TEST(a_head_in_a_gguf_file_drafts_as_the_reference)
{
    char dir[256], path[320];
    cJSON *all = tiny_model_load(tiny[_i]);
    tiny_model_write(all, "config", dir);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_convert(dir, path, 1);
    head_must_draft(path, NULL, json_get(all, "mtp_references"), path);
    cJSON_Delete(all);
}
END_TEST

/* Of the ids of a cut head those whose logits are the reference's are drawn from; a head in other numbers drafts something else and
 * loses nothing (check_recurrent). */
START_TEST(a_cut_head_gives_the_logits_of_its_ids)
{
    char dir[256], own[256], file[320];
    const bool is_apart = _i == TINY; /* an assistant, whose head is its embedding */
    static const int ids[] = {1, 2, 5, 40, 41, 95};
    enum { IDS = sizeof ids / sizeof *ids };
    struct buf text = {0};
    cJSON *all = tiny_model_load(is_apart ? "gemma4-assistant" : tiny[_i]),
          *of = is_apart ? tiny_model_load("gemma4") : NULL;
    tiny_model_write(is_apart ? of : all, "config", dir);
    if (is_apart) tiny_model_write(all, "config", own);
    snprintf(file, sizeof file, "%s/ids", dir);
    for (int i = 0; i < IDS; i++) buf_printf(&text, "%d\n", ids[i]);
    damage_write_text(file, buf_text(&text));
    struct engine *e = head_open(dir, is_apart ? own : NULL, 1, file);
    const cJSON *r = json_get(all, "mtp_references")->child;
    const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
    struct ids tokens = json_ids(r, "prompt");
    int32_t drafted;
    float logits[IDS];
    ids_append(&tokens, &next, 1);
    head_first_round(e, &tokens, 1, &drafted, logits);
    double largest = 0;
    for (int i = 0; i < engine_info(e).vocab; i++) largest = fmax(largest, fabs(json_at(r, "mtp_logits", i)));
    for (int i = 0; i < IDS; i++)
        ck_assert_double_le(fabs(logits[i] - json_at(r, "mtp_logits", ids[i])), 5e-2 * largest);
    engine_destroy(e);
    ids_free(&tokens), buf_free(&text);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* Loop index: the shift. The slots have ended, one token, two, many; and the last stands where the draft's positions end. */
START_TEST(the_first_pass_reads_the_last_tokens_of_the_history)
{
    enum { SLOTS = 6, FIRST = 4, CAPACITY = 64, LIMIT = 30 };
    static const int lengths[SLOTS] = {1, 9, 1, 2, 20, LIMIT + 2};
    struct rig rig;
    struct pool *pool;
    struct history history = {.capacity = CAPACITY};
    int32_t tokens[SLOTS][CAPACITY];
    const struct round_state sizes = {.slots = SLOTS,
                                      .max_batch = SLOTS,
                                      .k_max = FIRST - 1,
                                      .vocab_target = 500,
                                      .vocab_draft = 500,
                                      .vocab_input = 500,
                                      .draft_stride = 500,
                                      .draft_positions = LIMIT,
                                      .draft_first = FIRST,
                                      .draft_shift = _i};
    rig_open(&rig, &sizes, NULL, 1);
    ck_ok(pool_create(stream_device(rig.stream), sizeof tokens, &pool));
    ck_ok(pool_slice(pool, POOL_SCRATCH, "history", sizeof tokens, (void **)&history.tokens));
    for (int s = 0; s < SLOTS; s++) {
        for (int i = 0; i < CAPACITY; i++) tokens[s][i] = i < lengths[s] ? 60 * s + i + 1 : 99999;
        if (s > 0) rig_start(&rig, s, lengths[s], tokens[s][lengths[s] - 1], 9, (struct sampling){1, 1, 0, 0, 1}, 1);
        rig.b.row_slot[s] = SLOTS - 1 - s;
    }
    rig.b.slot[1].status = SLOT_END;
    rig_send(&rig);
    ck_ok(stream_copy(rig.stream, history.tokens, tokens, sizeof tokens));
    ck_ok(history_load(rig.stream, &(struct history_rows){rig.there, history, SLOTS, FIRST}));
    rig_fetch(&rig);
    for (int at = 0; at < SLOTS * FIRST; at++) {
        const int s = rig.b.row_slot[at / FIRST], place = lengths[s] - FIRST + at % FIRST, position = place - _i;
        const bool is_there = s > 1 && position >= 0 && position < LIMIT;
        ck_assert_int_eq(rig.b.draft_positions_in[at], is_there ? position : -1);
        ck_assert_int_eq(rig.b.draft_tokens[at], is_there ? tokens[s][place] : 0);
    }
    pool_destroy(pool);
    rig_close(&rig);
}
END_TEST

/* Pieces of a prompt into the head go no further than the target's, which are smaller here; what it read there would be NaN. */
START_TEST(a_prompt_in_pieces_is_read_behind_the_target)
{
    char dir[256];
    cJSON *all = tiny_model_load(tiny[_i]);
    const cJSON *r = json_get(all, "mtp_references")->child;
    tiny_model_write(all, "config", dir);
    struct engine *e = head_open(dir, NULL, K, NULL);
    const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
    struct ids tokens = json_ids(r, "prompt");
    int32_t drafted[K];
    ids_append(&tokens, &next, 1);
    probe_set_row_invariant_prefill(e, true);
    ck_ok(probe_fill_free_pages(e, 0xff));
    head_first_round(e, &tokens, K, drafted, NULL);
    for (int i = 0; i < K && (test_device_is_host() || json_at(r, "gaps", i) >= 0.15); i++)
        ck_assert_int_eq(drafted[i], (int)json_at(r, "drafts", i));
    engine_destroy(e);
    ids_free(&tokens);
    cJSON_Delete(all);
}
END_TEST

/* Rounds that accept all they draft leave nothing of the head's guesses: the next one drafts as after a prompt of the same tokens. */
START_TEST(drafts_behind_rounds_that_accept_all_are_those_of_a_fresh_prompt)
{
    enum { ROUNDS = 4, PROMPT = 6 };
    char dir[256];
    cJSON *all = tiny_model_load(tiny[_i]);
    tiny_model_write(all, "config", dir);
    struct engine *e = head_open(dir, NULL, K, NULL), *fresh = head_open(dir, NULL, K, NULL);
    struct request request = ids_request((const int32_t[]){5, 9, 40, 41, 7, 60}, PROMPT, ROUNDS * (K + 1));
    struct sequence *s;
    request.generation.ignore_end = true;
    probe_set_simulate_alpha(e, 1);
    probe_set_row_invariant_prefill(e, true), probe_set_row_invariant_prefill(fresh, true);
    ck_ok(engine_open(e, 128, &s));
    struct answer a = run_turn(e, s, &request);
    ck_assert_int_eq((int)a.stats.accepted, ROUNDS * K);
    for (int round = 1; round < ROUNDS; round++) {
        const size_t before = (size_t)(round * (K + 1));
        int32_t drafted[K];
        struct ids history = {0};
        ids_append(&history, request.prompt.data, request.prompt.len);
        ids_append(&history, a.ids.data, before);
        head_first_round(fresh, &history, K, drafted, NULL);
        for (int i = 0; i < K; i++) ck_assert_int_eq(drafted[i], a.ids.data[before + (size_t)i]);
        ids_free(&history);
    }
    free_answers(&a, 1), free_requests(&request, 1);
    engine_destroy(e), engine_destroy(fresh);
    cJSON_Delete(all);
}
END_TEST

struct blocks {
    struct engine *engine; /* whose K it changes; NULL: it does not */
    int count, sizes[128];
};

/* The K of rounds to come, behind a plain one: some go before and behind each other, with plain ones, one and several, between them. */
static void note_block(void *user, struct token_block *block) {
    static const int ks[] = {1, 0, 5, 2, 3, 0, 4, 0, 0, 0, 1, 1, 5, 5, 0, 2};
    struct blocks *w = user;
    ck_assert_int_lt(w->count, 128);
    w->sizes[w->count++] = block->count;
    if (w->engine) ck_ok(engine_set_k(w->engine, ks[w->count % (int)(sizeof ks / sizeof *ks)]));
}

/* What was drafted of a sequence's blocks is what a fresh engine drafts of the tokens before each. Returns how many. */
static int must_draft_blocks(const struct blocks *w, const struct sequence *s, int prompt, struct engine *fresh,
                             int most) {
    int length, drafts = 0;
    const int32_t *tokens = engine_tokens(s, &length);
    size_t at = (size_t)prompt;
    struct ids history = {0};
    ids_append(&history, tokens, (size_t)length);
    for (int b = 0; b < w->count && at + (size_t)w->sizes[b] < history.len; b++) {
        const struct ids before = {.data = history.data, .len = at};
        int32_t drafted[8];
        if (w->sizes[b] > 1) head_first_round(fresh, &before, most, drafted, NULL);
        for (int i = 0; i < w->sizes[b] - 1; i++, drafts++)
            ck_assert_msg(drafted[i] == history.data[at + (size_t)i], "prompt of %d, block %d of %d tokens, draft %d",
                          prompt, b, w->sizes[b], i);
        at += (size_t)w->sizes[b];
    }
    ids_free(&history);
    return drafts;
}

/* The first pass of a round is as wide as the round before it left its rows behind: whatever K that had, drafts are those of a fresh prompt,
 * of a row that comes later, too. Loop index: rounds in flight. */
START_TEST(drafts_behind_rounds_of_another_k_are_those_of_a_fresh_prompt)
{
    enum { MOST = 5, TOKENS = 120, ROWS = 5, LATER = 6 };
    static const int prompts[ROWS] = {3, 11, 6, 9, 8};
    static const int32_t ids[] = {5, 9, 40, 41, 7, 60, 8, 30, 31, 12, 77};
    char dir[256];
    cJSON *all = tiny_model_load("qwen3_5");
    tiny_model_write(all, "config", dir);
    struct engine *fresh = head_open(dir, NULL, MOST, NULL);
    struct engine *e = must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                                          .proposer = "mtp",
                                                          .device = test_device(),
                                                          .context = 256,
                                                          .k = MOST,
                                                          .max_batch = ROWS,
                                                          .pipeline = _i});
    struct blocks blocks[ROWS] = {{.engine = e}};
    struct sequence *rows[ROWS];
    probe_set_simulate_alpha(e, 1);
    probe_set_row_invariant_prefill(e, true), probe_set_row_invariant_prefill(fresh, true);
    for (int i = 0; i < ROWS; i++) ck_ok(engine_open(e, 256, &rows[i]));
    ck_ok(engine_set_k(e, 0));
    for (int i = 0, running = 1, steps = 0; running > 0 || i < ROWS; steps++) {
        if (i < ROWS && steps >= i * LATER) {
            struct request r = ids_request(ids, (size_t)prompts[i], TOKENS);
            r.generation.ignore_end = true, r.generation.on_tokens = note_block, r.generation.user = &blocks[i];
            ck_ok(engine_generate(e, rows[i], r.prompt.data, prompts[i], &r.generation));
            free_requests(&r, 1), i++;
        }
        ck_ok(engine_step(e, &running));
    }
    for (int i = 0; i < ROWS; i++)
        ck_assert_int_gt(must_draft_blocks(&blocks[i], rows[i], prompts[i], fresh, MOST), TOKENS / 3);
    engine_destroy(e), engine_destroy(fresh);
    cJSON_Delete(all);
}
END_TEST

/* DRAFT_FIRST is wider than what catches up at once. */
START_TEST(the_largest_k_has_room)
{
    char dir[256];
    cJSON *all = tiny_model_load("qwen3_5");
    tiny_model_write(all, "config", dir);
    struct engine *e = must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                                          .proposer = "mtp",
                                                          .device = test_device(),
                                                          .context = 200,
                                                          .k = K_MAX,
                                                          .max_batch = 1});
    struct request r = ids_request((const int32_t[]){5, 9, 40}, 3, 20);
    struct answer a;
    run_requests(e, &r, 1, &a);
    free_answers(&a, 1), free_requests(&r, 1);
    engine_destroy(e);
    cJSON_Delete(all);
}
END_TEST

/* There is no hidden row before its token. */
START_TEST(a_sequence_of_one_token_is_offered_nothing)
{
    char dir[256];
    cJSON *all = tiny_model_load("qwen3_5");
    tiny_model_write(all, "config", dir);
    struct engine *e = head_open(dir, NULL, K, NULL);
    struct sequence *s;
    for (int length = 1; length <= 2; length++) {
        struct request r = ids_request((const int32_t[]){7, 8}, (size_t)length, 1);
        r.generation.ignore_end = true;
        ck_ok(engine_open(e, 64, &s));
        struct answer a = run_turn(e, s, &r);
        ck_assert_int_eq((int)a.stats.drafted, length == 1 ? 0 : K);
        engine_close(e, s);
        free_answers(&a, 1), free_requests(&r, 1);
    }
    engine_destroy(e);
    cJSON_Delete(all);
}
END_TEST

START_TEST(what_has_no_such_head_is_refused_by_name)
{
    static const struct {
        const char *model, *member, *sentence;
        int heads;
    } cases[] = {{"qwen3_5", "mtp_num_hidden_layers", "has no head that proposes tokens, by its configuration", 0},
                 {"qwen3_5", "mtp_num_hidden_layers", "2 heads that propose tokens are not supported, only one", 2},
                 {"glm4-moe", "num_nextn_predict_layers", "has no head that proposes tokens, by its configuration", 0},
                 {"smollm3", "none", "has no head that proposes tokens, or none that duet knows", 0}};
    char dir[256];
    cJSON *all = tiny_model_load(cases[_i].model), *config = cJSON_GetObjectItem(all, "config");
    cJSON_DeleteItemFromObject(config, cases[_i].member);
    cJSON_AddNumberToObject(config, cases[_i].member, cases[_i].heads);
    if (cases[_i].model[0] == 'g') cJSON_DeleteItemFromObject(all, "mtp_tensors");
    tiny_model_write(all, "config", dir);
    head_must_be_refused(dir, NULL, NULL, cases[_i].sentence);
    cJSON_Delete(all);
}
END_TEST

/* Files that some quantisers write leave it out. */
START_TEST(a_head_that_is_not_in_the_files_is_refused)
{
    char dir[256];
    cJSON *all = tiny_model_load("qwen3-next");
    cJSON_DeleteItemFromObject(all, "mtp_tensors");
    tiny_model_write(all, "config", dir);
    head_must_be_refused(dir, NULL, NULL, "tensor 'mtp.pre_fc_norm_embedding.weight' is missing");
    cJSON_Delete(all);
}
END_TEST

DEVICE_SUITE(check_mtp);
Suite *check_mtp(void) {
    Suite *suite = suite_create("mtp");
    TCase *tc = tcase_create("mtp");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, heads_of_the_test_data_draft_as_the_reference, 0, HEADS);
    tcase_add_loop_test(tc, heads_of_tiny_models_draft_as_the_reference, 0, TINY);
    tcase_add_loop_test(tc, a_head_in_a_gguf_file_drafts_as_the_reference, 0, TINY);
    tcase_add_loop_test(tc, a_cut_head_gives_the_logits_of_its_ids, 0, TINY + 1);
    tcase_add_loop_test(tc, what_has_no_such_head_is_refused_by_name, 0, 4);
    tcase_add_loop_test(tc, a_prompt_in_pieces_is_read_behind_the_target, 0, TINY);
    tcase_add_loop_test(tc, drafts_behind_rounds_that_accept_all_are_those_of_a_fresh_prompt, 0, TINY);
    tcase_add_loop_test(tc, drafts_behind_rounds_of_another_k_are_those_of_a_fresh_prompt, 1, 3);
    tcase_add_test(tc, the_largest_k_has_room);
    tcase_add_test(tc, a_sequence_of_one_token_is_offered_nothing);
    tcase_add_loop_test(tc, the_first_pass_reads_the_last_tokens_of_the_history, 0, 2);
    tcase_add_test(tc, a_head_that_is_not_in_the_files_is_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
