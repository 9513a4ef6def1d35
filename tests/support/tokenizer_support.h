/* What the tokenizer's suites share. */
#ifndef DUET_TESTS_TOKENIZER_SUPPORT_H
#define DUET_TESTS_TOKENIZER_SUPPORT_H

#include "base/json.h"
#include "model/text/tokenizer.h"
#include "tests/support/support.h"

#define MARK "\xe2\x96\x81" /* U+2581, a space in the sentencepiece dialect */

struct tokenizer *tokenizer_open(const char *dir);
void tokenizer_write(const char *text, size_t n);        /* temp_dir()/tokenizer.json */
struct tokenizer *tokenizer_load_text(const char *json); /* written there and loaded */
/* The file is refused with this code and a sentence that names the file and holds `part`. */
void tokenizer_refuse_text(const char *json, int code, const char *part);

struct ids tokenizer_encode_all(const struct tokenizer *, const char *text, size_t n, bool special);
struct buf tokenizer_decode_all(const struct tokenizer *, const struct ids *, bool skip_special);
void tokenizer_check_text(const struct buf *got, const struct buf *want);
/* Streams the ids: every piece is whole characters, and all of them make the text of tokenizer_decode. */
void tokenizer_check_streaming(const struct tokenizer *, const struct ids *, bool skip_special);

void tokenizer_check_ids(const struct ids *got, const cJSON *want, const char *about);
/* One of the shared vectors: ids without and with special tokens, the text that they decode to, streamed too. */
void tokenizer_check_vector(const struct tokenizer *, const cJSON *vector);

/* Time of this process alone, so that a busy machine does not count. */
int64_t tokenizer_cpu_us(void);

#endif
