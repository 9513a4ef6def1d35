/* duet batch: what its three files share.
 *
 * A request is one input line, parsed and checked (batch_request.c). A job is a request while it runs (batch.c); an answer
 * is what one turn of it gave; batch_record.c writes the record. */
#ifndef DUET_CLI_BATCH_H
#define DUET_CLI_BATCH_H

#include "base/buf.h"
#include "cli/batch_fields.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "model/text/chat_encode.h"

/* What parsing needs to know of the run. */
struct request_context {
    const struct options *o;
    const struct tokenizer *tokenizer;         /* NULL: ids in, ids out */
    const struct chat_template *chat_template; /* NULL: completion mode, or template_error */
    const char *template_error;                /* why there is none although the files have one; NULL: they have none */
    int vocab, context;
    bool think;
    struct ignored_fields *ignored;    /* gets the names of fields that mean nothing; NULL: nobody asks */
    const struct interrupt *interrupt; /* of encoding; NULL: never */
};

/* How the messages of a request are encoded. */
struct chat_encoding request_encoding(const struct request_context *);

struct request {
    int line;    /* input line, from 1: the record's index */
    char *id;    /* what the record echoes, JSON; NULL: absent */
    char *error; /* NULL, or what is wrong, without "line n: " */
    struct ids ids;
    bool continues;    /* the answer goes on behind the text of `ids`, which is no chat */
    struct buf *turns; /* [turn_count]: user turns; NULL: one answer to `ids` */
    int turn_count;
    struct buf *stops; /* [stop_count] */
    int stop_count;
    int max_tokens;
    struct sampling sampling;
    uint64_t seed;
    bool ignore_eos;
};

/* Parses line `number`. What is wrong with it is stored in `error`; ERR_INTERRUPTED alone is returned. */
int request_parse(struct request *, const struct request_context *, int number, const char *line, size_t n);
void request_free(struct request *);
/* Stores `sentence` as what is wrong. */
void request_fail(struct request *, const char *sentence);

struct answer {
    struct buf text;
    struct ids ids; /* without the end id */
    int prompt_tokens;
    enum finish finish;
    struct acceptance stats;
};

/* One record, a JSON object on one line. `answers` [count] are what the request gave before its error, if any. */
void record_write(struct buf *out, const struct request *, const struct answer *answers, int count, bool has_text);

#endif
