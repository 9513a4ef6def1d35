#include "tests/support/config_support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "tests/support/damage.h"
#include "tests/support/support.h"

static const char base_llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
    "\"intermediate_size\": 160, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", \"bos_token_id\": 1, "
    "\"eos_token_id\": 2, \"attention_bias\": false, \"mlp_bias\": false, \"torch_dtype\": \"bfloat16\"}";

int load_config(struct model_config *out, const char *changes, const char *generation) {
    cJSON *root, *other;
    struct buf text = {0};
    char path[256];
    ck_ok(json_parse(&root, base_llama, strlen(base_llama)));
    ck_ok(json_parse(&other, changes, strlen(changes)));
    while (other->child) {
        cJSON *member = cJSON_DetachItemViaPointer(other, other->child);
        cJSON_DeleteItemFromObjectCaseSensitive(root, member->string);
        if (cJSON_IsString(member) && strcmp(member->valuestring, "absent") == 0)
            cJSON_Delete(member);
        else
            cJSON_AddItemToObject(root, member->string, member);
    }
    json_print(root, &text);
    snprintf(path, sizeof path, "%s/config.json", temp_dir());
    damage_write_text(path, buf_text(&text));
    snprintf(path, sizeof path, "%s/generation_config.json", temp_dir());
    unlink(path);
    if (generation) damage_write_text(path, generation);
    buf_free(&text);
    cJSON_Delete(root);
    cJSON_Delete(other);
    return checkpoint_config(test_checkpoint(temp_dir()), out);
}

void refuse_config(const char *changes, int code, const char *words) {
    struct model_config c;
    int rc = load_config(&c, changes, NULL);
    ck_assert_msg(rc == code, "%s: code %d, expected %d", changes, rc, code);
    check_sentence();
    ck_assert_msg(strstr(err_message(), "/config.json: ") != NULL, "'%s' lacks the file", err_message());
    ck_assert_msg(strstr(err_message(), words) != NULL, "%s: '%s' lacks '%s'", changes, err_message(), words);
}

const char *family_members(const char *architecture) {
    if (strstr(architecture, "Qwen2Moe") || strstr(architecture, "Qwen3Moe") || strstr(architecture, "Qwen3VLMoe") ||
        strstr(architecture, "Lfm2Moe"))
        return ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8";
    if (strstr(architecture, "Qwen3Next") || strstr(architecture, "Qwen3_5Moe"))
        return ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "
               "\"shared_expert_intermediate_size\": 8";
    if (strstr(architecture, "Starcoder2")) return ", \"hidden_act\": \"gelu_pytorch_tanh\"";
    if (strstr(architecture, "NemotronForCausalLM")) return ", \"hidden_act\": \"relu2\"";
    if (strstr(architecture, "NemotronH")) return ", \"hybrid_override_pattern\": \"M-*\"";
    if (strstr(architecture, "Eagle3")) return ", \"num_hidden_layers\": 1, \"draft_vocab_size\": 16";
    if (strstr(architecture, "DFlash")) return ", \"dflash_config\": {\"mask_token_id\": 1, \"target_layer_ids\": [0]}";
    if (strstr(architecture, "Ministral3")) return ", \"rope_scaling\": {\"rope_type\": \"default\"}";
    if (strstr(architecture, "Olmoe")) return ", \"num_experts\": 4, \"num_experts_per_tok\": 2";
    if (strstr(architecture, "Glm4Moe"))
        return ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8";
    if (strstr(architecture, "Ernie4_5_Moe"))
        return ", \"moe_num_experts\": 4, \"moe_k\": 2, \"moe_intermediate_size\": 8";
    if (strstr(architecture, "GraniteMoeHybrid"))
        return ", \"hidden_act\": \"absent\", \"num_local_experts\": 0, \"shared_intermediate_size\": 8, "
               "\"layer_types\": [\"attention\", \"attention\", \"attention\"]";
    if (strstr(architecture, "GraniteMoe"))
        return ", \"hidden_act\": \"absent\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2";
    if (strstr(architecture, "Mixtral") || strstr(architecture, "GptOss"))
        return ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2";
    if (strstr(architecture, "Gemma") || strstr(architecture, "Granite")) return ", \"hidden_act\": \"absent\"";
    return "";
}
