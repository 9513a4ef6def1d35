#include "tests/support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/format.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"
#include "tests/support/torch_file.h"

static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Output function of splitmix64. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* middle + spread * (-1 to 127/128): of so few bits that bf16 and f16 hold it, where it is no F32. */
static void put_numbers(struct buf *out, const char *name, size_t count, float middle, float spread, const char *type) {
    const uint64_t seed = hash_of(name);
    for (size_t i = 0; i < count; i++) {
        const int64_t byte = (int64_t)(mix(seed + 0x9e3779b97f4a7c15u * (i + 1)) >> 56);
        const float number = middle + spread * (float)(byte - 128) / 128;
        const bool is_wide = strcmp(type, "F32") == 0;
        const uint16_t half = strcmp(type, "F16") == 0 ? format_to_f16(number) : format_to_bf16(number);
        buf_append(out, is_wide ? (const char *)&number : (const char *)&half, is_wide ? sizeof number : sizeof half);
    }
}

/* Each [name, shape, middle, spread, type]. */
static void add_tensors(struct tensor_file *f, const cJSON *tensors) {
    const cJSON *tensor, *size;
    cJSON_ArrayForEach(tensor, tensors) {
        const char *name = tensor->child->valuestring, *type = cJSON_GetArrayItem(tensor, 4)->valuestring;
        const float middle = (float)cJSON_GetArrayItem(tensor, 2)->valuedouble,
                    spread = (float)cJSON_GetArrayItem(tensor, 3)->valuedouble;
        int64_t shape[3];
        int dims = 0;
        size_t count = 1;
        struct buf numbers = {0};
        cJSON_ArrayForEach(size, cJSON_GetArrayItem(tensor, 1)) {
            ck_assert_int_lt(dims, 3);
            shape[dims++] = (int64_t)size->valuedouble;
            count *= (size_t)size->valuedouble;
        }
        put_numbers(&numbers, name, count, middle, spread, type);
        tensor_file_add(f, name, type, dims, shape, numbers.data, numbers.len);
        buf_free(&numbers);
    }
}

/* The ids of a head that proposes few, as EAGLE-3's files have them: distances from their places, and which of the target's they are. */
static void add_ids(struct tensor_file *f, const cJSON *ids) {
    enum { ALL = 96 };
    const int64_t count = cJSON_GetArraySize(ids), all = ALL;
    int64_t distances[ALL], place = 0;
    bool are_there[ALL] = {0};
    const cJSON *id;
    cJSON_ArrayForEach(id, ids) {
        distances[place] = (int64_t)id->valuedouble - place;
        if (id->valuedouble >= 0 && id->valuedouble < ALL)
            are_there[(int)id->valuedouble] = true; /* else a test's damage */
        place++;
    }
    tensor_file_add(f, "d2t", "I64", 1, &count, distances, (size_t)count * sizeof *distances);
    tensor_file_add(f, "t2d", "BOOL", 1, &all, are_there, ALL);
}

static void write_tensors(const cJSON *reference, const char *path,
                          void (*write)(struct tensor_file *, const char *path)) {
    struct tensor_file f = {0};
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, json_get(reference, "ignored"))
        tensor_file_add(&f, tensor->valuestring, "BF16", 1, (const int64_t[]){2}, "\1\2\3\4", 4);
    add_tensors(&f, json_get(reference, "tensors"));
    add_tensors(&f, json_get(reference, "mtp_tensors"));
    if (cJSON_GetArraySize(json_get(reference, "ids")) > 0) add_ids(&f, json_get(reference, "ids"));
    write(&f, path);
}

/* A new directory, with config.json. */
static void write_config(const cJSON *reference, const char *config, char dir[256]) {
    char path[320];
    struct buf text = {0};
    snprintf(dir, 256, "%s/model-XXXXXX", temp_dir());
    ck_assert_ptr_nonnull(mkdtemp(dir)); /* tests on a GPU share the first */
    json_print(json_get(reference, config), &text);
    snprintf(path, sizeof path, "%s/config.json", dir);
    damage_write_text(path, buf_text(&text));
    buf_free(&text);
}

void tiny_model_write(const cJSON *reference, const char *config, char dir[256]) {
    char path[320];
    write_config(reference, config, dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    write_tensors(reference, path, tensor_file_write);
}

void tiny_model_write_torch(const cJSON *reference, const char *config, char dir[256]) {
    char path[320];
    write_config(reference, config, dir);
    snprintf(path, sizeof path, "%s/pytorch_model.bin", dir);
    write_tensors(reference, path, torch_file_write);
}

cJSON *tiny_model_load(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "tests/model/families/%s.json", name);
    return must_load_json(path);
}
