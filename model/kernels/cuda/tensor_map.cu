#include "model/kernels/cuda/tensor_map.h"

#include <cudaTypedefs.h>

#include "graphs/cuda.cuh"

/* The driver's function, found at run time: programs are linked with the runtime alone. */
static int find_encoder(PFN_cuTensorMapEncodeTiled_v12000 *encode) {
    void *function = NULL;
    cudaDriverEntryPointQueryResult found;
    CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    if (!function || found != cudaDriverEntryPointSuccess)
        return err_set(ERR_DEVICE, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
    *encode = (PFN_cuTensorMapEncodeTiled_v12000)function;
    return 0;
}

int cuda_tensor_map(CUtensorMap *map, const void *data, bool is_bf16, int64_t rows, int64_t cols, int box_cols,
                    int box_rows) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode;
    if (!encode) TRY(find_encoder(&encode));
    const cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, stride = (cuuint64_t)cols * 2;
    const cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    CUresult result = encode(map, is_bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
                             (void *)data, sizes, &stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             box_cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return 0;
    return err_set(ERR_INTERNAL, "a tensor map of %lld x %lld: error %d", (long long)rows, (long long)cols,
                   (int)result);
}
