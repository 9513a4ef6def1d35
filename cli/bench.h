/* duet bench: what its files share, and duet tune takes from it.
 *
 * Measurements (bench_run.c, bench_steps.c, bench_pause.c, bench_bandwidth.c, bench_product.c) know nothing of tables; a table is a file bench_NAME.c,
 * which measures into a struct, and fills a sheet (cli/sheet.h) from it (cli/bench_tables.h). */
#ifndef DUET_CLI_BENCH_H
#define DUET_CLI_BENCH_H

#include "cli/cli.h"
#include "engine/engine.h"
#include "engine/probe.h"

/* Bytes a second that the device reads, by adding up a buffer larger than its caches; best of several passes. Allocates and
 * gives back. */
int bench_bandwidth(const char *device, const struct device_options *, double *bytes_per_second);

/* Floating-point operations a second of one large matrix product, [N, N] x [N, N], 2 N^3 of them, best of several passes: on CUDA bf16
 * by cuBLAS with f32 sums and N = 8192, the product that chunks of prompts run; on the host, which has no library but its own kernels, a
 * bf16 weight times f32 rows with N = 1024. The numbers are random, as large as weights, since a GPU's clock depends on them. Opens the
 * device; allocates and gives back (0.6 GB of a GPU); waits. ERR_DEVICE, ERR_MEMORY. */
int bench_product_rate(const char *device, const struct device_options *, double *flops_per_second);

/* The prompts: ids of [count] distinct ones, from -i FILE (JSONL as of `duet batch`, prompt, messages, prompt_ids, or the
 * first of turns) or built in. */
struct bench_prompts {
    struct ids *ids;
    int *max_tokens; /* [count] of the line, else of the options */
    int count;
    bool is_sampled; /* a line asks for a temperature above 0 */
};
int bench_prompts_load(struct bench_prompts *, const struct options *, const struct engine *,
                       const struct checkpoint *target);
/* The lines of `text`, which are all right or the error is of the first that is not; and the built-in ones as lines. */
struct request_context;
int bench_prompts_parse(struct bench_prompts *, const struct request_context *, const struct buf *text);
void bench_prompts_write(struct buf *text, const struct request_context *);
void bench_prompts_free(struct bench_prompts *);

/* ERR_USAGE if a prompt and its answer do not fit: what would be measured were another answer than the table says. */
int bench_prompts_check_room(const struct bench_prompts *, const struct options *, int context);
/* "8 prompts, 128 tokens each"; *most: of an answer. */
void bench_prompts_put_tokens(const struct bench_prompts *, struct buf *out, int *most);

/* Opens sequences for prompts [first, first + count), modulo their number, and ingests them for answers of `length` tokens at most, or
 * as one of these says. */
enum { ANSWER_FILLS_CONTEXT = -1, ANSWER_AS_ASKED = 0 };
int bench_open_group(struct engine *, const struct bench_prompts *, const struct options *, int first, int count,
                     int length, struct sequence **sequences);
void bench_close_group(struct engine *, struct sequence **sequences, int count);
/* Of answers that have ended: ERR_NUMERIC if one did for logits that are no numbers; `first`: the prompt of the first. */
int bench_check_group(struct sequence *const *sequences, int first, int count);
/* One token of an answer to the first prompt, for tables that time launches alone: a model that gives none has no times. */
int bench_check_answer(struct engine *, const struct bench_prompts *, const struct options *);

/* All prompts answered once, `batch` at a time, each in a fresh sequence. Time of prefill is left out. */
struct bench_run {
    double seconds; /* in rounds */
    int64_t rounds;
    double round_ms;                         /* mean over the rounds with all rows of a group live */
    double host_us, wait_us;                 /* means over rounds, engine_counts */
    double draft_ms, verify_ms, sampling_ms; /* the same over timed rounds; 0 without any */
    int64_t tokens;
    struct acceptance stats;
};
int bench_generate(struct engine *, const struct bench_prompts *, const struct options *, int k, struct bench_run *);
double bench_rate(const struct bench_run *); /* tokens a second; NAN: none were made */

/* Milliseconds of single launches with `batch` rows in mid-answer. */
struct bench_steps {
    double decode_ms;
    double verify_ms[K_MAX + 2];                   /* [M], M = 2..k_max+1 rows */
    double draft_first_ms, draft_step_ms, draw_ms; /* of a draft model */
    double propose_ms;                             /* of another proposer, all of a round */
    double accept_ms, accept_plain_ms;             /* at accept_k; at K = 0 */
    int accept_k;
    int context; /* tokens before the rows */
};
int bench_steps(struct engine *, const struct bench_prompts *, const struct options *, struct bench_steps *);
/* Of these decode_ms, verify_ms and context alone. */
int bench_scores(struct engine *, const struct bench_prompts *, const struct options *, struct bench_steps *);
/* What the launches of a round of k <= k_max take, one after the other. Acceptance lies on a line through the two K at which it was
 * timed. */
double bench_round_ms(const struct bench_steps *, int k);
/* Of these, all replays of the draft, or what another proposer does; 0 at K = 0. */
double bench_draft_ms(const struct bench_steps *, int k);

/* Replays of one graph, on the rows of the last round. */
int bench_graph(struct engine *, enum probe_model, struct graph_key, double *ms);

/* Ingesting a prompt of `tokens` ids into a fresh sequence, in tokens a second; 0 where the context is shorter. */
struct bench_prefill {
    int tokens;
    double target, pair; /* the target's cache alone; the draft's as well */
};
int bench_prefill(struct engine *, struct bench_prefill *, int count);

/* The longest pause that batch - 1 answers see while a prompt arrives; all 0 where the batch is 1, or the context too short. */
struct bench_pause {
    int tokens;        /* of the prompt */
    double round_ms;   /* without it */
    double at_once_ms; /* if it were ingested before the next round */
    double between_ms; /* as it is: a chunk between two rounds */
};
int bench_pause(struct engine *, int batch, struct bench_pause *);

#endif
