#!/usr/bin/env python3
"""Writes the references beside it, NAME.json, by transformers in float32: configurations of tiny models, what their tensors are called,
and the logits and greedy tokens that their weights give. Weights are numbers of a tensor's name (number_of), so no file holds them:
tests/model/check_families.c makes the same.

    pip install torch transformers
    tests/model/families/make.py [NAME...]
"""
import copy
import json
import math
import os
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPTS, LENGTH, GREEDY = 64, 20, 32
MASK = (1 << 64) - 1

ROPE3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
         "rope_type": "llama3"}
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16, "beta_fast": 32.0, "beta_slow": 1.0,
        "attention_factor": 1.2079441541679836}
GEMMA4_ROPE = {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
               "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}
BASE = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 256, "torch_dtype": "bfloat16",
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def case(architecture, model_type, **members):
    return {"architectures": [architecture], "model_type": model_type, **BASE, **members}


# As released files have them, gaps included.
CASES = {
    "smollm3": case("SmolLM3ForCausalLM", "smollm3", rms_norm_eps=1e-6, rope_theta=50000.0, tie_word_embeddings=True,
                    no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4, attention_bias=False, mlp_bias=False,
                    use_sliding_window=False, sliding_window=None, layer_types=["full_attention"] * 4,
                    max_window_layers=28),
    "smollm3-windows": case("SmolLM3ForCausalLM", "smollm3", rms_norm_eps=1e-6, no_rope_layer_interval=2,
                            use_sliding_window=True, sliding_window=8),
    "ministral3": case("Ministral3ForCausalLM", "ministral3", head_dim=16, rms_norm_eps=1e-5, sliding_window=None,
                       rope_parameters={"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                                        "llama_4_scaling_beta": 0.5, "mscale": 1.0, "mscale_all_dim": 1.0,
                                        "original_max_position_embeddings": 8, "rope_theta": 1000000.0,
                                        "rope_type": "yarn", "type": "yarn"}),
    "seed-oss": case("SeedOssForCausalLM", "seed_oss", attention_bias=True, attention_out_bias=False, mlp_bias=False,
                     head_dim=16, rms_norm_eps=1e-6, rope_theta=10000000.0, rope_scaling={"rope_type": "default"}),
    "ernie4_5": case("Ernie4_5ForCausalLM", "ernie4_5", head_dim=16, rms_norm_eps=1e-5, rope_theta=500000.0,
                     use_bias=False, rope_scaling=None, tie_word_embeddings=True),
    "minicpm": case("MiniCPMForCausalLM", "minicpm", rms_norm_eps=1e-05, tie_word_embeddings=False, scale_emb=12,
                    scale_depth=1.4, dim_model_base=8, mup_denominator=4,
                    rope_scaling={"rope_type": "longrope", "long_factor": [1.5, 2.0, 4.0, 8.0],
                                  "short_factor": [1.0, 1.25, 1.5, 2.0], "original_max_position_embeddings": 256}),
    "exaone": {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "vocab_size": 96, "hidden_size": 32,
               "intermediate_size": 48, "num_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 8, "activation_function": "silu", "layer_norm_epsilon": 1e-05, "rope_theta": 1000000,
               "rope_scaling": ROPE3, "max_position_embeddings": 256, "tie_word_embeddings": True,
               "torch_dtype": "bfloat16", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "exaone4": case("Exaone4ForCausalLM", "exaone4", head_dim=8, rms_norm_eps=1e-5, rope_theta=1000000,
                    rope_scaling=ROPE3, sliding_window=8, sliding_window_pattern="LLLG",
                    layer_types=["sliding_attention"] * 3 + ["full_attention"]),
    "exaone4-full": case("Exaone4ForCausalLM", "exaone4", head_dim=8, rms_norm_eps=1e-5, rope_theta=1000000,
                         rope_scaling=ROPE3, sliding_window=None, sliding_window_pattern=None,
                         layer_types=["full_attention"] * 4, tie_word_embeddings=True),
    "hunyuan": case("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", head_dim=16, attention_head_dim=16,
                    attention_bias=False, mlp_bias=False, rms_norm_eps=1e-5, rope_theta=10000.0, use_qk_norm=True,
                    use_cla=False, tie_word_embeddings=True,
                    rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                                  "mscale_all_dim": 0.0, "type": "dynamic"}),
    "gemma": case("GemmaForCausalLM", "gemma", hidden_act="gelu", hidden_activation=None, head_dim=16,
                  rms_norm_eps=1e-6, rope_theta=10000.0, rope_scaling=None, num_key_value_heads=1),
    "glm": case("GlmForCausalLM", "glm", attention_bias=True, head_dim=16, rms_norm_eps=1.5625e-7,
                rope_theta=10000.0, partial_rotary_factor=0.5),
    "ernie4_5-moe": case("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", rms_norm_eps=1e-5, rope_theta=500000.0,
                         use_bias=False, rope_scaling=None, tie_word_embeddings=True, moe_intermediate_size=16,
                         moe_k=3, moe_num_experts=8, moe_num_shared_experts=2, moe_layer_start_index=1,
                         moe_layer_end_index=3, moe_layer_interval=1, moe_use_aux_free=True,
                         num_nextn_predict_layers=0),
    "glm4-moe": case("Glm4MoeForCausalLM", "glm4_moe", attention_bias=True, head_dim=8, rms_norm_eps=1e-5,
                     rope_theta=1000000, rope_scaling=None, partial_rotary_factor=0.5, moe_intermediate_size=16,
                     n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=1, topk_group=1,
                     routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True,
                     num_nextn_predict_layers=1, use_qk_norm=False),
    "glm4-moe-norms": case("Glm4MoeForCausalLM", "glm4_moe", attention_bias=True, head_dim=16, rms_norm_eps=1e-5,
                           rope_theta=1000000, rope_scaling=None, partial_rotary_factor=0.5,
                           moe_intermediate_size=32, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
                           n_group=1, topk_group=1, routed_scaling_factor=1.0, first_k_dense_replace=2,
                           norm_topk_prob=True, num_nextn_predict_layers=1, use_qk_norm=True),
    "olmo3": case("Olmo3ForCausalLM", "olmo3", attention_bias=False, rms_norm_eps=1e-6, rope_theta=500000,
                  rope_scaling=YARN, sliding_window=8,
                  layer_types=["sliding_attention"] * 3 + ["full_attention"]),
    "olmoe": case("OlmoeForCausalLM", "olmoe", attention_bias=False, clip_qkv=None, norm_topk_prob=False,
                  num_experts=8, num_experts_per_tok=3, rms_norm_eps=1e-5, rope_theta=10000.0, rope_scaling=None,
                  num_hidden_layers=2, intermediate_size=32),
    "granite-moe": case("GraniteMoeForCausalLM", "granitemoe", attention_bias=False, attention_multiplier=0.125,
                        embedding_multiplier=12.0, logits_scaling=6.0, residual_multiplier=0.22,
                        num_local_experts=6, num_experts_per_tok=2, rms_norm_eps=1e-6, rope_theta=10000.0,
                        rope_scaling=None, tie_word_embeddings=True, num_hidden_layers=3, intermediate_size=32),
    "granite4": case("GraniteMoeHybridForCausalLM", "granitemoehybrid", attention_bias=False,
                     attention_multiplier=0.125, embedding_multiplier=12, logits_scaling=4, residual_multiplier=0.22,
                     num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
                     shared_intermediate_size=48, layer_types=["attention"] * 4, rms_norm_eps=1e-5,
                     rope_theta=10000000, rope_scaling=None, tie_word_embeddings=True, mamba_n_heads=8,
                     mamba_d_head=8, mamba_expand=2, mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=4,
                     normalization_function="rmsnorm", output_router_logits=False),
    "granite4-still": case("GraniteMoeHybridForCausalLM", "granitemoehybrid", attention_bias=False,
                           attention_multiplier=0.125, embedding_multiplier=12, logits_scaling=4,
                           residual_multiplier=0.22, num_local_experts=0, num_experts_per_tok=0,
                           position_embedding_type="nope", shared_intermediate_size=48, intermediate_size=64,
                           layer_types=["attention"] * 3, num_hidden_layers=3, rms_norm_eps=1e-5, rope_scaling=None,
                           tie_word_embeddings=True, mamba_n_heads=8, mamba_d_head=8, mamba_expand=2,
                           mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=4),
    "granite4-h": case("GraniteMoeHybridForCausalLM", "granitemoehybrid", attention_bias=False,
                       attention_multiplier=0.125, embedding_multiplier=12, logits_scaling=4, residual_multiplier=0.22,
                       num_local_experts=0, num_experts_per_tok=0, position_embedding_type="nope",
                       shared_intermediate_size=48, layer_types=["mamba", "mamba", "attention", "mamba"],
                       rms_norm_eps=1e-5, rope_theta=10000, rope_scaling=None, tie_word_embeddings=True,
                       mamba_n_heads=8, mamba_d_head=8, mamba_expand=2, mamba_d_state=16, mamba_n_groups=2,
                       mamba_d_conv=4, mamba_conv_bias=True, mamba_proj_bias=False),
    "granite4-h-moe": case("GraniteMoeHybridForCausalLM", "granitemoehybrid", attention_bias=False,
                           attention_multiplier=0.125, embedding_multiplier=12, logits_scaling=4,
                           residual_multiplier=0.22, num_local_experts=6, num_experts_per_tok=2,
                           position_embedding_type="rope", shared_intermediate_size=40, intermediate_size=24,
                           layer_types=["mamba", "attention", "mamba"], num_hidden_layers=3, rms_norm_eps=1e-5,
                           rope_theta=10000, rope_scaling=None, tie_word_embeddings=False, mamba_n_heads=2,
                           mamba_d_head="auto", mamba_expand=3, mamba_d_state=40, mamba_n_groups=1, mamba_d_conv=3,
                           mamba_conv_bias=False, mamba_proj_bias=False),
    "lfm2": case("Lfm2ForCausalLM", "lfm2", conv_L_cache=3, conv_bias=False, norm_eps=1e-5, rope_theta=1000000.0,
                 block_auto_adjust_ff_dim=True, block_ff_dim=60, block_ffn_dim_multiplier=1.1, block_multiple_of=16,
                 full_attn_idxs=[1, 3], num_heads=4, use_pos_enc=True, tie_embedding=True),
    "lfm2-moe": case("Lfm2MoeForCausalLM", "lfm2_moe", conv_L_cache=4, conv_bias=False, norm_eps=1e-5,
                     rope_parameters={"rope_theta": 5000000.0, "rope_type": "default"}, num_dense_layers=1,
                     num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                     routed_scaling_factor=1.5, use_expert_bias=True, tie_word_embeddings=False,
                     layer_types=["conv", "conv", "full_attention", "conv"]),
    "nemotron-h": case("NemotronHForCausalLM", "nemotron_h", hybrid_override_pattern="ME*-MM*E", num_hidden_layers=8,
                       head_dim=16, layer_norm_epsilon=1e-5, mlp_hidden_act="relu2", mamba_hidden_act="silu",
                       attention_bias=False, mlp_bias=False, use_bias=False, use_conv_bias=True, mamba_proj_bias=False,
                       mamba_num_heads=6, mamba_head_dim=16, n_groups=3, ssm_state_size=24, conv_kernel=4, expand=2,
                       n_routed_experts=8, num_experts_per_tok=3, n_group=1,
                       topk_group=1, n_shared_experts=1, moe_intermediate_size=24,
                       moe_shared_expert_intermediate_size=40, norm_topk_prob=True, routed_scaling_factor=2.5,
                       tie_word_embeddings=False),
    "cohere": case("CohereForCausalLM", "cohere", layer_norm_eps=1e-5, rope_theta=8000000.0, logit_scale=0.8,
                   use_qk_norm=False, attention_bias=True),
    "cohere2": case("Cohere2ForCausalLM", "cohere2", layer_norm_eps=1e-5, rope_theta=50000.0, logit_scale=0.25, head_dim=16,
                    sliding_window=8, sliding_window_pattern=2, rotary_pct=1.0, position_embedding_type="rope_gptj",
                    order_of_interleaved_layers="local_attn_first"),
    "starcoder2": case("Starcoder2ForCausalLM", "starcoder2", norm_epsilon=1e-5, rope_theta=100000.0, use_bias=True,
                       hidden_act="gelu_pytorch_tanh", mlp_type="default", norm_type="layer_norm", sliding_window=8),
    "nemotron": case("NemotronForCausalLM", "nemotron", norm_eps=1e-5, rope_theta=10000.0, hidden_act="relu2", head_dim=16,
                     partial_rotary_factor=0.5, attention_bias=False, mlp_bias=False, tie_word_embeddings=False),
    "stablelm": case("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, rope_theta=10000.0, use_qkv_bias=True,
                     partial_rotary_factor=0.5, qk_layernorm=False, use_parallel_residual=False,
                     tie_word_embeddings=False),
    "stablelm-parallel": case("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, rope_theta=10000.0,
                              partial_rotary_factor=0.25, use_parallel_residual=True, tie_word_embeddings=False),
    "qwen2-moe": case("Qwen2MoeForCausalLM", "qwen2_moe", rms_norm_eps=1e-6, rope_theta=1000000.0, use_sliding_window=False,
                      sliding_window=4096, max_window_layers=28, decoder_sparse_step=1, mlp_only_layers=[],
                      norm_topk_prob=False, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=3,
                      shared_expert_intermediate_size=40, num_key_value_heads=4),
    "qwen3-next": case("Qwen3NextForCausalLM", "qwen3_next", attention_bias=False, head_dim=16, rms_norm_eps=1e-6,
                       rope_theta=10000000, rope_scaling=None, partial_rotary_factor=0.25, full_attention_interval=4,
                       linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_value_head_dim=8, decoder_sparse_step=1,
                       mlp_only_layers=[1], norm_topk_prob=True, moe_intermediate_size=16, num_experts=8,
                       num_experts_per_tok=3, shared_expert_intermediate_size=24),
    "qwen3_5": case("Qwen3_5ForCausalLM", "qwen3_5_text", attention_bias=False, attn_output_gate=True, head_dim=16,
                    rms_norm_eps=1e-6, tie_word_embeddings=True, linear_conv_kernel_dim=3, linear_key_head_dim=48,
                    linear_num_key_heads=1, linear_num_value_heads=3, linear_value_head_dim=24,
                    layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
                    rope_parameters={"mrope_interleaved": True, "mrope_section": [1, 1, 0],
                                     "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}),
    "qwen3_5-moe": case("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", attention_bias=False, attn_output_gate=True,
                        head_dim=16, rms_norm_eps=1e-6, linear_conv_kernel_dim=4, linear_key_head_dim=8,
                        linear_num_key_heads=2, linear_num_value_heads=4, linear_value_head_dim=16,
                        full_attention_interval=2, moe_intermediate_size=16, num_experts=6, num_experts_per_tok=2,
                        shared_expert_intermediate_size=24,
                        rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 10000000,
                                         "rope_type": "default"}),
    "gemma4": case("Gemma4ForCausalLM", "gemma4_text", head_dim=16, global_head_dim=32, num_global_key_value_heads=1,
                   attention_k_eq_v=True, attention_bias=False, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                   hidden_size_per_layer_input=0, enable_moe_block=False, num_kv_shared_layers=0, use_double_wide_mlp=False,
                   final_logit_softcapping=30.0, sliding_window=8, tie_word_embeddings=True,
                   layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=GEMMA4_ROPE),
    "gemma4-moe": case("Gemma4ForCausalLM", "gemma4_text", head_dim=16, global_head_dim=32, attention_k_eq_v=False,
                       attention_bias=False, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                       hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
                       moe_intermediate_size=32, num_kv_shared_layers=0, use_double_wide_mlp=False, sliding_window=8,
                       tie_word_embeddings=True, layer_types=["sliding_attention", "full_attention"] * 2,
                       rope_parameters=GEMMA4_ROPE),
    "gemma4-e": case("Gemma4ForCausalLM", "gemma4_text", head_dim=16, global_head_dim=32, attention_k_eq_v=False,
                     attention_bias=False, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                     hidden_size_per_layer_input=8, vocab_size_per_layer_input=96, enable_moe_block=False, num_kv_shared_layers=2,
                     use_double_wide_mlp=True, final_logit_softcapping=30.0, sliding_window=8, tie_word_embeddings=True,
                     layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=GEMMA4_ROPE),
}


# Tensors that files hold beside these, and nobody reads.
IGNORED = {"ernie4_5_moe": ["model.mtp_block.0.input_layernorm.weight"]}


class HeadNames:
    """What the tensors of the head that proposes more tokens are called: its layer, what joins embedding and hidden row, norms."""

    def __init__(self, layer, join, embedding_norm, hidden_norm, norm):
        self.layer, self.join, self.embedding_norm, self.hidden_norm, self.norm = layer, join, embedding_norm, hidden_norm, norm


QWEN_HEAD = HeadNames("mtp.layers.0.", "mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight",
                      "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight")
GLM_HEAD = HeadNames("model.layers.4.", "model.layers.4.eh_proj.weight", "model.layers.4.enorm.weight",
                     "model.layers.4.hnorm.weight", "model.layers.4.shared_head.norm.weight")
GLM_ENDS = ("model.layers.4.embed_tokens.weight", "model.layers.4.shared_head.head.weight")
HEADS = {"qwen3_next": QWEN_HEAD, "qwen3_5_text": QWEN_HEAD, "qwen3_5_moe_text": QWEN_HEAD, "glm4_moe": GLM_HEAD}


def hash_of(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def mix(x):
    """splitmix64's output function."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def number_of(seed, i):
    """-1 to 127/128, of 8 bits, which bf16 holds."""
    return ((mix((seed + 0x9E3779B97F4A7C15 * (i + 1)) & MASK) >> 56) - 128) / 128


TIED = ("gemma", "smollm3", "gemma4_assistant", "cohere", "cohere2", "starcoder2")


def embedding_spread(config):
    """Small where the head is the embedding too, lest every token is followed by itself."""
    tied = config.get("tie_embedding", False) or config.get("tie_word_embeddings", config["model_type"] in TIED)
    return (0.25 if tied else 1.0) / (16 if "embedding_multiplier" in config or config["model_type"] == "gemma" else 1)


# Norms multiply by 1 + weight, but for that of linear attention.
ADD_ONE = ("gemma", "nemotron", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


def range_of(name, config, factor):
    """What a tensor's numbers are: middle + spread * number_of, of few enough bits for bf16."""
    adds_one = config["model_type"] in ADD_ONE
    if config["model_type"] == "exaone":
        name = name.replace("transformer.ln_f", "model.norm").replace(".ln_", ".norm_").replace(".wte.", ".embed_tokens.")
    if name in ("model.norm.weight", "model.embedding_norm.weight", QWEN_HEAD.norm, GLM_HEAD.norm):
        return (factor - 1, 0.0) if adds_one else (factor, factor)
    if config["model_type"] == "gemma4_text" and ("q_norm" in name or "k_norm" in name):
        return 0.25, 0.25  # nothing else scales its scores
    if name.endswith("norm.bias"):
        return 0.0, 0.5
    if "norm" in name:
        return (0.0, 0.5) if adds_one and "linear_attn" not in name else (1.0, 1.0)
    if "layer_scalar" in name:
        return 0.5, 0.5
    if "A_log" in name or "conv1d" in name or "conv.conv" in name:
        return 0.0, 1.0
    if name.endswith("mamba.D"):
        return 0.5, 0.5
    if name.endswith(("e_score_correction_bias", "expert_bias")):  # so large that bf16 would not tell them apart
        return 7.0, 0.25
    if name.endswith("bias"):
        return 0.0, 0.5
    if name.endswith("router.scale"):
        return 4.0, 4.0
    if name.endswith("per_expert_scale"):
        return 1.0, 1.0
    if "router" in name or "mlp.gate.weight" in name or "feed_forward.gate.weight" in name:
        return 0.0, 0.5
    return 0.0, (embedding_spread(config) if "embed" in name else 0.25)


def type_of(name):
    return "F32" if name.endswith(("e_score_correction_bias", "expert_bias")) else "BF16"


def make_tensor(name, shape, middle, spread):
    seed, count = hash_of(name), 1
    for n in shape:
        count *= n
    numbers = torch.tensor([middle + spread * number_of(seed, i) for i in range(count)], dtype=torch.float32)
    if type_of(name) == "F32":
        return numbers.reshape(shape)
    stored = numbers.to(torch.bfloat16)
    assert torch.equal(stored.float(), numbers), name
    return stored.reshape(shape)


def stored_shapes(config):
    """Names and shapes as files have them: what transformers saves."""
    with tempfile.TemporaryDirectory() as d:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(write_config(d, config)))
        out = os.path.join(d, "saved")
        model.save_pretrained(out)
        from safetensors import safe_open
        with safe_open(os.path.join(out, "model.safetensors"), "pt") as f:
            shapes = [(name, list(f.get_slice(name).get_shape())) for name in sorted(f.keys())]
        with open(os.path.join(out, "config.json")) as f:
            return shapes, json.load(f)


def write_config(d, config):
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(config, f)
    return d


def run(model, prompts):
    """Greedy tokens of each prompt, and the gaps between the two largest logits."""
    ids, gaps = prompts, []
    for _ in range(GREEDY):
        logits = model(ids).logits[:, -1].float()
        top = logits.topk(2, dim=-1)
        gaps.append(top.values[:, 0] - top.values[:, 1])
        ids = torch.cat([ids, top.indices[:, :1]], dim=1)
    return ids[:, prompts.shape[1]:], torch.stack(gaps, dim=1)


def router_gaps(model, config, ids, chosen):
    """Of each position the smallest distance, over layers, of the last chosen expert from the first rejected; [] without experts."""
    found = []

    def look(module, inputs, out):
        numbers = out[0].reshape(-1, out[0].shape[-1]).float()
        statics = getattr(module, "moe_statics", None)
        if hasattr(module, "e_score_correction_bias"):
            numbers = numbers.sigmoid() + module.e_score_correction_bias
        elif config["model_type"] == "lfm2_moe":
            numbers = numbers.sigmoid() + inputs[1]
        elif statics is not None:
            numbers = statics(numbers.softmax(dim=-1))
        top = numbers.topk(chosen + 1, dim=-1).values
        found.append(top[:, -2] - top[:, -1])

    hooks = [m.register_forward_hook(look) for n, m in model.named_modules()
             if type(m).__name__.endswith(("TopKRouter", "TopkRouter", "TextRouter"))]
    model(ids)
    for h in hooks:
        h.remove()
    return [float("%.4g" % x) for x in torch.stack(found).min(dim=0).values.tolist()] if found else []


def reference(model, config, prompt):
    greedy, gaps = run(model, prompt)
    logits = model(prompt).logits[0].float()
    rounded = [[float("%.6g" % x) for x in row] for row in (logits[-1].tolist(), model(prompt[:, :1]).logits[0, -1].tolist())]
    r = {"prompt": prompt[0].tolist(), "logits_last": rounded[0], "logits_first": rounded[1],
         "greedy": greedy[0].tolist(), "gaps": [float("%.4g" % g) for g in gaps[0].tolist()]}
    r["min_top2_gap"] = min(r["gaps"])
    gaps = router_gaps(model, config, torch.cat([prompt, greedy], dim=1), config.get("num_experts_per_tok", config.get("moe_k", config.get("top_k_experts", 0))))
    if gaps:
        r["router_gap_prompt"], r["router_gaps"] = min(gaps[:LENGTH]), gaps[LENGTH - 1:-1]
    return r


def load(config, tensors, instead={}):
    """instead: of whose numbers those of a tensor are, where not of its own name's."""
    with tempfile.TemporaryDirectory() as d:
        write_config(d, config)
        save_file({n: make_tensor(*instead.get(n, (n, s, m, sp))) for n, s, m, sp, _ in tensors},
                  os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
        model, info = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager",
                                                           output_loading_info=True)
        assert not any(info.get(k) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return model.eval()


def last_attention(config, model):
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"] * config["num_hidden_layers"]
    return max(i for i, kind in enumerate(kinds) if kind != "linear_attention")


class Head:
    """The head, of transformers' own layer and norm: row i reads the embedding of token i + 1 and the normed hidden row i."""

    def __init__(self, config, model, tensors, factor, own_ends):
        self.names, self.layer, width = HEADS[config["model_type"]], last_attention(config, model), config["hidden_size"]
        prefix = "model.layers.%d." % self.layer
        shapes = [(self.names.layer + n[len(prefix):], s) for n, s, *_ in tensors if n.startswith(prefix)]
        shapes += [(n, [width]) for n in (self.names.embedding_norm, self.names.hidden_norm, self.names.norm)]
        shapes.append((self.names.join, [width, 2 * width]))
        shapes += [(n, [config["vocab_size"], width]) for n in own_ends]
        self.tensors = [[n, s, *range_of(n, config, factor), type_of(n)] for n, s in shapes]
        own = {t[0]: t[:4] for t in self.tensors}
        instead = {n: own[self.names.layer + n[len(prefix):]] for n, *_ in tensors if n.startswith(prefix)}
        instead["model.norm.weight"] = own[self.names.norm]
        instead.update({n: own[o] for n, o in zip(("model.embed_tokens.weight", "lm_head.weight"), own_ends)})
        self.model = load(config, tensors, instead)
        self.join = make_tensor(*own[self.names.join]).float()
        self.norms = [self.make_norm(own[n]) for n in (self.names.embedding_norm, self.names.hidden_norm)]

    def make_norm(self, tensor):
        norm = copy.deepcopy(self.model.model.norm)
        norm.weight.data = make_tensor(*tensor).float()
        return norm

    def __call__(self, ids, hidden):
        """Normed outputs [1, n, D] of rows that read tokens ids [1, n] and hidden [1, n, D]."""
        body, n = self.model.model, ids.shape[1]
        x = torch.cat([self.norms[0](body.embed_tokens(ids)), self.norms[1](hidden)], dim=-1) @ self.join.T
        positions = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        out = body.layers[self.layer](x, position_embeddings=body.rotary_emb(x, positions), attention_mask=mask,
                                      position_ids=positions)
        return body.norm(out[0] if isinstance(out, tuple) else out)


    def hidden(self, model, ids):
        """The rows that it reads of the model, [1, n, D]."""
        return model.model(ids).last_hidden_state.float()

    def logits(self, out):
        return self.model.lm_head(out)

    def id_at(self, place):
        return place


class Eagle:
    """EAGLE-3 for a model: a layer of a Llama whose attention reads the normed embedding beside the normed hidden row, which is made of
    rows before three of that model's layers; the next row is its output before the last norm."""

    def __init__(self, config, model, of, form):
        """form: how its configuration and its tensors are written, what it does with the residual, which ids it proposes."""
        width, self.form, self.of = config["hidden_size"], form, model
        layer, vocab = form["layer"], len(form["ids"]) if form["ids"] else config["vocab_size"]
        q, kv = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
        shapes = [["fc.weight", [width, 3 * width]], ["norm.weight", [width]], ["lm_head.weight", [vocab, width]],
                  [layer + "hidden_norm.weight", [width]], [layer + "input_layernorm.weight", [width]],
                  [layer + "post_attention_layernorm.weight", [width]],
                  [layer + "self_attn.q_proj.weight", [q, 2 * width]], [layer + "self_attn.k_proj.weight", [kv, 2 * width]],
                  [layer + "self_attn.v_proj.weight", [kv, 2 * width]], [layer + "self_attn.o_proj.weight", [width, q]],
                  [layer + "mlp.gate_proj.weight", [config["intermediate_size"], width]],
                  [layer + "mlp.up_proj.weight", [config["intermediate_size"], width]],
                  [layer + "mlp.down_proj.weight", [width, config["intermediate_size"]]]]
        if form["embeds"]:
            shapes.append(["embed_tokens.weight", [config["vocab_size"], width]])
        self.tensors = [[n, s, *range_of(n, config, 2.0), type_of(n)] for n, s in shapes]
        self.weights = {t[0]: make_tensor(*t[:4]).float() for t in self.tensors}
        llama = LlamaConfig(**config)
        llama._attn_implementation = "eager"
        self.layer, self.rotary = LlamaDecoderLayer(llama, 0), LlamaRotaryEmbedding(llama)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(self.layer.self_attn, name, torch.nn.Linear(2 * width, 1, bias=False))
        for name, parameter in self.layer.named_parameters():
            parameter.data = self.weights[layer + name]
        self.eps = config["rms_norm_eps"]

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weights[name]

    def hidden(self, model, ids):
        states = model.model(ids, output_hidden_states=True).hidden_states
        return torch.cat([states[i].float() for i in self.form["taps"]], dim=-1) @ self.weights["fc.weight"].T

    def __call__(self, ids, hidden):
        layer, attention, n = self.form["layer"], self.layer.self_attn, ids.shape[1]
        embedding = self.weights.get("embed_tokens.weight", self.of.model.embed_tokens.weight)[ids]
        normed = self.norm(hidden, layer + "hidden_norm.weight")
        x = torch.cat([self.norm(embedding, layer + "input_layernorm.weight"), normed], dim=-1)
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        out = attention(x, position_embeddings=self.rotary(x, torch.arange(n)[None]), attention_mask=mask)[0]
        x = (normed if self.form["norms_residual"] else hidden) + out
        return x + self.layer.mlp(self.norm(x, layer + "post_attention_layernorm.weight"))

    def logits(self, out):
        return self.norm(out, "norm.weight") @ self.weights["lm_head.weight"].T

    def id_at(self, place):
        return self.form["ids"][place] if self.form["ids"] else place


class Assistant:
    """Gemma 4's, of transformers: it drafts all tokens from one position, by the keys that the model leaves."""

    def __init__(self, config, model):
        with tempfile.TemporaryDirectory() as d:
            blank = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(write_config(d, config)))
            shapes = sorted((n, list(t.shape)) for n, t in blank.state_dict().items() if n != "lm_head.weight")
        text = config["text_config"]
        self.tensors = [[n, s, *self.range_of(n, text), type_of(n)] for n, s in shapes]
        self.model, self.of = load(config, [t for t in self.tensors if "ordering" not in t[0]]), model

    def range_of(self, name, text):
        return (1.0, 1.0) if name == "model.norm.weight" else range_of(name, text, 1.0)

    def draft(self, prompt):
        out = self.of(prompt, output_hidden_states=True, return_shared_kv_states=True)
        token, hidden, n = out.logits[:, -1:].argmax(dim=-1), out.hidden_states[-1][:, -1:], prompt.shape[1]
        r = {"prompt": prompt[0].tolist(), "next": int(token), "drafts": [], "gaps": []}
        for i in range(DRAFTS):
            x = torch.cat([self.of.get_input_embeddings()(token), hidden], dim=-1)
            step = self.model(inputs_embeds=x, position_ids=torch.tensor([[n]]), shared_kv_states=out.shared_kv_states)
            logits, hidden = step.logits[0, 0].float(), step.last_hidden_state
            if i == 0:
                r["mtp_logits"] = [float("%.6g" % x) for x in logits.tolist()]
            top = logits.topk(2)
            token = top.indices[:1][None]
            r["drafts"].append(int(token))
            r["gaps"].append(float("%.4g" % (top.values[0] - top.values[1])))
        return r


DRAFTS = 3


def draft(model, head, prompt):
    """What the head drafts after the prompt and the model's next token, its own outputs in place of hidden rows that are not known."""
    hidden = head.hidden(model, prompt)
    ids = torch.cat([prompt, model(prompt).logits[:, -1:].argmax(dim=-1)], dim=1)
    r = {"prompt": prompt[0].tolist(), "next": int(ids[0, -1]), "drafts": [], "gaps": []}
    for i in range(DRAFTS):
        out = head(ids[:, 1:], hidden)[:, -1:]
        logits = head.logits(out)[0, 0].float()
        if i == 0:
            r["mtp_logits"] = [float("%.6g" % x) for x in logits.tolist()]
        top = logits.topk(2)
        r["drafts"].append(head.id_at(int(top.indices[0])))
        r["gaps"].append(float("%.4g" % (top.values[0] - top.values[1])))
        ids, hidden = torch.cat([ids, torch.tensor([r["drafts"][-1:]])], dim=1), torch.cat([hidden, out], dim=1)
    return r


def best_drafts(model, head, prompts):
    drafts = sorted((draft(model, head, prompts[i:i + 1]) for i in range(PROMPTS)), key=lambda r: -min(r["gaps"]))
    return drafts[:2] + [draft(model, head, prompts[0:1, :1])]


MADE_BY = "transformers %s, torch %s" % (transformers.__version__, torch.__version__)


def write(name, out):
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        f.write(json.dumps(out).replace('], ["', '],\n["').replace('}, {"prompt"', '},\n{"prompt"') + "\n")


def make_prompts(seed, config):
    torch.manual_seed(seed)
    return torch.randint(3, config["vocab_size"], (PROMPTS, LENGTH))


def load_target(form):
    with open(os.path.join(HERE, form["of"] + ".json")) as f:
        target = json.load(f)
    return load(target["config"], target["tensors"])


def write_head(name, form, head, references, **more):
    write(name, {"made_by": MADE_BY, "of": form["of"], "config": form["config"], "tensors": head.tensors, **more,
                 "mtp_references": references})
    print(name, [r["gaps"] for r in references])


EAGLE = {"model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": 2048, "rope_theta": 10000.0, "torch_dtype": "bfloat16", "tie_word_embeddings": False}

# As the authors' files have them, SpecForge's, and speculators'.
EAGLES = {
    "eagle3": {"of": "seed-oss", "config": {**EAGLE, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": 40,
                                            "eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
               "layer": "midlayer.", "taps": [1, 2, 3], "norms_residual": False, "embeds": False,
               "ids": sorted((7 * i + 3) % 96 for i in range(40))},
    "eagle3-specforge": {"of": "qwen3_5", "config": {**EAGLE, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 96,
                                                     "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2],
                                                                      "use_aux_hidden_state": True}},
                         "layer": "midlayer.", "taps": [1, 2, 3], "norms_residual": False, "embeds": False, "ids": None},
    "eagle3-speculators": {"of": "seed-oss", "config": {"architectures": ["Eagle3Speculator"], "draft_vocab_size": 24,
                                                        "eagle_aux_hidden_state_layer_ids": [0, 2, 3],
                                                        "norm_before_residual": True, "speculators_model_type": "eagle3",
                                                        "transformer_layer_config": EAGLE},
                           "layer": "layers.0.", "taps": [0, 2, 3], "norms_residual": True, "embeds": True,
                           "ids": [4 * i for i in range(24)]},
}


GEMMA4 = {"model_type": "gemma4_text", "vocab_size": 96, "hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 4,
          "head_dim": 16, "global_head_dim": 32, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
          "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "sliding_window": 8, "rope_parameters": GEMMA4_ROPE,
          "tie_word_embeddings": True, "enable_moe_block": False, "use_double_wide_mlp": False,
          "max_position_embeddings": 256, "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
          "num_hidden_layers": 3, "num_kv_shared_layers": 3, "attention_bias": False, "pad_token_id": 0}
ASSISTANT = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 32,
             "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_ordered_embeddings": False, "num_centroids": 8,
             "centroid_intermediate_top_k": 4}
ASSISTANTS = {
    "gemma4-assistant": {"of": "gemma4", "config": {**ASSISTANT, "text_config": {
        **GEMMA4, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "attention_k_eq_v": True}}},
    "gemma4-e-assistant": {"of": "gemma4-e", "config": {**ASSISTANT, "text_config": {
        **GEMMA4, "num_key_value_heads": 2, "attention_k_eq_v": False}}},
}


def make_assistant(name):
    form = ASSISTANTS[name]
    head = Assistant(form["config"], load_target(form))
    prompts = make_prompts(13, GEMMA4)
    drafts = sorted((head.draft(prompts[i:i + 1]) for i in range(PROMPTS)), key=lambda r: -min(r["gaps"]))
    write_head(name, form, head, drafts[:2] + [head.draft(prompts[0:1, :n]) for n in (1, 8, 9, 10)])


class DFlash:
    """DFlash for a model: layers of a Qwen 3 whose rows of a block, a token and masks behind it, see each other and keys and values that are
    made of hidden rows of that model."""

    def __init__(self, config, model):
        width, self.config, self.of = config["hidden_size"], config, model
        q, kv = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
        taps = config["dflash_config"]["target_layer_ids"]
        shapes = [["fc.weight", [width, len(taps) * width]], ["hidden_norm.weight", [width]], ["norm.weight", [width]]]
        for i in range(config["num_hidden_layers"]):
            layer = "layers.%d." % i
            shapes += [[layer + "input_layernorm.weight", [width]], [layer + "post_attention_layernorm.weight", [width]],
                       [layer + "self_attn.q_proj.weight", [q, width]], [layer + "self_attn.k_proj.weight", [kv, width]],
                       [layer + "self_attn.v_proj.weight", [kv, width]], [layer + "self_attn.o_proj.weight", [width, q]],
                       [layer + "self_attn.q_norm.weight", [config["head_dim"]]],
                       [layer + "self_attn.k_norm.weight", [config["head_dim"]]],
                       [layer + "mlp.gate_proj.weight", [config["intermediate_size"], width]],
                       [layer + "mlp.up_proj.weight", [config["intermediate_size"], width]],
                       [layer + "mlp.down_proj.weight", [width, config["intermediate_size"]]]]
        small = {n: (0.5, 0.5) for n, _ in shapes if "k_norm" in n}  # less sensitive to 16 bits
        self.tensors = [[n, s, *small.get(n, range_of(n, config, 1.0)), type_of(n)] for n, s in shapes]
        self.weights = {t[0]: make_tensor(*t[:4]).float() for t in self.tensors}
        members = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "dflash_config", "block_size")}
        self.rotary = LlamaRotaryEmbedding(LlamaConfig(**members))

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def heads(self, x, layer, part, positions):
        """[H, n, DH], normed and turned, but for values."""
        out = (x @ self.weights[layer + "self_attn.%s_proj.weight" % part].T).view(x.shape[0], -1, self.config["head_dim"])
        if part != "v":
            out = self.norm(out, layer + "self_attn.%s_norm.weight" % part)
        out = out.transpose(0, 1)
        if part == "v":
            return out
        cos, sin = (t[0] for t in self.rotary(out, positions[None]))
        half = out.shape[-1] // 2
        return out * cos + torch.cat([-out[..., half:], out[..., :half]], dim=-1) * sin

    def block(self, ids, next_id, size):
        """Logits of the tokens behind the first of a block."""
        states, config, n = self.of.model(ids, output_hidden_states=True).hidden_states, self.config, ids.shape[1]
        taps = config["dflash_config"]["target_layer_ids"]
        rows = torch.cat([states[i + 1][0].float() for i in taps], dim=-1)
        context = self.norm(rows @ self.weights["fc.weight"].T, "hidden_norm.weight")
        tokens = torch.tensor([next_id] + [config["dflash_config"]["mask_token_id"]] * (size - 1))
        x, positions = self.of.model.embed_tokens(tokens), torch.arange(n + size)
        for i in range(config["num_hidden_layers"]):
            layer = "layers.%d." % i
            h = self.norm(x, layer + "input_layernorm.weight")
            q = self.heads(h, layer, "q", positions[n:])
            k, v = (self.heads(torch.cat([context, h]), layer, part, positions) for part in "kv")
            share = q.shape[0] // k.shape[0]
            scores = q @ k.repeat_interleave(share, dim=0).transpose(1, 2) / math.sqrt(config["head_dim"])
            out = scores.softmax(dim=-1) @ v.repeat_interleave(share, dim=0)
            x = x + out.transpose(0, 1).reshape(size, -1) @ self.weights[layer + "self_attn.o_proj.weight"].T
            h = self.norm(x, layer + "post_attention_layernorm.weight")
            gate, up, down = (self.weights[layer + "mlp.%s_proj.weight" % part] for part in ("gate", "up", "down"))
            x = x + (torch.nn.functional.silu(h @ gate.T) * (h @ up.T)) @ down.T
        return self.of.lm_head(self.norm(x, "norm.weight"))[1:].float()

    def draft(self, prompt):
        """The first token by a block of two, and DRAFTS by one of as many more: no block is longer than rounds need."""
        next_id = int(self.of(prompt).logits[0, -1].argmax())
        top = self.block(prompt, next_id, DRAFTS + 1).topk(2, dim=-1)
        return {"prompt": prompt[0].tolist(), "next": next_id, "drafts": top.indices[:, 0].tolist(),
                "gaps": [float("%.4g" % g) for g in (top.values[:, 0] - top.values[:, 1]).tolist()],
                "mtp_logits": [float("%.6g" % x) for x in self.block(prompt, next_id, 2)[0].tolist()]}


DFLASH = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 40,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_act": "silu",
          "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "rope_theta": 100.0, "block_size": 6,
          "tie_word_embeddings": True, "attention_bias": False, "use_sliding_window": False, "sliding_window": None}
DFLASHES = {
    "dflash": {"of": "seed-oss", "config": {**DFLASH, "dflash_config": {"mask_token_id": 93, "target_layer_ids": [0, 2]}}},
    "dflash-hybrid": {"of": "qwen3_5", "config": {**DFLASH, "num_hidden_layers": 3,
                                                  "dflash_config": {"mask_token_id": 94, "target_layer_ids": [0, 1, 2]}}},
}


def make_dflash(name):
    form = DFLASHES[name]
    head = DFlash(form["config"], load_target(form))
    prompts = make_prompts(14, DFLASH)
    # masks differ by their places alone: many blocks are of one token
    drafts = sorted((head.draft(prompts[i:i + 1]) for i in range(PROMPTS)),
                    key=lambda r: (-len(set(r["drafts"])), -min(r["gaps"])))
    write_head(name, form, head, drafts[:2] + [head.draft(prompts[0:1, :n]) for n in (1, 9)])


def make_eagle(name):
    form = EAGLES[name]
    model = load_target(form)
    head = Eagle(EAGLE, model, form["of"], form)
    write_head(name, form, head, best_drafts(model, head, make_prompts(12, EAGLE)), ids=form["ids"] or [])


def granite_of(config):
    """The Granite that is a MiniCPM, of which transformers has no code of its own."""
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    return {**config, "architectures": ["GraniteForCausalLM"], "model_type": "granite",
            "embedding_multiplier": config["scale_emb"], "logits_scaling": width / config["dim_model_base"],
            "residual_multiplier": config["scale_depth"] / math.sqrt(layers),
            "attention_multiplier": 1 / math.sqrt(width // config["num_attention_heads"])}


def make(name):
    config, released = CASES[name], CASES[name]
    if config["model_type"] == "minicpm":
        config = granite_of(config)
    shapes, again = stored_shapes(config)
    if config is not released:
        again = dict(released)
    prompts = make_prompts(11, config)
    factor = 1.0
    for _ in range(2):  # the last norm makes the largest logit about 8
        tensors = [[n, s, *range_of(n, config, factor), type_of(n)] for n, s in shapes]
        model = load(config, tensors)
        factor *= 2.0 ** round(math.log2(8 / model(prompts).logits.abs().max().item()))
    for member in ("transformers_version", "dtype", "_name_or_path"):
        again.pop(member, None)
    _, gaps = run(model, prompts)
    best = gaps.min(dim=1).values.argsort(descending=True)[:2]
    references = [reference(model, config, prompts[i:i + 1]) for i in best.tolist()]
    out = {"made_by": MADE_BY,
           "ignored": IGNORED.get(config["model_type"], []), "config": released, "config.transformers5": again, "tensors": tensors, "references": references}
    if config["model_type"] in HEADS:
        head = Head(config, model, tensors, factor, GLM_ENDS if name == "glm4-moe" else ())
        out["mtp_tensors"] = head.tensors
        out["mtp_references"] = best_drafts(model, head, prompts)
        print(name, "head", [r["gaps"] for r in out["mtp_references"]])
    write(name, out)
    print(name, [r["min_top2_gap"] for r in references], [max(map(abs, r["logits_last"])) for r in references],
          [r.get("router_gap_prompt") for r in references])


with torch.no_grad():
    for each in sys.argv[1:] or [*CASES, *EAGLES, *ASSISTANTS, *DFLASHES]:
        (make_eagle if each in EAGLES else make_assistant if each in ASSISTANTS else
         make_dflash if each in DFLASHES else make)(each)
