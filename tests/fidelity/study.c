#include "tests/fidelity/study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "draft/proposer.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

static const char story[] =
    "Once upon a time there was a little girl named Lily. She had a red ball and a small dog. Every day she went to "
    "the "
    "park with her mom, and the dog ran after the ball until the sun went down behind the big green trees. One day the "
    "ball rolled far away into the dark wood. \"Oh no!\" said Lily. \"I must find my ball.\" The dog looked at her and "
    "barked. They walked and walked. A bird sang in a tree. \"Did you see my ball?\" asked Lily. ";

/* Lengths on both sides of a page and a split; the last ones leave 1 and 2 tokens before the context's limit. */
static int prompt_length(const struct study *s, int prompt) {
    static const int lengths[STUDY_PROMPTS] = {1, 2, 3, 5, 9, 17, 31, 63, 64, 65, 127, 254, 255, 257, -2, -1};
    static const int few[STUDY_PROMPTS] = {1, 2, 3, 4, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 33, -1};
    int n = (s->amount == STUDY_FEW ? few : lengths)[prompt];
    n = n < 0 ? s->context + n : n;
    return n < s->context ? n : s->context - 1;
}

static int answer_length(const struct study *s, int prompt) {
    return s->amount == STUDY_FEW ? 6 + prompt % 5 : 18 + 5 * (prompt % 6);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

static const char *keep(const char *path) {
    return path ? strdup(path) : NULL;
}

/* A fixture and its draft: another one, itself, or its own head, with a head of so many ids. */
static void add_fixture(struct study *s, const char *target, const char *draft, const char *draft_vocab) {
    char path[256];
    snprintf(path, sizeof path, "fixtures/%s", target);
    s->pair = (struct pair){.name = target, .target = keep(shared_path(path))};
    snprintf(path, sizeof path, "fixtures/%s", draft);
    s->pair.draft = keep(proposer_of_word(draft) ? draft : shared_path(path));
    s->draft_vocab = draft_vocab;
    s->amount = STUDY_FEW;
}

/* A tiny model and the head that drafts for it. */
static void add_tiny(struct study *s, const char *target, const char *draft) {
    const char *names[] = {target, draft};
    char dirs[2][256];
    for (int i = 0; i < 2; i++) {
        cJSON *json = tiny_model_load(names[i]);
        tiny_model_write(json, "config", dirs[i]);
        cJSON_Delete(json);
    }
    s->pair = (struct pair){.name = draft, .target = keep(dirs[0]), .draft = keep(dirs[1])};
    s->amount = STUDY_FEW;
}

int study_pairs(struct study studies[STUDY_PAIRS_MAX], bool small) {
    struct pair pairs[PAIRS_MAX];
    int count = test_pairs(pairs);
    memset(studies, 0, sizeof *studies * STUDY_PAIRS_MAX);
    for (int i = 0; i < count; i++) {
        studies[i].pair = pairs[i];
        studies[i].amount = small ? STUDY_FEW : i == 1 || !test_device_is_host() ? STUDY_ALL : STUDY_SOME;
    }
    return count;
}

int study_families(struct study studies[STUDY_PAIRS_MAX]) {
    int count = 0;
    memset(studies, 0, sizeof *studies * STUDY_PAIRS_MAX);
    if (!shared_path("fixtures/checkpoints") || !shared_path("fixtures/families")) return 0;
    for (; count < TEST_FAMILIES; count++)
        add_fixture(&studies[count], test_checkpoints[count], test_checkpoints[count], "410"); /* of 512 */
    add_fixture(&studies[count++], "checkpoints/llama-gqa-tied", "checkpoints/llama-mha-untied", NULL);
    add_fixture(&studies[count++], "checkpoints/llama-mqa-headdim32", "checkpoints/llama3-rope-scaled", NULL);
    add_fixture(&studies[count++], "checkpoints/qwen3-qknorm", "checkpoints/llama-gqa-tied", NULL);
    add_fixture(&studies[count++], "families/qwen3-next", "mtp", NULL);
    add_fixture(&studies[count++], "families/qwen3.5", "mtp", "410");
    add_fixture(&studies[count++], "families/qwen3.5-moe", "mtp", NULL);
    add_tiny(&studies[count++], "seed-oss", "eagle3");
    add_tiny(&studies[count++], "gemma4", "gemma4-assistant");
    add_tiny(&studies[count++], "seed-oss", "dflash");
    return count;
}

int study_formats(struct study studies[STUDY_PAIRS_MAX]) {
    memset(studies, 0, sizeof *studies * STUDY_PAIRS_MAX);
    if (!shared_path("fixtures/formats")) return 0;
    for (int i = TEST_FAMILIES; i < TEST_CHECKPOINTS; i++)
        add_fixture(&studies[i - TEST_FAMILIES], test_checkpoints[i], test_checkpoints[i], "205"); /* of 256 */
    return TEST_CHECKPOINTS - TEST_FAMILIES;
}

/* --- engines and requests ------------------------------------------------------------------------------------------ */

static struct engine_options options_of(const struct study *s, int k, int batch) {
    struct engine_options o = pair_options(&s->pair, k, batch);
    o.context = s->context;
    o.threads = 1;
    o.accept = s->rule;
    o.draft_vocab = k > 0 ? s->draft_vocab : NULL;
    o.kv = s->kv;
    return o;
}

static struct request request_of(const struct study *s, int prompt) {
    struct request r = ids_request(s->prompts[prompt].data, s->prompts[prompt].len, answer_length(s, prompt));
    r.generation.ignore_end = prompt % 2 == 0;
    if (s->sampled) r.generation.sampling = (struct sampling){0.9f, 0.95f, 0, prompt % 3 == 0 ? 20 : 0, 1};
    r.generation.seed = 1000 + (uint64_t)prompt;
    return r;
}

static void make_prompts(struct study *s, struct engine *e) {
    const struct tokenizer *tokenizer = engine_tokenizer(e);
    struct ids all = {0};
    if (tokenizer)
        ck_ok(tokenizer_encode(tokenizer, story, strlen(story), &(struct encode_options){.special = true}, &all));
    for (uint32_t i = 0; !tokenizer && i < 512; i++)
        ids_push(&all, 3 + (int32_t)(philox_word(9, i, 0, 0) % (uint32_t)(engine_info(e).vocab - 3)));
    for (int i = 0; i < STUDY_PROMPTS; i++) {
        size_t start = i > 6 ? 0 : (size_t)i * 11 % all.len, n = (size_t)prompt_length(s, i);
        for (size_t j = 0; j < n; j++) ids_push(&s->prompts[i], all.data[(start + j) % all.len]);
    }
    ids_free(&all);
}

static int context_of(const struct study *s) {
    struct engine_options o = pair_options(&s->pair, 0, 1);
    o.threads = 1;
    struct memory_plan plan;
    ck_ok(engine_plan(&plan, &o));
    int context = plan.context < 320 ? plan.context : 320;
    memory_plan_free(&plan);
    return context;
}

static void answer_alone(struct study *s, struct engine *e, int k) {
    for (int i = 0; i < STUDY_PROMPTS; i++) {
        struct request r = request_of(s, i);
        run_requests(e, &r, 1, &s->expected[k][i]);
        free_requests(&r, 1);
    }
}

void study_open(struct study *s, bool sampled) {
    s->sampled = sampled;
    s->context = context_of(s);
    struct engine_options plain = options_of(s, 0, 1);
    plain.graphs = GRAPHS_OFF;
    struct engine *e = must_open(&plain);
    make_prompts(s, e);
    answer_alone(s, e, 0);
    engine_destroy(e);
}

void study_close(struct study *s) {
    for (int i = 0; i < STUDY_PROMPTS; i++) ids_free(&s->prompts[i]);
    for (int k = 0; k <= STUDY_K; k++) free_answers(s->expected[k], STUDY_PROMPTS);
}

/* --- cells ---------------------------------------------------------------------------------------------------------- */

static enum graph_mode mode_of(int engine) {
    return (enum graph_mode)(engine / 3);
}

/* Each (K, batch) belongs to one of the engines, such that each K and each batch meets every engine. A GPU waits for
 * every launch of debug: its engines have a fifth of their cells. */
static bool is_cell(const struct study *s, int engine, int k, int batch) {
    if (s->amount == STUDY_FEW) return batch == (k * 5 + 3) % STUDY_BATCH + 1 && k % STUDY_ENGINES == engine;
    bool is_slow = !test_device_is_host() && mode_of(engine) == GRAPHS_DEBUG;
    if ((s->amount == STUDY_SOME || is_slow) && (k * 2 + batch) % 5 != 0) return false;
    return (k + batch) % STUDY_ENGINES == engine;
}

static bool depends_on_k(const struct study *s) {
    return s->sampled && s->rule != ACCEPT_COUPLED;
}

static void run_cell(struct study *s, struct engine *e, int k, int batch, const char *engine_name) {
    enum { MORE = 2 };
    struct request requests[STUDY_BATCH + MORE];
    struct answer answers[STUDY_BATCH + MORE];
    int which[STUDY_BATCH + MORE], count = batch + MORE;
    for (int i = 0; i < count; i++) {
        which[i] = (k * 7 + batch * 3 + i * 5) % STUDY_PROMPTS;
        requests[i] = request_of(s, which[i]);
    }
    ck_ok(engine_set_k(e, k));
    run_requests_at_most(e, requests, count, batch, answers);
    for (int i = 0; i < count; i++) {
        int book = depends_on_k(s) ? k : 0;
        char what[256];
        snprintf(what, sizeof what, "%s, k %d, batch %d, %s, prompt %d", s->pair.name, k, batch, engine_name, which[i]);
        must_equal(&answers[i], &s->expected[book][which[i]], what);
        s->tokens += (int64_t)answers[i].ids.len;
    }
    s->cells++;
    free_requests(requests, count);
    free_answers(answers, count);
}

static void answer_alone_for_every_k(struct study *s) {
    struct engine_options alone = options_of(s, STUDY_K, 1);
    if (test_device_is_host()) alone.graphs = GRAPHS_OFF; /* slow on a GPU */
    struct engine *e = must_open(&alone);
    for (int k = 1; k <= STUDY_K; k++) {
        ck_ok(engine_set_k(e, k));
        free_answers(s->expected[k], STUDY_PROMPTS);
        answer_alone(s, e, k);
    }
    engine_destroy(e);
}

void study_run(struct study *s, enum accept_rule rule) {
    static const char *const policies[] = {"pow2", "step8", "exact"}, *const modes[] = {"on", "off", "debug"};
    static const enum bucket_policy buckets[] = {BUCKETS_POW2, BUCKETS_STEP8, BUCKETS_EXACT};
    s->rule = rule;
    if (depends_on_k(s)) answer_alone_for_every_k(s);
    for (int i = 0; i < STUDY_ENGINES; i++) {
        struct engine_options o = options_of(s, STUDY_K, STUDY_BATCH);
        o.buckets = buckets[i % 3];
        o.graphs = mode_of(i);
        o.pipeline = 1 + i % 2;
        if (!s->sampled) o.accept = (enum accept_rule)((i + i / 3) % 3);
        char name[64];
        snprintf(name, sizeof name, "buckets %s, graphs %s", policies[i % 3], modes[i / 3]);
        struct engine *e = must_open(&o);
        for (int k = 0; k <= STUDY_K; k++)
            for (int batch = 1; batch <= STUDY_BATCH; batch++)
                if (is_cell(s, i, k, batch)) run_cell(s, e, k, batch, name);
        engine_destroy(e);
    }
}
