#include "tests/support/batch_here.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/batch.h"
#include "cli/cli.h"
#include "tests/support/program.h"
#include "tests/support/support.h"

int records_made;

__typeof__(record_write) __real_record_write, __wrap_record_write;

void __wrap_record_write(struct buf *out, const struct request *r, const struct answer *answers, int count,
                         const struct record_style *style) {
    records_made++;
    __real_record_write(out, r, answers, count, style);
}

int batch_here(const char *lines, const char *out, const char *err) {
    char *arguments[] = {
        "duet",   "batch", "-i",       (char *)temp_path("in.jsonl"), "-o",  (char *)out, "--batch", "2", "-n", "12",
        "--seed", "5",     "--device", (char *)test_device(),         "--k", "2"};
    text_to_file(arguments[3], lines);
    setenv("DUET_ASSETS", asset_path(""), 1);
    struct options o;
    ck_ok(options_parse(&o, sizeof arguments / sizeof *arguments, arguments));
    fflush(stderr);
    int saved = dup(2);
    ck_assert_ptr_nonnull(freopen(err, "w", stderr));
    signals_init();
    signals_init();
    int status = batch_main(&o);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    return status;
}
