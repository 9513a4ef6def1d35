/* Usage, help and the man page, made from the option table. */
#include <string.h>

#include "cli/chat.h"
#include "cli/options.h"

enum { HELP_WIDTH_MAX = 100, HELP_NARROW = 72 };

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
    buf_printf(out, row->type == OPTION_OPTIONAL_TEXT ? "[=%s]" : " %s", row->argument);
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
    help_print_item(out, 30, buf_text(&name), buf_text(&help));
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

void help_print(FILE *out, enum command c) {
    if (c == COMMAND_NONE) {
        help_print_usage(out);
        fputc('\n', out);
        terminal_print(out, help_width(out), 0, 0, command_table[c].detail);
    } else {
        fprintf(out, "usage: duet %s %s\n\n", command_table[c].name, command_table[c].arguments);
        terminal_print(out, help_width(out), 0, 0, command_table[c].detail);
    }
    fputs("\nOptions:\n", out);
    for (int i = 0; i < option_count; i++)
        if (option_table[i].commands & 1u << c && !option_table[i].hidden) print_option(out, &option_table[i]);
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

static void print_chat_commands(FILE *out) {
    const struct chat_row *row;
    fputs(".SH COMMANDS OF A CHAT\n", out);
    for (int i = 0; (row = chat_row_at(i)); i++) {
        fputs(".TP\n\\fB", out);
        print_roff(out, row->name);
        fputs("\\fR ", out);
        print_roff(out, row->argument);
        fputc('\n', out);
        print_roff(out, row->help);
        fputc('\n', out);
    }
}

static void print_man_tail(FILE *out) {
    fputs(
        ".SH EXIT STATUS\n"
        "0 if all went well, 1 if something failed, 2 for a usage error, 130 when interrupted (a chat that ends at "
        "its prompt: 0).\n"
        ".SH ENVIRONMENT\n"
        ".TP\n\\fBDUET_ASSETS\\fR\nDirectory of the embedded pair (\\fItarget\\fR and \\fIdraft\\fR in it), in "
        "place of \\fIshare/duet\\fR beside the folder of the program.\n"
        ".TP\n\\fBHF_HUB_CACHE\\fR\nWhere the local Hugging Face cache lies; the \\fIhub\\fR in \\fBHF_HOME\\fR if "
        "unset.\n"
        ".TP\n\\fBHF_HOME\\fR\nhuggingface in \\fBXDG_CACHE_HOME\\fR, else ~/.cache/huggingface, if unset.\n"
        ".TP\n\\fBCOLUMNS\\fR\nColumns that text and tables are laid out for; the terminal's if unset, 80 without "
        "one.\n"
        ".TP\n\\fBNO_COLOR\\fR\nIf set and not empty, no colours.\n"
        ".SH FILES\n"
        ".TP\n\\fI~/.local/state/duet/last.json\\fR\nThe chat at a terminal that ended last: what \\fB/load\\fR takes "
        "without a name. In \\fI$XDG_STATE_HOME/duet\\fR if that is set.\n"
        ".TP\n\\fI~/.local/state/duet/history\\fR\nThe last 1,000 lines typed at chats, of all chats together; "
        "\\fI$XDG_STATE_HOME/duet/history\\fR if that is set.\n",
        out);
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
    fputs(".SH OPTIONS\n", out);
    for (int i = 0; i < option_count; i++)
        if (!option_table[i].hidden) print_man_option(out, &option_table[i]);
    print_chat_commands(out);
    print_man_tail(out);
}
