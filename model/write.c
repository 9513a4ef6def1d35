#include "model/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/files/shape.h"
#include "model/format.h"
#include "model/model_internal.h"
#include "model/random_weights.h"

struct place {
    const struct binding *b; /* the first of its tensor */
    int64_t elements;
    int shard;
};

struct writing {
    const struct model *m;
    const char *dir;
    const struct progress *progress;
    struct place *places; /* [count] in the order of bindings */
    int count, shards;
    int64_t total, done; /* elements */
    uint16_t *table, *chunk;
    int fd;
    int files; /* that were made: shards, then the index where there is one, then config.json */
    bool made_dir;
};

/* --- which tensors there are, and where ------------------------------------------------------------------------ */

static void list_tensors(struct writing *w, int64_t shard_bytes) {
    const struct model *m = w->m;
    int64_t in_shard = 0, shape[3];
    w->places = memory_resize(NULL, (size_t)m->binding_count * sizeof *w->places);
    w->shards = 1;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (!b->weight || (w->count > 0 && strcmp(w->places[w->count - 1].b->name, b->name) == 0)) continue;
        int64_t elements = 1;
        for (int d = binding_tensor_shape(b, shape); d-- > 0;) elements *= shape[d];
        if (in_shard > 0 && (in_shard + elements) * 2 > shard_bytes) w->shards++, in_shard = 0;
        in_shard += elements;
        w->total += elements;
        w->places[w->count++] = (struct place){b, elements, w->shards - 1};
    }
}

static void put_path(const struct writing *w, int file, struct buf *path) {
    const int others = file - w->shards + (w->shards == 1); /* 0: the index */
    buf_clear(path);
    if (file < w->shards && w->shards == 1)
        buf_printf(path, "%s/model.safetensors", w->dir);
    else if (file < w->shards)
        buf_printf(path, "%s/model-%05d-of-%05d.safetensors", w->dir, file + 1, w->shards);
    else
        buf_printf(path, "%s/%s", w->dir, others == 0 ? "model.safetensors.index.json" : "config.json");
}

/* The next of the files; it must not be there. */
static int create_file(struct writing *w, struct buf *path) {
    put_path(w, w->files, path);
    w->fd = open(buf_text(path), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) return err_set(ERR_IO, "%s: cannot create: %s", buf_text(path), strerror(errno));
    w->files++;
    return 0;
}

static int write_bytes(const struct writing *w, const char *path, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t put = write(w->fd, (const char *)bytes + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_set(ERR_IO, "%s: cannot write: %s", path, strerror(errno));
        done += (size_t)put;
    }
    return 0;
}

static int close_file(struct writing *w, const char *path, int rc) {
    const int failed = w->fd >= 0 ? close(w->fd) : 0;
    w->fd = -1;
    return rc == 0 && failed ? err_set(ERR_IO, "%s: cannot write: %s", path, strerror(errno)) : rc;
}

static int write_text(struct writing *w, const struct buf *text) {
    struct buf path = {0};
    int rc = create_file(w, &path);
    if (rc == 0) rc = close_file(w, buf_text(&path), write_bytes(w, buf_text(&path), buf_text(text), text->len));
    buf_free(&path);
    return rc;
}

/* --- weights ---------------------------------------------------------------------------------------------------- */

static void put_header(const struct writing *w, int shard, struct buf *out) {
    int64_t at = 0, shape[3];
    buf_append(out, "\0\0\0\0\0\0\0\0{", 9);
    for (int i = 0; i < w->count; i++) {
        const struct place *p = &w->places[i];
        if (p->shard != shard) continue;
        json_put_name(out, p->b->name);
        buf_puts(out, "{\"dtype\":\"BF16\",\"shape\":[");
        const int dims = binding_tensor_shape(p->b, shape);
        for (int d = 0; d < dims; d++) buf_printf(out, "%s%lld", d ? "," : "", (long long)shape[d]);
        buf_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + 2 * p->elements));
        at += 2 * p->elements;
    }
    buf_putc(out, '}');
    while (out->len % 8 != 0) buf_putc(out, ' ');
    for (int i = 0; i < 8; i++) out->data[i] = (char)((out->len - 8) >> 8 * i & 0xFF);
}

static int write_tensor(struct writing *w, const char *path, const struct place *p) {
    const struct binding *b = p->b;
    for (int64_t first = 0, n; first < p->elements; first += n) {
        n = p->elements - first < RANDOM_CHUNK ? p->elements - first : RANDOM_CHUNK;
        random_weights_fill(w->table, w->done, w->chunk, (size_t)n, device_threads(w->m->device));
        for (int64_t i = 0; b->norm && i < n; i++) w->chunk[i] = format_to_bf16(1 - b->norm->offset);
        TRY(write_bytes(w, path, w->chunk, (size_t)n * sizeof *w->chunk));
        w->done += n;
        progress_report(w->progress, "writing weights", w->done, w->total);
    }
    return 0;
}

static int write_shard(struct writing *w, int shard) {
    struct buf path = {0}, header = {0};
    int rc = create_file(w, &path);
    put_header(w, shard, &header);
    if (rc == 0) rc = write_bytes(w, buf_text(&path), header.data, header.len);
    for (int i = 0; i < w->count && rc == 0; i++)
        if (w->places[i].shard == shard) rc = write_tensor(w, buf_text(&path), &w->places[i]);
    rc = close_file(w, buf_text(&path), rc);
    buf_free(&header), buf_free(&path);
    return rc;
}

static int write_index(struct writing *w) {
    struct buf text = {0}, path = {0};
    buf_printf(&text, "{\"metadata\":{\"total_size\":%lld},\"weight_map\":{", (long long)(2 * w->total));
    for (int i = 0; i < w->count; i++) {
        put_path(w, w->places[i].shard, &path);
        const char *name = strrchr(buf_text(&path), '/') + 1;
        json_put_name(&text, w->places[i].b->name);
        json_put_string(&text, name, strlen(name));
    }
    buf_puts(&text, "}}\n");
    int rc = write_text(w, &text);
    buf_free(&path), buf_free(&text);
    return rc;
}

static int write_config(struct writing *w) {
    struct buf text = {0};
    int rc = model_shape_text(&text, checkpoint_name(w->m->checkpoint));
    buf_putc(&text, '\n');
    if (rc == 0) rc = write_text(w, &text);
    buf_free(&text);
    return rc;
}

/* --- the directory ------------------------------------------------------------------------------------------------ */

static int refuse_what_is_there(const char *dir) {
    DIR *folder = opendir(dir);
    if (!folder) return err_set(ERR_IO, "%s: cannot open: %s", dir, strerror(errno));
    int entries = 0;
    while (readdir(folder)) entries++;
    closedir(folder);
    return entries <= 2 ? 0 : err_set(ERR_IO, "%s: is not empty, and nothing is written over", dir);
}

static int open_directory(struct writing *w) {
    struct statvfs disk;
    w->made_dir = mkdir(w->dir, 0777) == 0;
    if (!w->made_dir && errno != EEXIST) return err_set(ERR_IO, "%s: cannot create: %s", w->dir, strerror(errno));
    TRY(refuse_what_is_there(w->dir));
    if (statvfs(w->dir, &disk) != 0) return err_set(ERR_IO, "%s: %s", w->dir, strerror(errno));
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize, needed = 2 * (uint64_t)w->total;
    if (needed < room) return 0;
    return err_set(ERR_IO, "%s: the weights are %.1f GB, and %.1f GB are free on this disk", w->dir,
                   (double)needed * 1e-9, (double)room * 1e-9);
}

static void remove_files(struct writing *w) {
    struct buf path = {0};
    while (w->files > 0) {
        put_path(w, --w->files, &path);
        unlink(buf_text(&path));
    }
    if (w->made_dir) rmdir(w->dir);
    buf_free(&path);
}

static int write_all(struct writing *w) {
    TRY(open_directory(w));
    TRY(random_weights_create(&w->table));
    w->chunk = malloc(RANDOM_CHUNK * sizeof *w->chunk);
    if (!w->chunk) return err_set(ERR_MEMORY, "out of memory for random weights");
    for (int shard = 0; shard < w->shards; shard++) TRY(write_shard(w, shard));
    if (w->shards > 1) TRY(write_index(w));
    return write_config(w);
}

int model_write(const struct model *m, const char *dir, int64_t shard_bytes, const struct progress *progress,
                struct written *out) {
    struct writing w = {.m = m, .dir = dir, .progress = progress, .fd = -1};
    if (!m->is_random) return err_set(ERR_USAGE, "%s: has files already", checkpoint_name(m->checkpoint));
    list_tensors(&w, shard_bytes);
    int rc = write_all(&w);
    if (rc != 0) remove_files(&w);
    *out = (struct written){w.shards, 2 * w.total};
    free(w.chunk), free(w.table), free(w.places);
    return rc;
}
