/* Checkpoints of several parts, of which duet runs the text: each is made of a checkpoint that holds the text alone, so it must give that
 * one's numbers, bit for bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "model/config.h"
#include "model/files/safetensors.h"
#include "tests/support/config_support.h"
#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/gguf_convert.h"
#include "tests/support/logits.h"
#include "tests/support/support.h"
#include "tests/support/tensor_file.h"
#include "tests/support/tiny_model.h"

enum { TOWERS = 2, POSITIONS = 128, GREEDY = 24 };

/* How the experts of a Qwen3 MoE lie in the files. */
enum expert_form { ONE_BY_ONE, STACKED, STACKED_TRANSPOSED };

static const struct wrapping {
    const char *fixture, *architecture, *type,
        *text_type; /* text_type: NULL: the members lie in the whole; fixture: or a tiny model */
    const char *body, *outer, *towers[TOWERS]; /* what names begin with */
    const char *text, *whole;                  /* members in place of the fixture's, and outside; null: there is none */
    enum expert_form experts;
} wrappings[] = {
#define NO_ROPE  "\"rope_parameters\": null, \"rope_theta\": 1000000"
#define MISTRAL3 "Mistral3ForConditionalGeneration", "mistral3", "mistral"
#define MISTRAL3_BODY                             \
    "language_model.model.", "language_model.", { \
        "vision_tower.", "multi_modal_projector." \
    }
#define BODY                       \
    "model.language_model.", "", { \
        "model.visual."            \
    }
    /* As released. */
    {"checkpoints/mistral-swa", MISTRAL3, MISTRAL3_BODY, "{\"rope_parameters\": null, \"rope_theta\": 10000}",
     "{\"vision_feature_layer\": -1}", ONE_BY_ONE},
    {"checkpoints/qwen2-bias",
     "Qwen2VLForConditionalGeneration",
     "qwen2_vl",
     NULL,
     "model.",
     "",
     {"visual."},
     "{" NO_ROPE ", \"sliding_window\": 32, \"layer_types\": null, \"rope_scaling\": {\"type\": \"mrope\", "
     "\"mrope_section\": [2, 3, 3]}}",
     "{}",
     ONE_BY_ONE},
    {"checkpoints/qwen3-qknorm", "Qwen3VLForConditionalGeneration", "qwen3_vl", "qwen3_vl_text", BODY,
     "{" NO_ROPE ", \"layer_types\": null, \"rope_scaling\": {\"mrope_interleaved\": true, \"mrope_section\": [6, 5, "
     "5], \"rope_type\": \"default\"}}",
     "{}", ONE_BY_ONE},
#define QWEN3_MOE "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", "qwen3_vl_moe_text", BODY
    {"families/qwen3-moe", QWEN3_MOE, "{\"norm_topk_prob\": null}", "{}", STACKED_TRANSPOSED},
    /* As others save them. */
    {"families/qwen3-moe", QWEN3_MOE, "{\"norm_topk_prob\": null}", "{}", STACKED},
    {"families/qwen3-moe", QWEN3_MOE, "{\"norm_topk_prob\": false}", "{}", ONE_BY_ONE},
    {"checkpoints/mistral-swa",
     MISTRAL3,
     "model.language_model.",
     "",
     {"model.vision_tower.", "model.multi_modal_projector."},
     "{\"tie_word_embeddings\": null}",
     "{\"tie_word_embeddings\": true}", /* the files hold a head of its own */
     ONE_BY_ONE},
    {"checkpoints/qwen2-bias", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", "qwen2_5_vl_text", BODY,
     "{" NO_ROPE
     ", \"rope_scaling\": {\"rope_type\": \"default\", \"type\": \"default\", \"mrope_section\": [2, 3, 3]}}",
     "{\"tie_word_embeddings\": false, \"hidden_size\": 8, \"vocab_size\": 9}", ONE_BY_ONE},
    {"checkpoints/qwen2-bias", "Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text", BODY,
     "{\"tie_word_embeddings\": null, \"rope_parameters\": {\"rope_theta\": 1000000, \"rope_type\": \"default\", "
     "\"mrope_section\": [2, 3, 3]}}",
     "{\"tie_word_embeddings\": true}", ONE_BY_ONE},
    {"checkpoints/qwen2-bias", "Qwen2VLForConditionalGeneration", "qwen2_vl", "qwen2_vl_text", BODY,
     "{\"rope_parameters\": null, \"num_key_value_heads\": 2}", "{}",
     ONE_BY_ONE}, /* the class's base is the fixture's */
    /* Quantised, with lists of names. */
    {"formats/ct-int4-g128", MISTRAL3, MISTRAL3_BODY, "{\"sliding_window\": null}",
     "{\"ignore\": [\"language_model.lm_head\", \"re:.*vision_tower.*\", \"re:multi_modal_projector.*\"]}", ONE_BY_ONE},
    {"formats/fp8-block", MISTRAL3, MISTRAL3_BODY, "{\"sliding_window\": null}",
     "{\"modules_to_not_convert\": [\"lm_head\", \"vision_tower\", \"multi_modal_projector\"]}", ONE_BY_ONE},
    {"formats/awq-moe", QWEN3_MOE, "{}", "{\"modules_to_not_convert\": [\"visual\"]}", ONE_BY_ONE},
    {"tiny/lfm2",
     "Lfm2VlForConditionalGeneration",
     "lfm2_vl",
     "lfm2",
     "model.language_model.",
     "",
     {"model.vision_tower.", "model.multi_modal_projector."},
     "{}",
     "{}",
     ONE_BY_ONE},
};
enum { WRAPPINGS = sizeof wrappings / sizeof *wrappings };

/* --- files ---------------------------------------------------------------------------------------------------------- */

/* "model.NAME" becomes body + NAME, "NAME" outer + NAME. */
static void rename_tensor(const struct wrapping *w, const char *name, char out[192]) {
    const bool is_body = strncmp(name, "model.", 6) == 0;
    snprintf(out, 192, "%s%s", is_body ? w->body : w->outer, name + (is_body ? 6 : 0));
}

/* `parts` matrices [rows, cols] of an expert, one behind the other, into a stack of all experts. */
static void stack_experts(struct tensor_file *f, const struct wrapping *w, const struct safetensors *all, int layer,
                          const char *const *parts, int count, const char *to) {
    const bool is_transposed = w->experts == STACKED_TRANSPOSED;
    struct buf stack = {0};
    char name[192];
    int64_t experts = 0, rows = 0, cols = 0;
    for (;; experts++) {
        const struct tensor *t[2];
        for (int i = 0; i < count; i++) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, (int)experts, parts[i]);
            t[i] = safetensors_find(all, name);
        }
        if (!t[0]) break;
        rows = t[0]->shape[0], cols = t[0]->shape[1];
        for (int64_t i = 0; i < rows * cols * count; i++) {
            const int64_t r = is_transposed ? i % (rows * count) : i / cols;
            const int64_t c = is_transposed ? i / (rows * count) : i % cols;
            buf_append(&stack, (const char *)t[r / rows]->data + 2 * (r % rows * cols + c), 2);
        }
    }
    rows *= count;
    const int64_t shape[] = {experts, is_transposed ? cols : rows, is_transposed ? rows : cols};
    snprintf(name, sizeof name, "%slayers.%d.mlp.experts.%s", w->body, layer, to);
    tensor_file_add(f, name, "BF16", 3, shape, stack.data, stack.len);
    buf_free(&stack);
}

static void write_tensors(const struct wrapping *w, const char *from, const char *path, const char *more) {
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    struct tensor_file f = {0};
    struct safetensors *all;
    char name[192];
    ck_ok(checkpoint_tensors(test_checkpoint(from), &all));
    for (int i = 0; i < safetensors_count(all); i++) {
        const struct tensor *t = safetensors_at(all, i);
        if (w->experts != ONE_BY_ONE && strstr(t->name, ".experts.")) continue;
        rename_tensor(w, t->name, name);
        tensor_file_add(&f, name, t->dtype, t->dims, t->shape, t->data, t->bytes);
    }
    for (int l = 0; l < 3 && w->experts != ONE_BY_ONE; l++) {
        stack_experts(&f, w, all, l, gate_up, 2, "gate_up_proj");
        stack_experts(&f, w, all, l, down, 1, "down_proj");
    }
    for (int i = 0; i < TOWERS && w->towers[i]; i++) {
        snprintf(name, sizeof name, "%sblocks.0.attn.qkv.weight", w->towers[i]);
        tensor_file_add(&f, name, "BF16", 2, (const int64_t[]){1, 2}, "\1\2\3\4", 4);
        snprintf(name, sizeof name, "%sblocks.0.mlp.fc1.weight_packed", w->towers[i]);
        tensor_file_add(&f, name, "I32", 1, (const int64_t[]){1}, "\1\2\3\4", 4);
    }
    if (more) tensor_file_add(&f, more, "BF16", 1, (const int64_t[]){2}, "\1\2\3\4", 4);
    tensor_file_write(&f, path);
    safetensors_close(all);
}

/* null takes a member out. */
static void change(cJSON *object, const char *members) {
    cJSON *other;
    ck_ok(json_parse(&other, members, strlen(members)));
    while (other->child) {
        cJSON *member = cJSON_DetachItemViaPointer(other, other->child);
        cJSON_DeleteItemFromObjectCaseSensitive(object, member->string);
        if (cJSON_IsNull(member))
            cJSON_Delete(member);
        else
            cJSON_AddItemToObject(object, member->string, member);
    }
    cJSON_Delete(other);
}

static void write_config(const struct wrapping *w, const char *from, const char *path) {
    char file[4200], names[256];
    struct buf out = {0};
    cJSON *text, *whole = cJSON_CreateObject();
    snprintf(file, sizeof file, "%s/config.json", from);
    ck_ok(json_parse_file(&text, file));
    cJSON *quantised = cJSON_DetachItemFromObjectCaseSensitive(text, "quantization_config");
    change(text, "{\"architectures\": null, \"model_type\": null}");
    change(text, w->text);
    if (w->text_type) {
        cJSON_AddStringToObject(text, "model_type", w->text_type);
        cJSON_AddItemToObject(whole, "text_config", text);
    } else {
        cJSON_Delete(whole);
        whole = text;
    }
    if (quantised) {
        change(quantised, w->whole);
        cJSON_AddItemToObject(whole, "quantization_config", quantised);
    } else {
        change(whole, w->whole);
    }
    snprintf(names, sizeof names,
             "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", \"vision_config\": {\"model_type\": \"%s\", "
             "\"hidden_size\": 2}}",
             w->architecture, w->type, w->type);
    change(whole, names);
    json_print(whole, &out);
    damage_write_text(path, buf_text(&out));
    buf_free(&out);
    cJSON_Delete(whole);
}

/* One of tests/model/families, by what it is called there; NULL: the fixture lies beside the checkout. */
static const char *tiny_name(const struct wrapping *w) {
    return strncmp(w->fixture, "tiny/", 5) == 0 ? w->fixture + 5 : NULL;
}

/* The directory of a fixture; false without test data. */
static bool find_fixture(const struct wrapping *w, char out[4096]) {
    char path[320];
    if (tiny_name(w)) {
        cJSON *all = tiny_model_load(tiny_name(w));
        tiny_model_write(all, "config", path);
        cJSON_Delete(all);
        snprintf(out, 4096, "%s", path);
        return true;
    }
    snprintf(path, sizeof path, "fixtures/%s", w->fixture);
    const char *found = shared_path(path);
    if (found) snprintf(out, 4096, "%s", found);
    return found != NULL;
}

/* Into `dir`; false without test data. `from`: the fixture's directory. `more`: a tensor that no part has. */
static bool write_wrapped(const struct wrapping *w, char from[4096], char dir[256], const char *more) {
    static int written;
    char path[320];
    if (!find_fixture(w, from)) {
        skip("no test data beside the checkout");
        return false;
    }
    snprintf(dir, 256, "%s/wrapped-%d", temp_dir(), written++);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_config(w, from, path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_tensors(w, from, path, more);
    return true;
}

/* --- claims --------------------------------------------------------------------------------------------------------- */

static struct ids longest_prompt(const struct wrapping *w, int *vocab) {
    char path[128];
    struct ids longest = {0};
    snprintf(path, sizeof path, "fixtures/%s/reference.json", w->fixture);
    cJSON *file = tiny_name(w) ? tiny_model_load(tiny_name(w)) : must_load_json(shared_path(path)), *r;
    const cJSON *references = tiny_name(w) ? json_get(file, "references") : file;
    cJSON_ArrayForEach(r, references) {
        struct ids prompt = json_ids(r, "prompt");
        const bool is_longer = prompt.len > longest.len;
        ids_free(is_longer ? &longest : &prompt);
        if (is_longer) longest = prompt;
        *vocab = cJSON_GetArraySize(json_get(r, "logits_last"));
    }
    cJSON_Delete(file);
    ck_assert_int_gt((int)longest.len, 16);
    return longest;
}

static void must_have_the_logits_of(const struct wrapping *w, const char *from, const char *checkpoint) {
    int vocab;
    struct ids prompt = longest_prompt(w, &vocab);
    const size_t bytes = (size_t)vocab * sizeof(float);
    float *got = malloc(bytes), *expected = malloc(bytes);
    compute_logits_with(KV_AUTO, from, &prompt, POSITIONS, expected, vocab);
    compute_logits_with(KV_AUTO, checkpoint, &prompt, POSITIONS, got, vocab);
    ck_assert_msg(memcmp(got, expected, bytes) == 0, "%s as a %s: other logits", w->fixture, w->architecture);
    ids_free(&prompt);
    free(got), free(expected);
}

/* Loop index: the wrapping. */
START_TEST(the_text_of_a_wrapper_gives_the_logits_of_the_text_alone)
{
    char from[4096], dir[256];
    if (write_wrapped(&wrappings[_i], from, dir, NULL)) must_have_the_logits_of(&wrappings[_i], from, dir);
}
END_TEST

static void answer(struct ids *prompt, const char *target, const char *draft, int k, struct answer *out) {
    const struct pair pair = {"wrapped", target, draft};
    const struct engine_options options = pair_options(&pair, k, 1);
    struct engine *e = must_open(&options);
    struct request request = ids_request(prompt->data, prompt->len, GREEDY);
    request.generation.ignore_end = true;
    run_requests(e, &request, 1, out);
    free_requests(&request, 1);
    engine_destroy(e);
}

/* Loop index: the wrapping. Either may draft for the other. */
START_TEST(the_text_of_a_wrapper_gives_the_tokens_of_the_text_alone)
{
    const struct wrapping *w = &wrappings[_i];
    char from[4096], dir[256];
    int vocab;
    if (!write_wrapped(w, from, dir, NULL)) return;
    struct ids prompt = longest_prompt(w, &vocab);
    struct answer expected, plain, drafted;
    answer(&prompt, from, NULL, 0, &expected);
    answer(&prompt, dir, NULL, 0, &plain);
    answer(&prompt, dir, from, 3, &drafted);
    ck_assert_int_eq((int)expected.ids.len, GREEDY);
    must_equal(&plain, &expected, w->architecture);
    must_equal(&drafted, &expected, w->architecture);
    ids_free(&prompt);
    free_answers(&expected, 1), free_answers(&plain, 1), free_answers(&drafted, 1);
}
END_TEST

/* llama.cpp's names of these architectures, whose other parts are files of their own. */
static const struct wrapping ggufs[] = {
    {"checkpoints/qwen2-bias",
     "Qwen2VLForConditionalGeneration",
     "qwen2_vl",
     NULL,
     "model.",
     "",
     {NULL},
     "{" NO_ROPE ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 3, 3]}}",
     "{}",
     ONE_BY_ONE},
    {"checkpoints/qwen3-qknorm",
     "Qwen3VLForConditionalGeneration",
     "qwen3_vl",
     NULL,
     "model.",
     "",
     {NULL},
     "{" NO_ROPE ", \"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [6, 5, 5]}}",
     "{}",
     ONE_BY_ONE},
    {"families/qwen3-moe",
     "Qwen3VLMoeForConditionalGeneration",
     "qwen3_vl_moe",
     NULL,
     "model.",
     "",
     {NULL},
     "{}",
     "{}",
     ONE_BY_ONE}};
enum { GGUFS = sizeof ggufs / sizeof *ggufs };

/* Loop index: the architecture. */
START_TEST(a_gguf_of_the_text_gives_the_logits_of_the_text_alone)
{
    const struct wrapping *w = &ggufs[_i];
    char from[4096], dir[256], path[288];
    if (!write_wrapped(w, from, dir, NULL)) return;
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    gguf_convert(dir, path, 1);
    must_have_the_logits_of(w, from, path);
    struct model_config c;
    ck_ok(checkpoint_config(test_checkpoint(path), &c));
    ck_assert_str_eq(c.architecture, w->architecture);
}
END_TEST

static void refuse_tensor(const struct wrapping *w, const char *name) {
    char from[4096], dir[256], words[256];
    struct engine *e;
    if (!write_wrapped(w, from, dir, name)) return;
    ck_assert_int_eq(
        engine_create(&e, &(struct engine_options){.target = test_checkpoint(dir), .device = "host", .context = 32}),
        ERR_UNSUPPORTED);
    check_sentence();
    snprintf(words, sizeof words, "model.safetensors: tensor '%s' is not part of a %s with 3 layers", name,
             w->architecture);
    ck_assert_msg(strstr(err_message(), words) != NULL, "'%s' lacks '%s'", err_message(), words);
}

START_TEST(a_tensor_of_no_part_is_refused_by_name)
{
    const struct wrapping text = {
        "checkpoints/qwen2-bias", "Qwen2ForCausalLM", "qwen2", NULL, "model.", "", {NULL}, "{}", "{}", ONE_BY_ONE};
    refuse_tensor(&wrappings[0], "language_model.model.layers.0.extra.weight");
    refuse_tensor(&wrappings[0], "audio_tower.conv.weight");
    refuse_tensor(&wrappings[1], "visuals.weight");
    refuse_tensor(&wrappings[2], "model.language_model.visual.weight");
    refuse_tensor(&wrappings[3], "model.language_model.layers.0.mlp.experts.0.gate_proj.weight");
    struct wrapping w = text;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"visual.blocks.0.weight", "vision_tower.conv.weight",
                                            "model.visual.blocks.0.weight"};
        refuse_tensor(&w, names[i]); /* a model of one part has no others */
    }
}
END_TEST

#define WRAPPER(architecture, type) "\"architectures\": [\"" architecture "\"], \"model_type\": \"" type "\""
#define QWEN3_VL                    WRAPPER("Qwen3VLForConditionalGeneration", "qwen3_vl")
#define SIZES                                                                                           \
    "\"vocab_size\": 300, \"hidden_size\": 256, \"intermediate_size\": 96, \"num_hidden_layers\": 30, " \
    "\"num_attention_heads\": 16"

START_TEST(a_text_of_another_kind_is_refused_by_name)
{
    static const struct {
        const char *whole, *type;
    } cases[] = {{WRAPPER("Mistral3ForConditionalGeneration", "mistral3"), "mistral4"},
                 {WRAPPER("Mistral3ForConditionalGeneration", "mistral3"), "llama"},
                 {WRAPPER("Qwen2VLForConditionalGeneration", "qwen2_vl"), "qwen2_5_vl_text"},
                 {WRAPPER("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"), "qwen2"},
                 {QWEN3_VL, "qwen3_vl_moe_text"},
                 {WRAPPER("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"), "qwen3_moe"},
                 {WRAPPER("Gemma3ForConditionalGeneration", "gemma3"), "gemma2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char changes[640], words[128];
        snprintf(changes, sizeof changes, "{%s, \"text_config\": {%s, \"model_type\": \"%s\"}}", cases[i].whole, SIZES,
                 cases[i].type);
        snprintf(words, sizeof words, "text_config's model_type '%s' is not supported with architecture ",
                 cases[i].type);
        refuse_config(changes, ERR_UNSUPPORTED, words);
    }
    refuse_config("{" QWEN3_VL ", \"text_config\": {" SIZES ", \"model_type\": 3}}", ERR_FORMAT, "model_type");
    refuse_config("{" WRAPPER("Qwen2VLForConditionalGeneration", "qwen2_5_vl") "}", ERR_UNSUPPORTED,
                  "model_type 'qwen2_5_vl' is not supported with architecture Qwen2VLForConditionalGeneration");
}
END_TEST

/* Of transformers' classes; of the base of Qwen3-VL they have two. */
START_TEST(what_the_text_leaves_out_is_what_the_class_has)
{
#define NO_VOCAB ", \"vocab_size\": null"
    static const struct {
        const char *whole, *text;
        int vocab, kv_heads, head_dim, positions, window;
        double theta;
        float eps;
    } cases[] = {
        {WRAPPER("Mistral3ForConditionalGeneration", "mistral3"), "", 300, 8, 16, 131072, 4096, 1e4, 1e-6f},
        {WRAPPER("Qwen2VLForConditionalGeneration", "qwen2_vl"), NO_VOCAB, 152064, 8, 16, 32768, 0, 1e6, 1e-5f},
        {WRAPPER("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"), NO_VOCAB, 152064, 8, 16, 32768, 0, 1e6, 1e-5f},
        {QWEN3_VL, ", \"rope_theta\": 5000000, \"num_key_value_heads\": 4", 300, 4, 128, 128000, 0, 5e6, 1e-6f},
        {QWEN3_VL, NO_VOCAB ", \"rope_parameters\": {\"rope_theta\": 6000000}, \"num_key_value_heads\": null", 151936,
         16, 128, 128000, 0, 6e6, 1e-6f},
        {QWEN3_VL, ", \"rope_scaling\": {\"rope_theta\": 7000000}, \"num_attention_heads\": 64", 300, 32, 128, 128000,
         0, 7e6, 1e-6f},
        {WRAPPER("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe"),
         NO_VOCAB ", \"rope_theta\": 5000000, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                  "\"moe_intermediate_size\": 8",
         151936, 16, 16, 128000, 0, 5e6, 1e-6f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char changes[640];
        struct model_config c;
        snprintf(changes, sizeof changes, "{%s, \"text_config\": {%s%s}}", cases[i].whole, SIZES, cases[i].text);
        ck_ok(load_config(&c, changes, NULL));
        ck_assert_msg(c.kv_heads == cases[i].kv_heads && c.head_dim == cases[i].head_dim &&
                          c.positions == cases[i].positions && c.layer[0].window == cases[i].window,
                      "%s: %d, %d, %d, %d", cases[i].whole, c.kv_heads, c.head_dim, c.positions, c.layer[0].window);
        ck_assert_msg(c.rope[0].theta == cases[i].theta && c.norm_eps == cases[i].eps && c.vocab == cases[i].vocab,
                      "%s: %g, %g, %d", cases[i].whole, c.rope[0].theta, (double)c.norm_eps, c.vocab);
        ck_assert(!c.tied && c.layers == 30);
    }
    refuse_config("{" QWEN3_VL ", \"text_config\": {" SIZES ", \"num_key_value_heads\": 4}}", ERR_FORMAT,
                  "member 'rope_theta' is missing");
}
END_TEST

START_TEST(windows_are_of_the_upper_layers_where_qwen2_vl_asks_for_them)
{
    static const struct {
        const char *members;
        int first, last; /* layers' windows */
    } cases[] = {{"\"sliding_window\": 32", 0, 0},
                 {"\"sliding_window\": 32, \"use_sliding_window\": true", 0, 0}, /* from layer 80 on */
                 {"\"sliding_window\": 32, \"use_sliding_window\": true, \"max_window_layers\": 29", 0, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char changes[640];
        struct model_config c;
        snprintf(changes, sizeof changes, "{%s, \"text_config\": {%s, %s}}",
                 WRAPPER("Qwen2VLForConditionalGeneration", "qwen2_vl"), SIZES, cases[i].members);
        ck_ok(load_config(&c, changes, NULL));
        ck_assert_msg(c.layer[0].window == cases[i].first && c.layer[29].window == cases[i].last, "%s: %d, %d",
                      cases[i].members, c.layer[0].window, c.layer[29].window);
    }
}
END_TEST

START_TEST(end_ids_of_text_and_whole_count_both)
{
    struct model_config c;
    ck_ok(load_config(&c,
                      "{" WRAPPER("Mistral3ForConditionalGeneration",
                                  "mistral3") ", \"text_config\": {" SIZES
                                              ", \"eos_token_id\": [7, 299, 300]}, \"eos_token_id\": 5}",
                      "{\"eos_token_id\": [2, 7]}"));
    ck_assert_int_eq(c.end_count, 4);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(c.end_ids[i], ((const int[]){2, 5, 7, 299})[i]);
}
END_TEST

START_TEST(a_type_alone_says_which_architecture_it_is)
{
    static const char *const cases[][2] = {{"mistral", "MistralForCausalLM"},
                                           {"mistral3", "Mistral3ForConditionalGeneration"},
                                           {"qwen2", "Qwen2ForCausalLM"},
                                           {"qwen2_vl_text", "Qwen2VLForConditionalGeneration"},
                                           {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"},
                                           {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration"},
                                           {"qwen3_vl_text", "Qwen3VLForConditionalGeneration"},
                                           {"gemma3", "Gemma3ForConditionalGeneration"},
                                           {"gemma3_text", "Gemma3ForCausalLM"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char changes[256];
        struct model_config c;
        snprintf(changes, sizeof changes,
                 "{\"architectures\": \"absent\", \"model_type\": \"%s\", \"hidden_act\": \"absent\", \"rope_theta\": "
                 "10000}",
                 cases[i][0]);
        ck_ok(load_config(&c, changes, NULL));
        ck_assert_str_eq(c.architecture, cases[i][1]);
    }
}
END_TEST

DEVICE_SUITE(check_wrapped);
Suite *check_wrapped(void) {
    Suite *suite = suite_create("wrapped");
    TCase *tc = tcase_create("wrapped");
    tcase_add_loop_test(tc, the_text_of_a_wrapper_gives_the_logits_of_the_text_alone, 0, WRAPPINGS);
    tcase_add_loop_test(tc, the_text_of_a_wrapper_gives_the_tokens_of_the_text_alone, 0, WRAPPINGS);
    tcase_add_loop_test(tc, a_gguf_of_the_text_gives_the_logits_of_the_text_alone, 0, GGUFS);
    tcase_add_test(tc, a_tensor_of_no_part_is_refused_by_name);
    tcase_add_test(tc, a_text_of_another_kind_is_refused_by_name);
    tcase_add_test(tc, what_the_text_leaves_out_is_what_the_class_has);
    tcase_add_test(tc, windows_are_of_the_upper_layers_where_qwen2_vl_asks_for_them);
    tcase_add_test(tc, end_ids_of_text_and_whole_count_both);
    tcase_add_test(tc, a_type_alone_says_which_architecture_it_is);
    suite_add_tcase(suite, tc);
    return suite;
}
