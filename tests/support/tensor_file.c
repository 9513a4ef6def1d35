#include "tests/support/tensor_file.h"

#include "tests/support/damage.h"

void tensor_file_add(struct tensor_file *f, const char *name, const char *dtype, int dims, const int64_t *shape,
                     const void *data, size_t bytes) {
    if (!f->header) f->header = cJSON_CreateObject();
    cJSON *tensor = cJSON_AddObjectToObject(f->header, name), *sizes, *offsets;
    cJSON_AddStringToObject(tensor, "dtype", dtype);
    sizes = cJSON_AddArrayToObject(tensor, "shape"), offsets = cJSON_AddArrayToObject(tensor, "data_offsets");
    for (int i = 0; i < dims; i++) cJSON_AddItemToArray(sizes, cJSON_CreateNumber((double)shape[i]));
    while (f->data.len % 8) buf_putc(&f->data, 0);
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)f->data.len));
    buf_append(&f->data, data, bytes);
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)f->data.len));
}

void tensor_file_write(struct tensor_file *f, const char *path) {
    struct buf text = {0}, all = {0};
    json_print(f->header, &text);
    while (text.len % 8) buf_putc(&text, ' ');
    const uint64_t length = text.len;
    buf_append(&all, (const char *)&length, sizeof length);
    buf_append(&all, text.data, text.len);
    buf_append(&all, f->data.data, f->data.len);
    damage_write_file(path, all.data, all.len);
    buf_free(&text), buf_free(&all), buf_free(&f->data);
    cJSON_Delete(f->header);
    *f = (struct tensor_file){0};
}
