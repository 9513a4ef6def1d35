#include "base/err.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

enum { SENTENCE_MAX = 1023, RAW_MAX = 4095 };

static _Thread_local char sentence[SENTENCE_MAX + 1];

/* C0, DEL and C1 */
static int is_control(uint32_t code_point) {
    return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

const char *err_escape(const char *raw, char *out, size_t size) {
    size_t n = strlen(raw), at = 0, len = 0;
    while (at < n) {
        uint32_t code_point = 0;
        int bytes = utf8_decode(raw + at, n - at, &code_point);
        int escaped = bytes == 0 || is_control(code_point);
        if (bytes == 0) bytes = 1;
        size_t need = (size_t)(escaped ? 4 * bytes : bytes);
        if (len + need >= size) break;
        if (escaped) {
            for (int i = 0; i < bytes; i++)
                snprintf(out + len + 4 * (size_t)i, 5, "\\x%02x", (unsigned)(unsigned char)raw[at + (size_t)i]);
        } else {
            memcpy(out + len, raw + at, need);
        }
        len += need;
        at += (size_t)bytes;
    }
    out[len] = '\0';
    return out;
}

int err_set(enum err code, const char *format, ...) {
    char raw[RAW_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    err_escape(raw, sentence, sizeof sentence);
    return code;
}

int err_prefix(int code, const char *format, ...) {
    char raw[RAW_MAX + 1];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(raw, sizeof raw, format, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof raw) snprintf(raw + len, sizeof raw - (size_t)len, ": %s", sentence);
    err_escape(raw, sentence, sizeof sentence);
    return code;
}

int err_hint(int code, const char *format, ...) {
    char raw[RAW_MAX + 1];
    int len = snprintf(raw, sizeof raw, "%s; hint: ", sentence);
    va_list args;
    va_start(args, format);
    if (len >= 0 && (size_t)len < sizeof raw) vsnprintf(raw + len, sizeof raw - (size_t)len, format, args);
    va_end(args);
    err_escape(raw, sentence, sizeof sentence);
    return code;
}

const char *err_message(void) {
    return sentence;
}
