/* Models with recurrent states in an engine: no K, batch, neighbour or draft changes a text, and histories that are cut, stopped in the middle
 * or go on say what a fresh prefill of them says. Tiny models with random weights, whose drafts are often rejected. */
#include <stdio.h>
#include <string.h>

#include "draft/proposer.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/kv_support.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { VOCAB = 96, REQUESTS = 9, TOKENS = 24 };

/* Each with itself, another hybrid, a draft without states, its own head, one that has files of its own; and heads of models without
 * states. */
static const struct models {
    const char *target, *draft;
} pairs[] = {{"qwen3-next", "qwen3-next"},
             {"qwen3_5", "qwen3-next"},
             {"qwen3_5-moe", "qwen3_5"},
             {"qwen3_5", "seed-oss"},
             {"seed-oss", "qwen3_5"},
             {"qwen3_5", "ngram"},
             {"qwen3_5", "mtp"},
             {"qwen3-next", "mtp"},
             {"qwen3_5-moe", "mtp"},
             {"glm4-moe", "mtp"},
             {"seed-oss", "eagle3"},
             {"qwen3_5", "eagle3-specforge"},
             {"seed-oss", "eagle3-speculators"},
             {"gemma4", "gemma4-assistant"},
             {"gemma4-e", "gemma4-e-assistant"},
             {"seed-oss", "dflash"},
             {"qwen3_5", "dflash-hybrid"},
             {"granite4-h", "granite4-h-moe"},
             {"granite4-h-moe", "qwen3-next"},
             {"lfm2", "lfm2-moe"},
             {"lfm2-moe", "granite4-h"},
             {"nemotron-h", "lfm2"},
             {"nemotron-h", "nemotron-h"}};
static const int of_numbers[] = {
    2,  8,  10, 13, 16,
    17, 19, 22}; /* those that are tried in other numbers: hybrids, an own head, three with files of their own, Mamba 2, LFM2, Nemotron-H */
enum { PAIRS = sizeof pairs / sizeof *pairs };

struct dirs {
    char target[256], draft[256];
};

static void write_one(const char *name, char dir[256]) {
    cJSON *all = tiny_model_load(name);
    tiny_model_write(all, "config", dir);
    cJSON_Delete(all);
}

static struct pair write_pair(int index, struct dirs *dirs) {
    write_one(pairs[index].target, dirs->target);
    if (proposer_of_word(pairs[index].draft))
        return (struct pair){pairs[index].target, dirs->target, pairs[index].draft};
    write_one(pairs[index].draft, dirs->draft);
    return (struct pair){pairs[index].target, dirs->target, dirs->draft};
}

static struct request random_request(uint64_t *state, int length, int max_tokens) {
    int32_t ids[64];
    ck_assert_int_le(length, 64);
    for (int i = 0; i < length; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)(3 + (*state >> 33) % (VOCAB - 3));
    }
    struct request r = ids_request(ids, (size_t)length, max_tokens);
    r.generation.ignore_end = true;
    return r;
}

/* Every K with two batches of three, or one, by turns. */
START_TEST(greedy_text_is_the_same_for_every_k_and_batch)
{
    struct dirs dirs;
    static const int ks[] = {0, 1, 2, 3, 5, 8};
    struct pair pair = write_pair(_i, &dirs);
    struct request requests[REQUESTS];
    struct answer expected[REQUESTS], got[REQUESTS];
    uint64_t state = 7;
    for (int i = 0; i < REQUESTS; i++) requests[i] = random_request(&state, 1 + 5 * i, TOKENS + i);
    const int step = test_is_small() ? 2 : 1;
    for (int at = 0; at < 6; at += step)
        for (int batch = 1 + at / step % 2 * 4; batch <= 9; batch += 8) {
            const int k = ks[at];
            struct engine_options options = pair_options(&pair, k, batch);
            options.pipeline = 1 + k % 2;
            struct engine *e = must_open(&options);
            char what[64];
            snprintf(what, sizeof what, "%s, k %d, batch %d", pair.name, k, batch);
            const bool is_first = k == 0 && batch == 1;
            run_requests(e, requests, REQUESTS, is_first ? expected : got);
            for (int i = 0; i < REQUESTS && !is_first; i++) must_equal(&got[i], &expected[i], what);
            if (!is_first) free_answers(got, REQUESTS);
            engine_destroy(e);
        }
    free_answers(expected, REQUESTS), free_requests(requests, REQUESTS);
}
END_TEST

/* Loop index: of each, both models in FP8, in int4, FP8 in both caches, prompts by graphs. */
START_TEST(other_numbers_and_graphs_lose_nothing)
{
    struct dirs dirs;
    struct pair pair = write_pair(of_numbers[_i / 4], &dirs);
    const int which = _i % 4;
    struct request requests[REQUESTS];
    struct answer expected[REQUESTS], got[REQUESTS];
    uint64_t state = 5;
    for (int i = 0; i < REQUESTS; i++) requests[i] = random_request(&state, 1 + 6 * i, TOKENS);
    for (int k = 0; k <= 6; k += 3) {
        struct engine_options options = pair_options(&pair, k, 4);
        options.target_weights = options.draft_weights = which == 0   ? WEIGHTS_FP8
                                                         : which == 1 ? WEIGHTS_INT4
                                                                      : WEIGHTS_AS_STORED;
        options.kv = which == 2 ? KV_FP8 : KV_AUTO;
        options.prefill_graphs = which == 3 ? PREFILL_GRAPHS_ON : PREFILL_GRAPHS_AUTO;
        if (k == 0) options.draft = NULL, options.proposer = NULL, options.draft_weights = WEIGHTS_AS_STORED;
        struct engine *e = must_open(&options);
        run_requests(e, requests, REQUESTS, k == 0 ? expected : got);
        for (int i = 0; i < REQUESTS && k > 0; i++) must_equal(&got[i], &expected[i], "other numbers");
        if (k > 0) free_answers(got, REQUESTS);
        engine_destroy(e);
    }
    free_answers(expected, REQUESTS), free_requests(requests, REQUESTS);
}
END_TEST

/* What the sequence says next, and what is drafted for it, is what a fresh one says whose prompt is all of this. */
static void must_go_on_as_fresh(struct engine *e, struct sequence *s, struct engine *fresh, uint64_t *state,
                                const char *what) {
    struct request next = random_request(state, 3, 12), whole = random_request(state, 0, 12);
    struct sequence *other;
    int n;
    const int32_t *tokens = engine_tokens(s, &n);
    ids_append(&whole.prompt, tokens, (size_t)n);
    ids_append(&whole.prompt, next.prompt.data, next.prompt.len);
    next.generation.sampling.temperature = whole.generation.sampling.temperature = 1;
    ck_ok(engine_set_k(fresh, engine_info(e).k));
    engine_reset_sequence_stats(s);
    ck_ok(probe_fill_free_pages(e, 0xff)), ck_ok(probe_fill_free_pages(fresh, 0xff)); /* NaN in every type */
    struct answer got = run_turn(e, s, &next);
    ck_ok(engine_open(fresh, 256, &other));
    struct answer expected = run_turn(fresh, other, &whole);
    engine_close(fresh, other);
    must_equal(&got, &expected, what);
    ck_assert_msg(got.stats.accepted == expected.stats.accepted && got.stats.rounds == expected.stats.rounds, "%s",
                  what);
    free_answers(&got, 1), free_answers(&expected, 1);
    free_requests(&next, 1), free_requests(&whole, 1);
}

static void ignore_tokens(void *user, struct token_block *block) {
    (void)user, (void)block;
}

/* A prompt that is stopped while it is ingested. */
static void stop_in_prompt(struct engine *e, struct sequence *s, uint64_t *state) {
    struct request r = random_request(state, 40, 5);
    int running;
    r.generation.on_tokens = ignore_tokens;
    ck_ok(engine_generate(e, s, r.prompt.data, (int)r.prompt.len, &r.generation));
    ck_ok(engine_step(e, &running));
    engine_stop(e, s);
    free_requests(&r, 1);
}

START_TEST(histories_go_on_as_a_fresh_prefill_of_them)
{
    struct dirs dirs;
    struct pair pair = write_pair(_i, &dirs);
    struct engine_options options = pair_options(&pair, 4, 2);
    options.context = 256;
    options.pipeline = 2;
    struct engine *e = must_open_exact(&options), *fresh = must_open_exact(&options);
    uint64_t state = 11 + (uint64_t)_i;
    struct sequence *s = NULL;
    for (int turn = 0; turn < (test_is_small() ? 8 : 24); turn++) {
        char what[64];
        int n;
        snprintf(what, sizeof what, "%s, turn %d", pair.name, turn);
        if (turn % 5 == 0) {
            if (s) engine_close(e, s);
            ck_ok(engine_open(e, 256, &s));
        }
        ck_ok(engine_set_k(e, turn % 5 == 4 ? 0 : 4));
        struct request r = random_request(&state, 1 + turn % 7, 20);
        r.cut_at = turn % 3 ? 5 + turn % 11 : 0; /* the host stops it in the middle of a round */
        struct answer a = run_turn(e, s, &r);
        engine_tokens(s, &n);
        if (turn % 4 == 3) stop_in_prompt(e, s, &state);
        if (turn % 7 == 5) ck_ok(engine_truncate(e, s, n - 4));
        must_go_on_as_fresh(e, s, fresh, &state, what);
        free_answers(&a, 1), free_requests(&r, 1);
    }
    engine_close(e, s);
    engine_destroy(fresh), engine_destroy(e);
}
END_TEST

DEVICE_SUITE(check_recurrent);
Suite *check_recurrent(void) {
    Suite *suite = suite_create("recurrent");
    TCase *tc = tcase_create("recurrent");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, greedy_text_is_the_same_for_every_k_and_batch, 0, PAIRS);
    tcase_add_loop_test(tc, other_numbers_and_graphs_lose_nothing, 0,
                        4 * (int)(sizeof of_numbers / sizeof *of_numbers));
    tcase_add_loop_test(tc, histories_go_on_as_a_fresh_prefill_of_them, 0, PAIRS);
    suite_add_tcase(suite, tc);
    return suite;
}
