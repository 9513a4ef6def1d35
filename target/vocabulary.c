#include "target/vocabulary.h"

#include "base/err.h"

int vocabulary_open(struct tokenizer **tokenizer, int *size, int rows, const struct checkpoint *checkpoint) {
    TRY(checkpoint_tokenizer(checkpoint, tokenizer));
    *size = *tokenizer ? tokenizer_size(*tokenizer) : rows;
    if (*size > rows)
        return err_set(ERR_FORMAT, "%s: tokenizer.json has ids up to %d, the embedding only %d rows",
                       checkpoint_name(checkpoint), *size - 1, rows);
    return 0;
}
