// Launches of one kernel: ``many BLOCKS LAUNCHES``. The profiler is on for the second and the third launch. Prints the
// most memory that the process held, in KiB.
#include <cstdio>
#include <cstdlib>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <sys/resource.h>

enum { SIZE = 1 << 16 };

__global__ void add(const float *a, float *b) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) % SIZE;
    for (int k = 0; k < 1 + blockIdx.x % 4; k++) b[i] += a[i];  // blocks differ
    if (threadIdx.x % 3 == 0) b[i] += 1;                            // and warps part
}

int main(int count, char **words) {
    if (count < 3) return 2;
    int blocks = atoi(words[1]), launches = atoi(words[2]);
    float *a, *b;
    cudaMalloc(&a, SIZE * sizeof(float));
    cudaMalloc(&b, SIZE * sizeof(float));
    cudaMemset(a, 0, SIZE * sizeof(float));
    cudaMemset(b, 0, SIZE * sizeof(float));
    for (int k = 0; k < launches; k++) {
        if (k == 1) cudaProfilerStart();
        add<<<blocks, 256>>>(a, b);
        if (k == 2) cudaProfilerStop();
    }
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%ld\n", used.ru_maxrss);
}
