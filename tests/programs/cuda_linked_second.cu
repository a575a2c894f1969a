// The second unit of cuda_linked.cu.
#include <cstdio>
#include <cuda_runtime.h>

__device__ int counter = 100;
__constant__ int factor = 3;
extern __device__ int offset;
extern __device__ int (*chosen)(int);

__device__ __noinline__ int scaled(int x) { return x * factor + offset; }
__device__ __noinline__ double six_thirds(double x) { return x / 3.0 * 6.0; }

__global__ void second(int *out) {
    out[0] = counter;
    out[1] = scaled(7);
    out[2] = chosen(7);
}

void run_second(int *out) {
    int values[3];
    second<<<1, 1>>>(out);
    cudaMemcpy(values, out, sizeof values, cudaMemcpyDeviceToHost);
    printf("%d %d %d\n", values[0], values[1], values[2]);
}
