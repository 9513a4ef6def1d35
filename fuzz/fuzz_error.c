/* Sentences of errors, whatever they quote. The input is what a sentence says, then, behind a NUL byte, what is put in front
 * of it. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 6144, SENTENCE_MAX = 1023, KEPT = 100 };

static bool is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

/* `text` as a sentence shows it. */
static void put_escaped(struct buf *out, const char *text) {
    size_t n = strlen(text);
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        int length = utf8_decode(text + at, n - at, &c), bytes = length > 0 ? length : 1;
        for (int i = 0; i < bytes; i++) {
            if (length == 0 || is_control(c))
                buf_printf(out, "\\x%02x", (unsigned)(unsigned char)text[at + (size_t)i]);
            else
                buf_putc(out, text[at + (size_t)i]);
        }
        at += (size_t)bytes;
    }
}

/* The sentence is `wanted`, or, where that is too long, has its ends: what is wrong, and why. */
static void claim_shown(const struct buf *wanted) {
    const char *text = err_message(), *whole = buf_text(wanted);
    size_t n = strlen(text), all = wanted->len;
    claim(n <= SENTENCE_MAX, "%zu bytes", n);
    if (all <= SENTENCE_MAX) {
        claim_same("a sentence", text, n, whole, all);
    } else {
        claim(n >= 2 * KEPT + 3 && memcmp(text, whole, KEPT) == 0, "another beginning: %s", text);
        claim(memcmp(text + n - KEPT, whole + all - KEPT, KEPT) == 0, "another end: %s", text);
        claim(strstr(text, "..."), "nothing shows that it is cut: %s", text);
    }
    if (n > 0) claim_sentence(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct buf wanted = {0}, prefixed = {0};
    if (n > FUZZ_BYTES_MAX) return 0;
    struct input said = input_until(&in, '\0'), front = input_until(&in, '\0');
    char *text = input_text(&said), *prefix = input_text(&front);
    put_escaped(&wanted, text);
    claim(err_set(ERR_FORMAT, "%s", text) == ERR_FORMAT, "another code");
    claim_shown(&wanted);
    put_escaped(&prefixed, prefix);
    buf_puts(&prefixed, ": ");
    buf_puts(&prefixed, err_message());
    claim(err_prefix(ERR_LIMIT, "%s", prefix) == ERR_LIMIT, "another code");
    claim_shown(&prefixed);
    free(text);
    free(prefix);
    buf_free(&wanted);
    buf_free(&prefixed);
    return 0;
}
