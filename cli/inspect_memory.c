/* duet inspect --memory: the plan, and what bounds the context. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/inspect.h"
#include "cli/table.h"

const char *inspect_size(uint64_t bytes) {
    static char texts[4][32];
    static int turn;
    char *text = texts[turn++ % 4];
    const double mib = (double)bytes * 0x1p-20;
    if (mib >= 1024)
        snprintf(text, sizeof texts[0], "%.2f GiB", mib / 1024);
    else if (mib >= 0.01)
        snprintf(text, sizeof texts[0], "%.2f MiB", mib);
    else
        snprintf(text, sizeof texts[0], "%llu bytes", (unsigned long long)bytes);
    return text;
}

int inspect_plan(struct memory_plan *plan, const struct models *m, const struct options *o) {
    struct engine_options eo;
    engine_options_set(&eo, o, m);
    eo.gpu_bytes = o->gpu_memory;
    return engine_plan(plan, &eo);
}

/* What keeps the context from being larger, and by how much. */
static void describe_bound(const struct memory_plan *p, struct buf *out) {
    switch (p->bound) {
    case CONTEXT_GIVEN:
        buf_printf(out, "by --ctx; the models have positions for %d", p->positions);
        break;
    case CONTEXT_BY_TARGET:
    case CONTEXT_BY_DRAFT:
        buf_printf(out, "all that the %s has positions for", p->bound == CONTEXT_BY_DRAFT ? "draft" : "target");
        break;
    case CONTEXT_BY_DEFAULT:
        buf_printf(out, "the default, of %d that the models have positions for: --ctx for more", p->positions);
        break;
    case CONTEXT_BY_MEMORY:
        buf_printf(out, "bounded by memory: twice as much would need %s, %s more than may be taken",
                   inspect_size(p->larger_bytes), inspect_size(p->larger_bytes - p->allowed_bytes));
        break;
    }
}

static void print_plan(const struct memory_plan *p) {
    struct buf text = {0};
    int width = terminal_width(1);
    struct table table = table_create("lrr", "2");
    table_add(&table, "slice");
    table_add(&table, "size");
    table_add(&table, "offset");
    for (int i = 0; i < p->count; i++) {
        table_add(&table, "%s", p->slices[i].name);
        table_add(&table, "%s", inspect_size(p->slices[i].bytes));
        table_add(&table, "%zu", p->slices[i].offset);
    }
    table_print(&table, width);
    buf_printf(&text, "\npool %s; weights read from mapped files %s\n", inspect_size(p->total_bytes),
               inspect_size(p->mapped_bytes));
    buf_printf(&text, "%s: %s free, of which the pool may take %s\n", p->device, inspect_size(p->free_bytes),
               inspect_size(p->allowed_bytes));
    buf_printf(&text, "context %d tokens, %d KV pages", p->context, p->pages);
    if (!p->refusal[0]) {
        buf_puts(&text, ": ");
        describe_bound(p, &text);
    }
    terminal_print(stdout, width, 0, 0, buf_text(&text));
    buf_free(&text);
}

static void put_slices(const struct memory_plan *p, struct buf *out) {
    json_put_name(out, "slices");
    buf_putc(out, '[');
    for (int i = 0; i < p->count; i++) {
        json_put_element(out);
        buf_putc(out, '{');
        inspect_put_text(out, "name", p->slices[i].name);
        inspect_put_number(out, "bytes", (double)p->slices[i].bytes);
        inspect_put_number(out, "offset", (double)p->slices[i].offset);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

static void put_plan(const struct memory_plan *p, struct buf *out) {
    static const char *const bounds[] = {[CONTEXT_GIVEN] = "option",
                                         [CONTEXT_BY_TARGET] = "target",
                                         [CONTEXT_BY_DRAFT] = "draft",
                                         [CONTEXT_BY_DEFAULT] = "default",
                                         [CONTEXT_BY_MEMORY] = "memory"};
    buf_putc(out, '{');
    inspect_put_text(out, "device", p->device);
    inspect_put_number(out, "pool_bytes", (double)p->total_bytes);
    inspect_put_number(out, "mapped_bytes", (double)p->mapped_bytes);
    inspect_put_number(out, "free_bytes", (double)p->free_bytes);
    inspect_put_number(out, "allowed_bytes", (double)p->allowed_bytes);
    inspect_put_number(out, "context", p->context);
    inspect_put_text(out, "context_bound", bounds[p->bound]);
    inspect_put_number(out, "positions", p->positions);
    inspect_put_number(out, "pages", p->pages);
    json_put_name(out, "fits");
    buf_puts(out, p->refusal[0] ? "false" : "true");
    inspect_put_text(out, "refusal", p->refusal[0] ? p->refusal : NULL);
    put_slices(p, out);
    buf_putc(out, '}');
}

int inspect_memory(const struct models *m, const struct options *o, struct buf *out) {
    struct memory_plan plan;
    int rc = inspect_plan(&plan, m, o);
    if (rc == ERR_DEVICE) err_hint(rc, "--gpu-memory SIZE plans for a GPU that is not there");
    TRY(rc);
    if (out)
        put_plan(&plan, out);
    else
        print_plan(&plan);
    rc = plan.refusal[0] ? err_set(ERR_MEMORY, "%s", plan.refusal) : 0;
    memory_plan_free(&plan);
    return rc;
}
