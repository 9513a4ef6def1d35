/* Heads of a target as proposers: opened, and held to what their references draft. `own` is the directory or file of a head that has files of
 * its own; NULL: the target's. */
#ifndef DUET_TESTS_HEAD_SUPPORT_H
#define DUET_TESTS_HEAD_SUPPORT_H

#include "tests/support/engine_support.h"

struct engine *head_open(const char *dir, const char *own, int k, const char *vocab);
/* The drafts of the first round after these tokens, and the logits of the last of them, where that is no NULL. */
void head_first_round(struct engine *, const struct ids *tokens, int k, int32_t *drafted, float *logits);
/* One draft of a round, and three. `references`: prompts with mtp_logits, drafts and their gaps (tests/model/families/make.py). */
void head_must_draft(const char *dir, const char *own, const cJSON *references, const char *what);
/* An engine of them is refused with a sentence that has this in it. */
void head_must_be_refused(const char *dir, const char *own, const char *vocab, const char *sentence);

#endif
