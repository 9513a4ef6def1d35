/* Does --k auto pay? It against every fixed K on the same prompts, in turns: tokens a second while all rows of a batch run,
 * medians over the turns (of ratios, too). What falls far behind in two turns takes part in no more. Claims: auto reaches 0.97 of
 * the best fixed K and 0.99 of K = 0.
 *
 *   make build/host-release/bench/auto_k && build/host-release/bench/auto_k [OPTION...]
 *
 *   --device NAME, --threads N         as of duet
 *   --target DIR --draft DIR|ngram|mtp     models (the embedded pair), or
 *   --shape TARGET,DRAFT               random weights; DRAFT may be ngram or mtp
 *   --batch 1,8,32                     rows at once, each in turn
 *   --alpha 0.2,0,0.8/0.1,text         what is accepted, each in turn: text, as the rule says; a number, with that probability;
 *                                      two numbers, the first in the first half of each answer and then the other
 *   --k 1,2,3,4,6,8                    the fixed K beside 0; the largest is auto's limit
 *   --tokens N, --repeats R            of each answer; of each setting, once more for auto, whose first run is not counted. Answers of
 *                                      a repeat have seeds of their own; fewer rows than four give several, one after another
 *   --temperature T, --accept RULE     of text
 *   --clock cpu                        processor time in place of the time that passes: for --threads 1 on a busy machine
 *
 * For a GPU: auto_k --shape llama-3.1-8b,llama-3.2-1b --batch 1,8,32 --alpha 0.2,0.5,0.8,0,0.8/0.1 --repeats 3 --tokens 192
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "draft/proposer.h"
#include "engine/probe.h"
#include "sampler/sampler.h"

enum { LIST_MAX = 16, REPEATS_MAX = 99, BATCH_MAX = 256, TEXTS = 8, ANSWERS = 4 };
static const float never = 1e-30f; /* in place of 0, which means the rule */

struct scene { /* what is accepted; below 0: text */
    float first, second;
};

struct bench {
    const char *device, *target, *draft, *shape;
    int threads, tokens, repeats;
    float temperature;
    enum accept_rule accept;
    bool by_cpu;
    int batches[LIST_MAX], batch_count, ks[LIST_MAX], k_count; /* ks[0] is 0 */
    struct scene scenes[LIST_MAX];
    int scene_count;
    struct engine *engine;
    int short_of; /* claims that did not hold */
};

/* Runs of one setting. */
struct runs {
    int k, count;
    double rate[REPEATS_MAX]; /* tokens a second */
    double seconds;
    uint64_t rounds, rounds_by_k[K_MAX + 1];
};

static void must(int rc) {
    if (rc == 0) return;
    fprintf(stderr, "auto_k: %s\n", err_message());
    exit(1);
}

/* --- one run ------------------------------------------------------------------------------------------------ */

static double now_s(const struct bench *b) {
    struct timespec t;
    clock_gettime(b->by_cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void count_tokens(void *user, struct token_block *block) {
    *(int64_t *)user += block->count;
}

static void append_prompt(const struct bench *b, int which, struct ids *ids) {
    static const char *const texts[TEXTS] = {"Once upon a time there was a little girl who",
                                             "Tell me a short story about a fox who builds a boat.",
                                             "The king said to the farmer: \"One, two, three, four, one, two,",
                                             "What is the sun made of?",
                                             "Ben ran to the park with his dog and his red ball.",
                                             "A list of colours: red, green, blue, red, green,",
                                             "It was a dark night, and the sailor",
                                             "Explain how to bake bread, step by step."};
    const struct tokenizer *t = engine_tokenizer(b->engine);
    const char *text = texts[which % TEXTS];
    if (t) must(tokenizer_encode(t, text, strlen(text), &(struct encode_options){.special = true}, ids));
    for (int i = 0; !t && i < 16; i++) ids_push(ids, (3 + 37 * which + 11 * i) % engine_info(b->engine).vocab);
}

static struct sequence *ask(const struct bench *b, int which, int repeat, int64_t *tokens) {
    struct sequence *s;
    struct ids ids = {0};
    append_prompt(b, which, &ids);
    struct generation g = {.max_tokens = b->tokens,
                           .sampling = {.temperature = b->temperature, .top_p = 1},
                           .seed = seed_for_record((uint64_t)repeat, (uint64_t)which),
                           .ignore_end = true,
                           .on_tokens = count_tokens,
                           .user = tokens};
    must(engine_open(b->engine, (int)ids.len + b->tokens, &s));
    must(engine_generate(b->engine, s, ids.data, (int)ids.len, &g));
    ids_free(&ids);
    return s;
}

static void set_alpha(const struct bench *b, float alpha) {
    probe_set_simulate_alpha(b->engine, alpha < 0 ? 0 : alpha > 0 ? alpha : never);
}

/* Answers to prompts [first, first + batch), until the first of them is complete: then fewer rows run. *seconds, without the
 * prompts' ingestion. */
static int64_t answer(const struct bench *b, int first, int batch, int repeat, const struct scene *scene,
                      double *seconds) {
    struct sequence *sequences[BATCH_MAX];
    int64_t tokens = 0, all = (int64_t)batch * b->tokens;
    int running = batch;
    set_alpha(b, scene->first);
    for (int i = 0; i < batch; i++) sequences[i] = ask(b, first + i, repeat, &tokens);
    must(probe_ingest(b->engine));
    const double start_s = now_s(b);
    for (bool is_first = true; running == batch;) {
        must(engine_step(b->engine, &running));
        if (is_first && 2 * tokens >= all) set_alpha(b, scene->second), is_first = false;
    }
    *seconds += now_s(b) - start_s;
    for (int i = 0; i < batch; i++) engine_close(b->engine, sequences[i]);
    return tokens;
}

/* What is accepted is chance, and text depends on its prompt, so that few rows answer several. */
static void run_once(const struct bench *b, int batch, const struct scene *scene, struct runs *r) {
    const struct engine_counts before = engine_counts(b->engine);
    double seconds = 0;
    int64_t tokens = 0;
    must(engine_set_k(b->engine, r->k));
    for (int first = 0; first < ANSWERS; first += batch) tokens += answer(b, first, batch, r->count, scene, &seconds);
    const struct engine_counts after = engine_counts(b->engine);
    r->rate[r->count++] = (double)tokens / seconds;
    r->seconds += seconds;
    r->rounds += after.rounds - before.rounds;
    for (int k = 0; k <= K_MAX; k++) r->rounds_by_k[k] += after.rounds_by_k[k] - before.rounds_by_k[k];
}

/* --- a cell: a batch and a scene ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static double median(const struct runs *r) {
    double rates[REPEATS_MAX];
    memcpy(rates, r->rate, sizeof *rates * (size_t)r->count);
    return median_of(rates, r->count);
}

/* Of one setting over another: the median of what runs side by side say. */
static double times(const struct runs *r, const struct runs *other) {
    const int count = r->count < other->count ? r->count : other->count;
    double ratios[REPEATS_MAX];
    for (int i = 0; i < count; i++) ratios[i] = r->rate[i] / other->rate[i];
    return median_of(ratios, count);
}

/* Half of what lies between the slowest and the fastest, in percent of the median. */
static double spread(const struct runs *r) {
    double low = INFINITY, high = 0;
    for (int i = 0; i < r->count; i++) low = fmin(low, r->rate[i]), high = fmax(high, r->rate[i]);
    return 50 * (high - low) / median(r);
}

static void print_title(int batch, const struct scene *s) {
    char what[64] = "as the rule says";
    if (s->first >= 0) snprintf(what, sizeof what, "alpha %g", (double)s->first);
    if (s->first != s->second) snprintf(what, sizeof what, "alpha %g, then %g", (double)s->first, (double)s->second);
    printf("\nbatch %d, %s\n      K     tok/s  spread %%  of K 0  ms a round  auto expects\n", batch, what);
}

static void print_runs(const struct bench *b, int batch, const struct runs *r, const struct runs *plain) {
    char name[16];
    snprintf(name, sizeof name, "%d", r->k);
    printf("%7s %9.1f %9.1f %7.3f %11.3f", r->k == K_AUTO ? "auto" : name, median(r), spread(r), times(r, plain),
           1e3 * r->seconds / (double)r->rounds);
    if (r->k != K_AUTO) printf(" %13.3f", engine_round_ms(b->engine, batch, r->k));
    putchar('\n');
}

static void print_choices(const struct runs *r) {
    printf("K that auto took, in %% of rounds:");
    for (int k = 0; k <= K_MAX; k++)
        if (r->rounds_by_k[k] > 0) printf(" %d: %.1f", k, 100.0 * (double)r->rounds_by_k[k] / (double)r->rounds);
    putchar('\n');
}

/* Far from the best, and so not run again. K = 0 is always asked for. */
static bool is_hopeless(const struct bench *b, const struct runs *fixed, int which) {
    double best = 0;
    if (which == 0 || which == b->k_count || fixed[which].count < 2) return false;
    for (int i = 0; i < b->k_count; i++) best = fmax(best, median(&fixed[i]));
    return median(&fixed[which]) < 0.85 * best;
}

/* fixed [k_count]; the first is K = 0. */
static void judge(struct bench *b, const struct runs *automatic, const struct runs *fixed) {
    int best = 0;
    for (int i = 1; i < b->k_count; i++)
        if (!is_hopeless(b, fixed, i) && median(&fixed[i]) > median(&fixed[best])) best = i;
    const double of_best = times(automatic, &fixed[best]), of_plain = times(automatic, &fixed[0]);
    const bool holds = of_best >= 0.97 && of_plain >= 0.99;
    printf("auto / best fixed K (%d) %.3f, auto / K 0 %.3f: %s\n", fixed[best].k, of_best, of_plain,
           holds ? "holds" : "SHORT");
    fflush(stdout);
    b->short_of += !holds;
}

/* Every setting in turn, from another one on each time. */
static void run_cell(struct bench *b, int batch, const struct scene *scene) {
    struct runs fixed[LIST_MAX + 1] = {0}, *automatic = &fixed[b->k_count], first = {.k = K_AUTO};
    for (int i = 0; i < b->k_count; i++) fixed[i].k = b->ks[i];
    automatic->k = K_AUTO;
    run_once(b, batch, scene, &first);
    for (int repeat = 0; repeat < b->repeats; repeat++)
        for (int i = 0; i <= b->k_count; i++) {
            const int which = (i + repeat) % (b->k_count + 1);
            if (repeat < 2 || !is_hopeless(b, fixed, which)) run_once(b, batch, scene, &fixed[which]);
        }
    print_title(batch, scene);
    for (int i = 0; i <= b->k_count; i++) print_runs(b, batch, &fixed[i], &fixed[0]);
    printf("auto's first run: %.1f tok/s; ", median(&first));
    print_choices(automatic);
    judge(b, automatic, fixed);
}

/* --- options ---------------------------------------------------------------------------------------------------- */

static int usage(void) {
    fputs("auto_k: the head of bench/auto_k.c says how it is used\n", stderr);
    return 2;
}

/* Numbers from `low` on, between commas, to the end of `out`; returns how many there are then, 0: not that. */
static int parse_list(const char *text, int low, int high, int *out, int count) {
    for (char *end; count < LIST_MAX; text = end + 1) {
        long n = strtol(text, &end, 10);
        if (end == text || n < low || n > high) return 0;
        out[count++] = (int)n;
        if (*end == '\0') return count;
        if (*end != ',') return 0;
    }
    return 0;
}

static bool parse_alpha(const char **text, float *out) {
    char *end;
    *out = strtof(*text, &end);
    bool is_number = end != *text && *out >= 0 && *out <= 1;
    *text = end;
    return is_number;
}

static int parse_scenes(const char *text, struct scene *out) {
    for (int count = 0; count < LIST_MAX; text++) {
        struct scene *s = &out[count++];
        if (strncmp(text, "text", 4) == 0) {
            *s = (struct scene){-1, -1};
            text += 4;
        } else {
            if (!parse_alpha(&text, &s->first)) return 0;
            s->second = s->first;
            if (*text == '/' && (text++, !parse_alpha(&text, &s->second))) return 0;
        }
        if (*text == '\0') return count;
        if (*text != ',') return 0;
    }
    return 0;
}

static bool set_option(struct bench *b, int option, const char *value) {
    switch (option) {
    case 'd':
        return b->device = value, true;
    case 'p':
        return b->threads = atoi(value), b->threads > 0;
    case 't':
        return b->target = value, true;
    case 'y':
        return b->draft = value, true;
    case 's':
        return b->shape = value, true;
    case 'b':
        return (b->batch_count = parse_list(value, 1, BATCH_MAX, b->batches, 0)) > 0;
    case 'a':
        return (b->scene_count = parse_scenes(value, b->scenes)) > 0;
    case 'k':
        return (b->k_count = parse_list(value, 1, K_MAX, b->ks, 1)) > 1;
    case 'n':
        return b->tokens = atoi(value), b->tokens > 0;
    case 'r':
        return b->repeats = atoi(value), b->repeats > 0 && b->repeats <= REPEATS_MAX;
    case 'T':
        return b->temperature = strtof(value, NULL), b->temperature >= 0;
    case 'A':
        for (int rule = 0; rule <= ACCEPT_BLOCK; rule++)
            if (strcmp(value, accept_rule_name((enum accept_rule)rule)) == 0)
                return b->accept = (enum accept_rule)rule, true;
        return false;
    case 'c':
        b->by_cpu = strcmp(value, "cpu") == 0;
        return b->by_cpu || strcmp(value, "wall") == 0;
    default:
        return false;
    }
}

static bool is_word(const char *draft) {
    return draft && proposer_of_word(draft);
}

static bool parse(struct bench *b, int argc, char **argv) {
    static const struct option options[] = {
        {"device", 1, NULL, 'd'}, {"threads", 1, NULL, 'p'}, {"target", 1, NULL, 't'},      {"draft", 1, NULL, 'y'},
        {"shape", 1, NULL, 's'},  {"batch", 1, NULL, 'b'},   {"alpha", 1, NULL, 'a'},       {"k", 1, NULL, 'k'},
        {"tokens", 1, NULL, 'n'}, {"repeats", 1, NULL, 'r'}, {"temperature", 1, NULL, 'T'}, {"accept", 1, NULL, 'A'},
        {"clock", 1, NULL, 'c'},  {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!set_option(b, option, optarg)) return false;
    return optind == argc && (b->target || !b->draft || is_word(b->draft));
}

/* --- start ------------------------------------------------------------------------------------------------------ */

static int largest(const int *list, int count) {
    int most = 0;
    for (int i = 0; i < count; i++) most = list[i] > most ? list[i] : most;
    return most;
}

static void open_engine(struct bench *b, struct checkpoint *models[2]) {
    static char shape[256];
    const char *target = b->target ? b->target : "assets/target", *draft = b->draft ? b->draft : "assets/draft";
    if (b->shape) {
        snprintf(shape, sizeof shape, "%s", b->shape);
        char *comma = strchr(shape, ',');
        if (comma) *comma = '\0';
        target = shape, draft = comma ? comma + 1 : "ngram";
    }
    models[0] = b->shape ? checkpoint_open_shape(target) : checkpoint_open(target);
    models[1] = is_word(draft) ? NULL : b->shape ? checkpoint_open_shape(draft) : checkpoint_open(draft);
    struct engine_options o = {.target = models[0],
                               .draft = models[1],
                               .proposer = is_word(draft) ? draft : NULL,
                               .device = b->device,
                               .threads = b->threads,
                               .k = K_AUTO,
                               .k_max = largest(b->ks, b->k_count),
                               .max_batch = largest(b->batches, b->batch_count),
                               .context = b->tokens + 64,
                               .accept = b->accept};
    must(engine_create(&b->engine, &o));
    printf("%s, %s + %s, %d answers' tokens of each row, %d times, %s\n", engine_info(b->engine).device, target, draft,
           b->tokens, b->repeats, b->by_cpu ? "processor time" : "wall clock");
}

int main(int argc, char **argv) {
    static struct bench b = {.tokens = 256,
                             .repeats = 5,
                             .batches = {1},
                             .batch_count = 1,
                             .ks = {0, 1, 2, 3, 4, 6, 8},
                             .k_count = 7,
                             .scenes = {{-1, -1}},
                             .scene_count = 1};
    struct checkpoint *models[2] = {0};
    if (!parse(&b, argc, argv)) return usage();
    open_engine(&b, models);
    for (int i = 0; i < b.batch_count; i++)
        for (int j = 0; j < b.scene_count; j++) run_cell(&b, b.batches[i], &b.scenes[j]);
    printf("\n%d of %d cells short\n", b.short_of, b.batch_count * b.scene_count);
    engine_destroy(b.engine);
    for (int i = 0; i < 2; i++)
        if (models[i]) checkpoint_close(models[i]);
    return 0;
}
