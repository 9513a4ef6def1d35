#include "tests/support/damage.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

/* splitmix64 (Steele, Lea, Flood 2014) */
uint32_t damage_below(struct damage *d, uint32_t limit) {
    uint64_t z = (d->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32) % limit;
}

static void replace(struct buf *text, size_t at, size_t old, const char *with, size_t n) {
    struct buf tail = {0};
    buf_append(&tail, text->data + at + old, text->len - at - old);
    text->data[text->len = at] = '\0';
    buf_append(text, with, n);
    buf_append(text, tail.data, tail.len);
    buf_free(&tail);
}

static void replace_number(struct damage *d, struct buf *text, size_t at) {
    static const char *const values[] = {
        "-1",
        "0",
        "1",
        "2",
        "255",
        "65536",
        "2147483647",
        "2147483648",
        "4294967296",
        "1000000",
        "1048577",
        "16777217",
        "1e400",
        "1.5",
        "1e-9",
        "-0.0",
        "9007199254740992",
        "9007199254740993",
        "null",
        "true",
        "\"x\"",
        "[1, 2]",
        "{}",
        "[]",
        "[[1]]",
        "1152921504606846976",
        "18446744073709551615",
    };
    at += strcspn(text->data + at, "0123456789");
    const char *value = values[damage_below(d, sizeof values / sizeof *values)];
    replace(text, at, strspn(text->data + at, "0123456789.e+"), value, strlen(value));
}

static void damage_once(struct damage *d, struct buf *text) {
    static const char bytes[] = "{}[]\",:\\/x0-.eu \n\t\x7f\xc3\x80\xff";
    size_t at = damage_below(d, (uint32_t)text->len), left = text->len - at;
    size_t n = 1 + damage_below(d, left < 40 ? (uint32_t)left : 40);
    switch (damage_below(d, 8)) {
    case 0:
        text->data[at] ^= (char)(1 << damage_below(d, 8));
        if (!text->data[at]) text->data[at] = 1;
        break;
    case 1:
        text->data[at] = bytes[damage_below(d, sizeof bytes - 1)];
        break;
    case 2:
        replace(text, at, n, "", 0);
        break;
    case 3: {
        char range[40];
        memcpy(range, text->data + at, n);
        replace(text, damage_below(d, (uint32_t)text->len), 0, range, n);
        break;
    }
    case 4:
        if (damage_below(d, 4) == 0) text->data[text->len = at + 1] = '\0';
        break;
    default:
        replace_number(d, text, at);
    }
}

void damage_text(struct damage *d, struct buf *text) {
    for (uint32_t times = 1 + damage_below(d, 4); times > 0 && text->len > 0; times--) damage_once(d, text);
}

void damage_write_file(const char *path, const void *bytes, size_t n) {
    unlink(path); /* a file cut to nothing and rewritten is flushed at once by some file systems */
    FILE *f = fopen(path, "wb");
    if (!f || (n > 0 && fwrite(bytes, 1, n, f) != n) || fclose(f) != 0) ck_abort_msg("cannot write %s", path);
}

void damage_write_text(const char *path, const char *text) {
    damage_write_file(path, text, strlen(text));
}

void check_sentence(void) {
    const char *text = err_message();
    ck_assert(*text && utf8_is_valid(text, strlen(text)));
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) ck_abort_msg("control character: %s", text);
}
