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

bool assets_open_beside(struct assets *out, const char *file) {
    char *folder = memory_copy_text(file);
    bool found = false;
    cut_last_name(folder);
    for (int i = 0; i < FOLDERS_UP && !found; i++) {
        cut_last_name(folder);
        found = open_in(out, folder, "/share/duet") || open_in(out, folder, "/assets");
    }
    free(folder);
    return found;
}
