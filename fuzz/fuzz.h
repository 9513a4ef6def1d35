/* What the fuzz targets share.
 *
 * A target is a file fuzz/fuzz_NAME.c with one LLVMFuzzerTestOneInput. With libFuzzer it is the program
 * build/fuzz/fuzz_NAME; tests/project/check_fuzz.c links all of them, each under the name of its file, and feeds them
 * fuzz/corpus/NAME. README.md says what a target must check. */
#ifndef DUET_FUZZ_FUZZ_H
#define DUET_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/files/checkpoint.h"

/* `data` is a block of its own, so that a sanitizer sees a read past its end. Returns 0; a fault ends the process. What a
 * target keeps from run to run it makes in the first one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An invariant: where it does not hold the sentence is printed and abort() called. */
#define claim(condition, ...)                                                        \
    do {                                                                             \
        if (!(condition)) claim_failed(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    } while (0)
_Noreturn void claim_failed(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* --- what every parser owes ------------------------------------------------------------------------------- */

/* Before a call that may fail: forgets the last sentence. */
void forget_error(void);
/* After a call that failed: the code is one that an input may cause (not ERR_INTERNAL, not ERR_MEMORY), and it left a new
 * sentence (claim_sentence). */
void claim_refusal(int rc);
/* One non-empty line of valid UTF-8 without control characters. */
void claim_sentence(const char *text);
void claim_same(const char *what, const void *a, size_t a_bytes, const void *b, size_t b_bytes);
/* What a run has opened it has closed: `mark` is what files_mark gave at its beginning. */
int files_mark(void);
void claim_files_closed(int mark);

/* --- cutting an input into parts ---------------------------------------------------------------------------- */

struct input {
    const uint8_t *data;
    size_t n;
};
uint8_t input_byte(struct input *); /* 0 past the end */
/* The bytes before the next `end`, which is passed, or the rest. */
struct input input_until(struct input *, uint8_t end);
/* A block of its own with these bytes and a NUL behind them, for free(). */
char *input_text(const struct input *);

/* --- files, for parsers that take a directory ------------------------------------------------------------------ */

/* A directory in memory ($TMPDIR, else /dev/shm, else /tmp), made at the first call and removed at exit. */
const char *fuzz_dir(void);
const struct checkpoint *fuzz_checkpoint(void); /* in this directory */
void fuzz_write(const char *name, const void *bytes, size_t n);
void fuzz_remove(const char *name); /* where it is there */

#endif
