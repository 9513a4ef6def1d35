/* Completion for bash, zsh and fish, made from the tables of commands and options. */
#include <string.h>

#include "cli/options.h"

/* What a shell offers as a value, by the placeholder. */
enum values { VALUES_NONE, VALUES_CHOICES, VALUES_FILES, VALUES_DIRECTORIES };

static enum values values_of(const struct option_row *row) {
    if (row->choices) return VALUES_CHOICES;
    if (!row->argument) return VALUES_NONE;
    if (strstr(row->argument, "FILE")) return VALUES_FILES;
    return strcmp(row->argument, "MODEL") == 0 ? VALUES_DIRECTORIES : VALUES_NONE;
}

static bool takes_next_word(const struct option_row *row) {
    return row->type != OPTION_FLAG && row->type != OPTION_OPTIONAL_NAME;
}

static bool is_offered(const struct option_row *row, int command) {
    return row->commands & 1u << command && !row->hidden;
}

static bool takes_directory(int command) {
    return strstr(command_table[command].arguments, "DIR") != NULL;
}

/* `text` with a backslash before each of `special`, and what ends a string in single quotes written as the shell wants it. */
static void put_quoted(FILE *out, const char *text, const char *special, const char *quote) {
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

/* "on|off" as words. */
static void put_choices(FILE *out, const char *choices) {
    for (; *choices; choices++) fputc(*choices == '|' ? ' ' : *choices, out);
}

static void put_commands(FILE *out, const char *separator) {
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++)
        fprintf(out, "%s%s", c > COMMAND_NONE + 1 ? separator : "", command_table[c].name);
}

/* --- bash --------------------------------------------------------------------------------------------------- */

/* "chat:--accept | batch:--accept": the words behind which a value of this option stands. */
static void put_bash_pattern(FILE *out, const struct option_row *row) {
    const char *separator = "";
    for (int c = COMMAND_NONE; c < COMMANDS; c++) {
        if (!is_offered(row, c)) continue;
        fprintf(out, "%s%s:--%s", separator, command_table[c].name, row->name);
        separator = " | ";
        if (row->letter) fprintf(out, " | %s:-%c", command_table[c].name, row->letter);
    }
}

static void print_bash_values(FILE *out, const struct option_row *row) {
    fputs("    ", out);
    put_bash_pattern(out, row);
    fputs(") ", out);
    switch (values_of(row)) {
    case VALUES_CHOICES:
        fputs("words='", out);
        put_choices(out, row->choices);
        fputs("' ;;\n", out);
        break;
    case VALUES_FILES:
        fputs("kind=-f ;;\n", out);
        break;
    case VALUES_DIRECTORIES:
        fputs("kind=-d ;;\n", out);
        break;
    case VALUES_NONE:
        fputs("return ;;\n", out);
        break;
    }
}

static void print_bash_options(FILE *out, int command) {
    const char *separator = "";
    fprintf(out, "        %s) words='", command ? command_table[command].name : "''");
    if (!command) put_commands(out, " "), separator = " ";
    for (const struct operand_row *o = command_table[command].operands; o && o->name; o++, separator = " ")
        fprintf(out, "%s%s", separator, o->name);
    for (int i = 0; i < option_count; i++) {
        const struct option_row *row = &option_table[i];
        if (!is_offered(row, command)) continue;
        fprintf(out, "%s--%s%s", separator, row->name, row->type == OPTION_OPTIONAL_NAME ? "=" : "");
        separator = " ";
    }
    fprintf(out, "'%s ;;\n", takes_directory(command) ? " kind=-d" : "");
}

/* bash cuts "--k=4" into three words, of which the last is completed. An optional value has no other form. */
static void print_bash_words(FILE *out) {
    fputs(
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' kind='' word\n"
        "    COMPREPLY=()\n"
        "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD - 1}\"; do\n"
        "        case $word in ",
        out);
    put_commands(out, " | ");
    fputs(") command=$word && break ;; esac\n"
          "    done\n"
          "    if [ \"$cur\" = '=' ]; then\n"
          "        cur=''\n"
          "    elif [ \"$prev\" = '=' ]; then\n"
          "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    else\n"
          "        case $prev in ",
          out);
    const char *separator = "";
    for (int i = 0; i < option_count; i++)
        if (option_table[i].type == OPTION_OPTIONAL_NAME)
            fprintf(out, "%s--%s", separator, option_table[i].name), separator = " | ";
    fputs(") prev='' ;; esac\n    fi\n", out);
}

static void print_bash(FILE *out) {
    fputs("# bash completion of duet, made by duet --completion bash\n_duet() {\n", out);
    print_bash_words(out);
    fputs("    case $command:$prev in\n", out);
    for (int i = 0; i < option_count; i++)
        if (option_table[i].argument && !option_table[i].hidden) print_bash_values(out, &option_table[i]);
    fputs("    *)\n        case $command in\n", out);
    for (int c = COMMAND_NONE; c < COMMANDS; c++) print_bash_options(out, c);
    fputs("        esac ;;\n"
          "    esac\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"; [ -z \"$kind\" ] || compgen \"$kind\" -- "
          "\"$cur\")\n"
          "    [ -z \"$kind\" ] || compopt -o filenames 2>/dev/null\n"
          "    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
          "}\n"
          "complete -F _duet duet\n",
          out);
}

/* --- zsh ---------------------------------------------------------------------------------------------------- */

static void put_zsh_text(FILE *out, const char *text) {
    put_quoted(out, text, "[]:\\", "'\\''");
}

/* '(-k --k)'{-k+,--k=}'[help]:N: ' */
static void print_zsh_option(FILE *out, const struct option_row *row) {
    const char *equals = row->type == OPTION_FLAG ? "" : row->type == OPTION_OPTIONAL_NAME ? "=-" : "=";
    bool repeats = row->type == OPTION_TEXTS;
    if (row->letter)
        fprintf(out, "        '(-%c --%s)'{-%c%s,--%s%s}'", row->letter, row->name, row->letter,
                row->type == OPTION_FLAG ? "" : "+", row->name, equals);
    else
        fprintf(out, "        '%s--%s%s", repeats ? "*" : "", row->name, equals);
    fputc('[', out);
    put_zsh_text(out, row->help);
    fputc(']', out);
    if (row->argument) {
        fputs(row->type == OPTION_OPTIONAL_NAME ? "::" : ":", out);
        put_zsh_text(out, row->argument);
        fputc(':', out);
    }
    if (values_of(row) == VALUES_CHOICES) {
        fputc('(', out);
        put_choices(out, row->choices);
        fputc(')', out);
    } else if (row->argument) {
        static const char *const actions[] = {
            [VALUES_NONE] = " ", [VALUES_FILES] = "_files", [VALUES_DIRECTORIES] = "_directories"};
        fputs(actions[values_of(row)], out);
    }
    fputs("' \\\n", out);
}

static void print_zsh_command(FILE *out, int command) {
    fprintf(out, "    %s)\n        _arguments -s \\\n", command ? command_table[command].name : "*");
    for (int i = 0; i < option_count; i++)
        if (is_offered(&option_table[i], command)) print_zsh_option(out, &option_table[i]);
    const struct operand_row *operand = command_table[command].operands;
    fprintf(out, "        %s",
            !command                   ? "'1:command:_duet_commands'"
            : takes_directory(command) ? "'1:DIR:_directories'"
            : operand                  ? "'1:TABLE:(("
                                       : "&& return");
    for (; operand && operand->name; operand++) {
        fprintf(out, "%s\\:\"", operand->name);
        put_zsh_text(out, operand->summary);
        fputs(operand[1].name ? "\" " : "\"))'", out);
    }
    fputs(" ;;\n", out);
}

static void print_zsh(FILE *out) {
    fputs("#compdef duet\n# zsh completion of duet, made by duet --completion zsh\n_duet_commands() {\n    local -a "
          "commands=(\n",
          out);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        fprintf(out, "        '%s:", command_table[c].name);
        put_zsh_text(out, command_table[c].summary);
        fputs("'\n", out);
    }
    fputs("    )\n    _describe command commands\n}\n_duet() {\n    local command=${words[(r)(", out);
    put_commands(out, "|");
    fputs(")]}\n"
          "    if [[ -n $command && $words[CURRENT] != $command ]]; then\n"
          "        words[(i)$command]=()\n"
          "        (( CURRENT-- ))\n"
          "    else\n"
          "        command=''\n"
          "    fi\n"
          "    case $command in\n",
          out);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) print_zsh_command(out, c);
    print_zsh_command(out, COMMAND_NONE);
    fputs("    esac\n}\n_duet \"$@\"\n", out);
}

/* --- fish --------------------------------------------------------------------------------------------------- */

static void put_fish_text(FILE *out, const char *text) {
    put_quoted(out, text, "\\", "\\'");
}

static void print_fish_option(FILE *out, const struct option_row *row, int command) {
    if (command)
        fprintf(out, "complete -c duet -n '__fish_seen_subcommand_from %s'", command_table[command].name);
    else
        fputs("complete -c duet -n __fish_use_subcommand", out);
    fprintf(out, " -l %s", row->name);
    if (row->letter) fprintf(out, " -s %c", row->letter);
    switch (values_of(row)) {
    case VALUES_CHOICES:
        fputs(" -x -a '", out);
        put_choices(out, row->choices);
        fputc('\'', out);
        break;
    case VALUES_FILES:
        fputs(takes_next_word(row) ? " -r -F" : " -F", out);
        break;
    case VALUES_DIRECTORIES:
        fputs(" -x -a '(__fish_complete_directories)'", out);
        break;
    case VALUES_NONE:
        if (row->argument) fputs(" -x", out);
        break;
    }
    fputs(" -d '", out);
    put_fish_text(out, row->help);
    fputs("'\n", out);
}

static void print_fish(FILE *out) {
    fputs("# fish completion of duet, made by duet --completion fish\ncomplete -c duet -f\n", out);
    for (int c = COMMAND_NONE + 1; c < COMMANDS; c++) {
        fprintf(out, "complete -c duet -n __fish_use_subcommand -a %s -d '", command_table[c].name);
        put_fish_text(out, command_table[c].summary);
        fputs("'\n", out);
        if (takes_directory(c))
            fprintf(out, "complete -c duet -n '__fish_seen_subcommand_from %s' -a '(__fish_complete_directories)'\n",
                    command_table[c].name);
    }
    for (int c = COMMAND_NONE; c < COMMANDS; c++) {
        for (const struct operand_row *o = command_table[c].operands; o && o->name; o++) {
            fprintf(out, "complete -c duet -n '__fish_seen_subcommand_from %s' -a %s -d '", command_table[c].name,
                    o->name);
            put_fish_text(out, o->summary);
            fputs("'\n", out);
        }
        for (int i = 0; i < option_count; i++)
            if (is_offered(&option_table[i], c)) print_fish_option(out, &option_table[i], c);
    }
}

void completion_print(FILE *out, const char *shell) {
    if (strcmp(shell, "bash") == 0)
        print_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(out);
    else
        print_fish(out);
}
