/* What llama.cpp's converter makes of a Gemma 4: keys of its two kinds of layers, names that no other architecture has. */
#ifndef DUET_TESTS_GGUF_GEMMA4_H
#define DUET_TESTS_GGUF_GEMMA4_H

#include "base/json.h"
#include "model/files/safetensors.h"
#include "tests/support/gguf_writer.h"

/* A name of a layer's tensor, ".weight" included; NULL: that of others. A static text. */
const char *gguf_gemma4_name(const char *part);
/* The keys besides those that all have, and the factors of the rope. `arch`: how keys begin. */
void gguf_gemma4_put(const cJSON *config, const char *arch, struct gguf_writer *);
/* A stack of experts [shape, columns first] as Q8_0, which holds numbers of tiny models as they are. */
void gguf_gemma4_put_stack(struct gguf_writer *, const char *name, const int64_t shape[3], const float *data,
                           size_t count);

#endif
