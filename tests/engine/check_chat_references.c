/* Two real chat pairs against references made by another implementation: greedy text, and how much they agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/sampler.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

struct chat_pair {
    const char *name;
    const char *greedy[2]; /* members of "greedy": target and draft */
    char target[4096], draft[4096];
};

/* False, having said why, where the data are not there. */
static bool find_pair(int index, struct chat_pair *p) {
    memset(p, 0, sizeof *p);
    if (!shared_path("fixtures/chat-references.json")) {
        skip("no test data beside the checkout");
        return false;
    }
    if (index == 0) {
        p->name = "pair", p->greedy[0] = "pair-target", p->greedy[1] = "pair-draft";
        snprintf(p->target, sizeof p->target, "%s", asset_path("target"));
        snprintf(p->draft, sizeof p->draft, "%s", asset_path("draft"));
        return true;
    }
    const char *smollm2 = getenv("DUET_SMOLLM2");
    if (!smollm2) {
        skip("no SmolLM2 checkpoint: set DUET_SMOLLM2, or make test-data");
        return false;
    }
    p->name = "smollm2", p->greedy[0] = "smollm2-135m", p->greedy[1] = "smollm2-draft";
    snprintf(p->target, sizeof p->target, "%s", smollm2);
    snprintf(p->draft, sizeof p->draft, "%s", shared_path("models/smollm2-draft"));
    return true;
}

static cJSON *load_references(void) {
    return must_load_json(shared_path("fixtures/chat-references.json"));
}

enum { PROMPTS_MAX = 8 };

static int chat_requests(const cJSON *references, const char *member, struct request requests[PROMPTS_MAX]) {
    const cJSON *r;
    int count = 0;
    cJSON_ArrayForEach(r, json_get(json_get(references, "greedy"), member)) {
        struct ids prompt = json_ids(r, "prompt_ids");
        requests[count++] = ids_request(prompt.data, prompt.len, 120);
        ids_free(&prompt);
    }
    return count;
}

static void check_greedy(const cJSON *references, const char *member, const char *target, const char *draft, int k) {
    struct pair pair = {member, target, draft};
    struct engine_options options = pair_options(&pair, k, 5);
    struct engine *e = must_open(&options);
    struct request requests[PROMPTS_MAX];
    struct answer answers[PROMPTS_MAX];
    int count = chat_requests(references, member, requests), i = 0;
    run_requests(e, requests, count, answers);
    const cJSON *r;
    cJSON_ArrayForEach(r, json_get(json_get(references, "greedy"), member))
        must_match_reference(r, &answers[i++], member);
    free_requests(requests, count);
    free_answers(answers, count);
    engine_destroy(e);
}

/* Loop index: the pair. */
START_TEST(chat_models_give_the_reference_text_at_k_0_3_and_6)
{
    struct chat_pair p;
    if (!find_pair(_i, &p)) return;
    cJSON *references = load_references();
    for (int k = 0; k <= 6; k += 3) check_greedy(references, p.greedy[0], p.target, p.draft, k);
    check_greedy(references, p.greedy[1], p.draft, p.draft, 0);
    cJSON_Delete(references);
}
END_TEST

/* The directory was made from this file, whose numbers it holds rounded to bf16. */
START_TEST(a_gguf_file_gives_the_text_and_the_tokens_of_the_directory_made_from_it)
{
    const char *gguf = getenv("DUET_SMOLLM2_GGUF");
    struct chat_pair p;
    if (!gguf) {
        skip("no SmolLM2 as GGUF: set DUET_SMOLLM2_GGUF, or make test-data");
        return;
    }
    if (!find_pair(1, &p)) return;
    cJSON *references = load_references();
    struct tokenizer *t[2];
    struct chat_template *chat;
    int common;
    check_greedy(references, p.greedy[0], gguf, p.draft, 3);
    ck_ok(checkpoint_tokenizer(test_checkpoint(gguf), &t[0]));
    ck_ok(checkpoint_tokenizer(test_checkpoint(p.target), &t[1]));
    ck_ok(tokenizer_compare(t[0], t[1], &common));
    ck_assert_int_eq(common, 49152);
    ck_ok(checkpoint_chat_template(test_checkpoint(gguf), NULL, &chat));
    ck_assert_str_eq(chat_template_name(chat), "chatml");
    chat_template_free(chat);
    tokenizer_free(t[0]), tokenizer_free(t[1]);
    cJSON_Delete(references);
}
END_TEST

enum { SEEDS_MAX = 9 };

/* Each prompt so many times with different seeds, 120 tokens, K = 4, no filters. */
static void measure_acceptance(struct engine *e, const cJSON *references, const char *member, float temperature,
                               int seeds, struct acceptance *sum) {
    struct request requests[PROMPTS_MAX * SEEDS_MAX];
    struct answer answers[PROMPTS_MAX * SEEDS_MAX];
    int prompts = chat_requests(references, member, requests), count = prompts * seeds;
    for (int i = 0; i < count; i++) {
        if (i >= prompts)
            requests[i] = ids_request(requests[i % prompts].prompt.data, requests[i % prompts].prompt.len, 120);
        requests[i].generation.sampling.temperature = temperature;
        requests[i].generation.seed = seed_for_record(7, (uint64_t)i);
    }
    run_requests(e, requests, count, answers);
    memset(sum, 0, sizeof *sum);
    for (int i = 0; i < count; i++) acceptance_merge(sum, &answers[i].stats);
    free_requests(requests, count);
    free_answers(answers, count);
}

/* Loop index: pair * 2 + temperature. */
START_TEST(measured_alpha_is_the_expected_acceptance)
{
    struct chat_pair p;
    if (!find_pair(_i / 2, &p)) return;
    const char *temperature = _i % 2 ? "1.0" : "0.7";
    cJSON *references = load_references();
    struct pair pair = {p.name, p.target, p.draft};
    struct engine_options options = pair_options(&pair, 4, 8);
    struct engine *e = must_open(&options);
    struct acceptance a;
    /* Of the large pair every token takes long: 1,500 positions have a standard error of 0.013. */
    const int seeds = test_is_small() ? 3 : _i < 2 ? SEEDS_MAX : 4;
    measure_acceptance(e, references, p.greedy[0], (float)atof(temperature), seeds, &a);
    double expected = 0, alpha = acceptance_alpha(&a), alpha_tv = acceptance_alpha_tv(&a);
    const cJSON *entry = json_get(json_get(json_get(references, "acceptance"), p.name), temperature);
    ck_assert(json_number(json_get(entry, "expected_acceptance"), &expected));
    fprintf(stderr, "%s at T = %s: alpha %.4f, alpha_tv %.4f over %lld positions, expected %.4f\n", p.name, temperature,
            alpha, alpha_tv, (long long)a.evaluated, expected);
    ck_assert_int_ge(a.evaluated, seeds == 3 ? 1000 : seeds == 4 ? 1500 : 3000);
    ck_assert_double_le(fabs(alpha - expected), 0.05);
    ck_assert_double_le(fabs(alpha_tv - expected), 0.05);
    engine_destroy(e);
    cJSON_Delete(references);
}
END_TEST

DEVICE_SUITE(check_chat_references);
Suite *check_chat_references(void) {
    Suite *suite = suite_create("chat references");
    TCase *tc = tcase_create("chat references");
    tcase_add_loop_test(tc, chat_models_give_the_reference_text_at_k_0_3_and_6, 0, 2);
    tcase_add_test(tc, a_gguf_file_gives_the_text_and_the_tokens_of_the_directory_made_from_it);
    tcase_add_loop_test(tc, measured_alpha_is_the_expected_acceptance, 0, 4);
    suite_add_tcase(suite, tc);
    return suite;
}
