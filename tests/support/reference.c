#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/logits.h"
#include "tests/support/support.h"

/* On the host activations are f32; elsewhere bf16, of 8 bits, several times a layer. */
static double logit_tolerance(void) {
    return test_device_is_host() ? 1e-3 : 5e-2;
}

void reference_must_be_close(const cJSON *reference, const char *member, const float *logits, int vocab,
                             const char *what) {
    double largest = 0;
    for (int i = 0; i < vocab; i++) largest = fmax(largest, fabs(json_at(reference, member, i)));
    for (int i = 0; i < vocab; i++) {
        double expected = json_at(reference, member, i);
        ck_assert_msg(fabs(logits[i] - expected) <= logit_tolerance() * largest, "%s: %s[%d] is %g, expected %g", what,
                      member, i, logits[i], expected);
    }
}

void reference_check_logits(const char *dir, const cJSON *r, int length, const char *what) {
    const cJSON *router_gap = json_get(r, "router_gap_prompt");
    const int vocab = cJSON_GetArraySize(json_get(r, "logits_last"));
    float *logits = malloc((size_t)vocab * sizeof *logits);
    struct ids prompt = json_ids(r, "prompt");
    if (test_device_is_host() || !router_gap || router_gap->valuedouble >= 0.05) {
        compute_logits_with(KV_AUTO, dir, &prompt, length, logits, vocab);
        reference_must_be_close(r, "logits_last", logits, vocab, what);
    }
    prompt.len = 1;
    if (test_device_is_host() || !router_gap) {
        compute_logits_with(KV_AUTO, dir, &prompt, length, logits, vocab);
        reference_must_be_close(r, "logits_first", logits, vocab, what);
    }
    ids_free(&prompt);
    free(logits);
}

void reference_check_greedy(struct engine *e, const cJSON *references, const char *prompt_name, const char *what,
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
