/* The pickle in a file of torch.save: which tensors a model's state holds, and in which storage each lies.
 *
 * A pickle is a program that may call anything. This reader calls nothing: it knows the classes that tensors are made of by name and
 * what these make, and refuses every other one, and so every instruction that such a file has no use for. */
#ifndef DUET_MODEL_FILES_PICKLE_H
#define DUET_MODEL_FILES_PICKLE_H

#include "model/files/safetensors.h"

/* Texts lie in the pickle, without a NUL. */
struct pickle_text {
    const char *at;
    size_t length;
};

struct pickle_tensor {
    struct pickle_text name;
    const char *dtype;          /* as safetensors says it: "F32" */
    struct pickle_text storage; /* the name of the storage */
    int64_t elements, first;    /* of the storage: how many it has, and where the tensor begins */
    int dims;
    int64_t shape[TENSOR_DIMS_MAX], strides[TENSOR_DIMS_MAX]; /* strides in elements */
    bool is_dense; /* its elements lie one behind the other, the last dimension's first */
};

/* The tensors of the dictionary that the pickle [bytes] is, in its order; what else the dictionary holds is left out. *out is for
 * free(), NULL where there are none. ERR_FORMAT, ERR_UNSUPPORTED, with the byte; ERR_MEMORY. Allocates. */
int pickle_tensors(struct pickle_tensor **out, int *count, const char *pickle, size_t bytes);

#endif
