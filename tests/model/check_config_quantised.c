/* config.json's quantization_config: which method, in which form. */
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "tests/support/config_support.h"
#include "tests/support/support.h"

static void refuse_quantisation(const char *members, const char *words) {
    char changes[640];
    snprintf(changes, sizeof changes, "{\"quantization_config\": {%s}}", members);
    refuse_config(changes, ERR_UNSUPPORTED, words);
}

/* Zeros of its second form are stored as they are. */
START_TEST(the_form_of_gptq_has_two_names)
{
    static const struct {
        const char *members;
        bool one_less;
    } cases[] = {{"", true},
                 {", \"checkpoint_format\": \"gptq\", \"format\": \"gptq\"", true},
                 {", \"checkpoint_format\": \"gptq_v2\"", false},
                 {", \"format\": \"GPTQ_V2\"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char changes[160];
        struct model_config c;
        snprintf(changes, sizeof changes, "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4%s}}",
                 cases[i].members);
        ck_ok(load_config(&c, changes, NULL));
        ck_assert(c.quantisation.zero_is_one_less == cases[i].one_less);
    }
    refuse_quantisation("\"quant_method\": \"gptq\", \"bits\": 4, \"format\": \"marlin\"", "format 'marlin'");
}
END_TEST

/* Its exporter packs them as GPTQ's own does, each zero less one. */
START_TEST(auto_round_s_gptq_is_gptq)
{
    static const char base[] = "\"quant_method\": \"auto-round\", \"bits\": 4, \"group_size\": 64";
    static const char *const taken[] = {
        "", ", \"sym\": false, \"data_type\": \"int\", \"act_bits\": 16",
        ", \"extra_config\": {\"model.layers.0.mlp.gate\": {\"bits\": 16, \"data_type\": \"float\"}}"};
    static const char *const refused[][2] = {
        {"\"bits\": 2, \"packing_format\": \"auto_round:auto_gptq\", \"quant_method\": \"auto-round\"", "2 bits"},
        {base, "packing_format '(no name)'"},
        {", \"packing_format\": \"auto_round:auto_awq\"", "packing_format 'auto_round:auto_awq'"},
        {", \"packing_format\": \"auto_round:gptqmodel\"", "packing_format 'auto_round:gptqmodel'"},
        {", \"packing_format\": \"auto_round:auto_gptq\", \"data_type\": \"mx_fp\"", "data_type 'mx_fp'"},
        {", \"packing_format\": \"auto_round:auto_gptq\", \"act_bits\": 8", "activations of 8 bits"},
        {", \"packing_format\": \"auto_round:auto_gptq\", \"rotation_config\": {\"block_size\": 32}", "rotated"},
        {", \"packing_format\": \"auto_round:auto_gptq\", \"extra_config\": {\"lm_head\": {\"bits\": 8}}",
         "the extra_config of 'lm_head'"},
        {", \"packing_format\": \"auto_round:auto_gptq\", \"extra_config\": {\"m.q\": {\"group_size\": 32}}",
         "the extra_config of 'm.q'"}};
    char members[512];
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        struct model_config c;
        snprintf(members, sizeof members,
                 "{\"quantization_config\": {%s, \"packing_format\": \"auto_round:auto_gptq\"%s}}", base, taken[i]);
        ck_ok(load_config(&c, members, NULL));
        ck_assert(c.quantisation.method == QUANTISATION_GPTQ && c.quantisation.zero_is_one_less);
        ck_assert_int_eq(c.quantisation.int4_group, 64);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(members, sizeof members, "%s%s", i < 2 ? "" : base, refused[i][0]);
        refuse_quantisation(members, refused[i][1]);
    }
}
END_TEST

/* Under either name, and with layers of their own beside. */
START_TEST(mlx_s_quantisation_is_refused_by_name)
{
    static const char words[] =
        "it looks like MLX's (group_size and bits without a quant_method), which is not supported";
    refuse_quantisation("\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"", words);
    refuse_config("{\"quantization\": {\"group_size\": 64, \"bits\": 4}}", ERR_UNSUPPORTED, words);
    refuse_config("{\"quantization\": {\"group_size\": 64, \"bits\": 4}, \"quantization_config\": {\"group_size\": 64, "
                  "\"bits\": 4, \"lm_head\": false}}",
                  ERR_UNSUPPORTED, words);
    refuse_quantisation("\"bits\": 4", "of an unnamed method");
}
END_TEST

START_TEST(quantisation_that_is_not_read_is_refused_by_name)
{
    static const char compressed[] = "\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"";
    char members[512];
    refuse_quantisation("", "quantization");
    refuse_quantisation("\"quant_method\": \"hqq\"", "'hqq'");
    refuse_quantisation("\"quant_method\": \"awq\", \"bits\": 3", "3 bits");
    refuse_quantisation("\"quant_method\": \"awq\", \"bits\": 4, \"version\": \"gemv\"", "version 'gemv'");
    refuse_quantisation("\"quant_method\": \"awq\", \"bits\": 4, \"zero_point\": false", "without zero points");
    refuse_quantisation("\"quant_method\": \"gptq\", \"bits\": 8", "8 bits");
    refuse_quantisation("\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"", "'marlin'");
    refuse_quantisation("\"quant_method\": \"gptq\", \"bits\": 4, \"is_marlin_format\": true", "is_marlin_format");
    refuse_quantisation("\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"+:.*\": {\"bits\": 8}}", "'+:.*'");
    refuse_quantisation("\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"", "'e5m2'");
    refuse_quantisation("\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\"", "'W4A8_AWQ'");
    refuse_quantisation("\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true", "8 bits");
    refuse_quantisation("\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"fp4\"",
                        "'fp4'");
    refuse_quantisation("\"quant_method\": \"compressed-tensors\", \"format\": \"int-quantized\"", "'int-quantized'");
    snprintf(members, sizeof members, "%s, \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}", compressed);
    refuse_quantisation(members, "'sparse-24-bitmask'");
    snprintf(members, sizeof members, "%s, \"transform_config\": {\"config_groups\": {\"R1\": {}}}", compressed);
    refuse_quantisation(members, "transform_config");
    snprintf(members, sizeof members,
             "%s, \"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 3, \"type\": \"int\"}}}", compressed);
    refuse_quantisation(members, "3 bits");
    snprintf(
        members, sizeof members,
        "%s, \"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", "
        "\"group_size\": 32}}, \"b\": {\"weights\": {\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\"}}}",
        compressed);
    refuse_quantisation(members, "groups of 32 and of 0 columns");
    refuse_config("{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128]}}", ERR_FORMAT,
                  "no pair of positive integers");
}
END_TEST

/* A compressed-tensors' FP8 in blocks; 0, or the error. */
static int load_blocks(struct model_config *c, const char *transform, const char *blocks) {
    char changes[640];
    snprintf(
        changes, sizeof changes,
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"transform_config\": %s, \"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", "
        "\"strategy\": \"block\", \"block_structure\": %s}}}}}",
        transform, blocks);
    return load_config(c, changes, NULL);
}

START_TEST(blocks_are_read_in_both_forms_and_no_transforms_are_none)
{
    static const char *const transforms[] = {"null", "{}", "{\"config_groups\": {}}"},
                             *const blocks[] = {"[64, 32]", "\"64x32\""}, *const wrong[] = {"\"64\"",      "\"64x\"",
                                                                                            "\"64x0\"",    "\"64x32 \"",
                                                                                            "\"64x32x2\"", "\"-1x2\""};
    struct model_config c;
    for (int i = 0; i < 6; i++) {
        ck_ok(load_blocks(&c, transforms[i / 2], blocks[i % 2]));
        ck_assert(c.quantisation.block_rows == 64 && c.quantisation.block_cols == 32);
        ck_assert_int_eq(load_blocks(&c, "{}", wrong[i]), ERR_FORMAT);
    }
}
END_TEST

Suite *check_config_quantised(void);
Suite *check_config_quantised(void) {
    Suite *suite = suite_create("config_quantised");
    TCase *tc = tcase_create("forms");
    tcase_add_test(tc, the_form_of_gptq_has_two_names);
    tcase_add_test(tc, auto_round_s_gptq_is_gptq);
    tcase_add_test(tc, mlx_s_quantisation_is_refused_by_name);
    tcase_add_test(tc, quantisation_that_is_not_read_is_refused_by_name);
    tcase_add_test(tc, blocks_are_read_in_both_forms_and_no_transforms_are_none);
    suite_add_tcase(suite, tc);
    return suite;
}
