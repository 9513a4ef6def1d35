/* Rows of weights as f32, whatever their format. Included by kernels.h alone. */
#include "model/format.h"

/* Numbers [first, first + count) of a row; `first` begins a block. */
static void unpack(float *out, const struct weight *w, int row, int first, int count) {
    if (dtype_is_quantised(w->format))
        format_of(w->format)->dequantise(out, w, row, first, count);
    else
        widen(out, (const unsigned char *)weight_row(w, row) + (size_t)first * (size_t)dtype_bytes(w->format),
              w->format, count);
}
