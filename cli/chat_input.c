#include "cli/chat_input.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

#include "cli/chat_complete.h"
#include "cli/chat_history.h"
#include "cli/cli.h"

enum { INTERRUPT_KEY = 3, ESCAPE = 0x1b };

struct chat_input {
    EditLine *edit; /* NULL: plain lines */
    struct chat_history history;
    char *line; /* plain lines: getline's */
    size_t cap;
    bool continued;       /* the prompt of a further line */
    bool interrupted;     /* Ctrl-C in this line */
    bool ended;           /* Ctrl-D, in place of a line */
    bool warned;          /* Ctrl-C came last: no key was typed since */
    unsigned char unread; /* a byte that ended a malformed character; 0: none */
};

static volatile sig_atomic_t terminal_changed; /* resized, or continued after a stop */

static void on_terminal_changed(int signal_number) {
    int saved = errno;
    if (signal_number == SIGCONT) signals_continue();
    terminal_changed = 1;
    errno = saved;
}

/* --- libedit's callbacks ------------------------------------------------------------------------------------ */

static struct chat_input *input_of(EditLine *edit) {
    void *data = NULL;
    el_get(edit, EL_CLIENTDATA, &data);
    return data;
}

/* Escapes stand between \1 marks, so that libedit does not count them; it drops one that no character follows. */
static char *prompt(EditLine *edit) {
    static char text[64];
    const char *bold = terminal_style(STDOUT_FILENO, STYLE_BOLD), *reset = terminal_style(STDOUT_FILENO, STYLE_RESET);
    char sign = input_of(edit)->continued ? '.' : '>';
    if (*bold)
        snprintf(text, sizeof text, "\1%s\1%c\1%s\1 ", bold, sign, reset);
    else
        snprintf(text, sizeof text, "%c ", sign);
    return text;
}

/* Is there a byte, or the end of file? False, errno EINTR: a signal came, be it just before this waits. */
static bool wait_for_key(void) {
    sigset_t before;
    fd_set input;
    FD_ZERO(&input);
    FD_SET(STDIN_FILENO, &input);
    sigprocmask(SIG_SETMASK, NULL, &before);
    signals_hold();
    const bool has_signal = signals_ended() || signals_interrupted() || terminal_changed;
    const bool is_ready = !has_signal && pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &before) > 0;
    const int error = has_signal ? EINTR : errno;
    signals_release();
    errno = error;
    return is_ready;
}

/* The next byte; Ctrl-C comes as its key, so that it is handled between keys and not inside a signal handler. 0: end of
 * file, -1: failure. */
static int read_byte(EditLine *edit, unsigned char *byte) {
    for (;;) {
        if (signals_ended()) return 0;
        if (signals_interrupted()) {
            signals_clear();
            *byte = INTERRUPT_KEY;
            return 1;
        }
        if (terminal_changed) {
            terminal_changed = 0;
            /* libedit draws anew from where the cursor is */
            fputs(terminal_is_dumb() ? "\n" : "\r\033[J\033[?2004h", stdout);
            fflush(stdout);
            el_resize(edit);
            el_set(edit, EL_PREP_TERM, 1);
            el_set(edit, EL_REFRESH);
        }
        if (!wait_for_key()) {
            if (errno != EINTR) return -1;
            continue;
        }
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n > 0 && *byte != INTERRUPT_KEY) input_of(edit)->warned = false;
        if (n >= 0) return (int)n;
        if (errno != EINTR) return -1;
    }
}

/* Length that the first byte of a character announces; 1 for what is none. */
static size_t announced_length(unsigned char first) {
    return first < 0xc2 || first > 0xf4 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* One character of UTF-8; bytes that are none become U+FFFD. */
static int read_character(EditLine *edit, wchar_t *out) {
    struct chat_input *in = input_of(edit);
    char bytes[4];
    uint32_t code_point = 0;
    size_t n = 0, length = 1;
    while (n < length) {
        unsigned char byte = in->unread;
        int got = byte ? 1 : read_byte(edit, &byte);
        if (got <= 0) return got;
        in->unread = 0;
        if (n > 0 && (byte & 0xc0) != 0x80) {
            in->unread = byte;
            break;
        }
        if (n == 0) length = announced_length(byte);
        bytes[n++] = (char)byte;
    }
    *out = utf8_decode(bytes, n, &code_point) == (int)n ? (wchar_t)code_point : 0xfffd;
    return 1;
}

/* Ctrl-C: leaves the line as it was on the screen, and ends it. */
static unsigned char interrupt_line(EditLine *edit, int key) {
    (void)key;
    input_of(edit)->interrupted = true;
    const LineInfoW *line = el_wline(edit);
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    el_winsertstr(edit, L"^C");
    el_wpush(edit, L"\n");
    return CC_REFRESH;
}

/* Bracketed paste: everything up to ESC [ 2 0 1 ~ is text; its line ends do not end the turn. */
static unsigned char insert_paste(EditLine *edit, int key) {
    static const wchar_t end[] = L"\033[201~";
    enum { END_LENGTH = 6 };
    wchar_t c;
    int matched = 0;
    (void)key;
    while (matched < END_LENGTH && el_wgetc(edit, &c) == 1) {
        if (c == end[matched]) {
            matched++;
            continue;
        }
        matched = c == ESCAPE ? 1 : 0;
        wchar_t text[2] = {c == L'\r' ? L'\n' : c, 0};
        if (text[0] == L'\n' || text[0] == L'\t' || text[0] >= 0x20) el_winsertstr(edit, text);
    }
    return CC_REFRESH;
}

/* --- Tab ---------------------------------------------------------------------------------------------------- */

enum { LISTED_MAX = 200 };

/* A file by its name alone; without the blank that goes on. */
static const char *shown_word(const char *word, int *n) {
    size_t length = strlen(word), end = length > 0 && word[length - 1] == ' ' ? length - 1 : length, at = end;
    while (at > 1 && (word[at - 1] != '/' || at == end)) at--;
    if (at <= 1) at = 0;
    *n = (int)(end - at);
    return word + at;
}

/* Below the line, in columns; libedit draws the line anew under it. */
static void list_completions(const struct completions *c) {
    int longest = 0, n, columns = terminal_columns(STDOUT_FILENO),
        shown = c->count < LISTED_MAX ? c->count : LISTED_MAX;
    const char *word = buf_text(&c->words);
    for (int i = 0; i < shown; i++, word += strlen(word) + 1) {
        shown_word(word, &n);
        longest = n > longest ? n : longest;
    }
    int each = columns / (longest + 2) > 0 ? columns / (longest + 2) : 1;
    word = buf_text(&c->words);
    for (int i = 0; i < shown; i++, word += strlen(word) + 1) {
        const char *text = shown_word(word, &n);
        printf("%s%.*s", i % each == 0 ? "\n" : "", n, text);
        if (i + 1 < shown && (i + 1) % each != 0) printf("%*s", longest + 2 - n, "");
    }
    if (shown < c->count) printf("\n... and %d more", c->count - shown);
    putchar('\n');
    fflush(stdout);
}

/* What all completions begin with is put in; where that is nothing, they are listed. In a question, Tab is a tab. */
static unsigned char complete_line(EditLine *edit, int key) {
    const LineInfo *line = el_line(edit);
    size_t n = (size_t)(line->cursor - line->buffer);
    struct completions c;
    (void)key;
    if (n == 0 || line->buffer[0] != '/') return el_winsertstr(edit, L"\t") == 0 ? CC_REFRESH : CC_ERROR;
    chat_complete(line->buffer, n, &c);
    unsigned char result = CC_ERROR;
    size_t typed = n - c.from;
    if (c.count > 0 && c.common > typed) {
        struct buf rest = {0};
        buf_append(&rest, c.words.data + typed, c.common - typed);
        if (el_insertstr(edit, buf_text(&rest)) == 0) result = CC_REFRESH;
        buf_free(&rest);
    } else if (c.count > 1) {
        list_completions(&c);
        result = CC_REDISPLAY;
    }
    completions_free(&c);
    return result;
}

/* --- life --------------------------------------------------------------------------------------------------- */

static void watch_terminal(void) {
    struct sigaction action = {.sa_handler = on_terminal_changed}; /* no SA_RESTART: reads must notice */
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGCONT, &action, NULL);
}

static int open_editor(struct chat_input *in) {
    signals_keep_terminal();
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    in->edit = el_init("duet", stdin, stdout, stderr);
    if (!chat_history_open(&in->history) || !in->edit)
        return err_set(ERR_IO, "the terminal cannot be set up for line editing");
    el_set(in->edit, EL_CLIENTDATA, in);
    el_set(in->edit, EL_EDITOR, "emacs");
    el_set(in->edit, EL_PROMPT_ESC, prompt, '\1');
    el_set(in->edit, EL_HIST, history, in->history.lines);
    el_wset(in->edit, EL_GETCFN, read_character);
    el_wset(in->edit, EL_ADDFN, L"interrupt-line", L"drop the line", interrupt_line);
    el_wset(in->edit, EL_ADDFN, L"insert-paste", L"insert pasted text", insert_paste);
    el_wset(in->edit, EL_ADDFN, L"complete-line", L"complete a command", complete_line);
    el_set(in->edit, EL_BIND, "^I", "complete-line", NULL);
    el_set(in->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(in->edit, NULL); /* the user's ~/.editrc */
    el_set(in->edit, EL_BIND, "^C", "interrupt-line", NULL);
    el_set(in->edit, EL_BIND, "\033[200~", "insert-paste", NULL);
    /* Between prompts: Ctrl-C must not throw away what is on its way to the screen, for the history keeps it as shown; and
     * what is typed waits for the next prompt, key by key, and is not shown inside an answer. */
    el_set(in->edit, EL_SETTY, "-x", "+noflsh", "-echo", "-icanon", NULL);
    watch_terminal();
    return 0;
}

int chat_input_create(struct chat_input **out, bool edit) {
    *out = NULL;
    struct chat_input *in = calloc(1, sizeof *in);
    if (!in) return err_set(ERR_MEMORY, "no memory for the input");
    int rc = edit ? open_editor(in) : 0;
    if (rc != 0) {
        chat_input_free(in);
        return rc;
    }
    *out = in;
    return 0;
}

void chat_input_free(struct chat_input *in) {
    if (!in) return;
    chat_history_close(&in->history);
    if (in->edit) el_end(in->edit);
    free(in->line);
    free(in);
}

/* --- reading ------------------------------------------------------------------------------------------------ */

static void set_bracketed_paste(bool on) {
    if (terminal_is_dumb()) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

static enum input_result edit_line(struct chat_input *in, struct buf *text) {
    int n = 0;
    el_set(in->edit, EL_PREP_TERM, 1); /* before the prompt shows: libedit itself does it with the first key */
    const char *line = el_gets(in->edit, &n);
    in->ended = !line || n <= 0;
    if (in->ended) return INPUT_END;
    if (in->interrupted) {
        bool again = in->warned;
        in->warned = true;
        return again ? INPUT_END : INPUT_INTERRUPTED;
    }
    buf_append(text, line, (size_t)n);
    if (text->len > 0 && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    return INPUT_TURN;
}

static enum input_result plain_line(struct chat_input *in, struct buf *text) {
    if (signals_interrupted()) return INPUT_INTERRUPTED; /* in a command before */
    ssize_t n = getline(&in->line, &in->cap, stdin);
    if (signals_interrupted()) return INPUT_INTERRUPTED;
    if (n < 0 && feof(stdin)) return INPUT_END;
    if (n < 0) {
        err_set(errno == ENOMEM ? ERR_MEMORY : ERR_IO, "standard input: cannot read: %s", strerror(errno));
        return INPUT_FAILED;
    }
    while (n > 0 && (in->line[n - 1] == '\n' || in->line[n - 1] == '\r')) n--;
    buf_append(text, in->line, (size_t)n);
    return INPUT_TURN;
}

/* --- turns of several lines ----------------------------------------------------------------------------------- */

static const char quotes[] = "\"\"\"";
enum { QUOTES = sizeof quotes - 1 };

static bool is_quoted(const struct buf *text) {
    return text->len >= QUOTES && memcmp(text->data, quotes, QUOTES) == 0;
}

/* Length of a quoted text up to the quotes at its end, 0: they are not there yet. */
static size_t quoted_length(const struct buf *text) {
    size_t n = text->len;
    while (n > 0 && strchr(" \t\n", text->data[n - 1])) n--;
    return n >= (size_t)2 * QUOTES && memcmp(text->data + n - QUOTES, quotes, QUOTES) == 0 ? n - QUOTES : 0;
}

/* `"""` stands alone on its line or not. What looks like a command is none. */
static void unquote(struct buf *text) {
    struct buf inner = {0};
    size_t end = quoted_length(text), from = QUOTES;
    if (end == 0) end = text->len;
    if (from < end && text->data[from] == '\n') from++;
    if (end > from && text->data[end - 1] == '\n') end--;
    if (from < end && text->data[from] == '/') buf_putc(&inner, '/');
    buf_append(&inner, text->data + from, end - from);
    buf_free(text);
    *text = inner;
}

/* Takes the mark off a line that goes on in the next one. A backslash has meant that at terminals alone. Pasted lines that begin
 * with quotes (a program with its comment) want no further ones. */
static bool goes_on(const struct chat_input *in, struct buf *text) {
    if (is_quoted(text)) {
        bool was_pasted = !in->continued && memchr(text->data, '\n', text->len);
        if (was_pasted || quoted_length(text) > 0) return false;
        buf_putc(text, '\n');
        return true;
    }
    if (!in->edit || text->len == 0 || text->data[text->len - 1] != '\\') return false;
    text->data[text->len - 1] = '\n';
    return true;
}

/* The end of the input, or Ctrl-D, in a further line ends the turn. */
static enum input_result read_turn(struct chat_input *in, struct buf *text) {
    enum input_result result;
    in->interrupted = in->continued = false;
    while ((result = in->edit ? edit_line(in, text) : plain_line(in, text)) == INPUT_TURN && goes_on(in, text))
        in->continued = true;
    if (result != INPUT_END || !in->continued || in->interrupted || signals_ended()) return result;
    while (text->len > 0 && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    return INPUT_TURN;
}

static enum input_result edit_turn(struct chat_input *in, struct buf *text) {
    set_bracketed_paste(true);
    enum input_result result = read_turn(in, text);
    set_bracketed_paste(false);
    if (!in->interrupted && (result == INPUT_END || in->ended)) putchar('\n');
    if (result == INPUT_TURN && text->len > 0) chat_history_add(&in->history, buf_text(text));
    return result;
}

enum input_result chat_input_read(struct chat_input *in, struct buf *text) {
    buf_clear(text);
    enum input_result result = in->edit ? edit_turn(in, text) : read_turn(in, text);
    if (result == INPUT_TURN && is_quoted(text) && (in->continued || quoted_length(text) > 0)) unquote(text);
    return result;
}
