#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

bool file_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool file_is_directory(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* --- reading ------------------------------------------------------------------------------------------------ */

static int check_regular(int fd, const char *path, struct stat *st) {
    if (fstat(fd, st) != 0) return err_set(ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISREG(st->st_mode)) return 0;
    return err_set(ERR_IO, "%s: is %s, expected a file", path,
                   S_ISDIR(st->st_mode) ? "a directory" : "no regular file");
}

/* What a clone without Git LFS has in place of a large file. */
static int refuse_pointer(const char *path, const char *data, size_t n) {
    static const char begin[] = "version https://git-lfs.github.com/spec/v1\n";
    const size_t length = sizeof begin - 1;
    if (n < length || memcmp(data, begin, length) != 0) return 0;
    return err_set(ERR_FORMAT, "%s: is a Git LFS pointer, not the file itself; hint: git lfs pull", path);
}

/* O_NONBLOCK: a FIFO without a writer would hold up the call; it means nothing for regular files. */
static int open_regular(const char *path, int *fd, struct stat *st) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return err_set(ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = check_regular(*fd, path, st);
    if (rc != 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

static int read_all(int fd, const char *path, size_t most, struct buf *out) {
    size_t before = out->len;
    for (;;) {
        if (out->len - before > most) return err_set(ERR_LIMIT, "%s: more than %zu bytes", path, most);
        buf_reserve(out, 4096);
        ssize_t got = read(fd, out->data + out->len, out->cap - out->len - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0) return 0;
        out->len += (size_t)got;
        out->data[out->len] = '\0';
    }
}

int file_read(const char *path, size_t most, struct buf *out) {
    struct stat st;
    int fd;
    TRY(open_regular(path, &fd, &st));
    int rc = 0;
    if ((uint64_t)st.st_size > most)
        rc = err_set(ERR_LIMIT, "%s: %lld bytes, more than %zu", path, (long long)st.st_size, most);
    if (rc == 0) buf_reserve(out, (size_t)st.st_size + 1);
    const size_t before = out->len;
    if (rc == 0) rc = read_all(fd, path, most, out);
    if (rc == 0) rc = refuse_pointer(path, buf_text(out) + before, out->len - before);
    close(fd);
    return rc;
}

/* --- mapping ------------------------------------------------------------------------------------------------ */

/* The open mappings, for mapping_path_at. An entry is free while its path is NULL; past the last place mappings are not listed,
 * which costs no more than the file's name in a sentence. */
enum { LISTED_MAX = 1024, PATH_SHOWN_MAX = 1024 };
static struct listed {
    _Atomic(char *) path;
    _Atomic uintptr_t begin, end;
    _Atomic int fd;
} listed[LISTED_MAX];

static void list_mapping(const struct mapping *m, const char *path) {
    char shown[PATH_SHOWN_MAX];
    char *copy = strdup(err_escape(path, shown, sizeof shown));
    for (int i = 0; copy && i < LISTED_MAX; i++) {
        char *none = NULL;
        if (!atomic_compare_exchange_strong(&listed[i].path, &none, copy)) continue;
        atomic_store(&listed[i].fd, m->fd);
        atomic_store(&listed[i].begin, (uintptr_t)m->data);
        atomic_store(&listed[i].end, (uintptr_t)m->data + m->bytes);
        return;
    }
    free(copy);
}

static void unlist_mapping(const struct mapping *m) {
    for (int i = 0; i < LISTED_MAX; i++) {
        if (atomic_load(&listed[i].begin) != (uintptr_t)m->data) continue;
        atomic_store(&listed[i].begin, 0);
        atomic_store(&listed[i].end, 0);
        free(atomic_exchange(&listed[i].path, NULL));
        return;
    }
}

static const struct listed *find_listed(const void *address) {
    for (int i = 0; i < LISTED_MAX; i++)
        if (atomic_load(&listed[i].begin) <= (uintptr_t)address && (uintptr_t)address < atomic_load(&listed[i].end))
            return &listed[i];
    return NULL;
}

const char *mapping_path_at(const void *address) {
    const struct listed *l = find_listed(address);
    return l ? atomic_load(&l->path) : NULL;
}

int mapping_read(void *to, const void *from, size_t bytes) {
    const struct listed *l = find_listed(from);
    if (!l) {
        memcpy(to, from, bytes);
        return 0;
    }
    off_t at = (off_t)((uintptr_t)from - atomic_load(&l->begin));
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(atomic_load(&l->fd), (char *)to + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(ERR_IO, "%s: cannot read: %s", atomic_load(&l->path), strerror(errno));
        if (got == 0) return err_set(ERR_IO, "%s: the file was cut short while it was in use", atomic_load(&l->path));
        done += (size_t)got;
    }
    return 0;
}

void mapping_read_ahead(const void *from, size_t bytes) {
    const struct listed *l = find_listed(from);
    if (!l) return;
    (void)posix_fadvise(atomic_load(&l->fd), (off_t)((uintptr_t)from - atomic_load(&l->begin)), (off_t)bytes,
                        POSIX_FADV_WILLNEED);
}

static int map(struct mapping *m, int fd, const char *path, const struct stat *st, size_t least) {
    if (st->st_size == 0 || (uint64_t)st->st_size < least)
        return err_set(ERR_FORMAT, "%s: has %lld bytes, at least %zu are needed", path, (long long)st->st_size,
                       least ? least : 1);
    void *data = mmap(NULL, (size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) return err_set(ERR_IO, "%s: cannot map: %s", path, strerror(errno));
    *m = (struct mapping){data, (size_t)st->st_size, fd};
    list_mapping(m, path);
    return 0;
}

int mapping_open(struct mapping *m, const char *path, size_t least) {
    struct stat st;
    int fd;
    *m = (struct mapping){0};
    TRY(open_regular(path, &fd, &st));
    int rc = map(m, fd, path, &st, least);
    if (rc != 0) close(fd);
    if (rc == 0) rc = refuse_pointer(path, m->data, m->bytes);
    if (rc != 0) mapping_close(m);
    return rc;
}

void mapping_close(struct mapping *m) {
    if (!m->data) return;
    unlist_mapping(m);
    munmap((void *)m->data, m->bytes);
    close(m->fd);
    *m = (struct mapping){0};
}
