/* The target's own head as a proposer: what it drafts is what transformers' layers, put together as its authors do, draft. Its rounds are
 * held to texts and to fresh caches in check_recurrent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft/history.h"
#include "engine/probe.h"
#include "tests/support/damage.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/reference.h"
#include "tests/support/sampler_support.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { K = 3 };

/* Of the test data; and tiny ones, of which one has an embedding and a head of its own. */
static const char *const heads[] = {"qwen3-next", "qwen3.5", "qwen3.5-moe"},
                         *const tiny[] = {"qwen3-next", "qwen3_5", "qwen3_5-moe", "glm4-moe", "glm4-moe-norms"},
                         *const eagles[] = {"eagle3",           "eagle3-specforge",   "eagle3-speculators",
                                            "gemma4-assistant", "gemma4-e-assistant", "dflash",
                                            "dflash-hybrid"};
enum {
    HEADS = sizeof heads / sizeof *heads,
    TINY = sizeof tiny / sizeof *tiny,
    EAGLES = sizeof eagles / sizeof *eagles
};

/* `own`: the directory of a head that has files of its own; NULL: the target's. */
static struct engine *open_with_head(const char *dir, const char *own, int k, const char *vocab) {
    return must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                              .draft = own ? test_checkpoint(own) : NULL,
                                              .proposer = own ? NULL : "mtp",
                                              .draft_vocab = vocab,
                                              .device = test_device(),
                                              .context = 256,
                                              .k = k,
                                              .max_batch = 2});
}

/* The drafts of the first round after these tokens, and the logits of the last of them. */
static void first_round(struct engine *e, const struct ids *tokens, int k, int32_t *drafted, float *logits) {
    struct request r = ids_request(tokens->data, tokens->len, 1);
    struct sequence *s;
    r.generation.ignore_end = true;
    ck_ok(engine_open(e, 128, &s));
    struct answer a = run_turn(e, s, &r);
    ck_ok(probe_read_drafts(e, s, k, drafted, logits));
    engine_close(e, s);
    free_answers(&a, 1), free_requests(&r, 1);
}

/* Behind a draft that a small gap decided those that follow may be others, where activations are 16 bits. */
static void must_draft(const char *dir, const char *own, const cJSON *references, const char *what) {
    const cJSON *r;
    struct engine *one = open_with_head(dir, own, 1, NULL), *some = open_with_head(dir, own, K, NULL);
    const int vocab = cJSON_GetArraySize(json_get(references->child, "mtp_logits"));
    float *logits = malloc((size_t)vocab * sizeof *logits);
    cJSON_ArrayForEach(r, references) {
        const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
        struct ids tokens = json_ids(r, "prompt");
        int32_t drafted[K];
        ids_append(&tokens, &next, 1);
        first_round(one, &tokens, 1, drafted, logits);
        reference_must_be_close(r, "mtp_logits", logits, vocab, what);
        first_round(some, &tokens, K, drafted, NULL);
        for (int i = 0; i < K; i++) {
            if (!test_device_is_host() && json_at(r, "gaps", i) < 0.15) break;
            ck_assert_msg(drafted[i] == (int)json_at(r, "drafts", i), "%s, draft %d: %d, expected %d", what, i,
                          drafted[i], (int)json_at(r, "drafts", i));
        }
        ids_free(&tokens);
    }
    free(logits);
    engine_destroy(one), engine_destroy(some);
}

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
    must_draft(dir, NULL, references, heads[_i]);
    cJSON_Delete(references);
}
END_TEST

START_TEST(heads_of_tiny_models_draft_as_the_reference)
{
    char dir[256];
    cJSON *all = tiny_model_load(tiny[_i]);
    tiny_model_write(all, "config", dir);
    must_draft(dir, NULL, json_get(all, "mtp_references"), tiny[_i]);
    cJSON_Delete(all);
}
END_TEST

START_TEST(heads_with_files_of_their_own_draft_as_the_reference)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load(eagles[_i]), *of = tiny_model_load(json_get(all, "of")->valuestring);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    must_draft(dir, own, json_get(all, "mtp_references"), eagles[_i]);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* As the first released heads are. */
START_TEST(models_and_heads_may_be_files_of_pytorch)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load(json_get(all, "of")->valuestring);
    tiny_model_write_torch(of, "config", dir);
    tiny_model_write_torch(all, "config", own);
    must_draft(dir, own, json_get(all, "mtp_references"), "files of PyTorch");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* All of a model's tensors, but what must be F32. */
static void set_type(cJSON *all, const char *type) {
    cJSON *tensor;
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(all, "tensors"))
        cJSON_ReplaceItemInArray(tensor, 4, cJSON_CreateString(type));
}

/* Released heads are often in f16. A model that is f16 throughout is computed in it, its head as well. */
START_TEST(a_head_may_be_of_another_type_than_its_model)
{
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load("seed-oss");
    set_type(_i == 0 ? of : all, "F16");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    must_draft(dir, own, json_get(all, "mtp_references"), _i == 0 ? "a model in f16" : "a head in f16");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

START_TEST(a_head_in_a_gguf_file_drafts_as_the_reference)
{
    char dir[256], path[320];
    cJSON *all = tiny_model_load(tiny[_i]);
    tiny_model_write(all, "config", dir);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_convert(dir, path, 1);
    must_draft(path, NULL, json_get(all, "mtp_references"), path);
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
    struct engine *e = open_with_head(dir, is_apart ? own : NULL, 1, file);
    const cJSON *r = json_get(all, "mtp_references")->child;
    const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
    struct ids tokens = json_ids(r, "prompt");
    int32_t drafted;
    float logits[IDS];
    ids_append(&tokens, &next, 1);
    first_round(e, &tokens, 1, &drafted, logits);
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
    struct engine *e = open_with_head(dir, NULL, K, NULL);
    const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
    struct ids tokens = json_ids(r, "prompt");
    int32_t drafted[K];
    ids_append(&tokens, &next, 1);
    probe_set_row_invariant_prefill(e, true);
    ck_ok(probe_fill_free_pages(e, 0xff));
    first_round(e, &tokens, K, drafted, NULL);
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
    struct engine *e = open_with_head(dir, NULL, K, NULL), *fresh = open_with_head(dir, NULL, K, NULL);
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
        first_round(fresh, &history, K, drafted, NULL);
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
        if (w->sizes[b] > 1) first_round(fresh, &before, most, drafted, NULL);
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
    struct engine *fresh = open_with_head(dir, NULL, MOST, NULL);
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
    struct engine *e = open_with_head(dir, NULL, K, NULL);
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

static void must_be_refused(const char *dir, const char *own, const char *vocab, const char *sentence) {
    struct engine *e;
    const struct engine_options options = {.target = test_checkpoint(dir),
                                           .draft = own ? test_checkpoint(own) : NULL,
                                           .proposer = own ? NULL : "mtp",
                                           .draft_vocab = vocab,
                                           .device = test_device(),
                                           .k = 2,
                                           .max_batch = 1};
    ck_assert_int_lt(engine_create(&e, &options), 0);
    ck_assert_msg(strstr(err_message(), sentence) != NULL, "%s", err_message());
}

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
    must_be_refused(dir, NULL, NULL, cases[_i].sentence);
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
    must_be_refused(dir, NULL, NULL, "tensor 'mtp.pre_fc_norm_embedding.weight' is missing");
    cJSON_Delete(all);
}
END_TEST

/* Ids of a head in files: one that is changed, by how much; or one tensor that is left out, or an option. */
static const struct misfit {
    int id, by;
    const char *tensor, *member, *vocab, *sentence;
    double value;
} misfits[] = {
    {.id = 5, .by = -60, .sentence = "tensor 'd2t' has no ascending ids of the target, at 5"},
    {.id = 39, .by = 1000, .sentence = "tensor 'd2t' has no ascending ids of the target, at 39"},
    {.tensor = "fc.weight", .sentence = "tensor 'fc.weight' is missing"},
    {.tensor = "midlayer.hidden_norm.weight", .sentence = "tensor 'midlayer.hidden_norm.weight' is missing"},
    {.member = "hidden_size", .value = 64, .sentence = "is for a model of width 64 with 96 tokens, and "},
    {.member = "target_hidden_size", .value = 48, .sentence = "is for a model of width 48 with 96 tokens, and "},
    {.member = "vocab_size", .value = 2000, .sentence = "is for a model of width 32 with 2000 tokens, and "},
    {.member = "eagle_aux_hidden_state_layer_ids", .sentence = "reads the rows before layers 2, 2 and 1 of "},
    {.vocab = "20", .sentence = "is cut to 40 ids already"},
};
enum { MISFITS = sizeof misfits / sizeof *misfits };

START_TEST(a_head_with_files_of_its_own_that_does_not_fit_is_refused)
{
    const struct misfit *d = &misfits[_i];
    char dir[256], own[256];
    cJSON *all = tiny_model_load("eagle3"), *of = tiny_model_load("seed-oss"), *tensor;
    cJSON *config = cJSON_GetObjectItem(all, "config"), *tensors = cJSON_GetObjectItem(all, "tensors");
    if (d->by != 0) cJSON_GetArrayItem(cJSON_GetObjectItem(all, "ids"), d->id)->valuedouble += d->by;
    cJSON_ArrayForEach(tensor, tensors) if (d->tensor && strcmp(tensor->child->valuestring, d->tensor) == 0) break;
    if (d->tensor) cJSON_Delete(cJSON_DetachItemViaPointer(tensors, tensor));
    if (d->member) cJSON_DeleteItemFromObject(config, d->member);
    if (d->value != 0) cJSON_AddNumberToObject(config, d->member, d->value);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    must_be_refused(dir, own, d->vocab, d->sentence);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

START_TEST(an_assistant_drafts_in_gguf_files)
{
    char dir[256], own[256], path[320], own_path[320];
    cJSON *all = tiny_model_load("gemma4-e-assistant"), *of = tiny_model_load("gemma4-e");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    snprintf(own_path, sizeof own_path, "%s/model.gguf", own);
    gguf_convert(dir, path, 1);
    gguf_convert(own, own_path, 1);
    must_draft(path, own, json_get(all, "mtp_references"), "a target in GGUF");
    must_draft(path, own_path, json_get(all, "mtp_references"), "both in GGUF");
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* The target may have ids more, added later or as padding. */
START_TEST(an_assistant_is_cut_to_ids_that_it_has)
{
    char dir[256], own[256], vocab[320];
    cJSON *all = tiny_model_load("gemma4-assistant"), *of = tiny_model_load("gemma4"), *tensor;
    cJSON *text = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "config"), "text_config");
    cJSON_SetNumberValue(cJSON_GetObjectItem(text, "vocab_size"), 40);
    cJSON_ArrayForEach(tensor,
                       cJSON_GetObjectItem(all, "tensors")) if (strstr(tensor->child->valuestring, "embed_tokens"))
        cJSON_SetNumberValue(cJSON_GetArrayItem(cJSON_GetArrayItem(tensor, 1), 0), 40);
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    snprintf(vocab, sizeof vocab, "%s/ids", dir);
    damage_write_text(vocab, "5\n39\n40\n");
    must_be_refused(dir, own, vocab, "40");
    damage_write_text(vocab, "5\n39\n");
    engine_destroy(open_with_head(dir, own, 1, vocab));
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* K = 8 of a block of 6. */
START_TEST(a_block_offers_what_it_has)
{
    enum { MOST = 8, BLOCK = 6 };
    char dir[256], own[256];
    cJSON *all = tiny_model_load("dflash"), *of = tiny_model_load("seed-oss");
    tiny_model_write(of, "config", dir);
    tiny_model_write(all, "config", own);
    struct engine *e = open_with_head(dir, own, MOST, NULL);
    struct request r = ids_request((const int32_t[]){5, 9, 40}, 3, 1);
    r.generation.ignore_end = true;
    struct answer a;
    run_requests(e, &r, 1, &a);
    ck_assert_int_eq((int)a.stats.drafted, BLOCK - 1);
    free_answers(&a, 1), free_requests(&r, 1);
    engine_destroy(e);
    cJSON_Delete(all), cJSON_Delete(of);
}
END_TEST

/* Members of a DFlash head's configuration, one changed. */
START_TEST(a_head_that_drafts_blocks_and_does_not_fit_is_refused)
{
    static const struct {
        const char *member, *json, *vocab, *sentence;
    } wrong[] = {
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [0, 7]}", NULL,
         "reads the rows before layers 1 and 8 of "},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [1, 0]}", NULL, "which must ascend"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": []}", NULL, "'target_layer_ids' is missing"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [\"a\"]}", NULL,
         "is no list of at most 8 layers"},
        {"dflash_config", "{\"target_layer_ids\": [0, 2]}", NULL, "'mask_token_id' is missing"},
        {"dflash_config", "{\"mask_token_id\": 1, \"target_layer_ids\": [0], \"causal_head\": true}", NULL,
         "causal_head is not supported"},
        {"dflash_config", "{\"mask_token_id\": 96, \"target_layer_ids\": [0]}", NULL,
         "mask_token_id is 96, an id that "},
        {"block_size", "1", NULL, "block_size"},
        {"hidden_size", "48", NULL, "is for a model of width 48"},
        {"layer_types", "[\"full_attention\", \"sliding_attention\"]", NULL, "layers that slide are not supported"},
        {NULL, NULL, "20", "is the target's, and is not cut"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char dir[256], own[256];
        cJSON *all = tiny_model_load("dflash"), *of = tiny_model_load("seed-oss"), *value = NULL;
        cJSON *config = cJSON_GetObjectItem(all, "config");
        if (wrong[i].member) {
            ck_ok(json_parse(&value, wrong[i].json, strlen(wrong[i].json)));
            cJSON_DeleteItemFromObject(config, wrong[i].member);
            cJSON_AddItemToObject(config, wrong[i].member, value);
        }
        tiny_model_write(of, "config", dir);
        tiny_model_write(all, "config", own);
        must_be_refused(dir, own, wrong[i].vocab, wrong[i].sentence);
        cJSON_Delete(all), cJSON_Delete(of);
    }
}
END_TEST

/* Which has layers of one kind alone, or keys of another number of heads. */
START_TEST(an_assistant_of_another_model_is_refused)
{
    static const char *const others[] = {"seed-oss", "gemma4-e"};
    char dir[256], own[256];
    cJSON *all = tiny_model_load("gemma4-assistant");
    tiny_model_write(all, "config", own);
    for (int i = 0; i < 2; i++) {
        cJSON *of = tiny_model_load(others[i]);
        tiny_model_write(of, "config", dir);
        must_be_refused(dir, own, NULL, i == 0 ? "layer 0 attends to keys that " : "layer 2 attends to keys that ");
        cJSON_Delete(of);
    }
    must_be_refused(own, NULL, NULL, "is a head that drafts for another model");
    cJSON_Delete(all);
}
END_TEST

START_TEST(a_head_alone_is_no_target)
{
    char own[256];
    cJSON *all = tiny_model_load("eagle3");
    tiny_model_write(all, "config", own);
    must_be_refused(own, NULL, NULL, "is a head that drafts for another model");
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
    tcase_add_loop_test(tc, heads_with_files_of_their_own_draft_as_the_reference, 0, EAGLES);
    tcase_add_test(tc, models_and_heads_may_be_files_of_pytorch);
    tcase_add_loop_test(tc, a_head_may_be_of_another_type_than_its_model, 0, 2);
    tcase_add_loop_test(tc, a_head_in_a_gguf_file_drafts_as_the_reference, 0, TINY);
    tcase_add_loop_test(tc, a_cut_head_gives_the_logits_of_its_ids, 0, TINY + 1);
    tcase_add_test(tc, an_assistant_drafts_in_gguf_files);
    tcase_add_test(tc, an_assistant_is_cut_to_ids_that_it_has);
    tcase_add_test(tc, a_block_offers_what_it_has);
    tcase_add_test(tc, a_head_that_drafts_blocks_and_does_not_fit_is_refused);
    tcase_add_test(tc, an_assistant_of_another_model_is_refused);
    tcase_add_loop_test(tc, what_has_no_such_head_is_refused_by_name, 0, 4);
    tcase_add_loop_test(tc, a_prompt_in_pieces_is_read_behind_the_target, 0, TINY);
    tcase_add_loop_test(tc, drafts_behind_rounds_that_accept_all_are_those_of_a_fresh_prompt, 0, TINY);
    tcase_add_loop_test(tc, drafts_behind_rounds_of_another_k_are_those_of_a_fresh_prompt, 1, 3);
    tcase_add_test(tc, the_largest_k_has_room);
    tcase_add_test(tc, a_sequence_of_one_token_is_offered_nothing);
    tcase_add_loop_test(tc, the_first_pass_reads_the_last_tokens_of_the_history, 0, 2);
    tcase_add_test(tc, a_head_that_is_not_in_the_files_is_refused);
    tcase_add_loop_test(tc, a_head_with_files_of_its_own_that_does_not_fit_is_refused, 0, MISFITS);
    tcase_add_test(tc, a_head_alone_is_no_target);
    suite_add_tcase(suite, tc);
    return suite;
}
