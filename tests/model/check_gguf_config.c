/* GGUF files: how their keys become a configuration. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "model/files/gguf.h"
#include "tests/support/gguf_small.h"
#include "tests/support/support.h"

static int read_config(const struct gguf_writer *w, struct model_config *out) {
    struct checkpoint *c = checkpoint_open(small_path("config.gguf"));
    gguf_write_file(w, small_path("config.gguf"));
    int rc = checkpoint_config(c, out);
    checkpoint_close(c);
    return rc;
}

START_TEST(keys_become_the_configuration)
{
    struct gguf_writer w = {0};
    struct model_config c;
    small_put_all(&w);
    gguf_put_int(&w, "llama.attention.head_count_kv", 1);
    gguf_put_number(&w, "llama.rope.freq_base", 5e5);
    gguf_put_int(&w, "tokenizer.ggml.eot_token_id", 7);
    gguf_put_int(&w, "tokenizer.ggml.eom_token_id", 4294967295);
    ck_ok(read_config(&w, &c));
    ck_assert_str_eq(c.architecture, "LlamaForCausalLM");
    ck_assert(c.vocab == SMALL_VOCAB && c.width == SMALL_WIDTH && c.hidden == SMALL_WIDTH && c.layers == 1 &&
              c.heads == 2 && c.kv_heads == 1 && c.head_dim == 16 && c.positions == 64 && c.tied);
    ck_assert(c.rope[0].theta == 5e5 && c.rope[0].type == ROPE_DEFAULT && c.rope[0].pairs_neighbours);
    ck_assert(c.end_count == 2 && c.end_ids[0] == 2 && c.end_ids[1] == 7);
    ck_assert(c.norm_eps == 1e-5f);
    gguf_writer_free(&w);
}
END_TEST

START_TEST(linear_scaling_of_the_rope_needs_no_type)
{
    static const struct {
        const char *type, *key;
        double factor, read; /* 1: no scaling */
    } cases[] = {{"linear", "llama.rope.scaling.factor", 4, 4}, {NULL, "llama.rope.scaling.factor", 4, 4},
                 {NULL, "llama.rope.scale_linear", 4, 4},       {"linear", "llama.rope.scale_linear", 4, 4},
                 {"linear", "llama.rope.scaling.factor", 0, 1}, {"linear", NULL, 0, 1},
                 {NULL, "llama.rope.scaling.factor", 0, 1},     {"none", "llama.rope.scaling.factor", 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        struct model_config c;
        small_put_all(&w);
        if (cases[i].type) gguf_put_text(&w, "llama.rope.scaling.type", cases[i].type);
        if (cases[i].key) gguf_put_number(&w, cases[i].key, cases[i].factor);
        ck_ok(read_config(&w, &c));
        ck_assert_int_eq(c.rope[0].type, cases[i].read == 1 ? ROPE_DEFAULT : ROPE_LINEAR);
        ck_assert(c.rope[0].factor == cases[i].read);
        gguf_writer_free(&w);
    }
}
END_TEST

START_TEST(a_minicpm_has_the_multipliers_of_its_keys_or_of_the_first_models)
{
    struct gguf_writer old = {0}, new = {0}, wrong = {0};
    struct model_config c;
    small_put_keys_of(&old, "minicpm"), small_put_tensors(&old);
    ck_ok(read_config(&old, &c));
    ck_assert_str_eq(c.architecture, "MiniCPMForCausalLM");
    ck_assert(c.embedding_scale == 12 && c.residual_scale == 1.4f && c.logits_scale == 256.0f / SMALL_WIDTH);
    small_put_keys_of(&new, "minicpm"), small_put_tensors(&new);
    gguf_put_number(&new, "minicpm.embedding_scale", 3);
    gguf_put_number(&new, "minicpm.residual_scale", 0.5);
    gguf_put_number(&new, "minicpm.logit_scale", 16);
    ck_ok(read_config(&new, &c));
    ck_assert(c.embedding_scale == 3 && c.residual_scale == 0.5f && c.logits_scale == 1.0f / 16);
    small_put_keys_of(&wrong, "minicpm"), small_put_tensors(&wrong);
    gguf_put_number(&wrong, "minicpm.logit_scale", 0);
    ck_assert_int_eq(read_config(&wrong, &c), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "key 'minicpm.logit_scale' is 0"));
    gguf_writer_free(&old), gguf_writer_free(&new), gguf_writer_free(&wrong);
}
END_TEST

/* As llama.cpp has it, whatever the family's default is. */
START_TEST(without_their_keys_a_rope_is_plain_and_key_heads_are_all_heads)
{
    static const char *const names[] = {"llama", "gemma2", "gemma3", "glm4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf_writer w = {0};
        struct model_config c;
        small_put_keys_of(&w, names[i]);
        small_put_tensors(&w);
        ck_ok(read_config(&w, &c));
        ck_assert_msg(c.rope[0].theta == 10000 && c.rope[0].dims == 16 && c.rope[0].type == ROPE_DEFAULT, "%s: %g, %d",
                      names[i], c.rope[0].theta, c.rope[0].dims);
        ck_assert_msg(c.heads == 2 && c.kv_heads == 2, "%s: %d", names[i], c.kv_heads);
        gguf_writer_free(&w);
    }
}
END_TEST

/* What llama.cpp takes for a type where nothing is said, and -1, which says nothing, are read; else the file's frequencies are others. */
START_TEST(a_yarn_that_extrapolates_otherwise_is_refused)
{
    static const struct {
        const char *type;
        double factor;
        const char *refused;
    } cases[] = {{"yarn", 1, NULL},
                 {"yarn", -1, NULL},
                 {"yarn", 0.5, "key 'llama.rope.scaling.yarn_ext_factor' is 0.5, which is not supported, only 1"},
                 {"yarn", 0, "is 0, which is not supported, only 1"},
                 {"linear", 0, NULL},
                 {"linear", -1, NULL},
                 {"linear", 1, "is 1, which is not supported, only 0"},
                 {"none", 1, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        struct model_config c;
        small_put_all(&w);
        gguf_put_text(&w, "llama.rope.scaling.type", cases[i].type);
        gguf_put_number(&w, "llama.rope.scaling.factor", 4);
        gguf_put_number(&w, "llama.rope.scaling.yarn_ext_factor", cases[i].factor);
        const int rc = read_config(&w, &c);
        ck_assert_msg(rc == (cases[i].refused ? ERR_UNSUPPORTED : 0), "case %zu: %d, %s", i, rc, err_message());
        if (cases[i].refused) ck_assert_msg(strstr(err_message(), cases[i].refused) != NULL, "%s", err_message());
        gguf_writer_free(&w);
    }
}
END_TEST

START_TEST(both_factors_of_attention_multiply_that_of_a_yarn)
{
    static const struct {
        double attn, yarn, read; /* 0: no such key */
    } cases[] = {{0, 0, 1}, {0.5, 0, 0.5}, {0, 0.75, 0.75}, {0.5, 0.75, 0.375}, {0.5, -1, 0.5}, {0, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        struct model_config c;
        small_put_all(&w);
        gguf_put_text(&w, "llama.rope.scaling.type", "yarn");
        gguf_put_number(&w, "llama.rope.scaling.factor", 4);
        if (cases[i].attn != 0) gguf_put_number(&w, "llama.rope.scaling.attn_factor", cases[i].attn);
        if (cases[i].yarn != 0) gguf_put_number(&w, "llama.rope.scaling.yarn_attn_factor", cases[i].yarn);
        ck_ok(read_config(&w, &c));
        const double expected = cases[i].read * (0.1 * log(4) + 1);
        ck_assert_msg(fabs(c.rope[0].attention_factor - expected) < 1e-9, "case %zu: %g, expected %g", i,
                      c.rope[0].attention_factor, expected);
        gguf_writer_free(&w);
    }
}
END_TEST

/* The small model with these small_tokens of these kinds for the last five ids. */
static void check_end_ids(const char *const last[5], const int32_t kinds[5], int count, const int32_t *ids) {
    struct gguf_writer w = {0};
    struct model_config c;
    const char *texts[SMALL_VOCAB] = {"<unk>", "<s>", "</s>"};
    int32_t all[SMALL_VOCAB] = {2, 3, 3};
    for (int i = 0; i < 5; i++) texts[SMALL_VOCAB - 5 + i] = last[i], all[SMALL_VOCAB - 5 + i] = kinds[i];
    small_put_keys(&w);
    small_put_tensors(&w);
    gguf_put_texts(&w, "tokenizer.ggml.tokens", texts, SMALL_VOCAB);
    gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, all, SMALL_VOCAB);
    gguf_put_int(&w, "tokenizer.ggml.eos_token_id", 2);
    ck_ok(read_config(&w, &c));
    ck_assert_int_eq(c.end_count, count);
    for (int i = 0; i < count; i++) ck_assert_int_eq(c.end_ids[i], ids[i]);
    gguf_writer_free(&w);
}

/* `mixed` has normal and recognised ones among them (Google's own files of Gemma 3 have), which llama.cpp takes for control tokens too:
 * while duet went by their types, no answer ended. */
START_TEST(tokens_that_end_a_turn_end_an_answer_whatever_their_type)
{
    const int32_t control[] = {3, 3, 3, 3, 3}, mixed[] = {3, 1, 4, 3, 3};
    check_end_ids((const char *const[]){"<|eot_id|>", "<end_of_turn>", "<|im_start|>", "<|im_end|>", "a"}, control, 4,
                  (const int32_t[]){2, 3, 4, 6});
    check_end_ids((const char *const[]){"<EOT>", "<|im_end|>", "<|end|>", "_<EOT>", "<|eom_id|>"}, mixed, 6,
                  (const int32_t[]){2, 3, 4, 5, 6, 7});
    check_end_ids((const char *const[]){"<|end|>", "<|return|>", "<|endoftext|>", "a", "b"}, control, 4,
                  (const int32_t[]){2, 3, 4, 5});
    check_end_ids((const char *const[]){"<|end_of_text|>", "<|eot_id|>", "<eos>", "<bos>", "a"}, control, 4,
                  (const int32_t[]){2, 3, 4, 5});
    check_end_ids((const char *const[]){"<|end|>", "<|return|>", "<|call|>", "a", "b"}, control, 3,
                  (const int32_t[]){2, 4, 5});
}
END_TEST

/* The last token of its tokenizer is of this type; 0: the file says no types. */
static struct tokenizer *open_with_marker(int32_t type) {
    static const char *const texts[SMALL_VOCAB] = {"<unk>",        "<s>", "</s>", "<",
                                                   "\xe2\x96\x81", "a",   "b",    "<end_of_turn>"};
    const int32_t kinds[SMALL_VOCAB] = {2, 3, 3, 1, 1, 1, 1, type};
    const float scores[SMALL_VOCAB] = {0};
    struct gguf_writer w = {0};
    struct tokenizer *t;
    small_put_keys(&w);
    small_put_tensors(&w);
    gguf_put_text(&w, "tokenizer.ggml.model", "llama");
    gguf_put_texts(&w, "tokenizer.ggml.tokens", texts, SMALL_VOCAB);
    if (type != 0) gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, SMALL_VOCAB);
    gguf_put_array(&w, "tokenizer.ggml.scores", GGUF_F32, scores, SMALL_VOCAB);
    gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", false);
    gguf_write_file(&w, small_path("marker.gguf"));
    struct checkpoint *c = checkpoint_open(small_path("marker.gguf"));
    ck_ok(checkpoint_tokenizer(c, &t));
    checkpoint_close(c);
    gguf_writer_free(&w);
    return t;
}

/* Whatever it says of that: files of Gemma 4 were made without, and answer badly then. Spaces are marked, and merges listed. */
START_TEST(a_tokenizer_of_gemma_4_puts_its_first_token_before_a_text)
{
    static const char *const texts[] = {"<pad>", "<bos>", "\xe2\x96\x81", "a", "\342\226\201a", "<|tool_response>",
                                        "<0x41>"};
    static const char *const merges[] = {"\xe2\x96\x81 a"};
    enum { COUNT = sizeof texts / sizeof *texts };
    const int32_t kinds[COUNT] = {3, 3, 1, 1, 1, 4, 6};
    struct gguf_writer w = {0};
    struct tokenizer *t;
    struct ids ids = {0};
    small_put_keys(&w);
    small_put_tensors(&w);
    gguf_put_text(&w, "tokenizer.ggml.model", "gemma4");
    gguf_put_texts(&w, "tokenizer.ggml.tokens", texts, COUNT);
    gguf_put_texts(&w, "tokenizer.ggml.merges", merges, 1);
    gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, kinds, COUNT);
    gguf_put_int(&w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_bool(&w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_bool(&w, "tokenizer.ggml.add_space_prefix", false);
    gguf_write_file(&w, small_path("gemma4.gguf"));
    struct checkpoint *c = checkpoint_open(small_path("gemma4.gguf"));
    ck_ok(checkpoint_tokenizer(c, &t));
    ck_ok(tokenizer_encode(t, "a aA<|tool_response>", 20, &(struct encode_options){.special = true}, &ids));
    ck_assert_int_eq((int)ids.len, 5);
    ck_assert_int_eq(memcmp(ids.data, (const int32_t[]){1, 3, 4, 6, 5}, 5 * sizeof(int32_t)), 0);
    ck_assert(tokenizer_is_special(t, 5));
    ids_free(&ids);
    tokenizer_free(t);
    checkpoint_close(c);
    gguf_writer_free(&w);
}
END_TEST

START_TEST(a_token_that_ends_a_turn_is_a_control_token_whatever_its_type)
{
    static const int32_t types[] = {0, TOKEN_KIND_NORMAL, TOKEN_KIND_CONTROL, TOKEN_KIND_USER, TOKEN_KIND_UNUSED};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tokenizer *t = open_with_marker(types[i]);
        struct ids ids = {0};
        ck_ok(tokenizer_encode(t, "a<end_of_turn>b", 15, &(struct encode_options){.special = true}, &ids));
        ck_assert_msg(ids.len == 3 && ids.data[0] == 5 && ids.data[1] == 7 && ids.data[2] == 6, "type %d: %zu ids",
                      types[i], ids.len);
        ck_assert(tokenizer_is_special(t, 7) && !tokenizer_is_special(t, 5));
        ids_free(&ids);
        tokenizer_free(t);
    }
}
END_TEST

/* llama.cpp's converter writes 0 for a Phi-4 without one. */
START_TEST(a_window_of_0_is_none)
{
    static const struct {
        const char *name;
        int64_t window;
        int32_t read;
    } cases[] = {{"phi3", 0, 0}, {"phi3", 16, 16}, {"gemma2", 0, 0}, {"gemma3", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        struct model_config c;
        char key[64];
        small_put_keys_of(&w, cases[i].name);
        small_put_tensors(&w);
        snprintf(key, sizeof key, "%s.attention.sliding_window", cases[i].name);
        gguf_put_int(&w, key, cases[i].window);
        snprintf(key, sizeof key, "%s.attention.head_count_kv", cases[i].name);
        gguf_put_int(&w, key, 1);
        ck_ok(read_config(&w, &c));
        ck_assert_int_eq(c.layer[0].window, cases[i].read);
        gguf_writer_free(&w);
    }
}
END_TEST

/* The small model with one value more, or without a key: `left_out` is misspelt. */
static void refuse_config(void (*add)(struct gguf_writer *), const char *left_out, int code, const char *words) {
    struct gguf_writer w = {0};
    struct model_config c;
    small_put_all(&w);
    char *at = left_out ? memmem(w.values.data, w.values.len, left_out, strlen(left_out)) : NULL;
    if (left_out) at[strlen(left_out) - 1] ^= 1;
    if (add) add(&w);
    int rc = read_config(&w, &c);
    ck_assert_msg(rc == code, "code %d, expected %d (%s): %s", rc, code, words, err_message());
    ck_assert_msg(strstr(err_message(), "/config.gguf: ") && strstr(err_message(), words), "'%s' lacks '%s'",
                  err_message(), words);
    gguf_writer_free(&w);
}

static void add_value_length(struct gguf_writer *w) {
    gguf_put_int(w, "llama.attention.value_length", 8);
}
static void add_turning(struct gguf_writer *w) {
    gguf_put_int(w, "llama.rope.dimension_count", 17);
}
static void add_scaling(struct gguf_writer *w) {
    gguf_put_text(w, "llama.rope.scaling.type", "su-per");
}
static void add_theta(struct gguf_writer *w) {
    gguf_put_number(w, "llama.rope.freq_base", NAN);
}
static void add_layers(struct gguf_writer *w) {
    gguf_put_array(w, "llama.attention.head_count_kv", GGUF_I32, (const int32_t[]){2, 1}, 2);
}
static void add_factors(struct gguf_writer *w) {
    small_put_matrix(w, "rope_freqs.weight", 1);
}
static void add_zeros(struct gguf_writer *w) {
    gguf_put_tensor(w, "rope_freqs.weight", GGML_F32, 1, (const int64_t[]){8}, (const float[8]){0}, 32);
}

START_TEST(what_is_wrong_is_named_as_the_file_names_it)
{
    struct gguf_writer w = {0};
    struct model_config c;
    struct engine *e = NULL;
    small_put_all(&w);
    const char *key = "llama.embedding_length";
    char *at = memmem(w.values.data, w.values.len, key, strlen(key));
    memset(at + strlen(key) + 4, 0, 4); /* the number behind its type */
    ck_assert_int_eq(read_config(&w, &c), ERR_FORMAT);
    ck_assert_msg(strstr(err_message(), "key 'llama.embedding_length' is 0, expected 1 to"), "%s", err_message());
    gguf_writer_free(&w);
    small_put_all(&w);
    small_put_matrix(&w, "blk.0.attn_q.bias", 1);
    gguf_write_file(&w, small_path("bias.gguf"));
    const struct engine_options options = {
        .target = test_checkpoint(small_path("bias.gguf")), .device = test_device(), .context = 64};
    ck_assert_int_eq(engine_create(&e, &options), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "tensor 'blk.0.attn_q.bias' is not part of"), "%s", err_message());
    gguf_writer_free(&w);
}
END_TEST

/* A Gemma 4 of one layer, which slides or not, with these factors of its rope. */
static int read_gemma4(bool slides, bool says_it, int shared, float factor, const char *scaling,
                       struct model_config *c) {
    struct gguf_writer w = {0};
    const float factors[8] = {1, 1, factor, factor, factor, factor, factor, factor};
    const uint8_t pattern[] = {slides};
    small_put_keys_of(&w, "gemma4");
    small_put_tensors(&w);
    if (says_it) gguf_put_array(&w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, pattern, 1);
    if (scaling) gguf_put_text(&w, "gemma4.rope.scaling.type", scaling);
    gguf_put_int(&w, "gemma4.attention.sliding_window", 4);
    gguf_put_int(&w, "gemma4.attention.head_count_kv", 1);
    gguf_put_int(&w, "gemma4.attention.key_length", 16);
    gguf_put_int(&w, "gemma4.attention.key_length_swa", 8);
    gguf_put_int(&w, "gemma4.attention.shared_kv_layers", shared);
    gguf_put_tensor(&w, "rope_freqs.weight", GGML_F32, 1, (const int64_t[]){8}, factors, sizeof factors);
    int rc = read_config(&w, c);
    gguf_writer_free(&w);
    return rc;
}

START_TEST(kinds_of_layers_of_a_gemma_4_have_heads_of_their_own)
{
    struct model_config c;
    ck_ok(read_gemma4(true, true, 0, 1e30f, NULL, &c));
    ck_assert(c.layer[0].window == 4 && c.layer[0].head_dim == 8 && c.layer[0].kv_heads == 1 &&
              c.rope[1].head_dim == 8);
    ck_ok(read_gemma4(false, true, 0, 1e30f, "none", &c));
    ck_assert(c.layer[0].window == 0 && c.layer[0].head_dim == 16 && !c.layer[0].v_is_k);
    ck_assert(c.rope[0].type == ROPE_PROPORTIONAL && c.rope[0].dims == 4);
    static const struct {
        bool says_it;
        int shared;
        float factor;
        const char *scaling;
        int code;
        const char *words;
    } wrong[] = {
        {false, 0, 1e30f, NULL, ERR_FORMAT, "sliding_window_pattern' does not say of each layer whether it slides"},
        {true, 1, 1e30f, NULL, ERR_FORMAT, "key 'gemma4.attention.shared_kv_layers' is 1, of 1 layers"},
        {true, 0, 1e30f, "linear", ERR_UNSUPPORTED, "'gemma4.rope.scaling.type' is 'linear', which is not"},
        {true, 0, 2, NULL, ERR_UNSUPPORTED, "'rope_freqs.weight' holds factors besides 1 and none"},
        {true, 0, NAN, NULL, ERR_UNSUPPORTED, "'rope_freqs.weight' holds factors besides 1 and none"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(read_gemma4(true, wrong[i].says_it, wrong[i].shared, wrong[i].factor, wrong[i].scaling, &c),
                         wrong[i].code);
        ck_assert_msg(strstr(err_message(), wrong[i].words), "'%s' lacks '%s'", err_message(), wrong[i].words);
    }
}
END_TEST

START_TEST(what_a_configuration_lacks_is_named)
{
    static const char *const needed[] = {"llama.context_length",       "llama.embedding_length",
                                         "llama.block_count",          "llama.feed_forward_length",
                                         "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char words[96];
        snprintf(words, sizeof words, "key '%s' is missing", needed[i]);
        refuse_config(NULL, needed[i], ERR_FORMAT, words);
    }
    refuse_config(NULL, "general.architecture", ERR_FORMAT, "key 'general.architecture' is missing");
    refuse_config(NULL, "llama", ERR_UNSUPPORTED, "architecture 'llam`' is not supported (known: llama, mistral3");
    refuse_config(add_value_length, NULL, ERR_UNSUPPORTED, "'llama.attention.value_length' is 8, with keys of 16");
    refuse_config(add_turning, NULL, ERR_FORMAT, "'llama.rope.dimension_count' is 17, with heads of 16");
    refuse_config(add_scaling, NULL, ERR_UNSUPPORTED, "rope type 'su-per' is not supported");
    refuse_config(add_theta, NULL, ERR_FORMAT, "'llama.rope.freq_base': expected a finite number");
    refuse_config(add_layers, NULL, ERR_UNSUPPORTED, "'llama.attention.head_count_kv' differs from layer to layer");
    refuse_config(add_factors, NULL, ERR_FORMAT, "tensor 'rope_freqs.weight' is F32 of 32 numbers");
    refuse_config(add_zeros, NULL, ERR_FORMAT, "tensor 'rope_freqs.weight' holds something else than factors");
}
END_TEST

Suite *check_gguf_config(void);
Suite *check_gguf_config(void) {
    Suite *suite = suite_create("gguf_config");
    TCase *tc = tcase_create("gguf_config");
    tcase_add_test(tc, keys_become_the_configuration);
    tcase_add_test(tc, linear_scaling_of_the_rope_needs_no_type);
    tcase_add_test(tc, a_yarn_that_extrapolates_otherwise_is_refused);
    tcase_add_test(tc, both_factors_of_attention_multiply_that_of_a_yarn);
    tcase_add_test(tc, a_minicpm_has_the_multipliers_of_its_keys_or_of_the_first_models);
    tcase_add_test(tc, without_their_keys_a_rope_is_plain_and_key_heads_are_all_heads);
    tcase_add_test(tc, tokens_that_end_a_turn_end_an_answer_whatever_their_type);
    tcase_add_test(tc, a_token_that_ends_a_turn_is_a_control_token_whatever_its_type);
    tcase_add_test(tc, a_tokenizer_of_gemma_4_puts_its_first_token_before_a_text);
    tcase_add_test(tc, a_window_of_0_is_none);
    tcase_add_test(tc, what_is_wrong_is_named_as_the_file_names_it);
    tcase_add_test(tc, what_a_configuration_lacks_is_named);
    tcase_add_test(tc, kinds_of_layers_of_a_gemma_4_have_heads_of_their_own);
    suite_add_tcase(suite, tc);
    return suite;
}
