/* Writes GGUF files for tests: values and tensors as they are put, in this order. */
#ifndef DUET_TESTS_GGUF_WRITER_H
#define DUET_TESTS_GGUF_WRITER_H

#include "base/buf.h"
#include "model/files/gguf.h"

enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q8_0 = 8, GGML_BF16 = 30 };

struct gguf_writer {
    struct buf values, tensors, data;
    uint64_t value_count, tensor_count;
    uint32_t version; /* 0: 3 */
};
void gguf_writer_free(struct gguf_writer *);

void gguf_put_int(struct gguf_writer *, const char *key, int64_t value);   /* u32 */
void gguf_put_number(struct gguf_writer *, const char *key, double value); /* f32 */
void gguf_put_bool(struct gguf_writer *, const char *key, bool value);
void gguf_put_text(struct gguf_writer *, const char *key, const char *value);
void gguf_put_texts(struct gguf_writer *, const char *key, const char *const *texts, int count);
/* `elements`: the bytes of `count` elements of this type. */
void gguf_put_array(struct gguf_writer *, const char *key, enum gguf_type, const void *elements, int count);
/* Of `count` arrays, in `bytes`: a u32 type, a u64 count and elements each. */
void gguf_put_arrays(struct gguf_writer *, const char *key, const void *arrays, size_t bytes, int count);
/* The shape as the file has it, columns first; `bytes` of data. */
void gguf_put_tensor(struct gguf_writer *, const char *name, int type, int dims, const int64_t *shape, const void *data,
                     size_t bytes);

/* The file. */
void gguf_write(const struct gguf_writer *, struct buf *out);
void gguf_write_file(const struct gguf_writer *, const char *path);

#endif
