/* A GGUF model that is small and whole: a Llama of one layer, whose weights are 0. */
#ifndef DUET_TESTS_GGUF_SMALL_H
#define DUET_TESTS_GGUF_SMALL_H

#include "tests/support/gguf_writer.h"

enum { SMALL_WIDTH = 32, SMALL_VOCAB = 8 };
extern const char *const small_tokens[SMALL_VOCAB];

/* [rows, SMALL_WIDTH], of 1 row a vector; up to 256 rows. */
void small_put_matrix(struct gguf_writer *, const char *name, int rows);              /* F32 */
void small_put_matrix_of(struct gguf_writer *, const char *name, int rows, int type); /* F32 or 16 bits */
void small_put_keys_of(struct gguf_writer *, const char *architecture);
void small_put_keys(struct gguf_writer *);                                  /* of a Llama */
void small_put_tensors(struct gguf_writer *);                               /* all F32 */
void small_put_tensors_of(struct gguf_writer *, int matrices, int vectors); /* F32 or 16 bits */
/* Keys, one that nobody reads among them, tokenizer and tensors. */
void small_put_all(struct gguf_writer *);

/* A file in the test's folder; four names at once. */
const char *small_path(const char *name);

#endif
