/* duet bench verify and decode: limits, cliffs, operations and errors by hand; the steps whose logits are compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench_tables.h"
#include "tests/support/engine_support.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

/* --- verify ----------------------------------------------------------------------------------------------------- */

START_TEST(a_verification_is_bound_by_bytes_or_by_operations)
{
    ck_assert_double_eq_tol(bench_verify_limit(8e9, 4e12, 1e12, 1e15), 2, 1e-12); /* 2 ms of bytes, 1 of products */
    ck_assert_double_eq_tol(bench_verify_limit(8e9, 4e12, 5e12, 1e15), 5, 1e-12);
}
END_TEST

/* Two batches of M = 1..3. */
static struct verify_bench by_hand(void) {
    return (struct verify_bench){.batch = {1, 2},
                                 .batches = 2,
                                 .rows_most = 3,
                                 .ms = {{0, 10, 12, 11}, {0, 10, 13, 20}},
                                 .limit_ms = {{0, 9, 9, 9}, {0, 9, 10, 15}}};
}

START_TEST(growth_is_against_one_row_less_and_the_neighbours_are_larger)
{
    const struct verify_bench r = by_hand();
    ck_assert(isnan(bench_verify_growth(&r, 0, 1)));
    ck_assert_double_eq_tol(bench_verify_growth(&r, 0, 2), 1.2, 1e-12);
    ck_assert_double_eq_tol(bench_verify_growth(&r, 1, 3), 20.0 / 13, 1e-12);
    ck_assert_double_eq_tol(bench_verify_over_larger(&r, 0, 1), 1, 1e-12);         /* the batch of 2, not 10 / 12 */
    ck_assert_double_eq_tol(bench_verify_over_larger(&r, 0, 2), 12.0 / 11, 1e-12); /* a row more, not 12 / 13 */
    ck_assert_double_eq_tol(bench_verify_over_larger(&r, 0, 3), 11.0 / 20, 1e-12); /* there is no M = 4 */
    ck_assert_double_eq_tol(bench_verify_over_larger(&r, 1, 2), 13.0 / 20, 1e-12); /* nor a larger batch */
    ck_assert(isnan(bench_verify_over_larger(&r, 1, 3)));
}
END_TEST

static void expect_beyond(const struct verify_bench *r, int which, int m, int wanted) {
    ck_assert_msg(bench_verify_beyond(r, which, m) == wanted, "batch %d, M = %d: %d, expected %d", r->batch[which], m,
                  bench_verify_beyond(r, which, m), wanted);
}

START_TEST(a_cliff_is_above_the_limit_or_above_a_larger_neighbour)
{
    struct verify_bench r = by_hand();
    expect_beyond(&r, 0, 1, 0);
    expect_beyond(&r, 0, 2, BEYOND_LIMIT); /* 12 of 9 */
    expect_beyond(&r, 0, 3, 0);
    expect_beyond(&r, 1, 2, 0); /* 1.3 itself */
    expect_beyond(&r, 1, 3, BEYOND_LIMIT);
    r.ms[0][2] = 1.16 * r.ms[0][3]; /* M = 2 takes longer than M = 3 */
    expect_beyond(&r, 0, 2, BEYOND_LIMIT | BEYOND_NEIGHBOUR);
    r.ms[0][2] = 11, r.ms[0][1] = 11.6; /* and batch 1 longer than batch 2 */
    expect_beyond(&r, 0, 1, BEYOND_NEIGHBOUR);
}
END_TEST

START_TEST(a_large_product_has_a_rate)
{
    double one, all;
    ck_ok(bench_product_rate("host", &(struct device_options){.threads = 1}, &one));
    ck_ok(bench_product_rate("host", &(struct device_options){0}, &all));
    ck_assert_double_gt(one, 1e8); /* a number each of its steps, at the clock of any machine */
    ck_assert_double_lt(one, 1e13);
    ck_assert_double_gt(all, one / 2);
}
END_TEST

/* --- operations of a row ------------------------------------------------------------------------------------------ */

#define SIZES                                                                                                 \
    "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, " \
    "\"vocab_size\": 64, \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000"

static struct engine *open_shape(const char *name, const char *config) {
    struct engine *e;
    text_to_file(temp_path(name), config);
    ck_ok(engine_create(&e, &(struct engine_options){.target = test_shape(temp_path(name)), .device = "host"}));
    return e;
}

static void expect_flops(const char *name, const char *config, uint64_t matrices, uint64_t a_token) {
    struct engine *e = open_shape(name, config);
    ck_assert_uint_eq(probe_row_flops(e, PROBE_TARGET, 0), 2 * matrices);
    ck_assert_uint_eq(probe_row_flops(e, PROBE_TARGET, 10), 2 * matrices + 10 * a_token);
    ck_assert_uint_eq(probe_row_flops(e, PROBE_DRAFT, 10), 0);
    engine_destroy(e);
}

/* q and o [32, 32], k and v [16, 32] a layer; heads of 16; the head [64, 32]. */
START_TEST(operations_are_two_a_number_of_a_matrix_and_four_a_number_of_what_is_attended_to)
{
    enum { ATTENTION = 2 * (2 * 32 * 32 + 2 * 16 * 32), HEAD = 64 * 32, A_TOKEN = 4 * 2 * 2 * 16 };
    expect_flops("plain.json", "{\"architectures\": [\"LlamaForCausalLM\"], \"intermediate_size\": 64, " SIZES "}",
                 ATTENTION + 2 * 3 * 64 * 32 + HEAD, A_TOKEN);
    expect_flops("tied.json",
                 "{\"architectures\": [\"LlamaForCausalLM\"], \"intermediate_size\": 64, "
                 "\"tie_word_embeddings\": true, " SIZES "}",
                 ATTENTION + 2 * 3 * 64 * 32 + HEAD, A_TOKEN); /* the head is a product all the same */
    expect_flops("window.json",
                 "{\"architectures\": [\"MistralForCausalLM\"], \"intermediate_size\": 64, \"sliding_window\": 5, "
                 "\"head_dim\": 16, " SIZES "}",
                 ATTENTION + 2 * 3 * 64 * 32 + HEAD, A_TOKEN / 2);
    expect_flops("experts.json",
                 "{\"architectures\": [\"MixtralForCausalLM\"], \"intermediate_size\": 64, \"num_local_experts\": 4, "
                 "\"num_experts_per_tok\": 2, " SIZES "}",
                 ATTENTION + 2 * (2 * 3 * 64 * 32 + 4 * 32) + HEAD, A_TOKEN); /* two of four experts, and the router */
}
END_TEST

/* --- decode ------------------------------------------------------------------------------------------------------- */

START_TEST(an_error_is_the_largest_difference_over_the_largest_logit_of_the_reference)
{
    const float reference[] = {1, -8, 2, 4}, logits[] = {1.5f, -8, 0, 5};
    ck_assert_double_eq_tol(bench_logit_error(logits, reference, 4), 2.0 / 8, 1e-12);
    ck_assert_double_eq(bench_logit_error(reference, reference, 4), 0);
    ck_assert(isnan(bench_logit_error((float[]){1, NAN, 2, 4}, reference, 4)));
}
END_TEST

enum { STEPS = 12 };

static struct ids made_up_prompt(void) {
    struct ids prompt = {0};
    for (int i = 0; i < 32; i++) ids_push(&prompt, (3 + 37 * i) % 64);
    return prompt;
}

static struct engine *open_tiny(void) {
    return open_shape("tiny.json", "{\"architectures\": [\"LlamaForCausalLM\"], \"intermediate_size\": 64, " SIZES "}");
}

/* The engine's own answer to the same prompt. */
static struct answer answer_at_once(struct engine *e, const struct ids *prompt) {
    struct request r = ids_request(prompt->data, prompt->len, STEPS);
    struct answer a;
    r.generation.ignore_end = true;
    run_requests(e, &r, 1, &a);
    free_requests(&r, 1);
    return a;
}

START_TEST(steps_one_by_one_give_the_logits_that_chose_the_answer)
{
    struct engine *e = open_tiny();
    const int vocab = engine_info(e).vocab;
    struct ids prompt = made_up_prompt();
    int32_t tokens[STEPS];
    float *logits = calloc((size_t)STEPS * (size_t)vocab, sizeof *logits);
    struct answer a = answer_at_once(e, &prompt);
    ck_ok(bench_decode_logits(e, &prompt, STEPS, false, tokens, logits));
    ck_assert_int_eq((int)a.ids.len, STEPS);
    for (int i = 0; i < STEPS; i++) {
        const float *row = logits + (size_t)i * (size_t)vocab;
        ck_assert_int_eq(tokens[i], a.ids.data[i]);
        for (int id = 0; id < vocab; id++) ck_assert_float_le(row[id], row[tokens[i]]);
        ck_assert_float_gt(row[tokens[i]], 0); /* a row of zeros has no largest */
    }
    free_answers(&a, 1);
    ids_free(&prompt);
    free(logits);
    engine_destroy(e);
}
END_TEST

/* Row i of forced steps is the first step behind the prompt and i tokens, to the bit: these are ingested there as a prompt. */
START_TEST(forced_steps_follow_the_given_history)
{
    struct engine *e = open_tiny();
    const size_t vocab = (size_t)engine_info(e).vocab;
    struct ids prompt = made_up_prompt();
    int32_t tokens[STEPS], given[STEPS];
    float *logits = calloc((STEPS + 1) * vocab, sizeof *logits), *one = logits + STEPS * vocab;
    ck_ok(bench_decode_logits(e, &prompt, STEPS, false, tokens, logits));
    for (int i = 0; i < STEPS; i++) tokens[i] = i % 3 ? tokens[i] : (tokens[i] + 1) % (int)vocab;
    memcpy(given, tokens, sizeof given);
    ck_ok(bench_decode_logits(e, &prompt, STEPS, true, tokens, logits));
    ck_assert_mem_eq(tokens, given, sizeof given);
    for (int i = 0; i < STEPS; i++) {
        int32_t chosen;
        ck_ok(bench_decode_logits(e, &prompt, 1, false, &chosen, one));
        ck_assert_msg(memcmp(one, logits + (size_t)i * vocab, vocab * sizeof *one) == 0, "step %d", i);
        ids_push(&prompt, given[i]);
    }
    ids_free(&prompt);
    free(logits);
    engine_destroy(e);
}
END_TEST

Suite *check_bench_target(void);
Suite *check_bench_target(void) {
    Suite *suite = suite_create("bench_target");
    TCase *verify = tcase_create("verify");
    tcase_set_timeout(verify, 60);
    tcase_add_test(verify, a_verification_is_bound_by_bytes_or_by_operations);
    tcase_add_test(verify, growth_is_against_one_row_less_and_the_neighbours_are_larger);
    tcase_add_test(verify, a_cliff_is_above_the_limit_or_above_a_larger_neighbour);
    tcase_add_test(verify, a_large_product_has_a_rate);
    tcase_add_test(verify, operations_are_two_a_number_of_a_matrix_and_four_a_number_of_what_is_attended_to);
    suite_add_tcase(suite, verify);
    TCase *decode = tcase_create("decode");
    tcase_add_test(decode, an_error_is_the_largest_difference_over_the_largest_logit_of_the_reference);
    tcase_add_test(decode, steps_one_by_one_give_the_logits_that_chose_the_answer);
    tcase_add_test(decode, forced_steps_follow_the_given_history);
    suite_add_tcase(suite, decode);
    return suite;
}
