/* A GGUF file: each part of the checkpoint is read or refused. The input is the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "fuzz/configs.h"
#include "fuzz/tokenizers.h"
#include "model/files/gguf.h"

enum { FUZZ_BYTES_MAX = 8192 };

static const char file_name[] = "model.gguf";

/* Opened once, under a name that says what it is. */
static const struct checkpoint *checkpoint(void) {
    static struct checkpoint *c;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), file_name);
    if (!c) c = checkpoint_open(path);
    return c;
}

static void claim_named_refusal(int rc) {
    claim_refusal(rc);
    claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
}

static void claim_mapped(const char *name, const void *data, size_t bytes) {
    const char *at = data;
    claim(bytes > 0, "tensor '%s' is empty", name);
    claim(mapping_path_at(at) && mapping_path_at(at) == mapping_path_at(at + bytes - 1), "tensor '%s' lies outside",
          name);
}

static void claim_tensor(const struct safetensors *s, const struct tensor *t) {
    const struct tensor *found;
    enum dtype format;
    int64_t elements = 1;
    for (int i = 0; i < t->dims; i++) elements *= t->shape[i];
    claim_mapped(t->name, t->data, t->bytes);
    claim(safetensors_expect(s, t->name, t->shape, t->dims, &found, &format) == 0 && found == t, "'%s'", t->name);
    claim((size_t)dtype_span_bytes(format, elements) == t->bytes, "'%s' has %zu bytes", t->name, t->bytes);
    claim((uintptr_t)t->data % 2 == 0 || dtype_block(format).bytes % 2 != 0, "'%s' is misaligned", t->name);
}

static void claim_tensors_read(void) {
    struct safetensors *s = (struct safetensors *)&s;
    forget_error();
    int rc = checkpoint_tensors(checkpoint(), &s);
    if (rc != 0) {
        claim(!s, "a result in spite of: %s", err_message());
        claim_named_refusal(rc);
        return;
    }
    for (int i = 0; i < safetensors_count(s); i++) {
        claim(i == 0 || strcmp(safetensors_at(s, i - 1)->name, safetensors_at(s, i)->name) < 0, "out of order");
        claim_tensor(s, safetensors_at(s, i));
    }
    safetensors_close(s);
}

static void claim_file(void) {
    struct gguf *g = (struct gguf *)&g;
    forget_error();
    int rc = gguf_open(&g, checkpoint_name(checkpoint()));
    if (rc != 0) {
        claim(!g, "a result in spite of: %s", err_message());
        claim_named_refusal(rc);
        return;
    }
    for (int i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        claim(gguf_find(g, t->name) == t, "tensor '%s' is not found", t->name);
        claim(t->dims >= 1 && t->dims <= GGUF_DIMS_MAX, "tensor '%s' has %d dimensions", t->name, t->dims);
        claim_mapped(t->name, t->data, t->bytes);
    }
    gguf_close(g);
}

static void claim_tokenizer(const struct tokenizer *t) {
    static const char text[] = " ab\xc3\xa9 1<s>\n\xf0\x9f\x98\x80";
    struct ids ids = {0};
    struct buf back = {0};
    if (claim_encoding(t, text, sizeof text - 1, true, &ids) == 0) claim_decoding(t, &ids, false, &back);
    ids_free(&ids);
    buf_free(&back);
}

static void claim_words(void) {
    struct tokenizer *t = (struct tokenizer *)&t;
    struct chat_template *chat = (struct chat_template *)&chat;
    forget_error();
    int rc = checkpoint_tokenizer(checkpoint(), &t);
    if (rc != 0)
        claim_named_refusal(rc);
    else if (t)
        claim_tokenizer(t);
    claim(rc == 0 || !t, "a result in spite of: %s", err_message());
    forget_error();
    rc = checkpoint_chat_template(checkpoint(), NULL, &chat);
    if (rc != 0) claim_named_refusal(rc);
    claim(rc == 0 || !chat, "a result in spite of: %s", err_message());
    tokenizer_free(t);
    chat_template_free(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct model_config c;
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    fuzz_write(file_name, data, n);
    claim_file();
    claim_tensors_read();
    forget_error();
    int rc = checkpoint_config(checkpoint(), &c);
    if (rc == 0)
        claim_config(&c);
    else
        claim_named_refusal(rc);
    claim_words();
    fuzz_remove(file_name); /* a directory that holds one is another model to the other targets */
    claim_files_closed(mark);
    return 0;
}
