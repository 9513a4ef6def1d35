/* duet tune: what its files share.
 *
 * A setting is a K and a rule of acceptance. A run of it answers all prompts once (tune_run.c). The sweep runs every setting that
 * may win, then the best of them again in turns, so that a machine that grows slower or faster favours none (tune.c). What
 * follows from the figures is pure (tune_choice.c); tune_show.c prints and draws it. */
#ifndef DUET_CLI_TUNE_H
#define DUET_CLI_TUNE_H

#include "cli/batch.h"
#include "cli/bench.h"
#include "cli/cli.h"

enum { TUNE_RULES = ACCEPT_BLOCK + 1, TUNE_REPEATS_MAX = 99 };

struct tune_setting {
    int k;
    enum accept_rule rule;             /* at K = 0 there is nothing to accept */
    int runs;                          /* whole ones */
    double rate[TUNE_REPEATS_MAX + 1]; /* [runs] tok/s of each; K = 0 has one more */
    double seconds;                    /* in rounds, of all runs; prefill is left out, but for later turns of a chat */
    int64_t tokens;
    struct acceptance stats;
};

struct tune_results {
    struct tune_setting settings[1 + K_MAX * TUNE_RULES]; /* [count]; the first is K = 0 */
    int count;
    int k_max;                  /* that the sweep may reach */
    double round_ms[K_MAX + 1]; /* [k_max + 1] what a round's launches take, each timed alone */
    bool is_greedy;             /* temperature 0 throughout: all rules are one */
};

/* --- what follows from the figures (tune_choice.c) ------------------------------------------------------------- */

/* Tokens a second over all runs; 0 before the first. */
double tune_rate(const struct tune_setting *);
/* Half of what lies between the slowest and the fastest run, as a share of the mean; NAN of fewer than two. */
double tune_spread(const struct tune_setting *);
double tune_speed_up(const struct tune_results *, const struct tune_setting *); /* against K = 0 */
/* The speed-up that a chance `alpha` of each drafted token brings at K, by the times of the launches:
 * (1 - alpha^(K+1)) / (1 - alpha) tokens in a round of K against one in a round of K = 0. NAN if alpha is. */
double tune_predict(const struct tune_results *, double alpha, int k);
/* The same by the alpha of the setting's own runs. */
double tune_predict_own(const struct tune_results *, const struct tune_setting *);
/* The alpha of all runs of a rule together. */
double tune_alpha(const struct tune_results *, enum accept_rule);
/* Can neither K nor any larger one win any more, if acceptance were always the best that was seen? Not known
 * before K = 1 has run. */
bool tune_is_over(const struct tune_results *, int k);
/* Is it near enough to the best, by the noise that K = 0 shows, to be run again? K = 0 always is. */
bool tune_is_contender(const struct tune_results *, const struct tune_setting *);

struct tune_choice {
    enum { TUNE_PAYS, TUNE_UNCLEAR, TUNE_PLAIN } verdict; /* UNCLEAR: faster than K = 0, but by less than the noise */
    const struct tune_setting *best;                      /* with K > 0; NULL: none was measured */
    double speed_up;                                      /* its */
    double noise;                     /* the larger spread of it and of K = 0; NAN: one of them ran once */
    int rivals;                       /* other settings with K > 0 that lie within the noise of it */
    const struct tune_setting *rival; /* the fastest of them */
};
struct tune_choice tune_choose(const struct tune_results *);
/* One sentence, without a full stop: what to use, and what it brings. */
void tune_put_sentence(struct buf *out, const struct tune_results *);

/* --- the prompts and a run of a setting (tune_run.c) ------------------------------------------------------------ */

struct tune {
    const struct options *o; /* with a seed */
    struct models models;
    struct engine *engine;
    struct chat_template *chat_template;
    char *template_error;
    struct request_context context;
    struct buf text;              /* the lines of the prompts */
    struct bench_prompts prompts; /* their ids */
    uint64_t *greedy;             /* [prompts.count] hash of the answer at temperature 0; 0: none yet, or sampled */
    struct output plot;
    struct tune_results results;
    int64_t answered, to_answer; /* of the progress bar */
};

/* Checks all lines of `text`. */
int tune_load_prompts(struct tune *);
/* One more run of a setting. ERR_INTERRUPTED leaves it as it was. ERR_INTERNAL if an answer at temperature 0 differs from that of the
 * setting that ran first. */
int tune_run(struct tune *, struct tune_setting *);

/* --- (tune_show.c) ---------------------------------------------------------------------------------------------- */

void tune_print(const struct tune *); /* the table, CSV or JSON, to standard output */
int tune_write_plot(struct tune *);   /* closes it; nothing where none was asked for */

#endif
