/* The assistant of a Gemma 4 (Gemma Team 2026), which drafts for it: a few layers of a Gemma 4 that attend to the keys and values of that
 * model's last layer of their kind and have none of their own. Each drafted token is one pass of one row, the query of the sequence's last
 * token: it reads that token's embedding beside the hidden row before it, then what it drafted beside its own output, brought to the model's
 * width. The files of some have their ids in groups, of which only the best were looked into; here the head looks at all. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/gemma.h"

static int configure(struct model_config *c, const cJSON *outer) {
    const cJSON *root = config_text(outer);
    bool has;
    TRY(gemma4_read_text(c, root));
    TRY(json_get_bool(root, "enable_moe_block", false, &has));
    if (has) return err_set(ERR_UNSUPPORTED, "an assistant with experts is not supported");
    c->drafter = (struct drafter_config){.is_there = true, .reads_keys = true, .head_vocab = c->vocab};
    c->tied = true; /* the head is its embedding, which nothing else reads */
    for (int l = 0; l < c->layers; l++) c->layer[l].kv_layer = ~0; /* until the model is known */
    return config_get_int(outer, "backbone_hidden_size", 1536, 1, 1 << 20, &c->drafter.target_width);
}

static void bind_model(struct binder *b) {
    const int64_t width = b->c->width, of = b->c->drafter.target_width;
    struct model *m = b->m;
    binder_find_text(b, false);
    bind_ignore(b, "masked_embedding.");
    bind_head_ends(b);
    bind_norm(b, &m->norm, 0, width, "norm.weight");
    for (int l = 0; l < b->c->layers; l++) {
        gemma4_bind_layer(b, l);
        if (m->config.layer[l].window > 0) m->config.layer[l].window++; /* the keys at both ends are seen */
    }
    b->body = b->outer;
    bind_weight(b, &m->join, width, 2 * of, "pre_projection.weight");
    bind_weight(b, &m->leave, of, width, "post_projection.weight");
}

static void build(struct builder *b) {
    static const struct weight none;
    static const struct norm plain;
    const struct model *m = b->m;
    const size_t of = (size_t)b->c->drafter.target_width;
    struct op_embed *embed = build_embed(b);
    float *embedded = embed->out = builder_scratch(b, SCRATCH_OUTPUT, of);
    embed->scale = m->of->config.embedding_scale;
    const struct buffer joined = builder_feed(b, SCRATCH_JOINED, 2 * of);
    struct op_join *join = build_join(b, embedded, joined);
    join->width = (int32_t)of, join->ahead = 1;
    struct op_project *project = build_project(b, joined, &m->join, &none);
    project->stores = true, project->scale = 1;
    for (int l = 0; l < b->c->layers; l++) gemma4_build_layer(b, l);
    const float *leaving = build_products(b, &m->leave, 1, &m->norm, SCRATCH_OUTPUT)->out;
    struct op_keep *keep = build_keep(b, &m->of->cache, leaving, &plain);
    keep->ahead = 1, keep->last_only = true;
    build_head(b);
}

const struct family family_gemma4_assistant = {
    .architectures = (const char *const[]){"Gemma4AssistantForCausalLM", NULL},
    .model_types = (const char *const[]){"gemma4_assistant", NULL},
    .text_types = (const char *const[]){"gemma4_text", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build,
};
