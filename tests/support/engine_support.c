#include "tests/support/engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "draft/proposer.h"
#include "tests/support/support.h"

const char *const story_starts[STORY_STARTS] = {"Once upon a time",
                                                "Tom had a red ball.",
                                                "The frog",
                                                "One day",
                                                "A cat and a dog",
                                                "There was",
                                                "She said",
                                                "The sun",
                                                "Lily",
                                                "Ben ran to",
                                                "A bird",
                                                "In the park"};

const char *const test_checkpoints[TEST_CHECKPOINTS] = {
    "checkpoints/llama-mha-untied",
    "checkpoints/llama-gqa-tied",
    "checkpoints/llama-mqa-headdim32",
    "checkpoints/llama3-rope-scaled",
    "checkpoints/qwen2-bias",
    "checkpoints/qwen3-qknorm",
    "checkpoints/mistral-swa",
    "families/gemma2",
    "families/gemma3-text",
    "families/gemma3-wrapped",
    "families/gemma4-dense",
    "families/gemma4-e",
    "families/gemma4-moe-flat",
    "families/glm4",
    "families/gpt-oss-bf16",
    "families/granite",
    "families/llama-dynamic",
    "families/llama-yarn",
    "families/mixtral",
    "families/olmo2",
    "families/phi3",
    "families/phi3-longrope",
    "families/qwen2-yarn",
    "families/qwen3-moe",
    "families/qwen3-moe-mixed",
    "families/qwen3-next",
    "families/qwen3.5",
    "families/qwen3.5-moe",
    "families/gpt-oss-mxfp4",
    /* A Llama or Qwen3 MoE in every format of quantised files. */
    "formats/fp8-block",
    "formats/fp8-block-moe",
    "formats/ct-fp8-channel",
    "formats/ct-fp8-channel-moe",
    "formats/ct-fp8-tensor",
    "formats/modelopt-fp8",
    "formats/gptq-g128",
    "formats/gptq-g64-asym",
    "formats/gptq-desc-act",
    "formats/gptq-moe",
    "formats/awq-g128",
    "formats/awq-moe",
    "formats/ct-int4-g128",
    "formats/ct-int4-g32-asym",
    "formats/ct-int4-moe",
    "formats/nvfp4",
    "formats/nvfp4-moe",
    "formats/nvfp4-modelopt",
    "formats/ct-mxfp4",
    "formats/bnb-nf4",
};

/* --- engines ------------------------------------------------------------------------------------------------ */

int test_pairs(struct pair pairs[PAIRS_MAX]) {
    static char paths[6][4096];
    const char *names[][3] = {{"stories260K", "models/stories260K", "models/llama2xs-267K"},
                              {"babyllama", "models/babyllama-target", "models/babyllama-draft"}};
    int count = 0;
    snprintf(paths[0], sizeof paths[0], "%s", asset_path("target"));
    snprintf(paths[1], sizeof paths[1], "%s", asset_path("draft"));
    pairs[count++] = (struct pair){"embedded", paths[0], paths[1]};
    for (int i = 0; i < 2; i++) {
        if (!shared_path(names[i][1])) continue;
        snprintf(paths[2 * count], sizeof *paths, "%s", shared_path(names[i][1]));
        snprintf(paths[2 * count + 1], sizeof *paths, "%s", shared_path(names[i][2]));
        pairs[count] = (struct pair){names[i][0], paths[2 * count], paths[2 * count + 1]};
        count++;
    }
    return count;
}

struct pair quick_pair(void) {
    struct pair pairs[PAIRS_MAX];
    return pairs[test_pairs(pairs) > 1];
}

struct pair ngram_pair(const struct pair *pair) {
    return (struct pair){"n-gram", pair->target, "ngram"};
}

struct engine_options pair_options(const struct pair *pair, int k, int max_batch) {
    bool is_word = pair->draft && proposer_of_word(pair->draft);
    return (struct engine_options){.target = test_checkpoint(pair->target),
                                   .draft = k > 0 && !is_word ? test_checkpoint(pair->draft) : NULL,
                                   .proposer = k > 0 && is_word ? pair->draft : NULL,
                                   .device = test_device(),
                                   .threads = SANITIZED ? 1 : 0, /* other suites run beside this one */
                                   .k = k,
                                   .max_batch = max_batch};
}

struct engine *must_open(const struct engine_options *options) {
    struct engine *e;
    ck_ok(engine_create(&e, options));
    return e;
}

/* --- requests ----------------------------------------------------------------------------------------------- */

static struct generation greedy(int max_tokens) {
    return (struct generation){.max_tokens = max_tokens, .sampling = {.temperature = 0, .top_p = 1}, .seed = 1};
}

struct request ids_request(const int32_t *ids, size_t n, int max_tokens) {
    struct request r = {.generation = greedy(max_tokens)};
    ids_append(&r.prompt, ids, n);
    return r;
}

struct request text_request(const struct engine *e, const char *text, int max_tokens) {
    struct request r = {.generation = greedy(max_tokens)};
    ck_ok(tokenizer_encode(engine_tokenizer(e), text, strlen(text), &(struct encode_options){.special = true},
                           &r.prompt));
    return r;
}

void free_requests(struct request *requests, int count) {
    for (int i = 0; i < count; i++) ids_free(&requests[i].prompt);
}

void free_answers(struct answer *answers, int count) {
    for (int i = 0; i < count; i++) ids_free(&answers[i].ids);
}

struct listener {
    struct answer *answer;
    int cut_at;
    bool done;
};

static void listen(void *user, struct token_block *block) {
    struct listener *l = user;
    ck_assert_msg(!l->done, "a block after the end of the answer");
    ck_assert_int_le(block->accepted, block->count);
    if (l->cut_at > 0 && (int)l->answer->ids.len + block->count >= l->cut_at) {
        block->keep = l->cut_at - (int)l->answer->ids.len;
        block->stop = true;
    }
    ids_append(&l->answer->ids, block->tokens, (size_t)block->keep);
    l->answer->finish = block->stop ? FINISH_STOP : block->finish;
    l->done = block->stop || block->finish != FINISH_NONE;
}

static void start(struct engine *e, struct sequence *s, const struct request *request, struct listener *l) {
    struct generation g = request->generation;
    g.on_tokens = listen, g.user = l;
    l->cut_at = request->cut_at;
    ck_ok(engine_generate(e, s, request->prompt.data, (int)request->prompt.len, &g));
}

static void finish(struct engine *e, struct sequence **s, struct listener *l) {
    l->answer->stats = *engine_sequence_stats(*s);
    engine_close(e, *s);
    *s = NULL;
}

void keep_tokens(void *user, struct token_block *block) {
    struct answer *a = user;
    ids_append(&a->ids, block->tokens, (size_t)block->count);
    a->finish = block->finish;
}

void run_requests(struct engine *e, const struct request *requests, int count, struct answer *answers) {
    run_requests_at_most(e, requests, count, count, answers);
}

void run_requests_at_most(struct engine *e, const struct request *requests, int count, int at_once,
                          struct answer *answers) {
    struct sequence **open = calloc((size_t)count, sizeof *open);
    struct listener *listeners = calloc((size_t)count, sizeof *listeners);
    memset(answers, 0, (size_t)count * sizeof *answers);
    int next = 0, running = 0, taken = 0;
    do {
        for (int i = 0; i < next; i++)
            if (open[i] && listeners[i].done) finish(e, &open[i], &listeners[i]), taken--;
        for (; next < count && taken < at_once; next++, taken++) {
            const struct request *r = &requests[next];
            ck_ok(engine_open(e, (int)r->prompt.len + r->generation.max_tokens, &open[next]));
            listeners[next].answer = &answers[next];
            start(e, open[next], r, &listeners[next]);
        }
        ck_ok(engine_step(e, &running));
    } while (running > 0 || next < count);
    for (int i = 0; i < count; i++)
        if (open[i]) finish(e, &open[i], &listeners[i]);
    free(open);
    free(listeners);
}

struct answer run_turn(struct engine *e, struct sequence *s, const struct request *request) {
    struct answer answer = {0};
    struct listener l = {.answer = &answer};
    int running = 1;
    start(e, s, request, &l);
    while (!l.done) ck_ok(engine_step(e, &running));
    answer.stats = *engine_sequence_stats(s);
    return answer;
}

uint64_t count_round_launches(struct engine *e, uint64_t *graphs, uint64_t *kernels) {
    struct engine_counts before = engine_counts(e);
    struct sequence *s;
    int running = 1;
    ck_ok(engine_open(e, 100, &s));
    struct request one = ids_request((int32_t[]){5}, 1, 40); /* one token: nothing to prefill */
    one.generation.ignore_end = true;
    struct answer a = run_turn(e, s, &one);
    while (running) ck_ok(engine_step(e, &running));
    engine_close(e, s);
    ids_free(&a.ids);
    free_requests(&one, 1);
    struct engine_counts after = engine_counts(e);
    *graphs = after.stream.graph_launches - before.stream.graph_launches;
    *kernels = after.stream.kernel_launches - before.stream.kernel_launches;
    return after.rounds - before.rounds;
}

void must_equal(const struct answer *got, const struct answer *expected, const char *what) {
    size_t n = got->ids.len < expected->ids.len ? got->ids.len : expected->ids.len;
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(got->ids.data[i] == expected->ids.data[i], "%s: token %zu is %d, expected %d", what, i,
                      got->ids.data[i], expected->ids.data[i]);
    ck_assert_msg(got->ids.len == expected->ids.len, "%s: %zu tokens, expected %zu", what, got->ids.len,
                  expected->ids.len);
    ck_assert_msg(got->finish == expected->finish, "%s: finish %d, expected %d", what, got->finish, expected->finish);
}

const char *copy_model_with(const char *dir, const char *name, const char *member, int value) {
    static char paths[2][4096];
    static int turn;
    char command[32768], *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    snprintf(
        command, sizeof command,
        "mkdir -p %s && cp -f %s/tokenizer.json %s/config.json %s && ln -sf $(realpath %s/model.safetensors) %s && "
        "sed -i 's/\"%s\": [0-9]*/\"%s\": %d/' %s/config.json",
        path, dir, dir, path, dir, path, member, member, value, path);
    ck_assert_int_eq(system(command), 0);
    return path;
}

const char *copy_model_with_token(const char *dir, const char *name, int id, const char *text) {
    static char path[4096];
    char command[32768];
    snprintf(path, sizeof path, "%s/%s", temp_dir(), name);
    snprintf(
        command, sizeof command,
        "mkdir -p %s && cp -f %s/*.json %s && ln -sf $(realpath %s/model.safetensors) %s && "
        "sed -i 's/\"added_tokens\": \\[/&{\"id\": %d, \"content\": \"%s\", \"special\": true},/' %s/tokenizer.json",
        path, dir, path, dir, path, id, text, path);
    ck_assert_int_eq(system(command), 0);
    return path;
}

/* --- references --------------------------------------------------------------------------------------------- */

cJSON *must_load_json(const char *path) {
    cJSON *json;
    ck_ok(json_parse_file(&json, path));
    return json;
}

struct ids json_ids(const cJSON *object, const char *name) {
    struct ids ids = {0};
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(object, name)) ids_push(&ids, (int32_t)item->valuedouble);
    return ids;
}

double json_at(const cJSON *object, const char *name, int index) {
    const cJSON *item = cJSON_GetArrayItem(json_get(object, name), index);
    ck_assert_msg(item != NULL, "no %s[%d] in the reference", name, index);
    return item->valuedouble;
}

/* The gap between the two best logits below which the arithmetic decides. */
static double decided_gap(void) {
    return test_device_is_host() ? 0.02 : 0.25;
}

/* Where activations are bf16 and a router hardly prefers an expert, another one is no fault. */
static bool is_router_decided(const cJSON *reference, int step) {
    const cJSON *prompt = json_get(reference, "router_gap_prompt");
    if (!prompt || test_device_is_host()) return true;
    return prompt->valuedouble >= 0.05 && json_at(reference, "router_gaps", step) >= 0.05;
}

void must_match_reference(const cJSON *reference, const struct answer *got, const char *what) {
    struct ids expected = json_ids(reference, "greedy");
    for (size_t i = 0; i < expected.len; i++) {
        if (json_at(reference, "gaps", (int)i) < decided_gap() || !is_router_decided(reference, (int)i)) break;
        ck_assert_msg(i < got->ids.len, "%s: only %zu tokens", what, got->ids.len);
        ck_assert_msg(got->ids.data[i] == expected.data[i], "%s: token %zu is %d, expected %d", what, i,
                      got->ids.data[i], expected.data[i]);
    }
    ids_free(&expected);
}
