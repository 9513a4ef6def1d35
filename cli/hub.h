/* The local Hugging Face cache, as huggingface_hub lays it out: models--ORG--NAME/refs/main, .../snapshots/COMMIT. */
#ifndef DUET_CLI_HUB_H
#define DUET_CLI_HUB_H

#include <stdbool.h>

#include "base/buf.h"

/* $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in $XDG_CACHE_HOME or ~/.cache. */
void hub_root(struct buf *out);

/* "ORG/NAME" without a path's meaning. */
bool hub_is_name(const char *name);
/* Is the last part of a path "models--...", with snapshots in it? */
bool hub_is_folder(const char *path);

/* The snapshot of a folder models--ORG--NAME: what refs/main names, without that the newest. ERR_IO. */
int hub_snapshot(const char *folder, struct buf *out);
/* The snapshot of ORG/NAME. ERR_IO with what would fetch it. */
int hub_find(const char *name, struct buf *out);

/* "models--ORG--NAME" as ORG/NAME; false: of another form. */
bool hub_name_of(const char *folder, struct buf *out);

#endif
