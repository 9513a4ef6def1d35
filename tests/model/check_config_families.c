/* Families by their names, and what those may have that duet refuses. */
#include <string.h>

#include "model/families/family.h"
#include "tests/support/config_support.h"
#include "tests/support/support.h"

START_TEST(families_are_known_by_architecture_or_model_type)
{
    int known = 0;
    for (int f = 0; family_at(f); f++) {
        const struct family *family = family_at(f);
        for (int i = 0; family->architectures[i]; i++) {
            struct model_config c;
            struct buf changes = {0};
            buf_printf(&changes, "{\"architectures\": [\"%s\"], \"model_type\": \"absent\", \"rope_theta\": 10000%s}",
                       family->architectures[i], family_members(family->architectures[i]));
            ck_ok(load_config(&c, buf_text(&changes), NULL));
            ck_assert_ptr_eq(c.family, family);
            ck_assert_str_eq(c.architecture, family->architectures[i]);
            buf_free(&changes);
        }
        int known_architectures = 0; /* of which each has a type in its place, or all but the first need no more */
        while (family->architectures[known_architectures]) known_architectures++;
        for (int i = 0; family->model_types[i]; i++) {
            struct model_config c;
            struct buf changes = {0};
            const char *its = family->architectures[i < known_architectures ? i : 0];
            buf_printf(&changes, "{\"architectures\": \"absent\", \"model_type\": \"%s\", \"rope_theta\": 10000%s}",
                       family->model_types[i], family_members(its));
            ck_ok(load_config(&c, buf_text(&changes), NULL));
            ck_assert_ptr_eq(c.family, family);
            buf_free(&changes);
            known++;
        }
    }
    ck_assert_int_ge(known, 15);
}
END_TEST

#define EAGLE(members) "{\"num_hidden_layers\": 1, \"draft_vocab_size\": 16, " members "}"

/* Whatever architecture their files name. */
START_TEST(heads_with_files_of_their_own_are_known_by_their_vocabulary)
{
    struct model_config c;
    ck_ok(load_config(&c, EAGLE("\"norm_before_residual\": true, \"target_hidden_size\": 64"), NULL));
    ck_assert_str_eq(c.architecture, "LlamaForCausalLMEagle3");
    ck_assert(c.drafter.is_there && c.drafter.norms_residual && c.drafter.target_width == 64 &&
              c.drafter.head_vocab == 16);
    ck_assert_int_eq(c.drafter.taps[0], -1);
    ck_ok(load_config(&c, EAGLE("\"target_hidden_size\": null, \"eagle_aux_hidden_state_layer_ids\": null"), NULL));
    ck_assert(c.drafter.taps[0] == -1 && c.drafter.target_width == c.width);
    ck_ok(load_config(&c, EAGLE("\"eagle_aux_hidden_state_layer_ids\": [1, 5, 9]"), NULL));
    ck_assert(c.drafter.taps[0] == 1 && c.drafter.taps[1] == 5 && c.drafter.taps[2] == 9 && !c.drafter.norms_residual);
    ck_ok(load_config(&c, EAGLE("\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, 5, 9]}"), NULL));
    ck_assert(c.drafter.taps[0] == 2 && c.drafter.taps[1] == 6 && c.drafter.taps[2] == 10);
    refuse_config(EAGLE("\"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": 5}"), ERR_FORMAT, "is no list");
    refuse_config(EAGLE("\"eagle_aux_hidden_state_layer_ids\": [1, 5]"), ERR_FORMAT, "is no list of 3 layers");
    refuse_config(EAGLE("\"eagle_aux_hidden_state_layer_ids\": [1, 5, 7, 9]"), ERR_FORMAT, "is no list of 3 layers");
    refuse_config(EAGLE("\"eagle_aux_hidden_state_layer_ids\": [1, \"a\", 7]"), ERR_FORMAT, "is no list of 3 layers");
    refuse_config(EAGLE("\"eagle_config\": {\"use_aux_hidden_state\": false}"), ERR_UNSUPPORTED,
                  "use_aux_hidden_state false");
    refuse_config("{\"num_hidden_layers\": 2, \"draft_vocab_size\": 16}", ERR_UNSUPPORTED, "2 layers");
    refuse_config("{\"num_hidden_layers\": 1, \"draft_vocab_size\": 99999999}", ERR_FORMAT, "draft_vocab_size");
}
END_TEST

#define OF(architecture, type) "{\"architectures\": [\"" architecture "\"], \"model_type\": \"" type "\", "

START_TEST(what_newer_families_may_have_and_duet_has_not_is_refused_by_name)
{
    struct model_config c;
    refuse_config(OF("Glm4MoeForCausalLM", "glm4_moe") "\"n_group\": 4, \"topk_group\": 2}", ERR_UNSUPPORTED,
                  "topk_group 2 of 4");
    refuse_config(OF("Glm4MoeForCausalLM", "glm4_moe") "\"n_group\": 1}", ERR_FORMAT, "num_local_experts");
    refuse_config(OF("Qwen3_5ForCausalLM", "qwen3_5_text") "\"attn_output_gate\": false}", ERR_UNSUPPORTED,
                  "attn_output_gate");
    refuse_config(OF("Qwen3_5ForCausalLM", "qwen3_5_text") "\"layer_types\": [\"mamba\"]}", ERR_UNSUPPORTED,
                  "layer type 'mamba'");
    refuse_config(OF("Qwen3_5ForCausalLM", "qwen3_5_text") "\"linear_num_value_heads\": 24}", ERR_FORMAT,
                  "linear_num_value_heads 24 is no multiple");
    refuse_config(OF("Qwen3_5ForCausalLM", "qwen3_5_text") "\"linear_key_head_dim\": 20}", ERR_UNSUPPORTED,
                  "20 and 128 dimensions");
    refuse_config(OF("Qwen3NextForCausalLM", "qwen3_next") "\"linear_value_head_dim\": 256}", ERR_FORMAT,
                  "linear_value_head_dim");
    refuse_config(OF("OlmoeForCausalLM", "olmoe") "\"clip_qkv\": 8.0}", ERR_UNSUPPORTED, "clip_qkv");
    refuse_config(OF("SeedOssForCausalLM", "seed_oss") "\"attention_out_bias\": true}", ERR_UNSUPPORTED,
                  "attention_out_bias");
    refuse_config(OF("Ernie4_5ForCausalLM", "ernie4_5") "\"use_bias\": true}", ERR_UNSUPPORTED, "use_bias");
    refuse_config(OF("SmolLM3ForCausalLM", "smollm3") "\"no_rope_layers\": [1, 0]}", ERR_FORMAT,
                  "no_rope_layers has 2 entries, expected 3");
    refuse_config(OF("SmolLM3ForCausalLM", "smollm3") "\"no_rope_layers\": [1, 0, 2]}", ERR_FORMAT,
                  "something else than 0 and 1");
    /* As transformers saves it; other models are no Llamas for that. */
    ck_ok(load_config(&c, OF("LlamaForCausalLM", "exaone") "\"head_dim\": 16}", NULL));
    ck_assert_ptr_eq(c.family, &family_exaone);
    refuse_config(OF("LlamaForCausalLM", "exaone4") "\"head_dim\": 16}", ERR_UNSUPPORTED,
                  "model_type 'exaone4' is not supported with architecture LlamaForCausalLM");
    refuse_config(OF("ExaoneForCausalLM", "exaone") "\"hidden_act\": \"absent\", \"activation_function\": \"gelu\"}",
                  ERR_UNSUPPORTED, "activation_function 'gelu'");
    refuse_config(OF("ExaoneForCausalLM", "exaone") "\"layer_norm_epsilon\": -1}", ERR_FORMAT, "layer_norm_epsilon -1");
    refuse_config(OF("MiniCPMForCausalLM", "minicpm") "\"sparse_config\": {\"topk\": 64}}", ERR_UNSUPPORTED,
                  "sparse_config");
    refuse_config(OF("MiniCPMForCausalLM", "minicpm") "\"num_experts\": 8}", ERR_UNSUPPORTED, "with experts");
    refuse_config(OF("Exaone4ForCausalLM", "exaone4") "\"sliding_window_pattern\": \"LXG\"}", ERR_FORMAT, "'LXG'");
    refuse_config(OF("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense") "\"rope_scaling\": {\"alpha\": -1}}", ERR_FORMAT,
                  "'alpha' is -1");
    refuse_config(OF("Ministral3ForCausalLM", "ministral3") "\"rope_theta\": 10000}", ERR_FORMAT, "rope_parameters");
    refuse_config(OF("Ministral3ForCausalLM", "ministral3") "\"partial_rotary_factor\": 0.5, \"rope_scaling\": "
                                                            "{\"rope_type\": \"yarn\", \"factor\": 2, "
                                                            "\"llama_4_scaling_beta\": 0.1}}",
                  ERR_UNSUPPORTED, "llama_4_scaling_beta");
}
END_TEST

#define GRANITE4(members)                                 \
    OF("GraniteMoeHybridForCausalLM", "granitemoehybrid") \
    "\"num_local_experts\": 0, \"mamba_d_state\": 16, " members "}"
#define MIXED "\"layer_types\": [\"mamba\", \"attention\", \"linear_attention\"], \"shared_intermediate_size\": 8"

START_TEST(recurrent_layers_of_granite_4_are_of_the_shapes_that_duet_has)
{
    struct model_config c;
    const struct recurrent_config *r = &c.recurrent;
    ck_ok(load_config(&c, GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"time_step_limit\": [0.0, 1e999]"), NULL));
    ck_assert(c.layer[0].is_recurrent && !c.layer[1].is_recurrent && c.layer[2].is_recurrent && c.ropes == 1);
    ck_assert(r->rule == RULE_DECAY && r->value_heads == 4 && r->value_dim == c.width / 2 && r->key_heads == 1);
    ck_assert(r->key_dim == 16 && r->taps == 4 && r->conv_has_bias);
    ck_ok(load_config(&c, GRANITE4("\"shared_intermediate_size\": 8, \"mamba_n_heads\": 4"), NULL));
    ck_assert(c.layer[0].is_recurrent && c.layer[1].is_recurrent && c.layer[2].is_recurrent);
    refuse_config(GRANITE4("\"layer_types\": [\"attention\", \"conv\"]"), ERR_UNSUPPORTED, "layers of type 'conv'");
    refuse_config(GRANITE4("\"layer_types\": [\"attention\"]"), ERR_FORMAT, "1 entries, expected 3");
    refuse_config(GRANITE4("\"mamba_n_heads\": 4"), ERR_FORMAT, "shared_intermediate_size");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"num_local_experts\": 4"), ERR_FORMAT,
                  "num_experts_per_tok");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 3"), ERR_FORMAT, "mamba_n_heads 3 times");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"mamba_d_head\": 8"), ERR_FORMAT, "mamba_d_head 8");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"mamba_n_groups\": 3"), ERR_FORMAT, "mamba_n_groups 3");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"mamba_d_state\": 256"), ERR_UNSUPPORTED,
                  "states of 256 by");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"mamba_d_conv\": 8"), ERR_FORMAT, "mamba_d_conv");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"mamba_proj_bias\": true"), ERR_UNSUPPORTED,
                  "mamba_proj_bias");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"time_step_limit\": [0.001, 1e999]"), ERR_UNSUPPORTED,
                  "time_step_limit");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"time_step_limit\": [0.0, 0.1]"), ERR_UNSUPPORTED,
                  "time_step_limit");
    refuse_config(GRANITE4(MIXED ", \"mamba_n_heads\": 4, \"time_step_limit\": 1"), ERR_FORMAT, "time_step_limit");
}
END_TEST

#define LFM2(members) OF("Lfm2ForCausalLM", "lfm2") members "}"

START_TEST(short_convolutions_of_lfm2_stand_where_no_attention_does)
{
    struct model_config c;
    ck_ok(load_config(&c, LFM2("\"full_attn_idxs\": [1], \"conv_L_cache\": 4, \"block_ff_dim\": 6656"), NULL));
    ck_assert(c.layer[0].is_recurrent && !c.layer[1].is_recurrent && c.layer[2].is_recurrent && c.tied);
    ck_assert(c.recurrent.rule == RULE_NONE && c.recurrent.taps == 4 && c.recurrent.value_dim == c.width);
    ck_assert(c.hidden == 4608 && c.layer[2].hidden == 4608 && c.qk_norm && c.rope[0].theta == 1000000);
    ck_ok(load_config(&c,
                      LFM2("\"layer_types\": [\"full_attention\", \"conv\", \"full_attention\"], "
                           "\"tie_embedding\": false, \"block_ff_dim\": 100, "
                           "\"block_ffn_dim_multiplier\": 1.5, \"block_multiple_of\": 4"),
                      NULL));
    ck_assert(!c.layer[0].is_recurrent && c.layer[1].is_recurrent && !c.tied && c.hidden == 100);
    ck_ok(load_config(&c, LFM2("\"block_ff_dim\": 100, \"block_auto_adjust_ff_dim\": false"), NULL));
    ck_assert(c.hidden == 100 && !c.layer[0].is_recurrent && c.recurrent.value_heads == 0);
    refuse_config(LFM2("\"conv_bias\": true"), ERR_UNSUPPORTED, "conv_bias");
    refuse_config(LFM2("\"conv_L_cache\": 5"), ERR_FORMAT, "conv_L_cache");
    refuse_config(LFM2("\"full_attn_idxs\": 2"), ERR_FORMAT, "'full_attn_idxs' is no list");
    refuse_config(LFM2("\"full_attn_idxs\": [\"1\"]"), ERR_FORMAT, "no list of layers");
    refuse_config(LFM2("\"layer_types\": [\"sliding_attention\"]"), ERR_UNSUPPORTED, "'sliding_attention'");
    refuse_config(LFM2("\"block_ffn_dim_multiplier\": 0"), ERR_FORMAT, "block_ffn_dim_multiplier 0");
    refuse_config(OF("Lfm2MoeForCausalLM", "lfm2_moe") "\"num_experts_per_tok\": 2}", ERR_FORMAT, "num_experts");
    refuse_config(OF("Lfm2MoeForCausalLM", "lfm2_moe") "\"num_experts\": 8, \"num_experts_per_tok\": 2, "
                                                       "\"moe_intermediate_size\": 8, \"use_expert_bias\": false}",
                  ERR_UNSUPPORTED, "use_expert_bias");
}
END_TEST

#define NEMOTRON(members) OF("NemotronHForCausalLM", "nemotron_h") members "}"
#define NEMOTRON_EXPERTS                                                                  \
    "\"num_experts_per_tok\": 2, \"n_routed_experts\": 4, \"moe_intermediate_size\": 8, " \
    "\"moe_shared_expert_intermediate_size\": 24, \"routed_scaling_factor\": 2.5"

START_TEST(layers_of_nemotron_h_are_one_sublayer_each)
{
    struct model_config c;
    const struct layer_config *l = c.layer;
    ck_ok(load_config(
        &c, NEMOTRON("\"hybrid_override_pattern\": \"M*-E\", \"sliding_window\": null, " NEMOTRON_EXPERTS), NULL));
    ck_assert(c.layers == 4 && c.activation == ACTIVATION_RELU2 && c.ropes == 1);
    ck_assert(l[0].is_recurrent && !l[0].has_no_mixer && l[0].has_no_mlp);
    ck_assert(!l[1].is_recurrent && !l[1].has_no_mixer && l[1].has_no_mlp);
    ck_assert(l[2].has_no_mixer && !l[2].has_no_mlp && !l[2].has_experts && l[2].hidden == c.hidden);
    ck_assert(l[3].has_no_mixer && !l[3].has_no_mlp && l[3].has_experts && l[3].hidden == 24);
    ck_assert(c.recurrent.rule == RULE_DECAY && c.recurrent.value_heads == 128 && c.recurrent.key_heads == 8);
    ck_assert(c.recurrent.value_dim == 64 && c.recurrent.key_dim == 128 && c.recurrent.taps == 4);
    ck_assert(c.experts_scale == 2.5f && c.router_scores == SCORES_SIGMOID);
    ck_ok(load_config(&c,
                      NEMOTRON("\"layers_block_type\": [\"mamba\", \"full_attention\", \"mlp\", \"linear_attention\", "
                               "\"attention\"], \"num_nextn_predict_layers\": 1"),
                      NULL));
    ck_assert(c.next_layers == 1 && c.mtp_heads == 0);
    ck_assert(c.layers == 5 && l[0].is_recurrent && l[2].has_no_mixer && l[3].is_recurrent && !l[4].is_recurrent);
    refuse_config(NEMOTRON("\"mlp_hidden_act\": \"relu2\""), ERR_FORMAT, "hybrid_override_pattern");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"M?\""), ERR_UNSUPPORTED, "'?'");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"\""), ERR_FORMAT, "no layer");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"ME\""), ERR_FORMAT, "num_local_experts");
    refuse_config(NEMOTRON("\"layers_block_type\": [\"conv\"]"), ERR_UNSUPPORTED, "layers of type 'conv'");
    refuse_config(NEMOTRON("\"layers_block_type\": [4]"), ERR_FORMAT, "layers_block_type");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"M\", \"mlp_hidden_act\": \"silu\""), ERR_UNSUPPORTED,
                  "mlp_hidden_act");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"E\", \"moe_latent_size\": 16, " NEMOTRON_EXPERTS),
                  ERR_UNSUPPORTED, "moe_latent_size");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"E\", \"n_group\": 4, \"topk_group\": 1, " NEMOTRON_EXPERTS),
                  ERR_UNSUPPORTED, "topk_group 1 of 4");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"M\", \"use_bias\": true"), ERR_UNSUPPORTED, "use_bias");
    refuse_config(NEMOTRON("\"hybrid_override_pattern\": \"M\", \"n_groups\": 3"), ERR_FORMAT, "n_groups 3");
}
END_TEST

START_TEST(norms_that_take_the_mean_away_are_those_of_their_families)
{
    struct model_config c;
    ck_ok(load_config(&c, OF("CohereForCausalLM", "cohere") "\"layer_norm_eps\": 1e-3}", NULL));
    ck_assert(c.norms_centre && !c.norms_have_bias && c.sublayers_are_parallel && c.rope[0].pairs_neighbours);
    ck_assert(c.logits_scale == 0.0625f && c.norm_eps == 1e-3f && c.ropes == 1 && c.layer[0].window == 0);
    ck_ok(load_config(&c,
                      OF("Cohere2ForCausalLM", "cohere2") "\"sliding_window_pattern\": 3, \"logit_scale\": 0.5, "
                                                          "\"attention_bias\": true}",
                      NULL));
    ck_assert(c.layer[0].window == 4096 && c.layer[1].window == 4096 && c.layer[2].window == 0);
    ck_assert(c.layer[0].rope == 0 && c.layer[2].rope == 1 && c.qkv_bias && c.logits_scale == 0.5f);
    refuse_config(OF("CohereForCausalLM", "cohere") "\"use_qk_norm\": true}", ERR_UNSUPPORTED, "use_qk_norm");
    ck_ok(load_config(&c,
                      OF("Starcoder2ForCausalLM", "starcoder2") "\"sliding_window\": 8, \"hidden_act\": "
                                                                "\"gelu_pytorch_tanh\"}",
                      NULL));
    ck_assert(c.norms_centre && c.norms_have_bias && c.qkv_bias && c.tied && c.layer[2].window == 8);
    ck_assert(c.activation == ACTIVATION_GELU && !c.sublayers_are_parallel);
    refuse_config(OF("Starcoder2ForCausalLM", "starcoder2") "\"hidden_act\": \"gelu\"}", ERR_UNSUPPORTED, "hidden_act");
    ck_ok(load_config(&c, OF("NemotronForCausalLM", "nemotron") "\"hidden_act\": \"relu2\"}", NULL));
    ck_assert(c.norms_centre && c.activation == ACTIVATION_RELU2 && c.rope[0].dims * 2 == c.head_dim);
    refuse_config(OF("NemotronForCausalLM", "nemotron") "\"hidden_act\": \"relu2\", \"mlp_bias\": true}",
                  ERR_UNSUPPORTED, "mlp_bias");
    ck_ok(load_config(&c, OF("StableLmForCausalLM", "stablelm") "\"use_parallel_residual\": true}", NULL));
    ck_assert(c.norms_have_bias && c.sublayers_are_parallel && !c.qkv_bias);
    refuse_config(OF("StableLmForCausalLM", "stablelm") "\"qk_layernorm\": true}", ERR_UNSUPPORTED, "qk_layernorm");
}
END_TEST

START_TEST(layers_that_turn_no_heads_have_a_rope_of_their_own)
{
    struct model_config c;
    float table[2 * 16];
    ck_ok(load_config(&c, OF("SmolLM3ForCausalLM", "smollm3") "\"no_rope_layers\": [1, 0, 1]}", NULL));
    ck_assert(c.ropes == 2 && c.layer[0].rope == 0 && c.layer[1].rope == 1 && c.layer[2].rope == 0);
    model_config_rope(&c.rope[1], 2, 0, table);
    for (int i = 0; i < 32; i++) ck_assert(table[i] == (i % 2 == 0));
    ck_ok(load_config(&c, OF("SmolLM3ForCausalLM", "smollm3") "\"no_rope_layers\": [1, 1, 1, 0]}", NULL));
    ck_assert(c.ropes == 1);
    ck_ok(load_config(&c, OF("Exaone4ForCausalLM", "exaone4") "\"sliding_window_pattern\": \"LG\"}", NULL));
    ck_assert(c.ropes == 2 && c.layer[0].window == 4096 && c.layer[1].window == 0 && c.layer[2].window == 0);
    ck_assert(c.layer[0].rope == 0 && c.layer[1].rope == 1 && c.layer[2].rope == 1);
    ck_ok(load_config(&c, OF("Exaone4ForCausalLM", "exaone4") "\"sliding_window\": null}", NULL));
    ck_assert(c.ropes == 1 && c.layer[0].window == 0);
}
END_TEST

Suite *check_config_families(void) {
    Suite *suite = suite_create("config_families");
    TCase *tc = tcase_create("config_families");
    tcase_add_test(tc, families_are_known_by_architecture_or_model_type);
    tcase_add_test(tc, heads_with_files_of_their_own_are_known_by_their_vocabulary);
    tcase_add_test(tc, what_newer_families_may_have_and_duet_has_not_is_refused_by_name);
    tcase_add_test(tc, recurrent_layers_of_granite_4_are_of_the_shapes_that_duet_has);
    tcase_add_test(tc, short_convolutions_of_lfm2_stand_where_no_attention_does);
    tcase_add_test(tc, layers_of_nemotron_h_are_one_sublayer_each);
    tcase_add_test(tc, norms_that_take_the_mean_away_are_those_of_their_families);
    tcase_add_test(tc, layers_that_turn_no_heads_have_a_rope_of_their_own);
    suite_add_tcase(suite, tc);
    return suite;
}
