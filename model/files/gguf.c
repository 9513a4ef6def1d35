#include "model/files/gguf.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "model/files/gguf_internal.h"

enum { PARTS_MAX = 999 };

struct gguf {
    struct gguf_file *files; /* [file_count]; the first holds the metadata */
    int file_count;
    const struct gguf_tensor **tensors; /* [count] of all files, sorted by name */
    int count;
};

/* --- opening ---------------------------------------------------------------------------------------------------- */

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const struct gguf_tensor *const *)a)->name, (*(const struct gguf_tensor *const *)b)->name);
}

static int list_tensors(struct gguf *g) {
    size_t count = 0;
    for (int i = 0; i < g->file_count; i++) count += (size_t)g->files[i].tensor_count;
    if (count > INT_MAX) return err_set(ERR_LIMIT, "%s: %zu tensors are too many", gguf_path(g), count);
    g->tensors = calloc(count + 1, sizeof *g->tensors);
    if (!g->tensors) return err_set(ERR_MEMORY, "%s: out of memory for %zu tensors", gguf_path(g), count);
    for (int i = 0; i < g->file_count; i++)
        for (int j = 0; j < g->files[i].tensor_count; j++) g->tensors[g->count++] = &g->files[i].tensors[j];
    qsort(g->tensors, count, sizeof *g->tensors, compare_tensors);
    for (int i = 1; i < g->count; i++) {
        const struct gguf_tensor *a = g->tensors[i - 1], *b = g->tensors[i];
        if (strcmp(a->name, b->name) != 0) continue;
        return err_set(ERR_FORMAT, "%s: tensor '%s' is there twice%s%s", a->file, a->name,
                       a->file == b->file ? "" : ", the other in ", a->file == b->file ? "" : b->file);
    }
    return 0;
}

/* The number of a part, from 0, and of all; one of one where the file says nothing. */
static int read_part(const struct gguf_file *f, int *part, int *parts) {
    static const char *const keys[] = {"split.no", "split.count"};
    int64_t numbers[2] = {0, 1};
    for (int i = 0; i < 2; i++) {
        const struct gguf_value *v = gguf_file_value(f, keys[i]);
        if (v &&
            (v->is_array || !gguf_read_int(v->type, v->data, &numbers[i]) || numbers[i] < 0 || numbers[i] > PARTS_MAX))
            return err_set(ERR_FORMAT, "%s: key '%s': expected a number up to %d", f->path, keys[i], PARTS_MAX);
    }
    if (numbers[1] == 0) numbers[1] = 1;
    *part = (int)numbers[0], *parts = (int)numbers[1];
    return 0;
}

/* Part `index` of the file that is part 0. */
static int open_part(struct gguf_file *f, const char *stem, size_t n, int index, int parts) {
    struct buf path = {0};
    int part, of;
    buf_printf(&path, "%.*s-%05d-of-%05d.gguf", (int)n, stem, index + 1, parts);
    int rc = gguf_file_open(f, buf_text(&path));
    if (rc == 0) rc = read_part(f, &part, &of);
    if (rc == 0 && (part != index || of != parts))
        rc = err_set(ERR_FORMAT, "%s: is part %d of %d, expected part %d of %d", f->path, part + 1, of, index + 1,
                     parts);
    buf_free(&path);
    return rc;
}

static int open_parts(struct gguf *g, int parts) {
    char end[32];
    const char *path = g->files[0].path;
    int m = snprintf(end, sizeof end, "-%05d-of-%05d.gguf", 1, parts);
    size_t n = strlen(path);
    if (n < (size_t)m || strcmp(path + n - m, end) != 0)
        return err_set(ERR_FORMAT, "%s: is the first of %d files, so that its name should end with %s", path, parts,
                       end);
    for (int i = 1; i < parts; i++) TRY(open_part(&g->files[g->file_count++], path, n - (size_t)m, i, parts));
    return 0;
}

static int open_files(struct gguf *g, const char *path) {
    struct gguf_file first = {0};
    int part = 0, parts = 1, rc = gguf_file_open(&first, path);
    if (rc == 0) rc = read_part(&first, &part, &parts);
    if (rc == 0 && part > 0)
        rc = err_set(ERR_USAGE, "%s: is part %d of %d; hint: give the first part", path, part + 1, parts);
    g->files = memory_resize(NULL, (size_t)parts * sizeof *g->files);
    memset(g->files, 0, (size_t)parts * sizeof *g->files);
    g->files[g->file_count++] = first;
    if (rc == 0 && parts > 1) rc = open_parts(g, parts);
    return rc == 0 ? list_tensors(g) : rc;
}

int gguf_open(struct gguf **out, const char *path) {
    struct gguf *g = memory_resize(NULL, sizeof *g);
    *g = (struct gguf){0};
    *out = NULL;
    int rc = open_files(g, path);
    if (rc == 0)
        *out = g;
    else
        gguf_close(g);
    return rc;
}

void gguf_close(struct gguf *g) {
    if (!g) return;
    for (int i = 0; i < g->file_count; i++) gguf_file_close(&g->files[i]);
    free(g->files);
    free(g->tensors);
    free(g);
}

const char *gguf_path(const struct gguf *g) {
    return g->files[0].path;
}

int gguf_count(const struct gguf *g) {
    return g->count;
}

const struct gguf_tensor *gguf_at(const struct gguf *g, int index) {
    return g->tensors[index];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name) {
    const struct gguf_tensor key = {.name = (char *)name}, *wanted = &key;
    if (g->count == 0) return NULL;
    const struct gguf_tensor **found = bsearch(&wanted, g->tensors, (size_t)g->count, sizeof wanted, compare_tensors);
    return found ? *found : NULL;
}

/* --- values ----------------------------------------------------------------------------------------------------- */

const struct gguf_value *gguf_value(const struct gguf *g, const char *key) {
    return gguf_file_value(&g->files[0], key);
}

int64_t gguf_int_at(const struct gguf_value *v, uint64_t index) {
    int64_t value = 0;
    (void)gguf_read_int(v->type, v->data + index * (uint64_t)gguf_element_bytes(v->type), &value);
    return value;
}

double gguf_number_at(const struct gguf_value *v, uint64_t index) {
    const unsigned char *at = v->data + index * (uint64_t)gguf_element_bytes(v->type);
    int64_t whole = 0;
    float single;
    double wide;
    if (v->type == GGUF_F32) return (double)*(float *)memcpy(&single, at, sizeof single);
    if (v->type == GGUF_F64) return *(double *)memcpy(&wide, at, sizeof wide);
    return gguf_read_int(v->type, at, &whole) ? (double)whole : NAN;
}

static int fail_value(const struct gguf *g, const char *key, const char *expected) {
    return err_set(ERR_FORMAT, "%s: key '%s': expected %s", gguf_path(g), key, expected);
}

int gguf_get_int(const struct gguf *g, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out) {
    const struct gguf_value *v = gguf_value(g, key);
    *out = def;
    if (!v) return 0;
    if (v->is_array || !gguf_read_int(v->type, v->data, out)) return fail_value(g, key, "an integer");
    if (*out >= min && *out <= max) return 0;
    return err_set(ERR_FORMAT, "%s: key '%s' is %lld, expected %lld to %lld", gguf_path(g), key, (long long)*out,
                   (long long)min, (long long)max);
}

int gguf_get_number(const struct gguf *g, const char *key, double def, double *out) {
    const struct gguf_value *v = gguf_value(g, key);
    *out = def;
    if (!v) return 0;
    if (v->is_array || v->type == GGUF_STRING || v->type == GGUF_BOOL) return fail_value(g, key, "a number");
    *out = gguf_number_at(v, 0);
    return isfinite(*out) ? 0 : fail_value(g, key, "a finite number");
}

int gguf_get_bool(const struct gguf *g, const char *key, bool def, bool *out) {
    const struct gguf_value *v = gguf_value(g, key);
    *out = def;
    if (!v) return 0;
    if (v->is_array || v->type != GGUF_BOOL || v->data[0] > 1) return fail_value(g, key, "true or false");
    *out = v->data[0] == 1;
    return 0;
}

int gguf_get_text(const struct gguf *g, const char *key, struct gguf_text *out) {
    const struct gguf_value *v = gguf_value(g, key);
    *out = (struct gguf_text){0};
    if (!v) return 0;
    if (v->is_array || v->type != GGUF_STRING) return fail_value(g, key, "a text");
    const unsigned char *at = v->data;
    *out = gguf_next_text(&at);
    return utf8_is_valid(out->bytes, out->n) ? 0 : fail_value(g, key, "a text of valid UTF-8");
}

int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type, const struct gguf_value **out) {
    *out = gguf_value(g, key);
    if (!*out) return 0;
    if ((*out)->is_array && (*out)->type == type) return 0;
    *out = NULL;
    return fail_value(g, key, type == GGUF_STRING ? "an array of texts" : "an array of numbers of another type");
}

bool gguf_is_text(struct gguf_text text, const char *wanted) {
    return text.n == strlen(wanted) && (text.n == 0 || memcmp(text.bytes, wanted, text.n) == 0);
}
