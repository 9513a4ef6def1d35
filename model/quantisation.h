/* What a checkpoint says of its quantised weights as a whole: config.json's quantization_config, or the files that tools left in its
 * place. Which tensors are quantised, the tensors themselves say (model/files/stored.h). */
#ifndef DUET_MODEL_QUANTISATION_H
#define DUET_MODEL_QUANTISATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

enum quantisation_method {
    QUANTISATION_NONE,
    QUANTISATION_FP8, /* DeepSeek's, and what vLLM wrote before compressed-tensors */
    QUANTISATION_COMPRESSED_TENSORS,
    QUANTISATION_MODELOPT,
    QUANTISATION_GPTQ,
    QUANTISATION_AWQ,
    QUANTISATION_MXFP4, /* gpt-oss */
    QUANTISATION_BITSANDBYTES,
    QUANTISATION_AUTO_ROUND, /* in files alone: once read it is GPTQ */
};

struct quantisation {
    enum quantisation_method method;
    int32_t int4_group, fp4_group;  /* columns that share a scale; 0: a row; -1: nothing is quantised so */
    int32_t block_rows, block_cols; /* FP8 in blocks */
    bool zero_is_one_less;          /* GPTQ's first format */
};

/* Members of config.json: `text` is the part that describes the text model. NONE where neither has any. ERR_UNSUPPORTED for what
 * duet does not read, by name. */
int quantisation_read(struct quantisation *, const cJSON *root, const cJSON *text);
/* The whole of hf_quant_config.json (modelopt), quantize_config.json (GPTQ) or quant_config.json (AWQ), which older checkpoints have
 * instead. */
int quantisation_read_file(struct quantisation *, const cJSON *root, enum quantisation_method);

#endif
