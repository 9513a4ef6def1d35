/* The four normal forms of Unicode, in time linear in the text, whatever it holds.
 *
 * utf8proc_map puts marks into canonical order by swapping neighbours, which takes quadratic time for a long run of them.
 * Here its parts are used, and runs are sorted by counting. ASCII is in all forms, and nothing composes with an ASCII
 * character before it or moves across one: so a text is worked on in parts that begin at ASCII characters, and only where
 * something else follows. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "model/text/tokenizer_internal.h"

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

/* Appends the form of points [0, count) as UTF-8. */
static void encode_points(const int32_t *points, size_t count, struct buf *out) {
    buf_reserve(out, 4 * count);
    for (size_t i = 0; i < count; i++) out->len += (size_t)utf8_encode((uint32_t)points[i], out->data + out->len);
    out->data[out->len] = '\0';
}

/* `text` stands for piece [begin, end): what both begin and end with is byte by byte plain or not, the rest as a whole. */
static void put_part(const struct piece *p, size_t begin, size_t end, const struct buf *text, struct piece_buf *out) {
    size_t n = end - begin < text->len ? end - begin : text->len, before = 0, after = 0;
    while (before < n && text->data[before] == p->text[begin + before]) before++;
    while (after < n - before && text->data[text->len - after - 1] == p->text[end - after - 1]) after++;
    piece_copy(out, p, begin, begin + before);
    piece_put(out, p, begin + before, end - after, text->data + before, text->len - before - after);
    piece_copy(out, p, end - after, end);
}

struct scratch {
    struct ids points;
    struct buf text;
};

static int normalize_part(int form, const struct piece *p, size_t begin, size_t end, struct scratch *s,
                          struct piece_buf *out) {
    s->points.len = 0;
    TRY(decompose(form, p->text + begin, end - begin, &s->points));
    TRY(order(&s->points));
    utf8proc_ssize_t count =
        utf8proc_normalize_utf32(s->points.data, (utf8proc_ssize_t)s->points.len, (utf8proc_option_t)form);
    buf_clear(&s->text);
    encode_points(s->points.data, (size_t)count, &s->text);
    put_part(p, begin, end, &s->text, out);
    return 0;
}

static bool is_ascii(char c) {
    return (unsigned char)c < 0x80;
}

int unicode_normalize(int form, const struct piece *p, struct piece_buf *out) {
    struct scratch s = {{0}, {0}};
    int rc = 0;
    for (size_t at = 0; at < p->n && rc == 0;) {
        size_t end = at;
        while (end < p->n && is_ascii(p->text[end])) end++;
        size_t begin = end > at && end < p->n ? end - 1 : end; /* of the part: the character that marks may follow */
        piece_copy(out, p, at, begin);
        while (end < p->n && !is_ascii(p->text[end])) end++;
        if (end > begin) rc = normalize_part(form, p, begin, end, &s, out);
        at = end;
    }
    ids_free(&s.points);
    buf_free(&s.text);
    return rc;
}
