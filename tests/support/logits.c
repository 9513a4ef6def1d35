#include "tests/support/logits.h"

#include "engine/internal.h"
#include "engine/probe.h"
#include "tests/support/engine_support.h"
#include "tests/support/support.h"

void compute_logits_with(enum kv_numbers kv, const char *dir, const struct ids *ids, int length, float *logits,
                         int vocab) {
    struct engine *e = must_open(
        &(struct engine_options){.target = test_checkpoint(dir), .device = test_device(), .context = 256, .kv = kv});
    struct sequence *s;
    ck_ok(engine_open(e, length, &s));
    struct generation g = {.max_tokens = 1, .sampling = {.top_p = 1}};
    ck_ok(engine_generate(e, s, ids->data, (int)ids->len, &g));
    ck_ok(probe_ingest(e));
    int32_t position = (int32_t)ids->len - 1, slot = 1;
    ck_ok(stream_copy(e->stream, e->prefill.tokens, &ids->data[position], sizeof position));
    ck_ok(stream_copy(e->stream, e->prefill.positions, &position, sizeof position));
    ck_ok(stream_copy(e->stream, e->prefill.slots, &slot, sizeof slot));
    struct rows rows = {.batch = 1,
                        .q_len = 1,
                        .tokens = e->prefill.tokens,
                        .positions = e->prefill.positions,
                        .row_slot = e->prefill.slots,
                        .page_table = e->page_table,
                        .pages_per_slot = e->pages_per_slot};
    ck_ok(model_forward(e->target_model, e->stream, &rows, LOGITS_LAST, e->state.target_logits));
    ck_ok(stream_copy(e->stream, logits, e->state.target_logits, (size_t)vocab * sizeof *logits));
    ck_ok(stream_sync(e->stream));
    engine_destroy(e);
}
