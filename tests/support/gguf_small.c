#include "tests/support/gguf_small.h"

#include <stdio.h>

#include "tests/support/support.h"

enum { NUMBERS = 256 * SMALL_WIDTH };

const char *const small_tokens[SMALL_VOCAB] = {"<unk>", "<s>", "</s>", "<0x0A>", "\xe2\x96\x81", "a", "b", "ab"};

void small_put_matrix_of(struct gguf_writer *w, const char *name, int rows, int type) {
    static const float numbers[NUMBERS];
    gguf_put_tensor(w, name, type, rows > 1 ? 2 : 1, (const int64_t[]){SMALL_WIDTH, rows}, numbers,
                    (type == GGML_F32 ? 4 : 2) * SMALL_WIDTH * (size_t)rows);
}

void small_put_matrix(struct gguf_writer *w, const char *name, int rows) {
    small_put_matrix_of(w, name, rows, GGML_F32);
}

void small_put_keys_of(struct gguf_writer *w, const char *architecture) {
    static const struct {
        const char *name;
        int value;
    } sizes[] = {{"context_length", 64},
                 {"embedding_length", SMALL_WIDTH},
                 {"block_count", 1},
                 {"feed_forward_length", SMALL_WIDTH},
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

void small_put_keys(struct gguf_writer *w) {
    small_put_keys_of(w, "llama");
}

static void put_tokenizer(struct gguf_writer *w) {
    static const int32_t kinds[SMALL_VOCAB] = {2, 3, 3, 6, 1, 1, 1, 1};
    static const float scores[SMALL_VOCAB] = {0, 0, 0, 0, -1, -2, -3, -4};
    gguf_put_text(w, "tokenizer.ggml.model", "llama");
    gguf_put_texts(w, "tokenizer.ggml.tokens", small_tokens, SMALL_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, kinds, SMALL_VOCAB);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, SMALL_VOCAB);
    gguf_put_int(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_put_int(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_put_text(w, "tokenizer.chat_template",
                  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                  "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
                  "}}{% endif %}");
}

void small_put_tensors_of(struct gguf_writer *w, int matrices, int vectors) {
    static const char *const squares[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                          "ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    small_put_matrix_of(w, "token_embd.weight", SMALL_VOCAB, matrices);
    small_put_matrix_of(w, "output_norm.weight", 1, vectors);
    small_put_matrix_of(w, "blk.0.attn_norm.weight", 1, vectors);
    small_put_matrix_of(w, "blk.0.ffn_norm.weight", 1, vectors);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", squares[i]);
        small_put_matrix_of(w, name, SMALL_WIDTH, matrices);
    }
}

void small_put_tensors(struct gguf_writer *w) {
    small_put_tensors_of(w, GGML_F32, GGML_F32);
}

/* Two arrays, of a text and of two numbers. */
static void put_unread(struct gguf_writer *w) {
    static const char arrays[] = "\10\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0no" /* a text of two bytes */
                                 "\2\0\0\0\2\0\0\0\0\0\0\0\1\0\2";             /* u16, and one NUL more */
    gguf_put_arrays(w, "general.unread", arrays, sizeof arrays, 2);
}

void small_put_all(struct gguf_writer *w) {
    put_unread(w);
    small_put_keys(w);
    put_tokenizer(w);
    small_put_tensors(w);
}

const char *small_path(const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    return path;
}
