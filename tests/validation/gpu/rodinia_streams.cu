// Kernels of two Rodinia programs in two streams: hotspot's and pathfinder's, on arrays of their own, ROUNDS times each.
// nvcc -I RODINIA/cuda (the folder of hotspot and pathfinder); argument: 1 puts both into one stream.
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <cuda_runtime.h>
#include <fstream>
#include <iostream>

namespace hotspot {
#define main hotspot_main
#define run hotspot_run
#include "hotspot/hotspot.cu"
#undef main
#undef run
}  // namespace hotspot
#undef BLOCK_SIZE
#undef STR_SIZE
#undef IN_RANGE
#undef CLAMP_RANGE
#undef MIN
namespace pathfinder {
#define main pathfinder_main
#define run pathfinder_run
#include "pathfinder/pathfinder.cu"
#undef main
#undef run
}  // namespace pathfinder

static const int ROUNDS = 4, SIDE = 512, COLS = 100000, ROWS = 101, STEPS = 20;

static void *filled(size_t words, int seed) {
    int *host = (int *)malloc(words * 4), *device;
    for (size_t k = 0; k < words; k++) host[k] = (int)(k * 7 + seed) % 10;
    cudaMalloc(&device, words * 4);
    cudaMemcpy(device, host, words * 4, cudaMemcpyHostToDevice);
    free(host);
    return device;
}

int main(int argc, char **argv) {
    cudaStream_t stream[2];
    for (int k = 0; k < 2; k++) cudaStreamCreateWithFlags(&stream[k], cudaStreamNonBlocking);
    if (argc > 1 && atoi(argv[1])) stream[1] = stream[0];
    float *power = (float *)filled(SIDE * SIDE, 1), *temperature[2];
    for (int k = 0; k < 2; k++) temperature[k] = (float *)filled(SIDE * SIDE, 2 + k);
    int *wall = (int *)filled((size_t)COLS * ROWS, 4), *result[2];
    for (int k = 0; k < 2; k++) result[k] = (int *)filled(COLS, 5 + k);
    // as the programs choose them: pyramids of 2 and 20 steps, in blocks of 16 x 16 and 256 threads
    const int deep = 2, border = deep, small = 16 - deep * 2, blocks = SIDE / small + (SIDE % small != 0);
    const int narrow = 256 - STEPS * 2, columns = COLS / narrow + (COLS % narrow != 0);
    for (int round = 0; round < ROUNDS; round++) {
        int from = round % 2;
        hotspot::calculate_temp<<<dim3(blocks, blocks), dim3(16, 16), 0, stream[0]>>>(
            deep, power, temperature[from], temperature[1 - from], SIDE, SIDE, border, border, 0.5f, 1, 1, 1, 0.001f, 0);
        pathfinder::dynproc_kernel<<<columns, 256, 0, stream[1]>>>(
            STEPS, wall, result[from], result[1 - from], COLS, ROWS, round * STEPS, STEPS);
    }
    cudaDeviceSynchronize();
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    return 0;
}
