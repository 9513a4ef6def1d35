/* A quantised matrix: config.json's quantization_config, a NUL byte, a safetensors header, a NUL byte, the data. The matrix is
 * "m.weight", [8, 32], or one of two in "m". */
#include "model/files/stored.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "fuzz/tensors.h"
#include "model/format.h"

enum { FUZZ_BYTES_MAX = 4096, ROWS = 8, COLS = 32 };

/* What was repacked lies in a block of just its size; what is read in place, in the file. */
static void read_matrix(const struct stored *s, const struct stored_rows *rows) {
    struct weight w = {.rows = (int32_t)rows->count, .cols = COLS};
    struct scales scales;
    const size_t bytes = stored_packed_bytes(s, rows->count);
    float out[COLS];
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) abort();
    stored_place(s, rows, &w, &scales, memory);
    forget_error();
    int rc = stored_pack(s, rows, &w, &scales, 1);
    if (rc != 0) claim_refusal(rc);
    for (int r = 0; rc == 0 && r < w.rows; r++) {
        format_of(w.format)->dequantise(out, &w, r, 0, COLS);
        for (int c = 0; c < COLS; c++) claim(!isnan(out[c]), "NaN at %d, %d", r, c);
    }
    claim(stored_bytes(s, rows->count) > 0, "a matrix of nothing");
    free(memory);
}

static void read_stored(const struct safetensors *files, const struct quantisation *q, const char *name,
                        int64_t stack) {
    struct stored s;
    forget_error();
    int rc = stored_find(&s, files, q, name, ROWS, COLS, stack);
    if (rc != 0) {
        claim_refusal(rc);
        return;
    }
    if (s.form == STORED_PLAIN) return;
    read_matrix(&s, &(struct stored_rows){stack ? stack - 1 : 0, 0, 1, ROWS});
    if (s.scale_rows == 1) read_matrix(&s, &(struct stored_rows){0, 1, 2, 3});
    for (int i = 0; i < safetensors_count(files); i++) (void)stored_owns(&s, safetensors_at(files, i));
}

static int read_configuration(struct quantisation *q, struct input text) {
    cJSON *root;
    TRY(json_parse(&root, (const char *)text.data, text.n));
    int rc = quantisation_read(q, root, root);
    cJSON_Delete(root);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct quantisation q;
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    forget_error();
    int rc = read_configuration(&q, input_until(&in, '\0'));
    if (rc != 0) {
        claim_refusal(rc);
        return 0;
    }
    tensors_write(&in);
    struct safetensors *s = tensors_open();
    if (s) {
        read_stored(s, &q, "m.weight", 0);
        read_stored(s, &q, "m", 2);
    }
    safetensors_close(s);
    claim_files_closed(mark);
    return 0;
}
