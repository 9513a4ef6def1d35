/* Driving an engine in tests: prompts in, answers out, with continuous batching. */
#ifndef DUET_TESTS_ENGINE_SUPPORT_H
#define DUET_TESTS_ENGINE_SUPPORT_H

#include "base/json.h"
#include "engine/engine.h"

struct pair {
    const char *name, *target, *draft; /* draft: a directory, or "ngram" */
};
enum { PAIRS_MAX = 3 };
/* The embedded pair, and with test data: stories260K + llama2xs-267K, the babyllama pair. Returns how many. */
int test_pairs(struct pair pairs[PAIRS_MAX]);
/* The smallest of these pairs. */
struct pair quick_pair(void);
/* The target of a pair with n-gram lookup. */
struct pair ngram_pair(const struct pair *pair);

/* Of the test data's fixtures: one checkpoint a family or variant, in the form of released files, and then a Llama or Qwen3 MoE in
 * every format of quantised safetensors. Each lies beside what transformers computes on it. */
enum { TEST_FAMILIES = 29, TEST_CHECKPOINTS = 49 };
extern const char *const test_checkpoints[TEST_CHECKPOINTS];

enum { STORY_STARTS = 12 };
/* Prompts that every pair goes on from. */
extern const char *const story_starts[STORY_STARTS];

/* Engine options for a pair on test_device(); the rest zero. */
struct engine_options pair_options(const struct pair *pair, int k, int max_batch);
struct engine *must_open(const struct engine_options *options);

struct request {
    struct ids prompt;
    struct generation generation; /* without callback */
    int cut_at;                   /* keep only so many tokens of the answer; 0: all */
};
struct answer {
    struct ids ids;
    enum finish finish;
    struct acceptance stats;
};

/* A greedy request over the text's ids with the engine's tokenizer (special tokens added). */
struct request text_request(const struct engine *e, const char *text, int max_tokens);
struct request ids_request(const int32_t *ids, size_t n, int max_tokens);
/* Answers all requests, each in a sequence of its own, as many at once as the engine takes; answers in order. */
void run_requests(struct engine *e, const struct request *requests, int count, struct answer *answers);
/* Likewise, with no more than `at_once` open at a time. */
void run_requests_at_most(struct engine *e, const struct request *requests, int count, int at_once,
                          struct answer *answers);
/* One more turn on an open sequence. */
struct answer run_turn(struct engine *e, struct sequence *s, const struct request *request);
void free_requests(struct request *requests, int count);
/* on_tokens of an engine that a test steps itself; user: a struct answer. */
void keep_tokens(void *user, struct token_block *);
void free_answers(struct answer *answers, int count);

/* Graph replays and kernel launches of the rounds of one answer without prefill; returns the rounds. */
uint64_t count_round_launches(struct engine *e, uint64_t *graphs, uint64_t *kernels);

/* A copy, in temp_dir, of a model with one number of its config.json changed. Two static buffers in turn. */
const char *copy_model_with(const char *dir, const char *name, const char *member, int value);
/* The same with one special token more in its tokenizer.json. */
const char *copy_model_with_token(const char *dir, const char *name, int id, const char *text);

/* ck_asserts equality of ids and finish. */
void must_equal(const struct answer *got, const struct answer *expected, const char *what);

/* JSON arrays of reference files. */
struct ids json_ids(const cJSON *object, const char *name);
double json_at(const cJSON *object, const char *name, int index);
cJSON *must_load_json(const char *path);

/* The ids before the first step whose top-2 gap is under 0.02 (0.25 where activations are bf16) agree. */
void must_match_reference(const cJSON *reference, const struct answer *got, const char *what);

#endif
