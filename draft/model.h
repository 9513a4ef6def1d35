/* The draft model, or a head of the target (`mtp`): proposes K tokens a row by K replays of its decode graphs, each followed by one eager
 * draw.
 *
 *   DRAFT_FIRST [B, 2]: rows (t[n-2], t[n-1]); re-ingesting the last two committed tokens fills the one position that a fully
 *     accepted round leaves out of the draft's cache, with no branch and no extra pass.
 *   DRAFT_STEP  [B, 1]: row d_i at position n-1+i, i = 1..K-1.
 *
 * A head of the target reads the target's hidden rows, and in DRAFT_FIRST [B, F] all tokens that the round before may have
 * committed, with these rows, F = 2..K_max + 1: what it computed of drafts was of its own guesses (README.md).
 *
 * An assistant (Gemma 4) reads the target's keys as well, and has none: its first pass is of t[n-1] alone, and drafted rows stand where that
 * one does.
 *
 * A head that drafts blocks (DFlash) has no steps: DRAFT_FIRST [B, block] is t[n-1] and masks, and gives the logits of all tokens; what it leaves
 * is keys up to the block's end.
 *
 * A row whose draft would need a position past the model's own is offered nothing. Rounds without it leave its cache behind; it
 * catches up by prefill. What it leaves: draft KV for positions up to n+K-2. */
#ifndef DUET_DRAFT_MODEL_H
#define DUET_DRAFT_MODEL_H

#include "draft/proposer.h"

enum draft_graph { DRAFT_FIRST, DRAFT_STEP, DRAFT_PREFILL, DRAFT_GRAPH_KINDS };

/* A directory is opened by the first, whichever of the first four it is. */
extern const struct proposer_ops proposer_model, proposer_eagle, proposer_assistant, proposer_block, proposer_mtp;

#endif
