// Stands in for the header of NVIDIA's cuBLASLt, as far as llm.c's train_gpt2.cu needs it with bfloat16: products by
// tensor cores (WMMA), summed in single precision, with a bias; what else it may ask for is refused.
#pragma once

#include <cstdint>
#include <cstring>
#include <cuda_bf16.h>
#include <library_types.h>
#include <mma.h>

#include "cublas_v2.h"

typedef cudaDataType cublasDataType_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef enum { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4, CUBLASLT_EPILOGUE_GELU_AUX = 160,
               CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164, CUBLASLT_EPILOGUE_DGELU = 192, CUBLASLT_EPILOGUE_BGRADB = 512 } cublasLtEpilogue_t;
typedef enum { CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1, CUBLASLT_MATMUL_DESC_TRANSA = 3, CUBLASLT_MATMUL_DESC_TRANSB = 4,
               CUBLASLT_MATMUL_DESC_EPILOGUE = 7, CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
               CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26 } cublasLtMatmulDescAttributes_t;
typedef enum { CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6 } cublasLtMatrixLayoutAttribute_t;
typedef enum { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 } cublasLtMatmulPreferenceAttributes_t;

struct cublasLtProduct {
    cublasOperation_t of_a = CUBLAS_OP_N, of_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const __nv_bfloat16 *bias = nullptr;
    bool refused = false;
};
struct cublasLtMatrix {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t leading;
    int batch = 1;
    int64_t stride = 0;
};
typedef cublasLtProduct *cublasLtMatmulDesc_t;
typedef cublasLtMatrix *cublasLtMatrixLayout_t;
typedef int *cublasLtMatmulPreference_t;
typedef struct { int unused; } cublasLtMatmulAlgo_t;
typedef struct { cublasLtMatmulAlgo_t algo; } cublasLtMatmulHeuristicResult_t;

constexpr int CUBLASLT_TILE = 16, CUBLASLT_WARPS = 4;

// A warp has a tile of D, blockIdx.z is the matrix of the batch; all matrices lie by columns
template <typename LayoutA, typename LayoutB>
__global__ void cublaslt_wmma(int m, int n, int k, const __nv_bfloat16 *a, int lda, int64_t stride_a, const __nv_bfloat16 *b,
                              int ldb, int64_t stride_b, const __nv_bfloat16 *bias, float beta, __nv_bfloat16 *d, int ldd,
                              int64_t stride_d) {
    using namespace nvcuda;
    constexpr bool rows_a = std::is_same<LayoutA, wmma::row_major>::value, rows_b = std::is_same<LayoutB, wmma::row_major>::value;
    __shared__ float tiles[CUBLASLT_WARPS][CUBLASLT_TILE * CUBLASLT_TILE];
    int warp = threadIdx.x / 32, row = blockIdx.x * CUBLASLT_TILE;
    int column = (blockIdx.y * CUBLASLT_WARPS + warp) * CUBLASLT_TILE;
    if (column >= n) return;
    a += blockIdx.z * stride_a, b += blockIdx.z * stride_b, d += blockIdx.z * stride_d;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA> of_a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB> of_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int at = 0; at < k; at += CUBLASLT_TILE) {
        wmma::load_matrix_sync(of_a, a + (rows_a ? at + (int64_t)row * lda : row + (int64_t)at * lda), lda);
        wmma::load_matrix_sync(of_b, b + (rows_b ? column + (int64_t)at * ldb : at + (int64_t)column * ldb), ldb);
        wmma::mma_sync(sum, of_a, of_b, sum);
    }
    wmma::store_matrix_sync(tiles[warp], sum, CUBLASLT_TILE, wmma::mem_col_major);
    __syncwarp();
    for (int each = threadIdx.x % 32; each < CUBLASLT_TILE * CUBLASLT_TILE; each += 32) {
        int i = row + each % CUBLASLT_TILE, j = column + each / CUBLASLT_TILE;
        __nv_bfloat16 *to = d + i + (int64_t)j * ldd;
        float value = tiles[warp][each];
        if (beta != 0) value += beta * __bfloat162float(*to);
        if (bias != nullptr) value += __bfloat162float(bias[i]);
        *to = __float2bfloat16(value);
    }
}

inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t of_a, const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t of_d,
                                     const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t stream) {
    using namespace nvcuda::wmma;
    bool transposed_a = product->of_a == CUBLAS_OP_T, transposed_b = product->of_b == CUBLAS_OP_T;
    int m = of_d->rows, n = of_d->columns, k = transposed_a ? of_a->rows : of_a->columns;
    bool of_bias = product->epilogue == CUBLASLT_EPILOGUE_BIAS;
    for (cublasLtMatrixLayout_t each : {of_a, of_b, of_d})
        if (each->type != CUDA_R_16BF || each->batch != of_d->batch) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (product->refused || m % 16 || n % 16 || k % 16 || c != d || *(const float *)alpha != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT && !of_bias) return CUBLAS_STATUS_NOT_SUPPORTED;
    auto kernel = transposed_a ? (transposed_b ? cublaslt_wmma<row_major, row_major> : cublaslt_wmma<row_major, col_major>)
                               : (transposed_b ? cublaslt_wmma<col_major, row_major> : cublaslt_wmma<col_major, col_major>);
    dim3 blocks(m / CUBLASLT_TILE, (n / CUBLASLT_TILE + CUBLASLT_WARPS - 1) / CUBLASLT_WARPS, of_d->batch);
    kernel<<<blocks, CUBLASLT_WARPS * 32, 0, stream>>>(
        m, n, k, (const __nv_bfloat16 *)a, of_a->leading, of_a->stride, (const __nv_bfloat16 *)b, of_b->leading, of_b->stride,
        of_bias ? product->bias : nullptr, *(const float *)beta, (__nv_bfloat16 *)d, of_d->leading, of_d->stride);
    return cudaGetLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType scale) {
    *made = new cublasLtProduct;
    (*made)->refused = compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                                                     const void *value, size_t bytes) {
    cudaDataType type;
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: memcpy(&product->of_a, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_TRANSB: memcpy(&product->of_b, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: memcpy(&product->epilogue, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&product->bias, value, bytes); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        memcpy(&type, value, bytes);
        product->refused |= type != CUDA_R_16BF;
        break;
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        memcpy(&type, value, bytes);
        product->refused |= type != CUDA_R_32F;
        break;
    default: product->refused = true;
    }
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows,
                                                 uint64_t columns, int64_t leading) {
    *made = new cublasLtMatrix{type, rows, columns, leading};
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix, cublasLtMatrixLayoutAttribute_t name,
                                                       const void *value, size_t bytes) {
    bool of_batch = name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
    if (bytes != (of_batch ? sizeof matrix->batch : sizeof matrix->stride)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(of_batch ? (void *)&matrix->batch : &matrix->stride, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *,
                                                     int *found) {
    *found = 1;  // the only kernel
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    *made = nullptr;  // it needs no memory
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                           const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }

inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
    delete matrix;
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    *handle = nullptr;  // it has no state
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
