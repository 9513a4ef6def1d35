#include "model/files/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/memory.h"
#include "model/files/shape.h"

struct checkpoint_kind {
    int (*config)(const struct checkpoint *, struct model_config *);
    /* NULL, here and below: there is none. */
    int (*tensors)(const struct checkpoint *, struct safetensors **);
    int (*tokenizer)(const struct checkpoint *, struct tokenizer **);
    struct chat_source (*chat)(const struct checkpoint *, struct buf *config, struct buf *jinja);
    bool (*holds)(const struct checkpoint *, const struct stat *);
};

struct checkpoint {
    const struct checkpoint_kind *kind;
    char *name;
};

/* --- Hugging Face: a directory --------------------------------------------------------------------------------- */

/* The path of a file of the directory; NULL where nothing has this name. */
static const char *find(const struct checkpoint *c, const char *file, struct buf *path) {
    buf_clear(path);
    buf_printf(path, "%s/%s", c->name, file);
    return file_exists(buf_text(path)) ? buf_text(path) : NULL;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool has_file_ending(const struct checkpoint *c, const char *end) {
    DIR *folder = opendir(c->name);
    bool found = false;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder))
        found = ends_with(entry->d_name, end);
    if (folder) closedir(folder);
    return found;
}

/* Something is missing that every model has: what the directory holds in place of it. 0: nothing that is known, and
 * reading what is missing says what is wrong. */
static int explain(const struct checkpoint *c, const char *missing) {
    static const struct {
        const char *end, *sentence;
    } others[] = {
        {"adapter_config.json", "a LoRA adapter: merge it into its base model and take the result"},
        {".gguf",
         "GGUF, which is not read yet: take the model's Hugging Face directory, with config.json and safetensors"},
        {".bin", "PyTorch's .bin files, and only safetensors is read: save the model in that format"},
        {".pth", "PyTorch's .pth files, and only safetensors is read: take the model's Hugging Face directory"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (has_file_ending(c, others[i].end))
            return err_set(ERR_UNSUPPORTED, "%s: has %s; it holds %s", c->name, missing, others[i].sentence);
    }
    return 0;
}

/* Older files of modelopt and of GPTQ say beside config.json how they are quantised. */
static int read_quantisation(const struct checkpoint *c, struct model_config *out) {
    static const struct {
        const char *file;
        enum quantisation_method method;
    } others[] = {{"hf_quant_config.json", QUANTISATION_MODELOPT}, {"quantize_config.json", QUANTISATION_GPTQ}};
    struct buf path = {0};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0 && out->quantisation.method == QUANTISATION_NONE; i++)
        if (find(c, others[i].file, &path)) rc = model_config_load_quantisation(out, buf_text(&path), others[i].method);
    buf_free(&path);
    return rc;
}

static int read_config(const struct checkpoint *c, struct model_config *out) {
    struct buf config = {0}, generation = {0};
    int rc = find(c, "config.json", &config) ? 0 : explain(c, "no config.json");
    if (rc == 0) rc = model_config_load(out, buf_text(&config), find(c, "generation_config.json", &generation));
    if (rc == 0) rc = read_quantisation(c, out);
    buf_free(&config);
    buf_free(&generation);
    return rc;
}

static int open_tensors(const struct checkpoint *c, struct safetensors **out) {
    struct buf path = {0};
    static const char missing[] = "neither model.safetensors nor model.safetensors.index.json";
    bool is_there = find(c, "model.safetensors", &path) || find(c, "model.safetensors.index.json", &path);
    int rc = is_there ? 0 : explain(c, missing);
    if (rc == 0)
        rc = is_there ? safetensors_open(out, buf_text(&path)) : err_set(ERR_IO, "%s: has %s", c->name, missing);
    buf_free(&path);
    return rc;
}

static int read_tokenizer(const struct checkpoint *c, struct tokenizer **out) {
    struct buf path = {0};
    int rc = find(c, "tokenizer.json", &path) ? tokenizer_load(out, buf_text(&path)) : 0;
    buf_free(&path);
    return rc;
}

static struct chat_source chat_of(const struct checkpoint *c, struct buf *config, struct buf *jinja) {
    return (struct chat_source){find(c, "tokenizer_config.json", config), find(c, "chat_template.jinja", jinja)};
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

static bool directory_holds(const struct checkpoint *c, const struct stat *file) {
    DIR *folder = opendir(c->name);
    bool found = false;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder)) {
        struct stat st;
        found = is_model_file(entry->d_name) && fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 &&
                st.st_dev == file->st_dev && st.st_ino == file->st_ino;
    }
    if (folder) closedir(folder);
    return found;
}

static const struct checkpoint_kind huggingface = {
    .config = read_config,
    .tensors = open_tensors,
    .tokenizer = read_tokenizer,
    .chat = chat_of,
    .holds = directory_holds,
};

/* --- a shape ---------------------------------------------------------------------------------------------------- */

static int shape_config(const struct checkpoint *c, struct model_config *out) {
    return model_shape_load(out, c->name);
}

static const struct checkpoint_kind shape = {.config = shape_config};

/* --- any -------------------------------------------------------------------------------------------------------- */

static struct checkpoint *open_kind(const struct checkpoint_kind *kind, const char *name) {
    struct checkpoint *c = memory_resize(NULL, sizeof *c);
    *c = (struct checkpoint){kind, memory_copy_text(name)};
    return c;
}

struct checkpoint *checkpoint_open(const char *dir) {
    return open_kind(&huggingface, dir);
}

struct checkpoint *checkpoint_open_shape(const char *name) {
    return open_kind(&shape, name);
}

void checkpoint_close(struct checkpoint *c) {
    if (!c) return;
    free(c->name);
    free(c);
}

const char *checkpoint_name(const struct checkpoint *c) {
    return c->name;
}

int checkpoint_config(const struct checkpoint *c, struct model_config *out) {
    return c->kind->config(c, out);
}

int checkpoint_tensors(const struct checkpoint *c, struct safetensors **out) {
    *out = NULL;
    return c->kind->tensors ? c->kind->tensors(c, out) : 0;
}

int checkpoint_tokenizer(const struct checkpoint *c, struct tokenizer **out) {
    *out = NULL;
    return c->kind->tokenizer ? c->kind->tokenizer(c, out) : 0;
}

int checkpoint_need_tokenizer(const struct checkpoint *c) {
    struct buf path = {0};
    bool found = find(c, "tokenizer.json", &path) != NULL, other = false;
    if (!found) other = find(c, "tokenizer.model", &path) || find(c, "vocab.json", &path);
    int rc = found ? 0
                   : err_set(ERR_IO, "%s: has no tokenizer.json%s%s%s", c->name, other ? ", and " : "",
                             other ? strrchr(buf_text(&path), '/') + 1 : "", other ? " is not read in its place" : "");
    buf_free(&path);
    return rc;
}

int checkpoint_chat_template(const struct checkpoint *c, const char *name, struct chat_template **out) {
    struct buf config = {0}, jinja = {0};
    struct chat_source source = c->kind->chat ? c->kind->chat(c, &config, &jinja) : (struct chat_source){0};
    int rc = chat_template_load(out, name, &source);
    buf_free(&config);
    buf_free(&jinja);
    return rc;
}

bool checkpoint_holds(const struct checkpoint *c, const struct stat *file) {
    return c->kind->holds && c->kind->holds(c, file);
}
