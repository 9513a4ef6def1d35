/* Construction: models, the plan, the one pool, the graphs, the seal. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/internal.h"

/* --- the plan --------------------------------------------------------------------------------------------- */

int engine_layout(struct engine *e, struct pool *pool) {
    int block = e->max_batch * (e->k_max + 1 > 2 ? e->k_max + 1 : 2), chunk = prefill_chunk(e->device);
    struct model_limits limits = {
        .max_rows = block > chunk ? block : chunk,
        .graph_rows = block,
        .pages = e->pages,
        .slots = e->max_batch + 1,
        .kept_rows = recurrence_kept_rows(e->k_max),
        .rope_positions = e->context + e->k_max + 1,
    };
    TRY(model_layout(e->target_model, &limits, pool));
    TRY(proposer_layout(e->proposer, &limits, pool));
    TRY(prefill_layout(&e->prefill, e->device, pool));
    size_t table = (size_t)(e->max_batch + 1) * (size_t)e->pages_per_slot * sizeof(int32_t);
    void *slice;
    TRY(pool_slice(pool, POOL_SCRATCH, "page table", table, &slice));
    e->page_table = slice;
    TRY(round_layout(&e->state, pool));
    TRY(sampler_layout(&e->sampler, e->device, &e->state, pool));
    return verify_layout(&e->verify, e->device, &e->state, pool);
}

static int allocate(struct engine *e) {
    struct pool *plan;
    TRY(pool_create_plan(&plan));
    int rc = engine_layout(e, plan);
    size_t bytes = pool_used(plan);
    pool_destroy(plan);
    if (rc != 0) return rc;
    TRY(pool_create(e->device, bytes, &e->pool));
    TRY(engine_layout(e, e->pool));
    e->prefill.page_table = e->page_table;
    e->prefill.pages_per_slot = e->pages_per_slot;
    const enum prefill_graphs replay = e->options.prefill_graphs;
    e->prefill.replays = e->options.graphs != GRAPHS_OFF &&
                         (replay == PREFILL_GRAPHS_AUTO ? device_is_async(e->device) : replay == PREFILL_GRAPHS_ON);
    e->world.round = &e->state, e->world.sampler = &e->sampler, e->world.prefill = &e->prefill;
    e->world.page_table = e->page_table, e->world.pages_per_slot = e->pages_per_slot;
    return kv_pages_create(&e->kv_pages, e->pages);
}

/* --- pinned memory: result ring and staging --------------------------------------------------------------- */

static size_t align16(size_t bytes) {
    return (bytes + 15) & ~(size_t)15;
}

static char *take(char **at, size_t bytes) {
    char *taken = *at;
    *at += align16(bytes);
    return taken;
}

static int create_staging(struct engine *e) {
    size_t rows = (size_t)e->max_batch, slots = rows + 1, rounds = sizeof e->rounds / sizeof *e->rounds;
    size_t record_bytes = rows * sizeof(struct round_record), map_bytes = rows * sizeof(int32_t),
           page_bytes = (size_t)e->pages_per_slot * sizeof(int32_t),
           seen_bytes = (size_t)e->state.seen_words * sizeof(uint32_t);
    size_t bytes = rounds * (align16(record_bytes) + align16(map_bytes)) +
                   slots * (align16(sizeof(struct slot)) + align16(page_bytes) + align16(seen_bytes));
    TRY(device_alloc_pinned(e->device, bytes, &e->pinned));
    e->staging = calloc(slots, sizeof *e->staging);
    e->slots = calloc(slots, sizeof *e->slots);
    e->behind = calloc(rows, sizeof *e->behind);
    if (!e->staging || !e->slots || !e->behind) return err_set(ERR_MEMORY, "out of memory for %zu slots", slots);
    char *at = e->pinned;
    for (size_t r = 0; r < rounds; r++) {
        e->rounds[r].records = (struct round_record *)take(&at, record_bytes);
        e->rounds[r].row_slot = (int32_t *)take(&at, map_bytes);
        TRY(event_create(e->device, &e->rounds[r].done));
        if (e->timing > 0) TRY(marks_create(&e->rounds[r].marks, e->device, 2 * e->k_max + 3));
        if (e->proposer) TRY(marks_create(&e->rounds[r].span.marks, e->device, 2));
    }
    for (size_t s = 0; s < slots; s++) {
        e->staging[s].slot = (struct slot *)take(&at, sizeof(struct slot));
        e->staging[s].page_row = (int32_t *)take(&at, page_bytes);
        e->staging[s].seen = (uint32_t *)take(&at, seen_bytes);
        TRY(event_create(e->device, &e->staging[s].sent));
    }
    return 0;
}

/* --- first contents, graphs, seal -------------------------------------------------------------------------- */

static int upload(struct engine *e) {
    const struct model_config *c = model_get_config(e->target_model);
    struct slot dummy = {.length = 1, .last = {-1, 0}, .limit = 1, .status = SLOT_IDLE};
    TRY(model_upload(e->target_model, e->stream, &e->options.progress));
    TRY(proposer_upload(e->proposer, e->stream, &e->options.progress));
    TRY(stream_copy(e->stream, e->state.slot, &dummy, sizeof dummy));
    TRY(prefill_clear(&e->prefill, e->stream));
    if (c->end_count > 0)
        TRY(stream_copy(e->stream, e->state.end_ids, c->end_ids, (size_t)c->end_count * sizeof *c->end_ids));
    return stream_sync(e->stream);
}

int engine_create_graphs(struct engine *e) {
    struct graph_set_options options = {
        .mode = e->options.graphs,
        .policy = e->options.buckets,
        .max_batch = e->max_batch,
        .pool = e->pool,
        .stream = e->stream,
        .progress = e->options.progress,
    };
    e->target = (struct target){.model = e->target_model,
                                .round = &e->state,
                                .prefill = &e->prefill,
                                .page_table = e->page_table,
                                .pages_per_slot = e->pages_per_slot};
    TRY(target_create_graphs(&e->target, &options, e->k_max));
    TRY(graph_set_capture(e->target.graphs));
    return proposer_create_graphs(e->proposer, &options);
}

/* The kernels between graphs may differ by rows and by K. */
static int warm_up_rounds(struct engine *e) {
    int ks[] = {0, 1, e->k_max};
    e->state.penalises = e->gives_logprobs = true;
    for (int batch = 1; batch < 2 * e->max_batch; batch *= 2) {
        int rows = batch < e->max_batch ? batch : e->max_batch;
        TRY(proposer_warm_up(e->proposer, e->stream, rows));
        for (int i = 0; i < (e->k_max > 0 ? 3 : 1); i++) TRY(engine_accept(e, rows, ks[i]));
    }
    e->state.penalises = e->gives_logprobs = false;
    return 0;
}

/* Kernels load at their first launch, which allocates and waits: everything that a run can launch and no graph set has
 * warmed up runs once, for the dummy sequence. Prefill's kernels differ by its padded rows. */
static int warm_up(struct engine *e) {
    static const int32_t tokens[PREFILL_CHUNK_MAX + 1];
    if (!device_is_async(e->device)) return 0;
    int chunk = prefill_chunk(e->device), longest = e->context < chunk ? e->context : chunk;
    for (int last = 0; last < longest;) {
        const int rows = prefill_padded(last + 1);
        last = rows < longest ? rows : longest;
        struct proposer_turn turn = {.slot = 0, .tokens = tokens, .length = last + 1};
        int first = 0;
        TRY(model_prefill_chunk(e->target_model, e->stream, &e->prefill, 0, tokens, &first, last));
        TRY(proposer_begin(e->proposer, e->stream, &turn));
        TRY(proposer_ingest(e->proposer, e->stream, &(struct proposer_row){0, tokens, turn.length, last}, 1));
    }
    return warm_up_rounds(e);
}

void engine_mark_start(struct engine *e, enum start_part part) {
    struct start_times *times = &e->start_times;
    const int64_t now_us = clock_us();
    times->us[part] += now_us - times->last_us;
    times->last_us = now_us;
}

static int start(struct engine *e) {
    e->start_times.last_us = clock_us();
    TRY(engine_open_models(e));
    TRY(engine_decide_context(e));
    TRY(prefill_create(&e->prefill, e->device));
    TRY(allocate(e));
    TRY(create_staging(e));
    TRY(stream_create(e->device, &e->stream));
    TRY(stream_set_workspace(e->stream, e->prefill.workspace, e->prefill.workspace_bytes));
    engine_mark_start(e, START_MEMORY);
    TRY(upload(e));
    engine_mark_start(e, START_WEIGHTS);
    TRY(engine_create_graphs(e));
    engine_mark_start(e, START_GRAPHS);
    TRY(warm_up(e));
    pool_seal(e->pool);
    TRY(stream_sync(e->stream));
    engine_mark_start(e, START_WARM_UP);
    if (e->proposer) TRY(auto_k_create(&e->auto_k, e->max_batch, e->k_max));
    if (e->chooses_k) TRY(auto_measure(e, false));
    engine_mark_start(e, START_ROUND_TIMES);
    return 0;
}

static int create_empty(struct engine **out, const struct engine_options *options) {
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return err_set(ERR_MEMORY, "out of memory for the engine");
    e->options = *options;
    *out = e;
    return 0;
}

int engine_create(struct engine **out, const struct engine_options *options) {
    struct engine *e = NULL;
    *out = NULL;
    if (options->gpu_bytes > 0) return err_set(ERR_USAGE, "a GPU that is planned for runs nothing");
    TRY(create_empty(&e, options));
    int rc = start(e);
    if (rc != 0) {
        engine_destroy(e);
        return rc;
    }
    *out = e;
    return 0;
}

void engine_suspend(struct engine *e) {
    device_suspend(e->device);
}

int engine_resume(struct engine *e) {
    return device_resume(e->device);
}

static void destroy_staging(struct engine *e) {
    for (size_t r = 0; r < sizeof e->rounds / sizeof *e->rounds; r++) {
        event_destroy(e->rounds[r].done);
        marks_destroy(&e->rounds[r].marks);
        marks_destroy(&e->rounds[r].span.marks);
    }
    for (int s = 0; e->staging && s <= e->max_batch; s++) event_destroy(e->staging[s].sent);
    if (e->pinned) device_free_pinned(e->device, e->pinned);
    free(e->staging);
}

void engine_destroy(struct engine *e) {
    if (!e) return;
    while (e->open) engine_close(e, e->open);
    if (e->stream) stream_sync(e->stream);
    auto_k_destroy(&e->auto_k);
    proposer_close(e->proposer);
    graph_set_destroy(e->target.graphs);
    destroy_staging(e);
    if (e->device) prefill_destroy(&e->prefill, e->device);
    stream_destroy(e->stream);
    free(e->slots);
    free(e->behind);
    kv_pages_destroy(e->kv_pages);
    model_close(e->target_model);
    pool_destroy(e->pool);
    tokenizer_free(e->tokenizer);
    device_close(e->device);
    free(e);
}

int engine_plan(struct memory_plan *out, const struct engine_options *options) {
    struct engine *e = NULL;
    struct pool *plan = NULL;
    memset(out, 0, sizeof *out);
    TRY(create_empty(&e, options));
    int rc = engine_open_models(e);
    if (rc == 0) rc = engine_decide_context(e);
    if (rc != 0 && e->does_not_fit) {
        snprintf(out->refusal, sizeof out->refusal, "%s", err_message());
        rc = 0;
    }
    if (rc == 0) rc = pool_create_plan(&plan);
    if (rc == 0) rc = engine_layout(e, plan);
    if (rc == 0) {
        out->count = pool_slice_count(plan);
        out->slices = calloc((size_t)out->count, sizeof *out->slices);
        if (!out->slices) rc = err_set(ERR_MEMORY, "out of memory for the plan");
    }
    for (int i = 0; rc == 0 && i < out->count; i++) out->slices[i] = pool_slice_at(plan, i);
    if (rc == 0) {
        out->total_bytes = pool_used(plan);
        out->mapped_bytes = model_mapped_bytes(e->target_model);
        if (engine_draft(e)) out->mapped_bytes += model_mapped_bytes(engine_draft(e));
        out->context = e->context, out->pages = e->pages;
        out->bound = e->bound, out->larger_bytes = e->larger_bytes;
        out->positions = model_get_config(e->target_model)->positions;
        if (e->proposer && e->proposer->positions < out->positions) out->positions = e->proposer->positions;
        snprintf(out->device, sizeof out->device, "%s", device_name(e->device));
        rc = device_memory(e->device, &out->free_bytes, &(uint64_t){0});
        out->allowed_bytes = engine_allowed_bytes(out->free_bytes);
    }
    pool_destroy(plan);
    engine_destroy(e);
    return rc;
}

void memory_plan_free(struct memory_plan *plan) {
    free(plan->slices);
    memset(plan, 0, sizeof *plan);
}

/* --- facts ------------------------------------------------------------------------------------------------ */

int64_t engine_own_head(struct engine *e) {
    return model_own_head(e->target_model);
}

struct engine_info engine_info(const struct engine *e) {
    int target_stored = 0, draft_stored = 0;
    const int target_products = model_products(e->target_model, &target_stored),
              draft_products = engine_draft(e) ? model_products(engine_draft(e), &draft_stored) : 0;
    return (struct engine_info){
        .context = e->context,
        .context_capped = e->context_capped,
        .vocab = e->vocab,
        .target_parameters = model_parameters(e->target_model),
        .draft_parameters = engine_draft(e) ? model_parameters(engine_draft(e)) : 0,
        .draft_vocab = e->state.draft_is_cut ? e->state.vocab_draft : 0,
        .k = e->k,
        .k_max = e->k_max,
        .k_auto = e->chooses_k,
        .max_batch = e->max_batch,
        .accept = e->options.accept,
        .proposer = e->proposer ? e->proposer->ops->title : NULL,
        .pool_bytes = pool_size(e->pool),
        .device = device_name(e->device),
        .device_missing = device_missing(e->device),
        .is_async = device_is_async(e->device),
        .target_products = target_products,
        .target_products_stored = target_stored,
        .draft_products = draft_products,
        .draft_products_stored = draft_stored,
        .target_rounded = model_rounded(e->target_model),
        .draft_rounded = engine_draft(e) ? model_rounded(engine_draft(e)) : NULL,
    };
}

const struct model_config *engine_config(const struct engine *e) {
    return model_get_config(e->target_model);
}

const struct tokenizer *engine_tokenizer(const struct engine *e) {
    return e->tokenizer;
}

int engine_set_k(struct engine *e, int k) {
    if (k == K_AUTO && !e->proposer)
        return err_set(ERR_USAGE, "k is auto, but no draft is loaded (start with --k or --k-max above 0)");
    if (k > 0 && !e->proposer)
        return err_set(ERR_USAGE, "k is %d, but no draft is loaded (start with --k or --k-max above 0)", k);
    if (k == K_AUTO) {
        TRY(auto_measure(e, false));
        e->chooses_k = true;
        return 0;
    }
    if (k < 0 || k > e->k_max) return err_set(ERR_USAGE, "k is %d, it must lie in 0..%d (--k-max)", k, e->k_max);
    e->chooses_k = false;
    e->k = k;
    return 0;
}

int engine_set_accept(struct engine *e, enum accept_rule rule) {
    struct engine_load load = engine_load(e);
    if (load.queued + load.ingesting + load.decoding > 0) return err_set(ERR_USAGE, "an answer is still running");
    e->options.accept = rule;
    e->state.rule = rule;
    return 0;
}

const struct acceptance *engine_stats(const struct engine *e) {
    return &e->stats;
}

struct engine_counts engine_counts(const struct engine *e) {
    struct engine_counts counts = {
        .rounds = e->enqueued,
        .collected = e->collected,
        .stream = stream_counts(e->stream),
        .target = graph_set_counts(e->target.graphs),
        .graph_launches = e->graph_launches,
        .kernel_launches = e->kernel_launches,
        .host_us = e->host_us,
        .wait_us = e->wait_us,
        .times = e->times,
        .device_allocations = device_allocations(e->device),
    };
    memcpy(counts.rounds_by_k, e->rounds_by_k, sizeof counts.rounds_by_k);
    if (engine_graphs(e, 0)) counts.draft = graph_set_counts(engine_graphs(e, 0));
    return counts;
}

int engine_measure(struct engine *e) {
    return e->proposer ? auto_measure(e, true)
                       : err_set(ERR_USAGE, "no draft is loaded, whose rounds could be measured");
}

double engine_round_ms(const struct engine *e, int rows, int k) {
    if (!e->has_measured || rows < 1 || rows > e->max_batch || k < 0 || k > e->k_max) return NAN;
    return auto_k_ms(&e->auto_k, graph_set_bucket(e->target.graphs, rows), k);
}

void engine_launches(const struct engine *e, int k, int *graph_launches, int *kernel_launches) {
    proposer_launches(e->proposer, k, graph_launches, kernel_launches);
    *graph_launches += 1; /* the target's */
    *kernel_launches += verify_launches(e->device, &e->state, k);
}

const struct graph_set *engine_graphs(const struct engine *e, int which) {
    if (which == 0) return e->proposer ? e->proposer->graphs : NULL;
    return e->target.graphs;
}
