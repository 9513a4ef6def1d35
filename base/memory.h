/* What happens where memory for text and lists runs out: such an allocation either succeeds or ends the process with a sentence,
 * so that no caller of buf_append and the like has an error to lose. Large memory (tensors, arenas, parsed files) is asked for
 * by functions that return ERR_MEMORY instead. */
#ifndef DUET_BASE_MEMORY_H
#define DUET_BASE_MEMORY_H

#include <stddef.h>

/* `end` says a sentence and ends the process; it must not allocate. NULL: abort(). For the program that owns the process. */
void memory_on_exhausted(void (*end)(void));

void memory_exhausted(void) __attribute__((noreturn));

/* realloc and strdup that do not fail. */
void *memory_resize(void *data, size_t bytes);
char *memory_copy_text(const char *text);

#endif
