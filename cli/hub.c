#include "cli/hub.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"

static const char prefix[] = "models--";
enum { PREFIX_LENGTH = sizeof prefix - 1 };

/* --- names ------------------------------------------------------------------------------------------------------ */

static const char *set_in_environment(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void hub_root(struct buf *out) {
    const char *cache = set_in_environment("HF_HUB_CACHE"), *hf_home = set_in_environment("HF_HOME");
    const char *xdg = set_in_environment("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache)
        buf_puts(out, cache);
    else if (hf_home)
        buf_printf(out, "%s/hub", hf_home);
    else if (xdg)
        buf_printf(out, "%s/huggingface/hub", xdg);
    else
        buf_printf(out, "%s/.cache/huggingface/hub", home ? home : "");
}

bool hub_is_name(const char *name) {
    const char *slash = strchr(name, '/');
    return slash && slash > name && slash[1] && !strchr(slash + 1, '/') && name[0] != '.' && name[0] != '~' &&
           slash[1] != '.';
}

bool hub_name_of(const char *folder, struct buf *out) {
    if (strncmp(folder, prefix, PREFIX_LENGTH) != 0) return false;
    const char *org = folder + PREFIX_LENGTH, *dashes = strstr(org, "--");
    if (!dashes || dashes == org || !dashes[2]) return false;
    buf_printf(out, "%.*s/%s", (int)(dashes - org), org, dashes + 2);
    return true;
}

/* --- folders ---------------------------------------------------------------------------------------------------- */

bool hub_is_folder(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    struct buf snapshots = {0};
    buf_printf(&snapshots, "%s/snapshots", path);
    bool is = n - begin > PREFIX_LENGTH && memcmp(path + begin, prefix, PREFIX_LENGTH) == 0 &&
              file_is_directory(buf_text(&snapshots));
    buf_free(&snapshots);
    return is;
}

/* The commit that refs/main names: one word. */
static bool read_ref(const char *folder, char hash[128]) {
    struct buf path = {0};
    buf_printf(&path, "%s/refs/main", folder);
    FILE *file = fopen(buf_text(&path), "r");
    buf_free(&path);
    if (!file) return false;
    bool ok = fgets(hash, 128, file) != NULL;
    fclose(file);
    if (ok) hash[strcspn(hash, " \r\n\t")] = 0;
    return ok && hash[0] && hash[0] != '.' && !strchr(hash, '/');
}

/* Leaves `out` empty where there is none. */
static void find_newest(const char *folder, struct buf *out) {
    struct buf path = {0};
    struct timespec newest = {0};
    buf_printf(&path, "%s/snapshots", folder);
    DIR *snapshots = opendir(buf_text(&path));
    for (struct dirent *entry = snapshots ? readdir(snapshots) : NULL; entry; entry = readdir(snapshots)) {
        struct stat st;
        if (entry->d_name[0] == '.' || fstatat(dirfd(snapshots), entry->d_name, &st, 0) != 0) continue;
        const struct timespec *t = &st.st_mtim;
        bool is_older = t->tv_sec != newest.tv_sec ? t->tv_sec < newest.tv_sec : t->tv_nsec < newest.tv_nsec;
        if (!S_ISDIR(st.st_mode) || (out->len > 0 && is_older)) continue;
        newest = *t;
        buf_clear(out);
        buf_printf(out, "%s/%s", buf_text(&path), entry->d_name);
    }
    if (snapshots) closedir(snapshots);
    buf_free(&path);
}

int hub_snapshot(const char *folder, struct buf *out) {
    char hash[128];
    buf_clear(out);
    if (!read_ref(folder, hash)) {
        find_newest(folder, out);
        return out->len > 0 ? 0 : err_set(ERR_IO, "%s: holds no snapshot", folder);
    }
    buf_printf(out, "%s/snapshots/%s", folder, hash);
    return file_is_directory(buf_text(out)) ? 0 : err_set(ERR_IO, "%s: no such directory", buf_text(out));
}

int hub_find(const char *name, struct buf *out) {
    struct buf folder = {0};
    size_t org = strcspn(name, "/");
    hub_root(&folder);
    buf_printf(&folder, "/%s%.*s--%s", prefix, (int)org, name, name + org + 1);
    int rc = file_is_directory(buf_text(&folder))
                 ? hub_snapshot(buf_text(&folder), out)
                 : err_set(ERR_IO, "%s: no such directory, and not in the local Hugging Face cache (%s)", name,
                           buf_text(&folder));
    if (rc != 0) rc = err_hint(rc, "hf download %s", name);
    buf_free(&folder);
    return rc;
}
