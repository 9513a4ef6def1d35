#include "base/err.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

enum { SENTENCE_MAX = 1023, WORD_MAX = 300, RAW_MAX = 4095 };

static _Thread_local char sentence[SENTENCE_MAX + 1];

/* --- what is quoted ----------------------------------------------------------------------------------------- */

/* C0, DEL and C1 */
static int is_control(uint32_t code_point) {
    return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

/* A character, or a byte that is none. */
struct unit {
    int bytes;
    int escaped;
    size_t shown; /* bytes in a sentence */
};

static struct unit read_unit(const char *raw, size_t n) {
    uint32_t code_point = 0;
    int bytes = utf8_decode(raw, n, &code_point);
    int escaped = bytes == 0 || is_control(code_point);
    if (bytes == 0) bytes = 1;
    return (struct unit){bytes, escaped, (size_t)(escaped ? 4 * bytes : bytes)};
}

const char *err_escape(const char *raw, char *out, size_t size) {
    size_t n = strlen(raw), at = 0, len = 0;
    while (at < n) {
        struct unit u = read_unit(raw + at, n - at);
        if (len + u.shown >= size) break;
        if (u.escaped) {
            for (int i = 0; i < u.bytes; i++)
                snprintf(out + len + 4 * (size_t)i, 5, "\\x%02x", (unsigned)(unsigned char)raw[at + (size_t)i]);
        } else {
            memcpy(out + len, raw + at, u.shown);
        }
        len += u.shown;
        at += (size_t)u.bytes;
    }
    out[len] = '\0';
    return out;
}

/* --- what is too long --------------------------------------------------------------------------------------- */

static size_t shown_bytes(const char *raw, size_t n) {
    size_t shown = 0;
    for (size_t at = 0; at < n;) {
        struct unit u = read_unit(raw + at, n - at);
        shown += u.shown;
        at += (size_t)u.bytes;
    }
    return shown;
}

/* In place, to at most `most` shown bytes, by "..." in the middle. Returns how many raw bytes are left. The dots take no more room than
 * what goes: more than 20 shown bytes, so at least 5. */
static size_t shorten(char *raw, size_t n, size_t most) {
    const size_t keep = most / 2 - 10;
    size_t head = 0, tail = 0, rest = shown_bytes(raw, n), shown = 0;
    if (rest <= most) return n;
    for (struct unit u; u = read_unit(raw + head, n - head), shown + u.shown <= keep; head += (size_t)u.bytes)
        shown += u.shown;
    rest -= shown;
    for (tail = head; rest > keep;) {
        struct unit u = read_unit(raw + tail, n - tail);
        rest -= u.shown;
        tail += (size_t)u.bytes;
    }
    memcpy(raw + head, "...", 3);
    memmove(raw + head + 3, raw + tail, n - tail);
    return head + 3 + n - tail;
}

/* Words, as paths are, and, where that is not enough, all of it. */
static void fit(char *raw) {
    size_t n = strlen(raw), len = 0;
    if (shown_bytes(raw, n) <= SENTENCE_MAX) return;
    for (size_t at = 0; at < n;) {
        size_t bytes = strcspn(raw + at, " ");
        size_t left = shorten(raw + at, bytes, WORD_MAX);
        memmove(raw + len, raw + at, left);
        len += left;
        at += bytes;
        if (at < n) raw[len++] = raw[at++];
    }
    raw[shorten(raw, len, SENTENCE_MAX)] = '\0';
}

/* --- the sentence ------------------------------------------------------------------------------------------- */

/* `before`, what the format says, `after`. Of a text that there is no memory for, the beginning. */
static void say(const char *before, const char *format, va_list args, const char *link, const char *after) {
    char small[RAW_MAX + 1], *raw = small;
    va_list again;
    va_copy(again, args);
    int said = vsnprintf(NULL, 0, format, args);
    size_t size = strlen(before) + (said > 0 ? (size_t)said : 0) + strlen(link) + strlen(after) + 1;
    if (size > sizeof small) raw = malloc(size);
    if (!raw) raw = small, size = sizeof small;
    size_t len = (size_t)snprintf(raw, size, "%s", before);
    if (said > 0) vsnprintf(raw + len, size - len, format, again);
    va_end(again);
    len = strlen(raw);
    snprintf(raw + len, size - len, "%s%s", link, after);
    fit(raw);
    err_escape(raw, sentence, sizeof sentence);
    if (raw != small) free(raw);
}

int err_set(enum err code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("", format, args, "", "");
    va_end(args);
    return code;
}

int err_prefix(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("", format, args, ": ", sentence);
    va_end(args);
    return code;
}

int err_hint(int code, const char *format, ...) {
    char before[SENTENCE_MAX + 16];
    va_list args;
    snprintf(before, sizeof before, "%s; hint: ", sentence);
    va_start(args, format);
    say(before, format, args, "", "");
    va_end(args);
    return code;
}

const char *err_message(void) {
    return sentence;
}
