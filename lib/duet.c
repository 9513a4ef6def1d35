/* Versions, errors, and a pair: its options, its models, its engine. */
#include "lib/duet.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/memory.h"
#include "base/version.h"
#include "draft/proposer.h"
#include "lib/internal.h"
#include "model/files/assets.h"
#include "sampler/sampler.h"

_Static_assert((int)DUET_ERR_INTERNAL == (int)ERR_INTERNAL && (int)DUET_ERR_DEVICE == (int)ERR_DEVICE, "one numbering");
_Static_assert((int)DUET_ACCEPT_BLOCK == (int)ACCEPT_BLOCK, "one numbering");

const char *duet_version(void) {
    return DUET_VERSION;
}

const char *duet_error(void) {
    return err_message();
}

uint64_t duet_record_seed(uint64_t seed, uint64_t record) {
    return seed_for_record(seed, record);
}

/* --- structs that grow ------------------------------------------------------------------------------------ */

void copy_sized(void *out, size_t size, const void *from, size_t from_size) {
    memset(out, 0, size);
    memcpy(out, from, size < from_size ? size : from_size);
}

int take_sized(void *out, size_t full, const void *given, size_t size, const char *what) {
    if (size < sizeof(size_t) || size > full)
        return err_set(ERR_USAGE, "%s: the struct has %zu bytes, this libduet (%s) knows %zu of it; call %s_init", what,
                       size, DUET_VERSION, full, what);
    memcpy(out, given, size);
    return 0;
}

void duet_options_init(struct duet_options *o, size_t size) {
    struct duet_options all = {.size = size, .batch = 1, .k = 4};
    copy_sized(o, size, &all, sizeof all);
}

/* --- models ------------------------------------------------------------------------------------------------- */

static bool open_beside_library(struct assets *found) {
    Dl_info file;
    char *path = dladdr((const void *)duet_open, &file) ? realpath(file.dli_fname, NULL) : NULL;
    bool is_there = path && assets_open_beside(found, path);
    free(path);
    return is_there;
}

static int open_embedded(struct duet *d, const struct duet_options *o) {
    struct assets found;
    if (o->assets && !assets_open(&found, o->assets))
        return err_set(ERR_IO, "%s: there is no pair (target and draft) in it", o->assets);
    if (!o->assets && !open_beside_library(&found))
        return err_set(ERR_IO, "the embedded pair is not beside libduet: give a target, or assets");
    d->target = found.target;
    d->draft = found.draft;
    return 0;
}

static int open_models(struct duet *d, const struct duet_options *o) {
    bool is_word = o->draft && proposer_of_word(o->draft);
    if (o->draft && !is_word && !o->target) return err_set(ERR_USAGE, "a draft model needs a target");
    if (!o->target)
        TRY(open_embedded(d, o));
    else
        d->target = checkpoint_open(o->target);
    if (o->target && o->draft && !is_word) d->draft = checkpoint_open(o->draft);
    if (d->draft && (is_word || o->k == 0)) {
        checkpoint_close(d->draft);
        d->draft = NULL;
    }
    return 0;
}

/* A template that cannot be used is an error of the requests that need one, unless it was asked for by name. */
static int load_template(struct duet *d, const char *name) {
    if (name) return checkpoint_chat_template(d->target, name, &d->chat_template);
    if (engine_tokenizer(d->engine) && checkpoint_chat_template(d->target, NULL, &d->chat_template) != 0)
        d->template_error = memory_copy_text(err_message());
    return 0;
}

/* What the template is told; a date or an effort that is none is wrong whatever the template is. */
static int settle_template(struct chat_template *t, const struct duet_options *o) {
    static const char *const efforts[] = {[EFFORT_LOW] = "low", [EFFORT_MEDIUM] = "medium", [EFFORT_HIGH] = "high"};
    for (int i = 0; o->reasoning_effort; i++) {
        if (i == sizeof efforts / sizeof *efforts)
            return err_set(ERR_USAGE, "reasoning_effort is '%s', expected low, medium or high", o->reasoning_effort);
        if (strcmp(o->reasoning_effort, efforts[i]) != 0) continue;
        if (t) chat_template_set_effort(t, (enum chat_effort)i);
        break;
    }
    return t && o->date ? chat_template_set_date(t, o->date) : 0;
}

/* --- the pair ----------------------------------------------------------------------------------------------- */

static int check_options(const struct duet_options *o) {
    if (o->k < 0 || o->k > K_MAX) return err_set(ERR_USAGE, "k is %d, it must lie in 0..%d", o->k, K_MAX);
    if (o->batch < 1) return err_set(ERR_USAGE, "batch is %d, at least 1 is needed", o->batch);
    if (o->threads < 0 || o->context < 0 || o->gpu < 0)
        return err_set(ERR_USAGE, "threads, context and gpu are not negative");
    if (o->accept < DUET_ACCEPT_TOKEN || o->accept > DUET_ACCEPT_BLOCK)
        return err_set(ERR_USAGE, "accept is %d, which names no rule", o->accept);
    return 0;
}

static int open_pair(struct duet *d, const struct duet_options *o) {
    TRY(check_options(o));
    TRY(open_models(d, o));
    struct engine_options options = {
        .target = d->target,
        .draft = d->draft,
        .proposer = o->draft && proposer_of_word(o->draft) && o->k > 0 ? o->draft : NULL,
        .device = o->device,
        .threads = o->threads,
        .gpu = o->gpu,
        .k = o->k,
        .max_batch = o->batch,
        .context = o->context,
        .accept = (enum accept_rule)o->accept,
        .progress = {o->on_progress, o->user},
    };
    TRY(engine_create(&d->engine, &options));
    TRY(load_template(d, o->chat_template));
    return settle_template(d->chat_template, o);
}

/* With the engine, if there is one, resumed. */
static void destroy(struct duet *d) {
    chat_template_free(d->chat_template);
    free(d->template_error);
    engine_destroy(d->engine);
    checkpoint_close(d->draft);
    checkpoint_close(d->target);
    free(d);
}

int duet_open(struct duet **out, const struct duet_options *given) {
    struct duet_options o;
    *out = NULL;
    duet_options_init(&o, sizeof o);
    if (given) TRY(take_sized(&o, sizeof o, given, given->size, "duet_options"));
    struct duet *d = calloc(1, sizeof *d);
    if (!d) return err_set(ERR_MEMORY, "no memory for a pair");
    int rc = open_pair(d, &o);
    if (rc != 0) {
        destroy(d);
        return rc;
    }
    engine_suspend(d->engine);
    *out = d;
    return 0;
}

void duet_close(struct duet *d) {
    if (!d) return;
    (void)engine_resume(d->engine);
    for (struct duet_answer *a; (a = d->first); answer_settle(a, DUET_FINISH_CANCELLED))
        a->on_token = NULL; /* callbacks run in duet_step alone */
    destroy(d);
}

void duet_get_info(const struct duet *d, struct duet_info *out, size_t size) {
    struct engine_info e = engine_info(d->engine);
    struct duet_info all = {
        .device = e.device,
        .proposer = e.proposer ? e.proposer : "",
        .device_note = e.device_missing,
        .target_parameters = e.target_parameters,
        .draft_parameters = e.draft_parameters,
        .context = e.context,
        .vocab = e.vocab,
        .k = e.k,
        .batch = e.max_batch,
    };
    copy_sized(out, size, &all, sizeof all);
}

void stats_set(struct duet_stats *out, const struct acceptance *from) {
    out->rounds = from->rounds + from->plain_rounds;
    out->drafted = from->drafted;
    out->accepted = from->accepted;
    out->rejected = from->rejected;
}

void duet_get_stats(const struct duet *d, struct duet_stats *out, size_t size) {
    struct duet_stats all = {.prompt_tokens = d->prompt_tokens, .completion_tokens = d->completion_tokens};
    stats_set(&all, &d->stats);
    copy_sized(out, size, &all, sizeof all);
}
