/* Heads that propose more tokens for a model: its own (multi-token prediction: Gloeckle et al. 2024; in the form that reads its own output
 * again for the tokens after the next, DeepSeek-V3 2024, section 2.2), and those that were trained for it (EAGLE-3, Li et al. 2025; DFlash,
 * Chen et al. 2026; Gemma 4's assistants). */
#include "base/buf.h"
#include "base/err.h"
#include "model/families/family.h"
#include "model/model_internal.h"

/* That of the last layer with attention. */
static int find_layer(const struct model_config *c) {
    int layer = c->layers - 1;
    while (layer > 0 && c->layer[layer].is_recurrent) layer--;
    return layer;
}

static int configure_own(struct model *m) {
    struct model_config *c = &m->config;
    *c = m->of->config;
    if (!c->family->bind_mtp || c->mtp_heads == 0)
        return err_set(ERR_UNSUPPORTED, "%s: %s has no head that proposes tokens%s", checkpoint_name(m->checkpoint),
                       c->architecture, c->family->bind_mtp ? ", by its configuration" : ", or none that duet knows");
    if (c->mtp_heads > 1)
        return err_set(ERR_UNSUPPORTED, "%s: %d heads that propose tokens are not supported, only one",
                       checkpoint_name(m->checkpoint), (int)c->mtp_heads);
    c->layer[0] = c->layer[find_layer(c)];
    c->layer[0].kv_layer = 0;
    c->layers = 1;
    c->recurrent = (struct recurrent_config){0};
    return 0;
}

static int refuse_taps(const struct model *m) {
    struct buf list = {0};
    const struct drafter_config *d = &m->config.drafter;
    for (int i = 0; i < d->tap_count; i++)
        buf_printf(&list, "%s%d", i == 0 ? "" : i < d->tap_count - 1 ? ", " : " and ", (int)d->taps[i]);
    const int rc = err_set(
        ERR_UNSUPPORTED, "%s: reads the rows before layers %s of %s, which must ascend and lie below its %d layers",
        checkpoint_name(m->checkpoint), buf_text(&list), checkpoint_name(m->of->checkpoint), (int)m->of->config.layers);
    buf_free(&list);
    return rc;
}

/* Early, in the middle and late, where the head does not say. */
static int choose_taps(struct model *m) {
    struct drafter_config *d = &m->config.drafter;
    const int layers = m->of->config.layers;
    if (d->taps[0] < 0) d->taps[0] = 2, d->taps[1] = layers / 2, d->taps[2] = layers - 3;
    for (int i = 0; i < d->tap_count; i++)
        if (d->taps[i] < 0 || d->taps[i] >= layers || (i > 0 && d->taps[i] <= d->taps[i - 1])) return refuse_taps(m);
    return 0;
}

static int choose_keys(struct model *m) {
    const struct model_config *of = &m->of->config;
    for (int l = 0; l < m->config.layers; l++) {
        const int from = model_config_keys_for(&m->config.layer[l], of);
        m->config.layer[l].kv_layer = ~from;
        if (from < 0)
            return err_set(ERR_FORMAT, "%s: layer %d attends to keys that %s does not have",
                           checkpoint_name(m->checkpoint), l, checkpoint_name(m->of->checkpoint));
    }
    return 0;
}

static int configure_other(struct model *m) {
    struct model_config *c = &m->config;
    const struct model_config *of = &m->of->config;
    TRY(checkpoint_config(m->checkpoint, c));
    const struct drafter_config *d = &c->drafter;
    if (!model_config_has_size_for(c, of))
        return err_set(ERR_FORMAT, "%s: is for a model of width %d with %d tokens, and %s has %d and %d",
                       checkpoint_name(m->checkpoint), (int)d->target_width, (int)c->vocab,
                       checkpoint_name(m->of->checkpoint), (int)of->width, (int)of->vocab);
    if (d->block > 0) c->embedding_scale = of->embedding_scale, c->logits_scale = of->logits_scale;
    return d->reads_keys ? choose_keys(m) : choose_taps(m);
}

int model_configure_head(struct model *m) {
    return model_is_own_head(m) ? configure_own(m) : configure_other(m);
}

void model_share_ends(struct model *m) {
    if (m->shares_embedding) m->embedding = m->of->embedding;
    if (m->shares_head) m->head = m->of->head;
}

/* Files have the distance of each id from its place. */
int model_head_ids(const struct model *m, int vocab, struct ids *out) {
    const int64_t rows = m->config.drafter.head_vocab;
    const struct tensor *t;
    if (!m->files || !drafter_is_cut(&m->config.drafter, m->config.vocab)) return 0;
    TRY(safetensors_expect_type(m->files, "d2t", "I64", &rows, 1, &t));
    const int64_t *distances = t->data;
    int64_t before = -1;
    for (int64_t i = 0; i < rows; i++) {
        const bool is_id = distances[i] >= 0 && distances[i] < vocab - i && i + distances[i] > before;
        if (!is_id)
            return err_set(ERR_FORMAT, "%s: tensor 'd2t' has no ascending ids of the target, at %lld", t->file,
                           (long long)i);
        before = i + distances[i];
        ids_push(out, (int32_t)before);
    }
    return 0;
}
