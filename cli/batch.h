/* duet batch: what its files share.
 *
 * A request is one input line, parsed and checked (batch_request.c). A job is a request while it runs (batch_job.c); an answer
 * is what one turn of it gave; batch_record.c and batch_forms.c write the record, which batch_results.c puts in its place. */
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

/* What the record of a line looks like: duet's own, or one of OpenAI's batch form. */
enum record_form { FORM_RECORD, FORM_CHAT, FORM_COMPLETION };

struct request {
    enum record_form form;
    int line;       /* input line, from 1: the record's index */
    uint64_t hash;  /* line_hash of it */
    char *id;       /* what the record echoes, JSON; NULL: absent */
    char *model;    /* OpenAI's form: what the line calls it, JSON; NULL: absent */
    char *category; /* --format spec-bench: JSON; NULL: absent */
    char *error;    /* NULL, or what is wrong, without "line n: " */
    struct ids ids;
    bool continues;    /* the answer goes on behind the text of `ids`, which is no chat */
    struct buf *turns; /* [turn_count]: user turns; NULL: one answer to `ids` */
    int turn_count;
    struct buf *stops; /* [stop_count] */
    int stop_count;
    int max_tokens;
    struct sampling sampling;
    uint64_t seed;
    bool ignore_eos, logprobs;
    struct chat_template *told; /* the run's, told more by this line; NULL: as it is */
};
/* The template of its chat; NULL: there is none. */
const struct chat_template *request_template(const struct request *, const struct request_context *);
/* How its messages are encoded. */
struct chat_encoding request_encoding(const struct request *, const struct request_context *);

/* Whether a line is still the one that a record was made of (--resume): FNV-1a. */
uint64_t line_hash(const char *line, size_t n);
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
    struct ids lengths;  /* tokens of each round, the end id among them */
    struct buf logprobs; /* float [ids.len], where they are asked for */
    int64_t wall_us;     /* from the question to the last token */
};

/* What OpenAI's ids of a batch begin with. */
#define OPENAI_ID "batch_req_"

struct record_style {
    bool has_text; /* there is a tokenizer */
    bool details;  /* --details */
    bool spec_bench;
    bool k_auto;                       /* --k auto, with which a seed need not repeat its text: said in the record */
    const char *model;                 /* its name; where the line has none */
    const struct tokenizer *tokenizer; /* for the words of single tokens (logprobs in OpenAI's form) */
};
/* One record, a JSON object on one line. `answers` [count] are what the request gave before its error, if any. */
void record_write(struct buf *out, const struct request *, const struct answer *answers, int count,
                  const struct record_style *);
/* Members of every form: `, "seed": 7`, and `, "wall_time": 0.5, "accept_lengths": [3, 1]` of the answers together. */
void record_put_seed(struct buf *out, uint64_t seed);
void record_put_details(struct buf *out, const struct answer *answers, int count);
void record_put_lengths(struct buf *out, const struct answer *answers, int count); /* [3, 1] */
double record_logprob(const struct answer *, size_t token);
void record_put_logprobs(struct buf *out, const struct answer *); /* [-0.5, -2] */
/* "line 3: what is wrong" as a JSON string. */
void record_put_sentence(struct buf *out, const struct request *);
const char *record_finish_name(enum finish);

/* The other forms (batch_forms.c). */
void openai_write(struct buf *out, const struct request *, const struct answer *answers, int count,
                  const struct record_style *);
void spec_bench_write(struct buf *out, const struct request *, const struct answer *answers, int count,
                      const struct record_style *);

#endif
