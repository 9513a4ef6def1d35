/* The configuration file. A line is `name = value`, `name` for a flag, empty, or begins with #; names, values and ranges are those of
 * the option table, and a later line of one name replaces an earlier one (`stop` adds up). What the command line gave stays. Options
 * of other commands are checked and skipped. --target or --shape on the command line puts the file's models aside. */
#ifndef DUET_CLI_CONFIG_FILE_H
#define DUET_CLI_CONFIG_FILE_H

#include "cli/options.h"

/* Reads --config FILE, else $XDG_CONFIG_HOME/duet/config, else ~/.config/duet/config where it is there, into options whose command
 * line is parsed. --config none: no file. The options point into `text`, which the caller frees last. Errors begin with the path
 * and, but for ERR_IO, the line. */
int config_file_apply(struct options *, struct buf *text);
/* The same with the text at hand, which it cuts into pieces; `path` is for errors. */
int config_file_parse(struct options *, struct buf *text, const char *path);

#endif
