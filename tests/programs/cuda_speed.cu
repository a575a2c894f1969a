// Three programs to measure the tracer of CUDA programs with: cuda_speed bfs|hotspot|matrix SIZE
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
// One step of a breadth-first search: a thread for each node of the frontier visits its neighbours.
__global__ void step(const int *first, const int *edges, bool *now, bool *next, bool *seen, int *cost, int nodes) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes || !now[node]) return;
    now[node] = false;
    for (int k = first[node]; k < first[node + 1]; k++) {
        int other = edges[k];
        if (!seen[other]) cost[other] = cost[node] + 1, next[other] = true;
    }
}
__global__ void turn(bool *now, bool *next, bool *seen, bool *more, int nodes) {
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node < nodes && next[node]) now[node] = true, seen[node] = true, *more = true, next[node] = false;
}
static void bfs(int nodes) {
    const int degree = 6;
    int *first, *edges, *cost;
    bool *now, *next, *seen, *more;
    cudaMallocManaged(&first, (nodes + 1) * sizeof(int)), cudaMallocManaged(&edges, nodes * degree * sizeof(int));
    cudaMallocManaged(&cost, nodes * sizeof(int)), cudaMallocManaged(&now, nodes), cudaMallocManaged(&next, nodes);
    cudaMallocManaged(&seen, nodes), cudaMallocManaged(&more, 1);
    unsigned state = 1;
    int place = 0;
    for (int k = 0; k < nodes; k++) {
        first[k] = place;
        for (int e = 0, own = 1 + k % degree; e < own; e++) state = state * 1664525u + 1013904223u, edges[place++] = (state >> 8) % nodes;
    }
    first[nodes] = place;
    now[0] = seen[0] = true;
    do {
        *more = false;
        step<<<(nodes + 511) / 512, 512>>>(first, edges, now, next, seen, cost, nodes);
        turn<<<(nodes + 511) / 512, 512>>>(now, next, seen, more, nodes);
        cudaDeviceSynchronize();
    } while (*more);
}
// A step of a stencil on tiles of shared memory with a halo, as hotspot has it.
#define TILE 16
__global__ void heat(const float *power, const float *from, float *to, int side, int rounds) {
    __shared__ float tile[TILE][TILE], out[TILE][TILE];
    const int x = blockIdx.x * (TILE - 2 * rounds) + threadIdx.x - rounds, y = blockIdx.y * (TILE - 2 * rounds) + threadIdx.y - rounds;
    const bool inside = x >= 0 && y >= 0 && x < side && y < side;
    float own = inside ? power[y * side + x] : 0;
    if (inside) tile[threadIdx.y][threadIdx.x] = from[y * side + x];
    __syncthreads();
    const int w = x > 0 ? threadIdx.x - 1 : threadIdx.x, e = x < side - 1 ? threadIdx.x + 1 : threadIdx.x;
    const int n = y > 0 ? threadIdx.y - 1 : threadIdx.y, s = y < side - 1 ? threadIdx.y + 1 : threadIdx.y;
    bool computed = false;
    for (int k = 0; k < rounds; k++) {
        computed = false;
        if (threadIdx.x > k && threadIdx.x < TILE - 1 - k && threadIdx.y > k && threadIdx.y < TILE - 1 - k && inside) {
            computed = true;
            const float c = tile[threadIdx.y][threadIdx.x];
            out[threadIdx.y][threadIdx.x] = c + 0.1f * (own + (tile[s][threadIdx.x] + tile[n][threadIdx.x] - 2.f * c) * 0.3f +
                                                        (tile[threadIdx.y][e] + tile[threadIdx.y][w] - 2.f * c) * 0.4f + (80.f - c) * 0.01f);
        }
        __syncthreads();
        if (k == rounds - 1) break;
        if (computed) tile[threadIdx.y][threadIdx.x] = out[threadIdx.y][threadIdx.x];
        __syncthreads();
    }
    if (computed) to[y * side + x] = out[threadIdx.y][threadIdx.x];
}
static void hotspot(int side) {
    float *power, *from, *to;
    cudaMallocManaged(&power, side * side * 4), cudaMallocManaged(&from, side * side * 4), cudaMallocManaged(&to, side * side * 4);
    const int blocks = (side + TILE - 5) / (TILE - 4);
    heat<<<dim3(blocks, blocks), dim3(TILE, TILE)>>>(power, from, to, side, 2);
    cudaDeviceSynchronize();
}
// A product of matrices by tiles in shared memory, as the CUDA sample has it.
__global__ void product(float *c, const float *a, const float *b, int side) {
    __shared__ float as[TILE * 2][TILE * 2], bs[TILE * 2][TILE * 2];
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < side; k += 32) {
        as[threadIdx.y][threadIdx.x] = a[y * side + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + x];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; j++) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        __syncthreads();
    }
    c[y * side + x] = sum;
}
static void matrix(int side) {
    float *a, *b, *c;
    cudaMallocManaged(&a, side * side * 4), cudaMallocManaged(&b, side * side * 4), cudaMallocManaged(&c, side * side * 4);
    product<<<dim3(side / 32, side / 32), dim3(32, 32)>>>(c, a, b, side);
    cudaDeviceSynchronize();
}
int main(int count, char **words) {
    const int size = atoi(words[2]);
    if (!strcmp(words[1], "bfs")) bfs(size);
    if (!strcmp(words[1], "hotspot")) hotspot(size);
    if (!strcmp(words[1], "matrix")) matrix(size);
    printf("%s\n", cudaGetErrorName(cudaGetLastError()));
}
