#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/files/safetensors.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

static const char *path_of(const char *name) {
    static char paths[2][256];
    static int turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    return path;
}

/* The header's length, the header, and `bytes` of data that are never 0. */
static void put_file(const char *name, uint64_t length, const char *header, size_t header_bytes, size_t bytes) {
    struct buf file = {0};
    for (int i = 0; i < 8; i++) buf_putc(&file, (char)(length >> 8 * i & 0xff));
    buf_append(&file, header, header_bytes);
    for (size_t i = 0; i < bytes; i++) buf_putc(&file, (char)(1 + i % 255));
    damage_write_file(path_of(name), file.data, file.len);
    buf_free(&file);
}

static void put(const char *name, const char *header, size_t bytes) {
    put_file(name, strlen(header), header, strlen(header), bytes);
}

static void remove_files(void) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "a.safetensors",
                                        "b.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(path_of(names[i]));
}

static int open_header(struct safetensors **out, const char *header, size_t bytes) {
    put("model.safetensors", header, bytes);
    return checkpoint_tensors(test_checkpoint(temp_dir()), out);
}

static void expect_refusal(int code, const char *file, const char *words) {
    struct safetensors *s = (struct safetensors *)&s;
    int rc = checkpoint_tensors(test_checkpoint(temp_dir()), &s);
    ck_assert_msg(rc == code, "code %d, expected %d (%s)", rc, code, words);
    ck_assert_ptr_null(s);
    check_sentence();
    ck_assert_msg(strstr(err_message(), file) && strstr(err_message(), words), "'%s' lacks '%s'", err_message(), words);
}

static void refuse(const char *header, size_t bytes, const char *words) {
    put("model.safetensors", header, bytes);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", words);
}

static const char good[] = "{\"__metadata__\": {\"format\": \"pt\"}, \"b.weight\": {\"dtype\": \"BF16\", \"shape\": "
                           "[2, 3], \"data_offsets\": [8, 20]}, "
                           "\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
                           "\"flags\": {\"dtype\": \"BOOL\", \"shape\": [3], \"data_offsets\": [20, 23]}, "
                           "\"none\": {\"dtype\": \"I64\", \"shape\": [0, 4], \"data_offsets\": [23, 23]}, "
                           "\"one\": {\"dtype\": \"F16\", \"shape\": [], \"data_offsets\": [23, 25]}}   ";

START_TEST(tensors_are_listed_by_name_with_shape_and_data)
{
    struct safetensors *s;
    ck_ok(open_header(&s, good, 25));
    ck_assert_int_eq(safetensors_count(s), 5);
    for (int i = 1; i < 5; i++) ck_assert_str_lt(safetensors_at(s, i - 1)->name, safetensors_at(s, i)->name);
    const struct tensor *b = safetensors_find(s, "b.weight"), *one = safetensors_find(s, "one");
    ck_assert_str_eq(b->dtype, "BF16");
    ck_assert(b->dims == 2 && b->shape[0] == 2 && b->shape[1] == 3 && b->bytes == 12);
    ck_assert_int_eq(*(const unsigned char *)b->data, 9);
    ck_assert_str_eq(b->file, path_of("model.safetensors"));
    ck_assert(one->dims == 0 && one->bytes == 2);
    ck_assert(safetensors_find(s, "none")->bytes == 0);
    ck_assert_ptr_null(safetensors_find(s, "A"));
    ck_assert_ptr_null(safetensors_find(s, ""));
    ck_assert_ptr_null(safetensors_find(s, "__metadata__"));
    safetensors_close(s);
}
END_TEST

START_TEST(every_element_is_aligned_wherever_the_file_has_it)
{
    for (int shift = 0; shift < 8; shift++) {
        char header[512];
        struct safetensors *s;
        snprintf(
            header, sizeof header,
            "{\"pad\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]},\"x\":{\"dtype\":\"F32\",\"shape\":[3],"
            "\"data_offsets\":[%d,%d]},\"y\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[%d,%d]}}",
            shift, shift, shift, shift + 12, shift + 12, shift + 20);
        ck_ok(open_header(&s, header, 28));
        const struct tensor *x = safetensors_find(s, "x"), *y = safetensors_find(s, "y");
        ck_assert_uint_eq((uintptr_t)x->data % 4, 0);
        ck_assert_uint_eq((uintptr_t)y->data % 8, 0);
        for (int i = 0; i < 12; i++) ck_assert_int_eq(((const unsigned char *)x->data)[i], 1 + shift + i);
        for (int i = 0; i < 8; i++) ck_assert_int_eq(((const unsigned char *)y->data)[i], 13 + shift + i);
        safetensors_close(s);
    }
}
END_TEST

START_TEST(weight_checks_shape_and_dtype_and_names_the_file)
{
    struct safetensors *s;
    const struct tensor *t;
    enum dtype format;
    ck_ok(open_header(&s, good, 25));
    ck_ok(safetensors_expect(s, "b.weight", (const int64_t[]){2, 3}, 2, &t, &format));
    ck_assert(format == DTYPE_BF16 && t == safetensors_find(s, "b.weight"));
    ck_ok(safetensors_expect(s, "a", (const int64_t[]){2}, 1, &t, &format));
    ck_assert(format == DTYPE_F32 && t->dims == 1);
    static const struct {
        const char *name;
        int64_t shape[2];
        int dims;
        const char *words;
    } wrong[] = {
        {"b.weight",
         {3, 2},
         2,
         "model.safetensors: tensor 'b.weight' is [2, 3] BF16, expected [3, 2] BF16, F16 or F32"},
        {"b.weight", {6}, 1, "tensor 'b.weight' is [2, 3] BF16, expected [6] BF16, F16 or F32"},
        {"b.weight", {3}, 1, "expected [3]"},
        {"a", {2, 1}, 2, "tensor 'a' is [2] F32, expected [2, 1]"},
        {"a", {3}, 1, "tensor 'a' is [2] F32, expected [3]"},
        {"flags", {3}, 1, "tensor 'flags' is [3] BOOL, expected [3] BF16, F16 or F32"},
        {"one", {1}, 1, "tensor 'one' is [] F16, expected [1]"},
        {"B.weight", {2, 3}, 2, "model.safetensors: tensor 'B.weight' is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(safetensors_expect(s, wrong[i].name, wrong[i].shape, wrong[i].dims, &t, &format), ERR_FORMAT);
        ck_assert_msg(strstr(err_message(), wrong[i].words) != NULL, "%s", err_message());
    }
    safetensors_close(s);
}
END_TEST

START_TEST(a_matrix_of_one_row_is_a_weight_of_one_row)
{
    struct safetensors *s;
    const struct tensor *t;
    enum dtype format;
    ck_ok(open_header(&s, "{\"x\":{\"dtype\":\"F16\",\"shape\":[1,4],\"data_offsets\":[0,8]}}", 8));
    ck_ok(safetensors_expect(s, "x", (const int64_t[]){4}, 1, &t, &format));
    ck_assert(t->dims == 2 && format == DTYPE_F16);
    safetensors_close(s);
}
END_TEST

START_TEST(header_lengths_that_lie_are_refused)
{
    put_file("model.safetensors", 2, "{}", 2, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "has no tensors");
    put_file("model.safetensors", 1000, "{}", 2, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "the header ends at byte 1008, the file has 10");
    put_file("model.safetensors", 3, "{}", 2, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "the header ends at byte 11, the file has 10");
    put_file("model.safetensors", 100000001, "{}", 2, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "100000001");
    put_file("model.safetensors", UINT64_MAX, "{}", 2, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "18446744073709551615");
    put_file("model.safetensors", 0, "", 0, 0);
    expect_refusal(ERR_FORMAT, "/model.safetensors: ", "header: malformed JSON");
    for (size_t bytes = 0; bytes < 8; bytes++) {
        damage_write_file(path_of("model.safetensors"), "\2\0\0\0\0\0\0", bytes);
        expect_refusal(ERR_FORMAT, "/model.safetensors: has ", "at least 8 are needed");
    }
}
END_TEST

START_TEST(a_truncated_file_is_refused_with_both_sizes)
{
    char words[64];
    snprintf(words, sizeof words, "ends at byte %zu, the file has %zu", 8 + strlen(good) + 25, 8 + strlen(good) + 24);
    refuse(good, 24, words);
    refuse(good, 0, "is it truncated?");
}
END_TEST

#define TENSOR(dtype, shape, offsets) "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

START_TEST(tensors_that_do_not_fit_their_bytes_are_refused_by_name)
{
    static const struct {
        const char *header, *words;
    } wrong[] = {
        {TENSOR("\"F32\"", "[2]", "[0,4]"), "tensor 'x' needs 8 bytes by shape and dtype, its data_offsets hold 4"},
        {TENSOR("\"F32\"", "[2]", "[8,0]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[-8,0]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[0.5,8.5]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[0,8,16]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[8]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[\"0\",\"8\"]"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "null"), "data_offsets"},
        {TENSOR("\"F32\"", "[2]", "[9007199254740984,9007199254740992]"), "truncated"},
        {TENSOR("\"F32\"", "[2]", "[18446744073709551608,18446744073709551616]"), "data_offsets"},
        {TENSOR("\"F32\"", "[-2]", "[0,8]"), "dimension"},
        {TENSOR("\"F32\"", "[1.5]", "[0,6]"), "dimension"},
        {TENSOR("\"F32\"", "[[2]]", "[0,8]"), "dimension"},
        {TENSOR("\"F32\"", "2", "[0,8]"), "no shape"},
        {TENSOR("\"F32\"", "null", "[0,8]"), "no shape"},
        {TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "shape"},
        {TENSOR("\"F32\"", "[4611686018427387904,4]", "[0,0]"), "dimension"},
        {TENSOR("\"F32\"", "[2147483648,2147483648,2]", "[0,0]"), "shape"},
        {TENSOR("\"F4\"", "[3]", "[0,2]"), "shape"},
        {TENSOR("7", "[2]", "[0,8]"), "no dtype"},
        {TENSOR("null", "[2]", "[0,8]"), "no dtype"},
        {"{\"x\":[]}", "tensor 'x'"},
        {"{\"x\":null}", "tensor 'x'"},
        {"{\"__metadata__\":[]}", "__metadata__"},
        {"[]", "no JSON object"},
        {"{", "header: malformed JSON"},
        {"{}", "has no tensors"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuse(wrong[i].header, 16, wrong[i].words);
}
END_TEST

START_TEST(unknown_dtypes_and_too_many_dimensions_are_refused_by_name)
{
    put("model.safetensors", TENSOR("\"f32\"", "[2]", "[0,8]"), 8);
    expect_refusal(ERR_UNSUPPORTED, "/model.safetensors: ", "tensor 'x' has the unknown dtype 'f32'");
    put("model.safetensors", TENSOR("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 8);
    expect_refusal(ERR_UNSUPPORTED, "/model.safetensors: ", "more than 8 dimensions");
    struct safetensors *s;
    ck_ok(open_header(&s, TENSOR("\"U8\"", "[1,1,1,1,1,1,1,1]", "[0,1]"), 8));
    safetensors_close(s);
    ck_ok(open_header(&s, TENSOR("\"F32\"", "[4294967296,4294967296,0]", "[3,3]"), 8));
    safetensors_close(s);
}
END_TEST

START_TEST(overlapping_and_repeated_tensors_are_refused)
{
    refuse("{\"x\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]},\"y\":{\"dtype\":\"U8\",\"shape\":[5],"
           "\"data_offsets\":[0,5]}}",
           12, "tensors 'y' and 'x' overlap");
    refuse("{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"x\":{\"dtype\":\"U8\",\"shape\":[4],"
           "\"data_offsets\":[4,8]}}",
           8, "tensor 'x' is there twice");
}
END_TEST

START_TEST(a_directory_without_weights_is_refused)
{
    remove_files();
    expect_refusal(ERR_IO, temp_dir(), "neither model.safetensors nor pytorch_model.bin, nor an index of several");
    safetensors_close(NULL);
}
END_TEST

/* ---- shards ---- */

#define IN_A                                                                                                       \
    "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_" \
    "offsets\":[4,5]}}"
#define IN_B       "{\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define INDEX(map) "{\"metadata\": {\"total_size\": 9}, \"weight_map\": " map "}"
static const char good_index[] =
    INDEX("{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\", \"z\": \"a.safetensors\"}");

static void put_shards(const char *index) {
    remove_files();
    put("a.safetensors", IN_A, 5);
    put("b.safetensors", IN_B, 4);
    damage_write_text(path_of("model.safetensors.index.json"), index);
}

START_TEST(shards_make_one_sorted_list)
{
    struct safetensors *s;
    put_shards(good_index);
    ck_ok(checkpoint_tensors(test_checkpoint(temp_dir()), &s));
    ck_assert_int_eq(safetensors_count(s), 3);
    ck_assert_str_eq(safetensors_at(s, 1)->name, "y");
    ck_assert_str_eq(safetensors_at(s, 1)->file, path_of("b.safetensors"));
    ck_assert_str_eq(safetensors_find(s, "z")->file, path_of("a.safetensors"));
    const struct tensor *t;
    enum dtype format;
    ck_assert_int_eq(safetensors_expect(s, "q", (const int64_t[]){1}, 1, &t, &format), ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err_message(), "/model.safetensors.index.json: tensor 'q' is missing"));
    safetensors_close(s);
}
END_TEST

START_TEST(one_file_goes_before_an_index)
{
    struct safetensors *s;
    put_shards("{");
    ck_ok(open_header(&s, IN_B, 4));
    ck_assert_int_eq(safetensors_count(s), 1);
    safetensors_close(s);
}
END_TEST

START_TEST(the_shards_say_which_tensors_there_are)
{
    static const char *const indices[] = {
        INDEX("{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}"),
        INDEX("{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\", \"z\": \"b.safetensors\"}"),
        INDEX("{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\", \"zz\": \"a.safetensors\"}"),
    };
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        struct safetensors *s;
        const struct tensor *t;
        put_shards(indices[i]);
        ck_ok(checkpoint_tensors(test_checkpoint(temp_dir()), &s));
        ck_assert_int_eq(safetensors_count(s), 3);
        ck_assert_str_eq(safetensors_find(s, "z")->file, path_of("a.safetensors"));
        ck_assert_ptr_null(safetensors_find(s, "zz"));
        ck_assert_int_eq(safetensors_expect_type(s, "zz", "U8", (const int64_t[]){1}, 1, &t), ERR_FORMAT);
        ck_assert_msg(strstr(err_message(), i == 2 ? "/model.safetensors.index.json: tensor 'zz' is placed in "
                                                     "a.safetensors, which does not have it"
                                                   : ".index.json: tensor 'zz' is missing"),
                      "%s", err_message());
        safetensors_close(s);
    }
}
END_TEST

START_TEST(an_index_that_names_no_shards_is_refused)
{
    static const struct {
        const char *index, *file, *words;
    } wrong[] = {
        {INDEX("{}"), ".index.json: ", "weight_map"},
        {INDEX("[\"x\"]"), ".index.json: ", "weight_map"},
        {"{}", ".index.json: ", "weight_map"},
        {"[]", ".index.json: ", "weight_map"},
        {INDEX("{\"x\": 1}"), ".index.json: ", "tensor 'x'"},
        {INDEX("{\"x\": \"\"}"), ".index.json: ", "tensor 'x'"},
        {INDEX("{\"x\": \"..\"}"), ".index.json: ", "no file of this directory"},
        {INDEX("{\"x\": \"../a.safetensors\"}"), ".index.json: ", "no file of this directory"},
        {INDEX("{\"x\": \"/etc/passwd\"}"), ".index.json: ", "no file of this directory"},
        {"{", ".index.json: ", "malformed JSON"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_shards(wrong[i].index);
        expect_refusal(ERR_FORMAT, wrong[i].file, wrong[i].words);
    }
    put_shards(INDEX("{\"x\": \"c.safetensors\"}"));
    expect_refusal(ERR_IO, "/c.safetensors: ", "cannot open");
    put_shards(good_index);
    put("b.safetensors", IN_A, 5);
    expect_refusal(ERR_FORMAT, "a.safetensors", "tensor 'x' is there twice, the other in");
}
END_TEST

/* ---- real and damaged files ---- */

/* Every byte of every tensor can be read, and every tensor is found by its name. `is_filled`: no byte is 0, as past the
 * end of a mapped file they are. */
static void read_everything(const struct safetensors *s, bool is_filled) {
    size_t zeros = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        const unsigned char *bytes = t->data;
        for (size_t b = 0; b < t->bytes; b++) zeros += bytes[b] == 0;
        ck_assert_ptr_eq(safetensors_find(s, t->name), t);
        ck_assert(i == 0 || strcmp(safetensors_at(s, i - 1)->name, t->name) < 0);
        ck_assert(t->dims >= 0 && t->dims <= TENSOR_DIMS_MAX && *t->file && *t->dtype);
    }
    if (is_filled) ck_assert_uint_eq(zeros, 0);
}

START_TEST(real_checkpoints_open_with_their_weights)
{
    static const char *const names[] = {"fixtures/checkpoints/qwen2-bias", "fixtures/checkpoints/qwen3-qknorm",
                                        "models/stories260K", "models/smollm2-draft"};
    struct safetensors *s;
    const struct tensor *t;
    enum dtype format;
    ck_ok(checkpoint_tensors(test_checkpoint(asset_path("draft")), &s));
    ck_assert_int_eq(safetensors_count(s), 20);
    ck_ok(safetensors_expect(s, "model.embed_tokens.weight", (const int64_t[]){4096, 128}, 2, &t, &format));
    ck_assert_int_eq(format, DTYPE_BF16);
    read_everything(s, false);
    safetensors_close(s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *dir = shared_path(names[i]);
        if (!dir) {
            skip("no shared models");
            return;
        }
        ck_ok(checkpoint_tensors(test_checkpoint(dir), &s));
        ck_assert_ptr_nonnull(safetensors_find(s, "model.norm.weight"));
        read_everything(s, false);
        safetensors_close(s);
    }
}
END_TEST

/* What was damaged opens and reads, or fails with a sentence. */
static void try_open(int *accepted, int *refused) {
    struct safetensors *s;
    err_set(ERR_INTERNAL, "%s", "");
    if (checkpoint_tensors(test_checkpoint(temp_dir()), &s) == 0) {
        read_everything(s, true);
        ++*accepted;
    } else {
        ck_assert_ptr_null(s);
        check_sentence();
        ++*refused;
    }
    safetensors_close(s);
}

START_TEST(damaged_headers_open_sound_or_fail_with_a_sentence)
{
    struct damage damage = {3};
    struct buf header = {0};
    int accepted = 0, refused = 0;
    remove_files();
    for (int i = 0; i < 5000; i++) {
        buf_clear(&header);
        buf_puts(&header, good);
        damage_text(&damage, &header);
        uint64_t length = header.len;
        if (i % 8 == 0) length += damage_below(&damage, 40) - 20u;
        if (i % 32 == 1) length = (uint64_t)damage_below(&damage, UINT32_MAX) << damage_below(&damage, 33);
        put_file("model.safetensors", length, header.data, header.len, i % 4 ? 25 : damage_below(&damage, 40));
        try_open(&accepted, &refused);
    }
    ck_assert_int_gt(accepted, 100);
    ck_assert_int_gt(refused, 2000);
    buf_free(&header);
}
END_TEST

START_TEST(files_cut_at_every_byte_are_refused)
{
    size_t whole = 8 + strlen(good) + 25;
    int accepted = 0, refused = 0;
    remove_files();
    put("model.safetensors", good, 25);
    for (size_t bytes = whole; bytes-- > 0;) {
        ck_assert_int_eq(truncate(path_of("model.safetensors"), (off_t)bytes), 0);
        try_open(&accepted, &refused);
    }
    ck_assert_int_eq(accepted, 0);
    ck_assert_int_eq(refused, (int)whole);
}
END_TEST

START_TEST(damaged_indices_open_sound_or_fail_with_a_sentence)
{
    struct damage damage = {4};
    struct buf index = {0};
    int accepted = 0, refused = 0;
    put_shards(good_index);
    for (int i = 0; i < 3000; i++) {
        buf_clear(&index);
        buf_puts(&index, good_index);
        damage_text(&damage, &index);
        damage_write_file(path_of("model.safetensors.index.json"), index.data, index.len);
        try_open(&accepted, &refused);
    }
    ck_assert_int_gt(accepted, 100);
    ck_assert_int_gt(refused, 1000);
    buf_free(&index);
}
END_TEST

Suite *check_safetensors(void) {
    Suite *suite = suite_create("safetensors");
    TCase *file = tcase_create("file"), *shards = tcase_create("shards"), *damaged = tcase_create("damaged");
    tcase_add_test(file, tensors_are_listed_by_name_with_shape_and_data);
    tcase_add_test(file, every_element_is_aligned_wherever_the_file_has_it);
    tcase_add_test(file, weight_checks_shape_and_dtype_and_names_the_file);
    tcase_add_test(file, a_matrix_of_one_row_is_a_weight_of_one_row);
    tcase_add_test(file, header_lengths_that_lie_are_refused);
    tcase_add_test(file, a_truncated_file_is_refused_with_both_sizes);
    tcase_add_test(file, tensors_that_do_not_fit_their_bytes_are_refused_by_name);
    tcase_add_test(file, unknown_dtypes_and_too_many_dimensions_are_refused_by_name);
    tcase_add_test(file, overlapping_and_repeated_tensors_are_refused);
    tcase_add_test(file, a_directory_without_weights_is_refused);
    tcase_add_test(file, real_checkpoints_open_with_their_weights);
    tcase_add_test(shards, shards_make_one_sorted_list);
    tcase_add_test(shards, one_file_goes_before_an_index);
    tcase_add_test(shards, the_shards_say_which_tensors_there_are);
    tcase_add_test(shards, an_index_that_names_no_shards_is_refused);
    tcase_add_test(damaged, damaged_headers_open_sound_or_fail_with_a_sentence);
    tcase_add_test(damaged, files_cut_at_every_byte_are_refused);
    tcase_add_test(damaged, damaged_indices_open_sound_or_fail_with_a_sentence);
    suite_add_tcase(suite, file);
    suite_add_tcase(suite, shards);
    suite_add_tcase(suite, damaged);
    return suite;
}
