/* Maps by which the copy engine of Hopper and later finds tiles of a matrix. */
#ifndef DUET_MODEL_KERNELS_CUDA_TENSOR_MAP_H
#define DUET_MODEL_KERNELS_CUDA_TENSOR_MAP_H

#include <cuda.h>

/* Of `data` [rows, cols] in 16 bits, 16-byte aligned, cols a multiple of 8: boxes of box_rows by box_cols (at most 256
 * each), which lie in shared memory row by row; of 64 columns the 16-byte chunks are swizzled over 8 rows
 * (CU_TENSOR_MAP_SWIZZLE_128B). What lies outside is zero. No synchronisation. */
int cuda_tensor_map(CUtensorMap *map, const void *data, bool is_bf16, int64_t rows, int64_t cols, int box_cols,
                    int box_rows);

#endif
