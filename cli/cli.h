/* What the commands share. cli/ is the only code that prints, exits and reads the environment.
 *
 * stdout carries results alone. On stderr: errors always (one line each, "duet: ..."); notes, banners and bars only
 * where it is a terminal and --quiet was not given. */
#ifndef DUET_CLI_CLI_H
#define DUET_CLI_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/version.h"
#include "cli/io.h"
#include "cli/options.h"
#include "engine/engine.h"

/* Besides these, 128 + signal: signals_status. */
enum exit_status { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* --- the commands; each returns the exit status ------------------------------------------------------- */

int chat_main(const struct options *);
int batch_main(const struct options *);
int inspect_main(const struct options *);
int tokenize_main(const struct options *);
int bench_main(const struct options *);
int models_main(const struct options *);
int tune_main(const struct options *);

/* --- errors, notes, colour (terminal.c) --------------------------------------------------------------- */

void terminal_init(const struct options *); /* main calls it first: --quiet, NO_COLOR, which streams are terminals */

/* Prints "duet: SENTENCE" once, after clearing a progress bar. cli_fail prints err_message() and returns the exit status
 * of `rc`: STATUS_USAGE for ERR_USAGE, else STATUS_FAILED; quiet where standard output lost its reader, with that status. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_fail(int rc);
/* One line on stderr, "duet: ...", only where stderr is a terminal and not --quiet. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool terminal_is_tty(int fd);    /* 0, 1, 2 */
bool terminal_has_color(int fd); /* a terminal, NO_COLOR unset or empty, TERM not "dumb" */
bool terminal_is_dumb(void);     /* escape sequences show as what they are */
bool terminal_is_quiet(void);
int terminal_columns(int fd); /* now; 0: no terminal, or unknown */
/* What text and tables are laid out for: $COLUMNS, else the terminal's columns, else 80. */
int terminal_width(int fd);
/* Prints text and ends the line: broken between words, in lines of `width` columns, the later ones indented. The line holds
 * `column` columns already. */
void terminal_print(FILE *, int width, int column, int indent, const char *text);
/* The same, appended, without the end of the line. */
void terminal_wrap(struct buf *out, int width, int column, int indent, const char *text);

enum style { STYLE_RESET, STYLE_DIM, STYLE_BOLD, STYLE_RED, STYLE_GREEN, STYLE_YELLOW, STYLE_CYAN };
const char *terminal_style(int fd, enum style); /* the escape sequence, "" without colour */

/* Appends a bar of `share` in [0, 1] of `columns`, in eighths of a cell where the terminal has them. */
void terminal_put_bar(struct buf *, double share, int columns);

/* --- progress bar on stderr (terminal.c) -------------------------------------------------------------- */

/* The callback for engine_options.progress. Draws nothing unless stderr is a terminal and not --quiet. */
struct progress progress_bar(void);
/* Draws one: "what [#####     ] 12/40 TAIL", at most ten a second and always at done == total. `tail` may be NULL. */
void progress_draw(const char *what, int64_t done, int64_t total, const char *tail);
void progress_clear(void); /* erases it; before any other line on stderr (cli_error and cli_note do it) */

/* --- signals (signals.c) -------------------------------------------------------------------------------- */

/* From main, first: SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGQUIT are handled as signals_set says, SIGPIPE and SIGXFSZ ignored, so
 * that a failed write says why; where memory for text runs out, or a mapped file of a model shrinks (SIGBUS), the program ends
 * with a sentence and status 1. */
void signals_init(void);
/* SIGNALS_EXIT: a signal ends the program at once (while models load): last words, "duet: interrupted", status 128 + signal.
 * SIGNALS_FLAG: it sets the flag, and blocking reads return EINTR; the program ends by itself. With last words, a second signal
 * is as under SIGNALS_EXIT. */
enum signal_mode { SIGNALS_EXIT, SIGNALS_FLAG };
void signals_set(enum signal_mode);
/* What a sudden end leaves undone, behind its sentence: ": 3 of 5 records are missing". */
void signals_set_consequence(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Called at a sudden end, perhaps inside a signal's handler: may only do what is async-signal-safe. NULL: nothing. */
void signals_set_last_words(void (*speak)(void *user), void *user);
/* The terminal is put back to what it is now at a sudden end, and while Ctrl-Z has stopped the program. signals_continue, for
 * SIGCONT's handler: it is as before the stop again, once the program is in the foreground. */
void signals_keep_terminal(void);
void signals_continue(void);

bool signals_interrupted(void);                  /* by any of them */
extern const struct interrupt signals_interrupt; /* the same question, for what takes it as one */
void signals_clear(void);                        /* Ctrl-C was meant for something that is over; other signals stay */
void signals_end(int signal);                    /* as if it had come: SIGPIPE, where standard output has no reader */
int signals_ended(void);  /* the signal that shall end the program: any but SIGINT, which a chat outlives; 0: none */
int signals_status(void); /* exit status of a program that a signal ends */
/* Between these signals wait: a write that one interrupted would lose what it was to write. */
void signals_hold(void);
void signals_release(void);

/* --- models and the engine (models.c) ------------------------------------------------------------------- */

struct models {
    struct checkpoint *target, *draft; /* draft NULL: none */
    const char *proposer; /* the word that --draft gave in place of a directory (draft/proposer.h); NULL: none */
    bool embedded;        /* the pair of assets/ */
};

/* --target, --draft (a directory, or ORG/NAME in the local Hugging Face cache, or a word of draft/proposer.h), or the embedded pair.
 * `draft` is NULL for such a word, though "mtp" has a model of the target's files; for --target alone (noted once), where K and K_max
 * are 0, but not in bench; and for tables of bench that are of the target alone. */
int models_resolve(struct models *out, const struct options *);
void models_free(struct models *);
/* The embedded pair alone. */
int models_embedded(struct models *out);
/* Path of a file that lies with the embedded pair, but for its models: beside the program, or in the PREFIX that it was built for. */
int models_find_file(struct buf *path, const char *name);
/* One model by the same rules: what `inspect DIR` takes. *out is closed by the caller. */
int models_find(const char *name, struct checkpoint **out);

/* Rounds between two whose device time a report or `duet bench` measures: the events cost then a fraction of a percent. */
enum { TIMED_EVERY = 4 };

/* Fills engine_options: k and k_max (0 without a draft; default k_max: max(k, 8) in chat, max(k, 16) in bench of one K, k elsewhere),
 * max_batch (1 in chat), context, device, threads, graphs, buckets, accept, timing (for --alpha-report and in bench), and the
 * progress bar, Ctrl-C. Points into `m` and `o`. */
void engine_options_set(struct engine_options *out, const struct options *o, const struct models *m);

/* Creates the engine, clears the bar, and notes a capped context. `m`, which models_resolve made, must outlive the engine. */
int engine_start(struct engine **out, const struct models *m, const struct options *o);

/* The chat template of --template, or the target's own; NULL: it has none, or none that can be used, which `problem` then says (freed by
 * the caller): an error of what needs one alone. Settles it, and notes a day's date that --date
 * does not give. */
int models_chat_template(const struct models *, const struct options *, const struct engine *, struct chat_template **,
                         char **problem);
/* Gives the template (NULL: none) --date and --reasoning-effort; notes those, and a --think, of which it knows nothing. */
int models_settle_template(const struct options *, struct chat_template *);

/* --- --alpha-report (report.c) ----------------------------------------------------------------------------- */

struct alpha_report {
    bool wanted;
    bool is_picture;    /* FILE.svg: drawn, not JSON */
    struct output file; /* closed: text alone */
};
/* Opens FILE, before the models load; what it holds stays until the report is written. ERR_USAGE if it is the input, the output
 * (NULL: none) or a file of the models too. */
int alpha_report_open(struct alpha_report *, const struct options *, const struct models *, const struct output *);
/* At the end of the run: the table to stderr, the object or the picture to FILE. Closes it; a failed write is an error. */
int alpha_report_write(struct alpha_report *, struct engine *);
void alpha_report_close(struct alpha_report *); /* without writing */

#endif
