/* config.json, behind a NUL byte generation_config.json (without one it is not there), and the table of positions. */
#include "model/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 4096, POSITIONS = 5 };

static void claim_dimensions(const struct model_config *c) {
    const char *name = architecture_name(c->arch);
    claim(name && *name, "architecture %d", c->arch);
    claim(c->vocab >= 1 && c->width >= 1 && c->hidden >= 1 && c->layers >= 1 && c->positions >= 1, "a size below 1");
    claim(c->heads >= 1 && c->kv_heads >= 1 && c->heads % c->kv_heads == 0, "%d and %d heads", c->heads, c->kv_heads);
    claim(c->head_dim >= HEAD_DIM_MIN && c->head_dim <= HEAD_DIM_MAX && c->head_dim % 2 == 0, "%d", c->head_dim);
    claim(c->window >= 0, "a window of %d", c->window);
    claim(c->norm_eps > 0 && c->norm_eps <= 1, "an epsilon of %g", (double)c->norm_eps);
    /* products that the layout of weights and caches takes */
    int64_t bytes;
    claim(!__builtin_mul_overflow((int64_t)c->vocab * c->width, 4, &bytes), "an embedding too large");
    claim(!__builtin_mul_overflow((int64_t)c->hidden * c->width, 4 * c->layers, &bytes), "an MLP too large");
}

static void claim_ids(const struct model_config *c) {
    claim(c->bos_id >= -1 && c->bos_id < c->vocab, "bos_id %d", c->bos_id);
    claim(c->end_count >= 0 && c->end_count <= END_IDS_MAX, "%d end ids", c->end_count);
    for (int i = 0; i < c->end_count; i++) {
        claim(c->end_ids[i] >= 0 && c->end_ids[i] < c->vocab, "end id %d", c->end_ids[i]);
        claim(i == 0 || c->end_ids[i - 1] < c->end_ids[i], "end id %d does not ascend", c->end_ids[i]);
    }
}

/* Position 0 turns nothing; every pair is a point of the unit circle. */
static void claim_rope(const struct model_config *c) {
    size_t pairs = (size_t)c->head_dim / 2;
    float *rope = malloc(POSITIONS * pairs * 2 * sizeof *rope);
    if (!rope) abort();
    model_config_rope(c, POSITIONS, rope);
    for (size_t i = 0; i < POSITIONS * pairs; i++) {
        float cosine = rope[2 * i], sine = rope[2 * i + 1];
        claim(fabsf(cosine * cosine + sine * sine - 1) < 1e-5f, "pair %zu: %g, %g", i, (double)cosine, (double)sine);
        claim(i >= pairs || (cosine == 1 && sine == 0), "pair %zu: %g, %g", i, (double)cosine, (double)sine);
    }
    free(rope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct model_config c;
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    struct input config = input_until(&in, '\0');
    fuzz_write("config.json", config.data, config.n);
    if (in.n > 0)
        fuzz_write("generation_config.json", in.data, in.n);
    else
        fuzz_remove("generation_config.json");
    forget_error();
    int rc = model_config_load(&c, fuzz_dir());
    if (rc == 0) {
        claim_dimensions(&c);
        claim_ids(&c);
        claim_rope(&c);
    } else {
        claim_refusal(rc);
        claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
    }
    claim_files_closed(mark);
    return 0;
}
