#include "tests/support/program.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/support.h"

extern char **environ;

const char *program_path(void) {
    static char path[4096];
    const char *given = getenv("DUET");
    ck_assert_msg(realpath(given ? given : "build/duet", path) != NULL, "%s: %s", given ? given : "build/duet",
                  strerror(errno));
    return path;
}

const char *temp_path(const char *name) {
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", temp_dir(), name);
    return path;
}

void text_to_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
    ck_assert_int_eq(fclose(file), 0);
}

void text_of_file(const char *path, struct buf *out) {
    char block[4096];
    size_t n;
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    while ((n = fread(block, 1, sizeof block, file)) > 0) buf_append(out, block, n);
    fclose(file);
}

void program_start(struct program *p, const char *input, const char *const *arguments) {
    *p = (struct program){0};
    const char *in = "/dev/null";
    if (input) {
        in = temp_path("stdin");
        text_to_file(in, input);
    }
    const char *argv[64] = {program_path()};
    for (int i = 0; arguments[i]; i++) argv[i + 1] = arguments[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, temp_path("stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, temp_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int rc = posix_spawn(&p->pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    ck_assert_msg(rc == 0, "%s: %s", argv[0], strerror(rc));
    posix_spawn_file_actions_destroy(&actions);
}

void program_wait(struct program *p) {
    int status;
    while (waitpid(p->pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
    p->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    text_of_file(temp_path("stdout"), &p->out);
    text_of_file(temp_path("stderr"), &p->err);
}

void program_run(struct program *p, const char *input, const char *const *arguments) {
    program_start(p, input, arguments);
    program_wait(p);
}

struct program program_run_at(int columns, const char *input, const char *const *arguments) {
    struct program p;
    char number[16];
    snprintf(number, sizeof number, "%d", columns);
    setenv("COLUMNS", number, 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    program_run(&p, input, arguments);
    return p;
}

void program_free(struct program *p) {
    buf_free(&p->out);
    buf_free(&p->err);
}

void program_expect_status(const struct program *p, int status) {
    ck_assert_msg(p->status == status, "status %d, expected %d: %s", p->status, status, buf_text(&p->err));
    if (status == 0) ck_assert_msg(p->err.len == 0, "stderr where it is no terminal: %s", buf_text(&p->err));
}

void program_expect_error(const struct program *p, int status, const char *part) {
    const char *err = buf_text(&p->err);
    program_expect_status(p, status);
    ck_assert_msg(count_lines(&p->err) == 1, "not one line: %s", err);
    ck_assert_msg(strncmp(err, "duet: ", 6) == 0, "%s", err);
    ck_assert_msg(strstr(err, part) != NULL, "'%s' is not in: %s", part, err);
}

/* --- JSON lines ------------------------------------------------------------------------------------------- */

int count_lines(const struct buf *text) {
    int lines = 0;
    for (size_t i = 0; i < text->len; i++) lines += text->data[i] == '\n';
    return lines;
}

cJSON *json_line(const struct buf *text, int i) {
    const char *line = buf_text(text), *end;
    for (; i > 0 && (end = strchr(line, '\n')); i--) line = end + 1;
    end = strchr(line, '\n');
    if (!end) return NULL;
    cJSON *object;
    ck_ok(json_parse(&object, line, (size_t)(end - line)));
    ck_assert_msg(cJSON_IsObject(object), "no object: %.*s", (int)(end - line), line);
    return object;
}

const char *get_string(const cJSON *record, const char *name) {
    const cJSON *item = json_get(record, name);
    ck_assert_msg(cJSON_IsString(item), "no string '%s'", name);
    return item->valuestring;
}

double get_number(const cJSON *record, const char *name) {
    double value;
    ck_assert_msg(json_number(json_get(record, name), &value), "no number '%s'", name);
    return value;
}
