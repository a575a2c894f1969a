// A product of two square matrices by tiles in shared memory, which checks its own result.
// Usage: matmul [rows], a multiple of 16.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

constexpr int TILE = 16;

__global__ void multiply(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int first = 0; first < n; first += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * n + first + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

int main(int count, char **words) {
    const int n = count > 1 ? atoi(words[1]) : 128;
    if (n <= 0 || n % TILE) return printf("n is a multiple of %d\n", TILE), 2;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int k = 0; k < n * n; k++) a[k] = k % 7 - 3, b[k] = k % 5 - 2;  // whole numbers: sums are exact
    const size_t bytes = sizeof(float) * n * n;
    float *da, *db, *dc;
    cudaMalloc(&da, bytes);
    cudaMalloc(&db, bytes);
    cudaMalloc(&dc, bytes);
    cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice);
    multiply<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(da, db, dc, n);
    cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost);
    if (cudaGetLastError() != cudaSuccess) return printf("the kernel failed\n"), 1;
    for (int row = 0; row < n; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
            if (c[row * n + column] != sum) return printf("wrong at %d, %d\n", row, column), 1;
        }
    printf("PASSED\n");
    return 0;
}
