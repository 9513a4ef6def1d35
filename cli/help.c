/* Usage, help and the man page, made from the option table. */
#include <string.h>

#include "cli/chat.h"
#include "cli/options.h"

enum { HELP_COLUMN = 30, HELP_WIDTH_MAX = 100, HELP_NARROW = 72 };

/* Prose is not read in longer lines. */
static int help_width(const FILE *out) {
    int width = terminal_width(out == stderr ? 2 : 1);
    return width < HELP_WIDTH_MAX ? width : HELP_WIDTH_MAX;
}

void help_print_item(FILE *out, int column, const char *name, const char *help) {
    int width = help_width(out), at = fprintf(out, "%s", name);
    if (width < HELP_NARROW) column = column * 2 / 3;
    if (at + 2 > column) fputc('\n', out), at = 0;
    fprintf(out, "%*s", column - at, "");
    terminal_print(out, width, column, column, help);
}

/* "-k, --k N", "--alpha-report[=FILE.json]" */
static void format_name(const struct option_row *row, struct buf *out) {
    if (row->letter) buf_printf(out, "-%c, ", row->letter);
    buf_printf(out, "--%s", row->name);
    if (!row->argument) return;
    buf_printf(out, row->type == OPTION_OPTIONAL_NAME ? "[=%s]" : " %s", row->argument);
}

/* The sentence with range and default. */
static void format_help(const struct option_row *row, struct buf *out) {
    buf_puts(out, row->help);
    bool plain_range = row->range && row->type != OPTION_SEED && !strstr(row->range, "inf") &&
                       !strstr(row->range, "2147483647") && !strstr(row->range, "16777216");
    if (plain_range) buf_printf(out, "; %s", row->range);
    const char *shown = row->shown ? row->shown : row->value;
    if (shown) buf_printf(out, " (default: %s)", shown);
}

static void print_option(FILE *out, const struct option_row *row) {
    struct buf name = {0}, help = {0};
    buf_printf(&name, row->letter ? "  " : "      ");
    format_name(row, &name);
    format_help(row, &help);
    help_print_item(out, HELP_COLUMN, buf_text(&name), buf_text(&help));
    buf_free(&name);
    buf_free(&help);
}

void help_print_usage(FILE *out) {
    fputs("usage: duet COMMAND [OPTION]...\n\n", out);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        int column = fprintf(out, "  %-10s", command_table[c].name);
        terminal_print(out, help_width(out), column, column, command_table[c].summary);
    }
    fputs("\nduet COMMAND --help shows the options of a command.\n", out);
}

/* What is read beside the command line. */
struct entry {
    const char *name, *text;
};
static const struct entry environment[] = {
    {"DUET_ASSETS",
     "Directory of the embedded pair (target and draft in it), in place of share/duet beside the program's folder."},
    {"HF_HUB_CACHE", "Where the local Hugging Face cache lies; the hub in HF_HOME if unset."},
    {"HF_HOME", "huggingface in XDG_CACHE_HOME, else ~/.cache/huggingface, if unset."},
    {"COLUMNS", "Columns that text and tables are laid out for; the terminal's if unset, 80 without one."},
    {"NO_COLOR", "If set and not empty, no colours."},
    {"XDG_CONFIG_HOME, XDG_STATE_HOME", "In place of ~/.config and ~/.local/state."},
};
static const struct entry files[] = {
    {"~/.config/duet/config",
     "Options for every run: `name = value` a line (`temperature = 0`), a flag by its name alone (`quiet`), # begins a "
     "comment. The command line overrides them; a command skips those of other commands; --target or --shape puts "
     "the file's models aside."},
    {"~/.local/state/duet/last.json", "The chat at a terminal that ended last: what /load takes without a name."},
    {"~/.local/state/duet/history", "The last 1,000 lines typed at chats, of all chats together."},
};

static void print_entries(FILE *out, const char *title, const struct entry *entries, size_t count) {
    fprintf(out, "\n%s:\n", title);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "  %s", entries[i].name);
        help_print_item(out, HELP_COLUMN, name, entries[i].text);
    }
}

static void print_operands(FILE *out, const struct operand_row *row) {
    fputs("\nTables:\n", out);
    for (; row->name; row++) {
        char name[64];
        snprintf(name, sizeof name, "  %s", row->name);
        help_print_item(out, HELP_COLUMN / 2, name, row->summary);
    }
}

void help_print(FILE *out, enum command c) {
    if (c == COMMAND_NONE) {
        help_print_usage(out);
        fputc('\n', out);
        terminal_print(out, help_width(out), 0, 0, command_table[c].detail);
    } else {
        fprintf(out, "usage: duet %s %s\n\n", command_table[c].name, command_table[c].arguments);
        terminal_print(out, help_width(out), 0, 0, command_table[c].detail);
    }
    if (command_table[c].operands) print_operands(out, command_table[c].operands);
    fputs("\nOptions:\n", out);
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & 1u << c && !option_table[i].hidden) print_option(out, &option_table[i]);
    if (c != COMMAND_NONE) return;
    print_entries(out, "Environment", environment, sizeof environment / sizeof *environment);
    print_entries(out, "Files", files, sizeof files / sizeof *files);
}

/* --- the man page --------------------------------------------------------------------------------------- */

/* Text for roff: hyphens and backslashes escaped, no control line at the start. */
static void print_roff(FILE *out, const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

static void print_man_option(FILE *out, const struct option_row *row) {
    struct buf text = {0};
    format_name(row, &text);
    fputs(".TP\n\\fB", out);
    print_roff(out, buf_text(&text));
    fputs("\\fR\n", out);
    buf_clear(&text);
    format_help(row, &text);
    print_roff(out, buf_text(&text));
    const char *separator = ".\nOf ";
    bool everywhere = (row->commands & ON_ALL) == ON_ALL;
    for (int c = COMMAND_NONE + 1; c < COMMANDS && !everywhere; c++) {
        if (!(row->commands & 1u << c)) continue;
        fprintf(out, "%s%s", separator, command_table[c].name);
        separator = ", ";
    }
    fputs(".\n", out);
    buf_free(&text);
}

static void print_man_entry(FILE *out, const char *name, const char *argument, const char *text) {
    fputs(".TP\n\\fB", out);
    print_roff(out, name);
    fprintf(out, "\\fR%s", *argument ? " " : "");
    print_roff(out, argument);
    fputc('\n', out);
    print_roff(out, text);
    fputc('\n', out);
}

static void print_man_entries(FILE *out, const struct entry *entries, size_t count) {
    for (size_t i = 0; i < count; i++) print_man_entry(out, entries[i].name, "", entries[i].text);
}

static void print_chat_commands(FILE *out) {
    const struct chat_row *row;
    fputs(".SH COMMANDS OF A CHAT\n", out);
    for (int i = 0; (row = chat_row_at(i)); i++) print_man_entry(out, row->name, row->argument, row->help);
}

static void print_man_tail(FILE *out) {
    fputs(".SH EXIT STATUS\n"
          "0 if all went well, 1 if something failed, 2 for a usage error, 130 when interrupted (a chat that ends at "
          "its prompt: 0).\n"
          ".SH ENVIRONMENT\n",
          out);
    print_man_entries(out, environment, sizeof environment / sizeof *environment);
    fputs(".SH FILES\n", out);
    print_man_entries(out, files, sizeof files / sizeof *files);
}

void help_print_man(FILE *out) {
    fputs(".TH DUET 1 \"\" \"duet " DUET_VERSION "\"\n.SH NAME\nduet \\- ", out);
    fprintf(out, "%s\n.SH SYNOPSIS\n", command_table[COMMAND_NONE].summary);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        fprintf(out, ".B duet %s\n", command_table[c].name);
        print_roff(out, command_table[c].arguments);
        fputs("\n.br\n", out);
    }
    fputs(".SH DESCRIPTION\n", out);
    print_roff(out, command_table[COMMAND_NONE].detail);
    fputs("\n.SH COMMANDS\n", out);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        fprintf(out, ".TP\n.B %s\n%s. ", command_table[c].name, command_table[c].summary);
        print_roff(out, command_table[c].detail);
        fputc('\n', out);
    }
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        if (!command_table[c].operands) continue;
        fputs(".SH TABLES OF A BENCHMARK\n", out);
        for (const struct operand_row *o = command_table[c].operands; o->name; o++)
            print_man_entry(out, o->name, "", o->summary);
    }
    fputs(".SH OPTIONS\n", out);
    for (int i = 0; i < option_count; i++)
        if (!option_table[i].hidden) print_man_option(out, &option_table[i]);
    print_chat_commands(out);
    print_man_tail(out);
}
