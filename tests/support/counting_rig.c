#include "tests/support/counting_rig.h"

struct rig rig;
struct counting models;
const struct sampling greedy = {0, 1, 0, 0, 1}, plain = {1, 1, 0, 0, 1};

void open_with(struct round_state sizes, const int32_t *end_ids, int threads) {
    models = (struct counting){sizes.vocab_target, sizes.vocab_draft, -1, true};
    rig_open(&rig, &sizes, end_ids, threads);
}

void open_default(int max_batch, int k_max) {
    open_with((struct round_state){.slots = max_batch + 1,
                                   .max_batch = max_batch,
                                   .k_max = k_max,
                                   .vocab_target = V,
                                   .vocab_draft = V,
                                   .draft_positions = 1000},
              NULL, 1);
}

const struct round_record *round_of(int batch, int k) {
    rig_draft(&rig, batch, k, counting_draft, &models);
    rig_score(&rig, batch, k, counting_target, &models);
    rig_accept(&rig, batch, k);
    return rig.b.records;
}
