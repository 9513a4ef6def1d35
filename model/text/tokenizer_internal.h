/* Shared by the files model/text/tokenizer*.c alone.
 *
 * Encoding, depth first, so that no stage keeps a list of the whole text:
 *   text -> raw added tokens cut out -> normaliser -> normalised added tokens cut out -> pre-tokenizer steps -> BPE
 * Decoding: tokens -> decoder steps -> text; the whole and the streaming decoder are one machine. */
#ifndef DUET_MODEL_TEXT_TOKENIZER_INTERNAL_H
#define DUET_MODEL_TEXT_TOKENIZER_INTERNAL_H

#include "model/text/tokenizer.h"
#include "model/text/tokenizer_pattern.h"
#include "model/text/tokenizer_vocab.h"

enum {
    STEPS_MAX = 16,             /* steps of a normaliser, pre-tokenizer or decoder */
    TOKEN_ID_LIMIT = 1 << 20,   /* ids above have no random-number stream of their own (base/philox.h) */
    DIRECT_CODE_POINTS = 0x180, /* initial symbols found without hashing: ASCII and the byte-level alphabet */
};

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

int tokenizer_read_list(struct tokenizer *, const struct token_list *); /* tokenizer_list.c */
void tokenizer_index_symbols(struct tokenizer *);                       /* when all tokens are there */
/* The merge text[0, cut) + text[cut, n). */
int tokenizer_add_merge(struct tokenizer *, const char *text, size_t cut, size_t n, int32_t rank);

/* Steps of the pre-tokenizer without a file. */
int tokenizer_add_split(struct tokenizer *, const char *regex);
int tokenizer_add_byte_level(struct tokenizer *, bool splits_words);

/* Calls `one` for `item`, or for each member of the Sequence that it is (list named `list`); null is nothing. */
int tokenizer_read_steps(struct tokenizer *, const cJSON *item, const char *list,
                         int (*one)(struct tokenizer *, const cJSON *item, const char *type));
int tokenizer_read_prepend_scheme(const cJSON *metaspace, enum prepend_scheme *out);
int tokenizer_read_text(const cJSON *object, const char *name, struct buf *out); /* ERR_FORMAT if it is no string */

#endif
