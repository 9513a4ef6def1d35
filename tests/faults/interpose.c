/* Loaded into the program before its libraries (LD_PRELOAD): counts what can fail, and lets one call fail. See log.h.
 *
 * Functions are replaced by their names. System calls are trapped by a filter that looks at where they are made: those of
 * the C library raise SIGSYS, whose handler makes the call from here, or fails it. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/faults/log.h"

enum { MODULE_RANGES_MAX = 24, OWN_FRAMES = 8 };

static struct {
    struct fault_log *log; /* NULL: nothing is counted */
    uint32_t kind, at;
    enum fault_how how;
    int error;
    const char *watched;
    struct range {
        uintptr_t base, end;
    } module[MODULE_RANGES_MAX];
    int modules;
    struct range libc; /* its instructions */
} faults;

static _Thread_local __attribute__((tls_model("initial-exec"))) bool inside;

/* --- system calls from here, which no filter traps ------------------------------------------------------------- */

static long call_system(long number, const long a[6]) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a[0];
    register long x1 __asm__("x1") = a[1];
    register long x2 __asm__("x2") = a[2];
    register long x3 __asm__("x3") = a[3];
    register long x4 __asm__("x4") = a[4];
    register long x5 __asm__("x5") = a[5];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "tests/faults knows x86-64 and AArch64"
#endif
}

/* --- who called --------------------------------------------------------------------------------------------------- */

static int add_module(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size, (void)user;
    if (faults.modules == MODULE_RANGES_MAX || faults.modules == FAULT_MODULES_MAX) return 1;
    bool is_libc = strstr(info->dlpi_name, "/libc.so") != NULL;
    struct range r = {info->dlpi_addr, 0};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;
        if (end > r.end) r.end = end;
        if (is_libc && p->p_flags & PF_X) faults.libc = (struct range){start, end};
    }
    char *name = faults.log->module[faults.modules];
    if (info->dlpi_name[0])
        snprintf(name, sizeof faults.log->module[0], "%s", info->dlpi_name);
    else if (readlink("/proc/self/exe", name, sizeof faults.log->module[0] - 1) < 0)
        name[0] = '\0';
    faults.module[faults.modules++] = r;
    return 0;
}

/* FAULT_MODULES_MAX: of none that is known. */
static uint64_t module_of(const void *address) {
    uintptr_t at = (uintptr_t)address;
    for (int i = 0; i < faults.modules; i++)
        if (at >= faults.module[i].base && at < faults.module[i].end) return (uint64_t)i;
    return FAULT_MODULES_MAX;
}

static uint64_t place_of(const void *address) {
    uint64_t module = module_of(address);
    return module << FAULT_MODULE_SHIFT |
           ((uintptr_t)address - (module == FAULT_MODULES_MAX ? 0 : faults.module[module].base));
}

static void record(uint32_t kind) {
    void *frames[FAULT_DEPTH + OWN_FRAMES];
    uint32_t slot = __atomic_fetch_add(&faults.log->recorded, 1, __ATOMIC_RELAXED);
    if (slot >= FAULT_CALLS_MAX) return;
    struct fault_call *call = &faults.log->call[slot];
    call->kind = kind, call->depth = 0;
    int n = backtrace(frames, FAULT_DEPTH + OWN_FRAMES), first = 0;
    const uint64_t own = module_of(__extension__(const void *) call_system);
    for (int i = 0; i < n && i < OWN_FRAMES; i++)
        if (module_of(frames[i]) == own) first = i + 1;
    for (int i = first; i < n && call->depth < FAULT_DEPTH; i++) call->frames[call->depth++] = place_of(frames[i]);
}

/* --- what fails --------------------------------------------------------------------------------------------------- */

enum verdict { PASS, FAIL, HALVE };

static int64_t watched_bytes(void) {
    struct stat st;
    if (!faults.watched) return -1;
    const long a[6] = {AT_FDCWD, (long)faults.watched, (long)&st, 0};
    return call_system(SYS_newfstatat, a) == 0 ? (int64_t)st.st_size : -1;
}

static void note_fault(uint32_t kind) {
    if (__atomic_fetch_add(&faults.log->failed, 1, __ATOMIC_RELAXED) > 0) return;
    faults.log->watched_bytes = watched_bytes();
    record(kind);
}

static enum verdict judge(uint32_t at) {
    if (at < faults.at) return PASS;
    switch (faults.how) {
    case FAULT_ONCE:
        return at == faults.at ? FAIL : PASS;
    case FAULT_FOR_GOOD:
        return FAIL;
    case FAULT_SHORT:
        return at == faults.at ? HALVE : PASS;
    case FAULT_TORN:
        return at == faults.at ? HALVE : FAIL;
    default:
        return PASS;
    }
}

/* Counts one call of a kind and says what becomes of it. */
static enum verdict count(uint32_t kind) {
    if (!faults.log || inside) return PASS;
    inside = true;
    int before = errno;
    uint32_t at = __atomic_add_fetch(&faults.log->at[kind], 1, __ATOMIC_RELAXED);
    enum verdict verdict = kind == faults.kind ? judge(at) : PASS;
    if (faults.how == FAULT_NEVER)
        record(kind);
    else if (verdict != PASS)
        note_fault(kind);
    errno = before;
    inside = false;
    return verdict;
}

static bool fails(uint32_t kind) {
    if (count(kind) == PASS) return false;
    errno = faults.error;
    return true;
}

/* --- functions ------------------------------------------------------------------------------------------------------ */

/* The loader asks for memory itself while it looks a name up, and does without. */
#define NEXT(type, name, refused, ...)                                            \
    static type (*next)(__VA_ARGS__);                                             \
    static _Thread_local __attribute__((tls_model("initial-exec"))) bool looking; \
    if (!next) {                                                                  \
        if (looking) return refused;                                              \
        looking = true;                                                           \
        next = __extension__(type(*)(__VA_ARGS__)) dlsym(RTLD_NEXT, name);        \
        looking = false;                                                          \
    }

void *malloc(size_t bytes) {
    NEXT(void *, "malloc", NULL, size_t)
    return fails(FAULT_MEMORY) ? NULL : next(bytes);
}

void *calloc(size_t n, size_t bytes) {
    NEXT(void *, "calloc", NULL, size_t, size_t)
    return fails(FAULT_MEMORY) ? NULL : next(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    NEXT(void *, "realloc", NULL, void *, size_t)
    return fails(FAULT_MEMORY) ? NULL : next(old, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    NEXT(int, "posix_memalign", ENOMEM, void **, size_t, size_t)
    return fails(FAULT_MEMORY) ? faults.error : next(out, align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    NEXT(void *, "aligned_alloc", NULL, size_t, size_t)
    return fails(FAULT_MEMORY) ? NULL : next(align, bytes);
}

/* The C library's strdup calls malloc, a sanitizer's does not. */
static char *duplicate(const char *text, size_t n) {
    char *copy = malloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

#undef strdup
char *strdup(const char *text) {
    return duplicate(text, strlen(text));
}

#undef strndup
char *strndup(const char *text, size_t most) {
    return duplicate(text, strnlen(text, most));
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    NEXT(void *, "mmap", MAP_FAILED, void *, size_t, int, int, int, off_t)
    return fails(FAULT_MAP) ? MAP_FAILED : next(address, bytes, protection, flags, fd, offset);
}

int pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    NEXT(int, "pthread_create", EAGAIN, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)
    return fails(FAULT_THREAD) ? faults.error : next(out, attributes, run, argument);
}

/* --- system calls ----------------------------------------------------------------------------------------------------- */

static const struct {
    int number;
    enum fault_kind kind;
} system_calls[] = {
#ifdef SYS_open
    {SYS_open, FAULT_OPEN},   {SYS_stat, FAULT_STAT},       {SYS_access, FAULT_STAT},
#endif
    {SYS_openat, FAULT_OPEN}, {SYS_read, FAULT_READ},       {SYS_pread64, FAULT_READ},   {SYS_readv, FAULT_READ},
    {SYS_write, FAULT_WRITE}, {SYS_pwrite64, FAULT_WRITE},  {SYS_writev, FAULT_WRITE},   {SYS_close, FAULT_CLOSE},
    {SYS_fstat, FAULT_STAT},  {SYS_newfstatat, FAULT_STAT}, {SYS_faccessat, FAULT_STAT}, {SYS_ftruncate, FAULT_CUT},
    {SYS_fsync, FAULT_SYNC},  {SYS_fdatasync, FAULT_SYNC},
};
enum { SYSTEM_CALLS = sizeof system_calls / sizeof *system_calls };

static uint32_t kind_of(long number) {
    for (int i = 0; i < SYSTEM_CALLS; i++)
        if (system_calls[i].number == number) return system_calls[i].kind;
    return FAULT_KINDS;
}

/* The result as the kernel gives it. */
static long answer_system(long number, const long arguments[6]) {
    long a[6];
    memcpy(a, arguments, sizeof a);
    uint32_t kind = kind_of(number);
    bool is_plain = number == SYS_read || number == SYS_write;
    enum verdict verdict = kind == FAULT_WRITE && a[0] == STDERR_FILENO ? PASS : count(kind);
    if (verdict == HALVE && is_plain) a[2] = (a[2] + 1) / 2;
    if (verdict != FAIL) return call_system(number, a);
    if (kind == FAULT_CLOSE) call_system(number, a); /* it is closed all the same, as on Linux */
    return -faults.error;
}

static void on_system_call(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number, (void)info;
    mcontext_t *m = &((ucontext_t *)context)->uc_mcontext;
    int before = errno;
#if defined(__x86_64__)
    greg_t *r = m->gregs;
    const long a[6] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]};
    r[REG_RAX] = answer_system(info->si_syscall, a);
#else
    unsigned long long *r = m->regs;
    const long a[6] = {(long)r[0], (long)r[1], (long)r[2], (long)r[3], (long)r[4], (long)r[5]};
    r[0] = (unsigned long long)answer_system(info->si_syscall, a);
#endif
    errno = before;
}

enum {
    IP_LOW = offsetof(struct seccomp_data, instruction_pointer),
    IP_HIGH = IP_LOW + 4,
    BELOW_END = 5, /* places in the filter */
    NUMBER = 10,
    ALLOW = NUMBER + 1 + SYSTEM_CALLS,
    TRAP,
    FILTER
};

static struct sock_filter load(uint32_t offset) {
    return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
}

/* The instruction at `at`: compares what was loaded, and goes to `yes` or `no`. */
static struct sock_filter compare(int at, unsigned short how, uint32_t value, int yes, int no) {
    return (struct sock_filter)BPF_JUMP(BPF_JMP | how | BPF_K, value, (unsigned char)(yes - at - 1),
                                        (unsigned char)(no - at - 1));
}

/* Traps the calls of the table that the C library's instructions make. */
static bool trap_system_calls(void) {
    const uint32_t low = (uint32_t)faults.libc.base, high = (uint32_t)(faults.libc.base >> 32);
    const uint32_t end_low = (uint32_t)faults.libc.end, end_high = (uint32_t)(faults.libc.end >> 32);
    struct sock_filter f[FILTER] = {
        [0] = load(IP_HIGH),
        [1] = compare(1, BPF_JGT, high, BELOW_END, 2),
        [2] = compare(2, BPF_JEQ, high, 3, ALLOW),
        [3] = load(IP_LOW),
        [4] = compare(4, BPF_JGE, low, BELOW_END, ALLOW),
        [BELOW_END] = load(IP_HIGH),
        [6] = compare(6, BPF_JGT, end_high, ALLOW, 7),
        [7] = compare(7, BPF_JEQ, end_high, 8, NUMBER),
        [8] = load(IP_LOW),
        [9] = compare(9, BPF_JGE, end_low, ALLOW, NUMBER),
        [NUMBER] = load(offsetof(struct seccomp_data, nr)),
        [ALLOW] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        [TRAP] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    for (int i = 0, at = NUMBER + 1; i < SYSTEM_CALLS; i++, at++)
        f[at] = compare(at, BPF_JEQ, (uint32_t)system_calls[i].number, TRAP, at + 1);
    struct sock_fprog program = {FILTER, f};
    struct sigaction action = {.sa_sigaction = on_system_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    return faults.libc.end > 0 && sigaction(SIGSYS, &action, NULL) == 0 &&
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* --- the start ------------------------------------------------------------------------------------------------------------ */

static struct fault_log *map_log(void) {
    const char *path = getenv("DUET_FAULT_LOG");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return NULL;
    void *log = mmap(NULL, sizeof(struct fault_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return log == MAP_FAILED ? NULL : log;
}

static void arm(void) {
    void *warm[4];
    const char *order = getenv("DUET_FAULT");
    struct fault_log *log = order ? map_log() : NULL;
    unsigned kind, at, how;
    if (!log || sscanf(order, "%u %u %u %d", &kind, &at, &how, &faults.error) != 4) return;
    faults.kind = kind, faults.at = at, faults.how = (enum fault_how)how;
    faults.watched = getenv("DUET_FAULT_WATCH");
    backtrace(warm, 4); /* loads what it needs */
    inside = true;
    faults.log = log;
    dl_iterate_phdr(add_module, NULL);
    log->sees_system = trap_system_calls();
    log->armed = 1;
    inside = false;
}

typedef int (*main_fn)(int, char **, char **);
static main_fn program_main;

static int run_main(int argc, char **argv, char **environment) {
    arm();
    return program_main(argc, argv, environment);
}

/* Counting begins at main: what the loader does before is not the program's. */
int __libc_start_main(main_fn, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __libc_start_main(main_fn run, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end) {
    NEXT(int, "__libc_start_main", 127, main_fn, int, char **, void (*)(void), void (*)(void), void (*)(void), void *)
    program_main = run;
    return next(run_main, argc, argv, init, fini, loader_fini, stack_end);
}
