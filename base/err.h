/* Errors: a negative code and one sentence.
 *
 * Every function that can fail returns 0 or one of the codes below, and leaves a sentence that names
 * the file, tensor or line and the reason. The sentence belongs to the calling thread and stands until
 * that thread's next err_set. Libraries never print or exit; cli/ prints the sentence once. */
#ifndef DUET_BASE_ERR_H
#define DUET_BASE_ERR_H

#include <stddef.h>

enum err {
    ERR_USAGE = -1,        /* the caller asked for something that makes no sense */
    ERR_IO = -2,           /* a file could not be opened, read, mapped or written */
    ERR_FORMAT = -3,       /* a file is malformed */
    ERR_UNSUPPORTED = -4,  /* well formed, but duet does not know it (architecture, rope type, template) */
    ERR_MEMORY = -5,       /* out of memory, host or device */
    ERR_LIMIT = -6,        /* does not fit: context, vocabulary, capacity of a buffer */
    ERR_BUSY = -7,         /* no slot or no pages now; try again when a sequence has ended */
    ERR_DEVICE = -8,       /* a device call failed */
    ERR_NUMERIC = -9,      /* non-finite logits */
    ERR_INTERNAL = -10,    /* an invariant of duet itself does not hold */
    ERR_INTERRUPTED = -11, /* the caller's own wish, seen in the middle of long work */
};

/* Stores the sentence (at most 1,023 bytes) and returns `code`, so that `return err_set(...)` works.
 * Bytes that are not valid UTF-8 and control characters are stored as \xff escapes. Of a sentence that would be longer, words of
 * more than 300 bytes (paths) lose their middle, and then the sentence its own, to "...": the reason stays. */
int err_set(enum err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "PREFIX: " before the stored sentence, for a caller that knows the file. Returns `code`. */
int err_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "; hint: HINT" behind it. Returns `code`. */
int err_hint(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What sentences do to what they quote, for other text that goes to people: bytes that are not valid UTF-8 and control
 * characters become \xff escapes in out [size], size > 0, cut before the first character that no longer fits. Returns `out`. */
const char *err_escape(const char *raw, char *out, size_t size);

/* The calling thread's last sentence; "" if there was none. Never NULL. */
const char *err_message(void);

#define TRY(call)                         \
    do {                                  \
        int try_rc_ = (call);             \
        if (try_rc_ != 0) return try_rc_; \
    } while (0)

#endif
