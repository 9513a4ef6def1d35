#include "tests/support/mini.h"

#include <math.h>
#include <string.h>

#include "tests/support/support.h"

/* Widths that are no multiple of 8 and widths that are; heads of 8 to 512 dimensions. */
const struct mini_shape mini_families[] = {
    {.name = "llama", .width = 64, .hidden = 96, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 67},
    {.name = "qwen2, long rope for some",
     .width = 50,
     .hidden = 83,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 24,
     .vocab = 67,
     .window = 300,
     .has_bias = true,
     .has_rope_choice = true},
    {.name = "qwen3",
     .width = 48,
     .hidden = 128,
     .heads = 2,
     .kv_heads = 1,
     .head_dim = 128,
     .vocab = 130,
     .has_qk_norm = true},
    {.name = "hunyuan",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .vocab = 67,
     .has_qk_norm = true,
     .norms_behind_rope = true},
    {.name = "olmo2",
     .width = 72,
     .hidden = 64,
     .heads = 3,
     .kv_heads = 3,
     .head_dim = 24,
     .vocab = 67,
     .has_qk_norm = true,
     .norms = NORMS_BEHIND,
     .norms_all_heads = true},
    {.name = "granite",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .vocab = 67,
     .embedding_scale = 12,
     .attention_scale = 0.015625f,
     .residual_scale = 0.22f,
     .logits_scale = 0.125f},
    {.name = "glm4",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .vocab = 67,
     .has_bias = true,
     .norms = NORMS_AROUND,
     .rope_dims = 16,
     .pairs_neighbours = true},
    {.name = "ministral3",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .vocab = 67,
     .has_query_rope = true},
    {.name = "phi3",
     .width = 96,
     .hidden = 64,
     .heads = 3,
     .kv_heads = 1,
     .head_dim = 48,
     .vocab = 67,
     .window = 16,
     .rope_dims = 36},
    {.name = "gemma2",
     .width = 80,
     .hidden = 104,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 256,
     .vocab = 67,
     .window = 300,
     .norms = NORMS_AROUND,
     .norm_offset = 1,
     .attention_scale = 0.0625f,
     .attention_cap = 5,
     .embedding_scale = 9,
     .logits_cap = 3,
     .activation = ACTIVATION_GELU},
    {.name = "gemma3",
     .width = 80,
     .hidden = 104,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .vocab = 67,
     .window = 16,
     .has_qk_norm = true,
     .norms = NORMS_AROUND,
     .norm_offset = 1,
     .activation = ACTIVATION_GELU},
    {.name = "gemma4, layers that slide",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 1,
     .head_dim = 256,
     .vocab = 67,
     .window = 300,
     .has_qk_norm = true,
     .norms = NORMS_AROUND,
     .has_v_norm = true,
     .attention_scale = 0.125f,
     .has_layer_scale = true,
     .activation = ACTIVATION_GELU,
     .layer_inputs = 40,
     .experts = 9,
     .chosen = 3,
     .experts_beside = true,
     .has_expert_scale = true,
     .scores = SCORES_OF_ALL,
     .renormalises = true},
    {.name = "gemma4, full layers",
     .width = 64,
     .hidden = 96,
     .heads = 8,
     .kv_heads = 1,
     .head_dim = 512,
     .vocab = 67,
     .has_qk_norm = true,
     .norms = NORMS_AROUND,
     .has_v_norm = true,
     .rope_dims = 128,
     .lacks_v = true,
     .attention_scale = 0.0625f,
     .activation = ACTIVATION_GELU},
    {.name = "gemma4, layers that share keys",
     .width = 64,
     .hidden = 96,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 64,
     .vocab = 67,
     .has_qk_norm = true,
     .norms = NORMS_AROUND,
     .lacks_k = true,
     .lacks_v = true,
     .lacks_norm_weights = true,
     .activation = ACTIVATION_GELU,
     .layer_inputs = 33},
    {.name = "gpt_oss",
     .width = 72,
     .hidden = 88,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 64,
     .vocab = 67,
     .window = 128,
     .has_bias = true,
     .has_sinks = true,
     .has_output_bias = true,
     .activation = ACTIVATION_CLAMPED,
     .experts = 32,
     .chosen = 4,
     .has_expert_bias = true},
    {.name = "mixtral",
     .width = 64,
     .hidden = 75,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .vocab = 67,
     .experts = 8,
     .chosen = 2},
    {.name = "qwen3 with experts",
     .width = 520,
     .hidden = 24,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .vocab = 67,
     .has_qk_norm = true,
     .experts = 40,
     .chosen = 8,
     .scores = SCORES_OF_ALL,
     .renormalises = true},
    {.name = "nemotron_h",
     .width = 72,
     .hidden = 97,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .vocab = 67,
     .lacks_rope = true,
     .activation = ACTIVATION_RELU2,
     .lacks_up = true},
    {.name = "starcoder2",
     .width = 96,
     .hidden = 160,
     .heads = 6,
     .kv_heads = 2,
     .head_dim = 16,
     .vocab = 71,
     .has_bias = true,
     .has_output_bias = true,
     .centres = true,
     .has_norm_bias = true,
     .activation = ACTIVATION_GELU,
     .lacks_up = true,
     .has_mlp_bias = true},
    {.name = "cohere",
     .width = 64,
     .hidden = 112,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 16,
     .vocab = 83,
     .centres = true,
     .pairs_neighbours = true,
     .logits_scale = 0.25f},
    {.name = "nemotron_h with experts",
     .width = 72,
     .hidden = 40,
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 32,
     .vocab = 67,
     .lacks_rope = true,
     .activation = ACTIVATION_RELU2,
     .lacks_up = true,
     .experts = 40,
     .chosen = 6,
     .has_choice_bias = true,
     .scores = SCORES_SIGMOID,
     .renormalises = true},
};
const int mini_family_count = sizeof mini_families / sizeof *mini_families;

/* --- shapes by chance ------------------------------------------------------------------------------------- */

static bool by_chance(struct lab *lab) {
    return lab_pick(lab, 0, 3) == 0;
}

void mini_add_features(struct lab *lab, struct mini_shape *s) {
    static const float scales[] = {0, 1, 0.25f, -2};
    s->norms = (enum mini_norms)lab_pick(lab, 0, 3);
    s->norm_offset = by_chance(lab) ? 1 : 0;
    s->lacks_norm_weights = by_chance(lab);
    s->centres = by_chance(lab), s->has_norm_bias = s->centres && by_chance(lab);
    s->norms_all_heads = by_chance(lab), s->has_v_norm = by_chance(lab);
    s->pairs_neighbours = by_chance(lab), s->has_rope_choice = by_chance(lab), s->lacks_rope = by_chance(lab);
    s->has_query_rope = by_chance(lab), s->norms_behind_rope = by_chance(lab);
    if (by_chance(lab)) s->rope_dims = 2 * lab_pick(lab, 1, s->head_dim / 2 + 1);
    s->lacks_k = by_chance(lab), s->lacks_v = s->lacks_k || (by_chance(lab) && !s->norms_all_heads);
    if (by_chance(lab)) s->attention_scale = 0.2f;
    if (by_chance(lab)) s->attention_cap = 1.5f;
    s->has_sinks = by_chance(lab), s->has_output_bias = by_chance(lab), s->has_head_bias = by_chance(lab);
    s->has_layer_scale = by_chance(lab);
    s->embedding_scale = scales[lab_pick(lab, 0, 4)], s->residual_scale = scales[lab_pick(lab, 0, 4)];
    s->logits_scale = scales[lab_pick(lab, 0, 4)];
    if (by_chance(lab)) s->logits_cap = 1.25f;
    s->activation = (enum activation)lab_pick(lab, 0, ACTIVATION_RELU2 + 1);
    s->layer_inputs = lab_pick(lab, 1, 50);
    s->experts = lab_pick(lab, 1, 12), s->chosen = lab_pick(lab, 1, s->experts + 1);
    s->has_expert_bias = by_chance(lab), s->has_expert_scale = by_chance(lab);
    s->scores = (enum router_scores)lab_pick(lab, 0, 3), s->renormalises = by_chance(lab);
    s->has_choice_bias = s->scores != SCORES_OF_CHOSEN && by_chance(lab);
    s->experts_beside = by_chance(lab);
    s->lacks_up = by_chance(lab) && !s->has_expert_bias, s->has_mlp_bias = s->lacks_up && by_chance(lab);
}

static const float eps = 1e-5f;

/* --- weights ---------------------------------------------------------------------------------------------- */

static struct norm make_norm(struct lab *lab, const struct mini_shape *s, bool is_there, bool has_weight, int cols) {
    if (!is_there) return (struct norm){0};
    struct norm norm = {.kind = NORM_RMS, .offset = s->norm_offset, .eps = eps};
    norm.weight = lab_weight(lab, has_weight, cols, s->type, s->norm_offset != 0 ? 0.5f : 1);
    return norm;
}

/* Of rows that products read. */
static struct norm make_row_norm(struct lab *lab, const struct mini_shape *s, bool is_there, bool has_weight) {
    struct norm norm = make_norm(lab, s, is_there, has_weight, s->width);
    if (!is_there || !s->centres) return norm;
    norm.kind = NORM_LAYER;
    norm.bias = lab_weight(lab, s->has_norm_bias, s->width, s->type, 0.5f);
    return norm;
}

static void make_norms(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const bool before = s->norms != NORMS_BEHIND, behind = s->norms != NORMS_BEFORE, weighs = !s->lacks_norm_weights;
    const int heads = s->norms_all_heads ? s->heads : 1, kv_heads = s->norms_all_heads ? s->kv_heads : 1;
    struct norm *const first[] = {&m->norm, &m->mlp_norm, &m->router_norm};
    struct norm *const second[] = {&m->post_attn_norm, &m->post_mlp_norm, &m->post_dense_norm, &m->post_expert_norm,
                                   &m->post_input_norm};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) *first[i] = make_row_norm(lab, s, before, weighs);
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        *second[i] = make_norm(lab, s, behind, weighs, s->width);
    m->head_norm = make_row_norm(lab, s, true, true);
    m->input_norm = make_norm(lab, s, s->layer_inputs > 0, true, s->layer_inputs);
    m->q_norm = make_norm(lab, s, s->has_qk_norm, true, heads * s->head_dim);
    m->k_norm = make_norm(lab, s, s->has_qk_norm && !s->lacks_k, true, kv_heads * s->head_dim);
    m->v_norm = make_norm(lab, s, s->has_v_norm, false, s->head_dim);
}

/* Matrices of all experts, the rows of 16 bytes that a device reads, and NaN between them. */
static void make_experts(struct lab *lab, struct mini_experts *e, const struct mini_shape *s, int rows, int cols,
                         float scale) {
    const size_t bytes = (size_t)dtype_bytes(s->type), apart = ((size_t)rows * (size_t)cols + 15) / 8 * 8;
    e->bytes = (size_t)s->experts * apart * bytes;
    e->block = lab_alloc(lab, e->bytes);
    e->each = lab_alloc(lab, (size_t)s->experts * sizeof *e->each);
    struct weight all = lab_weight(lab, s->experts * rows, cols, s->type, scale);
    for (int i = 0; i < s->experts; i++) {
        char *place = (char *)e->block + (size_t)i * apart * bytes;
        memcpy(place, weight_row(&all, i * rows), (size_t)rows * (size_t)cols * bytes);
        e->each[i] = (struct weight){.data = place, .format = s->type, .rows = rows, .cols = cols};
    }
    e->experts = (struct experts){e->each, (int64_t)apart};
}

static void make_all_experts(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const float in = 1.7f / sqrtf((float)s->width);
    m->router = lab_weight(lab, s->experts, s->width, s->type, 2 * in);
    m->router_bias = lab_weight(lab, s->has_expert_bias, s->experts, s->type, 1);
    m->expert_scale = lab_weight(lab, s->has_expert_scale, s->experts, s->type, 1);
    m->choice_bias = lab_weight(lab, s->has_choice_bias, s->experts, s->type, 1);
    make_experts(lab, &m->expert_gate, s, s->hidden, s->width, 2 * in);
    if (!s->lacks_up) make_experts(lab, &m->expert_up, s, s->hidden, s->width, in);
    make_experts(lab, &m->expert_down, s, s->width, s->hidden, 1.7f / sqrtf((float)s->hidden));
    if (!s->has_expert_bias) return;
    make_experts(lab, &m->expert_gate_bias, s, 1, s->hidden, 1);
    make_experts(lab, &m->expert_up_bias, s, 1, s->hidden, 1);
    make_experts(lab, &m->expert_down_bias, s, 1, s->width, 1);
}

static void make_weights(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const enum dtype type = s->type;
    const int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, p = s->layer_inputs;
    const int k_rows = s->lacks_k ? 0 : kv, v_rows = s->lacks_k || s->lacks_v ? 0 : kv;
    const float in = 1.7f / sqrtf((float)s->width), from_hidden = 1.7f / sqrtf((float)s->hidden);
    m->embedding = lab_weight(lab, s->vocab, s->width, type, s->embedding_scale != 0 ? 1 / s->embedding_scale : 1);
    m->wq = lab_weight(lab, q, s->width, type, in);
    m->wk = lab_weight(lab, k_rows, s->width, type, in), m->wv = lab_weight(lab, v_rows, s->width, type, in);
    m->bq = lab_weight(lab, s->has_bias, q, type, 1);
    m->bk = lab_weight(lab, s->has_bias && k_rows, kv, type, 1);
    m->bv = lab_weight(lab, s->has_bias && v_rows, kv, type, 1);
    m->wo = lab_weight(lab, s->width, q, type, 1.7f / sqrtf((float)q));
    m->bo = lab_weight(lab, s->has_output_bias, s->width, type, 1);
    m->sinks = lab_weight(lab, s->has_sinks, s->heads, type, 2);
    m->gate = lab_weight(lab, s->hidden, s->width, type, 2 * in);
    m->up = lab_weight(lab, s->lacks_up ? 0 : s->hidden, s->width, type, in);
    m->gate_bias = lab_weight(lab, s->has_mlp_bias, s->hidden, type, 1);
    m->down_bias = lab_weight(lab, s->has_mlp_bias, s->width, type, 1);
    m->down = lab_weight(lab, s->width, s->hidden, type, from_hidden);
    m->head = lab_weight(lab, s->vocab, s->width, type, in);
    m->head_bias = lab_weight(lab, s->has_head_bias, s->vocab, type, 1);
    m->layer_scale = lab_weight(lab, s->has_layer_scale, 1, type, 1);
    if (p > 0) {
        m->layer_embedding = lab_weight(lab, s->vocab, 2 * p, type, 1);
        m->layer_projection = lab_weight(lab, 2 * p, s->width, type, in);
        m->input_gate = lab_weight(lab, p, s->width, type, in);
        m->input_projection = lab_weight(lab, s->width, p, type, 1.7f / sqrtf((float)p));
    }
    make_norms(lab, m);
    if (s->experts > 0) make_all_experts(lab, m);
}

int mini_weights(struct mini *m, struct weight *out[MINI_WEIGHTS_MAX]) {
    struct weight *const all[] = {
        &m->embedding,
        &m->wq,
        &m->wk,
        &m->wv,
        &m->bq,
        &m->bk,
        &m->bv,
        &m->wo,
        &m->bo,
        &m->sinks,
        &m->gate,
        &m->up,
        &m->down,
        &m->gate_bias,
        &m->down_bias,
        &m->head,
        &m->head_bias,
        &m->layer_embedding,
        &m->layer_projection,
        &m->input_gate,
        &m->input_projection,
        &m->layer_scale,
        &m->router,
        &m->router_bias,
        &m->expert_scale,
        &m->choice_bias,
        &m->norm.weight,
        &m->norm.bias,
        &m->mlp_norm.bias,
        &m->head_norm.bias,
        &m->router_norm.bias,
        &m->q_norm.weight,
        &m->k_norm.weight,
        &m->v_norm.weight,
        &m->post_attn_norm.weight,
        &m->mlp_norm.weight,
        &m->post_mlp_norm.weight,
        &m->head_norm.weight,
        &m->input_norm.weight,
        &m->post_input_norm.weight,
        &m->router_norm.weight,
        &m->post_dense_norm.weight,
        &m->post_expert_norm.weight,
    };
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->data) out[count++] = all[i];
    return count;
}

int mini_experts(struct mini *m, struct mini_experts *out[MINI_EXPERTS_MAX]) {
    struct mini_experts *const all[] = {&m->expert_gate,      &m->expert_up,      &m->expert_down,
                                        &m->expert_gate_bias, &m->expert_up_bias, &m->expert_down_bias};
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->each) out[count++] = all[i];
    return count;
}

/* --- pages, rope, buffers --------------------------------------------------------------------------------- */

/* Every slot's pages, in random order; page 0 and the table's row 0 belong to padding. */
static void make_pages(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const int entries = s->slots * s->pages_per_slot;
    m->pages = entries - s->pages_per_slot + 1;
    m->page_table = lab_alloc(lab, (size_t)entries * sizeof(int32_t));
    for (int i = 0; i < entries; i++) m->page_table[i] = i < s->pages_per_slot ? 0 : i - s->pages_per_slot + 1;
    for (int i = s->pages_per_slot; i < entries; i++) {
        int other = lab_pick(lab, i, entries);
        int32_t page = m->page_table[i];
        m->page_table[i] = m->page_table[other], m->page_table[other] = page;
    }
    m->kv_floats = (size_t)m->pages * (size_t)s->kv_heads * KV_PAGE * (size_t)s->head_dim;
    m->kv.k = lab_alloc(lab, m->kv_floats * sizeof(float));
    m->kv.v = lab_alloc(lab, m->kv_floats * sizeof(float));
}

/* Pairs past the rotated dims stand still. A second table, of other frequencies, for every other slot where there is a choice,
 * or for queries. */
static void make_rope(struct lab *lab, struct mini *m) {
    const struct mini_shape *s = &m->shape;
    const int positions = s->pages_per_slot * KV_PAGE, tables = s->has_rope_choice || s->has_query_rope ? 2 : 1,
              dims = s->rope_dims > 0 ? s->rope_dims : s->head_dim;
    if (s->lacks_rope) return;
    m->rope = lab_alloc(lab, (size_t)tables * (size_t)positions * (size_t)s->head_dim * sizeof(float));
    for (int p = 0; p < tables * positions; p++)
        for (int i = 0; i < s->head_dim / 2; i++) {
            double frequency = 2 * i < dims ? pow(p < positions ? 10000 : 500, -2.0 * i / dims) : 0;
            float *pair = m->rope + ((size_t)p * (size_t)s->head_dim + 2 * (size_t)i);
            pair[0] = (float)cos(p % positions * frequency), pair[1] = (float)sin(p % positions * frequency);
        }
    if (!s->has_rope_choice) return;
    m->rope_choice = lab_alloc(lab, (size_t)s->slots * sizeof(int32_t));
    for (int slot = 0; slot < s->slots; slot++) m->rope_choice[slot] = slot % 2 * 0x01010101;
}

static void *from_lab(void *lab, size_t bytes) {
    return lab_alloc(lab, bytes);
}

void mini_make_buffers(struct mini *m, void *(*allocate)(void *, size_t), void *from) {
    const struct mini_shape *s = &m->shape;
    const size_t t = (size_t)(s->max_rows > SCRATCH_ROWS ? s->max_rows : SCRATCH_ROWS), f = sizeof(float),
                 width = (size_t)s->width, p = (size_t)s->layer_inputs;
    const size_t q = (size_t)s->heads * (size_t)s->head_dim, kv = (size_t)s->kv_heads * (size_t)s->head_dim;
    const size_t experts = (size_t)s->experts, entries = t * (size_t)s->chosen;
    m->tokens = allocate(from, t * sizeof(int32_t)), m->positions = allocate(from, t * sizeof(int32_t));
    m->row_slot = allocate(from, t * sizeof(int32_t));
    m->x = allocate(from, t * width * f), m->normed = allocate(from, t * width * f);
    m->output = allocate(from, t * width * f), m->dense = allocate(from, t * width * f);
    m->q = allocate(from, t * q * f), m->attended = allocate(from, t * q * f);
    m->kv_rows = allocate(from, t * 2 * kv * f);
    m->h = allocate(from, t * ((size_t)s->hidden + p) * f), m->logits = allocate(from, t * (size_t)s->vocab * f);
    if (p > 0) m->inputs = allocate(from, t * 2 * p * f), m->projected = allocate(from, t * 2 * p * f);
    if (experts == 0) return;
    m->router_logits = allocate(from, t * experts * f), m->expert_weights = allocate(from, entries * f);
    m->expert_ids = allocate(from, entries * sizeof(int32_t));
    m->expert_lists = allocate(from, EXPERT_LISTS(experts, entries) * sizeof(int32_t));
    m->expert_h = allocate(from, entries * (size_t)s->hidden * f);
    m->expert_sums = allocate(from, entries * width * f);
}

void mini_make(struct lab *lab, struct mini *m, struct mini_shape s) {
    *m = (struct mini){.shape = s};
    make_weights(lab, m);
    make_pages(lab, m);
    make_rope(lab, m);
    mini_make_buffers(m, from_lab, lab);
}

struct rows mini_rows(const struct mini *m, int batch, int q_len) {
    return (struct rows){.batch = batch,
                         .q_len = q_len,
                         .tokens = m->tokens,
                         .positions = m->positions,
                         .row_slot = m->row_slot,
                         .page_table = m->page_table,
                         .pages_per_slot = m->shape.pages_per_slot};
}

size_t mini_cell(const struct mini *m, int slot, int position, int head) {
    const struct mini_shape *s = &m->shape;
    size_t page = (size_t)m->page_table[slot * s->pages_per_slot + position / KV_PAGE];
    return ((page * (size_t)s->kv_heads + (size_t)head) * KV_PAGE + (size_t)(position % KV_PAGE)) * (size_t)s->head_dim;
}
