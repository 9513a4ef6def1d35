#include "fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ops.h"

_Noreturn void claim_failed(const char *file, int line, const char *condition, const char *format, ...) {
    va_list args;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(NULL);
    abort();
}

/* --- what every parser owes ------------------------------------------------------------------------------- */

static const char forgotten[] = "no sentence was set";

void forget_error(void) {
    err_set(ERR_INTERNAL, "%s", forgotten);
}

void claim_sentence(const char *text) {
    claim(*text, "an empty sentence");
    claim(utf8_is_valid(text, strlen(text)), "not valid UTF-8: %s", text);
    for (const char *c = text; *c; c++) claim((unsigned char)*c >= 0x20 && *c != 0x7f, "a control character: %s", text);
}

void claim_refusal(int rc) {
    claim(rc < 0 && rc >= ERR_INTERRUPTED, "the code %d: %s", rc, err_message());
    claim(rc != ERR_INTERNAL && rc != ERR_MEMORY, "the code %d: %s", rc, err_message());
    claim(strcmp(err_message(), forgotten) != 0, "the code %d", rc);
    claim_sentence(err_message());
}

void claim_same(const char *what, const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    claim(a_bytes == b_bytes && (a_bytes == 0 || memcmp(a, b, a_bytes) == 0), "%s: '%.*s' is not '%.*s'", what,
          (int)a_bytes, (const char *)a, (int)b_bytes, (const char *)b);
}

/* The lowest number that is free. */
int files_mark(void) {
    fuzz_dir();
    int lowest = dup(STDERR_FILENO);
    close(lowest);
    return lowest;
}

void claim_files_closed(int mark) {
    claim(files_mark() == mark, "file %d was left open", mark);
}

/* --- cutting an input into parts ---------------------------------------------------------------------------- */

uint8_t input_byte(struct input *in) {
    if (in->n == 0) return 0;
    in->n--;
    return *in->data++;
}

struct input input_until(struct input *in, uint8_t end) {
    struct input part = *in;
    const uint8_t *at = in->n > 0 ? memchr(in->data, end, in->n) : NULL;
    if (at) part.n = (size_t)(at - in->data);
    in->data += part.n + (at != NULL);
    in->n -= part.n + (at != NULL);
    return part;
}

char *input_text(const struct input *in) {
    char *text = malloc(in->n + 1);
    if (!text) abort();
    if (in->n > 0) memcpy(text, in->data, in->n);
    text[in->n] = '\0';
    return text;
}

/* --- files -------------------------------------------------------------------------------------------------- */

static char dir_path[256];
static int dir_fd = -1;
static pid_t dir_owner;

static void remove_dir(void) {
    if (dir_owner != getpid()) return;
    DIR *dir = opendir(dir_path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlinkat(dir_fd, entry->d_name, 0);
    if (dir) closedir(dir);
    rmdir(dir_path);
}

const struct checkpoint *fuzz_checkpoint(void) {
    static struct checkpoint *checkpoint;
    if (!checkpoint) checkpoint = checkpoint_open(fuzz_dir());
    return checkpoint;
}

const char *fuzz_dir(void) {
    if (dir_owner == getpid()) return dir_path;
    const char *root = getenv("TMPDIR");
    if (!root) root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir_path, sizeof dir_path, "%s/duet-fuzz-XXXXXX", root);
    claim(mkdtemp(dir_path), "cannot make %s: %s", dir_path, strerror(errno));
    dir_owner = getpid();
    dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    claim(dir_fd >= 0, "cannot open %s: %s", dir_path, strerror(errno));
    atexit(remove_dir);
    return dir_path;
}

void fuzz_write(const char *name, const void *bytes, size_t n) {
    fuzz_dir();
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    claim(fd >= 0, "cannot open %s/%s: %s", dir_path, name, strerror(errno));
    claim(write(fd, n > 0 ? bytes : "", n) == (ssize_t)n, "cannot write %s/%s: %s", dir_path, name, strerror(errno));
    close(fd);
}

void fuzz_remove(const char *name) {
    fuzz_dir();
    unlinkat(dir_fd, name, 0);
}

/* No target runs a model: MODE=fuzz leaves the kernels out. */
__attribute__((weak)) const struct ops *ops_host(void) {
    return NULL;
}
