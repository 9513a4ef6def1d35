/* Text to ids and back. The first byte chooses the tokenizer, the rest is the text. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/tokenizers.h"

enum { FUZZ_BYTES_MAX = 256 };

/* What the post-processor adds stands around the ids of the text itself. */
static void claim_around(enum fixed_tokenizer which, const struct ids *plain, const char *text, size_t n) {
    static const size_t front[TOKENIZERS] = {[TOKENIZER_PIECES] = 1, [TOKENIZER_WORDS] = 2},
                        back[TOKENIZERS] = {[TOKENIZER_WORDS] = 1};
    struct ids around = {0};
    claim(claim_encoding(fixed_tokenizer(which), text, n, true, &around) == 0, "%s", err_message());
    claim(around.len == front[which] + plain->len + back[which], "%zu ids around %zu", around.len, plain->len);
    for (size_t i = 0; i < plain->len; i++) claim(around.data[front[which] + i] == plain->data[i], "id %zu", i);
    ids_free(&around);
}

static bool has_special(const struct tokenizer *t, const struct ids *ids) {
    for (size_t i = 0; i < ids->len; i++)
        if (tokenizer_is_special(t, ids->data[i])) return true;
    return false;
}

/* The sentencepiece style puts a space in front of the text behind every special token, and has a mark of its own. */
static bool comes_back(enum fixed_tokenizer which, const struct ids *ids, const char *text, size_t n) {
    if (which != TOKENIZER_PIECES) return fixed_tokenizer_is_lossless(which);
    return !has_special(fixed_tokenizer(which), ids) && !memmem(text, n, "\xe2\x96\x81", 3);
}

static void claim_text(enum fixed_tokenizer which, const char *text, size_t n) {
    const struct tokenizer *t = fixed_tokenizer(which);
    struct ids ids = {0};
    struct buf back = {0};
    ids_push(&ids, -7); /* what is there stays */
    int rc = claim_encoding(t, text, n, false, &ids);
    claim((rc == 0) == utf8_is_valid(text, n), "the code %d: %s", rc, rc ? err_message() : "");
    claim(ids.data[0] == -7, "what was there is %d", ids.data[0]);
    memmove(ids.data, ids.data + 1, --ids.len * sizeof *ids.data);
    if (rc == 0) {
        claim_around(which, &ids, text, n);
        claim(claim_decoding(t, &ids, false, &back) == 0, "%s", err_message());
        if (comes_back(which, &ids, text, n)) claim_same("back", buf_text(&back), back.len, text, n);
    }
    ids_free(&ids);
    buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    if (n > FUZZ_BYTES_MAX) return 0;
    enum fixed_tokenizer which = input_byte(&in) % TOKENIZERS;
    claim_text(which, in.n > 0 ? (const char *)in.data : "", in.n);
    return 0;
}
