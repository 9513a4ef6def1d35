/* Names for the stack of a call, by addr2line of binutils where it is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/campaign.h"

enum { SHOWN_FRAMES = 14, CACHED = 4096 };

static struct name {
    uint64_t frame;
    char *text; /* "inner FILE:LINE < outer FILE:LINE" where functions were inlined */
} cache[CACHED];

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "NAME at FILE:LINE", perhaps after "(inlined by) ", as "NAME FILE:LINE". */
static void add_line(char *line, struct buf *out) {
    char *name = strstr(line, "(inlined by) ");
    char *note = strstr(line, " (discriminator");
    line[strcspn(line, "\n")] = '\0';
    if (note) *note = '\0';
    name = name ? name + strlen("(inlined by) ") : line;
    char *at = strstr(name, " at ");
    if (at) *at = '\0';
    buf_printf(out, "%s%s", out->len ? " < " : "", name);
    if (at && at[4] != '?') buf_printf(out, " %s", base_name(at + 4));
}

/* A return address lies behind its call. */
static char *find_name(const char *module, uint64_t offset) {
    char command[512], line[1024];
    struct buf text = {0};
    snprintf(command, sizeof command, "addr2line -e '%s' -f -i -p %#llx 2>/dev/null", module,
             (unsigned long long)(offset - 1));
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) add_line(line, &text);
    if (f) pclose(f);
    if (text.len == 0 || strncmp(buf_text(&text), "??", 2) == 0) {
        buf_clear(&text);
        buf_printf(&text, "%s+%#llx", base_name(module), (unsigned long long)offset);
    }
    return text.data;
}

static const char *name_of(const struct fault_log *log, uint64_t frame) {
    uint64_t module = frame >> FAULT_MODULE_SHIFT, offset = frame & (((uint64_t)1 << FAULT_MODULE_SHIFT) - 1);
    struct name *n = &cache[frame * 0x9e3779b97f4a7c15u >> 52];
    if (module >= FAULT_MODULES_MAX) return "?";
    if (n->frame != frame || !n->text) {
        free(n->text);
        *n = (struct name){frame, find_name(log->module[module], offset)};
    }
    return n->text;
}

void stack_describe(const struct fault_log *log, const struct fault_call *call, struct buf *out) {
    int shown = 0;
    for (uint32_t i = 0; i < call->depth && shown < SHOWN_FRAMES; i++) {
        bool own = call->frames[i] >> FAULT_MODULE_SHIFT == 0;
        bool before_own = i + 1 < call->depth && call->frames[i + 1] >> FAULT_MODULE_SHIFT == 0;
        if (!own && !before_own) continue;
        const char *name = name_of(log, call->frames[i]);
        buf_printf(out, "%s%s", shown++ ? " < " : "", name);
        if (strncmp(name, "main ", 5) == 0) break;
    }
}
