#include "model/files/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "model/files/gguf_model.h"
#include "model/files/shape.h"

struct checkpoint_kind {
    int (*config)(const struct checkpoint *, struct model_config *);
    /* NULL, here and below: there is none. */
    int (*tensors)(const struct checkpoint *, struct safetensors **);
    int (*tokenizer)(const struct checkpoint *, struct tokenizer **);
    int (*end_token)(const struct checkpoint *, struct buf *);
    int (*chat)(const struct checkpoint *, const char *name, struct chat_template **);
    int (*need_tokenizer)(const struct checkpoint *);
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

static bool has_file_ending(const struct checkpoint *c, const char *end) {
    DIR *folder = opendir(c->name);
    bool found = false;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder))
        found = text_ends_with(entry->d_name, end);
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
        {".gguf", "GGUF files: take one of them, as DIRECTORY/FILE.gguf"},
        {".bin", ".bin files of other names: what torch.save wrote is read as pytorch_model.bin"},
        {".pth", ".pth files, which are not read: take the model's Hugging Face directory"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (has_file_ending(c, others[i].end))
            return err_set(ERR_UNSUPPORTED, "%s: has %s; it holds %s", c->name, missing, others[i].sentence);
    }
    return 0;
}

/* Older files of modelopt, of GPTQ and of AWQ say beside config.json how they are quantised. */
static int read_quantisation(const struct checkpoint *c, struct model_config *out) {
    static const struct {
        const char *file;
        enum quantisation_method method;
    } others[] = {{"hf_quant_config.json", QUANTISATION_MODELOPT},
                  {"quantize_config.json", QUANTISATION_GPTQ},
                  {"quant_config.json", QUANTISATION_AWQ}};
    struct buf path = {0};
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0 && out->quantisation.method == QUANTISATION_NONE; i++)
        if (find(c, others[i].file, &path)) rc = model_config_load_quantisation(out, buf_text(&path), others[i].method);
    buf_free(&path);
    return rc;
}

static const char no_tensors[] = "neither model.safetensors nor pytorch_model.bin, nor an index of several";

static bool find_tensors(const struct checkpoint *c, struct buf *path) {
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (find(c, files[i], path)) return true;
    return false;
}

static int read_config(const struct checkpoint *c, struct model_config *out) {
    struct buf config = {0}, generation = {0};
    const bool is_there = find(c, "config.json", &config);
    int rc = is_there ? 0 : explain(c, "no config.json");
    if (rc == 0) rc = model_config_load(out, buf_text(&config), find(c, "generation_config.json", &generation));
    if (rc == 0) rc = read_quantisation(c, out);
    /* Beside GGUF files config.json often names the kind of model alone. */
    if (rc != 0 && is_there && !find_tensors(c, &config)) {
        const int other = explain(c, no_tensors);
        rc = other != 0 ? other : rc;
    }
    buf_free(&config);
    buf_free(&generation);
    return rc;
}

static int open_tensors(const struct checkpoint *c, struct safetensors **out) {
    struct buf path = {0};
    bool is_there = find_tensors(c, &path);
    int rc = is_there ? 0 : explain(c, no_tensors);
    if (rc == 0)
        rc = is_there ? safetensors_open(out, buf_text(&path)) : err_set(ERR_IO, "%s: has %s", c->name, no_tensors);
    buf_free(&path);
    return rc;
}

static int read_tokenizer(const struct checkpoint *c, struct tokenizer **out) {
    struct buf path = {0};
    int rc = find(c, "tokenizer.json", &path) ? tokenizer_load(out, buf_text(&path)) : 0;
    buf_free(&path);
    return rc;
}

static int need_tokenizer(const struct checkpoint *c) {
    struct buf path = {0};
    bool found = find(c, "tokenizer.json", &path) != NULL, other = false;
    if (!found) other = find(c, "tokenizer.model", &path) || find(c, "vocab.json", &path);
    int rc = found ? 0
                   : err_set(ERR_IO, "%s: has no tokenizer.json%s%s%s", c->name, other ? ", and " : "",
                             other ? strrchr(buf_text(&path), '/') + 1 : "", other ? " is not read in its place" : "");
    buf_free(&path);
    return rc;
}

/* A string, or an object with one. A file that is malformed has none: those who need its template are told. */
static int read_end_token(const struct checkpoint *c, struct buf *out) {
    struct buf path = {0};
    cJSON *root = NULL;
    int rc = find(c, "tokenizer_config.json", &path) ? json_parse_file(&root, buf_text(&path)) : 0;
    const cJSON *token = json_get(root, "eos_token");
    (void)json_string(cJSON_IsObject(token) ? json_get(token, "content") : token, out); /* null: none */
    cJSON_Delete(root);
    buf_free(&path);
    return rc == ERR_FORMAT ? 0 : rc;
}

static int read_template(const struct checkpoint *c, const char *name, struct chat_template **out) {
    struct buf config = {0}, jinja = {0}, json = {0}, tokens = {0};
    int rc = chat_template_load(out, name,
                                &(struct chat_source){.config = find(c, "tokenizer_config.json", &config),
                                                      .jinja = find(c, "chat_template.jinja", &jinja),
                                                      .json = find(c, "chat_template.json", &json),
                                                      .tokens = find(c, "special_tokens_map.json", &tokens)});
    buf_free(&config);
    buf_free(&jinja);
    buf_free(&json);
    buf_free(&tokens);
    return rc;
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
        if (text_ends_with(name, ends[i])) return true;
    return false;
}

static bool folder_holds(const char *path, const struct stat *file) {
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry && !found; entry = readdir(folder)) {
        struct stat st;
        found = is_model_file(entry->d_name) && fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 &&
                st.st_dev == file->st_dev && st.st_ino == file->st_ino;
    }
    if (folder) closedir(folder);
    return found;
}

static bool directory_holds(const struct checkpoint *c, const struct stat *file) {
    return folder_holds(c->name, file);
}

static const struct checkpoint_kind huggingface = {
    .config = read_config,
    .tensors = open_tensors,
    .tokenizer = read_tokenizer,
    .end_token = read_end_token,
    .chat = read_template,
    .need_tokenizer = need_tokenizer,
    .holds = directory_holds,
};

/* --- GGUF: a file ---------------------------------------------------------------------------------------------- */

static int gguf_read_config(const struct checkpoint *c, struct model_config *out) {
    struct gguf *g;
    TRY(gguf_open(&g, c->name));
    int rc = gguf_model_config(g, out);
    gguf_close(g);
    return rc;
}

static int gguf_open_tensors(const struct checkpoint *c, struct safetensors **out) {
    struct gguf *g;
    TRY(gguf_open(&g, c->name));
    return gguf_model_tensors(g, out);
}

static int gguf_read_tokenizer(const struct checkpoint *c, struct tokenizer **out) {
    struct gguf *g;
    TRY(gguf_open(&g, c->name));
    int rc = gguf_model_tokenizer(g, out);
    gguf_close(g);
    return rc;
}

static int gguf_need_tokenizer(const struct checkpoint *c) {
    struct gguf *g;
    TRY(gguf_open(&g, c->name));
    int rc = gguf_model_has_tokenizer(g) ? 0 : err_set(ERR_IO, "%s: has no tokenizer", c->name);
    gguf_close(g);
    return rc;
}

static int gguf_read_template(const struct checkpoint *c, const char *name, struct chat_template **out) {
    struct gguf *g;
    TRY(gguf_open(&g, c->name));
    int rc = gguf_model_chat_template(g, name, out);
    gguf_close(g);
    return rc;
}

/* What lies beside it too: other parts, other quantisations. */
static bool gguf_holds(const struct checkpoint *c, const struct stat *file) {
    struct buf folder = {0};
    const char *slash = strrchr(c->name, '/');
    buf_append(&folder, slash ? c->name : ".", slash ? (size_t)(slash - c->name) + 1 : 1);
    bool found = folder_holds(buf_text(&folder), file);
    buf_free(&folder);
    return found;
}

static const struct checkpoint_kind gguf = {
    .config = gguf_read_config,
    .tensors = gguf_open_tensors,
    .tokenizer = gguf_read_tokenizer,
    .chat = gguf_read_template,
    .need_tokenizer = gguf_need_tokenizer,
    .holds = gguf_holds,
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

/* A part of a model in several files, but the first; a projector of images, which lies beside a model. */
static bool is_part_of_model(const char *file) {
    const char *of = strstr(file, "-of-");
    return strncmp(file, "mmproj", 6) == 0 || (of && of - file > 6 && strncmp(of - 6, "-00001", 6) != 0);
}

/* The path of the one GGUF model that the directory holds in place of a config.json. */
static bool find_single(const char *dir, struct buf *path) {
    const struct checkpoint c = {.name = (char *)dir};
    DIR *folder = find(&c, "config.json", path) ? NULL : opendir(dir);
    int count = 0;
    for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
        if (!text_ends_with(entry->d_name, ".gguf") || is_part_of_model(entry->d_name)) continue;
        buf_clear(path);
        buf_printf(path, "%s/%s", dir, entry->d_name);
        count++;
    }
    if (folder) closedir(folder);
    return count == 1;
}

struct checkpoint *checkpoint_open(const char *path) {
    struct buf single = {0};
    struct checkpoint *c;
    if (checkpoint_is_file(path) && !file_is_directory(path))
        c = open_kind(&gguf, path);
    else if (find_single(path, &single))
        c = open_kind(&gguf, buf_text(&single));
    else
        c = open_kind(&huggingface, path);
    buf_free(&single);
    return c;
}

bool checkpoint_is_file(const char *path) {
    return text_ends_with(path, ".gguf");
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

int checkpoint_add_end_token(const struct checkpoint *c, const struct tokenizer *tokenizer,
                             struct model_config *config) {
    struct buf text = {0};
    int rc = tokenizer && c->kind->end_token ? c->kind->end_token(c, &text) : 0;
    const int32_t id = rc == 0 && text.len > 0 ? tokenizer_find(tokenizer, buf_text(&text), text.len) : -1;
    buf_free(&text);
    return rc == 0 ? model_config_add_end_id(config, id) : rc;
}

int checkpoint_need_tokenizer(const struct checkpoint *c) {
    return c->kind->need_tokenizer ? c->kind->need_tokenizer(c) : need_tokenizer(c);
}

int checkpoint_chat_template(const struct checkpoint *c, const char *name, struct chat_template **out) {
    *out = NULL;
    return c->kind->chat ? c->kind->chat(c, name, out) : chat_template_load(out, name, &(struct chat_source){0});
}

bool checkpoint_holds(const struct checkpoint *c, const struct stat *file) {
    return c->kind->holds && c->kind->holds(c, file);
}
