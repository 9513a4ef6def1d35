/* A family of models: how its configuration is read, what its tensors are called, and its pass as a list of ops. One file a family;
 * table.c lists them. See README.md for how to add one. */
#ifndef DUET_MODEL_FAMILIES_FAMILY_H
#define DUET_MODEL_FAMILIES_FAMILY_H

#include "base/json.h"
#include "model/config.h"

struct binder;  /* model/binder.h */
struct builder; /* model/builder.h */

struct family {
    const char *const *architectures; /* as config.json names them; ends with NULL */
    const char *const *model_types;   /* likewise, of these in any order */
    const char *const
        *text_types;        /* of text_config, where a wrapper's text is a family member of another name; NULL: none */
    bool is_saved_as_llama; /* transformers calls its architecture LlamaForCausalLM when it saves it */
    /* Fills the configuration from config.json; family and architecture are set. */
    int (*configure)(struct model_config *, const cJSON *root);
    /* Names every tensor of the model and where it goes. */
    void (*bind)(struct binder *);
    /* The same of the head that proposes more tokens (model_open_head), whose configuration has one layer. NULL: none is known. */
    void (*bind_mtp)(struct binder *);
    /* Lists the ops of a pass from tokens to the residual stream that the head reads, and the head. */
    void (*build)(struct builder *);
};

/* NULL past the end. */
const struct family *family_at(int index);

extern const struct family family_llama, family_qwen, family_qwen_moe, family_gemma, family_gemma2, family_gemma3,
    family_gemma4, family_phi3, family_mixtral, family_olmo, family_olmoe, family_granite, family_granite_moe,
    family_glm, family_glm4_moe, family_gpt_oss, family_smollm3, family_seed_oss, family_ernie4_5, family_exaone,
    family_exaone4, family_minicpm, family_hunyuan, family_qwen_next, family_eagle3, family_gemma4_assistant,
    family_dflash, family_lfm2, family_nemotron_h, family_cohere, family_starcoder2, family_nemotron, family_stablelm;

#endif
