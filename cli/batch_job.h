/* A request while it runs. */
#ifndef DUET_CLI_BATCH_JOB_H
#define DUET_CLI_BATCH_JOB_H

#include "cli/batch.h"
#include "engine/conversation.h"
#include "engine/text.h"

struct job {
    struct request request;
    struct engine *engine;
    struct sequence *sequence;         /* NULL: not started, or done */
    struct conversation *conversation; /* turns: owns the sequence */
    struct text_stream *text;          /* of the answer that is being made; NULL without a tokenizer */
    struct answer *answers;            /* [count] finished ones, then the one being made */
    int count;
    int64_t start_us; /* the question of that one was asked */
    bool was_cut;     /* the last answer did not end with an end id */
    bool done;        /* the record can be written */
    int rc;           /* an error inside the engine's callback */
};

struct job *job_create(const struct request *); /* takes what the request owns; NULL: out of memory */
void job_free(struct job *);
/* Opens a sequence and asks for the first answer. An error of the request itself makes the job done and is no error here. */
int job_start(struct job *, struct engine *, const struct request_context *);
/* After a step: if the answer has ended, starts the next turn or makes the job done. */
int job_advance(struct job *, const struct request_context *);

#endif
