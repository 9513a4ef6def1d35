/* A growable byte buffer that is always NUL-terminated past `len`. Zero-initialise, then use; may hold
 * NUL bytes. Where there is no memory the process ends with a sentence (base/memory.h). Not for tensors. */
#ifndef DUET_BASE_BUF_H
#define DUET_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *data; /* NULL only while empty and never written; use buf_text */
    size_t len, cap;
};

void buf_free(struct buf *);                 /* back to all zero */
void buf_clear(struct buf *);                /* len = 0, memory kept */
void buf_reserve(struct buf *, size_t more); /* room for `more` bytes beyond len */
void buf_append(struct buf *, const void *bytes, size_t n);
void buf_puts(struct buf *, const char *text);
void buf_putc(struct buf *, char c);
void buf_printf(struct buf *, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *buf_text(const struct buf *); /* never NULL */

bool text_ends_with(const char *text, const char *end);
/* A to Z in either case are the same, and no other letters, whatever the locale. */
bool text_is_same_in_any_case(const char *a, const char *b);
char letter_to_lower(char); /* A to Z alone */

/* A growable array of token ids, same conventions. */
struct ids {
    int32_t *data;
    size_t len, cap;
};
void ids_free(struct ids *);
void ids_append(struct ids *, const int32_t *ids, size_t n);
void ids_push(struct ids *, int32_t id);

/* UTF-8. `utf8_decode` reads one code point from [text, text+n), n >= 1: returns its length 1..4, or 0
 * if the bytes there are no valid UTF-8 (overlong forms, surrogates and values past U+10FFFF are not
 * valid). `utf8_encode` writes 1..4 bytes and returns their number. `utf8_valid_prefix` is the length of
 * the longest prefix that is complete, valid UTF-8. */
int utf8_decode(const char *text, size_t n, uint32_t *code_point);
int utf8_encode(uint32_t code_point, char out[4]);
bool utf8_is_valid(const char *text, size_t n);
size_t utf8_valid_prefix(const char *text, size_t n);

#endif
