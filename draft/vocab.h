/* A draft vocabulary: the ids that a draft model's head is cut to, so that a step of the draft reads less and draws from less
 * (FR-Spec, Zhao et al. 2025). What it cannot propose has q = 0 and is drawn from the residual, so the text is the target's still.
 *
 *   "N"        the lowest N ids: in BPE vocabularies bytes and the first merges, which are those of the most frequent text
 *   "N:TEXT"   the N ids that a text file has most of by the target's tokenizer; of equally many, and where it has too few, the lower
 *   "FILE"     the ids of a file: one a line, or a JSON array
 *
 * The ids at which an answer can end are always among them, in N too. */
#ifndef DUET_DRAFT_VOCAB_H
#define DUET_DRAFT_VOCAB_H

#include "model/text/tokenizer.h"

/* What the ids are chosen from: [0, size). */
struct draft_vocab_source {
    int size;
    const struct tokenizer *tokenizer; /* NULL: there is none, and "N:TEXT" is an error */
    const struct ids *always; /* ends of answers and marks in them, taken whatever is asked for; none past `size` */
};

/* *out: ascending, at least one. ERR_USAGE for an N that is too small or too large, ERR_IO and ERR_FORMAT for a file. Allocates. */
int draft_vocab_choose(struct ids *out, const char *wish, const struct draft_vocab_source *);

#endif
