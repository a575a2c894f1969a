// Two GPUs: memory of each other, variables of each, managed ones of both, streams of each.
#include <cstdio>
#include <cuda_runtime.h>

__device__ int own = 1;
__constant__ int factor;
__managed__ int both = 7;

__global__ void add(int *out, const int *peer) { out[threadIdx.x] = factor * peer[threadIdx.x] + own; }
__global__ void count(int by) {
    own += by;
    both += by;
}

int main(int words, char **) {
    int *memory[2], values[32], factors[2] = {10, 100};
    cudaStream_t streams[2];
    for (int k = 0; k < 32; k++) values[k] = k;
    for (int device = 0; device < 2; device++) {
        cudaSetDevice(device);
        cudaStreamCreate(&streams[device]);
        cudaMalloc(&memory[device], sizeof values);
        cudaMemcpy(memory[device], values, sizeof values, cudaMemcpyHostToDevice);
        cudaMemcpyToSymbol(factor, &factors[device], sizeof(int));
        count<<<1, 1>>>(device + 1);
    }
    add<<<1, 32, 0, streams[0]>>>(memory[1], memory[1]);  // a stream of the other device
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
    for (int device = 0; device < 2; device++) {
        cudaSetDevice(device);
        if (words == 1) cudaDeviceEnablePeerAccess(1 - device, 0);
        int *out;
        cudaMalloc(&out, sizeof values);
        add<<<1, 32, 0, streams[device]>>>(out, memory[1 - device]);
        printf("%s ", cudaGetErrorName(cudaDeviceSynchronize()));
        cudaMemcpy(values, out, sizeof values, cudaMemcpyDeviceToHost);
        printf("%d %d\n", values[0], values[31]);
    }
    int first, second;
    cudaMemcpyFromSymbol(&second, own, sizeof(int));
    cudaSetDevice(0);
    cudaMemcpyFromSymbol(&first, own, sizeof(int));
    printf("%d %d %d\n", first, second, both);
}
