/* The command line. The input is its arguments, one a line, behind "duet"; then, behind a NUL byte, options to set later:
 * a line with the name, a line with the value. */
#include "cli/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draft/proposer.h"
#include "engine/engine.h"
#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 512, ARGUMENTS_MAX = 80 };

static int read_lines(struct input in, char **lines, int max) {
    int count = 0;
    while (in.n > 0 && count < max) {
        struct input line = input_until(&in, '\n');
        lines[count++] = input_text(&line);
    }
    return count;
}

static void free_lines(char **lines, int count) {
    for (int i = 0; i < count; i++) free(lines[i]);
}

/* The value stands in one of the arguments. */
static void claim_points(const char *value, char **argv, int argc) {
    if (!value) return;
    for (int i = 0; i < argc; i++)
        if (value >= argv[i] && value <= argv[i] + strlen(argv[i])) return;
    claim(strcmp(value, "auto") == 0, "'%s' is no argument", value); /* --device's default */
}

/* The ranges of the table, written out. */
static void claim_ranges(const struct options *o) {
    claim(sampling_check(&o->sampling) == 0, "%s", err_message());
    claim(isfinite(o->sampling.temperature), "temperature %g", (double)o->sampling.temperature);
    const bool may_be_auto = o->command == COMMAND_CHAT || o->command == COMMAND_BATCH;
    claim(o->k >= 0 || (o->k == K_AUTO && may_be_auto), "K %d", o->k);
    claim(o->k_count >= 0 && o->k_count <= OPTION_INTS_MAX, "%d times K", o->k_count);
    for (int i = 0; i < o->k_count; i++)
        claim(o->ks[i] >= (i > 0 ? o->ks[i - 1] + 1 : 0) && o->ks[i] <= K_MAX, "K %d at %d", o->ks[i], i);
    claim(o->k <= K_MAX && o->k_max >= 0 && o->k_max <= K_MAX, "K %d, at most %d", o->k, o->k_max);
    claim(o->max_tokens >= 0 && o->batch >= 0 && o->context >= 0 && o->threads >= 0 && o->threads <= 4096, "a count");
    claim(o->accept >= ACCEPT_TOKEN && o->accept <= ACCEPT_BLOCK, "rule %d", o->accept);
    claim(o->think == 0 || o->think == 1, "think %d", o->think);
    claim(o->simulate_alpha >= 0 && o->simulate_alpha <= 1, "alpha %g", (double)o->simulate_alpha);
    claim(o->stop_count >= 0 && o->stop_count <= STOPS_MAX, "%d stop strings", o->stop_count);
    for (int i = 0; i < o->stop_count; i++) claim(utf8_is_valid(o->stop[i], strlen(o->stop[i])), "stop string %d", i);
}

static void claim_strings(const struct options *o, char **argv, int argc) {
    const char *const values[] = {
        o->directory, o->target, o->draft,  o->chat_template,     o->device, o->prompt, o->completion, o->config,
        o->system,    o->input,  o->output, o->alpha_report_file, o->shape,  o->plot};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) claim_points(values[i], argv, argc);
    for (int i = 0; i < o->stop_count; i++) claim_points(o->stop[i], argv, argc);
}

static void claim_combinations(const struct options *o) {
    claim(o->command >= COMMAND_NONE && o->command < COMMANDS, "command %d", o->command);
    for (int i = 0; i < option_count; i++)
        if (o->given >> i & 1)
            claim(option_table[i].commands & 1u << o->command, "--%s is none of this command", option_table[i].name);
    if (options_ask_for_text(o)) return;
    claim(o->batch >= 1, "a batch of %d", o->batch);
    claim(!o->draft || o->target || proposer_of_word(o->draft), "a draft without a target");
    claim(!option_given(o, "k-max") || o->k_max >= o->k, "K %d, at most %d", o->k, o->k_max);
    claim(!o->csv || !o->json, "two forms");
    claim(o->command != COMMAND_TOKENIZE || o->directory, "no directory");
}

/* What `/temp 0.3` does: a value that is refused changes nothing. */
static void claim_set(struct options *o, const char *name, const char *value) {
    struct options before;
    memcpy(&before, o, sizeof before);
    forget_error();
    int rc = option_set(o, name, value, "/label");
    if (rc == 0) {
        claim(option_given(o, name), "'%s' was not given", name);
        claim_ranges(o);
    } else if (rc != ERR_INTERNAL) { /* which says that the command has no such option */
        claim(rc == ERR_USAGE, "the code %d", rc);
        claim_refusal(rc);
        claim(strstr(err_message(), "/label"), "no label: %s", err_message());
        claim(memcmp(&before, o, sizeof before) == 0, "changed in spite of: %s", err_message());
        memcpy(o, &before, sizeof before);
    }
}

static void claim_parsed(struct options *o, char **argv, int argc, struct input more) {
    char *lines[8];
    claim_ranges(o);
    claim_strings(o, argv, argc);
    claim_combinations(o);
    int count = read_lines(more, lines, 8);
    for (int i = 0; i + 1 < count; i += 2) claim_set(o, lines[i], lines[i + 1]);
    free_lines(lines, count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct options o;
    char name[] = "duet", *argv[ARGUMENTS_MAX + 1] = {name};
    if (n > FUZZ_BYTES_MAX) return 0;
    struct input arguments = input_until(&in, '\0');
    int argc = 1 + read_lines(arguments, argv + 1, ARGUMENTS_MAX);
    forget_error();
    int rc = options_parse(&o, argc, argv);
    if (rc == 0) {
        claim_parsed(&o, argv, argc, in);
    } else {
        claim(rc == ERR_USAGE, "the code %d", rc);
        claim_refusal(rc);
    }
    free_lines(argv + 1, argc - 1);
    return 0;
}
