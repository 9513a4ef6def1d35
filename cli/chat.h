/* What the files of the chat share: chat.c (start, loops, end), chat_answer.c (one answer), chat_commands.c (/help and
 * the like), chat_settings.c (/set), chat_files.c (/save and the like), chat_show.c (what is printed), chat_complete.c (Tab),
 * chat_speed.c (what speculation brings), chat_input.h (where turns come from). */
#ifndef DUET_CLI_CHAT_H
#define DUET_CLI_CHAT_H

#include "cli/chat_input.h"
#include "cli/cli.h"
#include "cli/wrap.h"
#include "engine/conversation.h"

/* What rounds were there before an answer; how long answers have been slower than plain decoding; was it said? (chat_speed.c) */
struct chat_speed {
    struct engine_counts before;
    int slow_answers;
    int64_t slow_tokens;
    bool has_said;
};

enum footer { FOOTER_OFF, FOOTER_SHORT, FOOTER_FULL };

struct chat {
    struct options options; /* the chat's own: /temp and the like change them */
    struct models models;
    struct alpha_report report;
    struct engine *engine;
    struct chat_template *chat_template; /* NULL: completion mode */
    struct conversation *conversation;
    struct chat_input *input;
    struct wrap wrap; /* of the text that is being printed */
    bool interactive; /* standard input and output are terminals */
    bool has_seed;    /* --seed or /seed: the chat can be repeated */
    bool show;        /* /show on: accepted draft tokens are marked */
    bool marked;      /* without colours: a bracket is open in what is printed */
    enum footer footer;
    bool failed;     /* a turn or command of a pipe failed */
    bool done;       /* /exit */
    int turn;        /* questions of this conversation, dropped ones too */
    int attempt;     /* how often the last one was asked again (/regen) */
    struct buf read; /* goes in front of the next question (/read) */
    struct chat_speed speed;
    /* The last answer, for /show and /stats. */
    uint64_t answer_seed;
    struct ids answer_ids;
    struct buf answer_accepted; /* [answer_ids.len] 1: proposed by the draft */
};

/* --- chat_answer.c -------------------------------------------------------------------------------------------- */

/* Asks, streams the answer to standard output, and stores it. *interrupted: Ctrl-C ended it. On an error, and where Ctrl-C
 * came before the first token, the conversation is as before. */
int chat_answer(struct chat *, const char *question, size_t n, bool *interrupted);

/* --- chat_commands.c ------------------------------------------------------------------------------------------ */

/* Runs "/name argument". A failure is printed and, outside a terminal, noted in `failed`. */
void chat_command(struct chat *, const char *line);

/* A line of /help. */
struct chat_row {
    const char *name, *argument; /* "/save", "FILE" */
    const char *values;          /* that Tab knows: "on|off", one of those below; NULL: none */
    const char *help;
    int (*run)(struct chat *, const char *argument); /* NULL: a setting */
};
#define CHAT_FILES    "FILES"    /* names of files */
#define CHAT_SETTINGS "SETTINGS" /* names of settings */

const struct chat_row *chat_row_at(int i); /* commands, then settings; NULL past the last */
const struct chat_row *chat_find_row(const char *name, size_t n);

/* --- chat_settings.c ------------------------------------------------------------------------------------------ */

const struct chat_row *chat_setting_row(int i); /* NULL past the last */
const struct chat_row *chat_find_setting(const char *name, size_t n);
/* "name value" sets, "name" says what it is, "" prints all. */
int chat_set(struct chat *, const char *argument);

/* --- chat_files.c --------------------------------------------------------------------------------------------- */

/* ~/x is $HOME/x, and quotes around it all are none of its name; appends. */
void chat_expand_path(const char *argument, struct buf *path);
/* ERR_USAGE where there is such a file with something in it, unless `overwrite`. */
int chat_save(struct chat *, const char *argument, bool overwrite);
int chat_load(struct chat *, const char *argument); /* "": what chat_save_last kept */
int chat_read(struct chat *, const char *argument); /* into `read` */
/* At the end of an interactive chat: what was said goes to last.json beside the history. false: that failed, and is printed. */
bool chat_save_last(struct chat *);

/* --- chat_speed.c --------------------------------------------------------------------------------------------- */

void chat_speed_begin(struct chat *);
/* Of the answer since then; NAN where nothing was drafted. Measures rounds, once. */
double chat_speed_of_answer(struct chat *);
/* Says once, and what helps, that answers under a fixed K have been slower than plain decoding for a while. */
void chat_note_loss(struct chat *, double speed_up);

/* --- chat_show.c ---------------------------------------------------------------------------------------------- */

void chat_banner(struct chat *);
/* One dim line: on the terminal of an interactive chat, else as cli_note. */
void chat_note(const struct chat *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints err_message(). */
void chat_fail(struct chat *, int rc);

/* Text of a model, or with names that users gave, to standard output, in whole characters. On a terminal, lines are broken
 * between words, for which a word may be held back, and control characters that could steer it are shown as ^X.
 * chat_print_end: no more of this text comes; what is held back is printed. */
void chat_print(struct chat *, enum style, const char *text, size_t n);
void chat_print_end(struct chat *);
/* The same with accepted draft tokens marked: coloured, or in brackets. chat_print_end closes them. */
void chat_print_marked(struct chat *, bool accepted, const char *text, size_t n);

struct answer_figures {
    int tokens, first_tokens;            /* first_tokens: of these, those of the first round */
    int64_t start_us, first_us, last_us; /* asked, first and last tokens there */
    const char *cut;                     /* why it ended early, or NULL */
    double speed_up;                     /* against plain decoding; NAN: not known */
};
void chat_print_figures(struct chat *, const struct answer_figures *);
void chat_print_stats(const struct chat *);
/* Does a seed repeat an answer, whatever K the rounds have? */
bool chat_repeats(const struct chat *);
/* The last answer again, with accepted draft tokens marked. */
int chat_print_shown(struct chat *);

#endif
