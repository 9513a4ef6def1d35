/* The four normal forms of Unicode, in time linear in the text, whatever it holds.
 *
 * utf8proc_map puts marks into canonical order by swapping neighbours, which takes quadratic time for a long run of them.
 * Here its parts are used, and runs are sorted by counting. ASCII is in all forms, and nothing composes with an ASCII
 * character before it or moves across one: so a text is worked on in parts that begin at ASCII characters, and only where
 * something else follows. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/tokenizer_internal.h"

enum { DECOMPOSED_MAX = 32, CLASSES = 256 }; /* the longest decomposition has 18 characters */

static int decompose(int form, const char *text, size_t n, struct ids *points) {
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        int32_t parts[DECOMPOSED_MAX];
        int boundary = 0;
        at += (size_t)utf8_decode(text + at, n - at, &c);
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)c, parts, DECOMPOSED_MAX, (utf8proc_option_t)form, &boundary);
        if (count < 0 || count > DECOMPOSED_MAX) return err_set(ERR_INTERNAL, "U+%04X does not decompose", c);
        ids_append(points, parts, (size_t)count);
    }
    return 0;
}

static int class_of(int32_t c) {
    return utf8proc_get_property(c)->combining_class;
}

/* Sorts marks by class; those of one class keep their order. */
static int sort_marks(int32_t *marks, size_t n) {
    size_t starts[CLASSES + 1] = {0};
    int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return err_set(ERR_MEMORY, "no memory for normalising %zu marks", n);
    for (size_t i = 0; i < n; i++) starts[class_of(marks[i]) + 1]++;
    for (int c = 0; c < CLASSES; c++) starts[c + 1] += starts[c];
    for (size_t i = 0; i < n; i++) sorted[starts[class_of(marks[i])]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *sorted);
    free(sorted);
    return 0;
}

/* Canonical order: each run of marks by their classes. */
static int order(struct ids *points) {
    size_t begin = 0; /* of the run */
    bool in_order = true;
    int last = 0;
    for (size_t i = 0; i <= points->len; i++) {
        int class = i < points->len ? class_of(points->data[i]) : 0;
        if (class == 0) {
            if (!in_order) TRY(sort_marks(points->data + begin, i - begin));
            begin = i + 1;
            in_order = true;
        } else if (class < last) {
            in_order = false;
        }
        last = class;
    }
    return 0;
}

static int normalize_part(int form, const char *text, size_t n, struct ids *points, struct buf *out) {
    points->len = 0;
    TRY(decompose(form, text, n, points));
    TRY(order(points));
    utf8proc_ssize_t count =
        utf8proc_normalize_utf32(points->data, (utf8proc_ssize_t)points->len, (utf8proc_option_t)form);
    buf_reserve(out, 4 * (size_t)count);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        out->len += (size_t)utf8_encode((uint32_t)points->data[i], out->data + out->len);
    out->data[out->len] = '\0';
    return 0;
}

static bool is_ascii(char c) {
    return (unsigned char)c < 0x80;
}

int unicode_normalize(int form, const char *text, size_t n, struct buf *out) {
    struct ids points = {0};
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0;) {
        size_t end = at;
        while (end < n && is_ascii(text[end])) end++;
        size_t begin = end > at && end < n ? end - 1 : end; /* of the part: the character that marks may follow */
        buf_append(out, text + at, begin - at);
        while (end < n && !is_ascii(text[end])) end++;
        if (end > begin) rc = normalize_part(form, text + begin, end - begin, &points, out);
        at = end;
    }
    ids_free(&points);
    return rc;
}
