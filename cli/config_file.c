/* The configuration file: options for every run, one a line, which the command line overrides. */
#include "cli/config_file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"

enum { FILE_BYTES_MAX = 1 << 20 };

/* --- lines -------------------------------------------------------------------------------------------------- */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends; ends the text there. */
static char *trim(char *text, char *end) {
    while (text < end && is_blank(*text)) text++;
    while (end > text && is_blank(end[-1])) end--;
    *end = 0;
    return text;
}

/* Options that are about one call have no place in a file. */
static bool is_of_one_call(const char *name) {
    static const char *const names[] = {"help", "version", "man", "completion", "config"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool takes_form(const struct option_row *row, bool has_value) {
    return row->type == OPTION_OPTIONAL_NAME || (row->type != OPTION_FLAG) == has_value;
}

static bool is_of(const struct option_row *row, enum command c) {
    return row->commands & 1u << c;
}

/* The row of this name and form, of the command if it has one; *named: some row of that name, perhaps of another form. */
static const struct option_row *find_row(enum command c, const char *name, bool has_value,
                                         const struct option_row **named) {
    const struct option_row *found = NULL;
    *named = NULL;
    for (int i = 0; i < option_count; i++) {
        const struct option_row *row = &option_table[i];
        if (strcmp(row->name, name) != 0) continue;
        *named = row;
        if (takes_form(row, has_value) && (!found || is_of(row, c))) found = row;
    }
    return found;
}

/* Models are named together: a target of the command line (inspect: DIR) has none of the file's company. So are forms. */
static bool is_put_aside(const struct options *o, uint64_t given, const struct option_row *row) {
    static const char *const company[] = {"target", "draft", "shape", "template"};
    if (given >> (row - option_table) & 1) return true;
    if ((o->csv && strcmp(row->name, "json") == 0) || (o->json && strcmp(row->name, "csv") == 0)) return true;
    const bool is_named = o->target || o->shape || o->directory;
    for (size_t i = 0; is_named && i < sizeof company / sizeof *company; i++)
        if (strcmp(company[i], row->name) == 0) return true;
    return false;
}

/* --- the file ----------------------------------------------------------------------------------------------- */

struct reader {
    struct options *o;      /* gets what counts */
    struct options scratch; /* gets everything, so that a bad value is one for every command */
    struct options line;    /* as the command line left it */
};

/* A value that another command's option of this name takes, as `k = auto`: it is not for this command. */
static bool is_for_another(struct reader *r, const struct option_row *row, const char *name, const char *value) {
    for (int i = 0; i < option_count; i++) {
        const struct option_row *other = &option_table[i];
        if (other == row || strcmp(other->name, name) != 0 || !takes_form(other, value != NULL)) continue;
        if (option_put(&r->scratch, other, name, value) == 0) return true;
    }
    return false;
}

static int apply(struct reader *r, char *name, const char *value) {
    const struct option_row *named, *row = find_row(r->o->command, name, value != NULL, &named);
    if (!named || is_of_one_call(name)) return err_set(ERR_USAGE, "'%s': no option that a file can set", name);
    if (!row && value) return err_set(ERR_USAGE, "%s: takes no value", name);
    if (!row) return err_set(ERR_USAGE, "%s: a value is missing (%s)", name, named->argument);
    if (option_put(&r->scratch, row, name, value) != 0)
        return is_for_another(r, row, name, value) ? 0 : option_put(&r->scratch, row, name, value);
    if (!is_of(row, r->o->command) || is_put_aside(&r->line, r->line.given, row)) return 0;
    return option_put(r->o, row, name, value);
}

/* "name = value", "name" or nothing. */
static int read_line(struct reader *r, char *line, char *end) {
    line = trim(line, end);
    if (!*line || *line == '#') return 0;
    char *equals = strchr(line, '=');
    if (!equals) return apply(r, line, NULL);
    const char *value = trim(equals + 1, equals + 1 + strlen(equals + 1));
    if (!*value) return err_set(ERR_USAGE, "nothing stands behind '='");
    return apply(r, trim(line, equals), value);
}

static const char byte_order_mark[] = "\xef\xbb\xbf";

int config_file_parse(struct options *o, struct buf *text, const char *path) {
    struct reader r = {.o = o, .scratch = *o, .line = *o};
    int number = 1;
    if (text->len == 0) return 0;
    char *begin = text->data + (strncmp(text->data, byte_order_mark, 3) == 0 ? 3 : 0);
    for (char *line = begin, *end = text->data + text->len, *next; line < end; line = next, number++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        int rc = 0;
        if (!utf8_is_valid(line, (size_t)(stop - line)) || memchr(line, 0, (size_t)(stop - line)))
            rc = err_set(ERR_USAGE, "not text in UTF-8");
        if (rc == 0) rc = read_line(&r, line, stop);
        if (rc != 0) return err_prefix(rc, "%s, line %d", path, number);
    }
    return 0;
}

/* A "~/" at the beginning of a value is the home directory, as a shell would have it. */
static void expand_home(const struct buf *from, struct buf *out) {
    const char *home = getenv("HOME"), *begin = buf_text(from);
    for (const char *at = begin; home && (at = strstr(at, "~/")); at++) {
        const char *before = at;
        while (before > begin && is_blank(before[-1])) before--;
        if (before == begin || before[-1] != '=') continue;
        buf_append(out, begin, (size_t)(at - begin));
        buf_puts(out, home);
        begin = at + 1;
    }
    buf_append(out, begin, from->len - (size_t)(begin - buf_text(from)));
}

/* Of the file that every run looks for; false: it is not there. */
static bool find_own(char path[PATH_MAX]) {
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = 0;
    if (folder && *folder)
        n = snprintf(path, PATH_MAX, "%s/duet/config", folder);
    else if (home && *home)
        n = snprintf(path, PATH_MAX, "%s/.config/duet/config", home);
    return n > 0 && n < PATH_MAX && file_exists(path);
}

int config_file_apply(struct options *o, struct buf *text) {
    char own[PATH_MAX];
    const char *path = o->config ? o->config : own;
    struct buf raw = {0};
    if (o->config ? strcmp(o->config, "none") == 0 : !find_own(own)) return 0;
    int rc = file_read(path, FILE_BYTES_MAX, &raw);
    if (rc == 0) expand_home(&raw, text);
    buf_free(&raw);
    TRY(rc);
    return config_file_parse(o, text, path);
}
