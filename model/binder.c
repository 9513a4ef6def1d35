#include "model/binder.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/memory.h"

/* --- naming --------------------------------------------------------------------------------------------------- */

static bool has_tensor(const struct binder *b, const char *body, const char *name) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", body, name);
    return b->m->files && safetensors_find(b->m->files, full);
}

void binder_find_text(struct binder *b, bool is_wrapped) {
    static const struct prefix {
        const char *body, *outer;
    } prefixes[] = {{"model.", ""}, {"language_model.model.", "language_model."}, {"model.language_model.", ""}};
    static const char *const others[] = {"vision_tower.",       "multi_modal_projector.",       "visual.",
                                         "model.vision_tower.", "model.multi_modal_projector.", "model.visual.",
                                         "model.embed_vision.", "model.audio_tower.",           "model.embed_audio."};
    const struct prefix *found = prefixes; /* the first under which the files have an embedding */
    for (int i = 2; i >= 0 && is_wrapped; i--)
        if (has_tensor(b, prefixes[i].body, "embed_tokens.weight")) found = &prefixes[i];
    b->body = found->body, b->outer = found->outer;
    for (size_t i = 0; is_wrapped && i < sizeof others / sizeof *others; i++) bind_ignore(b, others[i]);
}

bool binder_has(const struct binder *b, const char *name) {
    return has_tensor(b, b->body, name);
}

static struct binding *add(struct binder *b, struct weight *weight, int64_t rows, int64_t cols) {
    struct model *m = b->m;
    if (m->binding_count == m->binding_cap) {
        m->binding_cap = m->binding_cap ? 2 * m->binding_cap : 256;
        m->bindings = memory_resize(m->bindings, (size_t)m->binding_cap * sizeof *m->bindings);
    }
    struct binding *binding = &m->bindings[m->binding_count++];
    *binding = (struct binding){.weight = weight, .rows = rows, .cols = cols, .all = rows, .step = 1};
    return binding;
}

/* `to` in place of the first `from`, where there is one and there is room. */
static void rename_part(char *name, size_t size, const struct renaming *r) {
    char *at = strstr(name, r->from);
    const size_t from = strlen(r->from), to = strlen(r->to);
    if (!at || strlen(name) - from + to >= size) return;
    memmove(at + to, at + from, strlen(at + from) + 1);
    memcpy(at, r->to, to);
}

/* The name in the files of one that is relative to the body. A dot stands before it while its parts are renamed. */
static void name_in_files(const struct binder *b, const char *name, char *out, size_t size) {
    static const char layer[] = "layers.0.";
    const bool is_of_layer = b->layer[0] && strncmp(name, layer, strlen(layer)) == 0;
    char relative[96];
    snprintf(relative, sizeof relative, ".%s", is_of_layer ? name + strlen(layer) : name);
    for (const struct renaming *r = b->renamings; r && r->from; r++) rename_part(relative, sizeof relative, r);
    snprintf(out, size, "%s%s", is_of_layer ? b->layer : b->body, relative + 1);
}

static void name_binding(const struct binder *b, struct binding *binding, const char *format, va_list args) {
    char name[sizeof binding->name - sizeof b->layer];
    vsnprintf(name, sizeof name, format, args);
    name_in_files(b, name, binding->name, sizeof binding->name);
}

void bind_weight(struct binder *b, struct weight *weight, int64_t rows, int64_t cols, const char *format, ...) {
    va_list args;
    va_start(args, format);
    name_binding(b, add(b, weight, rows, cols), format, args);
    va_end(args);
}

/* In the file perhaps [1, cols]. */
static void name_row(struct binder *b, struct binding *binding, const char *format, va_list args) {
    name_binding(b, binding, format, args);
    const struct tensor *t = b->m->files ? safetensors_find(b->m->files, binding->name) : NULL;
    if (t && t->dims == 2) binding->stack = 1, binding->all = binding->cols;
}

void bind_exact(struct binder *b, struct weight *weight, int64_t cols, const char *format, ...) {
    va_list args;
    struct binding *binding = add(b, weight, 1, cols);
    binding->is_exact = true;
    va_start(args, format);
    name_row(b, binding, format, args);
    va_end(args);
}

void bind_row(struct binder *b, struct weight *weight, int64_t cols, const char *format, ...) {
    va_list args;
    struct binding *binding = add(b, weight, 1, cols);
    va_start(args, format);
    name_row(b, binding, format, args);
    va_end(args);
}

void bind_conv(struct binder *b, struct weight *weight, int64_t channels, int64_t taps, const char *format, ...) {
    va_list args;
    struct binding *binding = add(b, weight, channels, taps);
    binding->is_exact = binding->is_conv = true;
    va_start(args, format);
    name_binding(b, binding, format, args);
    va_end(args);
}

void bind_norm(struct binder *b, struct norm *norm, float offset, int64_t cols, const char *format, ...) {
    va_list args;
    const float held = b->c->norms_hold_one ? offset : 0;
    const enum norm_kind kind = b->c->norms_centre ? NORM_LAYER : NORM_RMS;
    *norm = (struct norm){.kind = kind, .offset = offset - held, .eps = b->c->norm_eps};
    struct binding *binding = add(b, &norm->weight, 1, cols);
    binding->norm = norm;
    binding->held = held;
    va_start(args, format);
    name_binding(b, binding, format, args);
    va_end(args);
    if (!b->c->norms_have_bias) return;
    char of_bias[112]; /* "bias" where the format ends with "weight" */
    snprintf(of_bias, sizeof of_bias, "%.*sbias", (int)(strlen(format) - strlen("weight")), format);
    va_start(args, format);
    name_binding(b, add(b, &norm->bias, 1, cols), of_bias, args);
    va_end(args);
}

void bind_unused(struct binder *b, const char *format, ...) {
    va_list args;
    va_start(args, format);
    name_binding(b, add(b, NULL, 0, 0), format, args);
    va_end(args);
}

static void set_range(struct binding *binding, struct row_range range) {
    binding->all = range.all, binding->first = range.first, binding->step = range.step;
}

void bind_rows(struct binder *b, struct weight *weight, int64_t rows, int64_t cols, struct row_range range,
               const char *format, ...) {
    va_list args;
    struct binding *binding = add(b, weight, rows, cols);
    set_range(binding, range);
    va_start(args, format);
    name_binding(b, binding, format, args);
    va_end(args);
}

static struct weight *make_experts(struct binder *b, struct experts *experts) {
    struct model *m = b->m;
    m->expert_lists = memory_resize(m->expert_lists, ((size_t)m->expert_list_count + 1) * sizeof(struct weight *));
    size_t bytes = (size_t)b->c->experts * sizeof(struct weight);
    struct weight *list = memset(memory_resize(NULL, bytes), 0, bytes);
    m->expert_lists[m->expert_list_count++] = list;
    experts->each = list;
    return list;
}

/* printf's format checks do not see formats that are handed on. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
void bind_experts(struct binder *b, struct experts *experts, int64_t rows, int64_t cols, int layer,
                  const char *format) {
    struct weight *list = make_experts(b, experts);
    for (int e = 0; e < b->c->experts; e++) {
        char name[96];
        snprintf(name, sizeof name, format, layer, e);
        bind_weight(b, &list[e], rows, cols, "%s", name);
    }
}

bool binder_has_stack(const struct binder *b, int64_t rows, int layer, const char *format) {
    char name[96], full[128];
    snprintf(name, sizeof name, format, layer);
    name_in_files(b, name, full, sizeof full);
    const struct tensor *t = b->m->files ? safetensors_find(b->m->files, full) : NULL;
    return t && t->dims == 3 && (rows == 0 || t->shape[1] == rows);
}

void bind_stacked(struct binder *b, struct experts *experts, int64_t rows, int64_t cols, struct row_range range,
                  bool is_transposed, int layer, const char *format) {
    struct weight *list = make_experts(b, experts);
    char name[96];
    snprintf(name, sizeof name, format, layer);
    for (int e = 0; e < b->c->experts; e++) {
        bind_weight(b, &list[e], rows, cols, "%s", name);
        struct binding *binding = &b->m->bindings[b->m->binding_count - 1];
        set_range(binding, range);
        binding->stack = b->c->experts, binding->index = e, binding->is_transposed = is_transposed;
    }
}
#pragma GCC diagnostic pop

/* By this name; or some of its rows, where it is cut. */
static void bind_head(struct binder *b, const char *prefix, const char *name) {
    struct model *m = b->m;
    const bool is_cut = m->head_ids.len > 0;
    const int64_t all = b->c->drafter.is_there ? b->c->drafter.head_vocab : b->c->vocab;
    struct binding *binding = add(b, &m->head, is_cut ? (int64_t)m->head_ids.len : all, b->c->width);
    binding->all = all, binding->ids = is_cut ? m->head_ids.data : NULL;
    snprintf(binding->name, sizeof binding->name, "%s%s", prefix, name);
}

/* That of a model, or its embedding. */
static void bind_model_head(struct binder *b) {
    char name[128] = "lm_head.weight";
    if (b->c->tied) name_in_files(b, "embed_tokens.weight", name, sizeof name);
    bind_head(b, b->c->tied ? "" : b->outer, name);
}

void bind_ends(struct binder *b, float norm_offset) {
    const struct model_config *c = b->c;
    struct model *m = b->m;
    if (c->tied_outside && has_tensor(b, b->outer, "lm_head.weight")) m->config.tied = false;
    bind_weight(b, &m->embedding, c->vocab, c->width, "embed_tokens.weight");
    bind_norm(b, &m->norm, norm_offset, c->width, "norm.weight");
    if (!model_is_tied(m)) bind_model_head(b);
}

void bind_head_ends(struct binder *b) {
    static const char own_head[] = "shared_head.head.weight";
    struct model *m = b->m;
    const bool is_own = model_is_own_head(m);
    m->shares_embedding =
        b->c->drafter.reads_keys || !has_tensor(b, is_own ? b->layer : b->body, "embed_tokens.weight");
    if (!m->shares_embedding)
        bind_weight(b, &m->embedding, b->c->vocab, b->c->width, "%sembed_tokens.weight", is_own ? "layers.0." : "");
    if (!is_own)
        bind_model_head(b);
    else if (has_tensor(b, b->layer, own_head))
        m->shares_head = false, bind_head(b, b->layer, own_head);
    else if (!m->shares_head)
        bind_model_head(b);
}

void bind_head_behind(struct binder *b, float norm_offset) {
    const int32_t width = b->c->width;
    struct model *m = b->m;
    snprintf(b->layer, sizeof b->layer, "%slayers.%d.", b->body, (int)m->of->config.layers);
    bind_head_ends(b);
    bind_norm(b, &m->embedding_norm, norm_offset, width, "layers.0.enorm.weight");
    bind_norm(b, &m->hidden_norm, norm_offset, width, "layers.0.hnorm.weight");
    bind_weight(b, &m->join, width, 2 * (int64_t)width, "layers.0.eh_proj.weight");
    bind_norm(b, &m->norm, norm_offset, width, "layers.0.shared_head.norm.weight");
}

void bind_norms_before(struct binder *b, float offset, int layer) {
    struct layer *l = &b->m->layers[layer];
    bind_norm(b, &l->attn_norm, offset, b->c->width, "layers.%d.input_layernorm.weight", layer);
    if (!b->c->sublayers_are_parallel)
        bind_norm(b, &l->mlp_norm, offset, b->c->width, "layers.%d.post_attention_layernorm.weight", layer);
}

void bind_norms_behind(struct binder *b, int layer) {
    struct layer *l = &b->m->layers[layer];
    bind_norm(b, &l->post_attn_norm, 0, b->c->width, "layers.%d.post_attention_layernorm.weight", layer);
    bind_norm(b, &l->post_mlp_norm, 0, b->c->width, "layers.%d.post_feedforward_layernorm.weight", layer);
}

void bind_qk_norms(struct binder *b, float offset, int layer) {
    struct layer *l = &b->m->layers[layer];
    const int64_t dim = b->c->head_dim;
    const int64_t heads = b->c->norms_all_heads ? b->c->heads : 1,
                  kv_heads = b->c->norms_all_heads ? b->c->kv_heads : 1;
    bind_norm(b, &l->q_norm, offset, heads * dim, "layers.%d.self_attn.q_norm.weight", layer);
    bind_norm(b, &l->k_norm, offset, kv_heads * dim, "layers.%d.self_attn.k_norm.weight", layer);
}

void bind_attention(struct binder *b, int layer) {
    const struct model_config *c = b->c;
    const struct layer_config *lc = &c->layer[layer];
    struct layer *l = &b->m->layers[layer];
    int64_t q = (int64_t)c->heads * lc->head_dim, kv = (int64_t)lc->kv_heads * lc->head_dim;
    bind_weight(b, &l->wq, c->queries_gated ? 2 * q : q, c->width, "layers.%d.self_attn.q_proj.weight", layer);
    if (lc->kv_layer == layer) bind_weight(b, &l->wk, kv, c->width, "layers.%d.self_attn.k_proj.weight", layer);
    if (lc->kv_layer == layer && !lc->v_is_k)
        bind_weight(b, &l->wv, kv, c->width, "layers.%d.self_attn.v_proj.weight", layer);
    bind_weight(b, &l->wo, c->width, q, "layers.%d.self_attn.o_proj.weight", layer);
    if (!c->qkv_bias) return;
    bind_weight(b, &l->bq, 1, q, "layers.%d.self_attn.q_proj.bias", layer);
    bind_weight(b, &l->bk, 1, kv, "layers.%d.self_attn.k_proj.bias", layer);
    bind_weight(b, &l->bv, 1, kv, "layers.%d.self_attn.v_proj.bias", layer);
}

void bind_output_bias(struct binder *b, int layer) {
    if (b->c->qkv_bias)
        bind_weight(b, &b->m->layers[layer].bo, 1, b->c->width, "layers.%d.self_attn.o_proj.bias", layer);
}

void bind_ungated_mlp(struct binder *b, int layer, const char *module, bool has_bias) {
    struct layer *l = &b->m->layers[layer];
    int64_t f = b->c->layer[layer].hidden, d = b->c->width;
    bind_weight(b, &l->gate, f, d, "layers.%d.%s.up_proj.weight", layer, module);
    bind_weight(b, &l->down, d, f, "layers.%d.%s.down_proj.weight", layer, module);
    if (!has_bias) return;
    bind_weight(b, &l->gate_bias, 1, f, "layers.%d.%s.up_proj.bias", layer, module);
    bind_weight(b, &l->down_bias, 1, d, "layers.%d.%s.down_proj.bias", layer, module);
}

static void bind_mlp_under(struct binder *b, int layer, const char *module) {
    struct layer *l = &b->m->layers[layer];
    int64_t f = b->c->layer[layer].hidden, d = b->c->width;
    bind_weight(b, &l->gate, f, d, "layers.%d.%s.gate_proj.weight", layer, module);
    bind_weight(b, &l->up, f, d, "layers.%d.%s.up_proj.weight", layer, module);
    bind_weight(b, &l->down, d, f, "layers.%d.%s.down_proj.weight", layer, module);
}

void bind_mlp(struct binder *b, int layer) {
    bind_mlp_under(b, layer, "mlp");
}

void bind_shared_mlp(struct binder *b, int layer, const char *name) {
    char module[64];
    snprintf(module, sizeof module, "mlp.%s", name);
    bind_mlp_under(b, layer, module);
}

void bind_fused_mlp(struct binder *b, int layer) {
    static const char name[] = "layers.%d.mlp.gate_up_proj.weight";
    struct layer *l = &b->m->layers[layer];
    int64_t f = b->c->layer[layer].hidden, d = b->c->width;
    bind_rows(b, &l->gate, f, d, (struct row_range){2 * f, 0, 1}, name, layer);
    bind_rows(b, &l->up, f, d, (struct row_range){2 * f, f, 1}, name, layer);
    bind_weight(b, &l->down, d, f, "layers.%d.mlp.down_proj.weight", layer);
}

void bind_ignore(struct binder *b, const char *prefix) {
    struct model *m = b->m;
    if (m->ignored_count < (int)(sizeof m->ignored / sizeof *m->ignored)) m->ignored[m->ignored_count++] = prefix;
}

/* --- looking up ----------------------------------------------------------------------------------------------- */

size_t binding_elements(const struct binding *b) {
    return (size_t)b->rows * (size_t)b->cols;
}

int binding_tensor_shape(const struct binding *b, int64_t shape[3]) {
    int dims = 0;
    if (b->stack > 0) shape[dims++] = b->stack;
    if (b->rows == 1 && b->stack > 0) {
        shape[dims++] = b->all; /* a vector of each expert: its numbers are rows here */
        return dims;
    }
    if (b->rows > 1 || b->all > 1) shape[dims++] = b->is_transposed ? b->cols : b->all;
    if (b->is_conv) shape[dims++] = 1;
    shape[dims++] = b->is_transposed ? b->all : b->cols;
    return dims;
}

/* Where the binding's first number lies in its tensor, and how far its rows are apart. */
static void place(struct binding *b, const struct tensor *t) {
    const bool is_vector = b->rows == 1 && b->stack > 0;
    int64_t matrix = is_vector ? b->all : b->all * b->cols, first = b->index * matrix, stride = b->step * b->cols;
    if (is_vector || b->is_transposed)
        first += b->first;
    else
        first += b->first * b->cols;
    if (is_vector) stride = b->step; /* of numbers; read by the copy alone unless they lie side by side */
    b->file = (const char *)t->data + dtype_span_bytes(b->file_format, first);
    b->weight->stride = stride == b->cols || is_vector ? 0 : stride;
}

/* Of a cut head all of the files' rows, unless it is made of its own. */
struct stored_rows binding_rows(const struct binding *b) {
    const bool is_source = b->ids && b->stored.form != STORED_MADE;
    return (struct stored_rows){b->index, b->first, b->step, is_source ? b->all : b->rows};
}

/* A quantised matrix lies as the model's configuration says, never transposed. */
static int resolve_quantised(struct model *m, struct binding *b) {
    const struct stored_rows rows = binding_rows(b);
    if (b->step != 1 && b->stored.scale_rows > 1)
        return err_set(ERR_UNSUPPORTED, "%s: tensor '%s' has scales for blocks of rows that belong to two matrices",
                       b->stored.scales->file, b->stored.scales->name);
    b->is_transposed = false;
    b->file_format = b->stored.format;
    m->is_quantised = true;
    stored_place(&b->stored, &rows, b->weight, &b->scales, NULL);
    return 0;
}

static int resolve(struct model *m, struct binding *b) {
    struct weight *w = b->weight;
    int64_t shape[3];
    int dims = binding_tensor_shape(b, shape);
    if (b->rows > INT32_MAX || b->cols > INT32_MAX)
        return err_set(ERR_LIMIT, "tensor '%s' has a dimension above 2^31 - 1", b->name);
    w->rows = (int32_t)b->rows, w->cols = (int32_t)b->cols;
    if (m->is_random) {
        w->format = b->file_format = DTYPE_BF16;
        return 0;
    }
    const struct tensor *t;
    if (b->rows > 1 && !b->is_conv) {
        const struct quantisation *q = &m->config.quantisation;
        TRY(stored_find(&b->stored, m->files, q, b->name, b->all, b->cols, b->stack));
        if (binding_is_quantised(b)) return resolve_quantised(m, b);
    }
    TRY(safetensors_expect(m->files, b->name, shape, dims, &t, &b->file_format));
    if (dtype_is_quantised(b->file_format) && (b->rows == 1 || b->is_transposed))
        return err_set(ERR_UNSUPPORTED, "%s: tensor '%s' is %s, expected BF16, F16 or F32", t->file, b->name, t->dtype);
    if (b->file_format != DTYPE_F32) b->held = 0;
    place(b, t);
    w->format = b->file_format;
    w->data = b->file;
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const struct binding *const *)a)->name, (*(const struct binding *const *)b)->name);
}

/* What quantises the cache or attention itself: of a layer's attention, whatever else is quantised. */
static bool is_of_cache(const char *name) {
    static const char *const members[] = {
        "k_scale",      "v_scale",      "q_scale",       "kv_scale",          "k_zero_point",
        "v_zero_point", "q_zero_point", "kv_zero_point", "prob_output_scale", "prob_output_zero_point"};
    if (!strstr(name, ".self_attn.") && !strstr(name, ".attn.")) return false;
    const char *member = strrchr(name, '.') + 1;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (strcmp(member, members[i]) == 0) return true;
    return false;
}

/* The rotary frequencies, which older checkpoints store, are computed here; the cache is not quantised by what files say. */
static bool is_ignored(const struct model *m, const char *name) {
    if (text_ends_with(name, ".rotary_emb.inv_freq") || is_of_cache(name)) return true;
    if (m->config.tied && (strcmp(name, "lm_head.weight") == 0 || text_ends_with(name, ".lm_head.weight"))) return true;
    int layer;
    if ((sscanf(name, "model.layers.%6d.", &layer) == 1 || sscanf(name, "blk.%6d.", &layer) == 1) &&
        layer >= m->config.layers && layer < m->config.layers + m->config.next_layers)
        return true;
    for (int i = 0; i < m->ignored_count; i++)
        if (strncmp(name, m->ignored[i], strlen(m->ignored[i])) == 0) return true;
    return false;
}

static const struct binding *find_binding(const struct model *m, const struct binding *const *sorted,
                                          const char *name) {
    struct binding key;
    snprintf(key.name, sizeof key.name, "%.*s", (int)sizeof key.name - 1, name);
    const struct binding *wanted = &key;
    const struct binding *const *found =
        bsearch(&wanted, sorted, (size_t)m->binding_count, sizeof wanted, compare_names);
    return found ? *found : NULL;
}

/* Bindings of one name are parts of one matrix: any of them knows its tensors. */
static bool is_known(const struct model *m, const struct binding *const *sorted, const struct tensor *t) {
    char owner[sizeof sorted[0]->name];
    if (find_binding(m, sorted, t->name) || is_ignored(m, t->name)) return true;
    if (!m->is_quantised || !stored_owner(t->name, owner, sizeof owner)) return false;
    const struct binding *b = find_binding(m, sorted, owner);
    return b && stored_owns(&b->stored, t);
}

static int refuse_unknown(const struct model *m, const struct binding *const *sorted) {
    for (int i = 0; i < safetensors_count(m->files); i++) {
        const struct tensor *t = safetensors_at(m->files, i);
        if (!is_known(m, sorted, t))
            return err_set(ERR_UNSUPPORTED, "%s: tensor '%s' is not part of a %s with %d layers", t->file,
                           t->in_file ? t->in_file : t->name, m->config.architecture, m->config.layers);
    }
    return 0;
}

int model_resolve_bindings(struct model *m) {
    for (int i = 0; i < m->binding_count; i++)
        if (m->bindings[i].weight) TRY(resolve(m, &m->bindings[i]));
    if (model_is_tied(m)) m->head = m->embedding;
    if (m->of) model_share_ends(m);
    if (m->is_random || model_is_own_head(m)) return 0; /* whose files its model has looked through */
    const struct binding **sorted = memory_resize(NULL, (size_t)m->binding_count * sizeof *sorted);
    for (int i = 0; i < m->binding_count; i++) sorted[i] = &m->bindings[i];
    qsort(sorted, (size_t)m->binding_count, sizeof *sorted, compare_names);
    int rc = refuse_unknown(m, sorted);
    free(sorted);
    return rc;
}
