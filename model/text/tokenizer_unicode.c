/* Properties of characters, and the byte-level alphabet: printable Latin-1 bytes stand for themselves, the other 68
 * for U+0100 and up, in order. */
#include <utf8proc.h>

#include "model/text/tokenizer_internal.h"

/* White_Space */
static bool is_space(uint32_t c) {
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Alphabetic symbols that are neither letters, marks nor letter numbers. */
static bool is_letter_like_symbol(uint32_t c) {
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

bool unicode_is_word(uint32_t c) {
    if (c == 0x200c || c == 0x200d || is_letter_like_symbol(c)) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

/* Start of the last character. */
static size_t last_at(const char *text, size_t n) {
    size_t at = n - 1;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return at;
}

uint32_t unicode_last(const char *text, size_t n) {
    uint32_t c = 0;
    size_t at = last_at(text, n);
    utf8_decode(text + at, n - at, &c);
    return c;
}

size_t unicode_leading_spaces(const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint32_t c;
        int length = utf8_decode(text + at, n - at, &c);
        if (length == 0 || !is_space(c)) break;
        at += (size_t)length;
    }
    return at;
}

size_t unicode_trailing_spaces(const char *text, size_t n) {
    size_t end = n;
    while (end > 0 && is_space(unicode_last(text, end))) end = last_at(text, end);
    return n - end;
}

static bool stands_for_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

int byte_level_encode(unsigned char byte, char out[4]) {
    uint32_t c = byte;
    if (byte <= 0x20)
        c = 0x100u + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        c = 0x121u + (byte - 0x7fu);
    else if (byte == 0xad)
        c = 0x143;
    return utf8_encode(c, out);
}

int byte_level_decode(uint32_t c) {
    if (c < 0x100) return stands_for_itself((int)c) ? (int)c : -1;
    if (c <= 0x120) return (int)(c - 0x100);
    if (c <= 0x142) return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}
