/* A model's head that proposes more tokens (multi-token prediction): Gloeckle et al. 2024; in the form that reads its own output again for
 * the tokens after the next, DeepSeek-V3 (2024), section 2.2. */
#include "base/err.h"
#include "model/families/family.h"
#include "model/model_internal.h"

/* That of the last layer with attention. */
static int find_layer(const struct model_config *c) {
    int layer = c->layers - 1;
    while (layer > 0 && c->layer[layer].is_recurrent) layer--;
    return layer;
}

int model_configure_mtp(struct model *m) {
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

void model_share_ends(struct model *m) {
    if (m->shares_embedding) m->embedding = m->of->embedding;
    if (m->shares_head) m->head = m->of->head;
}
