/* EXAONE 3 and 3.5, and EXAONE Deep: a Llama under other names (LG AI Research 2024). GGUF files, and what transformers may call its tensors,
 * have a Llama's. */
#include "base/err.h"
#include "model/binder.h"
#include "model/builder.h"
#include "model/config_read.h"
#include "model/families/family.h"

static int configure(struct model_config *c, const cJSON *root) {
    const struct dimension_defaults defaults = {.positions = 4096,
                                                .kv_heads = 8,
                                                .norm_eps = 1e-5,
                                                .layers_member = config_member(root, "num_layers", "num_hidden_layers"),
                                                .eps_member =
                                                    config_member(root, "layer_norm_epsilon", "rms_norm_eps")};
    TRY(config_read_dimensions(c, root, &defaults));
    TRY(config_check_activation(root, "silu"));
    TRY(config_refuse_true(root, "attention_bias", "it gives the attention's output a bias, which duet does not have"));
    TRY(config_refuse_true(root, "mlp_bias", "duet's MLP has no bias"));
    return config_read_rope(c, root, 500000);
}

static void bind_model(struct binder *b) {
    static const struct renaming names[] = {{"embed_tokens.", "wte."},
                                            {"layers.", "h."},
                                            {".self_attn.o_proj.", ".attn.attention.out_proj."},
                                            {".self_attn.", ".attn.attention."},
                                            {".input_layernorm.", ".ln_1."},
                                            {".post_attention_layernorm.", ".ln_2."},
                                            {"norm.", "ln_f."},
                                            {".mlp.gate_proj.", ".mlp.c_fc_0."},
                                            {".mlp.up_proj.", ".mlp.c_fc_1."},
                                            {".mlp.down_proj.", ".mlp.c_proj."},
                                            {NULL, NULL}};
    binder_find_text(b, false);
    const char *const usual = b->body;
    b->body = "transformer.";
    if (binder_has(b, "wte.weight"))
        b->renamings = names;
    else
        b->body = usual;
    bind_ends(b, 0);
    for (int l = 0; l < b->c->layers; l++) {
        bind_norms_before(b, 0, l);
        bind_attention(b, l);
        bind_mlp(b, l);
    }
}

const struct family family_exaone = {
    .architectures = (const char *const[]){"ExaoneForCausalLM", NULL},
    .model_types = (const char *const[]){"exaone", NULL},
    .is_saved_as_llama = true,
    .configure = configure,
    .bind = bind_model,
    .build = build_dense_layers,
};
