/* Opening a model, its memory, and the forward pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "model/binder.h"
#include "model/families/family.h"
#include "model/packed.h"

/* --- opening ---------------------------------------------------------------------------------------------- */

static int bind_all(struct model *m) {
    m->layers = calloc((size_t)m->config.layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(ERR_MEMORY, "%s: out of memory for %d layers", checkpoint_name(m->checkpoint), m->config.layers);
    struct binder b = {.m = m, .c = &m->config};
    const bool is_own = model_is_own_head(m);
    if (!is_own) {
        m->config.family->bind(&b);
        return model_resolve_bindings(m);
    }
    m->config.family->bind_mtp(&b);
    const int rc = model_resolve_bindings(m);
    return rc != 0 ? err_prefix(rc, "the head that proposes tokens") : 0;
}

/* What cannot be read in place: transposed matrices, numbers of a vector that lie apart, rows by their ids, all on a device with its own memory. */
static bool needs_copy(const struct model *m, const struct binding *b) {
    if (!b->weight) return false;
    if (model_reads_quantised(m, b)) return stored_packed_bytes(&b->stored, b->rows) > 0;
    bool lies_apart = b->rows == 1 && b->stack > 0 && b->step != 1;
    return !m->is_mapped || b->is_transposed || lies_apart || b->ids;
}

/* Vectors are not worth a word. */
static void find_rounded(struct model *m, const struct binding *b) {
    if (!b->weight || b->rows == 1 || b->is_exact || binding_is_quantised(b)) return;
    m->rounds_f32 |= b->file_format == DTYPE_F32;
    m->rounds_f16 |= b->file_format == DTYPE_F16 && m->weight_type == DTYPE_BF16;
    m->rounds_bf16 |= b->file_format == DTYPE_BF16 && m->weight_type == DTYPE_F16;
}

/* Where the weights are to lie, and in which type. */
static void choose_types(struct model *m, enum kv_numbers kv) {
    bool on_host = device_kind(m->device) == DEVICE_HOST;
    m->is_mapped = on_host && !m->is_random;
    m->keeps_quantised = on_host;
    m->weight_type = m->of ? m->of->weight_type : model_device_type(m);
    m->type = on_host ? DTYPE_F32 : m->weight_type;
    if (!on_host) model_choose_packed(m);
    for (int i = 0; i < m->binding_count; i++) {
        struct binding *b = &m->bindings[i];
        b->is_copied = needs_copy(m, b);
        if (!on_host) find_rounded(m, b);
    }
    m->cache = (struct cache){.kind = m->config.recurrent.value_heads > 0 ? &cache_hybrid : &cache_paged,
                              .config = &m->config,
                              .owner = m->name,
                              .type = kv == KV_FP8 ? DTYPE_FP8 : m->type,
                              .hidden_type = m->type};
    model_measure_pass(m);
}

static int open_parts(struct model *m, struct model_numbers numbers) {
    TRY(m->of ? model_configure_head(m) : checkpoint_config(m->checkpoint, &m->config));
    if (m->config.drafter.is_there && !m->of)
        return err_set(ERR_UNSUPPORTED, "%s: is a head that drafts for another model: it goes beside that as --draft",
                       checkpoint_name(m->checkpoint));
    TRY(checkpoint_tensors(m->checkpoint, &m->files));
    m->is_random = !m->files;
    TRY(bind_all(m));
    TRY(model_choose_quantised(m, numbers.weights));
    choose_types(m, numbers.kv);
    return 0;
}

/* `of`: of which the model is the head that proposes more tokens; NULL: of none. */
static int open_named(struct model **out, const struct checkpoint *checkpoint, struct model *of, const char *name,
                      struct model_numbers numbers, struct device *device) {
    *out = NULL;
    struct model *m = calloc(1, sizeof *m);
    if (!m) return err_set(ERR_MEMORY, "%s: out of memory", checkpoint_name(checkpoint));
    snprintf(m->name, sizeof m->name, "%s", name);
    m->checkpoint = checkpoint;
    m->device = device;
    m->of = of;
    if (numbers.head_ids) ids_append(&m->head_ids, numbers.head_ids->data, numbers.head_ids->len);
    m->shares_head = of && model_is_own_head(m) && m->head_ids.len == 0 && numbers.weights == WEIGHTS_AS_STORED;
    m->ops = device_is_planned(device) ? NULL : ops_for(device);
    int rc = open_parts(m, numbers);
    if (rc != 0) {
        model_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_open(struct model **out, const struct checkpoint *checkpoint, const char *name, struct model_numbers numbers,
               struct device *device) {
    return open_named(out, checkpoint, NULL, name, numbers, device);
}

int64_t model_own_head(struct model *of) {
    struct model *head;
    if (open_named(&head, of->checkpoint, of, "draft", (struct model_numbers){0}, of->device) != 0) return 0;
    const int64_t count = model_parameters(head);
    model_close(head);
    return count;
}

int model_open_head(struct model **out, struct model *of, const struct checkpoint *own, const char *name,
                    struct model_numbers numbers) {
    TRY(open_named(out, own ? own : of->checkpoint, of, name, numbers, of->device));
    const struct drafter_config *d = &(*out)->config.drafter;
    of->cache.hidden_width = d->block > 0 ? 0 : d->reads_keys ? d->target_width : (*out)->config.width;
    if (own && !d->reads_keys) of->tapped_by = *out;
    model_measure_pass(of);
    return 0;
}

void model_close(struct model *m) {
    if (!m) return;
    if (m->of && m->of->tapped_by == m) m->of->tapped_by = NULL;
    safetensors_close(m->files);
    cache_close(&m->cache);
    for (int i = 0; i < m->expert_list_count; i++) free(m->expert_lists[i]);
    for (int i = 0; i <= LOGITS_ALL; i++) pass_free(&m->passes[i]);
    free(m->expert_lists);
    free(m->bindings);
    ids_free(&m->head_ids);
    free(m->layers);
    free(m);
}

/* --- facts ------------------------------------------------------------------------------------------------ */

const struct model_config *model_get_config(const struct model *m) {
    return &m->config;
}

int model_add_end_token(struct model *m, const struct tokenizer *tokenizer) {
    return checkpoint_add_end_token(m->checkpoint, tokenizer, &m->config);
}

struct cache *model_get_cache(struct model *m) {
    return &m->cache;
}

/* Those of the files: a cut head's rows are all of the head's, or the embedding's. */
int64_t model_parameters(const struct model *m) {
    int64_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (!b->ids)
            sum += (int64_t)binding_elements(b);
        else if (!m->config.tied || m->config.drafter.reads_keys) /* whose embedding is nothing else */
            sum += b->all * b->cols;
    }
    return sum;
}

int model_logits_width(const struct model *m) {
    return m->head.rows;
}

/* Bytes of a weight where it is read. */
static uint64_t binding_bytes(const struct model *m, const struct binding *b) {
    if (b->is_packed) return packed_bytes(&b->packed, b->rows, (int)b->cols);
    if (b->weight && model_reads_quantised(m, b)) return stored_bytes(&b->stored, b->rows);
    enum dtype format = b->is_copied ? model_copied_type(m, b) : b->file_format;
    return b->weight ? (uint64_t)dtype_span_bytes(format, (int64_t)binding_elements(b)) : 0;
}

/* Of what is read in the mapped files; a quantised matrix's scales are few. */
static uint64_t mapped_bytes(const struct model *m, const struct binding *b) {
    if (!m->is_mapped || !b->weight || b->ids) return 0;
    if (binding_is_quantised(b))
        return stored_is_in_place(&b->stored) ? (uint64_t)dtype_span_bytes(b->file_format, (int64_t)binding_elements(b))
                                              : 0;
    return b->is_copied ? 0 : binding_bytes(m, b);
}

uint64_t model_mapped_bytes(const struct model *m) {
    uint64_t sum = 0;
    for (int i = 0; i < m->binding_count; i++) sum += mapped_bytes(m, &m->bindings[i]);
    return sum;
}

const char *model_rounded(const struct model *m) {
    if (m->weight_type == DTYPE_F16 && m->rounds_f32) return m->rounds_bf16 ? "f32 and bf16" : "f32";
    if (m->rounds_f32) return m->rounds_f16 ? "f32 and f16" : "f32";
    return m->rounds_f16 ? "f16" : m->rounds_bf16 ? "bf16" : NULL;
}

static bool is_of_experts(const struct model *m, const struct weight *w) {
    for (int i = 0; i < m->expert_list_count; i++)
        if (w >= m->expert_lists[i] && w < m->expert_lists[i] + m->config.experts) return true;
    return false;
}

/* Rows of it are looked up, and it is no factor of a product. */
static bool is_table(const struct model *m, const struct binding *b) {
    return (b->weight == &m->embedding && !model_is_tied(m)) || b->weight == &m->layer_embedding;
}

/* Of what all experts have, a row's share. */
static uint64_t chosen_share(const struct model *m, uint64_t of_experts) {
    if (m->config.experts == 0) return 0;
    return of_experts / (uint64_t)m->config.experts * (uint64_t)m->config.experts_chosen;
}

static uint64_t weight_bytes(const struct model *m, const struct weight *w) {
    for (int i = 0; i < m->binding_count; i++)
        if (m->bindings[i].weight == w) return binding_bytes(m, &m->bindings[i]);
    return 0;
}

/* What joins the rows that are tapped, in the passes of the model that they are of. */
static bool is_of_taps(const struct model *m, const struct binding *b) {
    return m->config.drafter.is_there && !m->config.drafter.reads_keys && b->weight == &m->join;
}

/* The sum over what the passes of a model multiply by of the head that reads its rows. */
static uint64_t sum_of_taps(const struct model *head, uint64_t (*of)(const struct model *, const struct weight *)) {
    uint64_t sum = of(head, &head->join);
    for (int l = 0; head->config.drafter.block > 0 && l < head->config.layers; l++)
        sum += 2 * of(head, &head->layers[l].wk) + of(head, &head->layers[l].wv); /* build_context */
    return sum;
}

/* A row chooses some experts, and looks a few rows up in the embeddings. */
uint64_t model_step_bytes(const struct model *m) {
    uint64_t dense = 0, of_experts = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (is_table(m, b) || !b->weight || is_of_taps(m, b)) continue;
        *(is_of_experts(m, b->weight) ? &of_experts : &dense) += binding_bytes(m, b);
    }
    if (m->shares_head) dense += weight_bytes(m->of, model_is_tied(m->of) ? &m->of->embedding : &m->of->head);
    if (m->tapped_by) dense += sum_of_taps(m->tapped_by, weight_bytes);
    return dense + chosen_share(m, of_experts);
}

static uint64_t attention_flops(const struct model_config *c, int tokens) {
    uint64_t sum = 0;
    for (int l = 0; l < c->layers; l++) {
        const struct layer_config *layer = &c->layer[l];
        if (layer->is_recurrent || layer->has_no_mixer) continue;
        const int visible = layer->window > 0 && layer->window < tokens ? layer->window : tokens;
        sum += 4 * (uint64_t)c->heads * (uint64_t)layer->head_dim * (uint64_t)visible;
    }
    return sum;
}

static uint64_t product_flops(const struct weight *w) {
    return 2 * (uint64_t)w->rows * (uint64_t)w->cols;
}

static uint64_t weight_flops(const struct model *m, const struct weight *w) {
    (void)m;
    return product_flops(w);
}

uint64_t model_row_flops(const struct model *m, int tokens) {
    uint64_t dense = 0, of_experts = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        if (is_table(m, b) || !b->weight || b->rows == 1 || is_of_taps(m, b)) continue;
        *(is_of_experts(m, b->weight) ? &of_experts : &dense) += 2 * (uint64_t)binding_elements(b);
    }
    if (m->shares_head) dense += product_flops(&m->head);
    if (m->tapped_by) dense += sum_of_taps(m->tapped_by, weight_flops);
    return dense + chosen_share(m, of_experts) + attention_flops(&m->config, tokens);
}

uint64_t model_kv_bytes_per_token(const struct model *m) {
    return cache_bytes_per_token(&m->cache);
}

/* --- memory ----------------------------------------------------------------------------------------------- */

static int cut(struct model *m, struct pool *pool, enum pool_use use, const char *what, size_t bytes, void *out) {
    char name[POOL_NAME_MAX];
    void *at;
    snprintf(name, sizeof name, "%s %s", m->name, what);
    TRY(pool_slice(pool, use, name, bytes, &at));
    memcpy(out, &at, sizeof at);
    return 0;
}

/* One table, and another behind it for long sequences where the type asks for it. */
static size_t rope_floats(const struct model *m, const struct rope_config *r) {
    return (size_t)m->limits.rope_positions * (size_t)r->head_dim * (rope_has_long(r) || r->query_beta != 0 ? 2 : 1);
}

static int cut_ropes(struct model *m, struct pool *pool) {
    static const char *const names[ROPES_MAX] = {"rope table", "rope table of sliding layers"};
    bool has_choice = false;
    for (int i = 0; i < m->config.ropes; i++) {
        TRY(cut(m, pool, POOL_SCRATCH, names[i], rope_floats(m, &m->config.rope[i]) * sizeof(float), &m->rope[i]));
        has_choice = has_choice || rope_has_long(&m->config.rope[i]);
    }
    return has_choice
               ? cut(m, pool, POOL_SCRATCH, "rope choice", (size_t)m->limits.slots * sizeof(int32_t), &m->rope_choice)
               : 0;
}

/* Prefill unpacks some rows of a packed matrix at a time (model/packed.h): all of it up to 128 MiB, as a product of few rows leaves most of
 * a GPU without work. Embeddings and the head are not unpacked. */
static int cut_room(struct model *m, struct pool *pool) {
    enum { MOST = 64 << 20 };
    int64_t numbers = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        const bool is_of_vocabulary =
            b->weight == &m->head || b->weight == &m->embedding || b->weight == &m->layer_embedding;
        const int64_t all = b->rows * b->cols, room = all < MOST ? all : b->cols > MOST ? b->cols : MOST;
        if (b->is_packed && !is_of_vocabulary && room > numbers) numbers = room;
    }
    TRY(cut(m, pool, POOL_SCRATCH, "unpacked weights", (size_t)numbers * sizeof(uint16_t), &m->room));
    for (int i = 0; i < m->binding_count; i++)
        m->bindings[i].packed.room = m->room, m->bindings[i].packed.room_numbers = numbers;
    return 0;
}

int model_layout(struct model *m, const struct model_limits *limits, struct pool *pool) {
    static const char *const names[SCRATCHES] = {
        [SCRATCH_RESIDUAL] = "residual",
        [SCRATCH_NORMED] = "normed",
        [SCRATCH_QUERIES] = "queries",
        [SCRATCH_ATTENDED] = "attended",
        [SCRATCH_PARTS] = "attention parts",
        [SCRATCH_KV_ROWS] = "KV rows",
        [SCRATCH_GATED] = "gate and up",
        [SCRATCH_MLP] = "MLP",
        [SCRATCH_SHARED_MLP] = "MLP beside experts",
        [SCRATCH_SHARED_GATE] = "gate of the MLP beside experts",
        [SCRATCH_GATED_QUERIES] = "queries and their gates",
        [SCRATCH_RECURRENT] = "recurrent inputs",
        [SCRATCH_STEPS] = "recurrent steps",
        [SCRATCH_JOINED] = "embeddings and hidden rows",
        [SCRATCH_TAPPED] = "rows before some layers",
        [SCRATCH_TAPPED_JOINED] = "rows before some layers, joined",
        [SCRATCH_OUTPUT] = "sublayer output",
        [SCRATCH_DENSE_OUTPUT] = "dense output",
        [SCRATCH_ROUTER] = "router",
        [SCRATCH_CHOSEN] = "chosen experts",
        [SCRATCH_LISTS] = "expert lists",
        [SCRATCH_EXPERTS] = "expert outputs",
        [SCRATCH_LAYER_INPUTS] = "layer inputs",
        [SCRATCH_LAYER_INPUTS_PROJECTED] = "layer inputs projected",
    };
    m->limits = *limits;
    const char *weights = m->packs_quantised    ? "packed weights"
                          : !m->is_quantised    ? "weights"
                          : !m->keeps_quantised ? "dequantised weights"
                          : m->makes_quantised  ? "quantised weights"
                                                : "repacked weights";
    TRY(cut(m, pool, POOL_WEIGHTS, weights, model_device_bytes(m) - model_cut_head_bytes(m), &m->weights));
    TRY(cut(m, pool, POOL_WEIGHTS, "cut head", model_cut_head_bytes(m), &m->cut_head));
    TRY(cache_layout(&m->cache, &(struct cache_sizes){limits->pages, limits->slots, limits->kept_rows}, pool));
    TRY(cut_ropes(m, pool));
    TRY(cut_room(m, pool));
    for (int i = 0; i < SCRATCHES; i++) {
        size_t rows = (size_t)(i == SCRATCH_PARTS ? limits->graph_rows : limits->max_rows);
        if (rows < SCRATCH_ROWS) rows = SCRATCH_ROWS;
        TRY(cut(m, pool, POOL_SCRATCH, names[i], rows * m->scratch_per_row[i] * sizeof(float), &m->scratch[i]));
    }
    return 0;
}

/* --- contents --------------------------------------------------------------------------------------------- */

struct touching {
    const unsigned char *from;
    size_t bytes;
};

/* The host device reads weights in the mapped file; reading a byte of every page brings it in with progress shown. */
static void touch_part(const void *context, int part, int parts) {
    enum { PAGE = 4096 };
    const struct touching *t = context;
    const struct range mine = parallel_range((int)((t->bytes + PAGE - 1) / PAGE), part, parts);
    volatile unsigned char sink = 0;
    for (int page = mine.first; page < mine.end; page++) sink = (unsigned char)(sink + t->from[(size_t)page * PAGE]);
}

static void touch_weights(const struct model *m, const struct progress *progress) {
    enum { PIECE = 32 << 20 };
    char what[32];
    snprintf(what, sizeof what, "loading %s", m->name);
    const uint64_t total = model_mapped_bytes(m);
    uint64_t done = 0;
    for (int i = 0; i < m->binding_count; i++) {
        const struct binding *b = &m->bindings[i];
        const size_t n = mapped_bytes(m, b);
        const unsigned char *bytes = n > 0 ? b->weight->data : NULL;
        for (size_t at = 0; at < n; at += PIECE) {
            const struct touching piece = {bytes + at, n - at < PIECE ? n - at : PIECE};
            mapping_read_ahead(piece.from, n - at < 2 * (size_t)PIECE ? n - at : 2 * (size_t)PIECE);
            parallel_run(device_threads(m->device), (int64_t)piece.bytes, touch_part, &piece);
            done += piece.bytes;
            progress_report(progress, what, (int64_t)done, (int64_t)total);
        }
    }
}

static int upload_rope(struct model *m, struct stream *stream, int index) {
    const struct rope_config *r = &m->config.rope[index];
    const int positions = m->limits.rope_positions;
    size_t floats = rope_floats(m, r), each = (size_t)positions * (size_t)r->head_dim;
    float *table = malloc(floats * sizeof *table);
    if (!table)
        return err_set(ERR_MEMORY, "%s: out of memory for a rope table of %zu numbers", checkpoint_name(m->checkpoint),
                       floats);
    model_config_rope(r, positions, 0, table);
    if (rope_has_long(r)) model_config_rope(r, positions, positions, table + each);
    if (r->query_beta != 0) model_config_query_rope(r, positions, table + each);
    int rc = stream_copy(stream, m->rope[index], table, floats * sizeof *table);
    if (rc == 0) rc = stream_sync(stream);
    free(table);
    return rc;
}

int model_upload(struct model *m, struct stream *stream, const struct progress *progress) {
    if (m->is_mapped) touch_weights(m, progress);
    for (int i = 0; m->is_mapped && i < m->binding_count; i++)
        TRY(model_check_blocks(m, &m->bindings[i], 0, binding_elements(&m->bindings[i])));
    TRY(model_upload_weights(m, stream, progress));
    for (int i = 0; i < m->config.ropes; i++) TRY(upload_rope(m, stream, i));
    if (m->of) model_share_ends(m);
    model_build_passes(m);
    if (m->of && m->of->tapped_by == m) model_build_passes(m->of); /* which have its matrix */
    return 0;
}

/* --- sequences and passes --------------------------------------------------------------------------------- */

int model_open_sequence(struct model *m, struct stream *stream, int slot, int length) {
    bool is_long = false;
    for (int i = 0; i < m->config.ropes; i++) is_long = is_long || rope_is_long(&m->config.rope[i], length);
    return m->rope_choice ? stream_fill(stream, m->rope_choice + slot, is_long, sizeof *m->rope_choice) : 0;
}

int model_forward(struct model *m, struct stream *s, const struct rows *rows, enum logits_rows which, float *logits) {
    const struct pass *pass = &m->passes[which];
    int rows_max = rows->prefill ? m->limits.max_rows : m->limits.graph_rows;
    if (rows_count(rows) > rows_max)
        return err_set(ERR_INTERNAL, "%s: a pass of %d rows, planned for %d", m->name, rows_count(rows), rows_max);
    if (which != LOGITS_NONE) pass->ops[pass->count - 1].logits.logits = logits;
    return pass_run(pass, m->ops, s, rows, NULL);
}

int model_add_graphs(const struct model *m, struct graph_set *set, int kind, int max_batch, int q_len) {
    TRY(graph_set_add(set, kind, q_len));
    for (int batch = 1; m->ops->kernel_class && batch < max_batch; batch++)
        if (batch == 1 || m->ops->kernel_class(batch * q_len) != m->ops->kernel_class((batch - 1) * q_len))
            TRY(graph_set_warm_up(set, (struct graph_key){kind, batch, q_len}));
    return 0;
}
