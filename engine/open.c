/* Opening: device, target, proposer; and how much context fits. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "engine/internal.h"
#include "target/vocabulary.h"

enum { CONTEXT_DEFAULT = 8192, BATCH_MAX = 256 };

static int check_options(struct engine *e) {
    const struct engine_options *o = &e->options;
    bool proposes = o->draft || o->proposer;
    const int k_max = o->k == K_AUTO && o->k_max == 0 ? AUTO_K_MAX_DEFAULT : o->k_max;
    e->chooses_k = o->k == K_AUTO && proposes;
    e->k = proposes && o->k > 0 ? o->k : 0;
    e->k_max = proposes ? (k_max > o->k ? k_max : o->k) : 0;
    e->max_batch = o->max_batch > 0 ? o->max_batch : 1;
    e->timing = o->timing;
    if (!o->target) return err_set(ERR_USAGE, "no target model");
    if (o->k < K_AUTO || e->k_max > K_MAX) return err_set(ERR_USAGE, "k must lie in 0..%d", K_MAX);
    if (e->max_batch > BATCH_MAX)
        return err_set(ERR_USAGE, "batch is %d, it must lie in 1..%d", e->max_batch, BATCH_MAX);
    if (e->timing < 0) return err_set(ERR_USAGE, "timing is %d, at least 0 is needed", e->timing);
    return 0;
}

/* --- context ---------------------------------------------------------------------------------------------- */

static void set_context(struct engine *e, int context) {
    e->context = context;
    e->pages_per_slot = kv_pages_for((int64_t)context + e->k_max + 1, KV_PAGE);
    e->pages = 1 + e->max_batch * e->pages_per_slot;
}

static void set_state(struct engine *e) {
    const struct model_config *target = model_get_config(e->target_model);
    e->state = (struct round_state){
        .slots = e->max_batch + 1,
        .max_batch = e->max_batch,
        .k_max = e->k_max,
        .vocab_target = e->vocab,
        .target_stride = target->vocab,
        .end_count = target->end_count,
        .simulate_alpha = e->options.simulate_alpha,
        .rule = e->options.accept,
    };
    if (!e->proposer) return;
    e->state.vocab_draft = e->proposer->vocab;
    e->state.vocab_input = e->proposer->inputs;
    e->state.draft_is_cut = e->proposer->ids.len > 0;
    e->state.draft_stride = e->proposer->stride;
    e->state.draft_positions = e->proposer->positions;
    e->state.draft_first = e->proposer->first, e->state.draft_shift = e->proposer->shift;
    e->state.draft_stays = e->proposer->stays;
    e->state.draft_block = e->proposer->block, e->state.draft_mask = e->proposer->mask;
}

/* Bytes of a plan, by use. */
struct parts {
    uint64_t use[POOL_USES], target_weights, all;
};

static int plan_parts(struct engine *e, struct parts *parts) {
    struct pool *plan;
    *parts = (struct parts){0};
    TRY(pool_create_plan(&plan));
    int rc = engine_layout(e, plan);
    for (int i = 0; i < pool_slice_count(plan); i++) {
        struct pool_slice_info slice = pool_slice_at(plan, i);
        parts->use[slice.use] += slice.bytes;
    }
    parts->all = pool_used(plan);
    parts->target_weights = model_device_bytes(e->target_model);
    pool_destroy(plan);
    return rc;
}

static void add_shrinking_options(const struct engine *e, const struct parts *parts, struct buf *out) {
    const char *options[3];
    int count = 0;
    bool logits_first = parts->use[POOL_LOGITS] > parts->use[POOL_CACHE];
    if (logits_first && e->k_max > 0) options[count++] = "--k-max";
    if (!logits_first && e->context > KV_PAGE) options[count++] = "--ctx";
    if (e->max_batch > 1) options[count++] = "--batch";
    if (!logits_first && e->k_max > 0) options[count++] = "--k-max";
    if (logits_first && e->context > KV_PAGE) options[count++] = "--ctx";
    for (int i = 0; i < count; i++)
        buf_printf(out, "%s%s", i == 0 ? "lower " : i + 1 < count ? ", " : " or ", options[i]);
    buf_printf(out, "%stake a smaller %s", count > 0 ? ", or " : "", engine_draft(e) ? "draft" : "target");
}

uint64_t engine_allowed_bytes(uint64_t free_bytes) {
    return free_bytes / 10 * 9;
}

/* The sentence of a plan that does not fit: what each part needs, and what would shrink it. */
static int refuse_plan(const struct engine *e, const struct parts *parts, uint64_t free_bytes) {
    const struct {
        const char *name;
        uint64_t bytes;
    } named[] = {
        {"target weights", parts->target_weights}, {"draft weights", parts->use[POOL_WEIGHTS] - parts->target_weights},
        {"KV pages", parts->use[POOL_CACHE]},      {"logits and probabilities", parts->use[POOL_LOGITS]},
        {"scratch", parts->use[POOL_SCRATCH]},
    };
    uint64_t allowed = engine_allowed_bytes(free_bytes);
    bool small = parts->all >> 30 < 10;
    double unit = small ? 0x1p20 : 0x1p30;
    int decimals = small ? 0 : 1;
    struct buf text = {0};
    buf_printf(&text, "a context of %d tokens at batch %d", e->context, e->max_batch);
    if (e->proposer) buf_printf(&text, " and k-max %d", e->k_max);
    buf_printf(&text, " needs %.*f %s (", decimals, (double)parts->all / unit, small ? "MiB" : "GiB");
    for (size_t i = 0, written = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].bytes > 0)
            buf_printf(&text, "%s%s %.*f", written++ ? ", " : "", named[i].name, decimals,
                       (double)named[i].bytes / unit);
    buf_printf(&text, "), %.*f of %.*f free may be taken: ", decimals, (double)allowed / unit, decimals,
               (double)free_bytes / unit);
    if (parts->target_weights > allowed)
        buf_puts(&text, "take a smaller target");
    else if (parts->use[POOL_WEIGHTS] > allowed)
        buf_puts(&text, e->options.draft
                            ? "take a smaller draft, or none (--k 0)"
                            : "cut or quantise the head that drafts (--draft-vocab, --draft-weights), or take "
                              "none (--k 0)");
    else
        add_shrinking_options(e, parts, &text);
    int rc = err_set(ERR_MEMORY, "%s", buf_text(&text));
    buf_free(&text);
    return rc;
}

/* The largest context up to `wanted` whose plan fits in nine tenths of what is free; ERR_MEMORY, with the least context tried
 * and does_not_fit, if even one page does not. */
static int fit_context(struct engine *e, int wanted, bool may_shrink) {
    uint64_t free_bytes, total_bytes;
    struct parts parts;
    TRY(device_memory(e->device, &free_bytes, &total_bytes));
    for (set_context(e, wanted);; set_context(e, e->context / 2)) {
        TRY(plan_parts(e, &parts));
        if (parts.all <= engine_allowed_bytes(free_bytes)) break;
        e->larger_bytes = parts.all;
        if (may_shrink && e->context > KV_PAGE) continue;
        e->does_not_fit = true;
        return refuse_plan(e, &parts, free_bytes);
    }
    if (e->context < wanted) e->bound = CONTEXT_BY_MEMORY;
    return 0;
}

int engine_decide_context(struct engine *e) {
    int limit = model_get_config(e->target_model)->positions, asked = e->options.context;
    if (asked < 0 || asked > limit)
        return err_set(ERR_USAGE, "a context of %d tokens: %s has positions for %d", asked,
                       checkpoint_name(e->options.target), limit);
    if (asked > 0) return fit_context(e, asked, false);
    int positions = limit;
    e->bound = CONTEXT_BY_TARGET;
    if (e->proposer && e->proposer->positions < limit) limit = e->proposer->positions, e->bound = CONTEXT_BY_DRAFT;
    if (limit > CONTEXT_DEFAULT) limit = CONTEXT_DEFAULT, e->bound = CONTEXT_BY_DEFAULT;
    TRY(fit_context(e, limit, true));
    e->context_capped = e->context < positions;
    return 0;
}

static int open_proposer(struct engine *e) {
    const struct engine_options *o = &e->options;
    const struct model_numbers numbers = {o->draft_weights, o->kv, NULL};
    struct proposer_options options = {o->proposer, o->draft, numbers, o->draft_vocab};
    e->world = (struct proposer_world){.device = e->device,
                                       .target = e->target_model,
                                       .target_checkpoint = o->target,
                                       .tokenizer = e->tokenizer,
                                       .vocab = e->vocab,
                                       .slots = e->max_batch + 1,
                                       .k_max = e->k_max};
    return proposer_open(&e->proposer, &e->world, &options);
}

int engine_open_models(struct engine *e) {
    TRY(check_options(e));
    const struct engine_options *o = &e->options;
    const struct device_options device = {
        .threads = o->threads, .gpu = o->gpu, .check_launches = o->graphs == GRAPHS_DEBUG};
    if (o->gpu_bytes > 0)
        TRY(device_open_planned(&e->device, DEVICE_CUDA, o->gpu_bytes));
    else
        TRY(device_open(&e->device, o->device ? o->device : "auto", &device));
    engine_mark_start(e, START_DEVICE);
    TRY(model_open(&e->target_model, o->target, "target", (struct model_numbers){o->target_weights, o->kv, NULL},
                   e->device));
    engine_mark_start(e, START_FILES);
    TRY(vocabulary_open(&e->tokenizer, &e->vocab, model_get_config(e->target_model)->vocab, o->target));
    TRY(model_add_end_token(e->target_model, e->tokenizer));
    if (e->k_max > 0) TRY(open_proposer(e));
    engine_mark_start(e, START_TOKENIZER);
    set_state(e);
    e->pipeline = o->pipeline ? o->pipeline : device_is_async(e->device) ? 2 : 1;
    if (e->pipeline < 1 || e->pipeline > ROUNDS_IN_FLIGHT_MAX)
        return err_set(ERR_USAGE, "pipeline is %d, it must lie in 1..%d", e->pipeline, ROUNDS_IN_FLIGHT_MAX);
    return 0;
}
