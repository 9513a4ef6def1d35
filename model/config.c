#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* --- the family ----------------------------------------------------------------------------------------------- */

static const char *find_name(const char *const *names, const cJSON *item) {
    for (; *names; names++)
        if (config_is_text(item, *names)) return *names;
    return NULL;
}

static void list_names(struct buf *out, bool by_model_type) {
    for (int i = 0; family_at(i); i++)
        for (const char *const *name = by_model_type ? family_at(i)->model_types : family_at(i)->architectures; *name;
             name++)
            buf_printf(out, "%s%s", out->len > 0 ? ", " : "", *name);
}

static int find_family(struct model_config *c, const cJSON *name, bool by_model_type) {
    for (int i = 0; family_at(i); i++) {
        const struct family *f = family_at(i);
        const char *found = find_name(by_model_type ? f->model_types : f->architectures, name);
        if (!found) continue;
        c->family = f;
        c->architecture = by_model_type ? f->architectures[0] : found;
        return 0;
    }
    struct buf known = {0};
    list_names(&known, by_model_type);
    int rc = err_set(ERR_UNSUPPORTED, "%s '%s' is not supported (known: %s)",
                     by_model_type ? "model_type" : "architecture", name->valuestring, buf_text(&known));
    buf_free(&known);
    return rc;
}

static const char text_suffix[] = "_text";

/* "LlamaForCausalLM" is "llama", "Qwen2_5_VLForConditionalGeneration" "qwen2_5_vl": both without case and underscores. A wrapper's text
 * model may have its own ("gemma3_text"). */
static bool is_type_of(const char *architecture, const char *type) {
    while (*type && strcmp(type, text_suffix) != 0) {
        if (*architecture == '_') {
            architecture++;
        } else if (*type == '_') {
            type++;
        } else if ((*architecture++ | 0x20) != (*type++ | 0x20)) {
            return false;
        }
    }
    return strncmp(architecture, "For", 3) == 0;
}

/* Whether the model_type belongs to the architecture. */
static bool fits(const struct model_config *c, const cJSON *type) {
    const bool is_only = !c->family->architectures[1];
    return find_name(c->family->model_types, type) && (is_only || is_type_of(c->architecture, type->valuestring));
}

static int refuse_type(const struct model_config *c, const char *whose, const cJSON *type) {
    return err_set(ERR_UNSUPPORTED, "%smodel_type '%s' is not supported with architecture %s", whose, type->valuestring,
                   c->architecture);
}

/* A wrapper's text may be any model; duet knows it as one of the same family. */
static int check_text_type(const struct model_config *c, const cJSON *text) {
    const cJSON *type = json_get(text, "model_type");
    if (!type) return 0;
    TRY(config_need_string(type, "model_type"));
    if (fits(c, type) || (c->family->text_types && find_name(c->family->text_types, type))) return 0;
    return refuse_type(c, "text_config's ", type);
}

static int read_architecture(struct model_config *c, const cJSON *root) {
    const cJSON *list = json_get(root, "architectures"), *type = json_get(root, "model_type");
    const bool is_block = json_get(root, "dflash_config"), is_eagle = json_get(root, "draft_vocab_size");
    if (is_block || is_eagle) { /* whatever they call it */
        c->family = is_block ? &family_dflash : &family_eagle3, c->architecture = c->family->architectures[0];
        return 0;
    }
    if (list && !cJSON_IsArray(list)) return err_set(ERR_FORMAT, "member 'architectures' is no list");
    if (type) TRY(config_need_string(type, "model_type"));
    if (list && list->child) {
        TRY(config_need_string(list->child, "architectures"));
        TRY(find_family(c, list->child, false));
        if (!type || fits(c, type)) return 0;
        struct model_config own;
        if (c->family != &family_llama || find_family(&own, type, true) != 0 || !own.family->is_saved_as_llama)
            return refuse_type(c, "", type);
        c->family = own.family, c->architecture = own.architecture;
        return 0;
    }
    if (!type) return err_set(ERR_FORMAT, "neither 'architectures' nor 'model_type' is there");
    TRY(find_family(c, type, true));
    const bool is_text = text_ends_with(type->valuestring, text_suffix);
    for (const char *const *name = c->family->architectures; *name; name++) {
        if (!is_type_of(*name, type->valuestring)) continue;
        c->architecture = *name;
        if (is_text) break; /* alone where it can be */
    }
    return 0;
}

/* --- heads that draft ----------------------------------------------------------------------------------------- */

int model_config_keys_for(const struct layer_config *own, const struct model_config *of) {
    int from = of->layers - 1;
    while (from >= 0 && (of->layer[from].is_recurrent || of->layer[from].has_no_mixer ||
                         (of->layer[from].window > 0) != (own->window > 0)))
        from--;
    const struct layer_config *other = from >= 0 ? &of->layer[from] : NULL;
    return other && other->head_dim == own->head_dim && other->kv_heads == own->kv_heads ? other->kv_layer : -1;
}

bool model_config_has_size_for(const struct model_config *head, const struct model_config *of) {
    enum { MORE_TOKENS = 1024 };
    const struct drafter_config *d = &head->drafter;
    const bool is_as_wide = d->reads_keys || head->width == d->target_width;
    return is_as_wide && d->target_width == of->width && abs(head->vocab - of->vocab) <= MORE_TOKENS;
}

bool model_config_drafts_for(const struct model_config *head, const struct model_config *of) {
    if (!model_config_has_size_for(head, of)) return false;
    for (int l = 0; head->drafter.reads_keys && l < head->layers; l++)
        if (model_config_keys_for(&head->layer[l], of) < 0) return false;
    return true;
}

/* --- special ids ------------------------------------------------------------------------------------------ */

int model_config_add_end_id(struct model_config *c, int64_t id) {
    int at = 0;
    if (id < 0 || id >= c->vocab) return 0;
    while (at < c->end_count && c->end_ids[at] < id) at++;
    if (at < c->end_count && c->end_ids[at] == id) return 0;
    if (c->end_count == END_IDS_MAX) return err_set(ERR_LIMIT, "more than %d end ids", END_IDS_MAX);
    for (int i = c->end_count++; i > at; i--) c->end_ids[i] = c->end_ids[i - 1];
    c->end_ids[at] = (int32_t)id;
    return 0;
}

static int add_end_id(struct model_config *c, const cJSON *item) {
    int64_t id;
    if (!json_int(item, &id) || id < -1 || id > INT32_MAX)
        return err_set(ERR_FORMAT, "member 'eos_token_id' is neither an id nor a list of ids");
    return model_config_add_end_id(c, id);
}

static int add_end_ids(struct model_config *c, const cJSON *root) {
    const cJSON *item = json_get(root, "eos_token_id");
    if (!item) return 0;
    if (!cJSON_IsArray(item)) return add_end_id(c, item);
    for (const cJSON *id = item->child; id; id = id->next) TRY(add_end_id(c, id));
    return 0;
}

/* --- files -------------------------------------------------------------------------------------------------- */

/* transformers 4 asks the text, transformers 5 the wrapper: what the text says counts first. */
static int read_tied(struct model_config *c, const cJSON *root, const cJSON *text) {
    if (json_get(text, "tie_word_embeddings") || !json_get(root, "tie_word_embeddings")) return 0;
    TRY(json_get_bool(root, "tie_word_embeddings", false, &c->tied));
    c->tied_outside = c->tied;
    return 0;
}

/* A wrapper may have its end ids outside, inside or both. */
static int read_config(struct model_config *c, const cJSON *root) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "is no JSON object");
    const cJSON *text = config_text(root);
    TRY(read_architecture(c, root));
    TRY(quantisation_read(&c->quantisation, root, text));
    const bool is_wrapped = text != root && config_is_wrapper(c);
    if (is_wrapped) TRY(check_text_type(c, text));
    TRY(c->family->configure(c, root));
    if (is_wrapped) TRY(read_tied(c, root, text));
    if (text != root) TRY(add_end_ids(c, text));
    return add_end_ids(c, root);
}

static int read_generation_config(struct model_config *c, const cJSON *root) {
    if (!cJSON_IsObject(root)) return err_set(ERR_FORMAT, "is no JSON object");
    TRY(json_get_number(root, "temperature", NAN, &c->gen_temperature));
    TRY(json_get_number(root, "top_p", NAN, &c->gen_top_p));
    TRY(config_get_int(root, "top_k", -1, -1, INT32_MAX, &c->gen_top_k));
    return add_end_ids(c, root);
}

static int load_file(struct model_config *c, const char *path, int (*read)(struct model_config *, const cJSON *)) {
    cJSON *root;
    TRY(json_parse_file(&root, path));
    int rc = read(c, root);
    if (rc != 0) err_prefix(rc, "%s", path);
    cJSON_Delete(root);
    return rc;
}

static void clear(struct model_config *c) {
    *c = (struct model_config){.gen_temperature = NAN, .gen_top_p = NAN, .gen_top_k = -1};
}

int model_config_parse(struct model_config *out, const char *text, const char *label) {
    cJSON *root;
    clear(out);
    TRY(json_parse(&root, text, strlen(text)));
    int rc = read_config(out, root);
    if (rc != 0) err_prefix(rc, "%s", label);
    cJSON_Delete(root);
    return rc;
}

int model_config_load(struct model_config *out, const char *path, const char *generation_path) {
    clear(out);
    TRY(load_file(out, path, read_config));
    return generation_path ? load_file(out, generation_path, read_generation_config) : 0;
}

int model_config_load_quantisation(struct model_config *c, const char *path, enum quantisation_method method) {
    cJSON *root;
    TRY(json_parse_file(&root, path));
    int rc = quantisation_read_file(&c->quantisation, root, method);
    if (rc != 0) err_prefix(rc, "%s", path);
    cJSON_Delete(root);
    return rc;
}
