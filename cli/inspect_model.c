/* duet inspect: one model. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/inspect.h"
#include "cli/table.h"
#include "model/files/safetensors.h"
#include "model/model.h"
#include "model/text/chat_template.h"
#include "model/text/tokenizer.h"

/* --- lines ---------------------------------------------------------------------------------------------- */

static void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print_line(const char *name, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%-15s", name);
    terminal_print(stdout, terminal_width(1), 15, 15, text);
}

static void print_rope(const char *name, const struct rope_config *r) {
    static const char *const types[] = {"",          ", linear",   ", llama3",       ", yarn",
                                        ", dynamic", ", longrope", ", proportional", ", given factors"};
    struct buf text = {0};
    buf_printf(&text, "theta %g%s", r->theta, types[r->type]);
    if (r->factor != 1) buf_printf(&text, " by %g", r->factor);
    if (r->type == ROPE_LLAMA3) buf_printf(&text, " (low %g, high %g)", r->low_freq, r->high_freq);
    if (r->original_positions > 0) buf_printf(&text, ", trained on %d", r->original_positions);
    if (r->dims < r->head_dim) buf_printf(&text, ", %d of %d dimensions turn", r->dims, r->head_dim);
    if (r->attention_factor != 1) buf_printf(&text, ", times %.4g", r->attention_factor);
    if (r->query_beta != 0) buf_printf(&text, ", queries grow by %g", r->query_beta);
    print_line(name, "%s", buf_text(&text));
    buf_free(&text);
}

static void print_ropes(const struct model_config *c) {
    int count[ROPES_MAX] = {0};
    for (int l = 0; l < c->layers; l++) count[c->layer[l].rope]++;
    for (int i = 0; i < c->ropes; i++)
        if (c->rope[i].dims == 0)
            print_line("no rope", "in %d of %d layers", count[i], c->layers);
        else
            print_rope(i == 0 ? "rope" : "sliding rope", &c->rope[i]);
}

static void print_experts(const struct model_config *c) {
    char layers[48] = "";
    int some = 0;
    for (int l = 0; l < c->layers; l++) some += c->layer[l].has_experts;
    if (some > 0 && some < c->layers) snprintf(layers, sizeof layers, ", in %d of %d layers", some, c->layers);
    print_line("experts", "%d of width %d, %d for each token%s", c->experts, c->expert_hidden, c->experts_chosen,
               layers);
}

static int recurrent_layers(const struct model_config *c) {
    int count = 0;
    for (int l = 0; l < c->layers; l++) count += c->layer[l].is_recurrent;
    return count;
}

/* What comes from a file, without control characters, until the next call. */
static const char *escaped(const char *text) {
    static char shown[1024];
    return err_escape(text, shown, sizeof shown);
}

static void print_end_ids(const struct model_config *c, const struct tokenizer *t) {
    struct buf text = {0};
    for (int i = 0; i < c->end_count; i++) {
        const char *token = t ? tokenizer_token(t, c->end_ids[i], &(size_t){0}) : NULL;
        buf_printf(&text, "%s%d%s%s%s", i ? ", " : "", c->end_ids[i], token ? " (" : "", token ? escaped(token) : "",
                   token ? ")" : "");
    }
    print_line("end ids", "%s", c->end_count ? buf_text(&text) : "none");
    buf_free(&text);
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
    print_line("vocabulary", "%d rows, head %s", c->vocab,
               c->drafter.block > 0 ? "and embedding of its model"
               : c->tied            ? "tied to the embedding"
                                    : "of its own");
    print_windows(c);
    if (recurrent_layers(c) > 0 && c->recurrent.rule == RULE_NONE)
        print_line("convolutions", "%d of %d layers, of %d positions", recurrent_layers(c), c->layers,
                   c->recurrent.taps);
    else if (recurrent_layers(c) > 0)
        print_line("recurrent", "%d of %d layers; heads: %d of %d for keys, %d of %d for values", recurrent_layers(c),
                   c->layers, c->recurrent.key_heads, c->recurrent.key_dim, c->recurrent.value_heads,
                   c->recurrent.value_dim);
    if (c->experts > 0) print_experts(c);
    print_ropes(c);
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

/* Tensors of equal name, layer number aside, type and shape. */
struct group {
    const struct tensor *first;
    int count;
};

/* At the first of each; with `all`, one tensor each. Returns their number, -1 without memory. */
static int group_tensors(const struct safetensors *s, bool all, struct group **out) {
    int n = safetensors_count(s), count = 0;
    bool *seen = calloc((size_t)n + 1, sizeof *seen);
    struct group *groups = calloc((size_t)n + 1, sizeof *groups);
    *out = groups;
    for (int i = 0; i < n && seen && groups; i++) {
        if (seen[i]) continue;
        groups[count] = (struct group){safetensors_at(s, i), 1};
        for (int j = i + 1; j < n && !all; j++) {
            if (seen[j] || !is_alike(safetensors_at(s, i), safetensors_at(s, j))) continue;
            seen[j] = true;
            groups[count].count++;
        }
        count++;
    }
    free(seen);
    return seen && groups ? count : -1;
}

static void add_group(struct table *table, const struct group *g, bool all) {
    struct buf name = {0}, shape = {0};
    if (all)
        buf_puts(&name, g->first->name);
    else
        generalise(g->first->name, &name);
    format_shape(g->first, &shape);
    table_add(table, "%s", escaped(buf_text(&name)));
    table_add(table, "%d", g->count);
    table_add(table, "%s", g->first->dtype);
    table_add(table, "%s", buf_text(&shape));
    table_add(table, "%zu", g->first->bytes * (size_t)g->count);
    buf_free(&name);
    buf_free(&shape);
}

static void print_groups(const struct group *groups, int count, bool all) {
    static const char *const heading[] = {"tensor", "count", "type", "shape", "bytes"};
    struct table table = table_create("lrllr", "42");
    for (int i = 0; i < 5; i++) table_add(&table, "%s", heading[i]);
    for (int i = 0; i < count; i++) add_group(&table, &groups[i], all);
    putchar('\n');
    table_print(&table, terminal_width(1));
}

static void put_groups(const struct group *groups, int count, bool all, struct buf *out) {
    json_put_name(out, "tensors");
    buf_putc(out, '[');
    for (int i = 0; i < count; i++) {
        const struct tensor *t = groups[i].first;
        struct buf name = {0};
        if (all)
            buf_puts(&name, t->name);
        else
            generalise(t->name, &name);
        json_put_element(out);
        buf_putc(out, '{');
        inspect_put_text(out, "name", buf_text(&name));
        inspect_put_number(out, "count", groups[i].count);
        inspect_put_text(out, "dtype", t->dtype);
        json_put_name(out, "shape"), format_shape(t, out);
        inspect_put_number(out, "bytes", (double)t->bytes * groups[i].count);
        buf_putc(out, '}');
        buf_free(&name);
    }
    buf_putc(out, ']');
}

static int show_tensors(const struct safetensors *s, bool all, struct buf *out) {
    struct group *groups;
    int count = group_tensors(s, all, &groups), rc = 0;
    if (count < 0)
        rc = err_set(ERR_MEMORY, "out of memory for a table of %d tensors", safetensors_count(s));
    else if (out)
        put_groups(groups, count, all, out);
    else
        print_groups(groups, count, all);
    free(groups);
    return rc;
}

uint64_t inspect_count(const struct safetensors *s, uint64_t *bytes) {
    uint64_t parameters = 0;
    *bytes = 0;
    for (int i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        uint64_t elements = 1;
        for (int d = 0; d < t->dims; d++) elements *= (uint64_t)t->shape[d];
        parameters += elements;
        *bytes += t->bytes;
    }
    return parameters;
}

static void print_totals(const struct safetensors *s) {
    uint64_t bytes, parameters = inspect_count(s, &bytes);
    print_line("parameters", "%llu in %d tensors, %s", (unsigned long long)parameters, safetensors_count(s),
               inspect_size(bytes));
}

/* --- tokenizer and template ------------------------------------------------------------------------------- */

static void print_tokenizer(const struct tokenizer *t) {
    struct buf text = {0};
    if (t) tokenizer_describe(t, &text);
    print_line("tokenizer", "%s", t ? buf_text(&text) : "none: ids in, ids out");
    buf_free(&text);
}

/* NULL for a template that duet does not know (`problem` then says so), and where there is none. */
static int find_template(const struct checkpoint *c, const struct options *o, struct chat_template **out,
                         struct buf *problem) {
    int rc = checkpoint_chat_template(c, o->chat_template, out);
    if (o->chat_template || (rc != ERR_UNSUPPORTED && rc != ERR_FORMAT)) return rc;
    *out = NULL;
    buf_puts(problem, err_message());
    return 0;
}

static void print_template(const struct chat_template *t, const struct buf *problem) {
    static const char *const thoughts[] = {
        [THOUGHTS_NONE] = "", [THOUGHTS_ASKED] = ", can think", [THOUGHTS_ALWAYS] = ", always thinks"};
    if (problem->len > 0)
        print_line("chat template", "cannot be used: %s", buf_text(problem));
    else if (!t)
        print_line("chat template", "none: completion mode");
    else
        print_line("chat template", "%s%s",
                   strcmp(chat_template_name(t), "own") == 0 ? "the model's own" : chat_template_name(t),
                   thoughts[chat_template_thoughts(t)]);
}

/* --- as text ------------------------------------------------------------------------------------------------ */

struct parts {
    struct model_config config;
    struct safetensors *tensors;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct buf template_problem;
    struct memory_plan plan; /* of this model alone */
    int64_t mtp_parameters;  /* of the head that proposes tokens; 0: there is none that --draft mtp takes */
};

static void print_model(const struct checkpoint *c, const struct options *o, const struct parts *p) {
    print_line("model", "%s", escaped(checkpoint_name(c)));
    print_config(&p->config);
    print_totals(p->tensors);
    if (p->mtp_parameters > 0)
        print_line("own head", "%lld parameters, proposes tokens: --draft mtp", (long long)p->mtp_parameters);
    print_tokenizer(p->tokenizer);
    print_template(p->chat_template, &p->template_problem);
    print_end_ids(&p->config, p->tokenizer);
    print_sampling(&p->config);
    if (p->config.drafter.is_there)
        print_line("drafts", "for a model of width %d, %d of its ids%s: it goes beside that as --draft",
                   p->config.drafter.target_width, p->config.drafter.head_vocab,
                   p->config.drafter.block > 0 ? ", a block at once" : "");
    else
        print_line("memory", "pool %s and %s mapped, at batch %d and context %d%s", inspect_size(p->plan.total_bytes),
                   inspect_size(p->plan.mapped_bytes), o->batch, p->plan.context,
                   p->plan.refusal[0] ? "; more than there is" : "");
}

/* --- as JSON ------------------------------------------------------------------------------------------------ */

void inspect_put_text(struct buf *out, const char *name, const char *text) {
    json_put_name(out, name);
    if (text)
        json_put_string(out, text, strlen(text));
    else
        buf_puts(out, "null");
}

void inspect_put_number(struct buf *out, const char *name, double value) {
    json_put_name(out, name);
    json_put_number(out, value);
}

static void put_config(const struct model_config *c, struct buf *out) {
    inspect_put_text(out, "architecture", c->architecture);
    inspect_put_number(out, "layers", c->layers);
    inspect_put_number(out, "width", c->width);
    inspect_put_number(out, "hidden", c->hidden);
    inspect_put_number(out, "heads", c->heads);
    inspect_put_number(out, "kv_heads", c->kv_heads);
    inspect_put_number(out, "head_dim", c->head_dim);
    inspect_put_number(out, "vocab", c->vocab);
    inspect_put_number(out, "positions", c->positions);
    inspect_put_number(out, "experts", c->experts);
    inspect_put_number(out, "recurrent_layers", recurrent_layers(c));
    json_put_name(out, "end_ids");
    put_json_ids(out, c->end_ids, (size_t)c->end_count);
    inspect_put_number(out, "temperature", c->gen_temperature);
    inspect_put_number(out, "top_p", c->gen_top_p);
    inspect_put_number(out, "top_k", c->gen_top_k >= 0 ? c->gen_top_k : NAN);
}

static void put_model(const struct checkpoint *c, const struct parts *p, struct buf *out) {
    struct buf description = {0};
    uint64_t bytes, parameters = inspect_count(p->tensors, &bytes);
    if (p->tokenizer) tokenizer_describe(p->tokenizer, &description);
    inspect_put_text(out, "model", checkpoint_name(c));
    put_config(&p->config, out);
    inspect_put_number(out, "parameters", (double)parameters);
    inspect_put_number(out, "bytes", (double)bytes);
    inspect_put_number(out, "mtp_parameters", (double)p->mtp_parameters);
    inspect_put_text(out, "tokenizer", p->tokenizer ? buf_text(&description) : NULL);
    inspect_put_text(out, "chat_template", p->chat_template ? chat_template_name(p->chat_template) : NULL);
    inspect_put_text(out, "chat_template_problem", p->template_problem.len > 0 ? buf_text(&p->template_problem) : NULL);
    json_put_name(out, "can_think");
    buf_puts(out, p->chat_template && chat_template_thoughts(p->chat_template) != THOUGHTS_NONE ? "true" : "false");
    const bool is_planned = !p->config.drafter.is_there;
    inspect_put_number(out, "pool_bytes", is_planned ? (double)p->plan.total_bytes : NAN);
    inspect_put_number(out, "mapped_bytes", is_planned ? (double)p->plan.mapped_bytes : NAN);
    inspect_put_number(out, "context", is_planned ? p->plan.context : NAN);
    buf_free(&description);
}

/* --- both --------------------------------------------------------------------------------------------------- */

int inspect_find_head(const struct checkpoint *c, int64_t *parameters) {
    struct device *device;
    struct model *model;
    *parameters = 0;
    TRY(device_open(&device, "host", &(struct device_options){.threads = 1}));
    if (model_open(&model, c, "target", (struct model_numbers){0}, device) == 0) { /* else the plan tells why */
        *parameters = model_own_head(model);
        model_close(model);
    }
    device_close(device);
    return 0;
}

static int read_parts(struct checkpoint *c, const struct options *o, struct parts *p) {
    TRY(checkpoint_config(c, &p->config));
    TRY(checkpoint_tensors(c, &p->tensors));
    TRY(checkpoint_tokenizer(c, &p->tokenizer));
    TRY(checkpoint_add_end_token(c, p->tokenizer, &p->config));
    TRY(find_template(c, o, &p->chat_template, &p->template_problem));
    if (p->config.drafter.is_there) return 0; /* no model without another */
    TRY(inspect_find_head(c, &p->mtp_parameters));
    return inspect_plan(&p->plan, &(struct models){.target = c}, o);
}

int inspect_model(struct checkpoint *c, const struct options *o, struct buf *out) {
    struct parts p = {0};
    int rc = read_parts(c, o, &p);
    if (rc == 0 && out) {
        buf_putc(out, '{');
        put_model(c, &p, out);
        rc = show_tensors(p.tensors, o->tensors, out);
        buf_putc(out, '}');
    } else if (rc == 0) {
        print_model(c, o, &p);
        rc = show_tensors(p.tensors, o->tensors, NULL);
    }
    memory_plan_free(&p.plan);
    chat_template_free(p.chat_template);
    tokenizer_free(p.tokenizer);
    safetensors_close(p.tensors);
    buf_free(&p.template_problem);
    return rc;
}
