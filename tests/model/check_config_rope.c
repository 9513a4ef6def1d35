#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/config.h"
#include "tests/support/config_support.h"
#include "tests/support/support.h"

/* --- what is read ------------------------------------------------------------------------------------------------ */

START_TEST(both_spellings_of_rope_are_read)
{
    static const char *const same[] = {
        "{\"rope_theta\": 7e4, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}",
        "{\"rope_theta\": 7e4, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}}",
        "{\"rope_parameters\": {\"rope_theta\": 70000, \"rope_type\": \"linear\", \"factor\": 4}}",
        "{\"rope_theta\": 7e4, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4}}",
    };
    struct model_config c;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        ck_ok(load_config(&c, same[i], NULL));
        ck_assert(c.rope[0].type == ROPE_LINEAR && c.rope[0].theta == 70000 && c.rope[0].factor == 4);
    }
    ck_ok(load_config(&c, "{\"rope_scaling\": {}}", NULL));
    ck_assert(c.rope[0].type == ROPE_DEFAULT);
    ck_ok(
        load_config(&c,
                    "{\"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"rope_theta\": 500000.0}",
                    NULL));
    ck_assert(c.rope[0].type == ROPE_LLAMA3 && c.rope[0].factor == 8 && c.rope[0].low_freq == 1 &&
              c.rope[0].high_freq == 4);
    ck_assert_int_eq(c.rope[0].original_positions, 8192);
}
END_TEST

START_TEST(unknown_or_incomplete_rope_is_refused_by_name)
{
    refuse_config("{\"rope_scaling\": {\"type\": \"ntk\", \"factor\": 4}}", ERR_UNSUPPORTED, "'ntk'");
    refuse_config("{\"rope_parameters\": {\"rope_type\": \"longrope\"}}", ERR_FORMAT, "short_factor");
    refuse_config("{\"rope_parameters\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 2]}}", ERR_FORMAT,
                  "'short_factor' has 2 factors, expected 8");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"dynamic\"}}", ERR_FORMAT, "factor");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}}", ERR_FORMAT,
                  "beta_fast");
    refuse_config("{\"rope_scaling\": {\"factor\": 2}}", ERR_FORMAT, "rope_type");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"linear\"}}", ERR_FORMAT, "factor");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}}", ERR_FORMAT, "factor");
    refuse_config("{\"rope_scaling\": {\"rope_type\": 3}}", ERR_FORMAT, "rope_type");
    refuse_config("{\"rope_scaling\": [1]}", ERR_FORMAT, "rope_scaling");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4, "
                  "\"original_max_position_embeddings\": 64}}",
                  ERR_FORMAT, "low_freq_factor");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4, "
                  "\"low_freq_factor\": 4, "
                  "\"original_max_position_embeddings\": 64}}",
                  ERR_FORMAT, "low_freq_factor");
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4, "
                  "\"low_freq_factor\": 1}}",
                  ERR_FORMAT, "original_max_position_embeddings");
}
END_TEST

/* DeepSeek-R1-0528-Qwen3-8B takes the attention factor back to 1 so. */
START_TEST(attn_factor_multiplies_the_attention_factor_of_yarn)
{
    static const struct {
        const char *members;
        double attention;
    } cases[] = {{"", 1.1386294361119891},
                 {", \"attn_factor\": 0.8782488562869419", 1},
                 {", \"attn_factor\": 0.5, \"mscale\": 1, \"mscale_all_dim\": 1", 0.5},
                 {", \"attn_factor\": 0.5, \"attention_factor\": 1.25", 1.25}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256];
        struct model_config c;
        snprintf(json, sizeof json,
                 "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
                 "\"original_max_position_embeddings\": 64%s}}",
                 cases[i].members);
        ck_ok(load_config(&c, json, NULL));
        ck_assert_double_eq_tol(c.rope[0].attention_factor, cases[i].attention, 1e-12);
    }
    refuse_config("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"attn_factor\": -1}}", ERR_FORMAT,
                  "attn_factor");
}
END_TEST

/* Other engines read it; transformers has 1 for all. */
START_TEST(a_yarn_that_extrapolates_otherwise_is_refused)
{
    static const struct {
        const char *factor;
        int code;
        const char *words;
    } cases[] = {{"1.0", 0, ""},
                 {"null", 0, ""},
                 {"0.5", ERR_UNSUPPORTED, "rope's extrapolation_factor 0.5 is not supported, only 1"},
                 {"\"1\"", ERR_FORMAT, "extrapolation_factor"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[128];
        struct model_config c;
        snprintf(json, sizeof json,
                 "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"extrapolation_factor\": %s}}",
                 cases[i].factor);
        if (cases[i].code == 0)
            ck_ok(load_config(&c, json, NULL));
        else
            refuse_config(json, cases[i].code, cases[i].words);
    }
}
END_TEST

/* --- the table --------------------------------------------------------------------------------------------------- */

/* Meta's reference, by wavelengths. */
static double llama3_frequency(double frequency, double factor, double low, double high, double original) {
    double wavelength = 2 * acos(-1.0) / frequency;
    if (wavelength < original / high) return frequency;
    if (wavelength > original / low) return frequency / factor;
    double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

static void check_rope(const struct model_config *c, double (*frequency_of)(int pair)) {
    enum { POSITIONS = 700 };
    int half = c->head_dim / 2;
    float *rope = malloc(sizeof(float[2]) * POSITIONS * (size_t)half);
    model_config_rope(&c->rope[0], POSITIONS, POSITIONS, rope);
    for (int position = 0; position < POSITIONS; position++) {
        for (int pair = 0; pair < half; pair++) {
            const float *at = rope + 2 * (position * half + pair);
            double angle = position * frequency_of(pair);
            if (!(fabs(at[0] - cos(angle)) <= 1e-7 && fabs(at[1] - sin(angle)) <= 1e-7))
                ck_abort_msg("position %d, pair %d: %g, %g", position, pair, at[0], at[1]);
        }
    }
    free(rope);
}

static double frequency_plain(int pair) {
    return exp(-log(500000) * pair / 8);
}
static double frequency_linear(int pair) {
    return frequency_plain(pair) / 4;
}
static double frequency_llama3(int pair) {
    return llama3_frequency(frequency_plain(pair), 8, 1, 4, 64);
}

START_TEST(rope_turns_each_pair_at_its_own_frequency)
{
    struct model_config c;
    ck_ok(load_config(&c, "{\"rope_theta\": 500000}", NULL));
    check_rope(&c, frequency_plain);
    ck_ok(load_config(&c, "{\"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", NULL));
    check_rope(&c, frequency_linear);
    ck_ok(load_config(&c,
                      "{\"rope_parameters\": {\"rope_theta\": 500000, \"rope_type\": \"llama3\", \"factor\": 8, "
                      "\"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}}",
                      NULL));
    check_rope(&c, frequency_llama3);
}
END_TEST

START_TEST(llama3_keeps_short_waves_stretches_long_ones_and_blends_between)
{
    ck_assert_double_eq(frequency_llama3(0), 1);
    ck_assert_double_eq_tol(frequency_llama3(7), frequency_plain(7) / 8, 1e-15);
    ck_assert(frequency_llama3(1) < frequency_plain(1) && frequency_llama3(1) > frequency_plain(1) / 8);
}
END_TEST

Suite *check_config_rope(void) {
    Suite *suite = suite_create("config_rope");
    TCase *read = tcase_create("read"), *table = tcase_create("table");
    tcase_add_test(read, both_spellings_of_rope_are_read);
    tcase_add_test(read, unknown_or_incomplete_rope_is_refused_by_name);
    tcase_add_test(read, a_yarn_that_extrapolates_otherwise_is_refused);
    tcase_add_test(read, attn_factor_multiplies_the_attention_factor_of_yarn);
    tcase_add_test(table, rope_turns_each_pair_at_its_own_frequency);
    tcase_add_test(table, llama3_keeps_short_waves_stretches_long_ones_and_blends_between);
    suite_add_tcase(suite, read);
    suite_add_tcase(suite, table);
    return suite;
}
