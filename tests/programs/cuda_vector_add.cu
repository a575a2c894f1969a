// NVIDIA's sample of that name, but for its checks.
#include <cuda_runtime.h>
__global__ void vectorAdd(const float *A, const float *B, float *C, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) C[i] = A[i] + B[i] + 0.0f;
}
int main() {
    const int n = 50000;
    static float a[n], b[n], c[n];
    float *x, *y, *z;
    cudaMalloc(&x, sizeof a), cudaMalloc(&y, sizeof b), cudaMalloc(&z, sizeof c);
    cudaMemcpy(x, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(y, b, sizeof b, cudaMemcpyHostToDevice);
    vectorAdd<<<(n + 255) / 256, 256>>>(x, y, z, n);
    return cudaMemcpy(c, z, sizeof c, cudaMemcpyDeviceToHost);
}
