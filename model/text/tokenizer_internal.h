/* Shared by the files model/text/tokenizer*.c alone.
 *
 * Encoding, depth first, so that no stage keeps a list of the whole text:
 *   text -> raw added tokens cut out -> normaliser -> normalised added tokens cut out -> pre-tokenizer steps -> BPE
 * Decoding: tokens -> decoder steps -> text; the whole and the streaming decoder are one machine. */
#ifndef DUET_MODEL_TEXT_TOKENIZER_INTERNAL_H
#define DUET_MODEL_TEXT_TOKENIZER_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/err.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "model/text/tokenizer.h"

enum {
    STEPS_MAX = 16,             /* steps of a normaliser, pre-tokenizer or decoder */
    TOKEN_ID_LIMIT = 1 << 20,   /* ids above have no random-number stream of their own (base/philox.h) */
    DIRECT_CODE_POINTS = 0x180, /* initial symbols found without hashing: ASCII and the byte-level alphabet */
    TEXT_BYTES_MAX = 1 << 28,
};

#define SPACE_MARK "\xe2\x96\x81" /* U+2581, which stands for a space in the sentencepiece dialect */
enum { SPACE_MARK_BYTES = 3 };

/* --- characters (tokenizer_unicode.c) --------------------------------------------------------------------- */

bool unicode_is_word(uint32_t code_point); /* what \w means: alphabetic, marks, digits, connectors, joiners */
size_t unicode_leading_spaces(const char *text, size_t n);  /* bytes */
size_t unicode_trailing_spaces(const char *text, size_t n); /* bytes */
uint32_t unicode_last(const char *text, size_t n);          /* last code point, n >= 1 */
int byte_level_encode(unsigned char byte, char out[4]);     /* the byte-level alphabet: bytes written */
int byte_level_decode(uint32_t code_point);                 /* -1 if it is not in the alphabet */

/* --- vocabulary and merges (tokenizer_vocab.c) ------------------------------------------------------------ */

enum { TOKEN_PRESENT = 1, TOKEN_MODEL = 2, TOKEN_ADDED = 4, TOKEN_SPECIAL = 8 };

struct token {
    uint32_t offset, len; /* in vocab.text, NUL-terminated */
    uint8_t flags;
};

struct vocab {
    struct buf text;
    struct token *tokens; /* [size] by id */
    int32_t size, cap;
    int32_t *slots; /* [slot_mask + 1] open addressing by string; -1 empty */
    uint32_t slot_mask;
};

int vocab_create(struct vocab *, size_t strings); /* room for that many */
void vocab_free(struct vocab *);
/* ERR_FORMAT if the id has another string or the string another id, ERR_UNSUPPORTED if too many have one hash. `flags` are
 * or-ed to those it has. */
int vocab_add(struct vocab *, const char *text, size_t n, int64_t id, uint8_t flags);
int32_t vocab_find(const struct vocab *, const char *text, size_t n);       /* -1 if absent */
int32_t vocab_find_model(const struct vocab *, const char *text, size_t n); /* tokens of the BPE model alone */

struct merge {
    uint64_t pair; /* left << 32 | right; MERGE_EMPTY: a free slot */
    int32_t rank, id;
};
#define MERGE_EMPTY UINT64_MAX

struct merges {
    struct merge *slots; /* [slot_mask + 1] */
    uint32_t slot_mask;
    int count;
};

int merges_create(struct merges *, size_t count);
void merges_free(struct merges *);
/* The last one counts. ERR_UNSUPPORTED if too many have one hash. */
int merges_add(struct merges *, int32_t left, int32_t right, int32_t rank, int32_t id);
const struct merge *merges_find(const struct merges *, int32_t left, int32_t right); /* NULL if absent */

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

/* --- steps ------------------------------------------------------------------------------------------------ */

enum normalizer_kind { NORM_PREPEND, NORM_REPLACE, NORM_UNICODE, NORM_STRIP, NORM_LOWERCASE };
struct normalizer_step {
    enum normalizer_kind kind;
    struct pattern pattern;
    struct buf content;
    int unicode_form; /* options of utf8proc_map */
    bool left, right;
};

enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_CONTIGUOUS,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT
};
enum pre_kind { PRE_SPLIT, PRE_BYTE_LEVEL, PRE_METASPACE };
enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
struct pre_step {
    enum pre_kind kind;
    struct pattern pattern; /* SPLIT: what; BYTE_LEVEL: words; METASPACE: its replacement */
    enum split_behavior behavior;
    bool invert;
    bool split; /* BYTE_LEVEL, METASPACE: whether to split at all */
    enum prepend_scheme prepend;
};

enum decoder_kind {
    DECODE_REPLACE,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_BYTE_LEVEL,
    DECODE_METASPACE
};
struct decoder_step {
    enum decoder_kind kind;
    bool fused; /* what comes in is one running text, not tokens: a Fuse or ByteLevel came before */
    struct pattern pattern;
    struct buf content;
    size_t *borders; /* REPLACE of fused text: [length + 1] (find_borders) */
    int64_t start, stop;
    bool drop_first; /* METASPACE */
};

/* --- added tokens (tokenizer_added.c) --------------------------------------------------------------------- */

struct added_token {
    int32_t id;
    bool special, single_word, lstrip, rstrip;
    size_t offset, len; /* of its string in added_set.text */
};

struct added_set {
    struct buf text;
    struct added_token *tokens; /* [count]; sorted by string, each string once, when the set is finished */
    int count, cap;
    bool has_special;
    size_t longest; /* bytes of the longest string */
    int first[257]; /* tokens[first[b], first[b + 1]) begin with the byte b */
};

int added_set_add(struct added_set *, const char *text, size_t n, const struct added_token *); /* string aside */
void added_set_finish(struct added_set *);                                                     /* after the last one */
void added_set_free(struct added_set *);

/* --- the tokenizer ---------------------------------------------------------------------------------------- */

struct tokenizer {
    struct vocab vocab;
    struct merges merges;
    int added_count;
    bool byte_fallback, fuse_unk, ignore_merges, is_byte_level;
    /* The sentencepiece dialect has no pre-tokenizer, so that a text is one word. Where no token holds a SPACE_MARK
     * behind another character, no merge crosses such a place, and the word is cut there: the same ids, much faster. */
    bool cut_at_marks;
    int32_t unk;                        /* -1: characters without a symbol are dropped */
    int32_t byte_ids[256];              /* <0xNN>, -1 if absent */
    int32_t direct[DIRECT_CODE_POINTS]; /* symbol of a one-character string, -1 if absent */
    struct added_set added_raw, added_normalized;
    struct normalizer_step normalizer[STEPS_MAX];
    struct pre_step pre[STEPS_MAX];
    struct decoder_step decoder[STEPS_MAX];
    int normalizer_count, pre_count, decoder_count;
    bool has_decoder;
    struct ids prefix, suffix; /* of the post-processor */
};

struct span {
    size_t begin, end;
    bool is_match;
};
struct spans {
    struct span *data;
    size_t len, cap;
};

struct symbol {
    int32_t id; /* -1: merged away */
    int32_t previous, next;
};
struct candidate {
    int32_t rank, at, id;
};

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *tokenizer;
    struct ids *out;
    struct work work;
    struct matcher matcher;
    bool guarded; /* the piece holds plain bytes: no special token is made by merging */
    struct piece_buf normalized[2];
    struct buf scratch[STEPS_MAX], mapped[STEPS_MAX];
    struct spans spans[STEPS_MAX];
    struct symbol *symbols;
    size_t symbol_count, symbol_cap;
    struct candidate *heap;
    size_t heap_count, heap_cap;
};

typedef int (*piece_function)(struct encoder *, const struct piece *);

int added_split(struct encoder *, const struct added_set *, const struct piece *, piece_function);
/* *out lies in `work`, or is the piece itself where there is no normaliser. */
int tokenizer_normalize(const struct tokenizer *, struct matcher *, struct piece_buf work[2], const struct piece *,
                        struct piece *out);
int tokenizer_pretokenize(struct encoder *, const struct piece *); /* and encode the pieces */
int bpe_encode(struct encoder *, const char *word, size_t n);
bool bpe_has_inner_mark(const char *text, size_t n); /* a SPACE_MARK behind another character */

/* Readers of tokenizer.json's parts. */
int tokenizer_read_model(struct tokenizer *, const cJSON *model, const cJSON *added);
int tokenizer_read_normalizer(struct tokenizer *, const cJSON *);
int tokenizer_read_added(struct tokenizer *, const cJSON *);
int tokenizer_read_pre_tokenizer(struct tokenizer *, const cJSON *);
int tokenizer_read_post_processor(struct tokenizer *, const cJSON *);
int tokenizer_read_decoder(struct tokenizer *, const cJSON *);

/* Calls `one` for `item`, or for each member of the Sequence that it is (list named `list`); null is nothing. */
int tokenizer_read_steps(struct tokenizer *, const cJSON *item, const char *list,
                         int (*one)(struct tokenizer *, const cJSON *item, const char *type));
int tokenizer_read_prepend_scheme(const cJSON *metaspace, enum prepend_scheme *out);
int tokenizer_read_text(const cJSON *object, const char *name, struct buf *out); /* ERR_FORMAT if it is no string */

#endif
