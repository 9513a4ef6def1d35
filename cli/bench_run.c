/* The prompts, and whole answers to them, timed. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/batch.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/io.h"
#include "engine/probe.h"

/* --- prompts ---------------------------------------------------------------------------------------------- */

/* Every pair of these is another prompt: 256. */
static const char *const heroes[] = {"fox",  "girl", "boy",   "dog",    "bird",  "king", "farmer", "cat",
                                     "bear", "duck", "robot", "sailor", "baker", "frog", "horse",  "doctor"};
static const char *const deeds[] = {
    "learns to swim",     "finds an old map",   "builds a boat",       "is lost in the woods",
    "bakes a cake",       "makes a new friend", "sees snow at last",   "loses a red hat",
    "plants a tree",      "wants to fly",       "helps a small mouse", "sleeps all day",
    "goes to the market", "sings in the rain",  "finds a lost key",    "tells a lie"};
enum { HEROES = sizeof heroes / sizeof *heroes, DEEDS = sizeof deeds / sizeof *deeds, PROMPTS_MIN = 8 };

/* A built-in prompt as a line of batch input: a chat where there is a template. */
static void write_question(struct buf *out, int which, bool chat) {
    const char *hero = heroes[which % HEROES], *deed = deeds[(which / HEROES + which) % DEEDS];
    buf_puts(out, chat ? "{\"messages\": [{\"role\": \"user\", \"content\": " : "{\"prompt\": ");
    buf_printf(out, "\"Tell me a short story about a %s who %s.\"", hero, deed);
    buf_puts(out, chat ? "}]}\n" : "}\n");
}

/* Without a tokenizer: ids that differ from prompt to prompt. */
static void write_ids(struct buf *out, int which, int vocab) {
    buf_puts(out, "{\"prompt_ids\": [");
    for (int i = 0; i < 16; i++) buf_printf(out, "%s%d", i ? ", " : "", (3 + 37 * which + 11 * i) % vocab);
    buf_puts(out, "]}\n");
}

/* For one more. */
static bool make_room(struct bench_prompts *p) {
    struct ids *ids = realloc(p->ids, (size_t)(p->count + 1) * sizeof *ids);
    if (ids) p->ids = ids;
    int *most = realloc(p->max_tokens, (size_t)(p->count + 1) * sizeof *most);
    if (most) p->max_tokens = most;
    return ids && most;
}

/* As a batch asks it. */
static int encode_first_turn(struct request *r, const struct request_context *c) {
    const struct chat_encoding encoding = request_encoding(r, c);
    const struct chat_message user = {"user", buf_text(&r->turns[0]), r->turns[0].len};
    int rc = chat_encode(&encoding, &user, 1, &r->ids);
    if (rc == 0 && r->ids.len == 0)
        rc = err_set(ERR_FORMAT, "'turns' begins with an empty one: there is no token to start from");
    return rc == 0 ? 0 : err_prefix(rc, "line %d", r->line);
}

int bench_prompts_parse(struct bench_prompts *p, const struct request_context *c, const struct buf *text) {
    struct lines lines = lines_of(text);
    const char *line;
    size_t n;
    while (lines_next(&lines, &line, &n)) {
        struct request r;
        if (line_is_blank(line, n)) continue;
        int rc = request_parse(&r, c, lines.number, line, n);
        if (rc == 0 && r.error) rc = err_set(ERR_FORMAT, "line %d: %s", r.line, r.error);
        if (rc == 0 && r.turns) rc = encode_first_turn(&r, c);
        const bool ok = rc == 0 && make_room(p);
        if (ok) {
            p->ids[p->count] = r.ids;
            p->max_tokens[p->count++] = r.max_tokens;
            r.ids = (struct ids){0};
            if (r.sampling.temperature > 0) p->is_sampled = true;
        }
        request_free(&r);
        if (!ok) return rc != 0 ? rc : err_set(ERR_MEMORY, "out of memory for prompts");
    }
    return p->count > 0 ? 0 : err_set(ERR_FORMAT, "no prompt");
}

void bench_prompts_write(struct buf *text, const struct request_context *c) {
    for (int i = 0; i < PROMPTS_MIN || i < c->o->batch; i++) {
        if (c->tokenizer)
            write_question(text, i, c->chat_template != NULL);
        else
            write_ids(text, i, c->vocab);
    }
}

/* Answers whose length nobody has asked for take what room there is. */
static void shorten(struct bench_prompts *p, int context) {
    for (int i = 0; i < p->count; i++) {
        const int room = context - (int)p->ids[i].len;
        if (room > 0 && p->max_tokens[i] > room) p->max_tokens[i] = room;
    }
}

int bench_prompts_load(struct bench_prompts *p, const struct options *o, const struct engine *e,
                       const struct checkpoint *target) {
    *p = (struct bench_prompts){0};
    struct engine_info info = engine_info(e);
    struct chat_template *template = NULL;
    char problem[512] = "";
    struct request_context c = {.o = o, .tokenizer = engine_tokenizer(e), .vocab = info.vocab, .context = info.context};
    int rc = c.tokenizer ? checkpoint_chat_template(target, o->chat_template, &template) : 0;
    if (rc != 0 && o->chat_template) return rc;
    if (rc != 0) snprintf(problem, sizeof problem, "%s", err_message());
    rc = models_settle_template(o, template);
    if (rc != 0) {
        chat_template_free(template);
        return rc;
    }
    c.chat_template = template;
    c.template_error = problem[0] ? problem : NULL;
    c.think = o->think;
    struct buf text = {0};
    rc = o->input ? input_read(o->input, &text) : 0;
    if (!o->input) bench_prompts_write(&text, &c);
    if (rc == 0) {
        rc = bench_prompts_parse(p, &c, &text);
        if (rc == 0 && !o->input && !option_given(o, "max-tokens")) shorten(p, info.context);
        if (rc != 0) err_prefix(rc, "%s", o->input ? input_name(o->input) : "built-in prompts");
    }
    buf_free(&text);
    chat_template_free(template);
    if (rc != 0) bench_prompts_free(p);
    return rc;
}

void bench_prompts_free(struct bench_prompts *p) {
    for (int i = 0; i < p->count; i++) ids_free(&p->ids[i]);
    free(p->ids);
    free(p->max_tokens);
    *p = (struct bench_prompts){0};
}

int bench_prompts_check_room(const struct bench_prompts *p, const struct options *o, int context) {
    for (int i = 0; i < p->count; i++) {
        const int length = (int)p->ids[i].len, most = p->max_tokens[i];
        if (length <= context && most <= context - length) continue;
        char name[300] = "-n";
        if (o->input) snprintf(name, sizeof name, "%s: prompt %d", input_name(o->input), i + 1);
        return err_set(ERR_USAGE, "%s: a context of %d tokens has no room for %d of a prompt and %d of its answer",
                       name, context, length, most);
    }
    return 0;
}

void bench_prompts_put_tokens(const struct bench_prompts *p, struct buf *out, int *most) {
    int least = *most = p->max_tokens[0];
    for (int i = 1; i < p->count; i++) {
        if (p->max_tokens[i] < least) least = p->max_tokens[i];
        if (p->max_tokens[i] > *most) *most = p->max_tokens[i];
    }
    buf_printf(out, "%d prompts, ", p->count);
    buf_printf(out, least < *most ? "%d to %d tokens each" : "%d tokens each", least, *most);
}

/* --- whole answers ---------------------------------------------------------------------------------------- */

static void ignore_tokens(void *user, struct token_block *block) {
    (void)user;
    (void)block;
}

int bench_open_group(struct engine *e, const struct bench_prompts *p, const struct options *o, int first, int count,
                     int length, struct sequence **sequences) {
    for (int i = 0; i < count; i++) {
        const int which = (first + i) % p->count;
        const struct ids *ids = &p->ids[which];
        const int max_tokens = length > 0                  ? length
                               : length == ANSWER_AS_ASKED ? p->max_tokens[which]
                                                           : engine_info(e).context;
        struct generation g = {.max_tokens = max_tokens,
                               .ignore_end = length == ANSWER_FILLS_CONTEXT,
                               .sampling = o->sampling,
                               .seed = seed_for_record(option_given(o, "seed") ? o->seed : 1, (uint64_t)(first + i)),
                               .on_tokens = ignore_tokens};
        TRY(engine_open(e, (int)ids->len + max_tokens, &sequences[i]));
        TRY(engine_generate(e, sequences[i], ids->data, (int)ids->len, &g));
    }
    return probe_ingest(e);
}

void bench_close_group(struct engine *e, struct sequence **sequences, int count) {
    for (int i = 0; i < count; i++) {
        if (sequences[i]) engine_close(e, sequences[i]);
        sequences[i] = NULL;
    }
}

int bench_check_group(struct sequence *const *sequences, int first, int count) {
    for (int i = 0; i < count; i++)
        if (engine_finish(sequences[i]) == FINISH_ERROR)
            return err_prefix(engine_finish_error(sequences[i]), "prompt %d", first + i + 1);
    return 0;
}

int bench_check_answer(struct engine *e, const struct bench_prompts *p, const struct options *o) {
    struct sequence *sequence = NULL;
    int running = 1;
    int rc = bench_open_group(e, p, o, 0, 1, 1, &sequence);
    while (rc == 0 && running > 0) rc = engine_step(e, &running);
    if (rc == 0) rc = bench_check_group(&sequence, 0, 1);
    bench_close_group(e, &sequence, 1);
    return rc;
}

/* Rounds in which all rows of a group are live. */
struct full_rounds {
    double seconds;
    int64_t count;
};

/* A step may only enqueue a round, so what counts are those that it collects. */
static int timed_step(struct engine *e, int *running, double *seconds, int64_t *rounds) {
    const uint64_t collected = engine_counts(e).collected;
    const int64_t start_us = clock_us();
    TRY(engine_step(e, running));
    *seconds += (double)(clock_us() - start_us) * 1e-6;
    *rounds += (int64_t)(engine_counts(e).collected - collected);
    return 0;
}

/* Rounds in flight behind the last answer are none of the next group's. */
static int drain(struct engine *e) {
    int running;
    while (engine_counts(e).collected < engine_counts(e).rounds) TRY(engine_step(e, &running));
    return 0;
}

static int run_group(struct engine *e, struct sequence **sequences, int count, struct bench_run *run,
                     struct full_rounds *full) {
    int running = count;
    while (running == count) TRY(timed_step(e, &running, &full->seconds, &full->count));
    while (running > 0) TRY(timed_step(e, &running, &run->seconds, &run->rounds));
    TRY(drain(e));
    for (int i = 0; i < count; i++) acceptance_merge(&run->stats, engine_sequence_stats(sequences[i]));
    return 0;
}

static void set_means(struct bench_run *run, const struct engine_counts *before, struct engine_counts after) {
    double rounds = (double)(after.rounds - before->rounds),
           timed = (double)(after.times.rounds - before->times.rounds);
    if (rounds > 0) {
        run->host_us = (double)(after.host_us - before->host_us) / rounds;
        run->wait_us = (double)(after.wait_us - before->wait_us) / rounds;
    }
    if (timed > 0) {
        run->draft_ms = (after.times.draft_ms - before->times.draft_ms) / timed;
        run->verify_ms = (after.times.verify_ms - before->times.verify_ms) / timed;
        run->sampling_ms = (after.times.sampling_ms - before->times.sampling_ms) / timed;
    }
}

int bench_generate(struct engine *e, const struct bench_prompts *p, const struct options *o, int k,
                   struct bench_run *run) {
    *run = (struct bench_run){0};
    struct full_rounds full = {0};
    struct sequence *sequences[256] = {0};
    struct engine_counts before = engine_counts(e);
    TRY(engine_set_k(e, k));
    int rc = 0;
    for (int first = 0; first < p->count && rc == 0; first += o->batch) {
        int count = p->count - first < o->batch ? p->count - first : o->batch;
        rc = bench_open_group(e, p, o, first, count, ANSWER_AS_ASKED, sequences);
        if (rc == 0) rc = run_group(e, sequences, count, run, &full);
        if (rc == 0) rc = bench_check_group(sequences, first, count);
        bench_close_group(e, sequences, count);
    }
    run->tokens = run->stats.emitted;
    run->round_ms = full.count > 0 ? full.seconds * 1e3 / (double)full.count : 0;
    run->seconds += full.seconds, run->rounds += full.count;
    set_means(run, &before, engine_counts(e));
    return rc;
}

double bench_rate(const struct bench_run *run) {
    return run->seconds > 0 ? (double)run->tokens / run->seconds : NAN;
}
