/* Files of torch.save. tests/model/pytorch_model.bin was written by PyTorch 2.15: an OrderedDict of tensors, with what a state may hold
 * beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/files/pickle.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"
#include "tests/support/torch_file.h"

enum { FILE_MAX = 1 << 20 };

static const char real_file[] = "tests/model/pytorch_model.bin";

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", temp_dir(), name);
    return path;
}

static int open_tensors(struct safetensors **out) {
    return checkpoint_tensors(test_checkpoint(temp_dir()), out);
}

static int open_bytes(struct safetensors **out, const struct buf *file) {
    damage_write_file(path_of("pytorch_model.bin"), file->data, file->len);
    return open_tensors(out);
}

static void refuse(const struct buf *file, int code, const char *words) {
    struct safetensors *s = (struct safetensors *)&s;
    ck_assert_msg(open_bytes(&s, file) == code, "%s: %s", words, err_message());
    ck_assert_ptr_null(s);
    check_sentence();
    ck_assert_msg(strstr(err_message(), "/pytorch_model.bin: ") && strstr(err_message(), words), "'%s' lacks '%s'",
                  err_message(), words);
}

/* Two tensors, of bytes that are never 0. */
static struct tensor_file two_tensors(void) {
    struct tensor_file f = {0};
    tensor_file_add(&f, "a", "F32", 2, (const int64_t[]){2, 3}, "abcdefghijklmnopqrstuvwx", 24);
    tensor_file_add(&f, "b", "BF16", 1, (const int64_t[]){2}, "ABCD", 4);
    return f;
}

static void free_file(struct tensor_file *f) {
    cJSON_Delete(f->header);
    buf_free(&f->data);
}

/* An archive of two tensors' storages, whose pickle is this one. */
static void archive_of(const char *pickle, size_t bytes, struct buf *out) {
    struct tensor_file f = two_tensors();
    const struct buf text = {.data = (char *)pickle, .len = bytes};
    buf_clear(out);
    torch_archive(&f, &text, out);
    free_file(&f);
}

#define STORAGE(NAME) "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" NAME "X\3\0\0\0cpuK\6tQ"
#define NAMED         "\x80\2}X\1\0\0\0x"
#define TENSOR        NAMED "ctorch._utils\n_rebuild_tensor_v2\n"

/* --- what is read ------------------------------------------------------------------------------------------ */

START_TEST(tensors_that_pytorch_wrote_are_listed_with_their_numbers)
{
    struct buf file = {0};
    struct safetensors *s;
    ck_ok(file_read(real_file, FILE_MAX, &file));
    ck_ok(open_bytes(&s, &file));
    static const struct {
        const char *name, *dtype;
        int dims;
        int64_t shape[2];
    } all[] = {{"d2t", "I64", 1, {3}},
               {"fc.weight", "BF16", 2, {2, 3}},
               {"none", "I32", 2, {0, 4}},
               {"parameter", "F64", 2, {1, 3}},
               {"scalar", "F16", 0, {0}},
               {"shared", "F32", 2, {4, 6}},
               {"shared.tail", "F32", 2, {2, 6}},
               {"t2d", "BOOL", 1, {3}}};
    ck_assert_int_eq(safetensors_count(s), 8);
    for (int i = 0; i < 8; i++) {
        const struct tensor *t = safetensors_at(s, i);
        ck_assert_str_eq(t->name, all[i].name);
        ck_assert_str_eq(t->dtype, all[i].dtype);
        ck_assert(t->dims == all[i].dims && memcmp(t->shape, all[i].shape, (size_t)t->dims * sizeof *t->shape) == 0);
        ck_assert_str_eq(t->file, path_of("pytorch_model.bin"));
    }
    const int64_t *distances = safetensors_find(s, "d2t")->data;
    const float *shared = safetensors_find(s, "shared")->data, *tail = safetensors_find(s, "shared.tail")->data;
    ck_assert(distances[0] == 5 && distances[1] == -7 && distances[2] == (int64_t)1 << 40);
    ck_assert_ptr_eq(tail, shared + 12);
    for (int i = 0; i < 24; i++) ck_assert_float_eq(shared[i], (float)i);
    ck_assert_double_eq(((const double *)safetensors_find(s, "parameter")->data)[2], 3);
    ck_assert_int_eq(((const uint16_t *)safetensors_find(s, "scalar")->data)[0], 0x3800);
    ck_assert_int_eq(((const uint16_t *)safetensors_find(s, "fc.weight")->data)[5], 0x40a0);
    ck_assert_int_eq(memcmp(safetensors_find(s, "t2d")->data, "\1\0\1", 3), 0);
    ck_assert_ptr_nonnull(mapping_path_at(shared)); /* read where they lie */
    safetensors_close(s);
    buf_free(&file);
}
END_TEST

START_TEST(several_files_are_read_by_an_index_and_safetensors_go_before)
{
    struct safetensors *s;
    struct tensor_file f = two_tensors(), g = {0};
    unlink(path_of("pytorch_model.bin"));
    torch_file_write(&f, path_of("pytorch_model-1.bin"));
    tensor_file_add(&g, "c", "BOOL", 1, (const int64_t[]){3}, "\1\1\1", 3);
    torch_file_write(&g, path_of("pytorch_model-2.bin"));
    damage_write_text(path_of("pytorch_model.bin.index.json"),
                      "{\"weight_map\": {\"a\": \"pytorch_model-1.bin\", \"c\": \"pytorch_model-2.bin\"}}");
    ck_ok(open_tensors(&s));
    ck_assert_int_eq(safetensors_count(s), 3);
    ck_assert_str_eq(safetensors_find(s, "c")->file, path_of("pytorch_model-2.bin"));
    safetensors_close(s);
    tensor_file_add(&g, "d", "BOOL", 1, (const int64_t[]){1}, "\1", 1);
    tensor_file_write(&g, path_of("model.safetensors"));
    ck_ok(open_tensors(&s));
    ck_assert_int_eq(safetensors_count(s), 1);
    safetensors_close(s);
    unlink(path_of("model.safetensors"));
    unlink(path_of("pytorch_model.bin.index.json"));
}
END_TEST

/* --- what is refused --------------------------------------------------------------------------------------- */

/* Pickles that want something, by the words that they are refused with. */
static const struct {
    const char *pickle;
    size_t bytes;
    int code;
    const char *words;
} wrong[] = {
#define PICKLE(TEXT) TEXT, sizeof TEXT - 1
    {PICKLE("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R."), ERR_UNSUPPORTED,
     "asks for os.system, which no list of tensors needs"},
    {PICKLE("\x80\2c__builtin__\neval\n)R."), ERR_UNSUPPORTED, "asks for __builtin__.eval"},
    {PICKLE("\x80\2ctorch.nn\nLinear\n)\x81."), ERR_UNSUPPORTED, "asks for torch.nn.Linear"},
    {PICKLE("\x80\2)\x81."), ERR_UNSUPPORTED, "byte 3 of the pickle: instruction 0x81"},
    {PICKLE("\x80\4\x95\0\0\0\0\0\0\0\0."), ERR_UNSUPPORTED, "a pickle of protocol 4, only 2 is read"},
    {PICKLE("\x80\2K\1."), ERR_UNSUPPORTED, "no dictionary of tensors"},
    {PICKLE("\x80\2}."), ERR_FORMAT, "has no tensors"},
    {PICKLE("\x80\2}"), ERR_FORMAT, "is the file truncated?"},
    {PICKLE("\x80\2X\xff\xff\xff\x7f."), ERR_FORMAT, "is the file truncated?"},
    {PICKLE("\x80\2ccollections"), ERR_FORMAT, "a name without an end"},
    {PICKLE("\x80\2."), ERR_FORMAT, "nothing is left on the stack"},
    {PICKLE("\x80\2\x87."), ERR_FORMAT, "nothing is left on the stack"},
    {PICKLE("\x80\2(."), ERR_FORMAT, "a mark stands where a value belongs"},
    {PICKLE("\x80\2}t."), ERR_FORMAT, "no mark is left on the stack"},
    {PICKLE("\x80\2}q\1."), ERR_FORMAT, "a place of the memo is left out"},
    {PICKLE("\x80\2h\0."), ERR_FORMAT, "the memo has no such place"},
    {PICKLE("\x80\2}(K\1u."), ERR_FORMAT, "members that are no pairs"},
    {PICKLE("\x80\2(K\1K\2u."), ERR_FORMAT, "members that are no pairs"},
    {PICKLE("\x80\2NK\1K\2s."), ERR_FORMAT, "a member of what is no dictionary"},
    {PICKLE("\x80\2\x8a\x09"
            "123456789."),
     ERR_FORMAT, "a number of more than 64 bits"},
    {PICKLE("\x80\2K\1)R."), ERR_FORMAT, "a call of what cannot be called"},
    {PICKLE("\x80\2ctorch\nFloatStorage\n)R."), ERR_FORMAT, "a call of what cannot be called"},
    {PICKLE("\x80\2ccollections\nOrderedDict\nK\1\x85R."), ERR_FORMAT, "a dictionary that is made of something"},
    {PICKLE("\x80\2ctorch._utils\n_rebuild_parameter\n)R."), ERR_FORMAT, "a parameter that is no tensor"},
    {PICKLE("\x80\2)Q."), ERR_FORMAT, "no storage of numbers"},
    {PICKLE(TENSOR ")R."), ERR_FORMAT, "not made of a storage, a place, sizes and strides"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\0K\6\x85)tRs."), ERR_FORMAT, "as many sizes as it has no strides"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\0J\xff\xff\xff\xff\x85K\1\x85tRs."), ERR_FORMAT, "whose sizes are no sizes"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\0\x8a\x08\0\0\0\0\0\0\0\x7f"
                                    "K\3\x86K\3K\1\x86tRs."),
     ERR_FORMAT, "too large"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\0\x8a\x08\0\0\0\0\0\0\0\x7f\x85K\1\x85tRs."), ERR_FORMAT,
     "tensor 'x' is too large"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\0K\2K\3\x86K\0K\1\x86tRs."), ERR_UNSUPPORTED,
     "tensor 'x' is a view that repeats its numbers"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\1K\6\x85K\1\x85tRs."), ERR_FORMAT, "tensor 'x' ends outside of its storage"},
    {PICKLE(TENSOR "(" STORAGE("0") "K\7K\0\x85K\1\x85tRs."), ERR_FORMAT, "tensor 'x' ends outside of its storage"},
    {PICKLE(TENSOR "(" STORAGE("7") "K\0K\6\x85K\1\x85tRs."), ERR_FORMAT,
     "tensor 'x' lies in a storage that is not there"},
    {PICKLE(TENSOR "(" STORAGE("1") "K\0K\1\x85K\1\x85tRs."), ERR_FORMAT, "tensor 'x' ends outside of its storage"},
#undef PICKLE
};

START_TEST(pickles_that_ask_for_more_than_tensors_are_refused)
{
    struct buf file = {0};
    archive_of(wrong[_i].pickle, wrong[_i].bytes, &file);
    refuse(&file, wrong[_i].code, wrong[_i].words);
    buf_free(&file);
}
END_TEST

START_TEST(a_tensor_may_be_a_part_of_a_storage_and_repeated)
{
    static const char pickle[] = TENSOR "(" STORAGE("0") "K\2K\1K\4\x86K\x63K\1\x86tRq\0sX\1\0\0\0yh\0s.";
    struct buf file = {0};
    struct safetensors *s;
    archive_of(pickle, sizeof pickle - 1, &file);
    ck_ok(open_bytes(&s, &file));
    ck_assert_int_eq(safetensors_count(s), 2);
    ck_assert_ptr_eq(safetensors_find(s, "x")->data, safetensors_find(s, "y")->data);
    ck_assert_int_eq(memcmp(safetensors_find(s, "x")->data, "ijklmnopqrstuvwx", 16), 0);
    safetensors_close(s);
    buf_free(&file);
}
END_TEST

/* The transpose of a matrix, and every second number. */
START_TEST(views_are_read_as_the_numbers_that_they_show)
{
    static const char pickle[] =
        TENSOR "(" STORAGE("0") "K\0K\3K\2\x86K\1K\3\x86tRsX\1\0\0\0yctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(
            "0") "K\1K\3\x85K\2\x85tRs.";
    struct buf file = {0};
    struct safetensors *s;
    archive_of(pickle, sizeof pickle - 1, &file);
    ck_ok(open_bytes(&s, &file));
    ck_assert_int_eq(memcmp(safetensors_find(s, "x")->data, "abcdmnopefghqrstijkluvwx", 24), 0);
    ck_assert_int_eq(memcmp(safetensors_find(s, "y")->data, "efghmnopuvwx", 12), 0);
    safetensors_close(s);
    buf_free(&file);
}
END_TEST

/* A name that the memo repeats costs few bytes, and would be copied for each member. */
START_TEST(a_name_is_not_repeated_without_end)
{
    static const char begin[] = "\x80\2}(X\x10\x27\0\0", /* a key of 10,000 bytes */
        tensor[] = "q\0ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("0") "K\0K\1\x85K\1\x85tRq\1";
    struct buf pickle = {0}, file = {0};
    buf_append(&pickle, begin, sizeof begin - 1);
    for (int i = 0; i < 10000; i++) buf_putc(&pickle, 'n');
    buf_append(&pickle, tensor, sizeof tensor - 1);
    for (int i = 0; i < 1000; i++) buf_append(&pickle, "h\0h\1", 4);
    buf_append(&pickle, "u.", 2);
    archive_of(pickle.data, pickle.len, &file);
    refuse(&file, ERR_FORMAT, "names that are there twice");
    buf_free(&pickle), buf_free(&file);
}
END_TEST

/* Where the mark of a record of the archive stands: the last one. */
static char *find_record(struct buf *file, const char *mark) {
    for (size_t i = file->len - 4; i > 0; i--)
        if (memcmp(file->data + i, mark, 4) == 0) return file->data + i;
    ck_abort_msg("no such record");
    return NULL;
}

START_TEST(archives_that_torch_save_does_not_write_are_refused)
{
    struct tensor_file f = two_tensors();
    struct buf pickle = {0}, file = {0};
    torch_pickle(&f, &pickle);
    for (int i = 0; i < 6; i++) {
        buf_clear(&file);
        torch_archive(&f, &pickle, &file);
        if (i == 0) find_record(&file, "PK\1\2")[10] = 8, refuse(&file, ERR_UNSUPPORTED, "of compressed entries");
        if (i == 1) memcpy(find_record(&file, "litt"), "big...", 6), refuse(&file, ERR_UNSUPPORTED, "byte order");
        if (i == 2) file.len -= 1, refuse(&file, ERR_FORMAT, "a ZIP archive without an end: is it truncated?");
        if (i == 3) find_record(&file, "PK\6\7")[8] ^= 1, refuse(&file, ERR_FORMAT, "whose end is elsewhere");
        if (i == 4) find_record(&file, "PK\3\4")[0] = 'p', refuse(&file, ERR_FORMAT, "an entry that does not begin");
        if (i == 5) memcpy(find_record(&file, "PK\1\2") + 46, "ARCHIVE", 7), refuse(&file, ERR_FORMAT, "data");
    }
    buf_clear(&file);
    buf_append(&file,
               "\x80\2\x8a\x0al\xfc\x9c"
               "F\xf9 j\xa8P\x19.",
               15);
    refuse(&file, ERR_UNSUPPORTED, "written by a PyTorch before 1.6");
    free_file(&f);
    buf_free(&pickle), buf_free(&file);
}
END_TEST

/* --- damage ------------------------------------------------------------------------------------------------ */

/* Opens with every byte of every tensor there, or fails with a sentence. */
static int try_open(const struct buf *file) {
    struct safetensors *s;
    volatile unsigned char sink = 0;
    err_set(ERR_INTERNAL, "%s", "");
    if (open_bytes(&s, file) != 0) {
        ck_assert_ptr_null(s);
        check_sentence();
        return 0;
    }
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        for (size_t b = 0; b < t->bytes; b++) sink = (unsigned char)(sink + ((const unsigned char *)t->data)[b]);
    }
    safetensors_close(s);
    return 1;
}

START_TEST(damaged_files_open_sound_or_fail_with_a_sentence)
{
    struct damage damage = {5};
    struct buf whole = {0}, file = {0};
    int opened = 0;
    ck_ok(file_read(real_file, FILE_MAX, &whole));
    for (size_t i = 0; i < whole.len; i++) {
        buf_clear(&file);
        buf_append(&file, whole.data, whole.len);
        file.data[i] ^= (char)(1 << damage_below(&damage, 8));
        opened += try_open(&file);
        file.len = i;
        if (i % 16 == 0 && i > 8) ck_assert_int_eq(try_open(&file), 0);
    }
    ck_assert(opened > 100 && opened < (int)whole.len - 100);
    buf_free(&whole), buf_free(&file);
}
END_TEST

Suite *check_pytorch(void);
Suite *check_pytorch(void) {
    Suite *suite = suite_create("pytorch");
    TCase *read = tcase_create("read"), *refused = tcase_create("refused"), *damaged = tcase_create("damaged");
    tcase_add_test(read, tensors_that_pytorch_wrote_are_listed_with_their_numbers);
    tcase_add_test(read, several_files_are_read_by_an_index_and_safetensors_go_before);
    tcase_add_test(read, a_tensor_may_be_a_part_of_a_storage_and_repeated);
    tcase_add_test(read, views_are_read_as_the_numbers_that_they_show);
    tcase_add_test(refused, a_name_is_not_repeated_without_end);
    tcase_add_loop_test(refused, pickles_that_ask_for_more_than_tensors_are_refused, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(refused, archives_that_torch_save_does_not_write_are_refused);
    tcase_add_test(damaged, damaged_files_open_sound_or_fail_with_a_sentence);
    suite_add_tcase(suite, read);
    suite_add_tcase(suite, refused);
    suite_add_tcase(suite, damaged);
    return suite;
}
