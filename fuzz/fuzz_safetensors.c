/* One safetensors file. The input is the file behind a letter 'r'; else it is a header, whose length goes in front, a NUL
 * byte, and the data: most changes of it leave the length right. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/tensors.h"

enum { FUZZ_BYTES_MAX = 2048, LENGTH_BYTES = 8 };

/* The file, for free(). */
static uint8_t *make_file(struct input in, size_t *n) {
    uint8_t *file = malloc(LENGTH_BYTES + in.n);
    if (!file) abort();
    if (input_byte(&(struct input){in.data, in.n}) == 'r') {
        memcpy(file, in.data + 1, *n = in.n - 1);
        return file;
    }
    struct input header = input_until(&in, '\0');
    uint64_t length = header.n;
    memcpy(file, &length, LENGTH_BYTES);
    if (header.n > 0) memcpy(file + LENGTH_BYTES, header.data, header.n);
    if (in.n > 0) memcpy(file + LENGTH_BYTES + header.n, in.data, in.n);
    *n = LENGTH_BYTES + header.n + in.n;
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct shard_bytes shard = {.name = "model.safetensors"};
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    uint8_t *file = make_file((struct input){data, n}, &shard.n);
    shard.data = file;
    fuzz_write(shard.name, file, shard.n);
    struct safetensors *s = tensors_open();
    if (s) claim_tensors(s, &shard, 1);
    safetensors_close(s);
    claim_files_closed(mark);
    claim_tensors_unmapped();
    free(file);
    return 0;
}
