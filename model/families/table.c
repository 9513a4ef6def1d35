#include "model/families/family.h"

#include <stddef.h>

static const struct family *const families[] = {
    &family_llama, &family_qwen,    &family_qwen_moe, &family_gemma2,  &family_gemma3, &family_gemma4,
    &family_phi3,  &family_mixtral, &family_olmo2,    &family_granite, &family_glm4,   &family_gpt_oss,
};

const struct family *family_at(int index) {
    return index >= 0 && index < (int)(sizeof families / sizeof *families) ? families[index] : NULL;
}
