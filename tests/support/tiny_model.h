/* Tiny models of many families, tests/model/families/NAME.json: configurations, names and shapes of tensors, and what transformers computes
 * of them. Their weights are numbers of a tensor's name, so they are made here. */
#ifndef DUET_TESTS_TINY_MODEL_H
#define DUET_TESTS_TINY_MODEL_H

#include "tests/support/engine_support.h"

cJSON *tiny_model_load(const char *name);
/* A new directory of it under temp_dir, whose config.json is this member of the file. */
void tiny_model_write(const cJSON *, const char *config, char dir[256]);
/* The same with pytorch_model.bin in place of model.safetensors. */
void tiny_model_write_torch(const cJSON *, const char *config, char dir[256]);

#endif
