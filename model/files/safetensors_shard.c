/* The format: a little-endian u64 N, N bytes of JSON {NAME: {"dtype", "shape", "data_offsets": [begin, end]}}, then
 * the data, to which the offsets are relative. */
#include "model/files/safetensors_shard.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "model/files/pytorch.h"

enum { LENGTH_BYTES = 8, HEADER_MAX = 100000000 };

static const struct element {
    const char *name;
    int bits;
} elements[] = {
    {"BF16", 16},   {"F16", 16},    {"F32", 32},    {"F64", 64},    {"I8", 8},      {"I16", 16}, {"I32", 32},
    {"I64", 64},    {"U8", 8},      {"U16", 16},    {"U32", 32},    {"U64", 64},    {"BOOL", 8}, {"C64", 64},
    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
};

const char *shard_type(const char *name, int *bits) {
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        if (strcmp(elements[i].name, name) != 0) continue;
        *bits = elements[i].bits;
        return elements[i].name;
    }
    return NULL;
}

/* The data section of the mapping. */
struct section {
    const char *data;
    int64_t bytes;
};

struct span {
    int64_t begin, end;
    const char *name;
};

static int read_shape(struct tensor *t, const cJSON *shape) {
    if (!cJSON_IsArray(shape)) return err_set(ERR_FORMAT, "tensor '%s' has no shape", t->name);
    for (const cJSON *item = shape->child; item; item = item->next) {
        if (t->dims == TENSOR_DIMS_MAX)
            return err_set(ERR_UNSUPPORTED, "tensor '%s' has more than %d dimensions", t->name, TENSOR_DIMS_MAX);
        int64_t *size = &t->shape[t->dims++];
        if (!json_int(item, size) || *size < 0)
            return err_set(ERR_FORMAT, "tensor '%s' has a dimension that is no size", t->name);
    }
    return 0;
}

static int read_offsets(const struct tensor *t, const cJSON *offsets, struct span *span) {
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !json_int(offsets->child, &span->begin) ||
        !json_int(offsets->child->next, &span->end) || span->begin < 0 || span->begin > span->end)
        return err_set(ERR_FORMAT, "tensor '%s' has data_offsets that are no [begin, end]", t->name);
    span->name = t->name;
    return 0;
}

static int check_size(const struct tensor *t, int bits, const struct span *span) {
    int64_t total = bits;
    bool is_empty = false, overflow = false;
    for (int i = 0; i < t->dims; i++) {
        is_empty |= t->shape[i] == 0;
        overflow |= __builtin_mul_overflow(total, t->shape[i], &total);
    }
    if (is_empty) total = 0, overflow = false;
    if (overflow || total % 8 != 0)
        return err_set(ERR_FORMAT, "tensor '%s' has a shape whose size in bytes is no integer below 2^60", t->name);
    if (total / 8 != span->end - span->begin)
        return err_set(ERR_FORMAT, "tensor '%s' needs %lld bytes by shape and dtype, its data_offsets hold %lld",
                       t->name, (long long)(total / 8), (long long)(span->end - span->begin));
    return 0;
}

int shard_place(struct shard_tensor *st, int bits, const char *data) {
    struct tensor *t = &st->tensor;
    t->data = data;
    if (t->bytes == 0 || (uintptr_t)data % (size_t)(bits < 8 ? 1 : bits / 8) == 0) return 0;
    st->copy = malloc(t->bytes);
    if (!st->copy) return err_set(ERR_MEMORY, "out of memory for %zu bytes of tensor '%s'", t->bytes, t->name);
    t->data = memcpy(st->copy, data, t->bytes);
    return 0;
}

static int read_tensor(struct shard *shard, const cJSON *member, struct span *span, const struct section *section) {
    struct shard_tensor *st = &shard->tensors[shard->count++];
    struct tensor *t = &st->tensor;
    t->file = shard->path;
    t->name = strdup(member->string);
    if (!t->name) return err_set(ERR_MEMORY, "out of memory for a tensor's name");
    const cJSON *dtype = json_get(member, "dtype");
    if (!cJSON_IsString(dtype)) return err_set(ERR_FORMAT, "tensor '%s' has no dtype", t->name);
    int bits;
    t->dtype = shard_type(dtype->valuestring, &bits);
    if (!t->dtype)
        return err_set(ERR_UNSUPPORTED, "tensor '%s' has the unknown dtype '%s'", t->name, dtype->valuestring);
    TRY(read_shape(t, json_get(member, "shape")));
    TRY(read_offsets(t, json_get(member, "data_offsets"), span));
    TRY(check_size(t, bits, span));
    if (span->end > section->bytes) {
        long long before = (long long)shard->map.bytes - section->bytes;
        return err_set(ERR_FORMAT, "tensor '%s' ends at byte %lld, the file has %zu: is it truncated?", t->name,
                       before + (long long)span->end, shard->map.bytes);
    }
    t->bytes = (size_t)(span->end - span->begin);
    return shard_place(st, bits, section->data + span->begin);
}

static int compare_spans(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int check_overlap(struct span *spans, int count) {
    qsort(spans, (size_t)count, sizeof *spans, compare_spans);
    for (int i = 1; i < count; i++)
        if (spans[i].begin < spans[i - 1].end)
            return err_set(ERR_FORMAT, "tensors '%s' and '%s' overlap", spans[i - 1].name, spans[i].name);
    return 0;
}

static int read_tensors(struct shard *shard, const cJSON *root, struct span *spans, const struct section *section) {
    for (const cJSON *member = root->child; member; member = member->next) {
        if (strcmp(member->string, "__metadata__") != 0) {
            TRY(read_tensor(shard, member, &spans[shard->count], section));
        } else if (!cJSON_IsObject(member)) {
            return err_set(ERR_FORMAT, "__metadata__ is no object");
        }
    }
    return check_overlap(spans, shard->count);
}

static int read_header(struct shard *shard, const cJSON *root, const struct section *section) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "the header is no JSON object");
    size_t members = 1; /* one more than needed: never an empty allocation */
    for (const cJSON *member = root->child; member; member = member->next) members++;
    if (members > INT_MAX) return err_set(ERR_LIMIT, "%zu tensors are too many", members);
    struct span *spans = calloc(members, sizeof *spans);
    shard->tensors = calloc(members, sizeof *shard->tensors);
    int rc = spans && shard->tensors ? read_tensors(shard, root, spans, section)
                                     : err_set(ERR_MEMORY, "out of memory for %zu tensors", members);
    free(spans);
    return rc;
}

static int read_file(struct shard *shard) {
    const unsigned char *bytes = (const unsigned char *)shard->map.data;
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > HEADER_MAX)
        return err_set(ERR_FORMAT, "a header of %llu bytes, at most %d are allowed", (unsigned long long)length,
                       HEADER_MAX);
    if (length > shard->map.bytes - LENGTH_BYTES)
        return err_set(ERR_FORMAT, "the header ends at byte %llu, the file has %zu: is it truncated?",
                       (unsigned long long)length + LENGTH_BYTES, shard->map.bytes);
    const char *text = (const char *)bytes + LENGTH_BYTES;
    struct section section = {text + length, (int64_t)(shard->map.bytes - LENGTH_BYTES - length)};
    cJSON *root;
    int rc = json_parse(&root, text, length);
    if (rc != 0) return err_prefix(rc, "header");
    rc = read_header(shard, root, &section);
    cJSON_Delete(root);
    return rc;
}

int shard_open(struct shard *shard, const char *path) {
    shard->path = strdup(path);
    if (!shard->path) return err_set(ERR_MEMORY, "out of memory for a path");
    TRY(mapping_open(&shard->map, path, LENGTH_BYTES));
    int rc = pytorch_is_file(&shard->map) ? pytorch_read(shard) : read_file(shard);
    return rc == 0 ? 0 : err_prefix(rc, "%s", path);
}

void shard_close(struct shard *shard) {
    for (int i = 0; i < shard->count; i++) {
        free((char *)shard->tensors[i].tensor.name);
        free(shard->tensors[i].copy);
    }
    free(shard->tensors);
    mapping_close(&shard->map);
    free(shard->path);
    *shard = (struct shard){0};
}
