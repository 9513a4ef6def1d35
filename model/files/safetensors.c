#include "model/files/safetensors.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/files/safetensors_shard.h"

struct safetensors {
    char *source; /* the path of the one file or of the index, for messages */
    struct shard *shards;
    int shard_count;
    cJSON *index;                  /* NULL: there is none */
    const struct tensor **tensors; /* sorted by name */
    int count;
    struct tensor *own; /* [own_count] of another kind of file, which `release` closes */
    int own_count;
    void *owner;
    void (*release)(void *owner);
};

static int out_of_memory(void) {
    return err_set(ERR_MEMORY, "out of memory for the list of tensors");
}

/* ---- the index ---- */

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The file of each entry of weight_map, as the JSON tree has it. */
static int read_files(const char **files, const cJSON *map) {
    for (const cJSON *item = map->child; item; item = item->next) {
        if (!cJSON_IsString(item)) return err_set(ERR_FORMAT, "weight_map names no file for tensor '%s'", item->string);
        const char *file = item->valuestring;
        if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
            return err_set(ERR_FORMAT, "tensor '%s' is placed in '%s', which is no file of this directory",
                           item->string, file);
        *files++ = file;
    }
    return 0;
}

/* Of the source's path, what lies before the file's name, slash included. */
static int folder_length(const struct safetensors *s) {
    const char *slash = strrchr(s->source, '/');
    return slash ? (int)(slash + 1 - s->source) : 0;
}

/* Opens every one of `files`, which are sorted. */
static int open_shards(struct safetensors *s, const char *const *files, int count) {
    struct buf path = {0};
    int rc = 0;
    s->shards = calloc((size_t)count, sizeof *s->shards);
    if (!s->shards) return out_of_memory();
    for (int i = 0; i < count && rc == 0; i++) {
        if (i > 0 && strcmp(files[i], files[i - 1]) == 0) continue;
        buf_clear(&path);
        buf_printf(&path, "%.*s%s", folder_length(s), s->source, files[i]);
        rc = shard_open(&s->shards[s->shard_count++], buf_text(&path));
    }
    buf_free(&path);
    return rc;
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name, (*(const struct tensor *const *)b)->name);
}

static int list_tensors(struct safetensors *s) {
    size_t count = (size_t)s->own_count;
    for (int i = 0; i < s->shard_count; i++) count += (size_t)s->shards[i].count;
    if (count == 0) return err_set(ERR_FORMAT, "%s: has no tensors", s->source);
    if (count > INT_MAX) return err_set(ERR_LIMIT, "%s: %zu tensors are too many", s->source, count);
    s->tensors = calloc(count, sizeof *s->tensors);
    if (!s->tensors) return out_of_memory();
    for (int i = 0; i < s->shard_count; i++)
        for (int j = 0; j < s->shards[i].count; j++) s->tensors[s->count++] = &s->shards[i].tensors[j].tensor;
    for (int i = 0; i < s->own_count; i++) s->tensors[s->count++] = &s->own[i];
    qsort(s->tensors, count, sizeof *s->tensors, compare_tensors);
    for (size_t i = 1; i < count; i++) {
        const struct tensor *a = s->tensors[i - 1], *b = s->tensors[i];
        if (strcmp(a->name, b->name) != 0) continue;
        return err_set(ERR_FORMAT, "%s: tensor '%s' is there twice%s%s", a->file, a->name,
                       a->file == b->file ? "" : ", the other in ", a->file == b->file ? "" : b->file);
    }
    return 0;
}

/* Which tensors there are, the shards say: an index may lack one of theirs, or name one that they left out (a tied head). */
static int open_files(struct safetensors *s, const char **files, int count, const cJSON *map) {
    int rc = read_files(files, map);
    if (rc != 0) return err_prefix(rc, "%s", s->source);
    qsort(files, (size_t)count, sizeof *files, compare_texts);
    TRY(open_shards(s, files, count));
    return list_tensors(s);
}

static int open_index(struct safetensors *s) {
    TRY(json_parse_file(&s->index, s->source));
    const cJSON *map = json_get(s->index, "weight_map");
    const int count = cJSON_IsObject(map) ? cJSON_GetArraySize(map) : 0;
    if (count <= 0) return err_set(ERR_FORMAT, "%s: has no weight_map", s->source);
    const char **files = calloc((size_t)count, sizeof *files);
    int rc = files ? open_files(s, files, count, map) : out_of_memory();
    free(files);
    return rc;
}

/* What no file has, and where the index says that it is. */
static int fail_missing(const struct safetensors *s, const char *name) {
    const cJSON *place = s->index ? json_get(json_get(s->index, "weight_map"), name) : NULL;
    if (!place) return err_set(ERR_FORMAT, "%s: tensor '%s' is missing", s->source, name);
    return err_set(ERR_FORMAT, "%s: tensor '%s' is placed in %s, which does not have it", s->source, name,
                   place->valuestring);
}

/* ---- interface ---- */

static int open_single(struct safetensors *s) {
    s->shards = calloc(1, sizeof *s->shards);
    if (!s->shards) return out_of_memory();
    s->shard_count = 1;
    TRY(shard_open(s->shards, s->source));
    return list_tensors(s);
}

static bool is_index(const char *path) {
    static const char end[] = ".index.json";
    size_t n = strlen(path), m = sizeof end - 1;
    return n >= m && strcmp(path + n - m, end) == 0;
}

int safetensors_of_tensors(struct safetensors **out, const char *source, struct tensor *tensors, int count, void *owner,
                           void (*release)(void *)) {
    struct safetensors *s = memory_resize(NULL, sizeof *s);
    *s = (struct safetensors){
        .source = memory_copy_text(source), .own = tensors, .own_count = count, .owner = owner, .release = release};
    *out = NULL;
    int rc = list_tensors(s);
    if (rc == 0)
        *out = s;
    else
        safetensors_close(s);
    return rc;
}

int safetensors_open(struct safetensors **out, const char *path) {
    *out = NULL;
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s || !(s->source = strdup(path))) {
        free(s);
        return out_of_memory();
    }
    int rc = is_index(path) ? open_index(s) : open_single(s);
    if (rc != 0) {
        safetensors_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void safetensors_close(struct safetensors *s) {
    if (!s) return;
    for (int i = 0; i < s->shard_count; i++) shard_close(&s->shards[i]);
    for (int i = 0; i < s->own_count; i++) free((char *)s->own[i].name);
    if (s->release) s->release(s->owner);
    free(s->shards);
    free(s->own);
    free(s->tensors);
    free(s->source);
    cJSON_Delete(s->index);
    free(s);
}

int safetensors_count(const struct safetensors *s) {
    return s->count;
}

const struct tensor *safetensors_at(const struct safetensors *s, int index) {
    return s->tensors[index];
}

const char *safetensors_source(const struct safetensors *s) {
    return s->source;
}

const struct tensor *safetensors_find(const struct safetensors *s, const char *name) {
    const struct tensor key = {.name = name}, *wanted = &key;
    const struct tensor **found = bsearch(&wanted, s->tensors, (size_t)s->count, sizeof *s->tensors, compare_tensors);
    return found ? *found : NULL;
}

/* Of weights whose scales, if any, lie within them. */
static bool find_dtype(const char *name, enum dtype *out) {
    static const char *const names[DTYPES] = {
        [DTYPE_F32] = "F32",   [DTYPE_BF16] = "BF16",   [DTYPE_F16] = "F16",       [DTYPE_Q8_0] = "Q8_0",
        [DTYPE_Q4_0] = "Q4_0", [DTYPE_Q4_1] = "Q4_1",   [DTYPE_Q5_0] = "Q5_0",     [DTYPE_Q5_1] = "Q5_1",
        [DTYPE_Q2_K] = "Q2_K", [DTYPE_Q3_K] = "Q3_K",   [DTYPE_Q4_K] = "Q4_K",     [DTYPE_Q5_K] = "Q5_K",
        [DTYPE_Q6_K] = "Q6_K", [DTYPE_MXFP4] = "MXFP4", [DTYPE_IQ4_NL] = "IQ4_NL", [DTYPE_IQ4_XS] = "IQ4_XS",
    };
    for (int i = 0; i < DTYPES; i++) {
        if (!names[i] || strcmp(names[i], name) != 0) continue;
        *out = (enum dtype)i;
        return true;
    }
    return false;
}

/* A vector may be stored as a matrix of one row. */
static bool has_shape(const struct tensor *t, const int64_t *shape, int dims) {
    if (dims == 1 && t->dims == 2 && t->shape[0] == 1) return t->shape[1] == shape[0];
    return t->dims == dims && memcmp(t->shape, shape, (size_t)dims * sizeof *shape) == 0;
}

static void list_shape(struct buf *out, const int64_t *shape, int dims) {
    buf_putc(out, '[');
    for (int i = 0; i < dims; i++) buf_printf(out, "%s%lld", i ? ", " : "", (long long)shape[i]);
    buf_putc(out, ']');
}

static int fail_mismatch(const struct tensor *t, const char *types, const int64_t *expected, int dims) {
    struct buf shapes = {0};
    list_shape(&shapes, t->shape, t->dims);
    buf_printf(&shapes, " %s, expected ", t->dtype);
    list_shape(&shapes, expected, dims);
    int rc = err_set(ERR_FORMAT, "%s: tensor '%s' is %s %s", t->file, t->name, buf_text(&shapes), types);
    buf_free(&shapes);
    return rc;
}

/* Is it a word of the sentence? */
static bool lists_type(const char *types, const char *type) {
    const size_t n = strlen(type);
    for (const char *at = types; (at = strstr(at, type)); at += n)
        if ((at == types || at[-1] == ' ') && (!at[n] || at[n] == ' ' || at[n] == ',')) return true;
    return false;
}

int safetensors_expect_type(const struct safetensors *s, const char *name, const char *types, const int64_t *shape,
                            int dims, const struct tensor **out) {
    const struct tensor *t = safetensors_find(s, name);
    *out = t;
    if (!t) return fail_missing(s, name);
    if (!lists_type(types, t->dtype) || !has_shape(t, shape, dims)) return fail_mismatch(t, types, shape, dims);
    return 0;
}

int safetensors_expect(const struct safetensors *s, const char *name, const int64_t *shape, int dims,
                       const struct tensor **out, enum dtype *format) {
    const struct tensor *t = safetensors_find(s, name);
    *out = t;
    if (t && has_shape(t, shape, dims) && find_dtype(t->dtype, format)) return 0;
    return safetensors_expect_type(s, name, "BF16, F16 or F32", shape, dims, out);
}
