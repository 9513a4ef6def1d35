/* Files of quantised weights that lack something, mix formats up or are damaged: refused with file and tensor, or read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

/* --- a file in parts ----------------------------------------------------------------------------------------- */

struct parts {
    char folder[256];
    struct buf config, data;
    cJSON *header;
};

static bool parts_read(struct parts *p, const char *fixture) {
    char path[512];
    struct buf file = {0};
    uint64_t length;
    *p = (struct parts){0};
    snprintf(path, sizeof path, "fixtures/%s/model.safetensors", fixture);
    const char *from = shared_path(path);
    if (!from) {
        skip("no test data beside the checkout");
        return false;
    }
    ck_ok(file_read(from, 1 << 24, &file));
    memcpy(&length, file.data, sizeof length);
    ck_ok(json_parse(&p->header, file.data + 8, length));
    buf_append(&p->data, file.data + 8 + length, file.len - 8 - length);
    snprintf(path, sizeof path, "fixtures/%s/config.json", fixture);
    ck_ok(file_read(shared_path(path), 1 << 20, &p->config));
    buf_free(&file);
    snprintf(p->folder, sizeof p->folder, "%s/stored", temp_dir());
    mkdir(p->folder, 0700);
    return true;
}

static void parts_free(struct parts *p) {
    buf_free(&p->config);
    buf_free(&p->data);
    cJSON_Delete(p->header);
}

static const char *path_in(const struct parts *p, const char *file) {
    static char path[320];
    snprintf(path, sizeof path, "%s/%s", p->folder, file);
    return path;
}

static void parts_write(const struct parts *p, const char *header) {
    struct buf text = {0}, file = {0};
    if (header)
        buf_puts(&text, header);
    else
        json_print(p->header, &text);
    const uint64_t length = text.len;
    buf_append(&file, (const char *)&length, sizeof length);
    buf_append(&file, text.data, text.len);
    buf_append(&file, p->data.data, p->data.len);
    damage_write_file(path_in(p, "model.safetensors"), file.data, file.len);
    damage_write_file(path_in(p, "config.json"), p->config.data, p->config.len);
    buf_free(&text);
    buf_free(&file);
}

static int parts_open(const struct parts *p) {
    struct engine *e = NULL;
    const struct engine_options options = {
        .target = test_checkpoint(p->folder), .device = "host", .context = 32, .threads = 1};
    int rc = engine_create(&e, &options);
    if (rc == 0) engine_destroy(e);
    return rc;
}

/* --- refusals ------------------------------------------------------------------------------------------------- */

enum change { DROP, RENAME, TYPE, SHAPE, POKE, CONFIG };

/* What is done to one tensor (CONFIG: in config.json, `tensor` becomes `value`), and what is said of it. POKE: `value` is put at its
 * first bytes, in hexadecimal. */
static const struct fault {
    const char *fixture, *tensor;
    enum change change;
    const char *value, *words;
} faults[] = {
#define Q "model.layers.1.self_attn.q_proj."
    {"formats/fp8-block", Q "weight_scale_inv", DROP, "", "weight_scale' is missing"},
    {"formats/fp8-block", Q "weight_scale_inv", SHAPE, "[1,4]", "[1, 4] BF16, expected [2, 2]"},
    {"formats/fp8-block", Q "weight_scale_inv", POKE, "807f", "holds a scale that is not finite"},
    {"formats/fp8-block", Q "weight", POKE, "7f", "holds NaN"},
    {"formats/fp8-block", Q "weight", TYPE, "F8_E5M2", "F8_E5M2, expected"},
    {"formats/fp8-block", Q "weight_scale_inv", RENAME, Q "qzeros", "is missing"},
    {"formats/fp8-block", "\"quant_method\": \"fp8\"", CONFIG, "\"quant_method\": \"awq\", \"bits\": 4",
     "F8_E4M3, expected"},
    {"formats/fp8-block", "quantization_config", CONFIG, "quantisation_config", "F8_E4M3, expected"},
    {"formats/ct-fp8-channel", Q "weight_scale", TYPE, "I16", "I16, expected"},
    {"formats/ct-fp8-channel", Q "weight_scale", RENAME, Q "weight_zero_point", "is missing"},
    {"formats/ct-fp8-tensor", Q "input_scale", RENAME, Q "weight_scale_inv", "are scales of the same matrix"},
    {"formats/ct-fp8-tensor", Q "input_scale", RENAME, Q "pre_quant_scale", "is not part of"},
    {"formats/modelopt-fp8", Q "weight_scale", POKE, "0000c07f", "holds a scale that is not finite"},
    {"formats/gptq-g128", Q "qzeros", DROP, "", "qzeros' is missing"},
    {"formats/gptq-g128", Q "scales", SHAPE, "[1,512]", "[1, 512] F16, expected [2, 256]"},
    {"formats/gptq-g128", Q "scales", POKE, "007c", "holds a scale that is not finite"},
    {"formats/gptq-g128", Q "qweight", SHAPE, "[256,32]", "[256, 32] I32, expected [32, 256]"},
    {"formats/gptq-g128", Q "g_idx", POKE, "02000000", "names group 2, there are 2"},
    {"formats/gptq-g128", "\"group_size\": 128", CONFIG, "\"group_size\": 64", "expected [4, 32] I32"},
    {"formats/gptq-g128", "\"quant_method\": \"gptq\"", CONFIG, "\"quant_method\": \"awq\"", "expected [256, 32] I32"},
    {"formats/gptq-desc-act", Q "bias", POKE, "0001", "q_proj.bias' is not part of"},
    {"formats/gptq-desc-act", Q "bias", RENAME, Q "weight", "are the same matrix in two formats"},
    {"formats/awq-g128", Q "qzeros", TYPE, "U32", "U32, expected"},
    {"formats/ct-int4-g128", Q "weight_shape", POKE, "ff", "does not say [256, 256]"},
    {"formats/ct-int4-g128", Q "weight_scale", DROP, "", "weight_scale' is missing"},
    {"formats/ct-int4-g128", "\"type\": \"int\"", CONFIG, "\"type\": \"float\"",
     "stored in int4, which its configuration"},
    {"formats/ct-int4-g32-asym", Q "weight_zero_point", SHAPE, "[4,16]", "[4, 16] I32, expected [16, 4]"},
    {"formats/nvfp4", Q "weight_global_scale", POKE, "00000000", "is no scale"},
    {"formats/nvfp4", Q "weight_global_scale", DROP, "", "weight_global_scale' is missing"},
    {"formats/nvfp4", Q "weight_scale", POKE, "7f", "holds a scale that is not finite"},
    {"formats/nvfp4-modelopt", Q "weight_scale_2", DROP, "", "is missing"},
    {"formats/ct-mxfp4", Q "weight_scale", POKE, "ff", "holds a scale that is not finite"},
    {"formats/bnb-nf4", Q "weight.quant_map", DROP, "", "quant_map' is missing"},
    {"formats/bnb-nf4", Q "weight.nested_absmax", POKE, "0000807f", "holds a scale that is not finite"},
    {"formats/bnb-nf4", Q "weight.quant_state.bitsandbytes__nf4", POKE, "20", "malformed JSON"},
    {"formats/bnb-nf4", Q "weight.quant_state.bitsandbytes__nf4", DROP, "", "nf4' is missing"},
    {"families/gpt-oss-mxfp4", "model.layers.1.mlp.experts.gate_up_proj_scales", DROP, "",
     "gate_up_proj_scales' is missing"},
    {"families/gpt-oss-mxfp4", "model.layers.1.mlp.experts.down_proj_blocks", RENAME,
     "model.layers.1.mlp.experts.down_proj", "down_proj"},
#undef Q
};

static void poke(struct parts *p, const cJSON *tensor, const char *hex) {
    int64_t at;
    ck_assert(json_int(json_get(tensor, "data_offsets")->child, &at));
    for (size_t i = 0; hex[2 * i]; i++) {
        unsigned byte;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        p->data.data[at + (int64_t)i] = (char)byte;
    }
}

static void change_config(struct parts *p, const char *from, const char *to) {
    struct buf changed = {0};
    const char *at = strstr(buf_text(&p->config), from);
    ck_assert_msg(at != NULL, "config.json has no %s", from);
    buf_append(&changed, p->config.data, (size_t)(at - p->config.data));
    buf_puts(&changed, to);
    buf_puts(&changed, at + strlen(from));
    buf_free(&p->config);
    p->config = changed;
}

static void change_tensor(struct parts *p, const struct fault *f) {
    cJSON *tensor = cJSON_GetObjectItemCaseSensitive(p->header, f->tensor);
    ck_assert_msg(tensor != NULL, "%s has no %s", f->fixture, f->tensor);
    if (f->change == POKE) poke(p, tensor, f->value);
    if (f->change == TYPE) cJSON_ReplaceItemInObjectCaseSensitive(tensor, "dtype", cJSON_CreateString(f->value));
    if (f->change == SHAPE) cJSON_ReplaceItemInObjectCaseSensitive(tensor, "shape", cJSON_Parse(f->value));
    if (f->change == RENAME || f->change == DROP) {
        cJSON_DetachItemViaPointer(p->header, tensor);
        if (f->change == RENAME)
            cJSON_AddItemToObject(p->header, f->value, tensor);
        else
            cJSON_Delete(tensor);
    }
}

/* Loop index: the fault. */
START_TEST(what_is_missing_mixed_up_or_not_finite_is_refused_with_file_and_tensor)
{
    const struct fault *f = &faults[_i];
    struct parts p;
    if (!parts_read(&p, f->fixture)) return;
    parts_write(&p, NULL);
    ck_ok(parts_open(&p));
    if (f->change == CONFIG)
        change_config(&p, f->tensor, f->value);
    else
        change_tensor(&p, f);
    parts_write(&p, NULL);
    int rc = parts_open(&p);
    ck_assert_msg(rc == ERR_FORMAT || rc == ERR_UNSUPPORTED, "%s %s: code %d", f->fixture, f->tensor, rc);
    check_sentence();
    ck_assert_msg(strstr(err_message(), "model.safetensors: ") && strstr(err_message(), f->words),
                  "%s %s: '%s' lacks '%s'", f->fixture, f->tensor, err_message(), f->words);
    ck_assert_msg(strstr(err_message(), "model.layers.") != NULL, "no tensor is named: %s", err_message());
    parts_free(&p);
}
END_TEST

/* One number, behind the others. */
static void add_scale(struct parts *p, const char *name) {
    const float one = 1;
    char text[128];
    snprintf(text, sizeof text, "{\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [%zu, %zu]}", p->data.len,
             p->data.len + sizeof one);
    cJSON_AddItemToObject(p->header, name, cJSON_Parse(text));
    buf_append(&p->data, (const char *)&one, sizeof one);
}

static int open_with(const char *fixture, const char *name) {
    struct parts p;
    if (!parts_read(&p, fixture)) return 1;
    add_scale(&p, name);
    parts_write(&p, NULL);
    int rc = parts_open(&p);
    parts_free(&p);
    return rc;
}

/* Files that were made for engines with a quantised cache. */
START_TEST(scales_of_the_cache_are_left_alone_whatever_is_quantised)
{
    static const char *const fixtures[] = {"formats/ct-fp8-tensor", "formats/nvfp4", "checkpoints/llama-gqa-tied"};
    static const char *const names[] = {"k_scale",        "v_scale",          "kv_scale",          "q_scale",
                                        "k_proj.k_scale", "qkv_proj.v_scale", "prob_output_scale", "attn.k_zero_point"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.0.self_attn.%s", names[j]);
            int rc = open_with(fixtures[i], name);
            if (rc > 0) return;
            ck_assert_msg(rc == 0, "%s %s: %s", fixtures[i], names[j], err_message());
        }
    ck_assert_int_eq(open_with(fixtures[0], "model.layers.0.mlp.k_scale"), ERR_UNSUPPORTED);
    ck_assert_int_eq(open_with(fixtures[0], "model.layers.0.self_attn.qk_scale"), ERR_UNSUPPORTED);
}
END_TEST

START_TEST(the_head_of_a_tied_model_is_left_alone)
{
    static const char *const cases[][2] = {{"checkpoints/llama-gqa-tied", "lm_head.weight"},
                                           {"families/gemma3-wrapped", "language_model.lm_head.weight"}};
    for (int i = 0; i < 2; i++) {
        int rc = open_with(cases[i][0], cases[i][1]);
        if (rc > 0) return;
        ck_assert_msg(rc == 0, "%s", err_message());
    }
    ck_assert_int_eq(open_with("checkpoints/llama-gqa-tied", "head.weight"), ERR_UNSUPPORTED);
}
END_TEST

/* One scale for a matrix and one for what it multiplies, as Mistral's files of quant_method fp8 have them. */
START_TEST(a_single_scale_of_fp8_goes_by_either_name)
{
    struct parts p;
    struct buf renamed = {0};
    if (!parts_read(&p, "formats/ct-fp8-tensor")) return;
    for (cJSON *tensor = p.header->child, *next; tensor; tensor = next) {
        const char *name = tensor->string, *end = strrchr(name, '.');
        next = tensor->next;
        if (!end || (strcmp(end, ".weight_scale") != 0 && strcmp(end, ".input_scale") != 0)) continue;
        buf_clear(&renamed);
        buf_printf(&renamed, "%.*s%s", (int)(end - name), name,
                   strcmp(end, ".input_scale") == 0 ? ".activation_scale" : ".weight_scale_inv");
        cJSON_DetachItemViaPointer(p.header, tensor);
        cJSON_AddItemToObject(p.header, buf_text(&renamed), tensor);
    }
    change_config(&p, "\"quantization_config\": {",
                  "\"quantization_config\": {\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", "
                  "\"weight_block_size\": null}, \"unused\": {");
    parts_write(&p, NULL);
    ck_ok(parts_open(&p));
    buf_free(&renamed);
    parts_free(&p);
}
END_TEST

/* Old files of modelopt, GPTQ and AWQ have their configuration in a file of its own. */
START_TEST(a_configuration_beside_config_json_is_read)
{
    static const struct {
        const char *fixture, *file, *text; /* NULL: what the fixture has */
    } cases[] = {{"formats/modelopt-fp8", "hf_quant_config.json", NULL},
                 {"formats/nvfp4-modelopt", "hf_quant_config.json", NULL},
                 {"formats/gptq-desc-act", "quantize_config.json", NULL},
                 {"formats/awq-g128", "quant_config.json",
                  "{\"zero_point\": true, \"q_group_size\": 128, \"w_bit\": 4, \"version\": \"GEMM\"}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts p;
        struct buf beside = {0};
        char path[256];
        if (!parts_read(&p, cases[i].fixture)) return;
        snprintf(path, sizeof path, "fixtures/%s/%s", cases[i].fixture, cases[i].file);
        if (cases[i].text)
            buf_puts(&beside, cases[i].text);
        else
            ck_ok(file_read(shared_path(path), 1 << 20, &beside));
        change_config(&p, "\"quantization_config\"", "\"none\"");
        parts_write(&p, NULL);
        ck_assert_int_ne(parts_open(&p), 0);
        damage_write_file(path_in(&p, cases[i].file), beside.data, beside.len);
        ck_ok(parts_open(&p));
        unlink(path_in(&p, cases[i].file));
        buf_free(&beside);
        parts_free(&p);
    }
}
END_TEST

/* --- damage ------------------------------------------------------------------------------------------------------ */

static const char *const damaged[] = {"formats/fp8-block-moe", "formats/ct-fp8-tensor",    "formats/gptq-desc-act",
                                      "formats/awq-moe",       "formats/ct-int4-g32-asym", "formats/nvfp4",
                                      "formats/ct-mxfp4",      "formats/bnb-nf4",          "families/gpt-oss-mxfp4"};
enum { DAMAGED = sizeof damaged / sizeof *damaged };

/* Loop index: the fixture. */
START_TEST(damaged_files_open_or_fail_with_a_sentence)
{
    struct damage damage = {(uint64_t)_i + 5};
    struct parts p;
    struct buf header = {0}, text = {0}, config = {0};
    int refused = 0;
    if (!parts_read(&p, damaged[_i])) return;
    json_print(p.header, &header);
    buf_append(&config, p.config.data, p.config.len);
    for (int i = 0; i < 120; i++) {
        buf_clear(&text);
        buf_append(&text, header.data, header.len);
        buf_clear(&p.config);
        buf_append(&p.config, config.data, config.len);
        if (i % 3 == 0) damage_text(&damage, &text);
        if (i % 3 == 1) damage_text(&damage, &p.config);
        for (int j = 0; i % 3 == 2 && j < 20; j++)
            p.data.data[damage_below(&damage, (uint32_t)p.data.len)] = (char)damage_below(&damage, 256);
        parts_write(&p, buf_text(&text));
        err_set(ERR_INTERNAL, "%s", "");
        if (parts_open(&p) != 0) {
            check_sentence();
            refused++;
        }
    }
    ck_assert_int_gt(refused, 20);
    buf_free(&header), buf_free(&text), buf_free(&config);
    parts_free(&p);
}
END_TEST

Suite *check_stored(void) {
    Suite *suite = suite_create("stored");
    TCase *tc = tcase_create("stored");
    tcase_add_loop_test(tc, what_is_missing_mixed_up_or_not_finite_is_refused_with_file_and_tensor, 0,
                        (int)(sizeof faults / sizeof *faults));
    tcase_add_test(tc, scales_of_the_cache_are_left_alone_whatever_is_quantised);
    tcase_add_test(tc, the_head_of_a_tied_model_is_left_alone);
    tcase_add_test(tc, a_single_scale_of_fp8_goes_by_either_name);
    tcase_add_test(tc, a_configuration_beside_config_json_is_read);
    tcase_add_loop_test(tc, damaged_files_open_or_fail_with_a_sentence, 0, DAMAGED);
    suite_add_tcase(suite, tc);
    return suite;
}
