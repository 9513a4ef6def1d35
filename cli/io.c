#include "cli/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"

static const char standard_output[] = "standard output";

static bool is_standard(const char *path) {
    return !path || strcmp(path, "-") == 0;
}

const char *input_name(const char *path) {
    return is_standard(path) ? "standard input" : path;
}

int input_read(const char *path, struct buf *out) {
    const char *name = input_name(path);
    int fd = is_standard(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(ERR_IO, "%s: %s", name, strerror(errno));
    ssize_t n;
    do {
        buf_reserve(out, 1 << 16);
        n = read(fd, out->data + out->len, 1 << 16);
        if (n > 0) out->len += (size_t)n;
    } while (n > 0 || (n < 0 && errno == EINTR));
    int rc = n < 0 ? err_set(ERR_IO, "%s: %s", name, strerror(errno)) : 0;
    buf_append(out, "", 0);
    if (fd != STDIN_FILENO) close(fd);
    return rc;
}

/* --- lines -------------------------------------------------------------------------------------------------- */

struct lines lines_of(const struct buf *text) {
    const char *start = buf_text(text);
    return (struct lines){.at = start, .end = start + text->len};
}

bool lines_next(struct lines *l, const char **line, size_t *n) {
    if (l->at == l->end) return false;
    const char *newline = memchr(l->at, '\n', (size_t)(l->end - l->at));
    const char *end = newline ? newline : l->end;
    *line = l->at;
    *n = (size_t)(end - l->at);
    if (*n > 0 && end[-1] == '\r') --*n;
    l->at = newline ? newline + 1 : l->end;
    l->number++;
    return true;
}

bool line_is_blank(const char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

/* --- output ------------------------------------------------------------------------------------------------- */

/* Standard output that nobody reads any more ends the run quietly, as SIGPIPE would. */
static int fail_write(const struct output *o, int reason) {
    if (reason == EPIPE && o->name == standard_output) signals_end(SIGPIPE);
    return err_set(ERR_IO, "%s: cannot write: %s", o->name, strerror(reason));
}

static int output_stat(const struct output *o, struct stat *st) {
    return fstat(o->fd, st) == 0 ? 0 : err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* "-", /dev/stdout, or whatever else is the same: opened anew, a file behind ">>" would lose what it holds. */
static bool is_standard_output(const char *path) {
    struct stat a, b;
    return is_standard(path) || (stat(path, &a) == 0 && fstat(STDOUT_FILENO, &b) == 0 && is_same(&a, &b));
}

int output_open(struct output *o, const char *path) {
    struct stat st;
    bool standard = is_standard_output(path);
    *o = (struct output){.fd = STDOUT_FILENO, .name = standard ? standard_output : path};
    if (!standard) o->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (o->fd < 0) return err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    if (output_stat(o, &st) != 0) {
        (void)output_close(o);
        return ERR_IO;
    }
    o->is_regular = S_ISREG(st.st_mode);
    return 0;
}

static bool is_same_file(const struct stat *a, const struct stat *b) {
    return S_ISREG(a->st_mode) && is_same(a, b);
}

int output_refuse_input(const struct output *o, const char *input) {
    struct stat a, b;
    TRY(output_stat(o, &a));
    int missing = is_standard(input) ? fstat(STDIN_FILENO, &b) : stat(input, &b);
    if (missing && errno != ENOENT && errno != ENOTDIR)
        return err_set(ERR_IO, "%s: %s", input_name(input), strerror(errno));
    if (missing || !is_same_file(&a, &b)) return 0;
    return err_set(ERR_USAGE, "%s: is the input file too", o->name);
}

int output_refuse_models(const struct output *o, const struct models *m) {
    const struct checkpoint *const models[] = {m->target, m->draft};
    struct stat st;
    TRY(output_stat(o, &st));
    if (!S_ISREG(st.st_mode)) return 0;
    for (int i = 0; i < 2; i++)
        if (models[i] && checkpoint_holds(models[i], &st))
            return err_set(ERR_USAGE, "%s: is a file of the model %s", o->name, checkpoint_name(models[i]));
    return 0;
}

int output_refuse_output(const struct output *o, const struct output *other) {
    struct stat a, b;
    TRY(output_stat(o, &a));
    TRY(output_stat(other, &b));
    if (!is_same_file(&a, &b)) return 0;
    return err_set(ERR_USAGE, "%s: is the output file too", o->name);
}

bool output_holds(const struct output *o) {
    struct stat st;
    return o->is_regular && o->fd != STDOUT_FILENO && fstat(o->fd, &st) == 0 && st.st_size > 0;
}

int output_refuse_existing(const struct output *o, bool can_resume) {
    struct stat st;
    TRY(output_stat(o, &st));
    if (!output_holds(o)) return 0;
    return err_set(ERR_USAGE, "%s: is not empty (%s--force writes over it)", o->name,
                   can_resume ? "--resume continues it, " : "");
}

/* Standard output goes on where it stands (">>"), behind what was printed there. */
int output_begin(struct output *o) {
    if (o->fd == STDOUT_FILENO) fflush(stdout);
    if (!o->is_regular) return 0;
    if (o->fd != STDOUT_FILENO && ftruncate(o->fd, 0) != 0) return err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    struct stat st;
    TRY(output_stat(o, &st));
    o->end = lseek(o->fd, 0, SEEK_CUR);
    if (fcntl(o->fd, F_GETFL) & O_APPEND) o->end = st.st_size;
    return 0;
}

int output_continue(struct output *o, int64_t bytes) {
    if (ftruncate(o->fd, bytes) != 0 || lseek(o->fd, bytes, SEEK_SET) < 0)
        return err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    o->end = bytes;
    return 0;
}

/* All of `parts` [2], or what went wrong, an errno. */
static int write_parts(int fd, struct iovec *parts) {
    while (parts[0].iov_len + parts[1].iov_len > 0) {
        ssize_t n = writev(fd, parts, 2);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        for (int i = 0; i < 2; i++) {
            size_t done = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + done;
            parts[i].iov_len -= done;
            n -= (ssize_t)done;
        }
    }
    return 0;
}

/* Appends whole lines. 0, or an errno; then the file ends at a whole line again, as far as that can be had. */
static int append(struct output *o, struct iovec *parts) {
    int64_t bytes = (int64_t)(parts[0].iov_len + parts[1].iov_len);
    int reason = write_parts(o->fd, parts);
    if (reason == 0)
        o->end += bytes;
    else if (o->is_regular && ftruncate(o->fd, o->end) == 0)
        (void)lseek(o->fd, o->end, SEEK_SET);
    return reason;
}

static int write_line(struct output *o, const char *text, size_t n) {
    struct iovec parts[2] = {{(void *)text, n}, {"\n", 1}};
    return append(o, parts);
}

int output_line(struct output *o, const char *text, size_t n) {
    signals_hold();
    int reason = write_line(o, text, n);
    signals_release();
    return reason ? fail_write(o, reason) : 0;
}

void output_line_last(struct output *o, const char *text, size_t n) {
    (void)write_line(o, text, n);
}

/* What cannot be synchronised says EINVAL, or EROFS. */
static int synchronise(const struct output *o) {
    return fsync(o->fd) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
}

static int write_over(const struct output *o, int64_t at, const char *text, size_t n) {
    while (n > 0) {
        ssize_t done = pwrite(o->fd, text, n, at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        text += done, at += done, n -= (size_t)done;
    }
    return 0;
}

/* Between any two of these steps, and in them, every line stands in the file: in its old place, or in the copy. */
static int reorder(struct output *o, int64_t from, const char *text, size_t n) {
    struct iovec parts[2] = {{(void *)text, n}, {"", 0}};
    int reason = append(o, parts);
    if (reason == 0) reason = synchronise(o);
    if (reason == 0) reason = write_over(o, from, text, n);
    if (reason == 0) reason = synchronise(o);
    if (reason == 0 && ftruncate(o->fd, from + (int64_t)n) != 0) reason = errno;
    if (reason != 0) return reason;
    o->end = lseek(o->fd, from + (int64_t)n, SEEK_SET);
    return 0;
}

int output_reorder(struct output *o, int64_t from, const char *text, size_t n) {
    signals_hold();
    int reason = reorder(o, from, text, n);
    signals_release();
    return reason ? fail_write(o, reason) : 0;
}

/* Bytes that the disk did not take may be told as late as here; what cannot be synchronised (a pipe) says EINVAL. */
int output_close(struct output *o) {
    int fd = o->fd, reason = 0;
    if (fd < 0) return 0;
    if (o->is_regular) reason = synchronise(o);
    o->fd = -1;
    if (fd != STDOUT_FILENO && close(fd) != 0 && errno != EINTR && reason == 0) reason = errno;
    return reason ? fail_write(o, reason) : 0;
}

/* --- JSON ----------------------------------------------------------------------------------------------------- */

void put_json_ids(struct buf *out, const int32_t *ids, size_t n) {
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s%d", i ? ", " : "", ids[i]);
    buf_putc(out, ']');
}
