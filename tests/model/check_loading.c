/* Weights on their way from files to a device with memory of its own: the upload of such a device run over the host's, whose copies come
 * as late as they may. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "model/format.h"
#include "model/model_internal.h"
#include "model/write.h"
#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/failing_device.h"
#include "tests/support/faulty_host.h"
#include "tests/support/support.h"

/* --- made-up bindings, one of every kind ------------------------------------------------------------------------- */

enum { KINDS = 7, ROWS = 700, COLS = 1030, EXPERTS = 3 };
static const struct kind {
    const char *name;
    int64_t rows, cols, all, first, step, stack, index;
    bool is_transposed;
} kinds[KINDS] = {
    {"plain, more than a buffer", 5003, COLS, 5003, 0, 1, 0, 0, false},
    {"rows of one", ROWS, COLS, 3 * ROWS, ROWS, 1, 0, 0, false},
    {"every second row", ROWS, COLS, 2 * ROWS, 1, 2, 0, 0, false},
    {"stacked", ROWS, COLS, ROWS, 0, 1, EXPERTS, 2, false},
    {"stacked, transposed, every second row", ROWS, COLS, 2 * ROWS, 1, 2, EXPERTS, 1, true},
    {"stacked numbers that lie apart", 1, COLS, 2 * COLS, 1, 2, EXPERTS, 1, false},
    {"a norm", 1, COLS, 1, 0, 1, 0, 0, false},
};

static size_t tensor_elements(const struct kind *k) {
    const bool is_vector = k->rows == 1 && k->stack > 0;
    return (size_t)(k->stack ? k->stack : 1) * (size_t)k->all * (size_t)(is_vector ? 1 : k->cols);
}

/* Where [row, col] lies in the tensor. */
static size_t element_at(const struct kind *k, int64_t row, int64_t col) {
    if (k->rows == 1 && k->stack > 0) return (size_t)(k->index * k->all + k->first + col * k->step);
    const int64_t r = k->first + row * k->step, matrix = k->index * k->all * k->cols;
    return (size_t)(matrix + (k->is_transposed ? col * k->all + r : r * k->cols + col));
}

struct made {
    struct model m;
    struct binding bindings[KINDS];
    struct weight weights[KINDS];
    struct mapping map;
    const char *tensors[KINDS]; /* in the mapping */
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    char path[512];
};

static enum dtype type_of_kind(int kind, enum dtype type) {
    return type == DTYPES ? (enum dtype[]){DTYPE_BF16, DTYPE_F32, DTYPE_F16}[kind % 3] : type;
}

/* Every 16-bit pattern comes, NaN and the infinite too. */
static void write_tensors(struct made *s, enum dtype type) {
    struct buf bytes = {0};
    for (int k = 0; k < KINDS; k++) {
        const size_t n = tensor_elements(&kinds[k]) * (size_t)dtype_bytes(type_of_kind(k, type)) / 2;
        buf_reserve(&bytes, 2 * n);
        uint16_t *to = (uint16_t *)(void *)(bytes.data + bytes.len);
        for (size_t i = 0; i < n; i++) to[i] = (uint16_t)(i * 40503u + i / 65536 + (size_t)k);
        bytes.len += 2 * n;
        if (bytes.len % 4) buf_append(&bytes, "\0", 2);
    }
    snprintf(s->path, sizeof s->path, "%s/tensors", temp_dir());
    damage_write_file(s->path, bytes.data, bytes.len);
    buf_free(&bytes);
}

static void bind(struct made *s, int k, const char *tensor, enum dtype format) {
    const struct kind *kind = &kinds[k];
    struct binding *b = &s->bindings[k];
    *b = (struct binding){.weight = &s->weights[k], .rows = kind->rows, .cols = kind->cols, .all = kind->all};
    b->first = kind->first, b->step = kind->step, b->stack = kind->stack, b->index = kind->index;
    b->is_transposed = kind->is_transposed, b->is_copied = true, b->file_format = format;
    b->file = tensor + element_at(kind, 0, 0) * (size_t)dtype_bytes(format);
    snprintf(b->name, sizeof b->name, "%s", kind->name);
    s->weights[k] = (struct weight){.rows = (int32_t)kind->rows, .cols = (int32_t)kind->cols, .format = format};
    s->tensors[k] = tensor;
}

/* `type` DTYPES: some of each. 0, or the error of the device. */
static int open_made(struct made *s, enum dtype type, int threads) {
    write_tensors(s, type);
    ck_ok(mapping_open(&s->map, s->path, 1));
    const char *at = s->map.data;
    for (int k = 0; k < KINDS; k++) {
        bind(s, k, at, type_of_kind(k, type));
        at += (tensor_elements(&kinds[k]) * (size_t)dtype_bytes(type_of_kind(k, type)) + 3) / 4 * 4;
    }
    s->m = (struct model){.name = "made", .bindings = s->bindings, .binding_count = KINDS};
    s->m.weight_type = model_device_type(&s->m);
    TRY(device_open(&s->device, "host", &(struct device_options){.threads = threads}));
    TRY(stream_create(s->device, &s->stream));
    TRY(pool_create(s->device, model_device_bytes(&s->m) + POOL_ALIGN, &s->pool));
    void *weights;
    TRY(pool_slice(s->pool, POOL_WEIGHTS, "weights", model_device_bytes(&s->m), &weights));
    s->m.weights = weights;
    s->m.device = s->device;
    return 0;
}

static void close_made(struct made *s) {
    pool_destroy(s->pool);
    stream_destroy(s->stream);
    device_close(s->device);
    mapping_close(&s->map);
    unlink(s->path);
}

/* To nearest, ties to even, by arithmetic. */
static uint16_t nearest_bf16(float x) {
    if (isnan(x)) return (uint16_t)(fmath_bits(x) >> 16 | 0x40);
    const uint32_t low = fmath_bits(x) & 0xFFFF0000u, rest = fmath_bits(x) & 0xFFFF;
    const bool up = rest > 0x8000 || (rest == 0x8000 && (low >> 16 & 1));
    return (uint16_t)((low >> 16) + up);
}

static void check_weight(const struct made *s, int k) {
    const struct kind *kind = &kinds[k];
    const enum dtype from = s->bindings[k].file_format, to = s->m.weight_type;
    const uint16_t *got = s->weights[k].data;
    require(s->weights[k].format == to, "%s: a type of its own", kind->name);
    for (int64_t r = 0; r < kind->rows; r++)
        for (int64_t c = 0; c < kind->cols; c++) {
            const size_t at = element_at(kind, r, c);
            const uint16_t expected = from == to ? ((const uint16_t *)(const void *)s->tensors[k])[at]
                                                 : nearest_bf16(format_widen(s->tensors[k], from, (int64_t)at));
            require(got[r * kind->cols + c] == expected, "%s [%d, %d]: %04x, expected %04x", kind->name, (int)r, (int)c,
                    (unsigned)got[r * kind->cols + c], (unsigned)expected);
        }
}

/* Loop index: all tensors BF16, all F16, some of each; by one thread and by four. */
START_TEST(every_kind_of_binding_arrives_as_it_lies_in_the_file)
{
    static struct made s;
    const enum dtype types[] = {DTYPE_BF16, DTYPE_F16, DTYPES};
    faulty_host.copies_late = true;
    ck_ok(open_made(&s, types[_i % 3], _i / 3 ? 4 : 1));
    ck_ok(model_upload_weights(&s.m, s.stream, NULL));
    for (int k = 0; k < KINDS; k++) check_weight(&s, k);
    close_made(&s);
}
END_TEST

/* The sum of 1 and a number of 16 bits has more than those, as GGUF files of Gemmas have it. */
START_TEST(a_norm_whose_file_holds_one_more_keeps_the_bits_of_its_weight)
{
    static struct made s;
    struct norm norm = {0};
    const int k = KINDS - 1;
    ck_ok(open_made(&s, DTYPE_F32, 1));
    float *sums = malloc(COLS * sizeof *sums);
    for (int i = 0; i < COLS; i++) sums[i] = 1 + format_widen(&(uint16_t){(uint16_t)(0x3A00 + i)}, DTYPE_BF16, 0);
    s.bindings[k].norm = &norm, s.bindings[k].held = 1, s.bindings[k].file = sums;
    ck_ok(model_upload_weights(&s.m, s.stream, NULL));
    const uint16_t *got = s.weights[k].data;
    for (int i = 0; i < COLS; i++) ck_assert_int_eq(got[i], 0x3A00 + i);
    ck_assert(norm.offset == 1);
    free(sums);
    close_made(&s);
}
END_TEST

START_TEST(a_file_that_is_cut_short_while_it_is_loaded_is_one_sentence)
{
    static struct made s;
    ck_ok(open_made(&s, DTYPE_BF16, 4));
    ck_assert_int_eq(truncate(s.path, 6 << 20), 0); /* within the first tensor */
    ck_assert_int_eq(model_upload_weights(&s.m, s.stream, NULL), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "tensors: the file was cut short while it was in use"));
    check_sentence();
    close_made(&s);
}
END_TEST

/* --- faults of the device --------------------------------------------------------------------------------------- */

START_TEST(a_device_that_fails_in_the_middle_leaves_one_sentence_and_nothing_else)
{
    static const enum device_call calls[] = {CALL_ALLOC_PINNED, CALL_EVENT_CREATE, CALL_COPY,
                                             CALL_EVENT_RECORD, CALL_EVENT_WAIT,   CALL_STREAM_SYNC};
    static struct made s;
    faulty_host.copies_late = true;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        failing_device = (struct failing_device){.watches = true};
        memset(&s, 0, sizeof s);
        ck_ok(open_made(&s, DTYPE_BF16, 2));
        failing_device.call = calls[i], failing_device.for_good = true;
        failing_device.at = calls[i] == CALL_COPY || calls[i] == CALL_EVENT_RECORD ? 3 : 1;
        const int rc = model_upload_weights(&s.m, s.stream, NULL);
        ck_assert_msg(rc == ERR_DEVICE || rc == ERR_MEMORY, "%s: %d", device_call_names[calls[i]], rc);
        ck_assert_ptr_nonnull(strstr(err_message(), DEVICE_GONE));
        check_sentence();
        close_made(&s);
        ck_assert_msg(failing_device.live == 0, "%s: %d things of the device were left", device_call_names[calls[i]],
                      failing_device.live);
    }
}
END_TEST

/* --- checkpoints ------------------------------------------------------------------------------------------------ */

struct loaded {
    struct device *device;
    struct stream *stream;
    struct pool *pool;
    struct model *m;
};

/* `elsewhere`: as on a device that does not read the files, and 16 bits alone. */
static void load(struct loaded *l, const char *dir, bool elsewhere, const struct progress *progress) {
    void *weights;
    ck_ok(device_open(&l->device, "host", &(struct device_options){.threads = 3}));
    ck_ok(stream_create(l->device, &l->stream));
    ck_ok(model_open(&l->m, test_checkpoint(dir), "target", (struct model_numbers){0}, l->device));
    if (elsewhere) {
        l->m->is_mapped = l->m->keeps_quantised = false;
        for (int i = 0; i < l->m->binding_count; i++) l->m->bindings[i].is_copied = l->m->bindings[i].weight != NULL;
    }
    const size_t bytes = model_device_bytes(l->m);
    ck_ok(pool_create(l->device, bytes + POOL_ALIGN, &l->pool));
    ck_ok(pool_slice(l->pool, POOL_WEIGHTS, "weights", bytes, &weights));
    l->m->weights = weights;
    ck_ok(model_upload(l->m, l->stream, progress));
}

static void unload(struct loaded *l) {
    pool_destroy(l->pool);
    model_close(l->m);
    stream_destroy(l->stream);
    device_close(l->device);
}

static void compare_weights(const struct loaded *here, const struct loaded *there, const char *dir) {
    static float wide[1 << 16];
    for (int i = 0; i < here->m->binding_count; i++) {
        const struct binding *b = &here->m->bindings[i];
        const struct weight *w = b->weight, *other = there->m->bindings[i].weight;
        for (int r = 0; w && r < w->rows; r++) {
            const float held = b->norm ? there->m->bindings[i].norm->offset - b->norm->offset : 0;
            const uint16_t *got = (const uint16_t *)other->data + (size_t)r * (size_t)other->cols;
            format_of(w->format)->dequantise(wide, w, r, 0, w->cols);
            for (int c = 0; c < w->cols; c++) {
                const uint16_t expected =
                    other->format == DTYPE_F16 ? format_to_f16(wide[c]) : nearest_bf16(wide[c] - held);
                require(got[c] == expected, "%s: %s [%d, %d] is %04x, expected %04x", dir, b->name, r, c,
                        (unsigned)got[c], (unsigned)expected);
            }
        }
    }
}

static void check_checkpoint(const char *dir) {
    struct loaded here, there;
    faulty_host.copies_late = false;
    load(&here, dir, false, NULL);
    faulty_host.copies_late = true;
    load(&there, dir, true, NULL);
    compare_weights(&here, &there, dir);
    unload(&there), unload(&here);
}

/* As the host reads them where they lie. */
START_TEST(checkpoints_of_every_form_hold_the_same_numbers_on_either_kind_of_device)
{
    static const char *const names[] = {"families/gpt-oss-bf16",    "families/gpt-oss-mxfp4", "families/phi3",
                                        "families/gemma4-moe-flat", "families/mixtral",       "formats/gguf-q4_k_m",
                                        "formats/awq-g128",         "formats/gptq-desc-act",  "formats/ct-fp8-channel",
                                        "formats/bnb-nf4",          "formats/nvfp4",          "formats/gguf-gemma3"};
    check_checkpoint(asset_path("target"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "fixtures/%s", names[i]);
        if (shared_path(path))
            check_checkpoint(shared_path(path));
        else if (i == 0)
            skip("no test data beside the checkout");
    }
}
END_TEST

/* --- progress --------------------------------------------------------------------------------------------------- */

struct watcher {
    char what[32];
    int64_t done, total;
    int ends; /* times that all was done */
};

static void watch(void *user, const char *what, int64_t done, int64_t total) {
    struct watcher *w = user;
    if (w->total == 0) {
        snprintf(w->what, sizeof w->what, "%s", what);
        w->total = total;
    }
    ck_assert_str_eq(what, w->what);
    ck_assert_int_eq(total, w->total);
    ck_assert_int_gt(done, w->done);
    ck_assert_int_le(done, total);
    w->done = done;
    w->ends += done == total;
}

/* Loop index: read in place, copied. */
START_TEST(progress_grows_to_the_end_once)
{
    struct loaded l;
    struct watcher w = {0};
    load(&l, asset_path("target"), _i, &(struct progress){watch, &w});
    ck_assert_str_eq(w.what, "loading target");
    ck_assert_int_eq(w.ends, 1);
    ck_assert_int_eq(w.done, w.total);
    unload(&l);
}
END_TEST

/* --- shapes, written -------------------------------------------------------------------------------------------- */

static const char *const shapes[] = {
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"hidden_size\": 64, \"intermediate_size\": 160, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 300, "
    "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, "
    "\"tie_word_embeddings\": false}",
    "{\"architectures\": [\"Phi3ForCausalLM\"], \"hidden_size\": 64, \"intermediate_size\": 96, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 200, "
    "\"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000}",
    "{\"architectures\": [\"GptOssForCausalLM\"], \"vocab_size\": 128, \"hidden_size\": 64, "
    "\"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 16, \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 16}",
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const char *shape_file(int i) {
    static char path[512];
    snprintf(path, sizeof path, "%s/shape%d.json", temp_dir(), i);
    damage_write_text(path, shapes[i]);
    return path;
}

static int write_shape(const char *shape, const char *dir, int64_t shard_bytes, struct watcher *w,
                       struct written *out) {
    struct device *device;
    struct model *m;
    ck_ok(device_open(&device, "host", &(struct device_options){.threads = 2}));
    ck_ok(model_open(&m, test_shape(shape), "target", (struct model_numbers){0}, device));
    int rc = model_write(m, dir, shard_bytes, &(struct progress){watch, w}, out);
    model_close(m);
    device_close(device);
    return rc;
}

static struct answer answer_of(const struct checkpoint *c) {
    struct answer answer;
    struct engine *e = must_open(&(struct engine_options){.target = c, .device = "host", .context = 64});
    struct request request = ids_request((const int32_t[]){3, 40, 77}, 3, 24);
    run_requests(e, &request, 1, &answer);
    free_requests(&request, 1);
    engine_destroy(e);
    return answer;
}

/* Loop index: the shape, in files of 50 kB and in one. The last has its experts in one tensor, so its numbers are others. */
START_TEST(a_shape_that_was_written_answers_as_it_does_without_files)
{
    const char *shape = shape_file(_i / 2);
    char dir[512];
    struct written written;
    struct watcher w = {0};
    snprintf(dir, sizeof dir, "%s/written", temp_dir());
    ck_ok(write_shape(shape, dir, _i % 2 ? WRITE_SHARD_BYTES : 50000, &w, &written));
    ck_assert_int_eq(w.ends, 1);
    ck_assert_int_eq(2 * w.total, written.bytes);
    if (_i % 2)
        ck_assert_int_eq(written.files, 1);
    else
        ck_assert_int_gt(written.files, 2);
    struct answer here = answer_of(test_shape(shape)), there = answer_of(test_checkpoint(dir));
    if (_i / 2 < 2) must_equal(&there, &here, dir);
    ck_assert_int_eq(there.ids.len, here.ids.len);
    free_answers(&here, 1), free_answers(&there, 1);
}
END_TEST

START_TEST(nothing_is_written_over_and_a_write_that_fails_leaves_nothing)
{
    const char *shape = shape_file(0);
    char dir[512], file[600];
    struct written written;
    struct stat st;
    snprintf(dir, sizeof dir, "%s/there", temp_dir());
    snprintf(file, sizeof file, "%s/notes", dir);
    ck_assert_int_eq(mkdir(dir, 0777), 0);
    damage_write_text(file, "mine");
    ck_assert_int_eq(write_shape(shape, dir, WRITE_SHARD_BYTES, &(struct watcher){0}, &written), ERR_IO);
    ck_assert_ptr_nonnull(strstr(err_message(), "there: is not empty, and nothing is written over"));
    ck_assert_int_eq(unlink(file), 0);

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, 20000}), 0);
    ck_assert_int_eq(write_shape(shape, dir, 50000, &(struct watcher){0}, &written), ERR_IO);
    check_sentence();
    ck_assert_int_eq(rmdir(dir), 0); /* empty, and still there, as it was before */
    ck_assert_int_eq(write_shape(shape, dir, 50000, &(struct watcher){0}, &written), ERR_IO);
    ck_assert_int_ne(stat(dir, &st), 0);
}
END_TEST

Suite *check_loading(void) {
    Suite *suite = suite_create("loading");
    TCase *tc = tcase_create("loading");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_kind_of_binding_arrives_as_it_lies_in_the_file, 0, 6);
    tcase_add_test(tc, a_norm_whose_file_holds_one_more_keeps_the_bits_of_its_weight);
    tcase_add_test(tc, a_file_that_is_cut_short_while_it_is_loaded_is_one_sentence);
    tcase_add_test(tc, a_device_that_fails_in_the_middle_leaves_one_sentence_and_nothing_else);
    tcase_add_test(tc, checkpoints_of_every_form_hold_the_same_numbers_on_either_kind_of_device);
    tcase_add_loop_test(tc, progress_grows_to_the_end_once, 0, 2);
    tcase_add_loop_test(tc, a_shape_that_was_written_answers_as_it_does_without_files, 0, 2 * SHAPES);
    tcase_add_test(tc, nothing_is_written_over_and_a_write_that_fails_leaves_nothing);
    suite_add_tcase(suite, tc);
    return suite;
}
