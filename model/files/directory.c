#include "model/files/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* What people would miss, whether duet reads it or not. */
static bool is_model_file(const char *name) {
    static const char *const names[] = {
        "config.json",         "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
        "chat_template.jinja", "special_tokens_map.json", "added_tokens.json",  "vocab.json",
        "merges.txt",          "tokenizer.model",         "chat_template.json",
    };
    static const char *const ends[] = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i])) return true;
    return false;
}

bool model_directory_has(const char *dir, const struct stat *file) {
    DIR *folder = opendir(dir);
    bool found = false;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder)) {
        struct stat st;
        found = is_model_file(entry->d_name) && fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 &&
                st.st_dev == file->st_dev && st.st_ino == file->st_ino;
    }
    if (folder) closedir(folder);
    return found;
}
