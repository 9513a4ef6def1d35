/* tokenizer.json: BPE in both dialects (byte-level with a regex; sentencepiece style with byte fallback), with the
 * file's normaliser, pre-tokenizer, post-processor, decoder and added tokens.
 *
 * Immutable after load; encode and decode may run from several threads. A component type that duet does not know
 * is refused by name at load. */
#ifndef DUET_MODEL_TEXT_TOKENIZER_H
#define DUET_MODEL_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/interrupt.h"

struct tokenizer;

int tokenizer_load(struct tokenizer **out, const char *path); /* of a tokenizer.json; errors name it; allocates */

/* Tokens as GGUF files list them, in place of a tokenizer.json. */
struct token_text {
    const char *text; /* [n] */
    size_t n;
};
enum token_kind { /* the files' own numbers */
                  TOKEN_KIND_NORMAL = 1,
                  TOKEN_KIND_UNKNOWN,
                  TOKEN_KIND_CONTROL, /* special, recognised where it stands in a text */
                  TOKEN_KIND_USER,    /* recognised, and text */
                  TOKEN_KIND_UNUSED,
                  TOKEN_KIND_BYTE /* <0xNN> */
};
struct token_list {
    const struct token_text *tokens; /* [count] by id */
    const int32_t *kinds;            /* [count] of enum token_kind; NULL: all are normal */
    const float *scores; /* [count]; sentencepiece's: the pair of the highest score merges first. NULL: by a list */
    int32_t count;
    const struct token_text *merges; /* [merge_count] "left right", where there are no scores */
    int32_t merge_count;
    bool marks_spaces;     /* tokens are sentencepiece's texts all the same (Gemma 4); else byte-level */
    struct token_text pre; /* llama.cpp's name of the pre-tokenizer ("qwen2"); of the byte-level dialect */
    bool space_prefix;     /* sentencepiece: a blank before a text that does not begin with a special token */
    int32_t first, last;   /* what stands around a text, as a post_processor would have it; -1: nothing */
    int32_t unknown;       /* -1: none */
};
/* The list is not kept. ERR_UNSUPPORTED for a pre-tokenizer that duet does not know, by its name. */
int tokenizer_create(struct tokenizer **out, const struct token_list *);
/* Does this pre-tokenizer put the first special token before a text where the file does not say whether? */
bool tokenizer_pre_has_first(struct token_text pre);

void tokenizer_free(struct tokenizer *);

/* One past the largest id of the map (added tokens included). */
int tokenizer_size(const struct tokenizer *);
/* The token's string as the file has it; NULL for an id that the map lacks. NUL-terminated, *len without it. */
const char *tokenizer_token(const struct tokenizer *, int32_t id, size_t *len);
int32_t tokenizer_find(const struct tokenizer *, const char *token, size_t len); /* -1 if absent */
bool tokenizer_is_special(const struct tokenizer *, int32_t id);

struct encode_options {
    bool special; /* also what the post_processor adds (BOS and the like) */
    /* [n] of 0 and 1: 1 marks a byte of a message, in which special tokens are plain text. NULL: none is. A special token that
     * would take such a byte is not recognised, and no other added token that takes one is where it would hide a special
     * token of the text around the message. Everything else is as without: added tokens that are not special are
     * recognised, and words and merges go across the borders. A normaliser hands the marks on, where it changes
     * characters together to all that come of them. */
    const char *plain;
    const struct interrupt *interrupt; /* asked from time to time: a long text takes seconds; NULL: never */
};

/* Appends the ids of text [text, text+n) (valid UTF-8, may hold NUL). Added tokens in the text are recognised. `options`
 * NULL: all zero. Takes time in proportion to the text, whatever the file and the text: ERR_UNSUPPORTED where a regex or the
 * added tokens of the file would take much more. ERR_INTERRUPTED, with nothing appended. */
int tokenizer_encode(const struct tokenizer *, const char *text, size_t n, const struct encode_options *options,
                     struct ids *out);

/* Appends the decoded text of ids. `skip_special` leaves special tokens out. Bytes that form no valid UTF-8 come
 * out as U+FFFD, as the reference library does. */
int tokenizer_decode(const struct tokenizer *, const int32_t *ids, size_t n, bool skip_special, struct buf *out);

/* Streaming: decodes token by token; never gives half a character. Feeding all ids and finishing gives exactly
 * the text of tokenizer_decode. */
struct detokenizer;
int detokenizer_create(const struct tokenizer *, bool skip_special, struct detokenizer **out);
void detokenizer_free(struct detokenizer *);
/* The text to come goes on behind that of ids [n], as decoding all of them together would have it: what a decoder does at the
 * start of a text (Llama 2's leaves out a blank there) is done. Nothing changes where these have no text, like a BOS alone. */
int detokenizer_follow(struct detokenizer *, const int32_t *ids, size_t n);
/* Appends to `out` the text that is final after this id. */
int detokenizer_push(struct detokenizer *, int32_t id, struct buf *out);
/* What finishing now would give of byte tokens ("<0xE4>"), without a character that is not complete. It is held back since the
 * reference library replaces a run of them as a whole where a later one breaks it; until the run ends it grows. */
const struct buf *detokenizer_ahead(const struct detokenizer *);
int detokenizer_finish(struct detokenizer *, struct buf *out); /* what was held back; then ready for another text */

/* 0 if every id that both maps have has the same string (in an added token U+2581 and a blank are the same); else ERR_FORMAT that
 * shows the first id with both strings. *common = number of leading ids [0, common) that the draft may propose: the smaller
 * size. */
int tokenizer_compare(const struct tokenizer *target, const struct tokenizer *draft, int *common);

/* Short description for `inspect`: "byte-level BPE, 4096 tokens, 3 added". */
void tokenizer_describe(const struct tokenizer *, struct buf *out);

#endif
