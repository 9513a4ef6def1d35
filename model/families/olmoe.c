/* OLMoE: norms before the attention and the experts, as of a Llama; the norm of q and of k is over all heads at once, as of OLMo 2
 * (Muennighoff et al. 2024). */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"
#include "model/families/qwen.h"

static int configure(struct model_config *c, const cJSON *root) {
    TRY(config_read_dimensions(c, root, &(struct dimension_defaults){.positions = 4096, .norm_eps = 1e-5}));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    if (json_get(root, "clip_qkv")) return err_set(ERR_UNSUPPORTED, "clip_qkv is not supported, only null");
    TRY(config_read_experts(c, root, "num_experts_per_tok", "intermediate_size"));
    TRY(json_get_bool(root, "norm_topk_prob", false, &c->router_renormalises));
    c->router_scores = SCORES_OF_ALL;
    c->qk_norm = c->norms_all_heads = true;
    return config_read_rope(c, root, 10000);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, false);
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_qk_norms(b, 0, l);
        bind_attention(b, l);
        qwen_bind_experts(b, l);
    }
}

const struct family family_olmoe = {
    .architectures = (const char *const[]){"OlmoeForCausalLM", NULL},
    .model_types = (const char *const[]){"olmoe", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_expert_layers,
};
