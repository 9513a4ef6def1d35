/* The files of a Hugging Face directory. */
#ifndef DUET_MODEL_FILES_DIRECTORY_H
#define DUET_MODEL_FILES_DIRECTORY_H

#include <stdbool.h>
#include <sys/stat.h>

/* Is `file` (its device and inode) one of the model's files: configuration, weights, tokenizer, templates, by whichever name or
 * link? Other files that happen to lie in the directory are not. */
bool model_directory_has(const char *dir, const struct stat *file);

#endif
