/* Decoders. Ids become tokens, and each token runs down the chain of steps at once; a step may hold back what is not
 * final (a run of byte tokens, an incomplete character, the beginning of a match). Decoding all at once is the same
 * machine, so that both give the same text. */
#include <stdlib.h>
#include <string.h>

#include "model/text/tokenizer_internal.h"

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

struct step_state {
    struct buf held;
    struct buf work;
    int64_t count;  /* STRIP: characters dropped at the start, or -1 past it; METASPACE: tokens seen */
    size_t pending; /* held back in running text. REPLACE: bytes of the pattern; STRIP: copies of its mark */
};

/* Of a step, at the border before a run of byte tokens. */
struct step_mark {
    int64_t count;
    size_t pending;
};

struct detokenizer {
    const struct tokenizer *tokenizer;
    struct work work;
    struct matcher matcher;
    bool skip_special;
    bool any; /* a token was seen */
    struct step_state steps[STEPS_MAX];
    struct buf *out; /* of the call under way */
    /* The run of byte tokens under way, where the steps behind take its text in pieces. */
    struct buf ahead;                  /* the text of its characters */
    size_t ahead_bytes;                /* of the run that these are */
    struct step_mark marks[STEPS_MAX]; /* the steps behind, before it */
};

static int run(struct detokenizer *d, int index, const char *text, size_t n);

/* --- one step each ---------------------------------------------------------------------------------------- */

/* Of the bytes [0, *held) of the pattern and then `c`, those that can begin no match any more. */
static void follow_match(const struct decoder_step *step, size_t *held, char c, struct buf *out) {
    const char *wanted = step->pattern.literal.data;
    size_t before = *held;
    while (*held > 0 && wanted[*held] != c) *held = step->borders[*held];
    if (wanted[*held] == c) {
        ++*held;
        buf_append(out, wanted, before + 1 - *held);
    } else {
        buf_append(out, wanted, before);
        buf_putc(out, c);
    }
}

/* In running text a match may span pieces: what may be the beginning of one is held back. Those are the pattern's own bytes,
 * so that their number is all that is kept (Knuth, Morris and Pratt). */
static int run_replace_fused(struct detokenizer *d, int index, const char *text, size_t n) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    struct step_state *s = &d->steps[index];
    buf_clear(&s->work);
    for (size_t i = 0; i < n; i++) {
        follow_match(step, &s->pending, text[i], &s->work);
        if (s->pending < step->pattern.literal.len) continue;
        buf_append(&s->work, buf_text(&step->content), step->content.len);
        s->pending = 0;
        TRY(text_check_length(s->work.len));
    }
    return run(d, index + 1, buf_text(&s->work), s->work.len);
}

static int replace(struct detokenizer *d, int index, const char *text, size_t n, const struct buf *content) {
    struct buf *work = &d->steps[index].work;
    buf_clear(work);
    struct piece_buf out = {.text = *work};
    struct piece piece = {.text = text, .n = n};
    int rc = pattern_replace(&d->tokenizer->decoder[index].pattern, &d->matcher, &piece, content, &out);
    *work = out.text;
    return rc == 0 ? run(d, index + 1, buf_text(work), work->len) : rc;
}

static int run_replace(struct detokenizer *d, int index, const char *text, size_t n) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    return step->fused ? run_replace_fused(d, index, text, n) : replace(d, index, text, n, &step->content);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte that a token "<0xNN>" stands for; -1 for any other. */
static int byte_of_token(const char *text, size_t n) {
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* The steps behind one that Fuse follows see running text: what they keep is a mark, and characters may come one by one. */
static bool runs_ahead(const struct tokenizer *t, int index) {
    return index + 1 == t->decoder_count || t->decoder[index + 1].kind == DECODE_FUSE;
}

static void begin_ahead(struct detokenizer *d, int index) {
    d->ahead_bytes = d->ahead.len = 0;
    for (int i = index + 1; i < d->tokenizer->decoder_count; i++)
        d->marks[i] = (struct step_mark){d->steps[i].count, d->steps[i].pending};
}

static void take_back_ahead(struct detokenizer *d, int index) {
    for (int i = index + 1; i < d->tokenizer->decoder_count; i++) {
        d->steps[i].count = d->marks[i].count;
        d->steps[i].pending = d->marks[i].pending;
    }
    d->ahead.len = 0;
}

/* Hands a character on as soon as it is complete, though the run may yet turn out broken. */
static int run_ahead(struct detokenizer *d, int index) {
    const struct buf *held = &d->steps[index].held;
    struct buf *out = d->out;
    if (held->len == 1) begin_ahead(d, index);
    const char *character = held->data + d->ahead_bytes;
    size_t n = utf8_valid_prefix(character, held->len - d->ahead_bytes);
    if (n == 0) return 0;
    d->ahead_bytes += n;
    d->out = &d->ahead;
    int rc = run(d, index + 1, character, n);
    d->out = out;
    return rc;
}

/* A run of byte tokens is text if all of it is valid UTF-8, else one U+FFFD a byte. */
static int flush_bytes(struct detokenizer *d, int index) {
    struct step_state *s = &d->steps[index];
    size_t n = s->held.len;
    if (n == 0) return 0;
    s->held.len = 0;
    if (runs_ahead(d->tokenizer, index)) {
        if (d->ahead_bytes == n) {
            buf_append(d->out, buf_text(&d->ahead), d->ahead.len);
            d->ahead.len = 0;
            return 0;
        }
        take_back_ahead(d, index);
    } else if (utf8_is_valid(s->held.data, n)) {
        return run(d, index + 1, s->held.data, n);
    }
    for (size_t i = 0; i < n; i++) TRY(run(d, index + 1, REPLACEMENT, strlen(REPLACEMENT)));
    return 0;
}

static int run_byte_fallback(struct detokenizer *d, int index, const char *text, size_t n) {
    int byte = byte_of_token(text, n);
    if (byte >= 0) {
        buf_putc(&d->steps[index].held, (char)byte);
        return runs_ahead(d->tokenizer, index) ? run_ahead(d, index) : 0;
    }
    TRY(flush_bytes(d, index));
    return run(d, index + 1, text, n);
}

/* Bytes of up to `most` copies of `mark` at the start of the text; *copies is their number. */
static size_t leading_marks(const struct buf *mark, const char *text, size_t n, int64_t most, int64_t *copies) {
    size_t at = 0;
    for (*copies = 0; *copies < most && n - at >= mark->len; ++*copies, at += mark->len)
        if (memcmp(text + at, mark->data, mark->len) != 0) break;
    return at;
}

static size_t trailing_marks(const struct buf *mark, const char *text, size_t n, int64_t most) {
    size_t end = n;
    for (int64_t i = 0; i < most && end >= mark->len; i++, end -= mark->len)
        if (memcmp(text + end - mark->len, mark->data, mark->len) != 0) break;
    return n - end;
}

static void append_marks(const struct buf *mark, size_t copies, struct buf *out) {
    for (size_t i = 0; i < copies; i++) buf_append(out, mark->data, mark->len);
}

/* Of running text the last `stop` copies of the mark are held back, as their number: the text may end with them. */
static int run_strip_fused(struct detokenizer *d, int index, const char *text, size_t n) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    struct step_state *s = &d->steps[index];
    size_t stop = (size_t)step->stop;
    if (n > 0 && s->count >= 0) {
        int64_t copies;
        size_t cut = leading_marks(&step->content, text, n, step->start - s->count, &copies);
        s->count = cut < n || s->count + copies == step->start ? -1 : s->count + copies;
        text += cut;
        n -= cut;
    }
    if (n == 0) return 0;
    size_t marks = trailing_marks(&step->content, text, n, INT64_MAX);
    buf_clear(&s->work);
    if (marks < n) {
        append_marks(&step->content, s->pending, &s->work);
        buf_append(&s->work, text, n - marks);
        s->pending = 0;
    }
    s->pending += marks / step->content.len;
    if (s->pending > stop) {
        append_marks(&step->content, s->pending - stop, &s->work);
        s->pending = stop;
    }
    return run(d, index + 1, buf_text(&s->work), s->work.len);
}

static int run_strip(struct detokenizer *d, int index, const char *text, size_t n) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    int64_t copies;
    if (step->fused) return run_strip_fused(d, index, text, n);
    size_t cut = leading_marks(&step->content, text, n, step->start, &copies);
    return run(d, index + 1, text + cut, n - cut - trailing_marks(&step->content, text + cut, n - cut, step->stop));
}

/* Length of the longest piece of [text, text+n) that could begin a character but is none (1 to 3 bytes); *open: it
 * reaches the end, so that more bytes may complete it. */
static size_t broken_length(const unsigned char *text, size_t n, bool *open) {
    unsigned char lead = text[0], low = 0x80, high = 0xbf;
    size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                    : lead >= 0xe0 && lead <= 0xef ? 3
                    : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                   : 1;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    size_t at = 1;
    for (; at < length && at < n && text[at] >= low && text[at] <= high; at++) low = 0x80, high = 0xbf;
    *open = at == n && at < length;
    return at;
}

/* Passes on what is complete of the held bytes; broken ones as U+FFFD, an open end only if this is the end. */
static int flush_utf8(struct detokenizer *d, int index, bool is_end) {
    struct step_state *s = &d->steps[index];
    size_t at = 0, n = s->held.len;
    buf_clear(&s->work);
    while (at < n) {
        size_t valid = utf8_valid_prefix(s->held.data + at, n - at);
        buf_append(&s->work, s->held.data + at, valid);
        at += valid;
        if (at == n) break;
        bool open;
        size_t broken = broken_length((const unsigned char *)s->held.data + at, n - at, &open);
        if (open && !is_end) break;
        buf_puts(&s->work, REPLACEMENT);
        at += broken;
    }
    if (at > 0 && at < n) memmove(s->held.data, s->held.data + at, n - at);
    s->held.len = n - at;
    return s->work.len > 0 ? run(d, index + 1, s->work.data, s->work.len) : 0;
}

/* A token with a character outside the byte-level alphabet stands for itself. */
static int run_byte_level(struct detokenizer *d, int index, const char *text, size_t n) {
    struct buf *held = &d->steps[index].held;
    size_t before = held->len;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        int length = utf8_decode(text + at, n - at, &c);
        int byte = byte_level_decode(c);
        if (byte < 0) {
            held->len = before;
            buf_append(held, text, n);
            break;
        }
        buf_putc(held, (char)byte);
        at += (size_t)length;
    }
    return flush_utf8(d, index, false);
}

static int run_metaspace(struct detokenizer *d, int index, const char *text, size_t n) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    struct step_state *s = &d->steps[index];
    static const struct buf space = {.data = " ", .len = 1}, nothing = {0};
    bool is_first = s->count == 0;
    if (!step->fused) s->count++;
    return replace(d, index, text, n, is_first && step->drop_first ? &nothing : &space);
}

/* --- the chain -------------------------------------------------------------------------------------------- */

/* Hands a token, or a piece of running text, to step `index`. */
static int run(struct detokenizer *d, int index, const char *text, size_t n) {
    TRY(text_check_length(n));
    if (index == d->tokenizer->decoder_count) {
        buf_append(d->out, text, n);
        return 0;
    }
    switch (d->tokenizer->decoder[index].kind) {
    case DECODE_REPLACE:
        return run_replace(d, index, text, n);
    case DECODE_BYTE_FALLBACK:
        return run_byte_fallback(d, index, text, n);
    case DECODE_FUSE:
        return run(d, index + 1, text, n);
    case DECODE_STRIP:
        return run_strip(d, index, text, n);
    case DECODE_BYTE_LEVEL:
        return run_byte_level(d, index, text, n);
    case DECODE_METASPACE:
        return run_metaspace(d, index, text, n);
    }
    return err_set(ERR_INTERNAL, "unknown decoder");
}

/* The end of what comes into step `index`. */
static int finish_step(struct detokenizer *d, int index) {
    const struct decoder_step *step = &d->tokenizer->decoder[index];
    struct step_state *s = &d->steps[index];
    switch (step->kind) {
    case DECODE_BYTE_FALLBACK:
        return flush_bytes(d, index);
    case DECODE_BYTE_LEVEL:
        return flush_utf8(d, index, true);
    case DECODE_REPLACE:
        return s->pending > 0 ? run(d, index + 1, step->pattern.literal.data, s->pending) : 0;
    default:
        return 0; /* what STRIP holds is what it cuts off */
    }
}

int detokenizer_create(const struct tokenizer *t, bool skip_special, struct detokenizer **out) {
    *out = NULL;
    struct detokenizer *d = calloc(1, sizeof *d);
    if (!d) return err_set(ERR_MEMORY, "no memory for decoding");
    d->tokenizer = t;
    d->skip_special = skip_special;
    d->work = work_on(0, NULL);
    int rc = matcher_create(&d->matcher, &d->work);
    if (rc != 0) {
        detokenizer_free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void detokenizer_free(struct detokenizer *d) {
    if (!d) return;
    matcher_free(&d->matcher);
    for (int i = 0; i < STEPS_MAX; i++) {
        buf_free(&d->steps[i].held);
        buf_free(&d->steps[i].work);
    }
    buf_free(&d->ahead);
    free(d);
}

static void drop_held(struct detokenizer *d) {
    for (int i = 0; i < STEPS_MAX; i++) {
        d->steps[i].held.len = 0;
        d->steps[i].pending = 0;
    }
    d->ahead.len = 0;
}

static void reset(struct detokenizer *d) {
    drop_held(d);
    d->any = false;
    for (int i = 0; i < STEPS_MAX; i++) d->steps[i].count = 0;
}

int detokenizer_push(struct detokenizer *d, int32_t id, struct buf *out) {
    size_t n;
    const char *text = tokenizer_token(d->tokenizer, id, &n);
    if (!text || (d->skip_special && tokenizer_is_special(d->tokenizer, id))) return 0;
    if (!d->tokenizer->has_decoder && d->any) buf_putc(out, ' ');
    d->any = true;
    d->out = out;
    work_add(&d->work, n);
    return run(d, 0, text, n);
}

const struct buf *detokenizer_ahead(const struct detokenizer *d) {
    return &d->ahead;
}

/* Only the start is of interest: the first text ends it. */
int detokenizer_follow(struct detokenizer *d, const int32_t *ids, size_t n) {
    struct buf text = {0};
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0 && text.len == 0; i++) rc = detokenizer_push(d, ids[i], &text);
    buf_free(&text);
    drop_held(d);
    return rc;
}

int detokenizer_finish(struct detokenizer *d, struct buf *out) {
    d->out = out;
    for (int i = 0; i < d->tokenizer->decoder_count; i++) TRY(finish_step(d, i));
    reset(d);
    return 0;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special, struct buf *out) {
    struct detokenizer *d;
    TRY(detokenizer_create(t, skip_special, &d));
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) rc = detokenizer_push(d, ids[i], out);
    if (rc == 0) rc = detokenizer_finish(d, out);
    detokenizer_free(d);
    return rc;
}
