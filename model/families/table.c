#include "model/families/family.h"

#include <stddef.h>

static const struct family *const families[] = {
    &family_llama,       &family_qwen,
    &family_qwen_moe,    &family_gemma,
    &family_gemma2,      &family_gemma3,
    &family_gemma4,      &family_phi3,
    &family_mixtral,     &family_olmo,
    &family_olmoe,       &family_granite,
    &family_granite_moe, &family_glm,
    &family_glm4_moe,    &family_gpt_oss,
    &family_smollm3,     &family_seed_oss,
    &family_ernie4_5,    &family_exaone,
    &family_exaone4,     &family_minicpm,
    &family_hunyuan,     &family_qwen_next,
    &family_eagle3,      &family_gemma4_assistant,
    &family_dflash,      &family_lfm2,
    &family_nemotron_h,  &family_cohere,
    &family_starcoder2,  &family_nemotron,
    &family_stablelm,
};

const struct family *family_at(int index) {
    return index >= 0 && index < (int)(sizeof families / sizeof *families) ? families[index] : NULL;
}
