/* Limits of the process, read from /proc and the cgroup file systems. */
#include "graphs/host_limits.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { PATH_BYTES = 4096 };

/* The value behind `key` in a file of "key value" lines; a NULL key takes the first number of the file. */
static bool read_number(const char *path, const char *key, uint64_t *out) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    char line[512];
    size_t n = key ? strlen(key) : 0;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (key && (strncmp(line, key, n) != 0 || (line[n] != ' ' && line[n] != ':'))) continue;
        found = sscanf(line + (key ? n + 1 : 0), " %" SCNu64, out) == 1;
        if (!key) break;
    }
    fclose(f);
    return found;
}

static bool has_controller(const char *list, const char *controller) {
    size_t n = strlen(controller);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, controller, n) == 0 && (at[n] == ',' || at[n] == '\0')) return true;
    return false;
}

/* The folder of this process's cgroup: of version 2 (controller NULL), or of a version 1 controller. */
static bool find_group(const char *root, const char *controller, char folder[PATH_BYTES], size_t *top) {
    char line[PATH_BYTES];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
    if (!f) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        list++;
        if (controller ? !has_controller(list, controller) : *list != '\0') continue;
        int n = snprintf(folder, PATH_BYTES, "%s/sys/fs/cgroup%s%s", root, controller ? "/" : "",
                         controller ? controller : "");
        *top = (size_t)n;
        found = snprintf(folder + n, PATH_BYTES - (size_t)n, "%s", path) < PATH_BYTES - n;
    }
    fclose(f);
    return found;
}

/* Calls `visit` for the group and each group above it. In a container the path may name groups that are not
 * mounted; their files are missing and the mount's top is visited in the end. */
static void visit_groups(const char *root, const char *controller, void (*visit)(const char *folder, void *),
                         void *out) {
    char folder[PATH_BYTES];
    size_t top;
    if (!find_group(root, controller, folder, &top)) return;
    for (;;) {
        visit(folder, out);
        char *slash = strrchr(folder + top, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

static bool read_group_number(const char *folder, const char *file, const char *key, uint64_t *out) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return read_number(path, key, out);
}

/* --- CPUs --------------------------------------------------------------------------------------- */

static void limit_cpus(uint64_t quota, uint64_t period, int *cpus) {
    if (quota == 0 || period == 0) return;
    uint64_t allowed = quota / period + (quota % period != 0);
    if (allowed < (uint64_t)*cpus) *cpus = (int)allowed;
}

static void visit_cpu_v2(const char *folder, void *cpus) {
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *f = fopen(path, "re");
    if (!f) return;
    uint64_t quota, period; /* "max PERIOD" where there is no limit */
    if (fscanf(f, "%" SCNu64 " %" SCNu64, &quota, &period) == 2) limit_cpus(quota, period, cpus);
    fclose(f);
}

static void visit_cpu_v1(const char *folder, void *cpus) {
    uint64_t quota, period;
    if (!read_group_number(folder, "cpu.cfs_quota_us", NULL, &quota)) return;
    if (!read_group_number(folder, "cpu.cfs_period_us", NULL, &period)) return;
    if (quota <= INT64_MAX) limit_cpus(quota, period, cpus); /* -1, read as a huge number: no limit */
}

/* The mask grows until it holds the machine's CPU numbers. */
static int affinity_cpus(void) {
    for (int bits = 1024; bits <= 1 << 20; bits *= 4) {
        cpu_set_t *set = CPU_ALLOC(bits);
        if (!set) return 1;
        size_t size = CPU_ALLOC_SIZE(bits);
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    return 1;
}

int host_limits_threads(const char *root) {
    int cpus = affinity_cpus();
    visit_groups(root, NULL, visit_cpu_v2, &cpus);
    visit_groups(root, "cpu", visit_cpu_v1, &cpus);
    return cpus;
}

/* --- memory ------------------------------------------------------------------------------------- */

struct memory_limits {
    uint64_t free_bytes, total_bytes;
};

/* Inactive file pages count as used but are given up at need. */
static void limit_memory(uint64_t limit, uint64_t used, uint64_t inactive, struct memory_limits *m) {
    used -= inactive < used ? inactive : used;
    uint64_t left = used < limit ? limit - used : 0;
    if (limit < m->total_bytes) m->total_bytes = limit;
    if (left < m->free_bytes) m->free_bytes = left;
}

static void visit_memory_v2(const char *folder, void *limits) {
    uint64_t limit, used, inactive;
    if (!read_group_number(folder, "memory.max", NULL, &limit)) return; /* "max" where there is none */
    if (!read_group_number(folder, "memory.current", NULL, &used)) return;
    if (!read_group_number(folder, "memory.stat", "inactive_file", &inactive)) inactive = 0;
    limit_memory(limit, used, inactive, limits);
}

static void visit_memory_v1(const char *folder, void *limits) {
    uint64_t limit, used, inactive;
    if (!read_group_number(folder, "memory.limit_in_bytes", NULL, &limit)) return;
    if (!read_group_number(folder, "memory.usage_in_bytes", NULL, &used)) return;
    if (!read_group_number(folder, "memory.stat", "total_inactive_file", &inactive)) inactive = 0;
    limit_memory(limit, used, inactive, limits);
}

int host_limits_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    struct memory_limits m;
    if (!read_number(path, "MemAvailable", &m.free_bytes) || !read_number(path, "MemTotal", &m.total_bytes))
        return err_set(ERR_IO, "%s: no MemAvailable and MemTotal", path);
    m.free_bytes *= 1024;
    m.total_bytes *= 1024;
    visit_groups(root, NULL, visit_memory_v2, &m);
    visit_groups(root, "memory", visit_memory_v1, &m);
    *free_bytes = m.free_bytes;
    *total_bytes = m.total_bytes;
    return 0;
}
