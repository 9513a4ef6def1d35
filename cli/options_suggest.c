/* Options and commands that duet lacks: what was perhaps meant. */
#include <string.h>

#include "base/err.h"
#include "cli/options.h"

/* What users of llama.cpp, vLLM and Transformers type, with '-' for '_'. No name or letter of duet's own. */
static const struct foreign {
    const char *name, *ours;
} foreign[] = {
    {"m", "target"},
    {"model", "target"},
    {"hf", "target"},
    {"hf-repo", "target"},
    {"md", "draft"},
    {"model-draft", "draft"},
    {"draft-model", "draft"},
    {"assistant-model", "draft"},
    {"speculative-model", "draft"},
    {"spec-type", "draft"},
    {"prompt-lookup", "draft ngram"},
    {"prompt-lookup-num-tokens", "draft ngram"},
    {"draft-max", "k"},
    {"draft-n", "k"},
    {"num-draft-tokens", "k"},
    {"num-assistant-tokens", "k"},
    {"num-speculative-tokens", "k"},
    {"ctx-size", "ctx"},
    {"n-ctx", "ctx"},
    {"max-model-len", "ctx"},
    {"max-seq-len", "ctx"},
    {"predict", "max-tokens"},
    {"n-predict", "max-tokens"},
    {"max-new-tokens", "max-tokens"},
    {"max-completion-tokens", "max-tokens"},
    {"temp", "temperature"},
    {"ngl", "device cuda"},
    {"gpu-layers", "device cuda"},
    {"n-gpu-layers", "device cuda"},
    {"mg", "gpu"},
    {"main-gpu", "gpu"},
    {"np", "batch"},
    {"parallel", "batch"},
    {"batch-size", "batch"},
    {"max-num-seqs", "batch"},
    {"f", "input"},
    {"file", "input"},
    {"input-file", "input"},
    {"output-file", "output"},
    {"sys", "system"},
    {"system-prompt", "system"},
    {"chat-template", "template"},
    {"enable-thinking", "think"},
    {"reasoning", "think"},
    {"effort", "reasoning-effort"},
    {"r", "stop"},
    {"reverse-prompt", "stop"},
    {"special-tokens", "parse-special"},
    {"v", "version"},
    {"V", "version"},
    {"verbose", "alpha-report"},
};

static const struct foreign *find_foreign(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const char *known = foreign[i].name;
        size_t at = 0;
        while (at < n && known[at] && (known[at] == name[at] || (known[at] == '-' && name[at] == '_'))) at++;
        if (at == n && !known[at]) return &foreign[i];
    }
    return NULL;
}

bool option_is_foreign(const char *argument) {
    return argument[1] && argument[2] && argument[1] != '-' && find_foreign(argument + 1, strlen(argument + 1));
}

/* --- names like it ------------------------------------------------------------------------------------------ */

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

static bool differ(char a, char b) {
    return a != b && !(a == '_' && b == '-');
}

enum { LONGEST = 32 };

/* Levenshtein's distance of names up to LONGEST. */
static int edit_distance(const char *a, size_t n, const char *b) {
    int row[LONGEST + 1];
    size_t m = strlen(b);
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + differ(a[i - 1], b[j - 1]));
            diagonal = above;
        }
    }
    return row[m];
}

/* An option of the command that begins so, else the nearest one. */
static const struct option_row *find_near(enum command c, const char *name, size_t n) {
    enum { PREFIX_MIN = 3 };
    const struct option_row *best = NULL;
    int best_distance = 1 + (int)n / 3;
    if (n > LONGEST) return NULL;
    for (int i = 0; i < option_count; i++) {
        const struct option_row *row = &option_table[i];
        if (!(row->commands & 1u << c) || row->hidden) continue;
        if (n >= PREFIX_MIN && strncmp(row->name, name, n) == 0) return row;
        int distance = edit_distance(name, n, row->name);
        if (distance <= best_distance && (!best || distance < best_distance)) best = row, best_distance = distance;
    }
    return best;
}

/* --- the sentence ------------------------------------------------------------------------------------------- */

static bool has_option(enum command c, const char *name, size_t n) {
    return n > 1 ? option_find(c, name, n) != NULL : option_find_letter(c, *name) != NULL;
}

/* The first command that has it; COMMAND_NONE: none has. */
static enum command find_other(const char *name, size_t n) {
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++)
        if (has_option((enum command)c, name, n)) return (enum command)c;
    return COMMAND_NONE;
}

/* `given`: what was typed, up to the option's end. */
static int refuse_foreign(enum command c, const char *given, const char *ours) {
    size_t n = strcspn(ours, " ");
    enum command other = find_other(ours, n);
    if (c == COMMAND_NONE || has_option(c, ours, n))
        return err_set(ERR_USAGE, "%s: no such option; did you mean --%s?", given, ours);
    return err_set(ERR_USAGE, "%s: no such option; --%s is an option of duet %s, not of duet %s", given, ours,
                   command_table[other].name, command_table[c].name);
}

static int refuse(enum command c, const char *given, const char *name, size_t n) {
    const struct foreign *f = find_foreign(name, n);
    const struct option_row *near = n > 1 && !f ? find_near(c, name, n) : NULL;
    enum command other = find_other(name, n);
    if (f) return refuse_foreign(c, given, f->ours);
    if (near) return err_set(ERR_USAGE, "%s: no such option; did you mean --%s?", given, near->name);
    if (n == 1 && option_find_letter(c, *name)) /* "--n" */
        return err_set(ERR_USAGE, "%s: no such option; did you mean -%c?", given, *name);
    if (c == COMMAND_NONE) return err_set(ERR_USAGE, "%s: no command is given; see duet --help", given);
    if (other)
        return err_set(ERR_USAGE, "%s: an option of duet %s, not of duet %s", given, command_table[other].name,
                       command_table[c].name);
    return err_set(ERR_USAGE, "%s: no such option; see duet %s --help", given, command_table[c].name);
}

int option_refuse(enum command c, const char *given, const char *name, size_t n) {
    return refuse(c, option_quote_part(given, (size_t)(name - given) + n), name, n);
}

/* --- commands ----------------------------------------------------------------------------------------------- */

/* What users of other programs type, and how a name begins or is nearly spelt. */
static enum command find_near_command(const char *name, size_t n) {
    static const struct {
        const char *name;
        enum command ours;
    } others[] = {{"run", COMMAND_CHAT}, {"generate", COMMAND_BATCH}, {"list", COMMAND_MODELS}};
    enum command best = COMMAND_NONE;
    int best_distance = (int)n / 3;
    if (n > LONGEST) return COMMAND_NONE;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0) return others[i].ours;
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        const char *ours = command_table[c].name;
        if (strncmp(name, ours, strlen(ours)) == 0) return (enum command)c; /* "benchmark" */
        int distance = edit_distance(name, n, ours);
        if (distance <= best_distance && (!best || distance < best_distance))
            best = (enum command)c, best_distance = distance;
    }
    return best;
}

int command_refuse(const char *name) {
    enum command near = find_near_command(name, strlen(name));
    if (near)
        return err_set(ERR_USAGE, "'%s': no such command; did you mean duet %s?", option_quote(name),
                       command_table[near].name);
    return err_set(ERR_USAGE, "'%s': no such command; see duet --help", option_quote(name));
}
