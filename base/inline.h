/* Functions that host and GPU share: definitions in headers, compiled for both where the includer is CUDA. */
#ifndef DUET_BASE_INLINE_H
#define DUET_BASE_INLINE_H

#ifdef __CUDACC__
#define DUET_INLINE static __host__ __device__ __forceinline__
#else
#define DUET_INLINE static inline __attribute__((always_inline))
#endif

#endif
