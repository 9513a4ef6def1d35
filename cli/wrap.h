/* Text that comes in pieces, broken between words for a terminal: a pure transformer, no terminal needed.
 *
 * A word is held back until its end or until it no longer fits behind what the line holds; then it goes to the next line,
 * where what follows of it passes as it comes, as it does at the start of a line. Blanks at such a break are dropped. A
 * character of two columns is a word of its own. What makes up one character on the screen (combining marks, joined emoji)
 * is never broken. All else of the text comes out as it went in, its own line breaks and indentation too. */
#ifndef DUET_CLI_WRAP_H
#define DUET_CLI_WRAP_H

#include "base/buf.h"

enum { WRAP_COLUMNS_MIN = 20 }; /* of narrower terminals, and of 0 (unknown), nothing is wrapped */

/* Zero-initialise; the next text may begin after wrap_finish. */
struct wrap {
    int columns;               /* of the terminal now; set by the caller, may change between pushes */
    int indent;                /* where a line goes on that was broken here; set by the caller */
    const char *style, *reset; /* escape sequences around the words of the next push; NULL: none; set by the caller */
    struct buf out;            /* what may be shown; taken, and cleared, by the caller */

    struct buf blanks, word; /* held; of the word, with its escapes */
    int column;              /* behind `out` */
    int blanks_end;          /* column behind the blanks; `column` where there are none */
    int word_columns;
    bool line_begun;  /* the line has more than blanks */
    bool flows;       /* the word's beginning is out */
    bool wide;        /* the word is a character of two columns: what begins a new one begins a new word */
    bool style_open;  /* `word` ends in text of this push */
    uint32_t last;    /* code point before this one */
    int32_t clusters; /* state of utf8proc_grapheme_break_stateful */
};

/* UTF-8 without control characters other than newline and tab, cut anywhere between characters; a byte that is not valid
 * counts as a character of one column. */
void wrap_push(struct wrap *, const char *text, size_t n);
/* The end of the text: everything held comes out. The memory stays. */
void wrap_finish(struct wrap *);
void wrap_free(struct wrap *);

/* Columns that the text takes: UTF-8, without control characters. */
int wrap_text_columns(const char *text);

#endif
