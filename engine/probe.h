/* Windows into an engine, for tests and benchmarks: caches, single replays. Not part of the public API. */
#ifndef DUET_ENGINE_PROBE_H
#define DUET_ENGINE_PROBE_H

#include "engine/engine.h"

enum probe_model { PROBE_DRAFT, PROBE_TARGET };

/* Copies keys and values of one layer at positions 0..positions-1 of a sequence: [positions, HKV, DH] f32 each, host memory.
 * Synchronises. */
int probe_read_kv(struct engine *, const struct sequence *, enum probe_model, int layer, int positions, float *k,
                  float *v);
const struct model_config *probe_config(const struct engine *, enum probe_model);

/* Fills every page that no sequence owns, the dummy page included, with `byte` in both models' caches. Synchronises. */
int probe_fill_free_pages(struct engine *, unsigned char byte);
/* A checksum over all pages that no sequence owns, the dummy page left out. Synchronises. */
int probe_free_pages_checksum(struct engine *, uint64_t *out);
int probe_free_page_count(const struct engine *);

/* What opening the engine took, part by part, in the order in which they came; they add up to all of it. The device has done its work
 * at the end of each. */
enum start_part {
    START_DEVICE,    /* opening it */
    START_FILES,     /* of the target: configuration, what there is of tensors */
    START_TOKENIZER, /* of the target; the draft, as far as it is known without its weights */
    START_MEMORY,    /* the plan, the pool, pinned memory */
    START_WEIGHTS,
    START_GRAPHS,
    START_WARM_UP,
    START_ROUND_TIMES, /* --k auto */
    START_PARTS
};
struct start_times {
    int64_t us[START_PARTS], last_us;
};
const struct start_times *probe_start_times(const struct engine *);
int probe_threads(const struct engine *); /* of work on the host */

/* Steps without rounds, until every sequence that has a slot, or gets one, is ready for its first, and waits for the device: who times
 * rounds from here on times no prompt. None is in a round. */
int probe_ingest(struct engine *);

/* Times one round in `every` from now on, 0: none. ERR_USAGE for an engine that was made without timing. */
int probe_set_timing(struct engine *, int every);

/* Captures both graph sets again, under this policy; counts of graphs begin anew. No sequence is open. All rows serve the dummy
 * sequence until the next round. Allocates. */
int probe_set_buckets(struct engine *, enum bucket_policy);
/* From here on all work of rounds is submitted op by op, although there are graphs; or by their replays again. */
void probe_set_eager(struct engine *, bool on);
/* Kernels that are launched from here on start early, or not; graphs are as they were captured. False: this device cannot. */
bool probe_set_early_starts(struct engine *, bool on);
/* Memory that the device has free; on the host, what other processes leave. */
int probe_free_bytes(const struct engine *, uint64_t *bytes);

/* With K_AUTO: a round takes ms [k_max + 1], by its K, in every bucket, whatever is measured. */
void probe_set_round_times(struct engine *, const float *ms);

/* From the next round on, as engine_options.simulate_alpha. */
void probe_set_simulate_alpha(struct engine *, float alpha);

/* From here on prefill goes through the row-invariant kernels of decoding, where a device has others (CUDA). */
void probe_set_row_invariant_prefill(struct engine *, bool on);

/* Submits one replay, or one sampler launch, on the rows of the last round, for timing; probe_sync waits. Their results
 * are overwritten by the next round. */
int probe_launch(struct engine *, enum probe_model, struct graph_key key); /* kinds: draft/model.h, target/target.h */
int probe_launch_draw(struct engine *, int batch); /* of the last token of a round, so that acceptance finds all */
int probe_launch_propose(struct engine *, int batch, int k); /* all that the proposer does for a round */
int probe_launch_accept(struct engine *, int batch, int k);
int probe_sync(struct engine *);
/* Tokens of a row in the draft's first pass of a round behind one of k; and is that its only one? */
int probe_first_tokens(const struct engine *, int k);
bool probe_drafts_blocks(const struct engine *);
int probe_draft_passes(const struct engine *, int k); /* of a round */
/* What was drafted for a sequence in the last round of k, -1 for what was not: drafted [k]; and, unless NULL, the draft's last logits of the
 * first row of a round [engine_info.vocab, or those of a cut head]. Host memory. Synchronises. */
int probe_read_drafts(struct engine *, const struct sequence *, int k, int32_t *drafted, float *logits);
/* Bytes that one replay must read: weights, and KV of `tokens` context a row; 0 of a draft that is no model. */
uint64_t probe_step_bytes(const struct engine *, enum probe_model, int batch, int tokens);
/* Floating-point operations of a row that attends to `tokens` positions (model_row_flops); 0 of a draft that is no model. */
uint64_t probe_row_flops(const struct engine *, enum probe_model, int tokens);
/* The target's logits of the first row of the round, or replay, that was submitted last: [engine_info.vocab] f32, host memory.
 * Synchronises; changes nothing. */
int probe_read_logits(struct engine *, float *logits);

#endif
