/* Strings and ids: characters, the vocabulary, merges. For the files model/text/tokenizer*.c. */
#ifndef DUET_MODEL_TEXT_TOKENIZER_VOCAB_H
#define DUET_MODEL_TEXT_TOKENIZER_VOCAB_H

#include "base/buf.h"

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

#endif
