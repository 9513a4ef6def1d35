/* Files of torch.save. The input is a pickle; behind a letter 'z' it is a whole archive. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "model/files/pickle.h"

enum { FUZZ_BYTES_MAX = 4096 };

static bool lies_within(const struct pickle_text *text, const char *from, size_t bytes) {
    return text->length == 0 ||
           (text->at >= from && text->length <= bytes && text->at - from <= (long)(bytes - text->length));
}

static void claim_pickle(const char *pickle, size_t bytes) {
    struct pickle_tensor *tensors = (struct pickle_tensor *)&tensors;
    int count = -1;
    forget_error();
    int rc = pickle_tensors(&tensors, &count, pickle, bytes);
    if (rc != 0) {
        claim(!tensors && count == 0, "a result in spite of: %s", err_message());
        claim_refusal(rc);
        return;
    }
    for (int i = 0; i < count; i++) {
        const struct pickle_tensor *t = &tensors[i];
        claim(lies_within(&t->name, pickle, bytes) && lies_within(&t->storage, pickle, bytes), "a text lies outside");
        claim(t->dims >= 0 && t->dims <= TENSOR_DIMS_MAX && t->first >= 0 && t->elements >= 0, "tensor %d", i);
        for (int d = 0; d < t->dims; d++) claim(t->shape[d] >= 0, "tensor %d", i);
    }
    free(tensors);
}

static void claim_tensor(const struct tensor *t) {
    volatile unsigned char sink = 0;
    for (size_t i = 0; i < t->bytes; i++) sink = (unsigned char)(sink + ((const unsigned char *)t->data)[i]);
}

static void claim_archive(const uint8_t *data, size_t n) {
    struct safetensors *s = (struct safetensors *)&s;
    const int mark = files_mark();
    fuzz_write("pytorch_model.bin", data, n);
    forget_error();
    int rc = checkpoint_tensors(fuzz_checkpoint(), &s);
    if (rc != 0) {
        claim(!s, "a result in spite of: %s", err_message());
        claim_refusal(rc);
        claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
    }
    for (int i = 0; rc == 0 && i < safetensors_count(s); i++) {
        claim(i == 0 || strcmp(safetensors_at(s, i - 1)->name, safetensors_at(s, i)->name) < 0, "out of order");
        claim_tensor(safetensors_at(s, i));
    }
    safetensors_close(s);
    fuzz_remove("pytorch_model.bin");
    claim_files_closed(mark);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > FUZZ_BYTES_MAX) return 0;
    if (n > 0 && data[0] == 'z')
        claim_archive(data + 1, n - 1);
    else
        claim_pickle((const char *)data, n);
    return 0;
}
