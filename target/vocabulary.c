#include "target/vocabulary.h"

#include "base/err.h"

int vocabulary_open(struct tokenizer **tokenizer, int *size, int rows, const struct checkpoint *checkpoint) {
    TRY(checkpoint_tokenizer(checkpoint, tokenizer));
    const int ids = *tokenizer ? tokenizer_size(*tokenizer) : rows;
    *size = ids < rows ? ids : rows;
    return 0;
}
