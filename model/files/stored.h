/* How a file stores one quantised matrix: which tensors belong together, what is refused, and the way to a struct weight that
 * kernels read. What lies in the file as a weight lies in memory is read there; the rest is repacked. */
#ifndef DUET_MODEL_FILES_STORED_H
#define DUET_MODEL_FILES_STORED_H

#include "model/files/safetensors.h"
#include "model/operands.h"
#include "model/quantisation.h"

enum stored_form {
    STORED_PLAIN,
    STORED_FP8,    /* in place */
    STORED_PACKED, /* compressed-tensors' int4: in place, but for zeros, which it packs along the rows */
    STORED_GPTQ,   /* transposed: eight inputs a word */
    STORED_AWQ,    /* transposed: eight outputs a word, in an order of their own */
    STORED_FP4,    /* in place */
    STORED_NF4,    /* in place, but for scales that are themselves quantised */
    STORED_MADE,   /* quantised at loading (model/quantise.c): all in memory */
};

/* A matrix [rows, cols], one of `stack`. `numbers` and `scales` are there; the others may be NULL. */
struct stored {
    enum stored_form form;
    enum dtype format, scale_type; /* in memory */
    enum dtype file_scale_type;
    int64_t rows, cols;
    const struct tensor *numbers, *scales, *zeros;
    const struct tensor *group_of; /* of GPTQ: [cols] */
    const struct tensor *factor;   /* of FP4: one number, times or under every scale */
    const struct tensor *values, *nested_values, *nested_scales, *state;
    int32_t scale_rows, group; /* a scale's cell */
    int64_t groups;            /* scales in a row of them; 0: one for all */
    float scale_factor, nested_offset;
    int32_t nested_group;
    bool zero_is_one_less, is_stacked;
};

/* The matrix that a model calls `name` (an unquantised file's tensor), of `stack` in one tensor (0: its own). STORED_PLAIN where no
 * tensor says otherwise: then nothing else of *out is set. Checks types and shapes; reads single numbers alone. */
int stored_find(struct stored *out, const struct safetensors *, const struct quantisation *, const char *name,
                int64_t rows, int64_t cols, int64_t stack);

/* The name of the matrix that a tensor of this name may belong to besides its numbers; false: no such name. */
bool stored_owner(const char *name, char *owner, size_t room);
/* Does the tensor belong to the matrix, as one that is read or one that says what is not needed here? Reads it where it must be zeros. */
bool stored_owns(const struct stored *, const struct tensor *);

/* Rows first, first + step, ... of the matrix `index` of a stack. */
struct stored_rows {
    int64_t index, first, step, count;
};

/* Are its numbers read in the file? */
bool stored_is_in_place(const struct stored *);
/* Bytes of what is not read in place, and of what a product reads. */
size_t stored_packed_bytes(const struct stored *, int64_t rows);
size_t stored_bytes(const struct stored *, int64_t rows);
/* Sets *w and *scales. Without `memory` what needs it points nowhere. */
void stored_place(const struct stored *, const struct stored_rows *, struct weight *w, struct scales *scales,
                  void *memory);
/* Fills `memory`; checks that all scales are finite, and that no FP8 number is NaN. */
int stored_pack(const struct stored *, const struct stored_rows *, struct weight *w, struct scales *scales,
                int threads);

#endif
