/* GGUF files: what they say, and damaged ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "model/files/gguf.h"
#include "tests/support/damage.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/support.h"

static const char *path_of(const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    return path;
}

/* --- a small model --------------------------------------------------------------------------------------------------- */

enum { WIDTH = 32, VOCAB = 8, NUMBERS = 256 * WIDTH };

static const char *const tokens[VOCAB] = {"<unk>", "<s>", "</s>", "<0x0A>", "\xe2\x96\x81", "a", "b", "ab"};

static void put_matrix(struct gguf_writer *w, const char *name, int rows) {
    static const float numbers[NUMBERS];
    gguf_put_tensor(w, name, GGML_F32, rows > 1 ? 2 : 1, (const int64_t[]){WIDTH, rows}, numbers,
                    sizeof(float) * WIDTH * (size_t)rows);
}

static void put_keys_of(struct gguf_writer *w, const char *architecture) {
    static const struct {
        const char *name;
        int value;
    } sizes[] = {{"context_length", 64},
                 {"embedding_length", WIDTH},
                 {"block_count", 1},
                 {"feed_forward_length", WIDTH},
                 {"attention.head_count", 2}};
    char key[96];
    gguf_put_text(w, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].name);
        gguf_put_int(w, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    gguf_put_number(w, key, 1e-5);
}

static void put_keys(struct gguf_writer *w) {
    put_keys_of(w, "llama");
}

static void put_tokenizer(struct gguf_writer *w) {
    static const int32_t kinds[VOCAB] = {2, 3, 3, 6, 1, 1, 1, 1};
    static const float scores[VOCAB] = {0, 0, 0, 0, -1, -2, -3, -4};
    gguf_put_text(w, "tokenizer.ggml.model", "llama");
    gguf_put_texts(w, "tokenizer.ggml.tokens", tokens, VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, VOCAB);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, VOCAB);
    gguf_put_int(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_int(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_text(w, "tokenizer.chat_template",
                  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                  "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
                  "}}{% endif %}");
}

static void put_tensors(struct gguf_writer *w) {
    static const char *const squares[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                          "ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    put_matrix(w, "token_embd.weight", VOCAB);
    put_matrix(w, "output_norm.weight", 1);
    put_matrix(w, "blk.0.attn_norm.weight", 1);
    put_matrix(w, "blk.0.ffn_norm.weight", 1);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", squares[i]);
        put_matrix(w, name, WIDTH);
    }
}

static void make_small(struct gguf_writer *w) {
    put_keys(w);
    put_tokenizer(w);
    put_tensors(w);
}

/* --- what is read ---------------------------------------------------------------------------------------------------- */

START_TEST(values_of_all_types_are_read)
{
    struct gguf_writer w = {.version = 2};
    struct gguf *g;
    int64_t whole;
    double number;
    bool flag;
    struct gguf_text text;
    const struct gguf_value *array;
    static const struct {
        enum gguf_type type;
        const char *bytes;
        int64_t value;
    } integers[] = {{GGUF_I32, "\xfe\xff\xff\xff", -2},
                    {GGUF_U32, "\xfe\xff\xff\xff", 4294967294},
                    {GGUF_U64, "\1\0\0\0\0\0\0\x40", 0x4000000000000001},
                    {GGUF_I64, "\xff\xff\xff\xff\xff\xff\xff\xff", -1}};
    gguf_put_text(&w, "text", "na\xc3\xafve");
    gguf_put_number(&w, "number", 0.5);
    gguf_put_bool(&w, "flag", true);
    for (int i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "int%d", i);
        gguf_put_array(&w, key, integers[i].type, integers[i].bytes, 1);
    }
    gguf_put_texts(&w, "texts", tokens, VOCAB);
    gguf_write_file(&w, path_of("values.gguf"));
    ck_ok(gguf_open(&g, path_of("values.gguf")));
    ck_ok(gguf_get_text(g, "text", &text));
    ck_assert(gguf_is_text(text, "na\xc3\xafve"));
    ck_ok(gguf_get_number(g, "number", 7, &number));
    ck_assert(number == 0.5);
    ck_ok(gguf_get_bool(g, "flag", false, &flag));
    ck_assert(flag);
    ck_ok(gguf_get_int(g, "absent", 7, 0, 9, &whole));
    ck_assert_int_eq(whole, 7);
    for (int i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof key, "int%d", i);
        ck_ok(gguf_get_array(g, key, integers[i].type, &array));
        ck_assert_int_eq(gguf_int_at(array, 0), integers[i].value);
    }
    ck_ok(gguf_get_array(g, "texts", GGUF_STRING, &array));
    const unsigned char *at = array->data;
    for (int i = 0; i < VOCAB; i++) ck_assert(gguf_is_text(gguf_next_text(&at), tokens[i]));
    ck_assert_int_eq(gguf_get_int(g, "text", 0, 0, 1, &whole), ERR_FORMAT);
    ck_assert(strstr(err_message(), "values.gguf: key 'text': expected an integer"));
    ck_assert_int_eq(gguf_get_bool(g, "number", false, &flag), ERR_FORMAT);
    ck_assert_int_eq(gguf_get_array(g, "texts", GGUF_F32, &array), ERR_FORMAT);
    gguf_close(g);
    gguf_writer_free(&w);
}
END_TEST

START_TEST(tensors_have_their_shape_turned_round_and_their_bytes)
{
    struct gguf_writer w = {0};
    struct gguf *g;
    const unsigned char bytes[2 * 34] = {1, 2, 3};
    const uint16_t halves[6] = {10, 11, 12, 13, 14, 15};
    gguf_put_tensor(&w, "q", GGML_Q8_0, 2, (const int64_t[]){32, 2}, bytes, sizeof bytes);
    gguf_put_tensor(&w, "a", GGML_BF16, 3, (const int64_t[]){3, 2, 1}, halves, sizeof halves);
    gguf_write_file(&w, path_of("tensors.gguf"));
    ck_ok(gguf_open(&g, path_of("tensors.gguf")));
    ck_assert_int_eq(gguf_count(g), 2);
    const struct gguf_tensor *a = gguf_at(g, 0), *q = gguf_find(g, "q");
    ck_assert_str_eq(a->name, "a");
    ck_assert(a->dims == 3 && a->shape[0] == 1 && a->shape[1] == 2 && a->shape[2] == 3 && a->bytes == 12);
    ck_assert_mem_eq(a->data, halves, sizeof halves);
    ck_assert_str_eq(a->dtype, "BF16");
    ck_assert(q->dims == 2 && q->shape[0] == 2 && q->shape[1] == 32 && q->bytes == sizeof bytes);
    ck_assert_mem_eq(q->data, bytes, sizeof bytes);
    ck_assert_ptr_null(gguf_find(g, "b"));
    gguf_close(g);
    gguf_writer_free(&w);
}
END_TEST

/* --- what is refused ------------------------------------------------------------------------------------------------- */

static void refuse_bytes(const struct buf *file, int code, const char *words) {
    struct gguf *g = (struct gguf *)&g;
    damage_write_file(path_of("bad.gguf"), file->data, file->len);
    int rc = gguf_open(&g, path_of("bad.gguf"));
    ck_assert_msg(rc == code, "code %d, expected %d (%s): %s", rc, code, words, err_message());
    ck_assert_ptr_null(g);
    check_sentence();
    ck_assert_msg(strstr(err_message(), "/bad.gguf: ") && strstr(err_message(), words), "'%s' lacks '%s'",
                  err_message(), words);
}

/* Replaces the eight bytes behind the text `name`, `skip` bytes further on. */
static void refuse_number(const char *name, size_t skip, uint64_t value, size_t bytes, int code, const char *words) {
    struct gguf_writer w = {0};
    struct buf file = {0};
    make_small(&w);
    gguf_write(&w, &file);
    char *at = memmem(file.data, file.len, name, strlen(name));
    ck_assert_ptr_nonnull(at);
    memcpy(at + strlen(name) + skip, &value, bytes);
    refuse_bytes(&file, code, words);
    buf_free(&file);
    gguf_writer_free(&w);
}

START_TEST(numbers_that_cannot_be_are_refused)
{
    static const char embedding[] = "token_embd.weight";
    refuse_number("GGUF", 0, 1, 4, ERR_UNSUPPORTED, "is GGUF of version 1, only 2 and 3");
    refuse_number("GGUF", 0, 0x03000000, 4, ERR_UNSUPPORTED, "big-endian");
    refuse_number("GGUF", 4, UINT64_MAX, 8, ERR_FORMAT, "past the end");
    refuse_number("GGUF", 4, 1 << 30, 8, ERR_FORMAT, "past the end");
    refuse_number("GGUF", 12, UINT64_MAX, 8, ERR_FORMAT, "past the end");
    refuse_number("GGUF", 12, 3, 8, ERR_UNSUPPORTED, "has numbers of type");  /* values are taken for tensors */
    refuse_number("GGUF", 20, UINT64_MAX - 7, 8, ERR_FORMAT, "past the end"); /* a key's length */
    refuse_number("general.architecture", 0, 13, 4, ERR_UNSUPPORTED,
                  "key 'general.architecture': has a value of type 13");
    refuse_number("general.architecture", 4, UINT64_MAX, 8, ERR_FORMAT,
                  "key 'general.architecture': the header goes on");
    refuse_number("tokenizer.ggml.scores", 4, 9, 4, ERR_UNSUPPORTED, "'tokenizer.ggml.scores': holds arrays of arrays");
    refuse_number("tokenizer.ggml.scores", 8, (uint64_t)1 << 62, 8, ERR_FORMAT, "'tokenizer.ggml.scores': the header");
    refuse_number("tokenizer.ggml.tokens", 8, UINT64_MAX, 8, ERR_FORMAT, "'tokenizer.ggml.tokens': the header");
    refuse_number(embedding, 0, 0, 4, ERR_UNSUPPORTED, "tensor 'token_embd.weight': has 0 dimensions");
    refuse_number(embedding, 0, 5, 4, ERR_UNSUPPORTED, "has 5 dimensions");
    refuse_number(embedding, 4, 0, 8, ERR_FORMAT, "has a dimension of 0");
    refuse_number(embedding, 4, UINT64_MAX, 8, ERR_FORMAT, "has a dimension of 18446744073709551615");
    refuse_number(embedding, 12, (uint64_t)1 << 60, 8, ERR_FORMAT, "whose size in bytes is no integer below 2^63");
    refuse_number(embedding, 12, (uint64_t)1 << 40, 8, ERR_FORMAT, "is it truncated?");
    refuse_number(embedding, 20, 4, 4, ERR_UNSUPPORTED, "has numbers of type 4, which duet does not read");
    refuse_number(embedding, 20, 21, 4, ERR_UNSUPPORTED, "has numbers of type 21, IQ3_S, which duet does not read");
    refuse_number(embedding, 20, 12, 4, ERR_FORMAT, "has rows of 32 numbers, and Q4_K comes in blocks of 256");
    refuse_number(embedding, 24, 1, 8, ERR_FORMAT, "which is no multiple of 32");
    refuse_number(embedding, 24, UINT64_MAX - 31, 8, ERR_FORMAT, "is it truncated?");
    refuse_number(embedding, 24, 1024, 8, ERR_FORMAT, "overlap");
}
END_TEST

START_TEST(what_is_there_twice_and_alignments_are_refused)
{
    static const int64_t alignments[] = {0, 1, 4, 24, 1 << 21, 4294967295};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        struct gguf_writer w = {0};
        struct buf file = {0};
        make_small(&w);
        gguf_put_int(&w, "general.alignment", alignments[i]);
        gguf_write(&w, &file);
        refuse_bytes(&file, ERR_FORMAT, "key 'general.alignment': expected a power of two");
        buf_free(&file);
        gguf_writer_free(&w);
    }
    struct gguf_writer w = {0};
    struct buf file = {0};
    make_small(&w);
    put_matrix(&w, "blk.0.attn_q.weight", WIDTH);
    gguf_write(&w, &file);
    refuse_bytes(&file, ERR_FORMAT, "tensor 'blk.0.attn_q.weight' is there twice");
    gguf_put_int(&w, "llama.block_count", 1);
    buf_clear(&file);
    gguf_write(&w, &file);
    refuse_bytes(&file, ERR_FORMAT, "key 'llama.block_count' is there twice");
    buf_free(&file);
    gguf_writer_free(&w);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_refused)
{
    struct gguf_writer w = {0};
    struct buf file = {0};
    make_small(&w);
    gguf_write(&w, &file);
    const size_t header = file.len - w.data.len;
    for (size_t n = 0; n < file.len; n += n < header ? 1 : 97) {
        struct gguf *g = NULL;
        damage_write_file(path_of("cut.gguf"), file.data, n);
        require(gguf_open(&g, path_of("cut.gguf")) == ERR_FORMAT && !g, "%zu of %zu bytes: %s", n, file.len,
                err_message());
    }
    buf_free(&file);
    gguf_writer_free(&w);
}
END_TEST

/* Each part of a checkpoint is read or refused with a sentence. */
static void read_all(const char *path) {
    struct checkpoint *c = checkpoint_open(path);
    struct model_config config;
    struct safetensors *tensors;
    struct tokenizer *t;
    struct chat_template *chat;
    const int codes[] = {checkpoint_config(c, &config), checkpoint_tensors(c, &tensors), checkpoint_tokenizer(c, &t),
                         checkpoint_chat_template(c, NULL, &chat)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        require(codes[i] <= 0 && codes[i] != ERR_INTERNAL && codes[i] != ERR_MEMORY, "part %zu: %s", i, err_message());
    if (t) {
        struct ids ids = {0};
        (void)tokenizer_encode(t, "ab a\n", 5, &(struct encode_options){.special = true}, &ids);
        ids_free(&ids);
    }
    safetensors_close(tensors);
    tokenizer_free(t);
    chat_template_free(chat);
    checkpoint_close(c);
}

START_TEST(flipped_bytes_are_read_or_refused)
{
    struct gguf_writer w = {0};
    struct buf file = {0};
    static const unsigned char masks[] = {0xff, 0x01, 0x80};
    make_small(&w);
    gguf_write(&w, &file);
    const size_t header = file.len - w.data.len;
    for (size_t at = 0; at < header; at++) {
        file.data[at] = (char)(file.data[at] ^ masks[at % 3]);
        damage_write_file(path_of("flipped.gguf"), file.data, file.len);
        read_all(path_of("flipped.gguf"));
        file.data[at] = (char)(file.data[at] ^ masks[at % 3]);
    }
    buf_free(&file);
    gguf_writer_free(&w);
}
END_TEST

/* --- configuration --------------------------------------------------------------------------------------------------- */

static int read_config(const struct gguf_writer *w, struct model_config *out) {
    struct checkpoint *c = checkpoint_open(path_of("config.gguf"));
    gguf_write_file(w, path_of("config.gguf"));
    int rc = checkpoint_config(c, out);
    checkpoint_close(c);
    return rc;
}

START_TEST(keys_become_the_configuration)
{
    struct gguf_writer w = {0};
    struct model_config c;
    make_small(&w);
    gguf_put_int(&w, "llama.attention.head_count_kv", 1);
    gguf_put_number(&w, "llama.rope.freq_base", 5e5);
    gguf_put_int(&w, "tokenizer.ggml.eot_token_id", 7);
    gguf_put_int(&w, "tokenizer.ggml.eom_token_id", 4294967295);
    ck_ok(read_config(&w, &c));
    ck_assert_str_eq(c.architecture, "LlamaForCausalLM");
    ck_assert(c.vocab == VOCAB && c.width == WIDTH && c.hidden == WIDTH && c.layers == 1 && c.heads == 2 &&
              c.kv_heads == 1 && c.head_dim == 16 && c.positions == 64 && c.tied);
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
        make_small(&w);
        if (cases[i].type) gguf_put_text(&w, "llama.rope.scaling.type", cases[i].type);
        if (cases[i].key) gguf_put_number(&w, cases[i].key, cases[i].factor);
        ck_ok(read_config(&w, &c));
        ck_assert_int_eq(c.rope[0].type, cases[i].read == 1 ? ROPE_DEFAULT : ROPE_LINEAR);
        ck_assert(c.rope[0].factor == cases[i].read);
        gguf_writer_free(&w);
    }
}
END_TEST

/* The small model with these tokens of these kinds for the last five ids. */
static void check_end_ids(const char *const last[5], const int32_t kinds[5], int count, const int32_t *ids) {
    struct gguf_writer w = {0};
    struct model_config c;
    const char *texts[VOCAB] = {"<unk>", "<s>", "</s>"};
    int32_t all[VOCAB] = {2, 3, 3};
    for (int i = 0; i < 5; i++) texts[VOCAB - 5 + i] = last[i], all[VOCAB - 5 + i] = kinds[i];
    put_keys(&w);
    put_tensors(&w);
    gguf_put_texts(&w, "tokenizer.ggml.tokens", texts, VOCAB);
    gguf_put_array(&w, "tokenizer.ggml.token_type", GGUF_I32, all, VOCAB);
    gguf_put_int(&w, "tokenizer.ggml.eos_token_id", 2);
    ck_ok(read_config(&w, &c));
    ck_assert_int_eq(c.end_count, count);
    for (int i = 0; i < count; i++) ck_assert_int_eq(c.end_ids[i], ids[i]);
    gguf_writer_free(&w);
}

START_TEST(control_tokens_that_end_a_turn_end_an_answer)
{
    const int32_t control[] = {3, 3, 3, 3, 3}, mixed[] = {3, 1, 4, 3, 3};
    check_end_ids((const char *const[]){"<|eot_id|>", "<end_of_turn>", "<|im_start|>", "<|im_end|>", "a"}, control, 4,
                  (const int32_t[]){2, 3, 4, 6});
    check_end_ids((const char *const[]){"<EOT>", "<|im_end|>", "<|end|>", "_<EOT>", "<|eom_id|>"}, mixed, 4,
                  (const int32_t[]){2, 3, 6, 7});
    check_end_ids((const char *const[]){"<|end|>", "<|return|>", "<|endoftext|>", "a", "b"}, control, 4,
                  (const int32_t[]){2, 3, 4, 5});
    check_end_ids((const char *const[]){"<|end|>", "<|return|>", "<|call|>", "a", "b"}, control, 3,
                  (const int32_t[]){2, 4, 5});
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
        put_keys_of(&w, cases[i].name);
        put_tensors(&w);
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
    make_small(&w);
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
    put_matrix(w, "rope_freqs.weight", 1);
}
static void add_zeros(struct gguf_writer *w) {
    gguf_put_tensor(w, "rope_freqs.weight", GGML_F32, 1, (const int64_t[]){8}, (const float[8]){0}, 32);
}

START_TEST(what_is_wrong_is_named_as_the_file_names_it)
{
    struct gguf_writer w = {0};
    struct model_config c;
    struct engine *e = NULL;
    make_small(&w);
    const char *key = "llama.embedding_length";
    char *at = memmem(w.values.data, w.values.len, key, strlen(key));
    memset(at + strlen(key) + 4, 0, 4); /* the number behind its type */
    ck_assert_int_eq(read_config(&w, &c), ERR_FORMAT);
    ck_assert_msg(strstr(err_message(), "key 'llama.embedding_length' is 0, expected 1 to"), "%s", err_message());
    gguf_writer_free(&w);
    make_small(&w);
    put_matrix(&w, "blk.0.attn_q.bias", 1);
    gguf_write_file(&w, path_of("bias.gguf"));
    const struct engine_options options = {
        .target = test_checkpoint(path_of("bias.gguf")), .device = test_device(), .context = 64};
    ck_assert_int_eq(engine_create(&e, &options), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "tensor 'blk.0.attn_q.bias' is not part of"), "%s", err_message());
    gguf_writer_free(&w);
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
    refuse_config(NULL, "llama", ERR_UNSUPPORTED, "architecture 'llam`' is not supported (known: llama, granite");
    refuse_config(add_value_length, NULL, ERR_UNSUPPORTED, "'llama.attention.value_length' is 8, with keys of 16");
    refuse_config(add_turning, NULL, ERR_FORMAT, "'llama.rope.dimension_count' is 17, with heads of 16");
    refuse_config(add_scaling, NULL, ERR_UNSUPPORTED, "rope type 'su-per' is not supported");
    refuse_config(add_theta, NULL, ERR_FORMAT, "'llama.rope.freq_base': expected a finite number");
    refuse_config(add_layers, NULL, ERR_UNSUPPORTED, "'llama.attention.head_count_kv' differs from layer to layer");
    refuse_config(add_factors, NULL, ERR_FORMAT, "tensor 'rope_freqs.weight' is F32 of 32 numbers");
    refuse_config(add_zeros, NULL, ERR_FORMAT, "tensor 'rope_freqs.weight' holds something else than factors");
}
END_TEST

/* --- weights ----------------------------------------------------------------------------------------------------------- */

/* A model whose ffn_down has the block `number` of this type changed at a byte, with 256 columns. */
static int load_with_block(int type, size_t block_bytes, int number, size_t at, unsigned char value) {
    struct gguf_writer w = {0};
    struct engine *e = NULL;
    const int64_t shape[] = {256, WIDTH};
    struct buf blocks = {0};
    for (size_t i = 0; i < block_bytes * (size_t)WIDTH * (block_bytes < 40 ? 8 : 1); i++) buf_putc(&blocks, 0);
    blocks.data[(size_t)number * block_bytes + at] = (char)value;
    gguf_put_text(&w, "general.architecture", "llama");
    gguf_put_int(&w, "llama.context_length", 64);
    gguf_put_int(&w, "llama.embedding_length", WIDTH);
    gguf_put_int(&w, "llama.block_count", 1);
    gguf_put_int(&w, "llama.feed_forward_length", 256);
    gguf_put_int(&w, "llama.attention.head_count", 2);
    gguf_put_number(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    put_matrix(&w, "token_embd.weight", VOCAB);
    put_matrix(&w, "output_norm.weight", 1), put_matrix(&w, "blk.0.attn_norm.weight", 1);
    put_matrix(&w, "blk.0.ffn_norm.weight", 1);
    put_matrix(&w, "blk.0.attn_q.weight", WIDTH), put_matrix(&w, "blk.0.attn_k.weight", WIDTH);
    put_matrix(&w, "blk.0.attn_v.weight", WIDTH), put_matrix(&w, "blk.0.attn_output.weight", WIDTH);
    put_matrix(&w, "blk.0.ffn_gate.weight", 256), put_matrix(&w, "blk.0.ffn_up.weight", 256);
    gguf_put_tensor(&w, "blk.0.ffn_down.weight", type, 2, shape, blocks.data, blocks.len);
    gguf_write_file(&w, path_of("scales.gguf"));
    struct checkpoint *c = checkpoint_open(path_of("scales.gguf"));
    int rc = engine_create(&e, &(struct engine_options){.target = c, .device = test_device(), .context = 64});
    engine_destroy(e);
    checkpoint_close(c);
    buf_free(&blocks);
    gguf_writer_free(&w);
    return rc;
}

START_TEST(scales_that_are_not_finite_are_refused_with_their_row)
{
    static const struct {
        int type;
        size_t bytes, at; /* the high byte of a scale or minimum */
    } places[] = {{8, 34, 1},   {2, 18, 1},     {3, 20, 1},   {3, 20, 3},     {6, 22, 1},   {7, 24, 3},
                  {20, 18, 1},  {10, 84, 81},   {10, 84, 83}, {11, 110, 109}, {12, 144, 1}, {12, 144, 3},
                  {13, 176, 3}, {14, 210, 209}, {23, 136, 1}, {39, 17, 0}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int row = 5, blocks = places[i].bytes < 40 ? 8 : 1, number = row * blocks + blocks - 1;
        const unsigned char bad = places[i].type == 39 ? 0xff : 0xfc, good = places[i].type == 39 ? 0xfe : 0x3b;
        ck_ok(load_with_block(places[i].type, places[i].bytes, number, places[i].at, good));
        ck_assert_int_eq(load_with_block(places[i].type, places[i].bytes, number, places[i].at, bad), ERR_FORMAT);
        ck_assert_msg(strstr(err_message(),
                             "/scales.gguf: tensor 'model.layers.0.mlp.down_proj.weight' has a scale that "
                             "is not finite, in row 5"),
                      "%s", err_message());
    }
}
END_TEST

/* --- files ----------------------------------------------------------------------------------------------------------- */

static void expect_name(const char *dir, const char *file) {
    struct checkpoint *c = checkpoint_open(path_of(dir));
    ck_assert_msg(strstr(checkpoint_name(c), file), "%s", checkpoint_name(c));
    checkpoint_close(c);
}

START_TEST(a_directory_that_holds_one_gguf_model_is_that_model)
{
    struct gguf_writer w = {0};
    struct model_config config;
    char path[300];
    make_small(&w);
    snprintf(path, sizeof path, "mkdir -p %s", path_of("single"));
    ck_assert_int_eq(system(path), 0);
    gguf_write_file(&w, path_of("single/model-q4.gguf"));
    gguf_write_file(&w, path_of("single/mmproj-model.gguf"));
    expect_name("single", "/single/model-q4.gguf");
    gguf_write_file(&w, path_of("single/model-q8.gguf"));
    struct checkpoint *c = checkpoint_open(path_of("single"));
    ck_assert_int_eq(checkpoint_config(c, &config), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "it holds GGUF files: take one of them"), "%s", err_message());
    checkpoint_close(c);
    unlink(path_of("single/model-q8.gguf"));
    damage_write_text(path_of("single/config.json"), "{}");
    c = checkpoint_open(path_of("single"));
    ck_assert_ptr_null(strstr(checkpoint_name(c), ".gguf"));
    checkpoint_close(c);
    gguf_writer_free(&w);
}
END_TEST

static void write_part(const char *name, int part, int parts) {
    struct gguf_writer w = {0};
    if (part == 0)
        put_keys(&w), put_tensors(&w);
    else
        put_matrix(&w, "output.weight", VOCAB);
    gguf_put_int(&w, "split.no", part);
    gguf_put_int(&w, "split.count", parts);
    gguf_write_file(&w, path_of(name));
    gguf_writer_free(&w);
}

static void refuse_parts(const char *name, int code, const char *words) {
    struct gguf *g = NULL;
    ck_assert_int_eq(gguf_open(&g, path_of(name)), code);
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(err_message(), words), "'%s' lacks '%s'", err_message(), words);
}

START_TEST(parts_are_found_beside_the_first)
{
    struct gguf *g;
    write_part("m-00001-of-00002.gguf", 0, 2);
    refuse_parts("m-00001-of-00002.gguf", ERR_IO, "m-00002-of-00002.gguf: ");
    write_part("m-00002-of-00002.gguf", 0, 2);
    refuse_parts("m-00001-of-00002.gguf", ERR_FORMAT, "is part 1 of 2, expected part 2 of 2");
    write_part("m-00002-of-00002.gguf", 1, 2);
    refuse_parts("m-00002-of-00002.gguf", ERR_USAGE, "is part 2 of 2; hint: give the first part");
    ck_ok(gguf_open(&g, path_of("m-00001-of-00002.gguf")));
    ck_assert_ptr_nonnull(gguf_find(g, "output.weight"));
    ck_assert_str_eq(gguf_find(g, "output.weight")->file, path_of("m-00002-of-00002.gguf"));
    gguf_close(g);
    write_part("renamed.gguf", 0, 2);
    refuse_parts("renamed.gguf", ERR_FORMAT, "its name should end with -00001-of-00002.gguf");
}
END_TEST

Suite *check_gguf(void);
Suite *check_gguf(void) {
    Suite *suite = suite_create("gguf");
    TCase *tc = tcase_create("gguf");
    tcase_add_test(tc, values_of_all_types_are_read);
    tcase_add_test(tc, tensors_have_their_shape_turned_round_and_their_bytes);
    tcase_add_test(tc, numbers_that_cannot_be_are_refused);
    tcase_add_test(tc, what_is_there_twice_and_alignments_are_refused);
    tcase_add_test(tc, a_file_cut_anywhere_is_refused);
    tcase_add_test(tc, flipped_bytes_are_read_or_refused);
    tcase_add_test(tc, keys_become_the_configuration);
    tcase_add_test(tc, linear_scaling_of_the_rope_needs_no_type);
    tcase_add_test(tc, control_tokens_that_end_a_turn_end_an_answer);
    tcase_add_test(tc, a_window_of_0_is_none);
    tcase_add_test(tc, what_is_wrong_is_named_as_the_file_names_it);
    tcase_add_test(tc, what_a_configuration_lacks_is_named);
    tcase_add_test(tc, scales_that_are_not_finite_are_refused_with_their_row);
    tcase_add_test(tc, a_directory_that_holds_one_gguf_model_is_that_model);
    tcase_add_test(tc, parts_are_found_beside_the_first);
    suite_add_tcase(suite, tc);
    return suite;
}
