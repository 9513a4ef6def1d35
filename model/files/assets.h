/* The embedded pair: a folder that holds the two checkpoints `target` and `draft`. */
#ifndef DUET_MODEL_FILES_ASSETS_H
#define DUET_MODEL_FILES_ASSETS_H

#include "model/files/checkpoint.h"

struct assets {
    struct checkpoint *target, *draft; /* closed by the caller */
};

/* Is the pair in `folder`? Opens it if so. */
bool assets_open(struct assets *out, const char *folder);
/* The pair that belongs to a program or a library by the path of its file, wherever its tree was moved: `share/duet` of PREFIX/bin/FILE,
 * PREFIX/lib/FILE or PREFIX/lib/ARCH/FILE; `assets` of a checkout's build/FILE or build/MODE/FILE. */
bool assets_open_beside(struct assets *out, const char *file);

/* Path of the file `name` that lies with the pair; "" if it does not. */
void assets_find_beside(struct buf *out, const char *file, const char *name);

#endif
