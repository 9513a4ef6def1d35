#include "tests/support/gguf_writer.h"

#include <string.h>

#include "tests/support/damage.h"

enum { ALIGNMENT = 32 };

/* Hosts of duet are little-endian. */
static void put_u32(struct buf *out, uint32_t value) {
    buf_append(out, &value, sizeof value);
}

static void put_u64(struct buf *out, uint64_t value) {
    buf_append(out, &value, sizeof value);
}

static void put_string(struct buf *out, const char *text) {
    put_u64(out, strlen(text));
    buf_puts(out, text);
}

static void begin_value(struct gguf_writer *w, const char *key, enum gguf_type type) {
    w->value_count++;
    put_string(&w->values, key);
    put_u32(&w->values, type);
}

void gguf_put_int(struct gguf_writer *w, const char *key, int64_t value) {
    begin_value(w, key, GGUF_U32);
    put_u32(&w->values, (uint32_t)value);
}

void gguf_put_number(struct gguf_writer *w, const char *key, double value) {
    const float single = (float)value;
    begin_value(w, key, GGUF_F32);
    buf_append(&w->values, &single, sizeof single);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool value) {
    begin_value(w, key, GGUF_BOOL);
    buf_putc(&w->values, value);
}

void gguf_put_text(struct gguf_writer *w, const char *key, const char *value) {
    begin_value(w, key, GGUF_STRING);
    put_string(&w->values, value);
}

static void begin_array(struct gguf_writer *w, const char *key, enum gguf_type type, int count) {
    begin_value(w, key, GGUF_ARRAY);
    put_u32(&w->values, type);
    put_u64(&w->values, (uint64_t)count);
}

void gguf_put_texts(struct gguf_writer *w, const char *key, const char *const *texts, int count) {
    begin_array(w, key, GGUF_STRING, count);
    for (int i = 0; i < count; i++) put_string(&w->values, texts[i]);
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type type, const void *elements, int count) {
    const size_t bytes = type == GGUF_BOOL ? 1 : type >= GGUF_U64 ? 8 : 4;
    begin_array(w, key, type, count);
    buf_append(&w->values, elements, bytes * (size_t)count);
}

void gguf_put_arrays(struct gguf_writer *w, const char *key, const void *arrays, size_t bytes, int count) {
    begin_array(w, key, GGUF_ARRAY, count);
    buf_append(&w->values, arrays, bytes);
}

static void pad(struct buf *out) {
    while (out->len % ALIGNMENT != 0) buf_putc(out, 0);
}

void gguf_put_tensor(struct gguf_writer *w, const char *name, int type, int dims, const int64_t *shape,
                     const void *data, size_t bytes) {
    pad(&w->data);
    w->tensor_count++;
    put_string(&w->tensors, name);
    put_u32(&w->tensors, (uint32_t)dims);
    for (int i = 0; i < dims; i++) put_u64(&w->tensors, (uint64_t)shape[i]);
    put_u32(&w->tensors, (uint32_t)type);
    put_u64(&w->tensors, w->data.len);
    buf_append(&w->data, data, bytes);
}

void gguf_write(const struct gguf_writer *w, struct buf *out) {
    buf_puts(out, "GGUF");
    put_u32(out, w->version ? w->version : 3);
    put_u64(out, w->tensor_count);
    put_u64(out, w->value_count);
    buf_append(out, buf_text(&w->values), w->values.len);
    buf_append(out, buf_text(&w->tensors), w->tensors.len);
    pad(out);
    buf_append(out, buf_text(&w->data), w->data.len);
}

void gguf_write_file(const struct gguf_writer *w, const char *path) {
    struct buf file = {0};
    gguf_write(w, &file);
    damage_write_file(path, file.data, file.len);
    buf_free(&file);
}

void gguf_writer_free(struct gguf_writer *w) {
    buf_free(&w->values);
    buf_free(&w->tensors);
    buf_free(&w->data);
    *w = (struct gguf_writer){0};
}
