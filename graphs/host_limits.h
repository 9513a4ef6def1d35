/* What this process may use of the machine: CPUs by affinity and cgroup quota, memory by cgroup limit
 * (versions 1 and 2, the process's own group and those above it). Internal to graphs/.
 *
 * `root` goes before "/proc" and "/sys": "" but in tests. */
#ifndef DUET_GRAPHS_HOST_LIMITS_H
#define DUET_GRAPHS_HOST_LIMITS_H

#include <stdint.h>

/* CPUs, at least 1; a quota of a part of a CPU counts as one. */
int host_limits_threads(const char *root);

/* Free: what can be had without swapping, page cache included. ERR_IO where /proc/meminfo is unreadable. */
int host_limits_memory(const char *root, uint64_t *free_bytes, uint64_t *total_bytes);

#endif
