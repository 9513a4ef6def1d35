/* The one option table: it feeds the parser, the help of each command, the man page and the README check.
 *
 * Everything parsed lies in `struct options`; its strings point into argv, or into the text of a configuration file. An option
 * applies to the commands in its `commands` mask; the same name may have two rows for different commands (`--graphs`). */
#ifndef DUET_CLI_OPTIONS_H
#define DUET_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "graphs/graph_set.h"
#include "sampler/sampler.h"

enum command {
    COMMAND_NONE,
    COMMAND_CHAT,
    COMMAND_BATCH,
    COMMAND_INSPECT,
    COMMAND_TOKENIZE,
    COMMAND_BENCH,
    COMMAND_MODELS,
    COMMAND_TUNE,
    COMMANDS
};
enum {
    ON_CHAT = 1 << COMMAND_CHAT,
    ON_BATCH = 1 << COMMAND_BATCH,
    ON_INSPECT = 1 << COMMAND_INSPECT,
    ON_TOKENIZE = 1 << COMMAND_TOKENIZE,
    ON_BENCH = 1 << COMMAND_BENCH,
    ON_MODELS = 1 << COMMAND_MODELS,
    ON_TUNE = 1 << COMMAND_TUNE,
    ON_SET = ON_CHAT | ON_BATCH | ON_BENCH, /* commands that generate, with one K and rule */
    ON_RUN = ON_SET | ON_TUNE,              /* commands that generate */
    ON_PAIR = ON_RUN | ON_INSPECT,          /* commands that know a pair */
    ON_ALL = ON_PAIR | ON_TOKENIZE | ON_MODELS | 1 << COMMAND_NONE,
};

enum { STOPS_MAX = 64, OPTION_INTS_MAX = 64 };
/* What `duet bench` measures, in the order of its operands; BENCH_ROUND without one. */
enum bench_kind {
    BENCH_ROUND,
    BENCH_BUCKETS,
    BENCH_STACK,
    BENCH_OVERHEAD,
    BENCH_ALPHA,
    BENCH_PEERS,
    BENCH_START,
    BENCH_VERIFY,
    BENCH_DECODE,
    BENCH_KINDS
};
enum record_format { FORMAT_AUTO, FORMAT_SPEC_BENCH }; /* in the order of the table's words */

struct options {
    enum command command;
    const char *directory; /* inspect, tokenize: DIR; NULL: not given */
    int operand;           /* of a command with words for it: which, from 1; 0: none (bench: enum bench_kind) */

    /* models */
    const char *target, *draft; /* as given: directory or ORG/NAME; NULL: not given */
    const char *chat_template;  /* --template; NULL: the model's own */
    int think;                  /* 1 on (default), 0 off */
    const char *date;           /* --date; NULL: the day's */
    int effort;                 /* enum chat_effort */
    int parse_special;          /* special tokens in messages are control tokens */

    /* speculation */
    int k;                            /* 0..63, or K_AUTO in chat and batch; in bench the largest of ks */
    int k_max;                        /* 0: not given; engine_options_set knows the default. In tune K is the same */
    int ks[OPTION_INTS_MAX], k_count; /* bench: [k_count], ascending */
    int accept;                       /* enum accept_rule */

    /* sampling */
    struct sampling sampling;
    int max_tokens; /* 256 in batch, 128 in bench and tune, 127 in bench decode, 0 in chat: as much as the context allows */
    uint64_t seed; /* with option_given(o, "seed") only */
    int ignore_eos;
    const char *stop[STOPS_MAX];
    int stop_count;

    /* machine */
    int batch, context, threads; /* context and threads 0: not given */
    int gpu;
    const char *device; /* "auto", "host", "cuda" */
    enum graph_mode graphs;
    enum bucket_policy buckets;
    int prefill_graphs;                /* enum prefill_graphs */
    int target_weights, draft_weights; /* enum model_weights */
    const char *draft_vocab;           /* draft/vocab.h; NULL: all */
    int kv;                            /* enum kv_numbers */

    /* input and output */
    const char *prompt, *system;                    /* chat -p, --system; NULL: not given */
    const char *input, *output;                     /* -i, -o; NULL: not given */
    int alpha_report;                               /* --alpha-report was given */
    const char *alpha_report_file;                  /* its FILE.json, or NULL */
    const char *shape;                              /* bench, inspect: TARGET[,DRAFT]; NULL: not given */
    const char *write;                              /* inspect: a directory; NULL: not given */
    float simulate_alpha;                           /* bench; 0: the rule */
    int quiet, csv, json, special, tensors, strict; /* flags */
    int null;                                       /* chat: records end in NUL */
    int force;                                      /* batch, tokenize, bench, tune */
    int resume, details;                            /* batch */
    int format;                                     /* enum record_format */
    int show_memory, show_graphs;                   /* inspect */
    int repeats;                                    /* tune */
    const char *plot;                               /* bench, tune: FILE.svg; NULL: not given */
    uint64_t gpu_memory;                            /* --gpu-memory, bytes; 0: not given */
    const char *config;                             /* --config FILE; NULL: not given */
    int help, version, man;
    const char *completion; /* --completion SHELL; NULL: not given */

    uint64_t given; /* bit i: row i of the table was given */
};

enum option_type {
    OPTION_FLAG,          /* int, 1 when given */
    OPTION_INT,           /* int */
    OPTION_INT_OR_AUTO,   /* int; K_AUTO: the word in `choices` */
    OPTION_INTS,          /* int[OPTION_INTS_MAX] followed by its count: "0,1,2,4", kept ascending */
    OPTION_NUMBER,        /* float */
    OPTION_SEED,          /* uint64_t */
    OPTION_BYTES,         /* uint64_t, above 0: "24GiB" */
    OPTION_TEXT,          /* const char * */
    OPTION_NAME,          /* const char *, not empty: of a file, a model */
    OPTION_OPTIONAL_NAME, /* the same, only as --name=VALUE; the int before it says that it was given */
    OPTION_CHOICE,        /* int: index of the word in `choices` */
    OPTION_WORD,          /* const char *: one of `choices` */
    OPTION_TEXTS,         /* const char *[STOPS_MAX], none of them empty, followed by its count */
};

struct option_row {
    const char *name;
    char letter;          /* short name, or 0 */
    const char *argument; /* placeholder, or NULL */
    enum option_type type;
    size_t offset, flag_offset; /* into struct options; flag_offset: OPTIONAL_NAME; TEXTS and INTS (the count) */
    const char *range;          /* interval, "[0, 63]" or "(0, 1]"; NULL: any */
    const char *choices;        /* "on|off" */
    const char *value;          /* default, parsed; NULL: zero */
    const char *shown;          /* default in the help where `value` does not say it */
    const char *help;
    unsigned commands; /* ON_ mask */
    bool hidden;
};
extern const struct option_row option_table[];
extern const int option_count;

/* A word that a command takes as its argument. */
struct operand_row {
    const char *name, *summary;
};
struct command_row {
    const char *name, *arguments, *summary, *detail;
    const struct operand_row *operands; /* up to one without a name; NULL: none */
};
extern const struct command_row command_table[COMMANDS];

/* Parses the command line: the command, its options in any order with its arguments, `--opt=value` and
 * `--opt value`. ERR_USAGE with the sentence. */
int options_parse(struct options *, int argc, char **argv);
/* The two halves of it, between which a file may set what the command line did not (cli/config_file.h): the arguments; then the
 * defaults of the command and what does not go together. */
int options_parse_arguments(struct options *, int argc, char **argv);
int options_finish(struct options *);

/* Was anything asked for that ends the program at once: --help, --version, --man, --completion? */
bool options_ask_for_text(const struct options *);

/* Parses `value` into the option of a row; NULL for a flag, and for an optional value that was not given. (options_values.c) */
int option_parse(const struct option_row *, struct options *, const char *label, const char *value);
/* Parses `value` (NULL: none) into the option of a row, as given. Errors are about `label`. */
int option_put(struct options *, const struct option_row *, const char *label, const char *value);

/* The option of a command by its name or letter; NULL: there is none. */
const struct option_row *option_find(enum command, const char *name, size_t n);
const struct option_row *option_find_letter(enum command, char letter);
/* What a sentence quotes of something typed, or of its first n bytes: all, or the beginning and "...", so that the reason behind it is
 * not lost. A static buffer. */
const char *option_quote(const char *typed);
const char *option_quote_part(const char *typed, size_t n);
/* Index of `value` among "a|b|c", or -1. */
int option_choice_index(const char *choices, const char *value);

/* ERR_USAGE for an option that the command lacks, with what was perhaps meant. `given` is the whole argument, name [n] the option in
 * it, a letter of several perhaps. (options_suggest.c) */
int option_refuse(enum command, const char *given, const char *name, size_t n);
/* ERR_USAGE for a command that there is not, likewise. */
int command_refuse(const char *name);
/* Is it a short option of several letters that other programs have ("-ngl")? */
bool option_is_foreign(const char *argument);

/* Was the option (long name) on the command line? */
bool option_given(const struct options *, const char *name);

/* Parses `value` into the option `name` of the command in `o`, as if it had been given: what `/temp 0.3` needs. Errors
 * are about `label` ("/temp"), with the value and the range. */
int option_set(struct options *o, const char *name, const char *value, const char *label);

/* Help of one command (COMMAND_NONE: the overview), usage in a few lines, and the man page. */
void help_print(FILE *, enum command);
void help_print_usage(FILE *);
/* "name   what it does", the help in its column, broken between words for the terminal. */
void help_print_item(FILE *, int column, const char *name, const char *help);
void help_print_man(FILE *);
/* The script with which "bash", "zsh" or "fish" completes commands, options and their values. */
void completion_print(FILE *, const char *shell);

#endif
