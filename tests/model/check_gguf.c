/* GGUF files: what they say, and damaged ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "model/files/gguf.h"
#include "model/model.h"
#include "tests/support/damage.h"
#include "tests/support/gguf_small.h"
#include "tests/support/support.h"

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
    gguf_put_texts(&w, "texts", small_tokens, SMALL_VOCAB);
    gguf_write_file(&w, small_path("values.gguf"));
    ck_ok(gguf_open(&g, small_path("values.gguf")));
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
    for (int i = 0; i < SMALL_VOCAB; i++) ck_assert(gguf_is_text(gguf_next_text(&at), small_tokens[i]));
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
    gguf_write_file(&w, small_path("tensors.gguf"));
    ck_ok(gguf_open(&g, small_path("tensors.gguf")));
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
    damage_write_file(small_path("bad.gguf"), file->data, file->len);
    int rc = gguf_open(&g, small_path("bad.gguf"));
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
    small_put_all(&w);
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
    refuse_number("tokenizer.ggml.scores", 4, 9, 4, ERR_FORMAT, "'tokenizer.ggml.scores': the header");
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
        small_put_all(&w);
        gguf_put_int(&w, "general.alignment", alignments[i]);
        gguf_write(&w, &file);
        refuse_bytes(&file, ERR_FORMAT, "key 'general.alignment': expected a power of two");
        buf_free(&file);
        gguf_writer_free(&w);
    }
    struct gguf_writer w = {0};
    struct buf file = {0};
    small_put_all(&w);
    small_put_matrix(&w, "blk.0.attn_q.weight", SMALL_WIDTH);
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
    small_put_all(&w);
    gguf_write(&w, &file);
    const size_t header = file.len - w.data.len;
    for (size_t n = 0; n < file.len; n += n < header ? 1 : 97) {
        struct gguf *g = NULL;
        damage_write_file(small_path("cut.gguf"), file.data, n);
        require(gguf_open(&g, small_path("cut.gguf")) == ERR_FORMAT && !g, "%zu of %zu bytes: %s", n, file.len,
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
    small_put_all(&w);
    gguf_write(&w, &file);
    const size_t header = file.len - w.data.len;
    for (size_t at = 0; at < header; at++) {
        file.data[at] = (char)(file.data[at] ^ masks[at % 3]);
        damage_write_file(small_path("flipped.gguf"), file.data, file.len);
        read_all(small_path("flipped.gguf"));
        file.data[at] = (char)(file.data[at] ^ masks[at % 3]);
    }
    buf_free(&file);
    gguf_writer_free(&w);
}
END_TEST

/* --- weights ----------------------------------------------------------------------------------------------------------- */

/* A model whose ffn_down has the block `number` of this type changed at a byte, with 256 columns. */
static int load_with_block(int type, size_t block_bytes, int number, size_t at, unsigned char value) {
    struct gguf_writer w = {0};
    struct engine *e = NULL;
    const int64_t shape[] = {256, SMALL_WIDTH};
    struct buf blocks = {0};
    for (size_t i = 0; i < block_bytes * (size_t)SMALL_WIDTH * (block_bytes < 40 ? 8 : 1); i++) buf_putc(&blocks, 0);
    blocks.data[(size_t)number * block_bytes + at] = (char)value;
    gguf_put_text(&w, "general.architecture", "llama");
    gguf_put_int(&w, "llama.context_length", 64);
    gguf_put_int(&w, "llama.embedding_length", SMALL_WIDTH);
    gguf_put_int(&w, "llama.block_count", 1);
    gguf_put_int(&w, "llama.feed_forward_length", 256);
    gguf_put_int(&w, "llama.attention.head_count", 2);
    gguf_put_number(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    small_put_matrix(&w, "token_embd.weight", SMALL_VOCAB);
    small_put_matrix(&w, "output_norm.weight", 1), small_put_matrix(&w, "blk.0.attn_norm.weight", 1);
    small_put_matrix(&w, "blk.0.ffn_norm.weight", 1);
    small_put_matrix(&w, "blk.0.attn_q.weight", SMALL_WIDTH), small_put_matrix(&w, "blk.0.attn_k.weight", SMALL_WIDTH);
    small_put_matrix(&w, "blk.0.attn_v.weight", SMALL_WIDTH),
        small_put_matrix(&w, "blk.0.attn_output.weight", SMALL_WIDTH);
    small_put_matrix(&w, "blk.0.ffn_gate.weight", 256), small_put_matrix(&w, "blk.0.ffn_up.weight", 256);
    gguf_put_tensor(&w, "blk.0.ffn_down.weight", type, 2, shape, blocks.data, blocks.len);
    gguf_write_file(&w, small_path("scales.gguf"));
    struct checkpoint *c = checkpoint_open(small_path("scales.gguf"));
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

/* A file with `levels` arrays in one another under a key. */
static int open_nested(const char *key, int levels) {
    struct gguf_writer w = {0};
    struct buf arrays = {0};
    struct gguf *g;
    for (int i = 1; i < levels; i++)
        buf_append(&arrays, i + 1 < levels ? "\11\0\0\0\1\0\0\0\0\0\0\0" : "\0\0\0\0\1\0\0\0\0\0\0\0\7",
                   i + 1 < levels ? 12 : 13);
    small_put_all(&w);
    gguf_put_arrays(&w, key, arrays.data, arrays.len, 1);
    gguf_put_int(&w, "after", 5);
    gguf_write_file(&w, small_path("nested.gguf"));
    int rc = gguf_open(&g, small_path("nested.gguf"));
    if (rc == 0) {
        int64_t after;
        const struct gguf_value *v;
        ck_ok(gguf_get_int(g, "after", 0, 0, 9, &after));
        ck_assert_int_eq(after, 5);
        rc = gguf_get_array(g, key, GGUF_U8, &v);
        gguf_close(g);
    }
    buf_free(&arrays);
    gguf_writer_free(&w);
    return rc;
}

/* The small model has some: its suites read it, cut and with flipped bytes. */
START_TEST(arrays_of_arrays_are_skipped_unless_they_are_asked_for)
{
    struct gguf_writer w = {0};
    struct model_config config;
    for (int levels = 2; levels <= 8; levels++) {
        ck_assert_int_eq(open_nested("nested", levels), ERR_FORMAT);
        ck_assert_msg(strstr(err_message(), "key 'nested': expected an array") != NULL, "%s", err_message());
    }
    ck_assert_int_eq(open_nested("nested", 9), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "key 'nested': holds arrays of arrays in more than 8 levels") != NULL, "%s",
                  err_message());
    small_put_all(&w);
    gguf_put_arrays(&w, "llama.attention.head_count_kv", "\5\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0", 16, 1);
    gguf_write_file(&w, small_path("nested.gguf"));
    struct checkpoint *c = checkpoint_open(small_path("nested.gguf"));
    ck_assert_int_eq(checkpoint_config(c, &config), ERR_FORMAT);
    ck_assert_msg(strstr(err_message(), "key 'llama.attention.head_count_kv': expected an integer") != NULL, "%s",
                  err_message());
    checkpoint_close(c);
    gguf_writer_free(&w);
}
END_TEST

/* --- types ---------------------------------------------------------------------------------------------------------- */

static const char *rounded_on(struct device *device) {
    struct checkpoint *c = checkpoint_open(small_path("types.gguf"));
    struct model *m;
    ck_ok(model_open(&m, c, "target", (struct model_numbers){0}, device));
    const char *types = model_rounded(m);
    model_close(m);
    checkpoint_close(c);
    return types;
}

START_TEST(matrices_that_a_gpu_keeps_in_bf16_are_told_of)
{
    static const struct {
        int head, matrices, vectors;
        const char *rounded;
    } cases[] = {{GGML_F16, GGML_F16, GGML_F32, "f16"},         {GGML_F16, GGML_F16, GGML_F16, NULL},
                 {GGML_F32, GGML_F32, GGML_F32, "f32"},         {GGML_BF16, GGML_BF16, GGML_F32, NULL},
                 {GGML_F32, GGML_F16, GGML_F32, "f32 and f16"}, {GGML_BF16, GGML_F16, GGML_BF16, "f16"}};
    struct device *gpu, *host;
    ck_ok(device_open_planned(&gpu, DEVICE_CUDA, 1 << 30));
    ck_ok(device_open(&host, "host", &(struct device_options){.threads = 1}));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_writer w = {0};
        small_put_keys(&w);
        small_put_tensors_of(&w, cases[i].matrices, cases[i].vectors);
        small_put_matrix_of(&w, "output.weight", SMALL_VOCAB, cases[i].head);
        gguf_write_file(&w, small_path("types.gguf"));
        const char *types = rounded_on(gpu);
        ck_assert_msg(types == cases[i].rounded || (types && cases[i].rounded && strcmp(types, cases[i].rounded) == 0),
                      "case %zu: %s", i, types ? types : "none");
        ck_assert_ptr_null(rounded_on(host));
        gguf_writer_free(&w);
    }
    device_close(host), device_close(gpu);
}
END_TEST

/* --- files ----------------------------------------------------------------------------------------------------------- */

static void expect_name(const char *dir, const char *file) {
    struct checkpoint *c = checkpoint_open(small_path(dir));
    ck_assert_msg(strstr(checkpoint_name(c), file), "%s", checkpoint_name(c));
    checkpoint_close(c);
}

START_TEST(a_directory_that_holds_one_gguf_model_is_that_model)
{
    struct gguf_writer w = {0};
    struct model_config config;
    char path[300];
    small_put_all(&w);
    snprintf(path, sizeof path, "mkdir -p %s", small_path("single"));
    ck_assert_int_eq(system(path), 0);
    gguf_write_file(&w, small_path("single/model-q4.gguf"));
    gguf_write_file(&w, small_path("single/mmproj-model.gguf"));
    expect_name("single", "/single/model-q4.gguf");
    gguf_write_file(&w, small_path("single/model-q8.gguf"));
    struct checkpoint *c = checkpoint_open(small_path("single"));
    ck_assert_int_eq(checkpoint_config(c, &config), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "it holds GGUF files: take one of them"), "%s", err_message());
    checkpoint_close(c);
    unlink(small_path("single/model-q8.gguf"));
    damage_write_text(small_path("single/config.json"), "{}");
    c = checkpoint_open(small_path("single"));
    ck_assert_ptr_null(strstr(checkpoint_name(c), ".gguf"));
    checkpoint_close(c);
    gguf_writer_free(&w);
}
END_TEST

static void write_part(const char *name, int part, int parts) {
    struct gguf_writer w = {0};
    if (part == 0)
        small_put_keys(&w), small_put_tensors(&w);
    else
        small_put_matrix(&w, "output.weight", SMALL_VOCAB);
    gguf_put_int(&w, "split.no", part);
    gguf_put_int(&w, "split.count", parts);
    gguf_write_file(&w, small_path(name));
    gguf_writer_free(&w);
}

static void refuse_parts(const char *name, int code, const char *words) {
    struct gguf *g = NULL;
    ck_assert_int_eq(gguf_open(&g, small_path(name)), code);
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
    ck_ok(gguf_open(&g, small_path("m-00001-of-00002.gguf")));
    ck_assert_ptr_nonnull(gguf_find(g, "output.weight"));
    ck_assert_str_eq(gguf_find(g, "output.weight")->file, small_path("m-00002-of-00002.gguf"));
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
    tcase_add_test(tc, scales_that_are_not_finite_are_refused_with_their_row);
    tcase_add_test(tc, arrays_of_arrays_are_skipped_unless_they_are_asked_for);
    tcase_add_test(tc, matrices_that_a_gpu_keeps_in_bf16_are_told_of);
    tcase_add_test(tc, a_directory_that_holds_one_gguf_model_is_that_model);
    tcase_add_test(tc, parts_are_found_beside_the_first);
    suite_add_tcase(suite, tc);
    return suite;
}
