/* Opening the pair: device, models, vocabularies, and how much context fits. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "engine/internal.h"

enum { CONTEXT_DEFAULT = 8192, BATCH_MAX = 256 };

static int check_options(struct engine *e) {
    const struct engine_options *o = &e->options;
    e->k = o->draft ? o->k : 0;
    e->k_max = o->draft ? (o->k_max > o->k ? o->k_max : o->k) : 0;
    e->max_batch = o->max_batch > 0 ? o->max_batch : 1;
    if (!o->target) return err_set(ERR_USAGE, "no target model");
    if (o->k < 0 || e->k_max > K_MAX) return err_set(ERR_USAGE, "k must lie in 0..%d", K_MAX);
    if (e->max_batch > BATCH_MAX)
        return err_set(ERR_USAGE, "batch is %d, it must lie in 1..%d", e->max_batch, BATCH_MAX);
    return 0;
}

/* --- vocabularies ----------------------------------------------------------------------------------------- */

static int load_tokenizer(struct tokenizer **out, const char *dir) {
    char path[4096];
    *out = NULL;
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    return access(path, F_OK) == 0 ? tokenizer_load(out, dir) : 0;
}

/* Ids of a model: its own map, or without one the rows of its embedding. */
static int map_size(const struct tokenizer *t, const struct model *m, const char *dir, int *out) {
    int rows = model_get_config(m)->vocab;
    *out = t ? tokenizer_size(t) : rows;
    if (*out > rows)
        return err_set(ERR_FORMAT, "%s: tokenizer.json has ids up to %d, the embedding only %d rows", dir, *out - 1,
                       rows);
    return 0;
}

static int compare_vocabularies(struct engine *e, const struct tokenizer *draft_tokenizer) {
    int draft_size, common;
    TRY(map_size(draft_tokenizer, e->draft_model, e->options.draft, &draft_size));
    common = draft_size < e->vocab ? draft_size : e->vocab;
    if (e->tokenizer && draft_tokenizer) {
        int rc = tokenizer_compare(e->tokenizer, draft_tokenizer, &common);
        if (rc != 0) return err_prefix(rc, "%s and %s", e->options.target, e->options.draft);
    }
    e->vocab_draft = common;
    return 0;
}

static int open_vocabularies(struct engine *e) {
    struct tokenizer *draft_tokenizer;
    TRY(load_tokenizer(&e->tokenizer, e->options.target));
    TRY(map_size(e->tokenizer, e->target_model, e->options.target, &e->vocab));
    if (!e->draft_model) return 0;
    TRY(load_tokenizer(&draft_tokenizer, e->options.draft));
    int rc = compare_vocabularies(e, draft_tokenizer);
    tokenizer_free(draft_tokenizer);
    return rc;
}

/* --- context ---------------------------------------------------------------------------------------------- */

static void set_context(struct engine *e, int context) {
    e->context = context;
    e->pages_per_slot = kv_pages_for((int64_t)context + e->k_max + 1, KV_PAGE);
    e->pages = 1 + e->max_batch * e->pages_per_slot;
}

static void set_buffers(struct engine *e) {
    const struct model_config *target = model_get_config(e->target_model);
    e->buffers = (struct sampler_buffers){
        .slots = e->max_batch + 1,
        .max_batch = e->max_batch,
        .k_max = e->k_max,
        .vocab_target = e->vocab,
        .target_stride = target->vocab,
        .end_count = target->end_count,
        .simulate_alpha = e->options.simulate_alpha,
    };
    if (!e->draft_model) return;
    const struct model_config *draft = model_get_config(e->draft_model);
    e->buffers.vocab_draft = e->vocab_draft;
    e->buffers.draft_stride = draft->vocab;
    e->buffers.draft_positions = draft->positions;
}

struct parts {
    uint64_t weights, cache, all;
};

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static int plan_parts(struct engine *e, struct parts *parts) {
    struct pool *plan;
    TRY(pool_create_plan(&plan));
    int rc = engine_layout(e, plan);
    *parts = (struct parts){.all = pool_used(plan)};
    for (int i = 0; i < pool_slice_count(plan); i++) {
        struct pool_slice_info slice = pool_slice_at(plan, i);
        if (ends_with(slice.name, " weights")) parts->weights += slice.bytes;
        if (ends_with(slice.name, " keys") || ends_with(slice.name, " values")) parts->cache += slice.bytes;
    }
    pool_destroy(plan);
    return rc;
}

static int refuse_plan(const struct engine *e, const struct parts *parts, uint64_t free_bytes) {
    const char *shrink = parts->weights > free_bytes / 10 * 9 ? "take a smaller model"
                         : e->draft_model                     ? "lower --ctx, --batch or --k-max"
                                                              : "lower --ctx or --batch";
    return err_set(
        ERR_MEMORY,
        "a context of %d tokens at batch %d needs %.1f GB (%.1f weights, %.1f keys and values, %.1f buffers), "
        "%.1f GB are free: %s",
        e->context, e->max_batch, (double)parts->all / 1e9, (double)parts->weights / 1e9, (double)parts->cache / 1e9,
        (double)(parts->all - parts->weights - parts->cache) / 1e9, (double)free_bytes / 1e9, shrink);
}

/* The largest context up to `wanted` whose plan fits in nine tenths of what is free; ERR_MEMORY if even one page does not. */
static int fit_context(struct engine *e, int wanted, bool may_shrink) {
    uint64_t free_bytes, total_bytes;
    struct parts parts;
    TRY(device_memory(e->device, &free_bytes, &total_bytes));
    for (set_context(e, wanted);; set_context(e, e->context / 2)) {
        TRY(plan_parts(e, &parts));
        if (parts.all <= free_bytes / 10 * 9) break;
        if (!may_shrink || e->context <= KV_PAGE) return refuse_plan(e, &parts, free_bytes);
    }
    return 0;
}

static int decide_context(struct engine *e) {
    int limit = model_get_config(e->target_model)->positions, asked = e->options.context;
    if (asked < 0 || asked > limit)
        return err_set(ERR_USAGE, "a context of %d tokens: %s has positions for %d", asked, e->options.target, limit);
    if (asked > 0) return fit_context(e, asked, false);
    int positions = limit;
    if (e->draft_model && model_get_config(e->draft_model)->positions < limit)
        limit = model_get_config(e->draft_model)->positions;
    TRY(fit_context(e, limit < CONTEXT_DEFAULT ? limit : CONTEXT_DEFAULT, true));
    e->context_capped = e->context < positions;
    return 0;
}

int engine_open_models(struct engine *e) {
    TRY(check_options(e));
    TRY(device_open(&e->device, e->options.device ? e->options.device : "auto",
                    &(struct device_options){.threads = e->options.threads}));
    int (*open)(struct model **, const char *, const char *, struct device *) =
        e->options.random_weights ? model_open_random : model_open;
    TRY(open(&e->target_model, e->options.target, "target", e->device));
    if (e->k_max > 0) TRY(open(&e->draft_model, e->options.draft, "draft", e->device));
    TRY(open_vocabularies(e));
    set_buffers(e);
    e->pipeline = e->options.pipeline ? e->options.pipeline : device_is_async(e->device) ? 2 : 1;
    if (e->pipeline < 1 || e->pipeline > ROUNDS_IN_FLIGHT_MAX)
        return err_set(ERR_USAGE, "pipeline is %d, it must lie in 1..%d", e->pipeline, ROUNDS_IN_FLIGHT_MAX);
    return decide_context(e);
}
