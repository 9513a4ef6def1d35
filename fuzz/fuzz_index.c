/* An index and its shards. The input is the index, then up to three headers, each behind a NUL byte: of a.safetensors,
 * b.safetensors, c.safetensors, each with 64 bytes of data. A shard without a header is not there. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "fuzz/tensors.h"

enum { FUZZ_BYTES_MAX = 2048, LENGTH_BYTES = 8, DATA_BYTES = 64, SHARDS = 3 };

static const char *const names[SHARDS] = {"a.safetensors", "b.safetensors", "c.safetensors"};

static void put_shard(struct shard_bytes *shard, struct buf *file, const struct input *header) {
    uint64_t length = header->n;
    buf_append(file, &length, LENGTH_BYTES);
    buf_append(file, header->data, header->n);
    for (int i = 0; i < DATA_BYTES; i++) buf_putc(file, (char)(1 + i));
    shard->data = (const uint8_t *)file->data;
    shard->n = file->len;
    fuzz_write(shard->name, file->data, file->len);
}

static bool names_file(const cJSON *map, const char *file) {
    for (const cJSON *place = map->child; place; place = place->next)
        if (strcmp(place->valuestring, file) == 0) return true;
    return false;
}

/* Every tensor lies in a shard that the index names, and one that no shard has is told of. */
static void claim_index(const struct safetensors *s, const struct input *index) {
    cJSON *json;
    claim(json_parse(&json, (const char *)index->data, index->n) == 0, "%s", err_message());
    const cJSON *map = json_get(json, "weight_map");
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        claim(names_file(map, t->file + strlen(fuzz_dir()) + 1), "'%s' lies in %s", t->name, t->file);
    }
    for (const cJSON *place = map->child; place; place = place->next) {
        const struct tensor *t;
        if (safetensors_find(s, place->string)) continue;
        claim(safetensors_expect_type(s, place->string, "U8", (const int64_t[]){1}, 1, &t) == ERR_FORMAT, "no error");
    }
    cJSON_Delete(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    struct input index = input_until(&in, '\0');
    struct shard_bytes shards[SHARDS];
    struct buf files[SHARDS] = {{0}};
    for (int i = 0; i < SHARDS; i++) {
        struct input header = input_until(&in, '\0');
        shards[i] = (struct shard_bytes){.name = names[i]};
        if (header.n > 0)
            put_shard(&shards[i], &files[i], &header);
        else
            fuzz_remove(names[i]);
    }
    fuzz_write("model.safetensors.index.json", index.data, index.n);
    struct safetensors *s = tensors_open();
    if (s) claim_tensors(s, shards, SHARDS);
    if (s) claim_index(s, &index);
    safetensors_close(s);
    for (int i = 0; i < SHARDS; i++) buf_free(&files[i]);
    claim_files_closed(mark);
    claim_tensors_unmapped();
    return 0;
}
