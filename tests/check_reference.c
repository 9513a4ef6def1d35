/* Numbers of real and random checkpoints against transformers in f32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/internal.h"
#include "tests/engine_support.h"
#include "tests/support.h"

static const char *const families[] = {"llama-mha-untied",   "llama-gqa-tied", "llama-mqa-headdim32",
                                       "llama3-rope-scaled", "qwen2-bias",     "qwen3-qknorm",
                                       "mistral-swa"};
enum { FAMILIES = sizeof families / sizeof *families };

/* Logits of the last of `ids`, through one pass of the model over all of them. */
static void compute_logits(const char *dir, const struct ids *ids, float *logits, int vocab) {
    struct engine *e = must_open(&(struct engine_options){.target = dir, .device = test_device(), .context = 256});
    struct sequence *s;
    ck_ok(engine_open(e, 256, &s));
    struct generation g = {.max_tokens = 1, .sampling = {.top_p = 1}};
    ck_ok(engine_generate(e, s, ids->data, (int)ids->len, &g));
    int32_t position = (int32_t)ids->len - 1, slot = 1;
    ck_ok(stream_copy(e->stream, e->prefill.tokens, &ids->data[position], sizeof position));
    ck_ok(stream_copy(e->stream, e->prefill.positions, &position, sizeof position));
    ck_ok(stream_copy(e->stream, e->prefill.slot, &slot, sizeof slot));
    struct rows rows = {.batch = 1,
                        .q_len = 1,
                        .tokens = e->prefill.tokens,
                        .positions = e->prefill.positions,
                        .row_slot = e->prefill.slot,
                        .page_table = e->page_table,
                        .pages_per_slot = e->pages_per_slot};
    ck_ok(model_forward(e->target_model, e->stream, &rows, LOGITS_LAST, e->state.target_logits));
    ck_ok(stream_copy(e->stream, logits, e->state.target_logits, (size_t)vocab * sizeof *logits));
    ck_ok(stream_sync(e->stream));
    engine_destroy(e);
}

/* On the host activations are f32; elsewhere bf16, of 8 bits, several times a layer. */
static double logit_tolerance(void) {
    return test_device_is_host() ? 1e-3 : 5e-2;
}

static void must_be_close(const cJSON *reference, const char *member, const float *logits, int vocab,
                          const char *what) {
    double largest = 0;
    for (int i = 0; i < vocab; i++) largest = fmax(largest, fabs(json_at(reference, member, i)));
    for (int i = 0; i < vocab; i++) {
        double expected = json_at(reference, member, i);
        ck_assert_msg(fabs(logits[i] - expected) <= logit_tolerance() * largest, "%s: %s[%d] is %g, expected %g", what,
                      member, i, logits[i], expected);
    }
}

static cJSON *family_reference(int family, char dir[4096]) {
    char relative[128];
    snprintf(relative, sizeof relative, "fixtures/checkpoints/%s", families[family]);
    if (!shared_path(relative)) return NULL;
    snprintf(dir, 4096, "%s", shared_path(relative));
    snprintf(relative, sizeof relative, "fixtures/checkpoints/%s/reference.json", families[family]);
    return must_load_json(shared_path(relative));
}

START_TEST(family_logits_are_within_the_tolerance)
{
    char dir[4096];
    cJSON *references = family_reference(_i, dir), *r;
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON_ArrayForEach(r, references) {
        int vocab = cJSON_GetArraySize(json_get(r, "logits_last"));
        float *logits = malloc((size_t)vocab * sizeof *logits);
        struct ids prompt = json_ids(r, "prompt");
        compute_logits(dir, &prompt, logits, vocab);
        must_be_close(r, "logits_last", logits, vocab, families[_i]);
        prompt.len = 1;
        compute_logits(dir, &prompt, logits, vocab);
        must_be_close(r, "logits_first", logits, vocab, families[_i]);
        ids_free(&prompt);
        free(logits);
    }
    cJSON_Delete(references);
}
END_TEST

static void check_greedy(struct engine *e, const cJSON *references, const char *prompt_name, const char *what,
                         struct answer answers[8]) {
    int count = cJSON_GetArraySize(references), i = 0;
    struct request requests[8];
    const cJSON *r;
    ck_assert_int_le(count, 8);
    cJSON_ArrayForEach(r, references) {
        struct ids prompt = json_ids(r, prompt_name);
        requests[i] = ids_request(prompt.data, prompt.len, cJSON_GetArraySize(json_get(r, "greedy")));
        requests[i++].generation.ignore_end = true;
        ids_free(&prompt);
    }
    run_requests(e, requests, count, answers);
    i = 0;
    cJSON_ArrayForEach(r, references) must_match_reference(r, &answers[i++], what);
    free_requests(requests, count);
}

START_TEST(family_greedy_tokens_are_the_reference_for_every_k)
{
    char dir[4096];
    cJSON *references = family_reference(_i, dir);
    if (!references) {
        skip("no test data beside the checkout");
        return;
    }
    struct answer plain[8], got[8]; /* alone, and with itself as the draft */
    int count = cJSON_GetArraySize(references);
    for (int k = 0; k <= 8; k += test_is_small() ? 4 : 1) {
        struct pair self = {families[_i], dir, dir};
        struct engine_options options = pair_options(&self, k, 1 + k % 3);
        struct engine *e = must_open(&options);
        check_greedy(e, references, "prompt", families[_i], k == 0 ? plain : got);
        for (int i = 0; i < count && k > 0; i++) must_equal(&got[i], &plain[i], families[_i]);
        if (k > 0) free_answers(got, count);
        engine_destroy(e);
    }
    free_answers(plain, count);
    cJSON_Delete(references);
}
END_TEST

START_TEST(trained_models_give_160_reference_tokens)
{
    const char *file = shared_path("fixtures/greedy-references.json");
    if (!file) {
        skip("no test data beside the checkout");
        return;
    }
    cJSON *all = must_load_json(file), *references;
    cJSON_ArrayForEach(references, all) {
        char relative[128], dir[4096];
        snprintf(relative, sizeof relative, "models/%s", references->string);
        snprintf(dir, sizeof dir, "%s", shared_path(relative));
        struct engine *e = must_open(&(struct engine_options){.target = dir, .device = test_device(), .max_batch = 2});
        struct answer answers[8];
        check_greedy(e, references, "prompt_ids", references->string, answers);
        free_answers(answers, cJSON_GetArraySize(references));
        engine_destroy(e);
    }
    cJSON_Delete(all);
}
END_TEST

Suite *check_reference(void) {
    Suite *suite = suite_create("reference");
    TCase *tc = tcase_create("reference");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, family_logits_are_within_the_tolerance, 0, FAMILIES);
    tcase_add_loop_test(tc, family_greedy_tokens_are_the_reference_for_every_k, 0, FAMILIES);
    tcase_add_test(tc, trained_models_give_160_reference_tokens);
    suite_add_tcase(suite, tc);
    return suite;
}
