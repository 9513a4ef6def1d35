#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static void (*end_process)(void);

void memory_on_exhausted(void (*end)(void)) {
    end_process = end;
}

void memory_exhausted(void) {
    if (end_process) end_process();
    abort();
}

void *memory_resize(void *data, size_t bytes) {
    void *resized = realloc(data, bytes);
    if (!resized) memory_exhausted();
    return resized;
}

char *memory_copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    return memcpy(memory_resize(NULL, bytes), text, bytes);
}
