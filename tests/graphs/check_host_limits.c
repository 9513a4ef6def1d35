/* CPU and memory limits from a made-up /proc and /sys. */
#include "graphs/host_limits.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/support.h"

#define MIB (1024ull * 1024)

/* Writes ROOT/path, making its folders. */
static void put(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static const char *machine(const char *groups) {
    const char *root = temp_dir();
    put(root, "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
    if (groups) put(root, "proc/self/cgroup", groups);
    return root;
}

static void ck_memory(const char *root, uint64_t free_mib, uint64_t total_mib) {
    uint64_t free_bytes, total_bytes;
    ck_ok(host_limits_memory(root, &free_bytes, &total_bytes));
    ck_assert_uint_eq(free_bytes / MIB, free_mib);
    ck_assert_uint_eq(total_bytes / MIB, total_mib);
}

START_TEST(without_groups_the_machine_is_the_limit)
{
    const char *root = machine(NULL);
    ck_memory(root, 8192, 16384);
    ck_assert_int_ge(host_limits_threads(root), 1);
    ck_assert_int_le(host_limits_threads(""), host_limits_threads(root));
}
END_TEST

START_TEST(the_tightest_group_above_is_the_limit)
{
    const char *root = machine("0::/a/b\n");
    put(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    put(root, "sys/fs/cgroup/a/b/memory.current", "104857600\n");
    put(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put(root, "sys/fs/cgroup/a/memory.max", "1073741824\n");
    put(root, "sys/fs/cgroup/a/memory.current", "536870912\n");
    put(root, "sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 104857600\nfile 2\n");
    put(root, "sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    ck_memory(root, 1024 - 512 + 100, 1024);
    ck_assert_int_eq(host_limits_threads(root), 1);
}
END_TEST

START_TEST(a_group_that_is_not_mounted_falls_back_to_the_top)
{
    const char *root = machine("0::/elsewhere/inside\n");
    put(root, "sys/fs/cgroup/memory.max", "2147483648\n");
    put(root, "sys/fs/cgroup/memory.current", "1073741824\n");
    put(root, "sys/fs/cgroup/cpu.max", "100000 100000\n");
    ck_memory(root, 1024, 2048);
    ck_assert_int_eq(host_limits_threads(root), 1);
}
END_TEST

START_TEST(version_1_limits_count_too)
{
    const char *root = machine("3:memory:/box\n4:cpu,cpuacct:/box\n5:cpuset:/\n");
    put(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n");
    put(root, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "268435456\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "268435456\n");
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    ck_memory(root, 768, 1024);
    ck_assert_int_eq(host_limits_threads(root), 1);
}
END_TEST

START_TEST(no_quota_leaves_the_affinity)
{
    int all = host_limits_threads(machine(NULL));
    const char *root = machine("4:cpu:/box\n0::/\n");
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
    put(root, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    put(root, "sys/fs/cgroup/cpu.max", "max 100000\n");
    ck_assert_int_eq(host_limits_threads(root), all);
    put(root, "sys/fs/cgroup/cpu.max", "9000000000 100000\n"); /* more than there are */
    ck_assert_int_eq(host_limits_threads(root), all);
}
END_TEST

START_TEST(a_group_over_its_limit_has_nothing_left)
{
    const char *root = machine("0::/\n");
    put(root, "sys/fs/cgroup/memory.max", "1073741824\n");
    put(root, "sys/fs/cgroup/memory.current", "1073745920\n");
    ck_memory(root, 0, 1024);
}
END_TEST

START_TEST(without_meminfo_there_is_an_error)
{
    uint64_t a, b;
    ck_assert_int_eq(host_limits_memory("/nowhere", &a, &b), ERR_IO);
    ck_assert_str_eq(err_message(), "/nowhere/proc/meminfo: no MemAvailable and MemTotal");
    ck_assert_int_ge(host_limits_threads("/nowhere"), 1);
}
END_TEST

Suite *check_host_limits(void) {
    Suite *suite = suite_create("host_limits");
    TCase *t = tcase_create("host_limits");
    tcase_add_test(t, without_groups_the_machine_is_the_limit);
    tcase_add_test(t, the_tightest_group_above_is_the_limit);
    tcase_add_test(t, a_group_that_is_not_mounted_falls_back_to_the_top);
    tcase_add_test(t, version_1_limits_count_too);
    tcase_add_test(t, no_quota_leaves_the_affinity);
    tcase_add_test(t, a_group_over_its_limit_has_nothing_left);
    tcase_add_test(t, without_meminfo_there_is_an_error);
    suite_add_tcase(suite, t);
    return suite;
}
