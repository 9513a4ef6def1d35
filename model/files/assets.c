#include "model/files/assets.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/memory.h"

static bool open_in(struct assets *out, const char *root, const char *relative) {
    struct buf target = {0}, draft = {0};
    buf_printf(&target, "%s%s/target", root, relative);
    buf_printf(&draft, "%s%s/draft", root, relative);
    bool found = file_is_directory(buf_text(&target)) && file_is_directory(buf_text(&draft));
    if (found) *out = (struct assets){checkpoint_open(buf_text(&target)), checkpoint_open(buf_text(&draft))};
    buf_free(&target);
    buf_free(&draft);
    return found;
}

bool assets_open(struct assets *out, const char *folder) {
    return open_in(out, folder, "");
}

static void cut_last_name(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
}

enum { FOLDERS_UP = 3 };

/* What is looked for in one of the folders; `found` ends the search. */
typedef bool (*visit_fn)(void *user, const char *root, const char *relative);

static bool visit_beside(const char *file, visit_fn visit, void *user) {
    char *folder = memory_copy_text(file);
    bool found = false;
    cut_last_name(folder);
    for (int i = 0; i < FOLDERS_UP && !found; i++) {
        cut_last_name(folder);
        found = visit(user, folder, "/share/duet") || visit(user, folder, "/assets");
    }
    free(folder);
    return found;
}

static bool visit_pair(void *user, const char *root, const char *relative) {
    return open_in(user, root, relative);
}

bool assets_open_beside(struct assets *out, const char *file) {
    return visit_beside(file, visit_pair, out);
}

struct named_file {
    struct buf *path;
    const char *name;
};

static bool visit_file(void *user, const char *root, const char *relative) {
    const struct named_file *wanted = user;
    buf_clear(wanted->path);
    buf_printf(wanted->path, "%s%s/%s", root, relative, wanted->name);
    return file_exists(buf_text(wanted->path));
}

void assets_find_beside(struct buf *out, const char *file, const char *name) {
    if (!visit_beside(file, visit_file, &(struct named_file){out, name})) buf_clear(out);
}
