#include "tests/faults/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/files/safetensors.h"
#include "tests/faults/terminal.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

enum { TIME_LIMIT_S = SANITIZED ? 60 : 20, IDLE_MS = SANITIZED ? 500 : 200, VARIABLES_MAX = 256 };

extern char **environ;

static struct fault_log *shared_log;

const struct fault_log *fault_log(void) {
    return shared_log;
}

const struct buf *fault_old_text(void) {
    static struct buf old;
    while (old.len < OLD_BYTES) buf_puts(&old, "{\"what\": \"was here before\"}\n");
    return &old;
}

/* --- what is there before ------------------------------------------------------------------------------------------ */

/* "@/" is the folder of the runs, "@target" and "@draft" the embedded pair. */
static void expand(const char *text, struct buf *out) {
    while (*text) {
        if (strncmp(text, "@/", 2) == 0)
            buf_printf(out, "%s/", temp_dir()), text += 2;
        else if (strncmp(text, "@target", 7) == 0)
            buf_puts(out, asset_path("target")), text += 7;
        else if (strncmp(text, "@draft", 6) == 0)
            buf_puts(out, asset_path("draft")), text += 6;
        else
            buf_putc(out, *text++);
    }
}

static void put_file(const char *name, const char *text) {
    struct buf expanded = {0};
    expand(text, &expanded);
    text_to_file(temp_path(name), buf_text(&expanded));
    buf_free(&expanded);
}

/* The embedded target as two shards that are both the whole file, each asked for some of its tensors. */
static void make_shards(void) {
    struct safetensors *s;
    struct buf index = {0};
    char command[4096 * 2];
    ck_ok(safetensors_open(&s, asset_path("target/model.safetensors")));
    buf_puts(&index, "{\"weight_map\": {");
    for (int i = 0; i < safetensors_count(s); i++)
        buf_printf(&index, "%s\"%s\": \"a.safetensors\"", i ? ", " : "", safetensors_at(s, i)->name);
    buf_puts(&index, "}}");
    safetensors_close(s);
    snprintf(command, sizeof command,
             "mkdir -p %s/shards && cp -f %s/*.json %s/shards && cp -f %s/model.safetensors %s/shards/a.safetensors",
             temp_dir(), asset_path("target"), temp_dir(), asset_path("target"), temp_dir());
    ck_assert_int_eq(system(command), 0);
    text_to_file(temp_path("shards/model.safetensors.index.json"), buf_text(&index));
    buf_free(&index);
}

static void map_log(void) {
    int fd = open(temp_path("faults.log"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sizeof *shared_log), 0);
    shared_log = mmap(NULL, sizeof *shared_log, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(shared_log, MAP_FAILED);
    close(fd);
}

void fault_prepare(const struct scenario *s) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (!shared_log) map_log();
    if (s->given) put_file("given.jsonl", s->given);
    if (s->is_shards) make_shards();
}

/* --- the environment --------------------------------------------------------------------------------------------------- */

static const char *interposer_path(void) {
    static char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s", program_path());
    strcpy(strrchr(path, '/') + 1, "tests/faults.so");
    return path;
}

static bool is_ours(const char *variable) {
    static const char *const ours[] = {
        "LD_PRELOAD=",     "ASAN_OPTIONS=",   "UBSAN_OPTIONS=", "LC_ALL=",       "TERM=",    "HOME=",
        "XDG_STATE_HOME=", "XDG_CACHE_HOME=", "HF_HOME=",       "HF_HUB_CACHE=", "COLUMNS=", "DUET_FAULT"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0) return true;
    return false;
}

/* The program's variables with what the interposer reads. Static. */
static char **make_environment(const struct scenario *s, const struct fault *f) {
    static char own[12][PATH_MAX + 64];
    static char *variables[VARIABLES_MAX];
    const char *watched = scenario_watched(s);
    int count = 0, n = 0;
    snprintf(own[n++], sizeof *own, "LD_PRELOAD=%s", interposer_path());
    snprintf(own[n++], sizeof *own, "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=1:allocator_may_return_null=1");
    snprintf(own[n++], sizeof *own, "LC_ALL=%s", s->typed ? "C.UTF-8" : "C");
    snprintf(own[n++], sizeof *own, "TERM=xterm-256color");
    snprintf(own[n++], sizeof *own, "HOME=%s", temp_dir());
    snprintf(own[n++], sizeof *own, "XDG_STATE_HOME=%s", temp_dir());
    snprintf(own[n++], sizeof *own, "DUET_FAULT=%d %u %d %d", f->kind, f->at, f->how, f->error);
    snprintf(own[n++], sizeof *own, "DUET_FAULT_LOG=%s", temp_path("faults.log"));
    snprintf(own[n++], sizeof *own, "DUET_FAULT_WATCH=%s", temp_path(watched ? watched : "stdout"));
    for (int i = 0; i < n; i++) variables[count++] = own[i];
    for (char **v = environ; *v && count < VARIABLES_MAX - 1; v++)
        if (!is_ours(*v)) variables[count++] = *v;
    variables[count] = NULL;
    return variables;
}

/* --- one run -------------------------------------------------------------------------------------------------------------- */

static pid_t start(const struct scenario *s, const struct fault *f, const struct typist *typist) {
    static struct buf text[SCENARIO_ARGUMENTS];
    const char *argv[SCENARIO_ARGUMENTS + 2] = {program_path()};
    for (int i = 0; i < SCENARIO_ARGUMENTS && s->arguments[i]; i++) {
        buf_clear(&text[i]);
        expand(s->arguments[i], &text[i]);
        argv[i + 1] = buf_text(&text[i]);
    }
    const char *in = "/dev/null";
    if (s->input) put_file("stdin", s->input), in = temp_path("stdin");
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 1, temp_path("stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, temp_path("stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (s->typed) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
        posix_spawn_file_actions_addopen(&actions, 0, typist->path, O_RDWR, 0);
        posix_spawn_file_actions_adddup2(&actions, 0, 1);
    } else {
        posix_spawn_file_actions_addopen(&actions, 0, in, O_RDONLY, 0);
    }
    pid_t pid;
    int rc = posix_spawn(&pid, argv[0], &actions, &attributes, (char *const *)argv, make_environment(s, f));
    ck_assert_msg(rc == 0, "%s: %s", argv[0], strerror(rc));
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* Until the process has ended, or its time is up. */
static bool wait_for_end(int process, struct typist *typist) {
    int64_t end_us = clock_us() + (int64_t)TIME_LIMIT_S * 1000000;
    struct pollfd p[2] = {{.fd = process, .events = POLLIN}, {.fd = typist->fd, .events = POLLIN}};
    for (int64_t left_us; (left_us = end_us - clock_us()) > 0;) {
        int rc = poll(p, 2, typist->fd < 0 ? (int)(left_us / 1000) + 1 : IDLE_MS);
        if (rc < 0) continue;
        if (p[0].revents) return true;
        if (typist->fd >= 0) typist_go_on(typist, p[1].revents != 0);
    }
    return false;
}

/* Kills what has not ended by itself. */
static void await(struct ending *e, pid_t pid, struct typist *typist) {
    int status, process = (int)syscall(SYS_pidfd_open, pid, 0);
    ck_assert_msg(process >= 0, "pidfd_open: %s", strerror(errno));
    e->is_late = !wait_for_end(process, typist);
    if (e->is_late) kill(pid, SIGKILL);
    close(process);
    while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
    e->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void fault_run(struct ending *e, const struct scenario *s, const struct fault *f) {
    *e = (struct ending){0};
    memset(shared_log, 0, offsetof(struct fault_log, call));
    shared_log->watched_bytes = -1;
    for (int i = 0; i < SCENARIO_FILES && s->file[i].name; i++)
        text_to_file(temp_path(s->file[i].name), buf_text(fault_old_text()));
    remove(temp_path("duet/history"));
    struct typist typist;
    typist_open(&typist, s->typed);
    await(e, start(s, f, &typist), &typist);
    typist_close(&typist);
    text_of_file(temp_path("stdout"), &e->out);
    text_of_file(temp_path("stderr"), &e->err);
    for (int i = 0; i < SCENARIO_FILES && s->file[i].name; i++) {
        e->has_file[i] = access(temp_path(s->file[i].name), F_OK) == 0;
        if (e->has_file[i]) text_of_file(temp_path(s->file[i].name), &e->file[i]);
    }
}

void ending_free(struct ending *e) {
    buf_free(&e->out);
    buf_free(&e->err);
    for (int i = 0; i < SCENARIO_FILES; i++) buf_free(&e->file[i]);
    *e = (struct ending){0};
}
