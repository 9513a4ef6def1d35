/* Text broken between words for a terminal. The first byte is the number of columns, the second says how the text, which is
 * the rest, is cut into pushes. */
#include "cli/wrap.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 512 };

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n';
}

/* Bytes up to behind the next `characters` ones. */
static size_t pass(const char *text, size_t n, int characters) {
    size_t at = 0;
    for (; characters > 0 && at < n; characters--) {
        uint32_t c;
        int length = utf8_decode(text + at, n - at, &c);
        at += length > 0 ? (size_t)length : 1;
    }
    return at;
}

static void wrap_text(struct wrap *w, const char *text, size_t n, int first, int step) {
    for (int take = first; n > 0; take = step) {
        size_t bytes = pass(text, n, take > 0 ? take : 1);
        wrap_push(w, text, bytes);
        text += bytes;
        n -= bytes;
    }
    wrap_finish(w);
}

/* Blanks and line breaks apart, what comes out is what went in. */
static void claim_words(const struct buf *out, const char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < out->len; i++) {
        if (is_blank(out->data[i])) continue;
        while (at < n && is_blank(text[at])) at++;
        claim(at < n && text[at++] == out->data[i], "byte %zu of '%s'", i, out->data);
    }
    while (at < n && is_blank(text[at])) at++;
    claim(at == n, "%zu bytes of %zu came out: '%s'", at, n, buf_text(out));
}

/* Of letters with single spaces between words that all fit on a line, every line fits. */
static void claim_lines_fit(const struct buf *out, const char *text, size_t n, int columns) {
    size_t word = 0, line = 0;
    for (size_t i = 0; i < n; i++) {
        word = is_blank(text[i]) ? 0 : word + 1;
        bool is_plain =
            (text[i] > ' ' && text[i] < 0x7f) || text[i] == '\n' || (text[i] == ' ' && i > 0 && !is_blank(text[i - 1]));
        if (!is_plain || word > (size_t)columns) return;
    }
    for (size_t i = 0; i < out->len; i++) {
        line = out->data[i] == '\n' ? 0 : line + 1;
        claim(line <= (size_t)columns, "%zu columns of %d: '%s'", line, columns, out->data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    if (n > FUZZ_BYTES_MAX) return 0;
    int columns = input_byte(&in) % 64, cut = input_byte(&in);
    struct wrap whole = {.columns = columns}, pieces = {.columns = columns};
    char *text = input_text(&in);
    for (size_t i = 0; i < in.n; i++) /* no control characters */
        if (((unsigned char)text[i] < 0x20 && !is_blank(text[i])) || text[i] == 0x7f) text[i] = 'x';
    wrap_push(&whole, text, in.n);
    wrap_finish(&whole);
    wrap_text(&pieces, text, in.n, cut & 15, 1 + (cut >> 4));
    claim_same("in pieces", pieces.out.data, pieces.out.len, whole.out.data, whole.out.len);
    claim_words(&whole.out, text, in.n);
    if (columns < WRAP_COLUMNS_MIN)
        claim_same("not wrapped", whole.out.data, whole.out.len, text, in.n);
    else
        claim_lines_fit(&whole.out, text, in.n, columns);
    wrap_free(&whole);
    wrap_free(&pieces);
    free(text);
    return 0;
}
