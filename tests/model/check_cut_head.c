/* A head that is cut to the rows of some ids: these rows, number for number, from every way in which files or loading store a head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "engine/internal.h"
#include "model/format.h"
#include "model/model_internal.h"
#include "tests/support/damage.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

/* As its own draft, on the host, whose numbers can be read. */
static struct engine *open_cut(const char *dir, enum model_weights weights, const char *wish) {
    return must_open(&(struct engine_options){.target = test_checkpoint(dir),
                                              .draft = test_checkpoint(dir),
                                              .target_weights = weights,
                                              .draft_weights = weights,
                                              .draft_vocab = wish,
                                              .device = "host",
                                              .k = 1,
                                              .context = 32,
                                              .threads = 1});
}

static void must_be_row(const struct weight *whole, int id, const struct weight *cut, int row) {
    float expected[1024], got[1024];
    ck_assert(whole->cols <= 1024 && whole->cols == cut->cols);
    format_of(whole->format)->dequantise(expected, whole, id, 0, whole->cols);
    format_of(cut->format)->dequantise(got, cut, row, 0, cut->cols);
    ck_assert_msg(memcmp(expected, got, sizeof *got * (size_t)cut->cols) == 0, "row %d of %d ids is not that of id %d",
                  row, cut->rows, id);
}

/* Ids in a run, alone, the first and the last. */
static const char *write_ids(int vocab, struct ids *ids) {
    static char path[512];
    struct buf text = {0};
    ids->len = 0;
    for (int id = 0; id < vocab; id++)
        if (id == 0 || (id >= 40 && id < 60) || id % 37 == 5 || id == vocab - 1) ids_push(ids, id);
    for (size_t i = ids->len; i > 0; i--) buf_printf(&text, "%d\n", ids->data[i - 1]); /* in any order */
    snprintf(path, sizeof path, "%s/cut.txt", temp_dir());
    damage_write_file(path, text.data, text.len);
    buf_free(&text);
    return path;
}

/* The model is the target of an engine whole, and its own draft with a cut head. */
static void must_be_cut(const char *dir, enum model_weights weights) {
    struct engine *e = open_cut(dir, weights, NULL);
    struct ids ids = {0};
    const char *path = write_ids(e->vocab, &ids);
    engine_destroy(e);
    e = open_cut(dir, weights, path);
    const struct model *whole = e->target_model, *cut = e->proposer->model;
    const struct ids *got = &e->proposer->ids; /* with the end ids */
    ck_assert(got->len >= ids.len && got->len <= ids.len + END_IDS_MAX);
    ck_assert_int_eq(cut->head.rows, (int)got->len);
    ck_assert_int_eq(model_logits_width(cut), (int)got->len);
    ck_assert_int_eq(e->state.vocab_draft, (int)got->len);
    ck_assert_int_eq(e->state.draft_stride, (int)got->len);
    for (size_t i = 0; i < got->len; i++) {
        ck_assert(i == 0 || got->data[i - 1] < got->data[i]);
        ck_assert(e->state.draft_ids[i] == got->data[i] && e->state.draft_index[got->data[i]] == (int)i);
        must_be_row(&whole->head, got->data[i], &cut->head, (int)i);
    }
    for (int id = 0; id < cut->embedding.rows; id += 7) /* whole; of a tied one the target's may be quantised */
        if (whole->embedding.format == cut->embedding.format) must_be_row(&whole->embedding, id, &cut->embedding, id);
    ck_assert_int_eq(model_parameters(cut), model_parameters(whole));
    ck_assert(model_step_bytes(cut) < model_step_bytes(whole));
    ids_free(&ids);
    engine_destroy(e);
}

/* Loop index: as stored, fp8, int4. */
START_TEST(heads_of_files_are_cut_tied_or_not_and_quantised_at_loading)
{
    must_be_cut(asset_path("target"), (enum model_weights)_i);
    static const char *const fixtures[] = {"checkpoints/llama-gqa-tied", "checkpoints/llama-mha-untied",
                                           "checkpoints/qwen2-bias"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "fixtures/%s", fixtures[i]);
        if (shared_path(path)) must_be_cut(shared_path(path), (enum model_weights)_i);
    }
}
END_TEST

START_TEST(heads_of_gguf_blocks_are_cut_as_blocks)
{
    static const char *const files[] = {"gguf-q8_0", "gguf-q4_k", "gguf-q6_k", "gguf-q5_0", "gguf-mxfp4", "gguf-f16"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        snprintf(path, sizeof path, "fixtures/formats/%s", files[i]);
        if (shared_path(path)) must_be_cut(shared_path(path), WEIGHTS_AS_STORED);
    }
    if (!shared_path("fixtures/formats")) skip("no test data beside the checkout");
}
END_TEST

/* --- scales beside the numbers -------------------------------------------------------------------------------- */

static void swap_names(const char *text, const char *a, const char *b, struct buf *out) {
    while (*text) {
        const bool is_a = strncmp(text, a, strlen(a)) == 0, is_b = !is_a && strncmp(text, b, strlen(b)) == 0;
        if (is_a || is_b) {
            buf_puts(out, is_a ? b : a);
            text += strlen(is_a ? a : b);
        } else {
            buf_putc(out, *text++);
        }
    }
}

/* A copy whose head is what the first layer's gate is in the files, which has its shape, and the other way round. */
static const char *swap_head_and_gate(const char *fixture) {
    static char folder[300];
    char path[512];
    struct buf file = {0}, header = {0}, out = {0}, config = {0};
    uint64_t length;
    snprintf(path, sizeof path, "fixtures/formats/%s/model.safetensors", fixture);
    if (!shared_path(path)) return NULL;
    ck_ok(file_read(shared_path(path), 1 << 24, &file));
    memcpy(&length, file.data, sizeof length);
    buf_append(&header, file.data + 8, length);
    swap_names(buf_text(&header), "\"lm_head.", "\"model.layers.0.mlp.gate_proj.", &out);
    const uint64_t swapped = out.len;
    header.len = 0;
    buf_append(&header, (const char *)&swapped, sizeof swapped);
    buf_append(&header, out.data, out.len);
    buf_append(&header, file.data + 8 + length, file.len - 8 - length);
    snprintf(folder, sizeof folder, "%s/%s", temp_dir(), fixture);
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    damage_write_file(path, header.data, header.len);
    snprintf(path, sizeof path, "fixtures/formats/%s/config.json", fixture);
    ck_ok(file_read(shared_path(path), 1 << 20, &config));
    snprintf(path, sizeof path, "%s/config.json", folder);
    damage_write_file(path, config.data, config.len);
    buf_free(&file), buf_free(&header), buf_free(&out), buf_free(&config);
    return folder;
}

START_TEST(heads_with_scales_beside_them_are_cut_as_the_numbers_they_stand_for)
{
    static const char *const fixtures[] = {
        "ct-fp8-channel", "ct-fp8-tensor", "ct-int4-g32-asym", "ct-mxfp4", "gptq-desc-act", "bnb-nf4", "nvfp4"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        const char *dir = swap_head_and_gate(fixtures[i]);
        if (dir) must_be_cut(dir, WEIGHTS_AS_STORED);
    }
    if (!shared_path("fixtures/formats")) skip("no test data beside the checkout");
}
END_TEST

Suite *check_cut_head(void) {
    Suite *suite = suite_create("cut_head");
    TCase *tc = tcase_create("cut_head");
    tcase_add_loop_test(tc, heads_of_files_are_cut_tied_or_not_and_quantised_at_loading, 0, 3);
    tcase_add_test(tc, heads_of_gguf_blocks_are_cut_as_blocks);
    tcase_add_test(tc, heads_with_scales_beside_them_are_cut_as_the_numbers_they_stand_for);
    suite_add_tcase(suite, tc);
    return suite;
}
