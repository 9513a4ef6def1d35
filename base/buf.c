#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Grows *cap (in elements of `size` bytes) to hold `need`, at least doubling it. */
static void *grow(void *data, size_t *cap, size_t need, size_t size) {
    size_t want = *cap < 16 ? 32 : *cap * 2;
    if (want < need) want = need;
    if (want > PTRDIFF_MAX / size) memory_exhausted();
    *cap = want;
    return memory_resize(data, want * size);
}

void buf_free(struct buf *b) {
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b) {
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void buf_reserve(struct buf *b, size_t more) {
    if (more >= PTRDIFF_MAX - b->len) memory_exhausted();
    if (b->len + more + 1 <= b->cap) return;
    b->data = grow(b->data, &b->cap, b->len + more + 1, 1);
    b->data[b->len] = '\0';
}

void buf_append(struct buf *b, const void *bytes, size_t n) {
    if (n == 0) return;
    buf_reserve(b, n);
    memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *text) {
    buf_append(b, text, strlen(text));
}

void buf_putc(struct buf *b, char c) {
    buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) memory_exhausted(); /* a text past INT_MAX bytes, or one that has no memory to be formatted in */
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->len, (size_t)n + 1, format, again);
    va_end(again);
    b->len += (size_t)n;
}

const char *buf_text(const struct buf *b) {
    return b->data ? b->data : "";
}

bool text_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

char letter_to_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool text_is_same_in_any_case(const char *a, const char *b) {
    while (*a && letter_to_lower(*a) == letter_to_lower(*b)) a++, b++;
    return *a == *b;
}

void ids_free(struct ids *ids) {
    free(ids->data);
    *ids = (struct ids){0};
}

void ids_append(struct ids *ids, const int32_t *from, size_t n) {
    if (n == 0) return;
    if (n > PTRDIFF_MAX - ids->len) memory_exhausted();
    if (ids->len + n > ids->cap) ids->data = grow(ids->data, &ids->cap, ids->len + n, sizeof *ids->data);
    memcpy(ids->data + ids->len, from, n * sizeof *from);
    ids->len += n;
}

void ids_push(struct ids *ids, int32_t id) {
    ids_append(ids, &id, 1);
}

int utf8_decode(const char *text, size_t n, uint32_t *code_point) {
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text[0];
    if (first < 0x80) {
        *code_point = first;
        return 1;
    }
    int length = first >= 0xf8 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    if (length == 0 || (size_t)length > n) return 0;
    uint32_t value = first & (0x7fu >> length);
    for (int i = 1; i < length; i++) {
        unsigned char next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80) return 0;
        value = value << 6 | (next & 0x3f);
    }
    if (value < smallest[length] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
    *code_point = value;
    return length;
}

int utf8_encode(uint32_t code_point, char out[4]) {
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    int length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    out[0] = (char)((0xf00u >> length & 0xf0) | code_point);
    return length;
}

size_t utf8_valid_prefix(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint32_t code_point;
        int length = utf8_decode(text + at, n - at, &code_point);
        if (length == 0) break;
        at += (size_t)length;
    }
    return at;
}

bool utf8_is_valid(const char *text, size_t n) {
    return utf8_valid_prefix(text, n) == n;
}
