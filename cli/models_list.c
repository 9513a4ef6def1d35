/* duet models: what the embedded pair and the local Hugging Face cache hold, and which models fit each other. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/hub.h"
#include "cli/inspect.h"
#include "cli/table.h"

/* A map of ids, shared by the models that have exactly this one. */
struct vocabulary {
    struct tokenizer *tokenizer;
    int family; /* maps that agree on the ids that both have */
};

struct entry {
    char *name, *path;        /* for --target; path NULL: the problem is that there is none */
    char *problem;            /* why it does not run, in a few words; NULL: it does */
    const char *architecture; /* NULL: unknown */
    uint64_t parameters, bytes;
    int vocabulary;              /* -1: ids in, ids out */
    struct model_config *config; /* of malloc; filled in where there is no problem */
    bool has_head;               /* of its own that drafts: --draft mtp */
};

struct list {
    struct entry *entries;
    struct vocabulary *vocabularies;
    int count, vocabulary_count, family_count;
};

/* One that drafts for another model, whatever its tokenizer. */
static bool is_head(const struct entry *e) {
    return e->config->drafter.is_there;
}

/* --- collecting ------------------------------------------------------------------------------------------------- */

static struct entry *add_entry(struct list *l, const char *name, const char *path) {
    l->entries = memory_resize(l->entries, (size_t)(l->count + 1) * sizeof *l->entries);
    struct entry *e = &l->entries[l->count++];
    *e = (struct entry){memory_copy_text(name), path ? memory_copy_text(path) : NULL, .vocabulary = -1};
    return e;
}

static void add_embedded(struct list *l) {
    struct models m = {0};
    if (models_embedded(&m) != 0) return; /* an installation without them */
    add_entry(l, "embedded target", checkpoint_name(m.target));
    add_entry(l, "embedded draft", checkpoint_name(m.draft));
    models_free(&m);
}

/* Without what is obvious: the path, and all that would have been right. */
static void set_problem(struct entry *e, const char *sentence) {
    size_t n = e->path ? strlen(e->path) : 0;
    if (n > 0 && strncmp(sentence, e->path, n) == 0) sentence += n + strspn(sentence + n, "/: ");
    e->problem = memory_copy_text(sentence);
    char *known = strstr(e->problem, " (known: ");
    if (known) *known = '\0';
}

static void add_folder(struct list *l, const char *root, const char *folder) {
    struct buf name = {0}, path = {0}, snapshot = {0};
    buf_printf(&path, "%s/%s", root, folder);
    if (hub_name_of(folder, &name)) {
        int rc = hub_snapshot(buf_text(&path), &snapshot);
        struct entry *e = add_entry(l, buf_text(&name), rc == 0 ? buf_text(&snapshot) : NULL);
        if (rc != 0) set_problem(e, "its snapshot is missing");
    }
    buf_free(&name), buf_free(&path), buf_free(&snapshot);
}

/* By name. A cache that is not there is an empty one. */
static int add_cache(struct list *l, const char *root) {
    struct dirent **names;
    int count = scandir(root, &names, NULL, alphasort);
    if (count < 0) return errno == ENOENT ? 0 : err_set(ERR_IO, "%s: %s", root, strerror(errno));
    for (int i = 0; i < count; i++) {
        add_folder(l, root, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return 0;
}

/* --- a model ---------------------------------------------------------------------------------------------------- */

static bool is_same_map(const struct tokenizer *a, const struct tokenizer *b) {
    if (tokenizer_size(a) != tokenizer_size(b)) return false;
    for (int32_t id = 0; id < tokenizer_size(a); id++) {
        size_t n, m;
        const char *x = tokenizer_token(a, id, &n), *y = tokenizer_token(b, id, &m);
        if (!x != !y || (x && (n != m || memcmp(x, y, n) != 0))) return false;
    }
    return true;
}

/* Takes the tokenizer; returns the index of its map. */
static int add_vocabulary(struct list *l, struct tokenizer *t) {
    int family = -1, common;
    for (int i = 0; i < l->vocabulary_count; i++) {
        const struct vocabulary *v = &l->vocabularies[i];
        if (is_same_map(v->tokenizer, t)) {
            tokenizer_free(t);
            return i;
        }
        if (family < 0 && tokenizer_compare(v->tokenizer, t, &common) == 0) family = v->family;
    }
    if (family < 0) family = l->family_count++;
    l->vocabularies = memory_resize(l->vocabularies, (size_t)(l->vocabulary_count + 1) * sizeof *l->vocabularies);
    l->vocabularies[l->vocabulary_count] = (struct vocabulary){t, family};
    return l->vocabulary_count++;
}

/* Would an engine take it? Where it then fits is another question. */
static int try_model(const struct checkpoint *c) {
    const uint64_t any = (uint64_t)1 << 60;
    struct engine_options o = {.target = c, .gpu_bytes = any};
    struct memory_plan plan;
    TRY(engine_plan(&plan, &o));
    memory_plan_free(&plan);
    return 0;
}

static int read_model(struct list *l, struct entry *e, const struct checkpoint *c) {
    struct safetensors *tensors;
    struct tokenizer *tokenizer;
    e->config = memory_resize(NULL, sizeof *e->config);
    TRY(checkpoint_config(c, e->config));
    e->architecture = e->config->architecture;
    TRY(checkpoint_tensors(c, &tensors));
    e->parameters = inspect_count(tensors, &e->bytes);
    safetensors_close(tensors);
    TRY(checkpoint_tokenizer(c, &tokenizer));
    if (tokenizer) e->vocabulary = add_vocabulary(l, tokenizer);
    if (is_head(e)) return 0;
    int64_t own;
    TRY(inspect_find_head(c, &own));
    e->has_head = own > 0;
    return try_model(c);
}

static int read_models(struct list *l) {
    for (int i = 0; i < l->count; i++) {
        struct entry *e = &l->entries[i];
        if (!e->path) continue;
        progress_draw("models", i, l->count, e->name);
        struct checkpoint *c = checkpoint_open(e->path);
        int rc = read_model(l, e, c);
        checkpoint_close(c);
        if (rc == ERR_MEMORY) return rc;
        if (rc != 0) set_problem(e, err_message());
    }
    progress_clear();
    return 0;
}

/* --- pairs ------------------------------------------------------------------------------------------------------ */

/* Can `draft` draft for `target`? The maps are compared as the engine does. */
static bool fits(const struct list *l, const struct entry *target, const struct entry *draft) {
    int common;
    if (target->problem || draft->problem || is_head(target)) return false;
    if (is_head(draft)) return model_config_drafts_for(draft->config, target->config);
    if (target->vocabulary < 0 || draft->vocabulary < 0) return false;
    if (draft->parameters >= target->parameters) return false;
    return tokenizer_compare(l->vocabularies[target->vocabulary].tokenizer,
                             l->vocabularies[draft->vocabulary].tokenizer, &common) == 0;
}

/* --- as text ---------------------------------------------------------------------------------------------------- */

static void describe_parameters(char text[32], uint64_t count) {
    const double millions = (double)count * 1e-6;
    snprintf(text, 32, millions >= 1000 ? "%.1fB" : "%.1fM", millions >= 1000 ? millions / 1000 : millions);
}

/* A, B, ..., Z, A1, B1, ... */
static void describe_family(char text[32], int family) {
    int n = snprintf(text, 32, "%c", 'A' + family % 26);
    if (family >= 26) snprintf(text + n, (size_t)(32 - n), "%d", family / 26);
}

static void print_models(const struct list *l) {
    static const char *const heading[] = {"model", "architecture", "parameters", "size", "vocabulary", "tokens"};
    struct table t = table_create("llrrlr", "1532");
    for (int i = 0; i < 6; i++) table_add(&t, "%s", heading[i]);
    for (int i = 0; i < l->count; i++) {
        const struct entry *e = &l->entries[i];
        const struct vocabulary *v = e->vocabulary >= 0 ? &l->vocabularies[e->vocabulary] : NULL;
        char text[32], family[32] = "";
        if (e->problem) continue;
        describe_parameters(text, e->parameters);
        if (v) describe_family(family, v->family);
        table_add(&t, "%s", e->name);
        table_add(&t, "%s", e->architecture);
        table_add(&t, "%s", text);
        table_add(&t, "%s", inspect_size(e->bytes));
        table_add(&t, "%s", family);
        table_add(&t, v ? "%d" : "none", v ? tokenizer_size(v->tokenizer) : 0);
    }
    table_print(&t, terminal_width(1));
}

/* "TARGET: DRAFT, DRAFT" */
static void print_pairs(const struct list *l) {
    struct buf line = {0};
    bool any = false;
    for (int i = 0; i < l->count; i++) {
        buf_clear(&line);
        if (l->entries[i].has_head && !l->entries[i].problem) buf_puts(&line, ": mtp");
        for (int j = 0; j < l->count; j++)
            if (fits(l, &l->entries[i], &l->entries[j]))
                buf_printf(&line, "%s%s", line.len > 0 ? ", " : ": ", l->entries[j].name);
        if (line.len == 0) continue;
        if (!any) printf("\nA target, and drafts that fit it\n");
        any = true;
        int column = printf("  %s", l->entries[i].name);
        terminal_print(stdout, terminal_width(1), column, 4, buf_text(&line));
    }
    buf_free(&line);
}

static void print_problems(const struct list *l) {
    bool any = false;
    for (int i = 0; i < l->count; i++) {
        const struct entry *e = &l->entries[i];
        if (!e->problem) continue;
        if (!any) printf("\nNot supported\n");
        any = true;
        int column = printf("  %s: ", e->name);
        terminal_print(stdout, terminal_width(1), column, 4, e->problem);
    }
}

static void print_list(const struct list *l, const char *root) {
    char nothing[512];
    print_models(l);
    print_pairs(l);
    print_problems(l);
    bool has_cache = l->count > 0 && strncmp(l->entries[l->count - 1].name, "embedded ", 9) != 0;
    snprintf(nothing, sizeof nothing, "\nThe local Hugging Face cache (%s) holds no model: hf download ORG/NAME", root);
    if (!has_cache) terminal_print(stdout, terminal_width(1), 0, 0, nothing);
}

/* --- as JSON ---------------------------------------------------------------------------------------------------- */

static void put_drafts(const struct list *l, const struct entry *target, struct buf *out) {
    json_put_name(out, "drafts");
    buf_putc(out, '[');
    if (target->has_head && !target->problem) {
        json_put_element(out);
        json_put_string(out, "mtp", 3);
    }
    for (int i = 0; i < l->count; i++) {
        if (!fits(l, target, &l->entries[i])) continue;
        json_put_element(out);
        json_put_string(out, l->entries[i].name, strlen(l->entries[i].name));
    }
    buf_putc(out, ']');
}

static void put_entry(const struct list *l, const struct entry *e, struct buf *out) {
    const struct vocabulary *v = e->vocabulary >= 0 ? &l->vocabularies[e->vocabulary] : NULL;
    char family[32];
    if (v) describe_family(family, v->family);
    json_put_element(out);
    buf_putc(out, '{');
    inspect_put_text(out, "name", e->name);
    inspect_put_text(out, "path", e->path);
    inspect_put_text(out, "architecture", e->architecture);
    inspect_put_number(out, "parameters", e->bytes > 0 ? (double)e->parameters : NAN);
    inspect_put_number(out, "bytes", e->bytes > 0 ? (double)e->bytes : NAN);
    inspect_put_text(out, "vocabulary", v ? family : NULL);
    inspect_put_number(out, "tokens", v ? tokenizer_size(v->tokenizer) : NAN);
    put_drafts(l, e, out);
    inspect_put_text(out, "problem", e->problem);
    buf_putc(out, '}');
}

static void print_json(const struct list *l, const char *root) {
    struct buf text = {0};
    buf_putc(&text, '{');
    inspect_put_text(&text, "cache", root);
    json_put_name(&text, "models");
    buf_putc(&text, '[');
    for (int i = 0; i < l->count; i++) put_entry(l, &l->entries[i], &text);
    printf("%s]}\n", buf_text(&text));
    buf_free(&text);
}

/* --- the command ------------------------------------------------------------------------------------------------ */

static void list_free(struct list *l) {
    for (int i = 0; i < l->count; i++) {
        free(l->entries[i].name);
        free(l->entries[i].path);
        free(l->entries[i].problem);
        free(l->entries[i].config);
    }
    for (int i = 0; i < l->vocabulary_count; i++) tokenizer_free(l->vocabularies[i].tokenizer);
    free(l->entries);
    free(l->vocabularies);
}

int models_main(const struct options *o) {
    struct list l = {0};
    struct buf root = {0};
    hub_root(&root);
    add_embedded(&l);
    int rc = add_cache(&l, buf_text(&root));
    if (rc == 0) rc = read_models(&l);
    int status = rc == 0 ? STATUS_OK : cli_fail(rc);
    if (rc == 0 && o->json)
        print_json(&l, buf_text(&root));
    else if (rc == 0)
        print_list(&l, buf_text(&root));
    list_free(&l);
    buf_free(&root);
    return status;
}
