// One process whose GPUs communicate by NCCL; it checks what it gets.
#include <cstdio>
#include <cuda_runtime.h>
extern "C" {
typedef struct ncclComm *ncclComm_t;
int ncclCommInitAll(ncclComm_t *, int, const int *);
int ncclCommDestroy(ncclComm_t);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclSend(const void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclRecv(void *, size_t, int, int, ncclComm_t, cudaStream_t);
int ncclGroupStart(void);
int ncclGroupEnd(void);
}
__global__ void fill(float *x, float v) { x[threadIdx.x] = v; }
int main() {
    int n = 0, wrong = 0; cudaGetDeviceCount(&n);
    ncclComm_t comm[8]; float *x[8], *y[8], h; cudaStream_t s[8];
    wrong += ncclCommInitAll(comm, n, nullptr);
    for (int d = 0; d < n; d++) { cudaSetDevice(d); cudaStreamCreate(&s[d]); cudaMalloc(&x[d], 128); cudaMalloc(&y[d], 128); fill<<<1, 32, 0, s[d]>>>(x[d], d + 1.0f); }
    ncclGroupStart();
    for (int d = 0; d < n; d++) wrong += ncclAllReduce(x[d], y[d], 32, 7, 0, comm[d], s[d]);
    ncclGroupEnd();
    ncclGroupStart();
    for (int d = 0; d < n; d++) { wrong += ncclSend(x[d], 32, 7, (d + 1) % n, comm[d], s[d]); wrong += ncclRecv(x[d], 32, 7, (d + n - 1) % n, comm[d], s[d]); }
    wrong += ncclGroupEnd();
    for (int d = 0; d < n; d++) {
        cudaSetDevice(d); cudaStreamSynchronize(s[d]);
        cudaMemcpy(&h, y[d] + 31, 4, cudaMemcpyDeviceToHost); wrong += h != n * (n + 1) / 2;
        cudaMemcpy(&h, x[d] + 31, 4, cudaMemcpyDeviceToHost); wrong += h != (d + n - 1) % n + 1;
        ncclCommDestroy(comm[d]);
    }
    printf("%d GPUs: %s\n", n, wrong ? "FAILED" : "PASSED");
    return wrong;
}
