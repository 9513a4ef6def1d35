/* A small config.json with changes, for the suites that read configurations. */
#ifndef DUET_TESTS_CONFIG_SUPPORT_H
#define DUET_TESTS_CONFIG_SUPPORT_H

#include "model/config.h"

/* Writes that of a small Llama with the members of `changes` put in place of its own ("absent" takes one out), and `generation`
 * where it is not NULL; then loads them. */
int load_config(struct model_config *out, const char *changes, const char *generation);
/* It must fail so, with a sentence that names the file and has these words. */
void refuse_config(const char *changes, int code, const char *words);
/* What an architecture's configuration needs besides the small Llama's, as more members. */
const char *family_members(const char *architecture);

#endif
