/* duet bench start: from nothing to the first token, part by part, and two yardsticks of loading: the files, read as plainly as they can
 * be, and a copy from pinned memory to the device. */
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "cli/bench_tables.h"

enum { SHARDS_MAX = 4096, COPY_BYTES = 64 << 20, COPIES = 16 };

struct start_bench {
    char *paths[SHARDS_MAX]; /* [count] of the models' weights, each once */
    int count;
    int64_t bytes;       /* of these files */
    double one_s, all_s; /* reading them by one thread, by all threads */
    double copy_s;       /* COPIES of COPY_BYTES */
    double parts_s[START_PARTS], all_parts_s, first_token_s;
};

/* --- the files ------------------------------------------------------------------------------------------------ */

static void list_path(struct start_bench *r, const char *path) {
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->paths[i], path) == 0) return;
    if (r->count < SHARDS_MAX) r->paths[r->count++] = memory_copy_text(path);
}

static int list_files(struct start_bench *r, const struct checkpoint *c) {
    struct safetensors *tensors = NULL;
    if (!c) return 0;
    TRY(checkpoint_tensors(c, &tensors));
    for (int i = 0; tensors && i < safetensors_count(tensors); i++) list_path(r, safetensors_at(tensors, i)->file);
    safetensors_close(tensors);
    return 0;
}

struct reading {
    int fd;
    int64_t bytes;
    atomic_bool *failed;
};

static void read_part(const void *context, int part, int parts) {
    const struct reading *r = context;
    const int64_t end = r->bytes * (part + 1) / parts;
    char piece[1 << 18];
    for (int64_t at = r->bytes * part / parts; at < end;) {
        const int64_t left = end - at;
        const ssize_t got = pread(r->fd, piece, left < (int64_t)sizeof piece ? (size_t)left : sizeof piece, at);
        if (got <= 0) {
            atomic_store(r->failed, true);
            return;
        }
        at += got;
    }
}

static int read_file(const char *path, int threads, int64_t *bytes) {
    atomic_bool failed = false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(ERR_IO, "%s: cannot open", path);
    const struct reading r = {fd, lseek(fd, 0, SEEK_END), &failed};
    parallel_run(threads, r.bytes, read_part, &r);
    close(fd);
    *bytes += r.bytes;
    return atomic_load(&failed) ? err_set(ERR_IO, "%s: cannot read", path) : 0;
}

static int read_files(struct start_bench *r, int threads, double *seconds) {
    const int64_t start_us = clock_us();
    r->bytes = 0;
    for (int i = 0; i < r->count; i++) TRY(read_file(r->paths[i], threads, &r->bytes));
    *seconds = (double)(clock_us() - start_us) * 1e-6;
    return 0;
}

/* --- the device ------------------------------------------------------------------------------------------------ */

static int copy_all(struct stream *stream, void *to, const void *from, double *seconds) {
    int64_t start_us = 0;
    for (int i = -1; i < COPIES; i++) { /* one that does not count */
        TRY(stream_copy(stream, to, from, COPY_BYTES));
        if (i < 0) TRY(stream_sync(stream));
        if (i < 0) start_us = clock_us();
    }
    TRY(stream_sync(stream));
    *seconds = (double)(clock_us() - start_us) * 1e-6;
    return 0;
}

static int measure_copy(struct device *device, double *seconds) {
    struct pool *pool = NULL;
    struct stream *stream = NULL;
    void *pinned = NULL, *to;
    int rc = pool_create(device, COPY_BYTES, &pool);
    if (rc == 0) rc = pool_slice(pool, POOL_SCRATCH, "copy", COPY_BYTES, &to);
    if (rc == 0) rc = device_alloc_pinned(device, COPY_BYTES, &pinned);
    if (rc == 0) memset(pinned, 1, COPY_BYTES);
    if (rc == 0) rc = stream_create(device, &stream);
    if (rc == 0) rc = copy_all(stream, to, pinned, seconds);
    stream_destroy(stream);
    device_free_pinned(device, pinned);
    pool_destroy(pool);
    return rc;
}

static int measure_device(const struct options *o, double *seconds) {
    struct device *device;
    TRY(device_open(&device, o->device, &(struct device_options){.threads = o->threads, .gpu = o->gpu}));
    int rc = measure_copy(device, seconds);
    device_close(device);
    return rc;
}

/* --- the engine ------------------------------------------------------------------------------------------------ */

static int time_first_token(struct bench *b, double *seconds) {
    TRY(bench_prompts_load(&b->prompts, b->o, b->engine, b->models.target));
    const int64_t start_us = clock_us();
    int rc = bench_check_answer(b->engine, &b->prompts, b->o);
    *seconds = (double)(clock_us() - start_us) * 1e-6;
    return rc;
}

static int measure(struct bench *b, struct start_bench *r) {
    TRY(list_files(r, b->models.target));
    TRY(list_files(r, b->models.draft));
    if (r->count > 0) {
        cli_note("reading %d files of weights", r->count);
        TRY(read_files(r, 1, &r->one_s)); /* brings them into the page cache */
        TRY(read_files(r, 1, &r->one_s));
    }
    struct options as_chat = *b->o;
    if (!option_given(b->o, "k")) as_chat.k = K_AUTO;
    TRY(engine_start(&b->engine, &b->models, &as_chat));
    for (int i = 0; i < START_PARTS; i++) {
        r->parts_s[i] = (double)probe_start_times(b->engine)->us[i] * 1e-6;
        r->all_parts_s += r->parts_s[i];
    }
    TRY(time_first_token(b, &r->first_token_s));
    if (r->count > 0) TRY(read_files(r, probe_threads(b->engine), &r->all_s));
    return measure_device(b->o, &r->copy_s);
}

/* --- the table -------------------------------------------------------------------------------------------------- */

static void add(struct table *t, const char *name, double seconds, double bytes) {
    table_add(t, "%s", name);
    sheet_add_figure(t, seconds, 4);
    sheet_add_figure(t, bytes > 0 ? bytes * 1e-9 : NAN, 3);
    sheet_add_figure(t, bytes > 0 && seconds > 0 ? bytes * 1e-9 / seconds : NAN, 2);
}

static void show(const struct bench *b, const struct start_bench *r) {
    static const struct sheet_column columns[] = {
        {"part", "part"}, {"s", "seconds"}, {"GB", "gb"}, {"GB/s", "gb_per_second"}};
    static const char *const names[START_PARTS] = {"device",  "files",  "tokenizer", "memory",
                                                   "loading", "graphs", "warm-up",   "times of rounds"};
    struct sheet s = {0};
    const struct engine_info info = engine_info(b->engine);
    sheet_say(&s, "%s; batch %d", info.device, b->o->batch);
    sheet_put_word(&s, "device", info.device);
    sheet_put_word(&s, "shape", b->o->shape);
    sheet_put_figure(&s, "batch", b->o->batch);
    sheet_put_figure(&s, "threads", probe_threads(b->engine));
    sheet_put_figure(&s, "bytes", r->count > 0 ? (double)r->bytes : NAN);
    sheet_put_figure(&s, "ready_seconds", r->all_parts_s);
    sheet_put_figure(&s, "first_token_seconds", r->all_parts_s + r->first_token_s);
    struct table *t = sheet_add_table(&s, "parts", columns, "lrrr", "2");
    if (r->count > 0) add(t, "plain read, 1 thread", r->one_s, (double)r->bytes);
    if (r->count > 0) add(t, "plain read, all threads", r->all_s, (double)r->bytes);
    add(t, "plain copy", r->copy_s, (double)COPIES * COPY_BYTES);
    for (int i = 0; i < START_PARTS; i++) add(t, names[i], r->parts_s[i], i == START_WEIGHTS ? (double)r->bytes : 0);
    add(t, "ready", r->all_parts_s, 0);
    add(t, "first token", r->first_token_s, 0);
    add(t, "in all", r->all_parts_s + r->first_token_s, 0);
    sheet_note(&s, "The files are in the page cache: they were read once before anything was timed. ready: the parts "
                   "above it, from device on; a prompt's ingestion is part of the first token.");
    sheet_show(&s, b->o);
}

int bench_start(struct bench *b) {
    static struct start_bench r;
    int rc = measure(b, &r);
    if (rc == 0) show(b, &r);
    for (int i = 0; i < r.count; i++) free(r.paths[i]);
    return rc;
}
