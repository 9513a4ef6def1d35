#include "graphs/graph_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "graphs/breakable.h"

enum { MAX_BATCH = 256, EXACT_MAX_DEFAULT = 32, HASH_SIZE = 256 };

struct graph {
    struct graph_key key;
    struct breakable *body;
    uint64_t generation; /* of the pool whose addresses the body holds */
    uint64_t replays, last_use;
    float capture_ms;
    struct graph *next; /* in the hash chain */
};

struct shape {
    int kind, q_len;
    bool is_single; /* of a batch of 1, whatever the buckets */
};

struct graph_set {
    struct graph_set_options options;
    char name[32];        /* options.name points here */
    struct shape *shapes; /* [shape_count], as declared */
    int shape_count;
    struct graph_key *warm_ups; /* [warm_up_count] */
    int warm_up_count;
    bool is_captured;      /* graph_set_capture was called */
    bool is_eager;         /* graph_set_run_eagerly */
    struct graph **graphs; /* [count] in order of capture */
    int count, cap;
    struct graph *chains[HASH_SIZE]; /* by key */
    uint64_t clock;                  /* counts launches, for last_use */
    struct graph_set_counts counts;
};

/* --- the set ------------------------------------------------------------------------------------ */

static int check_options(const struct graph_set_options *o) {
    if (!o->name || !o->kind_names || o->kind_count < 1 || !o->build || !o->pool || !o->stream)
        return err_set(ERR_INTERNAL, "graph_set_create: names, build, pool and stream are needed");
    if (o->max_batch < 1 || o->max_batch > MAX_BATCH)
        return err_set(ERR_USAGE, "%s graphs: max_batch is %d, expected 1 to %d", o->name, o->max_batch, MAX_BATCH);
    if (o->exact_max < 0) return err_set(ERR_USAGE, "%s graphs: exact_max is %d", o->name, o->exact_max);
    return 0;
}

int graph_set_create(struct graph_set **out, const struct graph_set_options *options) {
    *out = NULL;
    TRY(check_options(options));
    struct graph_set *s = calloc(1, sizeof *s);
    if (!s) return err_set(ERR_MEMORY, "no memory for a graph set");
    s->options = *options;
    snprintf(s->name, sizeof s->name, "%s", options->name);
    s->options.name = s->name;
    if (s->options.exact_max == 0) s->options.exact_max = EXACT_MAX_DEFAULT;
    *out = s;
    return 0;
}

static void free_graph(struct graph *g) {
    breakable_destroy(g->body);
    free(g);
}

void graph_set_destroy(struct graph_set *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++) free_graph(s->graphs[i]);
    free(s->graphs);
    free(s->shapes);
    free(s->warm_ups);
    free(s);
}

static bool is_kind(const struct graph_set *s, int kind) {
    return kind >= 0 && kind < s->options.kind_count;
}

int graph_set_bucket(const struct graph_set *s, int batch) {
    static const int steps[] = {[BUCKETS_POW2] = MAX_BATCH, [BUCKETS_STEP8] = 8, [BUCKETS_STEP16] = 16};
    int max = s->options.max_batch, bucket = 1;
    if (batch < 1 || batch > max) return 0;
    if (s->options.policy == BUCKETS_EXACT) return batch;
    const int step = steps[s->options.policy];
    while (bucket < batch) bucket += bucket < step ? bucket : step;
    return bucket < max ? bucket : max;
}

static bool is_declared(const struct graph_set *s, int kind, int q_len) {
    for (int i = 0; i < s->shape_count; i++)
        if (s->shapes[i].kind == kind && s->shapes[i].q_len == q_len) return true;
    return false;
}

static int add_shape(struct graph_set *s, int kind, int q_len, bool is_single) {
    if (!is_kind(s, kind) || q_len < 1)
        return err_set(ERR_INTERNAL, "%s graphs: kind %d with q_len %d", s->name, kind, q_len);
    if (s->is_captured) return err_set(ERR_INTERNAL, "%s graphs: graph_set_add after graph_set_capture", s->name);
    if (is_declared(s, kind, q_len)) return 0;
    struct shape *shapes = realloc(s->shapes, (size_t)(s->shape_count + 1) * sizeof *shapes);
    if (!shapes) return err_set(ERR_MEMORY, "no memory for the shapes of a graph set");
    shapes[s->shape_count++] = (struct shape){kind, q_len, is_single};
    s->shapes = shapes;
    return 0;
}

int graph_set_add(struct graph_set *s, int kind, int q_len) {
    return add_shape(s, kind, q_len, false);
}

int graph_set_add_single(struct graph_set *s, int kind, int q_len) {
    return add_shape(s, kind, q_len, true);
}

int graph_set_warm_up(struct graph_set *s, struct graph_key key) {
    if (s->is_captured || !is_declared(s, key.kind, key.q_len))
        return err_set(ERR_INTERNAL, "%s graphs: kind %d with q_len %d cannot be warmed up", s->name, key.kind,
                       key.q_len);
    struct graph_key *keys = realloc(s->warm_ups, (size_t)(s->warm_up_count + 1) * sizeof *keys);
    if (!keys) return err_set(ERR_MEMORY, "no memory for the keys of a graph set");
    keys[s->warm_up_count++] = key;
    s->warm_ups = keys;
    return 0;
}

/* --- the table ---------------------------------------------------------------------------------- */

static struct graph **chain_of(struct graph_set *s, struct graph_key key) {
    unsigned hash = ((unsigned)key.batch * 31u + (unsigned)key.q_len) * 31u + (unsigned)key.kind;
    return &s->chains[hash % HASH_SIZE];
}

static bool is_same(struct graph_key a, struct graph_key b) {
    return a.kind == b.kind && a.batch == b.batch && a.q_len == b.q_len;
}

static struct graph *find_graph(struct graph_set *s, struct graph_key key) {
    struct graph *g = *chain_of(s, key);
    while (g && !is_same(g->key, key)) g = g->next;
    return g;
}

static int reserve_graph(struct graph_set *s) {
    if (s->count < s->cap) return 0;
    int cap = s->cap ? 2 * s->cap : 32;
    struct graph **graphs = realloc(s->graphs, (size_t)cap * sizeof(struct graph *));
    if (!graphs) return err_set(ERR_MEMORY, "no memory for a table of %d graphs", cap);
    s->graphs = graphs;
    s->cap = cap;
    return 0;
}

/* There is room: reserve_graph came before. */
static void insert_graph(struct graph_set *s, struct graph *g) {
    struct graph **chain = chain_of(s, g->key);
    g->next = *chain;
    *chain = g;
    s->graphs[s->count++] = g;
}

static void evict_least_recent(struct graph_set *s) {
    int oldest = 0;
    for (int i = 1; i < s->count; i++)
        if (s->graphs[i]->last_use < s->graphs[oldest]->last_use) oldest = i;
    struct graph *g = s->graphs[oldest], **link = chain_of(s, g->key);
    while (*link != g) link = &(*link)->next;
    *link = g->next;
    s->count--;
    memmove(&s->graphs[oldest], &s->graphs[oldest + 1], (size_t)(s->count - oldest) * sizeof(struct graph *));
    free_graph(g);
    s->counts.evictions++;
}

/* --- capture ------------------------------------------------------------------------------------ */

struct debug_call {
    struct graph_set *set;
    struct graph_key key;
};

static int run_debug_call(struct stream *stream, const void *args) {
    const struct debug_call *call = args;
    return call->set->options.build(call->set->options.user, stream, call->key);
}

static int build_body(struct graph_set *s, struct graph_key key, struct breakable *body) {
    struct debug_call call = {s, key};
    if (s->options.mode == GRAPHS_DEBUG)
        TRY(graph_break(body, run_debug_call, &call, sizeof call));
    else
        TRY(s->options.build(s->options.user, s->options.stream, key));
    return breakable_end(body);
}

static int capture_body(struct graph_set *s, struct graph_key key, struct graph *g) {
    int64_t start_us = clock_us();
    struct breakable *body;
    TRY(breakable_begin(&body, s->options.stream));
    int rc = build_body(s, key, body);
    if (rc != 0) {
        breakable_abort(body);
        return rc;
    }
    g->body = body;
    g->capture_ms = (float)(clock_us() - start_us) / 1000.0f;
    return 0;
}

static int capture_graph(struct graph_set *s, struct graph_key key) {
    TRY(reserve_graph(s));
    struct graph *g = calloc(1, sizeof *g);
    if (!g) return err_set(ERR_MEMORY, "no memory for a graph");
    g->key = key;
    g->generation = pool_generation(s->options.pool);
    g->last_use = s->clock;
    int rc = capture_body(s, key, g);
    if (rc != 0) {
        free_graph(g);
        return rc;
    }
    insert_graph(s, g);
    s->counts.captures++;
    return 0;
}

/* What a kernel does once, at its first launch, must not fall into a capture. Host ops do nothing of the kind, and
 * there a pass of the model for each key would be all that start-up takes. */
static int warm_up(struct graph_set *s, struct graph_key key) {
    if (!device_is_async(stream_device(s->options.stream))) return 0;
    TRY(s->options.build(s->options.user, s->options.stream, key));
    return stream_sync(s->options.stream);
}

static bool captures_at_start(const struct graph_set *s) {
    return s->options.mode != GRAPHS_OFF && s->options.policy != BUCKETS_EXACT;
}

/* Without graphs, or where they come at their first use, the warm-up alone. */
static int prepare_graph(struct graph_set *s, struct graph_key key) {
    int rc = warm_up(s, key);
    if (rc == 0 && captures_at_start(s)) rc = capture_graph(s, key);
    if (rc == 0) return 0;
    return err_prefix(rc, "%s graph %s (batch %d, q_len %d)", s->name, graph_set_kind_name(s, key.kind), key.batch,
                      key.q_len);
}

static bool is_bucket(const struct graph_set *s, int batch) {
    return batch > 0 && graph_set_bucket(s, batch) == batch;
}

/* Is the shape prepared at start-up for this batch? With EXACT, where each batch is a bucket, the largest batch and what is to be
 * warmed up. */
static bool is_prepared(const struct graph_set *s, const struct shape *shape, int batch) {
    const struct graph_key key = {shape->kind, batch, shape->q_len};
    if (shape->is_single) return batch == 1;
    if (!is_bucket(s, batch)) return false;
    if (s->options.policy != BUCKETS_EXACT || batch == s->options.max_batch) return true;
    for (int i = 0; i < s->warm_up_count; i++)
        if (is_same(s->warm_ups[i], key)) return true;
    return false;
}

static int64_t prepared_count(const struct graph_set *s) {
    int64_t count = 0;
    for (int batch = 1; batch <= s->options.max_batch; batch++)
        for (int i = 0; i < s->shape_count; i++) count += is_prepared(s, &s->shapes[i], batch);
    return count;
}

/* "capturing target (batch 8, q_len 5), 118.2 GiB free" */
static void describe_key(const struct graph_set *s, struct graph_key key, char *out, size_t size) {
    uint64_t free_bytes, total_bytes;
    int n = snprintf(out, size, "%s %s (batch %d, q_len %d)", captures_at_start(s) ? "capturing" : "warming up",
                     s->name, key.batch, key.q_len);
    if (device_memory(stream_device(s->options.stream), &free_bytes, &total_bytes) == 0)
        snprintf(out + n, size - (size_t)n, ", %.1f GiB free", (double)free_bytes / (1 << 30));
}

static int prepare_bucket(struct graph_set *s, int batch, int64_t *done, int64_t total) {
    const struct progress *progress = &s->options.progress;
    char what[128];
    for (int i = 0; i < s->shape_count; i++) {
        struct graph_key key = {s->shapes[i].kind, batch, s->shapes[i].q_len};
        if (!is_prepared(s, &s->shapes[i], batch)) continue;
        if (progress->report) describe_key(s, key, what, sizeof what), progress_report(progress, what, *done, total);
        TRY(prepare_graph(s, key));
        ++*done;
        if (progress->report && *done == total) progress_report(progress, what, total, total);
    }
    return 0;
}

static int capture_all(struct graph_set *s) {
    if (!captures_at_start(s) && !device_is_async(stream_device(s->options.stream))) return 0;
    int64_t done = 0, total = prepared_count(s);
    for (int batch = s->options.max_batch; batch > 0; batch--) TRY(prepare_bucket(s, batch, &done, total));
    return 0;
}

int graph_set_capture(struct graph_set *s) {
    if (s->is_captured) return err_set(ERR_INTERNAL, "%s graphs: graph_set_capture was called before", s->name);
    s->is_captured = true;
    int64_t start_us = clock_us();
    int rc = capture_all(s);
    s->counts.capture_us = clock_us() - start_us;
    return rc;
}

/* --- replay ------------------------------------------------------------------------------------- */

static int replay_graph(struct graph_set *s, struct graph *g, struct stream *stream) {
    uint64_t generation = pool_generation(s->options.pool);
    if (g->generation != generation)
        return err_set(ERR_INTERNAL,
                       "%s graph %s (batch %d, q_len %d) was captured over pool generation %llu, the pool is now %llu",
                       s->name, graph_set_kind_name(s, g->key.kind), g->key.batch, g->key.q_len,
                       (unsigned long long)g->generation, (unsigned long long)generation);
    g->last_use = ++s->clock;
    g->replays++;
    s->counts.replays++;
    return breakable_launch(g->body, stream);
}

static int launch_and_capture(struct graph_set *s, struct graph_key key, struct stream *stream) {
    TRY(s->options.build(s->options.user, stream, key));
    if (s->count >= s->options.exact_max) evict_least_recent(s);
    s->clock++;
    return capture_graph(s, key);
}

int graph_set_launch(struct graph_set *s, struct graph_key key, struct stream *stream) {
    if (!is_kind(s, key.kind) || !is_bucket(s, key.batch))
        return err_set(ERR_INTERNAL, "%s graphs: no bucket of kind %d has batch %d", s->name, key.kind, key.batch);
    if (s->options.mode == GRAPHS_OFF || s->is_eager) return s->options.build(s->options.user, stream, key);
    struct graph *g = find_graph(s, key);
    if (g) return replay_graph(s, g, stream);
    if (s->options.policy == BUCKETS_EXACT && is_declared(s, key.kind, key.q_len))
        return launch_and_capture(s, key, stream);
    s->counts.eager_fallbacks++;
    return s->options.build(s->options.user, stream, key);
}

void graph_set_run_eagerly(struct graph_set *s, bool on) {
    s->is_eager = on;
}

/* --- reports ------------------------------------------------------------------------------------ */

int graph_set_count(const struct graph_set *s) {
    return s->count;
}

const char *graph_set_kind_name(const struct graph_set *s, int kind) {
    return s->options.kind_names[kind];
}

struct graph_info graph_set_info(const struct graph_set *s, int index) {
    const struct graph *g = s->graphs[index];
    return (struct graph_info){
        .key = g->key,
        .segments = breakable_segments(g->body),
        .nodes = breakable_nodes(g->body),
        .capture_ms = g->capture_ms,
        .bytes = breakable_bytes(g->body),
        .replays = g->replays,
    };
}

int graph_set_kept_on_use(const struct graph_set *s) {
    return s->options.mode != GRAPHS_OFF && s->options.policy == BUCKETS_EXACT ? s->options.exact_max : 0;
}

int graph_set_shape_count(const struct graph_set *s) {
    return s->shape_count;
}

struct graph_key graph_set_shape(const struct graph_set *s, int index) {
    const struct shape *shape = &s->shapes[index];
    return (struct graph_key){shape->kind, shape->is_single ? 1 : s->options.max_batch, shape->q_len};
}

struct graph_set_counts graph_set_counts(const struct graph_set *s) {
    return s->counts;
}
