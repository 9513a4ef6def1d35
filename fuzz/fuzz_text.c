/* Streamed text with stop strings: it ends before the stop string that is complete first, of those the longest, however the
 * text is cut into tokens; and so does that of an answer in channels, whose thoughts come beside it. The first byte chooses the
 * tokenizer; then stop strings, each with a byte 0xff behind it; then, behind another one, the text, or, where the first byte has
 * its highest bit, ids of two bytes. */
#include "engine/text.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz/tokenizers.h"

enum { FUZZ_BYTES_MAX = 128, STOPS_MOST = 8, LETTERS_MOST = 32 };

struct stops {
    char *texts[STOPS_MOST];
    size_t lens[STOPS_MOST];
    int count;
};

static void read_stops(struct stops *s, struct input *in) {
    s->count = 0;
    while (s->count < STOPS_MOST) {
        struct input stop = input_until(in, 0xff);
        s->lens[s->count] = stop.n;
        if (stop.n == 0) break;
        s->texts[s->count++] = input_text(&stop);
    }
}

/* Length of the text before the stop string that ends first. */
static size_t length_shown(const struct buf *text, const struct stops *s) {
    for (size_t end = 1; end <= text->len; end++) {
        size_t longest = 0;
        for (int i = 0; i < s->count; i++) {
            size_t n = s->lens[i];
            if (n <= end && n > longest && memcmp(text->data + end - n, s->texts[i], n) == 0) longest = n;
        }
        if (longest > 0) return end - longest;
    }
    return text->len;
}

static const struct chat_template *channels(void) {
    static struct chat_template *loaded;
    if (!loaded) claim(chat_template_load(&loaded, "gpt-oss", &(struct chat_source){0}) == 0, "%s", err_message());
    return loaded;
}

/* Appends what the stream gained beside the text. */
static void take_beside(const struct text_stream *stream, struct buf *thoughts) {
    buf_append(thoughts, buf_text(text_stream_thought(stream)), text_stream_thought(stream)->len);
}

/* chat: NULL, or the ids are an answer by it. */
static void claim_stream(const struct tokenizer *t, const struct chat_template *chat, const struct ids *ids,
                         const struct stops *s) {
    struct text_stream *stream = (struct text_stream *)&stream;
    struct answer_parts parts;
    struct ids of_text = {0}, of_thought = {0};
    struct buf whole = {0}, shown = {0}, thoughts = {0}, wanted_thoughts = {0};
    bool stopped = false;
    size_t used = 0;
    claim(text_stream_create(t, (const char *const *)s->texts, s->lens, s->count, &stream) == 0, "%s", err_message());
    claim(text_stream_answers(stream, chat, true) == 0, "%s", err_message());
    answer_parts_begin(&parts, t, chat, true);
    while (used < ids->len && !stopped) {
        const int32_t id = ids->data[used++];
        const enum answer_part part = answer_parts_take(&parts, id);
        claim(text_stream_push(stream, id, &shown, &stopped) == 0, "%s", err_message());
        take_beside(stream, &thoughts);
        claim(part == text_stream_part(stream), "part %d, not %d", text_stream_part(stream), part);
        if (part == ANSWER_TEXT) ids_push(&of_text, id);
        if (part == ANSWER_THOUGHT) ids_push(&of_thought, id);
        if (part == ANSWER_THOUGHT && used < ids->len) continue;
        claim(tokenizer_decode(t, of_thought.data, of_thought.len, true, &wanted_thoughts) == 0, "%s", err_message());
        of_thought.len = 0;
    }
    claim(tokenizer_decode(t, of_text.data, of_text.len, true, &whole) == 0, "%s", err_message());
    size_t wanted = length_shown(&whole, s);
    claim(shown.len <= wanted, "%zu bytes are shown of %zu", shown.len, wanted);
    claim(!stopped || shown.len == wanted, "stopped behind %zu bytes, not %zu", shown.len, wanted);
    claim(text_stream_finish(stream, &shown, &stopped) == 0, "%s", err_message());
    take_beside(stream, &thoughts);
    claim_same("thoughts", thoughts.data, thoughts.len, wanted_thoughts.data, wanted_thoughts.len);
    claim(stopped == (wanted < whole.len), "%zu of %zu bytes are the answer's", wanted, whole.len);
    claim_same("shown", shown.data, shown.len, whole.data, wanted);
    text_stream_free(stream);
    ids_free(&of_text);
    ids_free(&of_thought);
    buf_free(&whole);
    buf_free(&shown);
    buf_free(&thoughts);
    buf_free(&wanted_thoughts);
}

static void claim_streams(const struct tokenizer *t, const struct ids *ids, const struct stops *s) {
    claim_stream(t, NULL, ids, s);
    claim_stream(t, channels(), ids, s);
}

static void put_ids(struct ids *out, struct input in) {
    while (in.n > 0) {
        uint32_t low = input_byte(&in), high = input_byte(&in);
        ids_push(out, (int16_t)(high << 8 | low));
    }
}

/* One character at a time, which is a call for each. */
static void put_letters(struct ids *out, const struct tokenizer *t, struct input in) {
    for (size_t at = 0; at < in.n;) {
        uint32_t c;
        size_t n = (size_t)utf8_decode((const char *)in.data + at, in.n - at, &c);
        claim(tokenizer_encode(t, (const char *)in.data + at, n, false, out) == 0, "%s", err_message());
        at += n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct stops stops;
    struct ids ids = {0};
    if (n > FUZZ_BYTES_MAX) return 0;
    uint8_t flags = input_byte(&in);
    const struct tokenizer *t = fixed_tokenizer((flags & 0x7f) % TOKENIZERS);
    read_stops(&stops, &in);
    if (flags & 0x80) {
        put_ids(&ids, in);
        claim_streams(t, &ids, &stops);
    } else if (tokenizer_encode(t, (const char *)in.data, in.n, false, &ids) == 0) {
        claim_streams(t, &ids, &stops);
        ids.len = 0;
        put_letters(&ids, t, (struct input){in.data, in.n <= LETTERS_MOST ? in.n : 0});
        claim_streams(t, &ids, &stops);
    }
    for (int i = 0; i < stops.count; i++) free(stops.texts[i]);
    ids_free(&ids);
    return 0;
}
