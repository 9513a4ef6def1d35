/* What transformers computes of a checkpoint, and whether duet's numbers are these. A reference is an object of a reference.json: `prompt`,
 * `logits_last` and `logits_first` of it and of its first token, `greedy` tokens behind it and the `gaps` of the two largest logits. */
#ifndef DUET_TESTS_REFERENCE_H
#define DUET_TESTS_REFERENCE_H

#include "tests/support/engine_support.h"

enum { REFERENCE_ROOM = 48 }; /* tokens that are asked for behind a prompt, at most */

/* Both prompts' logits, in a sequence of `length` positions. Where activations are bf16, a router that hardly prefers an expert may take
 * another. */
void reference_check_logits(const char *dir, const cJSON *reference, int length, const char *what);
/* Logits [vocab] are those of a member of a reference. */
void reference_must_be_close(const cJSON *reference, const char *member, const float *logits, int vocab,
                             const char *what);
/* Answers the prompts of that name of up to 8 references, which must go on as these say as far as the arithmetic decides. */
void reference_check_greedy(struct engine *, const cJSON *references, const char *prompt_name, const char *what,
                            struct answer answers[8]);

#endif
