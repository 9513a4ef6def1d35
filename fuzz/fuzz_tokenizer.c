/* tokenizer.json: loaded or refused, and what is loaded encodes and decodes. The input is the file, then, behind a NUL byte,
 * a text of up to 16 bytes. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/tokenizers.h"

enum { FUZZ_BYTES_MAX = 4096, IDS_LOOKED_AT = 64, SMALL_BYTES = 64, DIGITS_MOST = 3, TEXT_BYTES = 16 };

/* Tokens and ids are a bijection. */
static void claim_map(const struct tokenizer *t) {
    int size = tokenizer_size(t);
    size_t n;
    claim(size >= 0 && size <= 1 << 20, "%d ids", size);
    claim(!tokenizer_token(t, -1, &n) && !tokenizer_token(t, size, &n), "a token outside");
    claim(!tokenizer_is_special(t, -1) && !tokenizer_is_special(t, size), "a special token outside");
    for (int i = 0; i < IDS_LOOKED_AT && i < size; i++) {
        int32_t id = i % 2 ? size - 1 - i / 2 : i / 2;
        const char *text = tokenizer_token(t, id, &n);
        if (!text) continue;
        claim(text[n] == '\0' && utf8_is_valid(text, n), "token %d", id);
        claim(tokenizer_find(t, text, n) == id, "token %d is found as %d", id, tokenizer_find(t, text, n));
    }
    if (size > FUZZ_BYTES_MAX) return;
    int common = -1;
    claim(tokenizer_compare(t, t, &common) == 0 && common == size, "%d of %d in common", common, size);
    struct buf words = {0};
    tokenizer_describe(t, &words);
    claim_sentence(buf_text(&words));
    buf_free(&words);
}

static void claim_text(const struct tokenizer *t, const char *text, size_t n, bool special) {
    struct ids ids = {0};
    struct buf back = {0};
    if (claim_encoding(t, text, n, special, &ids) == 0) claim_decoding(t, &ids, !special, &back);
    ids_free(&ids);
    buf_free(&back);
}

static void claim_first_ids(const struct tokenizer *t) {
    struct ids ids = {0};
    struct buf text = {0};
    for (int32_t id = 11; id >= -1; id--) ids_push(&ids, id);
    claim_decoding(t, &ids, false, &text);
    ids_free(&ids);
    buf_free(&text);
}

/* Texts are short, because there are regexes that take time by their length as a power. */
static void claim_loaded(const struct tokenizer *t, const struct input *in) {
    static const char usual[] = " ab\xc3\xa9 1<s>\n\xf0\x9f\x98\x80";
    claim_map(t);
    claim_first_ids(t);
    claim_text(t, usual, sizeof usual - 1, true);
    if (in->n > 0) claim_text(t, (const char *)in->data, in->n < TEXT_BYTES ? in->n : TEXT_BYTES, false);
}

/* A large id makes a map of megabytes, which takes time: in small inputs alone. */
static bool has_large_id(const struct input *file) {
    size_t digits = 0;
    for (size_t i = 0; i < file->n && digits <= DIGITS_MOST; i++)
        digits = file->data[i] >= '0' && file->data[i] <= '9' ? digits + 1 : 0;
    return digits > DIGITS_MOST;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct tokenizer *t = (struct tokenizer *)&t;
    if (n > FUZZ_BYTES_MAX) return 0;
    struct input file = input_until(&in, '\0');
    if (file.n > SMALL_BYTES && has_large_id(&file)) return 0;
    int mark = files_mark();
    fuzz_write("tokenizer.json", file.data, file.n);
    forget_error();
    int rc = checkpoint_tokenizer(fuzz_checkpoint(), &t);
    if (rc != 0) {
        claim(!t, "a result in spite of: %s", err_message());
        claim_refusal(rc);
        claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
    } else {
        claim_loaded(t, &in);
    }
    tokenizer_free(t);
    claim_files_closed(mark);
    return 0;
}
