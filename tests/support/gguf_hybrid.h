/* What llama.cpp's converter does to the tensors of Qwen3-Next and Qwen 3.5: names of the head that proposes tokens, value heads in tiles, a
 * projection that is parted. */
#ifndef DUET_TESTS_GGUF_HYBRID_H
#define DUET_TESTS_GGUF_HYBRID_H

#include "base/json.h"
#include "model/files/safetensors.h"

/* "mtp.fc.weight" and the like as a name of a layer behind the last; others as they are. A static buffer. */
const char *gguf_hybrid_name(const cJSON *config, const char *name);
/* Numbers [count] of a tensor of linear attention, in place. */
void gguf_hybrid_change(const cJSON *config, const struct tensor *, float *data, size_t count);
/* Rows of in_proj_qkvz: those of all q, k and v (part 0), or of all z. Returns their number; rows [.., width] are malloc's. */
int64_t gguf_hybrid_part(const cJSON *config, const float *data, int64_t width, int part, float **rows);

#endif
