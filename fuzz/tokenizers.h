/* Tokenizers for the targets that need one, and what must hold of any. */
#ifndef DUET_FUZZ_TOKENIZERS_H
#define DUET_FUZZ_TOKENIZERS_H

#include "fuzz/fuzz.h"
#include "model/text/tokenizer.h"

enum fixed_tokenizer {
    TOKENIZER_EMBEDDED, /* of assets/target */
    TOKENIZER_BYTES, /* byte-level: a regex, digits, added tokens (marks of channels among them), ids that the map lacks */
    TOKENIZER_PIECES, /* sentencepiece style with byte fallback, a BOS */
    TOKENIZER_WORDS,  /* Metaspace; normalisers and added tokens with every flag; unknown characters fused */
    TOKENIZER_PLAIN,  /* no normaliser, pre-tokenizer, decoder or unknown token */
    TOKENIZERS
};

/* Loaded at the first call, then kept. */
const struct tokenizer *fixed_tokenizer(enum fixed_tokenizer);
/* Does every text without this tokenizer's own space mark come back from its ids? */
bool fixed_tokenizer_is_lossless(enum fixed_tokenizer);

/* Encodes twice: the same ids, all in the map, behind what `ids` holds; after a refusal that is as before. */
int claim_encoding(const struct tokenizer *, const char *text, size_t n, bool special, struct ids *ids);
/* Decodes whole, and twice token by token, which gives whole characters and the same text. With `skip_special` it is the
 * text of the other ids. */
int claim_decoding(const struct tokenizer *, const struct ids *, bool skip_special, struct buf *text);

#endif
