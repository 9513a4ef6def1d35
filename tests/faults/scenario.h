/* What the fault loop runs: one short run of the program each, and what it leaves behind. */
#ifndef DUET_TESTS_FAULTS_SCENARIO_H
#define DUET_TESTS_FAULTS_SCENARIO_H

#include <stdbool.h>

/* What is left of an output when the run fails. */
enum leaves {
    LEAVES_ANYTHING,
    LEAVES_START,   /* the start of what a run without fault gives */
    LEAVES_RECORDS, /* whole lines, each the record of its line or that line's error, in order */
    LEAVES_WHOLE,   /* what was there before, nothing, or one whole line of JSON */
};

enum { SCENARIO_FILES = 2, SCENARIO_ARGUMENTS = 24 };

struct scenario {
    const char *name;
    /* "@/" stands for the folder of the run, "@target" and "@draft" for the embedded pair; in `input` and `given` as well */
    const char *arguments[SCENARIO_ARGUMENTS];
    const char *const *typed; /* lines typed at a terminal, Ctrl-D behind them; NULL: standard input is no terminal */
    const char *input;        /* standard input; NULL: none */
    const char *given;        /* the file given.jsonl; NULL: none */
    enum leaves leaves;       /* standard output */
    int status;               /* 1 where a line is wrong */
    bool has_times;           /* numbers differ from run to run: they are compared without */
    bool is_shards;           /* @/shards is the embedded target in shards */
    unsigned kinds;           /* bits of enum fault_kind */
    struct scenario_file {
        const char *name; /* in the folder; holds old text before the run; NULL: none */
        enum leaves leaves;
    } file[SCENARIO_FILES];
};

extern const struct scenario scenarios[];
extern const int scenario_count;

/* Where records go: a path, or NULL where they go to standard output or nowhere. */
const char *scenario_watched(const struct scenario *);

#endif
