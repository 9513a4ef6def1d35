/* The target's own head as a proposer: what it drafts is what transformers' layers, put together as its authors do, draft. Its rounds are
 * held to texts and to fresh caches in check_recurrent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/probe.h"
#include "tests/support/damage.h"
#include "tests/support/reference.h"
#include "tests/support/support.h"
#include "tests/support/tiny_model.h"

enum { K = 3 };

/* Of the test data, then tiny models. */
static const char *const heads[] = {"qwen3-next", "qwen3.5", "qwen3.5-moe"};
enum { HEADS = sizeof heads / sizeof *heads };

static struct engine *open_with_head(const char *dir, int k, const char *vocab) {
    return must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                              .proposer = "mtp",
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
static void must_draft(const char *dir, const cJSON *references, const char *what) {
    const cJSON *r;
    struct engine *one = open_with_head(dir, 1, NULL), *some = open_with_head(dir, K, NULL);
    const int vocab = engine_info(one).vocab;
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
    must_draft(dir, references, heads[_i]);
    cJSON_Delete(references);
}
END_TEST

DEVICE_SUITE(check_mtp);
Suite *check_mtp(void) {
    Suite *suite = suite_create("mtp");
    TCase *tc = tcase_create("mtp");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, heads_of_the_test_data_draft_as_the_reference, 0, HEADS);
    suite_add_tcase(suite, tc);
    return suite;
}
