// Stands in for the header of NVIDIA's cuBLAS, as far as llm.c's train_gpt2_fp32.cu needs it: products of single-precision
// matrices by a plain kernel, so that all that the program executes on the GPU is in its own machine code.
#pragma once

#include <cuda_runtime.h>

typedef enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15 } cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 } cublasComputeType_t;
typedef enum { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH = 3 } cublasMath_t;
typedef struct cublasContext *cublasHandle_t;

constexpr int CUBLAS_TILE = 16;

// C = alpha op(A) op(B) + beta C, all matrices by columns; a block has a tile of C, blockIdx.z is the matrix of the batch
__global__ inline void cublas_sgemm(bool transposed_a, bool transposed_b, int m, int n, int k, float alpha, const float *a,
                                    int lda, long long stride_a, const float *b, int ldb, long long stride_b, float beta,
                                    float *c, int ldc, long long stride_c) {
    __shared__ float tile_a[CUBLAS_TILE][CUBLAS_TILE + 1], tile_b[CUBLAS_TILE][CUBLAS_TILE + 1];
    a += blockIdx.z * stride_a, b += blockIdx.z * stride_b, c += blockIdx.z * stride_c;
    int x = threadIdx.x, y = threadIdx.y;
    int first_row = blockIdx.x * CUBLAS_TILE, first_column = blockIdx.y * CUBLAS_TILE;
    float sum = 0;
    for (int at = 0; at < k; at += CUBLAS_TILE) {
        // neighbouring threads read neighbouring words, whichever way a matrix lies
        int row = first_row + (transposed_a ? y : x), inner = at + (transposed_a ? x : y);
        float of_a = row < m && inner < k ? (transposed_a ? a[inner + (size_t)row * lda] : a[row + (size_t)inner * lda]) : 0;
        tile_a[inner - at][row - first_row] = of_a;
        int column = first_column + (transposed_b ? x : y);
        inner = at + (transposed_b ? y : x);
        float of_b = column < n && inner < k ? (transposed_b ? b[column + (size_t)inner * ldb] : b[inner + (size_t)column * ldb]) : 0;
        tile_b[inner - at][column - first_column] = of_b;
        __syncthreads();
        for (int each = 0; each < CUBLAS_TILE; each++) sum += tile_a[each][x] * tile_b[each][y];
        __syncthreads();
    }
    if (first_row + x < m && first_column + y < n) {
        float *to = c + first_row + x + (size_t)(first_column + y) * ldc;
        *to = beta == 0 ? alpha * sum : alpha * sum + beta * *to;
    }
}

inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,
                                                int k, const float *alpha, const float *a, int lda, long long stride_a,
                                                const float *b, int ldb, long long stride_b, const float *beta, float *c,
                                                int ldc, long long stride_c, int batch) {
    dim3 blocks((m + CUBLAS_TILE - 1) / CUBLAS_TILE, (n + CUBLAS_TILE - 1) / CUBLAS_TILE, batch);
    cublas_sgemm<<<blocks, dim3(CUBLAS_TILE, CUBLAS_TILE)>>>(of_a == CUBLAS_OP_T, of_b == CUBLAS_OP_T, m, n, k, *alpha, a, lda,
                                                            stride_a, b, ldb, stride_b, *beta, c, ldc, stride_c);
    return cudaGetLastError() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n, int k,
                                  const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,
                                  float *c, int ldc) {
    return cublasSgemmStridedBatched(handle, of_a, of_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

inline cublasStatus_t cublasCreate(cublasHandle_t *handle) {
    *handle = nullptr;  // it has no state
    return CUBLAS_STATUS_SUCCESS;
}

inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }

inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
    return mode == CUBLAS_DEFAULT_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
