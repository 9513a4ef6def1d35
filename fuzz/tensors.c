#include "fuzz/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { LOOKED_AT = 8 }; /* tensors whose bytes are compared: a file of the corpus has few */

void tensors_write(struct input *in) {
    struct input header = input_until(in, '\0');
    uint64_t length = header.n;
    struct buf file = {0};
    buf_append(&file, (const char *)&length, sizeof length);
    buf_append(&file, (const char *)header.data, header.n);
    buf_append(&file, (const char *)in->data, in->n);
    fuzz_write("model.safetensors", file.data, file.len);
    buf_free(&file);
}

struct safetensors *tensors_open(void) {
    struct safetensors *s = (struct safetensors *)&s;
    forget_error();
    int rc = checkpoint_tensors(fuzz_checkpoint(), &s);
    if (rc == 0) return s;
    claim(!s, "a result in spite of: %s", err_message());
    claim_refusal(rc);
    claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
    return NULL;
}

static size_t bits_of(const char *dtype) {
    static const char *const names[] = {"BF16", "F16", "I16", "U16", "F32", "I32",     "U32",
                                        "F64",  "I64", "U64", "C64", "F4",  "F6_E2M3", "F6_E3M2"};
    static const size_t bits[] = {16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64, 4, 6, 6};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        if (strcmp(dtype, names[i]) == 0) return bits[i];
    return 8;
}

static const struct shard_bytes *shard_of(const struct tensor *t, const struct shard_bytes *shards, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(t->file + strlen(fuzz_dir()) + 1, shards[i].name) == 0) return &shards[i];
    claim(false, "tensor '%s' lies in %s", t->name, t->file);
}

/* Where a tensor lies in its file. */
struct span {
    const char *file;
    int64_t begin, end;
};

/* The tensor's own words of the header. */
static struct span claim_as_written(const struct tensor *t, const cJSON *member, const uint8_t *data, size_t n) {
    const cJSON *size = json_get(member, "shape")->child, *offsets = json_get(member, "data_offsets");
    int64_t begin, end, number;
    claim(strcmp(json_get(member, "dtype")->valuestring, t->dtype) == 0, "tensor '%s' is %s", t->name, t->dtype);
    for (int i = 0; i < t->dims; i++, size = size->next)
        claim(json_int(size, &number) && number == t->shape[i], "tensor '%s', dimension %d", t->name, i);
    claim(!size, "tensor '%s' has %d dimensions", t->name, t->dims);
    claim(json_int(offsets->child, &begin) && json_int(offsets->child->next, &end), "tensor '%s'", t->name);
    claim(begin <= end && (uint64_t)end <= n, "tensor '%s' ends at %lld of %zu", t->name, (long long)end, n);
    claim_same(t->name, t->data, t->bytes, data + begin, (size_t)(end - begin));
    return (struct span){t->file, begin, end};
}

/* The header is read once more for each tensor: there are few. */
static struct span claim_tensor(const struct tensor *t, const struct shard_bytes *shard) {
    uint64_t length;
    size_t elements = 1, bits = bits_of(t->dtype);
    bool is_empty = false;
    claim(t->dims >= 0 && t->dims <= TENSOR_DIMS_MAX, "%d dimensions", t->dims);
    for (int i = 0; i < t->dims; i++) is_empty |= t->shape[i] == 0;
    for (int i = 0; i < t->dims && !is_empty; i++) elements *= (size_t)t->shape[i];
    if (is_empty) elements = 0;
    claim(elements * bits == 8 * t->bytes, "tensor '%s' has %zu bytes", t->name, t->bytes);
    claim(t->bytes == 0 || bits < 8 || (uintptr_t)t->data % (bits / 8) == 0, "tensor '%s' is misaligned", t->name);
    memcpy(&length, shard->data, sizeof length);
    cJSON *header;
    claim(json_parse(&header, (const char *)shard->data + 8, length) == 0, "%s", err_message());
    const cJSON *member = json_get(header, t->name);
    claim(member, "tensor '%s' is in no header", t->name);
    struct span span = claim_as_written(t, member, shard->data + 8 + length, shard->n - 8 - length);
    cJSON_Delete(header);
    return span;
}

static void claim_apart(const struct span *a, const struct span *b) {
    claim(a->file != b->file || a->begin == a->end || b->begin == b->end || a->end <= b->begin || b->end <= a->begin,
          "tensors overlap: bytes %lld to %lld, %lld to %lld", (long long)a->begin, (long long)a->end,
          (long long)b->begin, (long long)b->end);
}

/* The tensor by its own shape, if it has a type that duet computes with, and by another. */
static void claim_expected(const struct safetensors *s, const struct tensor *t) {
    const struct tensor *found;
    enum dtype format;
    int64_t other[TENSOR_DIMS_MAX];
    forget_error();
    int rc = safetensors_expect(s, t->name, t->shape, t->dims, &found, &format);
    if (rc == 0)
        claim(found == t, "tensor '%s'", t->name);
    else
        claim_refusal(rc);
    memcpy(other, t->shape, sizeof other);
    other[0] = t->dims > 0 ? other[0] + 1 : 1;
    forget_error();
    rc = safetensors_expect(s, t->name, other, t->dims > 0 ? t->dims : 1, &found, &format);
    claim(rc != 0, "tensor '%s' has another shape", t->name);
    claim_refusal(rc);
}

void claim_tensors(const struct safetensors *s, const struct shard_bytes *shards, int count) {
    struct span spans[LOOKED_AT];
    const struct tensor *found;
    const int64_t one = 1;
    enum dtype format;
    claim(safetensors_count(s) > 0, "no tensors");
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        claim(i == 0 || strcmp(safetensors_at(s, i - 1)->name, t->name) < 0, "'%s' is out of order", t->name);
        claim(safetensors_find(s, t->name) == t, "'%s' is not found", t->name);
        if (i >= LOOKED_AT) continue;
        spans[i] = claim_tensor(t, shard_of(t, shards, count));
        for (int j = 0; j < i; j++) claim_apart(&spans[i], &spans[j]);
        claim_expected(s, t);
    }
    claim(!safetensors_find(s, "no such tensor"), "a tensor from nowhere");
    claim(safetensors_expect(s, "no such tensor", &one, 1, &found, &format) == ERR_FORMAT, "a weight from nowhere");
}

void claim_tensors_unmapped(void) {
    static unsigned runs;
    if (runs++ % 4096 != 0) return;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) claim(!strstr(line, fuzz_dir()), "still mapped: %s", line);
    if (maps) fclose(maps);
}
