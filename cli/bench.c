/* duet bench: what every table starts from, and the choice of the table. */
#include <math.h>

#include "base/json_number.h"
#include "cli/bench_tables.h"

static const struct kind {
    int (*run)(struct bench *);
    bool needs_bandwidth, opens_engine, answers; /* answers: all prompts, whole */
} kinds[BENCH_KINDS] = {
    [BENCH_ROUND] = {.run = bench_round, .needs_bandwidth = true, .answers = true},
    [BENCH_BUCKETS] = {.run = bench_buckets},
    [BENCH_STACK] = {.run = bench_stack, .answers = true},
    [BENCH_OVERHEAD] = {.run = bench_overhead, .needs_bandwidth = true, .answers = true},
    [BENCH_PEERS] = {.run = bench_peers, .answers = true},
    [BENCH_ALPHA] = {.run = bench_alpha},
    [BENCH_START] = {.run = bench_start, .opens_engine = true},
    [BENCH_VERIFY] = {.run = bench_verify, .opens_engine = true},
    [BENCH_DECODE] = {.run = bench_decode, .needs_bandwidth = true},
};

static struct kind kind_of(const struct options *o) {
    return o->operand == BENCH_ROUND && o->k_count > 1 ? (struct kind){.run = bench_ks, .answers = true}
                                                       : kinds[o->operand];
}

/* The bandwidth comes first: it takes memory that the engine needs. */
static int start(struct bench *b, struct kind kind) {
    const struct options *o = b->o;
    const struct device_options device = {.threads = o->threads, .gpu = o->gpu};
    TRY(models_resolve(&b->models, o));
    TRY(plot_file_open(&b->plot, o, &b->models));
    if (kind.opens_engine) return 0;
    if (kind.needs_bandwidth) {
        cli_note("measuring the read bandwidth");
        TRY(bench_bandwidth(o->device, &device, &b->bandwidth));
    }
    struct options first = *o;
    if (o->operand == BENCH_BUCKETS)
        first.buckets = BUCKETS_EXACT; /* no graph yet: what is free without any is measured */
    TRY(engine_start(&b->engine, &b->models, &first));
    TRY(bench_prompts_load(&b->prompts, o, b->engine, b->models.target));
    const bool says_tokens = kind.answers || (option_given(o, "max-tokens") && o->operand != BENCH_DECODE);
    return says_tokens ? bench_prompts_check_room(&b->prompts, o, engine_info(b->engine).context) : 0;
}

int bench_main(const struct options *o) {
    struct bench b = {.o = o, .plot = OUTPUT_CLOSED};
    struct kind kind = kind_of(o);
    int rc = start(&b, kind);
    if (rc == 0) rc = kind.run(&b);
    int status = rc == 0 ? STATUS_OK : cli_fail(rc);
    (void)output_close(&b.plot);
    bench_prompts_free(&b.prompts);
    engine_destroy(b.engine);
    models_free(&b.models);
    return status;
}

/* --- what tables share --------------------------------------------------------------------------------------- */

void bench_describe(struct sheet *s, const struct bench *b, int context) {
    const struct engine_info info = engine_info(b->engine);
    const struct options *o = b->o;
    struct buf line = {0};
    if (o->shape) sheet_say(s, "random weights of the shape %s: nothing here is about text", o->shape);
    if (info.draft_vocab > 0) sheet_say(s, "the draft's head is cut to %d ids", info.draft_vocab);
    if (o->simulate_alpha > 0) {
        sheet_say(s, "acceptance is simulated: alpha %g", (double)o->simulate_alpha);
        buf_printf(&s->remarks, "acceptance is simulated: alpha %g\n", (double)o->simulate_alpha);
    }
    int most;
    buf_printf(&line, "%s; batch %d, accept %s, ", info.device, o->batch, accept_rule_name(info.accept));
    bench_prompts_put_tokens(&b->prompts, &line, &most);
    buf_printf(&line, ", temperature %g", (double)o->sampling.temperature);
    if (context > 0) buf_printf(&line, ", %d tokens of context in the steps", context);
    sheet_say(s, "%s", buf_text(&line));
    buf_free(&line);
    sheet_put_word(s, "device", info.device);
    sheet_put_word(s, "proposer", info.proposer);
    sheet_put_word(s, "shape", o->shape);
    sheet_put_figure(s, "draft_vocab", info.draft_vocab > 0 ? info.draft_vocab : NAN);
    sheet_put_figure(s, "batch", o->batch);
    sheet_put_word(s, "accept", accept_rule_name(info.accept));
    sheet_put_figure(s, "prompts", b->prompts.count);
    sheet_put_figure(s, "max_tokens", most);
    sheet_put_figure(s, "temperature", json_number_of_float(o->sampling.temperature));
    sheet_put_figure(s, "context", context > 0 ? context : NAN);
    sheet_put_figure(s, "simulated_alpha", o->simulate_alpha > 0 ? json_number_of_float(o->simulate_alpha) : NAN);
}

int bench_needs_draft(const struct bench *b) {
    if (engine_info(b->engine).k_max > 0) return 0;
    return err_set(ERR_USAGE, "nothing drafts here: give --draft MODEL, ngram or mtp, or --shape TARGET,DRAFT");
}

int bench_draw(struct bench *b, const char *title, const struct plot_panel *panels, int count) {
    struct buf svg = {0};
    if (b->plot.fd < 0) return 0;
    plot_svg(&svg, title, panels, count);
    int rc = plot_file_write(&b->plot, &svg);
    buf_free(&svg);
    return rc;
}
