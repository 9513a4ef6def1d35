/* Llama, Mistral and Ministral 3, the latter two also inside the multimodal Mistral 3: pre-norm decoder layers with grouped-query attention (Touvron et
 * al. 2023, Jiang et al. 2023). What other families differ from. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

/* Of Ministral 3 released files say how far queries grow; the class's own way is not guessed. */
static int read_rope(struct model_config *c, const cJSON *root, bool is_ministral3) {
    if (is_ministral3 && !json_get(root, "rope_parameters") && !json_get(root, "rope_scaling"))
        return err_set(ERR_FORMAT, "member 'rope_parameters' is missing");
    return config_read_rope(c, root, 10000);
}

static int configure(struct model_config *c, const cJSON *outer) {
    static const struct dimension_defaults llama = {.positions = 2048}, mistral = {.positions = 131072, .kv_heads = 8},
                                           ministral3 = {
                                               .positions = 262144, .kv_heads = 8, .head_dim = 128, .norm_eps = 1e-5};
    const cJSON *root = config_is_wrapper(c) ? config_text(outer) : outer;
    const bool is_mistral = c->architecture != family_llama.architectures[0],
               is_ministral3 = config_is_text(json_get(root, "model_type"), "ministral3") ||
                               c->architecture == family_llama.architectures[2];
    TRY(config_read_dimensions(c, root, is_ministral3 ? &ministral3 : is_mistral ? &mistral : &llama));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    if (is_mistral) TRY(config_read_uniform_window(c, root, is_ministral3 ? 0 : 4096));
    return read_rope(c, root, is_ministral3);
}

static void bind_model(struct binder *b) {
    binder_find_text(b, config_is_wrapper(b->c));
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_llama = {
    .architectures = (const char *const[]){"LlamaForCausalLM", "MistralForCausalLM", "Ministral3ForCausalLM",
                                           "Mistral3ForConditionalGeneration", NULL},
    .model_types = (const char *const[]){"llama", "mistral", "ministral3", "mistral3", NULL},
    .text_types = (const char *const[]){"mistral", "ministral3", NULL},
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
