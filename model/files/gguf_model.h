/* A GGUF file as a model: what it says, in the words of Hugging Face's files, so that families, tokenizer and chat templates need
 * not know where it comes from. For model/files/checkpoint.c. Errors name the file. */
#ifndef DUET_MODEL_FILES_GGUF_MODEL_H
#define DUET_MODEL_FILES_GGUF_MODEL_H

#include "model/config.h"
#include "model/files/gguf.h"
#include "model/files/safetensors.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"

/* An architecture of llama.cpp, and how its tensors are called in the family that runs it. */
struct gguf_architecture {
    const char *name;         /* general.architecture, and how its keys begin */
    const char *architecture; /* config.json's, by which the family is found */
    const char *needs; /* a key that is above 0 in its files, where another row before has the name too; else NULL */
    /* Of a layer: */
    const char *ffn_norm, *post_attention_norm, *post_ffw_norm, *ffn_up;
    const char *router, *experts, *gate, *up, *down; /* of experts; NULL: it has none */
    const char *choice_bias;                         /* the whole name, of the bias of its router's choice */
    const char *eps_member; /* of norms that take the mean away, in its configuration; NULL: they do not */
    bool
        pairs_neighbours; /* rows of q and k are stored so that neighbours turn together: llama.cpp's order for Llamas */
    bool norms_hold_one;  /* norms are stored as 1 + weight */
    bool has_one_shared;  /* the MLP beside experts is "shared_expert", with a gate; else "shared_experts" */
    bool is_hybrid;       /* some layers have linear attention, whose a_log is stored as -exp(a_log) */
    bool is_mamba;        /* some layers are Mamba 2's, likewise */
    bool is_lfm2;         /* some layers are short convolutions */
    bool is_nemotron;     /* some layers are Mamba 2's, and each layer is one sublayer */
    bool ba_by_head;      /* of linear attention, b and a of each key head are together */
    bool is_tiled;        /* value heads of a key head are not side by side */
    bool is_assistant;    /* of Gemma 4: all its layers attend to another model's keys */
    bool is_gemma4; /* layers have tensors that only Gemma 4 has; experts are stacked as its own files have them */
};
int gguf_find_architecture(const struct gguf *, const struct gguf_architecture **out);

int gguf_model_config(const struct gguf *, struct model_config *out);
/* All tensors under the names that families look up, each expert of a stack by itself. Takes the file, also after an error. */
int gguf_model_tensors(struct gguf *, struct safetensors **out);
bool gguf_model_has_tokenizer(const struct gguf *);
/* *out = NULL where the file has none: ids in, ids out. */
int gguf_model_tokenizer(const struct gguf *, struct tokenizer **out);
/* Appends the ids at which an answer ends, in no order; some may be past the vocabulary, or there twice. */
int gguf_model_end_ids(const struct gguf *, struct ids *out);
int gguf_model_chat_template(const struct gguf *, const char *name, struct chat_template **out);

#endif
