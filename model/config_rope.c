/* Tables of rotary positions (Su et al. 2021), and the types of frequencies. */
#include <math.h>

#include "model/config.h"

static const double pi = 3.14159265358979323846;

/* Long wavelengths are stretched by the factor, short ones kept, those between blended linearly in frequency (Llama 3.1). */
static double scale_llama3(const struct rope_config *r, double frequency) {
    double turns = r->original_positions * frequency / (2 * pi); /* within the original context */
    if (turns > r->high_freq) return frequency;
    if (turns < r->low_freq) return frequency / r->factor;
    double keep = (turns - r->low_freq) / (r->high_freq - r->low_freq);
    return (1 - keep) * frequency / r->factor + keep * frequency;
}

/* The pair, as a fraction, that turns so often within the original context. */
static double yarn_pair(const struct rope_config *r, double turns) {
    return r->dims * log(r->original_positions / (turns * 2 * pi)) / (2 * log(r->theta));
}

/* Peng et al. 2023: fast pairs keep their frequency, slow ones are stretched, with a ramp over the pairs between. */
static double scale_yarn(const struct rope_config *r, double frequency, int pair) {
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, r->dims - 1);
    if (low == high) high += 0.001;
    double stretch = fmin(fmax((pair - low) / (high - low), 0), 1);
    return stretch * frequency / r->factor + (1 - stretch) * frequency;
}

/* The base grows with the length of the sequence (the "NTK-aware" scaling of transformers' dynamic type). */
static double base_of(const struct rope_config *r, int length) {
    if (r->type != ROPE_DYNAMIC || !rope_is_long(r, length) || r->dims <= 2) return r->theta;
    double stretch = r->factor * length / r->original_positions - (r->factor - 1);
    return r->theta * pow(stretch, r->dims / (r->dims - 2.0));
}

static double frequency_of(const struct rope_config *r, int pair, int length) {
    const int spread = r->type == ROPE_PROPORTIONAL ? r->head_dim : r->dims;
    double frequency = pow(base_of(r, length), -2.0 * pair / spread);
    switch (r->type) {
    case ROPE_LINEAR:
        return frequency / r->factor;
    case ROPE_LLAMA3:
        return scale_llama3(r, frequency);
    case ROPE_YARN:
        return scale_yarn(r, frequency, pair);
    case ROPE_LONGROPE:
        return frequency / (double)(rope_is_long(r, length) ? r->long_factor : r->short_factor)[pair];
    case ROPE_FACTORS:
        return frequency / (double)r->short_factor[pair];
    default:
        return frequency;
    }
}

bool rope_has_long(const struct rope_config *r) {
    return r->type == ROPE_DYNAMIC || r->type == ROPE_LONGROPE;
}

bool rope_is_long(const struct rope_config *r, int length) {
    return rope_has_long(r) && length > r->original_positions;
}

void model_config_rope(const struct rope_config *r, int positions, int length, float *table) {
    double frequency[HEAD_DIM_MAX / 2];
    const int turning = r->dims / 2;
    for (int pair = 0; pair < turning; pair++) frequency[pair] = frequency_of(r, pair, length);
    for (int position = 0; position < positions; position++) {
        for (int pair = 0; pair < r->head_dim / 2; pair++) {
            bool turns = pair < turning;
            *table++ = turns ? (float)(cos(position * frequency[pair]) * r->attention_factor) : 1;
            *table++ = turns ? (float)(sin(position * frequency[pair]) * r->attention_factor) : 0;
        }
    }
}

void model_config_query_rope(const struct rope_config *r, int positions, float *table) {
    model_config_rope(r, positions, positions, table);
    for (int position = r->original_positions; position < positions; position++) {
        const double scale = 1 + r->query_beta * log(1 + position / r->original_positions);
        float *row = table + (size_t)position * (size_t)r->head_dim;
        for (int i = 0; i < r->head_dim; i++) row[i] = (float)(row[i] * scale);
    }
}
