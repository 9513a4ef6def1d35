/* Which models: directories, the local Hugging Face cache, the embedded pair; and the engine over them. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/hub.h"
#include "draft/proposer.h"
#include "model/files/assets.h"

#ifndef DUET_PREFIX
#define DUET_PREFIX "/usr/local"
#endif

static int open_found(int rc, const struct buf *path, struct checkpoint **out) {
    if (rc == 0) *out = checkpoint_open(buf_text(path));
    return rc;
}

/* A file, what cannot be looked at, or nothing at all. */
static int refuse_path(const char *name) {
    if (access(name, F_OK) == 0)
        return err_set(ERR_IO, "%s: is a file, expected the directory of a model or a .gguf file", name);
    if (errno != ENOENT && errno != ENOTDIR) return err_set(ERR_IO, "%s: %s", name, strerror(errno));
    int rc = err_set(ERR_IO, "%s: no such directory", name);
    return strspn(name, "0123456789") == strlen(name) ? err_hint(rc, "-t is --target, threads are --threads") : rc;
}

int models_find(const char *name, struct checkpoint **out) {
    struct buf path = {0};
    int rc = 0;
    *out = NULL;
    if (!file_is_directory(name) && checkpoint_is_file(name)) {
        *out = checkpoint_open(name);
        return 0;
    }
    if (!file_is_directory(name) && (!hub_is_name(name) || access(name, F_OK) == 0)) return refuse_path(name);
    if (!file_is_directory(name))
        rc = open_found(hub_find(name, &path), &path, out);
    else if (hub_is_folder(name))
        rc = open_found(hub_snapshot(name, &path), &path, out);
    else
        *out = checkpoint_open(name);
    buf_free(&path);
    return rc;
}

/* --- the embedded pair -------------------------------------------------------------------------------------- */

/* false: it is not known where the program lies. */
static bool find_program(char program[PATH_MAX]) {
    ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);
    program[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool find_assets_beside(struct assets *out) {
    char program[PATH_MAX];
    return find_program(program) && assets_open_beside(out, program);
}

int models_find_file(struct buf *path, const char *name) {
    char program[PATH_MAX];
    buf_clear(path);
    if (find_program(program)) assets_find_beside(path, program, name);
    if (path->len > 0) return 0;
    buf_printf(path, DUET_PREFIX "/share/duet/%s", name);
    if (file_exists(buf_text(path))) return 0;
    return err_set(ERR_IO, "%s: is neither beside the program nor in " DUET_PREFIX "/share/duet", name);
}

/* $DUET_ASSETS, where it is set; else beside the program, or in the PREFIX that it was built for. */
int models_embedded(struct models *out) {
    const char *given = getenv("DUET_ASSETS");
    const bool is_given = given && *given;
    struct assets found;
    if (is_given && !assets_open(&found, given))
        return err_set(ERR_IO, "$DUET_ASSETS: %s lacks target or draft", given);
    if (!is_given && !find_assets_beside(&found) && !assets_open(&found, DUET_PREFIX "/share/duet"))
        return err_set(ERR_IO,
                       "the embedded pair is neither in $DUET_ASSETS (not set) nor beside the program nor in "
                       "%s/share/duet; hint: --target DIR --draft DIR",
                       DUET_PREFIX);
    *out = (struct models){.target = found.target, .draft = found.draft, .embedded = true};
    return 0;
}

/* --- both models -------------------------------------------------------------------------------------------- */

static bool needs_draft(const struct options *o) {
    if (o->command == COMMAND_BENCH) return o->operand != BENCH_VERIFY && o->operand != BENCH_DECODE;
    return o->k != 0 || o->k_max > 0;
}

/* --shape TARGET[,DRAFT]. */
static int split_shapes(struct models *out, const char *shapes) {
    size_t n = strcspn(shapes, ",");
    struct buf target = {0};
    buf_append(&target, shapes, n);
    out->target = checkpoint_open_shape(buf_text(&target));
    out->draft = shapes[n] ? checkpoint_open_shape(shapes + n + 1) : NULL;
    buf_free(&target);
    return 0;
}

static bool is_proposer(const char *draft) {
    return draft && proposer_of_word(draft);
}

static int find_pair(struct models *out, const struct options *o) {
    bool has_draft = o->draft && !is_proposer(o->draft);
    if (o->shape && (o->target || has_draft))
        return err_set(ERR_USAGE, "--shape and --target or --draft: give one of them");
    if (o->shape) return split_shapes(out, o->shape);
    if (!o->target) return models_embedded(out);
    TRY(models_find(o->target, &out->target));
    return has_draft && needs_draft(o) ? models_find(o->draft, &out->draft) : 0;
}

/* --draft by a word, in place of the draft of the embedded pair. */
static int take_proposer(struct models *m, const struct options *o) {
    if (o->shape && m->draft)
        return err_set(ERR_USAGE, "--shape %s and --draft %s: two drafts, give one of them", o->shape, o->draft);
    checkpoint_close(m->draft);
    m->draft = NULL;
    m->proposer = needs_draft(o) ? o->draft : NULL;
    return 0;
}

/* What is asked of a draft model that is not there. */
static int refuse_draft_options(const struct options *o) {
    if (o->draft_weights != WEIGHTS_AS_STORED)
        return err_set(ERR_USAGE, "--draft-weights: there is no draft model to quantise");
    if (o->draft_vocab) return err_set(ERR_USAGE, "--draft-vocab: there is no draft model whose head could be cut");
    return 0;
}

int models_resolve(struct models *out, const struct options *o) {
    *out = (struct models){0};
    int rc = find_pair(out, o);
    if (rc == 0 && is_proposer(o->draft)) rc = take_proposer(out, o);
    if (rc != 0) {
        models_free(out);
        return rc;
    }
    const bool has_model = out->draft || (out->proposer && proposer_of_word(out->proposer)->has_model);
    rc = needs_draft(o) && !has_model ? refuse_draft_options(o) : 0;
    if (rc != 0) {
        models_free(out);
        return rc;
    }
    if (!needs_draft(o)) {
        checkpoint_close(out->draft);
        out->draft = NULL;
    } else if (!out->draft && !out->proposer) {
        cli_note("no --draft: the target decodes plainly (K = 0)");
    }
    return 0;
}

void models_free(struct models *m) {
    checkpoint_close(m->target);
    checkpoint_close(m->draft);
    *m = (struct models){0};
}

/* Of one K the steps of larger ones are measured too. */
static bool measures_all_rows(const struct options *o) {
    return o->command == COMMAND_BENCH && o->operand == BENCH_ROUND && o->k_count < 2;
}

void engine_options_set(struct engine_options *out, const struct options *o, const struct models *m) {
    int k_max = o->k_max, least = o->command == COMMAND_CHAT ? 8 : measures_all_rows(o) ? 16 : 0;
    bool proposes = m->draft || m->proposer;
    if (!option_given(o, "k-max")) k_max = o->k < least ? least : o->k == K_AUTO ? 0 : o->k;
    *out = (struct engine_options){
        .target = m->target,
        .draft = m->draft,
        .proposer = m->proposer,
        .device = o->device,
        .threads = o->threads,
        .gpu = o->gpu,
        .k = proposes ? o->k : 0, /* K_AUTO too */
        .k_max = proposes ? k_max : 0,
        .max_batch = o->batch,
        .context = o->context,
        .graphs = o->graphs,
        .buckets = o->buckets,
        .prefill_graphs = (enum prefill_graphs)o->prefill_graphs,
        .target_weights = (enum model_weights)o->target_weights,
        .draft_weights = (enum model_weights)o->draft_weights,
        .draft_vocab = m->draft || m->proposer ? o->draft_vocab : NULL,
        .kv = (enum kv_numbers)o->kv,
        .accept = (enum accept_rule)o->accept,
        .simulate_alpha = o->simulate_alpha,
        .timing = o->alpha_report || o->command == COMMAND_BENCH ? TIMED_EVERY : 0,
        .progress = progress_bar(),
    };
}

/* A head of the target lies in its files. */
static const struct checkpoint *draft_files(const struct engine_options *eo) {
    return eo->draft ? eo->draft : eo->target;
}

static void note_rounded(const struct checkpoint *c, const char *types) {
    if (types) cli_note("%s: %s weights are rounded to the 16-bit type of its products", checkpoint_name(c), types);
}

/* What --target-weights and --draft-weights did: files that are quantised in part stay so. */
static void note_quantised(const struct engine_options *eo, const struct engine_info *info) {
    const int target = info->target_products - info->target_products_stored,
              draft = info->draft_products - info->draft_products_stored;
    if (eo->target_weights != WEIGHTS_AS_STORED && info->target_products_stored == 0)
        cli_note("%s: quantised at loading, so it is another model than its files (--target-weights)",
                 checkpoint_name(eo->target));
    else if (eo->target_weights != WEIGHTS_AS_STORED)
        cli_note("%s: %d of %d matrices quantised at loading, so it is another model than its files; the others were "
                 "quantised already and stay as they are (--target-weights)",
                 checkpoint_name(eo->target), target, info->target_products);
    if (eo->draft_weights != WEIGHTS_AS_STORED && info->draft_products_stored > 0)
        cli_note(
            "%s: %d of %d matrices of the draft quantised at loading; the others were quantised already and stay as "
            "they are (--draft-weights)",
            checkpoint_name(draft_files(eo)), draft, info->draft_products);
}

int engine_start(struct engine **out, const struct models *m, const struct options *o) {
    struct engine_options eo;
    engine_options_set(&eo, o, m);
    int rc = engine_create(out, &eo);
    progress_clear();
    TRY(rc);
    struct engine_info info = engine_info(*out);
    if (info.device_missing[0]) cli_note("%s; running on the host", info.device_missing);
    note_rounded(eo.target, info.target_rounded);
    note_quantised(&eo, &info);
    if (o->kv != KV_AUTO)
        cli_note("%s: keys and values are kept in FP8, so it is another model than its files (--kv)",
                 checkpoint_name(eo.target));
    note_rounded(draft_files(&eo), info.draft_rounded);
    if (needs_draft(o) && !eo.draft && !eo.proposer && engine_own_head(*out) > 0)
        cli_note("%s: a head in its files could draft: --draft mtp", checkpoint_name(eo.target));
    if (eo.draft && info.draft_parameters > info.target_parameters)
        cli_note("the draft %s is larger than the target %s: are they swapped?", checkpoint_name(eo.draft),
                 checkpoint_name(eo.target));
    if (info.context_capped)
        cli_note("context of %d tokens, of %d that the target has positions for", info.context,
                 engine_config(*out)->positions);
    return 0;
}

int models_chat_template(const struct models *m, const struct options *o, const struct engine *e,
                         struct chat_template **out, char **problem) {
    *out = NULL;
    *problem = NULL;
    if (o->chat_template)
        TRY(checkpoint_chat_template(m->target, o->chat_template, out));
    else if (engine_tokenizer(e) && checkpoint_chat_template(m->target, NULL, out) != 0)
        *problem = memory_copy_text(err_message());
    TRY(models_settle_template(o, *out));
    if (*out && chat_template_states_date(*out) && !o->date)
        cli_note("the chat template (%s) states the day's date, %s: --date gives the same texts on another day",
                 chat_template_name(*out), chat_template_date(*out));
    return 0;
}

static void note_think(const struct options *o, const struct chat_template *t) {
    const enum chat_thoughts thoughts = chat_template_thoughts(t);
    if (thoughts == THOUGHTS_NONE)
        cli_note("--think: the chat template (%s) has no thinking, so it changes nothing", chat_template_name(t));
    else if (thoughts == THOUGHTS_ALWAYS && !o->think)
        cli_note("--think off: the chat template (%s) always thinks, so it changes nothing", chat_template_name(t));
}

int models_settle_template(const struct options *o, struct chat_template *t) {
    if (!t) return 0;
    if (option_given(o, "think")) note_think(o, t);
    if (option_given(o, "think") && o->think) chat_template_ask_for_thoughts(t);
    if (option_given(o, "reasoning-effort")) chat_template_set_effort(t, (enum chat_effort)o->effort);
    if (option_given(o, "reasoning-effort") && !chat_template_states_effort(t))
        cli_note("--reasoning-effort: the chat template (%s) states none, so it changes nothing",
                 chat_template_name(t));
    if (!o->date) return 0;
    int rc = chat_template_set_date(t, o->date);
    if (rc != 0) return err_prefix(rc, "--date");
    if (!chat_template_states_date(t))
        cli_note("--date: the chat template (%s) states no day's date, so it changes nothing", chat_template_name(t));
    return 0;
}
