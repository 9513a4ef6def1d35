/* The command line: commands, options, and what goes together. */
#include "cli/options.h"

#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "draft/proposer.h"
#include "engine/engine.h"

/* --- look-ups ------------------------------------------------------------------------------------------- */

const struct option_row *option_find(enum command c, const char *name, size_t n) {
    for (int i = 0; i < option_count; i++) {
        const struct option_row *row = &option_table[i];
        if (row->commands & 1u << c && strlen(row->name) == n && memcmp(row->name, name, n) == 0) return row;
    }
    return NULL;
}

const struct option_row *option_find_letter(enum command c, char letter) {
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & 1u << c && option_table[i].letter == letter) return &option_table[i];
    return NULL;
}

static enum command find_command(const char *name) {
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++)
        if (strcmp(command_table[c].name, name) == 0) return (enum command)c;
    return COMMAND_NONE;
}

/* --- the command line ----------------------------------------------------------------------------------- */

struct parser {
    struct options *o;
    int argc, at;
    char **argv;
};

static bool takes_value(const struct option_row *row) {
    return row->type != OPTION_FLAG && row->type != OPTION_OPTIONAL_NAME;
}

static int apply(struct parser *p, const struct option_row *row, const char *label, const char *value) {
    if (value && row->type == OPTION_FLAG) return err_set(ERR_USAGE, "%s: takes no value", label);
    if (!value && takes_value(row)) {
        if (p->at == p->argc) return err_set(ERR_USAGE, "%s: a value is missing (%s)", label, row->argument);
        value = p->argv[p->at++];
    }
    p->o->given |= (uint64_t)1 << (row - option_table);
    return option_parse(row, p->o, label, value);
}

static int parse_long(struct parser *p, const char *argument) {
    const char *name = argument + 2;
    size_t n = strcspn(name, "=");
    const struct option_row *row = option_find(p->o->command, name, n);
    if (!row) return option_refuse(p->o->command, argument, name, n);
    char label[40];
    snprintf(label, sizeof label, "--%s", row->name);
    return apply(p, row, label, name[n] ? name + n + 1 : NULL);
}

/* "-k 5", "-k5", and flags together: "-qh". */
static int parse_short(struct parser *p, const char *argument) {
    if (option_is_foreign(argument)) return option_refuse(p->o->command, argument, argument + 1, strlen(argument + 1));
    for (const char *c = argument + 1; *c; c++) {
        const struct option_row *row = option_find_letter(p->o->command, *c);
        if (!row) return option_refuse(p->o->command, argument, c, 1);
        char label[3] = {'-', *c, 0};
        if (row->type != OPTION_FLAG) return apply(p, row, label, c[1] ? c + 1 : NULL);
        TRY(apply(p, row, label, NULL));
    }
    return 0;
}

static int parse_operand(struct parser *p, const char *argument) {
    const struct command_row *row = &command_table[p->o->command];
    struct buf names = {0};
    if (p->o->operand)
        return err_set(ERR_USAGE, "'%s': duet %s %s is one table already", option_quote(argument), row->name,
                       row->operands[p->o->operand - 1].name);
    for (int i = 0; row->operands[i].name; i++) {
        if (strcmp(row->operands[i].name, argument) == 0) p->o->operand = i + 1;
        buf_printf(&names, "%s%s", i ? ", " : "", row->operands[i].name);
    }
    int rc = p->o->operand ? 0
                           : err_set(ERR_USAGE, "'%s': duet %s knows no such table; there are %s",
                                     option_quote(argument), row->name, buf_text(&names));
    buf_free(&names);
    return rc;
}

/* With what was perhaps meant. */
static int refuse_positional(const struct parser *p, const char *argument) {
    enum command c = p->o->command;
    const char *before = p->at >= 2 ? p->argv[p->at - 2] : "";
    const struct option_row *row =
        strncmp(before, "--", 2) == 0 ? option_find(c, before + 2, strlen(before + 2)) : NULL;
    int rc = err_set(ERR_USAGE, "'%s': duet %s takes no argument", option_quote(argument), command_table[c].name);
    if (row && row->type == OPTION_OPTIONAL_NAME) return err_hint(rc, "--%s=%s", row->name, option_quote(argument));
    if (c == COMMAND_CHAT) return err_hint(rc, "-p TEXT answers one question");
    return c == COMMAND_BATCH || c == COMMAND_TUNE ? err_hint(rc, "-i FILE is what it reads") : rc;
}

static int parse_positional(struct parser *p, const char *argument) {
    enum command c = p->o->command;
    if (command_table[c].operands) return parse_operand(p, argument);
    bool takes_directory = c == COMMAND_INSPECT || c == COMMAND_TOKENIZE;
    if (takes_directory && !*argument) return err_set(ERR_USAGE, "duet %s: DIR is empty", command_table[c].name);
    if (!takes_directory) return refuse_positional(p, argument);
    if (p->o->directory) return err_set(ERR_USAGE, "'%s': one directory is enough", option_quote(argument));
    p->o->directory = argument;
    return 0;
}

/* Whatever the command is. */
static const struct option_row *find_any(const char *name, size_t n, char letter) {
    const struct option_row *row = NULL;
    for (int c = COMMANDS - 1; c >= 0 && !row; c--)
        row = name ? option_find((enum command)c, name, n) : option_find_letter((enum command)c, letter);
    return row;
}

/* Is the argument behind this option its value? "-qk" is "-q -k". */
static bool value_follows(const char *option) {
    if (option[1] == '-') {
        const char *name = option + 2;
        const struct option_row *row = find_any(name, strcspn(name, "="), 0);
        return row && takes_value(row) && !strchr(name, '=');
    }
    for (const char *letter = option + 1; *letter; letter++) {
        const struct option_row *row = find_any(NULL, 0, *letter);
        if (!row || takes_value(row)) return row && !letter[1];
    }
    return false;
}

/* The command is the first argument that is neither an option nor the value of one. Returns its index, or argc. */
static int locate_command(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (argument[0] != '-' || !argument[1]) return i;
        if (strcmp(argument, "--") == 0) return argc;
        if (value_follows(argument)) i++;
    }
    return argc;
}

/* The workload of bench decode. */
static int check_decode(const struct options *o) {
    if (o->k != 0 || o->k_max != 0)
        return err_set(ERR_USAGE, "--k%s: duet bench decode decodes plainly (K = 0)", o->k_max != 0 ? "-max" : "");
    if (o->batch != 1) return err_set(ERR_USAGE, "--batch: duet bench decode is of one sequence");
    if (option_given(o, "temperature") && o->sampling.temperature > 0)
        return err_set(ERR_USAGE, "--temperature: duet bench decode is greedy (0)");
    if (o->input) return err_set(ERR_USAGE, "--input: duet bench decode has a prompt of its own");
    if (o->simulate_alpha > 0) return err_set(ERR_USAGE, "--simulate-alpha: duet bench decode drafts nothing");
    return 0;
}

/* What a table measures on both sides, or by itself, is no option of it. */
static int check_bench(const struct options *o) {
    const char *name = o->operand ? command_table[COMMAND_BENCH].operands[o->operand - 1].name : "";
    if (o->plot && o->operand == BENCH_ROUND && o->k_count < 2)
        return err_set(ERR_USAGE, "--plot: draws a table (duet bench alpha) or several K (--k 0,1,2,4)");
    if (o->plot && o->operand == BENCH_START) return err_set(ERR_USAGE, "--plot: duet bench start has no picture");
    if (o->k == 0 && (o->operand == BENCH_ALPHA || o->operand == BENCH_STACK))
        return err_set(ERR_USAGE, "--k: duet bench %s is about K above 0", name);
    if (o->operand == BENCH_BUCKETS && option_given(o, "buckets"))
        return err_set(ERR_USAGE, "--buckets: duet bench buckets measures all of them");
    if (o->graphs != GRAPHS_ON &&
        (o->operand == BENCH_BUCKETS || o->operand == BENCH_STACK || o->operand == BENCH_OVERHEAD))
        return err_set(ERR_USAGE, "--graphs: duet bench %s needs them on", name);
    if (o->operand == BENCH_VERIFY && o->k_count > 1)
        return err_set(ERR_USAGE, "--k: duet bench verify takes one, and measures every K up to it");
    if (o->operand == BENCH_VERIFY && o->simulate_alpha > 0)
        return err_set(ERR_USAGE, "--simulate-alpha: duet bench verify accepts nothing");
    return o->operand == BENCH_DECODE ? check_decode(o) : 0;
}

static int check_combinations(const struct options *o) {
    if (o->draft && !o->target && !proposer_of_word(o->draft)) return err_set(ERR_USAGE, "--draft: needs --target");
    if (option_given(o, "k-max") && o->k_max == 0 && o->k == K_AUTO)
        return err_set(ERR_USAGE, "--k-max: 0 leaves --k auto no choice");
    if (option_given(o, "k-max") && o->k_max < o->k)
        return err_set(ERR_USAGE, "--k-max: %d is below --k %d", o->k_max, o->k);
    if (o->command == COMMAND_TUNE && o->target && !o->draft)
        return err_set(ERR_USAGE, "--target: alone there is nothing to tune; give --draft MODEL, ngram or mtp");
    if (o->command == COMMAND_BENCH) TRY(check_bench(o));
    if (o->csv && o->json) return err_set(ERR_USAGE, "--csv and --json: give one of them");
    if (o->plot && strcmp(o->plot, "-") == 0) return err_set(ERR_USAGE, "--plot: needs a file (--plot FILE.svg)");
    if (o->resume && o->force) return err_set(ERR_USAGE, "--force: would write over what --resume keeps");
    if (o->resume && (!o->output || strcmp(o->output, "-") == 0))
        return err_set(ERR_USAGE, "--resume: needs an output file (-o FILE)");
    if (o->command == COMMAND_TOKENIZE && !o->directory)
        return err_set(ERR_USAGE, "duet tokenize: which directory? (duet tokenize DIR)");
    if (o->command == COMMAND_INSPECT && o->directory && o->target)
        return err_set(ERR_USAGE, "'%s': --target names a model too, and one is enough", option_quote(o->directory));
    if (o->command == COMMAND_INSPECT && o->directory && (o->show_memory || o->show_graphs))
        return err_set(ERR_USAGE, "'%s': --memory and --graphs are about --target and --draft", o->directory);
    if (o->write && (!o->shape || strchr(o->shape, ',') || o->show_memory || o->show_graphs))
        return err_set(ERR_USAGE, "--write: takes one --shape, and nothing else to show");
    if (o->command == COMMAND_INSPECT && o->shape && !o->show_memory && !o->show_graphs && !o->write)
        return err_set(ERR_USAGE, "--shape: there is no file to show; give --memory, --graphs or --write DIR too");
    if (o->tensors && (o->show_memory || o->show_graphs || o->write))
        return err_set(ERR_USAGE, "--tensors: lists files, which --memory, --graphs and --write do not show");
    if (o->gpu_memory && (!o->show_memory || o->show_graphs))
        return err_set(ERR_USAGE, "--gpu-memory: is for --memory, the plan of a GPU that need not be there");
    if (o->gpu_memory && strcmp(o->device, "host") == 0)
        return err_set(ERR_USAGE, "--gpu-memory and --device host: give one of them");
    return 0;
}

enum { TUNE_K_MAX = 8, BENCH_K_MAX = 8, VERIFY_K_MAX = 16, DECODE_STEPS = 127 };

static int bench_default_k(const struct options *o) {
    if (o->operand == BENCH_VERIFY) return option_given(o, "k-max") ? o->k_max : VERIFY_K_MAX;
    return o->operand == BENCH_DECODE ? 0 : o->k;
}

static void set_bench_ks(struct options *o) {
    bool is_given = o->k_count > 0, sweeps = o->operand == BENCH_ALPHA || o->operand == BENCH_STACK;
    for (int k = 1; !is_given && sweeps && k <= BENCH_K_MAX; k++) o->ks[o->k_count++] = k;
    if (o->k_count == 0) o->ks[o->k_count++] = bench_default_k(o);
    o->k = o->ks[o->k_count - 1];
}

/* A seed that is given asks for a text that repeats. */
static void set_command_defaults(struct options *o) {
    const bool measures = o->command == COMMAND_BENCH || o->command == COMMAND_TUNE;
    if (o->command == COMMAND_CHAT && !option_given(o, "k") && !option_given(o, "seed")) o->k = K_AUTO;
    if (!o->max_tokens && o->command == COMMAND_BENCH && o->operand == BENCH_DECODE) o->max_tokens = DECODE_STEPS;
    if (!o->max_tokens) o->max_tokens = o->command == COMMAND_BATCH ? 256 : measures ? 128 : 0;
    if (!o->batch) o->batch = measures || o->command == COMMAND_CHAT ? 1 : 8;
    if (o->command == COMMAND_BENCH) set_bench_ks(o);
    if (o->command != COMMAND_TUNE) return;
    if (!o->k_max) o->k_max = TUNE_K_MAX;
    o->k = o->k_max;
}

static int set_defaults(struct options *o) {
    *o = (struct options){0};
    for (int i = 0; i < option_count; i++)
        if (option_table[i].value) TRY(option_parse(&option_table[i], o, option_table[i].name, option_table[i].value));
    return 0;
}

int options_parse_arguments(struct options *o, int argc, char **argv) {
    TRY(set_defaults(o));
    struct parser p = {.o = o, .argc = argc, .at = 1, .argv = argv};
    int command_at = locate_command(argc, argv);
    if (command_at < argc) {
        o->command = find_command(argv[command_at]);
        if (!o->command) return command_refuse(argv[command_at]);
    }
    bool only_positional = false;
    while (p.at < argc) {
        int at = p.at++;
        const char *argument = argv[at];
        if (at == command_at) continue;
        if (only_positional || argument[0] != '-' || !argument[1])
            TRY(parse_positional(&p, argument));
        else if (strcmp(argument, "--") == 0)
            only_positional = true;
        else
            TRY(argument[1] == '-' ? parse_long(&p, argument) : parse_short(&p, argument));
    }
    return 0;
}

bool options_ask_for_text(const struct options *o) {
    return o->help || o->version || o->man || o->completion;
}

int options_finish(struct options *o) {
    if (options_ask_for_text(o)) return 0;
    set_command_defaults(o);
    return check_combinations(o);
}

int options_parse(struct options *o, int argc, char **argv) {
    TRY(options_parse_arguments(o, argc, argv));
    return options_finish(o);
}

bool option_given(const struct options *o, const char *name) {
    const struct option_row *row = option_find(o->command, name, strlen(name));
    return row && o->given >> (row - option_table) & 1;
}

int option_put(struct options *o, const struct option_row *row, const char *label, const char *value) {
    TRY(option_parse(row, o, label, value));
    o->given |= (uint64_t)1 << (row - option_table);
    return 0;
}

int option_set(struct options *o, const char *name, const char *value, const char *label) {
    const struct option_row *row = option_find(o->command, name, strlen(name));
    if (!row || !takes_value(row)) return err_set(ERR_INTERNAL, "%s: no option '%s' here", label, name);
    return option_put(o, row, label, value);
}
