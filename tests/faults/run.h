/* Runs a scenario with one fault and keeps all it leaves: exit status, both streams, its files, the calls it made. */
#ifndef DUET_TESTS_FAULTS_RUN_H
#define DUET_TESTS_FAULTS_RUN_H

#include "base/buf.h"
#include "tests/faults/log.h"
#include "tests/faults/scenario.h"

struct fault {
    enum fault_kind kind;
    enum fault_how how;
    uint32_t at;
    int error;
};

struct ending {
    int status;   /* exit status; 128 + signal if a signal ended it */
    bool is_late; /* it was killed after TIME_LIMIT_S seconds */
    struct buf out, err, file[SCENARIO_FILES];
    bool has_file[SCENARIO_FILES];
};

/* Of what the files held before, so that an old file is told from a new one by its length too. */
enum { OLD_BYTES = 1 << 15 };
const struct buf *fault_old_text(void);

/* Makes the folder of the runs, and what the scenario reads. */
void fault_prepare(const struct scenario *);
/* `fault` as it is in the log of the run: fault_log() stands until the next run. */
void fault_run(struct ending *, const struct scenario *, const struct fault *);
const struct fault_log *fault_log(void);
void ending_free(struct ending *);

#endif
