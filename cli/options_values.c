/* Values of options: numbers in their ranges, words, lists. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/options.h"
#include "engine/engine.h"

struct interval {
    double low, high;
    bool has_low, has_high; /* do they belong to it? */
};

/* "[0, 1)" */
static struct interval parse_interval(const char *range) {
    char *end;
    struct interval i = {.has_low = range[0] == '['};
    i.low = strtod(range + 1, &end);
    i.high = strtod(end + 1, &end);
    i.has_high = *end == ']';
    return i;
}

static bool is_inside(struct interval i, double x) {
    return (i.has_low ? x >= i.low : x > i.low) && (i.has_high ? x <= i.high : x < i.high);
}

static bool in_range(const char *range, double x) {
    return is_inside(parse_interval(range), x);
}

/* The bounds are rounded as x was: the float nearest to 0.01 lies below it. */
static bool in_range_of_floats(const char *range, float x) {
    struct interval i = parse_interval(range);
    i.low = (double)(float)i.low, i.high = (double)(float)i.high;
    return is_inside(i, (double)x);
}

const char *option_quote_part(const char *typed, size_t n) {
    enum { QUOTED_MAX = 120 };
    static char quoted[QUOTED_MAX + 4];
    const bool is_long = n > QUOTED_MAX;
    if (is_long)
        for (n = QUOTED_MAX; n > 0 && ((unsigned char)typed[n] & 0xc0) == 0x80;) n--;
    snprintf(quoted, sizeof quoted, "%.*s%s", (int)n, typed, is_long ? "..." : "");
    return quoted;
}

const char *option_quote(const char *typed) {
    return option_quote_part(typed, strlen(typed));
}

static int refuse(const struct option_row *row, const char *label, const char *value, const char *expected) {
    return err_set(ERR_USAGE, "%s: '%s' is not %s%s%s", label, option_quote(value), expected, row->range ? " in " : "",
                   row->range ? row->range : "");
}

static int parse_int(const struct option_row *row, const char *label, const char *value, void *out) {
    char *end;
    errno = 0;
    long long x = strtoll(value, &end, 10);
    if (end == value || *end || errno || !in_range(row->range, (double)x))
        return refuse(row, label, value, row->choices ? "auto or a whole number" : "a whole number");
    *(int *)out = (int)x;
    return 0;
}

static int parse_int_or_auto(const struct option_row *row, const char *label, const char *value, int *out) {
    if (strcmp(value, row->choices) != 0) return parse_int(row, label, value, out);
    *out = K_AUTO;
    return 0;
}

/* Puts it where it belongs; false: it is there already. */
static bool add_int(int x, int *list, int *count) {
    int at = *count;
    for (int i = 0; i < *count; i++)
        if (list[i] == x) return false;
    for (; at > 0 && list[at - 1] > x; at--) list[at] = list[at - 1];
    list[at] = x;
    ++*count;
    return true;
}

static int parse_ints(const struct option_row *row, const char *label, const char *value, int *list, int *count) {
    int ints[OPTION_INTS_MAX], n = 0;
    char *end;
    for (const char *at = value;; at = end + 1) {
        errno = 0;
        long long x = strtoll(at, &end, 10);
        bool is_whole = end > at && !isspace((unsigned char)*at) && !errno && in_range(row->range, (double)x);
        if (!is_whole || (*end && *end != ','))
            return refuse(row, label, value, "a whole number, or several with commas between,");
        if (!add_int((int)x, ints, &n))
            return err_set(ERR_USAGE, "%s: '%s' has %lld twice", label, option_quote(value), x);
        if (!*end) break;
    }
    memcpy(list, ints, sizeof *ints * (size_t)n);
    *count = n;
    return 0;
}

static int parse_number(const struct option_row *row, const char *label, const char *value, void *out) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !isfinite((float)x) || !in_range_of_floats(row->range, (float)x))
        return refuse(row, label, value, "a number");
    *(float *)out = (float)x;
    return 0;
}

static int parse_seed(const struct option_row *row, const char *label, const char *value, void *out) {
    char *end;
    errno = 0;
    unsigned long long x = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno) return refuse(row, label, value, "a whole number");
    *(uint64_t *)out = x;
    return 0;
}

/* "24GiB", "24G", "1.5 TiB": powers of 1,024, as nvidia-smi counts; "24GB" is 24e9 bytes. */
static int parse_bytes(const char *label, const char *value, void *out) {
    static const char letters[] = "KMGT";
    char *end;
    double x = strtod(value, &end);
    const bool is_number = end > value;
    while (*end == ' ') end++;
    const char *letter = *end ? strchr(letters, *end & ~0x20) : NULL;
    bool decimal = letter && (end[1] & ~0x20) == 'B';
    const char *rest = letter ? end + 1 + (end[1] == 'i') : end;
    for (const char *l = letters; letter && l <= letter; l++) x *= decimal ? 1000 : 1024;
    if (!is_number || !letter || (*rest && !text_is_same_in_any_case(rest, "b")) || !(x >= 1 && x < 0x1p63))
        return err_set(ERR_USAGE, "%s: '%s' is not a size like 24GiB or 512MiB", label, option_quote(value));
    *(uint64_t *)out = (uint64_t)x;
    return 0;
}

int option_choice_index(const char *choices, const char *value) {
    size_t n = strlen(value);
    for (int i = 0;; i++) {
        size_t len = strcspn(choices, "|");
        if (len == n && memcmp(choices, value, n) == 0) return i;
        if (!choices[len]) return -1;
        choices += len + 1;
    }
}

static int parse_choice(const struct option_row *row, const char *label, const char *value, int *index) {
    *index = option_choice_index(row->choices, value);
    if (*index < 0) return err_set(ERR_USAGE, "%s: '%s' is not one of %s", label, option_quote(value), row->choices);
    return 0;
}

/* NULL: an optional one that was not given. */
static int parse_name(const struct option_row *row, const char *label, const char *value, const char **out) {
    if (value && !*value) return err_set(ERR_USAGE, "%s: the value is empty (%s)", label, row->argument);
    *out = value;
    return 0;
}

static int parse_text(const char *label, const char *value, const char **out) {
    if (!utf8_is_valid(value, strlen(value)))
        return err_set(ERR_USAGE, "%s: '%s' is not valid UTF-8", label, option_quote(value));
    *out = value;
    return 0;
}

static int add_text(const struct option_row *row, struct options *o, const char *label, const char *value) {
    const char **texts = (const char **)((char *)o + row->offset);
    int *count = (int *)((char *)o + row->flag_offset);
    if (*count == STOPS_MAX) return err_set(ERR_USAGE, "%s: given more than %d times", label, STOPS_MAX);
    const char *text = NULL;
    TRY(parse_name(row, label, value, &text));
    TRY(parse_text(label, value, &text));
    texts[(*count)++] = text;
    return 0;
}

int option_parse(const struct option_row *row, struct options *o, const char *label, const char *value) {
    void *out = (char *)o + row->offset;
    int index;
    switch (row->type) {
    case OPTION_FLAG:
        *(int *)out = 1;
        return 0;
    case OPTION_INT:
        return parse_int(row, label, value, out);
    case OPTION_INT_OR_AUTO:
        return parse_int_or_auto(row, label, value, out);
    case OPTION_INTS:
        return parse_ints(row, label, value, out, (int *)((char *)o + row->flag_offset));
    case OPTION_NUMBER:
        return parse_number(row, label, value, out);
    case OPTION_SEED:
        return parse_seed(row, label, value, out);
    case OPTION_BYTES:
        return parse_bytes(label, value, out);
    case OPTION_TEXT:
        return parse_text(label, value, out);
    case OPTION_OPTIONAL_NAME:
        TRY(parse_name(row, label, value, out));
        *(int *)((char *)o + row->flag_offset) = 1;
        return 0;
    case OPTION_NAME:
        return parse_name(row, label, value, out);
    case OPTION_CHOICE:
        TRY(parse_choice(row, label, value, &index));
        *(int *)out = index;
        return 0;
    case OPTION_WORD:
        TRY(parse_choice(row, label, value, &index));
        *(const char **)out = value;
        return 0;
    case OPTION_TEXTS:
        return add_text(row, o, label, value);
    }
    return err_set(ERR_INTERNAL, "option %s has no type", row->name);
}
