/* The table of rotary positions (Su et al. 2021), and the frequency scaling of Llama 3.1. */
#include <math.h>

#include "model/config.h"

static const double pi = 3.14159265358979323846;

/* Long wavelengths are stretched by the factor, short ones kept, those between blended linearly in frequency. */
static double scale_llama3(const struct model_config *c, double frequency) {
    double turns = c->rope_original_positions * frequency / (2 * pi); /* within the original context */
    if (turns > c->rope_high_freq) return frequency;
    if (turns < c->rope_low_freq) return frequency / c->rope_factor;
    double keep = (turns - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1 - keep) * frequency / c->rope_factor + keep * frequency;
}

static double frequency_of(const struct model_config *c, int pair) {
    double frequency = pow(c->rope_theta, -2.0 * pair / c->head_dim);
    switch (c->rope) {
    case ROPE_LINEAR:
        return frequency / c->rope_factor;
    case ROPE_LLAMA3:
        return scale_llama3(c, frequency);
    default:
        return frequency;
    }
}

void model_config_rope(const struct model_config *c, int positions, float *rope) {
    double frequency[HEAD_DIM_MAX / 2];
    int half = c->head_dim / 2;
    for (int pair = 0; pair < half; pair++) frequency[pair] = frequency_of(c, pair);
    for (int position = 0; position < positions; position++) {
        for (int pair = 0; pair < half; pair++) {
            *rope++ = (float)cos(position * frequency[pair]);
            *rope++ = (float)sin(position * frequency[pair]);
        }
    }
}
