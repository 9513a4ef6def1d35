/* duet inspect: a model, the memory plan of the pair, or its graphs. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table.h"
#include "draft/proposer.h"
#include "model/files/safetensors.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"

/* --- one model ------------------------------------------------------------------------------------------ */

static void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_line(const char *name, const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("%-15s", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void print_rope(const char *name, const struct rope_config *r) {
    static const char *const types[] = {"",          ", linear",   ", llama3",      ", yarn",
                                        ", dynamic", ", longrope", ", proportional"};
    struct buf text = {0};
    buf_printf(&text, "theta %g%s", r->theta, types[r->type]);
    if (r->factor != 1) buf_printf(&text, " by %g", r->factor);
    if (r->type == ROPE_LLAMA3) buf_printf(&text, " (low %g, high %g)", r->low_freq, r->high_freq);
    if (r->original_positions > 0) buf_printf(&text, ", trained on %d", r->original_positions);
    if (r->dims < r->head_dim) buf_printf(&text, ", %d of %d dimensions turn", r->dims, r->head_dim);
    if (r->attention_factor != 1) buf_printf(&text, ", times %.4g", r->attention_factor);
    print_line(name, "%s", buf_text(&text));
    buf_free(&text);
}

/* What comes from a file, without control characters, until the next call. */
static const char *escaped(const char *text) {
    static char shown[1024];
    return err_escape(text, shown, sizeof shown);
}

static void print_end_ids(const struct model_config *c, const struct tokenizer *t) {
    printf("%-15s", "end ids");
    for (int i = 0; i < c->end_count; i++) {
        const char *token = t ? tokenizer_token(t, c->end_ids[i], &(size_t){0}) : NULL;
        printf("%s%d%s%s%s", i ? ", " : "", c->end_ids[i], token ? " (" : "", token ? escaped(token) : "",
               token ? ")" : "");
    }
    puts(c->end_count ? "" : "none");
}

/* generation_config.json's sampling values, which duet shows and does not use. */
static void print_sampling(const struct model_config *c) {
    struct buf text = {0};
    if (!isnan(c->gen_temperature)) buf_printf(&text, "temperature %g, ", c->gen_temperature);
    if (!isnan(c->gen_top_p)) buf_printf(&text, "top_p %g, ", c->gen_top_p);
    if (c->gen_top_k >= 0) buf_printf(&text, "top_k %d, ", c->gen_top_k);
    if (text.len > 0) print_line("suggested", "%.*s (generation_config.json; not used)", (int)text.len - 2, text.data);
    buf_free(&text);
}

static void print_windows(const struct model_config *c) {
    int sliding = 0, window = 0;
    for (int l = 0; l < c->layers; l++)
        if (c->layer[l].window > 0) sliding++, window = c->layer[l].window;
    if (sliding == 0)
        print_line("positions", "%d", c->positions);
    else if (sliding == c->layers)
        print_line("positions", "%d, sliding window %d", c->positions, window);
    else
        print_line("positions", "%d, sliding window %d in %d of %d layers", c->positions, window, sliding, c->layers);
}

static void print_config(const struct model_config *c) {
    print_line("architecture", "%s%s%s", c->architecture, c->qkv_bias ? ", QKV bias" : "",
               c->qk_norm ? ", q/k norm" : "");
    print_line("layers", "%d", c->layers);
    print_line("width", "%d, MLP %d", c->width, c->hidden);
    print_line("heads", "%d of %d, %d for keys and values", c->heads, c->head_dim, c->kv_heads);
    print_line("vocabulary", "%d rows, head %s", c->vocab, c->tied ? "tied to the embedding" : "of its own");
    print_windows(c);
    if (c->experts > 0)
        print_line("experts", "%d of width %d, %d for each token", c->experts, c->expert_hidden, c->experts_chosen);
    print_rope("rope", &c->rope[0]);
    if (c->ropes > 1) print_rope("sliding rope", &c->rope[1]);
    print_line("norm", "RMS, eps %g", (double)c->norm_eps);
}

/* --- tensors ---------------------------------------------------------------------------------------------- */

/* The name with the first number between dots replaced by "*": layers share one line. */
static void generalise(const char *name, struct buf *out) {
    bool done = false;
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "."), digits = strspn(p, "0123456789");
        if (!done && n > 0 && digits == n) {
            buf_putc(out, '*');
            done = true;
        } else {
            buf_append(out, p, n);
        }
        p += n;
        if (*p) buf_putc(out, *p++);
    }
}

static void format_shape(const struct tensor *t, struct buf *out) {
    buf_putc(out, '[');
    for (int d = 0; d < t->dims; d++) buf_printf(out, "%s%lld", d ? ", " : "", (long long)t->shape[d]);
    buf_putc(out, ']');
}

static bool is_alike(const struct tensor *a, const struct tensor *b) {
    struct buf x = {0}, y = {0};
    generalise(a->name, &x);
    generalise(b->name, &y);
    bool same = strcmp(buf_text(&x), buf_text(&y)) == 0 && strcmp(a->dtype, b->dtype) == 0 && a->dims == b->dims &&
                memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) == 0;
    buf_free(&x);
    buf_free(&y);
    return same;
}

static void add_tensor_row(struct table *table, const struct tensor *t, int count, bool all) {
    struct buf name = {0}, shape = {0};
    if (all)
        buf_puts(&name, t->name);
    else
        generalise(t->name, &name);
    format_shape(t, &shape);
    table_add(table, "%s", escaped(buf_text(&name)));
    table_add(table, "%d", count);
    table_add(table, "%s", t->dtype);
    table_add(table, "%s", buf_text(&shape));
    table_add(table, "%zu", t->bytes * (size_t)count);
    buf_free(&name);
    buf_free(&shape);
}

/* Rows of equal name, layer number aside, type and shape are one row, at the first of them. */
static void print_tensors(const struct safetensors *s, bool all) {
    int n = safetensors_count(s);
    bool *shown = calloc((size_t)n + 1, sizeof *shown);
    if (!shown) abort(); /* a byte a tensor */
    struct table table = table_create("lrllr");
    table_add(&table, "tensor");
    table_add(&table, "count");
    table_add(&table, "type");
    table_add(&table, "shape");
    table_add(&table, "bytes");
    for (int i = 0; i < n; i++) {
        if (shown[i]) continue;
        int count = 1;
        for (int j = i + 1; j < n && !all; j++) {
            if (shown[j] || !is_alike(safetensors_at(s, i), safetensors_at(s, j))) continue;
            shown[j] = true;
            count++;
        }
        add_tensor_row(&table, safetensors_at(s, i), count, all);
    }
    free(shown);
    putchar('\n');
    table_print(&table, false);
}

static void print_totals(const struct safetensors *s) {
    uint64_t parameters = 0, bytes = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        uint64_t elements = 1;
        for (int d = 0; d < t->dims; d++) elements *= (uint64_t)t->shape[d];
        parameters += elements;
        bytes += t->bytes;
    }
    print_line("parameters", "%llu in %d tensors, %llu bytes", (unsigned long long)parameters, safetensors_count(s),
               (unsigned long long)bytes);
}

/* --- tokenizer and template ------------------------------------------------------------------------------- */

static void print_tokenizer(const struct tokenizer *t) {
    struct buf text = {0};
    if (t) tokenizer_describe(t, &text);
    print_line("tokenizer", "%s", t ? buf_text(&text) : "none: ids in, ids out");
    buf_free(&text);
}

static int print_template(const struct checkpoint *c, const struct options *o) {
    struct chat_template *t;
    int rc = checkpoint_chat_template(c, o->chat_template, &t);
    if (rc != 0 && o->chat_template) return rc;
    if (rc != 0) {
        print_line("chat template", "not recognised: %s", err_message());
        return 0;
    }
    print_line("chat template", "%s%s", t ? chat_template_name(t) : "none: completion mode",
               t && chat_template_can_think(t) ? ", can think" : "");
    chat_template_free(t);
    return 0;
}

/* --- the plan --------------------------------------------------------------------------------------------- */

static void print_plan(const struct memory_plan *plan) {
    struct table table = table_create("lrr");
    table_add(&table, "slice");
    table_add(&table, "bytes");
    table_add(&table, "offset");
    for (int i = 0; i < plan->count; i++) {
        table_add(&table, "%s", plan->slices[i].name);
        table_add(&table, "%zu", plan->slices[i].bytes);
        table_add(&table, "%zu", plan->slices[i].offset);
    }
    table_print(&table, false);
    printf("\npool %llu bytes; weights read from mapped files %llu bytes; context %d tokens, %d KV pages\n",
           (unsigned long long)plan->total_bytes, (unsigned long long)plan->mapped_bytes, plan->context, plan->pages);
    if (plan->refusal[0]) printf("does not fit: %s\n", plan->refusal);
}

static int plan_pair(struct memory_plan *plan, const struct options *o, const struct models *m) {
    struct engine_options eo;
    engine_options_set(&eo, o, m);
    return engine_plan(plan, &eo);
}

/* One line: what running this model alone would take. */
static int print_model_plan(struct checkpoint *c, const struct options *o) {
    struct models m = {.target = c};
    struct memory_plan plan;
    TRY(plan_pair(&plan, o, &m));
    print_line("memory", "pool %llu bytes and %llu mapped, at batch %d and context %d%s",
               (unsigned long long)plan.total_bytes, (unsigned long long)plan.mapped_bytes, o->batch, plan.context,
               plan.refusal[0] ? "; more than there is" : "");
    memory_plan_free(&plan);
    return 0;
}

/* --- the command ------------------------------------------------------------------------------------------ */

static int inspect_model(struct checkpoint *c, const struct options *o) {
    struct model_config config;
    struct safetensors *tensors = NULL;
    struct tokenizer *tokenizer = NULL;
    TRY(checkpoint_config(c, &config));
    TRY(checkpoint_tensors(c, &tensors));
    int rc = checkpoint_tokenizer(c, &tokenizer);
    if (rc == 0) {
        print_line("model", "%s", escaped(checkpoint_name(c)));
        print_config(&config);
        print_totals(tensors);
        print_tokenizer(tokenizer);
        rc = print_template(c, o);
    }
    if (rc == 0) {
        print_end_ids(&config, tokenizer);
        print_sampling(&config);
        rc = print_model_plan(c, o);
    }
    if (rc == 0) print_tensors(tensors, o->tensors);
    tokenizer_free(tokenizer);
    safetensors_close(tensors);
    return rc;
}

static int inspect_directory(const struct options *o) {
    struct checkpoint *c;
    TRY(models_find(o->directory, &c));
    int rc = inspect_model(c, o);
    checkpoint_close(c);
    return rc;
}

static int inspect_pair(const struct options *o) {
    struct models m;
    TRY(models_resolve(&m, o));
    int rc = inspect_model(m.target, o);
    if (rc == 0 && m.draft) {
        putchar('\n');
        rc = inspect_model(m.draft, o);
    }
    if (rc == 0 && m.proposer) printf("\ndraft: %s, no files\n", proposer_of_word(m.proposer)->title);
    models_free(&m);
    return rc;
}

static int inspect_memory(const struct options *o) {
    struct models m;
    struct memory_plan plan;
    TRY(models_resolve(&m, o));
    int rc = plan_pair(&plan, o, &m);
    if (rc == 0) {
        print_plan(&plan);
        memory_plan_free(&plan);
    }
    models_free(&m);
    return rc;
}

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

static void print_graph_total(const struct graph_set *set, const char *name) {
    size_t bytes = 0;
    for (int i = 0; set && i < graph_set_count(set); i++) bytes += graph_set_info(set, i).bytes;
    if (set)
        printf("%s: %d graphs, %zu bytes, warmed up and captured in %.3f s\n", name, graph_set_count(set), bytes,
               (double)graph_set_counts(set).capture_us * 1e-6);
}

static int inspect_graphs(const struct options *o) {
    static const char *const heading[] = {"set",   "role",       "batch", "q_len",  "segments",
                                          "nodes", "capture ms", "bytes", "replays"};
    struct models m;
    struct engine *engine;
    TRY(models_resolve(&m, o));
    int rc = engine_start(&engine, &m, o);
    if (rc != 0) {
        models_free(&m);
        return rc;
    }
    struct table table = table_create("llrrrrrrr");
    for (int i = 0; i < 9; i++) table_add(&table, "%s", heading[i]);
    add_graph_rows(&table, engine_graphs(engine, 0), "draft");
    add_graph_rows(&table, engine_graphs(engine, 1), "target");
    table_print(&table, false);
    putchar('\n');
    print_graph_total(engine_graphs(engine, 0), "draft");
    print_graph_total(engine_graphs(engine, 1), "target");
    engine_destroy(engine);
    models_free(&m);
    return 0;
}

int inspect_main(const struct options *o) {
    int rc = 0;
    if (!o->show_memory && !o->show_graphs) rc = o->directory ? inspect_directory(o) : inspect_pair(o);
    if (rc == 0 && o->show_memory) rc = inspect_memory(o);
    if (rc == 0 && o->show_memory && o->show_graphs) putchar('\n');
    if (rc == 0 && o->show_graphs) rc = inspect_graphs(o);
    return rc == 0 ? STATUS_OK : cli_fail(rc);
}
