/* Texts and patterns: the work on one text, pieces of it, literal strings and regexes. For the files model/text/tokenizer*.c. */
#ifndef DUET_MODEL_TEXT_TOKENIZER_PATTERN_H
#define DUET_MODEL_TEXT_TOKENIZER_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/err.h"
#include "base/interrupt.h"
#include "base/json.h"

enum { TEXT_BYTES_MAX = 1 << 28 };

/* --- work ------------------------------------------------------------------------------------------------- */

enum { WORK_LEAST = 10000000, WORK_PER_BYTE = 128, WORK_UNASKED = 1 << 16 };

/* The work on one text. What may take more than linear time is charged to it; every loop over the text tells how far it
 * came, so that an interrupt is seen. */
struct work {
    const struct interrupt *interrupt;
    int64_t left;   /* steps to charge */
    size_t unasked; /* steps since the interrupt was last asked for; it is at once */
};

static inline void work_add(struct work *w, size_t bytes) {
    w->left += (int64_t)bytes * WORK_PER_BYTE;
}

static inline struct work work_on(size_t bytes, const struct interrupt *interrupt) {
    struct work w = {.interrupt = interrupt, .left = WORK_LEAST, .unasked = WORK_UNASKED};
    work_add(&w, bytes);
    return w;
}

static inline int work_pass(struct work *w, size_t steps) {
    w->unasked += steps;
    if (w->unasked < WORK_UNASKED) return 0;
    w->unasked = 0;
    return interrupt_asked(w->interrupt) ? err_set(ERR_INTERRUPTED, "interrupted") : 0;
}

/* ERR_UNSUPPORTED with `sentence` when no steps are left. */
static inline int work_charge(struct work *w, size_t steps, const char *sentence) {
    w->left -= (int64_t)steps;
    return w->left >= 0 ? work_pass(w, steps) : err_set(ERR_UNSUPPORTED, "%s", sentence);
}

/* A chain of steps may lengthen a text again and again. */
static inline int text_check_length(size_t n) {
    return n <= TEXT_BYTES_MAX ? 0 : err_set(ERR_LIMIT, "a text of %zu bytes, more than %d", n, TEXT_BYTES_MAX);
}

/* --- pieces of text (tokenizer_normalize.c) --------------------------------------------------------------- */

struct piece {
    const char *text;
    const char *plain; /* [n] of 0 and 1 as encode_options has it; NULL: nothing is */
    size_t n;
    bool first; /* it begins where the whole text begins */
};

/* A piece that is being made from another one; `plain` is kept where that has it, and as long as the text. */
struct piece_buf {
    struct buf text, plain;
};
void piece_buf_free(struct piece_buf *);
void piece_copy(struct piece_buf *, const struct piece *from, size_t begin, size_t end);
/* Appends what stands for from[begin, end): plain if any byte of that is; where it is empty, if the byte behind it is. */
void piece_put(struct piece_buf *, const struct piece *from, size_t begin, size_t end, const char *text, size_t n);
bool piece_has_plain(const struct piece *, size_t begin, size_t end);

/* Appends the piece in a normal form (tokenizer_forms.c). `form`: options of utf8proc_map. */
int unicode_normalize(int form, const struct piece *, struct piece_buf *out);

/* --- patterns (tokenizer_pattern.c) ----------------------------------------------------------------------- */

/* A literal string, or a regex in the Oniguruma syntax of tokenizer.json (as far as PCRE2 means the same). */
struct pattern {
    struct buf literal;
    pcre2_code *code;    /* NULL: literal */
    pcre2_code *counted; /* the same with a callout at each item */
    uint32_t repeats;    /* the most that an item must be repeated */
    uint32_t lookbehind; /* characters */
};

int pattern_compile(struct pattern *, const char *regex, size_t n);
int pattern_from_json(struct pattern *, const cJSON *owner); /* member "pattern": {"String"|"Regex": ...} */
void pattern_free(struct pattern *);

/* What matching needs; one a thread at work. Never moves once it is created. */
struct matcher {
    struct work *work;
    pcre2_match_data *data;
    pcre2_match_context *quick, *counted;
    size_t window_bytes, sight_bytes; /* of quick matches */
    /* Of the counted match under way. */
    size_t at, item_steps;
    int rc;
};
int matcher_create(struct matcher *, struct work *);
void matcher_free(struct matcher *);

/* Walks the leftmost non-overlapping matches. Zero all but the first four. */
struct search {
    const struct pattern *pattern;
    struct matcher *matcher;
    const char *text;
    size_t n;
    size_t at, begin, end;
    bool matched_before;
};
int search_next(struct search *, bool *found); /* the match is [begin, end) */
/* The next match from s->at (tokenizer_match.c); ERR_UNSUPPORTED if it takes too long, ERR_INTERRUPTED. */
int match_regex(struct search *s, bool *found);
/* Appends the piece with every match replaced by `content`. */
int pattern_replace(const struct pattern *, struct matcher *, const struct piece *, const struct buf *content,
                    struct piece_buf *out);

#endif
