#include "tests/faults/campaign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/support.h"

const char *const fault_kind_names[FAULT_KINDS] = {"memory", "map",   "thread", "open", "read",
                                                   "write",  "close", "stat",   "cut",  "sync"};

/* The ways in which calls of a kind fail. */
static const struct way {
    enum fault_kind kind;
    enum fault_how how;
    int error;
    const char *name;
    bool only_thorough;
} ways[] = {
    {FAULT_MEMORY, FAULT_ONCE, ENOMEM, "once", false},
    {FAULT_MEMORY, FAULT_FOR_GOOD, ENOMEM, "for good", false},
    {FAULT_MAP, FAULT_ONCE, ENOMEM, "once", false},
    {FAULT_MAP, FAULT_FOR_GOOD, ENOMEM, "for good", false},
    {FAULT_THREAD, FAULT_ONCE, EAGAIN, "once", false},
    {FAULT_THREAD, FAULT_FOR_GOOD, EAGAIN, "for good", false},
    {FAULT_OPEN, FAULT_ONCE, EMFILE, "once", false},
    {FAULT_OPEN, FAULT_FOR_GOOD, EMFILE, "for good", false},
    {FAULT_OPEN, FAULT_ONCE, EACCES, "once, EACCES", true},
    {FAULT_READ, FAULT_ONCE, EIO, "once", false},
    {FAULT_READ, FAULT_FOR_GOOD, EIO, "for good", false},
    {FAULT_READ, FAULT_ONCE, EINTR, "interrupted", false},
    {FAULT_READ, FAULT_SHORT, EIO, "short", false},
    {FAULT_WRITE, FAULT_ONCE, ENOSPC, "once", false},
    {FAULT_WRITE, FAULT_FOR_GOOD, ENOSPC, "for good", false},
    {FAULT_WRITE, FAULT_ONCE, EINTR, "interrupted", false},
    {FAULT_WRITE, FAULT_SHORT, ENOSPC, "short", false},
    {FAULT_WRITE, FAULT_TORN, ENOSPC, "torn", false},
    {FAULT_CLOSE, FAULT_ONCE, EIO, "once", false},
    {FAULT_STAT, FAULT_ONCE, EIO, "once", false},
    {FAULT_STAT, FAULT_FOR_GOOD, EIO, "for good", false},
    {FAULT_CUT, FAULT_ONCE, EIO, "once", false},
    {FAULT_SYNC, FAULT_ONCE, EIO, "once", false},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* --- which calls ------------------------------------------------------------------------------------------------------ */

struct group {
    uint64_t hash;
    uint32_t first, last; /* the calls of the kind, from 1 */
    bool is_shared;       /* an earlier campaign of the process has one at this site */
};

struct plan {
    struct group *groups;
    uint32_t count, slots; /* slots: of the table, a power of two */
};

enum { SITE_FRAMES = 3, FOR_GOOD_STEP = 4, SMALL_STEP = 11, SHARED_STEP = 8 };

static bool is_of_program(uint64_t frame) {
    return frame >> FAULT_MODULE_SHIFT == 0;
}

/* FNV-1a over the frames that tell calls apart. */
static uint64_t hash_call(const struct fault_call *c, enum effort effort) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0, own = 0; i < c->depth && (effort != EFFORT_SITES || own < SITE_FRAMES); i++) {
        if (effort == EFFORT_SITES && !is_of_program(c->frames[i])) continue;
        own++;
        for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (c->frames[i] >> shift & 0xff)) * 0x100000001b3u;
    }
    return hash;
}

/* What libedit does without the memory or the files that it asks for is its own: some of that is a null pointer. */
static bool is_of_libedit(const struct fault_log *log, const struct fault_call *c) {
    for (uint32_t i = 0; i < c->depth && !is_of_program(c->frames[i]); i++) {
        uint64_t module = c->frames[i] >> FAULT_MODULE_SHIFT;
        if (module < FAULT_MODULES_MAX && strstr(log->module[module], "/libedit")) return true;
    }
    return false;
}

/* Groups the calls of a kind in the order of their first ones. */
static struct plan make_plan(const struct fault_log *log, enum fault_kind kind, enum effort effort) {
    struct plan p = {.groups = calloc(log->at[kind] + 1, sizeof *p.groups)};
    ck_assert_msg(log->recorded <= FAULT_CALLS_MAX, "%u calls are more than the log holds", log->recorded);
    for (p.slots = 64; p.slots < 4 * log->at[kind]; p.slots *= 2) continue;
    uint32_t *table = calloc(p.slots, sizeof *table), at = 0;
    for (uint32_t i = 0; i < log->recorded; i++) {
        if (log->call[i].kind != kind) continue;
        at++;
        if (is_of_libedit(log, &log->call[i])) continue;
        uint64_t hash = effort == EFFORT_CALLS ? at : hash_call(&log->call[i], effort);
        uint32_t slot = (uint32_t)(hash * 0x9e3779b97f4a7c15u >> 32) & (p.slots - 1);
        while (table[slot] && p.groups[table[slot] - 1].hash != hash) slot = (slot + 1) & (p.slots - 1);
        if (!table[slot]) {
            p.groups[p.count] = (struct group){.hash = hash, .first = at, .last = at};
            table[slot] = ++p.count;
        }
        p.groups[table[slot] - 1].last = at;
    }
    free(table);
    return p;
}

/* --- what was found ----------------------------------------------------------------------------------------------------- */

enum { FINDINGS_MAX = 4096 };

/* Findings of one site that broke the same, told once. */
struct findings {
    uint64_t told[FINDINGS_MAX];
    int count;
};

/* The same but for what is quoted. Of calls that fail for good, the first is not the one to blame. */
static uint64_t hash_finding(const struct fault_call *call, enum fault_how how, const char *why) {
    uint64_t hash = how == FAULT_FOR_GOOD ? 0 : hash_call(call, EFFORT_SITES);
    for (; *why && *why != ':'; why++) hash = (hash ^ (unsigned char)*why) * 0x100000001b3u;
    return hash;
}

static bool is_told(struct findings *f, uint64_t hash) {
    for (int i = 0; i < f->count; i++)
        if (f->told[i] == hash) return true;
    if (f->count < FINDINGS_MAX) f->told[f->count++] = hash;
    return false;
}

static void tell(const struct scenario *s, const struct way *w, uint32_t at, const struct ending *e, const char *why,
                 FILE *out) {
    const struct fault_log *log = fault_log();
    struct buf stack = {0};
    if (log->failed > 0) stack_describe(log, &log->call[0], &stack);
    fprintf(out, "%s: %s %u, %s: %s\n    at %s\n    status %d, stderr: %.*s\n", s->name, fault_kind_names[w->kind], at,
            w->name, why, buf_text(&stack), e->status, (int)strcspn(buf_text(&e->err), "\n"), buf_text(&e->err));
    fflush(out);
    buf_free(&stack);
}

/* --- the runs --------------------------------------------------------------------------------------------------------------- */

struct campaign {
    const struct scenario *scenario;
    struct ending reference;
    struct findings findings;
    struct tally *tally;
    FILE *out;
};

static void run_fault(struct campaign *c, const struct way *w, uint32_t at) {
    const struct fault fault = {w->kind, w->how, at, w->error};
    struct ending e;
    struct buf why = {0};
    fault_run(&e, c->scenario, &fault);
    const struct fault_log *log = fault_log();
    ck_assert_msg(log->armed && log->sees_system, "%s: the interposer was not in force", c->scenario->name);
    enum verdict verdict = promise_check(c->scenario, &c->reference, &e, &fault, log, &why);
    c->tally->faults++;
    c->tally->missed += log->failed == 0;
    c->tally->same += verdict == SAME;
    c->tally->said += verdict == SAID;
    c->tally->late += e.is_late;
    c->tally->signals += !e.is_late && e.status > 128;
    c->tally->broken += verdict == BROKEN;
    if (verdict == BROKEN && !is_told(&c->findings, hash_finding(&log->call[0], w->how, buf_text(&why))))
        tell(c->scenario, w, at, &e, buf_text(&why), c->out);
    ending_free(&e);
    buf_free(&why);
}

/* The run without fault is what all others are compared with: it says what it has to say, twice the same. Stacks, which take most of its
 * time, are those of the second run. */
static void run_reference(struct campaign *c) {
    const struct fault none = {.how = FAULT_NEVER}, past_all = {FAULT_MEMORY, FAULT_ONCE, UINT32_MAX, ENOMEM};
    struct ending again;
    struct buf why = {0};
    fault_run(&again, c->scenario, &past_all);
    fault_run(&c->reference, c->scenario, &none);
    const struct ending *r = &c->reference;
    ck_assert_msg(r->status == c->scenario->status, "%s: status %d without a fault: %s", c->scenario->name, r->status,
                  buf_text(&r->err));
    if (promise_check(c->scenario, r, &again, &none, fault_log(), &why) != SAME)
        ck_abort_msg("%s: two runs without a fault differ: %s", c->scenario->name, buf_text(&why));
    ending_free(&again);
    buf_free(&why);
}

/* The sites of earlier tests of the process that made it, in a map that its children share. */
enum { SHARED_SLOTS = 1 << 16 };
static uint64_t *shared_sites; /* [SHARED_SLOTS], 0: free; NULL: each campaign for itself */

void campaign_share(void) {
    void *map =
        mmap(NULL, SHARED_SLOTS * sizeof *shared_sites, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_sites = map == MAP_FAILED ? NULL : map;
}

/* Whether an earlier campaign has the site; from now on one has. */
static bool meet_site(enum fault_kind kind, uint64_t hash) {
    const uint64_t site = (hash ^ (uint64_t)kind) * 0x9e3779b97f4a7c15u | 1;
    uint32_t slot = (uint32_t)(site >> 32) % SHARED_SLOTS, tried = 0;
    while (shared_sites[slot] && shared_sites[slot] != site && tried++ < SHARED_SLOTS) slot = (slot + 1) % SHARED_SLOTS;
    const bool met = shared_sites[slot] == site;
    shared_sites[slot] = site;
    return met;
}

/* Scenarios share most of their sites. Of those that an earlier one has, and of all sites where there is little time, each takes one of
 * a step, beginning with another one. */
static uint32_t step_of(const struct way *w, const struct group *g) {
    return (w->how == FAULT_FOR_GOOD ? FOR_GOOD_STEP : 1) * (test_is_small() ? SMALL_STEP
                                                             : g->is_shared  ? SHARED_STEP
                                                                             : 1);
}

static bool is_taken(const struct campaign *c, const struct way *w, const struct plan *plan, uint32_t i) {
    const uint32_t step = step_of(w, &plan->groups[i]);
    return i % step == (plan->count > step ? (uint32_t)(c->scenario - scenarios) % step : 0);
}

static void run_plan(struct campaign *c, const struct plan *plan, enum fault_kind kind, enum effort effort) {
    for (uint32_t i = 0; shared_sites && i < plan->count; i++)
        plan->groups[i].is_shared = meet_site(kind, plan->groups[i].hash);
    for (int w = 0; w < WAYS; w++) {
        if (ways[w].kind != kind || (ways[w].only_thorough && effort == EFFORT_SITES)) continue;
        for (uint32_t i = 0; i < plan->count; i++) {
            const struct group *g = &plan->groups[i];
            if (effort == EFFORT_SITES && !is_taken(c, &ways[w], plan, i)) continue;
            run_fault(c, &ways[w], g->first);
            if (effort == EFFORT_STACKS && g->last != g->first) run_fault(c, &ways[w], g->last);
        }
    }
}

bool campaign_run(const struct scenario *s, unsigned kinds, enum effort effort, struct tally *tally, FILE *out) {
    struct campaign c = {.scenario = s, .tally = tally, .out = out};
    struct plan plans[FAULT_KINDS] = {0};
    *tally = (struct tally){0};
    fault_prepare(s);
    run_reference(&c);
    bool in_force = fault_log()->armed && fault_log()->sees_system && fault_log()->at[FAULT_MEMORY] > 0;
    for (int kind = 0; in_force && kind < FAULT_KINDS; kind++) {
        if (!(kinds & s->kinds & 1u << kind)) continue;
        plans[kind] = make_plan(fault_log(), (enum fault_kind)kind, effort);
        tally->calls += fault_log()->at[kind];
        tally->sites += plans[kind].count;
    }
    for (int kind = 0; kind < FAULT_KINDS; kind++) {
        run_plan(&c, &plans[kind], (enum fault_kind)kind, effort);
        free(plans[kind].groups);
    }
    ending_free(&c.reference);
    return in_force;
}

void campaign_expect(const struct scenario *s, unsigned kinds) {
    struct tally tally;
    if (!(kinds & s->kinds)) return;
    if (SANITIZED_THREADS || !campaign_run(s, kinds, EFFORT_SITES, &tally, stderr)) {
        skip("this build of the program is none in which tests let calls fail");
        return;
    }
    ck_assert_msg(tally.broken == 0, "%s: %u of %u faults broke the promise", s->name, tally.broken, tally.faults);
}
