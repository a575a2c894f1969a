// Kernels that read and write what the module file holds: variables, constants, tables, parameters of all sizes.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

struct Three {
    char letters[3];
};
__device__ int counter = 5;
__device__ float table[100];
__device__ int *where = &counter;
__constant__ float scale[4] = {1, 2, 3, 4};
__managed__ int managed = 11;

__global__ void use(float *out, char one, double two, Three three, short four) {
    __shared__ float fixed[64];
    extern __shared__ float asked[];
    const int t = threadIdx.x;
    fixed[t] = t * scale[t % 4];
    asked[t] = one + two + three.letters[2] + four;
    __syncthreads();
    out[t] = fixed[63 - t] + asked[t];
    table[t] = t;
    if (t == 0) {
        atomicAdd(where, 2);
        managed++;
    }
}

__global__ void outside(int *p, int n) { p[threadIdx.x + n] = 1; }

#define SHOW(call) printf("%s\n", cudaGetErrorName(call))

int main(int count, char **words) {
    float *out, back[64], scaled[4] = {10, 20, 30, 40};
    cudaMalloc(&out, sizeof back);
    if (count > 1 && !strcmp(words[1], "outside")) {
        outside<<<1, 32>>>((int *)out, atoi(words[2]));
        SHOW(cudaGetLastError());
        SHOW(cudaDeviceSynchronize());
        SHOW(cudaFree(out));
        return 0;
    }
    int value;
    cudaMemcpyFromSymbol(&value, counter, 4);
    printf("%d %d\n", value, managed);
    use<<<1, 64, 256>>>(out, 1, 2, Three{{0, 0, 3}}, 4);
    cudaMemcpy(back, out, sizeof back, cudaMemcpyDefault);
    printf("%g %g\n", back[0], back[62]);  // 63 * 4 + 10, 1 * 2 + 10
    SHOW(cudaMemcpyToSymbol(scale, scaled, sizeof scaled));
    use<<<1, 64, 256>>>(out, 1, 2, Three{{0, 0, 3}}, 4);
    cudaMemcpy(back, out, sizeof back, cudaMemcpyDefault);
    printf("%g %g\n", back[0], back[62]);
    float *at;
    cudaGetSymbolAddress((void **)&at, table);
    cudaMemcpy(back, at, 8 * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&value, counter, 4);
    printf("%d %d %g\n", value, managed, back[7]);
    size_t size;
    cudaGetSymbolSize(&size, table);
    printf("%zu\n", size);
    cudaFuncAttributes of;
    cudaFuncGetAttributes(&of, use);
    printf("%zu %d %d %d\n", of.sharedSizeBytes, of.maxThreadsPerBlock, of.numRegs > 0, of.binaryVersion);
    use<<<1, 2048>>>(out, 1, 2, Three{}, 4);
    SHOW(cudaGetLastError());
    use<<<1, 64, 50000>>>(out, 1, 2, Three{}, 4);
    SHOW(cudaGetLastError());
    SHOW(cudaFuncSetAttribute(use, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
    use<<<1, 64, 50000>>>(out, 1, 2, Three{}, 4);
    SHOW(cudaGetLastError());
    int blocks;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, use, 64, 50000);
    printf("%d\n", blocks);
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    use<<<1, 64, 256, stream>>>(out, 2, 2, Three{{0, 0, 3}}, 4);
    cudaStreamEndCapture(stream, &graph);
    SHOW(cudaGraphInstantiate(&made, graph, 0));
    SHOW(cudaGraphLaunch(made, stream));
    SHOW(cudaGraphLaunch(made, stream));
    cudaMemcpyFromSymbol(&value, counter, 4);
    printf("%d\n", value);
}
