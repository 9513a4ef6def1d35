#include "engine/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/internal.h"
#include "model/format.h"

static struct model *model_of(const struct engine *e, enum probe_model which) {
    return which == PROBE_DRAFT ? engine_draft(e) : e->target_model;
}

const struct model_config *probe_config(const struct engine *e, enum probe_model which) {
    return model_get_config(model_of(e, which));
}

const struct start_times *probe_start_times(const struct engine *e) {
    return &e->start_times;
}

int probe_threads(const struct engine *e) {
    return device_threads(e->device);
}

int probe_sync(struct engine *e) {
    return stream_sync(e->stream);
}

/* --- caches ------------------------------------------------------------------------------------------------ */

/* A vector of a key/value head's part of a page, dequantised. */
static void read_vector(const char *part, enum dtype type, int offset, int dim, float *out) {
    const float scale = type == DTYPE_FP8 ? format_widen(part + KV_PAGE * dim, DTYPE_E8M0, offset) : 1;
    for (int i = 0; i < dim; i++) out[i] = format_widen(part, type, (int64_t)offset * dim + i) * scale;
}

/* Keys or values of `positions` positions, which lie in pages (model/kv_pages.h), as [positions, HKV, DH]. */
static int read_cache(struct engine *e, const struct layer_config *c, const void *cache, enum dtype type,
                      const struct sequence *s, int positions, float *out) {
    const size_t bytes = kv_part_start(type, 1, c->kv_heads, 0, c->head_dim);
    char *raw = malloc(bytes);
    if (!raw) return err_set(ERR_MEMORY, "out of memory for a page");
    int rc = 0;
    for (int p = 0; p < positions && rc == 0; p++) {
        const int offset = p % KV_PAGE;
        const char *page = (const char *)cache + (size_t)s->pages[p / KV_PAGE] * bytes;
        if (offset == 0) rc = stream_copy(e->stream, raw, page, bytes);
        if (offset == 0 && rc == 0) rc = stream_sync(e->stream);
        for (int h = 0; h < c->kv_heads && rc == 0; h++)
            read_vector(raw + kv_part_start(type, 0, c->kv_heads, h, c->head_dim), type, offset, c->head_dim,
                        out + ((size_t)p * (size_t)c->kv_heads + (size_t)h) * (size_t)c->head_dim);
    }
    free(raw);
    return rc;
}

int probe_read_kv(struct engine *e, const struct sequence *s, enum probe_model which, int layer, int positions,
                  float *k, float *v) {
    const struct layer_config *c = &probe_config(e, which)->layer[layer];
    struct kv_layer kv = cache_layer(model_get_cache(model_of(e, which)), layer);
    TRY(read_cache(e, c, kv.k, kv.type, s, positions, k));
    return read_cache(e, c, kv.v, kv.type, s, positions, v);
}

static bool is_owned(const struct engine *e, int page) {
    for (int slot = 1; slot <= e->max_batch; slot++) {
        const struct sequence *s = e->slots[slot];
        for (int i = 0; s && i < s->page_count; i++)
            if (s->pages[i] == page) return true;
    }
    return false;
}

typedef int (*page_fn)(struct engine *e, char *page, size_t bytes, void *user);

/* Pages of so many bytes that lie one behind the other. */
struct visit {
    int first_page;
    page_fn page;
    void *user;
};
static int visit_pages(struct engine *e, const struct visit *v, char *pages, size_t bytes) {
    for (int p = v->first_page; p < e->pages && bytes > 0; p++)
        if (!is_owned(e, p)) TRY(v->page(e, pages + (size_t)p * bytes, bytes, v->user));
    return 0;
}

static int visit_free_pages(struct engine *e, int first_page, page_fn page, void *user) {
    struct model *models[] = {e->target_model, engine_draft(e)};
    const struct visit visit = {first_page, page, user};
    for (size_t i = 0; i < 2 && models[i]; i++) {
        const struct cache *cache = model_get_cache(models[i]);
        for (int l = 0; l < model_get_config(models[i])->layers; l++) {
            const size_t bytes = cache_page_bytes(cache, l);
            if (bytes == 0) continue; /* another layer's, or another model's */
            const struct kv_layer kv = cache_layer(cache, l);
            TRY(visit_pages(e, &visit, kv.k, bytes));
            TRY(visit_pages(e, &visit, kv.v, bytes));
        }
        TRY(visit_pages(e, &visit, cache_hidden(cache).data, cache_hidden_page_bytes(cache)));
    }
    return stream_sync(e->stream);
}

static int fill_page(struct engine *e, char *page, size_t bytes, void *user) {
    return stream_fill(e->stream, page, *(unsigned char *)user, bytes);
}

int probe_fill_free_pages(struct engine *e, unsigned char byte) {
    return visit_free_pages(e, 0, fill_page, &byte);
}

/* FNV-1a over 64-bit words. */
static int sum_page(struct engine *e, char *page, size_t bytes, void *user) {
    uint64_t *words = malloc(bytes), *sum = user;
    if (!words) return err_set(ERR_MEMORY, "out of memory for a page");
    int rc = stream_copy(e->stream, words, page, bytes);
    if (rc == 0) rc = stream_sync(e->stream);
    for (size_t i = 0; rc == 0 && i < bytes / sizeof *words; i++) *sum = (*sum ^ words[i]) * 0x100000001b3u;
    free(words);
    return rc;
}

int probe_free_pages_checksum(struct engine *e, uint64_t *out) {
    *out = 0xcbf29ce484222325u;
    return visit_free_pages(e, 1, sum_page, out);
}

int probe_free_page_count(const struct engine *e) {
    return kv_pages_free_count(e->kv_pages);
}

int probe_ingest(struct engine *e) {
    do TRY(scheduler_ingest(e));
    while (engine_load(e).ingesting > 0);
    return probe_sync(e);
}

int probe_set_timing(struct engine *e, int every) {
    if (every < 0 || (every > 0 && e->options.timing == 0))
        return err_set(ERR_USAGE, "timing is %d, but this engine has no events for it", every);
    e->timing = every;
    return 0;
}

int probe_set_buckets(struct engine *e, enum bucket_policy policy) {
    if (e->open) return err_set(ERR_USAGE, "graphs are captured while no sequence is open");
    TRY(stream_sync(e->stream));
    graph_set_destroy(e->target.graphs);
    e->target.graphs = NULL;
    if (e->proposer) graph_set_destroy(e->proposer->graphs), e->proposer->graphs = NULL;
    e->options.buckets = policy;
    e->rows_sent = NULL;
    TRY(stream_fill(e->stream, e->state.row_slot, 0, (size_t)e->max_batch * sizeof(int32_t)));
    TRY(prefill_clear(&e->prefill, e->stream));
    TRY(engine_create_graphs(e));
    return stream_sync(e->stream);
}

void probe_set_eager(struct engine *e, bool on) {
    graph_set_run_eagerly(e->target.graphs, on);
    if (e->proposer && e->proposer->graphs) graph_set_run_eagerly(e->proposer->graphs, on);
}

bool probe_set_early_starts(struct engine *e, bool on) {
    return device_set_early_starts(e->device, on);
}

int probe_free_bytes(const struct engine *e, uint64_t *bytes) {
    uint64_t all;
    return device_memory(e->device, bytes, &all);
}

void probe_set_round_times(struct engine *e, const float *ms) {
    auto_k_fix(&e->auto_k, ms);
}

void probe_set_row_invariant_prefill(struct engine *e, bool on) {
    e->prefill.row_invariant = on;
}

void probe_set_simulate_alpha(struct engine *e, float alpha) {
    e->state.simulate_alpha = alpha;
}

/* --- single launches --------------------------------------------------------------------------------------- */

int probe_launch(struct engine *e, enum probe_model which, struct graph_key key) {
    struct graph_set *draft = e->proposer ? e->proposer->graphs : NULL;
    struct graph_set *set = which == PROBE_DRAFT ? draft : e->target.graphs;
    return set ? graph_set_launch(set, key, e->stream) : err_set(ERR_USAGE, "no draft is loaded");
}

int probe_launch_draw(struct engine *e, int batch) {
    if (!engine_draft(e)) return err_set(ERR_USAGE, "no draft is loaded");
    return sampler_draw(e->stream,
                        &(struct sampler_draw){e->state, e->sampler, batch, (e->k > 0 ? e->k : e->k_max) - 1});
}

int probe_launch_propose(struct engine *e, int batch, int k) {
    return proposer_propose(e->proposer, e->stream, &(struct proposer_round){.batch = batch, .k = k, .rows = batch});
}

int probe_first_tokens(const struct engine *e, int k) {
    const int most = e->proposer ? e->proposer->first : 0, tokens = k > 0 ? k + 1 : 2;
    return tokens < most && !probe_drafts_blocks(e) ? tokens : most;
}

int probe_draft_passes(const struct engine *e, int k) {
    return probe_drafts_blocks(e) ? k > 0 : k;
}

bool probe_drafts_blocks(const struct engine *e) {
    return e->state.draft_block > 0;
}

int probe_launch_accept(struct engine *e, int batch, int k) {
    return engine_accept(e, batch, k);
}

uint64_t probe_step_bytes(const struct engine *e, enum probe_model which, int batch, int tokens) {
    const struct model *m = model_of(e, which);
    if (!m) return 0;
    return model_step_bytes(m) + (uint64_t)batch * (uint64_t)tokens * model_kv_bytes_per_token(m);
}

uint64_t probe_row_flops(const struct engine *e, enum probe_model which, int tokens) {
    const struct model *m = model_of(e, which);
    return m ? model_row_flops(m, tokens) : 0;
}

int probe_read_logits(struct engine *e, float *logits) {
    TRY(stream_copy(e->stream, logits, e->state.target_logits, (size_t)e->vocab * sizeof *logits));
    return stream_sync(e->stream);
}

int probe_read_drafts(struct engine *e, const struct sequence *s, int k, int32_t *drafted, float *logits) {
    const struct round_state *b = &e->state;
    TRY(stream_copy(e->stream, drafted, b->drafted + s->slot * b->k_max, (size_t)k * sizeof *drafted));
    if (logits)
        TRY(stream_copy(
            e->stream, logits,
            round_draft_logits(b, 0, b->draft_block > 0 && k >= b->draft_block ? b->draft_block - 2 : k - 1),
            (size_t)b->vocab_draft * sizeof *logits));
    return stream_sync(e->stream);
}
