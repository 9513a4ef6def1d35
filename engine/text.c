#include "engine/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* A stop string and how much of it the text ends with (Knuth, Morris and Pratt 1977). */
struct stop {
    struct buf text;  /* not empty */
    uint32_t *border; /* [text.len] border[i]: the longest proper prefix of text[0..i] that it ends with */
    size_t matched;   /* bytes; shorter than the text, but where the text is complete */
    size_t ahead;     /* the same behind what the detokenizer is ahead */
};

struct text_stream {
    const struct tokenizer *tokenizer;
    struct detokenizer *detokenizer;
    struct answer_parts parts;
    enum answer_part part;           /* of the last id */
    struct detokenizer *of_thoughts; /* in channels; NULL: none are */
    struct buf thought;              /* what the last id brought */
    struct stop *stops;              /* [count] */
    int count;
    struct buf held; /* decoded; from `shown` on not shown: a proper prefix of a stop string, between pushes */
    size_t shown;
    size_t ahead; /* bytes of detokenizer_ahead that were searched */
    bool stopped;
};

static size_t advance(const struct stop *s, size_t matched, char c) {
    if (matched == s->text.len) matched = s->border[matched - 1];
    while (matched > 0 && s->text.data[matched] != c) matched = s->border[matched - 1];
    return matched + (s->text.data[matched] == c);
}

static int stop_create(struct stop *s, const char *text, size_t n) {
    buf_append(&s->text, text, n);
    s->border = calloc(n, sizeof *s->border);
    if (!s->border) return err_set(ERR_MEMORY, "no memory for a stop string of %zu bytes", n);
    for (size_t i = 1; i < n; i++) s->border[i] = (uint32_t)advance(s, s->border[i - 1], text[i]);
    return 0;
}

static int copy_stops(struct text_stream *s, const char *const *stops, const size_t *lens, int count) {
    if (count <= 0) return 0;
    s->stops = calloc((size_t)count, sizeof *s->stops);
    if (!s->stops) return err_set(ERR_MEMORY, "no memory for %d stop strings", count);
    for (int i = 0; i < count; i++)
        if (lens[i] > 0) TRY(stop_create(&s->stops[s->count++], stops[i], lens[i]));
    return 0;
}

int text_stream_create(const struct tokenizer *tokenizer, const char *const *stops, const size_t *stop_lens, int count,
                       struct text_stream **out) {
    *out = NULL;
    struct text_stream *s = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_MEMORY, "no memory for a text stream");
    s->tokenizer = tokenizer;
    answer_parts_begin(&s->parts, tokenizer, NULL, false);
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
    for (int i = 0; i < s->count; i++) {
        buf_free(&s->stops[i].text);
        free(s->stops[i].border);
    }
    free(s->stops);
    detokenizer_free(s->detokenizer);
    detokenizer_free(s->of_thoughts);
    buf_free(&s->thought);
    buf_free(&s->held);
    free(s);
}

/* One more byte of the text. Length of the longest stop string that it completes, 0 if none. */
static size_t take_byte(struct text_stream *s, char c) {
    size_t longest = 0;
    for (int i = 0; i < s->count; i++) {
        struct stop *stop = &s->stops[i];
        stop->matched = advance(stop, stop->matched, c);
        if (stop->matched == stop->text.len && stop->matched > longest) longest = stop->matched;
    }
    return longest;
}

/* Length of the longest end of the text that begins a stop string. */
static size_t length_to_hold(const struct text_stream *s) {
    size_t longest = 0;
    for (int i = 0; i < s->count; i++)
        if (s->stops[i].matched > longest) longest = s->stops[i].matched;
    return longest;
}

/* Shows the held text up to `end`. What was shown leaves the buffer once it is the greater part. */
static void show_to(struct text_stream *s, size_t end, struct buf *out) {
    if (end == s->shown) return;
    buf_append(out, s->held.data + s->shown, end - s->shown);
    s->shown = end;
    if (2 * s->shown < s->held.len) return;
    s->held.len -= s->shown;
    memmove(s->held.data, s->held.data + s->shown, s->held.len);
    s->shown = 0;
}

/* The stop string that is complete first ends the text; of those that end at the same byte, the longest. So the result
 * does not depend on how the text was cut into tokens. `old` bytes of the held text were searched before. */
static void show_up_to_stop(struct text_stream *s, size_t old, struct buf *out) {
    for (size_t end = old; end < s->held.len; end++) {
        size_t n = take_byte(s, s->held.data[end]);
        if (n == 0) continue;
        show_to(s, end + 1 - n, out);
        s->stopped = true;
        return;
    }
    show_to(s, s->held.len - length_to_hold(s), out);
}

int text_stream_follow(struct text_stream *s, const int32_t *ids, size_t n) {
    return detokenizer_follow(s->detokenizer, ids, n);
}

int text_stream_answers(struct text_stream *s, const struct chat_template *chat, bool think) {
    answer_parts_begin(&s->parts, s->tokenizer, chat, think);
    return answer_parts_in_channels(&s->parts) ? detokenizer_create(s->tokenizer, true, &s->of_thoughts) : 0;
}

enum answer_part text_stream_part(const struct text_stream *s) {
    return s->part;
}

const struct buf *text_stream_thought(const struct text_stream *s) {
    return &s->thought;
}

/* An id that is no part of the text. A thought that ends gives what was held back of it. */
static int push_beside_text(struct text_stream *s, int32_t id, enum answer_part before) {
    if (s->part == ANSWER_THOUGHT) return detokenizer_push(s->of_thoughts, id, &s->thought);
    return before == ANSWER_THOUGHT ? detokenizer_finish(s->of_thoughts, &s->thought) : 0;
}

/* Is a stop string complete if the text ends here? */
static bool stops_ahead(struct text_stream *s) {
    const struct buf *ahead = detokenizer_ahead(s->detokenizer);
    bool stops = false;
    for (int i = 0; i < s->count && ahead->len > 0; i++) {
        struct stop *stop = &s->stops[i];
        if (s->ahead == 0) stop->ahead = stop->matched;
        for (size_t at = s->ahead; at < ahead->len; at++) {
            stop->ahead = advance(stop, stop->ahead, ahead->data[at]);
            if (stop->ahead == stop->text.len) stops = true;
        }
    }
    s->ahead = ahead->len;
    return stops;
}

int text_stream_push(struct text_stream *s, int32_t id, struct buf *out, bool *stopped) {
    size_t old = s->held.len;
    const enum answer_part before = s->part;
    if (s->stopped) return err_set(ERR_INTERNAL, "a token after the stop string");
    buf_clear(&s->thought);
    s->part = answer_parts_take(&s->parts, id);
    *stopped = false;
    if (s->of_thoughts && s->part != ANSWER_TEXT) return push_beside_text(s, id, before);
    TRY(detokenizer_push(s->detokenizer, id, &s->held));
    show_up_to_stop(s, old, out);
    if (!s->stopped && stops_ahead(s)) return text_stream_finish(s, out, stopped);
    *stopped = s->stopped;
    return 0;
}

int text_stream_finish(struct text_stream *s, struct buf *out, bool *stopped) {
    size_t old = s->held.len;
    buf_clear(&s->thought);
    if (s->of_thoughts) TRY(detokenizer_finish(s->of_thoughts, &s->thought));
    if (!s->stopped) {
        TRY(detokenizer_finish(s->detokenizer, &s->held));
        show_up_to_stop(s, old, out);
        if (!s->stopped) show_to(s, s->held.len, out);
    }
    *stopped = s->stopped;
    return 0;
}
