#include "cli/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/cli.h"

static bool is_standard(const char *path) {
    return !path || strcmp(path, "-") == 0;
}

int input_read(const char *path, struct buf *out) {
    const char *name = is_standard(path) ? "standard input" : path;
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

static bool is_same_file(int fd, const char *input) {
    struct stat a, b;
    int rc = is_standard(input) ? fstat(STDIN_FILENO, &b) : stat(input, &b);
    return rc == 0 && fstat(fd, &a) == 0 && S_ISREG(a.st_mode) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int output_open(struct output *o, const char *path, const char *input) {
    *o = (struct output){.name = is_standard(path) ? "standard output" : path, .file = stdout};
    int fd = STDOUT_FILENO;
    if (!is_standard(path)) fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    int rc = is_same_file(fd, input) ? err_set(ERR_USAGE, "%s: is the input file too", o->name) : 0;
    if (fd != STDOUT_FILENO && rc == 0) {
        o->file = fdopen(fd, "w");
        if (!o->file) rc = err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    }
    if (rc != 0 && fd != STDOUT_FILENO) close(fd);
    if (rc != 0) o->file = NULL;
    return rc;
}

int output_begin(struct output *o) {
    struct stat st;
    if (o->file == stdout || fstat(fileno(o->file), &st) != 0 || !S_ISREG(st.st_mode)) return 0;
    if (ftruncate(fileno(o->file), 0) != 0) return err_set(ERR_IO, "%s: %s", o->name, strerror(errno));
    return 0;
}

int output_line(struct output *o, const char *text, size_t n) {
    signals_hold();
    bool written = fwrite(text, 1, n, o->file) == n && putc('\n', o->file) != EOF && fflush(o->file) == 0;
    int reason = errno;
    signals_release();
    if (written) return 0;
    clearerr(o->file); /* said once, here */
    return err_set(ERR_IO, "%s: cannot write: %s", o->name, strerror(reason));
}

int output_close(struct output *o) {
    FILE *file = o->file;
    o->file = NULL;
    if (!file) return 0;
    errno = 0;
    int failed = file == stdout ? fflush(file) : fclose(file);
    return failed ? err_set(ERR_IO, "%s: cannot write: %s", o->name, strerror(errno)) : 0;
}

/* --- JSON ----------------------------------------------------------------------------------------------------- */

void put_json_string(struct buf *out, const char *text, size_t n) {
    cJSON *item = json_make_string(text, n);
    json_print(item, out);
    cJSON_Delete(item);
}

void put_json_ids(struct buf *out, const int32_t *ids, size_t n) {
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s%d", i ? ", " : "", ids[i]);
    buf_putc(out, ']');
}
