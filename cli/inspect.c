/* duet inspect: a model, the memory plan of the pair, or its graphs. */
#include "cli/inspect.h"

#include <string.h>

#include "base/json.h"
#include "cli/table.h"
#include "draft/proposer.h"
#include "model/write.h"

/* --- the graphs --------------------------------------------------------------------------------------------- */

static void add_graph_rows(struct table *table, const struct graph_set *set, const char *name) {
    for (int i = 0; set && i < graph_set_count(set); i++) {
        struct graph_info info = graph_set_info(set, i);
        table_add(table, "%s", name);
        table_add(table, "%s", graph_set_kind_name(set, info.key.kind));
        table_add(table, "%d", info.key.batch);
        table_add(table, "%d", info.key.q_len);
        table_add(table, "%d", info.segments);
        table_add(table, "%d", info.nodes);
        table_add(table, "%.2f", (double)info.capture_ms);
        table_add(table, "%zu", info.bytes);
        table_add(table, "%llu", (unsigned long long)info.replays);
    }
}

/* Nothing is captured of these yet: `batch` is the largest, and every one up to it is a graph of its own. */
static void add_rows_on_use(struct table *table, const struct graph_set *set, const char *name) {
    for (int i = 0; set && graph_set_kept_on_use(set) > 0 && i < graph_set_shape_count(set); i++) {
        struct graph_key key = graph_set_shape(set, i);
        table_add(table, "%s", name);
        table_add(table, "%s", graph_set_kind_name(set, key.kind));
        table_add(table, "%d", key.batch);
        table_add(table, "%d", key.q_len);
        table_add(table, "%s", "");
        table_add(table, "%s", "");
        table_add(table, "%s", "on use");
        table_add(table, "%s", "");
        table_add(table, "%d", 0);
    }
}

static void print_on_use(const struct graph_set *set, const char *name) {
    char line[256];
    if (!set || graph_set_kept_on_use(set) == 0) return;
    snprintf(line, sizeof line,
             "%s: a first use captures, at any batch up to the one above; the %d graphs that were used last are kept",
             name, graph_set_kept_on_use(set));
    terminal_print(stdout, terminal_width(1), 0, 0, line);
}

static void print_graph_total(const struct graph_set *set, const char *name) {
    char line[128];
    size_t bytes = 0;
    for (int i = 0; set && i < graph_set_count(set); i++) bytes += graph_set_info(set, i).bytes;
    if (set)
        snprintf(line, sizeof line, "%s: %d graphs, %zu bytes, warmed up and captured in %.3f s", name,
                 graph_set_count(set), bytes, (double)graph_set_counts(set).capture_us * 1e-6);
    if (set) terminal_print(stdout, terminal_width(1), 0, 0, line);
}

static struct table tabulate_graphs(const struct engine *e) {
    static const char *const heading[] = {"set",   "role",       "batch", "q_len",  "segments",
                                          "nodes", "capture ms", "bytes", "replays"};
    struct table table = table_create("llrrrrrrr", "8476");
    for (int i = 0; i < 9; i++) table_add(&table, "%s", heading[i]);
    add_graph_rows(&table, engine_graphs(e, 0), "draft");
    add_graph_rows(&table, engine_graphs(e, 1), "target");
    add_rows_on_use(&table, engine_graphs(e, 0), "draft");
    add_rows_on_use(&table, engine_graphs(e, 1), "target");
    return table;
}

static void show_graphs(const struct engine *e, struct buf *out) {
    static const char *const names[] = {"set",   "role",       "batch", "q_len",  "segments",
                                        "nodes", "capture_ms", "bytes", "replays"};
    struct table table = tabulate_graphs(e);
    if (out) {
        table_put_json(&table, names, out);
        return;
    }
    table_print(&table, terminal_width(1));
    putchar('\n');
    print_graph_total(engine_graphs(e, 0), "draft");
    print_graph_total(engine_graphs(e, 1), "target");
    print_on_use(engine_graphs(e, 0), "draft");
    print_on_use(engine_graphs(e, 1), "target");
}

static int inspect_graphs(struct models *m, const struct options *o, struct buf *out) {
    struct engine *engine;
    TRY(engine_start(&engine, m, o));
    show_graphs(engine, out);
    engine_destroy(engine);
    return 0;
}

/* --- a shape, written ---------------------------------------------------------------------------------------- */

static int write_with(struct device *device, const struct checkpoint *shape, const char *dir, struct written *w) {
    struct model *model;
    const struct progress progress = progress_bar();
    TRY(model_open(&model, shape, "target", (struct model_numbers){0}, device));
    int rc = model_write(model, dir, WRITE_SHARD_BYTES, &progress, w);
    progress_clear();
    model_close(model);
    return rc;
}

static int write_shape(const struct models *m, const struct options *o, struct buf *out) {
    struct device *device;
    struct written w;
    TRY(device_open(&device, "host", &(struct device_options){.threads = o->threads}));
    signals_set_consequence(": %s holds a part of it", o->write);
    int rc = write_with(device, m->target, o->write, &w);
    signals_set_consequence("%s", "");
    device_close(device);
    TRY(rc);
    if (out)
        buf_printf(out, "\"files\": %d, \"bytes\": %lld}", w.files, (long long)w.bytes);
    else
        printf("%s: %.2f GB of random weights in %d file%s\n", o->write, (double)w.bytes * 1e-9, w.files,
               w.files == 1 ? "" : "s");
    return 0;
}

/* --- the command -------------------------------------------------------------------------------------------- */

/* With `out`, the parts are members of an object: here is the next. */
static void begin_part(struct buf *out, const char *name, bool first) {
    if (out)
        json_put_name(out, name);
    else if (!first)
        putchar('\n');
}

static int inspect_directory(const struct options *o, struct buf *out) {
    struct checkpoint *c;
    TRY(models_find(o->directory, &c));
    begin_part(out, "target", true);
    int rc = inspect_model(c, o, out);
    checkpoint_close(c);
    return rc;
}

static int inspect_pair(const struct models *m, const struct options *o, struct buf *out) {
    begin_part(out, "target", true);
    TRY(inspect_model(m->target, o, out));
    if (!m->draft && !m->proposer) return 0;
    begin_part(out, "draft", false);
    if (m->draft) return inspect_model(m->draft, o, out);
    const struct proposer_ops *proposer = proposer_of_word(m->proposer);
    if (out)
        json_put_string(out, proposer->title, strlen(proposer->title));
    else
        printf("draft: %s, %s\n", proposer->title, proposer->has_model ? "in the target's files" : "no files");
    return 0;
}

/* A plan that does not fit is shown, and what is asked for besides. */
static int inspect_models(struct models *m, const struct options *o, struct buf *out) {
    if (o->write) {
        begin_part(out, "written", true);
        if (out) buf_putc(out, '{');
        return write_shape(m, o, out);
    }
    if (!o->show_memory && !o->show_graphs) return inspect_pair(m, o, out);
    if (o->show_memory) {
        begin_part(out, "memory", true);
        TRY(inspect_memory(m, o, out));
    }
    if (!o->show_graphs) return 0;
    begin_part(out, "graphs", !o->show_memory);
    return inspect_graphs(m, o, out);
}

static int run(const struct options *o, struct buf *out) {
    struct models m;
    if (o->directory) return inspect_directory(o, out);
    TRY(models_resolve(&m, o));
    int rc = inspect_models(&m, o, out);
    models_free(&m);
    return rc;
}

int inspect_main(const struct options *o) {
    struct buf object = {0};
    buf_putc(&object, '{');
    int rc = run(o, o->json ? &object : NULL);
    const bool is_whole = object.data[object.len - 1] == '}' || object.data[object.len - 1] == ']';
    if (o->json && (rc == 0 || is_whole)) printf("%s}\n", buf_text(&object)); /* a plan that does not fit is whole */
    buf_free(&object);
    return rc == 0 ? STATUS_OK : cli_fail(rc);
}
