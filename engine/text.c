#include "engine/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct text_stream {
    struct detokenizer *detokenizer;
    struct buf *stops; /* [count], none empty */
    int count;
    struct buf held; /* decoded, not shown: a proper prefix of a stop string, between pushes */
    bool stopped;
};

static int copy_stops(struct text_stream *s, const char *const *stops, const size_t *lens, int count) {
    if (count <= 0) return 0;
    s->stops = calloc((size_t)count, sizeof *s->stops);
    if (!s->stops) return err_set(ERR_MEMORY, "no memory for %d stop strings", count);
    for (int i = 0; i < count; i++)
        if (lens[i] > 0) buf_append(&s->stops[s->count++], stops[i], lens[i]);
    return 0;
}

int text_stream_create(const struct tokenizer *tokenizer, const char *const *stops, const size_t *stop_lens, int count,
                       struct text_stream **out) {
    *out = NULL;
    struct text_stream *s = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_MEMORY, "no memory for a text stream");
    int rc = copy_stops(s, stops, stop_lens, count);
    if (rc == 0) rc = detokenizer_create(tokenizer, true, &s->detokenizer);
    if (rc != 0) {
        text_stream_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void text_stream_free(struct text_stream *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) buf_free(&s->stops[i]);
    free(s->stops);
    detokenizer_free(s->detokenizer);
    buf_free(&s->held);
    free(s);
}

/* Length of the longest stop string that ends exactly at `end` bytes of the held text, 0 if none does. */
static size_t stop_ending_at(const struct text_stream *s, size_t end) {
    size_t longest = 0;
    for (int i = 0; i < s->count; i++) {
        size_t n = s->stops[i].len;
        if (n > longest && n <= end && memcmp(s->held.data + end - n, s->stops[i].data, n) == 0) longest = n;
    }
    return longest;
}

/* Length of the longest suffix of the held text that is a proper prefix of a stop string. */
static size_t suffix_to_hold(const struct text_stream *s) {
    size_t longest = 0;
    for (int i = 0; i < s->count; i++) {
        size_t n = s->stops[i].len - 1;
        for (n = n < s->held.len ? n : s->held.len; n > longest; n--)
            if (memcmp(s->held.data + s->held.len - n, s->stops[i].data, n) == 0) longest = n;
    }
    return longest;
}

static void show(struct text_stream *s, size_t n, struct buf *out) {
    if (n == 0) return;
    buf_append(out, s->held.data, n);
    memmove(s->held.data, s->held.data + n, s->held.len - n);
    s->held.len -= n;
    s->held.data[s->held.len] = '\0';
}

/* The stop string that is complete first ends the text; of those that end at the same byte, the longest. So the result
 * does not depend on how the text was cut into tokens. `old` bytes of the held text were searched before. */
static void show_up_to_stop(struct text_stream *s, size_t old, struct buf *out) {
    for (size_t end = old + 1; end <= s->held.len; end++) {
        size_t n = stop_ending_at(s, end);
        if (n == 0) continue;
        show(s, end - n, out);
        buf_clear(&s->held);
        s->stopped = true;
        return;
    }
    show(s, s->held.len - suffix_to_hold(s), out);
}

int text_stream_push(struct text_stream *s, int32_t id, struct buf *out, bool *stopped) {
    size_t old = s->held.len;
    if (s->stopped) return err_set(ERR_INTERNAL, "a token after the stop string");
    TRY(detokenizer_push(s->detokenizer, id, &s->held));
    show_up_to_stop(s, old, out);
    *stopped = s->stopped;
    return 0;
}

int text_stream_finish(struct text_stream *s, struct buf *out) {
    size_t old = s->held.len;
    if (s->stopped) return 0;
    TRY(detokenizer_finish(s->detokenizer, &s->held));
    show_up_to_stop(s, old, out);
    show(s, s->held.len, out);
    return 0;
}
