/* A checkpoint: all that is known of a model before it runs, wherever it lies: configuration, tensors, tokenizer, chat template.
 *
 * A Hugging Face directory, a GGUF file, or a shape (model/files/shape.h) without files, whose weights are random. A kind is a table
 * of functions (checkpoint.c); nobody else knows which files there are or where. Opening reads no file: each part is read when it is
 * asked for. Errors name the file. */
#ifndef DUET_MODEL_FILES_CHECKPOINT_H
#define DUET_MODEL_FILES_CHECKPOINT_H

#include <stdbool.h>
#include <sys/stat.h>

#include "model/config.h"
#include "model/files/safetensors.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"

struct checkpoint;

/* A directory in the form of released models, a GGUF file, or a directory that holds one such file and no config.json. Ends the
 * process where there is no memory, as the next one does. */
struct checkpoint *checkpoint_open(const char *path);
bool checkpoint_is_file(const char *path); /* Does the name say that it is one file, and no directory? */
/* One of the shapes that model_shape_load takes. */
struct checkpoint *checkpoint_open_shape(const char *shape);
void checkpoint_close(struct checkpoint *);

const char *checkpoint_name(const struct checkpoint *); /* as it was opened, for messages */

int checkpoint_config(const struct checkpoint *, struct model_config *out);
/* *out = NULL where there are no files. Allocates; outlives the checkpoint. */
int checkpoint_tensors(const struct checkpoint *, struct safetensors **out);
/* *out = NULL where there is none: ids in, ids out. Allocates; outlives the checkpoint. */
int checkpoint_tokenizer(const struct checkpoint *, struct tokenizer **out);
/* One more end id: that of the token which the tokenizer's own files call the end of a text. Finetunes often have one of theirs, and in
 * config.json still that of the model from which they come. */
int checkpoint_add_end_token(const struct checkpoint *, const struct tokenizer *, struct model_config *);
/* ERR_IO where there is none, with what there is in its place. */
int checkpoint_need_tokenizer(const struct checkpoint *);
/* The checkpoint's own template; *out = NULL where there is none (completion mode); ERR_UNSUPPORTED for one that duet does not
 * know. Or the one that duet knows by `name`, with what the checkpoint says of begin and end tokens. Allocates; outlives the
 * checkpoint. */
int checkpoint_chat_template(const struct checkpoint *, const char *name, struct chat_template **out);

/* Is this one of its files, or another that people would miss beside them? What must not be written over. */
bool checkpoint_holds(const struct checkpoint *, const struct stat *file);

#endif
