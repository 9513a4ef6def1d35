#include "target/vocabulary.h"

#include "base/err.h"

int vocabulary_open(struct tokenizer **tokenizer, int *size, const struct model *m, const char *dir) {
    int rows = model_get_config(m)->vocab;
    *tokenizer = NULL;
    if (tokenizer_exists(dir)) TRY(tokenizer_load(tokenizer, dir));
    *size = *tokenizer ? tokenizer_size(*tokenizer) : rows;
    if (*size > rows)
        return err_set(ERR_FORMAT, "%s: tokenizer.json has ids up to %d, the embedding only %d rows", dir, *size - 1,
                       rows);
    return 0;
}
