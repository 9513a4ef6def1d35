#include "block.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "copies.h"

__thread uint3 blockIdx, blockDim, gridDim;

namespace emulated {

__thread struct lane *self;
static __thread char anchor;

enum { STACK = 192 << 10, SHARED_MAX = 256 << 10, PAGE = 4096, STATIC_BASE = 0x800000, STATIC_REACH = 0x700000 };

long option(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

void fail(const char *format, ...) {
    va_list list;
    fprintf(stderr, "emulated CUDA: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    if (self)
        fprintf(stderr, "\n  in kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", self->block->launch->name,
                self->block->index.x, self->block->index.y, self->block->index.z, self->thread.x, self->thread.y,
                self->thread.z);
    fprintf(stderr, "\n");
    abort();
}

/* --- fibers --------------------------------------------------------------------------------------------- */

#ifndef __x86_64__
#error "the switch between fibers is written for x86-64 alone"
#endif
extern "C" void emulated_switch(void **save, void *load);
__asm__(".text\n.globl emulated_switch\n.type emulated_switch, @function\nemulated_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

/* The order in which lanes that could all run do: EMULATED_ORDER=0 first to last, 1 last to first, else by chance from this
 * seed. A missing barrier shows in some of them. */
static long order;

static uint32_t random_word() {
    static __thread uint64_t state;
    if (!state) state = (uint64_t)order * 0x9E3779B97F4A7C15u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}
static inline int pick_bit(uint32_t bits) {
    if (__builtin_expect(order == 0, 1)) return __builtin_ctz(bits);
    if (order == 1) return 31 - __builtin_clz(bits);
    for (uint32_t skip = random_word() % (uint32_t)__builtin_popcount(bits); skip > 0; skip--) bits &= bits - 1;
    return __builtin_ctz(bits);
}

/* The next lane that can run: of this warp, else of the warps after it; NULL: none. */
static struct lane *pick(struct block &b, int warp, uint32_t others) {
    const uint32_t here = b.warps[warp].runnable & others;
    if (here && order < 2) return &b.lanes[warp * WARP + pick_bit(here)];
    const int warps = (b.threads + WARP - 1) / WARP;
    if (order > 1 && random_word() % 4 == 0) warp = (int)(random_word() % (uint32_t)warps);
    for (int i = 0; i <= warps; i++) {
        const int at = order == 1 ? (warp + warps * 2 - i) % warps : (warp + i) % warps;
        const uint32_t bits = i == 0 ? b.warps[at].runnable & others : b.warps[at].runnable;
        if (bits) return &b.lanes[at * WARP + pick_bit(bits)];
    }
    return nullptr;
}

static void switch_to(struct lane *next) {
    struct lane *me = self;
    if (next == me) return;
    self = next;
    emulated_switch(&me->stack_pointer, next->stack_pointer);
}

[[noreturn]] static void report_deadlock(const struct block &b) {
    fprintf(stderr, "emulated CUDA: no thread can run; lanes by warp:\n");
    for (int i = 0; i < (b.threads + WARP - 1) / WARP; i++)
        fprintf(stderr, "  warp %d: %08x ended, %08x wait for their warp, %08x for a barrier\n", i, b.warps[i].ended,
                b.warps[i].waiting, b.warps[i].exist & ~b.warps[i].ended & ~b.warps[i].waiting);
    fail("deadlock");
}

/* This lane cannot go on. */
static void rest() {
    struct block &b = *self->block;
    struct lane *next = pick(b, self->index / WARP, ~0u);
    if (!next) report_deadlock(b);
    switch_to(next);
}

/* Lets the others run, each in its turn: all of those that wait like this can run. */
void pause() {
    struct block &b = *self->block;
    for (int i = 1; i < b.threads; i++) {
        const int next = (self->index + i) % b.threads;
        if (b.warps[next / WARP].runnable >> next % WARP & 1) return switch_to(&b.lanes[next]);
    }
    sched_yield();
}

/* --- meetings ------------------------------------------------------------------------------------------- */

static bool complete(struct block &b, int warp, uint32_t mask, action act) {
    struct warp &w = b.warps[warp];
    struct meeting m;
    m.mask = mask & w.exist & ~w.ended;
    if ((w.waiting & m.mask) != m.mask) return false;
    for (uint32_t left = m.mask; left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        const struct lane &l = b.lanes[warp * WARP + i];
        if (l.waits_for != act || l.mask != mask) return false;
        m.of[i] = l.brought;
    }
    act(m);
    w.waiting &= ~m.mask, w.runnable |= m.mask;
    return true;
}

void meet(uint32_t mask, action act, void *brought) {
    struct lane &me = *self;
    struct block &b = *me.block;
    const int warp = me.index / WARP;
    const uint32_t bit = 1u << me.index % WARP;
    if (!(mask & bit)) fail("a lane calls with mask %08x, which leaves it out", mask);
    me.waits_for = act, me.mask = mask, me.brought = brought;
    b.warps[warp].waiting |= bit, b.warps[warp].runnable &= ~bit;
    const uint32_t others = mask & b.warps[warp].exist & ~b.warps[warp].ended & ~b.warps[warp].waiting;
    if (others || !complete(b, warp, mask, act)) rest();
}

static void release(struct block &b, struct barrier &at) {
    for (int i = 0; i < WARPS_MAX; i++) b.warps[i].runnable |= at.waiting[i], at.waiting[i] = 0;
    at.result = at.sum;
    at.arrived = at.sum = 0;
}

static bool arrive(struct block &b, int id, int threads, int value) {
    if (id < 0 || id >= BARRIERS) fail("barrier %d", id);
    struct barrier &at = b.barriers[id];
    at.arrived++, at.sum += value;
    if (at.arrived > (threads ? threads : b.live)) fail("%d threads at a barrier of %d", at.arrived, threads);
    if (at.arrived < (threads ? threads : b.live)) return false;
    release(b, at);
    return true;
}

int wait_at(int id, int threads, int value) {
    struct block &b = *self->block;
    const int warp = self->index / WARP;
    const uint32_t bit = 1u << self->index % WARP;
    b.warps[warp].runnable &= ~bit;
    b.barriers[id].waiting[warp] |= bit;
    if (!arrive(b, id, threads, value)) rest();
    return b.barriers[id].result;
}

void arrive_at(int id, int threads) {
    (void)arrive(*self->block, id, threads, 0);
}

/* A lane ended: those that waited for it wait no more. */
static void end_lane() {
    struct block &b = *self->block;
    const int warp = self->index / WARP;
    struct warp &w = b.warps[warp];
    w.ended |= 1u << self->index % WARP, w.runnable &= ~w.ended;
    b.live--;
    for (uint32_t left = w.waiting; left; left &= left - 1) {
        const struct lane &l = b.lanes[warp * WARP + __builtin_ctz(left)];
        if (complete(b, warp, l.mask, l.waits_for)) break;
    }
    if (b.live > 0 && b.barriers[0].arrived == b.live) release(b, b.barriers[0]);
    void *unused;
    if (b.live == 0) {
        self = nullptr;
        emulated_switch(&unused, b.main_stack_pointer);
    }
    rest();
}

static void enter_lane() {
    self->block->launch->call();
    end_lane();
    abort();
}

/* --- shared memory -------------------------------------------------------------------------------------- */

static uint32_t offset_of(const struct block &b, const void *p) {
    const uintptr_t at = (uintptr_t)p - (uintptr_t)b.shared;
    if (at <= b.launch->shared && b.launch->shared > 0) return (uint32_t)at;
    const intptr_t apart = (const char *)p - b.anchor;
    if (apart < -STATIC_REACH || apart >= STATIC_REACH) fail("%p lies in no shared memory", p);
    return (uint32_t)(STATIC_BASE + apart);
}

uint32_t shared_address(const void *p) {
    return (uint32_t)self->block->rank << 24 | offset_of(*self->block, p);
}

uint32_t address_of_rank(uint32_t address, uint32_t rank) {
    return (address & 0xFFFFFFu) | rank << 24;
}

void *shared_at(uint32_t address, size_t bytes) {
    const struct block &mine = *self->block;
    const uint32_t rank = address >> 24, offset = address & 0xFFFFFFu;
    if (rank >= (uint32_t)mine.launch->cluster) fail("shared address %08x of no block in the cluster", address);
    const struct block &b = mine.peers ? *mine.peers[rank] : mine;
    if (offset % bytes != 0 && (bytes & (bytes - 1)) == 0) fail("shared address %08x is not aligned", address);
    if (offset >= STATIC_BASE - STATIC_REACH) return b.anchor + ((intptr_t)offset - STATIC_BASE);
    if (offset + bytes > b.launch->shared)
        fail("shared address %u, %zu bytes: past the %zu of the launch", offset, bytes, b.launch->shared);
    return b.shared + offset;
}

/* --- an OS thread --------------------------------------------------------------------------------------- */

static void on_fault(int signal, siginfo_t *info, void *) {
    struct sigaction usual = {};
    char text[512];
    usual.sa_handler = SIG_DFL;
    sigaction(signal, &usual, nullptr);
    if (!self) return;
    int n = snprintf(text, sizeof text,
                     "emulated CUDA: bad address %p in kernel %s, block (%u, %u, %u), thread (%u, %u, %u)\n",
                     info->si_addr, self->block->launch->name, self->block->index.x, self->block->index.y,
                     self->block->index.z, self->thread.x, self->thread.y, self->thread.z);
    if (write(2, text, (size_t)n) < 0) return;
}

static unsigned char *map(size_t bytes) {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    return (unsigned char *)memory;
}

struct worker {
    unsigned char *stacks, *shared, *alternate;
    struct block block;
    worker() : block() {
        stacks = map((size_t)STACK * THREADS_MAX);
        for (int i = 0; i < THREADS_MAX; i++) mprotect(stacks + (size_t)STACK * i, PAGE, PROT_NONE);
        shared = map(SHARED_MAX + PAGE);
        mprotect(shared + SHARED_MAX, PAGE, PROT_NONE);
        alternate = map(64 << 10);
        stack_t stack = {};
        stack.ss_sp = alternate, stack.ss_size = 64 << 10;
        sigaltstack(&stack, nullptr);
        for (struct lane &l : block.lanes) l.copies = new struct copies();
    }
    ~worker() {
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
        for (struct lane &l : block.lanes) delete l.copies;
        munmap(alternate, 64 << 10), munmap(shared, SHARED_MAX + PAGE), munmap(stacks, (size_t)STACK * THREADS_MAX);
    }
};
static struct worker &this_worker() {
    static thread_local struct worker worker;
    return worker;
}

static void prepare_lane(struct block &b, int i, unsigned char *stack) {
    struct lane &l = b.lanes[i];
    const unsigned x = (unsigned)i % b.dim.x, y = (unsigned)i / b.dim.x % b.dim.y, z = (unsigned)i / b.dim.x / b.dim.y;
    l.thread = uint3{x, y, z}, l.index = i, l.block = &b, l.waits_for = nullptr;
    l.copies->clear();
    void **top = (void **)(stack + STACK - i % 61 * 1088); /* else all of them meet in a few lines of the caches */
    *--top = nullptr;
    *--top = (void *)enter_lane;
    for (int n = 0; n < 6; n++) *--top = nullptr;
    l.stack_pointer = top;
}

/* Where all threads of a cluster's blocks meet. */
struct cluster_gate {
    std::atomic<int> blocks{0}, arrived{0};
    std::atomic<unsigned> turn{0};
};

static struct block &prepare(const struct launch &launch, size_t index) {
    struct worker &worker = this_worker();
    struct block &b = worker.block;
    const dim3 &g = launch.grid;
    b.launch = &launch, b.grid = uint3{g.x, g.y, g.z}, b.dim = uint3{launch.block.x, launch.block.y, launch.block.z};
    b.index = uint3{(unsigned)(index % g.x), (unsigned)(index / g.x % g.y), (unsigned)(index / g.x / g.y)};
    b.threads = b.live = (int)(b.dim.x * b.dim.y * b.dim.z);
    b.rank = (int)b.index.x % launch.cluster, b.peers = nullptr;
    static thread_local struct cluster_gate alone; /* a block without a cluster is one of its own */
    alone.arrived = 0, b.gate = &alone;
    b.shared = worker.shared + SHARED_MAX - (launch.shared + 127) / 128 * 128;
    b.anchor = &anchor;
    memset(b.shared, 0xFF, launch.shared); /* NaN for who does not write it first */
    memset(b.barriers, 0, sizeof b.barriers);
    for (int i = 0; i < b.threads; i++) prepare_lane(b, i, worker.stacks + (size_t)STACK * i);
    memset(b.warps, 0, sizeof b.warps);
    for (int i = 0; i < b.threads; i++) b.warps[i / WARP].exist |= 1u << i % WARP;
    for (struct warp &w : b.warps) w.runnable = w.exist;
    return b;
}

static void run_block(struct block &b) {
    blockIdx = b.index, blockDim = b.dim, gridDim = b.grid;
    self = pick(b, 0, ~0u);
    emulated_switch(&b.main_stack_pointer, self->stack_pointer);
}

/* --- clusters ------------------------------------------------------------------------------------------- */

/* Blocks of a cluster know each other's memory before any runs. */
static void join_cluster(struct cluster_gate &gate, struct block **peers, struct block &b) {
    peers[b.rank] = &b;
    b.peers = peers, b.gate = &gate;
    gate.blocks++;
    while (gate.blocks < b.launch->cluster) sched_yield();
}

void cluster_arrive() {
    struct block &b = *self->block;
    self->turn = b.gate->turn;
    if (++b.gate->arrived < b.threads * b.launch->cluster) return;
    b.gate->arrived = 0, b.gate->turn++;
}

void cluster_wait() {
    while (self->block->gate->turn == self->turn) pause();
}

/* --- launches ------------------------------------------------------------------------------------------- */

/* OS threads 0 .. count - 1 run work(i); those that exist are used again. */
struct pool {
    std::mutex mutex;
    std::condition_variable start, done;
    std::vector<std::thread> threads;
    std::function<void(int)> work;
    unsigned turn = 0;
    int wanted = 0, left = 0;
    void serve(int i, unsigned seen) {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            start.wait(lock, [&] { return turn != seen; });
            seen = turn;
            if (i >= wanted) continue;
            lock.unlock();
            work(i);
            lock.lock();
            if (--left == 0) done.notify_all();
        }
    }
    void run(int count, std::function<void(int)> what) {
        std::unique_lock<std::mutex> lock(mutex);
        while ((int)threads.size() < count) {
            threads.emplace_back(&pool::serve, this, (int)threads.size(), turn);
            threads.back().detach();
        }
        work = std::move(what), wanted = left = count, turn++;
        start.notify_all();
        done.wait(lock, [&] { return left == 0; });
    }
};

static void catch_faults() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

static void run_clusters(struct pool &pool, const struct launch &launch, size_t blocks) {
    const size_t at_once = launch.together ? blocks : (size_t)launch.cluster;
    for (size_t first = 0; first < blocks; first += at_once) {
        std::vector<struct cluster_gate> gates(at_once / (size_t)launch.cluster);
        std::vector<struct block *> peers(at_once);
        pool.run((int)at_once, [&](int i) {
            struct block &b = prepare(launch, first + (size_t)i);
            const int cluster = i / launch.cluster;
            if (launch.cluster > 1) join_cluster(gates[cluster], &peers[cluster * launch.cluster], b);
            run_block(b);
        });
    }
}

void run(const struct launch &launch) {
    static struct pool &pool = *new struct pool(); /* its threads outlive static objects */
    static std::mutex one_at_a_time;
    static const int workers = (int)option("EMULATED_THREADS", 1);
    static const bool is_ready = (catch_faults(), order = option("EMULATED_ORDER", 0), true);
    const size_t blocks = (size_t)launch.grid.x * launch.grid.y * launch.grid.z;
    std::unique_lock<std::mutex> lock(one_at_a_time);
    (void)is_ready;
    if (launch.together || launch.cluster > 1) return run_clusters(pool, launch, blocks);
    if (workers == 1 || blocks == 1) {
        for (size_t i = 0; i < blocks; i++) run_block(prepare(launch, i));
        return;
    }
    std::atomic<size_t> next(0);
    pool.run(workers, [&](int) {
        for (size_t i; (i = next++) < blocks;) run_block(prepare(launch, i));
    });
}

} /* namespace emulated */
