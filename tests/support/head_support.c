#include "tests/support/head_support.h"

#include <stdlib.h>
#include <string.h>

#include "engine/probe.h"
#include "tests/support/reference.h"
#include "tests/support/support.h"

enum { K = 3 };

struct engine *head_open(const char *dir, const char *own, int k, const char *vocab) {
    return must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                              .draft = own ? test_checkpoint(own) : NULL,
                                              .proposer = own ? NULL : "mtp",
                                              .draft_vocab = vocab,
                                              .device = test_device(),
                                              .context = 256,
                                              .k = k,
                                              .max_batch = 2});
}

void head_first_round(struct engine *e, const struct ids *tokens, int k, int32_t *drafted, float *logits) {
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
void head_must_draft(const char *dir, const char *own, const cJSON *references, const char *what) {
    const cJSON *r;
    struct engine *one = head_open(dir, own, 1, NULL), *some = head_open(dir, own, K, NULL);
    const int vocab = cJSON_GetArraySize(json_get(references->child, "mtp_logits"));
    float *logits = malloc((size_t)vocab * sizeof *logits);
    cJSON_ArrayForEach(r, references) {
        const int32_t next = (int32_t)json_get(r, "next")->valuedouble;
        struct ids tokens = json_ids(r, "prompt");
        int32_t drafted[K];
        ids_append(&tokens, &next, 1);
        head_first_round(one, &tokens, 1, drafted, logits);
        reference_must_be_close(r, "mtp_logits", logits, vocab, what);
        head_first_round(some, &tokens, K, drafted, NULL);
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

void head_must_be_refused(const char *dir, const char *own, const char *vocab, const char *sentence) {
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
