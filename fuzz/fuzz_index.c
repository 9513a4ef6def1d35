/* An index and its shards. The input is the index, then up to three headers, each behind a NUL byte: of a.safetensors,
 * b.safetensors, c.safetensors, each with 64 bytes of data. A shard without a header is not there. */
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

/* Every tensor of the index is there, in the shard that it names, and no other. */
static void claim_index(const struct safetensors *s, const struct input *index) {
    cJSON *json;
    int count = 0;
    claim(json_parse(&json, (const char *)index->data, index->n) == 0, "%s", err_message());
    for (const cJSON *place = json_get(json, "weight_map")->child; place; place = place->next, count++) {
        const struct tensor *t = safetensors_find(s, place->string);
        claim(t, "'%s' is missing", place->string);
        claim(strcmp(t->file + strlen(fuzz_dir()) + 1, place->valuestring) == 0, "'%s' lies in %s", t->name, t->file);
    }
    claim(count == safetensors_count(s), "%d tensors of %d", safetensors_count(s), count);
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
