// Blocks that need each other: cooperative launches, a block that waits for a later one, clusters. Prints how many results
// are wrong, and the names of errors.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>

namespace cg = cooperative_groups;
enum { BLOCKS = 20, THREADS = 96 };

__global__ void sums(int *of_thread, int *of_block) {
    auto grid = cg::this_grid();
    of_thread[grid.thread_rank()] = (int)grid.thread_rank();
    grid.sync();
    int sum = 0;
    for (int i = threadIdx.x; i < grid.size(); i += blockDim.x) sum += of_thread[i];
    atomicAdd(&of_block[blockIdx.x], sum);
    grid.sync();
    of_thread[grid.thread_rank()] = of_block[(blockIdx.x + 1) % gridDim.x];
}

// All wait for the last block, which leaves its number behind the others' results.
__global__ void wait_for_last(volatile int *flag, int *out) {
    if (threadIdx.x == 0) {
        if (blockIdx.x == gridDim.x - 1) {
            out[1024] = blockIdx.x;
            __threadfence();
            *flag = 1;
        } else {
            while (*flag == 0) {}
        }
        __threadfence();
        out[blockIdx.x * 8] = *(volatile int *)&out[1024] + blockIdx.x;
    }
}

// Numbers of blocks by a counter; each waits for the one before (a scan that looks back).
__global__ void look_back(int *counter, volatile int *prefix, int *out) {
    __shared__ int number;
    if (threadIdx.x == 0) {
        number = gridDim.x - 1 - atomicAdd(counter, 1);
        int before = 0;
        if (number > 0)
            while ((before = prefix[number - 1]) == 0) {}
        prefix[number] = before + number + 1;
        out[number] = before + number + 1;
    }
}

__global__ void never(volatile int *flag) {
    while (*flag != 5) {}
}

__global__ void takes_turns(int *lock, int *sum) {  // lanes of a warp, each with the lock once
    bool is_done = false;
    while (!is_done)
        if (atomicCAS(lock, 0, 1) == 0) {
            *(volatile int *)sum = *(volatile int *)sum + 1;
            __threadfence();
            atomicExch(lock, 0);
            is_done = true;
        }
}

#ifdef CLUSTERS
__global__ void __cluster_dims__(4, 1, 1) ring(int *out) {
    __shared__ int own[64];
    auto cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank();
    own[threadIdx.x] = rank * 100 + threadIdx.x;
    cluster.sync();
    int *next = cluster.map_shared_rank(own, (rank + 1) % cluster.num_blocks());
    out[blockIdx.x * blockDim.x + threadIdx.x] = next[threadIdx.x];
    cluster.sync();
    atomicAdd(&next[0], 1);
    cluster.sync();
    if (threadIdx.x == 0) out[blockIdx.x * blockDim.x] = own[0];
}

__global__ void shape(int *out) {
    auto cluster = cg::this_cluster();
    const int number = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const dim3 inside = cluster.block_index(), size = cluster.dim_blocks();
    unsigned row;
    asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(row));
    const int found[8] = {(int)cluster.block_rank(), (int)inside.x, (int)inside.y, (int)inside.z,
                          (int)size.x, (int)size.y, (int)size.z, (int)row};
    for (int k = 0; k < 8; k++) out[number * 8 + k] = found[k];
}

static int clusters(int *out) {
    ring<<<8, 64>>>(out);
    cudaDeviceSynchronize();
    int wrong = 0;
    for (int b = 0; b < 8; b++)
        for (int t = 0; t < 64; t++) wrong += out[b * 64 + t] != (t ? (b % 4 + 1) % 4 * 100 + t : b % 4 * 100 + 64);
    printf("ring %d\n", wrong);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    config.gridDim = dim3(4, 6, 2);
    config.blockDim = 32;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 2;
    attribute.val.clusterDim.y = 3;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, shape, out);
    cudaDeviceSynchronize();
    wrong = 0;
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 6; y++)
            for (int x = 0; x < 4; x++) {
                const int expected[8] = {x % 2 + 2 * (y % 3), x % 2, y % 3, 0, 2, 3, 1, y / 3};
                for (int k = 0; k < 8; k++) wrong += out[((z * 6 + y) * 4 + x) * 8 + k] != expected[k];
            }
    printf("shape %d\n", wrong);
    attribute.val.clusterDim.x = 3;
    printf("%s\n", cudaGetErrorName(cudaLaunchKernelEx(&config, shape, out)));
    attribute.val.clusterDim.x = 4;
    printf("%s\n", cudaGetErrorName(cudaLaunchKernelEx(&config, shape, out)));
    cudaGetLastError();
    return 0;
}
#endif

int main(int, char **arguments) {
    int *out, *more;
    cudaMallocManaged(&out, 1 << 20);
    cudaMallocManaged(&more, 1 << 20);
    void *given[] = {&out, &more};
    cudaLaunchCooperativeKernel((void *)sums, BLOCKS, THREADS, given, 0, 0);
    cudaDeviceSynchronize();
    const long n = BLOCKS * THREADS;
    int wrong = 0;
    for (long i = 0; i < n; i++) wrong += out[i] != (int)(n * (n - 1) / 2);
    printf("sums %d\n", wrong);
    printf("%s\n", cudaGetErrorName(cudaLaunchCooperativeKernel((void *)sums, 1000000, THREADS, given, 0, 0)));
    cudaGetLastError();
    memset(more, 0, 4096);
    wait_for_last<<<50, 64>>>(more, out);
    cudaDeviceSynchronize();
    wrong = 0;
    for (int i = 0; i < 50; i++) wrong += out[i * 8] != 49 + i;
    printf("last %d\n", wrong);
    memset(more, 0, 4096);
    look_back<<<30, 32>>>(more, more + 64, out);
    cudaDeviceSynchronize();
    wrong = 0;
    for (int i = 0; i < 30; i++) wrong += out[i] != (i + 1) * (i + 2) / 2;
    printf("back %d\n", wrong);
    memset(more, 0, 4096);
    takes_turns<<<3, 64>>>(more, more + 1);
    cudaDeviceSynchronize();
    printf("turns %d\n", more[1]);
#ifdef CLUSTERS
    clusters(out);
#endif
    if (arguments[1]) {
        never<<<3, 32>>>(more);
        printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    }
}
