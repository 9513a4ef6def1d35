/* The archive: entries, each behind a header of its own, and behind them the directory, which says where they begin; its end says where
 * that is, in 64 bits by a record of its own. Numbers are little-endian (PKWARE, APPNOTE.TXT). */
#include "model/files/pytorch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/files/pickle.h"

enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_MAX = 65535,
    PICKLE_MAX = 100000000,
    NAME_MAX_BYTES = 4096,
};

static const char local_mark[] = "PK\3\4", entry_mark[] = "PK\1\2", end_mark[] = "PK\5\6", end64_mark[] = "PK\6\6",
                  locator_mark[] = "PK\6\7";

struct entry {
    struct pickle_text name;
    const char *data;
    size_t bytes;
};

struct archive {
    const char *file;
    size_t bytes;
    struct entry *entries; /* [count] sorted by name */
    size_t count;
};

/* --- the archive ------------------------------------------------------------------------------------------- */

static uint64_t number(const char *at, int bytes) {
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--) n = n << 8 | (unsigned char)at[i];
    return n;
}

/* `bytes` from `from` on, which begin with a mark; NULL: they do not lie in the file, or do not. */
static const char *record(const struct archive *a, uint64_t from, size_t bytes, const char *mark) {
    if (from > a->bytes || a->bytes - from < bytes) return NULL;
    return memcmp(a->file + from, mark, 4) == 0 ? a->file + from : NULL;
}

static int fail_archive(const char *what) {
    return err_set(ERR_FORMAT, "a ZIP archive %s: is it truncated?", what);
}

/* Where the directory is, of how many entries. */
static int find_directory(const struct archive *a, uint64_t *from, uint64_t *count) {
    const char *end = NULL, *locator, *end64;
    for (size_t back = END_BYTES; !end && back <= a->bytes && back <= END_BYTES + COMMENT_MAX; back++)
        end = record(a, a->bytes - back, END_BYTES, end_mark);
    if (!end) return fail_archive("without an end");
    *count = number(end + 10, 2), *from = number(end + 16, 4);
    const uint64_t at = (uint64_t)(end - a->file);
    locator = at < LOCATOR_BYTES ? NULL : record(a, at - LOCATOR_BYTES, LOCATOR_BYTES, locator_mark);
    if (!locator) return 0;
    end64 = record(a, number(locator + 8, 8), END64_BYTES, end64_mark);
    if (!end64) return fail_archive("whose end is elsewhere");
    *count = number(end64 + 32, 8), *from = number(end64 + 48, 8);
    return 0;
}

/* What does not fit into 32 bits follows in a field of its own, in this order: size, size in the file, place. */
static bool read_wide(const char *extra, size_t left, uint64_t *wide[3]) {
    while (left >= 4) {
        const size_t bytes = number(extra + 2, 2);
        if (bytes > left - 4) return false;
        const char *at = extra + 4, *end = at + bytes;
        for (int i = 0; number(extra, 2) == 1 && i < 3; i++) {
            if (*wide[i] != UINT32_MAX) continue;
            if (end - at < 8) return false;
            *wide[i] = number(at, 8);
            at += 8;
        }
        extra = end, left -= 4 + bytes;
    }
    return true;
}

static int place_entry(const struct archive *a, struct entry *entry, uint64_t from) {
    const char *local = record(a, from, LOCAL_BYTES, local_mark);
    if (!local) return fail_archive("with an entry that does not begin where it should");
    const uint64_t data = from + LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (data > a->bytes || a->bytes - data < entry->bytes) return fail_archive("with an entry that ends outside");
    entry->data = a->file + data;
    return 0;
}

/* The directory's record at *at, which then is the next one's. */
static int read_entry(const struct archive *a, struct entry *entry, uint64_t *at) {
    const char *record_at = record(a, *at, ENTRY_BYTES, entry_mark);
    if (!record_at) return fail_archive("whose directory is damaged");
    const size_t name = number(record_at + 28, 2), extra = number(record_at + 30, 2), note = number(record_at + 32, 2);
    if (a->bytes - *at - ENTRY_BYTES < name + extra + note || name > NAME_MAX_BYTES)
        return fail_archive("whose directory is damaged");
    uint64_t size = number(record_at + 24, 4), packed = number(record_at + 20, 4), from = number(record_at + 42, 4);
    entry->name = (struct pickle_text){record_at + ENTRY_BYTES, name};
    if (!read_wide(entry->name.at + name, extra, (uint64_t *[]){&size, &packed, &from}))
        return fail_archive("whose directory is damaged");
    if (number(record_at + 10, 2) != 0 || packed != size)
        return err_set(ERR_UNSUPPORTED, "a ZIP archive of compressed entries, which torch.save does not write");
    *at += ENTRY_BYTES + name + extra + note;
    entry->bytes = size;
    return place_entry(a, entry, from);
}

static int compare_names(const void *a, const void *b) {
    const struct pickle_text *x = &((const struct entry *)a)->name, *y = &((const struct entry *)b)->name;
    const int order = memcmp(x->at, y->at, x->length < y->length ? x->length : y->length);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static int read_archive(struct archive *a) {
    uint64_t at = 0, count = 0;
    TRY(find_directory(a, &at, &count));
    if (count == 0 || count > a->bytes / ENTRY_BYTES) return fail_archive("whose directory is damaged");
    a->entries = calloc(count, sizeof *a->entries);
    if (!a->entries) return err_set(ERR_MEMORY, "out of memory for a list of %zu storages", (size_t)count);
    while (a->count < count) TRY(read_entry(a, &a->entries[a->count++], &at));
    qsort(a->entries, a->count, sizeof *a->entries, compare_names);
    return 0;
}

/* --- its tensors ------------------------------------------------------------------------------------------- */

/* The entry FOLDER/NAME. */
static const struct entry *find_entry(const struct archive *a, const struct pickle_text *folder, const char *name) {
    struct buf path = {0};
    buf_append(&path, folder->at, folder->length);
    buf_printf(&path, "/%s", name);
    const struct entry key = {.name = {path.data, path.len}};
    const struct entry *found = bsearch(&key, a->entries, a->count, sizeof key, compare_names);
    buf_free(&path);
    return found;
}

/* The folder that all lies in has the name of the file, as it was called when it was written. */
static struct pickle_text folder_of(const struct archive *a) {
    const struct pickle_text *name = &a->entries[0].name;
    const char *slash = memchr(name->at, '/', name->length);
    return (struct pickle_text){name->at, slash ? (size_t)(slash - name->at) : name->length};
}

/* Elements from a tensor's first to its last. */
static bool span_of(const struct pickle_tensor *t, uint64_t *out) {
    int64_t last = 0, step;
    *out = 0;
    for (int d = 0; d < t->dims; d++)
        if (t->shape[d] == 0) return true;
    for (int d = 0; d < t->dims; d++)
        if (__builtin_mul_overflow(t->strides[d], t->shape[d] - 1, &step) || __builtin_add_overflow(last, step, &last))
            return false;
    *out = (uint64_t)last + 1;
    return true;
}

/* The bytes of a tensor, which lie in its storage. */
static int find_data(const struct archive *a, const struct pickle_text *folder, const struct pickle_tensor *from,
                     const struct tensor *t, int bits, const char **out) {
    struct buf name = {0};
    buf_printf(&name, "data/%.*s", from->storage.length < PATH_MAX ? (int)from->storage.length : PATH_MAX,
               from->storage.at);
    const struct entry *storage = find_entry(a, folder, buf_text(&name));
    buf_free(&name);
    if (!storage) return err_set(ERR_FORMAT, "tensor '%s' lies in a storage that is not there", t->name);
    const uint64_t each = (uint64_t)bits / 8, held = storage->bytes / each;
    uint64_t spanned = 0;
    if (!span_of(from, &spanned) || held < (uint64_t)from->elements || (uint64_t)from->first > held ||
        held - (uint64_t)from->first < spanned)
        return err_set(ERR_FORMAT, "tensor '%s' ends outside of its storage", t->name);
    if (t->bytes / each > spanned)
        return err_set(ERR_UNSUPPORTED, "tensor '%s' is a view that repeats its numbers", t->name);
    *out = storage->data + (uint64_t)from->first * each;
    return 0;
}

static int count_bytes(struct tensor *t, int bits) {
    size_t bytes = (size_t)bits / 8;
    for (int i = 0; i < t->dims; i++)
        if (__builtin_mul_overflow(bytes, (size_t)t->shape[i], &bytes))
            return err_set(ERR_FORMAT, "tensor '%s' is too large", t->name);
    t->bytes = bytes;
    return 0;
}

/* Numbers that do not lie one behind the other: they are copied so. */
static int copy_view(struct shard_tensor *st, const struct pickle_tensor *from, int bits, const char *data) {
    struct tensor *t = &st->tensor;
    const size_t each = (size_t)bits / 8, count = t->bytes / each;
    int64_t place[TENSOR_DIMS_MAX] = {0}, at = 0;
    st->copy = malloc(t->bytes);
    if (!st->copy) return err_set(ERR_MEMORY, "out of memory for %zu bytes of tensor '%s'", t->bytes, t->name);
    for (size_t i = 0; i < count; i++) {
        memcpy((char *)st->copy + i * each, data + (size_t)at * each, each);
        for (int d = t->dims - 1; d >= 0; d--) { /* the next place, the last dimension first */
            at += from->strides[d];
            if (++place[d] < t->shape[d]) break;
            at -= from->strides[d] * t->shape[d], place[d] = 0;
        }
    }
    t->data = st->copy;
    return 0;
}

static int add_tensor(struct shard *shard, const struct archive *a, const struct pickle_text *folder,
                      const struct pickle_tensor *from) {
    struct shard_tensor *st = &shard->tensors[shard->count++];
    struct tensor *t = &st->tensor;
    const char *data = NULL;
    int bits = 0;
    t->file = shard->path, t->dims = from->dims;
    t->dtype = shard_type(from->dtype, &bits);
    memcpy(t->shape, from->shape, sizeof t->shape);
    t->name = strndup(from->name.at, from->name.length);
    if (!t->name) return err_set(ERR_MEMORY, "out of memory for a tensor's name");
    TRY(count_bytes(t, bits));
    TRY(find_data(a, folder, from, t, bits, &data));
    return from->is_dense ? shard_place(st, bits, data) : copy_view(st, from, bits, data);
}

static int add_tensors(struct shard *shard, const struct archive *a) {
    const struct pickle_text folder = folder_of(a);
    const struct entry *pickle = find_entry(a, &folder, "data.pkl"), *order = find_entry(a, &folder, "byteorder");
    struct pickle_tensor *tensors = NULL;
    int count = 0;
    if (!pickle) return err_set(ERR_FORMAT, "a ZIP archive, but not one of torch.save: it has no data.pkl");
    if (pickle->bytes > PICKLE_MAX)
        return err_set(ERR_FORMAT, "a pickle of %zu bytes, at most %d are allowed", pickle->bytes, PICKLE_MAX);
    if (order && (order->bytes != 6 || memcmp(order->data, "little", 6) != 0))
        return err_set(ERR_UNSUPPORTED, "written by a machine of another byte order");
    TRY(pickle_tensors(&tensors, &count, pickle->data, pickle->bytes));
    shard->tensors = calloc((size_t)count + 1, sizeof *shard->tensors);
    int rc = shard->tensors ? 0 : err_set(ERR_MEMORY, "out of memory for %d tensors", count);
    for (int i = 0; i < count && rc == 0; i++) rc = add_tensor(shard, a, &folder, &tensors[i]);
    free(tensors);
    return rc;
}

/* --- interface --------------------------------------------------------------------------------------------- */

static bool is_archive(const struct mapping *map) {
    return map->bytes >= 4 && memcmp(map->data, local_mark, 4) == 0;
}

/* A pickle of protocol 2 that begins with a long number. */
static bool is_old(const struct mapping *map) {
    return map->bytes >= 4 && memcmp(map->data, "\x80\x02\x8a\x0a", 4) == 0;
}

bool pytorch_is_file(const struct mapping *map) {
    return is_archive(map) || is_old(map);
}

int pytorch_read(struct shard *shard) {
    struct archive a = {.file = shard->map.data, .bytes = shard->map.bytes};
    if (is_old(&shard->map))
        return err_set(ERR_UNSUPPORTED,
                       "written by a PyTorch before 1.6, whose files are not read: load and save it again");
    int rc = read_archive(&a);
    if (rc == 0) rc = add_tensors(shard, &a);
    free(a.entries);
    return rc;
}
