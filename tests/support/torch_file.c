#include "tests/support/torch_file.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/damage.h"
#include "tests/support/support.h"

static void put(struct buf *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(out, (char)(i < 8 ? number >> 8 * i & 0xff : 0));
}

/* --- the pickle -------------------------------------------------------------------------------------------- */

static void put_text(struct buf *out, const char *text) {
    buf_putc(out, 'X');
    put(out, strlen(text), 4);
    buf_printf(out, "%s", text);
}

static void put_number(struct buf *out, int64_t number) {
    buf_append(out, "\x8a\x08", 2);
    put(out, (uint64_t)number, 8);
}

static const char *storage_of(const char *dtype) {
    static const char *const names[][2] = {{"BF16", "BFloat16"}, {"F16", "Half"}, {"F32", "Float"},
                                           {"I64", "Long"},      {"I32", "Int"},  {"BOOL", "Bool"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(dtype, names[i][0]) == 0) return names[i][1];
    ck_abort_msg("no storage of %s", dtype);
    return NULL;
}

static void put_tensor(struct buf *out, const cJSON *tensor, int key) {
    const cJSON *size, *shape = json_get(tensor, "shape");
    char name[16];
    int64_t elements = 1;
    cJSON_ArrayForEach(size, shape) elements *= (int64_t)size->valuedouble;
    put_text(out, tensor->string);
    buf_printf(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(out, "storage");
    buf_printf(out, "ctorch\n%sStorage\n", storage_of(json_get(tensor, "dtype")->valuestring));
    snprintf(name, sizeof name, "%d", key);
    put_text(out, name);
    put_text(out, "cpu");
    put_number(out, elements);
    buf_printf(out, "tQK");
    buf_append(out, "\0(", 2);
    cJSON_ArrayForEach(size, shape) put_number(out, (int64_t)size->valuedouble);
    buf_printf(out, "t(");
    cJSON_ArrayForEach(size, shape) {
        int64_t stride = 1;
        for (const cJSON *inner = size->next; inner; inner = inner->next) stride *= (int64_t)inner->valuedouble;
        put_number(out, stride);
    }
    buf_append(out,
               "t\x89"
               "ccollections\nOrderedDict\n)RtR",
               31);
}

void torch_pickle(const struct tensor_file *f, struct buf *out) {
    const cJSON *tensor;
    int key = 0;
    buf_append(out, "\x80\x02}(", 4);
    cJSON_ArrayForEach(tensor, f->header) put_tensor(out, tensor, key++);
    buf_printf(out, "u.");
}

/* --- the archive ------------------------------------------------------------------------------------------- */

/* An entry, and its record in the directory, whose sizes are in a field of 64 bits. */
static void put_entry(struct buf *out, struct buf *directory, const char *name, const char *data, size_t bytes) {
    const uint64_t from = out->len, length = strlen(name);
    const size_t padding = 63 - (out->len + 30 + length + 3) % 64;
    buf_append(out, "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 26);
    put(out, length, 2);
    put(out, 4 + padding, 2);
    buf_printf(out, "%sFB", name);
    put(out, padding, 2);
    for (size_t i = 0; i < padding; i++) buf_putc(out, 'Z');
    buf_append(out, data, bytes);
    buf_append(directory, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 28);
    put(directory, length, 2);
    put(directory, 4 + 24, 2);
    put(directory, 0, 10);
    put(directory, UINT32_MAX, 4);
    buf_printf(directory, "%s", name);
    put(directory, 1, 2);
    put(directory, 24, 2);
    put(directory, bytes, 8), put(directory, bytes, 8), put(directory, from, 8);
}

void torch_archive(const struct tensor_file *f, const struct buf *pickle, struct buf *out) {
    struct buf directory = {0};
    const cJSON *tensor;
    uint64_t entries = 2;
    put_entry(out, &directory, "archive/data.pkl", pickle->data, pickle->len);
    put_entry(out, &directory, "archive/byteorder", "little", 6);
    cJSON_ArrayForEach(tensor, f->header) {
        const cJSON *begin = json_get(tensor, "data_offsets")->child;
        const size_t at = (size_t)begin->valuedouble;
        char name[32];
        snprintf(name, sizeof name, "archive/data/%d", (int)entries++ - 2);
        put_entry(out, &directory, name, f->data.data + at, (size_t)begin->next->valuedouble - at);
    }
    const uint64_t from = out->len, end = from + directory.len;
    buf_append(out, directory.data, directory.len);
    buf_append(out, "PK\6\6", 4);
    put(out, 44, 8), put(out, 0, 12), put(out, entries, 8), put(out, entries, 8);
    put(out, directory.len, 8), put(out, from, 8);
    buf_append(out, "PK\6\7\0\0\0\0", 8);
    put(out, end, 8), put(out, 1, 4);
    buf_append(out, "PK\5\6\0\0\0\0", 8);
    put(out, UINT64_MAX, 4), put(out, UINT64_MAX, 8), put(out, 0, 2);
    buf_free(&directory);
}

void torch_file_write(struct tensor_file *f, const char *path) {
    struct buf pickle = {0}, archive = {0};
    torch_pickle(f, &pickle);
    torch_archive(f, &pickle, &archive);
    damage_write_file(path, archive.data, archive.len);
    buf_free(&pickle), buf_free(&archive), buf_free(&f->data);
    cJSON_Delete(f->header);
    *f = (struct tensor_file){0};
}
